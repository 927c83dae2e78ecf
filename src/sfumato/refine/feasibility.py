# SPDX-License-Identifier: Apache-2.0
"""Rows that meet all constraints, or a refusal where no data set does, before anything is spent.

Impossible combinations alone leave records (``workload/constraints.py`` sees to that). Published
tables that agree on what they share need not come from one table: A x B, B x C and A x C can form
a circle that nobody closes, and a condition can forbid what the tables need together.

1. An attribute of one table only, that no condition looks at, can be summed out, and a table within
   another left out: what remains, the *core*, decides (Graham 1979; Yu, Ozsoyoglu 1979). Nothing
   remains of tables without a circle, so agreeing on what they share is enough for them (Vorob'ev
   1962, "Consistent families of measures and their extensions").
2. Parts of the core that share no attribute and no condition are solved apart, on their cells. A
   part is met by weighted cells, which are shown, or by none, which the gap of a projection proves
   (``cells.published_cells``).
3. The tables are joined to the solved parts one by one, those first that share most (a junction
   tree: Beeri, Fagin, Maier, Yannakakis 1983, "On the desirability of acyclic database schemes"),
   each within the cells of what it shares, in the order of the cells (the north-west corner rule):
   so the rows are no more than the cells of all tables, however large the domain is.

Public arithmetic: constraints come from no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import TooLarge
from sfumato.refine.cells import nearest, published_cells
from sfumato.refine.problem import Grid
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.nonnegative import rake
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "FeasibleRows",
    "witness",
]


@dataclass(frozen=True, eq=False)
class FeasibleRows:
    """Weighted rows (attribute x row) that meet all constraints, but for ``off`` of all records."""

    codes: Integers
    weights: Array
    off: float


@dataclass(frozen=True, eq=False)
class _Cluster:
    """Weighted cells of some attributes (cell x attribute)."""

    names: tuple[str, ...]
    cells: Integers
    weights: Array


def witness(constraints: Constraints) -> FeasibleRows:
    """Rows that meet the constraints; refused where there are none.

    Raises ``TooLarge`` where neither can be shown.
    """
    domain, tables = constraints.domain, constraints.published
    if not any(t.names for t in tables) or not constraints.total:
        count = 1 if constraints.total else 0
        codes = constraints.completed((), np.zeros((count, 0), dtype=np.int64))
        return FeasibleRows(codes, np.full(count, constraints.total or 0.0), 0.0)
    solved = [_solved(constraints, part) for part in _parts(constraints)]
    whole = [c.names for c in solved]
    rest = [
        _Cluster(t.names, np.argwhere(t.values > 0), t.values[t.values > 0])
        for t in tables
        if not any(set(t.names) <= set(names) for names in whole)
    ]
    joined = _joined([*solved, *rest])
    ordered = domain.in_order(joined.names)
    cells = joined.cells[:, [joined.names.index(n) for n in ordered]]
    codes = constraints.completed(ordered, cells)
    off = max(_off(constraints, t, codes, joined.weights) for t in tables)
    if off > WORKLOAD_LIMITS.published_gap:
        raise _undecided(f"rows were found that are off by {off:.2g} of all records")
    return FeasibleRows(codes, joined.weights, off)


def _parts(constraints: Constraints) -> list[list[Published]]:
    """The tables of the core, those together that share an attribute or a condition."""
    links = [set(part.classes.names) for part in constraints.linked]
    groups: list[tuple[set[str], list[Published]]] = []
    for table in constraints.published_for(()):
        if not table.names:
            continue
        names = set(table.names).union(*(link for link in links if link & set(table.names)))
        members = [table]
        for group in [g for g in groups if g[0] & names]:
            names |= group[0]
            members = [*group[1], *members]
            groups.remove(group)
        groups.append((names, members))
    return [members for _, members in groups]


def _solved(constraints: Constraints, tables: Sequence[Published]) -> _Cluster:
    """Weighted cells that have these margins."""
    domain = constraints.domain
    names = domain.in_order({n for t in tables for n in t.names})
    if len(tables) == 1 and tables[0].names == names:  # checked against conditions when it was read
        held = tables[0].values * constraints.possible(names)
        return _Cluster(names, np.argwhere(held > 0), held[held > 0])
    cells_of = tuple(np.arange(domain[n].size, dtype=np.int64) for n in names)
    grid = Grid(domain, names, cells_of, constraints, tuple(tables))
    if grid.size > LIMITS.cells_listed:
        raise _undecided(
            f"the published tables go round in a circle of {len(names)} attributes with "
            f"{grid.size:,} cells together, at most {LIMITS.cells_listed:,} are looked at"
        )
    cells = published_cells(grid, nearest)
    places = grid.places(cells.cells, [grid.axes(t.names) for t in tables])
    met = rake(cells.weights, list(places.T), [t.values.reshape(-1) for t in tables])
    if met.off > WORKLOAD_LIMITS.published_gap:
        raise _undecided(f"the nearest counts that were found are off by {met.off:.2g} of them")
    used = met.weights > 0
    return _Cluster(names, grid.codes(cells.cells[used]), met.weights[used])


def _joined(clusters: Sequence[_Cluster]) -> _Cluster:
    """All clusters as one, each given what it shares with those before."""
    out, waiting, done = clusters[0], list(clusters[1:]), [set(clusters[0].names)]
    while waiting:
        shared = [max(len(d & set(c.names)) for d in done) for c in waiting]
        chosen = waiting.pop(int(np.argmax(shared)))
        done.append(set(chosen.names))
        out = _coupled(out, chosen)
    return out


def _coupled(one: _Cluster, other: _Cluster) -> _Cluster:
    """Both clusters as one, coupled within what they share: every edge of the sums is a row."""
    shared = [n for n in one.names if n in other.names]
    new = [i for i, n in enumerate(other.names) if n not in shared]
    key, twin = _keys(one, other, shared)
    order, turn = np.argsort(key, kind="stable"), np.argsort(twin, kind="stable")
    key, twin = key[order], twin[turn]
    size = int(max(key.max(initial=0), twin.max(initial=0))) + 1
    have = np.bincount(key, one.weights[order], minlength=size)
    shared_weights = np.bincount(twin, other.weights[turn], minlength=size)
    scale = np.divide(have, shared_weights, out=np.zeros(size), where=shared_weights > 0)
    mine = np.cumsum(one.weights[order])
    theirs = np.cumsum(other.weights[turn] * scale[twin])
    edges = np.unique(np.concatenate([[0.0], mine, theirs]))
    lengths = np.diff(edges)
    held = lengths > LIMITS.sliver * mine[-1]
    middles = edges[:-1][held] + lengths[held] / 2
    first = np.minimum(np.searchsorted(mine, middles, side="right"), len(mine) - 1)
    second = np.minimum(np.searchsorted(theirs, middles, side="right"), len(theirs) - 1)
    same = key[first] == twin[second]  # else a sliver at the edge of two shared cells
    first, second = order[first[same]], turn[second[same]]
    cells = np.concatenate([one.cells[first], other.cells[second][:, new]], axis=1)
    names = (*one.names, *(other.names[i] for i in new))
    return _Cluster(names, cells, lengths[held][same])


def _keys(one: _Cluster, other: _Cluster, shared: Sequence[str]) -> tuple[Integers, Integers]:
    """The shared cell of every cell of both, numbered alike."""
    columns = [
        np.concatenate([one.cells[:, one.names.index(n)], other.cells[:, other.names.index(n)]])
        for n in shared
    ]
    count = len(one.cells)
    if not columns:
        return np.zeros(count, dtype=np.int64), np.zeros(len(other.cells), dtype=np.int64)
    _, at = np.unique(np.stack(columns), axis=1, return_inverse=True)
    flat = np.asarray(at.reshape(-1), dtype=np.int64)
    return flat[:count], flat[count:]


def _off(constraints: Constraints, table: Published, codes: Integers, weights: Array) -> float:
    columns = tuple(codes[constraints.domain.index(n)] for n in table.names)
    none = np.zeros(codes.shape[1], dtype=np.int64)
    at = np.ravel_multi_index(columns, table.values.shape) if columns else none
    sums = np.bincount(at, weights, minlength=table.values.size)
    return float(np.abs(sums - table.values.reshape(-1)).max()) / table.total


def _undecided(why: str) -> TooLarge:
    return TooLarge(
        f"nobody can tell whether a data set meets the constraints: {why}; leave one of the "
        "published tables out, or use wider bins for them"
    )
