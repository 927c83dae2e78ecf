# SPDX-License-Identifier: Apache-2.0
"""Plan the answers to a workload, and release them: measure, reconstruct, project, answer.

`plan` chooses the mechanism with the least error, or one that fits what is left in a ledger
(`InLedger` says what it takes there); a `Plan` holds its forecast, and `Plan.release` is one call
of the spine with a `LinearRun`. Only the vault sees exact data. What leaves it is a noisy
measurement, debited in the ledger before it is drawn (`run/spine.py`); everything before and after
is arithmetic on public numbers.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.digest import canonical_json, json_digest
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import LedgerError, PlanError, WorkloadError
from sfumato.ledger.account import Account, Price
from sfumato.ledger.entries import Entry
from sfumato.measurement import Length, Measured, Measurement
from sfumato.planning.division import divided, divided_below, length_of, length_told, records_of
from sfumato.planning.forecast import Candidate, Forecast, GroupForecast
from sfumato.planning.planner import Strategies, choose, objective_error, smallest_budget
from sfumato.planning.views import as_asked, cells_of
from sfumato.privacy.budget import Budget, budget_writings, check_neighbours, total_is_public
from sfumato.privacy.cost import Cost
from sfumato.refine.consistency import Projection, check_projection
from sfumato.refine.feasibility import witness
from sfumato.refine.intervals import Intervals, check_intervals
from sfumato.refine.project import checked_constraints
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, ReleasePlan, Stored, WorkloadRun, run, stored_answer
from sfumato.solve.effort import cache_folder, deadline
from sfumato.solve.solve_limits import LIMITS as SOLVE_LIMITS
from sfumato.text import shown
from sfumato.types import Array, Neighbours, Noise, Objective, Progress
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.representations import (
    Representation,
    plain_means,
    plain_sums,
    representations,
)
from sfumato.workload.workload import Workload, check_listed

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger, LedgerToCreate
    from sfumato.planning.forecast import Coefficients, Factors, ShareForecast, Spread
    from sfumato.planning.joint_errors import AllWithin
    from sfumato.planning.resources import Resources
    from sfumato.privacy.noise_laws import BlockNoise
    from sfumato.refine.shrink import PublicRecords
    from sfumato.release.release import Release
    from sfumato.strategy.base import Strategy
    from sfumato.study.projection_forecast import AfterProjection
    from sfumato.vault.mechanisms.measure import Exact
    from sfumato.vault.tables import Table
    from sfumato.workload.workload import EngineName

__all__ = [
    "InLedger",
    "LinearRun",
    "NewLedger",
    "Plan",
    "PlanLedger",
    "fitting",
    "plan",
    "request_of",
]


class PlanLedger(Protocol):
    """What a plan asks of a ledger: what a cost takes, and what was answered before."""

    def price(
        self, cost: Cost, analyst: str | None = None, *, delta: Fraction | None = None
    ) -> Price:
        """What one more debit takes, or what would fit."""
        ...

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        ...


@dataclass(frozen=True, slots=True)
class NewLedger:
    """The ledger that a first release would create: all of its total is left."""

    total: Budget

    def price(
        self, cost: Cost, analyst: str | None = None, *, delta: Fraction | None = None
    ) -> Price:
        """What the first debit takes, or what would fit."""
        del analyst  # who could have no allowance yet
        return Account(self.total).price(cost, delta)

    def answer(self, key: str) -> bytes | None:
        """Nothing is stored."""
        del key
        return None


@dataclass(frozen=True, slots=True)
class InLedger:
    """What a plan takes of a ledger, and what the other kind of noise would.

    ``other`` is the price of the same budget spent on the other kind of noise, None if it allows
    none. ``refused`` is the mechanism with less error whose place the plan has taken, because it
    does not fit what is left.
    """

    price: Price
    is_stored: bool
    other: Price | None
    refused: Candidate | None = None

    @property
    def fits(self) -> bool:
        """Whether a release would be granted, or costs nothing any more."""
        return self.is_stored or self.price.fits

    def describe(self) -> str:
        """Return it in sentences."""
        if self.is_stored:
            return "the answer is stored: nothing is spent"
        sentences = [self.price.describe()]
        if self.refused is not None and self.other is not None:
            sentences.append(f"{self.refused.mechanism}, with less error, {self.other.describe()}")
        elif self.other is not None and self.other.fits:
            kind = "Gaussian" if self.other.kind == "gaussian" else "Laplace"
            sentences.append(f"the same budget on {kind} noise {self.other.describe()}")
        return "; ".join(sentences)

    def as_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            "fits": self.fits,
            "is_stored": self.is_stored,
            "takes": None if self.price.share is None else float(self.price.share),
            "leaves": None if self.price.left is None else float(self.price.left),
            "would_fit": None if self.price.most is None else float(self.price.most),
            "other_takes": (
                None if self.other is None or self.other.share is None else float(self.other.share)
            ),
            "instead_of": None if self.refused is None else self.refused.mechanism,
            "words": self.describe(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Plan(ReleasePlan["Release"]):
    """How a workload will be answered, and how well: everything is known before it is spent.

    Args:
        forecast: The strategy with its noise, its cost and its errors.
        wanted: The mechanism that was asked for, if one was.
        most_records: The public number of records for which a bias was allowed.
        in_ledger: What it takes of the ledger it was planned for.
        share_records: The public number of records whose shares were asked for.
        likely_records: A public number of records, or a guess, for which a release divides the
            budget between tables; None where it counts them with noise first.
        divides: Whether a release may divide the budget anew (`planning/division.py`): not where an
            error was asked for, which is that of the plan as it is.
    """

    forecast: Forecast
    wanted: str | None = None
    most_records: int | None = None
    in_ledger: InLedger | None = None
    share_records: int | None = None
    likely_records: int | None = None
    divides: bool = True

    def __repr__(self) -> str:
        ledger = [] if self.in_ledger is None else [f"  ledger: {self.in_ledger.describe()}"]
        shares = [] if self.share_records is None else [f"  {self.shares}"]
        groups = [f"  {g.name}: {_error(g)}" for g in self.groups[: LIMITS.groups_shown]]
        return "\n".join([self.headline, *self._division(), *shares, *ledger, *groups])

    def _repr_html_(self) -> str:
        """The same for notebooks: groups and candidates side by side."""
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(g.name)}</td><td>{g.queries:,}</td><td>{g.rmse:,.2f}</td></tr>"
            for g in self.groups[: LIMITS.groups_shown]
        )
        more = (
            ""
            if len(self.groups) <= LIMITS.groups_shown
            else f"<p>... {len(self.groups) - LIMITS.groups_shown} more groups</p>"
        )
        head = "<tr><th>group</th><th>queries</th><th>typical error</th></tr>"
        shares = "" if self.share_records is None else f"<p>{escape(str(self.shares))}</p>"
        division = "".join(f"<p>{escape(line.strip())}</p>" for line in self._division())
        first = f"<p>{escape(self.headline)}</p>{division}{shares}"
        return f"{first}<table>{head}{rows}</table>{more}"

    def _division(self) -> list[str]:
        return [f"  {self.division}"] if self.division else []

    @property
    def division(self) -> str:
        """Whether a release may divide the budget anew between tables, and for how many records.

        Errors and bounds of a plan are of the budget as it is planned. Unbiased answers of large
        tables err up to three times as much where it is divided, published ones less
        (``docs/mechanisms/projection.md``). Empty where it stays as it is.
        """
        if not self._may_divide:
            return ""
        aside = "project=False keeps these errors"
        if self.likely_records is not None:
            made = self._as_released(self.likely_records)
            if made.forecast.undivided is None:
                return ""
            depends = (
                " and how far attributes depend on each other, which it measures (here of made-up "
                "records)"
                if made.forecast.first_numbers
                else ""
            )
            return (
                f"divided for {self.likely_records:,} records{depends} in a release: typical error "
                f"{made.rmse:,.2f} counts before projection, with less on tables of few "
                f"attributes; {aside}"
            )
        below = divided_below(self.forecast, is_counted=not self.total_is_public)
        if not below:
            return ""
        return (
            f"with fewer than about {below:,} records a release gives tables of few attributes "
            "more of the budget, and others less: up to three times their error before projection; "
            f"{aside}"
        )

    @property
    def headline(self) -> str:
        """One line: what is asked, how, how well, and how close to the best possible."""
        certificate = self.certificate
        best = (
            ""
            if certificate is None
            else f", at most {certificate:.4f} times the least possible with "
            f"{self.forecast.certified_among}"
        )
        best += "; planning was stopped early by its time limit" if self.stopped_early else ""
        return (
            f"Plan of {self.workload.queries:,} queries by {self.mechanism} at "
            f"{self.budget.describe()}: typical error {self.rmse:,.2f} counts{best}"
        )

    @property
    def workload(self) -> Workload:
        """What is asked."""
        return self.forecast.workload

    @property
    def budget(self) -> Budget:
        """What a release may spend."""
        return self.forecast.budget

    @property
    def neighbours(self) -> Neighbours:
        """What two tables differ in that answers must not tell apart."""
        return self.forecast.neighbours

    @property
    def objective(self) -> Objective:
        """What the planner makes small."""
        return self.forecast.objective

    @property
    def unit(self) -> PrivacyUnit | None:
        """Whose rows belong together; None where one row is one person."""
        return self.forecast.unit

    @property
    def strategy(self) -> Strategy:
        """What is measured, and how answers follow from it."""
        return self.forecast.strategy

    @property
    def noise(self) -> tuple[BlockNoise, ...]:
        """The noise of every measured block."""
        return self.forecast.noise

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every mechanism that was considered, side by side."""
        return tuple(self.forecast.candidates)

    @property
    def mechanism(self) -> str:
        """The name of the chosen mechanism."""
        return self.forecast.mechanism

    @property
    def cost(self) -> Cost:
        """What a release debits: never more than the budget."""
        return self.forecast.cost

    @property
    def groups(self) -> tuple[GroupForecast, ...]:
        """The forecast of every group of queries."""
        return self.forecast.groups

    @property
    def block_variances(self) -> tuple[float, ...]:
        """The noise variance of every measured block."""
        return self.forecast.block_variances

    @property
    def rmse(self) -> float:
        """The root mean square error over all queries, in counts; of the worst data, if biased."""
        return self.forecast.rmse

    @property
    def weighted_rmse(self) -> float:
        """The root mean square error by the weights of the groups."""
        return self.forecast.weighted_rmse

    @property
    def largest_error(self) -> float:
        """The largest root mean square error of any query, in counts."""
        return self.forecast.largest_error

    @property
    def gamma(self) -> float:
        """The root mean square error at unit noise: see `Forecast.gamma`."""
        return self.forecast.gamma

    @property
    def bound(self) -> float | None:
        """A lower bound for add-remove neighbours, at unit noise, if one is known."""
        return self.forecast.bound

    @property
    def replace_one_bound(self) -> float | None:
        """A lower bound for replace-one neighbours, at unit noise, if one is known."""
        return self.forecast.replace_one_bound

    @property
    def known_bound(self) -> float | None:
        """The lower bound for the neighbours of the plan."""
        return self.forecast.known_bound

    @property
    def certificate(self) -> float | None:
        """Error over a lower bound on the error of every factorization, if one is known."""
        return self.forecast.certificate

    @property
    def certified_noise(self) -> tuple[Noise, ...]:
        """The kinds of noise of the factorizations that the certificate speaks of."""
        return self.forecast.certified_noise

    @property
    def lower_bound(self) -> float | None:
        """The certified bound at unit noise."""
        return self.forecast.lower_bound

    @property
    def stopped_early(self) -> bool:
        """Whether a time limit ended the planning."""
        return self.forecast.stopped_early

    @property
    def may_drop_records(self) -> bool:
        """Whether the source is a query, a view or an expression."""
        return self.forecast.may_drop_records

    @property
    def total_is_public(self) -> bool:
        """Whether a release will know the number of records."""
        return self.forecast.total_is_public

    def standard_errors(self, term: int) -> Array:
        """The standard error of every answer of a group.

        Args:
            term: The number of the group, from 0.

        Returns:
            One number per answer, in counts.

        Raises:
            TooLarge: They are too many to be listed.
        """
        return self.forecast.standard_errors(term)

    def variances(self, term: int) -> Array:
        """The squares of `standard_errors`.

        Args:
            term: The number of the group, from 0.

        Returns:
            One number per answer.

        Raises:
            TooLarge: They are too many to be listed.
        """
        return self.forecast.variances(term)

    def spread(self, term: int) -> Spread:
        """The law of the error of every answer of a group.

        Args:
            term: The number of the group, from 0.

        Returns:
            Variances, biases and fourth moments of the answers.

        Raises:
            TooLarge: They are too many to be listed.
        """
        return self.forecast.spread(term)

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariance matrix of the listed answers of a group, by their numbers.

        Args:
            group: The name of a group.
            queries: Numbers of answers, from 0.

        Returns:
            One row and one column per listed answer.

        Raises:
            WorkloadError: There is no such group or answer.
        """
        return self.forecast.covariance(group, queries)

    def factors(self) -> Factors:
        """The factorization ``F = R M`` of a small plan as matrices, for those who study it.

        Returns:
            ``queries`` F, ``measured`` M, ``reconstruction`` R, and the standard deviation
            ``noise`` of every measured value.

        Raises:
            TooLarge: A matrix has more than 2^24 numbers.

        >>> import sfumato as sf
        >>> domain = sf.Domain({"a": 4})
        >>> factors = sf.plan(sf.prefixes(domain, "a"), sf.Budget(mu=1)).factors()
        >>> bool(abs(factors.reconstruction @ factors.measured - factors.queries).max() < 1e-9)
        True
        """
        return self.forecast.factors()

    def combination_error(self, coefficients: Mapping[str, Coefficients]) -> float:
        """The standard error of any linear combination of answers, of one or more groups.

        Args:
            coefficients: By the name of a group, a number per answer, or a mapping from numbers of
                answers to coefficients.

        Returns:
            The standard error, in counts.

        Raises:
            WorkloadError: There is no such group or answer.
        """
        return self.forecast.combination_error(coefficients)

    def half_widths(self, term: int, level: float) -> Array:
        """Half the width of the confidence interval of every answer of a group.

        Args:
            term: The number of the group, from 0.
            level: The probability with which an interval holds the truth.

        Returns:
            One number per answer, in counts.
        """
        return self.forecast.half_widths(term, level)

    def error_bound(self, beta: float) -> float:
        """A bound on the error of every query at once, holding with probability ``1 - beta``.

        Args:
            beta: The probability with which it may fail.

        Returns:
            The bound, in counts: that of `all_within`.

        Raises:
            PlanError: beta is no probability between 0 and 1.
        """
        return self.forecast.error_bound(beta)

    def all_within(self, beta: float) -> AllWithin:
        """How far off the farthest of all answers is, with probability ``1 - beta``, and why.

        The error of a linear mechanism is noise of a public law, whatever the data: so this is
        known before anything is spent. It holds for the answers as they are measured; a projection
        brings them nearer in the sum of squares, which says nothing of the farthest one.

        Args:
            beta: The probability with which it may fail.

        Returns:
            The bound in ``counts``, and its ``proof``: tails, or public draws of the noise.

        Raises:
            PlanError: beta is no probability between 0 and 1.

        >>> import sfumato as sf
        >>> work = sf.marginals(sf.Domain({"age": 20, "sex": 2, "job": 8}), 2)
        >>> bound = sf.plan(work, sf.Budget(mu=1), mechanism="gaussian").all_within(0.05)
        >>> round(bound.counts, 1), bound.proof
        (6.4, 'the tails of all answers')
        """
        return self.forecast.all_within(beta)

    @property
    def shares(self) -> ShareForecast:
        """The errors in shares, of a plan with ``shares=True``; `rmse` and the others are counts.

        Raises:
            PlanError: The plan was not made for shares.

        >>> import sfumato as sf
        >>> work = sf.prefixes(sf.Domain({"age": 8}, records="all-inside"), "age")
        >>> plan = sf.plan(work, sf.Budget(mu=1), "replace-one", records=200, shares=True)
        >>> round(plan.rmse, 2), round(plan.shares.rmse, 4), plan.shares.move
        (1.48, 0.0074, Fraction(1, 100))
        """
        if self.share_records is None:
            raise PlanError(
                "this plan is in counts; plan with records = the public number of records and "
                "shares=True, or ask plan.as_shares(records)"
            )
        return self.forecast.as_shares(self.share_records)

    def as_shares(self, records: int) -> ShareForecast:
        """The forecast for answers as shares of a public number of records, as in the notes.

        Args:
            records: How many records the table has; public, so that neighbours have as many.

        Returns:
            The errors in shares, and how far a replaced record moves the histogram: 2/n.

        Raises:
            PlanError: The number of records is private: with ``add-remove`` neighbours, with a
                privacy unit, or where records can be dropped.

        >>> import sfumato as sf
        >>> work = sf.prefixes(sf.Domain({"age": 8}, records="all-inside"), "age")
        >>> shares = sf.plan(work, sf.Budget(mu=1), "replace-one").as_shares(200)
        >>> shares.move, round(shares.rmse, 4)
        (Fraction(1, 100), 0.0074)
        """
        return self.forecast.as_shares(records)

    def for_writing(self, workload: Workload) -> Plan:
        """This plan in the groups of another writing of the same queries.

        Args:
            workload: The same queries, in other groups.

        Returns:
            The same plan, whose release has those groups.
        """
        cells = cells_of(self.forecast)
        return replace(self, forecast=as_asked(self.forecast.in_normal_form, workload, cells))

    def projected(self, records: int) -> AfterProjection:
        """The error after projection for so many records: a bound, and one tried on made-up data.

        The number is public or a guess; nothing is spent. Takes some seconds, and where cells
        cannot be listed as long as projecting a release does. Where a release divides its budget
        for what it measures first, all is said of the division for the made-up data: for others the
        bound may be another.

        Args:
            records: How many records there are.

        Returns:
            The bound, and the error on made-up data.
        """
        from sfumato.study.projection_forecast import after_projection, check_records

        return after_projection(self._as_released(check_records(records)).forecast, records)

    def resources(self, records: int | None = None, engine: EngineName = "duckdb") -> Resources:
        """Scans, cells, memory and rough times of every step of a release; opens no table.

        Args:
            records: A public number of records, or a guess; None for times and memory per million.
            engine: What counts the records.

        Returns:
            One line per step; ``.frame()`` is a dataframe, ``.check()`` refuses what cannot fit.
        """
        from sfumato.planning.resources import resources

        return resources(self.forecast, records, engine)

    def for_source(self, source: object) -> Plan:
        """This plan, or one at the same budget for a source that may drop records.

        Under ``replace-one`` neighbours the number of records is public only if a replaced record
        cannot leave the source. A query, a view and an expression may drop it: then the noise must
        cover that, too, and the number of records stays private. `release` does this by itself.

        Privacy: looks at the kind of the source, which is public; reads no row, costs nothing.

        Args:
            source: the table that will be released, as for `release`.

        Returns:
            The plan itself where nothing is different, else a new one.
        """
        from sfumato.vault.tables import open_table

        if not (self.total_is_public and open_table(source).may_drop_records):
            return self
        planned = plan(
            self.workload,
            self.budget,
            self.neighbours,
            self.objective,
            None if self.wanted is None or self.wanted.endswith(" noise") else self.wanted,
            unit=self.unit,
            allow_bias=self.most_records is not None,
            records=self.most_records,
            may_drop_records=True,
            noise=self.strategy.noise,
        )
        # The request is the same, and so is its key; shares would be of a private number.
        return replace(
            planned, wanted=self.wanted, likely_records=self.likely_records, divides=self.divides
        )

    def divided(self, records: int, *, is_counted: bool = False) -> Plan:
        """This plan with its budget divided between tables as a release does for so many records.

        Where noise hides what tables of many attributes add to those of fewer, more of the budget
        goes to the latter: published answers are nearer to the truth, unbiased ones farther.

        Args:
            records: A public number of records, or a guess.
            is_counted: Whether it is a noisy count that was paid for from the same budget.

        Returns:
            The plan, whose forecast is that of the new division, where a release measures no length
            beside the number of records; this one where nothing is gained, or the plan is for one
            mechanism, for one error or for anything but marginals.
        """
        if not self._may_divide:
            return self
        return replace(self, forecast=divided(self.forecast, records, is_counted=is_counted))

    def _as_released(self, records: int) -> Plan:
        """This plan, divided as by a release of so many records, which are made up.

        The number that is counted, and the length that is measured, are those without their noise.
        """
        from sfumato.study.projection_forecast import made_up_length

        if not (self._may_divide and self.forecast.is_divisible):
            return self
        is_counted = self.likely_records is None and not self.total_is_public
        likely = records if self.likely_records is None else self.likely_records
        likely = records_of(self.forecast, float(likely)) if is_counted else likely
        wanted = length_of(self.forecast, likely, is_counted=is_counted)
        length = None if wanted is None else made_up_length(self.forecast, records, wanted)
        made = divided(self.forecast, likely, is_counted=is_counted, length=length)
        return replace(self, forecast=made)

    @property
    def _may_divide(self) -> bool:
        is_free = self.wanted is None or self.wanted.endswith(" noise")
        return self.divides and is_free

    def release(
        self,
        table: object,
        ledger: Ledger | LedgerToCreate | str | Path | None = None,
        project: Projection = True,
        *,
        constraints: Constraints | None = None,
        intervals: Intervals = "noise",
        name: str | None = None,
        key: str | None = None,
        former: Sequence[str] = (),
        analyst: str | None = None,
        public: object = None,
        progress: Progress | None = None,
    ) -> Release:
        """The answers: table -> exact counts -> debit -> measure -> reconstruct -> project.

        With a ledger, the cost is debited before any noise is drawn; the same plan on the same
        table returns the stored answer at no further cost, unless another ``key`` is given. The
        ledger must be there (`Ledger.create`). Without a ledger nothing remembers what was spent:
        that is the caller's promise. Where ``table`` is a query, a view or an expression and
        neighbours are ``replace-one``, the release is that of `for_source`, with a warning if that
        is another plan.

        Privacy: within ``budget`` of the plan. Neighbours: those of the plan.

        Args:
            table: A path (CSV, Parquet, a glob), ``file.duckdb::table``, ``postgres://...``,
                ``spark:...``, a `SqlSource`, a `CsvSource` or a dataframe.
            ledger: The ledger of the table, opened or its path.
            project: True makes answers agree and feasible, and draws them towards guesses or a
                prior where noise asks for it; ``"nearest"`` never draws them, ``"bounds"`` cuts
                each by itself, False does neither.
            constraints: Public knowledge that answers keep; what contradicts itself or a public
                number of records is refused before anything is spent.
            intervals: ``"noise"``; ``"calibrated"`` for ends that are as near as the answers are
                sharp (calibrated, not proved); or ``"bootstrap"`` (docs/releases.md).
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; the digest of the request if None.
            former: Keys under which an earlier version may have stored the same request.
            analyst: Who asks: the debit counts against their allowance, too.
            public: Records that anybody may see (a table, or an earlier release on the same
                domain): one more guess. That they are public is the caller's promise; the guarded
                table itself is refused.
            progress: Called with what is done and how much of it.

        Returns:
            The answers, their intervals, and the provenance that states the guarantee.

        Raises:
            TableError: The table cannot be opened or lacks a declared column.
            BudgetExhausted: The cost does not fit what is left; nothing was counted.
            LedgerFrozen: The curator froze the ledger and the answer is not stored.
            LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
            TooLarge: A step cannot fit in memory.
        """
        access = Access(table, ledger, name, key, analyst, progress)
        return run(LinearRun(self, project, constraints, intervals, public, tuple(former)), access)

    def request(self) -> dict[str, object]:
        """The public description of what is asked: equal meaning, equal bytes.

        How the workload was written does not enter, nor what the planner makes of it: the strategy
        is described beside the stored measurement.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        return request_of(
            self.workload,
            self.budget,
            self.neighbours,
            self.objective,
            self.wanted,
            self.unit,
            self.most_records,
        )

    def runnable(self) -> LinearRun:
        """This plan as the spine runs it, with the view that `release` has unless told.

        Returns:
            The plan in the parts that are called in turn.
        """
        return LinearRun(self)

    def measurement(self) -> dict[str, object]:
        """What is measured, and with which noise: a stored answer is read by this alone.

        Returns:
            The strategy and its noise, as JSON.
        """
        return {
            "mechanism": self.mechanism,
            "strategy": self.strategy.digest(),
            "noise": [n.as_json() for n in self.noise],
        }

    def stored_key(
        self, ledger: Ledger, former: Sequence[str] = (), *, key: str | None = None
    ) -> str | None:
        """The key under which a ledger has the answer of this request, if it has; spends nothing.

        Args:
            ledger: the ledger of the table.
            former: further keys under which the request may have been stored.
            key: the one key to look for, as given to `release`.

        Raises:
            LedgerError: the answer is there, but cannot be read by any plan of this version, or the
                key is that of another request.

        Returns:
            The key, or None.
        """
        reading = stored_answer(LinearRun(self, former=tuple(former)), ledger, key)
        return None if reading is None else reading[0].key

    def _was_asked(self, entry: Entry) -> bool:
        """Whether an entry of before there was a normal form is of this request."""
        request = json.loads(entry.request)
        is_wanted = self.wanted in (None, request.get("mechanism"))
        is_own = "strategy" in request and entry.key == json_digest(request)
        return is_own and is_wanted and self._is_of(request)

    def _is_of(self, request: Mapping[str, object]) -> bool:
        """Whether a stored request is this one: by its meaning, or as it was written before."""
        if "strategy" not in request:
            return bool(request == json.loads(canonical_json(self.request())))
        mine = self.request()
        return request.get("workload") == self.workload.digest() and all(
            request.get(name) == mine[name] for name in ("neighbours", "unit", "budget")
        )

    def _reader(self, made: Mapping[str, object] | None) -> Plan | None:
        """The plan whose strategy made a stored measurement: this one, or one planned again."""
        if made is None:
            return self
        own = self._as_measured(made)
        if own is not None:
            return own
        mechanism = str(made.get("mechanism"))
        for cells in _ways(self.workload, every=True):
            for may_drop_records in (self.may_drop_records, not self.may_drop_records):
                for is_written in (False, True) if cells is None else (False,):
                    with suppress(PlanError):
                        again = self._again(mechanism, is_written, may_drop_records, cells)
                        measured = again._as_measured(made)
                        if measured is not None:
                            return measured
        return None

    def _as_measured(self, made: Mapping[str, object]) -> Plan | None:
        """This plan, or with the noise of fine grids that it had before, if it measures the same.

        Laplace noise was not always drawn on the grid of the measured values. The budget may have
        been divided for a number of records, which then stands beside the measurement.
        """
        division = made.get("division")
        if isinstance(division, dict) and self.forecast.undivided is None:
            return self._divided_as(division)._as_measured({**made, "division": None})
        if _is_by(self, made):
            return self
        if self.strategy.noise != "laplace" or made.get("strategy") != self.strategy.digest():
            return None
        fine = replace(self, forecast=self.forecast.on_fine_grids)
        return fine if _is_by(fine, made) else None

    def _divided_as(self, division: Mapping[str, object]) -> Plan:
        """This plan, divided as it says beside a measurement."""
        records, is_counted = int(str(division["records"])), bool(division["is_counted"])
        length = length_told(division)
        made = divided(self.forecast, records, is_counted=is_counted, length=length)
        return replace(self, forecast=made)

    def _again(
        self,
        mechanism: str,
        is_written: bool,
        may_drop_records: bool,
        cells: Representation | None,
    ) -> Plan:
        """The plan by another mechanism, for the normal form or for the groups as written.

        Or for another kind of source, since queries were not always known to drop records; or over
        other cells of the same columns.
        """
        work = self.workload if is_written else self.workload.normal.workload
        work = work if cells is None else cells.of(work)
        strategies = Strategies(work, self.objective, records=self.most_records, cells=cells)
        chosen = choose(
            work,
            self.budget,
            self.neighbours,
            self.objective,
            mechanism,
            self.unit,
            strategies=strategies,
            may_drop_records=may_drop_records,
        )
        forecast = chosen if is_written else as_asked(chosen, self.workload, cells)
        return Plan(forecast, self.wanted, self.most_records)


