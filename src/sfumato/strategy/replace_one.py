# SPDX-License-Identifier: Apache-2.0
"""Strategies for neighbours that replace one record: the diameter counts, not the longest column.

``for_replace_one`` takes a strategy that was built for add-remove neighbours and chooses its shares
of the noise afresh. With ``e_b`` the weighted squared error that unit noise on block b makes, and
``d_bv`` how far move v moves it, squared (``moves.py``), the shares minimise

    sum_b e_b / s_b^2     subject to     sum_b s_b^2 d_bv <= 1  for every move v.

For weights lambda_v >= 0 of sum 1 and ``d_b = sum_v lambda_v d_bv`` the sum is at least
``(sum_b sqrt(e_b d_b))^2`` (Cauchy-Schwarz), which shares ``s_b^2 ~ sqrt(e_b / d_b)`` attain; the
best lambda is found by ``solve/nuclear.py``, moves taking the place of cells. A block that no move
changes reads the public total: it gets next to no noise.

Lower bounds for every strategy: with weights on pairs of cells, L their Laplacian, all strategies
of diameter 1 obey ``tr(X L) <= sum(lambda)``, so ``(tr (L^1/2 V L^1/2)^1/2)^2 / sum(lambda)`` is
below every error, by the proof of ``solve/nuclear.py`` with L in the place of D. For marginals and
weights on sets of attributes in which two cells differ, this is the bound above: both meet. Proof:
docs/mechanisms/factorization.md, "Replacing a record".

``best_for_pairs`` is the certified optimum for queries that can be listed, ``best_on_cells`` for
unions of products that tell few cells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod, sqrt

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, must_stop, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root, certified_optimum
from sfumato.solve.orbits import CLASS_SUMS, Axis, exchangeable, orbit_problem
from sfumato.strategy.atoms import in_span, replacements
from sfumato.strategy.base import Block, Strategy
from sfumato.strategy.conditions import Conditions
from sfumato.strategy.factorization import Factorization, inverse_of, whole_root
from sfumato.strategy.marginals import Marginals
from sfumato.strategy.matrix import Dense, dense
from sfumato.strategy.measured import Piece
from sfumato.strategy.moves import BlockMoves
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Objective
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.workload import Workload

__all__ = [
    "best_for_pairs",
    "best_on_cells",
    "for_replace_one",
]


# The certified optimum over pairs of cells

LOST = 1e-9  # of the bound: the rounding of eigenvalues


def best_for_pairs(
    workload: Workload, objective: Objective, drops: bool, start: Dense | None = None
) -> Dense | None:
    """The best strategy for replaced records with its bound; None where too large.

    ``start`` is a strategy for add-remove neighbours, if one is known.

    With independent asked queries F_B, ``F = T F_B``, columns b_j of F_B and ``G = T' W T``, a
    strategy ``M = C F_B`` has the error ``tr(G Y^-1)``, ``Y = C'C``; pairs move by ``(b_i -
    b_j)'Y(b_i - b_j)``. For weights lambda on pairs and ``K = sum lambda_ij (b_i - b_j)(b_i -
    b_j)'``,

        (tr (G^1/2 K G^1/2)^1/2)^2 / sum(lambda)  <=  tr(G Y^-1)  for all Y of diameter 1,

    with equality for ``Y = G^1/2 (G^1/2 K G^1/2)^-1/2 G^1/2`` where every weighted pair is 1 apart:
    ``solve/nuclear.py`` once more, pairs taking the place of cells. Few pairs matter: the farthest
    join.

    For the largest error the matrix ``T (b_i - b_j)``, queries by pairs, is factorized as any other
    (``solve/nuclear.py``): its columns are the moves.

    Differences may span one direction less than F_B: then the total is a combination of the
    queries, ``1 = t F_B``. It is public, no pair moves it, and it is measured with next to no
    noise; all other queries count modulo the total, in coordinates Q of the span of the
    differences.
    """
    if workload.queries > LIMITS.pairwise_queries:
        return None
    if start is None and not _is_small(workload):
        return None
    try:
        start = start or dense(workload)
        problem = _problem(start, objective, drops)
        if problem is None:
            return None
        form, bound = _minimax(problem) if objective == "max" else _solved(problem)
    except PlanError:
        return None
    rounded = _rounded(start, problem, _helped(problem, form, bound))
    if rounded is None:
        rounded = replace(start, mechanism="factorization")
    return replace(rounded, replace_one_bound=bound, objective=objective)


def _is_small(workload: Workload) -> bool:
    """Whether the strategy for one added record, where none is known, takes no time to find."""
    names = workload.domain.in_order({n for t in workload.terms for n in t.attributes})
    cells = workload.domain.cells(names)
    return max(cells, workload.queries) <= LIMITS.pairwise_fine_cells


@dataclass(frozen=True, eq=False)
class _PairProblem:
    """T, weights, columns of F_B (and 0, if a record can be dropped), Q of their differences.

    F_B stands for its queries divided by their ``lengths``: coefficients may be ages or incomes.
    """

    coordinates: Array
    squares: Array
    columns: Array
    lengths: Array
    basis: Array
    objective: Objective
    drops: bool

    @property
    def gram(self) -> Array:
        """G, the weighted Gram matrix of the queries in coordinates of F_B."""
        return (self.coordinates * self.squares[:, None]).T @ self.coordinates

    def errors(self, form: Array) -> Array:
        """The weighted squared error of every query, by the form Y on differences."""
        reading = self.coordinates @ self.basis
        each = (reading * np.linalg.solve(form, reading.T).T).sum(axis=1)
        return np.asarray(self.squares * each, dtype=np.float64)

    def error(self, form: Array) -> float:
        """The sum of ``errors``, or the greatest of them."""
        each = self.errors(form)
        return float(each.max() if self.objective == "max" else each.sum())

    @property
    def inner(self) -> Array:
        """The columns in the coordinates of the differences, the first being 0."""
        return np.asarray(self.basis.T @ (self.columns - self.columns[:, :1]), dtype=np.float64)

    @property
    def total(self) -> Array | None:
        """``t`` with ``t F_B = 1``, if no pair moves it."""
        rank, reached = self.basis.shape
        if reached == rank:
            return None
        left = np.linalg.svd(self.basis, full_matrices=True)[0][:, reached:]
        reads = left.T @ self.columns[:, 0]
        return np.asarray(left[:, 0] / reads[0], dtype=np.float64)


def _problem(start: Dense, objective: Objective, drops: bool) -> _PairProblem | None:
    mixture = start.mixture
    rank, count = mixture.columns.shape
    if rank > LIMITS.pairwise_rank or count > LIMITS.pairwise_cells:
        return None
    columns = np.ldexp(mixture.columns.astype(np.float64), -mixture.fraction_bits)
    if drops:
        columns = np.concatenate([columns, np.zeros((rank, 1))], axis=1)
    lengths = np.sqrt((columns**2).sum(axis=1))
    columns /= lengths[:, None]
    coordinates = (start.reconstruction @ mixture.entries.astype(np.float64)) * lengths
    squares = np.zeros(len(coordinates))
    for term, place in zip(start.workload.terms, start.places, strict=True):
        rows = place[place >= 0]
        if objective == "max":
            squares[rows] = np.maximum(squares[rows], term.weight**2)
        else:
            squares += term.weight**2 * np.bincount(rows, minlength=len(squares))
    left, sizes, _ = np.linalg.svd(columns - columns[:, :1], full_matrices=False)
    span_rank = int((sizes > LIMITS.pairwise_flat * sizes[0]).sum()) if sizes.size else 0
    if span_rank == 0 or span_rank < rank - 1:
        return None
    basis = left[:, :span_rank]
    return _PairProblem(coordinates, squares, columns, lengths, basis, objective, drops)


def _minimax(problem: _PairProblem) -> tuple[Array, float]:
    """The form Y on differences and the lower bound, for the largest error."""
    reading = problem.coordinates @ problem.basis
    points = problem.inner
    first, second = np.triu_indices(points.shape[1], 1)
    if len(reading) * len(first) > LIMITS.pairwise_moves:
        raise TooLarge(f"{len(first):,} pairs of cells, for {len(reading):,} queries")
    matrix = reading @ (points[:, first] - points[:, second])
    is_moved = np.abs(matrix).max(axis=1) > 0
    optimum = best_root(
        matrix[is_moved], np.sqrt(problem.squares[is_moved]), "max", LIMITS.pairwise_tolerance
    )
    mixing = optimum.mixing @ reading[is_moved]
    form = _reaching(mixing.T @ mixing)
    return form / _widest_pairs(form, points), optimum.lower


def _solved(problem: _PairProblem) -> tuple[Array, float]:
    """The form Y on differences, and the greatest lower bound."""
    points = problem.inner
    small = problem.basis.T @ problem.gram @ problem.basis
    optimum = _weighed_pairs(small, points)
    form = _reaching(optimum.form)
    return form / _widest_pairs(form, points), optimum.lower


@dataclass(frozen=True, eq=False, slots=True)
class _PairOptimum:
    """The form Y on differences of the best weights of pairs, and the greatest lower bound."""

    form: Array
    lower: float


def _weighed_pairs(gram: Array, points: Array) -> _PairOptimum:
    """The best weights on all pairs of points: every step multiplies them by powers of distances.

    ``lambda_ij <- lambda_ij d_ij^p`` raises the weights of pairs that are too far apart for the
    form of lambda and lowers all others: at the fixed point every weighted pair is equally far
    apart, and none is farther (a power of 1 is the step of Silvey, Titterington and Torsney 1978
    for optimal designs). p is halved where a step gains nothing, and grows where it does. Every
    step has a bound and a form of its own, so the best of all are right wherever the search ends.
    """
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    columns = root @ points
    rank, count = columns.shape
    weights = np.ones((count, count))
    np.fill_diagonal(weights, 0.0)
    is_fine = count <= LIMITS.pairwise_fine_cells
    tolerance = LIMITS.pairwise_tolerance if is_fine else LIMITS.pairwise_rough_tolerance
    best, lower, upper = np.eye(rank), 0.0, np.inf
    power, before, safe = LIMITS.pairwise_power, 0.0, weights
    for _ in range(LIMITS.pairwise_steps):
        spend(EIGEN * float(rank) ** 3 + 4.0 * rank * count * (rank + count))
        weights = weights / (weights.sum() / 2)
        laplacian = np.diag(weights.sum(axis=0)) - weights
        own, directions = np.linalg.eigh(columns @ laplacian @ columns.T)
        floor = own[-1] * EIGEN_ROUNDING * len(own)
        trace = float(np.sqrt(own[own > floor]).sum())
        inside = (directions / np.sqrt(np.maximum(own, floor))) @ directions.T
        apart = np.maximum(_distances(inside, columns), 0.0)
        widest = float(apart.max())
        lower = max(lower, trace**2 * (1 - LOST))
        if trace * widest < upper:
            upper, best = trace * widest, inside
        if upper <= lower * (1 + tolerance) ** 2 or must_stop():
            break
        if trace < before * (1 - LOST):
            power, weights = power / 2, safe
            if power < LIMITS.pairwise_power_minimum:
                break
        else:
            before, safe, step = trace, weights, apart
            power = min(LIMITS.pairwise_growth * power, LIMITS.pairwise_power)
        weights = weights * (step / trace) ** power
    return _PairOptimum(np.asarray(root @ best @ root, dtype=np.float64), lower)


def _reaching(form: Array) -> Array:
    """The form with a least share for every query, however small."""
    share = LIMITS.pairwise_share_minimum * float(np.linalg.norm(form, 2))
    return np.asarray(form + share * np.eye(len(form)), dtype=np.float64)


def _helped(problem: _PairProblem, form: Array, bound: float) -> Array:
    """The form with what queries need that err by more than the optimum."""
    far = problem.errors(form) > bound * (1 + LIMITS.pairwise_helped)
    if not far.any() or bound <= 0:
        return form
    error = bound if problem.objective == "max" else bound * LIMITS.pairwise_helped / int(far.sum())
    reading = problem.coordinates[far] @ problem.basis
    more = form + (reading.T * problem.squares[far]) @ reading / error
    more = more / _widest_pairs(more, problem.inner)
    return more if problem.error(more) < problem.error(form) else form


def _distances(form: Array, points: Array) -> Array:
    gram = points.T @ form @ points
    own = np.diag(gram)
    return np.asarray(own[:, None] + own[None, :] - 2 * gram, dtype=np.float64)


def _widest_pairs(form: Array, points: Array) -> float:
    return float(_distances(form, points).max())


def _rounded(start: Dense, problem: _PairProblem, form: Array) -> Dense | None:
    """Integers in proportion to a root of the form, the total beside it, as few bits as will do."""
    values, vectors = np.linalg.eigh(form)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T @ problem.basis.T
    root = root / problem.lengths
    error = problem.error(form)
    total = _total_row(start, problem)
    best: Dense | None = None
    least = np.inf
    for bits in LIMITS.pairwise_bits:
        unit = float(np.abs(root).max()) / 2**bits
        entries = np.rint(root / unit).astype(np.int64)
        if total is not None:
            # The first rows leave out one direction x, ``Q'x = 0``, in which the total alone reads.
            read = total * problem.lengths
            alone = read - problem.basis @ (problem.basis.T @ read)
            alone = alone / float(alone @ read)
            wanted = (
                sqrt(float(alone @ problem.gram @ alone) / (LIMITS.public_total_error * error))
                / unit
            )
            factor = max(
                np.ceil(min(wanted, LIMITS.pairwise_total_maximum * 2**bits / np.abs(total).max())),
                1.0,
            )
            entries = np.concatenate([entries, np.rint(factor * total[None, :]).astype(np.int64)])
        if np.linalg.matrix_rank(entries.astype(np.float64)) < len(entries):
            continue
        candidate = _measured(start, entries)
        now = candidate.weighted_error(problem.objective, "replace-one", problem.drops)
        if now < least:
            best, least = candidate, now
        if least <= error * (1 + LIMITS.pairwise_rounding):
            break
    return best


def _total_row(start: Dense, problem: _PairProblem) -> Array | None:
    """The coefficients of a multiple of the total: whole numbers, if they are fractions.

    If they are not, a multiple is rounded like all other rows: then it moves, by as little as
    rounding moves those.
    """
    if problem.total is None:
        return None
    total = problem.total / problem.lengths
    mixture = start.mixture
    columns = np.ldexp(mixture.columns.astype(np.float64), -mixture.fraction_bits)
    for denominator in range(1, LIMITS.total_denominators + 1):
        whole = np.rint(denominator * total)
        if float(np.abs(whole @ columns - denominator).max()) == 0.0:
            return np.asarray(whole, dtype=np.float64)
    return np.asarray(total, dtype=np.float64)


def _measured(start: Dense, entries: Integers) -> Dense:
    """The strategy of the same queries, mixed by other integers."""
    mixture = replace(start.mixture, entries=np.ascontiguousarray(entries))
    coordinates = start.reconstruction @ start.mixture.entries.astype(np.float64)
    inverse = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    share = 1 / sqrt(mixture.maximum_column(2))
    return replace(
        start,
        mechanism="factorization",
        blocks=(Block(mixture, share),),
        reconstruction=np.asarray(inverse, dtype=np.float64),
    )


# The same on cells, for products whose queries are too many to be listed


def best_on_cells(workload: Workload, drops: bool) -> Factorization | None:
    """The best strategy for replaced records among matrices on cells; None where it does not fit.

    For unions of products that tell few cells apart, however many queries they are: the bound and
    the form X need ``V = F'WF`` alone. Attributes whose cells can all be exchanged are read by
    totals and differences (``solve/orbits.py``): of two cells it only matters along which of them
    they differ. Measured is a root of X on every subspace, in integers; where no record can be
    dropped the subspace of class sums has one direction less, and a multiple of the public total is
    measured beside it. No rounding leaves the span of the queries, so that every answer stays
    unbiased.
    """
    axes = _told_apart(workload)
    if axes is None:
        return None
    problem = _KindProblem.of(workload, axes)
    if not drops and len(problem.bases[0]) < len(problem.grams[0]):
        return None  # the public total need not be a combination of queries
    optimum = _weighed_kinds(problem, drops)
    best: Factorization | None = None
    least = np.inf
    for bits in LIMITS.pairwise_cell_bits:
        try:
            candidate = _of_cells(workload, problem, optimum.forms, drops, bits)
        except PlanError:
            continue
        now = candidate.weighted_error("rmse", "replace-one", drops)
        if now < least:
            best, least = candidate, now
        if least <= optimum.upper * (1 + LIMITS.pairwise_rounding):
            break
    return None if best is None else replace(best, replace_one_bound=optimum.lower)


def _told_apart(workload: Workload) -> tuple[Axis, ...] | None:
    """Classes of cells of every attribute; None where a matrix of all of them is too large.

    All cells are one class and can be exchanged, or no query tells the cells of a class apart.
    """
    sets: dict[str, list[QuerySet]] = {}
    for term in workload.terms:
        product_term = term.as_product()
        if product_term is None:
            return None
        for name, queries in product_term.factors:
            sets.setdefault(name, []).append(queries)
    names = workload.domain.in_order(sets)
    ordered = [n for n in names if any(q.is_ordered and q.rows > 1 for q in sets[n])]
    if workload.domain.cells(ordered) > LIMITS.pairwise_cells:
        return None
    axes = []
    for name in names:
        axis = exchangeable(name, workload.domain[name].size, sets[name])
        if axis.classes > 1 and any(axis.residual_gram(q).any() for q in sets[name]):
            axis = Axis(name, np.arange(axis.cells))
        axes.append(axis)
    classes = prod(a.classes for a in axes)
    kinds = 2 ** sum(a.classes == 1 for a in axes)
    if kinds * classes**2 > LIMITS.pairwise_kinds or kinds * classes**3 > LIMITS.pairwise_work:
        return None
    return tuple(axes)


@dataclass(frozen=True, eq=False)
class _KindProblem:
    """Gram matrices on subspaces, and the kinds of pairs: along which attributes they differ.

    ``grams[t]`` is V on class sums of the wide axes, for part t of the axes of one class: bit k
    says that differences of ``alike[k]`` are read, not their total. ``apart[s]`` is true for kinds
    s, bit k for cells that differ along ``alike[k]``.
    """

    axes: tuple[Axis, ...]
    grams: tuple[Array, ...]
    parts: tuple[int, ...]

    @classmethod
    def of(cls, workload: Workload, axes: tuple[Axis, ...]) -> _KindProblem:
        """The problem of a union of products."""
        alike = [a for a in axes if a.classes == 1]
        grams: dict[int, Array] = {}
        for term in workload.terms:
            product_term = term.as_product()
            factors = {} if product_term is None else dict(product_term.factors)
            base = np.full((1, 1), term.weight**2)
            numbers = {0: 1.0}
            for axis in axes:
                queries = factors.get(axis.name, Total(axis.cells))
                own = axis.class_gram(queries)
                if axis.classes > 1:
                    sizes = np.sqrt(np.outer(axis.sizes, axis.sizes))
                    base = np.asarray(np.kron(base, own / sizes), dtype=np.float64)
                    continue
                bit = 1 << alike.index(axis)
                rest = float(axis.residual_gram(queries)[0])
                numbers = {t: n * float(own[0, 0]) for t, n in numbers.items()} | {
                    t | bit: n * rest for t, n in numbers.items() if rest > 0
                }
            for t, number in numbers.items():
                grams[t] = grams.get(t, 0.0) + number * base
        parts = tuple(sorted(grams))
        return cls(axes, tuple(grams[t] for t in parts), parts)

    @cached_property
    def bases(self) -> tuple[Array, ...]:
        """F of full rank with ``F'F = V`` for every part, in rows."""
        out = []
        for gram in self.grams:
            values, vectors = np.linalg.eigh(gram)
            is_positive = values > values[-1] * LIMITS.pairwise_singular
            out.append((vectors[:, is_positive] * np.sqrt(values[is_positive])).T)
        return tuple(out)

    @cached_property
    def alike(self) -> tuple[Axis, ...]:
        """The axes of one class."""
        return tuple(a for a in self.axes if a.classes == 1)

    @cached_property
    def copies(self) -> Array:
        """How often every part occurs: the dimension of its differences."""
        return self._product(self.parts, lambda n, is_rest: n - 1.0 if is_rest else 1.0)

    @cached_property
    def orbit(self) -> float:
        """The cells of an orbit."""
        return float(prod(a.cells for a in self.alike))

    @cached_property
    def pairs(self) -> Array:
        """How many cells differ from one in a way, by kind."""
        kinds = range(2 ** len(self.alike))
        return self._product(kinds, lambda n, is_apart: n - 1.0 if is_apart else 1.0)

    @cached_property
    def adjacency(self) -> Array:
        """Parts x kinds: the eigenvalue on a part of "differs exactly so"."""
        return self._table(lambda n, is_rest: -1.0 if is_rest else n - 1.0, 1.0)

    @cached_property
    def kernels(self) -> Array:
        """Parts x kinds: the entry of the projection on a part, at cells that differ so."""
        out = np.ones((len(self.parts), 2 ** len(self.alike)))
        for k, axis in enumerate(self.alike):
            n = float(axis.cells)
            for row, part in enumerate(self.parts):
                for kind in range(out.shape[1]):
                    is_apart = bool(kind >> k & 1)
                    if part >> k & 1:
                        out[row, kind] *= -1 / n if is_apart else 1 - 1 / n
                    else:
                        out[row, kind] *= 1 / n
        return out

    def _product(self, masks: Iterable[int], factor: Callable[[float, bool], float]) -> Array:
        return np.array(
            [
                prod(factor(float(a.cells), bool(m >> k & 1)) for k, a in enumerate(self.alike))
                for m in masks
            ],
            dtype=np.float64,
        )

    def _table(self, apart: Callable[[float, bool], float], same: float) -> Array:
        out = np.ones((len(self.parts), 2 ** len(self.alike)))
        for k, axis in enumerate(self.alike):
            for row, part in enumerate(self.parts):
                for kind in range(out.shape[1]):
                    is_rest = bool(part >> k & 1)
                    out[row, kind] *= apart(float(axis.cells), is_rest) if kind >> k & 1 else same
        return out


