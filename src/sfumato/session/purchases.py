# SPDX-License-Identifier: Apache-2.0
"""Accuracy that is paid for: what is known of a number first, then the precision that is missing.

What a session knows of a question are unbiased numbers with independent noise: the estimate of its
scope, and whatever it paid for before. Weighted by one over their variances they are the best
linear combination, and precisions (one over the variance) add up. For an error e the precision that
is missing is ``1/e^2`` less the sum of those; `Offer` is the one measurement of the question that
has it. Gaussian noise costs ``mu^2 = moved^2 x precision``, so buying twice costs what buying at
once does; a pure epsilon grows like the root, so there it is dearer. docs/proofs/online.md,
Theorems 8 and 9.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf, isfinite, log10, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import LedgerError, PlanError
from sfumato.planning.forecast import CombinationError
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import SMOOTH, NoiseTails
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, noise_cost
from sfumato.run.linear import Plan
from sfumato.session.group_questions import Learnt, laws_of, learnt_of, learnt_row
from sfumato.session.scope import KnownNumber
from sfumato.session.session_limits import LIMITS
from sfumato.session.session_plan import UNIT, budget_of
from sfumato.text import shown
from sfumato.vault.mechanisms.questions import answer_shift
from sfumato.workload.question import Question

__all__ = [
    "BoughtNumber",
    "GroupOffer",
    "Offer",
    "Purchase",
    "amount_of",
    "check_error",
    "combined",
    "group_offer",
    "least_error",
    "least_noise",
    "missing_variance",
    "offer",
    "single_draw",
]


def check_error(error: object) -> float:
    """An error that may be asked for: a finite number above 0.

    Raises:
        PlanError: It is none.
    """
    is_number = isinstance(error, int | float | Fraction) and not isinstance(error, bool)
    if not is_number or not isfinite(error) or not error > 0:  # type: ignore[arg-type,operator]
        raise PlanError(
            "error must be a number above 0: the standard error that the answer may have, in what "
            f"is counted or summed; got {shown(error)}"
        )
    return float(error)  # type: ignore[arg-type]


def single_draw(value: float, variance: float, kind: NoiseKind, level: float) -> KnownNumber:
    """A number with noise of one draw."""
    shape = inf if kind == "gaussian" else 1.0
    return KnownNumber(value, CombinationError(sqrt(variance), shape), inf, level)


def combined(numbers: Sequence[KnownNumber]) -> KnownNumber:
    """The best linear unbiased combination of independent numbers about the same question.

    Its law: normal where all are; else like the sum of Laplace draws of the same kurtosis, as in
    releases. The same numbers in another order give the same bits.

    Args:
        numbers: At least one.

    Returns:
        The combination; one number, or one without noise, as it is.

    >>> from math import inf
    >>> one = single_draw(10.0, 4.0, "gaussian", 0.95)
    >>> two = single_draw(20.0, 12.0, "gaussian", 0.95)
    >>> both = combined([one, two])
    >>> both.value, round(both.standard_error**2, 9)
    (12.5, 3.0)
    """
    ordered = sorted(numbers, key=lambda n: (n.standard_error, n.value))
    if len(ordered) == 1 or ordered[0].standard_error == 0:
        return ordered[0]
    weights = [n.standard_error**-2 for n in ordered]
    total = sum(weights)
    value = sum(w * n.value for w, n in zip(weights, ordered, strict=True)) / total
    # Variances of draws in parts of the whole: w^2 v = w; those of a sum go by its shape.
    fourth = sum((w / total) ** 2 / n.law.shape for w, n in zip(weights, ordered, strict=True))
    coarse = [scale for n in ordered for scale in n.law.tails.scales]
    law = CombinationError(
        sqrt(1 / total),
        inf if fourth == 0 else 1 / fourth,
        sum(w * n.law.bias for w, n in zip(weights, ordered, strict=True)) / total,
        NoiseTails((min(coarse),), is_mixed=True) if coarse else SMOOTH,
    )
    return KnownNumber(value, law, inf, ordered[0].level)


def missing_variance(number: KnownNumber | None, error: float) -> float | None:
    """The variance of the one measurement that is missing for an error; None if none is.

    >>> missing_variance(single_draw(0.0, 4.0, "gaussian", 0.95), 1.0)
    1.3333333333333333
    """
    if number is None:
        return error**2
    if number.standard_error <= error * (1 + LIMITS.error_rounding):
        return None
    return 1 / (error**-2 - number.standard_error**-2)


@dataclass(frozen=True, slots=True)
class Offer:
    """One measurement of a question: its noise, what it costs, and what it leads to.

    Attributes:
        law: The noise, in steps of what one person moves an answer by.
        cost: What is debited.
        amount: The cost in the currency of the session: mu^2, or epsilon.
        variance: That of the noise, in what is counted or summed.
        half: Half of the interval of this measurement by itself, at the level of the session.
        standard_error: Of the answer, together with what is known.
    """

    law: NoiseLaw
    cost: Cost
    amount: Fraction
    variance: float
    half: float
    standard_error: float


def least_noise(variance: float, moved: int, bits: int, kind: NoiseKind) -> NoiseLaw:
    """The most noise whose variance, on the grid of answers, is at most this.

    Args:
        variance: In what is counted or summed.
        moved: How far one person moves the answer, in its steps.
        bits: The steps of the answer are 2^-bits.
        kind: "gaussian" or "laplace".

    Returns:
        The law, for an answer that one person moves by one.

    Raises:
        PlanError: That is finer than the grid.
    """
    shift = answer_shift(moved)
    squared = variance * 4.0 ** (bits + shift)  # in steps in which noise is drawn
    # A rounded Gaussian has 1/12 of a step more; a discrete Laplace law less than 2 b^2.
    squared = squared - 1 / 12 if kind == "gaussian" else squared / 2
    stretch = Fraction(moved * 2**shift, UNIT)
    steps = sqrt(max(squared, 0.0)) * (1 - LIMITS.error_rounding)
    scale = Fraction(floor(Fraction(min(steps, LIMITS.bought_scale)) / stretch * UNIT), UNIT)
    if squared < 1 or scale <= 0:
        raise PlanError(
            "the error is finer than the grid on which answers are measured, 1/256 of what one "
            "person can change; ask for a larger one"
        )
    return NoiseLaw(kind, scale)


def amount_of(cost: Cost, kind: NoiseKind) -> Fraction:
    """A cost in the currency of a session: mu^2 of Gaussian noise, or a pure epsilon."""
    return cost.mu_squared if kind == "gaussian" else cost.pure_epsilon


def offer(number: KnownNumber | None, law: NoiseLaw, variance: float, half: float) -> Offer:
    """What a measurement with this noise costs, and the error that it leads to."""
    whole = noise_cost(law, UNIT)
    # Steps differ from question to question, so the cost says epsilon only.
    cost = whole if law.kind == "gaussian" else Cost.pure(whole.pure_epsilon)
    precision = 1 / variance + (0.0 if number is None else number.standard_error**-2)
    return Offer(law, cost, amount_of(cost, law.kind), variance, half, sqrt(1 / precision))


def least_error(
    numbers: Sequence[KnownNumber | None],
    amount: Fraction,
    variances: Sequence[float],
    kind: NoiseKind,
) -> float | None:
    """The least error that an amount buys, to three digits and rounded up; None if it buys none.

    Args:
        numbers: What is known of each of the numbers that are measured together.
        amount: What is left: a mu^2, or an epsilon.
        variances: Of each of them, if an amount of 1 is spent.
        kind: The kind of noise.

    Returns:
        A standard error, the largest of all.
    """
    spent = float(amount) * (1 - LIMITS.error_margin)
    before = [0.0 if one is None else one.standard_error**-2 for one in numbers]
    if spent <= 0:
        return min(before) ** -0.5 if min(before) > 0 else None
    bought = spent if kind == "gaussian" else spent**2
    precisions = [bought / v + k for v, k in zip(variances, before, strict=True)]
    error = min(precisions) ** -0.5 * (1 + LIMITS.error_margin)
    digits = 10.0 ** (floor(log10(error)) - 2)
    return float(f"{(floor(error / digits) + 1) * digits:.3g}")


@dataclass(frozen=True, eq=False)
class BoughtNumber:
    """One noisy answer that was bought.

    Attributes:
        question: What was measured.
        value: With noise, before it is cut to what is possible.
        law: That of the noise.
        half: Half of its interval by itself, at the level of the session.
    """

    question: Question
    value: float
    law: CombinationError
    half: float

    def number(self, level: float) -> KnownNumber:
        """As an unbiased number."""
        return KnownNumber(self.value, self.law, inf, level)

    @property
    def learnt(self) -> Learnt:
        """What the estimate learns from it."""
        return self.question, self.value, self.law.standard_error**2


@dataclass(frozen=True, eq=False)
class Purchase:
    """What the ledger keeps of a measurement that was bought: of one question, or of its groups.

    Attributes:
        numbers: What was measured.
        epochs: How many paid answers the estimate had learnt before.
        is_learnt: Whether the estimate learns from it; numbers of too many groups it does not.
        apart: How much larger variances are if the numbers count as independent; 0 if not so.
    """

    numbers: tuple[BoughtNumber, ...]
    epochs: int
    is_learnt: bool = True
    apart: float = 1.0

    @property
    def learnt(self) -> tuple[Learnt, ...]:
        """What the estimate learns from it."""
        return tuple(one.learnt for one in self.numbers) if self.is_learnt else ()

    def to_bytes(self) -> bytes:
        """What is stored together with the end of the debit: nobody's words."""
        tails = self.numbers[0].law.tails
        document = {
            "bought": [learnt_row(*one.learnt) for one in self.numbers],
            "shapes": [one.law.shape if isfinite(one.law.shape) else None for one in self.numbers],
            "halves": [one.half for one in self.numbers],
            "tails": tails.as_json(),
            "epochs": self.epochs,
            "is_learnt": self.is_learnt,
            "apart": self.apart,
        }
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, domain: Domain) -> Purchase:
        """Read what `to_bytes` wrote."""
        try:
            document = json.loads(stored)
            tails = NoiseTails.from_json(document["tails"])
            columns = [document[name] for name in ("bought", "shapes", "halves")]
            numbers = tuple(
                _number_of(row, shape, half, tails, domain)
                for row, shape, half in zip(*columns, strict=True)
            )
            if numbers:
                apart = float(document.get("apart", len(numbers) == 1))
                return cls(numbers, int(document["epochs"]), bool(document["is_learnt"]), apart)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        raise LedgerError(
            "a bought answer of the session cannot be read; restore the newest backup"
        )


