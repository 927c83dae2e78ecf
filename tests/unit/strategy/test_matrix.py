# SPDX-License-Identifier: Apache-2.0
"""Any small-rank workload: unbiased, certified, exact norms, against dense matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.solve.farthest import farthest_pair
from sfumato.strategy.matrix import Dense, dense
from sfumato.strategy.measured import Mixture
from sfumato.study.matrix_norms import factorize
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload

CUBE = sf.Domain({"a": 6, "b": 4, "c": 3})
A, B, C = (sf.attribute(CUBE, name) for name in "abc")
CONDITIONS = sf.predicates(
    CUBE,
    [(A >= 2) & (B < 3), (A < 4) | (C == 1), ~(B == 2), (A == 1), (A == 1) & (A == 2), (A == 1)],
)
GIVEN = sf.explicit(CUBE, ["a", "c"], np.arange(36).reshape(2, 18) % 7 - 1.25)
WORKLOADS = {
    "conditions": CONDITIONS,
    "given": GIVEN,
    "mixed": CONDITIONS | 3 * sf.prefixes(CUBE, "a", by=["c"]) | GIVEN | sf.marginals(CUBE, 1),
    "copies": CONDITIONS | 2 * CONDITIONS | CONDITIONS,
    "apart": sf.predicates(
        CUBE, [A.isin([i]) & B.between(0, j) for i in range(6) for j in range(3)]
    ),
    "total": sf.marginals(CUBE, [()]) | sf.marginals(CUBE, [()]),
}


def written(strategy: Dense, work: Workload) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R, M and F over every cell of the domain."""
    term = strategy.blocks[0].term
    sums = tuple(i for i, n in enumerate(work.domain.names) if n not in term.attributes)
    cells = np.eye(work.domain.size, dtype=np.int64).reshape(-1, *work.domain.shape)
    columns = [term.apply(cell.sum(axis=sums)) for cell in cells]
    m = np.ldexp(np.array(columns).T.astype(float), -term.fraction_bits)
    terms = range(len(work.terms))
    r = np.vstack(
        [np.column_stack([strategy.answer(t, [e]) for e in np.eye(len(m))]) for t in terms]
    )
    return r, m, dense_workload(work)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_answers_are_unbiased_and_what_is_stated_holds(name: str, objective: str) -> None:
    work = WORKLOADS[name]
    strategy = dense(work, objective)
    r, m, f = written(strategy, work)
    np.testing.assert_allclose(r @ m, f, atol=1e-9 * np.abs(f).max())
    longest = (m**2).sum(axis=0).max()
    assert longest <= strategy.sensitivity(2, scales=[1.0]).power <= longest * (1 + 1e-8)
    sums = np.abs(m).sum(axis=0).max()
    assert sums <= strategy.sensitivity(1, scales=[1.0]).power <= sums * (1 + 1e-8)
    apart = max(((m - m[:, [j]]) ** 2).sum(axis=0).max() for j in range(m.shape[1]))
    assert apart <= strategy.block_diameters(2)[0] <= apart * (1 + 1e-8) + 1e-9
    first = 0
    for t, term in enumerate(work.terms):
        rows = r[first : first + term.rows]
        first += term.rows
        expected = (rows**2).sum(axis=1)
        np.testing.assert_allclose(strategy.variances(t, [1.0]), expected, rtol=1e-9, atol=1e-15)
        assert strategy.total_variance(t, [1.0]) == pytest.approx(expected.sum())
        assert strategy.maximum_variance(t, [1.0]) == pytest.approx(expected.max())
        c = np.arange(1.0, term.rows + 1)
        found = strategy.adjoint(t, c).get(0, np.zeros(len(m)))
        np.testing.assert_allclose(found, c @ rows, atol=1e-9)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_certificate_is_that_of_the_whole_matrix(name: str, objective: str) -> None:
    work = WORKLOADS[name]
    strategy = dense(work, objective)
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    whole = factorize(dense_workload(work), objective=objective, weights=weights)
    if objective == "max":
        reached, scale = strategy.weighted_error("max"), 1.0
    else:
        reached, scale = strategy.weighted_error(), float((weights**2).sum())
    assert 1 - 1e-9 <= (reached / strategy.bound) ** 0.5 <= 1.0001
    assert (strategy.bound / scale) ** 0.5 <= whole.gamma * (1 + 1e-9)
    assert whole.lower_bound <= (reached / scale) ** 0.5 * (1 + 1e-9)


def test_a_mixture_is_better_than_groups_beside_each_other() -> None:
    work = sf.prefixes(CUBE, "a") | CONDITIONS | GIVEN
    beside = sf.plan(work, sf.Budget(mu=1), mechanism="gaussian-groups")
    together = dense(work)
    assert together.weighted_error() < 0.9 * beside.strategy.weighted_error()


