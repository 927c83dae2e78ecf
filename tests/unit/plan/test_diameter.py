"""Replace-one neighbours: the stated diameter against all pairs of cells."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.plan.diameter import squared_diameter
from sfumato.plan.planner import MECHANISMS, choose
from sfumato.plan.strategy import Strategy
from sfumato.plan.transforms.tree import Tree
from sfumato.workload.products import Product

DOMAIN = sf.Domain({"a": 5, "b": 3, "c": 2})


def columns(term: object) -> np.ndarray:
    drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in term.attributes)  # type: ignore[attr-defined]
    units = (e.reshape(DOMAIN.shape).sum(axis=drop) for e in np.eye(DOMAIN.size))
    return np.array([term.answer(u) for u in units])  # type: ignore[attr-defined]


def true_diameter(rows: np.ndarray) -> float:
    return max(float(((x - y) ** 2).sum()) for x, y in combinations(rows, 2))


EXACT = {
    "table": sf.marginals(DOMAIN, [("a", "b")]),
    "prefix": sf.prefixes(DOMAIN, "a"),
    "total": sf.marginals(DOMAIN, [()]),
    "signed": sf.product(DOMAIN, {"a": [[1, -2, 0, 3, 0.5]]}),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_diameter_of_simple_blocks_is_exact(name: str) -> None:
    term = EXACT[name].terms[0]
    true = true_diameter(columns(term))
    assert true <= squared_diameter(term) <= true * (1 + 1e-6) + 1e-12


def strategies() -> list[Strategy]:
    work = sf.prefixes(DOMAIN, "a", by=["b"]) | sf.marginals(DOMAIN, 2) | sf.marginals(DOMAIN, [()])
    budget = sf.Budget(mu=1)
    gaussian = [m for m, (_, noise) in MECHANISMS.items() if noise == "gaussian"]
    gaussian.remove("gaussian-fourier")  # for yes/no attributes only
    return [choose(work, budget, "replace-one", mechanism=m).strategy for m in gaussian]


@pytest.mark.parametrize("strategy", strategies(), ids=lambda s: s.mechanism)
def test_no_pair_of_cells_is_farther_apart_than_stated(strategy: Strategy) -> None:
    for block, stated in zip(strategy.blocks, strategy.diameters, strict=True):
        true = true_diameter(columns(block.term))
        assert true <= stated * (1 + 1e-12), block.term.name


def test_differences_of_marginals_are_near_two_columns_not_four() -> None:
    work = sf.marginals(sf.Domain({"a": 50, "b": 40}), 2)
    strategy = choose(work, sf.Budget(mu=1), "replace-one", mechanism="factorization").strategy
    whole = sum(d * b.share**2 for d, b in zip(strategy.diameters, strategy.blocks, strict=True))
    assert whole <= 2.2 * strategy.column_norm(2).power


def test_a_histogram_needs_seven_tenths_of_the_naive_noise() -> None:
    """Naive: twice the longest column. The difference is the factor sqrt(2) / 2."""
    domain = sf.Domain({"a": 100})
    plan = sf.plan(sf.marginals(domain, 1), sf.Budget(mu=1), "replace-one")
    naive = 2.0  # sigma at mu = 1 and sensitivity 2
    assert plan.rmse <= 0.75 * naive


def test_a_tree_is_covered() -> None:
    term = Product(DOMAIN, "t", 1.0, (("a", Tree(5, 2)),))
    true = true_diameter(columns(term))
    assert true <= squared_diameter(term)


def test_a_total_alone_still_gets_noise() -> None:
    for epsilon in (sf.Budget(epsilon=1), sf.Budget(mu=1)):
        plan = sf.plan(sf.marginals(DOMAIN, [()]), epsilon, "replace-one")
        assert plan.rmse > 0.5
