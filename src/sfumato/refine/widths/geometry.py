# SPDX-License-Identifier: Apache-2.0
"""The hull of possible answers, known by how far it reaches in every direction.

A record in cell j answers the queries with column ``F e_j``, so n records answer with a point of
``n K`` where ``K = conv {F e_j}``. The support function ``h_K(y) = max_j <y, F e_j>`` is all that
projection and its theory need of K (A. Nikolov, K. Talwar, L. Zhang 2013, "The geometry of
differential privacy: the sparse and approximate cases").

``<y, F e_j>`` is a sum of tables, one per set of attributes that some group of queries reads: the
adjoint of each group. Its maximum is found by eliminating one attribute after another (U. Bertele,
F. Brioschi 1972, "Nonserial dynamic programming"): all tables that read the attribute are added up
and their maximum over it is a table over what is left. This is exact, and builds no table of more
than ``MOST_CELLS`` cells where the groups overlap little, whatever the size of the domain. Where
they overlap too much there are bounds: from above by agreement of the tables (``splitting.py``),
from below by climbing from cell to cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.draws import Draws
from sfumato.wording import shown
from sfumato.workload.classes import joint_classes
from sfumato.workload.queries import Array, Integers
from sfumato.workload.terms import Predicates, Term
from sfumato.workload.workload import Workload

__all__ = ["Hull", "Support", "support"]

MOST_CELLS = 10_000_000  # of a table that is built
MOST_QUERIES = 2**27
MOST_ENTRIES = 2**23  # coefficients that are written out
_PER_TABLE = 20_000  # additions that take as long as handling a table
_CHUNK = 2**18  # entries of a table that are added up at once

Names = tuple[str, ...]
Tables = dict[Names, Array]


@dataclass(frozen=True, slots=True)
class Support:
    """How far the hull reaches: ``lower`` is attained at ``cell``, no cell exceeds ``upper``.

    ``cell`` has the number of a value for every attribute that a query looks at. As a number it is
    ``upper``, which is never too small.
    """

    lower: float
    upper: float
    cell: Mapping[str, int]

    @property
    def is_exact(self) -> bool:
        """Whether both bounds are one number."""
        return self.lower == self.upper

    def __float__(self) -> float:
        return self.upper


def support(workload: Workload, direction: Array) -> Support:
    """``max over cells of <direction, column of the cell>``, one number per query as direction.

    >>> import sfumato as sf
    >>> work = sf.prefixes(sf.Domain({"age": 4}), "age")
    >>> float(support(work, np.array([1.0, -2.0, 1.0, 1.0])))
    2.0
    """
    hull = Hull.of(workload)
    return hull.support(hull.checked(direction))


@dataclass(frozen=True, eq=False)
class Hull:
    """``conv {F e_j}`` of a workload, as an oracle for its support function."""

    workload: Workload

    @classmethod
    def of(cls, workload: Workload) -> Hull:
        """The hull of a workload, kept for a while; one whose tables cannot be built is refused."""
        if not isinstance(workload, Workload):
            raise WorkloadError(
                f"a hull is one of a workload such as sf.marginals(domain, 2), got "
                f"{type(workload).__name__}"
            )
        if workload.queries > MOST_QUERIES:
            raise TooLarge(
                f"a direction of {workload.queries:,} queries takes "
                f"{8 * workload.queries / 2**30:,.1f} GiB, the limit is {MOST_QUERIES:,} queries; "
                "ask for fewer"
            )
        hull = _kept(workload)
        for term in workload.terms:
            cells = prod(hull.sizes[n] for n in term.attributes)
            if cells > MOST_CELLS or not term.has_small_classes:
                raise TooLarge(
                    f"group {term.name!r} tells {cells:,} cells apart, the limit is "
                    f"{MOST_CELLS:,}; ask about fewer attributes at once or use wider bins"
                )
        return hull

    def checked(self, direction: object) -> Array:
        """The direction as numbers, one for every query."""
        try:
            y = np.asarray(direction, dtype=np.float64)
        except (TypeError, ValueError):
            raise WorkloadError(f"a direction is made of numbers, got {shown(direction)}") from None
        if y.shape != (self.workload.queries,):
            raise WorkloadError(
                f"a direction has one number for each of the {self.workload.queries:,} queries, "
                f"got an array of shape {y.shape}"
            )
        if not np.isfinite(y).all():
            raise WorkloadError("a number of the direction is not finite")
        return y

    @cached_property
    def class_of(self) -> dict[str, Integers]:
        """For every attribute that is read, the class of each cell; no condition tells it apart."""
        out: dict[str, Integers] = {}
        for name in self.names:
            readers = [t for t in self.workload.terms if name in t.attributes]
            found = [_classes(t, name) for t in readers]
            known = [f for f in found if f is not None]
            is_merged = len(known) == len(found)
            out[name] = (
                joint_classes(known)
                if is_merged
                else np.arange(self.workload.domain[name].size, dtype=np.int64)
            )
        return out

    @cached_property
    def representatives(self) -> dict[str, Integers]:
        """The first cell of every class."""
        return {n: np.unique(of, return_index=True)[1] for n, of in self.class_of.items()}

    @cached_property
    def names(self) -> Names:
        """The attributes that some query reads."""
        return self.workload.domain.in_order(n for t in self.workload.terms for n in t.attributes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many classes each of them has."""
        return {n: len(r) for n, r in self.representatives.items()}

    @property
    def cells(self) -> int:
        """No more different columns than this."""
        return prod(self.sizes.values())

    def tables(self, direction: Array) -> Tables:
        """``F'y`` as one table per set of attributes: a cell's value is the sum of its entries."""
        out: Tables = {}
        start = 0
        for term in self.workload.terms:
            part = self._table(term, direction[start : start + term.rows])
            start += term.rows
            known = out.get(term.attributes)
            out[term.attributes] = part if known is None else known + part
        return out

    @property
    def is_small(self) -> bool:
        """Whether F itself can be written out."""
        return self.workload.queries * self.cells <= MOST_ENTRIES

    @cached_property
    def matrix(self) -> Array:
        """F itself, one column for every combination of classes."""
        if not self.is_small:
            raise TooLarge(
                f"{self.workload.queries:,} queries on {self.cells:,} cells are too many to write "
                f"out, the limit is {MOST_ENTRIES:,} coefficients; ask for fewer or wider bins"
            )
        shape = tuple(self.sizes[n] for n in self.names)
        rows = [
            np.broadcast_to(_spread(self._table(t, unit), t.attributes, self.names), shape).ravel()
            for t in self.workload.terms
            for unit in np.eye(t.rows)
        ]
        return np.array(rows).reshape(self.workload.queries, -1)

    def _table(self, term: Term, y: Array) -> Array:
        picked = [self.representatives[n] for n in term.attributes]
        if isinstance(term, Predicates) and term.attributes:
            merged = np.asarray(term.by_class.T @ y).reshape(term.classes.shape)
            pairs = zip(term.classes.class_of, picked, strict=True)
            return np.asarray(merged[np.ix_(*(of[cells] for of, cells in pairs))])
        # Read by other terms than conditions: every cell is a class of its own.
        return np.asarray(term.adjoint(y), dtype=np.float64).reshape(term.shape)

    @cached_property
    def order(self) -> Names | None:
        """The attributes in an order of elimination that builds small tables; None if none is."""
        sets = {frozenset(t.attributes) for t in self.workload.terms}
        left, out = set(self.names), []
        while left:
            costs = {v: _joined(sets, v) for v in sorted(left)}
            best = min(costs, key=lambda v: prod(self.sizes[n] for n in costs[v]))
            if prod(self.sizes[n] for n in costs[best]) > MOST_CELLS:
                return None
            sets = {s for s in sets if best not in s} | {costs[best] - {best}}
            left.remove(best)
            out.append(best)
        return tuple(out)

    @property
    def is_exact(self) -> bool:
        """Whether the support function is known exactly in every direction."""
        return self.order is not None

    @cached_property
    def effort(self) -> int:
        """Numbers that are added up for one direction."""
        sets = {frozenset(t.attributes) for t in self.workload.terms}
        total = self.workload.queries
        total += sum(prod(self.sizes[n] for n in t.attributes) for t in self.workload.terms)
        for name in self.order or ():
            joined = _joined(sets, name)
            readers = sum(name in s for s in sets)
            total += (prod(self.sizes[n] for n in joined) + _PER_TABLE) * readers
            sets = {s for s in sets if name not in s} | {joined - {name}}
        return total

    def support(self, direction: Array) -> Support:
        """The support function at a checked direction."""
        tables = self.tables(direction)
        if self.order is None:
            from sfumato.refine.outer.splitting import agreed, climbed

            split = agreed(tables, self.sizes)
            codes = climbed(tables, split, self.names, self.sizes, Draws(self.workload.digest()))
            lower = _value(tables, codes)
            return Support(lower, max(split.upper, lower), self._cell(codes))
        codes, value = _eliminated(tables, self.order, self.sizes)
        return Support(value, value, self._cell(codes))

    def reach(self, direction: Array) -> tuple[Array, Array]:
        """Lower and upper bounds on ``h(y)`` and ``h(-y)``, as two pairs."""
        if self.order is None:
            both = [self.support(direction), self.support(-direction)]
            return np.array([s.lower for s in both]), np.array([s.upper for s in both])
        tables = self.tables(direction)
        if len(tables) == 1:  # one table gives both ends at once
            (table,) = tables.values()
            ends = np.array([table.max(), -table.min()])
            return ends, ends
        negated = {names: -table for names, table in tables.items()}
        ends = np.array([_greatest(each, self.order, self.sizes) for each in (tables, negated)])
        return ends, ends

    def _cell(self, codes: Mapping[str, int]) -> dict[str, int]:
        return {n: int(self.representatives[n][codes[n]]) for n in self.names}


