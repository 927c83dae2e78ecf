"""The planner: what it considers, what it picks, what it refuses."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from math import asinh, sqrt
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.planning import planner
from sfumato.planning.forecast import Candidate, Candidates
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import Strategies, choose, smallest_budget
from sfumato.solve import effort
from sfumato.strategy.pieces import sum_of_bounds
from sfumato.study.error_bounds import (
    gaussian_error,
    gaussian_rows_needed,
    laplace_error,
    laplace_rows_needed,
    table_error,
    table_rows_needed,
)
from sfumato.types import Objective

DOMAIN = sf.Domain({"age": 64, "sex": 2})
APPROXIMATE = sf.Budget(epsilon=1, delta=1e-9)


def test_every_mechanism_is_listed_with_a_forecast_or_a_reason() -> None:
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    assert len({c.mechanism for c in plan.candidates}) == len(plan.candidates)
    assert [c.mechanism for c in plan.candidates if c.is_chosen] == [plan.mechanism]
    for candidate in plan.candidates:
        assert (candidate.rmse is None) == bool(candidate.note)


def test_the_chosen_mechanism_has_the_least_forecast_error() -> None:
    for objective in ("rmse", "max"):
        work = sf.prefixes(DOMAIN, "age", by=["sex"]) | sf.marginals(DOMAIN, 2)
        plan = sf.plan(work, APPROXIMATE, objective=objective)
        of = "rmse" if objective == "rmse" else "largest"
        values = [getattr(c, of) for c in plan.candidates if c.rmse is not None]
        chosen = next(c for c in plan.candidates if c.is_chosen)
        assert getattr(chosen, of) == min(values)


@pytest.mark.parametrize(
    ("work", "algorithm"),
    [
        (sf.marginals(DOMAIN, 1), "marginals"),
        (sf.prefixes(DOMAIN, "age"), "orbits"),
        (sf.product(sf.Domain({"x": 9, "y": 8}), {"x": "ranges", "y": "prefix"}), "factorwise"),
        (sf.prefixes(sf.Domain({"x": 600}), "x"), "ordered"),
        (sf.windows(sf.Domain({"x": 4000}), "x", 30), "windows"),
        (sf.predicates(DOMAIN, ["age < 20 or sex = 1"]), "matrix"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_candidates_name_the_way_that_a_mechanism_took(work: sf.Workload, algorithm: str) -> None:
    plan = sf.plan(work, APPROXIMATE, mechanism="factorization")
    (candidate,) = plan.candidates
    assert (candidate.mechanism, candidate.algorithm) == (plan.mechanism, algorithm)
    assert candidate.name == f"factorization ({algorithm})"
    plain = sf.plan(work, APPROXIMATE, mechanism="gaussian")
    assert [c.name for c in plain.candidates] == ["gaussian"]


def test_a_mechanism_can_be_asked_for_by_name() -> None:
    work = sf.prefixes(DOMAIN, "age")
    assert sf.plan(work, APPROXIMATE, mechanism="gaussian").mechanism == "gaussian"
    assert sf.plan(work, APPROXIMATE, mechanism="tree").mechanism.endswith("-tree")
    with pytest.raises(PlanError, match="unknown mechanism 'magic'; allowed are"):
        sf.plan(work, APPROXIMATE, mechanism="magic")
    with pytest.raises(PlanError, match="needs delta > 0"):
        sf.plan(work, sf.Budget(epsilon=1), mechanism="gaussian")


def test_laplace_on_the_queries_has_the_error_of_the_notes() -> None:
    """Variance 2 (k / epsilon)^2 for k queries that one record can all move by 1."""
    work = sf.product(DOMAIN, {"age": "prefix"})
    plan = sf.plan(work, sf.Budget(epsilon=0.5), mechanism="laplace")
    assert plan.rmse == pytest.approx(np.sqrt(2) * 64 / 0.5, rel=1e-4)
    # 64 independent draws: below Theorem 3.8, ln(k / beta) Delta / epsilon
    exact = -np.log(-np.expm1(np.log1p(-0.05) / 64)) * 64 / 0.5
    assert plan.error_bound(0.05) == pytest.approx(exact, abs=1)  # whole steps
    assert plan.error_bound(0.05) < laplace_error(64, 1, 0.5, 0.05, 64)


def test_gaussian_on_the_queries_has_the_error_of_the_notes() -> None:
    work = sf.product(DOMAIN, {"age": "prefix"})
    plan = sf.plan(work, sf.Budget(mu=0.5), mechanism="gaussian")
    assert plan.rmse == pytest.approx(np.sqrt(64) / 0.5, rel=1e-4)
    assert plan.gamma == pytest.approx(np.sqrt(64), rel=1e-6)


def test_error_at_unit_noise_does_not_depend_on_the_budget() -> None:
    work = sf.prefixes(DOMAIN, "age")
    a = sf.plan(work, sf.Budget(mu=0.1), mechanism="gaussian-tree")
    b = sf.plan(work, sf.Budget(mu=3), mechanism="gaussian-tree")
    assert a.gamma == pytest.approx(b.gamma)
    assert a.rmse * 0.1 == pytest.approx(a.gamma, rel=1e-4)


def test_the_binary_tree_beats_the_table_and_the_queries_on_long_prefixes() -> None:
    domain = sf.Domain({"t": 4096})
    rmse = {
        m: sf.plan(sf.prefixes(domain, "t"), APPROXIMATE, mechanism=m).rmse
        for m in ("gaussian", "gaussian-table", "gaussian-tree")
    }
    assert rmse["gaussian-tree"] < rmse["gaussian-table"] / 3
    assert rmse["gaussian-tree"] < rmse["gaussian"] / 3


@pytest.mark.parametrize("error", [50, 2.5])
@pytest.mark.parametrize("mechanism", [None, "gaussian", "laplace"])
def test_the_smallest_budget_for_an_error_reaches_it_and_no_less_would(
    error: float, mechanism: str | None
) -> None:
    work = sf.marginals(DOMAIN, 2)
    plan = sf.plan(work, error=error, mechanism=mechanism)
    assert plan.rmse <= error
    assert plan.budget.epsilon is not None
    less = sf.Budget(epsilon=plan.budget.epsilon * 99 / 100, delta=plan.budget.delta)
    assert sf.plan(work, less, mechanism=mechanism).rmse > error


def test_weights_move_the_noise_to_what_matters_more() -> None:
    a, b = sf.marginals(DOMAIN, [("age",)]), sf.marginals(DOMAIN, [("sex",)])
    even = sf.plan(a | b, APPROXIMATE, mechanism="groups")
    tilted = sf.plan(a | 10 * b, APPROXIMATE, mechanism="groups")
    assert tilted.groups[1].rmse < even.groups[1].rmse
    assert tilted.groups[0].rmse > even.groups[0].rmse


def test_a_domain_of_10_to_the_18_cells_plans_without_building_it() -> None:
    domain = sf.Domain({f"a{i}": 1000 for i in range(6)})
    plan = sf.plan(sf.marginals(domain, 1), APPROXIMATE)
    assert domain.size == 10**18
    assert plan.rmse > 0
    tables = {c.mechanism: c.note for c in plan.candidates if c.mechanism.endswith("-table")}
    assert all("cells" in note for note in tables.values())


def test_what_cannot_fit_memory_is_refused_with_its_size_and_a_way_out() -> None:
    domain = sf.Domain({f"a{i}": 1000 for i in range(6)})
    with pytest.raises(
        PlanError, match=r"need at least .* measured values .*GiB.*fewer or coarser"
    ):
        sf.plan(sf.marginals(domain, 4), APPROXIMATE)
    with pytest.raises(TooLarge, match="cannot be evaluated"):
        sf.marginals(domain, 1).evaluate(np.zeros(1))


def test_planning_ends_when_the_best_is_certified_or_time_is_up() -> None:
    work = sf.prefixes(sf.Domain({"t": 200}), "t")
    plan = sf.plan(work, sf.Budget(mu=1))
    notes = {c.mechanism: c.note for c in plan.candidates}
    assert next(iter(notes)) == "factorization"
    plain = ("laplace", "gaussian")  # which people compare with
    assert all(notes[n] for n in list(notes)[1:] if n not in plain)
    assert plan.certificate is not None
    assert plan.certificate < 1.001
    assert not plan.stopped_early
    hurried = sf.plan(work, APPROXIMATE, seconds=1e-9)
    assert hurried.candidates[0].rmse is not None
    assert "not tried: the time for planning is up" in {c.note for c in hurried.candidates}
    assert hurried.stopped_early
    assert "stopped early" in hurried.headline
    assert "stopped early" in repr(hurried)
    with pytest.raises(PlanError, match="seconds must be a number above 0, got -1"):
        sf.plan(work, APPROXIMATE, seconds=-1)


def test_laplace_is_left_out_only_where_it_cannot_win() -> None:
    """The bound on all Laplace mechanisms is below what each of them reaches."""
    work = sf.prefixes(DOMAIN, "age")
    budget = sf.Budget(epsilon=1, delta=1e-3)
    found = choose(work, budget, "add-remove")
    epsilon = float(budget.epsilon or 0)
    assert found.bound is not None
    least = np.sqrt(2 * found.bound / work.queries) / epsilon
    names = [m for m, kind in MECHANISMS.items() if kind.noise == "laplace"]
    for name in names:
        try:
            alone = choose(work, budget, "add-remove", mechanism=name)
        except PlanError:
            continue
        assert alone.rmse >= least
        assert alone.rmse >= found.rmse * (1 - 1e-9)


def test_the_progress_says_how_far_a_search_has_come() -> None:
    heard: list[str] = []
    sf.plan(
        sf.prefixes(DOMAIN, "age"), APPROXIMATE, progress=lambda _i, _n, what: heard.append(what)
    )
    assert heard[0] == "factorization"
    assert any(h.startswith("factorization within") for h in heard)


def test_a_bias_is_considered_only_when_it_is_allowed() -> None:
    work = sf.prefixes(sf.Domain({"t": 24}), "t")
    budget = sf.Budget(epsilon=1, delta=1e-6)
    plain = sf.plan(work, budget)
    assert "approximate" not in {c.mechanism for c in plain.candidates}
    few = sf.plan(work, budget, allow_bias=True, records=5)
    assert few.mechanism == "approximate"
    assert few.rmse < plain.rmse
    assert few.groups[0].bias > 0
    assert few.certificate is None
    many = sf.plan(work, sf.Budget(mu=1), allow_bias=True, records=10**6, mechanism="approximate")
    best = sf.plan(work, sf.Budget(mu=1), mechanism="factorization")
    assert many.rmse == pytest.approx(best.rmse, rel=1e-2)
    for wrong in (None, 0, 2.5, True):
        with pytest.raises(PlanError, match="say records = a whole number above 0"):
            sf.plan(work, budget, allow_bias=True, records=wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="say allow_bias = true"):
        sf.plan(work, budget, mechanism="approximate")
    with pytest.raises(PlanError, match="approximate answers need a budget"):
        sf.plan(work, error=3, mechanism="approximate", allow_bias=True, records=5)
    assert sf.plan(work, error=3, allow_bias=True, records=5).rmse <= 3


def test_an_equal_plan_is_remembered_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    monkeypatch.setattr(effort, "LIMITS", replace(effort.LIMITS, stored_search_minimum=0.0))
    work = sf.prefixes(sf.Domain({"t": 200}), "t")
    budget = sf.Budget(mu=1)
    searched: list[str] = []
    first = sf.plan(work, budget, progress=lambda _i, _n, what: searched.append(what))
    assert list((tmp_path / "plans").glob("*.npz"))
    again: list[str] = []
    second = sf.plan(work, budget, progress=lambda _i, _n, what: again.append(what))
    assert any(" within " in s for s in searched)
    assert not any(" within " in s for s in again)  # found, not searched for
    assert second.digest() == first.digest()
    assert second.certificate == first.certificate
    before = sorted(f.name for f in (tmp_path / "plans").iterdir())
    sf.plan(sf.prefixes(sf.Domain({"t": 201}), "t"), APPROXIMATE, cache=False)
    assert sorted(f.name for f in (tmp_path / "plans").iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": None}, "either a budget or an error"),
        ({"budget": APPROXIMATE, "error": 3}, "either a budget or an error"),
        ({"budget": None, "error": -1}, "error must be a number of counts above 0"),
        ({"budget": 1.0}, "budget must be sf.Budget"),
        ({"budget": APPROXIMATE, "objective": "mean"}, "objective must be 'rmse' or 'max'"),
    ],
)
def test_bad_arguments_get_one_clear_message(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sf.plan(sf.marginals(DOMAIN, 1), **arguments)  # type: ignore[arg-type]


def test_rows_needed_invert_the_error_bounds() -> None:
    n = laplace_rows_needed(100, 0.01, 1, 0.05, 100)
    assert laplace_error(100, n, 1, 0.05, 100) <= 0.01 < laplace_error(100, n - 1, 1, 0.05, 100)
    n = gaussian_rows_needed(100, 0.01, 0.5, 0.05, 10)
    assert gaussian_error(100, n, 0.5, 0.05, 10) <= 0.01 < gaussian_error(100, n - 1, 0.5, 0.05, 10)
    n = table_rows_needed(100, 4096, 0.01, 1, 0.05)
    assert table_error(100, 4096, n, 1, 0.05) <= 0.01 < table_error(100, 4096, n - 1, 1, 0.05)
    assert table_error(100, 4096, 10, 1, 0.05, 7500) == 7500 * table_error(100, 4096, 10, 1, 0.05)
    # by hand: ln(100 / 0.05) * 100 / (1 * 0.01) = 76,009.02
    assert laplace_rows_needed(100, 0.01, 1, 0.05, 100) == 76010
    with pytest.raises(PlanError, match="beta must be between 0 and 1"):
        laplace_error(100, 10, 1, 1.5, 1)


def test_a_plan_without_an_optimum_still_states_how_far_it_is_from_one() -> None:
    """A tree on 100,000 cells: the certificate is that of the certified optimum of prefixes."""
    domain = sf.Domain({"t": 100_000})
    plan = sf.plan(sf.prefixes(domain, "t"), sf.Budget(mu=0.1), mechanism="gaussian-tree")
    assert plan.certificate is not None
    assert 1.0 < plan.certificate < 1.4


def test_bounds_of_single_attributes_are_below_every_plan() -> None:
    for kind in ("identity", "total", "prefix", "ranges", "windows(5)"):
        plan = sf.plan(sf.product(DOMAIN, {"age": kind}), sf.Budget(mu=1))
        bound = sum_of_bounds(plan.workload)
        assert 0 < bound <= plan.strategy.weighted_error() * (1 + 1e-9)


def test_a_mechanism_that_cannot_be_drawn_is_a_reason_not_an_end() -> None:
    """Coefficients of 20 bits and Laplace noise of millions: no grid for it, Gaussian is left."""
    work = sf.explicit(DOMAIN, ["sex"], [[0.3, 1000.7]])
    plan = sf.plan(work, sf.Budget(epsilon=0.0005, delta=1e-6), mechanism=None)
    notes = {c.mechanism: c.note for c in plan.candidates}
    assert "too fine for Laplace" in notes["laplace"]
    assert plan.rmse > 0


def test_an_error_that_delta_alone_would_reach_has_a_smallest_budget() -> None:
    """Gaussian noise of 10^12 is (0, 1e-9)-private: no epsilon of 0 is asked for."""
    for mechanism in (None, "factorization"):
        plan = sf.plan(sf.marginals(DOMAIN, 1), error=1e12, mechanism=mechanism)
        assert 0 < plan.budget.epsilon <= 1e-9
        assert plan.rmse <= 1e12


def test_a_mechanism_that_wins_by_its_weights_does_not_make_the_search_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan is chosen by the weighted error, the budget by the plain one."""
    tried = []

    def counted(*given: object, **options: object) -> object:
        tried.append(given)
        found = choose(*given, **options)  # type: ignore[arg-type]
        if options.get("noise_only") is None:  # as if another mechanism with twice the error won
            return replace(found, noise=tuple(replace(n, units=2 * n.units) for n in found.noise))
        return found

    monkeypatch.setattr(sys.modules[smallest_budget.__module__], "choose", counted)
    known = Strategies(sf.marginals(DOMAIN, 1))
    budget = smallest_budget(known, 3.0, "add-remove", "laplace", 1e-9, None)
    assert len(tried) < 12
    # Two tables on the integers: b = 2 / epsilon has variance 1 / (2 sinh^2(epsilon / 4)), which is
    # 3^2 at epsilon = 4 asinh(1 / sqrt(18)); the error of twice the scale at this epsilon is above
    # 3 by no more than a factor of 2, and so is the next epsilon tried.
    once = 4 * asinh(1 / sqrt(18))
    assert 2 * once * (1 - 1e-3) <= budget.epsilon <= 2 * once * 1.05


