"""Products by factorization, other groups beside them."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.planning import mechanisms
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import Combined
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 6, "b": 3})


def mixed() -> Workload:
    a, b = sf.attribute(DOMAIN, "a"), sf.attribute(DOMAIN, "b")
    either = sf.predicates(DOMAIN, [(a < 3) | (b == 1), (a >= 2) & ~(b == 0)])
    return sf.prefixes(DOMAIN, "a") | either | sf.marginals(DOMAIN, [("a", "b")])


@pytest.fixture(autouse=True)
def nothing_joint(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the distinct columns of all groups together were too many, and interactions, too."""

    def refuse(*_: object) -> Strategy:
        raise TooLarge("too many columns")

    monkeypatch.setattr(mechanisms, "dense", refuse)
    monkeypatch.setattr(mechanisms, "interactions", refuse)


def dense(plan: sf.Plan) -> tuple[np.ndarray, np.ndarray]:
    units = [e.reshape(DOMAIN.shape) for e in np.eye(DOMAIN.size)]
    rows = []
    for block in plan.strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        rows.append(block.share * np.array([block.term.answer(u.sum(axis=drop)) for u in units]).T)
    return np.vstack(rows), np.array([plan.workload.evaluate(u) for u in units]).T


def test_every_term_is_answered_by_its_part_without_bias() -> None:
    plan = sf.plan(mixed(), sf.Budget(mu=1), mechanism="factorization")
    assert isinstance(plan.strategy.in_normal_form, Combined)
    assert plan.candidates[0].name == "factorization (orbits + conditions)"
    counts = np.random.default_rng(0).integers(0, 50, size=DOMAIN.shape)
    values = []
    for block in plan.strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        values.append(block.term.answer(counts.sum(axis=drop)))
    answers = np.concatenate([plan.strategy.answer(t, values) for t in range(3)])
    np.testing.assert_allclose(answers, plan.workload.evaluate(counts), atol=1e-8)


def test_the_stated_norm_covers_the_dense_matrix_and_the_bound_is_below_the_error() -> None:
    plan = sf.plan(mixed(), sf.Budget(mu=1), mechanism="factorization")
    matrix, _ = dense(plan)
    norm = plan.strategy.sensitivity(2).power
    assert (matrix**2).sum(axis=0).max() <= norm
    assert norm == pytest.approx(1.0)
    assert plan.certificate is not None
    assert plan.certificate >= 1


def test_no_other_split_between_the_parts_does_better() -> None:
    plan = sf.plan(mixed(), sf.Budget(mu=1), mechanism="factorization")
    strategy = plan.strategy.in_normal_form
    assert isinstance(strategy, Combined)
    errors = [p.weighted_error() for p in strategy.parts]
    least = sum(np.sqrt(errors)) ** 2
    assert strategy.weighted_error() == pytest.approx(least, rel=1e-6)