@dataclass(frozen=True, eq=False, slots=True)
class _KindOptimum:
    """X on every part, on class sums, of diameter 1; its error and the greatest lower bound."""

    forms: tuple[Array, ...]
    upper: float
    lower: float


def _weighed_kinds(problem: _KindProblem, drops: bool) -> _KindOptimum:
    """The best weights of pairs by kind, as ``_weighed_pairs``, which is the case of one part.

    With ``w_s(i, j)`` the weight of every pair of cells of classes i and j and kind s, L is
    ``diag(deg) - sum_s a_ts w_s`` on part t, ``a_ts`` being ``adjacency``; all pairs together weigh
    ``sum(pairs_s w_s) / 2`` times the cells of an orbit. Cells of kind s have the inner product
    ``sum_t k_ts X_t(i, j)``, ``k_ts`` being ``kernels``. A record that falls in no cell is a point
    0, with weights of its own.
    """
    n, kinds = len(problem.grams[0]), len(problem.pairs)
    is_public = not drops and problem.parts[0] == 0
    roots = list(problem.bases)
    if is_public:
        basis = _differences(n)
        roots[0] = _root(basis @ problem.grams[0] @ basis.T) @ basis
    weights = np.ones((kinds, n, n))
    weights[0][np.diag_indices(n)] = 0.0
    outside = np.full(n, float(drops))
    tolerance = LIMITS.pairwise_tolerance
    if n > LIMITS.pairwise_fine_cells:
        tolerance = LIMITS.pairwise_rough_tolerance
    best: tuple[Array, ...] = ()
    lower, upper, before, power = 0.0, np.inf, 0.0, LIMITS.pairwise_power
    safe = (weights, outside)
    steps = (weights, outside)
    for _ in range(LIMITS.pairwise_steps):
        spend(len(roots) * (EIGEN + 6.0) * float(n) ** 3 + 4.0 * weights.size * len(roots))
        own = np.tensordot(problem.pairs, weights, axes=1)
        whole = problem.orbit * (float(own.sum()) / 2 + float(outside.sum()))
        weights, outside, own = weights / whole, outside / whole, own / whole
        degrees = np.diag(own.sum(axis=1) + outside)
        trace, forms = 0.0, []
        for root, copies, row in zip(roots, problem.copies, problem.adjacency, strict=True):
            laplacian = degrees - np.tensordot(row, weights, axes=1)
            values, directions = np.linalg.eigh(root @ laplacian @ root.T)
            floor = values[-1] * EIGEN_ROUNDING * len(values)
            trace += float(copies) * float(np.sqrt(values[values > floor]).sum())
            inside = (directions / np.sqrt(np.maximum(values, floor))) @ directions.T
            forms.append(root.T @ inside @ root)
        apart, alone = _kind_distances(problem, forms)
        widest = max(float(apart.max()), float(alone.max()) if drops else 0.0)
        lower = max(lower, trace**2 * (1 - LOST))
        if trace * widest < upper:
            upper, best = trace * widest, tuple(f / widest for f in forms)
        if upper <= lower * (1 + tolerance) ** 2 or must_stop():
            break
        if trace < before * (1 - LOST):
            power, (weights, outside) = power / 2, safe
            if power < LIMITS.pairwise_power_minimum:
                break
        else:
            before, safe, steps = trace, (weights, outside), (apart / trace, alone / trace)
            power = min(LIMITS.pairwise_growth * power, LIMITS.pairwise_power)
        weights, outside = weights * steps[0] ** power, outside * steps[1] ** power
    return _KindOptimum(best, upper, lower)


