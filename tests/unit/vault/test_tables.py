# SPDX-License-Identifier: Apache-2.0
"""Opening tables: every kind of source, and one clear message for what cannot be one."""

from __future__ import annotations

import gzip
import os
import pickle
from datetime import date

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.vault.count import count_marginals
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import check_columns
from sfumato.vault.sources import CsvSource, PostgresSource, SqlSource, engine_source
from sfumato.vault.tables import column_types, open_table, public_name
from tests.shared.vault_reference import SOURCES, make_source

PEOPLE = pa.table({"age": [30, 41, 30, None], "sex": ["F", "M", "M", None]})
DOMAIN = Domain([Integer("age", 30, 41, nulls="missing"), Category("sex", ("F", "M"))])


def ages(source: object) -> list[int]:
    counts = count_marginals(open_table(source), DOMAIN, [("age",)]).reveal(("age",))
    return np.repeat(np.arange(30, 43), counts).tolist()


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_the_same_counts(kind, tmp_path):
    assert ages(make_source(kind, PEOPLE, tmp_path)) == [30, 30, 41]


def test_the_last_ending_of_a_name_says_what_a_file_is(tmp_path):
    pq.write_table(PEOPLE, tmp_path / "people.2024.csv.parquet")
    assert ages(tmp_path / "people.2024.csv.parquet") == [30, 30, 41]
    PEOPLE.to_pandas().to_csv(tmp_path / "people.parquet.csv", index=False)
    assert ages(tmp_path / "people.parquet.csv") == [30, 30, 41]


def test_an_ibis_table_is_counted_where_it_lives():
    backend = ibis.duckdb.connect()
    backend.con.register("given", PEOPLE)
    backend.raw_sql("CREATE TABLE people AS SELECT * FROM given")
    backend.con.unregister("given")
    rows = backend.table("people")
    assert ages(rows) == [30, 30, 41]
    assert ages(rows.filter(rows.sex == "M").mutate(age=rows.age + 0)) == [30, 41]
    left = backend.raw_sql("SELECT table_name FROM information_schema.tables").fetchall()
    assert left == [("people",)], "temporary tables must not stay behind"
    assert ages(ibis.memtable(PEOPLE)) == [30, 30, 41]


def test_the_database_of_an_address_may_be_an_option():
    for address in ("postgres://me@host/town", "postgres://me@host?dbname=town"):
        assert engine_source(f"{address}::people") == PostgresSource(address, "town", "people")


def test_not_a_number_in_parquet_is_seen_although_its_statistics_hide_it(tmp_path):
    """They state the least and the greatest value; an engine that trusts them sees no NaN."""
    rows = pa.table({"x": [1.0, float("nan"), 2.0, None], "y": [1.0, 2.0, float("nan"), 1.0]})
    rows = rows.set_column(1, "y", rows["y"].cast(pa.float32()))
    pq.write_table(rows, tmp_path / "rows.parquet")
    domain = Domain(
        [
            Numeric("x", (0, 1.5, 3), outside="clamp", nulls="missing"),
            Integer("y", 0, 2, outside="clamp", nulls="missing"),
        ]
    )
    counts = count_marginals(open_table(tmp_path / "rows.parquet"), domain, [("x",), ("y",)])
    assert counts.reveal(("x",)).tolist() == [1, 1, 2]
    assert counts.reveal(("y",)).tolist() == [0, 2, 1, 1]
    unit = PrivacyUnit("x", 1)
    kept = count_marginals(open_table(tmp_path / "rows.parquet"), domain, [()], unit)
    assert kept.reveal(()) == 2


