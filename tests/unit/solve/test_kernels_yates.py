# SPDX-License-Identifier: Apache-2.0
"""Margins by shared sums against sums of the whole table, and the adjoint against them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sfumato.solve.kernels import YatesSums

SHAPES = [(5,), (2, 3, 4, 2, 5), (1, 3, 1, 2), (2,) * 9]


@pytest.mark.parametrize("shape", SHAPES)
def test_margins_are_sums_over_all_other_axes(shape):
    sets = [c for k in range(min(4, len(shape)) + 1) for c in combinations(range(len(shape)), k)]
    table = np.random.default_rng(0).random(shape)
    sums = [table.sum(axis=tuple(set(range(len(shape))) - set(axes))) for axes in sets]
    stack = YatesSums(shape, sets).margins(table.reshape(-1))
    np.testing.assert_allclose(stack, np.concatenate([s.reshape(-1) for s in sums]))


@pytest.mark.parametrize("shape", SHAPES)
def test_spread_is_the_adjoint_of_the_margins(shape):
    sets = list(combinations(range(len(shape)), min(2, len(shape))))
    compiled, rng = YatesSums(shape, sets), np.random.default_rng(1)
    table, stack = rng.random(compiled.cells), rng.random(int(compiled.ends[-1]))
    inner = float(compiled.margins(table) @ stack)
    assert float(table @ compiled.spread(stack)) == pytest.approx(inner, rel=1e-12)
    assert float(table @ compiled.spread(2 * stack)) == pytest.approx(2 * inner, rel=1e-12)


def test_a_set_that_stands_twice_has_its_margin_twice():
    compiled = YatesSums((2, 3), [(0,), (1,), (0,)])
    assert compiled.margins(np.arange(6.0)).tolist() == [3, 12, 3, 5, 7, 3, 12]


def test_sums_are_shared():
    """All triples of 16 yes/no attributes take less than 40 additions a cell, not 560."""
    compiled = YatesSums((2,) * 16, list(combinations(range(16), 3)))
    sums = sum(
        int(outer * size * inner) for kind, _, _, outer, size, inner in compiled._steps if kind == 0
    )
    assert sums < 40 * compiled.cells
