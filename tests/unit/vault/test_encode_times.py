# SPDX-License-Identifier: Apache-2.0
"""Time zones, durations and periods: alike from files and from memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain, domain_from
from sfumato.domain.draft import draft
from sfumato.domain.time_zones import zone_offsets
from sfumato.errors import SchemaError, TableError
from sfumato.toml import parse_toml
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import check_columns
from sfumato.vault.sources import CsvSource
from sfumato.vault.tables import open_table

RULES = {"outside": "other", "nulls": "missing"}


def counted(source, attribute) -> dict[str, int]:
    domain = Domain([attribute])
    exact = count_marginals(open_table(source), domain, [domain.names]).reveal(domain.names)
    return {str(attribute.label(int(i))): int(exact[i]) for i in np.flatnonzero(exact)}


def sources(table: pa.Table, folder):
    path = folder / "times.parquet"
    pq.write_table(table, path)
    return [path, table, pl.from_arrow(table), table.to_pandas(),
            table.to_pandas(types_mapper=pd.ArrowDtype)]  # fmt: skip


# One second around midnight in Rome, in winter and in summer, and around both changes of clocks.
INSTANTS = [
    datetime(2024, 1, 31, 22, 59, 59, tzinfo=UTC),
    datetime(2024, 1, 31, 23, 0, 0, tzinfo=UTC),
    datetime(2024, 6, 30, 21, 59, 59, tzinfo=UTC),
    datetime(2024, 6, 30, 22, 0, 0, tzinfo=UTC),
    datetime(2024, 3, 31, 0, 59, 59, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 0, 0, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 59, 59, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 0, 0, tzinfo=UTC),
]
ROME = DateTime("x", datetime(2024, 1, 1), datetime(2025, 1, 1), "hour", timezone="Europe/Rome",
                **RULES)  # fmt: skip


def by_clock(instants, zone: str) -> dict[str, int]:
    hours = [i.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for i in instants]
    hours = [str(h.replace(minute=0, second=0, microsecond=0)) for h in hours]
    return {hour: hours.count(hour) for hour in hours}


def test_instants_are_counted_by_the_clocks_of_the_zone(tmp_path):
    table = pa.table({"x": pa.array([*INSTANTS, None], pa.timestamp("us", "UTC"))})
    expected = by_clock(INSTANTS, "Europe/Rome") | {"(missing)": 1}
    for source in sources(table, tmp_path):
        assert counted(source, ROME) == expected
    other = pa.table({"x": table["x"].cast(pa.timestamp("us", "Asia/Tokyo"))})
    assert counted(other, ROME) == expected, "an instant is the same, whatever zone it is told in"
    plain = DateTime("x", ROME.start, ROME.end, "hour", **RULES)
    assert counted(table, plain) == by_clock(INSTANTS, "UTC") | {"(missing)": 1}, "as before"


def test_times_without_a_zone_are_what_the_clocks_showed(tmp_path):
    local = [datetime(2024, 7, 1, 0, 30), datetime(2024, 1, 1)]
    table = pa.table({"x": pa.array(local, pa.timestamp("us"))})
    for source in sources(table, tmp_path):
        assert counted(source, ROME) == {"2024-07-01 00:00:00": 1, "2024-01-01 00:00:00": 1}


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2024-06-30T22:10:00Z", "2024-07-01 00:00:00"),
        ("2024-06-30 22:10:00+00", "2024-07-01 00:00:00"),
        ("2024-06-30 17:10:00-05:00", "2024-07-01 00:00:00"),
        ("2024-06-30 22:10:00.5+00:00", "2024-07-01 00:00:00"),
        ("2024-06-30 22:10:00", "2024-06-30 22:00:00"),
        ("2024-06-30", "2024-06-30 00:00:00"),
        ("2024-06-30T25:00:00Z", "(other)"),
        ("Z", "(other)"),
    ],
)
def test_a_text_that_says_how_far_from_utc_it_is_is_an_instant(tmp_path, text, hour):
    path = tmp_path / "times.csv"
    path.write_text(f"x\n{text}\n")
    assert counted(path, ROME) == {hour: 1}
    path.write_text("x\n30.06.2024 22:10 +0000\n")
    declared = CsvSource(path, date_format="%d.%m.%Y %H:%M %z")
    assert counted(declared, ROME) == {"2024-07-01 00:00:00": 1}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
)
def test_offsets_are_those_of_the_zone_at_every_instant(zone, moment):
    changes, offsets = zone_offsets(zone, datetime(1900, 1, 1), datetime(2100, 1, 1))
    assert len(offsets) == len(changes) + 1
    instant = moment.replace(tzinfo=UTC)
    since = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    place = int(np.searchsorted(changes, since, side="right"))
    expected = instant.astimezone(ZoneInfo(zone)).utcoffset()
    assert timedelta(microseconds=offsets[place]) == expected


def test_zones_at_the_ends_of_the_calendar_and_none():
    assert zone_offsets("UTC", datetime(1, 1, 1), datetime(30, 1, 1)) == ((), (0,))
    assert zone_offsets("Asia/Tokyo", datetime(9990, 1, 1), datetime.max)[1] == (9 * 3600 * 10**6,)
    with pytest.raises(SchemaError, match="clocks of Europe/Rome change more than 1000 times"):
        zone_offsets("Europe/Rome", datetime(1900, 1, 1), datetime(9000, 1, 1))
    for name in ("Europe/Roma", "", "../../etc/passwd", 5):
        with pytest.raises(SchemaError, match="is no zone of the IANA database"):
            DateTime("x", datetime(2024, 1, 1), datetime(2025, 1, 1), timezone=name)


HOURS = Numeric("x", (-10, 0, 1, 2, 100), duration="hour", **RULES)
SPANS = [timedelta(minutes=30), timedelta(hours=1), timedelta(hours=-1), timedelta(days=400), None]
EXPECTED = {"[0, 1)": 1, "[1, 2)": 1, "[-10, 0)": 1, "(other)": 1, "(missing)": 1}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_counted_in_their_unit(tmp_path, unit):
    table = pa.table({"x": pa.array(SPANS, pa.duration(unit))})
    for source in sources(table, tmp_path):
        assert counted(source, HOURS) == EXPECTED
    whole = Integer("x", 0, 500, duration="day", **RULES)
    assert counted(table, whole) == {"(other)": 3, "400": 1, "(missing)": 1}, "half a day is none"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_in_fields_of_records_are_counted_in_their_unit(tmp_path, unit):
    inner = pa.struct([("x", pa.duration(unit))])
    kind = pa.struct([("it's", inner), ("x", pa.duration(unit)), ("n", pa.int64())])
    rows = [{"it's": {"x": span}, "x": span, "n": 1} for span in SPANS]
    table = pa.table({"s": pa.array([*rows[:-1], {"it's": None, "x": None, "n": 1}, None], kind)})
    for source in sources(table, tmp_path)[:3]:  # pandas has objects
        for name in ("s.x", "s.it's.x"):
            expected = {**EXPECTED, "(missing)": 2}
            assert counted(source, replace(HOURS, name=name)) == expected
        with pytest.raises(TableError, match="it holds durations"):
            check_columns(open_table(source), Domain([Integer("s.x", 0, 9)]))
        assert counted(source, Integer("s.n", 0, 1, **RULES)) == {"1": 5, "(missing)": 1}


def test_a_duration_that_microseconds_cannot_hold_fails_nothing(tmp_path):
    longest = pa.array([2**62, -(2**62), 3600], pa.int64()).cast(pa.duration("s"))
    clamped = Numeric("x", (0, 1, 2), duration="hour", outside="clamp", nulls="missing")
    table = pa.table({"x": longest})
    pq.write_table(table, tmp_path / "a.parquet")
    for source in (table, tmp_path / "a.parquet"):
        assert counted(source, clamped) == {"[0, 1)": 1, "[1, 2]": 2}


def test_durations_in_texts_are_read_as_pandas_writes_them(tmp_path):
    path = tmp_path / "spans.csv"
    spans = pd.to_timedelta([s for s in SPANS if s is not None and s.total_seconds() > 0])
    pd.DataFrame({"x": spans}).to_csv(path, index=False)
    with path.open("a") as file:
        file.write("soon\n1.5\n")
    expected = {"[0, 1)": 1, "[1, 2)": 2, "(other)": 2}
    assert counted(path, HOURS) == expected, "a number alone is one of hours"


def test_durations_need_a_unit_and_a_unit_needs_durations():
    spans = open_table(pa.table({"x": pa.array(SPANS, pa.duration("us")), "n": [1] * 5}))
    with pytest.raises(TableError, match="it holds durations, which are counted in a unit"):
        check_columns(spans, Domain([Numeric("x", (0, 1))]))
    with pytest.raises(
        TableError, match="is declared as duration, but its column is of type int64"
    ):
        check_columns(spans, Domain([Numeric("n", (0, 1), duration="hour")]))
    with pytest.raises(SchemaError, match="did you mean 'hour'"):
        Numeric("x", (0, 1), duration="hours")
    text = draft(spans.column_types).text
    assert 'duration = "hour"' in text


@pytest.mark.parametrize("frequency", ["M", "Q", "Y", "W", "D", "h", "min", "s", "ms", "us"])
def test_periods_are_their_first_moments(frequency):
    periods = pd.Series(pd.period_range("2024-02-28", periods=40, freq=frequency))
    periods[5] = pd.NaT
    day = DateTime("x", datetime(2020, 1, 1), datetime(2070, 1, 1), "day", **RULES)
    starts = periods.dropna().dt.start_time.dt.floor("D")
    expected = {str(d.date()): int(n) for d, n in starts.value_counts().items()}
    assert counted(pd.DataFrame({"x": periods}), day) == expected | {"(missing)": 1}


def test_periods_beyond_all_times_fail_nothing():
    far = pd.Series(pd.PeriodIndex.from_ordinals([10**15, -(10**15), 0], freq="D"))
    day = DateTime("x", datetime(1970, 1, 1), datetime(1970, 1, 3), "day", **RULES)
    assert counted(pd.DataFrame({"x": far}), day) == {"(other)": 2, "1970-01-01": 1}


def test_categoricals_are_their_values():
    frame = pd.DataFrame({"x": pd.Categorical(["a", "b", "a", None])})
    kind = Category("x", ("a",), **RULES)
    expected = {"a": 2, "(other)": 1, "(missing)": 1}
    assert counted(frame, kind) == counted(pl.from_pandas(frame), kind) == expected
    assert counted(pa.Table.from_pandas(frame), kind) == expected


def test_zones_and_durations_are_written_read_and_in_the_digest():
    text = (
        '[domain.x]\nkind = "datetime"\nstart = 2024-01-01\nend = 2025-01-01\nstep = "hour"\n'
        'timezone = "Europe/Rome"\n\n[domain.y]\nkind = "numeric"\nedges = [0.0, 1.0]\n'
        'duration = "hour"\n\n[domain.z]\nkind = "integer"\nmin = 0\nmax = 9\nduration = "day"\n'
    )
    domain = domain_from(parse_toml(text))
    assert domain.to_toml() == text
    for line in ('timezone = "Europe/Rome"\n', 'duration = "hour"\n', 'duration = "day"\n'):
        assert domain_from(parse_toml(text.replace(line, ""))).digest() != domain.digest()
    with pytest.raises(SchemaError, match=r"line 6: domain.x.timezone: "):
        domain_from(parse_toml(text.replace("Rome", "Roma"), "a.toml"))
