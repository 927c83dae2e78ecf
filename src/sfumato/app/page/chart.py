# SPDX-License-Identifier: Apache-2.0
"""A chart on the page: the Altair charts of reports and notebooks, drawn in the browser by Vega."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

if TYPE_CHECKING:
    from sfumato.release.charts import Chart as Drawn

__all__ = ["LIBRARY", "Chart"]

LIBRARY = "/assets/vega.js"


class Chart(ui.element, component="assets/sfumato_chart.js"):
    """A chart that can be shown anew; ``label`` is what a screen reader says of it.

    Charts made with ``width="container"`` are as wide as their place.
    """

    def __init__(self, drawn: Drawn | None, label: str) -> None:
        super().__init__()
        self._props["library"] = LIBRARY
        self.show(drawn, label)

    def show(self, drawn: Drawn | None, label: str) -> None:
        """Show another chart in the same place."""
        self._props["label"] = label
        self._props["spec"] = None if drawn is None else _spec(drawn.to_dict())
        self.update()


def _spec(chart: dict[str, object]) -> dict[str, object]:
    """Without the default look, which the page gives, and the address of the schema."""
    return {k: v for k, v in chart.items() if k not in ("config", "$schema")}
