# SPDX-License-Identifier: Apache-2.0
"""Choices against their exact laws, and their privacy by listing every outcome of small cases."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache
from math import exp, log, pi

import mpmath
import numpy as np
import pytest
from flint import arb
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from sfumato.errors import BudgetError, PlanError
from sfumato.privacy.cost import Cost
from sfumato.privacy.selection import (
    ChoiceNoise,
    choice_cost,
    range_of_mu_squared_down,
    selection_cost,
)
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.select import (
    _EXPONENTIAL,
    _GUMBEL,
    MAXIMUM_SCORE,
    _NoisyScores,
    exponential_mechanism,
    permute_and_flip,
    report_noisy_max,
    top_places,
)
from tests.shared.words import GivenWords, SeededWords

ALPHA = 1e-6
SCORES = [0, 3, 5, 4, -2]
RATE = Fraction(1, 2)


def softmax(scores: list[int], rate: float) -> NDArray[np.float64]:
    weights = np.exp(rate * (np.array(scores, dtype=float) - max(scores)))
    return weights / weights.sum()


def flips(scores: list[int], rate: float) -> NDArray[np.float64]:
    """Permute-and-flip as its authors write it: average over all orders of the candidates.

    In the order given, a place is kept with probability exp(rate * (score - best)); if none is,
    which cannot happen as the best one always is, the next order would be tried.
    """
    kept = [exp(rate * (s - max(scores))) for s in scores]
    out = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1.0
        for i in order:
            out[i] += reached * kept[i] / len(orders)
            reached *= 1 - kept[i]
    return out


def p_value(found: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    expected = law * found.sum()
    return float(chdtrc(len(law) - 1, ((found - expected) ** 2 / expected).sum()))


@lru_cache
def exponential_counts(rate: Fraction, draws: int) -> NDArray[np.int64]:
    words, box = SeededWords("exponential mechanism"), Sensitive(np.array(SCORES))
    chosen = [exponential_mechanism(box, rate, words)[0] for _ in range(draws)]
    return np.bincount(chosen, minlength=len(SCORES))


def flipped_counts(rate: Fraction, draws: int) -> NDArray[np.int64]:
    words, box = SeededWords("permute and flip"), Sensitive(np.array(SCORES))
    chosen = [permute_and_flip(box, rate, words) for _ in range(draws)]
    return np.bincount(chosen, minlength=len(SCORES))


def test_exponential_mechanism_has_its_exact_probabilities() -> None:
    assert p_value(exponential_counts(RATE, 8_000), softmax(SCORES, 0.5)) > ALPHA


def test_a_wrong_rate_of_the_exponential_mechanism_is_noticed() -> None:
    assert p_value(exponential_counts(RATE * 4 / 3, 8_000), softmax(SCORES, 0.5)) < ALPHA


def test_permute_and_flip_has_its_exact_probabilities() -> None:
    assert p_value(flipped_counts(RATE, 8_000), flips(SCORES, 0.5)) > ALPHA


def test_the_exponential_mechanism_is_noticed_in_the_place_of_permute_and_flip() -> None:
    assert p_value(exponential_counts(RATE, 8_000), flips(SCORES, 0.5)) < ALPHA


def test_several_choices_are_those_of_peeling() -> None:
    """P(i then j) = p_i p_j / (1 - p_i)."""
    words, box = SeededWords("peeling"), Sensitive(np.array([0, 1, 3]))
    law = softmax([0, 1, 3], 0.5)
    pairs = list(itertools.permutations(range(3), 2))
    chosen = [exponential_mechanism(box, RATE, words, 2) for _ in range(5_000)]
    found = np.array([chosen.count(pair) for pair in pairs])
    assert p_value(found, np.array([law[i] * law[j] / (1 - law[i]) for i, j in pairs])) > ALPHA
    independent = np.array([law[i] * law[j] for i, j in pairs])
    assert p_value(found, independent / independent.sum()) < ALPHA


def test_several_choices_by_permute_and_flip_are_one_after_the_other() -> None:
    """P(i then j) is that of i, times that of j among those left; the places are the old ones."""
    words, scores = SeededWords("flips in turn"), [0, 1, 3]
    box = Sensitive(np.array(scores))
    pairs = list(itertools.permutations(range(3), 2))
    chosen = [top_places(box, RATE, words, "exponential", 2) for _ in range(4_000)]
    found = np.array([chosen.count(pair) for pair in pairs])
    law = []
    for i, j in pairs:
        left = [k for k in range(3) if k != i]
        second = flips([scores[k] for k in left], 0.5)[left.index(j)]
        law.append(flips(scores, 0.5)[i] * second)
    assert p_value(found, np.array(law)) > ALPHA
    assert p_value(found, np.array([softmax(scores, 0.5)[i] / 2 for i, _ in pairs])) < ALPHA
    assert top_places(box, RATE, words, "gumbel", 3) != ()
    with pytest.raises(PlanError, match="cannot choose 4 of 3"):
        top_places(box, RATE, words, "exponential", 4)


@pytest.mark.parametrize("noise", [_GUMBEL, _EXPONENTIAL])
def test_ball_arithmetic_decides_as_floats_do(noise: object) -> None:
    """A band of 10 leaves everything open to floats; the words are the same, so is the order."""
    for case in range(40):
        given = SeededWords(f"bands {case}").words(60).tolist()
        orders = []
        for band in (2.0**-40, 10.0):
            race = _NoisyScores(np.array([1, 2, 3]), Fraction(1, 3), noise, GivenWords(given), band)  # type: ignore[arg-type]
            orders.append([race.next_place() for _ in range(3)])
        assert orders[0] == orders[1]


@pytest.mark.parametrize("noise", [_GUMBEL, _EXPONENTIAL])
def test_equal_leading_bits_are_extended_until_they_differ(noise: object) -> None:
    """The three uniforms share 53 bits; of the next words the smallest gives the most noise."""
    first = [12345 << 11] * 3
    for more in itertools.permutations([5, 50, 500]):
        race = _NoisyScores(np.zeros(3, np.int64), RATE, noise, GivenWords([*first, *more]))  # type: ignore[arg-type]
        assert [race.next_place() for _ in range(3)] == np.argsort(more).tolist()


@pytest.mark.parametrize("noise", [_GUMBEL, _EXPONENTIAL])
def test_the_ends_of_the_uniform_are_decided_too(noise: object) -> None:
    """U near 0 is the largest noise, U near 1 the smallest: neither end is a number of its own."""
    given = [2**64 - 1, 0, 1 << 63, *range(1, 9)]
    race = _NoisyScores(np.zeros(3, np.int64), RATE, noise, GivenWords(given))  # type: ignore[arg-type]
    assert [race.next_place() for _ in range(3)] == [1, 2, 0]


def losses(law: object, scores: tuple[int, ...], moved: tuple[int, ...]) -> NDArray[np.float64]:
    one, other = law(list(scores), 0.5), law(list(moved), 0.5)  # type: ignore[operator]
    return np.log(one / other)


def neighbours(most: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All small score vectors and all vectors within ``most`` of them."""
    steps = list(itertools.product(range(-most, most + 1), repeat=3))
    starts = [(0, 0, 0), (0, 1, 3), (0, 0, 6), (-4, 2, 2), (0, 9, 10)]
    return [(s, tuple(a + b for a, b in zip(s, d, strict=True))) for s in starts for d in steps]


