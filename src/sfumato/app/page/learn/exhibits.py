# SPDX-License-Identifier: Apache-2.0
"""The six ideas with their controls; what is computed is in ``sfumato.app.learn``."""

from __future__ import annotations

from typing import Final

from nicegui import events, ui

from sfumato.app.learn import hull, repeated, stream, three_ways, tree, weights
from sfumato.app.learn.drawing import number
from sfumato.app.page.learn import ideas
from sfumato.app.page.learn.frame import Drawn, Exhibit
from sfumato.app.page.shell import Visitor, facts, page, told

__all__ = ["register"]

EPSILONS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
_CLICKED: Final = """(e) => {
  const node = e.target.closest("[data-first]");
  if (node) emit(Number(node.dataset.first), Number(node.dataset.last));
}"""


def register() -> None:
    """Make the pages of all ideas."""
    for idea, build in (
        (ideas.THREE_WAYS, _three_ways),
        (ideas.REPEATED, _repeated),
        (ideas.TREE, _tree),
        (ideas.HULL, _hull),
        (ideas.STREAM, _stream),
        (ideas.WEIGHTS, _weights),
    ):
        page(f"/learn/{idea.name}", idea.title, idea.lead, at="Learn")(build)


async def _three_ways(visitor: Visitor) -> None:
    shown = Exhibit(visitor, ideas.THREE_WAYS)
    epsilon = shown.dial("Epsilon", EPSILONS, 1.0, number)
    sizes = [round(m * 10**e) for e in range(1, 6) for m in (1, 2, 5)]
    records = shown.dial("Records n", [*sizes, 10**6], 10_000, number)
    asked = [round(m * 10**e) for e in range(4) for m in (1, 2, 5)]
    queries = shown.dial("Questions k", [*asked, 10_000], 100, number)
    attributes = shown.dial("Yes/no attributes", range(2, 9), 6, lambda d: f"{d} ({2**d} cells)")

    def make() -> Drawn:
        setting = three_ways.three_ways(
            epsilon.value, attributes.value, queries.value, records.value
        )
        return [setting.against_records(), setting.against_queries()], setting.notices()

    await shown.draw(make)


async def _repeated(visitor: Visitor) -> None:
    shown = Exhibit(visitor, ideas.REPEATED)
    times = shown.dial("Times it is asked", range(1, repeated.MOST + 1), 20)
    epsilon = shown.dial("Epsilon", EPSILONS, 1.0, number)
    noise = [repeated.unit_noise(repeated.MOST + 1)]

    def make() -> Drawn:
        found = repeated.repeated(times.value, epsilon.value, noise[0])
        figures = [found.answers_figure(), found.error_figure(), found.matrix_figure()]
        return figures, found.notices()

    async def again() -> None:
        noise[0] = repeated.unit_noise(repeated.MOST + 1)
        await shown.redraw()

    shown.button("Draw new noise", again)
    await shown.draw(make)


async def _tree(visitor: Visitor) -> None:
    shown = Exhibit(visitor, ideas.TREE)
    cells = range(1, tree.CELLS + 1)
    first, last = shown.dial("From cell", cells, 2), shown.dial("To cell", cells, 7)
    epsilon = shown.dial("Epsilon", EPSILONS, 1.0, number)
    noise = [tree.unit_noise()]

    def make() -> Drawn:
        found = tree.range_on_tree(first.value, last.value, epsilon.value, noise[0])
        return [found.tree_figure(), found.error_figure()], found.notices()

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
    shown = Exhibit(visitor, ideas.HULL)
    sizes = (5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000)
    records = shown.dial("Records n", sizes, 10, number)
    epsilon = shown.dial("Epsilon", EPSILONS, 1.0, number)
    noise = [hull.draws()]

    def make() -> Drawn:
        found = hull.projection(records.value, epsilon.value, noise[0])
        return [found.hull_figure(), found.error_figure()], found.notices()

    async def again() -> None:
        noise[0] = hull.draws()
        await shown.redraw()

    shown.button("Draw new noise", again)
    await shown.draw(make)


async def _stream(visitor: Visitor) -> None:
    shown = Exhibit(visitor, ideas.STREAM)
    threshold = shown.dial("Threshold", range(30, 131, 5), 70)
    epsilon = shown.dial("Epsilon", EPSILONS, 2.0, number)
    discoveries = shown.dial("Discoveries until it stops", range(1, 11), 5)

    def make() -> Drawn:
        found = stream.watch_stream(threshold.value, epsilon.value, discoveries.value)
        return [found.stream_figure(), found.budget_figure()], found.notices()

    shown.button("Run again", shown.redraw)
    await shown.draw(make)


async def _weights(visitor: Visitor) -> None:
    shown = Exhibit(visitor, ideas.WEIGHTS)
    epsilon = shown.dial("Epsilon of one paid answer", EPSILONS, 0.5, number)
    walk = [weights.Weights(epsilon.value)]

    def make() -> Drawn:
        now = walk[0]
        return [now.histogram_figure(), now.progress_figure()], now.notices()

    async def following() -> None:
        with told(shown.above, clear=True):
            if not walk[0].is_over:
                _told_step(walk[0], await visitor.work(walk[0].next))
        next_one.set_enabled(not walk[0].is_over)
        await shown.redraw()

    async def over() -> None:
        walk[0] = weights.Weights(epsilon.value)
        shown.above.clear()
        next_one.set_enabled(True)
        await shown.redraw()

    with shown.buttons:
        next_one = ui.button("Next question", on_click=following)
    shown.button("Start over", over)
    epsilon.on_change(over)
    await shown.draw(make)


def _told_step(walk: weights.Weights, step: weights.Step) -> None:
    """The question, its answer and how it came about."""
    how = "paid" if step.is_paid else "free"
    facts(
        [
            (f"Question {len(walk.steps)} of {len(weights.QUESTIONS)}", step.question, ""),
            ("Answer", number(step.value), f"{how}; the estimate was {number(step.estimate)}"),
            ("Epsilon spent", number(float(step.spent)), "in all so far"),
        ]
    )