def _kind_distances(problem: _KindProblem, forms: Sequence[Array]) -> tuple[Array, Array]:
    """Squared distances of columns by kind and classes, and the squared lengths of columns."""
    inner = np.tensordot(problem.kernels.T, np.array(forms), axes=1)
    own = np.diag(inner[0])
    return np.maximum(own[:, None] + own[None, :] - 2 * inner, 0.0), own


def _root(gram: Array) -> Array:
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=np.float64)


def _differences(cells: int) -> Array:
    """An orthonormal basis of all vectors of sum 0, in rows (Helmert's)."""
    out = np.tril(np.full((cells - 1, cells), -1.0))
    at = np.arange(1, cells)
    out[at - 1, at] = at
    return np.asarray(out / np.sqrt(at * (at + 1.0))[:, None], dtype=np.float64)


def _of_cells(
    workload: Workload, problem: _KindProblem, forms: Sequence[Array], drops: bool, bits: int
) -> Factorization:
    """Roots of the forms in integers of so many bits, the public total below the first."""
    blocks, inverses, parts = [], [], []
    every = zip(problem.parts, forms, problem.grams, problem.bases, strict=True)
    for mask, form, gram, basis in every:
        labels = {a.name: 0 if mask >> k & 1 else CLASS_SUMS for k, a in enumerate(problem.alike)}
        part = tuple(labels.get(a.name, CLASS_SUMS) for a in problem.axes)
        summed = prod(a.cells for a in problem.alike if labels[a.name] == CLASS_SUMS)
        compared = prod(a.cells for a in problem.alike if labels[a.name] != CLASS_SUMS)
        form = form / summed  # of totals in place of their unit vectors
        if mask == 0 and not drops and len(form) > 1:
            entries, unit, inverse = _with_total(_differences(len(form)) @ _root(form), gram, bits)
        else:
            values, vectors = np.linalg.eigh(form)
            rank = len(basis)
            root = (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))).T
            root = _root(form) if rank == len(form) else root
            entries, unit, inverse = whole_root(root, workload, problem.axes, part, bits)
        pairs = zip(problem.axes, part, strict=True)
        measured = [(a, k) for a, k in pairs if k != CLASS_SUMS or a.classes > 1]
        title = " x ".join(a.name if k == CLASS_SUMS else f"~{a.name}" for a, k in measured)
        piece = Piece(
            workload.domain,
            title or "total",
            1.0,
            tuple(a for a, _ in measured),
            tuple(k for _, k in measured),
            np.ascontiguousarray(entries),
        )
        blocks.append(Block(piece, unit / compared))
        inverses.append(inverse)
        parts.append(part)
    return Factorization(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        problem.axes,
        tuple(parts),
        tuple(inverses),
    )


