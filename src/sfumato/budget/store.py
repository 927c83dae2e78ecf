# SPDX-License-Identifier: Apache-2.0
"""The tables of a ledger and the few statements that touch them; SQLite or PostgreSQL.

    sfumato_record    the chain of `entries.Record` lines: the ledger itself
    sfumato_account   one row: the last record and the units spent. `advance` is one conditional
                      UPDATE, both check and debit, with a CHECK constraint as a second fence
    sfumato_request   which debit holds a key, and its state
    sfumato_answer    the stored bytes

Everything that differs between databases is in `_prepare` (what a connection is told when it
opens and when a transaction begins). `sqlalchemy` is imported here and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from sfumato.budget.account import UNITS
from sfumato.budget.entries import Answered, Burnt, Debited, Record, State
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

__all__ = [
    "AccountRow",
    "RequestRow",
    "Store",
    "account",
    "advance",
    "all_answers",
    "all_records",
    "all_requests",
    "answer_of",
    "index",
    "open_store",
    "record_at",
    "request",
    "reserved",
]

_METADATA = MetaData()
_RECORD = Table(
    "sfumato_record",
    _METADATA,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False),
    Column("text", Text, nullable=False),
)
_ACCOUNT = Table(
    "sfumato_account",
    _METADATA,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("head", String(64), nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    CheckConstraint("spent >= 0 AND spent <= total", name="never_overspent"),
)
_REQUEST = Table(
    "sfumato_request",
    _METADATA,
    Column("key", String(200), primary_key=True),
    Column("debit", BigInteger, nullable=False),
    Column("state", String(8), nullable=False),
    Column("closed", BigInteger, nullable=True),
)
_ANSWER = Table(
    "sfumato_answer",
    _METADATA,
    Column("debit", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
_WAIT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class AccountRow:
    """The last record and the units spent."""

    sequence: int
    head: str
    spent: int
    total: int


@dataclass(frozen=True, slots=True)
class RequestRow:
    """The latest debit of a key; ``closed`` is the record that answered or burnt it."""

    key: str
    debit: int
    state: State
    closed: int | None


@dataclass(frozen=True, slots=True)
class Store:
    """A database that holds one ledger."""

    engine: Engine
    name: str

    def exists(self) -> bool:
        """Whether the tables of a ledger are there."""
        return {table.name for table in _METADATA.sorted_tables} <= self._table_names()

    def _table_names(self) -> set[str]:
        with self.reading() as connection:
            return set(inspect(connection).get_table_names())

    def create(self, first: Record) -> bool:
        """Create the tables with the first record, all or nothing; False if it is not empty."""
        if self._is_taken(self._table_names()):
            return False
        if self.engine.dialect.name == "sqlite":
            self._write_ahead()
        with self.writing() as connection:
            if self._is_taken(set(inspect(connection).get_table_names())):
                return False
            _METADATA.create_all(connection, checkfirst=False)
            text = first.text()
            digest = Record.hash_of(text)
            row = {"sequence": first.sequence, "hash": digest, "text": text}
            connection.execute(insert(_RECORD).values(row))
            account_row = {"id": 1, "sequence": first.sequence, "head": digest, "spent": 0}
            connection.execute(insert(_ACCOUNT).values(account_row | {"total": UNITS}))
        return True

    def _is_taken(self, names: set[str]) -> bool:
        """A file must be ours alone; a server may hold other tables beside ours."""
        ours = {table.name for table in _METADATA.sorted_tables}
        return bool(names if self.engine.dialect.name == "sqlite" else names & ours)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, alone; committed at the end, undone by any error."""
        with self._explained("written"), self.engine.connect() as connection:
            connection = connection.execution_options(sfumato_writes=True)
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that sees one moment and changes nothing."""
        with self._explained("read"), self.engine.connect() as connection, connection.begin():
            yield connection

    def _write_ahead(self) -> None:
        """Let readers and the writer go on at once (kept in the file); safe without it too."""
        with self._explained("written"):
            raw = self.engine.raw_connection()
            try:
                with suppress(sqlite3.OperationalError):  # another process is doing the same
                    raw.cursor().execute("PRAGMA journal_mode = WAL")
            finally:
                raw.close()

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, UnicodeError) as error:
            cause = getattr(error, "orig", None) or error
            raise LedgerError(
                f"the ledger {self.name} cannot be {verb} ({type(cause).__name__}: "
                f"{str(cause).splitlines()[0][:200]}); nothing was released; check that it is a "
                "sfumato ledger on a local, writable disk with free space"
            ) from None

    def close(self) -> None:
        """Close idle connections."""
        with suppress(SQLAlchemyError):
            self.engine.dispose()


def account(connection: Connection) -> AccountRow:
    """Return the account row, locked until the transaction ends (on SQLite all of it is)."""
    columns = (_ACCOUNT.c.sequence, _ACCOUNT.c.head, _ACCOUNT.c.spent, _ACCOUNT.c.total)
    query = select(*columns).where(_ACCOUNT.c.id == 1)
    if connection.get_execution_options().get("sfumato_writes"):
        query = query.with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise LedgerError("the ledger has no account row; restore the newest backup")
    return AccountRow(*row)


def advance(connection: Connection, seen: AccountRow, record: Record) -> bool:
    """Append the record and move the account to it, if nobody else did and the budget allows.

    Privacy: the UPDATE is the check and the debit at once; its WHERE clause compares the account
    with what was seen and the new total of units with the budget. False means nothing changed.
    """
    text = record.text()
    digest = Record.hash_of(text)
    changed = connection.execute(
        update(_ACCOUNT)
        .where(
            _ACCOUNT.c.id == 1,
            _ACCOUNT.c.sequence == seen.sequence,
            _ACCOUNT.c.head == seen.head,
            _ACCOUNT.c.spent + (record.spent - seen.spent) <= _ACCOUNT.c.total,
        )
        .values(
            sequence=record.sequence,
            head=digest,
            spent=_ACCOUNT.c.spent + (record.spent - seen.spent),
        )
    )
    if changed.rowcount != 1:
        return False
    connection.execute(insert(_RECORD).values(sequence=record.sequence, hash=digest, text=text))
    return True


def record_at(connection: Connection, sequence: int) -> tuple[str, str] | None:
    """Return (hash, text) of a record."""
    query = select(_RECORD.c.hash, _RECORD.c.text).where(_RECORD.c.sequence == sequence)
    row = connection.execute(query).one_or_none()
    return None if row is None else (str(row.hash), str(row.text))


def all_records(connection: Connection) -> Iterator[tuple[int, str, str]]:
    """Yield (sequence, hash, text) of all records, oldest first."""
    query = select(_RECORD.c.sequence, _RECORD.c.hash, _RECORD.c.text)
    for row in connection.execute(query.order_by(_RECORD.c.sequence)):
        yield row.sequence, str(row.hash), str(row.text)


def request(connection: Connection, key: str) -> RequestRow | None:
    """Return the latest debit of a key."""
    return next(_requests(connection, key=key), None)


def all_requests(connection: Connection) -> Iterator[RequestRow]:
    """Yield the latest debit of every key."""
    return _requests(connection)


def reserved(connection: Connection) -> list[RequestRow]:
    """Return the debits that wait for an answer."""
    return list(_requests(connection, state="reserved"))


def _requests(
    connection: Connection, key: str | None = None, state: State | None = None
) -> Iterator[RequestRow]:
    query = select(_REQUEST.c.key, _REQUEST.c.debit, _REQUEST.c.state, _REQUEST.c.closed)
    if key is not None:
        query = query.where(_REQUEST.c.key == key)
    if state is not None:
        query = query.where(_REQUEST.c.state == state)
    for row in connection.execute(query.order_by(_REQUEST.c.debit)):
        yield RequestRow(*row)


def index(connection: Connection, record: Record, answer: bytes | None) -> None:
    """Bring the tables of requests and answers up to the record that was just appended."""
    match record.fact:
        case Debited(key=key):
            held = request(connection, key)
            if held is None:
                row = {"key": key, "debit": record.sequence, "state": "reserved", "closed": None}
                connection.execute(insert(_REQUEST).values(row))
            else:
                _move(connection, held.debit, "burnt", "reserved", record.sequence, None)
        case Answered(debit=debit):
            _move(connection, debit, "reserved", "answered", debit, record.sequence)
            connection.execute(insert(_ANSWER).values(debit=debit, data=answer))
        case Burnt(debit=debit):
            _move(connection, debit, "reserved", "burnt", debit, record.sequence)
        case _:
            pass


def _move(
    connection: Connection, debit: int, old: State, new: State, to: int, closed: int | None
) -> None:
    """Change the state of a debit, only from the one state it may leave."""
    changed = connection.execute(
        update(_REQUEST)
        .where(_REQUEST.c.debit == debit, _REQUEST.c.state == old)
        .values(debit=to, state=new, closed=closed)
    )
    if changed.rowcount != 1:
        raise LedgerError(f"debit {debit} is not {old} any more; nothing was written; ask again")


def answer_of(connection: Connection, debit: int) -> bytes | None:
    """Return the stored bytes of an answer."""
    query = select(_ANSWER.c.data).where(_ANSWER.c.debit == debit)
    data = connection.execute(query).scalar_one_or_none()
    return None if data is None else _bytes(data)


def all_answers(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield (debit, bytes) of all stored answers."""
    for row in connection.execute(select(_ANSWER.c.debit, _ANSWER.c.data)):
        yield row.debit, _bytes(row.data)


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise LedgerError("a stored answer is damaged; restore the newest backup")


