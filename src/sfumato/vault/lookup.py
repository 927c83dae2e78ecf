# SPDX-License-Identifier: Apache-2.0
"""Codes from a list or from a lookup table.

A few values are found in a list that stands in the query. Many are found by a join with a table
of the values, or of the bins, beside their codes, whose cost hardly grows with their number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Category, Numeric
from sfumato.vault.engine import Engine
from sfumato.vault.hold import Held, is_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["listed_code", "matches", "needs_lookup", "values_table"]

_LONGEST_LIST: Final = 64


def listed_code(attribute: Category, held: Held, engine: Engine) -> str:
    """The place of the value in the list of the schema, null if it is not there."""
    if is_text(attribute):
        values = [engine.literal(str(v)) for v in attribute.values]
    else:
        values = [f"CAST({v} AS BIGINT)" for v in attribute.values]
    return engine.position(values, held.value)


def needs_lookup(attribute: Attribute, held: Held, engine: Engine) -> bool:
    """Whether the code is found in a table."""
    if isinstance(attribute, Numeric):
        return engine.bin(held.value, attribute.edges) is None
    if not isinstance(attribute, Category):
        return False
    # A list in a query holds texts and integers exactly, but not floats.
    return held.form == "number" or attribute.value_count > _LONGEST_LIST


def values_table(attribute: Attribute, held: Held) -> pa.Table:
    """The values, or the starts and ends of the bins, beside their codes: each value once."""
    import pyarrow as pa

    keys: dict[str, pa.Array]
    if isinstance(attribute, Numeric):
        # The last bin is closed: it ends before the next float.
        ends = [*attribute.edges[1:-1], math.nextafter(attribute.edges[-1], math.inf)]
        starts = pa.array(attribute.edges[:-1], pa.float64())
        keys = {"low": starts, "high": pa.array(ends, pa.float64())}
    elif held.form == "text":
        keys = {"val": pa.array(getattr(attribute, "values", ()), pa.string())}
    else:
        values = pa.array(getattr(attribute, "values", ()), pa.int64())
        keys = {"val": values if held.form == "whole" else values.cast(pa.float64())}
    return pa.table(keys | {"code": pa.array(range(attribute.value_count), pa.int64())})


def matches(attribute: Attribute, held: Held, alias: str) -> str:
    """When a value belongs to a row of the lookup table."""
    if isinstance(attribute, Numeric):
        return f"{held.value} >= {alias}.low AND {held.value} < {alias}.high"
    return f"{held.value} = {alias}.val"
