# SPDX-License-Identifier: Apache-2.0
"""``sfumato ask``: questions one at a time, free where the estimate is right.

The session is described by the same file that releases are made from: [data], [domain], [budget],
[ledger], and [session] in place of [[workload]]. Reading it touches no data: the source need not
exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.options import Json, LedgerPath, Quiet, SpecFile, Yes, command_app, examples, flag
from sfumato.cli.output import (
    Output,
    check_ledger_folder,
    counts,
    forecasts_document,
    heading,
    interval_in_words,
    statement_cells,
    table,
)
from sfumato.errors import BudgetExhausted, SchemaError, SfumatoError, SqlError
from sfumato.ledger.ledger import LedgerToCreate, Terms, obey_total
from sfumato.privacy.cost import Cost
from sfumato.text import STORED, TWO_INTERVALS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from sfumato.cli.spec import LedgerSpec, SessionTable
    from sfumato.domain.domain import Domain
    from sfumato.domain.privacy_unit import PrivacyUnit
    from sfumato.ledger.ledger import Ledger
    from sfumato.privacy.budget import Budget
    from sfumato.session.group_questions import GroupAnswer, GroupQuestion
    from sfumato.session.session import Session
    from sfumato.session.session_answers import Answer, QuestionForecast
    from sfumato.types import Neighbours
    from sfumato.vault.sources import CsvSource, DerivedSource, SqlSource
    from sfumato.workload.question import Question

__all__ = ["SessionSpec", "app", "ask", "read_session"]


_NO_LEDGER = "the session could not go on where it was"

app = command_app()


@app.command(
    epilog=examples(
        'sfumato ask people.toml "SELECT COUNT(*) FROM data WHERE age >= 65"',
        "sfumato ask people.toml --file questions.sql --json",
        'sfumato ask people.toml "SELECT sex, COUNT(*) FROM data GROUP BY sex" --estimate',
        'sfumato ask people.toml "SELECT COUNT(*) FROM data WHERE age >= 65" --error 50',
        'sfumato ask people.toml "SELECT AVG(age) FROM data" --dummy',
    )
)
def ask(
    path: SpecFile,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="SELECTs that count or sum records."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also ask the questions of a file, one on each line."),
    ] = None,
    ledger_path: LedgerPath = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Ask without a ledger: you keep track of the budget.")
    ] = False,
    estimate: Annotated[
        bool, flag("--estimate", text="Say what asking would cost; spends and tests nothing.")
    ] = False,
    error: Annotated[
        float | None,
        typer.Option(
            "--error",
            metavar="NUMBER",
            help="The standard error that each answer may have; what is missing is paid for.",
        ),
    ] = None,
    untested: Annotated[
        bool,
        flag("--untested", text="When the budget is used up, show estimates without a promise."),
    ] = False,
    dummy: Annotated[
        bool, flag("--dummy", text="Ask made-up records: nothing is opened, nothing is spent.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question at a time; most answers are free.

    An answer costs something only if what is known so far is wrong about it.
    The ledger remembers everything: the next call goes on with the same
    session, and the same question gets the same answer for nothing.
    """
    from sfumato.cli.release_command import made_ledger
    from sfumato.cli.spec import ledger_to_debit
    from sfumato.release.provenance import cost_in_words

    output = Output(json, quiet)
    texts = [*(texts or []), *_from_file(file)]
    if not texts:
        raise SqlError(
            'there is no question; give one, such as "SELECT COUNT(*) FROM data", or --file FILE '
            "with one on each line"
        )
    spec = read_session(path)
    with ExitStack() as stack:
        at = None
        if not dummy:
            at = ledger_to_debit(spec.path, spec.ledger, ledger_path, no_ledger, _NO_LEDGER)
        ledger = None if at is None else _open_ledger(spec, at, estimate, yes, stack, output)
        session = stack.enter_context(spec.open(ledger, dummy=dummy))
        questions = [session.read(text) for text in texts]
        cost = cost_in_words(session.plan.epoch_cost, session.plan.budget)
        shown: list[RenderableType]
        if estimate:
            forecasts = [session.estimate(q, error=error) for q in questions]
            document = forecasts_document(session, forecasts)
            shown = [_forecasts_table(forecasts) if error is None else _offers_table(forecasts)]
            remark = "nothing was spent or tested"
            remark += f"; a paid answer costs {cost}" if error is None else ""
        else:
            price = f"Each answer that must be paid for costs {cost}"
            if error is None:
                may_spend = not all(session.is_answered(question) for question in questions)
            else:
                wanted = sum((session.estimate(q, error=error).cost for q in questions), Cost(()))
                may_spend = bool(wanted.parts)
                if may_spend:
                    price = f"An error of {error:g} costs {wanted.describe()} together"
            if may_spend and not (yes or session.is_dummy):
                output.confirm(
                    f"{price}, out of {session.plan.budget.describe()} for the whole session "
                    f"({session.left().describe()})."
                )
            answers = _answers(session, questions, untested, error)
            made_ledger(ledger, output)
            document, shown = _answers_document(session, answers), _answers_tables(answers)
            remark = session.left().describe()
            if session.is_dummy:
                remark = "from made-up records; nothing was spent"
    number = "1 question" if len(questions) == 1 else f"{len(questions):,} questions"
    output.result(document, heading(number, remark), *shown)


