# SPDX-License-Identifier: Apache-2.0
"""Columns that Arrow reads have the codes that their engine gives them, record by record.

The engine's expressions are those that every other table is encoded with; here they are asked
about one value of each class only, so that a class of values with several codes would show.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.vault import arrow_codes, encode
from sfumato.vault.arrow_codes import Bins, Numbers
from sfumato.vault.count import ListedCells, count_marginals, list_cells
from sfumato.vault.encode import read_records
from sfumato.vault.tables import Table, open_table
from sfumato.vault.vault_limits import LIMITS
from tests.shared.domain_strategies import booleans, categories, datetimes, integers, numerics
from tests.shared.examples import examples

both_ways = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

PATIENT = replace(LIMITS, classes_of_few=LIMITS.classes)
WHOLE = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float32(), pa.float64()]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
TIMES = [pa.timestamp(unit) for unit in ("ms", "us", "ns")] + [pa.timestamp("us", "UTC")]


@pytest.fixture(autouse=True, scope="module")
def classes_for_few_records():
    """Short tables that have all their classes, which would be left to the engine else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_codes, "LIMITS", PATIENT)
        yield


def ends(kind: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def whole_values(kind: pa.DataType, edges: list[int]) -> st.SearchStrategy[object]:
    low, high = ends(kind)
    beside = st.builds(lambda e, d: e + d, st.sampled_from(edges), st.integers(-2, 2))
    return beside.map(lambda v: min(max(v, low), high)) | st.integers(low, high)


def float_values(kind: pa.DataType, edges: list[float]) -> st.SearchStrategy[object]:
    beside = st.builds(math.nextafter, st.sampled_from(edges), st.sampled_from([-1e308, 1e308]))
    near = st.builds(lambda e, d: e + d, st.sampled_from(edges), st.floats(-2, 2))
    special = st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, *edges])
    every = beside | near | special | st.floats()
    if kind == pa.float32():
        return every.filter(lambda v: not math.isfinite(v) or abs(v) < 3e38).map(
            lambda v: float(np.float32(v))
        )
    return every


def edges_of(attribute: Attribute) -> list[int]:
    if isinstance(attribute, Integer):
        return [attribute.min, attribute.max, attribute.min + attribute.width]
    return [0, 1] if isinstance(attribute, Boolean) else [int(v) for v in attribute.values]


def near_moment(moment: datetime, micros: int) -> datetime:
    try:
        return moment + micros * datetime.resolution
    except OverflowError:  # the calendar ends here
        return moment


