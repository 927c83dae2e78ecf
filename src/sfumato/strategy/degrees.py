# SPDX-License-Identifier: Apache-2.0
"""Sets of conjunctions that no permutation of the attributes changes, measured degree by degree.

All 2^d monotone conjunctions of d yes/no attributes, or all of some widths, are a matrix ``F(T, x)
= [T within x]`` that commutes with the permutations of the attributes. Some best factorization then
does so too (the mean over the group errs no more), and the space of functions of a subset falls
into parts: part i, ``i <= d / 2``, occurs ``m_i = C(d, i) - C(d, i - 1)`` times and has one
dimension for every size from i to d - i (Schur-Weyl duality). On part i the matrix is, with ``n = d
- 2 i`` and rows and columns numbered from i,

    F_i(t, s) = C(s - i, t - i) sqrt(C(n, s - i) / C(n, t - i)),

a column x of weight s has the squared length ``sum_i m_i / C(d, s) |F_i e_s|^2``, and the trace of
C is ``sum_i m_i tr C_i``: d + 1 columns and matrices of at most d + 1 rows take the place of 2^d
(``optimal_error``, to any accuracy, by ``solve/ellipsoid.py``).

What a release measures are characters ``chi_S(x) = (-1)^|S within x|``, all of degree ``|S| = l``
with the same share ``phi_l / C(d, l)`` of the squared sensitivity: integers, every column as long
as every other. On part i these are ``2^(d/2)`` times an orthogonal matrix H_i, so bias and noise of
every reconstruction are known from small matrices too. With weights u on the sizes s the best
reconstruction is the ridge ``R = F U M' (M U M' + tau)^-1``, which reads all characters and not
only those within the conjunction; the shares that are best for R are ``phi_l ~ sqrt(e_l phi_l)``,
and the u of the worst case grows where the bias is largest: three steps that are repeated until
they stand (``best_shares``). A test compares with ``optimal_error``: within 5% up to d = 30.

Without bias R is ``F H' / 2^d`` on the degrees up to the greatest width. For all 2^d conjunctions
that is the optimum: the 2^d-fold product of that of one attribute.

References: Schrijver 2005, "New code upper bounds from the Terwilliger algebra and semidefinite
programming" (the parts); Thaler, Ullman, Vadhan 2012, "Faster algorithms for privately releasing
marginals" (Remark 2.4 in the lecture notes of Smith and Ullman on factorization).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.ellipsoid import OrbitPart, nearest_ellipsoid
from sfumato.solve.nuclear import EIGEN_ROUNDING, certified_optimum
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.conjunctions import MOST_ATTRIBUTES, Cube, clauses_of
from sfumato.strategy.moves import BlockMoves
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, Objective
from sfumato.workload.queries import widened
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "ByDegree",
    "Characters",
    "OptimalError",
    "SymmetricSet",
    "best_shares",
    "by_degrees",
    "is_forecast_only",
    "least_gamma",
    "least_largest",
    "least_replaced",
    "least_total",
    "least_variance",
    "optimal_error",
    "symmetric_set",
    "whole_bounds",
    "worst_widths",
]


SLACK = 1e-9  # covers the conjugate gradients and the rounding of floats


# Sets of conjunctions that are all of their widths


@dataclass(frozen=True, eq=False)
class SymmetricSet:
    """All conjunctions of some widths: ``weights[w]`` is the squared weight of those of w literals.

    The literal of ``names[i]`` holds in cell ``codes[i]``; ``counts`` is the number of queries of
    every term by width. Nothing of size 2^d is held before ``masks`` is read.
    """

    workload: Workload
    names: tuple[str, ...]
    codes: tuple[int, ...]
    weights: Array
    counts: tuple[Array, ...]

    @cached_property
    def masks(self) -> tuple[Integers, ...]:
        """The sets of attributes of the queries of every term; the last is the lowest bit."""
        self.check_listed()
        bits = _bits(self.names)
        codes: dict[str, int] = {}
        return tuple(_masks(term, bits, codes) for term in self.workload.terms)

    @property
    def is_whole(self) -> bool:
        """Whether all 2^d conjunctions are asked, with equal weights."""
        return bool(np.ptp(self.weights) == 0)

    @property
    def is_listed(self) -> bool:
        """Whether its characters are few enough for a release."""
        return len(self.names) <= LIMITS.symmetric_listed

    @property
    def goes_by_degrees(self) -> bool:
        """Whether it is too large for a matrix, and can be measured or forecast by degrees."""
        is_large = len(self.names) > LIMITS.symmetric_dense_attributes
        return is_large and (self.is_listed or self.is_whole)

    def check_listed(self) -> None:
        """Refuse to list more characters than a release measures."""
        d = len(self.names)
        if not self.is_listed:
            raise TooLarge(
                f"{self.workload.queries:,} conjunctions of {d} attributes can be planned, but not "
                f"released: the 2^{d} numbers behind them are too many, the most are those of "
                f"{LIMITS.symmetric_listed} attributes. Ask for conjunctions of few attributes "
                "(sf.conjunctions) or of fewer attributes at once"
            )


def symmetric_set(workload: Workload) -> SymmetricSet | None:
    """The workload as all conjunctions of some widths of its attributes; None where it is not.

    Each attribute has one literal, which may be negative.
    """
    names = workload.domain.in_order({n for t in workload.terms for n in t.attributes})
    d = len(names)
    if not 0 < d <= MOST_ATTRIBUTES or workload.queries > 2**d:
        return None
    if any(workload.domain[n].size != 2 for n in names):
        return None
    whole = _whole(workload, names)
    if whole is not None:
        return whole
    if workload.queries > 2**LIMITS.symmetric_listed:
        return None
    codes: dict[str, int] = {}
    bits = _bits(names)
    try:
        masks = tuple(_masks(term, bits, codes) for term in workload.terms)
    except PlanError:
        return None
    weights = np.zeros(d + 1)
    every = np.concatenate(masks)
    squares = np.concatenate([np.full(t.rows, t.weight**2) for t in workload.terms])
    if len(np.unique(every)) < len(every):
        return None
    widths = np.bitwise_count(every)
    for w in np.unique(widths).tolist():
        own = squares[widths == w]
        if len(own) != comb(d, w) or np.ptp(own) > 0:
            return None
        weights[w] = own[0]
    counts = tuple(
        np.bincount(np.bitwise_count(m), minlength=d + 1).astype(np.float64) for m in masks
    )
    return SymmetricSet(workload, names, _in_order(codes, names), weights, counts)


def is_forecast_only(workload: Workload) -> bool:
    """Whether all conjunctions of so many attributes are asked that only their error is known."""
    if workload.queries <= 2**LIMITS.symmetric_listed:
        return False
    family = symmetric_set(workload)
    return family is not None and family.is_whole


def _whole(workload: Workload, names: tuple[str, ...]) -> SymmetricSet | None:
    """One product that asks of every attribute for the total and for one literal: all 2^d."""
    product = workload.terms[0].as_product() if len(workload.terms) == 1 else None
    if product is None or len(names) > LIMITS.symmetric_attributes:
        return None
    if workload.queries != 2 ** len(names):
        return None
    codes: dict[str, int] = {}
    for name, queries in product.factors:
        rows = sorted(queries.dense().tolist()) if queries.rows == 2 else []
        if len(rows) != 2 or rows[1] != [1, 1] or rows[0] not in ([0, 1], [1, 0]):
            return None
        codes[name] = rows[0].index(1)
    d = len(names)
    weights = np.full(d + 1, workload.terms[0].weight ** 2)
    return SymmetricSet(workload, names, _in_order(codes, names), weights, (_orbits(d),))


def _bits(names: tuple[str, ...]) -> dict[str, int]:
    return {name: 1 << (len(names) - 1 - i) for i, name in enumerate(names)}


def _in_order(codes: dict[str, int], names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(codes.get(n, 1) for n in names)


def _masks(term: Term, bits: dict[str, int], codes: dict[str, int]) -> Integers:
    """The attributes of every query as a mask; PlanError where a query is no conjunction."""
    product = term.as_product()
    if product is None:
        clauses = clauses_of(term)
        if isinstance(clauses, Cube) or any(c.is_complement for c in clauses):
            raise PlanError(f"group {term.name!r} asks for negations")
        for clause in clauses:
            for name, code in zip(clause.attributes, clause.codes, strict=True):
                _agree(codes, name, code)
        return np.array([sum(bits[n] for n in c.attributes) for c in clauses], dtype=np.int64)
    out = np.zeros(1, dtype=np.int64)
    for name, queries in product.factors:
        own = []
        for row in queries.dense().tolist():
            if row not in ([1, 1], [0, 1], [1, 0]):
                raise PlanError(f"group {term.name!r} asks for more than conjunctions")
            if row != [1, 1]:
                _agree(codes, name, row.index(1))
            own.append(0 if row == [1, 1] else bits[name])
        out = (out[:, None] + np.array(own, dtype=np.int64)).reshape(-1)
    return out


def _agree(codes: dict[str, int], name: str, code: int) -> None:
    if codes.setdefault(name, code) != code:
        raise PlanError(f"both cells of {name!r} are asked")


@lru_cache(maxsize=4)
def _sizes(d: int) -> Integers:
    """The number of members of every subset of d attributes, by mask."""
    out = np.zeros(1, dtype=np.int64)
    for _ in range(d):
        out = np.concatenate([out, out + 1])
    out.setflags(write=False)
    return out


# Matrices that commute with permutations, part by part


class _Piece(NamedTuple):
    """Part i: which sizes it has, how often it occurs, and F and the characters on it."""

    i: int
    copies: int
    sizes: slice
    queries: Array  # F_i
    characters: Array  # H_i


@lru_cache(maxsize=8)
def _pieces(d: int) -> tuple[_Piece, ...]:
    out = []
    for i in range(d // 2 + 1):
        n = d - 2 * i
        copies = comb(d, i) - (comb(d, i - 1) if i else 0)
        roots = np.sqrt([float(comb(n, s)) for s in range(n + 1)])
        binomials = np.array([[comb(s, t) for s in range(n + 1)] for t in range(n + 1)])
        signs = np.array([[_krawtchouk(n, t, s) for s in range(n + 1)] for t in range(n + 1)])
        spread = roots[None, :] / roots[:, None]
        queries = binomials.astype(np.float64) * spread
        characters = signs.astype(np.float64) * 2.0 ** (-n / 2) * spread
        out.append(_Piece(i, copies, slice(i, d - i + 1), queries, characters))
    return tuple(out)


def _krawtchouk(n: int, t: int, s: int) -> int:
    """The sum of the characters of all t of n attributes, at a point of weight s."""
    return sum((-1) ** a * comb(s, a) * comb(n - s, t - a) for a in range(min(s, t) + 1))


def _orbits(d: int) -> Array:
    return np.array([float(comb(d, s)) for s in range(d + 1)])


def _at_points(d: int, parts: Sequence[Array]) -> Array:
    """What a matrix that commutes with permutations has at (t, s, common members), from its parts.

    A matrix ``f(|T and x|)`` for T of size t and x of size s is a sum of ``r_j C(|T and x|, j)``,
    which is the product of the inclusions of sets of size j in T and in x; on part i that is
    ``b_i(t, j) b_i(s, j)``, ``b_i(t, j) = C(t - i, j - i) sqrt(C(n, t - i) / C(n, j - i))``: a
    triangular system, solved in fractions.
    """
    out = np.zeros((d + 1, d + 1, d + 1))
    for t in range(d + 1):
        for s in range(d + 1):
            top = min(t, s, d - t, d - s)
            r = [Fraction(0)] * (top + 1)
            for i in range(top, -1, -1):
                n = d - 2 * i
                root = sqrt(comb(n, t - i)) * sqrt(comb(n, s - i))
                left = Fraction(float(parts[i][t - i, s - i]) / root)
                for j in range(i + 1, top + 1):
                    left -= r[j] * Fraction(comb(t - i, j - i) * comb(s - i, j - i), comb(n, j - i))
                r[i] = left
            for a in range(max(0, t + s - d), min(t, s) + 1):
                out[t, s, a] = float(sum(r[j] * comb(a, j) for j in range(min(a, top) + 1)))
    return out


# The least error of all factorizations

GOLDEN = (1 + sqrt(5)) / 2


class OptimalError(NamedTuple):
    """The least root mean square error, a proved bound below it, and the bias in it, per record.

    The error is gamma where a bias was given.
    """

    error: float
    lower: float
    bias: float


def optimal_error(weights: Sequence[float], noise: float, tolerance: float = 1e-3) -> OptimalError:
    """The least worst error of all conjunctions of some widths, over all factorizations.

    Args:
        weights: The squared weight of a query by its width, from 0 to d; 0 where none is asked.
        noise: tau, the variance of the noise at unit sensitivity over the squared number of
            records; 0 for the least gamma without bias.
        tolerance: How far the error may be above the least, relatively.

    Returns:
        The error per record and its certificate: ``sqrt(alpha^2 + tau gamma_alpha^2)``.
    """
    if noise == 0:
        return least_gamma(weights, 0.0, tolerance)
    shares = best_shares(np.asarray(weights, dtype=np.float64), noise)
    columns, parts, total = _orbit_columns(weights)
    lower = _product_bound(weights, noise) / total
    bias = sqrt(shares.bias)
    if shares.error <= lower * (1 + tolerance) ** 2:
        return OptimalError(sqrt(shares.error), sqrt(lower), bias)
    best = nearest_ellipsoid(columns, tau=noise, tolerance=tolerance, parts=parts)
    lower = max(lower, best.lower / total)
    if shares.error <= best.upper / total:
        return OptimalError(sqrt(shares.error), sqrt(lower), bias)
    return OptimalError(sqrt(best.upper / total), sqrt(lower), best.distance / sqrt(total))


def _product_bound(weights: Sequence[float], noise: float) -> float:
    """Below ``a^2 + tau k gamma_a^2`` of all 2^d conjunctions: tight as the noise goes to 0.

    The bound of ``solve/ellipsoid.py`` with the G of the best exact factorization, which is a
    product over the attributes: ``<G, F>`` is phi^d, phi the golden ratio, and gamma*(G) is 1.
    """
    if np.ptp(weights) > 0:
        return 0.0
    d = len(weights) - 1
    return GOLDEN ** (2 * d) / (_dual_length() ** (2 * d) + 1 / noise)


def _dual_length() -> float:
    """``|G_0| + |G_1|`` for one attribute: ``G_j = v_j C^-1 f_j``, C the root of ``F V F'``."""
    v = (1 + 1 / sqrt(5)) / 2  # of the cell where the literal holds
    inverse = np.array([[GOLDEN, -1.0], [-1.0, 2.0]])
    return float((1 - v) * np.linalg.norm(inverse[:, 0]) + v * np.linalg.norm(inverse.sum(axis=1)))


