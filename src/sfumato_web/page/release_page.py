# SPDX-License-Identifier: Apache-2.0
"""The page Release: how a plan is released, and what was released, as charts, tables and files.

From a plan to a release: what it costs, what remains, one button, and a bar while it runs. It goes
the way of ``POST /datasets/NAME/release``: its key is made of what is asked, so a second click, a
reload or another browser gets the stored answer and spends nothing. The page itself is made of
stored answers: opening it reads no data and spends nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from html import escape, unescape
from math import ceil, log10
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from nicegui import app as pages
from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from sfumato.cli.output import counts
from sfumato.ledger.account import percent
from sfumato.privacy.budget import Budget, number_text
from sfumato.privacy.cost import composed_epsilon
from sfumato.release.answers import group_frame, named_groups
from sfumato.release.charts import chart_of, chart_rank
from sfumato.release.labels import DERIVED_NUMBERS, label_text
from sfumato.release.provenance import cost_in_words, guarantee
from sfumato.release.report import number
from sfumato_web.page.auth import PREFIX
from sfumato_web.page.layout import (
    Chart,
    Visitor,
    card,
    empty,
    facts,
    page,
    paragraph,
    set_paragraph,
    showing_refusals,
    statement_table,
    table,
    visitor_of,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.page.plan_draft import Draft, in_words
from sfumato_web.server.dataset import FILES, file_of, opened
from sfumato_web.server.models import canonical, statements_document
from sfumato_web.server.problems import Problem

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.account import Price, Remaining
    from sfumato.planning.forecast import Forecast
    from sfumato.release.answers import Group
    from sfumato.release.charts import Chart as Drawn
    from sfumato.release.release import Release
    from sfumato.run.linear import Plan
    from sfumato_web.server.dataset import GuardedDataset, PastRelease, ReleaseTask
    from sfumato_web.server.jobs import Job
    from sfumato_web.server.models import ReleaseAsked

__all__ = [
    "Compared",
    "Confirm",
    "Watched",
    "check_done",
    "difference_of",
    "register",
    "spent",
    "title_of",
    "watched_to_its_end",
]


_NUMBERS: Final = (*DERIVED_NUMBERS, "value", "standard_error", "low", "high")
_SHARES: Final = {"share": "value", "share_low": "low", "share_high": "high"}


def register() -> None:
    """Make the pages and the way to the files."""

    @page("/release", "Release", "What was released, to be opened again at no cost.")
    async def _list(visitor: Visitor) -> None:
        await _under_way(visitor)
        releases = [
            (dataset, each)
            for dataset in visitor.datasets
            for each in await visitor.on_ledger(dataset, dataset.releases, visitor.who)
        ]
        if not releases:
            empty("Nothing released yet", "Plan a release first; its answers will be listed here.")
            ui.link("To the plan", "/plan")
            return
        _Listed(visitor, releases).build()

    @page("/release/{name}/{key}", "Release", at="Release")
    async def _one(visitor: Visitor) -> None:
        dataset, key = _named(visitor)
        request, result = await visitor.work(opened, dataset, key)
        left = await visitor.on_ledger(dataset, dataset.ledger.remaining, visitor.who.name)
        listed = await visitor.on_ledger(dataset, dataset.releases, visitor.who)
        past = next((each for each in listed if each.key == key), None)
        _Shown(visitor, dataset, key, request, result, float(left.share), past).build()

    @page("/compare/{name}/{one}/{two}", "Two releases", at="Release")
    async def _two(visitor: Visitor) -> None:
        params = visitor.request.path_params
        dataset = visitor.dataset(str(params["name"]))
        listed = await visitor.on_ledger(dataset, dataset.releases, visitor.who)
        past = [next((p for p in listed if p.key == params[w]), None) for w in ("one", "two")]
        results = [await visitor.work(opened, dataset, str(params[w])) for w in ("one", "two")]
        one, two = (Compared(p, *r) for p, r in zip(past, results, strict=True))
        await _Comparison(visitor, dataset, one, two).build()

    @pages.get("/files/{name}/{key}/{file}")
    async def _file(request: Request) -> Response:
        visitor = visitor_of(request)
        dataset, key = _named(visitor)
        file = str(request.path_params["file"])
        body = await visitor.work(file_of, dataset, key, file)
        disposition = {"Content-Disposition": f'attachment; filename="{file}"'}
        return Response(body, media_type=FILES[file][1], headers=disposition)


class _Listed:
    """The releases of somebody; two of one table can be chosen and compared."""

    def __init__(
        self, visitor: Visitor, releases: list[tuple[GuardedDataset, PastRelease]]
    ) -> None:
        self.visitor, self.releases = visitor, releases
        self.chosen: list[tuple[str, str]] = []

    def build(self) -> None:
        """The list, and the button below it."""
        is_all = self.visitor.who.is_curator
        with card("All releases" if is_all else "Your releases", "Newest first in each table."):
            for dataset, each in self.releases:
                words = title_of(each)
                with ui.element("div").classes("line apart"):
                    with ui.element("div").classes("line"):
                        box = ui.checkbox(on_change=partial(self._choose, dataset.name, each.key))
                        box.props["aria-label"] = f"Compare {words}, entry {each.entry.sequence}"
                        ui.link(f"{dataset.name}: {words}", f"/release/{dataset.name}/{each.key}")
                    paragraph(_about(each, names_analyst=is_all), "note")
            with ui.element("div").classes("line"):
                self.button = ui.button("Compare two", on_click=self._compare).props("outline")
                paragraph("Choose two of one table.", "note")
        self._show()

    def _choose(self, name: str, key: str, event: object) -> None:
        if getattr(event, "value", False):
            self.chosen.append((name, key))
        else:
            self.chosen.remove((name, key))
        self._show()

    def _show(self) -> None:
        tables = {name for name, _ in self.chosen}
        self.button.set_enabled(len(self.chosen) == 2 and len(tables) == 1)

    def _compare(self) -> None:
        (name, one), (_, two) = self.chosen
        ui.navigate.to(f"/compare/{name}/{one}/{two}")


def title_of(release: PastRelease) -> str:
    """What a release is called, or what it asked."""
    return release.name or ", ".join(in_words(e) for e in release.request.workload)


async def _under_way(visitor: Visitor) -> None:
    """What is not over yet, with how far it is and a way to cancel it."""
    server = visitor.server
    jobs = [
        job
        for job in await server.read(visitor.who, server.jobs.under_way, visitor.who)
        if job.document["kind"] in ("release", "describe")
    ]
    if not jobs:
        return
    with card("Under way", "These go on when you close the page."):
        for job in jobs:
            about = job.document["about"]
            described = f"description of {', '.join(about.get('columns', ['all columns']))}"
            text = ", ".join(in_words(e) for e in about.get("workload", [])) or described
            paragraph(f"{job.document['dataset']}: {text}, by {job.document['analyst']}")
            Watched(visitor, job).show()


def _about(release: PastRelease, *, names_analyst: bool) -> str:
    """Of one release in the list: how good it is, what it cost, by whom and when."""
    summary, budget = release.summary, Budget(**release.request.budget.model_dump())
    error = summary.get("rmse")
    parts = [
        f"± {counts(error)}" if isinstance(error, float) else "",
        str(summary.get("mechanism", "")),
        budget.describe(),
        f"by {release.analyst}" if names_analyst else "",
        f"{release.entry.time[:16].replace('T', ' ')} UTC",
        f"entry {release.entry.sequence}",
    ]
    return ", ".join(part for part in parts if part)


def _named(visitor: Visitor) -> tuple[GuardedDataset, str]:
    params = visitor.request.path_params
    return visitor.dataset(str(params["name"])), str(params["key"])


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
        past: PastRelease | None,
    ) -> None:
        self.visitor, self.dataset, self.key, self.left = visitor, dataset, key, left
        self.past = past  # of who may name it
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
            if self.past is not None:
                with ui.element("div").classes("line"):
                    self.name = ui.input("Name", value=self.past.name or "")
                    self.name.props('aria-label="Name of the release" maxlength=60').classes("grow")
                    ui.button("Keep the name", on_click=self._call).props("outline")
                self.named = ui.element("div").props("aria-live=polite")

    async def _call(self) -> None:
        """Give it the name that was written."""
        with showing_refusals(self.named, clear=True):
            name = str(self.name.value or "").strip()
            dataset, who = self.dataset, self.visitor.who
            call = (dataset.call_release, who, self.key, name)
            await self.visitor.on_ledger(dataset, *call)
            paragraph("It is called so in the lists now." if name else "It has no name now.")

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
            paragraph(_PUBLISHED[str(self.request.project).lower()], "note")
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


# Two releases beside each other


@dataclass(frozen=True, slots=True)
class Compared:
    """One of two releases, with what the list says of it where it is theirs."""

    past: PastRelease | None
    request: ReleaseAsked
    result: Release

    @property
    def name(self) -> str:
        """What it is called, or what it asked."""
        if self.past is not None:
            return title_of(self.past)
        return ", ".join(in_words(e) for e in self.request.workload)

    def facts(self) -> list[str]:
        """What stands in its column."""
        forecast = self.result.forecast
        past = self.past
        return [
            "-" if past is None else f"{past.entry.time[:16].replace('T', ' ')} UTC",
            "-" if past is None else past.analyst,
            f"± {counts(forecast.rmse)}",
            f"± {counts(forecast.largest_error)}",
            forecast.mechanism,
            " ".join(spent(forecast)).strip(),
            f"{forecast.workload.queries:,}",
            f"{self.request.level:.0%}",
        ]


_COMPARED: Final = (
    "when",
    "by",
    "typical error",
    "largest error",
    "mechanism",
    "spent",
    "answers",
    "intervals",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The answers of one group in two releases, and how many differ by more than their noise."""

    frame: pd.DataFrame
    noteworthy: int
    by_chance: float

    @property
    def is_one(self) -> bool:
        """Whether both are of one measurement."""
        return not self.frame["difference"].any()


