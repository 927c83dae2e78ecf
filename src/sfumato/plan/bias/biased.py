# SPDX-License-Identifier: Apache-2.0
"""A strategy that trades bias for noise, for a public number of records.

``approximate.py`` finds R and M of least worst error over all data sets of n records; here M is
rounded to integers and measured exactly like every other block, and the bias is computed from the
rounded matrix, so that what is stated about it is true whatever was rounded: ``E = R M - F`` over
all classes of cells, ``n |E e_j|`` in the worst case. Between the data and the noise nothing is
different from an unbiased strategy, so privacy is that of ``calibrate.py``; the bias is a matter of
accuracy only, and post-processing.

Which number of records: the bias of h is at most ``n max_j |E_qj|``, so the statement holds for
every data set of at most ``records`` records. Where the number is exactly public (``replace-one``
neighbours), a constant can be added ``records`` times, which halves the bias of shares and more;
then it holds for that number only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite, prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.bias.approximate import ApproximateFactorization, least_worst_case
from sfumato.plan.bias.conjunctions import conjunctions_by_polynomial
from sfumato.plan.bias.literals import is_conjunctive
from sfumato.plan.optimal.piece import Piece
from sfumato.plan.solve.symmetry import CLASS_PART, Axis
from sfumato.plan.strategy import Block, GaussianStrategy, Objective, Strategy
from sfumato.workload.classes import joint_classes
from sfumato.workload.queries import (
    Array,
    Integers,
    QuerySet,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload import Workload

__all__ = ["Biased", "approximate"]

ENTRY_BITS = (14, 18, 22, 26, 30)  # tried until rounding costs next to nothing
ROUNDING = 1e-4
MOST_ENTRIES = 2**23  # queries by classes of cells
MOST_CELLS = 2**25  # of the table that is counted
MOST_CLASSES = 2**11  # classes of cells: columns of the matrix that is factorized
NEGLIGIBLE = 1e-8  # measured values below this part of the greatest are left out
SLACK = 1e-9  # relative: covers the float rounding of E
ROUNDS = 8  # of weights on the queries, for the largest error
GOOD_ENOUGH = 1e-2
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class Biased(GaussianStrategy):
    """``R y + records * offset``; ``bias`` holds E over the classes of cells, row by query."""

    reconstruction: Array
    offset: Array
    bias: Array

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y`` of the rows of the term, and the constant."""
        rows = self._rows(term)
        found = self.reconstruction[rows] @ np.asarray(values[0], dtype=np.float64)
        return np.asarray(found + (self.records or 0) * self.offset[rows], dtype=np.float64)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared rows of R."""
        return block_variances[0] * self._squares[self._rows(term)]

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: the constant carries no noise."""
        weights = self.reconstruction[self._rows(term)].T @ coefficients
        return {0: np.asarray(weights, dtype=np.float64)} if weights.any() else {}

    def bias_bounds(self, term: int) -> Array:
        """``max_j |E_qj|``."""
        return self._bounds[self._rows(term)]

    def squared_bias(self, term: int | None = None) -> float:
        """``max_j |E e_j|^2`` over the queries of a term, or over all."""
        rows = slice(None) if term is None else self._rows(term)
        return float((self.bias[rows] ** 2).sum(axis=0).max()) * (1 + SLACK)

    def describe(self) -> list[str]:
        """The block, and what the bias comes to."""
        worst = (self.squared_bias() / len(self.bias)) ** 0.5
        told = f"biased by at most {worst:.4g} per record, root mean square over the queries"
        return [*super().describe(), told]

    @cached_property
    def _bounds(self) -> Array:
        return np.asarray(np.abs(self.bias).max(axis=1) * (1 + SLACK), dtype=np.float64)

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.reconstruction**2).sum(axis=1), dtype=np.float64)

    def _rows(self, term: int) -> slice:
        first = sum(t.rows for t in self.workload.terms[:term])
        return slice(first, first + self.workload.terms[term].rows)


