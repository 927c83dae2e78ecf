# SPDX-License-Identifier: Apache-2.0
"""The page People: who may use the server, and what they may spend; for curators.

Every change goes the way of ``POST /people`` and the routes below it: the same checks of who may do
it, the same record with its reason. A token is shown once, when it is made, and kept nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import ui
from pydantic import BaseModel, ValidationError

from sfumato.privacy.budget import Budget
from sfumato_web.page.layout import (
    Visitor,
    card,
    page,
    paragraph,
    showing_refusals,
    table,
)
from sfumato_web.page.ledger_page import allowances
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.models import (
    AllowanceAsked,
    BudgetAsked,
    FreezeAsked,
    PersonAsked,
    PersonChangeAsked,
    TokenAsked,
    TotalAsked,
)
from sfumato_web.server.problems import not_curator, not_valid

if TYPE_CHECKING:
    from sfumato_web.server.dataset import GuardedDataset

__all__ = ["PeopleActions", "budget_asked", "register", "request_of"]

M = TypeVar("M", bound=BaseModel)
_ROLES = {
    "analyst": "analyst: plans, asks, releases",
    "curator": "curator: manages people, freezes",
    "auditor": "auditor: reads everything, spends nothing",
    "scraper": "scraper: reads metrics",
}


def request_of(model: type[M], **fields: object) -> M:
    """A request of controls, checked as one over HTTP.

    Raises:
        Problem: 422, in the same words.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None


def budget_asked(epsilon: str, delta: str) -> dict[str, str]:
    """A budget as two fields say it; an empty delta is none.

    >>> budget_asked(" 1/2 ", "")
    {'epsilon': '1/2'}
    """
    delta = delta.strip()
    return {"epsilon": epsilon.strip()} | ({"delta": delta} if delta not in ("", "0") else {})


class PeopleActions:
    """What a curator does to people and budgets; refused for anybody else, whatever is shown."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor

    def check(self) -> None:
        """Curators only; the login still holds, and the rate is kept."""
        if not self.visitor.who.is_curator:
            raise not_curator()
        self.visitor.check()

    async def listed(self) -> list[dict[str, Any]]:
        """Those with whom they share a dataset."""
        self.check()
        server, who = self.visitor.server, self.visitor.who
        return await server.read(who, server.people.listed, who)

    async def add(self, request: PersonAsked) -> str:
        """Let somebody in; returns their token."""
        what = (request.name, request.role, request.datasets, request.expires_days, request.reason)
        made = await self._act("add", request.name, self.visitor.server.people.add, *what)
        return str(made["token"])

    async def change(self, name: str, request: PersonChangeAsked) -> None:
        """Give somebody another role or other datasets."""
        what = (name, request.role, request.datasets, request.reason)
        await self._act("change", name, self.visitor.server.people.change, *what)

    async def remove(self, name: str, request: FreezeAsked) -> None:
        """Let somebody in no more."""
        await self._act("remove", name, self.visitor.server.people.remove, name, request.reason)

    async def renew(self, name: str, request: TokenAsked) -> str:
        """One more token of somebody; returns it."""
        what = (name, request.expires_days, request.reason)
        made = await self._act("token", name, self.visitor.server.people.renew, *what)
        return str(made["token"])

    async def revoke(self, name: str, token: str, request: FreezeAsked) -> None:
        """End a token of somebody at once."""
        what = (name, token, request.reason)
        await self._act("revoke", name, self.visitor.server.people.revoke, *what)

    async def allow(self, dataset: GuardedDataset, name: str, request: AllowanceAsked) -> None:
        """Set what somebody may spend of a table, or that only the table's budget limits them."""
        self.check()
        server, who = self.visitor.server, self.visitor.who
        budget = None if request.budget is None else Budget(**request.budget.model_dump())
        words = None if budget is None else budget.as_json()
        act = partial(dataset.set_allowance, name, budget)
        change = (who, name, dataset.name, words, request.reason, act)
        await self.visitor.on_ledger(dataset, server.people.allow, *change)
        server.log.add(
            "people", act="allowance", analyst=who.name, person=name, dataset=dataset.name
        )

    async def set_total(self, dataset: GuardedDataset, request: TotalAsked) -> None:
        """Set what all may spend of a table together."""
        self.check()
        who, budget = self.visitor.who, Budget(**request.budget.model_dump())
        await self.visitor.on_ledger(dataset, dataset.set_total, budget, request.reason, who)
        self.visitor.server.log.add("total", analyst=who.name, dataset=dataset.name)

    async def records(self) -> list[dict[str, Any]]:
        """The record of changes, newest first; for curators of all datasets."""
        self.check()
        server, who = self.visitor.server, self.visitor.who
        records = await server.read(who, server.people.records, who, -1)
        return [json.loads(text) for _, text in records[::-1][: LIMITS.entries_shown]]

    async def _act(
        self, act: str, person: str, function: Callable[..., Any], *arguments: object
    ) -> Mapping[str, Any]:
        self.check()
        who = self.visitor.who
        done = await self.visitor.server.administer(who, act, person, function, *arguments)
        return done or {}


