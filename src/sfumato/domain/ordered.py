# SPDX-License-Identifier: Apache-2.0
"""Attributes whose values are numbers: integer ranges, and real numbers between edges."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sfumato.domain.base import Attribute, Comparison, Value, given_list, whole_number
from sfumato.errors import WorkloadError
from sfumato.wording import listing, shown

__all__ = ["Integer", "Numeric", "first_fall"]


@dataclass(frozen=True)
class Integer(Attribute):
    """The integers from ``min`` to ``max`` (both included), in bins of ``width``.

    >>> Integer("age", 17, 90).size
    74
    >>> Integer("age", 0, 99, 10).label(3)
    '30-39'
    """

    min: int
    max: int
    width: int = 1

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        for key in ("min", "max", "width"):
            object.__setattr__(self, key, whole_number(self.name, key, getattr(self, key)))
        if self.max < self.min:
            raise self._fault(f"max = {self.max} is below min = {self.min}")
        if self.width < 1:
            raise self._fault(f"width = {self.width} must be at least 1")
        super().__post_init__()

    @property
    def value_count(self) -> int:
        """Number of bins; the last may be narrower."""
        return (self.max - self.min) // self.width + 1

    def value_label(self, code: int) -> Value:
        """The integer, or ``low-high`` for bins wider than 1."""
        low, high = self.bounds(code)
        if self.width == 1:
            return low
        if low == high:
            return str(low)
        return f"{low}-{high}" if low >= 0 else f"{low} to {high}"

    def bounds(self, code: int) -> tuple[int, int]:
        """The least and the greatest integer of bin ``code``."""
        low = self.min + code * self.width
        return low, min(low + self.width - 1, self.max)

    def numbers(self) -> npt.NDArray[np.float64]:
        """The integer, or the middle of its bin."""
        self._require_listable()
        low = self.min + self.width * np.arange(self.value_count, dtype=np.float64)
        high = np.minimum(low + self.width - 1, self.max)
        return self._with_no_number((low + high) / 2)

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        number = _number(self, constant)
        if comparison in ("=", "!="):
            return self._codes_equal(comparison, number)
        # v < c iff v < ceil(c); v <= c iff v < floor(c) + 1, for integers v.
        first = math.ceil(number) if comparison in ("<", ">=") else math.floor(number) + 1
        if first > self.max:
            return self._codes_around(comparison, self.value_count)
        cut, rest = divmod(max(first, self.min) - self.min, self.width)
        if rest:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width} from {self.min}, so "
                f"{comparison} {shown(constant)} would cut the bin {self.value_label(cut)}; "
                "compare at the start of a bin"
            )
        return self._codes_around(comparison, cut)

    def _codes_equal(self, comparison: Comparison, number: int | float) -> range:
        if number < self.min or number > self.max or number != math.floor(number):
            return range(0)
        code = (int(number) - self.min) // self.width
        low, high = self.bounds(code)
        if low != high:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width}, so {comparison} "
                f"{shown(number)} would cut the bin {self.value_label(code)}; ask for a range of "
                "whole bins"
            )
        return range(code, code + 1)


@dataclass(frozen=True)
class Numeric(Attribute):
    """Real numbers in bins ``[e0, e1), [e1, e2), ..., [e_last-1, e_last]`` between given edges.

    >>> Numeric("income", (0, 1000, 5000)).labels
    ('[0, 1000)', '[1000, 5000]')
    """

    edges: tuple[float, ...]

    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        edges = given_list(self.name, "edges", self.edges)
        object.__setattr__(self, "edges", tuple(self._edge(e) for e in edges))
        if len(self.edges) < 2:
            raise self._fault("edges needs at least two numbers")
        at = first_fall(self.edges)
        if at is not None:
            before, after = _short(self.edges[at - 1]), _short(self.edges[at])
            raise self._fault(
                f"edges must rise, but {before} is followed by {after} (the bins would overlap)"
            )
        super().__post_init__()

    def _edge(self, value: object) -> float:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
            raise self._fault(f"edges holds {shown(value)}, which is not a number")
        try:
            edge = float(value) + 0.0  # -0.0 + 0.0 is 0.0: equal edges have one form
        except OverflowError:
            edge = math.inf
        if not math.isfinite(edge):
            raise self._fault("edges must be finite numbers; use outside = 'clamp' for open ends")
        return edge

    @property
    def value_count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def value_label(self, code: int) -> Value:
        """``[low, high)``."""
        close = "]" if code == self.value_count - 1 else ")"
        return f"[{_short(self.edges[code])}, {_short(self.edges[code + 1])}{close}"

    def numbers(self) -> npt.NDArray[np.float64]:
        """The middle of each bin."""
        edges = np.array(self.edges)
        return self._with_no_number(edges[:-1] / 2 + edges[1:] / 2)

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        number = _number(self, constant)
        low, high = self.edges[0], self.edges[-1]
        if number < low or number > high:
            if comparison in ("=", "!="):
                return range(0)
            return self._codes_around(comparison, 0 if number < low else self.value_count)
        if number == high and comparison in ("<=", ">"):  # the last bin holds its upper edge
            return self._codes_around(comparison, self.value_count)
        cut = bisect.bisect_left(self.edges, number)
        if comparison in ("<", ">=") and self.edges[cut] == number < high:
            return self._codes_around(comparison, cut)
        raise WorkloadError(
            f"attribute {self.name!r} is binned, so {comparison} {shown(constant)} would cut a "
            f"bin; ask < or >= at one of {listing([_Plain(e) for e in self.edges[:-1]])}, or <= or "
            f"> at the last edge {_short(high)}"
        )


class _Plain(float):
    """A number that is shown without a needless ``.0``."""

    def __repr__(self) -> str:
        return _short(self)


def _short(number: float) -> str:
    """The shortest exact text of a number.

    >>> _short(99999999.0), _short(0.1)
    ('99999999', '0.1')
    """
    number = float(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _number(attribute: Attribute, constant: object) -> int | float:
    is_truth = isinstance(constant, bool)
    if isinstance(constant, Integral) and not is_truth:
        return operator.index(constant)
    if not isinstance(constant, float):
        raise WorkloadError(
            f"attribute {attribute.name!r} is {attribute.kind}: compare it with a number, "
            f"not {shown(constant)}"
        )
    if not math.isfinite(constant):
        raise WorkloadError(f"attribute {attribute.name!r}: {constant!r} is not a finite number")
    return float(constant)


def first_fall(edges: Sequence[float]) -> int | None:
    """The position of the first edge that is not above the one before it.

    >>> first_fall([0.0, 1.0, 1.0])
    2
    """
    pairs = itertools.pairwise(edges)
    return next((i + 1 for i, (low, high) in enumerate(pairs) if not low < high), None)
