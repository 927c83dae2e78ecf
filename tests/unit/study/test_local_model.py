# SPDX-License-Identifier: Apache-2.0
"""The exact law of one report: certified privacy, enumeration, and what bad input gets."""

from __future__ import annotations

import doctest
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from flint import arb, ctx

import sfumato.study.local_model as local
from sfumato.errors import BudgetError, SchemaError, TooLarge
from sfumato.study import local_model
from sfumato.study.local_model import (
    RandomizedResponse,
    UnaryEncoding,
    exp_down,
    keep_threshold,
    respond,
)
from sfumato.study.study_limits import LIMITS

EPSILONS = [
    Fraction(1, 1000),
    Fraction(1, 10),
    0.1,
    Fraction(1, 3),
    1,
    Fraction(7, 3),
    5.5,
    20,
    43,
    44,
    200,
]
SIZES = range(2, 11)


def is_certainly_at_most_exp(ratio: Fraction, epsilon: Fraction) -> bool:
    """True only if ball arithmetic proves ratio <= e^epsilon (independent of exp_down)."""
    ctx.prec = 512
    exponent = arb(epsilon.numerator) / arb(epsilon.denominator)
    return bool(arb(ratio.numerator) / arb(ratio.denominator) <= exponent.exp())


def certainly_exceeds_exp(ratio: Fraction, epsilon: Fraction) -> bool:
    """True only if ball arithmetic proves ratio > e^epsilon."""
    ctx.prec = 512
    exponent = arb(epsilon.numerator) / arb(epsilon.denominator)
    return bool(arb(ratio.numerator) / arb(ratio.denominator) > exponent.exp())


def worst_ratio(keep: Fraction, size: int) -> Fraction:
    """The largest ratio of probabilities of one report between any two codes, by enumeration."""
    law = [[keep if y == x else (1 - keep) / (size - 1) for y in range(size)] for x in range(size)]
    return max(law[x][y] / law[z][y] for x, z, y in product(range(size), repeat=3))


class ScriptedWords:
    """Hands out the given arrays of words in turn."""

    def __init__(self, *scripts: np.ndarray) -> None:
        self.scripts = list(scripts)

    def words(self, count: int) -> np.ndarray:
        script = self.scripts.pop(0)
        assert len(script) == count
        return script


class SeededWords:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.drawn = 0

    def words(self, count: int) -> np.ndarray:
        self.drawn += count
        return self.generator.integers(0, 1 << 64, size=count, dtype=np.uint64)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_report_is_more_than_e_epsilon_times_likelier_from_one_code_than_another(epsilon):
    for size in SIZES:
        response = RandomizedResponse(epsilon, size)
        assert worst_ratio(response.keep, size) == response.likelihood_ratio
        assert is_certainly_at_most_exp(response.likelihood_ratio, Fraction(epsilon))


@pytest.mark.parametrize("epsilon", [epsilon for epsilon in EPSILONS if epsilon < 40])
def test_one_unit_more_in_the_threshold_would_break_privacy(epsilon):
    """The twin that rounds the probability up must be caught; so the threshold is also tight."""
    for size in SIZES:
        rounded_up = Fraction(keep_threshold(Fraction(epsilon), size) + 1, 1 << 64)
        assert certainly_exceeds_exp(worst_ratio(rounded_up, size), Fraction(epsilon))


@pytest.mark.parametrize("epsilon", [epsilon for epsilon in EPSILONS if epsilon < 40])
def test_half_the_randomisation_would_break_privacy(epsilon):
    for size in SIZES:
        half = 1 - (1 - RandomizedResponse(epsilon, size).keep) / 2
        assert certainly_exceeds_exp(worst_ratio(half, size), Fraction(epsilon))


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_a_coarse_coin_is_just_as_private(bits):
    """With few bits rounding matters visibly: up is wrong by far, down stays right."""
    for size, epsilon in product((2, 3, 5, 7), (Fraction(1, 2), Fraction(1), Fraction(3))):
        try:
            threshold = keep_threshold(epsilon, size, bits)
        except BudgetError:
            assert bits == 4  # a p at or below 1/size is refused, never used
            continue
        down, up = Fraction(threshold, 1 << bits), Fraction(threshold + 1, 1 << bits)
        assert is_certainly_at_most_exp(worst_ratio(down, size), epsilon)
        assert up == 1 or certainly_exceeds_exp(worst_ratio(up, size), epsilon)


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_every_coin_and_offset_of_a_small_source_gives_the_stated_law(size):
    """All 2^8 coins times all offsets, as Fractions: equal to the law, not merely close."""
    bits = 8
    threshold = keep_threshold(Fraction(1), size, bits)
    coins, offsets = np.meshgrid(
        np.arange(1 << bits, dtype=np.uint64), np.arange(size - 1, dtype=np.int64)
    )
    for code in range(size):
        codes = np.full(coins.size, code, dtype=np.int64)
        reports = respond(codes, coins.ravel(), offsets.ravel(), threshold, size)
        law = [Fraction(int(count), reports.size) for count in np.bincount(reports)]
        keep = Fraction(threshold, 1 << bits)
        assert law == [keep if y == code else (1 - keep) / (size - 1) for y in range(size)]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 4])
