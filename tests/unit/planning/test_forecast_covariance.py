"""Covariances and combinations of answers, of every kind of strategy, against a dense R."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import combined
from sfumato.strategy.factorization import factorization
from sfumato.strategy.marginals import marginals_optimum
from sfumato.strategy.pieces import pieces
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 5, "b": 2, "c": 4})
TABLES = sf.marginals(DOMAIN, 2) | 2 * sf.marginals(DOMAIN, [("b",), ()])
MIXED = sf.prefixes(DOMAIN, "a", by=["b"]) | sf.ranges(DOMAIN, "c") | sf.marginals(DOMAIN, 2)
PRODUCT = sf.product(DOMAIN, {"a": "prefix", "b": "identity", "c": "windows(2)"})
ANY = MIXED | sf.predicates(DOMAIN, ["a < 2 OR c = 1", "b = 0"])


def by_symmetry(work: Workload) -> Strategy:
    problem = orbit_problem(work)
    assert problem is not None
    return factorization(work, problem, problem.solve(1e-4))


def planned(work: Workload, mechanism: str) -> Strategy:
    budget = sf.Budget(epsilon=1) if mechanism.startswith("laplace") else sf.Budget(mu=1)
    return sf.plan(work, budget, mechanism=mechanism).strategy


def side_by_side() -> Strategy:
    last = len(MIXED.terms)
    others = planned(Workload(DOMAIN, ANY.terms[last:]), "gaussian")
    return combined("factorization", ANY, [(by_symmetry(MIXED), range(last)), (others, [last])])


CASES = {
    "marginals": lambda: marginals_optimum(TABLES),
    "pieces": lambda: pieces(MIXED),
    "pieces of tables": lambda: pieces(TABLES),
    "factors": lambda: planned(PRODUCT, "factorization"),
    "symmetries": lambda: by_symmetry(MIXED),
    "symmetries of tables": lambda: by_symmetry(TABLES),
    "combined": side_by_side,
    "queries": lambda: planned(ANY, "gaussian"),
    "table": lambda: planned(ANY, "gaussian-table"),
    "trees": lambda: planned(ANY, "laplace-tree"),
    "groups": lambda: planned(ANY, "gaussian-groups"),
}


@pytest.fixture(params=list(CASES))
def strategy(request: pytest.FixtureRequest) -> Strategy:
    found: Strategy = CASES[request.param]()
    return found


def dense_rows(strategy: Strategy, term: int) -> list[np.ndarray]:
    """R of one term, a matrix per block: the answers to every unit of measured values."""
    out = []
    values = [np.zeros(rows) for rows in strategy.block_rows]
    for y in values:
        columns = []
        for i in range(len(y)):
            y[i] = 1.0
            columns.append(strategy.answer(term, values).copy())
            y[i] = 0.0
        out.append(np.array(columns).T)
    return out


def test_adjoint_and_covariance_are_those_of_the_dense_reconstruction(strategy: Strategy) -> None:
    generator = np.random.default_rng(0)
    noise = generator.uniform(0.5, 2.0, size=len(strategy.blocks)).tolist()
    for t, term in enumerate(strategy.workload.terms):
        rows = dense_rows(strategy, t)
        c = generator.standard_normal(term.rows)
        found = strategy.adjoint(t, c)
        plain = Strategy.adjoint(strategy, t, c)
        for b, r in enumerate(rows):
            np.testing.assert_allclose(found.get(b, np.zeros(r.shape[1])), c @ r, atol=1e-9)
            np.testing.assert_allclose(plain.get(b, np.zeros(r.shape[1])), c @ r, atol=1e-9)
        whole = sum(v * r @ r.T for v, r in zip(noise, rows, strict=True))
        listed = generator.integers(0, term.rows, size=6).tolist()
        wanted = whole[np.ix_(listed, listed)]
        np.testing.assert_allclose(strategy.covariance(t, listed, noise), wanted, atol=1e-9)
        np.testing.assert_allclose(
            Strategy.covariance(strategy, t, listed, noise), wanted, atol=1e-9
        )
        np.testing.assert_allclose(strategy.variances(t, noise), np.diag(whole), atol=1e-9)


def test_listed_answers_of_a_table_of_a_million_cells_need_no_table() -> None:
    domain = sf.Domain({"a": 100, "b": 100, "c": 100, "d": 100})
    found = marginals_optimum(sf.marginals(domain, 3))
    assert found is not None
    unit = [share**-2 for share in found.shares]
    covariance = found.covariance(0, [0, 1, 999_999], unit)
    assert covariance[0, 0] == pytest.approx(found.maximum_variance(0, unit))
    assert np.linalg.eigvalsh(covariance).min() > 0
    assert covariance[0, 1] < 0  # cells of one row, whose sum is known better than each
    assert abs(covariance[0, 2]) < covariance[0, 0] / 100