def test_a_query_on_a_duckdb_file_names_its_tables(tmp_path):
    source = str(make_source("duckdb", PEOPLE, tmp_path)).partition("::")[0]
    assert ages(SqlSource(source, "SELECT * FROM visits WHERE sex = 'M';")) == [30, 41]
    joined = "SELECT v.age, 'F' AS sex FROM main.visits AS v"
    assert ages(SqlSource(source, joined)) == [30, 30, 41, 42]
    assert public_name(SqlSource(source, joined)) == "query on people.duckdb"
    assert "both given" in refusal(SqlSource(f"{source}::visits", joined))
    assert "cannot be run" in refusal(SqlSource(source, "SELECT * FROM nowhere"))
    assert "is empty" in refusal(SqlSource(source, " ; "))
    assert "has no types" in refusal(SqlSource(make_source("csv", PEOPLE, tmp_path), joined))


def test_a_dataframe_without_types_is_read_as_text():
    """The type of such a column would otherwise hang on its values."""
    mixed = pd.DataFrame({"age": pd.Series([30, "41", None, "?"], dtype=object), "sex": ["F"] * 4})
    assert column_types(mixed)["age"] == "string"
    assert ages(mixed) == [30, 41, 42]


@pytest.mark.parametrize("odd", ["\ud800", 10**5000], ids=["surrogate", "digits"])
def test_an_object_without_a_text_is_null_and_fails_nobody(odd):
    """One record with such a value must not decide whether the others can be counted."""
    frame = pd.DataFrame({"age": pd.Series([30, odd, "41"], dtype=object), "sex": ["F"] * 3})
    assert ages(frame) == [30, 41, 42]


def test_a_text_of_pandas_without_utf8_is_null():
    sexes = pd.Series(["F", "\ud800", "M"], dtype="string[python]")
    frame = pd.DataFrame({"age": [30, 35, 41], "sex": sexes})
    assert column_types(frame)["sex"] == "string"
    assert ages(frame) == [30, 41]


def test_pandas_extension_types_are_read():
    frame = pd.DataFrame(
        {
            "age": pd.array([30, None, 41], dtype="Int8"),
            "sex": pd.Categorical(["F", "M", "M"], categories=["M", "F", "never"]),
        }
    )
    assert ages(frame) == [30, 41, 42]


def test_polars_types_are_read():
    frame = pl.DataFrame(PEOPLE).with_columns(pl.col("sex").cast(pl.Categorical))
    assert ages(frame) == [30, 30, 41]
    assert ages(frame.lazy()) == [30, 30, 41]


def test_anything_with_an_arrow_stream_is_a_table():
    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return PEOPLE.__arrow_c_stream__(requested_schema)

    assert ages(Stream()) == [30, 30, 41]


def test_columns_that_nobody_declared_are_never_touched():
    class Unreadable:
        def __str__(self) -> str:
            raise AssertionError("this column was read")

    frame = PEOPLE.to_pandas().assign(secret=[Unreadable()] * 4)
    assert ages(frame) == [30, 30, 41]


def test_columns_of_foreign_types_do_no_harm_unless_they_are_declared():
    frame = PEOPLE.to_pandas().assign(odd=[1j, 2j, 3j, 4j])
    assert ages(frame) == [30, 30, 41]
    with pytest.raises(TableError, match="its column is of type unknown"):
        count_marginals(open_table(frame), Domain({"odd": 2}), [()])
    wide = pa.array([1], pa.decimal256(60, 0))
    assert column_types(pa.table({"wide": wide, "x": [1]})) == {"wide": "unknown", "x": "int64"}


def test_column_names_that_differ_only_in_capitals_are_kept_apart():
    frame = pa.table({"AGE": [41, 41], "age": [30, 30], "sex": ["F", "F"]})
    assert ages(frame) == [30, 30]


def test_names_with_quotes_blanks_and_sql_are_only_names(tmp_path):
    odd = 'a "b"; DROP TABLE x; --'
    frame = pa.table({odd: [1, 1, 0]})
    pq.write_table(frame, tmp_path / "it's [1].parquet")
    pa.csv.write_csv(frame, tmp_path / "it's.csv")
    for source in (frame, tmp_path / "it's [1].parquet", tmp_path / "it's.csv"):
        counts = count_marginals(open_table(source), Domain({odd: 2}), [(odd,)])
        assert counts.reveal((odd,)).tolist() == [1, 2]


