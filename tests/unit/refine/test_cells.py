"""The parts of the projection over listed cells, against matrices written out and other solvers."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import nnls

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.refine.cell_solvers import GapBound, fit_dense, fit_support, known_total, unknown_total
from sfumato.refine.cells import _minimum_norm, fit_running_totals
from sfumato.refine.problem import Grid, Quadratic, inverse_covariance
from sfumato.refine.reconstruct import Fit, FitPart, fit_answers
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.nonnegative import nonnegative_least_squares
from sfumato.workload.terms import Product
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2, "unasked": 5})


def work_of(name: str) -> sf.Workload:
    rng = np.random.default_rng(3)
    signed = np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]])
    return {
        "tables": lambda: sf.marginals(DOMAIN, [["a", "b"], ["b", "c"], ["a"]]),
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


NAMES = ["tables", "prefixes", "ranges", "windows", "signed", "given", "conditions", "mixed"]


def quadratic(work: sf.Workload, seed: int = 0, uneven: bool = True) -> Quadratic:
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=t.rows) for t in work.terms]
    weights = [rng.random(t.rows) if uneven else np.full(t.rows, 2.0) for t in work.terms]
    fit = fit_answers(work, values, weights)
    return Quadratic(fit, Grid.of(fit))


def columns(q: Quadratic) -> np.ndarray:
    """The queries over the merged cells, by the operators of the terms on whole tables."""
    out = []
    for flat in range(q.grid.size):
        code = dict(zip(q.grid.names, q.grid.codes(np.array([flat]))[0], strict=True))
        table = np.zeros(q.fit.domain.shape)
        table[tuple(code.get(n, 0) for n in q.fit.domain.names)] = 1
        out.append(sf.Workload(q.fit.domain, tuple(p.term for p in q.fit.parts)).evaluate(table))
    return np.array(out).T


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("uneven", [True, False])
def test_a_quadratic_is_the_one_of_the_written_out_queries(name: str, uneven: bool) -> None:
    q = quadratic(work_of(name), uneven=uneven)
    F, w = columns(q), np.concatenate([p.weights for p in q.fit.parts])
    h = np.random.default_rng(1).random(q.grid.size)
    t = q.stack(h)
    np.testing.assert_allclose(q.answers(t), F @ h, atol=1e-12)
    np.testing.assert_allclose(q.spread(q.curve(t)), F.T @ (w * (F @ h)), atol=1e-11)
    np.testing.assert_allclose(q.spread(q.linear), F.T @ (w * q.values), atol=1e-11)
    cells = np.arange(q.grid.size)[::2]
    np.testing.assert_allclose(q.stack_of(cells, h[cells]), q.stack(np.where(cells_in(q), h, 0)))
    gram = (F.T * w) @ F
    places = q.places(np.arange(q.grid.size))
    np.testing.assert_allclose(q.gram(places[::3], places), gram[::3], atol=1e-12)
    np.testing.assert_array_equal(q.is_seen, (np.abs(F) > 0).any(axis=0))


def cells_in(q: Quadratic) -> np.ndarray:
    return np.arange(q.grid.size) % 2 == 0


@pytest.mark.parametrize("name", NAMES)
def test_operators_of_sets_too_large_for_a_matrix_are_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = quadratic(work_of(name))
    none = replace(LIMITS, set_gram_cells=0, product_gram_cells=0)
    monkeypatch.setattr("sfumato.refine.problem.LIMITS", none)
    large = quadratic(work_of(name))
    h = np.random.default_rng(2).random(small.grid.size)
    np.testing.assert_allclose(large.curve(large.stack(h)), small.curve(small.stack(h)), atol=1e-11)
    places = small.places(np.arange(0, small.grid.size, 2))
    np.testing.assert_allclose(large.gram(places, places), small.gram(places, places), atol=1e-11)


@pytest.mark.parametrize("sums", [1, 10**9])
def test_margins_are_sums_and_spread_is_their_adjoint_for_any_sets(
    sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compiled loops, and without."""
    monkeypatch.setattr("sfumato.refine.problem.LIMITS", replace(LIMITS, compiled_sums=sums))
    domain = sf.Domain({f"x{i}": size for i, size in enumerate([3, 40, 2, 2, 5, 2])})
    fit = fit_answers(sf.marginals(domain, 6), [np.zeros(domain.size)])
    grid = Grid.of(fit)
    rng = np.random.default_rng(0)
    h = rng.random(grid.size)
    sets = [(), (1,), (0, 5), (2, 3), (1, 2, 4), (0, 1, 2, 3, 4, 5)]
    found = grid.margins(h, sets)
    tables = [rng.random(grid.cells(s)) for s in sets]
    for axes, margin in zip(sets, found, strict=True):
        rest = tuple(i for i in range(6) if i not in axes)
        np.testing.assert_allclose(margin, h.reshape(grid.shape).sum(axis=rest).reshape(-1))
    back = grid.spread(list(zip(sets, tables, strict=True)))
    both = sum(float(m @ t) for m, t in zip(found, tables, strict=True))
    assert float(back @ h) == pytest.approx(both, rel=1e-12)
    shift = grid.spread(list(zip(sets, [t + 1 for t in tables], strict=True)))
    assert float(shift @ h) != pytest.approx(both, rel=1e-3)


