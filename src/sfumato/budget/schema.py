# SPDX-License-Identifier: Apache-2.0
"""The tables of a ledger, on SQLite and PostgreSQL.

    sfumato_record      the chain of `entries.Record` lines: the ledger itself
    sfumato_account     one row: the last record and the units spent. `advance` is one conditional
                        UPDATE, both check and debit, with a CHECK constraint as a second fence
    sfumato_request     which debit holds a key, and its stage
    sfumato_answer      the stored bytes of paid answers
    sfumato_free        the stored bytes of free answers
    sfumato_state       private states, with the salts of their hashes
    sfumato_allowance   the budgets of analysts and the units spent of them

Every table but the first is an index of the chain, or holds bytes whose hash is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sfumato.budget.store import Transaction

__all__ = ["DEFINITIONS", "FIRST", "create"]

FIRST: Final = frozenset({"sfumato_record", "sfumato_account", "sfumato_request", "sfumato_answer"})
"""The tables that every ledger has had from the start."""

DEFINITIONS: Final = {
    "sfumato_record": """
        sequence BIGINT NOT NULL PRIMARY KEY,
        hash VARCHAR(64) NOT NULL,
        text TEXT NOT NULL""",
    "sfumato_account": """
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
        sequence BIGINT NOT NULL,
        head VARCHAR(64) NOT NULL,
        spent BIGINT NOT NULL,
        total BIGINT NOT NULL,
        CONSTRAINT never_overspent CHECK (spent >= 0 AND spent <= total)""",
    "sfumato_request": """
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        debit BIGINT NOT NULL,
        state VARCHAR(8) NOT NULL,
        closed BIGINT""",
    "sfumato_answer": """
        debit BIGINT NOT NULL PRIMARY KEY,
        data {binary} NOT NULL""",
    "sfumato_free": """
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        sequence BIGINT NOT NULL,
        data {binary} NOT NULL""",
    "sfumato_state": """
        name VARCHAR(200) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        sequence BIGINT NOT NULL,
        salt {binary} NOT NULL,
        data {binary} NOT NULL""",
    "sfumato_allowance": """
        analyst VARCHAR(200) NOT NULL PRIMARY KEY,
        budget TEXT NOT NULL,
        spent BIGINT NOT NULL,
        pure_spent BIGINT""",
}


def create(transaction: Transaction, names: Iterable[str], binary: str) -> None:
    """Create some of the tables."""
    for name in sorted(names):
        columns = DEFINITIONS[name].replace("{binary}", binary)
        transaction.change(f"CREATE TABLE {name} ({columns})")
