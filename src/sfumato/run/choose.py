# SPDX-License-Identifier: Apache-2.0
"""Private selection: the indices of nearly the best of public candidates, and nothing else.

    jobs = sf.marginals(domain, [["occupation"]])
    plan = sf.plan_selection(jobs, sf.Budget(epsilon=1), top=3)
    print(plan)                                   # how good the chosen ones will be
    chosen = plan.release("adult.parquet", ledger="adult.ledger")
    chosen.names                                  # ("occupation = Prof-specialty", ...)

Candidates are linear queries: cells of a table, bins, conditions, or how many records a public
model gets right; their answers are the scores. What leaves the vault is the places of nearly the
largest, and their noisy counts where the plan pays for them. The plan takes the mechanism with the
best forecast (``planning/selection_plans.py``); the debit comes before the noise, and the same
selection on the same table returns the stored one. Mathematics: docs/mechanisms/selection.md.
Proof: docs/proofs/selection.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import inf, ldexp
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from sfumato.digest import canonical_json
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import BudgetError, PlanError, WorkloadError
from sfumato.ledger.account import percent
from sfumato.planning.selection_plans import (
    SelectionForecast,
    SelectionMechanism,
    candidates_of,
    check_candidates,
    forecast_selections,
    nearest_of,
)
from sfumato.privacy.budget import Budget, Number, check_neighbours, exact
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.release.labels import columns_of, texts_of
from sfumato.release.provenance import cost_in_words
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import ReleasePlan, WorkloadRun
from sfumato.text import STORED, shown
from sfumato.types import Integers, Neighbours, Progress
from sfumato.workload.statements.sql_top import top_select
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.vault.mechanisms.select import ExactAnswers
    from sfumato.vault.tables import Table
    from sfumato.workload.normal_form import Normal

__all__ = ["Choice", "Selection", "SelectionPlan", "SelectionRun", "Which", "plan_selection"]


Which: TypeAlias = Literal["largest", "smallest"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen candidate; ``value`` and its interval only where the plan pays for counts.

    Attributes:
        rank: 1 for the first choice.
        name: The candidate in words.
        group: The group of queries that it is of.
        labels: Its labels by column, such as ``{"occupation": "Sales"}``.
        value: Its noisy count; None without counts.
        low: The least that its count can be.
        high: The most.
    """

    rank: int
    name: str
    group: str
    labels: dict[str, object]
    value: float | None
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class SelectionPlan(ReleasePlan["Selection"]):
    """Who may be chosen, how, for how much and how well: public, known before it is spent.

    Args:
        workload: The candidates: one query each.
        budget: What the selection may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        top: How many are chosen.
        which: Whether the largest or the smallest answers are looked for.
        nearest: Instead, the share of all records that answers are to be near; None as a rule.
        confidence: The probability with which everything that is said of the chosen ones holds.
        forecast: The mechanism, its noise, its cost and what it promises.
        mechanisms: The forecasts of all mechanisms, in all currencies of the budget, best first.
    """

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    top: int
    which: Which
    nearest: Fraction | None
    confidence: float
    forecast: SelectionForecast
    mechanisms: tuple[SelectionForecast, ...]

    @property
    def mechanism(self) -> SelectionMechanism:
        """The name of the mechanism."""
        return self.forecast.mechanism

    @property
    def candidates(self) -> int:
        """How many different candidates there are."""
        return self.forecast.candidates.number

    @property
    def counts(self) -> bool:
        """Whether the counts of the chosen ones are told, with noise."""
        return self.forecast.with_counts

    @property
    def cost(self) -> Cost:
        """What is debited, before any noise is drawn."""
        return self.forecast.cost

    @property
    def tolerance(self) -> float:
        """With probability ``confidence`` no other candidate is better by more than this."""
        return self.forecast.tolerance

    @property
    def half_width(self) -> float | None:
        """Half of the interval of a count that is told; None without counts."""
        return self.forecast.half_width

    @property
    def guarantee(self) -> str:
        """What holds of the chosen ones, in words."""
        better = "larger" if self.which == "largest" else "smaller"
        what = "count" if all(term.greatest == 1 for term in self.workload.terms) else "score"
        which = "the chosen one" if self.top == 1 else "any of the chosen ones"
        counts = ""
        if self.half_width is not None:
            whose = f"its {what} is told" if self.top == 1 else f"their {what}s are told"
            share = f"for {percent(self.forecast.share)} of the budget"
            price = "at no further cost" if self.forecast.is_counted else share
            counts = f", and {whose} within {self.half_width:,.4g} ({price})"
        if self.nearest is not None:
            return (
                f"with probability {self.confidence:g} no other candidate has a {what} that is "
                f"nearer to {float(self.nearest):g} of all records than that of {which} by more "
                f"than {self.tolerance:,.4g}{counts}"
            )
        return (
            f"with probability {self.confidence:g} no other candidate has a {what} that is "
            f"{better} than that of {which} by more than {self.tolerance:,.4g}{counts}"
        )

    def __repr__(self) -> str:
        return (
            f"SelectionPlan of the {self.top:,} {self.aim} of {self.candidates:,} candidates by "
            f"{self.mechanism!r} at {self.budget.describe()}: {self.guarantee}"
        )

    @property
    def aim(self) -> str:
        """Which answers are looked for, in words."""
        if self.nearest is None:
            return self.which
        return f"nearest to {float(self.nearest):g} of all records"

    def compared(self) -> pd.DataFrame:
        """What every mechanism would promise for the same budget, best first.

        Returns:
            A row per mechanism and currency: its tolerance and the half width of its counts.
        """
        import pandas as pd

        rows = [
            {
                "mechanism": each.mechanism,
                "currency": each.currency,
                "tolerance": each.tolerance,
                "half_width": np.nan if each.half_width is None else each.half_width,
            }
            for each in self.mechanisms
        ]
        return pd.DataFrame(rows)

    def fitting(
        self, ledger: Ledger, *, analyst: str | None = None, key: str | None = None
    ) -> SelectionPlan:
        """The same selection by the best mechanism that fits what is left in a ledger.

        One that the ledger has the answer of goes first, for it is free. After Gaussian noise, what
        is pure counts for much more in an (epsilon, delta) ledger, and the other currency may fit.

        Args:
            ledger: The ledger of the table; read, not changed.
            analyst: Whose allowance counts beside what is left.
            key: The key of the request, as given to `release`.

        Returns:
            The plan; this one if none fits.
        """
        plans = [replace(self, forecast=each) for each in self.mechanisms]
        for plan in plans:
            entry, request = ledger.entry(key or plan.digest()), canonical_json(plan.request())
            if entry is not None and (entry.state, entry.request) == ("answered", request):
                return plan
        delta = self.budget.delta
        affordable = (p for p in plans if ledger.price(p.cost, analyst, delta=delta).fits)
        return next(affordable, self)

    def request(self) -> dict[str, object]:
        """The public description of what is selected, as the ledger keeps it.

        The same for every writing of the same candidates, in whatever order.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        unit, law = self.unit, self.forecast
        noise = None
        if law.noise is not None:
            noise = [law.noise.noise, law.noise.units, law.noise.grid_bits]
        return {
            "mechanism": "selection",
            "by": law.mechanism,
            "workload": self.normal.key,
            "top": self.top,
            "which": self.which,
            "rate": None if law.rate is None else str(law.rate),
            "counts": law.with_counts,
            "noise": noise,
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
            "budget": self.budget.as_json(),
            **({} if self.nearest is None else {"nearest": str(self.nearest)}),
        }

    def runnable(self) -> SelectionRun:
        """This selection as the spine runs it.

        Returns:
            The plan in the parts that are called in turn.
        """
        return SelectionRun(self)

    def as_json(self) -> dict[str, object]:
        """The plan for programs: what `sfumato select --json` and the server say of it.

        Returns:
            JSON.
        """
        return {
            "candidates": self.candidates,
            "top": self.top,
            "which": self.which,
            "mechanism": self.mechanism,
            "confidence": self.confidence,
            "tolerance": self.tolerance,
            "half_width": self.half_width,
            "guarantee": self.guarantee,
            "budget": {n: float(Fraction(v)) for n, v in self.budget.as_json().items()},
            "cost": self.cost.as_json(),
            "neighbours": self.neighbours,
            **({} if self.nearest is None else {"nearest": float(self.nearest)}),
        }

    def drawn(self, exact: ExactAnswers, random: WordSource | None = None) -> bytes:
        """Which candidates are chosen, and their noisy counts if the plan pays for them, as JSON.

        Privacy: costs ``cost``, which is debited before: docs/proofs/selection.md, Theorems 7 and
        10; the counts of the chosen ones have noise of their own.
        Neighbours: those of ``plan_selection``.

        Args:
            exact: The exact scores, of the normal form of the candidates.
            random: A source of random words; the system's if None.

        Returns:
            JSON.
        """
        random = system_words() if random is None else random
        law, is_largest = self.forecast, self.which == "largest"
        numbers: list[int] | None = None
        if law.rate is None:
            assert law.noise is not None  # noqa: S101
            places, measured = exact.top_measured(law.noise, self.top, is_largest, random)
            numbers = measured.units.tolist() if law.with_counts else None
        else:
            noise: Literal["gumbel", "exponential"] = "gumbel"
            if law.mechanism == "permute-and-flip":
                noise = "exponential"
            places = exact.top(law.rate, noise, self.top, is_largest, random, self.nearest)
            if law.noise is not None:
                numbers = exact.measure_some(places, law.noise, random).units.tolist()
        return json.dumps({"places": places, "numbers": numbers}).encode()

    @cached_property
    def normal(self) -> Normal:
        """The candidates in their normal form, each of them once."""
        return _plain(self.workload).normal

    @cached_property
    def _rows(self) -> Integers:
        """For every candidate of the normal form, the first query that it was written as."""
        normal = self.normal
        starts = np.cumsum([0, *(term.rows for term in normal.workload.terms)])
        places = np.concatenate(
            [
                normal.gather(t, lambda i: np.arange(starts[i], starts[i + 1], dtype=np.float64))
                for t in range(len(self.workload.terms))
            ]
        ).astype(np.int64)
        out = np.zeros(int(starts[-1]), dtype=np.int64)
        out[places[::-1]] = np.arange(places.size)[::-1]
        return out

    def choice(self, rank: int, place: int, number: int | None) -> Choice:
        """A chosen candidate in the words of the workload.

        Args:
            rank: 1 for the first choice.
            place: Its place among the candidates of the normal form.
            number: Its noisy count in steps; None if it is not told.

        Returns:
            The choice.
        """
        row = int(self._rows[place])
        for term in self.workload.terms:
            if row < term.rows:
                break
            row -= term.rows
        labels = {
            name: column[0].item() if hasattr(column[0], "item") else column[0]
            for name, column in columns_of(term, slice(row, row + 1)).items()
            if name != "query"
        }
        name = str(texts_of(term)[row])
        low, high, value = 0.0 if self.forecast.candidates.is_nonnegative else -inf, inf, None
        law, half = self.forecast.noise, self.half_width
        if number is not None and law is not None and half is not None:
            value = ldexp(number, -law.grid_bits - self.forecast.candidates.bits)
            low, high = max(low, value - half), max(low, value + half)
        return Choice(rank, name, str(term.name), labels, value, low, high)


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The chosen candidates, and what holds of them; all of it is public.

    Args:
        plan: What was selected, and how.
        choices: The chosen ones, in the order of the choices.
        entry: The debit that paid for it; None without a ledger.
        is_stored: Whether the ledger had it already: then nothing was spent now.
    """

    plan: SelectionPlan
    choices: tuple[Choice, ...]
    entry: Entry | None
    is_stored: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen ones in words."""
        return tuple(choice.name for choice in self.choices)

    @property
    def best(self) -> Choice:
        """The first choice."""
        return self.choices[0]

    @property
    def cost(self) -> Cost:
        """What it costs, when it is paid for."""
        return self.plan.cost

    def frame(self) -> pd.DataFrame:
        """The chosen ones as a dataframe.

        Returns:
            A row per choice: rank, labels, name; with counts also value, low and high.
        """
        import pandas as pd

        rows = []
        for choice in self.choices:
            row: dict[str, object] = {"rank": choice.rank, **choice.labels, "query": choice.name}
            if choice.value is not None:
                row |= {"value": choice.value, "low": choice.low, "high": choice.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def as_json(self) -> dict[str, object]:
        """The chosen ones for programs, with what holds of them.

        Returns:
            JSON.
        """
        choices = [
            {
                "rank": c.rank,
                "name": c.name,
                "group": c.group,
                "labels": {
                    n: v if isinstance(v, int | float) else str(v) for n, v in c.labels.items()
                },
                "value": c.value,
                "low": c.low if c.value is not None else None,
                "high": c.high if c.value is not None else None,
            }
            for c in self.choices
        ]
        return {**self.plan.as_json(), "choices": choices}

    def __repr__(self) -> str:
        spent = STORED if self.is_stored else cost_in_words(self.cost, self.plan.budget)
        return f"Selection of {', '.join(self.names)} ({spent}); {self.plan.guarantee}"


@dataclass(frozen=True, eq=False)
class SelectionRun(WorkloadRun["ExactAnswers", Selection]):
    """A selection as the spine runs it."""

    plan: SelectionPlan

    def request(self) -> dict[str, object]:
        """That of the plan."""
        return self.plan.request()

    def count(self, table: Table | None, progress: Progress | None) -> ExactAnswers:
        """The exact scores of all candidates."""
        from sfumato.vault.mechanisms.select import read_answers, read_scores

        assert table is not None  # noqa: S101
        plan = self.plan
        if plan.nearest is not None:
            whose = (plan.neighbours, plan.unit)
            return read_answers(table, plan.normal.workload, *whose, progress)[0]
        return read_scores(table, plan.normal.workload, plan.neighbours, plan.unit, progress)

    def draw(self, exact: ExactAnswers, progress: Progress | None) -> bytes:
        """Which are chosen, and their noisy counts."""
        del progress
        return self.plan.drawn(exact)

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Selection:
        """The chosen ones by their names."""
        del progress
        stored = json.loads(answer)
        numbers = stored["numbers"] or [None] * len(stored["places"])
        pairs = zip(stored["places"], numbers, strict=True)
        choices = tuple(self.plan.choice(i + 1, p, n) for i, (p, n) in enumerate(pairs))
        return Selection(self.plan, choices, entry, is_stored)


def plan_selection(
    candidates: Workload | str,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    top: int | None = None,
    which: Which | None = None,
    nearest: Number | None = None,
    counts: bool | None = None,
    domain: Domain | None = None,
    unit: PrivacyUnit | None = None,
    mechanism: SelectionMechanism | None = None,
    confidence: float = 0.95,
    ledger: Ledger | None = None,
) -> SelectionPlan:
    """Plan to choose the best few of public candidates; touches no data, costs nothing.

    Privacy: none is spent here; a release, with the counts that it tells, is within ``budget``:
    docs/proofs/selection.md, Theorems 7 and 10.
    Error: `SelectionPlan.guarantee`, proved there and attained by some data.

    Args:
        candidates: One query per candidate: cells, bins, conditions, or what public models get
            right (`sf.predictions`). Or one SELECT with ``ORDER BY COUNT(*) DESC LIMIT n``, which
            says top, which and counts itself and needs ``domain``.
        budget: What the selection may spend.
        neighbours: Which two tables must be hard to tell apart.
        top: How many are chosen; 1 if None.
        which: ``"largest"`` (the default) or ``"smallest"`` answers.
        nearest: Instead, answers nearest to this share of all records: of the running totals
            ``sf.prefixes(domain, "age")``, 0.5 is nearest at the median.
        counts: Whether to tell the counts of the chosen ones too, for a part of the budget that
            the plan decides.
        domain: What a record may look like; for SQL only.
        unit: Whose presence is protected; one row if None.
        mechanism: ``"permute-and-flip"``, ``"exponential"``, ``"laplace-counts"`` or
            ``"gaussian-counts"``; the one with the best forecast if None.
        confidence: The probability with which everything that is said of the chosen ones holds.
        ledger: The ledger that will be debited: the mechanism is then the best one that fits what
            is left (`SelectionPlan.fitting`).

    Returns:
        The plan; ``release`` runs it on a table.

    Raises:
        PlanError: An argument is wrong, or the budget does not fit.
        WorkloadError: Candidates are no linear queries of exact answers.
        TooLarge: There are too many candidates.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"job": 15, "sex": 2})
    >>> plan = sf.plan_selection(sf.marginals(domain, [["job"]]), sf.Budget(epsilon=1))
    >>> plan.mechanism, plan.tolerance
    ('permute-and-flip', 4.0)
    """
    if isinstance(candidates, str):
        if domain is None:
            raise PlanError("a selection in SQL needs the domain: give domain=...")
        if any(option is not None for option in (top, which, nearest, counts)):
            raise PlanError(
                "a selection in SQL says top, which and counts itself: by LIMIT, by the order, and "
                "by whether COUNT(*) is selected; leave the arguments out"
            )
        written = top_select(domain, candidates)
        work, top, which, counts = written.workload, written.top, written.which, written.counts
    elif isinstance(candidates, Workload):
        work = candidates
    else:
        raise PlanError(
            "candidates are a workload such as sf.marginals(domain, [['occupation']]), or one "
            f"SELECT, got {shown(candidates)}"
        )
    share = None if nearest is None else _share(nearest, which)
    which = "largest" if which is None else which
    _check(budget, which, counts, mechanism, confidence)
    unit, neighbours = (
        check_privacy_unit(unit, work.domain.attributes),
        check_neighbours(neighbours),
    )
    _check_scores(work)
    distinct = _plain(work).normal.workload
    number = check_candidates(distinct.queries, 1 if top is None else top)
    whose = (neighbours, unit)
    forecasts = forecast_selections(
        budget,
        candidates_of(distinct, *whose) if share is None else nearest_of(distinct, share, *whose),
        number,
        with_counts=bool(counts),
        confidence=float(confidence),
        mechanism=mechanism,
    )
    plan = SelectionPlan(
        work,
        budget,
        neighbours,
        unit,
        number,
        which,
        share,
        float(confidence),
        forecasts[0],
        forecasts,
    )
    return plan if ledger is None else plan.fitting(ledger)


def _check(
    budget: object, which: object, counts: object, mechanism: object, confidence: float
) -> None:
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {shown(budget)}")
    if which not in get_args(Which):
        raise PlanError(f'which must be "largest" or "smallest", got {shown(which)}')
    if counts is not None and not isinstance(counts, bool):
        raise PlanError(f"counts must be True or False, got {shown(counts)}")
    names = get_args(SelectionMechanism)
    if mechanism is not None and mechanism not in names:
        listed = ", ".join(f'"{name}"' for name in names)
        raise PlanError(f"mechanism must be one of {listed}, or None, got {shown(mechanism)}")
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie between 0 and 1, got {shown(confidence)}")


def _share(nearest: Number, which: object) -> Fraction:
    """The share of all records that answers are to be near, exactly."""
    if which is not None:
        raise PlanError("which and nearest exclude each other; leave one of them out")
    try:
        share = exact(nearest, "nearest")
    except BudgetError:
        share = Fraction(-1)
    if not 0 <= share <= 1 or share.denominator > LIMITS.share_denominator:
        raise PlanError(
            f"nearest must be a share of all records from 0 to 1, such as 0.5, with a denominator "
            f"of at most {LIMITS.share_denominator:,}, got {shown(nearest)}"
        )
    return share


def _check_scores(workload: Workload) -> None:
    """Refuse what has no exact score, or a score that no record changes."""
    if workload.ratios:
        raise WorkloadError(
            "a mean is a ratio, not a linear score: one record can move it by anything; select by "
            "counts or by sums in bins"
        )
    if any(term.unit_bits for term in workload.terms):
        raise WorkloadError(
            "sums of values are not counted in whole steps; select by sums in bins "
            "(in_bins=True), or by counts"
        )
    for term in workload.terms:
        low, high = term.coefficient_bounds()
        empty = np.flatnonzero((np.asarray(low) == 0) & (np.asarray(high) == 0))
        if empty.size:
            name = texts_of(term)[int(empty[0])]
            raise WorkloadError(
                f"candidate {shown(str(name))} counts no record, whatever the data are; leave it "
                "out"
            )


def _plain(workload: Workload) -> Workload:
    """The candidates alone: how much a group matters to a planner says nothing here."""
    if all(term.weight == 1.0 for term in workload.terms):
        return workload
    return replace(workload, terms=tuple(replace(t, weight=1.0) for t in workload.terms))
