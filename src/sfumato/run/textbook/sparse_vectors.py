# SPDX-License-Identifier: Apache-2.0
"""The sparse vectors of the lecture notes by their names: which answers are above a threshold.

    import sfumato as sf
    first = sf.study.above_threshold(scores, T=100, epsilon=1)       # Lap(2/eps), Lap(4/eps)
    some = sf.study.sparse_vector(scores, T=100, epsilon=1, c=3)
    some.answers, some.places, some.cost, some.noise, some.error_bound(beta=0.05)

The tests are those of `vault.mechanisms.sparse`, the laws those of `planning.sparse_plans`: scores
are compared on a grid with exact noise, so nothing leaks by floating point. For scores that come
one at a time see `sf.study.SparseVector` and `sf.watch`. Proofs: docs/proofs/sparse-vector.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ldexp
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import numpy as np

from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import (
    centred,
    noise_of,
    sparse_of_epsilon,
    sparse_of_mu_squared,
    tolerance,
)
from sfumato.privacy.budget import Budget, Number
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, SparseLaw, noise_cost
from sfumato.random import WordSource
from sfumato.run.run_limits import LIMITS
from sfumato.run.textbook.outcomes import Outcome, Scores, budget_of, drawn, scale_of
from sfumato.types import Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import Discoverer
from sfumato.vault.mechanisms.sparse import above_threshold as first_above

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = [
    "SparseOutcome",
    "SparseVariant",
    "Vectors",
    "above_threshold",
    "numeric_sparse",
    "sparse_vector",
]


SparseVariant: TypeAlias = Literal["slides", "dwork-roth", "lyu-su-li"]
Kinds: TypeAlias = NoiseKind | tuple[NoiseKind, NoiseKind]
HALF = Fraction(1, 2)
GRID_BITS = PLANNING_LIMITS.sparse_grid_bits


@dataclass(frozen=True, eq=False, repr=False)
class SparseOutcome(Outcome[list[bool] | list[float | None]]):
    """What a sparse vector says: above or below for every score, up to the last discovery.

    Args:
        mechanism: As in `Outcome`.
        answers: True (above) or False per score that was tested; of `numeric_sparse` a number, or
            None for below.
        budget: As in `Outcome`.
        cost: As in `Outcome`: of the whole, however many scores are below.
        noise: As in `Outcome`.
        theorem: As in `Outcome`.
        bound: As in `Outcome`: with it every test is right.
        neighbours: As in `Outcome`.
        n: As in `Outcome`.
        note: As in `Outcome`.
        places: The numbers of the scores that were found above, from 0.
    """

    places: tuple[int, ...] = ()

    @property
    def place(self) -> int | None:
        """The first of `places`; None if nothing was found above."""
        return self.places[0] if self.places else None

    def _shown_answers(self) -> str:
        where = ", ".join(str(i) for i in self.places) or "none"
        return f"above at {where}; {len(self.answers):,} tested"


@dataclass(frozen=True, slots=True)
class Vectors:
    """So many sparse vectors of one law, one after the other, and the noise of numbers."""

    law: SparseLaw
    epochs: int
    number: NoiseLaw | None = None

    @property
    def cost(self) -> Cost:
        """What all of them cost together."""
        parts = self.law.cost.parts * self.epochs
        if self.number is not None:
            most = self.epochs * self.law.discoveries
            parts += noise_cost(self.number, self.law.sensitivity).parts * most
        return Cost(parts)


def _thresholds(scores: Scores, T: float | Sequence[float]) -> list[int]:
    """A public threshold for every score, in steps."""
    each = np.broadcast_to(np.asarray(T, dtype=np.float64), (scores.count,))
    if not bool((np.abs(each) < 2.0**50).all()):
        raise PlanError("thresholds T are finite numbers below 2^50, one or one per score")
    return [round(ldexp(t, scores.bits)) for t in each.tolist()]


def _law(
    budget: Budget,
    is_pure: bool,
    part: Fraction,
    scores: Scores,
    discoveries: int,
    noise: Kinds,
    share: Fraction | None,
) -> SparseLaw:
    """The sparse vector for a part of the budget: of its pure epsilon, or of its mu^2."""
    threshold, query = (noise, noise) if isinstance(noise, str) else noise
    if is_pure:
        return sparse_of_epsilon(
            budget.pure_epsilon * part,
            discoveries,
            scores.sensitivity,
            is_monotone=scores.is_monotone,
            threshold=threshold,
            query=query,
            share=share,
        )
    return sparse_of_mu_squared(
        Fraction(budget.gaussian_mu or 0) ** 2 * part,
        discoveries,
        scores.sensitivity,
        is_monotone=scores.is_monotone,
        threshold=threshold,
        query=query,
    )


def _tested(
    title: str,
    scores: Scores,
    T: float | Sequence[float],
    budget: Budget,
    vectors: Vectors,
    access: Mapping[str, object],
) -> SparseOutcome:
    """Test all scores up to the last discovery, and tell numbers where that was planned."""
    law, number = centred(vectors.law, scores.count, 0.05, vectors.epochs), vectors.number
    vectors = Vectors(law, vectors.epochs, number)
    thresholds = _thresholds(scores, T)

    def noisy(exact: Sensitive[Sequence[int]], words: WordSource) -> dict[str, list[int]]:
        tests = Discoverer(vectors, words)
        above = tests.test_many(exact, thresholds)
        places = [i for i, is_above in enumerate(above) if is_above]
        return {"above": [int(a) for a in above], "numbers": tests.numbers(exact, places) or []}

    def described() -> dict[str, object]:
        return {
            "workload": None if scores.instance is None else scores.instance.workload.normal.key,
            "law": law.as_json(),
            "epochs": vectors.epochs,
            "number": None if number is None else [number.kind, str(number.scale)],
            "thresholds": thresholds,
        }

    how = {**access, "neighbours": scores.neighbours}
    answer, note = drawn(
        scores.instance,
        title,
        budget,
        vectors.cost,
        described,
        scores.counted,
        noisy,
        **how,  # type: ignore[arg-type]
    )
    assert isinstance(answer, dict)  # noqa: S101
    places = tuple(i for i, a in enumerate(answer["above"]) if a)
    numbers = dict(zip(places, (scores.step * x for x in answer["numbers"]), strict=False))
    tested = [bool(a) for a in answer["above"]]
    laws = {
        "threshold": scale_of(law.threshold, scores.step),
        "scores": scale_of(law.query, scores.step),
    }
    if number is not None:
        laws["numbers"] = scale_of(number, scores.step)
    return SparseOutcome(
        title,
        tested if number is None else [numbers.get(i) for i in range(len(tested))],
        budget,
        vectors.cost,
        laws,
        "every test is right up to this, all of them together (utility of SparseVector)",
        _right_up_to(vectors, scores),
        scores.neighbours,
        note=note,
        places=places,
    )


def _right_up_to(vectors: Vectors, scores: Scores) -> Callable[[float], float]:
    """With probability 1 - beta all tests are right up to this, and numbers are within it."""
    law, number, c = vectors.law, vectors.number, vectors.epochs * vectors.law.discoveries

    def bound(beta: float) -> float:
        if number is None:
            return tolerance(law, scores.count, beta, vectors.epochs) * scores.step
        quantile = laplace_quantile if number.kind == "laplace" else gaussian_quantile
        tests = tolerance(law, scores.count, beta / 2, vectors.epochs)
        return max(tests, quantile(number.scale, 1 - Fraction(beta) / (2 * c))) * scores.step

    return bound


@overload
def above_threshold(
    queries: Sensitive[Sequence[int]],
    data: Sequence[int],
    law: SparseLaw,
    random: WordSource | None = None,
) -> int | None: ...


@overload
def above_threshold(
    queries: object,
    data: object = None,
    law: None = None,
    random: WordSource | None = None,
    *,
    T: float | Sequence[float],
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    noise: Kinds = "laplace",
    share: Fraction | None = HALF,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
) -> SparseOutcome: ...


def above_threshold(
    queries: object,
    data: object = None,
    law: SparseLaw | None = None,
    random: WordSource | None = None,
    *,
    T: float | Sequence[float] | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    noise: Kinds = "laplace",
    share: Fraction | None = HALF,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
) -> SparseOutcome | int | None:
    """AboveThreshold: the first score above T, with ``T + Lap(2/eps)`` and ``q_i + Lap(4/eps)``.

    ``above_threshold(scores, T=100, epsilon=1)`` takes exact scores that move by at most
    ``sensitivity`` (1) each; ``above_threshold(F, histogram, T=100, epsilon=1)`` linear queries,
    whose sensitivity is worked out. Scales are for sensitivity 1 and grow with it.

    Generalised, any noise that is private hides the threshold and the scores: ``noise`` is one kind
    or a pair (of the threshold, of scores) of ``"laplace"``, ``"exponential"`` (one-sided) and
    ``"gaussian"``; a Gaussian threshold needs a delta, rho or mu.

    Privacy: epsilon-DP however many scores are below (Dwork, Roth 2014, Theorem 3.23; the noise of
    the threshold hides sensitivity 1 at epsilon/2, that of a score 2 at epsilon/2:
    docs/proofs/sparse-vector.md, Theorems 1 and 3).
    Neighbours: those for which scores move by at most ``sensitivity``; of queries ``neighbours``.
    Error: with probability 1 - beta a score that was found above is at least ``T - alpha`` and all
    found below are under ``T + alpha``; ``error_bound(beta)`` is the least such alpha for this
    noise (the notes' union bound has ``8 (ln k + ln(2/beta)) / epsilon``).

    Args:
        queries: Exact scores, a matrix F with a row per query, or a workload.
        data: The histogram of the matrix, or the table of the workload; None beside scores.
        law: With scores in a `Sensitive` and thresholds as ``data``: a law in steps, and the place
            of the first above is returned. For other scores leave it out.
        random: Words of a demonstration (`SeededWords`); the system's if None.
        T: The public threshold, one or one per score.
        epsilon: The privacy parameter.
        delta: With ``epsilon``, for Gaussian noise on the threshold.
        rho: In place of both.
        mu: In place of both.
        sensitivity: How far neighbours move a score; 1 if None.
        is_monotone: Whether all scores move in one direction together, which halves the noise of
            scores; None lets linear queries decide.
        noise: The kind of noise, or a pair: of the threshold and of scores.
        share: The threshold's share of epsilon; None for the best.
        records: One code of a cell per person, in place of the histogram.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.

    Returns:
        The outcome: ``answers`` ends with True where ``place`` is; ``place`` is None if none is.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> first = sf.study.above_threshold([3, 8, 5, 900, 20], T=500, epsilon=1)
    >>> first.place, first.noise
    (3, {'threshold': Lap(2), 'scores': Lap(4)})
    """
    if isinstance(queries, Sensitive) or law is not None:
        if not isinstance(queries, Sensitive) or law is None or not isinstance(data, Sequence):
            raise PlanError("a law is for scores in a Sensitive, with thresholds in steps")
        return first_above(queries, data, law, random)
    if T is None:
        raise PlanError("say what is above: T= a public number")
    budget = budget_of(epsilon, delta, rho, mu)
    scores = Scores.of(queries, data, records, sensitivity, is_monotone, neighbours, GRID_BITS)
    vectors = _variant("slides", budget, Fraction(1), scores, 1, noise, share)
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    return _tested("AboveThreshold", scores, T, budget, vectors, access)


def sparse_vector(
    queries: object,
    data: object = None,
    *,
    T: float | Sequence[float],
    c: int,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    variant: SparseVariant = "slides",
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    noise: Kinds = "laplace",
    share: Fraction | None = HALF,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> SparseOutcome:
    """SparseVector: up to c scores above T, paid for by discoveries and not by scores.

    ``"slides"`` runs AboveThreshold c times, each with epsilon/c: ``Lap(2c/eps)`` on a threshold
    that is drawn anew after every discovery, ``Lap(4c/eps)`` on scores. ``"dwork-roth"``
    (Algorithm 2 of Lyu, Su, Li 2017) has the same law. ``"lyu-su-li"`` (their Algorithm 1) draws
    the threshold once, ``Lap(2/eps)``, and has the same noise on scores; ``share=None`` splits
    epsilon as their section 4.2 says, for the least variance of a comparison.

    Privacy: epsilon-DP: docs/proofs/sparse-vector.md, Theorems 1 and 4; with a delta, rho or mu the
    c runs compose as Gaussian differential privacy where that is better. Algorithms 3 to 6 are not
    private and are not here: `sfumato_audit.sparse_vectors_compared` runs them on made-up data.
    Neighbours: as in `above_threshold`.
    Error: as in `above_threshold`, for all c discoveries together.

    Args:
        queries: As in `above_threshold`.
        data: As in `above_threshold`.
        T: As in `above_threshold`.
        c: The most discoveries; then it is over.
        epsilon: As in `above_threshold`.
        delta: As in `above_threshold`.
        rho: As in `above_threshold`.
        mu: As in `above_threshold`.
        variant: ``"slides"``, ``"dwork-roth"`` or ``"lyu-su-li"``.
        sensitivity: As in `above_threshold`.
        is_monotone: As in `above_threshold`.
        noise: As in `above_threshold`.
        share: As in `above_threshold`.
        records: As in `above_threshold`.
        neighbours: As in `above_threshold`.
        ledger: As in `above_threshold`.
        name: As in `above_threshold`.
        key: As in `above_threshold`.
        random: As in `above_threshold`.

    Returns:
        The outcome: one answer per score that was tested, and the ``places`` of discoveries.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> some = sf.study.sparse_vector([3, 990, 5, 900, 20], T=500, epsilon=1, c=2)
    >>> some.places, some.noise
    ((1, 3), {'threshold': Lap(4), 'scores': Lap(8)})
    """
    budget = budget_of(epsilon, delta, rho, mu)
    scores = Scores.of(queries, data, records, sensitivity, is_monotone, neighbours, GRID_BITS)
    vectors = _variant(variant, budget, Fraction(1), scores, c, noise, share)
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    return _tested(f"SparseVector ({variant})", scores, T, budget, vectors, access)


def numeric_sparse(
    queries: object,
    data: object = None,
    *,
    T: float | Sequence[float],
    c: int,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    variant: SparseVariant = "slides",
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    number_share: Fraction = HALF,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> SparseOutcome:
    """NumericSparse: `sparse_vector`, and the score of every discovery with fresh noise.

    The notes compose AboveThreshold and the Laplace mechanism in turn, "twice the privacy budget":
    half of epsilon here is the tests', half the numbers', c of them with ``Lap(2c/eps)``. The noise
    of a comparison is never told (that is what breaks Algorithm 3).

    Privacy: docs/proofs/sparse-vector.md, Theorem 4. Neighbours: as in `above_threshold`.
    Error: ``error_bound(beta)`` holds for all tests and all numbers together.

    Args:
        queries: As in `above_threshold`.
        data: As in `above_threshold`.
        T: As in `above_threshold`.
        c: The most discoveries, and numbers.
        epsilon: As in `above_threshold`.
        delta: With ``epsilon``: numbers then have Gaussian noise where that is better.
        rho: In place of both.
        mu: In place of both.
        variant: As in `sparse_vector`.
        sensitivity: As in `above_threshold`.
        is_monotone: As in `above_threshold`.
        number_share: The numbers' share of the budget.
        records: As in `above_threshold`.
        neighbours: As in `above_threshold`.
        ledger: As in `above_threshold`.
        name: As in `above_threshold`.
        key: As in `above_threshold`.
        random: As in `above_threshold`.

    Returns:
        The outcome: a number for every discovery, None for every score below.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> some = sf.study.numeric_sparse([3, 990, 5], T=500, epsilon=2, c=1)
    >>> some.answers[0] is None, abs(some.answers[1] - 990) < 100, some.noise["numbers"]
    (True, True, Lap(1))
    """
    budget = budget_of(epsilon, delta, rho, mu)
    if not isinstance(number_share, Fraction) or not 0 < number_share < 1:
        raise PlanError(f"number_share is a Fraction between 0 and 1, got {number_share!r}")
    scores = Scores.of(queries, data, records, sensitivity, is_monotone, neighbours, GRID_BITS)
    vectors = _variant(variant, budget, 1 - number_share, scores, c, "laplace", HALF, number_share)
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    return _tested(f"NumericSparse ({variant})", scores, T, budget, vectors, access)


def _variant(
    variant: str,
    budget: Budget,
    part: Fraction,
    scores: Scores,
    c: int,
    noise: Kinds,
    share: Fraction | None,
    number_share: Fraction | None = None,
) -> Vectors:
    """The sparse vectors of a variant; of a pure and a Gaussian accounting the better one.

    A budget with a delta is also one of pure epsilon: then discoveries add up, where in mu^2 they
    compose like a square root, but the noise of each is larger.
    """
    wanted: object = c
    if isinstance(wanted, np.integer):
        c = int(wanted)
    if isinstance(c, bool) or not isinstance(c, int) or not 1 <= c <= LIMITS.textbook_discoveries:
        raise PlanError(
            f"c, the most discoveries, is a whole number from 1 to "
            f"{LIMITS.textbook_discoveries:,}, got {c!r}"
        )
    if variant not in ("slides", "dwork-roth", "lyu-su-li"):
        raise PlanError(
            f'variant is "slides", "dwork-roth" or "lyu-su-li", got {variant!r}; the others that '
            "were published are not private: sfumato_audit.sparse_vectors_compared"
        )
    epochs, each = (1, c) if variant == "lyu-su-li" else (c, 1)
    first = noise if isinstance(noise, str) else noise[0]
    ways = ([True] if first != "gaussian" else []) + ([] if budget.is_pure else [False])
    if not ways:
        raise PlanError("a Gaussian threshold is not pure: give delta (or rho, or mu)")

    def made(is_pure: bool) -> Vectors:
        law = _law(budget, is_pure, part / epochs, scores, each, noise, share)
        if number_share is None:
            return Vectors(law, epochs)
        whole = budget.pure_epsilon if is_pure else Fraction(budget.gaussian_mu or 0) ** 2
        kind: Literal["laplace", "gaussian"] = "laplace" if is_pure else "gaussian"
        return Vectors(law, epochs, noise_of(whole * number_share / c, kind, scores.sensitivity))

    return min((made(is_pure) for is_pure in ways), key=lambda v: v.law.query.scale)