def test_cells_that_no_query_tells_apart_are_merged_and_unasked_attributes_left_out() -> None:
    domain = sf.Domain({"long": 1000, "b": 4, "unasked": 9})
    matrix = np.zeros((2, 1000))
    matrix[0, :500], matrix[1, 250:750] = 1, 2
    work = sf.product(domain, {"long": matrix, "b": "total"}) | sf.predicates(domain, ["long < 9"])
    fit = fit_answers(work, [np.zeros(t.rows) for t in work.terms])
    grid = Grid.of(fit)
    assert dict(zip(grid.names, grid.shape, strict=True)) == {"long": 5}
    whole = fit_answers(sf.prefixes(domain, "long"), [np.zeros(1000)])
    assert Grid.of(whole).shape == (1000,)


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_columns_are_those_of_scipy_nnls_even_when_columns_depend(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 8)) @ np.concatenate([np.eye(8), rng.random((8, 12))], axis=1)
    b = rng.normal(size=12)
    found = nonnegative_least_squares(A.T @ A, A.T @ b, np.zeros(20), None, 1e-13)
    assert (found >= 0).all()
    reference, residual = nnls(A, b)
    assert np.linalg.norm(A @ found - b) == pytest.approx(residual, abs=1e-9)
    np.testing.assert_allclose(A @ found, A @ reference, atol=1e-6)
    start = np.full(20, 0.1)
    kept = nonnegative_least_squares(A.T @ A, A.T @ b, start, 2.0, 1e-13)
    u = cp.Variable(20, nonneg=True)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(A @ u - b)), [cp.sum(u) == 2])
    problem.solve(solver="CLARABEL")
    assert kept.sum() == pytest.approx(2)
    assert 0.5 * np.linalg.norm(A @ kept - b) ** 2 <= problem.value + 1e-8


