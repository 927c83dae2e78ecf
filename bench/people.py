# SPDX-License-Identifier: Apache-2.0
"""Made-up people of any number, the same on every machine: 12 columns as a table of persons has.

Texts, whole numbers, truth values, an amount and a date; skewed, independent of each other. Every
value is a hash of the number of its row, so that DuckDB writes 10^8 rows in some minutes.
"""

from __future__ import annotations

from datetime import datetime
from itertools import combinations
from pathlib import Path

import duckdb

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain

__all__ = ["DOMAIN", "PAIRS", "bare_columns", "write_people", "write_wide"]

TEXTS = {"education": 16, "marital": 7, "occupation": 15, "region": 50}
WHOLE = {"age": (17, 90), "race": (0, 4), "hours": (0, 98), "kids": (0, 7)}
EDGES = tuple(5000.0 * i for i in range(21))
YEAR = datetime(2023, 1, 1), datetime(2024, 1, 1)


def _attributes() -> list[Attribute]:
    texts = [Category(n, [f"{n} {i:02d}" for i in range(k)]) for n, k in TEXTS.items()]
    numbers = [Integer(name, low, high) for name, (low, high) in WHOLE.items()]
    return [
        *texts,
        *numbers,
        Boolean("sex"),
        Boolean("insured"),
        Numeric("income", EDGES),
        DateTime("seen", start=YEAR[0], end=YEAR[1], step="month"),
    ]


DOMAIN = Domain(_attributes())
PAIRS = list(combinations(DOMAIN.names, 2))


def write_people(rows: int, path: Path) -> None:
    """So many rows as one Parquet file; what is there already is kept."""
    if not path.exists():
        selected = ", ".join(f"{_value(i, a)} AS {a.name}" for i, a in enumerate(DOMAIN))
        _write(selected, rows, path)


def write_wide(attributes: int, rows: int, path: Path) -> Domain:
    """Whole numbers 0 to 9 in columns x0, x1, ...; the domain of these."""
    if not path.exists():
        ten = [f"CAST(FLOOR(10 * {_even(i)}) AS INTEGER) AS x{i}" for i in range(attributes)]
        _write(", ".join(ten), rows, path)
    return Domain(Integer(f"x{i}", 0, 9) for i in range(attributes))


def bare_columns() -> dict[str, str]:
    """The columns of people as somebody writes them in SQL who groups by the same cells."""
    named = {name: name for name in DOMAIN.names}
    binned = {"income": "LEAST(FLOOR(income / 5000), 19)", "seen": "EXTRACT(MONTH FROM seen)"}
    return named | binned


def _write(selected: str, rows: int, path: Path) -> None:
    partial = path.with_suffix(".partial")
    with duckdb.connect(config={"preserve_insertion_order": "false"}) as engine:
        engine.execute("SET enable_progress_bar = false")
        engine.execute(
            f"COPY (SELECT {selected} FROM range({rows}) AS t(i)) TO '{partial}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
    partial.replace(path)


def _even(column: int) -> str:
    """A number in [0, 1) for every row of a column."""
    return f"((hash(i * 128 + {column}) >> 11)::DOUBLE / 9007199254740992.0)"


def _value(column: int, attribute: Attribute) -> str:
    skewed = f"POW({_even(column)}, 1.5)"
    code = f"CAST(FLOOR({attribute.value_count} * {skewed}) AS INTEGER)"
    if isinstance(attribute, Category):
        return f"'{attribute.name} ' || LPAD(({code})::VARCHAR, 2, '0')"
    if isinstance(attribute, Boolean):
        return f"{code} = 1"
    if isinstance(attribute, Integer):
        return f"{code} + {attribute.min}"
    if isinstance(attribute, Numeric):
        return f"ROUND({EDGES[-1]} * {skewed}, 2)"
    return f"DATE '2023-01-01' + CAST(FLOOR(365 * {skewed}) AS INTEGER)"
