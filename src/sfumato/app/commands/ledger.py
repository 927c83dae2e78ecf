# SPDX-License-Identifier: Apache-2.0
"""``sfumato ledger show`` and ``sfumato ledger verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.app.output import Output
from sfumato.app.show import budget_document, facts, heading, table
from sfumato.budget.ledger import Ledger
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sfumato.budget.entries import Entry

__all__ = ["show", "verify"]


def show(path: str, output: Output) -> None:
    """What a ledger allows, what was spent by which release, and what is left."""
    book = _opened(path)
    entries, spent, remaining = book.entries(), book.spent(), book.remaining()
    document: dict[str, object] = {
        "ledger": path,
        "table": book.table_id,
        "neighbours": book.neighbours,
        "budget": budget_document(book.budget),
        "spent_share": float(spent.share),
        "spent_epsilon": spent.epsilon,
        "remaining": {
            "share": float(remaining.share),
            "gaussian_mu": remaining.gaussian_mu,
            "pure_epsilon": float(remaining.pure_epsilon),
        },
        "entries": [_entry_document(e) for e in entries],
    }
    output.result(
        document,
        heading(f"Ledger {path}"),
        facts(
            [
                ("table", book.table_id),
                ("neighbours", book.neighbours),
                ("total", book.budget.describe()),
                ("spent", f"{float(100 * spent.share):.4g}% by {_debits(spent.debits)}"),
                ("left", remaining.describe()),
            ]
        ),
        table(
            ["debit", "time", "state", "cost", "key"],
            (
                (
                    str(e.sequence),
                    e.time[:19].replace("T", " "),
                    e.state,
                    e.cost.describe(),
                    e.key if len(e.key) <= 20 else f"{e.key[:12]}...",
                )
                for e in entries
            ),
            text_columns=5,
        ),
    )


def verify(path: str, output: Output) -> None:
    """Replay a ledger; a ledger with problems is a ``LedgerError`` that lists them."""
    found = _opened(path).verify()
    if found.problems:
        listed = "\n".join(f"  {problem}" for problem in found.problems)
        raise LedgerError(
            f"the ledger {path} is damaged; restore the newest backup and do not release from it\n"
            f"{listed}"
        )
    share = found.spent_units / found.total_units
    output.result(
        {
            "ledger": path,
            "is_whole": found.is_whole,
            "records": found.records,
            "answered": found.answered,
            "reserved": found.reserved,
            "burnt": found.burnt,
            "spent_share": share,
            "head": found.head,
            "head_file_checked": found.head_file_checked,
        },
        heading(f"Ledger {path} is whole"),
        facts(
            [
                ("records", f"{found.records}, each hash and each cost recomputed"),
                (
                    "releases",
                    f"{found.answered} answered, {found.reserved} under way, {found.burnt} burnt",
                ),
                ("spent", f"{100 * share:.4g}%"),
                ("head", found.head),
                (
                    "head file",
                    "agrees" if found.head_file_checked else "not there: rollback is not excluded",
                ),
            ]
        ),
    )


def _opened(path: str) -> Ledger:
    if not Ledger.exists(path):
        raise LedgerError(f"there is no ledger at {path}; check the path")
    return Ledger.open(path)


def _debits(number: int) -> str:
    return "1 release" if number == 1 else f"{number} releases"


def _entry_document(entry: Entry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "state": entry.state,
        "cost": entry.cost.as_json(),
        "key": entry.key,
        "hash": entry.hash,
    }
