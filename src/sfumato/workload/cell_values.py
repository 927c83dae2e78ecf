# SPDX-License-Identifier: Apache-2.0
"""What an expression is on every cell of a domain, where the cells determine it.

A cell holds one value (``age = 31``), a range of values (a bin), nothing (the cell ``(missing)``)
or values that the schema does not know (the cell ``(other)``). A function of columns is computed
on cells by interval arithmetic (Moore 1966, "Interval analysis"): what comes out encloses what the
records of the cell have, so that a comparison which holds for all of it holds for all of them. One
that holds for some of it only would cut the cell and is `Undecided`.

Numbers are exact: integers stay integers, and everything else is a `Fraction`. Whether a number is
an integer of Python or a fraction is its SQL type: a quotient of two integers is cut to an integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Final, cast

from sfumato.domain.attributes import (
    MISSING,
    OTHER,
    UNPARSED,
    Attribute,
    CellRange,
    Comparison,
    Value,
)

__all__ = [
    "UNKNOWN",
    "CellState",
    "Span",
    "Undecided",
    "Unknown",
    "compared",
    "dated",
    "label_of",
    "matches",
    "number_of",
    "states_of",
]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The values of a cell of records whose value the schema does not know, by its label."""

    label: str


UNKNOWN: Final = Unknown(OTHER)


class Undecided(Exception):
    """The cells do not determine it: a bin would have to be cut, or a value be known."""


Number = int | Fraction
Point = int | Fraction | datetime


@dataclass(frozen=True, slots=True)
class Span:
    """All values from ``low`` to ``high``, without an end that is open; instants are ordered, too.

    >>> Span(20, 29) / 10
    2
    >>> Span(Fraction(0), Fraction(10), is_high_open=True) * 2
    Span(low=Fraction(0, 1), high=Fraction(20, 1), is_low_open=False, is_high_open=True)
    """

    low: Point
    high: Point
    is_low_open: bool = False
    is_high_open: bool = False

    @property
    def simplest(self) -> CellState:
        """The one value, if it is one."""
        is_one = self.low == self.high and not (self.is_low_open or self.is_high_open)
        return self.low if is_one else self

    def mapped(self, rising: Callable[[Point], Point]) -> CellState:
        """The values of a rising function, whose ends are those of the ends."""
        low, high = rising(self.low), rising(self.high)
        return Span(low, high, self.is_low_open, self.is_high_open).simplest

    def __neg__(self) -> CellState:
        low, high = -cast("Number", self.high), -cast("Number", self.low)
        return Span(low, high, self.is_high_open, self.is_low_open).simplest

    def __add__(self, other: CellState) -> CellState:
        own, more = _numbers(self), _numbers(other)
        low = cast("Number", own.low) + cast("Number", more.low)
        high = cast("Number", own.high) + cast("Number", more.high)
        is_low_open = own.is_low_open or more.is_low_open
        return Span(low, high, is_low_open, own.is_high_open or more.is_high_open).simplest

    def __mul__(self, other: CellState) -> CellState:
        own, more = _numbers(self), _numbers(other)
        if more.low != more.high:
            own, more = more, own
        a, b = cast("Number", own.low), cast("Number", own.high)
        c, d = cast("Number", more.low), cast("Number", more.high)
        if c != d:  # both are ranges: the corners enclose the product
            corners = (a * c, a * d, b * c, b * d)
            return Span(min(corners), max(corners)).simplest
        if c == 0:
            return 0 * a
        ends = Span(a * c, b * c, own.is_low_open, own.is_high_open)
        if c > 0:
            return ends.simplest
        return Span(b * c, a * c, own.is_high_open, own.is_low_open).simplest

    def __truediv__(self, other: CellState) -> CellState:
        own, more = _numbers(self), _numbers(other)
        if more.low != more.high:
            raise Undecided("the divisor is a range of values")
        c = cast("Number", more.low)
        if c == 0:
            return None  # as SQLite, MySQL and DuckDB have it
        is_whole = all(isinstance(n, int) for n in (own.low, own.high, c))
        exact = own * (1 / Fraction(c))
        return whole(exact) if is_whole else exact

    def __mod__(self, other: CellState) -> CellState:
        own, more = _numbers(self), _numbers(other)
        if more.low != more.high:
            raise Undecided("the divisor is a range of values")
        divisor = cast("Number", more.low)
        c: Number = -divisor if divisor < 0 else divisor
        if c == 0:
            return None
        quotients = _numbers(cut(own * (1 / Fraction(c)), 0))
        one = quotients.low == quotients.high
        keeps_sign = cast("Number", own.low) >= 0 or cast("Number", own.high) <= 0
        if not (one and keeps_sign):
            return Span(-c, c, is_low_open=True, is_high_open=True)
        return own + -(c * trunc(cast("Number", quotients.low)))