def difference_of(one: Release, two: Release, name: str, level: float) -> Difference:
    """The answers of a group that both releases have, by what was measured.

    The noise of two measurements is independent, so a difference of two unbiased answers errs by
    the root of the sum of their variances; ``by_chance`` is how many of so many would be larger
    than the interval of this level if the tables were equal, about.
    """
    frames = []
    for release in (one, two):
        groups = {n: g for g, n in named_groups(release.forecast.workload).items()}
        frames.append(group_frame(release.estimates, groups[name], level))
    first, second = frames
    labels = [c for c in first.columns if c not in (*_NUMBERS, "unbiased")]
    merged = first.merge(second, on=labels, suffixes=("_1", "_2"), how="inner", sort=False)
    both = np.hypot(merged["standard_error_1"], merged["standard_error_2"])
    gap = merged["unbiased_2"] - merged["unbiased_1"]
    merged["difference"], merged["error"] = gap, both
    is_large = np.abs(gap) > NormalDist().inv_cdf((1 + level) / 2) * both
    merged["more"] = np.where(is_large, "yes", "")
    columns = [*labels, "value_1", "value_2", "difference", "error", "more"]
    return Difference(merged[columns], int(is_large.sum()), len(merged) * (1 - level))


class _Comparison:
    """Facts of two releases of one table, and the groups that both have."""

    def __init__(
        self, visitor: Visitor, dataset: GuardedDataset, one: Compared, two: Compared
    ) -> None:
        self.visitor, self.dataset, self.one, self.two = visitor, dataset, one, two
        names = [set(named_groups(c.result.forecast.workload).values()) for c in (one, two)]
        self.names = sorted(names[0] & names[1])

    async def build(self) -> None:
        """Everything; the first group is shown."""
        with card(self.dataset.name, "What each of them cost, and how sharp it is."):
            rows = list(zip(_COMPARED, self.one.facts(), self.two.facts(), strict=True))
            heads = ("of each", f"1: {self.one.name}", f"2: {self.two.name}")
            table(heads, rows, "Facts of two releases", texts=3)
        if not self.names:
            empty("They have no group in common", "Their answers cannot be set side by side.")
            return
        with card("Answers side by side", "Differences are of what was measured."):
            options = {name: name for name in self.names}
            choose = ui.select(options, value=self.names[0], label="Group", on_change=self._choose)
            choose.props["aria-label"] = "Group"
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
        await self._show(self.names[0])

    async def _choose(self, event: object) -> None:
        await self._show(str(getattr(event, "value", "")))

    async def _show(self, name: str) -> None:
        with showing_refusals(self.place, clear=True):
            level = self.one.request.level
            pair = (self.one.result, self.two.result)
            difference = await self.visitor.work(difference_of, *pair, name, level)
            frame = difference.frame
            if difference.is_one:
                paragraph("Both are of one measurement: they differ in how it is published only.")
            else:
                paragraph(
                    f"{difference.noteworthy:,} of {len(frame):,} differ by more than the noise of "
                    f"both explains at {level:.0%}; about {difference.by_chance:.1f} would by "
                    "chance alone."
                )
            shown = frame.head(LIMITS.rows_shown)
            labels = [str(c) for c in frame if c not in _SIDES]
            cells = [[label_text(v) for v in shown[c].tolist()] for c in labels]
            cells += [[counts(v) for v in shown[c].tolist()] for c in _SIDES[:-1]]
            heads = [*labels, "1", "2", "measured difference", "its error", "beyond noise"]
            rows = list(zip(*cells, shown["more"].tolist(), strict=True))
            table(heads, rows, f"Two releases of {name}", texts=len(labels))
            if len(frame) > len(shown):
                paragraph(f"{len(frame) - len(shown):,} more rows are not shown.", "note")


