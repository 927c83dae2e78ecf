# SPDX-License-Identifier: Apache-2.0
"""What a session tells two neighbouring tables apart by: exact sums over its noise.

`_told` is the session in a few lines, given its noise; the session itself is held against it with
noise from a script. Then every outcome sequence of a small session gets its exact probability on
neighbouring tables, and no ratio may exceed what the epochs were debited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf, log, tanh

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.session.histogram import Estimate
from sfumato.session.session_plan import SessionParameters
from sfumato.vault.mechanisms import sparse
from sfumato.vault.mechanisms.sparse import ExactQuestions, moved_by_one
from sfumato.vault.tables import open_table
from sfumato.workload.question import Question, questions_of
from sfumato.workload.workload import marginal
from tests.sessions import begin_session
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 3})
TEXTS = ["SELECT COUNT(*) FROM t WHERE a = 0", "SELECT COUNT(*) FROM t WHERE a < 2"]
TEXTS += ["SELECT SUM(a) FROM t", "SELECT COUNT(*) FROM t WHERE a = 2"]
QUESTIONS = [questions_of(sf.sql(DOMAIN, text))[0] for text in TEXTS]
PURE = sf.plan_session(DOMAIN, sf.Budget(epsilon=30), updates=4, questions=40, records=10)
PAIRS = [([3, 0, 2], [3, 1, 2]), ([0, 5, 1], [0, 4, 1]), ([0, 0, 0], [0, 0, 1])]


def _frame(counts: Sequence[int]) -> pd.DataFrame:
    return pd.DataFrame({"a": np.repeat(np.arange(len(counts)), counts)}, dtype=np.int64)


def _exact(question: Question, counts: Sequence[int]) -> int:
    return int(question.answer(marginal(np.array(counts), DOMAIN, question.attributes)))


def _score(question: Question, counts: Sequence[int], estimate: Estimate) -> tuple[int, int]:
    """The score, and the estimate on its grid."""
    near = round(estimate.answer(question) * 2.0 ** (question.bits + 8))
    moved = max(abs(question.low), abs(question.high), 1)
    return abs(256 * _exact(question, counts) - near) // moved, near


def _learn(estimate: Estimate, question: Question, steps: int, plan: SessionParameters) -> float:
    """The noisy answer in counts; the estimate learns it."""
    from sfumato.privacy.noise_laws import laplace_variance

    moved = max(abs(question.low), abs(question.high), 1)
    unit = 2.0 ** -(question.bits + 8)
    estimate.learn(question, steps * unit, laplace_variance(plan.noise.scale * moved) * unit**2)
    return steps * unit


def _told(
    counts: Sequence[int],
    total: float,
    rho: Iterator[int],
    nu: Iterator[int],
    noise: Iterator[int],
) -> list[tuple[str, float]]:
    """Private multiplicative weights, with the noise given."""
    estimate, threshold, out = Estimate(DOMAIN, total), PURE.threshold + next(rho), []
    for i, question in enumerate(QUESTIONS):
        score, near = _score(question, counts, estimate)
        if score + next(nu) >= threshold:
            steps = 256 * _exact(question, counts) + next(noise)
            out.append(("paid", _learn(estimate, question, steps, PURE)))
            if i + 1 < len(QUESTIONS):
                threshold = PURE.threshold + next(rho)
        else:
            out.append(("free", near * 2.0 ** -(question.bits + 8)))
    return out


@given(
    st.lists(st.integers(0, 6), min_size=3, max_size=3),
    st.lists(st.integers(-3000, 3000), min_size=4, max_size=4),
    st.lists(st.integers(-3000, 3000), min_size=4, max_size=4),
    st.lists(st.integers(0, 900), min_size=5, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_a_session_is_the_mechanism_that_is_proved(
    counts: list[int], rho: list[int], nu: list[int], noise: list[int]
) -> None:
    script = {PURE.sparse.threshold: iter(rho), PURE.sparse.query: iter(nu)}
    rest = iter(noise)

    def drawn(law: NoiseLaw, size: int, words: object) -> list[int]:  # noqa: ARG001
        return [next(script.get(law, rest)) for _ in range(size)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "_drawn", drawn)
        session = begin_session(
            _frame(counts), DOMAIN, PURE.budget, SeededWords(0), updates=4, questions=40, records=10
        )
        found = [session.ask(text) for text in TEXTS]
    total = sum(counts) + noise[0] / 256
    expected = _told(counts, total, iter(rho), iter(nu), iter(noise[1:]))
    for answer, (how, value) in zip(found, expected, strict=True):
        assert answer.how == how
        assert answer.value == max(value, 0.0)  # the least that a count can be


def _upper(law: NoiseLaw, at: np.ndarray) -> np.ndarray:
    """P(N >= at), N discrete Laplace or, one-sided, geometric."""
    q = np.exp(-1 / float(law.scale))
    if law.kind == "exponential":
        return q ** np.maximum(at, 0).astype(float)
    tail = q ** np.abs(np.where(at > 0, at, 1 - at)) / (1 + q)
    return np.where(at > 0, tail, 1 - tail)


def _log_mass(law: NoiseLaw, at: np.ndarray) -> np.ndarray:
    """log P(N = at), N discrete Laplace or, one-sided and at 0 or above, geometric."""
    scale = float(law.scale)
    if law.kind == "exponential":
        return log(-np.expm1(-1 / scale)) - at / scale
    return log(tanh(1 / (2 * scale))) - np.abs(at) / scale


def _thresholds(law: NoiseLaw) -> tuple[np.ndarray, np.ndarray]:
    """Nearly all values of the threshold's noise, and their probabilities."""
    reach = int(40 * law.scale)
    rho = np.arange(0 if law.kind == "exponential" else -reach, reach + 1)
    return rho, np.exp(_log_mass(law, rho))


