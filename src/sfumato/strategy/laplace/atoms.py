# SPDX-License-Identifier: Apache-2.0
"""Laplace strategies for any workload that is one matrix: predicates, coefficients, SQL, products.

Laplace noise of scale ``||M||_{1->1} / epsilon`` on ``M h`` is epsilon-DP (Dwork, McSherry, Nissim,
Smith 2006), so what counts is the greatest column of M in L1. Two kinds of M, the better of which
is taken:

* **On atoms.** Cells whose columns of F are equal are one *atom*; measured are sums of atoms,
  ``M = [I; Theta] C^-1`` with columns of L1 norm 1 (``templates.py``). The search starts from
  single atoms, from hats along the atoms in the order of the cells and in an order in which atoms
  that are asked together are neighbours, and from the queries themselves.
* **In the span of the queries.** With independent queries F_B, ``F = T F_B``, measured are mixtures
  ``M = C F_B``. In coordinates in which all queries together weigh the same in every direction
  (``G = T'W T``, ``C = D G^1/2``) the error is ``tr (D'D)^-1 max_j |D g_j|_1^2``, g_j being the
  columns of ``G^1/2 F_B``. Its logarithm is made small with the maximum as a p-norm, p growing. C
  is rounded to integers; it stays of full rank, so that ``T C^+`` answers without bias. Many cells
  for few queries want this: single atoms are then too many to be read.

Neither problem is convex. ``bound`` is the optimum for Gaussian noise, as no column is shorter in
L1 than in L2: valid, and mostly loose. Everything depends on the columns of the queries alone:
copies of a query, cells that no query tells apart and the order of queries change nothing.

References: Li, Miklau, Hay, McGregor, Rastogi 2015, "The matrix mechanism: optimizing linear
counting queries under differential privacy"; McKenna, Miklau, Hay, Machanavajjhala 2018,
"Optimizing error of high-dimensional statistical queries under differential privacy"; Zhang et al.
2018, "EKTELO", for the partition into atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import ClassVar, TypeVar

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import must_stop, portion, spend, stop_in_time
from sfumato.solve.nuclear import best_root, spanning_cells
from sfumato.strategy.base import Block, Norm, minimum_measured
from sfumato.strategy.laplace.templates import follow, scattered, search, usual_starts
from sfumato.strategy.matrix import (
    Columns,
    Dense,
    DistinctQueries,
    Mixed,
    distinct_columns,
    distinct_queries,
    mixture_of,
    query_basis,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, Objective
from sfumato.workload.queries import by_first, widened
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "AtomSums",
    "Atoms",
    "InSpan",
    "OnAtoms",
    "atoms_of",
    "in_span",
    "on_atoms",
    "replacements",
    "span_error",
]


# Atoms of a workload


@dataclass(frozen=True, eq=False)
class Atoms:
    """Cells that no query tells apart, merged; cells that no query counts are in none.

    ``columns`` has a row per query, term after term, and a column per atom; ``atom_of`` is the atom
    of every cell of the table of ``names``, or -1. Atoms are numbered by their first cell.
    """

    names: tuple[str, ...]
    columns: Array
    atom_of: Integers


def atoms_of(domain: Domain, terms: Sequence[Term]) -> Atoms:
    """The atoms of the queries of some terms; TooLarge where they are too many to be searched."""
    names = domain.in_order(frozenset().union(*(t.attributes for t in terms)))
    shape = [domain[n].size for n in names]
    if prod(shape) > LIMITS.atom_cells or prod(shape) * len(terms) > LIMITS.atom_labels:
        raise TooLarge(
            f"the table of {', '.join(names)} has {prod(shape):,} cells; of at most "
            f"{LIMITS.atom_cells:,} atoms are looked for"
        )
    label = np.zeros(prod(shape), dtype=np.int64)
    parts: list[tuple[Integers, Array]] = []
    for term in terms:
        own, columns = _labels(term)
        along = [domain[n].size if n in term.attributes else 1 for n in names]
        spread = np.broadcast_to(own.reshape(along), shape).reshape(-1)
        label = by_first(label * columns.shape[1] + spread)
        _check_atoms(int(label.max()) + 1)
        parts.append((spread, columns))
    first = np.unique(label, return_index=True)[1]
    matrix = np.concatenate([columns[:, spread[first]] for spread, columns in parts])
    merged, matrix = _distinct(matrix)
    is_counted = matrix.any(axis=0)
    number = np.where(is_counted, np.cumsum(is_counted) - 1, -1)
    return Atoms(names, matrix[:, is_counted], number[merged[label]])


def _labels(term: Term) -> tuple[Integers, Array]:
    """A number for every cell of a term's table, and the column of every number."""
    product = term.as_product()
    if product is not None:
        return _product_labels(product)
    conditions = term.as_conditions()
    if conditions:
        if not term.has_small_classes:
            raise TooLarge("the conditions tell too many cells apart")
        classes = [np.asarray(term.cell_classes(n), dtype=np.int64) for n in term.attributes]
        shape = [int(of.max()) + 1 for of in classes]
        firsts = [np.unique(of, return_index=True)[1] for of in classes]
        _check_entries(term.rows, prod(shape))
        labels, columns = _distinct(term.dense_at(firsts))
        table = labels.reshape(shape)
        return (table[np.ix_(*classes)] if classes else table).reshape(-1), columns
    _check_entries(term.rows, term.cells)
    return _distinct(term.dense())


