# SPDX-License-Identifier: Apache-2.0
"""What a column holds, as the encoding wants it: a value in one of four forms, and what is null.

A typed column is brought into the form that its attribute is compared in. The texts of an untyped
one (CSV) are interpreted as the schema asks, and never fail: what is no number or date becomes
null, without counting as null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sfumato.domain import Attribute, Boolean, Category, DateTime, Numeric
from sfumato.vault.engine import Engine
from sfumato.vault.engine_duckdb import DuckDB
from sfumato.vault.fit import family

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt

__all__ = ["Held", "Made", "interpreted", "is_text", "typed", "unit_text"]

Form = Literal["whole", "number", "text", "moment"]

_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")


@dataclass(frozen=True, slots=True)
class Held:
    """The column of the values in their form, and the condition under which they count as null."""

    value: str
    form: Form
    is_null: str


@dataclass(frozen=True, slots=True)
class Made:
    """How the column of values is made; ``is_null`` only where it is not that the value is null."""

    value: str
    form: Form
    is_null: str | None = None


def typed(attribute: Attribute, column: str, kind: dt.DataType, engine: Engine) -> Made:
    """A typed column in the form of its attribute."""
    form = _form(attribute, kind)
    made = {
        "whole": engine.whole,
        "number": engine.number,
        "text": engine.text,
        "moment": engine.moment,
    }[form]
    return Made(made(column, kind), form)


def _form(attribute: Attribute, kind: dt.DataType) -> Form:
    if isinstance(attribute, DateTime):
        return "moment"
    if isinstance(attribute, Category) and is_text(attribute):
        return "text"
    is_whole = family(kind) in ("integer", "boolean") and not isinstance(attribute, Numeric)
    return "whole" if is_whole else "number"


def interpreted(attribute: Attribute, text: str, engine: Engine) -> Made:
    """The value that a text stands for, null if for none, and whether the text counts as null.

    Blanks around a value of a CSV line mean nothing, unless the schema declares such values.
    """
    import ibis.expr.datatypes as dt

    assert isinstance(engine, DuckDB)  # noqa: S101  all else has types
    bare = engine.bare(text)
    is_null = f"({text} IS NULL OR {bare} = '')"
    if isinstance(attribute, Category) and is_text(attribute):
        is_bare = all(value == value.strip() for value in map(str, attribute.values))
        return Made(bare if is_bare else text, "text", is_null)
    if isinstance(attribute, Boolean):
        return Made(
            f"CAST(CASE WHEN lower({bare}) IN {_TRUE} THEN 1 WHEN lower({bare}) IN {_FALSE} THEN 0 "
            "END AS BIGINT)",
            "whole",
            is_null,
        )
    if isinstance(attribute, DateTime):
        moment = engine.read_as(bare, "TIMESTAMP")
        return Made(engine.moment(moment, dt.Timestamp(scale=6)), "moment", is_null)
    number = engine.read_as(bare, engine.double)
    is_nan = f"COALESCE(isnan({number}), FALSE)"
    return Made(number, "number", f"({is_null} OR {is_nan})")


def unit_text(column: str, kind: dt.DataType, is_untyped: bool, engine: Engine) -> str:
    """A privacy unit as text; null where there is none."""
    if is_untyped:
        assert isinstance(engine, DuckDB)  # noqa: S101  all else has types
        return f"NULLIF({engine.bare(column)}, '')"
    return engine.identifier(column, kind)


def is_text(attribute: Category) -> bool:
    """Whether the listed values are texts, and not whole numbers."""
    return isinstance(attribute.values[0], str)
