# SPDX-License-Identifier: Apache-2.0
"""Open domains: what is to be discovered, and how it becomes a domain."""

from __future__ import annotations

import pytest

import sfumato as sf
from sfumato.domain.discovery import OpenCategory
from sfumato.errors import SchemaError


def test_keys_become_a_category_in_the_order_of_their_counts() -> None:
    city = sf.Category.discover("city")
    (closed,) = city.closed({"keys": [["Rome"], ["Bari"]], "numbers": [90, 40]})
    assert closed == sf.Category("city", ("Rome", "Bari"), outside="other", nulls="missing")


def test_tuples_become_one_category_a_column_with_every_value_once() -> None:
    pair = sf.Category.discover(("state", "city"), outside="drop", nulls="drop")
    closed = pair.closed({"keys": [["B", 1], ["A", 1], ["B", 2]], "numbers": [9, 8, 7]})
    assert closed == (sf.Category("state", ("B", "A")), sf.Category("city", (1, 2)))


def test_a_column_of_which_nothing_was_published_is_left_out() -> None:
    both = sf.OpenDomain([sf.Category.discover("city"), sf.Integer("age", 0, 9)])
    assert both.closed([{"keys": []}]).names == ("age",)
    with pytest.raises(SchemaError, match="larger budget"):
        sf.OpenDomain([sf.Category.discover("city")]).closed([{"keys": []}])


def test_the_closed_domain_keeps_the_order_of_the_open_one() -> None:
    both = sf.OpenDomain([sf.Integer("age", 0, 9), sf.Category.discover("x"), sf.Boolean("b")])
    assert both.closed([{"keys": [["a"]]}]).names == ("age", "x", "b")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sf.Category.discover(""), "name of a column"),
        (lambda: sf.Category.discover(("a", "a")), "named twice"),
        (lambda: sf.Category.discover(["abcdefghi"] * 1 + list("abcdefgh")), "at most 8"),
        (lambda: sf.Category.discover("a", outside="first"), "'other' or 'drop'"),
        (lambda: sf.Category.discover("a", nulls="first"), "'missing' or 'drop'"),
        (lambda: sf.Category.discover("a", most=0), "number of keys"),
        (lambda: sf.OpenDomain([sf.Integer("age", 0, 9)]), "nothing is to be discovered"),
        (lambda: sf.OpenDomain(["age"]), "made of attributes"),
        (lambda: sf.OpenDomain([sf.Category.discover("a"), sf.Boolean("a")]), "twice"),
    ],
)
def test_faults_say_what_came_and_what_is_allowed(make, words) -> None:
    with pytest.raises(SchemaError, match=words):
        make()


def test_an_open_domain_cannot_be_asked_about_and_the_message_says_what_to_do() -> None:
    domain = sf.OpenDomain([sf.Category.discover("city")])
    with pytest.raises(sf.WorkloadError, match=r"plan_discovery.*plan on its .domain"):
        sf.marginals(domain, 1)
    top = "SELECT city FROM data GROUP BY city ORDER BY COUNT(*) DESC LIMIT 3"
    with pytest.raises(sf.WorkloadError, match=r"\.top\(k\)"):
        sf.plan_selection(top, sf.Budget(epsilon=1), domain=domain)


SCHEMA = """
[domain.city]
kind = "category"
values = "discover"
most = 20

[domain.places]
kind = "category"
values = "discover"
columns = ["state", "county"]
nulls = "drop"

[domain.age]
kind = "integer"
min = 0
max = 9
"""


def test_a_schema_file_may_say_discover(tmp_path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    assert sf.OpenDomain.from_toml(path) == sf.OpenDomain(
        [
            OpenCategory(("city",), most=20),
            OpenCategory(("state", "county"), nulls="drop"),
            sf.Integer("age", 0, 9),
        ]
    )


def test_such_a_file_is_no_domain_and_the_message_says_what_to_do(tmp_path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    with pytest.raises(SchemaError, match="sfumato discover"):
        sf.Domain.from_toml(path)


def test_other_kinds_and_wrong_keys_are_refused_with_their_line(tmp_path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text('[domain.x]\nkind = "boolean"\nvalues = "discover"\n')
    with pytest.raises(SchemaError, match=r"schema.toml, line 2.*'discover' is for the kinds"):
        sf.OpenDomain.from_toml(path)
    path.write_text('[domain.x]\nkind = "category"\nvalues = "discover"\nmots = 3\n')
    with pytest.raises(SchemaError, match="did you mean 'most'"):
        sf.OpenDomain.from_toml(path)
