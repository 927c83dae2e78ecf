# SPDX-License-Identifier: Apache-2.0
"""Sparse vectors: scores against a threshold of 0, up to the last discovery.

A table is the list of exact scores in counts; a count is ``STEPS`` grid steps. The pairs are those
that break the known-wrong variants: some scores move up and others down, which a threshold that is
noised once cannot follow. For vectors of several discoveries the worst case of the proof is tried:
early scores are below and late ones above, and both come nearer to each other on the neighbour. Its
sizes are those at which the event "nothing early, everything late" proves most in the fast mode, by
its probabilities (sums over the threshold's noise: tests/audit/test_sparse_events.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.planning.sparse_plans import noise_of, sparse_of_epsilon, sparse_of_mu_squared
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw, noise_cost
from sfumato.random import WordSource
from sfumato.types import Array
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.sparse import SparseVector, above_threshold, answer
from sfumato_audit.bounds import Claim
from sfumato_audit.events import Score
from sfumato_audit.examine import Pair, Sampler, Subject

__all__ = [
    "Worst",
    "sparse_laws",
    "sparse_subjects",
    "vector_subject",
]


Scores = tuple[int, ...]

STEPS = 16
SLOW = 24
FIRST_TOTAL = Fraction(2)  # epsilon of AboveThreshold
TOTAL = Fraction(4)  # epsilon, or mu: large, as outcomes tell little
MODULE = "sfumato.vault.sparse"
TESTED = frozenset({f"{MODULE}.SparseVector", f"{MODULE}.SparseVector.test_many"})


@dataclass(frozen=True, slots=True)
class Worst:
    """``early`` scores of ``low`` and ``late`` ones of ``high``, which move as told on the left."""

    early: int
    low: int
    late: int
    high: int
    moves_late: bool = True

    def pair(self) -> Pair[Scores]:
        """The table on which nothing early and everything late is likelier, and its neighbour."""
        raised = self.high + self.moves_late
        left = (self.low,) * self.early + (raised,) * self.late
        right = (self.low + 1,) * self.early + (self.high,) * self.late
        return Pair("low ones early, high ones late; or nearer to each other", left, right)

    def is_hit(self, outputs: Array, discoveries: int) -> Array:
        """Whether nothing early was found, and late all that may be."""
        nothing = (outputs[:, : self.early] == 0).all(axis=1)
        return np.asarray(nothing & (np.nansum(outputs, axis=1) == discoveries), dtype=np.float64)


def sparse_laws() -> dict[str, tuple[SparseLaw, Worst]]:
    """Sparse vectors with every pair of laws, each with its worst case."""
    few = Fraction(1, 16)
    gaussian = sparse_of_epsilon(TOTAL, 2, STEPS, query="gaussian", false_alarm=few)
    squared = sparse_of_mu_squared(TOTAL**2, 2, STEPS)
    monotone = sparse_of_epsilon(TOTAL, 3, STEPS, is_monotone=True)
    return {
        "sparse vector of 3": (sparse_of_epsilon(TOTAL, 3, STEPS), Worst(6, -1, 6, -1)),
        "sparse vector of 3, monotone": (monotone, Worst(8, -1, 6, 0, moves_late=False)),
        "sparse vector of 2, Gaussian queries": (gaussian, Worst(12, -3, 5, -2)),
        "sparse vector of 2, Gaussian threshold": (squared, Worst(4, -1, 5, -1)),
    }


def sparse_subjects() -> tuple[Subject[Scores], ...]:
    """AboveThreshold, sparse vectors with every pair of laws, and with numeric answers."""
    half = FIRST_TOTAL / 2
    pure = sparse_of_epsilon(half, 1, STEPS), noise_of(half, "laplace", STEPS)
    squared = sparse_of_mu_squared(half, 1, STEPS), noise_of(half, "gaussian", STEPS)
    return (
        _first(sparse_of_epsilon(FIRST_TOTAL, 1, STEPS)),
        *(vector_subject(name, law, worst) for name, (law, worst) in sparse_laws().items()),
        _numeric("numeric sparse", *pure),
        _numeric("numeric sparse, Gaussian", *squared),
    )


_PAIRS: tuple[Pair[Scores], ...] = (
    Pair("all equal, or 3 higher and 3 lower", (0,) * 6, (1,) * 3 + (-1,) * 3),
    Pair("12 below and 3 at it, or nearer", (-2,) * 12 + (0,) * 3, (-1,) * 15),
    Pair("0 and 1, or 1 and 0", (0, 1), (1, 0)),
    # The worst case of the proof, which is reached as those below grow many.
    Pair("only the last is high, or only it is low", (0,) * 4 + (1,), (1,) * 4 + (0,)),
)


def _known(pair: Pair[Scores]) -> Score:
    """Whether the first that is above is the first that is higher on the left."""
    above = np.array(pair.left) > np.array(pair.right)
    first = float(above.argmax()) if above.any() else -1.0
    return lambda outputs: np.asarray(outputs[:, 0] == first, dtype=np.float64)


def _exact(scores: Scores) -> Sensitive[Sequence[int]]:
    return Sensitive([STEPS * s for s in scores])


def _first(law: SparseLaw) -> Subject[Scores]:
    """AboveThreshold: the place of the first score above."""

    def sampler(scores: Scores) -> Sampler:
        exact, zeros = _exact(scores), [0] * len(scores)

        def run(runs: int, source: WordSource) -> Array:
            places = [above_threshold(exact, zeros, law, source) for _ in range(runs)]
            return np.array([[-1.0 if f is None else f] for f in places])

        return run

    covers = TESTED | {f"{MODULE}.above_threshold"}
    claim = Claim.of(law.cost)
    return Subject("AboveThreshold", claim, _PAIRS, sampler, covers, None, _known, SLOW)


def vector_subject(name: str, law: SparseLaw, worst: Worst) -> Subject[Scores]:
    """All outcomes, NaN after the last discovery; half way the state is stored and restored."""

    def sampler(scores: Scores) -> Sampler:
        half = len(scores) // 2
        parts = [_exact(scores[:half]), _exact(scores[half:])]
        rest = len(scores) - half

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, len(scores)), np.nan)
            for row in out:
                vector = SparseVector(law, source)
                early = vector.test_many(parts[0], [0] * half)
                row[: len(early)] = early
                if vector.left:
                    again = SparseVector.restored(law, vector.state(), source)
                    late = again.test_many(parts[1], [0] * rest)
                    row[half : half + len(late)] = late
            return out

        return run

    covers = TESTED | {f"{MODULE}.SparseVector.restored"}

    def known(outputs: Array) -> Array:
        return worst.is_hit(outputs, law.discoveries)

    claim, pairs = Claim.of(law.cost), (worst.pair(),)
    return Subject(name, claim, pairs, sampler, covers, None, lambda _: known, 2 * SLOW)


def _numeric(name: str, law: SparseLaw, noise: NoiseLaw) -> Subject[Scores]:
    """The place of the first score above, and its value with fresh noise."""

    def sampler(scores: Scores) -> Sampler:
        each = [Sensitive(STEPS * s) for s in scores]

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, 2), np.nan)
            for row in out:
                vector = SparseVector(law, source)
                for place, score in enumerate(each):
                    if vector.test(score, 0):
                        row[:] = place, answer(score, noise, source)
                        break
            return out

        return run

    covers = TESTED | {f"{MODULE}.SparseVector.test", f"{MODULE}.answer"}
    cost = law.cost + noise_cost(noise, STEPS)
    return Subject(name, Claim.of(cost), _PAIRS, sampler, covers, slowness=2 * SLOW)
