# SPDX-License-Identifier: Apache-2.0
"""A slider over a list of values: the browser's own, which keyboards and screen readers know."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from nicegui import ui
from nicegui.events import GenericEventArguments

__all__ = ["slider"]


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
    say = f"""(event) => {{
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
        found = ui.element("input").props("type=range min=0 step=1")
        found.props["max"] = len(values) - 1
        found.props["^value"] = at
        found.props["aria-label"] = label
        found.props["aria-valuetext"] = values[at]
        found.on("input", moved, js_handler=say, throttle=0.05)
    return found
