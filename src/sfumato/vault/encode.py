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

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.vault.fit import family

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pyarrow as pa

__all__ = [
    "Held",
    "always_kept",
    "cell_code",
    "is_text",
    "lookup",
    "lookup_key",
    "needs_lookup",
]

_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")
_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_GREATEST_WORD: Final = 2**63 - 1
_LONGEST_LIST: Final = 64


@dataclass(frozen=True, slots=True)
class Held:
    """A column: its values, their type, and whether they are texts that came without a type."""

    value: ir.Column
    kind: dt.DataType
    is_untyped: bool

    @property
    def family(self) -> str:
        """The family of the type, ``text`` for an untyped column."""
        return "text" if self.is_untyped else family(self.kind)


def always_kept(attribute: Attribute) -> bool:
    """Whether no value of the attribute can drop a record."""
    return attribute.outside != "drop" and attribute.nulls == "missing"


def needs_lookup(attribute: Attribute) -> bool:
    """Whether codes are found by a join with a lookup table, because a list would be too long."""
    return isinstance(attribute, Category) and attribute.value_count > _LONGEST_LIST


def cell_code(attribute: Attribute, held: Held, found: ir.Column | None = None) -> ir.Column:
    """The cell of each value, null where the record is dropped.

    ``found`` is the code that the lookup table gave, null if none, where `needs_lookup`.
    """
    if isinstance(attribute, Category):
        code = _listed(attribute, held) if found is None else found
        return _ruled(attribute, _is_null(held), code)
    if isinstance(attribute, Boolean):
        return _boolean(attribute, held)
    if isinstance(attribute, Integer):
        return _integer(attribute, held)
    if isinstance(attribute, Numeric):
        return _numeric(attribute, held)
    if isinstance(attribute, DateTime):
        return _datetime(attribute, held)
    raise NotImplementedError(f"no encoding for {type(attribute).__name__}")


def _ruled(attribute: Attribute, is_null: ir.Column, code: ir.Column) -> ir.Column:
    """The rules of the schema around a code that is null for all but declared values."""
    missing, other = attribute.missing_code, attribute.other_code
    if other is not None:
        return is_null.ifelse(_literal(missing), code.coalesce(_literal(other)))
    return code if missing is None else is_null.ifelse(_literal(missing), code)


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
    missing = _literal(attribute.missing_code)
    return ibis.cases(
        (is_null, missing),
        (is_below, _literal(0)),
        (is_above, _literal(attribute.value_count - 1)),
        else_=code.coalesce(missing),
    )


def _literal(code: int | None) -> ir.Scalar:
    import ibis

    return ibis.null("int64") if code is None else ibis.literal(code, type="int64")


def _text(held: Held) -> ir.Column:
    """The text of an untyped column without surrounding blanks."""
    return held.value.strip()


def _is_null(held: Held) -> ir.Column:
    nothing = held.value.isnull()
    if held.is_untyped:
        return nothing | (_text(held) == "")
    return nothing | held.value.isnan() if held.family == "float" else nothing


def _number(held: Held) -> ir.Column:
    """The value as a 64-bit float; null for a text that is no number."""
    if held.is_untyped:
        return _text(held).try_cast("float64")
    return held.value.cast("float64")


def _is_not_a_number(held: Held, number: ir.Column) -> ir.Column:
    """NaN counts as null, also when it is spelt out."""
    return _is_null(held) | number.isnan().fill_null(False)


def _word(held: Held) -> ir.Column:
    """A value of an integer or boolean column as a signed 64-bit integer."""
    if held.kind.is_uint64():  # greater ones are outside every domain: fit.check_columns
        return held.value.clip(upper=_GREATEST_WORD).cast("int64")
    return held.value.cast("int64")


