# SPDX-License-Identifier: Apache-2.0
"""What projection promises, for workloads of any kind, metrics of any kind, totals of any kind."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from tests.shared.dense import dense_workload
from tests.shared.strategies import counts, workloads

Total = float | tuple[float, float] | None
YES_NO = sf.Domain({f"x{i}": 2 for i in range(4)})
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(
    draw: st.DrawFn,
) -> tuple[sf.Workload, np.ndarray, np.ndarray, Total, np.ndarray | None, np.ndarray]:
    """A workload, true counts, noisy answers, what is known of n, weights, and their matrix."""
    work = draw(workloads())
    table = draw(counts(work.domain))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, n = len(work), float(table.sum())
    noise = draw(st.sampled_from([0.0, 0.5, 5.0, 500.0]))
    y = work.evaluate(table) + noise * rng.normal(size=k)
    totals: list[Total] = [n, None, (n + rng.normal(), 1.0)]
    total = draw(st.sampled_from(totals))
    metric = draw(st.sampled_from(["even", "weights", "covariance"]))
    if metric == "weights":
        weights = rng.random(k) * (rng.random(k) < 0.8)
        return work, table, y, total, weights, np.diag(weights)
    if metric == "covariance":
        root = rng.normal(size=(k, k)) / np.sqrt(k) + np.eye(k)
        covariance = root @ root.T + 0.1 * np.eye(k)
        precision = np.linalg.inv(covariance)
        return work, table, y, total, covariance, (precision + precision.T) / 2
    return work, table, y, total, None, np.eye(k)


def norm(x: np.ndarray, W: np.ndarray) -> float:
    return float(np.sqrt(max(0.0, x @ W @ x)))


def breaks_the_theorem(
    project: Callable[[np.ndarray], tuple[np.ndarray, float]],
    y: np.ndarray,
    truth: np.ndarray,
    W: np.ndarray,
) -> bool:
    """Whether what came out is farther from a feasible truth than what came in."""
    answers, bound = project(y)
    slack = bound + 1e-7 * (1 + norm(y, W) + norm(truth, W))
    return norm(answers - truth, W) > norm(y - truth, W) + slack


@given(problems())
@quick
def test_projections_are_never_farther_from_any_feasible_truth(problem: tuple) -> None:  # type: ignore[type-arg]
    work, table, y, total, weights, W = problem
    found = sf.project(y, work, total, weights)
    bound = found.distance_bound if np.isfinite(found.distance_bound) else 0.0
    W, y, answers, truth = joint(W, y, found, table, work, total)
    assert not breaks_the_theorem(lambda _: (answers, bound), y, truth, W)
    # The stronger statement of convex sets: the angle at the projection is never acute.
    rest, way = y - answers, truth - answers
    reach = bound * (norm(rest, W) + norm(way, W) + bound)
    assert float(rest @ W @ way) <= reach + 1e-6 * (1 + norm(y, W) + norm(truth, W)) ** 2
    assert (found.weights >= 0).all()
    if isinstance(total, float):
        assert found.total == pytest.approx(total, abs=1e-6)


@given(problems())
@settings(quick, max_examples=25)
def test_relaxations_are_never_farther_from_any_feasible_truth(problem: tuple) -> None:  # type: ignore[type-arg]
    """Every body that holds all data has the theorem, for workloads of any kind."""
    work, table, y, total, weights, W = problem
    if weights is not None and weights.ndim == 2:
        weights, W = None, np.eye(len(y))
    known = float(table.sum()) if total is None else total
    found = sf.project(y, work, known, weights, onto="local", gap=1e-3)
    W, y, answers, truth = joint(W, y, found, table, work, known)
    bound = found.distance_bound
    assert not breaks_the_theorem(lambda _: (answers, bound), y, truth, W)
    assert all(t.min() >= 0 for t in found.tables.values())
    exact = sf.project(y[: len(work)], work, known, weights)
    assert found.value - found.gap <= exact.value + 1e-9 * (1 + norm(y, W) ** 2)


@given(counts(YES_NO), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 5.0, 500.0]))
@settings(quick, max_examples=25)
def test_moments_are_never_farther_from_any_feasible_truth(
    table: np.ndarray, seed: int, noise: float
) -> None:
    work = sf.marginals(YES_NO, 2) | sf.marginals(YES_NO, 1)
    truth = work.evaluate(table)
    y = truth + noise * np.random.default_rng(seed).normal(size=len(work))
    for n in (float(table.sum()), None):
        found = sf.project(y, work, n, onto="semidefinite")
        answers, bound = found.answers, found.distance_bound
        assert not breaks_the_theorem(lambda _: (answers, bound), y, truth, np.eye(len(y)))  # noqa: B023


def joint(
    W: np.ndarray,
    y: np.ndarray,
    found: object,
    table: np.ndarray,
    work: sf.Workload,
    total: Total,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A noisy total is one more answer: the same statements hold for all of them together."""
    answers, truth = found.answers, work.evaluate(table)  # type: ignore[attr-defined]
    if not isinstance(total, tuple):
        return W, y, answers, truth
    k = len(y)
    wide = np.zeros((k + 1, k + 1))
    wide[:k, :k], wide[k, k] = W, total[1] ** -2
    ends = (total[0], found.total, float(table.sum()))  # type: ignore[attr-defined]
    return (wide, *(np.append(x, e) for x, e in zip((y, answers, truth), ends, strict=True)))