def _with_total(root: Array, gram: Array, bits: int) -> tuple[Integers, float, Array]:
    """Integers in proportion to a root and a multiple of the total, their unit and inverse."""
    unit = float(np.abs(root).max()) / 2**bits
    entries = np.rint(root / unit).astype(np.int64)

    def beside(factor: int) -> tuple[Integers, Array]:
        whole = np.append(entries, np.full((1, len(gram)), factor * 2**bits), axis=0)
        inverse = inverse_of(whole.astype(np.float64))
        if inverse is None:
            raise PlanError("the strategy cannot be rounded to integers; scale the queries alike")
        return whole, inverse

    inverse = beside(1)[1]
    errors = ((gram @ inverse) * inverse).sum(axis=0)
    wanted = sqrt(float(errors[-1] / (LIMITS.public_total_error * errors[:-1].sum())))
    whole, inverse = beside(ceil(min(max(wanted, 1.0), LIMITS.public_total_maximum)))
    return whole, unit, inverse


def for_replace_one(
    strategy: Strategy, objective: Objective = "rmse", drops: bool = False
) -> Strategy:
    """The strategy with the shares for replace-one neighbours, and a lower bound if one is known.

    ``drops`` says that a replaced record can fall in no cell: then the total is not public.
    """
    if strategy.noise == "laplace":
        return _mixed(strategy, objective, drops)
    if strategy.records is not None:
        return strategy
    add_remove_bound = strategy.bound_for(objective)
    # With a record in no cell every column is such a distance: a bound for add-remove holds too.
    least = (add_remove_bound or 0.0) if drops else 0.0
    if not any(d > 0 for d in strategy.block_diameters(2)):
        return replace(
            strategy, replace_one_bound=least or None, objective=objective, bound=add_remove_bound
        )
    if isinstance(strategy, Marginals):
        return _marginals(strategy, objective, drops)
    options: list[Strategy] = [strategy]
    if len(strategy.blocks) > 1:
        options.append(_reweighted(strategy, objective, drops))
    bounds = [least]
    if isinstance(strategy, Conditions):
        return _conditions(strategy, objective, drops)
    if isinstance(strategy, Factorization) and strategy.weights is not None:
        bounds.append(_orbit_bound(strategy, objective, drops))
    if strategy.mechanism == "factorization":
        start = strategy if isinstance(strategy, Dense) else None
        pairwise: Strategy | None = None
        if objective == "rmse" and start is None:
            pairwise = best_on_cells(strategy.workload, drops)
        if pairwise is None:
            pairwise = best_for_pairs(strategy.workload, objective, drops, start)
        if pairwise is not None:
            options.append(pairwise)
            bounds.append(pairwise.replace_one_bound or 0.0)
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    bound = max(bounds)
    return replace(
        best, replace_one_bound=bound or None, objective=objective, bound=add_remove_bound
    )