def _number_of(
    row: dict[str, object], shape: float | None, half: float, tails: NoiseTails, domain: Domain
) -> BoughtNumber:
    question, value, variance = learnt_of(row, domain)
    if not variance > 0:
        raise ValueError("noise has a variance")
    law = CombinationError(sqrt(variance), inf if shape is None else float(shape), 0.0, tails)
    return BoughtNumber(question, value, law, float(half))


@dataclass(frozen=True, eq=False)
class GroupOffer:
    """One measurement of all cells of a question of many answers, and what it leads to.

    Attributes:
        plan: What measures them.
        amount: Its cost in the currency of the session: mu^2, or epsilon.
        standard_error: The largest of all cells, together with what is known.
    """

    plan: Plan
    amount: Fraction
    standard_error: float

    @property
    def cost(self) -> Cost:
        """What is debited."""
        return self.plan.cost

    def bought(
        self, values: Sequence[float], cells: Sequence[Question], level: float
    ) -> tuple[BoughtNumber, ...]:
        """The noisy answers, each cell once."""
        each: dict[str, BoughtNumber] = {}
        for cell, value, law in zip(cells, values, laws_of(self.plan), strict=True):
            one = BoughtNumber(cell, float(value), law, law.half_width(level))
            each.setdefault(cell.key, one)
        return tuple(each.values())


