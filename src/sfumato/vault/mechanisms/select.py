# SPDX-License-Identifier: Apache-2.0
"""Selection: return the index of a nearly best exact score, and measure what it stands for.

`report_noisy_max`, `exponential_mechanism` and `permute_and_flip` choose, `top_places` the best
few; `ExactTables`, `ExactAnswers` and `SummedErrors` hold the exact data of a selection
(``run.choose``) or of a loop (``run.adaptive``), which never sees what is in them.

Report the place of the largest ``rate * score + Z`` with independent noise Z (`report_noisy_max`,
whatever the law). Gumbel noise makes it the exponential mechanism (McSherry, Talwar 2007,
"Mechanism design via differential privacy"), exponential noise permute-and-flip (McKenna, Sheldon
2020, "Permute-and-flip: a new mechanism for differentially private selection"; equal in law: Ding
et al. 2021, "The permute-and-flip mechanism is identical to report-noisy-max with exponential
noise"). Laplace noise is the report-noisy-max of Dwork, Roth 2014, "The algorithmic foundations of
differential privacy".

Scores are exact integers. Laplace noise is discrete, drawn on the integers, and ties are broken by
words of their own. Other noise is real: a decreasing function of a uniform U that is known by as
many bits as it takes: floats with a proven band decide nearly always, ball arithmetic and further
words the rest, so the place is that of the real noise and ties do not exist. Every choice takes one
word per candidate (Laplace: two), whatever the scores. Proof page: ``docs/proofs/selection.md``.

Estimates come in rounded to a public grid, so scores are exact integers, and what goes out is the
place of a nearly worst one or a table with exact noise. What a call costs is stated by
``planning.adaptive_costs.Spending`` before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, WorkloadError
from sfumato.measurement import Measurement
from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.budget import total_is_public
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.selection import MAXIMUM_RATE, ChoiceNoise
from sfumato.random import WordSource
from sfumato.strategy.base import Block
from sfumato.types import Integers, Neighbours, Progress
from sfumato.vault.count import AttributeSet, Counts, Redacted, Sensitive, count_marginals
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.mechanisms.noise import block_noise, discrete_laplace
from sfumato.vault.tables import Table
from sfumato.workload.workload import Workload, answer_bits

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "GRID_BITS",
    "MAXIMUM_SCORE",
    "MAXIMUM_WEIGHT",
    "ExactAnswers",
    "ExactTables",
    "SummedErrors",
    "exponential_mechanism",
    "permute_and_flip",
    "read_answers",
    "read_scores",
    "read_tables",
    "report_noisy_max",
    "top_places",
]


MAXIMUM_SCORE: Final = 2**60
"""Scores are clamped at plus and minus this: a clamped score moves by at most what it did."""

GRID_BITS: Final = 8
"""Estimates are compared with counts in steps of 2^-8."""

MAXIMUM_WEIGHT: Final = 127
MAXIMUM_ESTIMATE: Final = 2**52  # of a whole table in steps: times the weight it is below 2^60

_BITS = 53
_SPARE_BITS = np.uint64(64 - _BITS)
# The float value errs by a few units in the last place of its two terms: below 2^-40 of them.
_BAND = 2.0**-40

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Noise:
    """A real law as a decreasing function of a uniform: in floats, and in ball arithmetic."""

    rough: Callable[[Floats], Floats]
    exact: Callable[[arb], arb]


def _gumbel(u: Floats) -> Floats:
    """``-log(-log(1 - u))``: P(Z <= z) = exp(-exp(-z))."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(-np.log1p(-u)))


