# SPDX-License-Identifier: Apache-2.0
"""The least largest error: certified, enclosed by independent means, and truly answered."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.planner import choose
from sfumato.solve.minimax_orbits import weighted_gram
from sfumato.solve.nuclear import certified_minimax
from sfumato.strategy.base import Strategy
from sfumato.strategy.factorization import Factorwise, factorwise
from sfumato.strategy.one_attribute.ordered import (
    Ordered,
    minimax_strategy,
    ordered_minimax,
    prefix_inverse_gram,
    prefix_weights,
    range_bound,
)
from sfumato.workload.queries import Prefix
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload
from tests.unit.solve.test_nuclear_minimax import dense

CUBE = sf.Domain({"a": 8, "b": 3, "c": 5})
GRID = sf.Domain({"x": 50, "y": 60, "z": 4})
GIVEN = [[1, 0.5, -2, 0, 1], [0, 0, 3, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]
WORKLOADS: dict[str, Workload] = {
    "prefixes": sf.prefixes(CUBE, "a"),
    "ranges": sf.ranges(CUBE, "a"),
    "windows": sf.product(CUBE, {"a": "windows(5)"}),
    "product": sf.product(CUBE, {"a": "prefix", "b": "identity", "c": "ranges"}),
    "union": sf.prefixes(CUBE, "a", by=["b"]) | 2 * sf.marginals(CUBE, 2) | sf.ranges(CUBE, "c"),
    "given": sf.product(CUBE, {"c": GIVEN, "a": "prefix"}) | sf.marginals(CUBE, 1),
    "copies": sf.product(CUBE, {"a": [[1, 0, 0, 1, 1, 0, 0, 0]] * 5}),
    "total": sf.marginals(CUBE, [()]),
}


def measured(strategy: Strategy, counts: np.ndarray) -> list[np.ndarray]:
    names = strategy.workload.domain.names
    values = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(names) if n not in block.term.attributes)
        values.append(block.term.answer(counts.sum(axis=drop)))
    return values


def answers(strategy: Strategy, counts: np.ndarray) -> np.ndarray:
    values = measured(strategy, counts)
    terms = range(len(strategy.workload.terms))
    return np.concatenate([strategy.answer(t, values) for t in terms])


def dense_strategy(strategy: Strategy) -> np.ndarray:
    shape = strategy.workload.domain.shape
    columns = []
    for cell in np.eye(int(np.prod(shape))):
        parts = zip(strategy.blocks, measured(strategy, cell.reshape(shape)), strict=True)
        columns.append(np.concatenate([block.share * y for block, y in parts]))
    return np.array(columns).T


@pytest.fixture(params=WORKLOADS)
def work(request: pytest.FixtureRequest) -> Workload:
    return WORKLOADS[request.param]


def test_the_largest_error_is_certified_and_encloses_the_dense_optimum(work: Workload) -> None:
    strategy = minimax_strategy(work)
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    f = dense_workload(work) * weights[:, None]
    known = certified_minimax(dense(f), f.shape[1], len(f), tolerance=1e-4)
    assert strategy.bound is not None
    assert strategy.objective == "max"
    assert strategy.bound <= known.upper * (1 + 1e-9), "the bound is below a feasible error"
    assert strategy.weighted_error("max") >= known.lower * (1 - 1e-9), "the error is above a bound"
    assert strategy.weighted_error("max") <= strategy.bound * 1.002


def test_what_is_stated_is_what_the_dense_matrices_do(work: Workload) -> None:
    """Errors from M by counting single records, R by its pseudo-inverse."""
    strategy = minimax_strategy(work)
    m, f = dense_strategy(strategy), dense_workload(work)
    r = f @ np.linalg.pinv(m, rcond=1e-10)
    np.testing.assert_allclose(r @ m, f, atol=1e-7)
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    errors = weights**2 * (r**2).sum(axis=1) * (m**2).sum(axis=0).max()
    assert strategy.weighted_error("max") == pytest.approx(errors.max(), rel=1e-6)
    counts = np.random.default_rng(1).integers(0, 99, size=work.domain.shape)
    np.testing.assert_allclose(answers(strategy, counts), work.evaluate(counts), atol=1e-6)


def test_no_strategy_tried_is_below_the_bound() -> None:
    """Neither random strategies nor the queries, the table or the optimum of the mean."""
    rng = np.random.default_rng(2)
    f = dense_workload(WORKLOADS["ranges"])[:, ::15]  # one column for each of the 8 cells
    bound = minimax_strategy(WORKLOADS["ranges"]).bound
    assert bound is not None
    tries = [np.eye(8), f, np.tril(np.ones((8, 8))), *(rng.normal(size=(9, 8)) for _ in range(200))]
    for m in tries:
        r = f @ np.linalg.pinv(m)
        assert (r**2).sum(axis=1).max() * (m**2).sum(axis=0).max() >= bound * (1 - 1e-9)


def test_the_bound_agrees_with_a_semidefinite_program() -> None:
    """min over X, X_jj <= 1, of max_q f_q' X^-1 f_q, by an independent solver."""
    cp = pytest.importorskip("cvxpy")
    domain = sf.Domain({"x": 4})
    work = sf.ranges(domain, "x") | 1.5 * sf.product(domain, {"x": [[1, -1, 1, 0]]})
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    f = dense_workload(work) * weights[:, None]
    x = cp.Variable((4, 4), PSD=True)
    objective = cp.maximum(*[cp.matrix_frac(row, x) for row in f])
    problem = cp.Problem(cp.Minimize(objective), [cp.diag(x) <= 1])
    problem.solve()
    strategy = minimax_strategy(work)
    assert strategy.bound == pytest.approx(problem.value, rel=1e-3)
    assert strategy.weighted_error("max") == pytest.approx(problem.value, rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 5, 64, 300])
