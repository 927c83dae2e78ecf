# SPDX-License-Identifier: Apache-2.0
"""Questions of the page Ask: how they are written, asked and refused; without what is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from sfumato.app.server.models import AskAsked
from sfumato.app.server.problems import Problem, not_valid
from sfumato.app.show import counts
from sfumato.wording import sentence

if TYPE_CHECKING:
    from sfumato.app.page.shell import Visitor
    from sfumato.app.server.guarded import Guarded
    from sfumato.domain import Attribute, Domain
    from sfumato.domain.base import Value

__all__ = ["Asked", "advice", "ask", "counting_sql", "history", "listed", "takes_questions"]

MOST_LISTED: Final = 60  # values that a control lists
KEPT: Final = 100  # questions of one login and dataset that are shown again

_ADVICE: Final = {
    "sql": "Nothing was spent. Ask for COUNT, SUM or AVG of the columns that are listed here, with "
    "WHERE and GROUP BY. The controls above write such a question.",
    "request": "Nothing was spent. Write one SELECT of at most 4,000 characters.",
    "too-large": "Nothing was spent. Ask for fewer groups at once, or for a release.",
    "budget-exhausted": "Answers that were given before stay readable and cost nothing. Of several "
    "that were asked for at once, those found before the budget ran out are stored: ask for them "
    "one by one. For new ones ask your curator for more, or for a release.",
    "frozen": "Nothing was spent. Answers that were given before stay readable.",
    "too-many": "Nothing was spent. Wait a moment, then ask again.",
    "unavailable": "An answer that is not shown was not given. Ask again later.",
}


def advice(code: str) -> str:
    """What to do about a refusal."""
    return _ADVICE.get("sql" if code == "workload" else code, "")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was written, and its answers as they are stored."""

    sql: str
    answers: tuple[Mapping[str, Any], ...]
    was_stored: bool

    @property
    def how(self) -> str:
        """Paid or free; an answer that was there before is neither."""
        if self.was_stored:
            return "stored"
        paid = sum(a["how"] == "paid" for a in self.answers)
        if paid == 0:
            return "free"
        return "paid" if paid == len(self.answers) else f"{paid} of {len(self.answers)} paid"

    @property
    def what_it_cost(self) -> str:
        """The same in a sentence."""
        if self.was_stored:
            return "It was answered before, so it cost nothing: this is the same answer."
        if self.how == "free":
            return "The public estimate was tested and is near the truth: it cost nothing."
        if self.how == "paid":
            return "The estimate was too far off: fresh noise was drawn and paid for."
        return f"The estimate was too far off for some: {self.how} for."

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the groups, and what was computed where that is more than one thing."""
        names = tuple(dict.fromkeys(name for a in self.answers for name in a["groups"]))
        is_one = len({a["aggregate"] for a in self.answers}) == 1
        return names if is_one and names else (*names, "computed")

    def cells(self, answer: Mapping[str, Any]) -> tuple[str, ...]:
        """The group of an answer, as texts in the order of the columns."""
        told = {**{n: str(v) for n, v in answer["groups"].items()}, "computed": answer["aggregate"]}
        return tuple(told.get(name, "") for name in self.columns)

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
    if answer["low"] is None or answer["high"] is None:
        return "no promise"
    return f"{counts(answer['low'])} to {counts(answer['high'])}"


def takes_questions(dataset: Guarded) -> bool:
    """Whether a dataset has a session."""
    return dataset.dataset.session is not None


def history(visitor: Visitor, dataset: Guarded) -> list[Asked]:
    """What this login has asked of a dataset, newest first; it is gone when they sign out."""
    kept: Any = visitor.login.drafts.setdefault(f"asked {dataset.name}", [])
    found: list[Asked] = kept
    return found


async def ask(visitor: Visitor, dataset: Guarded, text: str) -> Asked:
    """Ask as over HTTP: the same checks, the same line, the same grid of times.

    Asked twice, a question gets its stored answer: a second click cannot spend anything.

    Privacy: that of ``Asking.ask``.
    """
    visitor.check()
    try:
        asked = AskAsked(sql=text)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise not_valid(faults) from None
    began = visitor.now()
    try:
        asking = dataset.asking
        await asking.key(asked.sql, visitor.who)  # read in its own line
        was_stored = await dataset.on_session(visitor.who, asking.was_answered, asked.sql)
        body = await asking.ask(asked.sql, visitor.who, None)
    finally:
        await visitor.on_grid(began)
    found = Asked(asked.sql, tuple(json.loads(body)["answers"]), was_stored)
    kept = history(visitor, dataset)
    kept[:] = [found, *(a for a in kept if a.sql != found.sql)][:KEPT]
    return found


def listed(attribute: Attribute) -> list[str] | None:
    """The declared values of an attribute as SQL constants, if they are few."""
    if attribute.value_count > MOST_LISTED or attribute.kind not in ("category", "boolean"):
        return None
    return [constant(attribute.value_label(code)) for code in range(attribute.value_count)]


def counting_sql(
    domain: Domain,
    name: str | None = None,
    *,
    values: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    by: str | None = None,
) -> str:
    """A count in SQL: where an attribute has one of some constants or lies in a range, by another.

    >>> import sfumato as sf
    >>> counting_sql(sf.Domain({"age": 90, "sex": 2}), "age", low=18, high=64, by="sex")
    'SELECT "sex", COUNT(*) FROM data WHERE "age" BETWEEN 18 AND 64 GROUP BY "sex"'
    """
    conditions = []
    if name is not None:
        column = _name(domain[name].name)
        if values:
            conditions.append(
                f"{column} = {values[0]}"
                if len(values) == 1
                else f"{column} IN ({', '.join(values)})"
            )
        elif low is not None and high is not None:
            conditions.append(f"{column} BETWEEN {low:.15g} AND {high:.15g}")
        elif low is not None or high is not None:
            sign, end = (">=", low) if high is None else ("<=", high)
            conditions.append(f"{column} {sign} {end:.15g}")
    what, group = "COUNT(*)", ""
    if by is not None:
        what, group = f"{_name(by)}, COUNT(*)", f" GROUP BY {_name(by)}"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
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
