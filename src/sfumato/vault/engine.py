# SPDX-License-Identifier: Apache-2.0
"""`Engine`: what counting needs of the database that a table lives in.

A table of codes to keep, queries over it, and a few expressions. All else is plain SQL that DuckDB,
PostgreSQL and Spark read alike: comparisons, CASE, sums of whole numbers, GROUP BY. Where they
differ, the expression is a method here, and each engine gives its own (`duckdb`, `postgres`,
`spark`). A column is brought into one of four forms, which mean the same on every engine, before
anything is decided about a value:

    whole     a signed 64-bit integer
    number    a 64-bit float; NaN becomes null
    text      a text that is compared byte by byte
    moment    microseconds since 1970 in UTC, as a signed 64-bit integer; times before the year 1
              and after 9999 become `EARLIEST` and `LATEST`

Every call into an engine or a reader of files runs under `sealed`, because their messages quote the
values they choke on: it drops them.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.errors import SfumatoError, TableError
from sfumato.text import shown
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import pyarrow as pa

__all__ = [
    "EARLIEST",
    "LATEST",
    "Columns",
    "Engine",
    "EngineTable",
    "before_rows",
    "fresh_name",
    "quoted",
    "quoted_text",
    "sealed",
    "unreadable",
]


T = TypeVar("T")

EARLIEST: Final = -(2**62)
LATEST: Final = 2**62

EXACT_DIGITS: Final = 15  # decimals of so many are a whole number below 2^53 over a power of ten

Columns = Mapping[str, npt.NDArray[np.int64]]


class Engine(ABC):
    """Where a table lives and is counted."""

    __slots__ = ("__weakref__",)

    name: ClassVar[str]
    double: ClassVar[str] = "DOUBLE"
    string: ClassVar[str] = "VARCHAR"
    has_bytes: ClassVar[bool] = True
    marginals_per_query: ClassVar[int] = WORKLOAD_LIMITS.tables_per_query
    cells_together: ClassVar[int]
    """Cells up to which a table is counted in place of several that are parts of it."""
    reads_all: ClassVar[bool] = False
    """Whether the first reading encodes all attributes, so that no second one is needed."""

    @abstractmethod
    def run(self, statement: str) -> None:
        """Run a statement; what it says about its rows is taken and thrown away."""

    @abstractmethod
    def batches(
        self, query: str, names: Sequence[str], most: int | None = None
    ) -> Iterator[Columns]:
        """The named columns of a query, all whole numbers and none null, some rows at a time.

        ``most`` is a bound on the number of rows, if there is one beforehand.
        """

    @abstractmethod
    def upload(self, columns: pa.Table) -> str:
        """The name of a temporary table with these rows, which are public or our own."""

    @abstractmethod
    def keep(self, query: str) -> str:
        """The name of a temporary table with the rows of a query."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forget a temporary table."""

    def forget(self, name: str) -> None:
        """Let go of what was uploaded."""
        self.drop(name)

    @abstractmethod
    def close(self) -> None:
        """Let go of everything that was opened for the table."""

    def fetch(self, query: str, names: Sequence[str]) -> Columns:
        """All rows of a query over whole numbers."""
        parts = list(self.batches(query, names))
        nothing = np.zeros(0, np.int64)
        return {name: np.concatenate([nothing, *(p[name] for p in parts)]) for name in names}

    @abstractmethod
    def listed(self, query: str) -> list[tuple[str | int, ...]]:
        """All rows of a query over texts and whole numbers, of which there are not too many."""

    def complete(self, query: str, columns: Sequence[str]) -> str:
        """The rows of a query in which none of these columns is null."""
        if not columns:
            return query
        conditions = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        return f"SELECT * FROM ({query}) AS complete WHERE {conditions}"  # noqa: S608

    def counting(self, table: str, cells: Sequence[str]) -> str:
        """A query for ``marginal, cell, records``: how many rows each cell of each marginal has."""
        return " UNION ALL ".join(
            f"SELECT {i} AS marginal, {cell} AS cell, COUNT(*) AS records FROM {table}"  # noqa: S608
            f"{'' if cell == '0' else ' GROUP BY 2'}"
            for i, cell in enumerate(cells)
        )

    # Expressions.

    def integer(self, size: int) -> str:
        """The shortest type for the numbers below ``size``."""
        bits = (8 if self.has_bytes else 16, 16, 32)
        names = ("TINYINT" if self.has_bytes else "SMALLINT", "SMALLINT", "INTEGER")
        return next((n for n, b in zip(names, bits, strict=True) if size <= 2 ** (b - 1)), "BIGINT")

    def column(self, name: str) -> str:
        """The name of a column."""
        return quoted(name)

    def field(self, column: str, name: str) -> str:
        """A named field of a column of records."""
        return f"({column}).{self.column(name)}"

    def literal(self, text: str) -> str:
        """A text."""
        return quoted_text(text)

    def float_literal(self, number: float) -> str:
        """A float, exactly: SQL would take ``0.1`` for a decimal, and round it once more."""
        return f"CAST('{float(number)!r}' AS {self.double})"

    @abstractmethod
    def quotient(self, dividend: str, divisor: int) -> str:
        """The whole part of a quotient of whole numbers of 0 or more, exactly."""

    def date_after(self, first: date, days: str) -> str:
        """The date so many days after another."""
        return f"(DATE '{first.isoformat()}' + CAST({days} AS INTEGER))"

    @abstractmethod
    def position(self, values: Sequence[str], key: str) -> str:
        """The place of a text or a whole number among some literals, from 0; null if not there."""

    @abstractmethod
    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """The bin of a float between the outer edges, or None to look it up in a table."""

    def halved(self, value: str, edges: Sequence[float]) -> str:
        """The bin by halving: log2(bins) comparisons a record, in a text as long as the edges."""

        def within(low: int, high: int) -> str:
            if high - low == 1:
                return str(low)
            middle = (low + high) // 2
            left, right = within(low, middle), within(middle, high)
            is_left = f"{value} < {self.float_literal(edges[middle])}"
            return f"CASE WHEN {is_left} THEN {left} ELSE {right} END"

        return within(0, len(edges) - 1)

    @abstractmethod
    def whole(self, column: str, kind: dt.DataType) -> str:
        """Integers and booleans in the form ``whole``; what is greater becomes its maximum."""

    @abstractmethod
    def number(self, column: str, kind: dt.DataType) -> str:
        """Integers, floats and decimals in the form ``number``."""

    @abstractmethod
    def text(self, column: str, kind: dt.DataType) -> str:
        """Texts in the form ``text``."""

    @abstractmethod
    def moment(self, column: str, kind: dt.DataType) -> str:
        """Dates and times in the form ``moment``."""

    def microseconds(self, column: str) -> str:
        """Durations as a float; of months and years, those of the engine."""
        return f"(CAST(EXTRACT(EPOCH FROM {column}) AS {self.double}) * 1000000)"

    def local_moment(self, moment: str, changes: Sequence[int], offsets: Sequence[int]) -> str:
        """What clocks show at a moment in UTC, by halving: ``offsets`` hold between ``changes``."""

        def within(low: int, high: int) -> str:
            if low == high:
                return str(offsets[low])
            middle = (low + high) // 2
            left, right = within(low, middle), within(middle + 1, high)
            return f"CASE WHEN {moment} < {changes[middle]} THEN {left} ELSE {right} END"

        return f"({moment} + ({within(0, len(changes))}))"

    def ranged_moment(self, column: str, kind: str, zone: str, since: str) -> str:
        """``since`` for a date or time from the year 1 to 9999; `EARLIEST` or `LATEST` outside."""
        low, high = (f"{kind} '{year}-01-01{zone}'" for year in ("0001", "10000"))
        return (
            f"CASE WHEN {column} >= {high} THEN {LATEST} WHEN {column} < {low} THEN {EARLIEST} "
            f"ELSE {since} END"
        )

    def identifier(self, column: str, kind: dt.DataType) -> str:
        """A privacy unit as text: equal values give equal texts, others others; NaN gives null.

        All engines give the same text for texts, booleans, whole numbers (also as floats) and
        times, so that all keep the same rows under the same key.
        """
        if kind.is_floating():
            return self.float_identifier(column)
        if kind.is_decimal():
            return self.decimal_identifier(column, kind)
        if kind.is_date() or kind.is_timestamp():
            moment = self.moment(column, kind)
            return (
                f"CASE WHEN {moment} IN ({EARLIEST}, {LATEST}) "
                f"THEN CAST({column} AS {self.string}) ELSE CAST({moment} AS {self.string}) END"
            )
        return self.text(column, kind)

    @abstractmethod
    def float_identifier(self, column: str) -> str:
        """A float as text."""

    @abstractmethod
    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:
        """A decimal as text, without zeros at its end."""

    def whole_or(self, number: str, is_nan: str, fraction: str) -> str:
        """The digits of a float that is a whole number, else the text for fractions."""
        is_whole = f"abs({number}) < {self.float_literal(1e15)} AND {number} = FLOOR({number})"
        whole = f"CAST(CAST({number} AS BIGINT) AS {self.string})"
        return f"CASE WHEN {is_nan} THEN NULL WHEN {is_whole} THEN {whole} ELSE {fraction} END"

    @abstractmethod
    def hashed(self, text: str) -> str:
        """SHA-256 of the bytes of a text in UTF-8, in a form that sorts like its digits."""


