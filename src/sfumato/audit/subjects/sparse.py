# SPDX-License-Identifier: Apache-2.0
"""Sparse vectors: scores against a threshold of 0, up to the last discovery.

A table is the list of exact scores in counts; a count is ``STEPS`` grid steps. The pairs are those
that break the known-wrong variants: some scores move up and others down, which a threshold that is
noised once cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.audit.bounds import Array, Claim
from sfumato.audit.events import Score
from sfumato.audit.examine import Sampler, Subject
from sfumato.audit.pairs import Pair
from sfumato.budget.sparse import NoiseLaw, SparseLaw, noise_cost
from sfumato.plan.sparse import noise_of, sparse_of_epsilon, sparse_of_mu_squared
from sfumato.randomness import WordSource
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.sparse import SparseVector, above_threshold, answer

__all__ = ["sparse_subjects"]

Scores = tuple[int, ...]

STEPS = 16
SLOW = 24
TOTAL = Fraction(2)  # epsilon, or mu: large, as outcomes tell little
DOOR = "sfumato.vault.sparse"
TESTED = frozenset({f"{DOOR}.SparseVector", f"{DOOR}.SparseVector.test_many"})


def sparse_subjects() -> tuple[Subject[Scores], ...]:
    """AboveThreshold, sparse vectors with every pair of laws, and with numeric answers."""
    laws = {
        "sparse vector of 3": sparse_of_epsilon(TOTAL, 3, STEPS),
        "sparse vector of 3, monotone": sparse_of_epsilon(TOTAL, 3, STEPS, is_monotone=True),
        "sparse vector of 2, Gaussian queries": sparse_of_epsilon(
            TOTAL, 2, STEPS, query="gaussian", false_alarm=Fraction(1, 16)
        ),
        "sparse vector of 2, Gaussian threshold": sparse_of_mu_squared(TOTAL**2, 2, STEPS),
    }
    found = [_vector(name, law) for name, law in laws.items()]
    half = TOTAL / 2
    pure = sparse_of_epsilon(half, 1, STEPS), noise_of(half, "laplace", STEPS)
    squared = sparse_of_mu_squared(half, 1, STEPS), noise_of(half, "gaussian", STEPS)
    return (
        _first(sparse_of_epsilon(TOTAL, 1, STEPS)),
        *found,
        _numeric("numeric sparse", *pure),
        _numeric("numeric sparse, Gaussian", *squared),
    )


def _pairs(is_monotone: bool) -> tuple[Pair[Scores], ...]:
    if is_monotone:
        return (
            Pair("all lower, or one more each", (-1,) * 6, (0,) * 6),
            Pair("some at the threshold, or one more each", (0, 0, 0, 3, 3, 3), (1, 1, 1, 4, 4, 4)),
        )
    return (
        Pair("all equal, or 3 higher and 3 lower", (0,) * 6, (1,) * 3 + (-1,) * 3),
        Pair("12 below and 3 at it, or nearer", (-2,) * 12 + (0,) * 3, (-1,) * 15),
        Pair("0 and 1, or 1 and 0", (0, 1), (1, 0)),
        # The worst case of the proof, which is reached as those below grow many.
        Pair("only the last is high, or only it is low", (0,) * 4 + (1,), (1,) * 4 + (0,)),
        Pair("only the last three are high, or low", (0,) * 4 + (1,) * 3, (1,) * 4 + (0,) * 3),
    )


def _known(pair: Pair[Scores]) -> Score:
    """Whether just those are above that are higher on the left: outcomes, or the first place."""
    above = np.array(pair.left) > np.array(pair.right)
    first = float(above.argmax()) if above.any() else -1.0

    def score(outputs: Array) -> Array:
        if outputs.shape[1] == 1:
            return np.asarray(outputs[:, 0] == first, dtype=np.float64)
        return np.asarray((outputs == above).all(axis=1), dtype=np.float64)

    return score


def _exact(scores: Scores) -> Sensitive[Sequence[int]]:
    return Sensitive([STEPS * s for s in scores])


def _first(law: SparseLaw) -> Subject[Scores]:
    """AboveThreshold: the place of the first score above."""

    def sampler(scores: Scores) -> Sampler:
        exact, zeros = _exact(scores), [0] * len(scores)

        def run(runs: int, words: WordSource) -> Array:
            found = [above_threshold(exact, zeros, law, words) for _ in range(runs)]
            return np.array([[-1.0 if f is None else f] for f in found])

        return run

    covers = TESTED | {f"{DOOR}.above_threshold"}
    claim = Claim.of(law.cost)
    pairs = _pairs(False)
    return Subject("AboveThreshold", claim, pairs, sampler, covers, None, _known, SLOW)


def _vector(name: str, law: SparseLaw) -> Subject[Scores]:
    """All outcomes, NaN after the last discovery; half way the state is stored and restored."""

    def sampler(scores: Scores) -> Sampler:
        half = len(scores) // 2
        parts = [_exact(scores[:half]), _exact(scores[half:])]
        rest = len(scores) - half

        def run(runs: int, words: WordSource) -> Array:
            out = np.full((runs, len(scores)), np.nan)
            for row in out:
                vector = SparseVector(law, words)
                early = vector.test_many(parts[0], [0] * half)
                row[: len(early)] = early
                if vector.left:
                    again = SparseVector.restored(law, vector.state(), words)
                    late = again.test_many(parts[1], [0] * rest)
                    row[half : half + len(late)] = late
            return out

        return run

    covers = TESTED | {f"{DOOR}.SparseVector.restored"}
    pairs = _pairs(law.is_monotone)
    return Subject(name, Claim.of(law.cost), pairs, sampler, covers, None, _known, 2 * SLOW)


def _numeric(name: str, law: SparseLaw, noise: NoiseLaw) -> Subject[Scores]:
    """The place of the first score above, and its value with fresh noise."""

    def sampler(scores: Scores) -> Sampler:
        each = [Sensitive(STEPS * s) for s in scores]

        def run(runs: int, words: WordSource) -> Array:
            out = np.full((runs, 2), np.nan)
            for row in out:
                vector = SparseVector(law, words)
                for place, score in enumerate(each):
                    if vector.test(score, 0):
                        row[:] = place, answer(score, noise, words)
                        break
            return out

        return run

    covers = TESTED | {f"{DOOR}.SparseVector.test", f"{DOOR}.answer"}
    cost = law.cost + noise_cost(noise, STEPS)
    return Subject(name, Claim.of(cost), _pairs(False), sampler, covers, slowness=2 * SLOW)
