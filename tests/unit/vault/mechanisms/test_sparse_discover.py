# SPDX-License-Identifier: Apache-2.0
"""Several sparse vectors after one another, and a number for each discovery."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from sfumato.errors import PlanError, SfumatoError
from sfumato.planning.sparse_plans import SparseForecast
from sfumato.privacy.budget import Budget
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import Discoverer, SparseVector, answer, apart, times
from tests.shared.words import SeededWords

LAW = SparseLaw(NoiseLaw("laplace", Fraction(2)), NoiseLaw("laplace", Fraction(3)), 2)
NUMBER = NoiseLaw("laplace", Fraction(5))
PLAN = SparseForecast(Budget(epsilon=9), LAW, 3, NUMBER, 100, 0.95)
SCORES = [0, 4, 9, -2, 7, 8, 1, 6, 20, 3, 5, 2]


def test_the_outcomes_are_those_of_the_sparse_vectors_one_after_the_other() -> None:
    ends = set()
    for case in range(30):
        finder = Discoverer(PLAN, SeededWords(case))
        outcomes = [finder.test_many(Sensitive([q]), [4])[0] for q in SCORES if finder.left]
        words, expected = SeededWords(case), []
        vector, begun = SparseVector(LAW, words), 1
        for q in SCORES:
            if not vector.left:
                if begun == PLAN.epochs:
                    break
                vector, begun = SparseVector(LAW, words), begun + 1
            expected.append(vector.test(Sensitive(q), 4))
        assert outcomes == expected
        assert finder.left == PLAN.discoveries - sum(expected)
        ends.add(begun)
    assert ends >= {2, 3}


def test_no_more_discoveries_than_were_paid_for() -> None:
    finder = Discoverer(PLAN, SeededWords(1))
    assert finder.test_many(Sensitive([10**9] * 20), [0] * 20) == [True] * 6
    with pytest.raises(PlanError, match="new debit"):
        finder.test_many(Sensitive([0]), [0])


def test_one_number_for_each_discovery_and_no_more() -> None:
    words = SeededWords("numbers")
    finder = Discoverer(PLAN, words)
    exact = Sensitive([10**9, 10**9 + 5])
    assert finder.test_many(exact, [0, 0]) == [True, True]
    twin = Discoverer(PLAN, SeededWords("numbers"))
    twin.test_many(exact, [0, 0])
    numbers = finder.numbers(exact, [1])
    assert numbers == [answer(Sensitive(10**9 + 5), NUMBER, twin._random)]
    finder.numbers(exact, [0])
    with pytest.raises(PlanError, match="one number"):
        finder.numbers(exact, [0])
    without = SparseForecast(Budget(epsilon=9), LAW, 3, None, 100, 0.95)
    assert Discoverer(without).numbers(exact, [0]) is None


def test_a_state_taken_anywhere_goes_on_exactly() -> None:
    for cut in range(len(SCORES)):
        whole = Discoverer(PLAN, SeededWords("state"))
        expected = [whole.test_many(Sensitive([q]), [9])[0] for q in SCORES if whole.left]
        words = SeededWords("state")
        first = Discoverer(PLAN, words)
        said = [first.test_many(Sensitive([q]), [9])[0] for q in SCORES[:cut] if first.left]
        again = Discoverer.restored(PLAN, first.state(), words)
        assert again.left == first.left
        said += [again.test_many(Sensitive([q]), [9])[0] for q in SCORES[cut:] if again.left]
        assert said == expected
        assert again.state() == whole.state()


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b'{"begun":1}', b'{"begun":1,"owed":0,"vector":7}', b"\xff"]
)
def test_a_damaged_state_is_refused_without_its_content(bad: bytes) -> None:
    with pytest.raises(PlanError, match="damaged") as found:
        Discoverer.restored(PLAN, bad)
    assert found.value.__context__ is None
    good = Discoverer(PLAN, SeededWords(1)).state()
    assert Discoverer.restored(PLAN, good).state() == good
    # Of so many epochs, from 1 on; and no more numbers owed than there are discoveries.
    wrong = [(b'"begun":1', b'"begun":%d' % n) for n in (-1, 0, PLAN.epochs + 1)]
    wrong += [(b'"owed":0', b'"owed":%d' % n) for n in (-1, PLAN.discoveries + 1)]
    for was, becomes in wrong:
        assert was in good
        with pytest.raises(PlanError, match="damaged"):
            Discoverer.restored(PLAN, good.replace(was, becomes))
    for was, most in ((b'"begun":1', PLAN.epochs), (b'"owed":0', PLAN.discoveries)):
        edge = good.replace(was, was[:-1] + b"%d" % most)
        assert Discoverer.restored(PLAN, edge).state() == edge


def test_a_fork_does_not_go_on_not_even_with_a_new_sparse_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finder = Discoverer(PLAN, SeededWords(1))
    finder.test_many(Sensitive([10**9] * 2), [0] * 2)  # the next test would begin a new one
    monkeypatch.setattr("sfumato.vault.mechanisms.sparse.os.getpid", lambda: -1)
    with pytest.raises(SfumatoError, match="fork"):
        finder.test_many(Sensitive([0]), [0])
    with pytest.raises(SfumatoError, match="fork"):
        finder.numbers(Sensitive([10**9]), [0])


def test_exact_numbers_stay_in_their_box() -> None:
    box = Sensitive([104729, 3])
    for found in (times(box, -256), apart(box, [104729, 9]), Discoverer(PLAN)):
        assert repr(found) == "<exact counts: not shown>"
    assert times(box, -2).reveal() == [-209458, -6]
    assert apart(box, [9], 1).reveal() == [6]
    with pytest.raises(PlanError, match="2 scores") as error:
        Discoverer(PLAN).test_many(box, [0])
    assert "104729" not in str(error.value)


def test_a_distance_moves_by_at_most_what_its_answer_does() -> None:
    for a, b, p in itertools.product(range(-4, 5), range(-4, 5), range(-4, 5)):
        one, other = (apart(Sensitive([x]), [p]).reveal()[0] for x in (a, b))
        assert abs(one - other) <= abs(a - b)


def test_distances_are_those_of_the_answers_from_a_place_on():
    exact = Sensitive([10, 20, 30, 40])
    assert apart(exact, [25, 25], first=1).reveal() == [5, 5]
    assert apart(exact, [0]).reveal() == [10]
    with pytest.raises(ValueError, match="longer"):
        apart(exact, [0, 0], first=3)
    assert times(exact, 3).reveal() == [30, 60, 90, 120]
