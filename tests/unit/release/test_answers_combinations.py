# SPDX-License-Identifier: Apache-2.0
"""Linear combinations of released answers and their errors."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from tests.shared.made_releases import people, planned, released, some_counts

DOMAIN = people()
WORK = (
    sf.marginals(DOMAIN, [("age", "sex"), ("sex",)])
    | sf.prefixes(DOMAIN, "age")
    | sf.means(DOMAIN, "age")
)
MECHANISMS = ["gaussian", "laplace", "gaussian-table", "laplace-groups", "factorization"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_combination_of_one_answer_is_that_answer(mechanism: str) -> None:
    result = released(WORK, some_counts(DOMAIN), mechanism, project=False)
    found = result.combine({"age x sex": {7: 1.0}}, level=0.9)
    listed = result.answers(group="age x sex", level=0.9).iloc[7]
    wanted = listed[["value", "standard_error", "low", "high"]].to_numpy(dtype=float)
    got = [found.value, found.standard_error, found.low, found.high]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_follows_from_the_measurements_without_noise_has_no_other_error(
    mechanism: str,
) -> None:
    """The table summed over ages, less the released table of sexes, is noise alone: mean 0."""
    result = released(WORK, some_counts(DOMAIN), mechanism, seed=None, project=False)
    rows = len(result.answers(group="age x sex"))
    found = result.combine({"age x sex": np.ones(rows), "sex": -np.ones(3)})
    assert found.value == pytest.approx(0.0, abs=1e-6)
    if mechanism in ("gaussian-table", "factorization"):  # the answers agree with one another
        assert found.standard_error == pytest.approx(0.0, abs=1e-6)
    else:
        assert found.standard_error > 0.1


def test_covariances_give_the_errors_of_combinations() -> None:
    for mechanism in MECHANISMS:
        plan = planned(WORK, mechanism)
        covariance = plan.covariance("age x sex", [0, 5, 11])
        variances = plan.standard_errors(0)[[0, 5, 11]] ** 2
        np.testing.assert_allclose(np.diag(covariance), variances, rtol=1e-9)
        c = np.array([1.0, -2.0, 0.5])
        error = plan.combination_error({"age x sex": dict(zip([0, 5, 11], c, strict=True))})
        assert error == pytest.approx(np.sqrt(c @ covariance @ c))


def test_a_sum_of_laplace_draws_has_the_law_of_so_many() -> None:
    """Ten equal independent draws: the interval of their sum, not that of one or of a normal.

    They are whole numbers, of which it holds some more: half of at most the greatest step.
    """
    from sfumato.privacy.noise_laws import laplace_mixture_quantile

    result = released(sf.marginals(DOMAIN, [("age",)]), some_counts(DOMAIN), "laplace")
    found = result.combine({"age": np.ones(10)}, level=0.99)
    quantile = float(laplace_mixture_quantile([10.0], 0.99)[0])
    variance = 1.841347  # of one draw at epsilon 1: 2 q / (1 - q)^2, q = 1 / e
    half_step = 10**0.25 / 2
    smoothed = np.sqrt(10 * variance + half_step**2 / 3)
    expected = quantile * smoothed + half_step
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ({}, "takes coefficients"),
        ({"age x sec": [1.0]}, "did you mean 'age x sex'"),
        ({"mean age": [1.0]}, "a mean is not linear"),
        ({"sex": [1.0]}, "3 answers, got coefficients of shape"),
        ({"sex": {3: 1.0}}, "numbered 0 to 2"),
        ({"sex": {0.5: 1.0}}, "numbered 0 to 2"),
        ({"sex": [1.0, np.nan, 0.0]}, "finite"),
        ({"sex": ["a", "b", "c"]}, "finite"),
    ],
)
def test_coefficients_that_do_not_fit_are_refused(coefficients: dict, message: str) -> None:
    result = released(WORK, some_counts(DOMAIN), "gaussian")
    with pytest.raises(WorkloadError, match=message):
        result.combine(coefficients)


@pytest.mark.parametrize("listed", [[], [[0, 1]], ["a"], [0, 3], [-1], range(5000)])
def test_lists_of_answers_that_do_not_fit_are_refused(listed: list) -> None:
    result = released(WORK, some_counts(DOMAIN), "gaussian")
    with pytest.raises(WorkloadError, match=r"numbers of answers|numbered"):
        result.covariance("sex", listed)
