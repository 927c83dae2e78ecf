"""``sf.project`` against Clarabel, and against everything that may be given to it."""

from __future__ import annotations

import re
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine import cell_solvers, cells
from sfumato.refine.problem import Grid, Quadratic
from sfumato.refine.reconstruct import fit_answers
from sfumato.refine.refine_limits import LIMITS
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
RECORDS = np.random.default_rng(1).multinomial(50, np.full(24, 1 / 24)).reshape(3, 4, 2)


def work_of(name: str) -> sf.Workload:
    signed = np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]])
    rng = np.random.default_rng(3)
    return {
        "tables": lambda: sf.marginals(DOMAIN, 2),
        "one-way": lambda: sf.marginals(DOMAIN, 1),
        "whole": lambda: sf.marginals(DOMAIN, 3),
        "prefix": lambda: sf.prefixes(DOMAIN, "b"),
        "prefixes": lambda: sf.prefixes(DOMAIN, "b", by=["a"]),
        "ranges": lambda: sf.ranges(DOMAIN, "b", by=["c"]),
        "windows": lambda: sf.windows(DOMAIN, "b", 2),
        "signed": lambda: sf.product(DOMAIN, {"a": signed, "b": "identity"}),
        "given": lambda: sf.explicit(DOMAIN, ["a", "c"], rng.integers(-2, 3, size=(5, 6))),
        "conditions": lambda: sf.predicates(
            DOMAIN, ["a = 1 and b in (0, 2)", "not c = 1 or b = 3"]
        ),
        "mixed": lambda: sf.marginals(DOMAIN, [["a", "c"]]) | sf.prefixes(DOMAIN, "b"),
    }[name]()


NAMES = [
    "tables",
    "one-way",
    "whole",
    "prefix",
    "prefixes",
    "ranges",
    "windows",
    "signed",
    "given",
    "conditions",
    "mixed",
]


def by_clarabel(
    F: np.ndarray, y: np.ndarray, W: np.ndarray, n: float | tuple[float, float] | None
) -> tuple[np.ndarray, float]:
    root = np.linalg.cholesky(W).T if np.linalg.eigvalsh(W)[0] > 0 else np.sqrt(W)
    h = cp.Variable(F.shape[1], nonneg=True)
    objective = 0.5 * cp.sum_squares(root @ (F @ h - y))
    limits = []
    if isinstance(n, tuple):
        objective += 0.5 * cp.square((cp.sum(h) - n[0]) / n[1])
    elif n is not None:
        limits = [cp.sum(h) == n]
    problem = cp.Problem(cp.Minimize(objective), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return F @ h.value, float(problem.value)


@pytest.mark.parametrize("n", [50.0, None, (47.0, 2.0)], ids=["known", "unknown", "noisy"])
@pytest.mark.parametrize("metric", ["even", "weights", "covariance"])
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_clarabel(
    name: str, metric: str, n: float | tuple[float, float] | None
) -> None:
    work = work_of(name)
    F = dense_workload(work)
    k = len(F)
    rng = np.random.default_rng(len(name) + len(metric))
    y = F @ RECORDS.reshape(-1) + 5 * rng.normal(size=k)
    weights: np.ndarray | None = None
    W = np.eye(k)
    if metric == "weights":
        weights = rng.random(k) * 3
        W = np.diag(weights)
    elif metric == "covariance":
        B = rng.normal(size=(k, k))
        weights = B @ B.T + 0.5 * np.eye(k)
        W = np.linalg.inv(weights)
        W = (W + W.T) / 2
    found = sf.project(y, work, n, weights, gap=1e-12)
    best, value = by_clarabel(F, y, W, n)
    away = found.answers - best
    scale = np.sqrt(y @ W @ y)
    assert np.sqrt(away @ W @ away) <= 1e-6 * scale
    assert found.value - value <= found.gap + 1e-9 * scale**2
    assert found.value == pytest.approx(value, abs=1e-8 * scale**2)
    assert found.converged
    assert n is None or isinstance(n, tuple) or found.total == pytest.approx(n)
    # The answers are those of the weighted cells.
    table = np.zeros(DOMAIN.shape)
    for cell, weight in zip(found.cells, found.weights, strict=True):
        code = dict(zip(found.attributes, cell, strict=True))
        table[tuple(int(code.get(a, 0)) for a in DOMAIN.names)] += weight
    np.testing.assert_allclose(work.evaluate(table), found.answers, atol=1e-9)


def feasible_with_ill_conditioned_noise(seed: int) -> tuple[np.ndarray, sf.Workload, np.ndarray]:
    """Answers that a histogram has, and a covariance with variances from 1 to 1e8."""
    work = work_of("given")
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(len(work), len(work))))
    variances = 10.0 ** np.linspace(0, 8, len(work))
    covariance = turned @ np.diag(variances) @ turned.T
    return work.evaluate(RECORDS), work, (covariance + covariance.T) / 2


