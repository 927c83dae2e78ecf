# SPDX-License-Identifier: Apache-2.0
"""How much of a budget is spent, in integer units: the arithmetic of the ledger.

The budget is `UNITS` units; a debit takes a whole number of them, rounded up. The rule must hold
for debits chosen one by one, each after the answers to the earlier ones were seen (a *privacy
filter*), which is more than composing a list that is fixed in advance:

    rho-zCDP          units of rho     (Feldman, Zrnic 2021, "Individual privacy accounting via a
                                        Renyi filter")
    mu-GDP            units of mu^2    (Smith, Thakurta 2022, "Fully adaptive composition for
                                        Gaussian differential privacy")
    epsilon, pure     units of epsilon (Rogers, Roth, Ullman, Vadhan 2016, "Privacy odometers and
                                        filters")
    (epsilon, delta)  units of epsilon while all debits are pure; from the first Gaussian debit
                      on, the units that are left are units of mu^2 of the Gaussian that the
                      epsilon still left allows. A first debit may also take everything, if its
                      parts together fit the budget.
    lanes             the units are split before the first answer: those of the pure lane are units
                      of epsilon, those of the Gaussian lane units of mu^2 of what the rest of the
                      epsilon allows at delta. Pure noise is paid from its lane, and as the
                      Gaussian that dominates it when that is empty; Gaussian noise from its own.
    deltas of events  add up beside the units, to at most the delta of the total. The first
                      Gaussian debit fixes them: Gaussian noise has the delta that they left, and
                      no further event is admitted, unless the total has a reserve of delta for
                      them (``event_delta``), which Gaussian noise never has.

Proof page: ``docs/proofs/accounting.md``, section "Filters".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian as gaussian_module
from sfumato.privacy.budget import Budget, number_text
from sfumato.privacy.cost import Cost, composed_epsilon_exact, mu_squared_of, rho_of

__all__ = ["UNITS", "Account", "Kind", "Lane", "Price", "Remaining", "fits", "percent", "shares_of"]


UNITS: Final = math.lcm(*range(1, 31), 10**6, 2**12)
"""3.7e17 units: evenly split into up to 30 parts, a power of ten up to a million or a power of two
up to 4096, a budget is spent to the last unit; and twice of it fits a 64-bit integer."""

_OVERDRAWN: Final = 2 * UNITS  # what any impossible debit leads to; it fits a 64-bit integer
_EVEN: Final = math.lcm(*range(1, 31))  # a lane is a multiple of it: even splits fill it

Kind: TypeAlias = Literal["pure", "gaussian"]
"""The two kinds of noise that a ledger knows, and the two lanes."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of a total: the part of all units that it has, and what is left of that part."""

    kind: Kind
    share: Fraction
    left: Fraction


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a budget still allows: one more release with this Gaussian mu or this pure epsilon.

    ``delta`` is that at which Gaussian noise is counted; ``lanes`` are empty for a budget without
    lanes; ``event_delta`` is what mechanisms with a delta of their own may still take of it, None
    as long as none did and there is no reserve.
    """

    share: Fraction
    gaussian_mu: float | None
    pure_epsilon: Fraction
    delta: Fraction | None = None
    lanes: tuple[Lane, ...] = ()
    event_delta: Fraction | None = None

    def epsilon(self, kind: Kind, delta: Fraction | None = None) -> Fraction:
        """Return the largest epsilon, to six digits, of one more release with noise of a kind.

        Gaussian noise is counted at ``delta``, that of the budget unless given.
        """
        if kind == "pure":
            return _six_digits(self.pure_epsilon, math.floor)
        at = delta or self.delta
        if not self.gaussian_mu or not at:
            return Fraction(0)
        exactly = _epsilon_of(self.gaussian_mu, at)
        nearest = _six_digits(exactly, round)
        if gaussian_module.gaussian_mu_down(nearest, at) <= self.gaussian_mu:
            return nearest
        return _six_digits(exactly * (1 - Fraction(1, 10**7)), math.floor)

    def describe(self) -> str:
        """Return what remains in words, in epsilon where the budget has a delta."""
        words = [f"{percent(self.share)} remains"]
        words += [
            f"{_LANE_NAMES[lane.kind]} lane {percent(lane.left)} of its {percent(lane.share)}"
            for lane in self.lanes
            if lane.share
        ]
        if self.gaussian_mu is not None and self.delta:
            words.append(f"Gaussian noise up to epsilon = {number_text(self.epsilon('gaussian'))}")
        elif self.gaussian_mu is not None:
            words.append(f"Gaussian noise up to mu = {self.gaussian_mu:.6g}")
        words.append(f"pure noise up to epsilon = {number_text(self.epsilon('pure'))}")
        if self.event_delta is not None:
            words.append(f"events up to delta = {number_text(self.event_delta)}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Price:
    """What one more debit takes of a budget, or that it will be refused and what would fit.

    ``share`` is the part of the total that it takes and ``left`` what remains after it, both of
    all units; None if it is refused. ``most`` is the largest epsilon of the same kind of noise
    that fits, None where the budget is counted in rho or mu. ``reason`` is why the delta of a cost
    does not fit, empty if it does.
    """

    kind: Kind
    share: Fraction | None
    left: Fraction | None
    most: Fraction | None
    other: Fraction | None
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether the debit would be admitted."""
        return self.share is not None

    def describe(self) -> str:
        """Return it in words: what it takes, or that it will be refused and what would fit."""
        if self.share is not None and self.left is not None:
            return f"takes {percent(self.share)} of the budget, {percent(self.left)} remains"
        if self.reason:
            return f"will be refused: {self.reason}"
        kinds: tuple[Kind, Kind] = ("pure", "gaussian")
        another = kinds[self.kind == "pure"]
        fitting = [
            f"{_KIND_NAMES[kind]} noise of epsilon = {number_text(value)}"
            for kind, value in ((self.kind, self.most), (another, self.other))
            if value
        ]
        if not fitting:
            return "will be refused: nothing of this kind fits any more"
        return f"will be refused: {' or '.join(fitting)} would fit"


