# SPDX-License-Identifier: Apache-2.0
"""Rows of a workload as products of primitive vectors, whatever they were written as.

A query is the row of its coefficients over the cells of the domain. Almost every row is a product
of one vector per attribute. Such a product is unique once every vector is a primitive whole vector
(no common divisor, the first entry above zero), constant vectors are left out and what was divided
out stands beside it. So a row is a factor and, for the attributes that it looks at, one *symbol*
each; a group of queries is a box: a set of symbols per attribute. Rows that are no products are
read one by one, as their table over the coarsest classes of cells. Beyond the limits of the room a
group is read as it was written.

`Reader` returns the boxes and rows of a workload; `normal_form.py` makes one form of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.types import Integers, Mask
from sfumato.workload.predicates import (
    And,
    Classes,
    Condition,
    Everything,
    In,
    Json,
    Not,
    Or,
    coarsest,
    written_condition,
    written_term,
)
from sfumato.workload.queries import QuerySet
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "ONE",
    "Box",
    "Loose",
    "Part",
    "Reader",
    "Symbol",
    "SymbolAxis",
    "Whole",
    "ends_of",
    "interval_symbol",
    "sha",
]

Symbol = bytes

ONE = Fraction(1)


# Vectors along one attribute


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Queries of one factor that have the same factor divided out: all constant, or none.

    ``symbols`` is in the order of ``rows``; None where the vectors are constant.
    """

    factor: Fraction
    symbols: tuple[Symbol, ...] | None
    rows: Integers | None  # None: all of them

    @property
    def is_constant(self) -> bool:
        """Whether its vectors are constant, so that the attribute does not matter."""
        return self.symbols is None