CellState = None | Unknown | str | bool | int | Fraction | datetime | Span


def states_of(attribute: Attribute) -> list[CellState]:
    """What every cell of an attribute holds."""
    declared = [_ranged(attribute.cell_range(code)) for code in range(attribute.value_count)]
    extra: list[CellState] = []
    extra += [UNKNOWN] * (attribute.other_code is not None)
    extra += [None] * (attribute.missing_code is not None)
    extra += [Unknown(UNPARSED)] * (attribute.unparsed_code is not None)
    return declared + extra


def _ranged(cell: CellRange) -> CellState:
    if cell.low == cell.high and not cell.is_open:
        return number_of(cell.low)
    low, high = cast("Point", number_of(cell.low)), cast("Point", number_of(cell.high))
    return Span(low, high, is_high_open=cell.is_open)


def number_of(value: Value) -> str | bool | int | Fraction | datetime:
    """A constant as it is computed with: floats as fractions, dates as their first instant."""
    if isinstance(value, float):
        return Fraction(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time.min)
    return value


def label_of(state: CellState) -> Value:
    """A value as answers show it, or the label of its cell; instants at midnight are dates."""
    if isinstance(state, Fraction):
        return int(state) if state.denominator == 1 else float(state)
    if isinstance(state, datetime) and state.time() == time.min:
        return state.date()
    if isinstance(state, str | bool | int | datetime):
        return state
    if state is None or isinstance(state, Unknown):
        return MISSING if state is None else state.label
    raise Undecided("a range of values has no label")


def _numbers(state: CellState) -> Span:
    """The state as a range of numbers."""
    if isinstance(state, Span) and not isinstance(state.low, datetime):
        return state
    if isinstance(state, bool) or not isinstance(state, int | Fraction):
        raise TypeError("not a number")
    return Span(state, state)


def as_numbers(state: CellState) -> Span:
    """The state as a range of numbers; TypeError where it is none."""
    return _numbers(state)


def whole(state: CellState) -> CellState:
    """Cut towards zero, as an integer: what a quotient of two integers is."""
    parts = _numbers(cut(state, 0))
    return Span(int(cast("Number", parts.low)), int(cast("Number", parts.high))).simplest


def floored(state: CellState) -> CellState:
    """The greatest whole number that is not above."""
    own = _numbers(state)
    low, high = cast("Number", own.low), cast("Number", own.high)
    if isinstance(low, int) and isinstance(high, int):
        return own.simplest
    top = ceil(high) - 1 if own.is_high_open else floor(high)
    return Span(Fraction(floor(low)), Fraction(max(top, floor(low)))).simplest


def negated(state: CellState) -> CellState:
    """The number with the other sign."""
    return -_numbers(state)


def ceiled(state: CellState) -> CellState:
    """The least whole number that is not below."""
    return negated(floored(negated(state)))


def absolute(state: CellState) -> CellState:
    """The number without its sign."""
    own = _numbers(state)
    low, high = cast("Number", own.low), cast("Number", own.high)
    if low >= 0:
        return own.simplest
    if high <= 0:
        return -own
    return Span(0 * high, max(-low, high)).simplest


