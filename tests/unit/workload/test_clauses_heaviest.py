# SPDX-License-Identifier: Apache-2.0
"""How much weight of conditions holds at once, against all cells of small domains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.workload import clauses as clauses_module
from sfumato.workload import sensitivity, terms
from sfumato.workload.clauses import Decomposition, heaviest, maximum_overlap, read_clauses
from sfumato.workload.predicates import And, Condition, Everything, In, Or
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS
from tests.shared.random_conditions import random_box, random_condition, truth

SMALL = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 5})
ROUNDING = 1 + 1e-12


def drawn(seed: int, count: int = 12) -> tuple[list[Condition], np.ndarray, np.ndarray]:
    """Conditions, weights, and the weight at every cell."""
    rng = np.random.default_rng(seed)
    make = random_condition if seed % 2 else random_box
    conditions = [make(rng, SMALL) for _ in range(count)]
    weights = rng.random(count) ** 3
    return conditions, weights, weights @ truth(conditions, SMALL)


def joined(conditions: list[Condition], weights: np.ndarray) -> tuple:
    clauses = read_clauses(SMALL, conditions)
    kept = clauses.places >= 0
    return clauses, np.bincount(clauses.places[kept], weights[kept], clauses.count)


@pytest.mark.parametrize("seed", range(30))
def test_the_heaviest_cell_is_found_and_proved(seed: int) -> None:
    conditions, weights, at_cells = drawn(seed)
    found = heaviest(*joined(conditions, weights))
    assert found.reached == pytest.approx(at_cells.max(), rel=1e-12)
    assert found.upper == pytest.approx(at_cells.max(), rel=1e-4)
    assert found.upper * ROUNDING >= at_cells.max()


def is_bound(effort: float) -> list[bool]:
    out = []
    for seed in range(30):
        conditions, weights, at_cells = drawn(seed, 20)
        found = heaviest(*joined(conditions, weights), effort=effort)
        assert found.reached <= at_cells.max() * ROUNDING
        out.append(found.upper * ROUNDING >= at_cells.max())
    return out


@pytest.mark.parametrize("effort", [0.0, 1.0, 1e4, 1e5])
def test_with_little_effort_the_bound_is_a_bound(effort: float) -> None:
    assert all(is_bound(effort))


def test_parts_that_add_up_to_too_little_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: a split that loses a tenth of each weight is no bound."""
    honest = Decomposition._split
    monkeypatch.setattr(Decomposition, "_split", lambda self, weights: 0.9 * honest(self, weights))
    monkeypatch.setattr("sfumato.workload.clauses.climbed", lambda c, _, cells: c.at(cells[:1]))
    assert not all(is_bound(1e12))


@pytest.mark.parametrize("seed", range(20))
def test_every_split_of_the_weights_bounds_every_cell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    masks = [rng.random((n, 40)) < 0.6 for n in (3, 4, 5)]
    weights = rng.random(40) ** 4
    state = rng.random((7, 40)) < 0.8
    split = Decomposition(masks, weights)
    cells = masks[0][:, None, None] & masks[1][None, :, None] & masks[2][None, None]
    best = ((state[:, None] & cells.reshape(-1, 40)[None]) @ weights).max(axis=1)
    for steps in (1, 2, 10, 60):
        refined, _ = split.refined(state, np.zeros(7), steps)
        assert (refined >= best).all()
    assert (split.fixed(state) >= best).all()
    assert (split.refined(state, np.zeros(7), 60)[0] <= split.fixed(state) * ROUNDING).all()


def test_weights_of_any_size_are_bounded() -> None:
    conditions, weights, at_cells = drawn(3, 20)
    for size in (1e-200, 1e-46, 1e200):
        found = heaviest(*joined(conditions, weights * size), effort=1e4)
        assert found.upper * ROUNDING >= at_cells.max() * size
    spread = weights * 10.0 ** -np.arange(0, 60, 3)[: len(weights)]
    at_cells = spread @ truth(conditions, SMALL)
    assert heaviest(*joined(conditions, spread), effort=1e4).upper * ROUNDING >= at_cells.max()


def test_whole_numbers_are_bounded_by_whole_numbers() -> None:
    conditions, _, _ = drawn(4, 25)
    count = truth(conditions, SMALL).sum(axis=0).max()
    term = sf.predicates(SMALL, conditions).terms[0]
    found = maximum_overlap((term,))
    assert found.upper == found.reached == count
    assert found.is_exact
    clauses, copies = joined(conditions, np.ones(25))
    brief = heaviest(clauses, copies, effort=0.0, unit=1.0)
    assert brief.upper == int(brief.upper) >= count


