# SPDX-License-Identifier: Apache-2.0
"""What a session will spend, how it decides, and what it promises: known before it begins.

The budget pays for ``updates`` epochs. An epoch is one sparse vector, which ends with the first
question whose estimate is found wrong, and one noisy answer to that question; both are paid for
before its threshold is drawn. Where the number of records is private, a little pays for that first.

    a free answer    the estimate was found within the threshold of the truth
    a paid answer    it was not: the truth with fresh noise, from which the estimate learns

Two ways to choose the rest. ``learning="fit"``: as many updates as balance what one of them must
teach, ``2 (T/n)^2`` of relative entropy (Hoeffding's lemma and the entropy ``ln m`` of an even
start), and a threshold T that an exact estimate crosses by noise in one epoch of five. The noise of
tests is one-sided where that is best: the pair of laws and the split of the budget are those with
the least bound on free answers.
``learning="hedge"``: the parameters of the theorem in ``study/experts.py`` (Hardt,
Rothblum 2010; Dwork, Roth 2014, Algorithm 6), for which the number of updates is proved to do.
Neither choice touches privacy, which is the ledger's; proof page: ``docs/proofs/online.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.digest import json_digest
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import PlanError
from sfumato.planning.adaptive_costs import Spending
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import (
    alarm_probability,
    alarmed,
    missed,
    noise_of,
    sparse_of_epsilon,
    sparse_of_mu_squared,
)
from sfumato.privacy.budget import Budget, Guarantee, check_neighbours, total_is_public
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, SparseLaw, noise_cost
from sfumato.session.histogram import Learning
from sfumato.session.session_limits import LIMITS
from sfumato.study.experts import Weights, weights_error, weights_rows_needed
from sfumato.types import Neighbours, Noise
from sfumato.workload.build import check_domain
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from typing import Self

__all__ = ["UNIT", "ScopePlan", "ScopePlanner", "SessionParameters", "budget_of"]


UNIT: Final = 2**8
"""Steps of a score, of a threshold and of noise that are one person."""


class ScopePlan(Protocol):
    """The part of a plan that the parameters of a session need of its scope."""

    @property
    def workload(self) -> Workload:
        """What is measured."""
        ...

    @property
    def rmse(self) -> float:
        """The typical error."""
        ...

    @property
    def cost(self) -> Cost:
        """What is debited."""
        ...

    def request(self) -> dict[str, object]:
        """The public description of what is paid for."""
        ...


ScopePlanner = Callable[[Budget, Noise, bool], ScopePlan]
"""Plans a scope for a budget, a law of noise, and a source that may drop records or not."""


@dataclass(frozen=True, eq=False, repr=False)
class SessionParameters:
    """The public parameters of a session; scales, thresholds and bounds in steps of a person.

    ``sparse`` is the law of one epoch, ``noise`` that of its answer, ``records_noise`` that of the
    number of records (None where it is public). ``records`` is the public guess of that number and
    ``fixed_updates`` the number of updates, where somebody gave them. ``scope`` is the plan of what
    is measured at opening, with ``scope_share`` of the budget; None and 0 where there is none.
    ``scope_planner`` plans it again for a source that may drop records.
    """

    domain: Domain
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    questions: int
    updates: int
    sparse: SparseLaw
    noise: NoiseLaw
    records_noise: NoiseLaw | None
    threshold: int
    level: float
    beta: float
    learning: Learning
    records: int | None = None
    fixed_updates: int | None = None
    scope: ScopePlan | None = None
    scope_share: Fraction = Fraction(0)
    scope_planner: ScopePlanner | None = None

    @property
    def guarantee(self) -> Guarantee:
        """What all answers together promise."""
        return Guarantee(self.budget, self.neighbours, self.unit or "row")

    @classmethod
    def of(
        cls,
        domain: Domain,
        budget: Budget,
        neighbours: Neighbours = "add-remove",
        *,
        unit: PrivacyUnit | None = None,
        questions: int = LIMITS.questions_expected,
        updates: int | None = None,
        records: int | None = None,
        level: float = LIMITS.level,
        beta: float = LIMITS.beta,
        learning: Learning = "fit",
        may_drop_records: bool = False,
        scope: ScopePlanner | None = None,
        scope_share: float | Fraction = LIMITS.scope_share,
    ) -> Self:
        """The parameters of a session, from its budget; touches no data and costs nothing.

        Args:
            domain: As in ``sf.plan_session``.
            budget: As there.
            neighbours: As there.
            unit: As there.
            questions: As there.
            updates: As there.
            records: As there.
            level: As there.
            beta: As there.
            learning: As there.
            may_drop_records: As there.
            scope: What plans the scope, from what it may spend.
            scope_share: As there.

        Returns:
            The parameters.

        Raises:
            PlanError: An argument is wrong, or the budget is too small.
        """
        if not isinstance(budget, Budget):
            raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
        check_domain(domain, "a session")
        unit = check_privacy_unit(unit, domain.attributes)
        neighbours = check_neighbours(neighbours)
        _check_numbers(questions, updates, records, level, beta)
        if learning not in ("fit", "hedge"):
            raise PlanError(f'learning must be "fit" or "hedge", got {learning!r}')
        spending = Spending.of(budget)
        is_public = total_is_public(neighbours, domain, unit, may_drop_records)
        share = _share(scope, scope_share)
        planned = None
        if scope is not None:
            amount = share * LIMITS.spendable_share * spending.total
            planned = scope(budget_of(amount, spending.law), spending.law, may_drop_records)
        total = (1 - share) * LIMITS.spendable_share * spending.total
        first = Fraction(0) if is_public else LIMITS.records_share * total
        kind: NoiseKind = "gaussian" if spending.law == "gaussian" else "laplace"
        left, n = total - first, float(records or LIMITS.records_guessed)

        def tests(count: int) -> tuple[SparseLaw, int]:
            amount = (1 - LIMITS.answer_share) * left / count
            law = _sparse(amount, kind, _seldom(questions, count), level)
            return law, _threshold(law, questions, count, beta, learning)

        chosen = updates or _updates(log(domain.size), n, questions, learning, tests)
        sparse, threshold = tests(chosen)
        return cls(
            domain=domain,
            budget=budget,
            neighbours=neighbours,
            unit=unit,
            questions=questions,
            updates=chosen,
            sparse=sparse,
            noise=noise_of(LIMITS.answer_share * left / chosen, kind, UNIT),
            records_noise=None if is_public else noise_of(first, kind, UNIT),
            threshold=threshold,
            level=level,
            beta=beta,
            learning=learning,
            records=records,
            fixed_updates=updates,
            scope=planned,
            scope_share=share,
            scope_planner=scope,
        )

    def for_source(self, *, may_drop_records: bool) -> Self:
        """This, or one that pays for the number of records, where the source may drop some.

        Args:
            may_drop_records: Whether the source may drop a record that is replaced.

        Returns:
            This plan, or one that also measures the number of records.
        """
        if not may_drop_records or (self.records_noise is not None and self.scope is None):
            return self
        return self.of(
            self.domain,
            self.budget,
            self.neighbours,
            unit=self.unit,
            questions=self.questions,
            updates=self.fixed_updates,
            records=self.records,
            level=self.level,
            beta=self.beta,
            learning=self.learning,
            may_drop_records=True,
            scope=self.scope_planner,
            scope_share=self.scope_share or LIMITS.scope_share,
        )

    def __repr__(self) -> str:
        scope = ""
        if self.scope is not None:
            scope = (
                f"; {len(self.scope.workload):,} queries measured at opening for "
                f"{float(self.scope_share):.0%} of it, with a typical error of "
                f"{self.scope.rmse:,.1f}: what follows from them is free"
            )
        return (
            f"SessionPlan at {self.budget.describe()}: {self.updates} paid answers with a typical "
            f"error of {self.noise_error:,.1f} persons, free ones within {self.free_bound:,.1f} "
            f"({self.level:.0%}); {self.questions:,} questions expected{scope}"
        )

    @cached_property
    def epoch_cost(self) -> Cost:
        """What one epoch costs: its tests, however many, and its answer."""
        return self.sparse.cost + _cost(self.noise)

    @cached_property
    def measurement_budget(self) -> Budget:
        """What one question of many answers may spend: as much as an epoch, all of it on noise.

        The parts of a session's budget are equal, so that a measurement in place of an epoch keeps
        it (docs/proofs/online.md, Theorem 5).
        """
        return budget_of(self.part, Spending.of(self.budget).law)

    @cached_property
    def part(self) -> Fraction:
        """One of the ``updates`` equal parts of what the scope leaves: a mu^2, or an epsilon."""
        left = 1 - self.scope_share
        total = left * LIMITS.spendable_share * Spending.of(self.budget).total
        first = Fraction(0) if self.records_noise is None else LIMITS.records_share * total
        return (total - first) / self.updates

    @cached_property
    def records_cost(self) -> Cost | None:
        """What the number of records costs, where it is private."""
        return None if self.records_noise is None else _cost(self.records_noise)

    @property
    def epochs_per_count(self) -> int:
        """How many epochs cost at least as much as the number of records does."""
        return ceil(LIMITS.records_share * self.updates / (1 - LIMITS.records_share))

    @cached_property
    def noise_error(self) -> float:
        """The standard deviation of a paid answer, in persons."""
        scale = float(self.noise.scale) / UNIT
        return scale * sqrt(2) if self.noise.kind == "laplace" else scale

    @cached_property
    def free_bound(self) -> float:
        """How far a free answer is from the truth at most, in persons, with chance ``level``.

        For the question at any one place of an epoch: docs/proofs/online.md, Theorem 3.
        """
        return self.free_bound_at(self.level)

    def free_bound_at(self, level: float) -> float:
        """`free_bound` at another level.

        Args:
            level: The probability with which the bound holds.

        Returns:
            A number of persons.
        """
        return (self.threshold + missed(self.sparse, 1, 1 - level)) / UNIT

    @cached_property
    def paid_bound(self) -> float:
        """How far a paid answer is from the truth at most, in persons, with chance ``level``."""
        return _noise_bound(self.noise, 1 - self.level)

    @cached_property
    def error(self) -> float:
        """With chance ``1 - beta`` no answer to all the questions is farther off, in persons."""
        tests = self.threshold + missed(
            self.sparse, self.questions, self.beta / 2, epochs=self.updates
        )
        return max(tests / UNIT, _noise_bound(self.noise, self.beta / 2 / self.updates))

    def rate(self, records: float) -> float:
        """The step of Hedge that lowers the relative entropy most at the edge of the threshold.

        A question found above is off by ``g n`` or more; ``eta g - eta^2/8`` is largest at 4 g.

        Args:
            records: How many records there are.

        Returns:
            The rate.
        """
        return 4 * self._gap(records)

    def updates_bound(self, records: float) -> int:
        """The most updates of Hedge with this rate from an even start, with chance ``1 - beta``.

        Each lowers the relative entropy of the data, at most ``ln m``, by ``2 g^2``.

        Args:
            records: How many records there are.

        Returns:
            A number of updates.
        """
        return ceil(log(self.domain.size) / (2 * self._gap(records) ** 2))

    def _gap(self, records: float) -> float:
        """The least error, as a share of all records, of a question that is rightly found wrong."""
        near = alarmed(self.sparse, self.questions, self.beta, epochs=self.updates)
        minimum = max(self.threshold - near, self.threshold / 2) / (UNIT * max(records, 1.0))
        return min(minimum, 1.0)  # no answer is off by more than all records

    def promised(self, records: int) -> Weights:
        """What the theorem of the notes promises for this budget and so many records.

        Args:
            records: How many records there are.

        Returns:
            The error and its parameters.
        """
        return weights_error(self.questions, self.domain.size, records, self.budget, beta=self.beta)

    def records_needed(self, alpha: float) -> int:
        """How many records the theorem needs for errors of at most ``alpha`` of them.

        Args:
            alpha: An error, as a share of the records.

        Returns:
            A number of records.
        """
        return weights_rows_needed(
            self.questions, self.domain.size, alpha, self.budget, beta=self.beta
        )

    def as_json(self) -> dict[str, object]:
        """The plan as the ledger keeps it.

        Returns:
            JSON.
        """
        unit = self.unit
        return {
            "domain": self.domain.digest(),
            "budget": self.budget.as_json(),
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
            "questions": self.questions,
            "updates": self.updates,
            "sparse": self.sparse.as_json(),
            "noise": [self.noise.kind, str(self.noise.scale)],
            "threshold": self.threshold,
            "level": self.level,
            "beta": self.beta,
            "learning": self.learning,
            **({} if self.scope is None else {"scope": self.scope.request()}),
        }

    def digest(self) -> str:
        """SHA-256 of the plan: equal plans, equal digests.

        Returns:
            64 hexadecimal digits.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return json_digest(self.as_json())


