# SPDX-License-Identifier: Apache-2.0
"""Synthetic records drawn from released answers.

``draw_records`` draws them from the weighted cells behind published answers that agree; where there
are none, ``synthesize`` draws them from a tree of two-way tables, the model of Chow, Liu 1968,
"Approximating discrete probability distributions with dependence trees": the spanning tree of
maximum mutual information, here of the released tables. A noisy table of two independent attributes
looks dependent, so every two-way table is first drawn towards the product of its margins by the
positive-part rule of James, Stein 1961, "Estimation with quadratic loss": what is no larger than
its noise is left out. Whatever three or more attributes share beyond the tree is not in the
records.

They are for trying out code and for pictures; figures come from the answers, which carry their
errors. Post-processing only: a random function of what was released, which costs no privacy (Dwork,
Roth 2014, Proposition 2.1).
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
from sfumato.random import WordSource, integers_below
from sfumato.refine.consistency import Refined
from sfumato.refine.reconstruct import ReleasedTable
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Mask
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.workload import Workload

__all__ = [
    "Synthetic",
    "check_records",
    "draw_columns",
    "draw_records",
    "synthesize",
    "uniforms",
]


# Draws of cells

WEIGHT_BITS: Final = 40


def uniforms(random: WordSource, count: int) -> Array:
    """Numbers from 0 to below 1, 53 bits each."""
    return (random.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_columns(table: Array, rows: Integers, random: WordSource) -> Integers:
    """For each of ``rows`` of the table, a column with probability in proportion to its entries.

    Entries become whole numbers that add up to 2^40 in every row; a whole number below that is
    drawn exactly, and all rows are searched at once in one running total.
    """
    whole = 1 << min(WEIGHT_BITS, 62 - len(table).bit_length())  # the running total fits 63 bits
    sums = table.sum(axis=1, keepdims=True)
    even = np.full_like(table, 1 / table.shape[1])
    shares = np.divide(table, sums, out=even, where=sums > 0)
    weights = np.floor(shares * whole).astype(np.int64)
    maxima = weights.argmax(axis=1)
    weights[np.arange(len(weights)), maxima] += whole - weights.sum(axis=1)
    running = np.cumsum(weights.reshape(-1))
    drawn = integers_below(whole, rows.size, random) + rows * whole
    columns = np.searchsorted(running, drawn, side="right")
    return np.asarray(columns - rows * table.shape[1], dtype=np.int64)


Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Drawn cells of every attribute, and what a reader must know about them."""

    codes: dict[str, Integers]
    notes: tuple[str, ...]


def synthesize(
    domain: Domain,
    tables: Sequence[ReleasedTable],
    total: float,
    rows: int,
    random: WordSource,
    constraints: Constraints | None = None,
) -> Synthetic:
    """Draw ``rows`` independent records from the tree model of the released tables.

    With ``constraints``, published tables stand before released ones, impossible cells of margins
    and pairs are left out, and records that are impossible still are drawn again (after
    ``LIMITS.redraws`` times only the attributes that conditions link, independently).

    Privacy: a random function of released answers; no data is read.
    Neighbours: any; nothing is spent.
    """
    rows = check_records(domain, rows)
    if constraints is not None:
        tables = [*_published(constraints), *tables]
        total = total if constraints.total is None else constraints.total
    scale = max(total, 1.0)
    one_way = {name: _one_way(name, tables, scale) for name in domain.names}
    margins = {name: margin for name, margin in one_way.items() if margin is not None}
    if constraints is not None:
        margins = {n: _only(m, constraints.possible((n,)), scale) for n, m in margins.items()}
    pairs = _two_way(margins, tables, scale)
    if constraints is not None:
        pairs |= _cut(margins, pairs, constraints, scale)
    model = _Model(domain, margins, pairs, _spanning_tree(margins, pairs))
    codes = model.drawn(rows, random)
    if constraints is not None:
        codes = model.redrawn(codes, constraints, random)
    columns = dict(zip(domain.names, codes, strict=True))
    return Synthetic(columns, _notes(tables, model.unknown, model.tree))


