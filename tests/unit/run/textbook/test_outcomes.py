# SPDX-License-Identifier: Apache-2.0
"""What the mechanisms of the notes share: data, words, ledgers, results."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import ceil

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import BudgetExhausted, LedgerError, PlanError, TableError, WorkloadError
from sfumato.run.textbook.outcomes import (
    Instance,
    exact_numbers,
    exact_sensitivity,
    grid_bits,
    moved_on_grid,
    on_grid,
)

study = sf.study
F = np.tril(np.ones((4, 4)))
H = [5, 0, 7, 3]
DOMAIN = sf.Domain({"age": 4})
TABLE = pd.DataFrame({"age": np.repeat(np.arange(4), H)})


def test_arrays_records_and_tables_have_the_same_exact_answers():
    codes = np.repeat(np.arange(4), H)
    work = sf.prefixes(DOMAIN, "age")
    from sfumato.vault.tables import open_table

    for instance, table in (
        (Instance.of(F, H), None),
        (Instance.of(F, None, codes), None),
        (Instance.of(work, TABLE), open_table(TABLE)),
    ):
        assert instance.answers(table, 0).reveal() == [5, 5, 12, 15]


def test_the_number_of_records_is_public_only_where_records_are_replaced():
    assert study.laplace_mechanism(F, H, epsilon=1).n is None
    noisy = study.laplace_mechanism(F, H, epsilon=1, neighbours="replace-one")
    assert noisy.n == 15
    np.testing.assert_allclose(noisy.shares * 15, noisy.answers)
    with pytest.raises(PlanError, match="private"):
        _ = study.laplace_mechanism(F, H, epsilon=1).shares


@pytest.mark.parametrize(
    "call",
    [
        lambda: study.laplace_mechanism(F, [1, 2, 3], epsilon=1),
        lambda: study.laplace_mechanism(F, [1, 2, 3, -1], epsilon=1),
        lambda: study.laplace_mechanism(F, [0.5, 2, 3, 1], epsilon=1),
        lambda: study.laplace_mechanism(F, records=[0, 4], epsilon=1),
        lambda: study.laplace_mechanism(F, H, records=[0], epsilon=1),
        lambda: study.laplace_mechanism(F, H, epsilon=1, sensitivity=1),
        lambda: study.laplace_mechanism([1.0, 2.0], epsilon=1),
        lambda: study.laplace_mechanism([float("nan")], epsilon=1, sensitivity=1),
        lambda: study.laplace_mechanism(sf.prefixes(DOMAIN, "age"), epsilon=1),
        lambda: study.gaussian_mechanism(F, H, epsilon=1),
        lambda: study.binary_tree("sums", H, epsilon=1),
        lambda: study.binary_tree("prefixes", H, epsilon=1, branching=1),
        lambda: study.above_threshold([1, 2], epsilon=1),
        lambda: study.sparse_vector([1, 2], T=1, epsilon=1, c=0),
        lambda: study.sparse_vector([1, 2], T=1, epsilon=1, c=1, variant="third"),
        lambda: study.above_threshold([1, 2], T=1, epsilon=1, noise="gaussian"),
        lambda: study.exponential_mechanism([1, 2], epsilon=1, count=3),
        lambda: study.noisy_max([1, 2], epsilon=1, noise="cauchy"),
        lambda: study.private_multiplicative_weights(F, H, epsilon=1),
        lambda: study.private_multiplicative_weights(F, H, epsilon=1, neighbours="add-remove"),
        lambda: study.laplace_mechanism(F, H, epsilon=1).error_bound(2),
    ],
)
def test_wrong_arguments_are_refused_in_words(call):
    with pytest.raises((PlanError, TableError, WorkloadError)):
        call()


def test_seeded_words_repeat_and_are_refused_beside_a_table_and_a_ledger(tmp_path):
    first, again = (
        study.laplace_mechanism(F, H, epsilon=1, random=study.SeededWords(3)) for _ in range(2)
    )
    np.testing.assert_array_equal(first.answers, again.answers)
    assert "protects nothing" in repr(first)
    assert "yours to remember" in repr(study.laplace_mechanism(F, H, epsilon=1))
    words = study.SeededWords(3)
    with pytest.raises(PlanError, match="repeatable"):
        study.laplace_mechanism(sf.prefixes(DOMAIN, "age"), TABLE, epsilon=1, random=words)
    ledger = sf.Ledger.create(tmp_path / "a.ledger", sf.Budget(epsilon=1), "made up")
    with pytest.raises(PlanError, match="repeatable"):
        study.laplace_mechanism(F, H, epsilon=1, ledger=ledger, name="made up", random=words)
    assert not list(ledger.entries())


def test_a_ledger_is_debited_before_and_gives_the_stored_answer_after(tmp_path):
    ledger = sf.Ledger.create(tmp_path / "a.ledger", sf.Budget(epsilon=2), "made up")
    how = {"ledger": ledger, "name": "made up"}
    first = study.laplace_mechanism(F, H, epsilon=1, **how)
    again = study.laplace_mechanism(F, H, epsilon=1, **how)
    np.testing.assert_array_equal(first.answers, again.answers)
    (entry,) = ledger.entries()
    assert entry.cost == first.cost
    assert first.note == ""
    chosen = study.exponential_mechanism(F, H, epsilon=0.5, **how)
    assert study.exponential_mechanism(F, H, epsilon=0.5, **how).answers == chosen.answers
    some = study.sparse_vector(F, H, T=8, epsilon=0.25, c=2, **how)
    assert study.sparse_vector(F, H, T=8, epsilon=0.25, c=2, **how).answers == some.answers
    assert len(list(ledger.entries())) == 3
    with pytest.raises(BudgetExhausted):
        study.binary_tree("prefixes", H, epsilon=1, **how)


def test_numbers_of_the_caller_need_a_key_in_a_ledger(tmp_path):
    ledger = sf.Ledger.create(tmp_path / "a.ledger", sf.Budget(epsilon=2), "made up")
    how = {"ledger": ledger, "name": "made up"}
    with pytest.raises(PlanError, match="key"):
        study.noisy_max([1, 2], epsilon=1, **how)
    study.noisy_max([1, 2], epsilon=1, key="scores of May", **how)
    with pytest.raises(LedgerError, match="another request"):
        study.noisy_max([1, 2, 3], epsilon=1, key="scores of May", **how)


NUMBERS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.integers(0, 2**30), st.floats(1e-3, 1e3))
def test_rounding_to_the_grid_moves_neighbours_by_no_more_than_is_accounted(values, seed, moved):
    """Mironov 2012: what is accounted must hold for the numbers that the noise is added to."""
    rng = np.random.default_rng(seed)
    left = exact_numbers(values, "numbers")
    share = rng.dirichlet(np.ones(left.size)) * rng.choice([-1, 1], left.size)
    right = exact_numbers(left + moved * share, "numbers")
    distance = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(left, right, strict=True))
    assume(distance > 0)
    bits = grid_bits(left, distance, left.size)
    pairs = zip(on_grid(left, bits), on_grid(right, bits), strict=True)
    assert sum(abs(a - b) for a, b in pairs) <= ceil(distance * 2**bits) + left.size
    assert left.size * 2.0**-bits <= float(distance) * 2**-11


def test_whole_numbers_stay_whole_and_have_no_slack():
    noisy = study.laplace_mechanism([3, 5], epsilon=1, sensitivity=1)
    assert (noisy.answers == np.rint(noisy.answers)).all()
    assert noisy.noise["answers"].scale == 1.0
    assert noisy.epsilon == 1.0


def test_how_far_one_query_moves_is_that_of_all_pairs_of_cells():
    rng = np.random.default_rng(2)
    matrix = rng.integers(-3, 4, (5, 6)) / 4
    pairs = list(permutations(range(6), 2))
    widest = max(abs(matrix[:, i] - matrix[:, j]).max() for i, j in pairs)
    assert Instance.of(matrix, [1] * 6).moved == Fraction(np.abs(matrix).max())
    assert Instance.of(matrix, [1] * 6, neighbours="replace-one").moved == Fraction(widest)
    assert not Instance.of(matrix, [1] * 6).is_monotone
    assert Instance.of(np.abs(matrix), [1] * 6).is_monotone


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**30), st.integers(1, 4), st.integers(2, 5), st.booleans())
def test_no_record_moves_a_score_further_than_is_accounted(seed, queries, cells, has_signs):
    """What sparse vectors and choices are told of linear queries, over all neighbours."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-6 if has_signs else 0, 7, (queries, cells)) / 8
    h = rng.integers(1, 5, cells)
    assume(matrix.any())
    for neighbours in ("add-remove", "replace-one"):
        left = Instance.of(matrix, h, None, neighbours)
        bits = max(left.bits, 8)
        most = ceil(left.moved * 2**bits)
        exact = np.array(left.answers(None, bits).reveal())
        steps = []
        for i in range(cells):
            others = [None] if neighbours == "add-remove" else [j for j in range(cells) if j != i]
            for j in others:
                again = h.copy()
                again[i] -= 1
                if j is not None:
                    again[j] += 1
                right = Instance.of(matrix, again, None, neighbours)
                steps.append(exact - np.array(right.answers(None, bits).reveal()))
        moved = np.array(steps)
        assert np.abs(moved).max() == most
        assert not left.is_monotone or (moved >= 0).all()
        assert left.is_monotone == (neighbours == "add-remove" and not (matrix < 0).any())