_SIDES: Final = ("value_1", "value_2", "difference", "error", "more")


_PUBLISHED: Final = {
    "true": "A value is the best estimate from all answers together, so that they agree with each "
    "other. Its interval is of the noise of this answer alone: the value may stand off its middle, "
    "never outside, and is mostly nearer to the truth than the interval is wide.",
    "nearest": "A value is that of the nearest table to all that was measured, so that answers "
    "agree with each other. Its interval is of the noise of this answer alone, so the value may "
    "stand off its middle.",
    "bounds": "A value is what was measured, cut at the least and the most that it can be; sums of "
    "many small values are too high. Its interval is cut in the same way.",
    "false": "A value is what was measured, also below zero: right in the mean. Its interval "
    "stands around it.",
}
"""What a value is, and why its interval does not stand around it, by what is published."""


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


# From a plan to a release


_OF_IT = "of your budget for this table"
_NEVER_GROWS = "it never grows"


def spent(forecast: Forecast) -> tuple[str, str]:
    """What a release costs, rounded up, and the rest of the sentence.

    >>> import sfumato as sf
    >>> spent(sf.plan(sf.marginals(sf.Domain({"age": 9}), 1), sf.Budget(epsilon=1)).forecast)
    ('epsilon 1', '')
    """
    budget = forecast.budget
    if budget.epsilon is None:
        return cost_in_words(forecast.cost, budget), ""
    delta = budget.delta if forecast.cost.mu_squared else 0
    exact = composed_epsilon([forecast.cost], delta or 0)
    digits = 3 - ceil(log10(exact))
    text = f"epsilon {ceil(exact * 10**digits) / 10**digits:.12g}"
    return text, f"at delta {number_text(budget.delta)}" if delta and budget.delta else ""


