# SPDX-License-Identifier: Apache-2.0
"""The models of requests and answers, for validation and for the OpenAPI document.

The names of the classes and of their fields stand in that document. The functions at the end make
public numbers into the JSON that is sent.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sfumato.planning.selection_plans import SelectionMechanism
from sfumato.release.group_sql import ReleasedNumbers, statement_columns, statement_document
from sfumato_web.server.server_limits import LIMITS

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.account import Remaining
    from sfumato.ledger.entries import Entry
    from sfumato.release.release import Release

__all__ = [
    "AllowanceAsked",
    "Answer",
    "AskAsked",
    "DatasetShown",
    "Described",
    "DescriptionAsked",
    "DescriptionShown",
    "Discovered",
    "DiscoveryAsked",
    "DiscoveryShown",
    "Estimated",
    "FreezeAsked",
    "JobShown",
    "LedgerShown",
    "PastReleaseShown",
    "PersonAsked",
    "PersonChangeAsked",
    "PersonShown",
    "PlanAsked",
    "PlanShown",
    "Readiness",
    "ReleaseAsked",
    "Released",
    "SchemaShown",
    "Selected",
    "SelectionAsked",
    "SelectionShown",
    "TokenAsked",
    "TotalAsked",
    "Trouble",
    "canonical",
    "columns_of",
    "entry_document",
    "frame_columns",
    "remaining_document",
    "statements_document",
]


Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)] | Annotated[str, Field(max_length=40)]
_WORKLOAD = [{"marginals": 1}, {"prefix": "age", "by": ["sex"]}]
_SQL = "SELECT COUNT(*) FROM data WHERE age >= 65"
_TOP_SQL = "SELECT age FROM data GROUP BY age ORDER BY COUNT(*) DESC LIMIT 3"


def _reason(text: str) -> str:
    text = text.strip()
    if not 0 < len(text) <= LIMITS.reason_characters or not text.isprintable():
        raise ValueError(
            f"say why, in one line of 1 to {LIMITS.reason_characters} printable characters; it is "
            "recorded and stays there"
        )
    return text


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetAsked(_Asked):
    """Exactly one of epsilon (with or without delta), rho and mu."""

    epsilon: Amount | None = None
    delta: Amount | None = None
    rho: Amount | None = None
    mu: Amount | None = None


class PlanAsked(_Asked):
    """What to forecast: the tables of ``[[workload]]`` in a spec, as JSON objects."""

    workload: Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=64, examples=[_WORKLOAD])
    ]
    budget: Annotated[BudgetAsked, Field(examples=[{"epsilon": 0.5, "delta": 1e-9}])]
    objective: Literal["rmse", "max"] = "rmse"
    mechanism: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class ReleaseAsked(PlanAsked):
    """What to release; projection, level and shares are free, the rest is paid for once."""

    project: bool | Literal["nearest", "bounds"] = True
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    shares: Annotated[
        bool, Field(description="shares of a public number of records beside the counts")
    ] = False


class SelectionAsked(_Asked):
    """What to select: the queries of a workload, or the groups of one SELECT, are the candidates.

    A SELECT says by its ORDER BY and LIMIT which and how many, and by whether COUNT(*) is selected
    whether counts are told.
    """

    workload: (
        Annotated[
            list[dict[str, Any]],
            Field(min_length=1, max_length=64, examples=[[{"marginals": [["age"]]}]]),
        ]
        | None
    ) = None
    sql: Annotated[str, Field(min_length=1, max_length=4_000, examples=[_TOP_SQL])] | None = None
    budget: Annotated[BudgetAsked, Field(examples=[{"epsilon": 0.1}])]
    top: Annotated[int, Field(ge=1)] | None = None
    which: Literal["largest", "smallest"] | None = None
    nearest: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Annotated[str, Field(max_length=40)] | None,
        Field(description="in place of which: nearest to this share of all records"),
    ] = None
    counts: bool | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    mechanism: SelectionMechanism | None = None


class DescriptionAsked(_Asked):
    """What to describe: columns that are in the schema, or that the curator opened for it."""

    budget: Annotated[BudgetAsked, Field(examples=[{"epsilon": 1, "delta": 1e-6}])]
    columns: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=200)]],
            Field(min_length=1, max_length=200, description="all that may be, if missing"),
        ]
        | None
    ) = None
    kinds: Annotated[
        dict[str, Literal["category", "integer", "numeric", "datetime", "boolean"]],
        Field(max_length=200, description="what columns are, where their types do not say it"),
    ] = {}


class DiscoveryAsked(_Asked):
    """Which values or ranges to find: tables of ``[domain]`` that say "discover", as JSON."""

    domain: Annotated[
        dict[str, dict[str, Any]],
        Field(
            min_length=1,
            max_length=64,
            examples=[{"city": {"kind": "category", "values": "discover"}}],
        ),
    ]
    budget: Annotated[BudgetAsked, Field(examples=[{"epsilon": 1, "delta": 1e-6}])]
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95


class AskAsked(_Asked):
    """One linear query in SQL; the table may have any name."""

    sql: Annotated[str, Field(min_length=1, max_length=4_000, examples=[_SQL])]
    error: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="the standard error that the answer may have: what is missing is paid for",
        ),
    ] = None


class FreezeAsked(_Asked):
    """Why something is done, such as freezing; it is recorded and stays there."""

    reason: Annotated[
        str,
        Field(
            examples=["quarterly review"],
            json_schema_extra={"minLength": 1, "maxLength": LIMITS.reason_characters},
        ),
        AfterValidator(_reason),
    ]


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", examples=["eve"])]
Names = Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=1_000)]
RoleName = Literal["analyst", "curator", "auditor", "scraper"]
Days = Annotated[int, Field(ge=1, le=3_650, description="after which the token ends")]


class TokenAsked(FreezeAsked):
    """One more token of somebody, and why."""

    expires_days: Days | None = None


class PersonAsked(TokenAsked):
    """Whom to let in, with which role, to which datasets, and why."""

    name: Name
    role: RoleName = "analyst"
    datasets: Annotated[Names, Field(examples=[["people"]])]


class PersonChangeAsked(FreezeAsked):
    """Another role, other datasets, and why."""

    role: RoleName | None = None
    datasets: Names | None = None


class AllowanceAsked(FreezeAsked):
    """What somebody may spend of a table, and why; null: only the table's budget limits them."""

    budget: BudgetAsked | None