def test_sparse_matrices_and_whole_numbers_of_numpy_are_taken():
    from scipy.sparse import csr_matrix

    assert study.laplace_mechanism(csr_matrix(F), H, epsilon=1).answers.shape == (4,)
    assert study.sparse_vector([1, 900], T=500, epsilon=1, c=np.int64(1)).places == (1,)
    with pytest.raises(PlanError, match="table"):
        study.above_threshold(sf.prefixes(DOMAIN, "age"), T=1, epsilon=1)


@given(st.floats(-(2.0**52), 2.0**52), st.floats(-(2.0**52), 2.0**52), st.booleans())
@settings(max_examples=200, deadline=None)
def test_rounding_to_the_grid_is_counted_whatever_the_sensitivity(one, other, is_whole):
    """Any two floats are neighbours for their exact distance as the sensitivity."""
    clamped = [Fraction(float(exact_numbers([v], "numbers")[0])) for v in (one, other)]
    moved = max(abs(clamped[0] - clamped[1]), Fraction(1, 2**20))
    moved = Fraction(ceil(moved)) if is_whole else moved
    left, right = exact_numbers([one], "numbers"), exact_numbers([other], "numbers")
    bits = grid_bits(left, moved, 1)
    apart = abs(on_grid(left, bits)[0] - on_grid(right, bits)[0])
    assert apart <= moved_on_grid(left, moved, bits, 1)


def test_half_a_step_of_rounding_is_part_of_the_sensitivity():
    left, right = exact_numbers([0.4], "numbers"), exact_numbers([2.0**20 + 0.5 + 0.1], "numbers")
    moved = Fraction(2**20) + Fraction(1, 4)
    assert grid_bits(left, moved, 1) == 0  # steps are ones, and floats are rounded all the same
    apart = on_grid(right, 0)[0] - on_grid(left, 0)[0]
    assert apart > moved  # the twin: without the rounding the claim would be false
    assert apart <= moved_on_grid(left, moved, 0, 1)


def test_unsigned_numbers_are_clamped_before_they_are_cast():
    near = np.array([2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert exact_numbers(near, "numbers").tolist() == [2**50] * 3
    assert exact_numbers(np.array([-(2**63), 5]), "numbers").tolist() == [-(2**50), 5]
    with pytest.raises(PlanError, match="other units"):
        exact_sensitivity(1e-300)
