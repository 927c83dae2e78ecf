# SPDX-License-Identifier: Apache-2.0
"""One linear query by itself, in a form that is the same for all ways of writing it.

`questions_of` returns the queries of a workload one by one, for sessions and for corrections, which
ask them singly.

Along every attribute, cells that the query does not tell apart are one class, numbered by their
first cell; attributes along which it tells nothing apart are left out. What remains is a small
table of coefficients over classes: a condition on three attributes, a row of a marginal and a row
of a matrix that mean the same have the same classes, the same table and the same ``key``.

`plain_count` is a fast reader of the commonest question: a count under a conjunction of plain
comparisons.

    SELECT COUNT(*) FROM t WHERE age BETWEEN 20 AND 29 AND sex = 'Female' AND state IN (1, 2)

A parser for all of SQL takes two milliseconds, which is most of the time that a free answer takes;
this takes a fiftieth of it. It reads only what leaves no doubt and otherwise returns None, so that
``sql`` reads it, with its messages. What both can read means the same (tested), since both ask the
attribute itself which cells a comparison holds for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import prod
from typing import Final, cast

import numpy as np

from sfumato.digest import canonical_json, sha256
from sfumato.domain.attributes import Attribute, Comparison
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError, TooLarge, WorkloadError
from sfumato.text import shown
from sfumato.types import Integers, Mask, Numbers
from sfumato.workload.predicates import Classes, Condition, coarsest
from sfumato.workload.queries import hashed
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import RECORD_BITS, WORD_BITS, Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "Question",
    "plain_count",
    "questions_of",
]


@dataclass(frozen=True, eq=False)
class Question:
    """A linear query: coefficients in steps of ``2^-bits`` over the classes of its attributes.

    ``name``, ``aggregate``, ``condition`` and ``groups`` are how the person who asks wrote it:
    nobody else sees them, and they are no part of the meaning. ``hides`` is how many times as large
    as this sum of middles of bins the sum of the values can be, minimum and maximum.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> one = questions_of(sf.sql(domain, "SELECT COUNT(*) FROM t WHERE age < 30 AND sex = 1"))[0]
    >>> one.attributes, one.table.tolist()
    (('age', 'sex'), [[0, 1], [0, 0]])
    >>> same = sf.sql(domain, "SELECT COUNT(*) FROM t WHERE NOT (sex = 0 OR age >= 30)")
    >>> questions_of(same)[0].key == one.key
    True
    """

    domain: Domain
    name: str
    attributes: tuple[str, ...]
    class_of: tuple[Integers, ...]
    table: Integers
    bits: int
    aggregate: str = ""
    condition: str = ""
    groups: tuple[tuple[str, object], ...] = ()
    hides: tuple[float, float] | None = None

    @cached_property
    def key(self) -> str:
        """SHA-256 of the meaning: equal questions, equal keys."""
        axes = [
            [name, hashed(classes)]
            for name, classes in zip(self.attributes, self.class_of, strict=True)
        ]
        form = ["sfumato question 1", axes, self.bits, list(self.table.shape), hashed(self.table)]
        return sha256(self.domain.digest().encode() + canonical_json(form).encode())

    @cached_property
    def cells(self) -> int:
        """The number of cells of the table of its attributes."""
        return prod(self.shape)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table of its attributes."""
        return tuple(len(classes) for classes in self.class_of)

    @cached_property
    def low(self) -> int:
        """The minimum coefficient, in steps."""
        return int(self.table.min())

    @cached_property
    def high(self) -> int:
        """The maximum coefficient, in steps."""
        return int(self.table.max())

    @cached_property
    def _box(self) -> tuple[slice, ...] | tuple[Integers, ...] | None:
        """Where it is not zero, if that is one cell of classes; as slices, if they are runs."""
        if not self.attributes:  # all records count the same
            return ()
        places = np.flatnonzero(self.table)
        if len(places) != 1:
            return None
        held = zip(self.class_of, np.unravel_index(places[0], self.table.shape), strict=True)
        cells = [np.flatnonzero(classes == at) for classes, at in held]
        ends = [(int(run[0]), int(run[-1]) + 1) for run in cells]
        if all(last - first == len(run) for (first, last), run in zip(ends, cells, strict=True)):
            return tuple(slice(first, last) for first, last in ends)
        return np.ix_(*cells)

    def answer(self, table: Numbers) -> int | float:
        """The answer on the table of its attributes, in steps; exact for integers.

        A table of integers must have fewer than 2^44 records in all.
        """
        is_whole = table.dtype.kind in "iO"
        if self._box is not None:
            held = np.sum(table[self._box])  # as a Python integer: the product may exceed 64 bits
            total = (int(held) if is_whole else held) * (self.high or self.low)
        else:
            total = (self.coefficients() * self.summable(table)).sum()
        return int(total) if is_whole else float(total)

    def summable(self, counts: Numbers) -> Numbers:
        """Counts in a type that holds their products with the coefficients, and the sum."""
        reach = max(abs(self.low), abs(self.high)).bit_length() + RECORD_BITS
        is_large = counts.dtype.kind == "i" and reach > WORD_BITS
        return counts.astype(object) if is_large else counts

    def coefficients(self) -> Integers:
        """The coefficients of all cells of the table of its attributes, in steps."""
        return self.table[np.ix_(*self.class_of)] if self.attributes else self.table

    def over(self, names: Sequence[str], table: Integers) -> Question:
        """The query with other coefficients, over the classes of some of its attributes.

        Args:
            names: Some of its attributes, in their order.
            table: Coefficients in its steps, one axis for each.

        Returns:
            A question in the form of `questions_of`.
        """
        classes = dict(zip(self.attributes, self.class_of, strict=True))
        left, merged, whole = coarsest(names, [classes[n] for n in names], table)
        bits = self.bits
        while bits and not (whole & 1).any():
            whole, bits = whole >> 1, bits - 1
        return Question(self.domain, self.name, tuple(left), tuple(merged), whole, bits)

    def at(self, codes: Sequence[Numbers], records: int) -> Integers:
        """The coefficients of so many records, from the codes of its attributes, in steps."""
        place = np.zeros(records, dtype=np.int64)
        for classes, count, column in zip(self.class_of, self.table.shape, codes, strict=True):
            place = place * count + classes[column]
        return self.table.reshape(-1)[place]


