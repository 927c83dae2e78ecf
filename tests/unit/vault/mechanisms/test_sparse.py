# SPDX-License-Identifier: Apache-2.0
"""The sparse vector as a machine: outcomes are those of its words, states go out and come in."""

from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction

import pytest

from sfumato.errors import BudgetError, PlanError, SfumatoError
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.noise import discrete_laplace, rounded_gaussian
from sfumato.vault.mechanisms.sparse import SparseVector, above_threshold, answer
from tests.shared.words import SeededWords

LAPLACE = SparseLaw(
    NoiseLaw("laplace", Fraction(3)), NoiseLaw("laplace", Fraction(7, 2)), discoveries=2
)
GAUSSIAN = SparseLaw(
    NoiseLaw("gaussian", Fraction(3)), NoiseLaw("gaussian", Fraction(7, 2)), 2, reach=9
)
SCORES = [0, 4, -30, 12, 5, 7, 40, 2]
THRESHOLDS = [5, 5, 9, 5, 1, 30, 5, 2]


def outcomes_by_hand(law: SparseLaw, seed: str) -> list[bool]:
    """Algorithm 1 of Lyu, Su, Li 2017 on the same words, with nothing of the class."""
    draw = rounded_gaussian if law.query.kind == "gaussian" else discrete_laplace
    words = SeededWords(seed)
    rho = int(draw(law.threshold.scale, 1, words)[0])
    count, out = 0, []
    for q, t in zip(SCORES, THRESHOLDS, strict=True):
        nu = int(draw(law.query.scale, 1, words)[0])
        is_above = q + nu >= t + rho or (law.reach is not None and nu >= law.reach)
        out.append(is_above)
        count += is_above
        if count >= law.discoveries:
            break
    return out


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_outcomes_are_those_of_algorithm_1_on_the_same_words(law: SparseLaw) -> None:
    seen = set()
    for case in range(60):
        expected = outcomes_by_hand(law, f"svt {case}")
        one = SparseVector(law, SeededWords(f"svt {case}"))
        assert one.test_many(Sensitive(SCORES), THRESHOLDS) == expected
        other = SparseVector(law, SeededWords(f"svt {case}"))
        pairs = zip(SCORES, THRESHOLDS, strict=True)
        assert [other.test(Sensitive(q), t) for (q, t), _ in zip(pairs, expected)] == expected  # noqa: B905
        assert one.left == other.left == law.discoveries - sum(expected)
        seen.add(tuple(expected))
    assert len(seen) > 5


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_a_restored_state_goes_on_exactly(law: SparseLaw) -> None:
    for case in range(20):
        words = SeededWords(f"state {case}")
        first = SparseVector(law, words)
        first.test_many(Sensitive([0, 0, 0]), [9, 9, 9])
        if not first.left:
            continue
        again = SparseVector.restored(law, first.state(), SeededWords(f"rest {case}"))
        assert again.state() == first.state()
        first._random = SeededWords(f"rest {case}")
        assert again.test_many(Sensitive(SCORES), THRESHOLDS) == first.test_many(
            Sensitive(SCORES), THRESHOLDS
        )
        assert again.state() == first.state()


def test_a_state_of_another_law_or_a_damaged_one_is_refused_without_its_content() -> None:
    state = SparseVector(LAPLACE, SeededWords("secret")).state()
    kept = json.loads(state)
    broken = [
        b"",
        b"[]",
        b"\xff",
        state[:-2],
        *(
            json.dumps({**kept, name: value}).encode()
            for name, value in (("left", 3), ("left", -1), ("left", True), ("version", 2))
        ),
        json.dumps({**kept, "noise": "104729x"}).encode(),
    ]
    for bad in broken:
        with pytest.raises(PlanError, match="damaged or of another") as found:
            SparseVector.restored(LAPLACE, bad)
        assert found.value.__context__ is None
        assert "104729" not in str(found.value)
    with pytest.raises(PlanError, match="damaged or of another"):
        SparseVector.restored(GAUSSIAN, state)


def test_a_sparse_vector_shows_nothing_and_is_not_copied() -> None:
    vector = SparseVector(LAPLACE, SeededWords(1))
    assert f"{vector!r}{vector}" == "<exact counts: not shown>" * 2
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SfumatoError, match="stay in the vault"):
            copying(vector)


