# SPDX-License-Identifier: Apache-2.0
"""Mixtures: what they state about their columns holds in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.strategy.matrix import Dense, dense
from sfumato.strategy.measured import Mixture
from sfumato.vault.mechanisms.measure import combined_values, exact_values
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 3, "b": 3})
FINE = 2.0**-20


def of_unequal_sizes() -> Workload:
    """Coefficients up to 2^52 beside others in steps of 2^-40: 92 bits together."""
    large = sf.product(DOMAIN, {"a": [[2.0**30, 0, 0]], "b": [[2.0**22, 0, 1]]})
    return large | sf.product(DOMAIN, {"a": [[1, FINE, 0]], "b": [[FINE, 1, 1 - FINE]]})


def true_columns(term: Mixture) -> list[list[Fraction]]:
    """``M e_j`` of every cell as the vault computes it, in fractions."""
    out = []
    for cell in range(DOMAIN.size):
        h = np.zeros(DOMAIN.size, dtype=np.int64)
        h[cell] = 1
        table = h.reshape(DOMAIN.shape)
        sums = [
            table.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in t.attributes))
            for t in term.base
        ]
        answers = [exact_values(t, s) for t, s in zip(term.base, sums, strict=True)]
        found = combined_values(term, answers)
        out.append([Fraction(int(v), 2**term.fraction_bits) for v in found])
    return out


def test_coefficients_that_need_too_many_bits_together_are_refused() -> None:
    """Cut to 64 bits they would state a far too small sensitivity."""
    with pytest.raises(PlanError, match=r"at most 2\^53"):
        dense(of_unequal_sizes())


def test_a_plan_of_coefficients_of_unequal_sizes_states_no_less_than_it_loses() -> None:
    plan = sf.plan(of_unequal_sizes(), sf.Budget(mu=1), cache=False)
    moved = np.zeros(DOMAIN.size)
    for block, law in zip(plan.strategy.blocks, plan.noise, strict=True):
        for cell in range(DOMAIN.size):
            h = np.zeros(DOMAIN.size, dtype=object)
            h[cell] = 1
            table = h.reshape(DOMAIN.shape)
            drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
            values = block.term.apply(np.asarray(table.sum(axis=drop)))
            power = sum(Fraction(int(v)) ** 2 for v in values)
            moved[cell] += float(power / Fraction(4) ** block.term.fraction_bits) / law.scale**2
    assert moved.max() <= 1.0


def nearly_repeated(amount: int) -> Dense:
    """Queries that differ little: their mixture takes differences of large numbers."""
    rows = np.full((4, 9), float(amount))
    for i in range(1, 4):
        rows[i, i] += FINE
    return dense(sf.explicit(DOMAIN, ["a", "b"], rows))


@pytest.mark.parametrize("amount", [1, 1000, 2**20])
def test_columns_of_differences_are_not_longer_than_stated(amount: int) -> None:
    strategy = nearly_repeated(amount)
    term = strategy.blocks[0].term
    assert isinstance(term, Mixture)
    columns = true_columns(term)
    for p in (1, 2):
        true = max(sum(abs(x) ** p for x in c) for c in columns)
        assert Fraction(strategy.sensitivity(p, scales=[1.0]).power) >= true
    apart = max(
        sum((x - y) ** 2 for x, y in zip(c, d, strict=True)) for c in columns for d in columns
    )
    assert Fraction(strategy.block_diameters(2)[0]) >= apart


def cancelling(seed: int) -> Mixture:
    """Random whole numbers of 30 and 52 bits whose products cancel in their leading bits."""
    rng = np.random.default_rng(seed)
    large = rng.integers(2**51, 2**52, size=(1, 9))
    columns = np.concatenate([large, large + rng.integers(-3, 4, size=(1, 9))])
    left = rng.integers(2**29, 2**30, size=(2, 1))
    entries = np.concatenate([left, -left], axis=1)
    base = sf.marginals(DOMAIN, [("a", "b")]).terms
    picked = (np.array([0, 1]),)
    return Mixture(DOMAIN, "mixture", 1.0, base, picked, entries, columns, np.ones(9))


@pytest.mark.parametrize("seed", range(20))
def test_floats_that_cancel_never_understate_a_column(seed: int) -> None:
    term = cancelling(seed)
    assert not term.is_exact
    entries, columns = term.entries.astype(object), term.columns.astype(object)
    product = entries @ columns
    for p in (1, 2):
        true = max(sum(abs(int(v)) ** p for v in product[:, j]) for j in range(9))
        assert Fraction(term.maximum_column(p)) * (1 + Fraction(1, 2**30)) >= true
    assert Fraction(term.greatest) >= max(abs(int(v)) for v in product.reshape(-1))
    off = max(
        sum((Fraction(float(f)) - int(t)) ** 2 for f, t in zip(found, true, strict=True))
        for found, true in zip(
            np.concatenate(list(term.chunks()), axis=1).T, product.T, strict=True
        )
    )
    assert off <= Fraction(term.maximum_error) ** 2


def test_floats_alone_would_understate_some_of_these_columns() -> None:
    """The twin: without the bound on cancellation the test above finds the loss."""

    def is_understated(term: Mixture) -> bool:
        product = term.entries.astype(object) @ term.columns.astype(object)
        true = max(sum(int(v) ** 2 for v in product[:, j]) for j in range(9))
        plain = max(float((c**2).sum(axis=0).max()) for c in term.chunks())
        return Fraction(plain) * (1 + Fraction(1, 2**30)) < true

    assert any(is_understated(cancelling(seed)) for seed in range(20))
