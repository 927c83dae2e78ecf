# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of ``refine/rows.py``; imported when first used, for they need numba.

In the first part codes are held by attribute (attribute x row). Set s of attributes owns the cells
from ``offset[s]`` of one flat vector; its members are the entries ``member_start[s] :
member_start[s + 1]`` of ``member`` (attribute) and ``stride``; ``held_start``, ``held_set`` and
``held_stride`` list the same by attribute. Conditions are unions of boxes: the clauses that look
at attribute a are the entries ``look_start[a] : look_start[a + 1]`` of ``look_clause``, sorted by
condition, with their truth values per cell from ``look_mask[e]`` in ``masks``; ``condition[c]`` is
the condition of clause c.

In the second part rows are held one after the other (row x attribute). Set k of attributes owns the
cells from ``offset[k]`` of one flat vector; the cell of a row is ``offset[k] + sum_a stride[k, a]
code[a]``. ``held[start[a] : start[a + 1]]`` lists the sets that look at attribute a.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "add_margins",
    "add_scores",
    "cells_of",
    "descend",
    "margin",
    "move",
    "move_rows",
    "reweight",
    "solve",
]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def add_margins(codes, weights, offset, member_start, member, stride, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the weight of every row to its cell of every set."""
    rows = codes.shape[1]
    at = np.empty(rows, dtype=np.int64)
    for s in range(len(offset)):
        at[:] = offset[s]
        for e in range(member_start[s], member_start[s + 1]):
            a, step = member[e], stride[e]
            for r in range(rows):
                at[r] += step * codes[a, r]
        for r in range(rows):
            out[at[r]] += weights[r]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def add_scores(codes, gradient, offset, member_start, member, stride, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add to every row the entries of its cells: the adjoint of ``add_margins``."""
    rows = codes.shape[1]
    at = np.empty(rows, dtype=np.int64)
    for s in range(len(offset)):
        at[:] = offset[s]
        for e in range(member_start[s], member_start[s + 1]):
            a, step = member[e], stride[e]
            for r in range(rows):
                at[r] += step * codes[a, r]
        for r in range(rows):
            out[r] += gradient[at[r]]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _open(  # type: ignore[no-untyped-def]
    row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive
):  # pragma: no cover
    """Per clause how many attributes of a row fail it, per condition how many clauses hold."""
    failed[:] = 0
    alive[:] = 0
    for a in range(len(sizes)):
        for e in range(look_start[a], look_start[a + 1]):
            if not masks[look_mask[e] + row[a]]:
                failed[look_clause[e]] += 1
    for c in range(len(condition)):
        if failed[c] == 0:
            alive[condition[c]] += 1


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _would_hold(first, last, u, v, look_clause, look_mask, masks, failed):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether some clause of the entries holds when the attribute moves from cell u to cell v."""
    for e in range(first, last):
        others = failed[look_clause[e]]
        if not masks[look_mask[e] + u]:
            others -= 1
        if others == 0 and masks[look_mask[e] + v]:
            return True
    return False


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _same_condition(e, last, look_clause, condition):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The end of the run of entries of one condition."""
    q = condition[look_clause[e]]
    while e < last and condition[look_clause[e]] == q:
        e += 1
    return e


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _turn_conditions(  # type: ignore[no-untyped-def]
    a, u, v, weight, look_start, look_clause, look_mask, masks, condition, failed, alive, pull, bend
):  # pragma: no cover
    """Move attribute a from u to v: the state of the clauses, and the pull of what turned."""
    e, last = look_start[a], look_start[a + 1]
    while e < last:
        q, before, start = condition[look_clause[e]], alive[condition[look_clause[e]]], e
        e = _same_condition(e, last, look_clause, condition)
        for x in range(start, e):
            c = look_clause[x]
            alive[q] -= failed[c] == 0
            failed[c] += int(masks[look_mask[x] + u]) - int(masks[look_mask[x] + v])
            alive[q] += failed[c] == 0
        if (before > 0) != (alive[q] > 0):
            pull[q] += weight * bend[q] if alive[q] > 0 else -weight * bend[q]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _weigh_conditions(  # type: ignore[no-untyped-def]
    a, u, size, weight, look_start, look_clause, look_mask, masks, condition, failed, alive, pull,
    bend, cost,
):  # pragma: no cover  # fmt: skip
    """Add to ``cost[v]`` what the conditions that turn from u to v cost, per unit of weight."""
    e, last = look_start[a], look_start[a + 1]
    while e < last:
        q, start, here = condition[look_clause[e]], e, 0
        e = _same_condition(e, last, look_clause, condition)
        for x in range(start, e):
            here += failed[look_clause[x]] == 0
        if alive[q] > here:  # a clause that does not look at this attribute holds
            continue
        half = 0.5 * weight * bend[q]
        for v in range(size):
            if v == u:
                continue
            there = _would_hold(start, e, u, v, look_clause, look_mask, masks, failed)
            if there and here == 0:
                cost[v] += pull[q] + half
            elif here > 0 and not there:
                cost[v] += half - pull[q]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def move_rows(  # type: ignore[no-untyped-def]
    codes, weights, which, slack, level, unit, curvature, sizes, offset, member_start, member,
    stride, read_start, read_view, read_stride, write_start, write_view, write_stride, look_start,
    look_clause, look_mask, masks, condition, pull, bend,
):  # pragma: no cover  # fmt: skip
    """One sweep: every attribute of the rows ``which`` to the cell of least majorised value.

    A row of weight w that leaves cell x for cell y of a set changes the model by
    ``w (g_y - g_x) + w^2 / 2 (c_x + c_y)``; the gradient follows every move. Sets are seen through
    views (``RowViews``): those that are read for attribute a have its cells next to each other
    where it has many, those that are written are all that hold it. ``level`` is
    ``g + unit c / 2`` over the views: one number a cell where all rows weigh ``unit``. ``slack[r]``
    is set to what the best move that was not made would have cost, per weight; 0 after a move.
    Returns what the model fell by, and the number of moves.
    """
    attributes = codes.shape[0]
    cost = np.empty(sizes.max())
    flat = np.empty(len(offset), dtype=np.int64)
    row = np.empty(attributes, dtype=np.int64)
    failed = np.zeros(len(condition), dtype=np.int64)
    alive = np.zeros(len(pull), dtype=np.int64)
    gain, moves = 0.0, 0
    for r in which:
        w = weights[r]
        if w <= 0.0:
            continue
        half = 0.5 * (w - unit)
        slack[r] = np.inf
        row[:] = codes[:, r]
        for s in range(len(offset)):
            at = offset[s]
            for e in range(member_start[s], member_start[s + 1]):
                at += stride[e] * row[member[e]]
            flat[s] = at
        if len(condition):
            _open(row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive)
        for a in range(attributes):
            u, size = row[a], sizes[a]
            own = 0.0
            if size == 2 and half == 0.0:
                zero, one = 0.0, 0.0
                for e in range(read_start[a], read_start[a + 1]):
                    step, x = read_stride[e], flat[read_view[e]]
                    own += curvature[x]
                    x -= step * u
                    zero += level[x]
                    one += level[x + step]
                cost[0], cost[1] = zero, one
            else:
                cost[:size] = 0.0
                for e in range(read_start[a], read_start[a + 1]):
                    step, x = read_stride[e], flat[read_view[e]]
                    own += curvature[x]
                    x -= step * u
                    if step == 1:
                        near = level[x : x + size]
                        for v in range(size):
                            cost[v] += near[v]
                        if half != 0.0:
                            bent = curvature[x : x + size]
                            for v in range(size):
                                cost[v] += half * bent[v]
                    else:
                        for v in range(size):
                            y = x + step * v
                            cost[v] += level[y] + half * curvature[y]
            stay = cost[u] - w * own
            if len(condition):
                _weigh_conditions(
                    a, u, size, w, look_start, look_clause, look_mask, masks, condition, failed,
                    alive, pull, bend, cost,
                )  # fmt: skip
            cost[u] = np.inf
            to = 0
            for v in range(1, size):
                if cost[v] < cost[to]:
                    to = v
            best = cost[to]
            if not best < stay:
                slack[r] = min(slack[r], best - stay)
                continue
            gain += w * (stay - best)
            moves += 1
            slack[r] = 0.0
            for e in range(write_start[a], write_start[a + 1]):
                s = write_view[e]
                x = flat[s]
                level[x] -= w * curvature[x]
                x += write_stride[e] * (to - u)
                level[x] += w * curvature[x]
                flat[s] = x
            if len(condition):
                _turn_conditions(
                    a, u, to, w, look_start, look_clause, look_mask, masks, condition, failed,
                    alive, pull, bend,
                )  # fmt: skip
            row[a] = to
            codes[a, r] = to
    return gain, moves


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def descend(  # type: ignore[no-untyped-def]
    codes, gradient, sizes, offset, member_start, member, stride, held_start, held_set,
    held_stride, look_start, look_clause, look_mask, masks, condition, pull, sweeps,
):  # pragma: no cover  # fmt: skip
    """Move every row, one attribute at a time, to a cell of locally least score."""
    attributes, rows = codes.shape
    cost = np.empty(sizes.max())
    flat = np.empty(len(offset), dtype=np.int64)
    row = np.empty(attributes, dtype=np.int64)
    failed = np.zeros(len(condition), dtype=np.int64)
    alive = np.zeros(len(pull), dtype=np.int64)
    level = np.zeros(len(pull))  # no curvature: the gradient stays as it is
    for r in range(rows):
        row[:] = codes[:, r]
        for s in range(len(offset)):
            flat[s] = offset[s]
            for e in range(member_start[s], member_start[s + 1]):
                flat[s] += stride[e] * row[member[e]]
        if len(condition):
            _open(row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive)
        for _ in range(sweeps):
            still = True
            for a in range(attributes):
                u, size = row[a], sizes[a]
                cost[:size] = 0.0
                for e in range(held_start[a], held_start[a + 1]):
                    step = held_stride[e]
                    base = flat[held_set[e]] - step * u
                    for v in range(size):
                        cost[v] += gradient[base + step * v]
                best, to = cost[u], u
                if len(condition):
                    _weigh_conditions(
                        a, u, size, 0.0, look_start, look_clause, look_mask, masks, condition,
                        failed, alive, pull, level, cost,
                    )  # fmt: skip
                # Rounding must not make two equal cells take turns for ever.
                least = best - 1e-12 * abs(best)
                for v in range(size):
                    if v != u and cost[v] < least:
                        least, to = cost[v], v
                if to == u:
                    continue
                still = False
                for e in range(held_start[a], held_start[a + 1]):
                    flat[held_set[e]] += held_stride[e] * (to - u)
                if len(condition):
                    _turn_conditions(
                        a, u, to, 0.0, look_start, look_clause, look_mask, masks, condition,
                        failed, alive, pull, level,
                    )  # fmt: skip
                row[a] = to
                codes[a, r] = to
            if still:
                break


# Loops over rows of which each holds its attributes


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