def test_encode_over_all_words_of_a_small_source_matches_the_law(epsilon, size):
    """The whole path from words to reports: all 256 leading bytes of the coin, all offset words.

    The coin is known to 8 bits, so the law holds within 2^-8; among moved codes it holds exactly.
    """
    response = RandomizedResponse(epsilon, size)
    leading = np.arange(256, dtype=np.uint64) << np.uint64(56)
    coins, offsets = np.meshgrid(leading, np.arange(size - 1, dtype=np.uint64))
    for code in range(size):
        words = ScriptedWords(coins.ravel(), offsets.ravel())
        reports = response.encode(np.full(coins.size, code), words)
        law = [Fraction(int(count), reports.size) for count in np.bincount(reports)]
        assert abs(law[code] - response.keep) <= Fraction(1, 256)
        assert len({law[other] for other in range(size) if other != code}) == 1
        assert sum(law) == 1


def test_a_rejected_offset_is_drawn_again():
    """Four codes have three others: the offset word 3 is refused, the next one decides."""
    moved = np.array([2**64 - 1], dtype=np.uint64)
    words = ScriptedWords(moved, np.array([3], dtype=np.uint64), np.array([2], dtype=np.uint64))
    assert RandomizedResponse(1, 4).encode([1], words).tolist() == [0]


def test_the_coin_turns_exactly_at_the_threshold():
    response = RandomizedResponse(1, 2)
    words = np.array([0, response.threshold - 1, response.threshold, 2**64 - 1], dtype=np.uint64)
    assert response.encode([1, 1, 1, 1], ScriptedWords(words)).tolist() == [1, 1, 0, 0]


def test_one_bit_keeps_with_the_probability_of_the_textbook():
    """p = e / (1 + e) = 0.731058578630005 for epsilon 1."""
    assert float(RandomizedResponse(1, 2).keep) == pytest.approx(0.731058578630005, abs=1e-15)


def test_opendp_charges_the_same_epsilon_for_the_same_probability():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    for size, epsilon in product((3, 8), (0.5, 2.0)):
        response = RandomizedResponse(epsilon, size)
        peer = dp.m.make_randomized_response(
            categories=[str(code) for code in range(size)], prob=float(response.keep)
        )
        assert peer.map(1) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 7), Fraction(0.1), Fraction(100)])
def test_exp_down_is_below_exp_and_within_a_hair(exponent):
    ctx.prec = 600
    exact = (arb(exponent.numerator) / arb(exponent.denominator)).exp()
    low = exp_down(exponent)
    low_ball = arb(low.numerator) / arb(low.denominator)
    assert bool(low_ball <= exact)
    assert bool(exact - low_ball < exact * arb(2) ** -230)


def test_how_many_words_are_drawn_does_not_depend_on_the_codes_or_the_coins():
    """Offsets are drawn for kept codes too, else the time would tell that the report is true."""
    response = RandomizedResponse(30, 5)  # keeps practically always
    mostly_kept, mostly_moved = SeededWords(1), SeededWords(1)
    response.encode(np.zeros(1000, dtype=int), mostly_kept)
    RandomizedResponse(Fraction(1, 100), 5).encode(np.arange(1000) % 5, mostly_moved)
    assert mostly_kept.drawn == mostly_moved.drawn


def test_encode_keeps_the_shape_and_stays_in_range_with_system_words():
    reports = RandomizedResponse(1, 6).encode(np.arange(12).reshape(3, 4) % 6)
    assert reports.shape == (3, 4)
    assert reports.min() >= 0
    assert reports.max() < 6


def test_encode_of_one_code_and_of_none():
    assert RandomizedResponse(1, 3).encode(2).shape == ()
    assert RandomizedResponse(1, 3).encode([]).shape == (0,)


