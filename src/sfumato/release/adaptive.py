# SPDX-License-Identifier: Apache-2.0
"""What an adaptive release publishes: answers, tables, rows, and what was measured on the way.

All answers come from one distribution, so they agree with each other, counts are never negative and
tables add up. They are estimates: a table that was measured carries noise of a known size, one that
was not is as good as the model, which no interval can promise. So none are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.randomness import WordSource, choose, system_words
from sfumato.refine.learning.transcript import Transcript
from sfumato.refine.synthetic.synthesize import Synthetic
from sfumato.release.export import write_values
from sfumato.release.frames import Group, check_rows, key_term, named_groups
from sfumato.release.labels import texts_of
from sfumato.release.records import record_frame
from sfumato.release.saving import saved_together, write_record, write_records
from sfumato.wording import shown
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Ratio, Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.budget.entries import Entry
    from sfumato.domain import Domain

__all__ = ["MOST_CELLS", "AdaptiveRelease", "Estimate"]

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
    entry: Entry | None = None

    def __repr__(self) -> str:
        return (
            f"AdaptiveRelease of {self.workload.queries:,} queries from "
            f"{len(self.transcript.steps)} measurements, {self.estimate.total:,.0f} records"
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

    def answers(self) -> pd.DataFrame:
        """Every query with its estimate: columns group, query, value; the last are the means."""
        import pandas as pd

        work = self.workload
        check_rows(sum(key_term(work, group).rows for group in named_groups(work)))
        frames = [
            pd.DataFrame(
                {"group": name, "query": texts_of(key_term(work, g)), "value": self.value_of(g)}
            )
            for g, name in named_groups(work).items()
        ]
        return pd.concat(frames, ignore_index=True)

    def value_of(self, group: Group) -> Array:
        """The answers of a group; a mean is that of the estimate, NaN where it has no record."""
        if isinstance(group, Ratio):
            total, count = self.value_of(group.numerator), self.value_of(group.denominator)
            mean: Array = np.full(count.shape, np.nan)
            np.divide(total, count, out=mean, where=count > 0)
            return mean
        term = self.workload.terms[group]
        return term.answer(self.estimate.table(term.attributes))

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
        """Records drawn from the estimate, as many as it holds unless told."""
        source = system_words() if words is None else words
        count = max(1, round(self.estimate.total)) if rows is None else rows
        shares = np.floor(self.weights / self.weights.sum() * 2.0**52).astype(np.int64)
        codes = self.cells[choose(shares.tolist(), count, source)]
        domain = self.estimate.domain
        columns = {a.name: codes[:, i].astype(np.int64) for i, a in enumerate(domain)}
        return record_frame(domain, Synthetic(columns, ("drawn from the adaptive model",)), source)

    def report(self) -> str:
        """The report as one HTML page that needs nothing else, not even a network."""
        from sfumato.release.adaptive_report import adaptive_report_html

        return adaptive_report_html(self)

    def save(self, directory: str | Path, *, synthetic: int | bool = False) -> dict[str, Path]:
        """Write answers.parquet, provenance.json and report.html; return their paths.

        ``synthetic`` adds synthetic.parquet, of so many records (True: as many as the estimate
        holds). Either all files are written or none.
        """

        def write(folder: Path) -> dict[str, Path]:
            paths = {
                "answers": folder / "answers.parquet",
                "provenance": write_record(self.provenance, folder),
                "report": folder / "report.html",
            }
            paths["report"].write_text(self.report(), encoding="utf-8")
            write_values(self.workload, self.value_of, self.provenance, paths["answers"])
            if synthetic is not False:
                records = self.synthetic(None if synthetic is True else synthetic)
                paths["synthetic"] = write_records(records, folder)
            return paths

        return saved_together(Path(directory), write)
