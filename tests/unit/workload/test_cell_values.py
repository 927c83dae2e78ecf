# SPDX-License-Identifier: Apache-2.0
"""What functions of columns are on cells: intervals that enclose all values of a bin."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.workload import cell_values as cells
from sfumato.workload.cell_values import UNKNOWN, Span, Undecided, compared

TEN = Span(F(0), F(10), is_high_open=True)  # the bin [0, 10)


def test_cells_hold_values_ranges_nothing_or_what_is_not_known() -> None:
    whole = sf.Integer("age", 0, 5, 4, outside="other", nulls="missing")
    assert cells.states_of(whole) == [Span(0, 3), Span(4, 5), UNKNOWN, None]
    assert cells.states_of(sf.Category("c", ("a", "b"))) == ["a", "b"]
    real = cells.states_of(sf.Numeric("x", (0, 10, 20)))
    assert real == [TEN, Span(F(10), F(20))]  # the last bin holds its upper edge
    months = sf.DateTime("day", datetime(2024, 1, 1), datetime(2024, 2, 15), "month")
    first, last = cells.states_of(months)
    assert first == Span(datetime(2024, 1, 1), datetime(2024, 2, 1), is_high_open=True)
    assert last == Span(datetime(2024, 2, 1), datetime(2024, 2, 15), is_high_open=True)


def test_a_quotient_of_whole_numbers_is_cut_towards_zero() -> None:
    assert Span(20, 29) / 10 == 2
    assert Span(-5, -5) / 2 == -2
    assert Span(-3, 3) / 4 == 0
    assert Span(7, 7) / F(2) == F(7, 2)
    assert Span(7, 7) / 0 is None
    with pytest.raises(Undecided):
        Span(7, 7) / Span(1, 2)


def test_open_ends_stay_open() -> None:
    assert cells.floored(TEN * F(1, 10)) == 0
    assert Span(F(-10), F(0), is_low_open=True) == TEN * -1
    assert cells.ceiled(TEN * F(-1, 10)) == 0
    assert compared(TEN, "<", 10) is True
    assert compared(Span(F(0), F(10)), "<=", 10) is True
    with pytest.raises(Undecided):
        compared(Span(F(0), F(10)), "<", 10)
    with pytest.raises(Undecided):
        compared(TEN, "=", 3)
    assert compared(TEN, "!=", 10) is True


def test_comparisons_with_nothing_or_the_unknown_are_open() -> None:
    for comparison in ("=", "!=", "<", ">="):
        assert compared(None, comparison, 3) is None
        assert compared(UNKNOWN, comparison, 3) is None
    for left, right in ((1, "a"), (True, 1), (datetime(2024, 1, 1), 3)):
        with pytest.raises(TypeError):
            compared(left, "=", right)
    with pytest.raises(TypeError):
        compared("a", "<", "b")


number = st.fractions(-20, 20, max_denominator=8)
whole = st.integers(-20, 20)
FUNCTIONS = {
    "add": lambda s: cells.as_numbers(s) + F(3, 2),
    "times": lambda s: cells.as_numbers(s) * F(-3, 2),
    "square": lambda s: cells.as_numbers(s) * s,
    "divide": lambda s: cells.as_numbers(s) / 3,
    "remainder": lambda s: cells.as_numbers(s) % 4,
    "floor": cells.floored,
    "ceiling": cells.ceiled,
    "absolute": cells.absolute,
    "cut": lambda s: cells.cut(s, 0),
    "cut to tens": lambda s: cells.cut(s, -1),
    "round": lambda s: cells.rounded(s, 0),
    "round to tens": lambda s: cells.rounded(s, -1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.sampled_from([number, whole]).flatmap(lambda n: st.tuples(n, n, n)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_functions_of_a_range_enclose_those_of_its_values(
    name: str, numbers: tuple[F, F, F], is_open: bool
) -> None:
    low, inside, high = sorted(numbers)
    is_open = is_open and inside < high
    try:
        hull = FUNCTIONS[name](Span(low, high, is_high_open=is_open))
    except Undecided:
        return
    value = FUNCTIONS[name](inside)
    around = cells.as_numbers(hull)
    assert around.low <= value <= around.high
    assert value != around.high or not around.is_high_open
    assert value != around.low or not around.is_low_open


@given(st.datetimes(datetime(2023, 1, 1), datetime(2024, 12, 31)), st.integers(0, 10**8))
@settings(max_examples=80, deadline=None)
def test_fields_of_a_time_hold_for_all_of_its_cell(start: datetime, seconds: int) -> None:
    from datetime import timedelta

    end = start + timedelta(seconds=seconds)
    middle = start + timedelta(seconds=seconds // 2)
    for field in cells.FIELDS:
        try:
            value = cells.extracted(Span(start, end), field)
        except Undecided:
            continue
        if not isinstance(value, Span):
            assert value == cells.extracted(start, field) == cells.extracted(middle, field)
    for unit in cells.UNITS:
        hull = cells.truncated(Span(start, end), unit)
        around = hull if isinstance(hull, Span) else Span(hull, hull)
        assert around.low <= cells.truncated(middle, unit) <= around.high


def test_patterns_of_like() -> None:
    assert cells.matches("100!%_", "100%x", "!")
    assert not cells.matches("100!%_", "1000x", "!")
    assert cells.matches("a.c%", "a.cde")
    assert not cells.matches("a.c", "abc")
    assert not cells.matches("%a" * 400 + "b", "a" * 800)  # at once, not after 2^400 attempts


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=8))
@settings(max_examples=200, deadline=None)
def test_patterns_of_like_are_those_of_regular_expressions(pattern: str, text: str) -> None:
    expression = pattern.replace("%", ".*").replace("_", ".")
    assert cells.matches(pattern, text) == (re.fullmatch(expression, text) is not None)


def test_labels_are_plain_values() -> None:
    assert cells.label_of(F(4, 2)) == 2
    assert cells.label_of(F(1, 2)) == 0.5
    assert cells.label_of(datetime(2024, 1, 1)) == datetime(2024, 1, 1).date()
    with pytest.raises(Undecided):
        cells.label_of(TEN)
    assert cells.dated(Span(datetime(2024, 3, 1), datetime(2024, 3, 9)), "%Y-%m") == "2024-03"
    with pytest.raises(Undecided):
        cells.dated(Span(datetime(2024, 3, 1), datetime(2024, 3, 9)), "%d")
    with pytest.raises(TypeError):
        cells.dated(datetime(2024, 3, 1), "%s")
