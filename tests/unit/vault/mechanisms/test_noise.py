# SPDX-License-Identifier: Apache-2.0
"""The samplers as functions of their words: exact thresholds, the filter, the slow way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import factorial
from pathlib import Path

import mpmath
import numpy as np
import pytest
from flint import arb, ctx, fmpq

from sfumato.errors import PlanError
from sfumato.vault.mechanisms.noise import (
    BITS,
    EXPONENTIAL,
    GAUSSIAN,
    LAPLACE,
    LOW_BITS,
    ORDER,
    certified_table,
    decide,
    discrete_laplace,
    draw,
    filtered,
    geometric,
    rounded_gaussian,
)
from tests.shared.words import GivenWords, SeededWords

LAWS = {"laplace": LAPLACE, "gaussian": GAUSSIAN, "geometric": EXPONENTIAL}
SAMPLERS = {"laplace": discrete_laplace, "gaussian": rounded_gaussian, "geometric": geometric}
SCALES = [
    Fraction(1, 1024),
    Fraction(1, 3),
    Fraction(1),
    Fraction(22, 7),
    Fraction(1000),
    Fraction(10**6),
    Fraction(1 << 40),
]
all_laws = pytest.mark.parametrize("name", LAWS)
signed_laws = pytest.mark.parametrize("name", ["laplace", "gaussian"])
all_scales = pytest.mark.parametrize("scale", SCALES, ids=str)


def tail(name: str, scale: Fraction, k: int) -> arb:
    """P(|N| >= k), k >= 1, written independently of the sampler's inverse functions."""
    s = arb(fmpq(scale.numerator, scale.denominator))
    if name == "laplace":
        q = (-1 / s).exp()
        return 2 * (-k / s).exp() / (1 + q)
    if name == "geometric":
        return (-k / s).exp()
    return ((k - arb(0.5)) / (s * arb(2).sqrt())).erfc()


def digits(number: arb, bits: int) -> int:
    """floor(number 2^bits), which must be certain."""
    whole = (number * arb(2) ** bits).floor().unique_fmpz()
    assert whole is not None
    return int(whole)


def interesting_values(scale: Fraction) -> list[int]:
    """Steps k of |N| in the bulk and in the tail, with P(|N| >= k) above 2^-52."""
    s = float(scale)
    return sorted({max(1, round(s * x)) for x in (0.01, 0.2, 0.7, 1.0, 1.9, 3.3, 5.0)})


@all_laws
@all_scales
def test_every_step_of_the_law_is_at_its_exact_probability_to_117_bits(name, scale):
    """U just below P(|N| >= k) gives |N| >= k, just above gives less: 53 + 64 bits of U."""
    for k in interesting_values(scale):
        with ctx.workprec(400):
            probability = tail(name, scale, k)
            if not probability * arb(2) ** BITS > 2:
                continue
            step = digits(probability, BITS + 64)
        leading, trailing = divmod(step, 1 << 64)
        sampler = SAMPLERS[name]
        for offset, reached in ((-1, True), (1, False)):
            near = sampler(scale, 1, GivenWords([(leading + offset) << 11, 0, 0]))
            assert bool(near[0] >= k) is reached
            last = GivenWords([leading << 11, trailing + offset, 0])
            nearest = sampler(scale, 1, last)
            assert nearest[0] == (k if reached else k - 1)
            assert last.used == 2


@all_laws
def test_a_scale_wrong_by_one_part_in_a_billion_moves_a_step(name):
    """The twin of the test above: it sees what no sample could."""
    scale, k = Fraction(10), 13
    with ctx.workprec(400):
        step = digits(tail(name, scale, k), BITS + 64)
    leading, trailing = divmod(step, 1 << 64)
    wrong = scale * (1 - Fraction(1, 10**9))
    below = SAMPLERS[name](wrong, 1, GivenWords([leading << 11, trailing - 1, 0]))
    assert below[0] == k - 1


