# SPDX-License-Identifier: Apache-2.0
"""Where a test keeps its ledger: a SQLite file, or a schema of a real PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget

_NUMBERS = itertools.count()


def made(place, budget, table_id, neighbours="add-remove", **more):
    """The place, with a ledger at it: a new one if there was none."""
    if not Ledger.exists(place):
        Ledger.create(place, budget, table_id, neighbours, **more).close()
    return place


@dataclass(frozen=True)
class Home:
    """A place for one ledger and its head file, and a way in behind its back."""

    place: str
    head: Path
    kind: str
    server: str | None = None

    @classmethod
    def at(cls, kind, folder, server, name="t"):
        if kind == "sqlite":
            return cls(str(folder / f"{name}.ledger"), folder / f"{name}.ledger.head", kind)
        import psycopg

        schema = f"t{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        place = f"{server}&options=-csearch_path%3D{schema}&application_name={schema}"
        return cls(place, folder / f"{name}.ledger.head", kind, server)

    def another(self, folder, name):
        """A place for another ledger on the same database."""
        return Home.at(self.kind, folder, self.server, name)

    def wait_until_alone(self):
        """Until the server has noticed that killed processes are gone."""
        while self.kind == "postgresql" and self._others():
            os.sched_yield()

    def _others(self):
        ((count,),) = self.rows(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
            "AND pid <> pg_backend_pid() AND application_name = current_setting('application_name')"
        )
        return count

    def create(self, budget=None, table_id="t", neighbours="add-remove", **more):
        budget = Budget(epsilon=1) if budget is None else budget
        return Ledger.create(self.place, budget, table_id, neighbours, head=self.head, **more)

    def open(self, **more):
        return Ledger.open(self.place, head=self.head, **more)

    def open_or_create(self, *arguments, **more):
        return Ledger.open_or_create(self.place, *arguments, head=self.head, **more)

    def change(self, statement, values=()):
        """Run a statement behind the ledger's back; ``?`` stands for a value."""
        self._run(statement, values)

    def rows(self, statement, values=()):
        """What a query finds."""
        return self._run(statement, values)

    def _run(self, statement, values):
        if self.kind == "sqlite":
            connection = sqlite3.connect(self.place, isolation_level=None, timeout=600)
            try:
                connection.execute("PRAGMA synchronous = OFF")  # an attacker need not be durable
                return connection.execute(statement, values).fetchall()
            finally:
                connection.close()
        import psycopg

        with psycopg.connect(self.place, autocommit=True) as connection:
            # Bytes are written x'00' in SQLite.
            cursor = connection.execute(
                statement.replace("?", "%s").replace("x'00'", "'\\x00'::bytea"), values or None
            )
            return [] if cursor.description is None else cursor.fetchall()
