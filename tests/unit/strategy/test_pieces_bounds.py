"""The lower bound of unions of products, against the certified optimum of the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.solve.nuclear import certified_optimum
from sfumato.strategy.marginals import marginals_optimum
from sfumato.strategy.pieces import pieces, pinched_bound, sum_of_bounds
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 6, "b": 3, "c": 4})
CONTRASTS = np.array([[1, -1, 0, 0], [0, 1, -1, 0], [2, -2, 0, 0]])


def dense_optimum(work: Workload) -> tuple[float, float]:
    """Lower and upper ends of the least weighted squared error, by a dense Gram matrix."""
    cells = np.eye(work.domain.size)
    f = np.array([work.evaluate(e.reshape(work.domain.shape)) for e in cells]).T
    f = f * np.concatenate([np.full(t.rows, t.weight) for t in work.terms])[:, None]
    gram = f.T @ f

    def root_diagonal(v: np.ndarray) -> np.ndarray:
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(root, root))
        diagonal: np.ndarray = (vectors**2) @ np.sqrt(np.maximum(values, 0))
        return diagonal

    found = certified_optimum(root_diagonal, work.domain.size, 1e-4)
    return found.lower, found.upper


WORKS = {
    "prefixes by tables": sf.prefixes(DOMAIN, "a", by=["b"]) | sf.marginals(DOMAIN, 2),
    "two kinds on one attribute": sf.prefixes(DOMAIN, "a") | 3 * sf.ranges(DOMAIN, "a", by=["c"]),
    "contrasts": sf.product(DOMAIN, {"c": CONTRASTS, "a": "prefix"}) | sf.marginals(DOMAIN, 1),
    "all": sf.product(DOMAIN, {"a": "prefix", "b": "ranges", "c": "windows(2)"})
    | 0.2 * sf.marginals(DOMAIN, [(), ("a",), ("b", "c")])
    | sf.ranges(DOMAIN, "c", by=["b"]),
}


@pytest.mark.parametrize("name", list(WORKS))
def test_the_bound_is_below_the_optimum_and_above_that_of_the_terms_alone(name: str) -> None:
    work = WORKS[name]
    lower, upper = dense_optimum(work)
    bound = pinched_bound(work)
    assert sum_of_bounds(work) < bound <= upper
    assert bound >= 0.8 * lower
    found = pieces(work)
    assert found is not None
    assert found.bound is not None
    assert 0.98 * bound <= found.bound <= upper  # from the cell weights of the strategy alone
    assert found.weighted_error() >= max(bound, found.bound)


def test_random_unions_are_bounded_from_below() -> None:
    generator = np.random.default_rng(5)
    for _ in range(12):
        terms = []
        for _ in range(int(generator.integers(1, 4))):
            asked = {
                n: generator.integers(-1, 2, size=(int(generator.integers(1, 4)), DOMAIN[n].size))
                if generator.random() < 0.5
                else str(generator.choice(["prefix", "ranges", "identity"]))
                for n in DOMAIN.names
                if generator.random() < 0.7
            }
            weighted = float(generator.uniform(0.2, 3)) * sf.product(DOMAIN, asked)
            terms.append(weighted.terms[0])
        work = Workload(DOMAIN, tuple(terms))
        _, upper = dense_optimum(work)
        assert pinched_bound(work) <= upper * (1 + 1e-9)


def test_it_is_the_optimum_of_marginals_and_of_one_product() -> None:
    tables = sf.marginals(DOMAIN, 2) | 4 * sf.marginals(DOMAIN, [("c",), ()])
    found = marginals_optimum(tables)
    assert found is not None
    assert pinched_bound(tables) == pytest.approx(found.bound)
    alone = sf.product(DOMAIN, {"a": "prefix", "c": "ranges"})
    lower, upper = dense_optimum(alone)
    assert 0.99 * lower <= pinched_bound(alone) <= upper


def test_many_attributes_have_a_useful_certificate() -> None:
    """All 2-way tables of ten attributes, three by running totals: far beyond any dense matrix."""
    domain = sf.Domain({f"x{i}": n for i, n in enumerate([40, 30, 20, 9, 8, 7, 6, 5, 4, 3])})
    kinds = {n: "prefix" if i < 3 else "identity" for i, n in enumerate(domain.names)}
    names = domain.names
    terms = [
        sf.product(domain, {a: kinds[a], b: kinds[b]}).terms[0]
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    work = Workload(domain, tuple(terms))
    found = pieces(work)
    assert found is not None
    assert found.bound is not None
    assert 1 <= found.weighted_error() / found.bound <= 1.1**2
    assert found.weighted_error() / sum_of_bounds(work) > 4


def test_where_it_does_not_apply_it_says_nothing() -> None:
    assert pinched_bound(sf.predicates(DOMAIN, ["a = 1"])) == 0
    assert pinched_bound(sf.prefixes(sf.Domain({"t": 5000}), "t")) == 0
    many = sf.Domain({f"x{i}": 2 for i in range(30)})
    assert pinched_bound(sf.marginals(many, 30)) == 0
