# SPDX-License-Identifier: Apache-2.0
"""``sfumato release``: everything that can be refused is refused before anything is spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.files import check_folder
from sfumato.app.output import Output
from sfumato.app.publish import publish, published_document, published_facts
from sfumato.app.show import heading
from sfumato.app.spec import LedgerSpec, Spec, read_spec
from sfumato.domain.privacy_unit import unit_of
from sfumato.errors import BudgetExhausted, LedgerError, PlanError
from sfumato.ledger.account import Account
from sfumato.ledger.entries import check_name
from sfumato.ledger.ledger import Terms, obey_total
from sfumato.text import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table as Shown

    from sfumato.app.progress import Bars
    from sfumato.ledger.ledger import Ledger
    from sfumato.refine.intervals import Intervals
    from sfumato.run.adaptive import AdaptivePlan
    from sfumato.run.linear import Plan
    from sfumato.vault.tables import Table

__all__ = [
    "Wishes",
    "release",
]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for beside the spec."""

    out: Path | None = None
    ledger: str | None = None
    no_ledger: bool = False
    notebook: bool = False
    synthetic: int | None = None
    key: str | None = None
    yes: bool = False
    intervals: str | None = None
    csv: bool = False


def release(
    path: Path, mechanism: str | None, error: float | None, wishes: Wishes, output: Output
) -> None:
    """Plan, check, ask, release, write.

    Privacy: that of ``Plan.release``; what is shown depends on public numbers only.
    """
    from sfumato.refine.drawn_records import check_records
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table, public_name

    spec = read_spec(path).asking(mechanism, error)
    _intervals(spec, wishes)
    if wishes.synthetic is not None:
        check_records(spec.domain, wishes.synthetic)
    if wishes.key is not None:
        check_name(wishes.key, "--key")
    at = _ledger(spec, wishes)
    out = wishes.out or spec.out
    check_folder(out)
    plan = _plan(spec, at, wishes, output)

    table = open_table(spec.table())
    check_columns(table, spec.domain, spec.unit)
    plan = _for_table(plan, table, output)
    name = name_of(table, spec.name) or public_name(table)
    book = None if at is None else _book(at, plan, name, spec)
    is_stored = book is not None and book.answer(wishes.key or plan.digest()) is not None
    if book is not None and not is_stored:
        book.check_unit(unit_of(plan.unit))
        if wishes.key is None:
            _check_new(book, plan)
        _check_left(book, plan)
    if table.untyped:
        output.note(
            f"{table.name}: what cannot be read (not UTF-8, another number of values than the "
            "first line) is a record of nulls, which go where the schema says."
        )
    if not (is_stored or wishes.yes):
        output.confirm(_question(plan, at, book))
    if at is not None and book is None:
        book = _terms(at, plan, name).open_or_create(at.path)
        output.note(f"Created the ledger {at.path} with a total of {book.budget.describe()}.")

    job = _Job(spec, wishes, out, table, name, book)
    try:
        with output.bars() as bars:
            document, shown = job.run(plan, bars)
    except KeyboardInterrupt:
        output.note(_interrupted(book, wishes.key or plan.digest()))
        raise
    queries = plan.workload.queries
    answers = "1 answer" if queries == 1 else f"{queries:,} answers"
    remark = STORED if document["is_stored"] else ""
    output.result(document, heading(f"Released {answers}", remark), shown)


