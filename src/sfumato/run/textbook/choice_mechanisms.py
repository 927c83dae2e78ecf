# SPDX-License-Identifier: Apache-2.0
"""Private selection by the notes' names: the exponential mechanism and report noisy max.

    import sfumato as sf
    chosen = sf.study.exponential_mechanism(scores, epsilon=1)   # the place of a nearly best one
    chosen.answers, chosen.cost, chosen.noise, chosen.error_bound(beta=0.05)

The choices are those of `vault.mechanisms.select`: scores are whole steps of a grid and the noise
is exact, so the probabilities are those of the theorem and nothing leaks by floating point. Proofs:
docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

from sfumato.errors import PlanError
from sfumato.privacy.budget import Number
from sfumato.privacy.cost import Cost
from sfumato.privacy.selection import ChoiceNoise
from sfumato.random import WordSource
from sfumato.run.textbook.outcomes import NoiseScale, Outcome, Scores, budget_of, drawn
from sfumato.types import Integers, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.select import exponential_mechanism as choose_by_exponent
from sfumato.vault.mechanisms.select import report_noisy_max

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = ["ChoiceOutcome", "exponential_mechanism", "noisy_max", "permute_and_flip"]


THEOREM = "the best score less that of the choice"
TITLES: Mapping[str, str] = {
    "gumbel": "exponential mechanism",
    "exponential": "permute-and-flip",
    "laplace": "report noisy max",
}
LAW_NAMES: Mapping[str, str] = {"gumbel": "Gumbel", "exponential": "Exp", "laplace": "Lap"}


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceOutcome(Outcome[tuple[int, ...]]):
    """The chosen candidates of a private selection.

    Args:
        mechanism: As in `Outcome`.
        answers: Their numbers, from 0, in the order of the choices.
        budget: As in `Outcome`.
        cost: As in `Outcome`.
        noise: As in `Outcome`.
        theorem: As in `Outcome`.
        bound: As in `Outcome`: how far behind the best a chosen score is.
        neighbours: As in `Outcome`.
        n: As in `Outcome`.
        note: As in `Outcome`.
    """

    @property
    def choice(self) -> int:
        """The first choice."""
        return self.answers[0]

    def _shown_answers(self) -> str:
        return ", ".join(str(i) for i in self.answers)


@overload
def exponential_mechanism(
    scores: Sensitive[Integers], data: Fraction, random: WordSource, count: int = 1
) -> tuple[int, ...]: ...


@overload
def exponential_mechanism(
    scores: object,
    data: object = None,
    random: WordSource | None = None,
    count: int = 1,
    *,
    rate: None = None,
    epsilon: Number,
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
) -> ChoiceOutcome: ...


def exponential_mechanism(
    scores: object,
    data: object = None,
    random: WordSource | None = None,
    count: int = 1,
    *,
    rate: Fraction | None = None,
    epsilon: Number | None = None,
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
) -> ChoiceOutcome | tuple[int, ...]:
    """The exponential mechanism: i with probability in proportion to ``exp(eps s_i / (2 Delta))``.

    ``exponential_mechanism(scores, epsilon=1)`` takes exact scores of public candidates; with
    ``data`` the first argument are linear queries, one per candidate, and scores their answers.
    ``count`` candidates are chosen one after the other, each with epsilon/count.

    Privacy: epsilon-DP (McSherry, Talwar 2007; docs/proofs/selection.md, Theorem 2). Its range is
    bounded, which is worth more in mu (Theorem 3); here it is accounted as pure.
    Neighbours: those for which a score moves by at most ``sensitivity``; of queries ``neighbours``.
    Error: the score of the choice is within ``2 Delta ln(k/beta) / eps`` of the best with
    probability 1 - beta.

    Args:
        scores: Exact scores, or (with ``data``) a matrix with a row per candidate, or a workload.
        data: The histogram of the matrix, or the table of the workload; None beside scores.
        random: Words of a demonstration (`SeededWords`); the system's if None.
        count: How many candidates are chosen.
        rate: With scores in a `Sensitive` and a source of words: what a score is multiplied by
            (also as the second argument); the places are returned, and the cost is the caller's to
            account.
        epsilon: The privacy parameter.
        sensitivity: How far neighbours move a score; 1 if None.
        is_monotone: Whether all scores move in one direction together, which halves the noise; None
            lets linear queries decide.
        records: One code of a cell per person, in place of the histogram.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.

    Returns:
        The choice, its cost, its noise and the error bound.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> chosen = sf.study.exponential_mechanism([3, 900, 5], epsilon=1)
    >>> chosen.choice, chosen.noise
    (1, {'scores': Gumbel(2)})
    """
    if isinstance(scores, Sensitive) or rate is not None:
        rate = rate or cast("Fraction", data)
        if not isinstance(scores, Sensitive) or rate is None or random is None:
            raise PlanError("a rate is for scores in a Sensitive, with a source of words")
        return choose_by_exponent(scores, rate, random, count)
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    scored = Scores.of(scores, data, records, sensitivity, is_monotone, neighbours)
    return _chosen("gumbel", scored, epsilon, count, access)


def noisy_max(
    scores: object,
    data: object = None,
    *,
    epsilon: Number,
    noise: ChoiceNoise = "laplace",
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> ChoiceOutcome:
    """Report noisy max: the place of the greatest ``s_i + Lap(2 Delta / eps)``.

    With ``noise="gumbel"`` it is the exponential mechanism, with ``"exponential"``
    permute-and-flip. The scale is ``Delta / eps`` where all scores move in one direction together.

    Privacy: epsilon-DP however many candidates (Dwork, Roth 2014, Claim 3.9;
    docs/proofs/selection.md, Theorems 4 to 6). Only the place is told, never the noisy score.
    Neighbours: those for which a score moves by at most ``sensitivity``; of queries ``neighbours``.
    Error: within ``4 Delta ln(k/beta) / eps`` of the best with probability 1 - beta for Laplace
    noise, half of it for the others.

    Args:
        scores: As in `exponential_mechanism`.
        data: As in `exponential_mechanism`.
        epsilon: As in `exponential_mechanism`.
        noise: ``"laplace"``, ``"gumbel"`` or ``"exponential"``.
        sensitivity: As in `exponential_mechanism`.
        is_monotone: As in `exponential_mechanism`.
        records: As in `exponential_mechanism`.
        neighbours: As in `exponential_mechanism`.
        ledger: As in `exponential_mechanism`.
        name: As in `exponential_mechanism`.
        key: As in `exponential_mechanism`.
        random: As in `exponential_mechanism`.

    Returns:
        The choice, its cost, its noise and the error bound.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> sf.study.noisy_max([3, 900, 5], epsilon=1).choice
    1
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    if noise not in TITLES:
        raise PlanError(f'noise is "laplace", "gumbel" or "exponential", got {noise!r}')
    scored = Scores.of(scores, data, records, sensitivity, is_monotone, neighbours)
    return _chosen(noise, scored, epsilon, 1, access)


