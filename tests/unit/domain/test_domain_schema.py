# SPDX-License-Identifier: Apache-2.0
"""``[domain.NAME]`` tables: what they mean, and one clear message for each fault."""

from __future__ import annotations

from datetime import datetime

import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain, domain_from, read_domain
from sfumato.errors import SchemaError
from sfumato.toml import parse_toml


def read(text: str) -> Domain:
    return domain_from(parse_toml(text, "release.toml"))


ALL_KINDS = """
title = "other tables and keys are none of the domain's business"

[domain.sex]
kind = "category"
values = ["Female", "Male"]
outside = "other"
nulls = "missing"

[domain.age]
kind = "integer"
min = 17
max = 90

[domain.hours]
kind = "integer"
min = 0
max = 99
width = 10
outside = "clamp"

[domain.income]
kind = "numeric"
edges = [0, 0.5, 1e3]

[domain.share]
kind = "numeric"
min = 0
max = 1
bins = 10

[domain.visit]
kind = "datetime"
start = 2024-01-01
end = "2025-01-01"
step = "2 months"

[domain.arrival]
kind = "datetime"
start = 2024-01-01T08:00:00
end = 2024-01-01T18:30:00
step = "hour"

[domain."has a job"]
kind = "boolean"

[data]
source = "adult.parquet"
"""


