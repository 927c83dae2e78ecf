# SPDX-License-Identifier: Apache-2.0
"""Codes from a list or from a lookup table.

A few values are found in a list that stands in the query. Many are found by a join with a table
of the values, or of the bins, beside their codes, whose cost hardly grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Category, Numeric
from sfumato.vault.engine import Engine
from sfumato.vault.hold import Held, is_text

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

__all__ = ["listed_code", "with_lookups"]

_LONGEST_LIST: Final = 64
_MOST_BINS: Final = 64


def listed_code(attribute: Category, held: Held) -> ir.Column:
    """The place of the value in the list of the schema, null if it is not there."""
    import ibis

    kind, key = ("string", held.text()) if is_text(attribute) else ("int64", held.whole())
    values = ibis.literal(list(attribute.values), type=f"array<{kind}>")
    return values.index(key).nullif(-1)


def with_lookups(
    rows: ir.Table, engine: Engine, needed: Sequence[Attribute], columns: Sequence[Held]
) -> tuple[ir.Table, dict[str, ir.Column]]:
    """The rows, joined with a lookup table per attribute that needs one, and the codes found."""
    names = {}
    for i, (attribute, held) in enumerate(zip(needed, columns, strict=True)):
        if _needs_lookup(attribute, held):
            # Each value stands in one row of the table, so that the join repeats no record.
            table = engine.upload(_lookup(attribute, held, i))
            rows = rows.left_join(table, _matches(attribute, held, table, i))
            names[attribute.name] = f"sfumato_code_{i}"
    return rows, {name: rows[code] for name, code in names.items()}


def _needs_lookup(attribute: Attribute, held: Held) -> bool:
    if isinstance(attribute, Numeric):
        return attribute.value_count > _MOST_BINS
    if not isinstance(attribute, Category):
        return False
    # A list in a query holds texts and integers exactly, but not floats.
    is_inexact = not is_text(attribute) and not held.is_whole
    return is_inexact or attribute.value_count > _LONGEST_LIST


def _lookup(attribute: Attribute, held: Held, number: int) -> pa.Table:
    """The values, or the starts and ends of the bins, beside their codes."""
    import pyarrow as pa

    if isinstance(attribute, Numeric):
        # The last bin is closed: it ends before the next float.
        ends = [*attribute.edges[1:-1], math.nextafter(attribute.edges[-1], math.inf)]
        keys = {"start": pa.array(attribute.edges[:-1], pa.float64()), "end": pa.array(ends)}
    elif isinstance(attribute, Category) and is_text(attribute):
        keys = {"value": pa.array(attribute.values, pa.string())}
    else:
        values = pa.array(getattr(attribute, "values", ()), pa.int64())
        keys = {"value": values if held.is_whole else values.cast(pa.float64())}
    columns = keys | {"code": pa.array(range(attribute.value_count), pa.int64())}
    return pa.table({f"sfumato_{name}_{number}": column for name, column in columns.items()})


def _matches(
    attribute: Attribute, held: Held, table: ir.Table, number: int
) -> list[ir.BooleanColumn]:
    """When a value belongs to a row of the lookup table."""
    if isinstance(attribute, Numeric):
        value = held.number()
        return [value >= table[f"sfumato_start_{number}"], value < table[f"sfumato_end_{number}"]]
    if isinstance(attribute, Category) and is_text(attribute):
        return [held.text() == table[f"sfumato_value_{number}"]]
    key = held.whole() if held.is_whole else held.number()
    return [key == table[f"sfumato_value_{number}"]]
