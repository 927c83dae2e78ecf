"""Support functions, widths and the forecasts made of them, against brute force and theorems."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import log, pi, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import nnls
from scipy.stats import norm

import sfumato as sf
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.planning.forecast import drawn_noise
from sfumato.privacy.cost import Cost, mu_squared_of
from sfumato.random import Draws
from sfumato.study import widths as widths_module
from sfumato.study.experts import (
    multiplicative_weights,
    simulated_weights,
    weights_rows_needed,
)
from sfumato.study.simulated import (
    MadeUp,
    measure_forecast,
    measure_projected,
    measure_projection,
    measure_weights,
)
from sfumato.study.study_limits import LIMITS
from sfumato.study.widths import (
    Hull,
    agreed,
    closed_form,
    dimension_bound,
    mean_norm,
    projected_noise,
)
from sfumato.workload.workload import Workload

BUDGET = sf.Budget(epsilon=1, delta=1e-6)
SMALL = sf.Domain({"a": 4, "b": 3, "c": 5, "d": 2})


def workloads() -> dict[str, Workload]:
    a, d = sf.attribute(SMALL, "a"), sf.attribute(SMALL, "d")
    signed = np.random.default_rng(5).integers(-3, 4, size=(7, 12)).astype(float)
    conditions = sf.predicates(SMALL, [(a == 1) | (d == 1), a >= 2, (a <= 2) & (d == 0)])
    return {
        "pairs": sf.marginals(SMALL, 2),
        "running totals": sf.prefixes(SMALL, "c", by=["a"]) | sf.marginals(SMALL, 1),
        "conditions": conditions,
        "mixed": conditions | sf.marginals(SMALL, 2) | sf.ranges(SMALL, "c"),
        "signed": sf.explicit(SMALL, ["a", "b"], signed) | sf.marginals(SMALL, 1),
        "one cell": sf.marginals(sf.Domain({"x": 1}), 1),
    }


def dense(workload: Workload) -> np.ndarray:
    """F, column by column, from the answers to single records."""
    domain = workload.domain
    units = np.eye(domain.size).reshape(-1, *domain.shape)
    return np.array([workload.evaluate(unit) for unit in units]).T


@pytest.mark.parametrize("name", workloads())
def test_support_is_the_greatest_product_with_a_column(name: str) -> None:
    work = workloads()[name]
    matrix, rng = dense(work), np.random.default_rng(1)
    for _ in range(10):
        y = rng.normal(size=len(work))
        found = sf.support(work, y)
        assert found.is_exact
        assert float(found) == pytest.approx((y @ matrix).max(), abs=1e-12)
        codes = [found.cell.get(n, 0) for n in work.domain.names]
        column = matrix[:, np.ravel_multi_index(codes, work.domain.shape)]
        assert y @ column == pytest.approx(found.lower, abs=1e-12)


@pytest.mark.parametrize("name", workloads())
def test_the_written_out_matrix_has_the_columns_of_the_workload(name: str) -> None:
    work = workloads()[name]
    ours, theirs = Hull.of(work).matrix.T, dense(work).T
    assert {tuple(c) for c in ours} == {tuple(c) for c in theirs}


def test_support_is_exact_on_a_chain_of_pairs_over_a_quadrillion_cells() -> None:
    """By the recursion of Viterbi, written out by hand."""
    domain = sf.Domain({f"x{i:02d}": 10 for i in range(15)})
    names = domain.names
    work = sf.marginals(domain, [list(pair) for pair in pairwise(names)])
    y = np.random.default_rng(2).normal(size=len(work))
    best = np.zeros(10)
    for table in y.reshape(-1, 10, 10):
        best = (best[:, None] + table).max(axis=0)
    found = sf.support(work, y)
    assert domain.size == 10**15
    assert found.is_exact
    assert float(found) == pytest.approx(best.max())


def test_bounds_enclose_the_support_where_the_joint_table_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = sf.marginals(SMALL, 2)
    matrix, rng = dense(work), np.random.default_rng(3)
    monkeypatch.setattr(widths_module, "LIMITS", replace(LIMITS, hull_table_cells=25))
    improved = 0
    for _ in range(20):
        y = rng.normal(size=len(work))
        found = Hull.of(work).support(y)
        exact = (y @ matrix).max()
        assert found.lower <= exact + 1e-9
        assert found.upper >= exact - 1e-9
        assert not Hull(work).is_exact
        naive = sum(t.max() for t in Hull(work).tables(y).values())
        improved += found.upper < naive - 1e-6
    assert improved >= 18


def test_a_bound_that_loses_part_of_the_sum_would_be_noticed() -> None:
    """The twin of the bound: tables that were lowered without raising others."""
    work = sf.marginals(SMALL, 2)
    hull, matrix, rng = Hull(work), dense(work), np.random.default_rng(4)
    failures = 0
    for _ in range(20):
        y = rng.normal(size=len(work))
        tables = hull.tables(y)
        broken = {names: t - 0.2 * np.abs(t) for names, t in tables.items()}
        failures += agreed(broken, hull.sizes).upper < (y @ matrix).max()
    assert failures > 0


@pytest.mark.parametrize(
    "direction", [np.ones(3), [np.nan, 1.0], [np.inf, 1.0], np.ones((2, 1)), []]
)
def test_support_refuses_what_is_no_direction(direction: object) -> None:
    with pytest.raises(WorkloadError, match="direction"):
        sf.support(sf.marginals(sf.Domain({"x": 2}), 1), direction)


def test_support_refuses_what_is_no_workload_or_cannot_be_held() -> None:
    with pytest.raises(WorkloadError, match="workload"):
        sf.support("eye", np.ones(3))
    wide = sf.marginals(sf.Domain({"x": 10**4, "y": 10**4}), 2)
    with pytest.raises(TooLarge, match="fewer"):
        sf.support(wide, np.ones(3))


# Widths


def greatest_normal(count: int, *, is_absolute: bool = False) -> float:
    """``E max`` of independent normals, or of their absolute values, by quadrature."""
    if is_absolute:
        return quad(lambda x: 1 - (2 * norm.cdf(x) - 1) ** count, 0, 12)[0]
    up = quad(lambda x: 1 - norm.cdf(x) ** count, 0, 12)[0]
    return up - quad(lambda x: norm.cdf(x) ** count, -12, 0)[0]


def close(width: object, exact: float) -> bool:
    return abs(float(width) - exact) < 4 * width.standard_error  # type: ignore[attr-defined, arg-type]


@pytest.mark.parametrize("size", [2, 10, 300])
def test_the_width_of_a_simplex_is_the_mean_of_the_greatest_normal(size: int) -> None:
    work = sf.marginals(sf.Domain({"x": size}), 1)
    width = sf.gaussian_width(work)
    exact = greatest_normal(size)
    assert close(width, exact)
    assert width.lower <= exact <= width.upper
    assert not close(width, 1.1 * exact)
    assert close(sf.gaussian_width(work, "symmetric"), greatest_normal(size, is_absolute=True))


def test_the_width_with_zero_is_the_mean_of_the_positive_part() -> None:
    one = sf.marginals(sf.Domain({"x": 1}), 1)
    width = sf.gaussian_width(one, "with-zero")
    assert close(width, 1 / sqrt(2 * pi))
    assert float(sf.gaussian_width(one)) == 0.0


def test_the_width_of_running_totals_is_that_of_a_random_walk() -> None:
    """Spitzer 1956: ``E max(0, S_1, ..., S_m) = sum_j E S_j^+ / j``; columns are walks of 1..m."""
    width = sf.gaussian_width(sf.prefixes(sf.Domain({"x": 200}), "x"))
    exact = sum(1 / sqrt(2 * pi * j) for j in range(1, 200))
    assert close(width, exact)
    assert width.lower <= exact <= width.upper
    assert not close(width, 1.1 * exact)


@pytest.mark.parametrize("name", ["pairs", "mixed", "signed", "conditions"])
def test_widths_agree_with_draws_of_another_generator(name: str) -> None:
    work = workloads()[name]
    normals = np.random.default_rng(7).normal(size=(4000, len(work)))
    reached = (normals @ dense(work)).max(axis=1)
    width = sf.gaussian_width(work)
    spread = reached.std() / sqrt(len(reached))
    assert abs(reached.mean() - float(width)) < 4 * (spread + width.standard_error)
    assert width.lower <= reached.mean() + 4 * spread
    assert width.upper >= reached.mean() - 4 * spread


def test_elimination_and_the_written_out_matrix_give_the_same_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = workloads()["mixed"]
    written = sf.gaussian_width(work, draws=50)
    monkeypatch.setattr(widths_module, "LIMITS", replace(LIMITS, hull_matrix_entries=1))
    eliminated = sf.gaussian_width(work, draws=50)
    assert float(written) == pytest.approx(float(eliminated), rel=1e-9)


def test_the_width_of_attributes_asked_apart_is_the_sum_of_theirs() -> None:
    domain = sf.Domain({"a": 30, "b": 50, "c": 7})
    width = sf.gaussian_width(sf.marginals(domain, 1))
    assert close(width, sum(greatest_normal(n) for n in (30, 50, 7)))


def test_intervals_hold_as_often_as_they_say() -> None:
    """40 disjoint batches of 8 draws each; concentration is cautious, so hardly any may miss."""
    exact = greatest_normal(5)
    missed = 0
    for seed in range(40):
        domain = sf.Domain({f"x{seed}": 5})
        width = sf.gaussian_width(sf.marginals(domain, 1), draws=8)
        missed += not width.lower <= exact <= width.upper
    assert missed <= 4


def test_closed_forms_are_never_below_the_width() -> None:
    for work in workloads().values():
        for body in ("hull", "with-zero", "symmetric"):
            width = sf.gaussian_width(work, body, draws=200)
            bound, formula = closed_form(work, body)
            assert bound >= float(width) - 4 * width.standard_error
            assert formula
    tight = closed_form(sf.marginals(sf.Domain({"x": 1000}), 1))[0]
    assert tight == pytest.approx(sqrt(2 * log(1000)))


def test_the_dimension_is_never_below_that_of_the_hull() -> None:
    for name, work in workloads().items():
        matrix = dense(work)
        rank = np.linalg.matrix_rank(matrix - matrix.mean(axis=1, keepdims=True), tol=1e-9)
        assert dimension_bound(work) >= rank
        if name in ("pairs", "one cell"):
            assert dimension_bound(work) == rank


def test_domains_beyond_any_table_have_bounds() -> None:
    domain = sf.Domain({f"x{i}": 20 for i in range(12)})
    work = sf.marginals(domain, 2)
    width = sf.gaussian_width(work, draws=3)
    assert 0 < width.lower < width.value <= width.upper
    assert width.upper <= sqrt(2 * log(20**12) * 66)
    wide = sf.marginals(sf.Domain({"x": 10**4, "y": 10**4}), 2)
    known = sf.gaussian_width(wide)
    assert known.draws == 0
    assert known.upper == pytest.approx(sqrt(2 * log(10**8)))


def test_the_mean_width_is_the_gaussian_one_over_the_mean_norm() -> None:
    assert mean_norm(1) == pytest.approx(sqrt(2 / pi))
    assert mean_norm(3) == pytest.approx(2 * sqrt(2 / pi))
    assert mean_norm(10**6) == pytest.approx(mean_norm(10**6 + 1), rel=1e-6)
    work = workloads()["pairs"]
    turned = np.random.default_rng(8).normal(size=(4000, len(work)))
    turned /= np.sqrt((turned**2).sum(axis=1, keepdims=True))
    reached = (turned @ dense(work)).max(axis=1)
    width = sf.mean_width(work)
    spread = reached.std() / sqrt(len(reached))
    assert abs(reached.mean() - float(width)) < 4 * (spread + width.standard_error)


@pytest.mark.parametrize(
    "given", [{"draws": -1}, {"draws": 1.5}, {"draws": True}, {"level": 1.0}, {"level": "x"}]
)
def test_widths_refuse_impossible_requests(given: dict[str, object]) -> None:
    with pytest.raises(WorkloadError, match=r"draws|level"):
        sf.gaussian_width(workloads()["pairs"], **given)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="body"):
        sf.gaussian_width(workloads()["pairs"], "ball")  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="workload"):
        sf.gaussian_width("pairs")  # type: ignore[arg-type]


def test_public_draws_repeat_and_are_no_source_of_noise() -> None:
    draws = Draws("x")
    assert not hasattr(draws, "words")
    normals = draws.normals(200_001)
    assert (normals == Draws("x").normals(200_001)).all()
    assert abs(normals.mean()) < 0.01
    assert abs(normals.var() - 1) < 0.02
    assert abs(float(np.mean(np.abs(Draws("y").laplaces(100_000)))) - 1) < 0.02
    counts = draws.counts(np.array([0.5, 0.0, 0.25, 0.25]), 10_000)
    assert counts.sum() == 10_000
    assert counts[1] == 0


# Projection


def projected(matrix: np.ndarray, target: np.ndarray, total: float) -> np.ndarray:
    """The nearest point of ``total * conv(columns)``, by non-negative least squares."""
    heavy = 1e4 * np.sqrt((matrix**2).sum(axis=0).max())
    stacked = np.vstack([matrix, np.full(matrix.shape[1], heavy)])
    weights, _ = nnls(stacked, np.append(target, heavy * total))
    return matrix @ (weights * (total / weights.sum()))


def data_sets(cells: int, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    one = np.zeros(cells)
    one[cells // 2] = n
    return [one, np.full(cells, n / cells), rng.dirichlet(np.full(cells, 0.2)) * n]


@pytest.mark.parametrize("n", [3, 30, 300, 3000])
@pytest.mark.parametrize("name", ["pairs", "running totals", "signed", "conditions"])
def test_no_data_set_exceeds_the_bound_on_projection(name: str, n: int) -> None:
    work = workloads()[name]
    forecast = sf.forecast_projection(work, BUDGET, n)
    matrix, rng = dense(work), np.random.default_rng(9)
    assert forecast.estimate <= forecast.bound <= forecast.noise * (1 + 1e-12)
    for h in data_sets(matrix.shape[1], n, rng):
        truth = matrix @ h
        noise = forecast.noise * rng.normal(size=(24, len(truth)))
        errors = [((projected(matrix, truth + z, n) - truth) ** 2).mean() for z in noise]
        mean, spread = np.mean(errors), np.std(errors) / sqrt(len(errors))
        assert mean <= forecast.bound**2 + 4 * spread


def test_the_bound_on_projection_is_not_idle() -> None:
    """A tenth of it is exceeded, and the noise alone exceeds it by far where n is small."""
    work = sf.prefixes(sf.Domain({"x": 64}), "x")
    forecast = sf.forecast_projection(work, BUDGET, 50)
    matrix, rng = dense(work), np.random.default_rng(10)
    truth = matrix @ np.full(64, 50 / 64)
    noise = forecast.noise * rng.normal(size=(40, 64))
    errors = [((projected(matrix, truth + z, 50) - truth) ** 2).mean() for z in noise]
    assert np.mean(errors) > (forecast.bound / 2.5) ** 2
    assert forecast.gain > 2


def test_splits_between_the_two_theorems_gain_over_both() -> None:
    forecast = sf.forecast_projection(sf.prefixes(sf.Domain({"x": 256}), "x"), BUDGET, 1000)
    notes = sqrt(1000 * forecast.noise * forecast.width.upper / 256)
    assert forecast.bound < 0.8 * min(notes, forecast.noise)
    widths = [s.width for s in sorted(forecast.splits, key=lambda s: s.dimension)]
    assert widths[-1] == 0.0


def test_a_bound_ten_percent_lower_would_fail_where_records_are_many() -> None:
    """The twin: far inside the hull nothing is gained beyond its dimension."""
    work = workloads()["conditions"]
    n = 10**6
    forecast = sf.forecast_projection(work, BUDGET, n)
    matrix, rng = dense(work), np.random.default_rng(11)
    truth = matrix @ np.full(matrix.shape[1], n / matrix.shape[1])
    noise = forecast.noise * rng.normal(size=(200, len(truth)))
    errors = [((projected(matrix, truth + z, n) - truth) ** 2).mean() for z in noise]
    assert np.mean(errors) > (0.9 * forecast.bound) ** 2


def test_rows_needed_are_enough_and_not_many_too_many() -> None:
    forecast = sf.forecast_projection(workloads()["pairs"], BUDGET, 100)
    for alpha in (0.3, 0.05, 0.001):
        n = forecast.rows_needed(alpha)
        assert forecast.bound_at(n) / n <= alpha
        assert forecast.bound_at(0.99 * n - 1) / (0.99 * n - 1) > alpha
    for alpha in (0, -1.0, float("nan"), True, "x"):
        with pytest.raises(PlanError, match="alpha"):
            forecast.rows_needed(alpha)  # type: ignore[arg-type]


def test_below_the_crossover_the_width_says_more_than_the_noise() -> None:
    forecast = sf.forecast_projection(workloads()["pairs"], BUDGET, 100)
    n = forecast.crossover
    by_width = sqrt(n * forecast.noise * forecast.width.upper)
    assert by_width == pytest.approx(forecast.noise * sqrt(forecast.dimension))


def test_replacing_a_record_takes_the_noise_of_the_diameter() -> None:
    work = sf.marginals(sf.Domain({"x": 30}), 1)
    added = sf.forecast_projection(work, BUDGET, 100)
    replaced = sf.forecast_projection(work, BUDGET, 100, "replace-one")
    assert replaced.noise / added.noise == pytest.approx(sqrt(2), rel=1e-3)


@pytest.mark.parametrize("records", [0, -5, True, 1.5, "many", 10**16])
def test_forecasts_refuse_impossible_numbers_of_records(records: object) -> None:
    with pytest.raises(WorkloadError, match="records"):
        sf.forecast_projection(workloads()["pairs"], BUDGET, records)  # type: ignore[arg-type]


def test_forecasts_refuse_budgets_without_gaussian_noise() -> None:
    with pytest.raises(PlanError, match="delta"):
        sf.forecast_projection(workloads()["pairs"], sf.Budget(epsilon=1), 10)


def test_the_width_along_independent_noise_is_sigma_times_the_gaussian_width() -> None:
    work = workloads()["pairs"]
    plan = sf.plan(work, BUDGET, mechanism="gaussian")
    found = projected_noise(plan.forecast, draws=400)
    width = sf.gaussian_width(work).scaled(plan.noise[0].scale)
    spread = found.width.standard_error + width.standard_error
    assert abs(float(found.width) - float(width)) < 4 * spread
    assert abs(float(found.width) - 1.3 * float(width)) > 4 * spread


@pytest.mark.parametrize("n", [3, 30, 3000])
def test_no_data_set_exceeds_the_bound_on_projected_factorizations(n: int) -> None:
    work = sf.prefixes(sf.Domain({"x": 40}), "x")
    plan = sf.plan(work, BUDGET, mechanism="factorization")
    found = projected_noise(plan.forecast)
    matrix, rng = dense(work), np.random.default_rng(13)
    for h in data_sets(matrix.shape[1], n, rng):
        truth = matrix @ h
        noise = drawn_noise(plan.forecast, Draws(f"test {n}"), 24)
        errors = [((projected(matrix, truth + z, n) - truth) ** 2).mean() for z in noise]
        mean, spread = np.mean(errors), np.std(errors) / sqrt(len(errors))
        assert mean <= found.bound_at(n) ** 2 + 4 * spread
    assert found.bound_at(n) <= plan.rmse
    assert n > 3 or found.bound_at(n) < plan.rmse / 1.5


def test_widths_say_nothing_of_laplace_noise() -> None:
    plan = sf.plan(workloads()["pairs"], sf.Budget(epsilon=1), mechanism="laplace")
    with pytest.raises(PlanError, match="Gaussian"):
        projected_noise(plan.forecast)
    for draws in (1, True, 2.5):
        with pytest.raises(PlanError, match="draws"):
            projected_noise(
                sf.plan(workloads()["pairs"], BUDGET, mechanism="gaussian").forecast,
                draws=draws,  # type: ignore[arg-type]
            )


# Made-up data


def test_measured_projection_agrees_with_an_independent_solver() -> None:
    work = workloads()["pairs"]
    forecast = sf.forecast_projection(work, BUDGET, 200)
    made_up = MadeUp.of(work, "uniform")
    found = measure_projection(forecast, made_up, 200, runs=6)
    matrix = made_up.hull.matrix
    errors = []
    for run in range(6):
        truth = matrix @ made_up.histogram(200, run)
        noise = forecast.noise * made_up.draws("noise", run, 200).normals(len(truth))
        errors.append(((projected(matrix, truth + noise, 200) - truth) ** 2).mean())
    assert found.rmse == pytest.approx(sqrt(np.mean(errors)), rel=1e-3)
    assert found.rmse <= forecast.bound + 4 * found.standard_error


def test_measured_linear_mechanisms_agree_with_their_forecast() -> None:
    work = workloads()["running totals"]
    for mechanism in ("gaussian", "factorization", "laplace"):
        plan = sf.plan(work, BUDGET, mechanism=mechanism)
        found = measure_forecast(plan.forecast, MadeUp.of(work), 100, runs=200)
        assert abs(found.rmse - plan.rmse) < 5 * found.standard_error
        assert abs(found.rmse - 1.3 * plan.rmse) > 5 * found.standard_error
        assert measure_projected(plan.forecast, MadeUp.of(work), 20, runs=3).rmse < 0.7 * plan.rmse


def test_surrogates_are_public_tables_or_named_laws() -> None:
    work = workloads()["conditions"]
    table = np.random.default_rng(12).integers(0, 9, size=SMALL.shape)
    made_up = MadeUp.of(work, table)
    assert made_up.hull.matrix @ made_up.shares == pytest.approx(work.evaluate(table) / table.sum())
    for bad in (table[0], -table, np.zeros(SMALL.shape), np.full(SMALL.shape, np.nan), "data"):
        with pytest.raises(WorkloadError, match="surrogate"):
            MadeUp.of(work, bad)  # type: ignore[arg-type]


def test_data_too_large_to_write_out_are_refused() -> None:
    with pytest.raises(TooLarge, match="write"):
        MadeUp.of(sf.marginals(sf.Domain({f"x{i}": 20 for i in range(6)}), 2))


# Multiplicative weights


def test_multiplicative_weights_stay_within_the_budget() -> None:
    """Recomputed from the parameters: pure composition, zCDP, or Gaussian DP."""
    for budget, n in product((BUDGET, sf.Budget(epsilon=1), sf.Budget(rho="0.1")), (10**5, 10**8)):
        found = multiplicative_weights(500, 10**6, n, budget)
        runs, c = found.updates + 1, found.updates
        pure = runs * found.first_epsilon + c * found.second_epsilon
        rho = (runs * found.first_epsilon**2 + c * found.second_epsilon**2) / 2
        parts = (Fraction(found.first_epsilon), Fraction(found.second_epsilon))
        first, second = (mu_squared_of(Cost.pure(e)) for e in parts)
        of_pairs = sqrt(float(runs * first + c * second))
        assert pure <= budget.pure_epsilon or (
            rho <= 0.1
            if budget.rho is not None
            else rho + 2 * sqrt(rho * log(1e6)) <= 1 or of_pairs <= BUDGET.gaussian_mu
        )
        assert found.error == pytest.approx(4 * found.noise)


def test_the_error_of_multiplicative_weights_falls_as_the_theorem_says() -> None:
    """``1/sqrt(n)`` with delta, ``1/n^(1/3)`` without, up to logarithms; and in m cells."""
    for budget, power in ((BUDGET, 0.5), (sf.Budget(epsilon=1), 1 / 3)):
        first, second = (multiplicative_weights(10**9, 10**6, n, budget) for n in (1e8, 1e11))
        fall = log(first.error / second.error) / log(1e3)
        assert abs(fall - power) < 0.06
    few, many = (multiplicative_weights(10**9, m, 1e8, BUDGET) for m in (10**3, 10**12))
    assert many.error / few.error == pytest.approx(sqrt(2), rel=0.05)
    with pytest.raises(PlanError, match="finite number above 0"):
        multiplicative_weights(10, 10, float("nan"), BUDGET)
    with pytest.raises(PlanError, match="beta"):
        multiplicative_weights(10, 10, 100, BUDGET, beta=2.0)


def test_rows_needed_by_multiplicative_weights_reach_the_error() -> None:
    n = weights_rows_needed(1000, 10**6, 0.1, BUDGET)
    assert multiplicative_weights(1000, 10**6, n, BUDGET).error <= 0.1
    assert multiplicative_weights(1000, 10**6, 0.98 * n, BUDGET).error > 0.1


def test_multiplicative_weights_keep_their_promise_on_made_up_data() -> None:
    """All errors within the bound in every run; the twin, a bound of an eighth, is broken."""
    work = sf.conjunctions(sf.Domain({f"q{i}": 2 for i in range(6)}), 2)
    n = 10**6
    forecast = sf.forecast_projection(work, BUDGET, n)
    weights = forecast.weights()
    made_up = MadeUp.of(work)
    matrix, worst = made_up.hull.matrix, []
    for run in range(20):
        h = made_up.histogram(n, run)
        draws = made_up.draws("w", run, n)
        answers = simulated_weights(matrix, h, weights, forecast.moved, draws)
        worst.append(np.abs(answers - matrix @ h).max() / n)
    assert weights.updates > 0
    assert max(worst) <= weights.error
    assert max(worst) > weights.error / 8
    assert measure_weights(forecast, made_up, runs=3).rmse <= weights.error * n