class Progress:
    """How far a release is; written by a worker, read by the page now and then.

    Each kind of step has a part of the bar, six tenths of what is left of it when its first step
    begins, as nobody knows which kinds will follow. The bar never runs backwards.

    >>> progress = Progress()
    >>> shown = []
    >>> for done, what in ((1, "counting"), (4, "counting"), (2, "projecting"), (0, "projecting")):
    ...     progress(done, 4, what)
    ...     shown.append(round(progress.share, 2))
    >>> shown
    [0.15, 0.6, 0.72, 0.72]
    """

    def __init__(self) -> None:
        self.share, self.text = 0.0, "Waiting for its turn"
        self._parts: dict[str, tuple[float, float]] = {}

    def __call__(self, done: int, total: int, what: str) -> None:
        """Called by the flow: ``done`` of ``total`` steps."""
        kind = what.split(maxsplit=1)[0] if what.strip() else ""
        if kind not in self._parts:
            self._parts[kind] = (self.share, self.share + 0.6 * (1 - self.share))
        begin, end = self._parts[kind]
        part = min(1.0, max(0.0, done / total)) if total else 0.0
        self.share = max(self.share, begin + part * (end - begin))
        self.text = what[:1].upper() + what[1:]


class Confirm:
    """The button below a forecast, and the dialog behind it."""

    def __init__(self, visitor: Visitor, draft: Draft) -> None:
        self.visitor, self.draft = visitor, draft
        self.plan: Plan | None = None
        self.dataset: GuardedDataset | None = None

    def build(self) -> None:
        """The line below the forecast, hidden until there is a plan."""
        with ui.element("div").classes("line apart") as self.line:
            self.note = paragraph("", "note").classes("grow")
            self.button = ui.button("Release …", on_click=self.ask)
        with ui.dialog() as self.dialog, ui.card().classes("confirm"):
            self.dialog.props["aria-label"] = "Spend and release?"
            self.inside = ui.element("div").classes("stack")

    def unveil(self, is_shown: bool) -> None:
        """Show or hide it."""
        self.line.set_visibility(is_shown)

    def stale(self) -> None:
        """The budget moves: nothing can be released until there is a plan for it."""
        self.button.set_enabled(False)

    async def offer(self, dataset: GuardedDataset | None, plan: Plan) -> None:
        """Say what a release would cost, and whether it can be had."""
        self.dataset, self.plan = dataset, plan
        if dataset is None:
            set_paragraph(self.note, "A schema without a table: there is nothing to release.")
            self.button.set_enabled(False)
            return
        who, body = self.visitor.who, canonical(self.draft.request())

        def looked() -> bool:
            return dataset.body(dataset.read(body)) is not None

        is_stored = await dataset.on_ledger(who, looked)
        within = plan.in_ledger
        cost = " ".join(spent(plan.forecast)).strip()
        if is_stored or within is None:
            text = "Released before: opening it again costs nothing."
        else:
            text = f"It would cost {cost}: it {within.describe()}."
        set_paragraph(self.note, text)
        self.button.set_text("Open the release" if is_stored else "Release …")
        self.button.set_enabled(is_stored or within is None or within.fits)

    async def ask(self) -> None:
        """The dialog that says what is about to be spent."""
        dataset, plan = self.dataset, self.plan
        if dataset is None or plan is None:
            return
        who, body = self.visitor.who, canonical(self.draft.request())

        def looked() -> tuple[ReleaseTask, bool, Remaining, Price]:
            task, ledger = dataset.read(body), dataset.ledger
            is_stored = dataset.body(task) is not None
            price = ledger.price(plan.cost, who.name, delta=plan.budget.delta)
            return task, is_stored, ledger.remaining(who.name), price

        self.visitor.check()
        task, is_stored, left, price = await dataset.on_ledger(who, looked)
        if is_stored:
            ui.navigate.to(f"/release/{dataset.name}/{task.key}")
            return
        self.inside.clear()
        with self.inside:
            ui.html("Spend and release?", sanitize=False, tag="h2")
            facts(
                [
                    ("It costs", *spent(plan.forecast)),
                    ("It takes", "-" if price.share is None else percent(price.share), _OF_IT),
                    ("Left now", percent(left.share), _OF_IT),
                    ("Left then", "-" if price.left is None else percent(price.left), _NEVER_GROWS),
                ]
            )
            paragraph(guarantee(plan), "note")
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
            with ui.element("div").classes("line") as self.choices:
                ui.button("Spend and release", on_click=lambda: self._release(dataset, task))
                cancel = ui.element("button").classes("pick").props("type=button")
                with cancel.on("click", self.dialog.close):
                    ui.label("Cancel")
        self.dialog.open()

    async def _release(self, dataset: GuardedDataset, task: ReleaseTask) -> None:
        """Put it in line, show how far it is, go to the answers; it goes on without the page."""
        self.choices.set_visibility(False)  # one click is enough; a second would be free
        self.dialog.props("persistent")
        visitor = self.visitor
        with showing_refusals(self.place, clear=True):
            try:
                began = visitor.now()
                visitor.check()
                job = await begin_release(visitor, dataset, task)
                await watched_to_its_end(visitor, job)
                await visitor.on_grid(began)
            finally:
                self.dialog.props(remove="persistent")
            check_done(job)
            if job.state == "cancelled":
                self.dialog.close()
            else:
                ui.navigate.to(f"/release/{dataset.name}/{task.key}")


