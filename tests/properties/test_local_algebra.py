# SPDX-License-Identifier: Apache-2.0
"""Algebra of the local model that must hold for every response, tally and query."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.study.local_model import (
    RandomizedResponse,
    estimate_from_tally,
    estimate_reports,
    forecast_radius,
    forecast_rmse,
    product_queries,
    response_error,
    response_rows_needed,
    row_variances,
)

epsilons = st.one_of(
    st.floats(min_value=1e-6, max_value=60, allow_subnormal=False),
    st.fractions(min_value=Fraction(1, 10**6), max_value=60, max_denominator=10**6),
    st.integers(min_value=1, max_value=1000),
)
moderate = st.floats(min_value=0.05, max_value=8)
sizes = st.integers(min_value=2, max_value=12)
seeds = st.integers(min_value=0, max_value=2**32 - 1)


class SeededWords:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def words(self, count: int) -> np.ndarray:
        return self.generator.integers(0, 1 << 64, size=count, dtype=np.uint64)


def draw(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A tally and five queries."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 1000, size), generator.normal(size=(5, size))


@given(epsilons, st.integers(min_value=2, max_value=10_000_000))
def test_the_law_is_certified_private_and_sums_to_one(epsilon, size):
    response = RandomizedResponse(epsilon, size)
    ctx.prec = 512
    exact = Fraction(epsilon)
    ratio = response.likelihood_ratio
    exponential = (arb(exact.numerator) / arb(exact.denominator)).exp()
    assert bool(arb(ratio.numerator) / arb(ratio.denominator) <= exponential)
    assert ratio > 1
    assert response.keep + (size - 1) * response.other == 1


@given(epsilons, sizes)
def test_a_larger_epsilon_never_keeps_less(epsilon, size):
    nearby = Fraction(epsilon) * Fraction(1_000_001, 1_000_000)
    assert RandomizedResponse(nearby, size).threshold >= RandomizedResponse(epsilon, size).threshold


@given(moderate, sizes, seeds)
def test_the_estimate_sums_to_the_number_of_reports(epsilon, size, seed):
    tally, _ = draw(seed, size)
    result = estimate_from_tally(RandomizedResponse(epsilon, size), tally)
    scale = 1 + np.abs(result.counts).sum()
    assert abs(result.counts.sum() - tally.sum()) <= 1e-12 * scale


@given(moderate, sizes, seeds)
def test_estimates_of_two_groups_of_clients_add_up(epsilon, size, seed):
    response = RandomizedResponse(epsilon, size)
    first, second = draw(seed, size)[0], draw(seed + 1, size)[0]
    parts = estimate_from_tally(response, first), estimate_from_tally(response, second)
    whole = estimate_from_tally(response, first + second)
    assert np.allclose(parts[0].counts + parts[1].counts, whole.counts, rtol=1e-9, atol=1e-6)
    assert np.allclose(
        parts[0].covariance() + parts[1].covariance(), whole.covariance(), rtol=1e-9, atol=1e-6
    )


@given(moderate, sizes, seeds, st.floats(min_value=-3, max_value=3))
def test_answers_are_linear_in_the_queries(epsilon, size, seed, factor):
    tally, queries = draw(seed, size)
    result = estimate_from_tally(RandomizedResponse(epsilon, size), tally)
    mixed = result.answer(queries[:1] + factor * queries[1:2]).value
    apart = result.answer(queries[:2]).value
    assert np.allclose(mixed, apart[0] + factor * apart[1], rtol=1e-9, atol=1e-6)


@given(moderate, sizes, seeds, st.floats(min_value=-100, max_value=100))
def test_adding_a_constant_to_a_query_moves_the_value_and_nothing_else(epsilon, size, seed, shift):
    """The total is known exactly, so it brings no error."""
    tally, queries = draw(seed, size)
    result = estimate_from_tally(RandomizedResponse(epsilon, size), tally)
    plain, shifted = result.answer(queries), result.answer(queries + shift)
    scale = 1 + np.abs(plain.value).max() + abs(shift) * tally.sum()
    assert np.allclose(shifted.value, plain.value + shift * tally.sum(), atol=1e-10 * scale)
    assert np.allclose(shifted.standard_error, plain.standard_error, rtol=1e-8)
    assert np.allclose(shifted.high - shifted.low, plain.high - plain.low, rtol=1e-8)


@given(moderate, sizes, seeds)
def test_relabelling_the_codes_relabels_the_estimate(epsilon, size, seed):
    response = RandomizedResponse(epsilon, size)
    tally, _ = draw(seed, size)
    order = np.random.default_rng(seed).permutation(size)
    relabelled = estimate_from_tally(response, tally[order])
    assert np.array_equal(relabelled.counts, estimate_from_tally(response, tally).counts[order])


@given(moderate, sizes, seeds, st.integers(min_value=0, max_value=200))
def test_reports_are_codes_and_their_order_does_not_matter(epsilon, size, seed, rows):
    response = RandomizedResponse(epsilon, size)
    generator = np.random.default_rng(seed)
    reports = response.encode(generator.integers(0, size, rows), SeededWords(seed))
    assert ((reports >= 0) & (reports < size)).all()
    shuffled = generator.permutation(reports)
    assert np.array_equal(
        estimate_reports(response, reports).counts, estimate_reports(response, shuffled).counts
    )


@given(moderate, sizes, seeds, st.integers(min_value=1, max_value=10**6))
def test_no_data_set_has_more_variance_than_the_forecast(epsilon, size, seed, rows):
    response = RandomizedResponse(epsilon, size)
    generator = np.random.default_rng(seed)
    queries = generator.normal(size=(5, size))
    histogram = generator.multinomial(rows, generator.dirichlet(np.full(size, 0.3)))
    true_variance = row_variances(response, queries) @ histogram
    assert (true_variance <= forecast_rmse(response, queries, rows) ** 2 * (1 + 1e-12)).all()
    # Popoviciu: a variable in a range of spread/gap has variance at most a quarter of its square.
    popoviciu = rows * (np.ptp(queries, axis=1) / float(response.gap)) ** 2 / 4
    assert (true_variance <= popoviciu * (1 + 1e-9)).all()


@given(moderate, sizes, st.floats(min_value=1e-6, max_value=0.5), st.integers(1, 10**6))
def test_a_smaller_failure_probability_needs_a_wider_interval(epsilon, size, beta, rows):
    response = RandomizedResponse(epsilon, size)
    for interval in ("finite", "hoeffding", "normal"):
        wide = forecast_radius(response, np.eye(size), rows, beta / 2, interval)
        narrow = forecast_radius(response, np.eye(size), rows, beta, interval)
        assert (wide > narrow).all()


@given(moderate, sizes, st.floats(0.001, 0.5), st.floats(1e-9, 0.5), st.integers(1, 10**9))
def test_rows_needed_meets_the_bound_and_one_row_less_does_not(epsilon, size, alpha, beta, queries):
    response = RandomizedResponse(epsilon, size)
    rows = response_rows_needed(response, alpha, beta, queries)
    assert response_error(response, rows, queries, beta) <= alpha * rows
    # Two rows less, not one: at the very edge a float may settle on the next integer.
    if rows > 2:
        assert response_error(response, rows - 2, queries, beta) > alpha * (rows - 2)


@settings(max_examples=50)
@given(seeds)
def test_product_queries_are_products_of_answers_on_a_product_histogram(seed):
    generator = np.random.default_rng(seed)
    left, right = generator.normal(size=(2, 3)), generator.normal(size=(3, 4))
    first, second = generator.normal(size=3), generator.normal(size=4)
    joint = product_queries(left, right) @ np.outer(first, second).ravel()
    assert np.allclose(joint, np.outer(left @ first, right @ second).ravel())
