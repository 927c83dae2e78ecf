# SPDX-License-Identifier: Apache-2.0
"""Costs and their composition, against hand computation and dp-accounting."""

from __future__ import annotations

import itertools
import json
import math
import sys
from fractions import Fraction

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import BudgetError
from sfumato.ledger.account import fits
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import (
    Cost,
    GaussianPart,
    PurePart,
    _coarser,
    _walk,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    mu_squared_of,
    rho_of,
)


def pure(epsilon, steps=1):
    return Cost.pure(Fraction(epsilon), steps)


def gaussian(mu_squared):
    return Cost.gaussian(Fraction(mu_squared))


def reference_epsilon(mu_squared, pures, delta):
    """The same composition by dp-accounting (Fourier transforms on a grid of losses)."""
    grid = {"value_discretization_interval": 1e-4}
    parts = [
        pld.from_privacy_parameters(common.DifferentialPrivacyParameters(float(e), 0), **grid)
        if steps == 1
        else pld.from_discrete_laplace_mechanism(float(e) / steps, sensitivity=steps, **grid)
        for e, steps in pures
    ]
    if mu_squared:
        parts.append(pld.from_gaussian_mechanism(1 / math.sqrt(mu_squared), **grid))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total.get_epsilon_for_delta(delta)


def test_costs_add_and_keep_their_parts():
    cost = gaussian("1/50") + pure("1/10", 4) + gaussian("1/100")
    assert cost.parts == (
        GaussianPart(Fraction(1, 50)),
        PurePart(Fraction(1, 10), 4),
        GaussianPart(Fraction(1, 100)),
    )
    assert cost.mu_squared == Fraction(3, 100)
    assert cost.pure_epsilon == Fraction(1, 10)
    assert Cost.from_json(json.loads(json.dumps(cost.as_json()))) == cost


@pytest.mark.parametrize("bad", [0.5, "1/2", True, None, 0, -1, Fraction(0), Fraction(-1, 2)])
def test_costs_refuse_floats_and_what_is_not_positive(bad):
    with pytest.raises(BudgetError):
        Cost.gaussian(bad)
    with pytest.raises(BudgetError):
        Cost.pure(bad)


@pytest.mark.parametrize("steps", [0, -1, 1.0, True, "2"])
def test_steps_are_positive_integers(steps):
    with pytest.raises(BudgetError):
        Cost.pure(Fraction(1), steps)


@pytest.mark.parametrize(
    "bad", [None, {}, [1], [{"kind": "other"}], [{"kind": "pure"}], [{"kind": "pure",
     "epsilon": "1", "steps": 0}], [{"kind": "gaussian", "mu_squared": "-1"}]],
)  # fmt: skip
def test_json_that_is_not_a_cost_is_refused(bad):
    with pytest.raises(BudgetError):
        Cost.from_json(bad)


def test_an_amount_too_long_to_write_is_rounded_up():
    long = Fraction(1, 3) ** 5000 * 2**7900
    for amount in (Cost.gaussian(long).mu_squared, Cost.pure(long).pure_epsilon):
        assert long <= amount <= long * (1 + Fraction(1, 2**250))
        assert Cost.from_json(Cost.gaussian(amount).as_json()) == Cost.gaussian(amount)
    with pytest.raises(BudgetError, match="epsilon"):
        Budget(epsilon=1 + Fraction(1, 2**20_000))


def test_only_gaussian_parts_add_their_squares():
    # mu = 3/10 and 4/10 make 5/10.
    delta = Fraction(1, 10**9)
    both = composed_epsilon([gaussian("9/100"), gaussian("16/100")], delta)
    assert both == gaussian_epsilon(Fraction(1, 2), delta)


def test_only_pure_parts_add_their_epsilons_at_delta_zero():
    assert composed_epsilon([pure("1/2"), pure("1/4"), pure("1/8")], 0) == 0.875
    assert composed_epsilon([pure("1/2"), gaussian(1)], 0) == math.inf
    assert composed_epsilon([], 0) == 0.0


