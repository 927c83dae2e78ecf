# SPDX-License-Identifier: Apache-2.0
"""Attributes: cells, labels, levels, and what they refuse (tables worked out by hand)."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain.attributes import (
    Attribute,
    Boolean,
    Category,
    DateTime,
    Integer,
    Level,
    Numeric,
)
from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError, TooLarge, WorkloadError

SEX = Category("sex", ("Female", "Male"), outside="other", nulls="missing")
AGE = Integer("age", 17, 90)
TENS = Integer("tens", 5, 28, 10, outside="clamp", nulls="missing")  # 5-14, 15-24, 25-28
INCOME = Numeric("income", (0, 10, 20.5), outside="other")
YES = Boolean("yes", nulls="missing")
MONTH = DateTime("month", datetime(2024, 1, 15), datetime(2024, 4, 1), "month")
SHIFT = DateTime("shift", datetime(2024, 1, 1, 6), datetime(2024, 1, 1, 20), "8 hours")


@pytest.mark.parametrize(
    ("attribute", "labels"),
    [
        (SEX, ("Female", "Male", "(other)", "(missing)")),
        (Integer("n", 2, 4), (2, 3, 4)),
        (TENS, ("5-14", "15-24", "25-28", "(missing)")),
        (Integer("n", -3, 1, 2), ("-3 to -2", "-1 to 0", "1")),
        (INCOME, ("[0, 10)", "[10, 20.5]", "(other)")),
        (
            Numeric("x", (0.1, 1e6, 1000001, 1e20)),
            ("[0.1, 1000000)", "[1000000, 1000001)", "[1000001, 1e+20]"),
        ),
        (YES, (False, True, "(missing)")),
        (MONTH, (date(2024, 1, 15), date(2024, 2, 15), date(2024, 3, 15))),
        (SHIFT, (datetime(2024, 1, 1, 6), datetime(2024, 1, 1, 14))),
    ],
)
def test_labels_are_the_values_then_other_then_missing(attribute, labels):
    assert attribute.labels == labels
    assert attribute.size == len(labels)
    assert [attribute.label(c) for c in range(attribute.size)] == list(labels)
    for code in (-1, attribute.size):
        with pytest.raises(WorkloadError, match="has no cell"):
            attribute.label(code)


def test_the_extra_cells_come_last():
    assert (SEX.value_count, SEX.other_code, SEX.missing_code) == (2, 2, 3)
    assert (TENS.value_count, TENS.other_code, TENS.missing_code) == (3, None, 3)
    assert (INCOME.value_count, INCOME.other_code, INCOME.missing_code) == (2, 2, None)
    assert (AGE.other_code, AGE.missing_code) == (None, None)


SELECTIONS = [
    (SEX, "=", "Male", [0, 1, 0, 0]),
    (SEX, "!=", "Male", [1, 0, 1, 0]),
    (YES, "=", True, [0, 1, 0]),
    (YES, "!=", True, [1, 0, 0]),
    (YES, "=", 0, [1, 0, 0]),
    (TENS, "<", 15, [1, 0, 0, 0]),
    (TENS, "<=", 14, [1, 0, 0, 0]),
    (TENS, ">", 14.5, [0, 1, 1, 0]),
    (TENS, ">=", 5, [1, 1, 1, 0]),
    (TENS, "<=", 28, [1, 1, 1, 0]),
    (TENS, ">", 10**40, [0, 0, 0, 0]),
    (TENS, "=", 29, [0, 0, 0, 0]),
    (TENS, "!=", 29, [1, 1, 1, 0]),
    (TENS, "=", 7.5, [0, 0, 0, 0]),
    (Integer("n", 0, 2), "=", np.int64(1), [0, 1, 0]),
    (Integer("n", 0, 2), "=", 1.0, [0, 1, 0]),
    (Integer("n", 0, 2), "!=", 1, [1, 0, 1]),
    (INCOME, "<", 10, [1, 0, 0]),
    (INCOME, ">=", 10, [0, 1, 0]),
    (INCOME, "<=", 20.5, [1, 1, 0]),
    (INCOME, ">", 20.5, [0, 0, 0]),
    (INCOME, ">=", -1, [1, 1, 0]),
    (INCOME, "=", 21, [0, 0, 0]),
    (INCOME, "!=", 21, [1, 1, 1]),
    (MONTH, "<", "2024-02-15", [1, 0, 0]),
    (MONTH, ">=", date(2024, 2, 15), [0, 1, 1]),
    (MONTH, "<=", date(2024, 2, 14), [1, 0, 0]),
    (MONTH, ">", "2024-02-14", [0, 1, 1]),
    (MONTH, "<=", date(2024, 3, 31), [1, 1, 1]),
    (MONTH, ">", datetime(9999, 12, 31, 23, 59, 59, 999999), [0, 0, 0]),
    (MONTH, "<=", date(9999, 12, 31), [1, 1, 1]),
    (MONTH, "=", "2023-12-31", [0, 0, 0]),
    (SHIFT, "<", "2024-01-01T14:00", [1, 0]),
    (SHIFT, ">=", datetime(2024, 1, 1, 14), [0, 1]),
    (SHIFT, "<=", "2024-01-02", [1, 1]),
    (replace(MONTH, step="day"), "=", "2024-01-15", [1] + [0] * 76),
    (replace(MONTH, step="day"), "!=", date(2024, 3, 31), [1] * 76 + [0]),
]


@pytest.mark.parametrize(("attribute", "comparison", "constant", "cells"), SELECTIONS)
def test_select_marks_the_cells_where_the_comparison_holds(attribute, comparison, constant, cells):
    assert attribute.select(comparison, constant).astype(int).tolist() == cells


REFUSED = [
    (SEX, "<", "Male", "has no order"),
    (SEX, "=", "male", "did you mean 'Male'?"),
    (Category("c", (0, 1)), "=", True, "has no value True"),
    (Category("c", (0, 1)), "=", "1", "has no value '1'"),
    (YES, "<", True, "= or != to true or false"),
    (YES, "=", "true", "= or != to true or false"),
    (YES, "=", 2, "= or != to true or false"),
    (TENS, "<", 10, "would cut the bin 5-14; compare at the start of a bin"),
    (TENS, "<=", 15, "would cut the bin 15-24"),
    (TENS, "=", 7, "would cut the bin 5-14"),
    (TENS, "<", "10", "compare it with a number, not '10'"),
    (TENS, "<", True, "compare it with a number, not True"),
    (TENS, "<", math.nan, "nan is not a finite number"),
    (TENS, "<", Fraction(1, 2), "compare it with a number"),
    (
        INCOME,
        "<",
        5,
        "would cut a bin; ask < or >= at one of 0, 10, or <= or > at the last edge 20.5",
    ),
    (INCOME, "<=", 10, "would cut a bin"),
    (INCOME, "<", 20.5, "would cut a bin"),
    (INCOME, "=", 10, "would cut a bin"),
    (MONTH, "=", "2024-02-15", "steps of one month"),
    (MONTH, "<", "2024-02-16", "ask < or >= at the start of a step"),
    (MONTH, "<", "2024-02-15T00:00:01", "would cut one"),
    (MONTH, "<=", datetime(2024, 2, 14), "would cut one"),
    (MONTH, "<", "February", "compare it with one such as '2024-01-31', not 'February'"),
    (MONTH, "<", 20240215, "compare it with one such as"),
    (MONTH, "<", "2024-02-15T00:00:00+00:00", "without a time zone"),
    (SHIFT, ">", "2024-01-01T14:00", "steps of 8 hours from"),
    (DateTime("d", datetime(9990, 1, 1), datetime.max, "year"), "<", "9999-06-01", "would cut"),
    (AGE, "~", 3, "'~' is not a comparison"),
]


@pytest.mark.parametrize(("attribute", "comparison", "constant", "said"), REFUSED)
def test_select_refuses_what_cells_cannot_tell(attribute, comparison, constant, said):
    with pytest.raises(WorkloadError) as caught:
        attribute.select(comparison, constant)
    assert said in str(caught.value)


def test_numbers_are_values_or_middles_of_bins():
    assert Integer("n", 2, 4, outside="other").numbers().tolist() == [2, 3, 4, 0]
    assert TENS.numbers().tolist() == [9.5, 19.5, 26.5, 0]
    assert INCOME.numbers().tolist() == [5, 15.25, 0]
    assert YES.numbers().tolist() == [0, 1, 0]
    assert np.isfinite(Numeric("x", (-1.7e308, -1.6e308, 1.7e308)).numbers()).all()
    for attribute in (SEX, MONTH):
        with pytest.raises(WorkloadError, match="sums and means need"):
            attribute.numbers()


def test_levels_are_found_by_name():
    level = Level("half", ("low", "high"), (0, 0, 1))
    attribute = Integer("n", 0, 2, levels=(level,))
    assert attribute.level("half") is level
    with pytest.raises(WorkloadError, match=r"no level 'halv'; it has: 'half'; did you mean"):
        attribute.level("halv")
    with pytest.raises(WorkloadError, match="it has: none"):
        AGE.level("half")


# --- large attributes ----------------------------------------------------------------------------

LARGE = [
    Integer("n", 0, 10**18 - 1),
    Integer("n", -(10**37), 10**37, 7),
    DateTime("d", datetime(1, 1, 1), datetime(9999, 1, 1), "minute"),
]


@pytest.mark.parametrize("attribute", LARGE)
def test_a_large_attribute_is_never_listed(attribute: Attribute):
    last = attribute.value_count - 1
    assert attribute.size == last + 1 > 10**7
    assert len(repr(attribute)) < 300
    assert attribute.label(last) == attribute.value_label(last)
    for listed in (lambda: attribute.labels, lambda: attribute.select("<", _middle(attribute))):
        with pytest.raises(TooLarge, match="at most 10,000,000 can be listed"):
            listed()


def _middle(attribute: Attribute):
    return datetime(5000, 1, 1) if isinstance(attribute, DateTime) else attribute.bounds(10**6)[0]


def test_ten_million_cells_can_still_be_listed():
    assert int(Integer("n", 1, LIMITS.cells_listed).select("<=", 5).sum()) == 5
    with pytest.raises(TooLarge):
        Integer("n", 0, LIMITS.cells_listed).select("<=", 5)


def test_the_numbers_and_starts_of_a_large_attribute_are_not_listed():
    with pytest.raises(TooLarge):
        LARGE[0].numbers()
    with pytest.raises(TooLarge):
        _ = LARGE[2].starts


# --- what cannot be declared ---------------------------------------------------------------------

BAD = [
    (lambda: Integer("", 0, 1), "needs a name"),
    (lambda: Integer(3, 0, 1), "needs a name"),
    (lambda: Integer("\ud800", 0, 1), "needs a name"),
    (lambda: Integer("n", 1, 0), "max = 0 is below min = 1"),
    (lambda: Integer("n", 0, 1, 0), "width = 0 must be at least 1"),
    (lambda: Integer("n", 0.0, 1), "min = 0.0 is not a whole number"),
    (lambda: Integer("n", False, 1), "min = False is not a whole number"),
    (lambda: Integer("n", 0, 10**38), "more than 38 digits"),
    (lambda: Integer("n", 0, 1, outside="clip"), "outside = 'clip' is not one of 'drop'"),
    (lambda: Integer("n", 0, 1, nulls="clamp"), "nulls = 'clamp' is not one of"),
    (lambda: Category("c", ()), "lists nothing"),
    (lambda: Category("c", "abc"), "values must be a list"),
    (lambda: Category("c", {"a"}), "values must be a list"),
    (lambda: Category("c", ("a", "b", "a")), "lists 'a' twice"),
    (lambda: Category("c", ("a", 1)), "mixes texts and whole numbers"),
    (lambda: Category("c", (True, False)), 'use kind = "boolean"'),
    (lambda: Category("c", (1.5,)), "is not a whole number"),
    (lambda: Category("c", ("\udfff",)), "no text that databases hold"),
    (lambda: Category("c", ("a\0b",)), "no text that databases hold"),
    (lambda: Category("c", ("a",), outside="clamp"), "the rules for a category"),
    (lambda: Category("c", ("(missing)",), nulls="missing"), "label of the extra cell"),
    (lambda: Boolean("b", outside="clamp"), "the rules for a boolean"),
    (lambda: Numeric("x", (1,)), "at least two"),
    (lambda: Numeric("x", (0, math.inf)), "finite numbers"),
    (lambda: Numeric("x", (0, 10**400)), "finite numbers"),
    (lambda: Numeric("x", (0, True)), "edges holds True"),
    (lambda: Numeric("x", (0, "1")), "edges holds '1'"),
    (lambda: Numeric("x", (0, 2, 1)), "2 is followed by 1"),
    (lambda: Numeric("x", (-0.0, 0)), "0 is followed by 0"),
    (lambda: DateTime("d", "2024-01-01", datetime(2025, 1, 1)), "is not a date"),
    (lambda: DateTime("d", datetime(2024, 1, 1), datetime(2024, 1, 1)), "must come after start"),
    (lambda: DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), "era"), "step = 'era'"),
    (lambda: DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), "-1 day"), "step = '-1"),
    (lambda: DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), "\u00b2 day"), "step ="),
    (lambda: DateTime("d", datetime(2024, 1, 29), datetime(2025, 1, 1), "year"), "day 1 to 28"),
    (lambda: Level("l", (), ()), "lists no groups"),
    (lambda: Level("", ("a",), ()), "needs a name"),
    (lambda: Level("l", ("a", "a"), ()), "names a group twice"),
    (lambda: Level("l", ("a",), (1,)), "group that is not listed"),
    (lambda: Level("l", ("a",), (-2,)), "group that is not listed"),
    (lambda: Level("l", ("a",), (0.5,)), "whole numbers"),
    (lambda: Level("l", (3,), (0,)), "a group needs a name"),
    (
        lambda: Integer("n", 0, 2, levels=(Level("l", ("a",), (0, 0)),)),
        "'l' maps 2 values, the attribute has 3",
    ),
    (
        lambda: Integer("n", 0, 0, levels=(Level("l", ("a",), (0,)), Level("l", ("b",), (0,)))),
        "two of them have one name",
    ),
]


@pytest.mark.parametrize(("declare", "said"), BAD)
def test_a_wrong_declaration_is_refused(declare, said):
    with pytest.raises(SchemaError) as caught:
        declare()
    assert said in str(caught.value)


def test_equal_declarations_take_one_form():
    assert Integer("n", np.int64(0), np.int32(5)) == Integer("n", 0, 5)
    assert Category("c", [np.int64(1), 2]) == Category("c", (1, 2))
    assert Numeric("x", [0, 1]).edges == (0.0, 1.0)
    assert [str(e) for e in Numeric("x", (-0.0, 1)).edges] == ["0.0", "1.0"]
    day = DateTime("d", date(2024, 1, 1), date(2025, 1, 1), "1 days")
    assert day == DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), "day")
    assert Level("l", ["a"], np.array([0, -1])) == Level("l", ("a",), (0, -1))


def test_steps_longer_than_the_calendar_make_one_bin():
    for step in ("999999999 weeks", "999999999 years"):
        assert DateTime("d", datetime(2024, 1, 1), datetime(2025, 1, 1), step).size == 1


def test_months_keep_the_day_and_time_of_the_start():
    attribute = DateTime("d", datetime(2023, 11, 28, 6), datetime(2024, 2, 28, 6, 1), "month")
    assert attribute.starts == (
        datetime(2023, 11, 28, 6),
        datetime(2023, 12, 28, 6),
        datetime(2024, 1, 28, 6),
        datetime(2024, 2, 28, 6),
    )


def test_attributes_survive_pickling_and_cannot_be_changed():
    for attribute in (SEX, AGE, TENS, INCOME, YES, MONTH):
        _ = attribute.labels
        assert pickle.loads(pickle.dumps(attribute)) == attribute  # noqa: S301
        with pytest.raises(AttributeError):
            attribute.name = "other"


def test_only_the_kinds_can_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Attribute("x")