def test_types_come_without_reading_values(tmp_path):
    (tmp_path / "people.csv").write_text("age,sex\n30,F\n")
    assert column_types(tmp_path / "people.csv") == {"age": "string", "sex": "string"}
    assert column_types(PEOPLE) == {"age": "int64", "sex": "string"}
    dates = pd.DataFrame({"day": pd.to_datetime(["2024-01-01"]), "x": [1.5], "ok": [True]})
    assert list(column_types(dates).values()) == ["timestamp(6)", "float64", "boolean"] or list(
        column_types(dates).values()
    ) == ["timestamp(9)", "float64", "boolean"]


@pytest.mark.parametrize(
    "text",
    [
        "age;sex\n30;F\n41;M\n30;M\n",
        "age\tsex\n30\tF\n41\tM\n30\tM\n",
        '"age","sex"\r\n30,"F"\r\n41,"M"\r\n"30","M"\r\n',
        "\ufeffage, sex\n30, F\n41, M\n30, M",
        'age, "sex"\n30, "F"\n41, "M"\n30, "M"\n',
        'id,age,sex,note\n1,30,F,x\n2,41,M,"a, b"\n3,30,M,"say ""no"""\n',
    ],
)
def test_common_forms_of_csv_are_read(text, tmp_path):
    (tmp_path / "people.csv").write_bytes(text.encode())
    assert ages(tmp_path / "people.csv") == [30, 30, 41]


