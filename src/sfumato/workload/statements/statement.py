# SPDX-License-Identifier: Apache-2.0
"""The shape of a SELECT: which columns its answer has, and what is done with released values.

A `Statement` says for every selected column where its numbers are among the answers of a workload:
the label of a group, a constant, a group of queries, a mean, a quantile. HAVING, ORDER BY and LIMIT
look at these columns after the noise was added, so they cost nothing and change no answer
(post-processing: Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import MISSING, OTHER, Value
from sfumato.types import Array, Integers, Mask
from sfumato.workload.statements.sql_groups import GroupRows

__all__ = [
    "AnswerOutput",
    "Column",
    "Columns",
    "ConstantOutput",
    "LabelOutput",
    "MeanOutput",
    "OutputNumbers",
    "QuantileOutput",
    "SelectOutput",
    "SortKey",
    "Statement",
    "StatementSource",
    "as_floats",
    "is_null",
]

Column = npt.NDArray[Any]
Columns = Sequence[Column]


@dataclass(frozen=True, eq=False, slots=True)
class OutputNumbers:
    """A column of an answer: values, and the ends of their intervals where they are noisy."""

    value: Column
    low: Column | None = None
    high: Column | None = None

    def at(self, rows: Integers) -> OutputNumbers:
        """The same column with these rows alone, in this order."""
        low, high = (None if end is None else end[rows] for end in (self.low, self.high))
        return OutputNumbers(self.value[rows], low, high)


class StatementSource(Protocol):
    """What the numbers of a statement are read off: a release, or the answers of a session."""

    def answer(self, term: int) -> OutputNumbers:
        """The answers of a group of queries."""
        ...

    def mean(self, ratio: int) -> OutputNumbers:
        """The quotients of a ratio."""
        ...

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        """The quantiles of an attribute, by the groups of its running totals."""
        ...


@dataclass(frozen=True, eq=False)
class SelectOutput(ABC):
    """A selected column, by its title."""

    title: str

    @property
    def is_linear(self) -> bool:
        """Whether its numbers are answers themselves, or labels; not computed from several."""
        return True

    @abstractmethod
    def numbers(self, source: StatementSource) -> OutputNumbers:
        """Its values, one per group."""

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The same column where so many terms and ratios stand before those of the statement."""
        return self


@dataclass(frozen=True, eq=False)
class LabelOutput(SelectOutput):
    """The value of a group: ``labels`` has one for every group of an axis."""

    axis: int
    labels: npt.NDArray[np.object_]
    rows: GroupRows

    def numbers(self, source: StatementSource) -> OutputNumbers:  # noqa: ARG002
        """The labels."""
        column = self.labels[self.rows.along(self.axis)]
        kinds = {type(v) for v in column.tolist()}
        whole = kinds == {int} and all(abs(v) < 2**62 for v in column.tolist())
        return OutputNumbers(column.astype(np.int64) if whole else column)


@dataclass(frozen=True, eq=False)
class ConstantOutput(SelectOutput):
    """The same constant for every group."""

    constant: Value | None
    rows: int

    def numbers(self, source: StatementSource) -> OutputNumbers:  # noqa: ARG002
        """The constant."""
        return OutputNumbers(np.array([self.constant] * self.rows))


@dataclass(frozen=True, eq=False)
class AnswerOutput(SelectOutput):
    """A count or a sum: the answers of a term."""

    term: int

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The answers."""
        return source.answer(self.term)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The term after others."""
        return replace(self, term=self.term + terms)


@dataclass(frozen=True, eq=False)
class MeanOutput(SelectOutput):
    """A mean: the quotients of a ratio."""

    ratio: int

    @property
    def is_linear(self) -> bool:
        """False: a quotient."""
        return False

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The quotients."""
        return source.mean(self.ratio)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The ratio after others."""
        return replace(self, ratio=self.ratio + ratios)


@dataclass(frozen=True, eq=False)
class QuantileOutput(SelectOutput):
    """A quantile, read off the running totals of a term."""

    term: int
    attribute: str
    probability: float

    @property
    def is_linear(self) -> bool:
        """False: an inverse of running totals."""
        return False

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The quantiles."""
        return source.quantile(self.term, self.attribute, self.probability)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The term after others."""
        return replace(self, term=self.term + terms)


@dataclass(frozen=True, eq=False, slots=True)
class SortKey:
    """What rows are sorted by, in which direction, and where NULL comes."""

    value: Callable[[Columns], Column]
    is_falling: bool = False
    nulls_first: bool = False

    def order(self, columns: Columns, rows: Integers) -> Integers:
        """The rows sorted by this key; rows that are equal in it stay in their order."""
        values = self.value(columns)[rows].tolist()
        ranks = {v: i for i, v in enumerate(sorted({v for v in values if not is_null(v)}, key=_by))}
        nowhere = -1 if self.nulls_first else len(ranks)
        sign = -1 if self.is_falling else 1
        keys = [nowhere if is_null(v) else sign * ranks[v] for v in values]
        if self.is_falling:
            last = 1 if not self.nulls_first else -len(ranks) - 1
            keys = [last if is_null(v) else k for v, k in zip(values, keys, strict=True)]
        return rows[np.argsort(np.array(keys, dtype=np.int64), kind="stable")]


def is_null(value: object) -> bool:
    """Whether a value of a row is missing."""
    return value is None or value == MISSING or value != value


def _by(value: Any) -> tuple[bool, str, Any]:
    """Values of one kind in their own order; ``(other)`` after them."""
    is_number = isinstance(value, int | float)
    return value == OTHER, "" if is_number else type(value).__name__, value


@dataclass(frozen=True, eq=False)
class Statement:
    """A SELECT: its columns in order, and what HAVING, ORDER BY, OFFSET and LIMIT do with them.

    ``having`` says for every row whether the condition holds for its released values. ``rows`` is
    the number of groups before that, and ``chooses`` says whether released values decide which of
    them are shown.
    """

    text: str
    outputs: tuple[SelectOutput, ...]
    rows: int
    having: Callable[[Columns], Mask] | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    chooses: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all groups are shown, whatever their values are."""
        return self.having is None and self.limit is None and not self.offset

    def level(self, level: float) -> float:
        """The level of each interval, so that those of the rows that are shown hold with ``level``.

        Where released values decide which rows are shown, an interval by itself does not say it for
        a row that was chosen: noise that lifted it may be why. So all rows have intervals that hold
        together (Bonferroni), whichever are chosen.
        """
        return 1 - (1 - level) / max(1, self.rows) if self.chooses else level

    def rows_after(self, columns: Columns) -> Integers:
        """The rows of the answer, in order, by the released values of its columns."""
        rows = np.arange(len(columns[0]), dtype=np.int64)
        if self.having is not None:
            rows = np.flatnonzero(self.having(columns))
        for key in reversed(self.order):
            rows = key.order(columns, rows)
        stop = None if self.limit is None else self.offset + self.limit
        return rows[self.offset : stop]

    def shifted(self, terms: int, ratios: int) -> Statement:
        """The statement where so many terms and ratios stand before its own."""
        return replace(self, outputs=tuple(o.shifted(terms, ratios) for o in self.outputs))

    def titles(self) -> tuple[str, ...]:
        """The names of the columns, each of its own."""
        taken: list[str] = []
        for output in self.outputs:
            title, again = output.title, 1
            while title in taken:
                again += 1
                title = f"{output.title} ({again})"
            taken.append(title)
        return tuple(taken)


def as_floats(column: Column) -> Array:
    """A column of numbers; not-a-number where a value is missing."""
    return np.array([np.nan if is_null(v) else float(v) for v in column.tolist()])