def questions_of(workload: Workload) -> tuple[Question, ...]:
    """Every query of a workload as a question, group after group."""
    if workload.queries > LIMITS.questions:
        raise TooLarge(
            f"a workload of {workload.queries:,} queries is asked one by one, at most "
            f"{LIMITS.questions:,} at a time; ask for less, or release it with sf.plan"
        )
    return tuple(q for term in workload.terms for q in _questions(term))


def _questions(term: Term) -> list[Question]:
    if term.slack:
        raise WorkloadError(f"group {term.name!r} has no exact coefficients and cannot be asked")
    product, conditions = term.as_product(), term.as_conditions()
    if conditions:
        return [_of_condition(term, i, condition) for i, condition in enumerate(conditions)]
    if product is not None:
        return _of_product(product)
    if isinstance(term, Explicit):
        return [_of_row(term, i) for i in range(term.rows)]
    raise WorkloadError(f"{shown(type(term).__name__)} cannot be asked as questions")


def _of_condition(term: Term, row: int, condition: Condition) -> Question:
    names = term.domain.in_order(condition.attributes)
    classes = Classes.of([condition], term.domain, names)
    _check_classes(term, classes.cells)
    truth = classes.truth(condition).astype(np.int64)
    return _merged(term, row, names, classes.class_of, truth, 0)