class SymbolAxis:
    """The symbols of one attribute and the vectors behind them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.vectors: dict[Symbol, Integers] = {}  # entries, of all but intervals
        self.opaque: dict[Symbol, QuerySet] = {}  # sets that are too large to be listed
        self._by_queries: dict[int, tuple[QuerySet, tuple[Part, ...]]] = {}
        self._sets: dict[tuple[Symbol, ...], bytes] = {}
        self._ordered: dict[tuple[Symbol, ...], tuple[Symbol, ...]] = {}

    def parts(self, queries: QuerySet) -> tuple[Part, ...]:
        """The queries of a factor, by what is divided out; zero vectors have the factor 0."""
        read = self._by_queries.get(id(queries))
        if read is None:
            read = (queries, self._parts(queries))  # held, so that no number is used twice
            self._by_queries[id(queries)] = read
        return read[1]

    def _parts(self, queries: QuerySet) -> tuple[Part, ...]:
        if queries.rows > LIMITS.axis_queries:
            return self._unlisted(queries)
        ends = queries.intervals()
        if ends is not None:
            return self._of_intervals(*ends)
        by_factor: dict[tuple[Fraction, bool], tuple[list[Symbol], list[int]]] = {}
        for row, (factor, symbol) in enumerate(self._symbols(queries)):
            symbols, rows = by_factor.setdefault((factor, symbol is None), ([], []))
            symbols.append(symbol or b"")
            rows.append(row)
        if len(by_factor) > LIMITS.product_boxes:
            return self._unlisted(queries)
        return tuple(
            Part(factor, None if is_constant else tuple(symbols), np.array(rows))
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
            return factor, interval_symbol(int(places[0]), int(places[-1]) + 1)
        if is_set:
            symbol = b"s" + sha(places.astype(np.int64).tobytes())
        else:
            symbol = b"v" + sha(vector.astype(np.int64).tobytes())
        self.vectors.setdefault(symbol, vector.astype(np.int64))
        return factor, symbol

    def _of_intervals(self, starts: Integers, ends: Integers) -> tuple[Part, ...]:
        whole = (ends - starts) == self.size
        pairs = zip(starts[~whole].tolist(), ends[~whole].tolist(), strict=True)
        symbols = tuple(interval_symbol(s, e) for s, e in pairs)
        if not whole.any():
            return (Part(ONE, symbols, None),)
        parts = [Part(ONE, None, np.flatnonzero(whole))]
        return (*parts, Part(ONE, symbols, np.flatnonzero(~whole))) if symbols else tuple(parts)

    def _unlisted(self, queries: QuerySet) -> tuple[Part, ...]:
        """A set of very many queries: one symbol for all of them, in the order they have."""
        listed = queries.simplest()
        written, body = listed.written()
        head = json.dumps([type(listed).__name__, self.size, written]).encode()
        symbol = b"o" + sha(head, body)
        self.opaque.setdefault(symbol, listed)
        return (Part(ONE, (symbol,), None),)

    def entries(self, symbol: Symbol) -> Integers:
        """The vector of a symbol."""
        if symbol[:1] == b"i":
            start, end = ends_of(symbol)
            cells = np.zeros(self.size, dtype=np.int64)
            cells[start:end] = 1
            return cells
        return self.vectors[symbol]

    def set_hash(self, symbols: tuple[Symbol, ...]) -> bytes:
        """The hash of sorted symbols."""
        digest = self._sets.get(symbols)
        if digest is None:
            digest = self._sets[symbols] = sha(*symbols)
        return digest

    def ordered(self, symbols: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """Every symbol once, sorted: intervals by their first and then by their last cell."""
        distinct = self._ordered.get(symbols)
        if distinct is None:
            distinct = self._ordered[symbols] = tuple(sorted(set(symbols)))
        return distinct


def interval_symbol(start: int, end: int) -> Symbol:
    """The symbol of the cells from ``start`` up to ``end``, excluded; sorted by both."""
    return b"i" + start.to_bytes(8, "big") + end.to_bytes(8, "big")


def ends_of(symbol: Symbol) -> tuple[int, int]:
    """The ends of an interval, from its symbol."""
    return int.from_bytes(symbol[1:9], "big"), int.from_bytes(symbol[9:], "big")


@dataclass(frozen=True, eq=False, slots=True)
class Box:
    """All combinations of one symbol per attribute, times a factor; asked with a weight."""

    names: tuple[str, ...]
    factor: Fraction
    symbols: tuple[tuple[Symbol, ...], ...]
    weight: Fraction


# Rows that are no products


@dataclass(frozen=True, eq=False, slots=True)
class Loose:
    """A row that is no product: its coefficients over classes of cells, or as it was written."""

    key: bytes
    names: tuple[str, ...]
    class_of: tuple[Integers, ...]
    table: Integers
    bits: int
    condition: Condition | None  # where it counts records
    weight: Fraction


@dataclass(frozen=True, eq=False, slots=True)
class Whole:
    """A group that is too large to be read row by row: it enters as it was written."""

    key: bytes
    term: Term
    weight: Fraction


# Reading a workload


Readings = list[tuple[object, object]]


class Reader:
    """The rows of a workload, as boxes and loose rows, and which rows of which term they are."""

    def __init__(self, domain: Domain, terms: Sequence[Term]) -> None:
        self.domain, self.terms = domain, terms
        self.axes = {a.name: SymbolAxis(a.size) for a in domain}
        maximum = max((Fraction(t.weight) for t in terms), default=Fraction(1))
        self._weights = {w: Fraction(w) / maximum for w in {t.weight for t in terms}}
        self.boxes: dict[tuple[tuple[str, ...], Fraction], list[Box]] = {}
        self.loose: dict[bytes, Loose] = {}
        self.wholes: dict[bytes, Whole] = {}
        # Per term: (box, row numbers along every factor), (loose key, row), a whole, zero rows.
        self.read: list[Readings] = []
        for term in terms:
            out: Readings = []
            self.read.append(out)
            weight = self._weights[term.weight]
            product_term = term.as_product()
            if product_term is not None:
                self._product(product_term, weight, out)
            elif term.as_conditions():
                self._conditions(term, weight, out)
            elif isinstance(term, Explicit):
                self._explicit(term, weight, out)
            else:
                self._whole(term, weight, out)

    def _product(self, term: Product, weight: Fraction, out: Readings) -> None:
        if len(term.factors) > LIMITS.product_attributes:
            self._whole(term, weight, out)
            return
        parts = [self.axes[name].parts(queries) for name, queries in term.factors]
        if prod(map(len, parts)) > LIMITS.product_boxes:
            self._whole(term, weight, out)
            return
        for chosen in product(*parts):
            factor = ONE
            for part in chosen:
                factor = factor if part.factor is ONE else factor * part.factor
            if factor == 0:
                out.append((None, chosen))
                continue
            pairs = [
                (name, part.symbols)
                for (name, _), part in zip(term.factors, chosen, strict=True)
                if part.symbols is not None
            ]
            names = tuple(name for name, _ in pairs)
            box = Box(names, factor, tuple(symbols for _, symbols in pairs), weight)
            self._add(box)
            out.append((box, chosen))

    def _add(self, box: Box) -> None:
        self.boxes.setdefault((box.names, box.factor), []).append(box)

    def _one(
        self, vectors: Sequence[tuple[str, Integers]], factor: Fraction, weight: Fraction
    ) -> Box | None:
        """A row that is a product of vectors; None where it is zero."""
        pairs = []
        for name, vector in vectors:
            divided, symbol = self.axes[name].symbol(vector, 0)
            factor *= divided
            if symbol is not None:
                pairs.append((name, (symbol,)))
        if factor == 0:
            return None
        box = Box(tuple(n for n, _ in pairs), factor, tuple(s for _, s in pairs), weight)
        self._add(box)
        return box

    def _conditions(self, term: Term, weight: Fraction, out: Readings) -> None:
        for row, condition in enumerate(term.as_conditions()):
            plain = _conjunction(condition, self.domain)
            if plain is not None:
                cells = [(n, plain[n].astype(np.int64)) for n in self.domain.in_order(plain)]
                out.append((self._one(cells, ONE, weight), row))
                continue
            names = self.domain.in_order(condition.attributes)
            classes = Classes.of([condition], self.domain, names)
            if classes.cells > LIMITS.truth_cells:
                key = sha(b"written", json.dumps(written_condition(condition)).encode())
                empty = np.zeros(0, dtype=np.int64)
                self._add_loose(Loose(key, names, (), empty, 0, condition, weight), row, out)
                continue
            truth = classes.truth(condition).astype(np.int64)
            self._row(row, names, classes.class_of, truth, 0, weight, out)

    def _explicit(self, term: Explicit, weight: Fraction, out: Readings) -> None:
        if (
            term.rows > LIMITS.rows_read
            or term.cells > LIMITS.cells_tabulated
            or term.rows * term.cells > LIMITS.entries_read
        ):
            self._whole(term, weight, out)
            return
        class_of = [np.arange(size, dtype=np.int64) for size in term.shape]
        entries = term.entries.tocsr()
        for row in range(term.rows):
            table = np.asarray(entries[row].toarray(), dtype=np.int64).reshape(term.shape)
            self._row(row, term.attributes, class_of, table, term.bits, weight, out)

    def _row(
        self,
        row: int,
        names: Sequence[str],
        class_of: Sequence[Integers],
        table: Integers,
        bits: int,
        weight: Fraction,
        out: Readings,
    ) -> None:
        if not table.any():
            out.append((None, row))
            return
        names, class_of, table = coarsest(names, class_of, table)
        vectors = _vectors(table)
        if vectors is not None:
            parts = [
                (name, vector[classes])
                for name, vector, classes in zip(names, vectors[1], class_of, strict=True)
            ]
            out.append((self._one(parts, vectors[0] / 2**bits, weight), row))
            return
        while bits and not (table & 1).any():
            table, bits = table >> 1, bits - 1
        axes: list[Json] = [
            [name, sha(c.tobytes()).hex()] for name, c in zip(names, class_of, strict=True)
        ]
        head = json.dumps([axes, bits, list(table.shape)]).encode()
        key = sha(b"table", head, np.ascontiguousarray(table).tobytes())
        condition = None
        if not bits and ((table == 0) | (table == 1)).all() and table.sum() <= LIMITS.truth_cells:
            condition = _cases(names, class_of, table)
        loose = Loose(key, tuple(names), tuple(class_of), table, bits, condition, weight)
        self._add_loose(loose, row, out)

    def _add_loose(self, loose: Loose, row: int, out: Readings) -> None:
        before = self.loose.get(loose.key)
        if before is None or before.weight < loose.weight:
            self.loose[loose.key] = loose
        out.append((loose.key, row))

    def _whole(self, term: Term, weight: Fraction, out: Readings) -> None:
        key = sha(b"whole", json.dumps(written_term(term, {})).encode())
        before = self.wholes.get(key)
        if before is None or before.weight < weight:
            self.wholes[key] = Whole(key, term, weight)
        out.append((key, None))


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
        cells[inner.attribute] = cells.get(inner.attribute, True) & mask
    return cells


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


def sha(*parts: bytes) -> bytes:
    """SHA-256 of parts with their lengths, so that no two lists of parts read alike."""
    out = hashlib.sha256()
    for part in parts:
        out.update(len(part).to_bytes(8, "big"))
        out.update(part)
    return out.digest()