def approximate(
    workload: Workload,
    loss: float,
    records: int,
    objective: str = "rmse",
    *,
    is_exact: bool = False,
) -> Strategy:
    """The strategy of least worst error over all data sets of at most ``records`` records.

    ``loss`` is the mu of the Gaussian noise; ``is_exact`` says that the number of records is
    public and exactly this. Conjunctions of many yes/no attributes go by polynomials; all else
    must be small enough for one matrix. PlanError and TooLarge say what does not fit.
    """
    _check(loss, records, objective)
    try:
        return _as_one_matrix(workload, loss, records, objective, is_exact)
    except TooLarge:
        if not is_conjunctive(workload):
            raise
    return conjunctions_by_polynomial(workload, records, loss, objective)


def _check(loss: float, records: int, objective: str) -> None:
    if not (isinstance(loss, int | float) and isfinite(loss) and loss > 0):
        raise PlanError(f"the privacy loss mu must be a number above 0, got {loss!r}")
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise PlanError(
            f"a biased strategy is made for a public number of records, at least 1, got "
            f"{records!r}; say records=..."
        )
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")


def _as_one_matrix(
    workload: Workload, loss: float, records: int, objective: str, is_exact: bool
) -> Biased:
    axes = _axes(workload)
    matrix = np.concatenate([_coefficients(t, axes) for t in workload.terms])
    asked = np.concatenate([np.full(t.rows, t.weight) for t in workload.terms])
    if not matrix.any():
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    tau = (loss * records) ** -2.0
    if objective == "max":
        found = _least_largest(matrix, asked, tau, is_exact)
    else:
        found = _weighted(matrix, asked, tau, is_exact)
    if not found.R.any():
        raise PlanError(
            f"at mu = {loss:.3g} the noise is so large that nothing measured of {records:,} "
            "records is better than nothing; give more budget or ask less"
        )
    return _rounded(workload, axes, matrix, found, records, objective)


def _weighted(
    matrix: Array, weights: Array, tau: float, is_exact: bool
) -> ApproximateFactorization:
    """The least worst case of the queries times their weights, in the queries' own units."""
    found = least_worst_case(matrix * weights[:, None], tau, "best" if is_exact else None)
    offset = None if found.offset is None else found.offset / weights
    return replace(
        found, R=found.R / weights[:, None], bias=found.bias / weights[:, None], offset=offset
    )


def _least_largest(
    matrix: Array, asked: Array, tau: float, is_exact: bool
) -> ApproximateFactorization:
    """The least ``max_q w_q^2 (tau |r_q|^2 + max_j E_qj^2)`` seen, large errors weighed up."""
    weights = asked
    best, least = _weighted(matrix, weights, tau, is_exact), inf
    found = best
    for _ in range(ROUNDS):
        errors = asked * np.sqrt(tau * found.variances + found.bias_bounds**2)
        worst = float(errors.max())
        if worst < least:
            best, least = found, worst
        if float(errors.min()) > worst * (1 - GOOD_ENOUGH):
            break
        weights = weights * np.sqrt(np.maximum(errors / worst, LEAST_WEIGHT))
        found = _weighted(matrix, weights, tau, is_exact)
    return best


def _rounded(
    workload: Workload,
    axes: tuple[Axis, ...],
    matrix: Array,
    found: ApproximateFactorization,
    records: int,
    objective: str,
) -> Biased:
    """M as integers times a unit, and E of what is measured then."""
    used = np.linalg.norm(found.R, axis=0) * np.abs(found.M).max(axis=1)
    kept = used > used.max() * NEGLIGIBLE
    aim_squared = found.worst_error() ** 2 * (1 + ROUNDING)
    offset = np.zeros(len(matrix)) if found.offset is None else found.offset
    for bits in ENTRY_BITS:
        unit = float(np.abs(found.M[kept]).max()) / 2**bits
        entries = np.rint(found.M[kept] / unit).astype(np.int64)
        reconstruction, whole = found.R[:, kept] * unit, entries.astype(np.float64)
        bias = reconstruction @ whole + offset[:, None] - matrix
        noise = (found.noise or 0.0) * float((reconstruction**2).sum() * _longest(whole))
        if float((bias**2).sum(axis=0).max()) + noise <= aim_squared * len(matrix):
            break
    name = "approximation of " + " x ".join(a.name for a in axes)
    piece = Piece(workload.domain, name, 1.0, axes, (CLASS_PART,) * len(axes), entries)
    aim: Objective = "max" if objective == "max" else "rmse"
    return Biased(
        "approximate",
        "gaussian",
        workload,
        (Block(piece, unit),),
        reconstruction,
        offset,
        bias,
        objective=aim,
        records=records,
    )