class TotalAsked(FreezeAsked):
    """What all may spend of a table together, and why."""

    budget: BudgetAsked


class PeriodAsked(FreezeAsked):
    """The next period of a series, and why it begins."""

    period: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", examples=["2026-04"]),
    ]


class PeriodShown(BaseModel):
    """A period: the dataset that it is, and its total."""

    dataset: str
    period: str
    budget: dict[str, float | None]
    by: Annotated[str | None, Field(description="who began it; for curators and auditors")]
    reason: str | None


class SeriesShown(BaseModel):
    """Tables that are new every period."""

    name: str
    periods: list[PeriodShown]
    promised: Annotated[
        list[dict[str, float | None]],
        Field(description="to who is in one of the tables, in two, and so on"),
    ]


class PersonShown(BaseModel):
    """Somebody who may use the server; ``token`` is there once, when it was made."""

    name: str
    role: str
    datasets: list[str]
    tokens: Annotated[
        list[dict[str, str | None]], Field(description="id, and when it ends; null: never")
    ]
    set_in: Annotated[str, Field(description="configuration or server: where to change it")]
    token: str | None = None


class Trouble(BaseModel):
    """A refusal: a code for programs, words for people."""

    error: Annotated[str, Field(examples=["budget-exhausted"])]
    message: str
    remaining: dict[str, float | None] | None = None


class Readiness(BaseModel):
    """Whether everything that answers need can be opened."""

    status: Annotated[str, Field(examples=["ready"])]
    parts: Annotated[
        dict[str, str],
        Field(examples=[{"state": "ok", "ledgers": "ok", "tables": "1 of 2 cannot be used"}]),
    ]