def test_the_mixture_obeys_the_rules_of_a_term() -> None:
    term = dense(WORKLOADS["mixed"]).blocks[0].term
    assert isinstance(term, Mixture)
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 50, term.shape), rng.normal(size=term.rows)
    exact = term.apply(x)
    assert exact.dtype == np.int64
    np.testing.assert_array_equal(exact, term.apply(x.astype(object)).astype(np.int64))
    as_floats = np.ldexp(exact.astype(float), -term.fraction_bits)
    np.testing.assert_allclose(term.apply(x.astype(float)), as_floats, rtol=1e-12)
    assert as_floats @ y == pytest.approx((x * term.adjoint(y)).sum(), rel=1e-9)
    unit = np.eye(term.domain.cells(term.attributes)).reshape(-1, *term.shape)
    m = np.array([term.apply(e) for e in unit]).T
    low, high = term.coefficient_bounds()
    np.testing.assert_allclose(low, m.min(axis=1))
    np.testing.assert_allclose(high, m.max(axis=1))
    np.testing.assert_allclose(term.row_powers(2), (m**2).sum(axis=1))
    assert term.greatest == np.abs(m).max()
    assert term.is_nonnegative == bool((m >= 0).all())
    assert np.prod([v.max() for _, v in term.column_factors(2)]) >= (m**2).sum(axis=0).max()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_calibrated_noise_covers_every_pair_of_neighbours(neighbours: str) -> None:
    work = WORKLOADS["mixed"]
    strategy = dense(work)
    noise = calibrate(strategy, 1.0, neighbours)  # type: ignore[arg-type]
    _, m, _ = written(strategy, work)
    pairs = m if neighbours == "add-remove" else (m[:, :, None] - m[:, None, :]).reshape(len(m), -1)
    needed = Fraction(float((pairs**2).sum(axis=0).max())) / Fraction(noise[0].scale) ** 2
    stated = privacy_loss(strategy, noise, neighbours)  # type: ignore[arg-type]
    assert needed <= stated <= 1
    assert stated <= needed * Fraction(1001, 1000)


def test_two_hundred_conditions_on_a_thousand_billion_cells() -> None:
    """Ranges and sets on three attributes of 10,000 values."""
    rng = np.random.default_rng(7)
    domain = sf.Domain(dict.fromkeys("xyz", 10000))
    at = [sf.attribute(domain, n) for n in "xyz"]
    asked = []
    for _ in range(200):
        i, j = (int(a) for a in rng.choice(3, 2, replace=False))
        low = int(rng.integers(0, 10)) * 1000
        part = at[i].between(low, low + int(rng.integers(1, 8)) * 1000 - 1)
        if rng.random() < 0.5:
            part = part & at[j].isin([int(v) * 1000 for v in rng.choice(10, 3, replace=False)])
        asked.append(part)
    strategy = dense(sf.predicates(domain, asked))
    assert domain.size == 10**12
    assert 1 <= (strategy.weighted_error() / strategy.bound) ** 0.5 <= 1.0001


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_half_a_million_distinct_columns(objective: str) -> None:
    rng = np.random.default_rng(0)
    domain = sf.Domain(dict.fromkeys("xyz", 10000))
    at = [sf.attribute(domain, n) for n in "xyz"]
    asked = []
    for _ in range(170):
        parts = []
        for i in rng.choice(3, int(rng.integers(1, 4)), replace=False):
            low, high = sorted(int(v) for v in rng.integers(0, 10_000, 2))
            few = [int(v) for v in rng.choice(10_000, 5, replace=False)]
            parts.append(at[i].between(low, high) if rng.random() < 0.7 else at[i].isin(few))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        asked.append(whole)
    strategy = dense(sf.predicates(domain, asked), objective)
    reached = strategy.weighted_error(objective)
    assert strategy.mixture.columns.shape[1] > 2**18
    assert 1 <= (reached / strategy.bound) ** 0.5 <= 1.0001


def test_what_cannot_be_solved_is_refused_with_reasons() -> None:
    wide = sf.Domain({f"x{i}": 10 for i in range(12)})
    with pytest.raises(TooLarge, match="better ways"):
        dense(sf.marginals(wide, 2))
    with pytest.raises(PlanError, match="objective"):
        dense(CONDITIONS, "mean")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="zero"):
        dense(sf.predicates(CUBE, [(A == 1) & (A == 2)]))


def test_strategies_that_measure_different_matrices_have_different_digests() -> None:
    strategies = [dense(WORKLOADS[n]) for n in ("conditions", "mixed", "given")]
    strategies.append(dense(WORKLOADS["mixed"], "max"))
    assert len({s.digest() for s in strategies}) == len(strategies)
    assert dense(WORKLOADS["mixed"]).digest() == strategies[1].digest()


@pytest.mark.parametrize("seed", range(5))
def test_the_farthest_pair_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(6, 300)) * rng.lognormal(size=300)
    expected = max(((columns - columns[:, [j]]) ** 2).sum(axis=0).max() for j in range(300))
    assert farthest_pair(columns) == pytest.approx(expected, rel=1e-12)


def test_the_farthest_pair_of_too_many_columns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.random.default_rng(9).normal(size=(6, 300))
    exact = farthest_pair(columns)
    monkeypatch.setitem(farthest_pair.__globals__, "MOST_PRODUCTS", 10)
    assert exact <= farthest_pair(columns) <= 4 * exact