def widest(law: object, most: int) -> tuple[float, float]:
    """The greatest loss, and the greatest span of losses on one pair of neighbours."""
    found = [losses(law, *pair) for pair in neighbours(most)]
    return max(float(np.abs(f).max()) for f in found), max(float(np.ptp(f)) for f in found)


def test_the_exponential_mechanism_has_bounded_range() -> None:
    """eta = 2 * rate * D = 1 for D = 1, for the losses and for their span, which attains it."""
    loss, span = widest(softmax, 1)
    assert loss <= 1
    assert span == pytest.approx(1)
    assert widest(softmax, 2)[1] > 1.5  # the twin: scores that move by 2


def test_permute_and_flip_is_private_but_has_no_bounded_range() -> None:
    loss, span = widest(flips, 1)
    assert loss <= 1 + 1e-12
    assert span > 1.1
    assert widest(flips, 2)[0] > 1.5


@pytest.mark.parametrize("eta", [0.01, 0.3, 1.0, 4.0, 12.0])
def test_the_cost_of_a_range_covers_every_pair_of_two_points(eta: float) -> None:
    """mu >= Phi^-1(p) - Phi^-1(q) for all p, q whose log odds differ by eta; attained once."""
    mu = float(selection_cost(Fraction(eta)).mu_squared) ** 0.5
    x = np.linspace(-30, 30 - eta, 6001)
    odd = np.append(x, -eta / 2)
    apart = -ndtri(1 / (1 + np.exp(odd + eta))) + ndtri(1 / (1 + np.exp(odd)))
    assert apart.max() <= mu * (1 + 1e-9)
    assert apart.max() == pytest.approx(mu, rel=1e-9)


def test_a_small_range_costs_what_the_page_says_and_a_quarter_of_a_pure_choice() -> None:
    eta = Fraction(1, 1000)
    assert float(selection_cost(eta).mu_squared) == pytest.approx(pi * 1e-6 / 8, rel=1e-6)


