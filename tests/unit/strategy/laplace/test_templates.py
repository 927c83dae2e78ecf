# SPDX-License-Identifier: Apache-2.0
"""Wavelets, weighted trees, characters, templates and weighted marginals against dense matrices."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
import sfumato.strategy.laplace.laplace_optimum as laplace_module
import sfumato.strategy.laplace.templates as template_module
from sfumato.domain.attributes import Integer
from sfumato.errors import PlanError
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import fitted_product, wavelet, weighted_tree
from sfumato.strategy.laplace.laplace_optimum import laplace_optimum
from sfumato.strategy.laplace.templates import (
    Template,
    best_template,
    identity_error,
    search,
    template_error,
)
from sfumato.strategy.marginals import WeightedMarginals, fourier, weighted_marginals
from sfumato.strategy.pieces import sum_of_bounds
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import best_tree
from sfumato.workload.queries import Identity, Matrix, Prefix, QuerySet, Ranges, Total, Windows
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload
from tests.shared.every_mechanism import WORKLOADS, counted

BUILDERS = {
    "laplace-wavelet": (wavelet, "laplace"),
    "gaussian-wavelet": (wavelet, "gaussian"),
    "laplace-weighted-tree": (weighted_tree, "laplace"),
    "gaussian-weighted-tree": (weighted_tree, "gaussian"),
    "laplace-fourier": (fourier, "laplace"),
    "gaussian-fourier": (fourier, "gaussian"),
    "laplace-optimum": (laplace_optimum, "laplace"),
}
CASES = [(name, work) for name in BUILDERS for work in WORKLOADS]


def built(name: str, work: str, objective: str = "rmse") -> Strategy | None:
    build, noise = BUILDERS[name]
    try:
        return build(WORKLOADS[work], noise, objective)  # type: ignore[operator]
    except PlanError:
        return None


def matrices(strategy: Strategy) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """M by counting one record in every cell, R by unit values, block by block."""
    units = np.eye(strategy.workload.domain.size, dtype=np.int64)
    m = [np.array([counted(b.term, e) for e in units]).T for b in strategy.blocks]
    zeros = [np.zeros(len(rows)) for rows in m]
    terms = range(len(strategy.workload.terms))
    r = []
    for b, rows in enumerate(m):
        columns = []
        for unit in np.eye(len(rows)):
            values = [*zeros[:b], unit, *zeros[b + 1 :]]
            columns.append(np.concatenate([strategy.answer(t, values) for t in terms]))
        r.append(np.array(columns).T)
    return m, r


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_takes_some_of_the_workloads(name: str) -> None:
    assert sum(built(name, work) is not None for work in WORKLOADS) >= 2


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize(("name", "work"), CASES)
def test_answers_errors_and_norms_are_those_of_the_matrices(
    name: str, work: str, objective: str
) -> None:
    strategy = built(name, work, objective)
    if strategy is None:
        return
    assert strategy.mechanism == name
    m, r = matrices(strategy)
    f = dense_workload(strategy.workload)
    np.testing.assert_allclose(sum(x @ y for x, y in zip(r, m, strict=True)), f, atol=1e-8)
    noise = np.random.default_rng(5).uniform(0.5, 2, len(m))
    squares = sum(v * (x**2).sum(axis=1) for v, x in zip(noise, r, strict=True))
    drawn = [x / b.share for b, x in zip(strategy.blocks, r, strict=True)]
    second = sum((x**2).sum(axis=1) for x in drawn)
    fourth = sum((x**4).sum(axis=1) for x in drawn)
    first = 0
    for t, term in enumerate(strategy.workload.terms):
        own = slice(first, first + term.rows)
        first += term.rows
        np.testing.assert_allclose(strategy.variances(t, list(noise)), squares[own], atol=1e-9)
        assert strategy.total_variance(t, list(noise)) == pytest.approx(squares[own].sum())
        assert strategy.maximum_variance(t, list(noise)) == pytest.approx(squares[own].max())
        is_asked = second[own] > 0
        expected = second[own][is_asked] ** 2 / fourth[own][is_asked]
        np.testing.assert_allclose(strategy.effective_terms(t)[is_asked], expected, rtol=1e-6)
    for t, term in enumerate(strategy.workload.terms):
        c = np.random.default_rng(t).normal(size=term.rows)
        rows = slice(sum(x.rows for x in strategy.workload.terms[:t]), None)
        found = strategy.adjoint(t, c)
        for b, x in enumerate(r):
            expected = c @ x[rows][: term.rows]
            np.testing.assert_allclose(found.get(b, 0.0), expected, atol=1e-9)
    for p in (1, 2):
        scales = np.random.default_rng(p).uniform(0.5, 2, len(m))
        columns = sum(s * (np.abs(x) ** p).sum(axis=0) for s, x in zip(scales, m, strict=True))
        stated = strategy.sensitivity(p, scales=list(scales))
        assert columns.max() <= stated.power
        assert not stated.is_exact or stated.power <= columns.max() * (1 + 1e-6)


@pytest.mark.parametrize("work", WORKLOADS)
def test_no_laplace_strategy_beats_the_bound_and_the_optimum_beats_the_groups(work: str) -> None:
    found = built("laplace-optimum", work)
    if found is None:
        return
    assert found.weighted_error() >= (found.bound or 0.0)
    groups = MECHANISMS["laplace-groups"].build(WORKLOADS[work], "laplace", "rmse")
    assert found.weighted_error() <= groups.weighted_error() * (1 + 1e-3)


@pytest.mark.parametrize("queries", [Prefix(40), Ranges(40), Windows(40, 16)])
def test_templates_err_less_than_cells_and_no_less_than_the_l2_optimum(queries: QuerySet) -> None:
    template = best_template([(1.0, queries)])
    error = template.total_variance(queries) * float(template.column_powers(1).max()) ** 2
    domain = sf.Domain({"x": 40})
    assert error < identity_error(queries.gram())
    kinds = {"prefix": sf.prefixes, "ranges": sf.ranges}
    if queries.name in kinds:
        assert error > sum_of_bounds(kinds[queries.name](domain, "x"))
    dense = np.asarray(template.apply(np.eye(40)))
    reference = np.trace(queries.gram() @ np.linalg.inv(dense.T @ dense))
    assert template.total_variance(queries) == pytest.approx(reference)


def test_the_gradient_of_the_template_error_is_its_slope() -> None:
    rng = np.random.default_rng(6)
    gram = Prefix(9).gram()
    theta = rng.uniform(0, 1, size=(3, 9))
    value, slope = template_error(gram, theta)
    c = 1 + theta.sum(axis=0)
    m = np.vstack([np.eye(9), theta]) / c
    assert value == pytest.approx(np.trace(gram @ np.linalg.inv(m.T @ m)))
    np.testing.assert_allclose((np.abs(m)).sum(axis=0), 1.0)
    for _ in range(20):
        step = 1e-6 * rng.normal(size=theta.shape)
        change = template_error(gram, theta + step)[0] - template_error(gram, theta - step)[0]
        assert change / 2 == pytest.approx(float((slope * step).sum()), rel=1e-4, abs=1e-9)


def test_no_small_change_of_a_template_errs_less() -> None:
    gram = Ranges(24).gram()
    theta = best_template([(1.0, Ranges(24))]).theta
    value = template_error(gram, theta)[0]
    rng = np.random.default_rng(7)
    for _ in range(100):
        other = np.maximum(theta + 0.02 * rng.normal(size=theta.shape), 0.0)
        assert value <= template_error(gram, other)[0] * (1 + 1e-6)


def test_fourth_powers_of_very_many_intervals_are_those_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges = Ranges(40)
    template = best_template([(1.0, ranges)])
    listed = template.row_fourths(ranges)
    limits = replace(LIMITS, template_fourths_listed=0)
    monkeypatch.setattr(template_module, "LIMITS", limits)
    np.testing.assert_allclose(template.row_fourths(ranges), listed, rtol=1e-10)


def test_a_template_is_what_it_says_of_itself_with_merged_cells() -> None:
    rows = np.array([[1, 1, 0, 0, 0, 1], [0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]])
    queries = Matrix.of(rows)
    template = best_template([(1.0, queries), (0.5, Total(6))])
    dense = np.asarray(template.apply(np.eye(6)))
    assert len(template.diagonal) == 3  # cells 0, 1, 5; cells 2, 3; cell 4
    np.testing.assert_allclose(template.adjoint(np.eye(template.rows)), dense.T)
    for p in (1, 2, 4):
        np.testing.assert_allclose(template.column_powers(p), (dense**p).sum(axis=0))
        np.testing.assert_allclose(template.row_powers(p), (dense**p).sum(axis=1))
    bounds = (dense.min(axis=1), dense.max(axis=1))
    np.testing.assert_allclose(template.coefficient_bounds(), bounds)
    assert template.greatest == dense.max()
    for asked in (queries, Total(6)):
        r = asked.dense() @ np.asarray(template.least_squares(np.eye(template.rows)))
        np.testing.assert_allclose(r @ dense, asked.dense(), atol=1e-9)
        np.testing.assert_allclose(template.row_variances(asked), (r**2).sum(axis=1))
        np.testing.assert_allclose(template.row_fourths(asked), (r**4).sum(axis=1))
    counts = np.array([2**45, 1, 2, 3, 4, 5], dtype=np.int64)
    exact = [sum(int(a) * int(b) for a, b in zip(row, counts, strict=True)) for row in dense]
    assert template.apply(counts).tolist() == exact
    assert template.apply(counts.astype(object)).tolist() == exact


def test_a_template_without_a_class_for_every_cell_is_refused() -> None:
    ones = np.ones(2, dtype=np.int64)
    with pytest.raises(PlanError, match="needs a class for every cell"):
        Template(3, ones, np.ones((1, 2), dtype=np.int64), ones)


def test_weighted_marginals_are_the_least_squares_of_their_tables() -> None:
    """R is the pseudo-inverse of the tables scaled by their shares."""
    domain = sf.Domain({"a": 4, "b": 3, "c": 2})
    work = sf.marginals(domain, 2) | 2 * sf.marginals(domain, 1)
    strategy = weighted_marginals(work)
    m, r = matrices(strategy)
    shares = [b.share for b in strategy.blocks]
    scaled = np.vstack([s * x for s, x in zip(shares, m, strict=True)])
    joined = np.hstack([x / s for s, x in zip(shares, r, strict=True)])
    np.testing.assert_allclose(joined, dense_workload(work) @ np.linalg.pinv(scaled), atol=1e-8)


def test_no_small_change_of_the_shares_of_marginals_errs_less() -> None:
    domain = sf.Domain({"a": 5, "b": 3, "c": 2, "d": 7})
    work = sf.marginals(domain, 2) | 3 * sf.marginals(domain, [("a",)])
    strategy = weighted_marginals(work)
    best = strategy.weighted_error()
    rng = np.random.default_rng(8)
    for _ in range(100):
        blocks = tuple(
            type(b)(b.term, b.share * float(np.exp(0.1 * rng.normal()))) for b in strategy.blocks
        )
        other = WeightedMarginals("x", "laplace", work, blocks, strategy.tables)
        assert best <= other.weighted_error() * (1 + 1e-6)


def test_small_tables_are_answered_from_a_larger_one() -> None:
    domain = sf.Domain({"u": 2, "v": 2, "w": 2, "x": 2})
    strategy = weighted_marginals(sf.marginals(domain, [0, 1, 2, 3, 4][3]))
    assert any(len(names) > 1 for names in strategy.tables)
    ways = [c for k in range(5) for c in combinations(domain.names, k)]
    assert len(weighted_marginals(sf.marginals(domain, ways)).tables) < len(ways)


def test_for_marginals_of_yes_no_attributes_characters_are_optimal_under_l2() -> None:
    """Residuals are the optimum (Xiao et al. 2023), and for two cells each is one character."""
    domain = sf.Domain({"u": 2, "v": 2, "w": 2})
    work = sf.marginals(domain, 2)
    best = MECHANISMS["factorization"].build(work, "gaussian", "rmse")
    assert fourier(work, "gaussian", "rmse").gamma == pytest.approx(best.gamma, rel=1e-3)


def test_only_needed_characters_are_measured() -> None:
    domain = sf.Domain({f"x{i}": 2 for i in range(30)})
    strategy = fourier(sf.marginals(domain, 2), "laplace", "rmse")
    assert len(strategy.blocks) == 1 + 30 + 30 * 29 // 2
    assert all(b.term.rows == 1 for b in strategy.blocks)


@pytest.mark.parametrize("p", [1, 2])
def test_a_product_fitted_to_one_term_is_the_product_of_its_designs(p: int) -> None:
    domain = sf.Domain({"a": 8, "b": 6})
    term = sf.product(domain, {"a": "prefix", "b": "ranges"}).terms[0]
    seen: list[QuerySet] = []

    def design(asked: list[tuple[float, QuerySet]], _: int, __: QuerySet | None) -> QuerySet:
        seen.append(asked[0][1])
        return Identity(asked[0][1].size)

    block = fitted_product([term], design, p)  # type: ignore[list-item]
    assert [q.name for q in seen] == ["prefix", "ranges"]
    assert block.is_table


@pytest.mark.parametrize("build", [wavelet, weighted_tree])
def test_without_intervals_transforms_say_why_they_do_not_fit(build: object) -> None:
    work = sf.marginals(sf.Domain({"a": 5, "b": 3}), 2)
    with pytest.raises(PlanError, match="no group asks for prefixes, ranges or windows"):
        build(work, "laplace", "rmse")  # type: ignore[operator]


def test_characters_of_longer_attributes_are_refused_with_the_attribute() -> None:
    work = sf.marginals(sf.Domain({"a": 5, "b": 2}), 2)
    with pytest.raises(PlanError, match="attribute 'a' has 5 cells"):
        fourier(work, "laplace", "rmse")


def test_templates_of_unit_l1_norm_are_not_for_gaussian_noise() -> None:
    with pytest.raises(PlanError, match="for Laplace noise"):
        laplace_optimum(sf.prefixes(sf.Domain({"x": 8}), "x"), "gaussian", "rmse")


def test_two_attributes_by_intervals_both_get_a_transform() -> None:
    domain = sf.Domain({"x": 16, "y": 12})
    work: Workload = sf.product(domain, {"x": "ranges", "y": "prefix"})
    for build in (wavelet, weighted_tree):
        (block,) = build(work, "laplace", "rmse").blocks
        kinds = [type(q) for _, q in block.term.factors]  # type: ignore[attr-defined]
        assert Identity not in kinds


def test_a_very_long_attribute_is_left_to_the_weighted_tree():
    """Both find the same tree there, and one search is enough."""
    work = sf.ranges(sf.Domain({"x": 2**16 + 1}), "x")
    with pytest.raises(PlanError, match="laplace-weighted-tree"):
        laplace_optimum(work, "laplace", "rmse")
    shorter = sf.ranges(sf.Domain({"x": 2**14}), "x")
    tree, best = (f(shorter, "laplace", "rmse") for f in (weighted_tree, laplace_optimum))
    assert best.weighted_error() == pytest.approx(tree.weighted_error(), rel=1e-9)


@pytest.mark.parametrize("most", [99, 999])
def test_a_count_and_a_sum_need_no_single_cells_under_laplace_noise(most: int) -> None:
    """Measured as the sums of u and 1 - u, u in [0, 1], they err by 2 and 1 at unit noise."""
    line = sf.Domain([Integer("income", 0, most)])
    work = sf.marginals(line, [()]) | sf.means(line, "income")  # a count, a sum / most, a count
    found = laplace_optimum(work, "laplace", "rmse")
    assert found.weighted_error() == pytest.approx(2 + 1 + 2, rel=0.01)
    shares = np.arange(most + 1) / most
    exact = np.zeros(most + 1, dtype=np.int64)
    exact[[0, most // 3, most]] = 5, 3, 7
    values = [block.term.answer(exact) for block in found.blocks]
    assert found.answer(0, values) == pytest.approx([15])
    assert found.answer(1, values) == pytest.approx([shares @ exact * most])


def test_more_classes_than_the_table_of_steps_names_are_searched_all_the_same() -> None:
    """Exactly one atom more than the last line once ended in an error without words."""
    size = LIMITS.template_steps[-1][0] + 1
    gram = np.ones((size, size))
    theta = search(gram, [np.full((1, size), 1.0)])
    assert template_error(gram, theta)[0] < np.trace(gram)


@pytest.mark.parametrize("queries", [Prefix(96), Ranges(96)])
def test_long_attributes_take_the_better_of_template_and_tree(
    queries: QuerySet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the classes that are searched thoroughly; here with small limits in their place."""
    few = replace(LIMITS, template_followed_classes=32, template_steps=((32, 50), (96, 2)))
    for module in (laplace_module, template_module):
        monkeypatch.setattr(module, "LIMITS", few)
    tree = best_tree([(1.0, queries)], 1)

    def error(measured: QuerySet) -> float:
        return measured.total_variance(queries) * float(measured.column_powers(1).max()) ** 2  # type: ignore[attr-defined]

    chosen = laplace_module._designed([(1.0, queries)], 1, None)
    quick = best_template([(1.0, queries)])
    assert error(chosen) == min(error(tree), error(quick))
    monkeypatch.setattr(laplace_module, "best_template", lambda *_: worse_template(96))
    assert error(laplace_module._designed([(1.0, queries)], 1, None)) == error(tree)


