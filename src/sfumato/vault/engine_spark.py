# SPDX-License-Identifier: Apache-2.0
"""Spark: the table is encoded and counted by its executors; only counts come to the driver.

Whatever Spark computes a second time, after a lost executor or without a cache, comes out the same
as long as the table does: every code and every draw is a function of the values of a row. Nothing
hangs on the time zone, the ANSI mode or the string escapes that a session is set to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.vault.engine import EARLIEST, EXACT_DIGITS, LATEST, Columns, Engine, fresh_name
from sfumato.workload.scans import CELLS_TOGETHER

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Spark"]

_ROWS_AT_ONCE: Final = 2**22
_MOST_HALVINGS: Final = 64


class Spark(Engine):
    """A session of Spark, given or started (``spark_session``)."""

    __slots__ = ("_held", "session")

    name: ClassVar[str] = "Spark"
    string: ClassVar[str] = "STRING"
    reads_all: ClassVar[bool] = True
    # Hash maps of few cells stay in the processor's cache, and little is shuffled.
    cells_together: ClassVar[int] = CELLS_TOGETHER["spark"]

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._held: dict[str, DataFrame] = {}

    def close(self) -> None:
        """Forget the views and caches; the session stays, others may use it."""
        for name in reversed(list(self._held)):  # what is made from another goes before it
            self.drop(name)

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.session.sql(statement)

    def view(self, rows: DataFrame) -> str:
        """A name for a dataframe; nothing is read yet."""
        name = fresh_name()
        rows.createTempView(name)
        self._held[name] = rows
        return name

    def batches(
        self, query: str, names: Sequence[str], most: int | None = None
    ) -> Iterator[Columns]:
        """As Arrow tables; where there can be very many rows, the counts stay with the executors
        and come in parts."""
        rows = self.session.sql(query).select(*names)
        parts = 1 if most is None else -(-most // _ROWS_AT_ONCE)
        if parts == 1:
            yield _columns(rows.toArrow(), names)
            return
        rows = rows.persist()
        try:
            part = f"pmod(xxhash64({', '.join(names)}), {parts})"
            for number in range(parts):
                yield _columns(rows.where(f"{part} = {number}").toArrow(), names)
        finally:
            rows.unpersist()

    def upload(self, columns: pa.Table) -> str:
        """As rows of the driver: plans and logs show its columns, not its rows."""
        rows: Any = columns  # pyspark's annotations know pandas only
        return self.view(self.session.createDataFrame(rows))

    def keep(self, query: str) -> str:
        """The executors keep what they have computed, in memory and else on their disks."""
        return self.view(self.session.sql(query).persist())

    def drop(self, name: str) -> None:
        """Forget a view, and what was kept for it."""
        rows = self._held.pop(name, None)
        self.session.catalog.dropTempView(name)
        if rows is not None:
            rows.unpersist()

    def forget(self, name: str) -> None:
        """Nothing yet: Spark Connect looks a view up again whenever a query that names it runs."""

    def counting(self, table: str, cells: Sequence[str]) -> str:
        """In one pass: planning and compiling a query for each takes Spark longer than counting.

        A record becomes one row per marginal, and each row is one number, ``cell * n + marginal``:
        Spark groups by a single BIGINT much faster than by two columns.
        """
        n = len(cells)
        keys = [f"CAST({cell} AS BIGINT) * {n} + {i}" for i, cell in enumerate(cells)]
        made = keys[0] if n == 1 else f"explode(array({', '.join(keys)}))"
        return (
            f"SELECT key % {n} AS marginal, key DIV {n} AS cell, COUNT(*) AS records "  # noqa: S608
            f"FROM (SELECT {made} AS key FROM {table}) GROUP BY key"
        )

    # Expressions.

    def column(self, name: str) -> str:
        """Between backticks."""
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        """By its bytes: how escapes are read depends on the session."""
        return f"CAST(X'{text.encode().hex()}' AS STRING)"

    def quotient(self, dividend: str, divisor: int) -> str:
        """The division of whole numbers."""
        return f"({dividend} DIV CAST({divisor} AS BIGINT))"

    def date_after(self, first: date, days: str) -> str:
        """Dates need a function for it."""
        return f"date_add(DATE '{first.isoformat()}', CAST({days} AS INTEGER))"

    def position(self, values: Sequence[str], key: str) -> str:
        """The place in an array."""
        return f"(NULLIF(array_position(array({', '.join(values)}), {key}), 0) - 1)"

    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """By halving; in an array if there are many bins, else in the text of the query."""
        bins = len(edges) - 1
        if bins <= _MOST_HALVINGS:
            return self.halved(value, edges)
        inner = f"array({', '.join(map(self.float_literal, edges[1:-1]))})"
        steps = f"array({', '.join(str(2**k) for k in reversed(range(bins.bit_length())))})"
        is_right = f"{value} >= get({inner}, at + step - 1)"  # beyond the last there is null
        search = f"(at, step) -> CASE WHEN {is_right} THEN at + step ELSE at END"
        return f"CAST(aggregate({steps}, 0, {search}) AS BIGINT)"

    def whole(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """As a word."""
        return f"CAST({column} AS BIGINT)"

    def number(self, column: str, kind: dt.DataType) -> str:
        """As a float; long decimals go by their digits, so that they are rounded once."""
        if kind.is_decimal() and (kind.precision or 38) > EXACT_DIGITS:
            column = f"CAST({column} AS STRING)"
        number = f"CAST({column} AS DOUBLE)"
        return (
            f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"
            if kind.is_floating()
            else (number)
        )

    def text(self, column: str, kind: dt.DataType) -> str:
        """As it is; ``tables`` has taken collations away."""
        return column if kind.is_string() else f"CAST({column} AS STRING)"

    def moment(self, column: str, kind: dt.DataType) -> str:
        """By the instant, or by the fields of the calendar, which need no time zone."""
        if kind.is_timestamp() and kind.timezone is not None:
            return f"unix_micros({column})"
        since = f"CAST(datediff(CAST({column} AS DATE), DATE '1970-01-01') AS BIGINT) * 86400000000"
        if kind.is_timestamp():
            seconds = f"EXTRACT(SECOND FROM {column})"
            minutes = f"EXTRACT(HOUR FROM {column}) * 60L + EXTRACT(MINUTE FROM {column})"
            since += f" + ({minutes}) * 60000000L + CAST({seconds} * 1000000 AS BIGINT)"
        year = f"EXTRACT(YEAR FROM {column})"
        return (
            f"CASE WHEN {year} > 9999 THEN {LATEST} WHEN {year} < 1 THEN {EARLIEST} "
            f"ELSE {since} END"
        )

    def float_identifier(self, column: str) -> str:
        """By Spark's own text of a fraction."""
        number = f"CAST({column} AS DOUBLE)"
        return self.whole_or(number, f"isnan({number})", f"CAST({column} AS {self.string})")

    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:
        """As digits, where Spark writes no exponent."""
        if not kind.scale:
            return self.text(column, kind)
        text = f"CAST({column} AS {self.string})"
        short = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {text}))"
        return f"CASE WHEN contains({text}, 'E') THEN {text} ELSE {short} END"

    def hashed(self, text: str) -> str:
        """In hexadecimal digits."""
        return f"sha2({text}, 256)"


def _columns(rows: pa.Table, names: Sequence[str]) -> Columns:
    return {name: np.asarray(rows[name].to_numpy(), dtype=np.int64) for name in names}