def test_encode_in_blocks_is_the_same_as_at_once(monkeypatch):
    codes = np.arange(100) % 2
    whole = RandomizedResponse(1, 2).encode(codes, SeededWords(5))
    monkeypatch.setattr(local_model, "LIMITS", replace(LIMITS, reports_at_once=7))
    assert np.array_equal(RandomizedResponse(1, 2).encode(codes, SeededWords(5)), whole)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), Fraction(-1, 2)])
def test_an_epsilon_that_is_not_finite_and_positive_is_refused(epsilon):
    with pytest.raises(BudgetError, match="finite and greater than 0"):
        RandomizedResponse(epsilon, 2)


@pytest.mark.parametrize("epsilon", ["1", None, True, 1j])
def test_an_epsilon_that_is_not_a_number_is_refused(epsilon):
    with pytest.raises(BudgetError, match="give an int, a float or a Fraction"):
        RandomizedResponse(epsilon, 2)


def test_an_epsilon_below_the_resolution_of_the_coin_is_refused():
    with pytest.raises(BudgetError, match="too small for 3 codes"):
        RandomizedResponse(1e-25, 3)


@pytest.mark.parametrize("size", [1, 0, -2, 2.0, True, "2"])
def test_a_size_below_two_or_not_an_integer_is_refused(size):
    with pytest.raises(SchemaError, match="at least 2"):
        RandomizedResponse(1, size)


def test_a_size_beyond_the_bound_is_refused_with_its_number():
    with pytest.raises(TooLarge, match=str(LIMITS.response_cells + 1)):
        RandomizedResponse(1, LIMITS.response_cells + 1)


@pytest.mark.parametrize("bad", [[0, 104729], [-104729, 0], [1.5, 104729.0], ["104729"]])
def test_codes_outside_the_domain_are_refused_without_naming_the_value(bad):
    with pytest.raises(SchemaError) as caught:
        RandomizedResponse(1, 4).encode(bad)
    assert "104729" not in str(caught.value)
    assert "0 to 3" in str(caught.value)


def test_numpy_numbers_and_equal_values_make_equal_responses():
    assert RandomizedResponse(np.float64(0.5), np.int64(3)) == RandomizedResponse(Fraction(1, 2), 3)
    assert RandomizedResponse(np.float32(0.5), 3).epsilon == Fraction(1, 2)


def test_a_response_cannot_be_changed_but_by_making_a_new_one():
    response = RandomizedResponse(1, 3)
    with pytest.raises(FrozenInstanceError):
        response.threshold = 2**64 - 1
    assert replace(response, size=4) == RandomizedResponse(1, 4)


def test_every_public_name_is_exported():
    assert all(hasattr(local, name) for name in local.__all__)


def test_the_pages_exist_and_the_examples_on_them_run():
    root = Path(__file__).parents[3]
    assert "Claim 1" in (root / "docs/proofs/randomized-response.md").read_text()
    page = root / "docs/mechanisms/randomized-response.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_examples_in_the_docstrings_run():
    result = doctest.testmod(local_model)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("kind", ["symmetric", "optimized"])
@pytest.mark.parametrize("epsilon", EPSILONS[:7])
def test_no_unary_report_is_more_than_e_epsilon_times_likelier_from_another_code(kind, epsilon):
    """Every report of three bits, exactly, from every pair of codes."""
    unary = UnaryEncoding(epsilon, 3, kind)
    p, q = unary.keep, unary.other

    def chance(bits: tuple[int, ...], code: int) -> Fraction:
        ones = (p if j == code else q for j in range(3))
        out = Fraction(1)
        for bit, one in zip(bits, ones, strict=True):
            out *= one if bit else 1 - one
        return out

    largest = Fraction(0)
    for bits in product((0, 1), repeat=3):
        each = [chance(bits, code) for code in range(3)]
        largest = max(largest, max(each) / min(each))
    assert largest == unary.likelihood_ratio
    old, ctx.prec = ctx.prec, 200
    bound = (arb(Fraction(epsilon).numerator) / Fraction(epsilon).denominator).exp()
    assert arb(largest.numerator) / largest.denominator <= bound
    assert arb(largest.numerator) / largest.denominator >= bound * arb("0.999")
    # Every bit at the whole of epsilon is the mistake: the ratio would be its square.
    wrong = UnaryEncoding(2 * Fraction(epsilon), 3, "symmetric").likelihood_ratio
    assert arb(wrong.numerator) / wrong.denominator > bound
    ctx.prec = old
