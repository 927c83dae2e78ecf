# SPDX-License-Identifier: Apache-2.0
"""Conditions with proved weights: against all cells of small domains, and measured for real."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.strategy.base import Strategy
from sfumato.strategy.conditions import Conditions, Proved, conditions, lower_bound
from sfumato.strategy.matrix import dense
from sfumato.strategy.neighbours.replace_one import best_for_pairs, for_replace_one
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Objective
from sfumato.vault.mechanisms.measure import combined_values, count
from sfumato.vault.tables import open_table
from sfumato.workload.clauses import Heaviest, read_clauses
from sfumato.workload.predicates import Condition, Everything, In, Or
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS
from tests.shared.random_conditions import random_box, random_condition, truth

SMALL = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 5})
LARGE = sf.Domain({f"a{i}": 10 for i in range(12)})
OBJECTIVES: tuple[Objective, Objective] = ("rmse", "max")
made = import_module("sfumato.strategy.conditions")


def drawn(seed: int, rows: int = 10) -> tuple[Workload, np.ndarray]:
    """Two groups of different weights, and the matrix of both."""
    rng = np.random.default_rng(seed)
    make = random_condition if seed % 2 else random_box
    groups: list[list[Condition]] = [[make(rng, SMALL) for _ in range(rows)] for _ in range(2)]
    work = sf.predicates(SMALL, groups[0]) | 2.0 * sf.predicates(SMALL, groups[1])
    return work, truth(groups[0] + groups[1], SMALL).astype(np.float64)


def measured(strategy: Strategy, matrix: np.ndarray) -> np.ndarray:
    """M over all cells, from the integers and the truth values of what they mix."""
    mixture = strategy.blocks[0].term
    assert isinstance(mixture, Proved)
    ends = np.cumsum([0, *(t.rows for t in strategy.workload.terms)])
    first = {id(t): int(e) for t, e in zip(strategy.workload.terms, ends, strict=False)}
    rows = [first[id(t)] + p for t, p in zip(mixture.base, mixture.picked, strict=True)]
    return np.asarray(mixture.entries.astype(np.float64) @ matrix[np.concatenate(rows)])


def farthest(m: np.ndarray) -> float:
    gram = m.T @ m
    own = np.diag(gram)
    return float((own[:, None] + own[None, :] - 2 * gram).max())


def reached(strategy: Strategy, objective: str) -> float:
    return strategy.weighted_error(objective)


def is_sound(strategy: Strategy, matrix: np.ndarray) -> bool:
    """Whether no column and no distance exceeds what is stated."""
    m, term = measured(strategy, matrix), strategy.blocks[0].term
    norms = [strategy.sensitivity(p, scales=[1.0]).power for p in (1, 2)]
    stated = [*norms, strategy.block_diameters(2)[0], term.greatest]
    brute = [np.abs(m).sum(axis=0).max(), (m**2).sum(axis=0).max(), farthest(m), np.abs(m).max()]
    low, high = term.coefficient_bounds()
    inside = (m.min(axis=1) >= low).all() and (m.max(axis=1) <= high).all()
    return inside and all(b <= s for b, s in zip(brute, stated, strict=True))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(8))
def test_no_cell_is_more_sensitive_than_stated_and_answers_are_unbiased(
    seed: int, objective: Objective
) -> None:
    work, matrix = drawn(seed)
    found = conditions(work, objective)
    assert found.plain is not None
    for strategy in (found, found.plain):
        assert is_sound(strategy, matrix)
        m = measured(strategy, matrix)
        r = np.column_stack([np.concatenate(strategy.answers([e])) for e in np.eye(len(m))])
        np.testing.assert_allclose(r @ m, matrix, atol=1e-9)
        variances = np.concatenate([strategy.variances(t, [2.5]) for t in range(2)])
        np.testing.assert_allclose(variances, 2.5 * (r**2).sum(axis=1), rtol=1e-12)
        c = np.random.default_rng(seed).standard_normal(work.terms[1].rows)
        back = strategy.adjoint(1, c).get(0, np.zeros(len(m)))
        np.testing.assert_allclose(back, c @ r[work.terms[0].rows :], atol=1e-12)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_conditions_that_are_undercounted_are_noticed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: a search that misses some of what holds at once."""
    honest = made.heaviest

    def low(*args: object, **options: object) -> Heaviest:
        found = honest(*args, **options)
        return Heaviest(0.9 * found.upper, 0.9 * found.reached, found.column)

    monkeypatch.setattr(made, "heaviest", low)
    work, matrix = drawn(seed)
    assert not is_sound(conditions(work), matrix)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_the_optimum_and_the_error_above(
    seed: int, objective: Objective
) -> None:
    work, matrix = drawn(seed)
    found, optimum = conditions(work, objective), dense(work, objective)
    assert found.bound is not None
    assert found.objective == objective
    assert found.bound <= reached(optimum, objective) * (1 + 1e-9)
    assert found.bound >= 0.9 * reached(optimum, objective)
    assert reached(found, objective) >= found.bound
    asked = (matrix.sum(axis=0)).max() * sum(t.rows * t.weight**2 for t in work.terms)
    if objective == "rmse":
        assert reached(found, objective) <= asked * (1 + 1e-3)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_conditions_that_were_not_read_raise_no_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted as if they always held, they would be cells that do not exist."""
    monkeypatch.setattr(
        import_module("sfumato.workload.clauses"),
        "LIMITS",
        replace(WORKLOAD_LIMITS, condition_clauses=1),
    )
    work, matrix = drawn(seed)
    clauses = read_clauses(SMALL, [c for t in work.terms for c in t.conditions])
    assert 0 < clauses.is_read.sum() < clauses.count
    found = conditions(work)
    assert is_sound(found, matrix)
    optimum = dense(work).weighted_error()
    assert found.bound is not None
    assert found.bound <= optimum * (1 + 1e-9)
    unread = sf.predicates(SMALL, [Or((In("a", (0,)), In("b", (i,)))) for i in range(3)])
    assert conditions(unread).bound is None


def test_made_up_cells_would_raise_the_bound() -> None:
    """The broken twin of the last test: two conditions that never hold together."""
    work = sf.predicates(SMALL, [In("a", (0,)), In("a", (1,))])
    clauses = read_clauses(SMALL, list(work.terms[0].conditions))
    real = np.array([[True, False], [False, True]])
    optimum = dense(work).weighted_error()
    weights = np.ones(2)
    assert lower_bound(clauses, weights, "rmse", real, None).added <= optimum * (1 + 1e-9)
    fake = np.concatenate([real, [[True, True]]])
    assert lower_bound(clauses, weights, "rmse", fake, None).added > 1.2 * optimum


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(4))
def test_replaced_records_have_a_bound_of_their_own(
    seed: int, objective: Objective, drops: bool
) -> None:
    work, _ = drawn(seed)
    found = for_replace_one(conditions(work, objective), objective, drops)
    best = best_for_pairs(work, objective, drops)
    assert best is not None
    assert found.replace_one_bound is not None
    assert found.replace_one_bound <= best.weighted_error(objective, "replace-one", drops) * (
        1 + 1e-9
    )
    assert found.weighted_error(objective, "replace-one", drops) >= found.replace_one_bound
    assert isinstance(found, Conditions)
    assert found.squared_sensitivity("replace-one", drops) <= 2.0001 * found.squared_sensitivity()


def test_conditions_that_repeat_never_hold_or_always_hold() -> None:
    listed = [In("a", (0,)), In("a", ()), Everything(), In("a", (0,)), Or((In("b", (1,)),))]
    work = sf.predicates(SMALL, listed)
    matrix = truth(listed, SMALL).astype(np.float64)
    found = conditions(work)
    assert found.block_rows == (3,)
    assert is_sound(found, matrix)
    m = measured(found, matrix)
    r = np.column_stack([found.answer(0, [e]) for e in np.eye(len(m))])
    np.testing.assert_allclose(r @ m, matrix, atol=1e-9)
    assert found.variances(0, [1.0])[1] == 0
    with pytest.raises(PlanError, match="nothing to measure"):
        conditions(sf.predicates(SMALL, [In("a", ())]))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_that_hardly_matter_are_not_rounded_away(objective: Objective) -> None:
    rng = np.random.default_rng(3)
    groups = [[random_box(rng, SMALL) for _ in range(6)] for _ in range(2)]
    work = sf.predicates(SMALL, groups[0]) | 1e-13 * sf.predicates(SMALL, groups[1])
    matrix = truth(groups[0] + groups[1], SMALL).astype(np.float64)
    found = conditions(work, objective)
    assert is_sound(found, matrix)
    m = measured(found, matrix)
    r = np.column_stack([np.concatenate(found.answers([e])) for e in np.eye(len(m))])
    np.testing.assert_allclose(r @ m, matrix, atol=1e-6)


def test_what_is_not_given_by_conditions_or_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, _ = drawn(0)
    with pytest.raises(PlanError, match="not given by conditions"):
        conditions(work | sf.prefixes(SMALL, "d"))
    with pytest.raises(PlanError, match="objective"):
        conditions(work, "mean")  # type: ignore[arg-type]
    monkeypatch.setattr(made, "LIMITS", replace(LIMITS, weighted_conditions=19))
    with pytest.raises(TooLarge, match="several plans"):
        conditions(work)


def test_columns_that_cannot_be_listed_are_not_listed() -> None:
    mixture = conditions(drawn(0)[0]).blocks[0].term
    with pytest.raises(TooLarge, match="too many to list"):
        mixture.row_powers(2)


def test_other_weights_are_another_strategy() -> None:
    work, _ = drawn(0)
    heavier = Workload(SMALL, (work.terms[0].weighted(1.5), work.terms[1]))
    one, same, other = conditions(work), conditions(work), conditions(heavier)
    assert one.digest() == same.digest()
    assert one.digest() != other.digest()
    assert one.plain is not None
    assert one.digest() != one.plain.digest()
    mixture = one.blocks[0].term
    assert isinstance(mixture, Proved)
    shorter = replace(mixture, norms=(mixture.norms[0], mixture.norms[1] / 2))
    blocks = (replace(one.blocks[0], term=shorter),)
    assert one.digest() != replace(one, blocks=blocks).digest()


@pytest.fixture
def nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the different columns were too many, and so the classes of cells."""
    monkeypatch.setattr(
        import_module("sfumato.strategy.matrix"),
        "LIMITS",
        replace(LIMITS, column_moves=8),
    )
    monkeypatch.setattr(
        import_module("sfumato.workload.terms"),
        "LIMITS",
        replace(WORKLOAD_LIMITS, cells_tabulated=8),
    )
    monkeypatch.setattr(
        import_module("sfumato.strategy.query_interactions"),
        "LIMITS",
        replace(LIMITS, interaction_entries=8),
    )


