# SPDX-License-Identifier: Apache-2.0
"""The certified optimum of any workload that is one matrix of moderate rank.

Conditions over astronomically many cells, given coefficients and products, alone or together: cells
with equal columns are merged (``decision_diagram.py``), equal queries become one with the sum of
their squared weights, and the optimal ``M = H F`` is found on what is left (``nuclear.py``). H is
then rewritten for independent asked queries F_B and rounded to integers C, so that ``M = C F_B``
can be measured exactly (``measured.py``). C is invertible, so the span of the queries is kept,
whatever was rounded: with ``F = T F_B`` the answers ``T C^-1 y`` are unbiased. The sensitivity and
the diameter are those of the integers, over all different columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import ClassVar

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import must_stop
from sfumato.solve.farthest import farthest_pair
from sfumato.solve.nuclear import LARGEST_SIDE, best_root, spanning_cells
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.decision_diagram import Columns, distinct_columns
from sfumato.strategy.measured import Mixture
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, Objective, SearchProgress
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "Dense",
    "Mixed",
    "dense",
]


# --------------------
# Strategies of one mixture: the reconstruction is a matrix R, answers are rows of ``R y``.
#
# How long the columns of the mixture are is known exactly (``factorize.py``) or proved
# (``conditions.py``).


@dataclass(frozen=True, eq=False)
class Mixed(GaussianStrategy):
    """One block; row ``places[t][i]`` of the reconstruction answers query i of term t.

    Queries without a place (-1) are zero on all cells.
    """

    _algorithm: ClassVar[str] = "matrix"

    places: tuple[Integers, ...]
    reconstruction: Array

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y``."""
        estimates = self.reconstruction @ np.asarray(values[0], dtype=np.float64)
        return self._taken(term, estimates)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared rows of R."""
        return block_variances[0] * self._taken(term, self._squares)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``."""
        place, c = self.places[term], np.asarray(coefficients, dtype=np.float64)
        is_placed = place >= 0
        summed = np.bincount(
            place[is_placed], weights=c[is_placed], minlength=len(self.reconstruction)
        )
        weights = np.asarray(self.reconstruction.T @ summed, dtype=np.float64)
        return {0: weights} if weights.any() else {}

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.reconstruction**2).sum(axis=1), dtype=np.float64)

    def _taken(self, term: int, values: Array) -> Array:
        return np.append(values, 0.0)[self.places[term]]


LARGEST = 2.0**62  # whole numbers that 64 bits hold, with room; a mixture refuses larger ones


class Dense(Mixed):
    """A mixture all of whose columns are known."""

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """Exact, over all different columns."""
        return SensitivityBound(self._columns[norm] * scales[0] * ROUND_UP, is_exact=True)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """The farthest two columns, of which one may be that of cells that no query counts."""
        if norm != 2:
            return super()._diameters(norm)
        mixture = self.mixture
        longest = self._columns[2]
        if mixture.rows * mixture.columns.shape[1] > LIMITS.diameter_numbers:
            return (4 * longest * ROUND_UP,)
        farthest = farthest_pair(np.concatenate(list(mixture.chunks()), axis=1))
        # Either column may be off, and so is a difference of nearly equal long ones.
        off = 2 * mixture.greatest_error + 2.0**-50 * sqrt(longest)
        return (min((sqrt(farthest) + off) ** 2, 4 * longest) * ROUND_UP,)

    @cached_property
    def mixture(self) -> Mixture:
        """Its one block."""
        term = self.blocks[0].term
        if not isinstance(term, Mixture):
            raise TypeError("the block of a dense strategy is a mixture")
        return term

    @cached_property
    def _columns(self) -> dict[int, float]:
        return {p: self.mixture.greatest_column(p) for p in (1, 2)}


