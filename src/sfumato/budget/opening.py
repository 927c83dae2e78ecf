# SPDX-License-Identifier: Apache-2.0
"""The ledger that a request on a table is debited in: found, never made by accident.

A ledger that is not there is not a fresh budget: a typo in a path would be one. So a path is only
opened, and the error for one that leads nowhere has the command that creates it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.budget import Budget, Neighbours
from sfumato.budget.budget import number_text
from sfumato.budget.entries import Entry
from sfumato.budget.ledger import Ledger
from sfumato.domain.unit import Unit
from sfumato.errors import LedgerError

QUERY_HASH: Final = re.compile(r"(?<=^query) [0-9a-f]{12}(?= on )")
"""In the name of a query: the hash of its text. Ledgers of earlier versions have it without."""

__all__ = [
    "QUERY_HASH",
    "Terms",
    "check_total",
    "ledger_of",
    "obey_total",
    "paid_entry",
    "raise_command",
]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a ledger is opened with, or must have been: the total is that of a new one."""

    table_id: str
    neighbours: Neighbours
    unit: Unit
    total: Budget

    def open(self, place: str | Path, *, keep_open: bool = False, advice: str = "") -> Ledger:
        """Return the ledger at a place, which must be there and of this table.

        The unit is compared by the first new debit: what is stored stays readable.
        """
        if not Ledger.exists(place):
            raise LedgerError(
                f"there is no ledger at {place}, and nothing was spent. Check the path; a new "
                f"ledger is a new budget, so it is created by a command of its own:\n  "
                f"{self.command(place)}{advice}"
            )
        ledger = Ledger.open(place, keep_open=keep_open)
        _check_whose(ledger, self.table_id, self.neighbours)
        return ledger

    def create(self, place: str | Path, *, keep_open: bool = False) -> Ledger:
        """Create the ledger; its folder too, if it has none."""
        if "://" not in str(place):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
        whose = (self.total, self.table_id, self.neighbours)
        return Ledger.create(place, *whose, unit=self.unit, keep_open=keep_open)

    def open_or_create(self, place: str | Path, *, keep_open: bool = False) -> Ledger:
        """Create the ledger, or open it if another process was faster."""
        try:
            return self.create(place, keep_open=keep_open)
        except LedgerError:
            if not Ledger.exists(place):
                raise
        return self.open(place, keep_open=keep_open)

    def command(self, place: str | Path) -> str:
        """Return the command that creates it."""
        words = ["sfumato", "ledger", "create", str(place), "--table", self.table_id]
        words += _amounts(self.total)
        if self.neighbours != "add-remove":
            words += ["--neighbours", self.neighbours]
        if isinstance(self.unit, str):
            words += ["--unit", self.unit]
        else:
            words += ["--unit", self.unit.column, "--rows-per-unit", str(self.unit.rows)]
        return shlex.join(words)


def raise_command(place: str | Path, total: Budget) -> str:
    """Return the command that sets a larger total."""
    words = ["sfumato", "ledger", "raise", str(place), *_amounts(total)]
    return f"{shlex.join(words)} --reason 'WHY'"


def _amounts(budget: Budget) -> list[str]:
    parts = [part for name, value in budget.as_json().items() for part in (f"--{name}", value)]
    return [_decimal(part) if not part.startswith("--") else part for part in parts]


def _decimal(value: str) -> str:
    """A fraction as people write it, if that is exactly the same number."""
    text = number_text(Fraction(value))
    return text if Fraction(text) == Fraction(value) else value


def obey_total(ledger: Ledger, total: Budget, told_by: str) -> bool:
    """Bring a ledger to the total that its configuration gives; return whether it changed.

    A lower one takes effect and is recorded. Any other is refused with the command that sets it:
    a larger budget is a weaker promise, which nobody should make by editing a file.
    """
    check_total(ledger, total, told_by)
    total = total.with_lanes_of(ledger.budget)
    if total == ledger.budget:
        return False
    ledger.set_total(total, f"lowered in {Path(told_by).name}"[:200], by="configuration")
    return True


