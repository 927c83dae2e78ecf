# SPDX-License-Identifier: Apache-2.0
"""The ledger that a release on a table is debited in, and what it has kept of one."""

from __future__ import annotations

from pathlib import Path

from sfumato.budget import Budget, Neighbours
from sfumato.budget.entries import Entry
from sfumato.budget.ledger import Ledger
from sfumato.domain.unit import Unit
from sfumato.errors import LedgerError

__all__ = ["ledger_of", "never_drawn", "paid_entry"]


def ledger_of(
    ledger: Ledger | str | Path | None,
    table_id: str,
    is_told: bool,
    neighbours: Neighbours,
    budget: Budget,
    unit: Unit,
    *,
    keep_open: bool = False,
) -> Ledger | None:
    """The ledger of this table; a new file gets the plan's budget as its total.

    A dataframe has no name of its own: with an opened ledger it is taken to be the ledger's table.
    """
    if ledger is None:
        return None
    if not isinstance(ledger, Ledger):
        if not Ledger.exists(ledger):
            return Ledger.create(
                ledger, budget, table_id, neighbours, unit=unit, keep_open=keep_open
            )
        return Ledger.open_or_create(ledger, table_id, neighbours, budget, keep_open=keep_open)
    if is_told and ledger.table_id != table_id:
        raise LedgerError(
            f"the ledger belongs to table {ledger.table_id!r}, this table is {table_id!r}; use its "
            f"own ledger, or say name={ledger.table_id!r} if it is the same table"
        )
    if ledger.neighbours != neighbours:
        raise LedgerError(
            f"the ledger counts {ledger.neighbours} neighbours, the plan {neighbours}; plan with "
            "the ledger's, or use another ledger"
        )
    return ledger


def paid_entry(book: Ledger, key: str) -> Entry:
    """The debit that paid for an answer: the last one of its key."""
    entry = book.entry(key)
    if entry is None:
        raise LedgerError("the debit of this request has gone from its ledger; verify the ledger")
    return entry


def never_drawn() -> bytes:
    """In place of a draw, where the answer must be a stored one."""
    raise LedgerError("the stored answer of this request has gone; it is not drawn again")
