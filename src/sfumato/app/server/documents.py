# SPDX-License-Identifier: Apache-2.0
"""Documents as they are sent: public numbers as JSON."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.budget import Entry
    from sfumato.budget.account import Remaining
    from sfumato.release import Release

__all__ = ["canonical", "columns_of", "entry_document", "remaining_document"]


def canonical(document: object) -> bytes:
    """A document as the bytes that are sent and kept."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def remaining_document(remaining: Remaining) -> dict[str, float | None]:
    """What one more debit may take: the share of all that is left, and of each lane if there are.

    ``gaussian_epsilon`` is the largest epsilon of Gaussian noise at the delta of the budget.
    """
    found = {
        "share": float(remaining.share),
        "gaussian_mu": remaining.gaussian_mu,
        "gaussian_epsilon": None,
        "pure_epsilon": float(remaining.pure_epsilon),
    }
    if remaining.delta and remaining.gaussian_mu is not None:
        found["gaussian_epsilon"] = float(remaining.epsilon("gaussian"))
    return found | {f"{lane.kind}_lane": float(lane.left) for lane in remaining.lanes}


def columns_of(result: Release, level: float) -> dict[str, list[object]]:
    """The long table of answers, column by column; a number that is none is null."""
    table = result.to_arrow(level)
    return {
        name: [
            None if isinstance(value, float) and not isfinite(value) else value
            for value in column.to_pylist()
        ]
        for name, column in zip(table.column_names, table.itercolumns(), strict=True)
    }


def entry_document(entry: Entry) -> dict[str, object]:
    """A debit and what became of it."""
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "analyst": entry.analyst,
        "state": entry.state,
        "cost": entry.cost.as_json(),
        "key": entry.key,
        "hash": entry.hash,
    }