def _of_product(term: Product) -> list[Question]:
    """The queries of a product: the table of classes is the outer product of a vector each.

    Where none of them is zero, slices are equal only where coefficients are.
    """
    parts = []
    for _, queries in term.factors:
        dense = np.ldexp(queries.dense(), queries.fraction_bits)
        parts.append([_classes(np.rint(vector).astype(np.int64)) for vector in dense])
    questions = []
    for row, places in enumerate(product(*(range(len(part)) for part in parts))):
        chosen = [part[i] for part, i in zip(parts, places, strict=True)]
        _check_classes(term, prod(len(values) for _, values in chosen))
        named = list(zip(term.attributes, chosen, strict=True))
        if any(not values.any() for _, values in chosen):
            named, table = [], np.zeros((), dtype=np.int64)
        else:
            table = np.ones((), dtype=np.int64)
            for _, values in chosen:
                _check_size(term, float(np.abs(table).max()) * float(np.abs(values).max()))
                table = np.multiply.outer(table, values if len(values) > 1 else values[0])
        axes = [(name, classes) for name, (classes, values) in named if len(values) > 1]
        questions.append(_question(term, row, axes, table, term.fraction_bits))
    return questions


def _of_row(term: Explicit, row: int) -> Question:
    _check_classes(term, term.cells)
    values = np.asarray(term.entries[row].toarray(), dtype=np.int64).reshape(term.shape)
    class_of = [np.arange(size, dtype=np.int64) for size in term.shape]
    return _merged(term, row, term.attributes, class_of, values, term.bits)


def _merged(
    term: Term,
    row: int,
    names: Sequence[str],
    class_of: Sequence[Integers],
    table: Integers,
    bits: int,
) -> Question:
    """The question over its coarsest classes."""
    names, class_of, table = coarsest(names, class_of, table)
    return _question(term, row, list(zip(names, class_of, strict=True)), table, bits)


def _question(
    term: Term, row: int, axes: Sequence[tuple[str, Integers]], table: Integers, bits: int
) -> Question:
    """The question in the fewest bits after the point; ``axes`` are names and classes."""
    while bits and not (table & 1).any():
        table, bits = table >> 1, bits - 1
    _check_size(term, float(np.abs(table).max()))
    if bits > LIMITS.question_bits:
        raise TooLarge(
            f"the coefficients of {term.name!r} have {bits} bits after the point, at most "
            f"{LIMITS.question_bits} can be asked; round them"
        )
    names, classes = tuple(name for name, _ in axes), tuple(c for _, c in axes)
    whole = np.array(table, dtype=np.int64, order="C")
    return Question(term.domain, _name(term, row), names, classes, whole, bits)