def test_prefix_weights_enclose_the_optimum_in_linear_time(size: int) -> None:
    found = prefix_weights(size)
    joint = certified_minimax(dense(np.tril(np.ones((size, size)))), size, size, all_bind=True)
    assert found.certificate <= 1.0002
    assert found.lower <= joint.upper * (1 + 1e-9)
    assert found.upper >= joint.lower * (1 - 1e-9)
    assert (found.w == found.v[::-1]).all()


@pytest.mark.parametrize("size", [64, 256, 1024, 4096])
def test_prefixes_beat_the_closed_form_square_root(size: int) -> None:
    """The Toeplitz square root has rows and columns of squared norm sum_k (C(2k, k) / 4^k)^2."""
    k = np.arange(1, size)
    coefficients = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    closed_form = float((coefficients**2).sum())
    found = prefix_weights(size)
    assert sqrt(found.upper) < 0.92 * closed_form
    assert found.certificate <= 1.0002


def test_the_inverse_gram_of_weighted_prefixes_is_tridiagonal() -> None:
    weights = np.random.default_rng(3).random(30) + 0.1
    inverse, diagonal = prefix_inverse_gram(weights)
    gram = weighted_gram(Prefix(30), weights)
    np.testing.assert_allclose(inverse.dense() @ gram, np.eye(30), atol=1e-9)
    np.testing.assert_allclose(diagonal, np.diag(gram))


@pytest.mark.parametrize("by", [[], ["y"]])
def test_long_prefixes_are_measured_in_linear_time(by: list[str]) -> None:
    work = 2 * sf.prefixes(sf.Domain({"x": 700, "y": 3}), "x", by=by)
    strategy = minimax_strategy(work)
    assert isinstance(strategy, Ordered)
    assert strategy.bound == pytest.approx(4 * prefix_weights(700).lower, rel=1e-3)
    assert strategy.bound <= strategy.weighted_error("max") <= strategy.bound * 1.001


def test_all_ranges_of_a_long_attribute_are_within_a_few_percent() -> None:
    strategy = minimax_strategy(2 * sf.ranges(sf.Domain({"x": 3000, "y": 2}), "x", by=["y"]))
    assert isinstance(strategy, Ordered)
    assert strategy.objective == "max"
    assert strategy.bound is not None
    assert strategy.bound <= strategy.weighted_error("max") <= strategy.bound * 1.06**2


@pytest.mark.parametrize("size", [2, 3, 16, 33])
def test_the_bound_of_long_ranges_is_close_below_the_optimum(size: int) -> None:
    best = minimax_strategy(sf.ranges(sf.Domain({"x": size}), "x"))
    assert best.bound is not None
    assert range_bound(size) <= best.weighted_error("max") * (1 + 1e-9)
    assert range_bound(size) >= best.bound * 0.98


def test_ranges_measured_by_a_root_state_the_largest_of_all_their_variances() -> None:
    """Exact where every block is one point; never less where blocks are longer."""
    work = sf.ranges(sf.Domain({"x": 90}), "x")
    strategy = ordered_minimax(work)
    every = strategy.variances(0, [1.0]).max()
    assert strategy.maximum_variance(0, [1.0]) == pytest.approx(every, rel=1e-9)
    m, f = dense_strategy(strategy), dense_workload(work)
    r = f @ np.linalg.pinv(m)
    np.testing.assert_allclose(r @ m, f, atol=1e-7)
    assert every == pytest.approx((r**2).sum(axis=1).max(), rel=1e-6)
    longer = ordered_minimax(sf.ranges(sf.Domain({"x": 1500}), "x"))
    every = longer.variances(0, [1.0]).max()
    assert every <= longer.maximum_variance(0, [1.0]) <= every * 1.01