def group_offer(
    planned: Callable[[Budget], Plan],
    numbers: Sequence[KnownNumber | None],
    error: float,
    first: Fraction,
    kind: NoiseKind,
) -> GroupOffer | None:
    """The measurement of all cells that has what each of them lacks; None if none lacks anything.

    All cells of a plan have variances in one proportion, which falls with the budget: as 1/mu^2, or
    as 1/epsilon^2. So the cell that lacks most says how much is bought.

    Args:
        planned: The plan of the cells at a budget.
        numbers: What is known of each cell.
        error: The standard error that each may have.
        first: An amount to begin with.
        kind: The kind of noise.

    Returns:
        The offer.

    Raises:
        PlanError: No budget reaches the error, on the grid of the noise.
    """
    missing = [missing_variance(number, error) for number in numbers]
    needed = np.array([inf if one is None else one for one in missing])
    if not np.isfinite(needed).any():
        return None
    amount = first
    for _ in range(LIMITS.group_offers):
        plan = planned(budget_of(amount, "gaussian" if kind == "gaussian" else "laplace"))
        variances = np.concatenate([plan.variances(t) for t in range(len(plan.workload.terms))])
        ratio = float((variances / needed).max())
        if ratio <= 1 and amount != first:
            before = [0.0 if one is None else one.standard_error**-2 for one in numbers]
            precisions = 1 / variances + np.array(before)
            return GroupOffer(plan, amount_of(plan.cost, kind), float(precisions.min()) ** -0.5)
        grown = ratio if kind == "gaussian" else sqrt(ratio)
        amount = (amount * Fraction(grown * (1 + LIMITS.error_margin))).limit_denominator(2**40)
        if amount <= 0:
            break
    raise PlanError(
        f"no measurement of all groups reaches an error of {error:g} on the grid of its noise; ask "
        "for another error"
    )
