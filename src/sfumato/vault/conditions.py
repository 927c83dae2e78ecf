# SPDX-License-Identifier: Apache-2.0
"""A condition over cells as SQL over columns of codes.

The SQL holds integers and the names of code columns, and nothing that a person typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.wording import shown
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or

__all__ = ["Compiled", "compile_condition"]

DEEPEST: Final = 200


@dataclass(frozen=True, slots=True)
class Compiled:
    """A boolean SQL expression, the attributes it looks at, and its number of comparisons."""

    sql: str
    attributes: frozenset[str]
    size: int


def compile_condition(
    condition: Condition, domain: Domain, column: Callable[[str], str]
) -> Compiled:
    """The condition as SQL, with ``column(name)`` the column of codes of an attribute.

    >>> domain = Domain({"age": 100, "sex": 2})
    >>> wanted = And((In("age", (25, 26, 27)), Not(In("sex", (0,)))))
    >>> compile_condition(wanted, domain, lambda name: name).sql
    '((age BETWEEN 25 AND 27) AND (NOT (sex = 0)))'
    """
    return _compile(condition, domain, column, DEEPEST)


def _compile(
    condition: Condition, domain: Domain, column: Callable[[str], str], deeper: int
) -> Compiled:
    if deeper == 0:
        raise WorkloadError(
            f"a condition is nested more than {DEEPEST} deep; give its parts as one And or Or"
        )
    if isinstance(condition, Everything):
        return Compiled("TRUE", frozenset(), 1)
    if isinstance(condition, In):
        return _membership(condition, domain, column)
    if isinstance(condition, Not):
        part = _compile(condition.part, domain, column, deeper - 1)
        return Compiled(f"(NOT {part.sql})", part.attributes, part.size)
    if isinstance(condition, And | Or):
        parts = [_compile(part, domain, column, deeper - 1) for part in condition.parts]
        word, empty = ("AND", "TRUE") if isinstance(condition, And) else ("OR", "FALSE")
        joined = f" {word} ".join(part.sql for part in parts)
        return Compiled(
            f"({joined})" if parts else empty,
            frozenset().union(*(part.attributes for part in parts)),
            1 + sum(part.size for part in parts),
        )
    raise WorkloadError(
        f"{shown(condition)} is not a condition; build it from In, And, Or, Not and Everything"
    )


def _membership(condition: In, domain: Domain, column: Callable[[str], str]) -> Compiled:
    """One comparison per run of neighbouring cells."""
    size = domain[condition.attribute].size
    codes = sorted({int(code) for code in condition.codes})
    if codes and not 0 <= codes[0] <= codes[-1] < size:
        raise WorkloadError(
            f"attribute {condition.attribute!r} has cells 0 to {size - 1}; a condition asks for "
            f"{codes[0] if codes[0] < 0 else codes[-1]}"
        )
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