def _share(scope: object, share: object) -> Fraction:
    """The part of the budget that a scope takes; none without one."""
    if scope is None:
        return Fraction(0)
    if isinstance(share, bool) or not isinstance(share, int | float | Fraction):
        raise PlanError(f"scope_share must be a number between 0 and 1, got {share!r}")
    if not LIMITS.scope_share_minimum <= share <= 1 - LIMITS.scope_share_minimum:
        raise PlanError(
            f"scope_share must lie between {float(LIMITS.scope_share_minimum):g} and "
            f"{float(1 - LIMITS.scope_share_minimum):g}, got {share!r}: the rest pays for what is "
            "outside the scope"
        )
    return Fraction(share).limit_denominator(10**6)


def budget_of(amount: Fraction, law: Noise) -> Budget:
    """The budget of an amount of a law's currency: mu^2 of Gaussian noise, or a pure epsilon."""
    return Budget(rho=amount / 2) if law == "gaussian" else Budget(epsilon=amount)


def _check_numbers(
    questions: int, updates: int | None, records: int | None, level: float, beta: float
) -> None:
    _whole(questions, "questions", LIMITS.questions_maximum)
    if records is not None:
        _whole(records, "records", 2**44)
    if updates is not None:
        _whole(updates, "updates", LIMITS.updates_maximum)
    if not 0.5 < level < 1 or not 0 < beta < 1:
        raise PlanError(
            f"level must lie between 0.5 and 1 and beta between 0 and 1, got {level!r}, {beta!r}"
        )


