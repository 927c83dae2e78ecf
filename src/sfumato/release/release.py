# SPDX-License-Identifier: Apache-2.0
"""A release: answers with error bars, how they were made, and every form they are published in.

Last room of the flow: it takes what left the vault, which is public, and the forecast of the plan.
Nothing here reads data or costs privacy.

`Release.save` writes all files into one folder, all or none: first into a hidden folder inside the
target, then moved into place, so a failure while writing leaves what was there before, and no
half-written file. A folder holds one release: another one takes its place.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.domain.domain import base_of
from sfumato.errors import SfumatoError, TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import ALL, Coefficients, Forecast
from sfumato.planning.views import Viewed
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.refine.consistency import Projection, Refined, Unrefined, check_projection, refined
from sfumato.refine.intervals import Intervals, bootstrapped, calibrated
from sfumato.refine.reconstruct import reconstruct
from sfumato.refine.shrink import PublicRecords
from sfumato.release.answers import (
    Ends,
    asked_product,
    find_groups,
    group_frame,
    joined_frame,
    long_frame,
    named_groups,
    plural_of,
    quantile_frame,
    range_frame,
    rollup_frame,
)
from sfumato.release.charts import QUALITY, quality_rows, synthetic_quality, synthetic_quality_chart
from sfumato.release.estimates import Combination, Estimates, check_level
from sfumato.release.export import (
    arrow_table,
    cannot_write,
    checked_path,
    replaced,
    write_csv,
    write_parquet,
    write_table_csv,
)
from sfumato.release.group_sql import (
    ReleasedNumbers,
    find_statement,
    statement_frame,
    write_statements,
)
from sfumato.release.labels import record_frame
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.object_file import RECORD, Unwritable, write_objects
from sfumato.release.provenance import (
    BLOCKS_FILE,
    GROUPS_FILE,
    NOISE_INTERVALS,
    constraints_record,
    cost_in_words,
    fact_sheet,
    full_lists,
    projection_in_words,
    provenance_json,
    provenance_of,
    registry_record,
)
from sfumato.release.ratios import variance_of
from sfumato.release.release_limits import LIMITS
from sfumato.text import STORED
from sfumato.types import Array, Progress
from sfumato.workload.constraints import Constraints
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from sfumato.ledger.entries import Entry

__all__ = ["Release", "save_all", "saved_together", "write_record", "write_records", "write_saved"]


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Published answers of one plan on one table.

    Privacy: a function of the measurements that the vault released (post-processing: Dwork, Roth
    2014, Proposition 2.1); ``provenance`` states the guarantee.
    Neighbours: those of the plan.

    Args:
        estimates: The numbers: of a linear reconstruction, or learned from what was measured.
        provenance: Public facts about the release, as JSON: what was asked, how it was answered,
            the guarantee.
        budget: What was promised.
        cost: What it took.
        is_stored: Whether a ledger had stored these answers before: nothing was spent on them now.
        entry: The debit that paid for it.
    """

    estimates: Estimates
    provenance: Mapping[str, object]
    budget: Budget
    cost: Cost
    is_stored: bool = False
    entry: Entry | None = None

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

        Args:
            forecast: How the workload was to be answered.
            measured: What left the vault.
            project: False for unbiased answers, ``"bounds"`` to cut each to what is feasible by
                itself, ``"nearest"`` for the projection in any case; True draws them towards
                guesses or a prior where noise asks for it.
            constraints: Public knowledge that all answers meet together; where that cannot be done,
                each one.
            intervals: Those of the noise, ``"calibrated"`` ones that shrink with the error of the
                answers, or approximate ones by ``"bootstrap"``, with which nothing is drawn towards
                guesses.
            public: Records that anybody may see: one more guess.
            entry: The debit that paid for it.
            is_stored: Whether it had paid before.
            provenance: Further public facts.
            progress: Called with what is done and how much of it.

        Returns:
            The published answers.
        """
        is_projected = check_projection(project) is not False
        # Projected is the normal form, so that a query has one answer however it was asked.
        planned = forecast.in_normal_form
        answers = reconstruct(planned, measured)
        agreed = None
        if project is True or project == "nearest":
            # A bootstrap knows nothing of the bias of a guess, so none is taken up with it.
            shrinks = project is True and intervals != "bootstrap"
            refine = partial(_refined, planned, measured, shrinks, public, constraints)
            agreed = refine(answers, progress=progress)
        repeated = None
        if intervals == "bootstrap" and agreed is not None:
            repeated = bootstrapped(planned, agreed, refine, progress)
        unbiased: Sequence[Array] = answers
        if isinstance(forecast.strategy, Viewed):
            unbiased = reconstruct(forecast, measured)
            agreed = None if agreed is None else agreed.seen(forecast.strategy.normal)
            repeated = None if repeated is None else repeated.seen(forecast.strategy.normal)
        laws = calibrated(forecast, agreed) if agreed is not None and agreed.squares else None
        agreed = None if agreed is None else replace(agreed, squares=())
        if repeated is not None:
            how = repeated.describe()
        else:
            how = NOISE_INTERVALS if intervals == "noise" or laws is None else laws.describe()
        record = provenance_of(
            forecast,
            rows=measured.rows,
            projection=projection_in_words(is_projected, agreed),
            constraints=constraints_record(constraints, agreed is not None),
            intervals=how,
            entry=entry,
            facts=provenance,
        )
        estimates = LinearEstimates(
            forecast,
            unbiased,
            measured.rows,
            is_projected,
            agreed,
            constraints,
            repeated,
            measured,
            laws,
            intervals == "calibrated" and laws is not None,
        )
        return cls(estimates, record, forecast.budget, forecast.cost, is_stored, entry)

    @property
    def workload(self) -> Workload:
        """What was asked."""
        return self.estimates.workload

    @property
    def forecast(self) -> Forecast:
        """The plan's forecast of all errors.

        Raises:
            WorkloadError: if there is none, as for an adaptive release.
        """
        if self.estimates.forecast is None:
            raise WorkloadError(
                "an adaptive release has no forecast: its error depends on the data; answers() has "
                "intervals for what was measured"
            )
        return self.estimates.forecast

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of queries; the last are the means, if any were asked."""
        return tuple(named_groups(self.workload).values())

    @property
    def rows(self) -> int | None:
        """The number of records where it is public, else None."""
        return self.estimates.rows

    def answers(
        self,
        attr: str | Iterable[str] | None = None,
        by: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        level: float = LIMITS.level,
        shares: bool = False,
    ) -> pd.DataFrame:
        """Answers with intervals that hold the truth with chance ``level``.

        Called bare: all groups in one long frame. With attributes (``answers("age", by="sex")``)
        or ``group="age x sex"``: one labelled column per attribute. Attributes that no group is
        over exactly are rolled up from the groups that hold them, ``attribute.level`` from finer
        cells, no attribute at all (``answers([])``) from whatever tells the number of records;
        ``frame.attrs["basis"]`` says from what. ``value`` is the answer after projection,
        ``unbiased`` the one before; intervals are those of the unbiased answer. An
        adaptive release has ``value``, ``low`` and ``high``, the ends not-a-number where nothing
        that was measured tells the answer.

        Args:
            attr: The attributes of a group, or one of them; ``attribute.level`` for its groups.
            by: Further attributes of it.
            group: The name of a group, in place of attributes.
            level: The least probability with which an interval holds the true answer.
            shares: Whether all numbers are shares of the public number of records, as in the notes;
                a sum becomes the average over all records, a mean stays what it is: the ratio of
                two shares.

        Returns:
            One row per query.

        Raises:
            WorkloadError: if no group tells these answers, or several of different columns do; or
                shares are asked for and the number of records is private.
            TooLarge: if so many rows do not fit in one frame.
        """
        check_level(level)
        records = self._shared(shares)
        if attr is None and by is None and group is None:
            frame = long_frame(self.listed, level)
            return frame if records is None else self._in_shares(frame, records)
        groups = find_groups(self.workload, attr, by, group)
        if groups:
            frame = joined_frame(self.estimates, groups, level)
        else:
            target = asked_product(self.workload.domain, attr, by)
            frame = rollup_frame(self.estimates, target, level)
        return frame if records is None else self._in_shares(frame, records)

    def _in_shares(self, frame: pd.DataFrame, records: int) -> pd.DataFrame:
        """A frame of answers as shares of so many records; a mean stays, its halves do not."""
        if "value" not in frame:
            frame[[name for name in ("sum", "count") if name in frame]] /= records
            return frame
        names = named_groups(self.listed.workload)
        means = [n for g, n in names.items() if not isinstance(g, int)]
        counted = ~frame["group"].isin(means) if "group" in frame and means else ALL
        frame.loc[counted, [*self.estimates.numbers]] /= records
        return frame

    def _shared(self, shares: bool) -> int | None:
        """The public number of records that shares are parts of; None if none are asked for."""
        if not shares:
            return None
        if not self.rows:
            raise WorkloadError(
                "shares are parts of a public number of records, and here it is private or 0; plan "
                'with neighbours="replace-one" and sf.Domain(..., records="all-inside")'
            )
        return self.rows

    def ranges(
        self,
        attr: str,
        between: Sequence[Ends],
        by: str | Sequence[str] | None = None,
        level: float = LIMITS.level,
        *,
        shares: bool = False,
    ) -> pd.DataFrame:
        """Chosen ranges of an attribute, ``[(30, 39), (18, 64)]``, both ends included.

        Answered from released ranges, prefixes of a long attribute, a tree or a table, with exact
        errors; all ranges of a long attribute are too many to be listed by ``answers``. In an
        adaptive release from the estimate, with intervals where what was measured tells them.

        Args:
            attr: The attribute.
            between: Pairs of a least and a greatest value.
            by: Attributes for whose cells each range is counted.
            level: The least probability with which an interval holds the true answer.
            shares: As for ``answers``.

        Returns:
            One row per range and cell of ``by``.

        Raises:
            WorkloadError: if a range holds no cell, nothing released gives ranges of it, or shares
                are asked for and the number of records is private.
        """
        check_level(level)
        names = [by] if isinstance(by, str) else list(by or ())
        records = self._shared(shares)
        frame = range_frame(self.estimates, attr, between, names, level)
        return frame if records is None else self._in_shares(frame, records)

    @cached_property
    def listed(self) -> Estimates:
        """What is written down: running totals stand for ranges that are too many to be listed."""
        return self.estimates.listed()

    def combine(
        self,
        coefficients: Mapping[str, Coefficients],
        level: float = LIMITS.level,
        *,
        shares: bool = False,
    ) -> Combination:
        """Any linear combination of answers, with its exact standard error and an interval.

        ``coefficients`` has for every group, by name, a number per answer in the order of
        ``answers(group=...)``, or a mapping from numbers of answers to coefficients. In an adaptive
        release the value is that of the estimate and has no standard error; ``basis`` says whether
        the interval is that of one query or adds up those of all answers.

        Args:
            coefficients: By the name of a group.
            level: The least probability with which the interval holds the true combination.
            shares: As for ``answers``: the same combination of shares.

        Returns:
            The value, its standard error, the ends, and what they come from.

        Raises:
            WorkloadError: if a group or the number of an answer is unknown, or shares are asked for
                and the number of records is private.
        """
        check_level(level)
        records = self._shared(shares)
        whole = self.estimates.combine(coefficients, level)
        return whole if records is None else whole.over(records)

    def sql(self, statement: str, level: float = LIMITS.level) -> pd.DataFrame:
        """The result of SQL over the released groups, with intervals where it is linear in them.

        Every group is a view of DuckDB, ``age_sex`` or ``"age x sex"`` for the group "age x sex",
        with the columns of ``answers(group=...)`` and the groups of levels as ``attribute_level``.
        Beside a column n that adds up answers (SUM, AVG, differences, multiples, CASE, FILTER and
        WHERE on attributes) stand ``n_standard_error``, ``n_low`` and ``n_high``, by the exact
        covariances; ``n_basis`` says what they come from, or why there are none. Nothing is cut to
        what is feasible.

        Args:
            statement: One SELECT; files, networks and other tables are out of its reach.
            level: The least probability with which an interval holds the true number.

        Returns:
            The rows of the statement.

        Raises:
            SqlError: if the statement cannot be read, or asks for anything else.
        """
        from sfumato.release.group_sql import sql_frame

        check_level(level)
        return sql_frame(self.listed, statement, level)

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariance matrix of the listed ``unbiased`` answers of a group, by their numbers.

        Args:
            group: The name of a group of linear queries.
            queries: The numbers of some of its answers.

        Returns:
            The matrix, in counts squared.

        Raises:
            WorkloadError: if the group or an answer is unknown, or the answers were learned.
        """
        return self.estimates.covariance(group, queries)

    def quantiles(
        self,
        attr: str,
        probabilities: float | Sequence[float],
        by: str | Sequence[str] | None = None,
        level: float = LIMITS.level,
    ) -> pd.DataFrame:
        """Quantiles of an attribute (0.5 is the median), for each cell of ``by``, with intervals.

        From the running totals (``sf.prefixes``) if they were released, else from a table; in an
        adaptive release from the estimate.

        Args:
            attr: An ordered attribute.
            probabilities: One or more, strictly between 0 and 1.
            by: Attributes for whose cells each quantile is taken.
            level: The least probability with which an interval holds the true quantile.

        Returns:
            One row per cell of ``by`` and probability.

        Raises:
            WorkloadError: if the attribute has no order, or nothing released tells its totals.
        """
        check_level(level)
        each = [probabilities] if isinstance(probabilities, int | float) else list(probabilities)
        names = [by] if isinstance(by, str) else list(by or ())
        return quantile_frame(self.estimates, attr, each, names, level)

    def variances(
        self, attr: str, by: str | Sequence[str] | None = None, level: float = LIMITS.level
    ) -> pd.DataFrame:
        """The variance of a column, for each cell of ``by``, with its mean, number and interval.

        From whatever was released that tells it: ``sf.variances``, ``sf.standard_deviations``, or
        ``sf.moments`` of this column and others. Divided by the number of records, as ``VAR_POP``.

        Args:
            attr: The column.
            by: The attributes by whose cells it was released.
            level: The least probability with which an interval holds the variance.

        Returns:
            One row per cell of ``by``: ``count``, ``mean``, ``variance``, ``standard_error``,
            ``low`` and ``high``.

        Raises:
            WorkloadError: if nothing was released that tells it.
        """
        check_level(level)
        names = [by] if isinstance(by, str) else list(by or ())
        return group_frame(self.estimates, variance_of(self.workload, attr, names), level)

    def statement(self, which: int = 0, level: float = LIMITS.level) -> pd.DataFrame:
        """The answer of a SELECT in its own shape: columns as selected, in order.

        Beside a noisy column ``n`` stand ``n_low`` and ``n_high``. HAVING, ORDER BY and LIMIT look
        at the released values, after the noise; `answers` has all groups. Where released values
        decide which rows are shown, the intervals of all rows hold together with chance ``level``,
        so that those of the chosen ones do.

        Args:
            which: The number of the statement among those of the workload, from 0.
            level: The least probability with which an interval holds the true value.

        Returns:
            One row per group that the statement leaves.

        Raises:
            WorkloadError: if there is no such statement.
        """
        check_level(level)
        statement = find_statement(self.workload, which)
        return statement_frame(statement, ReleasedNumbers(self.estimates, statement.level(level)))

    def values(self) -> list[Array]:
        """The published answers of every group of linear queries.

        Returns:
            One array per group, in the order of the workload.
        """
        return [self.estimates.group(t).value() for t in range(len(self.workload.terms))]

    def table(self, *names: str) -> Array:
        """Counts over these attributes, in the order of the domain, behind answers that agree.

        Args:
            *names: Attributes that were asked about.

        Returns:
            An array with an axis for each.

        Raises:
            WorkloadError: if no table is behind the answers, or none over these attributes.
        """
        return self.estimates.table(names)

    def measured(self) -> pd.DataFrame:
        """What was measured, in order, and the standard deviation of the noise in counts.

        Returns:
            One row per measurement.
        """
        import pandas as pd

        return pd.DataFrame([*self.estimates.blocks()], columns=["measured", "cells", "noise"])

    @property
    def total(self) -> float:
        """The number of records: the public one, or an estimate from the released answers."""
        return self.estimates.total

    def synthetic(self, rows: int | None = None, words: WordSource | None = None) -> pd.DataFrame:
        """Records drawn from what was published; costs nothing.

        As many as the released total says, unless ``rows`` is given. They come from the table
        behind the answers where these agree, else from a tree of the released one- and two-way
        tables. ``frame.attrs["notes"]`` says which, and how far their answers are from the
        published ones; ``sf.synthetic_quality(frame)`` has that table by table.

        Args:
            rows: How many; the released total unless given.
            words: A source of random words other than the system's.

        Returns:
            One column per attribute of the schema.

        Raises:
            WorkloadError: if there is nothing to draw from.
        """
        source = system_words() if words is None else words
        drawn = self.estimates.draw(rows, source)
        frame = record_frame(self.workload.domain, drawn, source)
        frame.attrs[QUALITY] = quality_rows(self.estimates, drawn)
        return frame

    def to_arrow(self, level: float = LIMITS.level, *, shares: bool = False) -> pa.Table:
        """All answers as one Arrow table: the long frame with one column per attribute.

        With ``shares`` it has a column more for every number: ``share`` beside ``value``,
        ``share_low`` beside ``low`` and so on, empty for means, which are no shares.

        Args:
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: Whether shares of the public number of records stand beside the numbers.

        Returns:
            One row per answer.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        check_level(level)
        return arrow_table(self.listed, self.provenance, level, self._shared(shares))

    def to_pandas(self, level: float = LIMITS.level, *, shares: bool = False) -> pd.DataFrame:
        """All answers as one pandas frame: the table of ``to_arrow``.

        Args:
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: As for ``to_arrow``.

        Returns:
            One row per answer.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        frame: pd.DataFrame = self.to_arrow(level, shares=shares).to_pandas()
        return frame

    def to_polars(self, level: float = LIMITS.level, *, shares: bool = False) -> pl.DataFrame:
        """All answers as one polars frame: the table of ``to_arrow``.

        Args:
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: As for ``to_arrow``.

        Returns:
            One row per answer.

        Raises:
            SfumatoError: if polars is not installed.
            WorkloadError: if shares are asked for and the number of records is private.
        """
        try:
            import polars as pl
        except ImportError:
            raise SfumatoError(
                "polars is not installed; install it (pip install polars), or take to_arrow() or "
                "to_pandas()"
            ) from None
        table = self.to_arrow(level, shares=shares)
        return pl.DataFrame(table)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table of ``to_arrow`` for any library that reads Arrow, such as DuckDB or polars.

        Args:
            requested_schema: A schema that the reader would like, as a PyCapsule.

        Returns:
            A PyCapsule of a stream (Arrow's PyCapsule interface).
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(
        self,
        attr: str | Iterable[str] | None = None,
        by: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        level: float = LIMITS.level,
        width: int = LIMITS.chart_width,
    ) -> alt.Chart | alt.LayerChart | alt.VConcatChart:
        """A chart of answers: running totals as bands, bars with intervals, tables as heat maps.

        Args:
            attr: The attributes, as for ``answers``; those that no group has are rolled up. Called
                bare: the charts of a report, under one another.
            by: Further attributes.
            group: The name of a group, in place of attributes.
            level: The probability with which an interval holds the truth; 0.95 unless given.
            width: In pixels.

        Returns:
            An Altair chart, which notebooks show and ``.save("answers.png")`` writes.

        Raises:
            WorkloadError: if there are no such answers, or no chart suits them.
        """
        from sfumato.release.charts import plot_of

        check_level(level)
        return plot_of(self.listed, attr, by, group, level, width)

    def to_parquet(
        self, path: str | Path, level: float = LIMITS.level, *, shares: bool = False
    ) -> None:
        """All answers as one Parquet file; its metadata holds the provenance record.

        Args:
            path: Where the file is written.
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: As for ``to_arrow``.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        check_level(level)
        records = self._shared(shares)
        with replaced(path) as temporary:
            write_parquet(self.listed, self.provenance, level, temporary, records)

    def to_csv(
        self, path: str | Path, level: float = LIMITS.level, *, shares: bool = False
    ) -> None:
        """All answers as one CSV file that is safe to open in a spreadsheet.

        Args:
            path: Where the file is written.
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: As for ``to_arrow``.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        check_level(level)
        records = self._shared(shares)
        with replaced(path) as temporary:
            write_csv(self.listed, self.provenance, level, temporary, records)

    def report(self, level: float = LIMITS.level, *, shares: bool = False) -> str:
        """The report as one HTML page that needs nothing else, not even a network.

        Args:
            level: The probability with which an interval holds the truth; 0.95 unless given.
            shares: Whether shares of the public number of records stand beside the numbers.

        Returns:
            HTML.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        from sfumato.release.report import report_html

        check_level(level)
        return report_html(self, level, self._shared(shares))

    def fact_sheet(self) -> str:
        """Return what the public is told about the release, on one page of Markdown.

        Returns:
            Promise, parameters, unit of privacy, algorithms, accuracy and what is left to the
            publisher, after NIST SP 800-226; from the provenance record alone.
        """
        return fact_sheet(self.provenance)

    def registry_record(
        self,
        *,
        name: str,
        curators: Sequence[str],
        description: str,
        intended_use: str,
        region: str,
        authors: Sequence[str],
        product: str = "Summary statistics",
        sector: str | None = None,
        sources: str = "",
    ) -> str:
        """Return a record of tier 3 for the registry of deployments of the OpenDP project.

        Args:
            name: What the published data are called.
            curators: Who publishes them.
            description: What they are, in a sentence.
            intended_use: What they are for.
            region: Which region they describe.
            authors: Who answers for this record.
            product: "Summary statistics", "Synthetic data", "Interactive API" or "SQL queries".
            sector: "Technology", "Healthcare", "Education", "Government", "Energy" or "Finance",
                if one of them fits.
            sources: Where more can be read.

        Returns:
            The text of a YAML file, from the provenance record and what is given here.

        Raises:
            SfumatoError: A text is empty, or the product or sector is none of the registry's.
        """
        return registry_record(
            self.provenance,
            name=name,
            curators=curators,
            description=description,
            intended_use=intended_use,
            region=region,
            authors=authors,
            product=product,
            sector=sector,
            sources=sources,
        )

    def save(
        self,
        directory: str | Path,
        *,
        level: float = LIMITS.level,
        synthetic: int | bool = False,
        csv: bool = False,
        shares: bool = False,
    ) -> dict[str, Path]:
        """Write answers.parquet, provenance.json, report.html and release.zip; return their paths.

        ``sf.read_release(directory)`` reads the release back from release.zip.
        Every SELECT of the workload has its answer in its own shape beside them, as statement-1.csv
        and so on.

        ``synthetic`` adds synthetic.parquet, of so many records (True: as many as the total).
        ``csv`` adds answers.csv, and synthetic.csv if there are records.
        Either all files are written or none.

        Args:
            directory: Where the files are written; it is made if it is not there.
            level: The probability with which an interval holds the truth; 0.95 unless given.
            synthetic: How many synthetic records are written as well; True for as many as the
                total.
            csv: Whether CSV files are written as well.
            shares: As for ``to_arrow``, in the files of answers and in the report.

        Returns:
            Paths by the names of the files.

        Raises:
            WorkloadError: if shares are asked for and the number of records is private.
        """
        check_level(level)
        records = self._shared(shares)
        return save_all(self, checked_path(directory), level, synthetic, csv, records)

    def __repr__(self) -> str:
        summary = self._summary
        lines = [
            f"Release of {self.workload.queries:,} answers in {len(self.groups)} groups",
            f"  budget     {self.budget.describe()} ({self.provenance['neighbours']})",
            f"  mechanism  {self.provenance['mechanism']}, {summary.error}",
        ]
        if self.is_stored:
            lines.insert(1, f"  {STORED}")
        lines += [
            f"  {name}: {number} answers, {summary.words.format(first)}"
            for name, number, first, *_ in summary.rows
        ]
        rest = len(self.workload.terms) - len(summary.rows)
        if rest > 0:
            lines.append(f"  ... and {rest} more groups")
        lines += [f"  {r.name}: {plural_of(r.column)}" for r in self.workload.ratios]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        summary = self._summary
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(name)}</td>"
            f"{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"
            for name, *numbers in summary.rows
        )
        rest = len(self.workload.terms) - len(summary.rows)
        more = f"<p>&hellip; and {rest} more groups</p>" if rest > 0 else ""
        named: dict[str, list[str]] = {}
        for each in self.workload.ratios:
            named.setdefault(plural_of(each.column), []).append(escape(each.name))
        means = "".join(f"<p>{kind}: {', '.join(names)}</p>" for kind, names in named.items())
        return (
            f"<div><p><b>Release</b> of {self.workload.queries:,} answers in "
            f"{len(self.groups)} groups<br>{escape(self.budget.describe())} "
            f"({escape(str(self.provenance['neighbours']))}), {escape(self._spent())}<br>"
            f"{escape(str(self.provenance['mechanism']))}, "
            f"{summary.error.replace('rmse', 'root mean square error')}</p>"
            "<table><thead><tr><th style='text-align:left'>group</th><th>answers</th>"
            f"{''.join(f'<th>{head}</th>' for head in summary.heads)}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{more}"
            f"{means}"
            "<p><code>.answers()</code>, <code>.answers(group=&hellip;)</code>, "
            "<code>.quantiles(&hellip;)</code>, <code>.sql(&hellip;)</code>, "
            "<code>.plot(&hellip;)</code>, <code>.save(&hellip;)</code></p></div>"
        )

    def _spent(self) -> str:
        cost = cost_in_words(self.cost, self.budget)
        return (
            f"{STORED} ({cost} when it was first released)" if self.is_stored else f"spent {cost}"
        )

    @property
    def _summary(self) -> _Summary:
        forecast, terms = self.estimates.forecast, self.workload.terms
        if forecast is not None:
            shown = forecast.groups[: LIMITS.groups_shown]
            rows = [(g.name, f"{g.queries:,}", f"{g.rmse:.4g}", f"{g.largest:.4g}") for g in shown]
            error, heads = f"rmse {forecast.rmse:.4g} counts", ("rmse", "largest error")
            return _Summary(error, heads, rows, "rmse {}")
        counts = [
            f"{self.estimates.interval_count(t):,}"
            if term.rows <= LIMITS.intervals_counted
            else "some"
            for t, term in enumerate(terms[: LIMITS.groups_shown])
        ]
        steps = sum(1 for _ in self.estimates.blocks())
        return _Summary(
            f"{steps:,} measurements, {self.total:,.0f} records",
            ("with an interval",),
            [(t.name, f"{t.rows:,}", n) for t, n in zip(terms, counts, strict=False)],
            "{} with an interval",
        )


