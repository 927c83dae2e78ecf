# SPDX-License-Identifier: Apache-2.0
"""The sparse vector technique: whether exact scores are above thresholds, paid for by discoveries.

`SparseVector` tests scores one after the other, `Discoverer` over all sparse vectors of a plan, and
`answer` returns a number with noise of its own. `ExactQuestions` is the exact side of a session.

Lyu, Su, Li 2017, "Understanding the sparse vector technique for differential privacy", Algorithm 1:
the noise of the threshold is drawn once and kept, every score gets noise of its own, and after
``discoveries`` scores above the threshold it is over. A numeric answer has fresh noise and a cost
of its own (`answer`); the noise of a comparison is never shown. Scores and thresholds are whole
grid steps, the noise is exact on the grid, and a tie counts as above. Proof page:
``docs/proofs/sparse-vector.md``.

A session counts the exact table of an attribute set when the first question about it comes, and
holds it; where it has too many cells, it holds the distinct cells of the records. Which questions
came before, and so what is held, is public. Scores are exact integers that one person moves by at
most 2^SCORE_BITS, whatever the question: a difference of ``moved`` steps, the most that one person
moves this answer, is one unit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Protocol

from sfumato.digest import canonical_json
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, SfumatoError
from sfumato.measurement import Measured
from sfumato.privacy.budget import total_is_public
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.random import WordSource, system_words
from sfumato.strategy.base import Block
from sfumato.types import Integers, Neighbours
from sfumato.vault.count import (
    AttributeSet,
    ListedCells,
    Redacted,
    Sensitive,
    count_marginals,
    list_cells,
)
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.measure import Exact, count, measure
from sfumato.vault.mechanisms.noise import discrete_laplace, geometric, rounded_gaussian
from sfumato.vault.tables import Table
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.question import Question

__all__ = [
    "DAMAGED",
    "SCORE_BITS",
    "Discoverer",
    "ExactQuestions",
    "SparseVector",
    "SparseVectors",
    "above_threshold",
    "answer",
    "answer_many",
    "answer_shift",
    "apart",
    "cell_counts",
    "moved_by_one",
    "times",
]


VERSION: Final = 1
_DRAWS: Final = {
    "laplace": discrete_laplace,
    "exponential": geometric,
    "gaussian": rounded_gaussian,
}
DAMAGED: Final = "the state of the sparse vector is damaged or of another one; begin a new one"


class SparseVector(Redacted):
    """A running sparse vector: the noise of its threshold and the discoveries that are left.

    Begin one with ``SparseVector(law)``, after ``law.cost`` was debited: it covers every test.

    Privacy: all outcomes together cost ``law.cost``, whatever their number, also when scores and
    thresholds are chosen after earlier outcomes: docs/proofs/sparse-vector.md, Theorems 1 and 3.
    Neighbours: any; every score moves by at most ``law.sensitivity`` steps between them, and all in
    one direction together if ``law.is_monotone``: the caller's promise.

    Args:
        law: Noise, discoveries, and how far scores move.
        random: A source of random words; the system's if None.
    """

    __slots__ = ("_left", "_noise", "_owner", "_random", "law")

    def __init__(self, law: SparseLaw, random: WordSource | None = None) -> None:
        self.law = law
        self._random = system_words() if random is None else random
        self._noise = _drawn(law.threshold, 1, self._random)[0]
        self._left = law.discoveries
        self._owner = os.getpid()

    @property
    def left(self) -> int:
        """How many discoveries are left; public, for the outcomes are."""
        return self._left

    def test(self, score: Sensitive[int], threshold: int) -> bool:
        """Whether ``score + noise >= threshold + noise of the threshold``; takes one word.

        ``law.offset``, which is 0 unless noise is one-sided, is added to the threshold.

        The threshold is public and may be another one each time. Refused when no discovery is left.

        Privacy: as the class says. Neighbours: as the class says.

        Args:
            score: The exact score, in steps.
            threshold: A public number, in steps.

        Returns:
            Whether it was found above.

        Raises:
            PlanError: No discovery is left.
        """
        return self.test_many(Sensitive([score.reveal()]), [threshold])[0]

    def test_many(self, scores: Sensitive[Sequence[int]], thresholds: Sequence[int]) -> list[bool]:
        """Test score after score, up to the last discovery; shorter if that comes before the end.

        One word per score is taken, also for those that are not tested any more.

        Privacy: as the class says. Neighbours: as the class says.

        Args:
            scores: Exact scores, in steps.
            thresholds: One public number per score, in steps.

        Returns:
            One outcome per score that was tested.

        Raises:
            PlanError: No discovery is left.
        """
        self.check_process()
        if not self._left:
            raise PlanError("the sparse vector has no discovery left; begin a new one")
        exact = [int(score) for score in scores.reveal()]
        if len(exact) != len(thresholds):
            raise PlanError(f"{len(exact)} scores need as many thresholds, got {len(thresholds)}")
        noise = _drawn(self.law.query, len(exact), self._random)
        outcomes: list[bool] = []
        for score, threshold, shaken in zip(exact, thresholds, noise, strict=True):
            gap = int(threshold) + self.law.offset + self._noise - score
            if self.law.reach is not None:
                gap = min(gap, self.law.reach)
            is_above = shaken >= gap
            outcomes.append(is_above)
            self._left -= is_above
            if not self._left:
                break
        return outcomes

    def check_process(self) -> None:
        """Refuse to go on in a fork of the process that began.

        Raises:
            SfumatoError: The process is a fork.
        """
        if os.getpid() != self._owner:
            raise SfumatoError(
                "this process is a fork of the one that began the sparse vector: going on in both "
                "would find twice as much; restore it here from its stored state"
            )

    def state(self) -> bytes:
        """What `restored` needs to go on: private, to be kept where the data is, never shown.

        A state must be continued once only: two continuations would find twice as much.

        Returns:
            Private bytes.
        """
        state = {
            "version": VERSION,
            "law": self.law.as_json(),
            "noise": str(self._noise),
            "left": self._left,
        }
        return canonical_json(state).encode()

    @classmethod
    def restored(
        cls, law: SparseLaw, state: bytes, random: WordSource | None = None
    ) -> SparseVector:
        """The sparse vector whose `state` this is; no noise is drawn.

        Privacy: the one of `SparseVector`, if the state is continued once only.
        Neighbours: as there.

        Args:
            law: Noise, discoveries, and how far scores move.
            state: What `state` returned.
            random: A source of random words; the system's if None.

        Returns:
            The sparse vector, as it stood.

        Raises:
            PlanError: The state is damaged.
        """
        noise, left = _read(law, state)
        vector = cls.__new__(cls)
        vector.law, vector._noise, vector._left = law, noise, left
        vector._random = system_words() if random is None else random
        vector._owner = os.getpid()
        return vector


def above_threshold(
    scores: Sensitive[Sequence[int]],
    thresholds: Sequence[int],
    law: SparseLaw,
    random: WordSource | None = None,
) -> int | None:
    """The place of the first score that is found above its threshold; None if there is none.

    Privacy: ``law.cost``, with ``law.discoveries = 1``: docs/proofs/sparse-vector.md, Theorem 1.
    Neighbours: any; scores move as ``law`` says.

    Args:
        scores: Exact scores, in steps.
        thresholds: One public number per score, in steps.
        law: Noise, and how far scores move.
        random: A source of random words; the system's if None.

    Returns:
        The number of the score, from 0, or None.
    """
    if law.discoveries != 1:
        raise PlanError(
            f"AboveThreshold makes one discovery, the law has {law.discoveries}; use SparseVector"
        )
    outcomes = SparseVector(law, random).test_many(scores, thresholds)
    return len(outcomes) - 1 if outcomes and outcomes[-1] else None


def answer(score: Sensitive[int], law: NoiseLaw, random: WordSource | None = None) -> int:
    """A numeric answer in steps: the score with noise of its own, fresh, not that of a test.

    Privacy: ``privacy.sparse_vector.noise_cost(law, sensitivity)``, on top of the test that led to
    it: docs/proofs/sparse-vector.md, Theorem 4.
    Neighbours: any; the score moves by at most the sensitivity that was accounted.
    """
    return answer_many(Sensitive([score.reveal()]), law, random)[0]


def answer_many(
    scores: Sensitive[Sequence[int]], law: NoiseLaw, random: WordSource | None = None
) -> list[int]:
    """Numbers in steps, each with noise of its own: the Laplace or the Gaussian mechanism.

    Privacy: ``privacy.sparse_vector.noise_cost(law, sensitivity)``, with the distance in L1
    (Laplace) or L2 (Gaussian) by which all of them move together: docs/proofs/discrete-laplace.md
    and docs/proofs/rounded-gaussian.md, Theorem 2 of each.
    Neighbours: any; the numbers move by at most the sensitivity that was accounted.
    """
    if law.kind == "exponential":
        raise PlanError("one-sided noise hides comparisons, not numbers; use laplace or gaussian")
    exact = scores.reveal()
    noise = _drawn(law, len(exact), system_words() if random is None else random)
    return [int(score) + shaken for score, shaken in zip(exact, noise, strict=True)]


def _drawn(law: NoiseLaw, size: int, random: WordSource) -> list[int]:
    return [int(z) for z in _DRAWS[law.kind](law.scale, size, random)]


def _read(law: SparseLaw, state: bytes) -> tuple[int, int]:
    """Noise and discoveries left; whatever is wrong, the message holds nothing of the state."""
    try:
        stored = json.loads(state)
        noise, left = int(stored["noise"]), stored["left"]
        is_ours = stored["version"] == VERSION and stored["law"] == law.as_json()
        if is_ours and type(left) is int and 0 <= left <= law.discoveries:
            return noise, left
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass  # raised below, so that the message carries no context
    raise PlanError(DAMAGED)


# All sparse vectors of a plan


class SparseVectors(Protocol):
    """A plan of tests: ``epochs`` sparse vectors of one law, and the noise of numbers, if any."""

    @property
    def law(self) -> SparseLaw:
        """The law of every sparse vector."""
        ...

    @property
    def epochs(self) -> int:
        """How many sparse vectors may be begun, one after the other."""
        ...

    @property
    def number(self) -> NoiseLaw | None:
        """The noise of the number of a discovery; None if none is told."""
        ...


def cell_counts(
    table: Table, domain: Domain, attribute: str, unit: PrivacyUnit | None
) -> Sensitive[Sequence[int]]:
    """The exact number of records of every cell of an attribute, in order."""
    counts = count_marginals(table, domain, [(attribute,)], unit)
    return Sensitive(counts.reveal((attribute,)).tolist())


def times(numbers: Sensitive[Sequence[int]], factor: int) -> Sensitive[Sequence[int]]:
    """Exact numbers times a public factor; they stay in their box."""
    return Sensitive([factor * int(n) for n in numbers.reveal()])


def apart(
    exact: Sensitive[Sequence[int]], predictions: Sequence[int], first: int = 0
) -> Sensitive[Sequence[int]]:
    """``|exact - prediction|`` of the answers from ``first`` on, in steps.

    Neighbours: each moves by at most what its exact answer does.
    """
    answers = exact.reveal()[first : first + len(predictions)]
    return Sensitive([abs(int(a) - p) for a, p in zip(answers, predictions, strict=True)])


class Discoverer(Redacted):
    """The running tests of a plan: which sparse vector is in use, and how many may follow.

    A plan may use several, one after the other (``planning.sparse_plans``), and a number with fresh
    noise for every discovery (NumericSparse). The whole plan is debited before the first begins.

    Privacy: everything that leaves costs ``plan.cost``: docs/proofs/sparse-vector.md, Theorem 4.
    Neighbours: any; scores and numbers move by at most ``plan.law.sensitivity`` steps, scores in
    one direction together if ``plan.law.is_monotone``.

    Args:
        plan: The sparse vectors.
        random: A source of random words; the system's if None.
    """

    __slots__ = ("_begun", "_owed", "_plan", "_random", "_vector")

    def __init__(self, plan: SparseVectors, random: WordSource | None = None) -> None:
        self._plan = plan
        self._random = system_words() if random is None else random
        self._vector = SparseVector(plan.law, self._random)
        self._begun = 1
        self._owed = 0  # discoveries whose number was not given yet

    @property
    def left(self) -> int:
        """How many discoveries are left, over all sparse vectors; public."""
        return self._vector.left + (self._plan.epochs - self._begun) * self._plan.law.discoveries

    @property
    def begun(self) -> int:
        """How many sparse vectors were begun; public."""
        return self._begun

    @classmethod
    def after_loss(
        cls, plan: SparseVectors, begun: int, random: WordSource | None = None
    ) -> Discoverer | None:
        """The tests that follow when the sparse vector number ``begun`` was lost; None if none do.

        What is lost is the threshold in use and the discoveries it had left: nothing is tested
        with a threshold of which an outcome may be unknown.

        Privacy: as the class says; every sparse vector of the plan is begun once at most.
        Neighbours: as there.

        Args:
            plan: The sparse vectors.
            begun: How many of them were begun.
            random: A source of random words; the system's if None.

        Returns:
            The tests that go on, or None.
        """
        if begun >= plan.epochs:
            return None
        following = cls(plan, random)
        following._begun = begun + 1
        return following

    def test_many(self, scores: Sensitive[Sequence[int]], thresholds: Sequence[int]) -> list[bool]:
        """Test score after score up to the last discovery of the plan; refused when none is left.

        Privacy: as the class says. Neighbours: as the class says.

        Args:
            scores: Exact scores, in steps.
            thresholds: One public number per score, in steps.

        Returns:
            One outcome per score that was tested.

        Raises:
            PlanError: No discovery is left.
        """
        exact = scores.reveal()
        self._vector.check_process()  # also where a new sparse vector is about to begin
        if not self.left:
            raise PlanError("all discoveries of this plan were made; a new plan needs a new debit")
        if len(exact) != len(thresholds):
            raise PlanError(f"{len(exact)} scores need as many thresholds, got {len(thresholds)}")
        outcomes: list[bool] = []
        while len(outcomes) < len(exact) and self.left:
            if not self._vector.left:
                self._vector = SparseVector(self._plan.law, self._random)
                self._begun += 1
            run = slice(len(outcomes), len(outcomes) + LIMITS.scores_at_once)
            are_above = self._vector.test_many(Sensitive(exact[run]), thresholds[run])
            self._owed += sum(are_above)
            outcomes += are_above
        return outcomes

    def numbers(self, exact: Sensitive[Sequence[int]], places: Sequence[int]) -> list[int] | None:
        """The numbers of discoveries, in steps, with noise of their own; None if not planned.

        One for each discovery, and no more.

        Privacy: as the class says. Neighbours: as the class says.

        Args:
            exact: Exact numbers, in steps.
            places: Which of them are told.

        Returns:
            One number for each of them, or None.

        Raises:
            PlanError: More are asked for than were discovered.
        """
        if self._plan.number is None:
            return None
        self._vector.check_process()
        if len(places) > self._owed:
            raise PlanError("there is one number for each discovery, and no more")
        self._owed -= len(places)
        values, law = exact.reveal(), self._plan.number
        return [answer(Sensitive(values[i]), law, self._random) for i in places]

    def state(self) -> bytes:
        """What `restored` needs to go on: private, as `SparseVector.state`.

        Returns:
            Private bytes.
        """
        state = {"begun": self._begun, "owed": self._owed, "vector": self._vector.state().decode()}
        return canonical_json(state).encode()

    @classmethod
    def restored(
        cls, plan: SparseVectors, state: bytes, random: WordSource | None = None
    ) -> Discoverer:
        """The tests whose `state` this is; no noise is drawn.

        Privacy: as the class says, if the state is continued once only. Neighbours: as there.

        Args:
            plan: The sparse vectors.
            state: What `state` returned.
            random: A source of random words; the system's if None.

        Returns:
            The tests, as they stood.

        Raises:
            PlanError: The state is damaged.
        """
        most = plan.epochs * plan.law.discoveries
        tests = cls.__new__(cls)
        tests._plan = plan
        tests._random = system_words() if random is None else random
        try:
            stored = json.loads(state)
            tests._begun, tests._owed = int(stored["begun"]), int(stored["owed"])
            tests._vector = SparseVector.restored(plan.law, stored["vector"].encode(), random)
            if 1 <= tests._begun <= plan.epochs and 0 <= tests._owed <= most:
                return tests
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            pass  # raised below, so that the message carries no context
        raise PlanError(DAMAGED)


SCORE_BITS: Final = 8
"""A score is in steps of 2^-8 of what one person can move an answer by."""


def moved_by_one(
    question: Question, neighbours: Neighbours, unit: PrivacyUnit | None = None
) -> int:
    """How far one person moves an answer, in its steps; at least one step.

    A record moves it by its coefficient; a replaced one by the difference of two, or by one if the
    other falls in no cell; a person does so with each of their rows.
    """
    far = max(abs(question.low), abs(question.high), 1)
    if neighbours == "replace-one":
        far = max(far, question.high - question.low)
    return far * (1 if unit is None else unit.rows)


def answer_shift(moved: int) -> int:
    """Bits by which the steps of an answer are divided before noise is added."""
    return SCORE_BITS if moved < LIMITS.fine_steps else 0


class ExactQuestions(Redacted):
    """A table that answers questions exactly, inside the vault only."""

    __slots__ = ("_domain", "_held", "_neighbours", "_table", "_unit")

    def __init__(
        self, table: Table, domain: Domain, neighbours: Neighbours, unit: PrivacyUnit | None
    ) -> None:
        self._table, self._domain, self._neighbours, self._unit = table, domain, neighbours, unit
        self._held: dict[AttributeSet, Integers | ListedCells] = {}

    def prepare(self, names: AttributeSet) -> None:
        """Count what questions about these attributes need, unless it is held already.

        Privacy: none; nothing leaves. Whatever goes wrong depends on public inputs.
        """
        if names in self._held:
            return
        if not self._held:  # one scan encodes all that later questions may be about
            read_records(self._table, self._domain, self._domain.names, self._unit)
        exact: Integers | ListedCells
        if self._domain.cells(names) <= LIMITS.cells_dense:
            exact = count_marginals(self._table, self._domain, [names], self._unit).reveal(names)
            size = exact.size
        else:
            exact = list_cells(self._table, self._domain, names, self._unit)
            size = 0
        held = [t.size for t in self._held.values() if not isinstance(t, ListedCells)]
        if sum(held) + size > LIMITS.cells_held:
            self._held.clear()
        self._held[names] = exact

    def forget(self) -> None:
        """Let go of the table and of all that was counted; nothing can be asked any more.

        A file or a server that was opened for it is free at once, not when it is collected.
        """
        self._held.clear()
        del self._table

    def scores(
        self, questions: Sequence[Question], estimates: Sequence[int]
    ) -> Sensitive[Sequence[int]]:
        """``|exact - estimate|`` of every question, in steps of 2^-SCORE_BITS persons, cut.

        Estimates are public, in steps of ``2^-(bits + SCORE_BITS)``.

        Neighbours: every score moves by at most ``2^SCORE_BITS`` (docs/proofs/online.md, Lemma 1).
        """
        scores = []
        for question, near in zip(questions, estimates, strict=True):
            moved = moved_by_one(question, self._neighbours, self._unit)
            scores.append(abs((self._exact(question) << SCORE_BITS) - near) // moved)
        return Sensitive(scores)

    def noisy(self, question: Question, law: NoiseLaw, random: WordSource) -> int:
        """The answer with fresh noise, in steps of ``2^-(bits + answer_shift(moved))``.

        ``law`` is for an answer that one person moves by one: its scale is in units of
        2^-SCORE_BITS persons, and is stretched to what one person moves this answer by.

        Privacy: ``noise_cost(law, 2^SCORE_BITS)``: docs/proofs/online.md, Lemma 2.
        Neighbours: those of the session.
        """
        moved = moved_by_one(question, self._neighbours, self._unit)
        shift = answer_shift(moved)
        stretched = NoiseLaw(law.kind, law.scale * moved * Fraction(2**shift, 2**SCORE_BITS))
        return answer(Sensitive(self._exact(question) << shift), stretched, random)

    def counted(self, domain: Domain, blocks: Sequence[Block]) -> Exact:
        """The exact values of the blocks of a plan, over the domain or over values inside of it.

        Privacy: none; nothing leaves. Whatever goes wrong depends on public inputs.
        """
        return count(self._table, domain, blocks, self._neighbours, self._unit)

    def measured(
        self, exact: Exact, blocks: Sequence[Block], noise: Sequence[BlockNoise], random: WordSource
    ) -> Measured:
        """The exact values of the blocks with fresh noise.

        Privacy: what ``planning.calibrate.privacy_loss`` states for these blocks and this noise:
        docs/proofs/online.md, Theorem 5.
        Neighbours: those of the session.
        """
        return measure(exact, blocks, noise, random)

    @property
    def may_drop_records(self) -> bool:
        """Whether the source may drop a record that is replaced; public by the kind of it."""
        return self._table.may_drop_records

    def records(self) -> int | None:
        """The number of records, only where it is public: replacing one does not change it."""
        may_drop = self._table.may_drop_records
        if not total_is_public(self._neighbours, self._domain, self._unit, may_drop):
            return None
        self.prepare(())
        held = self._held[()]
        return None if isinstance(held, ListedCells) else int(held)

    def _exact(self, question: Question) -> int:
        self.prepare(question.attributes)
        held = self._held[question.attributes]
        if not isinstance(held, ListedCells):
            return int(question.answer(held))
        coefficients = question.at(held.codes, held.counts.size)
        return int((coefficients * question.summable(held.counts)).sum())
