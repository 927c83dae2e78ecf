# SPDX-License-Identifier: Apache-2.0
"""Where a ledger lives: a SQLite file or a PostgreSQL database, and how a transaction is made.

Everything that differs between the two is in `_Sqlite` and `_Postgres`: how to connect, what a
connection is told so that a commit is durable, and how a transaction begins so that a writer is
alone and a reader sees one moment. Statements are plain SQL that both understand (`tables.py`);
``?`` stands for a value.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from sfumato.budget import schema
from sfumato.budget.connections import Connections, Driver
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sfumato.budget.entries import Record

__all__ = ["Store", "Transaction", "open_store"]

Row: TypeAlias = tuple[Any, ...]

_WAIT_SECONDS = 60
_SQLITE_VARIABLES = 500  # well below what the oldest SQLite admits


class Transaction:
    """A transaction under way."""

    __slots__ = ("_connection", "_cursor", "_for_driver", "_streams", "is_kept", "locking")

    def __init__(self, connection: Driver, *, is_sqlite: bool, writes: bool) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._streams: list[Driver] = []
        self._for_driver = str if is_sqlite else _percent_marks
        self.locking = " FOR UPDATE" if writes and not is_sqlite else ""
        self.is_kept = True

    def end(self) -> None:
        """Let go of all statements; SQLite would keep a closed file open for them."""
        for cursor in (self._cursor, *self._streams):
            with suppress(Exception):
                cursor.close()

    def rows(self, statement: str, values: Sequence[object] = ()) -> Iterator[Row]:
        """Yield the rows that a query finds."""
        self._cursor.execute(self._for_driver(statement), values)
        return iter(self._cursor.fetchall())

    def stream(self, statement: str) -> Iterator[Row]:
        """Yield the rows of a long table, few of them in memory; run nothing else meanwhile."""
        cursor = self._connection.cursor()
        self._streams.append(cursor)
        return iter(
            cursor.execute(statement) if self._for_driver is str else cursor.stream(statement)
        )

    def row(self, statement: str, values: Sequence[object] = ()) -> Row | None:
        """Return the first row that a query finds."""
        return next(self.rows(statement, values), None)

    def change(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement; return how many rows it changed."""
        self._cursor.execute(self._for_driver(statement), values)
        return int(self._cursor.rowcount)

    def change_many(self, statement: str, rows: Sequence[Sequence[object]]) -> int:
        """Run a statement for each of the rows; return how many rows were changed in all."""
        if not rows:
            return 0
        self._cursor.executemany(self._for_driver(statement), rows)
        return int(self._cursor.rowcount)

    def find(self, statement: str, keys: Iterable[object]) -> Iterator[Row]:
        """Yield the rows whose key is among ``keys``; ``(?)`` stands for them all."""
        wanted = list(keys)
        for start in range(0, len(wanted), _SQLITE_VARIABLES):
            part = wanted[start : start + _SQLITE_VARIABLES]
            # Few different texts, so that the databases can keep them prepared.
            part += part[-1:] * ((1 << (len(part) - 1).bit_length()) - len(part))
            marks = ", ".join("?" * len(part))
            yield from self.rows(statement.replace("(?)", f"({marks})"), part)


@cache
def _percent_marks(statement: str) -> str:
    return statement.replace("?", "%s")


@dataclass(frozen=True, slots=True)
class _Sqlite:
    path: Path

    is_sqlite = True
    binary = "BLOB"
    advice = "it is a sfumato ledger on a local, writable disk with free space"
    begin_alone = "BEGIN IMMEDIATE"
    begin_reading = "BEGIN"

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, UnicodeError)

    def connect(self) -> Driver:
        # Without isolation level: we say BEGIN ourselves. One thread at a time uses a connection.
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {_WAIT_SECONDS * 1000}")
        connection.execute("PRAGMA synchronous = FULL")  # NORMAL could lose a debit with the power
        connection.execute("PRAGMA fullfsync = ON")
        return connection

    def prepare_new(self) -> None:
        """Make the file ours alone to read, since it may come to hold private states."""
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = self.connect()
        try:  # readers and the writer go on at once (kept in the file); safe without it too
            with suppress(sqlite3.OperationalError):  # another process is doing the same
                connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()

    def lock_schema(self, _transaction: Transaction) -> None:
        """BEGIN IMMEDIATE has done it."""

    def table_names(self, transaction: Transaction) -> set[str]:
        return {name for (name,) in transaction.rows("SELECT name FROM sqlite_master")}

    def is_taken(self, names: set[str], _ours: set[str]) -> bool:
        return bool(names)  # a file must be ours alone