def _log(chance: float) -> float:
    return log(chance) if chance > 0 else -inf


def _log_chance(
    counts: Sequence[int], outcomes: Sequence[int | None], plan: SessionParameters
) -> tuple[float, int]:
    """The logarithm of the probability of a sequence, and how many epochs it begins.

    An outcome is None for "below", else the noisy answer in steps.
    """
    rho, weight = _thresholds(plan.sparse.threshold)
    estimate = Estimate(DOMAIN, 5.0)
    chance, log_chance, epochs = weight, 0.0, 1
    for question, outcome in zip(QUESTIONS, outcomes, strict=True):
        score, _ = _score(question, counts, estimate)
        above = _upper(plan.sparse.query, plan.threshold + rho - score)
        if outcome is None:
            chance = chance * (1 - above)
            continue
        moved = max(abs(question.low), abs(question.high), 1)
        noise = NoiseLaw("laplace", plan.noise.scale * moved)
        z = outcome - 256 * _exact(question, counts)
        log_chance += _log((chance * above).sum()) + float(_log_mass(noise, np.array(z)))
        _learn(estimate, question, outcome, plan)
        chance = weight
        epochs += 1
    return log_chance + _log(chance.sum()), epochs


def _sequences() -> list[tuple[int | None, ...]]:
    """All patterns of below and above, each with noisy answers far and near."""
    each: list[list[int | None]] = [[None, 0, 5 * 256] for _ in QUESTIONS]
    return list(product(*each))


def _greatest(pair: tuple[list[int], list[int]], plan: SessionParameters) -> float:
    """How far the ratio of some sequence exceeds what its epochs were debited for, in epsilon."""
    cost = float(PURE.epoch_cost.pure_epsilon)
    excess = -inf
    for sequence in _sequences():
        (one, epochs), (other, _) = (_log_chance(c, sequence, plan) for c in pair)
        if one != other:  # equal ones may both be -inf
            excess = max(excess, abs(one - other) - epochs * cost)
    return excess


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_no_sequence_tells_neighbours_apart_by_more_than_was_debited(
    pair: tuple[list[int], list[int]],
) -> None:
    assert _greatest(pair, PURE) <= 1e-9


def test_the_sums_see_noise_that_is_too_small() -> None:
    """The twin: noise of a larger budget, for the debits of the smaller one."""
    budget = sf.Budget(epsilon=300)
    small = sf.plan_session(DOMAIN, budget, updates=4, questions=40, records=10)
    assert _greatest(PAIRS[0], small) > 0.5


def test_a_threshold_that_is_tested_again_after_a_lost_outcome_tells_too_much() -> None:
    """The twin of giving an epoch up: "above", seen but not stored, and then once more."""
    law = PURE.sparse
    paid_for = float(law.cost.pure_epsilon)
    rho, weight = _thresholds(law.threshold)

    def chance(up: int, down: int, times: int) -> float:
        """Many scores that rise found below, then some that fall found above, under one rho."""
        below = 1 - _upper(law.query, PURE.threshold + rho - up)
        above = _upper(law.query, PURE.threshold + rho - down)
        return float((weight * below**400 * above**times).sum())

    far = int(2 * law.query.scale)
    ratios = [
        abs(log(chance(far, -far, times) / chance(far + 256, -far - 256, times)))
        for times in (1, 2)
    ]
    assert ratios[0] <= paid_for + 1e-9
    assert ratios[1] > paid_for + 0.5


@given(st.lists(st.integers(0, 9), min_size=6, max_size=6), st.integers(0, 5), st.data())
@settings(max_examples=30, deadline=None)
def test_one_person_moves_a_score_by_at_most_one_unit(
    counts: list[int], place: int, data: st.DataObject
) -> None:
    domain = sf.Domain({"a": 3, "b": 2})
    table = np.array(counts).reshape(3, 2)
    coefficients = data.draw(st.lists(st.integers(-4, 9), min_size=6, max_size=6))
    if not any(coefficients):
        coefficients[0] = 1
    work = sf.explicit(domain, ["a", "b"], np.array([coefficients]) / 4)
    question, estimate = questions_of(work)[0], data.draw(st.integers(-9000, 9000))
    other = table.copy()
    other.reshape(-1)[place] += 1
    replaced = other.copy()
    replaced.reshape(-1)[data.draw(st.integers(0, 5))] -= 1

    def score(cells: np.ndarray, neighbours: str, unit: PrivacyUnit | None = None) -> int:
        codes = np.repeat(np.arange(6), np.maximum(cells.reshape(-1), 0))
        frame = pd.DataFrame({"a": codes // 2, "b": codes % 2, "who": np.arange(codes.size)})
        exact = ExactQuestions(open_table(frame), domain, neighbours, unit)
        return int(exact.scores([question], [estimate]).reveal()[0])

    assert abs(score(table, "add-remove") - score(other, "add-remove")) <= 256
    if (replaced >= 0).all():
        assert abs(score(table, "replace-one") - score(replaced, "replace-one")) <= 256
    three = PrivacyUnit("who", 3)
    assert moved_by_one(question, "add-remove", three) == 3 * moved_by_one(question, "add-remove")