@dataclass(frozen=True, slots=True)
class _Job:
    """A release that nothing speaks against."""

    spec: Spec
    wishes: Wishes
    out: Path
    table: Table
    name: str
    book: Ledger | None

    def run(self, plan: Plan | AdaptivePlan, bars: Bars) -> tuple[dict[str, object], Shown]:
        """Count, debit, measure, write; what to say about it."""
        from sfumato.run.linear import Plan

        return self._planned(plan, bars) if isinstance(plan, Plan) else self._adaptive(plan, bars)

    def _planned(self, plan: Plan, bars: Bars) -> tuple[dict[str, object], Shown]:
        spec, wishes = self.spec, self.wishes
        result = plan.release(
            self.table,
            ledger=self.book,
            project=spec.project,
            constraints=spec.constraints,
            intervals=_intervals(spec, wishes),
            public=spec.public,
            name=self.name,
            key=wishes.key,
            progress=bars.of_release(),
        )
        notebook_of = spec.path if wishes.notebook else None
        files = publish(result, self.out, spec.level, wishes.synthetic, notebook_of, wishes.csv)
        said = (result, files, self.book, result.is_stored)
        return published_document(*said), published_facts(*said)

    def _adaptive(self, plan: AdaptivePlan, bars: Bars) -> tuple[dict[str, object], Shown]:
        from sfumato.app.adaptive import adaptive_published_document, adaptive_published_facts

        result = plan.release(
            self.table,
            ledger=self.book,
            constraints=self.spec.constraints,
            name=self.name,
            key=self.wishes.key,
            progress=bars.of_release(),
        )
        wanted = self.wishes.synthetic
        synthetic = False if wanted is None else wanted
        csv = self.wishes.csv
        files = result.save(self.out, level=self.spec.level, synthetic=synthetic, csv=csv)
        said = (plan, result, files, self.book, result.is_stored)
        return adaptive_published_document(*said), adaptive_published_facts(*said)


def _plan(spec: Spec, at: LedgerSpec | None, wishes: Wishes, output: Output) -> Plan | AdaptivePlan:
    """The plan, one that fits what is left in an existing ledger."""
    from sfumato.ledger.ledger import Ledger

    if spec.adaptive is None:
        book = Ledger.open(at.path) if at is not None and Ledger.exists(at.path) else None
        with output.bars() as bars:
            return spec.plan(bars.phase("planning"), ledger=book, key=wishes.key)
    if wishes.notebook:
        raise PlanError(
            "a notebook shows a forecast, and an adaptive release has none; leave --notebook out"
        )
    if wishes.intervals is not None:
        raise PlanError(
            "an adaptive release has intervals for what it measured, from its noise; leave "
            "--intervals out"
        )
    return spec.plan_adaptive()


def _intervals(spec: Spec, wishes: Wishes) -> Intervals:
    if wishes.intervals is None:
        return spec.intervals
    if wishes.intervals in ("noise", "bootstrap"):
        return "noise" if wishes.intervals == "noise" else "bootstrap"
    raise PlanError(
        "--intervals is noise (they hold as often as they say) or bootstrap (approximate), got "
        f"{wishes.intervals!r}"
    )


def _for_table(plan: Plan | AdaptivePlan, table: Table, output: Output) -> Plan | AdaptivePlan:
    """The plan for this very table: of a view, records may be missing, as of a query."""
    from sfumato.run.linear import Plan

    found = plan.for_source(table) if isinstance(plan, Plan) else plan
    if found is not plan:
        output.note(
            f"{table.name} is a view or an expression, which may drop records: their number is "
            "private under replace-one neighbours, and the release is planned for that."
        )
    return found


def _ledger(spec: Spec, wishes: Wishes) -> LedgerSpec | None:
    """The ledger that is debited; None only if that was asked for."""
    if wishes.no_ledger:
        if wishes.ledger is not None:
            raise LedgerError("--ledger and --no-ledger are both given; keep one of them")
        return None
    if wishes.ledger is not None:
        total = None if spec.ledger is None else spec.ledger.total
        return LedgerSpec(wishes.ledger, None, total_if_new=total)
    if spec.ledger is None:
        raise LedgerError(
            f"{spec.path} names no ledger, so nothing would remember what this release spends; add "
            'a table [ledger] with path = "NAME.ledger", or give --ledger PATH, or give '
            "--no-ledger if you keep track of the budget yourself"
        )
    return spec.ledger


