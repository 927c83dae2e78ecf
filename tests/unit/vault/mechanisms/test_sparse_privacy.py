# SPDX-License-Identifier: Apache-2.0
"""Privacy of the sparse vector by listing every outcome of small cases, without sampling.

Ratios of the Laplace laws are rational here, so probabilities and e^epsilon are Fractions and the
bound is checked exactly. Every check has twins: the mistakes of the literature, which must break
it. The reference formula is tied to the code by running the code on every noise of a box.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import chdtrc, ndtr

import sfumato.vault.mechanisms.sparse as vault_sparse
from sfumato.privacy.cost import gaussian_delta
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import SparseVector
from tests.shared.sparse_reference import (
    Pattern,
    above_or_below,
    law_of_patterns,
    mass,
    one_sided_probability,
    pattern_probability,
    patterns,
    survival,
)
from tests.shared.words import SeededWords

FIRST = Fraction(2, 3)  # exp(-1/s) of the threshold's noise
SECOND = Fraction(4, 5)  # exp(-1/s) of the scores' noise
STARTS = [(0, 0, 0), (3, 3, 3), (-2, -2, -2), (4, 0, 4), (6, 2, -1)]

Probability = Callable[[Fraction, Fraction, Sequence[int], Pattern], Fraction]
LAPLACE_OR_ONE_SIDED = pytest.mark.parametrize(
    "probability", [pattern_probability, one_sided_probability]
)


def neighbouring_gaps(
    start: tuple[int, ...], moves: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    steps = itertools.product(moves, repeat=len(start))
    return [(start, tuple(g + d for g, d in zip(start, step, strict=True))) for step in steps]


def worst_ratio(
    probability: Probability,
    pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    cap: int,
    second: Fraction = SECOND,
) -> Fraction:
    """The largest P(outcome) / P'(outcome) over both orders of all pairs and all outcomes."""
    worst = Fraction(0)
    for gaps, moved in pairs:
        for said in patterns(len(gaps), cap):
            one = probability(FIRST, second, gaps, said)
            other = probability(FIRST, second, moved, said)
            worst = max(worst, one / other, other / one)
    return worst


def claimed(discoveries: int, moved: int) -> Fraction:
    """e^epsilon = e^(D/s1 + c moved/s2) with D = 1."""
    return 1 / FIRST / SECOND ** (discoveries * moved)


@LAPLACE_OR_ONE_SIDED
@pytest.mark.parametrize("discoveries", [1, 3])
def test_every_outcome_keeps_epsilon_for_any_scores(
    discoveries: int, probability: Probability
) -> None:
    """Theorem 1: e^(1/s1 + 2c/s2) bounds every ratio; ties included, nothing cut off."""
    pairs = [p for s in STARTS for p in neighbouring_gaps(s, (-1, 0, 1))]
    assert worst_ratio(probability, pairs, discoveries) <= claimed(discoveries, 2)


@LAPLACE_OR_ONE_SIDED
@pytest.mark.parametrize("discoveries", [1, 2])
def test_every_outcome_keeps_the_smaller_epsilon_for_monotone_scores(
    discoveries: int, probability: Probability
) -> None:
    pairs = [p for s in STARTS for moves in ((0, 1), (-1, 0)) for p in neighbouring_gaps(s, moves)]
    assert worst_ratio(probability, pairs, discoveries) <= claimed(discoveries, 1)