def _mixed(strategy: Strategy, objective: Objective, drops: bool) -> Strategy:
    """The best of Laplace strategies, or a mixture made for the L1 diameter if that errs less."""
    work = strategy.workload
    if strategy.mechanism != "laplace-optimum" or all(t.is_table for t in work.terms):
        return strategy
    least = strategy.weighted_error("rmse", "replace-one", drops)
    try:
        mixed = in_span(work, objective, least, with_bound=False, moves=replacements(drops))
    except PlanError:
        return strategy
    options = [strategy, replace(mixed, bound=strategy.bound_for(objective), objective=objective)]
    return min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))


def _conditions(strategy: Conditions, objective: Objective, drops: bool) -> Strategy:
    """The strategy or its ``plain`` one, whichever errs less, with the bounds of both kinds."""
    options = [strategy] if strategy.plain is None else [strategy, strategy.plain]
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    add_remove_bound = strategy.bound_for(objective)
    bounds = [strategy.replace_one_bound or 0.0, (add_remove_bound or 0.0) if drops else 0.0]
    return replace(
        best,
        mechanism=strategy.mechanism,
        replace_one_bound=max(bounds) or None,
        objective=objective,
        bound=add_remove_bound,
    )


def _reweighted(strategy: Strategy, objective: Objective, drops: bool) -> Strategy:
    errors = strategy.block_errors()
    moves = strategy.moves(2, drops) or _maximum_moves(strategy, drops)
    if not moves.distances.any():  # all read the public total
        return strategy
    each = moves.each(_weighed(errors, moves).best)
    candidate = _with_shares(strategy, _shares(errors, each))
    if objective == "max":  # the shares that were made for it, public totals set free
        shares = np.where(each > 0, strategy.shares, candidate.shares)
        unchanged = _with_shares(strategy, shares)
        return min(
            candidate, unchanged, key=lambda s: s.weighted_error(objective, "replace-one", drops)
        )
    return candidate