@dataclass(frozen=True, eq=False)
class LinearRun(WorkloadRun["Exact", "Release"]):
    """A plan with the view of its measurement that is published.

    ``public`` are records that anybody may see; ``former`` are keys under which an earlier version
    may have stored the same request; ``described`` is what reads the measurement without the plan.
    """

    plan: Plan
    project: Projection = True
    constraints: Constraints | None = None
    intervals: Intervals = "noise"
    public: object = None
    former: tuple[str, ...] = ()
    guess: PublicRecords | None = None
    described: bytes | None = None

    def request(self) -> dict[str, object]:
        """The plan's: every view is one of the same measurement."""
        return self.plan.request()

    def keys(self, ledger: Ledger) -> Iterator[str]:
        """The plan's own key first, then those of equal requests.

        The best mechanism may have been asked for by its name, rho-zCDP may be written as mu-GDP,
        and before there was a normal form the key was that of one writing: for that all debits are
        looked through, if nothing else was found.
        """
        plan, request = self.plan, self.plan.request()
        for name in dict.fromkeys([request["mechanism"], plan.mechanism, "best"]):
            for budget in budget_writings(plan.budget):
                yield json_digest({**request, "mechanism": name, "budget": budget})
        yield from self.former
        digest = plan.workload.digest()
        for entry in ledger.entries():
            if digest in entry.request and plan._was_asked(entry):
                yield entry.key

    def reader(self, stored: Stored) -> LinearRun | None:
        """This with the plan that reads a stored measurement.

        Under another key than its own a plan takes only what it would have measured itself.
        """
        request = json.loads(stored.entry.request)
        is_old = "strategy" in request
        if stored.is_own and not self.plan._is_of(request):
            return None
        made = request if is_old else Measured.about(stored.answer)
        if not stored.is_own and not is_old:
            measured = None if made is None else self.plan._as_measured(made)
            return None if measured is None else replace(self, plan=measured)
        plan = self.plan._reader(made)
        if plan is None:
            raise LedgerError(
                "the answer of this request is stored, but it was measured by a strategy that "
                "this version, or this machine, does not plan any more; nothing was spent. "
                "Open it where it was made, or give a key= of its own to pay for another"
            )
        return replace(self, plan=plan)

    def checked(self, table: object) -> LinearRun:
        """Refuse answers that cannot be listed, held or kept, and read the public records."""
        from sfumato.run.public_records import check_public, public_records

        workload, public, guess = self.plan.workload, self.public, None
        self.plan.strategy.in_normal_form.check_release()
        check_listed(workload)
        self.plan.resources().check()
        constraints = _checked(self.constraints, workload, self.project)
        self._check_intervals(self.plan, constraints)
        if public is not None:
            check_public(public, table)
            guess = public_records(public, workload)
        return replace(self, constraints=constraints, guess=guess)

    def for_table(self, table: Table | None) -> LinearRun:
        """`Plan.for_source`, with a warning if that is another plan."""
        plan = self.plan.for_source(table)
        if plan is self.plan:
            return self
        warnings.warn(
            "the source is a query, a view or an expression, which may drop records, so that "
            "their number is private under replace-one neighbours; planned anew at the same "
            f"budget, with a typical error of {plan.rmse:,.2f} in place of {self.plan.rmse:,.2f} "
            "counts. Plan with may_drop_records=True, or plan.for_source(table), to know it "
            "beforehand",
            stacklevel=4,
        )
        plan.resources().check()
        self._check_intervals(plan, self.constraints)
        return replace(self, plan=plan)

    def for_ledger(self) -> LinearRun:
        """With what reads the measurement, so that sessions of the same ledger answer from it."""
        from sfumato.release.object_file import forecast_bytes

        return replace(self, described=forecast_bytes(self.plan.forecast))

    def _check_intervals(self, plan: Plan, constraints: Constraints | None) -> None:
        """Refuse intervals other than those of the noise that there are not for this plan."""
        if self.intervals != "noise":
            check_intervals(self.intervals, plan.forecast, self.project, constraints)

    def count(self, table: Table | None, progress: Progress | None) -> Exact:
        """The exact values of all blocks; refuses constraints that the public total contradicts."""
        from sfumato.vault.mechanisms.measure import count

        assert table is not None  # noqa: S101
        plan = self.plan
        blocks, whose = plan.strategy.blocks, (plan.neighbours, plan.unit)
        exact = count(table, plan.forecast.measured_domain, blocks, *whose, progress)
        if self.constraints is not None:
            agreed_total(exact.rows, self.constraints)
        return exact

    def draw(self, exact: Exact, progress: Progress | None) -> bytes:
        """The noisy values, with what says how they were measured.

        Where answers will agree and be drawn towards guesses, the number of records is measured
        first, if it is not public, then how far attributes depend on each other where that decides,
        and the budget is divided for both.
        """
        from sfumato.vault.mechanisms.measure import measure_in_turn

        plan, about = self.plan, self.plan.measurement()

        is_dividing = self.project is True and plan._may_divide and plan.forecast.is_divisible
        public = exact.rows if plan.likely_records is None else plan.likely_records

        def records_after(first: Measurement) -> int:
            return records_of(plan.forecast, float(first.values[0])) if public is None else public

        def length(first: Measurement) -> Length | None:
            return length_of(plan.forecast, records_after(first), is_counted=public is None)

        def divide(first: Measurement, long: Measurement | None) -> Sequence[BlockNoise]:
            nonlocal about
            if not is_dividing:
                return plan.noise
            division: dict[str, object] = {
                "records": records_after(first),
                "is_counted": public is None,
            }
            if long is not None:
                division["length"] = [int(long.units[0]), long.noise.grid_bits]
            made = plan._divided_as(division)
            if made.forecast.undivided is None:
                assert long is None  # noqa: S101 - `length_of` saw that what is left suffices
                return plan.noise
            about = {**made.measurement(), "division": division}
            return made.noise

        blocks = plan.strategy.blocks
        measured = measure_in_turn(
            exact, blocks, plan.noise, divide, length if is_dividing else None, progress=progress
        )
        return measured.to_bytes(about, self.described)

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Release:
        """Reconstruct and project the answers."""
        from sfumato.release.release import Release

        plan, made = self.plan, Measured.about(answer)
        if made is not None and plan.forecast.undivided is None:
            plan = plan._as_measured(made) or plan
        measured = Measured.from_bytes(answer, plan.noise)
        if self.constraints is not None:
            agreed_total(measured.rows, self.constraints)
        return Release.of(
            plan.forecast,
            measured,
            project=self.project,
            constraints=self.constraints,
            intervals=self.intervals,
            public=self.guess,
            entry=entry,
            is_stored=is_stored,
            progress=progress,
        )


