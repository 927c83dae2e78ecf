# SPDX-License-Identifier: Apache-2.0
"""The page Release: what was released, as charts, tables and files.

Everything here is made of stored answers: opening it reads no data and spends nothing.
"""

from __future__ import annotations

from html import escape, unescape
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

from nicegui import app as pages
from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from sfumato.cli.output import counts
from sfumato.release.answers import group_frame, named_groups
from sfumato.release.charts import chart_of, chart_rank
from sfumato.release.labels import DERIVED_NUMBERS, label_text
from sfumato.release.provenance import guarantee
from sfumato.release.report import number
from sfumato_web.page.auth import PREFIX
from sfumato_web.page.confirm import spent
from sfumato_web.page.layout import (
    Chart,
    Visitor,
    card,
    empty,
    facts,
    page,
    paragraph,
    showing_refusals,
    table,
    visitor_of,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.page.plan_draft import in_words
from sfumato_web.page.statement_table import statement_table
from sfumato_web.server.models import statements_document
from sfumato_web.server.problems import Problem

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.release.answers import Group
    from sfumato.release.charts import Chart as Drawn
    from sfumato.release.release import Release
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.models import ReleaseAsked

__all__ = [
    "register",
]


FILES: Final = {
    "answers.parquet": ("answers", "application/vnd.apache.parquet", "all answers"),
    "answers.csv": ("answers_csv", "text/csv", "all answers"),
    "synthetic.parquet": ("synthetic", "application/vnd.apache.parquet", "made-up records"),
    "report.html": ("report", "text/html", "to read and send around"),
    "provenance.json": ("provenance", "application/json", "how it was made"),
}
_NUMBERS: Final = (*DERIVED_NUMBERS, "value", "standard_error", "low", "high")
_SHARES: Final = {"share": "value", "share_low": "low", "share_high": "high"}


def register() -> None:
    """Make the pages and the way to the files."""

    @page("/release", "Release", "What was released, to be opened again at no cost.")
    async def _list(visitor: Visitor) -> None:
        releases = [
            (dataset, *each)
            for dataset in visitor.datasets
            for each in await visitor.on_ledger(dataset, dataset.releases, visitor.who)
        ]
        if not releases:
            empty("Nothing released yet", "Plan a release first; its answers will be listed here.")
            ui.link("To the plan", "/plan")
            return
        with card("Your releases", "Newest first in each table."):
            for dataset, key, entry, request in releases:
                with ui.element("div").classes("line apart"):
                    text = ", ".join(in_words(e) for e in request.workload)
                    ui.link(f"{dataset.name}: {text}", f"/release/{dataset.name}/{key}")
                    paragraph(f"entry {entry.sequence}, {entry.time[:10]}", "note")

    @page("/release/{name}/{key}", "Release", at="Release")
    async def _one(visitor: Visitor) -> None:
        dataset, key = _named(visitor)
        request, result = await visitor.work(_opened, dataset, key)
        left = await visitor.on_ledger(dataset, dataset.ledger.remaining, visitor.who.name)
        _Shown(visitor, dataset, key, request, result, float(left.share)).build()

    @pages.get("/files/{name}/{key}/{file}")
    async def _file(request: Request) -> Response:
        visitor = visitor_of(request)
        dataset, key = _named(visitor)
        file = str(request.path_params["file"])
        if file not in FILES:
            raise Problem(404, "not-found", f"there is no such file; there are {', '.join(FILES)}")
        body = await visitor.work(_written, dataset, key, file)
        disposition = {"Content-Disposition": f'attachment; filename="{file}"'}
        return Response(body, media_type=FILES[file][1], headers=disposition)


def _named(visitor: Visitor) -> tuple[GuardedDataset, str]:
    params = visitor.request.path_params
    return visitor.dataset(str(params["name"])), str(params["key"])


def _opened(dataset: GuardedDataset, key: str) -> tuple[ReleaseAsked, Release]:
    release = dataset.released(key)
    if release is None:
        raise Problem(404, "not-found", "no release has this key; Release lists yours")
    return release


def _written(dataset: GuardedDataset, key: str, file: str) -> bytes:
    """One file of a release, written into a folder that is gone afterwards; all of it public."""
    request, result = _opened(dataset, key)
    kind = FILES[file][0]
    with TemporaryDirectory(prefix="sfumato-") as folder:
        kinds = {"synthetic": kind == "synthetic", "csv": kind == "answers_csv"}
        shares = request.shares and bool(result.rows)
        paths = result.save(folder, level=request.level, shares=shares, **kinds)
        return paths[kind].read_bytes()


class _Shown:
    """One release: facts, a group of answers as chart and table, files."""

    def __init__(
        self,
        visitor: Visitor,
        dataset: GuardedDataset,
        key: str,
        request: ReleaseAsked,
        result: Release,
        left: float,
    ) -> None:
        self.visitor, self.dataset, self.key, self.left = visitor, dataset, key, left
        self.request, self.result = request, result
        work = result.forecast.workload
        named = list(named_groups(work).items())
        ranks = [chart_rank(work, group) for group, _ in named]  # charts with bands come first
        self.names = [named[i] for i in sorted(range(len(named)), key=lambda i: _last(ranks[i]))]

    def build(self) -> None:
        """Everything; the first group is shown."""
        with ui.element("div").classes("split turned"):
            with ui.element("div").classes("stack loose"):
                self._build_statements()
                self._build_answers()
            with ui.element("div").classes("stack loose"):
                self._build_facts()
                self._build_files()

    def _build_facts(self) -> None:
        forecast = self.result.forecast
        with card(self.dataset.name, self.dataset.config.about):
            facts(
                [
                    ("Answers", f"{forecast.workload.queries:,}", f"by {forecast.mechanism}"),
                    ("Typical error", f"± {counts(forecast.rmse)}", "counts, before projection"),
                    *self._share_fact(),
                    ("Spent", *spent(forecast)),
                    ("Left", f"{self.left:.1%}", "of your budget for this table"),
                ]
            )
            paragraph(guarantee(forecast), "note")

    def _share_fact(self) -> list[tuple[str, str, str]]:
        """The error as a share of all records, where their number is public."""
        records = self.result.rows
        if not records:
            return []
        error = f"± {counts(self.result.forecast.rmse / records)}"
        return [("As a share", error, f"of the {records:,} records, whose number is public")]

    def _build_files(self) -> None:
        with card("Files", "The same answers to keep and to send on; all of it is public."):
            for file, (_, _, about) in FILES.items():
                with ui.element("div").classes("line apart"):
                    at = f"{PREFIX}/files/{self.dataset.name}/{self.key}/{file}"
                    link = ui.element("a")
                    link.props["href"] = at
                    link.props["download"] = file
                    with link:
                        ui.label(file)
                    paragraph(about, "note")

    def _build_answers(self) -> None:
        level = f"{self.request.level:.0%}"
        with card("Answers", f"Each interval holds the true number with probability {level}."):
            options = {str(i): name for i, name in enumerate(name for _, name in self.names)}
            ui.select(options, value="0", label="Group", on_change=self._choose)
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
        self._show(0)

    def _build_statements(self) -> None:
        """Every SELECT in its own shape, before all that was released for it."""
        document = statements_document(self.result, self.request.level)
        statements = cast(list[dict[str, Any]], document.get("statements", []))
        for statement in statements[: LIMITS.statements_shown]:
            with card("In the shape of the question"):
                ui.html(f"<code>{escape(statement['sql'])}</code>", sanitize=False, tag="p")
                statement_table(statement["columns"])
        if len(statements) > LIMITS.statements_shown:
            more = len(statements) - LIMITS.statements_shown
            paragraph(f"{more:,} more SELECTs are in the files.", "note")

    def _choose(self, event: object) -> None:
        self._show(int(getattr(event, "value", 0)))

    def _show(self, number: int) -> None:
        group, name = self.names[number]
        with showing_refusals(self.place, clear=True):
            self.visitor.check()
            estimates, level = self.result.estimates, self.request.level
            drawn = _chart(self.result, group, level)
            if drawn is not None:
                Chart(drawn, f"Released answers of {name}, with intervals")
            term = group if isinstance(group, int) else group.terms[0]
            if self.result.forecast.workload.terms[term].rows > LIMITS.group_rows:
                paragraph("This group is too long for a page; it is in the files.", "note")
                return
            frame = group_frame(estimates, group, level)
            _table(frame, name, self.result.rows if isinstance(group, int) else None)


def _last(rank: int | None) -> int:
    return 9 if rank is None else rank


def _chart(result: Release, group: Group, level: float) -> Drawn | None:
    return chart_of(result.estimates, group, level, "container")


def _table(frame: pd.DataFrame, name: str, records: int | None) -> None:
    """Answers, and shares of the public number of records where there is one."""
    numbers = [c for c in frame.columns if c in _NUMBERS]
    labels = [c for c in frame.columns if c not in (*_NUMBERS, "unbiased")]
    shown = frame.head(LIMITS.rows_shown)
    columns = [[label_text(v) for v in shown[c].tolist()] for c in labels]
    errors = shown["standard_error"].tolist()
    columns += [
        [unescape(number(v, e)) for v, e in zip(shown[c].tolist(), errors, strict=True)]
        for c in numbers
    ]
    shares = _SHARES if records else {}
    columns += [
        [
            unescape(number(v / (records or 1), e / (records or 1)))
            for v, e in zip(shown[c].tolist(), errors, strict=True)
        ]
        for c in shares.values()
    ]
    heads = [*labels, *(c.replace("_", " ") for c in (*numbers, *shares))]
    rows = list(zip(*columns, strict=True))
    table(heads, rows, f"Answers of {name}", texts=len(labels))
    if len(frame) > len(shown):
        paragraph(f"{len(frame) - len(shown):,} more rows are in the files.", "note")
