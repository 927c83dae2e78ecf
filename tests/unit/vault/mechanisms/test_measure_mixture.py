# SPDX-License-Identifier: Apache-2.0
"""Mixtures in the vault: exact integers from exact answers, end to end on a small table."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.planning.calibrate import calibrate
from sfumato.strategy.matrix import Dense, dense
from sfumato.strategy.measured import Mixture
from sfumato.vault.mechanisms.measure import combined_values, count, measure
from sfumato.vault.mechanisms.noise import rounded_gaussian
from sfumato.vault.tables import open_table
from sfumato.workload.workload import Workload
from tests.shared.words import SeededWords

WIDE = sf.Domain({"x": 10_000, "y": 10_000, "z": 10_000})
X, Y, Z = (sf.attribute(WIDE, n) for n in "xyz")


def mixed() -> Workload:
    conditions = [X.between(0, 1000 * i - 1) & Y.between(700 * i, 9999) for i in range(1, 9)]
    conditions += [~(Z == 5), (X == 3) | (Y == 4)]
    halves = np.repeat([[1.0, 0.25], [0.0, -1.5]], 5000, axis=1)
    return sf.predicates(WIDE, conditions) | sf.explicit(WIDE, ["z"], halves)


def people(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame({n: rng.integers(0, 10_000, rows) for n in "xyz"})


def truth(table: pd.DataFrame) -> np.ndarray:
    """The answers by pandas, written out apart from the conditions above."""
    x, y, z = table["x"], table["y"], table["z"]
    found = [((x < 1000 * i) & (y >= 700 * i)).sum() for i in range(1, 9)]
    found += [(z != 5).sum(), ((x == 3) | (y == 4)).sum()]
    low = int((z < 5000).sum())
    return np.array([*found, low + 0.25 * (len(table) - low), -1.5 * (len(table) - low)])


def by_hand(mixture: Mixture, answers: np.ndarray) -> list[int]:
    """``C (F_B h)`` in Python integers, in steps of the mixture."""
    first, picked = 0, []
    for term, rows in zip(mixture.base, mixture.picked, strict=True):
        values = answers[first : first + term.rows][rows] * 2**mixture.fraction_bits
        picked += [int(v) for v in values]
        first += term.rows
    return [sum(int(c) * v for c, v in zip(row, picked, strict=True)) for row in mixture.entries]


@pytest.fixture(scope="module")
def strategy() -> Dense:
    return dense(mixed())


def test_a_mixture_over_a_great_domain_is_counted_exactly(strategy: Dense) -> None:
    table = people()
    exact = count(open_table(table), WIDE, strategy.blocks, "add-remove").values.reveal()
    mixture = strategy.blocks[0].term
    assert isinstance(mixture, Mixture)
    assert len(mixture.base) == 2
    assert [int(v) for v in exact[0]] == by_hand(mixture, truth(table))


def test_answers_without_noise_are_the_true_ones(strategy: Dense) -> None:
    table = people()
    exact = count(open_table(table), WIDE, strategy.blocks, "add-remove").values.reveal()
    values = [np.ldexp(exact[0].astype(float), -strategy.blocks[0].term.fraction_bits)]
    found = np.concatenate(strategy.answers(values))
    np.testing.assert_allclose(found, truth(table), atol=1e-8)


def test_a_release_is_the_exact_mixture_plus_noise_on_the_grid(strategy: Dense) -> None:
    noise = calibrate(strategy, 0.5, "add-remove")
    exact = count(open_table(people()), WIDE, strategy.blocks, "add-remove")
    out = measure(exact, strategy.blocks, noise, SeededWords(3)).measurements[0]
    z = rounded_gaussian(Fraction(noise[0].units), strategy.blocks[0].term.rows, SeededWords(3))
    shift = noise[0].grid_bits - strategy.blocks[0].term.fraction_bits
    assert shift >= 0
    clean = [int(a) - int(b) for a, b in zip(out.units, z, strict=True)]
    assert clean == [int(v) << shift for v in exact.values.reveal()[0]]


def test_one_record_moves_the_mixture_by_one_of_its_columns(strategy: Dense) -> None:
    table = people(60)
    mixture = strategy.blocks[0].term
    assert isinstance(mixture, Mixture)
    columns = {tuple(c) for c in (mixture.entries @ mixture.columns.astype(np.int64)).T.tolist()}
    source = open_table(table)
    whole = count(source, WIDE, strategy.blocks, "add-remove").values.reveal()[0]
    for row in range(3):
        fewer = open_table(table.drop(index=row))
        part = count(fewer, WIDE, strategy.blocks, "add-remove").values.reveal()[0]
        assert tuple(int(v) for v in whole - part) in columns


def test_the_rows_of_a_unit_are_the_same_for_all_parts_of_a_mixture(strategy: Dense) -> None:
    """At most 2 rows of each person, the same ones in conditions and tables."""
    table = people(80)
    table["person"] = np.arange(80) // 8
    unit = PrivacyUnit("person", 2)
    blocks = strategy.blocks
    exact = count(open_table(table), WIDE, blocks, "add-remove", unit).values.reveal()[0]
    values = [np.ldexp(exact.astype(float), -blocks[0].term.fraction_bits)]
    found = strategy.answers(values)
    # from 20 records: low + 0.25 high and -1.5 high
    high = found[1][1] / -1.5
    low = found[1][0] - 0.25 * high
    assert low + high == pytest.approx(20)


def test_values_beyond_64_bits_are_exact(strategy: Dense) -> None:
    mixture = strategy.blocks[0].term
    assert isinstance(mixture, Mixture)
    answers = truth(people())
    parts = [
        np.array([int(v * 2**t.fraction_bits) * 2**12 for v in part])
        for t, part in zip(mixture.base, np.split(answers, [mixture.base[0].rows]), strict=True)
    ]
    few = mixture.entries % 8
    small = combined_values(replace(mixture, entries=few), parts)
    assert small.dtype == np.int64
    found = combined_values(replace(mixture, entries=few * 2**50), parts)
    assert [int(v) for v in found] == [int(v) * 2**50 for v in small]
    assert found.dtype == object
