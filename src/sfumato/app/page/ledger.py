# SPDX-License-Identifier: Apache-2.0
"""The page Ledger: what was spent and when; for curators also who may spend, verify and freeze."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from nicegui import ui

from sfumato.app.page.ask import gauge
from sfumato.app.page.chart import Chart
from sfumato.app.page.shell import Visitor, card, empty, facts, page, table, told, trouble, words
from sfumato.app.page.spending import allowances, budget_chart, freeze, spending, verified
from sfumato.budget.account import percent
from sfumato.budget.budget import number_text
from sfumato.release.provenance import cost_in_words

if TYPE_CHECKING:
    from sfumato.app.page.spending import Spending
    from sfumato.budget.verification import Verification

__all__ = ["register"]

SHOWN = 200  # entries in the table, the newest


def register() -> None:
    """Make the page."""

    @page("/ledger", "Ledger", "What was spent, by whom, and what is left.")
    async def _ledger(visitor: Visitor) -> None:
        if not visitor.datasets:
            empty("No dataset is open to you", "Ask your curator for one.")
            return
        await _Ledger(visitor).build()


class _Ledger:
    """One dataset at a time; curators see more of it, and more of them."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.name = visitor, visitor.datasets[0].name

    async def build(self) -> None:
        if self.visitor.who.is_curator:
            with card("Datasets"):
                self.overview = ui.element("div")
        names = [d.name for d in self.visitor.datasets]
        if len(names) > 1:
            ui.select(
                names, label="Dataset", value=self.name, on_change=lambda e: self._choose(e.value)
            ).props('aria-label="Dataset"').classes("narrow")
        self.shown = ui.element("div").classes("stack loose")
        await self.show()

    async def _choose(self, name: str) -> None:
        self.name = self.visitor.dataset(name).name
        await self.show()

    async def show(self) -> None:
        """Everything anew."""
        visitor = self.visitor
        with told(self.shown, clear=True):
            dataset = visitor.dataset(self.name)
            found = await visitor.on_ledger(dataset, spending, dataset, visitor.who)
            if found.is_frozen:
                words(
                    f"{self.name} is frozen: no new answers are given, stored ones stay readable.",
                    "warning",
                )
                if found.frozen:
                    words(f"{found.frozen}.", "note")
            with ui.element("div").classes("split"):
                self._left(found)
                with card("Budget over time", _spenders(found)):
                    _chart(found)
            if visitor.who.is_curator:
                await self._curators(found)
            with card("Entries", "Every debit, newest first; answers that were free are not here."):
                _entries(found)
        if visitor.who.is_curator:
            with told(self.overview, clear=True):
                await self._datasets()

    def _left(self, found: Spending) -> None:
        with card("What is left"):
            share = float(found.remaining.share)
            is_all = self.visitor.who.is_curator
            note = "of the table's budget" if is_all else "of what you may spend"
            gauge("Budget left", share, note)
            gone, own = found.spent
            by_whom = "" if is_all else f"{own:.1%} of it by you, as the chart shows"
            budget, pure = found.budget, found.budget.pure
            lanes = "" if pure is None else f", epsilon = {number_text(pure)} of it for pure noise"
            left, _, kinds = found.remaining.describe().partition(", ")
            facts(
                [
                    ("Budget", budget.promise.describe(), f"{_whose(found)}{lanes}"),
                    ("You can spend", left.removesuffix(" remains"), f"at once: {kinds}"),
                    ("Spent", f"{gone:.1%}", by_whom),
                    ("Debits", f"{len(found.entries):,}", "releases and paid answers"),
                ]
            )

    async def _datasets(self) -> None:
        rows = []
        for dataset in self.visitor.datasets:
            self.visitor.check()
            told_ = await self.visitor.house.shown(dataset, self.visitor.who)
            if told_["remaining"] is None:
                nothing = ("cannot be read", "-", "-")
                rows.append((dataset.name, dataset.dataset.about, *nothing))
                continue
            left = float(told_["remaining"]["share"])  # type: ignore[index]
            paid = told_["paid_answers"]
            rows.append(
                (
                    dataset.name,
                    dataset.dataset.about,
                    "frozen" if told_["is_frozen"] else "open",
                    "no session" if paid is None else str(paid),
                    percent(Fraction(left)),
                )
            )
        columns = ("dataset", "about", "state", "paid answers left", "budget left")
        table(columns, rows, "All datasets", texts=3)

    async def _curators(self, found: Spending) -> None:
        """Who may ask, the proof that the ledger is whole, and the brake."""
        visitor, dataset = self.visitor, self.visitor.dataset(self.name)
        with ui.element("div").classes("halves"):
            with card("Analysts", "Who may ask, and what is left to each of them."):
                rows = await visitor.on_ledger(dataset, allowances, visitor, dataset)
                table(("analyst", "role", "allowance", "left"), rows, "Who may ask", texts=3)
            with card("Proof and brake", "Both are for curators only."):
                with ui.element("div").classes("line"):
                    ui.button("Verify the ledger", on_click=self.verify).props("outline")
                    verb = "Unfreeze" if found.is_frozen else "Freeze"
                    ui.button(
                        f"{verb} {self.name}", on_click=lambda: self._confirm(found.is_frozen)
                    ).props("outline")
                self.proof = ui.element("div").classes("stack").props("aria-live=polite")

    async def verify(self) -> None:
        """Replay the chain and say what was found."""
        with told(self.proof, clear=True):
            _verified(await verified(self.visitor, self.name))

    def _confirm(self, is_frozen: bool) -> None:
        """Ask once more, with a reason, before anything is stopped or started."""
        verb, name = ("Unfreeze" if is_frozen else "Freeze"), self.name
        with ui.dialog(value=True) as dialog, ui.card():
            dialog.props(f'aria-label="{verb} {name}"').on("hide", dialog.delete)
            with ui.element("div").classes("stack"):
                ui.html(f"{verb} {name}?", sanitize=False, tag="h2")
                words(
                    "New questions and releases are possible again."
                    if is_frozen
                    else "No new answers are given to anybody until it is unfrozen. Stored ones "
                    "stay readable."
                )
                words("The reason is written into the ledger and stays there.", "note")
                reason = ui.input("Reason").props('aria-label="Reason" maxlength=200')
                status = ui.element("div")

                async def confirmed() -> None:
                    with told(status, clear=True):
                        await freeze(self.visitor, name, not is_frozen, reason.value or "")
                        dialog.close()
                        await self.show()

                with ui.element("div").classes("line"):
                    ui.button(f"{verb} now", on_click=confirmed)
                    ui.button("Cancel", on_click=dialog.close).props("outline")


