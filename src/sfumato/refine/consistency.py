# SPDX-License-Identifier: Apache-2.0
"""The answers of a release, made to agree: one histogram or one set of rows behind all of them.

Unbiased answers contradict each other and go below zero. Here they are projected onto what data
can have, in the norm of the plan's objective (``sum_q w_q^2 (a - y)_q^2``): in that norm the result
is never farther from the truth than what came in (Nikolov, Talwar, Zhang 2013, "The geometry of
differential privacy: the sparse and approximate cases", Theorem 1; the truth is in the convex set).
The metric of the noise covariance is the most likely point of the same set, but its error in the
objective's norm may rise above that of the unbiased answers; see ``docs/mechanisms/projection.md``.

* Few cells and a plan for the largest error: the least largest difference (``minimax.py``), which
  was never worse in that error than least squares where both were measured (``bench boosting``).
* Few cells: the projection itself, with a certified distance (``cells.py``); where noise
  outweighs the records, drawn towards guesses (``shrink.py``).
* More cells than can be listed: rows, fitted to the answers, each by its variance, and to a prior
  around independence (``rows.py``, ``shrink.py``). That is an estimate and no projection: where it
  misses the answers by more than their noise explains, it is not used.

Post-processing of released numbers: no privacy is spent (Dwork, Roth 2014, Proposition 2.1), and
the same measurements give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, sqrt
from typing import Literal

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Forecast
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.refine.cells import agreed_total, fit_explicit, fit_largest
from sfumato.refine.draws import Draws
from sfumato.refine.problem import Grid, alike
from sfumato.refine.reconstruct import Fit, fit_answers, released_tables, released_total
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.shrink import PublicRecords, shrunk_towards
from sfumato.text import shown
from sfumato.types import Array, Integers, Progress
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.normal_form import Normal
from sfumato.workload.queries import DENSE_LIMIT
from sfumato.workload.workload import Workload

__all__ = [
    "Projection",
    "Refined",
    "check_projection",
    "expected_square",
    "has_wide",
    "is_listed",
    "objective_fit",
    "refined",
    "refined_listed",
]


Projection = bool | Literal["nearest", "bounds"]


@dataclass(frozen=True, eq=False)
class Refined:
    """Answers of every group that weighted cells have: ``codes[:, i]`` is a cell of attributes.

    ``distance`` bounds how far the answers are from the projection of the unbiased ones, in the
    norm of the objective; infinite where they are an estimate of another kind. ``alike`` has the
    classes of cells that no query tells apart, where one cell stands for its class. ``towards``
    are the guesses that the projection was drawn towards, and how much of each is in the answers.
    """

    answers: tuple[Array, ...]
    attributes: tuple[str, ...]
    codes: Integers
    weights: Array
    method: str
    distance: float
    alike: Mapping[str, Integers] = field(default_factory=dict)
    towards: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """How much of the projection is in the answers."""
        return max(0.0, 1 - sum(self.towards.values()))

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.weights.sum())

    def seen(self, normal: Normal) -> Refined:
        """The same answers in the places where they were asked."""
        terms = range(len(normal.pieces))
        answers = tuple(normal.gather(t, self.answers.__getitem__) for t in terms)
        return replace(self, answers=answers)

    def describe(self) -> str:
        """How the answers were made to agree, in words."""
        if self.method == "adaptive":
            return "one estimate, measured where it was worst"
        if self.method == "rows":
            return "weighted records fitted to what was measured, with a prior around independence"
        said = "projected onto the answers of histograms"
        if self.method == "largest":
            return f"{said}, the largest difference as small as can be"
        if not self.towards:
            return said
        shares = [f"{name} ({share:.0%})" for name, share in self.towards.items() if share > 0]
        return f"{said} ({self.share:.0%} of the answers), then shrunk towards {', '.join(shares)}"


def check_projection(project: object) -> Projection:
    """True (answers that agree), "nearest" (never shrunk), "bounds" (each cut) or False."""
    if isinstance(project, bool):
        return project
    if project == "bounds":
        return "bounds"
    if project == "nearest":
        return "nearest"
    raise WorkloadError(
        "project is true (answers that agree with each other, drawn towards guesses where noise "
        "outweighs few records), 'nearest' (the projection in any case), 'bounds' (each cut to "
        f"what is possible by itself) or false, got {shown(project)}"
    )


def refined(
    forecast: Forecast,
    measured: Measured,
    unbiased: Sequence[Array],
    *,
    shrinks: bool = False,
    public: PublicRecords | None = None,
    steps: float = LIMITS.search_multiplications,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Refined | None:
    """Answers that agree; None where neither way is open, or neither came near enough in its steps.

    With ``shrinks`` a projection that noise outweighs is drawn towards guesses: ``public`` records,
    even counts, independent attributes. With ``constraints`` the histogram or the rows meet them,
    up to rounding, or there are none; guesses do not, so nothing is drawn towards them then.
    """
    shown = None if progress is None else partial(_labelled, progress)
    workload = forecast.workload
    if (
        any(t.rows > DENSE_LIMIT for t in workload.terms)
        or workload.queries > PLANNING_LIMITS.fitted_table_cells
    ):
        return None
    fit = objective_fit(workload, unbiased)
    grid = None if has_wide(workload) else Grid.of(fit, constraints)
    if grid is not None and grid.size <= PLANNING_LIMITS.histogram_cells:
        how = _How(shrinks, public, steps, shown)
        return _listed(forecast, fit, grid, measured.rows, how)
    if (
        sum(p.term.cells for p in fit.parts if not p.term.is_wide)
        > PLANNING_LIMITS.fitted_table_cells
    ):
        return None
    return _rows(forecast, measured, unbiased, steps, constraints, shown)


def refined_listed(
    forecast: Forecast,
    unbiased: Sequence[Array],
    rows: int | None,
    *,
    shrinks: bool = False,
    public: PublicRecords | None = None,
    steps: float = LIMITS.search_multiplications,
) -> Refined | None:
    """The same for cells that can be listed, from the answers alone."""
    fit = objective_fit(forecast.workload, unbiased)
    return _listed(forecast, fit, Grid.of(fit), rows, _How(shrinks, public, steps))


@dataclass(frozen=True, slots=True)
class _How:
    shrinks: bool
    public: PublicRecords | None
    steps: float
    progress: Progress | None = None


def is_listed(workload: Workload, most: int = PLANNING_LIMITS.histogram_cells) -> bool:
    """Whether the kinds of cells that the queries tell apart are few enough to be listed."""
    if has_wide(workload) or any(t.rows > DENSE_LIMIT for t in workload.terms):
        return False
    return Grid.of(objective_fit(workload, [np.zeros(t.rows) for t in workload.terms])).size <= most


def objective_fit(workload: Workload, answers: Sequence[Array]) -> Fit:
    """The fit of answers in the norm of the objective."""
    weights = [np.full(t.rows, t.weight**2) for t in workload.terms]
    return fit_answers(workload, list(answers), weights)


def has_wide(workload: Workload) -> bool:
    """Whether some group has too many kinds of cells for tables."""
    return any(t.is_wide for t in workload.terms)


def _labelled(progress: Progress, done: int, total: int, _: str) -> None:
    progress(done, total, "projecting")


def _listed(
    forecast: Forecast,
    fit: Fit,
    grid: Grid,
    rows: int | None,
    how: _How,
) -> Refined | None:
    total = None if rows is None else float(rows)
    expected = expected_square(forecast)
    enough = LIMITS.projection_error_ignored**2 * expected
    # Gaps are relative to the answers too, which may be a million times the noise.
    whole = LIMITS.value_floor * 0.5 * sum(float(p.weights @ p.values**2) for p in fit.parts)
    gap = min(LIMITS.projection_gap, enough / whole) if whole > 0 else LIMITS.projection_gap
    found = fit_explicit(
        fit, grid, total, gap=gap, enough=enough, steps=how.steps, progress=how.progress
    )
    if not found.distance_bound <= LIMITS.projection_error_published * sqrt(expected):
        return None
    ends = np.cumsum([len(p.values) for p in fit.parts])[:-1]
    is_largest = how.shrinks and forecast.objective == "max" and _is_game(forecast, grid)
    shrunk = None
    if is_largest:
        found = fit_largest(fit, grid, total, gap=LIMITS.coarse_gap)
    elif how.shrinks:
        known = rows is not None
        shrunk = shrunk_towards(
            forecast, fit, found, known, noise=expected, public=how.public, steps=how.steps
        )
    taken = found if shrunk is None else shrunk
    return Refined(
        tuple(np.split(taken.answers, ends)),
        grid.names,
        grid.codes(taken.cells),
        taken.weights,
        "largest" if is_largest else "histogram",
        found.distance_bound if shrunk is None and not is_largest else inf,
        {name: alike(fit, name, grid.constraints) for name in grid.names},
        {} if shrunk is None else shrunk.towards,
    )


def _is_game(forecast: Forecast, grid: Grid) -> bool:
    """Whether the largest difference can be made least: some forty projections, no tables known."""
    is_free = forecast.strategy.records is None and not any(t.names for t in grid.published)
    return (
        is_free
        and grid.size <= LIMITS.minimax_cells
        and forecast.workload.queries <= LIMITS.minimax_cells
    )


def expected_square(forecast: Forecast) -> float:
    """``E |unbiased - truth|^2`` in the norm of the objective."""
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    pairs = zip(forecast.workload.terms, totals, strict=True)
    return sum(t.weight**2 * float(v) for t, v in pairs)


def _rows(
    forecast: Forecast,
    measured: Measured,
    unbiased: Sequence[Array],
    steps: float,
    constraints: Constraints | None,
    progress: Progress | None,
) -> Refined | None:
    from sfumato.refine.rows import fit_rows
    from sfumato.refine.shrink import shrunk

    tables = released_tables(forecast, unbiased)
    total = agreed_total(None if measured.rows is None else float(measured.rows), constraints)
    total = released_total(tables, measured.rows) if total is None else total
    if not total > 0:
        return None
    fit = fit_answers(forecast.workload, list(unbiased), _precisions(forecast))
    try:
        found = fit_rows(
            shrunk(fit, tables, total),
            total,
            draws=Draws(forecast.workload.digest()),
            steps=steps,
            constraints=constraints,
            progress=progress,
        )
    except TooLarge:
        return None
    if found.off > CLOSE:
        return None
    answers = found.answers()[: len(fit.parts)]
    # At the truth every query adds its variance times its precision, 1, on average.
    if 2 * fit.value(answers) > LIMITS.rows_misfit * forecast.workload.queries:
        return None
    return Refined(
        tuple(answers),
        forecast.workload.domain.names,
        np.ascontiguousarray(found.codes.T),
        found.weights,
        "rows",
        inf,
    )


def _precisions(forecast: Forecast) -> list[Array]:
    """The inverse variances of all answers, exact ones like very good ones."""
    found = [forecast.standard_errors(t) ** 2 for t in range(len(forecast.workload.terms))]
    least = LIMITS.exact_variance * max(float(v.max(initial=0.0)) for v in found)
    return [1 / np.maximum(v, least or 1.0) for v in found]