def _answers(
    session: Session,
    questions: Sequence[Question | GroupQuestion],
    untested: bool,
    error: float | None,
) -> list[Answer | GroupAnswer]:
    """The answers; with ``untested`` an estimate without a promise where the budget is used up."""
    answers: list[Answer | GroupAnswer] = []
    outcomes = session.ask_many(questions, error=error)
    for question, answer in zip(questions, outcomes, strict=True):
        if isinstance(answer, BudgetExhausted) and untested:
            answers += session.ask_all(question, untested=True)
        elif isinstance(answer, SfumatoError):
            raise answer
        else:
            answers.append(answer)
    return answers


def _open_ledger(
    spec: SessionSpec, at: LedgerSpec, estimate: bool, yes: bool, stack: ExitStack, output: Output
) -> Ledger | LedgerToCreate | None:
    """The ledger, or one that the first debit creates; None if there is none for an estimate."""
    from sfumato.ledger.ledger import Ledger
    from sfumato.vault.tables import name_of, public_name

    table_id = name_of(spec.source, spec.name) or public_name(spec.source)
    total = (at.total or at.total_if_new or spec.budget).reserving(spec.budget)
    terms = Terms(table_id, spec.neighbours, spec.unit or "row", total)
    is_there = Ledger.exists(at.path)
    if not is_there and estimate:
        return None
    if is_there or not at.create:
        advice = f"\nor add create = true to the table [ledger] of {spec.path}"
        ledger = terms.open(at.path, keep_open=True, advice=advice if at is spec.ledger else "")
        stack.callback(ledger.close)
        if at.total is not None and not estimate:
            obey_total(ledger, at.total, str(spec.path))
        return ledger
    check_ledger_folder(at.path)
    if not yes:
        output.confirm(
            f"The ledger {at.path} is created with a total of {total.describe()}, of which this "
            f"session may spend up to {spec.budget.describe()}."
        )
    new = LedgerToCreate(terms, at.path, keep_open=True)
    stack.callback(new.close)
    return new


