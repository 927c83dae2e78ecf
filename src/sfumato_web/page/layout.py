# SPDX-License-Identifier: Apache-2.0
"""The frame of every page: sign-in, navigation, and the cards, tables and charts that pages show.

``page`` makes a function of a ``Visitor`` a page; cards, tables, facts, paragraphs, refusals and
Altair charts are shown by the functions below. Sliders go over a list of values, which keyboards
and screen readers know as the browser's own: ``Slider`` can be moved from here and calls its
listeners, as the pages of Learn need it; ``RangeSlider`` writes its value in the browser and tells
where it is, as the budget of a plan needs it. Read ``__init__.py`` for how a page is written.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nicegui import events, ui
from nicegui.events import GenericEventArguments
from starlette.requests import Request

from sfumato.cli.output import statement_cells
from sfumato.errors import SfumatoError, place_of
from sfumato.text import sentence
from sfumato_web.page.auth import LOGIN, PREFIX, Login, Logins
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.middleware import SERVER
from sfumato_web.server.problems import Problem, problem_of, too_many

if TYPE_CHECKING:
    from sfumato.release.charts import Chart as Drawn
    from sfumato_web.app import ServerState
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset

__all__ = [
    "LIBRARY",
    "LOGINS",
    "NAVIGATION",
    "Chart",
    "Link",
    "RangeSlider",
    "Slider",
    "Visitor",
    "card",
    "empty",
    "facts",
    "facts_html",
    "labelled",
    "page",
    "paragraph",
    "set_paragraph",
    "showing_refusals",
    "statement_table",
    "table",
    "table_html",
    "trouble",
    "visitor_of",
]

LOG: Final = logging.getLogger("sfumato.page")
LOGINS: Final = "sfumato.logins"
LOOK: Final = "sfumato_look"
NAVIGATION: Final = ("Plan", "Release", "Ask", "Describe", "Ledger", "Learn")
FOR_CURATORS: Final = ("People",)

_TURN: Final = f"""() => {{
  const dark = !Quasar.Dark.isActive;
  Quasar.Dark.set(dark);
  document.cookie = "{LOOK}=" + (dark ? "dark" : "light")
    + ";path={PREFIX};max-age=31536000;samesite=strict";
  emit(dark);
}}"""

T = TypeVar("T")
E = TypeVar("E", bound=ui.element)
Builder = Callable[["Visitor"], Awaitable[None] | None]


@dataclass(frozen=True, eq=False)
class Visitor:
    """Who looks at a page, and the server it is a page of."""

    server: ServerState
    login: Login
    logins: Logins
    request: Request

    @property
    def who(self) -> Analyst:
        """The analyst who is signed in."""
        return self.login.who

    @property
    def datasets(self) -> list[GuardedDataset]:
        """The datasets that are open to them."""
        return [d for d in self.server.datasets.values() if d.name in self.who.datasets]

    def dataset(self, name: str) -> GuardedDataset:
        """A dataset that is theirs; any other name is refused in the same words."""
        return self.server.dataset(self.who, name)

    def check(self) -> None:
        """Every action begins with this: the login still holds, and the rate is kept.

        The same rate as for requests over HTTP: whoever has a token and a browser has it once.
        """
        if not self.logins.use(self.login):
            ui.navigate.to("/login")
            raise Problem(401, "signed-out", "you were signed out; sign in again")
        wait = self.server.rates.wait(self.who.name)
        if wait > 0:
            raise too_many(math.ceil(wait))

    def now(self) -> float:
        """When an action began, for ``on_grid``."""
        return self.server.grid.clock()

    async def on_grid(self, began: float) -> None:
        """Answers that touched data are shown on the grid of times, as over HTTP."""
        await self.server.grid.wait(began)

    async def work(self, function: Callable[..., T], *arguments: object) -> T:
        """Run what can take long in a worker of the server; refuse when too many wait."""
        self.check()
        return await self.server.work(self.who, function, *arguments)

    async def on_ledger(
        self, dataset: GuardedDataset, function: Callable[..., T], *arguments: object
    ) -> T:
        """Run what reads the ledger of a dataset off the event loop; it waits for no plan."""
        self.check()
        return await dataset.on_ledger(self.who, function, *arguments)


def page(path: str, title: str, lead: str = "", at: str = "") -> Callable[[Builder], Builder]:
    """Make a function of the visitor the page at ``path``, inside the frame.

    ``at`` is the entry of the navigation it belongs to; parameters of the path are in
    ``visitor.request.path_params``. A refusal while building is shown in its place.
    """

    def made(build: Builder) -> Builder:
        async def built(request: Request) -> None:
            visitor = visitor_of(request)
            visitor.login.add_page(ui.context.client.id)
            ui.page_title(f"{title} · sfumato")
            with _frame(visitor, at or title):
                with ui.element("div").classes("title"):
                    ui.html(escape(title), sanitize=False, tag="h1")
                    if lead:
                        ui.html(escape(lead), sanitize=False, tag="p").classes("lead")
                with showing_refusals(ui.element("div").classes("stack loose")):
                    made_now = build(visitor)
                    if inspect.isawaitable(made_now):
                        await made_now

        ui.page(path, response_timeout=60.0)(built)
        return build

    return made


def visitor_of(request: Request) -> Visitor:
    """Who sent a request that the middleware of the page let in."""
    scope = request.scope
    return Visitor(scope[SERVER], scope[LOGIN], scope[LOGINS], request)


@contextmanager
def _frame(visitor: Visitor, at: str) -> Iterator[None]:
    """Header, navigation, and the place of the page itself."""
    look = ui.dark_mode({"dark": True, "light": False}.get(visitor.request.cookies.get(LOOK, "")))
    with ui.header(fixed=False).classes("top"), ui.element("div").classes("top-inside"):
        ui.html(_navigation(at, visitor.who.is_curator), sanitize=False).style("display: contents")
        with ui.element("div").classes("whoami"):
            who = f'{escape(visitor.who.name)} <span class="role">· {visitor.who.role}</span>'
            ui.html(who, sanitize=False, tag="span")
            turn = ui.element("button").classes("quiet").props('type=button title="Light or dark"')
            turn.props('aria-label="Switch between light and dark"')
            # The server is told as well: whatever it sends next would else bring the old look back.
            turn.on("click", lambda event: look.set_value(bool(event.args)), js_handler=_TURN)
            with turn:
                ui.html("&#9680;", sanitize=False, tag="span").props("aria-hidden=true")
            ui.html(
                f'<form method="post" action="{PREFIX}/logout">'
                '<button class="quiet" type="submit">Sign out</button></form>',
                sanitize=False,
                tag="div",
            )
    # Quasar's own page around it is the landmark "main".
    with ui.element("div").classes("page").props("id=main tabindex=-1"):
        yield


def _navigation(at: str, is_curator: bool) -> str:
    links = "".join(
        f'<a href="{PREFIX}/{name.lower()}"{" aria-current=page" if name == at else ""}>{name}</a>'
        for name in (*NAVIGATION, *(FOR_CURATORS if is_curator else ()))
    )
    skip = '<a class="skip" href="#main">Skip to the page</a>'
    mark = f'<a class="mark" href="{PREFIX}/plan">sfumato</a>'
    return f'{skip}{mark}<nav class="pages" aria-label="Pages">{links}</nav>'


@contextmanager
def card(title: str, note: str = "", level: int = 2) -> Iterator[ui.element]:
    """A panel with a heading; what is made inside stands in it."""
    with ui.element("section").classes("card") as panel:
        panel.props["aria-label"] = title
        with ui.element("div").classes("card-head"):
            ui.html(escape(title), sanitize=False, tag=f"h{level}")
            if note:
                paragraph(note, "note")
        yield panel


def paragraph(text: str, kind: str = "") -> ui.html:
    """A paragraph of plain text; kinds: note, lead, promise, warning."""
    return ui.html(escape(text), sanitize=False, tag="p").classes(kind)


def set_paragraph(element: ui.html, text: str) -> None:
    """Show another text in a paragraph."""
    element.set_content(escape(text))


def trouble(message: str) -> ui.html:
    """A refusal, read out at once by screen readers."""
    return ui.html(escape(message), sanitize=False, tag="p").classes("trouble").props("role=alert")


def empty(title: str, text: str) -> ui.element:
    """What a place says while there is nothing in it."""
    with ui.element("div").classes("empty") as place:
        ui.html(escape(title), sanitize=False, tag="h2")
        paragraph(text)
    return place


@contextmanager
def showing_refusals(where: ui.element, *, clear: bool = False) -> Iterator[ui.element]:
    """Work inside a place, where a refusal is shown in the words of the server.

    With ``clear`` the place is emptied first. Unexpected errors go to the log, by type and place.
    """
    if clear:
        where.clear()
    with where:
        try:
            yield where
        except Exception as error:
            problem = problem_of(error)
            if not isinstance(error, Problem | SfumatoError):
                LOG.error("unexpected %s at %s", type(error).__name__, place_of(error))
            elif problem.status == 503:
                LOG.error("%s: %s", type(error).__name__, error)
            trouble(sentence(problem.message))


def facts(rows: Iterable[tuple[str, str, str]]) -> ui.html:
    """Name, value and remark, side by side."""
    return ui.html(facts_html(rows), sanitize=False, tag="dl").classes("facts")


def facts_html(rows: Iterable[tuple[str, str, str]]) -> str:
    """The inside of ``facts``, to be shown anew with ``set_content``."""
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in rows
    )


@dataclass(frozen=True, slots=True)
class Link:
    """A cell of a table that leads to a page of this server, such as ``/release/adult/KEY``."""

    text: str
    path: str

    def html(self) -> str:
        """The cell as it is shown."""
        at = escape(f"{PREFIX}{self.path}", quote=True)
        return f'<a href="{at}">{escape(self.text)}</a>'


Cell = str | Link


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    label: str,
    *,
    texts: int = 1,
    chosen: int | None = None,
) -> ui.html:
    """A table of plain texts and links, the first ``texts`` (and any called note) to the left.

    ``label`` names it for screen readers; ``chosen`` is the number of a row that stands out.
    """
    inside = table_html(columns, rows, label, texts=texts, chosen=chosen)
    return labelled(ui.html(inside, sanitize=False).classes("wide tall").props("tabindex=0"), label)


def table_html(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    label: str,
    *,
    texts: int = 1,
    chosen: int | None = None,
) -> str:
    """The inside of ``table``, to be shown anew with ``set_content``."""

    def shown(cell: Cell) -> str:
        return cell.html() if isinstance(cell, Link) else escape(cell)

    def cells(row: Sequence[Cell], tag: str, more: str = "") -> str:
        is_text = [i < texts or name == "note" for i, name in enumerate(columns)]
        kinds = [("label" if yes else "figure") + more for yes in is_text]
        pairs = zip(kinds, row, strict=True)
        return "".join(f'<{tag} class="{k}">{shown(c)}</{tag}>' for k, c in pairs)

    body = "".join(
        f"<tr>{cells(row, 'td', ' chosen' if i == chosen else '')}</tr>"
        for i, row in enumerate(rows)
    )
    head = f"<thead><tr>{cells(columns, 'th')}</tr></thead>"
    name = escape(label, quote=True)
    return f'<table class="plain" aria-label="{name}">{head}<tbody>{body}</tbody></table>'


def labelled(element: E, label: str, role: str = "region") -> E:
    """Name an element for screen readers; any text will do."""
    element.props["aria-label"] = label
    element.props["role"] = role
    return element


LIBRARY = f"{PREFIX}/assets/vega.js"
Spec = dict[str, Any]


class Chart(ui.element, component="assets/sfumato_chart.js"):
    """An Altair chart, drawn in the browser by Vega, that can be shown anew.

    ``label`` is what a screen reader says of it.

    Charts made with ``width="container"`` are as wide as their place.
    """

    def __init__(self, drawn: Drawn | Spec | None, label: str) -> None:
        super().__init__()
        self._props["library"] = LIBRARY
        self.show(drawn, label)

    def show(self, drawn: Drawn | Spec | None, label: str) -> None:
        """Show another chart in the same place."""
        self._props["label"] = label
        spec = drawn if drawn is None or isinstance(drawn, dict) else drawn.to_dict()
        self._props["spec"] = None if spec is None else _spec(spec)
        self.update()


def _spec(chart: Spec) -> Spec:
    """Without the default look, which the page gives, and the address of the schema."""
    return {k: v for k, v in chart.items() if k not in ("config", "$schema")}


# Sliders over a list of values


class _SliderElement(ui.element, component="assets/sfumato_slider.js"):
    """The slider itself, from 0 to ``most``."""

    def __init__(self, most: int, place: int) -> None:
        super().__init__()
        self._props["most"] = most
        self._props["stand"] = [place]

    def stand(self, place: int) -> None:
        """Move it."""
        self._props["stand"] = [place]
        self.update()


class Slider(Generic[T]):
    """A slider over a list of values, with its name and its value above it.

    It is the browser's own: keyboards and screen readers know what it is.
    """

    def __init__(
        self, name: str, values: Sequence[T], start: T, shown: Callable[[T], str] = str
    ) -> None:
        self._name, self._values, self._shown = name, values, shown
        self._place = values.index(start)
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        with ui.element("div").classes("control"):
            self._label = ui.html("", sanitize=False, tag="label").classes("name")
            self._slider = _SliderElement(len(values) - 1, self._place)
        self._label.props(f"for={self._slider.html_id}")
        self._slider.on("moved", self._moved, throttle=0.05)
        self._show()

    @property
    def value(self) -> T:
        """The value it stands at."""
        return self._values[self._place]

    async def set(self, value: T) -> None:
        """Move it; those who listen hear of it."""
        self._place = self._values.index(value)
        self._slider.stand(self._place)
        await self._changed()

    def on_change(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Call this when it moves."""
        self._listeners.append(listener)

    async def _moved(self, event: events.GenericEventArguments) -> None:
        place = event.args
        if isinstance(place, int) and 0 <= place < len(self._values):
            self._place = place
            await self._changed()

    async def _changed(self) -> None:
        self._show()
        for listener in self._listeners:
            await listener()

    def _show(self) -> None:
        value = escape(self._shown(self.value))
        self._label.content = f"<span>{escape(self._name)}</span> <b>{value}</b>"