@dataclass(frozen=True, eq=False)
class _Model:
    """One-way margins, tables of pairs, and the tree: every attribute after its parent."""

    domain: Domain
    margins: dict[str, Array]
    pairs: dict[Pair, Array]
    tree: list[tuple[str, str | None]]

    @property
    def unknown(self) -> list[str]:
        """Attributes that no table holds: they are drawn uniformly."""
        return [n for n in self.domain.names if n not in self.margins]

    def drawn(self, rows: int, random: WordSource) -> Integers:
        """So many records (attribute x record)."""
        codes: dict[str, Integers] = {}
        for child, parent in self.tree:
            if parent is None:
                first_row = np.zeros(rows, dtype=np.int64)
                codes[child] = draw_columns(self.margins[child][None, :], first_row, random)
                continue
            is_turned = (parent, child) not in self.pairs
            table = self.pairs[child, parent].T if is_turned else self.pairs[parent, child]
            codes[child] = draw_columns(
                _with_fallback(table, self.margins[child]), codes[parent], random
            )
        for name in self.unknown:
            codes[name] = integers_below(self.domain[name].size, rows, random)
        return np.stack([codes[n] for n in self.domain.names])

    def redrawn(self, codes: Integers, constraints: Constraints, random: WordSource) -> Integers:
        """The records with impossible ones drawn again, until none is."""
        for _ in range(LIMITS.redraws):
            bad = np.flatnonzero(~constraints.are_possible(codes))
            if not len(bad):
                return codes
            codes[:, bad] = self.drawn(len(bad), random)
        from sfumato.refine.row_problem import make_possible

        even = {n: np.ones(self.domain[n].size) for n in self.unknown}
        shares = [self.margins[n] if n in self.margins else even[n] for n in self.domain.names]

        return make_possible(constraints, codes, shares, partial(uniforms, random))


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
        share = _share_beyond_noise(shift, table.margin_error(pair))
        if share > 0:
            out[pair] = _fitted(project_to_simplex(apart + share * shift, total), a, b)
    return out


def _share_beyond_noise(shift: Array, error: float) -> float:
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


def _quotient(goal: Array, got: Array) -> Array:
    return np.divide(goal, got, out=np.zeros_like(goal), where=got > 0)


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


# Records of weighted cells

FRACTION_BITS: Final = 53


