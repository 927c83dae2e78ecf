# SPDX-License-Identifier: Apache-2.0
"""The exact side of a session: `ExactQuestions` scores estimates and answers with noise.

The exact table of an attribute set is counted when the first question about it comes, and held;
where it has too many cells, the distinct cells of the records are. What a question was asked about
before, and so what is held, is public. Scores are exact integers that one person moves by at most
2^SCORE_BITS, whatever the question: a difference of ``moved`` steps, the most that one person moves
this answer, is one unit. Nothing leaves but through `sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.measurement import Measured
from sfumato.privacy.budget import total_is_public
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import WordSource
from sfumato.strategy.base import Block
from sfumato.types import Integers, Neighbours
from sfumato.vault.count import AttributeSet, ListedCells, count_marginals, list_cells
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.measure import Exact, count, measure
from sfumato.vault.mechanisms.sparse import answer
from sfumato.vault.sensitive import Redacted, Sensitive
from sfumato.vault.tables import Table
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.question import Question

__all__ = [
    "SCORE_BITS",
    "ExactQuestions",
    "answer_shift",
    "moved_by_one",
]


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
        self,
        exact: Exact,
        blocks: Sequence[Block],
        noise: Sequence[BlockNoise],
        random: WordSource,
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
