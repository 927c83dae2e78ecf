"""Average error to largest error: the minimax projection, and boosting over queries."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.refine import cells
from sfumato.refine.learn import Boosted, synopsis
from sfumato.refine.refine_limits import LIMITS
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
RNG = np.random.default_rng(7)
RECORDS = RNG.multinomial(60, RNG.dirichlet(np.full(24, 0.3))).astype(float)

WORKS = {
    "tables": lambda: sf.marginals(DOMAIN, 2),
    "whole": lambda: sf.marginals(DOMAIN, 3),
    "running": lambda: sf.prefixes(DOMAIN, "b"),
    "ranges": lambda: sf.ranges(DOMAIN, "b", by=["c"]),
    "signed": lambda: (
        sf.product(DOMAIN, {"a": np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]])})
        | sf.marginals(DOMAIN, 0)
    ),
    "conditions": lambda: sf.predicates(DOMAIN, ["a = 1 and b in (0, 2)", "not c = 1 or b = 3"]),
}


def noisy(name: str, scale: float, seed: int = 0) -> tuple[sf.Workload, np.ndarray, np.ndarray]:
    work = WORKS[name]()
    F = dense_workload(work)
    rng = np.random.default_rng(seed)
    return work, F, F @ RECORDS + scale * rng.standard_normal(len(F))


def least_largest(F: np.ndarray, y: np.ndarray, s: np.ndarray, n: float | None) -> float:
    """The same least value, as a linear program."""
    h = cp.Variable(F.shape[1], nonneg=True)
    limits = [] if n is None else [cp.sum(h) == n]
    program = cp.Problem(cp.Minimize(cp.norm_inf(cp.multiply(s, F @ h - y))), limits)
    return float(program.solve(solver=cp.CLARABEL))


def check_between(found: object, least: float, size: float) -> None:
    """The value is above the least one by no more than was certified, and wanted."""
    slack = 1e-6 * size
    assert found.converged
    assert least - slack <= found.value <= 1.01 * (least + 1e-4 * size) + slack
    assert found.value - found.gap <= least + slack


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("n", [60.0, None])
def test_the_largest_difference_is_least_as_a_linear_program_finds(
    name: str, n: float | None
) -> None:
    for scale in (0.5, 20.0):
        work, F, y = noisy(name, scale)
        s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
        found = sf.project(y, work, n, s**2, objective="max")
        check_between(found, least_largest(F, y, s, n), float(np.abs(s * y).max()))
        assert found.value == pytest.approx(np.abs(s * (found.answers - y)).max(), rel=1e-9)


def test_the_answers_are_those_of_the_weighted_cells() -> None:
    work, F, y = noisy("tables", 5.0)
    found = sf.project(y, work, 60, objective="max")
    h = np.zeros(DOMAIN.shape)
    np.add.at(h, tuple(found.cells.T), found.weights)
    assert h.min() >= 0
    assert h.sum() == pytest.approx(60)
    assert found.answers == pytest.approx(F @ h.ravel(), abs=1e-9)
    assert "boosting" in repr(found)


def test_a_noisy_count_is_one_more_answer() -> None:
    work, F, y = noisy("tables", 5.0)
    found = sf.project(y, work, (55.0, 0.5), objective="max")
    wide, s = np.vstack([F, np.ones(24)]), np.append(np.ones(len(y)), 2.0)
    check_between(found, least_largest(wide, np.append(y, 55.0), s, None), np.abs(y).max())


def test_a_covariance_measures_every_difference_in_its_standard_deviation() -> None:
    work, F, y = noisy("tables", 5.0)
    mixing = np.random.default_rng(2).standard_normal((len(y), len(y)))
    covariance = mixing @ mixing.T + np.eye(len(y))
    found = sf.project(y, work, 60, covariance, objective="max")
    s = np.diag(covariance) ** -0.5
    check_between(found, least_largest(F, y, s, 60), float(np.abs(s * y).max()))


def test_answers_that_a_data_set_has_stay_where_they_are() -> None:
    work = WORKS["tables"]()
    exact = dense_workload(work) @ RECORDS
    found = sf.project(exact, work, 60, objective="max")
    assert found.value <= 2e-4 * exact.max()
    assert sf.project(exact, work, 0, objective="max").value == exact.max()


def test_queries_without_weight_do_not_count() -> None:
    work, F, y = noisy("tables", 5.0)
    s = np.ones(len(y))
    s[::3] = 0
    found = sf.project(y, work, 60, s, objective="max")
    check_between(found, least_largest(F, y, s, 60), np.abs(y).max())


def test_no_histogram_is_below_the_bound_of_any_distribution_over_queries() -> None:
    """Both bounds of the module, for distributions and histograms that are far from the best."""
    work, F, y = noisy("tables", 8.0)
    rng = np.random.default_rng(3)
    least = least_largest(F, y, np.ones(len(y)), 60)
    free = least_largest(F, y, np.ones(len(y)), None)
    reached = 0.0
    for _ in range(20):
        w = rng.dirichlet(np.full(len(y), 0.3))
        fitted = sf.project(y, work, 60, w, gap=10 ** rng.uniform(-6, 0))
        r = np.abs(fitted.answers - y)
        slopes = F.T @ (w * (fitted.answers - y))
        h = np.linalg.lstsq(F, fitted.answers, rcond=None)[0]
        gap = slopes @ h - 60 * slopes.min()
        bound = (w @ r**2 - gap) / (w @ r)
        assert bound <= least * (1 + 1e-6)
        reached = max(reached, bound / least)
        loose = sf.project(y, work, None, w, gap=1e-4)
        bound = max(0.0, w @ (loose.answers - y) ** 2 - 2 * loose.gap) ** 0.5
        assert bound <= free * (1 + 1e-6)
        # The twin: without the gap, or with the mean square alone, nothing is certified.
    assert reached > 0.5
    w = np.full(len(y), 1 / len(y))
    far = F @ np.eye(24)[0] * 60 - y
    assert (w @ far**2) / (w @ np.abs(far)) > least


def test_the_lower_bound_rises_with_the_weights_of_lawson() -> None:
    """Weights times differences: the weighted projection never gets smaller; inverse ones do."""

    def bounds(power: float) -> list[float]:
        work, _, y = noisy("tables", 8.0)
        w, out = np.full(len(y), 1 / len(y)), []
        for _ in range(6):
            found = sf.project(y, work, 60, w * len(y), gap=1e-7)
            out.append(float(w @ (found.answers - y) ** 2))
            w = w * np.abs(found.answers - y) ** power
            w /= w.sum()
        return out

    rising = np.array(bounds(1.0))
    assert (np.diff(rising) >= -1e-6 * rising[0]).all()
    assert rising[-1] > 1.5 * rising[0]
    assert (np.diff(bounds(-1.0)) < 0).any()


def test_the_largest_error_is_at_most_twice_that_of_the_noise() -> None:
    work, F, y = noisy("tables", 30.0)
    found = sf.project(y, work, 60, objective="max")
    noise = np.abs(y - F @ RECORDS).max()
    assert np.abs(found.answers - F @ RECORDS).max() <= 2 * noise + found.gap
    assert found.distance_bound == 2 * found.value


def test_rounded_answers_come_back_within_their_rounding() -> None:
    """Errors of at most 5: the objective keeps to it, least squares does not."""
    work = WORKS["ranges"]()
    exact = dense_workload(work) @ RECORDS
    rounded = 10 * np.round(exact / 10)
    assert np.abs(sf.project(rounded, work, 60, objective="max").answers - rounded).max() <= 5.06
    worst = np.abs(sf.project(rounded, work, 60).answers - rounded).max()
    assert worst > sf.project(rounded, work, 60, objective="max").value


def test_without_reweighting_the_bounds_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    work, _, y = noisy("tables", 20.0)
    assert sf.project(y, work, 60, objective="max").converged
    monkeypatch.setattr(cells, "LIMITS", replace(LIMITS, minimax_step=0.0))
    assert not sf.project(y, work, 60, objective="max").converged


def test_what_has_no_largest_difference_is_refused() -> None:
    work, _, y = noisy("tables", 1.0)
    with pytest.raises(WorkloadError, match='the objective is "rmse" or "max"'):
        sf.project(y, work, 60, objective="mean")
    with pytest.raises(WorkloadError, match="all weights are 0"):
        sf.project(y, work, 60, np.zeros(len(y)), objective="max")
    holed = np.eye(len(y))
    holed[0, 0] = 0
    with pytest.raises(WorkloadError, match="variance of 0"):
        sf.project(y, work, 60, holed, objective="max")
    wide = sf.marginals(sf.Domain({f"a{i}": 2 for i in range(30)}), 1)
    with pytest.raises(TooLarge, match='objective "max" lists them'):
        sf.project(np.ones(60), wide, 1, objective="max")


def test_a_synopsis_is_the_most_even_histogram_that_explains_its_queries() -> None:
    """Against the primal program, with entropies."""
    work = WORKS["tables"]()
    F = dense_workload(work)
    known = [0, 5, 13, 20]
    y, variances = (F @ RECORDS)[known] + 3.0, np.array([4.0, 9.0, 1.0, 25.0])
    found = synopsis(work, known, y, variances, 60.0).ravel()
    h = cp.Variable(24, nonneg=True)
    uneven = LIMITS.evenness_weight * cp.sum(cp.rel_entr(h, np.full(24, 60 / 24)))
    missed = cp.sum(cp.multiply(1 / (2 * variances), cp.square(F[known] @ h - y)))
    cp.Problem(cp.Minimize(uneven + missed), [cp.sum(h) == 60]).solve(solver=cp.CLARABEL)
    assert found.sum() == pytest.approx(60)
    assert found == pytest.approx(h.value, abs=2e-3)


def test_medians_are_right_wherever_most_synopses_are() -> None:
    work = WORKS["tables"]()
    exact = dense_workload(work) @ RECORDS
    boosted = Boosted(work, 60.0)
    everything = list(range(work.queries))
    votes = [boosted.learn([0], exact[:1], 1e-2)]
    votes += [boosted.learn(everything, exact, 1e-4) for _ in range(2)]
    assert boosted.medians == pytest.approx(np.median(votes, axis=0))
    assert np.abs(boosted.medians - exact).max() < 0.1 < np.abs(votes[0] - exact).max()
    away = np.abs(dense_workload(work) @ boosted.histogram.ravel() - exact).max()
    assert away <= 2.1 * np.abs(boosted.medians - exact).max() + 1e-3 * exact.max()
    assert boosted.table(("a", "c")).shape == (3, 2)


def test_a_query_that_comes_again_is_averaged_by_its_precision() -> None:
    work = WORKS["tables"]()
    once, twice = Boosted(work, 60.0), Boosted(work, 60.0)
    expected = once.learn([3], np.array([(10 / 1 + 20 / 4) / (1 + 1 / 4)]), 0.8)
    twice.learn([3], np.array([10.0]), 1.0)
    assert twice.learn([3], np.array([20.0]), 4.0) == pytest.approx(expected, abs=1e-5)


def test_synopses_of_nothing_or_too_much_are_refused() -> None:
    work = WORKS["tables"]()
    with pytest.raises(PlanError, match="some different queries"):
        synopsis(work, [1, 1], np.ones(2), np.ones(2), 1.0)
    with pytest.raises(PlanError, match="no median"):
        _ = Boosted(work, 1.0).medians
    wide = sf.marginals(sf.Domain({f"a{i}": 2 for i in range(30)}), 1)
    with pytest.raises(TooLarge, match="boosting holds all"):
        Boosted(wide, 1.0)
