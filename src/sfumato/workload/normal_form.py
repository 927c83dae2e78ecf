# SPDX-License-Identifier: Apache-2.0
"""One form per meaning: equal sets of queries have equal bytes and equal terms.

A request is what is asked, not how it was written. A query is the row of its coefficients over
the cells of the domain. Almost every row is a product of one vector per attribute. Such a product
is unique once every vector is a primitive whole vector (no common divisor, the first entry above
zero), constant vectors are left out and what was divided out stands beside it. So a row is a
factor and, for the attributes that it looks at, one *symbol* each. A group of queries is a box: a
set of symbols per attribute. The set of all rows over the same attributes is a relation between
symbols, and its decision diagram in the order of the domain, equal nodes merged, is the same for
every union of boxes with the same rows (Bryant 1986, "Graph-based algorithms for Boolean function
manipulation", Theorem 1; for several values per variable: Srinivasan, Kam, Malik, Brayton 1990,
"Algorithms for discrete function manipulation"). Rows that are no products enter one by one, as
their table over the coarsest classes of cells (`question.py`). A row that is asked twice is asked
once, with the greatest of its weights; of weights only the ratios count.

`meaning` is the hash of all that: different sets of queries have different bytes before they are
hashed. `normal_form` makes terms of it, which the planner plans for, and says where every asked
query is among them. Beyond the limits below a part enters as it was written: then another writing
of the same queries may be another request, but never the other way round.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.types import Array, Integers, Mask
from sfumato.workload.canonical import written_condition, written_term
from sfumato.workload.predicates import And, Classes, Condition, Everything, In, Not, Or
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
from sfumato.workload.terms import WIDE_CELLS, Explicit, Predicates, Product, Term

if TYPE_CHECKING:
    from sfumato.workload.workload import Workload

__all__ = [
    "Normal",
    "Piece",
    "normal_form",
]


Json = str | int | float | list["Json"]
Symbol = bytes

ONE = Fraction(1)

TABULATED = 2**16  # cells of a condition's truth table that are hashed
LISTED = 2**12  # queries of one factor that get a symbol each
SPLIT = 2**10  # boxes that one product is split into
STEPS = 2**20  # symbols that are looked at in the diagram of one set of attributes
ROWS = 2**12  # rows of given coefficients that are read one by one
ENTRIES = 2**26  # coefficients of them
FEW_BOXES = 8  # irregular boxes that are products of their own
SMALL_BOX = 2**12  # rows of others that count as so many conditions, where there are more
MOST_BOXES = 2**18  # of all diagrams
SMALL_MATRIX = 2**20  # entries; disjoint sets of cells with more are kept as groups
DEEPEST = 200  # attributes of one product that is read one by one
PLACED = 2**26  # queries of one term that are placed by their factors
LOOKED_UP = 2**22  # queries of one term that are placed one by one


# --- vectors along one attribute -----------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """Queries of one factor that have the same factor divided out: all constant, or none.

    ``symbols`` is in the order of ``rows``; None where the vectors are constant.
    """

    factor: Fraction
    symbols: tuple[Symbol, ...] | None
    rows: Integers | None  # None: all of them

    @property
    def is_constant(self) -> bool:
        return self.symbols is None


class _Axis:
    """The symbols of one attribute and the vectors behind them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.vectors: dict[Symbol, Integers] = {}  # entries, of all but intervals
        self.opaque: dict[Symbol, QuerySet] = {}  # sets that are too large to be listed
        self._known: dict[int, tuple[QuerySet, tuple[_Part, ...]]] = {}
        self._sets: dict[tuple[Symbol, ...], bytes] = {}
        self._ordered: dict[tuple[Symbol, ...], tuple[Symbol, ...]] = {}

    def parts(self, queries: QuerySet) -> tuple[_Part, ...]:
        """The queries of a factor, by what is divided out; zero vectors have the factor 0."""
        known = self._known.get(id(queries))
        if known is None:
            known = (queries, self._parts(queries))  # held, so that no number is used twice
            self._known[id(queries)] = known
        return known[1]

    def _parts(self, queries: QuerySet) -> tuple[_Part, ...]:
        if queries.rows > LISTED:
            return self._unlisted(queries)
        ends = queries.intervals()
        if ends is not None:
            return self._of_intervals(*ends)
        by_factor: dict[tuple[Fraction, bool], tuple[list[Symbol], list[int]]] = {}
        for row, (factor, symbol) in enumerate(self._symbols(queries)):
            symbols, rows = by_factor.setdefault((factor, symbol is None), ([], []))
            symbols.append(symbol or b"")
            rows.append(row)
        if len(by_factor) > SPLIT:
            return self._unlisted(queries)
        return tuple(
            _Part(factor, None if is_constant else tuple(symbols), np.array(rows))
            for (factor, is_constant), (symbols, rows) in sorted(by_factor.items())
        )

    def _symbols(self, queries: QuerySet) -> Iterator[tuple[Fraction, Symbol | None]]:
        for row in queries.integer_rows():
            yield self.symbol(row, queries.fraction_bits)

    def symbol(self, row: Integers, bits: int) -> tuple[Fraction, Symbol | None]:
        """What is divided out of the vector ``row * 2^-bits``, and its symbol: None if constant."""
        places = np.flatnonzero(row)
        if not len(places):
            return Fraction(0), None
        first = int(row[places[0]])
        common = int(np.gcd.reduce(np.abs(row[places]))) * (1 if first > 0 else -1)
        factor = Fraction(common, 2**bits)
        if len(places) == self.size and (row == first).all():
            return factor, None
        vector = row // common
        is_set = bool((vector[places] == 1).all())
        if is_set and places[-1] - places[0] + 1 == len(places):
            return factor, _interval(int(places[0]), int(places[-1]) + 1)
        if is_set:
            symbol = b"s" + _sha(places.astype(np.int64).tobytes())
        else:
            symbol = b"v" + _sha(vector.astype(np.int64).tobytes())
        self.vectors.setdefault(symbol, vector.astype(np.int64))
        return factor, symbol

    def _of_intervals(self, starts: Integers, ends: Integers) -> tuple[_Part, ...]:
        whole = (ends - starts) == self.size
        pairs = zip(starts[~whole].tolist(), ends[~whole].tolist(), strict=True)
        symbols = tuple(_interval(s, e) for s, e in pairs)
        if not whole.any():
            return (_Part(ONE, symbols, None),)
        parts = [_Part(ONE, None, np.flatnonzero(whole))]
        return (*parts, _Part(ONE, symbols, np.flatnonzero(~whole))) if symbols else tuple(parts)

    def _unlisted(self, queries: QuerySet) -> tuple[_Part, ...]:
        """A set of very many queries: one symbol for all of them, in the order they have."""
        listed = queries.simplest()
        written, body = listed.written()
        head = json.dumps([type(listed).__name__, self.size, written]).encode()
        symbol = b"o" + _sha(head, body)
        self.opaque.setdefault(symbol, listed)
        return (_Part(ONE, (symbol,), None),)

    def entries(self, symbol: Symbol) -> Integers:
        """The vector of a symbol."""
        if symbol[:1] == b"i":
            start, end = _ends(symbol)
            cells = np.zeros(self.size, dtype=np.int64)
            cells[start:end] = 1
            return cells
        return self.vectors[symbol]

    def set_hash(self, symbols: tuple[Symbol, ...]) -> bytes:
        """The hash of sorted symbols."""
        known = self._sets.get(symbols)
        if known is None:
            known = self._sets[symbols] = _sha(*symbols)
        return known

    def ordered(self, symbols: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """Every symbol once, sorted: intervals by their first and then by their last cell."""
        known = self._ordered.get(symbols)
        if known is None:
            known = self._ordered[symbols] = tuple(sorted(set(symbols)))
        return known


def _interval(start: int, end: int) -> Symbol:
    return b"i" + start.to_bytes(8, "big") + end.to_bytes(8, "big")


def _ends(symbol: Symbol) -> tuple[int, int]:
    return int.from_bytes(symbol[1:9], "big"), int.from_bytes(symbol[9:], "big")


def _by_first(of: Integers) -> Integers:
    """Groups numbered by their first cell; -1 stays."""
    names, first = np.unique(of, return_index=True)
    named = names >= 0
    rank = np.full(int(of.max()) + 2, -1, dtype=np.int64)
    rank[names[named][np.argsort(first[named])]] = np.arange(int(named.sum()))
    return rank[of]


# --- boxes and their diagrams --------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class _Box:
    """All combinations of one symbol per attribute, times a factor; asked with a weight."""

    names: tuple[str, ...]
    factor: Fraction
    symbols: tuple[tuple[Symbol, ...], ...]
    weight: Fraction


@dataclass(frozen=True, eq=False, slots=True)
class _Node:
    """Which symbols of the next attribute lead where; a leaf has a weight."""

    key: bytes
    branches: tuple[tuple[tuple[Symbol, ...], _Node], ...] = ()
    weight: Fraction | None = None


class _TooMany(Exception):
    """The diagram has more steps than are taken."""


class _Diagram:
    """The decision diagram of a union of boxes over the same attributes."""

    def __init__(self, axes: Sequence[_Axis], boxes: Sequence[_Box]) -> None:
        self._axes, self._boxes = axes, boxes
        self._nodes: dict[tuple[int, int], _Node] = {}
        self._steps = 0
        self.root = self._chain() if len(boxes) == 1 else self._node(0, (1 << len(boxes)) - 1)

    def _chain(self) -> _Node:
        """The diagram of one box."""
        node = _leaf(self._boxes[0].weight)
        for axis, symbols in zip(self._axes[::-1], self._boxes[0].symbols[::-1], strict=True):
            branch = axis.ordered(symbols)
            node = _Node(_sha(b"node", axis.set_hash(branch), node.key), ((branch, node),))
        return node

    def _node(self, depth: int, active: int) -> _Node:
        known = self._nodes.get((depth, active))
        if known is None:
            known = self._nodes[depth, active] = self._made(depth, active)
        return known

    def _made(self, depth: int, active: int) -> _Node:
        inside = _bits(active)
        if depth == len(self._axes):
            return _leaf(max(self._boxes[i].weight for i in inside))
        masks: dict[Symbol, int] = {}
        for i in inside:
            symbols = self._boxes[i].symbols[depth]
            self._steps += len(symbols)
            if self._steps > STEPS:
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
        found = [(tuple(sorted(symbols)), child) for child, symbols in by_child.values()]
        found.sort(key=lambda branch: branch[0][0])
        axis = self._axes[depth]
        parts = [part for symbols, child in found for part in (axis.set_hash(symbols), child.key)]
        return _Node(_sha(b"node", *parts), tuple(found))


def _leaf(weight: Fraction) -> _Node:
    return _Node(_sha(b"leaf", str(weight).encode()), (), weight)


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
    wanted = set(sets[0])
    for symbols, child in node.branches:
        common = wanted.intersection(symbols)
        if common:
            if not _holds(child, sets[1:], weight):
                return False
            wanted -= common
    return not wanted


# --- rows that are no products -------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class _Loose:
    """A row that is no product: its coefficients over classes of cells, or as it was written."""

    key: bytes
    names: tuple[str, ...]
    class_of: tuple[Integers, ...]
    table: Integers
    bits: int
    condition: Condition | None  # where it counts records
    weight: Fraction


@dataclass(frozen=True, eq=False, slots=True)
class _Whole:
    """A group that is too large to be read row by row: it enters as it was given."""

    key: bytes
    term: Term
    weight: Fraction


# --- reading a workload --------------------------------------------------------------------------


class _Reader:
    """The rows of a workload, as boxes and loose rows, and which rows of which term they are."""

    def __init__(self, domain: Domain, terms: Sequence[Term]) -> None:
        self.domain, self.terms = domain, terms
        self.axes = {a.name: _Axis(a.size) for a in domain}
        greatest = max((Fraction(t.weight) for t in terms), default=Fraction(1))
        self._weights = {w: Fraction(w) / greatest for w in {t.weight for t in terms}}
        self.boxes: dict[tuple[tuple[str, ...], Fraction], list[_Box]] = {}
        self.loose: dict[bytes, _Loose] = {}
        self.wholes: dict[bytes, _Whole] = {}
        # Per term: (box, row numbers along every factor), (loose key, row), a whole, zero rows.
        self.read: list[list[tuple[object, object]]] = []
        for term in terms:
            found: list[tuple[object, object]] = []
            self.read.append(found)
            weight = self._weights[term.weight]
            asked = term.as_product()
            if asked is not None:
                self._product(asked, weight, found)
            elif term.as_conditions():
                self._conditions(term, weight, found)
            elif isinstance(term, Explicit):
                self._explicit(term, weight, found)
            else:
                self._whole(term, weight, found)

    def _product(self, term: Product, weight: Fraction, found: list[tuple[object, object]]) -> None:
        if len(term.factors) > DEEPEST:
            self._whole(term, weight, found)
            return
        parts = [self.axes[name].parts(queries) for name, queries in term.factors]
        if prod(map(len, parts)) > SPLIT:
            self._whole(term, weight, found)
            return
        for chosen in product(*parts):
            factor = ONE
            for part in chosen:
                factor = factor if part.factor is ONE else factor * part.factor
            if factor == 0:
                found.append((None, chosen))
                continue
            pairs = [
                (name, part.symbols)
                for (name, _), part in zip(term.factors, chosen, strict=True)
                if part.symbols is not None
            ]
            names = tuple(name for name, _ in pairs)
            box = _Box(names, factor, tuple(symbols for _, symbols in pairs), weight)
            self._add(box)
            found.append((box, chosen))

    def _add(self, box: _Box) -> None:
        self.boxes.setdefault((box.names, box.factor), []).append(box)

    def _one(
        self, vectors: Sequence[tuple[str, Integers]], factor: Fraction, weight: Fraction
    ) -> _Box | None:
        """A row that is a product of vectors; None where it is zero."""
        pairs = []
        for name, vector in vectors:
            divided, symbol = self.axes[name].symbol(vector, 0)
            factor *= divided
            if symbol is not None:
                pairs.append((name, (symbol,)))
        if factor == 0:
            return None
        box = _Box(tuple(n for n, _ in pairs), factor, tuple(s for _, s in pairs), weight)
        self._add(box)
        return box

    def _conditions(self, term: Term, weight: Fraction, found: list[tuple[object, object]]) -> None:
        for row, condition in enumerate(term.as_conditions()):
            plain = _conjunction(condition, self.domain)
            if plain is not None:
                cells = [(n, plain[n].astype(np.int64)) for n in self.domain.in_order(plain)]
                found.append((self._one(cells, ONE, weight), row))
                continue
            names = self.domain.in_order(condition.attributes)
            classes = Classes.of([condition], self.domain, names)
            if classes.cells > TABULATED:
                key = _sha(b"written", json.dumps(written_condition(condition)).encode())
                empty = np.zeros(0, dtype=np.int64)
                self._keep(_Loose(key, names, (), empty, 0, condition, weight), row, found)
                continue
            truth = classes.truth(condition).astype(np.int64)
            self._row(row, names, classes.class_of, truth, 0, weight, found)

    def _explicit(
        self, term: Explicit, weight: Fraction, found: list[tuple[object, object]]
    ) -> None:
        if term.rows > ROWS or term.cells > WIDE_CELLS or term.rows * term.cells > ENTRIES:
            self._whole(term, weight, found)
            return
        class_of = [np.arange(size, dtype=np.int64) for size in term.shape]
        entries = term.entries.tocsr()
        for row in range(term.rows):
            table = np.asarray(entries[row].toarray(), dtype=np.int64).reshape(term.shape)
            self._row(row, term.attributes, class_of, table, term.bits, weight, found)

    def _row(
        self,
        row: int,
        names: Sequence[str],
        class_of: Sequence[Integers],
        table: Integers,
        bits: int,
        weight: Fraction,
        found: list[tuple[object, object]],
    ) -> None:
        if not table.any():
            found.append((None, row))
            return
        names, class_of, table = _coarsest(names, class_of, table)
        vectors = _vectors(table)
        if vectors is not None:
            parts = [
                (name, vector[classes])
                for name, vector, classes in zip(names, vectors[1], class_of, strict=True)
            ]
            found.append((self._one(parts, vectors[0] / 2**bits, weight), row))
            return
        while bits and not (table & 1).any():
            table, bits = table >> 1, bits - 1
        axes: list[Json] = [
            [name, _sha(c.tobytes()).hex()] for name, c in zip(names, class_of, strict=True)
        ]
        head = json.dumps([axes, bits, list(table.shape)]).encode()
        key = _sha(b"table", head, np.ascontiguousarray(table).tobytes())
        condition = None
        if not bits and ((table == 0) | (table == 1)).all() and table.sum() <= TABULATED:
            condition = _cases(names, class_of, table)
        loose = _Loose(key, tuple(names), tuple(class_of), table, bits, condition, weight)
        self._keep(loose, row, found)

    def _keep(self, loose: _Loose, row: int, found: list[tuple[object, object]]) -> None:
        known = self.loose.get(loose.key)
        if known is None or known.weight < loose.weight:
            self.loose[loose.key] = loose
        found.append((loose.key, row))

    def _whole(self, term: Term, weight: Fraction, found: list[tuple[object, object]]) -> None:
        key = _sha(b"whole", json.dumps(written_term(term, {})).encode())
        known = self.wholes.get(key)
        if known is None or known.weight < weight:
            self.wholes[key] = _Whole(key, term, weight)
        found.append((key, None))


def _conjunction(condition: Condition, domain: Domain) -> dict[str, Mask] | None:
    """The cells of every attribute of a conjunction of conditions on one attribute each."""
    cells: dict[str, Mask] = {}
    parts = condition.parts if isinstance(condition, And) else (condition,)
    for part in parts:
        negated, inner = False, part
        while isinstance(inner, Not):
            negated, inner = not negated, inner.part
        if isinstance(inner, Everything) and not negated:
            continue
        if not isinstance(inner, In):
            return None
        mask = np.zeros(domain[inner.attribute].size, dtype=np.bool_)
        mask[list(inner.codes)] = True
        mask = ~mask if negated else mask
        known = cells.get(inner.attribute)
        cells[inner.attribute] = mask if known is None else known & mask
    return cells


def _coarsest(
    names: Sequence[str], class_of: Sequence[Integers], table: Integers
) -> tuple[list[str], list[Integers], Integers]:
    """Equal slices are one class, numbered by its first cell; an axis of one class is none."""
    kept_names, kept, axis = [], [], 0
    for name, classes in zip(names, class_of, strict=True):
        slices = np.moveaxis(table, axis, 0)
        _, first, merged = np.unique(
            slices.reshape(len(slices), -1), axis=0, return_index=True, return_inverse=True
        )
        fine = merged.reshape(-1).astype(np.int64)[classes]
        old, where = np.unique(fine, return_index=True)
        order = old[np.argsort(where)]
        rank = np.empty(int(old.max()) + 1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        table = np.moveaxis(slices[first[order]], 0, axis)
        if len(order) > 1:
            kept_names.append(name)
            kept.append(rank[fine])
            axis += 1
        else:
            table = np.take(table, 0, axis=axis)
    return kept_names, kept, np.array(table, dtype=np.int64, order="C")


def _vectors(table: Integers) -> tuple[Fraction, list[Integers]] | None:
    """A factor and one vector per axis whose product is the table, which is not zero, if any."""
    if not table.ndim:
        return Fraction(int(table)), []
    at = np.unravel_index(np.flatnonzero(table)[0], table.shape)
    pivot = int(table[at])
    lines = []
    for axis in range(table.ndim):
        index = tuple(slice(None) if i == axis else at[i] for i in range(table.ndim))
        lines.append(np.array(table[index], dtype=np.int64))
    large = float(np.abs(table).max()) ** table.ndim >= 2.0**62
    kind: npt.DTypeLike = object if large else np.int64
    outer = np.ones((), dtype=kind)
    for line in lines:
        outer = np.multiply.outer(outer, line.astype(kind))
    if not (outer == table.astype(kind) * pivot ** (table.ndim - 1)).all():
        return None
    return Fraction(1, pivot ** (table.ndim - 1)), lines


def _cases(names: Sequence[str], class_of: Sequence[Integers], table: Integers) -> Condition:
    """A condition that holds where the table has ones, written in one way only."""
    if not names:
        return Everything()
    parts: list[Condition] = []
    groups: dict[bytes, list[int]] = {}
    for value in range(table.shape[0]):
        groups.setdefault(np.ascontiguousarray(table[value]).tobytes(), []).append(value)
    for values in groups.values():
        rest = table[values[0]]
        if not rest.any():
            continue
        codes = tuple(np.flatnonzero(np.isin(class_of[0], values)).tolist())
        own = In(names[0], codes)
        if rest.all():
            parts.append(own)
        else:
            inner = _cases(names[1:], class_of[1:], rest)
            parts.append(And((own, *(inner.parts if isinstance(inner, And) else (inner,)))))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


# --- the normal form -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
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
    pieces: tuple[tuple[Piece, ...], ...]

    @property
    def is_in_order(self) -> bool:
        """Whether every asked group is the group of the normal form at the same place."""
        return len(self.pieces) == len(self.workload.terms) and all(
            len(found) == 1 and found[0].term == t and found[0].rows is None and found[0].at is None
            for t, found in enumerate(self.pieces)
        )

    def gather(self, term: int, numbers: Callable[[int], Array], zero: float = 0.0) -> Array:
        """A number per query of an asked group, from those of the groups of the normal form.

        Args:
            term: the number of the asked group.
            numbers: what gives a number per query of a group of the normal form.
            zero: the number of queries that are zero on every cell.
        """
        pieces = self.pieces[term]
        if len(pieces) == 1 and pieces[0].rows is None and pieces[0].term >= 0:
            return _taken(pieces[0], numbers)
        out = np.full(sum(_length(p, self.workload.terms) for p in pieces), zero)
        for piece in pieces:
            if piece.term >= 0:
                out[slice(None) if piece.rows is None else piece.rows] = _taken(piece, numbers)
        return out


def _taken(piece: Piece, numbers: Callable[[int], Array]) -> Array:
    values = numbers(piece.term)
    return values if piece.at is None else values[piece.at]


def _length(piece: Piece, terms: Sequence[Term]) -> int:
    if piece.rows is not None:
        return len(piece.rows)
    return terms[piece.term].rows if piece.at is None else len(piece.at)


@dataclass(frozen=True, eq=False)
class _Group:
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
        own = tuple((Piece(None, t, None),) for t in range(len(workload.terms)))
        return Normal(form.key(), replace(workload, ratios=()), own)


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
        asked = term.as_product()
        if asked is None or asked.weight != 1 or len(asked.factors) > DEEPEST:
            return None
        key = _leaf(ONE).key
        for name, queries in reversed(asked.factors):
            if not queries.is_identity or not 1 < queries.size <= LISTED:
                return None
            if name not in cells:
                cells[name] = _sha(*(_interval(i, i + 1) for i in range(queries.size)))
            key = _sha(b"node", cells[name], key)
        names = [name for name, _ in asked.factors]
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
    pieces = tuple((Piece(None, at[t], None),) for t in range(len(workload.terms)))
    key_of_all = _key(domain, False, diagrams, [], [], [])
    return Normal(key_of_all, type(workload)(domain, tuple(terms)), pieces)


def _key(domain: Domain, zero: bool, *parts: list[list[object]]) -> str:
    """SHA-256 of the domain and of rows with their weights: diagrams, boxes, loose rows, wholes."""
    listed = [sorted(part) for part in parts]
    text = json.dumps(["sfumato queries 2", zero, *listed], separators=(",", ":"))
    return hashlib.sha256(domain.digest().encode() + text.encode()).hexdigest()


class _Form:
    """The way from what was read to groups and places."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.domain = workload, workload.domain
        self.reader = _Reader(workload.domain, workload.terms)
        self.axes = self.reader.axes
        self.diagrams: dict[tuple[tuple[str, ...], Fraction], _Node] = {}
        self.written: dict[tuple[tuple[str, ...], Fraction], list[_Box]] = {}
        for key, boxes in self.reader.boxes.items():
            try:
                self.diagrams[key] = _Diagram([self.axes[name] for name in key[0]], boxes).root
            except _TooMany:
                self.written[key] = boxes
        self.terms: list[Term] = []
        # Where rows are: products by their attributes, single conditions, rows of other kinds.
        self.homes: dict[tuple[tuple[str, ...], Fraction], list[tuple[int, _Group]]] = {}
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
        zero = any(what is None for found in self.reader.read for what, _ in found)
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

    # -- which boxes become groups

    def _groups(self) -> tuple[list[_Group], list[_Group]]:
        """Boxes that are products of their own, and those whose rows are conditions."""
        boxes: list[_Group] = []
        for (names, factor), root in self.diagrams.items():
            boxes += [self._group(names, factor, sets, weight) for sets, weight in _paths(root)]
            if len(boxes) > MOST_BOXES:
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
        is_few = sum(b.rows > 1 for b in counted) <= FEW_BOXES
        most = 1 if is_few else SMALL_BOX
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
    ) -> _Group:
        lengths = []
        for name, symbols in zip(names, sets, strict=True):
            opaque = self.axes[name].opaque
            if len(symbols) > 1 and any(s in opaque for s in symbols):
                raise _TooMany
            lengths.append(opaque[symbols[0]].rows if symbols[0] in opaque else len(symbols))
        return _Group(names, factor, sets, weight, tuple(lengths), restored)

    def _box_key(self, box: _Box) -> bytes:
        pairs = zip(box.names, box.symbols, strict=True)
        sets = [self.axes[n].set_hash(self.axes[n].ordered(s)) for n, s in pairs]
        return _sha(*sets, str(box.weight).encode())

    def _order(self, box: _Group) -> tuple[object, ...]:
        places = tuple(self.domain.index(n) for n in box.names)
        firsts = tuple(s[0] for s in box.symbols)
        sets = tuple(self.axes[n].set_hash(s) for n, s in zip(box.names, box.symbols, strict=True))
        return len(places), places, -box.weight, box.factor, firsts, sets

    def _restored(self, boxes: list[_Group]) -> list[_Group]:
        """Running totals get back the last of them, ranges the widest, where those are asked too.

        Symbols leave the sum over a whole attribute out, which is one query of both.
        """
        made: list[_Group] = []
        out: list[_Group] = []
        for box in reversed(boxes):
            if any(self._covers(large, box) for large in made):
                continue
            chosen: list[str] = []
            for name, symbols in zip(box.names, box.symbols, strict=True):
                if self._lacks_whole(name, symbols) and self._has_sums(box, [*chosen, name]):
                    chosen.append(name)
            if chosen:
                sets = tuple(
                    tuple(sorted((*s, _interval(0, self.axes[n].size)))) if n in chosen else s
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
            return symbols == tuple(_interval(0, t) for t in range(1, size))
        if len(symbols) != size * (size + 1) // 2 - 1:
            return False
        pairs = ((i, j) for i in range(size) for j in range(i + 1, size + 1))
        return symbols == tuple(_interval(i, j) for i, j in pairs if (i, j) != (0, size))

    def _has_sums(self, box: _Group, chosen: Sequence[str]) -> bool:
        """Whether the same queries summed over any of the chosen attributes are asked, too."""
        for flags in product((False, True), repeat=len(chosen)):
            out = {n for n, is_out in zip(chosen, flags, strict=True) if is_out}
            pairs = [(n, s) for n, s in zip(box.names, box.symbols, strict=True) if n not in out]
            root = self.diagrams.get((tuple(n for n, _ in pairs), box.factor))
            if root is None or not _holds(root, [s for _, s in pairs], box.weight):
                return False
        return True

    def _covers(self, large: _Group, small: _Group) -> bool:
        """Whether every row of a box is a row of a product that got rows back."""
        if large.factor != small.factor or large.weight != small.weight:
            return False
        extra = set(large.names) - set(small.names)
        if not extra <= large.restored or not set(small.names) <= set(large.names):
            return False
        pairs = zip(small.names, small.symbols, strict=True)
        return all(large.places[n].keys() >= set(s) for n, s in pairs)

    @staticmethod
    def _is_counting(box: _Group) -> bool:
        return box.factor == 1 and all(s[:1] in (b"i", b"s") for own in box.symbols for s in own)

    def _is_regular(self, box: _Group) -> bool:
        pairs = zip(box.names, box.symbols, strict=True)
        return not any(self._set(n, s).label_kind == "rows" for n, s in pairs)

    # -- groups

    def _set(self, name: str, symbols: tuple[Symbol, ...]) -> QuerySet:
        """The queries of an attribute, in the order of their symbols."""
        known = self._sets.get((name, symbols))
        if known is None:
            known = self._sets[name, symbols] = self._made(name, symbols)
        return known

    def _made(self, name: str, symbols: tuple[Symbol, ...]) -> QuerySet:
        axis = self.axes[name]
        if symbols[0] in axis.opaque:
            return axis.opaque[symbols[0]]
        if all(s[:1] == b"i" for s in symbols):
            known = _intervals(axis.size, [_ends(s) for s in symbols])
            if known is not None:
                return known
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
        if (group_of >= 0).all() or len(symbols) * axis.size > SMALL_MATRIX:
            return Groups(axis.size, "cells", labels, tuple(group_of.tolist()))
        return None

    def _add_product(self, group: _Group) -> None:
        factors = {n: self._set(n, s) for n, s in zip(group.names, group.symbols, strict=True)}
        if group.factor != 1:
            sets = dict(zip(group.names, group.symbols, strict=True))
            listed = [n for n, s in sets.items() if s[0] not in self.axes[n].opaque]
            free = [a.name for a in self.domain if a.name not in sets and a.kind != "values"]
            if listed:
                factors[listed[0]] = self._matrix(listed[0], sets[listed[0]], group.factor)
            elif free:
                least = min(free, key=lambda n: self.domain[n].size)
                whole = [_interval(0, self.axes[least].size)]
                factors[least] = self._matrix(least, whole, group.factor)
            else:
                raise _TooMany
        names = self.domain.in_order(factors)
        words = [factors[n].titled(n) for n in names]
        term = Product(
            self.domain,
            " x ".join(words) or "total",
            float(group.weight),
            tuple((n, factors[n]) for n in names),
        )
        out = sorted(group.restored)
        for flags in product((False, True), repeat=len(out)):
            left = {n for n, is_out in zip(out, flags, strict=True) if is_out}
            own = tuple(n for n in group.names if n not in left)
            self.homes.setdefault((own, group.factor), []).append((len(self.terms), group))
        self.terms.append(term)

    def _add_conditions(self, boxes: Sequence[_Group]) -> None:
        """Counts of irregular sets of cells and loose conditions: few groups, sorted."""
        rows: list[tuple[tuple[str, ...], Fraction, Condition, object]] = []
        for box in boxes:
            for chosen in product(*box.symbols):
                parts = [
                    In(n, tuple(np.flatnonzero(self.axes[n].entries(s)).tolist()))
                    for n, s in zip(box.names, chosen, strict=True)
                ]
                one: Condition = parts[0] if len(parts) == 1 else And(tuple(parts))
                rows.append((box.names, box.weight, one, (box.names, chosen)))
        for loose in sorted(self.reader.loose.values(), key=lambda each: each.key):
            if loose.condition is not None:
                names = self.domain.in_order(loose.condition.attributes)
                rows.append((names, loose.weight, loose.condition, loose.key))
        names = self.domain.in_order({n for own, _, _, _ in rows for n in own})
        is_wide = self.domain.cells(names) > WIDE_CELLS
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

    def _add_explicit(self) -> None:
        """Other rows that are no products, by the attributes that they look at."""
        from scipy.sparse import csr_matrix

        gathered: dict[tuple[tuple[str, ...], Fraction, int], list[_Loose]] = {}
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

    # -- where the asked queries are

    def _pieces(self, t: int) -> tuple[Piece, ...]:
        term = self.workload.terms[t]
        asked = term.as_product()
        found: list[Piece] = []
        rows: dict[int, tuple[list[int], list[int]]] = {}
        for what, where in self.reader.read[t]:
            if asked is not None and isinstance(where, tuple):  # parts of the factors
                found += self._placed(asked, what, where)  # type: ignore[arg-type]
                continue
            if what is None:
                home = (-1, 0)
            elif isinstance(what, _Box):
                home = self._find(what.names, what.factor, tuple(s[0] for s in what.symbols))
            else:
                home = self.loose[what]  # type: ignore[index]
                if home[1] < 0:
                    return (Piece(None, home[0], None),)
            own, there = rows.setdefault(home[0], ([], []))
            own.append(where)  # type: ignore[arg-type]
            there.append(home[1])
        for home_term, (own, there) in rows.items():
            found.append(Piece(np.array(own), home_term, np.array(there)))
        if len(found) > 1 and found[0].term >= 0 and len({piece.term for piece in found}) == 1:
            found = [self._joined(term, found)]
        return tuple(self._simple(term, piece) for piece in found)

    def _joined(self, term: Term, pieces: Sequence[Piece]) -> Piece:
        """Pieces of one group as one."""
        places = np.empty(term.rows, dtype=np.int64)
        for piece in pieces:
            rows = slice(None) if piece.rows is None else piece.rows
            places[rows] = np.arange(self.terms[piece.term].rows) if piece.at is None else piece.at
        return Piece(None, pieces[0].term, places)

    def _simple(self, term: Term, piece: Piece) -> Piece:
        """None for all rows in their order."""
        if piece.term < 0:
            return piece
        rows, at = piece.rows, piece.at
        if rows is not None and _is_range(rows, term.rows):
            rows = None
        if at is not None and _is_range(at, self.terms[piece.term].rows):
            at = None
        return Piece(rows, piece.term, at)

    def _placed(self, term: Product, box: _Box | None, chosen: tuple[_Part, ...]) -> list[Piece]:
        """The rows of a box of an asked product, in one group or in several."""
        is_all = all(part.rows is None for part in chosen)
        homes = [] if box is None else self.homes.get((box.names, box.factor), [])
        if box is not None and is_all:
            for home, group in homes:
                if (box.names, box.symbols) == (group.names, group.symbols):
                    return [Piece(None, home, None)]
        if term.rows > PLACED:
            raise _TooMany
        along = [
            np.arange(queries.rows) if part.rows is None else part.rows
            for (_, queries), part in zip(term.factors, chosen, strict=True)
        ]
        if box is not None:
            for home, group in homes:
                at = self._inside(group, term, chosen, along)
                if at is not None:
                    return [Piece(None if is_all else _rows_of(term, along), home, at)]
        rows = _rows_of(term, along)
        if box is None:
            return [Piece(rows, -1, None)]
        if len(rows) > LOOKED_UP or any(
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
        return [Piece(np.array(r), home, np.array(at)) for home, (r, at) in places.items()]

    def _inside(
        self, group: _Group, term: Product, chosen: Sequence[_Part], along: Sequence[Integers]
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
                place = group.places[name].get(_interval(0, self.axes[name].size))
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
        known = self.single.get((names, symbols)) if factor == 1 else None
        if known is not None:
            return known
        own = dict(zip(names, symbols, strict=True))
        for home, group in self.homes[names, factor]:
            places = [
                group.places[n].get(own.get(n, _interval(0, self.axes[n].size)))
                for n in group.names
            ]
            if None not in places:
                pairs = zip(group.names, places, strict=True)
                return home, sum(group.strides[n] * place for n, place in pairs if place)
        raise KeyError(names)


def _is_range(numbers: Integers, length: int) -> bool:
    return len(numbers) == length and bool((numbers == np.arange(length)).all())


def _intervals(size: int, pairs: Sequence[tuple[int, int]]) -> QuerySet | None:
    """All cells, windows, running totals or ranges; None for other intervals."""
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


def _sha(*parts: bytes) -> bytes:
    """SHA-256 of parts with their lengths, so that no two lists of parts read alike."""
    out = hashlib.sha256()
    for part in parts:
        out.update(len(part).to_bytes(8, "big"))
        out.update(part)
    return out.digest()
