# SPDX-License-Identifier: Apache-2.0
"""DuckDB, PostgreSQL and Spark count the same numbers, which are those of a count by hand.

Real servers; Spark is slow to answer, so that many cases stand in one table.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import MomentGrid, NumberGrid
from sfumato.errors import TableError
from sfumato.vault import spark as spark_module
from sfumato.vault.count import count_conditions, count_marginals
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.searches import read_grids, read_keys
from sfumato.vault.sources import SqlSource
from sfumato.vault.spark import Spark
from sfumato.vault.tables import open_table, public_name
from sfumato.workload.predicates import And, Everything, In, Not
from tests.properties.test_count_cells import fits_words, values, whole
from tests.shared.domain_strategies import booleans, categories, datetimes, numerics
from tests.shared.engine_tables import in_postgres, on_all_engines
from tests.shared.vault_reference import codes_of, marginal
from tests.shared.words import SeededWords

PEOPLE = Domain(
    [
        Integer("age", 10, 90, 10, outside="clamp"),
        Category("sex", ("F", "M")),
        Numeric("income", tuple(np.linspace(-100, 100, 101))),
        DateTime(
            "seen", datetime(2020, 2, 3, 4, 5), datetime(2021, 1, 1), "month", outside="clamp"
        ),
        Boolean("employed", nulls="missing"),
    ]
)
PAIRS = list(combinations(PEOPLE.names, 2))


def people(rows: int) -> pa.Table:
    some = np.random.default_rng(7)
    start = datetime(2020, 1, 1)
    minutes = some.integers(0, 600_000, rows)
    return pa.table(
        {
            "age": some.integers(0, 100, rows),
            "sex": some.choice(["F", "M", "M", "f", ""], rows),
            "income": some.normal(0, 50, rows),
            "seen": pa.array(
                [start + timedelta(minutes=int(m)) for m in minutes], pa.timestamp("us")
            ),
            "employed": pa.array(some.choice([True, False, None], rows).tolist(), pa.bool_()),
            "person": some.integers(0, rows // 5, rows),
        }
    )


@pytest.fixture(scope="module")
def sources(postgres, tmp_path_factory):
    return on_all_engines(people(600), "people", postgres, tmp_path_factory.mktemp("engines"))


@pytest.mark.parametrize("unit", [None, PrivacyUnit("person", 2)], ids=["rows", "persons"])
@pytest.mark.usefixtures("spark")
def test_a_release_counts_the_same_on_every_engine(sources, unit):
    """Also under a privacy unit: the same key keeps the same rows."""
    conditions = [Everything(), And((In("sex", (0,)), Not(In("age", (3, 4)))))]
    found = {}
    for engine, source in sources.items():
        table = open_table(source)
        read_records(table, PEOPLE, PEOPLE.names, unit, SeededWords("the same key"))
        counts = count_marginals(table, PEOPLE, [*PAIRS, ()], unit)
        met = count_conditions(table, PEOPLE, conditions, unit)
        found[engine] = [*(counts.reveal(s).tolist() for s in PAIRS), met.reveal().tolist()]
        assert met.reveal()[0] == counts.reveal(())
    assert found["postgres"] == found["duckdb"]
    assert found["spark"] == found["duckdb"]
    if unit is None:
        codes = codes_of(PEOPLE, people(600).to_pylist())
        assert found["duckdb"][:-1] == [marginal(PEOPLE, codes, s).tolist() for s in PAIRS]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Domain, pa.Table]:
    """Two dozen attributes that drop no record, each over a column of values made for it."""
    rows, columns, attributes = 24, {}, []
    kinds = (categories, booleans, numerics, datetimes, whole)
    for i in range(24):
        name = f"x{i}"
        make = kinds[i % len(kinds)]
        made = draw((make(name) if make is whole else make(st.just(name))).filter(fits_words))
        outside = draw(st.sampled_from(["other", "clamp" if made.is_ordered else "first"]))
        nulls = draw(st.sampled_from(["missing", "first"]))
        attribute = replace(made, outside=outside, nulls=nulls)
        if attribute.size > 10**4 or not storable(attribute):
            continue
        value, kind = values(attribute)
        kept = st.none() | value.filter(lambda v: not isinstance(v, str) or "\0" not in v)
        columns[name] = pa.array(draw(st.lists(kept, min_size=rows, max_size=rows)), kind)
        attributes.append(attribute)
    row = Integer("row", 0, rows - 1, outside="other", nulls="missing")
    return Domain([row, *attributes]), pa.table({"row": pa.array(range(rows)), **columns})


def storable(attribute: Attribute) -> bool:
    """No text of PostgreSQL holds a zero byte, so that no query can ask for one."""
    declared = attribute.values if isinstance(attribute, Category) else ()
    return not any("\0" in v for v in declared if isinstance(v, str))


def check_batch(made: tuple[Domain, pa.Table], source: object) -> None:
    domain, rows = made
    sets = [("row", a.name) for a in list(domain)[1:]]
    counts = count_marginals(open_table(source), domain, sets)
    codes = codes_of(domain, rows.to_pylist())
    for names in sets:
        np.testing.assert_array_equal(counts.reveal(names), marginal(domain, codes, names))


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=batches())
def test_any_values_are_counted_by_postgresql_as_by_hand(made, postgres):
    check_batch(made, in_postgres(postgres, "batch", made[1]))


@pytest.mark.usefixtures("spark")
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=batches())
def test_any_values_are_counted_by_spark_as_by_hand(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "rows.parquet"
    pq.write_table(made[1], path)
    check_batch(made, f"spark:{path}")


KEPT = {"outside": "clamp", "nulls": "missing"}
MORE = Domain(
    [
        Integer("row", 0, 15, outside="other", nulls="missing"),
        Numeric("short", (0, 0.1, 0.2, 0.3), outside="clamp", nulls="missing"),
        Numeric("long", (0, 0.1, 0.2, 0.3), outside="clamp", nulls="missing"),
        Integer("digits", 0, 2**40, 2**38, outside="other", nulls="missing"),
        Integer("great", -(2**61), 2**61, 2**60, outside="clamp", nulls="missing"),
        Category("word", ("é", "a\\b", "it's", "A ", ""), outside="other", nulls="missing"),
        Category("many", tuple(f"w{i}" for i in range(99)), outside="other", nulls="missing"),
        Category("code", tuple(range(70)), outside="other", nulls="missing"),
        Numeric("fine", tuple(i / 7 for i in range(300)), outside="clamp", nulls="missing"),
        DateTime("day", datetime(1500, 1, 28), datetime(2100, 1, 1), "quarter", **KEPT),
        DateTime("local", datetime(1969, 1, 1), datetime(2021, 1, 1), "week", **KEPT),
        DateTime("zoned", datetime(1969, 1, 1), datetime(2021, 1, 1), "week", **KEPT),
        DateTime("local_hour", datetime(2020, 3, 7), datetime(2020, 3, 30), "hour", **KEPT),
        DateTime("zoned_hour", datetime(2020, 3, 7), datetime(2020, 3, 30), "hour", **KEPT),
        Boolean("flag", outside="other", nulls="missing"),
    ]
)


def more() -> pa.Table:
    """Sixteen rows of what engines like to read in ways of their own."""
    some = np.random.default_rng(11)
    decimals = ["0.1", "0.1000000000000000055", "0.3", "-9", "7", "0.29999999999999998890"]
    days = [date(1500, 1, 27), date(1582, 10, 10), date(1, 1, 1), date(9999, 12, 31), None]
    moments = [datetime(1970, 1, 1) - timedelta(microseconds=1), datetime(2020, 3, 29, 2, 30)]
    moments += [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]
    # In New York there is no such time, and an hour of another day when it is so late in UTC.
    moments += [datetime(2020, 3, 8, 2, 30)]
    words = ["é", "É", "a\\b", "it's", "A", "A ", "", " ", None, "e\u0301", "😀"]

    def of(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array([values[i % len(values)] for i in range(16)], kind)

    def numbers(*parts: str) -> list[Decimal]:
        return [Decimal(part) for part in parts]

    return pa.table(
        {
            "row": pa.array(range(16), pa.int16()),
            "short": of(numbers("0.1", "0.3", "-9", "0.2"), pa.decimal128(9, 2)),
            "long": of(numbers(*decimals), pa.decimal128(30, 20)),
            "digits": of(numbers("5", "274877906943.5", "274877906944"), pa.decimal128(38, 1)),
            "great": of([2**63 - 1, -(2**63), 2**60 - 1, 2**60, None, 0], pa.int64()),
            "word": of(words, pa.string()),
            "many": of(["w0", "w98", "w99", "W1", None], pa.string()),
            "code": of([0.0, -0.0, 69.0, 69.5, math.nan, None, math.inf], pa.float64()),
            "fine": pa.array([*some.uniform(-1, 44, 12), 0, 1 / 7, 299 / 7, math.nan]),
            "day": of(days, pa.date32()),
            "local": of(moments, pa.timestamp("us")),
            "zoned": of(moments, pa.timestamp("us", "UTC")),
            "local_hour": of(moments, pa.timestamp("us")),
            "zoned_hour": of(moments, pa.timestamp("us", "UTC")),
            "flag": of([True, False, None], pa.bool_()),
        }
    )


def test_odd_values_are_counted_alike_whatever_a_session_is_set_to(spark, postgres, tmp_path):
    sets = [("row", a.name) for a in list(MORE)[1:]]
    read = [{k: plain(v) for k, v in record.items()} for record in more().to_pylist()]
    codes = codes_of(MORE, read)
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for source in on_all_engines(more(), "more", postgres, tmp_path).values():
            counts = count_marginals(open_table(source), MORE, sets)
            for names in sets:
                found = counts.reveal(names).argmax(axis=1).tolist()
                wanted = marginal(MORE, codes, names).argmax(axis=1).tolist()
                assert found == wanted, (source, names)
                assert counts.reveal(names).sum() == 16
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def plain(value: object) -> object:
    """As the vault compares it: decimals as floats, times without their zone, in UTC."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