def register() -> None:
    """Make the page."""

    @page("/people", "People", "Who may use this server, and what they may spend.")
    async def _people(visitor: Visitor) -> None:
        await _PeoplePage(visitor, PeopleActions(visitor)).build()


class _PeoplePage:
    """Who is there above; who is let in, changed or allowed something below; then the record."""

    def __init__(self, visitor: Visitor, people: PeopleActions) -> None:
        self.visitor, self.people = visitor, people
        self.names = [d.name for d in visitor.datasets]

    async def build(self) -> None:
        self.people.check()
        with card("Who is there", "Those with whom you share a table."):
            self.listed = ui.element("div")
        with ui.element("div").classes("halves"):
            self._build_new()
            self._build_person()
        with ui.element("div").classes("halves"):
            self._build_allowance()
            self._build_total()
        with card("Record", "Who changed people and allowances, when and why; newest first."):
            self.record = ui.element("div")
        await self.show()

    async def show(self) -> None:
        """The list, the choices and the record anew."""
        with showing_refusals(self.listed, clear=True):
            people = await self.people.listed()
            table(_HEADS, [_row(person) for person in people], "People", texts=len(_HEADS))
            managed = [p["name"] for p in people if p["set_in"] == "server"]
            self.tokens = {p["name"]: [t["id"] for t in p["tokens"]] for p in people}
            for chosen in (self.person, self.allowed):
                name = chosen.value if chosen.value in managed else None
                chosen.set_options(managed, value=name or next(iter(managed), None))
            self._show_tokens()
        with showing_refusals(self.record, clear=True):
            rows = [_change_row(change) for change in await self.people.records()]
            if rows:
                heads = ("time (UTC)", "by", "what", "who", "reason")
                table(heads, rows, "Changes of people", texts=5)
            else:
                paragraph("Nothing was changed while the server ran.", "note")

    def _build_new(self) -> None:
        with card("Let somebody in", "They get a token, which is shown once."):
            name, role = _field("Name of the person"), _choice("Role", _ROLES, "analyst")
            datasets = _choice("Tables", self.names, [], multiple=True)
            days, reason = _days(), _field("Reason to let them in")
            place = ui.element("div").classes("stack").props("aria-live=polite")

            async def add() -> None:
                request = request_of(
                    PersonAsked,
                    name=str(name.value or "").strip(),
                    role=role.value,
                    datasets=datasets.value,
                    expires_days=_whole(days.value),
                    reason=reason.value or "",
                )
                self._show_token(place, request.name, await self.people.add(request))

            ui.button("Let in", on_click=lambda: self._try(place, add)).classes("start")

    def _build_person(self) -> None:
        with card("Change somebody", "Whoever is set in the configuration is changed there."):
            self.person = _choice("Person", [], None, on_change=self._show_tokens)
            role = _choice("New role", {"": "as it is", **_ROLES}, "")
            datasets = _choice("New tables (none: as they are)", self.names, [], multiple=True)
            days, self.token = _days(), _choice("Token to end", [], None)
            reason = _field("Reason of the change")
            place = ui.element("div").classes("stack").props("aria-live=polite")

            def why() -> FreezeAsked:
                return request_of(FreezeAsked, reason=reason.value or "")

            def who() -> str:
                return str(self.person.value or "")

            async def change() -> None:
                fields = {"role": role.value or None, "datasets": datasets.value or None}
                text = reason.value or ""
                await self.people.change(
                    who(), request_of(PersonChangeAsked, reason=text, **fields)
                )

            async def renew() -> None:
                fields = {"expires_days": _whole(days.value), "reason": reason.value or ""}
                name = who()
                token = await self.people.renew(name, request_of(TokenAsked, **fields))
                self._show_token(place, name, token)

            async def revoke() -> None:
                await self.people.revoke(who(), str(self.token.value or ""), why())

            async def remove() -> None:
                await self.people.remove(who(), why())

            with ui.element("div").classes("line"):
                for label, act in (
                    ("Change", change),
                    ("New token", renew),
                    ("End the token", revoke),
                    ("Remove", remove),
                ):
                    act_now = partial(self._try, place, act)
                    ui.button(label, on_click=act_now).props("outline")

    def _build_allowance(self) -> None:
        with card("Allowance", "What somebody may spend of a table, of its budget at most."):
            self.allowed = _choice("Whose", [], None)
            dataset = _choice("Of the table", self.names, next(iter(self.names), None))
            self.allowances = ui.element("div")
            epsilon, delta = _budget_fields("Allowed")
            reason = _field("Reason of the allowance")
            place = ui.element("div").classes("stack").props("aria-live=polite")

            async def look(_: object = None) -> None:
                with showing_refusals(self.allowances, clear=True):
                    chosen = self.visitor.dataset(str(dataset.value))
                    rows = await self.visitor.on_ledger(chosen, allowances, self.visitor, chosen)
                    table(("analyst", "role", "allowance", "left"), rows, "Allowances", texts=3)

            async def allow(*, has_limit: bool = True) -> None:
                budget = budget_asked(str(epsilon.value or ""), str(delta.value or ""))
                request = request_of(
                    AllowanceAsked,
                    budget=request_of(BudgetAsked, **budget) if has_limit else None,
                    reason=reason.value or "",
                )
                chosen = self.visitor.dataset(str(dataset.value))
                await self.people.allow(chosen, str(self.allowed.value or ""), request)
                await look()

            dataset.on_value_change(look)
            ui.timer(0.05, look, once=True)
            with ui.element("div").classes("line"):
                ui.button("Set the allowance", on_click=partial(self._try, place, allow))
                without = partial(allow, has_limit=False)
                ui.button("No allowance", on_click=partial(self._try, place, without)).props(
                    "outline"
                )

    def _build_total(self) -> None:
        with card("Total", "What all may spend of a table together."):
            paragraph(
                "A larger total is a weaker promise to the people in the table. Decide it without "
                "looking at answers, and write it into the configuration, too: a lower one there "
                "takes effect at the next start.",
                "warning",
            )
            dataset = _choice("Total of the table", self.names, next(iter(self.names), None))
            epsilon, delta = _budget_fields("Total")
            reason = _field("Reason of the total")
            place = ui.element("div").classes("stack").props("aria-live=polite")

            async def total() -> None:
                budget = budget_asked(str(epsilon.value or ""), str(delta.value or ""))
                request = request_of(
                    TotalAsked, budget=request_of(BudgetAsked, **budget), reason=reason.value or ""
                )
                await self.people.set_total(self.visitor.dataset(str(dataset.value)), request)

            ui.button("Set the total", on_click=partial(self._try, place, total)).classes("start")

    async def _try(self, place: ui.element, act: Callable[[], Awaitable[None]]) -> None:
        """Do something, say that it is done or why not, and show everything anew."""
        with showing_refusals(place, clear=True):
            await act()
            paragraph("Done, and recorded.", "promise")
        await self.show()

    def _show_token(self, place: ui.element, name: str, token: str) -> None:
        with place:
            paragraph(f"The token of {name}, shown once: hand it over on a safe way.", "warning")
            field = ui.input(value=token).props('readonly aria-label="Token" input-class="mono"')
            field.props("autocomplete=off")

    def _show_tokens(self, _: object = None) -> None:
        held = self.tokens.get(str(self.person.value or ""), [])
        self.token.set_options(held, value=next(iter(held), None))


