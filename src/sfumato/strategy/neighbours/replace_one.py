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

``best_for_pairs`` is the certified optimum for queries that can be listed, ``best_on_cells``
(``cell_pairs.py``) for unions of products that tell few cells apart.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, must_stop, portion, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root, certified_optimum
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.base import Block, Strategy
from sfumato.strategy.conditions import Conditions
from sfumato.strategy.degrees import ByDegree, least_replaced
from sfumato.strategy.factorization import Factorization
from sfumato.strategy.laplace.atoms import in_span, replacements
from sfumato.strategy.marginals import Marginals, marginals_optimum
from sfumato.strategy.matrix import Dense, dense, distinct_columns, distinct_queries
from sfumato.strategy.moves import BlockMoves
from sfumato.strategy.neighbours.cell_pairs import (
    LOST,
    best_on_cells,
    least_on_cells,
    least_on_columns,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Objective
from sfumato.workload.sensitivity import greatest_column_power
from sfumato.workload.workload import Workload

__all__ = [
    "best_for_pairs",
    "for_replace_one",
    "least_for_replaced",
]


# The certified optimum over pairs of cells


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
    if start is None and not _may_be_small(workload):
        return None
    try:
        start = start or dense(workload)
        problem = _problem(start, objective, drops)
        if problem is None:
            return None
        form, bound = _minimax(problem) if objective == "max" else _solved(problem, start)
    except PlanError:
        return None
    rounded = _rounded(start, problem, _helped(problem, form, bound))
    if rounded is None:
        rounded = replace(start, mechanism="factorization")
    return replace(rounded, replace_one_bound=bound, objective=objective)


def _may_be_small(workload: Workload) -> bool:
    """Whether the strategy for one added record, where none is known, takes little time to find."""
    names = workload.domain.in_order({n for t in workload.terms for n in t.attributes})
    return workload.domain.cells(names) <= LIMITS.pairwise_cut_cells


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


def _solved(problem: _PairProblem, start: Dense) -> tuple[Array, float]:
    """The form Y on differences, and the greatest lower bound."""
    rank, count = problem.columns.shape
    if rank <= LIMITS.pairwise_cut_rank and count <= LIMITS.pairwise_cut_cells:
        return _cut(problem, start)
    points = problem.inner
    small = problem.basis.T @ problem.gram @ problem.basis
    optimum = _weighed_pairs(small, points)
    form = _reaching(optimum.form)
    return form / _widest_pairs(form, points), optimum.lower


def _cut(problem: _PairProblem, start: Dense) -> tuple[Array, float]:
    """The form Y on differences, and the greatest lower bound; of few pairs, which join."""
    points = problem.inner
    small = problem.basis.T @ problem.gram @ problem.basis
    values, vectors = np.linalg.eigh(small)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    first = problem.basis.T @ (start.mixture.entries * problem.lengths).T
    rank = len(points)
    pairs = _farthest(first @ first.T, points, 6 * rank + 20)
    # every cell takes part at first, so that K has full rank
    cells = np.arange(1, points.shape[1])
    pairs = np.unique(np.concatenate([pairs, np.stack([0 * cells, cells], axis=1)]), axis=0)
    weights: Array | None = None
    best, bound = np.eye(rank), 0.0
    error = np.inf
    for _ in range(LIMITS.pairwise_cuts):
        apart = points[:, pairs[:, 0]] - points[:, pairs[:, 1]]

        def form(lam: Array, apart: Array = apart) -> Array:
            spend(EIGEN * float(rank) ** 3 + 2.0 * rank * rank * len(lam))
            inside = root @ ((apart * lam) @ apart.T) @ root
            own, directions = np.linalg.eigh(inside)
            own = np.maximum(own, own[-1] * EIGEN_ROUNDING * len(own))
            return np.asarray(root @ (directions / np.sqrt(own)) @ directions.T @ root)

        def diagonal(lam: Array, apart: Array = apart) -> Array:
            return np.asarray(
                lam * np.einsum("ip,ij,jp->p", apart, form(lam), apart, optimize=True)
            )

        optimum = certified_optimum(
            diagonal,
            len(pairs),
            LIMITS.pairwise_tolerance / 4,
            LIMITS.pairwise_cut_steps,
            start=weights,
        )
        shape = _reaching(form(optimum.v))
        bound = max(bound, _below(root, apart, optimum.v), optimum.lower * (1 - LOST))
        widest = _widest_pairs(shape, points)
        now = problem.error(shape) * widest
        if now < error:
            best, error = shape / widest, now
        if error <= bound * (1 + LIMITS.pairwise_tolerance) ** 2 or must_stop():
            break
        lam = optimum.v / optimum.v.max()
        stay = pairs[lam > LIMITS.pairwise_left_weight]
        joined = _farthest(shape, points, 2 * rank + 20)
        both = np.concatenate([stay, joined])
        pairs, where = np.unique(both, axis=0, return_index=True)
        weights = np.concatenate(
            [lam[lam > LIMITS.pairwise_left_weight], np.full(len(joined), 1e-3)]
        )[where]
    return best, bound


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


def _below(root: Array, apart: Array, lam: Array) -> float:
    """The lower bound of pair weights; eigenvalues within rounding of 0 do not count."""
    values = np.linalg.eigvalsh(root @ ((apart * lam) @ apart.T) @ root)
    positive = values[values > values[-1] * len(values) * EIGEN_ROUNDING]
    return float(np.sqrt(positive).sum()) ** 2 / float(lam.sum())


def _distances(form: Array, points: Array) -> Array:
    gram = points.T @ form @ points
    own = np.diag(gram)
    return np.asarray(own[:, None] + own[None, :] - 2 * gram, dtype=np.float64)


def _widest_pairs(form: Array, points: Array) -> float:
    return float(_distances(form, points).max())


def _farthest(form: Array, points: Array, count: int) -> Integers:
    """The pairs that are farthest apart."""
    first, second = np.triu_indices(points.shape[1], 1)
    apart = _distances(form, points)[first, second]
    chosen = np.argsort(-apart, kind="stable")[:count]
    return np.stack([first[chosen], second[chosen]], axis=1)


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
    if isinstance(strategy, ByDegree):
        return _degrees(strategy, objective, drops)
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
            pairwise = best_on_cells(strategy.workload, drops, LIMITS.pairwise_cut_rank)
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
    """The best of Laplace strategies, or a mixture made for the L1 diameter if that errs less.

    With a lower bound for Gaussian noise, which holds for Laplace noise too.
    """
    work = strategy.workload
    if strategy.mechanism != "laplace-optimum":
        return strategy
    bounds = [least_for_replaced(work, objective, drops)]
    bounds += [strategy.bound_for(objective) or 0.0] if drops else []
    strategy = replace(strategy, replace_one_bound=max(bounds) or None)
    if all(t.is_table for t in work.terms):
        return strategy
    least = strategy.weighted_error("rmse", "replace-one", drops)
    try:
        mixed = in_span(work, objective, least, with_bound=False, moves=replacements(drops))
    except PlanError:
        return strategy
    mixed = replace(
        mixed,
        bound=strategy.bound_for(objective),
        replace_one_bound=strategy.replace_one_bound,
        objective=objective,
    )
    return min([strategy, mixed], key=lambda s: s.weighted_error(objective, "replace-one", drops))


def least_for_replaced(workload: Workload, objective: Objective, drops: bool) -> float:
    """A lower bound on the weighted squared error of every strategy, or 0: that of the optimum.

    In closed form for tables of counts; on cells for other products; on columns for other queries.
    """
    tables = marginals_optimum(workload, objective)
    if tables is not None:
        return for_replace_one(tables, objective, drops).replace_one_bound or 0.0
    with portion(LIMITS.atom_bound_multiplications):
        whole = least_on_cells(workload, drops)
        if not whole and workload.queries <= LIMITS.pairwise_rank:
            with suppress(PlanError):
                columns = distinct_columns(workload.domain, workload.terms)
                queries = distinct_queries(columns, workload.terms, "rmse")
                matrix = np.asarray(queries.matrix, dtype=np.float64) * queries.weights[:, None]
                whole = least_on_columns(matrix.T @ matrix, drops)
    return whole if objective == "rmse" else whole / workload.queries


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
        alone = [greatest_column_power([b.term], [1.0], 2).power for b in strategy.blocks]
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


def _degrees(strategy: ByDegree, objective: Objective, drops: bool) -> Strategy:
    """Shares of the degrees from the weights of moves, and the bound of weights on cells."""
    moves, weights = strategy._moves(2, drops), strategy.family.weights
    errors = strategy.block_errors()
    weighed = _weighed(errors, moves)
    if objective == "max":
        for _ in range(LIMITS.moves_alternations):
            errors, weights = strategy.minimax_errors(moves.each(weighed.proof))
            weighed = _weighed(errors, moves)
    each = moves.each(weighed.best)
    reweighted = _with_shares(strategy, _shares(errors, each))
    freed = _with_shares(strategy, np.where(each > 0, strategy.shares, reweighted.shares))
    options: list[Strategy] = [strategy, freed, reweighted]
    add_remove_bound = strategy.bound_for(objective)
    bounds = [least_replaced(weights, drops), (add_remove_bound or 0.0) if drops else 0.0]
    if objective == "rmse" and strategy.workload.queries <= LIMITS.symmetric_pairs:
        pairwise = best_for_pairs(strategy.workload, objective, drops)
        if pairwise is not None:
            options.append(pairwise)
            bounds.append(pairwise.replace_one_bound or 0.0)
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    return replace(best, replace_one_bound=max(bounds), objective=objective, bound=add_remove_bound)


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