def _longest(matrix: Array) -> float:
    return float((matrix**2).sum(axis=0).max())


def _axes(workload: Workload) -> tuple[Axis, ...]:
    """The attributes with the classes of their cells that some query tells apart."""
    keys: dict[str, list[Integers]] = {}
    for term in workload.terms:
        if isinstance(term, Product):
            for name, queries in term.factors:
                keys.setdefault(name, []).append(_classes(queries))
        elif isinstance(term, Predicates):
            for name, of in zip(term.classes.names, term.classes.class_of, strict=True):
                keys.setdefault(name, []).append(of)
        else:
            for name in term.attributes:
                keys.setdefault(name, []).append(np.arange(workload.domain[name].size))
    found = [Axis(n, joint_classes(keys[n])) for n in workload.domain.in_order(keys)]
    axes = tuple(a for a in found if a.classes > 1)
    if not axes:
        raise PlanError("the queries do not tell any two cells apart: only totals are asked")
    classes, cells = prod(a.classes for a in axes), prod(a.cells for a in axes)
    if classes > MOST_CLASSES or classes * workload.queries > MOST_ENTRIES or cells > MOST_CELLS:
        raise TooLarge(
            f"{workload.queries:,} queries that tell {classes:,} classes of cells apart, in a "
            f"table of {cells:,}; approximate factorization takes at most {MOST_CLASSES:,} "
            f"classes, {MOST_ENTRIES:,} coefficients and {MOST_CELLS:,} cells: ask about fewer "
            "attributes at once"
        )
    return axes


def _classes(queries: QuerySet) -> Integers:
    """Cells with equal columns get equal numbers."""
    if queries.rows * queries.size > MOST_ENTRIES and not queries.is_disjoint:
        return np.arange(queries.size)
    classes = queries.cell_classes()
    if classes is not None:
        return classes
    return np.unique(queries.dense(), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _coefficients(term: Term, axes: tuple[Axis, ...]) -> Array:
    """A row per query, a column per product of classes, read off the first cell of each."""
    firsts = {a.name: np.unique(a.class_of, return_index=True)[1] for a in axes}
    kept = [a.name for a in axes if a.name in term.attributes]
    at = {n: firsts.get(n, np.zeros(1, dtype=np.int64)) for n in term.attributes}
    if isinstance(term, Product):
        own = np.ones((1, 1))
        for name, queries in term.factors:
            part = queries.dense()[:, at[name]]
            own = np.asarray(np.kron(own, part), dtype=np.float64)
    elif isinstance(term, Explicit):
        cells = np.ravel_multi_index(np.ix_(*(at[n] for n in term.attributes)), term.shape)
        own = np.asarray(term.matrix[:, cells.reshape(-1)].todense(), dtype=np.float64)
    elif isinstance(term, Predicates):
        classes = term.classes
        places = [of[at[n]] for n, of in zip(classes.names, classes.class_of, strict=True)]
        rows = [classes.truth(c)[np.ix_(*places)].reshape(-1) for c in term.conditions]
        own = np.array(rows, dtype=np.float64)
    else:
        raise PlanError(f"group {term.name!r} has no list of coefficients")
    spread = own.reshape(term.rows, *(len(firsts[a.name]) if a.name in kept else 1 for a in axes))
    whole = np.broadcast_to(spread, (term.rows, *(a.classes for a in axes)))
    return np.ascontiguousarray(whole.reshape(term.rows, -1))
