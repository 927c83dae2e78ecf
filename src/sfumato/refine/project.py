# SPDX-License-Identifier: Apache-2.0
"""``project``: noisy answers to the nearest ones that some data set has.

The public call. It checks what it gets, makes a ``Fit`` of it, and chooses who minimises it: cells
where they can be listed (``cells``), weighted rows where they cannot (``rows``), or a relaxation
that holds all data sets (``local_consistency``, ``semidefinite``), which also proves the gap of
rows. ``Projected`` has the answers and what is certified of them.

Post-processing of public numbers: it costs no privacy (Dwork, Roth 2014, Proposition 2.1). The
answers of data sets form a convex set, so in the norm that is minimised the result is never
farther from the truth than what came in, and mostly much nearer; see
``docs/mechanisms/projection.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from sfumato.domain.domain import base_of
from sfumato.errors import TooLarge, WorkloadError
from sfumato.random import Draws
from sfumato.refine import local_consistency, semidefinite
from sfumato.refine.cells import CellEstimate, fit_explicit, fit_minimax
from sfumato.refine.problem import Grid, inverse_covariance
from sfumato.refine.reconstruct import Fit, FitPart, fit_answers
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.rows import WeightedRows, fit_rows
from sfumato.text import listing, shown
from sfumato.types import Array, Integers, Names, Progress
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "Numbered",
    "Projected",
    "Relaxed",
    "by_group",
    "certified_rows",
    "check_size",
    "checked_constraints",
    "covariance_of",
    "inverse_variances",
    "onto_local",
    "onto_moments",
    "project",
    "total_of",
]


# The result

BODIES = {
    "exact": "the nearest that data can have",
    "local": "the nearest locally consistent ones",
    "semidefinite": "the nearest that moments can have",
}


@dataclass(frozen=True, eq=False)
class Projected:
    """Answers that some histogram has, and how near to the projection they are certified to be.

    ``value`` is ``1/2 |answers - y|_W^2``, y what was projected; it is at most ``gap`` above the
    minimum, and the answers are within ``distance_bound`` of the projection in the same norm. If
    the objective is ``"max"`` the norm is the maximum of ``sqrt(weight) |answer - y|``, and the
    value is it.
    ``certified_by`` says what proves the gap.

    ``cells`` are the codes of ``attributes``, one row for each cell that carries weight; where no
    query tells cells apart, one stands for all. A projection ``onto`` a relaxation has no cells:
    ``tables`` then holds its table of every set of attributes that queries read.
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
    onto: str = "exact"
    certified_by: str = "slopes of all cells"
    tables: Mapping[Names, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "" if self.converged else ", not converged"
        moved = self.value if self.objective == "max" else (2 * self.value) ** 0.5
        what = f"{len(self.weights):,} cells" if self.onto == "exact" else "tables"
        share = f"{self.gap / self.value:.2g} of the value" if self.value > 0 else f"{self.gap:.2g}"
        return (
            f"Projected({len(self.answers):,} answers of {self.total:,.6g} records on {what} of "
            f"{len(self.attributes)} attributes, moved by {moved:.4g}, within "
            f"{self.distance_bound:.2g} of {BODIES[self.onto]}; gap {share}, proved by "
            f"{self.certified_by}; by {self.method}{state})"
        )


# Checks of the arguments

Numbered = Array | Sequence[float] | Sequence[Array] | Mapping[str, Array]


def checked_constraints(constraints: object, workload: Workload) -> Constraints:
    """The constraints, in the domain of the workload; refused if they are about another."""
    if not isinstance(constraints, Constraints):
        raise WorkloadError(
            "constraints are sf.Constraints(domain, impossible, published), got "
            f"{shown(constraints)}"
        )
    if constraints.domain == workload.domain:
        return constraints
    if base_of(constraints.domain) != base_of(workload.domain):
        raise WorkloadError("the constraints are about another domain than the workload")
    return constraints.beside(workload.domain)


def by_group(numbers: Numbered, workload: Workload, what: str) -> list[Array]:
    """Numbers per group, from one vector, a sequence of vectors, or vectors by name."""
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"{what} are those of a workload such as sf.marginals(domain, 2), got {shown(workload)}"
        )
    names = [t.name for t in workload.terms]
    if isinstance(numbers, Mapping):
        if set(numbers) != set(names):
            raise WorkloadError(
                f"{what} by group need one vector for each of {listing(names)}; got "
                f"{listing(list(numbers))}"
            )
        return [_numbers(numbers[name], what) for name in names]
    is_nested = not isinstance(numbers, np.ndarray) and any(np.ndim(g) for g in numbers)
    if is_nested:
        if len(numbers) != len(names):
            raise WorkloadError(
                f"the workload has {len(names)} groups, got {what} for {len(numbers)}"
            )
        return [_numbers(g, what) for g in numbers]
    vector = _numbers(numbers, what)
    if vector.shape != (workload.queries,):
        raise WorkloadError(
            f"the workload has {workload.queries:,} queries, got {what} of shape {vector.shape}"
        )
    return list(np.split(vector, np.cumsum([t.rows for t in workload.terms])[:-1]))