_RELEASE: Final = {"request": "release 2"}
RELEASE_REQUEST: Final = canonical_json(_RELEASE)[1:-1]
"""What the requests of releases of linear plans have in them."""


def request_of(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours,
    objective: Objective = "rmse",
    mechanism: str | None = None,
    unit: PrivacyUnit | None = None,
    most_records: int | None = None,
) -> dict[str, object]:
    """What a release pays for, known before it is planned; its hash is the key in the ledger.

    Projection, constraints, intervals and level are views of the same measurement.
    """
    return {
        **_RELEASE,
        "workload": workload.normal.key,
        "mechanism": mechanism or "best",
        "objective": objective,
        "neighbours": neighbours,
        "unit": unit and unit.as_json(),
        "budget": budget.as_json(),
        "most_records": most_records,
    }


def _is_by(plan: Plan, made: Mapping[str, object]) -> bool:
    """Whether a plan measures what was measured, with the same noise."""
    own = plan.measurement()
    return all(made.get(name) == own[name] for name in ("strategy", "noise"))


def _checked(
    constraints: Constraints | None, workload: Workload, project: Projection
) -> Constraints | None:
    """Constraints that some data set meets and that answers can keep; else refused."""
    view = check_projection(project)
    if constraints is None:
        return None
    constraints = checked_constraints(constraints, workload)
    if view is False:
        raise WorkloadError(
            "answers that are left as they came out of the noise keep no constraints; leave "
            "project out, or the constraints"
        )
    witness(constraints)
    return constraints