def least_gamma(weights: Sequence[float], alpha: float, tolerance: float = 1e-3) -> OptimalError:
    """gamma_alpha of all conjunctions of some widths, with its certificate.

    Args:
        weights: The squared weight of a query by its width, from 0 to d.
        alpha: The bias that is allowed, per record, as a root mean square over queries.
        tolerance: How far gamma may be above the least, relatively.
    """
    if alpha == 0 and np.ptp(weights) == 0:  # a product of d matrices [[1, 1], [0, 1]]
        gamma = (GOLDEN / sqrt(2)) ** (len(weights) - 1)
        return OptimalError(gamma, gamma, 0.0)
    columns, parts, total = _orbit_columns(weights)
    distance = alpha * sqrt(total)
    if distance >= sqrt(float((columns**2).sum(axis=0).max())):
        return OptimalError(0.0, 0.0, alpha)
    best = nearest_ellipsoid(columns, distance=distance, tolerance=tolerance, parts=parts)
    lower = sqrt(best.lower / total)
    if np.ptp(weights) == 0:
        d = len(weights) - 1
        lower = max(lower, GOLDEN**d / sqrt(total) - alpha * _dual_length() ** d)
    return OptimalError(sqrt(best.upper / total), lower, alpha)


def _orbit_columns(weights: Sequence[float]) -> tuple[Array, list[OrbitPart], float]:
    """A column of F for every weight of a record, its parts, and the sum of the squared weights."""
    w = np.asarray(weights, dtype=np.float64)
    d = len(w) - 1
    columns, parts = [], []
    for piece in _pieces(d):
        rows = np.flatnonzero(w[piece.sizes] > 0)
        if len(rows):
            own = np.zeros((len(rows), d + 1))
            own[:, piece.sizes] = np.sqrt(w[piece.sizes])[rows, None] * piece.queries[rows]
            columns.append(own * np.sqrt(piece.copies / _orbits(d)))
            parts.append(OrbitPart(len(rows), float(piece.copies)))
    return np.vstack(columns), parts, float(w @ _orbits(d))