@all_laws
@pytest.mark.parametrize(
    "scale", [Fraction(1, 2), Fraction(1), Fraction(5, 3), Fraction(3)], ids=str
)
def test_enumerating_all_uniforms_of_twelve_bits_gives_the_probability_mass(name, scale):
    """Mass that 12 bits decide is at most the exact mass, which is at most decided + undecided."""

    class Spent(Exception):
        pass

    class NoWords:
        def words(self, count):
            raise Spent(count)

    decided: Counter[int] = Counter()
    undecided = 0
    for leading in range(1 << 12):
        try:
            decided[decide(LAWS[name], scale, leading, 12, NoWords())] += 1
        except Spent:
            undecided += 1
    assert sum(decided.values()) + undecided == 1 << 12
    with ctx.workprec(200):
        steps = 0
        while tail(name, scale, steps + 1) > arb(2) ** -12:
            steps += 1
        assert undecided <= steps + 1  # a cell stays open only if it holds a step, or U = 0
        for k in range(max(decided) + 1):
            exact = (tail(name, scale, k) if k else arb(1)) - tail(name, scale, k + 1)
            share = arb(decided[k]) / (1 << 12)
            assert share <= exact
            assert exact <= share + arb(undecided) / (1 << 12)


def cells_near_steps(name: str, scale: Fraction) -> np.ndarray:
    """Leading bits v within 3 of a step of the law: the hardest words there are."""
    cells = []
    with ctx.workprec(300):
        for k in interesting_values(scale):
            probability = tail(name, scale, k)
            if probability * arb(2) ** BITS > 4:
                cells.extend(digits(probability, BITS) + shift for shift in range(-3, 4))
    return np.array([cell for cell in cells if 0 <= cell < 1 << BITS], dtype=np.int64)


def offset_of(name: str, scale: Fraction) -> float:
    with ctx.workprec(128):
        return float(LAWS[name].offset(scale))


def words_of(name: str, scale: Fraction) -> np.ndarray:
    """Leading bits: hard ones, all octaves with both ends, and plain random ones."""
    octaves = [(1 << e) + shift for e in range(1, BITS) for shift in (-1, 0, 1)]
    plain = (SeededWords(f"{name} {scale}").words(1500) >> np.uint64(11)).astype(np.int64)
    ends = np.array([0, 1, (1 << BITS) - 1, *octaves], dtype=np.int64)
    return np.concatenate([cells_near_steps(name, scale), ends, plain])


@all_laws
@all_scales
def test_the_filter_never_accepts_a_wrong_integer(name, scale):
    leading = words_of(name, scale)
    table = certified_table(LAWS[name])
    magnitude, undecided = filtered(table, float(scale), offset_of(name, scale), leading)
    accepted = np.setdiff1d(np.arange(leading.size), undecided)
    for place in accepted:
        # No words: a cell that the filter accepts must be decided by its 53 bits alone.
        exact = decide(LAWS[name], scale, int(leading[place]), BITS, GivenWords([]))
        assert magnitude[place] == exact


@all_laws
def test_a_filter_without_its_band_decides_what_53_bits_cannot(name):
    """The twin: a blind filter accepts cells that hold a step of the law, so some draws err."""
    scale = Fraction(1000)
    leading = cells_near_steps(name, scale)
    table = certified_table(LAWS[name])
    blind = replace(table, error=np.zeros_like(table.error))
    _, undecided = filtered(table, float(scale), offset_of(name, scale), leading)
    _, unseen = filtered(blind, float(scale), offset_of(name, scale), leading)
    assert undecided.size > 0
    assert unseen.size == 0

    def ends(cell: int) -> set[int]:
        lowest, highest = [0, 0, 0], [(1 << 64) - 1] * 3
        return {decide(LAWS[name], scale, cell, BITS, GivenWords(w)) for w in (lowest, highest)}

    assert any(len(ends(int(leading[place]))) == 2 for place in undecided)


