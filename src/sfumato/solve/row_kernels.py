# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of ``refine/rows.py``; imported when first used, for they need numba.

In the first part codes are held by attribute (attribute x row). Attribute a owns the columns from
``starts[a]`` to ``starts[a + 1]``, one for each of its cells. A block holds the tables of the sets
R + {a} for some attributes R and every a from ``first`` to below ``last``: for each cell of R a
run of entries, one for each of their columns. R are the entries ``member_start[block] :
member_start[block + 1]`` of ``member`` (attribute) and ``stride``. Where z are the columns of the
cells of a row, its entry for a is at ``origin + sum stride z[member] + z[a]``. ``held_*`` list by
attribute the blocks with it in R, ``run_*`` those with it in their runs (``RowBlocks``).

Conditions are unions of boxes: the clauses that look at attribute a are the entries
``look_start[a] : look_start[a + 1]`` of ``look_clause``, sorted by condition, with their truth
values per cell from ``look_mask[e]`` in ``masks``; ``condition[c]`` is the condition of clause c.

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
    "fill_levels",
    "fill_sources",
    "margin",
    "move",
    "move_rows",
    "reweight",
    "solve",
]


CHUNK = 64  # rows whose codes are turned at once: they stay in the nearest cache


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def fill_sources(  # type: ignore[no-untyped-def]
    first, last, width, block_start, block_member, sizes, entry_set, offset, member_start, member,
    stride, out,
):  # pragma: no cover  # fmt: skip
    """The cell of the layout behind every entry of all blocks, block by block.

    ``entry_set`` lists the sets of all blocks, those of one block in the order of its attributes;
    -1 stands for none, in both.
    """
    code = np.zeros(len(sizes), dtype=np.int64)
    at, entry = 0, 0
    for block in range(len(first)):
        members = block_member[block_start[block] : block_start[block + 1]]
        rows = 1
        for a in members:
            rows *= sizes[a]
            code[a] = 0
        for _ in range(rows):
            column = at
            for i in range(last[block] - first[block]):
                own, s = first[block] + i, entry_set[entry + i]
                if s < 0:  # no such set: a place that is left empty
                    out[column : column + sizes[own]] = -1
                    column += sizes[own]
                    continue
                x, step = offset[s], 0
                for e in range(member_start[s], member_start[s + 1]):
                    if member[e] == own:
                        step = stride[e]
                    else:
                        x += stride[e] * code[member[e]]
                for v in range(sizes[own]):
                    out[column + v] = x + step * v
                column += sizes[own]
            at += width[block]
            for i in range(len(members) - 1, -1, -1):  # the next cell, the last attribute first
                code[members[i]] += 1
                if code[members[i]] < sizes[members[i]]:
                    break
                code[members[i]] = 0
        entry += last[block] - first[block]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def fill_levels(source, gradient, curvature, half, level, bend):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The entries of blocks: the gradient with half the curvature, and the curvature."""
    for i in range(len(source)):
        x = source[i]
        bend[i] = curvature[x] if x >= 0 else 0.0
        level[i] = gradient[x] + half * curvature[x] if x >= 0 else 0.0


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _turn(codes, starts, begin, end, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The codes of some rows, row by row, each moved to where its attribute starts."""
    for a in range(codes.shape[0]):
        for r in range(begin, end):
            out[r - begin, a] = starts[a] + np.uint64(codes[a, r])


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def add_margins(  # type: ignore[no-untyped-def]
    codes, weights, starts, origin, first, last, member_start, member, stride, out
):  # pragma: no cover
    """Add the weight of every row to its entry of every set, in the order of blocks.

    Row by row: no two additions in a row go to the same place, so none waits for the one before.
    Places are numbers without a sign, which need no test for being counted from the end; sums of
    them are modulo 2^64, as the origins, which may be below 0, are too.
    """
    rows = codes.shape[1]
    turned = np.empty((CHUNK, codes.shape[0]), dtype=np.uint64)
    for begin in range(0, rows, CHUNK):
        end = min(begin + CHUNK, rows)
        _turn(codes, starts, begin, end, turned)
        for r in range(begin, end):
            w, z = weights[r], turned[r - begin]
            for block in range(len(origin)):
                at = origin[block]
                for e in range(member_start[block], member_start[block + 1]):
                    at += stride[e] * z[member[e]]
                run = z[first[block] : last[block]]
                for i in range(len(run)):
                    out[at + run[i]] += w


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def add_scores(  # type: ignore[no-untyped-def]
    codes, entries, starts, origin, first, last, member_start, member, stride, out
):  # pragma: no cover
    """Add to every row its entries of all blocks: the adjoint of ``add_margins``."""
    rows = codes.shape[1]
    turned = np.empty((CHUNK, codes.shape[0]), dtype=np.uint64)
    for begin in range(0, rows, CHUNK):
        end = min(begin + CHUNK, rows)
        _turn(codes, starts, begin, end, turned)
        for r in range(begin, end):
            z = turned[r - begin]
            one, two, three, four = 0.0, 0.0, 0.0, 0.0  # none of the sums waits for another
            for block in range(len(origin)):
                at = origin[block]
                for e in range(member_start[block], member_start[block + 1]):
                    at += stride[e] * z[member[e]]
                count = last[block] - first[block]
                run = z[first[block] : last[block]]
                for i in range(0, count - 3, 4):
                    one += entries[at + run[i]]
                    two += entries[at + run[i + 1]]
                    three += entries[at + run[i + 2]]
                    four += entries[at + run[i + 3]]
                for i in range(count - count % 4, count):
                    one += entries[at + run[i]]
            out[r] += (one + two) + (three + four)


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
def _shift(cost, entries, bend, at, column, width, half, sign):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add ``sign`` times a run of entries to the costs of the cells from ``column`` on."""
    into, run = cost[column : column + width], entries[at : at + width]
    if half == 0.0:
        for v in range(width):
            into[v] += sign * run[v]
    else:
        bent = bend[at : at + width]
        for v in range(width):
            into[v] += sign * (run[v] + half * bent[v])


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _add_runs(cost, entries, at, block, column, width):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the runs of four blocks, over the same columns, to the costs: one pass for all."""
    into = cost[column : column + width]
    x, y = at[block] + column, at[block + 1] + column
    one, two = entries[x : x + width], entries[y : y + width]
    x, y = at[block + 2] + column, at[block + 3] + column
    three, four = entries[x : x + width], entries[y : y + width]
    for v in range(width):
        into[v] += (one[v] + two[v]) + (three[v] + four[v])


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _add_blocks(  # type: ignore[no-untyped-def]
    cost, entries, bend, half, z, at, starts, origin, first, last, member_start, member, stride
):  # pragma: no cover
    """Where the runs of a row begin, and what the cells of all attributes cost: their sum."""
    blocks = len(origin)
    for block in range(blocks):
        x = origin[block]
        for e in range(member_start[block], member_start[block + 1]):
            x += stride[e] * z[member[e]]
        at[block] = x
    cost[:] = 0.0
    block = 0
    while block < blocks:
        column = starts[first[block]]
        width, end = starts[last[block]] - column, block + 3
        # Blocks of one place are next to each other where ends agree: _blocks orders them so.
        if (
            half == 0.0 and end < blocks
            and first[end] == first[block] and last[end] == last[block]
            and first[block + 1] == first[block] and last[block + 1] == last[block]
            and first[block + 2] == first[block] and last[block + 2] == last[block]
        ):  # fmt: skip
            _add_runs(cost, entries, at, block, column, width)
            block += 4
        else:
            _shift(cost, entries, bend, at[block] + column, column, width, half, 1.0)
            block += 1


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _add_own(own, bend, z, at, first, last, sign):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the curvature at the cells of a row in one block to that of its attributes."""
    for a in range(first, last):
        own[a] += sign * bend[at + z[a]]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _follow(  # type: ignore[no-untyped-def]
    a, by, w, z, at, level, bend, cost, own, is_even, half, starts, first, last, held_start,
    held_block, held_stride, run_start, run_block,
):  # pragma: no cover  # fmt: skip
    """Move attribute a of a row by so many cells: all levels, and the costs of later attributes."""
    for e in range(run_start[a], run_start[a + 1]):  # blocks whose runs hold the attribute
        x = at[run_block[e]] + z[a]
        level[x] -= w * bend[x]
        level[x + by] += w * bend[x + by]
    for e in range(held_start[a], held_start[a + 1]):  # blocks with a place for each of its cells
        block = held_block[e]
        begin, end = first[block], last[block]
        before = at[block]
        after = before + held_stride[e] * by
        is_later = end > a + 1
        if is_later:
            column, width = starts[begin], starts[end] - starts[begin]
            _shift(cost, level, bend, before + column, column, width, half, -1.0)
            if not is_even:
                _add_own(own, bend, z, before, begin, end, -1.0)
        for b in range(begin, end):
            x, y = before + z[b], after + z[b]
            level[x] -= w * bend[x]
            level[y] += w * bend[y]
        if is_later:
            _shift(cost, level, bend, after + column, column, width, half, 1.0)
            if not is_even:
                _add_own(own, bend, z, after, begin, end, 1.0)
        at[block] = after
    z[a] += by


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def move_rows(  # type: ignore[no-untyped-def]
    codes, weights, which, slack, level, unit, bend, even_bend, starts, origin, first, last,
    member_start, member, stride, held_start, held_block, held_stride, run_start, run_block,
    look_start, look_clause, look_mask, masks, condition, pull, pull_bend,
):  # pragma: no cover  # fmt: skip
    """One sweep: every attribute of the rows ``which`` to the cell of least majorised value.

    A row of weight w that leaves cell x for cell y of a set changes the model by
    ``w (g_y - g_x) + w^2 / 2 (c_x + c_y)``; the gradient follows every move. What each cell of each
    attribute would cost, the others staying, is a sum of runs of entries, one of every block.
    ``level`` is ``g + unit c / 2`` over the blocks: one number a cell where all rows weigh
    ``unit``; ``bend`` is c, ``even_bend`` its sum over the sets that hold an attribute where no
    set has two curvatures, else empty. ``slack[r]`` is set to what the best move that was not made
    would have cost, per weight; 0 after a move. Returns what the model fell by, and the number of
    moves.
    """
    attributes, is_even = codes.shape[0], len(even_bend) > 0
    sizes = starts[1:] - starts[:-1]
    cost = np.empty(starts[attributes])
    own = np.zeros(attributes)
    at = np.empty(len(origin), dtype=np.int64)
    row = np.empty(attributes, dtype=np.int64)
    z = np.empty(attributes, dtype=np.int64)
    failed = np.zeros(len(condition), dtype=np.int64)
    alive = np.zeros(len(pull), dtype=np.int64)
    gain, moves = 0.0, 0
    for r in which:
        w = weights[r]
        if w <= 0.0:
            continue
        half = 0.5 * (w - unit)
        slack[r] = np.inf
        for a in range(attributes):
            row[a] = codes[a, r]
            z[a] = starts[a] + row[a]
        _add_blocks(
            cost, level, bend, half, z, at, starts, origin, first, last, member_start, member,
            stride,
        )  # fmt: skip
        if is_even:
            own[:] = even_bend
        else:
            own[:] = 0.0
            for block in range(len(origin)):
                _add_own(own, bend, z, at[block], first[block], last[block], 1.0)
        if len(condition):
            _open(row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive)
        for a in range(attributes):
            u = row[a]
            costs = cost[starts[a] : starts[a + 1]]
            stay = costs[u] - w * own[a]
            if len(condition):
                _weigh_conditions(
                    a, u, sizes[a], w, look_start, look_clause, look_mask, masks, condition,
                    failed, alive, pull, pull_bend, costs,
                )  # fmt: skip
            costs[u] = np.inf
            best = np.inf
            for v in range(len(costs)):
                best = min(best, costs[v])
            if not best < stay:
                slack[r] = min(slack[r], best - stay)
                continue
            to = 0
            while costs[to] != best:
                to += 1
            gain += w * (stay - best)
            moves += 1
            slack[r] = 0.0
            _follow(
                a, to - u, w, z, at, level, bend, cost, own, is_even, half, starts, first, last,
                held_start, held_block, held_stride, run_start, run_block,
            )  # fmt: skip
            if len(condition):
                _turn_conditions(
                    a, u, to, w, look_start, look_clause, look_mask, masks, condition, failed,
                    alive, pull, pull_bend,
                )  # fmt: skip
            row[a] = to
            codes[a, r] = to
    return gain, moves


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def descend(  # type: ignore[no-untyped-def]
    codes, entries, starts, origin, first, last, member_start, member, stride, held_start,
    held_block, held_stride, look_start, look_clause, look_mask, masks, condition, pull, sweeps,
):  # pragma: no cover  # fmt: skip
    """Move every row, one attribute at a time, to a cell of locally least score."""
    attributes, rows = codes.shape
    sizes = starts[1:] - starts[:-1]
    scores = np.empty(starts[attributes])
    cost = np.empty(sizes.max())
    at = np.empty(len(origin), dtype=np.int64)
    row = np.empty(attributes, dtype=np.int64)
    z = np.empty(attributes, dtype=np.int64)
    failed = np.zeros(len(condition), dtype=np.int64)
    alive = np.zeros(len(pull), dtype=np.int64)
    flat = np.zeros(len(pull))  # no curvature: the gradient stays as it is
    for r in range(rows):
        for a in range(attributes):
            row[a] = codes[a, r]
            z[a] = starts[a] + row[a]
        _add_blocks(
            scores, entries, entries, 0.0, z, at, starts, origin, first, last, member_start,
            member, stride,
        )  # fmt: skip
        if len(condition):
            _open(row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive)
        for _ in range(sweeps):
            still = True
            for a in range(attributes):
                u, size = row[a], sizes[a]
                cost[:size] = scores[starts[a] : starts[a + 1]]
                best, to = cost[u], u
                if len(condition):
                    _weigh_conditions(
                        a, u, size, 0.0, look_start, look_clause, look_mask, masks, condition,
                        failed, alive, pull, flat, cost,
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
                    block = held_block[e]
                    x, y = at[block], at[block] + held_stride[e] * (to - u)
                    column = starts[first[block]]
                    width = starts[last[block]] - column
                    _shift(scores, entries, entries, x + column, column, width, 0.0, -1.0)
                    _shift(scores, entries, entries, y + column, column, width, 0.0, 1.0)
                    at[block] = y
                if len(condition):
                    _turn_conditions(
                        a, u, to, 0.0, look_start, look_clause, look_mask, masks, condition,
                        failed, alive, pull, flat,
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