def _error(group: GroupForecast) -> str:
    return f"{group.queries:,} queries, typical error {group.rmse:,.2f}"


def plan(
    workload: Workload,
    budget: Budget | None = None,
    neighbours: Neighbours = "add-remove",
    objective: Objective = "rmse",
    mechanism: str | None = None,
    *,
    error: float | None = None,
    delta: float | Fraction = LIMITS.default_delta,
    unit: PrivacyUnit | None = None,
    allow_bias: bool = False,
    records: int | None = None,
    may_drop_records: bool = False,
    seconds: float | None = None,
    steps: float | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    noise: Noise | None = None,
    ledger: PlanLedger | str | PathLike[str] | None = None,
    analyst: str | None = None,
    reuse: Callable[[Strategies], Strategies] | None = None,
    shares: bool = False,
) -> Plan:
    """The best mechanism for a workload and a budget; touches no data and costs nothing.

    Give either ``budget`` or ``error``. Planning is limited in steps, not in time: equal inputs
    give equal plans on any machine under any load.

    With a ``ledger`` the plan is one that fits what is left there, where one does: if the mechanism
    with the least error would be refused, the best with the other kind of noise takes its place.
    ``plan.in_ledger`` says what it takes, what the other would take, or what would fit. An answer
    that is stored fits, however little is left.

    Args:
        workload: What is asked.
        budget: What the release may spend.
        neighbours: Which two tables must be hard to tell apart: ``"add-remove"`` or
            ``"replace-one"``.
        objective: What is made small: ``"rmse"``, the root mean square error over the queries by
            weight, or ``"max"``, the largest.
        mechanism: The name of one mechanism; None for the best.
        error: A root mean square error, in counts (with ``shares`` in shares): the plan then
            carries the smallest budget that reaches it at this ``delta``.
        delta: The delta of that budget; 1e-9 unless given.
        unit: Whose presence is protected; one row if None.
        allow_bias: Whether answers may trade noise for a bias, which the forecast and the intervals
            count at its worst; needs ``records``.
        records: With ``allow_bias`` a public number: at most so many records are in the table; with
            ``shares`` exactly so many. Else a public number or a guess, for which a release divides
            the budget between tables; without it a release counts them with noise first.
        may_drop_records: Whether the table will be a query, a view or an expression, which may drop
            a record that is replaced: then the number of records is private under ``replace-one``,
            too.
        seconds: CPU time after which planning ends with the best so far, never worse than plain
            Laplace or Gaussian noise; ``plan.stopped_early`` says if it did. None for no limit.
        steps: The limit of every mechanism, in multiplications (one core makes some 2.5e10 of them
            in a second); None for the default of 100 seconds.
        cache: Whether long searches are kept in the user's cache folder and found again; the plan
            is the same without.
        progress: Called with what is done and how much of it.
        noise: One kind of noise, ``"gaussian"`` or ``"laplace"``; None for either.
        ledger: A ledger, opened or its path.
        analyst: Whose allowance counts beside what is left.
        reuse: May give strategies back that were built for the same workload before, for plans at
            many budgets.
        shares: Whether the plan is for answers as shares of ``records``, the notes' normalisation:
            ``plan.shares`` has its errors; the release is the same.

    Returns:
        The plan; ``print(plan)`` says how well every group will be answered, and at what cost.

    Raises:
        PlanError: No mechanism fits, or an argument is wrong.
        TooLarge: What is asked cannot fit in memory.
        BudgetError: The budget has no place for the noise.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> plan = sf.plan(sf.prefixes(domain, "age", by=["sex"]), sf.Budget(epsilon=1))
    >>> plan.mechanism
    'laplace-optimum'
    """
    neighbours, unit = _check_plan(
        workload, budget, neighbours, mechanism, error, unit, may_drop_records, noise
    )
    until = deadline(None if seconds is None else _positive(seconds, "seconds"))
    # Where the number of records is private anyway, nothing is different.
    may_drop_records &= total_is_public(neighbours, workload.domain, unit, False)
    folder = cache_folder() if cache else None
    effort = SOLVE_LIMITS.search_multiplications if steps is None else _positive(steps, "steps")
    most_records = _allowed(allow_bias, records)
    if shares and records is None:
        raise PlanError("shares are parts of a public number of records: say records = that number")

    def built(cells: Representation | None) -> Strategies:
        # Planned for what is asked, not for how it was written.
        work = workload.normal.workload if cells is None else cells.of(workload.normal.workload)
        new = Strategies(work, objective, until, folder, most_records, effort, cells)
        return _built_before(new, workload) if reuse is None else reuse(new)

    ways = [built(cells) for cells in _ways(workload)]

    def of_cells(way: Strategies, kind: Noise | None) -> tuple[float, Forecast]:
        """What is made small, and the forecast: the error, or the budget that reaches one."""
        spent = budget
        if spent is None:
            rest = (neighbours, mechanism, delta, unit, workload, kind)
            counts = error * records if error and shares and records else error
            spent = smallest_budget(way, counts, *rest, may_drop_records=may_drop_records)
        how = (neighbours, objective, mechanism, unit, progress, kind)
        best = choose(
            way.workload,
            spent,
            *how,
            strategies=way,
            may_drop_records=may_drop_records,
            written=workload,
        )
        small = objective_error(best) if budget is not None else float(spent.epsilon or 0)
        return small, as_asked(best, workload, way.cells)

    def of_noise(kind: Noise | None) -> Plan:
        wanted = mechanism or (None if noise is None else f"{noise} noise")
        made = Plan(
            _least([partial(of_cells, way, kind) for way in ways]),
            wanted,
            most_records,
            likely_records=None if shares or allow_bias else _likely(records),
            divides=error is None and not shares,
        )
        if shares and records is not None:
            made.as_shares(records)  # refused here, not when errors are read
            made = replace(made, share_records=records)
        return made

    best = of_noise(noise)
    if ledger is None:
        return best
    if isinstance(ledger, str | PathLike):
        from sfumato.ledger.ledger import Ledger

        ledger = Ledger.open(ledger if isinstance(ledger, str) else Path(ledger))
    return fitting(best, ledger, None if noise or mechanism else of_noise, analyst)


