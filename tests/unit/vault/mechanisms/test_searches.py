# SPDX-License-Identifier: Apache-2.0
"""The keys of a table: what is counted, and by how much one person can change it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.privacy.discovery_laws import BITS, GaussianKeys, OptimalKeys
from sfumato.vault.mechanisms.searches import ExactKeys, published_numbers, read_keys
from sfumato.vault.tables import open_table
from tests.shared.words import SeededWords

LAW = OptimalKeys(Fraction(1), Fraction(1, 1000), 1)


def exact_of(frame: pd.DataFrame, columns: list[str], unit: PrivacyUnit | None = None, secret=None):
    """The keys of a frame and their numbers of people, read inside the vault."""
    table = open_table(frame)
    table.secret = secret
    exact = read_keys(table, columns, unit)
    keys = exact._fetched(np.arange(exact._people.size))
    return {keys[i]: int(n) for i, n in enumerate(exact._people)}


rows = st.lists(
    st.tuples(st.sampled_from("abc,"), st.sampled_from([1, 2, None]), st.integers(0, 4)),
    max_size=12,
)


def frame_of(drawn: list[tuple[str, int | None, int]]) -> pd.DataFrame:
    text = pd.array([row[0] for row in drawn], dtype="string")
    number = pd.array([row[1] for row in drawn], dtype="Int64")
    return pd.DataFrame({"t": text, "n": number, "who": [row[2] for row in drawn]})


@settings(max_examples=10, deadline=None)
@given(rows, st.integers(0, 11), st.integers(1, 3))
def test_one_person_more_changes_as_many_keys_as_it_may_have_by_one(drawn, place, most) -> None:
    unit = PrivacyUnit("who", most)
    person = drawn[place % len(drawn)][2] if drawn else 0
    less = [row for row in drawn if row[2] != person]
    for columns in (["t"], ["t", "n"]):
        one = exact_of(frame_of(drawn), columns, unit, "s")
        other = exact_of(frame_of(less), columns, unit, "s")
        moves = {key: one.get(key, 0) - other.get(key, 0) for key in {*one, *other}}
        assert set(moves.values()) <= {0, 1}
        assert sum(moves.values()) <= most


@settings(max_examples=12, deadline=None)
@given(rows, st.integers(0, 11))
def test_one_row_more_changes_one_key_by_one(drawn, place) -> None:
    less = [row for i, row in enumerate(drawn) if i != place]
    one, other = exact_of(frame_of(drawn), ["t"]), exact_of(frame_of(less), ["t"])
    moved = [abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}]
    assert sum(moved) == (place < len(drawn))


def test_rows_of_a_person_that_were_not_bounded_move_more_than_claimed() -> None:
    frame = frame_of([("a", 1, 0)] * 5)
    assert exact_of(frame, ["t"]) == {("a",): 5}  # the twin: without a unit, five rows are five
    assert exact_of(frame, ["t"], PrivacyUnit("who", 2)) == {("a",): 1}


def test_nulls_and_what_is_no_key_are_left_out_and_orders_do_not_matter() -> None:
    drawn = [("a", 1, 0), ("b", None, 1), ("a", 2, 2), ("b", 1, 3)]
    expected = {("a", 1): 1, ("a", 2): 1, ("b", 1): 1}
    assert exact_of(frame_of(drawn), ["t", "n"]) == expected
    assert exact_of(frame_of(drawn[::-1]), ["t", "n"]) == expected


def test_keys_show_nothing_of_themselves() -> None:
    exact = read_keys(open_table(frame_of([("a", 1, 0)])), ["t"])
    assert repr(exact) == "<exact counts: not shown>"
    with pytest.raises(Exception, match="stay in the vault"):
        list(exact)


@pytest.mark.parametrize("law", [LAW, GaussianKeys(Fraction(3), Fraction(1, 100), 1, 1)])
def test_published_keys_stand_in_the_order_of_their_numbers_then_of_the_keys(law) -> None:
    frame = pd.DataFrame({"t": pd.array(list("dcba") * 60, dtype="string")})
    exact = read_keys(open_table(frame), ["t"])
    assert isinstance(exact, ExactKeys)
    for seed in range(5):
        keys, numbers, _ = exact.published(law, 10, SeededWords(f"order {seed}"))
        pairs = [(-number, key) for key, number in zip(keys, numbers, strict=True)]
        assert pairs == sorted(pairs)
        two, _, passed = exact.published(law, 2, SeededWords(f"order {seed}"))
        assert len(two) == 2
        assert passed == len(keys)


class Scripted:
    """Words that are set beforehand."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize(("step", "is_published"), [(-1, True), (0, False), (1, False)])
def test_a_draw_is_decided_by_as_many_words_as_it_takes(step, is_published) -> None:
    # u just below, at and above pi(1): the first words agree, the last ones decide.
    uniform = LAW.published[0] + step
    words = [(uniform >> shift) & (2**64 - 1) for shift in range(BITS - 64, -1, -64)]
    places, numbers = published_numbers(np.array([1]), LAW, Scripted(*words))
    assert places.tolist() == ([0] if is_published else [])
    assert all(number >= LAW.threshold for number in numbers)


def test_many_keys_are_counted_in_bounded_memory() -> None:
    # A column of unique values: nothing of it leaves the engine but the numbers.
    frame = pd.DataFrame({"id": np.arange(200_000)})
    exact = read_keys(open_table(frame), ["id"])
    law = OptimalKeys(Fraction(1), Fraction(1, 10**9), 1)
    keys, *_ = exact.published(law, 10, SeededWords("m"))
    assert keys == []