@pytest.mark.usefixtures("nothing_is_listed")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plans_fall_back_to_proved_weights(objective: Objective) -> None:
    work, matrix = drawn(2)
    build, noise = MECHANISMS["factorization"]
    found = build(work, noise, objective)
    assert isinstance(found, Conditions)
    assert found.mechanism == "factorization"
    assert is_sound(found, matrix)
    assert reached(found, objective) <= reached(
        MECHANISMS["gaussian"].build(work, noise, objective), objective
    )


@pytest.mark.usefixtures("nothing_is_listed")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_products_stand_beside_conditions(objective: Objective) -> None:
    work, matrix = drawn(2)
    both = work | sf.prefixes(SMALL, "d", by=["a"])
    build, noise = MECHANISMS["factorization"]
    found = build(both, noise, objective)
    assert len(found.blocks) > 1
    assert found.bound is not None
    assert found.objective == objective
    assert found.bound <= reached(found, objective)
    part = next(p for p in found.parts if isinstance(p, Conditions))  # type: ignore[attr-defined]
    known = np.concatenate([matrix, truth_of_prefixes()])
    rows = [part if isinstance(b.term, Proved) else None for b in found.blocks]
    blocks = [
        over_cells(b.term) if p is None else measured(p, matrix)
        for b, p in zip(found.blocks, rows, strict=True)
    ]
    shares = [s**2 for s in found.shares]
    columns = sum(s * (m**2).sum(axis=0) for s, m in zip(shares, blocks, strict=True))
    stated = found.sensitivity(2, scales=shares).power
    assert columns.max() <= stated
    assert stated == pytest.approx(1.0, rel=1e-6)
    apart = sum(s * d for s, d in zip(shares, found.block_diameters(2), strict=True))
    together = np.concatenate([s * m for s, m in zip(found.shares, blocks, strict=True)])
    assert farthest(together) <= apart
    answers = [np.concatenate(found.answers([m[:, c] for m in blocks])) for c in range(SMALL.size)]
    np.testing.assert_allclose(np.array(answers).T, known, atol=1e-8)