def permute_and_flip(
    scores: object,
    data: object = None,
    *,
    epsilon: Number,
    sensitivity: float | Fraction | None = None,
    is_monotone: bool | None = False,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> ChoiceOutcome:
    """Permute-and-flip: candidates in random order, each taken by ``exp(eps (s_i - max) / 2D)``.

    Drawn as the noisy maximum with one-sided exponential noise, which has the same law (Ding et al.
    2021). In expectation never worse than the exponential mechanism, and up to twice as good.

    Privacy: epsilon-DP (McKenna, Sheldon 2020; docs/proofs/selection.md, Theorem 4).
    Neighbours: those for which a score moves by at most ``sensitivity``; of queries ``neighbours``.
    Error: as the exponential mechanism's.

    Args:
        scores: As in `exponential_mechanism`.
        data: As in `exponential_mechanism`.
        epsilon: As in `exponential_mechanism`.
        sensitivity: As in `exponential_mechanism`.
        is_monotone: As in `exponential_mechanism`.
        records: As in `exponential_mechanism`.
        neighbours: As in `exponential_mechanism`.
        ledger: As in `exponential_mechanism`.
        name: As in `exponential_mechanism`.
        key: As in `exponential_mechanism`.
        random: As in `exponential_mechanism`.

    Returns:
        The choice, its cost, its noise and the error bound.

    Raises:
        PlanError: An argument is wrong.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> sf.study.permute_and_flip([3, 900, 5], epsilon=1).choice
    1
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    scored = Scores.of(scores, data, records, sensitivity, is_monotone, neighbours)
    return _chosen("exponential", scored, epsilon, 1, access)


def _chosen(
    noise: ChoiceNoise,
    scored: Scores,
    epsilon: Number | None,
    count: int,
    access: Mapping[str, object],
) -> ChoiceOutcome:
    """A choice for epsilon: the rate is ``epsilon / (2 D)`` per step, or twice it if monotone."""
    budget = budget_of(epsilon, None)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= scored.count:
        raise PlanError(f"choose 1 to {scored.count:,} of the candidates, got count = {count!r}")
    doubled = 1 if scored.is_monotone else 2
    rate = budget.pure_epsilon / count / (doubled * scored.sensitivity)
    cost = Cost.pure(doubled * rate * scored.sensitivity * count)

    def noisy(exact: Sensitive[Sequence[int]], words: WordSource) -> list[int]:
        scores = cast("Sensitive[Integers]", exact)  # lists of whole numbers are as good
        if noise == "gumbel":
            return list(choose_by_exponent(scores, rate, words, count))
        return [report_noisy_max(scores, rate, words, noise)]

    def described() -> dict[str, object]:
        return {
            "workload": None if scored.instance is None else scored.instance.workload.normal.key,
            "candidates": scored.count,
            "noise": noise,
            "rate": str(rate),
            "count": count,
        }

    how = {**access, "neighbours": scored.neighbours}
    answer, note = drawn(
        scored.instance,
        TITLES[noise],
        budget,
        cost,
        described,
        scored.counted,
        noisy,
        **how,  # type: ignore[arg-type]
    )
    assert isinstance(answer, list)  # noqa: S101
    step = scored.step
    scale = step / float(rate)
    spread = 2.0 if noise == "laplace" else 1.0
    rounding = 0.0 if scored.instance is not None or not scored.bits else step

    def bound(beta: float) -> float:
        # One of the count choices may fail with beta / count each.
        each = log(scored.count * count / beta)
        return spread * scale * each + rounding + (2 * step if noise == "laplace" else 0.0)

    return ChoiceOutcome(
        TITLES[noise],
        tuple(int(i) for i in answer),
        budget,
        cost,
        {"scores": NoiseScale(LAW_NAMES[noise], scale, step if noise == "laplace" else 0.0)},
        THEOREM,
        bound,
        scored.neighbours,
        note=note,
    )
