# SPDX-License-Identifier: Apache-2.0
"""Domains: names, sizes, order, digests."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from datetime import datetime

import pytest

from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain, domain_from
from sfumato.errors import SchemaError, WorkloadError
from sfumato.toml import parse_toml


def test_the_quick_form_numbers_the_cells_of_each_attribute():
    domain = Domain({"age": 100, "sex": 2})
    assert domain.attributes == (Integer("age", 0, 99), Integer("sex", 0, 1))
    assert (domain.names, domain.shape, domain.size) == (("age", "sex"), (100, 2), 200)
    assert (len(domain), "sex" in domain, "race" in domain, 3 in domain) == (2, True, False, False)
    assert repr(domain) == "Domain({age: 100, sex: 2})"
    assert Domain({"all": 1}).size == 1


def test_sizes_are_python_integers_of_any_length():
    domain = Domain({f"a{i}": 10**18 for i in range(20)})
    assert domain.size == 10**360
    assert domain.cells(["a0", "a1"]) == 10**36
    assert len(domain.digest()) == 64
    assert len(repr(domain)) < 1000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "at least one attribute"),
        ([], "at least one attribute"),
        ({"age": 0}, "an integer >= 1, got 0"),
        ({"age": True}, "an integer >= 1, got True"),
        ({"age": 2.0}, "an integer >= 1, got 2.0"),
        (["age"], "a domain is made of attributes, got 'age'"),
        ([Boolean("a"), Boolean("b"), Boolean("a")], "names the attribute 'a' twice"),
    ],
)
def test_a_wrong_domain_is_refused(given, said):
    with pytest.raises(SchemaError) as caught:
        Domain(given)
    assert said in str(caught.value)


def test_an_unknown_attribute_is_named_with_a_near_one():
    domain = Domain({"age": 100, "sex": 2})
    for name, hint in (("aeg", "; did you mean 'age'?"), ("race", ""), (3, ""), ([], "")):
        with pytest.raises(WorkloadError) as caught:
            domain[name]
        assert (
            str(caught.value) == f"unknown attribute {name!r}; the domain has: 'age', 'sex'{hint}"
        )


def test_names_come_in_the_order_of_the_domain():
    domain = Domain({"c": 2, "a": 3, "b": 5})
    assert domain.in_order(["b", "c", "b"]) == ("c", "b")
    assert domain.in_order("a") == ("a",)
    assert domain.cells(["b", "a", "b"]) == 15
    assert domain.cells([]) == 1
    assert [domain.index(n) for n in ("c", "a", "b")] == [0, 1, 2]
    with pytest.raises(WorkloadError):
        domain.in_order(["a", "z"])


BASE = Domain(
    [
        Category("c", ("a", "b"), levels=(Level("l", ("g", "h"), (0, 1)),)),
        Integer("n", 0, 9),
        Numeric("x", (0, 1)),
        DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1)),
        Boolean("b"),
    ]
)
CHANGES = [
    Category("c", ("b", "a"), levels=(Level("l", ("g", "h"), (0, 1)),)),
    Category("c", ("a", "b"), levels=(Level("l", ("g", "h"), (1, 0)),)),
    Category("c", ("a", "b"), levels=(Level("l", ("g", "i"), (0, 1)),)),
    Category("c", ("a", "b"), levels=(Level("m", ("g", "h"), (0, 1)),)),
    Category("c", ("a", "b")),
    Category("n", (0, 1, 2)),
    Integer("n", 0, 9, 2),
    Integer("n", 0, 9, outside="clamp"),
    Integer("n", 0, 9, nulls="missing"),
    Numeric("x", (0, 2)),
    DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), "week"),
    DateTime("d", datetime(2024, 1, 1, 1), datetime(2025, 1, 1)),
    Boolean("b", outside="other"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_an_attribute_changes_the_digest(change):
    changed = Domain([change if a.name == change.name else a for a in BASE])
    assert changed != BASE
    assert changed.digest() != BASE.digest()


def test_the_order_of_the_attributes_counts():
    turned = Domain(list(BASE)[::-1])
    assert turned != BASE
    assert turned.digest() != BASE.digest()


def test_the_digest_of_a_domain_never_changes():
    """Ledgers store digests, so the text that is hashed is written out here."""
    hashed = (
        '["sfumato domain 1",[["integer",{"levels":[],"max":99,"min":0,"name":"age",'
        '"nulls":"drop","outside":"drop","width":1}],["numeric",{"edges":[0.0,0.5],"levels":[],'
        '"name":"x","nulls":"drop","outside":"clamp"}],["category",{"levels":[["l",["g"],[0,-1]]],'
        '"name":"c","nulls":"missing","outside":"drop","values":["a","\\u00e9"]}],["datetime",'
        '{"end":"2025-01-01T00:00:00","levels":[],"name":"d","nulls":"drop","outside":"drop",'
        '"start":"2024-01-01T00:00:00","step":"day"}]]]'
    )
    domain = Domain(
        [
            Integer("age", 0, 99),
            Numeric("x", (0, 0.5), outside="clamp"),
            Category("c", ("a", "\u00e9"), nulls="missing", levels=(Level("l", ("g",), (0, -1)),)),
            DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1)),
        ]
    )
    assert domain.digest() == hashlib.sha256(hashed.encode()).hexdigest()


def test_domains_can_be_keys_and_survive_pickling():
    again = pickle.loads(pickle.dumps(BASE))  # noqa: S301
    assert again == BASE
    assert {BASE: 1}[again] == 1
    assert BASE != "a domain"
    with pytest.raises(AttributeError):
        BASE.attributes = ()


def test_declaring_a_domain_does_not_load_pydantic():
    code = (
        "import sys, sfumato.domain.domain as d; d.Domain({'a': 2}).digest(); "
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_record_inside_is_said_in_one_word_and_written_as_rules():
    plain = Domain({"age": 10})
    promised = Domain({"age": 10}, records="all-inside")
    assert promised.keeps_every_record
    assert not plain.keeps_every_record
    assert promised.shape == plain.shape
    assert promised.digest() != plain.digest()
    text = 'records = "all-inside"\n\n' + plain.to_toml()
    assert domain_from(parse_toml(text)) == promised
    assert domain_from(parse_toml(promised.to_toml())) == promised
    assert Domain(promised) == promised


def test_another_word_for_the_records_is_refused():
    with pytest.raises(SchemaError, match="is not 'all-inside'"):
        Domain({"age": 10}, records="inside")
    with pytest.raises(SchemaError, match="line 1"):
        domain_from(parse_toml('records = "all"\n\n' + Domain({"age": 10}).to_toml()))
