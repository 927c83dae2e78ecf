# SPDX-License-Identifier: Apache-2.0
"""What hits prove: Clopper-Pearson exactly, claims, and what the audit can miss."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom, binomtest, norm

from sfumato.privacy.cost import Cost, composed_epsilon
from sfumato_audit.examine import EPSILONS, MIXED_DELTA, Claim, chance_of_missing, hit_bounds


@pytest.mark.parametrize("hits", [0, 1, 7, 50, 99, 100])
@pytest.mark.parametrize("alpha", [1e-3, 1e-9])
def test_bounds_are_those_of_clopper_and_pearson(hits, alpha):
    p, q = hit_bounds(np.array([float(hits)]), np.array([float(hits)]), 100, alpha)
    # Two sides of alpha / 2 each: the interval of level 1 - alpha.
    known = binomtest(hits, 100).proportion_ci(1 - alpha, "exact")
    assert p[0] == pytest.approx(known.low, rel=1e-6, abs=1e-12)
    assert q[0] == pytest.approx(known.high, rel=1e-6)


def test_bounds_are_wrong_at_most_as_often_as_said_by_enumeration():
    """All outcomes of 60 runs: the chance that a lower bound exceeds the truth."""
    runs, alpha = 60, 0.02
    hits = np.arange(runs + 1.0)
    p, q = hit_bounds(hits, hits, runs, alpha)
    for truth in (0.01, 0.2, 0.5, 0.93):
        mass = binom.pmf(hits, runs, truth)
        assert mass[p > truth].sum() <= alpha / 2
        assert mass[q < truth].sum() <= alpha / 2
    # The twin: bounds at the wrong level are wrong too often.
    p, _ = hit_bounds(hits, hits, runs, 40 * alpha)
    assert binom.pmf(hits, runs, 0.5)[p > 0.5].sum() > alpha / 2


def test_a_claim_is_that_of_its_cost():
    assert Claim.of(Cost.pure(Fraction(1, 2))) == Claim("epsilon", 0.5)
    assert Claim.of(Cost.gaussian(Fraction(9, 4))) == Claim("mu", 1.5)
    mixed = Cost.gaussian(1) + Cost.pure(1)
    expected = composed_epsilon([mixed], str(MIXED_DELTA))
    assert Claim.of(mixed) == Claim("epsilon", expected, MIXED_DELTA)


def test_the_least_amounts_are_tight_for_the_mechanisms_that_attain_them():
    """Randomized response attains its epsilon, a half-space of Gaussian noise its mu."""
    p, q = np.array([exp(1) / (1 + exp(1))]), np.array([1 / (1 + exp(1))])
    assert Claim("epsilon", 1).minimum_loss(p, q)[0] == pytest.approx(1)
    for cut in (-1.0, 0.3, 2.0):
        p, q = norm.sf(np.array([cut - 1.5])), norm.sf(np.array([cut]))
        assert Claim("mu", 1).minimum_loss(p, q)[0] == pytest.approx(1.5)
    with_delta = Claim("epsilon", 1, 0.1).minimum_loss(np.array([0.6]), np.array([0.1]))
    assert with_delta[0] == pytest.approx(log(5))
    assert Claim("epsilon", 1).minimum_loss(np.array([0.1]), np.array([0.5]))[0] == 0


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_gaussian_curve_agrees_with_dp_accounting(mu, epsilon):
    known = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    theirs = known.get_delta_for_epsilon(epsilon)
    ours = Claim("mu", mu).delta_at(epsilon)
    assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-9)


def test_the_curve_of_a_pure_claim_is_that_of_randomized_response():
    known = pld.from_randomized_response(1 / (1 + exp(1)) * 2, 2)
    for epsilon in (0.0, 0.3, 0.9, 1.2):
        theirs = known.get_delta_for_epsilon(epsilon)
        assert Claim("epsilon", 1).delta_at(epsilon) == pytest.approx(theirs, abs=1e-3)


def test_the_chance_of_missing_bounds_what_enumeration_gives():
    claim, p, q, runs, alpha = Claim("epsilon", 0.2), 0.6, 0.2, 400, 1e-3
    a, b = np.meshgrid(np.arange(runs + 1.0), np.arange(runs + 1.0), indexing="ij")
    proved = claim.minimum_loss(*hit_bounds(a, b, runs, alpha))
    mass = binom.pmf(a, runs, p) * binom.pmf(b, runs, q)
    missed = mass[proved <= claim.amount].sum()
    bound = chance_of_missing(claim, p, q, runs, alpha)
    assert missed <= bound < 0.1
    assert chance_of_missing(claim, 0.3, 0.25, runs, alpha) == 1.0
