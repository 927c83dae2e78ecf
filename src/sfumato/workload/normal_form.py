# SPDX-License-Identifier: Apache-2.0
"""One form per meaning: equal sets of queries have equal bytes and equal terms.

A request is what is asked, not how it was written. A query is the row of its coefficients over the
cells of the domain; almost every row is a factor and, for the attributes that it looks at, one
primitive vector each, which its *symbol* stands for (`primitive_rows.py`). A group of queries is a
box: a set of symbols per attribute. The set of all rows over the same attributes is a relation
between symbols, and its decision diagram in the order of the domain, equal nodes merged, is the
same for every union of boxes with the same rows (Bryant 1986, "Graph-based algorithms for Boolean
function manipulation", Theorem 1; for several values per variable: Srinivasan, Kam, Malik, Brayton
1990, "Algorithms for discrete function manipulation"). Rows that are no products enter one by one.
A row that is asked twice is asked once, with the maximum of its weights; of weights only the ratios
count.

`normal_form` returns the key of a workload, the hash of all that: different sets of queries have
different bytes before they are hashed; the terms made of it, which the planner plans for; and where
every query of the workload is among them. Beyond the limits of the room a part enters as it was
written: then another writing of the same queries may be another request, but never the other way
round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sfumato.digest import canonical_json, sha256
from sfumato.domain.domain import Domain
from sfumato.types import Array, Integers
from sfumato.workload.predicates import And, Condition, In
from sfumato.workload.primitive_rows import (
    ONE,
    Box,
    Loose,
    Part,
    Reader,
    Symbol,
    SymbolAxis,
    ends_of,
    interval_symbol,
    sha,
)
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Windows,
    check_entries,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.workload.workload import Workload

__all__ = [
    "Normal",
    "Placement",
    "normal_form",
]

T = TypeVar("T")

# Diagrams of boxes


@dataclass(frozen=True, eq=False, slots=True)
class _Node:
    """A node of a diagram: which symbols of the next attribute lead where; a leaf has a weight."""

    key: bytes
    branches: tuple[tuple[tuple[Symbol, ...], _Node], ...] = ()
    weight: Fraction | None = None


class _TooMany(Exception):
    """The diagram has more steps than are taken."""


class _BoxDiagram:
    """The decision diagram of a union of boxes over the same attributes."""

    def __init__(self, axes: Sequence[SymbolAxis], boxes: Sequence[Box]) -> None:
        self._axes, self._boxes = axes, boxes
        self._nodes: dict[tuple[int, int], _Node] = {}
        self._steps = 0
        self.root = self._chain() if len(boxes) == 1 else self._node(0, (1 << len(boxes)) - 1)

    def _chain(self) -> _Node:
        """The diagram of one box."""
        node = _leaf(self._boxes[0].weight)
        for axis, symbols in zip(self._axes[::-1], self._boxes[0].symbols[::-1], strict=True):
            branch = axis.ordered(symbols)
            node = _Node(sha(b"node", axis.set_hash(branch), node.key), ((branch, node),))
        return node

    def _node(self, depth: int, active: int) -> _Node:
        if (depth, active) not in self._nodes:
            self._nodes[depth, active] = self._made(depth, active)
        return self._nodes[depth, active]

    def _made(self, depth: int, active: int) -> _Node:
        inside = _bits(active)
        if depth == len(self._axes):
            return _leaf(max(self._boxes[i].weight for i in inside))
        masks: dict[Symbol, int] = {}
        for i in inside:
            symbols = self._boxes[i].symbols[depth]
            self._steps += len(symbols)
            if self._steps > LIMITS.diagram_steps:
                raise _TooMany
            bit = 1 << i
            for symbol in symbols:
                masks[symbol] = masks.get(symbol, 0) | bit
        by_mask: dict[int, list[Symbol]] = {}
        for symbol, mask in masks.items():
            by_mask.setdefault(mask, []).append(symbol)
        by_child: dict[bytes, tuple[_Node, list[Symbol]]] = {}
        for mask, listed in by_mask.items():
            child = self._node(depth + 1, mask)
            by_child.setdefault(child.key, (child, []))[1].extend(listed)
        branches = [(tuple(sorted(symbols)), child) for child, symbols in by_child.values()]
        branches.sort(key=lambda branch: branch[0][0])
        axis = self._axes[depth]
        parts = [
            part for symbols, child in branches for part in (axis.set_hash(symbols), child.key)
        ]
        return _Node(sha(b"node", *parts), tuple(branches))


def _leaf(weight: Fraction) -> _Node:
    return _Node(sha(b"leaf", str(weight).encode()), (), weight)


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _paths(node: _Node) -> Iterator[tuple[tuple[tuple[Symbol, ...], ...], Fraction]]:
    """The boxes of a diagram: disjoint, and the same for the same rows."""
    if node.weight is not None:
        yield (), node.weight
        return
    for symbols, child in node.branches:
        for rest, weight in _paths(child):
            yield (symbols, *rest), weight


def _holds(node: _Node, sets: Sequence[tuple[Symbol, ...]], weight: Fraction) -> bool:
    """Whether all rows of a box are in the diagram, with this weight."""
    if node.weight is not None:
        return node.weight == weight
    missing = set(sets[0])
    for symbols, child in node.branches:
        common = missing.intersection(symbols)
        if common:
            if not _holds(child, sets[1:], weight):
                return False
            missing -= common
    return not missing


# The normal form


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Queries of an asked group and where they are: rows of a group of the normal form.

    None stands for all rows in their order; ``term`` is -1 where the queries are zero.
    """

    rows: Integers | None
    term: int
    at: Integers | None


