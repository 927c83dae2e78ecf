# SPDX-License-Identifier: Apache-2.0
"""The optimum for replaced records: exact diameters, bounds below every strategy, no bias."""

from __future__ import annotations

from itertools import product as cartesian
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.strategy.base import Strategy, check_unbiased
from sfumato.strategy.factorization import Factorization
from sfumato.strategy.neighbours.cell_pairs import best_on_cells
from sfumato.strategy.neighbours.replace_one import best_for_pairs
from sfumato.types import Array
from sfumato.workload.workload import Workload


def _columns(strategy: Strategy) -> Array:
    """M over all cells of the domain, blocks times their shares."""
    domain = strategy.workload.domain
    cells = [tuple(c) for c in cartesian(*(range(n) for n in domain.shape))]
    out = []
    for cell in cells:
        table = np.zeros(domain.shape, dtype=np.int64)
        table[cell] = 1
        parts = []
        for block in strategy.blocks:
            axes = tuple(i for i, n in enumerate(domain.names) if n not in block.term.attributes)
            values = np.asarray(block.term.apply(table.sum(axis=axes)), dtype=np.float64)
            parts.append(block.share * np.ldexp(values, -block.term.fraction_bits))
        out.append(np.concatenate(parts))
    return np.array(out).T


def _queries(workload: Workload) -> Array:
    domain = workload.domain
    rows = []
    for cell in cartesian(*(range(n) for n in domain.shape)):
        table = np.zeros(domain.shape, dtype=np.int64)
        table[tuple(cell)] = 1
        answers = []
        for term in workload.terms:
            axes = tuple(i for i, n in enumerate(domain.names) if n not in term.attributes)
            answers.append(np.asarray(term.apply(table.sum(axis=axes)), dtype=np.float64))
        rows.append(np.concatenate(answers))
    return np.array(rows).T


def _squared_diameter(columns: Array, drops: bool) -> float:
    if drops:
        columns = np.append(columns, np.zeros((len(columns), 1)), axis=1)
    apart = columns[:, :, None] - columns[:, None, :]
    return float((apart**2).sum(axis=0).max())


def _workloads() -> dict[str, Workload]:
    one = sf.Domain({"a": 12})
    two = sf.Domain({"a": 6, "b": 3})
    three = sf.Domain({"a": 4, "b": 3, "c": 2})
    return {
        "prefixes": sf.prefixes(one, "a"),
        "ranges": sf.ranges(one, "a"),
        "prefixes by a table": sf.prefixes(two, "a", by=["b"]),
        "prefixes of pairs": sf.product(two, {"a": "prefix", "b": "prefix"}),
        "prefixes beside tables": sf.prefixes(three, "a") | sf.marginals(three, 2),
        "prefixes by one beside tables": sf.prefixes(three, "a", by=["c"]) | sf.marginals(three, 2),
    }


WORKLOADS = _workloads()


def _best(name: str, drops: bool) -> Factorization:
    best = best_on_cells(WORKLOADS[name], drops)
    assert best is not None
    return best


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_diameter_is_that_of_all_pairs_of_cells(name: str, drops: bool) -> None:
    strategy = _best(name, drops)
    exact = _squared_diameter(_columns(strategy), drops)
    bound = strategy.sensitivity(2, "replace-one", drops).power
    assert exact <= bound <= exact * (1 + 1e-6)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_diameter_holds_for_any_scales_of_the_blocks(name: str) -> None:
    strategy = _best(name, False)
    random = np.random.default_rng(7)
    for _ in range(3):
        scales = random.exponential(size=len(strategy.blocks)) * np.square(strategy.shares)
        parts = []
        for block, scale in zip(strategy.blocks, scales, strict=True):
            alone = Factorization(
                "", "gaussian", strategy.workload, (block,), strategy.axes, (), ()
            )
            parts.append(_columns(alone) / block.share * sqrt(scale))
        exact = _squared_diameter(np.concatenate(parts), False)
        bound = strategy.sensitivity(2, "replace-one", False, scales.tolist()).power
        assert exact <= bound <= exact * (1 + 1e-6)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_next_to_its_bound_and_unbiased(name: str, drops: bool) -> None:
    strategy = _best(name, drops)
    check_unbiased(strategy)
    assert strategy.replace_one_bound is not None
    ratio = strategy.weighted_error("rmse", "replace-one", drops) / strategy.replace_one_bound
    assert 1 <= ratio <= 1.004**2


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_strategy_errs_less_than_the_bound(name: str, drops: bool) -> None:
    """Brute force: random invertible matrices, and descents from them, all of diameter 1."""
    queries, bound = _queries(WORKLOADS[name]), _best(name, drops).replace_one_bound
    assert bound is not None
    random = np.random.default_rng(3)
    cells = queries.shape[1]
    root = np.linalg.cholesky(queries.T @ queries + 1e-9 * np.eye(cells)).T
    for trial in range(8):
        tilt = 0.0 if trial == 0 else 0.3
        matrix = np.linalg.qr(random.normal(size=(cells, cells)))[0] @ np.sqrt(np.abs(root))
        matrix = root * (1 - tilt) + tilt * matrix if trial % 2 else np.eye(cells) + tilt * matrix
        if not drops:  # the total is public: measured without noise
            matrix = np.append(matrix, np.full((1, cells), 1e6), axis=0)
        reading = queries @ np.linalg.pinv(matrix)
        error = float((reading**2).sum()) * _squared_diameter(matrix, drops)
        assert error >= bound * (1 - 1e-6)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("name", ["prefixes", "prefixes of pairs", "prefixes beside tables"])
def test_pairs_of_listed_queries_have_the_same_optimum(name: str, drops: bool) -> None:
    """Two programs for one number: with symmetries on cells, and without on listed queries."""
    listed = best_for_pairs(WORKLOADS[name], "rmse", drops)
    assert listed is not None
    errors = [s.weighted_error("rmse", "replace-one", drops) for s in (listed, _best(name, drops))]
    assert errors[0] == pytest.approx(errors[1], rel=8e-3)  # within 0.4%, squared


def test_a_bound_for_too_small_a_diameter_would_be_noticed() -> None:
    """Twin: the sum over blocks of each one's own least distance is below the diameter."""
    strategy = _best("prefixes by one beside tables", False)
    exact = _squared_diameter(_columns(strategy), False)
    most = max(
        share**2 * d for share, d in zip(strategy.shares, strategy.block_diameters(2), strict=True)
    )
    assert most < exact * (1 - 1e-3)


@pytest.mark.parametrize(
    "work",
    [
        sf.prefixes(sf.Domain({"a": 300}), "a"),
        sf.ranges(sf.Domain({"a": 300}), "a"),
        sf.product(sf.Domain({"a": 20, "b": 12}), {"a": "prefix", "b": "ranges"}),
        sf.windows(sf.Domain({"a": 200}), "a", 20),
    ],
)
def test_plans_for_replaced_records_are_at_the_optimum_beyond_160_cells(work: Workload) -> None:
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one", cache=False)
    assert plan.certificate is not None
    assert plan.certificate <= 1.01


def test_replaced_records_of_tables_beside_prefixes_take_no_matrix_of_all_cells() -> None:
    domain = sf.Domain({"age": 100, "sex": 2, "race": 5, "edu": 16})
    work = sf.prefixes(domain, "age", by=["sex"]) | sf.marginals(domain, 2)
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one", cache=False, steps=2e11)
    assert plan.certificate is not None
    assert plan.certificate <= 1.01
    assert plan.rmse == pytest.approx(2.978, rel=1e-3)  # 4.24 with diameters added up by block
