# SPDX-License-Identifier: Apache-2.0
"""The page Ledger: what was spent and when; for curators also who may spend, verify and freeze."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

from nicegui import ui
from pydantic import ValidationError

from sfumato.ledger.account import percent, shares_of
from sfumato.privacy.budget import number_text
from sfumato.release.provenance import cost_in_words
from sfumato_web.page.ask_page import asked_for, gauge, shorter
from sfumato_web.page.layout import (
    Chart,
    Link,
    Visitor,
    card,
    empty,
    facts,
    page,
    paragraph,
    showing_refusals,
    table,
    trouble,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.page.plan_draft import in_words
from sfumato_web.server.models import FreezeAsked
from sfumato_web.server.problems import not_curator, not_valid

if TYPE_CHECKING:
    import altair as alt

    from sfumato.ledger.account import Remaining
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.reader import Change, Verification
    from sfumato.privacy.budget import Budget
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset

__all__ = ["Spending", "allowances", "budget_chart", "freeze", "register", "spending", "verified"]


# What the page Ledger shows and does, by role; without how it is shown.
#
# Roles are checked here, in what is done, not in what is shown: an analyst sees their own debits,
# a curator sees all of them, verifies and freezes.


@dataclass(frozen=True, slots=True)
class Spending:
    """Debits, oldest first, and the share of the budget that was spent after each of them.

    ``budget`` is the table's for a curator, and an analyst's own if they have one. ``is_all`` says
    that these are the debits of everybody.
    """

    budget: Budget
    is_own: bool
    is_all: bool
    entries: tuple[Entry, ...]
    shares: tuple[float, ...]
    taken: tuple[Fraction, ...]
    remaining: Remaining
    is_frozen: bool
    frozen: str | None = None
    changes: tuple[Change, ...] = ()
    links: Mapping[int, Link] = field(default_factory=dict)

    @property
    def spent(self) -> tuple[float, float]:
        """The share of the budget that is gone, by whomever, and the part that is listed here."""
        own = self.shares[-1] if self.shares else 0.0
        return max(own, 1 - float(self.remaining.share)), own

    def points(self, now: datetime | None = None) -> list[tuple[str, float]]:
        """Time and share spent, from before the first debit until now."""
        if not self.entries:
            return []
        until = (datetime.now(UTC) if now is None else now).isoformat(timespec="seconds")
        points = [(e.time, s) for e, s in zip(self.entries, self.shares, strict=True)]
        step = -(-len(points) // LIMITS.chart_points)
        return [(points[0][0], 0.0), *points[::-step][::-1], (until, self.shares[-1])]


def spending(dataset: GuardedDataset, who: Analyst) -> Spending:
    """What was spent: all of it for a curator, one's own for an analyst."""
    ledger = dataset.ledger
    analyst = None if who.is_curator else who.name
    entries = ledger.entries() if analyst is None else ledger.entries(analyst=analyst)
    allowed = None if analyst is None else who.allowances.get(dataset.name)
    budget = ledger.budget if allowed is None else allowed
    taken = shares_of(budget, (entry.cost for entry in entries))
    return Spending(
        budget,
        allowed is not None,
        who.is_curator,
        tuple(entries),
        tuple(float(share) for share in accumulate(taken)),
        tuple(taken),
        ledger.remaining(analyst),
        ledger.is_frozen(),
        dataset.frozen() if who.is_curator else None,
        tuple(ledger.changes()) if who.is_curator else (),
        _links(dataset, who),
    )


def _links(dataset: GuardedDataset, who: Analyst) -> dict[int, Link]:
    """What a debit paid for, by its number: a release, or a question in its asker's own words."""
    links = {
        number: Link(question.shortened, f"/ask/{dataset.name}/{number}")
        for number, question in asked_for(dataset, who).items()
    }
    for each in dataset.releases(who):
        words = each.name or "; ".join(in_words(e) for e in each.request.workload)
        links[each.entry.sequence] = Link(shorter(words), f"/release/{dataset.name}/{each.key}")
    return links


def budget_chart(spending: Spending, now: datetime | None = None) -> alt.Chart:
    """The share spent as steps over time."""
    import altair as alt

    rows = [{"t": time, "s": share} for time, share in spending.points(now)]
    x = alt.X("t:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=alt.Axis(tickCount=5))
    y = alt.Y(
        "s:Q",
        title="share of the budget spent" + ("" if spending.is_all else " by you"),
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, 1]),
        stack=None,  # debits of one second lie upon each other, and are not added up again
    )
    tips = [
        alt.Tooltip("t:T", title="time", format="%Y-%m-%d %H:%M:%S"),
        alt.Tooltip("s:Q", title="spent", format=".2%"),
    ]
    base = alt.Chart(alt.InlineData(values=rows)).encode(x, y, tooltip=tips)
    area = base.mark_area(interpolate="step-after", opacity=0.15, color="#2f7fa3")
    line = base.mark_line(interpolate="step-after", strokeWidth=2, color="#2f7fa3")
    return (area + line).properties(width="container", height=220)


