# SPDX-License-Identifier: Apache-2.0
"""The page Ask: one question at a time in SQL, each answer with its interval, paid or free.

``ask`` goes the way of ``POST /datasets/NAME/ask``; the controls only write SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from html import escape
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, cast

from nicegui import ui
from pydantic import ValidationError

from sfumato.cli.output import counts, interval_in_words
from sfumato.errors import SfumatoError
from sfumato.privacy.cost import Cost
from sfumato.text import sentence
from sfumato_web.page.layout import (
    Chart,
    Visitor,
    card,
    empty,
    facts,
    page,
    paragraph,
    showing_refusals,
    statement_table,
    table,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.models import AskAsked, canonical
from sfumato_web.server.problems import Problem, not_valid, problem_of

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute, Value
    from sfumato.domain.domain import Domain
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset

__all__ = [
    "Answered",
    "Asked",
    "Condition",
    "advice",
    "ask",
    "asked_for",
    "counting_sql",
    "history",
    "listed_values",
    "register",
    "safe_interval_of",
    "sharper_error",
    "shorter",
    "takes_questions",
    "values_in_words",
]


# How questions are written, asked and refused; without what is shown.


_ADVICE: Final = {
    "sql": "Nothing was spent. Ask for COUNT, SUM, AVG or MEDIAN of the columns that are listed "
    "here, with WHERE and GROUP BY. The controls above write such a question.",
    "request": "Nothing was spent. Write one SELECT of at most 4,000 characters.",
    "too-large": "Nothing was spent. Ask for fewer groups at once, or for a release.",
    "budget-exhausted": "Answers that were given before stay readable and cost nothing. For new "
    "ones ask your curator for more, or for a release.",
    "frozen": "Nothing was spent. Answers that were given before stay readable.",
    "too-many": "Nothing was spent. Wait a moment, then ask again.",
    "unavailable": "An answer that is not shown was not given. Ask again later.",
}


def advice(code: str) -> str:
    """What to do about a refusal."""
    return _ADVICE.get("sql" if code == "workload" else code, "")


@dataclass(frozen=True, slots=True)
class Answered:
    """A question as it was written, and its answers as they are stored."""

    sql: str
    answers: tuple[Mapping[str, Any], ...]
    was_stored: bool
    statements: tuple[Mapping[str, Any], ...] = ()
    error: float | None = None

    @property
    def how(self) -> str:
        """Paid or free; an answer that was there before is neither."""
        if self.was_stored:
            return "stored"
        paid = sum(a["how"] == "paid" for a in self.answers)
        if paid == 0:
            return "known" if all(a["how"] == "known" for a in self.answers) else "free"
        return "paid" if paid == len(self.answers) else f"{paid} of {len(self.answers)} paid"

    @property
    def what_it_cost(self) -> str:
        """What the answers cost and why, in a sentence."""
        if self.was_stored:
            return "It was answered before, so it cost nothing: this is the same answer."
        if self.error is not None and self.how != "known":
            return f"The precision that was missing for an error of {self.error:g} was paid for."
        if self.how == "known":
            return "It follows from what was measured before: it cost nothing."
        if self.how == "free":
            return "The public estimate was tested and is near the truth: it cost nothing."
        if self.statements:
            return "All numbers were planned and measured together, and paid for once."
        if self.how == "paid":
            return "The estimate was too far off: fresh noise was drawn and paid for."
        return f"The estimate was too far off for some: {self.how} for."

    @property
    def is_one_count(self) -> bool:
        """Whether every group has one noisy number that is an answer itself: bars show it."""
        noisy = [c for shape in self.statements for c in shape["columns"] if c["low"] is not None]
        rows = [len(c["values"]) for c in noisy]
        return rows == [len(self.answers)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the groups, and what was computed where that is more than one thing."""
        names = tuple(dict.fromkeys(name for a in self.answers for name in a["groups"]))
        is_one = len({a["aggregate"] for a in self.answers}) == 1
        return names if is_one and names else (*names, "computed")

    def cells(self, answer: Mapping[str, Any]) -> tuple[str, ...]:
        """The group of an answer, as texts in the order of the columns."""
        texts = {name: str(value) for name, value in answer["groups"].items()}
        texts["computed"] = answer["aggregate"]
        return tuple(texts.get(name, "") for name in self.columns)

    def rows(self) -> list[tuple[str, ...]]:
        """For a table: the columns of the groups, answer, interval, paid or free."""
        return [
            (*self.cells(a), counts(a["value"]), interval_of(a), a["how"]) for a in self.answers
        ]

    def labels(self) -> list[str]:
        """A text for each answer, none twice: rows of a chart are never added up."""
        texts = [", ".join(self.cells(a)) for a in self.answers]
        seen: dict[str, int] = {}
        out = []
        for text in texts:
            seen[text] = seen.get(text, 0) + 1
            out.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
        return out


