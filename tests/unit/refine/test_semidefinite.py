# SPDX-License-Identifier: Apache-2.0
"""The semidefinite relaxation against a general conic solver and against all records."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.local_consistency import project_locally
from sfumato.refine.reconstruct import Fit, FitPart, fit_answers
from sfumato.refine.residuals import diagonal, layout
from sfumato.refine.semidefinite import (
    MomentMatrix,
    _MomentSearch,
    moment_bound,
    project_semidefinitely,
)
from sfumato.workload.terms import Product

SIGNS = np.array([-1.0, 1.0])


def yes_no(d):
    return sf.Domain({f"x{i}": 2 for i in range(d)})


def records(d, n, seed):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 1))
    return (hidden * rng.normal(size=d) + rng.normal(size=(n, d)) + rng.normal(size=d) > 0) * 1


def table_of(domain, data, names):
    at = [domain.index(name) for name in names]
    shape = tuple(2 for _ in names)
    if not at:
        return np.array(float(len(data)))
    codes = np.ravel_multi_index(data[:, at].T, shape)
    return np.bincount(codes, minlength=2 ** len(at)).reshape(shape).astype(float)


def noisy_fit(work, data, scale, seed, weights=None):
    rng = np.random.default_rng(seed)
    exact = [t.answer(table_of(work.domain, data, t.attributes)) for t in work.terms]
    return fit_answers(work, [a + scale * rng.normal(size=a.shape) for a in exact], weights)


def by_conic_solver(fit, n, cells=False):
    names = fit.domain.names
    m = cp.Variable((len(names) + 1,) * 2, PSD=True)

    def table(part):
        at = [names.index(a) + 1 for a in part]
        if not at:
            return [m[0, 0]]
        if len(at) == 1:
            return [(m[0, 0] + s * m[0, at[0]]) / 2 for s in SIGNS]
        i, j = at
        return [
            (m[0, 0] + s * m[0, i] + t * m[0, j] + s * t * m[i, j]) / 4
            for s in SIGNS
            for t in SIGNS
        ]

    rules = [cp.diag(m) == (m[0, 0] if n is None else n)]
    if cells:
        rules += [x >= 0 for pair in combinations(names, 2) for x in table(pair)]
    value = 0
    for part in fit.parts:
        matrix = np.stack(
            [part.term.answer(c.reshape(part.term.shape)) for c in np.eye(part.term.cells)], axis=1
        )
        residual = matrix @ cp.hstack(table(part.term.attributes)) - part.values
        value += cp.sum_squares(cp.multiply(np.sqrt(part.weights), residual)) / 2
    problem = cp.Problem(cp.Minimize(value), rules)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, m.value


D, N = 5, 100
DOMAIN = yes_no(D)
DATA = records(D, N, 0)


def problems():
    two = sf.marginals(DOMAIN, 2)
    some = sf.marginals(DOMAIN, [("x0", "x1"), ("x1", "x2"), ("x3",), ("x3", "x4")])
    uneven = [np.full(t.rows, 1.0 + i) for i, t in enumerate(two.terms)]
    return {
        "all pairs": noisy_fit(two, DATA, 25.0, 1),
        "some pairs": noisy_fit(some, DATA, 60.0, 2),
        "weights": noisy_fit(two, DATA, 40.0, 3, uneven),
    }


PROBLEMS = problems()


@cache
def reference(name, n, cells):
    return by_conic_solver(PROBLEMS[name], n, cells)[0]


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("n", [float(N), None])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_least_value_is_that_of_a_conic_solver_and_the_gap_covers_the_rest(name, n, cells):
    best = reference(name, n, cells)
    found = project_semidefinitely(PROBLEMS[name], n, cells=cells, gap=1e-8)
    assert found.value == pytest.approx(best, rel=1e-6)
    assert found.value - found.gap <= best * (1 + 1e-6)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-7 * N
    assert np.diagonal(found.matrix) == pytest.approx(np.full(D + 1, found.matrix[0, 0]))
    if cells:
        assert min(found.margin(p).min() for p in combinations(DOMAIN.names, 2)) >= -1e-9


@pytest.mark.parametrize("steps", [1, 5, 25])
@pytest.mark.parametrize("cells", [False, True])
def test_the_certificate_never_lies_however_early_the_search_stops(steps, cells):
    for name, fit in PROBLEMS.items():
        for n in (float(N), None):
            best = reference(name, n, cells)
            found = project_semidefinitely(fit, n, cells=cells, gap=0.0, steps=steps)
            assert found.value >= best * (1 - 1e-6)
            assert found.value - found.gap <= best * (1 + 1e-6)


def test_a_certificate_from_a_matrix_that_is_not_semidefinite_would_lie():
    """The broken twin: without the lift by the least eigenvalue the bound passes the optimum."""
    fit = PROBLEMS["all pairs"]
    best = reference("all pairs", float(N), False)
    form = diagonal(fit, layout(DOMAIN, fit.sets))
    search = _MomentSearch(fit, MomentMatrix(DOMAIN.names), form, float(N), False)
    moments = by_conic_solver(fit, float(N))[1]
    force = search.heights * (moments - search.centres) / 2
    best_multiplier = force.copy()  # of the optimum, without its diagonal
    np.fill_diagonal(best_multiplier, 0.0)
    assert search.dual(best_multiplier, np.zeros((0, 4))) <= best
    lift = (D + 1) * -np.linalg.eigvalsh(best_multiplier)[0]
    assert lift > 0
    assert search.dual(best_multiplier, np.zeros((0, 4))) + lift * N > best


def test_data_are_left_as_they_are():
    fit = noisy_fit(sf.marginals(DOMAIN, 2), DATA, 0.0, 0)
    for cells in (False, True):
        found = project_semidefinitely(fit, float(N), cells=cells)
        assert found.value <= 1e-8 * N**2
        assert found.margin(("x1", "x3")) == pytest.approx(
            table_of(DOMAIN, DATA, ("x1", "x3")), abs=0.01
        )


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_the_projection_is_never_farther_from_the_truth(scale):
    fit = noisy_fit(sf.marginals(DOMAIN, 2), DATA, scale, 4)
    exact = np.concatenate([table_of(DOMAIN, DATA, s).ravel() for s in fit.sets])
    noisy = np.concatenate([p.values for p in fit.parts])
    for cells in (False, True):
        found = project_semidefinitely(fit, float(N), cells=cells)
        after = np.linalg.norm(np.concatenate(found.answers) - exact)
        assert after <= np.linalg.norm(noisy - exact) + found.distance


def test_each_relaxation_forbids_what_the_other_allows():
    """Three pairs that all differ agree and are no moments; some moments have no tables."""
    domain = yes_no(3)
    work = sf.marginals(domain, 2)
    differ = fit_answers(work, [np.array([0.0, 50.0, 50.0, 0.0])] * 3)
    assert project_locally(differ, 100.0).value == pytest.approx(0, abs=1e-6)
    assert project_semidefinitely(differ, 100.0).value > 100
    vectors = np.array([[0.0, 1.0], [np.sqrt(3) / 2, -0.5], [-np.sqrt(3) / 2, -0.5]])
    apart = np.zeros((4, 4))
    apart[:3, :3], apart[3, 3] = 100 * vectors @ vectors.T, 100.0
    tables = [MomentMatrix(domain.names).table(apart, s) for s in combinations(domain.names, 2)]
    assert min(t.min() for t in tables) < -10
    fit = fit_answers(work, [t.ravel() for t in tables])
    assert project_semidefinitely(fit, 100.0).value == pytest.approx(0, abs=1e-5)
    assert project_semidefinitely(fit, 100.0, cells=True).value > 10
    assert project_locally(fit, 100.0).value > 10


@pytest.mark.parametrize("seed", range(4))
def test_no_record_scores_above_the_bound(seed):
    rng = np.random.default_rng(seed)
    domain = yes_no(7)
    sets = [*combinations(domain.names, 2), ("x0",), ()]
    scores = {s: rng.normal(size=(2,) * len(s)) for s in sets}
    total = np.zeros(domain.shape)
    for names, table in scores.items():
        total = total + table.reshape([2 if a in names else 1 for a in domain.names])
    bound = moment_bound(scores)
    assert total.max() <= bound <= total.max() * 1.3
    costs, constant = MomentMatrix(domain.names).scores(scores)
    m = cp.Variable(costs.shape, PSD=True)
    problem = cp.Problem(cp.Maximize(cp.trace(costs @ m) / 2 + constant), [cp.diag(m) == 1])
    problem.solve(solver=cp.CLARABEL)
    assert bound == pytest.approx(problem.value, rel=1e-4)


def test_what_the_relaxation_is_not_for_is_refused():
    wide = sf.Domain({"a": 3, "b": 2})
    with pytest.raises(WorkloadError, match="'a' has 3 cells"):
        project_semidefinitely(fit_answers(sf.marginals(wide, 2), [np.zeros(6)]), 10.0)
    three = fit_answers(sf.marginals(DOMAIN, 3), [np.zeros(8)] * 10)
    with pytest.raises(WorkloadError, match="one or two"):
        project_semidefinitely(three, 10.0)
    prefix = fit_answers(sf.prefixes(sf.Domain({"x": 2}), "x"), [np.zeros(2)])
    with pytest.raises(WorkloadError, match="local consistency"):
        project_semidefinitely(prefix, 10.0)
    part = PROBLEMS["all pairs"].parts[0]
    bad = Fit(DOMAIN, (FitPart(part.term, np.full(4, np.inf), part.weights),))
    with pytest.raises(WorkloadError, match="finite"):
        project_semidefinitely(bad, 10.0)
    with pytest.raises(WorkloadError, match="number of records"):
        project_semidefinitely(PROBLEMS["all pairs"], -3.0)
    with pytest.raises(WorkloadError, match="at most two"):
        project_semidefinitely(PROBLEMS["all pairs"], 9.0, steps=1).margin(("x0", "x1", "x2"))
    with pytest.raises(WorkloadError, match="yes/no"):
        moment_bound({("a",): np.zeros(3)})


def test_too_many_attributes_are_refused_at_once():
    domain = yes_no(2100)
    term = sf.marginals(domain, [(n,) for n in domain.names])
    fit = fit_answers(term, [np.zeros(2)] * 2100)
    with pytest.raises(TooLarge, match="2,100 attributes"):
        project_semidefinitely(fit, 10.0)


def test_no_records_and_one_attribute():
    found = project_semidefinitely(PROBLEMS["all pairs"], 0.0)
    assert (found.matrix == 0).all()
    one = sf.Domain({"x": 2})
    fit = fit_answers(sf.marginals(one, 1), [np.array([-4.0, 10.0])])
    assert project_semidefinitely(fit, 6.0).margin(("x",)) == pytest.approx([0, 6], abs=1e-2)
    term = Product(one, "total", 1.0, ())
    with pytest.raises(WorkloadError):
        project_semidefinitely(Fit(one, (FitPart(term, np.array([3.0]), np.ones(1)),)), 3.0)