def test_nothing_is_tested_after_the_last_discovery() -> None:
    vector = SparseVector(LAPLACE, SeededWords(1))
    assert vector.test_many(Sensitive([10**30] * 5), [0] * 5) == [True, True]
    with pytest.raises(PlanError, match="no discovery left"):
        vector.test(Sensitive(0), 0)
    again = SparseVector.restored(LAPLACE, vector.state())
    with pytest.raises(PlanError, match="no discovery left"):
        again.test(Sensitive(0), 0)


def test_a_fork_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = SparseVector(LAPLACE, SeededWords(1))
    monkeypatch.setattr("sfumato.vault.mechanisms.sparse.os.getpid", lambda: -1)
    with pytest.raises(SfumatoError, match="fork"):
        vector.test(Sensitive(0), 0)


def test_above_threshold_says_where_the_first_one_is() -> None:
    law = SparseLaw(NoiseLaw("laplace", Fraction(1)), NoiseLaw("laplace", Fraction(1)))
    far = Sensitive([-(10**6)] * 3 + [10**6] * 2)
    assert above_threshold(far, [0] * 5, law) == 3
    assert above_threshold(Sensitive([-(10**6)] * 3), [0] * 3, law) is None
    assert above_threshold(Sensitive([]), [], law) is None
    with pytest.raises(PlanError, match="one discovery"):
        above_threshold(far, [0] * 5, LAPLACE)


def test_a_numeric_answer_has_noise_of_its_own() -> None:
    law = NoiseLaw("gaussian", Fraction(50))
    drawn = int(rounded_gaussian(Fraction(50), 1, SeededWords("fresh"))[0])
    assert answer(Sensitive(1000), law, SeededWords("fresh")) == 1000 + drawn


def test_what_is_wrong_is_said_without_a_score() -> None:
    with pytest.raises(PlanError, match="2 scores need as many") as found:
        SparseVector(LAPLACE).test_many(Sensitive([104729, 104729]), [0])
    assert "104729" not in str(found.value)
    with pytest.raises(BudgetError, match="reach"):
        SparseLaw(NoiseLaw("laplace", Fraction(3)), NoiseLaw("gaussian", Fraction(3)))
    with pytest.raises(BudgetError, match="reach"):
        SparseLaw(NoiseLaw("laplace", Fraction(3)), NoiseLaw("laplace", Fraction(3)), reach=4)
    with pytest.raises(BudgetError, match="exact Fraction"):
        NoiseLaw("laplace", 0.5)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="laplace"):
        NoiseLaw("cauchy", Fraction(1))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="offset"):
        SparseLaw(NoiseLaw("laplace", Fraction(3)), NoiseLaw("laplace", Fraction(3)), offset=0.5)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="discoveries"):
        SparseLaw(NoiseLaw("laplace", Fraction(3)), NoiseLaw("laplace", Fraction(3)), 0)


def test_a_law_is_written_down_exactly_and_every_part_of_it() -> None:
    """What a ledger keeps; another law is another text."""
    law = SparseLaw(
        NoiseLaw("gaussian", Fraction(7, 3)), NoiseLaw("gaussian", Fraction(5)), 2, 3, True, 9, 4
    )
    assert law.as_json() == {
        "threshold": ["gaussian", "7/3"],
        "query": ["gaussian", "5"],
        "discoveries": 2,
        "sensitivity": 3,
        "is_monotone": True,
        "reach": 9,
        "offset": 4,
    }


@pytest.mark.parametrize("reach", [0, -1, True])
def test_a_reach_is_at_least_one_step(reach: int) -> None:
    noise = NoiseLaw("gaussian", Fraction(3))
    assert SparseLaw(noise, noise, 1, reach=1).reach == 1
    with pytest.raises(BudgetError, match="reach must be at least 1 step"):
        SparseLaw(noise, noise, 1, reach=reach)


@pytest.mark.parametrize("name", ["discoveries", "sensitivity"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, Fraction(3, 2)])
def test_numbers_of_a_law_are_whole_and_at_least_one(name: str, value: object) -> None:
    noise = NoiseLaw("laplace", Fraction(3))
    with pytest.raises(BudgetError, match=f"{name} must be a whole number of at least 1"):
        SparseLaw(noise, noise, **{"discoveries": 1, name: value})  # type: ignore[arg-type]


def test_the_ends_of_what_a_noise_scale_may_be() -> None:
    for scale in (Fraction(1, 2**10), Fraction(2**40)):
        assert NoiseLaw("laplace", scale).scale == scale
    for scale in (Fraction(1, 2**10 + 1), Fraction(2**40 + 1)):
        with pytest.raises(BudgetError, match=r"from 2\^-10 to 2\^40 grid steps"):
            NoiseLaw("laplace", scale)