# Shares of the degrees, and the worst data


@dataclass(frozen=True, eq=False)
class DegreeShares:
    """``phi_l`` by degree, u by weight of the records, and the squared error and bias they have."""

    phi: Array
    u: Array
    error: float
    bias: float  # squared


def _reconstructed(d: int, phi: Array, u: Array, tau: float) -> Iterator[tuple[_Piece, Array]]:
    """R on every part, for measured values times the root of their share; 0 beyond phi."""
    orbits = _orbits(d)
    for piece in _pieces(d):
        own = slice(piece.i, d - piece.i + 1)
        m = np.sqrt(2.0**d * phi[own] / orbits[own])[:, None] * piece.characters
        weighted = m * (u[own] / orbits[own])
        gram = weighted @ m.T + tau * np.eye(len(m))
        r = np.linalg.solve(gram, weighted @ piece.queries.T).T
        yield piece, np.asarray(r, dtype=np.float64)


def _measured(d: int, phi: Array, piece: _Piece) -> Array:
    """M on a part: characters times the roots of their shares."""
    return np.sqrt(2.0**d * phi[piece.sizes] / _orbits(d)[piece.sizes])[:, None] * piece.characters


def best_shares(weights: Array, noise: float, top: int | None = None) -> DegreeShares:
    """The shares of the degrees of least worst error, per record, and the u of the worst case.

    Args:
        weights: The squared weight of a query by its width, from 0 to d.
        noise: tau, the variance of the noise at unit sensitivity over the squared records.
        top: The greatest degree that is measured.
    """
    d = len(weights) - 1
    orbits = _orbits(d)
    total = float(weights @ orbits)
    u = np.full(d + 1, 1 / (d + 1))
    phi = np.where(np.arange(d + 1) <= (d if top is None else top), 1.0, 0.0)
    phi /= phi.sum()
    best = DegreeShares(phi, u, np.inf, 0.0)
    last = np.inf
    for step in range(LIMITS.degree_steps):
        bias, errors = np.zeros(d + 1), np.zeros(d + 1)
        for piece, r in _reconstructed(d, phi, u, noise):
            own = weights[piece.sizes]
            off = r @ _measured(d, phi, piece) - piece.queries
            bias[piece.sizes] += piece.copies / orbits[piece.sizes] * (own @ off**2)
            errors[piece.sizes] += piece.copies * noise * (own @ r**2)
        value = (float(bias.max()) + float(errors.sum())) / total
        if value < best.error:
            best = DegreeShares(phi, u, value, float(bias.max()) / total)
        if step % LIMITS.degree_rest == LIMITS.degree_rest - 1:
            if best.error > last * (1 - LIMITS.degree_gain):
                break
            last = best.error
        mean = float(u @ bias)
        if mean > 0:
            u = u * np.sqrt(bias / mean)
            u = u / u.sum()
        phi = np.sqrt(errors * phi)
        phi = np.where(phi < LIMITS.degree_minimum * phi.sum(), 0.0, phi)
        phi = phi / phi.sum()
    return best


