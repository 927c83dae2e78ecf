# SPDX-License-Identifier: Apache-2.0
"""The public estimate of a session: a histogram that learns from every answer that was paid for.

    h(x) = n start(x) exp(sum_q u_q q(x)) / Z

A step of Hedge for one question (``learning="hedge"``: M. Hardt, G. Rothblum 2010, "A
multiplicative weights mechanism for privacy-preserving data analysis") moves one ``u_q`` by the
rate, up or down. By default (``"fit"``) all paid answers y are used again, each by its noise: the u
that minimise

    evenness n KL(h / n || start) + sum_q (q(h) - y_q)^2 / (2 variance_q)

satisfy ``evenness variance_q u_q = y_q - q(h)``, one equation per question, solved one after the
other until nothing moves. Points of the support that no paid question tells apart keep their
relative weights, so all work is done on classes of them. Public arithmetic only: the same answers
in the same order give the same estimate, on which a restarted session relies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Literal

import numpy as np

from sfumato.domain import Domain
from sfumato.online.support import Rows, Start, Support, support_of
from sfumato.workload.queries import Array, Integers, Numbers
from sfumato.workload.question import Question

__all__ = ["Estimate", "Learning"]

Learning = Literal["fit", "hedge"]

EVENNESS = 0.01  # with 1, records were drawn from the start; they were not
SWEEPS = 5
SETTLED = 0.05  # standard deviations of the noise, or
SMALL = 1e-6  # of all records: moves of an answer that end the sweeps
NEWTON = 60
NEAR = 1e-12
REACH = 4.0  # the most that one step moves a potential
MOST_LEVELS = 2**27  # classes times questions that are gone through again
MOST_TABLE = 2**22  # cells of a table that is kept for further questions
KEPT_CELLS = 2**25  # cells of all tables kept


@dataclass(slots=True)
class _Known:
    """A paid question: its coefficients by level, the level of each class, and its potential."""

    question: Question
    values: Array
    levels: Numbers
    answer: float
    variance: float
    potential: float


class Estimate:
    """A histogram of ``total`` records that answers questions and learns from paid answers.

    >>> import sfumato as sf
    >>> from sfumato.workload.question import questions_of
    >>> domain = sf.Domain({"age": 10, "sex": 2})
    >>> young, = questions_of(sf.sql(domain, "SELECT COUNT(*) FROM t WHERE age < 3 AND sex = 1"))
    >>> estimate = Estimate(domain, 100.0)
    >>> round(estimate.answer(young))
    15
    >>> estimate.learn(young, 40.0, variance=1.0)
    >>> round(estimate.answer(young))
    40
    """

    def __init__(
        self,
        domain: Domain,
        total: float,
        start: Start | None = None,
        learning: Learning = "fit",
        rate: float = 0.0,
        support: Support | None = None,
    ) -> None:
        self.domain, self.total = domain, max(float(total), 1.0)
        self.learning, self.rate = learning, rate
        self._support = support_of(domain, start) if support is None else support
        self._class_of: Integers = np.zeros(0, dtype=np.int64)
        self._first = self._mass = np.zeros(0)
        self._begin_classes()
        self._known: list[_Known] = []
        self._weights: Array | None = None
        self._tables: dict[tuple[str, ...], Array] = {}

    def answer(self, question: Question) -> float:
        """The estimated answer, in counts."""
        known = self._tables.get(question.attributes)
        if known is None:
            if question.cells > MOST_TABLE:
                values, levels = self._support.coefficients(question)
                return float(values[levels] @ self.weights) * 2.0**-question.bits
            known = self.table(question.attributes)
        return question.answer(known) * 2.0**-question.bits

    def table(self, names: tuple[str, ...]) -> Array:
        """The estimated counts over some attributes, an axis each, in the order of the domain."""
        if names not in self._tables:
            found = self._support.table(self.weights, names)
            if sum(t.size for t in self._tables.values()) + found.size > KEPT_CELLS:
                self._tables.clear()
            self._tables[names] = found
        return self._tables[names]

    @property
    def weights(self) -> Array:
        """The estimated number of records at every point of the support."""
        if self._weights is None:
            factors = self._mass / np.where(self._first > 0, self._first, 1.0)
            scaled = factors * (self.total / float(self._mass.sum()))
            self._weights = self._support.shares * scaled[self._class_of]
        return self._weights

    def learn(self, question: Question, answer: float, variance: float) -> None:
        """Take a paid answer, in counts, with the variance of its noise."""
        is_above = answer > self.answer(question)
        if self._support.grow(question, self.weights):
            self._begin_again()
        largest = float(max(abs(question.low), abs(question.high), 1)) * 2.0**-question.bits
        values, levels = self._split(question)
        known = _Known(
            question,
            values * 2.0**-question.bits / largest,
            levels,
            answer / largest,
            max(variance / largest**2, 1e-12),
            0.0,
        )
        self._known.append(known)
        if self.learning == "hedge":
            self._move(known, self.rate if is_above else -self.rate)
            self._mass /= self._mass.sum()
        else:
            self._fit()
        self._weights = None
        self._tables.clear()

    def _fit(self) -> None:
        """Solve for one potential after the other; old ones rest where memory is short."""
        again = self._known[-max(8, MOST_LEVELS // max(self._mass.size, 1)) :]
        for _ in range(SWEEPS):
            moved = max(self._solve(known) for known in reversed(again))
            self._mass /= self._mass.sum()
            if moved <= 1:
                break

    def _solve(self, known: _Known) -> float:
        """Solve one equation; how far the answer moved, in units of what is too little to count."""
        masses = self._masses(known)
        pull = EVENNESS * known.variance
        step = _root(known.values, masses, self.total, pull, known.potential, known.answer)
        before = float(known.values @ masses) / float(masses.sum())
        self._move(known, step)
        raised = masses * np.exp(step * known.values)
        after = float(known.values @ raised) / float(raised.sum())
        enough = SETTLED * known.variance**0.5 + SMALL * self.total
        return float(self.total * abs(after - before) / enough)

    def _masses(self, known: _Known) -> Array:
        """The mass of the classes that have each coefficient of a question."""
        if known.values.size == 2:  # a condition: products are quicker than looking up
            second = float(known.levels @ self._mass)
            return np.array([max(float(self._mass.sum()) - second, 0.0), second])
        counted = np.bincount(known.levels, self._mass, minlength=known.values.size)
        return np.asarray(counted, dtype=np.float64)

    def _move(self, known: _Known, step: float) -> None:
        factors = np.exp(step * known.values)
        if known.values.size == 2:
            self._mass *= factors[0] + (factors[1] - factors[0]) * known.levels
        else:
            self._mass *= factors[known.levels]
        known.potential += step

    def _split(self, question: Question) -> tuple[Array, Numbers]:
        """Split classes of points that the question tells apart."""
        values, levels = self._support.coefficients(question)
        if isinstance(self._support, Rows):
            return values.astype(np.float64), levels
        joint = self._class_of * np.int64(values.size) + levels
        present = np.bincount(joint, minlength=self._mass.size * values.size) > 0
        number = np.cumsum(present, dtype=np.int64) - 1
        self._class_of = number[joint]
        kept = np.flatnonzero(present)
        parent = kept // values.size
        factors = self._mass / np.where(self._first > 0, self._first, 1.0)
        first = np.bincount(self._class_of, self._support.shares, minlength=kept.size)
        self._first = np.asarray(first, dtype=np.float64)
        self._mass = self._first * factors[parent]
        for known in self._known:
            known.levels = known.levels[parent]
        return values.astype(np.float64), (kept % values.size).astype(levels.dtype)

    def _begin_classes(self) -> None:
        if isinstance(self._support, Rows):
            self._class_of = np.arange(self._support.points)
            self._first = self._support.shares.copy()
        else:
            self._class_of = np.zeros(self._support.points, dtype=np.int64)
            self._first = np.array([float(self._support.shares.sum())])
        self._mass = self._first / self._first.sum()

    def _begin_again(self) -> None:
        """More rows: potentials stay, and all rows get what they say."""
        self._begin_classes()
        for known in self._known:
            known.levels = self._support.coefficients(known.question)[1]
            self._mass *= np.exp(known.potential * known.values)[known.levels]
        self._mass /= self._mass.sum()


def _root(
    values: Array, masses: Array, total: float, pull: float, potential: float, answer: float
) -> float:
    """The step s with ``total mean_s + pull (potential + s) = answer``, within the reach.

    ``mean_s``, of the values under masses times ``exp(s value)``, rises with s: Newton's rule,
    and bisection where it leaves what is known to hold the root.
    """
    low, high, step = -REACH, REACH, 0.0
    points = list(zip(values.tolist(), masses.tolist(), strict=True))
    for _ in range(NEWTON):
        mass = first = second = 0.0
        for value, weight in points:
            raised = weight * exp(step * value)
            mass += raised
            first += raised * value
            second += raised * value * value
        mean = first / mass
        excess = total * mean + pull * (potential + step) - answer
        if excess < 0:
            low = step
        else:
            high = step
        slope = total * (second / mass - mean * mean) + pull
        following = step - excess / slope if slope > 0 else low
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - step) <= NEAR or high - low <= NEAR:
            return following
        step = following
    return step