@dataclass(frozen=True, slots=True)
class _Summary:
    """What a release says of itself in short: its error, and some groups with their numbers."""

    error: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: str


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
        outcome = refined(
            forecast,
            measured,
            unbiased,
            shrinks=shrinks,
            public=public,
            constraints=constraints,
            progress=progress,
        )
        return None if isinstance(outcome, Unrefined) else outcome
    except (TooLarge, WorkloadError):
        if constraints is None:
            raise
        return None


FACT_SHEET: Final = "fact-sheet.md"
SAVED: Final = "release.zip"
QUALITY_TABLE: Final = "synthetic-quality.csv"
QUALITY_PICTURE: Final = "synthetic-quality.png"
COMPANIONS: Final = frozenset(
    {
        "answers.csv",
        "synthetic.parquet",
        "synthetic.csv",
        FACT_SHEET,
        QUALITY_TABLE,
        QUALITY_PICTURE,
        BLOCKS_FILE,
        GROUPS_FILE,
        SAVED,
    }
)
"""Files that only some releases have: those of an earlier one do not stay beside another's."""


def save_all(
    release: Release,
    directory: Path,
    level: float,
    synthetic: int | bool,
    csv: bool,
    records: int | None = None,
) -> dict[str, Path]:
    """Write the files of a release; their paths by kind.

    ``records`` is the public number of records of which shares stand beside the numbers.
    """
    return saved_together(
        directory, lambda folder: _write(release, folder, level, synthetic, csv, records)
    )