def interval_of(answer: Mapping[str, Any]) -> str:
    """The interval of an answer in words."""
    return interval_in_words(answer["low"], answer["high"])


def safe_interval_of(answer: Mapping[str, Any]) -> str | None:
    """The interval for questions that were chosen in any way; None where it is the same one."""
    safe = answer.get("safe_low"), answer.get("safe_high")
    if answer["low"] is None or safe == (answer["low"], answer["high"]):
        return None
    return interval_in_words(*safe, "not known")


def takes_questions(dataset: GuardedDataset) -> bool:
    """Whether a dataset has a session."""
    return dataset.config.session is not None


def history(visitor: Visitor, dataset: GuardedDataset) -> list[Answered]:
    """What this login has asked of a dataset, newest first; it is gone when they sign out."""
    questions: Any = visitor.login.drafts.setdefault(f"asked {dataset.name}", [])
    return cast(list[Answered], questions)


async def ask(
    visitor: Visitor, dataset: GuardedDataset, text: str, error: float | None = None
) -> Answered:
    """Ask as over HTTP: the same checks, the same line, the same grid of times.

    Answered twice, a question gets its stored answer: a second click cannot spend anything. With an
    error the precision that is missing for it is paid for, once as well.

    Privacy: that of ``QuestionBatcher.ask``.
    """
    visitor.check()
    try:
        request = AskAsked(sql=text, error=error)
    except ValidationError as fault:
        faults = fault.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None
    began = visitor.now()
    try:
        batcher = dataset.batcher
        await batcher.key(request.sql, visitor.who)  # read in its own line
        was_stored = await dataset.on_session(
            visitor.who, batcher.was_answered, request.sql, request.error
        )
        before = await visitor.on_ledger(dataset, dataset.ledger.version)
        body = await batcher.ask(request.sql, visitor.who, None, request.error)
        await visitor.on_ledger(dataset, _note_question, dataset, visitor.who, before, request)
    finally:
        await visitor.on_grid(began)
    document = json.loads(body)
    shapes = tuple(document.get("statements", ()))
    answers = tuple(document["answers"])
    answered = Answered(request.sql, answers, was_stored, shapes, request.error)
    earlier = history(visitor, dataset)
    earlier[:] = [answered, *(a for a in earlier if a.sql != answered.sql)][: LIMITS.answers_shown]
    return answered


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that a debit paid for, in the words of who asked it."""

    sql: str
    error: float | None

    @property
    def shortened(self) -> str:
        """As a link says it."""
        more = "" if self.error is None else f" to ±{self.error:g}"
        return shorter(self.sql) + more


def shorter(text: str) -> str:
    """A text that fits a cell of a table."""
    most = LIMITS.link_characters
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _note_question(dataset: GuardedDataset, who: Analyst, before: int, request: AskAsked) -> None:
    """Remember for which words a debit was made; where two were made at once, for neither."""
    entries = dataset.ledger.entries(analyst=who.name)
    new = [entry for entry in entries if entry.sequence > before]
    if len(new) == 1:
        document = {"analyst": who.name, "sql": request.sql, "error": request.error}
        dataset.store.keep([(dataset.name, f"{_DEBIT}{new[0].sequence}", canonical(document))])


def asked_for(dataset: GuardedDataset, who: Analyst) -> dict[int, Asked]:
    """The questions that their debits paid for, by the number of the debit; words are their own."""
    questions = {}
    for key, data in dataset.store.beginning(dataset.name, _DEBIT):
        document = json.loads(data)
        if document["analyst"] == who.name:
            number = int(key.removeprefix(_DEBIT))
            questions[number] = Asked(str(document["sql"]), document["error"])
    return questions


def listed_values(attribute: Attribute) -> list[str] | None:
    """The declared values of an attribute as SQL constants, if they are few."""
    if attribute.value_count > LIMITS.listed_values or attribute.kind not in (
        "category",
        "boolean",
    ):
        return None
    return [constant(attribute.value_label(code)) for code in range(attribute.value_count)]


@dataclass(frozen=True, slots=True)
class Condition:
    """That a column has one of some constants, or lies in a range; the empty one holds always."""

    column: str
    values: Sequence[str] = ()
    low: float | None = None
    high: float | None = None

    def sql(self) -> str:
        """It in SQL; empty where nothing is asked of the column."""
        column, values = _name(self.column), self.values
        if values:
            one_of = f"{column} IN ({', '.join(values)})"
            return f"{column} = {values[0]}" if len(values) == 1 else one_of
        if self.low is not None and self.high is not None:
            return f"{column} BETWEEN {self.low:.15g} AND {self.high:.15g}"
        if self.low is None and self.high is None:
            return ""
        sign, end = (">=", self.low) if self.high is None else ("<=", self.high)
        return f"{column} {sign} {end:.15g}"


def counting_sql(*conditions: Condition, by: str | None = None) -> str:
    """A count in SQL of the records that meet all conditions, for each value of a column.

    >>> counting_sql(Condition("age", low=18, high=64), Condition("job", ["9"]), by="sex")
    'SELECT "sex", COUNT(*) FROM data WHERE "age" BETWEEN 18 AND 64 AND "job" = 9 GROUP BY "sex"'
    """
    what, group = "COUNT(*)", ""
    if by is not None:
        what, group = f"{_name(by)}, COUNT(*)", f" GROUP BY {_name(by)}"
    met = [text for text in (condition.sql() for condition in conditions) if text]
    where = f" WHERE {' AND '.join(met)}" if met else ""
    # A text for people, which is then read like any other; no database ever gets it.
    return f"SELECT {what} FROM data{where}{group}"  # noqa: S608


def constant(value: Value) -> str:
    """A value of the schema as a constant of SQL."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def problem_words(problem: Problem) -> tuple[str, str]:
    """What is said about a refusal: the words of the server, and what to do."""
    return sentence(problem.message), advice(problem.code)