def test_queries_that_are_all_zero_are_refused_before_anything_is_built() -> None:
    work = sf.explicit(DOMAIN, ["sex"], [[0, 0]])
    with pytest.raises(PlanError, match="zero on every cell"):
        sf.plan(work, APPROXIMATE)


def test_a_group_of_zeros_beside_others_makes_no_warning() -> None:
    nobody = sf.product(DOMAIN, {"age": "windows(4)", "sex": [[0, 0]]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = sf.plan(nobody | sf.prefixes(DOMAIN, "age"), APPROXIMATE, seconds=None, cache=False)
    assert plan.groups[0].rmse == 0


def test_queries_that_rounding_makes_equal_cost_a_mechanism_not_the_plan() -> None:
    domain = sf.Domain({"a": 4, "b": 5})
    work = sf.product(
        domain,
        {
            "a": [[-1, 2**29, 2**29, 2**29], [-1, -(2**24) + 1, 0, 2**30 - 1]],
            "b": [
                [0, -123456.789, 1, 2**29, 1],
                [-1, -1, 2**30 - 1, 1000000.0009765625, 2**30 - 1],
            ],
        },
    )
    plan = sf.plan(work, sf.Budget(rho=0.1), cache=False, seconds=None)
    assert np.isfinite(plan.rmse)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_singular_matrix_is_a_reason_not_an_end(
    monkeypatch: pytest.MonkeyPatch, neighbours: str
) -> None:
    def singular(*_: object) -> None:
        raise np.linalg.LinAlgError("Singular matrix")

    planner = sys.modules[choose.__module__]
    if neighbours == "add-remove":
        named = {**MECHANISMS, "gaussian": MECHANISMS["gaussian"]._replace(build=singular)}
        monkeypatch.setattr(planner, "MECHANISMS", named)
    else:
        monkeypatch.setattr(planner, "for_replace_one", singular)
    with pytest.raises(PlanError, match="singular; scale the queries"):
        sf.plan(sf.marginals(DOMAIN, 1), APPROXIMATE, neighbours, mechanism="gaussian")


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("budget", [sf.Budget(epsilon=1), APPROXIMATE, sf.Budget(mu=1)])
def test_what_cannot_win_is_not_built_for_many_groups_and_the_choice_stays(
    budget: sf.Budget, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of 2^d cells: plain Laplace noise errs as many times as there are groups."""
    work = sf.conjunctions(sf.Domain({f"a{i}": 2 for i in range(8)}), 3)
    few = choose(work, budget, "add-remove", objective)
    limits = replace(planner.LIMITS, late_terms=len(work.terms) - 1)
    monkeypatch.setattr(planner, "LIMITS", limits)
    many = choose(work, budget, "add-remove", objective)
    assert (many.mechanism, many.rmse, many.largest_error) == (
        few.mechanism,
        few.rmse,
        few.largest_error,
    )
    skipped = [c for c in many.candidates if c.note.startswith("not tried: errs at least")]
    errors = {c.mechanism: c.rmse for c in few.candidates}
    assert all((errors[c.mechanism] or np.inf) >= few.rmse for c in skipped)
    if budget is APPROXIMATE:
        assert {"laplace", "laplace-groups"} <= {c.mechanism for c in skipped}


def test_another_budget_builds_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = sf.Domain({"age": 20, "sex": 2})
    work, same = (sf.marginals(domain, 2) | sf.prefixes(domain, "age") for _ in range(2))
    first, fresh = sf.plan(work, sf.Budget(mu=1)), sf.plan(same, sf.Budget(mu=3))

    def refused(*_: object) -> None:
        raise AssertionError("a strategy was built again")

    monkeypatch.setattr("sfumato.planning.planner.Strategies._built", refused)
    again = sf.plan(work, sf.Budget(mu=3))
    assert again.digest() == fresh.digest() != first.digest()
    with pytest.raises(AssertionError, match="built again"):
        sf.plan(sf.marginals(domain, 2), sf.Budget(mu=3))
    monkeypatch.undo()
    assert again.candidates == fresh.candidates


def test_candidates_are_forecast_once_when_somebody_looks() -> None:
    looked: list[str] = []

    def forecast(name: str) -> Candidate:
        looked.append(name)
        return Candidate(name, 1.0, 2.0, "")

    each = Candidates([lambda n=n: forecast(n) for n in ("a", "b")], "b")  # type: ignore[misc]
    assert len(each) == 2
    assert not looked
    assert [c.is_chosen for c in each] == [False, True]
    assert each[0].mechanism == "a"
    assert looked == ["a", "b"]
