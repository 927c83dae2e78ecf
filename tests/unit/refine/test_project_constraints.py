"""Projections that know impossible combinations and published tables, against Clarabel."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
IMPOSSIBLE = {
    "nothing": [],
    "one": ["a = 0 and b >= 2"],
    "linked": ["a = 0 and b >= 2", "b = 3 and c = 1", "a = 2 and c = 0 and b = 0"],
}
PUBLISHED = {
    "nothing": [],
    "total": [[]],
    "c": [["c"]],
    "a, b": [["a"], ["b"]],
    "chain": [["a", "b"], ["b", "c"]],
    "circle": [["a", "b"], ["b", "c"], ["a", "c"]],
}
WORKS = {
    "tables": lambda: sf.marginals(DOMAIN, 2),
    "prefix": lambda: sf.prefixes(DOMAIN, "b"),
    "prefixes": lambda: sf.prefixes(DOMAIN, "b", by=["a"]),
    "one": lambda: sf.marginals(DOMAIN, [["a"]]),
    "conditions": lambda: sf.predicates(DOMAIN, ["a = 1 and b in (0, 2)", "not c = 1 or b = 3"]),
    "signed": lambda: sf.product(DOMAIN, {"a": [[1.0, -1.0, 0.0]], "b": "identity"}),
}


def margin(h: np.ndarray, names: list[str] | tuple[str, ...]) -> np.ndarray:
    return h.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in names))


def case(impossible: str, published: str, seed: int) -> tuple[np.ndarray, sf.Constraints]:
    """Records that meet the constraints, and the constraints."""
    conditions = IMPOSSIBLE[impossible]
    h = np.random.default_rng(seed).multinomial(200, np.full(24, 1 / 24)).reshape(3, 4, 2) * 1.0
    h *= sf.Constraints(DOMAIN, conditions).possible(DOMAIN.names)
    tables = [(names, margin(h, names)) for names in PUBLISHED[published]]
    return h, sf.Constraints(DOMAIN, conditions, tables)


def by_clarabel(
    F: np.ndarray, y: np.ndarray, W: np.ndarray, known: sf.Constraints, n: float | None
) -> tuple[np.ndarray, float]:
    h = cp.Variable(F.shape[1], nonneg=True)
    barred = ~known.possible(DOMAIN.names).reshape(-1)
    limits = [h[barred] == 0] if barred.any() else []
    limits += [] if n is None else [cp.sum(h) == n]
    for table in known.published:
        M = dense_workload(sf.marginals(DOMAIN, [list(table.names)])) if table.names else None
        limits.append((cp.sum(h) if M is None else M @ h) == table.values.reshape(-1))
    root = np.linalg.cholesky(W).T
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(root @ (F @ h - y))), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-10)
    return F @ h.value, float(problem.value)


def table_of(found: sf.refine.project.Projected) -> np.ndarray:
    out = np.zeros([DOMAIN[n].size for n in found.attributes])
    np.add.at(out, tuple(found.cells.T), found.weights)
    return out


# Everything with everything else would take half a minute.
CASES = [
    (name, "linked" if is_linked else ("nothing", "one")[i % 2], published, metric)
    for i, name in enumerate(WORKS)
    for j, published in enumerate(PUBLISHED)
    for is_linked, metric in ((True, (i + j) % 2), (False, (i + j + 1) % 2))
]


@pytest.mark.parametrize(("name", "impossible", "published", "metric"), CASES)
def test_answers_are_those_of_clarabel(
    name: str, impossible: str, published: str, metric: int
) -> None:
    work = WORKS[name]()
    F = dense_workload(work)
    rng = np.random.default_rng(len(name) + 10 * len(published))
    h, known = case(impossible, published, len(impossible))
    y = F @ h.reshape(-1) + 10 * rng.normal(size=len(F))
    half = rng.normal(size=(len(F), len(F)))
    S = half @ half.T / len(F) + 0.5 * np.eye(len(F)) if metric else np.eye(len(F))
    W = np.linalg.inv(S)
    n = None if known.published else h.sum()
    best, value = by_clarabel(F, y, W, known, n)
    found = sf.project(y, work, n, S if metric else None, constraints=known)
    off = found.answers - best
    assert found.converged
    assert -1e-5 * (1 + value) <= found.value - value <= found.gap + 1e-6 * (1 + value)
    assert np.sqrt(off @ W @ off) <= found.distance_bound + 1e-3
    table = table_of(found)
    assert table[~known.possible(found.attributes)].sum() == 0
    for t in known.published:
        if set(t.names) <= set(found.attributes):
            rest = tuple(i for i, m in enumerate(found.attributes) if m not in t.names)
            assert np.abs(table.sum(axis=rest) - t.values).max() <= 1e-9 * h.sum()


def test_projection_without_the_constraints_breaks_them() -> None:
    """The twin of the brute-force checks: they can fail."""
    h, known = case("linked", "a, b", 6)
    work = sf.marginals(DOMAIN, 3)
    y = h.reshape(-1) + 10 * np.random.default_rng(0).normal(size=24)
    free = table_of(sf.project(y, work, h.sum()))
    assert free[~known.possible(DOMAIN.names)].sum() > 1
    assert np.abs(margin(free, ["a"]) - margin(h, ["a"])).max() > 1


def test_a_condition_on_an_attribute_nobody_asks_about_still_counts() -> None:
    """a = 1 is impossible with both values of c, so it is impossible."""
    known = sf.Constraints(DOMAIN, ["a = 1 and c = 0", "a = 1 and c = 1"])
    found = sf.project([5.0, 5.0, 5.0], sf.marginals(DOMAIN, [["a"]]), 15, constraints=known)
    assert np.allclose(found.answers, [7.5, 0, 7.5], atol=1e-6)


def test_a_published_table_reaches_what_is_asked_through_a_condition() -> None:
    """c = 1 allows a = 2 only, and 7 of 10 records have c = 1."""
    known = sf.Constraints(DOMAIN, ["c = 1 and a < 2"], [("c", [3, 7])])
    found = sf.project([5.0, 5.0, 0.0], sf.marginals(DOMAIN, [["a"]]), constraints=known)
    assert np.allclose(found.answers, [1.5, 1.5, 7.0], atol=1e-4)


def test_impossible_cells_are_not_merged_with_others() -> None:
    """No query tells b apart, but a condition does."""
    known = sf.Constraints(DOMAIN, ["a = 0 and b >= 2"])
    found = sf.project([5.0, 5.0, 5.0], sf.marginals(DOMAIN, [["a"]]), 15, constraints=known)
    assert found.attributes == ("a",)
    both = sf.marginals(DOMAIN, [["a"]]) | sf.predicates(DOMAIN, ["b in (1, 2)"])
    found = sf.project([9.0, 0.0, 0.0, 0.0], both, 9, constraints=known)
    assert known.possible(found.attributes)[tuple(found.cells.T)].all()


@pytest.mark.parametrize("impossible", ["one", "linked"])
def test_the_largest_difference_knows_what_is_impossible(impossible: str) -> None:
    h, known = case(impossible, "nothing", 1)
    work = sf.marginals(DOMAIN, 2)
    F = dense_workload(work)
    y = F @ h.reshape(-1) + 10 * np.random.default_rng(2).normal(size=len(F))
    x = cp.Variable(24, nonneg=True)
    barred = ~known.possible(DOMAIN.names).reshape(-1)
    problem = cp.Problem(
        cp.Minimize(cp.norm_inf(F @ x - y)), [cp.sum(x) == h.sum(), x[barred] == 0]
    )
    problem.solve(solver="CLARABEL")
    found = sf.project(y, work, h.sum(), objective="max", constraints=known)
    assert found.value - found.gap - 1e-6 <= problem.value <= found.value + 1e-6
    assert table_of(found)[~known.possible(DOMAIN.names)].sum() == 0


def test_tables_that_contradict_each_other_are_refused_with_their_distance() -> None:
    known = sf.Constraints(DOMAIN, ["a = 0 and c = 0"], [("a", [9, 1, 0]), ("c", [9, 1])])
    with pytest.raises(WorkloadError, match=r"no data set has the published .* without an imposs"):
        sf.project(np.zeros(2), sf.marginals(DOMAIN, [["c"]]), constraints=known)
    circle = [
        (["a", "c"], [[5, 0], [0, 5], [0, 0]]),
        (["b", "c"], [[5, 0], [0, 5], [0, 0], [0, 0]]),
        (["a", "b"], [[0, 5, 0, 0], [5, 0, 0, 0], [0, 0, 0, 0]]),
    ]
    with pytest.raises(
        WorkloadError, match=r"no data set has the published .*: the nearest counts"
    ):
        sf.project(
            np.zeros(24), sf.marginals(DOMAIN, 3), constraints=sf.Constraints(DOMAIN, [], circle)
        )


def test_a_number_of_records_must_be_the_published_one() -> None:
    known = sf.Constraints(DOMAIN, published=[("c", [30, 20])])
    work = sf.marginals(DOMAIN, 1)
    with pytest.raises(WorkloadError, match="given as 51, but the published tables add up to 50"):
        sf.project(np.zeros(9), work, 51, constraints=known)
    assert sf.project(np.zeros(9), work, 50, constraints=known).total == pytest.approx(50)
    noisy = sf.project(np.zeros(9), work, (40.0, 3.0), constraints=known)
    assert noisy.total == pytest.approx(50)


def test_constraints_must_be_constraints_on_the_same_domain() -> None:
    work = sf.marginals(DOMAIN, 1)
    with pytest.raises(WorkloadError, match="another domain"):
        sf.project(np.zeros(9), work, 5, constraints=sf.Constraints(sf.Domain({"a": 3})))
    with pytest.raises(WorkloadError, match=r"sf.Constraints\(domain"):
        sf.project(np.zeros(9), work, 5, constraints=["a = 1"])  # type: ignore[arg-type]
    published = sf.Constraints(DOMAIN, published=[("c", [3, 2])])
    with pytest.raises(WorkloadError, match="no published tables"):
        sf.project(np.zeros(9), work, 5, objective="max", constraints=published)


def test_nothing_is_left_when_zero_records_are_published() -> None:
    known = sf.Constraints(DOMAIN, published=[("c", [0, 0])])
    found = sf.project(np.ones(9), sf.marginals(DOMAIN, 1), constraints=known)
    assert found.total == 0
    assert np.array_equal(found.answers, np.zeros(9))
