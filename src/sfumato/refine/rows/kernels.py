# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of ``rows.py``; imported when first used, for they need numba.

Codes are held by attribute (attribute x row). Set s of attributes owns the cells from
``offset[s]`` of one flat vector; its members are the entries ``member_start[s] :
member_start[s + 1]`` of ``member`` (attribute) and ``stride``; ``held_start``, ``held_set`` and
``held_stride`` list the same by attribute. Conditions are unions of boxes: the clauses that look
at attribute a are the entries ``look_start[a] : look_start[a + 1]`` of ``look_clause``, sorted by
condition, with their truth values per cell from ``look_mask[e]`` in ``masks``; ``condition[c]`` is
the condition of clause c.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["add_margins", "add_scores", "descend", "move_rows"]


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
    codes, weights, gradient, curvature, sizes, offset, member_start, member, stride, held_start,
    held_set, held_stride, look_start, look_clause, look_mask, masks, condition, pull, bend,
):  # pragma: no cover  # fmt: skip
    """One sweep: every attribute of every row to the cell of least majorised value.

    A row of weight w that leaves cell x for cell y of a set changes the model by
    ``w (g_y - g_x) + w^2 / 2 (c_x + c_y)``; the gradient follows every move. Returns what the
    model fell by, and the number of moves.
    """
    attributes, rows = codes.shape
    cost = np.empty(sizes.max())
    flat = np.empty(len(offset), dtype=np.int64)
    row = np.empty(attributes, dtype=np.int64)
    failed = np.zeros(len(condition), dtype=np.int64)
    alive = np.zeros(len(pull), dtype=np.int64)
    gain, moves = 0.0, 0
    for r in range(rows):
        w = weights[r]
        if w <= 0.0:
            continue
        row[:] = codes[:, r]
        for s in range(len(offset)):
            flat[s] = offset[s]
            for e in range(member_start[s], member_start[s + 1]):
                flat[s] += stride[e] * row[member[e]]
        if len(condition):
            _open(row, sizes, look_start, look_clause, look_mask, masks, condition, failed, alive)
        for a in range(attributes):
            u, size = row[a], sizes[a]
            cost[:size] = 0.0
            own = 0.0
            for e in range(held_start[a], held_start[a + 1]):
                step = held_stride[e]
                base = flat[held_set[e]] - step * u
                own += curvature[base + step * u]
                if step == 1:
                    for v in range(size):
                        cost[v] += gradient[base + v] + 0.5 * w * curvature[base + v]
                else:
                    for v in range(size):
                        x = base + step * v
                        cost[v] += gradient[x] + 0.5 * w * curvature[x]
            stay = cost[u] - w * own
            if len(condition):
                _weigh_conditions(
                    a, u, size, w, look_start, look_clause, look_mask, masks, condition, failed,
                    alive, pull, bend, cost,
                )  # fmt: skip
            best, to = stay, u
            for v in range(size):
                if v != u and cost[v] < best:
                    best, to = cost[v], v
            if to == u:
                continue
            gain += w * (stay - best)
            moves += 1
            for e in range(held_start[a], held_start[a + 1]):
                step, s = held_stride[e], held_set[e]
                gradient[flat[s]] -= w * curvature[flat[s]]
                flat[s] += step * (to - u)
                gradient[flat[s]] += w * curvature[flat[s]]
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