@st.composite
def columns(draw: st.DrawFn, attribute: Attribute, rows: int) -> pa.Array:
    """A column of any type that Arrow may have for the attribute."""
    if isinstance(attribute, Category) and isinstance(attribute.values[0], str):
        kind = draw(st.sampled_from(TEXTS))
        value: st.SearchStrategy[object] = st.sampled_from(attribute.values) | st.text(max_size=3)
    elif isinstance(attribute, DateTime):
        kind = draw(st.sampled_from([*TIMES, pa.date32()]))
        code = st.integers(0, attribute.value_count - 1)
        starts = st.just(attribute.end) | code.map(attribute.bin_start)
        value = starts | st.datetimes()
        beside = st.builds(near_moment, starts, st.sampled_from([-1, 1]))
        value |= beside
        if kind == pa.date32():
            value = value.map(lambda m: date(m.year, m.month, m.day))
        elif kind.unit == "ns":  # a part of the calendar, with what lies beside a microsecond
            low, high = datetime(1680, 1, 1), datetime(2260, 1, 1)
            micros = value.map(lambda m: min(max(m, low), high) - datetime(1970, 1, 1)).map(
                lambda m: 1000 * (m // datetime.resolution)
            )
            value = st.builds(int.__add__, micros, st.sampled_from([-999, -501, -500, -499, 0, 1]))
        elif kind.unit == "ms":
            value = value.map(lambda m: m.replace(microsecond=0))
    elif isinstance(attribute, Numeric):
        kind = draw(st.sampled_from([*FLOATS, *WHOLE]))
        edges = [int(min(max(e, -1e18), 1e18)) for e in attribute.edges]
        is_float = kind in FLOATS
        value = float_values(kind, list(attribute.edges)) if is_float else whole_values(kind, edges)
    else:
        edges = edges_of(attribute)
        kinds = [*WHOLE, *([pa.bool_()] if isinstance(attribute, Boolean | Integer) else [])]
        if not isinstance(attribute, Boolean) and all(abs(e) < 2**50 for e in edges):
            kinds += FLOATS
        kind = draw(st.sampled_from(kinds))
        if kind == pa.bool_():
            value = st.booleans()
        elif kind in FLOATS:
            value = float_values(kind, [float(e) for e in edges])
        else:
            value = whole_values(kind, edges)
    listed = draw(st.lists(st.none() | value, min_size=rows, max_size=rows))
    return pa.array(listed, kind)


def is_long(attribute: Attribute) -> bool:
    """Whether there are more numbers and more bins than classes."""
    if not isinstance(attribute, Integer):
        return False
    numbers = attribute.max - attribute.min + 2
    return min(numbers, 2 * attribute.value_count) >= LIMITS.classes


@st.composite
def tables(draw: st.DrawFn) -> tuple[Domain, pa.Table]:
    near = st.builds(
        Category,
        st.just("a"),
        st.lists(st.integers(-9, 9), min_size=1, max_size=5, unique=True).map(tuple),
        outside=st.sampled_from(["drop", "other", "first"]),
        nulls=st.sampled_from(["drop", "missing", "first"]),
    )
    kinds = st.one_of(
        categories(st.just("a")).filter(lambda c: isinstance(c.values[0], str)),
        near,
        booleans(st.just("a")),
        numerics(st.just("a")),
        datetimes(st.just("a")),
        integers(st.just("a"), far=50),
        integers(st.just("a"), far=2**60),
        integers(st.just("a"), widest=10**6, far=50),
    )
    rows = draw(st.integers(0, 40))
    attributes = [replace(draw(kinds), name=name) for name in "abc"[: draw(st.integers(1, 3))]]
    domain = Domain(attributes)
    return domain, pa.table({a.name: draw(columns(a, rows)) for a in attributes})


def by_engine(source: object) -> Table:
    """The table without Arrow's way to read it."""
    table = open_table(source)
    table._batches = None
    return table


def cells(table: Table, domain: Domain) -> ListedCells:
    return list_cells(table, domain, domain.names, None)


def assert_same(one: Table, other: Table, domain: Domain) -> None:
    found, expected = cells(one, domain), cells(other, domain)
    assert np.array_equal(found.counts, expected.counts)
    assert all(map(np.array_equal, found.codes, expected.codes))


@both_ways
@given(tables())
def test_tables_in_memory_have_the_codes_of_the_engine(made):
    domain, rows = made
    table, plain = open_table(rows), by_engine(rows)
    assert_same(table, plain, domain)
    has_classes = not any(is_long(attribute) for attribute in domain)
    assert (table.records.codes is not None) == has_classes
    assert plain.records.codes is None


@both_ways
@given(tables(), st.integers(1, 20))
def test_parquet_files_have_the_codes_of_the_engine(tmp_path, made, length):
    domain, rows = made
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=length)
    table, plain = open_table(path), by_engine(path)
    assert_same(table, plain, domain)
    assert plain.records.codes is None


@both_ways
@given(tables(), st.data())
def test_tables_are_those_of_the_engine_however_they_are_cut(made, data):
    """Batches of a few rows: tables longer than a batch are added to in place."""
    domain, rows = made
    sets = [s for s in [(), *((n,) for n in domain.names), domain.names] if domain.cells(s) < 10**6]
    short = replace(PATIENT, rows_together=data.draw(st.integers(1, 7)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_codes, "LIMITS", short)
        found = count_marginals(open_table(rows), domain, sets)
    expected = count_marginals(by_engine(rows), domain, sets)
    assert all(np.array_equal(found.reveal(s), expected.reveal(s)) for s in sets)


@both_ways
@given(tables(), st.data())
def test_a_record_less_takes_one_from_one_cell_of_every_table(made, data):
    """Neighbours: what is counted from Arrow's codes moves by at most 1, as the engine's counts."""
    domain, rows = made
    if not rows.num_rows:
        return
    place = data.draw(st.integers(0, rows.num_rows - 1))
    fewer = pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])
    sets = [s for s in [(), *((n,) for n in domain.names), domain.names] if domain.cells(s) < 10**6]
    whole, less = (count_marginals(open_table(each), domain, sets) for each in (rows, fewer))
    expected = count_marginals(by_engine(fewer), domain, sets)
    moved = {s: whole.reveal(s) - less.reveal(s) for s in sets}
    assert all(np.array_equal(less.reveal(s), expected.reveal(s)) for s in sets)
    assert all(m.min() >= 0 for m in moved.values())
    assert len({int(m.sum()) for m in moved.values()}) == 1, "the same records in every table"
    assert moved[()].sum() in (0, 1)


