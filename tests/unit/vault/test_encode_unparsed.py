# SPDX-License-Identifier: Apache-2.0
"""Where texts go that stand for no value, and records that could not be read."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain, domain_from
from sfumato.domain.values import Values
from sfumato.errors import SchemaError, WorkloadError
from sfumato.toml import parse_toml
from sfumato.vault.count import count_marginals
from sfumato.vault.sources import CsvSource
from sfumato.vault.tables import open_table


def counted(source, attribute) -> dict[object, int]:
    domain = Domain([attribute])
    exact = count_marginals(open_table(source), domain, [domain.names]).reveal(domain.names)
    return {attribute.label(int(i)): int(exact[i]) for i in np.flatnonzero(exact)}


# The second record has too many values, the third is not UTF-8.
TEXT = b"x,y\n5,a\n1,2,3\n\xff,a\n,a\n12 kg,a\n77,a\n"


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(TEXT)
    return path


@pytest.mark.parametrize(
    ("outside", "nulls", "unparsed", "cells"),
    [
        # 5 is declared, 77 outside, one empty, two unreadable, one text.
        ("clamp", "missing", None, {5: 1, 9: 1, "(missing)": 4}),
        ("clamp", "missing", "null", {5: 1, 9: 1, "(missing)": 4}),
        ("clamp", "missing", "cell", {5: 1, 9: 1, "(missing)": 1, "(unparsed)": 3}),
        ("clamp", "missing", "other", {5: 1, 9: 1, "(missing)": 1, "(other)": 3}),
        ("clamp", "missing", "drop", {5: 1, 9: 1, "(missing)": 1}),
        ("other", "missing", None, {5: 1, "(other)": 2, "(missing)": 3}),
        ("other", "missing", "cell", {5: 1, "(other)": 1, "(missing)": 1, "(unparsed)": 3}),
        ("other", "drop", "cell", {5: 1, "(other)": 1, "(unparsed)": 3}),
        ("drop", "drop", "cell", {5: 1, "(unparsed)": 3}),
        ("drop", "first", "null", {0: 4, 5: 1}),
        ("drop", "drop", "null", {5: 1}),
    ],
)
@pytest.mark.parametrize("kind", [Integer, Numeric])
def test_each_rule_sends_them_where_it_says(people, outside, nulls, unparsed, cells, kind):
    rules = {"outside": outside, "nulls": nulls, "unparsed": unparsed}
    if kind is Integer:
        assert counted(people, Integer("x", 0, 9, **rules)) == cells
        return
    numeric = Numeric("x", tuple(range(11)), **rules)
    spelled = {5: "[5, 6)", 9: "[9, 10]", 0: "[0, 1)"}
    assert counted(people, numeric) == {spelled.get(k, k): n for k, n in cells.items()}


def test_dates_truths_and_categories_have_the_cell_too(people):
    rules = {"outside": "other", "nulls": "missing", "unparsed": "cell"}
    day = DateTime("x", datetime(2024, 1, 1), datetime(2025, 1, 1), **rules)
    assert counted(people, day) == {"(missing)": 1, "(unparsed)": 5}
    assert counted(people, Boolean("x", **rules)) == {"(missing)": 1, "(unparsed)": 5}
    texts = Category("x", ("5", "77"), **rules)
    assert counted(people, texts) == {"5": 1, "77": 1, "(other)": 1, "(missing)": 1,
                                      "(unparsed)": 2}, "every text is one"  # fmt: skip


def test_lines_and_columns_of_objects_and_typed_ones(tmp_path):
    age = Integer("x", 0, 9, outside="clamp", nulls="missing", unparsed="cell")
    path = tmp_path / "people.jsonl"
    path.write_text('{"x": 5}\n{"x": null}\n{}\nno\n{"x": "no"}\n')
    assert counted(path, age) == {5: 1, "(missing)": 2, "(unparsed)": 2}
    frame = pd.DataFrame({"x": pd.Series([5, None, "no"], dtype=object)})
    assert counted(frame, age) == {5: 1, "(missing)": 1, "(unparsed)": 1}
    assert counted(pd.DataFrame({"x": [5.0, np.nan]}), age) == {5: 1, "(missing)": 1}
    na = tmp_path / "na.csv"
    na.write_text("x\nNA\nno\n")
    assert counted(CsvSource(na, null_values=["NA"]), age) == {"(missing)": 1, "(unparsed)": 1}


def test_values_themselves_have_the_cell(people):
    income = Numeric("x", (0, 10), outside="clamp", nulls="missing", unparsed="cell")
    values = Values.of_attribute(income)
    assert values.size == 4
    domain = Domain([values])
    table = open_table(people)
    counts = count_marginals(table, domain, [domain.names], with_values=True)
    exact = counts.reveal(domain.names)
    shares = [int(each) / 2**50 for each in exact]
    # 5 is half way, 77 is clamped to 10.
    assert shares == [0.5, 1.5, 1.0, 3.0]


RULES = list(product(("drop", "other", "clamp"), ("drop", "missing", "first"),
                     (None, "null", "other", "drop", "cell")))  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(RULES),
    st.lists(st.sampled_from(["5", "", "no", "77", "1,2,3", "\x00", "nan"]), max_size=4),
    st.sampled_from(["5", "", "no", "1,2,3", "99"]),
)
def test_one_record_more_moves_one_cell_by_one_at_most(tmp_path_factory, rules, lines, line):
    """Neighbours of the file, under every rule; a rule that drops nothing moves it by one."""
    path = tmp_path_factory.mktemp("rules") / "people.csv"
    outside, nulls, unparsed = rules
    attribute = Integer("x", 0, 9, outside=outside, nulls=nulls, unparsed=unparsed)

    def counts(some):
        path.write_text("".join(f"{each}\n" for each in ["x", *some]))
        return Counter(counted(CsvSource(path, "lines", delimiter=","), attribute))

    before, after = counts(lines), counts([*lines, line])
    assert not before - after
    moved = (after - before).total()
    assert moved == 1 if attribute.keeps_every_record else moved <= 1


def test_the_rule_is_written_read_and_in_the_digest():
    text = '[domain.x]\nkind = "integer"\nmin = 0\nmax = 9\nunparsed = "cell"\n'
    domain = domain_from(parse_toml(text))
    assert domain.to_toml() == text
    plain = domain_from(parse_toml(text.replace('unparsed = "cell"\n', "")))
    assert domain.digest() != plain.digest()
    assert domain["x"].labels[-1] == "(unparsed)"
    with pytest.raises(SchemaError, match=r"line 5: domain.x.unparsed"):
        domain_from(parse_toml(text.replace('"cell"', '"row"'), "a.toml"))
    with pytest.raises(SchemaError, match="unparsed = 'row' is not one of"):
        Integer("x", 0, 9, unparsed="row")
    inside = Domain([Integer("x", 0, 9, unparsed="drop")], records="all-inside")
    assert inside.keeps_every_record
    assert not Integer(
        "x", 0, 9, outside="clamp", nulls="first", unparsed="drop"
    ).keeps_every_record


def test_the_count_is_asked_for_like_any_other_and_its_interval_holds(people):
    domain = Domain(
        [
            Integer("x", 0, 9, outside="clamp", nulls="missing", unparsed="cell"),
            Category("y", ("a",), outside="other", nulls="missing"),
        ]
    )
    plan = sf.plan(sf.unparsed(domain), sf.Budget(epsilon=50, delta=1e-9))
    answers = plan.release(people, ledger=None).answers()
    assert len(answers) == 1
    row = answers.iloc[0]
    assert abs(row["value"] - 3) < 1.5, "3 records of 6, with noise of epsilon 50"
    with pytest.raises(WorkloadError, match='declare unparsed = "cell"'):
        sf.unparsed(Domain([domain["y"]]))
    x = sf.attribute(domain, "x")
    assert not x._attribute.select("!=", 5)[-1], "it satisfies no comparison"
