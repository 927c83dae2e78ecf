# SPDX-License-Identifier: Apache-2.0
"""The account: integer units, one currency at a time, sound for debits chosen one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from sfumato.errors import BudgetError
from sfumato.ledger.account import UNITS, Account, _text_down, _text_up, fits
from sfumato.privacy import gaussian as gaussian_module
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost, _gaussian_deltas, gaussian_delta

APPROXIMATE = Budget(epsilon=1, delta=1e-9)


def total_mu_squared(budget=APPROXIMATE):
    return Fraction(budget.gaussian_mu) ** 2


@pytest.mark.parametrize("parts", [*range(1, 31), 100, 1000, 10**6, 64, 4096])
def test_even_splits_spend_the_last_unit(parts):
    assert Account(Budget(epsilon=0.7)).how_many_more(Cost.pure(Fraction(7, 10) / parts)) == parts
    assert Account(Budget(rho=2)).how_many_more(Cost.gaussian(Fraction(4) / parts)) == parts
    cost = Cost.gaussian(total_mu_squared() / parts)
    assert Account(APPROXIMATE).how_many_more(cost) == parts


def test_units_are_rounded_up_so_odd_splits_leave_something():
    # UNITS has no factor 31, so each of 31 parts rounds up and only 30 fit.
    assert UNITS % 31 != 0
    assert Account(Budget(epsilon=1)).how_many_more(Cost.pure(Fraction(1, 31))) == 30


@pytest.mark.parametrize(
    ("budget", "cost", "share"),
    [
        (Budget(epsilon=2), Cost.pure(Fraction(1, 2)), Fraction(1, 4)),
        (Budget(rho=1), Cost.gaussian(1), Fraction(1, 2)),  # rho = mu^2 / 2
        (Budget(rho=1), Cost.pure(1), Fraction(1, 2)),  # rho = epsilon^2 / 2
        (Budget(mu=2), Cost.gaussian(1), Fraction(1, 4)),  # mu^2 of 4
        (APPROXIMATE, Cost.pure(Fraction(1, 4)), Fraction(1, 4)),
        (APPROXIMATE, Cost.gaussian(total_mu_squared() / 8), Fraction(1, 8)),
    ],
)
def test_hand_computed_shares(budget, cost, share):
    assert 1 - Account(budget).plus(cost).remaining().share == share


def test_a_pure_budget_refuses_gaussian_noise():
    with pytest.raises(BudgetError, match="pure"):
        Account(Budget(epsilon=1)).plus(Cost.gaussian(Fraction(1, 100)))


def test_a_release_without_a_cost_is_refused():
    with pytest.raises(BudgetError, match="without noise"):
        Account(Budget(rho=1)).plus(Cost(()))


def test_pure_then_gaussian_shifts_the_curve_by_the_epsilon_spent():
    account = Account(APPROXIMATE).plus(Cost.pure(Fraction(2, 5)))
    left = account.remaining()
    # What is left is (3/5, delta): exactly what an own budget of that size would allow.
    assert left.gaussian_mu == Budget(epsilon="3/5", delta=1e-9).gaussian_mu
    assert left.pure_epsilon == Fraction(3, 5)
    full = account.plus(Cost.gaussian(Fraction(left.gaussian_mu) ** 2))
    assert full.left == 0
    assert full.pure_spent == UNITS * 2 // 5


def test_after_gaussian_noise_pure_parts_cost_the_gaussian_that_dominates_them():
    account = Account(APPROXIMATE).plus(Cost.gaussian(total_mu_squared() / 2))
    epsilon = Fraction(1, 20)
    priced = Fraction(gaussian_module.mu_of_pure_up(epsilon)) ** 2 / total_mu_squared()
    assert account.plus(Cost.pure(epsilon)).spent - account.spent == math.ceil(priced * UNITS)
    left = account.remaining()
    assert not account.plus(Cost.pure(left.pure_epsilon)).is_overdrawn
    assert account.plus(Cost.pure(left.pure_epsilon * Fraction(1001, 1000))).is_overdrawn


def test_a_mixed_debit_takes_the_cheaper_order():
    small = Cost.gaussian(total_mu_squared() / 4) + Cost.pure(Fraction(1, 1000))
    large = Cost.gaussian(total_mu_squared() / 4) + Cost.pure(Fraction(1, 2))
    assert Account(APPROXIMATE).plus(small).pure_spent == 0
    assert Account(APPROXIMATE).plus(large).pure_spent == UNITS // 2


def test_a_first_debit_may_take_all_that_its_parts_together_fit():
    parts = Cost(tuple(Cost.pure(Fraction(1, 20)).parts) * 30)  # 1.5 added up, below 1 composed
    budget = Budget(epsilon=1, delta="1/1000")
    assert fits([parts], budget)
    assert Account(budget).plus(parts).left == 0
    # Later it may not: its parts were not fixed before the first answer was seen.
    later = Account(budget).plus(Cost.pure(Fraction(1, 10**6)))
    assert later.plus(parts).is_overdrawn


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(rho=1), Budget(mu=1), APPROXIMATE])
def test_an_impossible_cost_overdraws_within_64_bits(budget):
    after = Account(budget).plus(Cost.pure(10**15))
    assert after.is_overdrawn
    assert after.spent < 2**63
    assert Account(budget).how_many_more(Cost.pure(10**15)) == 0


def test_nothing_remains_of_a_spent_account():
    for budget in (Budget(epsilon=1), Budget(rho=1), Budget(mu=1), APPROXIMATE):
        left = Account(budget, spent=UNITS, pure_spent=0).remaining()
        assert left.share == 0
        assert left.pure_epsilon == 0
        assert not left.gaussian_mu


def test_the_refusal_says_cost_remainder_total_and_way_out():
    account = Account(Budget(rho=1), spent=UNITS * 22 // 25)
    assert account.refusal(Cost.gaussian(Fraction(1, 2))) == (
        "budget refused: this release costs 0.25 rho, 0.12 of 1 remains (rho = 1); "
        "lower the cost or ask the curator"
    )
    assert "0.666667 epsilon, 0.5 of 1" in Account(Budget(epsilon=1), spent=UNITS // 2).refusal(
        Cost.pure(Fraction(2, 3))
    )
    assert "mu^2" in Account(Budget(mu=1)).refusal(Cost.gaussian(2))
    asked = Account(APPROXIMATE).plus(Cost.gaussian(Fraction(1, 100)))
    words = asked.refusal(Cost.gaussian(1))
    assert "costs 6.17394 epsilon of Gaussian noise" in words
    assert asked.remaining().describe() in words
    assert "mu" not in words.replace("must", "")


# An analyst who chooses the second debit after seeing the first answer. The first debit is
# Gaussian; its loss is normal with mean mu^2/2 and variance mu^2. The second is the best of what
# the account allows, for the loss that came. The delta of the whole is an exact integral.


def adaptive_delta(epsilon, first_mu_squared, gaussian_mu, pure_epsilon):
    mu = math.sqrt(first_mu_squared)

    def best(loss):
        rest = np.array([epsilon - loss])
        by_gaussian = float(_gaussian_deltas(rest, gaussian_mu)[0])
        up = 1 / (1 + math.exp(-pure_epsilon))
        by_pure = sum(
            mass * max(0.0, -math.expm1(rest[0] - moved))
            for mass, moved in ((up, pure_epsilon), (1 - up, -pure_epsilon))
        )
        return max(by_gaussian, by_pure)

    density = stats.norm(mu * mu / 2, mu).pdf
    kinks = [epsilon - pure_epsilon, epsilon, epsilon + pure_epsilon]
    low, high = mu * mu / 2 - 12 * mu, max(mu * mu / 2 + 12 * mu, epsilon + 2 * pure_epsilon)
    edges = sorted({low, high, *(k for k in kinks if low < k < high)})
    return sum(
        integrate.quad(lambda x: density(x) * best(x), a, b, epsabs=1e-16, limit=400)[0]
        for a, b in pairwise(edges)
    )


BUDGET = Budget(epsilon=1, delta="1/100000")


def test_no_choice_of_the_second_debit_breaks_the_budget():
    """docs/proofs/accounting.md, Theorem 4."""
    for share in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)):
        first = total_mu_squared(BUDGET) * share
        left = Account(BUDGET).plus(Cost.gaussian(first)).remaining()
        spent = adaptive_delta(1.0, float(first), left.gaussian_mu, float(left.pure_epsilon))
        assert spent <= 1e-5 * (1 + 1e-6)


def test_composing_what_was_spent_and_stopping_at_the_curve_would_break_the_budget():
    """The twin: a filter that tests each list of costs as if fixed in advance overspends."""
    first = total_mu_squared(BUDGET) / 2
    low, high = 0.0, 1.0  # the largest pure epsilon that such a filter would admit
    for _ in range(40):
        middle = (low + high) / 2
        costs = [Cost.gaussian(first), Cost.pure(Fraction(middle) or Fraction(1, 10**9))]
        low, high = (middle, high) if fits(costs, BUDGET) else (low, middle)
    assert low > 0.1
    rest = math.sqrt(float(total_mu_squared(BUDGET) - first))
    assert adaptive_delta(1.0, float(first), rest, low) > 1.2e-5


def test_what_remains_is_told_in_words():
    assert Account(Budget(epsilon=1)).remaining().describe() == (
        "100% remains, pure noise up to epsilon = 1"
    )
    half = Account(Budget(rho="1/2"), spent=UNITS // 2).remaining()
    assert half.gaussian_mu == gaussian_module.sqrt_down(Fraction(1, 2))
    assert half.describe().startswith("50% remains, Gaussian noise up to mu = 0.707107, pure")


def test_a_budget_that_pure_debits_used_up_admits_no_gaussian_one():
    spent = Account(APPROXIMATE).plus(Cost.pure(1))
    assert (spent.left, spent.is_overdrawn) == (0, False)
    assert spent.plus(Cost.gaussian(Fraction(1, 10**12))).is_overdrawn
    assert spent.how_many_more(Cost.gaussian(Fraction(1, 10**12))) == 0


def test_debits_in_a_row_are_those_one_after_the_other():
    costs = [
        Cost.pure(Fraction(1, 8)),
        Cost.gaussian(Fraction(1, 10**4)),
        Cost.pure(Fraction(1, 9)),
    ]
    account = Account(APPROXIMATE)
    for cost in costs:
        account = account.plus(cost)
    assert Account(APPROXIMATE).plus_all(costs) == account
    assert account.spent > 0


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(2, 3), "0.666667", "0.666666"),
        (Fraction(10**9 + 1, 10**9), "1.000001", "1"),
        (Fraction(1, 7 * 10**9), "1.42858e-10", "1.42857e-10"),
        (Fraction(123456789), "123456800", "123456700"),
        (Fraction(0), "0", "0"),
        (Fraction(-1, 2), "0", "0"),
    ],
)
def test_amounts_in_refusals_are_rounded_up_and_remainders_down(value, up, down):
    assert float(_text_up(value)) == float(up)
    assert float(_text_down(value)) == float(down)


@pytest.mark.parametrize(
    ("budget", "cost", "words"),
    [
        (Budget(mu="1/4"), Cost.gaussian(Fraction(1, 10)), "costs 0.1 mu^2, 0.0625 of 0.0625"),
        (Budget(rho="1/4"), Cost.gaussian(1), "costs 0.5 rho, 0.25 of 0.25 remains"),
        (Budget(epsilon="1/4"), Cost.pure(1), "costs 1 epsilon, 0.25 of 0.25 remains"),
    ],
)
def test_a_refusal_counts_in_the_currency_of_its_budget(budget, cost, words):
    assert words in Account(budget).refusal(cost)


# Lanes: a pure part and a Gaussian part of one total, declared before the first answer.

LANES = Budget(epsilon=2, delta="1e-6", pure=1)
GAUSSIAN_ONE = Cost.gaussian(Fraction(Budget(epsilon=1, delta="1e-6").gaussian_mu) ** 2)


def test_lanes_admit_gaussian_and_pure_noise_in_both_orders_where_adding_does():
    plain = Account(LANES.promise)
    assert not plain.plus_all([Cost.pure(1), GAUSSIAN_ONE]).is_overdrawn
    assert plain.plus_all([GAUSSIAN_ONE, Cost.pure(1)]).is_overdrawn
    for order in ([GAUSSIAN_ONE, Cost.pure(1)], [Cost.pure(1), GAUSSIAN_ONE]):
        after = Account(LANES).plus_all(order)
        assert (after.is_overdrawn, after.left) == (False, 0)


def test_a_gaussian_debit_leaves_the_pure_lane_whole():
    total = Budget(epsilon=4, delta="1e-9", pure=3)
    after = Account(total).plus(Cost.gaussian(Fraction(1, 1000)))
    assert after.remaining().pure_epsilon == 3
    assert after.how_many_more(Cost.pure(Fraction(1, 4))) >= 12
    pure, gaussian = after.remaining().lanes
    assert (pure.share, pure.left) == (Fraction(3, 4), 1)
    assert gaussian.share == Fraction(1, 4)
    assert gaussian.left < 1


def test_pure_noise_may_be_paid_from_the_gaussian_lane_but_not_the_other_way_round():
    spent = Account(LANES).plus(Cost.pure(1))
    more = Cost.pure(Fraction(1, 10))
    priced = Fraction(gaussian_module.mu_of_pure_up(Fraction(1, 10))) ** 2 / GAUSSIAN_ONE.mu_squared
    after = spent.plus(more)
    assert after.pure_spent == spent.pure_spent
    assert after.spent - spent.spent == math.ceil(priced * UNITS / 2)
    assert Account(LANES).plus_all([GAUSSIAN_ONE, GAUSSIAN_ONE]).is_overdrawn
    assert Account(LANES).how_many_more(GAUSSIAN_ONE) == 1


def test_a_mixed_debit_is_paid_from_the_gaussian_lane_and_from_both_where_that_is_too_small():
    mixed = Cost.gaussian(GAUSSIAN_ONE.mu_squared / 4) + Cost.pure(Fraction(1, 100))
    assert Account(LANES).plus(mixed).pure_spent == 0
    large = GAUSSIAN_ONE + Cost.pure(Fraction(1, 2))
    assert Account(LANES).plus(large).pure_spent == UNITS // 4


def test_a_first_debit_does_not_take_what_the_lanes_keep_apart():
    whole = Cost.gaussian(total_mu_squared(LANES.promise))
    assert Account(LANES.promise).plus(whole).left == 0
    assert Account(LANES).plus(whole).is_overdrawn


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 13, 29, 30])
def test_even_splits_fill_both_lanes_to_the_last_unit(parts):
    lanes = Account(Budget(epsilon=4, delta="1e-9", pure="2.37"))
    # When its lane is full, pure noise of this size does not fit the other one, or only partly.
    filled = lanes.plus_all([Cost.pure(Fraction("2.37") / parts)] * parts)
    assert filled.remaining().lanes[0].left == 0
    squared = total_mu_squared(lanes.budget.gaussian_lane)
    assert lanes.how_many_more(Cost.gaussian(squared / parts)) == parts


def test_a_cost_that_fits_no_lane_says_what_would():
    account = Account(LANES).plus(GAUSSIAN_ONE)
    refused = account.price(GAUSSIAN_ONE)
    assert not refused.fits
    assert refused.describe() == ("will be refused: pure (Laplace) noise of epsilon = 1 would fit")
    taken = account.price(Cost.pure(Fraction(1, 2)))
    assert taken.describe() == "takes 25% of the budget, 25% remains"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": 1, "pure": "0.5"}, "has no delta"),
        ({"rho": 1, "pure": "0.5"}, "has no delta"),
        ({"epsilon": 1, "delta": 1e-6, "pure": 1}, "below epsilon = 1"),
        ({"epsilon": 1, "delta": 1e-6, "pure": -1}, "at least 0"),
    ],
)
def test_lanes_that_make_no_sense_are_refused(given, words):
    with pytest.raises(BudgetError, match=words):
        Budget(**given)


def lanes_delta(epsilon, first_mu_squared, gaussian_mu, pure_epsilon):
    """The most delta of an analyst who saw a Gaussian answer and may then use either lane.

    What follows is nothing, the rest of the Gaussian lane, the pure lane, or both, whichever is
    worst for the loss that came; an exact integral over that loss.
    """
    mu = math.sqrt(first_mu_squared)
    up = 1 / (1 + math.exp(-pure_epsilon))

    def best(loss):
        rest = epsilon - loss
        moved = np.array([rest - pure_epsilon, rest + pure_epsilon])
        mass = np.array([up, 1 - up])
        return max(
            max(0.0, -math.expm1(rest)),
            float(_gaussian_deltas(np.array([rest]), gaussian_mu)[0]),
            float(mass @ np.maximum(0.0, -np.expm1(moved))),
            float(mass @ _gaussian_deltas(moved, gaussian_mu)),
        )

    density = stats.norm(mu * mu / 2, mu).pdf
    low, high = mu * mu / 2 - 12 * mu, max(mu * mu / 2 + 12 * mu, epsilon + 2 * pure_epsilon)
    kinks = [epsilon - pure_epsilon, epsilon, epsilon + pure_epsilon]
    edges = sorted({low, high, *(k for k in kinks if low < k < high)})
    return sum(
        integrate.quad(lambda x: density(x) * best(x), a, b, epsabs=1e-17, limit=400)[0]
        for a, b in pairwise(edges)
    )


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("pure", ["0.25", "1", "1.5"])
def test_no_choice_between_the_lanes_breaks_the_budget(share, pure):
    """docs/proofs/accounting.md, Theorem 5."""
    total = Budget(epsilon=2, delta="1e-6", pure=pure)
    squared = total_mu_squared(total.gaussian_lane)
    account = Account(total).plus(Cost.gaussian(squared * share))
    left = account.remaining()
    spent = lanes_delta(2.0, float(squared * share), left.gaussian_mu, float(total.pure))
    assert spent <= 1e-6 * (1 + 1e-6)


def test_choosing_between_lanes_and_one_currency_after_the_fact_would_break_the_budget():
    """The twin: each of the two filters keeps the budget, the better of both does not."""
    first = GAUSSIAN_ONE.mu_squared  # admitted by both
    lanes = Account(LANES).plus(GAUSSIAN_ONE).remaining()
    plain = Account(LANES.promise).plus(GAUSSIAN_ONE).remaining()
    assert (lanes.pure_epsilon, lanes.gaussian_mu) == (1, 0.0)
    assert plain.gaussian_mu > 0.2
    # Gaussian noise where the first answer was lucky, pure noise where it was not.
    assert adaptive_delta(2.0, float(first), plain.gaussian_mu, 1.0) > 1.3e-6


def test_planned_costs_declare_lanes_that_admit_them_in_any_order():
    planned = [Budget(epsilon=1, delta="1e-6"), Budget(epsilon="0.6"), Budget(epsilon="0.4")]
    total = Budget(epsilon=2, delta="1e-6").with_lanes_for(planned)
    assert total == LANES
    with pytest.raises(BudgetError, match="do not fit"):
        Budget(epsilon=2, delta="1e-6").with_lanes_for([*planned, Budget(epsilon="0.01")])
    with pytest.raises(BudgetError, match="need none"):
        Budget(rho=1).with_lanes_for(planned)


OLD_COSTS = [
    Cost.pure(Fraction(1, 8)),
    Cost.gaussian(Fraction(1, 10**4)),
    Cost.pure(Fraction(1, 9), 3),
    Cost.gaussian(Fraction(1, 300)) + Cost.pure(Fraction(1, 50)),
    Cost.pure(Fraction(1, 30)),
]


@pytest.mark.parametrize(
    ("budget", "units", "pure"),
    [
        (
            Budget(epsilon=1, delta="1e-9"),
            [46581791256000000, 47852706069458362, 294206716304049039, 344555822459467111,
             366736589005711746],
            46581791256000000,
        ),
        (
            Budget(epsilon=2, delta="1e-6"),
            [23290895628000000, 23486482282451393, 61398981343936491, 69147426104572571,
             72560921545814813],
            23290895628000000,
        ),
        (
            Budget(rho="1/2"),
            [5822723907000000, 5859989340004800, 10460660081338134, 11851902913517334,
             12265963280237334],
            None,
        ),
        (
            Budget(mu="1/2"),
            [36564827404797216, 36713889136816416, 65608001524662087, 71513295010637393,
             74114809639221961],
            None,
        ),
    ],
)  # fmt: skip
def test_a_ledger_without_lanes_counts_the_units_that_it_always_counted(budget, units, pure):
    """Old ledgers are replayed to the same balances, or they could not be verified."""
    account, counted = Account(budget), []
    for cost in OLD_COSTS:
        account = account.plus(cost)
        counted.append(account.spent)
    assert (counted, account.pure_spent) == (units, pure)


EVENT = Cost.pure(Fraction(1, 2)) + Cost.approximate(Fraction(1, 10**7))


def test_deltas_of_events_add_up_beside_the_units() -> None:
    account = Account(Budget(epsilon=2, delta="2.5e-7"))
    assert account.how_many_more(EVENT) == 2
    after = account.plus(EVENT).plus(EVENT)
    assert (after.spent, after.delta_spent) == (UNITS // 2, Fraction(2, 10**7))
    assert after.plus(EVENT).is_overdrawn
    assert "0.00000005" in after.refusal(EVENT).replace("5e-8", "0.00000005")
    assert after.remaining().event_delta == Fraction(5, 10**8)
    assert "events up to delta" in after.remaining().describe()


def test_gaussian_noise_after_events_is_counted_at_the_delta_that_they_left() -> None:
    budget = Budget(epsilon=2, delta="1e-6")
    after = Account(budget).plus(EVENT)
    left = after.remaining().gaussian_mu
    assert left == Budget(epsilon="1.5", delta="9e-7").gaussian_mu
    full = after.plus(Cost.gaussian(Fraction(left) ** 2))
    assert not full.is_overdrawn
    assert full.left == 0
    more = Cost.gaussian(Fraction(Budget(epsilon="1.5", delta="1e-6").gaussian_mu) ** 2)
    assert after.plus(more).is_overdrawn


def test_an_event_after_gaussian_noise_is_refused_with_words() -> None:
    for budget in (Budget(epsilon=2, delta="1e-6"), Budget(epsilon=2, delta="1e-6", pure=1)):
        begun = Account(budget).plus(Cost.gaussian(Fraction(1, 10**4)))
        assert begun.plus(EVENT).is_overdrawn
        assert begun.how_many_more(EVENT) == 0
        price = begun.price(EVENT)
        assert not price.fits
        assert "before the first Gaussian answer" in price.describe()
        assert "before the first Gaussian answer" in begun.refusal(EVENT)


def test_a_gaussian_debit_with_an_event_of_its_own_fixes_the_delta_with_it() -> None:
    budget = Budget(epsilon=2, delta="1e-6")
    both = Cost.gaussian(Fraction(1, 100)) + Cost.approximate(Fraction(4, 10**7))
    after = Account(budget).plus(both)
    total = Fraction(Budget(epsilon=2, delta="6e-7").gaussian_mu) ** 2
    assert after.spent == -(-(UNITS * Fraction(1, 100) / total) // 1)
    assert Account(budget).how_many_more(both) == 1
    lanes = Account(Budget(epsilon=2, delta="1e-6", pure=1)).plus(EVENT)
    lane = Budget(epsilon=1, delta="9e-7").gaussian_mu
    assert not lanes.plus(Cost.gaussian(Fraction(lane) ** 2)).is_overdrawn
    full = Budget(epsilon=1, delta="1e-6").gaussian_mu
    assert lanes.plus(Cost.gaussian(Fraction(full) ** 2)).is_overdrawn


def test_totals_without_delta_refuse_events() -> None:
    for budget in (Budget(rho=1), Budget(mu=1), Budget(epsilon=3)):
        with pytest.raises(BudgetError, match="delta of its own"):
            Account(budget).plus(EVENT)
        assert "delta of its own" in Account(budget).price(EVENT).describe()
    with pytest.raises(BudgetError, match="without a cost"):
        Account(Budget(epsilon=1, delta="1e-6")).plus(Cost.approximate(Fraction(1, 10**7)))


def test_costs_with_events_compose_as_fixed_in_advance() -> None:
    assert fits([EVENT, EVENT], Budget(epsilon=1, delta="2e-7"))
    assert not fits([EVENT, EVENT], Budget(epsilon=1, delta="1.9e-7"))
    assert not fits([EVENT], Budget(rho=5))
    assert Account(Budget(epsilon=1, delta="1e-6")).plus(EVENT + EVENT).left == 0


def test_totals_may_change_only_both_ways_alike_after_an_event_and_gaussian_noise() -> None:
    costs = [EVENT, Cost.gaussian(Fraction(1, 10**4))]

    def of(total: Budget) -> Account:
        return Account(total).plus_all(costs)

    small, large = Budget(epsilon=2, delta="1e-6"), Budget(epsilon=3, delta="2e-6")
    assert of(small).may_become(of(large))
    assert of(large).may_become(of(small))


RESERVE = Budget(epsilon=2, delta="1e-6", event_delta="3e-7")


def test_a_reserve_admits_events_before_and_after_gaussian_noise() -> None:
    """Gaussian noise is counted at 7e-7 all along; events take 3e-7, whenever they come."""
    few = Cost.pure(Fraction(1, 100)) + Cost.approximate(Fraction(1, 10**7))
    noise = Cost.gaussian(Fraction(1, 10**4))
    after = Account(RESERVE).plus(few).plus(noise).plus(few).plus(noise).plus(few)
    assert not after.is_overdrawn
    assert after.delta_spent == Fraction(3, 10**7)
    assert after.plus(few).is_overdrawn
    assert "is left for that" in after.refusal(few)
    assert after.remaining().event_delta == 0
    assert after.remaining().delta == Fraction(7, 10**7)
    assert Account(RESERVE).how_many_more(few) == 3


def test_gaussian_noise_never_has_what_is_reserved() -> None:
    rest = Fraction(Budget(epsilon=2, delta="7e-7").gaussian_mu) ** 2
    assert not Account(RESERVE).plus(Cost.gaussian(rest)).is_overdrawn
    whole = Fraction(Budget(epsilon=2, delta="1e-6").gaussian_mu) ** 2
    assert Account(RESERVE).plus(Cost.gaussian(whole)).is_overdrawn
    assert not fits([Cost.gaussian(whole)], RESERVE)
    assert fits([Cost.gaussian(rest), Cost.approximate(Fraction(3, 10**7))], RESERVE)
    assert not fits([Cost.gaussian(rest), Cost.approximate(Fraction(4, 10**7))], RESERVE)
    lanes = Budget(epsilon=2, delta="1e-6", pure=1, event_delta="3e-7")
    lane = Fraction(Budget(epsilon=1, delta="7e-7").gaussian_mu) ** 2
    assert not Account(lanes).plus(Cost.gaussian(lane)).is_overdrawn
    assert Account(lanes).plus(Cost.gaussian(lane * Fraction(101, 100))).is_overdrawn


def test_what_gaussian_noise_and_events_take_together_is_within_the_total() -> None:
    """Theorem 9 in numbers: delta of the Gaussian that the account admits, and the reserve.

    The twin counts Gaussian noise at the whole delta, and breaks the promise.
    """
    for spent in (Fraction(0), Fraction(1, 2)):
        account = Account(RESERVE)
        if spent:
            account = account.plus(Cost.pure(spent))
        mu = account.remaining().gaussian_mu
        assert mu is not None
        left = RESERVE.epsilon - spent
        assert gaussian_delta(mu, left) + float(RESERVE.event_delta) <= float(RESERVE.delta)
        twin = Account(RESERVE.promise).plus(Cost.pure(spent)) if spent else None
        unsound = (twin or Account(RESERVE.promise)).remaining().gaussian_mu
        assert gaussian_delta(unsound, left) + float(RESERVE.event_delta) > float(RESERVE.delta)


def test_a_larger_total_may_add_a_reserve_after_gaussian_noise_and_none_may_take_it_off() -> None:
    noise = Cost.gaussian(Fraction(1, 10**4))
    old, new = Budget(epsilon=2, delta="7e-7"), RESERVE
    assert Account(old).plus(noise).may_become(Account(new).plus(noise))
    shifted = Budget(epsilon=2, delta="1e-6")  # more for Gaussian noise, nothing for events
    assert not Account(new).plus(noise).may_become(Account(shifted).plus(noise))
    begun = Account(old).plus(noise)
    assert "event-delta" in begun.refusal(EVENT)


def test_events_before_a_smaller_reserve_take_from_gaussian_noise() -> None:
    spent = Account(RESERVE, delta_spent=Fraction(5, 10**7), spent=UNITS // 100)
    assert spent.plus(EVENT).is_overdrawn
    assert spent.remaining().event_delta == 0
    assert spent.remaining().delta == Fraction(5, 10**7)
