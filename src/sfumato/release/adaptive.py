# SPDX-License-Identifier: Apache-2.0
"""What an adaptive release publishes: answers, tables, rows, and what was measured on the way.

All answers come from one distribution, so they agree with each other, counts are never negative and
tables add up. They are estimates: an answer that a measured table tells has an interval, from the
noise of that table (``refine/learn.py``); one that was not measured is as good as the
model, which no interval can promise, so it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.random import WordSource, system_words
from sfumato.refine.consistency import Refined
from sfumato.refine.drawn_records import draw_records
from sfumato.refine.intervals import sure_bounds
from sfumato.refine.learn import ToldIntervals
from sfumato.release.answers import Group, check_rows, key_term, named_groups
from sfumato.release.estimates import LEVEL, check_level
from sfumato.release.export import checked_path, write_numbers
from sfumato.release.labels import texts_of
from sfumato.release.save import saved_together, write_record, write_records
from sfumato.release.synthetic_records import record_frame
from sfumato.text import STORED, shown
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints
from sfumato.workload.workload import Ratio, Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.domain.domain import Domain
    from sfumato.ledger.entries import Entry

__all__ = [
    "ADAPTIVE_NUMBERS",
    "MOST_CELLS",
    "AdaptiveRelease",
    "Estimate",
]


ADAPTIVE_NUMBERS = ("value", "low", "high")

MOST_CELLS = 2**26  # of one table


class Estimate(Protocol):
    """A distribution over cells, seen through its tables."""

    @property
    def domain(self) -> Domain:
        """The attributes it is over."""
        ...

    @property
    def total(self) -> float:
        """The number of records."""
        ...

    def table(self, names: tuple[str, ...]) -> Array:
        """The estimated counts over some attributes."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveRelease:
    """Answers from a model that was measured where it was worst."""

    workload: Workload
    transcript: Transcript
    estimate: Estimate
    places: tuple[str, ...]  # what each step of the transcript measured, in words
    cells: Integers  # rows of attribute codes, in the order of ``estimate.domain``
    weights: Array  # of the rows, with sum 1
    provenance: Mapping[str, object]
    told: ToldIntervals
    entry: Entry | None = None
    constraints: Constraints | None = None
    is_stored: bool = False  # the ledger had these answers: nothing was spent on them now

    def __repr__(self) -> str:
        stored = f"; {STORED}" if self.is_stored else ""
        return (
            f"AdaptiveRelease of {self.workload.queries:,} queries from "
            f"{len(self.transcript.steps)} measurements, {self.estimate.total:,.0f} records{stored}"
        )

    def table(self, *names: str) -> Array:
        """Estimated counts over these attributes, axes in the order of the domain."""
        known = self.estimate.domain.names
        for name in names:
            if name not in known:
                raise WorkloadError(
                    f"the release knows {', '.join(known)}; it was not asked about {shown(name)}"
                )
        cells = self.estimate.domain.cells(tuple(n for n in known if n in names))
        if cells > MOST_CELLS:
            raise TooLarge(
                f"a table of {cells:,} cells takes {8 * cells:,} bytes; at most {MOST_CELLS:,} "
                "cells are made: ask for fewer attributes, or draw records with synthetic()"
            )
        return self.estimate.table(tuple(n for n in known if n in names))

    def values(self) -> list[Array]:
        """The estimated answers of every group."""
        return [self.value_of(t) for t in range(len(self.workload.terms))]

    def answers(self, level: float = LEVEL) -> pd.DataFrame:
        """Every query with its estimate and interval; the last groups are the means.

        Columns group, query, value, low, high: the ends hold the true answer with probability at
        least ``level``; not-a-number where nothing that was measured tells it.
        """
        import pandas as pd

        work = self.workload
        check_level(level)
        check_rows(sum(key_term(work, group).rows for group in named_groups(work)))
        frames = [
            pd.DataFrame(
                {"group": name, "query": texts_of(key_term(work, g))}
                | dict(zip(ADAPTIVE_NUMBERS, self.numbers(g, level), strict=True))
            )
            for g, name in named_groups(work).items()
        ]
        return pd.concat(frames, ignore_index=True)

    def numbers(self, group: Group, level: float) -> tuple[Array, Array, Array]:
        """Value, low and high of every query of a group; no interval for a mean."""
        value = self.value_of(group)
        if isinstance(group, Ratio):
            none = np.full(value.shape, np.nan)
            return value, none, none
        bounds = sure_bounds(self.workload.terms[group], self.transcript.rows, self.constraints)
        told = self.told.interval(group, level)
        is_sure = np.isnan(told.centre) & (bounds.low == bounds.high)  # published, or impossible
        centre = np.where(is_sure, bounds.low, told.centre)
        low = np.where(is_sure, bounds.low, told.low)
        high = np.where(is_sure, bounds.low, told.high)
        return value, *bounds.interval(low, high, centre, value)

    def value_of(self, group: Group) -> Array:
        """The answers of a group; a mean is that of the estimate, NaN where it has no record."""
        if isinstance(group, Ratio):
            total, count = self.value_of(group.numerator), self.value_of(group.denominator)
            mean: Array = np.full(count.shape, np.nan)
            np.divide(total, count, out=mean, where=count > 0)
            return mean
        term = self.workload.terms[group]
        found = term.answer(self.estimate.table(term.attributes))
        if self.constraints is None:
            return found
        return sure_bounds(term, self.transcript.rows, self.constraints).clamp(found)

    def told_count(self, group: int) -> int:
        """How many answers of a group have an interval; the same at every level."""
        return int(np.isfinite(self.numbers(group, LEVEL)[1]).sum())

    def measured(self) -> pd.DataFrame:
        """What was measured, in order, and the standard deviation of the noise in counts."""
        import pandas as pd

        return pd.DataFrame(
            {
                "measured": self.places,
                "cells": [step.measurement.units.size for step in self.transcript.steps],
                "noise": [step.measurement.noise.variance**0.5 for step in self.transcript.steps],
            }
        )

    def synthetic(self, rows: int | None = None, words: WordSource | None = None) -> pd.DataFrame:
        """Records drawn from the estimate, as many as it holds unless told.

        ``frame.attrs["notes"]`` says how far their answers are from the published ones.
        """
        source = system_words() if words is None else words
        count = max(1, round(self.estimate.total)) if rows is None else rows
        found = Refined(
            tuple(self.values()),
            self.estimate.domain.names,
            np.asarray(self.cells, dtype=np.int64),
            self.weights * self.estimate.total,
            "adaptive",
            inf,
        )
        drawn = draw_records(self.workload, found, count, source, self.constraints)
        if drawn is None:
            raise WorkloadError("the estimate holds no record, so none can be drawn")
        return record_frame(self.workload.domain, drawn, source)

    def report(self, level: float = LEVEL) -> str:
        """The report as one HTML page that needs nothing else, not even a network."""
        from sfumato.release.adaptive_report import adaptive_report_html

        check_level(level)
        return adaptive_report_html(self, level)

    def save(
        self,
        directory: str | Path,
        *,
        level: float = LEVEL,
        synthetic: int | bool = False,
        csv: bool = False,
    ) -> dict[str, Path]:
        """Write answers.parquet, provenance.json and report.html; return their paths.

        ``synthetic`` adds synthetic.parquet, of so many records (True: as many as the estimate
        holds), and with ``csv`` synthetic.csv. Either all files are written or none.
        """
        check_level(level)

        def write(folder: Path) -> dict[str, Path]:
            paths = {
                "answers": folder / "answers.parquet",
                "provenance": write_record(self.provenance, folder),
                "report": folder / "report.html",
            }
            paths["report"].write_text(self.report(level), encoding="utf-8")
            write_numbers(
                self.workload,
                ADAPTIVE_NUMBERS,
                partial(self.numbers, level=level),
                self.provenance,
                paths["answers"],
            )
            if synthetic is not False:
                records = self.synthetic(None if synthetic is True else synthetic)
                paths |= write_records(records, folder, csv)
            return paths

        return saved_together(checked_path(directory), write)
