# SPDX-License-Identifier: Apache-2.0
"""Sets of linear queries on one attribute, as operators that are never built.

A query set is a matrix Q with one row per query and one column per cell, known by its
structure: applying it, its adjoint and its Gram matrix Q'Q costs O(cells) for the interval
kinds, whatever the number of queries. Integer input gives exact integer output, which is what
the vault relies on: no float stands between the data and the noise.

Products of these over several attributes are the terms of a workload, and the strategies that
the vault measures are made of the same parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import TooLarge, WorkloadError

__all__ = [
    "Array",
    "Identity",
    "Integers",
    "Intervals",
    "Numbers",
    "Prefix",
    "QuerySet",
    "Ranges",
    "Total",
    "Windows",
    "check_entries",
    "once",
    "repeated",
    "widened",
]

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]  # integers (exact) or floats

DENSE_LIMIT = 2**27  # numbers that may be held in one array (1 GiB of float64)


def check_entries(count: int, what: str) -> None:
    """Refuse, before anything is allocated, an array of ``count`` numbers that is too large."""
    if count > DENSE_LIMIT:
        raise TooLarge(
            f"{what} would hold {count:,} numbers ({count / 2**27:,.1f} GiB), the limit is "
            f"{DENSE_LIMIT:,}; ask about fewer or coarser cells, or fewer queries at once"
        )


def repeated(value: float, count: int) -> Array:
    """One number so many times, in the memory of one; it cannot be written to."""
    return np.broadcast_to(np.float64(value), (count,))


def once(numbers: Array) -> Array:
    """The one number that an array repeats (`repeated`), or the array."""
    return numbers[:1] if numbers.strides == (0,) else numbers


def widened(x: Numbers) -> Numbers:
    """The same numbers, integers in at least 64 bits so that sums of them do not wrap around.

    Sums are exact while their absolute values stay below 2^63; arrays of Python integers
    (``dtype=object``) are exact at any size.
    """
    if x.dtype.kind == "b" or (x.dtype.kind in "iu" and x.dtype.itemsize < 8):
        return x.astype(np.int64)
    if x.dtype.kind == "u":
        fits = x.size == 0 or int(x.max()) < 2**63
        return x.astype(np.int64 if fits else object)
    return x


@dataclass(frozen=True, eq=False)
class QuerySet(ABC):
    """Linear queries on the ``size`` cells of one attribute."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise WorkloadError(f"queries need at least one cell, got {self.size}")
        check_entries(self.size, f"a query on {self.size:,} cells")

    @property
    @abstractmethod
    def name(self) -> str:
        """The word for this set in workloads and reports."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of queries."""

    @abstractmethod
    def apply(self, x: Numbers) -> Numbers:
        """``Q x`` along the first axis; integers stay exact, scaled by 2^fraction_bits."""

    @abstractmethod
    def adjoint(self, y: Numbers) -> Numbers:
        """``Q' y`` along the first axis."""

    @abstractmethod
    def column_powers(self, p: int) -> Array:
        """For each cell, the sum of ``|q|^p`` over the queries: the p-th power of a column norm."""

    def gram_apply(self, x: Numbers) -> Numbers:
        """``Q'Q x`` along the first axis, in floats."""
        return self.adjoint(self.apply(np.asarray(x, dtype=np.float64)))

    def gram(self) -> Array:
        """``Q'Q`` as a dense matrix."""
        check_entries(self.size**2, f"the Gram matrix of {self.size:,} cells")
        return np.asarray(self.gram_apply(np.eye(self.size)), dtype=np.float64)

    def dense(self) -> Array:
        """``Q`` as a dense matrix."""
        check_entries(self.rows * self.size, f"{self.rows:,} queries on {self.size:,} cells")
        return np.asarray(self.apply(np.eye(self.size)), dtype=np.float64)

    def intervals(self) -> tuple[Integers, Integers] | None:
        """Starts and ends (excluded) when every query counts one interval of cells, else None."""
        return None

    def row_powers(self, p: int) -> Array:
        """For each query, the sum of ``|q|^p`` over the cells."""
        ends = self.intervals()
        if ends is None:
            return np.asarray((np.abs(self.dense()) ** p).sum(axis=1))
        return (ends[1] - ends[0]).astype(np.float64)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of each query."""
        ends = self.intervals()
        if ends is None:
            q = self.dense()
            return q.min(axis=1), q.max(axis=1)
        whole = (ends[1] - ends[0]) == self.size
        return whole.astype(np.float64), (ends[1] > ends[0]).astype(np.float64)

    @property
    def fraction_bits(self) -> int:
        """The least b such that every coefficient is a multiple of 2^-b."""
        return 0

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return 1.0

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""
        return True


@dataclass(frozen=True, eq=False)
class _Intervals(QuerySet):
    """Queries that each count one interval of cells."""

    @abstractmethod
    def intervals(self) -> tuple[Integers, Integers]:
        """Starts and ends (excluded) of every query."""

    def apply(self, x: Numbers) -> Numbers:
        """Differences of the running total."""
        starts, ends = self.intervals()
        running = _running(widened(x))
        return running[ends] - running[starts]

    def adjoint(self, y: Numbers) -> Numbers:
        """Each query's value on its interval: +y at the start, -y after the end, summed up."""
        starts, ends = self.intervals()
        y = widened(y)
        jumps = np.zeros((self.size + 1, *y.shape[1:]), dtype=y.dtype)
        np.add.at(jumps, starts, y)
        np.subtract.at(jumps, ends, y)
        return np.cumsum(jumps, axis=0)[:-1]

    def column_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """The number of intervals that hold each cell."""
        return np.asarray(self.adjoint(np.ones(self.rows)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Total(_Intervals):
    """One query: the sum over all cells."""

    @property
    def name(self) -> str:
        """``total``."""
        return "total"

    @property
    def rows(self) -> int:
        """One."""
        return 1

    def intervals(self) -> tuple[Integers, Integers]:
        """The whole axis."""
        return np.zeros(1, dtype=np.int64), np.full(1, self.size, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Identity(_Intervals):
    """One query per cell: the histogram."""

    @property
    def name(self) -> str:
        """``identity``."""
        return "identity"

    @property
    def rows(self) -> int:
        """One per cell."""
        return self.size

    def intervals(self) -> tuple[Integers, Integers]:
        """Single cells."""
        starts = np.arange(self.size, dtype=np.int64)
        return starts, starts + 1

    def apply(self, x: Numbers) -> Numbers:
        """``x`` itself."""
        return widened(x)

    def adjoint(self, y: Numbers) -> Numbers:
        """``y`` itself."""
        return widened(y)

    def column_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """All ones."""
        return np.ones(self.size)


@dataclass(frozen=True, eq=False)
class Prefix(_Intervals):
    """The running totals: cells 0..t for every t (a CDF, in counts)."""

    @property
    def name(self) -> str:
        """``prefix``."""
        return "prefix"

    @property
    def rows(self) -> int:
        """One per cell."""
        return self.size

    def intervals(self) -> tuple[Integers, Integers]:
        """From the first cell."""
        ends = np.arange(1, self.size + 1, dtype=np.int64)
        return np.zeros(self.size, dtype=np.int64), ends

    def apply(self, x: Numbers) -> Numbers:
        """The running total."""
        return np.cumsum(widened(x), axis=0)

    def adjoint(self, y: Numbers) -> Numbers:
        """The running total from the end."""
        return np.cumsum(widened(y)[::-1], axis=0)[::-1]


@dataclass(frozen=True, eq=False)
class Ranges(_Intervals):
    """All intervals [i, j] with i <= j, ordered by i, then j."""

    @property
    def name(self) -> str:
        """``ranges``."""
        return "ranges"

    @property
    def rows(self) -> int:
        """``size (size + 1) / 2``."""
        return self.size * (self.size + 1) // 2

    def intervals(self) -> tuple[Integers, Integers]:
        """All pairs."""
        check_entries(self.rows, f"all {self.rows:,} ranges of {self.size:,} cells")
        starts, lasts = np.triu_indices(self.size)
        return starts.astype(np.int64), lasts.astype(np.int64) + 1

    def column_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """``(i + 1)(size - i)`` intervals hold cell i."""
        i = np.arange(self.size, dtype=np.float64)
        return (i + 1) * (self.size - i)

    def gram_apply(self, x: Numbers) -> Numbers:
        """``V_ij = (min + 1)(size - max)``, by two running totals."""
        x = np.asarray(x, dtype=np.float64)
        i = np.arange(self.size, dtype=np.float64).reshape(-1, *[1] * (x.ndim - 1))
        left, right = i + 1, self.size - i
        below = np.cumsum(left * x, axis=0)
        above = np.cumsum((right * x)[::-1], axis=0)[::-1]
        return right * below + left * (above - right * x)


@dataclass(frozen=True, eq=False)
class Intervals(_Intervals):
    """Chosen intervals: the cells from ``starts`` up to, but not including, ``ends``."""

    starts: Integers
    ends: Integers

    def __post_init__(self) -> None:
        QuerySet.__post_init__(self)
        s, e = self.starts, self.ends
        if s.shape != e.shape or not ((s >= 0) & (s < e) & (e <= self.size)).all():
            raise WorkloadError(
                f"an interval starts before it ends, within the {self.size:,} cells"
            )

    @property
    def name(self) -> str:
        """``intervals``."""
        return "intervals"

    @property
    def rows(self) -> int:
        """As many as were chosen."""
        return len(self.starts)

    def intervals(self) -> tuple[Integers, Integers]:
        """As given."""
        return self.starts, self.ends


@dataclass(frozen=True, eq=False)
class Windows(_Intervals):
    """All intervals of ``width`` neighbouring cells."""

    width: int

    def __post_init__(self) -> None:
        QuerySet.__post_init__(self)
        if not 1 <= self.width <= self.size:
            raise WorkloadError(
                f"a window of {self.width} cells does not fit; allowed are 1 to {self.size}"
            )

    @property
    def name(self) -> str:
        """``windows(width)``."""
        return f"windows({self.width})"

    @property
    def rows(self) -> int:
        """``size - width + 1``."""
        return self.size - self.width + 1

    def intervals(self) -> tuple[Integers, Integers]:
        """One per start."""
        starts = np.arange(self.rows, dtype=np.int64)
        return starts, starts + self.width


def _running(x: Numbers) -> Numbers:
    zero = np.zeros((1, *x.shape[1:]), dtype=x.dtype)
    return np.concatenate([zero, np.cumsum(x, axis=0)])
