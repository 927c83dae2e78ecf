# SPDX-License-Identifier: Apache-2.0
"""Sliders over a list of values, which keyboards and screen readers know as the browser's own.

``Slider`` can be moved from here and calls its listeners, as the pages of Learn need it; ``slider``
writes its value in the browser and only tells where it is, as the budget of a plan needs it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Generic, TypeVar

from nicegui import events, ui
from nicegui.events import GenericEventArguments

__all__ = [
    "Slider",
    "slider",
]


T = TypeVar("T")


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


def slider(
    label: str,
    values: Sequence[str],
    at: int,
    slid: Callable[[int], None],
) -> ui.element:
    """``slid`` is called with a place in ``values`` while it moves, the last one included.

    What the slider says of itself is written in the browser. Its place is an attribute and never
    updated from here, so that it is not pulled back under the hand that moves it.
    """
    script = f"""(event) => {{
      const said = {json.dumps(list(values))}[event.target.value];
      event.target.setAttribute("aria-valuetext", said);
      event.target.closest(".slider").querySelector("b").textContent = said;
      emit(Number(event.target.value));
    }}"""

    def moved(event: GenericEventArguments) -> None:
        if isinstance(event.args, int) and 0 <= event.args < len(values):
            slid(event.args)

    with ui.element("div").classes("slider"):
        with ui.element("div").classes("slider-head"):
            ui.label(label)
            ui.html(values[at], sanitize=False, tag="b")
        element = ui.element("input").props("type=range min=0 step=1")
        element.props["max"] = len(values) - 1
        element.props["^value"] = at
        element.props["aria-label"] = label
        element.props["aria-valuetext"] = values[at]
        element.on("input", moved, js_handler=script, throttle=0.05)
    return element
