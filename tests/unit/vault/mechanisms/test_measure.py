"""What is measured is M h on the grid, plus noise of the stated law."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.measurement import LENGTH_BITS
from sfumato.planning.calibrate import privacy_loss
from sfumato.planning.division import length_of
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.strategy.base import Block
from sfumato.strategy.pieces import pieces
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import (
    Exact,
    add_noise,
    count,
    exact_values,
    measure,
    measure_in_turn,
    measured_length,
)
from sfumato.vault.mechanisms.noise import discrete_laplace, rounded_gaussian
from sfumato.vault.mechanisms.select import read_answers, read_tables
from sfumato.vault.tables import open_table
from sfumato.vault.vault_limits import LIMITS
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 6, "b": 4})
TABLE = np.arange(24).reshape(6, 4)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_is_added_to_exact_integers_on_the_grid(noise: str) -> None:
    term = sf.product(DOMAIN, {"a": [[0.5, 1, 0, 0, 0, 2]], "b": "identity"}).terms[0]
    law = BlockNoise(noise, 2**16, 12)  # type: ignore[arg-type]
    exact = exact_values(term, TABLE)
    noisy = add_noise(exact, term, law, SeededWords(1))
    draw = rounded_gaussian if noise == "gaussian" else discrete_laplace
    z = draw(Fraction(2**16), exact.size, SeededWords(1))
    np.testing.assert_array_equal(noisy - z, exact << (12 - term.fraction_bits))
    assert noisy.dtype == np.int64


def test_sums_beyond_64_bits_are_exact() -> None:
    term = sf.product(DOMAIN, {"a": [[2**30] * 6], "b": [[2**30] * 4]}).terms[0]
    table = np.full((6, 4), 2**40)
    exact = exact_values(term, table)
    assert [int(v) for v in exact] == [24 * 2**100]
    law = BlockNoise("gaussian", 2**20, 0)
    noisy = add_noise(exact, term, law, SeededWords(2))
    z = rounded_gaussian(Fraction(2**20), 1, SeededWords(2))
    assert int(noisy[0]) == 24 * 2**100 + int(z[0])


@pytest.mark.parametrize("bits", [9, 15, 20])
def test_the_way_through_64_bits_and_floats_is_exact(bits: int) -> None:
    """Coefficients of 18 to 40 bits on counts of up to 40: compared with Python integers."""
    rng = np.random.default_rng(bits)
    rows = {n: rng.integers(-(2**bits), 2**bits, size=(3, DOMAIN[n].size)) for n in "ab"}
    term = sf.product(DOMAIN, rows).terms[0]
    table = rng.integers(0, 2**40, size=(6, 4))
    by_hand = rows["a"].astype(object) @ table.astype(object) @ rows["b"].astype(object).T
    exact = exact_values(term, table)
    assert [int(v) for v in exact] == [int(v) for v in by_hand.reshape(-1)]
    assert max(abs(int(v)) for v in exact) > 2**62 or bits == 9


def test_fine_coefficients_are_rounded_to_the_nearest_step() -> None:
    term = sf.product(DOMAIN, {"a": [[1] * 6]}).terms[0]
    law = BlockNoise("gaussian", 2**20, -3)
    for total, steps in ((11, 1), (12, 2), (20, 3), (-4, 0)):
        noisy = add_noise(np.array([total]), term, law, SeededWords(3))
        z = rounded_gaussian(Fraction(2**20), 1, SeededWords(3))
        assert int(noisy[0] - z[0]) == steps


def test_rounding_is_part_of_the_stated_loss() -> None:
    """Neighbours move a rounded value by at most one step more than the strategy says."""
    domain = sf.Domain({"a": 24, "b": 24, "c": 24})
    strategy = pieces(sf.product(domain, {"a": "prefix", "b": "prefix", "c": "prefix"}))
    assert strategy is not None
    plan = sf.plan(strategy.workload, sf.Budget(mu=1), mechanism="factorization")
    pairs = list(zip(plan.strategy.blocks, plan.noise, strict=True))
    rounded = [(b, n) for b, n in pairs if n.grid_bits < b.term.fraction_bits]
    assert rounded, "this workload needs a coarser grid"
    stated = float(privacy_loss(plan.strategy, plan.noise, "add-remove"))
    rng = np.random.default_rng(4)
    for _ in range(20):
        cell = tuple(int(c) for c in rng.integers(0, 24, size=3))
        one = np.zeros((24, 24, 24), dtype=np.int64)
        one[cell] = 1
        moved = 0.0
        for block, law in pairs:
            drop = tuple(i for i, n in enumerate(domain.names) if n not in block.term.attributes)
            exact = exact_values(block.term, one.sum(axis=drop))
            steps = np.abs(exact.astype(float)) * 2.0**law.grid_bits
            extra = 1.0 if law.grid_bits < block.term.fraction_bits else 0.0
            moved += float((((steps + extra) / law.units) ** 2).sum())
        assert moved <= stated
    assert stated <= 1


@pytest.mark.parametrize("bits", [0, 40, 61])
def test_python_integers_are_added_up_some_at_a_time(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same values whatever the size of the parts; words where all of a part fit."""
    term = sf.product(sf.Domain({"x": 2}), {"x": [[2**20, 1]] * 7}).terms[0]
    law = BlockNoise("gaussian", 2**16, 3 + bits // 4)
    exact = np.array([2**bits + i for i in range(7)], dtype=object)
    whole = add_noise(exact, term, law, SeededWords("parts"))
    monkeypatch.setattr(
        "sfumato.vault.mechanisms.measure.LIMITS", replace(LIMITS, values_at_once=3)
    )
    parts = add_noise(exact, term, law, SeededWords("parts"))
    assert [int(v) for v in parts] == [int(v) for v in whole]
    z = rounded_gaussian(Fraction(law.units), 7, SeededWords("parts"))
    assert [int(v) - int(e) for v, e in zip(parts, z, strict=True)] == [
        int(v) << law.grid_bits for v in exact
    ]


@pytest.mark.parametrize("grid_bits", [-70, -3, 0, 5, 30])
@pytest.mark.parametrize("bits", [3, 30, 58, 61, 62])
def test_words_and_python_integers_get_the_same_noise(bits: int, grid_bits: int) -> None:
    """Where the coefficients are fine, values that fit in words are added up in words."""
    term = sf.product(sf.Domain({"x": 2}), {"x": [[2**30, 1]] * 6}).terms[0]
    law = BlockNoise("gaussian", 2**16, grid_bits)
    words = np.array([0, 1, -1, 2**bits, -(2**bits), 2**bits - 1])
    noisy = [
        add_noise(exact, term, law, SeededWords("same")) for exact in (words, words.astype(object))
    ]
    assert noisy[0].dtype == noisy[1].dtype
    assert noisy[0].tolist() == noisy[1].tolist()
    z = rounded_gaussian(Fraction(law.units), 6, SeededWords("same"))
    up, down = max(grid_bits, 0), max(-grid_bits, 0)
    half = 2**down // 2
    by_hand = [((v << up) + half >> down) + int(e) for v, e in zip(words.tolist(), z, strict=True)]
    assert noisy[0].tolist() == by_hand


def test_fine_coefficients_of_few_records_stay_in_words() -> None:
    term = sf.product(DOMAIN, {"a": [[2**30] * 6], "b": "identity"}).terms[0]
    exact = exact_values(term, TABLE)
    assert exact.dtype == np.int64
    assert exact.tolist() == [2**30 * int(v) for v in TABLE.sum(axis=0)]
    crowd = exact_values(term, TABLE * 2**40)
    assert crowd.tolist() == [2**70 * int(v) for v in TABLE.sum(axis=0)]


def test_measuring_tells_how_far_it_is_and_keeps_the_laws_and_the_number_of_records() -> None:
    blocks = [Block(term, 1.0) for term in sf.marginals(DOMAIN, 1).terms]
    laws = [BlockNoise("laplace", 2**k, 0) for k in range(len(blocks))]
    values = tuple(exact_values(b.term, TABLE.sum(axis=1 - i)) for i, b in enumerate(blocks))
    told: list[tuple[int, int, str]] = []
    exact = Exact(Sensitive(values), 276)
    found = measure(exact, blocks, laws, SeededWords(3), lambda *now: told.append(now))
    assert told == [(1, 2, "measuring"), (2, 2, "measuring")]
    assert found.rows == 276
    assert [m.noise for m in found.measurements] == laws
    with pytest.raises(ValueError, match="shorter"):
        measure(exact, blocks, laws[:1], SeededWords(3))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_rounds_add_the_noise_of_their_words_to_exact_integers(noise: str) -> None:
    law = BlockNoise(noise, 2**10, 3)  # type: ignore[arg-type]
    draw = rounded_gaussian if noise == "gaussian" else discrete_laplace

    def z(size: int) -> list[int]:
        return draw(Fraction(2**10), size, SeededWords(4)).tolist()

    rows = pd.DataFrame({"a": [0, 0, 5], "b": [1, 1, 3]})
    tables, _ = read_tables(open_table(rows), DOMAIN, [("a",)], "add-remove")
    found = tables.measure(("a",), law, SeededWords(4))
    assert found.noise == law
    assert (found.units - z(6)).tolist() == [16, 0, 0, 0, 0, 8]

    work = sf.product(DOMAIN, {"a": [[0.5, 0, 0, 0, 0, 0.5], [1, 1, 1, 1, 1, 0]]})
    answers, _ = read_answers(open_table(rows), work, "add-remove")
    assert answers.bits == 1  # halves: 3 and 4 of them
    some = answers.measure_some([1, 0], law, SeededWords(4))
    assert (some.units - z(2)).tolist() == [4 * 8, 3 * 8]
    assert (answers.measure(0, law, SeededWords(4)).units - z(1)).tolist() == [3 * 8]
    assert (answers.measure(None, law, SeededWords(4)).units - z(1)).tolist() == [3 * 8]
    assert list(answers.at(4).reveal()) == [3 * 8, 4 * 8]
    errors = answers.errors(np.array([0, 12]), 1, 6)  # |3 - 0| - 1 and |4 - 12| - 1, at most 6
    assert errors.reveal().tolist() == [2, 6]
    assert answers.errors(np.array([3, 4]), 1, 6).reveal().tolist() == [0, 0]


def test_words_that_the_grid_would_overflow_are_added_as_python_integers() -> None:
    term = sf.marginals(DOMAIN, 1).terms[0]
    exact = np.array([2**40, 0, 1, 2, 3, 4])
    for bits, kind in ((18, "i"), (30, "O")):  # 44 bits of records with 18 more are 62
        law = BlockNoise("gaussian", 2**20, bits)
        noisy = add_noise(exact, term, law, SeededWords(5))
        z = rounded_gaussian(Fraction(2**20), 6, SeededWords(5))
        by_hand = exact.astype(object) * 2**bits + z.astype(object)
        assert [int(v) for v in noisy] == by_hand.tolist()
        assert noisy.dtype.kind == kind


def test_a_first_block_is_kept_unless_its_noise_changes():
    domain = sf.Domain({"a": 3, "b": 2})
    forecast = sf.plan(sf.marginals(domain, 1), sf.Budget(mu=1), mechanism="factorization").forecast
    blocks, noise = forecast.strategy.blocks, forecast.noise
    table = open_table(pd.DataFrame({"a": [0, 1, 2, 2], "b": [0, 1, 1, 0]}))
    exact = count(table, domain, blocks, "add-remove")
    seen = []

    def same(first, length):
        seen.append(first)
        assert length is None
        return noise

    kept = measure_in_turn(exact, blocks, noise, same, random=SeededWords(1))
    assert kept.measurements[0] is seen[0]
    plain = measure(exact, blocks, noise, SeededWords(1))
    for one, other in zip(kept.measurements, plain.measurements, strict=True):
        assert np.array_equal(one.units, other.units)
    less = tuple(replace(law, units=2 * law.units) for law in noise)
    again = measure_in_turn(exact, blocks, noise, lambda *_: less, random=SeededWords(1))
    assert [m.noise for m in again.measurements] == list(less)
    assert not np.array_equal(again.measurements[0].units, plain.measurements[0].units)


WIDE = sf.Domain({"a": 3, "b": 2, "c": 5})


def _pieces():
    """The pieces of all pairs, what counts of each, and the norms of their columns."""
    plan = sf.plan(sf.marginals(WIDE, 2), sf.Budget(mu=0.5), mechanism="factorization", cache=False)
    strategy = plan.forecast.in_normal_form.strategy
    asked = length_of(plan.forecast, 30, is_counted=True)
    assert asked is not None
    return strategy.blocks, asked, strategy.piece_norms


def _exact(blocks, table):
    return count(open_table(table), WIDE, blocks, "add-remove")


def test_a_length_is_the_root_of_the_squares_of_all_pieces_of_several_attributes():
    blocks, asked, norms = _pieces()
    rng = np.random.default_rng(0)
    exact = _exact(blocks, pd.DataFrame({a.name: rng.integers(0, a.size, 200) for a in WIDE}))
    squares = [float((v.astype(float) ** 2).sum()) for v in exact.values.reveal()]
    several = [len(b.term.attributes) > 1 for b in blocks]
    assert [w > 0 for w in asked.weights] == several
    whole = sum(s / n for s, n, many in zip(squares, norms, several, strict=True) if many)
    quiet = replace(asked, noise=replace(asked.noise, units=1))
    told = measured_length(exact, blocks, quiet, SeededWords(1))
    assert told.values[0] == pytest.approx(whole**0.5, abs=1e-4)
    loud = [measured_length(exact, blocks, asked, SeededWords(i)).values[0] for i in range(300)]
    assert np.std(loud) == pytest.approx(asked.noise.scale, rel=0.15)


def test_lengths_of_large_values_are_exact():
    blocks, asked, _ = _pieces()
    quiet = replace(asked, noise=replace(asked.noise, units=1))
    values = [np.full(b.term.rows, 2**40 + 1, dtype=np.int64) for b in blocks]
    told = measured_length(Exact(Sensitive(tuple(values)), None), blocks, quiet, SeededWords(1))
    pairs = zip(values, asked.weights, strict=True)
    square = sum(w * int(v) ** 2 for value, w in pairs for v in value)
    expected = isqrt(square << 2 * quiet.noise.grid_bits) >> LENGTH_BITS
    assert abs(int(told.units[0]) - expected) < 8
    wide = [v.astype(object) for v in values]
    again = measured_length(Exact(Sensitive(tuple(wide)), None), blocks, quiet, SeededWords(1))
    assert again.units[0] == told.units[0]
