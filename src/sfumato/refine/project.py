# SPDX-License-Identifier: Apache-2.0
"""``project``: noisy answers to the nearest ones that some data set has.

Post-processing of public numbers: it costs no privacy (Dwork, Roth 2014, Proposition 2.1). The
answers of data sets form a convex set, so in the norm that is minimised the result is never
farther from the truth than what came in, and mostly much nearer; see
``docs/mechanisms/projection.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.cells.explicit import MOST_CELLS, Estimate, agreed_total, fit_explicit
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.metric import inverse_covariance
from sfumato.refine.fit import Fit, Part, fit_answers
from sfumato.refine.given import (
    Numbered,
    by_group,
    check_size,
    checked_constraints,
    covariance_of,
    inverse_variances,
    total_of,
)
from sfumato.refine.projected import BODIES, Projected
from sfumato.wording import listing, shown
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Projected", "project"]

Progress = Callable[[int, int, str], None]

LOOSEST = 0.01  # the relative gap that a search for rows or for the largest difference stops at


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

    ``n`` is the public number of records, or None if it is unknown, or ``(value, standard error)``
    if it is known by a noisy count. ``weights`` are those of the squared differences, per query,
    or the covariance matrix of the answers, whose inverse is then the metric. Solving stops when
    the certified gap is ``gap`` of the value (and of a millionth of ``1/2 |answers|_W^2``): with
    the default the answers are a thousandth of the way they moved from the projection, or nearer.
    It also stops after about ``seconds``, with the best so far and its certificate. Without them no
    clock is read: there is no limit for cells that can be listed, and one in steps, of about five
    minutes of one core, for a relaxation.

    Where the asked attributes have more than ten million cells together, weighted rows are searched
    for instead, for ``seconds`` at most (None: steps of about one minute). Their gap is to a lower
    bound that local consistency proves, in as much time again; the relaxation is what it cannot get
    below.

    ``onto`` is the body that is projected on. ``"exact"``: the answers of data sets. ``"local"``:
    a non-negative table for every asked set, that agree on what they share; any domain, only the
    cells of asked tables, and the workhorse where there is little noise. ``"semidefinite"``: the
    moments of yes/no attributes, for one- and two-way tables, those non-negative. Both hold all
    data sets, so they too are never farther from the truth; but no data set need have the answers.

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
    _check_asked(onto, objective, gap, seconds)
    given = by_group(answers, workload, "answers")
    total, noisy = total_of(n)
    total = agreed_total(total, checked_constraints(constraints, workload))
    covariance = covariance_of(weights)
    if covariance is not None and objective == "max":
        weights, covariance = inverse_variances(covariance, workload.queries), None
    per_query = None if weights is None or covariance is not None else weights
    split = None if per_query is None else by_group(per_query, workload, "weights")
    fit = fit_answers(workload, given, split)
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
        return _largest(fit, grid, workload, total, gap, progress)
    if grid.size > MOST_CELLS:
        _check_rows(grid, total, precision)
        return _by_rows(fit, workload, total or 0.0, gap, seconds, constraints, progress)
    found = fit_explicit(
        fit,
        grid,
        total,
        gap=gap,
        precision=precision,
        exact=exact,
        seconds=seconds,
        progress=progress,
    )
    return _projected(found, workload)


def _check_asked(onto: str, objective: str, gap: float, seconds: float | None) -> None:
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
    """What the relaxations do not know."""
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
    from sfumato.refine.outer.relaxed import onto_local, onto_moments

    if onto == "local":
        found = onto_local(fit, total, gap, seconds, constraints, progress)
    else:
        found = onto_moments(fit, total, gap, seconds, progress)
    groups = tuple(found.answers[: len(workload.terms)])
    return Projected(
        answers=np.concatenate(groups),
        groups=groups,
        value=found.value,
        gap=found.gap,
        distance_bound=found.distance,
        total=found.total,
        attributes=found.names,
        cells=np.zeros((0, len(found.names)), dtype=np.int64),
        weights=np.zeros(0),
        method=found.method,
        converged=found.gap <= found.wanted,
        onto=onto,
        certified_by="multipliers",
        tables=found.tables,
    )


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


def _count(fit: Fit, value: float, error: float) -> Part:
    """The noisy number of records as one more observation."""
    term = Product(fit.domain, "number of records", 1.0, ())
    return Part(term, np.array([value]), np.array([error**-2]))


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
    seconds: float | None,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Projected:
    """Weighted rows where cells cannot be listed; the gap is to a proved lower bound."""
    from sfumato.refine.draws import Draws
    from sfumato.refine.outer.relaxed import certified_rows
    from sfumato.refine.rows.rows import fit_rows

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
            gap=max(gap, LOOSEST),
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