_CHOSEN: Final = (
    "the interval above is for a question that the noise of earlier answers did not choose"
)

_DEBIT: Final = "debit "  # before the number of a debit, of what it was made for

EVERYONE = "(all records)"
NOTHING = "(no groups)"


def register() -> None:
    """Make the page."""

    @page("/ask", "Ask", "One question at a time. What the public estimate knows costs nothing.")
    async def _ask(visitor: Visitor) -> None:
        theirs = [d for d in visitor.datasets if takes_questions(d)]
        if not theirs:
            empty(
                "No dataset of yours takes single questions",
                "Its curator has to give them a budget. Plan a release instead.",
            )
            return
        await _AskPage(visitor, theirs).build()

    @page("/ask/{name}/{number}", "Ask", at="Ask")
    async def _again(visitor: Visitor) -> None:
        params = visitor.request.path_params
        dataset, number = visitor.dataset(str(params["name"])), str(params["number"])
        questions = await visitor.on_ledger(dataset, asked_for, dataset, visitor.who)
        first = questions.get(int(number)) if number.isdecimal() and len(number) < 18 else None
        if first is None or not takes_questions(dataset):
            raise Problem(404, "not-found", "no question of yours is known for this debit")
        theirs = [d for d in visitor.datasets if d is not dataset and takes_questions(d)]
        await _AskPage(visitor, [dataset, *theirs], first).build()