def test_a_gap_that_floats_cannot_tell_from_none_counts_as_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [feasible_with_ill_conditioned_noise(seed) for seed in range(8)]
    for y, work, covariance in cases:
        found = sf.project(y, work, None, covariance, gap=1e-12)
        assert found.converged
        assert found.value <= 1e-12 * float(y @ np.linalg.solve(covariance, y))
        # The gap is as it was computed, noise and all.
        assert found.distance_bound == pytest.approx(np.sqrt(found.gap))
    # The twin: without the rule, noise keeps some of them from ever being reached.
    monkeypatch.setattr(cell_solvers, "LIMITS", replace(LIMITS, slope_rounding=0.0))
    monkeypatch.setattr(cells, "LIMITS", replace(LIMITS, slope_rounding=0.0))
    strict = [sf.project(y, work, None, covariance, gap=1e-12) for y, work, covariance in cases]
    assert not all(found.converged for found in strict)


def test_a_gap_above_the_noise_of_floats_is_never_called_reached() -> None:
    """Rounding forgives a trillionth of the square of the answers, not a visible gap."""
    for name in NAMES:
        for n in (50.0, None):
            work = work_of(name)
            y = work.evaluate(RECORDS) + 5 * np.random.default_rng(4).normal(size=len(work))
            fit = fit_answers(work, np.split(y, np.cumsum([t.rows for t in work.terms])[:-1]))
            q = Quadratic(fit, Grid.of(fit))
            assert cells.bound_of(q, n).blur(q) <= 1e-12 * float(y @ y)


def test_answers_come_as_a_vector_by_group_or_by_name() -> None:
    work = sf.marginals(DOMAIN, 1) | sf.prefixes(DOMAIN, "b")
    y = work.evaluate(RECORDS) + np.random.default_rng(0).normal(size=len(work))
    groups = np.split(y, np.cumsum([t.rows for t in work.terms])[:-1])
    named = {t.name: g for t, g in zip(work.terms, groups, strict=True)}
    one = sf.project(y, work, 50)
    for other in (list(y), groups, tuple(groups), named):
        np.testing.assert_array_equal(sf.project(other, work, 50).answers, one.answers)
    assert [len(g) for g in one.groups] == [t.rows for t in work.terms]
    np.testing.assert_array_equal(np.concatenate(one.groups), one.answers)
    weights = np.arange(len(y)) + 1.0
    split = np.split(weights, np.cumsum([t.rows for t in work.terms])[:-1])
    np.testing.assert_array_equal(
        sf.project(y, work, 50, weights).answers, sf.project(y, work, 50, split).answers
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [50, None])
def test_answers_without_noise_stay_as_they_are(name: str, n: int | None) -> None:
    work = work_of(name)
    y = work.evaluate(RECORDS)
    found = sf.project(y, work, n)
    np.testing.assert_allclose(found.answers, y, atol=1e-4 * max(1, np.abs(y).max()))
    assert found.value <= 1e-8 * max(1.0, float(y @ y))


def test_a_projection_projected_again_stays() -> None:
    work = work_of("tables")
    y = work.evaluate(RECORDS) + 5 * np.random.default_rng(4).normal(size=len(work))
    once = sf.project(y, work, 50, gap=1e-10)
    twice = sf.project(once.answers, work, 50, gap=1e-10)
    np.testing.assert_allclose(twice.answers, once.answers, atol=1e-4)
    assert np.abs(once.answers - y).max() > 1


def test_sixteen_attributes_become_six_times_more_accurate() -> None:
    """All 480 two-way queries of 16 yes/no attributes, 30 records, noise of 60 a query."""
    domain = sf.Domain({f"x{i}": 2 for i in range(16)})
    rng = np.random.default_rng(0)
    rows = rng.random((30, 16)) < rng.random(16)
    work = sf.marginals(domain, 2)
    table = np.zeros(domain.shape)
    np.add.at(table, tuple(rows.T.astype(int)), 1)
    truth = work.evaluate(table)
    y = truth + 60 * rng.normal(size=len(work))
    found = sf.project(y, work, 30)
    assert found.converged
    assert found.method == "active set"
    assert len(found.weights) <= 138  # independent queries and one
    before, after = np.linalg.norm(y - truth), np.linalg.norm(found.answers - truth)
    assert after < before / 6