@lru_cache(maxsize=2)
def _kept(workload: Workload) -> Hull:
    return Hull(workload)


def _joined(sets: set[frozenset[str]], name: str) -> frozenset[str]:
    """All attributes of the sets that hold this one."""
    return frozenset({name}).union(*(s for s in sets if name in s))


def _classes(term: Term, name: str) -> Integers | None:
    """The classes of cells that conditions do not tell apart; None for other terms."""
    if not isinstance(term, Predicates):
        return None
    return term.classes.class_of[term.attributes.index(name)]


def _value(tables: Tables, codes: Mapping[str, int]) -> float:
    return float(sum(table[tuple(codes[n] for n in names)] for names, table in tables.items()))


def _eliminated(
    tables: Tables, order: Names, sizes: Mapping[str, int]
) -> tuple[dict[str, int], float]:
    """A heaviest cell and its value: forwards the maxima, backwards the choices."""
    left = list(tables.items())
    choices: list[tuple[str, Names, Integers]] = []
    for name in order:
        inside = [f for f in left if name in f[0]]
        rest = _rest(inside, name, sizes)
        best, at = _maximum(inside, rest, name, sizes, is_located=True)
        left = [f for f in left if name not in f[0]] + [(rest, best)]
        choices.append((name, rest, at))
    codes: dict[str, int] = {}
    for name, rest, at in reversed(choices):
        codes[name] = int(at[tuple(codes[n] for n in rest)])
    return codes, _value(tables, codes)