@dataclass(frozen=True, slots=True)
class _Postgres:
    address: str = field(repr=False)
    name: str

    is_sqlite = False
    binary = "BYTEA"
    advice = "the address is right, the server runs and you may write there"
    begin_alone = "BEGIN"  # READ COMMITTED: the account row, locked first, keeps writers apart
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error, UnicodeError)

    def connect(self) -> Driver:
        import psycopg

        connection = psycopg.connect(self.address, autocommit=True)
        connection.execute(f"SET lock_timeout = '{_WAIT_SECONDS}s'")
        found = connection.execute("SHOW synchronous_commit").fetchone()
        if found is None or found[0] == "off":  # off could lose a debit with the power
            connection.execute("SET synchronous_commit = on")
        return connection

    def prepare_new(self) -> None:
        """Nothing to do."""

    def lock_schema(self, transaction: Transaction) -> None:
        transaction.change("SELECT pg_advisory_xact_lock(1399223125)")

    def table_names(self, transaction: Transaction) -> set[str]:
        found = transaction.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        )
        return {name for (name,) in found}

    def is_taken(self, names: set[str], ours: set[str]) -> bool:
        return bool(names & ours)  # a server may hold other tables beside ours


@dataclass(frozen=True, slots=True)
class Store:
    """A database that holds one ledger."""

    database: _Sqlite | _Postgres
    connections: Connections = field(repr=False)

    @property
    def name(self) -> str:
        """How messages call it: a path, or an address without its password."""
        return self.database.name

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""
        return self.database.path if isinstance(self.database, _Sqlite) else None

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """One transaction, alone; committed at the end, undone by any error."""
        with self._transaction(self.database.begin_alone, "written", writes=True) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One transaction that sees one moment and changes nothing."""
        with self._transaction(self.database.begin_reading, "read", writes=False) as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, begin: str, verb: str, *, writes: bool) -> Iterator[Transaction]:
        with self._explained(verb), self.connections.one(lambda c: c.execute(begin)) as connection:
            made = Transaction(connection, is_sqlite=self.database.is_sqlite, writes=writes)
            try:
                yield made
                connection.execute("COMMIT" if made.is_kept else "ROLLBACK")
            except BaseException:
                with suppress(Exception):  # then the connection is closed, which undoes it too
                    connection.execute("ROLLBACK")
                raise
            finally:
                made.end()

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except self.database.errors as error:
            words = (str(error).splitlines() or [""])[0]
            raise LedgerError(
                f"the ledger {self.name} cannot be {verb} ({type(error).__name__}: "
                f"{words[:200]}); nothing was released; check that {self.database.advice}"
            ) from None

    def exists(self) -> bool:
        """Whether the tables of a ledger are there."""
        if self.path is not None and not self.path.exists():
            return False
        with self.reading() as transaction:
            return self.database.table_names(transaction) >= schema.FIRST

    def create(self, first: Record) -> bool:
        """Create the tables with the first record, all or nothing; False if it is not empty."""
        from sfumato.budget import tables

        if self.path is not None and self.path.exists():
            with self.reading() as transaction:
                if self.database.table_names(transaction):
                    return False
        with self._explained("written"):
            self._prepare_new()
        with self.writing() as transaction:
            self.database.lock_schema(transaction)
            names = self.database.table_names(transaction)
            if self.database.is_taken(names, set(schema.DEFINITIONS)):
                return False
            schema.create(transaction, set(schema.DEFINITIONS), self.database.binary)
            tables.begin(transaction, first)
        return True

    def _prepare_new(self) -> None:
        try:
            self.database.prepare_new()
        except OSError as error:
            raise LedgerError(
                f"the ledger {self.name} cannot be written ({error.strerror}); nothing was "
                "released; check the folder and its permissions"
            ) from None

    def bring_up_to_date(self) -> None:
        """Add the tables that an older sfumato did not know."""
        with self.reading() as transaction:
            missing = set(schema.DEFINITIONS) - self.database.table_names(transaction)
        if not missing:
            return
        with self.writing() as transaction:
            self.database.lock_schema(transaction)
            missing = set(schema.DEFINITIONS) - self.database.table_names(transaction)
            schema.create(transaction, missing, self.database.binary)

    def close(self) -> None:
        """Close idle connections."""
        self.connections.close()


def open_store(place: str | Path, *, keep_open: bool = False) -> Store:
    """Return the store at a path or an address (``sqlite:///path``, ``postgresql://...``)."""
    text = str(place)
    scheme, mark, rest = text.partition("://")
    database: _Sqlite | _Postgres
    if not mark:
        database = _Sqlite(Path(text).absolute())
    elif scheme == "sqlite":
        if not rest.startswith("/") or rest[1:] in ("", ":memory:"):
            raise LedgerError("a ledger in memory would be forgotten; give a file path")
        database = _Sqlite(Path(rest[1:]).absolute())
    elif scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        database = _postgres(f"postgresql://{rest}")
    else:
        raise LedgerError(
            "a ledger is a file path, sqlite:///path or postgresql://..., got another kind of "
            "address; check it"
        )
    return Store(database, Connections(database.connect, keep_open=keep_open))


def _postgres(address: str) -> _Postgres:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise LedgerError(
            "a ledger on PostgreSQL needs the driver psycopg; install sfumato[postgres]"
        ) from None
    try:
        conninfo_to_dict(address)
        parts = urlsplit(address)
    except (psycopg.Error, ValueError) as error:
        raise LedgerError(
            f"the address of a ledger on PostgreSQL is postgresql://user@host/database, got "
            f"something else ({type(error).__name__}); check it"
        ) from None
    user, at, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=user.partition(":")[0] + at + host)
    return _Postgres(address, urlunsplit(shown))