def _classes(vector: Integers) -> tuple[Integers, Integers]:
    """The class of every cell, numbered by the first, and the coefficient of every class."""
    values, first, places = np.unique(vector, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[places.reshape(-1)], values[order]


def _name(term: Term, row: int) -> str:
    if term.row_labels:
        return str(term.row_labels[row])
    return term.name if term.rows == 1 else f"{term.name}, query {row}"


def _check_classes(term: Term, cells: int) -> None:
    if cells > LIMITS.question_classes:
        raise TooLarge(
            f"{term.name!r} tells {cells:,} kinds of records apart, at most "
            f"{LIMITS.question_classes:,} can be asked about; ask about fewer attributes at once"
        )


def _check_size(term: Term, maximum: float) -> None:
    if maximum >= LIMITS.question_coefficient:
        raise TooLarge(f"the coefficients of {term.name!r} are too large or too fine; round them")


_COLUMN: Final = r'(?P<column>[A-Za-z_][A-Za-z0-9_]*|"[^"\\]+")'
_CONSTANT: Final = r"(?:-?[0-9]{1,15}(?:\.[0-9]{1,15})?|'[^'\\]*')"
_START: Final = re.compile(
    r"\s*SELECT\s+COUNT\s*\(\s*\*\s*\)\s+FROM\s+([A-Za-z_][A-Za-z0-9_]*)\s+WHERE\s",
    re.IGNORECASE | re.ASCII,
)
_PART: Final = re.compile(
    rf"\s*{_COLUMN}(?:"
    rf"\s*(?P<comparison><=|>=|<>|!=|=|<|>)\s*(?P<constant>{_CONSTANT})"
    rf"|\s+BETWEEN\s+(?P<low>{_CONSTANT})\s+AND\s+(?P<high>{_CONSTANT})"
    rf"|\s+IN\s*\(\s*(?P<values>{_CONSTANT}(?:\s*,\s*{_CONSTANT})*)\s*\)"
    rf")(?P<more>\s+AND\s|\s*;?\s*\Z)",
    re.IGNORECASE | re.ASCII,
)
_CONSTANTS: Final = re.compile(_CONSTANT, re.ASCII)


def plain_count(domain: Domain, text: str) -> Question | None:
    """The question of a plain count, or None: then ``sql`` is to read it.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> plain_count(domain, "SELECT COUNT(*) FROM t WHERE age < 30 AND sex = 1").table.tolist()
    [[0, 1], [0, 0]]
    >>> plain_count(domain, "SELECT SUM(age) FROM t")
    """
    start = _START.match(text) if len(text) <= LIMITS.plain_count_characters else None
    if start is None or _is_keyword(start[1]):
        return None
    cells: dict[str, Mask] = {}
    written = []
    try:
        for attribute, mask, comparison in _parts(domain, text, start.end()):
            name = attribute.name
            cells[name] = cells[name] & mask if name in cells else mask
            written.append(comparison)
    except (_Doubt, SfumatoError):
        return None
    return _conjunction(domain, cells, " AND ".join(written))


class _Doubt(Exception):
    """The text is not that plain."""


def _parts(domain: Domain, text: str, at: int) -> Iterator[tuple[Attribute, Mask, str]]:
    """The comparisons of the conjunction: the attribute, the cells, the text as ``sql`` has it."""
    is_more = True
    while is_more:
        part = _PART.match(text, at)
        if part is None:
            raise _Doubt
        at, is_more = part.end(), bool(part["more"].strip(" \t\r\n\f\v;"))
        column = part["column"]
        name = column[1:-1] if column[0] == '"' else column
        if name not in domain or "." in name or (column is name and _is_keyword(name)):
            raise _Doubt
        attribute = domain[name]
        if part["comparison"]:
            word = part["comparison"]
            comparison = cast("Comparison", "!=" if word == "<>" else word)
            mask = attribute.select(comparison, _value(part["constant"]))
            written = f"{'<>' if word == '!=' else word} {part['constant']}"
        elif part["low"]:
            low, high = part["low"], part["high"]
            mask = attribute.select(">=", _value(low)) & attribute.select("<=", _value(high))
            written = f"BETWEEN {low} AND {high}"
        else:
            values = _CONSTANTS.findall(part["values"])
            masks = [attribute.select("=", _value(value)) for value in values]
            mask = np.logical_or.reduce(masks)
            written = f"IN ({', '.join(values)})"
        yield attribute, mask, f"{column} {written}"


def _value(constant: str) -> int | float | str:
    if constant[0] == "'":
        return constant[1:-1]
    return float(constant) if "." in constant else int(constant)


def _conjunction(domain: Domain, cells: dict[str, Mask], condition: str) -> Question | None:
    """The conjunction in canonical form: two classes per attribute, the first cell in class 0."""
    names = tuple(n for n in domain.in_order(cells) if not cells[n].all())
    if (
        not names
        or len(names) > LIMITS.plain_count_attributes
        or not all(cells[n].any() for n in names)
    ):
        return None
    class_of = tuple((cells[n] != cells[n][0]).astype(np.int64) for n in names)
    table = np.zeros((2,) * len(names), dtype=np.int64)
    table[tuple(int(not cells[n][0]) for n in names)] = 1
    name = f"COUNT(*) where {_short(condition)}"
    label = _short(condition, LIMITS.sql_label_characters)
    return Question(domain, name, names, class_of, table, 0, "COUNT(*)", label)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 4]} ..."


@cache
def _keywords() -> frozenset[str]:
    from sqlglot.dialects.sqlite import SQLite

    return frozenset(SQLite.Tokenizer.KEYWORDS) | {"TRUE", "FALSE", "NULL"}


def _is_keyword(word: str) -> bool:
    return word.upper() in _keywords()