def cut(state: CellState, digits: int) -> CellState:
    """Cut towards zero after so many digits."""
    own = _numbers(state)
    step = Fraction(10) ** digits
    below, above = floored(own * step), ceiled(own * step)
    low, high = cast("Number", own.low), cast("Number", own.high)
    if low >= 0:
        part = below
    elif high <= 0:
        part = above
    else:  # from a negative number, cut upwards, to a positive one, cut downwards
        part = Span(_numbers(above).low, _numbers(below).high).simplest
    is_whole = isinstance(low, int) and digits >= 0
    return own.simplest if is_whole else _typed(_numbers(part) * (1 / step), low)


def rounded(state: CellState, digits: int) -> CellState:
    """Rounded to so many digits, halves away from zero."""
    own = _numbers(state)
    low, high = cast("Number", own.low), cast("Number", own.high)
    if low < 0 < high:
        raise Undecided("a range with both signs is rounded")
    half = Fraction(1, 2) / Fraction(10) ** digits
    return (
        cut(own + (half if low >= 0 else -half), digits)
        if digits < 0 or not isinstance(low, int)
        else own.simplest
    )


def _typed(state: CellState, like: Number) -> CellState:
    """The number as an integer where what it comes from was one."""
    own = _numbers(state)
    if not isinstance(like, int):
        return own.simplest
    return Span(int(cast("Number", own.low)), int(cast("Number", own.high))).simplest


# Comparisons


def compared(left: CellState, comparison: Comparison, right: CellState) -> bool | None:
    """Whether a comparison holds for all values; None where a value is missing or not known.

    Raises:
        Undecided: it holds for some of the values only.
        TypeError: the two are of different kinds.
    """
    if any(side is None or isinstance(side, Unknown) for side in (left, right)):
        return None
    if isinstance(left, bool | str) or isinstance(right, bool | str):
        if type(left) is not type(right):
            raise TypeError("different kinds")
        if comparison not in ("=", "!="):
            raise TypeError("no order")
        return (left == right) == (comparison == "=")
    a, b = _points(left), _points(right)
    if isinstance(a.low, datetime) != isinstance(b.low, datetime):
        raise TypeError("different kinds")
    if comparison in ("=", "!="):
        return _equal(a, b) == (comparison == "=")
    if comparison in (">", ">="):
        a, b = b, a
    return _below(a, b, or_equal=comparison in ("<=", ">="))


def _points(state: CellState) -> Span:
    return state if isinstance(state, Span) else Span(cast("Point", state), cast("Point", state))


def _is_before(a: Span, b: Span) -> bool:
    """Whether all values of the first are below all of the second."""
    low, high = cast("Number", b.low), cast("Number", a.high)
    return high < low or (high == low and (a.is_high_open or b.is_low_open))


def _equal(a: Span, b: Span) -> bool:
    if _is_before(a, b) or _is_before(b, a):
        return False
    if isinstance(a.simplest, Span) or isinstance(b.simplest, Span):
        raise Undecided("equal for some values only")
    return True


def _below(a: Span, b: Span, *, or_equal: bool) -> bool:
    """Whether ``a < b``, or ``a <= b``."""
    always = _is_before(a, b) or (or_equal and cast("Number", a.high) <= cast("Number", b.low))
    never = _is_before(b, a) or (not or_equal and cast("Number", b.high) <= cast("Number", a.low))
    if not (always or never):
        raise Undecided("holds for some values only")
    return always