class RangeSlider:
    """A slider over texts, whose value is written in the browser while it moves.

    ``slid`` is called with a place in ``values`` while it moves, the last one included. The place
    is an attribute and is not updated from here meanwhile, so that it is not pulled back under the
    hand that moves it; `stand` moves it when a button is pressed. `mark` draws up to where
    something is to be had.
    """

    def __init__(
        self, label: str, values: Sequence[str], at: int, slid: Callable[[int], None]
    ) -> None:
        self._values, self._slid = list(values), slid
        with ui.element("div").classes("slider"):
            with ui.element("div").classes("slider-head"):
                ui.label(label)
                ui.html(escape(values[at]), sanitize=False, tag="b")
            self._element = ui.element("input").props("type=range min=0 step=1")
            self._mark = ui.element("div").classes("slider-mark").props("aria-hidden=true")
            with self._mark:
                self._part = ui.element("span")
        self._mark.set_visibility(False)
        props = {"max": len(values) - 1, "^value": at, "aria-label": label}
        self._element.props.update({**props, "aria-valuetext": values[at]})
        self._element.on("input", self._moved, js_handler=self._script(), throttle=0.05)

    def _script(self) -> str:
        return f"""(event) => {{
          const said = {json.dumps(self._values)}[event.target.value];
          event.target.setAttribute("aria-valuetext", said);
          event.target.closest(".slider").querySelector("b").textContent = said;
          emit(Number(event.target.value));
        }}"""

    def _moved(self, event: GenericEventArguments) -> None:
        if isinstance(event.args, int) and 0 <= event.args < len(self._values):
            self._slid(event.args)

    def stand(self, place: int, text: str) -> None:
        """Move it to a place and show a text there, which may lie between two values."""
        ui.run_javascript(f"""{{
          const slider = getHtmlElement({self._element.id});
          slider.value = {place};
          slider.setAttribute("aria-valuetext", {json.dumps(text)});
          slider.closest(".slider").querySelector("b").textContent = {json.dumps(text)};
        }}""")

    def mark(self, place: float | None) -> None:
        """Draw a line below it from its first value to a place; None: no line."""
        self._mark.set_visibility(place is not None)
        if place is not None:
            share = min(max(place / (len(self._values) - 1), 0.0), 1.0)
            self._part.style(f"--share: {share:.4f}")


def statement_table(columns: Sequence[Mapping[str, Any]]) -> None:
    """Show the answer of a SELECT; rows beyond those of a page are in the files."""
    heads, rows = statement_cells(columns)
    labels = len(list(takewhile(lambda column: column["low"] is None, columns)))
    table(heads, rows[: LIMITS.rows_shown], "Answer of the SELECT", texts=labels)
    if not rows:
        paragraph("No group is left by HAVING, LIMIT or OFFSET.", "note")
    if len(rows) > LIMITS.rows_shown:
        paragraph(f"{len(rows) - LIMITS.rows_shown:,} more rows are not shown.", "note")