def _sparse(amount: Fraction, kind: NoiseKind, seldom: float, level: float) -> SparseLaw:
    """One epoch's tests: of ``|truth - estimate|``, which is not monotone.

    The law that bounds free answers best, when noise alone is found wrong so seldom.
    """
    one_sided: NoiseKind = "exponential"
    if kind == "gaussian":
        make = partial(sparse_of_mu_squared, amount, sensitivity=UNIT, query=one_sided)
    else:
        make = partial(sparse_of_epsilon, amount, sensitivity=UNIT, query=one_sided)
    laws = [make(threshold=one_sided, share=share) for share in LIMITS.threshold_shares]
    if kind == "gaussian":
        laws += [make(threshold=kind, share=share) for share in LIMITS.threshold_shares]
    return min(
        laws,
        key=lambda law: (
            _crossed(law, seldom, LIMITS.rough_pieces)
            + missed(law, 1, 1 - level, pieces=LIMITS.rough_pieces)
        ),
    )


def _threshold(
    law: SparseLaw, questions: int, updates: int, beta: float, learning: Learning
) -> int:
    """So far above 0 that noise alone is seldom found wrong; for Hedge, thrice its reach."""
    if learning == "hedge":
        return 3 * alarmed(law, questions, beta, epochs=updates)
    return _crossed(law, _seldom(questions, updates))