def _ways(workload: Workload, *, every: bool = False) -> list[Representation | None]:
    """Over which cells the sums of a workload may be planned; None for those that are asked.

    ``every``: also those for another writing of the same queries, with or without their means.
    """
    normal = workload.normal

    def of(centred: tuple[int, ...]) -> list[Representation]:
        compute = partial(representations, normal.workload, centred)
        return normal.remembered(("cells", centred), compute)

    own = plain_means(workload)
    if not every:
        return [*of(own)] if own else [None, *of(())]
    return [None, *(way for c in dict.fromkeys([(), own, plain_sums(workload)]) for way in of(c))]


def _least(ways: Sequence[Callable[[], tuple[float, Forecast]]]) -> Forecast:
    """The forecast of the way that makes the objective least.

    The first, of the cells that were asked, unless another gains more than the rounding of noise
    scales. Where no way fits, the first says why.
    """
    least, best, reason = inf, None, None
    for way in ways:
        try:
            value, forecast = way()
        except PlanError as why:
            reason = reason or why
            continue
        if best is None or value < least * LIMITS.cells_gain:
            least, best = value, forecast
    if best is None:
        assert reason is not None  # noqa: S101
        raise reason
    return best


def _built_before(built: Strategies, workload: Workload) -> Strategies:
    """Those that were built for the same workload before: only the noise depends on the budget.

    They last as long as the workload. Not where a clock may cut them short, nor with a bias, which
    depends on the budget.
    """
    if built.until < inf or built.records is not None:
        return built
    key = ("strategies", built.objective, built.folder, built.steps, built.cells)
    return workload.normal.remembered(key, lambda: built)