_LANE_NAMES: Final[dict[Kind, str]] = {"pure": "pure", "gaussian": "Gaussian"}
_KIND_NAMES: Final[dict[Kind, str]] = {"pure": "pure (Laplace)", "gaussian": "Gaussian"}


@dataclass(frozen=True, slots=True)
class Account:
    """A budget with the units spent of it.

    ``pure_spent`` is set by the first Gaussian debit of an (epsilon, delta) budget: the units of
    epsilon that pure debits had taken by then. With lanes it is what the pure lane has spent, and
    the rest of ``spent`` is that of the Gaussian lane. ``delta_spent`` is the sum of the deltas of
    events.

    >>> Account(Budget(rho=1)).plus(Cost.gaussian(Fraction(1, 2))).remaining().share
    Fraction(3, 4)
    """

    budget: Budget
    spent: int = 0
    pure_spent: int | None = None
    delta_spent: Fraction = Fraction(0)

    @property
    def left(self) -> int:
        """Units not yet spent; negative if the account is overdrawn."""
        return UNITS - self.spent

    @property
    def is_overdrawn(self) -> bool:
        """Whether more than the budget is spent: such an account is never kept."""
        return self.spent > UNITS

    def plus(self, cost: Cost) -> Account:
        """Return the account after one more debit; it may be overdrawn.

        Privacy: a sequence of debits, each chosen after the earlier answers, that never
        overdraws the account keeps its budget (``docs/proofs/accounting.md``, Theorem 4; with
        lanes Theorem 5; with deltas of events Theorems 8 and 9).
        """
        if not cost.pure_parts and not cost.mu_squared:
            raise BudgetError("a release without a cost would be a release without noise; state it")
        if cost.delta:
            if not self.budget.delta:
                raise BudgetError(self._no_delta())
            if cost.delta > self._event_delta():
                return replace(self, spent=_OVERDRAWN)
            after = replace(self, delta_spent=self.delta_spent + cost.delta)
            return after.plus(cost.without_events)
        if self.budget.is_pure and cost.mu_squared:
            raise BudgetError(
                "Gaussian noise has no pure epsilon and the budget is pure "
                f"({self.budget.describe()}); choose Laplace noise, or a budget with delta"
            )
        if self.budget.pure is not None:
            after = self._plus_lanes(cost)
        elif self.budget.epsilon is None or self.budget.is_pure:
            after = replace(self, spent=self.spent + self._linear_units(cost))
        else:
            after = self._plus_approximate(cost)
        return replace(after, spent=min(after.spent, _OVERDRAWN))

    def _no_delta(self) -> str:
        """Why no mechanism with a delta of its own fits a total without delta."""
        return (
            f"this release has a delta of its own, and the total ({self.budget.describe()}) has "
            "none to give; declare a total of epsilon and delta"
        )

    @property
    def _has_gaussian(self) -> bool:
        """Whether Gaussian noise was spent, so that its delta is fixed."""
        if self.budget.pure is not None:
            return self.spent > (self.pure_spent or 0)
        return self.pure_spent is not None

    def _event_delta(self) -> Fraction:
        """What events may still take of delta."""
        if self.budget.event_delta is not None:
            return self.budget.event_delta - self.delta_spent
        if self._has_gaussian:
            return Fraction(0)
        return (self.budget.delta or Fraction(0)) - self.delta_spent

    def _gaussian_delta(self) -> Fraction:
        """The delta that Gaussian noise is counted at: what events, or their reserve, leave.

        Events of an earlier total may have taken more than the reserve of this one.
        """
        events = max(self.delta_spent, self.budget.event_delta or Fraction(0))
        return (self.budget.delta or Fraction(0)) - events

    def _lane_mu(self) -> Fraction:
        """The mu of the Gaussian lane."""
        lane, delta = self.budget.gaussian_lane, self._gaussian_delta()
        if lane is None or lane.epsilon is None or delta <= 0:
            return Fraction(0)
        return Fraction(gaussian_module.gaussian_mu_down(lane.epsilon, delta))

    def emptied(self) -> Account:
        """Return the account with nothing left, of either lane if there are lanes."""
        pure = self.pure_spent if self.budget.pure is None else self._lane_units()[0]
        return replace(self, spent=UNITS, pure_spent=pure)

    def plus_all(self, costs: Iterable[Cost]) -> Account:
        """Return the account after debits in this order."""
        account = self
        for cost in costs:
            account = account.plus(cost)
        return account

    def _linear_units(self, cost: Cost) -> int:
        budget = self.budget
        if budget.rho is not None:
            return math.ceil(UNITS * rho_of(cost) / budget.rho)
        if budget.mu is not None:
            return math.ceil(UNITS * mu_squared_of(cost) / budget.mu**2)
        assert budget.epsilon is not None  # noqa: S101
        return math.ceil(UNITS * cost.pure_epsilon / budget.epsilon)

    def _plus_approximate(self, cost: Cost) -> Account:
        """`plus` for (epsilon, delta): units of mu^2 are taken from the first Gaussian debit on."""
        assert self.budget.epsilon is not None  # noqa: S101
        if self.pure_spent is not None:
            return self._plus_gaussian(mu_squared_of(cost))
        pure_first = replace(
            self, spent=self.spent + math.ceil(UNITS * cost.pure_epsilon / self.budget.epsilon)
        )
        candidates = [pure_first]
        if cost.mu_squared:
            candidates = [pure_first._begin_gaussian()._plus_gaussian(cost.mu_squared)]
            if cost.pure_parts:
                candidates.append(self._begin_gaussian()._plus_gaussian(mu_squared_of(cost)))
        best = min(candidates, key=lambda account: account.spent)
        # No answer was seen before the first debit, so its parts are a list fixed in advance.
        if self.spent == 0 and best.is_overdrawn and fits([cost, *self._events()], self.budget):
            return replace(self, spent=UNITS, pure_spent=0)
        return best

    def _events(self) -> list[Cost]:
        """The deltas of events so far, as a cost."""
        return [Cost.approximate(self.delta_spent)] if self.delta_spent else []

    def _lane_units(self) -> tuple[int, int]:
        """The units of the pure and of the Gaussian lane, about in proportion to their epsilons."""
        assert self.budget.epsilon is not None  # noqa: S101
        assert self.budget.pure is not None  # noqa: S101
        pure = _pure_units(self.budget.pure, self.budget.epsilon)
        return pure, UNITS - pure

    def _lanes(self) -> tuple[Lane, Lane]:
        pure, gaussian = self._lane_units()
        of_pure = self.pure_spent or 0
        return (
            Lane("pure", Fraction(pure, UNITS), Fraction(pure - of_pure, pure or 1)),
            Lane(
                "gaussian",
                Fraction(gaussian, UNITS),
                Fraction(gaussian - (self.spent - of_pure), gaussian),
            ),
        )

    def _plus_lanes(self, cost: Cost) -> Account:
        """`plus` for a budget with lanes: a debit is put into its lane before its answer is seen.

        A debit with Gaussian parts goes into the Gaussian lane whole, its pure parts as the
        Gaussians that dominate them, or else its pure parts into theirs; one without goes into the
        pure lane, or else into the other.

        Privacy: ``docs/proofs/accounting.md``, Theorem 5; which of the ways is taken depends on
        the cost and on earlier debits only.
        """
        assert self.budget.pure is not None  # noqa: S101
        pure_units, gaussian_units = self._lane_units()
        allowed = self._lane_mu() ** 2
        whole = (Fraction(0), mu_squared_of(cost))
        apart = (cost.pure_epsilon, cost.mu_squared)
        for epsilon, mu_squared in (whole, apart) if cost.mu_squared else (apart, whole):
            if (epsilon and not self.budget.pure) or (mu_squared and not allowed):
                continue
            of_pure = math.ceil(pure_units * epsilon / self.budget.pure) if epsilon else 0
            of_gaussian = math.ceil(gaussian_units * mu_squared / allowed) if mu_squared else 0
            pure_after = (self.pure_spent or 0) + of_pure
            spent_after = self.spent + of_pure + of_gaussian
            if pure_after <= pure_units and spent_after - pure_after <= gaussian_units:
                return replace(self, spent=spent_after, pure_spent=pure_after)
        return replace(self, spent=_OVERDRAWN)

    def may_become(self, other: Account) -> bool:
        """Whether the total of ``other`` may take the place of this one after these debits.

        From the first Gaussian debit of an (epsilon, delta) total on, what may still be spent of
        either kind is fixed; another total must then allow more of both, or less of both. Else
        somebody who has seen the answers would choose between two filters
        (``docs/proofs/accounting.md``, after Theorem 5).
        """
        ours, theirs = self._fixed(), other._fixed()
        if ours is None or theirs is None:
            return True
        pairs = list(zip(ours, theirs, strict=True))
        return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)

    def _fixed(self) -> tuple[Fraction, ...] | None:
        """The pure epsilon, Gaussian mu^2 and delta of events to spend in all; None while open."""
        budget = self.budget
        if budget.epsilon is None or not budget.delta or self.pure_spent is None:
            return None
        events = self.delta_spent + max(Fraction(0), self._event_delta())
        if budget.pure is None:
            return budget.epsilon * self.pure_spent / UNITS, self._gaussian_total(), events
        if self.spent == self.pure_spent:
            return None
        return budget.pure, self._lane_mu() ** 2, events

    def _begin_gaussian(self) -> Account:
        return replace(self, pure_spent=self.spent)

    def _plus_gaussian(self, mu_squared: Fraction) -> Account:
        assert self.pure_spent is not None  # noqa: S101
        allowed, units = self._gaussian_total(), UNITS - self.pure_spent
        if allowed == 0:
            return replace(self, spent=_OVERDRAWN)
        return replace(self, spent=self.spent + math.ceil(units * mu_squared / allowed))

    def _gaussian_total(self) -> Fraction:
        """The mu^2 that was left when the first Gaussian debit came; the units left are of it."""
        budget, pure = self.budget, Fraction(self.pure_spent or 0, UNITS)
        delta = self._gaussian_delta()
        if pure >= 1 or budget.epsilon is None or delta <= 0:
            return Fraction(0)
        return Fraction(gaussian_module.gaussian_mu_down(budget.epsilon * (1 - pure), delta)) ** 2

    def remaining(self) -> Remaining:
        """Return what one more debit may take."""
        if self.delta_spent or self.budget.event_delta is not None:
            left = max(Fraction(0), self._event_delta())
            return replace(self._remaining(), event_delta=left, delta=self._gaussian_delta())
        return self._remaining()

    def _remaining(self) -> Remaining:
        budget, share = self.budget, max(Fraction(0), Fraction(self.left, UNITS))
        if budget.pure is not None:
            return self._remaining_lanes(share)
        if share == 0:
            nothing = None if budget.is_pure else 0.0
            return Remaining(share, nothing, Fraction(0), budget.delta)
        if budget.rho is not None:
            root = gaussian_module.sqrt_down(2 * budget.rho * share)
            return Remaining(share, root, Fraction(root))
        if budget.mu is not None:
            return _remaining_mu_squared(share, budget.mu**2 * share)
        assert budget.epsilon is not None  # noqa: S101
        assert budget.delta is not None  # noqa: S101
        pure = budget.epsilon * share
        if budget.is_pure:
            return Remaining(share, None, pure, budget.delta)
        if self.pure_spent is None:
            delta = self._gaussian_delta()
            mu = gaussian_module.gaussian_mu_down(pure, delta) if delta > 0 else 0.0
            return Remaining(share, mu, pure, budget.delta)
        units = UNITS - self.pure_spent
        left = _remaining_mu_squared(share, self._gaussian_total() * self.left / units)
        return replace(left, delta=budget.delta)

    def _remaining_lanes(self, share: Fraction) -> Remaining:
        budget = self.budget
        assert budget.pure is not None  # noqa: S101
        lanes = self._lanes()
        pure_left, gaussian_left = (max(Fraction(0), each.left) for each in lanes)
        mu_squared = self._lane_mu() ** 2 * gaussian_left
        converted = _remaining_mu_squared(share, mu_squared)
        return replace(
            converted,
            pure_epsilon=max(budget.pure * pure_left, converted.pure_epsilon),
            delta=budget.delta,
            lanes=lanes,
        )

    def price(
        self, cost: Cost, delta: Fraction | None = None, before: Sequence[Cost] = ()
    ) -> Price:
        """Return what one more debit of this cost takes, or what would fit in its place.

        Args:
            cost: The cost of the release.
            delta: The delta of its budget, in which the epsilon that would fit is told.
            before: The costs of debits that come first; the share is that of all of them.

        Returns:
            The share it takes and leaves, or None for both if it will be refused.
        """
        if before:
            return self._price_after(cost, delta, before)
        kind: Kind = "gaussian" if cost.mu_squared else "pure"
        is_refused = self.budget.is_pure and bool(cost.mu_squared)
        reason = self._event_refusal(cost)
        after = None if is_refused or reason else self.plus(cost)
        if after is not None and not after.is_overdrawn:
            left = Fraction(after.left, UNITS)
            return Price(kind, Fraction(after.spent - self.spent, UNITS), left, None, None)
        left_over = self.remaining()
        pure = left_over.epsilon("pure")
        gaussian = left_over.epsilon("gaussian", delta) if delta or left_over.delta else None
        both = (gaussian, pure) if kind == "gaussian" else (pure, gaussian)
        return Price(kind, None, None, both[0], both[1], reason)

    def _price_after(self, cost: Cost, delta: Fraction | None, before: Sequence[Cost]) -> Price:
        """`price` of a debit after others; the first that does not fit is told."""
        account = self
        for each in (*before, cost):
            price = account.price(each, delta)
            if not price.fits:
                return price
            account = account.plus(each)
        left = Fraction(account.left, UNITS)
        return replace(price, share=Fraction(account.spent - self.spent, UNITS), left=left)

    def _event_refusal(self, cost: Cost) -> str:
        """Why the delta of a cost does not fit; empty if it does, or has none."""
        if not cost.delta:
            return ""
        if not self.budget.delta:
            return self._no_delta()
        left = self._event_delta()
        if cost.delta <= left:
            return ""
        if self._has_gaussian and left == 0 and self.budget.event_delta is None:
            return (
                "this release has a delta of its own, and Gaussian noise has taken the rest of the "
                f"delta of {self.budget.describe()}; what has a delta of its own comes before the "
                "first Gaussian answer, or takes a reserve: a larger total with event_delta "
                "(sfumato ledger raise --event-delta), which the curator may set at any time"
            )
        return (
            f"this release takes delta = {number_text(cost.delta)} for itself, and "
            f"{number_text(left)} of {self.budget.describe()} is left for that"
        )

    def how_many_more(self, cost: Cost) -> int:
        """Return how many debits of this cost, one after the other, the account admits.

        >>> Account(Budget(epsilon=1)).how_many_more(Cost.pure(Fraction(1, 3)))
        3
        """
        first = self.plus(cost)
        if first.is_overdrawn:
            return 0
        if cost.delta:
            return self._many_events(cost)
        if self.budget.pure is not None:
            return self._many_in_lanes(cost)
        # From the second on the price is constant: the currency can only change once.
        price = first.plus(cost).spent - first.spent
        return 1 if price > first.left else 1 + first.left // price

    def _many_events(self, cost: Cost) -> int:
        """How many debits with a delta of their own fit: until it is used up, or Gaussian noise."""
        after = self.plus(cost)
        if after._has_gaussian and not self._has_gaussian and self.budget.event_delta is None:
            return 1
        plain = cost.without_events
        of_units = self.how_many_more(plain)
        if self.budget.pure is not None and not self._has_gaussian and not cost.mu_squared:
            of_units = math.floor((self.budget.pure * self._lanes()[0].left) / cost.pure_epsilon)
        return max(1, min(of_units, math.floor(self._event_delta() / cost.delta)))

    def _many_in_lanes(self, cost: Cost) -> int:
        """How many debits of this cost both lanes admit; at most two ways to pay are used up."""
        account, many = self, 0
        while not (after := account.plus(cost)).is_overdrawn:
            pure_units, gaussian_units = self._lane_units()
            before = account.pure_spent or 0
            of_pure = (after.pure_spent or 0) - before
            of_gaussian = after.spent - account.spent - of_pure
            often = [(pure_units - before) // of_pure] if of_pure else []
            if of_gaussian:
                often.append((gaussian_units - (account.spent - before)) // of_gaussian)
            times = min(often)
            account = replace(
                account,
                spent=account.spent + times * (of_pure + of_gaussian),
                pure_spent=before + times * of_pure,
            )
            many += times
        return many

    def refusal(self, cost: Cost) -> str:
        """Return the message with which a ledger refuses this cost."""
        return _refusal(self, cost)


def fits(costs: Iterable[Cost], budget: Budget) -> bool:
    """Whether costs that are all fixed in advance keep the budget together; never wrongly true.

    Privacy: adaptive composition with fixed parameters (``docs/proofs/accounting.md``,
    Theorem 3). For costs chosen one by one use the ledger.

    >>> fits([Cost.pure(Fraction(1, 2))] * 2, Budget(epsilon=1))
    True
    """
    total = Cost(tuple(part for cost in costs for part in cost.parts))
    if total.delta:
        rest = (budget.delta or Fraction(0)) - total.delta
        plain = total.without_events
        if budget.event_delta is not None:
            rest = budget.gaussian_delta if total.delta <= budget.event_delta else Fraction(-1)
        if rest < 0 or budget.epsilon is None or not budget.delta:
            return False
        return fits([plain], Budget(budget.epsilon, rest))
    if budget.event_delta is not None:
        return fits([total], Budget(budget.epsilon, budget.gaussian_delta))
    if budget.rho is not None:
        return rho_of(total) <= budget.rho
    if budget.mu is not None:
        return mu_squared_of(total) <= budget.mu**2
    assert budget.epsilon is not None  # noqa: S101
    assert budget.delta is not None  # noqa: S101
    if budget.is_pure:
        return not total.mu_squared and total.pure_epsilon <= budget.epsilon
    if total.pure_parts:
        rest = budget.epsilon - total.pure_epsilon  # adding up, without a rounded epsilon between
        if rest > 0 and gaussian_module.gaussian_within(total.mu_squared, rest, budget.delta):
            return True
        counted = Counter(total.pure_parts)
        return composed_epsilon_exact(total.mu_squared, counted, budget.delta) <= budget.epsilon
    return gaussian_module.gaussian_within(total.mu_squared, budget.epsilon, budget.delta)


def shares_of(budget: Budget, costs: Iterable[Cost]) -> list[Fraction]:
    """Return the share of a budget that each of some debits takes, in their order.

    >>> shares_of(Budget(epsilon=1), [Cost.pure(Fraction(1, 4)), Cost.pure(Fraction(1, 2))])
    [Fraction(1, 4), Fraction(1, 2)]
    """
    account, shares = Account(budget), []
    for cost in costs:
        if budget.is_pure and (cost.mu_squared or cost.delta):  # of before it became pure
            after = replace(account, spent=_OVERDRAWN)
        else:
            after = account.plus(cost)
        shares.append(Fraction(min(after.spent, UNITS) - min(account.spent, UNITS), UNITS))
        account = after
    return shares


@lru_cache(maxsize=64)
def _pure_units(pure: Fraction, epsilon: Fraction) -> int:
    """The units of a pure lane: such that decimals which add up to it fill it to the last unit.

    A multiple of the numerator of its epsilon makes one unit a round part of 1, and a multiple of
    `_EVEN` lets both lanes be split evenly.
    """
    proportional = UNITS * pure / epsilon
    for round_parts in (math.lcm(_EVEN, 10**4), _EVEN):
        step = pure.numerator * round_parts
        if 0 < 4 * step <= proportional:
            return math.floor(proportional / step) * step
    return min(math.ceil(proportional / _EVEN) * _EVEN, UNITS - _EVEN)


@lru_cache(maxsize=64)  # an exhausted ledger says the same again and again
def _refusal(account: Account, cost: Cost) -> str:
    budget, left = account.budget, account.remaining()
    reason = account._event_refusal(cost)
    if reason:
        return f"budget refused: {reason}; {left.describe()}; lower the cost or ask the curator"
    amount, kind = _amount(cost, budget)
    way_out = "lower the cost or ask the curator"
    if budget.delta:
        return (
            f"budget refused: this release costs {_text_up(amount)} epsilon of "
            f"{_LANE_NAMES[kind]} noise; of {budget.describe()}, {left.describe()}; {way_out}"
        )
    if budget.rho is not None:
        total, name = budget.rho, "rho"
    elif budget.mu is not None:
        total, name = budget.mu**2, "mu^2"
    else:
        total, name = budget.pure_epsilon, "epsilon"
    return (
        f"budget refused: this release costs {_text_up(amount)} {name}, "
        f"{_text_down(total * left.share)} of {_text_down(total)} remains ({budget.describe()}); "
        f"{way_out}"
    )


def _amount(cost: Cost, budget: Budget) -> tuple[Fraction, Kind]:
    """A cost in the terms of the budget, rounded up: its rho, its mu^2, or its epsilon at delta."""
    if budget.rho is not None:
        return rho_of(cost), "gaussian"
    if budget.mu is not None:
        return mu_squared_of(cost), "gaussian"
    if not cost.mu_squared or not budget.delta:
        return cost.pure_epsilon, "pure"
    return _epsilon_of(gaussian_module.sqrt_up(mu_squared_of(cost)), budget.delta), "gaussian"


@lru_cache(maxsize=1024)
def _epsilon_of(mu: float, delta: Fraction) -> Fraction:
    return Fraction(gaussian_module.gaussian_epsilon_up(Fraction(mu) ** 2, delta))


def percent(share: Fraction) -> str:
    """Return a share of a budget as text: what messages and tables say of money.

    >>> percent(Fraction(1, 3)), percent(Fraction(1, 10**7))
    ('33.33%', '1e-05%')
    """
    return f"{float(100 * share):.4g}%"


def _remaining_mu_squared(share: Fraction, mu_squared: Fraction) -> Remaining:
    root = gaussian_module.sqrt_down(mu_squared)
    pure = gaussian_module.pure_of_mu_down(Fraction(root)) if root > 0 else 0.0
    return Remaining(share, root, Fraction(pure))


def _text_up(value: Fraction) -> str:
    return number_text(_six_digits(value, math.ceil))


def _text_down(value: Fraction) -> str:
    return number_text(_six_digits(value, math.floor))


def _six_digits(value: Fraction, rounded: Callable[[Fraction], int]) -> Fraction:
    if value <= 0:
        return Fraction(0)
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    scale = Fraction(10) ** (6 - math.ceil(bits * math.log10(2)))
    return Fraction(rounded(value * scale)) / scale
