# SPDX-License-Identifier: Apache-2.0
"""What was answered, by key: the bytes that were sent, and which idempotency key meant what.

The ledger holds what was paid for and drawn; the shelf holds the answer as it went out, so that it
goes out again as the same bytes, on any machine and without another look at the table. All of it
is public. A shelf that is lost loses no budget: answers are made again from the ledger.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from sfumato.errors import LedgerError, SfumatoError

__all__ = ["Shelf"]

_TABLES = """
CREATE TABLE IF NOT EXISTS body (
    dataset TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (dataset, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bound (
    analyst TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT NULL, PRIMARY KEY (analyst, name)
) WITHOUT ROWID;
"""


class Shelf:
    """A small database, with the newest bodies in memory (``kept`` bytes of them)."""

    def __init__(self, path: Path, kept: int) -> None:
        self._lock = Lock()
        self._kept, self._held = kept, 0
        self._newest: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            # The ledger is the durable record; a body that is lost with the power is made again.
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_TABLES)
        except sqlite3.Error as error:
            raise SfumatoError(
                f"the server's state {path} cannot be opened ({type(error).__name__}); check the "
                "folder and its permissions, or name another file in [server] state"
            ) from None

    def body(self, dataset: str, key: str) -> bytes | None:
        """The bytes that were sent under a key, if any."""
        place = (dataset, key)
        with self._lock:
            held = self._newest.get(place)
            if held is not None:
                self._newest.move_to_end(place)
                return held
            query = "SELECT data FROM body WHERE dataset = ? AND key = ?"
            row = self._database.execute(query, place).fetchone()
            return None if row is None else self._remember(place, bytes(row[0]))

    def beginning(self, dataset: str, start: str) -> list[tuple[str, bytes]]:
        """All keys of a dataset that begin so, with their bytes."""
        query = "SELECT key, data FROM body WHERE dataset = ? AND substr(key, 1, ?) = ?"
        with self._lock:
            rows = self._database.execute(query, (dataset, len(start), start)).fetchall()
        return [(str(key), bytes(data)) for key, data in rows]

    def recent(self, dataset: str, key: str) -> bytes | None:
        """The bytes that are held in memory under a key, if any."""
        with self._lock:
            return self._newest.get((dataset, key))

    def remember(self, dataset: str, key: str, data: bytes) -> bytes:
        """Hold bytes in memory only: for what the ledger keeps for ever."""
        with self._lock:
            return self._remember((dataset, key), data)

    def keep(self, bodies: Iterable[tuple[str, str, bytes]]) -> list[bytes]:
        """Keep (dataset, key, bytes); where a key is taken, the earlier bytes stay.

        Returns, for each, the bytes that are to be sent.
        """
        given = list(bodies)
        insert = "INSERT INTO body VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        query = "SELECT data FROM body WHERE dataset = ? AND key = ?"
        with self._lock, self._writing():
            out = []
            for dataset, key, data in given:
                if self._database.execute(insert, (dataset, key, data)).rowcount != 1:
                    data = bytes(self._database.execute(query, (dataset, key)).fetchone()[0])
                out.append(self._remember((dataset, key), data))
            return out

    def bind(self, named: Iterable[tuple[str, str, str]]) -> list[bool]:
        """Bind idempotency keys: (analyst, name, request). False where it meant another request."""
        insert = "INSERT INTO bound VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        query = "SELECT request FROM bound WHERE analyst = ? AND name = ?"
        out = []
        with self._lock, self._writing():
            for analyst, name, request in named:
                is_new = self._database.execute(insert, (analyst, name, request)).rowcount == 1
                found = self._database.execute(query, (analyst, name)).fetchone()
                out.append(is_new or found[0] == request)
        return out

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def _remember(self, place: tuple[str, str], data: bytes) -> bytes:
        if place not in self._newest:
            self._held += len(data)
        self._newest[place] = data
        while self._held > self._kept and len(self._newest) > 1:
            self._held -= len(self._newest.popitem(last=False)[1])
        return data

    def _writing(self) -> _Transaction:
        return _Transaction(self._database)


class _Transaction:
    """One transaction: committed at its end, or undone."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise LedgerError(
                f"the server's state cannot be written ({type(error).__name__}); tell the curator"
            ) from None

    def __exit__(self, kind: object, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
