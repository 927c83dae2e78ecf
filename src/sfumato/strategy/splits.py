# SPDX-License-Identifier: Apache-2.0
"""One attribute, split into its total and a rest: the parts that unions are put together from.

Let X be a strategy Gram matrix of the attribute. The largest multiple of ``J = 1 1'`` that can be
taken out of it, ``X = p J + S'S`` with ``p = 1 / (1' X^-1 1)``, leaves S of rank n - 1 with
``S z = 0`` for ``z = X^-1 1``. Every query is then uniquely ``q = alpha 1' + r S``, with
``alpha = q z / 1'z``: measured are the total on the one hand and S on the other (``Split``). For a
table of counts X = I and S is the centring ``I - J / n`` (``Centred``); for other query sets the
split is oblique (``optimal_split``). ``union_of_splits`` chooses the splits of all attributes of a
union of products for ``pieces.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, log, log2, sqrt
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.lattice import Lattice, lattice
from sfumato.solve.minimax_orbits import row_quadratics
from sfumato.solve.nuclear import certified_optimum
from sfumato.solve.tridiagonal import Tridiagonal, root_diagonal
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.queries import Matrix, Prefix, QuerySet, Ranges
from sfumato.workload.workload import Workload

__all__ = [
    "Centred",
    "Optimum",
    "Split",
    "SplitUnion",
    "Union",
    "centred_split",
    "entry_bits",
    "optimal_split",
    "short_basis",
    "split_optimum",
    "union",
    "union_of_splits",
]


WORD_BITS = 43  # bits of a coefficient up to which vault.measure computes with machine words


def entry_bits(workload: Workload) -> int:
    """Bits for the coefficients along one attribute, so that products of them stay quick.

    Differences of n cells, along attributes asked cell by cell, take log2(n - 1) bits.
    """
    most = LIMITS.split_bits[1]
    for term in workload.terms:
        product = term.as_product()
        sets = [] if product is None else [q for _, q in product.factors]
        rounded = sum(not q.is_disjoint for q in sets)
        if rounded:
            cells = [q.size for q in sets if q.is_identity]
            taken = sum(ceil(log2(n - 1)) for n in cells if n > 2)
            most = min(most, (WORD_BITS - taken) // rounded)
    return max(most, LIMITS.split_bits[0])


@dataclass(frozen=True, eq=False)
class Centred(QuerySet):
    """``n I - J``: n times the difference of every cell to the mean, in integers."""

    @property
    def name(self) -> str:
        """The name ``centred``."""
        return "centred"

    @property
    def rows(self) -> int:
        """The number of queries: one per cell."""
        return self.size

    def inner_products(self) -> tuple[float, float]:
        """``-n`` and ``n (n - 1)``: the least and the greatest of two columns."""
        n = self.size
        return float(-n if n > 1 else 0), float(n * (n - 1))

    def apply(self, x: Numbers) -> Numbers:
        """``n x - sum(x)``."""
        return np.asarray(self.size * x - x.sum(axis=0, keepdims=True, dtype=x.dtype))

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y = M y``: the matrix is symmetric."""
        return self.apply(y)

    def column_powers(self, p: int) -> Array:
        """``(n - 1)^p + (n - 1)``."""
        return np.full(self.size, float((self.size - 1) ** p + self.size - 1))

    def row_powers(self, p: int) -> Array:
        """Those of the columns: the matrix is symmetric."""
        return self.column_powers(p)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """-1 and n - 1 for every query."""
        return np.full(self.size, -1.0), np.full(self.size, self.size - 1.0)

    @property
    def greatest(self) -> float:
        """``n - 1``."""
        return float(max(self.size - 1, 1))

    @property
    def is_nonnegative(self) -> bool:
        """Whether there is one cell: differences have both signs."""
        return self.size == 1


