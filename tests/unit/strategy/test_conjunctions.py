# SPDX-License-Identifier: Apache-2.0
"""Conjunctions by polynomials against dense matrices over the whole cube."""

from __future__ import annotations

from dataclasses import replace
from math import comb, sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError
from sfumato.strategy import conjunctions
from sfumato.strategy.biased import least_worst_case
from sfumato.strategy.conjunctions import (
    Clause,
    clauses_of,
    conjunctions_by_polynomial,
    gamma_of,
    is_conjunctive,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.workload.workload import Workload
from tests.unit.strategy.test_biased import dense, forecast_of, measured_matrix, reconstruction


def cube(d: int) -> Domain:
    return Domain({f"q{i}": 2 for i in range(d)})


def written() -> Workload:
    return sf.predicates(
        cube(5),
        [
            "q0 = 1 AND q1 = 1 AND q2 = 0 AND q4 = 1",
            "q0 = 1 OR q1 = 0 OR q2 = 1 OR q3 = 1",
            "NOT (q0 = 1 AND q3 = 0 AND q4 = 0)",
            "NOT (q1 = 1 OR NOT (q2 = 1 AND q3 = 1))",
            "q3 = 1",
        ],
    )


WORKLOADS = {
    "all of 3": lambda: sf.conjunctions(cube(5), 3),
    "some of 2 and 4": lambda: (
        sf.marginals(cube(5), [("q0", "q1")])
        | 2 * sf.marginals(cube(5), [("q1", "q2", "q3", "q4")])
    ),
    "written": written,
    "both": lambda: written() | sf.conjunctions(cube(5), 4),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("records", [3, 30, 3000])
@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_what_is_stated_is_what_the_matrices_say(name: str, records: int, objective: str) -> None:
    work = WORKLOADS[name]()
    strategy = conjunctions_by_polynomial(work, records, 0.5, objective)
    forecast = forecast_of(strategy, objective)
    r, constant = reconstruction(strategy)
    assert not constant.any()
    m = measured_matrix(strategy)
    bias = r @ m - dense(work)
    bounds = np.concatenate([strategy.bias_bounds(t) for t in range(len(work.terms))])
    assert (np.abs(bias).max(axis=1) <= bounds * (1 + 1e-9)).all()
    # Every number of true literals occurs, so the bound on one query is reached.
    assert np.abs(bias).max(axis=1) == pytest.approx(bounds, abs=1e-9)
    squares = (bias**2).sum(axis=0)
    assert squares.max() <= strategy.squared_bias() * (1 + 1e-9)
    if name in ("all of 3", "some of 2 and 4"):  # the same for every record
        assert squares == pytest.approx(np.full(32, strategy.squared_bias()), rel=1e-5, abs=1e-12)
    noise = np.array(forecast.block_variances)
    variances = np.concatenate([strategy.variances(t, noise) for t in range(len(work.terms))])
    assert variances == pytest.approx((r**2) @ noise)
    shares = np.array(strategy.shares)
    assert strategy.sensitivity(2).power == pytest.approx(((m.T * shares) ** 2).sum(axis=1).max())
    first = 0
    for t, term in enumerate(work.terms):
        some = np.arange(term.rows) + 1.0
        weights = np.zeros(len(shares))
        for b, w in strategy.adjoint(t, some).items():
            weights[b] = w[0]
        assert weights == pytest.approx(r[first : first + term.rows].T @ some)
        first += term.rows


@pytest.mark.parametrize("records", [10, 100, 10_000])
def test_tables_reach_the_least_worst_case_of_all_mechanisms(records: int) -> None:
    """The symmetric polynomial is as good as the best of any approximate factorization."""
    work = sf.conjunctions(cube(5), 3)
    strategy = conjunctions_by_polynomial(work, records, 0.5)
    best = least_worst_case(dense(work), (0.5 * records) ** -2.0)
    assert forecast_of(strategy).rmse <= best.worst_error(records) * (1 + 1e-3)
    assert forecast_of(strategy).rmse >= best.lower_bound * records * (1 - 1e-6)


@pytest.mark.parametrize("ways", [2, 5])
def test_gamma_has_its_closed_form(ways: int) -> None:
    work = sf.conjunctions(cube(7), ways)
    strategy = conjunctions_by_polynomial(work, 40, 0.5)
    c = strategy.coefficients[ways, True]
    assert strategy.gamma == pytest.approx(gamma_of(7, ways, c), rel=1e-6)
    exact = sum(sqrt(comb(7, i) * comb(ways, i)) for i in range(ways + 1)) / 2**ways
    assert strategy.gamma < exact


def test_many_records_make_it_exact_and_few_make_it_short() -> None:
    work = sf.conjunctions(cube(12), 5)
    few = conjunctions_by_polynomial(work, 10, 0.5)
    many = conjunctions_by_polynomial(work, 10**7, 0.5)
    assert len(few.blocks) < len(many.blocks) / 4
    assert many.bias_bounds(0).max() < 1e-6
    exact = sum(sqrt(comb(12, i) * comb(5, i)) for i in range(6)) / 2**5 / 0.5
    assert forecast_of(many).rmse == pytest.approx(exact, rel=1e-3)
    assert forecast_of(few).rmse < exact


def test_wide_conjunctions_of_many_attributes_never_build_the_cube() -> None:
    domain = cube(40)
    names = [f"q{i}" for i in range(40)]
    wide = [" AND ".join(f"{n} = 1" for n in names[i : i + 12]) for i in range(28)]
    strategy = conjunctions_by_polynomial(sf.predicates(domain, wide), 500, 0.5)
    assert len(strategy.blocks) <= LIMITS.conjunction_characters
    assert strategy.bias_bounds(0).max() < 0.5
    assert forecast_of(strategy).rmse < 500


def test_levels_with_too_many_characters_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjunctions, "LIMITS", replace(LIMITS, conjunction_characters=20))
    strategy = conjunctions_by_polynomial(sf.conjunctions(cube(5), 3), 10**6, 0.5)
    assert len(strategy.blocks) == 1 + 5 + 10
    assert strategy.bias_bounds(0).max() > 0.1


def test_literals_are_read_through_negations() -> None:
    read = clauses_of(written().terms[0])
    assert read == (
        Clause(("q0", "q1", "q2", "q4"), (1, 1, 0, 1), False),
        Clause(("q0", "q1", "q2", "q3"), (0, 1, 0, 0), True),
        Clause(("q0", "q3", "q4"), (1, 0, 0), True),
        Clause(("q1", "q2", "q3"), (0, 1, 1), False),
        Clause(("q3",), (1,), False),
    )


@pytest.mark.parametrize(
    "condition",
    ["q0 = 1 AND (q1 = 1 OR q2 = 1)", "q0 = 1 AND q0 = 0", "age < 3", "q0 = 1 AND age = 2"],
)
def test_other_conditions_are_refused(condition: str) -> None:
    domain = Domain({"q0": 2, "q1": 2, "q2": 2, "age": 5})
    work = sf.predicates(domain, [condition])
    assert not is_conjunctive(work)
    with pytest.raises(PlanError):
        conjunctions_by_polynomial(work, 10, 0.5)


def test_other_workloads_are_refused() -> None:
    domain = Domain({"q0": 2, "age": 5})
    assert not is_conjunctive(sf.marginals(domain, 2))
    assert not is_conjunctive(sf.explicit(domain, ["q0"], [[1, 0]]))
    with pytest.raises(PlanError, match="more budget"):
        conjunctions_by_polynomial(sf.predicates(domain, ["q0 = 1"]), 1, 1e-9)
