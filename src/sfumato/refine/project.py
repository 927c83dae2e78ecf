# SPDX-License-Identifier: Apache-2.0
"""``project``: noisy answers to the nearest ones that some data set has.

Post-processing of public numbers: it costs no privacy (Dwork, Roth 2014, Proposition 2.1). The
answers of data sets form a convex set, so in the norm that is minimised the result is never
farther from the truth than what came in, and mostly much nearer; see
``docs/mechanisms/projection.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.cells.explicit import MOST_CELLS, Estimate, agreed_total, fit_explicit
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.metric import inverse_covariance
from sfumato.refine.fit import Fit, Part, fit_answers
from sfumato.wording import listing, shown
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array, Integers
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Projected", "project"]

Progress = Callable[[int, int, str], None]
Numbered = Array | Sequence[float] | Sequence[Array] | Mapping[str, Array]

LARGEST = 1e100  # of an answer or a total: squares of it times weights are still floats
SMALLEST = 1e-100
LOOSEST = 0.01  # the relative gap that a search for rows stops at


@dataclass(frozen=True, eq=False)
class Projected:
    """Answers that some histogram has, and how near to the projection they are certified to be.

    ``value`` is ``1/2 |answers - given|_W^2``; it is at most ``gap`` above the least one, and
    the answers are within ``distance_bound`` of the projection in the same norm. If the objective
    is ``"max"`` the norm is the largest ``sqrt(weight) |answer - given|``, and the value is it.
    ``cells`` are the codes of ``attributes``, one row for each cell that carries weight; where no
    query tells cells apart, one stands for all.
    """

    answers: Array
    groups: tuple[Array, ...]
    value: float
    gap: float
    distance_bound: float
    total: float
    attributes: tuple[str, ...]
    cells: Integers
    weights: Array
    method: str
    converged: bool
    objective: str = "rmse"

    def __repr__(self) -> str:
        state = "" if self.converged else ", not converged"
        moved = self.value if self.objective == "max" else (2 * self.value) ** 0.5
        return (
            f"Projected({len(self.answers):,} answers of {self.total:,.6g} records on "
            f"{len(self.weights):,} cells of {len(self.attributes)} attributes, moved by "
            f"{moved:.4g}, within {self.distance_bound:.2g} of the nearest, by "
            f"{self.method}{state})"
        )


def project(
    answers: Numbered,
    workload: Workload,
    n: float | tuple[float, float] | None = None,
    weights: Numbered | None = None,
    *,
    objective: str = "rmse",
    gap: float = 1e-6,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Projected:
    """The nearest answers to ``answers`` that a non-negative histogram has.

    ``n`` is the public number of records, or None if it is unknown, or ``(value, standard error)``
    if it is known by a noisy count. ``weights`` are those of the squared differences, per query,
    or the covariance matrix of the answers, whose inverse is then the metric. Solving stops when
    the certified gap is ``gap`` of the value (and of a millionth of ``1/2 |answers|_W^2``): with
    the default the answers are a thousandth of the way they moved from the projection, or nearer.
    Where the asked attributes have more than ten million cells together, weighted rows are searched
    for instead (at most a minute); their gap is to a proved lower bound, which can be far below.

    With ``objective="max"`` the nearest are those whose largest difference ``sqrt(weight) |answer -
    given|`` is least, to a hundredth (a smaller ``gap`` is no help): right for answers that are off
    by at most a known amount where many queries overlap, such as rounded ranges. For normal noise
    and rounded sparse tables the default is mostly nearer to the truth even in the largest error:
    ``docs/mechanisms/boosting.md``.

    ``constraints`` are public knowledge: the answers are then those of a histogram without any
    weight on impossible combinations and with the published tables as they are (up to 1e-9 of all
    records).

    Privacy: a function of released numbers; nothing is spent.
    Error: ``|result - truth|_W <= |answers - truth|_W + distance_bound`` for the truth of any data
    set (of n records, that meets the constraints); for normal noise the mean squared error is at
    most ``sigma n w / k``, with w the Gaussian width of the answers of one record.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"a": 3}), 1)
    >>> sf.project([3.0, 1.0, -2.0], work, n=2).answers.round(6).tolist()
    [2.0, 0.0, 0.0]
    """
    if not isinstance(gap, float | int) or isinstance(gap, bool) or not 0 < gap < float("inf"):
        raise WorkloadError(f"a gap is a number above 0, such as 1e-6; got {shown(gap)}")
    given = _by_group(answers, workload, "answers")
    total, noisy = _total(n)
    total = agreed_total(total, _checked(constraints, workload))
    if objective not in ("rmse", "max"):
        raise WorkloadError(f'the objective is "rmse" or "max", got {shown(objective)}')
    covariance = _covariance(weights)
    if covariance is not None and objective == "max":
        weights, covariance = _inverse_variances(covariance, workload.queries), None
    per_query = None if weights is None or covariance is not None else weights
    split = None if per_query is None else _by_group(per_query, workload, "weights")
    fit = fit_answers(workload, given, split)
    _check_size(fit)
    precision, exact = None, None
    if covariance is not None:
        precision, exact = inverse_covariance(covariance, workload.queries)
    if noisy is not None:
        fit = replace(fit, parts=(*fit.parts, _count(fit, *noisy)))
    grid = Grid.of(fit, constraints)
    if objective == "max":
        return _largest(fit, grid, workload, total, gap, progress)
    if grid.size > MOST_CELLS:
        _check_rows(grid, total, precision)
        return _by_rows(fit, workload, total or 0.0, gap, constraints, progress)
    found = fit_explicit(
        fit, grid, total, gap=gap, precision=precision, exact=exact, progress=progress
    )
    return _projected(found, workload)


def _projected(found: Estimate, workload: Workload) -> Projected:
    answers = found.answers[: workload.queries]
    ends = np.cumsum([t.rows for t in workload.terms])[:-1]
    return Projected(
        answers=answers,
        groups=tuple(np.split(answers, ends)),
        value=found.value,
        gap=found.gap,
        distance_bound=found.distance_bound,
        total=float(found.weights.sum()),
        attributes=found.grid.names,
        cells=found.grid.codes(found.cells),
        weights=found.weights,
        method=found.method,
        converged=found.gap <= found.wanted,
    )


def _largest(
    fit: Fit,
    grid: Grid,
    workload: Workload,
    total: float | None,
    gap: float,
    progress: Progress | None,
) -> Projected:
    """The least largest difference; its projection need not be unique."""
    from sfumato.refine.cells.minimax import fit_largest

    if any(table.names for table in grid.published):
        raise WorkloadError(
            'the objective "max" knows impossible combinations but no published tables; use '
            'objective="rmse", or leave the tables out'
        )
    if grid.size > MOST_CELLS:
        raise TooLarge(
            f"the {len(grid.names)} attributes asked about have {grid.size:,} cells together; the "
            f'objective "max" lists them, at most {MOST_CELLS:,}: project groups that share fewer '
            'attributes on their own, or use objective="rmse"'
        )
    found = fit_largest(fit, grid, total, gap=max(gap, LOOSEST), progress=progress)
    return replace(_projected(found, workload), distance_bound=2 * found.value, objective="max")


def _checked(constraints: Constraints | None, workload: Workload) -> Constraints | None:
    if constraints is None:
        return None
    if not isinstance(constraints, Constraints):
        raise WorkloadError(
            "constraints are sf.Constraints(domain, impossible, published), got "
            f"{shown(constraints)}"
        )
    if constraints.domain != workload.domain:
        raise WorkloadError("the constraints are about another domain than the workload")
    return constraints


def _by_group(given: Numbered, workload: Workload, what: str) -> list[Array]:
    """Numbers per group, from one vector, a sequence of vectors, or vectors by name."""
    names = [t.name for t in workload.terms]
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise WorkloadError(
                f"{what} by group need one vector for each of {listing(names)}; got "
                f"{listing(list(given))}"
            )
        return [_numbers(given[name], what) for name in names]
    is_nested = not isinstance(given, np.ndarray) and any(np.ndim(g) for g in given)
    if is_nested:
        if len(given) != len(names):
            raise WorkloadError(
                f"the workload has {len(names)} groups, got {what} for {len(given)}"
            )
        return [_numbers(g, what) for g in given]
    vector = _numbers(given, what)
    if vector.shape != (workload.queries,):
        raise WorkloadError(
            f"the workload has {workload.queries:,} queries, got {what} of shape {vector.shape}"
        )
    return list(np.split(vector, np.cumsum([t.rows for t in workload.terms])[:-1]))


def _numbers(given: object, what: str) -> Array:
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise WorkloadError(f"{what} must be vectors of numbers") from error
    if found.dtype.kind not in "iuf":
        raise WorkloadError(f"{what} must be numbers, got an array of {found.dtype}")
    return found.astype(np.float64)


def _covariance(weights: Numbered | None) -> Array | None:
    """A matrix is a covariance; everything else is weights."""
    is_matrix = isinstance(weights, np.ndarray) and weights.ndim == 2
    return np.asarray(weights) if is_matrix else None


def _inverse_variances(covariance: Array, queries: int) -> Array:
    """Weights that measure every difference in its own standard deviation."""
    inverse_covariance(covariance, queries)  # refuses what is none
    variances = np.diag(covariance).astype(np.float64)
    if not (variances > 0).all():
        raise WorkloadError(
            "a variance of 0 says that an answer is exact; the largest difference in standard "
            "deviations needs all of them above 0"
        )
    return 1 / variances


def _total(n: object) -> tuple[float | None, tuple[float, float] | None]:
    """The public total, or the noisy one with its standard error."""
    if n is None:
        return None, None
    if isinstance(n, tuple):
        value, error = (_number(v) for v in n) if len(n) == 2 else (None, None)
        if value is None or error is None or not error > SMALLEST:
            raise WorkloadError(
                f"a noisy number of records is (value, standard error above 0), got {shown(n)}"
            )
        return None, (value, error)
    known = _number(n)
    if known is None or known < 0:
        raise WorkloadError(
            f"the number of records is 0 or more, None if unknown, or (value, standard error); got "
            f"{shown(n)}"
        )
    return known, None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if -LARGEST < value < LARGEST else None


def _count(fit: Fit, value: float, error: float) -> Part:
    """The noisy number of records as one more observation."""
    term = Product(fit.domain, "number of records", 1.0, ())
    return Part(term, np.array([value]), np.array([error**-2]))


def _check_size(fit: Fit) -> None:
    for part in fit.parts:
        if float(np.abs(part.values).max(initial=0.0)) >= LARGEST:
            raise WorkloadError(
                f"an answer of group {part.term.name!r} is beyond {LARGEST:g}; answers are counts "
                "or sums of data, give them in larger units"
            )


def _check_rows(grid: Grid, total: float | None, precision: Array | None) -> None:
    if total is None or precision is not None:
        raise TooLarge(
            f"the {len(grid.names)} attributes asked about have {grid.size:,} cells together, the "
            f"most that are listed are {MOST_CELLS:,}; beyond that the number of records must be "
            "given as one number and weights per query: give n (a noisy count will do) and the "
            "inverse variances, or project groups that share fewer attributes on their own"
        )


def _by_rows(
    fit: Fit,
    workload: Workload,
    total: float,
    gap: float,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Projected:
    """Weighted rows where cells cannot be listed; the gap is to a proved lower bound."""
    from sfumato.refine.draws import Draws
    from sfumato.refine.rows.rows import fit_rows

    if total == 0:  # nothing else is possible
        groups = tuple(np.zeros(t.rows) for t in workload.terms)
        codes, weights = np.zeros((0, len(workload.domain)), dtype=np.int64), np.zeros(0)
        value = bound = fit.value(groups)
    else:
        limit = max(gap, LOOSEST)
        draws = Draws("projection")
        rows = fit_rows(
            fit, total, draws=draws, gap=limit, constraints=constraints, progress=progress
        )
        groups, value, bound = tuple(rows.answers()), rows.value, rows.bound
        codes, weights = np.asarray(rows.codes, dtype=np.int64).T, rows.weights
    above = max(0.0, value - bound)
    return Projected(
        answers=np.concatenate(groups),
        groups=groups,
        value=value,
        gap=above,
        distance_bound=(2 * above) ** 0.5,
        total=float(weights.sum()),
        attributes=tuple(workload.domain.names),
        cells=codes,
        weights=weights,
        method="rows",
        converged=above <= gap * value,
    )