def test_each_kind_is_read_as_the_attribute_it_says():
    domain = read(ALL_KINDS)
    assert domain.attributes == (
        Category("sex", ("Female", "Male"), outside="other", nulls="missing"),
        Integer("age", 17, 90),
        Integer("hours", 0, 99, 10, outside="clamp"),
        Numeric("income", (0.0, 0.5, 1000.0)),
        Numeric("share", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        DateTime("visit", datetime(2024, 1, 1), datetime(2025, 1, 1), "2 month"),
        DateTime("arrival", datetime(2024, 1, 1, 8), datetime(2024, 1, 1, 18, 30), "hour"),
        Boolean("has a job"),
    )
    assert domain.shape == (4, 74, 10, 2, 10, 6, 11, 2)


def test_the_order_of_the_tables_is_the_order_of_the_attributes():
    text = "".join(f'[domain.{n}]\nkind = "boolean"\n' for n in ("z", "a", "m"))
    assert read(text).names == ("z", "a", "m")


def test_read_domain_names_the_file_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.toml").write_text(ALL_KINDS)
    assert read_domain("people.toml") == Domain.from_toml(tmp_path / "people.toml")
    (tmp_path / "people.toml").write_text('[domain.age]\nkind = "ineger"\n')
    with pytest.raises(SchemaError, match=r"^people\.toml, line 2: domain\.age\.kind"):
        read_domain("people.toml")


AGE = '[domain.age]\nkind = "integer"\n'
SEX = '[domain.sex]\nkind = "category"\n'
X = '[domain.x]\nkind = "numeric"\n'
DAY = '[domain.day]\nkind = "datetime"\n'

# (text, line or None, what the message must hold)
FAULTS = [
    ("", None, "there are no tables [domain.NAME]; declare one"),
    ("[data]\nsource = 'x'", None, "there are no tables [domain.NAME]; declare one"),
    ('\n[domains.age]\nkind = "integer"', 2, "there is 'domains'; did you mean 'domain'?"),
    ("domain = 3", 1, "domain: there are no tables [domain.NAME]"),
    ('domain = "people.toml"', 1, "domain: there are no tables [domain.NAME]"),
    ("[domain]\nage = 100", 2, "domain.age: expected a table that declares an attribute, got"),
    ("[domain.age]\nmin = 1\nmax = 2", 1, "'kind' must be one of 'category', 'hierarchy'"),
    ("[domain.age]\nmin = 1\nmax = 2", 1, "it is missing"),
    ('[domain.age]\nkind = "Integr"', 2, "got the text 'Integr'; did you mean 'integer'?"),
    ("[domain.age]\nkind = [1]", 2, "got a list"),
    ('[domain.""]\nkind = "boolean"', 1, "an attribute needs a name"),
    (AGE + "min = 1\nmax = 'ninety'", 4, "domain.age.max: expected an integer, got the text 'nin"),
    (AGE + "min = 1\nmax = 90.0", 4, "domain.age.max: expected an integer, got the number 90.0"),
    (AGE + "min = true\nmax = 90", 3, "domain.age.min: expected an integer, got true"),
    (AGE + "min = 1", 1, "domain.age: the key 'max' is missing; add it"),
    (AGE + "min = 18\nmax = 17", 4, "max = 17 is below min = 18"),
    (AGE + "min = 1\nmax = 9\n\nwidth = 0", 6, "width = 0 must be at least 1"),
    (AGE + "min = 1\nmax = 9\nwdith = 5", 5, "wdith: unknown key; did you mean 'width'?"),
    (
        AGE + "min = 1\nmax = 9\nvalues = [1]",
        5,
        "unknown key; the keys allowed here are column, ",
    ),
    (AGE + "min = 1\nmax = 9\noutside = 'clip'", 5, "expected 'drop', 'other' or 'clamp', got"),
    (AGE + "min = 1\nmax = 9\noutside = 'Clamp'", 5, "did you mean 'clamp'?"),
    (AGE + "min = 1\nmax = 9\nnulls = 'other'", 5, "expected 'drop', 'missing' or 'first', got"),
    (AGE + f"min = 0x{'f' * 999}\nmax = 9", 3, "a whole number of more than 38 digits"),
    (SEX, 1, "the key 'values' is missing"),
    (SEX + "values = []", 3, "lists nothing; give at least one value"),
    (SEX + "values = 'Male'", 3, "expected a list, got the text 'Male'"),
    (SEX + "values = [\n 'M',\n 'F', 'M',\n]", 5, "values #3: values lists 'M' twice"),
    (SEX + "values = ['M', 3]", 3, "mixes texts and whole numbers"),
    (SEX + "values = ['M',\n3.5]", 4, "values #2: expected a text or an integer, got the number"),
    (SEX + "values = [true, false]", 3, 'use kind = "boolean"'),
    (SEX + "values = ['M']\noutside = 'clamp'", 4, "expected 'drop', 'other' or 'first', got"),
    (SEX + "values = ['(other)']\noutside = 'other'", 3, "the label of the extra cell"),
    (X + "edges = [\n0, 10,\n5]", 5, "edges #3: edges must rise, but 10 is followed by 5"),
    (X + "edges = [0, 1, 1]", 3, "the bins would overlap"),
    (X + "edges = [0]", 3, "at least two numbers"),
    (X + "edges = [0, inf]", 3, "finite numbers; use outside = 'clamp' for open ends"),
    (X + f"edges = [0, 0x{'f' * 999}]", 3, "edges"),
    (X + "edges = [0, 'a']", 3, "edges #2: expected a number, got the text 'a'"),
    (X + "edges = [0, 1]\nbins = 3", 4, "edges are given, so bins must not be"),
    (X, 1, "the range is not given; write min and max, with bins = N for N equal bins"),
    (X + "min = 0\nbins = 3", 1, "(missing: max)"),
    (X + "min = 0\nmax = 0\nbins = 3", 4, "expected a number above min = 0.0, got 0.0"),
    (X + "min = 0\nmax = nan\nbins = 3", 4, "expected a finite number, got nan"),
    (X + "min = 0\nmax = 1\nbins = 0", 5, "must be at least 1, got the integer 0"),
    (X + "min = 0\nmax = 1\nbins = 9999999", 5, "must be at most 1000000"),
    (X + "min = 1.0\nmax = 1.0000000000000002\nbins = 3", 5, "ask for fewer"),
    (DAY + "start = 2024-01-01", 1, "the key 'end' is missing"),
    (DAY + "start = 2024-01-01\nend = 2023-01-01", 4, "must come after start"),
    (DAY + "start = 2024-01-31\nend = 2025-01-01\nstep = 'month'", 3, "day 1 to 28"),
    (DAY + "start = 2024-01-01\nend = 2025-01-01\nstep = 'dya'", 5, "did you mean 'day'?"),
    (DAY + "start = 2024-01-01\nend = 2025-01-01\nstep = '0 day'", 5, "is not one of minute"),
    (DAY + "start = 2024-01-01\nend = 2025-01-01\nstep = 7", 5, "expected a text, got the int"),
    (DAY + "start = 2024-01-01T00:00:00Z\nend = 2025-01-01", 3, "carries a time zone"),
    (DAY + "start = 10:00:00\nend = 2025-01-01", 3, "got a time without a date"),
    (DAY + "start = 2024-01-01\nend = 'soon'", 4, "expected a date such as 2024-01-31"),
    ('[domain.b]\nkind = "boolean"\nvalues = [true]', 3, "unknown key"),
]


@pytest.mark.parametrize(("text", "line", "said"), FAULTS)
def test_a_fault_gives_one_message_with_its_line(text, line, said):
    with pytest.raises(SchemaError) as caught:
        read(text)
    message = str(caught.value)
    place = "release.toml: " if line is None else f"release.toml, line {line}: "
    assert message.startswith(place)
    assert said in message
    assert "\n" not in message


def test_all_faults_of_a_file_are_told_at_once_in_its_order():
    text = AGE + "max = 'x'\nmin = 1.5\nwith = 2\n" + SEX + "values = []\n" + DAY
    with pytest.raises(SchemaError) as caught:
        read(text)
    places = [row.split(": ")[:2] for row in str(caught.value).split("\n")]
    assert places == [
        ["release.toml, line 3", "domain.age.max"],
        ["release.toml, line 4", "domain.age.min"],
        ["release.toml, line 5", "domain.age.with"],
        ["release.toml, line 8", "domain.sex.values"],
        ["release.toml, line 9", "domain.day"],
        ["release.toml, line 9", "domain.day"],
    ]


def test_a_range_alone_is_one_bin_and_enough_for_means():
    domain = read(X + "min = 0.1\nmax = 0.7")
    assert domain["x"] == Numeric("x", (0.1, 0.7))
    assert sf.means(domain, "x").ratios[0].offset == pytest.approx(0.4)
    assert read(domain.to_toml()) == domain


def test_equal_bins_have_the_edges_that_a_person_would_write():
    """Not 0.30000000000000004: edges are computed from the decimals as written."""
    domain = read(X + "min = 0.1\nmax = 0.7\nbins = 6")
    assert domain["x"].edges == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


# --- levels --------------------------------------------------------------------------------------

CITY = '[domain.city]\nkind = "category"\nvalues = ["Lima", "Cusco", "Havana", "Rome"]\n'
LEVELS = [
    pytest.param(
        CITY + "[domain.city.levels.country]\nPeru = ['Lima', 'Cusco']\nCuba = ['Havana']",
        [Level("country", ("Peru", "Cuba"), (0, 0, 1, -1))],
        id="by group",
    ),
    pytest.param(
        CITY + "[domain.city.levels.country]\nHavana = 'Cuba'\nLima = 'Peru'\nCusco = 'Peru'",
        [Level("country", ("Cuba", "Peru"), (1, 1, 0, -1))],
        id="by value",
    ),
    pytest.param(
        CITY + "[domain.city.levels.country]\nPeru = ['Lima', 'Cusco']\nCuba = ['Havana']\n"
        "[domain.city.levels.continent]\nof = 'country'\nAmerica = ['Cuba', 'Peru']",
        [
            Level("country", ("Peru", "Cuba"), (0, 0, 1, -1)),
            Level("continent", ("America",), (0, 0, 0, -1)),
        ],
        id="groups of another level, named",
    ),
    pytest.param(
        CITY + "[domain.city.levels.continent]\nAmerica = ['Cuba', 'Peru']\nEurope = ['Rome']\n"
        "[domain.city.levels.country]\nPeru = ['Lima', 'Cusco']\nCuba = ['Havana']\n",
        [
            Level("continent", ("America", "Europe"), (0, 0, 0, 1)),
            Level("country", ("Peru", "Cuba"), (0, 0, 1, -1)),
        ],
        id="groups of a later level and values, found by name",
    ),
    pytest.param(
        CITY + "[domain.city.levels.country]\nPeru = ['Lima', 'Cusco']\nCuba = ['Havana']\n"
        "[domain.city.levels.continent]\nof = 'country'\nPeru = 'South'\nCuba = 'North'",
        [
            Level("country", ("Peru", "Cuba"), (0, 0, 1, -1)),
            Level("continent", ("South", "North"), (0, 0, 1, -1)),
        ],
        id="groups of another level, by value",
    ),
    pytest.param(
        CITY + "[domain.city.levels.l]\nof = ['Lima']",
        [Level("l", ("of",), (0, -1, -1, -1))],
        id="a group called of",
    ),
    pytest.param(
        '[domain.c]\nkind = "category"\nvalues = [1, 2, 3]\n[domain.c.levels.l]\n1 = "a"\n3 = "a"',
        [Level("l", ("a",), (0, -1, 0))],
        id="numbers by value",
    ),
    pytest.param(
        '[domain.b]\nkind = "boolean"\n[domain.b.levels.l]\nyes = [true]\nall = false',
        [Level("l", ("yes", "all"), (1, 0))],
        id="boolean",
    ),
    pytest.param(
        '[domain.n]\nkind = "integer"\nmin = -2\nmax = 7\n[domain.n.levels.l]\n'
        'a = "-2--1"\nb = [0, 2]\nc = ["3", 5]\nd = "6+"',
        [Level("l", ("a", "b", "c", "d"), (0, 0, 1, 1, 1, 2, -1, 2, 3, 3))],
        id="integer",
    ),
    pytest.param(
        '[domain.n]\nkind = "integer"\nmin = 0\nmax = 6\n[domain.n.levels.l]\n'
        'a = [0, 1, 2]\nb = [[3, 4], "6"]\nc = 5\n[domain.n.levels.m]\nx = ["a", "c"]\ny = "b"',
        [
            Level("l", ("a", "b", "c"), (0, 0, 0, 1, 1, 2, 1)),
            Level("m", ("x", "y"), (0, 0, 0, 1, 1, 0, 1)),
        ],
        id="integer lists, and groups of groups",
    ),
    pytest.param(
        '[domain.n]\nkind = "integer"\nmin = 0\nmax = 24\nwidth = 10\n[domain.n.levels.l]\n'
        'low = "0 to 19"\nhigh = "20..24"',
        [Level("l", ("low", "high"), (0, 0, 1))],
        id="integer in bins, the last one narrower",
    ),
    pytest.param(
        '[domain.x]\nkind = "numeric"\nedges = [0, 0.5, 1, 2]\n[domain.x.levels.l]\n'
        "low = [0, 1]\nrest = [[1, 2]]",
        [Level("l", ("low", "rest"), (0, 0, 1))],
        id="numeric",
    ),
    pytest.param(
        '[domain.d]\nkind = "datetime"\nstart = 2024-01-01\nend = 2024-05-01\nstep = "month"\n'
        "[domain.d.levels.l]\nearly = [2024-01-01, 2024-03-01]\nlate = [[2024-04-01, 2024-05-01]]",
        [Level("l", ("early", "late"), (0, 0, -1, 1))],
        id="datetime",
    ),
]


@pytest.mark.parametrize(("text", "levels"), LEVELS)
def test_levels_map_values_to_groups(text, levels):
    domain = read(text)
    assert list(domain.attributes[0].levels) == levels
    assert read(domain.to_toml()) == domain


def test_a_hierarchy_takes_its_values_from_its_innermost_level():
    domain = read(
        '[domain.city]\nkind = "hierarchy"\noutside = "other"\n'
        "[domain.city.levels.continent]\nAmerica = ['Peru', 'Cuba']\n"
        "[domain.city.levels.country]\nPeru = ['Lima', 'Cusco']\nCuba = ['Havana']\n"
    )
    assert domain.attributes == (
        Category(
            "city",
            ("Lima", "Cusco", "Havana"),
            outside="other",
            levels=(
                Level("continent", ("America",), (0, 0, 0)),
                Level("country", ("Peru", "Cuba"), (0, 0, 1)),
            ),
        ),
    )


def test_a_hierarchy_by_value_lists_its_values_as_they_come():
    domain = read(
        '[domain.city]\nkind = "hierarchy"\n'
        "[domain.city.levels.country]\nRome = 'Italy'\nLima = 'Peru'\nBari = 'Italy'"
    )
    assert domain["city"].labels == ("Rome", "Lima", "Bari")
    assert domain["city"].level("country").group_of == (0, 1, 0)


N = '[domain.n]\nkind = "integer"\nmin = 0\nmax = 9\n'
COUNTRY = CITY + "[domain.city.levels.country]\n"  # groups start on line 5
LEVEL_FAULTS = [
    (N + "levels = 3", 5, "domain.n.levels: expected a table, got the integer 3"),
    (N + "[domain.n.levels]\nl = 3", 6, "domain.n.levels.l: expected a table, got the integer 3"),
    (N + "[domain.n.levels.l]", 5, "the level lists no groups"),
    (N + "[domain.n.levels.l]\na = '0-4'\nb = '4-9'", 7, "4 is in two groups of one level, 'a'"),
    (N + "[domain.n.levels.l]\na = [1,\n2,\n10]", 8, "a #3: expected a range that rises and lies"),
    (N + "[domain.n.levels.l]\na = [4, 3]", 6, "lies in 0 to 9, got 4 to 3"),
    (N + "[domain.n.levels.l]\na = 'zero'", 6, "expected an integer, a range"),
    (N + "[domain.n.levels.l]\na = {b = 1}", 6, "got a table"),
    (N + "[domain.n.levels.l]\na = true", 6, "got true"),
    (
        N + f"[domain.n.levels.l]\na = 0x{'f' * 999}",
        6,
        "got a whole number of more than 38 digits",
    ),
    (N + "width = 5\n[domain.n.levels.l]\na = '0-6'", 7, "the whole bins around it are 0 to 9"),
    (N + "[domain.n.levels.l]\n'' = 1", 5, "a group needs a name"),
    (N + "[domain.n.levels.l]\nof = 'm'\na = 1", 6, "there is no other level 'm'"),
    (
        '[domain.n]\nkind = "integer"\nmin = 0\nmax = 9999999\n[domain.n.levels.l]\na = 1',
        5,
        "at most 1,000,000 values, this one has 10,000,000",
    ),
    (COUNTRY + "Peru = ['Lima',\n'Cuzco']", 6, "got the text 'Cuzco'; did you mean 'Cusco'?"),
    (COUNTRY + "Peru = ['Lima']\nX = ['Lima']", 6, "'Lima' is in two groups of one level"),
    (COUNTRY + "Peru = ['Lima']\nRome = 'Italy'", 6, "one level is written in two ways"),
    (COUNTRY + "Roma = 'Italy'", 5, "country.Roma: expected a value of the attribute"),
    (COUNTRY + "Peru = [3]", 5, "got the integer 3"),
    (COUNTRY + "Peru = ['country']", 5, "got the text 'country'"),
    (
        COUNTRY + "A = ['B']\n[domain.city.levels.x]\nB = ['A']",
        4,
        "build on each other in a circle: 'country' -> 'x' -> 'country'",
    ),
    (
        COUNTRY + "A = ['Lima']\n[domain.city.levels.x]\nA = ['Rome']\n"
        "[domain.city.levels.y]\nB = ['A']",
        9,
        "is a group of 2 levels ('country', 'x'); add of = \"country\"",
    ),
    (
        COUNTRY + "A = ['Lima']\n[domain.city.levels.x]\nof = 'country'\nB = ['Lima']",
        8,
        "expected a group of the level 'country', got the text 'Lima'",
    ),
    ('[domain.c]\nkind = "hierarchy"', 1, "takes its values from a level"),
    ('[domain.c]\nkind = "hierarchy"\nvalues = ["a"]', 3, "unknown key"),
    ('[domain.c]\nkind = "hierarchy"\n[domain.c.levels.l]\na = [0.5]', 4, "expected a value"),
    (
        '[domain.c]\nkind = "hierarchy"\n[domain.c.levels.l]\na = ["b", 1]',
        1,
        "mixes texts and whole numbers",
    ),
    (X + "edges = [0, 1, 2]\n[domain.x.levels.l]\na = [0, 1.5]", 5, "expected two edges"),
    (X + "edges = [0, 1, 2]\n[domain.x.levels.l]\na = [0, 1, 2]", 5, "a #1: expected a pair of"),
    (
        DAY + "start = 2024-01-01\nend = 2024-04-01\nstep = 'month'\n"
        "[domain.day.levels.l]\na = [2024-01-15, 2024-02-01]",
        7,
        "expected the start of a step and a later one",
    ),
]


@pytest.mark.parametrize(("text", "line", "said"), LEVEL_FAULTS)
def test_a_fault_of_a_level_gives_one_message_with_its_line(text, line, said):
    test_a_fault_gives_one_message_with_its_line(text, line, said)


def test_consecutive_bins_are_written_as_one_pair():
    level = Level("l", ("a", "b", "c"), (0, 0, 1, 0, 1, 1))
    text = Domain([Integer("n", 0, 11, 2, levels=(level,))]).to_toml()
    assert text.endswith(
        "[domain.n.levels.l]\na = [[0, 3], [6, 7]]\nb = [[4, 5], [8, 11]]\nc = []\n"
    )


def test_a_hundred_levels_may_build_on_each_other_and_no_more():
    def chain(count: int) -> str:
        rows = [N, "[domain.n.levels.l0]\ng0 = '0-4'"]
        rows += [f"[domain.n.levels.l{i}]\ng{i} = 'g{i - 1}'" for i in range(count - 1, 0, -1)]
        return "\n".join(rows)

    domain = read(chain(100))
    assert domain["n"].level("l99").group_of == (0,) * 5 + (-1,) * 5
    with pytest.raises(SchemaError, match=r"line 6: domain\.n\.levels: at most 100 levels"):
        read(chain(101))


def test_a_value_may_be_named_twice_in_one_group():
    """Lists of codes that overlap within a group say the same thing twice; that harms nobody."""
    domain = read(N + "[domain.n.levels.l]\na = ['0-4', '3-5']")
    assert domain["n"].level("l").group_of == (0,) * 6 + (-1,) * 4


def test_an_attribute_may_name_its_column():
    text = '[domain.city]\nkind = "category"\nvalues = ["Rome"]\ncolumn = "address.city"\n'
    domain = domain_from(parse_toml(text))
    assert domain["city"].column == "address.city"
    assert domain.to_toml() == text
    named = domain_from(parse_toml(text.replace("address.city", "city")))
    plain = domain_from(parse_toml(text.replace('column = "address.city"\n', "")))
    assert named == plain
    assert named.digest() == plain.digest() != domain.digest()