def _integer(attribute: Integer, held: Held) -> ir.Column:
    if held.family in ("integer", "boolean"):
        value, is_null = _word(held), _is_null(held)
        is_inside = value.between(attribute.min, attribute.max)
        whole = value
    else:
        value = _number(held)
        is_null = _is_not_a_number(held, value)
        is_inside = value.between(float(attribute.min), float(attribute.max))
        whole = value.floor()
        if attribute.outside != "clamp":  # clamping takes 39.5 to the bin of 39
            is_inside = is_inside & (value == whole)
    offset = _where(is_inside, whole).cast("int64") - attribute.min
    width = min(attribute.width, attribute.max - attribute.min + 1)  # wider ones fit no word
    code = offset if width == 1 else _quotient(offset, width)
    return _clamped(attribute, is_null, code, value < attribute.min, value > attribute.max)


def _numeric(attribute: Numeric, held: Held) -> ir.Column:
    value = _number(held)
    edges = attribute.edges
    is_inside = value.between(edges[0], edges[-1])
    code = _where(is_inside, _search(value, edges, 0, attribute.value_count))
    is_null = _is_not_a_number(held, value)
    return _clamped(attribute, is_null, code, value < edges[0], value > edges[-1])


def _search(value: ir.Column, edges: tuple[float, ...], low: int, high: int) -> ir.Column:
    """The bin among ``low, ..., high - 1`` by halving: log2(bins) comparisons a record."""
    if high - low == 1:
        return _literal(low)
    middle = (low + high) // 2
    return (value < edges[middle]).ifelse(
        _search(value, edges, low, middle), _search(value, edges, middle, high)
    )


def _boolean(attribute: Boolean, held: Held) -> ir.Column:
    import ibis

    if held.is_untyped:
        word = _text(held).lower()
        is_true, is_false = word.isin(_TRUE), word.isin(_FALSE)
    else:
        word = _word(held)
        is_true, is_false = word == 1, word == 0
    code = ibis.cases((is_true, _literal(1)), (is_false, _literal(0)), else_=_literal(None))
    return _ruled(attribute, _is_null(held), code)


def _datetime(attribute: DateTime, held: Held) -> ir.Column:
    moment = _text(held).try_cast("timestamp") if held.is_untyped else held.value.cast("timestamp")
    start, end = attribute.start, attribute.end
    is_inside = (moment >= start) & (moment < end)
    code = _step(attribute, _where(is_inside, moment))
    return _clamped(attribute, _is_null(held), code, moment < start, moment >= end)


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
    return ((dividend - dividend % divisor) / divisor).round().cast("int64")


def _listed(attribute: Category, held: Held) -> ir.Column:
    """The place of the value in the list of the schema, null if it is not there."""
    import ibis

    kind = "string" if is_text(attribute) else "int64" if held.family == "integer" else "float64"
    values = ibis.literal(list(attribute.values), type=f"array<{kind}>")
    return values.index(lookup_key(attribute, held)).nullif(-1)


def lookup(attribute: Category, held: Held, key: str, code: str) -> pa.Table:
    """The values of a category beside their codes, in columns ``key`` and ``code``."""
    import pyarrow as pa

    kind = pa.string() if is_text(attribute) else pa.int64()
    values = pa.array(attribute.values, kind)
    if not is_text(attribute) and held.family != "integer":
        values = values.cast(pa.float64())
    return pa.table({key: values, code: pa.array(range(len(attribute.values)), pa.int64())})


def lookup_key(attribute: Category, held: Held) -> ir.Column:
    """The value of the column in the form that the schema lists."""
    if not is_text(attribute):
        return _word(held) if held.family == "integer" else _number(held)
    if not held.is_untyped:
        return held.value if held.kind.is_string() else held.value.cast("string")
    # Blanks around a value of a CSV line mean nothing, unless the schema declares such values.
    is_bare = all(value == value.strip() for value in map(str, attribute.values))
    return _text(held) if is_bare else held.value


def is_text(attribute: Category) -> bool:
    """Whether the listed values are texts, and not whole numbers."""
    return isinstance(attribute.values[0], str)
