# SPDX-License-Identifier: Apache-2.0
"""Chains of conductances: shifted tridiagonal inverses in O(cells), without a subtraction.

A chain is a row of nodes, neighbours joined by links of conductance ``b_i > 0``, node i joined to
the ground by ``k_i >= 0``. Its matrix

    (K u)_i = k_i u_i + b_i (u_i - u_{i+1}) + b_{i-1} (u_i - u_{i-1})

is the inverse Gram matrix of prefixes and ranges (``ordered.py``). With masses v > 0 and a shift
s, ``G = (K + s diag(v))^-1`` is known by what a node sees to its left and right:

    E_i  = k_i + s v_i + b_{i-1} E_{i-1} / (b_{i-1} + E_{i-1}),         (from the left; F_i alike)
    G_ii = 1 / (E_i + b_i F_{i+1} / (b_i + F_{i+1})),
    G_ij = G_jj prod_{i <= t < j} b_t / (b_t + E_t)                     (i < j)

sums, products and quotients of positive numbers only, so every result is good to a relative error
of a few roundings per node, however ill-conditioned the matrix (proof:
docs/proofs/rational-root.md; O'Cinneide 1996, "Relative-error bounds for the LU decomposition via
the GTH algorithm"). Since G has the Markov property ``G_it G_tj = G_ij G_tt`` for i <= t <= j,
``G diag(v) G`` follows too:

    (G v G)_ij = G_ij (G_ii (v_i + L_i) + sum_{i < t < j} v_t G_tt + G_jj (v_j + R_j)),
    L_i = (b_{i-1} / (b_{i-1} + E_{i-1}))^2 (v_{i-1} + L_{i-1}),        (R_j alike).

Sweeps run over the poles of a rational function in lanes, and over blocks of nodes: one direction
is remembered at the block ends only and repeated inside a block, so that memory stays O(nodes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.plan.rational import PartialFractions
from sfumato.plan.tridiagonal import LANES
from sfumato.workload.queries import Array, Integers

__all__ = ["BLOCK", "Chain", "covariances", "diagonals", "potentials"]

BLOCK = 1024  # nodes whose sweep is repeated from the block's end


@dataclass(frozen=True, eq=False)
class Chain:
    """Conductances of the links between neighbours (one less than nodes) and to the ground."""

    links: Array
    ground: Array

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.ground)

    def diagonal(self) -> Array:
        """The diagonal of its matrix."""
        out = self.ground.copy()
        out[:-1] += self.links
        out[1:] += self.links
        return out

    def dense(self) -> Array:
        """Its matrix in full."""
        return np.diag(self.diagonal()) - np.diag(self.links, 1) - np.diag(self.links, -1)


def diagonals(chain: Chain, mass: Array, terms: PartialFractions) -> tuple[Array, Array]:
    """``sum_j first_j G^j_ii + second_j (G^j v G^j)_ii``: positive and negative parts apart.

    The polynomial part of ``terms`` is not included. Either result has a relative error below
    ``(nodes + 16) 2^-48``.
    """
    plus, minus = np.zeros(chain.nodes), np.zeros(chain.nodes)
    shifts, first, second = _in_lanes(terms.shifts, terms.first, terms.second)
    _kernels()[0](chain.links, chain.ground, mass, shifts, first, second, plus, minus)
    return plus, minus


def potentials(
    chain: Chain, mass: Array, shifts: Array, weights: Array, sources: Array
) -> tuple[Array, Array]:
    """``u = sum_j weights_j (K + s_j v)^-1 sources`` and the currents ``b_i (u_i - u_{i+1})``.

    Currents are summed as such, not as differences of potentials.
    """
    u, current = np.zeros(chain.nodes), np.zeros(max(chain.nodes - 1, 0))
    padded = _in_lanes(shifts, weights)
    _kernels()[1](chain.links, chain.ground, mass, *padded, sources, u, current)
    return u, current


def covariances(
    chain: Chain, mass: Array, terms: PartialFractions, first: Integers, last: Integers
) -> Array:
    """Entries ``(first, last)``, with first < last, of the matrix whose diagonal is ``diagonals``.

    One sweep per pole, then a few operations per entry and pole.
    """
    out = np.zeros(len(first))
    for s, a, b in zip(terms.shifts, terms.first, terms.second, strict=True):
        _kernels()[2](chain.links, chain.ground, mass, s, a, b, first, last, out)
    return out


def _in_lanes(shifts: Array, *coefficients: Array) -> tuple[Array, ...]:
    """Poles filled up to whole lanes, the new ones counting nothing."""
    missing = -len(shifts) % LANES
    filled = np.concatenate([shifts, np.full(missing, shifts[-1])])
    return (filled, *(np.concatenate([c, np.zeros(missing)]) for c in coefficients))


Kernel = Callable[..., None]


@lru_cache(maxsize=1)
def _kernels() -> tuple[Kernel, Kernel, Kernel]:
    """The three sweeps, compiled when first used."""
    from numba import njit

    compiled = njit(cache=True, error_model="numpy")

    @compiled  # type: ignore[untyped-decorator,unused-ignore]
    def diagonal_sweep(b, k, v, shifts, first, second, plus, minus):  # type: ignore[no-untyped-def]  # pragma: no cover
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

    @compiled  # type: ignore[untyped-decorator,unused-ignore]
    def potential_sweep(b, k, v, shifts, weights, sources, u, current):  # type: ignore[no-untyped-def]  # pragma: no cover
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

    @compiled  # type: ignore[untyped-decorator,unused-ignore]
    def entry_sweep(b, k, v, s, a, c, first, last, out):  # type: ignore[no-untyped-def]  # pragma: no cover
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

    return diagonal_sweep, potential_sweep, entry_sweep