def _exact_shares(weights: Array) -> Array:
    """The shares of least noise without bias: ``phi_l ~ C(d, l) sqrt(e_l)``.

    A query of width w has the coefficients ``2^-w`` at all characters within it.
    """
    d = len(weights) - 1
    errors = [
        sum(weights[w] * comb(d - level, w - level) * 4.0**-w for w in range(level, d + 1))
        for level in range(d + 1)
    ]
    phi = _orbits(d) * np.sqrt(errors)
    return np.asarray(phi / phi.sum(), dtype=np.float64)


def worst_widths(weights: Array, each: Array | None = None) -> Array:
    """How much every width counts in the worst case of the largest error; the sum is 1.

    Shares ``phi_l`` of all characters of a degree give a query of width w the variance ``4^-w sum_l
    C(w, l) C(d, l) / phi_l``. For weights Lambda on the widths the least sum subject to ``sum_l
    each_l phi_l <= 1`` is ``(sum_l sqrt(each_l A_l))^2``; the greatest over Lambda is the least
    largest error (the minimax theorem). With ``each = 1`` and all 2^d queries it is ``(4/3)^d``,
    the product of that of one attribute: ``Lambda_w ~ C(d, w) 2^(d-w)``.
    """
    d = len(weights) - 1
    if each is None and np.ptp(weights) == 0:
        return np.array([comb(d, w) * 2.0 ** (d - w) for w in range(d + 1)]) / 3.0**d
    asked_widths = np.flatnonzero(weights > 0)
    table = _width_errors(weights)[:, asked_widths]
    parts = np.sqrt(np.ones(d + 1) if each is None else each)
    is_read = (table.max(axis=1) > 0) & (parts > 0)
    table, parts = table[is_read], parts[is_read]

    def diagonal(mass: Array) -> Array:
        return np.asarray(mass * (table.T @ (parts / np.sqrt(table @ mass))))

    out = np.zeros(d + 1)
    out[asked_widths] = 1.0
    if len(asked_widths) > 1 and len(parts):
        best = certified_optimum(diagonal, len(asked_widths), LIMITS.width_tolerance)
        out[asked_widths] = best.v
    return np.asarray(out / out.sum(), dtype=np.float64)


