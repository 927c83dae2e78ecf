# SPDX-License-Identifier: Apache-2.0
"""The page Describe: what columns hold, for a budget that is shown before it is spent.

``describe`` goes the way of ``POST /datasets/NAME/describe``; the forecast that of ``.../plan``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui
from pydantic import ValidationError

from sfumato.cli.output import counts
from sfumato.errors import SfumatoError
from sfumato.release.labels import label_text
from sfumato_web.page.ask_page import problem_words
from sfumato_web.page.layout import (
    Visitor,
    card,
    empty,
    facts,
    labelled,
    page,
    paragraph,
    showing_refusals,
    table,
    trouble,
)
from sfumato_web.page.release_page import check_done, watched_to_its_end
from sfumato_web.server.models import DescriptionAsked
from sfumato_web.server.problems import Problem, not_valid, problem_of

if TYPE_CHECKING:
    from sfumato.types import Progress
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.jobs import Facts, Job

__all__ = ["register", "request_of", "summary_rows"]

_HEADS: Final = ("column", "kind", "records", "nulls", "range or values", "mean", "median", "note")


def request_of(columns: Sequence[str], epsilon: object, delta: object) -> DescriptionAsked:
    """The request that the controls stand for.

    >>> request_of(["age"], 1, "1e-6").columns
    ['age']
    """
    budget = {"epsilon": epsilon, **({"delta": delta} if str(delta or "0") != "0" else {})}
    try:
        return DescriptionAsked.model_validate(
            {"budget": budget, **({"columns": list(columns)} if columns else {})}
        )
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None


def summary_rows(columns: Mapping[str, Sequence[Any]]) -> list[tuple[str, ...]]:
    """A row of texts for every column of a description, as the server sends it.

    >>> summary_rows({"column": ["age"], "kind": ["integer"], "note": [""], "records": [90.0],
    ...     "nulls": [1.0], "nulls_low": [0.0], "nulls_high": [3.0], "low": [0], "high": [64],
    ...     "mean": [30.0], "mean_low": [28.0], "mean_high": [32.0]})
    [('age', 'integer', '90.0', '1 (0 to 3)', '0 to 64', '30.0 (28.0 to 32.0)', '-', '')]
    """
    rows: list[tuple[str, ...]] = []
    for i in range(len(columns["column"])):
        row = {name: values[i] for name, values in columns.items()}
        rows.append(
            (
                str(row["column"]),
                str(row.get("kind") or "-"),
                counts(row.get("records")),
                _with_ends(row, "nulls"),
                _holds(row),
                _with_ends(row, "mean"),
                _with_ends(row, "median"),
                str(row.get("note") or ""),
            )
        )
    return rows


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return "-"
    return f"{_number(value)} ({_number(low)} to {_number(high)})"


def _holds(row: Mapping[str, Any]) -> str:
    """The range of a column, or how many values were found and which is the most frequent."""
    if row.get("low") is not None:
        return f"{_number(row['low'])} to {_number(row['high'])}"
    if row.get("keys") is None:
        return "-"
    return f"{row['keys']:,.0f} values, most often {row.get('top')}"


def _number(value: object) -> str:
    return counts(value) if isinstance(value, int | float) else label_text(value)


async def begin_description(
    visitor: Visitor, dataset: GuardedDataset, request: DescriptionAsked
) -> Job:
    """The job of a description, in line like those over HTTP."""

    def work(progress: Progress) -> tuple[bytes, str | None, Facts]:
        body = dataset.describer.describe(request, visitor.who, None, progress)
        return body, str(json.loads(body)["key"]), {}

    about = request.model_dump(exclude_none=True, exclude_defaults=True)
    server = visitor.server
    return await server.begin("describe", visitor.who, dataset, about, work, lane=dataset.lane)


def register() -> None:
    """Make the page."""

    @page(
        "/describe",
        "Describe",
        "What columns hold: values that many share, ranges, means and quartiles, for a budget.",
    )
    async def _describe(visitor: Visitor) -> None:
        if not visitor.datasets:
            empty("No dataset is open to you", "Ask your curator for one.")
            return
        await _DescribePage(visitor).build()


class _DescribePage:
    """What is to be described and what it costs to the left, what came out to the right."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.dataset = visitor, visitor.datasets[0]
        self.is_busy = False

    async def build(self) -> None:
        with ui.element("div").classes("split"):
            with ui.element("div").classes("stack loose"):
                self._build_controls()
            with ui.element("div").classes("stack loose").props("aria-live=polite") as self.place:
                empty("Nothing described yet", "See what it costs first; nothing is spent by that.")
        await self._choose(self.dataset.name)

    def _build_controls(self) -> None:
        with card("What to describe"):
            names = [d.name for d in self.visitor.datasets]
            if len(names) > 1:
                chosen = ui.select(names, label="Dataset", value=names[0])
                chosen.on_value_change(lambda e: self._choose(e.value))
                chosen.props('aria-label="Dataset"')
            self.columns = ui.select([], label="Columns", multiple=True, value=[])
            self.columns.props('use-chips aria-label="Columns"')
            paragraph("None chosen: all that may be described.", "note")
            with ui.element("div").classes("halves tight"):
                self.epsilon = ui.number("epsilon", value=1, min=0, step=0.1, on_change=self._stale)
                self.delta = ui.input("delta", value="1e-6", on_change=self._stale)
            self.columns.on_value_change(self._stale)
            with ui.element("div").classes("line"):
                ui.button("What would it cost?", on_click=self.forecast).props("outline")
                self.button = ui.button("Spend and describe", on_click=self.describe)
                self.button.set_enabled(False)
            self.status = ui.element("div").classes("stack").props("aria-live=polite")

    async def _choose(self, name: str) -> None:
        self.dataset = self.visitor.dataset(name)
        with showing_refusals(self.status, clear=True):
            names = await self.visitor.work(self.dataset.describer.columns)
            self.columns.set_options(list(names), value=[])
        self._stale()

    def _stale(self) -> None:
        """Nothing can be spent until its cost was shown."""
        self.button.set_enabled(False)
        self.status.clear()

    def _request(self) -> DescriptionAsked:
        return request_of(self.columns.value, self.epsilon.value, self.delta.value)

    async def forecast(self) -> None:
        """What it would cost and how good it would be; spends nothing."""
        with showing_refusals(self.status, clear=True):
            try:
                describer, request = self.dataset.describer, self._request()
                document = await self.visitor.work(describer.forecast, request, self.visitor.who)
            except (Problem, SfumatoError) as error:
                _refused(problem_of(error))
                return
            _forecast(document)
            self.button.set_enabled(bool(document["fits"]))

    async def describe(self) -> None:
        """Spend and describe; while that is under way another click does nothing."""
        if self.is_busy:
            return
        self.is_busy = True
        self.button.disable()
        visitor, dataset = self.visitor, self.dataset
        try:
            with showing_refusals(self.status, clear=True):
                began = visitor.now()
                try:
                    visitor.check()
                    job = await begin_description(visitor, dataset, self._request())
                    await watched_to_its_end(visitor, job)
                    await visitor.on_grid(began)
                    check_done(job)
                    body = await visitor.server.read(visitor.who, visitor.server.jobs.result, job)
                except (Problem, SfumatoError) as error:
                    self.status.clear()
                    _refused(problem_of(error))
                    return
                self.status.clear()
                if body is None:
                    paragraph("Cancelled; nothing was spent.", "note")
                else:
                    self._show(dataset, json.loads(body))
        finally:
            self.is_busy = False

    def _show(self, dataset: GuardedDataset, document: Mapping[str, Any]) -> None:
        self.place.clear()
        with self.place, card(f"Columns of {dataset.name}", document["promise"]):
            records = document["records"]
            if records is not None:
                ends = f"{counts(records['low'])} to {counts(records['high'])}"
                facts([("Records", counts(records["value"]), ends)])
            table(_HEADS, summary_rows(document["answers"]), "Columns described", texts=2)
            if document["toml"] is not None:
                paragraph("The completed schema, for releases of your own:", "note")
                inside = f"<pre><code>{escape(document['toml'])}</code></pre>"
                schema = ui.html(inside, sanitize=False).classes("wide tall").props("tabindex=0")
                labelled(schema, "The completed schema")


def _refused(problem: Problem) -> None:
    message, advice = problem_words(problem)
    trouble(f"{message} {advice}".strip())


def _forecast(document: Mapping[str, Any]) -> None:
    """What was forecast: columns, error, what it takes; and what is left out, with the reason."""
    paragraph("Nothing was spent to say this.", "promise")
    names = ", ".join(f"{n} ({kind})" for n, kind in document["columns"].items())
    error = f"± {counts(document['standard_error'])}"
    takes = "it fits" if document["fits"] else "it does not fit"
    facts(
        [
            ("Columns", f"{len(document['columns']):,}", names),
            ("A count would have", error, "records of standard error, about"),
            ("Of your budget", takes, document["ledger"]),
        ]
    )
    for name, why in document["left_out"].items():
        paragraph(f"{name} is left out: {why}", "note")