class DatasetShown(BaseModel):
    """A dataset that is open to the caller."""

    name: str
    about: str
    attributes: int
    cells: Annotated[str, Field(description="the number of cells; a text, it may be large")]
    neighbours: str
    is_frozen: Annotated[bool | None, Field(description="null: its ledger cannot be read now")]
    paid_answers: Annotated[
        int | None,
        Field(description="questions that can still be paid for; null: no session, or it is busy"),
    ]
    remaining: Annotated[
        dict[str, float | None] | None,
        Field(description="what the caller may still spend; null: its ledger cannot be read now"),
    ]


class AttributeShown(BaseModel):
    """A column and what it may hold; ``levels`` are its hierarchies."""

    name: str
    kind: str
    size: int
    levels: list[str]


class SchemaShown(BaseModel):
    """The public domain of a dataset; ``toml`` has all of it, as a schema file."""

    name: str
    neighbours: str
    unit: dict[str, Any] | None
    attributes: list[AttributeShown]
    toml: str


class PlanShown(BaseModel):
    """A forecast; the keys are those of ``sfumato plan --json``."""

    queries: int
    mechanism: str
    rmse: float
    largest: float
    certificate: float | None
    certified_noise: Annotated[
        list[str] | None,
        Field(description="the noise of the factorizations that the certificate speaks of"),
    ]
    stopped_early: bool
    budget: dict[str, float]
    cost: Any
    groups: list[dict[str, Any]]
    fits: Annotated[bool, Field(description="whether what remains covers the cost")]
    ledger: Annotated[
        dict[str, Any],
        Field(description="the share it takes and leaves, or what would fit; in words and numbers"),
    ]


class ColumnShown(BaseModel):
    """A selected column; ``low`` and ``high`` where its numbers are noisy, else null."""

    name: str
    values: list[Any]
    low: list[Any] | None
    high: list[Any] | None


class StatementShown(BaseModel):
    """The answer of a SELECT in its own shape: the columns as selected, the rows that it leaves."""

    sql: str
    columns: list[ColumnShown]


class PastReleaseShown(BaseModel):
    """A release that was made before; what an earlier version did not note is null."""

    key: str
    name: Annotated[str | None, Field(description="what who asked for it calls it, if anything")]
    entry: Annotated[int, Field(description="the debit in the ledger that paid for it")]
    time: str
    analyst: str
    workload: list[dict[str, Any]]
    budget: dict[str, float | str]
    cost: Any
    queries: int | None
    mechanism: str | None
    rmse: float | None
    files: Annotated[list[str], Field(description="at releases/KEY/files/NAME")]


class JobShown(BaseModel):
    """Something that goes on when nobody waits; steps are missing once it is over."""

    id: str
    kind: Literal["plan", "release", "select", "describe", "discover"]
    dataset: str
    analyst: str
    state: Annotated[
        Literal["waiting", "working", "paying", "done", "failed", "cancelled", "lost"],
        Field(description="it can be cancelled while waiting or working"),
    ]
    created: str
    finished: str | None
    about: Annotated[dict[str, Any], Field(description="what was asked")]
    key: Annotated[str | None, Field(description="of the answer, for answers/KEY")]
    error: Annotated[dict[str, Any] | None, Field(description="the refusal of one that failed")]
    step: str | None = None
    steps_done: int = 0
    steps: int = 0
    seconds: Annotated[int, Field(description="since its turn came")] = 0
    seconds_left_of_step: int | None = None
    queries: int | None = None
    mechanism: str | None = None
    rmse: float | None = None


class Released(BaseModel):
    """A release: one list per column, all of one length."""

    key: str
    dataset: str
    queries: int
    mechanism: str
    rmse: float
    budget: dict[str, float]
    cost: Any
    neighbours: str
    level: float
    entry: Annotated[int, Field(description="the debit in the ledger that paid for it")]
    answers: dict[str, list[Any]]
    statements: Annotated[
        list[StatementShown],
        Field(description="every SELECT of the workload in its own shape; missing if none is"),
    ] = []


