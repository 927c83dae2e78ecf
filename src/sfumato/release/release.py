# SPDX-License-Identifier: Apache-2.0
"""A release: answers with error bars, how they were made, and every form they are published in.

Last room of the flow: it takes what left the vault, which is public, and the forecast of the plan.
Nothing here reads data or costs privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Coefficients, Forecast, answer_covariance
from sfumato.planning.views import Viewed, as_planned
from sfumato.privacy.budget import Budget
from sfumato.random import system_words
from sfumato.refine.consistency import Projection, Refined, check_projection, refined
from sfumato.refine.drawn_records import draw_records
from sfumato.refine.intervals import Intervals, bootstrapped
from sfumato.refine.reconstruct import reconstruct
from sfumato.refine.shrink import PublicRecords
from sfumato.refine.synthesize import ReleasedTable, released_tables, released_total, synthesize
from sfumato.release.answers import (
    Combination,
    Ends,
    combine,
    find_groups,
    joined_frame,
    listed,
    long_frame,
    named_groups,
    range_frame,
)
from sfumato.release.estimates import LEVEL, Estimates, check_level
from sfumato.release.export import arrow_table, checked_path, replaced, write_csv, write_parquet
from sfumato.release.provenance import (
    NOISE_INTERVALS,
    constraints_record,
    cost_in_words,
    projection_in_words,
    provenance_of,
)
from sfumato.release.quantiles import quantile_frame
from sfumato.release.save import save_all
from sfumato.release.synthetic_records import record_frame
from sfumato.text import STORED
from sfumato.types import Array, Progress
from sfumato.workload.constraints import Constraints

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sfumato.ledger.entries import Entry

__all__ = [
    "LEVEL",
    "Release",
]


_SHOWN_GROUPS = 12


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Published answers of one plan on one table.

    Privacy: a function of the measurements that the vault released (post-processing: Dwork, Roth
    2014, Proposition 2.1); ``provenance`` states the guarantee.
    Neighbours: those of the forecast.

    ``is_stored`` says that these answers are those that a ledger had stored before: nothing was
    spent on them now.
    """

    forecast: Forecast
    measured: Measured
    estimates: Estimates
    provenance: Mapping[str, object]
    is_stored: bool = False

    @classmethod
    def of(
        cls,
        forecast: Forecast,
        measured: Measured,
        *,
        project: Projection = True,
        constraints: Constraints | None = None,
        intervals: Intervals = "noise",
        public: PublicRecords | None = None,
        entry: Entry | None = None,
        is_stored: bool = False,
        provenance: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Reconstruct the answers from what was measured, and project them onto what data can have.

        ``project`` is False for unbiased answers, "bounds" to cut each one to what is feasible by
        itself, "nearest" for the projection in any case; otherwise, where noise outweighs few
        records, it is drawn towards guesses, ``public`` records among them.
        ``constraints`` are met by all answers together; where that cannot be done, by each one.
        ``intervals`` are those of the noise, or approximate ones by "bootstrap", with which nothing
        is drawn towards guesses.
        ``entry`` is the debit that paid for it, ``is_stored`` whether it had paid before;
        ``provenance`` adds public facts.
        """
        is_projected = check_projection(project) is not False
        # Projected is the normal form, so that a query has one answer however it was asked.
        planned = as_planned(forecast)
        answers = reconstruct(planned, measured)
        found = None
        if project is True or project == "nearest":
            # A bootstrap knows nothing of the bias of a guess, so none is taken up with it.
            shrinks = project is True and intervals == "noise"
            refine = partial(_refined, planned, measured, shrinks, public, constraints)
            found = refine(answers, progress=progress)
        repeated = None
        if intervals == "bootstrap" and found is not None:
            repeated = bootstrapped(planned, found, refine, progress)
        unbiased: Sequence[Array] = answers
        if isinstance(forecast.strategy, Viewed):
            unbiased = reconstruct(forecast, measured)
            found = None if found is None else found.seen(forecast.strategy.normal)
            repeated = None if repeated is None else repeated.seen(forecast.strategy.normal)
        record = provenance_of(
            forecast,
            rows=measured.rows,
            projection=projection_in_words(is_projected, found),
            constraints=constraints_record(constraints, found is not None),
            intervals=NOISE_INTERVALS if repeated is None else repeated.describe(),
            entry=entry,
            given=provenance,
        )
        rows = measured.rows
        estimates = Estimates(forecast, unbiased, rows, is_projected, found, constraints, repeated)
        return cls(forecast, measured, estimates, record, is_stored)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of queries; the last are the means, if any were asked."""
        return tuple(named_groups(self.forecast.workload).values())

    @property
    def rows(self) -> int | None:
        """The number of records where it is public, else None."""
        return self.measured.rows

    @property
    def budget(self) -> Budget:
        """The budget that was promised."""
        return self.forecast.budget

    def answers(
        self,
        attr: str | Iterable[str] | None = None,
        by: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        level: float = LEVEL,
    ) -> pd.DataFrame:
        """Answers with standard errors and intervals that hold the truth with chance ``level``.

        Called bare: all groups in one long frame. With attributes (``answers("age", by="sex")``)
        or ``group="age x sex"``: one labelled column per attribute. ``value`` is the answer after
        projection, ``unbiased`` the one before; intervals are those of the unbiased answer.
        """
        check_level(level)
        if attr is None and by is None and group is None:
            return long_frame(self.listed, level)
        found = find_groups(self.forecast.workload, attr, by, group)
        return joined_frame(self.estimates, found, level)

    def ranges(
        self,
        attr: str,
        between: Sequence[Ends],
        by: str | Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> pd.DataFrame:
        """Chosen ranges of an attribute, ``[(30, 39), (18, 64)]``, both ends included.

        Answered from released ranges, prefixes of a long attribute, a tree or a table, with exact
        errors; all ranges of a long attribute are too many to be listed by ``answers``.
        """
        check_level(level)
        names = [by] if isinstance(by, str) else list(by or ())
        return range_frame(self.estimates, self.measured, attr, between, names, level)

    @cached_property
    def listed(self) -> Estimates:
        """What is written down: running totals stand for ranges that are too many to be listed."""
        return listed(self.estimates, self.measured)

    def combine(
        self, coefficients: Mapping[str, Coefficients], level: float = LEVEL
    ) -> Combination:
        """Any linear combination of answers, with its exact standard error and an interval.

        ``coefficients`` has for every group, by name, a number per answer in the order of
        ``answers(group=...)``, or a mapping from numbers of answers to coefficients.
        """
        check_level(level)
        return combine(self.estimates, coefficients, level)

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariance matrix of the listed ``unbiased`` answers of a group, by their numbers."""
        return answer_covariance(self.forecast, group, queries)

    def quantiles(
        self,
        attr: str,
        probabilities: float | Sequence[float],
        by: str | Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> pd.DataFrame:
        """Quantiles of an attribute (0.5 is the median), for each cell of ``by``, with intervals.

        From the running totals (``sf.prefixes``) if they were released, else from a table.
        """
        check_level(level)
        wanted = [probabilities] if isinstance(probabilities, int | float) else list(probabilities)
        names = [by] if isinstance(by, str) else list(by or ())
        return quantile_frame(self.estimates, self.measured, attr, wanted, names, level)

    @cached_property
    def total(self) -> float:
        """The number of records: the public one, or an estimate from the released answers."""
        known = self.estimates.constraints
        if known is not None and known.total is not None:
            return known.total
        if self.rows is None and self.estimates.refined is not None:
            return self.estimates.refined.total
        return released_total(self._tables, self.rows)

    def synthetic(self, rows: int | None = None) -> pd.DataFrame:
        """Records drawn from what was published; costs nothing.

        As many as the released total says, unless ``rows`` is given. They come from the table
        behind the answers where these agree, else from a tree of the released one- and two-way
        tables. ``frame.attrs["notes"]`` says which, and how far their answers are from the
        published ones.
        """
        words = system_words()
        workload, found = self.forecast.workload, self.estimates.refined
        wanted = round(self.total) if rows is None else rows
        known = self.estimates.constraints
        drawn = None if found is None else draw_records(workload, found, wanted, words, known)
        if drawn is None:
            drawn = synthesize(workload.domain, self._tables, self.total, wanted, words, known)
        return record_frame(workload.domain, drawn, words)

    def to_arrow(self, level: float = LEVEL) -> pa.Table:
        """All answers as one Arrow table: the long frame with one column per attribute."""
        check_level(level)
        return arrow_table(self.listed, self.provenance, level)

    def to_parquet(self, path: str | Path, level: float = LEVEL) -> None:
        """All answers as one Parquet file; its metadata holds the provenance record."""
        check_level(level)
        with replaced(path) as temporary:
            write_parquet(self.listed, self.provenance, level, temporary)

    def to_csv(self, path: str | Path, level: float = LEVEL) -> None:
        """All answers as one CSV file that is safe to open in a spreadsheet."""
        check_level(level)
        with replaced(path) as temporary:
            write_csv(self.listed, self.provenance, level, temporary)

    def report(self, level: float = LEVEL) -> str:
        """The report as one HTML page that needs nothing else, not even a network."""
        from sfumato.release.report import report_html

        check_level(level)
        return report_html(self, level)

    def save(
        self,
        directory: str | Path,
        *,
        level: float = LEVEL,
        synthetic: int | bool = False,
        csv: bool = False,
    ) -> dict[str, Path]:
        """Write answers.parquet, provenance.json and report.html; return their paths.

        ``synthetic`` adds synthetic.parquet, of so many records (True: as many as the total).
        ``csv`` adds answers.csv, and synthetic.csv if there are records.
        Either all files are written or none.
        """
        check_level(level)
        return save_all(self, checked_path(directory), level, synthetic, csv)

    @cached_property
    def _tables(self) -> list[ReleasedTable]:
        return released_tables(self.listed.forecast, self.listed.unbiased)

    def __repr__(self) -> str:
        forecast = self.forecast
        lines = [
            f"Release of {forecast.workload.queries:,} answers in {len(self.groups)} groups",
            f"  budget     {forecast.budget.describe()} ({forecast.neighbours})",
            f"  mechanism  {forecast.mechanism}, rmse {forecast.rmse:.4g} counts",
        ]
        if self.is_stored:
            lines.insert(1, f"  {STORED}")
        lines += [
            f"  {g.name}: {g.queries:,} answers, rmse {g.rmse:.4g}"
            for g in forecast.groups[:_SHOWN_GROUPS]
        ]
        if len(forecast.groups) > _SHOWN_GROUPS:
            lines.append(f"  ... and {len(forecast.groups) - _SHOWN_GROUPS} more groups")
        lines += [f"  {r.name}: means" for r in forecast.workload.ratios]
        return "\n".join(lines)

    def _spent(self) -> str:
        cost = cost_in_words(self.forecast.cost, self.forecast.budget)
        return (
            f"{STORED} ({cost} when it was first released)" if self.is_stored else f"spent {cost}"
        )

    def _repr_html_(self) -> str:
        forecast = self.forecast
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(g.name)}</td><td>{g.queries:,}</td>"
            f"<td>{g.rmse:.4g}</td><td>{g.largest:.4g}</td></tr>"
            for g in forecast.groups[:_SHOWN_GROUPS]
        )
        rest = len(forecast.groups) - _SHOWN_GROUPS
        more = f"<p>&hellip; and {rest} more groups</p>" if rest > 0 else ""
        means = ", ".join(escape(r.name) for r in forecast.workload.ratios)
        return (
            f"<div><p><b>Release</b> of {forecast.workload.queries:,} answers in "
            f"{len(self.groups)} groups<br>{escape(forecast.budget.describe())} "
            f"({escape(forecast.neighbours)}), {escape(self._spent())}<br>"
            f"{escape(forecast.mechanism)}, root mean square error {forecast.rmse:.4g} counts</p>"
            "<table><thead><tr><th style='text-align:left'>group</th><th>answers</th><th>rmse</th>"
            f"<th>largest error</th></tr></thead><tbody>{rows}</tbody></table>{more}"
            f"{f'<p>means: {means}</p>' if means else ''}"
            "<p><code>.answers()</code>, <code>.answers(group=&hellip;)</code>, "
            "<code>.quantiles(&hellip;)</code>, <code>.save(&hellip;)</code></p></div>"
        )


def _refined(
    forecast: Forecast,
    measured: Measured,
    shrinks: bool,
    public: PublicRecords | None,
    constraints: Constraints | None,
    unbiased: Sequence[Array],
    progress: Progress | None = None,
) -> Refined | None:
    """Answers that agree; what is paid for is published whether or not they meet constraints."""
    try:
        return refined(
            forecast,
            measured,
            unbiased,
            shrinks=shrinks,
            public=public,
            constraints=constraints,
            progress=progress,
        )
    except (TooLarge, WorkloadError):
        if constraints is None:
            raise
        return None