def test_two_randomized_responses_by_hand():
    # Losses 2e, 0, -2e; for 0 <= x <= 2e: delta(x) = p^2 (1 - e^(x - 2e)), p = e^e / (1 + e^e).
    for epsilon, delta in ((0.25, 1e-6), (0.25, 1e-2), (2.0, 0.1)):
        p = 1 / (1 + math.exp(-epsilon))
        expected = 2 * epsilon + math.log1p(-delta / p**2)
        got = composed_epsilon([Cost.pure(Fraction(epsilon))] * 2, delta)
        assert expected * (1 - 1e-12) <= got <= expected * (1 + 1e-5)


def test_one_pure_part_with_gaussian_noise_by_hand():
    # delta(x) = p delta_mu(x - e) + (1 - p) delta_mu(x + e), with 50 digits.
    def true_delta(x, epsilon, mu):
        def curve(y):
            tail = lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2  # noqa: E731
            return tail(y / mu - mu / 2) - mpmath.exp(y) * tail(y / mu + mu / 2)

        p = 1 / (1 + mpmath.exp(-epsilon))
        return p * curve(x - epsilon) + (1 - p) * curve(x + epsilon)

    for e, m2, delta in (("1/2", "1/50", 1e-9), ("3/10", "1/4", 1e-6), ("1/50", "2", 1e-20)):
        cost = pure(e) + gaussian(m2)
        got = composed_epsilon([cost], delta)
        with mpmath.workdps(50):
            epsilon = mpmath.mpf(Fraction(e).numerator) / Fraction(e).denominator
            mu = mpmath.sqrt(mpmath.mpf(Fraction(m2).numerator) / Fraction(m2).denominator)
            assert true_delta(mpmath.mpf(got), epsilon, mu) <= delta
            assert true_delta(mpmath.mpf(got) * (1 - 1e-4), epsilon, mu) > delta


@pytest.mark.parametrize(
    ("mu_squared", "pures", "delta"),
    [
        (0.02, [("1/2", 1)], 1e-9),
        (0.02, [("1/2", 4)], 1e-9),
        (0, [("1/10", 1)] * 50, 1e-6),
        (0.1, [("1/10", 1)] * 50, 1e-6),
        (0, [("1/10", 8)] * 50, 1e-6),
        (0.1, [("3/10", 1), ("7/20", 5)], 1e-6),
        (2.0, [("1", 3), ("1/7", 1)], 1e-5),
    ],
)
def test_mixtures_agree_with_dp_accounting(mu_squared, pures, delta):
    costs = [Cost.pure(Fraction(e), steps) for e, steps in pures]
    if mu_squared:
        costs.append(Cost.gaussian(Fraction(mu_squared)))
    ours = composed_epsilon(costs, delta)
    reference = reference_epsilon(mu_squared, [(Fraction(e), s) for e, s in pures], delta)
    # Both are upper bounds; ours may not be smaller than the reference by more than its grid.
    assert reference * (1 - 1e-4) <= ours <= reference * (1 + 1e-3)


def test_mixtures_are_never_worse_than_the_shifted_curve():
    for e, m2, delta in itertools.product(("1/100", "1/2", "5"), ("1/1000", "1"), (1e-9, 1e-30)):
        simple = float(Fraction(e)) + gaussian_epsilon(math.sqrt(Fraction(m2)), delta)
        assert composed_epsilon([pure(e), gaussian(m2)], delta) <= simple * (1 + 1e-12)


def test_too_many_parts_fall_back_to_a_sound_bound():
    many = [Cost.pure(Fraction(1, 10**6), 1)] * 3
    direct = composed_epsilon(many, 1e-6)
    assert 0 <= direct <= 3e-6
    huge = composed_epsilon([pure(200), pure(150)], 1e-9)
    assert huge <= 350


def test_views_as_rho_and_as_mu():
    # rho = mu^2/2 + epsilon^2/2 = 1/2 + 2.
    assert rho_of(gaussian(1) + pure(2)) == Fraction(5, 2)
    one = float(mu_squared_of(gaussian(1) + Cost.pure(Fraction(math.log(3)))))
    assert math.isclose(one, 1 + (2 * 0.6744897501960817) ** 2, rel_tol=1e-14)


def brute_force_delta(shifts, rate, epsilon):
    """Hockey-stick divergence of vector discrete Laplace noise between 0 and ``shifts``."""
    reach = 60
    grid = np.arange(-reach, reach + 1)
    total = np.ones(())
    loss = np.zeros(())
    for shift in shifts:
        mass = np.exp(-rate * np.abs(grid)) * np.tanh(rate / 2)
        change = rate * (np.abs(grid - shift) - np.abs(grid))
        total = np.multiply.outer(total, mass)
        loss = np.add.outer(loss, change)
    return float((total * np.maximum(0, 1 - np.exp(epsilon - loss))).sum())