def test_a_long_attribute_is_projected_by_isotonic_regression() -> None:
    domain = sf.Domain({"a": 100_000})
    work = sf.prefixes(domain, "a")
    rng = np.random.default_rng(0)
    truth = np.cumsum(rng.multinomial(1000, np.full(100_000, 1e-5)))
    found = sf.project(truth + 20 * rng.normal(size=100_000), work, 1000)
    assert found.method == "isotonic regression"
    assert found.converged
    assert np.sqrt(np.mean((found.answers - truth) ** 2)) < 5


def test_one_table_is_projected_by_one_threshold() -> None:
    domain = sf.Domain({"a": 20_000})
    work = sf.marginals(domain, 1)
    y = np.random.default_rng(0).normal(size=20_000) * 3 + 5
    weights = np.random.default_rng(1).random(20_000) + 0.1
    found = sf.project(y, work, 100_000, weights, gap=1e-8)
    assert found.converged
    assert found.method == "threshold"
    assert found.gap <= 1e-12 * float(weights @ y**2)
    # Separable: max(0, y - level / weight) with one level; found here by bisection.
    low, high = -1e6, 1e6
    for _ in range(200):
        level = (low + high) / 2
        total = np.maximum(0, y - level / weights).sum()
        low, high = (level, high) if total > 100_000 else (low, level)
    np.testing.assert_allclose(found.answers, np.maximum(0, y - level / weights), atol=1e-6)
    free = sf.project(y, work, None, weights)
    np.testing.assert_allclose(free.answers, np.maximum(0, y), atol=1e-9)


def test_a_covariance_of_rank_lower_than_the_queries_is_the_metric_of_what_was_measured() -> None:
    """Answers made of a noisy table: projecting them is projecting the table."""
    work, table = work_of("tables"), work_of("whole")
    F = dense_workload(work)
    rng = np.random.default_rng(0)
    measured = RECORDS.reshape(-1) + 3 * rng.normal(size=24)
    joint = sf.project(F @ measured, work, 50, 9 * F @ F.T, gap=1e-12)
    # In the metric of the answers the parts of the table they do not see are free.
    seen = F.T @ np.linalg.pinv(F @ F.T)
    h = cp.Variable(24, nonneg=True)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(seen @ F @ h - seen @ F @ measured)), [cp.sum(h) == 50]
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    np.testing.assert_allclose(joint.answers, F @ h.value, atol=1e-4)
    assert sf.project(measured, table, 50).total == pytest.approx(50)


def test_a_singular_covariance_that_contradicts_the_data_sets_is_refused() -> None:
    work = work_of("one-way")
    k = len(work)
    y = work.evaluate(RECORDS) + 1.0
    exact_first = np.diag([0.0] + [1.0] * (k - 1))
    with pytest.raises(WorkloadError, match="singular"):
        sf.project(y, work, 50, exact_first)
    F = dense_workload(work)
    with pytest.raises(WorkloadError, match="singular"):  # 50 records do not sum to 53
        sf.project(y, work, 50, F @ F.T)


def test_zero_weights_say_nothing_and_duplicated_queries_count_twice() -> None:
    work = sf.marginals(sf.Domain({"a": 3}), 1)
    free = sf.project([3.0, 1.0, 900.0], work, 4, [1.0, 1.0, 0.0])
    np.testing.assert_allclose(free.answers, [3, 1, 0], atol=1e-6)
    twice = sf.project([4.0, 0.0, 0.0, 1.0, 0.0, 0.0], work | work, None)
    np.testing.assert_allclose(twice.answers[:3], [2.5, 0, 0], atol=1e-6)
    heavier = sf.project([4.0, 0.0, 0.0, 1.0, 0.0, 0.0], work | work, None, [2, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(heavier.answers[:3], [3.0, 0, 0], atol=1e-6)
    nothing = sf.project([3.0, 1.0, 9.0], work, 4, [0.0, 0.0, 0.0])
    assert nothing.converged
    assert nothing.total == pytest.approx(4)


def test_one_cell_no_records_and_infeasible_answers_have_their_obvious_answers() -> None:
    single = sf.marginals(sf.Domain({"a": 1}), 1)
    assert sf.project([7.5], single, 3).answers.tolist() == [3.0]
    assert sf.project([7.5], single).answers.tolist() == pytest.approx([7.5])
    assert sf.project([-7.5], single).answers.tolist() == [0.0]
    work = work_of("tables")
    none = sf.project(np.full(len(work), 9.0), work, 0)
    assert (none.answers == 0).all()
    assert none.gap == 0
    assert none.total == 0
    assert len(none.weights) == 0
    below = sf.project(np.full(len(work), -5.0), work)
    assert below.answers == pytest.approx(np.zeros(len(work)), abs=1e-9)
    assert below.converged


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e12, 1e60])
def test_the_unit_of_the_answers_does_not_matter(scale: float) -> None:
    work = work_of("tables")
    y = work.evaluate(RECORDS) + 5 * np.random.default_rng(4).normal(size=len(work))
    one = sf.project(y, work, 50)
    other = sf.project(y * scale, work, 50 * scale)
    np.testing.assert_allclose(other.answers / scale, one.answers, atol=1e-5)
    assert other.gap / scale**2 <= 1e-5 * one.value
    assert other.converged