def worse_template(size: int) -> Template:
    """Single cells beside a heavy total: worse than any tree on running totals."""
    whole = np.full((1, size), 2**10)
    return Template(size, np.ones(size, np.int64), whole, np.arange(size))


def test_products_of_many_templates_are_rounded_to_what_noise_can_be_drawn_for() -> None:
    domain = sf.Domain({"a": 12, "b": 9, "c": 7, "d": 8})
    pairs = [sf.product(domain, {x: "prefix", y: "prefix"}) for x, y in combinations("abcd", 2)]
    work = Workload(domain, tuple(t for one in pairs for t in one.terms))
    plan = sf.plan(work, sf.Budget(epsilon=0.1), mechanism="laplace-optimum")
    (block,) = plan.strategy.blocks
    norms = [float(q.column_powers(1).max()) for _, q in block.term.factors]
    assert sum(isinstance(q, Template) for _, q in block.term.factors) == 4
    assert np.log2(norms).sum() <= LIMITS.product_bits + 0.1
    fine = fitted_product([t.as_product() for t in work.terms], laplace_module._Designs(), 1)
    assert all(t.weight == 1 for t in work.terms)
    variances = [
        sum(
            np.prod([m.total_variance(dict(t.factors).get(n, Total(m.size))) for n, m in factors])
            * np.prod([float(m.column_powers(1).max()) ** 2 for _, m in factors])
            for t in work.terms
        )
        for factors in (fine.factors, block.term.factors)
    ]
    assert variances[0] < variances[1] * 1.0001 < variances[0] * 1.06  # 8 bits of 14 are left
    table = sf.plan(work, sf.Budget(epsilon=0.1), mechanism="laplace-table")
    assert plan.rmse < 0.9 * table.rmse
