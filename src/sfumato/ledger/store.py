# SPDX-License-Identifier: Apache-2.0
"""Where a ledger is stored: a SQLite file or a PostgreSQL database, and its transactions.

`open_store` returns the `Store` of a path or an address; its `writing` and `reading` give a
`Transaction`. Everything that differs between the two databases is in `_Sqlite` and `_Postgres`:
how to connect, which settings make a commit durable, and how a transaction begins so that a writer
is alone and a reader sees one moment. Statements are plain SQL that both understand
(`sfumato.ledger.ledger_tables`); ``?`` stands for a value. `this_process` and `is_gone` say which
process reserved a debit and whether it has ended.

The head file is a second, append-only witness of how far a ledger has come. After every committed
record its number and hash are appended to ``<ledger>.head``. A ledger file that was replaced by an
older copy lacks a record that the head file names, and is refused. Lines are written after the
commit, so after a crash the head file may lag behind the ledger but is never ahead of it; and two
processes may append out of order, so the largest number counts. `LedgerWitness` appends and reads;
`sfumato.ledger.transaction` uses it in every transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from sfumato.errors import LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.ledger_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.ledger.entries import Record

__all__ = [
    "Connections",
    "Driver",
    "LedgerWitness",
    "Store",
    "Transaction",
    "WitnessLine",
    "is_gone",
    "open_store",
    "this_process",
]

# Connections: none is open across a fork
#
# A SQLite connection that is carried into a forked child loses its locks there, and a connection
# to a server would be shared by two processes. So a fork waits until no thread is inside a
# transaction, closes what is idle, and lets the child begin with nothing.

Driver: TypeAlias = Any
"""A DB-API connection: of `sqlite3` or of `psycopg`."""


class Connections:
    """The open connections to a database: one per transaction, reused only if ``keep_open``."""

    __slots__ = ("__weakref__", "_changed", "_connect", "_idle", "_keep_open", "_paused", "_users")

    def __init__(self, connect: Callable[[], Driver], *, keep_open: bool) -> None:
        self._connect = connect
        self._keep_open = keep_open
        self._begin_anew()
        _ALL.add(self)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[Driver] = []
        self._users: list[int] = []
        self._paused = False

    @contextmanager
    def one(self, begin: Callable[[Driver], None]) -> Iterator[Driver]:
        """A connection on which ``begin`` succeeded; closed if anything fails."""
        self._enter()
        connection: Driver | None = None
        fine = False
        try:
            connection = self._begun(begin)
            yield connection
            fine = True
        finally:
            self._leave(connection, fine=fine)

    def __del__(self) -> None:
        with suppress(Exception):  # not made to the end, or too late in the life of the process
            self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _begun(self, begin: Callable[[Driver], None]) -> Driver:
        with self._changed:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                begin(idle)
                return idle
            except Exception:  # a server may have ended it meanwhile: a new one tells
                _close(idle)
        connection = self._connect()
        try:
            begin(connection)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _enter(self) -> None:
        with self._changed:
            while self._paused:
                self._changed.wait()
            self._users.append(threading.get_ident())

    def _leave(self, connection: Driver | None, *, fine: bool) -> None:
        is_reused = fine and self._keep_open and not self._paused
        if connection is not None and not is_reused:
            _close(connection)
        with self._changed:
            if connection is not None and is_reused:
                self._idle.append(connection)
            self._users.remove(threading.get_ident())
            self._changed.notify_all()

    def _pause(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._paused = True
            while any(user != me for user in self._users):
                self._changed.wait()
        self.close()

    def _resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()


def _close(connection: Driver) -> None:
    with suppress(Exception):
        connection.close()


_ALL: weakref.WeakSet[Connections] = weakref.WeakSet()


def _pause_all() -> None:
    for connections in list(_ALL):
        connections._pause()


def _resume_all() -> None:
    for connections in list(_ALL):
        connections._resume()


def _begin_all_anew() -> None:
    for connections in list(_ALL):
        connections._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_all, after_in_parent=_resume_all, after_in_child=_begin_all_anew
    )


# Transactions

Row: TypeAlias = tuple[Any, ...]


class Transaction:
    """A transaction of a database that has begun; undone at its end unless ``is_kept``."""

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
        values, size = list(keys), LIMITS.values_per_statement
        for start in range(0, len(values), size):
            part = values[start : start + size]
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
        connection.execute(f"PRAGMA busy_timeout = {LIMITS.lock_seconds * 1000}")
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
        """Nothing to do: ``BEGIN IMMEDIATE`` has locked the whole file."""

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
        connection.execute(f"SET lock_timeout = '{LIMITS.lock_seconds}s'")
        setting = connection.execute("SHOW synchronous_commit").fetchone()
        if setting is None or setting[0] == "off":  # off could lose a debit with the power
            connection.execute("SET synchronous_commit = on")
        return connection

    def prepare_new(self) -> None:
        """Nothing to do: the database of a server exists before its tables."""

    def lock_schema(self, transaction: Transaction) -> None:
        transaction.change("SELECT pg_advisory_xact_lock(1399223125)")

    def table_names(self, transaction: Transaction) -> set[str]:
        rows = transaction.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        )
        return {name for (name,) in rows}

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
        """Yield a transaction that is alone; committed at the end, undone by any error."""
        with self._transaction(self.database.begin_alone, "written", writes=True) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Yield a transaction that sees one moment and changes nothing."""
        with self._transaction(self.database.begin_reading, "read", writes=False) as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, begin: str, verb: str, *, writes: bool) -> Iterator[Transaction]:
        with self._explained(verb), self.connections.one(lambda c: c.execute(begin)) as connection:
            transaction = Transaction(connection, is_sqlite=self.database.is_sqlite, writes=writes)
            try:
                yield transaction
                connection.execute("COMMIT" if transaction.is_kept else "ROLLBACK")
            except BaseException:
                with suppress(Exception):  # then the connection is closed, which undoes it too
                    connection.execute("ROLLBACK")
                raise
            finally:
                transaction.end()

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except self.database.errors as error:
            message = (str(error).splitlines() or [""])[0]
            raise LedgerError(
                f"the ledger {self.name} cannot be {verb} ({type(error).__name__}: "
                f"{message[:200]}); nothing was released; check that {self.database.advice}"
            ) from None

    def exists(self) -> bool:
        """Whether the tables of a ledger are there."""
        if self.path is not None and not self.path.exists():
            return False
        with self.reading() as transaction:
            return self.database.table_names(transaction) >= tables.FIRST

    def create(self, first: Record) -> bool:
        """Create the tables with the first record, all or nothing; False if it is not empty."""
        if self.path is not None and self.path.exists():
            with self.reading() as transaction:
                if self.database.table_names(transaction):
                    return False
        with self._explained("written"):
            self._prepare_new()
        with self.writing() as transaction:
            self.database.lock_schema(transaction)
            names = self.database.table_names(transaction)
            if self.database.is_taken(names, set(tables.DEFINITIONS)):
                return False
            tables.create(transaction, set(tables.DEFINITIONS), self.database.binary)
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
            missing = set(tables.DEFINITIONS) - self.database.table_names(transaction)
        if not missing:
            return
        with self.writing() as transaction:
            self.database.lock_schema(transaction)
            missing = set(tables.DEFINITIONS) - self.database.table_names(transaction)
            tables.create(transaction, missing, self.database.binary)

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


