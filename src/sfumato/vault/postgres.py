# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: the table is encoded and counted on its server, counts come back by binary COPY.

The codes of all attributes are made by one statement, hence from one snapshot: whatever happens to
the table later, all counts of a release describe the same rows. They lie in a temporary table of
our own session on the server, which needs the right TEMP and is gone with the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt

from sfumato.vault.engine import Columns, Engine, fresh_name, quoted_text
from sfumato.workload.scans import CELLS_TOGETHER

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import psycopg
    import pyarrow as pa

__all__ = [
    "Postgres",
]


_HEADER: Final = 19  # bytes before the first row of a binary COPY: signature, flags, extension
_ROWS_AT_ONCE: Final = 2**18
# Decimals beyond these have no nearest float: the cast would fail on them.
_TOO_GREAT: Final = "1.797693134862315807e308"
_TOO_SMALL: Final = "2.5e-324"
_SURE_DIGITS: Final = 300  # decimals of so many at most are within these bounds

_PLAIN: Final = {
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp(6)",
    "timestamptz": "timestamp('UTC', 6)",
    "uuid": "uuid",
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), "string"),
}


class Postgres(Engine):
    """A connection to a server."""

    __slots__ = ("connection", "is_ours")

    name: ClassVar[str] = "PostgreSQL"
    double: ClassVar[str] = "DOUBLE PRECISION"
    string: ClassVar[str] = "TEXT"
    has_bytes: ClassVar[bool] = False
    reads_all: ClassVar[bool] = True
    cells_together: ClassVar[int] = CELLS_TOGETHER["postgres"]

    def __init__(self, connection: psycopg.Connection[object], *, is_ours: bool) -> None:
        self.connection = connection
        self.is_ours = is_ours

    def close(self) -> None:
        """End the session, if it is ours; its temporary tables go with it."""
        if self.is_ours:
            self.connection.close()

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.connection.cursor().execute(statement.encode())

    def rows(self, query: str, given: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """The rows of a query over the catalogue of the server."""
        cursor = self.connection.cursor()
        cursor.execute(query.encode(), tuple(given) or None)
        return list(cursor.fetchall())  # type: ignore[arg-type]

    def types(self, rows: str) -> dict[str, dt.DataType]:
        """The columns of what stands after FROM, with their types; no row is asked for."""
        cursor = self.connection.cursor()
        cursor.execute(f"SELECT * FROM {rows} AS source LIMIT 0".encode())  # noqa: S608
        found = cursor.description or []
        oids = sorted({column.type_code for column in found})
        query = "SELECT oid::bigint, typname::text, typtype::text FROM pg_type WHERE oid = ANY(%s)"
        sorts = {row[0]: (str(row[1]), str(row[2])) for row in self.rows(query, [oids])}
        return {c.name: _type(*sorts[c.type_code], c.precision, c.scale) for c in found}

    def batches(
        self,
        query: str,
        names: Sequence[str],
        most: int | None = None,  # noqa: ARG002
    ) -> Iterator[Columns]:
        """By binary COPY, in which whole numbers of 64 bits all have the same length."""
        words = ", ".join(f"CAST({name} AS BIGINT)" for name in names)
        copied = f"COPY (SELECT {words} FROM ({query}) AS counted) TO STDOUT (FORMAT binary)"  # noqa: S608
        row = np.dtype(
            [("width", ">i2"), *((n, [("size", ">i4"), ("word", ">i8")]) for n in names)]
        )
        held, skipped = bytearray(), 0
        with self.connection.cursor().copy(copied.encode()) as copy:
            for block in copy:
                held += block
                if not skipped and len(held) >= _HEADER:
                    del held[:_HEADER]
                    skipped = _HEADER
                if len(held) >= _ROWS_AT_ONCE * row.itemsize:
                    yield _taken(held, row)
        # The last two bytes stand for the end.
        if len(held) % row.itemsize != 2:
            raise ValueError("the answer of the server is cut short, or holds a null")
        yield _taken(held, row)

    def upload(self, columns: pa.Table) -> str:
        """By COPY: what is sent so is in no log of statements."""
        name = fresh_name()
        made = ", ".join(f"{field.name} {_column_type(field.type)}" for field in columns.schema)
        self.run(f"CREATE TEMP TABLE {name} ({made})")
        with self.connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for row in zip(*(column.to_pylist() for column in columns.columns), strict=True):
                copy.write_row(row)
        self.run(f"ANALYZE {name}")
        return name

    def keep(self, query: str) -> str:
        """A temporary table of our session."""
        name = fresh_name()
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def drop(self, name: str) -> None:
        """Forget a temporary table."""
        self.run(f"DROP TABLE IF EXISTS pg_temp.{name}")

    # Expressions.

    def literal(self, text: str) -> str:
        """With escapes, which mean the same whatever the server is set to."""
        return "E" + quoted_text(text.replace("\\", "\\\\"))

    def quotient(self, dividend: str, divisor: int) -> str:
        """Whole numbers are divided as such."""
        return f"({dividend} / CAST({divisor} AS BIGINT))"

    def position(self, values: Sequence[str], key: str) -> str:
        """The place in an array."""
        return f"(array_position(ARRAY[{', '.join(values)}], {key}) - 1)"

    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """By a binary search of the server's own; the last bin is closed."""
        floats = ", ".join(self.float_literal(edge) for edge in edges[1:-1])
        inner = f"CAST(ARRAY[{floats}] AS {self.double}[])"
        return f"CAST(width_bucket({value}, {inner}) AS BIGINT)" if len(edges) > 2 else "0"

    def whole(self, column: str, kind: dt.DataType) -> str:
        """As a word."""
        return (
            f"CAST(CAST({column} AS INTEGER) AS BIGINT)"
            if kind.is_boolean()
            else (f"CAST({column} AS BIGINT)")
        )

    def number(self, column: str, kind: dt.DataType) -> str:
        """As a float; NaN, which decimals may be too, becomes null."""
        if kind.is_integer():
            return f"CAST({column} AS {self.double})"
        if kind.is_decimal() and (kind.precision is None or kind.precision > _SURE_DIGITS):
            size = f"abs({column})"
            column = (
                f"CASE WHEN {size} < {_TOO_SMALL} THEN 0 WHEN {column} = 'NaN' THEN NULL "
                f"WHEN {column} >= {_TOO_GREAT} THEN 'Infinity' "
                f"WHEN {column} <= -{_TOO_GREAT} THEN '-Infinity' ELSE {column} END"
            )
        return f"NULLIF(CAST({column} AS {self.double}), 'NaN')"

    def text(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """As text; CHARACTER(n) loses the blanks it was filled up with, as its comparisons do."""
        return f'(CAST({column} AS TEXT) COLLATE "C")'

    def moment(self, column: str, kind: dt.DataType) -> str:
        """By the calendar up to the ends; what lies beyond, such as infinity, has no number."""
        if kind.is_date():
            sort, zone = "DATE", ""
        else:
            sort, zone = ("TIMESTAMP", "") if kind.timezone is None else ("TIMESTAMPTZ", " UTC")
        since = f"CAST(EXTRACT(EPOCH FROM {column}) * 1000000 AS BIGINT)"
        if kind.is_date():
            since = f"CAST({column} - DATE '1970-01-01' AS BIGINT) * 86400000000"
        return self.ranged_moment(column, sort, zone, since)

    def float_identifier(self, column: str) -> str:
        """By the bits of a fraction."""
        number = f"CAST({column} AS {self.double})"
        return self.whole_or(number, f"{number} = 'NaN'", f"encode(float8send({number}), 'hex')")

    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """As digits; decimals may be NaN here."""
        return f"CASE WHEN {column} = 'NaN' THEN NULL ELSE CAST(trim_scale({column}) AS TEXT) END"

    def hashed(self, text: str) -> str:
        """As bytes."""
        return f"sha256(convert_to({text}, 'UTF8'))"


def _taken(held: bytearray, row: np.dtype[np.void]) -> dict[str, npt.NDArray[np.int64]]:
    """The whole rows at the beginning, which are taken away."""
    count = len(held) // row.itemsize
    found = np.frombuffer(bytes(held[: count * row.itemsize]), dtype=row)
    del held[: count * row.itemsize]
    if count and not all((found[n]["size"] == 8).all() for n in row.names[1:]):  # type: ignore[index]
        raise ValueError("the answer of the server holds a null")
    return {n: found[n]["word"].astype(np.int64) for n in row.names[1:]}  # type: ignore[index]


def _column_type(kind: pa.DataType) -> str:
    return {"string": "TEXT", "int64": "BIGINT", "double": "DOUBLE PRECISION"}[str(kind)]


def _type(name: str, sort: str, precision: int | None, scale: int | None) -> dt.DataType:
    """The type of a column, ``unknown`` for what no attribute can be read from."""
    import ibis.expr.datatypes as dt

    if name == "numeric":
        return dt.Decimal(precision, scale) if precision and (scale or 0) >= 0 else dt.Decimal()
    if sort == "e":  # an enumeration
        return dt.string
    return dt.dtype(_PLAIN[name]) if name in _PLAIN else dt.unknown