def saved_together(directory: Path, write: Callable[[Path], dict[str, Path]]) -> dict[str, Path]:
    """The files that ``write`` makes in an empty folder, moved into ``directory``, all or none."""
    was_there = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".sfumato-", dir=directory))
    except OSError as error:
        raise cannot_write(directory, error) from None
    try:
        try:
            written = write(hidden)
            if _holds_another(directory, hidden):
                stale = {*COMPANIONS, *(p.name for p in directory.glob("statement-*.csv"))}
                for name in stale - {path.name for path in written.values()}:
                    (directory / name).unlink(missing_ok=True)
            for path in written.values():
                path.replace(directory / path.name)
        except OSError as error:
            raise cannot_write(directory, error) from None
    except BaseException:
        shutil.rmtree(hidden if was_there else directory, ignore_errors=True)
        raise
    hidden.rmdir()
    return {kind: directory / path.name for kind, path in written.items()}


def _holds_another(directory: Path, new: Path) -> bool:
    """Whether the folder has the record of a release that is not the one to be moved into it."""
    try:
        records = [json.loads((d / RECORD).read_text(encoding="utf-8")) for d in (directory, new)]
    except (OSError, ValueError):
        return False
    old, fresh = ({**r, "created": None} if isinstance(r, dict) else r for r in records)
    return bool(old != fresh)


