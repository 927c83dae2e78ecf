# SPDX-License-Identifier: Apache-2.0
"""Noise for a budget, and forecasts against the exact laws of all outcomes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import prod

import numpy as np
import pytest

from sfumato.errors import BudgetError, PlanError
from sfumato.planning.sparse_plans import (
    alarm_probability,
    alarmed,
    centred,
    failure_probability,
    missed,
    noise_of,
    sparse_of_epsilon,
    sparse_of_mu_squared,
    tolerance,
)
from sfumato.privacy import gaussian
from sfumato.privacy.cost import Cost, mu_squared_of
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw, noise_cost
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import answer
from tests.shared.sparse_reference import law_of_patterns, survival


@pytest.mark.parametrize("is_monotone", [False, True])
@pytest.mark.parametrize("discoveries", [1, 2, 10, 100])
def test_epsilon_is_split_as_lyu_su_and_li_say(discoveries: int, is_monotone: bool) -> None:
    law = sparse_of_epsilon(Fraction(1), discoveries, 3, is_monotone=is_monotone)
    first = 3 / law.threshold.scale
    rest = law.cost.pure_epsilon - first
    ratio = (discoveries if is_monotone else 2 * discoveries) ** (2 / 3)
    assert float(rest / first) == pytest.approx(ratio, rel=1e-6)
    assert law.query.scale == pytest.approx(law.moved * discoveries / float(rest), rel=1e-9)
    assert 1 - Fraction(1, 10**6) < law.cost.pure_epsilon <= 1


def test_the_split_has_the_least_variance() -> None:
    best = sparse_of_epsilon(Fraction(1), 5)
    least = 2 * (best.threshold.scale**2 + best.query.scale**2)
    for first in (Fraction(i, 50) for i in range(1, 50)):
        other = 2 * ((1 / first) ** 2 + (10 / (1 - first)) ** 2)
        assert other > least * Fraction(999_999, 10**6)


@pytest.mark.parametrize("threshold", ["laplace", "gaussian"])
@pytest.mark.parametrize("query", ["laplace", "gaussian"])
@pytest.mark.parametrize("mu_squared", [Fraction(1, 400), Fraction(1, 4), Fraction(9)])
def test_what_was_given_is_nearly_used_up_and_never_exceeded(
    mu_squared: Fraction, query: str, threshold: str
) -> None:
    law = sparse_of_mu_squared(
        mu_squared,
        3,
        2**12,
        is_monotone=True,
        threshold=threshold,
        query=query,  # type: ignore[arg-type]
    )
    used = mu_squared_of(law.cost)
    assert used <= mu_squared
    assert used > mu_squared * Fraction(99, 100)


def test_a_gaussian_threshold_finds_better_than_a_laplace_one_at_equal_mu() -> None:
    found = {
        kind: tolerance(
            sparse_of_mu_squared(Fraction(1, 16), threshold=kind),  # type: ignore[arg-type]
            1000,
            0.05,
        )
        for kind in ("gaussian", "laplace")
    }
    assert found["gaussian"] < 0.9 * found["laplace"]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_number_costs_at_most_its_share(kind: str) -> None:
    share = Fraction(1, 7)
    law = noise_of(share, kind, 5)  # type: ignore[arg-type]
    cost = noise_cost(law, 5)
    used = cost.mu_squared if kind == "gaussian" else cost.pure_epsilon
    assert share * Fraction(999_999, 10**6) < used <= share
    assert noise_cost(NoiseLaw("laplace", Fraction(10)), 5) == Cost.pure(Fraction(1, 2), steps=5)


def test_loss_and_mu_are_inverse_to_each_other() -> None:
    for nu, loss in itertools.product((0.01, 0.5, 2.0), (0.05, 1.0, 6.0)):
        mu = gaussian.mu_of_loss_up(Fraction(nu) ** 2, Fraction(loss))
        assert gaussian.loss_of_mu_down(Fraction(mu), Fraction(nu) ** 2) == pytest.approx(loss)
        assert gaussian.mu_of_loss_up(Fraction(nu) ** 2, Fraction(loss)) > nu
    assert gaussian.mu_of_loss_up(Fraction(0), Fraction(1)) == gaussian.mu_of_pure_up(Fraction(1))
    assert gaussian.loss_of_mu_down(Fraction(1), Fraction(2)) == 0
    assert gaussian.mu_of_loss_up(Fraction(10**9), Fraction(1)) > 10**4.5


ONE_SIDED = NoiseLaw("exponential", Fraction(3))
LAWS = [
    SparseLaw(NoiseLaw("exponential", Fraction(2)), ONE_SIDED, offset=7),
    SparseLaw(NoiseLaw("gaussian", Fraction(2)), ONE_SIDED, offset=7),
    SparseLaw(NoiseLaw("laplace", Fraction(2)), NoiseLaw("laplace", Fraction(3))),
    SparseLaw(NoiseLaw("gaussian", Fraction(2)), NoiseLaw("laplace", Fraction(3))),
    SparseLaw(NoiseLaw("gaussian", Fraction(2)), NoiseLaw("gaussian", Fraction(3)), reach=15),
]


@pytest.mark.parametrize("law", LAWS)
def test_the_chance_of_an_alarm_is_that_of_the_listed_outcomes(law: SparseLaw) -> None:
    for gap in (-20, -3, 0, 1, 7, 60):
        assert alarm_probability(law, gap) == pytest.approx(
            law_of_patterns(law, [gap + law.offset])[(True,)], abs=1e-12
        )


@pytest.mark.parametrize("law", LAWS)
def test_the_chance_of_a_failure_is_summed_over_the_laws(law: SparseLaw) -> None:
    """Brute force over all rho: k comparisons err unless every noise is within alpha of rho."""
    z = np.arange(-300, 301)
    weight = survival(law.threshold, z) - survival(law.threshold, z + 1)
    weight[z < 0] *= law.threshold.kind != "exponential"  # 1 - 1 there
    for k, alpha in ((1, 4), (5, 9), (400, 25)):
        top = z + law.offset + alpha + 1
        top = top if law.reach is None else np.minimum(top, law.reach)
        low = z + law.offset - alpha
        inside = np.clip(survival(law.query, low) - survival(law.query, top), 0, 1)
        expected = 1 - float((weight * inside**k).sum())
        assert failure_probability(law, k, alpha) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_the_tolerance_is_the_least_that_keeps_beta(law: SparseLaw) -> None:
    alpha = tolerance(law, 10, 0.05)
    assert failure_probability(law, 10, alpha) <= 0.05 < failure_probability(law, 10, alpha - 1)
    # A false alarm alone is rarer: scores alpha + 1 below, none of 10 may be found above.
    low = law_of_patterns(law, [law.offset + alpha + 1] * 10)[(False,) * 10]
    assert 1 - low <= 0.05
    near = law_of_patterns(law, [law.offset + alpha // 3] * 10)[(False,) * 10]
    assert 1 - near > 0.05  # a smaller one


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("beta", [0.05, 0.5, 0.9])
def test_misses_and_alarms_are_bounded_as_closely_as_can_be(law: SparseLaw, beta: float) -> None:
    """Against all outcomes of scores at the bound and one step nearer."""

    x = missed(law, 1, beta)
    found = [law_of_patterns(law, [law.offset - by])[(False,)] for by in (x, x - 1)]
    assert found[0] <= beta + 1e-12
    assert found[1] > beta - 1e-12
    for k in (1, 10):
        x = alarmed(law, k, beta)
        found = [1 - law_of_patterns(law, [law.offset + by] * k)[(False,) * k] for by in (x + 1, x)]
        assert found[0] <= beta + 1e-12
        assert found[1] > beta - 1e-12
    assert missed(law, 10, beta) >= missed(law, 1, beta)
    assert missed(law, 10, beta, epochs=2) >= missed(law, 5, beta)


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1), 0.5])
def test_the_threshold_takes_a_part_of_the_budget(share: object) -> None:
    for of in (sparse_of_epsilon, sparse_of_mu_squared):
        with pytest.raises(PlanError, match="between 0 and 1"):
            of(Fraction(1), share=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [Fraction(1, 4), Fraction(1, 2)])
@pytest.mark.parametrize("query", ["laplace", "exponential"])
def test_whatever_the_threshold_takes_the_budget_is_kept(share: Fraction, query: str) -> None:
    pure = sparse_of_epsilon(Fraction(1), share=share, query=query)  # type: ignore[arg-type]
    assert 0.999 < pure.cost.pure_epsilon <= 1
    assert float(1 / pure.threshold.scale) == pytest.approx(float(share), rel=1e-6)
    mixed = sparse_of_mu_squared(Fraction(1), share=share, query=query)  # type: ignore[arg-type]
    assert 0.999 < mixed.cost.mu_squared <= 1


def test_several_epochs_fail_at_most_as_often_as_the_forecast_says() -> None:
    law = LAWS[2]
    bound = failure_probability(law, 12, 8, epochs=3)
    for split in ((4, 4, 4), (10, 1, 1), (6, 5, 1)):
        none = prod(1 - failure_probability(law, k, 8) for k in split)
        assert 1 - none <= bound + 1e-12


@pytest.mark.parametrize("threshold", ["exponential", "gaussian", "laplace"])
def test_the_offset_of_one_sided_noise_is_nearly_the_best_one(threshold: str) -> None:
    first, second = NoiseLaw(threshold, Fraction(5)), NoiseLaw("exponential", Fraction(8))  # type: ignore[arg-type]
    found = centred(SparseLaw(first, second), 30, 0.1, 2)
    best = min(
        tolerance(SparseLaw(first, second, offset=o), 30, 0.1, 2)
        for o in range(found.offset - 12, found.offset + 13)
    )
    assert tolerance(found, 30, 0.1, 2) <= best + 2
    assert tolerance(SparseLaw(first, second), 30, 0.1, 2) > best + 5  # not centred at all
    assert found.cost == SparseLaw(first, second).cost


def test_symmetric_noise_is_centred_already() -> None:
    assert centred(LAWS[2], 30, 0.1) == LAWS[2]


def test_one_sided_noise_is_never_added_to_a_number() -> None:
    with pytest.raises(BudgetError, match="comparisons"):
        noise_cost(ONE_SIDED, 1)
    with pytest.raises(PlanError, match="comparisons"):
        answer(Sensitive(3), ONE_SIDED)
    with pytest.raises(PlanError, match="noise of a number"):
        noise_of(Fraction(1), "exponential")
    with pytest.raises(PlanError, match="sparse_of_mu_squared"):
        sparse_of_epsilon(Fraction(1), threshold="gaussian")


def test_large_scales_are_summed_in_pieces_on_the_safe_side() -> None:
    """Scales 1000 times larger: so is the tolerance, or a bit more."""
    small, large = (
        SparseLaw(NoiseLaw("laplace", Fraction(20 * f)), NoiseLaw("laplace", Fraction(30 * f)))
        for f in (1, 1000)
    )
    ratio = tolerance(large, 50, 0.05) / tolerance(small, 50, 0.05)
    assert 985 < ratio < 1025


def test_what_cannot_be_is_said() -> None:
    short = SparseLaw(NoiseLaw("laplace", Fraction(2)), NoiseLaw("gaussian", Fraction(3)), reach=3)
    with pytest.raises(PlanError, match="reach"):
        tolerance(short, 100, 0.05)
    with pytest.raises(PlanError, match="beta"):
        tolerance(LAWS[0], 10, 1.5)
    with pytest.raises(PlanError, match="exact Fraction"):
        sparse_of_epsilon(0.5)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="cannot be drawn"):
        sparse_of_epsilon(Fraction(1, 10**14))
    with pytest.raises(PlanError, match="cannot be drawn"):
        sparse_of_epsilon(Fraction(10**5))
    with pytest.raises(PlanError, match="false_alarm"):
        sparse_of_epsilon(Fraction(1), query="gaussian", false_alarm=Fraction(2, 3))