FIELDS = st.one_of(
    st.sampled_from(["", " ", "1", "2", " 3", "-1", "2.5", "x", "NA", "nan", "inf", "1e3", "yes"]),
    st.sampled_from(["2020-01-05", "2020-02-01 10:00:00", "1999-12-31", "true", "a", "b ", "c"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\0\r\n",'), max_size=4),
)
RULES = {
    "outside": st.sampled_from(["drop", "other"]),
    "nulls": st.sampled_from(["drop", "missing", "first"]),
    "unparsed": st.sampled_from([None, "null", "other", "drop", "cell"]),
}


@both_ways
@given(
    st.lists(st.tuples(*[FIELDS] * 4), max_size=30),
    st.builds(Integer, st.just("a"), st.just(0), st.just(9), st.sampled_from([1, 3]), **RULES),
    st.builds(Numeric, st.just("b"), st.just((0.0, 1.0, 2.5, 1e3)), **RULES),
    st.builds(Category, st.just("c"), st.just(("a", "b", "x")), **{**RULES, "unparsed": st.none()}),
    st.builds(
        DateTime,
        st.just("d"),
        st.just(datetime(2020, 1, 1)),
        st.just(datetime(2021, 1, 1)),
        st.just("month"),
        **RULES,
    ),
    st.booleans(),
    st.integers(1, 40),
)
def test_texts_without_types_have_the_codes_of_the_engine(
    tmp_path, rows, a, b, c, d, in_memory, together
):
    """Cut into batches: what differs in most records of one is left to the engine in the next."""
    domain = Domain([a, b, c, d])
    source: object = tmp_path / "rows.csv"
    if in_memory:
        import pandas as pd

        frame = pd.DataFrame({n: [r[i] for r in rows] for i, n in enumerate("abcd")}, dtype=object)
        source = frame.where(frame != "NA", None)
    else:
        lines = ["a,b,c,d", *(",".join(f'"{field}"' for field in row) for row in rows), "short"]
        Path(str(source)).write_text("\n".join(lines) + "\n")
    table, plain = open_table(source), by_engine(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_codes, "LIMITS", replace(PATIENT, rows_together=together))
        assert_same(table, plain, domain)
    assert table.records.codes is not None
    assert plain.records.codes is None


def test_the_comparison_would_see_a_class_with_two_codes(monkeypatch):
    """Its twin: classes that take two numbers, or two bins, for one."""
    domain = Domain([Integer("a", 0, 9), Numeric("b", (0, 1, 2))])
    rows = pa.table({"a": pa.array([1, 2]), "b": pa.array([0.5, 1.5])})
    assert_same(open_table(rows), by_engine(rows), domain)
    of = Numbers.of
    for kind, wrong in (
        (Numbers, lambda self, c: (of(self, c)[0] // 2 * 2, None)),
        (Bins, lambda _, c: (np.ones(len(c), np.int64), None)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kind, "of", wrong)
            with pytest.raises(AssertionError):
                assert_same(open_table(rows), by_engine(rows), domain)


def test_fewer_records_than_classes_are_left_to_the_engine(monkeypatch):
    monkeypatch.setattr(arrow_codes, "LIMITS", replace(LIMITS, classes_of_few=10))
    domain = Domain([Integer("a", 0, 99)])
    for count, is_left in ((102, True), (103, False)):  # with both ends and null
        table = open_table(pa.table({"a": pa.array(np.arange(count))}))
        assert count_marginals(table, domain, [("a",)]).reveal(("a",)).sum() == 100
        assert (table.records.codes is None) == is_left


@pytest.mark.parametrize("source", ["memory", "file"])
def test_more_codes_than_are_held_are_left_to_the_engine(monkeypatch, tmp_path, source):
    rows = pa.table({"a": pa.array([0, 1, 1, 7] * 50)})
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    domain = Domain([Integer("a", 0, 3)])
    monkeypatch.setattr(arrow_codes, "LIMITS", replace(PATIENT, codes_held=149))
    table = open_table(rows if source == "memory" else path)
    assert count_marginals(table, domain, [("a",)]).reveal(("a",)).tolist() == [50, 100, 0, 0]
    assert table.records.codes is None
    monkeypatch.setattr(arrow_codes, "LIMITS", replace(PATIENT, codes_held=150))
    table = open_table(rows if source == "memory" else path)
    assert count_marginals(table, domain, [("a",)]).reveal(("a",)).tolist() == [50, 100, 0, 0]
    assert table.records.codes is not None


def test_units_and_kinds_without_classes_are_left_to_the_engine():
    rows = pa.table(
        {"a": pa.array([0, 1, 1]), "d": pa.array([1, 2, 3], pa.decimal128(9, 2)), "p": [1, 1, 2]}
    )
    domain = Domain([Integer("a", 0, 3)])
    table = open_table(rows)
    read_records(table, domain, ["a"], PrivacyUnit("p", 1))
    assert table.records.codes is None
    table = open_table(rows)
    read_records(table, Domain([Integer("d", 0, 3)]), ["d"])
    assert table.records.codes is None


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns"), pa.date32()], ids=str)
@pytest.mark.parametrize("outside", ["drop", "clamp", "other"])
def test_the_ends_of_what_a_word_holds_are_coded_as_the_engine_codes_them(kind, outside):
    """Beyond the calendar, and the words that engines take for infinity."""
    word = np.iinfo(np.int32 if kind == pa.date32() else np.int64)
    words = pa.array([word.min, word.min + 1, word.max - 1, word.max, 0, None]).cast(
        pa.int32() if kind == pa.date32() else pa.int64()
    )
    rows = pa.table({"a": words.view(kind)})
    first, last = datetime(1960, 1, 1), datetime(1980, 1, 1)
    domain = Domain([DateTime("a", first, last, "year", outside=outside, nulls="missing")])
    table = open_table(rows)
    assert_same(table, by_engine(rows), domain)


def test_a_text_that_is_no_text_counts_as_the_engine_counts_it(tmp_path):
    """One value that is no UTF-8 is null, and no reason to refuse a table."""
    path = tmp_path / "rows.parquet"
    broken = pa.array([b"x", b"\xff\xfe", b"y", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": broken}), path)
    domain = Domain([Category("a", ("x",), outside="other", nulls="missing")])
    for table in (open_table(path), by_engine(path)):
        assert count_marginals(table, domain, [("a",)]).reveal(("a",)).tolist() == [1, 1, 2]


def test_what_arrow_says_about_a_value_is_not_shown(monkeypatch):
    rows = pa.table({"a": pa.array([0, 1, 1])})

    def failing(*_: object) -> object:
        raise ValueError("the value 1")

    monkeypatch.setattr(arrow_codes.Numbers, "of", failing)
    counts = count_marginals(open_table(rows), Domain([Integer("a", 0, 3)]), [("a",)])
    assert counts.reveal(("a",)).tolist() == [1, 2, 0, 0]


def test_codes_are_gone_with_their_last_user():
    rows = pa.table({"a": pa.array([0, 1, 1])})
    table = open_table(rows)
    records = read_records(table, Domain([Integer("a", 0, 3)]), ["a"])
    name = records.name
    assert len(table.engine.listed(f"SELECT * FROM {name}")) == 3
    table.records = None
    del records
    with pytest.raises(Exception, match=name):
        table.engine.listed(f"SELECT * FROM {name}")


def test_the_module_of_rules_is_asked_once_for_all_columns(monkeypatch):
    calls = []
    whole = encode._codes_of_values
    monkeypatch.setattr(encode, "_codes_of_values", lambda *a: calls.append(len(a[2])) or whole(*a))
    rows = pa.table({name: pa.array(np.arange(9)) for name in "abc"})
    domain = Domain([Integer(name, 0, 3) for name in "abc"])
    count_marginals(open_table(rows), domain, [("a", "b")])
    assert calls == [3]