def test_spark_keeps_the_same_rows_of_a_unit_whatever_it_computes_again(spark):
    """Other partitions, another order, nothing cached: the same rows, which are DuckDB's."""
    some = np.random.default_rng(5)
    rows = pa.table(
        {"kind": some.integers(0, 4, 200), "person": [f"é, {p}" for p in some.integers(0, 30, 200)]}
    )
    domain, unit = Domain({"kind": 4}), PrivacyUnit("person", 2)

    def kept(source: object) -> list[list[int]]:
        table = open_table(source)
        records = read_records(table, domain, domain.names, unit, SeededWords("again"))
        found = [count_marginals(table, domain, [("kind",)], unit).reveal(("kind",)).tolist()]
        if isinstance(table.engine, Spark):
            plan = table.engine._held[records.name]._jdf.queryExecution().toString()
            assert "sha2" in plan
            assert table.secret not in plan
            spark.catalog.clearCache()
            found.append(
                count_marginals(table, domain, [("kind",)], unit).reveal(("kind",)).tolist()
            )
            assert found[0] == found[1]
        return found[:1]

    frame = spark.createDataFrame(rows.to_pandas())
    assert kept(rows) == kept(frame.repartition(3, "kind"))


def test_spark_takes_tables_views_dataframes_ibis_and_queries(spark, tmp_path):
    import ibis

    rows = pa.table({"x": [0, 1, 1, 2, None], "word": ["a", "A", "b", None, "a "]})
    domain = Domain(
        [Integer("x", 0, 1), Category("word", ("a", "A"), outside="other", nulls="missing")]
    )
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    frame = spark.read.parquet(str(path))
    frame.createOrReplaceTempView("rows_view")
    lowered = frame.selectExpr("x", "word COLLATE UTF8_LCASE AS word")
    backend = ibis.pyspark.connect(spark)
    where = "SELECT * FROM data WHERE x >= 0 OR 'a{b' = 'c'"
    sources = [
        frame,
        lowered,
        "spark:rows_view",
        f"spark:{tmp_path}/*.parquet",
        backend.table("rows_view").mutate(x=ibis._.x + 0),
        SqlSource(f"spark:{path}", where),
        SqlSource("spark:", "SELECT * FROM rows_view;"),
        frame.selectExpr("*", "parse_json('1') AS odd"),  # of a type that nobody asks for
    ]
    names = [public_name(source) for source in sources]
    assert names[2:4] == ["spark:rows_view", "spark:*.parquet"]
    assert names[-2] == "query on spark:"
    for source in sources:
        table = open_table(source)
        assert isinstance(table.engine, Spark)  # rows stay there
        counts = count_marginals(table, domain, [domain.names])
        assert counts.reveal(domain.names).tolist() == [[1, 0, 0, 0], [0, 1, 1, 0]], source
    for wrong in ("spark:no_such_table", "spark:/no/such.parquet", SqlSource("spark:", "SELEC 1")):
        with pytest.raises(TableError, match="cannot be read; check"):
            open_table(wrong)
    with pytest.raises(TableError, match="names no table"):
        open_table("spark:")
    spark.catalog.dropTempView("rows_view")


