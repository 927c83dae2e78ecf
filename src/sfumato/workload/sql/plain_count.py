# SPDX-License-Identifier: Apache-2.0
"""A fast reader of the commonest question: a count under a conjunction of plain comparisons.

    SELECT COUNT(*) FROM t WHERE age BETWEEN 20 AND 29 AND sex = 'Female' AND state IN (1, 2)

A parser for all of SQL takes a millisecond, which is most of the time that a free answer takes;
this takes a tenth of it. It reads only what leaves no doubt and otherwise returns None, so that
``sql`` reads it, with its messages. What both can read means the same (tested), since
both ask the attribute itself which cells a comparison holds for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, cast

import numpy as np

from sfumato.domain.attributes import Attribute, Comparison
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.types import Mask
from sfumato.workload.question import Question
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "plain_count",
]


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
    return _question(domain, cells, " AND ".join(written))


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


def _question(domain: Domain, cells: dict[str, Mask], condition: str) -> Question | None:
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
