# SPDX-License-Identifier: Apache-2.0
"""The relaxations as ``sf.project`` calls them: on their own, and as the proof of rows.

Every body here holds the answers of all data sets. So a projection onto it is never farther from
the truth than the answers were, and its least value is a lower bound for that of any data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.cells.explicit import FLOOR
from sfumato.refine.fit import Fit, Names
from sfumato.refine.outer import local, semidefinite
from sfumato.refine.rows.rows import Rows
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array

__all__ = ["Relaxed", "certified_rows", "onto_local", "onto_moments"]

ROUNDING = 1e-13  # of f at zero: what floats leave of a gap
PROOF = 1e-3  # the relative gap of the relaxation that proves a gap of rows

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The nearest point of a relaxation, its certified gap, and the gap that was wanted."""

    names: Names
    answers: list[Array]
    tables: dict[Names, Array]
    total: float
    value: float
    gap: float
    wanted: float
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
    found = local.project_locally(
        fit,
        n,
        gap=gap,
        enough=gap * FLOOR * whole,
        seconds=seconds,
        constraints=constraints,
        progress=_told(progress, local.STEPS),
    )
    tables = {names: found.margin(names) for names in fit.sets if names}
    wanted = gap * max(found.value, FLOOR * whole) + ROUNDING * whole
    method = f"local consistency, {found.steps:,} steps"
    return Relaxed(
        _names(fit), found.answers, tables, found.total, found.value, found.gap, wanted, method
    )


def onto_moments(
    fit: Fit, n: float | None, gap: float, seconds: float | None, progress: Progress | None
) -> Relaxed:
    """The nearest moments of yes/no attributes whose tables are non-negative."""
    whole = _whole(fit)
    found = semidefinite.project_semidefinitely(
        fit,
        n,
        cells=True,
        gap=gap,
        enough=gap * FLOOR * whole,
        seconds=seconds,
        progress=_told(progress, semidefinite.STEPS),
    )
    tables = {names: found.margin(names) for names in fit.sets if names}
    wanted = gap * max(found.value, FLOOR * whole) + ROUNDING * whole
    total, method = float(found.matrix[0, 0]), f"semidefinite relaxation, {found.steps:,} steps"
    return Relaxed(
        _names(fit), found.answers, tables, total, found.value, found.gap, wanted, method
    )


def certified_rows(
    rows: Rows, n: float, seconds: float | None, constraints: Constraints | None
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
        found = local.project_locally(fit, n, gap=PROOF, seconds=seconds, constraints=constraints)
        yield found.lower, "local consistency"
    is_yes_no = all(len(s) <= 2 and all(fit.domain[a].size == 2 for a in s) for s in fit.sets)
    if is_yes_no and any(fit.sets):
        # Moments know no constraints: without them the bound is lower, and still one.
        with suppress(TooLarge, WorkloadError):
            moments = semidefinite.project_semidefinitely(
                fit, n, cells=True, gap=PROOF, seconds=seconds
            )
            yield moments.value - moments.gap, "moments"


def _names(fit: Fit) -> Names:
    return fit.domain.in_order({name for names in fit.sets for name in names})


def _whole(fit: Fit) -> float:
    """f at zero."""
    return fit.value([np.zeros_like(p.values) for p in fit.parts])


def _told(progress: Progress | None, steps: int) -> Callable[[int, float], None] | None:
    if progress is None:
        return None
    return lambda step, gap: progress(min(step, steps), steps, f"gap {gap:.2g} of the value")