def test_what_cannot_be_projected_is_refused_in_words() -> None:
    work = work_of("tables")
    y = work.evaluate(RECORDS)
    wrong = y.copy()
    wrong[3] = np.nan
    cases: list[tuple[tuple[object, ...], str]] = [
        ((y[:-1], work), "26 queries, got answers of shape"),
        ((wrong, work), "not a finite number"),
        ((np.where(y > 0, np.inf, y), work), "not a finite number"),
        ((y * 1e101, work), "beyond 1e+100"),
        ((y, work, -1), "0 or more"),
        ((y, work, np.nan), "0 or more"),
        ((y, work, True), "0 or more"),
        ((y, work, "50"), "0 or more"),
        ((y, work, (50.0, 0.0)), "standard error above 0"),
        ((y, work, (50.0,)), "standard error above 0"),
        ((y, work, 50, -np.ones(len(y))), "0 or more"),
        ((y, work, 50, np.ones(3)), "got weights of shape"),
        ((y, work, 50, np.eye(3)), "26 rows and columns"),
        ((["a"] * len(y), work), "must be numbers"),
        (([y[:12], y[12:]], work), "3 groups"),
        (({"a x b": y[:12]}, work), "one vector for each of"),
        (([y[:12], y[12:17], y[17:]], work), "has 6 queries"),
    ]
    for given, text in cases:
        with pytest.raises(WorkloadError, match=re.escape(text)):
            sf.project(*given)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="above 0"):
        sf.project(y, work, gap=0)


def test_domains_beyond_listing_are_projected_by_rows_and_never_farther_from_the_truth() -> None:
    domain = sf.Domain({f"x{i}": 2 for i in range(24)})
    work = sf.marginals(domain, [[f"x{i}", f"x{i + 1}"] for i in range(0, 24, 2)])
    rng = np.random.default_rng(0)
    truth = np.concatenate([rng.multinomial(40, [0.4, 0.3, 0.2, 0.1]) for _ in range(12)])
    y = truth + 10 * rng.normal(size=len(work))
    found = sf.project(y, work, 40, seconds=600)
    assert found.method == "rows"
    assert found.total == pytest.approx(40)
    assert np.linalg.norm(found.answers - truth) < np.linalg.norm(y - truth)
    # The tables share no attribute, so each is projected onto its own simplex.
    apart = [sf.project(g, sf.marginals(domain, [["x0", "x1"]]), 40) for g in np.split(y, 12)]
    least = sum(p.value for p in apart)
    assert least - 1e-6 <= found.value <= 1.02 * least
    assert found.value - found.gap <= least + 1e-6
    assert found.cells.shape == (len(found.weights), 24)
    assert (sf.project(y, work, 0).answers == 0).all()
    with pytest.raises(TooLarge, match="16,777,216 cells"):
        sf.project(y, work)
    with pytest.raises(TooLarge, match="weights per query"):
        sf.project(y, work, 40, np.eye(len(work)))


def test_progress_is_told_and_ends_full() -> None:
    work = work_of("tables")
    y = work.evaluate(RECORDS) + 5 * np.random.default_rng(4).normal(size=len(work))
    seen: list[tuple[int, int, str]] = []
    sf.project(y, work, 50, progress=lambda done, total, text: seen.append((done, total, text)))
    assert seen
    assert all(0 <= done <= total for done, total, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def test_the_repr_says_what_matters() -> None:
    work = work_of("tables")
    y = work.evaluate(RECORDS) + 5 * np.random.default_rng(4).normal(size=len(work))
    text = repr(sf.project(y, work, 50))
    assert text.startswith("Projected(26 answers of 50 records on ")
    assert "active set" in text
