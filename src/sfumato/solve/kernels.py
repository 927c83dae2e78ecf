# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of ``chain.py`` and ``farthest.py``; imported when first used, for numba.

``diagonal_sweep``, ``potential_sweep`` and ``entry_sweep`` are in floats, ``sweep`` in
double-double arithmetic: a number is the unevaluated sum of two floats, whose operations are below
it. ``add_differences`` adds up distances of columns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sfumato.solve.tridiagonal import LANES

__all__ = [
    "BLOCK",
    "TINY",
    "add_differences",
    "diagonal_sweep",
    "entry_sweep",
    "potential_sweep",
    "sweep",
]


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