def _width_errors(weights: Array) -> Array:
    """``C(d, l) w_w 4^-w C(w, l)``: what noise on degree l adds to the error of width w."""
    d = len(weights) - 1
    return np.array(
        [
            [comb(d, x) * comb(w, x) * 4.0**-w * weights[w] for w in range(d + 1)]
            for x in range(d + 1)
        ]
    )


def _minimax_shares(weights: Array) -> Array:
    """The shares of least largest error without bias."""
    roots = np.sqrt(_width_errors(weights) @ worst_widths(weights))
    return np.asarray(roots / roots.sum(), dtype=np.float64)


def least_largest(weights: Array) -> float:
    """A lower bound on the largest weighted variance of every unbiased strategy, at unit noise."""
    if np.ptp(weights) == 0:
        return float(weights[0]) * (4 / 3) ** (len(weights) - 1)
    return least_total(weights * worst_widths(weights) / _orbits(len(weights) - 1))


def least_total(weights: Array) -> float:
    """A lower bound on the weighted sum of the variances of every unbiased strategy."""
    d = len(weights) - 1
    scale = float(weights.max())
    least = optimal_error((weights / scale).tolist(), 0.0).lower
    return scale * least**2 * float(weights / scale @ _orbits(d))


def least_replaced(weights: Array, drops: bool) -> float:
    """A lower bound on the weighted sum of variances where records are replaced, at unit noise.

    With weights u on the cells and ``L = diag(u) - u u'`` every strategy of diameter 1 errs by at
    least ``(tr (F L F')^1/2)^2 / pairs``, ``pairs = (1 - sum u^2) / 2`` (``replace_one.py``). The u
    of add-remove neighbours is taken, by weight of the cell; ``u u'`` lies in part 0. A record in
    no cell is a cell more, of column 0.
    """
    d = len(weights) - 1
    v = _cell_weights(weights)
    orbits, best = _orbits(d), 0.0
    for outside in LIMITS.dropped_weights if drops else (0.0,):
        u = (1 - outside) * v
        pairs = (1 - outside**2 - float(orbits @ u**2)) / 2
        trace = 0.0
        for piece in _pieces(d):
            rows = np.sqrt(weights[piece.sizes])[:, None] * piece.queries
            form = (rows * u[piece.sizes]) @ rows.T
            if piece.i == 0:
                mean = rows @ (u * np.sqrt(orbits))
                form = form - np.outer(mean, mean)
            values = np.linalg.eigvalsh(form)
            positive = values[values > values[-1] * len(values) * EIGEN_ROUNDING]
            trace += piece.copies * float(np.sqrt(positive).sum())
        best = max(best, trace**2 / pairs)
    return best * (1 - SLACK)


def whole_bounds(workload: Workload, objective: Objective) -> tuple[float, float] | None:
    """Lower bounds of all 2^d conjunctions for both kinds of neighbours; None for other queries.

    For Gaussian noise, and so for Laplace noise: columns are no shorter in L1 than in L2.
    """
    family = symmetric_set(workload)
    if family is None or not family.is_whole:
        return None
    weights = family.weights
    if objective == "rmse":
        return least_total(weights), least_replaced(weights, drops=False)
    worst = weights * worst_widths(weights) / _orbits(len(weights) - 1)
    return least_largest(weights), least_replaced(worst, drops=False)


def _cell_weights(weights: Array) -> Array:
    """The weight of a cell by how many literals hold in it, of the best bound for added records.

    A product over the attributes where all conjunctions are asked, else found by the search of
    ``solve/nuclear.py`` on the d + 1 orbits. The sum over all cells is 1.
    """
    d = len(weights) - 1
    holds = (1 + 1 / sqrt(5)) / 2
    start = np.array([holds**s * (1 - holds) ** (d - s) for s in range(d + 1)])
    if np.ptp(weights) == 0:
        return start
    orbits = _orbits(d)
    rows = [np.sqrt(weights[p.sizes])[:, None] * p.queries for p in _pieces(d)]

    def diagonal(v: Array) -> Array:
        out = np.zeros(d + 1)
        for piece, own in zip(_pieces(d), rows, strict=True):
            wide = own * np.sqrt(v[piece.sizes])
            values, vectors = np.linalg.eigh(wide.T @ wide)
            part = vectors**2 @ np.sqrt(np.maximum(values, 0.0))
            out[piece.sizes] += piece.copies / orbits[piece.sizes] * part
        return out

    best = certified_optimum(diagonal, d + 1, LIMITS.width_tolerance, multiplicity=orbits).v
    return np.asarray(best / float(orbits @ best), dtype=np.float64)