@dataclass(frozen=True, eq=False)
class Split:
    """The measured rest S of an attribute (as integers times ``unit``) and how to read queries.

    ``direction`` is z, the vector that S does not see; ``inverse`` the pseudo-inverse of the
    integers.
    """

    measured: QuerySet
    unit: float
    direction: Array

    @cached_property
    def inverse(self) -> Array:
        """The pseudo-inverse of the integers: cells x measured rows."""
        if self.is_centred:
            n = self.measured.size
            return (np.eye(n) - 1 / n) / n
        unit = float(np.abs(self.measured.greatest))
        if self.measured.rows < self.measured.size - 1:  # the queries span less than all cells
            return np.asarray(np.linalg.pinv(self.measured.dense() / unit) / unit)
        # B = [S; u'] with S u = 0 and u'u = 1 has the inverse [S^+, u].
        u = self.direction / np.linalg.norm(self.direction)
        whole = np.linalg.inv(np.vstack([self.measured.dense() / unit, u]))
        return np.asarray(whole[:, :-1] / unit, dtype=np.float64)

    @property
    def is_centred(self) -> bool:
        """Whether it is the split of a table of counts."""
        return isinstance(self.measured, Centred)

    @cached_property
    def unseen(self) -> Array:
        """z, scaled to sum 1: what S does not see."""
        return np.asarray(self.direction / self.direction.sum(), dtype=np.float64)

    def totals(self, queries: QuerySet) -> Array:
        """``alpha`` of every query."""
        return np.asarray(queries.apply(self.unseen), dtype=np.float64)

    def cells(self, y: Array) -> Array:
        """``S^+ y`` along the first axis, S being the integers."""
        if self.is_centred:
            return np.asarray((y - y.mean(axis=0, keepdims=True)) / self.measured.size)
        return np.tensordot(self.inverse, y, axes=1)

    def cells_adjoint(self, x: Array) -> Array:
        """``(S^+)' x`` along the first axis: from cells to measured values."""
        if self.is_centred:
            return self.cells(x)
        return np.tensordot(self.inverse.T, x, axes=1)

    def rest(self, queries: QuerySet, y: Array) -> Array:
        """``r y`` along the first axis of measured values y: the queries beyond alpha."""
        cells = self.cells(y)
        alpha = self.totals(queries).reshape(-1, *[1] * (y.ndim - 1))
        return np.asarray(queries.apply(cells) - alpha * cells.sum(axis=0, keepdims=True))

    def rest_adjoint(self, queries: QuerySet, c: Array) -> Array:
        """``r' c`` along the first axis: from queries to measured values."""
        alpha = np.tensordot(self.totals(queries), c, axes=1)
        return self.cells_adjoint(np.asarray(queries.adjoint(c)) - alpha[None])

    def rest_squares(self, queries: QuerySet) -> Array:
        """``|r|^2`` of every query, r with respect to the integers."""
        n = self.measured.size
        centre = np.eye(n) - np.outer(self.unseen, np.ones(n))
        centred = centre @ self.inverse
        return row_quadratics(queries, centred @ centred.T)

    def squares(self, gram: Array) -> tuple[float, float]:
        """``sum alpha^2`` and ``sum |r|^2`` over queries of this Gram matrix, r in units of S."""
        z = self.unseen
        residual = (np.eye(len(z)) - np.outer(z, np.ones(len(z)))) @ self.inverse
        rest = float((residual * (gram @ residual)).sum())
        return float(z @ gram @ z), rest / self.unit**2

    @cached_property
    def cost(self) -> float:
        """The greatest squared column norm of S."""
        return float(self.measured.column_powers(2).max()) * self.unit**2


def centred_split(size: int) -> Split:
    """The split of a table of counts; of two cells the one difference is measured, once."""
    if size == 2:
        return Split(Matrix(2, np.array([[1, -1]], dtype=np.int64), 0), sqrt(0.5), np.ones(2))
    return Split(Centred(size), 1 / size, np.ones(size))


@dataclass(frozen=True, eq=False)
class Optimum:
    """The optimal X of an attribute with extra weight on its total.

    ``X = D^-1/2 A^1/2 D^-1/2 / scale`` with cell weights v, and the eigenvalues and eigenvectors
    of A.
    """

    v: Array
    scale: float
    values: Array
    vectors: Array

    @cached_property
    def inverse(self) -> Array:
        """``X^-1``, or an inverse on the span of the queries where that is less."""
        positive = self.values > 0
        scaled = np.sqrt(self.v)[:, None] * self.vectors[:, positive]
        return np.asarray((scaled * (self.scale / np.sqrt(self.values[positive]))) @ scaled.T)

    @cached_property
    def x(self) -> Array:
        """The matrix X."""
        scaled = self.vectors / np.sqrt(self.v * self.scale)[:, None]
        return np.asarray((scaled * np.sqrt(self.values)) @ scaled.T)

    @cached_property
    def share(self) -> float:
        """``p = 1 / (1' X^-1 1)``: how much of the total X holds."""
        return 1 / float(self.inverse.sum())

    @cached_property
    def unseen(self) -> Array:
        """z, scaled to sum 1: what the rest does not see."""
        return np.asarray(self.inverse.sum(axis=1) * self.share, dtype=np.float64)

    def squares(self, grams: Sequence[Array]) -> tuple[Array, Array]:
        """``sum alpha^2`` and ``cost sum |r|^2`` for query sets of these Gram matrices.

        ``q X^-1 q' = alpha^2 / p + |r|^2``, for the two parts of X are orthogonal under X^-1.
        """
        totals = np.array([self.unseen @ g @ self.unseen for g in grams])
        whole = np.array([float((g * self.inverse).sum()) for g in grams])
        rests = np.maximum(whole - totals / self.share, 0.0)
        return totals, rests * (1 - self.share)