@dataclass(frozen=True, eq=False)
class Normal:
    """A workload in its normal form.

    Attributes:
        key: SHA-256 of the set of queries with their relative weights, and of the domain.
        workload: groups that depend on that set alone.
        pieces: for every asked group, where its queries are.
    """

    key: str
    workload: Workload
    pieces: tuple[tuple[Placement, ...], ...]

    @property
    def is_in_order(self) -> bool:
        """Whether every asked group is the group of the normal form at the same place."""
        return len(self.pieces) == len(self.workload.terms) and all(
            len(own) == 1 and own[0].term == t and own[0].rows is None and own[0].at is None
            for t, own in enumerate(self.pieces)
        )

    def remembered(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """What ``compute`` returns, once under every key: it lasts as long as the workload."""
        if key not in self._remembered:
            self._remembered.setdefault(key, compute())
        result: T = self._remembered[key]
        return result

    @cached_property
    def _remembered(self) -> dict[tuple[object, ...], Any]:
        return {}

    @cached_property
    def wholes(self) -> list[int | None]:
        """For every asked group the one of the normal form with the same queries, if there is one.

        In whatever order, each of them once.
        """
        return [self._whole(own) for own in self.pieces]

    def _whole(self, pieces: tuple[Placement, ...]) -> int | None:
        if len(pieces) != 1 or pieces[0].rows is not None or pieces[0].term < 0:
            return None
        at, there = pieces[0].at, self.workload.terms[pieces[0].term].rows
        is_same = at is None or len(np.unique(at)) == len(at) == there
        return pieces[0].term if is_same else None

    def gather(self, term: int, numbers: Callable[[int], Array], zero: float = 0.0) -> Array:
        """A number per query of an asked group, from those of the groups of the normal form.

        Args:
            term: the number of the asked group.
            numbers: what gives a number per query of a group of the normal form; it is called
                once for each of these groups, however many pieces lie in it.
            zero: the number of queries that are zero on every cell.
        """
        pieces = self.pieces[term]
        if len(pieces) == 1 and pieces[0].rows is None and pieces[0].term >= 0:
            return _taken(pieces[0], numbers)
        out = np.full(sum(_length(p, self.workload.terms) for p in pieces), zero)
        once = cache(numbers)
        for piece in pieces:
            if piece.term >= 0:
                out[slice(None) if piece.rows is None else piece.rows] = _taken(piece, once)
        return out


def _taken(piece: Placement, numbers: Callable[[int], Array]) -> Array:
    values = numbers(piece.term)
    return values if piece.at is None else values[piece.at]


def _length(piece: Placement, terms: Sequence[Term]) -> int:
    if piece.rows is not None:
        return len(piece.rows)
    return terms[piece.term].rows if piece.at is None else len(piece.at)


@dataclass(frozen=True, eq=False)
class _ProductGroup:
    """A product of the normal form: its symbols, in order, along its attributes.

    Along ``restored`` attributes the sum over all cells is one of them.
    """

    names: tuple[str, ...]
    factor: Fraction
    symbols: tuple[tuple[Symbol, ...], ...]
    weight: Fraction
    lengths: tuple[int, ...]
    restored: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        return prod(self.lengths)

    @cached_property
    def places(self) -> dict[str, dict[Symbol, int]]:
        """Where a symbol is along an attribute."""
        pairs = zip(self.names, self.symbols, strict=True)
        return {name: {s: i for i, s in enumerate(symbols)} for name, symbols in pairs}

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far two rows are apart whose symbols are next to each other along an attribute."""
        return {name: prod(self.lengths[i + 1 :]) for i, name in enumerate(self.names)}


def normal_form(workload: Workload) -> Normal:
    """The normal form of a workload: the same for every way of writing the same queries.

    Args:
        workload: what is asked, in any writing.

    Returns:
        The key of its meaning, the groups to plan for, and where the asked queries are in them.
    """
    tables = _tables(workload)
    if tables is not None:
        return tables
    form = _Form(workload)
    try:
        return form.normal()
    except _TooMany:
        own = tuple((Placement(None, t, None),) for t in range(len(workload.terms)))
        return Normal(form.key(), replace(workload, ratios=(), statements=()), own)


def _tables(workload: Workload) -> Normal | None:
    """The normal form of tables, each asked once with weight 1, without a look at their cells.

    The same that `_Form` makes of them, in a tenth of the time; None for other workloads.
    """
    domain = workload.domain
    index = {name: i for i, name in enumerate(domain.names)}
    cells: dict[str, bytes] = {}
    numbers: dict[tuple[int, ...], int] = {}
    diagrams: list[list[object]] = []
    for t, term in enumerate(workload.terms):
        table = term.as_product()
        if table is None or table.weight != 1 or len(table.factors) > LIMITS.product_attributes:
            return None
        key = _leaf(ONE).key
        for name, queries in reversed(table.factors):
            if not queries.is_identity or not 1 < queries.size <= LIMITS.axis_queries:
                return None
            if name not in cells:
                cells[name] = sha(*(interval_symbol(i, i + 1) for i in range(queries.size)))
            key = sha(b"node", cells[name], key)
        names = [name for name, _ in table.factors]
        places = tuple(index[name] for name in names)
        if places in numbers or list(places) != sorted(places):
            return None
        numbers[places] = t
        diagrams.append([names, str(ONE), key.hex()])
    if not numbers:
        return None
    order = sorted(numbers, key=lambda places: (len(places), places))
    terms = []
    for places in order:
        term = workload.terms[numbers[places]]
        name = " x ".join(domain.names[i] for i in places) or "total"
        terms.append(term if term.name == name else replace(term, name=name))
    at = {numbers[places]: i for i, places in enumerate(order)}
    pieces = tuple((Placement(None, at[t], None),) for t in range(len(workload.terms)))
    key_of_all = _key(domain, False, diagrams, [], [], [])
    return Normal(key_of_all, type(workload)(domain, tuple(terms)), pieces)


def _key(domain: Domain, zero: bool, *parts: list[list[object]]) -> str:
    """SHA-256 of the domain and of rows with their weights: diagrams, boxes, loose rows, wholes."""
    listed = [sorted(part) for part in parts]
    text = canonical_json(["sfumato queries 2", zero, *listed])
    return sha256(domain.digest().encode() + text.encode())


class _Form:
    """The groups of a workload's normal form, and the places of its queries in them."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.domain = workload, workload.domain
        self.reader = Reader(workload.domain, workload.terms)
        self.axes = self.reader.axes
        self.diagrams: dict[tuple[tuple[str, ...], Fraction], _Node] = {}
        self.written: dict[tuple[tuple[str, ...], Fraction], list[Box]] = {}
        for key, boxes in self.reader.boxes.items():
            try:
                self.diagrams[key] = _BoxDiagram([self.axes[name] for name in key[0]], boxes).root
            except _TooMany:
                self.written[key] = boxes
        self.terms: list[Term] = []
        # Where rows are: products by their attributes, single conditions, rows of other kinds.
        self.homes: dict[tuple[tuple[str, ...], Fraction], list[tuple[int, _ProductGroup]]] = {}
        self.single: dict[tuple[tuple[str, ...], tuple[Symbol, ...]], tuple[int, int]] = {}
        self.loose: dict[bytes, tuple[int, int]] = {}
        self._sets: dict[tuple[str, tuple[Symbol, ...]], QuerySet] = {}

    def key(self) -> str:
        """SHA-256 of the domain and the set of rows with their weights."""
        diagrams: list[list[object]] = [
            [list(names), str(factor), root.key.hex()]
            for (names, factor), root in self.diagrams.items()
        ]
        written: list[list[object]] = [
            [list(names), str(factor), sorted({self._box_key(b).hex() for b in boxes})]
            for (names, factor), boxes in self.written.items()
        ]
        loose: list[list[object]] = [
            [row.key.hex(), str(row.weight)] for row in self.reader.loose.values()
        ]
        wholes: list[list[object]] = [
            [w.key.hex(), str(w.weight)] for w in self.reader.wholes.values()
        ]
        zero = any(what is None for readings in self.reader.read for what, _ in readings)
        return _key(self.domain, zero, diagrams, written, loose, wholes)

    def normal(self) -> Normal:
        products, conditions = self._groups()
        for group in products:
            self._add_product(group)
        self._add_conditions(conditions)
        self._add_explicit()
        for whole in sorted(self.reader.wholes.values(), key=lambda w: w.key):
            self.loose[whole.key] = (len(self.terms), -1)
            self.terms.append(replace(whole.term, weight=float(whole.weight)))
        if not self.terms:  # all queries are zero, which the planner refuses
            raise _TooMany
        pieces = tuple(self._pieces(t) for t in range(len(self.workload.terms)))
        return Normal(self.key(), type(self.workload)(self.domain, tuple(self.terms)), pieces)

    # Which boxes become groups

    def _groups(self) -> tuple[list[_ProductGroup], list[_ProductGroup]]:
        """Boxes that are products of their own, and those whose rows are conditions."""
        boxes: list[_ProductGroup] = []
        for (names, factor), root in self.diagrams.items():
            boxes += [self._group(names, factor, sets, weight) for sets, weight in _paths(root)]
            if len(boxes) > LIMITS.boxes:
                raise _TooMany
        for (names, factor), listed in self.written.items():
            for box in {self._box_key(b): b for b in listed}.values():
                sets = tuple(
                    self.axes[n].ordered(s) for n, s in zip(names, box.symbols, strict=True)
                )
                boxes.append(self._group(names, factor, sets, box.weight))
        boxes.sort(key=self._order)
        boxes = self._restored(boxes)
        counted = [b for b in boxes if self._is_counting(b) and not self._is_regular(b)]
        is_few = sum(b.rows > 1 for b in counted) <= LIMITS.irregular_products
        most = 1 if is_few else LIMITS.condition_rows
        conditions = [b for b in counted if b.rows <= most]
        chosen = {id(b) for b in conditions}
        return [b for b in boxes if id(b) not in chosen], conditions

    def _group(
        self,
        names: tuple[str, ...],
        factor: Fraction,
        sets: tuple[tuple[Symbol, ...], ...],
        weight: Fraction,
        restored: frozenset[str] = frozenset(),
    ) -> _ProductGroup:
        lengths = []
        for name, symbols in zip(names, sets, strict=True):
            opaque = self.axes[name].opaque
            if len(symbols) > 1 and any(s in opaque for s in symbols):
                raise _TooMany
            lengths.append(opaque[symbols[0]].rows if symbols[0] in opaque else len(symbols))
        return _ProductGroup(names, factor, sets, weight, tuple(lengths), restored)

    def _box_key(self, box: Box) -> bytes:
        pairs = zip(box.names, box.symbols, strict=True)
        sets = [self.axes[n].set_hash(self.axes[n].ordered(s)) for n, s in pairs]
        return sha(*sets, str(box.weight).encode())

    def _order(self, box: _ProductGroup) -> tuple[object, ...]:
        places = tuple(self.domain.index(n) for n in box.names)
        firsts = tuple(s[0] for s in box.symbols)
        sets = tuple(self.axes[n].set_hash(s) for n, s in zip(box.names, box.symbols, strict=True))
        return len(places), places, -box.weight, box.factor, firsts, sets

    def _restored(self, boxes: list[_ProductGroup]) -> list[_ProductGroup]:
        """The boxes; running totals get back the last of them, ranges the widest, if asked too.

        Symbols leave the sum over a whole attribute out, which is one query of both.
        """
        made: list[_ProductGroup] = []
        out: list[_ProductGroup] = []
        for box in reversed(boxes):
            if any(self._covers(large, box) for large in made):
                continue
            chosen: list[str] = []
            for name, symbols in zip(box.names, box.symbols, strict=True):
                if self._lacks_whole(name, symbols) and self._has_sums(box, [*chosen, name]):
                    chosen.append(name)
            if chosen:
                sets = tuple(
                    tuple(sorted((*s, interval_symbol(0, self.axes[n].size)))) if n in chosen else s
                    for n, s in zip(box.names, box.symbols, strict=True)
                )
                box = self._group(box.names, box.factor, sets, box.weight, frozenset(chosen))
                made.append(box)
            out.append(box)
        return out[::-1]

    def _lacks_whole(self, name: str, symbols: tuple[Symbol, ...]) -> bool:
        """Whether these are all running totals, or all ranges, but for the whole attribute."""
        size = self.axes[name].size
        if size < 3 or symbols[0][:1] != b"i" or symbols[-1][:1] != b"i":
            return False
        if len(symbols) == size - 1:
            return symbols == tuple(interval_symbol(0, t) for t in range(1, size))
        if len(symbols) != size * (size + 1) // 2 - 1:
            return False
        pairs = ((i, j) for i in range(size) for j in range(i + 1, size + 1))
        return symbols == tuple(interval_symbol(i, j) for i, j in pairs if (i, j) != (0, size))

    def _has_sums(self, box: _ProductGroup, chosen: Sequence[str]) -> bool:
        """Whether the same queries summed over any of the chosen attributes are asked, too."""
        for flags in product((False, True), repeat=len(chosen)):
            out = {n for n, is_out in zip(chosen, flags, strict=True) if is_out}
            pairs = [(n, s) for n, s in zip(box.names, box.symbols, strict=True) if n not in out]
            root = self.diagrams.get((tuple(n for n, _ in pairs), box.factor))
            if root is None or not _holds(root, [s for _, s in pairs], box.weight):
                return False
        return True

    def _covers(self, large: _ProductGroup, small: _ProductGroup) -> bool:
        """Whether every row of a box is a row of a product that got rows back."""
        if large.factor != small.factor or large.weight != small.weight:
            return False
        extra = set(large.names) - set(small.names)
        if not extra <= large.restored or not set(small.names) <= set(large.names):
            return False
        pairs = zip(small.names, small.symbols, strict=True)
        return all(large.places[n].keys() >= set(s) for n, s in pairs)

    @staticmethod
    def _is_counting(box: _ProductGroup) -> bool:
        return box.factor == 1 and all(s[:1] in (b"i", b"s") for own in box.symbols for s in own)

    def _is_regular(self, box: _ProductGroup) -> bool:
        pairs = zip(box.names, box.symbols, strict=True)
        return not any(self._set(n, s).label_kind == "rows" for n, s in pairs)

    # Groups

    def _set(self, name: str, symbols: tuple[Symbol, ...]) -> QuerySet:
        """The queries of an attribute, in the order of their symbols."""
        queries = self._sets.get((name, symbols))
        if queries is None:
            queries = self._sets[name, symbols] = self._made(name, symbols)
        return queries

    def _made(self, name: str, symbols: tuple[Symbol, ...]) -> QuerySet:
        axis = self.axes[name]
        if symbols[0] in axis.opaque:
            return axis.opaque[symbols[0]]
        if all(s[:1] == b"i" for s in symbols):
            intervals = _intervals(axis.size, [ends_of(s) for s in symbols])
            if intervals is not None:
                return intervals
        if all(s[:1] in (b"i", b"s") for s in symbols):
            groups = self._partition(name, symbols)
            if groups is not None:
                return groups
        return self._matrix(name, symbols, ONE)

    def _matrix(self, name: str, symbols: Sequence[Symbol], factor: Fraction) -> Matrix:
        axis = self.axes[name]
        bits = factor.denominator.bit_length() - 1
        check_entries(len(symbols) * axis.size, f"a matrix of queries of {name!r}")
        rows = np.array([axis.entries(s) for s in symbols], dtype=np.int64)
        if float(np.abs(rows).max()) * abs(factor.numerator) >= 2.0**53:
            raise _TooMany
        return Matrix(axis.size, rows * factor.numerator, bits, (), "cells of")

    def _partition(self, name: str, symbols: tuple[Symbol, ...]) -> Groups | None:
        """Disjoint sets of cells: a level of the domain, or all cells, or too many for a matrix."""
        axis, attribute = self.axes[name], self.domain[name]
        group_of = np.full(axis.size, -1, dtype=np.int64)
        if len(symbols) == 1:
            return None
        for i, symbol in enumerate(symbols):
            cells = axis.entries(symbol) > 0
            if (group_of[cells] >= 0).any():
                return None
            group_of[cells] = i
        labels = tuple(map(str, range(len(symbols))))
        by_first = _by_first(group_of)
        extra = (-1,) * (axis.size - attribute.value_count)
        for level in attribute.levels:
            of = np.array(level.group_of + extra, dtype=np.int64)
            if len(of) == axis.size and (_by_first(of) == by_first).all():
                return Groups(axis.size, level.name, labels, tuple(group_of.tolist()))
        if (group_of >= 0).all() or len(symbols) * axis.size > LIMITS.matrix_entries:
            return Groups(axis.size, "cells", labels, tuple(group_of.tolist()))
        return None

    def _add_product(self, group: _ProductGroup) -> None:
        factors = {n: self._set(n, s) for n, s in zip(group.names, group.symbols, strict=True)}
        if group.factor != 1:
            sets = dict(zip(group.names, group.symbols, strict=True))
            listed = [n for n, s in sets.items() if s[0] not in self.axes[n].opaque]
            free = [a.name for a in self.domain if a.name not in sets and a.kind != "values"]
            if listed:
                factors[listed[0]] = self._matrix(listed[0], sets[listed[0]], group.factor)
            elif free:
                smallest = min(free, key=lambda n: self.domain[n].size)
                whole = [interval_symbol(0, self.axes[smallest].size)]
                factors[smallest] = self._matrix(smallest, whole, group.factor)
            else:
                raise _TooMany
        names = self.domain.in_order(factors)
        term = Product(
            self.domain,
            " x ".join(factors[n].titled(n) for n in names) or "total",
            float(group.weight),
            tuple((n, factors[n]) for n in names),
        )
        out = sorted(group.restored)
        for flags in product((False, True), repeat=len(out)):
            left = {n for n, is_out in zip(out, flags, strict=True) if is_out}
            own = tuple(n for n in group.names if n not in left)
            self.homes.setdefault((own, group.factor), []).append((len(self.terms), group))
        self.terms.append(term)

    def _add_conditions(self, boxes: Sequence[_ProductGroup]) -> None:
        """Add terms that count irregular sets of cells and loose conditions: few groups, sorted."""
        rows: list[tuple[tuple[str, ...], Fraction, Condition, object]] = []
        for box in boxes:
            for chosen in product(*box.symbols):
                parts = [
                    In(n, tuple(np.flatnonzero(self.axes[n].entries(s)).tolist()))
                    for n, s in zip(box.names, chosen, strict=True)
                ]
                one: Condition = parts[0] if len(parts) == 1 else And(tuple(parts))
                rows.append((box.names, box.weight, one, self._place(box, chosen)))
        for loose in sorted(self.reader.loose.values(), key=lambda each: each.key):
            if loose.condition is not None:
                names = self.domain.in_order(loose.condition.attributes)
                rows.append((names, loose.weight, loose.condition, loose.key))
        names = self.domain.in_order({n for own, _, _, _ in rows for n in own})
        is_wide = self.domain.cells(names) > LIMITS.cells_tabulated
        gathered: dict[tuple[Fraction, tuple[str, ...]], list[tuple[Condition, object]]] = {}
        for own, weight, condition, key in rows:
            gathered.setdefault((weight, own if is_wide else ()), []).append((condition, key))
        for (weight, _), listed in gathered.items():
            for row, (_, key) in enumerate(listed):
                if isinstance(key, bytes):
                    self.loose[key] = (len(self.terms), row)
                else:
                    self.single[key] = (len(self.terms), row)  # type: ignore[index]
            conditions = tuple(condition for condition, _ in listed)
            self.terms.append(Predicates(self.domain, "conditions", float(weight), conditions))

    def _place(
        self, box: _ProductGroup, chosen: tuple[Symbol, ...]
    ) -> tuple[tuple[str, ...], tuple[Symbol, ...]]:
        """The attributes and symbols of a row, without those that it sums over all cells."""
        pairs = [
            (name, symbol)
            for name, symbol in zip(box.names, chosen, strict=True)
            if name not in box.restored or symbol != interval_symbol(0, self.axes[name].size)
        ]
        return tuple(name for name, _ in pairs), tuple(symbol for _, symbol in pairs)

    def _add_explicit(self) -> None:
        """Add terms of other rows that are no products, by the attributes that they look at."""
        from scipy.sparse import csr_matrix

        gathered: dict[tuple[tuple[str, ...], Fraction, int], list[Loose]] = {}
        for loose in sorted(self.reader.loose.values(), key=lambda each: each.key):
            if loose.condition is None:
                gathered.setdefault((loose.names, loose.weight, loose.bits), []).append(loose)
        for (names, weight, bits), listed in sorted(gathered.items()):
            for row, loose in enumerate(listed):
                self.loose[loose.key] = (len(self.terms), row)
            rows = [loose.table[np.ix_(*loose.class_of)].reshape(-1) for loose in listed]
            title = f"coefficients of {' x '.join(names)}"
            entries = csr_matrix(np.array(rows))
            term = Explicit(self.domain, title, float(weight), names, entries, bits)
            self.terms.append(term)

    # Where the asked queries are

    def _pieces(self, t: int) -> tuple[Placement, ...]:
        term = self.workload.terms[t]
        product_term = term.as_product()
        pieces: list[Placement] = []
        rows: dict[int, tuple[list[int], list[int]]] = {}
        for what, where in self.reader.read[t]:
            if product_term is not None and isinstance(where, tuple):  # parts of the factors
                pieces += self._placed(product_term, what, where)  # type: ignore[arg-type]
                continue
            if what is None:
                home = (-1, 0)
            elif isinstance(what, Box):
                home = self._find(what.names, what.factor, tuple(s[0] for s in what.symbols))
            else:
                home = self.loose[what]  # type: ignore[index]
                if home[1] < 0:
                    return (Placement(None, home[0], None),)
            own, there = rows.setdefault(home[0], ([], []))
            own.append(where)  # type: ignore[arg-type]
            there.append(home[1])
        for home_term, (own, there) in rows.items():
            pieces.append(Placement(np.array(own), home_term, np.array(there)))
        if len(pieces) > 1 and pieces[0].term >= 0 and len({piece.term for piece in pieces}) == 1:
            pieces = [self._joined(term, pieces)]
        return tuple(self._simple(term, piece) for piece in pieces)

    def _joined(self, term: Term, pieces: Sequence[Placement]) -> Placement:
        """One piece for all pieces of an asked group that are in the same group."""
        places = np.empty(term.rows, dtype=np.int64)
        for piece in pieces:
            rows = slice(None) if piece.rows is None else piece.rows
            places[rows] = np.arange(self.terms[piece.term].rows) if piece.at is None else piece.at
        return Placement(None, pieces[0].term, places)

    def _simple(self, term: Term, piece: Placement) -> Placement:
        """The same piece, with None for all rows in their order."""
        if piece.term < 0:
            return piece
        rows, at = piece.rows, piece.at
        if rows is not None and _is_range(rows, term.rows):
            rows = None
        if at is not None and _is_range(at, self.terms[piece.term].rows):
            at = None
        return Placement(rows, piece.term, at)

    def _placed(self, term: Product, box: Box | None, chosen: tuple[Part, ...]) -> list[Placement]:
        """The rows of a box of an asked product, in one group or in several."""
        is_all = all(part.rows is None for part in chosen)
        homes = [] if box is None else self.homes.get((box.names, box.factor), [])
        if box is not None and is_all:
            for home, group in homes:
                if (box.names, box.symbols) == (group.names, group.symbols):
                    return [Placement(None, home, None)]
        if term.rows > LIMITS.queries_placed:
            raise _TooMany
        along = [
            np.arange(queries.rows) if part.rows is None else part.rows
            for (_, queries), part in zip(term.factors, chosen, strict=True)
        ]
        if box is not None:
            for home, group in homes:
                at = self._inside(group, term, chosen, along)
                if at is not None:
                    return [Placement(None if is_all else _rows_of(term, along), home, at)]
        rows = _rows_of(term, along)
        if box is None:
            return [Placement(rows, -1, None)]
        if len(rows) > LIMITS.queries_looked_up or any(
            symbols[0] in self.axes[name].opaque
            for name, symbols in zip(box.names, box.symbols, strict=True)
        ):
            raise _TooMany
        sides = [
            (b"",) * len(numbers) if part.symbols is None else part.symbols
            for part, numbers in zip(chosen, along, strict=True)
        ]
        places: dict[int, tuple[list[int], list[int]]] = {}
        for row, symbols in zip(rows.tolist(), product(*sides), strict=True):
            home, at_row = self._find(box.names, box.factor, tuple(s for s in symbols if s))
            own, there = places.setdefault(home, ([], []))
            own.append(row)
            there.append(at_row)
        return [Placement(np.array(r), home, np.array(at)) for home, (r, at) in places.items()]

    def _inside(
        self, group: _ProductGroup, term: Product, chosen: Sequence[Part], along: Sequence[Integers]
    ) -> Integers | None:
        """The rows of a group that the rows of a box are, or None if some are not."""
        first = 0
        steps: list[Integers] = []
        for (name, _), part, numbers in zip(term.factors, chosen, along, strict=True):
            places = group.places.get(name)
            if part.symbols is None or places is None:
                steps.append(np.zeros(len(numbers), dtype=np.int64))
            elif all(s in places for s in part.symbols):
                is_opaque = part.symbols[0] in self.axes[name].opaque
                at = numbers if is_opaque else np.array([places[s] for s in part.symbols])
                steps.append(at.astype(np.int64) * group.strides[name])
            else:
                return None
        own = {n for (n, _), part in zip(term.factors, chosen, strict=True) if part.symbols}
        for name in group.names:
            if name not in own:
                place = group.places[name].get(interval_symbol(0, self.axes[name].size))
                if place is None:
                    return None
                first += place * group.strides[name]
        out = np.full((), first, dtype=np.int64)
        for step in steps:
            out = np.add.outer(out, step)
        return out.reshape(-1)

    def _find(
        self, names: tuple[str, ...], factor: Fraction, symbols: tuple[Symbol, ...]
    ) -> tuple[int, int]:
        """The group and the row of a product of symbols."""
        single = self.single.get((names, symbols)) if factor == 1 else None
        if single is not None:
            return single
        own = dict(zip(names, symbols, strict=True))
        for home, group in self.homes[names, factor]:
            places = [
                group.places[n].get(own.get(n, interval_symbol(0, self.axes[n].size)))
                for n in group.names
            ]
            if None not in places:
                pairs = zip(group.names, places, strict=True)
                return home, sum(group.strides[n] * place for n, place in pairs if place)
        raise KeyError(names)


def _is_range(numbers: Integers, length: int) -> bool:
    return len(numbers) == length and bool((numbers == np.arange(length)).all())


def _intervals(size: int, pairs: Sequence[tuple[int, int]]) -> QuerySet | None:
    """The query set of all cells, windows, running totals or ranges; None for other intervals."""
    count, width = len(pairs), pairs[0][1] - pairs[0][0]
    if count > 1 and pairs == [(i, i + width) for i in range(size - width + 1)]:
        return Identity(size) if width == 1 else Windows(size, width)
    if count == size and pairs == [(0, t) for t in range(1, size + 1)]:
        return Prefix(size)
    if count == size * (size + 1) // 2 and pairs == [
        (i, j) for i in range(size) for j in range(i + 1, size + 1)
    ]:
        return Ranges(size)
    return None


def _rows_of(term: Product, along: Sequence[Integers]) -> Integers:
    """The numbers of the rows of a product that have these numbers along its factors."""
    if not along:
        return np.zeros(1, dtype=np.int64)
    return np.ravel_multi_index(np.ix_(*along), term.row_shape).reshape(-1)


def _by_first(of: Integers) -> Integers:
    """Groups numbered by their first cell; -1 stays."""
    names, first = np.unique(of, return_index=True)
    named = names >= 0
    rank = np.full(int(of.max()) + 2, -1, dtype=np.int64)
    rank[names[named][np.argsort(first[named])]] = np.arange(int(named.sum()))
    return rank[of]