def truth_of_prefixes() -> np.ndarray:
    """The prefixes of d for every a, over the cells of all attributes."""
    a, d = (np.indices(SMALL.shape)[i].reshape(-1) for i in (0, 3))
    return np.array([(a == i) & (d <= j) for i in range(3) for j in range(5)], dtype=np.float64)


def over_cells(term: Term) -> np.ndarray:
    """The matrix of a term over the cells of all attributes."""
    rest = tuple(i for i, n in enumerate(SMALL.names) if n not in term.attributes)
    units = np.eye(SMALL.size).reshape(-1, *SMALL.shape)
    return np.array([term.answer(u.sum(axis=rest)) for u in units]).T


@pytest.mark.usefixtures("nothing_is_listed")
def test_a_small_table_is_measured_and_answered() -> None:
    work, matrix = drawn(4)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({n: rng.integers(0, SMALL[n].size, 300) for n in SMALL.names})
    histogram = np.zeros(SMALL.shape)
    np.add.at(histogram, tuple(table[n].to_numpy() for n in SMALL.names), 1)
    found = conditions(work)
    exact = count(open_table(table), SMALL, found.blocks, "add-remove").values.reveal()
    expected = measured(found, matrix) @ histogram.reshape(-1)
    assert [int(v) for v in exact[0]] == [int(v) for v in expected]
    answers = np.concatenate(found.answers([exact[0].astype(np.float64)]))
    np.testing.assert_allclose(answers, matrix @ histogram.reshape(-1), atol=1e-6)


