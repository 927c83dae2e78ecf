# SPDX-License-Identifier: Apache-2.0
"""Newton steps over all cells: against Clarabel, against few cells, and what they certify."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.refine import cell_solvers, cells
from sfumato.refine.cell_solvers import Chains, GapBound, Margins, newton_system
from sfumato.refine.problem import Grid, Quadratic, _grouped_root
from sfumato.refine.reconstruct import fit_answers
from sfumato.refine.refine_limits import LIMITS
from tests.shared.dense import dense_workload
from tests.unit.refine.test_project import NAMES, RECORDS, by_clarabel, work_of

GAP = 1e-9


def noisy(name: str, scale: float = 5.0) -> tuple[sf.Workload, np.ndarray]:
    work = work_of(name)
    rng = np.random.default_rng(len(name))
    return work, work.evaluate(RECORDS) + scale * rng.normal(size=len(work))


def quadratic(
    work: sf.Workload,
    y: np.ndarray,
    constraints: sf.Constraints | None = None,
    precision: np.ndarray | None = None,
) -> Quadratic:
    cuts = np.cumsum([t.rows for t in work.terms])[:-1]
    fit = fit_answers(work, np.split(y, cuts))
    return Quadratic(fit, Grid.of(fit, constraints), precision)


def solved(q: Quadratic, total: float | None, gap: float = GAP) -> tuple[np.ndarray, float, float]:
    """Answers, value and gap by Newton steps alone."""
    system = newton_system(q)
    assert system is not None
    whole = 0.5 * q.norm(q.values) ** 2
    found = cell_solvers.fit_interior(q, system, cells.bound_of(q, total), lambda _: gap * whole)
    answers = q.answers(q.stack_of(found.cells, found.weights))
    assert (found.weights >= 0).all()
    if total is not None:
        assert found.weights.sum() == pytest.approx(total)
    return answers, 0.5 * q.norm(answers - q.values) ** 2, found.gap


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [50.0, None])
def test_the_nearest_answers_are_those_of_clarabel(name: str, n: float | None) -> None:
    work, y = noisy(name)
    found, value, gap = solved(quadratic(work, y), n)
    best, least = by_clarabel(dense_workload(work), y, np.eye(len(y)), n)
    scale = float(np.linalg.norm(y))
    assert value - least <= gap + 1e-9 * scale**2
    assert value == pytest.approx(least, abs=1e-7 * scale**2)
    assert np.linalg.norm(found - best) <= 1e-3 * scale
    if (name, n) != ("signed", None):  # a hull that holds zero certifies nothing
        assert gap <= 1e-6 * scale**2


@pytest.mark.parametrize("n", [50.0, None])
def test_a_joint_covariance_is_the_metric(n: float | None) -> None:
    work, y = noisy("tables")
    root = np.random.default_rng(0).normal(size=(len(y), len(y))) / 5 + np.eye(len(y))
    precision = np.linalg.inv(root @ root.T)
    precision = (precision + precision.T) / 2
    _, value, gap = solved(quadratic(work, y, precision=precision), n)
    _, least = by_clarabel(dense_workload(work), y, precision, n)
    scale = float(y @ precision @ y)
    assert value == pytest.approx(least, abs=1e-7 * scale)
    assert value - least <= gap + 1e-9 * scale


def test_impossible_cells_stay_empty() -> None:
    work, y = noisy("tables")
    known = sf.Constraints(work.domain, impossible=["a = 1 and b = 2"])
    q = quadratic(work, y, known)
    system = Margins(q)
    found = cell_solvers.fit_interior(q, system, cells.bound_of(q, 50.0), lambda v: 1e-9 * v)
    assert q.grid.possible is not None
    assert q.grid.possible[found.cells].all()
    assert found.gap <= 1e-6 * float(y @ y)
    exact = sf.project(y, work, 50, constraints=known)
    answers = q.answers(q.stack_of(found.cells, found.weights))
    np.testing.assert_allclose(answers, exact.answers, atol=0.05)


def test_the_gap_holds_however_early_the_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    work, y = noisy("tables")
    for n in (50.0, None):
        _, least = by_clarabel(dense_workload(work), y, np.eye(len(y)), n)
        gaps = []
        for steps in (1, 3, 6, 30):
            monkeypatch.setattr(cell_solvers, "LIMITS", replace(LIMITS, newton_steps=steps))
            _, value, gap = solved(quadratic(work, y), n)
            assert value - least <= gap + 1e-9 * float(y @ y)
            gaps.append(gap)
        assert gaps[-1] < 1e-6 * gaps[0]
        # The broken twin: a certificate that claims to be there at once.
        monkeypatch.setattr(cell_solvers, "LIMITS", replace(LIMITS, newton_steps=1))
        monkeypatch.setattr(GapBound, "gap", lambda *_: 0.0)
        _, value, claimed = solved(quadratic(work, y), n)
        assert value - least > claimed + 1e-9 * float(y @ y)
        monkeypatch.undo()


def test_many_cells_in_use_are_solved_for_by_newton_steps() -> None:
    """Pairs of tables with hundreds of independent queries and little noise."""
    domain = sf.Domain({"a": 15, "b": 14, "c": 12})
    work = sf.marginals(domain, 2)
    rng = np.random.default_rng(0)
    table = rng.multinomial(20_000, rng.dirichlet(np.full(domain.size, 0.3)))
    truth = work.evaluate(table.reshape(domain.shape))
    y = truth + 3 * rng.normal(size=len(work))
    found = sf.project(y, work, 20_000)
    assert found.method == "interior point"
    assert found.converged
    assert found.total == pytest.approx(20_000)
    few = cells.fit_support(
        q := quadratic(work, y), bound := cells.bound_of(q, 20_000.0), lambda v: 1e-6 * v
    )
    answers = q.answers(q.stack_of(few.cells, few.weights))
    assert bound.total == 20_000
    apart = float(np.linalg.norm(found.answers - answers))
    assert apart <= found.distance_bound + np.sqrt(few.gap)
    assert np.linalg.norm(found.answers - truth) < np.linalg.norm(y - truth)


def test_medians_of_two_columns_by_group_under_one_condition_take_newton_steps() -> None:
    """1,600 cells in one set: without a root of its matrix cells came in one by one."""
    domain = sf.Domain({"region": 8, "sex": 2, "age": 20, "income": 100})
    text = "SELECT region, MEDIAN(age), MEDIAN(income) FROM t WHERE sex = 1 GROUP BY region"
    work = sf.sql(domain, text)
    q = quadratic(work, np.zeros(len(work)))
    assert max(np.diff(q.ends)) == 1600
    assert isinstance(newton_system(q), Margins)


def test_a_root_of_a_matrix_of_groups_is_that_of_every_group() -> None:
    rng = np.random.default_rng(4)
    matrix = np.zeros((9, 9))
    for at in ([0, 3, 7], [1, 2], [4, 5, 8]):  # 6 is alone, and zero
        some = rng.normal(size=(len(at), len(at)))
        matrix[np.ix_(at, at)] = some @ some.T
    root = _grouped_root(matrix)
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-12)
    inner = root.T @ root  # its columns are orthogonal
    np.testing.assert_allclose(inner, np.diag(np.diagonal(inner)), atol=1e-12)


def test_sets_too_many_or_too_large_are_left_to_other_solvers() -> None:
    bits = sf.Domain({f"x{i}": 2 for i in range(16)})
    pairs = sf.marginals(bits, 2)
    assert newton_system(quadratic(pairs, np.zeros(len(pairs)))) is None
    wide = sf.marginals(sf.Domain({"a": 100, "b": 100}), 2)
    assert newton_system(quadratic(wide, np.zeros(len(wide)))) is None


def structures() -> list[tuple[str, sf.Workload, type]]:
    domain = sf.Domain({"a": 5, "b": 3, "c": 4})
    chain = sf.product(domain, {"a": "prefix", "b": "identity", "c": "ranges"})
    return [
        ("chains", chain, Chains),
        ("tables", sf.marginals(domain, 2), Margins),
        ("mixed", sf.marginals(domain, [["a", "c"]]) | sf.prefixes(domain, "b"), Margins),
        ("total", sf.marginals(domain, [["a"]]) | sf.marginals(domain, 0), Margins),
    ]


@pytest.mark.parametrize(("name", "work", "kind"), structures())
def test_systems_solve_what_a_dense_matrix_solves(name: str, work: sf.Workload, kind: type) -> None:
    rng = np.random.default_rng(len(name))
    q = quadratic(work, rng.normal(size=len(work)))
    system = newton_system(q)
    assert isinstance(system, kind)
    size = q.grid.size
    dense = np.array([q.spread(q.curve(q.stack(row))) for row in np.eye(size)])
    ease = 10.0 ** rng.uniform(-6, 3, size)
    ease[:3] = 0.0  # impossible cells
    solve = system.factored(ease)
    assert solve is not None
    b = rng.normal(size=size)
    found, held = solve(b), ease > 0
    expected = np.linalg.solve(dense[np.ix_(held, held)] + np.diag(1 / ease[held]), b[held])
    np.testing.assert_allclose(found[held], expected, rtol=1e-6, atol=1e-9)
    assert (found[~held] == 0).all()


def test_running_totals_in_two_directions_are_solved_along_chains() -> None:
    domain = sf.Domain({"a": 16, "b": 12})
    work = sf.product(domain, {"a": "prefix", "b": "prefix"})
    rng = np.random.default_rng(1)
    table = rng.multinomial(5000, rng.dirichlet(np.full(domain.size, 0.5)))
    y = work.evaluate(table.reshape(domain.shape)) + 4 * rng.normal(size=len(work))
    for n in (5000.0, None):
        found, value, gap = solved(quadratic(work, y), n, gap=1e-12)
        best, least = by_clarabel(dense_workload(work), y, np.eye(len(y)), n)
        assert value == pytest.approx(least, rel=1e-3)
        assert value - least <= gap + 1e-10 * float(y @ y)
        assert np.linalg.norm(found - best) <= 0.05 * np.linalg.norm(y - best)


def test_where_rounding_leaves_no_step_the_best_so_far_is_kept() -> None:
    """A published table, a public total and nearly exact answers: ``1'(Q + D)^-1 1`` came out 0."""
    domain = sf.Domain({"a": 4, "b": 2})
    work = sf.marginals(domain, 1) | 0.01 * sf.predicates(domain, ["a = 3 and b = 1 and a = 1"])
    y = [51.99769963543155, 5.992091037011647, 35.01592411613457, 20.99656775371011]
    y += [67.99658623381526, 46.00669603886334, 0.0008431102502919205]
    known = sf.Constraints(domain, published=[(["b"], [68, 46])])
    found = sf.project(y, work, 114.0, gap=1e-8, constraints=known)
    # by hand: the table of a sums to 114, so each of its answers moves by the same
    moved = (114 - sum(y[:4])) / 4
    np.testing.assert_allclose(found.answers, [*(v + moved for v in y[:4]), 68, 46, 0], atol=1e-5)