def _numbers(numbers: object, what: str) -> Array:
    try:
        vector = np.asarray(numbers)
    except ValueError as error:
        raise WorkloadError(f"{what} must be vectors of numbers") from error
    if vector.dtype.kind not in "iuf":
        raise WorkloadError(f"{what} must be numbers, got an array of {vector.dtype}")
    return vector.astype(np.float64)


def covariance_of(weights: Numbered | None) -> Array | None:
    """The covariance, if the weights are a matrix; None if they are weights per query."""
    is_matrix = isinstance(weights, np.ndarray) and weights.ndim == 2
    return np.asarray(weights) if is_matrix else None


def inverse_variances(covariance: Array, queries: int) -> Array:
    """Weights that measure every difference in its own standard deviation."""
    inverse_covariance(covariance, queries)  # refuses what is none
    variances = np.diag(covariance).astype(np.float64)
    if not (variances > 0).all():
        raise WorkloadError(
            "a variance of 0 says that an answer is exact; the largest difference in standard "
            "deviations needs all of them above 0"
        )
    return 1 / variances


def total_of(n: object) -> tuple[float | None, tuple[float, float] | None]:
    """The public total, or the noisy one with its standard error."""
    if n is None:
        return None, None
    if isinstance(n, tuple):
        value, error = (_number(v) for v in n) if len(n) == 2 else (None, None)
        if value is None or error is None or not error > LIMITS.error_minimum:
            raise WorkloadError(
                f"a noisy number of records is (value, standard error above 0), got {shown(n)}"
            )
        return None, (value, error)
    count = _number(n)
    if count is None or count < 0:
        raise WorkloadError(
            f"the number of records is 0 or more, None if unknown, or (value, standard error); got "
            f"{shown(n)}"
        )
    return count, None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if -LIMITS.number_maximum < value < LIMITS.number_maximum else None


def check_size(fit: Fit) -> None:
    """Refuse answers whose squares are no floats."""
    for part in fit.parts:
        if float(np.abs(part.values).max(initial=0.0)) >= LIMITS.number_maximum:
            raise WorkloadError(
                f"an answer of group {part.term.name!r} is beyond {LIMITS.number_maximum:g}; "
                "answers are counts or sums of data, give them in larger units"
            )