def test_products_beyond_64_bits_are_exact() -> None:
    found = conditions(drawn(0)[0])
    mixture = found.blocks[0].term
    assert isinstance(mixture, Proved)
    answers = [np.full(t.rows, 2**44 - 1 - i, dtype=np.int64) for i, t in enumerate(mixture.base)]
    values = combined_values(mixture, answers)
    gathered = [int(v) for v in mixture.gathered(answers)]
    by_hand = [
        sum(int(c) * v for c, v in zip(row, gathered, strict=True)) for row in mixture.entries
    ]
    assert max(abs(v) for v in by_hand) > 2**63
    assert [int(v) for v in values] == by_hand


def test_a_table_on_a_trillion_cells_is_planned_and_released() -> None:
    rng = np.random.default_rng(7)
    listed = [random_box(rng, LARGE) for _ in range(40)]
    work = sf.predicates(LARGE, listed)
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9), mechanism="factorization")
    assert isinstance(plan.strategy.in_normal_form, Conditions)
    assert plan.certificate is not None
    assert 1 <= plan.certificate < 2
    table = pd.DataFrame({n: rng.integers(0, 10, 200) for n in LARGE.names})
    result = plan.release(table)
    frame = result.answers()
    exact = np.ones((40, 200), dtype=bool)
    for i, condition in enumerate(listed):
        for part in condition.parts:  # type: ignore[attr-defined]
            exact[i] &= np.isin(table[part.attribute], part.codes)
    off = frame["unbiased"].to_numpy() - exact.sum(axis=1)
    error = plan.standard_errors(0)
    assert np.abs(off / error).max() < 6
    assert np.abs(off).max() > 0
