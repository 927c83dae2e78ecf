# SPDX-License-Identifier: Apache-2.0
"""The estimate, its covariance and its intervals, against exact enumeration of all reports."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sfumato.errors import PlanError, SchemaError, TooLarge, WorkloadError
from sfumato.study.local_model import (
    RandomizedResponse,
    estimate_from_tally,
    estimate_reports,
    forecast_radius,
)


def outcomes(response: RandomizedResponse, codes: tuple[int, ...]):
    """Every vector of reports with its exact probability."""
    for reports in product(range(response.size), repeat=len(codes)):
        chance = Fraction(1)
        for code, report in zip(codes, reports, strict=True):
            chance *= response.keep if code == report else response.other
        yield reports, float(chance)


@pytest.mark.parametrize(("size", "codes"), [(2, (0, 1, 1, 1)), (3, (0, 2, 2)), (4, (1, 1, 3))])
def test_mean_and_covariance_over_all_reports_are_those_claimed(size, codes):
    """Brute force over every possible vector of reports; no formula of the estimate is used."""
    response = RandomizedResponse(Fraction(4, 5), size)
    truth = np.bincount(codes, minlength=size)
    mean, second, claimed = np.zeros(size), np.zeros((size, size)), np.zeros((size, size))
    bound = None
    for reports, chance in outcomes(response, codes):
        result = estimate_reports(response, reports)
        error = result.counts - truth
        mean += chance * error
        second += chance * np.outer(error, error)
        claimed += chance * result.covariance()
        bound = result.covariance_bound()
    assert np.allclose(mean, 0, atol=1e-12)
    assert np.allclose(claimed, second, rtol=1e-12, atol=1e-10)  # unbiased plug-in
    assert np.linalg.eigvalsh(bound - second).min() > -1e-9  # Loewner bound


def test_one_bit_agrees_with_the_formula_of_the_notes():
    response = RandomizedResponse(1, 2)
    reports = np.array([1, 0, 0, 1, 1, 1, 0])
    p = float(response.keep)
    notes = (0.5 + (reports - 0.5) / (2 * p - 1)).sum()
    assert estimate_reports(response, reports).counts[1] == pytest.approx(notes, rel=1e-13)


def test_counts_equal_the_exact_rational_formula_even_for_a_tiny_epsilon():
    response = RandomizedResponse(1e-9, 3)
    tally = [333_334, 333_333, 333_333]
    exact = [(Fraction(y) - response.other * 1_000_000) / response.gap for y in tally]
    got = estimate_from_tally(response, tally).counts
    assert np.allclose(got, [float(x) for x in exact], rtol=1e-12)


def test_the_standard_error_is_the_root_of_the_quadratic_form_of_the_covariance():
    result = estimate_from_tally(RandomizedResponse(2, 4), [10, 40, 30, 20])
    queries = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0.5, -2, 3, 1], [1, 1, 1, 1]])
    answers = result.answer(queries)
    quadratic = np.einsum("qi,ij,qj->q", queries, result.covariance(), queries)
    assert np.allclose(answers.standard_error**2, quadratic, atol=1e-9)
    assert answers.standard_error[3] == 0  # the total is known
    assert answers.value[3] == pytest.approx(100)


def test_the_hoeffding_interval_has_the_radius_of_the_notes():
    """(1 / (2p-1)) sqrt(n ln(2/beta) / 2) with 1/(2p-1) = (e+1)/(e-1), n = 1000, beta = 0.05."""
    answers = estimate_from_tally(RandomizedResponse(1, 2), [400, 600]).answer(
        [[0, 1]], confidence=0.95, interval="hoeffding"
    )
    radius = (math.e + 1) / (math.e - 1) * math.sqrt(1000 * math.log(40) / 2)
    assert answers.high[0] - answers.value[0] == pytest.approx(radius, rel=1e-12)
    assert answers.value[0] - answers.low[0] == pytest.approx(radius, rel=1e-12)


def test_simultaneous_intervals_pay_for_the_number_of_queries():
    result = estimate_from_tally(RandomizedResponse(1, 2), [400, 600])
    queries = np.tile([0.0, 1.0], (50, 1))
    for interval in ("finite", "hoeffding", "normal"):
        together = result.answer(queries, 0.95, interval, simultaneous=True)
        alone = result.answer(queries[:1], 1 - 0.05 / 50, interval)
        assert together.high[7] == pytest.approx(alone.high[0], rel=1e-12)


def test_the_finite_interval_is_never_wider_than_hoeffding_and_much_narrower_for_many_codes():
    for size, factor in ((2, 1), (16, 1.3), (256, 4)):
        response = RandomizedResponse(1, size)
        finite = forecast_radius(response, np.eye(size), 100_000, 0.05, "finite")
        hoeffding = forecast_radius(response, np.eye(size), 100_000, 0.05, "hoeffding")
        assert (finite <= hoeffding / factor).all()


def test_the_finite_interval_of_one_bit_is_that_of_bernstein():
    """n = 1000, L = ln 40, b = (e+1)/(e-1), V = n e/(e-1)^2: b L/3 + sqrt((b L/3)^2 + 2 V L)."""
    log_term, reach = math.log(40), (math.e + 1) / (math.e - 1)
    variance = 1000 * math.e / (math.e - 1) ** 2
    linear = reach * log_term / 3
    expected = linear + math.sqrt(linear**2 + 2 * variance * log_term)
    got = forecast_radius(RandomizedResponse(1, 2), [[0, 1]], 1000, 0.05)[0]
    assert got == pytest.approx(expected, rel=1e-12)


def test_an_estimate_cannot_be_changed_and_does_not_follow_the_callers_array():
    tally = np.array([4, 6])
    result = estimate_from_tally(RandomizedResponse(1, 2), tally)
    tally[0] = 1000
    assert result.rows == 10
    with pytest.raises(ValueError, match="read-only"):
        result.tally[0] = 5


def test_no_reports_give_zero_counts_with_zero_error():
    answers = estimate_reports(RandomizedResponse(1, 3), []).answer(np.eye(3))
    assert answers.value.tolist() == answers.standard_error.tolist() == [0, 0, 0]
    assert answers.low.tolist() == answers.high.tolist() == [0, 0, 0]


@pytest.mark.parametrize("queries", [[1, 0], [[1, 0, 0]], np.zeros((0, 2)), [[[1, 0]]]])
def test_queries_of_another_shape_are_refused(queries):
    with pytest.raises(WorkloadError, match="allowed is"):
        estimate_from_tally(RandomizedResponse(1, 2), [1, 2]).answer(queries)


@pytest.mark.parametrize("queries", [[[1, math.nan]], [["a", "b"]], [[1, 1j]]])
def test_queries_that_are_not_finite_numbers_are_refused(queries):
    with pytest.raises(WorkloadError, match="finite numbers"):
        estimate_from_tally(RandomizedResponse(1, 2), [1, 2]).answer(queries)


@pytest.mark.parametrize("tally", [[1, 2, 3], [1.0, 2.0], [[1, 2]], [-1, 2]])
def test_a_tally_that_does_not_fit_the_response_is_refused(tally):
    with pytest.raises(SchemaError, match="tally"):
        estimate_from_tally(RandomizedResponse(1, 2), tally)


def test_reports_outside_the_domain_are_refused():
    with pytest.raises(SchemaError, match="reports"):
        estimate_reports(RandomizedResponse(1, 2), [0, 2])


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan])
def test_a_confidence_outside_zero_and_one_is_refused(confidence):
    with pytest.raises(PlanError, match="confidence"):
        estimate_from_tally(RandomizedResponse(1, 2), [1, 2]).answer([[0, 1]], confidence)


def test_an_unknown_interval_is_refused_with_the_allowed_ones():
    with pytest.raises(PlanError, match="'finite', 'hoeffding', 'normal'"):
        estimate_from_tally(RandomizedResponse(1, 2), [1, 2]).answer([[0, 1]], interval="exact")


def test_a_covariance_too_large_to_write_out_is_refused_but_answers_are_not():
    result = estimate_reports(RandomizedResponse(5, 5000), np.arange(5000))
    with pytest.raises(TooLarge, match="5000"):
        result.covariance()
    assert result.answer(np.ones((1, 5000))).value[0] == pytest.approx(5000)
