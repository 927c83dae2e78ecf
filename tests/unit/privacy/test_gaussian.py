# SPDX-License-Identifier: Apache-2.0
"""The Gaussian curve against mpmath at 400 digits: right value, right side."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import flint
import mpmath
import pytest

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import gaussian_delta, gaussian_epsilon

DIGITS = 400


def true_delta(epsilon, mu):
    """Balle, Wang 2018, Theorem 8, in numbers long enough for every case below."""
    with mpmath.workdps(DIGITS):
        eps, m = (mpmath.mpf(x.numerator) / x.denominator for x in (epsilon, mu))
        tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
        return tail(eps / m - m / 2) - mpmath.exp(eps) * tail(eps / m + m / 2)


def at_most(value, bound):
    with mpmath.workdps(DIGITS):
        return value <= mpmath.mpf(bound.numerator) / bound.denominator


CASES = [
    (epsilon, delta)
    for epsilon in ("1e-8", "0.01", "1", "3.7", "50", "2000")
    for delta in ("1e-30", "1e-9", "1e-3", "0.4")
] + [("1e-60", "1e-150")]  # tails that agree in 500 bits


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_gaussian_mu_is_the_largest_double_within_the_budget(epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta)
    mu = budget.gaussian_mu
    above = math.nextafter(mu, math.inf)
    assert at_most(true_delta(budget.epsilon, Fraction(mu)), budget.delta)
    assert not at_most(true_delta(budget.epsilon, Fraction(above)), budget.delta)


@pytest.mark.parametrize("mu", ["1e-7", "0.02", "1", "6", "40"])
@pytest.mark.parametrize("delta", ["1e-30", "1e-9", "0.01"])
def test_gaussian_epsilon_is_the_smallest_double_that_holds(mu, delta):
    mu, delta = Fraction(mu), Fraction(delta)
    epsilon = gaussian_epsilon(mu, delta)
    assert at_most(true_delta(Fraction(epsilon), mu), delta)
    if epsilon > 0:
        below = math.nextafter(epsilon, 0)
        assert not at_most(true_delta(Fraction(below), mu), delta)


@pytest.mark.parametrize("mu", ["1e-6", "0.3", "1", "9"])
@pytest.mark.parametrize("epsilon", ["0", "1e-6", "0.7", "12"])
def test_gaussian_delta_is_the_smallest_double_above_the_truth(mu, epsilon):
    mu, epsilon = Fraction(mu), Fraction(epsilon)
    delta = gaussian_delta(mu, epsilon)
    truth = true_delta(epsilon, mu)
    assert at_most(truth, Fraction(delta))
    assert delta == 5e-324 or not at_most(truth, Fraction(math.nextafter(delta, 0)))


def test_hand_computed_points_of_the_curve():
    # epsilon = 0: total variation Phi(mu/2) - Phi(-mu/2); Phi(0.5) = 0.691462461274013...
    assert math.isclose(gaussian_delta(1, 0), 2 * 0.691462461274013 - 1, rel_tol=1e-14)
    # epsilon = mu^2/2: delta = 1/2 - e^(mu^2/2) Phi(-mu); Phi(-1) = 0.158655253931457...
    expected = 0.5 - math.exp(0.5) * 0.158655253931457
    assert math.isclose(gaussian_delta(1, 0.5), expected, rel_tol=1e-13)
    assert gaussian_epsilon(1, 0.39) == 0.0  # delta above the total variation


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-9), (0.1, 1e-6), (5, 1e-5), (0.5, 0.01)])
def test_gaussian_mu_agrees_with_dp_accounting(epsilon, delta):
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert math.isclose(Budget(epsilon=epsilon, delta=delta).gaussian_mu, 1 / sigma, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1e-100", "1e-300"), ("1e6", "1e-300"), ("1e6", "0.999"), ("1e-100", "0.5")],
)
def test_extreme_budgets_have_a_finite_positive_mu_that_converts_back(epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta)
    mu = budget.gaussian_mu
    assert 0 < mu < math.inf
    assert gaussian_epsilon(Fraction(mu), budget.delta) <= gaussian.float_up(budget.epsilon)


def test_more_epsilon_or_more_delta_never_allows_less():
    mus = [Budget(epsilon=e, delta=1e-9).gaussian_mu for e in (0.1, 0.2, 1, 1.0000001, 8)]
    assert mus == sorted(set(mus))
    mus = [Budget(epsilon=1, delta=d).gaussian_mu for d in (1e-30, 1e-12, 1e-9, 1e-3)]
    assert mus == sorted(set(mus))


def test_pure_to_gaussian_corner_by_hand_and_by_mpmath():
    # 1/(1 + e^log 3) = 1/4 and Phi(-0.6744897501960817) = 1/4.
    mu = gaussian.mu_of_pure_up(Fraction(math.log(3)))
    assert math.isclose(mu, 2 * 0.6744897501960817, rel_tol=1e-15)
    for epsilon in (Fraction(1, 10**6), Fraction(1), Fraction(30)):
        mu = gaussian.mu_of_pure_up(epsilon)
        with mpmath.workdps(60):
            corner = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator))
            assert mpmath.ncdf(-mpmath.mpf(mu) / 2) <= corner
            assert mpmath.ncdf(-mpmath.mpf(math.nextafter(mu, 0)) / 2) > corner
        assert gaussian.pure_of_mu_down(Fraction(mu)) >= float(epsilon)


def test_closed_bounds_beyond_the_range_of_balls_stay_on_the_safe_side():
    just_below, just_above = Fraction(10**7), Fraction(10**7) + 1
    assert gaussian.gaussian_epsilon_up(just_above, Fraction(1, 10**9)) >= (
        gaussian.gaussian_epsilon_up(just_below, Fraction(1, 10**9))
    )
    assert gaussian.mu_of_pure_up(just_above) >= gaussian.mu_of_pure_up(just_below)


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(2), Fraction(10**40), Fraction(0)])
def test_rounded_roots_and_floats_bracket_the_exact_value(value):
    assert (
        Fraction(gaussian.sqrt_down(value)) ** 2 <= value <= Fraction(gaussian.sqrt_up(value)) ** 2
    )
    assert Fraction(gaussian.float_down(value)) <= value <= Fraction(gaussian.float_up(value))


@pytest.mark.parametrize(("mu", "delta"), [(-1, 1e-9), (1, 0), (1, 1), (1, 2), ("x", 0.1)])
def test_conversions_refuse_bad_parameters(mu, delta):
    with pytest.raises(BudgetError):
        gaussian_epsilon(mu, delta)


LARGEST = Fraction(math.ldexp(2 - 2.0**-52, 1023))


def test_numbers_beyond_all_doubles_are_rounded_to_the_safe_side():
    far = Fraction(10**400)
    assert gaussian.float_up(far) == math.inf
    assert gaussian.float_down(far) == LARGEST
    assert gaussian.float_up(-far) == -LARGEST
    assert gaussian.float_down(-far) == -math.inf


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(7, 5), Fraction(10**40, 7)])
def test_rounded_floats_and_roots_are_the_nearest_on_their_side(value):
    above, below = gaussian.float_up(value), gaussian.float_down(value)
    assert below == math.nextafter(above, 0) < value < above
    root = gaussian.sqrt_down(value)
    assert Fraction(math.nextafter(root, math.inf)) ** 2 > value
    up = gaussian.sqrt_up(value)
    assert Fraction(math.nextafter(math.nextafter(up, 0), 0)) ** 2 < value


@pytest.mark.parametrize("value", [Fraction(9, 4), Fraction(1, 2**200), Fraction(4**300)])
def test_an_exact_root_is_itself_on_both_sides(value):
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    assert gaussian.sqrt_down(value) == gaussian.sqrt_up(value) == root


def test_no_noise_and_no_delta_are_decided_without_the_curve():
    zero, one = Fraction(0), Fraction(1)
    assert gaussian.gaussian_within(zero, one, zero)
    assert not gaussian.gaussian_within(zero, one, -one)
    assert gaussian.gaussian_within(one, zero, one)
    assert not gaussian.gaussian_within(one, one, zero)
    assert gaussian.gaussian_delta_up(zero, zero) == 0.0
    assert gaussian.gaussian_epsilon_up(zero, Fraction(1, 10**9)) == 0.0


@pytest.mark.parametrize("step", [10**7, 10**7 + 1])
def test_a_loss_on_top_of_a_gaussian_has_a_safe_bound_at_any_size(step):
    """kappa + mu_of_pure is above the truth; the exact search stays within it."""
    for mu_squared, loss in ((Fraction(step), Fraction(1)), (Fraction(1), Fraction(step))):
        found = gaussian.mu_of_loss_up(mu_squared, loss)
        bound = Fraction(gaussian.sqrt_up(mu_squared)) + Fraction(gaussian.mu_of_pure_up(loss))
        assert mu_squared < Fraction(found) ** 2
        assert Fraction(found) <= bound * (1 + Fraction(1, 10**15))
        assert gaussian.loss_of_mu_down(Fraction(found), mu_squared) >= float(loss) * (1 - 1e-9)


def test_a_gaussian_that_is_used_up_leaves_no_loss():
    assert gaussian.loss_of_mu_down(Fraction(2), Fraction(4)) == 0.0
    assert gaussian.loss_of_mu_down(Fraction(1), Fraction(4)) == 0.0
    assert gaussian.loss_of_mu_down(Fraction(2), Fraction(0)) == gaussian.pure_of_mu_down(
        Fraction(2)
    )


def test_balls_outside_of_the_doubles_become_the_nearest_safe_double():
    huge, tiny = flint.arb(2) ** 2000, flint.arb(2) ** -2000
    assert gaussian._double_above(huge) == gaussian._double_above(flint.arb("nan")) == math.inf
    assert gaussian._double_above(-huge) == -LARGEST
    assert gaussian._double_above(tiny) == 5e-324
    assert gaussian._double_above(-tiny) == 0.0
    assert gaussian._double_above(flint.arb(3)) == 3.0
    assert gaussian._double_above(flint.arb(2) ** -1074) == 5e-324


def test_a_boundary_is_found_from_any_guess():
    for guess in (1e-300, 0.1, 3.0, 1e300):
        assert gaussian._boundary(lambda x: x <= 3, guess) == (3.0, math.nextafter(3, 4))
    assert gaussian._boundary(lambda _: False, 1.0) == (0.0, 5e-324)
    assert gaussian._boundary(lambda _: True, 1.0)[1] == math.inf


def test_a_comparison_that_stays_open_counts_against_the_mechanism():
    assert not gaussian._decide(lambda: flint.arb(0, 1))  # a ball around 0, at any precision
    assert gaussian._decide(lambda: flint.arb(0))
    assert gaussian._float_above(lambda: flint.arb(1, 0.5)) == pytest.approx(1.5, abs=1e-8)


@pytest.mark.parametrize("delta", [Fraction(1, 10**3), Fraction(1, 10**30)])
def test_closed_bounds_are_those_of_the_paper_and_hardly_more(delta):
    """Bun, Steinke 2016, Proposition 1.3, from mu^2 = 10^7 on; below it the curve says less."""
    for mu_squared in (Fraction(10**7), Fraction(10**7) + 1, Fraction(10**9)):
        mu = math.sqrt(mu_squared)
        bound = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
        found = gaussian.gaussian_epsilon_up(mu_squared, delta)
        if mu_squared > 10**7:
            assert bound <= found <= bound * (1 + 1e-9)
        else:
            assert 0.9 * bound < found < bound
