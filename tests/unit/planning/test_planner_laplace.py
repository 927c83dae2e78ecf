# SPDX-License-Identifier: Apache-2.0
"""Laplace noise in the race: one matrix however it was written, and what a certificate is about."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.strategy.laplace.laplace_optimum import laplace_optimum
from sfumato.workload.workload import Workload

PURE, APPROXIMATE = sf.Budget(epsilon=1), sf.Budget(epsilon=1, delta=1e-9)
BUDGETS = pytest.mark.parametrize("budget", [PURE, APPROXIMATE], ids=["pure", "approximate"])
LINE = sf.Domain({"x": 16})


def intervals(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    ends = np.sort(random.integers(0, 17, size=(count, 2)), axis=1)
    cells = np.arange(16)
    rows = (cells >= ends[:, :1]) & (cells < ends[:, 1:])
    return rows[rows.any(axis=1)] * 1.0


def writings(matrix: np.ndarray) -> dict[str, Workload]:
    x = sf.attribute(LINE, "x")
    conditions = [x.isin(np.flatnonzero(row).tolist()) for row in matrix]
    twice: Domain = sf.Domain({"x": 16, "y": 2})
    texts = [f"x in ({', '.join(map(str, np.flatnonzero(row)))})" for row in matrix]
    return {
        "product": sf.product(LINE, {"x": matrix}),
        "coefficients": sf.explicit(LINE, ["x"], matrix),
        "conditions": sf.predicates(LINE, conditions),
        "conditions in SQL": sf.predicates(LINE, texts),
        "in another order": sf.predicates(LINE, conditions[::-1]),
        "cells twice": sf.explicit(twice, ["x", "y"], np.repeat(matrix, 2, axis=1)),
        "one by one": sf.predicates(LINE, conditions[:3]) | sf.predicates(LINE, conditions[3:]),
    }


@pytest.mark.parametrize(
    ("budget", "neighbours"),
    [(PURE, "add-remove"), (PURE, "replace-one"), (APPROXIMATE, "add-remove")],
    ids=["pure", "replace-one", "approximate"],
)
def test_equal_queries_have_equal_errors_whoever_wrote_them(
    budget: sf.Budget, neighbours: str
) -> None:
    errors = {
        name: sf.plan(work, budget, neighbours, cache=False).rmse  # type: ignore[arg-type]
        for name, work in writings(intervals(12, 1)).items()
    }
    assert list(errors.values()) == pytest.approx([errors["product"]] * len(errors), rel=1e-4)


@BUDGETS
@pytest.mark.parametrize("count", [1, 2, 5, 60])
def test_copies_of_a_query_cost_one_query(budget: sf.Budget, count: int) -> None:
    row = (np.arange(16) < 9) * 1.0
    for factors in (np.ones(count), (-1.0) ** np.arange(count), np.arange(1.0, count + 1)):
        plan = sf.plan(sf.explicit(LINE, ["x"], np.outer(factors, row)), budget, cache=False)
        # One draw on the integers: 2 q / (1 - q)^2 with q = 1 / e, 0.92 of 2 / epsilon^2.
        assert plan.rmse == pytest.approx(sqrt(1.841347 * np.mean(factors**2)), rel=1e-4)
        assert plan.certificate == pytest.approx(1, abs=1e-6)
        assert "laplace" in plan.certified_noise


def test_conditions_across_attributes_are_factorized_under_pure_epsilon() -> None:
    """Ten disjunctions of two: as they are they would cost their largest overlap, 10."""
    domain = sf.Domain(dict.fromkeys("abcdefghijk", 4))
    named = [sf.attribute(domain, name) for name in domain.names]
    work = sf.predicates(domain, [(a < 2) | (b < 2) for a, b in pairwise(named)])
    plan = sf.plan(work, PURE, cache=False)
    assert plan.rmse < 0.55 * sf.plan(work, PURE, mechanism="laplace").rmse


def test_multiples_of_a_query_in_thousands_of_groups_cost_one_query() -> None:
    factors = np.arange(1.0, 2051)
    work = sf.explicit(sf.Domain({"x": 3}), ["x"], np.outer(factors, [1.0, 1, 0]))
    strategy = laplace_optimum(work.normal.workload, "laplace", "rmse")
    assert strategy.gamma == pytest.approx(sqrt(np.mean(factors**2)), rel=1e-6)


def test_mixtures_are_made_for_replaced_records() -> None:
    work = sf.explicit(LINE, ["x"], np.random.default_rng(4).integers(0, 9, size=(4, 16)))
    plain = sf.plan(work, PURE, "replace-one", mechanism="laplace")
    assert sf.plan(work, PURE, "replace-one", cache=False).rmse < 0.85 * plain.rmse


def test_a_certificate_says_of_which_noise_it_speaks() -> None:
    work = sf.prefixes(sf.Domain({"x": 64}), "x")
    assert sf.plan(work, PURE).certified_noise == ("laplace",)
    gaussian = sf.plan(work, APPROXIMATE, mechanism="factorization")
    assert gaussian.certified_noise == ("gaussian",)  # sqrt(2) / epsilon is below 1 / mu
    assert "times the least possible with Gaussian noise" in gaussian.headline
    laplace = sf.plan(work, APPROXIMATE, mechanism="laplace-optimum")
    assert laplace.certified_noise == ("gaussian", "laplace")
    by_mu = sf.plan(work, sf.Budget(mu=1))
    assert by_mu.certified_noise == ("gaussian", "laplace")
    assert "times the least possible with Gaussian or Laplace noise" in repr(by_mu)


@pytest.mark.parametrize("budget", [APPROXIMATE, sf.Budget(mu=1), sf.Budget(rho=0.1)])
def test_what_is_certified_for_either_noise_holds_for_every_candidate(budget: sf.Budget) -> None:
    for matrix in (intervals(6, 2), intervals(40, 3), np.eye(16)[:3], np.ones((1, 16))):
        plan = sf.plan(sf.explicit(LINE, ["x"], matrix), budget, cache=False)
        assert plan.certificate is not None
        least = plan.rmse / plan.certificate
        for candidate in plan.candidates:
            noise = candidate.mechanism.partition("-")[0].replace("factorization", "gaussian")
            if candidate.rmse is not None and noise in plan.certified_noise:
                assert candidate.rmse >= least * (1 - 1e-4)


def _pairs(attributes: int, cells: int) -> sf.Workload:
    return sf.marginals(sf.Domain({f"a{i}": cells for i in range(attributes)}), 2)


def test_tables_of_counts_are_compared_with_the_optimum_of_all_of_them() -> None:
    """The bound is that of the Gaussian plan; the sum over tables alone would say 31."""
    pure = sf.plan(_pairs(10, 4), sf.Budget(epsilon=1), cache=False)
    gaussian = sf.plan(_pairs(10, 4), sf.Budget(mu=1), cache=False)
    assert pure.forecast.bound == pytest.approx(gaussian.forecast.bound, rel=1e-6)
    assert pure.certificate is not None
    assert 6 < pure.certificate < 7


def test_other_unions_are_compared_with_the_optimum_of_all_groups() -> None:
    domain = sf.Domain({"age": 40, "sex": 2, "edu": 8})
    work = sf.prefixes(domain, "age") | sf.marginals(domain, 2)
    pure = sf.plan(work, sf.Budget(epsilon=1), cache=False).forecast
    gaussian = sf.plan(work, sf.Budget(mu=1), cache=False).forecast
    assert pure.bound is not None
    assert gaussian.bound is not None
    assert gaussian.bound * 0.98 <= pure.bound <= gaussian.bound * (1 + 1e-6)


@pytest.mark.parametrize(
    "work",
    [
        _pairs(4, 3),
        sf.prefixes(sf.Domain({"a": 20}), "a"),
        sf.prefixes(sf.Domain({"a": 8, "b": 3}), "a", by=["b"]),
        sf.predicates(sf.Domain({"a": 8, "b": 3}), ["a < 3", "b = 1 AND a > 2", "a > 4"]),
    ],
)
def test_pure_plans_for_replaced_records_have_a_certificate(work: sf.Workload) -> None:
    """No less than 1, and the bound is below the Gaussian optimum: it cannot be too great."""
    plan = sf.plan(work, sf.Budget(epsilon=1), "replace-one", cache=False)
    gaussian = sf.plan(work, sf.Budget(mu=1), "replace-one", cache=False)
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 4
    best = gaussian.forecast.strategy.weighted_error("rmse", "replace-one", True)
    assert plan.forecast.replace_one_bound is not None
    assert best * 0.96 <= plan.forecast.replace_one_bound <= best * (1 + 1e-6)


def test_intervals_on_more_atoms_are_still_searched_on_atoms() -> None:
    """400 intervals tell some 650 kinds of cells apart; trees on 2,000 cells err by 14.1."""
    random, rows = np.random.default_rng(0), np.zeros((400, 2000), dtype=np.int64)
    for row in rows:
        low, high = np.sort(random.choice(2001, 2, replace=False))
        row[low:high] = 1
    work = sf.explicit(sf.Domain({"a": 2000}), ["a"], rows)
    assert sf.plan(work, sf.Budget(epsilon=1), cache=False).rmse < 10.5


def test_signs_of_normal_variables_are_as_correlated_as_the_proof_says() -> None:
    """``arcsin(G) >= G`` for correlation matrices: what limits bounds that are linear in X."""
    random = np.random.default_rng(1)
    for size in (2, 5, 20):
        rows = random.normal(size=(size, max(2, size // 2)))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        gram = np.clip(rows @ rows.T, -1, 1)
        assert np.linalg.eigvalsh(np.arcsin(gram) - gram).min() >= -1e-9
