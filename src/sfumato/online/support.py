# SPDX-License-Identifier: Apache-2.0
"""Where the mass of an estimate may lie: all cells of a domain, or rows that stand for it.

Both answer the same two questions: which coefficient a question has at every point of the support,
and what weights on the points add up to over some attributes. Points start with shares that come
from public numbers: even ones, public records, or an earlier release (`Start`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.refine.draws import Draws
from sfumato.workload.gram import marginal
from sfumato.workload.queries import Array, Integers, Numbers
from sfumato.workload.question import Question

__all__ = ["MOST_CELLS", "Cells", "Rows", "Start", "Support", "support_of"]

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