def _check_plan(
    workload: object,
    budget: object,
    neighbours: Neighbours,
    mechanism: object,
    error: object,
    unit: PrivacyUnit | None,
    may_drop_records: object,
    noise: object,
) -> tuple[Neighbours, PrivacyUnit | None]:
    """Return the neighbours and the unit; refuse arguments of `plan` that are no such thing."""
    if not isinstance(workload, Workload):
        raise PlanError(
            f"plan needs a workload such as sf.marginals(domain, 2), got {type(workload).__name__}"
        )
    checked = check_neighbours(neighbours), check_privacy_unit(unit, workload.domain.attributes)
    if mechanism is not None and not isinstance(mechanism, str):
        raise PlanError(f"mechanism is the name of one, such as 'laplace', got {shown(mechanism)}")
    if (budget is None) == (error is None):
        raise PlanError("give either a budget or an error to reach, not both and not neither")
    if not isinstance(may_drop_records, bool):
        raise PlanError(f"may_drop_records must be True or False, got {may_drop_records!r}")
    if noise not in (None, "gaussian", "laplace"):
        raise PlanError(f'noise must be "gaussian" or "laplace", got {noise!r}; or leave it out')
    if budget is not None and not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    if budget is not None and budget.pure is not None:
        raise PlanError(
            f"the lanes of {budget.describe()} belong to the total of a ledger; a plan has one "
            "kind of noise: leave pure out"
        )
    if budget is not None and budget.event_delta is not None:
        raise PlanError(
            f"the reserve of {budget.describe()} belongs to the total of a ledger; leave "
            "event_delta out of the budget of a plan"
        )
    return checked


