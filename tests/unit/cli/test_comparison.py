# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from math import ceil, inf, log, sqrt
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.cli.compare_command import charts_of
from sfumato.cli.comparison import (
    BETA,
    SHARE,
    WAYS,
    WEIGHTS,
    Comparison,
    Point,
    _over_epsilon,
    compare_mechanisms,
    crossings,
)
from sfumato.cli.spec import Spec, read_spec
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.study.local_model import RandomizedResponse, response_error

K = 62  # 20 ages, 2 sexes, and 40 running totals


_KNOWN: list[Comparison] = []


@pytest.fixture
def found(folder: Path) -> Comparison:
    """The comparison of a frozen spec, made once: all its parts are frozen too.

    The source of the spec does not exist; nothing opens it.
    """
    if not _KNOWN:
        spec = replace(read_spec(folder / "release.toml"), source="no-such-table.csv")
        _KNOWN.append(compare_mechanisms(spec, rows=10_000))
    return _KNOWN[0]


def _bound(found: Comparison, name: str) -> float:
    (counts,) = (b.counts for b in found.bounds if b.name == name)
    assert counts is not None
    return counts


def test_every_mechanism_has_a_line(found: Comparison) -> None:
    assert [e.mechanism for e in found.entries] == list(MECHANISMS)


def test_forecasts_are_those_of_single_plans(folder: Path, found: Comparison) -> None:
    spec = replace(read_spec(folder / "release.toml"), mechanism="laplace")
    (entry,) = (e for e in found.entries if e.mechanism == "laplace")
    assert entry.rmse == spec.plan().rmse


def test_every_mechanism_has_one_bound_that_of_its_plan(folder: Path, found: Comparison) -> None:
    for name in ("laplace", "gaussian-table"):
        plan = replace(read_spec(folder / "release.toml"), mechanism=name).plan()
        (entry,) = (e for e in found.entries if e.mechanism == name)
        assert entry.bound == plan.error_bound(BETA)
        assert entry.rows_needed == ceil(entry.bound / SHARE)
        assert entry.proof == plan.all_within(BETA).proof
        at = {round(p.error * p.at, 9) for p in found.over_rows if p.mechanism == name}
        assert at == {round(entry.bound, 9)}
    assert [b.name for b in found.bounds] == ["local model"]


def _sums(folder: Path, asked: str) -> Spec:
    path = folder / "sums.toml"
    first, _, rest = (folder / "release.toml").read_text().partition("[[workload]]")
    path.write_text(f'{first}[[workload]]\nsql = "{asked}"\n{rest[rest.index("[budget]") :]}')
    return read_spec(path)


def test_sums_beside_counts_are_compared_by_their_weights(folder: Path) -> None:
    """As the planner does; years would else drown all counts."""
    spec = _sums(folder, "SELECT sex, SUM(age), COUNT(*) FROM data GROUP BY sex")
    assert not spec.workload.has_one_weight
    plan, found = spec.plan(), compare_mechanisms(spec, rows=None)
    entries = [e for e in found.entries if e.rmse is not None]
    best = min(entries, key=lambda e: e.rmse or inf)
    assert best.mechanism == plan.mechanism
    assert best.rmse == pytest.approx(plan.weighted_rmse)
    assert plan.weighted_rmse < 0.5 * plan.rmse
    assert found.least is not None
    assert found.least * (1 - 1e-9) <= min(
        e.rmse or inf for e in entries if MECHANISMS[e.mechanism].noise != "laplace"
    )
    for e in entries:  # the same draws on every run: beyond 5 with probability 1e-5
        assert e.simulated is not None
        assert e.simulated_error is not None
        assert abs(e.simulated - (e.rmse or 0.0)) < 5 * e.simulated_error


def test_no_bound_is_below_the_forecast_of_its_mechanism(folder: Path) -> None:
    """Sums have coefficients far above 1, which all bounds must follow."""
    found = compare_mechanisms(
        _sums(folder, "SELECT sex, SUM(age) FROM data GROUP BY sex"), rows=None
    )
    entries = [e for e in found.entries if e.rmse is not None]
    assert len(entries) > 3
    assert all((e.bound or 0.0) > (e.largest or inf) for e in entries)


def test_neighbours_scale_the_bounds(folder: Path, found: Comparison) -> None:
    spec = read_spec(folder / "release.toml")
    for name, factor in (("laplace", 2), ("gaussian", sqrt(2))):
        replaced = replace(spec, neighbours="replace-one", mechanism=name).plan()
        (entry,) = (e for e in found.entries if e.mechanism == name)
        ratio = replaced.error_bound(BETA) / (entry.bound or inf)
        assert 0.9 * factor < ratio < 1.05 * factor  # one of them may be simulated


