# SPDX-License-Identifier: Apache-2.0
"""Every error that sfumato raises on purpose.

    SfumatoError            one clear message, exit code 2
      SchemaError           the domain or a TOML file does not say what it must
      WorkloadError         a query cannot be asked on this domain
        SqlError            a SQL construct that is not a linear query
      PlanError             no mechanism fits what was asked
        TooLarge            a request that cannot fit in memory, with its size and a way out
      BudgetError           a privacy parameter out of range
        BudgetExhausted     the ledger refuses the debit
      LedgerError           a ledger that is damaged, or of another table
        KeyHeld             a request that is answered, or that somebody else is answering
        LedgerFrozen        the curator has frozen the ledger
        StateChanged        a private state was written by somebody else meanwhile
      TableError            a table that cannot be opened or lacks a declared column
      ServerError           a server that refuses the caller, or cannot be reached

A message says what came, what is allowed and what to do next. It never holds a value, a count
or a row number of the data: messages depend on public inputs only. Of any other exception only
its type and the place in the code may be shown (``place_of``).
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "BudgetError",
    "BudgetExhausted",
    "KeyHeld",
    "LedgerError",
    "LedgerFrozen",
    "PlanError",
    "SchemaError",
    "ServerError",
    "SfumatoError",
    "SqlError",
    "StateChanged",
    "TableError",
    "TooLarge",
    "WorkloadError",
    "place_of",
    "places_of",
]


class SfumatoError(Exception):
    """The root of all errors that sfumato raises on purpose."""


class SchemaError(SfumatoError):
    """The domain or a TOML file does not say what it must."""


class WorkloadError(SfumatoError):
    """A query that cannot be asked on this domain."""


class SqlError(WorkloadError):
    """A SQL construct that is not a linear query over the domain."""


class PlanError(SfumatoError):
    """No mechanism fits what was asked."""


class TooLarge(PlanError):
    """A request that cannot fit in memory."""


class BudgetError(SfumatoError):
    """A privacy parameter out of range."""


class BudgetExhausted(BudgetError):
    """The ledger refuses the debit: it would overspend.

    Attributes:
        remaining: what a server says is left; None where the ledger itself refuses.
    """

    remaining: Mapping[str, float | None] | None = None


class LedgerError(SfumatoError):
    """A ledger that is damaged, or that belongs to another table."""


class KeyHeld(LedgerError):
    """A request key is answered already, or is being answered by somebody else."""


class LedgerFrozen(LedgerError):
    """The curator has frozen the ledger: stored answers only."""


class StateChanged(LedgerError):
    """A private state was written by somebody else since it was read."""


class TableError(SfumatoError):
    """A table that cannot be opened or lacks a declared column."""


class ServerError(SfumatoError):
    """A server that refuses the caller, or that cannot be reached."""


def place_of(error: Exception) -> str:
    """Return the line of code that raised an error, without its message and local variables."""
    return places_of(error)[-1]


def places_of(error: Exception) -> list[str]:
    """Return the lines of code that an error passed, the one that raised it last."""
    return [
        f"{_below_root(Path(frame.filename))}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ] or ["an unknown place"]


def _below_root(path: Path) -> Path:
    """A path below the package or the environment; the folders above it say nothing."""
    for root in ("site-packages", "src"):
        if root in path.parts:
            return Path(*path.parts[path.parts.index(root) + 1 :])
    return Path(path.name)