@pytest.mark.parametrize("name", NAMES)
def test_gradient_and_active_set_agree(name: str) -> None:
    q = quadratic(work_of(name), seed=5)
    bound = known_total(3.0)
    few = fit_support(q, bound, lambda v: 1e-12 * (v + 1))
    many = fit_dense(q, bound, lambda v: 1e-9 * (v + 1), steps=20_000)
    assert few.gap <= 1e-10
    assert many.gap <= 1e-8
    first = q.answers(q.stack_of(few.cells, few.weights))
    second = q.answers(q.stack_of(many.cells, many.weights))
    assert q.norm(first - second) <= np.sqrt(few.gap) + np.sqrt(many.gap) + 1e-9


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("total", [2.0, None])
def test_the_gap_holds_at_any_histogram(name: str, total: float | None) -> None:
    """Not only near the optimum: at random points, against the optimum of another solver."""
    q = quadratic(work_of(name), seed=7)
    bound = known_total(total) if total is not None else unknown_total(q, _minimum_norm)
    F, w = columns(q), np.concatenate([p.weights for p in q.fit.parts])
    u = cp.Variable(F.shape[1], nonneg=True)
    limits = [] if total is None else [cp.sum(u) == total]
    objective = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(w), F @ u - q.values))
    problem = cp.Problem(cp.Minimize(objective), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    rng = np.random.default_rng(0)
    for _ in range(20):
        h = rng.dirichlet(np.full(F.shape[1], 0.2)) * (rng.random() * 4 if total is None else total)
        t = q.stack(h)
        rest = F @ h - q.values
        g = F.T @ (w * rest)
        gap = bound.gap(float(g.min()), float(g @ h), t)
        away = q.norm(F @ (h - u.value))
        assert 0.5 * float(rest @ (w * rest)) - problem.value <= gap + 1e-8
        assert away**2 <= gap + 1e-6


def test_half_the_gap_would_be_a_lie() -> None:
    """The broken twin of the test above: the certificate has no slack to give away."""
    q = quadratic(work_of("prefixes"), seed=7)
    F, w = columns(q), np.concatenate([p.weights for p in q.fit.parts])
    best = fit_support(q, known_total(2.0), lambda v: 1e-13 * (v + 1))
    p = q.answers(q.stack_of(best.cells, best.weights))
    far = np.zeros(F.shape[1])
    far[int(np.argmax(F.T @ (w * (p - q.values))))] = 2.0
    # On the way from the optimum to a corner the gap is D^2 at the start, so D^2 / 2 is too little.
    h = np.zeros(F.shape[1])
    h[best.cells] = best.weights
    mixed = 0.9 * far + 0.1 * h
    g = F.T @ (w * (F @ mixed - q.values))
    gap = known_total(2.0).gap(float(g.min()), float(g @ mixed), q.stack(mixed))
    assert q.norm(F @ mixed - p) ** 2 > 0.5 * gap


def test_without_a_total_the_gap_of_differences_alone_is_infinite() -> None:
    domain = sf.Domain({"a": 2})
    q = quadratic(sf.product(domain, {"a": np.array([[1.0, -1.0]])}))
    bound = unknown_total(q, _minimum_norm)
    assert bound.lift is None
    assert bound.gap(-1e-3, 0.0, q.stack(np.ones(2))) == np.inf
    assert bound.gap(0.0, 0.5, q.stack(np.ones(2))) == 0.5


def test_the_shortest_vector_for_unknown_totals_is_found_without_a_table() -> None:
    q = quadratic(sf.windows(DOMAIN, "b", 2), uneven=False)
    w = np.concatenate([p.weights for p in q.fit.parts])
    bound = unknown_total(Quadratic(q.fit, q.grid, np.diag(w)), _minimum_norm)
    F = columns(q)
    u = cp.Variable(3)
    shortest = cp.Problem(cp.Minimize(cp.norm(cp.multiply(np.sqrt(w), u))), [F.T @ (2 * u) >= 1])
    shortest.solve(solver="CLARABEL")
    assert isinstance(bound, GapBound)
    assert bound.length == pytest.approx(float(shortest.value), rel=2e-2)


@pytest.mark.parametrize("total", [5.0, None])
@pytest.mark.parametrize("seed", range(4))
def test_running_totals_are_projected_exactly(total: float | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = sf.Domain({"a": 9})
    work = sf.prefixes(domain, "a") | sf.prefixes(domain, "a")
    weights = [rng.random(9) * (rng.random(9) < 0.7), rng.random(9) * (rng.random(9) < 0.7)]
    values = [rng.normal(size=9) * 3 + 2 for _ in range(2)]
    fit = fit_answers(work, values, weights)
    count = FitPart(Product(domain, "n", 1.0, ()), np.array([4.0]), np.array([0.3]))
    fit = Fit(domain, (*fit.parts, count))
    q = Quadratic(fit, Grid.of(fit))
    h = fit_running_totals(q, total)
    assert h is not None
    assert (h >= 0).all()
    u = cp.Variable(9, nonneg=True)
    F, w = columns(q), np.concatenate([p.weights for p in q.fit.parts])
    objective = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(w), F @ u - q.values))
    problem = cp.Problem(cp.Minimize(objective), [] if total is None else [cp.sum(u) == total])
    problem.solve(solver="CLARABEL")
    rest = F @ h - q.values
    assert 0.5 * float(rest @ (w * rest)) <= problem.value + 1e-7
    assert total is None or h.sum() == pytest.approx(total)


def test_something_else_than_running_totals_is_left_to_others() -> None:
    assert fit_running_totals(quadratic(work_of("mixed")), 1.0) is None
    assert fit_running_totals(quadratic(work_of("windows")), 1.0) is None


def test_covariances_are_inverted_and_their_exact_combinations_found() -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(6, 4))
    precision, exact = inverse_covariance(B @ B.T, 6)
    np.testing.assert_allclose(precision, np.linalg.pinv(B @ B.T), rtol=1e-6, atol=1e-9)
    assert exact.shape == (6, 2)
    np.testing.assert_allclose(exact.T @ B, 0, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (np.eye(3), "4 rows and columns"),
        (np.diag([1.0, 1.0, np.nan, 1.0]), "finite"),
        (np.zeros((4, 4)), "exact"),
        (np.triu(np.ones((4, 4))), "symmetric"),
        (np.diag([1.0, 1.0, 1.0, -1.0]), "negative eigenvalue"),
    ],
)
def test_what_is_not_a_covariance_is_refused(given: np.ndarray, text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        inverse_covariance(given, 4)


def test_the_written_out_columns_of_this_file_are_those_of_the_workload() -> None:
    domain = sf.Domain({"a": 3, "b": 2})
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "a")
    q = quadratic(work)
    np.testing.assert_array_equal(columns(q), dense_workload(work))