def test_the_local_model_is_bounded_for_the_given_records(found: Comparison) -> None:
    response = RandomizedResponse(1, 40)
    assert _bound(found, "local model") == response_error(response, 10_000, K, BETA)


def test_the_local_model_says_why_it_is_left_out(folder: Path) -> None:
    found = compare_mechanisms(read_spec(folder / "release.toml"), rows=None)
    (local,) = (b for b in found.bounds if b.name == "local model")
    assert local.counts is None
    assert "--rows" in local.note
    assert found.over_rows == ()
    assert found.tried is None


def test_curves_pass_through_the_plan_of_that_budget(folder: Path, found: Comparison) -> None:
    """A whole curve follows from one plan per mechanism.

    Gaussian errors go with the privacy loss, those of Laplace noise with their law on the grid.
    """
    spec = read_spec(folder / "release.toml")
    checked = ("laplace", "laplace-table", "gaussian-tree")
    for point in (p for p in found.over_epsilon if p.mechanism in checked):
        if 0.2 < point.at < 0.4 or point.at > 7:
            budget = Budget(epsilon=point.at, delta="1e-9")
            plan = replace(spec, mechanism=point.mechanism, budget=budget).plan()
            assert point.error == pytest.approx(plan.rmse, rel=1e-4)  # the grid of the scale


def test_shares_fall_as_one_over_n_but_in_the_local_model_as_one_over_root_n(
    found: Comparison,
) -> None:
    for name, power in (("laplace", 1.0), ("local model", 0.5)):
        line = [p for p in found.over_rows if p.mechanism == name]
        first, last = line[0], line[-1]
        slope = log(first.error / last.error) / log(last.at / first.at)
        assert slope == pytest.approx(power, abs=1e-3)


def test_a_budget_without_epsilon_has_no_curve_over_epsilon(folder: Path) -> None:
    spec = replace(read_spec(folder / "release.toml"), budget=Budget(rho="0.1"))
    found = compare_mechanisms(spec, rows=None)
    assert found.over_epsilon == ()
    assert "error-over-epsilon" not in charts_of(found)


def test_the_least_possible_error_stands_beside_the_forecasts(found: Comparison) -> None:
    gaussian = [
        e.rmse for e in found.entries if e.rmse and MECHANISMS[e.mechanism].noise != "laplace"
    ]
    assert found.least is not None
    assert 0.5 * min(gaussian) < found.least <= min(gaussian) * (1 + 1e-9)
    layers = charts_of(found)["forecasts"].to_dict()["layer"]
    assert any(layer["mark"]["type"] == "rule" for layer in layers)


def test_projection_is_set_against_records_and_queries(found: Comparison) -> None:
    """Exact forecasts fall as 1/n; the bound on projection as 1/sqrt(n) first, and never above."""
    known = found.scaling
    assert known is not None
    lines = {m: [p for p in known.over_rows if p.mechanism == m] for m in WAYS}
    theory = {m: [p for p in line if not p.is_measured] for m, line in lines.items()}
    for gauss, hull in zip(theory["gaussian"], theory["projection"], strict=True):
        assert gauss.at == hull.at
        assert hull.error <= gauss.error * (1 + 1e-9)
        assert gauss.error * gauss.at == pytest.approx(known.noise, rel=1e-3)
    first, last = theory["projection"][0], theory["projection"][-1]
    assert last.error < first.error
    greatest = max(p.at for p in known.over_queries)
    assert greatest == found.queries
    from_on = inf if known.weights_crossover is None else known.weights_crossover
    bound = {p.at: p.error for p in theory["projection"]}
    assert theory[WEIGHTS]
    for weights in theory[WEIGHTS]:  # the lines cross where the summary says
        if not 0.99 < weights.at / from_on < 1.01:
            assert (weights.error < bound[weights.at] * (1 - 1e-9)) == (weights.at > from_on)


def test_made_up_data_keep_to_the_theory(found: Comparison) -> None:
    """Few runs of many queries: within a third of forecasts, and hardly above bounds."""
    known = found.scaling
    assert known is not None
    measured = [p for p in known.over_rows if p.is_measured]
    assert {p.mechanism for p in measured} >= {"gaussian", "factorization", "projection"}
    for point in measured:
        line = [p for p in known.over_rows if p.mechanism == point.mechanism and not p.is_measured]
        near = min(line, key=lambda p: abs(log(p.at / point.at)))
        theory = near.error
        assert abs(log(near.at / point.at)) < 0.05
        assert point.error < 1.4 * theory
        if point.mechanism in ("gaussian", "factorization"):
            assert point.error > theory / 1.6


