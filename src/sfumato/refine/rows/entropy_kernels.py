# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of ``entropy.py``; imported when first used, for they need numba.

Rows are held one after the other (row x attribute). Set k of attributes owns the cells from
``offset[k]`` of one flat vector; the cell of a row is ``offset[k] + sum_a stride[k, a] code[a]``.
``held[start[a] : start[a + 1]]`` lists the sets that look at attribute a.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["cells_of", "margin", "move", "reweight", "solve"]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def cells_of(codes, members, stride, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The cell of every row in the table over the attributes ``members``."""
    for r in range(codes.shape[0]):
        at = 0
        for a in members:
            at += stride[a] * codes[r, a]
        out[r] = at


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def margin(cells, weights, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the weight of every row to its cell."""
    for r in range(cells.shape[0]):
        out[cells[r]] += weights[r]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def reweight(cells, factors, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Multiply the weight of every row by the factor of its cell; the sum of all comes back."""
    total = 0.0
    for r in range(cells.shape[0]):
        weights[r] *= factors[cells[r]]
        total += weights[r]
    return total


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _omega(z):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The u > 0 with ``u + log u = z`` (Wright's omega), by Newton's rule on ``log u``."""
    if z < -30.0:
        return np.exp(z)
    v = z if z < 1.0 else np.log(z)
    for _ in range(40):
        e = np.exp(v)
        step = (v + e - z) / (1.0 + e)
        v -= step
        if abs(step) < 1e-10:
            break
    return np.exp(v)


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def solve(shares, potential, values, gain, total, reach, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Potentials of one table with ``p_c = gain (values_c - total m_c)`` up to a constant.

    ``shares`` are the margins m under the old potentials; the new ones make ``m_c`` proportional to
    ``shares_c exp(p_c - potential_c)`` with sum 1. No potential moves by more than ``reach``; cells
    without a row keep theirs.
    """
    cells = shares.shape[0]
    scale = gain * total
    base = np.empty(cells)
    for c in range(cells):
        base[c] = np.log(scale * shares[c]) - potential[c] + gain * values[c]
    shift = 0.0
    for _ in range(30):
        mass, slope = 0.0, 0.0
        for c in range(cells):
            if shares[c] > 0.0:
                out[c] = _omega(base[c] + shift)
                mass += out[c]
                slope += out[c] / (1.0 + out[c])
        if abs(mass / scale - 1.0) < 1e-7:
            break
        shift += min(max((scale - mass) / slope, -3.0), 3.0)
    for c in range(cells):
        if shares[c] > 0.0:
            moved = np.log(out[c] / (scale * shares[c]))
            out[c] = potential[c] + min(max(moved, -reach), reach)
        else:
            out[c] = potential[c]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _mixed(state):  # type: ignore[no-untyped-def]  # pragma: no cover
    """A number in [0, 1) from a counter (Steele, Lea, Flood 2014: SplitMix64)."""
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def move(  # type: ignore[no-untyped-def]  # pragma: no cover
    codes, edges, first, sizes, potential, offset, stride, start, held, times, seed
):
    """Metropolis steps, one attribute of one row at a time, under the potentials of all tables.

    A new value is drawn from its share (``edges``: cumulative shares, attribute a from
    ``first[a]``), and taken with probability ``min(1, exp(change of the potentials))``. The number
    of steps taken comes back.
    """
    rows, attributes = codes.shape
    sets = offset.shape[0]
    step = np.uint64(0x9E3779B97F4A7C15)
    cell = np.empty(sets, dtype=np.int64)
    taken = 0
    state = np.uint64(seed)
    for r in range(rows):
        for k in range(sets):
            cell[k] = offset[k]
        for a in range(attributes):
            for e in range(start[a], start[a + 1]):
                cell[held[e]] += stride[held[e], a] * codes[r, a]
        for _ in range(times):
            for a in range(attributes):
                state += step
                u = _mixed(state)
                low, high = first[a], first[a] + sizes[a] - 1
                while low < high:
                    middle = (low + high) // 2
                    if edges[middle] > u:
                        high = middle
                    else:
                        low = middle + 1
                by = low - first[a] - codes[r, a]
                if by == 0:
                    continue
                change = 0.0
                for e in range(start[a], start[a + 1]):
                    k = held[e]
                    change += potential[cell[k] + by * stride[k, a]] - potential[cell[k]]
                state += step
                if change >= 0.0 or _mixed(state) < np.exp(change):
                    for e in range(start[a], start[a + 1]):
                        cell[held[e]] += by * stride[held[e], a]
                    codes[r, a] += by
                    taken += 1
    return taken