@pytest.mark.parametrize("mu_squared", [1e-8, 1e-3, 0.7, 9.0])
def test_the_range_of_a_cost_never_costs_more(mu_squared: float) -> None:
    allowed = Fraction(mu_squared)
    eta = range_of_mu_squared_down(allowed)
    assert selection_cost(eta).mu_squared <= allowed
    assert selection_cost(eta * Fraction(1001, 1000)).mu_squared > allowed


def noisy_max(scores: list[int], rate: float, is_fair: bool = True) -> NDArray[np.float64]:
    """P(i) of report-noisy-max with discrete Laplace noise, ties shared fairly or to the first.

    Given the noisy score y of i and its priority u, every other is below y, or at y with a
    lower priority: an integral over u of a polynomial, exact by Gauss-Legendre.
    """
    q = exp(-rate)
    y = np.arange(min(scores) - 150, max(scores) + 151)
    mass = [(1 - q) / (1 + q) * q ** np.abs(y - s) for s in scores]
    below = [np.concatenate([[0.0], np.cumsum(m)[:-1]]) for m in mass]
    nodes, weights = np.polynomial.legendre.leggauss(8)
    out = np.zeros(len(scores))
    for i in range(len(scores)):
        for u, w in zip((nodes + 1) / 2, weights / 2, strict=True):
            others = np.ones(len(y))
            for j in range(len(scores)):
                if j != i:
                    share = u if is_fair else float(i < j)
                    others *= below[j] + share * mass[j]
            out[i] += w * float((mass[i] * others).sum())
    return out


def test_laplace_noise_has_its_exact_probabilities_with_fair_ties() -> None:
    """Small scale, so that ties are common: a rule that favours the first is noticed."""
    scores, words = [0, 1, 1, 0], SeededWords("noisy max")
    box = Sensitive(np.array(scores))
    chosen = [report_noisy_max(box, Fraction(3, 2), words, "laplace") for _ in range(8_000)]
    found = np.bincount(chosen, minlength=4)
    assert noisy_max(scores, 1.5).sum() == pytest.approx(1)
    assert p_value(found, noisy_max(scores, 1.5)) > ALPHA
    assert p_value(found, noisy_max(scores, 1.5, is_fair=False)) < ALPHA
    assert p_value(found, noisy_max(scores, 2.0)) < ALPHA


@pytest.mark.parametrize("is_fair", [True, False])
def test_laplace_noise_is_private_however_ties_are_broken(is_fair: bool) -> None:
    def law(scores: list[int], rate: float) -> NDArray[np.float64]:
        return noisy_max(scores, rate, is_fair)

    assert widest(law, 1)[0] <= 1 + 1e-9
    assert widest(law, 2)[0] > 1.2  # the twin: scores that move by 2


@pytest.mark.parametrize("law", [softmax, flips, noisy_max])
def test_monotone_scores_lose_half(law: object) -> None:
    """All scores rise together: epsilon, and the range of the exponential mechanism, are r D."""
    rising = [p for p in neighbours(1) if all(b >= a for a, b in zip(*p, strict=True))]
    found = [losses(law, *pair) for pair in rising]
    assert max(float(np.abs(f).max()) for f in found) <= 0.5 + 1e-9
    if law is softmax:
        assert max(float(np.ptp(f)) for f in found) <= 0.5 + 1e-9
    assert widest(law, 1)[0] > 0.6  # the twin: scores that move apart


@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace"])
def test_one_name_for_all_laws_and_their_costs(noise: ChoiceNoise) -> None:
    box = Sensitive(np.array([0, 10**6, -5]))
    assert report_noisy_max(box, RATE, SeededWords(3), noise) == 1
    whole = choice_cost(noise, Fraction(1, 8), 2)
    half = choice_cost(noise, Fraction(1, 8), 2, is_monotone=True)
    if noise == "gumbel":
        assert (whole, half) == (selection_cost(Fraction(1, 2)), selection_cost(Fraction(1, 4)))
    else:
        assert (whole, half) == (Cost.pure(Fraction(1, 2)), Cost.pure(Fraction(1, 4)))


def test_laplace_choices_take_two_words_a_candidate_whatever_the_scores() -> None:
    for scores in ([0, 0, 0], [5, -9, 10**15], [2**61, -(2**61), 0]):
        words = GivenWords(SeededWords("count").words(6).tolist())
        report_noisy_max(Sensitive(np.array(scores)), RATE, words, "laplace")
        assert words.used == 6


