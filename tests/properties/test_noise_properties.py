# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile
from sfumato.random import integers_below
from sfumato.vault.mechanisms.noise import (
    BITS,
    GAUSSIAN,
    LAPLACE,
    decide,
    discrete_laplace,
    rounded_gaussian,
)
from tests.shared.words import GivenWords, SeededWords

words = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 63).flatmap(lambda bits: st.integers(0, (2 << bits) - 1)),  # deep tails too
)
scales = st.builds(
    lambda exponent, numerator, denominator: (
        Fraction(numerator, denominator) * Fraction(2) ** exponent
    ),
    st.integers(-9, 39),
    st.integers(64, 127),
    st.integers(64, 127),
)
laws = st.sampled_from([(LAPLACE, discrete_laplace), (GAUSSIAN, rounded_gaussian)])


@given(laws, scales, words)
@settings(max_examples=400, deadline=None)
def test_a_draw_is_what_ball_arithmetic_makes_of_the_same_uniform(pair, scale, word):
    law, sampler = pair
    extension = SeededWords(0).words(8).tolist()
    drawn = int(sampler(scale, 1, GivenWords([word, *extension]))[0])
    exact = decide(law, scale, word >> (64 - BITS), BITS, GivenWords(extension))
    assert drawn == (-exact if word & 1 else exact)


@given(laws, scales, words, words)
@settings(max_examples=200, deadline=None)
def test_the_magnitude_never_grows_with_the_uniform(pair, scale, first, second):
    _, sampler = pair
    extension = SeededWords(1).words(8).tolist()
    low, high = sorted((first >> 11, second >> 11))
    larger = sampler(scale, 1, GivenWords([low << 11, *extension]))[0]
    smaller = sampler(scale, 1, GivenWords([high << 11, *extension]))[0]
    assert larger >= smaller


@given(words, st.integers(-8, 36))
@settings(max_examples=200, deadline=None)
def test_doubling_the_gaussian_scale_refines_the_same_real_number(word, exponent):
    """round(2 sigma Z) and round(sigma Z) of one Z differ by the rounding only."""
    sigma = Fraction(2) ** exponent
    extension = SeededWords(2).words(8).tolist()
    coarse = int(rounded_gaussian(sigma, 1, GivenWords([word, *extension]))[0])
    fine = int(rounded_gaussian(2 * sigma, 1, GivenWords([word, *extension]))[0])
    assert abs(fine - 2 * coarse) <= 1


@given(scales, st.fractions(Fraction(1, 10**6), 1 - Fraction(1, 10**6)))
@settings(max_examples=200, deadline=None)
def test_quantiles_hold_their_level_and_one_less_does_not(scale, level):
    with ctx.workprec(300):
        s = arb(fmpq(scale.numerator, scale.denominator))
        missing = 1 - arb(fmpq(level.numerator, level.denominator))

        def laplace_beyond(k: int) -> arb:
            return 2 * (-(k + 1) / s).exp() / (1 + (-1 / s).exp())

        def gaussian_beyond(k: int) -> arb:
            return ((k + arb(0.5)) / (s * arb(2).sqrt())).erfc()

        pairs = ((laplace_quantile, laplace_beyond), (gaussian_quantile, gaussian_beyond))
        for quantile, beyond in pairs:
            k = quantile(scale, level)
            assert beyond(k) <= missing
            assert k == 0 or beyond(k - 1) > missing


@given(st.integers(1, 1 << 63), st.integers(0, 200))
def test_integers_below_stay_below(bound, size):
    drawn = integers_below(bound, size, SeededWords(bound))
    assert drawn.shape == (size,)
    assert all(0 <= int(value) < bound for value in drawn)


@given(scales)
@settings(max_examples=50, deadline=None)
def test_noise_is_symmetric_in_its_sign_bit(scale):
    block = SeededWords(str(scale)).words(64) & ~np.uint64(1)
    for sampler in (discrete_laplace, rounded_gaussian):
        extension = SeededWords(3).words(64).tolist()
        plus = sampler(scale, 64, GivenWords([*block.tolist(), *extension]))
        minus = sampler(scale, 64, GivenWords([*(block | np.uint64(1)).tolist(), *extension]))
        assert np.array_equal(plus, -minus)
