# SPDX-License-Identifier: Apache-2.0
"""The example of the Adult table, the page about domains, and the doctests of this room."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from sfumato.domain.domain import Domain, domain_from
from sfumato.errors import SchemaError
from sfumato.toml import parse_toml

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "domain.md"


def adult() -> Domain:
    return Domain.from_toml(ROOT / "examples" / "adult" / "adult.toml")


def test_the_domain_of_adult_has_its_columns_and_sizes():
    domain = adult()
    assert dict(zip(domain.names, domain.shape, strict=True)) == {
        "age": 74,
        "workclass": 9,
        "education": 16,
        "education-num": 16,
        "marital-status": 7,
        "occupation": 15,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "capital-gain": 20,
        "capital-loss": 20,
        "hours-per-week": 99,
        "native-country": 42,
        "income": 2,
    }
    assert [a.name for a in domain if a.nulls == "missing"] == [
        "workclass",
        "occupation",
        "native-country",
    ]


def test_every_value_of_adult_is_in_one_group_of_each_level():
    levels = {(a.name, level.name): level for a in adult() for level in a.levels}
    assert set(levels) == {
        ("age", "group"),
        ("age", "working-age"),
        ("education", "schooling"),
        ("native-country", "region"),
    }
    for level in levels.values():
        assert -1 not in level.group_of
        assert set(level.group_of) == set(range(len(level.groups)))


def test_the_domain_of_adult_survives_a_round_trip():
    assert domain_from(parse_toml(adult().to_toml())) == adult()


def _blocks() -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_every_schema_on_the_page_about_domains_is_valid():
    blocks = [block for block in _blocks() if "[domain." in block]
    assert len(blocks) >= 2
    for block in blocks:
        assert domain_from(parse_toml(block, "docs/domain.md")).size > 0


def test_the_page_about_domains_names_every_key_and_kind():
    from sfumato.domain.schema import _TABLES

    text = PAGE.read_text("utf-8")
    fields = [each for table in _TABLES.values() for each in table.model_fields.items()]
    keys = {held.alias or key for key, held in fields}
    missing = [word for word in (*_TABLES, *keys, "of") if f"`{word}`" not in text]
    assert not missing


def test_the_faults_on_the_page_about_domains_are_the_real_ones():
    block = _blocks()[0]
    quoted = re.findall(r"^people\.toml, line .*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert quoted
    spoiled = block.replace("max = 90", 'max = "ninety"').replace(
        'nulls = "missing"', 'null = "missing"'
    )
    with pytest.raises(SchemaError) as caught:
        domain_from(parse_toml(spoiled, "people.toml"))
    assert str(caught.value).split("\n") == quoted


def test_the_python_on_the_page_about_domains_is_true(tmp_path, monkeypatch):
    (tmp_path / "people.toml").write_text(_blocks()[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(PAGE), module_relative=False) == (0, 7)


@pytest.mark.parametrize(
    "name",
    [
        "text",
        "toml",
        *(f"domain.{n}" for n in ("attributes", "domain", "schema", "draft")),
    ],
)
def test_the_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"sfumato.{name}")).failed == 0