def _whose(found: Spending) -> str:
    return "your allowance" if found.is_own else "of the table"


def _spenders(found: Spending) -> str:
    return _whose(found) if found.is_all or found.is_own else "what you spent of the table's"


def _chart(found: Spending) -> None:
    if not found.entries:
        empty("Nothing was spent yet", "The first release or paid answer appears here.")
        return
    spent = found.shares[-1]
    Chart(
        budget_chart(found),
        f"Budget spent over time: {len(found.entries)} debits, {spent:.1%} spent in all",
    )


def _entries(found: Spending) -> None:
    if not found.entries:
        words("There are none.", "note")
        return
    rows = [
        (
            str(e.sequence),
            e.time[:19].replace("T", " "),
            e.analyst or "-",
            e.state,
            percent(taken),
            cost_in_words(e.cost, found.budget),
            percent(Fraction(share)),
            e.key if len(e.key) <= 40 else f"{e.key[:24]}...",
        )
        for e, taken, share in zip(found.entries, found.taken, found.shares, strict=True)
    ]
    columns = ("debit", "time (UTC)", "analyst", "state", "takes", "cost", "spent so far", "key")
    table(columns, rows[::-1][:SHOWN], "Debits", texts=4)
    if len(rows) > SHOWN:
        words(f"The newest {SHOWN} of {len(rows):,}; GET /datasets/NAME/ledger has all.", "note")


def _verified(found: Verification) -> None:
    if found.problems:
        trouble("The ledger is damaged; restore the newest backup and do not release from it.")
        table(("what was found",), [(p,) for p in found.problems], "Faults of the ledger")
        return
    words("The ledger is whole: every record, hash and cost was computed again.", "promise")
    head = "agrees" if found.head_file_checked else "not there: rollback is not excluded"
    facts(
        [
            ("Records", f"{found.records:,}", f"head {found.head[:16]}..."),
            ("Debits answered", str(found.answered), f"{found.reserved} open, {found.burnt} burnt"),
            ("Free answers", f"{found.free:,}", "each hash computed again"),
            ("Spent", f"{found.spent_units / found.total_units:.2%}", f"head file: {head}"),
        ]
    )