def write_record(provenance: Mapping[str, object], folder: Path) -> Path:
    """``provenance.json`` of a release."""
    path = folder / RECORD
    path.write_text(provenance_json(provenance) + "\n", encoding="utf-8")
    return path


def write_records(records: pd.DataFrame, folder: Path, csv: bool = False) -> dict[str, Path]:
    """``synthetic.parquet`` with its measures of quality, and ``synthetic.csv`` if it is wanted."""
    import pyarrow as pa
    from pyarrow import parquet

    from sfumato.release.charts import write_chart

    paths = {"synthetic": folder / "synthetic.parquet"}
    table = pa.Table.from_pandas(records, preserve_index=False)
    parquet.write_table(table, paths["synthetic"], compression="zstd")
    if csv:
        paths["synthetic_csv"] = folder / "synthetic.csv"
        write_table_csv(table, paths["synthetic_csv"])
    if records.attrs.get(QUALITY):
        paths["synthetic_quality"] = folder / QUALITY_TABLE
        measures = synthetic_quality(records)
        write_table_csv(
            pa.Table.from_pandas(measures, preserve_index=False), paths["synthetic_quality"]
        )
        paths["synthetic_quality_chart"] = folder / QUALITY_PICTURE
        write_chart(synthetic_quality_chart(records), paths["synthetic_quality_chart"])
    return paths


