# SPDX-License-Identifier: Apache-2.0
"""Unbiased answers with their intervals: the numbers behind every table of a release.

An answer is ``a = q h + e`` where the law of the error e depends on the plan only. With c the
level-quantile of ``|e|``, the interval ``[a - c, a + c]`` holds the true answer with probability
``level``, whatever the data are. The true answer also lies in the set of possible answers (a count
is a whole number, not negative, nor more than the number of records where that is public; it is 0
where no record can be, and what is published where something is), so cutting both the answer and
its interval to that set moves neither away from the truth: coverage stays. Published answers agree
with each other where a projection was found (``refine/consistency.py``); their errors are
correlated with their values, so intervals are those of the unbiased answers, widened where a
published value would lie outside its own (``refine/intervals.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import ALL, Forecast, Spread
from sfumato.privacy.noise_laws import laplace_mixture_quantile
from sfumato.refine.consistency import Refined
from sfumato.refine.intervals import Bootstrap, Bounds, sure_bounds
from sfumato.types import Array
from sfumato.workload.constraints import Constraints
from sfumato.workload.terms import Term

__all__ = [
    "LEVEL",
    "Estimates",
    "GroupAnswers",
    "check_level",
    "half_widths",
    "widest_quantile",
]


LEVEL = 0.95
_SHAPES = 1 / np.linspace(1e-3, 1, 64)


def check_level(level: object) -> None:
    """Refuse what is no confidence level."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise WorkloadError(
            f"a confidence level must lie strictly between 0 and 1, got {level!r}; 0.95 is usual"
        )


def half_widths(forecast: Forecast, term: int, level: float) -> Array:
    """Half the width of every interval of a group; never refused, for the answers are paid for.

    Where the exact tails of so many answers do not fit in memory, the widest law that such an
    answer can have takes their place.
    """
    return _Law.of(forecast, term).half_widths(level)


@dataclass(frozen=True, eq=False)
class _Law:
    """The law of the errors of a group, or the widest that such answers can have."""

    forecast: Forecast
    spread: Spread
    is_exact: bool

    @classmethod
    def of(cls, forecast: Forecast, term: int) -> _Law:
        try:
            return cls(forecast, forecast.spread(term), True)
        except TooLarge:
            return cls(forecast, Spread(forecast.variances(term)), False)

    def half_widths(self, level: float, rows: slice = ALL) -> Array:
        if self.is_exact:
            return self.spread.half_widths(level, rows)
        quantile = widest_quantile(self.forecast, level)
        return np.asarray(quantile * self.spread.standard_errors(rows), dtype=np.float64)


def widest_quantile(forecast: Forecast, level: float) -> float:
    """The greatest ``level``-quantile of ``|error|``, in standard errors, of any answer.

    Normal for Gaussian noise. A sum of Laplace draws lies between one draw and the normal law
    (`privacy.noise_laws.laplace_mixture_quantile`): the greatest over all of these.
    """
    shapes = [np.inf] if forecast.strategy.noise == "gaussian" else [*_SHAPES, np.inf]
    return float(laplace_mixture_quantile(np.array(shapes), level).max())


@dataclass(frozen=True, eq=False)
class Estimates:
    """The unbiased answers of every group, and what they say about the truth.

    ``rows`` is the number of records where that is public (``replace-one`` neighbours), ``refined``
    the answers that agree with each other, where there are any, ``constraints`` what all meet.
    With a ``bootstrap`` intervals are approximate, around the published answers.

    Privacy: functions of released measurements and of public numbers (post-processing: Dwork,
    Roth 2014, Proposition 2.1).
    Neighbours: those of the forecast.
    """

    forecast: Forecast
    unbiased: Sequence[Array]
    rows: int | None
    is_projected: bool
    refined: Refined | None = None
    constraints: Constraints | None = None
    bootstrap: Bootstrap | None = None

    def bounds(self, term: Term) -> Bounds:
        """What the answers of a group can be."""
        return sure_bounds(term, self.rows, self.constraints)

    def group(self, term: int) -> GroupAnswers:
        """All that is known of a group, to be looked at some rows at a time."""
        unbiased = np.asarray(self.unbiased[term], dtype=np.float64)
        return GroupAnswers(
            self.forecast,
            term,
            unbiased,
            unbiased if self.refined is None else self.refined.answers[term],
            self.bounds(self.forecast.workload.terms[term]) if self.is_projected else None,
            self.bootstrap,
        )

    def value(self, term: int) -> Array:
        """The published answers of a group: those that agree, or unbiased ones, feasible."""
        return self.group(term).value()

    def standard_error(self, term: int) -> Array:
        """The standard deviation of the unbiased answers of a group."""
        return self.forecast.standard_errors(term)

    def interval(self, term: int, level: float) -> tuple[Array, Array]:
        """Ends that enclose each true answer of a group with probability at least ``level``.

        Approximately so, with a bootstrap (``refine/intervals.py``).
        """
        return self.group(term).interval(level)


@dataclass(frozen=True, eq=False)
class GroupAnswers:
    """The answers of one group; every method gives those of some rows, by default of all."""

    forecast: Forecast
    term: int
    unbiased: Array
    agreed: Array
    bounds: Bounds | None
    bootstrap: Bootstrap | None

    @cached_property
    def _law(self) -> _Law:
        return _Law.of(self.forecast, self.term)

    def value(self, rows: slice = ALL) -> Array:
        """The published answers."""
        found = np.asarray(self.agreed[rows], dtype=np.float64)
        return found if self.bounds is None else self.bounds.at(rows).clamp(found)

    def standard_error(self, rows: slice = ALL) -> Array:
        """The standard deviations of the unbiased answers."""
        return self._law.spread.standard_errors(rows)

    def interval(self, level: float, rows: slice = ALL) -> tuple[Array, Array]:
        """The ends of the intervals."""
        value = centre = self.value(rows)
        if self.bootstrap is None:
            centre, half = self.unbiased[rows], self._law.half_widths(level, rows)
        else:
            half = self.bootstrap.half_widths(self.term, level)[rows]
        if self.bounds is None:
            return centre - half, centre + half
        return self.bounds.at(rows).interval(centre - half, centre + half, centre, value)