def _greatest(tables: Tables, order: Names, sizes: Mapping[str, int]) -> float:
    left = list(tables.items())
    for name in order:
        inside = [f for f in left if name in f[0]]
        rest = _rest(inside, name, sizes)
        best, _ = _maximum(inside, rest, name, sizes, is_located=False)
        left = [f for f in left if name not in f[0]] + [(rest, best)]
    return float(sum(float(table) for _, table in left))


def _rest(inside: list[tuple[Names, Array]], name: str, sizes: Mapping[str, int]) -> Names:
    """The other attributes, in the order of the domain."""
    found = {n for names, _ in inside for n in names if n != name}
    return tuple(n for n in sizes if n in found)


def _maximum(
    inside: list[tuple[Names, Array]],
    rest: Names,
    name: str,
    sizes: Mapping[str, int],
    is_located: bool,
) -> tuple[Array, Integers]:
    """``max over one attribute of the sum of the tables``, in chunks of the first other one."""
    names = (*rest, name)
    spread = [_spread(table, has, names) for has, table in inside]
    shape = tuple(sizes[n] for n in names)
    if not rest:
        total = np.zeros(shape)
        for table in spread:
            total += table
        return np.asarray(total.max()), np.asarray(total.argmax())
    best = np.empty(shape[:-1])
    at = np.empty(shape[:-1] if is_located else (0,), dtype=np.int64)
    step = max(1, _CHUNK // max(1, prod(shape[1:])))
    for start in range(0, shape[0], step):
        part = np.zeros((min(step, shape[0] - start), *shape[1:]))
        for table in spread:
            part += table[start : start + step] if table.shape[0] > 1 else table
        best[start : start + step] = part.max(axis=-1)
        if is_located:
            at[start : start + step] = part.argmax(axis=-1)
    return best, at


def _spread(table: Array, has: Names, names: Names) -> Array:
    """The table with an axis of length 1 for every attribute that it does not read."""
    order = [has.index(n) for n in names if n in has]
    shape = iter(table.transpose(order).shape)
    return table.transpose(order).reshape([next(shape) if n in has else 1 for n in names])
