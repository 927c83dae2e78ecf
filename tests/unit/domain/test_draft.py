# SPDX-License-Identifier: Apache-2.0
"""Drafts: a schema to complete, from column types only."""

from __future__ import annotations

import pytest

from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain, domain_from
from sfumato.domain.draft import draft
from sfumato.errors import SchemaError
from sfumato.toml import parse_toml

TYPES = {
    "age": "int64",
    "sex": "string",
    "income": "float64",
    "rate": "decimal(10, 2)",
    "count": "!decimal(10,0)",
    "visit": "timestamp('UTC', 6)",
    "born": "date",
    "job": "!boolean",
    "path": "array<int64>",
}


def test_a_draft_has_a_table_for_each_column_that_can_be_an_attribute():
    tables = parse_toml(draft(TYPES).text).data["domain"]
    assert {name: table["kind"] for name, table in tables.items()} == {
        "age": "integer",
        "sex": "category",
        "income": "numeric",
        "rate": "numeric",
        "count": "integer",
        "visit": "datetime",
        "born": "datetime",
        "job": "boolean",
    }
    with_nulls = {name for name, table in tables.items() if table.get("nulls") == "missing"}
    assert with_nulls == set(tables) - {"count", "job"}


def test_every_column_with_private_looking_parts_is_warned_about():
    warned = [warning.split(":")[0] for warning in draft(TYPES).warnings]
    assert warned == ["age", "sex", "income", "rate", "count", "visit", "born", "path"]
    assert all("public" in w or w.startswith("path: left out") for w in draft(TYPES).warnings)


def test_an_unfinished_draft_is_refused_with_every_line_to_fill_in():
    text = draft({"age": "int64", "sex": "string"}).text
    with pytest.raises(SchemaError) as caught:
        domain_from(parse_toml(text, "people.toml"))
    rows = text.split("\n")
    expected = [
        ("domain.age.min", "the least whole number that can occur"),
        ("domain.age.max", "the greatest whole number that can occur"),
        ("domain.sex.values", "the list of values of the form or code book, such as ['yes', 'no']"),
    ]
    messages = []
    for key, what in expected:
        line = next(i for i, row in enumerate(rows, 1) if what in row)
        messages.append(f"people.toml, line {line}: {key}: not filled in yet; write here {what}")
    assert str(caught.value).split("\n") == messages


def test_a_completed_draft_is_a_domain():
    text = draft(TYPES, categories={"sex": ["F", "M"]}).text
    filled = {
        "min": "0",
        "max": "99",
        "edges": "[0, 1, 2]",
        "start": "2024-01-01",
        "end": "2025-01-01",
    }
    rows = text.split("\n")
    for i, row in enumerate(rows):
        if "FILL IN" in row and not row.startswith("#"):
            key = row.split(" = ")[0]
            rows[i] = f"{key} = {filled[key]}"
    domain = domain_from(parse_toml("\n".join(rows)))
    year = {"start": _day(2024), "end": _day(2025), "step": "month"}
    assert domain == Domain(
        [
            Integer("age", 0, 99, outside="clamp", nulls="missing"),
            Category("sex", ("F", "M"), outside="other", nulls="missing"),
            Numeric("income", (0, 1, 2), outside="clamp", nulls="missing"),
            Numeric("rate", (0, 1, 2), outside="clamp", nulls="missing"),
            Integer("count", 0, 99, outside="clamp"),
            DateTime("visit", **year, outside="clamp", nulls="missing"),
            DateTime("born", **year, outside="clamp", nulls="missing"),
            Boolean("job"),
        ]
    )


def _day(year: int):
    from datetime import datetime

    return datetime(year, 1, 1)


def test_given_categories_are_listed_with_a_warning():
    drafted = draft({"size": "string"}, categories={"size": ["S", "M"]})
    assert 'values = ["S", "M"]' in drafted.text
    assert drafted.warnings == (
        "size: the list of values was given with the column; it is public only if it was fixed "
        "before the data was collected",
    )


@pytest.mark.parametrize(
    ("types", "categories", "said"),
    [
        ({}, None, "has no columns"),
        ({"": "int64"}, None, "needs a name"),
        ({"size": "string"}, {"siez": ["S"]}, "is not a column; did you mean 'size'?"),
        ({"size": "string"}, {"size": ["S", "S"]}, "lists 'S' twice"),
    ],
)
def test_a_draft_of_nothing_sensible_is_refused(types, categories, said):
    with pytest.raises(SchemaError) as caught:
        draft(types, categories=categories)
    assert said in str(caught.value)


def test_a_placeholder_is_only_looked_for_where_draft_writes_it():
    text = '[domain.c]\nkind = "category"\nvalues = ["FILL IN: a name"]\n'
    assert domain_from(parse_toml(text))["c"].labels == ("FILL IN: a name",)
