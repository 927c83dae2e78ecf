# SPDX-License-Identifier: Apache-2.0
"""Streams against dense matrices: factors, norms, bounds, trees, noise."""

from __future__ import annotations

from fractions import Fraction
from math import ldexp, sqrt

import numpy as np
import pytest

from sfumato.errors import PlanError, TooLarge
from sfumato.planning.stream_plans import (
    STRATEGIES,
    forecast_stream,
    optimal_totals,
    optimal_windows,
    square_root,
)
from sfumato.privacy.budget import Budget
from sfumato.strategy.one_attribute.stream_filters import (
    STATE_BITS,
    VALUE_BITS,
    Bank,
    Filter,
    TimeTree,
    best_laplace_tree,
    binary_tree,
    closed_bound,
    column_norm,
    columns_squared,
    decode,
    encode,
    rows_squared,
)
from sfumato.study.matrix_norms import factorize
from tests.shared.dense_streams import ONE, asked, dense

MU = Budget(mu=1)


FILTERS = {
    "totals of 1": lambda: optimal_totals(1)[0],
    "totals of 2": lambda: optimal_totals(2)[0],
    "totals of 3": lambda: optimal_totals(3)[0],
    "totals of 50": lambda: optimal_totals(50)[0],
    "totals of 130": lambda: optimal_totals(130)[0],
    "root of 40": lambda: square_root(40),
    "windows of 1 in 10": lambda: optimal_windows(10, 1)[0],
    "windows of 7 in 60": lambda: optimal_windows(60, 7)[0],
    "windows of 50 in 60": lambda: optimal_windows(60, 50)[0],
    "root windows of 5 in 31": lambda: square_root(31, 5),
}


@pytest.fixture(params=FILTERS, scope="module")
def plan(request: pytest.FixtureRequest) -> Filter:
    return FILTERS[request.param]()


def test_both_factors_are_lower_triangular_and_give_the_queries(plan: Filter) -> None:
    r, m = dense(plan)
    assert np.abs(r @ m - asked(plan.length, plan.width)).max() < 1e-9
    assert np.abs(np.triu(m, 1)).max() < 1e-9
    assert np.abs(np.triu(r, 1)).max() < 1e-9


def test_norms_of_columns_and_rows_are_those_of_the_dense_factors(plan: Filter) -> None:
    r, m = dense(plan)
    found = columns_squared(plan)
    assert found == pytest.approx((m**2).sum(axis=0), rel=1e-9, abs=1e-12)
    assert rows_squared(plan) == pytest.approx((r**2).sum(axis=1), rel=1e-9)
    longest = sqrt((m**2).sum(axis=0).max())
    assert longest * (1 - 1e-12) <= column_norm(plan, found) <= longest * (1 + 1e-6)


def run(plan: Filter, values: list[int]) -> tuple[list[int], list[int]]:
    """Encode a stream and decode it again without noise, as vault and public side do."""
    places = plan.width or 1
    size = 0 if plan.echo is None else plan.echo.size
    private, public = [0] * plan.banks[0].size, [0] * plan.banks[0].size
    echoes, echoes_back = [[0] * size for _ in range(places)], [[0] * size for _ in range(places)]
    measured, answers = [], []
    for t, x in enumerate(values):
        gone = values[t - plan.width] if plan.width and t >= plan.width else 0
        at = t % places
        private, echoes[at], value = encode(plan, t, private, echoes[at], x - gone)
        measured.append(value)
        public, echoes_back[at], answer = decode(
            plan, t, public, echoes_back[at], value, VALUE_BITS
        )
        answers.append(answer)
    return measured, answers


def test_integers_follow_the_dense_factors_within_the_stated_slack(plan: Filter) -> None:
    """The exact M x, in fractions, from the definition: memories that round nothing."""
    values = [(7 * t * t + 3) % 11 for t in range(plan.length)]
    measured, answers = run(plan, values)
    exact = exact_measured(plan, values)
    worst = max(abs(Fraction(a, 1 << VALUE_BITS) - b) for a, b in zip(measured, exact, strict=True))
    assert worst <= Fraction(plan.arithmetic_slack)
    totals = asked(plan.length, plan.width) @ values
    assert [a / 2**STATE_BITS for a in answers] == pytest.approx(totals, abs=1e-15 * 2**20)