def _exponential(u: Floats) -> Floats:
    """``-log u``: P(Z > z) = exp(-z)."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(u))


_GUMBEL = _Noise(_gumbel, lambda u: -(-(-u).log1p()).log())
_EXPONENTIAL = _Noise(_exponential, lambda u: -u.log())


def report_noisy_max(
    scores: Sensitive[Integers], rate: Fraction, random: WordSource, noise: ChoiceNoise
) -> int:
    """The index of the maximum of ``rate * scores[i] + Z_i`` with noise of this law.

    ``"gumbel"`` is the exponential mechanism, ``"exponential"`` permute-and-flip, ``"laplace"`` has
    the discrete Laplace law of scale ``1 / rate`` on the scores; of equal noisy scores each is then
    as likely (up to 2^-64).

    Privacy: ``privacy.selection.choice_cost(noise, rate, D)``: docs/proofs/selection.md, Theorems
    3, 4 and 5; half of the range or epsilon for monotone scores, Theorem 6.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: exponential noise is never worse than Gumbel noise in expectation (McKenna, Sheldon
    2020), which is cheaper where budgets are not pure.

    Args:
        scores: Exact scores.
        rate: What a score is multiplied by.
        random: A source of random words.
        noise: ``"gumbel"``, ``"exponential"`` or ``"laplace"``.

    Returns:
        The number of the chosen score, from 0.
    """
    if noise == "gumbel":
        return exponential_mechanism(scores, rate, random)[0]
    if noise == "exponential":
        return permute_and_flip(scores, rate, random)
    if noise != "laplace":
        raise PlanError(f'noise must be "gumbel", "exponential" or "laplace", got {noise!r}')
    exact = _clamped(scores, rate, 1)
    drawn = discrete_laplace(1 / Fraction(rate), exact.size, random)
    # |noise| is below 2^62 but for a probability of exp(-2^22); int64 holds the sum.
    noisy = exact + np.clip(drawn, -(2**62), 2**62)
    order = random.words(exact.size)
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[np.argmax(order[best])])


def exponential_mechanism(
    scores: Sensitive[Integers], rate: Fraction, random: WordSource, count: int = 1
) -> tuple[int, ...]:
    """Indices, i chosen with probability ``exp(rate * scores[i]) / sum_j exp(rate * scores[j])``.

    With ``count`` above 1 that many different places are chosen, one after the other, each among
    those that are left (one draw of the noise serves all: docs/proofs/selection.md, Theorem 1).

    Privacy: each choice has bounded range ``eta = 2 rate D``, hence is eta-DP, and costs
    ``privacy.selection.selection_cost(eta)``: docs/proofs/selection.md, Theorems 2 and 3.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: with k places, a chosen score is within ``(log k + t) / rate`` of the best with
    probability at least ``1 - e^-t`` (McSherry, Talwar 2007).

    Args:
        scores: Exact scores.
        rate: What a score is multiplied by in the exponent.
        random: A source of random words.
        count: How many places are chosen.

    Returns:
        Their numbers, from 0, in the order of the choices.
    """
    return _noisy_maxima(scores, rate, random, count, _GUMBEL)


def permute_and_flip(scores: Sensitive[Integers], rate: Fraction, random: WordSource) -> int:
    """The index of the maximum of ``rate * scores[i] + Z_i``, Z standard exponential.

    Privacy: ``2 rate D``-DP (McKenna, Sheldon 2020; docs/proofs/selection.md, Theorem 4). Its
    losses may span more than that, so it costs ``Cost.pure(2 rate D)``.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: in expectation never worse than the exponential mechanism's (McKenna, Sheldon 2020).
    """
    return _noisy_maxima(scores, rate, random, 1, _EXPONENTIAL)[0]


def top_places(
    scores: Sensitive[Integers], rate: Fraction, random: WordSource, noise: ChoiceNoise, top: int
) -> tuple[int, ...]:
    """The places of ``top`` nearly largest scores, chosen one after the other among those left.

    ``"gumbel"``: one draw serves all choices (peeling: Durfee, Rogers 2019). Other noise is drawn
    anew for every choice.

    Privacy: ``top`` times the cost of one choice, `report_noisy_max`: each is one, of the scores
    that are left when the earlier ones are known: docs/proofs/selection.md, Theorems 1 and 7.
    Neighbours: any; the caller states how far two scores are moved apart.

    Args:
        scores: Exact scores.
        rate: What a score is multiplied by.
        random: A source of random words.
        noise: ``"gumbel"``, ``"exponential"`` or ``"laplace"``.
        top: How many places are chosen.

    Returns:
        Their numbers, from 0, in the order of the choices.
    """
    if noise == "gumbel":
        return exponential_mechanism(scores, rate, random, top)
    exact = _clamped(scores, rate, top)
    left, places = np.arange(exact.size), []
    for _ in range(top):
        at = report_noisy_max(Sensitive(exact[left]), rate, random, noise)
        places.append(int(left[at]))
        left = np.delete(left, at)
    return tuple(places)


def _noisy_maxima(
    scores: Sensitive[Integers], rate: Fraction, random: WordSource, count: int, noise: _Noise
) -> tuple[int, ...]:
    noisy = _NoisyScores(_clamped(scores, rate, count), Fraction(rate), noise, random)
    return tuple(noisy.next_place() for _ in range(count))


class _NoisyScores:
    """Noisy scores known by enclosures, from which the maximum is taken again and again."""

    def __init__(
        self,
        scores: Integers,
        rate: Fraction,
        noise: _Noise,
        random: WordSource,
        band: float = _BAND,
    ) -> None:
        self._scores, self._rate, self._noise, self._random = scores, rate, noise, random
        self._leading = leading = random.words(scores.size) >> _SPARE_BITS
        # Places looked at in ball arithmetic: their leading bits, and how many.
        self._uniforms: dict[int, tuple[int, int]] = {}
        # Noise decreases in u, so the two ends of [v, v + 1] / 2^53 enclose it.
        u = leading.astype(np.float64) * 2.0**-_BITS
        base = float(rate) * (scores - scores.max()).astype(np.float64)
        low, high = noise.rough(u + 2.0**-_BITS), noise.rough(u)
        wide = band * (1 + np.abs(base))
        self._low = base + low - wide - band * np.abs(low)
        self._high = base + high + wide + band * np.abs(high)

    def next_place(self) -> int:
        """The index of the maximum among the noisy scores that are left; it is then taken out."""
        contenders = np.flatnonzero(self._high >= self._low.max())
        place = int(contenders[0]) if contenders.size == 1 else self._decide(contenders.tolist())
        self._low[place], self._high[place] = -np.inf, np.nan  # no contender any more
        return place

    def _decide(self, contenders: list[int]) -> int:
        """The index of the maximum: uniforms are extended by words until one is above all."""
        while True:
            balls = {i: self._enclosure(i) for i in contenders}
            best = contenders[0]
            for i in contenders:
                best = i if balls[i][0] > balls[best][0] else best
            contenders = [i for i in contenders if not balls[i][1] < balls[best][0]]
            if len(contenders) == 1:
                return contenders[0]
            for i in contenders:
                leading, bits = self._uniform(i)
                more = int(self._random.words(1)[0])
                self._uniforms[i] = ((leading << 64) | more, bits + 64)

    def _uniform(self, place: int) -> tuple[int, int]:
        return self._uniforms.get(place, (int(self._leading[place]), _BITS))

    def _enclosure(self, place: int) -> tuple[arb, arb]:
        """Balls around both ends of what is known of a noisy score; an unknown end is infinite."""
        from flint import arb

        leading, bits = self._uniform(place)
        with precision(bits + 192):
            base = ball_of(self._rate * (int(self._scores[place]) - int(self._scores.max())))
            unit = arb(2) ** -bits
            low, high = arb("-inf"), arb("inf")
            if leading + 1 < 1 << bits:
                low = base + self._noise.exact((leading + 1) * unit)
            if leading > 0:
                high = base + self._noise.exact(leading * unit)
            return low, high


def _clamped(scores: Sensitive[Integers], rate: Fraction, count: int) -> Integers:
    exact = np.clip(np.asarray(scores.reveal()), -MAXIMUM_SCORE, MAXIMUM_SCORE)
    # A float rate is refused: what is accounted and what is drawn must be the same number.
    if not isinstance(rate, Fraction | int) or not 0 < rate <= MAXIMUM_RATE:
        raise PlanError(f"a rate of choice must be an exact number from 0 to 2^20, got {rate!r}")
    if exact.ndim != 1 or not 1 <= count <= exact.size:
        raise PlanError(
            f"cannot choose {count} of {exact.size} candidates; choose 1 to {exact.size}"
        )
    return exact.astype(np.int64)


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

        Neighbours: every score moves by at most ``MAXIMUM_WEIGHT * 2^GRID_BITS * D1``, D1 the L1
        distance of neighbouring tables (triangle inequality; all else is public):
        docs/proofs/adaptive.md, Theorem 2.
        """
        scores = np.empty(len(estimates), dtype=np.int64)
        for i, (names, near) in enumerate(estimates.items()):
            if not 1 <= weights[names] <= MAXIMUM_WEIGHT:
                raise PlanError(f"a weight must be 1 to {MAXIMUM_WEIGHT}, got {weights[names]}")
            if float(np.abs(near).sum(dtype=np.float64)) > MAXIMUM_ESTIMATE:
                raise PlanError("an estimate holds more records than a table can")
            apart = (self._counts.reveal(names) << GRID_BITS) - near
            score = int(np.abs(apart).sum()) - handicaps[names]
            # Clamping at a public bound is 1-Lipschitz, and keeps the product within 64 bits.
            score = min(max(score, -MAXIMUM_ESTIMATE), MAXIMUM_ESTIMATE)
            scores[i] = weights[names] * score
        return Sensitive(scores)

    def choose(
        self,
        estimates: Mapping[AttributeSet, Integers],
        handicaps: Mapping[AttributeSet, int],
        weights: Mapping[AttributeSet, int],
        rate: Fraction,
        random: WordSource,
        is_pure: bool,
    ) -> AttributeSet:
        """A set with a nearly maximal score (`scores`).

        Privacy: the exponential mechanism, or permute-and-flip if ``is_pure``, on scores that move
        as `scores` states: docs/proofs/selection.md.
        Neighbours: as D1 is stated by ``planning.adaptive_costs.moves_of``.
        """
        scores = self.scores(estimates, handicaps, weights)
        if is_pure:
            place = permute_and_flip(scores, rate, random)
        else:
            place = exponential_mechanism(scores, rate, random)[0]
        return list(estimates)[place]

    def measure(self, names: AttributeSet, law: BlockNoise, random: WordSource) -> Measurement:
        """The table with exact noise, a value per cell in row-major order.

        Privacy: mu-GDP with ``mu^2 = D2^2 / scale^2`` (Gaussian), or ``D1 / scale``-DP (Laplace):
        docs/proofs/rounded-gaussian.md, discrete-laplace.md.
        Neighbours: as D1 and D2 are stated by ``planning.adaptive_costs.moves_of``.
        """
        exact = self._counts.reveal(names).ravel()
        return Measurement((exact << law.grid_bits) + block_noise(law, exact.size, random), law)


