# SPDX-License-Identifier: Apache-2.0
"""The compiled passes of ``nested.py`` over a tree; imported when first used, for numba.

Nodes stand after their parents: a loop downwards over the numbers goes up the tree.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "bound",
    "contrast_splits",
    "depths",
    "error_and_slopes",
    "longest_apart",
    "nested_powers",
    "solved",
    "spans",
    "variances",
]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def variances(parent, a):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``1 / h``, ``q`` and ``v`` of every node."""
    n = len(parent)
    g, q, v = np.zeros(n), np.zeros(n), np.zeros(n)
    for u in range(n - 1, -1, -1):  # q holds the sum of 1 / h of the children, then its inverse
        q[u] = 1 / q[u] if q[u] > 0 else 0.0
        g[u] = 1 / (a[u] + q[u])
        if u > 0:
            q[parent[u]] += g[u]
    v[0] = g[0]
    for u in range(1, n):
        r = q[parent[u]] * g[u]
        v[u] = g[u] * (1 - r) + r * r * v[parent[u]]
    return g, q, v


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def nested_powers(parent, split):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``a``: what every node keeps of the budget that reaches it; leaves keep all."""
    n = len(parent)
    a, left = np.empty(n), np.empty(n)
    is_inner = np.zeros(n, dtype=np.bool_)
    for u in range(1, n):
        is_inner[parent[u]] = True
    for u in range(n):
        budget = left[parent[u]] if u > 0 else 1.0
        a[u] = budget * split[u] if is_inner[u] else budget
        left[u] = budget - a[u]
    return a


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def error_and_slopes(parent, energy, split):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``sum g_u v_u`` and its slope in every split, by the passes of ``variances`` reversed."""
    n = len(parent)
    a = nested_powers(parent, split)
    g, q, v = variances(parent, a)
    error = 0.0
    for u in range(n):
        error += energy[u] * v[u]
    to_v, to_g, to_q = energy.copy(), np.zeros(n), np.zeros(n)
    for u in range(n - 1, 0, -1):
        p = parent[u]
        to_v[p] += to_v[u] * (g[u] * q[p]) ** 2
        to_g[u] = to_v[u] * (1 - 2 * g[u] * q[p] + 2 * g[u] * q[p] ** 2 * v[p])
        to_q[p] += to_v[u] * g[u] ** 2 * (2 * q[p] * v[p] - 1)
    to_g[0] = to_v[0]
    to_a, to_sum = np.empty(n), np.zeros(n)
    for u in range(n):
        if u > 0:
            to_g[u] += to_sum[parent[u]]
        to_a[u] = -(g[u] ** 2) * to_g[u]
        if q[u] > 0:
            to_sum[u] = -(q[u] ** 2) * (to_q[u] + to_a[u])
    slope, below, budget = np.zeros(n), np.zeros(n), np.ones(n)
    for u in range(1, n):
        budget[u] = budget[parent[u]] * (1 - split[parent[u]])
    for u in range(n - 1, -1, -1):  # below: what one more unit of budget is worth to the children
        share = to_a[u]
        if q[u] > 0:
            slope[u] = budget[u] * (to_a[u] - below[u])
            share = split[u] * to_a[u] + (1 - split[u]) * below[u]
        if u > 0:
            below[parent[u]] += share
    return error, slope


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def bound(parent, energy, is_asked):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The sum of ``(Q'F)_ll^2`` over the leaves; see ``nested.py``."""
    n = len(parent)
    s, inverse = energy.copy(), np.zeros(n)
    for u in range(n - 1, -1, -1):
        if inverse[u] > 0:
            s[u] += 1 / inverse[u]
        if u > 0:
            inverse[parent[u]] += 1 / s[u]
    tau, d, lifted = np.ones(n), np.empty(n), np.empty(n)
    d[0], lifted[0] = np.sqrt(s[0]), 1 / np.sqrt(s[0])
    total = 0.0
    for u in range(n):
        if u > 0:
            p = parent[u]
            k, z = tau[p] * inverse[p], 1 / (s[u] * inverse[p])
            tau[u] = k * s[u]
            rest = max(1 - z, 0.0) / tau[u]
            d[u] = z * z * d[p] + rest / np.sqrt(k)
            lifted[u] = z * z * lifted[p] + rest * np.sqrt(k)
        if inverse[u] == 0:
            own = d[u] * tau[u] ** 1.5
            if not is_asked[u]:
                own -= energy[u] * np.sqrt(tau[u]) * lifted[u]
            total += own**2
    return total


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def contrast_splits(parent, energy):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The splits that are best where the children of every node are alike."""
    n = len(parent)
    s, inverse, children, below = energy.copy(), np.zeros(n), np.zeros(n), np.zeros(n)
    own, rest = np.zeros(n), np.zeros(n)  # roots of the errors of contrasts, and of all below them
    for u in range(n - 1, -1, -1):
        if inverse[u] > 0:
            s[u] += 1 / inverse[u]
            own[u] = np.sqrt(1 / inverse[u]) * (children[u] - 1)
            rest[u] = np.sqrt(below[u])
        if u > 0:
            p = parent[u]
            inverse[p] += 1 / s[u]
            children[p] += 1
            below[p] += (own[u] + rest[u]) ** 2
    budget, h, split = np.empty(n), np.empty(n), np.ones(n)
    root = np.sqrt(s[0])
    h[0] = root / (root + own[0] + rest[0])
    budget[0] = 1 - h[0]
    for u in range(1, n):  # budget: what is left for the contrasts of u and for all below
        p = parent[u]
        part = own[p] / (own[p] + rest[p]) if own[p] > 0 else 0.0
        h[u] = budget[p] * part * children[p] / max(children[p] - 1, 1)
        budget[u] = budget[p] * (1 - part)
    harmonic, reaches = np.zeros(n), np.ones(n)
    for u in range(1, n):
        harmonic[parent[u]] += 1 / max(h[u], 1e-300)
    for u in range(n):
        if harmonic[u] > 0:
            share = max(h[u] - 1 / harmonic[u], 0.0)
            split[u] = min(share / reaches[u], 0.999) if reaches[u] > 0 else 0.001
        if u + 1 < n:
            p = parent[u + 1]
            reaches[u + 1] = reaches[p] * (1 - split[p])
    return split


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def solved(parent, g, q, right):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``1_u' X^-1 b`` of every node, for ``b = sum of 1_u right_u``, one column after the other.

    The best estimates of all totals from measured ones where ``right = w_u y_u``.
    """
    n, columns = right.shape
    out, sums = np.empty((n, columns)), np.zeros((n, columns))
    for u in range(n - 1, -1, -1):  # out: the best estimate from the own subtree
        for j in range(columns):
            out[u, j] = (right[u, j] + q[u] * sums[u, j]) * g[u]
            if u > 0:
                sums[parent[u], j] += out[u, j]
    for u in range(1, n):  # the children share what they lack of their parent's
        p = parent[u]
        for j in range(columns):
            out[u, j] += q[p] * g[u] * (out[p, j] - sums[p, j])
    return out


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def longest_apart(parent, a):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The greatest sum of ``a`` over two paths that go down from one node to two leaves."""
    n = len(parent)
    first, second = np.zeros(n), np.full(n, -1.0)  # the two longest paths below, by children
    is_inner = np.zeros(n, dtype=np.bool_)
    out = 0.0
    for u in range(n - 1, -1, -1):
        if second[u] >= 0:
            out = max(out, first[u] + second[u])
        if u > 0:
            p = parent[u]
            long = a[u] + first[u]
            if not is_inner[p]:
                first[p], is_inner[p] = long, True
            elif long > first[p]:
                first[p], second[p] = long, first[p]
            elif long > second[p]:
                second[p] = long
    return out


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def depths(parent):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The number of nodes above every node."""
    out = np.zeros(len(parent), dtype=np.int64)
    for u in range(1, len(parent)):
        out[u] = out[parent[u]] + 1
    return out


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def spans(parent):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The first and the last leaf below every node, with leaves numbered along the tree."""
    n = len(parent)
    leaves = np.zeros(n, dtype=np.int64)
    for u in range(n - 1, -1, -1):
        if leaves[u] == 0:
            leaves[u] = 1
        if u > 0:
            leaves[parent[u]] += leaves[u]
    first, free = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for u in range(1, n):
        p = parent[u]
        first[u] = free[p] = free[p] if free[p] > first[p] else first[p]
        free[p] += leaves[u]
    return first, first + leaves - 1
