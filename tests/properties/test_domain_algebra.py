# SPDX-License-Identifier: Apache-2.0
"""Comparisons on cells agree with comparisons on values, and refuse only when they must."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable
from datetime import date, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sfumato.domain.attributes import Attribute, DateTime, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from tests.shared import domain_strategies as ds

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
comparisons = st.sampled_from(sorted(OPERATORS))
TICK = timedelta(microseconds=1)


def check(attribute: Attribute, comparison: str, constant, values: Iterable[tuple[object, int]]):
    """``values`` are (value as compared, bin it belongs to), found without the attribute's code."""
    truths: dict[int, set[bool]] = {}
    for value, cell in values:
        truths.setdefault(cell, set()).add(OPERATORS[comparison](value, constant))
    assert set(truths) == set(range(attribute.value_count))
    would_cut = any(len(found) > 1 for found in truths.values())
    if would_cut:
        with pytest.raises(WorkloadError, match="cut"):
            attribute.select(comparison, constant)
        return
    selected = attribute.select(comparison, constant)
    assert selected.shape == (attribute.size,)
    assert [bool(selected[c]) for c in range(attribute.value_count)] == [
        truths[c].copy().pop() for c in range(attribute.value_count)
    ]
    if attribute.other_code is not None:
        assert selected[attribute.other_code] == (comparison == "!=")
    if attribute.missing_code is not None:
        assert not selected[attribute.missing_code]


def _integers(attribute: Integer) -> list[tuple[int, int]]:
    low, width = attribute.min, attribute.width
    return [(v, (v - low) // width) for v in range(low, attribute.max + 1)]


@given(ds.integers(far=60), comparisons, st.integers(-110, 110) | st.floats(-110, 110))
@ds.patient()
def test_integer_comparisons_agree_with_the_integers(attribute, comparison, constant):
    values = [
        (v, (v - attribute.min) // attribute.width) for v in range(attribute.min, attribute.max + 1)
    ]
    check(attribute, comparison, constant, values)


@given(ds.integers(), comparisons, st.integers(-3, 45))
@ds.patient()
def test_integers_beyond_the_precision_of_floats_are_compared_exactly(
    attribute, comparison, offset
):
    values = [
        (v, (v - attribute.min) // attribute.width) for v in range(attribute.min, attribute.max + 1)
    ]
    check(attribute, comparison, attribute.min + offset, values)


@given(ds.numerics(), comparisons, st.data())
@ds.patient()
def test_numeric_comparisons_agree_with_real_numbers(attribute, comparison, data):
    edges = attribute.edges
    constant = data.draw(
        st.sampled_from(edges)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.floats(edges[0], edges[-1])
    )
    near = [math.nextafter(constant, -math.inf), constant, math.nextafter(constant, math.inf)]
    candidates = [*edges, *(math.nextafter(e, -math.inf) for e in edges[1:]), *near]
    values = []
    for value in candidates:
        if edges[0] <= value <= edges[-1]:
            # the bin by its definition: the last one whose lower edge is not above the value
            cell = max(i for i in range(len(edges) - 1) if edges[i] <= value)
            values.append((value, cell))
    # A bin that holds one floating-point number only is never cut.
    assume(all(math.nextafter(a, math.inf) < b for a, b in itertools.pairwise(edges)))
    check(attribute, comparison, constant, values)


def _bins(attribute: DateTime) -> list[datetime]:
    """All starts of steps, by walking the calendar one step at a time."""
    words = attribute.step.split()
    count, unit = (int(words[0]) if len(words) == 2 else 1), words[-1]
    starts, moment = [], attribute.start
    while moment < attribute.end:
        starts.append(moment)
        try:
            for _ in range(count * {"quarter": 3, "year": 12}.get(unit, 1)):
                if unit in ("month", "quarter", "year"):
                    later = moment.replace(day=1) + timedelta(days=32)
                    moment = later.replace(day=attribute.start.day)
                else:
                    moment += timedelta(**{f"{unit}s": 1})
        except (OverflowError, ValueError):
            break
    return starts


@given(ds.datetimes())
@example(DateTime("d", datetime(9990, 2, 28), datetime.max, "year"))
@ds.patient()
def test_steps_agree_with_a_walk_through_the_calendar(attribute):
    assert list(attribute.starts) == _bins(attribute)
    assert attribute.value_count == len(_bins(attribute))


@given(ds.datetimes(), comparisons, st.data())
@ds.patient()
def test_datetime_comparisons_agree_with_instants(attribute, comparison, data):
    starts = _bins(attribute)
    constant = data.draw(st.sampled_from([*starts, attribute.end]) | ds.moments)
    instants = {*starts, attribute.end - TICK, constant}
    instants |= {m - TICK for m in starts[1:]} | {
        min(m + TICK, attribute.end - TICK) for m in starts
    }
    instants |= {constant + TICK} if constant < datetime.max else set()
    instants |= {constant - TICK} if constant > datetime.min else set()
    values = [
        (m, max(i for i, s in enumerate(starts) if s <= m))
        for m in instants
        if attribute.start <= m < attribute.end
    ]
    check(attribute, comparison, constant, values)


@given(ds.datetimes(), comparisons, st.data(), st.booleans())
@ds.patient()
def test_a_date_means_its_whole_day_where_bins_are_whole_days(attribute, comparison, data, as_text):
    assume(attribute.start.time() == datetime.min.time())
    assume(attribute.step.split()[-1] not in ("minute", "hour"))
    starts = _bins(attribute)
    near = [m.date() for m in (*starts, attribute.end - TICK)]
    constant: date = data.draw(st.sampled_from(near) | st.dates())
    days = {*near, *(d - timedelta(days=1) for d in near if d > date.min), constant}
    instants = [
        m
        for d in days
        for m in (datetime(d.year, d.month, d.day), datetime(d.year, d.month, d.day, 23, 59))
    ]
    values = [
        (m.date(), max(i for i, s in enumerate(starts) if s <= m))
        for m in [*instants, *starts, attribute.end - TICK]
        if attribute.start <= m < attribute.end
    ]
    if as_text:
        selected = _outcome(attribute, comparison, constant.isoformat())
        assert selected == _outcome(attribute, comparison, constant)
    check(attribute, comparison, constant, values)


def _outcome(attribute: Attribute, comparison: str, constant) -> list[bool] | None:
    try:
        return attribute.select(comparison, constant).tolist()
    except WorkloadError:
        return None


@given(ds.categories(), st.sampled_from(["=", "!="]), st.data())
@ds.patient()
def test_category_equality_agrees_with_the_values(attribute, comparison, data):
    constant = data.draw(st.sampled_from(attribute.values))
    check(attribute, comparison, constant, [(v, i) for i, v in enumerate(attribute.values)])


@given(ds.attributes())
@ds.patient()
def test_labels_are_distinct_and_one_per_cell(attribute):
    assert len(attribute.labels) == attribute.size
    assert len(set(attribute.labels)) == attribute.size


@given(ds.domains(), ds.domains())
@ds.patient()
def test_digests_are_equal_iff_domains_are(one, other):
    assert (one.digest() == other.digest()) == (one == other)
    copy = Domain(list(one))
    assert copy == one
    assert copy.digest() == one.digest()
    assert hash(copy) == hash(one)
