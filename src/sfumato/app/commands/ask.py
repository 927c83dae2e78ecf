# SPDX-License-Identifier: Apache-2.0
"""``sfumato ask``: questions one at a time, free where the estimate is right."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.asking import (
    SessionSpec,
    answers_document,
    answers_table,
    forecasts_document,
    forecasts_table,
    read_session,
)
from sfumato.app.files import check_folder
from sfumato.app.output import Output
from sfumato.app.show import heading
from sfumato.app.spec import LedgerSpec
from sfumato.domain.privacy_unit import unit_of
from sfumato.errors import BudgetExhausted, LedgerError, SfumatoError, SqlError
from sfumato.ledger.ledger import Terms, obey_total
from sfumato.release.provenance import cost_in_words

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger
    from sfumato.session.session import Session
    from sfumato.workload.question import Question

__all__ = [
    "Wanted",
    "ask",
]


LARGEST_FILE = 2**22  # bytes of a file of questions


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to ask: the options of the command."""

    questions: list[str]
    file: Path | None
    ledger: str | None
    no_ledger: bool
    estimate: bool
    untested: bool
    dummy: bool
    yes: bool = False


def ask(path: Path, wanted: Wanted, output: Output) -> None:
    """Answer questions, or forecast what answering would cost.

    Privacy: as ``online.session.Session``. With ``estimate`` or ``dummy`` nothing is spent.
    """
    texts = [*wanted.questions, *_from_file(wanted.file)]
    if not texts:
        raise SqlError(
            'there is no question; give one, such as "SELECT COUNT(*) FROM data", or --file FILE '
            "with one on each line"
        )
    spec = read_session(path)
    with ExitStack() as stack:
        book = None if wanted.dummy else _ledger(spec, wanted, stack, output)
        session = stack.enter_context(spec.open(book, dummy=wanted.dummy))
        questions = [q for text in texts for q in session.read_all(text)]
        if wanted.estimate:
            forecasts = [session.estimate(q) for q in questions]
            document, shown = forecasts_document(session, forecasts), forecasts_table(forecasts)
            cost = cost_in_words(session.plan.epoch_cost, session.plan.budget)
            remark = f"nothing was spent or tested; a paid answer costs {cost}"
        else:
            _agreed(session, questions, wanted, output)
            found = session.ask_many(questions)
            answers = []
            for question, one in zip(questions, found, strict=True):
                if isinstance(one, BudgetExhausted) and wanted.untested:
                    answers.append(session.untested(question))
                elif isinstance(one, SfumatoError):
                    raise one
                else:
                    answers.append(one)
            document, shown = answers_document(session, answers), answers_table(answers)
            remark = session.left().describe()
            if session.is_dummy:
                remark = "from made-up records; nothing was spent"
    asked = "1 question" if len(questions) == 1 else f"{len(questions):,} questions"
    output.result(document, heading(asked, remark), shown)


def _ledger(spec: SessionSpec, wanted: Wanted, stack: ExitStack, output: Output) -> Ledger | None:
    """The ledger that is debited; None only if that was asked for, or nothing is to be spent."""
    from sfumato.ledger.ledger import Ledger
    from sfumato.vault.tables import name_of, public_name

    if wanted.no_ledger and wanted.ledger is not None:
        raise LedgerError("--ledger and --no-ledger are both given; keep one of them")
    if wanted.no_ledger:
        return None
    at = spec.ledger
    if wanted.ledger is not None:
        at = LedgerSpec(wanted.ledger, None, total_if_new=None if at is None else at.total)
    if at is None:
        raise LedgerError(
            f"{spec.path} names no ledger, so the session could not go on where it was; add a "
            'table [ledger] with path = "NAME.ledger", or give --ledger PATH, or give --no-ledger '
            "if you keep track of the budget yourself"
        )
    table_id = name_of(spec.source, spec.name) or public_name(spec.source)
    total = (at.total or at.total_if_new or spec.budget).reserving(spec.budget)
    terms = Terms(table_id, spec.neighbours, unit_of(spec.unit), total)
    is_there = Ledger.exists(at.path)
    if not is_there and wanted.estimate:
        return None
    if is_there or not at.create:
        advice = f"\nor add create = true to the table [ledger] of {spec.path}"
        own = advice if at is spec.ledger else ""
        book = terms.open(at.path, keep_open=True, advice=own)
        stack.callback(book.close)
        if at.total is not None and not wanted.estimate:
            obey_total(book, at.total, str(spec.path))
        return book
    if "://" not in at.path:
        check_folder(Path(at.path).parent)
    if not wanted.yes:
        output.confirm(
            f"The ledger {at.path} is created with a total of {total.describe()}, of which this "
            f"session may spend up to {spec.budget.describe()}."
        )
    book = terms.open_or_create(at.path, keep_open=True)
    stack.callback(book.close)
    return book


def _agreed(session: Session, questions: list[Question], wanted: Wanted, output: Output) -> None:
    """Ask before questions that may cost something; stored answers and made-up records do not."""
    may_spend = any(session.answer(question.key) is None for question in questions)
    if wanted.yes or session.is_dummy or not may_spend:
        return
    cost = cost_in_words(session.plan.epoch_cost, session.plan.budget)
    output.confirm(
        f"Each answer that must be paid for costs {cost}, out of "
        f"{session.plan.budget.describe()} for the whole session ({session.left().describe()})."
    )


def _from_file(path: Path | None) -> list[str]:
    """One question on each line; empty lines and lines that begin with ``--`` are skipped."""
    if path is None:
        return []
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SqlError(f"{path} is larger than {LARGEST_FILE:,} bytes; split it up")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SqlError(
            f"the questions in {path} cannot be read ({why}); --file names a text file in UTF-8 "
            "with one SELECT on each line"
        ) from None
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("--")]
