# SPDX-License-Identifier: Apache-2.0
"""Estimates from all that a session measured, and offers of the precision that is still missing.

A session knows of a question unbiased numbers with independent noise: the estimate of its
scope, and whatever it paid for before. Weighted by one over their variances they are the best
linear combination, and precisions (one over the variance) add up. For an error e the precision that
is missing is ``1/e^2`` less the sum of those; `Offer` is the one measurement of the question that
has it. Gaussian noise costs ``mu^2 = moved^2 x precision``, so buying twice costs what buying at
once does; a pure epsilon grows like the root, so there it is dearer. docs/proofs/online.md,
Theorems 8 and 9.

`Knowledge` is all that was measured. *Sources* measured many values together and answer every
question in their span, with the law of the noise that these have in common: the scope, and releases
in the same ledger. *Draws* are unbiased numbers about one question each, with noise of their own:
what was bought, and cells that were measured apart from each other.

For a question q, take the draws' questions ``q_1 ... q_k`` and q itself. Their true answers have
the linear relations that the queries have, which their Gram matrix G shows: they are
``U alpha``, U the eigenvectors of G that are not null. Sources and draws observe ``X alpha`` with
covariance W, so

    q = <u, alpha>,   c = the weights with X'c = u and the least c'Wc:   c'y is the answer

(C. R. Rao 1973, "Linear statistical inference", 4i: with ``W + X X'`` in place of W where that is
singular). Weights are functions of queries and variances alone, never of a noisy value. What holds
of such intervals: docs/proofs/online.md, Theorem 10.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import floor, inf, isfinite, log10, pi, prod, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import LedgerError, PlanError
from sfumato.measurement import Measured
from sfumato.planning.forecast import CombinationError, Forecast
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import SMOOTH, NoiseTails
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, noise_cost
from sfumato.run.linear import Plan
from sfumato.session.group_questions import Learnt, laws_of, learnt_of, learnt_row
from sfumato.session.scope import (
    Enclosure,
    Joint,
    KnownNumber,
    ScopeMeasured,
    enclosure_of,
    is_sharper,
    nowhere_joint,
)
from sfumato.session.session_limits import LIMITS
from sfumato.session.session_plan import UNIT, budget_of
from sfumato.text import shown
from sfumato.types import Array, Integers
from sfumato.vault.mechanisms.sparse import answer_shift
from sfumato.workload.question import Question

__all__ = [
    "BoughtNumber",
    "GroupOffer",
    "Knowledge",
    "Offer",
    "Purchase",
    "amount_of",
    "blue_weights",
    "check_error",
    "combined",
    "gram",
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
    return KnownNumber(value, CombinationError(sqrt(variance), shape), level)


def combined(numbers: Sequence[KnownNumber]) -> KnownNumber:
    """The best linear unbiased combination of independent numbers about the same question.

    Its law: normal where all are; else like the sum of Laplace draws of the same kurtosis, as in
    releases. The same numbers in another order give the same bits.

    Args:
        numbers: At least one.

    Returns:
        The combination; one number, or one without noise, as it is.

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
    return KnownNumber(value, law, ordered[0].level)


def summed_joint(parts: Sequence[tuple[float, Joint]], share: float = 1.0) -> Joint:
    """How far a sum of numbers, each so many times, is off at most with a share of the chance."""
    counted = [(times, joint) for times, joint in parts if times]
    return lambda miss: sum(times * joint(share * miss) for times, joint in counted)


def mean_joint(numbers: Sequence[KnownNumber], share: float = 1.0) -> Joint:
    """How far the mean of numbers is off at most, each weighed by its precision."""
    precisions = [one.standard_error**-2 for one in numbers]
    total = sum(precisions)
    parts = [(p / total, n.joint) for p, n in zip(precisions, numbers, strict=True)]
    return summed_joint(parts, share)


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
        return KnownNumber(self.value, self.law, level)

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