def quoted(name: str) -> str:
    """A name as SQL writes it.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as SQL writes it.

    >>> quoted_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def fresh_name() -> str:
    """A name that no table has."""
    return f"sfumato_{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class EngineTable:
    """A table in its engine: what stands after FROM, its columns, and whether it is a query.

    ``may_drop_records`` is False only where the rows are known to be stored one for each record;
    ``unique`` are the columns of which, by a constraint, no two records share a value.
    """

    engine: Engine
    rows: str
    types: Mapping[str, dt.DataType]
    may_drop_records: bool = True
    unique: frozenset[str] = frozenset()


def unreadable(name: str, query: str | None) -> str:
    """The message for a table or a query that the engine cannot read."""
    what = "the table" if query is None else "the query"
    return (
        f"{what} of {shown(name)} cannot be read; check that it is there, that it may be read, and "
        "that its columns have names of their own and types that the engine knows"
    )


# Errors, of which nothing leaves that a record may have said


def sealed(action: Callable[[], T], message: str | Callable[[], str]) -> T:
    """Run ``action``; whatever goes wrong in it becomes a `TableError` that says ``message``.

    The message is written from public inputs, beforehand or by a function that sees nothing else.
    The original error is dropped with its text and its frames, which may hold rows: the new one is
    raised after the handler has ended, so that it carries no context either.

    >>> sealed(lambda: [1][2], "the table cannot be read")
    Traceback (most recent call last):
    ...
    sfumato.errors.TableError: the table cannot be read
    """
    try:
        return action()
    except SfumatoError:
        raise
    except Exception:  # noqa: S110 - nothing of it may be kept, not even in a log
        pass
    raise TableError(message if isinstance(message, str) else message())


def before_rows(
    action: Callable[[], T], message: str, reasons: tuple[type[Exception], ...] = (Exception,)
) -> T:
    """Run ``action``, which reads no row; the `TableError` of a failure says why in its own words.

    Privacy: public by the choice of its callers. Errors of the types ``reasons`` must not depend on
    any row, as those of starting an engine or of looking names up in a catalogue. The first line
    of what such an error says is kept; an error of another type is dropped whole, as by `sealed`.

    >>> before_rows(lambda: {}["x"], "the engine cannot be started")
    Traceback (most recent call last):
    ...
    sfumato.errors.TableError: the engine cannot be started (KeyError: 'x')
    """
    try:
        return action()
    except SfumatoError:
        raise
    except reasons as error:
        lines = str(error).strip().splitlines()
        reason = f" ({type(error).__name__}: {lines[0].strip()})" if lines else ""
    except Exception:
        reason = ""
    raise TableError(message + reason)
