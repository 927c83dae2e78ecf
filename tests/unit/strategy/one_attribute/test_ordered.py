# SPDX-License-Identifier: Apache-2.0
"""Measured roots of prefixes and ranges against dense matrices and brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.one_attribute.ordered import (
    GRID_BITS,
    Ordered,
    ordered,
    ordered_chain,
    ordered_minimax,
)
from sfumato.vault.mechanisms.measure import exact_values
from sfumato.workload.queries import Identity, Prefix, QuerySet, Ranges, Total, Windows
from sfumato.workload.workload import Workload

DOMAIN = Domain({"sex": 2, "age": 24, "area": 3})


def workloads() -> dict[str, Workload]:
    alone = Domain({"age": 64})
    return {
        "prefix": sf.prefixes(alone, "age"),
        "ranges": sf.ranges(alone, "age"),
        "weighted": 3 * sf.prefixes(alone, "age") | 2 * sf.marginals(alone, [()]),
        "both": 2 * sf.ranges(alone, "age") | 5 * sf.prefixes(alone, "age"),
        "by": sf.prefixes(DOMAIN, "age", by=["sex", "area"])
        | sf.marginals(DOMAIN, [("sex", "area")]),
        "ranges by": sf.ranges(DOMAIN, "age", by=["sex"]),
    }


@pytest.fixture(scope="module", params=list(workloads()))
def made(request: pytest.FixtureRequest) -> Ordered:
    return ordered(workloads()[request.param])


def dense_m(strategy: Ordered) -> np.ndarray:
    term = strategy.rooted
    return np.array([term.apply(unit.reshape(term.shape)) for unit in np.eye(term.cells)]).T


def dense_f(strategy: Ordered, term: int) -> np.ndarray:
    asked, read = strategy.workload.terms[term], strategy.rooted
    extra = tuple(i for i, n in enumerate(read.attributes) if n not in asked.attributes)
    return np.array(
        [asked.answer(unit.reshape(read.shape).sum(axis=extra)) for unit in np.eye(read.cells)]
    ).T


def dense_r(strategy: Ordered, term: int) -> np.ndarray:
    return np.array([strategy.answer(term, [unit]) for unit in np.eye(strategy.rooted.rows)]).T


def test_reconstruction_times_measurement_is_the_workload(made: Ordered) -> None:
    m = dense_m(made)
    for t in range(len(made.workload.terms)):
        f = dense_f(made, t)
        np.testing.assert_allclose(dense_r(made, t) @ m, f, atol=1e-9 * np.abs(f).max())


def test_variances_are_the_squared_rows_of_the_reconstruction(made: Ordered) -> None:
    for t in range(len(made.workload.terms)):
        squares = (dense_r(made, t) ** 2).sum(axis=1)
        np.testing.assert_allclose(made.variances(t, [2.0]), 2 * squares, rtol=1e-9)
        assert made.total_variance(t, [2.0]) == pytest.approx(2 * squares.sum(), rel=1e-9)
        greatest = made.maximum_variance(t, [2.0])
        assert 2 * squares.max() * (1 - 1e-9) <= greatest <= 2 * squares.max() * 1.35


def test_adjoint_and_covariances_are_those_of_the_reconstruction(made: Ordered) -> None:
    rng = np.random.default_rng(1)
    for t, term in enumerate(made.workload.terms):
        r = dense_r(made, t)
        c = rng.normal(size=term.rows)
        np.testing.assert_allclose(made.adjoint(t, c)[0], c @ r, atol=1e-9 * np.abs(c @ r).max())
        picked = rng.integers(0, term.rows, 7)
        expected = 3 * r[picked] @ r[picked].T
        np.testing.assert_allclose(
            made.covariance(t, picked.tolist(), [3.0]), expected, atol=1e-8 * expected.max()
        )


def test_column_norms_are_those_of_brute_force_and_never_below(made: Ordered) -> None:
    norms = (dense_m(made) ** 2).sum(axis=0)
    stated = made.sensitivity(2).power
    assert norms.max() <= stated <= norms.max() * (1 + 1e-8)
    apart = max(float(((a - b) ** 2).sum()) for a, b in combinations(dense_m(made).T[::3], 2))
    assert apart <= made.block_diameters(2)[0]


def test_the_error_is_certified(made: Ordered) -> None:
    assert made.bound is not None
    assert 1 <= np.sqrt(made.weighted_error() / made.bound) <= 1.0002


@pytest.mark.parametrize("name", ["prefix", "ranges", "weighted", "both"])
def test_the_error_is_that_of_the_dense_optimum(name: str) -> None:
    workload = workloads()[name]
    problem = orbit_problem(workload)
    assert problem is not None
    dense = problem.solve(1e-5)
    made = ordered(workload, tolerance=1e-5)
    assert made.weighted_error() == pytest.approx(dense.upper, rel=1e-4)
    assert made.bound == pytest.approx(dense.lower, rel=1e-4)


def test_ranges_are_worst_at_the_total_and_the_bound_is_met() -> None:
    made = ordered(workloads()["ranges"])
    each = made.variances(0, [1.0])
    assert made.maximum_variance(0, [1.0]) == pytest.approx(each.max(), rel=1e-4)
    assert made.points.of_intervals(np.array([0]), np.array([64]))[0] == pytest.approx(each.max())


@pytest.mark.parametrize("seed", range(3))
def test_weighted_prefixes_have_a_chain_as_inverse(seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0.1, 5, 17)
    found = ordered_chain([(Prefix(17), weights), (Total(17), 2.0)])
    assert found is not None
    chain, diagonal = found
    weights[-1] += 2
    gram = np.tril(np.ones((17, 17))).T @ np.diag(weights) @ np.tril(np.ones((17, 17)))
    np.testing.assert_allclose(chain.dense() @ gram, np.eye(17), atol=1e-10)
    np.testing.assert_allclose(diagonal, np.diag(gram))


def test_ranges_with_prefixes_have_a_chain_as_inverse_and_with_totals_none() -> None:
    found = ordered_chain([(Ranges(12), 2.0), (Prefix(12), 3.0)])
    assert found is not None
    gram = 2 * Ranges(12).gram() + 3 * Prefix(12).gram()
    np.testing.assert_allclose(found[0].dense() @ gram, np.eye(12), atol=1e-10)
    assert ordered_chain([(Ranges(12), 2.0), (Total(12), 3.0)]) is None
    assert ordered_chain([(Windows(12, 3), 1.0)]) is None


def test_measured_values_are_those_of_the_coefficients_within_the_slack() -> None:
    made = ordered(workloads()["by"])
    counts = np.random.default_rng(2).integers(0, 1000, made.rooted.shape)
    found = exact_values(made.rooted, counts)
    exact = dense_m(made) @ counts.reshape(-1)
    off = found.astype(float) / 2**GRID_BITS - exact
    assert np.sqrt((off**2).sum()) <= made.rooted.slack + 1e-9
    assert all(isinstance(v, int) for v in found)


def test_slack_raises_the_noise_and_the_loss_counts_it() -> None:
    made = ordered(workloads()["prefix"])
    law = calibrate(made, 0.5, "add-remove")
    loss = float(privacy_loss(made, law, "add-remove")) ** 0.5
    moved = made.sensitivity(2).power ** 0.5
    assert loss <= 0.5
    assert loss * law[0].scale >= (moved + made.rooted.slack) * (1 - 1e-12)


def test_the_digest_knows_the_weights_of_the_cells() -> None:
    first = ordered(workloads()["prefix"])
    second = ordered(workloads()["prefix"], tolerance=1e-2)
    assert first.digest() != second.digest()
    assert first.digest() == ordered(workloads()["prefix"]).digest()


def test_the_largest_error_of_prefixes_is_certified() -> None:
    domain = Domain({"age": 3000})
    made = ordered_minimax(sf.prefixes(domain, "age"))
    assert made.bound is not None
    assert made.objective == "max"
    assert 1 <= np.sqrt(made.weighted_error("max") / made.bound) <= 1.0005
    spread = made.variances(0, [1.0])
    assert spread.max() / spread.min() < 1.01
    mean = ordered(sf.prefixes(domain, "age"))
    assert made.maximum_variance(0, [1.0]) < mean.maximum_variance(0, [1.0])


def test_too_many_ranges_are_not_listed() -> None:
    made = ordered(sf.ranges(Domain({"age": 30_000}), "age"))
    with pytest.raises(TooLarge, match=r"release\.ranges"):
        made.answer(0, [np.zeros(30_000)])
    with pytest.raises(TooLarge):
        made.variances(0, [1.0])
    assert made.total_variance(0, [1.0]) > 0
    last = made.workload.terms[0].rows - 1
    assert made.covariance(0, [0, last], [1.0]).shape == (2, 2)


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ({"sex": Identity(2)}, "along 0"),
        ({"age": Prefix(24), "area": Prefix(3)}, "along 2"),
        ({"age": Prefix(24), "area": Windows(3, 2)}, "more than their cells"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(
    queries: dict[str, QuerySet], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        ordered(sf.product(DOMAIN, queries))


def test_groups_by_different_attributes_are_refused() -> None:
    work = sf.prefixes(DOMAIN, "age") | sf.prefixes(DOMAIN, "age", by=["sex"])
    with pytest.raises(PlanError, match="same attributes"):
        ordered(work)
