# SPDX-License-Identifier: Apache-2.0
"""What a search for a range costs, and where its walks stop."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sfumato.errors import BudgetError
from sfumato.privacy.discovery_laws import range_law
from sfumato.privacy.sparse_vector import NoiseLaw


@pytest.mark.parametrize("moves", [1, 2, 10])
def test_a_search_costs_exactly_its_epsilon_however_far_neighbours_are_apart(moves):
    law = range_law(Fraction(1, 10), moves)
    assert law.epsilon == Fraction(1, 10)


def test_each_step_costs_its_share():
    """A twentieth for the number, 3/20 for the middle, the rest for both ends together."""
    number, middle, ends = range_law(Fraction(1)).cost.pure_parts
    assert number.epsilon == Fraction(1, 20)
    assert middle.epsilon == Fraction(3, 20)
    assert ends.epsilon == Fraction(4, 5)


def test_the_threshold_is_a_share_of_the_records_and_never_below_the_noise():
    """13/10 of a twentieth of 10,000; and 3/5 of two scales of 2 / 0.08 = 25 each."""
    law = range_law(Fraction(1, 10))
    assert law.threshold(10_000) == 650
    assert law.threshold(0) == 30
    assert law.threshold(-500) == 30


def test_laws_that_the_proof_is_not_about_are_refused():
    law = range_law(Fraction(1))
    with pytest.raises(BudgetError, match="monotone"):
        replace(law, ends=replace(law.ends, is_monotone=False))
    with pytest.raises(BudgetError, match="monotone"):
        replace(law, ends=replace(law.ends, sensitivity=2))
    with pytest.raises(BudgetError, match="one end per side"):
        replace(law, ends=replace(law.ends, discoveries=2))
    with pytest.raises(BudgetError, match="Laplace"):
        replace(law, number=NoiseLaw("exponential", Fraction(1)))


@pytest.mark.parametrize("tails", [0, Fraction(1, 3), -1])
def test_tails_that_are_no_small_share_are_refused(tails):
    with pytest.raises(BudgetError, match="tails must be a share"):
        range_law(Fraction(1), tails=Fraction(tails))