class SelectionShown(BaseModel):
    """What would hold of the chosen ones; the keys are those of ``sfumato select --json``."""

    candidates: int
    top: int
    which: str
    mechanism: str
    confidence: float
    tolerance: Annotated[
        float, Field(description="no other candidate is better by more, with this confidence")
    ]
    half_width: Annotated[
        float | None, Field(description="half of the interval of a count that is told")
    ]
    guarantee: Annotated[str, Field(description="what holds, in words")]
    budget: dict[str, float]
    cost: Any
    neighbours: str
    fits: Annotated[bool, Field(description="whether what remains covers the cost")]
    ledger: Annotated[str, Field(description="the share it takes and leaves, in words")]


class Selected(BaseModel):
    """The chosen candidates, one list per column: rank, labels, query; value, low, high if told."""

    key: str
    dataset: str
    candidates: int
    top: int
    which: str
    mechanism: str
    confidence: float
    tolerance: float
    half_width: float | None
    guarantee: str
    budget: dict[str, float]
    cost: Any
    neighbours: str
    entry: Annotated[int, Field(description="the debit in the ledger that paid for it")]
    answers: dict[str, list[Any]]


class DescriptionShown(BaseModel):
    """What would be described; the keys are those of ``sfumato describe --estimate --json``."""

    columns: Annotated[dict[str, str], Field(description="the kind of every column")]
    left_out: Annotated[dict[str, str], Field(description="other columns, each with the reason")]
    budget: dict[str, float]
    neighbours: str
    discovery: list[dict[str, Any]]
    standard_error: Annotated[float, Field(description="of a count, about")]
    fits: Annotated[bool, Field(description="whether what remains covers the cost")]
    ledger: Annotated[str, Field(description="the share it takes and leaves, in words")]


class Described(BaseModel):
    """Every column summarised, one list per number; what is not known is null."""

    key: str
    dataset: str
    budget: dict[str, float]
    neighbours: str
    promise: str
    entries: Annotated[list[int], Field(description="the debits in the ledger that paid for it")]
    records: Annotated[
        dict[str, float] | None, Field(description="about how many there are; with its interval")
    ]
    answers: dict[str, list[Any]]
    histograms: Annotated[
        dict[str, dict[str, list[Any]]], Field(description="the table of every column")
    ]
    toml: Annotated[str | None, Field(description="the completed schema, as a schema file")]


class DiscoveryShown(BaseModel):
    """What could be found; the keys are those of ``sfumato discover --json``."""

    searches: list[dict[str, Any]]
    confidence: float
    budget: dict[str, float]
    cost: Any
    neighbours: str
    guarantee: Annotated[str, Field(description="what can be expected, in words")]
    fits: Annotated[bool, Field(description="whether what remains covers the cost")]
    ledger: Annotated[str, Field(description="the share it takes and leaves, in words")]


class Discovered(BaseModel):
    """The values and ranges that were found, with noisy counts of values."""

    key: str
    dataset: str
    searches: list[dict[str, Any]]
    confidence: float
    budget: dict[str, float]
    cost: Any
    neighbours: str
    guarantee: str
    entries: Annotated[list[int], Field(description="the debit in the ledger that paid for it")]
    answers: dict[str, list[Any]]
    toml: Annotated[str | None, Field(description="what was found, as a schema file")]


class AnswerShown(BaseModel):
    """One answer; ``how`` is free, paid or known; intervals hold with chance ``level``."""

    key: str
    question: Annotated[str, Field(description="the words of who asks")]
    aggregate: Annotated[str, Field(description="what was computed, as the asker wrote it")]
    condition: Annotated[str, Field(description="under which condition, as the asker wrote it")]
    groups: Annotated[
        dict[str, Any], Field(description="the group: a value for each column of GROUP BY")
    ]
    value: float
    low: float | None
    high: float | None
    level: float | None
    how: str
    epoch: int
    cost: list[dict[str, Any]]
    standard_error: Annotated[
        float | None, Field(description="of the noise; missing for tested answers")
    ] = None
    safe_low: Annotated[
        float | None,
        Field(
            description="with safe_high: holds however the question was chosen, where low to high "
            "is for questions that the noise of earlier answers did not choose; missing where no "
            "such interval is known"
        ),
    ] = None
    safe_high: float | None = None
    why: Annotated[str, Field(description="how it came about; may be missing")] = ""