def exact_measured(plan: Filter, values: list[int]) -> list[Fraction]:
    places = plan.width or 1
    memories = [Fraction(0)] * plan.banks[0].size
    echoes = [[Fraction(0)] * (plan.echo.size if plan.echo else 0) for _ in range(places)]
    out = []
    for t, x in enumerate(values):
        bank, kappa = plan.at(t)
        gone = values[t - plan.width] if plan.width and t >= plan.width else 0
        new = x - gone + sum(Fraction(h, ONE) * p for h, p in zip(bank.fade, memories, strict=True))
        memories = absorbed(bank, memories, new)
        if plan.echo is not None:
            echoes[t % places] = absorbed(plan.echo, echoes[t % places], new)
            new = sum(echoes[t % places], Fraction(0))
        out.append(Fraction(kappa, ONE) * new)
    return out


def absorbed(bank: Bank, memories: list[Fraction], new: Fraction) -> list[Fraction]:
    return [
        p * Fraction(ONE - h, ONE) + Fraction(g, ONE) * new
        for p, h, g in zip(memories, bank.fade, bank.share, strict=True)
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 17, 64, 200, 1000])
def test_running_totals_are_within_a_thousandth_of_the_least_error(length: int) -> None:
    found = forecast_stream(length, MU, strategy="optimal")
    assert found.certificate is not None
    assert 1 - 1e-9 <= found.certificate < 1.001


def test_the_bound_of_running_totals_is_below_the_dense_optimum() -> None:
    found, best = forecast_stream(40, MU, strategy="optimal"), factorize(asked(40))
    assert found.lower_bound <= best.gamma * (1 + 1e-9)
    assert found.gamma >= best.lower_bound * (1 - 1e-9)
    assert found.gamma <= best.gamma * 1.0005


@pytest.mark.parametrize(("length", "width"), [(40, 1), (40, 2), (40, 7), (40, 20), (40, 39)])
def test_windows_are_close_to_the_dense_optimum_and_never_below_their_bound(
    length: int, width: int
) -> None:
    found = forecast_stream(length, MU, width=width, strategy="optimal")
    best = factorize(asked(length, width))
    assert found.lower_bound <= best.gamma * (1 + 1e-9)
    assert found.gamma >= best.lower_bound * (1 - 1e-9)
    assert found.gamma <= best.gamma * 1.03


@pytest.mark.parametrize(("length", "width"), [(30, 1), (30, 4), (31, 9), (12, 11)])
def test_the_closed_bound_of_windows_is_below_the_sum_of_singular_values(
    length: int, width: int
) -> None:
    closed = closed_bound(length, width)
    assert 0 < closed <= length * factorize(asked(length, width)).gamma ** 2 * (1 + 1e-9)


def test_the_closed_bound_of_windows_tends_to_the_lebesgue_constant() -> None:
    """The mean of |sin(w t / 2) / sin(t / 2)|, here by quadrature, for w = 5."""
    t = (np.arange(200_000) + 0.5) * np.pi / 200_000
    mean = np.abs(np.sin(5 * t / 2) / np.sin(t / 2)).mean()
    n = 200_000
    assert sqrt(closed_bound(n, 5) / n) == pytest.approx(mean, rel=1e-4)


def test_a_longer_stream_keeps_hardly_more_numbers() -> None:
    sizes = {n: forecast_stream(n, MU, strategy="optimal") for n in (1_000, 16_000)}
    assert sizes[16_000].state_size <= sizes[1_000].state_size + 4
    shapes = [p.shape for p in sizes.values()]
    assert all(isinstance(s, Filter) for s in shapes)
    small, large = (s.table_size for s in shapes if isinstance(s, Filter))
    assert large < 3 * small  # 16 times as long


def test_the_strategies_are_ordered_as_theory_says() -> None:
    found = {c.mechanism: c for c in forecast_stream(500, MU).candidates}
    rmse = {name: found[name].rmse or np.inf for name in STRATEGIES}
    assert rmse["optimal"] < rmse["toeplitz"] < rmse["tree"]
    assert [c.mechanism for c in found.values() if c.is_chosen] == ["optimal"]


def test_the_root_of_running_totals_errs_as_its_closed_form() -> None:
    """Coefficients binom(2k, k) / 4^k on both sides."""
    n = 300
    c = np.cumprod(np.concatenate([[1.0], (np.arange(1, n) - 0.5) / np.arange(1, n)]))
    squares = np.cumsum(c**2)
    found = forecast_stream(n, MU, strategy="toeplitz")
    assert found.gamma == pytest.approx(sqrt(squares.mean() * squares[-1]), rel=1e-5)


