# SPDX-License-Identifier: Apache-2.0
"""The error after projection, forecast: against releases of known data and dense algebra."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.errors import PlanError
from sfumato.planning.forecast import drawn_noise
from sfumato.random import Draws
from sfumato.refine.consistency import Unrefined, refined_listed
from sfumato.study import projection_forecast as module
from sfumato.study.projection_forecast import after_projection
from sfumato.study.study_limits import LIMITS
from sfumato.study.widths import Hull
from tests.shared.made_releases import planned

SMALL = sf.Budget(epsilon=0.3, delta=1e-6)
YES_NO = sf.marginals(  # no record is dropped, so that their number can be public
    sf.Domain([Integer(f"q{i}", 0, 0, nulls="missing", outside="clamp") for i in range(6)]), 3
)
UNEVEN = sf.marginals(sf.Domain({"a": 6, "b": 4}), 1) * 3 | sf.marginals(
    sf.Domain({"a": 6, "b": 4}), 2
)


def errors(forecast, truth, rows, draws=8, shrinks=False):
    """``|released - truth|`` per draw in the objective's norm, as a root mean square."""
    work = forecast.workload
    weights = np.concatenate([np.full(t.rows, t.weight**2) for t in work.terms])
    ends = np.cumsum([t.rows for t in work.terms])[:-1]
    out = []
    for noise in drawn_noise(forecast, Draws("another label"), draws):
        found = refined_listed(forecast, np.split(truth + noise, ends), rows, shrinks=shrinks)
        out.append(weights @ (np.concatenate(found.answers) - truth) ** 2 / weights.sum())
    return float(np.sqrt(np.mean(out)))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("work", "n"), [(YES_NO, 4), (YES_NO, 300), (UNEVEN, 10)])
def test_no_data_have_a_greater_error_than_the_bound(work, n, neighbours):
    forecast = planned(work, "gaussian", budget=SMALL, neighbours=neighbours)
    found = after_projection(forecast, n)
    hull = Hull.of(work)
    one = n * hull.matrix[:, 0]
    even = n * hull.matrix.mean(axis=1)
    is_public = neighbours == "replace-one" and work.domain.keeps_every_record
    rows = n if is_public else None
    greatest = max(errors(forecast, truth, rows) for truth in (one, even))
    assert greatest <= 1.02 * found.bound  # as exact as so many draws are
    assert found.bound <= found.without
    if work is YES_NO and n == 4:
        assert found.bound < 0.8 * found.without
        # The twin: a bound of half the size is broken.
        assert greatest > 0.25 * found.bound


def test_a_bound_for_fewer_records_than_there_are_is_broken():
    forecast = planned(YES_NO, "gaussian", budget=SMALL, neighbours="replace-one")
    one = 400 * Hull.of(YES_NO).matrix.mean(axis=1)
    assert errors(forecast, one, 400) > after_projection(forecast, 1).bound


def test_the_estimate_is_that_of_releases_of_skewed_data():
    forecast = planned(YES_NO, "gaussian", budget=SMALL, neighbours="replace-one")
    found = after_projection(forecast, 50, steps=inf)  # all runs, however many steps
    assert found.estimate is not None
    assert found.runs == LIMITS.releases_tried
    rng = np.random.default_rng(3)
    shares = rng.permutation(1 / np.arange(1, 65))
    truth = Hull.of(YES_NO).matrix @ rng.multinomial(50, shares / shares.sum())
    assert found.estimate == pytest.approx(errors(forecast, truth, 50), rel=0.25)
    assert found.estimate <= found.bound


@pytest.mark.parametrize("work", [YES_NO, UNEVEN])
def test_the_vector_that_counts_records_is_as_short_as_dense_algebra_says(work):
    matrix = Hull.of(work).matrix
    roots = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    scaled = np.linalg.lstsq((roots[:, None] * matrix).T, np.ones(matrix.shape[1]), rcond=None)[0]
    assert matrix.T @ (roots * scaled) == pytest.approx(1)
    assert module._shortest(work) >= scaled @ scaled * (1 - 1e-9)
    assert module._shortest(work) == pytest.approx(scaled @ scaled, rel=0.5)


def test_queries_that_count_no_records_leave_the_bound_without_projection():
    work = sf.explicit(sf.Domain({"a": 3}), ["a"], [[1, 0, 0], [0, 1, 0]])
    forecast = planned(work, "gaussian", budget=SMALL)
    found = after_projection(forecast, 10)
    assert found.bound == found.without == pytest.approx(forecast.rmse)
    assert "as without projection" in found.describe()


def test_what_cannot_be_listed_is_tried_on_made_up_records():
    """8^7 combinations are beyond a histogram; the forecast is that of a release of such rows."""
    work = sf.marginals(sf.Domain({f"q{i}": 8 for i in range(7)}), 2)
    forecast = planned(work, "gaussian")
    found = after_projection(forecast, 300)
    assert found.runs >= 1
    assert found.estimate is not None
    assert 0 < found.estimate < 0.6 * found.without  # 1,344 noisy cells of 300 records
    assert "kinds of records" in found.describe()
    assert found.as_json()["model"] == found.model


def test_where_a_release_publishes_unbiased_answers_their_error_is_forecast(monkeypatch):
    monkeypatch.setattr(module, "refined", lambda *_, **__: Unrefined.TABLES_TOO_LARGE)
    work = sf.marginals(sf.Domain({f"q{i}": 8 for i in range(8)}), 1)
    found = after_projection(planned(work, "gaussian"), 10)
    assert found.estimate == found.bound <= found.without
    assert Unrefined.TABLES_TOO_LARGE.value in found.note
    assert found.note in found.describe()


def test_made_up_records_are_skewed_and_hang_together():
    domain = sf.Domain({"a": 6, "b": 6})
    codes = module._typical(domain, 100_000, "label")
    assert np.array_equal(codes, module._typical(domain, 100_000, "label"))
    counts = np.zeros((6, 6))
    np.add.at(counts, tuple(codes), 1.0)
    shares = np.sort(counts.sum(axis=1))[::-1] / 100_000
    # 0.7 of the records follow the common order, 1 / (1 + 2^-1.5 + ... + 6^-1.5) = 0.54 its first.
    assert shares[0] > 0.7 * 0.54 - 0.02
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / 100_000
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square > 60  # independent records: 25 on average, standard deviation 7


@pytest.mark.parametrize("records", [0, -3, True, 2.5, 10**16, "ten"])
def test_numbers_of_records_that_are_none_are_refused(records):
    with pytest.raises(PlanError, match="records must be"):
        after_projection(planned(UNEVEN, "gaussian"), records)


def test_a_plan_forecasts_it():
    plan = sf.plan(UNEVEN, sf.Budget(epsilon=1))
    assert plan.projected(20).as_json() == after_projection(plan.forecast, 20).as_json()