def gram(first: Question, second: Question) -> float:
    """The inner product of two queries over all cells of the domain, each of equal weight.

    >>> import sfumato as sf
    >>> from sfumato.workload.question import questions_of
    >>> domain = sf.Domain({"age": 10, "sex": 2})
    >>> young, = questions_of(sf.sql(domain, "SELECT COUNT(*) FROM t WHERE age < 3"))
    >>> men, = questions_of(sf.sql(domain, "SELECT COUNT(*) FROM t WHERE sex = 1"))
    >>> round(gram(young, young), 9), round(gram(young, men), 9)
    (0.3, 0.15)
    """
    common = [n for n in first.attributes if n in second.attributes]
    one, two = (_means(question, common) for question in (first, second))
    return float(np.mean(one * two))


def _means(question: Question, names: Sequence[str]) -> Array:
    """The mean coefficient for each cell of some of a query's attributes."""
    rest = tuple(i for i, n in enumerate(question.attributes) if n not in names)
    table = question.coefficients() * 2.0**-question.bits
    return np.asarray(table.mean(axis=rest) if rest else table, dtype=np.float64)


def blue_weights(design: Array, noise: Array, target: Array) -> Array | None:
    """The weights c with ``X'c = u`` and the least ``c'Wc``; None if there are none.

    Args:
        design: X, a row for each observation.
        noise: W, their covariance matrix; it may be singular.
        target: u.

    Returns:
        A weight for each observation.

    >>> c = blue_weights(np.ones((2, 1)), np.diag([1.0, 3.0]), np.ones(1))
    >>> c.round(9).tolist()
    [0.75, 0.25]
    """
    errors = np.sqrt(np.diagonal(noise))
    errors = np.maximum(errors, LIMITS.relation_rounding * errors.max(initial=1e-300))
    rows = design / errors[:, None]
    scale = 1 / max(float(np.sqrt((rows**2).sum(axis=1)).max(initial=0.0)), 1e-300)
    rows *= scale  # observations in their errors, and of length 1 at most
    cut = LIMITS.null_share
    solved = np.linalg.pinv(noise / np.outer(errors, errors) + rows @ rows.T, cut, hermitian=True)
    pulled = solved @ rows
    least = np.linalg.pinv(rows.T @ pulled, cut, hermitian=True) @ (target * scale)
    weights = (pulled @ least) / errors
    far = float(np.abs(design.T @ weights - target).max(initial=0.0))
    reach = float(np.abs(target).max(initial=0.0))
    return (
        np.asarray(weights, dtype=np.float64) if far <= LIMITS.relation_rounding * reach else None
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The draws about one question: their mean, and how far all of them are off at most."""

    question: Question
    number: KnownNumber
    joint: Joint


@dataclass(frozen=True, eq=False)
class _Basis:
    """The draws that questions are combined from, and the relations between them."""

    draws: tuple[_Drawn, ...]
    gram: Array
    inverse: Array

    @classmethod
    def of(cls, draws: Sequence[_Drawn]) -> _Basis:
        size = len(draws)
        own = np.zeros((size, size))
        for i, one in enumerate(draws):
            for j in range(i + 1):
                own[i, j] = own[j, i] = gram(one.question, draws[j].question)
        inverse = np.linalg.pinv(own, LIMITS.null_share, hermitian=True) if size else own
        return cls(tuple(draws), own, np.asarray(inverse, dtype=np.float64))

    def products(self, question: Question) -> Array:
        """The inner products of a query with those of the draws."""
        return np.array([gram(question, one.question) for one in self.draws])

    def spans(self, products: Array, square: float) -> bool:
        """Whether a query is a linear combination of those of the draws."""
        left = square - float(products @ self.inverse @ products)
        return left <= LIMITS.relation_square * square


class Knowledge:
    """What a session knows: sources, and draws of single questions.

    Args:
        level: The probability with which safe intervals hold together.
    """

    def __init__(self, level: float) -> None:
        self.level = level
        self.sources: tuple[ScopeMeasured, ...] = ()
        self._ranks = 0  # sources so far
        self._tested: dict[str, KnownNumber] = {}
        self._own: dict[str, list[KnownNumber]] = {}
        self._draws: dict[str, list[KnownNumber]] = {}
        self._questions: dict[str, Question] = {}
        self._count = 0  # draws so far, in the order of the ledger
        self._bases: dict[tuple[str, ...], _Basis] = {}
        self._pulls: dict[tuple[int, str], tuple[KnownNumber, Mapping[int, Array]] | None] = {}
        self._numbers: OrderedDict[str, KnownNumber | None] = OrderedDict()
        self._enclosures: dict[str, Enclosure | None] = {}
        self._parts: dict[tuple[object, ...], KnownNumber | None] = {}
        self._about: dict[tuple[str, ...], bool] = {}

    def add_source(self, forecast: Forecast, measured: Measured) -> ScopeMeasured:
        """Take a measurement of many values, the scope or a release; the same one counts once.

        Of more than can be gone through for every question the first and the latest ones are.
        """
        for one in self.sources:
            if _is_same(one.measured, measured):
                return one
        self._ranks += 1
        source = ScopeMeasured(forecast, measured, self.level, self._ranks)
        self.sources = (*self.sources[:1], *(*self.sources[1:], source)[1 - LIMITS.sources :])
        self._changed()
        return source

    def add_tested(self, key: str, number: KnownNumber) -> None:
        """The answer that an epoch paid for: it exists since a test found the estimate wrong."""
        self._tested[key] = number
        self._changed(key)

    def tested(self, question: Question) -> KnownNumber | None:
        """The answer that an epoch paid for; None where none did."""
        return self._tested.get(question.key)

    def add(self, question: Question, number: KnownNumber, *, apart: float) -> None:
        """A measurement of one question.

        With its variance times ``apart`` it counts as independent of all others; with 0 it never
        does.
        """
        self._count += 1
        # A bound on all draws at once, however questions were chosen: sum of 6/(pi i)^2 is 1.
        share = 6 / (pi * self._count) ** 2
        if not isfinite(number.law.shape):  # normal: else tails this far out are not exact
            number = replace(number, joint=lambda miss: law.half_width(1 - share * miss))
        law = number.law
        self._own.setdefault(question.key, []).append(number)
        if apart and question.cells <= LIMITS.combined_cells:
            wider = replace(law, standard_error=number.standard_error * sqrt(apart))
            self._draws.setdefault(question.key, []).append(replace(number, law=wider))
            self._questions[question.key] = question
            self._changed()
        else:
            self._changed(question.key)

    def _changed(self, key: str | None = None) -> None:
        if key is not None and not self._draws:  # nothing is combined with it
            self._numbers.pop(key, None)
            return
        self._bases.clear()
        self._pulls.clear()
        self._numbers.clear()
        self._enclosures.clear()
        self._parts.clear()
        self._about.clear()

    @property
    def measurements(self) -> int:
        """How many there are: with one more, answers of other questions may be more precise."""
        return self._count + self._ranks

    @property
    def has_draws(self) -> bool:
        """Whether single questions were measured that others may be combined from."""
        return bool(self._draws)

    def holds(self, question: Question) -> bool:
        """Whether a source tells the question."""
        return any(source.holds(question) for source in self.sources)

    def number(self, question: Question) -> KnownNumber | None:
        """The best linear unbiased estimate of a question; None where nothing tells it."""
        key = question.key
        if key not in self._numbers:
            if len(self._numbers) >= LIMITS.scope_answers_in_memory:
                self._numbers.popitem(last=False)
            self._numbers[key] = self._number(question)
        return self._numbers[key]

    def enclosure(self, question: Question) -> Enclosure | None:
        """Known numbers between which the answer to a question lies; None where there are none."""
        if not self.sources:
            return None
        key = question.key
        if key not in self._enclosures:
            if len(self._enclosures) >= LIMITS.pulls_in_memory:
                self._enclosures.clear()
            classes = dict(zip(question.attributes, question.class_of, strict=True))
            over = partial(self._over, question, {n: c.tobytes() for n, c in classes.items()})
            self._enclosures[key] = enclosure_of(question, over, self._is_about)
        return self._enclosures[key]

    def _over(
        self,
        question: Question,
        classes: Mapping[str, bytes],
        names: tuple[str, ...],
        table: Integers,
    ) -> KnownNumber | None:
        """What a source knows of coefficients over the classes of some attributes of a question.

        A range of an attribute comes in many questions: it is looked up by its coefficients.
        """
        if not self._is_about(names):
            return None
        key = (names, *[classes[n] for n in names], table.tobytes(), question.bits)
        if key not in self._parts:
            if len(self._parts) >= LIMITS.scope_answers_in_memory:
                self._parts.clear()
            self._parts[key] = self.number(question.over(names, table))
        return self._parts[key]

    def _is_about(self, names: tuple[str, ...]) -> bool:
        """Whether a source measured some attributes together."""
        if names not in self._about:
            if len(self._about) >= LIMITS.scope_answers_in_memory:
                self._about.clear()
            self._about[names] = any(source.is_about(names) for source in self.sources)
        return self._about[names]

    def _number(self, question: Question) -> KnownNumber | None:
        key = question.key
        own = self._own.get(key, [])
        numbers = [source.number(question) for source in self.sources]
        direct = [one for one in numbers if one is not None]
        best = self._direct(direct, own) if direct or own else None
        blue = self._combined(question) if self._draws else None
        if blue is not None and (best is None or is_sharper(blue, best)):
            best = blue
        if key in self._tested:
            # Whether there is such an answer was decided by the noise of others, so it is not
            # combined with them: by itself, with what was measured of the same question.
            alone = combined([self._tested[key], *own])
            if best is None or is_sharper(alone, best):
                best = alone
        return best

    def _direct(self, numbers: Sequence[KnownNumber], own: Sequence[KnownNumber]) -> KnownNumber:
        """What is known of the question itself, each by its noise."""
        best = combined([*numbers, *own])
        if best.standard_error == 0 or not (own or len(numbers) > 1):
            return best
        # Draws and sources each have half of the chance to miss.
        return replace(best, joint=mean_joint([*numbers, *own], 0.5 if own else 1.0))

    # Combinations with what was measured of other questions

    def _combined(self, question: Question) -> KnownNumber | None:
        if question.cells > LIMITS.combined_cells:
            return None
        basis = self._basis(question)
        products, square = basis.products(question), gram(question, question)
        is_told = self.holds(question)
        if square == 0 or not basis.draws or not (is_told or basis.spans(products, square)):
            return None
        size = len(basis.draws)
        whole = np.zeros((size + 1, size + 1))
        whole[:size, :size], whole[size, size] = basis.gram, square
        whole[:size, size] = whole[size, :size] = products
        lengths = np.sqrt(np.diagonal(whole).clip(1e-300))
        values, vectors = np.linalg.eigh(whole / np.outer(lengths, lengths))
        relations = vectors[:, values > LIMITS.null_share * values[-1]] * lengths[:, None]
        return self._estimate(basis, question, relations)

    def _estimate(self, basis: _Basis, question: Question, relations: Array) -> KnownNumber | None:
        """The best combination of what sources and draws say, and its law."""
        draws, size = basis.draws, len(basis.draws)
        parts = [np.eye(size + 1)[:size]]
        noise = [np.diag([one.number.standard_error**2 for one in draws])]
        said = [one.number.value for one in draws]
        own: list[tuple[int, list[tuple[KnownNumber, Mapping[int, Array]]]]] = []
        for s in range(len(self.sources)):
            ways = [self._pull(s, one) for one in (*(d.question for d in draws), question)]
            places = [i for i, way in enumerate(ways) if way is not None]
            pulls = [way for way in ways if way is not None]
            own.append((s, pulls))
            parts.append(np.eye(size + 1)[places])
            noise.append(self.sources[s].covariance([pull for _, pull in pulls]))
            said += [number.value for number, _ in pulls]
        design = np.concatenate(parts) @ relations
        weights = blue_weights(design, _diagonal(noise), relations[size])
        if weights is None or not self._gives_back(
            basis, question, weights @ np.concatenate(parts)
        ):
            return None
        return self._law(weights, np.array(said), draws, own)

    @staticmethod
    def _gives_back(basis: _Basis, question: Question, weights: Array) -> bool:
        """Whether a combination of queries is a query, on every cell of their attributes."""
        queries = [*(one.question for one in basis.draws), question]
        taken = [(c, q) for c, q in zip(weights.tolist(), queries, strict=True) if c]
        names = question.domain.in_order({n for _, q in taken for n in q.attributes})
        left = np.zeros([question.domain[n].size for n in names])
        for c, one in [*taken, (-1.0, question)]:
            wide = tuple(slice(None) if n in one.attributes else None for n in names)
            left += c * 2.0**-one.bits * one.coefficients()[wide]
        most = max(abs(question.low), abs(question.high)) * 2.0**-question.bits
        return float(np.abs(left).max(initial=0.0)) <= LIMITS.coefficient_rounding * most

    def _law(
        self,
        weights: Array,
        said: Array,
        draws: Sequence[_Drawn],
        own: Sequence[tuple[int, list[tuple[KnownNumber, Mapping[int, Array]]]]],
    ) -> KnownNumber:
        second = fourth = 0.0
        parts: list[tuple[float, Joint]] = []
        tails: list[NoiseTails] = []
        for c, one in zip(weights.tolist(), draws, strict=False):
            part = (c * one.number.standard_error) ** 2
            second, fourth = second + part, fourth + part**2 / one.number.law.shape
            parts.append((abs(c), one.joint))
            tails.append(one.number.law.tails)
        at = len(draws)
        for s, pulls in own:
            mine, at = weights[at : at + len(pulls)], at + len(pulls)
            squares, quarters = self.sources[s].moments(mine, [pull for _, pull in pulls])
            second, fourth = second + squares, fourth + quarters
            weighted = zip(mine.tolist(), pulls, strict=True)
            parts += [(abs(c), number.joint) for c, (number, _) in weighted if c]
            tails += [number.law.tails for number, _ in pulls]
        error = sqrt(second)
        coarse = [scale for one in tails for scale in one.scales]
        law = CombinationError(
            error,
            inf if fourth == 0 else second**2 / fourth,
            0.0,
            NoiseTails((min(coarse),), is_mixed=True) if coarse else SMOOTH,
        )
        # Draws and sources each have half of the chance to miss; proved for normal noise alone.
        is_safe = fourth == 0 and error > 0
        joint = summed_joint(parts, 0.5) if is_safe else nowhere_joint
        return KnownNumber(float(weights @ said), law, self.level, joint)

    def _pull(
        self, source: int, question: Question
    ) -> tuple[KnownNumber, Mapping[int, Array]] | None:
        """What a source says of a question, and how it is made from measured values."""
        key = source, question.key
        if key not in self._pulls:
            if len(self._pulls) >= LIMITS.pulls_in_memory:
                self._pulls.clear()
            self._pulls[key] = self.sources[source].way(question)
        return self._pulls[key]

    def _basis(self, question: Question) -> _Basis:
        """The latest draws, as far as all cells of their attributes and the question's are few.

        A query that differs from a combination in one of so few cells is seen to.
        """
        if question.attributes not in self._bases:
            if len(self._bases) >= LIMITS.bases_in_memory:
                self._bases.clear()
            names, chosen = set(question.attributes), []
            for key in reversed(self._questions):
                more = names | set(self._questions[key].attributes)
                if prod(question.domain[n].size for n in more) <= LIMITS.joint_cells:
                    names = more
                    chosen.append(self._drawn(key))
                if len(chosen) == LIMITS.combined_draws:
                    break
            self._bases[question.attributes] = _Basis.of(chosen)
        return self._bases[question.attributes]

    def _drawn(self, key: str) -> _Drawn:
        draws = self._draws[key]
        return _Drawn(self._questions[key], combined(draws), mean_joint(draws))


def _is_same(one: Measured, other: Measured) -> bool:
    """Whether two measurements are one and the same."""
    return len(one.measurements) == len(other.measurements) and all(
        np.array_equal(a.units, b.units)
        for a, b in zip(one.measurements, other.measurements, strict=True)
    )


def _diagonal(parts: Sequence[Array]) -> Array:
    """The block diagonal matrix of square matrices."""
    size = sum(len(part) for part in parts)
    out, at = np.zeros((size, size)), 0
    for part in parts:
        out[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return out
