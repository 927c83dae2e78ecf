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
relative weights, so all work is done on classes of them. The support is all cells of a domain
(`Cells`) or rows that stand for them (`Rows`), whose first shares are public: even ones, public
records, or an earlier release (`Start`). Public arithmetic only: the same answers
in the same order give the same estimate, on which a restarted session relies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, prod
from typing import Literal

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.random import Draws
from sfumato.session.session_limits import LIMITS
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.question import Question
from sfumato.workload.workload import marginal

__all__ = [
    "Cells",
    "Estimate",
    "Learning",
    "NoisyTable",
    "Rows",
    "Start",
    "Support",
    "fitted_start",
    "support_of",
]


# Where the mass of an estimate may lie: all cells of a domain, or rows that stand for it


@dataclass(frozen=True, eq=False)
class Start:
    """Weighted cells that are public: ``codes[:, i]`` is a cell of attribute ``names[i]``.

    ``alike`` numbers the classes of cells of an attribute where one cell stands for all of its
    class. Attributes that are not named are taken to be even.
    """

    names: tuple[str, ...]
    codes: Integers
    weights: Array
    alike: Mapping[str, Integers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.codes.shape != (self.weights.size, len(self.names)) or not self.weights.sum() > 0:
            raise WorkloadError("a start needs weighted cells, a code per attribute for each")

    def digest(self) -> str:
        """SHA-256 of all of it."""
        parts = [repr(self.names), *(f"{n}:{a.tolist()}" for n, a in sorted(self.alike.items()))]
        head = hashlib.sha256("|".join(parts).encode())
        head.update(np.ascontiguousarray(self.codes.astype(np.int64)).tobytes())
        head.update(np.ascontiguousarray(self.weights.astype(np.float64)).tobytes())
        return head.hexdigest()


NoisyTable = tuple[tuple[str, ...], Array, float]
"""Attributes in the order of the domain, noisy counts of their cells, and a standard error."""


def fitted_start(domain: Domain, tables: Sequence[NoisyTable]) -> Start | None:
    """The most even table that has about the counts of some noisy tables; None if too large.

    Iterative proportional fitting from even counts, of tables that are projected to those that can
    be. A ratio moves cells only as far as counts are above the noise: ``(y + s) / (x + s)``, with
    s the standard error of the table.
    """
    if not tables or domain.size * len(tables) > LIMITS.fitted_entries:
        return None
    total = max(float(np.mean([counts.sum() for _, counts, _ in tables])), 1.0)
    possible = [(names, project_to_simplex(y, total), error) for names, y, error in tables]
    fitted = np.full(domain.shape, total / domain.size)
    for _ in range(LIMITS.fitted_sweeps):
        for names, counts, error in possible:
            wide = [a.size if a.name in names else 1 for a in domain]
            now = np.asarray(marginal(fitted, domain, names))
            fitted *= ((counts + error) / np.maximum(now + error, 1e-300)).reshape(wide)
        fitted *= total / max(float(fitted.sum()), 1e-300)
    codes = np.stack(np.unravel_index(np.arange(domain.size), domain.shape), axis=1)
    return Start(domain.names, codes, fitted.reshape(-1))


class Cells:
    """Every cell of the domain, in row-major order."""

    def __init__(self, domain: Domain, start: Start | None) -> None:
        self.domain = domain
        even = 1.0 / domain.size
        self.shares = np.full(domain.size, even if start is None else LIMITS.even_share * even)
        if start is not None:
            _add_cells(self.shares.reshape(domain.shape), domain, start)

    @property
    def points(self) -> int:
        """The number of cells."""
        return self.shares.size

    def coefficients(self, question: Question) -> tuple[Integers, Integers]:
        """The distinct coefficients of a question, in steps, and which one every cell has."""
        values, levels = _levels(question.table)
        table = levels[np.ix_(*question.class_of)] if question.attributes else levels
        shape = [a.size if a.name in question.attributes else 1 for a in self.domain]
        return values, np.broadcast_to(table.reshape(shape), self.domain.shape).reshape(-1)

    def table(self, weights: Array, names: tuple[str, ...]) -> Array:
        """What the weights of the cells add up to over some attributes."""
        return np.asarray(marginal(weights.reshape(self.domain.shape), self.domain, names))

    def grow(self, question: Question, weights: Array) -> int:  # noqa: ARG002  every cell is there
        """No cell is missing."""
        return 0


class Rows:
    """Rows of codes that stand for a domain too large to list; more come where they are few."""

    def __init__(
        self, domain: Domain, start: Start | None, rows: int = LIMITS.support_rows
    ) -> None:
        self.domain = domain
        self._draws = Draws("rows of a session")
        even = rows if start is None else max(1, rows // 10)
        self.codes = self._even(even)
        self.shares = np.full(even, (1.0 if start is None else LIMITS.even_share) / even)
        if start is not None:
            chosen = _systematic(start.weights, min(rows, start.weights.size), self._draws)
            weights = start.weights if chosen is None else np.full(chosen.size, 1.0)
            drawn = self._even(weights.size)
            for name, column in zip(start.names, start.codes.T, strict=True):
                codes = column if chosen is None else column[chosen]
                drawn[:, domain.index(name)] = self._among_alike(codes, start.alike.get(name))
            self.codes = np.concatenate([self.codes, drawn])
            self.shares = np.concatenate(
                [self.shares, (1 - LIMITS.even_share) * weights / weights.sum()]
            )

    @property
    def points(self) -> int:
        """The number of rows."""
        return self.shares.size

    def coefficients(self, question: Question) -> tuple[Integers, Integers]:
        """The distinct coefficients of a question, in steps, and which one every row has."""
        values, levels = _levels(question.table)
        codes = [self.codes[:, self.domain.index(n)] for n in question.attributes]
        place = np.zeros(self.points, dtype=np.int64)
        for classes, count, column in zip(question.class_of, levels.shape, codes, strict=True):
            place = place * count + classes[column]
        return values, levels.reshape(-1)[place]

    def table(self, weights: Array, names: tuple[str, ...]) -> Array:
        """What the weights of the rows add up to over some attributes."""
        shape = tuple(self.domain[n].size for n in names)
        place = np.zeros(self.points, dtype=np.int64)
        for name, size in zip(names, shape, strict=True):
            place = place * size + self.codes[:, self.domain.index(name)]
        table = np.bincount(place, weights, minlength=prod(shape))
        return np.asarray(table, dtype=np.float64).reshape(shape)

    def grow(self, question: Question, weights: Array) -> int:
        """Add rows where the question tells more than few rows can show; how many.

        For each of its coefficients that few rows have: rows drawn by weight, moved into cells that
        have it. Together they start with the share that such cells have of all, or what is left
        of one row in a million.
        """
        values, levels = self.coefficients(question)
        held = np.bincount(levels, minlength=values.size)
        gained = 0
        for level in np.flatnonzero(held < LIMITS.rows_few).tolist():
            if self.points + LIMITS.rows_gained > LIMITS.support_rows_maximum:
                break
            gained += self._moved(question, int(values[level]), weights)
        return gained

    def _moved(self, question: Question, value: int, weights: Array) -> int:
        places = np.argwhere(question.table == value)
        mass = weights if weights.size == self.points else self.shares
        rows = _systematic(mass, LIMITS.rows_gained, self._draws)
        codes = self.codes[np.arange(self.points) if rows is None else rows].copy()
        chosen = places[self._draws.below(len(places), len(codes))]
        share = 0.0
        sizes = [np.bincount(c).astype(np.float64) / c.size for c in question.class_of]
        for place in places:
            share += prod(float(s[p]) for s, p in zip(sizes, place.tolist(), strict=True))
        for axis, (name, classes) in enumerate(
            zip(question.attributes, question.class_of, strict=True)
        ):
            codes[:, self.domain.index(name)] = self._within(classes, chosen[:, axis])
        self.codes = np.concatenate([self.codes, codes])
        gained = max(share, 1e-6) * float(self.shares.sum())
        self.shares = np.concatenate([self.shares, np.full(len(codes), gained / len(codes))])
        return len(codes)

    def _within(self, classes: Integers, chosen: Integers) -> Integers:
        """A cell of each chosen class, all of its cells equally likely."""
        order = np.argsort(classes, kind="stable")
        sizes = np.bincount(classes)
        first = np.cumsum(sizes) - sizes
        step = np.floor(self._draws.uniforms(chosen.size) * sizes[chosen]).astype(np.int64)
        return np.asarray(order[first[chosen] + step])

    def _among_alike(self, column: Integers, alike: Integers | None) -> Integers:
        return column if alike is None else self._within(alike, alike[column])

    def _even(self, rows: int) -> Integers:
        columns = [self._draws.below(size, rows) for size in self.domain.shape]
        return np.stack(columns, axis=1)


Support = Cells | Rows


def support_of(domain: Domain, start: Start | None) -> Support:
    """All cells where they can be listed, else rows."""
    return Cells(domain, start) if domain.size <= LIMITS.listed_cells else Rows(domain, start)


def _levels(table: Numbers) -> tuple[Integers, Numbers]:
    values, levels = np.unique(table, return_inverse=True)
    kind = np.uint8 if values.size <= 256 else np.uint32
    return values.astype(np.int64), levels.reshape(table.shape).astype(kind)


def _add_cells(shares: Numbers, domain: Domain, start: Start) -> None:
    """Spread the start over the cells: evenly over what it does not name or tell apart."""
    names = domain.in_order(start.names)
    size = tuple(domain[n].size for n in names)
    place = np.zeros(len(start.codes), dtype=np.int64)
    for name in names:
        column = start.codes[:, start.names.index(name)].astype(np.int64)
        place = place * domain[name].size + column
    table: Numbers = np.bincount(place, start.weights, minlength=prod(size)).reshape(size)
    for axis, name in enumerate(names):
        alike = start.alike.get(name)
        if alike is not None:
            moved = np.moveaxis(table, axis, 0)
            sums = np.zeros((int(alike.max()) + 1, *moved.shape[1:]))
            np.add.at(sums, alike, moved)
            each = np.bincount(alike).astype(np.float64)
            table = np.moveaxis((sums / each.reshape(-1, *[1] * (sums.ndim - 1)))[alike], 0, axis)
    rest = domain.size // prod(size)
    wide = [a.size if a.name in names else 1 for a in domain]
    shares += (1 - LIMITS.even_share) / (table.sum() * rest) * table.reshape(wide)


def _systematic(weights: Array, rows: int, draws: Draws) -> Integers | None:
    """Rows drawn in proportion to their weights; None to take every one as it is."""
    if rows >= weights.size:
        return None
    edges = np.cumsum(weights)
    at = (np.arange(rows) + draws.uniforms(1)[0]) * (edges[-1] / rows)
    rows_at = np.searchsorted(edges, at, side="right")
    return np.asarray(np.minimum(rows_at, edges.size - 1), dtype=np.int64)


Learning = Literal["fit", "hedge"]


@dataclass(slots=True)
class _PaidQuestion:
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
        self._paid: list[_PaidQuestion] = []
        self._weights: Array | None = None
        self._tables: dict[tuple[str, ...], Array] = {}

    def answer(self, question: Question) -> float:
        """The estimated answer, in counts."""
        table = self._tables.get(question.attributes)
        if table is None:
            if question.cells > LIMITS.table_cells:
                values, levels = self._support.coefficients(question)
                return float(values[levels] @ self.weights) * 2.0**-question.bits
            table = self.table(question.attributes)
        return question.answer(table) * 2.0**-question.bits

    def table(self, names: tuple[str, ...]) -> Array:
        """The estimated counts over some attributes, an axis each, in the order of the domain."""
        if names not in self._tables:
            table = self._support.table(self.weights, names)
            if sum(t.size for t in self._tables.values()) + table.size > LIMITS.tables_cells:
                self._tables.clear()
            self._tables[names] = table
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
        self.learn_all([(question, answer, variance)])

    def learn_all(self, answers: Sequence[tuple[Question, float, float]]) -> None:
        """Take paid answers that came together: question, answer, variance of its noise."""
        for question, answer, variance in answers:
            self._take(question, answer, variance)
        if answers and self.learning == "fit":
            self._fit()
        self._weights = None
        self._tables.clear()

    def _take(self, question: Question, answer: float, variance: float) -> None:
        is_above = self.learning == "hedge" and answer > self.answer(question)
        if self._support.grow(question, self.weights):
            self._begin_again()
        maximum = float(max(abs(question.low), abs(question.high), 1)) * 2.0**-question.bits
        values, levels = self._split(question)
        paid = _PaidQuestion(
            question,
            values * 2.0**-question.bits / maximum,
            levels,
            answer / maximum,
            max(variance / maximum**2, 1e-12),
            0.0,
        )
        self._paid.append(paid)
        if self.learning == "hedge":
            self._move(paid, self.rate if is_above else -self.rate)
            self._mass /= self._mass.sum()
            self._weights = None
            self._tables.clear()

    def _fit(self) -> None:
        """Solve for one potential after the other; old ones rest where memory is short."""
        again = self._paid[-max(8, LIMITS.fit_levels // max(self._mass.size, 1)) :]
        for _ in range(LIMITS.fit_sweeps):
            moved = max(self._solve(paid) for paid in reversed(again))
            self._mass /= self._mass.sum()
            if moved <= 1:
                break

    def _solve(self, paid: _PaidQuestion) -> float:
        """Solve one equation; how far the answer moved, in units of what is too little to count."""
        masses = self._masses(paid)
        pull = LIMITS.evenness_weight * paid.variance
        step = _root(paid.values, masses, self.total, pull, paid.potential, paid.answer)
        before = float(paid.values @ masses) / float(masses.sum())
        self._move(paid, step)
        raised = masses * np.exp(step * paid.values)
        after = float(paid.values @ raised) / float(raised.sum())
        enough = LIMITS.settled_errors * paid.variance**0.5 + LIMITS.settled_share * self.total
        return float(self.total * abs(after - before) / enough)

    def _masses(self, paid: _PaidQuestion) -> Array:
        """The mass of the classes that have each coefficient of a question."""
        if paid.values.size == 2:  # a condition: products are quicker than looking up
            second = float(paid.levels @ self._mass)
            return np.array([max(float(self._mass.sum()) - second, 0.0), second])
        counted = np.bincount(paid.levels, self._mass, minlength=paid.values.size)
        return np.asarray(counted, dtype=np.float64)

    def _move(self, paid: _PaidQuestion, step: float) -> None:
        factors = np.exp(step * paid.values)
        if paid.values.size == 2:
            self._mass *= factors[0] + (factors[1] - factors[0]) * paid.levels
        else:
            self._mass *= factors[paid.levels]
        paid.potential += step

    def _split(self, question: Question) -> tuple[Array, Numbers]:
        """Split classes of points that the question tells apart."""
        values, levels = self._support.coefficients(question)
        if isinstance(self._support, Rows):
            return values.astype(np.float64), levels
        joint = self._class_of * np.int64(values.size) + levels
        present = np.bincount(joint, minlength=self._mass.size * values.size) > 0
        number = np.cumsum(present, dtype=np.int64) - 1
        self._class_of = number[joint]
        classes = np.flatnonzero(present)
        parent = classes // values.size
        factors = self._mass / np.where(self._first > 0, self._first, 1.0)
        first = np.bincount(self._class_of, self._support.shares, minlength=classes.size)
        self._first = np.asarray(first, dtype=np.float64)
        self._mass = self._first * factors[parent]
        for paid in self._paid:
            paid.levels = paid.levels[parent]
        return values.astype(np.float64), (classes % values.size).astype(levels.dtype)

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
        for paid in self._paid:
            paid.levels = self._support.coefficients(paid.question)[1]
            self._mass *= np.exp(paid.potential * paid.values)[paid.levels]
        self._mass /= self._mass.sum()


def _root(
    values: Array, masses: Array, total: float, pull: float, potential: float, answer: float
) -> float:
    """The step s with ``total mean_s + pull (potential + s) = answer``, within the reach.

    ``mean_s``, of the values under masses times ``exp(s value)``, rises with s: Newton's rule,
    and bisection where it leaves the interval that holds the root.
    """
    low, high, step = -LIMITS.potential_reach, LIMITS.potential_reach, 0.0
    points = list(zip(values.tolist(), masses.tolist(), strict=True))
    for _ in range(LIMITS.potential_steps):
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
        if (
            abs(following - step) <= LIMITS.potential_tolerance
            or high - low <= LIMITS.potential_tolerance
        ):
            return following
        step = following
    return step
