# SPDX-License-Identifier: Apache-2.0
"""What the page Ledger shows and does, by role; without how it is shown.

Roles are checked here, in what is done, not in what is shown: an analyst sees their own debits, a
curator sees all of them, verifies and freezes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from sfumato.app.server.models import FreezeAsked
from sfumato.app.server.problems import not_curator, not_valid
from sfumato.budget.account import percent, shares_of

if TYPE_CHECKING:
    import altair as alt

    from sfumato.app.page.shell import Visitor
    from sfumato.app.server.config import Analyst
    from sfumato.app.server.guarded import Guarded
    from sfumato.budget import Budget, Entry
    from sfumato.budget.account import Remaining
    from sfumato.budget.verification import Verification

__all__ = ["Spending", "allowances", "budget_chart", "freeze", "spending", "verified"]

POINTS: Final = 2_000  # of the chart


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
        found = [(e.time, s) for e, s in zip(self.entries, self.shares, strict=True)]
        step = -(-len(found) // POINTS)
        return [(found[0][0], 0.0), *found[::-step][::-1], (until, self.shares[-1])]


def spending(dataset: Guarded, who: Analyst) -> Spending:
    """What was spent: all of it for a curator, one's own for an analyst."""
    book = dataset.book
    analyst = None if who.is_curator else who.name
    entries = book.entries() if analyst is None else book.entries(analyst=analyst)
    allowed = None if analyst is None else who.allowances.get(dataset.name)
    budget = book.budget if allowed is None else allowed
    taken = shares_of(budget, (entry.cost for entry in entries))
    return Spending(
        budget,
        allowed is not None,
        who.is_curator,
        tuple(entries),
        tuple(float(share) for share in accumulate(taken)),
        tuple(taken),
        book.remaining(analyst),
        book.is_frozen(),
        dataset.frozen() if who.is_curator else None,
    )


def budget_chart(found: Spending, now: datetime | None = None) -> alt.Chart:
    """The share spent as steps over time."""
    import altair as alt

    rows = [{"t": time, "s": share} for time, share in found.points(now)]
    x = alt.X("t:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=alt.Axis(tickCount=5))
    y = alt.Y(
        "s:Q",
        title="share of the budget spent" + ("" if found.is_all else " by you"),
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
    return await visitor.on_ledger(dataset, dataset.book.verify)


async def freeze(visitor: Visitor, name: str, is_frozen: bool, reason: str) -> None:
    """Stop new answers of a dataset, or let them be asked again; curators only."""
    _check_curator(visitor)
    try:
        asked = FreezeAsked(reason=reason.strip())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None
    visitor.check()
    await visitor.dataset(name).freeze(visitor.who, is_frozen, asked.reason)


def allowances(visitor: Visitor, dataset: Guarded) -> list[tuple[str, str, str, str]]:
    """Who may ask about a dataset, with what budget, and what is left of it; curators only."""
    _check_curator(visitor)
    kept = {a.analyst: a for a in dataset.book.allowances()}
    rows: list[tuple[str, str, str, str]] = []
    for analyst in visitor.house.config.analysts:
        if dataset.name not in analyst.datasets:
            continue
        own = kept.get(analyst.name)
        allowed = "the table's" if own is None else own.budget.describe()
        left = dataset.book.remaining(analyst.name).share
        rows.append((analyst.name, analyst.role, allowed, percent(left)))
    return rows


def _check_curator(visitor: Visitor) -> None:
    if not visitor.who.is_curator:
        raise not_curator()