def matches(pattern: str, text: str, escape: str = "") -> bool:
    """Whether a text is LIKE a pattern: ``%`` stands for any text, ``_`` for one character.

    In steps of at most the product of both lengths: only the last ``%`` is ever tried again.

    >>> matches("A_c%", "Abcde"), matches("50!%", "50", "!")
    (True, False)
    """
    parts: list[str | None] = []  # None for any text, an empty one for any character
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            parts.append(next(letters, escape))
        else:
            parts.append({"%": None, "_": ""}.get(letter, letter))
    at = place = 0
    retry: tuple[int, int] | None = None
    while place < len(text):
        part = parts[at] if at < len(parts) else 0
        if part is None:
            retry = at, place
            at += 1
        elif part in ("", text[place]):
            at, place = at + 1, place + 1
        elif retry is not None:
            retry = retry[0], retry[1] + 1
            at, place = retry[0] + 1, retry[1]
        else:
            return False
    return all(part is None for part in parts[at:])


# Dates and times

_INSTANT: Final = timedelta(microseconds=1)

_TRUNCATED: Final[dict[str, Callable[[datetime], datetime]]] = {
    "year": lambda t: datetime(t.year, 1, 1),
    "quarter": lambda t: datetime(t.year, 3 * ((t.month - 1) // 3) + 1, 1),
    "month": lambda t: datetime(t.year, t.month, 1),
    "week": lambda t: datetime(t.year, t.month, t.day) - timedelta(days=t.weekday()),
    "day": lambda t: datetime(t.year, t.month, t.day),
    "hour": lambda t: t.replace(minute=0, second=0, microsecond=0),
    "minute": lambda t: t.replace(second=0, microsecond=0),
}
UNITS: Final = tuple(_TRUNCATED)

_EXTRACTED: Final[dict[str, tuple[str, Callable[[datetime], int]]]] = {
    "year": ("year", lambda t: t.year),
    "quarter": ("quarter", lambda t: (t.month + 2) // 3),
    "month": ("month", lambda t: t.month),
    "week": ("week", lambda t: t.isocalendar().week),
    "day": ("day", lambda t: t.day),
    "doy": ("day", lambda t: t.timetuple().tm_yday),
    "dow": ("day", lambda t: t.isoweekday() % 7),
    "isodow": ("day", lambda t: t.isoweekday()),
    "hour": ("hour", lambda t: t.hour),
    "minute": ("minute", lambda t: t.minute),
}
FIELDS: Final = tuple(_EXTRACTED)

_FORMATS: Final = {
    "%Y": "year",
    "%m": "month",
    "%d": "day",
    "%j": "day",
    "%H": "hour",
    "%M": "minute",
    "%w": "day",
    "%u": "day",
}
DIRECTIVES: Final = tuple(_FORMATS)


def truncated(state: CellState, unit: str) -> CellState:
    """The first instant of the year, month, ... that it is in."""
    first, last = _instants(state)
    to = _TRUNCATED[unit]
    return Span(to(first), to(last)).simplest


def extracted(state: CellState, field: str) -> CellState:
    """The year, month, ... as a number."""
    unit, read = _EXTRACTED[field]
    first, last = _instants(state)
    if field == "year":
        return Span(read(first), read(last)).simplest
    if _TRUNCATED[unit](first) != _TRUNCATED[unit](last):
        raise Undecided(f"more than one {unit}")
    return read(first)


def dated(state: CellState, pattern: str) -> CellState:
    """The instant in words, by directives such as ``%Y-%m``.

    Raises:
        Undecided: the words differ inside the cell.
        TypeError: it is no instant, or a directive is not among `DIRECTIVES`.
    """
    first, last = _instants(state)
    text = pattern.replace("%%", "")
    used = re.findall("%.", text)
    if any(d not in _FORMATS for d in used) or text.count("%") != len(used):
        raise TypeError("unknown directive")
    for unit in {_FORMATS[d] for d in used}:
        if _TRUNCATED[unit](first) != _TRUNCATED[unit](last):
            raise Undecided(f"more than one {unit}")
    return first.strftime(pattern.replace("%Y", f"{first.year:04d}"))


def _instants(state: CellState) -> tuple[datetime, datetime]:
    """The first and the last instant."""
    own = state if isinstance(state, Span) else None
    first = own.low if own else state
    last = own.high if own else state
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        raise TypeError("not a date or time")
    return first, last - _INSTANT if own and own.is_high_open else last