def split_optimum(
    sets: Sequence[QuerySet],
    grams: Sequence[Array],
    total_weight: float,
    tolerance: float = 1e-5,
    start: Array | None = None,
    rank: int | None = None,
) -> Optimum:
    """The optimum of the query sets with ``total_weight`` more on the total.

    ``rank`` is the number of independent queries where it is less than that of the cells: X has
    that rank then, and what is beside it up to rounding is 0.

    For prefixes that is one more weight on the last of them: the weights of the cells are found
    in O(cells) a step.
    """
    n = len(grams[0])
    v = np.sum(grams, axis=0) + total_weight * np.ones((n, n))

    def dense_diagonal(weights: Array) -> Array:
        spend(EIGEN * float(n) ** 3)
        root = np.sqrt(weights)
        values, vectors = np.linalg.eigh(v * np.outer(root, root))
        return np.asarray((vectors**2) @ np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)

    if all(isinstance(q, Prefix) for q in sets):
        each = np.full(n, float(len(sets)))
        each[-1] += total_weight
        beside = -1 / each[:-1]
        diagonal = 1 / each
        diagonal[1:] -= beside
        solver = root_diagonal(Tridiagonal(diagonal, beside), np.diag(v))
        optimum = certified_optimum(solver, n, tolerance, all_bind=True, start=start)
    else:
        binds = all(isinstance(q, Ranges) for q in sets)
        optimum = certified_optimum(dense_diagonal, n, tolerance, 60, all_bind=binds, start=start)
    root = np.sqrt(optimum.v)
    values, vectors = np.linalg.eigh(v * np.outer(root, root))
    values = np.maximum(values, values[-1] * 1e-12)
    values[: 0 if rank is None else n - rank] = 0.0
    return Optimum(optimum.v, optimum.scale, values, vectors)


def optimal_split(
    optimum: Optimum,
    bits: int = LIMITS.split_bits[0],
    basis: Integers | None = None,
    has_total: bool = True,
) -> Split:
    """The split of an optimum, its rest in integers of so many bits.

    ``basis`` are independent queries that span all others where those span less than all cells
    (``short_basis``): the rest stays within their span. ``has_total``: the total is the first.
    """
    n = len(optimum.v)
    if basis is not None:
        return _within(optimum, bits, basis, has_total)
    values, vectors = np.linalg.eigh(optimum.x - optimum.share)
    s = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T  # the least one belongs to z
    if not s.size:
        raise PlanError("an attribute of one cell has no differences to measure")
    unit = float(np.abs(s).max()) / 2**bits
    entries = np.rint(s / unit).astype(np.int64)
    # z of the rounded matrix, what it does not see: beside the z of the exact one
    whole = np.vstack([entries, optimum.unseen * (2.0**bits)])
    try:
        z = np.linalg.solve(whole, np.eye(n)[-1])
    except np.linalg.LinAlgError:
        raise PlanError(
            "some queries are so nearly equal that their difference is lost in rounding"
        ) from None
    return Split(Matrix(n, entries, 0), unit, z * np.sign(z.sum()))