def test_a_wrong_projection_breaks_the_theorem() -> None:
    """The broken twin: clamping and rescaling, a common shortcut, moves away from some truths."""
    work = sf.marginals(sf.Domain({"a": 3}), 1)
    y, truth = np.array([8.0, 2.0, 0.0]), np.array([8.0, 0.0, 0.0])

    def rescaled(given: np.ndarray) -> tuple[np.ndarray, float]:
        cut = np.maximum(given, 0)
        return cut * (8.0 / cut.sum()), 0.0

    def projected(given: np.ndarray) -> tuple[np.ndarray, float]:
        found = sf.project(given, work, 8)
        return found.answers, found.distance_bound

    assert breaks_the_theorem(rescaled, y, truth, np.eye(3))
    assert not breaks_the_theorem(projected, y, truth, np.eye(3))


@given(problems())
@settings(quick, max_examples=40)
def test_the_certificate_never_lies(problem: tuple) -> None:  # type: ignore[type-arg]
    work, _, y, total, weights, W = problem
    found = sf.project(y, work, total, weights)
    best = optimum(dense_workload(work), y, W, total)
    scale = 0.5 * float(y @ W @ y) + (total[0] ** 2 if isinstance(total, tuple) else 0.0) + 1.0
    assert found.value - best <= found.gap + 1e-7 * scale
    assert found.distance_bound == pytest.approx(np.sqrt(found.gap))


def optimum(F: np.ndarray, y: np.ndarray, W: np.ndarray, total: Total) -> float:
    values, vectors = np.linalg.eigh(W)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    h = cp.Variable(F.shape[1], nonneg=True)
    objective = 0.5 * cp.sum_squares(root @ (F @ h - y))
    limits = []
    if isinstance(total, tuple):
        objective += 0.5 * cp.square((cp.sum(h) - total[0]) / total[1])
    elif total is not None:
        limits = [cp.sum(h) == total]
    problem = cp.Problem(cp.Minimize(objective), limits)
    problem.solve(solver="CLARABEL")
    return float(problem.value)


@given(problems())
@settings(quick, max_examples=40)
def test_projecting_twice_changes_nothing(problem: tuple) -> None:  # type: ignore[type-arg]
    work, _, y, total, weights, W = problem
    if isinstance(total, tuple):
        total = total[0] if total[0] >= 0 else None
    once = sf.project(y, work, total, weights)
    twice = sf.project(once.answers, work, total, weights)
    bound = twice.distance_bound if np.isfinite(twice.distance_bound) else 0.0
    assert norm(twice.answers - once.answers, W) <= bound + 1e-6 * (1 + norm(y, W))
