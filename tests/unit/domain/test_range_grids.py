# SPDX-License-Identifier: Apache-2.0
"""Public grids: what they cut, and the attributes that ranges on them become."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise

import pytest

from sfumato.domain.attributes import DateTime, Integer, Numeric
from sfumato.domain.range_grids import MomentGrid, NumberGrid, even_edges

REAL = NumberGrid("x")
WHOLE = NumberGrid("x", is_whole=True)
MONTHS = MomentGrid("x")


def test_neighbouring_edges_of_one_sign_are_less_than_an_octave_apart():
    """From 1e-12 to 1e18; the steps are 1.5, 4/3, 1.5, 5/3, 7/5 and 10/7."""
    positive = [edge for edge in REAL.edges if edge > 0]
    assert (positive[0], positive[-1]) == (1e-12, 1e18)
    assert max(b / a for a, b in pairwise(positive)) == pytest.approx(5 / 3)


@pytest.mark.parametrize("grid", [REAL, WHOLE])
def test_a_grid_of_numbers_is_symmetric_about_zero(grid):
    assert [-edge for edge in reversed(grid.edges)] == list(grid.edges)
    assert 0.0 in grid.edges


def test_whole_numbers_have_cells_of_their_own_up_to_three():
    at = WHOLE.edges.index(0.0)
    assert WHOLE.edges[at - 3 : at + 5] == (-3, -2, -1, 0, 1, 2, 3, 5)


@pytest.mark.parametrize("grid", [REAL, WHOLE, MONTHS])
def test_every_value_has_a_cell_and_nulls_have_their_own(grid):
    assert grid.attribute.keeps_every_record
    assert grid.attribute.size == grid.cells + 1


@pytest.mark.parametrize("grid", [REAL, WHOLE, MONTHS])
@pytest.mark.parametrize("place", [0, 1, 50, -2, -1])
def test_walks_begin_at_the_cell_and_end_at_the_ends_of_the_grid(grid, place):
    middle = place % grid.cells
    below, above = grid.outward(middle)
    assert (below[0], above[0]) == (middle, middle + 1)
    assert (below[-1], above[-1]) == (0, grid.cells)
    assert list(below) == sorted(set(below), reverse=True)
    assert list(above) == sorted(set(above))


def test_walks_over_months_take_steps_that_grow():
    below, _ = MONTHS.outward(1000)
    assert [1000 - edge for edge in below[:9]] == [0, 1, 2, 3, 4, 6, 8, 12, 16]


def test_a_range_of_numbers_begins_and_ends_at_its_edges():
    closed = REAL.closed(0.03, 1.5, 8)
    assert closed == Numeric(
        "x",
        (0.03, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.5),
        outside="clamp",
        nulls="missing",
    )


def test_a_range_of_whole_numbers_ends_before_its_last_edge():
    closed = WHOLE.closed(15, 100, 20)
    assert closed == Integer("x", 15, 99, 5, outside="clamp", nulls="missing")


def test_one_cell_of_whole_numbers_is_a_range():
    closed = WHOLE.closed(2, 3, 20)
    assert (closed.min, closed.max, closed.value_count) == (2, 2, 1)


@pytest.mark.parametrize(
    ("months", "bins", "step"), [(1, 31, "day"), (12, 12, "month"), (240, 20, "year")]
)
def test_a_range_of_months_has_the_shortest_steps_that_give_so_few_bins(months, bins, step):
    start = 12 * 424  # 2024
    closed = MONTHS.closed(MONTHS.value(start), MONTHS.value(start + months), bins)
    assert isinstance(closed, DateTime)
    assert (closed.start, closed.step) == (datetime(2024, 1, 1), step)
    assert closed.value_count <= 1.1 * bins + 1


@pytest.mark.parametrize("ends", [(0.0, 70.0), (-3e-7, 5e-6), (1e17, 1e18), (-1e-12, 1e-12)])
@pytest.mark.parametrize("bins", [1, 2, 5, 24, 50])
def test_even_edges_rise_from_end_to_end_and_are_not_too_many(ends, bins):
    edges = even_edges(*ends, bins)
    assert (edges[0], edges[-1]) == ends
    assert all(a < b for a, b in pairwise(edges))
    assert 1 <= len(edges) - 1 <= bins


@pytest.mark.parametrize("grid", [REAL, WHOLE, MONTHS])
def test_defaults_are_ranges_on_the_grid(grid):
    values = [grid.value(edge) for edge in range(grid.cells + 1)]
    assert set(grid.default) <= set(values)
    assert grid.closed(*grid.default, 20).keeps_every_record


@pytest.mark.parametrize("grid", [REAL, WHOLE, MONTHS])
def test_values_of_edges_are_the_same_after_json(grid):
    values = [grid.value(edge) for edge in range(grid.cells + 1)]
    assert json.loads(json.dumps(values)) == values
