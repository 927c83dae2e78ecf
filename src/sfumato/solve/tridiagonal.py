# SPDX-License-Identifier: Apache-2.0
"""Roots of a tridiagonal matrix on a million cells, in O(cells).

For prefixes with any query weights, and for all ranges, the inverse of the Gram matrix V is
tridiagonal, hence so is ``T = A^-1 = D^-1/2 V^-1 D^-1/2``. Powers of T are sums of shifted
inverses, ``T^-1/2 = sum_j c_j (T + s_j)^-1``, with the nodes of Hale, Higham, Trefethen 2008
("Computing A^alpha, log(A), and related matrix functions by contour integrals", method 3), whose
number grows with the logarithm of the condition number; the diagonal of a shifted inverse costs
two recurrences. ``root_diagonal`` is what ``certified_optimum`` asks of a problem.

``inverse_fourth_root`` is the rational function ``r(x)`` near ``x^-1/4`` (``Root``) whose ``r(T)
D^-1/2`` the strategy of ``strategy/one_attribute/ordered.py`` measures.

**Chains** of conductances have shifted inverses in O(cells), without a subtraction. A chain is a
row of nodes, neighbours joined by links of conductance ``b_i > 0``, node i joined to the ground by
``k_i >= 0``. Its matrix

    (K u)_i = k_i u_i + b_i (u_i - u_{i+1}) + b_{i-1} (u_i - u_{i-1})

is the inverse Gram matrix of prefixes and ranges (``strategy/one_attribute/ordered.py``). With
masses v > 0 and a shift s, ``G = (K + s diag(v))^-1`` is known by what a node sees to its left and
right:

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

``diagonals``, ``potentials`` and ``covariances`` are in floats; ``applied`` is to 100 bits, for
what the vault measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, log, pi, sin

import numpy as np

from sfumato.solve.effort import spend
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet

__all__ = [
    "RELATIVE",
    "Chain",
    "PartialFractions",
    "Reciprocal",
    "Root",
    "Tridiagonal",
    "applied",
    "covariances",
    "diagonals",
    "inverse_fourth_root",
    "inverse_gram",
    "inverse_root_poles",
    "pole_count",
    "potentials",
    "root_diagonal",
]

LANES = LIMITS.lanes


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric tridiagonal matrix: its diagonal and the entries beside it."""

    diagonal: Array
    beside: Array

    def scaled(self, v: Array) -> Tridiagonal:
        """``D^-1/2 T D^-1/2`` for D = diag(v)."""
        return Tridiagonal(self.diagonal / v, self.beside / np.sqrt(v[:-1] * v[1:]))

    def maximum_bound(self) -> float:
        """An upper bound on the spectrum: Gershgorin's discs."""
        beside = np.abs(self.beside)
        radius = np.concatenate([beside, [0.0]]) + np.concatenate([[0.0], beside])
        return float((self.diagonal + radius).max())

    def dense(self) -> Array:
        """The whole matrix."""
        return np.diag(self.diagonal) + np.diag(self.beside, 1) + np.diag(self.beside, -1)


def inverse_gram(queries: QuerySet) -> tuple[Tridiagonal, Array] | None:
    """``V^-1`` and the diagonal of V, where V^-1 is known to be tridiagonal; else None."""
    bands = queries.inverse_gram()
    return None if bands is None else (Tridiagonal(*bands), queries.column_powers(2))


def root_diagonal(
    inverse: Tridiagonal, gram_diagonal: Array, accuracy: float = 1e-9
) -> Callable[[Array], Array]:
    """The map ``v -> diag(A^1/2)`` for ``certified_optimum``, to relative ``accuracy``."""

    def evaluate(v: Array) -> Array:
        t = inverse.scaled(v)
        # 1 / lambda_min(T) = lambda_max(A) <= tr A
        shifts, weights = _inverse_root_poles(
            1 / float(gram_diagonal @ v), t.maximum_bound(), accuracy
        )
        spend(64.0 * len(v) * len(shifts))  # divisions
        return np.asarray(_kernel()(t.diagonal, t.beside, shifts, weights), dtype=np.float64)

    return evaluate


def _inverse_root_poles(least: float, largest: float, accuracy: float) -> tuple[Array, Array]:
    """Shifts and weights with ``x^-1/2 = sum_j c_j / (x + s_j)`` on [least, largest].

    The relative error is below ``4 exp(-2 pi^2 N / (log(largest / least) + 3))``.
    """
    count = pole_count(least, largest, accuracy)
    return inverse_root_poles(least, largest, LANES * ceil(count / LANES))


