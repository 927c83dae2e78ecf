# SPDX-License-Identifier: Apache-2.0
"""A chart on the page: the Altair charts of reports and notebooks, drawn in the browser by Vega."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from sfumato.app.page.porch import PREFIX

if TYPE_CHECKING:
    from sfumato.release.charts import Chart as Drawn

__all__ = ["LIBRARY", "Chart"]

LIBRARY = f"{PREFIX}/assets/vega.js"
Spec = dict[str, Any]


class Chart(ui.element, component="assets/sfumato_chart.js"):
    """A chart that can be shown anew; ``label`` is what a screen reader says of it.

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