def test_great_results_of_spark_come_in_parts(spark, monkeypatch):
    monkeypatch.setattr(spark_module, "LIMITS", replace(spark_module.LIMITS, spark_rows=40))
    parts = list(
        Spark(spark).batches("SELECT id AS n, id * 2 AS m FROM range(100)", ["n", "m"], 100)
    )
    assert len(parts) == 3
    Spark(spark).drop("never_there")  # as of the other engines: what is gone is gone
    assert sorted(np.concatenate([part["m"] for part in parts])) == list(range(0, 200, 2))


def owners() -> tuple[pa.Table, dict[str, list[str | None]]]:
    """Privacy units of every kind, and the text that each is on every engine."""
    moments = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]
    moments += [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 3, 8, 2, 30)]
    days = [None if m is None else m.date() for m in moments]
    numbers = [0, -7, 2**63 - 1, None, 123_456]
    floats = [-0.0, 3.0, math.nan, None, -(2.0**49) - 1]
    texts = ["a", "A ", "", None, "é, it's \\ 1"]
    short = [Decimal("2.00"), Decimal("1.50"), Decimal("-100.00"), None, Decimal("0.00")]

    def micros(moment: datetime | None) -> str | None:
        since = None if moment is None else moment - datetime(1970, 1, 1)
        return None if since is None else str(since // timedelta(microseconds=1))

    rows = pa.table(
        {
            "row": pa.array(range(5), pa.int64()),
            "text": pa.array(texts, pa.string()),
            "flag": pa.array([True, False, None, True, False], pa.bool_()),
            "whole": pa.array(numbers, pa.int64()),
            "float": pa.array(floats, pa.float64()),
            "single": pa.array([*floats[:4], 0.5], pa.float32()),
            "short": pa.array(short, pa.decimal128(9, 2)),
            "digits": pa.array([Decimal(n) if n else None for n in numbers], pa.decimal128(38, 0)),
            "day": pa.array(days, pa.date32()),
            "local": pa.array(moments, pa.timestamp("us")),
            "zoned": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )
    wanted = {
        "text": texts,
        "flag": ["true", "false", None, "true", "false"],
        "whole": [None if n is None else str(n) for n in numbers],
        "float": ["0", "3", None, None, str(-(2**49) - 1)],
        "single": ["0", "3", None, None],  # the last one is a matter of the engine
        "short": ["2", "1.5", "-100", None, "0"],
        "digits": [str(n) if n else None for n in numbers],
        "day": [micros(m and datetime(m.year, m.month, m.day)) for m in moments],
        "local": [micros(m) for m in moments],
        "zoned": [micros(m) for m in moments],
    }
    return rows, wanted


def identifiers(source: object, names: list[str]) -> dict[str, list[str | None]]:
    """The text of every privacy unit, asked of the engine itself."""
    table = open_table(source)
    reading, engine = table.read(["row", *names]), table.engine
    made = [engine.column(reading.places[0])]
    for name, place in zip(names, reading.places[1:], strict=True):
        made.append(engine.identifier(engine.column(place), table.types[name]))
    query = f"SELECT {', '.join(made)} FROM {reading.rows} AS source"
    if isinstance(engine, Spark):
        found = [tuple(row) for row in engine.session.sql(query).collect()]
    elif isinstance(engine, DuckDB):
        found = engine.backend.raw_sql(query).fetchall()
    else:
        found = engine.rows(query)
    columns = list(zip(*sorted(found), strict=True))
    return {name: list(columns[i + 1]) for i, name in enumerate(names)}


@pytest.mark.usefixtures("spark")
def test_a_privacy_unit_is_the_same_text_on_every_engine(postgres, tmp_path):
    """So that the same key keeps the same rows; other values are other texts, NaN is none."""
    rows, wanted = owners()
    fractions = [0.5, 0.1, 0.30000000000000004, 0.3, 1e15, 1e300, math.inf, -math.inf, 2.5e-310]
    others = pa.table({"row": range(9), "float": pa.array(fractions, pa.float64())})
    long = [Decimal(text) for text in ("0.1", "0.10000000000000000001", "1e-9", "0", "10", "1e-8")]
    decimals = pa.table({"row": range(6), "long": pa.array(long, pa.decimal128(30, 20))})
    for engine, source in on_all_engines(rows, "owners", postgres, tmp_path).items():
        found = identifiers(source, list(wanted))
        for name, texts in wanted.items():
            assert found[name][: len(texts)] == texts, (engine, name)
        assert found["single"][4] not in (None, *found["single"][:4])
    for made in (others, decimals):
        (name,) = made.column_names[1:]
        for source in on_all_engines(made, f"{name}s", postgres, tmp_path).values():
            texts = identifiers(source, [name])[name]
            assert None not in texts
            assert len(set(texts)) == len(texts), (source, texts)


def test_old_times_of_spark_are_read_by_the_calendar_of_all_others(spark, tmp_path):
    """Files of other programs, also in the form of Impala, whatever a session is set to."""
    old = [datetime(1500, 1, 28, 3), datetime(1582, 10, 10), datetime(1001, 3, 1)]
    year = DateTime("old", datetime(1000, 1, 1), datetime(2000, 1, 1), "day")
    rows = pa.table({"row": [0, 1, 2], "old": pa.array(old, pa.timestamp("us", "UTC"))})
    domain = Domain([Integer("row", 0, 2), year])
    keys = [f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96")]
    before = {key: spark.conf.get(key) for key in keys}
    for key in keys:
        spark.conf.set(key, "LEGACY")
    try:
        for is_int96 in (False, True):
            path = tmp_path / f"{is_int96}.parquet"
            pq.write_table(rows, path, use_deprecated_int96_timestamps=is_int96)
            counts = count_marginals(open_table(f"spark:{path}"), domain, [domain.names])
            found = counts.reveal(domain.names).argmax(axis=1).tolist()
            assert found == [(day - datetime(1000, 1, 1)).days for day in old]
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


@pytest.mark.usefixtures("spark")
def test_grids_of_ranges_are_counted_the_same_on_every_engine(postgres, tmp_path):
    """Every edge, its two neighbours among floats, infinities and NaN; months and their ends."""
    grids = [NumberGrid("real"), NumberGrid("whole", is_whole=True), MomentGrid("seen")]
    edges = np.array(grids[0].edges)
    real = [*edges, *np.nextafter(edges, -np.inf), *np.nextafter(edges, np.inf)]
    real += [math.inf, -math.inf, math.nan, 5e-324, -0.0]
    start = datetime(1600, 1, 1)
    table = pa.table(
        {
            "real": pa.array(real, pa.float64()),
            "whole": pa.array([(i - 550) ** 5 * 100 for i in range(len(real))], pa.int64()),
            "seen": pa.array(
                [start + timedelta(days=200 * i - 300) for i in range(len(real))],
                pa.timestamp("us"),
            ),
        }
    )
    results = {}
    for engine, source in on_all_engines(table, "grids", postgres, tmp_path).items():
        results[engine] = [c.reveal().tolist() for c in read_grids(open_table(source), grids)]
    assert results["postgres"] == results["duckdb"]
    assert results["spark"] == results["duckdb"]
    cells = np.searchsorted(edges, [x for x in real if not math.isnan(x)], side="right") - 1
    by_hand = np.bincount(np.clip(cells, 0, grids[0].cells - 1), minlength=grids[0].cells)
    assert results["duckdb"][0] == by_hand.tolist()


@pytest.mark.usefixtures("spark")
def test_keys_have_the_same_numbers_of_people_on_every_engine(postgres, tmp_path):
    """Texts, whole numbers, floats and their tuples, with and without units under one key."""
    many = range(600)
    table = pa.table(
        {
            "text": pa.array([[None, "a", "b,", "\u00e9", "a" * 2000, ""][i % 6] for i in many]),
            "whole": pa.array([[None, 7, -(2**61), 2**62][i % 4] for i in many], pa.int64()),
            "real": pa.array([[1.5, 2.0, math.nan, math.inf, -3.0][i % 5] for i in many]),
            "who": pa.array([i % 37 for i in many], pa.int64()),
        }
    )
    results = {}
    for engine, source in on_all_engines(table, "keys", postgres, tmp_path).items():
        results[engine] = []
        for columns in (["text"], ["whole"], ["real"], ["text", "whole"]):
            for unit in (None, PrivacyUnit("who", 1), PrivacyUnit("who", 2)):
                opened = open_table(source)
                opened.secret = "5" * 64
                exact = read_keys(opened, columns, unit)
                keys = exact._fetched(np.arange(exact._people.size))
                people = exact._people.tolist()
                results[engine].append(sorted((keys[i], n) for i, n in enumerate(people)))
    assert results["postgres"] == results["duckdb"]
    assert results["spark"] == results["duckdb"]
    texts = {("",): 100, ("a",): 100, ("b,",): 100, ("\u00e9",): 100}
    assert dict(results["duckdb"][0]) == texts
    assert dict(results["duckdb"][3]) == {(7,): 150, (-(2**61),): 150}
    assert dict(results["duckdb"][6]) == {(2,): 120, (-3,): 120}


@pytest.mark.usefixtures("spark")
def test_instants_have_the_same_local_times_on_every_engine(postgres, tmp_path):
    """By the list of one zone database, on clocks that change, and by hand."""
    some = np.random.default_rng(11).integers(0, 366 * 24 * 60, 400)
    instants = [datetime(2024, 1, 1) + timedelta(minutes=int(m)) for m in some]
    rows = pa.table({"seen": pa.array([*instants, None], pa.timestamp("us", "UTC"))})
    local = DateTime(
        "seen",
        datetime(2024, 1, 1),
        datetime(2025, 1, 1),
        "hour",
        outside="other",
        nulls="missing",
        timezone="America/New_York",
    )
    domain = Domain([local])
    zone, utc = ZoneInfo("America/New_York"), ZoneInfo("UTC")
    clocks = [i.replace(tzinfo=utc).astimezone(zone).replace(tzinfo=None) for i in instants]
    codes = [local.bins_before(c.replace(minute=0)) if c >= local.start else None for c in clocks]
    expected = np.zeros(local.size, dtype=np.int64)
    for code in codes:
        expected[local.other_code if code is None else code] += 1
    expected[local.missing_code] = 1
    for source in on_all_engines(rows, "instants", postgres, tmp_path).values():
        counts = count_marginals(open_table(source), domain, [("seen",)]).reveal(("seen",))
        np.testing.assert_array_equal(counts, expected)


def test_durations_are_counted_in_their_unit_on_every_engine(postgres, spark):
    spans = [timedelta(minutes=30), timedelta(hours=1), timedelta(hours=-1), timedelta(days=400)]
    rows = pa.table({"x": pa.array([*spans, None], pa.duration("us"))})
    hours = Domain(
        [Numeric("x", (-10, 0, 1, 2), duration="hour", outside="other", nulls="missing")]
    )
    sources = {
        "duckdb": rows,
        "postgres": in_postgres(postgres, "spans", rows, x="interval"),
        "spark": spark.createDataFrame([(s,) for s in [*spans, None]], "x interval day to second"),
    }
    for engine, source in sources.items():
        found = count_marginals(open_table(source), hours, [("x",)]).reveal(("x",))
        assert found.tolist() == [1, 1, 1, 1, 1], engine
