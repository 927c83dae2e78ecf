# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.privacy.noise_laws import whole_gain
from sfumato_web.learn.query_release import WAYS, three_ways
from tests.shared.words import SeededWords

LAPLACE, TABLE, LOCAL = WAYS
settings_ = st.builds(
    three_ways,
    st.floats(0.05, 4.0),
    st.integers(2, 8),
    st.integers(1, 10_000),
    st.integers(2, 10**7),
)


@pytest.mark.parametrize(("way", "mechanism"), [(LAPLACE, "laplace"), (TABLE, "laplace-table")])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_central_errors_are_those_that_the_planner_forecasts(way, mechanism, epsilon):
    """But for the whole numbers on which the planner draws noise: the notes have real ones."""
    setting = three_ways(epsilon, 4, 20, 1000)
    plan = sf.plan(setting.workload(), sf.Budget(epsilon=setting.epsilon), mechanism=mechanism)
    loss = float(setting.epsilon) / (setting.queries if way == LAPLACE else 1)
    assert setting.rmse(way) * whole_gain(loss) == pytest.approx(plan.rmse, rel=1e-3)


@settings(deadline=None, max_examples=60)
@given(settings_)
def test_the_table_wins_from_the_root_of_half_the_cells(setting):
    k = setting.queries_where_the_table_wins()
    assert setting.rmse(LAPLACE, queries=k) > setting.rmse(TABLE)
    assert k == 1 or setting.rmse(LAPLACE, queries=k - 1) <= setting.rmse(TABLE)
    assert abs(k - sqrt(setting.cells / 2)) <= 1


@settings(deadline=None, max_examples=60)
@given(settings_)
def test_the_central_ways_beat_randomized_response_from_the_crossing_on(setting):
    slack = 1 + 1e-9
    for way in (LAPLACE, TABLE):
        n = setting.records_where_it_wins(way)
        assert setting.rmse(way) <= setting.rmse(LOCAL, records=n) * slack
        assert n == 1 or setting.rmse(way) * slack >= setting.rmse(LOCAL, records=n - 1)


@settings(deadline=None, max_examples=60)
@given(settings_)
def test_randomized_response_beats_the_table_on_a_handful_of_records_only(setting):
    assert setting.records_where_it_wins(TABLE) < 12  # for epsilon up to 4
    assert setting.records < 12 or setting.best() != LOCAL


def test_every_query_is_about_the_first_cell_and_half_of_all():
    setting = three_ways(1, 5, 40, 100)
    matrix = setting.matrix(40)
    assert (matrix[:, 0] == 1).all()
    assert (matrix.sum(axis=1) == 16).all()


def _ratio(setting, claimed, way, seed):
    runs = [setting.tried(3_000, SeededWords(f"{seed} {i}"))[way] for i in range(20)]
    return float(np.sqrt(np.mean(np.square(runs)))) / claimed.share(way, records=3_000)


@pytest.mark.parametrize("way", WAYS)
def test_runs_on_made_up_data_err_as_forecast(way):
    setting = three_ways(1, 4, 64, 3_000)
    # Randomized response is forecast for the worst data: it may err less, but not much.
    assert 0.6 < _ratio(setting, setting, way, "good") < 1.25


@pytest.mark.parametrize("way", WAYS)
def test_runs_with_half_the_noise_would_be_noticed(way):
    """The twin of the test above: half the noise than is claimed must not pass it."""
    setting = three_ways(1, 4, 64, 3_000)
    lax = replace(setting, epsilon=2 * setting.epsilon)
    assert not 0.6 < _ratio(lax, setting, way, "broken") < 1.25


def test_figures_name_the_crossings():
    setting = three_ways(1, 6, 100, 10_000)
    assert f"cross at {setting.records_where_it_wins(LAPLACE):,} records" in (
        setting.against_records(SeededWords("figure"))
    )
    assert "from 6 queries on" in setting.against_queries()
    assert len(setting.notices()) == 4