def read_tables(
    table: Table,
    domain: Domain,
    sets: Sequence[AttributeSet],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[ExactTables, int | None]:
    """The exact tables of all candidates, and the number of records where it is public."""
    is_public = total_is_public(neighbours, domain, unit, table.may_drop_records)
    counted = [*sets, ()] if is_public else list(sets)
    counts = count_marginals(table, domain, counted, unit, progress)
    return ExactTables(counts), int(counts.reveal(())) if is_public else None


class ExactAnswers(Redacted):
    """The exact answers to every query of a workload, in steps of ``2^-bits``, and the total.

    The total is None where nobody asks for it.
    """

    __slots__ = ("_answers", "_total", "bits")

    def __init__(self, answers: Integers, total: int | None, bits: int) -> None:
        self._answers, self._total, self.bits = answers, total, bits

    def top(
        self,
        rate: Fraction,
        noise: ChoiceNoise,
        top: int,
        is_largest: bool,
        random: WordSource,
        nearest: Fraction | None = None,
    ) -> tuple[int, ...]:
        """The places of ``top`` nearly largest answers, or of nearly smallest ones.

        With ``nearest`` = p/q, those whose answer is nearest to this share of all records: by the
        score ``-|q answer - p total|``.

        Privacy: that of `top_places`.
        Neighbours: as the caller states how far two scores are moved apart.
        """
        scores = self._answers if is_largest else -self._answers
        if nearest is not None:
            assert self._total is not None  # noqa: S101
            share = nearest.numerator * (self._total << self.bits)
            scores = -np.abs(nearest.denominator * self._answers - share)
        return top_places(Sensitive(scores), rate, random, noise, top)

    def top_measured(
        self, law: BlockNoise, top: int, is_largest: bool, random: WordSource
    ) -> tuple[tuple[int, ...], Measurement]:
        """The places of the largest, or smallest, of all answers with noise, and their values.

        Privacy: that of `measure_some` for all answers together; which of the noisy ones are
        largest is post-processing: docs/proofs/selection.md, Theorem 10.
        Neighbours: as the caller states how far all answers are moved together.
        """
        noisy = self.measure_some(range(self._answers.size), law, random).units
        order = np.argsort(-noisy if is_largest else noisy, kind="stable")[:top]
        return tuple(order.tolist()), Measurement(noisy[order], law)

    def choose(self, estimates: Integers, rate: Fraction, random: WordSource, is_pure: bool) -> int:
        """The index of a query with a nearly maximal score ``|exact - estimate|``, in steps.

        Privacy: a score moves by at most what its answer does; `select` does the rest.
        Neighbours: as the caller states how far one answer moves.
        """
        box = Sensitive(np.abs(self._answers - estimates))
        if is_pure:
            return permute_and_flip(box, rate, random)
        return exponential_mechanism(box, rate, random)[0]

    def at(self, bits: int) -> Sensitive[Sequence[int]]:
        """All exact answers in steps of ``2^-bits``, at least as fine as their own."""
        return Sensitive([int(a) << (bits - self.bits) for a in self._answers])

    def errors(self, estimates: Integers, low: int, span: int) -> Sensitive[Integers]:
        """``min(max(|exact - estimate| - low, 0), span)`` of every query, in steps.

        Neighbours: every one moves by at most what its answer does, and by at most ``span``.
        """
        return Sensitive(np.clip(np.abs(self._answers - estimates) - low, 0, span))

    def measure_some(
        self, queries: Sequence[int], law: BlockNoise, random: WordSource
    ) -> Measurement:
        """Some answers with exact noise, in steps.

        Privacy: as `ExactTables.measure`, for how far these answers move together.
        Neighbours: as the caller states how far they do.
        """
        exact = self._answers[np.asarray(queries, dtype=np.int64)]
        return Measurement((exact << law.grid_bits) + block_noise(law, exact.size, random), law)

    def measure(self, query: int | None, law: BlockNoise, random: WordSource) -> Measurement:
        """One answer with exact noise, in steps; without a query, the number of records.

        Privacy: as `ExactTables.measure`, for how far this answer moves.
        Neighbours: as the caller states how far this answer moves.
        """
        exact = self._total if query is None else int(self._answers[query])
        assert exact is not None  # noqa: S101
        noisy = (exact << law.grid_bits) + int(block_noise(law, 1, random)[0])
        return Measurement(np.array([noisy], dtype=np.int64), law)


class SummedErrors(Redacted):
    """The errors of the estimates so far, summed query by query: what boosting draws by.

    Neighbours: after t estimates every sum moves by at most t times what its answer does.
    """

    __slots__ = ("_answers", "_sums")

    def __init__(self, answers: ExactAnswers, queries: int) -> None:
        self._answers, self._sums = answers, np.zeros(queries, dtype=np.int64)

    def add(self, estimates: Integers, low: int, span: int) -> None:
        """Add the errors of one more estimate (`ExactAnswers.errors`)."""
        self._sums = self._sums + self._answers.errors(estimates, low, span).reveal()

    def draw(self, rate: Fraction, samples: int, random: WordSource) -> tuple[int, ...]:
        """Independent draws by ``exp(rate * sum)``; what came more than once counts once.

        Privacy: each of the ``samples`` draws is the exponential mechanism on scores that move as
        the class says: docs/proofs/boosting.md, Theorem 1.
        Neighbours: as the caller states how far one answer moves.
        """
        sums = Sensitive(self._sums)
        return tuple(sorted({exponential_mechanism(sums, rate, random)[0] for _ in range(samples)}))


def read_answers(
    table: Table,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[ExactAnswers, int | None]:
    """The exact answer to every query, and the number of records where it is public."""
    answers, bits, rows = _answers(table, workload, neighbours, unit, progress)
    total = count_marginals(table, workload.domain, [()], unit).reveal(())
    return ExactAnswers(answers, int(total), bits), rows


def read_scores(
    table: Table,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> ExactAnswers:
    """The exact answer to every query, for a selection."""
    answers, bits, _ = _answers(table, workload, neighbours, unit, progress)
    return ExactAnswers(answers, None, bits)


def _answers(
    table: Table,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    progress: Progress | None,
) -> tuple[Integers, int, int | None]:
    """All exact answers in steps, how fine the steps are, and the records where they are public."""
    if any(term.unit_bits for term in workload.terms):
        raise WorkloadError("sums of values cannot be compared with estimates; ask in bins")
    bits = answer_bits(workload)
    blocks = [Block(term, 1.0) for term in workload.terms]
    exact = count(table, workload.domain, blocks, neighbours, unit, progress)
    parts = zip(workload.terms, exact.values.reveal(), strict=True)
    answers = np.concatenate([v.astype(np.int64) << (bits - t.fraction_bits) for t, v in parts])
    return answers, bits, exact.rows
