# SPDX-License-Identifier: Apache-2.0
"""The limits of the ledger in one place, each with its reason.

No limit of this module can change what a record says or what a debit costs; units, versions and
the lengths of names are part of the format and stand where it is defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "LedgerLimits"]


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """How long a ledger waits, and how much it reads or writes at once."""

    # store: waiting for other processes
    lock_seconds: int = 60
    """A writer that waits longer for the others gives up: one transaction takes milliseconds."""
    values_per_statement: int = 500
    """Values of one SQL statement, well below what the oldest SQLite admits."""

    answer_looks: int = 300
    """How often whoever asks second looks for the answer that another one is drawing: 30 seconds,
    longer than the noise of all but the largest releases takes."""
    answer_pause: float = 0.1
    """Seconds between two of them."""

    # transaction: group commit
    changes_per_transaction: int = 256
    """Changes that share a commit; beyond it the disk is no longer what they wait for."""

    # store: the end of the head file
    witness_tail_bytes: int = 1 << 16
    """Lines of writers that were overtaken are at most this far from the end of the file."""


LIMITS: Final = LedgerLimits()