async def begin_release(visitor: Visitor, dataset: GuardedDataset, task: ReleaseTask) -> Job:
    """The job of a release, in line like those over HTTP."""
    about = task.request.model_dump(exclude_none=True, exclude_defaults=True)
    work = dataset.release_job(task, visitor.who)
    return await visitor.server.begin(
        "release", visitor.who, dataset, about, work, key=task.key, lane=dataset.lane
    )


async def watched_to_its_end(visitor: Visitor, job: Job) -> None:
    """Show how far a job is until it is over; it goes on when the page is closed."""
    watched = Watched(visitor, job)
    try:
        await asyncio.shield(asyncio.wrap_future(job.finished))
    finally:
        watched.stop()


def check_done(job: Job) -> None:
    """Raise the refusal of a job that failed."""
    if job.state not in ("done", "cancelled"):
        error = job.document["error"] or {}
        raise Problem(409, str(error.get("error", "")), str(error.get("message", "")))


_ENDS: Final = {
    "done": "Done",
    "failed": "It failed; nothing was spent, unless its debit had begun",
    "cancelled": "Cancelled; nothing was spent",
}


class Watched:
    """A bar, what is done and about how long it takes, and a button to cancel while one may."""

    def __init__(self, visitor: Visitor, job: Job) -> None:
        self.visitor, self.job, self._progress = visitor, job, Progress()
        self.bar = ui.linear_progress(value=0, show_value=False)
        self.bar.props["aria-label"] = f"Progress of the {job.document['kind']}"
        self.note = paragraph(self._progress.text, "note")
        self.cancel = ui.element("button").classes("pick").props("type=button")
        with self.cancel.on("click", self._cancel):
            ui.label("Cancel, nothing is spent yet")
        self.place = ui.element("div").props("aria-live=polite")
        self.timer = ui.timer(0.25, self.show)

    def show(self) -> None:
        """Where the job is now."""
        shown = self.job.shown()
        self.cancel.set_visibility(self.job.state in ("waiting", "working"))
        if self.job.finished.done():
            self.stop()
            self.bar.set_value(1.0)
            set_paragraph(self.note, _ENDS.get(self.job.state, self.job.state))
            return
        step, done, total = shown.get("step"), shown.get("steps_done"), shown.get("steps")
        if isinstance(step, str) and isinstance(done, int) and isinstance(total, int):
            self._progress(done, total, step)
        left = shown.get("seconds_left_of_step")
        text = self._progress.text
        is_long = isinstance(left, int) and left >= LIMITS.seconds_shown
        set_paragraph(self.note, f"{text}, about {left} s left of this step" if is_long else text)
        self.bar.set_value(self._progress.share)

    def stop(self) -> None:
        """Look no more."""
        self.timer.deactivate()

    async def _cancel(self) -> None:
        visitor = self.visitor
        with showing_refusals(self.place, clear=True):
            visitor.check()
            await visitor.server.read(
                visitor.who, visitor.server.jobs.cancel, visitor.who, self.job
            )
            self.show()