# The strategy


@dataclass(frozen=True, eq=False)
class Characters(Term):
    """``sum_x chi_S(x) h(x)`` for all sets S of ``degree`` of the attributes, by their mask."""

    over: tuple[str, ...]
    degree: int

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes of the characters."""
        return self.over

    @property
    def rows(self) -> int:
        """The number of sets."""
        return comb(len(self.over), self.degree)

    def apply(self, table: Numbers) -> Numbers:
        """The Walsh-Hadamard transform at the sets; exact for integers."""
        return _transformed(widened(np.asarray(table).reshape(-1)))[self.places]

    def adjoint(self, y: Numbers) -> Array:
        """The transform is its own transpose."""
        whole = np.zeros(2 ** len(self.over))
        whole[self.places] = np.asarray(y, dtype=np.float64)
        return np.asarray(_transformed(whole), dtype=np.float64).reshape(self.shape)

    @cached_property
    def places(self) -> Integers:
        """The masks of the sets."""
        return np.flatnonzero(_sizes(len(self.over)) == self.degree)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:  # noqa: ARG002
        """The number of sets, at every cell: all coefficients are 1 or -1."""
        return [((), np.array(float(self.rows)))]

    def row_powers(self, p: int) -> Array:  # noqa: ARG002
        """The number of cells."""
        return np.full(self.rows, 2.0 ** len(self.over))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """-1 and 1; 1 for the total."""
        return np.full(self.rows, 1.0 if self.degree == 0 else -1.0), np.ones(self.rows)

    def squared_diameter(self) -> float:
        """``2 C(d, l) - 2 K_l(h)`` for cells that differ in h attributes, at most."""
        d = len(self.over)
        least = min(_krawtchouk(d, self.degree, h) for h in range(1, d + 1))
        return float(2 * self.rows - 2 * least)

    @property
    def fraction_bits(self) -> int:
        """0: all coefficients are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """1: the coefficients are signs."""
        return 1.0

    @property
    def is_nonnegative(self) -> bool:
        """Whether it is the total."""
        return self.degree == 0


def _transformed(values: Numbers) -> Numbers:
    """``sum_S v_S (-1)^|S and b|`` for every b, in the type of the values."""
    out, half = values, 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return out


def _above(values: Array) -> Array:
    """``sum_{x holding T} v_x`` for every T."""
    out, half = values.copy(), 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        pairs[:, 0] += pairs[:, 1]
        half *= 2
    return out


def _below(values: Array) -> Array:
    """``sum_{T within x} v_T`` for every x."""
    out, half = values.copy(), 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        pairs[:, 1] += pairs[:, 0]
        half *= 2
    return out