def pole_count(least: float, largest: float, accuracy: float) -> int:
    """How many poles reach a relative accuracy of ``x^-1/2`` on [least, largest]."""
    return ceil((log(largest / least) + 3) * log(4 / accuracy) / (2 * pi**2))


def inverse_root_poles(least: float, largest: float, count: int) -> tuple[Array, Array]:
    """Shifts and weights of ``count`` poles: Hale, Higham, Trefethen 2008, method 3."""
    from scipy.special import ellipj, ellipkm1

    period = float(ellipkm1(least / largest))
    # Near the quarter period, and for a parameter near 1, elliptic functions are computed badly.
    # Nodes of the lower half are exact; sn(K - u) = cn / dn, cn(K - u) = k' sn / dn and
    # dn(K - u) = k' / dn, with k'^2 = least / largest, give those of the upper half.
    t = (np.arange((count + 1) // 2) + 0.5) * period / count
    sn, cn, dn, _ = ellipj(t, 1 - least / largest)
    step = 2 * period / (pi * count)
    low, low_weights = least * (sn / cn) ** 2, step * np.sqrt(least) * dn / cn**2
    high, high_weights = largest * (cn / sn) ** 2, step * np.sqrt(largest) * dn / sn**2
    mirrored = slice(count // 2 - 1, None, -1) if count > 1 else slice(0, 0)
    shifts = np.concatenate([low, high[mirrored]])
    weights = np.concatenate([low_weights, high_weights[mirrored]])
    return shifts, weights


@lru_cache(maxsize=1)
def _kernel() -> Callable[[Array, Array, Array, Array], Array]:
    """``sum_j c_j diag((T + s_j)^-1)`` by forward and backward pivots, LANES shifts at a time."""
    from numba import njit

    @njit(cache=True, fastmath={"contract", "arcp", "nsz"})
    def diagonal_of_sum(a, b, shifts, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
        n = len(a)
        out = np.zeros(n)
        forward = np.empty((n, LANES))
        x = np.empty(LANES)
        for first in range(0, len(shifts), LANES):
            s = shifts[first : first + LANES]
            c = weights[first : first + LANES]
            for j in range(LANES):
                x[j] = a[0] + s[j]
                forward[0, j] = x[j]
            for i in range(1, n):
                square = b[i - 1] * b[i - 1]
                for j in range(LANES):
                    x[j] = a[i] + s[j] - square / x[j]
                    forward[i, j] = x[j]
            total = 0.0
            for j in range(LANES):
                total += c[j] / forward[n - 1, j]
                x[j] = a[n - 1] + s[j]
            out[n - 1] += total
            for i in range(n - 2, -1, -1):
                square = b[i] * b[i]
                total = 0.0
                for j in range(LANES):
                    q = square / x[j]
                    total += c[j] / (forward[i, j] - q)
                    x[j] = a[i] + s[j] - q
                out[i] += total
        return out

    return diagonal_of_sum  # type: ignore[no-any-return]


# Rational functions of a matrix as sums of shifted inverses


@dataclass(frozen=True, eq=False)
class PartialFractions:
    """``slope x + constant + sum_j first_j / (x + shifts_j) + second_j / (x + shifts_j)^2``."""

    shifts: Array
    first: Array
    second: Array
    slope: float = 0.0
    constant: float = 0.0

    def at(self, x: Array) -> Array:
        """The values at x."""
        near = 1 / (x[:, None] + self.shifts)
        out = self.slope * x + self.constant + near @ self.first + near**2 @ self.second
        return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Reciprocal:
    """``constant + slope x + sum_j gains_j x / (x + shifts_j)``: one over a ``Root``."""

    shifts: Array
    gains: Array
    slope: float
    constant: float

    def at(self, x: Array) -> Array:
        """The values at x."""
        share = x[:, None] / (x[:, None] + self.shifts)
        return np.asarray(self.constant + self.slope * x + share @ self.gains, dtype=np.float64)

    @cached_property
    def squared_over_x(self) -> PartialFractions:
        """``phi(x)^2 / x``, from ``phi / x = alpha + sum_j g_j / (x + z_j)`` with z_0 = 0."""
        z = np.concatenate([[0.0], self.shifts])
        g = np.concatenate([[self.constant], self.gains])
        cross = 2 * self.slope * g + _cross(g, z)
        constant = 2 * self.slope * float(g.sum())
        return PartialFractions(z, g**2 - z * cross, -z * g**2, self.slope**2, constant)


@dataclass(frozen=True, eq=False)
class Root:
    """``r(x) = sum_j weights_j / (x + shifts_j)``, all positive, shifts increasing.

    A strategy for X = D^-1/2 T^-1/2 D^-1/2 needs a root of it, such as
    ``T^-1/4 D^-1/2``. In its place stands ``r(T) D^-1/2`` with

        r(x) = sum_j c_j / (x + s_j),     c_j, s_j > 0,     |r(x) x^1/4 - 1| <= about 1e-5

    on the spectrum of T. r is not used as an approximation of anything: it *is* the strategy, and
    the functions that sensitivity, answers and variances need follow from it exactly:

        r(x)^2          = sum_j a_j / (x + s_j) + b_j / (x + s_j)^2
        1 / r(x)        = beta + alpha x + sum_j g_j x / (x + z_j),        all coefficients positive
        1 / (x r(x)^2)  = alpha^2 x + const + sum_j a'_j / (x + z_j) + b'_j / (x + z_j)^2

    The second line holds because r is a Stieltjes function: its zeros -z_j lie between the poles,
    and the reciprocal is a complete Bernstein function (Schilling, Song, Vondracek 2012, "Bernstein
    functions").

    The nodes start from those of Hale, Higham, Trefethen 2008 for x^-1/2 and are then moved by
    damped least squares (Levenberg 1944; Marquardt 1963) on the relative error in log coordinates.
    """

    shifts: Array
    weights: Array

    def at(self, x: Array) -> Array:
        """The values at x."""
        return np.asarray((1 / (x[:, None] + self.shifts)) @ self.weights, dtype=np.float64)

    @cached_property
    def squared(self) -> PartialFractions:
        """``r^2``; every coefficient is the exact one, rounded once."""
        return PartialFractions(
            self.shifts, _exact_cross(self.weights, self.shifts), _squares(self.weights)
        )

    @cached_property
    def reciprocal(self) -> Reciprocal:
        """``1 / r``."""
        z = self._zeros()
        gains = 1 / (z * ((self.shifts - z[:, None]) ** -2 @ self.weights))
        slope = 1 / float(self.weights.sum())
        constant = 1 / float((self.weights / self.shifts).sum())
        return Reciprocal(z, gains, slope, constant)

    def _zeros(self) -> Array:
        """``r(-z) = 0`` once between two poles, where r(-z) increases: bisection to the last bit.

        The unknown is the distance from the lower pole, so that it is known relatively.
        """
        low, high = np.zeros(len(self.shifts) - 1), np.diff(self.shifts)
        apart = self.shifts - self.shifts[:-1, None]
        while True:
            middle = (low + high) / 2
            if ((middle <= low) | (middle >= high)).all():
                return self.shifts[:-1] + middle
            is_below = (1 / (apart - middle[:, None])) @ self.weights < 0
            low = np.where(is_below, middle, low)
            high = np.where(is_below, high, middle)


def inverse_fourth_root(
    least: float, largest: float, accuracy: float = LIMITS.root_accuracy
) -> Root:
    """A Root near ``x^-1/4`` on [least, largest], to a relative error of about ``accuracy``."""
    ratio = max(largest / least, LIMITS.spectrum_ratio_minimum)
    n = LANES * ceil(pole_count(1.0, ratio, accuracy) / LANES)
    shifts, weights = inverse_root_poles(1.0, ratio, n)
    x = np.exp(log(ratio) * (1 - np.cos(np.linspace(0, pi, LIMITS.root_samples * n + 1))) / 2)[
        :, None
    ]
    # Unknown: log s_j, and log of c_j s_j^-3/4. The same integral with s^-1/4 for s^-1/2 gives
    # the first weights: c_j becomes sin(pi / 4) s_j^1/4 c_j.
    place = np.concatenate([np.log(shifts), np.log(sin(pi / 4) * weights / np.sqrt(shifts))])
    damping = 1e-3
    parts = _parts(x, place)
    error = parts.sum(axis=1) - 1
    for _ in range(LIMITS.root_steps):
        slopes = np.concatenate([parts * (x / (x + np.exp(place[:n])) - 0.25), parts], axis=1)
        normal, downhill = slopes.T @ slopes, -(slopes.T @ error)
        while damping < 1e8:
            damped = normal + damping * np.diag(np.diag(normal))
            there = place + np.linalg.solve(damped, downhill)
            parts = _parts(x, there)
            there_error = parts.sum(axis=1) - 1
            if there_error @ there_error < error @ error:
                break
            damping *= 4
        else:
            break
        gained = 1 - (there_error @ there_error) / (error @ error)
        place, error, damping = there, there_error, max(damping / 8, 1e-15)
        if gained < 1e-3:
            break
    order = np.argsort(place[:n])
    s = np.exp(place[:n][order])
    c = np.exp(place[n:][order]) * s**0.75
    return Root(s * least, c * least**0.75)


def _parts(x: Array, place: Array) -> Array:
    """``x^1/4 c_j / (x + s_j)`` for every x and j."""
    n = len(place) // 2
    s = np.exp(place[:n])
    return np.asarray((x / s) ** 0.25 * s / (x + s) * np.exp(place[n:]), dtype=np.float64)


def _cross(g: Array, z: Array) -> Array:
    """``2 g_j sum_{k != j} g_k / (z_k - z_j)``."""
    apart = z - z[:, None] + np.diag(np.full(len(z), np.inf))
    return np.asarray(2 * g * ((1 / apart) @ g), dtype=np.float64)


def _exact_cross(c: Array, s: Array) -> Array:
    """``_cross`` in exact arithmetic, rounded at the end: the sensitivity relies on it."""
    numbers = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(c, s, strict=True)]
    return np.array(
        [float(2 * a * sum(other / (t - b) for other, t in numbers if t != b)) for a, b in numbers]
    )


def _squares(c: Array) -> Array:
    return np.array([float(Fraction(float(a)) ** 2) for a in c])


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
    from sfumato.solve.kernels import diagonal_sweep

    plus, minus = np.zeros(chain.nodes), np.zeros(chain.nodes)
    shifts, first, second = _in_lanes(terms.shifts, terms.first, terms.second)
    diagonal_sweep(chain.links, chain.ground, mass, shifts, first, second, plus, minus)
    return plus, minus


def potentials(
    chain: Chain, mass: Array, shifts: Array, weights: Array, sources: Array
) -> tuple[Array, Array]:
    """``u = sum_j weights_j (K + s_j v)^-1 sources`` and the currents ``b_i (u_i - u_{i+1})``.

    Currents are summed as such, not as differences of potentials.
    """
    from sfumato.solve.kernels import potential_sweep

    u, current = np.zeros(chain.nodes), np.zeros(max(chain.nodes - 1, 0))
    padded = _in_lanes(shifts, weights)
    potential_sweep(chain.links, chain.ground, mass, *padded, sources, u, current)
    return u, current


def covariances(
    chain: Chain, mass: Array, terms: PartialFractions, first: Integers, last: Integers
) -> Array:
    """Entries ``(first, last)``, with first < last, of the matrix whose diagonal is ``diagonals``.

    One sweep per pole, then a few operations per entry and pole.
    """
    from sfumato.solve.kernels import entry_sweep

    out = np.zeros(len(first))
    for s, a, b in zip(terms.shifts, terms.first, terms.second, strict=True):
        entry_sweep(chain.links, chain.ground, mass, s, a, b, first, last, out)
    return out


def _in_lanes(shifts: Array, *coefficients: Array) -> tuple[Array, ...]:
    """Poles filled up to whole lanes, the new ones counting nothing."""
    missing = -len(shifts) % LANES
    filled = np.concatenate([shifts, np.full(missing, shifts[-1])])
    return (filled, *(np.concatenate([c, np.zeros(missing)]) for c in coefficients))


# The root applied to counts, to 100 bits

RELATIVE = 2.0**-97  # 32 * 2^-102 per node


def applied(
    chain: Chain, mass: Array, root: Root, scale: Array, counts: Array
) -> tuple[Array, Array]:
    """``scale * sum_j c_j (K + s_j v)^-1 (counts + TINY)`` as high and low parts.

    ``counts`` are whole numbers from 0 to 2^53. All given floats are taken as the exact numbers
    they are.

    The recurrences of the module in double-double arithmetic (a number is the unevaluated sum of
    two floats; Dekker 1971). All operands are positive, so no digit is ever cancelled, and every
    operation has a relative error below ``16 u^2 = 2^-102`` with u = 2^-53 (Joldes, Muller, Popescu
    2017, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic": sum
    of same-signed numbers 3 u^2, product 7 u^2, quotient 15 u^2 + 56 u^3). The result has a
    relative error below ``RELATIVE (nodes + 8)`` in every entry: docs/proofs/rational-root.md.

    ``TINY`` is added to every entry of h. It moves the results of all tables by the same amount,
    far below the grid, and keeps every intermediate number away from underflow.

    Privacy: exact counts pass through here; only the vault calls it.
    """
    from sfumato.solve.kernels import sweep

    high, low = np.zeros(chain.nodes), np.zeros(chain.nodes)
    missing = -len(root.shifts) % LANES
    shifts = np.concatenate([root.shifts, np.full(missing, root.shifts[-1])])
    weights = np.concatenate([root.weights, np.zeros(missing)])
    sweep(chain.links, chain.ground, mass, shifts, weights, scale, counts, high, low)
    return high, low