class Answer(BaseModel):
    """The answer to one SELECT; one of many numbers is paid for once, with one ``cost`` for all."""

    key: str
    dataset: str
    answers: Annotated[
        list[AnswerShown], Field(description="the numbers behind it, one per group and aggregate")
    ]
    statements: Annotated[
        list[StatementShown],
        Field(description="the SELECT in its own shape; missing for a question of one number"),
    ] = []
    cost: Annotated[
        list[dict[str, Any]], Field(description="of all numbers; missing where there is one")
    ] = []


class Estimated(BaseModel):
    """What a SELECT would cost; the keys are those of ``sfumato ask --estimate --json``."""

    key: str
    dataset: str
    session: str
    questions: list[dict[str, Any]]
    paid_answers_left: int


class LedgerShown(BaseModel):
    """What was spent: of all for a curator, one's own for an analyst."""

    dataset: str
    budget: dict[str, float]
    remaining: dict[str, float | None]
    allowances: list[dict[str, Any]]
    is_frozen: bool
    frozen: Annotated[
        str | None, Field(description="for curators: who froze it, when and why; null: nobody")
    ]
    entries: list[dict[str, Any]]
    next: Annotated[int | None, Field(description="send as ?after= to read on")]


# Documents as they are sent


def canonical(document: object) -> bytes:
    """A document as the bytes that are sent and kept."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def remaining_document(remaining: Remaining) -> dict[str, float | None]:
    """What one more debit may take: the share of all that is left, and of each lane if there are.

    ``gaussian_epsilon`` is the largest epsilon of Gaussian noise at the delta of the budget.
    """
    document = {
        "share": float(remaining.share),
        "gaussian_mu": remaining.gaussian_mu,
        "gaussian_epsilon": None,
        "pure_epsilon": float(remaining.pure_epsilon),
    }
    if remaining.delta and remaining.gaussian_mu is not None:
        document["gaussian_epsilon"] = float(remaining.epsilon("gaussian"))
    return document | {f"{lane.kind}_lane": float(lane.left) for lane in remaining.lanes}


def columns_of(result: Release, level: float, shares: bool = False) -> dict[str, list[object]]:
    """The long table of answers, column by column; a number that is none is null.

    Of an empty table there are no shares: what was paid for is sent without them.
    """
    table = result.to_arrow(level, shares=shares and bool(result.rows))
    return {
        name: [
            None if isinstance(value, float) and not isfinite(value) else value
            for value in column.to_pylist()
        ]
        for name, column in zip(table.column_names, table.itercolumns(), strict=True)
    }


def statements_document(result: Release, level: float) -> dict[str, object]:
    """``statements``: every SELECT of a release in its own shape; nothing where none was asked."""
    statements = [
        statement_document(
            statement,
            statement_columns(statement, ReleasedNumbers(result.estimates, statement.level(level))),
        )
        for statement in result.workload.statements
    ]
    return {"statements": statements} if statements else {}


def frame_columns(frame: pd.DataFrame) -> dict[str, list[object]]:
    """A dataframe column by column, for JSON: what is missing is null, other values are texts."""
    return {str(name): [_value(v) for v in frame[name].tolist()] for name in frame}


def _value(value: object) -> object:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    return value if isinstance(value, int | float | str) else str(value)


def entry_document(entry: Entry) -> dict[str, object]:
    """A debit and what became of it."""
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "analyst": entry.analyst,
        "state": entry.state,
        "cost": entry.cost.as_json(),
        "key": entry.key,
        "hash": entry.hash,
    }
