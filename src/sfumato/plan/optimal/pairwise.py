# SPDX-License-Identifier: Apache-2.0
"""The certified optimum for replace-one neighbours, for workloads of moderate rank.

With independent asked queries F_B, ``F = T F_B``, columns b_j of F_B and ``G = T' W T``, a strategy
``M = C F_B`` has the error ``tr(G Y^-1)``, ``Y = C'C``; pairs move by ``(b_i - b_j)'Y(b_i - b_j)``.
For weights lambda on pairs and ``K = sum lambda_ij (b_i - b_j)(b_i - b_j)'``,

    (tr (G^1/2 K G^1/2)^1/2)^2 / sum(lambda)  <=  tr(G Y^-1)  for all Y of diameter 1,

with equality for ``Y = G^1/2 (G^1/2 K G^1/2)^-1/2 G^1/2`` where every weighted pair is 1 apart:
``optimum.py`` once more, pairs taking the place of cells. Few pairs matter: the farthest join.

For the largest error the matrix ``T (b_i - b_j)``, queries by pairs, is factorized as any other
(``roots.py``): its columns are the moves.

Differences may span one direction less than F_B: then the total is a combination of the queries,
``1 = t F_B``. It is public, no pair moves it, and it is measured with next to no noise; all other
queries count modulo the total, in coordinates Q of the span of the differences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import EIGEN, must_stop, spend
from sfumato.plan.optimal.dense import Dense, dense
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.roots import best_root
from sfumato.plan.strategy import Block, Objective
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

__all__ = ["best_for_pairs"]

LARGEST_RANK = 96
MOST_CELLS = 1024  # distinct columns
MOST_QUERIES = 2**15
MOST_MOVED = 2**21  # queries times pairs of cells, for the largest error
TOLERANCE = 1e-3  # how close to its bound the error is driven
STEPS = 120
ROUNDS = 12
ENTRY_BITS = (14, 18, 22, 26)
ROUNDING = 1e-4
LOST = 1e-9  # of the bound: the rounding of eigenvalues
FLAT = 1e-9  # of the greatest singular value: differences do not reach such a direction
FREE = 2.0**-24  # of the error of all others: what noise on a public total may add
WIDEST = 2.0**10  # the greatest coefficient of the total, in those of the others
LEAST_SHARE = 1e-12  # of the greatest, squared: what every query is measured with at least
HELPED = 1e-3  # of the error: what queries too small to be reached may add
KEPT = 1e-7  # of the greatest weight: pairs below it leave again
DENOMINATORS = 64  # up to which the coefficients of the total are searched as fractions


def best_for_pairs(
    workload: Workload, objective: Objective, drops: bool, start: Dense | None = None
) -> Dense | None:
    """The best strategy for replaced records with its bound; None where too large.

    ``start`` is a strategy for add-remove neighbours, if one is known.
    """
    if workload.queries > MOST_QUERIES:
        return None
    try:
        start = start or dense(workload)
        problem = _problem(start, objective, drops)
        if problem is None:
            return None
        form, bound = _largest(problem) if objective == "max" else _solved(problem, start)
    except PlanError:
        return None
    found = _rounded(start, problem, _helped(problem, form, bound))
    if found is None:
        found = replace(start, mechanism="factorization")
    return replace(found, replace_one_bound=bound, objective=objective)


@dataclass(frozen=True, eq=False)
class _Problem:
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
        """G."""
        return (self.coordinates * self.squares[:, None]).T @ self.coordinates

    def errors(self, form: Array) -> Array:
        """The weighted squared error of every query, by the form Y on differences."""
        reading = self.coordinates @ self.basis
        each = (reading * np.linalg.solve(form, reading.T).T).sum(axis=1)
        return np.asarray(self.squares * each, dtype=np.float64)

    def error(self, form: Array) -> float:
        """Their sum, or the largest."""
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


def _problem(start: Dense, objective: Objective, drops: bool) -> _Problem | None:
    mixture = start.mixture
    rank, count = mixture.columns.shape
    if rank > LARGEST_RANK or count > MOST_CELLS:
        return None
    columns = np.ldexp(mixture.columns.astype(np.float64), -mixture.fraction_bits)
    if drops:
        columns = np.concatenate([columns, np.zeros((rank, 1))], axis=1)
    lengths = np.sqrt((columns**2).sum(axis=1))
    columns /= lengths[:, None]
    coordinates = (start.reconstruction @ mixture.entries.astype(np.float64)) * lengths
    squares = np.zeros(len(coordinates))
    for term, place in zip(start.workload.terms, start.places, strict=True):
        kept = place[place >= 0]
        if objective == "max":
            squares[kept] = np.maximum(squares[kept], term.weight**2)
        else:
            squares += term.weight**2 * np.bincount(kept, minlength=len(squares))
    left, sizes, _ = np.linalg.svd(columns - columns[:, :1], full_matrices=False)
    kept_rank = int((sizes > FLAT * sizes[0]).sum()) if sizes.size else 0
    if kept_rank == 0 or kept_rank < rank - 1:
        return None
    basis = left[:, :kept_rank]
    return _Problem(coordinates, squares, columns, lengths, basis, objective, drops)


def _largest(problem: _Problem) -> tuple[Array, float]:
    """The form Y on differences and the lower bound, for the largest error."""
    reading = problem.coordinates @ problem.basis
    points = problem.inner
    first, second = np.triu_indices(points.shape[1], 1)
    if len(reading) * len(first) > MOST_MOVED:
        raise TooLarge(f"{len(first):,} pairs of cells, for {len(reading):,} queries")
    matrix = reading @ (points[:, first] - points[:, second])
    asked = np.abs(matrix).max(axis=1) > 0
    found = best_root(matrix[asked], np.sqrt(problem.squares[asked]), "max", TOLERANCE)
    mixing = found.mixing @ reading[asked]
    form = _reaching(mixing.T @ mixing)
    return form / _widest(form, points), found.lower


def _solved(problem: _Problem, start: Dense) -> tuple[Array, float]:
    """The form Y on differences, and the greatest lower bound."""
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
    for _ in range(ROUNDS):
        apart = points[:, pairs[:, 0]] - points[:, pairs[:, 1]]

        def form(lam: Array, apart: Array = apart) -> Array:
            spend(EIGEN * float(rank) ** 3 + 2.0 * rank * rank * len(lam))
            inside = root @ ((apart * lam) @ apart.T) @ root
            own, directions = np.linalg.eigh(inside)
            own = np.maximum(own, own[-1] * 2.0**-50 * len(own))
            return np.asarray(root @ (directions / np.sqrt(own)) @ directions.T @ root)

        def diagonal(lam: Array, apart: Array = apart) -> Array:
            return np.asarray(
                lam * np.einsum("ip,ij,jp->p", apart, form(lam), apart, optimize=True)
            )

        found = certified_optimum(diagonal, len(pairs), TOLERANCE / 4, STEPS, start=weights)
        shape = _reaching(form(found.v))
        bound = max(bound, _below(root, apart, found.v), found.lower * (1 - LOST))
        widest = _widest(shape, points)
        now = problem.error(shape) * widest
        if now < error:
            best, error = shape / widest, now
        if error <= bound * (1 + TOLERANCE) ** 2 or must_stop():
            break
        lam = found.v / found.v.max()
        stay = pairs[lam > KEPT]
        joined = _farthest(shape, points, 2 * rank + 20)
        both = np.concatenate([stay, joined])
        pairs, where = np.unique(both, axis=0, return_index=True)
        weights = np.concatenate([lam[lam > KEPT], np.full(len(joined), 1e-3)])[where]
    return best, bound


def _reaching(form: Array) -> Array:
    """Queries can be so small that the best form does not reach them: all get a least share."""
    share = LEAST_SHARE * float(np.linalg.norm(form, 2))
    return np.asarray(form + share * np.eye(len(form)), dtype=np.float64)


def _helped(problem: _Problem, form: Array, bound: float) -> Array:
    """Queries that err by more than the optimum of all are measured as well: see ``dense.py``."""
    far = problem.errors(form) > bound * (1 + HELPED)
    if not far.any() or bound <= 0:
        return form
    error = bound if problem.objective == "max" else bound * HELPED / int(far.sum())
    reading = problem.coordinates[far] @ problem.basis
    more = form + (reading.T * problem.squares[far]) @ reading / error
    more = more / _widest(more, problem.inner)
    return more if problem.error(more) < problem.error(form) else form


def _below(root: Array, apart: Array, lam: Array) -> float:
    """The lower bound of pair weights; eigenvalues within rounding of 0 do not count."""
    values = np.linalg.eigvalsh(root @ ((apart * lam) @ apart.T) @ root)
    kept = values[values > values[-1] * len(values) * 2.0**-50]
    return float(np.sqrt(kept).sum()) ** 2 / float(lam.sum())


def _distances(form: Array, points: Array) -> Array:
    gram = points.T @ form @ points
    own = np.diag(gram)
    return np.asarray(own[:, None] + own[None, :] - 2 * gram, dtype=np.float64)


def _widest(form: Array, points: Array) -> float:
    return float(_distances(form, points).max())


def _farthest(form: Array, points: Array, count: int) -> Integers:
    """The pairs that are farthest apart."""
    first, second = np.triu_indices(points.shape[1], 1)
    apart = _distances(form, points)[first, second]
    chosen = np.argsort(-apart, kind="stable")[:count]
    return np.stack([first[chosen], second[chosen]], axis=1)


def _rounded(start: Dense, problem: _Problem, form: Array) -> Dense | None:
    """Integers in proportion to a root of the form, the total beside it, as few bits as will do."""
    values, vectors = np.linalg.eigh(form)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T @ problem.basis.T
    root = root / problem.lengths
    error = problem.error(form)
    total = _total_row(start, problem)
    best: Dense | None = None
    least = np.inf
    for bits in ENTRY_BITS:
        unit = float(np.abs(root).max()) / 2**bits
        entries = np.rint(root / unit).astype(np.int64)
        if total is not None:
            # The first rows leave out one direction x, ``Q'x = 0``, in which the total alone reads.
            read = total * problem.lengths
            alone = read - problem.basis @ (problem.basis.T @ read)
            alone = alone / float(alone @ read)
            wanted = sqrt(float(alone @ problem.gram @ alone) / (FREE * error)) / unit
            factor = max(np.ceil(min(wanted, WIDEST * 2**bits / np.abs(total).max())), 1.0)
            entries = np.concatenate([entries, np.rint(factor * total[None, :]).astype(np.int64)])
        if np.linalg.matrix_rank(entries.astype(np.float64)) < len(entries):
            continue
        found = _measured(start, entries)
        now = found.weighted_error(problem.objective, "replace-one", problem.drops)
        if now < least:
            best, least = found, now
        if least <= error * (1 + ROUNDING):
            break
    return best


def _total_row(start: Dense, problem: _Problem) -> Array | None:
    """The coefficients of a multiple of the total: whole numbers, if they are fractions.

    If they are not, a multiple is rounded like all other rows: then it moves, by as little as
    rounding moves those.
    """
    if problem.total is None:
        return None
    total = problem.total / problem.lengths
    mixture = start.mixture
    columns = np.ldexp(mixture.columns.astype(np.float64), -mixture.fraction_bits)
    for denominator in range(1, DENOMINATORS + 1):
        whole = np.rint(denominator * total)
        if float(np.abs(whole @ columns - denominator).max()) == 0.0:
            return np.asarray(whole, dtype=np.float64)
    return np.asarray(total, dtype=np.float64)


def _measured(start: Dense, entries: Integers) -> Dense:
    """The same queries, mixed by other integers."""
    mixture = replace(start.mixture, entries=np.ascontiguousarray(entries))
    coordinates = start.reconstruction @ start.mixture.entries.astype(np.float64)
    inverse = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    share = 1 / sqrt(mixture.greatest_column(2))
    return replace(
        start,
        mechanism="factorization",
        blocks=(Block(mixture, share),),
        reconstruction=np.asarray(inverse, dtype=np.float64),
    )
