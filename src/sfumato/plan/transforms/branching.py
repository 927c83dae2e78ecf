# SPDX-License-Identifier: Apache-2.0
"""Which nodes a tree should have, and how much each level should weigh.

With weights w (scaled to column norm 1) a tree of widths s errs by
``sum_l D_l / (sum_{j <= l} w_j^2 s_j)``. Under L2 this is an isotonic problem with a closed form;
under L1 it is not convex, and levels may end with weight 0, so the search starts from several
weights. The widths are found by hill climbing from the b-ary trees: one width of the chain is
changed, dropped or added at a time.
Nothing here is larger than the number of levels once the energies of a width are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import sqrt

import numpy as np

from sfumato.plan.effort import must_stop
from sfumato.plan.transforms.levels import energies
from sfumato.plan.transforms.tree import BRANCHINGS, WeightedTree
from sfumato.workload.queries import Array, QuerySet

__all__ = ["best_tree", "best_weights"]

WEIGHT_BITS = 12  # of the greatest weight; the others are rounded to its 2^-12
LEAST = 2.0**-10  # of the greatest weight: a level below it is left out
CHANGES = (-4, -2, -1, 1, 2, 4)  # of one branching
MOST_TREES = 300  # sets of widths that are tried
STARTS = (1.0, 0.2, 5.0)  # weights of the top level relative to the cells, geometric in between

Widths = tuple[int, ...]


def best_tree(asked: Sequence[tuple[float, QuerySet]], p: int) -> WeightedTree:
    """The widths and weights found best for weighted query sets under the L_p column norm."""
    size = asked[0][1].size

    @cache
    def energy(width: int) -> float:
        return sum(c * float(energies(queries, (width,))[0]) for c, queries in asked)

    @cache
    def solved(widths: Widths) -> tuple[float, tuple[float, ...]]:
        found, weights = best_weights(np.array([energy(s) for s in widths]), widths, p, STARTS[:1])
        return found, tuple(weights.tolist())

    best = min(_uniform(size), key=lambda widths: solved(widths)[0])
    improved = True
    while improved and solved.cache_info().currsize < MOST_TREES and not must_stop():
        best = _without_light_levels(best, solved(best)[1])
        around = (widths for widths in _neighbours(best, size) if widths[-1] < 2 * size)
        near = min(around, key=lambda widths: solved(widths)[0], default=best)
        improved = solved(near)[0] < solved(best)[0] * (1 - 1e-6)
        best = near if improved else best
    best = _without_light_levels(best, solved(best)[1])
    _, weights = best_weights(np.array([energy(s) for s in best]), best, p)
    scaled = np.rint(weights * (2**WEIGHT_BITS / weights.max()))
    return WeightedTree(size, best, tuple(int(max(w, 1)) for w in scaled))


def best_weights(
    energy: Array, widths: Widths, p: int, starts: Sequence[float] = STARTS
) -> tuple[float, Array]:
    """The least error found and its weights, of L_p norm 1; the cells keep a weight above 0.

    Under L2 exact; under L1 the best end of geometric starts.
    """
    s = np.array(widths, dtype=np.float64)
    details = np.maximum(energy - np.append(energy[1:], 0.0), 0.0)
    if p == 2:
        return _under_l2(details, s)
    best, weights = np.inf, np.ones(len(s))
    for ratio in starts:
        error, found = _under_l1(details, s, np.geomspace(1, ratio, len(s)))
        if error < best:
            best, weights = error, found
    return best, weights / float(weights.sum())


def _under_l2(details: Array, s: Array) -> tuple[float, Array]:
    """``min sum D_l / lambda_l`` over non-decreasing lambda with ``sum c_l lambda_l = 1``.

    ``sum w_j^2`` is linear in the eigenvalues, ``c_l = 1 / s_l - 1 / s_{l+1}``; levels that would
    decrease are pooled, and a pool has ``lambda ~ sqrt(sum D / sum c)``.
    """
    cost = 1 / s - np.append(1 / s[1:], 0.0)
    # A level that nobody asks about is kept apart from 0; of queries that are zero, all are.
    floor = float(details.sum()) * LEAST**4 or 1.0
    pools: list[tuple[float, float, int]] = []
    for d, c in zip(np.maximum(details, floor), cost, strict=True):
        pools.append((float(d), float(c), 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            (d1, c1, n1), (d2, c2, n2) = pools[-2:]
            pools[-2:] = [(d1 + d2, c1 + c2, n1 + n2)]
    lam = np.concatenate([np.full(n, sqrt(d / c)) for d, c, n in pools])
    lam /= float(cost @ lam)
    squares = np.diff(lam, prepend=0.0) / s
    return float((details / lam).sum()), np.sqrt(np.maximum(squares, 0.0))


def _under_l1(details: Array, s: Array, start: Array) -> tuple[float, Array]:
    from scipy.optimize import minimize

    def error(w: Array) -> tuple[float, Array]:
        norm = float(w.sum())
        lam = np.cumsum(w**2 * s)
        value = float((details / lam).sum())
        slope = -np.cumsum((details / lam**2)[::-1])[::-1] * s * 2 * w
        return value * norm**2, slope * norm**2 + value * 2 * norm

    bounds = [(1e-3, None)] + [(0.0, None)] * (len(s) - 1)
    found = minimize(error, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.fun), np.asarray(found.x)


def _uniform(size: int) -> Iterator[Widths]:
    """The b-ary trees."""
    for b in BRANCHINGS[: max(1, size - 1)]:
        widths = [1]
        while widths[-1] < size:
            widths.append(widths[-1] * b)
        yield tuple(widths)


def _without_light_levels(widths: Widths, weights: Sequence[float]) -> Widths:
    pairs = zip(widths, weights, strict=True)
    return tuple(s for s, w in pairs if s == 1 or w > LEAST * max(weights))


def _neighbours(widths: Widths, size: int) -> Iterator[Widths]:
    """One branching changed, one level dropped, one put in between or on top."""
    ratios = [b // a for a, b in pairwise(widths)]
    for i, ratio in enumerate(ratios):
        yield _chain([*ratios[:i], *ratios[i + 1 :]])
        for change in CHANGES:
            if ratio + change >= 2:
                yield _chain([*ratios[:i], ratio + change, *ratios[i + 1 :]])
        for b in (2, 3, 4):
            if ratio >= 2 * b:
                yield _chain([*ratios[:i], b, ratio // b, *ratios[i + 1 :]])
    for b in (2, 4, 8):
        if widths[-1] < size:
            yield _chain([*ratios, b])


def _chain(ratios: Sequence[int]) -> Widths:
    out = [1]
    for ratio in ratios:
        out.append(out[-1] * ratio)
    return tuple(out)
