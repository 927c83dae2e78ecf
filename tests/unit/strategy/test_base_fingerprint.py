# SPDX-License-Identifier: Apache-2.0
"""Digests of strategies: whatever changes a measured coefficient changes them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.run.linear import Plan
from sfumato.strategy.base import Block, fingerprint
from sfumato.strategy.marginals import Marginals
from sfumato.workload.terms import Term
from tests.shared.every_mechanism import CASES, planned


def changed(value: object) -> list[object]:
    """The same value with one of the numbers in it changed, a few ways."""
    if isinstance(value, bool) or value is None or isinstance(value, str | sf.Domain):
        return []
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2]
    if isinstance(value, np.ndarray):
        if not value.size or value.dtype.kind not in "iufO":
            return []
        flat = np.array(value)
        flat.reshape(-1)[-1] += 1
        return [flat]
    if isinstance(value, tuple) and value:
        return [(*value[:-1], new) for new in changed(value[-1])]
    if is_dataclass(value) and not isinstance(value, type):
        return variants(value)
    return []


def variants(value: object) -> list[object]:
    """Objects that differ in one number; those that their class refuses are left out."""
    out: list[object] = []
    for field in (f for f in fields(value) if f.init):  # type: ignore[arg-type]
        for new in changed(getattr(value, field.name)):
            try:
                out.append(replace(value, **{field.name: new}))  # type: ignore[type-var]
            except Exception:  # noqa: S112 - not a legal object
                continue
    return out


@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_a_changed_number_changes_the_digest(mechanism: str, work: str) -> None:
    plan = planned(mechanism, work)
    if plan is None or isinstance(plan.strategy, Marginals):  # its pieces follow from its sets
        return
    strategy = plan.strategy
    block = strategy.blocks[-1]
    assert strategy.digest() == replace(strategy).digest()
    seen = {strategy.digest()}
    others = variants(block.term)
    for term in others:
        assert isinstance(term, Term)
        blocks = (*tuple(strategy.blocks)[:-1], Block(term, block.share))
        seen.add(replace(strategy, blocks=blocks).digest())
    assert len(seen) == len(others) + 1


def of_weights(weights: tuple[int, ...]) -> Plan:
    """A wavelet whose differences are weighed like this, in everything else the same."""
    from sfumato.strategy.trees import Wavelet
    from sfumato.workload.terms import Product

    domain = sf.Domain({"x": 4})
    plan = sf.plan(sf.prefixes(domain, "x"), sf.Budget(mu=1), mechanism="gaussian-wavelet")
    term = Product(domain, "wavelet x", 1.0, (("x", Wavelet(4, weights)),))
    strategy = replace(plan.strategy, blocks=(Block(term, 1.0),))
    return replace(plan, forecast=replace(plan.forecast, strategy=strategy))


def test_wavelets_of_other_weights_are_other_measurements() -> None:
    """Name, rows and share are the same; the integers are not."""
    assert of_weights((1, 2, 3)).digest() == of_weights((1, 2, 3)).digest()
    assert of_weights((1, 2, 3)).measurement() != of_weights((1, 2, 4)).measurement()


def test_equal_queries_built_twice_have_one_fingerprint() -> None:
    def terms() -> tuple[Term, ...]:
        domain = sf.Domain({"p": 3, "q": 2})
        asked = sf.explicit(domain, ["p", "q"], [[1, 0, -2, 0.5, 0, 1]])
        p = sf.attribute(domain, "p")
        return (asked | sf.predicates(domain, [(p < 2) | (p == 2)]) | sf.marginals(domain, 1)).terms

    assert fingerprint(terms()) == fingerprint(terms())
    assert fingerprint(terms()) != fingerprint(terms()[:-1])
    assert fingerprint(terms()) != fingerprint(terms()[::-1])


def test_every_mechanism_is_covered() -> None:
    """The twin: with names, rows and shares alone, some strategies could not be told apart."""

    def by_name(plan: Plan) -> str:
        blocks = plan.strategy.blocks
        return str([(b.term.name, b.term.rows, b.share) for b in blocks])

    assert by_name(of_weights((1, 2, 3))) == by_name(of_weights((1, 2, 4)))
    assert {name for name, _ in CASES} == set(MECHANISMS)


def test_a_field_of_an_unknown_kind_is_refused() -> None:
    term = replace(sf.marginals(sf.Domain({"x": 3}), 1).terms[0], weight=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no fingerprint"):
        fingerprint([term])
