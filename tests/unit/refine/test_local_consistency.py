# SPDX-License-Identifier: Apache-2.0
"""Local consistency against a general convex solver; certificates against what they claim."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.local_consistency import project_locally
from sfumato.refine.reconstruct import Fit, FitPart, fit_answers
from sfumato.refine.residuals import diagonal, layout, maximal
from sfumato.workload.queries import Identity, Matrix, Total
from sfumato.workload.terms import Product

SIZES = {"a": 3, "b": 4, "c": 2, "d": 3}
DOMAIN = sf.Domain(SIZES)


def margin(domain, histogram, names):
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    return histogram.reshape(domain.shape).sum(axis=rest)


def truth(domain, seed, n=200):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(domain.size, 0.05))
    return rng.multinomial(n, shares).astype(float)


def noisy_fit(work, histogram, scale, seed, weights=None):
    rng = np.random.default_rng(seed)
    domain = work.domain
    exact = [t.answer(margin(domain, histogram, t.attributes)) for t in work.terms]
    return fit_answers(work, [a + scale * rng.normal(size=a.shape) for a in exact], weights)


def dense(term):
    cells = np.eye(term.cells).reshape(-1, *term.shape)
    return np.stack([term.answer(cell) for cell in cells], axis=1)


def by_convex_program(fit, n):
    """The same body written out: every pair of tables agrees on what it shares."""
    tops = maximal(fit.sets)
    shape = {s: tuple(fit.domain[i].size for i in s) for s in tops}
    x = {s: cp.Variable(int(np.prod(shape[s])), nonneg=True) for s in tops}

    def summing(whole, part):
        cells = np.indices(shape[whole]).reshape(len(whole), -1)
        kept = [whole.index(i) for i in part]
        sizes = [shape[whole][i] for i in kept]
        codes = (
            np.ravel_multi_index(cells[kept], sizes)
            if kept
            else np.zeros(cells.shape[1], dtype=int)
        )
        return np.equal.outer(np.arange(int(np.prod(sizes))), codes).astype(float)

    rules = [] if n is None else [cp.sum(v) == n for v in x.values()]
    for s, t in combinations(tops, 2):
        shared = tuple(i for i in s if i in t)
        rules.append(summing(s, shared) @ x[s] == summing(t, shared) @ x[t])
    value = 0
    for part in fit.parts:
        names = part.term.attributes
        whole = next(s for s in tops if set(names) <= set(s))
        residual = dense(part.term) @ summing(whole, names) @ x[whole] - part.values
        value += cp.sum_squares(cp.multiply(np.sqrt(part.weights), residual)) / 2
    problem = cp.Problem(cp.Minimize(value), rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": compared to 1e-6 only
        problem.solve(solver=cp.CLARABEL)
    return problem.value, {s: v.value.reshape(shape[s]) for s, v in x.items()}


def problems():
    two, three = sf.marginals(DOMAIN, 2), sf.marginals(DOMAIN, 3)
    prefix = sf.prefixes(DOMAIN, "b", by=["a"]) | sf.marginals(DOMAIN, [("b", "c"), ("c", "d")])
    ranges = sf.ranges(DOMAIN, "b", by=["c"]) | sf.marginals(DOMAIN, [("a", "b"), ("d",)])
    chain = sf.marginals(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d"), ("b",), ("a", "b")])
    rng = np.random.default_rng(5)
    uneven = [rng.uniform(0, 2, size=t.rows) for t in two.terms]
    return {
        "two-way": noisy_fit(two, truth(DOMAIN, 0), 8.0, 1),
        "three-way": noisy_fit(three, truth(DOMAIN, 1), 5.0, 2),
        "contained and repeated": noisy_fit(chain, truth(DOMAIN, 2), 9.0, 3),
        "prefixes": noisy_fit(prefix, truth(DOMAIN, 3), 6.0, 4),
        "ranges": noisy_fit(ranges, truth(DOMAIN, 4), 6.0, 5),
        "uneven weights": noisy_fit(two, truth(DOMAIN, 5), 8.0, 6, uneven),
    }


PROBLEMS = problems()


@cache
def reference(name, n):
    return by_convex_program(PROBLEMS[name], n)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("n", [200.0, None])
def test_the_least_value_is_that_of_a_convex_solver_and_the_gap_covers_the_rest(name, n):
    fit = PROBLEMS[name]
    best, tables = reference(name, n)
    found = project_locally(fit, n, gap=1e-8)
    assert found.value == pytest.approx(best, rel=1e-6)
    assert found.value - found.gap <= best * (1 + 1e-7)  # a lower bound indeed
    assert found.gap <= 1e-6 * found.value
    assert set(found.tables) == set(tables)
    for part, answer in zip(fit.parts, found.answers, strict=True):
        whole = next(s for s in tables if set(part.term.attributes) <= set(s))
        rest = tuple(i for i, a in enumerate(whole) if a not in part.term.attributes)
        expected = part.term.answer(tables[whole].sum(axis=rest))
        seen = part.weights > 0.05
        assert answer[seen] == pytest.approx(expected[seen], abs=0.05)


@pytest.mark.parametrize("steps", [1, 10, 40])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("n", [200.0, None])
def test_the_certificate_never_lies_however_early_the_search_stops(name, steps, n):
    fit = PROBLEMS[name]
    best, _ = reference(name, n)
    found = project_locally(fit, n, gap=0.0, steps=steps)
    assert found.steps <= steps
    assert found.value >= best * (1 - 1e-7)
    assert found.value - found.gap <= best * (1 + 1e-7)


def test_a_certificate_from_forces_of_the_wrong_sign_would_lie():
    """The broken twin: the bound is one for multipliers of 0 or more only."""
    fit = PROBLEMS["two-way"]
    best, _ = reference("two-way", 200.0)
    form = diagonal(fit, layout(fit.domain, fit.sets))
    forces = [np.where(c < 5, 3.0, 0.0) for c in form.centre_tables(200.0)]
    assert form.lower(forces, 200.0, np.inf) <= best
    pushes_up = [-10 * np.where(c > 10, 3.0, 0.0) for c in form.centre_tables(200.0)]
    assert form.lower(pushes_up, 200.0, np.inf) > best


def measured_fit(work, histogram, scale, seed):
    """The blocks of the planned strategy with their noise, weighted by its inverse variance."""
    rng = np.random.default_rng(seed)
    strategy = sf.plan(work, sf.Budget(mu=1)).strategy
    parts, values = [], []
    for block in strategy.blocks:
        deviation = scale / block.share
        exact = block.term.answer(margin(work.domain, histogram, block.term.attributes))
        values.append(exact + deviation * rng.normal(size=exact.shape))
        parts.append(FitPart(block.term, values[-1], np.full(exact.shape, deviation**-2)))
    return Fit(work.domain, tuple(parts)), strategy.answers(values)


def test_measured_residuals_are_projected_in_the_metric_of_their_covariance():
    work, histogram = sf.marginals(DOMAIN, 2), truth(DOMAIN, 7)
    fit, _ = measured_fit(work, histogram, 3.0, 8)
    form = diagonal(fit, layout(DOMAIN, fit.sets))
    assert form is not None  # the curvature is diagonal in residuals
    for n in (200.0, None):
        best, _ = by_convex_program(fit, n)
        found = project_locally(fit, n, gap=1e-9)
        assert found.value == pytest.approx(best, rel=1e-6)
        assert found.value - found.gap <= best * (1 + 1e-7)


def test_without_constraints_that_bind_the_projection_is_the_unbiased_reconstruction():
    """Least squares on measured residuals is what the strategy itself answers."""
    domain = sf.Domain({"a": 3, "b": 2, "c": 2})
    work, histogram = sf.marginals(domain, 2), np.full(12, 1000.0)
    fit, answers = measured_fit(work, histogram, 1.0, 9)
    found = project_locally(fit, None, gap=1e-12)
    for term, expected in zip(work.terms, answers, strict=True):
        assert found.margin(term.attributes).reshape(-1) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3]))
def test_margins_of_any_histogram_are_left_as_they_are(seed, ways):
    """K is inside L, so a projection onto L moves no point of K."""
    histogram = truth(DOMAIN, seed)
    fit = noisy_fit(sf.marginals(DOMAIN, ways), histogram, 0.0, 0)
    found = project_locally(fit, 200.0)
    assert found.value <= 1e-9 * 200**2
    for part, answer in zip(fit.parts, found.answers, strict=True):
        assert answer == pytest.approx(part.values, abs=1e-2)


@pytest.mark.parametrize("scale", [0.5, 5.0, 80.0])
@pytest.mark.parametrize("ways", [2, 3])
def test_the_projection_is_never_farther_from_a_feasible_truth(scale, ways):
    for seed in range(2):
        histogram = truth(DOMAIN, seed)
        fit = noisy_fit(sf.marginals(DOMAIN, ways), histogram, scale, seed + 50)
        found = project_locally(fit, 200.0)
        exact = [p.term.answer(margin(DOMAIN, histogram, p.term.attributes)) for p in fit.parts]
        pairs = list(zip(exact, fit.parts, found.answers, strict=True))
        before = np.sqrt(sum(((e - p.values) ** 2).sum() for e, p, _ in pairs))
        after = np.sqrt(sum(((e - a) ** 2).sum() for e, _, a in pairs))
        assert after <= before + found.distance
        wrong = [p.values + 2 * (a - p.values) for _, p, a in pairs]  # reflected, not projected
        reflected = np.sqrt(
            sum(((e - w) ** 2).sum() for (e, _, _), w in zip(pairs, wrong, strict=True))
        )
        assert reflected > after


def test_the_tables_agree_are_non_negative_and_have_the_total():
    found = project_locally(PROBLEMS["three-way"], 200.0, steps=12)
    assert found.total == pytest.approx(200)
    for names, table in found.tables.items():
        assert table.min() >= 0
        for other, second in found.tables.items():
            shared = tuple(i for i in names if i in other)
            mine = table.sum(axis=tuple(i for i, a in enumerate(names) if a not in shared))
            theirs = second.sum(axis=tuple(i for i, a in enumerate(other) if a not in shared))
            assert mine == pytest.approx(theirs, abs=1e-9)


def test_three_attributes_that_all_differ_are_locally_consistent_and_no_data():
    """L is larger than K: each pair of yes/no attributes disagrees, which no record can do."""
    domain = sf.Domain({"a": 2, "b": 2, "c": 2})
    work = sf.marginals(domain, 2)
    fit = fit_answers(work, [np.array([0.0, 50.0, 50.0, 0.0])] * 3)
    assert project_locally(fit, 100.0).value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("n", [-1.0, float("nan"), float("inf")])
def test_an_impossible_number_of_records_is_refused(n):
    with pytest.raises(WorkloadError, match="number of records"):
        project_locally(PROBLEMS["two-way"], n)


def test_values_that_are_no_numbers_are_refused():
    part = PROBLEMS["two-way"].parts[0]
    bad = Fit(DOMAIN, (FitPart(part.term, np.full_like(part.values, np.nan), part.weights),))
    with pytest.raises(WorkloadError, match="not a finite number"):
        project_locally(bad, 10.0)
    with pytest.raises(WorkloadError, match="nothing to project"):
        project_locally(Fit(DOMAIN, ()), 10.0)
    with pytest.raises(WorkloadError, match="gap"):
        project_locally(PROBLEMS["two-way"], 10.0, gap=float("nan"))


def test_no_records_give_empty_tables():
    found = project_locally(PROBLEMS["two-way"], 0.0)
    assert all((table == 0).all() for table in found.tables.values())
    best, _ = by_convex_program(PROBLEMS["two-way"], 0.0)
    assert found.value == pytest.approx(best, rel=1e-9)


def test_answers_far_below_zero_have_the_total_zero_when_it_is_not_known():
    work = sf.marginals(DOMAIN, 2)
    found = project_locally(fit_answers(work, [np.full(t.rows, -5.0) for t in work.terms]), None)
    assert found.total == pytest.approx(0, abs=1e-3)
    assert found.gap <= 1e-5 * found.value


def test_one_cell_and_the_total_alone():
    domain = sf.Domain({"a": 1, "b": 1})
    fit = fit_answers(sf.marginals(domain, 2), [np.array([7.0])])
    assert project_locally(fit, None).total == pytest.approx(7)
    assert project_locally(fit, 3.0).value == pytest.approx(8)
    total = Product(DOMAIN, "total", 1.0, ())
    only = Fit(DOMAIN, (FitPart(total, np.array([-2.0]), np.ones(1)),))
    assert project_locally(only, None).total == pytest.approx(0, abs=1e-6)
    assert project_locally(only, 4.0).value == pytest.approx(18)


def test_sets_that_were_not_measured_are_free():
    """Zero weight on some tables and one-way totals only: the rest need only be possible."""
    work = sf.marginals(DOMAIN, 2)
    histogram = truth(DOMAIN, 11)
    weights = [np.full(t.rows, float(i % 2)) for i, t in enumerate(work.terms)]
    fit = noisy_fit(work, histogram, 10.0, 12, weights)
    best, _ = by_convex_program(fit, 200.0)
    found = project_locally(fit, 200.0, gap=1e-6)
    assert found.value == pytest.approx(best, rel=1e-4)
    assert found.value - found.gap <= best * (1 + 1e-7)


def test_a_total_that_nothing_tells_is_refused():
    centred = Matrix.of(3 * np.eye(3) - 1)
    term = Product(DOMAIN, "centred", 1.0, (("a", centred),))
    fit = Fit(DOMAIN, (FitPart(term, np.array([5.0, -4.0, -1.0]), np.ones(3)),))
    with pytest.raises(WorkloadError, match="total"):
        project_locally(fit, None)
    assert project_locally(fit, 9.0).value == pytest.approx(0, abs=1e-6)


def test_tables_that_cannot_be_held_are_refused_at_once():
    wide = sf.Domain({f"x{i}": 200 for i in range(4)})
    factors = [*((n, Total(200)) for n in wide.names[:3]), ("x3", Identity(200))]
    term = Product(wide, "all", 1.0, tuple(factors))
    fit = Fit(wide, (FitPart(term, np.zeros(200), np.ones(200)),))
    with pytest.raises(TooLarge, match="coarser cells"):
        project_locally(fit, 10.0)


def test_margins_are_found_within_asked_sets_only():
    found = project_locally(PROBLEMS["contained and repeated"], 200.0)
    assert found.margin(["c", "b"]).shape == (4, 2)
    assert float(found.margin([])) == pytest.approx(200)
    assert found.margin(["b"]) == pytest.approx(found.tables["a", "b"].sum(axis=0))
    with pytest.raises(WorkloadError, match="no table holds a, d together"):
        found.margin(["a", "d"])


def test_progress_is_told_and_falls_to_what_was_asked():
    told = []
    found = project_locally(
        PROBLEMS["two-way"], 200.0, gap=1e-7, progress=lambda *at: told.append(at)
    )
    assert [step for step, _ in told] == sorted({step for step, _ in told})
    assert told[-1][0] == found.steps
    assert told[-1][1] <= 1e-7
