# SPDX-License-Identifier: Apache-2.0
"""The limits of the vault in one place: sizes that are refused, and how much is handled at once.

All of them are public and fixed. None changes a count or a law of noise: those that divide work
into parts change the time and the memory it takes, the others refuse before anything is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "VaultLimits"]


@dataclass(frozen=True, slots=True)
class VaultLimits:
    """Sizes that are refused or divided, by the module that reads them."""

    # duckdb, postgres, spark: what comes from an engine at a time
    duckdb_rows: int = 2**20
    """Rows of an answer of DuckDB that are taken at a time."""
    postgres_rows: int = 2**18
    """Rows of a binary COPY that are gathered before they are read."""
    spark_rows: int = 2**22
    """Rows that come to the driver of Spark at once; more come in parts."""
    bins_in_query: int = 64
    """Bins that are told apart by comparisons in the text of a query; more are looked up."""
    connection_seconds: int = 60
    """Seconds that a server of PostgreSQL has to answer at all."""

    # csv
    header_bytes: int = 1 << 20
    """Bytes of the first line of a CSV file; a longer one is refused."""
    record_bytes: int = 1 << 24
    """Bytes of a record; a longer one is a record of nulls, so that one cannot fill the memory."""
    block_bytes: int = 1 << 24
    """Bytes of a CSV file that are read at a time."""
    null_records: int = 1 << 20
    """Records of nulls that are handed over at a time."""
    records_skipped: int = 1000
    """Records of a block that Arrow leaves out, microseconds each; beyond that they are taken out
    before."""

    # tables
    parquet_rows: int = 2**18
    """Rows of a Parquet file that Arrow reads at a time, where DuckDB cannot read it."""

    # encode
    values_in_query: int = 64
    """Values of a category that are listed in the text of a query; more are looked up by a join."""

    # arrow_codes, tables
    classes: int = 2**17
    """Classes of the values of a column that Arrow reads; with more, its engine encodes it."""
    classes_of_few: int = 2**12
    """Classes that an engine is asked about even where there are fewer records: a millisecond."""
    starts_compared: int = 100
    """Starts of classes that every value is compared with, which takes less than a search then."""
    moment_classes: int = 2**14
    """Steps of times whose starts are listed, a microsecond each."""
    rows_together: int = 2**16
    """Rows that are encoded and counted at once: arrays in the processor's cache, and short enough
    for the allocator to hand out the same memory again."""
    batch_bytes: int = 2**28
    """Bytes of a part of a Parquet file that is read at once; larger parts come in batches."""
    codes_held: int = 2**31
    """Bytes of codes that are held beside an engine; a table of more is encoded inside of it."""

    # count and questions
    cells_held: int = 2**27
    """Cells of exact tables that are held at a time: 1 GiB."""
    cells_dense: int = 2**22
    """Cells of a table that is held cell by cell; of a larger one the cells of its records are."""
    comparisons_per_query: int = 1024
    """Comparisons of all conditions that one query counts."""
    value_cells: int = 1024
    """Cells of all `Values` of one table together: so many sums has a query."""
    fine_steps: int = 2**12
    """Steps that one person moves an answer by, from which on they are fine enough for noise."""

    # keys
    key_characters: int = 1000
    """Characters of a value that may be published as a key; a longer one counts as other."""

    # noise, measure, sparse, stream_noise
    draws_at_once: int = 1 << 14
    """Draws that are filtered at once: their arrays stay in the processor's cache."""
    values_at_once: int = 2**20
    """Exact values that noise is added to at a time: Python integers take five times the memory."""
    scores_at_once: int = 4096
    """Scores of sparse vectors whose noise is drawn together."""
    steps_ahead: int = 256
    """Steps of a stream whose noise is drawn ahead: it does not depend on the data."""

    # k_norm
    k_norm_queries: int = 6
    """Independent queries whose hull is computed; a draw takes factorially many proposals."""
    k_norm_columns: int = 128
    """Kinds of cells of which all pairs are moves, where records are replaced."""
    k_norm_coefficient: int = 2**10
    """Beyond it the exact arithmetic of acceptance would leave 64 bits."""
    k_norm_epsilon: float = 2.0**-9
    """The least epsilon, and one over the greatest: scales of noise that can be drawn."""
    k_norm_facet_bits: int = 10
    """Bits of the facets' coordinates: the norm is exact to 1 in 1,000, privacy is exact anyway."""
    k_norm_trials: int = 20_000
    """Proposals for one draw on average: a few milliseconds."""
    k_norm_batch: int = 2**16
    """Proposals that are drawn at once: a few megabytes."""


LIMITS: Final = VaultLimits()