_HEADS = ("name", "role", "tables", "tokens", "set in")


def _row(person: Mapping[str, Any]) -> tuple[str, ...]:
    tokens = (f"{t['id']}{_until(t['expires'])}" for t in person["tokens"])
    tables, ids = ", ".join(person["datasets"]) or "none", ", ".join(tokens) or "none"
    return person["name"], person["role"], tables, ids, person["set_in"]


def _until(time: str | None) -> str:
    return "" if time is None else f" until {time[:16].replace('T', ' ')}"


def _change_row(change: Mapping[str, Any]) -> tuple[str, ...]:
    """One record as people read it.

    >>> _change_row({"time": "2030-01-02T03:04:05Z", "by": "cora", "act": "change",
    ...     "role": "auditor", "datasets": ["adult"], "person": "eve", "reason": "audit"})
    ('2030-01-02 03:04:05', 'cora', 'change: auditor of adult', 'eve', 'audit')
    """
    what = str(change["act"])
    if "role" in change:
        what += f": {change['role']} of {', '.join(change['datasets']) or 'nothing'}"
    elif "budget" in change:
        budget = change["budget"]
        said = "none" if budget is None else ", ".join(f"{k} = {v}" for k, v in budget.items())
        what += f" of {change['dataset']}: {said}"
    time = str(change["time"])[:19].replace("T", " ")
    return time, str(change["by"]), what, str(change["person"]), str(change["reason"])


def _field(label: str) -> ui.input:
    field = ui.input(label).props("maxlength=200")
    field.props["aria-label"] = label
    return field


def _choice(
    label: str,
    options: list[str] | dict[str, str],
    value: object,
    *,
    multiple: bool = False,
    on_change: Callable[..., object] | None = None,
) -> ui.select:
    chosen = ui.select(
        options, label=label, value=value, multiple=multiple, on_change=on_change
    ).props("use-chips" if multiple else "")
    chosen.props["aria-label"] = label
    return chosen


def _days() -> ui.number:
    return ui.number("Days until the token ends (empty: never)", min=1, max=3_650, format="%.0f")


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _budget_fields(name: str) -> tuple[ui.input, ui.input]:
    with ui.element("div").classes("halves tight"):
        return _field(f"{name} epsilon"), _field(f"{name} delta (empty: none)")
