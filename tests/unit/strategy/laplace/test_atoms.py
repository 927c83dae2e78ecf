# SPDX-License-Identifier: Apache-2.0
"""Laplace strategies on atoms and in the span of the queries, against matrices written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.strategy.base import Strategy
from sfumato.strategy.laplace import atoms
from sfumato.strategy.laplace.atoms import (
    AtomSums,
    atoms_of,
    in_span,
    on_atoms,
    replacements,
    span_error,
)
from sfumato.strategy.matrix import dense
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 4, "b": 3, "c": 2})
A, B, C = (sf.attribute(DOMAIN, name) for name in "abc")
RANDOM = np.random.default_rng(3)
WORKLOADS: dict[str, Workload] = {
    "conditions": sf.predicates(DOMAIN, [(A < 2) | (B == 1), A >= 1, (B < 2) & (C == 0), A < 2]),
    "coefficients": sf.explicit(DOMAIN, ["a", "b"], RANDOM.integers(-3, 4, size=(5, 12)) / 4),
    "products": sf.product(DOMAIN, {"a": "prefix", "b": "identity"}) | sf.marginals(DOMAIN, 1),
    "all kinds": sf.predicates(DOMAIN, [(A < 3) & (B > 0)])
    | sf.explicit(DOMAIN, ["b", "c"], RANDOM.integers(0, 3, size=(2, 6)))
    | sf.prefixes(DOMAIN, "a"),
    "a part of the cells": sf.predicates(DOMAIN, [(A == 1) & (B == 1), (A == 1) & (C == 0)]),
}
BUILDERS: dict[str, Callable[..., Strategy]] = {"atoms": on_atoms, "span": in_span}
BOTH = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
EVERY = pytest.mark.parametrize("name", WORKLOADS)


def measured(strategy: Strategy) -> np.ndarray:
    """M, by counting one record in every cell of the domain."""
    domain = strategy.workload.domain
    (block,) = strategy.blocks
    names = block.term.attributes
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    cells = np.eye(domain.size, dtype=np.int64).reshape(-1, *domain.shape)
    return np.array([block.term.answer(cell.sum(axis=rest)) for cell in cells]).T


def read(strategy: Strategy) -> np.ndarray:
    """R, by unit values."""
    units = np.eye(sum(strategy.block_rows))
    return np.column_stack([np.concatenate(strategy.answers([unit])) for unit in units])


@EVERY
def test_atoms_are_the_different_columns_that_are_not_zero(name: str) -> None:
    work = WORKLOADS[name]
    merged = atoms_of(DOMAIN, work.terms)
    names = [DOMAIN.index(n) for n in merged.names]
    table = np.arange(DOMAIN.size).reshape(DOMAIN.shape)
    place = np.unravel_index(np.arange(DOMAIN.size), DOMAIN.shape)
    of = merged.atom_of.reshape([DOMAIN.shape[i] for i in names])[tuple(place[i] for i in names)]
    matrix = dense_workload(work)[:, table.reshape(-1)]
    padded = np.append(merged.columns, np.zeros((len(matrix), 1)), axis=1)
    np.testing.assert_array_equal(padded[:, of], matrix)
    columns = np.unique(matrix, axis=1)
    assert merged.columns.shape[1] == columns.any(axis=0).sum()


@BOTH
@EVERY
@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_answers_errors_and_sensitivities_are_those_of_the_matrices(
    build: Callable[..., Strategy], name: str, objective: str
) -> None:
    work = WORKLOADS[name]
    strategy = build(work, objective)
    m, r, f = measured(strategy), read(strategy), dense_workload(work)
    np.testing.assert_allclose(r @ m, f, atol=1e-9 * np.abs(f).max())
    squares = np.concatenate([strategy.variances(t, [2.0]) for t in range(len(work.terms))])
    np.testing.assert_allclose(squares, 2 * (r**2).sum(axis=1), rtol=1e-9)
    shapes = np.concatenate([strategy.effective_terms(t) for t in range(len(work.terms))])
    np.testing.assert_allclose(shapes, (r**2).sum(axis=1) ** 2 / (r**4).sum(axis=1), rtol=1e-9)
    columns = np.abs(m).sum(axis=0)
    assert strategy.sensitivity(1, scales=[1.0]).power == pytest.approx(columns.max(), rel=1e-8)
    pairs = [np.abs(m[:, i] - m[:, j]).sum() for i, j in combinations(range(m.shape[1]), 2)]
    apart = strategy.sensitivity(1, "replace-one", scales=[1.0]).power
    assert max(pairs) <= apart <= max(pairs) * (1 + 1e-8)
    dropped = strategy.sensitivity(1, "replace-one", True, scales=[1.0]).power
    assert max(*pairs, columns.max()) <= dropped * (1 + 1e-12)


@EVERY
@pytest.mark.parametrize("drops", [False, True])
def test_mixtures_for_replaced_records_are_made_for_the_diameter(name: str, drops: bool) -> None:
    work = WORKLOADS[name]
    strategy = in_span(work, moves=replacements(drops))
    m, r, f = measured(strategy), read(strategy), dense_workload(work)
    np.testing.assert_allclose(r @ m, f, atol=1e-9 * np.abs(f).max())
    pairs = [np.abs(m[:, i] - m[:, j]).sum() for i, j in combinations(range(m.shape[1]), 2)]
    farthest = max(pairs + [np.abs(m).sum(axis=0).max()] * drops)
    apart = strategy.sensitivity(1, "replace-one", drops, scales=[1.0]).power
    assert farthest * (1 - 1e-12) <= apart <= farthest * (1 + 1e-8)
    usual = in_span(work).weighted_error("rmse", "replace-one", drops)
    assert strategy.weighted_error("rmse", "replace-one", drops) <= 1.1 * usual


@BOTH
@EVERY
def test_no_strategy_errs_less_than_its_bound(build: Callable[..., Strategy], name: str) -> None:
    strategy = build(WORKLOADS[name])
    assert strategy.bound is not None
    assert strategy.weighted_error() >= strategy.bound * (1 - 1e-9)
    best = dense(WORKLOADS[name])  # for Gaussian noise
    assert strategy.bound <= best.weighted_error() * (1 + 1e-9)


@BOTH
@pytest.mark.parametrize("factors", [[1] * 7, [1, -1, 1], [1, 2, 3, 10], [0.25, -4]])
def test_multiples_of_one_query_cost_one_query(
    build: Callable[..., Strategy], factors: list[float]
) -> None:
    row = (np.arange(12) % 3 > 0) * 1.0
    work = sf.explicit(DOMAIN, ["a", "b"], np.outer(factors, row))
    strategy = build(work)
    assert strategy.weighted_error() == pytest.approx(float(np.square(factors).sum()), rel=1e-6)


@BOTH
def test_the_order_of_queries_and_cells_that_are_alike_change_nothing(
    build: Callable[..., Strategy],
) -> None:
    matrix = RANDOM.integers(0, 2, size=(6, 9)) * 1.0
    line, twice = sf.Domain({"x": 9}), sf.Domain({"x": 9, "y": 2})
    errors = [
        build(work.normal.workload).weighted_error()
        for work in (
            sf.explicit(line, ["x"], matrix),
            sf.explicit(line, ["x"], matrix[::-1]),
            sf.explicit(twice, ["x", "y"], np.repeat(matrix, 2, axis=1)),
            sf.predicates(
                line, [sf.attribute(line, "x").isin(np.flatnonzero(r).tolist()) for r in matrix]
            ),
        )
    ]
    assert errors == pytest.approx([errors[0]] * len(errors), rel=1e-6)


def test_few_queries_on_many_cells_are_mixed_and_many_on_few_are_read_from_atoms() -> None:
    line = sf.Domain({"x": 200})
    few = sf.explicit(line, ["x"], np.round(RANDOM.random((4, 200)), 3))
    assert in_span(few).weighted_error() < 0.9 * on_atoms(few).weighted_error()
    line = sf.Domain({"x": 12})
    many = sf.explicit(line, ["x"], RANDOM.integers(0, 2, size=(30, 12)))
    assert on_atoms(many).weighted_error() < 0.98 * in_span(many).weighted_error()


def test_the_largest_error_is_less_where_it_is_the_objective() -> None:
    work = sf.explicit(DOMAIN, ["a", "b"], np.tril(np.ones((12, 12))))
    for build in BUILDERS.values():
        assert build(work, "max").weighted_error("max") <= build(work).weighted_error("max")


@EVERY
def test_columns_that_join_later_count_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more kinds of cells than a step looks at."""
    few = replace(atoms.LIMITS, span_columns=8, span_rounds=4)
    monkeypatch.setattr(atoms, "LIMITS", few)
    strategy = in_span(WORKLOADS[name])
    m, r, f = measured(strategy), read(strategy), dense_workload(WORKLOADS[name])
    np.testing.assert_allclose(r @ m, f, atol=1e-9 * np.abs(f).max())
    longest = np.abs(m).sum(axis=0).max()
    assert strategy.sensitivity(1, scales=[1.0]).power == pytest.approx(longest, rel=1e-8)
    assert strategy.weighted_error() <= 1.1 * len(f) * np.abs(f).sum(axis=0).max() ** 2


