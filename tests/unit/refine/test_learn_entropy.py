# SPDX-License-Identifier: Apache-2.0
"""Maximum entropy on rows against a convex solver on all cells, and the law of the rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.refine.learn import MaximumEntropy, independent_shares

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
TOTAL = 1000.0
Floats = NDArray[np.float64]


def truth() -> Floats:
    """A made-up histogram in which every pair of attributes hangs together."""
    rng = np.random.default_rng(3)
    h = rng.dirichlet(np.full(24, 0.6)).reshape(3, 4, 2)
    return np.asarray(h * TOTAL)


def table(h: Floats, names: tuple[str, ...]) -> Floats:
    rest = tuple(i for i, n in enumerate(DOMAIN.names) if n not in names)
    return np.asarray(h.sum(axis=rest))


def on_all_cells(shares: list[Floats]) -> MaximumEntropy:
    """The rows are all cells, weighted by independence: nothing is left to chance."""
    model = MaximumEntropy(DOMAIN, shares, TOTAL, 24)
    cells = np.stack(np.unravel_index(np.arange(24), DOMAIN.shape), axis=1)
    model.codes = np.ascontiguousarray(cells.astype(np.int32))
    product = np.einsum("i,j,k->ijk", *(independent_shares(s) for s in shares))
    model.weights = product.ravel() / product.sum()
    return model


def observed(variance: float) -> tuple[MaximumEntropy, dict[tuple[str, str], Floats]]:
    rng = np.random.default_rng(5)
    model = on_all_cells([table(truth(), (n,)) for n in DOMAIN.names])
    noisy = {}
    for names in combinations(DOMAIN.names, 2):
        exact = table(truth(), names)
        noisy[names] = exact + variance**0.5 * rng.normal(size=exact.shape)
        model.observe(names, noisy[names], variance)
    return model, noisy


@pytest.mark.parametrize("variance", [4.0, 400.0])
def test_the_fit_is_the_minimum_that_a_convex_solver_finds(variance: float) -> None:
    """n KL(p || independent) + sum_S g_S |n p_S - y_S|^2 / (2 variance) over distributions p."""
    import cvxpy as cp

    model, noisy = observed(variance)
    prior = model.weights.copy()
    model.fit(5000)
    p = cp.Variable(24)
    value = TOTAL * cp.sum(cp.kl_div(p, prior))
    for names, y in noisy.items():
        which = np.stack(
            [table(e.reshape(DOMAIN.shape), names).ravel() for e in np.eye(24)], axis=1
        )
        g = model._tables[names][2]
        value += g / (2 * variance) * cp.sum_squares(TOTAL * which @ p - y.ravel())
    cp.Problem(cp.Minimize(value), [cp.sum(p) == 1]).solve(solver=cp.CLARABEL)
    assert np.abs(model.weights - p.value).sum() < 1e-4
    assert np.abs(prior - p.value).sum() > 0.1  # the twin: independence is far away


def test_without_noise_the_fit_is_proportional_fitting() -> None:
    model, _ = observed(1e-8)
    model.fit(300)
    for names in combinations(DOMAIN.names, 2):
        assert np.abs(model.table(names) - table(truth(), names)).sum() < 1e-3 * TOTAL


def test_rows_follow_the_model_when_they_are_drawn_anew() -> None:
    """The rows, moved, have the tables that all cells have, within sampling error."""
    exact, noisy = observed(25.0)
    exact.fit(100)
    model = MaximumEntropy(DOMAIN, [table(truth(), (n,)) for n in DOMAIN.names], TOTAL, 60_000)
    for names, y in noisy.items():
        model.observe(names, y, 25.0)
    for names in noisy:  # the same looseness on both sides, whatever the sample said
        model._tables[names] = (*model._tables[names][:2], exact._tables[names][2])
    independent = np.abs(model.table(DOMAIN.names) - exact.table(DOMAIN.names)).sum()
    for _ in range(6):
        model.fit(10)
        model.renew()
    assert model.evenness == pytest.approx(1.0)
    apart = np.abs(model.table(DOMAIN.names) - exact.table(DOMAIN.names)).sum()
    assert apart < 0.05 * TOTAL
    assert independent > 0.2 * TOTAL


def test_moves_reach_the_law_from_anywhere_and_only_under_its_potentials() -> None:
    """All rows start in one cell; after many moves their frequencies are those of the model."""
    exact, _ = observed(25.0)
    exact.fit(100)
    wanted = exact.weights.copy()
    rows = 40_000

    def moved(potentials: dict[tuple[str, ...], Floats]) -> float:
        model = MaximumEntropy(DOMAIN, [table(truth(), (n,)) for n in DOMAIN.names], TOTAL, rows)
        model._potentials = potentials
        model.codes[:] = 0
        model._move(60)
        flat = np.ravel_multi_index(tuple(model.codes.T), DOMAIN.shape)
        found = np.bincount(flat, minlength=24)
        return float(((found - rows * wanted) ** 2 / (rows * wanted + 1e-9)).sum())

    assert moved(dict(exact._potentials)) < 80  # 23 degrees of freedom: p-value above 1e-7
    assert moved({("a", "b"): np.zeros(12)}) > 1000


def test_a_table_observed_twice_counts_as_its_weighted_average() -> None:
    model = on_all_cells([np.ones(3), np.ones(4), np.ones(2)])
    model.observe(("a", "c"), np.full((3, 2), 100.0), 3.0)
    model.observe(("a", "c"), np.full((3, 2), 200.0), 1.0)
    values, variance, _ = model._tables["a", "c"]
    assert values == pytest.approx(np.full(6, 175.0))
    assert variance == pytest.approx(0.75)


def test_the_same_steps_give_the_same_rows() -> None:
    def run() -> Floats:
        model = MaximumEntropy(DOMAIN, [np.ones(3), np.ones(4), np.ones(2)], TOTAL, 500)
        model.observe(("a", "b"), table(truth(), ("a", "b")), 10.0)
        model.fit(2)
        model.renew(800)
        return np.asarray(model.table(("a", "b", "c")))

    assert (run() == run()).all()


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError, match="above 0"):
        MaximumEntropy(DOMAIN, [np.ones(3), np.ones(4), np.ones(2)], 0.0, 10)
    with pytest.raises(PlanError, match="above 0"):
        MaximumEntropy(DOMAIN, [np.ones(3), np.ones(4), np.ones(2)], 10.0, 0)
