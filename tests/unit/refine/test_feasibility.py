# SPDX-License-Identifier: Apache-2.0
"""Whether some data set meets all constraints, against scipy's linear programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from scipy.optimize import linprog

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine import feasibility
from sfumato.refine.feasibility import witness
from sfumato.refine.refine_limits import LIMITS

DOMAIN = sf.Domain({"a": 3, "b": 3, "c": 2, "d": 2})
SETS = list(chain(*(combinations("abcd", size) for size in (1, 2, 3))))
CONDITIONS = [
    [],
    ["a = 0 and b >= 1"],
    ["a = 0 and b >= 1", "b = 2 and c = 1"],
    ["a = 1 and d = 0", "b = 0 and c = 0"],
]


def margin(h: np.ndarray, names) -> np.ndarray:
    return h.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in names))


def swapped(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same one-way margins, other cells."""
    out = table.copy()
    for _ in range(3):
        x, y = rng.permutation(out.shape[0])[:2], rng.permutation(out.shape[1])[:2]
        z = () if out.ndim == 2 else (int(rng.integers(out.shape[2])),)
        moved = min(out[(x[0], y[0], *z)], out[(x[1], y[1], *z)])
        for i, j, sign in ((0, 0, -1), (1, 1, -1), (0, 1, 1), (1, 0, 1)):
            out[(x[i], y[j], *z)] += sign * moved
    return out


def drawn(seed: int) -> sf.Constraints | None:
    """Tables that agree on what they share, from one data set or nearly; None if they do not."""
    rng = np.random.default_rng(seed)
    conditions = CONDITIONS[rng.integers(4)]
    h = rng.multinomial(rng.integers(5, 60), np.full(36, 1 / 36)).reshape(DOMAIN.shape) * 1.0
    h *= sf.Constraints(DOMAIN, conditions).possible(DOMAIN.names)
    published = []
    for i in rng.choice(len(SETS), rng.integers(1, 5), replace=False):
        table = margin(h, SETS[i])
        is_moved = table.ndim > 1 and rng.random() < 0.7
        published.append((SETS[i], swapped(table, rng) if is_moved else table))
    try:
        return sf.Constraints(DOMAIN, conditions, published)
    except WorkloadError:
        return None


def is_feasible(known: sf.Constraints) -> bool:
    cells = np.array(list(np.ndindex(DOMAIN.shape)))
    possible = known.are_possible(cells.T)
    rows, counts = [], []
    for table in known.published:
        for at in np.ndindex(table.values.shape):
            inside = [cells[:, DOMAIN.index(n)] == c for n, c in zip(table.names, at, strict=True)]
            rows.append(np.logical_and.reduce([possible, *inside]) * 1.0)
            counts.append(table.values[at])
    found = linprog(np.zeros(len(cells)), A_eq=np.array(rows), b_eq=counts)
    assert found.status in (0, 2)
    return found.status == 0


def check(known: sf.Constraints) -> None:
    found = witness(known)
    assert known.are_possible(found.codes).all()
    assert (found.weights >= 0).all()
    h = np.zeros(DOMAIN.shape)
    np.add.at(h, tuple(found.codes), found.weights)
    for table in known.published:
        assert margin(h, table.names) == pytest.approx(table.values, abs=1e-7)


def test_it_agrees_with_linear_programs():
    answers = {True: 0, False: 0}
    for seed in range(150):
        known = drawn(seed)
        if known is None:
            continue
        expected = is_feasible(known)
        answers[expected] += 1
        if expected:
            check(known)
        else:
            with pytest.raises(WorkloadError, match="no data set has the published"):
                witness(known)
    assert answers[True] > 50
    assert answers[False] > 1, "the draws must hold contradictions that pairs do not show"


def circle(third: np.ndarray) -> sf.Constraints:
    same = np.array([[5.0, 0.0], [0.0, 5.0]])
    domain = sf.Domain({"x": 2, "y": 2, "z": 2})
    return sf.Constraints(domain, [], [(["x", "y"], same), (["y", "z"], same), (["x", "z"], third)])


def test_a_circle_that_nobody_closes_is_refused_and_one_that_closes_is_not():
    witness(circle(np.array([[5.0, 0.0], [0.0, 5.0]])))
    with pytest.raises(WorkloadError, match="no data set has the published"):
        witness(circle(np.array([[0.0, 5.0], [5.0, 0.0]])))


def test_conditions_can_forbid_what_agreeing_tables_need():
    domain = sf.Domain({"x": 2, "y": 2, "z": 3})
    tables = [(["x"], [9.0, 1.0]), (["y"], [9.0, 1.0])]
    witness(sf.Constraints(domain, ["x = 1 and y = 1"], tables))
    with pytest.raises(WorkloadError, match="without an impossible record"):
        witness(sf.Constraints(domain, ["x = 0 and y = 0"], tables))


def test_chains_of_huge_tables_are_met_without_listing_the_domain():
    """Seven attributes of 40 cells have 1.6e11 cells together; six tables have 9,600."""
    names = [f"x{i}" for i in range(7)]
    domain = sf.Domain(dict.fromkeys(names, 40))
    rows = np.random.default_rng(2).integers(0, 40, (7, 5000))
    rows[1:, :2500] = rows[:-1, :2500]
    tables = []
    for i in range(6):
        table = np.zeros((40, 40))
        np.add.at(table, (rows[i], rows[i + 1]), 1.0)
        tables.append(([names[i], names[i + 1]], table))
    tables.reverse()
    known = sf.Constraints(domain, [], tables)
    found = witness(known)
    assert found.codes.shape[1] <= 6 * 1600
    assert found.off < 1e-12


def test_circles_that_are_too_large_are_refused_as_undecided(monkeypatch):
    monkeypatch.setattr(feasibility, "LIMITS", replace(LIMITS, cells_listed=7))
    with pytest.raises(TooLarge, match="nobody can tell"):
        witness(circle(np.array([[5.0, 0.0], [0.0, 5.0]])))


def test_nothing_published_and_no_records_are_met():
    assert len(witness(sf.Constraints(DOMAIN, ["a = 0"])).weights) == 0
    one = witness(sf.Constraints(DOMAIN, ["a = 0"], [([], 7.0)]))
    assert one.weights.tolist() == [7.0]
    assert one.codes[0, 0] != 0
    none = witness(sf.Constraints(DOMAIN, [], [(["a"], [0.0, 0.0, 0.0])]))
    assert len(none.weights) == 0