def test_the_gradient_of_the_span_error_is_its_slope() -> None:
    columns, mixing = RANDOM.normal(size=(3, 9)), RANDOM.normal(size=(5, 3))
    value, slope = span_error(columns, mixing, 16)
    for i in np.ndindex(mixing.shape):
        step = np.zeros_like(mixing)
        step[i] = 1e-6
        up, down = (span_error(columns, mixing + s, 16)[0] for s in (step, -step))
        assert (up - down) / 2e-6 == pytest.approx(slope[i], abs=1e-6 * (1 + abs(value)))


def test_too_many_kinds_of_cells_are_refused_before_they_are_listed() -> None:
    wide = sf.Domain({"x": 1600})
    with pytest.raises(TooLarge, match="atoms"):
        atoms_of(wide, sf.prefixes(wide, "x").terms)
    long = sf.Domain({"x": 2**11, "y": 2**11})
    with pytest.raises(TooLarge, match="cells"):
        atoms_of(long, sf.marginals(long, 2).terms)


def test_sums_of_atoms_are_what_they_say_of_themselves() -> None:
    domain = sf.Domain({"x": 3, "y": 2})
    entries = np.array([[3, 0, -1], [0, 5, 2]])
    term = AtomSums(domain, "sums", 1.0, ("x", "y"), np.array([0, 1, -1, 2, 2, 0]), entries)
    columns = np.array([[3, 0, 0, -1, -1, 3], [0, 5, 0, 2, 2, 0]])
    np.testing.assert_array_equal(term.dense(), columns)
    table = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(term.apply(table), columns @ table.reshape(-1))
    large = table.astype(object) * 10**30
    np.testing.assert_array_equal(term.apply(large), columns.astype(object) @ large.reshape(-1))
    np.testing.assert_allclose(term.adjoint(np.array([1.0, 2])).reshape(-1), columns.T @ [1, 2])
    for p in (1, 2):
        ((_, powers),) = term.column_factors(p)
        np.testing.assert_allclose(powers.reshape(-1), (np.abs(columns) ** p).sum(axis=0))
        np.testing.assert_allclose(term.row_powers(p), (np.abs(columns) ** p).sum(axis=1))
    low, high = term.coefficient_bounds()
    np.testing.assert_array_equal(low, columns.min(axis=1))
    np.testing.assert_array_equal(high, columns.max(axis=1))
    assert term.l1_diameter() == 8
    assert term.squared_diameter() == 34
    assert not term.is_nonnegative