class _AskPage:
    """The question to the left, what is left and what was answered to the right."""

    def __init__(
        self, visitor: Visitor, datasets: list[GuardedDataset], first: Asked | None = None
    ) -> None:
        self.visitor, self.datasets, self.dataset = visitor, datasets, datasets[0]
        self.first = first  # what the page begins with
        self.is_asking = False

    async def build(self) -> None:
        with ui.element("div").classes("split"):
            with ui.element("div").classes("stack loose"):
                self._build_question()
                with card("Columns", "What a record may look like: public, from the schema."):
                    self.columns = ui.element("div")
            with ui.element("div").classes("stack loose"):
                with card("What is left"):
                    self.left = ui.element("div").classes("stack").props("aria-live=polite")
                self.answers = ui.element("div").classes("stack loose").props("aria-live=polite")
        await self._choose(self.dataset.name)
        if self.first is not None:
            self.text.value = self.first.sql
            if self.first.error is not None:
                self.error.value = self.first.error
            with self.status:
                paragraph("Asked before: the same question costs nothing.", "promise")

    def _build_question(self) -> None:
        with card("Your question"):
            if len(self.datasets) > 1:
                names = [d.name for d in self.datasets]
                ui.select(
                    names,
                    label="Dataset",
                    value=names[0],
                    on_change=lambda e: self._choose(e.value),
                ).props('aria-label="Dataset"')
            self.about = paragraph("", "note")
            self.controls = ui.element("div").classes("stack")
            # With its value from the start: a later one would come upon what is being typed.
            first = counting_sql()
            self.text = (
                ui.textarea("Question in SQL", value=first)
                .props('autogrow spellcheck=false aria-label="Question in SQL"')
                .classes("mono")
                .on("keydown.ctrl.enter", self.ask)
            )
            with ui.element("div").classes("line"):
                self.button = ui.button("Ask", on_click=self.ask)
                ui.button("What would it cost?", on_click=self.forecast).props("outline")
            with ui.element("div").classes("line"):
                self.error = ui.number("Error to pay for", value=LIMITS.error_first, min=0).props(
                    'aria-label="Error to pay for"'
                )
                self.pay = ui.button(on_click=self.buy).props("outline")
                ui.button("What would that cost?", on_click=self.offer).props("outline")
            paragraph(
                "A standard error, in what is counted or summed: the interval is about twice that "
                "to each side. What is known is used first; only the rest is paid for.",
                "note",
            )
            self.error.on_value_change(self._name_error)
            self._name_error()
            self.status = ui.element("div").classes("stack").props("aria-live=polite")

    async def _choose(self, name: str) -> None:
        self.dataset = self.visitor.dataset(name)
        self.about.content = escape(self.dataset.config.about)
        self.status.clear()
        self._build_controls()
        self._show_columns()
        await self._show()

    # a question by controls

    def _build_controls(self) -> None:
        domain = self.dataset.config.domain
        self.controls.clear()
        self.conditions: list[_ConditionControls] = []
        with self.controls:
            self.rows = ui.element("div").classes("stack")
            with ui.element("div").classes("line"):
                ui.button("One more condition", on_click=self._add_condition).props("outline dense")
            self.by = ui.select([NOTHING, *domain.names], label="For each", value=NOTHING).props(
                'aria-label="For each"'
            )
        self.by.on_value_change(self._write)
        self._add_condition()

    def _add_condition(self) -> None:
        with self.rows:
            number = len(self.conditions)
            made = _ConditionControls(self.dataset.config.domain, number, self._write)
            self.conditions.append(made)
        self._write()

    def _write(self) -> None:
        """The question of the controls, as SQL in its place."""
        met = [c for c in (each.condition() for each in self.conditions) if c is not None]
        by = None if self.by.value == NOTHING else self.by.value
        self.text.value = counting_sql(*met, by=by)

    def _show_columns(self) -> None:
        domain = self.dataset.config.domain
        rows = [(each.name, each.kind, values_in_words(each)) for each in domain]
        self.columns.clear()
        with self.columns:
            table(("column", "kind", "values"), rows, "Columns of the dataset", texts=3)

    # asking

    async def ask(self) -> None:
        """Ask; while that is under way another click does nothing, later ones cost nothing."""
        await self._asked(None)

    async def buy(self) -> None:
        """Ask with the error that is named; what is missing for it is paid for, once."""
        await self._asked(float(self.error.value or 0))

    async def _asked(self, error: float | None) -> None:
        if self.is_asking:
            return
        self.is_asking = True
        self.button.disable()
        self.pay.disable()
        try:
            with showing_refusals(self.status, clear=True):
                try:
                    await ask(self.visitor, self.dataset, self.text.value or "", error)
                except (Problem, SfumatoError) as fault:
                    _refused(problem_of(fault))
            await self._show()
        finally:
            self.is_asking = False
            self.button.enable()
            self.pay.enable()

    def _name_error(self) -> None:
        self.pay.set_text(f"Pay for ±{float(self.error.value or 0):g}")

    async def forecast(self) -> None:
        """What asking would cost; spends nothing."""
        await self._forecast(None)

    async def offer(self) -> None:
        """What the error that is named would cost; spends nothing."""
        await self._forecast(float(self.error.value or 0))

    async def _forecast(self, error: float | None) -> None:
        with showing_refusals(self.status, clear=True):
            try:
                text = self.text.value or ""
                forecast = await self.visitor.work(self.dataset.batcher.forecast, text, error)
            except (Problem, SfumatoError) as fault:
                _refused(problem_of(fault))
                return
            questions = cast(list[dict[str, Any]], forecast["questions"])
            if error is None:
                _forecast(questions)
            else:
                _offer(questions)
                ui.button(f"Pay for ±{error:g} now", on_click=self.buy)

    async def _show(self) -> None:
        """What is left, and everything asked so far."""
        dataset, name = self.dataset, self.visitor.who.name
        with showing_refusals(self.left, clear=True):
            self.visitor.check()
            left, share = await dataset.on_session(
                self.visitor.who,
                lambda: (
                    dataset.batcher.session.left(name),
                    float(dataset.ledger.remaining(name).share),
                ),
            )
            gauge("Budget left", share, "of what you may spend, releases and questions together")
            part = left.paid_answers / max(left.updates, 1)
            more = "what the estimate does not know is refused" if not left.paid_answers else ""
            note = f"{left.paid_answers} of {left.updates}" + (f": {more}" if more else "")
            gauge("Paid answers left", part, note)
        with showing_refusals(self.answers, clear=True):
            answered = history(self.visitor, dataset)
            if not answered:
                empty("No answers yet", "Ask, and the answer appears here with its interval.")
            for number, one in enumerate(answered):
                self._answer(one, is_newest=number == 0)

    def _answer(self, one: Answered, *, is_newest: bool) -> None:
        with card("Answer" if is_newest else "Earlier answer", one.what_it_cost) as panel:
            panel.classes("answer")
            ui.html(f"<code>{escape(one.sql)}</code>", sanitize=False, tag="p")
            first = one.answers[0]
            level = f"{first['level']:.0%}" if first["level"] is not None else ""
            if len(one.answers) == 1:
                note = f"{interval_of(first)}, with {level} confidence"
                safe = safe_interval_of(first)
                facts(
                    [
                        ("Answer", counts(first["value"]), note),
                        *([("However it was chosen", safe, _CHOSEN)] if safe is not None else []),
                        ("Cost", one.how, ""),
                    ]
                )
                _explain(first)
                self._sharper(one, first)
            elif one.statements:
                paragraph(f"One question, {one.how}; intervals of {level}.", "note")
                if is_newest and one.is_one_count:
                    _bars(one)
                for shape in one.statements:
                    statement_table(shape["columns"])
            else:
                paragraph(f"{len(one.answers)} answers, {one.how}; intervals of {level}.", "note")
                if is_newest:
                    _bars(one)
                heads = (*one.columns, "answer", "interval", "how")
                table(heads, one.rows(), "Answers", texts=len(one.columns))

            def again() -> None:
                self.text.value = one.sql

            if not is_newest:
                with ui.element("div").classes("line"):
                    ui.button("Edit this question", on_click=again).props("outline dense")

    def _sharper(self, one: Answered, answer: Mapping[str, Any]) -> None:
        """A way to half of the error, with its cost first."""
        error = sharper_error(answer)
        if error is None:
            return

        async def look() -> None:
            self.text.value, self.error.value = one.sql, error
            await self._forecast(error)

        with ui.element("div").classes("line"):
            ui.button(f"Sharper: ±{error:g} …", on_click=look).props("outline dense")
            paragraph("says what it costs before anything is spent", "note")