def test_conditions_that_always_or_never_hold_count_always_or_never() -> None:
    conditions = [Everything(), Everything(), In("a", ()), In("a", (0, 1, 2)), In("b", (1,))]
    assert maximum_overlap((sf.predicates(SMALL, conditions).terms[0],)).upper == 4
    assert maximum_overlap((sf.predicates(SMALL, conditions[:2]).terms[0],)).upper == 2
    never = maximum_overlap((sf.predicates(SMALL, [In("a", ())]).terms[0],))
    assert (never.upper, never.reached) == (0, 0)


def test_a_condition_that_is_not_read_is_never_called_exact() -> None:
    domain = sf.Domain({f"a{i}": 3 for i in range(14)})
    pairs = [Or((In(f"a{2 * i}", (0,)), In(f"a{2 * i + 1}", (0,)))) for i in range(7)]
    term = sf.predicates(domain, [And(tuple(pairs)), In("a0", (1,)), In("a0", (2,))]).terms[0]
    found = maximum_overlap((term,))
    assert found.upper >= 2
    assert not found.is_exact


def test_weights_below_zero_or_not_finite_are_refused() -> None:
    clauses = read_clauses(SMALL, [In("a", (0,)), In("b", (0,))])
    for bad in ([1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(WorkloadError, match="finite and not below zero"):
            heaviest(clauses, np.array(bad))


@pytest.fixture
def nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every table of classes were too large."""
    monkeypatch.setattr(terms, "LIMITS", replace(WORKLOAD_LIMITS, cells_tabulated=4))


@pytest.mark.usefixtures("nothing_is_listed")
@pytest.mark.parametrize("seed", range(10))
def test_column_norms_of_wide_conditions_are_never_too_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = ([random_box(rng, SMALL) for _ in range(n)] for n in (9, 6))
    work = sf.predicates(SMALL, first) | sf.predicates(SMALL, second)
    counts = [truth(c, SMALL).sum(axis=0) for c in (first, second)]
    even = sensitivity.greatest_column_power(work.terms, [1.0, 1.0], 2)
    assert (even.power, even.is_exact) == ((counts[0] + counts[1]).max(), True)
    alone = sensitivity.greatest_column_power(work.terms[:1], [0.3], 1)
    assert alone.power == pytest.approx(0.3 * counts[0].max(), rel=1e-8)
    assert alone.power >= 0.3 * counts[0].max()
    uneven = sensitivity.greatest_column_power(work.terms, [0.3, 2.0], 2)
    assert uneven.power >= (0.3 * counts[0] + 2.0 * counts[1]).max()
    assert not uneven.is_exact


@pytest.mark.usefixtures("nothing_is_listed")
def test_wide_conditions_stand_beside_products() -> None:
    rng = np.random.default_rng(5)
    conditions = [random_box(rng, SMALL) for _ in range(9)]
    work = sf.predicates(SMALL, conditions) | sf.prefixes(SMALL, "d")
    columns = truth(conditions, SMALL).sum(axis=0).reshape(SMALL.shape)
    norm = work.column_norm(1)
    assert norm.power >= (columns + np.arange(5, 0, -1)).max()
    assert norm.power == pytest.approx(columns.max() + 5, rel=1e-8)
    assert not norm.is_exact


@pytest.mark.usefixtures("nothing_is_listed")
def test_conditions_that_are_too_many_to_count_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = [In("a", (i % 3,)) & In("b", (i % 4,)) for i in range(12)]
    work = sf.predicates(SMALL, conditions)
    assert work.column_norm(1).power == 1
    monkeypatch.setattr(sensitivity, "LIMITS", replace(WORKLOAD_LIMITS, conditions_counted=11))
    assert (work.column_norm(1).power, work.column_norm(1).is_exact) == (12.0, False)


def test_rounding_up_covers_sums_in_32_bits() -> None:
    rng = np.random.default_rng(0)
    for count in (10, 1000, 20_000):
        weights = rng.random(count)
        single = weights.astype(np.float32)
        total = np.float32(0)
        for w in single:  # the worst order: one after the other
            total += w
        assert float(total) * clauses_module.round_up(count, 1) >= weights.sum()
