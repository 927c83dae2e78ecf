# SPDX-License-Identifier: Apache-2.0
"""Exact tables and answers that are asked step by step: choose the worst, measure it.

The loops of ``sfumato.adaptive`` and ``sfumato.mwem`` hold one of these and never see what is in
it. Estimates come in rounded to a public grid, so scores are exact integers, and what goes out is
the place of a nearly worst one (`select`) or a table with exact noise (`noise`). What a call costs
is stated by ``plan.adaptive.Spending`` before it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from sfumato.budget import Neighbours
from sfumato.budget.budget import total_is_public
from sfumato.domain import Domain
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, WorkloadError
from sfumato.measurement import Measurement
from sfumato.plan.strategy import Block
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.randomness import WordSource
from sfumato.vault.count import AttributeSet, Counts, Progress, count_marginals
from sfumato.vault.measure import count
from sfumato.vault.noise import discrete_laplace, rounded_gaussian
from sfumato.vault.select import exponential_mechanism, permute_and_flip
from sfumato.vault.sensitive import Redacted, Sensitive
from sfumato.vault.tables import Table
from sfumato.workload.scans import answer_bits
from sfumato.workload.workload import Workload

__all__ = [
    "GREATEST_WEIGHT",
    "GRID_BITS",
    "ExactAnswers",
    "ExactTables",
    "read_answers",
    "read_tables",
]

GRID_BITS: Final = 8
"""Estimates are compared with counts in steps of 2^-8."""

GREATEST_WEIGHT: Final = 127
GREATEST_ESTIMATE: Final = 2**52  # of a whole table in steps: times the weight it is below 2^60

Integers = npt.NDArray[np.int64]


class ExactTables(Redacted):
    """The exact tables of all candidates of a loop."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def scores(
        self,
        estimates: Mapping[AttributeSet, Integers],
        handicaps: Mapping[AttributeSet, int],
        weights: Mapping[AttributeSet, int],
    ) -> Sensitive[Integers]:
        """``weight * (|exact - estimate|_1 - handicap)`` of every set, in steps of the grid.

        Neighbours: every score moves by at most ``GREATEST_WEIGHT * 2^GRID_BITS * D1``, D1 the L1
        distance of neighbouring tables (triangle inequality; all else is public):
        docs/proofs/adaptive.md, Theorem 2.
        """
        found = np.empty(len(estimates), dtype=np.int64)
        for i, (names, near) in enumerate(estimates.items()):
            if not 1 <= weights[names] <= GREATEST_WEIGHT:
                raise PlanError(f"a weight must be 1 to {GREATEST_WEIGHT}, got {weights[names]}")
            if float(np.abs(near).sum(dtype=np.float64)) > GREATEST_ESTIMATE:
                raise PlanError("an estimate holds more records than a table can")
            apart = (self._counts.reveal(names) << GRID_BITS) - near
            score = int(np.abs(apart).sum()) - handicaps[names]
            # Clamping at a public bound is 1-Lipschitz, and keeps the product within 64 bits.
            score = min(max(score, -GREATEST_ESTIMATE), GREATEST_ESTIMATE)
            found[i] = weights[names] * score
        return Sensitive(found)

    def choose(
        self,
        estimates: Mapping[AttributeSet, Integers],
        handicaps: Mapping[AttributeSet, int],
        weights: Mapping[AttributeSet, int],
        rate: Fraction,
        words: WordSource,
        is_pure: bool,
    ) -> AttributeSet:
        """Choose a set with a nearly largest score (`scores`).

        Privacy: the exponential mechanism, or permute-and-flip if ``is_pure``, on scores that move
        as `scores` states: docs/proofs/selection.md.
        Neighbours: as D1 is stated by ``plan.adaptive.moves_of``.
        """
        scores = self.scores(estimates, handicaps, weights)
        if is_pure:
            place = permute_and_flip(scores, rate, words)
        else:
            place = exponential_mechanism(scores, rate, words)[0]
        return list(estimates)[place]

    def measure(self, names: AttributeSet, law: BlockNoise, words: WordSource) -> Measurement:
        """The table with exact noise, a value per cell in row-major order.

        Privacy: mu-GDP with ``mu^2 = D2^2 / scale^2`` (Gaussian), or ``D1 / scale``-DP (Laplace):
        docs/proofs/rounded-gaussian.md, discrete-laplace.md.
        Neighbours: as D1 and D2 are stated by ``plan.adaptive.moves_of``.
        """
        exact = self._counts.reveal(names).ravel()
        return Measurement((exact << law.grid_bits) + _drawn(law, exact.size, words), law)


