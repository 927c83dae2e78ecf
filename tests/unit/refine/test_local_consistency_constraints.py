"""Local consistency with impossible combinations and published tables, against Clarabel."""

from __future__ import annotations

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.refine.local_consistency import LocalTables, project_locally
from sfumato.refine.reconstruct import Fit, fit_answers
from sfumato.refine.residuals import maximal
from sfumato.workload.constraints import Published

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 3})
IMPOSSIBLE = {
    "nothing": [],
    "one": ["a = 0 and b >= 2"],
    "linked": ["a = 0 and b >= 2", "b = 3 and c = 1", "a = 2 and c = 0 and d = 0"],
}
PUBLISHED = {
    "nothing": [],
    "a": [["a"]],
    "chain": [["a", "b"], ["b", "c"]],
    "all": [["a"], ["b"], ["c"], ["d"]],
    "wide": [["a", "b", "c"]],
}
WORKS = {
    "pairs": lambda: sf.marginals(DOMAIN, 2),
    "triples": lambda: sf.marginals(DOMAIN, 3),
    "prefixes": lambda: (
        sf.prefixes(DOMAIN, "b", by=["a"]) | sf.marginals(DOMAIN, [["a", "c"], ["d"]])
    ),
}
CASES = [
    ("pairs", "one", "nothing"),
    ("pairs", "linked", "nothing"),
    ("pairs", "nothing", "a"),
    ("pairs", "linked", "chain"),
    ("pairs", "linked", "all"),
    ("pairs", "one", "wide"),
    ("triples", "linked", "nothing"),
    ("triples", "linked", "chain"),
    ("triples", "nothing", "wide"),
    ("prefixes", "one", "nothing"),
    ("prefixes", "nothing", "a"),
    ("prefixes", "linked", "all"),
    ("prefixes", "one", "wide"),
]


def margin(table: np.ndarray, names: tuple[str, ...], kept: tuple[str, ...]) -> np.ndarray:
    return table.sum(axis=tuple(i for i, n in enumerate(names) if n not in kept))


def case(name: str, impossible: str, published: str) -> tuple[Fit, float, sf.Constraints]:
    rng = np.random.default_rng(5)
    free = sf.Constraints(DOMAIN, IMPOSSIBLE[impossible])
    h = rng.multinomial(300, rng.dirichlet(np.full(DOMAIN.size, 0.3))).reshape(DOMAIN.shape) * 1.0
    h *= free.possible(DOMAIN.names)
    tables = [(s, margin(h, DOMAIN.names, tuple(s))) for s in PUBLISHED[published]]
    known = sf.Constraints(DOMAIN, IMPOSSIBLE[impossible], tables)
    work = WORKS[name]()
    answers = [t.answer(margin(h, DOMAIN.names, t.attributes)) for t in work.terms]
    noisy = [a + 8 * rng.normal(size=a.shape) for a in answers]
    return fit_answers(work, noisy), float(h.sum()), known


def summing(whole: tuple[str, ...], part: tuple[str, ...]) -> np.ndarray:
    cells = np.indices([DOMAIN[n].size for n in whole]).reshape(len(whole), -1)
    shape = [DOMAIN[n].size for n in part]
    to = np.ravel_multi_index([cells[whole.index(n)] for n in part], shape) if part else 0
    out = np.zeros((int(np.prod(shape)), cells.shape[1]))
    out[to, np.arange(cells.shape[1])] = 1
    return out


def by_clarabel(
    fit: Fit, n: float, known: sf.Constraints, published: tuple[Published, ...]
) -> float:
    tops = maximal((*fit.sets, *(t.names for t in published)))
    x = {s: cp.Variable(int(np.prod([DOMAIN[m].size for m in s])), nonneg=True) for s in tops}
    limits = [cp.sum(v) == n for v in x.values()]
    for s, t in combinations(tops, 2):
        shared = tuple(m for m in s if m in t)
        limits.append(summing(s, shared) @ x[s] == summing(t, shared) @ x[t])
    for s in tops:
        barred = ~known.possible(s).reshape(-1)
        limits += [x[s][barred] == 0] if barred.any() else []
        limits += [
            summing(s, p.names) @ x[s] == p.values.reshape(-1)
            for p in published
            if set(p.names) <= set(s)
        ]
    value = 0
    for part in fit.parts:
        names = part.term.attributes
        s = next(s for s in tops if set(names) <= set(s))
        cells = np.eye(part.term.cells).reshape(-1, *part.term.shape)
        F = np.stack([part.term.answer(cell) for cell in cells], axis=1)
        value += 0.5 * cp.sum_squares(F @ summing(s, names) @ x[s] - part.values)
    problem = cp.Problem(cp.Minimize(value), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(problem.value)


def breaches(
    found: LocalTables, known: sf.Constraints, published: tuple[Published, ...]
) -> dict[str, float]:
    """How far tables are from everything they must keep."""
    out = {"negative": 0.0, "impossible": 0.0, "published": 0.0, "shared": 0.0}
    for names, table in found.tables.items():
        out["negative"] = max(out["negative"], float(-table.min()))
        off = table[~known.possible(names)]
        out["impossible"] = max(out["impossible"], float(np.abs(off).max(initial=0.0)))
        for p in published:
            if set(p.names) <= set(names):
                off = np.abs(margin(table, names, p.names) - p.values)
                out["published"] = max(out["published"], float(off.max()))
    for (s, one), (t, other) in combinations(found.tables.items(), 2):
        shared = tuple(m for m in s if m in t)
        off = np.abs(margin(one, s, shared) - margin(other, t, shared))
        out["shared"] = max(out["shared"], float(off.max()))
    return out


@pytest.mark.parametrize(("name", "impossible", "published"), CASES)
def test_tables_are_the_best_that_keep_the_constraints(
    name: str, impossible: str, published: str
) -> None:
    fit, n, known = case(name, impossible, published)
    needed = known.published_for({m for s in fit.sets for m in s})
    best = by_clarabel(fit, n, known, needed)
    found = project_locally(fit, n, constraints=known)
    assert found.gap <= 1e-4 * found.value
    assert -1e-5 * best <= found.value - best <= found.gap + 1e-5 * best
    assert max(breaches(found, known, needed).values()) <= 1e-9 * n
    assert breaches(found, known, needed)["impossible"] == 0


def test_tables_without_the_constraints_break_them() -> None:
    fit, n, known = case("pairs", "linked", "chain")
    free = breaches(project_locally(fit, n), known, known.published)
    assert free["impossible"] > 0.1
    assert free["published"] > 1


def test_an_unknown_total_stays_unknown() -> None:
    fit, _, known = case("pairs", "linked", "nothing")
    found = project_locally(fit, None, constraints=known)
    assert max(breaches(found, known, ()).values()) <= 1e-9 * found.total
    assert found.gap <= 1e-4 * found.value


def test_tables_that_no_data_has_are_refused() -> None:
    fit, _, _ = case("pairs", "nothing", "nothing")
    tables = [("a", [9, 1, 0]), ("c", [9, 1])]
    known = sf.Constraints(DOMAIN, ["a = 0 and c = 0"], tables)
    with pytest.raises(WorkloadError, match="no data set has the published"):
        project_locally(fit, None, constraints=known)
    with pytest.raises(WorkloadError, match="given as 7, but the published"):
        project_locally(fit, 7.0, constraints=known)
