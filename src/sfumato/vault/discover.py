# SPDX-License-Identifier: Apache-2.0
"""Discover: scores tested one after the other, over all sparse vectors of a plan.

A plan may use several sparse vectors, one after the other (``plan/sparse_plan.py``), and a number
with fresh noise for every discovery: NumericSparse. The whole plan is debited before the first of
them begins. Proof page: ``docs/proofs/sparse-vector.md``, Theorems 1, 3 and 4.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from sfumato.domain import Domain
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError
from sfumato.plan.sparse_plan import SparsePlan
from sfumato.randomness import WordSource, system_words
from sfumato.vault.count import count_marginals
from sfumato.vault.sensitive import Redacted, Sensitive
from sfumato.vault.sparse import DAMAGED, SparseVector, answer
from sfumato.vault.tables import Table

__all__ = ["Discoverer", "apart", "cell_counts", "times"]

AT_ONCE: Final = 4096  # scores whose noise is drawn together


def cell_counts(
    table: Table, domain: Domain, attribute: str, unit: PrivacyUnit | None
) -> Sensitive[Sequence[int]]:
    """The exact number of records of every cell of an attribute, in order."""
    found = count_marginals(table, domain, [(attribute,)], unit)
    return Sensitive(found.reveal((attribute,)).tolist())


def times(numbers: Sensitive[Sequence[int]], factor: int) -> Sensitive[Sequence[int]]:
    """Exact numbers times a public factor; they stay in their box."""
    return Sensitive([factor * int(n) for n in numbers.reveal()])


def apart(
    exact: Sensitive[Sequence[int]], predictions: Sequence[int], first: int = 0
) -> Sensitive[Sequence[int]]:
    """``|exact - prediction|`` of the answers from ``first`` on, in steps.

    Neighbours: each moves by at most what its exact answer does.
    """
    known = exact.reveal()[first : first + len(predictions)]
    return Sensitive([abs(int(a) - p) for a, p in zip(known, predictions, strict=True)])


class Discoverer(Redacted):
    """The running tests of a plan: which sparse vector is on, and how many may follow.

    Privacy: everything that leaves costs ``plan.cost``: docs/proofs/sparse-vector.md, Theorem 4.
    Neighbours: any; scores and numbers move by at most ``plan.law.sensitivity`` steps, scores in
    one direction together if ``plan.law.is_monotone``.
    """

    __slots__ = ("_begun", "_owed", "_plan", "_vector", "_words")

    def __init__(self, plan: SparsePlan, words: WordSource | None = None) -> None:
        self._plan = plan
        self._words = system_words() if words is None else words
        self._vector = SparseVector(plan.law, self._words)
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
        cls, plan: SparsePlan, begun: int, words: WordSource | None = None
    ) -> Discoverer | None:
        """The tests that follow when the sparse vector number ``begun`` was lost; None if none do.

        What is lost is the threshold in use and the discoveries it had left: nothing is tested
        with a threshold of which an outcome may be unknown.

        Privacy: as the class says; every sparse vector of the plan is begun once at most.
        Neighbours: as there.
        """
        if begun >= plan.epochs:
            return None
        following = cls(plan, words)
        following._begun = begun + 1
        return following

    def test_many(self, scores: Sensitive[Sequence[int]], thresholds: Sequence[int]) -> list[bool]:
        """Test score after score up to the last discovery of the plan; refused when none is left.

        Privacy: as the class says. Neighbours: as the class says.
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
                self._vector = SparseVector(self._plan.law, self._words)
                self._begun += 1
            run = slice(len(outcomes), len(outcomes) + AT_ONCE)
            found = self._vector.test_many(Sensitive(exact[run]), thresholds[run])
            self._owed += sum(found)
            outcomes += found
        return outcomes

    def numbers(self, exact: Sensitive[Sequence[int]], places: Sequence[int]) -> list[int] | None:
        """The numbers of discoveries, in steps, with noise of their own; None if not planned.

        One for each discovery, and no more.

        Privacy: as the class says. Neighbours: as the class says.
        """
        if self._plan.number is None:
            return None
        self._vector.check_process()
        if len(places) > self._owed:
            raise PlanError("there is one number for each discovery, and no more")
        self._owed -= len(places)
        known = exact.reveal()
        return [answer(Sensitive(known[i]), self._plan.number, self._words) for i in places]

    def state(self) -> bytes:
        """What `restored` needs to go on: private, as `SparseVector.state`."""
        kept = {"begun": self._begun, "owed": self._owed, "vector": self._vector.state().decode()}
        return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def restored(
        cls, plan: SparsePlan, state: bytes, words: WordSource | None = None
    ) -> Discoverer:
        """The tests whose `state` this is; no noise is drawn.

        Privacy: as the class says, if the state is continued once only. Neighbours: as there.
        """
        found = cls.__new__(cls)
        found._plan = plan
        found._words = system_words() if words is None else words
        try:
            kept = json.loads(state)
            found._begun, found._owed = int(kept["begun"]), int(kept["owed"])
            found._vector = SparseVector.restored(plan.law, kept["vector"].encode(), words)
            if 1 <= found._begun <= plan.epochs and 0 <= found._owed <= plan.discoveries:
                return found
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            pass  # raised below, so that the message carries no context
        raise PlanError(DAMAGED)
