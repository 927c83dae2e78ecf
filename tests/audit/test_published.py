# SPDX-License-Identifier: Apache-2.0
"""The six published sparse vectors: their scales, their verdicts, and that no data gets in."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np
import pandas as pd
import pytest

import sfumato_audit
from sfumato.errors import PlanError
from sfumato_audit.published import PUBLISHED, run_sparse_vector, sparse_vectors_compared
from tests.shared.words import SeededWords


def test_scales_are_those_of_figure_1():
    """Lyu, Su, Li 2017, for epsilon = 1, c = 3 and sensitivity 1."""
    by_hand = {1: (2, 12), 2: (6, 12), 3: (2, 6), 4: (4, Fraction(4, 3)), 5: (2, 0), 6: (2, 2)}
    for vector in PUBLISHED:
        assert vector.scales(Fraction(1), 3) == by_hand[vector.number]
        assert vector.loss(1, 3) == {1: 1, 2: 1, 4: 4.75}.get(vector.number, inf)


def test_the_wrong_ones_are_refuted_and_the_right_ones_stand():
    table = sparse_vectors_compared(runs=40_000, random=SeededWords("published"))
    assert table["algorithm"].tolist() == [1, 2, 3, 4, 5, 6]
    assert table["refuted"].tolist() == [False, False, True, True, True, True]
    assert (table["proved"] <= table["real"] + 1e-9).all()
    chart = sfumato_audit.sparse_vectors_chart(table)
    assert "Six published" in chart.to_json()


def test_runs_end_where_they_should():
    words = SeededWords("runs")
    high = [500.0] * 6
    for number in (1, 2, 4):
        assert run_sparse_vector(number, high, c=2, random=words) == [1.0, 1.0]
    for number in (5, 6):
        assert run_sparse_vector(number, high, c=2, random=words) == [1.0] * 6
    values = run_sparse_vector(3, [0.0, 900.0], T=500.0, c=1, random=words)
    assert values[0] == -inf
    assert abs(values[1] - 900) < 100


@pytest.mark.parametrize(
    "scores",
    [
        pd.DataFrame({"a": [1]}),
        pd.Series([1.0]),
        np.array([1.0, 2.0]),
        "people.parquet",
        [1.0] * 65,
        [],
        [float("nan")],
        [np.float64(1)],
    ],
)
def test_no_table_gets_in(scores):
    with pytest.raises(PlanError, match="made-up"):
        run_sparse_vector(3, scores)


def test_other_arguments_are_refused():
    for call in (
        lambda: run_sparse_vector(7, [1.0]),
        lambda: sparse_vectors_compared(epsilon=0),
        lambda: sparse_vectors_compared(c=0),
    ):
        with pytest.raises(PlanError):
            call()
    with pytest.raises(AttributeError):
        sfumato_audit.nothing  # noqa: B018