@all_laws
@all_scales
@pytest.mark.parametrize("widening", [1e-3, np.inf])
def test_a_forced_slow_way_gives_the_same_integers(name, scale, widening):
    table = certified_table(LAWS[name])
    wide = replace(table, error=table.error + widening / max(1.0, float(scale)))
    fast = draw(LAWS[name], table, scale, 2000, SeededWords("same"))
    slow = draw(LAWS[name], wide, scale, 2000, SeededWords("same"))
    assert np.array_equal(fast, slow)


@all_laws
def test_the_table_bounds_its_own_error_at_every_row(name):
    """Against ball arithmetic at both ends and inside of all 1024 rows and of their cells."""
    law, table = LAWS[name], certified_table(LAWS[name])
    rng = np.random.default_rng(7)
    worst = 0.0
    for place in range(1, table.error.size):
        exponent, row = divmod(place - 1, 32)
        exponent += BITS - 32
        left, width = (32 + row) << (exponent - 5), 1 << (exponent - 5)
        for v in (left, left + width - 1, left + int(rng.integers(width))):
            bits = int(np.float64(v).view(np.int64))
            assert (bits >> LOW_BITS) - table.first_index == place
            t = float(bits & ((1 << LOW_BITS) - 1)) - 2.0 ** (LOW_BITS - 1)
            horner = 0.0
            for coefficient in table.coefficients[::-1, place]:
                horner = horner * t + float(coefficient)
            with ctx.workprec(160):
                for end in (v, v + 1):
                    gap = abs(law.value(arb(end) * arb(2) ** -BITS) - arb(horner))
                    assert gap <= arb(float(table.error[place]))
                    worst = max(worst, float(gap) / float(table.error[place]))
    assert worst > 0.5  # the bound is a bound, not a precaution


def test_row_zero_decides_nothing():
    for law in LAWS.values():
        assert certified_table(law).error[0] == np.inf
        assert np.isfinite(certified_table(law).error[1:]).all()


def test_no_step_of_horners_rule_can_underflow():
    """The rounding bound assumes relative errors: true while no product is near 2^-1022."""
    for law in LAWS.values():
        assert np.abs(certified_table(law).coefficients[:, 1:]).min() > 2.0**-450


def normal_quantile_polynomials(order: int) -> list[list[int]]:
    """P_1 = 1, P_(n+1) = P_n' + n x P_n: the n-th derivative of the quantile is P_n / phi^n."""
    rows = [[1]]
    for n in range(1, order):
        p = rows[-1]
        derivative = [k * p[k] for k in range(1, len(p))] + [0, 0]
        shifted = [0, *(n * c for c in p)]
        rows.append([a + b for a, b in zip(derivative, shifted, strict=False)])
    return rows


def test_derivatives_of_the_normal_quantile_have_no_negative_coefficient():
    """So each is positive and increasing in x >= 0: what the remainder bound rests on."""
    for p in normal_quantile_polynomials(ORDER + 1):
        assert min(p) >= 0
        assert max(p) > 0


