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

Proof page: ``docs/proofs/accounting.md``, section "Filters".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.budget import curve
from sfumato.budget.accounting import Cost, composed_epsilon_exact, mu_squared_of, rho_of
from sfumato.budget.budget import Budget, number_text
from sfumato.errors import BudgetError

__all__ = ["UNITS", "Account", "Remaining", "fits"]

UNITS: Final = math.lcm(*range(1, 31), 10**6, 2**12)
"""3.7e17 units: evenly split into up to 30 parts, a power of ten up to a million or a power of two
up to 4096, a budget is spent to the last unit; and twice of it fits a 64-bit integer."""

_OVERDRAWN: Final = 2 * UNITS  # what any impossible debit leads to; it fits a 64-bit integer


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a budget still allows: one more release with this Gaussian mu or this pure epsilon."""

    share: Fraction
    gaussian_mu: float | None
    pure_epsilon: Fraction

    def describe(self) -> str:
        """Return what remains in words."""
        words = [f"{float(100 * self.share):.4g}% remains"]
        if self.gaussian_mu is not None:
            words.append(f"Gaussian noise up to mu = {self.gaussian_mu:.6g}")
        words.append(f"pure noise up to epsilon = {number_text(self.pure_epsilon)}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Account:
    """A budget with the units spent of it.

    ``pure_spent`` is set by the first Gaussian debit of an (epsilon, delta) budget: the units of
    epsilon that pure debits had taken by then.

    >>> Account(Budget(rho=1)).plus(Cost.gaussian(Fraction(1, 2))).remaining().share
    Fraction(3, 4)
    """

    budget: Budget
    spent: int = 0
    pure_spent: int | None = None

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
        overdraws the account keeps its budget (``docs/proofs/accounting.md``, Theorem 4).
        """
        if not cost.parts:
            raise BudgetError("a release without a cost would be a release without noise; state it")
        if self.budget.is_pure and cost.mu_squared:
            raise BudgetError(
                "Gaussian noise has no pure epsilon and the budget is pure "
                f"({self.budget.describe()}); choose Laplace noise, or a budget with delta"
            )
        if self.budget.epsilon is None or self.budget.is_pure:
            after = replace(self, spent=self.spent + self._linear_units(cost))
        else:
            after = self._plus_approximate(cost)
        return replace(after, spent=min(after.spent, _OVERDRAWN))

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
        """(epsilon, delta): pure units first, units of mu^2 from the first Gaussian debit on."""
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
        if self.spent == 0 and best.is_overdrawn and fits([cost], self.budget):
            return replace(self, spent=UNITS, pure_spent=0)
        return best

    def _begin_gaussian(self) -> Account:
        return replace(self, pure_spent=self.spent)

    def _plus_gaussian(self, mu_squared: Fraction) -> Account:
        assert self.pure_spent is not None  # noqa: S101
        allowed, units = self._gaussian_total(), UNITS - self.pure_spent
        if allowed == 0:
            return replace(self, spent=_OVERDRAWN)
        return replace(self, spent=self.spent + math.ceil(units * mu_squared / allowed))

    def _gaussian_total(self) -> Fraction:
        """mu^2 that was left when the first Gaussian debit came: its units are all that follow."""
        budget, pure = self.budget, Fraction(self.pure_spent or 0, UNITS)
        if pure >= 1 or budget.epsilon is None or budget.delta is None:
            return Fraction(0)
        return Fraction(curve.gaussian_mu_down(budget.epsilon * (1 - pure), budget.delta)) ** 2

    def remaining(self) -> Remaining:
        """Return what one more debit may take."""
        budget, share = self.budget, max(Fraction(0), Fraction(self.left, UNITS))
        if share == 0:
            return Remaining(share, None if budget.is_pure else 0.0, Fraction(0))
        if budget.rho is not None:
            root = curve.sqrt_down(2 * budget.rho * share)
            return Remaining(share, root, Fraction(root))
        if budget.mu is not None:
            return _remaining_mu_squared(share, budget.mu**2 * share)
        assert budget.epsilon is not None  # noqa: S101
        assert budget.delta is not None  # noqa: S101
        pure = budget.epsilon * share
        if budget.is_pure:
            return Remaining(share, None, pure)
        if self.pure_spent is None:
            return Remaining(share, curve.gaussian_mu_down(pure, budget.delta), pure)
        units = UNITS - self.pure_spent
        return _remaining_mu_squared(share, self._gaussian_total() * self.left / units)

    def how_many_more(self, cost: Cost) -> int:
        """Return how many debits of this cost, one after the other, the account admits.

        >>> Account(Budget(epsilon=1)).how_many_more(Cost.pure(Fraction(1, 3)))
        3
        """
        first = self.plus(cost)
        if first.is_overdrawn:
            return 0
        # From the second on the price is constant: the currency can only change once.
        price = first.plus(cost).spent - first.spent
        return 1 if price > first.left else 1 + first.left // price

    def refusal(self, cost: Cost) -> str:
        """Return why the account refuses this cost, in the words of the ledger."""
        return _refusal(self, cost)

    def _amounts(self, cost: Cost) -> tuple[Fraction, Fraction, Fraction, str]:
        budget, share = self.budget, max(Fraction(0), Fraction(self.left, UNITS))
        if budget.rho is not None:
            return rho_of(cost), budget.rho * share, budget.rho, "rho"
        if budget.mu is not None:
            return mu_squared_of(cost), budget.mu**2 * share, budget.mu**2, "mu^2"
        assert budget.epsilon is not None  # noqa: S101
        if budget.is_pure or (self.pure_spent is None and not cost.mu_squared):
            return cost.pure_epsilon, budget.epsilon * share, budget.epsilon, "epsilon"
        left = self.remaining().gaussian_mu or 0.0
        total = budget.gaussian_mu or 0.0
        return mu_squared_of(cost), Fraction(left) ** 2, Fraction(total) ** 2, "mu^2"


def fits(costs: Iterable[Cost], budget: Budget) -> bool:
    """Whether costs that are all fixed in advance keep the budget together; never wrongly true.

    Privacy: adaptive composition with fixed parameters (``docs/proofs/accounting.md``,
    Theorem 3). For costs chosen one by one use the ledger.

    >>> fits([Cost.pure(Fraction(1, 2))] * 2, Budget(epsilon=1))
    True
    """
    total = Cost(tuple(part for cost in costs for part in cost.parts))
    if budget.rho is not None:
        return rho_of(total) <= budget.rho
    if budget.mu is not None:
        return mu_squared_of(total) <= budget.mu**2
    assert budget.epsilon is not None  # noqa: S101
    assert budget.delta is not None  # noqa: S101
    if budget.is_pure:
        return not total.mu_squared and total.pure_epsilon <= budget.epsilon
    if total.pure_parts:
        counted = Counter(total.pure_parts)
        return composed_epsilon_exact(total.mu_squared, counted, budget.delta) <= budget.epsilon
    return curve.gaussian_within(total.mu_squared, budget.epsilon, budget.delta)


@lru_cache(maxsize=64)  # an exhausted ledger says the same again and again
def _refusal(account: Account, cost: Cost) -> str:
    wanted, left, total, name = account._amounts(cost)
    return (
        f"budget refused: this release costs {_text_up(wanted)} {name}, {_text_down(left)} of "
        f"{_text_down(total)} remains ({account.budget.describe()}); lower the cost or ask the "
        "curator"
    )


def _remaining_mu_squared(share: Fraction, mu_squared: Fraction) -> Remaining:
    root = curve.sqrt_down(mu_squared)
    pure = curve.pure_of_mu_down(Fraction(root)) if root > 0 else 0.0
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