def _product_labels(term: Product) -> tuple[Integers, Array]:
    """Cells by the columns of every factor: two are alike where all of these are."""
    label, columns = np.zeros(1, dtype=np.int64), np.ones((1, 1))
    for _, queries in term.factors:
        _check_entries(queries.rows, queries.size)
        own, few = _distinct(queries.dense())
        label = (label[:, None] * few.shape[1] + own[None, :]).reshape(-1)
        _check_entries(len(columns) * len(few), columns.shape[1] * few.shape[1])
        again, columns = _distinct(np.asarray(np.kron(columns, few), dtype=np.float64))
        _check_atoms(columns.shape[1])
        label = again[label]
    return label, columns


def _distinct(matrix: Array) -> tuple[Integers, Array]:
    """The number of every column among the different ones, in the order of the first of each."""
    rows = np.ascontiguousarray(matrix.T) + 0.0  # no -0.0, whose bytes differ
    numbers: dict[bytes, int] = {}
    label = np.array([numbers.setdefault(r.tobytes(), len(numbers)) for r in rows], dtype=np.int64)
    return label, np.ascontiguousarray(matrix[:, np.unique(label, return_index=True)[1]])


def _check_atoms(count: int) -> None:
    if count > LIMITS.atoms + 1:  # one that no query counts
        raise TooLarge(
            f"the queries tell {count:,} or more kinds of cells apart; strategies on at most "
            f"{LIMITS.atoms:,} atoms are searched"
        )


def _check_entries(rows: int, cells: int) -> None:
    if rows * cells > LIMITS.atom_entries:
        raise TooLarge(
            f"{rows:,} queries on {cells:,} cells are too many to be compared; at most "
            f"{LIMITS.atom_entries:,} coefficients of a group are"
        )


# What is measured on atoms