def _write(
    release: Release,
    folder: Path,
    level: float,
    synthetic: int | bool,
    csv: bool,
    records: int | None,
) -> dict[str, Path]:
    import pyarrow as pa
    from pyarrow import parquet

    from sfumato.release.report import report_html

    paths = {
        "answers": folder / "answers.parquet",
        "provenance": write_record(release.provenance, folder),
        "report": folder / "report.html",
    }
    write_parquet(release.listed, release.provenance, level, paths["answers"], records)
    paths["report"].write_text(report_html(release, level, records), encoding="utf-8")
    forecast = release.estimates.forecast
    for name, entries in ({} if forecast is None else full_lists(forecast)).items():
        paths[name.removesuffix(".parquet")] = folder / name
        parquet.write_table(pa.Table.from_pylist(entries), folder / name, compression="zstd")
    paths |= write_statements(release.estimates, level, folder)
    if csv:
        paths["answers_csv"] = folder / "answers.csv"
        write_csv(release.listed, release.provenance, level, paths["answers_csv"], records)
    if synthetic is not False:
        drawn = release.synthetic(None if synthetic is True else synthetic)
        paths |= write_records(drawn, folder, csv)
    return paths | write_saved(release, folder, paths)


def write_saved(release: Release, folder: Path, paths: Mapping[str, Path]) -> dict[str, Path]:
    """``release.zip``, from which the release is read back."""
    files = {p.name: p for p in paths.values() if p.suffix not in (".html", ".png")}
    forecast = release.estimates.forecast
    about = base_of(release.workload.domain), None if forecast is None else forecast.unit
    content = {
        "estimates": release.estimates.reduced(),
        "budget": release.budget,
        "cost": release.cost,
        "is_stored": release.is_stored,
    }
    try:
        write_objects(content, provenance_json(release.provenance), folder / SAVED, files, about)
    except Unwritable as error:  # what was paid for is saved all the same
        warnings.warn(
            f"{SAVED} was not written, since the release holds {error}; all other files were. "
            "This is a fault of sfumato, please report it",
            stacklevel=2,
        )
        return {}
    return {"release": folder / SAVED}