def walk_delta(epsilon_total, steps, epsilon):
    losses, masses = _walk(PurePart(Fraction(epsilon_total), steps))
    return float((masses * np.maximum(0, 1 - np.exp(epsilon - losses))).sum())


@pytest.mark.parametrize("shifts", [(1,), (3,), (1, 1), (2, 1), (1, 1, 1), (4, 3)])
def test_a_path_of_steps_dominates_vector_laplace_noise(shifts):
    """docs/proofs/accounting.md, Lemma 2; equality for one coordinate."""
    rate, steps = 0.6, sum(shifts)
    for x in np.linspace(-2.5, 2.5, 21):
        exact = brute_force_delta(shifts, rate, x)
        bound = walk_delta(rate * steps, steps, x)
        assert exact <= bound + 1e-9
        if len(shifts) == 1:
            assert math.isclose(exact, bound, abs_tol=1e-9)


def test_claiming_more_steps_than_there_are_would_be_wrong():
    """The twin of the test above: one step is not covered by the walk of ten."""
    assert brute_force_delta((1,), 0.6, 0.0) > walk_delta(0.6, 10, 0.0) + 1e-3


@pytest.mark.parametrize("steps", [1, 7, 1024, 1025, 1500, 104_729, 2**40, 2**61 - 1])
def test_joined_steps_still_cover_the_path(steps):
    joined, rate = _coarser(PurePart(Fraction(1, 3), steps))
    size = Fraction(rate) * 3 * steps  # unit steps in one joined step
    assert joined <= 1024
    assert joined * size >= steps
    assert joined * size <= steps * Fraction(1002, 1000)
    # No other size of so many that were looked at covers less beyond the path.
    least = -(-steps // 1024)
    assert float(joined * size) == pytest.approx(
        min(-(-steps // s) * s for s in range(least, least + 64)), rel=1e-12
    )


def test_fits_is_exact_at_the_edge():
    third = Fraction(1, 3)
    assert fits([Cost.pure(third)] * 3, Budget(epsilon=1))
    assert not fits([Cost.pure(third)] * 3 + [Cost.pure(Fraction(1, 10**9))], Budget(epsilon=1))
    assert not fits([gaussian(1)], Budget(epsilon=100))
    assert fits([gaussian(1), pure(1)], Budget(rho=1))
    assert not fits([gaussian(1), pure("1.0001")], Budget(rho=1))
    assert fits([gaussian("9/25"), gaussian("16/25")], Budget(mu=1))
    budget = Budget(epsilon=1, delta=1e-9)
    mu_squared = Fraction(budget.gaussian_mu) ** 2
    assert fits([Cost.gaussian(mu_squared / 2)] * 2, budget)
    assert not fits([Cost.gaussian(mu_squared * (1 + Fraction(1, 10**12)))], budget)
    assert fits([Cost.pure(Fraction(1))], budget)


@pytest.mark.parametrize("parts", [[], (1,), (Cost.pure(1),), "gaussian"])
def test_a_cost_holds_parts_only(parts):
    with pytest.raises(BudgetError, match="tuple of GaussianPart, PurePart and ApproximatePart"):
        Cost(parts)


@pytest.mark.parametrize(("mu", "epsilon"), [(-1, 0), (1, -1)])
def test_the_curve_refuses_negative_parameters(mu, epsilon):
    with pytest.raises(BudgetError, match="at least 0"):
        gaussian_delta(mu, epsilon)


def test_amounts_are_exact_fractions_also_where_there_are_none():
    for cost in (Cost.pure(1), Cost.gaussian(1), Cost(())):
        for amount in (cost.mu_squared, cost.pure_epsilon, rho_of(cost), mu_squared_of(cost)):
            assert type(amount) is Fraction


def test_a_choice_counts_for_a_quarter_in_rho_and_as_half_its_range_in_mu():
    one = Cost.choice(Fraction(1, 2))
    assert one.pure_epsilon == Fraction(1, 2)
    assert rho_of(one) == Fraction(1, 32) == rho_of(Cost.pure(Fraction(1, 2))) / 4
    assert mu_squared_of(one) == mu_squared_of(Cost.pure(Fraction(1, 4)))
    assert Cost.from_json(json.loads(json.dumps(one.as_json()))) == one
    assert "range" not in Cost.pure(1).as_json()[0]  # old entries stay as they are
    assert fits([Cost.choice(1)] * 8, Budget(rho=1))
    assert not fits([Cost.pure(1)] * 8, Budget(rho=1))
    assert fits([Cost.choice(1)], Budget(epsilon=1))
    assert not fits([Cost.choice(Fraction(101, 100))], Budget(epsilon=1))
    assert composed_epsilon([Cost.choice(Fraction(1, 10))] * 400, 1e-6) < composed_epsilon(
        [Cost.pure(Fraction(1, 10))] * 400, 1e-6
    )


@pytest.mark.parametrize("eta", [0.1, 1.0, 5.0])
def test_no_pair_of_bounded_range_has_a_divergence_above_its_rho(eta):
    """D_alpha <= alpha eta^2/8 for all two-point pairs whose log odds differ by eta, the worst."""
    rho = float(rho_of(Cost.choice(Fraction(eta))))
    worst = 0.0
    for x in np.linspace(-12, 12 - eta, 400):
        p, q = 1 / (1 + np.exp(-x - eta)), 1 / (1 + np.exp(-x))
        for alpha in (1.001, 1.5, 2.0, 10.0, 100.0):
            masses = np.array([[p, q], [1 - p, 1 - q]])
            logs = alpha * np.log(masses[:, 0]) + (1 - alpha) * np.log(masses[:, 1])
            divergence = np.logaddexp(*logs) / (alpha - 1)
            worst = max(worst, float(divergence) / alpha)
    assert worst <= rho * (1 + 1e-9)
    if eta < 1:
        assert worst > 0.99 * rho  # attained in the limit: a smaller rho would be wrong


@pytest.mark.parametrize("item", [{"range": 1}, {"range": True, "steps": 2}])
def test_a_range_that_is_none_is_refused(item):
    with pytest.raises(BudgetError, match="has_range"):
        Cost.from_json([{"kind": "pure", "epsilon": "1", **item}])


@pytest.mark.parametrize(
    "cost",
    [
        Cost.gaussian(Fraction(1, 25)),
        Cost.gaussian(Fraction(1)) + Cost.gaussian(Fraction(1, 3)),
        Cost.pure(Fraction(1)),
        Cost.pure(Fraction(1, 2), 2),
        Cost.gaussian(Fraction(1, 9)) + Cost.pure(Fraction(1, 2)),
    ],
    ids=repr,
)
def test_events_of_dp_accounting_have_the_same_epsilon(cost):
    accountant = PLDAccountant(value_discretization_interval=2.0**-14)
    accountant.compose(cost.dp_event())
    assert accountant.get_epsilon(1e-6) == pytest.approx(composed_epsilon([cost], 1e-6), abs=1e-6)


def test_events_of_many_parts_are_counted():
    event = Cost((*pure("1/8").parts * 3, *gaussian(4).parts)).dp_event()
    noise, walk = event.events
    assert noise == dp_accounting.GaussianDpEvent(0.5)
    assert (walk.event, walk.count) == (DiscreteLaplaceDpEvent(0.125, 1), 3)
    assert Cost(()).dp_event() == dp_accounting.ComposedDpEvent([])


@given(st.fractions(Fraction(1, 10**6), 10**6))
def test_events_never_claim_more_noise_than_there_is(mu_squared):
    event = Cost.gaussian(mu_squared).dp_event()
    assert Fraction(event.noise_multiplier) ** 2 * mu_squared <= 1
    assert Fraction(event.noise_multiplier) ** 2 * mu_squared >= 1 - Fraction(1, 2**50)


def test_a_cost_with_a_delta_of_its_own_has_no_event_but_its_other_parts_have():
    cost = pure(1) + Cost.approximate(Fraction(1, 10**7))
    with pytest.raises(BudgetError, match="without_events"):
        cost.dp_event()
    assert cost.without_events.dp_event() == DiscreteLaplaceDpEvent(1.0, 1)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BudgetError, match=r"sfumato\[accounting\]"):
        pure(1).dp_event()
