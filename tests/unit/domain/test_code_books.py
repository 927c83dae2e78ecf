# SPDX-License-Identifier: Apache-2.0
"""Lists of values by name and from files: what they say enters the domain, not where it stands."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain.attributes import DateTime
from sfumato.domain.code_books import PUBLIC_LISTS, public_list
from sfumato.domain.domain import read_domain
from sfumato.errors import SchemaError

CITIES = "city,name,country\nLIM,Lima,Peru\nCUZ,Cusco,Peru\nHAV,Havana,Cuba\nXXX,,\n"


def domain(tmp_path, lines: str):
    path = tmp_path / "schema.toml"
    path.write_text(f'[domain.city]\nkind = "category"\n{lines}')
    return read_domain(path)


def test_values_labels_and_levels_come_from_the_columns_of_a_file(tmp_path):
    (tmp_path / "cities.csv").write_text("\ufeff" + CITIES, encoding="utf-8")
    lines = (
        'values_file = "cities.csv"\nvalue_column = "city"\nlabel_column = "name"\n'
        'level_columns = ["country"]\noutside = "other"\n'
    )
    city = domain(tmp_path, lines)["city"]
    assert city.labels == ("LIM", "CUZ", "HAV", "XXX", "(other)")
    assert city.level("name").groups == ("Lima", "Cusco", "Havana")
    assert city.level("country").group_of == (0, 0, 1, -1)


def test_the_content_enters_the_digest_and_not_the_path(tmp_path):
    (tmp_path / "cities.csv").write_text(CITIES)
    pq.write_table(pa.table({"place": ["LIM", "CUZ", "HAV", "XXX"]}), tmp_path / "places.parquet")
    one = domain(tmp_path, 'values_file = "cities.csv"\n')
    other = domain(tmp_path, 'values_file = "places.parquet"\nvalue_column = "place"\n')
    written = domain(tmp_path, 'values = ["LIM", "CUZ", "HAV", "XXX"]\n')
    assert one == other == written
    assert one.digest() == other.digest() == written.digest()
    (tmp_path / "cities.csv").write_text(CITIES + "ROM,Rome,Italy\n")
    assert domain(tmp_path, 'values_file = "cities.csv"\n').digest() != one.digest()


def test_values_may_be_whole_numbers_by_type_or_by_word(tmp_path):
    pq.write_table(pa.table({"code": [1, 2], "name": ["a", "b"]}), tmp_path / "codes.parquet")
    (tmp_path / "codes.csv").write_text("code,name\n1,a\n2,b\n")
    names = 'level_columns = ["name"]\n'
    typed = domain(tmp_path, f'values_file = "codes.parquet"\n{names}')
    said = domain(tmp_path, f'values_file = "codes.csv"\nvalue_type = "integer"\n{names}')
    assert typed["city"].values == (1, 2)
    assert typed == said
    assert domain(tmp_path, 'values_file = "codes.csv"\n')["city"].values == ("1", "2")


@pytest.mark.parametrize(
    ("lines", "text", "why"),
    [
        ('values_file = "no.csv"', CITIES, "cannot be read"),
        ('values_file = "a.csv"\nvalue_column = "town"', CITIES, "has no column 'town'"),
        ('values_file = "a.csv"\nlevel_columns = ["contry"]', CITIES, "did you mean 'country'"),
        ('values_file = "a.csv"', "city\nLIM\nLIM\n", "twice"),
        ('values_file = "a.csv"\nvalue_column = "name"', CITIES, "none of them empty"),
        ('values_file = "a.csv"\nvalue_type = "integer"', CITIES, "no whole number"),
        ('values_file = "a.csv"', "", "is empty"),
        ('values_file = "a.csv"', "city,name\nLIM\n", "row 2: as many values as names"),
        ('values_file = "a.csv"', 'city\n"LIM', "it is damaged"),
        ('values_file = "a.csv"\nvalues = ["x"]', CITIES, "values and values_file are given"),
        ("", CITIES, "the key 'values' is missing"),
        ('values = ["x"]\nvalue_column = "a"', CITIES, "names a column of a values_file"),
        ('list = "iso-contries"', CITIES, "did you mean 'iso-countries'"),
        ('list = "weekdays"\nlevels = "calendar"', CITIES, "is for dates and times"),
    ],
)
def test_what_is_no_code_book_is_refused_with_its_line(tmp_path, lines, text, why):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SchemaError) as caught:
        domain(tmp_path, lines + "\n")
    assert why in str(caught.value)
    assert "schema.toml, line " in str(caught.value)


def test_a_binary_file_is_no_code_book(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(SchemaError, match="cannot be read"):
        domain(tmp_path, 'values_file = "a.parquet"\n')


@pytest.mark.parametrize(
    ("name", "size", "some"),
    [
        ("iso-countries", 249, "IT"),
        ("iso-countries-alpha3", 249, "ITA"),
        ("iso-countries-names", 249, "Italy"),
        ("us-states", 51, "DC"),
        ("us-states-names", 51, "New Hampshire"),
        ("weekdays", 7, "Sunday"),
        ("months", 12, "June"),
        ("five-year-ages", 18, "85+"),
    ],
)
def test_public_lists_have_as_many_values_as_they_should(tmp_path, name, size, some):
    """ISO 3166-1 has 249 codes; 50 states and DC; 17 groups of five years and one open."""
    book = public_list(name)
    assert len(book.values) == len(set(book.values)) == size
    assert some in book.values
    attribute = domain(tmp_path, f'list = "{name}"\n')["city"]
    assert attribute.size == size
    assert {level.name for level in attribute.levels} == set(book.levels)
    assert name in PUBLIC_LISTS


def test_levels_of_public_lists_are_facts():
    states = public_list("us-states")
    regions = dict(zip(states.values, states.levels["region"], strict=True))
    sizes = {region: list(regions.values()).count(region) for region in set(regions.values())}
    assert sizes == {"Northeast": 9, "Midwest": 12, "South": 17, "West": 13}, "Census Bureau"
    countries = public_list("iso-countries")
    assert len(set(countries.levels["alpha3"])) == len(set(countries.levels["name"])) == 249
    assert all(len(code) == 2 for code in countries.values)
    assert all(len(code) == 3 and code.isupper() for code in countries.levels["alpha3"])


def test_dates_have_levels_of_the_calendar(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        '[domain.day]\nkind = "datetime"\nstart = 2023-12-30\nend = 2024-01-03\n'
        'step = "day"\nlevels = "calendar"\n'
    )
    day = read_domain(path)["day"]
    assert [level.name for level in day.levels] == ["year", "quarter", "month", "weekday"]
    assert day.level("year").groups == ("2023", "2024")
    assert day.level("quarter").groups == ("2023-Q4", "2024-Q1")
    assert day.level("month").group_of == (0, 0, 1, 1)
    assert day.level("weekday").groups == ("Saturday", "Sunday", "Monday", "Tuesday")
    (tmp_path / "again.toml").write_text(read_domain(path).to_toml())
    assert read_domain(tmp_path / "again.toml") == read_domain(path)


@pytest.mark.parametrize(
    ("step", "names"),
    [
        ("6 hour", ["year", "quarter", "month", "weekday"]),
        ("month", ["year", "quarter", "month"]),
        ("quarter", ["year", "quarter"]),
        ("year", ["year"]),
    ],
)
def test_only_groups_of_whole_steps_are_levels(step, names):
    visits = DateTime("visit", datetime(2024, 1, 1), datetime(2026, 1, 1), step)
    assert [level.name for level in visits.with_calendar().levels] == names


def test_weeks_are_cut_by_months_and_years():
    weeks = DateTime("visit", datetime(2024, 1, 1), datetime(2026, 1, 1), "week")
    with pytest.raises(SchemaError, match="the calendar groups none of them"):
        weeks.with_calendar()
