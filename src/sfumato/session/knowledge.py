# SPDX-License-Identifier: Apache-2.0
"""All that was measured, as the best linear unbiased estimate of each question.

Two kinds of measurements are known to a session. *Sources* measured many values together and tell
every question in their span, with the law of what these have in common: its scope, and releases in
the same ledger. *Draws* are unbiased numbers about one question each, with noise of their own:
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

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, pi, prod, sqrt

import numpy as np

from sfumato.planning.forecast import CombinationError
from sfumato.privacy.noise_laws import SMOOTH, NoiseTails
from sfumato.session.purchases import combined
from sfumato.session.scope import KnownNumber, ScopeMeasured, is_sharper
from sfumato.session.session_limits import LIMITS
from sfumato.types import Array
from sfumato.workload.question import Question

__all__ = [
    "Knowledge",
    "blue_weights",
    "gram",
]


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
    safe: float


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
        self._tested: dict[str, KnownNumber] = {}
        self._own: dict[str, list[KnownNumber]] = {}
        self._draws: dict[str, list[tuple[KnownNumber, float]]] = {}
        self._questions: dict[str, Question] = {}
        self._count = 0  # draws so far, in the order of the ledger
        self._bases: dict[tuple[str, ...], _Basis] = {}
        self._pulls: dict[tuple[int, str], tuple[KnownNumber, Mapping[int, Array]] | None] = {}
        self._numbers: OrderedDict[str, KnownNumber | None] = OrderedDict()

    def add_source(self, source: ScopeMeasured) -> None:
        """A measurement of many values: the scope, or a release."""
        self.sources = (*self.sources, source)
        for one in self.sources:
            one.among(len(self.sources))
        self._changed()

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
        self._own.setdefault(question.key, []).append(number)
        if apart and question.cells <= LIMITS.combined_cells:
            # A bound on all draws at once, however questions were chosen: sum of 6/(pi i)^2 is 1.
            miss = (1 - self.level) / 2 * 6 / (pi * self._count) ** 2
            safe = number.half_width(1 - miss)
            law = replace(number.law, standard_error=number.standard_error * sqrt(apart))
            self._draws.setdefault(question.key, []).append((replace(number, law=law), safe))
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

    @property
    def measurements(self) -> int:
        """How many there are: with one more, answers of other questions may be more precise."""
        return self._count + len(self.sources)

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
        if own or len(numbers) < 2 or best.standard_error == 0:
            return best
        total = sum(one.standard_error**-2 for one in numbers)
        half = sum(one.standard_error**-2 / total * one.joint_half_width for one in numbers)
        return replace(best, joint=half / best.standard_error)

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
        second = fourth = half = 0.0
        tails: list[NoiseTails] = []
        for c, one in zip(weights.tolist(), draws, strict=False):
            part = (c * one.number.standard_error) ** 2
            second, fourth = second + part, fourth + part**2 / one.number.law.shape
            half += abs(c) * one.safe
            tails.append(one.number.law.tails)
        at = len(draws)
        for s, pulls in own:
            mine, at = weights[at : at + len(pulls)], at + len(pulls)
            squares, quarters = self.sources[s].moments(mine, [pull for _, pull in pulls])
            second, fourth = second + squares, fourth + quarters
            half += sum(
                abs(float(c)) * number.joint_stricter * number.standard_error
                for c, (number, _) in zip(mine, pulls, strict=True)
                if c
            )
            tails += [number.law.tails for number, _ in pulls]
        error = sqrt(second)
        coarse = [scale for one in tails for scale in one.scales]
        law = CombinationError(
            error,
            inf if fourth == 0 else second**2 / fourth,
            0.0,
            NoiseTails((min(coarse),), is_mixed=True) if coarse else SMOOTH,
        )
        is_safe = fourth == 0 and isfinite(half) and error > 0
        joint = half / error if is_safe else inf
        return KnownNumber(float(weights @ said), law, joint, self.level)

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
        number = combined([one for one, _ in draws])
        precisions = [one.standard_error**-2 for one, _ in draws]
        safe = sum(p * half for p, (_, half) in zip(precisions, draws, strict=True))
        return _Drawn(self._questions[key], number, safe / sum(precisions))


def _diagonal(parts: Sequence[Array]) -> Array:
    """The block diagonal matrix of square matrices."""
    size = sum(len(part) for part in parts)
    out, at = np.zeros((size, size)), 0
    for part in parts:
        out[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return out
