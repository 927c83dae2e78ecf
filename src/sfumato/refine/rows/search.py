# SPDX-License-Identifier: Apache-2.0
"""New rows where the gradient is least, the weights of all of them, and how far f can still fall.

f is convex, so for every h' of the same total ``f(h') >= f(h) + <G, h' - h>``, and the right side
is least when all of h' is one row of least score (Frank, Wolfe 1956; Jaggi 2013, "Revisiting
Frank-Wolfe", gives the difference its name, the gap). A least score that is only found by descent
gives an estimate of the gap; one that is known to be least, or bounded, gives a proved bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from sfumato.plan.effort import must_stop, spend
from sfumato.refine.draws import Draws
from sfumato.refine.rows.conditions import Codes
from sfumato.refine.rows.problem import Gradient, Problem
from sfumato.refine.rows.weights import solve_weights
from sfumato.workload.queries import Array, Integers

__all__ = ["Found", "least_score", "merged", "search"]

EXACT_CELLS = 2**17  # domains whose every cell is looked at for the least score
BATCH = 2_000
STEPS = 25
MANY_CELLS, FEW_STEPS = 2**22, 6  # steps over the weights where each takes seconds
DESCENTS = 4
LEAST_WEIGHT = 1e-9
PAYS = 10  # the last round, unless it lowered f by a tenth of the gap asked for
CHANGED = 3  # attributes of a row that take a new cell before it descends

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Found:
    """Rows, weights, f, the gap as far as was seen, and a proved lower bound on the least f."""

    codes: Codes
    weights: Array
    value: float
    gap: float
    bound: float


def search(
    asked: Problem,
    codes: Codes,
    weights: Array,
    draws: Draws,
    *,
    gap: float,
    rounds: int,
    progress: Progress | None = None,
) -> Found:
    """Weigh the rows, look for better ones, and again; f never rises."""
    codes, weights = merged(codes, weights)
    before, seen_gap, bound = inf, inf, 0.0
    steps = STEPS if asked.layout.length <= MANY_CELLS else FEW_STEPS
    for turn in range(rounds + 1):
        weights, _ = solve_weights(asked, codes, weights, steps)
        codes, weights = _kept(codes, weights, asked.total)
        value, gradient = asked.gradient(asked.margins(codes, weights))
        mean = float(asked.scores(codes, gradient) @ weights) / max(asked.total, 1e-300)
        new, scores, floor = _candidates(asked, codes, weights, gradient, draws)
        seen_gap = asked.total * max(0.0, mean - float(scores.min(initial=mean)))
        bound = max(bound, value - asked.total * (mean - floor))
        if progress is not None:
            progress(turn, rounds, f"value {value:,.4g}, could fall by {seen_gap:,.4g}")
        if min(seen_gap, PAYS * (before - value)) <= gap * value:
            break
        if turn == rounds or must_stop():
            break
        before = value
        better = scores < mean
        codes = np.concatenate([codes, new[:, better]], axis=1)
        codes, weights = merged(codes, np.append(weights, np.zeros(int(better.sum()))))
    return Found(codes, weights, value, seen_gap, min(bound, value))


def least_score(asked: Problem, gradient: Gradient) -> float:
    """No possible row scores less: the least entry of every table, all negative pulls together."""
    least = 0.0
    for s, possible in enumerate(asked.possible):
        entries = gradient.cells[asked.layout.slice_of(s)]
        least += float((entries if possible is None else entries[possible]).min())
    return least + float(np.minimum(gradient.pull, 0.0).sum())


def merged(codes: Codes, weights: Array) -> tuple[Codes, Array]:
    """Equal rows once, in sorted order, with the sum of their weights."""
    order = np.lexsort(codes[::-1])
    ordered = codes[:, order]
    starts = np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0))
    first = np.flatnonzero(starts)
    return np.ascontiguousarray(ordered[:, first]), np.add.reduceat(weights[order], first)


def _kept(codes: Codes, weights: Array, total: float) -> tuple[Codes, Array]:
    """Without rows that weigh next to nothing."""
    held = weights > LEAST_WEIGHT * total / len(weights)
    if held.all() or not held.any():
        return codes, weights
    kept = weights[held]
    return np.ascontiguousarray(codes[:, held]), kept * (total / float(kept.sum()))


def _candidates(
    asked: Problem, codes: Codes, weights: Array, gradient: Gradient, draws: Draws
) -> tuple[Codes, Array, float]:
    """Rows of low score, their scores, and a score that no row is below."""
    sizes = asked.layout.sizes.tolist()
    if prod(sizes) <= EXACT_CELLS:
        every = np.array(np.unravel_index(np.arange(prod(sizes)), sizes), dtype=np.int64)
        every = every[:, asked.are_possible(every)]
        scores = asked.scores(every, gradient)
        best = np.argsort(scores, kind="stable")[:BATCH]
        return every[:, best], scores[best], float(scores[best[0]])
    starts = _starts(codes, weights, asked.layout.sizes, draws)
    starts = np.ascontiguousarray(starts[:, asked.are_possible(starts)])
    _descend(asked, starts, gradient)
    starts, _ = merged(starts, np.ones(starts.shape[1]))
    return starts, asked.scores(starts, gradient), least_score(asked, gradient)


def _starts(codes: Codes, weights: Array, sizes: Integers, draws: Draws) -> Codes:
    """Rows drawn by weight: half of them as they are, half with a few new cells."""
    places = np.cumsum(weights / weights.sum())
    chosen = np.minimum(
        np.searchsorted(places, draws.uniforms(BATCH), side="right"), len(weights) - 1
    )
    out = np.ascontiguousarray(codes[:, chosen])
    changed = np.arange(BATCH // 2, BATCH)
    for _ in range(min(CHANGED, len(sizes))):
        attribute = draws.below(len(sizes), len(changed))
        for a, size in enumerate(sizes.tolist()):
            here = changed[attribute == a]
            out[a, here] = draws.below(size, len(here))
    return out


def _descend(asked: Problem, codes: Codes, gradient: Gradient) -> None:
    """Every row to a locally least score, in place."""
    from sfumato.refine.rows.kernels import descend

    p, c = asked.layout, asked.guarded
    spend(DESCENTS * p.sweep * codes.shape[1])
    descend(
        codes, gradient.cells, p.sizes, p.offset, p.member_start, p.member, p.stride,
        p.held_start, p.held_set, p.held_stride, c.look_start, c.look_clause, c.look_mask,
        c.masks, c.condition, asked.guard(gradient.pull), DESCENTS,
    )  # fmt: skip
