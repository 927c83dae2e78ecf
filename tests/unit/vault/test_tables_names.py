# SPDX-License-Identifier: Apache-2.0
"""What a ledger calls a table; what has no name of its own needs one, or answers get mixed up."""

from __future__ import annotations

from pathlib import Path

import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import LedgerError
from sfumato.vault.tables import name_of, open_table

DOMAIN = sf.Domain({"sex": 2})
FRAME = pd.DataFrame({"sex": [0, 1, 1]})
OTHER = pd.DataFrame({"sex": [0] * 900 + [1] * 50})
BUDGET = sf.Budget(epsilon=1)


def visits() -> ibis.expr.types.Table:
    """A table of a database."""
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE visits AS SELECT unnest([0, 1, 1]) AS sex")
    return connection.table("visits")


def unnamed() -> dict[str, object]:
    """Tables in memory and expressions, of every kind."""
    arrow = pa.table({"sex": [0, 1, 1]})
    table = visits()
    return {
        "pandas": FRAME,
        "polars": pl.DataFrame({"sex": [0, 1, 1]}),
        "lazy polars": pl.LazyFrame({"sex": [0, 1, 1]}),
        "arrow": arrow,
        "record batch": arrow.to_batches()[0],
        "memtable": ibis.memtable(FRAME),
        "expression": table.filter(table.sex == 1),
        "opened": open_table(FRAME),
    }


KINDS = [
    "pandas", "polars", "lazy polars", "arrow", "record batch", "memtable", "expression", "opened",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_in_memory_needs_a_name_beside_a_ledger(kind: str, tmp_path: Path) -> None:
    table = unnamed()[kind]
    assert name_of(table) is None
    assert name_of(table, "visits") == "visits"
    place = tmp_path / "l"
    book = sf.Ledger.create(place, BUDGET, "pandas table in memory")
    plan = sf.plan(sf.marginals(DOMAIN, 1), BUDGET)
    for ledger in (book, place):
        with pytest.raises(LedgerError, match="no name of its own"):
            plan.release(table, ledger=ledger)
        with pytest.raises(LedgerError, match="no name of its own"):
            sf.open_session(table, DOMAIN, BUDGET, ledger=ledger)
    assert book.entries() == ()
    plan.release(table)  # without a ledger there is nothing to be mixed up


def test_files_and_tables_of_a_database_have_names(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "visits.parquet")
    assert name_of(tmp_path / "visits.parquet") == "visits.parquet"
    assert name_of(open_table(tmp_path / "visits.parquet")) == "visits.parquet"
    assert name_of(visits()) == "visits"
    assert name_of(sf.SqlSource(tmp_path / "visits.parquet", "SELECT * FROM data")) is not None


def test_another_query_on_the_same_data_never_gets_the_answers_of_the_first(
    tmp_path: Path,
) -> None:
    pd.concat([FRAME, OTHER]).to_parquet(tmp_path / "visits.parquet")
    all_rows, spaced, some = (
        sf.SqlSource(tmp_path / "visits.parquet", text)
        for text in (
            "SELECT * FROM data",
            "  SELECT * FROM data\n",
            "SELECT * FROM data WHERE sex = 1",
        )
    )
    assert name_of(all_rows) == name_of(spaced) != name_of(some)
    assert name_of(open_table(all_rows)) == name_of(all_rows)
    book = sf.Ledger.create(tmp_path / "l", BUDGET, name_of(all_rows) or "")
    plan = sf.plan(sf.marginals(DOMAIN, 1), BUDGET)
    plan.release(all_rows, ledger=book)
    assert plan.release(spaced, ledger=book).is_stored
    with pytest.raises(
        LedgerError, match=r"belongs to table 'query [0-9a-f]{12} on visits.parquet'"
    ):
        plan.release(some, ledger=book)
    # A ledger of an earlier version calls every query on the data the same.
    old = sf.Ledger.create(tmp_path / "old", BUDGET, "query on visits.parquet")
    assert not plan.release(some, ledger=old).is_stored


def test_a_second_dataframe_never_gets_the_answers_of_the_first(tmp_path: Path) -> None:
    book = sf.Ledger.create(tmp_path / "l", BUDGET, "first")
    plan = sf.plan(sf.marginals(DOMAIN, 1), BUDGET)
    first = plan.release(FRAME, ledger=book, name="first")
    assert not first.is_stored
    with pytest.raises(LedgerError, match="belongs to table 'first'"):
        plan.release(OTHER, ledger=book, name="second")
    with pytest.raises(LedgerError, match="no name of its own"):
        plan.release(OTHER, ledger=book)
    again = plan.release(FRAME, ledger=book, name="first")
    assert again.is_stored
    assert "stored answer, nothing spent" in repr(again)
    assert "stored answer, nothing spent" in again._repr_html_()
    assert "stored" not in repr(first) + first._repr_html_()
    pd.testing.assert_frame_equal(first.answers(), again.answers())


def test_a_series_of_counts_needs_a_name_beside_a_ledger(tmp_path: Path) -> None:
    book = sf.Ledger.create(tmp_path / "l", BUDGET, "visits")
    watch = sf.watch(3, BUDGET, 100)
    with pytest.raises(LedgerError, match="no name of its own"):
        watch.values([1, 2, 3], ledger=book)
    first = watch.values([1, 2, 3], ledger=book, name="visits")
    again = watch.values([1, 2, 3], ledger=book, name="visits")
    assert (first.is_stored, again.is_stored) == (False, True)
    assert "stored answer, nothing spent" in repr(again)


def test_a_correction_that_is_stored_says_so(tmp_path: Path) -> None:
    book = sf.Ledger.create(tmp_path / "l", BUDGET, "people")
    correction = sf.correct(sf.marginals(DOMAIN, 1), BUDGET, 10)
    first, again = (
        correction.release(FRAME, [1.0, 2.0], ledger=book, name="people") for _ in range(2)
    )
    assert (first.is_stored, again.is_stored) == (False, True)
    assert "stored answer, nothing spent" in repr(again)