async def verified(visitor: Visitor, name: str) -> Verification:
    """Replay the whole ledger of a dataset; curators only."""
    _check_curator(visitor)
    dataset = visitor.dataset(name)
    return await visitor.on_ledger(dataset, dataset.ledger.verify)


async def freeze(visitor: Visitor, name: str, is_frozen: bool, reason: str) -> None:
    """Stop new answers of a dataset, or let them be asked again; curators only."""
    _check_curator(visitor)
    try:
        request = FreezeAsked(reason=reason.strip())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None
    visitor.check()
    await visitor.dataset(name).freeze(visitor.who, is_frozen, request.reason)


def allowances(visitor: Visitor, dataset: GuardedDataset) -> list[tuple[str, str, str, str]]:
    """Who may ask about a dataset, with what budget, and what is left of it; curators only."""
    _check_curator(visitor)
    by_analyst = {a.analyst: a for a in dataset.ledger.allowances()}
    rows: list[tuple[str, str, str, str]] = []
    for analyst in visitor.server.people.all():
        if dataset.name not in analyst.datasets:
            continue
        own = by_analyst.get(analyst.name)
        allowed = "the table's" if own is None else own.budget.describe()
        left = dataset.ledger.remaining(analyst.name).share
        rows.append((analyst.name, analyst.role, allowed, percent(left)))
    return rows


def _check_curator(visitor: Visitor) -> None:
    if not visitor.who.is_curator:
        raise not_curator()


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
        with showing_refusals(self.shown, clear=True):
            dataset = visitor.dataset(self.name)
            spent = await visitor.on_ledger(dataset, spending, dataset, visitor.who)
            if spent.is_frozen:
                paragraph(
                    f"{self.name} is frozen: no new answers are given, stored ones stay readable.",
                    "warning",
                )
                if spent.frozen:
                    paragraph(f"{spent.frozen}.", "note")
            with ui.element("div").classes("split"):
                self._left(spent)
                with card("Budget over time", _spenders(spent)):
                    _chart(spent)
            if visitor.who.is_curator:
                await self._curators(spent)
            with card("Entries", "Every debit, newest first; answers that were free are not here."):
                _entries(spent)
            if visitor.who.is_curator:
                with card("History", "Every freeze, total and allowance, newest first."):
                    _history(spent)
        if visitor.who.is_curator:
            with showing_refusals(self.overview, clear=True):
                await self._datasets()

    def _left(self, spent: Spending) -> None:
        with card("What is left"):
            share = float(spent.remaining.share)
            is_all = self.visitor.who.is_curator
            note = "of the table's budget" if is_all else "of what you may spend"
            gauge("Budget left", share, note)
            gone, own = spent.spent
            by_whom = "" if is_all else f"{own:.1%} of it by you, as the chart shows"
            budget, pure = spent.budget, spent.budget.pure
            lanes = "" if pure is None else f", epsilon = {number_text(pure)} of it for pure noise"
            left, _, kinds = spent.remaining.describe().partition(", ")
            facts(
                [
                    ("Budget", budget.promise.describe(), f"{_whose(spent)}{lanes}"),
                    ("You can spend", left.removesuffix(" remains"), f"at once: {kinds}"),
                    ("Spent", f"{gone:.1%}", by_whom),
                    ("Debits", f"{len(spent.entries):,}", "releases and paid answers"),
                ]
            )

    async def _datasets(self) -> None:
        rows = []
        for dataset in self.visitor.datasets:
            self.visitor.check()
            document = await self.visitor.server.shown(dataset, self.visitor.who)
            if document["remaining"] is None:
                nothing = ("cannot be read", "-", "-")
                rows.append((dataset.name, dataset.config.about, *nothing))
                continue
            left = float(document["remaining"]["share"])  # type: ignore[index]
            paid = document["paid_answers"]
            rows.append(
                (
                    dataset.name,
                    dataset.config.about,
                    "frozen" if document["is_frozen"] else "open",
                    "no session" if paid is None else str(paid),
                    percent(Fraction(left)),
                )
            )
        columns = ("dataset", "about", "state", "paid answers left", "budget left")
        table(columns, rows, "All datasets", texts=3)

    async def _curators(self, spent: Spending) -> None:
        """Who may ask, the proof that the ledger is whole, and the brake."""
        visitor, dataset = self.visitor, self.visitor.dataset(self.name)
        with ui.element("div").classes("halves"):
            with card("Analysts", "Who may ask, and what is left to each of them."):
                rows = await visitor.on_ledger(dataset, allowances, visitor, dataset)
                table(("analyst", "role", "allowance", "left"), rows, "Who may ask", texts=3)
            with card("Proof and brake", "Both are for curators only."):
                with ui.element("div").classes("line"):
                    ui.button("Verify the ledger", on_click=self.verify).props("outline")
                    verb = "Unfreeze" if spent.is_frozen else "Freeze"
                    ui.button(
                        f"{verb} {self.name}", on_click=lambda: self._confirm(spent.is_frozen)
                    ).props("outline")
                self.proof = ui.element("div").classes("stack").props("aria-live=polite")

    async def verify(self) -> None:
        """Replay the chain and say what was found."""
        with showing_refusals(self.proof, clear=True):
            _verified(await verified(self.visitor, self.name))

    def _confirm(self, is_frozen: bool) -> None:
        """Ask once more, with a reason, before anything is stopped or started."""
        verb, name = ("Unfreeze" if is_frozen else "Freeze"), self.name
        with ui.dialog(value=True) as dialog, ui.card():
            dialog.props(f'aria-label="{verb} {name}"').on("hide", dialog.delete)
            with ui.element("div").classes("stack"):
                ui.html(f"{verb} {name}?", sanitize=False, tag="h2")
                paragraph(
                    "New questions and releases are possible again."
                    if is_frozen
                    else "No new answers are given to anybody until it is unfrozen. Stored ones "
                    "stay readable."
                )
                paragraph("The reason is written into the ledger and stays there.", "note")
                reason = ui.input("Reason").props('aria-label="Reason" maxlength=200')
                status = ui.element("div")

                async def confirmed() -> None:
                    with showing_refusals(status, clear=True):
                        await freeze(self.visitor, name, not is_frozen, reason.value or "")
                        dialog.close()
                        await self.show()

                with ui.element("div").classes("line"):
                    ui.button(f"{verb} now", on_click=confirmed)
                    ui.button("Cancel", on_click=dialog.close).props("outline")


