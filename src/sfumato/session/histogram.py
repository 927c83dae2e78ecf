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

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, prod
from typing import Literal

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.refine.draws import Draws
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.question import Question
from sfumato.workload.workload import marginal

__all__ = [
    "MOST_CELLS",
    "Cells",
    "Estimate",
    "Learning",
    "Rows",
    "Start",
    "Support",
    "support_of",
]


# --------------------
# Where the mass of an estimate may lie: all cells of a domain, or rows that stand for it.
#
# Both answer the same two questions: which coefficient a question has at every point of the
# support, and what weights on the points add up to over some attributes. Points start with shares
# that come from public numbers: even ones, public records, or an earlier release (`Start`).

MOST_CELLS = 10**7  # of a domain whose cells are listed
ROWS = 50_000
EVEN = 0.01  # share of the start that is spread evenly: what a start says is nowhere is possible
FEW = 200  # rows: a question that fewer hold for gets rows of its own
GAINED = 2_000  # rows that such a question gets
MOST_ROWS = 500_000


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


class Cells:
    """Every cell of the domain, in row-major order."""

    def __init__(self, domain: Domain, start: Start | None) -> None:
        self.domain = domain
        even = 1.0 / domain.size
        self.shares = np.full(domain.size, even if start is None else EVEN * even)
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

    def __init__(self, domain: Domain, start: Start | None, rows: int = ROWS) -> None:
        self.domain = domain
        self._draws = Draws("rows of a session")
        even = rows if start is None else max(1, rows // 10)
        self.codes = self._even(even)
        self.shares = np.full(even, (1.0 if start is None else EVEN) / even)
        if start is not None:
            kept = _systematic(start.weights, min(rows, start.weights.size), self._draws)
            weights = start.weights if kept is None else np.full(kept.size, 1.0)
            drawn = self._even(weights.size)
            for name, column in zip(start.names, start.codes.T, strict=True):
                chosen = column if kept is None else column[kept]
                drawn[:, domain.index(name)] = self._among_alike(chosen, start.alike.get(name))
            self.codes = np.concatenate([self.codes, drawn])
            self.shares = np.concatenate([self.shares, (1 - EVEN) * weights / weights.sum()])

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
        for level in np.flatnonzero(held < FEW).tolist():
            if self.points + GAINED > MOST_ROWS:
                break
            gained += self._moved(question, int(values[level]), weights)
        return gained

    def _moved(self, question: Question, value: int, weights: Array) -> int:
        places = np.argwhere(question.table == value)
        known = weights if weights.size == self.points else self.shares
        kept = _systematic(known, GAINED, self._draws)
        codes = self.codes[np.arange(self.points) if kept is None else kept].copy()
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
        mass = max(share, 1e-6) * float(self.shares.sum())
        self.shares = np.concatenate([self.shares, np.full(len(codes), mass / len(codes))])
        return len(codes)

    def _within(self, classes: Integers, wanted: Integers) -> Integers:
        """A cell of the wanted class, each equally likely."""
        order = np.argsort(classes, kind="stable")
        sizes = np.bincount(classes)
        first = np.cumsum(sizes) - sizes
        step = np.floor(self._draws.uniforms(wanted.size) * sizes[wanted]).astype(np.int64)
        return np.asarray(order[first[wanted] + step])

    def _among_alike(self, column: Integers, alike: Integers | None) -> Integers:
        return column if alike is None else self._within(alike, alike[column])

    def _even(self, rows: int) -> Integers:
        columns = [self._draws.below(size, rows) for size in self.domain.shape]
        return np.stack(columns, axis=1)


Support = Cells | Rows


def support_of(domain: Domain, start: Start | None) -> Support:
    """All cells where they can be listed, else rows."""
    return Cells(domain, start) if domain.size <= MOST_CELLS else Rows(domain, start)


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
    shares += (1 - EVEN) / (table.sum() * rest) * table.reshape(wide)


def _systematic(weights: Array, rows: int, draws: Draws) -> Integers | None:
    """Rows drawn in proportion to their weights; None to take every one as it is."""
    if rows >= weights.size:
        return None
    edges = np.cumsum(weights)
    at = (np.arange(rows) + draws.uniforms(1)[0]) * (edges[-1] / rows)
    found = np.searchsorted(edges, at, side="right")
    return np.asarray(np.minimum(found, edges.size - 1), dtype=np.int64)


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
