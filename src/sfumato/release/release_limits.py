# SPDX-License-Identifier: Apache-2.0
"""The limits of the release room in one place: what is listed, drawn and written at most, and why.

Grouped by the module that reads them. None of them changes an answer: they decide which of several
valid intervals is computed, and how much of a release is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "ReleaseLimits"]


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """Sizes of frames, files, charts and pages, and of exact computations of errors."""

    # release and estimates
    level: float = 0.95
    """The probability with which an interval holds the truth, unless another is given."""
    intervals_counted: int = 100_000
    """Answers of a group, or of a page, whose intervals are counted."""
    groups_shown: int = 12
    """Groups that a release shows of itself: about a screen."""

    # linear
    followed_values: int = 2**14
    """Measured values, each taken through the reconstruction once; sums, each taken back."""
    rollup_entries: int = 2**24
    """Coefficients of sums of one group along all attributes: 128 MiB."""
    statement_files: int = 100
    """SELECTs of a workload whose answers are written in their own shape."""
    statement_file_rows: int = 100_000
    """Groups of such a SELECT; answers of more are in answers.parquet alone."""
    statement_rows: int = 10_000
    """Rows of a SQL statement over released groups that get intervals, one by one."""
    rollup_groups: int = 4
    """Groups that hold the same attributes whose errors are compared: so many of the smallest ones,
    and so many of the others with the least total variance."""

    # pooled
    pooled_cells: int = 2**10
    """Cells up to which several releases are combined by the best estimate from all values."""
    pooled_values: int = 2**12
    """Measured values of all of them: a singular value decomposition of some seconds."""
    pooled_entries: int = 2**23
    """Queries times measured values: 64 MiB."""
    pooled_rollup_rows: int = 2**10
    """Answers of a group that is also told by sums of another release's: each is followed back."""
    pooled_rank: float = 1e-10
    """Singular values below this part of the greatest count as none."""

    # saved
    saved_rounding: float = 1e-9
    """By which answers of a file may differ from those computed again, as a part of the largest."""

    # learned
    learned_table_cells: int = 2**26
    """Cells of one table of the estimate: half a GiB."""
    summed_answers: int = 2**22
    """Released answers that further queries are added up from."""

    # ratios
    compared_coefficients: int = 2**22
    """Coefficients of one attribute that are compared one by one."""
    followed_weights: int = 2**24
    """Measured values times means, whose weights are looked at one by one."""
    quantile_steps: int = 4
    """Steps of the quantile of Laplace noise at the ends of an interval."""

    # second moments
    nuisance_share: float = 0.02
    """Of the chance that an interval of a variance misses, the part for its unknown means: at 95%
    it makes the rest wider by half a percent, and the means' own intervals 3.3 standard errors."""
    nuisance_steps: int = 17
    """Means that are tried for a variance, between the ends that are likely."""
    nuisance_pairs: int = 5
    """Means of each column that are tried for a covariance, whose extremes are at the ends."""
    least_variance: float = 1e-9
    """Of values in [-1, 1]: smaller variances count as so much in the slope of a correlation."""

    # answers and export
    frame_rows: int = 2 * 10**7
    """Rows of a frame, some 150 bytes each: 3 GiB."""
    rows_at_once: int = 2**18
    """Rows of a file that are made at a time."""
    row_group: int = 2**17
    """Rows of a row group of a Parquet file."""

    # provenance
    record_entries: int = 1000
    """Groups, and blocks, that the record lists: some 250 bytes each."""

    # charts
    chart_width: int = 560
    """Pixels, unless a chart fills its container."""
    charts_shown: int = 12
    """Charts of a report."""
    heat_map_cells: int = 5000
    """Cells of a heat map."""
    bars_shown: int = 150
    """Bars of a chart."""
    lines_shown: int = 10
    """Lines that can be told apart in one chart."""
    line_points: int = 20_000
    """Points of all lines of a chart."""

    # quality of synthetic records
    quality_cells: int = 2**22
    """Cells of a table whose records are counted for the measures of their quality: 32 MiB."""
    quality_pairs: int = 2000
    """Pairs that no released table holds whose association is listed: all of 63 attributes."""
    quality_bars: int = 30
    """Bars of each part of the picture."""

    # object_file
    stored_forecast_bytes: int = 2**20
    """Bytes of what stands beside a measurement in a ledger, so that sessions read it without its
    plan: 2 to 4 KB as a rule; dense strategies can have more than the measurement itself."""

    # report
    page_bytes: int = 5_000_000
    """Bytes of a page; 900,000 of them are the charting library."""
    chart_bytes: int = 1_200_000
    """Bytes of all charts of a page."""
    section_bytes: int = 1_500_000
    """Bytes of all tables of a page."""
    list_bytes: int = 800_000
    """Bytes of the names of the groups that have no table."""
    table_rows: int = 50
    """Rows of a table: the first ones stand for the others."""
    tables_rows: int = 10**6
    """Answers of all groups with a table together: the errors of all of them are computed."""
    errors_listed: int = 200
    """Groups in the table of errors; of more, the worst are listed."""
    steps_listed: int = 1000
    """Measurements of an adaptive release that are listed."""
    label_characters: int = 200
    """Characters of a label or a name."""
    provenance_characters: int = 60_000
    """Characters of the provenance record on a page."""


LIMITS: Final = ReleaseLimits()