def fitting(
    best: Plan,
    ledger: PlanLedger,
    other_noise: Callable[[Noise], Plan] | None = None,
    analyst: str | None = None,
    key: str | None = None,
) -> Plan:
    """Return the plan, or the best with the other kind of noise if only that fits what is left.

    Args:
        best: The plan with the least error.
        ledger: What is left, and what was answered before.
        other_noise: Plans the same with a given kind of noise; None if the mechanism is fixed.
        analyst: Whose allowance a release must fit as well.
        key: Under which an answer would be stored, if not the plan's own digest.

    Returns:
        A plan whose ``in_ledger`` says what it takes and what the other would.
    """
    ours = _in_ledger(best, ledger, analyst, key)
    if ours.fits or other_noise is None:
        return replace(best, in_ledger=ours)
    try:
        other = other_noise("laplace" if best.strategy.noise == "gaussian" else "gaussian")
    except PlanError:
        return replace(best, in_ledger=ours)
    other = replace(other, wanted=best.wanted)  # the request is the same, and so is its key
    theirs = _in_ledger(other, ledger, analyst, key)
    if not theirs.fits:
        return replace(best, in_ledger=ours)
    refused = Candidate(best.mechanism, best.rmse, best.largest_error, ours.price.describe())
    listed = [replace(c, is_chosen=c.mechanism == other.mechanism) for c in best.candidates]
    tried = {c.mechanism: c for c in other.candidates}
    candidates = tuple(
        replace(c, note=ours.price.describe())
        if c.mechanism == best.mechanism
        else tried.get(c.mechanism, c)
        for c in listed
    )
    in_ledger = replace(theirs, other=ours.price, refused=refused)
    return replace(
        other, forecast=replace(other.forecast, candidates=candidates), in_ledger=in_ledger
    )