@dataclass(frozen=True, eq=False)
class ByDegree(GaussianStrategy):
    """Block b measures the characters of one degree.

    ``prior`` is u, by the number of literals that hold, and ``tau`` the noise that the ridge is
    made for; without a prior the answers are exact.

    Privacy: integers with Gaussian noise of the sensitivity ``sum_b share_b^2 C(d, l_b)``, which is
    the same for every record (docs/proofs/measuring.md); bias is post-processing.
    """

    _algorithm: ClassVar[str] = "degrees"

    family: SymmetricSet
    prior: Array | None = None
    tau: float = 0.0

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y`` of one term."""
        return self._every_answer(values)[self.family.masks[term]]

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every term, from one solution."""
        every = self._every_answer(values)
        return [every[masks] for masks in self.family.masks]

    def _every_answer(self, values: Sequence[Array]) -> Array:
        """``F U M' (M U M' + tau)^-1`` on all measured values, a number per conjunction."""
        y = np.zeros(2**self._d)
        for block, own in zip(self.blocks, values, strict=True):
            y[self._characters(block).places] = own
        y = y * self._signs
        if self.prior is None:
            return _above(np.asarray(_transformed(y), dtype=np.float64) * 2.0**-self._d)
        z = self._solved(y * self._roots) * self._roots
        return _above(np.asarray(_transformed(z), dtype=np.float64) * self._cells)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: the same operators from the other side."""
        whole = np.zeros(2**self._d)
        np.add.at(whole, self.family.masks[term], np.asarray(coefficients, dtype=np.float64))
        below = _below(whole)
        if self.prior is None:
            out = _transformed(below) * 2.0**-self._d
        else:
            weighted = np.asarray(_transformed(below * self._cells), dtype=np.float64)
            out = self._solved(weighted * self._roots) * self._roots
        out = np.asarray(out, dtype=np.float64) * self._signs
        return {b: out[self._characters(block).places] for b, block in enumerate(self.blocks)}

    def _solved(self, values: Array) -> Array:
        """``(M U M' + tau)^-1 v`` by conjugate gradients; 0 at degrees that are not measured.

        The matrix has one eigenvalue for every row of a part, fewer than ``(d / 2 + 1)^2``.
        """
        out = np.zeros_like(values)
        rest, norm = values.copy(), float(values @ values)
        along, first = rest.copy(), norm
        for _ in range(LIMITS.ridge_steps):
            if norm <= first * LIMITS.ridge_accuracy**2:
                break
            seen = np.asarray(_transformed(along * self._roots), dtype=np.float64) * self._cells
            image = np.asarray(_transformed(seen), dtype=np.float64) * self._roots
            image += self.tau * along
            step = norm / float(along @ image)
            out += step * along
            rest -= step * image
            before, norm = norm, float(rest @ rest)
            along = rest + norm / before * along
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """By the width of the conjunction."""
        return self._by_width(block_variances)[_sizes(self._d)[self.family.masks[term]]]

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum over the widths, without listing any query."""
        return float(self._by_width(block_variances) @ self.family.counts[term])

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest over the widths that are asked."""
        return float(self._by_width(block_variances)[self.family.counts[term] > 0].max())

    def maximum_error(self, term: int, block_variances: Sequence[float], records: int) -> float:
        """The greatest over the widths, with the greatest bias of each."""
        bias = np.zeros(self._d + 1) if self.prior is None else records * self._greatest
        worst = self._by_width(block_variances) + bias**2
        return float(worst[self.family.counts[term] > 0].max())

    def _by_width(self, block_variances: Sequence[float]) -> Array:
        return np.asarray(self._reading @ np.asarray(block_variances), dtype=np.float64)

    @cached_property
    def _reading(self) -> Array:
        """``|r|^2`` of a query by width, with respect to every block."""
        d, orbits = self._d, _orbits(self._d)
        out = np.zeros((d + 1, d + 1))
        for piece, r in self._parts:
            own = piece.sizes
            shares = self._phi[own] / orbits[own]
            out[own, own] += (piece.copies / orbits[own])[:, None] * r**2 * shares
        return out[:, [self._characters(b).degree for b in self.blocks]]

    @cached_property
    def _parts(self) -> list[tuple[_Piece, Array]]:
        """R on every part, for measured values times the root of their share."""
        if self.prior is not None:
            return list(_reconstructed(self._d, self._phi, self.prior, self.tau))
        out = []
        for piece in _pieces(self._d):
            shares = 2.0**self._d * self._phi[piece.sizes] / _orbits(self._d)[piece.sizes]
            inverse = np.divide(1.0, np.sqrt(shares), out=np.zeros_like(shares), where=shares > 0)
            out.append((piece, piece.queries @ piece.characters.T * inverse))
        return out

    @cached_property
    def _errors(self) -> list[tuple[_Piece, Array]]:
        """``E = R M - F`` on every part; the queries that are not asked are in it too."""
        return [
            (piece, r @ _measured(self._d, self._phi, piece) - piece.queries)
            for piece, r in self._parts
        ]

    def bias_bounds(self, term: int) -> Array:
        """``max_x |E(T, x)|`` by the width of T, rounded up; 0 where the answers are exact."""
        widths = _sizes(self._d)[self.family.masks[term]]
        return np.zeros(len(widths)) if self.prior is None else self._greatest[widths]

    @cached_property
    def _greatest(self) -> Array:
        whole = np.abs(_at_points(self._d, [e for _, e in self._errors])).max(axis=(1, 2))
        return np.asarray(whole * (1 + SLACK) + SLACK, dtype=np.float64)

    def squared_bias(self, term: int | None = None) -> float:
        """``max_x sum_q E_qx^2``, for terms of whole widths exactly."""
        if self.prior is None:
            return 0.0
        d, orbits = self._d, _orbits(self._d)
        sums = np.zeros((d + 1, d + 1))  # of all queries of a width, at a record of a weight
        for piece, off in self._errors:
            sums[piece.sizes, piece.sizes] += off**2 * piece.copies / orbits[piece.sizes]
        counts = np.sum(self.family.counts, axis=0) if term is None else self.family.counts[term]
        is_whole = (counts == orbits) & (counts > 0)
        whole = float((is_whole.astype(np.float64) @ sums).max())
        others = float((np.where(is_whole, 0.0, counts) * self._greatest**2).sum())
        return (whole + others) * (1 + SLACK) + SLACK * len(sums)

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:  # noqa: ARG002
        """The number of characters times their scale: all coefficients are 1 or -1."""
        power = sum(s * b.term.rows for s, b in zip(scales, self.blocks, strict=True))
        return SensitivityBound(float(power) * ROUND_UP, is_exact=True)

    def _of_replaced(self, norm: Norm, scales: Sequence[float], may_drop_records: bool) -> float:
        """Exact: cells that differ in h attributes differ in ``(C(d, l) - K_l(h)) / 2`` values."""
        apart = self._moves(norm, may_drop_records).distances
        return float((np.asarray(scales, dtype=np.float64) @ apart).max()) * ROUND_UP

    def _moves(self, norm: Norm, may_drop_records: bool) -> BlockMoves:
        """One move for every number of attributes in which two cells differ: each value by 2."""
        d, count = self._d, len(self.blocks)
        degrees = [self._characters(b).degree for b in self.blocks]
        each = 2 ** (norm - 1)  # |2|^p over the 2 of the number of values that differ
        apart = [
            [each * (comb(d, level) - _krawtchouk(d, level, h)) for h in range(1, d + 1)]
            + ([comb(d, level)] if may_drop_records else [])
            for level in degrees
        ]
        ones = np.ones(count)
        return BlockMoves(np.array(apart, dtype=np.float64), np.arange(count), ones, ones)

    def minimax_errors(self, each: Array) -> tuple[Array, Array]:
        """``block_errors`` in the worst case of the largest error, and the weights of the queries.

        ``each`` is by how much moves move the blocks on average, squared.
        """
        degrees = [self._characters(b).degree for b in self.blocks]
        moved = np.zeros(self._d + 1)
        moved[degrees] = each / _orbits(self._d)[degrees]
        weights, orbits = self.family.weights, _orbits(self._d)
        mass = worst_widths(weights, moved)
        return (_width_errors(weights) @ mass / orbits)[degrees], weights * mass / orbits

    def check_release(self) -> None:
        """Refuse sets whose characters are too many to be listed."""
        self.family.check_listed()

    def describe(self) -> list[str]:
        """What is measured of every degree, and what the bias comes to."""
        out = [
            f"all {b.term.rows:,} characters of degree {self._characters(b).degree}, share "
            f"{b.share:.4g} each"
            for b in self.blocks
        ]
        if self.prior is None:
            return out
        worst = sqrt(self.squared_bias() / self.workload.queries)
        line = f"biased by at most {worst:.4g} per record, root mean square over the queries"
        return [*out, line]

    @property
    def _d(self) -> int:
        return len(self.family.names)

    @staticmethod
    def _characters(block: Block) -> Characters:
        if not isinstance(block.term, Characters):
            raise TypeError("a block of ByDegree measures characters")
        return block.term

    @cached_property
    def _phi(self) -> Array:
        out = np.zeros(self._d + 1)
        for block in self.blocks:
            out[self._characters(block).degree] = block.share**2 * block.term.rows
        return out

    @cached_property
    def _roots(self) -> Array:
        """The root of the share of every character."""
        return np.asarray(np.sqrt(self._phi / _orbits(self._d))[_sizes(self._d)])

    @cached_property
    def _cells(self) -> Array:
        """u of every cell."""
        prior = np.zeros(self._d + 1) if self.prior is None else self.prior
        return np.asarray((prior / _orbits(self._d))[_sizes(self._d)])

    @cached_property
    def _signs(self) -> Array:
        """-1 for characters of an odd number of attributes whose literal holds in cell 0."""
        out: Array = np.ones(1)
        for code in reversed(self.family.codes):
            out = np.concatenate([out, out if code else -out])
        return out


def by_degrees(
    workload: Workload,
    family: SymmetricSet,
    records: int | None = None,
    loss: float = 1.0,
    objective: Objective = "rmse",
) -> ByDegree:
    """All conjunctions of some widths from characters, degree by degree.

    Args:
        workload: The conjunctions.
        family: The same as a symmetric set.
        records: At most so many records are in the table, for a bias that pays; None for none.
        loss: The mu of the Gaussian noise.
        objective: ``"rmse"`` or ``"max"``.

    Returns:
        The strategy; without bias its ``bound`` is a lower bound on all strategies.
    """
    weights = family.weights
    if records is not None:
        tau = (loss * records) ** -2.0
        if objective == "max":
            return _least_largest_biased(workload, family, tau, records)
        best = best_shares(weights, tau)
        return _by_shares(workload, family, best.phi, best.u, tau, records, objective)
    if objective == "max":
        exact = _by_shares(workload, family, _minimax_shares(weights), None, 0.0, None, objective)
        return replace(exact, bound=least_largest(weights))
    exact = _by_shares(workload, family, _exact_shares(weights), None, 0.0, None, objective)
    return replace(exact, bound=least_variance(family))


def _by_shares(
    workload: Workload,
    family: SymmetricSet,
    phi: Array,
    prior: Array | None,
    tau: float,
    records: int | None,
    objective: Objective,
) -> ByDegree:
    d = len(family.names)
    blocks = []
    for degree in np.flatnonzero(phi).tolist():
        title = f"characters of {degree} of {d} attributes"
        term = Characters(workload.domain, title, 1.0, family.names, degree)
        blocks.append(Block(term, sqrt(float(phi[degree]) / term.rows)))
    return ByDegree(
        "factorization" if records is None else "approximate",
        "gaussian",
        workload,
        tuple(blocks),
        family,
        prior,
        tau,
        records=records,
        objective=objective,
    )


def _least_largest_biased(
    workload: Workload, family: SymmetricSet, tau: float, records: int
) -> ByDegree:
    """The strategy of least largest error, bias and noise, found by weights on the widths.

    Widths that err more than others count more in the next round; the best of all rounds.
    """
    weights, orbits = family.weights, _orbits(len(family.names))
    mass = worst_widths(weights)
    best: ByDegree | None = None
    least = np.inf
    for _ in range(LIMITS.width_rounds):
        shares = best_shares(weights * mass / orbits, tau)
        strategy = _by_shares(workload, family, shares.phi, shares.u, tau, records, "max")
        noise = strategy._by_width([share**-2 for share in strategy.shares])
        errors = weights * (strategy._greatest**2 + tau * noise)
        if float(errors.max()) < least:
            best, least = strategy, float(errors.max())
        mass = mass * np.sqrt(errors / errors.max())
        mass = mass / mass.sum()
    if best is None:
        raise PlanError("no shares of the degrees have a finite error; give more budget")
    return best


def least_variance(family: SymmetricSet) -> float:
    """A lower bound on the weighted error of every unbiased strategy, at unit noise."""
    return least_total(family.weights)