def check_total(ledger: Ledger, total: Budget, told_by: str) -> None:
    """Refuse a configured total that is neither the ledger's nor a lower one.

    One without lanes is compared as one with the lanes that the ledger was opened with.
    """
    held = ledger.budget
    if total.with_lanes_of(held).is_within(held):
        return
    raise LedgerError(
        f"{told_by} gives a total of {total.describe()}, the ledger {ledger.place} has "
        f"{held.describe()}. A total that is not lower is set by a command, which the ledger "
        f"records:\n  {raise_command(ledger.place, total)}\nOr write the ledger's total."
    )


def ledger_of(
    ledger: Ledger | str | Path | None,
    name: str | None,
    neighbours: Neighbours,
    budget: Budget,
    unit: Unit,
    *,
    keep_open: bool = False,
) -> Ledger | None:
    """Return the ledger of a table; a path must lead to one.

    Args:
        ledger: An open ledger, a path or an address; None for none.
        name: The name of the table; None for one in memory that nobody has named.
        neighbours: Those of the plan.
        budget: That of the plan, for the command that creates a missing ledger.
        unit: That of the plan, likewise.
        keep_open: Whether a ledger that is opened here stays open between calls.

    Raises:
        LedgerError: If there is no ledger, the table has no name, or it is not the ledger's.
    """
    if ledger is None:
        return None
    if name is None:
        held = (
            f" (this ledger's table is {ledger.table_id!r})" if isinstance(ledger, Ledger) else ""
        )
        raise LedgerError(
            "a table in memory, or an expression, has no name of its own, so a ledger could not "
            f"tell it from another one and would give the other one's answers; say name=...{held}"
        )
    if not isinstance(ledger, Ledger):
        return Terms(name, neighbours, unit, budget).open(
            ledger, keep_open=keep_open, advice=_in_python(ledger, name, neighbours, unit, budget)
        )
    _check_whose(ledger, name, neighbours)
    return ledger


def _check_whose(ledger: Ledger, name: str, neighbours: Neighbours) -> None:
    """Refuse the ledger of another table or neighbour relation."""
    if not _is_same_table(ledger.table_id, name):
        raise LedgerError(
            f"the ledger {ledger.place} belongs to table {ledger.table_id!r}, this table is "
            f"{name!r}; use its own ledger, or say name={ledger.table_id!r} if it is the same table"
        )
    if ledger.neighbours != neighbours:
        raise LedgerError(
            f"the ledger {ledger.place} counts {ledger.neighbours} neighbours, the plan "
            f"{neighbours}; plan with the ledger's, or use another ledger"
        )


def _is_same_table(held: str, name: str) -> bool:
    """Whether two names are of one table: a query without the hash of its text is any."""
    if held == name:
        return True
    plain = [QUERY_HASH.sub("", each) for each in (held, name)]
    return plain[0] == plain[1] and (held in plain or name in plain)


def _in_python(
    place: str | Path, name: str, neighbours: Neighbours, unit: Unit, budget: Budget
) -> str:
    parts = ", ".join(f'{key}="{_decimal(v)}"' for key, v in budget.as_json().items())
    about = "" if neighbours == "add-remove" else f', "{neighbours}"'
    whose = repr(unit) if isinstance(unit, str) else f"sf.PrivacyUnit({unit.column!r}, {unit.rows})"
    return (
        f"\nor in Python:\n  sf.Ledger.create({str(place)!r}, sf.Budget({parts}), {name!r}{about}, "
        f"unit={whose})"
    )


def paid_entry(book: Ledger, key: str) -> Entry:
    """The debit that paid for an answer: the last one of its key."""
    entry = book.entry(key)
    if entry is None:
        raise LedgerError("the debit of this request has gone from its ledger; verify the ledger")
    return entry