def _in_ledger(plan: Plan, ledger: PlanLedger, analyst: str | None, key: str | None) -> InLedger:
    budget = plan.budget
    delta = budget.delta or None
    price = ledger.price(plan.cost, analyst, delta=delta)
    if price.kind == "pure" and budget.gaussian_mu:
        cost = Cost.gaussian(Fraction(budget.gaussian_mu) ** 2)
        other: Price | None = ledger.price(cost, analyst, delta=delta)
    elif price.kind == "gaussian":
        other = ledger.price(Cost.pure(budget.pure_epsilon), analyst, delta=delta)
    else:
        other = None
    return InLedger(price, _is_stored(plan, ledger, key), other)


def _is_stored(plan: Plan, ledger: PlanLedger, key: str | None) -> bool:
    """Whether a release would find its answer; by the meaning of the request unless keyed."""
    from sfumato.ledger.ledger import Ledger

    if key is not None:
        return ledger.answer(key) is not None
    try:
        return isinstance(ledger, Ledger) and plan.stored_key(ledger) is not None
    except LedgerError:  # it is there and cannot be read, as a release will say
        return True


def _allowed(allow_bias: bool, records: int | None) -> int | None:
    """The number of records for which a bias may be weighed against noise, if any."""
    if not allow_bias:
        return None
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise PlanError(
            "a bias is weighed against noise for a public number of records; say records = a "
            f"whole number above 0, got {records!r}"
        )
    return records


def _likely(records: int | None) -> int | None:
    """A number of records to divide the budget for; refused if it is none."""
    if records is None:
        return None
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise PlanError(f"records must be a whole number above 0, or None, got {records!r}")
    return records


def _positive(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise PlanError(f"{name} must be a number above 0, got {value!r}")
    return float(value)