def _with_shares(strategy: Strategy, shares: Array) -> Strategy:
    pairs = zip(strategy.blocks, shares.tolist(), strict=True)
    return replace(strategy, blocks=tuple(Block(b.term, s) for b, s in pairs))


def _maximum_moves(strategy: Strategy, drops: bool) -> BlockMoves:
    """One move that stands for all: every block by its own diameter."""
    widest = np.array(strategy.block_diameters(2))
    if drops:
        ones = np.eye(len(widest))
        alone = [strategy.maximum_column(2, unit.tolist()).power for unit in ones]
        widest = np.maximum(widest, alone)
    count = len(widest)
    return BlockMoves(widest[:, None], np.arange(count), np.ones(count), np.ones(count))


@dataclass(frozen=True, eq=False, slots=True)
class _Weighed:
    """Weights of moves: those of the best shares, and those of the greatest lower bound."""

    best: Array
    proof: Array
    lower: float


def _weighed(errors: Array, moves: BlockMoves) -> _Weighed:
    """Maximise ``(sum_b sqrt(e_b d_b))^2`` over lambda; of many moves the farthest join."""
    groups, count = moves.distances.shape
    roots = np.bincount(moves.group, np.sqrt(np.maximum(errors, 0.0) * moves.norms), groups)
    reached = (moves.distances.max(axis=1, initial=0.0) > 0) & (roots > 0)
    everything = moves.distances[reached]
    parts = (roots / np.sqrt(moves.counts))[reached]
    even = np.full(count, 1 / count)
    if not len(everything):
        return _Weighed(even, even, 0.0)
    chosen = np.arange(count)
    if count > LIMITS.moves_listed:
        first = parts / np.sqrt(everything.max(axis=1))
        longest = np.argsort(-(first @ everything))[: LIMITS.moves_added]
        chosen = np.unique(np.concatenate([everything.argmax(axis=1), longest]))
    weighed = _Weighed(even, even, 0.0)
    start: Array | None = None
    for _ in range(LIMITS.moves_rounds):
        some = _balanced(parts, everything[:, chosen], start)
        best, proof = np.zeros(count), np.zeros(count)
        best[chosen], proof[chosen] = some.best, some.proof
        weighed = _Weighed(best, proof if some.lower > weighed.lower else weighed.proof, some.lower)
        moved = (parts / np.sqrt(everything @ best)) @ everything
        if float(moved.max()) <= float(moved[chosen].max()) * (1 + LIMITS.moves_tolerance):
            break
        more = np.argsort(-moved)[: LIMITS.moves_added]
        chosen = np.unique(
            np.concatenate([np.flatnonzero(best > LIMITS.moves_weight_minimum * best.max()), more])
        )
        start = np.maximum(best[chosen], 1e-6 / len(chosen))
    return weighed