def sharper_error(answer: Mapping[str, Any]) -> float | None:
    """Half of the standard error of an answer, in two digits; None where there is no interval.

    >>> sharper_error({"low": 0.0, "high": 392.0, "level": 0.95})
    50.0
    """
    if answer["low"] is None or answer["high"] is None or not answer["level"]:
        return None
    half = (answer["high"] - answer["low"]) / 2
    error = half / NormalDist().inv_cdf((1 + answer["level"]) / 2) / 2
    return float(f"{error:.2g}") if error > 0 else None


def _explain(answer: Mapping[str, Any]) -> None:
    """How an answer came about, and why it is not in the middle of its interval."""
    if answer.get("why"):
        paragraph(sentence(str(answer["why"])), "note")
    low, high, value = answer["low"], answer["high"], answer["value"]
    if low is None or high is None or high <= low:
        return
    if abs(value - (low + high) / 2) > LIMITS.off_middle * (high - low):
        paragraph(
            "The answer is not in the middle of its interval: the interval is cut by what is "
            "known besides, such as that no count is below zero.",
            "note",
        )


class _ConditionControls:
    """One condition: a column, and values to choose from or the ends of a range."""

    def __init__(self, domain: Domain, number: int, changed: Callable[[], None]) -> None:
        self.domain, self.changed = domain, changed
        self.label = "Count records where" if number == 0 else f"and where ({number + 1})"
        self.more = "" if number == 0 else f" ({number + 1})"
        self.where = ui.select([EVERYONE, *domain.names], label=self.label, value=EVERYONE)
        self.where.props["aria-label"] = self.label
        self.place = ui.element("div")
        self.where.on_value_change(self._build)
        self.values: ui.select | None = None
        self.ends: list[ui.number] = []

    def _build(self) -> None:
        """Values to choose from, or the ends of a range."""
        self.values, self.ends = None, []
        self.place.clear()
        if self.where.value != EVERYONE:
            attribute = self.domain[self.where.value]
            listed = listed_values(attribute)
            with self.place:
                if listed is not None:
                    label = f"is one of{self.more}"
                    self.values = ui.select(
                        listed, label=label, multiple=True, value=[], on_change=self.changed
                    ).props("use-chips")
                    self.values.props["aria-label"] = label
                elif attribute.kind in ("integer", "numeric"):
                    with ui.element("div").classes("halves tight"):
                        self.ends = [
                            ui.number(f"{name}{self.more}", on_change=self.changed)
                            for name in ("from", "to")
                        ]
                else:
                    paragraph("Write the condition on a time in SQL below.", "note")
        self.changed()

    def condition(self) -> Condition | None:
        """What the controls say; None for all records."""
        if self.where.value == EVERYONE:
            return None
        low, high = (e.value for e in self.ends) if self.ends else (None, None)
        values = () if self.values is None else tuple(self.values.value)
        return Condition(self.where.value, values, low, high)