@pytest.mark.parametrize(
    "tree",
    [
        binary_tree(37, None),
        binary_tree(37, 10),
        TimeTree(40, 9, 3, 2),
        TimeTree(40, None, 2, 9),  # higher than the stream is long
        TimeTree(40, 9, 3, 5),
        TimeTree(40, 2, 4, 4),
    ],
)
def test_tiles_of_a_tree_are_whole_nodes_and_cover_an_answer_once(tree: TimeTree) -> None:
    for step in range(1, tree.length + 1):
        low = 0 if tree.width is None else max(step - tree.width, 0)
        covered: list[int] = []
        for level, first, count in tree.tiles(step):
            assert count > 0
            size = tree.branching**level
            covered += range(first * size, (first + count) * size)
        assert sorted(covered) == list(range(low, step))
        assert tree.rows_squared[step - 1] == sum(c for _, _, c in tree.tiles(step))


def test_the_best_laplace_tree_is_no_worse_than_any_other() -> None:
    best = best_laplace_tree(100, None)
    error = best.levels**2 * best.rows_squared.mean()
    for branching in range(2, 12):
        for levels in range(1, 6):
            other = TimeTree(100, None, branching, levels)
            if branching ** (levels - 1) <= 100:
                assert error <= other.levels**2 * other.rows_squared.mean()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("width", [None, 6])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_cost_is_at_least_that_of_the_dense_strategy_and_within_the_budget(
    strategy: str, width: int | None, neighbours: str
) -> None:
    budget = Budget(epsilon=1, delta="1e-6")
    plan = forecast_stream(
        24, budget, width=width, strategy=strategy, largest=3, neighbours=neighbours
    )
    m = tree_matrix(plan.shape) if isinstance(plan.shape, TimeTree) else dense(plan.shape)[1]
    pairs = 3 * m
    if neighbours == "replace-one":
        pairs = np.concatenate([pairs[:, [i]] - pairs for i in range(24)], axis=1)
    if plan.noise.noise == "laplace":
        worst = np.abs(pairs).sum(axis=0).max() / plan.noise.scale
        assert worst * (1 - 1e-12) <= plan.cost.pure_epsilon <= budget.pure_epsilon
    else:
        worst = (pairs**2).sum(axis=0).max() / plan.noise.scale**2
        assert worst * (1 - 1e-12) <= plan.cost.mu_squared
        assert plan.cost.mu_squared <= Fraction(budget.gaussian_mu or 0) ** 2


def tree_matrix(tree: TimeTree) -> np.ndarray:
    rows = []
    for step in range(1, tree.length + 1):
        for level in range(tree.completed(step)):
            row = np.zeros(tree.length)
            row[step - tree.branching**level : step] = 1
            rows.append(row)
    return np.array(rows)


def test_rounding_to_the_grid_is_paid_for() -> None:
    """Loss is (|M| D + sqrt(n) (step + 2 slack)) / sigma; without the second part it is less."""
    plan = forecast_stream(1000, Budget(mu=1), strategy="optimal")
    bare = (plan.sensitivity / plan.noise.scale) ** 2
    step = ldexp(1.0, -plan.noise.grid_bits)
    paid = ((plan.sensitivity + sqrt(1000) * step) / plan.noise.scale) ** 2
    assert bare < paid <= plan.cost.mu_squared <= 1


def test_pure_budgets_get_trees_and_refuse_gaussian_strategies() -> None:
    assert forecast_stream(50, Budget(epsilon=1)).strategy == "laplace-tree"
    assert forecast_stream(50, Budget(epsilon=1), strategy="tree").noise.noise == "laplace"
    assert forecast_stream(50, Budget(epsilon=1)).certificate is None
    with pytest.raises(PlanError, match="pure"):
        forecast_stream(50, Budget(epsilon=1), strategy="optimal")


def test_a_window_as_long_as_the_stream_is_the_running_total() -> None:
    assert forecast_stream(20, MU, width=20).width is None


def test_equal_plans_have_equal_digests_and_others_do_not() -> None:
    first = forecast_stream(20, MU, strategy="optimal")
    assert first.digest() == forecast_stream(20, MU, strategy="optimal").digest()
    assert first.digest() != forecast_stream(21, MU, strategy="optimal").digest()
    assert first.digest() != forecast_stream(20, MU, strategy="toeplitz").digest()


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 0},
        {"length": 2.5},
        {"length": True},
        {"length": 10, "width": 0},
        {"length": 10, "strategy": "best"},
        {"length": 10, "largest": 0},
    ],
)
def test_wrong_questions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        forecast_stream(budget=MU, **wrong)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(TooLarge, match="5,000,000"):
        forecast_stream(5_000_000, MU)
    with pytest.raises(TooLarge, match="400,000"):
        forecast_stream(2_000_000, MU, width=400_000, strategy="toeplitz")


def test_a_bank_that_is_no_chain_is_refused() -> None:
    with pytest.raises(PlanError):
        Bank((ONE + 1,), (ONE,))
    with pytest.raises(PlanError):
        Bank((0, 0), (ONE, 1))
