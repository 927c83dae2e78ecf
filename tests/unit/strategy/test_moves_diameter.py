"""Replace-one neighbours: the stated diameter against all pairs of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.calibrate import privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import choose
from sfumato.strategy.base import Strategy
from sfumato.strategy.moves import l1_diameter, pair_moves, squared_diameter
from sfumato.strategy.trees import Tree
from sfumato.workload.terms import Product
from tests.shared.every_mechanism import kept

DOMAIN = sf.Domain({"a": 5, "b": 3, "c": 2})


def columns(term: object) -> np.ndarray:
    drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in term.attributes)  # type: ignore[attr-defined]
    units = (e.reshape(DOMAIN.shape).sum(axis=drop) for e in np.eye(DOMAIN.size))
    return np.array([term.answer(u) for u in units])  # type: ignore[attr-defined]


def true_diameter(rows: np.ndarray) -> float:
    return max(float(((x - y) ** 2).sum()) for x, y in combinations(rows, 2))


def true_l1_diameter(rows: np.ndarray) -> float:
    return max(float(np.abs(x - y).sum()) for x, y in combinations(rows, 2))


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


@pytest.mark.parametrize("name", EXACT)
def test_the_l1_diameter_of_simple_blocks_is_exact(name: str) -> None:
    term = EXACT[name].terms[0]
    true = true_l1_diameter(columns(term))
    assert true <= l1_diameter(term) <= true * (1 + 1e-6) + 1e-12


def strategies(law: str) -> list[Strategy]:
    work = sf.prefixes(DOMAIN, "a", by=["b"]) | sf.marginals(DOMAIN, 2) | sf.marginals(DOMAIN, [()])
    budget = sf.Budget(mu=1) if law == "gaussian" else sf.Budget(epsilon=1)
    names = [m for m, (_, noise) in MECHANISMS.items() if noise == law]
    names.remove(f"{law}-fourier")  # for yes/no attributes only
    return [choose(work, budget, "replace-one", mechanism=m).strategy for m in names]


@pytest.mark.parametrize("strategy", strategies("gaussian"), ids=lambda s: s.mechanism)
def test_no_pair_of_cells_is_farther_apart_than_stated(strategy: Strategy) -> None:
    for block, stated in zip(strategy.blocks, strategy.block_diameters(2), strict=True):
        true = true_diameter(columns(block.term))
        assert true <= stated * (1 + 1e-12), block.term.name


@pytest.mark.parametrize("strategy", strategies("laplace"), ids=lambda s: s.mechanism)
def test_no_pair_of_cells_is_farther_apart_in_l1_than_stated(strategy: Strategy) -> None:
    blocks = [columns(b.term) for b in strategy.blocks]
    for own, stated in zip(blocks, strategy.block_diameters(1), strict=True):
        assert true_l1_diameter(own) <= stated * (1 + 1e-12)
    whole = np.hstack([b * s for b, s in zip(blocks, strategy.shares, strict=True)])
    alone = float(np.abs(whole).sum(axis=1).max())
    between = true_l1_diameter(whole) * (1 - 1e-12)
    assert between <= strategy.sensitivity(1, "replace-one", False).power <= 2 * alone * (1 + 1e-6)
    assert max(between, alone) <= strategy.sensitivity(1, "replace-one", True).power


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("strategy", strategies("laplace"), ids=lambda s: s.mechanism)
def test_on_small_domains_the_l1_distance_is_exact(strategy: Strategy, drops: bool) -> None:
    """Of all blocks together; twice the longest column was up to twice as much."""
    blocks = [columns(b.term) * s for b, s in zip(strategy.blocks, strategy.shares, strict=True)]
    whole = np.hstack(blocks)
    true = true_l1_diameter(whole)
    if drops:
        true = max(true, float(np.abs(whole).sum(axis=1).max()))
    stated = strategy.sensitivity(1, "replace-one", drops).power
    assert true * (1 - 1e-12) <= stated <= true * (1 + 1e-6)


@pytest.mark.parametrize(
    ("work", "sensitivity"),
    [
        (lambda d: sf.prefixes(d, "a"), 99),  # and not twice 100: the last threshold is the total
        (lambda d: sf.product(d, {"a": [list(range(18, 118))]}), 99),  # a sum: its range
        (lambda d: sf.marginals(d, 1), 2),
    ],
)
def test_laplace_noise_for_replaced_records_is_that_of_the_l1_diameter(
    work: Callable[[sf.Domain], sf.Workload], sensitivity: float
) -> None:
    """The twin: of 1% less noise the stated loss is above the budget."""
    found = choose(work(kept({"a": 100})), sf.Budget(epsilon=1), "replace-one", mechanism="laplace")
    assert found.noise[0].scale == pytest.approx(sensitivity, rel=1e-4)
    low = [replace(n, units=int(0.99 * n.units)) for n in found.noise]
    assert privacy_loss(found.strategy, found.noise, "replace-one") <= 1
    assert privacy_loss(found.strategy, low, "replace-one") > 1


def test_a_record_in_no_cell_moves_by_its_whole_column() -> None:
    """A domain that drops what it does not know has no public total: 100, not 99."""
    work = sf.prefixes(sf.Domain({"a": 100}), "a")
    found = choose(work, sf.Budget(epsilon=1), "replace-one", mechanism="laplace")
    assert found.noise[0].scale == pytest.approx(100, rel=1e-4)


def test_differences_of_marginals_are_near_two_columns_not_four() -> None:
    work = sf.marginals(sf.Domain({"a": 50, "b": 40}), 2)
    strategy = choose(work, sf.Budget(mu=1), "replace-one", mechanism="factorization").strategy
    whole = sum(
        d * b.share**2 for d, b in zip(strategy.block_diameters(2), strategy.blocks, strict=True)
    )
    assert whole <= 2.2 * strategy.sensitivity(2).power


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


FAR, NEAR = 2.0**30, 2.0**30 + 1


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([[FAR, NEAR]], 1.0), ([[FAR, NEAR], [-FAR, -FAR - 3]], 10.0), ([[FAR, FAR]], 0.0)],
)
def test_long_columns_that_nearly_agree_are_told_apart(
    rows: list[list[float]], expected: float
) -> None:
    """Their squares are no floats: the plain difference of the Gram matrix is 0, the twin."""
    term = sf.product(sf.Domain({"x": 2}), {"x": rows}).terms[0]
    assert expected <= squared_diameter(term) <= expected * (1 + 1e-6)
    gram = np.array(rows).T @ np.array(rows)
    assert gram[0, 0] + gram[1, 1] - 2 * gram[0, 1] < max(expected, 1e-9)


def test_a_product_of_long_columns_is_no_public_total() -> None:
    domain = sf.Domain({"x": 2, "y": 2})
    term = sf.product(domain, {"x": [[FAR, NEAR]], "y": [[1000.25, 1000.0]]}).terms[0]
    assert squared_diameter(term) >= (FAR * 0.25) ** 2
    whole = sf.product(domain, {"x": [[3, 3]], "y": [[2, 2]]}).terms[0]
    assert squared_diameter(whole) == 0


def test_moves_of_columns_beyond_floats_are_not_listed() -> None:
    domain = sf.Domain({"x": 2, "y": 2})
    fine = sf.product(domain, {"x": [[FAR + 2.0**-20, FAR]], "y": [[1, 1 + 2.0**-20]]}).terms[0]
    assert pair_moves([fine], drops=False) is None
    assert pair_moves([sf.marginals(domain, 1).terms[0]], drops=False) is not None


# Given coefficients on more cells than are listed pair by pair


def _many(kind: str, seed: int) -> sf.Workload:
    domain = sf.Domain({"x": 20, "y": 10})
    r = np.random.default_rng(seed)
    if kind == "conditions":
        sets = [f"x in ({', '.join(map(str, r.permutation(20)[:9]))})" for _ in range(12)]
        return sf.predicates(domain, [f"{s} and y < {i % 7 + 1}" for i, s in enumerate(sets)])
    entries = {
        "0 and 1": lambda: r.integers(0, 2, (40, 200)),
        "fractions": lambda: r.integers(-(2**20), 2**20, (40, 200)) / 2**20,
    }[kind]()
    return sf.explicit(domain, ["x", "y"], entries)


@pytest.mark.parametrize(("mechanism", "p"), [("gaussian", 2), ("laplace", 1)])
@pytest.mark.parametrize("kind", ["0 and 1", "fractions", "conditions"])
def test_the_sensitivity_of_given_coefficients_is_exact_on_many_cells(
    kind: str, mechanism: str, p: int
) -> None:
    work = _many(kind, 7)
    rows = np.concatenate([t.dense() for t in work.terms])
    budget = sf.Budget(epsilon=1, delta=1e-6)
    strategy = choose(work, budget, "replace-one", mechanism=mechanism).strategy
    stated = strategy.sensitivity(p, "replace-one").power
    pairs = [np.abs(x - y) ** p for x, y in combinations(rows.T, 2)]
    true = float(np.max(np.sum(pairs, axis=1)))
    assert true * (1 - 1e-12) <= stated * strategy.shares[0] ** -p <= true * 1.0001
    drops = strategy.sensitivity(p, "replace-one", may_drop_records=True).power
    longest = float((np.abs(rows) ** p).sum(axis=0).max())
    assert drops * strategy.shares[0] ** -p >= max(true, longest) * (1 - 1e-12)
    # A twin that takes a record for added states too little for some neighbour, or too much.
    added = strategy.sensitivity(p, "add-remove").power * strategy.shares[0] ** -p
    assert abs(added / true - 1) > 0.001
