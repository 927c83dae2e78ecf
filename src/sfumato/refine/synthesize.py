# SPDX-License-Identifier: Apache-2.0
"""Synthetic records drawn from released answers: one-way tables, and a tree of two-way ones.

Post-processing only: it reads what was released and costs no privacy (Dwork, Roth 2014,
Proposition 2.1). The model is that of Chow, Liu 1968, "Approximating discrete probability
distributions with dependence trees": the spanning tree of greatest mutual information, here of
the released tables. A noisy table of two independent attributes looks dependent, so every
two-way table is first drawn towards the product of its margins by the positive-part rule of James,
Stein 1961, "Estimation with quadratic loss": what is no larger than its noise is left out.

Whatever three or more attributes share beyond the tree is not in the records. They are for trying
out code and for pictures; figures come from the answers, which carry their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import prod, sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.random import WordSource, integers_below
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Mask
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Prefix

__all__ = [
    "ReleasedTable",
    "Synthetic",
    "draw_given",
    "released_tables",
    "released_total",
    "synthesize",
    "uniforms",
]


# --------------------
# Draws from estimated tables: uniform numbers, and a cell of each row by its share.

WEIGHT_BITS: Final = 40


def uniforms(words: WordSource, count: int) -> Array:
    """Numbers from 0 to below 1, 53 bits each."""
    return (words.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_given(table: Array, given: Integers, words: WordSource) -> Integers:
    """For each given row of the table, a column with probability in proportion to its entries.

    Entries become whole numbers that add up to 2^40 in every row; a whole number below that is
    drawn exactly, and all rows are searched at once in one running total.
    """
    whole = 1 << min(WEIGHT_BITS, 62 - len(table).bit_length())  # the running total fits 63 bits
    sums = table.sum(axis=1, keepdims=True)
    even = np.full_like(table, 1 / table.shape[1])
    shares = np.divide(table, sums, out=even, where=sums > 0)
    weights = np.floor(shares * whole).astype(np.int64)
    largest = weights.argmax(axis=1)
    weights[np.arange(len(weights)), largest] += whole - weights.sum(axis=1)
    running = np.cumsum(weights.reshape(-1))
    drawn = integers_below(whole, given.size, words) + given * whole
    found = np.searchsorted(running, drawn, side="right")
    return np.asarray(found - given * table.shape[1], dtype=np.int64)


Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A contingency table that follows from released answers; ``error`` is that of one cell.

    ``is_spread`` says that groups of cells were asked for and are shared out evenly.
    """

    attributes: tuple[str, ...]
    values: Array
    error: float
    is_spread: bool = False

    def margin_error(self, names: Sequence[str]) -> float:
        """The standard error of a cell of the margin over the named attributes."""
        rest = (
            n for a, n in zip(self.attributes, self.values.shape, strict=True) if a not in names
        )
        return self.error * sqrt(prod(rest))

    def margin(self, names: Sequence[str]) -> Array:
        """The margin over the named attributes, axes in their order."""
        rest = tuple(i for i, a in enumerate(self.attributes) if a not in names)
        left = [a for a in self.attributes if a in names]
        turned = self.values.sum(axis=rest).transpose([left.index(n) for n in names])
        return np.asarray(turned, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Drawn cells of every attribute, and what a reader must know about them."""

    codes: dict[str, Integers]
    notes: tuple[str, ...]


def released_tables(forecast: Forecast, answers: Sequence[Array]) -> list[ReleasedTable]:
    """The tables that released groups give: tables, running totals, ranges, groups of cells."""
    found = []
    for group, numbers, known in zip(
        forecast.workload.terms, answers, forecast.groups, strict=True
    ):
        term = group.as_product()
        if term is None:
            continue
        table: Array | None = np.asarray(numbers, dtype=np.float64).reshape(term.row_shape)
        error, is_spread = known.rmse, False
        for axis, (_, queries) in enumerate(term.factors):
            if table is None:
                break
            moved = queries.cells_from(np.moveaxis(table, axis, 0))
            table = None if moved is None else np.moveaxis(moved, 0, axis)
            error *= sqrt(2) if isinstance(queries, Prefix) else 1.0
            is_spread |= queries.label_kind == "groups"
        if table is not None:
            found.append(ReleasedTable(term.attributes, table, error, is_spread))
    return found


def released_total(tables: Sequence[ReleasedTable], rows: int | None) -> float:
    """The number of records: the public one, or the mean of what the tables add up to."""
    if rows is not None:
        return float(rows)
    exact = [t for t in tables if not t.is_spread] or list(tables)
    if not exact:
        return 0.0
    weights = np.array([t.margin_error(()) ** -2 for t in exact])
    totals = np.array([t.values.sum() for t in exact])
    return max(0.0, float((weights * totals).sum() / weights.sum()))


def synthesize(
    domain: Domain,
    tables: Sequence[ReleasedTable],
    total: float,
    rows: int,
    words: WordSource,
    constraints: Constraints | None = None,
) -> Synthetic:
    """Draw ``rows`` independent records from the tree model of the released tables.

    With ``constraints``, published tables stand before released ones, impossible cells of margins
    and pairs are left out, and records that are impossible still are drawn again (after ``AGAIN``
    times only the attributes that conditions link, independently).

    Privacy: a random function of released answers; no data is read.
    Neighbours: any; nothing is spent.
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise WorkloadError(f"the number of synthetic records must be 0 or more, got {rows!r}")
    if rows * len(domain) > LIMITS.synthetic_values:
        raise TooLarge(
            f"{rows:,} records of {len(domain)} attributes are {rows * len(domain):,} values, the "
            f"limit is {LIMITS.synthetic_values:,}; draw them in parts"
        )
    if constraints is not None:
        tables = [*_published(constraints), *tables]
        total = total if constraints.total is None else constraints.total
    scale = max(total, 1.0)
    one_way = {name: _one_way(name, tables, scale) for name in domain.names}
    known = {name: margin for name, margin in one_way.items() if margin is not None}
    if constraints is not None:
        known = {n: _only(m, constraints.possible((n,)), scale) for n, m in known.items()}
    pairs = _two_way(known, tables, scale)
    if constraints is not None:
        pairs |= _cut(known, pairs, constraints, scale)
    model = _Model(domain, known, pairs, _spanning_tree(known, pairs))
    codes = model.drawn(rows, words)
    if constraints is not None:
        codes = model.redrawn(codes, constraints, words)
    columns = dict(zip(domain.names, codes, strict=True))
    return Synthetic(columns, _notes(tables, model.unknown, model.tree))


@dataclass(frozen=True, eq=False)
class _Model:
    """One-way margins, tables of pairs, and the tree: every attribute after its parent."""

    domain: Domain
    known: dict[str, Array]
    pairs: dict[Pair, Array]
    tree: list[tuple[str, str | None]]

    @property
    def unknown(self) -> list[str]:
        """Attributes that no table holds: they are drawn uniformly."""
        return [n for n in self.domain.names if n not in self.known]

    def drawn(self, rows: int, words: WordSource) -> Integers:
        """So many records (attribute x record)."""
        codes: dict[str, Integers] = {}
        for child, parent in self.tree:
            if parent is None:
                given = np.zeros(rows, dtype=np.int64)
                codes[child] = draw_given(self.known[child][None, :], given, words)
                continue
            is_turned = (parent, child) not in self.pairs
            table = self.pairs[child, parent].T if is_turned else self.pairs[parent, child]
            codes[child] = draw_given(
                _with_fallback(table, self.known[child]), codes[parent], words
            )
        for name in self.unknown:
            codes[name] = integers_below(self.domain[name].size, rows, words)
        return np.stack([codes[n] for n in self.domain.names])

    def redrawn(self, codes: Integers, constraints: Constraints, words: WordSource) -> Integers:
        """The records with impossible ones drawn again, until none is."""
        for _ in range(LIMITS.redraws):
            bad = np.flatnonzero(~constraints.are_possible(codes))
            if not len(bad):
                return codes
            codes[:, bad] = self.drawn(len(bad), words)
        from sfumato.refine.row_problem import make_possible

        even = {n: np.ones(self.domain[n].size) for n in self.unknown}
        shares = [self.known[n] if n in self.known else even[n] for n in self.domain.names]

        return make_possible(constraints, codes, shares, partial(uniforms, words))


def _only(margin: Array, possible: Mask, total: float) -> Array:
    """A margin without impossible cells, even over the possible ones if nothing is left."""
    left = np.where(possible, margin, 0.0)
    left = left if left.sum() > 0 else possible.astype(np.float64)
    return np.asarray(left * (total / left.sum()), dtype=np.float64)


def _cut(
    one_way: dict[str, Array], pairs: dict[Pair, Array], constraints: Constraints, total: float
) -> dict[Pair, Array]:
    """Pairs with impossible cells, without those, fitted to the margins again."""
    out = {}
    for part in constraints.linked:
        for a, b in combinations([n for n in part.classes.names if n in one_way], 2):
            possible = constraints.possible((a, b))
            if not possible.all():
                apart = np.outer(one_way[a], one_way[b]) / total
                left = np.where(possible, pairs.get((a, b), apart), 0.0)
                out[a, b] = _fitted(left, one_way[a], one_way[b])
    return out


def _published(constraints: Constraints) -> list[ReleasedTable]:
    """Published tables as released ones that have hardly any error."""
    return [
        ReleasedTable(t.names, t.values, LIMITS.published_error * max(t.total, 1.0))
        for t in constraints.published
        if t.names
    ]


def _one_way(name: str, tables: Sequence[ReleasedTable], total: float) -> Array | None:
    """The margin of an attribute: all tables that hold it, weighted by their precision."""
    holding = [t for t in tables if name in t.attributes]
    holding = [t for t in holding if not t.is_spread] or holding
    if not holding:
        return None
    weights = [t.margin_error((name,)) ** -2 for t in holding]
    margins = np.array([t.margin((name,)) for t in holding])
    return project_to_simplex(np.average(margins, axis=0, weights=weights), total)


def _two_way(
    one_way: dict[str, Array], tables: Sequence[ReleasedTable], total: float
) -> dict[Pair, Array]:
    """The best table of every pair that depends: shrunk, projected, fitted to the margins."""
    best: dict[Pair, ReleasedTable] = {}
    for table in tables:
        for pair in combinations(table.attributes, 2):
            held = best.get(pair)
            if held is None or _rank(table, pair) < _rank(held, pair):
                best[pair] = table
    out = {}
    for pair, table in best.items():
        a, b = (one_way[name] for name in pair)
        apart = np.outer(a, b) / total
        shift = table.margin(pair) - apart
        kept = _kept_part(shift, table.margin_error(pair))
        if kept > 0:
            out[pair] = _fitted(project_to_simplex(apart + kept * shift, total), a, b)
    return out


def _kept_part(shift: Array, error: float) -> float:
    """The part of a noisy deviation that is not noise: ``1 - noise / energy`` (James, Stein).

    None of it when the energy is within three standard deviations of that of noise alone.
    """
    energy = float((shift**2).sum())
    noise = error**2 * shift.size
    is_noise = energy <= noise * (1 + 3 * sqrt(2 / shift.size))
    return 0.0 if is_noise else 1 - noise / energy


def _rank(table: ReleasedTable, pair: Pair) -> tuple[bool, float]:
    return table.is_spread, table.margin_error(pair)


def _fitted(table: Array, a: Array, b: Array) -> Array:
    """Scale rows and columns in turn to the margins (Deming, Stephan 1940)."""
    for _ in range(LIMITS.margin_sweeps):
        table = table * _quotient(a, table.sum(axis=1))[:, None]
        table = table * _quotient(b, table.sum(axis=0))[None, :]
    return table


def _quotient(wanted: Array, got: Array) -> Array:
    return np.divide(wanted, got, out=np.zeros_like(wanted), where=got > 0)


def _information(table: Array) -> float:
    """Mutual information of a table of counts, in nats."""
    p = table / max(float(table.sum()), 1e-300)
    apart = np.outer(p.sum(axis=1), p.sum(axis=0))
    held = (p > 0) & (apart > 0)
    return max(0.0, float((p[held] * np.log(p[held] / apart[held])).sum()))


def _spanning_tree(
    one_way: dict[str, Array], pairs: dict[Pair, Array]
) -> list[tuple[str, str | None]]:
    """Attributes, each after its parent; pairs by falling mutual information (Kruskal 1956)."""
    root = {name: name for name in one_way}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    neighbours: dict[str, list[str]] = {name: [] for name in one_way}
    weights = {pair: _information(table) for pair, table in pairs.items()}
    for a, b in sorted(weights, key=lambda pair: -weights[pair]):
        if weights[a, b] > 0 and find(a) != find(b):
            root[find(b)] = find(a)
            neighbours[a].append(b)
            neighbours[b].append(a)
    order: list[tuple[str, str | None]] = []
    placed: set[str] = set()
    for start in one_way:
        waiting: list[tuple[str, str | None]] = [] if start in placed else [(start, None)]
        while waiting:
            name, parent = waiting.pop()
            placed.add(name)
            order.append((name, parent))
            waiting += [(n, name) for n in neighbours[name] if n not in placed]
    return order


def _with_fallback(table: Array, margin: Array) -> Array:
    """Rows that hold nothing take the margin instead."""
    return np.where(table.sum(axis=1, keepdims=True) > 0, table, margin[None, :])


def _notes(
    tables: Sequence[ReleasedTable],
    unknown: Sequence[str],
    tree: Sequence[tuple[str, str | None]],
) -> tuple[str, ...]:
    notes = []
    if unknown:
        notes.append(
            f"no released table holds {', '.join(unknown)}: drawn uniformly, which says nothing"
        )
    spread = {n for t in tables if t.is_spread for n in t.attributes}
    exact = {n for t in tables if not t.is_spread for n in t.attributes}
    if spread - exact:
        notes.append(
            f"{', '.join(sorted(spread - exact))}: known by groups only, even inside each group"
        )
    edges = [f"{child} given {parent}" for child, parent in tree if parent is not None]
    notes.append(
        f"drawn by the tree: {'; '.join(edges)}" if edges else "all attributes drawn independently"
    )
    return tuple(notes)