def test_ranges_are_far_below_trees() -> None:
    work = sf.ranges(sf.Domain({"x": 128}), "x")
    tree = choose(work, sf.Budget(mu=1), "add-remove", "max", "gaussian-tree").strategy
    found = minimax_strategy(work)
    assert found.weighted_error("max") < 0.8 * tree.weighted_error("max")
    assert tree.weighted_error("max") >= (found.bound or 0.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"x": "ranges", "y": "prefix"},
        {"x": "prefix", "y": "windows(9)", "z": "identity"},
        {"x": "prefix", "y": "prefix", "z": [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]]},
    ],
)
def test_products_too_large_for_one_matrix_are_products_of_optima(asked: dict) -> None:
    work = 3 * sf.product(GRID, asked)
    strategy = minimax_strategy(work)
    assert isinstance(strategy, Factorwise)
    assert strategy.bound is not None
    assert strategy.weighted_error("max") <= strategy.bound * 1.002
    counts = np.random.default_rng(4).integers(0, 9, size=GRID.shape)
    exact = work.evaluate(counts)
    np.testing.assert_allclose(answers(strategy, counts), exact, atol=1e-6 * np.abs(exact).max())


def test_a_product_measured_by_factors_states_what_its_dense_matrices_do() -> None:
    asked = {"a": "prefix", "b": "identity", "c": GIVEN}
    work = 2 * sf.product(CUBE, asked)
    strategy = factorwise(work, minimax_strategy, "max")
    m, f = dense_strategy(strategy), dense_workload(work)
    r = f @ np.linalg.pinv(m, rcond=1e-10)
    unit = [share**-2 for share in strategy.shares]
    np.testing.assert_allclose(strategy.variances(0, unit), (r**2).sum(axis=1), rtol=1e-6)
    assert strategy.total_variance(0, unit) == pytest.approx((r**2).sum(), rel=1e-6)
    assert strategy.maximum_variance(0, unit) == pytest.approx((r**2).sum(axis=1).max(), rel=1e-6)
    columns = (m**2).sum(axis=0).max()
    assert columns <= strategy.sensitivity(2).power <= columns * (1 + 1e-8)
    whole = minimax_strategy(work)
    assert strategy.bound == pytest.approx(whole.bound, rel=1e-3)
    assert np.isinf(strategy.effective_terms(0)).all()
    with pytest.raises(PlanError, match="one product"):
        factorwise(work | sf.marginals(CUBE, 1), minimax_strategy, "max")


def test_a_certificate_takes_only_bounds_of_its_own_objective() -> None:
    """The bound of a sum of squares is no bound on the largest of them; divided by k it is."""
    work = sf.ranges(sf.Domain({"x": 16}), "x")
    mean = choose(work, sf.Budget(mu=1), "add-remove", "rmse", "factorization").strategy
    best = minimax_strategy(work)
    assert mean.bound is not None
    assert mean.bound > best.weighted_error("max"), "taken as it is, it would refute the optimum"
    assert mean.bound_for("max") == pytest.approx(mean.bound / 136)
    assert (mean.bound_for("max") or 0.0) <= best.weighted_error("max")
    assert mean.bound_for("rmse") == mean.bound
    assert best.bound_for("max") == best.bound
    assert best.bound_for("rmse") is None


@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_every_plan_states_a_certificate_of_at_least_one(objective: str) -> None:
    for work in WORKLOADS.values():
        plan = choose(work, sf.Budget(mu=1), "add-remove", objective)
        assert plan.certificate is not None
        assert plan.certificate >= 1 - 1e-9
        assert plan.lower_bound is not None
        assert plan.lower_bound > 0


def test_the_certificate_of_the_largest_error_is_error_over_bound() -> None:
    work = WORKLOADS["union"]
    best = minimax_strategy(work)
    plan = choose(work, sf.Budget(mu=1), "add-remove", "max", "gaussian-table")
    known = replace(plan, bound=best.bound)
    assert known.certificate == pytest.approx(
        sqrt(plan.strategy.weighted_error("max") / (best.bound or 1.0))
    )
    assert known.lower_bound == pytest.approx(sqrt(best.bound or 0.0))
    assert replace(known, neighbours="replace-one").certificate is None
    assert replace(known, bound=None).certificate is None


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    a = sf.attribute(CUBE, "a")
    with pytest.raises(PlanError, match="not a product"):
        minimax_strategy(sf.marginals(CUBE, 1) | sf.predicates(CUBE, [(a < 3)]))
    with pytest.raises(TooLarge, match="5,000 classes"):
        minimax_strategy(sf.product(sf.Domain({"x": 5000}), {"x": "windows(9)"}))


@pytest.mark.slow
def test_a_thousand_cells_of_ranges_and_a_million_of_prefixes_are_certified() -> None:
    strategy = minimax_strategy(sf.ranges(sf.Domain({"x": 1024}), "x"))
    assert sqrt(strategy.weighted_error("max") / (strategy.bound or 1.0)) <= 1.0005
    assert prefix_weights(1_000_000).certificate <= 1.0002
