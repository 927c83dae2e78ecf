# SPDX-License-Identifier: Apache-2.0
"""The pages below /learn: an overview, one page for each idea, and the documentation to read on.

An idea is shown as its text, controls, figures, what to notice and what to read. What the figures
show is computed by the modules beside this one. ``register`` makes all pages.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Final, TypeVar

from nicegui import events, ui

from sfumato_web.learn import factor_and_project, query_release, tree
from sfumato_web.learn.drawing import number
from sfumato_web.page.auth import PREFIX
from sfumato_web.page.layout import Slider, Visitor, card, facts, page, paragraph, showing_refusals

__all__ = [
    "HULL",
    "IDEAS",
    "REPEATED",
    "STREAM",
    "THREE_WAYS",
    "TREE",
    "WEIGHTS",
    "Drawn",
    "Exhibit",
    "Idea",
    "register",
    "text_of",
    "title_of",
]


T = TypeVar("T")
Drawn = tuple[Sequence[str], Sequence[str]]
"""Figures as SVG, and what to notice about them."""


@dataclass(frozen=True, slots=True)
class Idea:
    """One idea of the notes: its place under /learn, its words, and what to read on."""

    name: str
    title: str
    lead: str
    text: tuple[str, ...]
    reading: tuple[str, ...]
    notes: str


class Exhibit:
    """The places of one idea on its page; made in this order: controls, then ``draw``."""

    def __init__(self, visitor: Visitor, idea: Idea) -> None:
        self._visitor, self._idea = visitor, idea
        self._make: Callable[[], Drawn] | None = None
        self._is_drawing = self._is_late = False
        with ui.element("div").classes("explained"):
            for text in idea.text:
                paragraph(text)
        with card("Try it", "All data are made up. Nothing is spent."):
            self.controls = ui.element("div").classes("controls")
            self.buttons = ui.element("div").classes("line")
            self._trouble = ui.element("div")
        with card("What happens"):
            self.above = ui.element("div").props("aria-live=polite")
            self._figures = ui.element("div").classes("halves")
        self.figures: list[ui.html] = []
        with card("What to notice"):
            self._notices = ui.html("", sanitize=False, tag="ul").classes("notices")
            self._notices.props("aria-live=polite")
        _read_on(idea)

    def slider(
        self, name: str, values: Sequence[T], start: T, shown: Callable[[T], str] = str
    ) -> Slider[T]:
        """A slider among the controls, which draws anew when it moves."""
        with self.controls:
            control = Slider(name, values, start, shown)
        control.on_change(self.redraw)
        return control

    def button(self, name: str, pressed: Callable[[], object]) -> ui.button:
        """A button below the controls."""
        with self.buttons:
            return ui.button(name, on_click=pressed).props("outline")

    async def draw(self, make: Callable[[], Drawn]) -> None:
        """Draw for the first time, and by ``make`` from now on."""
        self._make = make
        await self.redraw()

    async def redraw(self) -> None:
        """Draw anew; while that is under way further calls only ask for one more time."""
        if self._is_drawing:
            self._is_late = True
            return
        self._is_drawing = True
        try:
            while True:
                self._is_late = False
                await self._once()
                if not self._is_late:
                    break
        finally:
            self._is_drawing = False

    async def _once(self) -> None:
        make = self._make
        if make is None:
            return
        with showing_refusals(self._trouble, clear=True):
            figures, notices = await self._visitor.work(make)
            with self._figures:
                while len(self.figures) < len(figures):
                    self.figures.append(ui.html("", sanitize=False).classes("figure"))
            for place, svg in zip(self.figures, figures, strict=True):
                place.content = svg
            self._notices.content = "".join(f"<li>{escape(n)}</li>" for n in notices)


def _read_on(idea: Idea) -> None:
    links = [
        f'<a href="{PREFIX}/learn/read/{name}">{escape(title)}</a>'
        for name in idea.reading
        if (title := title_of(name)) is not None
    ]
    more = f"Read on: {', '.join(links)}. " if links else ""
    text = f'{more}From the notes: {escape(idea.notes)}. <a href="{PREFIX}/learn">All ideas</a>'
    ui.html(text, sanitize=False, tag="p").classes("note")


# The texts of the six ideas.

THREE_WAYS: Final = Idea(
    "three-ways",
    "Three ways to count",
    "Noise on the answers, on the table, or at the source: which one errs least?",
    (
        "Somebody asks many counting questions about one table. The noise can go on each answer, "
        "on each cell of the table from which all answers are then summed, or on each person's own "
        "record before it is handed in.",
        "Noise on the answers must hide a person in all of them at once, so it grows with their "
        "number. Noise on the table does not care how many questions there are, but a question "
        "adds up the noise of its cells. Noise at the source needs no trusted curator and pays "
        "for that: every record is blurred.",
    ),
    ("laplace", "contingency-table", "randomized-response"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

REPEATED: Final = Idea(
    "repeated",
    "The same question twice",
    "Measure once and copy the answer: the smallest factorization there is.",
    (
        "If one question is asked many times, a fresh noisy answer each time shares the budget out "
        "among copies of the same thing. It is better to spend all of it on one measurement and to "
        "give that answer every time.",
        "Written as matrices, the questions F are split into what is measured, M, and how answers "
        "are read off from it, R. Only M needs noise. A planner looks for the best such split of "
        "any set of questions; this one is so simple that it can be seen.",
    ),
    ("factorization", "gaussian"),
    "A. Smith and J. Ullman, lecture notes on factorization and projection",
)

TREE: Final = Idea(
    "tree",
    "The tree on eight cells",
    "Sums of neighbours, so that every range is the sum of a few noisy numbers.",
    (
        "How many records lie between two cells? From noisy counts of single cells, a long range "
        "adds up much noise. A tree also measures the sums of pairs, of fours and of all eight, so "
        "that few nodes make up any range.",
        "Nothing is free: a person is now in four of the measured numbers, and each of them needs "
        "four times the noise. Click on a node, or move the ends of the range, and see which nodes "
        "are added.",
    ),
    ("binary-tree", "wavelet", "streams"),
    "G. Brown, Linear queries and the binary tree mechanism",
)

HULL: Final = Idea(
    "projection",
    "Projection in two dimensions",
    "Answers that no data set can have are moved to the nearest possible ones.",
    (
        "Each kind of record answers two questions with a pair of numbers: a point. Any data set "
        "answers with an average of such points, so its answer lies in the polygon between them. "
        "Noise may carry it out.",
        "The polygon is public, so the noisy point may be moved to the nearest point of it without "
        "another look at the data. That costs no privacy and never leads away from the truth. With "
        "hundreds of questions the polygon is flat in most directions, and the gain is large.",
    ),
    ("projection", "widths", "relaxations"),
    "A. Nikolov, Projection mechanism",
)

STREAM: Final = Idea(
    "sparse-vector",
    "Sparse vector on a stream",
    "Test as often as you like; pay only for what is found above the threshold.",
    (
        "A count comes in every day, and the question is whether it is unusual. To publish a noisy "
        "count each day would use up the budget within a week.",
        "Sparse vector says only above or below. It hides the threshold behind noise once, each "
        "count behind fresh noise, and it can be shown that being found below reveals next to "
        "nothing: the budget is charged for what is found above, and for the threshold. After a "
        "fixed number of discoveries it stops.",
    ),
    ("sparse-vector", "online"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

WEIGHTS: Final = Idea(
    "weights",
    "Multiplicative weights",
    "A public guess of the histogram that learns from its mistakes, question by question.",
    (
        "Begin with a guess that all cells are equally full. For each question, sparse vector "
        "tests whether the guess answers it well enough. If so, that is the answer, for nothing.",
        "If not, a noisy answer is paid for, and the guess learns from it: the weights of the "
        "cells in question are multiplied up or down. A guess can be badly wrong only so many "
        "times, so almost all questions of a long list are free. This is how a session answers "
        "on the page Ask.",
    ),
    ("online", "mwem"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

IDEAS: Final = (THREE_WAYS, REPEATED, TREE, HULL, STREAM, WEIGHTS)


# The six ideas with their controls; what is computed is in ``sfumato_web.learn``.

EPSILONS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
_CLICKED: Final = """(e) => {
  const node = e.target.closest("[data-first]");
  if (node) emit(Number(node.dataset.first), Number(node.dataset.last));
}"""


def _register_ideas() -> None:
    """Make the pages of all ideas."""
    for idea, build in (
        (THREE_WAYS, _three_ways),
        (REPEATED, _repeated),
        (TREE, _tree),
        (HULL, _hull),
        (STREAM, _stream),
        (WEIGHTS, _weights),
    ):
        page(f"/learn/{idea.name}", idea.title, idea.lead, at="Learn")(build)


async def _three_ways(visitor: Visitor) -> None:
    shown = Exhibit(visitor, THREE_WAYS)
    epsilon = shown.slider("Epsilon", EPSILONS, 1.0, number)
    sizes = [round(m * 10**e) for e in range(1, 6) for m in (1, 2, 5)]
    records = shown.slider("Records n", [*sizes, 10**6], 10_000, number)
    numbers = [round(m * 10**e) for e in range(4) for m in (1, 2, 5)]
    queries = shown.slider("Questions k", [*numbers, 10_000], 100, number)
    attributes = shown.slider("Yes/no attributes", range(2, 9), 6, lambda d: f"{d} ({2**d} cells)")

    def make() -> Drawn:
        setting = query_release.three_ways(
            epsilon.value, attributes.value, queries.value, records.value
        )
        return [setting.against_records(), setting.against_queries()], setting.notices()

    await shown.draw(make)


async def _repeated(visitor: Visitor) -> None:
    shown = Exhibit(visitor, REPEATED)
    times = shown.slider("Times it is asked", range(1, factor_and_project.MOST + 1), 20)
    epsilon = shown.slider("Epsilon", EPSILONS, 1.0, number)
    noise = [factor_and_project.unit_noise(factor_and_project.MOST + 1)]

    def make() -> Drawn:
        setting = factor_and_project.repeated(times.value, epsilon.value, noise[0])
        figures = [setting.answers_figure(), setting.error_figure(), setting.matrix_figure()]
        return figures, setting.notices()

    async def again() -> None:
        noise[0] = factor_and_project.unit_noise(factor_and_project.MOST + 1)
        await shown.redraw()

    shown.button("Draw new noise", again)
    await shown.draw(make)


async def _tree(visitor: Visitor) -> None:
    shown = Exhibit(visitor, TREE)
    cells = range(1, tree.CELLS + 1)
    first, last = shown.slider("From cell", cells, 2), shown.slider("To cell", cells, 7)
    epsilon = shown.slider("Epsilon", EPSILONS, 1.0, number)
    noise = [tree.unit_noise()]

    def make() -> Drawn:
        setting = tree.range_on_tree(first.value, last.value, epsilon.value, noise[0])
        return [setting.tree_figure(), setting.error_figure()], setting.notices()

    async def again() -> None:
        noise[0] = tree.unit_noise()
        await shown.redraw()

    async def clicked(event: events.GenericEventArguments) -> None:
        low, high = event.args
        if low in cells and high in cells:
            await first.set(low)
            await last.set(high)

    shown.button("Draw new noise", again)
    await shown.draw(make)
    shown.figures[0].on("click", clicked, js_handler=_CLICKED)


async def _hull(visitor: Visitor) -> None:
    shown = Exhibit(visitor, HULL)
    sizes = (5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000)
    records = shown.slider("Records n", sizes, 10, number)
    epsilon = shown.slider("Epsilon", EPSILONS, 1.0, number)
    noise = [factor_and_project.draws()]

    def make() -> Drawn:
        setting = factor_and_project.projection(records.value, epsilon.value, noise[0])
        return [setting.hull_figure(), setting.error_figure()], setting.notices()

    async def again() -> None:
        noise[0] = factor_and_project.draws()
        await shown.redraw()

    shown.button("Draw new noise", again)
    await shown.draw(make)


async def _stream(visitor: Visitor) -> None:
    shown = Exhibit(visitor, STREAM)
    threshold = shown.slider("Threshold", range(30, 131, 5), 70)
    epsilon = shown.slider("Epsilon", EPSILONS, 2.0, number)
    discoveries = shown.slider("Discoveries until it stops", range(1, 11), 5)

    def make() -> Drawn:
        run = query_release.watch_stream(threshold.value, epsilon.value, discoveries.value)
        return [run.stream_figure(), run.budget_figure()], run.notices()

    shown.button("Run again", shown.redraw)
    await shown.draw(make)


async def _weights(visitor: Visitor) -> None:
    shown = Exhibit(visitor, WEIGHTS)
    epsilon = shown.slider("Epsilon of one paid answer", EPSILONS, 0.5, number)
    walk = [query_release.Weights(epsilon.value)]

    def make() -> Drawn:
        now = walk[0]
        return [now.histogram_figure(), now.progress_figure()], now.notices()

    async def following() -> None:
        with showing_refusals(shown.above, clear=True):
            if not walk[0].is_over:
                _show_step(walk[0], await visitor.work(walk[0].next))
        next_one.set_enabled(not walk[0].is_over)
        await shown.redraw()

    async def over() -> None:
        walk[0] = query_release.Weights(epsilon.value)
        shown.above.clear()
        next_one.set_enabled(True)
        await shown.redraw()

    with shown.buttons:
        next_one = ui.button("Next question", on_click=following)
    shown.button("Start over", over)
    epsilon.on_change(over)
    await shown.draw(make)


def _show_step(walk: query_release.Weights, step: query_release.Step) -> None:
    """The question, its answer and how it came about."""
    how = "paid" if step.is_paid else "free"
    facts(
        [
            (f"Question {len(walk.steps)} of {len(query_release.QUESTIONS)}", step.question, ""),
            ("Answer", number(step.value), f"{how}; the estimate was {number(step.estimate)}"),
            ("Epsilon spent", number(float(step.spent)), "in all so far"),
        ]
    )


# The pages about mechanisms, from the documentation that is shipped with the package.
#
# They are our own texts; nothing that a visitor writes is ever shown this way.

FOLDERS: Final = (
    Path(__file__).resolve().parents[3] / "docs" / "mechanisms",
    Path(sysconfig.get_path("data")) / "share" / "sfumato" / "mechanisms",
)
"""In a checkout, and where a wheel puts them."""
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")


@cache
def _pages() -> dict[str, str]:
    """The text of every page by its name."""
    folder = next((f for f in FOLDERS if f.is_dir()), None)
    files = [] if folder is None else sorted(folder.glob("[a-z]*.md"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def title_of(name: str) -> str | None:
    """The title of a page; None if it is not there."""
    text = _pages().get(name)
    return None if text is None else text.partition("\n")[0].removeprefix("# ").strip()


def text_of(name: str) -> str:
    """A page without its title; links to other pages lead there, all others are plain words."""
    body = _pages()[name].partition("\n")[2]

    def linked(match: re.Match[str]) -> str:
        text, target = match[1], match[2].partition("#")[0].removesuffix(".md")
        if match[0].startswith("!"):
            return ""
        return f"[{text}]({PREFIX}/learn/read/{target})" if target in _pages() else text

    return _LINK.sub(linked, body)


def _register_reading() -> None:
    """Make a page of every text."""
    for name in _pages():
        _one(name, title_of(name) or name)


def _one(name: str, title: str) -> None:
    @page(f"/learn/read/{name}", title, at="Learn")
    def _read(_: Visitor) -> None:
        with ui.element("article").classes("card"):
            ui.markdown(text_of(name), extras=["fenced-code-blocks", "tables"]).classes("reading")


def register() -> None:
    """Make the overview, the pages of the ideas, and those to read on."""

    @page("/learn", "Learn", "Six ideas behind private answers, to try out on made-up data.")
    def _learn(_: Visitor) -> None:
        items = "".join(
            f'<li><a href="{PREFIX}/learn/{idea.name}"><h2>{escape(idea.title)}</h2>'
            f"<p>{escape(idea.lead)}</p></a></li>"
            for idea in IDEAS
        )
        ui.html(items, sanitize=False, tag="ul").classes("ideas")

    _register_ideas()
    _register_reading()