def values_in_words(attribute: Attribute) -> str:
    """The values of a column as people read them: all of a list, or the ends of what is many.

    >>> import sfumato as sf
    >>> values_in_words(sf.Domain({"age": 90})["age"])
    '0 to 89'
    """
    labels = [str(attribute.value_label(0)), str(attribute.value_label(attribute.value_count - 1))]
    if attribute.kind not in ("category", "boolean"):
        return " to ".join(labels)
    most = min(attribute.value_count, LIMITS.listed_values)
    listed = ", ".join(str(attribute.value_label(code)) for code in range(most))
    left = attribute.value_count - most
    return f"{listed} and {left:,} more, the last {labels[1]}" if left else listed


def gauge(name: str, share: float, note: str) -> None:
    """A bar that shows how much is left."""
    percent = round(100 * min(max(share, 0.0), 1.0), 1)
    ui.html(
        f'<div class="gauge-head"><span>{escape(name)}</span><b>{percent:g}%</b></div>'
        f'<div class="gauge" role="meter" aria-label="{escape(name, quote=True)}" '
        f'aria-valuemin="0" aria-valuemax="100" aria-valuenow="{percent:g}">'
        f'<span style="width: {percent:g}%"></span></div><p class="note">{escape(note)}</p>',
        sanitize=False,
    )


