# SPDX-License-Identifier: Apache-2.0
"""Intervals for what an adaptive release measured: the noise of every step is fresh.

What is measured next depends on earlier answers, so an interval of the usual width around the best
measurement of a query would not hold: that it was the last one may be due to its noise. But every
step's noise is drawn after the step was chosen, from a law that was fixed by then. So the k-th step
that tells a query's answer misses it by more than its own bound with probability at most
``(1 - level) / (k (k + 1))``, whatever came before; these add up to at most ``1 - level`` over all
k, and all steps that tell an answer may be used together (docs/proofs/adaptive.md, Theorem 5).

A measured table tells every query about its attributes, or some of them; a measured query tells
itself. Public arithmetic: a function of the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.domain import Domain
from sfumato.measurement import Transcript
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.workload.queries import DENSE_LIMIT, Array, Integers
from sfumato.workload.scans import answer_bits
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = ["Told", "ToldIntervals", "half_widths"]

RATES = np.linspace(0, 1, 66)[1:-1]  # shares of the greatest rate of an exponential bound


@dataclass(frozen=True, eq=False)
class ToldIntervals:
    """The transcript of a release of ``workload``; ``domain`` is that of the places of tables."""

    workload: Workload
    method: str
    domain: Domain
    transcript: Transcript

    def interval(self, group: int, level: float) -> Told:
        """Ends that hold each true answer of a group with probability at least ``level``.

        Not-a-number where no step tells the answer.
        """
        term = self.workload.terms[group]
        low, high = np.full(term.rows, -np.inf), np.full(term.rows, np.inf)
        times = np.zeros(term.rows)
        sums, precision = np.zeros(term.rows), np.zeros(term.rows)
        for seen in self._seen(group, term):
            at = seen.queries
            times[at] += 1
            miss = (1 - level) / (times[at] * (times[at] + 1))
            half = half_widths(seen.law, seen.squares, seen.sums, seen.greatest, miss)
            low[at] = np.maximum(low[at], seen.values - half)
            high[at] = np.minimum(high[at], seen.values + half)
            weight = 1 / np.maximum(seen.law.variance * seen.squares, 1e-300)
            sums[at] += weight * seen.values
            precision[at] += weight
        centre = np.divide(sums, precision, out=np.full(term.rows, np.nan), where=precision > 0)
        # Steps that exclude each other leave the mean of all; it is inside at every level.
        low, high = np.fmin(low, centre), np.fmax(high, centre)
        is_told = times > 0
        return Told(centre, np.where(is_told, low, np.nan), np.where(is_told, high, np.nan))

    def _seen(self, group: int, term: Term) -> Iterator[_Seen]:
        if self.method == "tables":
            yield from self._tables(term)
        else:
            yield from self._queries(group, term)

    def _tables(self, term: Term) -> Iterator[_Seen]:
        """Tables that hold all attributes of a group: the sums of their noisy cells."""
        if term.rows > DENSE_LIMIT or term.slack:
            return
        low, high = term.coefficient_bounds()
        greatest = np.maximum(np.abs(low), np.abs(high))
        for step in self.transcript.steps:
            names = tuple(self.domain.names[i] for i in step.place)
            if not set(term.attributes) <= set(names):
                continue
            shape = tuple(self.domain[n].size for n in names)
            away = tuple(i for i, n in enumerate(names) if n not in term.attributes)
            table = step.measurement.values.reshape(shape).sum(axis=away)
            times = prod(shape[i] for i in away)
            yield _Seen(
                np.arange(term.rows),
                term.answer(table),
                step.measurement.noise,
                term.row_powers(2) * times,
                term.row_powers(1) * times,
                greatest,
            )

    def _queries(self, group: int, term: Term) -> Iterator[_Seen]:
        """Single measured queries, in steps of the workload."""
        bits = answer_bits(self.workload)
        start = sum(t.rows for t in self.workload.terms[:group])
        for step in self.transcript.steps:
            if self.method == "mwem":
                is_here = len(step.place) == 2 and step.place[0] == group
                at = np.array(step.place[1:] if is_here else (), dtype=np.int64)
                kept = np.arange(len(at))
            else:
                numbers = np.array(step.place, dtype=np.int64) - start
                kept = np.flatnonzero((numbers >= 0) & (numbers < term.rows))
                at = numbers[kept]
            if len(at):
                unit = np.full(len(at), 2.0**-bits)
                values = step.measurement.values[kept] * unit
                yield _Seen(at, values, step.measurement.noise, unit**2, unit, unit)


@dataclass(frozen=True, eq=False)
class Told:
    """The best mean of what was measured, and the ends; not-a-number where nothing was."""

    centre: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class _Seen:
    """Answers that one step tells: sums of noisy values with given norms of coefficients."""

    queries: Integers
    values: Array
    law: BlockNoise
    squares: Array
    sums: Array
    greatest: Array


def half_widths(
    law: BlockNoise, squares: Array, sums: Array, greatest: Array, miss: Array
) -> Array:
    """c with ``P(|sum_j c_j Z_j| > c) <= miss``, by norms of the coefficients c_j.

    ``squares`` is ``sum c^2``, ``sums`` is ``sum |c|``, ``greatest`` is ``max |c|``. Gaussian noise
    is exact up to the rounding of every draw to the grid. A single Laplace draw is exact up to one
    step of the grid; sums have an exponential bound: docs/proofs/adaptive.md, Lemma 6.
    """
    from scipy.special import ndtri

    step = 2.0**-law.grid_bits
    if law.noise == "gaussian":
        wide = law.scale * -ndtri(miss / 2) * np.sqrt(squares)
        return np.asarray(wide + step / 2 * sums, dtype=np.float64)
    safe = np.where(greatest > 0, greatest, 1.0)
    scale, spread = law.scale * safe, squares / safe**2  # the spread of one draw is 1
    wide = np.full(squares.shape, np.inf)
    for rate in RATES:
        bound = (np.log(2 / miss) + spread * rate**2 / (1 - rate**2)) / rate
        wide = np.minimum(wide, bound)
    alone = -np.log(miss) + step / law.scale
    found = scale * np.where(spread <= 1, np.minimum(alone, wide), wide)
    return np.where(greatest > 0, found, 0.0)
