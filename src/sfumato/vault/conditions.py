# SPDX-License-Identifier: Apache-2.0
"""A condition over cells as SQL over columns of codes.

The SQL holds integers and the names of code columns, and nothing that a person typed. Codes are
never null, so that AND, OR and NOT have two truth values, as in the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfumato.workload.predicates import And, Condition, In, Not, Or

__all__ = ["Compiled", "compile_condition"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A boolean SQL expression, the attributes it looks at, and its number of comparisons."""

    sql: str
    attributes: frozenset[str]
    size: int


def compile_condition(condition: Condition, column: Callable[[str], str]) -> Compiled:
    """A checked condition as SQL, with ``column(name)`` the column of codes of an attribute.

    >>> wanted = And((In("age", (25, 26, 27)), Not(In("sex", (0,)))))
    >>> compile_condition(wanted, lambda name: name).sql
    '((age BETWEEN 25 AND 27) AND (NOT (sex = 0)))'
    """
    if isinstance(condition, In):
        return _membership(condition, column)
    if isinstance(condition, Not):
        part = compile_condition(condition.part, column)
        return Compiled(f"(NOT {part.sql})", part.attributes, part.size)
    if isinstance(condition, And | Or):
        parts = [compile_condition(part, column) for part in condition.parts]
        word, empty = ("AND", "TRUE") if isinstance(condition, And) else ("OR", "FALSE")
        joined = f" {word} ".join(part.sql for part in parts)
        return Compiled(
            f"({joined})" if parts else empty,
            frozenset().union(*(part.attributes for part in parts)),
            1 + sum(part.size for part in parts),
        )
    return Compiled("TRUE", frozenset(), 1)  # Everything


def _membership(condition: In, column: Callable[[str], str]) -> Compiled:
    """One comparison per run of neighbouring cells."""
    codes = sorted({int(code) for code in condition.codes})
    if not codes:
        return Compiled("FALSE", frozenset(), 1)
    name = column(condition.attribute)
    runs = [_comparison(name, first, last) for first, last in _runs(codes)]
    return Compiled(f"({' OR '.join(runs)})", frozenset((condition.attribute,)), len(runs))


def _runs(codes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers.

    >>> _runs([1, 2, 3, 7, 9])
    [(1, 3), (7, 7), (9, 9)]
    """
    breaks = [i for i, (a, b) in enumerate(pairwise(codes), 1) if b != a + 1]
    starts, ends = [0, *breaks], [*breaks, len(codes)]
    return [(codes[s], codes[e - 1]) for s, e in zip(starts, ends, strict=True)]


def _comparison(name: str, first: int, last: int) -> str:
    return f"{name} = {first}" if first == last else f"{name} BETWEEN {first} AND {last}"