def _seldom(questions: int, updates: int) -> float:
    """How often an exact estimate is found wrong, as a share of all questions."""
    return min(LIMITS.false_alarm_share * updates / questions, 0.25)


def _crossed(law: SparseLaw, seldom: float, pieces: int = PLANNING_LIMITS.threshold_pieces) -> int:
    """The threshold that noise alone crosses so seldom, about."""
    low, high = 0, max(1, ceil(4 * (law.threshold.scale + law.query.scale)))
    while alarm_probability(law, high, pieces) > seldom:
        low, high = high, 2 * high
    while high - low > max(1, high // 256):
        middle = (low + high) // 2
        is_often = alarm_probability(law, middle, pieces) > seldom
        low, high = (middle, high) if is_often else (low, middle)
    return high


def _updates(
    entropy: float,
    records: float,
    questions: int,
    learning: Learning,
    tests: Callable[[int], tuple[SparseLaw, int]],
) -> int:
    """The least number that is enough: thresholds rise with it, so that each teaches more.

    Hedge: ``c >= ln m n^2 / (2 (T - T/3)^2)``. Fit: a third of what balances at half the entropy,
    for data are not a worst case and answers are used again (measured: ``python -m bench online``).
    """
    maximum = (
        min(questions, LIMITS.updates_maximum) if learning == "hedge" else LIMITS.updates_balanced
    )

    def is_enough(count: int) -> bool:
        law, threshold = tests(count)
        if learning == "fit":
            threshold += missed(law, 1, 0.5)  # where half of what is wrong is found
        error = threshold / (UNIT * records)
        if learning == "hedge":
            return count * 2 * (2 * error / 3) ** 2 >= entropy
        return count * 2 * error**2 >= entropy / 2

    low, high = 0, maximum
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    if learning == "hedge":
        return high
    return min(questions, max(LIMITS.updates_minimum, high // 3))


def _cost(law: NoiseLaw) -> Cost:
    # Steps differ from question to question, so the cost says epsilon only.
    whole = noise_cost(law, UNIT)
    return whole if law.kind == "gaussian" else Cost.pure(whole.pure_epsilon)


def _noise_bound(law: NoiseLaw, chance: float) -> float:
    """The least bound in persons that the noise exceeds, on either side, with this chance only."""
    quantile = gaussian_quantile if law.kind == "gaussian" else laplace_quantile
    return quantile(law.scale, 1 - chance) / UNIT


def _whole(value: object, name: str, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise PlanError(f"{name} must be a whole number from 1 to {maximum:,}, got {value!r}")
