# SPDX-License-Identifier: Apache-2.0
"""Measure where it hurts: a release that spends its budget where its own estimate is worst.

    plan = sf.plan_adaptive(sf.marginals(domain, 3), sf.Budget(epsilon=1, delta=1e-9))
    result = plan.release("adult.parquet", ledger="adult.ledger")
    result.answers()

Three methods: ``"tables"`` chooses and measures whole tables, a maximum entropy model on rows
learns them (any domain; docs/mechanisms/adaptive.md); ``"mwem"`` chooses single queries for a
histogram (explicit domains; docs/mechanisms/mwem.md); ``"boosting"`` samples queries where synopses
are bad and takes medians (explicit domains; docs/mechanisms/boosting.md). The whole cost is debited
at once, before any noise is drawn; how it is split over the rounds may depend on earlier answers
(docs/proofs/adaptive.md). Unlike `sf.plan`, the error cannot be forecast: it depends on the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sfumato.budget import Budget, Cost, Neighbours, check_neighbours
from sfumato.budget.entries import request_key
from sfumato.domain import Domain
from sfumato.domain.unit import PrivacyUnit, check_privacy_unit, unit_of
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.plan.adaptive import Spending, moves_of
from sfumato.plan.candidates import asked_domain, candidate_sets
from sfumato.randomness import WordSource, system_words
from sfumato.refine.cells.explicit import agreed_total
from sfumato.refine.feasibility import witness
from sfumato.refine.given import checked_constraints
from sfumato.refine.learning.hedge import MOST_CELLS
from sfumato.refine.learning.learner import FINAL_ROUNDS, FINAL_ROWS, LOOP_ROWS, Learner
from sfumato.workload.build import in_bins
from sfumato.workload.constraints import Constraints
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.budget.ledger import Ledger
    from sfumato.release.adaptive import AdaptiveRelease
    from sfumato.release.learned import Known
    from sfumato.vault.rounds import Task
    from sfumato.vault.tables import Table

__all__ = ["AdaptivePlan", "Method", "plan_adaptive"]

Method = Literal["tables", "mwem", "boosting"]
Progress = Callable[[int, int, str], None]

ROUNDS_PER_ATTRIBUTE = 7
MOST_ATTRIBUTES = 500
MOST_TABLE = 2**26  # cells of the table that one group of queries looks at
MOST_ROUNDS = 10_000
BOOSTING_ROUNDS = 5
SAMPLES = 40  # queries that boosting draws in a round


@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePlan:
    """What will be measured, for how much, in how many rounds: known before anything is spent."""

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    method: Method
    rounds: int

    def __repr__(self) -> str:
        return (
            f"AdaptivePlan of {self.workload.queries:,} queries by {self.method!r} at "
            f"{self.budget.describe()}: up to {self.rounds} rounds, about "
            f"{self.memory / 2**20:,.0f} MiB and {self.seconds:,.0f} s; the error depends on the "
            "data"
        )

    @property
    def mechanism(self) -> str:
        """The method, as the ledger and the record call it."""
        return f"adaptive-{self.method}"

    @cached_property
    def domain(self) -> Domain:
        """The attributes that the estimate is over: all that are asked about."""
        return asked_domain(self.workload) if self.method == "tables" else self.workload.domain

    @cached_property
    def candidates(self) -> dict[tuple[str, ...], float]:
        """The tables that may be chosen, and how much each matters; none where queries are."""
        return candidate_sets(self.workload) if self.method == "tables" else {}

    @property
    def cost(self) -> Cost:
        """What is debited, before any noise is drawn: all that the budget allows."""
        return Spending.of(self.budget).cost

    @property
    def memory(self) -> int:
        """Bytes that the release holds at once, about."""
        if self.method != "tables":
            votes = self.rounds if self.method == "boosting" else 0
            return 32 * self.workload.domain.size + (24 + 8 * votes) * self.workload.queries
        cells = sum(self.domain.cells(s) for s in self.candidates)
        measured = min(self.rounds, len(self.candidates)) + len(self.domain)
        return 24 * cells + FINAL_ROWS * (8 * len(self.domain) + 4 * measured + 24)

    @property
    def seconds(self) -> float:
        """Time after counting, roughly, from the operations that are done in every round."""
        if self.method == "mwem":
            passes = 20 * self.rounds**2 / 2  # about 20 for every query known so far
            return 1e-8 * passes * self.workload.domain.size + 1e-7 * self.workload.queries
        if self.method == "boosting":
            passes = 300 * self.rounds * min(len(self.workload.terms), SAMPLES * self.rounds)
            drawn = 1e-7 * self.rounds * SAMPLES * self.workload.queries
            return 3e-8 * passes * self.workload.domain.size + drawn
        sets, d = len(self.candidates), len(self.domain)
        cells = sum(self.domain.cells(s) for s in self.candidates)
        measured = min(self.rounds, sets)
        scored = self.rounds * (1.5e-7 * cells + 4e-9 * sets * LOOP_ROWS)
        fitted = self.rounds * 6e-9 * measured * LOOP_ROWS
        settled = FINAL_ROUNDS * FINAL_ROWS * (8e-9 * measured + 1.5e-7 * d)
        return scored + fitted + settled

    def task(self, learner: Learner) -> Task:
        """What the rounds may choose from, and how much each table matters."""
        from sfumato.vault.adaptive import GREATEST_WEIGHT
        from sfumato.vault.rounds import Task

        top = max(self.candidates.values(), default=1.0)
        weights = {s: max(1, round(GREATEST_WEIGHT * w / top)) for s, w in self.candidates.items()}
        return Task(learner, weights, self.rounds, moves_of(self.neighbours, self.unit))

    def request(self) -> dict[str, object]:
        """The public description of what is asked, as the ledger keeps it.

        Measured tables say the same to every writing of the same queries; measured queries are
        known by their places among the groups, so that their order is a part of the request.
        """
        if self.method != "tables":
            return self._written()
        request = {**self._written(), "workload": self.workload.normal.key}
        del request["queries"]
        return request

    def _written(self) -> dict[str, object]:
        """The request as it was when it was that of one writing."""
        unit = self.unit
        return {
            **({"samples": SAMPLES} if self.method == "boosting" else {}),
            "workload": self.workload.digest(),
            "queries": self.workload.queries,
            "mechanism": self.mechanism,
            "rounds": self.rounds,
            "neighbours": self.neighbours,
            "unit": None if unit is None else {"column": unit.column, "rows": unit.rows},
            "budget": self.budget.as_json(),
        }

    def digest(self) -> str:
        """SHA-256 of the request: equal requests, equal digest."""
        return request_key(self.request())

    def _asked_before(self, book: Ledger) -> tuple[str, dict[str, object]]:
        """The key and the request under which this was stored, or will be."""
        written = self._written()
        if book.answer(request_key(written)) is not None:
            return request_key(written), written
        return self.digest(), self.request()

    def release(
        self,
        table: object,
        ledger: Ledger | str | Path | None = None,
        *,
        constraints: Constraints | None = None,
        name: str | None = None,
        key: str | None = None,
        progress: Progress | None = None,
    ) -> AdaptiveRelease:
        """table -> exact tables -> debit -> choose and measure, round by round -> answers.

        As `Plan.release`: the debit comes before any noise, the transcript is stored before it is
        used, and the same plan on the same table returns the stored one at no further cost.
        ``constraints`` are kept by all answers, and refused before anything is spent if no data set
        meets them.
        """
        from sfumato.budget.opening import ledger_of, never_drawn, paid_entry
        from sfumato.release.learned import adaptive_release
        from sfumato.vault.fit import check_columns
        from sfumato.vault.tables import name_of, open_table

        known = checked_constraints(constraints, self.workload)
        if known is not None:
            _check_met(known)
        records = open_table(table)
        check_columns(records, self.workload.domain, self.unit)
        whose = (self.neighbours, self.budget, unit_of(self.unit))
        book = ledger_of(ledger, name_of(table, name), *whose)
        request = self.request()
        if key is None and book is not None:
            key, request = self._asked_before(book)
        key = key or self.digest()
        if book is not None and book.answer(key) is not None:
            if json.loads(paid_entry(book, key).request) == self._written():
                request = self._written()
            stored = book.answer_once(self.cost, request, key, never_drawn)
            paid, transcript = paid_entry(book, key), Transcript.from_bytes(stored)
            agreed_total(transcript.rows, known)
            return adaptive_release(self, transcript, None, paid, known, is_stored=True)
        if book is not None:
            book.check_unit(unit_of(self.unit))
        run = _Run(self, records, system_words(), progress, known)
        agreed_total(run.count(), known)
        if book is None:
            stored = run.draw()
        else:
            unit = unit_of(self.unit)
            stored = book.answer_once(self.cost, request, key, run.draw, unit=unit)
        entry = None if book is None else paid_entry(book, key)
        return adaptive_release(self, Transcript.from_bytes(stored), run.estimate, entry, known)


class _Run:
    """One release: counts first, and when the debit is made, the rounds."""

    def __init__(
        self,
        plan: AdaptivePlan,
        table: Table,
        words: WordSource,
        progress: Progress | None,
        constraints: Constraints | None = None,
    ) -> None:
        self._plan, self._table, self._words, self._progress = plan, table, words, progress
        self._constraints = constraints
        self.estimate: Known | None = None
        self._rounds: Callable[[], Transcript] | None = None

    def count(self) -> int | None:
        """Count everything that the rounds may look at; the number of records if it is public."""
        return (self._count_tables if self._plan.method == "tables" else self._count_queries)()

    def draw(self) -> bytes:
        """Run the rounds; called once, after the debit."""
        assert self._rounds is not None  # noqa: S101
        return self._rounds().to_bytes()

    def _count_tables(self) -> int | None:
        from sfumato.vault.adaptive import read_tables
        from sfumato.vault.rounds import adaptive_rounds

        plan = self._plan
        sets = [*((name,) for name in plan.domain.names), *plan.candidates]
        exact, rows = read_tables(
            self._table, plan.workload.domain, sets, plan.neighbours, plan.unit, self._progress
        )
        learner = Learner(plan.domain, rows, self._constraints)
        task = plan.task(learner)
        self.estimate = learner
        self._rounds = lambda: adaptive_rounds(
            exact, rows, task, Spending.of(plan.budget), self._words, self._progress
        )
        return rows

    def _count_queries(self) -> int | None:
        from sfumato.vault.adaptive import read_answers
        from sfumato.vault.boosting import boosting_rounds
        from sfumato.vault.mwem import mwem_rounds

        plan = self._plan
        work = plan.workload
        exact, rows = read_answers(self._table, work, plan.neighbours, plan.unit, self._progress)
        asked = (exact, rows, work, plan.neighbours, plan.unit, plan.rounds)

        def rounds() -> Transcript:
            purse = Spending.of(plan.budget)
            drawn = (purse, self._words, self._progress, self._constraints)
            transcript: Transcript
            if plan.method == "mwem":
                transcript, self.estimate = mwem_rounds(*asked, *drawn)
            else:
                transcript, self.estimate = boosting_rounds(*asked, SAMPLES, *drawn)
            return transcript

        self._rounds = rounds
        return rows


def _check_met(constraints: Constraints) -> None:
    """Refuse, before anything is spent, what no data set meets, or only an empty one."""
    witness(constraints)
    if constraints.total == 0:
        raise WorkloadError("the published tables hold no record, so there is nothing to estimate")


def plan_adaptive(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    method: Method = "tables",
    unit: PrivacyUnit | None = None,
    rounds: int | None = None,
) -> AdaptivePlan:
    """Plan a release that measures where its estimate is worst; touches no data, costs nothing.

    ``method="tables"`` measures tables of attributes that the workload asks about, on a domain of
    any size; ``method="mwem"`` single queries, on a domain whose cells can be listed, and
    ``method="boosting"`` samples of queries there. ``rounds`` is the most measurements after the
    first look at every attribute (tables), or their number (the others).

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2, "job": 15})
    >>> plan = sf.plan_adaptive(sf.marginals(domain, 2), sf.Budget(epsilon=1, delta=1e-9))
    >>> plan.rounds, len(plan.candidates)
    (3, 3)
    """
    if not isinstance(workload, Workload):
        raise PlanError(
            f"plan_adaptive needs a workload such as sf.marginals(domain, 3), got "
            f"{type(workload).__name__}"
        )
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    unit = check_privacy_unit(unit)
    if method not in ("tables", "mwem", "boosting"):
        raise PlanError(f'method must be "tables", "mwem" or "boosting", got {method!r}')
    if method != "tables" and workload.domain.size > MOST_CELLS:
        raise TooLarge(
            f"{method!r} holds all {workload.domain.size:,} cells of the domain, at most "
            f'{MOST_CELLS:,} are allowed; use method="tables", or fewer attributes'
        )
    workload = in_bins(workload)
    asked = asked_domain(workload)
    if method == "tables" and len(asked) > MOST_ATTRIBUTES:
        raise TooLarge(
            f"an adaptive release keeps rows of at most {MOST_ATTRIBUTES} attributes, the queries "
            f"look at {len(asked)}; ask about fewer at a time"
        )
    widest = max(workload.terms, key=lambda t: t.cells)
    if widest.cells > MOST_TABLE:
        raise TooLarge(
            f"group {widest.name!r} looks at a table of {widest.cells:,} cells, at most "
            f"{MOST_TABLE:,} can be estimated; ask about fewer attributes at a time"
        )
    known = _rounds(workload, method, len(asked)) if rounds is None else rounds
    if isinstance(known, bool) or not isinstance(known, int) or not 1 <= known <= MOST_ROUNDS:
        raise PlanError(f"rounds must be a whole number from 1 to {MOST_ROUNDS}, got {rounds!r}")
    return AdaptivePlan(workload, budget, check_neighbours(neighbours), unit, method, known)


def _rounds(workload: Workload, method: Method, attributes: int) -> int:
    """Rounds unless told: of the order of the attributes, or of the logarithm of the queries."""
    if method == "mwem":
        return max(1, min(workload.queries, 4 + floor(2 * log2(workload.queries))))
    if method == "boosting":
        return BOOSTING_ROUNDS
    return max(1, min(ROUNDS_PER_ATTRIBUTE * attributes, len(candidate_sets(workload))))
