# SPDX-License-Identifier: Apache-2.0
"""``sfumato ledger``: create, raise, show, verify, freeze, unfreeze."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.files import check_folder
from sfumato.app.output import Output
from sfumato.app.show import budget_document, facts, heading, table
from sfumato.domain.privacy_unit import (
    PrivacyUnit,
    Unit,
    check_unit,
    unit_in_words,
    unit_json,
    unit_of,
)
from sfumato.errors import LedgerError
from sfumato.ledger.account import percent, shares_of
from sfumato.ledger.ledger import Ledger, Terms
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.release.provenance import cost_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from rich.table import Table

    from sfumato.ledger.account import Remaining
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.reader import Allowance

__all__ = [
    "create",
    "freeze",
    "raise_total",
    "show",
    "unfreeze",
    "verify",
]


UNBOUND = "not said yet: the first release binds its privacy unit"


def create(
    path: str | None,
    table_id: str | None,
    amounts: Mapping[str, str | None],
    neighbours: str,
    unit: str | None,
    rows_per_unit: int | None,
    spec: Path | None,
    output: Output,
) -> None:
    """Create the ledger that the options or a spec describe; an existing one is never touched."""
    if spec is None:
        if path is None or table_id is None:
            raise LedgerError(
                "a ledger needs a place and the name of its table: sfumato ledger create LEDGER "
                "--table NAME --epsilon 1, or --spec SPEC to take both from a spec"
            )
        total, protects = _budget(amounts), _unit(unit, rows_per_unit)
        _check_folder(path)
        book = Ledger.create(path, total, table_id, check_neighbours(neighbours), unit=protects)
    else:
        if any(v is not None for v in (table_id, unit, rows_per_unit, *amounts.values())):
            raise LedgerError("--spec says all of it; leave the other options out")
        place, terms = _from_spec(spec)
        path = path or place
        _check_folder(path)
        book = terms.create(path)
    bound = book.unit
    output.result(
        {
            "ledger": path,
            "table": book.table_id,
            "neighbours": book.neighbours,
            "unit": None if bound is None else unit_json(bound),
            "budget": budget_document(book.budget),
        },
        heading(f"Created ledger {path}"),
        facts(
            [
                ("table", book.table_id),
                ("neighbours", book.neighbours),
                ("protects", UNBOUND if bound is None else unit_in_words(bound)),
                ("total", book.budget.describe()),
            ]
        ),
    )


def _check_folder(path: str) -> None:
    if "://" not in path:
        check_folder(Path(path).parent)


def _from_spec(path: Path) -> tuple[str, Terms]:
    """Where the ledger of a spec is, and what it is opened with."""
    from sfumato.app.spec import read_spec
    from sfumato.vault.tables import name_of, public_name

    spec = read_spec(path, asks=False)
    if spec.ledger is None:
        raise LedgerError(
            f'{path} names no ledger; add a table [ledger] with path = "NAME.ledger", epsilon and '
            "delta to it"
        )
    total = spec.ledger.total or spec.budget
    if total is None:
        raise LedgerError(
            f"{path} asks for an error, not for a budget, so the total of its ledger is not known; "
            "add epsilon and delta to its table [ledger]"
        )
    name = name_of(spec.table(), spec.name) or public_name(spec.table())
    return spec.ledger.path, Terms(name, spec.neighbours, unit_of(spec.unit), total)


def raise_total(
    path: str, amounts: Mapping[str, str | None], reason: str, by: str | None, output: Output
) -> None:
    """Set a larger total; recorded in the ledger with who did it and why."""
    book = _opened(path)
    held = book.budget
    total = _budget(amounts).with_lanes_of(held)  # what is more is for pure noise, unless said
    if total.is_within(held):
        raise LedgerError(
            f"{total.describe()} is not more than the total of {path}, {held.describe()}; a lower "
            "total takes effect when the spec or the configuration of the server gives it"
        )
    who = by or getpass.getuser()
    book.set_total(total, reason, by=who)
    left = book.remaining()
    output.result(
        {
            "ledger": path,
            "before": budget_document(held),
            "budget": budget_document(total),
            "by": who,
            "reason": reason,
            "remaining": _remaining_document(left),
        },
        heading(f"Ledger {path} has another total"),
        facts(
            [
                ("before", held.describe()),
                ("total", total.describe()),
                ("by", who),
                ("reason", reason),
                ("left", left.describe()),
            ]
        ),
    )


def _budget(amounts: Mapping[str, str | None]) -> Budget:
    return Budget(**{name: value for name, value in amounts.items() if value is not None})


def _unit(named: str | None, rows: int | None) -> Unit | None:
    if rows is not None:
        if named is None:
            raise LedgerError("--rows-per-unit is the bound of a column; name it with --unit")
        return PrivacyUnit(named, rows)
    if named is None or named in ("row", "event"):
        return None if named is None else check_unit(named)
    raise LedgerError(
        f"--unit {named} is a column, and needs a bound on the rows of one unit; give "
        "--rows-per-unit, or --unit row or --unit event"
    )


def show(path: str, output: Output) -> None:
    """What a ledger allows, what was spent by which release, and what is left."""
    book = _opened(path)
    entries, spent, remaining = book.entries(), book.spent(), book.remaining()
    changes = book.changes()
    shares = shares_of(book.budget, (e.cost for e in entries))
    allowances, is_frozen, unit = book.allowances(), book.is_frozen(), book.unit
    document: dict[str, object] = {
        "ledger": path,
        "table": book.table_id,
        "neighbours": book.neighbours,
        "unit": None if unit is None else unit_json(unit),
        "budget": budget_document(book.budget),
        "spent_share": float(spent.share),
        "spent_epsilon": spent.epsilon,
        "remaining": _remaining_document(remaining),
        "is_frozen": is_frozen,
        "allowances": [_allowance_document(a) for a in allowances],
        "entries": [
            _entry_document(e) | {"share": float(share)}
            for e, share in zip(entries, shares, strict=True)
        ],
        "changes": [
            {"sequence": c.sequence, "time": c.time, "what": c.describe()} for c in changes
        ],
    }
    output.result(
        document,
        heading(f"Ledger {path}"),
        facts(
            [
                ("table", book.table_id),
                ("neighbours", book.neighbours),
                ("protects", UNBOUND if unit is None else unit_in_words(unit)),
                ("total", book.budget.describe()),
                ("spent", f"{percent(spent.share)} by {_debits(spent.debits)}"),
                ("left", remaining.describe()),
                *([("frozen", "by its curator: stored answers only")] if is_frozen else []),
            ]
        ),
        *_allowance_tables(allowances),
        _entries_table(book.budget, entries, shares),
        *(
            [
                table(
                    ["record", "time", "changed by the curator"],
                    (
                        (str(c.sequence), c.time[:16].replace("T", " "), c.describe())
                        for c in changes
                    ),
                    text_columns=3,
                )
            ]
            if changes
            else []
        ),
    )


def _entries_table(budget: Budget, entries: Sequence[Entry], shares: Sequence[Fraction]) -> Table:
    """Every debit: the share of the total it takes, and what that was in epsilon, rho or mu."""
    has_analysts = any(e.analyst for e in entries)
    columns = ["debit", "time", "state", "takes", "cost", *["analyst"][:has_analysts], "key"]
    rows = (
        (
            str(e.sequence),
            e.time[:16].replace("T", " "),
            e.state,
            percent(share),
            cost_in_words(e.cost, budget).partition(" at ")[0],
            *[e.analyst or "-"][:has_analysts],
            e.key if len(e.key) <= 13 else f"{e.key[:12]}…",
        )
        for e, share in zip(entries, shares, strict=True)
    )
    return table(columns, rows, text_columns=len(columns))


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
            "free": found.free,
            "states": found.states,
            "is_frozen": found.is_frozen,
            "unit": None if found.unit is None else unit_json(found.unit),
            "debits_for_another_unit": list(found.other_unit),
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
                ("free answers", f"{found.free}, each hash recomputed"),
                ("private states", f"{found.states}, each as its salted hash says"),
                ("protects", UNBOUND if found.unit is None else unit_in_words(found.unit)),
                *([("but", _others(found.other_unit))] if found.other_unit else []),
                ("spent", f"{100 * share:.4g}%"),
                ("head", found.head),
                (
                    "head file",
                    "agrees" if found.head_file_checked else "not there: rollback is not excluded",
                ),
            ]
        ),
    )


def freeze(path: str, reason: str, output: Output) -> None:
    """Stop debits and free answers; recorded in the ledger with its reason."""
    _opened(path).freeze(reason)
    _tell(path, reason, output, is_frozen=True)


def unfreeze(path: str, reason: str, output: Output) -> None:
    """Let debits and free answers go on; recorded in the ledger with its reason."""
    _opened(path).unfreeze(reason)
    _tell(path, reason, output, is_frozen=False)


def _tell(path: str, reason: str, output: Output, *, is_frozen: bool) -> None:
    words = "frozen: stored answers only" if is_frozen else "not frozen any more"
    document: dict[str, object] = {"ledger": path, "is_frozen": is_frozen, "reason": reason}
    output.result(document, heading(f"Ledger {path} is {words}"))


def _opened(path: str) -> Ledger:
    if not Ledger.exists(path):
        raise LedgerError(f"there is no ledger at {path}; check the path")
    return Ledger.open(path)


def _others(debits: Sequence[int]) -> str:
    """What a reader must know of debits that an older version let in."""
    listed = ", ".join(map(str, debits[:8])) + (", ..." if len(debits) > 8 else "")
    return (
        f"debits of an older version were made for another unit ({listed}): their costs do not add "
        "to the others', so the total is not a promise for this unit"
    )


def _debits(number: int) -> str:
    return "1 release" if number == 1 else f"{number} releases"


def _allowance_tables(allowances: Sequence[Allowance]) -> list[Table]:
    if not allowances:
        return []
    rows = (
        (a.analyst, a.budget.describe(), percent(a.share), a.remaining().describe())
        for a in allowances
    )
    return [table(["analyst", "allowance", "spent", "left"], rows, text_columns=4)]


def _allowance_document(allowance: Allowance) -> dict[str, object]:
    return {
        "analyst": allowance.analyst,
        "budget": budget_document(allowance.budget),
        "spent_share": float(allowance.share),
        "remaining": _remaining_document(allowance.remaining()),
    }


def _remaining_document(left: Remaining) -> dict[str, object]:
    """What one more debit may take; the keys are those of the server."""
    has_epsilon = left.delta and left.gaussian_mu is not None
    return {
        "share": float(left.share),
        "gaussian_mu": left.gaussian_mu,
        "gaussian_epsilon": float(left.epsilon("gaussian")) if has_epsilon else None,
        "pure_epsilon": float(left.pure_epsilon),
        **{f"{lane.kind}_lane": float(lane.left) for lane in left.lanes},
    }


def _entry_document(entry: Entry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "state": entry.state,
        "cost": entry.cost.as_json(),
        "analyst": entry.analyst,
        "key": entry.key,
        "hash": entry.hash,
    }