def _from_file(path: Path | None) -> list[str]:
    """One question on each line; empty lines and lines that begin with ``--`` are skipped."""
    if path is None:
        return []
    try:
        most = LIMITS.question_file_bytes
        if path.stat().st_size > most:
            raise SqlError(f"{path} is larger than {most:,} bytes; split it up")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SqlError(
            f"the questions in {path} cannot be read ({why}); --file names a text file in UTF-8 "
            "with one SELECT on each line"
        ) from None
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("--")]


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session: the table, its domain, the budget, the ledger."""

    path: Path
    source: str | SqlSource | CsvSource | DerivedSource | None
    name: str | None
    domain: Domain
    neighbours: Neighbours
    unit: PrivacyUnit | None
    budget: Budget
    ledger: LedgerSpec | None
    public: str | None
    options: SessionTable

    def open(self, ledger: Ledger | LedgerToCreate | None, *, dummy: bool = False) -> Session:
        """Open the session; nothing is spent by that."""
        if self.source is None and not dummy:
            raise SchemaError(
                f"{self.path}: data: the key 'source' is missing, so there is nothing to ask; name "
                'the table, for example source = "people.parquet" (--dummy works without)'
            )
        plan = self.options.plan(self.domain, self.budget, self.neighbours, self.unit)
        return plan.open(
            self.source,
            None if dummy else ledger,
            public=self.public,
            name=self.name,
            label=self.options.label,
            dummy=dummy,
            releases=None if self.options.releases else (),
        )


def read_session(path: str | Path) -> SessionSpec:
    """The session that a spec file describes."""
    from sfumato.cli.spec import (
        SessionTable,
        SpecTables,
        budget_from,
        domain_of,
        ledger_from,
        source_from,
        table_from,
        unit_from,
    )
    from sfumato.toml import read_toml, validated

    file = read_toml(path)
    tables = validated(SpecTables, file.data, file, ())
    if tables.budget is None or tables.budget.error is not None:
        raise file.error(
            "a session spends a budget; add a table [budget] with epsilon = 1 and delta = 1e-9 for "
            "example" + ("" if tables.budget is None else ", in place of error"),
            () if tables.budget is None else ("budget", "error"),
        )
    options = tables.session or SessionTable()
    return SessionSpec(
        path=Path(path),
        source=table_from(file, tables.data, ("data",)),
        name=tables.data.name,
        domain=domain_of(file, tables),
        neighbours=tables.data.neighbours,
        unit=unit_from(file, tables.data, ("data",)),
        budget=budget_from(file, tables.budget, ("budget",)),
        ledger=ledger_from(file, tables.ledger, file.folder or Path()),
        public=source_from(file, options.public, ("session", "public")),
        options=options,
    )


def _answers_document(
    session: Session, answers: Sequence[Answer | GroupAnswer]
) -> dict[str, object]:
    """Answers as JSON, those of groups in the shape of their SELECT as well, and what is left."""
    left = session.left()
    numbers = [number for answer in answers for number in answer.answers]
    statements = [shape for answer in answers for shape in answer.statements]
    return {
        "session": session.name,
        "is_dummy": session.is_dummy,
        "answers": [number.as_json() | {"is_stored": number.is_stored} for number in numbers],
        **({"statements": statements} if statements else {}),
        "paid_answers_left": left.paid_answers,
        "ledger_share_left": left.share,
    }


def _answers_tables(answers: Sequence[Answer | GroupAnswer]) -> list[RenderableType]:
    """Answers for people: single ones in one table, each SELECT of many in its own shape."""
    plain = [number for answer in answers if not answer.statements for number in answer.answers]
    shapes = [shape for answer in answers for shape in answer.statements]
    tables = _answers_table(plain) if plain else []
    return [*tables, *(table(*statement_cells(shape["columns"])) for shape in shapes)]


def _answers_table(answers: Sequence[Answer]) -> list[RenderableType]:
    """Answers of one number each; with the safe interval where it is another one."""
    has_two = any(one.has_two_intervals for one in answers)
    rows = []
    for answer in answers:
        how = f"{answer.how}, made up" if answer.is_dummy else answer.how
        how = STORED if answer.is_stored and not answer.is_dummy else how
        ends = [interval_in_words(answer.low, answer.high)]
        if has_two:
            ends.append(interval_in_words(answer.safe_low, answer.safe_high, "not known"))
        rows.append((answer.question, counts(answer.value), *ends, how))
    heads = ("interval", "safe interval") if has_two else ("interval",)
    shown: list[RenderableType] = [table(("question", "answer", *heads, "how"), rows)]
    return [*shown, TWO_INTERVALS] if has_two else shown


def _offers_table(forecasts: Sequence[QuestionForecast]) -> Table:
    """What an error would cost, for people."""
    columns = ("question", "known within", "with it: error", "within", "cost", "least error left")
    rows = []
    for one in forecasts:
        cost = one.cost.describe() if one.cost.parts else "nothing"
        numbers = counts(one.free_bound), counts(one.standard_error), counts(one.paid_bound)
        rows.append((one.question, *numbers, cost, counts(one.least_error)))
    return table(columns, rows)


def _forecasts_table(forecasts: Sequence[QuestionForecast]) -> Table:
    """What asking would cost, for people."""
    columns = ("question", "estimate now", "right: free, within", "wrong: paid, within", "stored")
    rows = []
    for one in forecasts:
        within = counts(one.free_bound), counts(one.paid_bound)
        stored = "yes" if one.is_stored else "no"
        rows.append((one.question, counts(one.value), *within, stored))
    return table(columns, rows)
