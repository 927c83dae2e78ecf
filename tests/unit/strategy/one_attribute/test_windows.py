# SPDX-License-Identifier: Apache-2.0
"""Windows through a measured convolution, against dense matrices and dense optima."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.one_attribute.windows import (
    BITS,
    Convolution,
    Sliding,
    ToeplitzInverse,
    convolved,
    windows,
)
from sfumato.strategy.pieces import query_set_bound, sum_of_bounds, windows_bound
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.measure import exact_values
from sfumato.workload.queries import Windows
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload


def asked(cells: int, width: int) -> Workload:
    return sf.product(Domain({"day": cells}), {"day": f"windows({width})"})


def workloads() -> dict[str, Workload]:
    cube = Domain({"sex": 2, "day": 17, "area": 3})
    return {
        "narrow": asked(60, 3),
        "wide": asked(40, 25),
        "single cells": asked(12, 1),
        "one window": asked(9, 9),
        "weighted": 3 * asked(50, 8),
        "by": sf.product(cube, {"sex": "identity", "day": "windows(5)", "area": "identity"}),
        "by some": sf.product(cube, {"day": "windows(4)", "area": "identity"}),
    }


@pytest.fixture(scope="module", params=list(workloads()))
def made(request: pytest.FixtureRequest) -> Sliding:
    return windows(workloads()[request.param])


def dense_m(strategy: Sliding) -> np.ndarray:
    """By counting one record in every cell, in exact integers."""
    term = strategy.blocks[0].term
    units = np.eye(term.cells, dtype=np.int64)
    return np.array([exact_values(term, u.reshape(term.shape)) for u in units]).T * 2.0**-BITS


def dense_f(strategy: Sliding) -> np.ndarray:
    """Over the cells of the asked attributes."""
    term = strategy.workload.terms[0]
    return np.array([term.answer(u.reshape(term.shape)) for u in np.eye(term.cells)]).T


def dense_r(strategy: Sliding) -> np.ndarray:
    return np.array([strategy.answer(0, [u]) for u in np.eye(strategy.blocks[0].term.rows)]).T


def test_reconstruction_times_measurement_is_the_workload(made: Sliding) -> None:
    np.testing.assert_allclose(dense_r(made) @ dense_m(made), dense_f(made), atol=1e-9)


def test_variances_are_the_squared_rows_of_the_reconstruction(made: Sliding) -> None:
    squares = (dense_r(made) ** 2).sum(axis=1)
    np.testing.assert_allclose(made.variances(0, [2.0]), 2 * squares, rtol=1e-9)
    assert made.total_variance(0, [2.0]) == pytest.approx(2 * squares.sum(), rel=1e-9)
    assert made.maximum_variance(0, [2.0]) == pytest.approx(2 * squares.max(), rel=1e-9)


def test_no_other_reconstruction_from_the_same_measurement_errs_less(made: Sliding) -> None:
    best = dense_f(made) @ np.linalg.pinv(dense_m(made))
    assert made.total_variance(0, [1.0]) == pytest.approx((best**2).sum(), rel=1e-9)


def test_adjoint_and_covariances_are_those_of_the_reconstruction(made: Sliding) -> None:
    rng = np.random.default_rng(1)
    r = dense_r(made)
    c = rng.normal(size=len(r))
    np.testing.assert_allclose(made.adjoint(0, c)[0], c @ r, atol=1e-9 * np.abs(c @ r).max())
    picked = rng.integers(0, len(r), 7)
    expected = 3 * r[picked] @ r[picked].T
    found = made.covariance(0, picked.tolist(), [3.0])
    np.testing.assert_allclose(found, expected, atol=1e-9 * expected.max())


def test_norms_and_diameters_are_those_of_brute_force_and_never_below(made: Sliding) -> None:
    columns = dense_m(made).T
    norms = (columns**2).sum(axis=1)
    stated = made.sensitivity(2).power
    assert norms.max() <= stated <= norms.max() * (1 + 1e-8)
    apart = max((float(((a - b) ** 2).sum()) for a, b in combinations(columns, 2)), default=0.0)
    assert apart <= made.block_diameters(2)[0] <= apart * (1 + 1e-8)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_noise_keeps_the_budget(made: Sliding, neighbours: Neighbours) -> None:
    law = calibrate(made, 0.5, neighbours)
    assert 0.24 <= float(privacy_loss(made, law, neighbours)) <= 0.25


def test_no_strategy_is_below_its_bound(made: Sliding) -> None:
    assert made.bound is not None
    assert made.weighted_error() >= made.bound
    assert made.bound == pytest.approx(sum_of_bounds(made.workload), rel=0.6)


@pytest.mark.parametrize(("cells", "width"), [(12, 1), (30, 7), (64, 32), (96, 8), (40, 39)])
def test_the_bound_of_windows_is_below_the_dense_optimum_and_near_it(
    cells: int, width: int
) -> None:
    problem = orbit_problem(asked(cells, width))
    assert problem is not None
    optimum = problem.solve(1e-4).upper
    for bound in (windows_bound(cells, width), query_set_bound(Windows(cells, width))):
        assert bound <= optimum
    assert windows_bound(cells, width) >= optimum * (1 - 0.5 * min(1.2, 2 * width / cells))


def test_the_bound_is_the_trace_with_a_contraction() -> None:
    cells, width = 23, 9
    a = np.arange(cells)[None, :] - np.arange(cells - width + 1)[:, None] - (width - 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        u = np.where(a == 0, 1 / width, np.tan(np.pi * a / width) / (np.pi * a))
    assert np.linalg.norm(u, 2) <= 1 + 1e-9
    c = (u * Windows(cells, width).dense()).sum(axis=0)
    assert windows_bound(cells, width) == pytest.approx((c**2).sum(), rel=1e-6)


def test_long_attributes_are_certified_within_half_a_percent() -> None:
    for cells, width in ((5000, 32), (20_000, 300), (60_000, 1000)):
        made = windows(asked(cells, width))
        assert made.bound is not None
        assert 1 <= np.sqrt(made.weighted_error() / made.bound) <= 1.005


def test_the_planner_measures_a_convolution_where_dense_algebra_ends() -> None:
    plan = sf.plan(asked(5000, 50), sf.Budget(mu=1), mechanism="factorization")
    assert isinstance(plan.strategy, Sliding)
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 1.003


def test_convolutions_of_integers_are_exact() -> None:
    rng = np.random.default_rng(3)
    for n, length in ((1, 1), (5, 3), (100, 37), (700, 900)):
        a, b = rng.integers(-(2**44), 2**44, n), rng.integers(-(2**8), 2**8, length)
        expected = np.convolve(a.astype(object), b.astype(object))
        assert (convolved(a, b) == expected).all()
    edge = np.array([2**62, -(2**62), 2**62 - 1])
    assert (convolved(edge, np.array([1])) == edge).all()


def test_convolutions_of_larger_integers_are_left_to_python() -> None:
    root = Convolution(3, np.array([200_000, -77, 1]))
    counts = np.array([2**80 + 1, -(2**70) - 3, 12345678901234567890], dtype=object)
    expected = np.convolve(counts, root.kernel.astype(object))
    assert (root.apply(counts) == expected).all()


def test_products_of_columns_and_powers_are_those_of_the_matrix() -> None:
    root = Convolution(6, np.array([150_000, 90_000, -40_000, 7, -900, 0, 3, 21, -5]))
    m = root.dense()
    np.testing.assert_allclose(
        m.T @ m, root.products[np.abs(np.subtract.outer(range(6), range(6)))]
    )
    np.testing.assert_allclose(root.row_powers(2), (m**2).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(root.column_powers(1), np.abs(m).sum(axis=0))
    y = np.random.default_rng(0).normal(size=root.rows)
    np.testing.assert_allclose(root.adjoint(y), m.T @ y, atol=1e-12)


def test_inverses_of_toeplitz_matrices_are_those_of_dense_algebra() -> None:
    products = 0.6 ** np.arange(15) * np.cos(np.arange(15))
    dense = products[np.abs(np.subtract.outer(range(15), range(15)))]
    found = ToeplitzInverse(products)
    inverse = np.array([found.apply(u) for u in np.eye(15)])
    np.testing.assert_allclose(inverse, np.linalg.inv(dense), atol=1e-11)
    f = Windows(15, 4).dense()
    np.testing.assert_allclose(found.window_variances(4), np.diag(f @ inverse @ f.T), atol=1e-11)


def test_other_workloads_are_refused_with_the_reason() -> None:
    plane = Domain({"day": 30, "hour": 20})
    both = sf.product(plane, {"day": "windows(3)", "hour": "windows(2)"})
    with pytest.raises(PlanError, match="exactly one attribute"):
        windows(both)
    with pytest.raises(PlanError, match="more than their cells"):
        windows(sf.product(plane, {"day": "windows(3)", "hour": "prefix"}))
    with pytest.raises(PlanError, match="one group"):
        windows(asked(20, 3) | asked(20, 4))
    with pytest.raises(PlanError, match="no product"):
        windows(sf.predicates(plane, [sf.attribute(plane, "day") < 3]))
    with pytest.raises(TooLarge, match="coarser cells"):
        windows(asked(2**24, 3))
    with pytest.raises(PlanError, match="norm"):
        Convolution(4, np.array([2**19]))


def test_the_kernel_is_part_of_the_digest() -> None:
    assert windows(asked(500, 5)).digest() != windows(asked(500, 6)).digest()


def test_the_matrix_of_the_workload_is_the_definition() -> None:
    made = windows(workloads()["narrow"])
    np.testing.assert_array_equal(dense_f(made), dense_workload(made.workload))