# Owners: which process reserved a debit, and whether it can still answer
#
# A debit whose process died is burnt. Privacy does not depend on it: a burnt debit can no longer be
# answered, so burning too early wastes budget and burning too late makes a retry wait.

_UNKNOWN = "-"


@cache
def this_process() -> str:
    """Return "machine boot namespace pid start" of this process."""
    pid = os.getpid()
    return " ".join((*_place(), str(pid), _start_time(pid) or _UNKNOWN))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.cache_clear)


def is_gone(owner: str) -> bool:
    """Whether the process named by ``owner`` has certainly ended.

    That is certain on the same machine after another boot, or in the same boot and process
    namespace if no process has that number and start time. Where a system does not tell (no
    ``/proc``), a process number that is in use counts as alive.
    """
    parts = owner.split(" ")
    if len(parts) != 5 or not parts[3].isdecimal():
        return False
    machine, boot, namespace, number, start = parts
    here_machine, here_boot, here_namespace = _place()
    if machine != here_machine:
        return False
    if boot != here_boot:
        return _UNKNOWN not in (machine, boot, here_boot)
    if namespace != here_namespace:
        return False
    pid = int(number)
    if start == _UNKNOWN or not Path("/proc/self/stat").exists():
        return not _number_in_use(pid)
    return _start_time(pid) != start