def check_records(domain: Domain, rows: object) -> int:
    """The number of records; refused if it is below 0, or too many to draw at once."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise WorkloadError(f"the number of synthetic records must be 0 or more, got {rows!r}")
    if rows * len(domain) > LIMITS.synthetic_values:
        raise TooLarge(
            f"{rows:,} records of {len(domain)} attributes are {rows * len(domain):,} values, the "
            f"limit is {LIMITS.synthetic_values:,}; draw them in parts"
        )
    return int(rows)


def draw_records(
    workload: Workload,
    refined: Refined,
    rows: int,
    random: WordSource,
    constraints: Constraints | None = None,
) -> Synthetic | None:
    """So many records in random order, from the weighted cells behind published answers.

    Systematic sampling (Madow, Madow 1944, "On the theory of systematic sampling"): one uniform
    number u, and record i is the cell at ``(i + u) / rows`` of the running weights. Every cell
    comes up as often as its weight says, rounded down or up, so the records answer the workload as
    the weights do, but for less than one record per cell. Cells that no query tells apart share
    their weight evenly.

    With ``constraints``, which the cells meet, no record is impossible, and the counts of the first
    published table, scaled, are met to one record.

    Returns:
        The records, or None if no cell carries weight.
    """
    rows = check_records(workload.domain, rows)
    if not refined.total > 0:
        return None
    order = _order(refined, constraints)
    chosen = order[_systematic(refined.weights[order], rows, random)]
    chosen = chosen[np.argsort(random.words(rows), kind="stable")]
    codes: dict[str, Integers] = {}
    for i, name in enumerate(refined.attributes):
        codes[name] = _among_alike(refined.codes[chosen, i], refined.alike.get(name), random)
    codes = _completed(workload.domain, codes, rows, random, constraints)
    return Synthetic(codes, _notes_of_cells(workload, refined, codes, rows, constraints))


def _order(refined: Refined, constraints: Constraints | None) -> Integers:
    """Equal cells side by side, those of the first published table together."""
    first: tuple[str, ...] = ()
    if constraints is not None:
        first = next((t.names for t in constraints.published if t.names), ())
    names = [*(n for n in first if n in refined.attributes), *refined.attributes]
    keys = [refined.codes[:, refined.attributes.index(n)] for n in dict.fromkeys(names)]
    if not keys:
        return np.arange(len(refined.weights))
    return np.asarray(np.lexsort(keys[::-1]), dtype=np.int64)


def _completed(
    domain: Domain,
    codes: dict[str, Integers],
    rows: int,
    random: WordSource,
    constraints: Constraints | None,
) -> dict[str, Integers]:
    """The records with the attributes that no answer reads: as published and possible, or even."""
    drawn_before = set(codes)
    for table in () if constraints is None else constraints.published:
        new = [n for n in table.names if n not in codes]
        old = [n for n in table.names if n in codes]
        if not new:
            continue
        turned = table.values.transpose([table.names.index(n) for n in (*old, *new)])
        shape, sizes = turned.shape[: len(old)], turned.shape[len(old) :]
        rows_of = np.zeros(rows, dtype=np.int64)
        if old:
            rows_of = np.ravel_multi_index(tuple(codes[n] for n in old), shape).astype(np.int64)
        drawn = draw_columns(turned.reshape(prod(shape), prod(sizes)), rows_of, random)
        codes |= dict(zip(new, np.unravel_index(drawn, sizes), strict=True))
    full = {
        n: codes[n] if n in codes else integers_below(domain[n].size, rows, random)
        for n in domain.names
    }
    if constraints is None or not rows:
        return full
    even = [np.ones(domain[n].size) for n in domain.names]
    stacked = np.stack([full[n] for n in domain.names])
    drawn = make_possible(constraints, stacked, even, partial(uniforms, random), fixed=drawn_before)
    return dict(zip(domain.names, drawn, strict=True))


def _systematic(weights: Array, rows: int, random: WordSource) -> Integers:
    edges = np.cumsum(weights)
    start = float(integers_below(2**FRACTION_BITS, 1, random)[0]) * 2.0**-FRACTION_BITS
    at = (np.arange(rows) + start) * (edges[-1] / max(rows, 1))
    places = np.searchsorted(edges, at, side="right")
    last = int(np.flatnonzero(weights > 0)[-1])  # rounding may reach the end
    return np.asarray(np.minimum(places, last), dtype=np.int64)


def _among_alike(column: Integers, alike: Integers | None, random: WordSource) -> Integers:
    """A uniform choice among the cells of the same class; ``alike`` numbers the class of a cell."""
    if alike is None:
        return column
    order = np.argsort(alike, kind="stable")
    sizes = np.bincount(alike)
    first = np.cumsum(sizes) - sizes
    out = column.copy()
    for label in np.flatnonzero(sizes > 1).tolist():
        here = np.flatnonzero(alike[column] == label)
        picked = integers_below(int(sizes[label]), len(here), random)
        out[here] = order[first[label] + picked]
    return out


def _notes_of_cells(
    workload: Workload,
    refined: Refined,
    codes: dict[str, Integers],
    rows: int,
    constraints: Constraints | None,
) -> tuple[str, ...]:
    notes = [f"drawn from published answers: {refined.describe()}"]
    if rows:
        error, spread = _difference(workload, refined, codes, rows)
        notes.append(
            f"scaled to {refined.total:,.0f} records, their answers differ from the published ones "
            f"by {error:.3g} (root mean square; the published answers are {spread:.3g})"
        )
    named = set(refined.attributes)
    if constraints is not None:
        named.update(*(t.names for t in constraints.published))
        notes.append("no record is one that the constraints call impossible")
        notes += [_published_note(t, codes, rows) for t in constraints.published if rows]
    unknown = [n for n in workload.domain.names if n not in named]
    if unknown:
        notes.append(
            f"no released answer looks at {', '.join(unknown)}: drawn uniformly, which says nothing"
        )
    return tuple(notes)


def _published_note(table: Published, codes: dict[str, Integers], rows: int) -> str:
    own = np.zeros(table.values.shape)
    np.add.at(own, tuple(codes[n] for n in table.names), 1.0)
    off = float(np.abs(own * (table.total / rows) - table.values).max())
    name = " x ".join(table.names) or "total"
    return f"scaled to {table.total:,.0f} records, they meet the published {name} within {off:.3g}"


def _difference(
    workload: Workload, refined: Refined, codes: dict[str, Integers], rows: int
) -> tuple[float, float]:
    """Root mean squares of records against published answers, and of these; all public."""
    squares, size, count = 0.0, 0.0, 0
    for term, published in zip(workload.terms, refined.answers, strict=True):
        if term.is_wide:
            continue
        places = np.zeros(rows, dtype=np.int64)
        for name in term.attributes:
            places = places * workload.domain[name].size + codes[name]
        table = np.bincount(places, minlength=term.cells).reshape(term.shape)
        own = term.answer(table * (refined.total / rows))
        squares += float(((own - published) ** 2).sum())
        size += float((published**2).sum())
        count += term.rows
    return sqrt(squares / max(count, 1)), sqrt(size / max(count, 1))
