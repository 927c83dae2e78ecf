# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

import sfumato as sf
from sfumato.strategy.one_attribute.stream_filters import binary_tree
from sfumato_web.learn.tree import (
    CELLS,
    COUNTS,
    SIZES,
    _errors_at,
    cells_where_the_tree_wins,
    nodes_of,
    nodes_of_all_ranges,
    range_on_tree,
    unit_noise,
)
from tests.shared.words import SeededWords

RANGES = [(a, b) for a in range(1, CELLS + 1) for b in range(a, CELLS + 1)]
NOISE = unit_noise(SeededWords("tree"))


@pytest.mark.parametrize(("first", "last"), RANGES)
def test_the_chosen_nodes_tile_the_range_and_sum_to_it(first, last):
    found = range_on_tree(first, last, 1.0, NOISE)
    cells = [c for n in found.chosen for c in range(n.first + 1, n.first + n.width + 1)]
    assert cells == list(range(first, last + 1))
    assert sum(int(found.sums()[n.place]) for n in found.chosen) == found.truth
    assert found.truth == sum(COUNTS[first - 1 : last])


@pytest.mark.parametrize(("first", "last"), RANGES)
def test_no_fewer_nodes_tile_the_range(first, last):
    found = range_on_tree(first, last, 1.0, NOISE)
    wanted = set(range(first - 1, last))
    inside = [n for n in nodes_of() if set(range(n.first, n.first + n.width)) <= wanted]
    for size in range(1, len(found.chosen)):
        for some in combinations(inside, size):
            assert sum(n.width for n in some) < len(wanted) or _overlap(some)


def _overlap(nodes) -> bool:
    ordered = sorted(nodes, key=lambda n: n.first)
    return any(a.first + a.width > b.first for a, b in pairwise(ordered))


def test_the_answer_is_the_sum_of_the_chosen_noisy_nodes():
    found = range_on_tree(7, 2, 0.5, NOISE)  # in whichever order
    assert (found.first, found.last) == (2, 7)
    off = sum(4 / 0.5 * NOISE[n.place] for n in found.chosen)
    assert found.answer() == pytest.approx(found.truth + off)


@pytest.mark.parametrize("height", range(6))
def test_the_nodes_of_all_ranges_add_up(height):
    cells = 2**height
    counted = sum(
        sum(number for _, _, number in binary_tree(cells, b - a).tiles(b))
        for a in range(cells)
        for b in range(a + 1, cells + 1)
    )
    assert nodes_of_all_ranges(height) == counted


@pytest.mark.parametrize("cells", [8, 32])
def test_plain_counts_err_as_the_planner_forecasts(cells):
    work = sf.ranges(sf.Domain({"cell": cells}), "cell")
    plan = sf.plan(work, sf.Budget(epsilon=0.1), mechanism="laplace-table")
    assert _errors_at(cells, Fraction(1, 10))["plain counts"] == pytest.approx(plan.rmse, rel=1e-2)


def test_least_squares_over_all_nodes_beats_the_fewest_nodes():
    for cells in SIZES:
        errors = _errors_at(cells, Fraction(1))
        assert errors["best"] < errors["tree"]


def test_the_tree_wins_only_when_there_are_many_cells():
    cross = cells_where_the_tree_wins()
    assert _errors_at(8, Fraction(1))["plain counts"] < _errors_at(8, Fraction(1))["tree"]
    for cells, is_won in ((cross // 2, False), (cross, True), (8 * cross, True)):
        errors = _errors_at(cells, Fraction(1))
        assert (errors["tree"] < errors["plain counts"]) is is_won
        assert errors["tree"] < errors["prefix sums"]


def test_errors_of_a_range_count_its_terms():
    errors = range_on_tree(2, 7, 0.1, NOISE).errors()
    assert errors["plain counts"] == pytest.approx(np.sqrt(6 * 200), rel=1e-2)
    assert errors["tree"] == pytest.approx(np.sqrt(4 * 16 * 200), rel=1e-2)
    assert errors["prefix sums"] == pytest.approx(np.sqrt(2 * 64 * 200), rel=1e-2)


def test_the_figure_fills_the_chosen_nodes():
    found = range_on_tree(2, 7, 1.0, NOISE)
    drawn = found.tree_figure()
    assert drawn.count("data-first") == 15
    assert drawn.count("node chosen") == len(found.chosen) == 4
    assert "binary tree errs less" in found.error_figure()
    assert "2 + 3-4 + 5-6 + 7" in found.notices()[0]
