# SPDX-License-Identifier: Apache-2.0
"""Forecasts of selections against exact laws of small cases, and how far a person moves scores."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.ledger.account import fits
from sfumato.planning.adaptive_costs import Moves
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.selection_plans import (
    CandidateSet,
    candidates_of,
    check_candidates,
    forecast_selections,
    lost_by_choice,
    lost_by_counts,
    lost_by_flips,
    spread_of,
)
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.selection import MAXIMUM_RATE
from sfumato.types import Neighbours
from tests.unit.vault.mechanisms.test_select import flips, softmax

BUDGETS = [
    sf.Budget(epsilon=1),
    sf.Budget(epsilon=0.05),
    sf.Budget(epsilon=1, delta=1e-9),
    sf.Budget(rho=0.3),
    sf.Budget(mu=0.4),
]


def peeled(law: object, scores: list[int], rate: float, top: int) -> dict[tuple[int, ...], float]:
    """P(these places in this order), each by the law among those left."""
    out: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(top):
        longer: dict[tuple[int, ...], float] = {}
        for places, chance in out.items():
            left = [i for i in range(len(scores)) if i not in places]
            one = law([scores[i] for i in left], rate)  # type: ignore[operator]
            for i, p in zip(left, one, strict=True):
                longer[*places, i] = chance * float(p)
        out = longer
    return out


def lost(law: object, scores: list[int], rate: float, top: int, gap: int) -> float:
    """P(some score that was not chosen is ``gap`` or more above a chosen one)."""
    total = 0.0
    for places, chance in peeled(law, scores, rate, top).items():
        rest = max(s for i, s in enumerate(scores) if i not in places)
        total += chance * (rest - min(scores[i] for i in places) >= gap)
    return total


SCORES = [[0, 0, 0, 0, 0], [9, 5, 5, 1, 0], [3, 3, 0, 0, 0], [6, 3, 0, -3, -6], [4, 4, 4, 4, 0]]


@pytest.mark.parametrize("top", [1, 2, 3])
@pytest.mark.parametrize("gap", [1, 3, 5])
def test_the_loss_of_choices_is_never_more_than_its_bound(top: int, gap: int) -> None:
    for scores in SCORES:
        assert lost(softmax, scores, 0.4, top, gap) <= lost_by_choice(5, top, 0.4, gap) + 1e-12
        assert lost(flips, scores, 0.4, top, gap) <= lost_by_flips(5, top, 0.4, gap) + 1e-12


@pytest.mark.parametrize("top", [1, 2, 3])
def test_the_loss_of_choices_is_attained_by_scores_in_two_steps(top: int) -> None:
    """The twin of the bound: at 1.05 of the rate it would be broken."""
    worst = [3] * top + [0] * (5 - top)
    assert lost(softmax, worst, 0.4, top, 3) == pytest.approx(lost_by_choice(5, top, 0.4, 3))
    assert lost(softmax, worst, 0.4, top, 3) > lost_by_choice(5, top, 0.42, 3)
    if top == 1:
        assert lost(flips, worst, 0.4, 1, 3) == pytest.approx(lost_by_flips(5, 1, 0.4, 3))


def test_permute_and_flip_loses_least_and_half_as_often_far_away() -> None:
    for gap in (1, 4, 10, 40):
        assert lost_by_flips(100, 1, 0.5, gap) <= lost_by_choice(100, 1, 0.5, gap)
    assert lost_by_flips(100, 1, 0.5, 60) / lost_by_choice(100, 1, 0.5, 60) == pytest.approx(
        0.5, rel=1e-4
    )


def counted_loss(scores: list[int], top: int, units: int, gap: int) -> float:
    """P(lost) where every score gets discrete Laplace noise, by listing the noise of all."""
    q = exp(-1 / units)
    noise = np.arange(-28, 29)
    mass = (1 - q) / (1 + q) * q ** np.abs(noise)
    exact = np.array(scores)
    places = np.indices([noise.size] * len(scores)).reshape(len(scores), -1)
    order = np.argsort(-(exact[:, None] + noise[places]), axis=0, kind="stable")
    apart = exact[order[top:]].max(axis=0) - exact[order[:top]].min(axis=0)
    return float((mass[places].prod(axis=0) * (apart >= gap)).sum())


@pytest.mark.parametrize("top", [1, 2])
def test_the_loss_of_noise_on_every_score_is_bounded_and_nearly_attained(top: int) -> None:
    law = BlockNoise("laplace", 2, 0)
    bound = lost_by_counts(3, top, law, 3)
    worst = [3] * top + [0] * (3 - top)  # the best ones last: of equal noisy ones the first wins
    exact = counted_loss(worst[::-1], top, 2, 3)
    assert exact <= bound + 1e-9
    assert exact == pytest.approx(bound, rel=1e-4)
    assert counted_loss([7, 3, 0], top, 2, 3) <= bound
    assert (
        lost_by_counts(3, top, BlockNoise("laplace", 1, 0), 3) < exact
    )  # the twin: half the noise


def test_gaussian_noise_on_every_score_loses_as_a_simulation_says() -> None:
    law = BlockNoise("gaussian", 100, 0)
    noise = np.rint(np.random.default_rng(1).normal(0, 100, (20_000, 30)))
    rate = float((noise[:, 3:].max(axis=1) - noise[:, :3].min(axis=1) >= 350).mean())
    bound = lost_by_counts(30, 3, law, 350)
    assert rate == pytest.approx(bound, abs=6 * (0.25 / 20_000) ** 0.5)


# How far a person moves two scores apart


def brute(matrix: NDArray[np.float64], neighbours: Neighbours) -> float:
    columns = [*matrix.T, np.zeros(len(matrix))]
    steps = (
        columns
        if neighbours == "add-remove"
        else [a - b for a, b in itertools.product(columns, repeat=2)]
    )
    return max(float(np.ptp(step)) for step in steps)


@given(
    st.lists(st.lists(st.integers(-2, 3), min_size=6, max_size=6), min_size=2, max_size=4),
    st.sampled_from(["add-remove", "replace-one"]),
)
def test_the_spread_is_that_of_all_records(rows: list[list[int]], neighbours: Neighbours) -> None:
    matrix = np.array(rows, dtype=float)
    work = sf.explicit(sf.Domain({"a": 2, "b": 3}), ["a", "b"], matrix)
    assert spread_of(work, neighbours) == max(1, brute(matrix, neighbours))
    assert spread_of(work, neighbours, sf.PrivacyUnit("who", 5)) == 5 * spread_of(work, neighbours)


def test_a_large_workload_has_a_spread_by_its_ends_which_is_never_smaller() -> None:
    domain = sf.Domain({"job": 1200, "sex": 2})
    jobs = sf.marginals(domain, [["job"]])
    assert LIMITS.selection_entries < 1200 * 1200
    assert spread_of(jobs, "add-remove") == 1
    assert spread_of(jobs, "replace-one") == 2


def test_fractions_are_counted_in_steps() -> None:
    work = sf.explicit(sf.Domain({"a": 2}), ["a"], [[0.25, 0], [0, 1]])
    known = candidates_of(work, "add-remove")
    assert (known.bits, known.spread, known.one, known.whole) == (2, 4, 4, Moves(4, 16))


# Which mechanism


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("top", [1, 4])
@pytest.mark.parametrize("counts", [False, True])
def test_every_forecast_keeps_the_budget_and_uses_it(
    budget: sf.Budget, top: int, counts: bool
) -> None:
    known = candidates_of(sf.marginals(sf.Domain({"a": 9, "b": 4}), 1), "replace-one")
    found = forecast_selections(budget, known, top, with_counts=counts, confidence=0.95)
    assert list(found) == sorted(found, key=lambda f: f.objective)
    for each in found:
        assert fits([each.cost], budget), each.mechanism
        doubled = [each.cost, each.cost]
        assert not fits(doubled, budget), each.mechanism
        assert (each.half_width is None) == (not counts)


def test_few_of_many_overlapping_candidates_are_chosen_and_many_of_few_cells_counted() -> None:
    domain = sf.Domain({f"a{i}": 4 for i in range(8)})
    pairs = candidates_of(sf.marginals(domain, 2), "add-remove")
    cells = candidates_of(sf.marginals(domain, [["a0"]]), "add-remove")
    pure = sf.Budget(epsilon=1)

    def best(known: CandidateSet, top: int, budget: sf.Budget = pure) -> str:
        return forecast_selections(budget, known, top, with_counts=False, confidence=0.95)[
            0
        ].mechanism

    assert best(pairs, 1) == "permute-and-flip"
    assert best(cells, 3) == "laplace-counts"
    assert best(pairs, 1, sf.Budget(rho=0.5)) == "exponential"
    assert best(cells, 3, sf.Budget(rho=0.5)) == "gaussian-counts"


def test_in_rho_a_choice_has_four_times_the_budget_of_a_pure_one() -> None:
    """eta = sqrt(8 rho): twice the epsilon = sqrt(2 rho) of a pure choice."""
    known = CandidateSet(50, 0, 1, 1, Moves(50, 50), True, 18)
    [chosen] = forecast_selections(
        sf.Budget(rho=0.5), known, 1, with_counts=False, confidence=0.9, mechanism="exponential"
    )
    assert float(chosen.rate or 0) == pytest.approx(2)
    assert chosen.tolerance == np.floor(log(49 * 9) / 2)


def test_more_budget_never_promises_less() -> None:
    known = candidates_of(sf.marginals(sf.Domain({"a": 40}), 1), "add-remove")
    for counts in (False, True):
        last = np.inf
        for epsilon in (0.01, 0.02, 0.1, 0.5, 1, 5, 50):
            budget = sf.Budget(epsilon=epsilon)
            found = forecast_selections(budget, known, 3, with_counts=counts, confidence=0.95)
            assert found[0].objective <= last
            last = found[0].objective


def test_a_mechanism_that_the_budget_does_not_allow_is_refused_with_those_it_does() -> None:
    known = CandidateSet(5, 0, 1, 1, Moves(5, 5), True, 18)
    with pytest.raises(PlanError, match="allows permute-and-flip, exponential, laplace-counts"):
        forecast_selections(
            sf.Budget(epsilon=1),
            known,
            1,
            with_counts=False,
            confidence=0.9,
            mechanism="gaussian-counts",
        )


def test_too_few_and_too_many_candidates_are_refused() -> None:
    with pytest.raises(PlanError, match="at least 2 different candidates"):
        check_candidates(1, 1)
    with pytest.raises(TooLarge, match="too many to choose from"):
        check_candidates(LIMITS.selection_candidates + 1, 1)
    for top in (0, 5, True, 1.0, "3"):
        with pytest.raises(PlanError, match="whole number from 1 to 4"):
            check_candidates(5, top)


def test_a_budget_beyond_all_noise_is_drawn_at_the_greatest_rate() -> None:
    known = CandidateSet(5, 0, 1, 1, Moves(5, 5), True, 18)
    [first, *_] = forecast_selections(
        sf.Budget(epsilon=100), known, 1, with_counts=False, confidence=0.9
    )
    assert first.rate is None or first.rate <= Fraction(MAXIMUM_RATE)
    assert first.tolerance == 0
