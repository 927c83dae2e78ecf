# SPDX-License-Identifier: Apache-2.0
"""The picture of Remark 2.4: errors against attributes, records and bias."""

from __future__ import annotations

from math import hypot, isnan

import pytest

import sfumato as sf
from sfumato.errors import PlanError


def test_errors_grow_with_attributes_and_a_bias_pays_for_few_records() -> None:
    rows = sf.study.conjunction_errors([6, 12, 18], [30, 3000])
    assert [(r.attributes, r.records) for r in rows] == [
        (d, n) for d in (6, 12, 18) for n in (30, 3000)
    ]
    for row in rows:
        assert row.lower <= row.error <= min(row.by_degrees, row.exact) * (1 + 1e-9)
        assert row.error <= row.lower * 1.011
        assert row.exact == pytest.approx(1.14412281**row.attributes)
        assert row.records * row.alpha <= row.error
    few, many = rows[4], rows[5]
    assert few.error < 0.45 * few.exact
    assert many.error > 0.9 * many.exact


def test_a_given_bias_is_no_better_than_the_best_one() -> None:
    [best] = sf.study.conjunction_errors(10, 50, loss=0.7)
    rows = sf.study.conjunction_errors(10, 50, [0.0, best.alpha, 0.2, 1e9], loss=0.7)
    assert rows[0].error == pytest.approx(rows[0].exact)
    assert all(r.error >= best.lower for r in rows)
    assert rows[1].error == pytest.approx(best.error, rel=0.02)
    assert rows[3].error == pytest.approx(50e9)  # nothing is measured
    assert all(isnan(r.by_degrees) for r in rows)
    assert rows[2].error == pytest.approx(
        hypot(50 * 0.2, sf.study.conjunction_errors(10, 1, 0.2, loss=0.7)[0].error), rel=0.05
    )


def test_conjunctions_of_some_width_are_those_of_the_matrix() -> None:
    from itertools import combinations

    import numpy as np

    sets = [sum(1 << i for i in s) for s in combinations(range(6), 2)]
    matrix = np.array([[float(t & x == t) for x in range(64)] for t in sets])
    [row] = sf.study.conjunction_errors(6, 20, ways=2, tolerance=1e-3)
    wanted = sf.study.least_worst_case(matrix, 20**-2.0)
    assert row.lower <= 20 * wanted.worst_error() * (1 + 1e-9)
    assert 20 * wanted.lower_bound <= row.error * (1 + 1e-9)
    assert row.exact == pytest.approx(sf.study.factorize(matrix).gamma, rel=2e-3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"attributes": 0, "records": 1},
        {"attributes": 41, "records": 1},
        {"attributes": 3, "records": 0},
        {"attributes": 3, "records": [1, True]},
        {"attributes": 3, "records": 1, "alphas": -0.1},
        {"attributes": 3, "records": 1, "loss": 0.0},
        {"attributes": 3, "records": 1, "ways": 4},
    ],
)
def test_what_is_out_of_range_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        sf.study.conjunction_errors(**arguments)