def long_pairs(length: int, far: int = 6) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Many scores that fall together, then some that rise: what a threshold must hide."""
    return [
        ((1,) * length + (far,) * tops, (0,) * length + (far + 1,) * tops) for tops in (1, 2, 3)
    ]


def said_last(pair: tuple[tuple[int, ...], tuple[int, ...]], length: int) -> Pattern:
    return (False,) * length + (True,) * (len(pair[0]) - length)


@LAPLACE_OR_ONE_SIDED
def test_long_runs_below_come_near_epsilon_and_never_above_it(probability: Probability) -> None:
    """30 scores below, then c above: the factor 2 of scores that are not monotone is needed."""
    for pair in long_pairs(30):
        said = said_last(pair, 30)
        one = probability(FIRST, SECOND, pair[1], said)
        other = probability(FIRST, SECOND, pair[0], said)
        assert max(one / other, other / one) <= claimed(sum(said), 2)
        assert max(one / other, other / one) > claimed(sum(said), 1)  # monotone noise is too small


@LAPLACE_OR_ONE_SIDED
def test_noise_for_one_discovery_is_too_small_for_three(probability: Probability) -> None:
    pair = long_pairs(30)[2]
    said = said_last(pair, 30)
    ratio = probability(FIRST, SECOND, pair[0], said) / probability(FIRST, SECOND, pair[1], said)
    assert max(ratio, 1 / ratio) > claimed(1, 2)


@LAPLACE_OR_ONE_SIDED
def test_without_the_cap_no_epsilon_holds(probability: Probability) -> None:
    """Lyu, Su, Li 2017, Algorithm 6: with every further pair of outcomes the ratio grows."""
    ratios = []
    for m in (1, 4, 8, 16):
        gaps, moved = (0,) * m + (1,) * m, (1,) * m + (0,) * m
        said = (False,) * m + (True,) * m
        one = probability(FIRST, SECOND, gaps, said)
        other = probability(FIRST, SECOND, moved, said)
        ratios.append(max(one / other, other / one))
    assert ratios == sorted(ratios)
    assert ratios[0] <= claimed(1, 2)
    assert ratios[-1] > claimed(1, 2)


def redrawn(first: Fraction, second: Fraction, gaps: Sequence[int], said: Pattern) -> Fraction:
    """The mistake: new threshold noise after every discovery, paid for once."""
    out, begun = Fraction(1), 0
    for i, outcome in enumerate(said):
        if outcome or i + 1 == len(said):
            run = slice(begun, i + 1)
            out *= pattern_probability(first, second, gaps[run], said[run])
            begun = i + 1
    return out


def test_a_threshold_redrawn_without_payment_breaks_epsilon() -> None:
    length = 30
    gaps = ((1,) * length + (4,)) * 3
    moved = ((0,) * length + (5,)) * 3
    said = ((False,) * length + (True,)) * 3

    def ratio(probability: Probability) -> Fraction:
        one = probability(FIRST, SECOND, gaps, said)
        other = probability(FIRST, SECOND, moved, said)
        return max(one / other, other / one)

    assert ratio(pattern_probability) <= claimed(3, 2)
    assert ratio(redrawn) > claimed(3, 2)


def below_then_number(gaps: Sequence[int], score: int, number: int, is_fresh: bool) -> Fraction:
    """P(all of ``gaps`` below, then a number): fresh noise, or that of the comparison.

    The last threshold is 0, its score ``score``. Fresh noise has the ratio SECOND too.
    """
    if is_fresh:
        said = (False,) * len(gaps) + (True,)
        found = pattern_probability(FIRST, SECOND, (*gaps, -score), said)
        return found * mass(SECOND, number - score)
    total = Fraction(0)
    for rho in range(-80, number + 1):  # above: score + noise = number >= rho
        below = Fraction(1)
        for g in gaps:
            below *= above_or_below(SECOND, g + rho, False)
        total += mass(FIRST, rho) * below * mass(SECOND, number - score)
    return total


@pytest.mark.parametrize("length", [5, 20])
def test_a_number_with_the_noise_of_its_comparison_is_not_private(length: int) -> None:
    """Lyu, Su, Li 2017, Algorithm 3; and the right one, with fresh noise and its own price."""
    price = claimed(1, 2) / SECOND  # the test's epsilon, and that of one number that moves by 1
    ratios = {}
    for is_fresh in (True, False):
        one = below_then_number((0,) * length, 0, 0, is_fresh)
        other = below_then_number((1,) * length, -1, 0, is_fresh)
        ratios[is_fresh] = max(one / other, other / one)
    assert ratios[True] <= price
    if length == 20:
        assert ratios[False] > price


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "exponential"])
def test_the_code_says_what_the_formula_counts_on_every_noise_of_a_box(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = 2 if kind == "gaussian" else None
    law = SparseLaw(
        NoiseLaw("laplace", Fraction(1)),
        NoiseLaw(kind, Fraction(1)),  # type: ignore[arg-type]
        discoveries=2,
        reach=reach,
        offset=-1 if kind == "exponential" else 0,
    )
    gaps = (0, 2, -1)
    for rho, *nus in itertools.product(range(-3, 4), repeat=4):
        given = iter([[rho], list(nus)])
        monkeypatch.setattr(vault_sparse, "_drawn", lambda *_, given=given: next(given))
        said = SparseVector(law).test_many(
            Sensitive([10, 20, 30]), [g + s for g, s in zip(gaps, (10, 20, 30), strict=True)]
        )
        expected: list[bool] = []
        for g, nu in zip(gaps, nus, strict=True):
            if sum(expected) < 2:
                far = g + law.offset + rho
                far = far if reach is None else min(far, reach)
                expected.append(nu >= far)
        assert said == expected


LAWS = [
    SparseLaw(NoiseLaw("gaussian", Fraction(20)), NoiseLaw("laplace", Fraction(1)), c)
    for c in (1, 2)
] + [
    SparseLaw(NoiseLaw("gaussian", Fraction(20)), NoiseLaw("gaussian", Fraction(2)), c, reach=8)
    for c in (1, 2)
]


def hockey_stick(law: SparseLaw, mu_squared: float, length: int = 9) -> float:
    """The most by which delta(e) of listed pairs exceeds the Gaussian curve of mu."""
    excess = -1.0
    starts = [(0,) * length, (10,) * length, (-8,) * length, (25,) * length]
    moves = [(1,) * length, (-1,) * length, (1,) * (length - 1) + (-1,), (-1, 1) * length]
    for start, move in itertools.product(starts, moves):
        one = law_of_patterns(law, start)
        other = law_of_patterns(
            law, [g + d * law.sensitivity for g, d in zip(start, move, strict=False)]
        )
        for e in (0.0, 0.1, 0.3, 0.6, 1.0):
            allowed = gaussian_delta(mu_squared**0.5, e)
            for p, q in ((one, other), (other, one)):
                delta = sum(max(p[a] - np.exp(e) * q[a], 0.0) for a in p)
                excess = max(excess, delta - allowed)
    return excess


@pytest.mark.parametrize("law", LAWS)
def test_a_gaussian_threshold_keeps_its_curve(law: SparseLaw) -> None:
    """Theorem 3: the curve of mu-GDP lies above delta(e) of every pair, in both orders."""
    assert hockey_stick(law, float(law.cost.mu_squared)) <= 1e-12


@pytest.mark.parametrize("law", LAWS)
def test_the_curve_of_the_threshold_alone_is_broken(law: SparseLaw) -> None:
    """The twin: discoveries are not free."""
    alone = float((law.sensitivity / law.threshold.scale) ** 2)
    assert hockey_stick(law, alone) > 0.01


@pytest.mark.parametrize("is_monotone", [True, False])
@pytest.mark.parametrize(("scale", "reach"), [(4, 14), (4, 3), (9, 40), (0.5, 2)])
def test_a_discovery_loses_at_most_what_the_law_says_and_some_lose_all_of_it(
    scale: float, reach: int, is_monotone: bool
) -> None:
    """Lemma 1 for Gaussian noise: every gap, every move; the twin without a reach has no bound."""
    law = SparseLaw(
        NoiseLaw("laplace", Fraction(1)),
        NoiseLaw("gaussian", Fraction(scale)),
        sensitivity=3,
        is_monotone=is_monotone,
        reach=reach,
    )

    def losses(end: int | None) -> list[float]:
        far = int(20 * scale)
        found = []
        for gap, move in itertools.product(range(-far, far), range(law.moved + 1)):
            near, away = ((min(g, end) if end else g) for g in (gap, gap + move))
            above = survival(law.query, np.array([near, away]))
            below = survival(law.query, 1 - np.array([near, away]))
            found.append(float(np.log(above[0] / above[1])))
            assert below[0] <= below[1]
        return found

    assert max(losses(reach)) <= float(law.loss) * (1 + 1e-12)
    assert max(losses(reach)) == pytest.approx(float(law.loss), rel=1e-9)
    assert max(losses(None)) > 1.05 * float(law.loss)


@pytest.mark.parametrize(("nu", "loss"), [(0.0001, 0.5), (0.3, 0.2), (1.0, 1.0), (0.5, 3.0)])
def test_the_curve_of_theorem_3_is_attained_and_no_smaller_one_holds(
    nu: float, loss: float
) -> None:
    """G_mu <= max(G_nu(e^loss a), e^-loss G_nu(a)) on a fine grid; equal at Phi(-mu/2)."""
    from scipy.special import ndtri

    from sfumato.privacy.gaussian import mu_of_loss_up

    mu = mu_of_loss_up(Fraction(nu) ** 2, Fraction(loss))

    def curve(m: float, a: object) -> np.ndarray:
        return np.asarray(ndtr(-ndtri(np.minimum(a, 1.0)) - m))

    def slack(m: float) -> float:
        a = np.append(np.linspace(1e-9, 1 - 1e-9, 20_001), ndtr(-m / 2))
        right = np.maximum(curve(nu, np.exp(loss) * a), np.exp(-loss) * curve(nu, a))
        return float((right - curve(m, a)).min())

    assert slack(mu) > -1e-12
    assert slack(mu) < 1e-9
    assert slack(0.999 * mu) < -1e-6


def test_frequencies_are_those_of_the_exact_law_and_a_wrong_scale_is_noticed() -> None:
    law = SparseLaw(NoiseLaw("laplace", Fraction(2)), NoiseLaw("laplace", Fraction(3)), 2)
    gaps = (1, 0, 2)
    words = SeededWords("frequencies of sparse vectors")
    said = [
        tuple(SparseVector(law, words).test_many(Sensitive([-g for g in gaps]), [0, 0, 0]))
        for _ in range(6000)
    ]

    def p_value(of: SparseLaw) -> float:
        exact = law_of_patterns(of, gaps)
        assert sum(exact.values()) == pytest.approx(1)
        stat = sum((said.count(a) - 6000 * p) ** 2 / (6000 * p) for a, p in exact.items())
        return float(chdtrc(len(exact) - 1, stat))

    assert p_value(law) > 1e-6
    wrong = SparseLaw(NoiseLaw("laplace", Fraction(1)), NoiseLaw("laplace", Fraction(3)), 2)
    assert p_value(wrong) < 1e-6


def test_frequencies_of_one_sided_noise_are_those_of_its_exact_law() -> None:
    one_sided = NoiseLaw("exponential", Fraction(3))
    law = SparseLaw(NoiseLaw("exponential", Fraction(2)), one_sided, offset=1)
    words = SeededWords("one-sided")
    box = Sensitive([0, -2, 1])
    said = [tuple(SparseVector(law, words).test_many(box, [0, 0, 0])) for _ in range(6000)]

    def p_value(gaps: tuple[int, ...]) -> float:
        exact = law_of_patterns(law, gaps)
        stat = sum((said.count(a) - 6000 * p) ** 2 / (6000 * p) for a, p in exact.items())
        return float(chdtrc(len(exact) - 1, stat))

    assert p_value((1, 3, 0)) > 1e-6  # threshold - score + offset
    assert p_value((0, 2, -1)) < 1e-6  # the offset forgotten
    ratios = [Fraction(float(np.exp(-1 / s))) for s in (2.0, 3.0)]
    for a, p in law_of_patterns(law, (1, 3, 0)).items():
        assert float(one_sided_probability(*ratios, (1, 3, 0), a)) == pytest.approx(p, abs=1e-12)


def test_the_reference_agrees_with_itself_in_floats() -> None:
    """Fractions and floats sum the same law: probabilities of all patterns, and their total."""
    for cap in (1, 2):
        exact = {a: pattern_probability(FIRST, SECOND, (2, -1, 0), a) for a in patterns(3, cap)}
        assert sum(exact.values()) == 1
    scales = [Fraction(float(-1 / np.log(float(q)))) for q in (FIRST, SECOND)]
    law = SparseLaw(NoiseLaw("laplace", scales[0]), NoiseLaw("laplace", scales[1]), 2)
    near = law_of_patterns(law, (2, -1, 0))
    assert near == pytest.approx({a: float(p) for a, p in exact.items()}, abs=1e-12)