def test_curves_against_records_touch_no_table(found: Comparison) -> None:
    assert found.scaling is not None


def test_a_pure_budget_has_no_projection(folder: Path) -> None:
    spec = replace(read_spec(folder / "release.toml"), budget=Budget(epsilon=1))
    assert compare_mechanisms(spec, rows=100).scaling is None


def test_drawn_errors_agree_with_forecasts(found: Comparison) -> None:
    """Within five standard errors; a forecast a third too low would be noticed."""
    noticed = 0
    for e in found.entries:
        if e.rmse is not None:
            assert e.simulated is not None
            assert e.simulated_error is not None
            assert abs(e.simulated - e.rmse) < 5 * e.simulated_error
            noticed += abs(e.simulated - e.rmse / 1.5) > 5 * e.simulated_error
    assert noticed >= 10


def test_the_best_mechanism_changes_where_two_lines_meet() -> None:
    """Laplace noise falls as 1/epsilon, Gaussian noise more slowly: twelve running totals."""
    work = sf.prefixes(sf.Domain({"age": 12}), "age")
    budget = Budget(epsilon=1, delta="1e-6")
    plans = {m: sf.plan(work, budget, mechanism=m) for m in ("laplace", "gaussian")}
    (change,) = crossings(_over_epsilon(plans, budget))
    assert (change.before, change.after) == ("gaussian", "laplace")
    there = Budget(epsilon=change.at, delta="1e-6")
    for name in plans:
        exact = sf.plan(work, there, mechanism=name).rmse
        assert change.error == pytest.approx(exact, rel=0.01)  # straight between two points


def test_drawn_errors_lie_on_the_lines_over_epsilon(found: Comparison) -> None:
    assert len({p.at for p in found.simulated_over_epsilon}) == 5
    for point in found.simulated_over_epsilon:
        line = [p for p in found.over_epsilon if p.mechanism == point.mechanism]
        near = min(line, key=lambda p: abs(log(p.at / point.at)))
        assert near.at == pytest.approx(point.at)
        assert near.error / 1.5 < point.error < 1.5 * near.error


def test_ways_that_depend_on_the_records_are_tried_where_their_number_is_given(
    found: Comparison,
) -> None:
    assert found.tried is not None
    names = [o.name for o in found.tried.options]
    assert {"plan, unbiased", "plan, projected", "adaptive"} <= set(names)
    assert found.tried.records == 10_000


XS = [0.1 * 10 ** (i / 5) for i in range(11)]  # 0.1 to 10


def test_two_lines_cross_where_they_are_equal() -> None:
    points = [Point("flat", x, 2.0) for x in XS] + [Point("falling", x, 3 / x) for x in XS]
    (found,) = crossings(points)
    assert (found.before, found.after) == ("flat", "falling")
    assert found.at == pytest.approx(1.5)
    assert found.error == pytest.approx(2.0)


def test_only_changes_of_the_best_count() -> None:
    """The two worse lines cross as well."""
    points = [Point("best", x, 0.1) for x in XS]
    points += [Point("flat", x, 2.0) for x in XS] + [Point("falling", x, 3 / x) for x in XS]
    assert crossings(points) == ()


def test_a_third_line_between_two_points_is_found() -> None:
    points = [Point("a", x, x) for x in (1.0, 100.0)] + [Point("b", x, 10.0) for x in (1.0, 100.0)]
    points += [Point("c", 1.0, 30.0), Point("c", 100.0, 1.0)]
    found = crossings(points)
    assert [(c.before, c.after) for c in found] == [("a", "c")]
    # ln x = ln 30 - ln x ln 30 / ln 100
    assert found[0].at == pytest.approx(30 ** (1 / (1 + 0.7385606)), rel=1e-3)


def test_lines_that_run_together_do_not_cross() -> None:
    points = [Point("a", x, 1 / x) for x in XS]
    points += [Point("b", x, (1 + 1e-9 * (-1) ** i) / x) for i, x in enumerate(XS)]
    assert crossings(points) == ()


def test_a_line_that_begins_later_is_waited_for() -> None:
    points = [Point("a", x, 5.0) for x in XS] + [Point("b", x, 1 / x) for x in XS[4:]]
    assert crossings(points)[0].after == "b"
    assert crossings([]) == ()