def dense(
    workload: Workload, objective: Objective = "rmse", progress: SearchProgress | None = None
) -> Dense:
    """The best strategy for the mean ("rmse") or the largest ("max") error, with its bound.

    ``bound`` is below ``weighted_error(objective)`` of every unbiased strategy.
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    columns = distinct_columns(workload.domain, workload.terms)
    queries = _distinct_queries(columns, workload.terms, objective)
    used = np.flatnonzero(np.abs(queries.matrix).max(axis=0) > 0)
    matrix = queries.matrix if len(used) == queries.matrix.shape[1] else queries.matrix[:, used]
    cells = spanning_cells(matrix)
    basis, coordinates = _basis(matrix, cells)
    root = best_root(matrix, queries.weights, objective, LIMITS.matrix_tolerance, progress, cells)
    whole = queries.matrix[basis]  # with the cells that no query counts
    options = _invertible(root.mixing @ coordinates, whole)
    if len(options) > 1:
        options.insert(0, _helped(options[0], coordinates, queries.weights, root.lower, objective))
    entries = _rounded(options, coordinates, whole, queries.weights, objective)
    mixture = _mixture(workload, columns, queries, basis, entries)
    inverse = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    share = 1 / sqrt(mixture.greatest_column(2))
    return Dense(
        "dense",
        "gaussian",
        workload,
        (Block(mixture, share),),
        queries.places,
        np.asarray(inverse, dtype=np.float64),
        bound=root.lower,
        objective=objective,
    )


@dataclass(frozen=True, eq=False)
class _Distinct:
    """Different queries that are not zero, in floats or int8, with weights and where they are."""

    matrix: Numbers
    weights: Array
    places: tuple[Integers, ...]


def _distinct_queries(columns: Columns, terms: Sequence[Term], objective: Objective) -> _Distinct:
    """Equal queries once: squared weights add up for the mean, the greatest counts for the max."""
    number: dict[bytes, int] = {}
    rows: list[int] = []
    squares: list[float] = []
    places: list[Integers] = []
    row = 0
    for term in terms:
        place = np.full(term.rows, -1, dtype=np.int64)
        for i in range(term.rows):
            coefficients = columns.matrix[row]
            if coefficients.any():
                index = number.setdefault((coefficients + 0).tobytes(), len(rows))
                if index == len(rows):
                    rows.append(row)
                    squares.append(0.0)
                more = term.weight**2
                squares[index] = (
                    max(squares[index], more) if objective == "max" else squares[index] + more
                )
                place[i] = index
            row += 1
        places.append(place)
    if not rows:
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    return _Distinct(columns.matrix[rows], np.sqrt(squares), tuple(places))


def _basis(matrix: Numbers, cells: Integers) -> tuple[Integers, Array]:
    """Independent queries b and coordinates T with ``F = T F_b``."""
    from scipy.linalg import qr

    if min(len(matrix), len(cells)) > LARGEST_SIDE:
        raise TooLarge(
            f"{len(matrix):,} distinct queries on {matrix.shape[1]:,} distinct cells are too many "
            f"for one matrix; one side must be at most {LARGEST_SIDE:,}"
        )
    some = matrix[:, cells].astype(np.float64)
    lengths = np.linalg.norm(some, axis=1, keepdims=True)
    sized = some / lengths
    triangle, order = qr((sized * _preferred(lengths)).T, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    rank = int((pivots > pivots[0] * LIMITS.dependent_part).sum())
    if rank > LIMITS.matrix_rank:
        raise TooLarge(
            f"the queries have rank {rank:,}; at most {LIMITS.matrix_rank:,} values are measured "
            "as one "
            "matrix: products of query sets have better ways"
        )
    basis = np.sort(order[:rank]).astype(np.int64)
    _, where = qr(sized[basis], mode="r", pivoting=True)
    square = sized[:, where[:rank]]  # as many cells as queries, as independent as can be
    parts = np.linalg.solve(square[basis].T, square.T).T
    # How much of its own length a query owes to each of the basis: what is rounding, and what is
    # not, does not depend on how long queries are.
    parts[np.abs(parts) < LIMITS.dependent_part] = 0.0
    coordinates = parts * lengths / lengths[basis].T
    coordinates[basis] = np.eye(rank)
    near = np.rint(coordinates)
    is_near = (near != 0) & (np.abs(coordinates - near) < LIMITS.dependent_part)
    coordinates = np.where(is_near, near, coordinates)
    off = np.abs((coordinates @ some[basis] - some) / lengths).max()
    if off > LIMITS.dependent_part:
        raise PlanError(
            f"the queries depend on each other too closely: rewriting them errs by {off:.1e}; "
            "leave out those that nearly repeat others"
        )
    return basis, np.asarray(coordinates, dtype=np.float64)


def _preferred(lengths: Array) -> Array:
    """Between 1 and 2: of queries that say about the same, a long one joins the basis.

    A multiple of a much shorter one would need coefficients as much larger.
    """
    if float(lengths.max()) <= LIMITS.uneven_lengths * float(lengths.min()):
        return np.ones_like(lengths)
    return np.asarray(1 + np.log(lengths / lengths.min()) / np.log(lengths.max() / lengths.min()))


def _invertible(mixing: Array, basis: Numbers) -> list[Array]:
    """The symmetric root of ``mixing' mixing``: the same X, and one answer on every machine.

    X may not reach queries that are very small beside others. Then all are measured with a least
    share: of their own length, or, as good as ever for small ones, of queries of length 1.
    """
    singular, right = _directions(mixing)
    least = LIMITS.matrix_singular_minimum * singular[0]
    plain = (right.T * np.maximum(singular, least)) @ right
    if singular[-1] >= least:
        return [plain]
    lengths = np.linalg.norm(basis.astype(np.float64), axis=1)
    singular, right = _directions(mixing * lengths)
    sizes = np.maximum(singular, LIMITS.matrix_singular_minimum * singular[0])
    return [(right.T * sizes) @ right / lengths, plain]


def _helped(
    mixing: Array, coordinates: Array, weights: Array, lower: float, objective: Objective
) -> Array:
    """Queries that err by more than the optimum of all are measured as well, just well enough.

    Noise on ``q`` times its weight over the root of an error makes this error, squared: that of the
    optimum for the largest error, a small part of it for the sum.
    """
    inverse = np.linalg.solve(mixing.T, coordinates.T).T
    far = weights**2 * (inverse**2).sum(axis=1) > lower * (1 + LIMITS.matrix_rounding)
    error = lower if objective == "max" else lower * LIMITS.matrix_helped / max(int(far.sum()), 1)
    rows = coordinates[far] * (weights[far] / sqrt(error))[:, None]
    singular, right = _directions(np.concatenate([mixing, rows]))
    return np.asarray((right.T * singular) @ right, dtype=np.float64)


def _directions(mixing: Array) -> tuple[Array, Array]:
    """All singular values, also those that are 0, and the right vectors."""
    _, singular, right = np.linalg.svd(mixing, full_matrices=True)
    sizes = np.zeros(len(right))
    sizes[: len(singular)] = singular
    return sizes, np.asarray(right, dtype=np.float64)


def _rounded(
    options: list[Array], coordinates: Array, basis: Numbers, weights: Array, objective: Objective
) -> Integers:
    """Integers in proportion to a mixing, as few bits as rounding may cost, of the least error.

    When planning must end they are not searched for: the most are taken.
    """

    def error(matrix: Array) -> float:
        inverse = np.linalg.solve(matrix.T, coordinates.T).T
        squares = weights**2 * (inverse**2).sum(axis=1)
        worst = float(squares.max() if objective == "max" else squares.sum())
        return worst * _longest(matrix, basis)

    best: Integers | None = None
    least = np.inf
    is_late = must_stop()
    for mixing in options:
        aim = np.inf if is_late else error(mixing) * (1 + LIMITS.matrix_rounding)
        for bits in LIMITS.entry_bits[-1:] if is_late else LIMITS.entry_bits:
            unit = float(np.abs(mixing).max()) / 2**bits
            entries: Integers = np.rint(mixing / unit).astype(np.int64)
            matrix = entries.astype(np.float64)
            if np.linalg.matrix_rank(matrix) < len(matrix):
                continue
            if is_late:
                return entries
            now = error(matrix)
            if now < least:
                best, least = entries, now
            if now <= aim:
                break
    if best is None:
        raise PlanError("the strategy cannot be rounded to integers; scale the queries alike")
    return best


def _longest(matrix: Array, basis: Numbers) -> float:
    """The greatest squared column of ``matrix @ basis``."""
    step = max(1, LIMITS.numbers_at_once // len(matrix))
    parts = (basis[:, i : i + step].astype(np.float64) for i in range(0, basis.shape[1], step))
    return max(float(((matrix @ p) ** 2).sum(axis=0).max()) for p in parts)


def _mixture(
    workload: Workload, columns: Columns, queries: _Distinct, basis: Integers, entries: Integers
) -> Mixture:
    """The integers applied to the first asked query of each kind in the basis."""
    terms, picked, order = [], [], []
    left = {int(b): i for i, b in enumerate(basis)}
    for term, place in zip(workload.terms, queries.places, strict=True):
        rows = []
        for i, p in enumerate(place.tolist()):
            if p in left:
                rows.append(i)
                order.append(left.pop(p))
        if rows:
            terms.append(term)
            picked.append(np.array(rows, dtype=np.int64))
    bits = max(t.fraction_bits for t in terms)
    scaled = queries.matrix[basis[order]]
    if bits:
        common = np.ldexp(scaled.astype(np.float64), bits)
        # Beyond 64 bits whole numbers would be cut off silently, and with them the sensitivity.
        scaled = common if np.abs(common).max() > LARGEST else np.rint(common).astype(np.int64)
    return Mixture(
        workload.domain,
        f"mixture of {len(basis):,} queries",
        1.0,
        tuple(terms),
        tuple(picked),
        np.ascontiguousarray(entries[:, order]),
        scaled,
        columns.sizes,
    )