def _place() -> tuple[str, str, str]:
    machine = _first_line("/etc/machine-id") or _UNKNOWN
    boot = _first_line("/proc/sys/kernel/random/boot_id") or _UNKNOWN
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).replace(" ", "")
    except OSError:
        namespace = _UNKNOWN
    return machine, boot, namespace


def _first_line(path: str) -> str | None:
    try:
        words = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError):
        return None
    return words[0] if words else None


def _start_time(pid: int) -> str | None:
    """Clock ticks from boot to the start of the process; None if it has ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may itself hold brackets and spaces: count from the last one.
    fields = line.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else start


def _number_in_use(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True, order=True)
class WitnessLine:
    """A line of the head file: the number and the hash of a record that was committed."""

    sequence: int
    hash: str


class LedgerWitness:
    """A head file; its last line is remembered as long as nobody else has changed the file."""

    __slots__ = ("_remembered", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remembered: tuple[_Mark | None, WitnessLine | None] = (None, None)

    def append(self, line: WitnessLine) -> None:
        """Append one line and wait until it is on the disk."""
        data = f"{line.sequence} {line.hash}\n".encode()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                before = os.fstat(file)
                size = before.st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    data = b"\n" + data  # a crash tore the last line; it must not swallow this one
                if os.write(file, data) != len(data):
                    raise OSError("short write")
                os.fsync(file)
                after = os.fstat(file)
            finally:
                os.close(file)
        except OSError as error:
            raise LedgerError(
                f"the head file {self.path} cannot be written ({error.strerror or error}); "
                "nothing was released; free space or fix its permissions"
            ) from None
        mark, last = self._remembered
        if _mark(before) == mark and after.st_size == size + len(data):
            self._remembered = (_mark(after), line if last is None else max(line, last))

    def last(self) -> WitnessLine | None:
        """Return the line with the largest number near the end; None if there is no line."""
        remembered, last = self._remembered
        data, mark = self._read(unless=remembered)
        if data is None:
            return last
        last = max(_parse(data), default=None)
        self._remembered = (mark, last)
        return last

    def all(self) -> Iterator[WitnessLine]:
        """Yield every complete line."""
        data, _ = self._read(whole=True)
        yield from _parse(data or b"")

    def _read(
        self, *, whole: bool = False, unless: _Mark | None = None
    ) -> tuple[bytes | None, _Mark | None]:
        """The end of the file or all of it, and its mark; no bytes if the mark is ``unless``."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                mark, size = _mark(status), status.st_size
                if mark == unless:
                    return None, mark
                if whole or size <= LIMITS.witness_tail_bytes:
                    return file.read(), mark
                file.seek(size - LIMITS.witness_tail_bytes)
                return file.read().partition(b"\n")[2], mark  # without the line that was cut
        except FileNotFoundError:
            return b"", None
        except OSError as error:
            raise LedgerError(
                f"the head file {self.path} cannot be read ({error.strerror or error}); "
                "fix its permissions"
            ) from None


_Mark: TypeAlias = tuple[int, int, int]
"""What tells that a file is the same and unchanged: its number, its size, its time of change."""


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _parse(data: bytes) -> Iterator[WitnessLine]:
    for line in data.decode("ascii", "replace").split("\n")[:-1]:
        number, _, digest = line.partition(" ")
        if number.isdecimal() and len(digest) == 64:  # a torn line is no line
            yield WitnessLine(int(number), digest)
