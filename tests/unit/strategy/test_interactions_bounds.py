# SPDX-License-Identifier: Apache-2.0
"""Bounds from interactions hold: none is above the nuclear norm that it stands for."""

from __future__ import annotations

from functools import reduce
from math import inf

import numpy as np
import pytest

import sfumato as sf
from sfumato.strategy import interactions as interaction_bounds
from sfumato.strategy.interactions import interaction_bound
from sfumato.strategy.matrix import dense
from sfumato.strategy.query_interactions import collected, query_groups
from sfumato.strategy.strategy_limits import StrategyLimits
from sfumato.workload.workload import Workload
from tests.unit.strategy.test_interactions import SMALL, affine, matrix, mixed

UNEVEN = {"a": [1, 2, 3, 1], "b": [3, 1, 2], "c": [1, 1, 4, 2, 1]}


def bound(work: Workload, monkeypatch: pytest.MonkeyPatch, **limits: int) -> float:
    """The bound at uneven weights of cells, with other limits."""
    monkeypatch.setattr(interaction_bounds, "LIMITS", StrategyLimits(**limits))  # type: ignore[arg-type]
    groups = query_groups(work)
    weights = {name: np.array(w) for name, w in UNEVEN.items()}
    value = interaction_bound(groups, [weights], [collected(groups, weights)], [inf])
    assert value is not None
    return value


def norm(work: Workload) -> float:
    """The squared nuclear norm of all queries over all cells, at the same weights."""
    rows = (
        matrix(work)
        * np.repeat([t.weight for t in work.terms], [t.rows for t in work.terms])[:, None]
    )
    shares = [np.array(w) / sum(w) for w in UNEVEN.values()]
    cells = reduce(np.multiply.outer, shares).reshape(-1)
    return float(np.linalg.norm(rows * np.sqrt(cells), "nuc") ** 2)


def weighted() -> Workload:
    """Conditions and products, some of which weigh more."""
    three = sf.product(SMALL, {"a": "prefix", "b": "ranges", "c": "prefix"})
    return mixed() | three * 0.5 | sf.product(SMALL, {"b": "prefix", "c": "identity"}) * 3


def test_few_queries_have_the_nuclear_norm_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    work = weighted()
    assert bound(work, monkeypatch) == pytest.approx(norm(work), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 1024])
def test_many_queries_have_a_bound_below_it_and_near(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along attributes (rows = 1) and by polar factors that follow each other."""
    work = weighted()
    value = bound(work, monkeypatch, interaction_queries=0, interaction_polar_rows=rows)
    assert 0.8 * norm(work) < value <= norm(work)


def test_rounds_raise_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"interaction_queries": 0}
    once = bound(weighted(), monkeypatch, interaction_polar_rounds=1, **limits)
    thrice = bound(weighted(), monkeypatch, interaction_polar_rounds=3, **limits)
    assert once * 1.001 < thrice <= norm(weighted())


def test_sets_of_many_cells_are_compared_by_their_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    work = weighted()
    limits = {"interaction_queries": 0, "interaction_polar_cells": 0}
    assert 0.7 * norm(work) < bound(work, monkeypatch, **limits) <= norm(work)


def test_groups_too_large_for_a_polar_factor_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = StrategyLimits(interaction_queries=0, interaction_polar_side=3)
    monkeypatch.setattr(interaction_bounds, "LIMITS", limits)
    groups = query_groups(affine(SMALL))
    weights = {name: np.array(w) for name, w in UNEVEN.items()}
    assert interaction_bound(groups, [weights], [collected(groups, weights)], [inf]) is None


def test_no_strategy_is_better_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    work = weighted()
    best = dense(work).weighted_error()
    assert bound(work, monkeypatch, interaction_queries=0) <= best * (1 + 1e-9)


def test_a_bound_that_is_near_enough_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = StrategyLimits(interaction_queries=0)
    monkeypatch.setattr(interaction_bounds, "LIMITS", limits)
    groups = query_groups(weighted())
    weights = {name: np.array(w) for name, w in UNEVEN.items()}
    by_set = [collected(groups, weights)] * 2
    whole = interaction_bound(groups, [weights] * 2, by_set, [inf, inf])
    assert whole is not None
    calls: list[float] = []
    kind = interaction_bounds._PinchedClusters

    class Counted(kind):  # type: ignore[misc,valid-type]
        def bound(self, enough: float = inf) -> float | None:
            calls.append(enough)
            value: float | None = super().bound(enough)
            return value

    monkeypatch.setattr(interaction_bounds, "_PinchedClusters", Counted)
    easy = interaction_bound(groups, [weights] * 2, by_set, [0.5 * whole**0.5, inf])
    assert easy is not None
    assert easy <= whole
    assert len(calls) == 1
    interaction_bound(groups, [weights] * 2, by_set, [inf, inf])
    assert len(calls) == 3
