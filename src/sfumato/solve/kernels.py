# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of this room; imported when first used, for numba takes a while.

**Chains** (``tridiagonal.py``). ``diagonal_sweep``, ``potential_sweep`` and ``entry_sweep`` are in
floats, ``sweep`` in double-double arithmetic: a number is the unevaluated sum of two floats, whose
operations are below it. ``add_differences`` adds up distances of columns (``farthest.py``).

**Trees** (``strategy/one_attribute/hierarchies.py``). Nodes stand after their parents: a loop
downwards over the numbers goes up the tree.

**Margins** of one table over many sets of attributes, and their adjoint. Attributes are summed out
one at a time, the last one first, and all sets that leave out the same ones share the sums (Yates
1937, "The design and analysis of factorial experiments"): all triples of 16 yes/no attributes cost
some thirty additions per cell in place of 560. Which sums those are is planned once per family of
sets, as a short program.

A step of the program is a row of numbers. ``SUM``: the table at ``source`` of shape (outer, size,
inner) is summed over its middle axis into the one at ``target``. ``LEAF``: the table at ``source``
is the margin that begins at ``target`` of the stack, of ``inner`` entries. ``END``: all that is
made of the ``SUM`` with the same numbers is done, and its place is free. The adjoint runs the same
program: ``SUM`` clears its target, ``LEAF`` adds a margin, ``END`` adds the target back to every
slice of its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numba import njit

from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers

__all__ = [
    "BLOCK",
    "TINY",
    "YatesSums",
    "add_differences",
    "bound",
    "contrast_splits",
    "depths",
    "diagonal_sweep",
    "entry_sweep",
    "error_and_slopes",
    "longest_apart",
    "nested_powers",
    "potential_sweep",
    "solved",
    "spans",
    "sweep",
    "variances",
]

LANES = LIMITS.lanes