def project(
    answers: Numbered,
    workload: Workload,
    n: float | tuple[float, float] | None = None,
    weights: Numbered | None = None,
    *,
    onto: str = "exact",
    objective: str = "rmse",
    gap: float = 1e-6,
    seconds: float | None = None,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Projected:
    """The nearest answers to ``answers`` that a non-negative histogram has.

    Where the attributes have more than ten million cells together, weighted rows are searched for
    instead, for ``seconds`` at most (None: steps of about one minute). Their gap is to a lower
    bound that local consistency proves, in as much time again; the relaxation is what it cannot get
    below.

    ``onto`` is the body that is projected on. ``"exact"``: the answers of data sets. ``"local"``: a
    non-negative table for every asked set, that agree on what they share; any domain, only the
    cells of asked tables, and the workhorse where there is little noise. ``"semidefinite"``: the
    moments of yes/no attributes, for one- and two-way tables, those non-negative. Both hold all
    data sets, so they too are never farther from the truth; but no data set need have the answers.

    With ``objective="max"`` the nearest are those whose largest difference ``sqrt(weight) |answer -
    given|`` is least, to a hundredth (a smaller ``gap`` is no help): right for answers that are off
    by at most a known amount where many queries overlap, such as rounded ranges. For normal noise
    and rounded sparse tables the default is mostly nearer to the truth even in the largest error:
    ``docs/mechanisms/boosting.md``.

    Privacy: a function of released numbers; nothing is spent.
    Error: ``|result - truth|_W <= |answers - truth|_W + distance_bound`` for the truth of any data
    set (of n records, that meets the constraints); for normal noise the mean squared error is at
    most ``sigma n w / k``, with w the Gaussian width of the answers of one record.

    Args:
        answers: One number per query, in the order of the workload.
        workload: What was asked.
        n: The public number of records; None if it is unknown, ``(value, standard error)`` if it is
            known by a noisy count.
        weights: Those of the squared differences, per query, or the covariance matrix of the
            answers, whose inverse is then the metric.
        onto: ``"exact"``, ``"local"`` or ``"semidefinite"``.
        objective: ``"rmse"`` or ``"max"``.
        gap: Solving stops when the certified gap is this part of the value (and of a millionth of
            ``1/2 |answers|_W^2``): with the default the answers are a thousandth of the way they
            moved from the projection, or nearer.
        seconds: Solving also stops after about so long, with the best so far and its certificate;
            without them no clock is read: there is no limit for cells that can be listed, and one
            in steps, of about five minutes of one core, for a relaxation.
        constraints: Public knowledge: the histogram then has no weight on impossible combinations,
            and the published tables as they are (up to 1e-9 of all records).
        progress: Called with what is done and how much of it.

    Returns:
        The projected answers with their certificate.

    Raises:
        WorkloadError: Answers and workload do not fit, or no histogram meets the constraints.
        TooLarge: There are too many cells or queries.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"a": 3}), 1)
    >>> sf.project([3.0, 1.0, -2.0], work, n=2).answers.round(6).tolist()
    [2.0, 0.0, 0.0]
    """
    _check_options(onto, objective, gap, seconds)
    values = by_group(answers, workload, "answers")
    total, noisy = total_of(n)
    if constraints is not None:
        total = agreed_total(total, checked_constraints(constraints, workload))
    covariance = covariance_of(weights)
    if covariance is not None and objective == "max":
        weights, covariance = inverse_variances(covariance, workload.queries), None
    per_query = None if weights is None or covariance is not None else weights
    split = None if per_query is None else by_group(per_query, workload, "weights")
    fit = fit_answers(workload, values, split)
    check_size(fit)
    precision, exact = None, None
    if covariance is not None:
        precision, exact = inverse_covariance(covariance, workload.queries)
    if noisy is not None:
        fit = replace(fit, parts=(*fit.parts, _count(fit, *noisy)))
    if onto != "exact":
        _check_relaxed(onto, objective, precision, constraints)
        return _relaxed(fit, workload, total, onto, gap, seconds, constraints, progress)
    grid = Grid.of(fit, constraints)
    if objective == "max":
        return _minimax(fit, grid, workload, total, gap, progress)
    if grid.size > LIMITS.cells_listed:
        _check_rows(grid, total, precision)
        return _by_rows(fit, workload, total or 0.0, gap, seconds, constraints, progress)
    estimate = fit_explicit(
        fit,
        grid,
        total,
        gap=gap,
        precision=precision,
        exact=exact,
        seconds=seconds,
        progress=progress,
    )
    return _projected(estimate, workload)


def _check_options(onto: str, objective: str, gap: float, seconds: float | None) -> None:
    if not isinstance(gap, float | int) or isinstance(gap, bool) or not 0 < gap < float("inf"):
        raise WorkloadError(f"a gap is a number above 0, such as 1e-6; got {shown(gap)}")
    if seconds is not None and not (isinstance(seconds, float | int) and seconds > 0):
        raise WorkloadError(f"seconds are a number above 0, or None; got {shown(seconds)}")
    if objective not in ("rmse", "max"):
        raise WorkloadError(f'the objective is "rmse" or "max", got {shown(objective)}')
    if onto not in BODIES:
        raise WorkloadError(
            f"answers are projected onto {listing(list(BODIES))}; got {shown(onto)}"
        )


def _check_relaxed(
    onto: str, objective: str, precision: Array | None, constraints: Constraints | None
) -> None:
    """Refuse what the relaxations cannot do."""
    if objective == "max":
        raise WorkloadError(
            f'the objective "max" has no projection onto {onto!r}: use objective="rmse", or '
            'onto="exact"'
        )
    if precision is not None:
        raise WorkloadError(
            f"a projection onto {onto!r} takes weights per query, not a covariance matrix: give "
            'the inverse variances, or use onto="exact"'
        )
    if onto == "semidefinite" and constraints is not None:
        raise WorkloadError(
            'moments know no constraints: use onto="local" or onto="exact", or leave them out'
        )


def _relaxed(
    fit: Fit,
    workload: Workload,
    total: float | None,
    onto: str,
    gap: float,
    seconds: float | None,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Projected:
    if onto == "local":
        nearest = onto_local(fit, total, gap, seconds, constraints, progress)
    else:
        nearest = onto_moments(fit, total, gap, seconds, progress)
    groups = tuple(nearest.answers[: len(workload.terms)])
    return Projected(
        answers=np.concatenate(groups),
        groups=groups,
        value=nearest.value,
        gap=nearest.gap,
        distance_bound=nearest.distance,
        total=nearest.total,
        attributes=nearest.names,
        cells=np.zeros((0, len(nearest.names)), dtype=np.int64),
        weights=np.zeros(0),
        method=nearest.method,
        converged=nearest.gap <= nearest.target_gap,
        onto=onto,
        certified_by="multipliers",
        tables=nearest.tables,
    )


def _projected(estimate: CellEstimate, workload: Workload) -> Projected:
    answers = estimate.answers[: workload.queries]
    ends = np.cumsum([t.rows for t in workload.terms])[:-1]
    return Projected(
        answers=answers,
        groups=tuple(np.split(answers, ends)),
        value=estimate.value,
        gap=estimate.gap,
        distance_bound=estimate.distance_bound,
        total=float(estimate.weights.sum()),
        attributes=estimate.grid.names,
        cells=estimate.grid.codes(estimate.cells),
        weights=estimate.weights,
        method=estimate.method,
        converged=estimate.gap <= estimate.target_gap,
    )


def _minimax(
    fit: Fit,
    grid: Grid,
    workload: Workload,
    total: float | None,
    gap: float,
    progress: Progress | None,
) -> Projected:
    """The answers of minimum maximal difference; they need not be unique."""
    if any(table.names for table in grid.published):
        raise WorkloadError(
            'the objective "max" knows impossible combinations but no published tables; use '
            'objective="rmse", or leave the tables out'
        )
    if grid.size > LIMITS.cells_listed:
        raise TooLarge(
            f"the {len(grid.names)} attributes asked about have {grid.size:,} cells together; the "
            f'objective "max" lists them, at most {LIMITS.cells_listed:,}: project groups that '
            'share fewer attributes on their own, or use objective="rmse"'
        )
    minimax = fit_minimax(fit, grid, total, gap=max(gap, LIMITS.coarse_gap), progress=progress)
    return replace(_projected(minimax, workload), distance_bound=2 * minimax.value, objective="max")


def _count(fit: Fit, value: float, error: float) -> FitPart:
    """The noisy number of records as one more observation."""
    term = Product(fit.domain, "number of records", 1.0, ())
    return FitPart(term, np.array([value]), np.array([error**-2]))


def _check_rows(grid: Grid, total: float | None, precision: Array | None) -> None:
    if total is None or precision is not None:
        raise TooLarge(
            f"the {len(grid.names)} attributes asked about have {grid.size:,} cells together, the "
            f"most that are listed are {LIMITS.cells_listed:,}; beyond that the number of records "
            "must be given as one number and weights per query: give n (a noisy count will do) and "
            "the inverse variances, or project groups that share fewer attributes on their own"
        )


def _by_rows(
    fit: Fit,
    workload: Workload,
    total: float,
    gap: float,
    seconds: float | None,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Projected:
    """Weighted rows where cells cannot be listed; the gap is to a proved lower bound."""
    names = tuple(workload.domain.names)
    if total == 0:  # nothing else is possible
        groups = tuple(np.zeros(t.rows) for t in workload.terms)
        value, above, away, proof = fit.value(groups), 0.0, 0.0, "there being no other"
        codes, weights = np.zeros((0, len(names)), dtype=np.int64), np.zeros(0)
    else:
        rows = fit_rows(
            fit,
            total,
            draws=Draws("projection"),
            gap=max(gap, LIMITS.coarse_gap),
            seconds=seconds,
            constraints=constraints,
            progress=progress,
        )
        groups, value = tuple(rows.answers()), rows.value
        codes, weights = np.asarray(rows.codes, dtype=np.int64).T, rows.weights
        above, away, proof = certified_rows(rows, total, seconds, constraints)
    return Projected(
        answers=np.concatenate(groups),
        groups=groups,
        value=value,
        gap=above,
        distance_bound=away,
        total=float(weights.sum()),
        attributes=names,
        cells=codes,
        weights=weights,
        method="rows",
        converged=above <= gap * value,
        certified_by=proof,
    )


# Relaxations
#
# Every body here holds the answers of all data sets. So a projection onto it is never farther from
# the truth than the answers were, and its minimum is a lower bound for that of any data set.


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The nearest point of a relaxation, its certified gap, and the gap that was aimed at."""

    names: Names
    answers: list[Array]
    tables: dict[Names, Array]
    total: float
    value: float
    gap: float
    target_gap: float
    method: str

    @property
    def distance(self) -> float:
        """The answers are this close to the projection, in the metric of f."""
        return sqrt(2 * self.gap)


def onto_local(
    fit: Fit,
    n: float | None,
    gap: float,
    seconds: float | None,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Relaxed:
    """The nearest tables that agree on what they share."""
    whole = _whole(fit)
    local = local_consistency.project_locally(
        fit,
        n,
        gap=gap,
        enough=gap * LIMITS.value_floor * whole,
        seconds=seconds,
        constraints=constraints,
        progress=_step_progress(progress, LIMITS.local_steps),
    )
    tables = {names: local.margin(names) for names in fit.sets if names}
    target_gap = gap * max(local.value, LIMITS.value_floor * whole) + LIMITS.gap_rounding * whole
    method = f"local consistency, {local.steps:,} steps"
    return Relaxed(
        _names(fit), local.answers, tables, local.total, local.value, local.gap, target_gap, method
    )


def onto_moments(
    fit: Fit, n: float | None, gap: float, seconds: float | None, progress: Progress | None
) -> Relaxed:
    """The nearest moments of yes/no attributes whose tables are non-negative."""
    whole = _whole(fit)
    moments = semidefinite.project_semidefinitely(
        fit,
        n,
        cells=True,
        gap=gap,
        enough=gap * LIMITS.value_floor * whole,
        seconds=seconds,
        progress=_step_progress(progress, LIMITS.moment_steps),
    )
    tables = {names: moments.margin(names) for names in fit.sets if names}
    target_gap = gap * max(moments.value, LIMITS.value_floor * whole) + LIMITS.gap_rounding * whole
    total, method = float(moments.matrix[0, 0]), f"semidefinite relaxation, {moments.steps:,} steps"
    return Relaxed(
        _names(fit), moments.answers, tables, total, moments.value, moments.gap, target_gap, method
    )


def certified_rows(
    rows: WeightedRows, n: float, seconds: float | None, constraints: Constraints | None
) -> tuple[float, float, str]:
    """The proved gap of rows, how far from the projection they can be, and what proves it.

    ``min over data >= min over L``, and every check of the search on L has a lower bound for that.
    Where the asked tables are too large for it, the bound of the rows' own slopes counts.
    """
    lower, proof = rows.bound, "the least slopes of all tables"
    for bound, name in _proofs(rows.fit, n, seconds, constraints):
        if bound > lower:
            lower, proof = bound, name
    gap = max(0.0, rows.value - lower)
    return gap, sqrt(2 * gap), proof


def _proofs(
    fit: Fit, n: float, seconds: float | None, constraints: Constraints | None
) -> Iterator[tuple[float, str]]:
    """Lower bounds on f over all data: of every relaxation that the tables are small enough for."""
    with suppress(TooLarge):
        local = local_consistency.project_locally(
            fit, n, gap=LIMITS.proof_gap, seconds=seconds, constraints=constraints
        )
        yield local.lower, "local consistency"
    is_yes_no = all(len(s) <= 2 and all(fit.domain[a].size == 2 for a in s) for s in fit.sets)
    if is_yes_no and any(fit.sets):
        # Moments know no constraints: without them the bound is lower, and still one.
        with suppress(TooLarge, WorkloadError):
            moments = semidefinite.project_semidefinitely(
                fit, n, cells=True, gap=LIMITS.proof_gap, seconds=seconds
            )
            yield moments.value - moments.gap, "moments"


def _names(fit: Fit) -> Names:
    return fit.domain.in_order({name for names in fit.sets for name in names})


def _whole(fit: Fit) -> float:
    """f at zero."""
    return fit.value([np.zeros_like(p.values) for p in fit.parts])


def _step_progress(progress: Progress | None, steps: int) -> Callable[[int, float], None] | None:
    if progress is None:
        return None
    return lambda step, gap: progress(min(step, steps), steps, f"gap {gap:.2g} of the value")
