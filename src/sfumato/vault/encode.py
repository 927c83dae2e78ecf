# SPDX-License-Identifier: Apache-2.0
"""From a value to its cell: one engine expression per attribute.

The expression gives the code of the cell, or null when the record is dropped. Every value has a
place (the rules ``outside`` and ``nulls`` of the schema), and no expression can fail on a value:
whatever is out of range becomes null before any arithmetic is done on it.

    null             ``nulls``: dropped, or the cell (missing). NaN counts as null, and so does an
                     empty text in an untyped column
    declared value   its cell
    anything else    ``outside``: dropped, the cell (other), or clamped to the nearest bin; a text
                     that is no number or date at all has no nearest bin, and counts as null
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.vault.hold import Held, literal
from sfumato.vault.lookup import listed_code

if TYPE_CHECKING:
    import ibis.expr.types as ir

__all__ = ["always_kept", "cell_code"]

_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def always_kept(attribute: Attribute) -> bool:
    """Whether no value of the attribute can drop a record."""
    return attribute.outside != "drop" and attribute.nulls == "missing"


def cell_code(attribute: Attribute, held: Held, found: ir.Column | None = None) -> ir.Column:
    """The cell of each value, null where the record is dropped.

    ``found`` is the code that a lookup table gave, if there is one: null for undeclared values.
    """
    if isinstance(attribute, Category):
        code = listed_code(attribute, held) if found is None else found
        return _ruled(attribute, held.is_null, code)
    if isinstance(attribute, Boolean):
        return _boolean(attribute, held)
    if isinstance(attribute, Integer):
        return _integer(attribute, held)
    if isinstance(attribute, Numeric):
        return _numeric(attribute, held, found)
    if isinstance(attribute, DateTime):
        return _datetime(attribute, held)
    raise TypeError(f"no encoding for {type(attribute).__name__}")


def _ruled(attribute: Attribute, is_null: ir.Column, code: ir.Column) -> ir.Column:
    """The rules of the schema around a code that is null for all but declared values."""
    missing, other = attribute.missing_code, attribute.other_code
    if other is not None:
        return is_null.ifelse(_code(missing), code.coalesce(_code(other)))
    return code if missing is None else is_null.ifelse(_code(missing), code)


def _clamped(
    attribute: Attribute,
    is_null: ir.Column,
    code: ir.Column,
    is_below: ir.Column,
    is_above: ir.Column,
) -> ir.Column:
    """The same, with values outside the range in its first and last bins if the schema says so."""
    import ibis

    if attribute.outside != "clamp":
        return _ruled(attribute, is_null, code)
    missing = _code(attribute.missing_code)
    return ibis.cases(
        (is_null, missing),
        (is_below, _code(0)),
        (is_above, _code(attribute.value_count - 1)),
        else_=code.coalesce(missing),
    )


def _code(code: int | None) -> ir.Scalar:
    import ibis

    return ibis.null("int64") if code is None else ibis.literal(code, type="int64")


def _boolean(attribute: Boolean, held: Held) -> ir.Column:
    word = held.whole()
    return _ruled(attribute, held.is_null, _where(word.between(0, 1), word))


def _integer(attribute: Integer, held: Held) -> ir.Column:
    low, high = attribute.min, attribute.max
    if held.is_whole:
        value = whole = held.whole()
        is_inside, is_below, is_above = value.between(low, high), value < low, value > high
    else:
        value = held.number()
        whole = value.floor()
        is_below, is_above = value < literal(low), value > literal(high)
        is_inside = value.between(literal(low), literal(high))
        if attribute.outside != "clamp":  # clamping takes 39.5 to the bin of 39
            is_inside = is_inside & (value == whole)
    offset = _where(is_inside, whole).cast("int64") - low
    width = min(attribute.width, high - low + 1)  # wider ones may not fit in a word
    code = _quotient(offset, width)
    return _clamped(attribute, held.is_null, code, is_below, is_above)


def _numeric(attribute: Numeric, held: Held, found: ir.Column | None) -> ir.Column:
    value = held.number()
    low, high = literal(attribute.edges[0]), literal(attribute.edges[-1])
    if found is None:
        found = _where(value.between(low, high), _search(value, attribute))
    return _clamped(attribute, held.is_null, found, value < low, value > high)


def _search(value: ir.Column, attribute: Numeric) -> ir.Column:
    """The bin of a value between the outer edges, by halving: log2(bins) comparisons a record."""

    def within(low: int, high: int) -> ir.Column:
        if high - low == 1:
            return _code(low)
        middle = (low + high) // 2
        is_left = value < literal(attribute.edges[middle])
        return is_left.ifelse(within(low, middle), within(middle, high))

    return within(0, attribute.value_count)


def _datetime(attribute: DateTime, held: Held) -> ir.Column:
    start, end = attribute.start, attribute.end
    moment = held.moment()
    is_inside = (moment >= start) & (moment < end)
    code = _step(attribute, _where(is_inside, moment))
    return _clamped(attribute, held.is_null, code, moment < start, moment >= end)


def _step(attribute: DateTime, moment: ir.Column) -> ir.Column:
    """The number of whole steps from the start to the moment.

    Shifted back by what the start lies after a month (or a second) begins, every step begins with
    a month (or a second), so that calendar fields number the steps exactly.
    """
    words = attribute.step.split()
    count, unit = int(words[0]) if len(words) == 2 else 1, words[-1]
    start = attribute.start
    if unit in _MONTHS:
        shift = start - datetime(start.year, start.month, 1)
        moment = _earlier(moment, shift)
        months = moment.year().cast("int64") * 12 + moment.month().cast("int64")
        return _quotient(months - (12 * start.year + start.month), count * _MONTHS[unit])
    moment = _earlier(moment, timedelta(microseconds=start.microsecond))
    seconds = moment.truncate("s").epoch_seconds().cast("int64")
    whole = (start.replace(microsecond=0) - datetime(1970, 1, 1)) // timedelta(seconds=1)
    return _quotient(seconds - whole, count * _SECONDS[unit])


def _earlier(moment: ir.Column, shift: timedelta) -> ir.Column:
    import ibis

    if not shift:
        return moment
    return moment - ibis.interval(microseconds=shift // timedelta(microseconds=1))


def _where(condition: ir.Column, value: ir.Column) -> ir.Column:
    """The value where the condition holds, else null: nothing later can fail on it."""
    import ibis

    return condition.ifelse(value, ibis.null(value.type()))


def _quotient(dividend: ir.Column, divisor: int) -> ir.Column:
    """floor(dividend / divisor) for a dividend of 0 or more, exactly.

    Engines divide integers as floats. The dividend less its remainder is a multiple of the
    divisor; the float quotient is then within a relative 2^-51 of a whole number, and rounds to
    it as long as that is below 2^50.
    """
    if divisor == 1:
        return dividend
    return ((dividend - dividend % divisor) / divisor).round().cast("int64")