def _refused(problem: Problem) -> None:
    """A refusal: what came and what is allowed, then what to do."""
    message, what_to_do = problem_words(problem)
    inside = f"<p>{escape(message)}</p><p>{escape(what_to_do)}</p>"
    ui.html(inside, sanitize=False).classes("trouble").props("role=alert")


def _forecast(questions: list[dict[str, Any]]) -> None:
    """The forecast of a question, or the widest of several."""
    paragraph("Nothing was spent to say this.", "promise")
    paid = max(float(q["paid_bound"]) for q in questions)
    bounds = [q["free_bound"] for q in questions if q["free_bound"] is not None]
    right = f"within {counts(max(bounds, default=0.0))} of the truth"
    free = [("If the estimate is right", "free", right)]
    stored = sum(bool(q["is_stored"]) for q in questions)
    within = f"each number within {counts(paid)} of the truth"
    now = questions[0]["value"] if len(questions) == 1 else None
    facts(
        [
            *([("Estimate now", counts(now), "not tested yet")] if now is not None else []),
            *(free if bounds else []),
            ("If it is not" if bounds else "Measured together", "paid once", within),
            ("Answered before", f"{stored} of {len(questions)}", "these cost nothing"),
        ]
    )


def _offer(questions: list[dict[str, Any]]) -> None:
    """What the precision that is missing would cost, and what it leads to."""
    paragraph("Nothing was spent to say this.", "promise")
    (one,) = questions
    cost = price(one["cost"])
    bound = one["free_bound"]
    had = "nothing" if bound is None else f"within {counts(bound)}"
    least = one.get("least_error")
    facts(
        [
            ("Known now", had, "of the truth, for nothing" if bound is not None else ""),
            ("It would cost", cost, str(one.get("why", ""))),
            ("Then", f"within {counts(one['paid_bound'])}", "of the truth, each number"),
            *(
                [("Least error left", f"±{least:.3g}", "for all that is left")]
                if least is not None
                else []
            ),
        ]
    )


def price(cost: Sequence[Mapping[str, Any]]) -> str:
    """A cost as people read it.

    >>> price([])
    'nothing'
    """
    return Cost.from_json(list(cost)).describe() if cost else "nothing"


def _bars(one: Answered) -> None:
    import pandas as pd

    from sfumato.release.charts import interval_bars

    names = one.labels()
    frame = pd.DataFrame(
        {
            "group": names,
            "value": [a["value"] for a in one.answers],
            "low": [a["low"] for a in one.answers],
            "high": [a["high"] for a in one.answers],
        }
    )
    drawn = interval_bars(frame, "group", width="container")
    Chart(drawn, f"Bars of {len(names)} answers with their intervals")