def _terms(at: LedgerSpec, plan: Plan | AdaptivePlan, table_id: str) -> Terms:
    """What the ledger of this release is opened with if it is new."""
    unit = unit_of(plan.unit)
    return Terms(table_id, plan.neighbours, unit, at.total or at.total_if_new or plan.budget)


def _book(at: LedgerSpec, plan: Plan | AdaptivePlan, table_id: str, spec: Spec) -> Ledger | None:
    """The ledger of this table; None if the spec says that it is to be created.

    A new one is created only if this release fits into it, and after somebody has agreed.
    """
    from sfumato.ledger.ledger import Ledger

    terms = _terms(at, plan, table_id)
    if not at.create or Ledger.exists(at.path):
        advice = f"\nor add create = true to the table [ledger] of {spec.path}"
        book = terms.open(at.path, advice=advice if spec.ledger == at else "")
        if at.total is not None:
            obey_total(book, at.total, str(spec.path))
        return book
    fresh = Account(terms.total)
    if fresh.plus(plan.cost).is_overdrawn:
        raise BudgetExhausted(fresh.refusal(plan.cost))
    if "://" not in at.path:
        check_folder(Path(at.path).parent)
    return None


def _check_new(book: Ledger, plan: Plan | AdaptivePlan) -> None:
    """Refuse to pay twice for one request unless a key says that this is meant.

    A time limit, or the rounding of another machine, can lead to another strategy: then the plan
    has another digest though nothing else was asked for.
    """
    request = json.loads(json.dumps(plan.request()))
    for entry in book.entries():
        found = json.loads(entry.request)
        if entry.state == "answered" and _asked(found) == _asked(request):
            how = (
                f"give --key {entry.key} to read its answer for nothing"
                if found == request
                else "by another strategy, as a time limit or another machine can lead to; read "
                "the files of that release"
            )
            raise LedgerError(
                f"entry {entry.sequence} of {book.place} has released these questions with this "
                f"budget already; {how}, or --key with a new name to spend again"
            )


def _asked(request: Mapping[str, object]) -> dict[str, object]:
    """What was asked for, without what the planner made of it."""
    return {name: value for name, value in request.items() if name not in ("strategy", "noise")}


def _check_left(book: Ledger, plan: Plan | AdaptivePlan) -> None:
    """Refuse before the table is read; the debit itself checks again, in one transaction."""
    from sfumato.release.provenance import cost_in_words

    price = book.price(plan.cost, delta=plan.budget.delta)
    if not price.fits:
        raise BudgetExhausted(
            f"budget refused: this release costs {cost_in_words(plan.cost, plan.budget)}, it "
            f"{price.describe()}; of the total {book.budget.describe()} in {book.place}, "
            f"{book.remaining().describe()}; lower the cost or ask the curator"
        )


def _interrupted(book: Ledger | None, key: str) -> str:
    """What an interrupted release has spent."""
    if book is None:
        return "There is no ledger: unless it was still counting, take the budget as spent."
    if book.answer(key) is not None:
        return "The answer is in the ledger: the same command again costs nothing."
    if any(entry.key == key for entry in book.entries()):
        return f"The debit is in {book.place}, its answer is lost: that much is spent."
    return "Nothing was spent."


def _question(plan: Plan | AdaptivePlan, at: LedgerSpec | None, book: Ledger | None) -> str:
    """What is about to be spent, in one line."""
    from sfumato.release.provenance import cost_in_words

    left = ""
    if book is not None:
        price = book.price(plan.cost, delta=plan.budget.delta)
        left = f" It {price.describe()} (total {book.budget.describe()})."
        within = getattr(plan, "in_ledger", None)
        if within is not None and within.refused is not None:
            left += f" {within.describe().partition('; ')[2]}."
    elif at is not None:
        total = at.total or at.total_if_new or plan.budget
        left = f" The ledger {at.path} is created with a total of {total.describe()}."
    return f"This release spends {cost_in_words(plan.cost, plan.budget)}.{left}"
