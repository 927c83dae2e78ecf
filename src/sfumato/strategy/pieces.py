# SPDX-License-Identifier: Apache-2.0
"""Unions of products over many attributes, in pieces: one per set of attributes.

Every attribute is split into its total and a rest S (``splits.py``). The piece of a set A of
attributes measures the product of the rests of A, totalled over all other attributes. A query of
a term B is the sum over A within B of ``prod_{i in A} r_i S_i  prod_{i in B - A} alpha_i``, so with
``c_A`` the squared coefficients of all queries on piece A and ``cost_A`` its squared column norm,

    error = sum_A c_A / theta_A   subject to   sum_A theta_A cost_A = 1,

which is least, ``(sum_A sqrt(c_A cost_A))^2``, at ``theta_A ~ sqrt(c_A / cost_A)``. For marginals
this is the optimal residual split, for one product the product of the optima; in between it is
no optimum but needs neither the domain nor its classes. Pieces are keyed by attribute.

``pieces`` is for the mean error and ``minimax_pieces`` for the largest. ``pinched_bound``,
``sum_of_bounds`` and ``query_set_bound`` are lower bounds on the error of every strategy, from one
attribute at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, product
from math import pi, prod, sqrt
from typing import ClassVar

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, must_stop, spend
from sfumato.solve.lattice import Lattice, lattice
from sfumato.solve.minimax_orbits import Reweighted
from sfumato.solve.nuclear import EIGEN_ROUNDING, certified_optimum
from sfumato.solve.tridiagonal import inverse_gram, root_diagonal
from sfumato.strategy.base import Block, Norm, SumOfProducts
from sfumato.strategy.splits import Split, union_of_splits
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet, Windows
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "FactorMinimax",
    "Pieces",
    "minimax_pieces",
    "pieces",
    "pinched_bound",
    "query_set_bound",
    "sum_of_bounds",
    "windows_bound",
]


Subset = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pieces(SumOfProducts):
    """One block per set of attributes, and how every attribute is split."""

    _algorithm: ClassVar[str] = "pieces"

    splits: Mapping[str, Split]
    subsets: tuple[Subset, ...]
    _read: dict[tuple[str, str | int], tuple[Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )
    _summed: dict[tuple[str, str | int], tuple[float, float]] = field(
        default_factory=dict, init=False, repr=False
    )
    _edge: dict[tuple[str, str | int], tuple[Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def sums_cells(self, term: int) -> bool:  # noqa: ARG002
        """The pieces together have one estimate of the cells."""
        return True

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the pieces within the term."""
        factors = self._factors(term)
        out = np.zeros([q.rows for q in factors.values()])
        for b, inside in self._within(factors):
            shape = [self.splits[n].measured.rows for n in inside]
            part = values[b].reshape(shape)
            for axis, name in enumerate(inside):
                rest = self.splits[name].rest(factors[name], np.moveaxis(part, axis, 0))
                part = np.moveaxis(rest, 0, axis)
            out = out + self._with_totals(part, inside, factors, power=1)
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: deviations along the attributes of a piece, totals along the others."""
        factors = self._factors(term)
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([q.rows for q in factors.values()])
        by_block = {}
        for b, inside in self._within(factors):
            part = table
            for axis, (name, queries) in reversed(list(enumerate(factors.items()))):
                moved = np.moveaxis(part, axis, 0)
                if name in inside:
                    rest = self.splits[name].rest_adjoint(queries, moved)
                    part = np.moveaxis(rest, 0, axis)
                else:
                    part = np.tensordot(self._coefficients(name, queries)[0], moved, axes=1)
            by_block[b] = np.asarray(part, dtype=np.float64).reshape(-1)
        return by_block

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """Products of ``r r'`` and ``alpha alpha'``, summed over the pieces."""
        factors = self._factors(term)
        shape = [q.rows for q in factors.values()]
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), shape) if shape else ()
        kernels: dict[str, tuple[Array, Array]] = {}
        for (name, factor), rows in zip(factors.items(), places, strict=True):
            alpha = self._coefficients(name, factor)[0][rows]
            listed, which = np.unique(rows, return_inverse=True)
            units = (np.arange(factor.rows)[:, None] == listed[None, :]).astype(np.float64)
            read = self.splits[name].rest_adjoint(factor, units)[:, which.reshape(-1)]
            kernels[name] = np.outer(alpha, alpha), read.T @ read
        out = np.zeros((len(queries), len(queries)))
        for b, inside in self._within(factors):
            part = np.full_like(out, block_variances[b])
            for name, (totals, rests) in kernels.items():
                part *= rests if name in inside else totals
            out += part
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Products of ``|r|^2`` and ``alpha^2``, summed over the pieces."""
        factors = self._factors(term)
        out = np.zeros([q.rows for q in factors.values()])
        for b, inside in self._within(factors):
            part = np.ones(())
            for name in inside:
                part = np.multiply.outer(part, self._coefficients(name, factors[name])[1])
            out = out + block_variances[b] * self._with_totals(part, inside, factors, power=2)
        return out.reshape(-1)

    def _unit_totals(self, term: int) -> Iterator[tuple[int, float]]:
        """What unit noise on each block adds to the total variance of a term."""
        factors = self._factors(term)
        for b, inside in self._within(factors):
            sums = (self._sums(n, q)[1 if n in inside else 0] for n, q in factors.items())
            yield b, prod(sums)

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``; for very many queries an upper bound on it.

        A variance grows with ``alpha^2`` and ``|r|^2`` of every attribute, linearly in each pair,
        so the greatest is among queries on the frontier of these pairs.
        """
        factors = self._factors(term)
        pairs = [self._frontier(name, queries) for name, queries in factors.items()]
        if prod(len(alpha) for alpha, _ in pairs) > LIMITS.variances_listed:
            pairs = [(a.max(keepdims=True), r.max(keepdims=True)) for a, r in pairs]
        out = np.zeros([len(alpha) for alpha, _ in pairs])
        for b, inside in self._within(factors):
            part = np.full((), block_variances[b])
            for name, (alpha, rest) in zip(factors, pairs, strict=True):
                part = np.multiply.outer(part, rest if name in inside else alpha)
            out += part
        return float(out.max())

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """Sums of products of the greatest columns: exact where columns are equal, never less."""
        greatest = {n: float(s.measured.column_powers(norm).max()) for n, s in self.splits.items()}
        pairs = zip(scales, self.subsets, strict=True)
        power = sum(scale * prod(greatest[n] for n in inside) for scale, inside in pairs)
        return SensitivityBound(power * ROUND_UP, is_exact=False)

    @cached_property
    def _at(self) -> dict[Subset, int]:
        return {inside: b for b, inside in enumerate(self.subsets)}

    def _within(self, factors: Mapping[str, QuerySet]) -> list[tuple[int, Subset]]:
        at = self._at
        return [(at[inside], inside) for inside in _subsets(tuple(factors)) if inside in at]

    def _coefficients(self, name: str, queries: QuerySet) -> tuple[Array, Array]:
        """``alpha`` and ``|r|^2`` of every query."""
        key = (name, queries.key)
        if key not in self._read:
            split = self.splits[name]
            self._read[key] = split.totals(queries), split.rest_squares(queries)
        return self._read[key]

    def _frontier(self, name: str, queries: QuerySet) -> tuple[Array, Array]:
        """``alpha^2`` and ``|r|^2`` of the queries that no other exceeds in both."""
        key = (name, queries.key)
        if key not in self._edge:
            alpha, rest = self._coefficients(name, queries)
            self._edge[key] = _upper_right(alpha**2, rest)
        return self._edge[key]

    def _sums(self, name: str, queries: QuerySet) -> tuple[float, float]:
        """``sum alpha^2`` and ``sum |r|^2``, r with respect to the integers."""
        key = (name, queries.key)
        if key not in self._summed:
            split = self.splits[name]
            if queries.is_identity and split.is_centred:
                n = queries.size
                self._summed[key] = 1 / n, (n - 1) / n**2
            else:
                totals, rests = split.squares(queries.gram())
                self._summed[key] = totals, rests * split.unit**2
        return self._summed[key]

    def _with_totals(
        self, part: Array, inside: Subset, factors: Mapping[str, QuerySet], power: int
    ) -> Array:
        """The part with its axes in the order of the term, times the totals of the others."""
        rests = dict(zip(inside, part.shape, strict=True))
        outside = {n: q for n, q in factors.items() if n not in rests}
        totals = {n: self._coefficients(n, q)[0] ** power for n, q in outside.items()}
        return self._in_order(part, rests, factors, totals)


def pieces(workload: Workload) -> Pieces | None:
    """The best pieces for a union of products; None when a term is no product."""
    term_factors: list[Mapping[str, QuerySet]] = []
    shared: dict[tuple[str, str | int], QuerySet] = {}  # equal query sets become one object
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            return None
        factors = term.factors
        term_factors.append({n: shared.setdefault((n, q.key), q) for n, q in factors})
    count = sum(2 ** len(f) for f in term_factors)
    if count > LIMITS.pieces_maximum:
        raise TooLarge(f"up to {count:,} pieces, more than {LIMITS.pieces_maximum:,}")
    union = union_of_splits(workload, term_factors)
    splits = union.splits
    used = np.flatnonzero(union.c > 0).tolist()
    weight = {union.subsets[i]: sqrt(union.c[i] / union.cost[i]) for i in used}
    total = sum(sqrt(union.c[i] * union.cost[i]) for i in used)
    blocks = []
    for inside, w in weight.items():
        factors = tuple((n, splits[n].measured) for n in inside)
        title = " x ".join(f"~{n}" for n in inside) or "total"
        unit = prod(splits[n].unit for n in inside)
        measured = Product(workload.domain, title, 1.0, factors)
        blocks.append(Block(measured, sqrt(w / total) * unit))
    return Pieces(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        splits,
        tuple(weight),
        bound=max(pinched_bound(workload, union.cells), sum_of_bounds(workload)),
    )


def _subsets(names: Subset) -> chain[Subset]:
    return chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))


def _upper_right(x: Array, y: Array) -> tuple[Array, Array]:
    """The corners of the hull of points where a positive combination of x and y is greatest."""
    order = np.lexsort((y, x))[::-1]
    x, y = x[order], y[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(y)[:-1]])
    corners: list[tuple[float, float]] = []
    for point in zip(x[y > before].tolist(), y[y > before].tolist(), strict=True):
        while len(corners) > 1 and _is_below(corners[-1], corners[-2], point):
            corners.pop()
        corners.append(point)
    hull = np.array(corners)
    return hull[:, 0], hull[:, 1]


def _is_below(
    middle: tuple[float, float], right: tuple[float, float], left: tuple[float, float]
) -> bool:
    """Whether a point lies on or below the line between two others, right and left of it."""
    rise = (middle[1] - right[1]) * (right[0] - left[0])
    return rise <= (left[1] - right[1]) * (right[0] - middle[0])


# Least largest error, in pieces


@dataclass(frozen=True, slots=True)
class FactorMinimax:
    """Weights on the queries of one attribute, of sum 1, and the bound on their largest error."""

    weights: Array
    bound: float


def minimax_pieces(workload: Workload, solve: Callable[[QuerySet], FactorMinimax]) -> Pieces:
    """Pieces whose largest error is small; ``solve`` weights the queries of one attribute.

    ``splits.py`` splits every attribute into its total and a rest. Given the splits, the variance
    of a query of term B is ``sum_{A within B} c_qA / theta_A``, with ``c_qA`` the product over
    attributes of ``|r|^2`` (in A) or ``alpha^2`` (in B, not in A), and the noise is shared by

        min over theta of max_q w_B^2 sum_A c_qA / theta_A   subject to   sum_A theta_A cost_A = 1.

    It is convex; by the minimax theorem it equals the maximum over weights lambda on queries, of
    sum 1, of ``(sum_A sqrt(cost_A sum_q lambda_q w_B^2 c_qA))^2``, which is concave. A variance is
    linear in every pair ``(alpha^2, |r|^2)`` alone, so only queries on the upper right hull of
    these pairs can be the worst, and of a smooth hull a few points are enough to a part in a
    thousand (the error that a strategy states is that of all its queries).

    The splits are those of the mean error with the queries of every attribute weighted for the
    largest error of that attribute alone, and the terms by what the program gave them. The largest
    error is no less than any weighted mean, so ``pinched_bound`` on that mean is
    one on it; so is the bound of every term alone.
    """
    solved: dict[_Key, FactorMinimax | None] = {}
    bound = 0.0
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            raise PlanError(f"the group {group.name!r} is not a product of query sets")
        for _, queries in term.factors:
            is_disjoint = queries.is_disjoint
            if _key(queries) not in solved:
                solved[_key(queries)] = None if is_disjoint else solve(queries)
        each = [solved[_key(q)] for _, q in term.factors]
        bound = max(bound, term.weight**2 * prod(f.bound for f in each if f is not None))
    emphasis = np.full(len(workload.terms), 1 / len(workload.terms))
    best: Pieces | None = None
    for _ in range(LIMITS.minimax_pieces_rounds):
        guess = pieces(_reweighted(workload, solved, emphasis))
        if guess is None:
            raise PlanError("a group is not a product of query sets")
        # The largest error is at least the mean for any weights of sum 1.
        bound = max(bound, (guess.bound or 0.0) / float(emphasis.sum()))
        candidate, emphasis = _shared(workload, guess)
        if best is None or candidate.weighted_error("max") < best.weighted_error("max"):
            best = candidate
        if must_stop():
            break
    if best is None:
        raise PlanError("no splits were tried")
    return replace(best, bound=bound)


_Key = tuple[str | int, int]


def _key(queries: QuerySet) -> _Key:
    """A key that is equal for equal query sets, where the kind says all."""
    return queries.key, queries.size


def _factors(term: Term) -> dict[str, QuerySet]:
    product_term = term.as_product()
    return {} if product_term is None else dict(product_term.factors)


def _reweighted(
    workload: Workload, solved: Mapping[_Key, FactorMinimax | None], emphasis: Array
) -> Workload:
    """The queries with weights whose sum over a term is ``emphasis`` times its own weight."""
    made: dict[_Key, QuerySet] = {}
    terms = []
    for term, weight in zip(workload.terms, emphasis, strict=True):
        factors = []
        for name, queries in _factors(term).items():
            largest = solved[_key(queries)]
            if largest is not None and _key(queries) not in made:
                made[_key(queries)] = Reweighted(queries.size, queries, largest.weights)
            factors.append((name, made.get(_key(queries), queries)))
        # Plain factors count every query once.
        unweighted_rows = prod(q.rows for _, q in factors if q.is_exact)
        scale = term.weight * np.sqrt(weight / unweighted_rows)
        terms.append(Product(term.domain, term.name, float(scale), tuple(factors)))
    return Workload(workload.domain, tuple(terms))


@dataclass(frozen=True, eq=False)
class _Program:
    """Entry i says that query ``query[i]`` has coefficient ``value[i]`` on piece ``piece[i]``."""

    value: Array
    query: Integers
    piece: Integers
    cost: Array
    term: Integers  # of every query

    def squares(self, weights: Array) -> Array:
        """``sum_q lambda_q c_qA`` of every piece."""
        sums = np.bincount(self.piece, weights[self.query] * self.value, len(self.cost))
        return np.asarray(sums, dtype=np.float64)

    def errors(self, theta: Array) -> Array:
        """``sum_A c_qA / theta_A`` of every query."""
        sums = np.bincount(self.query, self.value / theta[self.piece], len(self.term))
        return np.asarray(sums, dtype=np.float64)

    def solve(self) -> tuple[Array, Array]:
        """``theta`` with ``sum theta cost = 1``, and the weights that prove it best."""
        from scipy.optimize import minimize

        count = len(self.term)
        best: tuple[float, Array, Array] | None = None
        lower = 0.0

        def negative_log(z: Array) -> tuple[float, Array]:
            nonlocal best, lower
            total = float(z @ z)
            weights = (z**2 / total + LIMITS.query_weight_spread / count) / (
                1 + LIMITS.query_weight_spread
            )
            roots = np.sqrt(self.squares(weights) * self.cost)
            value = float(roots.sum())
            theta = roots / self.cost / value
            errors = self.errors(theta)
            lower = max(lower, value**2)
            if best is None or errors.max() < best[0]:
                best = (float(errors.max()), theta, weights)
            if best[0] <= lower * (1 + LIMITS.minimax_pieces_tolerance) ** 2:
                raise StopIteration
            # d value / d lambda_q = errors_q / (2 value)
            slope = errors / (2 * value**2)
            mean = float(slope @ z**2) / total
            return -np.log(value), -2 * z / total * (slope - mean)

        start = np.full(count, count**-0.5)
        options = {"maxiter": LIMITS.minimax_pieces_steps, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
        with suppress(StopIteration):
            minimize(negative_log, start, jac=True, method="L-BFGS-B", options=options)
        if best is None:
            raise PlanError("the shares of the noise are not finite; please report this")
        return best[1], best[2]


def _shared(workload: Workload, guess: Pieces) -> tuple[Pieces, Array]:
    """The splits of ``guess`` with the noise shared for the largest error, and weights of terms."""
    splits = guess.splits
    program, subsets = _program(workload, splits)
    theta, weights = program.solve()
    blocks = []
    for inside, share in zip(subsets, theta, strict=True):
        measured = Product(
            workload.domain,
            " x ".join(f"~{n}" for n in inside) or "total",
            1.0,
            tuple((n, splits[n].measured) for n in inside),
        )
        unit = prod(splits[n].unit for n in inside)
        blocks.append(Block(measured, float(np.sqrt(share)) * unit))
    strategy = Pieces(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        splits,
        tuple(subsets),
        objective="max",
    )
    emphasis = np.bincount(program.term, weights, len(workload.terms))
    return strategy, np.asarray(np.maximum(emphasis, LIMITS.term_weight_minimum), dtype=np.float64)


def _program(workload: Workload, splits: Mapping[str, Split]) -> tuple[_Program, list[Subset]]:
    at: dict[Subset, int] = {}
    hulls: dict[tuple[str, int], Array] = {}
    value: list[Array] = []
    query: list[Integers] = []
    piece: list[Integers] = []
    term_of: list[int] = []
    held = 0
    for t, term in enumerate(workload.terms):
        factors = _factors(term)
        names = tuple(factors)
        for name, queries in factors.items():
            if (name, id(queries)) not in hulls:
                hulls[name, id(queries)] = _hull(*_pairs(splits[name], queries))
        pairs = [hulls[name, id(queries)] for name, queries in factors.items()]
        insides = list(chain.from_iterable(combinations(names, k) for k in range(len(names) + 1)))
        numbers = [at.setdefault(inside, len(at)) for inside in insides]
        for chosen in product(*pairs):
            held += len(insides)
            if held > LIMITS.worst_query_entries:
                raise TooLarge(
                    f"more than {LIMITS.worst_query_entries:,} pairs of a worst query and a piece"
                )
            coefficients = np.ones(1)
            for pair in chosen:
                coefficients = np.concatenate([coefficients * pair[0], coefficients * pair[1]])
            order = _subset_order(names)
            value.append(term.weight**2 * coefficients[order])
            query.append(np.full(len(insides), len(term_of)))
            piece.append(np.array(numbers))
            term_of.append(t)
    cost = np.array([prod(splits[n].cost for n in inside) for inside in at])
    arrays = np.concatenate(value), np.concatenate(query), np.concatenate(piece)
    used = np.zeros(len(at), dtype=bool)
    used[arrays[2][arrays[0] > 0]] = True
    is_used = used[arrays[2]] & (arrays[0] > 0)
    renumbered = np.cumsum(used) - 1
    program = _Program(
        arrays[0][is_used],
        arrays[1][is_used],
        renumbered[arrays[2][is_used]],
        cost[used],
        np.array(term_of),
    )
    return program, [inside for inside, keep in zip(at, used, strict=True) if keep]


def _subset_order(names: Subset) -> list[int]:
    """The places of the subsets, by size, among products written as binary numbers."""
    insides = chain.from_iterable(combinations(range(len(names)), k) for k in range(len(names) + 1))
    return [sum(2**i for i in inside) for inside in insides]


def _pairs(split: Split, queries: QuerySet) -> tuple[Array, Array]:
    """``alpha^2`` and ``|r|^2`` of every query, r in units of S."""
    if queries.is_identity and split.is_centred:
        n = queries.size
        return np.full(1, n**-2.0), np.full(1, 1 - 1 / n)
    return split.totals(queries) ** 2, split.rest_squares(queries) / split.unit**2


def _hull(x: Array, y: Array) -> Array:
    """The upper right hull of points in the plane: all that a positive combination can pick."""
    order = np.lexsort((y, x))[::-1]
    corners: list[tuple[float, float]] = []
    for px, py in zip(x[order].tolist(), y[order].tolist(), strict=True):
        if corners and py <= corners[-1][1]:
            continue
        while len(corners) > 1 and _height(corners[-2], (px, py), np.array([corners[-1]]))[0] <= 1:
            corners.pop()
        corners.append((px, py))
    return _thinned(np.array(corners))


def _thinned(hull: Array) -> Array:
    """The points without which a combination would be too small by ``LIMITS.hull_coarseness``."""
    if len(hull) <= 2:
        return hull
    above = _height(hull[0], hull[-1], hull)
    worst = int(above.argmax())
    if above[worst] <= 1 + LIMITS.hull_coarseness or worst in (0, len(hull) - 1):
        return hull[[0, -1]]
    return np.concatenate([_thinned(hull[: worst + 1])[:-1], _thinned(hull[worst:])])


def _height(a: Sequence[float] | Array, b: Sequence[float] | Array, points: Array) -> Array:
    """How far points are beyond the line through a and b: 1 on it, seen from the origin."""
    normal = np.array([b[1] - a[1], a[0] - b[0]])  # positive: b is left of a and above it
    return np.asarray(points @ normal / float(normal @ np.asarray(a)), dtype=np.float64)


# Lower bound for a union, attribute by attribute


def pinched_bound(workload: Workload, cells: Mapping[str, Array] | None = None) -> float:
    """A lower bound on the weighted squared error at unit noise; 0 where it does not apply.

    ``cells`` are cell weights for attributes, such as those of a good strategy; without them some
    are tried.

    With cell weights ``v = (x) v_i`` of sum 1 and ``D = diag(v)`` the bound of ``solve/nuclear.py``
    is the square of the nuclear norm of ``F D^1/2``, which is the greatest ``tr(W'F D^1/2)`` over
    contractions W. So every contraction gives a lower bound. Take these, with ``s_i = sqrt(v_i)``,
    ``P_i = I - s_i s_i'`` and, for every term t and attribute i, an isometry ``W_ti`` (of F_ti with
    zero rows added):

        W_t = sum_{A within t} c_tA (x)_{i in A} W_ti P_i (x)_{i in t - A} W_ti s_i s_i' (x) s_i'

    Since ``W_ti'W_ti = I`` and ``P_i s_i = 0``, ``sum_t W_t'W_t = sum_A (sum_t c_tA^2) (x) P_i (x)
    s_i s_i'``: W is a contraction if ``sum_t c_tA^2 <= 1`` for every A. The best such c
    (Cauchy-Schwarz) give

        sum_A sqrt( sum_{t holding A} w_t^2 prod_{i in A} b_ti^2 prod_{i in t - A} a_ti^2 ),
        a_ti = s_i' W_ti' F_ti D_i^1/2 s_i,      b_ti = tr(P_i W_ti' F_ti D_i^1/2),

    for any v_i and any W_ti. It is the optimum for marginals and for one product. With the polar
    factor of ``F_ti D_i^1/2 T``, ``T = rho s_i s_i' + P_i``, and ``H = (T D_i^1/2 F_ti'F_ti D_i^1/2
    T)^1/2``: ``a_ti = s_i'H s_i / rho`` and ``b_ti = tr H - s_i'H s_i``, the best for rho the ratio
    of the derivatives of the sum by a_ti and b_ti.
    """
    try:
        problem = _problem(workload, cells or {})
    except TooLarge:
        return 0.0
    if problem is None:
        return 0.0
    for _ in range(LIMITS.pinched_rounds):
        for attribute in problem.searched:
            problem.improve(attribute)
    return problem.root() ** 2


@dataclass(frozen=True, eq=False)
class _AttributeGrams:
    """The query sets of one attribute, by number, and the cell weights that are tried for it."""

    grams: dict[int, Array]
    options: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class _UnionBound:
    """``a`` and ``b`` of every query set (by number), and where each term uses which."""

    subsets: Lattice
    weights: Array
    used: tuple[Integers, ...]
    a: Array
    b: Array
    ratio: Array
    axes: dict[int, _AttributeGrams]

    @property
    def searched(self) -> list[int]:
        """Attributes whose cells are not all alike."""
        return list(self.axes)

    def root(self) -> float:
        """The sum over A of the square roots: the bound is its square."""
        pairs = self.subsets.of_pairs(
            [self.b[u] for u in self.used], [self.a[u] for u in self.used]
        )
        squares = self.weights[self.subsets.term] * pairs**2
        summed = np.bincount(self.subsets.piece, squares, self.subsets.pieces)
        return float(np.sqrt(summed).sum())

    def improve(self, attribute: int) -> None:
        """The best of the tried cell weights, each with the best ratio of a and b."""
        axis = self.axes[attribute]
        best, state = -1.0, None
        for v in axis.options:
            self._set(axis, v)
            for number in axis.grams:
                self.ratio[number] = self._best_ratio(number)
            self._set(axis, v)
            root = self.root()
            if root > best:
                best, state = root, (self.a.copy(), self.b.copy(), self.ratio.copy())
        if state is not None:
            self.a[:], self.b[:], self.ratio[:] = state

    def _set(self, axis: _AttributeGrams, v: Array) -> None:
        for number, gram in axis.grams.items():
            self.a[number], self.b[number] = _parts(gram, v, float(self.ratio[number]))

    def _best_ratio(self, number: int) -> float:
        """The derivative by a over the one by b, within ``LIMITS.pinched_ratios``."""
        now, step = self.root(), LIMITS.pinched_step * float(self.a[number] + self.b[number])
        gains = []
        for values in (self.a, self.b):
            before = float(values[number])
            values[number] = before + step
            gains.append(self.root() - now)
            values[number] = before
        if not gains[1] > 0:
            return LIMITS.pinched_ratios[1] if gains[0] > 0 else 1.0
        return min(max(gains[0] / gains[1], LIMITS.pinched_ratios[0]), LIMITS.pinched_ratios[1])


def _parts(gram: Array, v: Array, rho: float) -> tuple[float, float]:
    """a and b of one query set at cell weights v of sum 1."""
    s = np.sqrt(v)
    k = gram * np.outer(s, s)
    towards = np.eye(len(s)) + (rho - 1) * np.outer(s, s)
    values, vectors = np.linalg.eigh(towards @ k @ towards)
    # What may be a rounded zero counts as zero: the bound must not be too great.
    roots = np.sqrt(np.where(values > values[-1] * len(values) * EIGEN_ROUNDING, values, 0.0))
    along = float(((s @ vectors) ** 2 * roots).sum())
    return along / rho, float(roots.sum()) - along


def _problem(workload: Workload, cells: Mapping[str, Array]) -> _UnionBound | None:
    place = {name: i for i, name in enumerate(workload.domain.names)}
    numbers: dict[tuple[int, str | int], int] = {}
    sets_along: dict[int, dict[int, QuerySet]] = {}
    sets: list[tuple[int, ...]] = []
    symbols: list[tuple[int, ...]] = []
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            return None
        factors = [(place[n], q) for n, q in term.factors if not q.is_total]
        for i, queries in factors:
            key = (i, queries.key)
            sets_along.setdefault(i, {})[numbers.setdefault(key, len(numbers))] = queries
        sets.append(tuple(i for i, _ in factors))
        symbols.append(tuple(numbers[i, q.key] for i, q in factors))
    subsets = lattice(sets)
    used = tuple(_listed(symbols, terms, rows.shape[1]) for terms, rows in subsets.by_size)
    weights = np.array([term.weight**2 for term in workload.terms])
    ones = np.ones(len(numbers))
    made = _UnionBound(subsets, weights, used, ones, ones.copy(), ones.copy(), {})
    for i, queries_of in sets_along.items():
        size = workload.domain.shape[i]
        if all(q.is_identity for q in queries_of.values()):
            for number in queries_of:
                made.a[number], made.b[number] = size**-0.5, (size - 1) * size**-0.5
            continue
        if size > LIMITS.dense_axis_cells:
            return None
        grams = {number: queries.gram() for number, queries in queries_of.items()}
        cell_weights = cells.get(workload.domain.names[i])
        tried = (
            _options(sum(grams.values(), np.zeros((size, size))))
            if cell_weights is None
            else (cell_weights / cell_weights.sum(),)
        )
        made.axes[i] = _AttributeGrams(grams, tried)
        made._set(made.axes[i], made.axes[i].options[0])
    return made


def _listed(symbols: Sequence[tuple[int, ...]], terms: Integers, width: int) -> Integers:
    rows = np.array([symbols[t] for t in terms.tolist()], dtype=np.int64)
    return rows.reshape(len(terms), width)


def _options(gram: Array) -> tuple[Array, ...]:
    """Cell weights of optima with more or less weight on the total; rough ones do."""
    n = len(gram)
    out = [np.full(n, 1 / n)]
    for extra in LIMITS.pinched_extra:
        v = gram + extra * np.trace(gram) / n

        def root_diagonal(weights: Array, v: Array = v) -> Array:
            spend(EIGEN * float(n) ** 3)
            root = np.sqrt(weights)
            values, vectors = np.linalg.eigh(v * np.outer(root, root))
            return np.asarray((vectors**2) @ np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)

        optimum = certified_optimum(root_diagonal, n, 1e-3, 12).v
        out.append(optimum / optimum.sum())
    return tuple(out)


# Lower bounds from one query set at a time


def sum_of_bounds(workload: Workload) -> float:
    """A lower bound on the weighted squared error at unit noise; terms without one count 0.

    ``tr(V X^-1)`` is a sum over terms, and the minimum of a sum is at least the sum of the minima:
    every term alone must err at least by its own optimum. For a product the bound of
    ``solve/nuclear.py``, at weights that are products too, is the product of the bounds of its
    query sets. So bounds for single attributes give a bound for any union, exact for one product
    and loose when many terms compete for the noise.

    Windows of any number have a bound in closed form (``windows_bound``): the sum of singular
    values of a matrix G is at least ``tr(U'G)`` for every U of norm at most 1, and the matrix of
    the symbol ``f / |f|``, f that of the windows, has norm 1.
    """
    bound_of: dict[tuple[int, str | int], float] = {}
    total = 0.0
    for term in workload.terms:
        product = term.as_product()
        if product is not None:
            for _, queries in product.factors:
                if (queries.size, queries.key) not in bound_of:
                    bound_of[queries.size, queries.key] = query_set_bound(queries)
            bounds = (bound_of[q.size, q.key] for _, q in product.factors)
            total += term.weight**2 * prod(bounds)
    return total


def query_set_bound(queries: QuerySet) -> float:
    """A lower bound on ``k gamma^2`` of one query set (0 where none is known)."""
    if queries.is_disjoint:  # as good as a table of groups
        return float((queries.row_powers(1) > 0).sum())
    inverse = inverse_gram(queries)
    if inverse is not None:
        solver = root_diagonal(*inverse)
        return certified_optimum(
            solver, queries.size, LIMITS.query_set_tolerance, all_bind=True
        ).lower
    closed = windows_bound(queries.size, queries.width) if isinstance(queries, Windows) else 0.0
    if queries.size > LIMITS.query_set_cells:
        return closed
    values = np.linalg.eigvalsh(queries.gram())
    positive = values[values > values[-1] * len(values) * EIGEN_ROUNDING]
    return max(closed, float(np.sqrt(positive).sum() ** 2 / len(values)))  # Li and Miklau 2013


def windows_bound(cells: int, width: int) -> float:
    """``sum_j c_j^2``, a lower bound on ``k gamma^2`` of all windows of a width, in O(width).

    ``c_j = (U'F)_jj`` sums the coefficients ``u_k = tan(pi a / w) / (pi a)`` of ``f / |f|``, with
    ``a = k - (w - 1) / 2``, over the places k that cell j has in windows. As
    ``tr(U' F D^1/2) = sum_j sqrt(v_j) c_j``, the best weights are ``v_j = c_j^2``.
    """
    a = np.arange(width) - (width - 1) / 2
    with np.errstate(invalid="ignore"):
        u = np.where(a == 0, 1 / width, np.tan(pi * a / width) / (pi * a))
    running = np.concatenate([[0.0], np.cumsum(u)])
    reach = min(width, cells - width + 1)  # the most windows that hold one cell
    ends = running[1:reach]
    if reach == width:
        inner = (cells - 2 * (width - 1)) * float(running[-1]) ** 2
    else:
        first = np.arange(2 * width - cells)
        inner = float(((running[first + reach] - running[first]) ** 2).sum())
    return (2 * float((ends**2).sum()) + inner) * (1 - 1e-9)