def short_basis(sets: Sequence[QuerySet], has_total: bool) -> Integers | None:
    """Independent queries, the total first if it is one; None if they span all cells.

    Single cells, prefixes and ranges span all; sets that are too large, or whose coefficients are
    no whole numbers, are taken to do so.
    """
    from scipy.linalg import qr

    n = sets[0].size if sets else 0
    may_be_fewer = all(q.is_exact and not q.separates_cells for q in sets)
    if not sets or not may_be_fewer or sum(q.rows for q in sets) * n > LIMITS.split_rank_entries:
        return None
    whole = [np.rint(np.asarray(q.dense()) * 2.0**q.fraction_bits).astype(np.int64) for q in sets]
    rows = np.unique(np.concatenate(whole), axis=0)
    ones = np.ones((int(has_total), n), dtype=np.int64)
    beside = rows.astype(np.float64)
    sizes = np.linalg.norm(beside, axis=1, keepdims=True)
    rows, beside, sizes = (x[sizes[:, 0] > 0] for x in (rows, beside, sizes))
    if has_total:  # what queries say beyond the total
        beside = beside - beside.mean(axis=1, keepdims=True)
    triangle, order = qr((beside / sizes).T, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    rank = int((pivots > LIMITS.dependent_part).sum())
    if rank + len(ones) >= n:
        return None
    chosen = rows[np.sort(order[:rank])]
    reach = np.abs(chosen).max(axis=1, keepdims=True, initial=1)
    chosen = chosen * (reach.max(initial=1) // reach)  # of like size: rounding treats them alike
    return np.concatenate([ones, chosen])


def _within(optimum: Optimum, bits: int, basis: Integers, has_total: bool) -> Split:
    """The split where queries span less than all cells: S = C B with B queries, C rounded.

    Every row of S is a whole combination of asked queries (and of the total), so rounding does not
    leave their span: ``q = alpha 1' + r S`` for every one of them, exactly.
    """
    n, rank = len(optimum.v), len(basis) - int(has_total)
    x = optimum.x - optimum.share if has_total else optimum.x
    values, vectors = np.linalg.eigh(x)
    s = (vectors[:, n - rank :] * np.sqrt(np.maximum(values[n - rank :], 0.0))).T
    if not s.size:
        raise PlanError("the queries along an attribute ask for its total only")
    mixing = s @ np.linalg.pinv(basis.astype(np.float64))
    for more in LIMITS.split_finer_bits:
        unit = float(np.abs(mixing).max()) / 2 ** (bits + more)
        entries = np.rint(mixing / unit).astype(np.int64) @ basis
        scaled = entries / float(np.abs(entries).max())
        singular = np.linalg.svd(scaled, compute_uv=False)
        if singular[-1] > LIMITS.split_singular_minimum * singular[0]:
            # z, which S does not see: the shortest of sum 1
            z = np.linalg.pinv(np.vstack([scaled, np.ones(n)]))[:, -1]
            return Split(Matrix(n, entries, 0), unit, z)
    raise PlanError("some queries are so nearly equal that their difference is lost in rounding")


# The best splits for a union

DRAWN_BITS = 52  # bits of a product of coefficients: noise of 2^60 of them can be drawn

TermFactors = Sequence[Mapping[str, QuerySet]]


@dataclass(frozen=True, eq=False)
class Union:
    """Which query sets the terms ask, by number, and all pairs of a term and a subset of it.

    ``used`` belongs to ``subsets.by_size``: the numbers of the query sets replace the attributes.
    """

    subsets: Lattice
    used: tuple[Integers, ...]
    weights: Array

    def squares(self, inside: Array, outside: Array) -> Array:
        """``sum_t w_t^2 prod_{A} inside prod_{t - A} outside`` of every piece A."""
        pairs = self.subsets.of_pairs(
            [inside[u] for u in self.used], [outside[u] for u in self.used]
        )
        sums = np.bincount(
            self.subsets.piece, self.weights[self.subsets.term] * pairs, self.subsets.pieces
        )
        return np.asarray(sums, dtype=np.float64)

    def root(self, inside: Array, outside: Array) -> float:
        """The sum of the roots of ``squares``."""
        return float(np.sqrt(self.squares(inside, outside)).sum())


def union(
    sets: Sequence[tuple[int, ...]], symbols: Sequence[tuple[int, ...]], weights: Array
) -> Union:
    """The union of terms over these attributes, with these numbers of query sets."""
    subsets = lattice(sets)
    used = []
    for terms, rows in subsets.by_size:
        listed = np.array([symbols[t] for t in terms.tolist()], dtype=np.int64)
        used.append(listed.reshape(len(terms), rows.shape[1]))
    return Union(subsets, tuple(used), weights)


@dataclass(frozen=True, eq=False)
class _Family:
    """Query sets that are asked along one attribute, or along several of that size."""

    sets: tuple[QuerySet, ...]

    @cached_property
    def grams(self) -> list[Array]:
        return [q.gram() for q in self.sets]

    @cached_property
    def scale(self) -> float:
        """The unit of extra weights: the mean of the diagonal."""
        return sum(float(np.trace(g)) for g in self.grams) / self.sets[0].size

    def optimum(self, weight: float, tolerance: float, start: Array | None = None) -> Optimum:
        basis = self.short[weight > 0]
        rank = None if basis is None else len(basis)
        return split_optimum(self.sets, self.grams, weight * self.scale, tolerance, start, rank)

    @cached_property
    def short(self) -> tuple[Integers | None, Integers | None]:
        """Independent queries where they span less than all cells; without and with the total."""
        return short_basis(self.sets, has_total=False), short_basis(self.sets, has_total=True)

    @cached_property
    def curve(self) -> Array:
        """Chebyshev coefficients of the roots of all a^2, all b^2, over the range of weights."""
        places = np.cos(np.pi * (np.arange(LIMITS.split_nodes) + 0.5) / LIMITS.split_nodes)
        low, high = LIMITS.split_log_weights
        values, start = [], None
        for place in places:
            weight = exp(low + (place + 1) / 2 * (high - low))
            optimum = self.optimum(weight, LIMITS.split_rough_tolerance, start)
            start = optimum.v
            values.append(np.sqrt(np.maximum(np.concatenate(optimum.squares(self.grams)), 0.0)))
        return np.asarray(chebyshev.chebfit(places, np.array(values), LIMITS.split_nodes - 1))

    def at(self, log_weight: float) -> tuple[Array, Array]:
        """a^2 and b^2 of every set at a weight, interpolated."""
        low, high = LIMITS.split_log_weights
        place = 2 * (log_weight - low) / (high - low) - 1
        values = np.asarray(chebyshev.chebval(place, self.curve), dtype=np.float64) ** 2
        return values[: len(self.sets)], values[len(self.sets) :]


class SplitUnion(NamedTuple):
    """The splits of all attributes, with ``c_A`` and ``cost_A`` of every piece A.

    ``cells`` are the weights of the cells of the optima that were split.
    """

    splits: dict[str, Split]
    cells: dict[str, Array]
    subsets: list[tuple[str, ...]]
    c: Array
    cost: Array


def union_of_splits(workload: Workload, term_factors: TermFactors) -> SplitUnion:
    """The best splits for a union of products; TooLarge where an attribute has too many cells.

    With ``a_t^2`` the squares of the totals and ``b_t^2`` those of the rests times their cost, the
    error of pieces (``pieces.py``) is the square of

        sum_A sqrt( sum_{t holding A} w_t^2 prod_{i in A} b_ti^2 prod_{i in t - A} a_ti^2 ).

    The split of attribute i is that of the optimum of its query sets with more or less weight on
    the total (``split_optimum``), so a and b are curves in one number. They are smooth in the
    logarithm of the weight: a few optima and a polynomial through them are enough to search all
    attributes together, and only the weights found in the end are split and rounded. Attributes
    that every group asks alike are split without extra weight: the optimum is then a product, and
    theirs a factor of it.
    """
    numbers: dict[tuple[str, int], int] = {}  # one set may serve two attributes
    sets: dict[str, list[QuerySet]] = {}
    for factors in term_factors:
        for name, queries in factors.items():
            if (name, id(queries)) not in numbers:
                numbers[name, id(queries)] = len(numbers)
                sets.setdefault(name, []).append(queries)
    place = {name: i for i, name in enumerate(workload.domain.names)}
    made = union(
        [tuple(place[n] for n in factors) for factors in term_factors],
        [tuple(numbers[n, id(q)] for n, q in factors.items()) for factors in term_factors],
        np.array([t.weight**2 for t in workload.terms]),
    )
    search = _SplitSearch(workload, term_factors, sets, numbers, made)
    splits = search.best_splits()
    rests, totals = np.ones(len(numbers)), np.ones(len(numbers))
    cost = np.ones(len(workload.domain.names))
    for name, listed in sets.items():
        cost[place[name]] = splits[name].cost
        for queries in listed:
            number = numbers[name, id(queries)]
            totals[number], rests[number] = _read(splits[name], queries)
    names = workload.domain.names
    subsets = [
        tuple(names[i] for i in row) for rows in made.subsets.levels for row in rows.tolist()
    ]
    c = made.squares(rests, totals)
    return SplitUnion(splits, search.cells, subsets, c, made.subsets.of_pieces(cost))


def _read(split: Split, queries: QuerySet) -> tuple[float, float]:
    """``sum alpha^2`` and ``sum |r|^2`` over the queries."""
    n = queries.size
    if queries.is_identity and split.is_centred:
        return 1 / n, float(n - 1)
    gram = queries.gram()
    totals, rests = split.squares(gram)
    # Queries that are multiples of the total have no rest; noise for what rounding leaves of one
    # could not be drawn.
    is_total = rests * split.cost <= LIMITS.split_rest_minimum * float(np.trace(gram))
    return totals, 0.0 if is_total else rests


class _SplitSearch:
    """The extra weight of every attribute."""

    def __init__(
        self,
        workload: Workload,
        term_factors: TermFactors,
        sets: Mapping[str, Sequence[QuerySet]],
        numbers: Mapping[tuple[str, int], int],
        made: Union,
    ) -> None:
        self.domain, self.sets, self.numbers, self.union = workload.domain, sets, numbers, made
        self.a, self.b = np.ones(len(numbers)), np.ones(len(numbers))
        self.families: dict[str, _Family] = {}
        self.cells: dict[str, Array] = {}
        families: dict[tuple[int, tuple[str | int, ...]], _Family] = {}
        for name, listed in sets.items():
            size = workload.domain[name].size
            if all(q.is_identity for q in listed):
                continue
            if size > LIMITS.dense_axis_cells:
                raise TooLarge(
                    f"attribute {name!r} has {size:,} cells, more than {LIMITS.dense_axis_cells:,}"
                )
            key = (size, tuple(q.key for q in listed))
            self.families[name] = families.setdefault(key, _Family(tuple(listed)))
        self.bits = min(entry_bits(workload), self._drawn_bits(term_factors))
        everywhere = {n for n in sets if all(n in factors for factors in term_factors)}
        self.is_fixed = {n for n in everywhere if len(sets[n]) == 1}

    def _drawn_bits(self, term_factors: TermFactors) -> int:
        """Bits that leave the noise on every piece in the range that can be drawn.

        A piece multiplies the coefficients of its attributes, and its noise grows with them: those
        of a split that is rounded, n - 1 for n cells that are compared with their mean.
        """
        bits = DRAWN_BITS
        for factors in term_factors:
            rounded = sum(n in self.families for n in factors)
            taken = sum(log2(self.domain[n].size) for n in factors if n not in self.families)
            if rounded:
                bits = min(bits, int(DRAWN_BITS - taken) // rounded)
        return max(bits, LIMITS.split_bits_minimum)

    def best_splits(self) -> dict[str, Split]:
        """The splits of least error, by the best extra weight of every attribute."""
        splits = {}
        for name, listed in self.sets.items():
            size = self.domain[name].size
            if name not in self.families:
                splits[name] = centred_split(size)
                for queries in listed:
                    number = self.numbers[name, id(queries)]
                    self.a[number], self.b[number] = 1 / size, (size - 1) ** 2 / size
        searched = [n for n in self.families if n not in self.is_fixed]
        chosen = dict.fromkeys(searched, 0.0)
        for name in searched:
            self._set(name, 0.0)
        for _ in range(LIMITS.split_rounds if len(searched) > 1 else 1):
            for name in searched:
                chosen[name] = self._best(name)
        made: dict[tuple[int, float], tuple[Split, Array]] = {}
        for name, family in self.families.items():
            weight = exp(chosen[name]) if name in chosen else 0.0
            key = (id(family), weight)
            if key not in made:
                optimum = family.optimum(weight, LIMITS.split_fine_tolerance)
                basis = family.short[weight > 0]
                split = optimal_split(optimum, self.bits, basis, weight > 0)
                made[key] = split, optimum.v
            splits[name], self.cells[name] = made[key]
        return splits

    def _set(self, name: str, log_weight: float) -> None:
        family = self.families[name]
        for queries, a, b in zip(self.sets[name], *family.at(log_weight), strict=True):
            number = self.numbers[name, id(queries)]
            self.a[number], self.b[number] = a, b

    def _best(self, name: str) -> float:
        """The weight of least error, given those of the other attributes."""
        from scipy.optimize import minimize_scalar

        def error(log_weight: float) -> float:
            self._set(name, log_weight)
            return log(self.union.root(self.b, self.a))

        minimum = minimize_scalar(
            error, bounds=LIMITS.split_log_weights, method="bounded", options={"xatol": 0.05}
        )
        best = round(float(minimum.x) / 0.05) * 0.05
        self._set(name, best)
        return best
