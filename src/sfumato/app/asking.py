# SPDX-License-Identifier: Apache-2.0
"""The session that a spec file describes, and how its answers look.

The same file that releases are made from: [data], [domain], [budget], [ledger], and [session] in
place of [[workload]]. Reading it touches no data: the source need not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from sfumato.app.given import budget_from, source_from, table_from, unit_from
from sfumato.app.show import counts, table
from sfumato.app.spec import LedgerSpec, SessionTable, SpecTables, domain_of, ledger_from
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SchemaError
from sfumato.privacy.budget import Budget
from sfumato.text import STORED
from sfumato.toml import read_toml, validated
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger
    from sfumato.session.session import Session
    from sfumato.session.session_answers import Answer, QuestionForecast
    from sfumato.vault.warehouse import CsvSource, SqlSource

__all__ = [
    "SessionSpec",
    "answers_document",
    "answers_table",
    "forecasts_document",
    "forecasts_table",
    "read_session",
]


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session: the table, its domain, the budget, the ledger."""

    path: Path
    source: str | SqlSource | CsvSource | None
    name: str | None
    domain: Domain
    neighbours: Neighbours
    unit: PrivacyUnit | None
    budget: Budget
    ledger: LedgerSpec | None
    public: str | None
    asked: SessionTable

    def open(self, ledger: Ledger | None, *, dummy: bool = False) -> Session:
        """Open the session; nothing is spent by that."""
        if self.source is None and not dummy:
            raise SchemaError(
                f"{self.path}: data: the key 'source' is missing, so there is nothing to ask; name "
                'the table, for example source = "people.parquet" (--dummy works without)'
            )
        plan = self.asked.plan(self.domain, self.budget, self.neighbours, self.unit)
        return plan.open(
            self.source,
            None if dummy else ledger,
            public=self.public,
            name=self.name,
            label=self.asked.label,
            dummy=dummy,
        )


def read_session(path: str | Path) -> SessionSpec:
    """The session that a spec file describes."""
    file = read_toml(path)
    tables = validated(SpecTables, file.data, file, ())
    if tables.budget is None or tables.budget.error is not None:
        raise file.error(
            "a session spends a budget; add a table [budget] with epsilon = 1 and delta = 1e-9 for "
            "example" + ("" if tables.budget is None else ", in place of error"),
            () if tables.budget is None else ("budget", "error"),
        )
    asked = tables.session or SessionTable()
    return SessionSpec(
        path=Path(path),
        source=table_from(file, tables.data.source, tables.data.query, tables.data.csv, ("data",)),
        name=tables.data.name,
        domain=domain_of(file, tables),
        neighbours=tables.data.neighbours,
        unit=unit_from(file, tables.data.unit, tables.data.rows_per_unit, ("data",)),
        budget=budget_from(file, tables.budget, ("budget",)),
        ledger=ledger_from(file, tables.ledger, file.folder or Path()),
        public=source_from(file, asked.public, ("session", "public")),
        asked=asked,
    )


def answers_document(session: Session, answers: Sequence[Answer]) -> dict[str, object]:
    """Answers as JSON, and what is left."""
    left = session.left()
    return {
        "session": session.name,
        "is_dummy": session.is_dummy,
        "answers": [answer.as_json() | {"is_stored": answer.is_stored} for answer in answers],
        "paid_answers_left": left.paid_answers,
        "ledger_share_left": left.share,
    }


def answers_table(answers: Sequence[Answer]) -> Table:
    """Answers for people."""
    rows = []
    for answer in answers:
        interval = "no promise"
        if answer.low is not None and answer.high is not None:
            interval = f"{counts(answer.low)} to {counts(answer.high)}"
        how = f"{answer.how}, made up" if answer.is_dummy else answer.how
        how = STORED if answer.is_stored and not answer.is_dummy else how
        rows.append((answer.question, counts(answer.value), interval, how))
    return table(("question", "answer", "interval", "how"), rows)


def forecasts_document(
    session: Session, forecasts: Sequence[QuestionForecast]
) -> dict[str, object]:
    """What asking would cost, as JSON."""
    return {
        "session": session.name,
        "questions": [
            {
                "key": one.key,
                "question": one.question,
                "value": one.value,
                "is_stored": one.is_stored,
                "free_bound": one.free_bound,
                "paid_error": one.paid_error,
                "paid_bound": one.paid_bound,
                "level": one.level,
                "cost": one.cost.as_json(),
            }
            for one in forecasts
        ],
        "paid_answers_left": session.left().paid_answers,
    }


def forecasts_table(forecasts: Sequence[QuestionForecast]) -> Table:
    """What asking would cost, for people."""
    columns = ("question", "estimate now", "right: free, within", "wrong: paid, within", "stored")
    rows = []
    for one in forecasts:
        within = counts(one.free_bound), counts(one.paid_bound)
        stored = "yes" if one.is_stored else "no"
        rows.append((one.question, counts(one.value), *within, stored))
    return table(columns, rows)
