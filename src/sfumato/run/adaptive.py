# SPDX-License-Identifier: Apache-2.0
"""Adaptive releases: tables are chosen where the estimate is worst, measured, and learnt from.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from sfumato.digest import canonical_json, json_digest
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.planning.adaptive_costs import Spending, asked_domain, candidate_sets, moves_of
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.refine.feasibility import witness
from sfumato.refine.learn import Learner
from sfumato.refine.project import checked_constraints
from sfumato.refine.refine_limits import LIMITS as REFINE_LIMITS
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, ReleasePlan, Stored, WorkloadRun, run
from sfumato.types import Neighbours, Progress
from sfumato.workload.bins import in_bins
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.release.learned import Model
    from sfumato.release.release import Release
    from sfumato.run.rounds import Task
    from sfumato.vault.tables import Table

__all__ = [
    "AdaptivePlan",
    "AdaptiveRun",
    "Method",
    "plan_adaptive",
]


Method = Literal["tables", "mwem", "boosting"]


@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePlan(ReleasePlan["Release"]):
    """What will be measured, for how much, in how many rounds: known before anything is spent.

    Args:
        workload: What is asked.
        budget: What the release may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        method: What is measured: ``"tables"``, ``"mwem"`` or ``"boosting"``.
        rounds: How often something is chosen and measured.
    """

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
        return 24 * cells + REFINE_LIMITS.final_rows * (8 * len(self.domain) + 4 * measured + 24)

    @property
    def seconds(self) -> float:
        """Time after counting, roughly, from the operations that are done in every round."""
        if self.method == "mwem":
            passes = 20 * self.rounds**2 / 2  # about 20 for every query known so far
            return 1e-8 * passes * self.workload.domain.size + 1e-7 * self.workload.queries
        if self.method == "boosting":
            passes = (
                300
                * self.rounds
                * min(len(self.workload.terms), LIMITS.boosting_samples * self.rounds)
            )
            drawn = 1e-7 * self.rounds * LIMITS.boosting_samples * self.workload.queries
            return 3e-8 * passes * self.workload.domain.size + drawn
        sets, d = len(self.candidates), len(self.domain)
        cells = sum(self.domain.cells(s) for s in self.candidates)
        measured = min(self.rounds, sets)
        scored = self.rounds * (1.5e-7 * cells + 4e-9 * sets * REFINE_LIMITS.loop_rows)
        fitted = self.rounds * 6e-9 * measured * REFINE_LIMITS.loop_rows
        settled = (
            REFINE_LIMITS.final_rounds * REFINE_LIMITS.final_rows * (8e-9 * measured + 1.5e-7 * d)
        )
        return scored + fitted + settled

    def task(self, learner: Learner) -> Task:
        """What the rounds may choose from, and how much each table matters.

        Args:
            learner: What learns from measurements.

        Returns:
            The candidates and their weights.
        """
        from sfumato.run.rounds import Task
        from sfumato.vault.mechanisms.select import MAXIMUM_WEIGHT

        top = max(self.candidates.values(), default=1.0)
        weights = {s: max(1, round(MAXIMUM_WEIGHT * w / top)) for s, w in self.candidates.items()}
        return Task(learner, weights, self.rounds, moves_of(self.neighbours, self.unit))

    def request(self) -> dict[str, object]:
        """The public description of what is asked, as the ledger keeps it.

        Measured tables say the same to every writing of the same queries; measured queries are
        known by their places among the groups, so that their order is a part of the request.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        if self.method != "tables":
            return self.as_written()
        request = {**self.as_written(), "workload": self.workload.normal.key}
        del request["queries"]
        return request

    def as_written(self) -> dict[str, object]:
        """The request as it once was: that of one writing of the workload.

        Returns:
            JSON.
        """
        unit = self.unit
        return {
            **({"samples": LIMITS.boosting_samples} if self.method == "boosting" else {}),
            "workload": self.workload.digest(),
            "queries": self.workload.queries,
            "mechanism": self.mechanism,
            "rounds": self.rounds,
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
            "budget": self.budget.as_json(),
        }

    def runnable(self) -> AdaptiveRun:
        """This plan as the spine runs it, without constraints.

        Returns:
            The plan in the parts that are called in turn.
        """
        return AdaptiveRun(self)

    def release(
        self,
        table: object,
        ledger: Ledger | str | Path | None = None,
        *,
        constraints: Constraints | None = None,
        name: str | None = None,
        key: str | None = None,
        analyst: str | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """The learned answers: table -> exact tables -> debit -> choose and measure, in rounds.

        As `Plan.release`: the debit comes before any noise, the transcript is stored before it is
        used, and the same plan on the same table returns the stored one at no further cost.
        ``constraints`` are kept by all answers, and refused before anything is spent if no data set
        meets them.

        Args:
            table: As in `Plan.release`.
            ledger: The ledger of the table, opened or its path.
            constraints: Public knowledge that all answers keep, refused before anything is spent if
                no data set meets it.
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; the digest of the request if None.
            analyst: Whose allowance is debited as well.
            progress: Called with what is done and how much of it.

        Returns:
            The answers, their intervals, and the provenance that states the guarantee.

        Raises:
            TableError: The table cannot be opened or lacks a declared column.
            BudgetExhausted: The cost does not fit what is left.
            LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
        """
        access = Access(table, ledger, name, key, analyst, progress)
        return run(AdaptiveRun(self, constraints), access)


Rounds: TypeAlias = "Callable[[WordSource], tuple[Transcript, Model]]"
"""The rounds, with all that they may look at counted: what they measured, and what they learnt."""


@dataclass(eq=False)
class AdaptiveRun(WorkloadRun[Rounds, "Release"]):
    """An adaptive plan with the constraints that its answers keep.

    ``estimate`` is what the rounds of a new release have learnt; a stored one is learnt again.
    """

    plan: AdaptivePlan
    constraints: Constraints | None = None
    estimate: Model | None = None

    def request(self) -> dict[str, object]:
        """That of the plan: constraints are a view of the same transcript."""
        return self.plan.request()

    def keys(self, ledger: Ledger) -> Iterable[str]:
        """The key of this very writing, which was the only one once, and the plan's own."""
        del ledger
        return dict.fromkeys([json_digest(self.plan.as_written()), self.key()])

    def reader(self, stored: Stored) -> AdaptiveRun | None:
        """This, if the request is the plan's or that of its writing."""
        requests = (self.request(), self.plan.as_written())
        return self if stored.entry.request in map(canonical_json, requests) else None

    def checked(self, table: object) -> AdaptiveRun:
        """Refuse constraints that no data set meets, or only an empty one."""
        del table
        if self.constraints is None:
            return self
        constraints = checked_constraints(self.constraints, self.plan.workload)
        _check_met(constraints)
        return replace(self, constraints=constraints)

    def count(self, table: Table | None, progress: Progress | None) -> Rounds:
        """Count all that rounds may look at; refuses a public total that constraints contradict."""
        assert table is not None  # noqa: S101
        is_tables = self.plan.method == "tables"
        rows, rounds = (self._tables if is_tables else self._queries)(table, progress)
        agreed_total(rows, self.constraints)
        return rounds

    def draw(self, exact: Rounds, progress: Progress | None) -> bytes:
        """Run the rounds, and remember what they learnt."""
        del progress
        transcript, self.estimate = exact(system_words())
        return transcript.to_bytes()

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Release:
        """The answers of the estimate."""
        from sfumato.release.learned import adaptive_release

        del progress
        transcript = Transcript.from_bytes(answer)
        agreed_total(transcript.rows, self.constraints)
        estimate = None if is_stored else self.estimate
        return adaptive_release(
            self.plan, transcript, estimate, entry, self.constraints, is_stored=is_stored
        )

    def _tables(self, table: Table, progress: Progress | None) -> tuple[int | None, Rounds]:
        from sfumato.run.rounds import adaptive_rounds
        from sfumato.vault.mechanisms.select import read_tables

        plan = self.plan
        sets = [*((name,) for name in plan.domain.names), *plan.candidates]
        whose = (plan.neighbours, plan.unit)
        exact, rows = read_tables(table, plan.workload.domain, sets, *whose, progress)
        learner = Learner(plan.domain, rows, self.constraints)
        task = plan.task(learner)

        def rounds(random: WordSource) -> tuple[Transcript, Model]:
            spending = Spending.of(plan.budget)
            return adaptive_rounds(exact, rows, task, spending, random, progress), learner

        return rows, rounds

    def _queries(self, table: Table, progress: Progress | None) -> tuple[int | None, Rounds]:
        from sfumato.run.rounds import boosting_rounds, mwem_rounds
        from sfumato.vault.mechanisms.select import read_answers

        plan, constraints = self.plan, self.constraints
        work, whose = plan.workload, (plan.neighbours, plan.unit)
        exact, rows = read_answers(table, work, *whose, progress)
        task = (exact, rows, work, *whose, plan.rounds)

        def rounds(random: WordSource) -> tuple[Transcript, Model]:
            spending = (Spending.of(plan.budget), random, progress, constraints)
            if plan.method == "mwem":
                return mwem_rounds(*task, *spending)
            return boosting_rounds(*task, LIMITS.boosting_samples, *spending)

        return rows, rounds


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

    Args:
        workload: What is asked.
        budget: What the release may spend.
        neighbours: Which two tables must be hard to tell apart.
        method: ``"tables"`` measures tables of attributes, on a domain of any size; ``"mwem"``
            single queries and ``"boosting"`` samples of queries, on a domain whose cells can be
            listed.
        unit: Whose presence is protected; one row if None.
        rounds: The most measurements after the first look at every attribute (tables), or their
            number (the others); None for the default.

    Returns:
        The plan.

    Raises:
        PlanError: An argument is wrong, or the method does not fit the workload.
        TooLarge: The domain has too many cells for the method.

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
    unit = check_privacy_unit(unit, workload.domain.attributes)
    if method not in ("tables", "mwem", "boosting"):
        raise PlanError(f'method must be "tables", "mwem" or "boosting", got {method!r}')
    if method != "tables" and workload.domain.size > REFINE_LIMITS.learned_cells:
        raise TooLarge(
            f"{method!r} holds all {workload.domain.size:,} cells of the domain, at most "
            f'{REFINE_LIMITS.learned_cells:,} are allowed; use method="tables", or fewer attributes'
        )
    workload = in_bins(workload)
    domain = asked_domain(workload)
    if method == "tables" and len(domain) > LIMITS.learned_attributes:
        raise TooLarge(
            f"an adaptive release keeps rows of at most {LIMITS.learned_attributes} attributes, "
            f"the queries look at {len(domain)}; ask about fewer at a time"
        )
    widest = max(workload.terms, key=lambda t: t.cells)
    if widest.cells > LIMITS.learned_table_cells:
        raise TooLarge(
            f"group {widest.name!r} looks at a table of {widest.cells:,} cells, at most "
            f"{LIMITS.learned_table_cells:,} can be estimated; ask about fewer attributes at a time"
        )
    number = _rounds(workload, method, len(domain)) if rounds is None else rounds
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 1 <= number <= LIMITS.rounds_maximum
    ):
        raise PlanError(
            f"rounds must be a whole number from 1 to {LIMITS.rounds_maximum}, got {rounds!r}"
        )
    return AdaptivePlan(workload, budget, check_neighbours(neighbours), unit, method, number)


def _rounds(workload: Workload, method: Method, attributes: int) -> int:
    """Rounds unless told: of the order of the attributes, or of the logarithm of the queries."""
    if method == "mwem":
        return max(1, min(workload.queries, 4 + floor(2 * log2(workload.queries))))
    if method == "boosting":
        return LIMITS.boosting_rounds
    return max(1, min(LIMITS.rounds_per_attribute * attributes, len(candidate_sets(workload))))