@pytest.mark.parametrize("u", [0.001, 0.3, 0.999])
def test_taylor_coefficients_of_the_gaussian_agree_with_the_closed_form(u):
    with ctx.workprec(200):
        point, step = arb(u), arb(2) ** -9
        coefficients = GAUSSIAN.taylor(point, step, ORDER + 1)
        x = GAUSSIAN.value(point)
        density = (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
        for n, p in enumerate(normal_quantile_polynomials(ORDER + 1), start=1):
            value = sum((c * x**k for k, c in enumerate(p)), arb(0))
            exact = value * (-step / (2 * density)) ** n / factorial(n)
            assert abs(coefficients[n] - exact) < 1e-40 * abs(exact)


@pytest.mark.parametrize("u", [0.001, 0.3, 0.999])
def test_taylor_coefficients_of_the_laplace_agree_with_differences(u):
    """An independent look: the polynomial at a small t against the logarithm itself."""
    with ctx.workprec(200):
        coefficients = LAPLACE.taylor(arb(u), arb(u), ORDER)
        t = arb(2) ** -12
        value = sum((c * t**k for k, c in enumerate(coefficients)), arb(0))
        assert abs(value + (arb(u) * (1 + t)).log()) < t ** (ORDER + 1)


def test_geometric_noise_has_no_sign():
    word = (3 << 50) << 11
    drawn = geometric(Fraction(100), 4, GivenWords([word, word | 1, word | 0x7FE, word | 0x7FF]))
    assert len(set(drawn.tolist())) == 1
    assert drawn[0] > 0
    ends = GivenWords(
        [2**64 - 1, 2**64 - 2]
    )  # U next to 1 is a small magnitude, not a negative one
    assert geometric(Fraction(1, 1000), 2, ends).tolist() == [0, 0]


@signed_laws
def test_the_lowest_bit_is_the_sign_and_the_ten_bits_above_it_are_unused(name):
    word = (3 << 50) << 11
    given = [word, word | 1, word | 0x7FE, word | 0x7FF]
    positive, negative, same, opposite = SAMPLERS[name](
        Fraction(100), 4, GivenWords(given)
    ).tolist()
    assert positive == same > 0
    assert negative == opposite == -positive


@all_laws
def test_a_draw_takes_one_word(name):
    words = SeededWords("count").words(50_000)
    given = GivenWords(words.tolist())
    drawn = SAMPLERS[name](Fraction(1000), 50_000, given)
    assert given.used == drawn.size == 50_000
    assert drawn.dtype == np.int64


@all_laws
def test_the_magnitude_falls_as_the_uniform_grows(name):
    words = np.sort(SeededWords("order").words(20_000) >> np.uint64(11) << np.uint64(11))
    drawn = SAMPLERS[name](Fraction(10**6), words.size, GivenWords(words.tolist()))
    assert (np.diff(drawn) <= 0).all()


@all_laws
def test_zero_words_extend_the_uniform_until_it_is_positive(name):
    """U = 0.000... in 53 + 128 bits, then a word: a tail no float of a 64-bit uniform reaches."""
    given = GivenWords([1, 0, 0, 1 << 63, 5])
    drawn = SAMPLERS[name](Fraction(1), 1, given)[0]
    bits = BITS + 2 * 64
    with ctx.workprec(500):  # U lies in [2^63, 2^63 + 1] / 2^(bits + 64): half of 2^-bits
        u = arb(2) ** -(bits + 1)
        k = abs(int(drawn))
        assert tail(name, Fraction(1), k) >= u * (1 + arb(2) ** -60)
        assert tail(name, Fraction(1), k + 1) <= u


def test_a_magnitude_beyond_64_bits_is_an_error_and_never_wraps():
    """-ln U > 2^23 at scale 2^40: 190 000 zero words, which chance never gives."""
    zeros = 190_000
    given = GivenWords([0] * zeros + [1 << 63, 5])
    with pytest.raises(PlanError, match="64-bit"):
        discrete_laplace(Fraction(1 << 40), 1, given)


@all_laws
def test_the_largest_scale_stays_within_its_tail(name):
    drawn = SAMPLERS[name](Fraction(1 << 40), 20_000, SeededWords("large"))
    assert drawn.dtype == np.int64
    # P(|N| > 37 scale) < 1e-16 per draw for both laws.
    assert 1 << 39 < np.abs(drawn).max() < 37 << 40
    assert np.unique(drawn & 1023).size == 1024  # the low bits are alive


@all_laws
def test_the_smallest_scale_is_all_but_zero(name):
    drawn = SAMPLERS[name](Fraction(1, 1024), 20_000, SeededWords("small"))
    assert not drawn.any()


@all_laws
@pytest.mark.parametrize(
    "scale",
    [Fraction(0), Fraction(-1), Fraction(1, 1025), Fraction((1 << 40) + 1)],
    ids=str,
)
def test_a_scale_outside_the_proven_range_is_refused(name, scale):
    with pytest.raises(PlanError, match="outside"):
        SAMPLERS[name](scale, 1, SeededWords(0))


@all_laws
def test_a_float_scale_is_refused(name):
    with pytest.raises(PlanError, match="Fraction"):
        SAMPLERS[name](1.5, 1, SeededWords(0))


@all_laws
def test_a_negative_size_is_refused_and_an_empty_one_is_empty(name):
    with pytest.raises(PlanError, match="0 or more"):
        SAMPLERS[name](Fraction(1), -1, SeededWords(0))
    assert SAMPLERS[name](Fraction(1), 0, GivenWords([])).shape == (0,)


@all_laws
def test_blocks_do_not_show(name):
    """70 000 draws span several blocks; one by one in smaller calls they are the same."""
    whole = SAMPLERS[name](Fraction(77, 3), 70_000, SeededWords("blocks"))
    source = SeededWords("blocks")
    parts = [SAMPLERS[name](Fraction(77, 3), 700, source) for _ in range(100)]
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("claim", [discrete_laplace, rounded_gaussian])
def test_every_privacy_claim_names_a_proof_page_with_that_theorem(claim):
    page, theorem = re.search(r"(docs/proofs/[\w-]+\.md), (Theorem \d)", claim.__doc__).groups()
    text = (Path(__file__).parents[4] / page).read_text()
    assert f"**{theorem} (privacy).**" in text


@pytest.mark.parametrize("place", [1, 33, 500, 777, 1024])
def test_the_bound_of_a_row_is_the_sum_of_all_its_parts(place):
    """For g = -ln u, whose derivatives are known: what the proof adds up, in 60 digits."""
    table = certified_table(LAPLACE)
    exponent, row = divmod(place - 1, 32)
    exponent += BITS - 32
    with mpmath.workdps(60):
        u, reach = mpmath.mpf(2) ** -53, mpmath.mpf(2) ** (LOW_BITS - 1)
        step = mpmath.mpf(2) ** (exponent - 52 - BITS)
        left = mpmath.mpf(32 + row) / 32 * mpmath.mpf(2) ** (exponent - BITS)
        half = mpmath.mpf(2) ** (51 - exponent)
        middle = left + step * (reach + half)
        exact = [-mpmath.log(middle), *((-step / middle) ** k / k for k in range(1, ORDER + 1))]
        stored = [mpmath.mpf(float(c)) for c in table.coefficients[:, place]]
        remainder = (step / left * reach) ** (ORDER + 1) / (ORDER + 1)
        unknown_bits = step / left * half
        rounded = sum(
            abs(e - s) * reach**k for k, (e, s) in enumerate(zip(exact, stored, strict=True))
        )
        bound, horner = abs(stored[-1]), mpmath.mpf(0)
        for coefficient in reversed(stored[:-1]):
            product = reach * bound
            bound = product + abs(coefficient)
            horner = reach * horner + u * (product + bound)
        parts = remainder + unknown_bits + rounded + horner
        total = parts + 8 * u * (-mpmath.log(left) + parts)
        assert rounded > 0
        assert total <= mpmath.mpf(float(table.error[place])) <= total * (1 + mpmath.mpf(10) ** -9)


def test_the_rounding_of_the_offset_widens_the_band():
    """With a table that is exact and 0, only the offset is uncertain: by how it was rounded."""
    table = certified_table(LAPLACE)
    nothing = replace(
        table, coefficients=np.zeros_like(table.coefficients), error=np.zeros_like(table.error)
    )
    leading = np.array([1 << 52, (1 << 52) + 12345])
    assert filtered(nothing, 1.0, 5.0, leading)[1].tolist() == [0, 1]  # 4 or 5, nobody knows
    magnitude, undecided = filtered(nothing, 1.0, 5.5, leading)
    assert (magnitude.tolist(), undecided.tolist()) == ([5, 5], [])
