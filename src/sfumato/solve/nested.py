# SPDX-License-Identifier: Apache-2.0
"""Sums over the nodes of a tree of any shape: near the optimum, certified, in O(nodes).

Asked are the totals of the nodes u, with energy ``g_u`` (squared weight) each: ``V = sum_u g_u 1_u
1_u'``. Measured are the same totals with other weights, ``X = M'M = sum_u a_u 1_u 1_u'``, and a
record pays ``sum of a_u`` along the path from its leaf to the root: at most 1. The error is ``tr(V
X^-1) = sum_u g_u v_u`` with ``v_u`` the variance of the total of u, and one pass up and one down
give all of it. With ``h_u`` the precision of that total from its own subtree alone,

    h_u = a_u + q_u,   1 / q_u = sum of 1 / h_c over the children c   (q_u = 0 for a leaf),
    v_root = 1 / h_root,   v_c = 1 / h_c - q_u / h_c^2 + (q_u / h_c)^2 v_u.

``nested_optimum`` searches a: the budget that reaches a node is split between the node and its
children, so a is a point of a product of simplices and the search is free.

**The bound** (docs/mechanisms/factorization.md, hierarchies). For every contraction Q and every
``F = R M`` with columns of M of norm at most 1, ``|R|_F^2 >= |Q'R|_F^2 >= sum of (Q'F)_ll^2`` over
the leaves l, as ``(Q'F)_ll`` is the product of a row of ``Q'R`` and a column of M. Q is the
orthogonal factor of ``F diag(tau)^-1/2`` for leaf weights tau under which the contrasts of the
children of any node are singular vectors of one value: with ``S_u = g_u + 1 / (sum of 1 / S_c)``,
``z_c`` the share of c in ``sum of 1 / S_c`` and ``k_u = tau_u (sum of 1 / S_c)``,

    tau_root = 1,   tau_c = k_u S_c,
    D_root = sqrt(S_root),   D_c = z_c^2 D_u + (1 - z_c) / (sqrt(k_u) tau_c),

and ``(Q'F)_ll = D_l tau_l^(3/2)``. Leaves that nobody asks for get some energy g in Q, and their
rows are left out of Q afterwards, which takes ``g tau_l^(1/2) E_l`` off, with E as D for the
inverse singular values. For trees whose nodes of one level have equally many children error and
bound are the optimum; on irregular ones they are some tenths of a percent apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from sfumato.solve.effort import ADDED_UP, spend, stop_in_time
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers, Mask

__all__ = ["NestedOptimum", "nested_bound", "nested_optimum", "nested_variances"]

ROUNDED = 1 - 1e-8  # sums of at most 2^24 positive numbers, and a path of roots and quotients


@dataclass(frozen=True, slots=True)
class NestedOptimum:
    """Squared weights of the nodes, at most 1 along every path, their error and a lower bound.

    ``error`` is ``sum g_u v_u``; no strategy with columns of norm 1 is below ``bound``.
    """

    powers: Array
    error: float
    bound: float


def nested_optimum(parent: Integers, energy: Array) -> NestedOptimum:
    """Near the least error of the totals of all nodes of a tree, and a lower bound on it.

    Args:
        parent: The parent of every node, which comes before it; -1 for the first, the root.
        energy: The squared weight of every node's total.

    Returns:
        The squared weights with which the totals are measured.
    """
    from scipy.optimize import Bounds, minimize

    from sfumato.solve.nested_kernels import error_and_slopes, nested_powers  # for numba

    parent = np.ascontiguousarray(parent, dtype=np.int64)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    bound = nested_bound(parent, energy)
    filled = _filled(energy, ~inner & (energy <= 0), LIMITS.nested_unasked)
    places = np.flatnonzero(inner)
    if not len(places):
        return NestedOptimum(np.ones(1), float(energy[0]), bound)

    def slopes(x: Array) -> tuple[float, Array]:
        spend(ADDED_UP * len(parent))
        split = np.zeros(len(parent))
        split[places] = 1 / (1 + np.exp(-x))
        error, slope = error_and_slopes(parent, filled, split)
        return log(error), slope[places] * (split * (1 - split))[places] / error

    start = _first_splits(parent, filled, inner)[places]
    options = {
        "maxiter": LIMITS.nested_steps,
        "maxfun": 2 * LIMITS.nested_steps,
        "ftol": LIMITS.nested_tolerance,
        "gtol": 0.0,
    }
    ends = Bounds(-LIMITS.nested_logit, LIMITS.nested_logit)
    start = np.clip(np.log(start / (1 - start)), -LIMITS.nested_logit, LIMITS.nested_logit)
    x = minimize(
        slopes,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=ends,
        options=options,
        callback=stop_in_time,
    ).x
    split = np.zeros(len(parent))
    split[places] = 1 / (1 + np.exp(-x))
    powers = nested_powers(parent, split)
    return NestedOptimum(powers, float(energy @ nested_variances(parent, powers)), bound)


def nested_variances(parent: Integers, powers: Array) -> Array:
    """The variance of the total of every node at unit noise, measured with squared weights."""
    from sfumato.solve.nested_kernels import variances

    return np.asarray(variances(parent, np.asarray(powers, dtype=np.float64))[2])


def nested_bound(parent: Integers, energy: Array) -> float:
    """No strategy of column norm 1 has less error.

    What leaves that nobody asks for get in Q is free: the greatest of some bounds holds.
    """
    from sfumato.solve.nested_kernels import bound

    is_asked = np.asarray(energy > 0)
    is_asked[parent[1:]] = True
    fills = LIMITS.nested_fills if not is_asked.all() else (1.0,)
    bounds = [bound(parent, _filled(energy, ~is_asked, fill), is_asked) for fill in fills]
    return float(max(bounds)) * ROUNDED


def _filled(energy: Array, empty: Mask, part: float) -> Array:
    """The energies, with a part of the mean one for nodes that have none."""
    mean = float(energy.sum()) / max(int((energy > 0).sum()), 1)
    return np.where(empty, part * mean, np.asarray(energy, dtype=np.float64))


def _first_splits(parent: Integers, energy: Array, inner: Mask) -> Array:
    """The part of the budget that a node keeps: right where all children of a node are alike.

    With ``e_u = w (b - 1)^2 / b`` the least error of the contrasts of b children of energy w and
    K_u that of all below u, ``sqrt(K_u) = sqrt(e_u) + sqrt(sum of K_c)``; contrasts that get the
    budget B measure each child's total with precision ``B b / (b - 1)``.
    """
    from sfumato.solve.nested_kernels import contrast_splits

    splits = contrast_splits(parent, energy)
    low = LIMITS.nested_first_split
    return np.asarray(np.where(inner, np.clip(splits, low, 1 - low), 0.0))