BLOCK = 1024  # nodes whose sweep is repeated from the block's end


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def diagonal_sweep(b, k, v, shifts, first, second, plus, minus):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``diagonals``: positive and negative parts are added to ``plus`` and ``minus``."""
    n = len(k)
    blocks = (n + BLOCK - 1) // BLOCK
    seen = np.zeros((blocks, 2, LANES))  # what a block sees to its right, and its R
    right, far = np.empty((BLOCK, LANES)), np.empty((BLOCK, LANES))
    g, total = np.empty(LANES), np.empty(LANES)
    for start in range(0, len(shifts), LANES):
        s = shifts[start : start + LANES]
        a, c = first[start : start + LANES], second[start : start + LANES]
        g[:] = 0.0
        total[:] = 0.0
        for block in range(blocks - 1, -1, -1):
            seen[block, 0], seen[block, 1] = g, total
            for i in range(min(n, (block + 1) * BLOCK) - 1, block * BLOCK - 1, -1):
                link = b[i - 1] if i > 0 else 0.0
                for j in range(LANES):
                    e = k[i] + s[j] * v[i] + g[j]
                    r = link / (link + e)
                    g[j] = e * r
                    total[j] = r * r * (v[i] + total[j])
        left, near = np.zeros(LANES), np.zeros(LANES)
        for block in range(blocks):
            low, high = block * BLOCK, min(n, (block + 1) * BLOCK)
            g[:], total[:] = seen[block, 0], seen[block, 1]
            for i in range(high - 1, low - 1, -1):
                link = b[i - 1] if i > 0 else 0.0
                for j in range(LANES):
                    right[i - low, j], far[i - low, j] = g[j], total[j]
                    e = k[i] + s[j] * v[i] + g[j]
                    r = link / (link + e)
                    g[j] = e * r
                    total[j] = r * r * (v[i] + total[j])
            for i in range(low, high):
                link = b[i] if i < n - 1 else 0.0
                up, down = 0.0, 0.0
                for j in range(LANES):
                    e = k[i] + s[j] * v[i] + left[j]
                    own = 1.0 / (e + right[i - low, j])
                    twice = own * own * (v[i] + near[j] + far[i - low, j])
                    up += max(a[j], 0.0) * own + max(c[j], 0.0) * twice
                    down += max(-a[j], 0.0) * own + max(-c[j], 0.0) * twice
                    r = link / (link + e)
                    left[j] = e * r
                    near[j] = r * r * (v[i] + near[j])
                plus[i] += up
                minus[i] += down


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def potential_sweep(b, k, v, shifts, weights, sources, u, current):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``potentials``: sums over the poles are added to ``u`` and ``current``."""
    n = len(k)
    blocks = (n + BLOCK - 1) // BLOCK
    seen = np.zeros((blocks, 2, LANES))
    e, y = np.empty((BLOCK, LANES)), np.empty((BLOCK, LANES))
    g, flow, x = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for start in range(0, len(shifts), LANES):
        s, c = shifts[start : start + LANES], weights[start : start + LANES]
        g[:] = 0.0
        flow[:] = 0.0
        for block in range(blocks):
            seen[block, 0], seen[block, 1] = g, flow
            for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
                link = b[i] if i < n - 1 else 0.0
                for j in range(LANES):
                    at = k[i] + s[j] * v[i] + g[j]
                    r = link / (link + at)
                    g[j] = at * r
                    flow[j] = r * (sources[i] + flow[j])
        x[:] = 0.0
        for block in range(blocks - 1, -1, -1):
            low, high = block * BLOCK, min(n, (block + 1) * BLOCK)
            g[:], flow[:] = seen[block, 0], seen[block, 1]
            for i in range(low, high):
                link = b[i] if i < n - 1 else 0.0
                for j in range(LANES):
                    at = k[i] + s[j] * v[i] + g[j]
                    into = sources[i] + flow[j]
                    e[i - low, j], y[i - low, j] = at, into
                    r = link / (link + at)
                    g[j] = at * r
                    flow[j] = r * into
            for i in range(high - 1, low - 1, -1):
                link = b[i] if i < n - 1 else 0.0
                here, through = 0.0, 0.0
                for j in range(LANES):
                    q = c[j] / (link + e[i - low, j])
                    through += q * link * (y[i - low, j] - e[i - low, j] * x[j])
                    x[j] = (y[i - low, j] + link * x[j]) / (link + e[i - low, j])
                    here += c[j] * x[j]
                u[i] += here
                if i < n - 1:
                    current[i] += through


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def entry_sweep(b, k, v, s, a, c, first, last, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``covariances`` of one pole, added to ``out``."""
    n = len(k)
    own, near, far = np.empty(n), np.empty(n), np.empty(n)
    passed, inside = np.empty(n), np.empty(n)
    g, total = 0.0, 0.0
    for i in range(n - 1, -1, -1):
        own[i], far[i] = g, total
        link = b[i - 1] if i > 0 else 0.0
        e = k[i] + s * v[i] + g
        r = link / (link + e)
        g = e * r
        total = r * r * (v[i] + total)
    g, total, logs, held = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        near[i], passed[i] = total, logs
        link = b[i] if i < n - 1 else 0.0
        e = k[i] + s * v[i] + g
        own[i] = 1.0 / (e + own[i])
        held += v[i] * own[i]
        inside[i] = held
        if i < n - 1:
            r = link / (link + e)
            logs -= np.log1p(e / link)
            g = e * r
            total = r * r * (v[i] + total)
    for p in range(len(first)):
        i, t = first[p], last[p]
        both = own[t] * np.exp(passed[t] - passed[i])
        between = inside[t] - inside[i] - v[t] * own[t]
        ends = own[i] * (v[i] + near[i]) + own[t] * (v[t] + far[t])
        out[p] += both * (a + c * (ends + between))


# Sweeps in double-double arithmetic

TINY = 2.0**-120  # added to every count: no number on the way underflows

inlined = njit(inline="always", error_model="numpy")


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def two_sum(a, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def fast_sum(a, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    s = a + b
    return s, b - (s - a)


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def two_product(a, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    p = a * b
    c = 134217729.0 * a  # 2^27 + 1: halves of 26 bits (Veltkamp 1968)
    ah = c - (c - a)
    al = a - ah
    c = 134217729.0 * b
    bh = c - (c - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def add(ah, al, bh, bl):  # type: ignore[no-untyped-def]  # pragma: no cover
    s, t = two_sum(ah, bh)
    return fast_sum(s, t + (al + bl))


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def times_float(ah, al, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    p, q = two_product(ah, b)
    s, t = fast_sum(p, al * b)
    return fast_sum(s, t + q)


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def times(ah, al, bh, bl):  # type: ignore[no-untyped-def]  # pragma: no cover
    p, q = two_product(ah, bh)
    return fast_sum(p, q + (ah * bl + al * bh))


@inlined  # type: ignore[untyped-decorator,unused-ignore]
def one_over(ah, al):  # type: ignore[no-untyped-def]  # pragma: no cover
    t = 1.0 / ah
    rh, rl = times_float(ah, al, t)
    return fast_sum(t, ((1.0 - rh) - rl) / ah)


compiled = njit(cache=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator,unused-ignore]
def forward(b, k, v, s, h, first, after, state, q, y):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Eliminate the nodes of one block; ``state`` is what they see to their left, and its flow."""
    for i in range(first, after):
        link = b[i] if i < len(k) - 1 else 0.0
        hh, hl = two_sum(h[i], TINY)
        for j in range(LANES):
            eh, el = two_product(s[j], v[i])
            eh, el = add(eh, el, k[i], 0.0)
            eh, el = add(eh, el, state[0, j], state[1, j])
            ph, pl = add(eh, el, link, 0.0)
            ph, pl = one_over(ph, pl)
            q[0, i - first, j], q[1, i - first, j] = ph, pl
            ph, pl = times_float(ph, pl, link)
            state[0, j], state[1, j] = times(eh, el, ph, pl)
            fh, fl = add(hh, hl, state[2, j], state[3, j])
            y[0, i - first, j], y[1, i - first, j] = fh, fl
            state[2, j], state[3, j] = times(fh, fl, ph, pl)


@compiled  # type: ignore[untyped-decorator,unused-ignore]
def sweep(b, k, v, shifts, weights, d, h, high, low):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``d sum_j weights_j (K + shifts_j v)^-1 (h + TINY)``, added to ``high + low`` and scaled.

    Operations are compiled as written, without contraction or reordering: the proof counts on them.
    """
    n = len(k)
    blocks = (n + BLOCK - 1) // BLOCK
    seen = np.zeros((blocks, 4, LANES))
    q, y = np.empty((2, BLOCK, LANES)), np.empty((2, BLOCK, LANES))
    state = np.empty((4, LANES))
    xh, xl = np.empty(LANES), np.empty(LANES)
    oh, ol = np.empty(LANES), np.empty(LANES)
    for start in range(0, len(shifts), LANES):
        s, c = shifts[start : start + LANES], weights[start : start + LANES]
        state[:] = 0.0
        for block in range(blocks):
            seen[block] = state
            forward(b, k, v, s, h, block * BLOCK, min(n, (block + 1) * BLOCK), state, q, y)
        xh[:] = 0.0
        xl[:] = 0.0
        for block in range(blocks - 1, -1, -1):
            first, after = block * BLOCK, min(n, (block + 1) * BLOCK)
            state[:] = seen[block]
            forward(b, k, v, s, h, first, after, state, q, y)
            for i in range(after - 1, first - 1, -1):
                link = b[i] if i < n - 1 else 0.0
                for j in range(LANES):
                    ph, pl = times_float(xh[j], xl[j], link)
                    ph, pl = add(ph, pl, y[0, i - first, j], y[1, i - first, j])
                    ph, pl = times(ph, pl, q[0, i - first, j], q[1, i - first, j])
                    xh[j], xl[j] = ph, pl
                    oh[j], ol[j] = times_float(ph, pl, c[j])
                sh, sl = high[i], low[i]
                for j in range(LANES):
                    sh, sl = add(sh, sl, oh[j], ol[j])
                high[i], low[i] = sh, sl
    for i in range(n):
        high[i], low[i] = times_float(high[i], low[i], d[i])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def add_differences(out, a, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add ``sum_r |a[r, i] - b[r, j]|`` to every ``out[i, j]``.

    A block of 64 rows and 512 columns j at a time, which stays in the cache for all columns i.
    """
    for top in range(0, a.shape[0], 64):
        low = min(top + 64, a.shape[0])
        for begin in range(0, b.shape[1], 512):
            end = min(begin + 512, b.shape[1])
            for i in range(a.shape[1]):
                to = out[i, begin:end]
                r = top
                while r + 3 < low:
                    x, y, z, w = a[r, i], a[r + 1, i], a[r + 2, i], a[r + 3, i]
                    first, second = b[r, begin:end], b[r + 1, begin:end]
                    third, fourth = b[r + 2, begin:end], b[r + 3, begin:end]
                    for j in range(end - begin):
                        upper = abs(first[j] - x) + abs(second[j] - y)
                        to[j] += upper + abs(third[j] - z) + abs(fourth[j] - w)
                    r += 4
                while r < low:
                    row, x = b[r, begin:end], a[r, i]
                    for j in range(end - begin):
                        to[j] += abs(row[j] - x)
                    r += 1


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
    """The sum of ``(Q'F)_ll^2`` over the leaves; see ``hierarchies.py``."""
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


SUM, LEAF, END = 0, 1, 2


class YatesSums:
    """The margins of a table of this shape over sets of axes, in rising order, and the adjoint."""

    def __init__(self, shape: Sequence[int], sets: Sequence[tuple[int, ...]]) -> None:
        self.shape, self.cells = tuple(shape), prod(shape)
        ends = np.cumsum([0, *(prod(shape[a] for a in axes) for axes in sets)])
        self.ends: Integers = ends.astype(np.int64)
        self._room = self.cells
        steps: list[tuple[int, ...]] = []
        self._plan(steps, 0, len(self.shape), 1, list(enumerate(sets)), self.cells)
        self._steps: Integers = np.array(steps, dtype=np.int64).reshape(-1, 6)

    def margins(self, table: Array) -> Array:
        """All margins, one after the other."""
        room, out = np.empty(self._room), np.empty(int(self.ends[-1]))
        room[: self.cells] = table
        _sum_out(self._steps, room, out)
        return out

    def spread(self, margins: Array) -> Array:
        """For every cell the sum of its entries in all margins."""
        room = np.empty(self._room)
        room[: self.cells] = 0.0
        _add_up(self._steps, room, margins)
        return room[: self.cells].copy()

    def _plan(
        self,
        steps: list[tuple[int, ...]],
        source: int,
        left: int,
        inner: int,
        sets: list[tuple[int, tuple[int, ...]]],
        free: int,
    ) -> None:
        """The steps for sets of the first ``left`` axes; ``inner`` cells of later ones are held."""
        if not any(axes for _, axes in sets):
            outer = prod(self.shape[:left])
            place = source if outer == 1 else free
            step = (source, place, 1, outer, inner)
            if outer > 1:
                self._room = max(self._room, free + inner)
                steps.append((SUM, *step))
            steps += [(LEAF, place, int(self.ends[i]), 1, 1, inner) for i, _ in sets]
            if outer > 1:
                steps.append((END, *step))
            return
        size, rest = self.shape[left - 1], left - 1
        held = [(i, axes[:-1]) for i, axes in sets if axes and axes[-1] == rest]
        if held:
            self._plan(steps, source, rest, inner * size, held, free)
        without = [(i, axes) for i, axes in sets if not (axes and axes[-1] == rest)]
        if without:
            outer = prod(self.shape[:rest])
            step = (source, free, outer, size, inner)
            after = free + outer * inner
            self._room = max(self._room, after)
            steps.append((SUM, *step))
            self._plan(steps, free, rest, inner, without, after)
            steps.append((END, *step))


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _sum_out(steps, room, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Run the program: every margin of the table at the start of ``room`` into ``out``."""
    for k in range(len(steps)):
        kind, source, target = steps[k, 0], steps[k, 1], steps[k, 2]
        outer, size, inner = steps[k, 3], steps[k, 4], steps[k, 5]
        if kind == LEAF:
            out[target : target + inner] = room[source : source + inner]
        elif kind == SUM and inner == 1:
            for o in range(outer):
                slices, total = room[source + o * size : source + (o + 1) * size], 0.0
                for s in range(size):
                    total += slices[s]
                room[target + o] = total
        elif kind == SUM:
            for o in range(outer):
                x, y = source + o * size * inner, target + o * inner
                into = room[y : y + inner]
                into[:] = room[x : x + inner]
                for s in range(1, size):
                    one = room[x + s * inner : x + (s + 1) * inner]
                    for i in range(inner):
                        into[i] += one[i]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _add_up(steps, room, margins):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Run the program of the adjoint: into the table at the start of ``room``."""
    for k in range(len(steps)):
        kind, source, target = steps[k, 0], steps[k, 1], steps[k, 2]
        outer, size, inner = steps[k, 3], steps[k, 4], steps[k, 5]
        if kind == SUM:
            room[target : target + outer * inner] = 0.0
        elif kind == LEAF:
            into, one = room[source : source + inner], margins[target : target + inner]
            for i in range(inner):
                into[i] += one[i]
        else:
            for o in range(outer):
                one = room[target + o * inner : target + (o + 1) * inner]
                for s in range(size):
                    x = source + (o * size + s) * inner
                    into = room[x : x + inner]
                    for i in range(inner):
                        into[i] += one[i]