def read_tables(
    table: Table,
    domain: Domain,
    sets: Sequence[AttributeSet],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[ExactTables, int | None]:
    """Count all candidates; the number of records comes along only where it is public."""
    is_public = total_is_public(neighbours, domain, unit, table.may_drop_records)
    asked = [*sets, ()] if is_public else list(sets)
    counts = count_marginals(table, domain, asked, unit, progress)
    return ExactTables(counts), int(counts.reveal(())) if is_public else None


class ExactAnswers(Redacted):
    """The exact answers to every query of a workload, in steps of ``2^-bits``, and the total."""

    __slots__ = ("_answers", "_total", "bits")

    def __init__(self, answers: Integers, total: int, bits: int) -> None:
        self._answers, self._total, self.bits = answers, total, bits

    def choose(self, estimates: Integers, rate: Fraction, words: WordSource, is_pure: bool) -> int:
        """Choose a query by its score ``|exact - estimate|``, in steps.

        Privacy: a score moves by at most what its answer does; `select` does the rest.
        Neighbours: as the caller states how far one answer moves.
        """
        box = Sensitive(np.abs(self._answers - estimates))
        if is_pure:
            return permute_and_flip(box, rate, words)
        return exponential_mechanism(box, rate, words)[0]

    def at(self, bits: int) -> Sensitive[Sequence[int]]:
        """All exact answers in steps of ``2^-bits``, at least as fine as their own."""
        return Sensitive([int(a) << (bits - self.bits) for a in self._answers])

    def errors(self, estimates: Integers, low: int, span: int) -> Sensitive[Integers]:
        """``min(max(|exact - estimate| - low, 0), span)`` of every query, in steps.

        Neighbours: every one moves by at most what its answer does, and by at most ``span``.
        """
        return Sensitive(np.clip(np.abs(self._answers - estimates) - low, 0, span))

    def measure_some(
        self, queries: Sequence[int], law: BlockNoise, words: WordSource
    ) -> Measurement:
        """Some answers with exact noise, in steps.

        Privacy: as `ExactTables.measure`, for how far these answers move together.
        Neighbours: as the caller states how far they do.
        """
        exact = self._answers[np.asarray(queries, dtype=np.int64)]
        return Measurement((exact << law.grid_bits) + _drawn(law, exact.size, words), law)

    def measure(self, query: int | None, law: BlockNoise, words: WordSource) -> Measurement:
        """One answer with exact noise, in steps; without a query, the number of records.

        Privacy: as `ExactTables.measure`, for how far this answer moves.
        Neighbours: as the caller states how far this answer moves.
        """
        exact = self._total if query is None else int(self._answers[query])
        noisy = (exact << law.grid_bits) + int(_drawn(law, 1, words)[0])
        return Measurement(np.array([noisy], dtype=np.int64), law)


def read_answers(
    table: Table,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[ExactAnswers, int | None]:
    """Answer every query exactly; the number of records comes along only where it is public."""
    if any(term.unit_bits for term in workload.terms):
        raise WorkloadError("sums of values cannot be compared with estimates; ask in bins")
    bits = answer_bits(workload)
    blocks = [Block(term, 1.0) for term in workload.terms]
    exact = count(table, workload.domain, blocks, neighbours, unit, progress)
    parts = zip(workload.terms, exact.values.reveal(), strict=True)
    answers = np.concatenate([v.astype(np.int64) << (bits - t.fraction_bits) for t, v in parts])
    total = count_marginals(table, workload.domain, [()], unit).reveal(())
    return ExactAnswers(answers, int(total), bits), exact.rows


def _drawn(law: BlockNoise, size: int, words: WordSource) -> Integers:
    draw = rounded_gaussian if law.noise == "gaussian" else discrete_laplace
    return draw(Fraction(law.units), size, words)