def _balanced(parts: Array, table: Array, start: Array | None) -> _Weighed:
    """``_weighed`` for a table of few moves."""
    proved: list[Array] = []
    lower = 0.0

    def diagonal(lam: Array) -> Array:
        nonlocal lower
        out = np.asarray(lam * (table.T @ (parts / np.sqrt(table @ lam))))
        now = float(out.sum()) ** 2 / float(lam.sum())
        if now > lower:
            lower = now
            proved[:] = [lam / lam.sum()]
        return out

    optimum = certified_optimum(diagonal, table.shape[1], LIMITS.moves_tolerance, start=start)
    return _Weighed(optimum.v / optimum.v.sum(), proved[0], lower)


def _shares(errors: Array, each: Array) -> Array:
    """``s_b^2 ~ sqrt(e_b / d_b)``, or next to no noise where ``d_b = 0``."""
    errors = np.maximum(errors, LIMITS.negligible_error * float(errors.max()))
    moved = each > 0
    squares = np.ones(len(errors))
    squares[moved] = np.sqrt(errors[moved] / each[moved])
    squares[moved] /= float(squares[moved] @ each[moved])
    if not moved.any():
        return squares
    total = float((errors[moved] / squares[moved]).sum())
    squares[~moved] = LIMITS.public_total_maximum**2 * float(squares[moved].max())
    if total > 0:
        squares[~moved] = np.minimum(
            errors[~moved] / (LIMITS.public_total_error * total), squares[~moved]
        )
    return np.asarray(np.sqrt(squares), dtype=np.float64)


