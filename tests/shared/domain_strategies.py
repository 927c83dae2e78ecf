# SPDX-License-Identifier: Apache-2.0
"""Hypothesis generators of attributes and domains."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import (
    Attribute,
    Boolean,
    Category,
    DateTime,
    Integer,
    Level,
    Numeric,
)
from sfumato.domain.domain import Domain


def patient(examples: int = 100) -> settings:
    """Settings without time limits: a busy machine must not fail a test."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow)


# Any text that files and databases can hold: no half surrogate pairs, no NUL; line ends and quotes.
texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    | st.sampled_from("\"'\\\n\r\t\x7f.#[]= -"),
    max_size=8,
)
names = texts.filter(bool)

_RULES = {
    "outside": st.sampled_from(["drop", "other", "clamp"]),
    "nulls": st.sampled_from(["drop", "missing", "first"]),
}
_UNORDERED = {**_RULES, "outside": st.sampled_from(["drop", "other", "first"])}

moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59)) | st.datetimes(
    datetime(2020, 1, 1), datetime(2022, 1, 1)
).map(lambda m: m.replace(hour=0, minute=0, second=0, microsecond=0))


def categories(name: st.SearchStrategy[str] = names) -> st.SearchStrategy[Category]:
    # the labels of the extra cells are no values
    words = texts.filter(lambda text: text not in ("(other)", "(missing)"))
    values = st.lists(words, min_size=1, max_size=6, unique=True) | st.lists(
        st.integers(-(10**20), 10**20), min_size=1, max_size=6, unique=True
    )
    return st.builds(Category, name, values.map(tuple), **_UNORDERED)


@st.composite
def integers(
    draw: st.DrawFn, name: st.SearchStrategy[str] = names, widest: int = 40, far: int = 10**20
) -> Integer:
    low = draw(st.integers(-far, far))
    span = draw(st.integers(0, widest))
    width = draw(st.integers(1, 7))
    rules = {key: draw(rule) for key, rule in _RULES.items()}
    return Integer(draw(name), low, low + span, width, **rules)


def numerics(name: st.SearchStrategy[str] = names) -> st.SearchStrategy[Numeric]:
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-50, 50).map(float)
    # -0.0 and 0.0 are one edge
    edges = st.lists(numbers.map(lambda e: e + 0.0), min_size=2, max_size=8, unique=True)
    return st.builds(Numeric, name, edges.map(sorted).map(tuple), **_RULES)


@st.composite
def datetimes(draw: st.DrawFn, name: st.SearchStrategy[str] = names) -> DateTime:
    start = draw(moments)
    unit = draw(st.sampled_from(["minute", "hour", "day", "week", "month", "quarter", "year"]))
    if unit in ("month", "quarter", "year"):
        start = start.replace(day=min(start.day, 28))
    days = {"minute": 0.02, "hour": 1, "day": 30, "week": 200, "month": 900}.get(unit, 9000)
    room = (datetime.max - start) / timedelta(microseconds=1)
    length = draw(st.floats(1e-4, days)) * 86_400_000_000
    end = start + timedelta(microseconds=max(1.0, min(length, room - 1)))
    count = draw(st.integers(1, 5))
    rules = {key: draw(rule) for key, rule in _RULES.items()}
    step = unit if count == 1 else f"{count} {unit}"
    return DateTime(draw(name), start, end, step, **rules)


def booleans(name: st.SearchStrategy[str] = names) -> st.SearchStrategy[Boolean]:
    return st.builds(Boolean, name, **_UNORDERED)


def attributes(name: st.SearchStrategy[str] = names) -> st.SearchStrategy[Attribute]:
    return st.one_of(
        categories(name), integers(name), numerics(name), datetimes(name), booleans(name)
    )


@st.composite
def with_levels(draw: st.DrawFn, attribute: Attribute) -> Attribute:
    levels = []
    for name in draw(st.lists(names, max_size=2, unique=True)):
        groups = draw(st.lists(names, min_size=1, max_size=4, unique=True))
        count = attribute.value_count
        of = draw(st.lists(st.integers(-1, len(groups) - 1), min_size=count, max_size=count))
        levels.append(Level(name, tuple(groups), tuple(of)))
    return replace(attribute, levels=tuple(levels))


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    listed = draw(st.lists(attributes(), min_size=1, max_size=4, unique_by=lambda a: a.name))
    return Domain([draw(with_levels(attribute)) for attribute in listed])