def test_an_unknown_law_of_choice_is_refused() -> None:
    box = Sensitive(np.array([1, 2]))
    with pytest.raises(PlanError, match="gumbel"):
        report_noisy_max(box, RATE, SeededWords(1), "cauchy")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="gumbel"):
        choice_cost("cauchy", RATE, 1)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="exact"):
        choice_cost("laplace", 0.5, 1)  # type: ignore[arg-type]


def test_scores_beyond_the_range_are_clamped_and_the_best_still_wins() -> None:
    box = Sensitive(np.array([-(2**62), 2**62, 0]))
    assert exponential_mechanism(box, Fraction(1), SeededWords(1)) == (1,)
    assert log(MAXIMUM_SCORE) > 40


def test_what_is_wrong_with_a_choice_is_said_without_a_score() -> None:
    box = Sensitive(np.array([987_654, 987_655]))
    with pytest.raises(PlanError, match="exact number") as rate:
        exponential_mechanism(box, 0.5, SeededWords(1))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="cannot choose 3 of 2") as count:
        exponential_mechanism(box, RATE, SeededWords(1), 3)
    assert "98765" not in f"{rate.value}{count.value}"
    with pytest.raises(BudgetError, match="above 0"):
        selection_cost(Fraction(0))
    with pytest.raises(BudgetError, match="above 0"):
        range_of_mu_squared_down(Fraction(-1))


@pytest.mark.parametrize("amount", [0.5, 0, -1, Fraction(-1, 2)])
def test_costs_of_choices_are_of_exact_positive_numbers(amount: object) -> None:
    for function in (selection_cost, range_of_mu_squared_down):
        with pytest.raises(BudgetError, match="exact number above 0"):
            function(amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(("noise", "law"), [(_GUMBEL, "gumbel"), (_EXPONENTIAL, "exponential")])
def test_a_noisy_score_is_enclosed_by_the_ends_of_what_is_known_of_its_uniform(
    noise: object, law: str
) -> None:
    def value(u: mpmath.mpf) -> mpmath.mpf:
        return -mpmath.log(-mpmath.log(1 - u) if law == "gumbel" else u)

    given = [12345 << 40, (2**64 - 1) // 3, 2**63]
    scores = np.array([7, 5, 6])
    race = _NoisyScores(scores, Fraction(1, 3), noise, GivenWords([*given, 99]))  # type: ignore[arg-type]
    for place, word in enumerate(given):
        low, high = race._enclosure(place)
        with mpmath.workdps(50):
            base = mpmath.mpf(int(scores[place]) - 7) / 3
            for ball, v in ((low, (word >> 11) + 1), (high, word >> 11)):
                exact = base + value(mpmath.mpf(v) / 2**53)
                assert abs(mpmath.mpf(ball.mid().str(40, radius=False)) - exact) < 1e-30
    race._uniforms[0] = ((given[0] >> 11) << 64 | 99, 117)  # one more word: further digits
    low, high = race._enclosure(0)
    assert 0 < float(high - low) < 1e-14


def test_an_end_at_which_the_noise_is_infinite_is_open() -> None:
    race = _NoisyScores(np.zeros(2, np.int64), RATE, _GUMBEL, GivenWords([0, 2**64 - 1]))
    least, most = race._enclosure(0), race._enclosure(1)
    assert least[0].is_finite()
    assert not least[1].is_finite()
    assert not most[0].is_finite()
    assert most[1].is_finite()


def test_scores_are_clamped_at_2_to_the_60th_on_both_sides() -> None:
    """Beyond it they are equal, and only noise decides: the first word gives more of it."""
    for scores in ([2**60, 2**60 + 2**40], [-(2**60) - 2**40, -(2**60)]):
        words = GivenWords([1 << 40, 1 << 63])
        assert exponential_mechanism(Sensitive(np.array(scores)), Fraction(1), words) == (0,)
    within = Sensitive(np.array([2**60 - 2**40, 2**60]))
    assert exponential_mechanism(within, Fraction(1), GivenWords([1 << 40, 1 << 63])) == (1,)


def test_a_score_that_may_still_be_the_largest_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is known of two scores overlaps in part; one word more says that the lower one wins."""
    known = iter([[(1.0, 2.5), (2.0, 3.0)], [(2.4, 2.45), (2.0, 2.1)]])
    now: list[tuple[float, float]] = []

    def enclosure(_: _NoisyScores, place: int) -> tuple[arb, arb]:
        if place == 0:
            now[:] = next(known)
        low, high = now[place]
        return arb(low), arb(high)

    race = _NoisyScores(np.zeros(2, np.int64), RATE, _GUMBEL, GivenWords([1, 1, 7, 7]))
    monkeypatch.setattr(_NoisyScores, "_enclosure", enclosure)
    assert race._decide([0, 1]) == 0