def _marginals(strategy: Marginals, objective: Objective, drops: bool) -> Strategy:
    """All shares in closed form from the weights of moves; the bound holds for every strategy."""
    uniform = _uniform_moves(strategy, drops)
    moves = strategy.moves(2, drops)
    options: list[Marginals] = []
    bound = 0.0
    for some_moves in (uniform,) if moves is None else (uniform, moves):
        errors = strategy.block_errors()
        weighed = _weighed(errors, some_moves)
        below = weighed.lower
        if objective == "max":
            below = 0.0
            for _ in range(LIMITS.moves_alternations):
                errors, worst = strategy.minimax_errors(some_moves.each(weighed.proof))
                below = max(below, worst)
                weighed = _weighed(errors, some_moves)
        options.append(strategy.with_shares(_shares(errors, some_moves.each(weighed.best))))
        bound = max(bound, below)
    options.append(strategy)
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    return replace(
        best, replace_one_bound=bound, objective=objective, bound=strategy.bound_for(objective)
    )


def _uniform_moves(strategy: Marginals, drops: bool) -> BlockMoves:
    """The mean move of two random cells: ``2 |M_A|^2 / (1 - 1/N)`` for all pieces but {}."""
    subsets = strategy.lattice
    norms, cells = strategy.piece_norms, strategy.domain_cells
    group = np.minimum(np.arange(subsets.pieces), 1)
    counts = np.bincount(group).astype(np.float64)
    distances = np.array([[0.0], [2 / (1 - 1 / cells)]])[: len(counts)]
    if drops:
        distances = np.concatenate([distances, np.ones((len(counts), 1))], axis=1)
    return BlockMoves(distances * counts[:, None], group, norms, counts)


def _orbit_bound(strategy: Factorization, objective: Objective, drops: bool) -> float:
    """The bound with ``L = diag(u) - u u'``, u in proportion to the weights of the orbits.

    Between cells of weights u_i and u_j, of sum 1, the weight of a pair is u_i u_j, in all
    ``(1 - sum u^2) / 2``. L differs from the diagonal in the subspace of class sums alone, where it
    takes out the direction of the total; a record in no cell is a cell of weight u_0, column 0.
    """
    try:
        problem = orbit_problem(strategy.workload)
    except PlanError:
        return 0.0
    if problem is None or strategy.weights is None:
        return 0.0
    cells = problem.cells
    v = strategy.weights / float(cells @ strategy.weights)
    best = 0.0
    for outside in LIMITS.dropped_weights if drops else (0.0,):
        u = (1 - outside) * v
        pairs = (1 - outside**2 - float(cells @ u**2)) / 2
        if pairs > 0:
            best = max(best, problem.trace(u, 1.0) ** 2 / pairs)
    return best / strategy.workload.queries if objective == "max" else best