def _whose(spent: Spending) -> str:
    return "your allowance" if spent.is_own else "of the table"


def _spenders(spent: Spending) -> str:
    return _whose(spent) if spent.is_all or spent.is_own else "what you spent of the table's"


def _chart(spent: Spending) -> None:
    if not spent.entries:
        empty("Nothing was spent yet", "The first release or paid answer appears here.")
        return
    share = spent.shares[-1]
    Chart(
        budget_chart(spent),
        f"Budget spent over time: {len(spent.entries)} debits, {share:.1%} spent in all",
    )


def _entries(spent: Spending) -> None:
    if not spent.entries:
        paragraph("There are none.", "note")
        return
    rows = [
        (
            str(e.sequence),
            e.time[:19].replace("T", " "),
            e.analyst or "-",
            e.state,
            spent.links.get(e.sequence, shorter(e.key)),
            percent(taken),
            cost_in_words(e.cost, spent.budget),
            percent(Fraction(share)),
        )
        for e, taken, share in zip(spent.entries, spent.taken, spent.shares, strict=True)
    ]
    columns = ("debit", "time (UTC)", "analyst", "state", "for", "takes", "cost", "spent so far")
    shown = LIMITS.entries_shown
    table(columns, rows[::-1][:shown], "Debits", texts=5)
    if len(rows) > shown:
        paragraph(
            f"The newest {shown} of {len(rows):,}; GET /datasets/NAME/ledger has all.", "note"
        )


def _history(spent: Spending) -> None:
    if not spent.changes:
        paragraph("Nothing was changed yet.", "note")
        return
    rows = [(c.time[:19].replace("T", " "), c.describe()) for c in reversed(spent.changes)]
    table(("time (UTC)", "what"), rows[: LIMITS.entries_shown], "Changes", texts=2)


def _verified(result: Verification) -> None:
    if result.problems:
        trouble("The ledger is damaged; restore the newest backup and do not release from it.")
        table(("what was found",), [(p,) for p in result.problems], "Faults of the ledger")
        return
    paragraph("The ledger is whole: every record, hash and cost was computed again.", "promise")
    head = "agrees" if result.head_file_checked else "not there: rollback is not excluded"
    facts(
        [
            ("Records", f"{result.records:,}", f"head {result.head[:16]}..."),
            (
                "Debits answered",
                str(result.answered),
                f"{result.reserved} open, {result.burnt} burnt",
            ),
            ("Free answers", f"{result.free:,}", "each hash computed again"),
            ("Spent", f"{result.spent_units / result.total_units:.2%}", f"head file: {head}"),
        ]
    )