@pytest.mark.parametrize(
    "line",
    [
        b"30",
        b"30,F,9,9",
        b'30,"F',
        b'30,"F"x',
        b'3"0,"F',
        b'30","F',
        b'"30","F""',
        b"30,\xff\xfe",
        b"",
        b"\r",
        b"30," + b"F" * 17_000_000,
        b"\x00,\x01",
        b"30,\xe9",
        b"#",
        b'"30,F\\"',
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_malformed_line_is_a_record_of_nulls_and_harms_no_other(line, end, tmp_path):
    """One line is one record: what stands in it cannot reach into the next, and none is lost."""
    lines = [b"age,sex", b"41,M", b"30,F", line, b"30,M", line, b"41,F", b""]
    path = tmp_path / "people.csv"
    path.write_bytes(end.join(lines))
    assert ages(CsvSource(path, "lines")) == [30, 30, 41, 41], "nulls of one attribute drop"
    kept = Domain([Integer("age", 30, 41, nulls="missing")])
    counts = count_marginals(open_table(CsvSource(path, "lines")), kept, [("age",)])
    parts = counts.reveal(("age",)).tolist()
    assert parts == [2, *[0] * 10, 2, 2], "the last cell is (missing)"
    if b'"' not in line or line.endswith(b'\\"'):
        assert ages(path) == [30, 30, 41, 41], "no declaration is needed"
    else:
        with pytest.raises(TableError, match=r"people\.csv holds a quote that is open"):
            ages(path)


def test_a_value_of_many_megabytes_is_a_value(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"age,sex,note\n30,F,%b\n41,M,x\n" % (b"x" * 3_000_000))
    assert ages(tmp_path / "people.csv") == [30, 41]


def test_a_line_with_a_zero_byte_is_a_record_of_nulls(tmp_path):
    domain = Domain(
        [
            Integer("age", 30, 41, nulls="missing"),
            Category("note", ("x",), outside="other", nulls="missing"),
        ]
    )
    (tmp_path / "people.csv").write_bytes(b"age,note\n30,x\n30,\x00\n41,y\n")
    counts = count_marginals(open_table(tmp_path / "people.csv"), domain, [("note",)])
    assert counts.reveal(("note",)).tolist() == [1, 1, 1]


COMMENT = 'age,sex,note\n30,F,"a ""b""\n41,M,x\n41,M,x\n"\n30,M,\n41,M,ok\n'


def test_a_text_with_line_ends_is_one_record_if_the_steward_says_how_it_was_written(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(COMMENT)
    assert ages(CsvSource(path, "rfc4180")) == [30, 30, 41]
    assert column_types(CsvSource(path, "rfc4180")) == column_types(path)
    assert public_name(CsvSource(path, "rfc4180")) == public_name(path) == "people.csv"


def test_a_file_whose_lines_may_not_be_its_records_is_refused_in_the_same_words_wherever(tmp_path):
    messages = set()
    for extra in (0, 1, 5000, 2_000_000):
        path = tmp_path / "people.csv"
        text = b"age,sex\n" + b"30,F\n" * extra + b'41,"M\n41,M\n"\n' + b"30,F\n" * (5000 - extra)
        path.write_bytes(text)
        with pytest.raises(TableError) as caught:
            ages(path)
        messages.add(str(caught.value))
        assert ages(CsvSource(path, "rfc4180")) == [30] * max(extra, 5000)
        path.write_bytes(text.replace(b'\n"\n', b"\n"))
        with pytest.raises(TableError) as caught:
            ages(CsvSource(path, "rfc4180"))
        messages.add(str(caught.value))
    assert len(messages) == 2
    assert not any(char.isdigit() for m in messages for char in m.replace("4180", ""))
    assert all('csv = "lines"' in message for message in messages)


def test_a_refused_file_leaves_no_records_behind(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(COMMENT)
    table = open_table(path)
    with pytest.raises(TableError, match="open at the end of a line"):
        count_marginals(table, DOMAIN, [("age",)])
    left = table.engine.fetch_texts("SELECT table_name FROM duckdb_tables()")
    assert left == []
    assert table.records is None


def test_what_is_declared_of_lines_is_about_csv_files(tmp_path):
    with pytest.raises(TableError, match="lines or rfc4180, got 'line'"):
        CsvSource("people.csv", "line")
    with pytest.raises(TableError, match="takes the path of CSV files, got int"):
        CsvSource(5, "lines")
    pq.write_table(PEOPLE, tmp_path / "people.parquet")
    assert "is no CSV file" in refusal(CsvSource(tmp_path / "people.parquet", "lines"))
    assert "is no CSV file" in refusal(CsvSource("postgres://me@host/people::visits", "lines"))
    assert "no such file" in refusal(CsvSource(tmp_path / "people.csv", "lines"))


def test_a_first_line_of_which_no_end_is_seen_is_refused(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"a" * 2_000_000 + b"\n1\n")
    assert "longer than a mebibyte" in refusal(tmp_path / "people.csv")
    (tmp_path / "people.csv").write_bytes(b'"a\nb",c\n1,2\n')
    assert "hold no line ends" in refusal(tmp_path / "people.csv")


def test_every_file_of_a_glob_ends_its_own_last_record(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age,sex\n30,F\n41,M")
    (tmp_path / "b.csv").write_bytes(b"age,sex\r\n30,F\r\n")
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbfage,sex\r41,M\r30,F")
    assert ages(tmp_path / "*.csv") == [30, 30, 30, 41, 41]
    (tmp_path / "b.csv").write_bytes(b'age,sex\r\n30,"F\r\n')
    with pytest.raises(TableError, match=r"^\*\.csv holds a quote"):
        ages(tmp_path / "*.csv")


def test_lines_that_end_in_different_ways_are_read(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"age,sex\n30,F\r\n41,M\n30,M\r\n")
    assert ages(tmp_path / "people.csv") == [30, 30, 41]


def refusal(source: object) -> str:
    with pytest.raises(TableError) as caught:
        open_table(source)
    return str(caught.value)


def test_paths_that_lead_nowhere_are_refused(tmp_path):
    assert refusal(tmp_path / "none.parquet").startswith("no such file: ")
    assert refusal(f"{tmp_path}/*.parquet").startswith("no file matches ")
    assert "is a directory" in refusal(tmp_path)
    (tmp_path / "people.sav").write_text("x")
    assert "no known ending" in refusal(tmp_path / "people.sav")
    assert "is an address" in refusal("ftp://host/people.parquet")
    assert "is empty" in refusal("")
    assert "is not a table" in refusal(17)
    assert "is not a table" in refusal({"age": [1]})


def test_damaged_files_are_refused_without_their_contents(tmp_path):
    for name in ("people.parquet", "people.duckdb"):
        (tmp_path / name).write_text("104729 is in the file")
        assert "104729" not in refusal(tmp_path / name)
    (tmp_path / "people.csv").write_bytes(b"\xe9t\xe9,sex\n1,F\n")
    assert "declare its encoding" in refusal(tmp_path / "people.csv")
    (tmp_path / "people.csv").write_text("")
    assert "no first line" in refusal(tmp_path / "people.csv")
    (tmp_path / "people.csv").write_text("a,A\n1,2\n")
    assert "twice" in refusal(tmp_path / "people.csv")
    (tmp_path / "people.csv").write_text("a,,b\n1,2,3\n")
    assert "without a name" in refusal(tmp_path / "people.csv")


def test_files_of_one_table_must_agree(tmp_path):
    pq.write_table(PEOPLE, tmp_path / "a.parquet")
    pq.write_table(PEOPLE.select(["age"]), tmp_path / "b.parquet")
    assert "different columns" in refusal(tmp_path / "*.parquet")
    (tmp_path / "a.csv").write_text("age,sex\n")
    (tmp_path / "b.csv").write_text("sex,age\n")
    assert "different first lines" in refusal(tmp_path / "*.csv")
    assert "different kinds" in refusal(tmp_path / "a.*")


def test_tables_of_a_duckdb_file_are_named(tmp_path):
    make_source("duckdb", PEOPLE, tmp_path)
    path = tmp_path / "people.duckdb"
    assert "main.empty" in refusal(path)
    assert "did you mean 'main.visits'" in refusal(f"{path}::visit")
    assert ages(f"{path}::main.visits") == [30, 30, 41]
    with duckdb.connect(str(path)) as database:
        database.execute("DROP TABLE empty")
    assert ages(path) == [30, 30, 41], "the only table needs no name"
    pq.write_table(PEOPLE, tmp_path / "people.parquet")
    assert "holds only one" in refusal(f"{tmp_path / 'people.parquet'}::visits")


def test_a_missing_column_is_named_beside_those_there_are():
    table = open_table(PEOPLE)
    with pytest.raises(TableError) as caught:
        check_columns(table, Domain({"aeg": 2, "sex": 2}), PrivacyUnit("person", 1))
    message = str(caught.value)
    assert "lacks 'aeg', 'person'" in message
    assert "its columns are 'age', 'sex'; did you mean 'age'?" in message


TYPED = pa.table(
    {
        "integer": pa.array([1]),
        "float": pa.array([1.0]),
        "text": pa.array(["1"]),
        "boolean": pa.array([True]),
        "date": pa.array([date(2024, 1, 1)]),
        "list": pa.array([[1]]),
    }
)
FITTING = {
    "text category": {"text"},
    "number category": {"integer", "float"},
    "integer": {"integer", "float", "boolean"},
    "numeric": {"integer", "float"},
    "boolean": {"boolean", "integer"},
    "datetime": {"date"},
}


@pytest.mark.parametrize("declared", FITTING)
def test_a_schema_that_contradicts_column_types_is_refused_before_anything_is_read(declared):
    make = {
        "text category": lambda name: Category(name, ("1",)),
        "number category": lambda name: Category(name, (1,)),
        "integer": lambda name: Integer(name, 0, 1),
        "numeric": lambda name: Numeric(name, (0, 1)),
        "boolean": Boolean,
        "datetime": lambda name: DateTime(name, date(2024, 1, 1), date(2025, 1, 1)),
    }[declared]
    table = open_table(TYPED)
    for name in set(TYPED.column_names) - FITTING[declared]:
        with pytest.raises(TableError, match=f"{name!r} is declared as"):
            count_marginals(table, Domain([make(name)]), [(name,)])
        assert table.records is None
    for name in FITTING[declared]:
        assert count_marginals(table, Domain([make(name)]), [()]).reveal(()) == 1


def test_whole_numbers_that_a_column_cannot_tell_apart_are_refused():
    floats = open_table(pa.table({"x": [1.0]}))
    check_columns(floats, Domain([Integer("x", 0, 2**53 - 1)]))
    with pytest.raises(TableError, match="column of integers"):
        check_columns(floats, Domain([Integer("x", 0, 2**53)]))
    integers = open_table(pa.table({"x": [1]}))
    check_columns(integers, Domain([Integer("x", 0, 2**53)]))
    with pytest.raises(TableError, match="smaller bounds"):
        check_columns(integers, Domain([Category("x", (10**30,))]))


def test_a_privacy_unit_must_hold_identifiers():
    with pytest.raises(TableError, match="must hold identifiers"):
        check_columns(open_table(TYPED), Domain({"integer": 2}), PrivacyUnit("list", 1))


def test_public_names_hold_no_directories(tmp_path):
    assert public_name("/data/2024/people.parquet") == "people.parquet"
    assert public_name(tmp_path / "a.duckdb") == "a.duckdb"
    assert public_name("x/a.duckdb::visits") == "a.duckdb::visits"
    assert public_name(PEOPLE) == "pyarrow table in memory"
    assert public_name(PEOPLE.to_pandas()) == "pandas table in memory"
    assert public_name(ibis.table({"a": "int64"}, name="people")) == "people"


def test_a_table_shows_no_rows_and_cannot_be_pickled():
    table = open_table(PEOPLE)
    assert repr(table) == "<table pyarrow table in memory: 2 columns, rows not shown>"
    assert open_table(table).engine is table.engine
    with pytest.raises(TableError):
        pickle.dumps(table)


def test_other_engines_are_refused_by_name(tmp_path):
    other = pytest.importorskip("ibis.backends.sqlite")
    backend = ibis.sqlite.connect(tmp_path / "people.sqlite")
    backend.raw_sql("CREATE TABLE people (age INTEGER)")
    assert other is not None
    assert "lives in sqlite" in refusal(backend.table("people"))


def test_identifiers_of_128_bits_are_texts(tmp_path):
    """As a category and as a privacy unit."""
    path = str(tmp_path / "t.duckdb")
    first, second = (f"00000000-0000-0000-0000-{k:012d}" for k in (1, 2))
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t (u UUID, x INTEGER)")
        connection.execute(
            f"INSERT INTO t VALUES ('{first}', 0), ('{second}', 1), ('{second}', 1), (NULL, 0)"
        )
    table = open_table(path)
    domain = Domain([Category("u", (first, second)), Integer("x", 0, 1)])
    check_columns(table, domain, PrivacyUnit("u", 1))
    counted = count_marginals(table, domain, [("u",), ("x",)])
    assert counted.reveal(("u",)).tolist() == [1, 2]
    bounded = count_marginals(table, Domain([Integer("x", 0, 1)]), [("x",)], PrivacyUnit("u", 1))
    assert bounded.reveal(("x",)).tolist() == [1, 1]


def test_record_batches_and_coarse_types_are_tables():
    batch = PEOPLE.to_batches()[0]
    assert ages(batch) == [30, 30, 41]
    assert ages(pa.RecordBatchReader.from_batches(PEOPLE.schema, [batch])) == [30, 30, 41]
    odd = pa.table(
        {
            "none": pa.nulls(3),
            "half": pa.array(np.array([0.5, 1.5, 1.5], np.float16)),
            "view": pa.array(["a", "b", "b"], pa.string_view()),
            "words": pa.array(["a", "b", "b"]).dictionary_encode(),
        }
    )
    assert column_types(odd) == dict.fromkeys(odd.column_names, "string") | {"half": "float32"}
    domain = Domain(
        [
            Category("none", ("x",), nulls="missing"),
            Numeric("half", (0.0, 1.0, 2.0)),
            Category("view", ("a", "b")),
            Category("words", ("b", "a")),
        ]
    )
    counted = count_marginals(open_table(odd), domain, [(name,) for name in domain.names])
    found = [counted.reveal((name,)).tolist() for name in domain.names]
    assert found == [[0, 3], [1, 2], [1, 2], [2, 1]]


def test_columns_of_one_name_are_refused():
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(TableError, match=r"names the column .x. twice"):
        open_table(twice)


@pytest.mark.parametrize("source", [pd.Series([1, 2]), pl.Series([1, 2]), 7, [1, 2], None])
def test_what_has_no_columns_is_no_table(source):
    with pytest.raises(TableError, match="is not a table; give a path"):
        open_table(source)


def test_parquet_columns_that_differ_in_capitals_only_are_refused(tmp_path):
    """DuckDB would give one of them another name."""
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.table({"Age": [1], "x": [2], "age": [3]}), path)
    with pytest.raises(TableError, match=r"names the column 'age' twice"):
        open_table(path)


def test_a_class_of_another_library_with_the_name_of_a_frame_is_read_by_its_stream():
    class DataFrame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return PEOPLE.__arrow_c_stream__(requested_schema)

    assert ages(DataFrame()) == [30, 30, 41]


@pytest.mark.parametrize("name", ["people.tsv", "people.TSV.gz"])
def test_values_are_apart_by_tabs_where_the_name_says_so(name, tmp_path):
    """However many commas the first line has."""
    text = b"age\tsex\ta,b;c,d|e\n30\tF\tx\n41\tM\ty\n30\tM\tz\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert ages(path) == [30, 30, 41]


def test_a_pattern_of_duckdb_files_is_refused(tmp_path):
    for name in ("one.duckdb", "two.duckdb"):
        with duckdb.connect(str(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE people AS SELECT 30 AS age, 'F' AS sex")
    with pytest.raises(TableError, match="matches 2 DuckDB files; name one"):
        open_table(tmp_path / "*.duckdb")
    assert ages(tmp_path / "one.*") == [30]


def test_our_engine_writes_nothing_to_disk_and_fetches_no_code():
    """Rows and hash tables of counts stay in memory, whatever DuckDB does by default."""
    engine = DuckDB.start()
    wanted = {
        "temp_directory": "",
        "autoinstall_known_extensions": "false",
        "preserve_insertion_order": "false",
        "enable_progress_bar": "false",
    }
    for name, value in wanted.items():
        found = engine.fetch_texts(f"SELECT CAST(current_setting('{name}') AS VARCHAR)")
        assert found == [value], name
    engine.close()
    table = open_table(PEOPLE)
    assert isinstance(table.engine, DuckDB)
    assert table.engine.fetch_texts("SELECT current_setting('temp_directory')") == [""]


def test_tables_in_memory_share_an_engine_and_see_nothing_of_each_other():
    one, two = open_table(PEOPLE).engine, open_table(PEOPLE).engine
    assert isinstance(one, DuckDB)
    assert isinstance(two, DuckDB)
    held, kept = one.upload(PEOPLE), one.keep("SELECT 1 AS x")
    one.run("SET TimeZone = 'Asia/Tokyo'")
    assert one.fetch(f"SELECT COUNT(*) AS n FROM {held}", ["n"])["n"] == [4]
    for name in (held, kept):
        with pytest.raises(duckdb.CatalogException):
            two.listed(f"SELECT * FROM {name}")
    assert two.fetch_texts("SELECT current_setting('TimeZone')") == ["UTC"]
    one.close()
    assert two.listed("SELECT 2") == [(2,)]


def test_columns_that_arrow_reads_as_another_type_are_left_to_the_engine(tmp_path):
    path = tmp_path / "people.parquet"
    row = "INTERVAL 3 DAY AS stay, 30 AS age"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {row}) TO '{path}' (FORMAT parquet)")
    table = open_table(path)
    assert table.column_types["stay"] == "interval('us')"
    assert table.batches(["stay", "age"]) is None
    assert table.batches(["age"]) is not None


def test_a_fork_counts_with_an_engine_of_its_own():
    """The threads of an engine stay with the parent: a child must not count on them."""
    engine = open_table(PEOPLE).engine
    engine.run("CREATE TABLE memory.main.of_the_parent AS SELECT 1 AS x")  # all connections see it
    assert open_table(PEOPLE).engine.listed("SELECT x FROM of_the_parent") == [(1,)]
    child = os.fork()
    if child == 0:
        try:
            open_table(PEOPLE).engine.listed("SELECT x FROM of_the_parent")
        except duckdb.CatalogException:
            os._exit(0 if ages(PEOPLE) == [30, 30, 41] else 2)
        finally:
            os._exit(1)
    engine.run("DROP TABLE memory.main.of_the_parent")
    assert os.waitpid(child, 0)[1] == 0


# Files at an address

ADDRESS = "s3://bucket/town/people.parquet"


def test_addresses_are_refused_in_words_where_duckdb_has_no_extension(monkeypatch):
    monkeypatch.setattr(DuckDB, "fetch_texts", lambda *_: [])
    assert "INSTALL httpfs" in refusal(ADDRESS)
    assert "INSTALL httpfs" in refusal("https://host/people.parquet")


@pytest.mark.parametrize(
    "address",
    [
        "https://me:word@host/a.parquet",
        "https://host/a.parquet?sign=x",
        "s3://key@bucket/a.parquet",
    ],
)
def test_addresses_hold_no_secrets(address):
    message = refusal(address)
    assert "take it out" in message
    assert "word" not in message.replace("password", "")
    assert "sign=x" not in message


def test_only_parquet_is_read_at_an_address():
    assert "download it first" in refusal("https://host/people.csv")


def test_what_an_address_names_is_counted_as_the_file(monkeypatch, tmp_path):
    """DuckDB's own addresses of files, file://, in place of a server's: the rest is the same."""
    path = tmp_path / "people.parquet"
    rows = pa.table({"age": [1, 2, 2, None, 9], "a": ["x", "y", "x", "x", None]})
    pq.write_table(rows, path)
    monkeypatch.setattr(
        DuckDB, "network", lambda engine, _: engine.addressed(path.absolute().as_uri())
    )
    listed = DuckDB.fetch_texts
    monkeypatch.setattr(
        DuckDB,
        "fetch_texts",
        lambda engine, query: ["httpfs"] if "httpfs" in query else listed(engine, query),
    )
    domain = Domain([Integer("age", 0, 3, nulls="missing"), Category("a", ("x", "y"))])
    sets = [("age",), ("age", "a")]
    table, file = open_table(ADDRESS), open_table(path)
    assert table.name == public_name(ADDRESS) == "people.parquet"
    assert not table.may_drop_records
    one, other = (count_marginals(each, domain, sets) for each in (table, file))
    assert all(np.array_equal(one.reveal(s), other.reveal(s)) for s in sets)
    chosen = open_table(SqlSource(ADDRESS, "SELECT * FROM data WHERE age = 2"))
    assert chosen.may_drop_records
    assert count_marginals(chosen, domain, [("age",)]).reveal(("age",)).tolist() == [0, 0, 2, 0, 0]


def test_an_address_that_cannot_be_read_is_refused_without_its_answer(monkeypatch):
    def fail(*_: object) -> str:
        raise RuntimeError("403 with the text of a server")

    monkeypatch.setattr(DuckDB, "network", fail)
    monkeypatch.setattr(DuckDB, "fetch_texts", lambda *_: ["httpfs"])
    message = refusal(ADDRESS)
    assert "cannot read the Parquet files at the address" in message
    assert "403" not in message