def open_store(place: str | Path) -> tuple[Store, Path | None]:
    """Return the store at a path or a SQLAlchemy URL, and its path if it is a SQLite file."""
    text = str(place)
    try:
        url = make_url(text if "://" in text else f"sqlite:///{Path(text).absolute()}")
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            raise LedgerError("a ledger in memory would be forgotten; give a file path")
        # Without a pool no connection is open across a fork, where SQLite's locks would be lost.
        engine = create_engine(url, hide_parameters=True, poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        raise LedgerError(
            f"a ledger is a file path, sqlite:///path or postgresql://..., got something else "
            f"({type(error).__name__}); check the address and that its driver is installed"
        ) from None
    _prepare(engine)
    if url.get_backend_name() != "sqlite":
        return Store(engine, url.render_as_string(hide_password=True)), None
    path = Path(str(url.database))
    return Store(engine, str(path)), path


def _prepare(engine: Engine) -> None:
    """Tell each connection to be durable and each writing transaction to be alone."""
    if engine.dialect.name != "sqlite":
        # PostgreSQL: READ COMMITTED with the account row locked FOR UPDATE; readers see one moment.
        @event.listens_for(engine, "begin")
        def one_moment(connection: Connection) -> None:
            if not connection.get_execution_options().get("sfumato_writes"):
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        return

    @event.listens_for(engine, "connect")
    def durable(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_WAIT_SECONDS * 1000}")
        cursor.execute("PRAGMA synchronous = FULL")  # NORMAL could lose a debit with the power
        cursor.execute("PRAGMA fullfsync = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def alone(connection: Connection) -> None:
        writes = connection.get_execution_options().get("sfumato_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