@dataclass(frozen=True, eq=False)
class AtomSums(Term):
    """``entries`` times the sums of the atoms; cell c of the table is in atom ``atom_of[c]``."""

    over: tuple[str, ...]
    atom_of: Integers
    entries: Integers

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its table."""
        return self.over

    @property
    def rows(self) -> int:
        """The number of measured values."""
        return len(self.entries)

    def apply(self, table: Numbers) -> Numbers:
        """``M h``; exact for integers."""
        cells = widened(np.asarray(table).reshape(-1))
        is_inside = self.atom_of >= 0
        sums = np.zeros(self.entries.shape[1], dtype=cells.dtype)
        np.add.at(sums, self.atom_of[is_inside], cells[is_inside])
        return np.asarray(self.entries.astype(cells.dtype) @ sums)

    def adjoint(self, y: Numbers) -> Array:
        """``M' y`` as a table of its attributes."""
        back = self.entries.T.astype(np.float64) @ np.asarray(y, dtype=np.float64)
        return self._spread(back)

    def dense(self) -> Array:
        """A column for every cell."""
        columns = np.append(self.entries, np.zeros((self.rows, 1), dtype=np.int64), axis=1)
        return np.asarray(columns[:, self.atom_of], dtype=np.float64)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array: exact, since the integers are small."""
        powers = (np.abs(self.entries.astype(np.float64)) ** p).sum(axis=0)
        return [(self.over, self._spread(powers))]

    def row_powers(self, p: int) -> Array:
        """Sums of powers along the rows."""
        members = np.bincount(self.atom_of[self.atom_of >= 0], minlength=self.entries.shape[1])
        return np.asarray((np.abs(self.entries.astype(np.float64)) ** p) @ members)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of every row, over all cells."""
        low, high = self.entries.min(axis=1), self.entries.max(axis=1)
        if self._has_outside:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        return low.astype(np.float64), high.astype(np.float64)

    def squared_diameter(self) -> float | None:
        """The greatest squared distance of two columns, compared pair by pair."""
        return self._farthest("sqeuclidean")

    def l1_diameter(self) -> float | None:
        """The greatest L1 distance of two columns, compared pair by pair."""
        return self._farthest("cityblock")

    def _farthest(self, metric: str) -> float:
        from scipy.spatial.distance import pdist

        columns = self.entries.T.astype(np.float64)
        if self._has_outside:
            columns = np.append(columns, np.zeros((1, self.rows)), axis=0)
        return float(pdist(columns, metric).max(initial=0.0))

    @property
    def fraction_bits(self) -> int:
        """0: all coefficients are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.abs(self.entries).max())

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""
        return bool((self.entries >= 0).all())

    @cached_property
    def _has_outside(self) -> bool:
        return bool((self.atom_of < 0).any())

    def _spread(self, values: Array) -> Array:
        """A value per atom at its cells, 0 at all others."""
        return np.append(values, 0.0)[self.atom_of].reshape(self.shape)


class OnAtoms(Mixed):
    """Sums of atoms with Laplace noise, and the least squares reconstruction."""

    _algorithm: ClassVar[str] = "atoms"


class InSpan(Dense):
    """A mixture of independent queries with Laplace noise."""

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """The L1 distance of the farthest two columns, where they are few enough to be compared."""
        from scipy.spatial.distance import pdist

        count = self.mixture.columns.shape[1]
        if norm != 1 or count > LIMITS.span_pairs:
            return super()._diameters(norm)
        mixture, longest = self.mixture, self._columns[1]
        farthest = float(
            pdist(np.concatenate(list(mixture.chunks()), axis=1).T, "cityblock").max(initial=0.0)
        )
        # In L1 a column errs by at most the root of its length times its error in L2.
        off = 2 * mixture.rows**0.5 * mixture.maximum_error + 2.0**-50 * longest
        return (min(farthest + off, 2 * longest) * ROUND_UP,)


def on_atoms(workload: Workload, objective: Objective = "rmse", along: bool = True) -> OnAtoms:
    """The best strategy found on the atoms of the queries; TooLarge where they are too many.

    Without ``along`` no search starts from hats in the order of the cells: a template has done it.
    """
    atoms = atoms_of(workload.domain, workload.terms)
    queries = distinct_queries(Columns(atoms.columns, np.ones(0)), workload.terms, objective)
    matrix = np.asarray(queries.matrix, dtype=np.float64)
    if matrix.size > LIMITS.atom_entries:
        raise TooLarge(f"{len(matrix):,} queries on {matrix.shape[1]:,} atoms are too many")

    def built(weights: Array, previous: Array | None) -> tuple[OnAtoms, Array]:
        gram = (matrix * weights[:, None] ** 2).T @ matrix
        if previous is None:
            starts = list(_atom_starts(gram, matrix, weights, along))
            theta = search(gram, starts, LIMITS.atom_starts)
        else:
            _, theta = follow(gram, previous, LIMITS.atom_minimax_steps)
        entries = _whole(theta)
        term = AtomSums(workload.domain, "sums of atoms", 1.0, atoms.names, atoms.atom_of, entries)
        inverse = _least_squares(entries, matrix)
        blocks = (Block(term, 1.0),)
        name = "laplace-optimum"
        return OnAtoms(name, "laplace", workload, blocks, queries.places, inverse), theta

    with portion(LIMITS.atom_multiplications):
        strategy = _for_objective(built, queries.weights, objective)
    return replace(strategy, bound=_lower_bound(matrix, queries, objective), objective=objective)


Built = TypeVar("Built", OnAtoms, InSpan)


def _for_objective(
    built: Callable[[Array, Array | None], tuple[Built, Array]],
    weights: Array,
    objective: Objective,
) -> Built:
    """The strategy for these weights; for the largest error queries that err more weigh more."""
    strategy, point = built(weights, None)
    if objective == "rmse":
        return strategy
    now, best, least = weights, strategy, strategy.weighted_error("max")
    for _ in range(LIMITS.atom_minimax_rounds):
        errors = weights**2 * (strategy.reconstruction**2).sum(axis=1)
        now = now * np.sqrt(errors / errors.max())
        strategy, point = built(now * (np.linalg.norm(weights) / np.linalg.norm(now)), point)
        error = strategy.weighted_error("max")
        if error < least:
            best, least = strategy, error
    return best


def _atom_starts(gram: Array, matrix: Array, weights: Array, along: bool) -> Iterator[Array]:
    """Where searches begin: as along an attribute, in another order of the atoms, the queries."""
    yield np.zeros((0, len(gram)))
    if along:
        yield from usual_starts(gram)
    order = _neighbours_first(gram)
    if (np.diff(order) != 1).any() and (np.diff(order) != -1).any():
        back = np.argsort(order)
        for start in usual_starts(gram[np.ix_(order, order)]):
            yield start[:, back]
    rows, shares = _directions(matrix, weights)
    if len(rows) <= LIMITS.atom_query_rows * len(gram):
        sizes = np.abs(rows) * (shares / shares.max())[:, None] ** (2 / 3)
        for height in LIMITS.atom_query_heights:
            yield height * sizes
    if len(rows) <= LIMITS.template_few_queries:
        yield LIMITS.template_heavy * np.vstack([np.abs(rows), 1 - np.abs(rows)])


def _directions(matrix: Array, weights: Array) -> tuple[Array, Array]:
    """Different queries up to a factor, of greatest coefficient 1, and how much they weigh."""
    sizes = np.abs(matrix).max(axis=1)
    largest = np.take_along_axis(matrix, np.abs(matrix).argmax(axis=1)[:, None], axis=1)
    label, rows = _distinct(np.round((matrix / largest).T, 12))
    squares = np.bincount(label, (weights * sizes) ** 2)
    return rows.T, np.sqrt(squares)


def _neighbours_first(gram: Array) -> Integers:
    """The atoms in an order in which those that are asked together are near each other.

    That of the second eigenvector of their correlations (Atkins, Boman, Hendrickson 1998, "A
    spectral algorithm for seriation and the consecutive ones problem").
    """
    own = np.sqrt(np.diag(gram))
    near = np.maximum(gram / np.outer(own, own), 0.0)
    spend(10.0 * len(gram) ** 3)
    _, vectors = np.linalg.eigh(np.diag(near.sum(axis=0)) - near)
    along = vectors[:, min(1, len(gram) - 1)]
    return np.argsort(np.round(along / max(float(np.abs(along).max()), 1e-300), 9), kind="stable")


def _whole(theta: Array) -> Integers:
    """``[I; Theta] C^-1`` in integers, finer where single atoms are faint."""
    scaled = np.vstack([np.ones(theta.shape[1]), theta]) / (1 + theta.sum(axis=0))
    if not len(theta):
        return np.eye(theta.shape[1], dtype=np.int64)
    is_faint = bool((scaled[0] < LIMITS.template_faint).any())
    bits = LIMITS.template_fine_bits if is_faint else LIMITS.template_bits
    whole = np.rint(scaled * 2**bits).astype(np.int64)
    # What rounding takes from the rows is read from single atoms: none may be too faint for that.
    single = np.maximum(whole[0], LIMITS.atom_faintest if is_faint else 1)
    extra = whole[1:][whole[1:].any(axis=1)]
    return np.concatenate([np.diag(single), extra])


def _least_squares(entries: Integers, matrix: Array) -> Array:
    """``F M^+`` for M of full column rank."""
    from scipy.linalg import qr, solve_triangular

    spend(4.0 * entries.size * entries.shape[1] + 2.0 * len(matrix) * entries.size)
    unitary, triangle = qr(entries.astype(np.float64), mode="economic")
    parts = solve_triangular(triangle, matrix.T, trans="T")
    return np.asarray((unitary @ parts).T, dtype=np.float64)


# Mixtures in the span of the queries

SMALL = 4.0  # multiplications of large products in the time of one of a small product


def in_span(
    workload: Workload,
    objective: Objective = "rmse",
    least: float = inf,
    with_bound: bool = True,
    moves: Callable[[Array], Array] | None = None,
) -> InSpan:
    """The best mixture found of independent queries; TooLarge where these are too many.

    PlanError where the first steps come nowhere near ``least``, the weighted error of another
    strategy. ``moves`` are how far neighbours move the queries, from the columns of these: the
    columns themselves unless given (``replacements``).
    """
    rank = minimum_measured(workload, LIMITS.span_rank)
    if rank > LIMITS.span_rank:  # before anything is listed
        raise TooLarge(
            f"the queries have a rank of {rank:,} or more; at most {LIMITS.span_rank:,} are mixed"
        )
    columns = distinct_columns(workload.domain, workload.terms)
    queries = distinct_queries(columns, workload.terms, objective)
    used = np.flatnonzero(np.abs(queries.matrix).max(axis=0) > 0)
    matrix = queries.matrix[:, used]
    if min(matrix.shape) > LIMITS.span_rank or matrix.size > LIMITS.span_entries:
        raise TooLarge(
            f"{len(matrix):,} queries on {matrix.shape[1]:,} kinds of cells are too many to be "
            f"mixed; one side must be at most {LIMITS.span_rank:,}, and at most "
            f"{LIMITS.span_entries:,} coefficients in all"
        )
    basis, coordinates = query_basis(matrix, spanning_cells(matrix))
    some = queries.matrix[basis].astype(np.float64)  # with the cells that no query counts
    moved = some if moves is None else moves(some)

    def built(weights: Array, previous: Array | None) -> tuple[InSpan, Array]:
        mixing, point = _mixing(moved, coordinates * weights[:, None], previous, least)
        entries = _rounded(mixing, moved, coordinates * weights[:, None], workload)
        mixture = mixture_of(workload, columns, queries, basis, entries)
        inverse = coordinates @ np.linalg.pinv(entries.astype(np.float64))
        blocks = (Block(mixture, 1 / mixture.maximum_column(1)),)
        name = "laplace-optimum"
        return InSpan(name, "laplace", workload, blocks, queries.places, inverse), point

    with portion(LIMITS.span_multiplications):
        strategy = _for_objective(built, queries.weights, objective)
    bound = _lower_bound(matrix, queries, objective) if with_bound else None
    return replace(strategy, bound=bound, objective=objective)


def replacements(drops: bool) -> Callable[[Array], Array]:
    """How far replaced records move queries: the differences of all pairs of their columns.

    If ``drops``, a record can fall in no cell, and single columns are moves, too. Else a small part
    of them is: differences do not move the public total, whose noise would go to zero.
    """

    def moves(columns: Array) -> Array:
        rows, count = columns.shape
        if rows * count * (count + 1) // 2 > LIMITS.span_entries:
            raise TooLarge(f"{count:,} kinds of cells have too many pairs")
        first, second = np.triu_indices(count, 1)
        alone = columns * (1.0 if drops else LIMITS.span_total)
        return np.concatenate([columns[:, first] - columns[:, second], alone], axis=1)

    return moves


def _lower_bound(matrix: Numbers, queries: DistinctQueries, objective: Objective) -> float | None:
    """The optimum for Gaussian noise, roughly: no strategy errs less in L1 either."""
    try:
        with portion(LIMITS.atom_bound_multiplications):
            return best_root(matrix, queries.weights, objective, LIMITS.atom_bound).lower or None
    except PlanError:
        return None


def _mixing(
    basis: Array, coordinates: Array, previous: Array | None, least: float
) -> tuple[Array, Array]:
    """C, and D of the search, for weighted coordinates T of the queries in the basis."""
    values, vectors = np.linalg.eigh(coordinates.T @ coordinates)
    roots = np.sqrt(np.maximum(values, values[-1] * LIMITS.dependent_part**2))
    even = (vectors * roots) @ vectors.T
    columns = even @ basis
    first, powers = LIMITS.span_first_steps, LIMITS.span_powers
    if previous is not None:
        point = _descended(columns, previous, powers[-1:], LIMITS.atom_minimax_steps)
        return point @ even, point
    back = (vectors / roots) @ vectors.T
    starts = [np.eye(len(even)), back / np.linalg.norm(back, axis=1, keepdims=True)]
    if len(basis) < len(coordinates) <= LIMITS.span_rows * len(basis):
        rows = coordinates @ back
        starts.append(rows[np.linalg.norm(rows, axis=1) > 0])
    tilt = LIMITS.span_tilt
    starts = [s + tilt * np.abs(s).max() * (scattered(*s.shape) - 0.5) for s in starts]
    longest = np.argsort(-np.abs(columns).sum(axis=0), kind="stable")[: LIMITS.span_columns]
    some = columns[:, np.sort(longest)]
    ends = [_descent(some, s, powers[:1], first) for s in starts]
    point = min(ends, key=lambda d: _span_error(columns, d))
    if _span_error(columns, point) > LIMITS.span_hopeless**2 * least:
        raise PlanError("mixtures of the queries err more than sums of atoms")
    point = _descended(columns, point, powers, LIMITS.span_steps)
    return point @ even, point


def _span_error(columns: Array, mixing: Array) -> float:
    """``tr (D'D)^-1 max_j |D g_j|_1^2``."""
    return _inverse_trace(mixing) * float(_column_sums(columns, mixing).max()) ** 2


def _inverse_trace(mixing: Array) -> float:
    """``tr (D'D)^-1``."""
    return float((np.linalg.pinv(mixing) ** 2).sum())


def _column_sums(columns: Array, mixing: Array) -> Array:
    """``|D g_j|_1`` of all columns."""
    spend(float(mixing.size * columns.shape[1]))
    return np.asarray(np.abs(mixing @ columns).sum(axis=0), dtype=np.float64)


def _descended(columns: Array, start: Array, powers: Sequence[int], steps: int) -> Array:
    """The end of a search from a start; of very many columns those that come out longest matter.

    They join round by round (Kelley 1960, "The cutting-plane method for solving convex programs",
    though this is not convex); errors count all columns.
    """
    count = columns.shape[1]
    if count <= LIMITS.span_columns:
        return _descent(columns, start, powers, steps)
    inside = np.zeros(count, dtype=np.bool_)
    best, least, point = start, inf, start
    room = LIMITS.span_columns // LIMITS.span_rounds
    for turn in range(LIMITS.span_rounds + 1):
        sums = _column_sums(columns, point)
        error = _inverse_trace(point) * float(sums.max()) ** 2
        if error < least:
            best, least = point, error
        if must_stop() or turn == LIMITS.span_rounds:
            break
        outside = np.flatnonzero(~inside)
        inside[outside[np.argsort(-sums[outside], kind="stable")[:room]]] = True
        power = powers[turn * len(powers) // LIMITS.span_rounds]
        point = _descent(columns[:, inside], point, (power,), LIMITS.span_first_steps)
    return best


def _descent(columns: Array, start: Array, powers: Sequence[int], steps: int) -> Array:
    """The end of a search from a start, the maximum taken as a p-norm for each p in turn."""
    from scipy.optimize import minimize

    shape, point = start.shape, start
    for power in powers:

        def error(x: Array, power: int = power) -> tuple[float, Array]:
            value, slope = span_error(columns, x.reshape(shape), power)
            return value, slope.reshape(-1)

        if must_stop():
            return point
        end = minimize(
            error,
            point.reshape(-1),
            jac=True,
            method="L-BFGS-B",
            callback=stop_in_time,
            options={"maxiter": steps, "maxcor": LIMITS.template_corrections},
        )
        now = np.asarray(end.x).reshape(shape)
        if np.isfinite(now).all() and _span_error(columns, now) < _span_error(columns, point):
            point = now
    return point


def span_error(columns: Array, mixing: Array, power: int) -> tuple[float, Array]:
    """``log tr (D'D)^-1 + 2 log ||(|D g_j|_1)_j||_p`` and its gradient with respect to D."""
    spend(SMALL * mixing.size * (3.0 * columns.shape[1] + 4.0 * mixing.shape[1]))
    measured = mixing @ columns
    sums = np.maximum(np.abs(measured).sum(axis=0), 1e-300)
    longest = float(sums.max())
    parts = (sums / longest) ** power
    total = float(parts.sum())
    norm = np.log(longest) + np.log(total) / power
    slope = (np.sign(measured) * (parts / (total * sums))) @ columns.T
    inverse = np.linalg.inv(mixing.T @ mixing)
    trace = float(np.trace(inverse))
    value = np.log(trace) + 2 * norm
    return float(value), np.asarray(2 * slope - 2 * (mixing @ inverse @ inverse) / trace)


def _rounded(mixing: Array, basis: Array, coordinates: Array, workload: Workload) -> Integers:
    """Integers in proportion to C, as few bits as rounding may cost, in lowest terms.

    Noise on a Laplace grid as fine as the coefficients must be drawn: fine queries leave fewer.
    """

    def error(matrix: Array) -> float:
        inverse = coordinates @ np.linalg.pinv(matrix)
        return float((inverse**2).sum() * np.abs(matrix @ basis).sum(axis=0).max() ** 2)

    fine = max(t.fraction_bits for t in workload.terms)
    least, best, aim = np.inf, None, error(mixing) * (1 + LIMITS.span_rounding)
    for bits in LIMITS.span_bits:
        if best is not None and bits + fine > LIMITS.span_grid_bits:
            break
        unit = float(np.abs(mixing).max()) / 2**bits
        entries = np.rint(mixing / unit).astype(np.int64)
        entries = entries[entries.any(axis=1)]
        if np.linalg.matrix_rank(entries.astype(np.float64)) < mixing.shape[1]:
            continue
        now = error(entries.astype(np.float64))
        if now < least:
            best, least = entries, now
        if least <= aim:
            break
    if best is None:
        raise PlanError("the strategy cannot be rounded to integers; scale the queries alike")
    return np.asarray(best // np.gcd.reduce(best, axis=None), dtype=np.int64)
