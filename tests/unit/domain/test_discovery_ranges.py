# SPDX-License-Identifier: Apache-2.0
"""Ranges that are to be discovered: how they are declared, and what they become."""

from __future__ import annotations

from datetime import date, datetime

import pytest

import sfumato as sf
from sfumato.errors import SchemaError

NUMBERS = {"low": 0.03, "high": 1.5, "bins": 8, "records": 100, "default": False}
WHOLE = {"low": 15, "high": 100, "bins": 20, "records": 100, "default": False}
TIMES = {
    "low": "2024-01-01T00:00:00",
    "high": "2025-01-01T00:00:00",
    "bins": 12,
    "records": 100,
    "default": False,
}


def test_what_was_published_becomes_a_closed_attribute():
    assert sf.Integer.discover("x").closed(WHOLE) == (
        sf.Integer("x", 15, 99, 5, outside="clamp", nulls="missing"),
    )
    (numeric,) = sf.Numeric.discover("x").closed(NUMBERS)
    assert (numeric.edges[0], numeric.edges[-1]) == (0.03, 1.5)
    (times,) = sf.DateTime.discover("x").closed(TIMES)
    assert (times.start, times.end, times.step) == (
        datetime(2024, 1, 1),
        datetime(2025, 1, 1),
        "month",
    )


def test_a_declared_end_stays_and_the_other_lies_beyond_it():
    (age,) = sf.Integer.discover("x", min=0).closed(WHOLE)
    assert (age.min, age.max) == (0, 99)
    (age,) = sf.Integer.discover("x", max=120).closed(WHOLE)
    assert (age.min, age.max) == (15, 120)
    (late,) = sf.Integer.discover("x", min=500).closed(WHOLE)
    assert (late.min, late.max) == (500, 699)  # the next edge beyond 500 is 700
    (early,) = sf.DateTime.discover("x", end=date(2023, 6, 1)).closed(TIMES)
    assert (early.start, early.end) == (datetime(2023, 5, 1), datetime(2023, 6, 1))


def test_bins_and_rules_are_those_that_were_asked_for():
    opened = sf.Numeric.discover("x", bins=3, outside="other", nulls="drop")
    (closed,) = opened.closed(NUMBERS)
    assert (closed.outside, closed.nulls) == ("other", "drop")
    assert closed.value_count <= 3


def test_rules_bins_and_declared_ends_are_not_part_of_what_is_paid_for():
    one = sf.Numeric.discover("x", bins=3, outside="other", nulls="drop", min=0)
    assert one.request() == sf.Numeric.discover("x").request()
    assert one.request() != sf.Numeric.discover("x", tails=0.01).request()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"min": 0, "max": 3}, "both ends are declared"),
        ({"min": "0"}, "must be a number"),
        ({"max": 1e19}, "must be a number below"),
        ({"min": float("nan")}, "must be a number"),
        ({"bins": 0}, "bins = 0"),
        ({"bins": True}, "bins = True"),
        ({"tails": 0.4}, "tails = 0.4"),
        ({"tails": 0}, "tails = 0"),
        ({"tails": "many"}, "tails = 'many'"),
        ({"outside": "first"}, "outside = 'first'"),
    ],
)
def test_what_is_no_open_range_is_refused(wrong, words):
    with pytest.raises(SchemaError, match=words):
        sf.Numeric.discover("x", **wrong)


@pytest.mark.parametrize("end", [date(1500, 1, 1), "soon", 3])
def test_ends_that_are_no_dates_of_the_grid_are_refused(end):
    with pytest.raises(SchemaError, match="a declared end must be"):
        sf.DateTime.discover("x", start=end)


SCHEMA = """
[domain.age]
kind = "integer"
min = 0
max = "discover"

[domain.income]
kind = "numeric"
edges = "discover"
bins = 12
tails = 0.01

[domain.visit]
kind = "datetime"
start = 2020-01-01
end = "discover"
outside = "drop"

[domain.sex]
kind = "category"
values = ["f", "m"]
"""


def test_a_schema_file_says_discover_in_place_of_an_end(tmp_path):
    file = tmp_path / "open.toml"
    file.write_text(SCHEMA)
    assert sf.OpenDomain.from_toml(file) == sf.OpenDomain(
        [
            sf.Integer.discover("age", min=0),
            sf.Numeric.discover("income", bins=12, tails=0.01),
            sf.DateTime.discover("visit", start=datetime(2020, 1, 1), outside="drop"),
            sf.Category("sex", ("f", "m")),
        ]
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('kind = "numeric"\nedges = "discover"\nbins = 0', "bins"),
        ('kind = "numeric"\nmin = "discover"\nmax = "dicsover"', "max"),
        ('kind = "datetime"\nstart = "discover"\nend = "soon"', "end"),
        ('kind = "integer"\nmin = "discover"\nwidth = 3', "width"),
        ('kind = "boolean"\nnulls = "discover"', "is for the kinds"),
    ],
)
def test_a_schema_file_that_says_something_else_is_refused_by_line(tmp_path, line, words):
    file = tmp_path / "open.toml"
    file.write_text(f"[domain.x]\n{line}\n")
    with pytest.raises(SchemaError, match=words):
        sf.OpenDomain.from_toml(file)
