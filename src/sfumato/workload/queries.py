# SPDX-License-Identifier: Apache-2.0
"""Sets of linear queries on one attribute, as operators that are never built.

A query set is a matrix Q with one row per query and one column per cell, known by its
structure: applying it, its adjoint and its Gram matrix Q'Q costs O(cells) for the interval
kinds, whatever the number of queries. Integer input gives exact integer output, which is what
the vault relies on: no float stands between the data and the noise. Coefficients that a person
gives are stored as integers times a power of two, so that answers and the sensitivity computed
from them are exact, too.

Products of these over several attributes are the terms of a workload, and the strategies that
the vault measures are made of the same parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import ceil, log2
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sfumato.digest import sha256
from sfumato.errors import TooLarge, WorkloadError
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "ENTRY_BITS",
    "Groups",
    "Identity",
    "Intervals",
    "Json",
    "LabelKind",
    "Matrix",
    "Prefix",
    "QuerySet",
    "Ranges",
    "Total",
    "Windows",
    "by_first",
    "check_entries",
    "equal_rows",
    "fewest_bits",
    "hashed",
    "integer_entries",
    "joint_classes",
    "numeric_array",
    "once",
    "repeated",
    "value_entries",
    "widened",
    "widest",
]


EXACT = 2.0**52  # integers below it are floats, and so is the sum of two
# Gram entries in floats err by less than this part of the greatest: sums of 2^14 products would do
# so by 2^-38 at the worst, and transforms by FFT err by less than 2^-40.
GRAM_ERROR = 2.0**-36

Json = str | int | float | list["Json"]
LabelKind = Literal["cells", "ends", "ranges", "groups", "total", "rows"]


def check_entries(count: int, what: str) -> None:
    """Refuse, before anything is allocated, an array of ``count`` numbers that is too large."""
    if count > LIMITS.array_entries:
        raise TooLarge(
            f"{what} would hold {count:,} numbers ({count / 2**27:,.1f} GiB), the limit is "
            f"{LIMITS.array_entries:,}; ask about fewer or coarser cells, or fewer queries at once"
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


def equal_rows(rows: Numbers) -> Integers:
    """A number per row of a matrix, equal for equal rows."""
    return np.unique(rows, axis=0, return_inverse=True)[1].astype(np.int64).reshape(-1)


def by_first(keys: Integers) -> Integers:
    """The classes of equal keys, numbered by their first position.

    >>> by_first(np.array([7, 3, 7, 5]))
    array([0, 1, 0, 2])
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int64)[inverse.reshape(-1)]


def joint_classes(keys: Sequence[Integers]) -> Integers:
    """The class of every position: equal where all keys agree, numbered by first position."""
    joint = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        # Both numberings are below the number of positions, which is below 2^31.
        _, joint = np.unique(joint * (int(key.max()) + 1) + key, return_inverse=True)
    return by_first(joint)


def fewest_bits(entries: Integers, bits: int) -> tuple[Integers, int]:
    """The same coefficients ``entries * 2^-bits`` in the fewest bits after the point."""
    while bits and not (entries & 1).any():
        entries, bits = entries >> 1, bits - 1
    return entries, bits


def hashed(values: Numbers) -> str:
    """SHA-256 of whole numbers, as 64-bit integers."""
    return sha256(np.ascontiguousarray(values.astype(np.int64)).tobytes())


def widest(columns: Integers) -> float:
    """``max_ij |c_i - c_j|^2`` of integer columns, rounded up; 0 only if all are equal.

    Entries are below 2^52, so that taking off the first column is exact. No centred column is
    longer than the diameter, of which the rounding is therefore a small part.
    """
    centred = (columns - columns[:, :1]).astype(np.float64)
    gram = centred.T @ centred
    own = np.diag(gram)
    maximum = float((own[:, None] + own[None, :] - 2 * gram).max())
    return max(maximum, float(own.max())) * (1 + (len(columns) + 8) * 2.0**-49)


@dataclass(frozen=True, eq=False)
class QuerySet(ABC):
    """Linear queries on the ``size`` cells of one attribute."""

    size: int

    is_identity: ClassVar[bool] = False
    """Whether it is known to ask for every cell, in their order."""
    is_total: ClassVar[bool] = False
    is_prefix: ClassVar[bool] = False
    """Whether it is known to ask for all running totals, in the order of the cells."""
    """Whether it is known to ask for the sum over all cells, and nothing else."""
    is_disjoint: ClassVar[bool] = False
    """Whether it is known to count sets of cells of which no two share one.

    Nothing is measured better than such queries themselves: gamma_2 is 1.
    """
    separates_cells: ClassVar[bool] = False
    """Whether it is known to have full column rank: every two cells have different columns."""
    is_ordered: ClassVar[bool] = False
    """Whether it is known to count intervals such that no two cells can be exchanged."""
    holds_prefixes: ClassVar[bool] = False
    """Whether it counts intervals, all running totals among them; V is then invertible."""
    is_mirrored: ClassVar[bool] = False
    """Whether reading the cells backwards is known to give the same intervals."""
    is_exact: ClassVar[bool] = True
    """Whether all coefficients are multiples of 2^-fraction_bits."""
    label_kind: ClassVar[LabelKind] = "rows"
    """What its queries are named by: cells, ends of cells, groups, or a text of their own."""
    is_plain: ClassVar[bool] = False
    """Whether its name and size say all that is asked."""

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
    def key(self) -> str | int:
        """Equal for equal query sets of one size, where the kind says all; else the object."""
        return self.name if self.is_plain else id(self)

    def is_same(self, other: QuerySet) -> bool:
        """Whether another set, of as many cells, is known to ask the same queries in this order."""
        return self.key == other.key

    def rank_bound(self) -> int:
        """A lower bound on the rank of Q, by its structure."""
        return 1

    def titled(self, attribute: str) -> str:
        """What it asks of an attribute of this name, for names of groups of queries."""
        return f"{self.name} {attribute}"

    @property
    def row_labels(self) -> tuple[str, ...]:
        """A text per query, where some were given."""
        return ()

    def simplest(self) -> QuerySet:
        """The same queries in the same order, as the histogram where they are known to be that."""
        return self

    def integer_rows(self) -> Iterator[Integers]:
        """The coefficients of query after query, in steps of 2^-fraction_bits."""
        yield from np.rint(np.ldexp(self.dense(), self.fraction_bits)).astype(np.int64)

    def canonical(self) -> list[Json]:
        """What is asked, as JSON for hashes; nothing for the total, as of an unnamed attribute."""
        if self.is_plain:
            return [] if self.size == 1 else [self.name, self.size]
        return [type(self).__name__, self.name, self.size]

    def written(self) -> tuple[Json, bytes]:
        """What tells it from other sets of its kind and size, as JSON and as bytes."""
        return [self.name, self.rows], b""

    def cell_classes(self) -> Integers | None:
        """A number per cell, equal only for cells with equal columns.

        Returns:
            The classes that the structure of Q tells, or None where its coefficients have to be
            looked at.
        """
        return np.arange(self.size) if self.separates_cells else None

    def exchange_classes(self) -> Integers:
        """A number per cell, equal only for cells that can be exchanged.

        Exchanging two cells permutes the queries, up to their signs: then ``Q'Q`` is the same.
        """
        if self.is_ordered:
            return np.arange(self.size)
        matrix = self.dense()
        single = (matrix != 0).sum(axis=1) == 1
        alone = np.sort(np.abs(matrix[single]), axis=0)[::-1]
        return equal_rows(np.concatenate([matrix[~single], alone]).T)

    def inverse_gram(self) -> tuple[Array, Array] | None:
        """The diagonal of ``(Q'Q)^-1`` and the entries beside it, where it is tridiagonal."""
        return None

    def inner_products(self) -> tuple[float, float] | None:
        """The least and the greatest inner product of two columns, a column with itself included.

        Returns:
            Both, up to the rounding of the Gram matrix, or None where that is too large.
        """
        if self.size > LIMITS.gram_cells:
            return None
        gram = self.gram()
        return float(gram.min()), float(gram.max())

    def squared_diameter(self) -> float | None:
        """``max_ij |Q_i - Q_j|_2^2`` over pairs of columns: what one replaced record moves.

        Columns that are nearly equal and long cancel in ``G_ii + G_jj - 2 G_ij``, so the rounding
        of the Gram matrix is added unless it is proved to have none.

        Returns:
            An upper bound, but for the last roundings; None where the Gram matrix is too large.
        """
        if self.size > LIMITS.gram_cells:
            return None
        gram = self.gram()
        own = np.diag(gram)
        steps = np.ldexp(gram, 2 * self.fraction_bits)
        is_exact = float(own.max()) * 4.0**self.fraction_bits < EXACT / 2
        is_exact = is_exact and bool((steps == np.rint(steps)).all())
        lost = 0.0 if is_exact else GRAM_ERROR * float(own.max())
        return float((own[:, None] + own[None, :] - 2 * gram).max()) + lost

    def l1_diameter(self) -> float | None:
        """An upper bound on ``max_ij |Q_i - Q_j|_1``, where one is known by the coefficients."""
        return None

    def stored_entries(self) -> Integers | None:
        """The coefficients in steps of 2^-fraction_bits, where they are stored; else None."""
        return None

    def least_squares(self, y: Array) -> Array:  # noqa: ARG002
        """``Q^+ y`` along the first axis: the best linear unbiased estimate of the cells.

        This and the next ones are for query sets that strategies measure, of full column rank.
        """
        raise TypeError(f"the cells are not estimated from {self.name}")

    def transposed(self, c: Array) -> Array:  # noqa: ARG002
        """``(Q^+)' c`` along the first axis: how much every measured value counts in ``c x``."""
        raise TypeError(f"the cells are not estimated from {self.name}")

    def row_variances(self, queries: QuerySet) -> Array:  # noqa: ARG002
        """``|q Q^+|^2`` of every query q: its variance, if Q is measured with unit noise."""
        raise TypeError(f"the cells are not estimated from {self.name}")

    def total_variance(self, queries: QuerySet) -> float:
        """The sum of ``row_variances``."""
        return float(self.row_variances(queries).sum())

    def maximum_variance(self, queries: QuerySet) -> float:
        """The greatest of ``row_variances``, or a bound on it where they are too many to list."""
        return float(self.row_variances(queries).max())

    def row_fourths(self, queries: QuerySet) -> Array:  # noqa: ARG002
        """The sum of the fourth powers of ``q Q^+`` of every query (for the tails of Laplace)."""
        raise TypeError(f"the cells are not estimated from {self.name}")

    def running_totals(self) -> Prefix | None:
        """Running totals whose differences, with 0, are all answers; None for other queries."""
        return None

    def cells_from(self, answers: Array) -> Array | None:  # noqa: ARG002
        """A value for every cell from the answers along the first axis.

        Returns:
            The cells, or None where the answers determine none.
        """
        return None

    def tells(self, target: QuerySet) -> bool:  # noqa: ARG002
        """Whether ``target`` of `cells_from` are its true answers, whatever the cells hold."""
        return self.separates_cells

    def answers_of(self, target: QuerySet, answers: Array) -> Array | None:
        """The answers of other queries about these cells, from its own along the first axis.

        Returns:
            Linear combinations, or None where its answers are not known to determine them.
        """
        if target.is_same(self):
            return answers
        cells = self.cells_from(answers) if self.tells(target) else None
        return None if cells is None else np.asarray(target.apply(cells), dtype=np.float64)

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

    is_total = True
    is_disjoint = True
    label_kind = "total"
    is_plain = True

    @property
    def name(self) -> str:
        """``total``."""
        return "total"

    @property
    def rows(self) -> int:
        """One."""
        return 1

    def canonical(self) -> list[Json]:
        """Nothing."""
        return []

    def cell_classes(self) -> Integers:
        """One class."""
        return np.zeros(self.size, dtype=np.int64)

    def exchange_classes(self) -> Integers:
        """All cells can be exchanged."""
        return np.zeros(self.size, dtype=np.int64)

    def intervals(self) -> tuple[Integers, Integers]:
        """The whole axis."""
        return np.zeros(1, dtype=np.int64), np.full(1, self.size, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Identity(_Intervals):
    """One query per cell: the histogram."""

    is_identity = True
    is_disjoint = True
    separates_cells = True
    is_mirrored = True
    label_kind = "cells"
    is_plain = True

    @property
    def name(self) -> str:
        """``identity``."""
        return "identity"

    @property
    def rows(self) -> int:
        """One per cell."""
        return self.size

    def titled(self, attribute: str) -> str:
        """The attribute."""
        return attribute

    def least_squares(self, y: Array) -> Array:
        """The measured cells."""
        return y

    def transposed(self, c: Array) -> Array:
        """Every cell counts as it is asked."""
        return c

    def row_variances(self, queries: QuerySet) -> Array:
        """Single cells add up."""
        return queries.row_powers(2)

    def total_variance(self, queries: QuerySet) -> float:
        """Over all queries."""
        return float(queries.column_powers(2).sum())

    def maximum_variance(self, queries: QuerySet) -> float:
        """The longest interval adds up the most single cells."""
        if queries.holds_prefixes:
            return float(queries.size)
        return float(queries.row_powers(2).max())

    def row_fourths(self, queries: QuerySet) -> Array:
        """Of the queries themselves."""
        return queries.row_powers(4)

    def rank_bound(self) -> int:
        """One per cell."""
        return self.size

    def exchange_classes(self) -> Integers:
        """All cells can be exchanged."""
        return np.zeros(self.size, dtype=np.int64)

    def inner_products(self) -> tuple[float, float]:
        """0 and 1."""
        return (0.0 if self.size > 1 else 1.0), 1.0

    def cells_from(self, answers: Array) -> Array:
        """The answers."""
        return answers

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

    is_prefix = True
    separates_cells = True
    is_ordered = True
    holds_prefixes = True
    label_kind = "ends"
    is_plain = True

    @property
    def name(self) -> str:
        """``prefix``."""
        return "prefix"

    @property
    def rows(self) -> int:
        """One per cell."""
        return self.size

    def rank_bound(self) -> int:
        """One per cell."""
        return self.size

    def inverse_gram(self) -> tuple[Array, Array]:
        """2 and -1, as differences of neighbours have it; 1 at the first cell."""
        diagonal = np.full(self.size, 2.0)
        diagonal[0] = 1.0
        return diagonal, np.full(self.size - 1, -1.0)

    def cells_from(self, answers: Array) -> Array:
        """Differences of neighbours."""
        return np.diff(answers, axis=0, prepend=0.0)

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

    separates_cells = True
    is_ordered = True
    holds_prefixes = True
    is_mirrored = True
    label_kind = "ranges"
    is_plain = True

    @property
    def name(self) -> str:
        """``ranges``."""
        return "ranges"

    @property
    def rows(self) -> int:
        """``size (size + 1) / 2``."""
        return self.size * (self.size + 1) // 2

    def rank_bound(self) -> int:
        """One per cell."""
        return self.size

    def running_totals(self) -> Prefix:
        """Every range is a difference of two."""
        return Prefix(self.size)

    def inverse_gram(self) -> tuple[Array, Array]:
        """2 and -1, over the number of cells and one."""
        n = self.size
        return np.full(n, 2.0) / (n + 1), np.full(n - 1, -1.0) / (n + 1)

    def cells_from(self, answers: Array) -> Array | None:
        """The ranges of one cell."""
        return _single_cells(self, answers)

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

    label_kind = "ranges"

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

    def written(self) -> tuple[Json, bytes]:
        """The ends."""
        return self.rows, self.starts.tobytes() + self.ends.tobytes()

    def cell_classes(self) -> Integers:
        """A new one wherever an interval starts or ends."""
        return _between_ends(self)

    def intervals(self) -> tuple[Integers, Integers]:
        """As given."""
        return self.starts, self.ends


@dataclass(frozen=True, eq=False)
class Windows(_Intervals):
    """All intervals of ``width`` neighbouring cells."""

    is_ordered = True
    is_mirrored = True
    label_kind = "ranges"
    is_plain = True

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

    def rank_bound(self) -> int:
        """Each begins at a cell of its own."""
        return self.rows

    def simplest(self) -> QuerySet:
        """Single cells, if the width is 1."""
        return Identity(self.size) if self.width == 1 else self

    def canonical(self) -> list[Json]:
        """The name and the size; one window over all cells is the total."""
        return [] if self.width == self.size else [self.simplest().name, self.size]

    def cell_classes(self) -> Integers:
        """A new one wherever a window starts or ends."""
        return _between_ends(self)

    def cells_from(self, answers: Array) -> Array | None:
        """The windows, if they have one cell."""
        return _single_cells(self, answers)

    def intervals(self) -> tuple[Integers, Integers]:
        """One per start."""
        starts = np.arange(self.rows, dtype=np.int64)
        return starts, starts + self.width


def _between_ends(queries: _Intervals) -> Integers:
    starts, ends = queries.intervals()
    cuts = np.zeros(queries.size + 1, dtype=np.int64)
    cuts[starts] = 1
    cuts[ends] = 1
    return np.cumsum(cuts[:-1])


def _single_cells(queries: _Intervals, answers: Array) -> Array | None:
    starts, ends = queries.intervals()
    single = np.flatnonzero(ends - starts == 1)
    return answers[single] if single.size == queries.size else None


def _running(x: Numbers) -> Numbers:
    zero = np.zeros((1, *x.shape[1:]), dtype=x.dtype)
    return np.concatenate([zero, np.cumsum(x, axis=0)])


# Query sets that are given by their coefficients: groups of a hierarchy, matrices

ENTRY_BITS = 20  # bits after the point that are kept of a given coefficient
VALUE_BITS = 44  # bits that are kept of the greatest coefficient of sums of values


@dataclass(frozen=True, eq=False)
class Groups(QuerySet):
    """The totals of disjoint named groups of cells (a level of a hierarchy).

    ``group_of[c]`` is the group of cell ``c``; -1 means that the cell is in none. ``title`` is what
    stands before a group in words, ``attribute.level`` where it is empty.
    """

    is_disjoint = True
    label_kind = "groups"

    level: str
    labels: tuple[str, ...]
    group_of: tuple[int, ...]
    title: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.group_of) != self.size or not self.labels:
            raise WorkloadError(
                f"groups of {self.size} cells need one group number per cell and at least one "
                f"label, got {len(self.group_of)} numbers and {len(self.labels)} labels"
            )
        if not -1 <= min(self.group_of) <= max(self.group_of) < len(self.labels):
            raise WorkloadError(
                f"group numbers must be between -1 (in none) and {len(self.labels) - 1}"
            )

    @cached_property
    def _assignment(self) -> Integers:
        return np.array(self.group_of, dtype=np.int64)

    @property
    def name(self) -> str:
        """``groups(level)``."""
        return f"groups({self.level})"

    @property
    def rows(self) -> int:
        """One per group."""
        return len(self.labels)

    def titled(self, attribute: str) -> str:
        """``attribute.level``, or its own title."""
        return self.title or f"{attribute}.{self.level}"

    @property
    def row_labels(self) -> tuple[str, ...]:
        """Those of the groups."""
        return self.labels

    def simplest(self) -> QuerySet:
        """Single cells, if every cell is the group of its own number."""
        is_cells = self.group_of == tuple(range(self.size))
        return Identity(self.size) if is_cells else self

    def integer_rows(self) -> Iterator[Integers]:
        """One group at a time."""
        order = np.argsort(self._assignment, kind="stable")
        starts = np.searchsorted(self._assignment[order], np.arange(self.rows + 1))
        for first, last in pairwise(starts):
            cells = np.zeros(self.size, dtype=np.int64)
            cells[order[first:last]] = 1
            yield cells

    def canonical(self) -> list[Json]:
        """The group of every cell."""
        return ["groups", self.rows, hashed(self._assignment)]

    def written(self) -> tuple[Json, bytes]:
        """The group of every cell."""
        return self.rows, self._assignment.tobytes()

    def is_same(self, other: QuerySet) -> bool:
        """The same cells in groups of the same numbers."""
        return isinstance(other, Groups) and self.group_of == other.group_of

    def rank_bound(self) -> int:
        """One per group that has cells."""
        return max(len(set(self.group_of) - {-1}), 1)

    def cell_classes(self) -> Integers:
        """The groups, and the cells in none."""
        return self._assignment + 1

    def exchange_classes(self) -> Integers:
        """The groups, and the cells in none."""
        return self._assignment

    def cells_from(self, answers: Array) -> Array:
        """Equal shares of the group for each of its cells."""
        sizes = self.row_powers(1)
        shares = answers / np.maximum(sizes, 1.0).reshape(-1, *[1] * (answers.ndim - 1))
        return np.asarray(self.adjoint(shares), dtype=np.float64)

    def tells(self, target: QuerySet) -> bool:
        """Whether no query tells cells of one group apart, nor counts a cell of none."""
        if target.rows * self.size > LIMITS.matrix_entries_compared:
            return False
        group = self._assignment
        _, first, number = np.unique(group, return_index=True, return_inverse=True)
        matrix = target.dense()
        is_constant = bool((matrix == matrix[:, first[number]]).all())
        return is_constant and not matrix[:, group < 0].any()

    def apply(self, x: Numbers) -> Numbers:
        """Sums by group."""
        x = widened(x)
        out = np.zeros((self.rows, *x.shape[1:]), dtype=x.dtype)
        grouped = self._assignment >= 0
        np.add.at(out, self._assignment[grouped], x[grouped])
        return out

    def adjoint(self, y: Numbers) -> Numbers:
        """Each cell gets its group's value."""
        out = np.zeros((self.size, *y.shape[1:]), dtype=y.dtype)
        grouped = self._assignment >= 0
        out[grouped] = y[self._assignment[grouped]]
        return out

    def column_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """1 for cells in a group."""
        return (self._assignment >= 0).astype(np.float64)

    def row_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """The number of cells of each group."""
        grouped = self._assignment[self._assignment >= 0]
        return np.bincount(grouped, minlength=self.rows).astype(np.float64)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and 1, or 1 and 1 for a group of all cells."""
        count = self.row_powers(1)
        return (count == self.size).astype(np.float64), (count > 0).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Matrix(QuerySet):
    """Given coefficients, one row per query.

    Coefficients are kept as integers times 2^-fraction_bits (at most 2^20 parts per unit),
    so that what the vault computes with them is exact.
    """

    entries: Integers
    bits: int
    labels: tuple[str, ...] = ()
    title: str = field(default="matrix")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entries.ndim != 2 or self.entries.shape[1] != self.size or not len(self.entries):
            raise WorkloadError(
                f"a matrix of queries on {self.size} cells needs {self.size} columns and at least "
                f"one row, got shape {self.entries.shape}"
            )
        if self.labels and len(self.labels) != len(self.entries):
            raise WorkloadError(
                f"{len(self.entries)} queries were given with {len(self.labels)} labels"
            )
        self.entries.setflags(write=False)

    @classmethod
    def of(
        cls, coefficients: npt.ArrayLike, labels: tuple[str, ...] = (), title: str = "matrix"
    ) -> Matrix:
        """The queries of an array of numbers, one row per query."""
        matrix = np.atleast_2d(numeric_array(coefficients))
        if matrix.ndim != 2:
            raise WorkloadError(f"a matrix of queries has two axes, got shape {matrix.shape}")
        entries, bits = integer_entries(matrix)
        return cls(entries.shape[1], entries, bits, labels, title)

    @classmethod
    def of_values(
        cls, row: npt.ArrayLike, labels: tuple[str, ...] = (), title: str = "matrix"
    ) -> Matrix:
        """One query with coefficients of the values of a column (`value_entries`)."""
        entries, bits = value_entries(np.atleast_2d(numeric_array(row)))
        return cls(entries.shape[1], entries, bits, labels, title)

    @property
    def name(self) -> str:
        """Its title."""
        return self.title

    @property
    def rows(self) -> int:
        """One per row."""
        return len(self.entries)

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return self.bits

    @cached_property
    def _coefficients(self) -> Array:
        out = np.ldexp(self.entries, -self.bits)
        out.setflags(write=False)
        return out

    @property
    def row_labels(self) -> tuple[str, ...]:
        """As given."""
        return self.labels

    def integer_rows(self) -> Iterator[Integers]:
        """The rows."""
        yield from self.entries

    def canonical(self) -> list[Json]:
        """The coefficients, in the fewest bits."""
        entries, bits = fewest_bits(self.entries, self.bits)
        return ["matrix", bits, list(entries.shape), hashed(entries)]

    def written(self) -> tuple[Json, bytes]:
        """The coefficients."""
        return [self.bits, self.rows], np.ascontiguousarray(self.entries).tobytes()

    def cell_classes(self) -> Integers:
        """Equal columns."""
        return equal_rows(self.entries.T)

    def squared_diameter(self) -> float | None:
        """From the integers, so that nearly equal long columns do not cancel."""
        if self.size > LIMITS.gram_cells or self.entries.size > LIMITS.matrix_entries_compared:
            return None
        return widest(self.entries) * 4.0**-self.bits

    def stored_entries(self) -> Integers:
        """All of them."""
        return self.entries

    def l1_diameter(self) -> float:
        """The sum of what each row spans: exact for a single row."""
        spans = (self.entries.max(axis=1) - self.entries.min(axis=1)).astype(np.float64)
        return float(spans.sum()) * 2.0**-self.bits

    def apply(self, x: Numbers) -> Numbers:
        """``Q x``, times 2^fraction_bits when ``x`` holds integers."""
        x = widened(x)
        if x.dtype.kind in "iO":
            return np.tensordot(self.entries.astype(x.dtype), x, axes=1)
        return _times(self._sparse, self._coefficients, x)

    def adjoint(self, y: Numbers) -> Numbers:
        """``Q' y``, in floats."""
        sparse = None if self._sparse is None else self._sparse.T
        return _times(sparse, self._coefficients.T, np.asarray(y, dtype=np.float64))

    @cached_property
    def _sparse(self) -> csr_array | None:
        """The coefficients without their zeros, where they are many and few are not zero."""
        if self.entries.size < LIMITS.sparse_entries:
            return None
        if np.count_nonzero(self.entries) > LIMITS.sparse_part * self.entries.size:
            return None
        from scipy.sparse import csr_array

        return csr_array(self._coefficients)

    def column_powers(self, p: int) -> Array:
        """Sums of ``|q|^p`` down the columns."""
        return _power_sums(self.entries, self.bits, p, axis=0)

    def row_powers(self, p: int) -> Array:
        """Sums of ``|q|^p`` along the rows."""
        return _power_sums(self.entries, self.bits, p, axis=1)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The ends of each row."""
        return self._coefficients.min(axis=1), self._coefficients.max(axis=1)

    def dense(self) -> Array:
        """The coefficients as floats (exact: at most 53 bits)."""
        return self._coefficients.copy()

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.abs(self.entries).max()) * 2.0**-self.bits

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""
        return bool((self.entries >= 0).all())


def _times(sparse: csr_array | None, dense: Array, x: Numbers) -> Array:
    """The product along the first axis of x, by the sparse matrix where there is one."""
    if sparse is None:
        return np.tensordot(dense, x, axes=1)
    flat = np.asarray(x, dtype=np.float64).reshape(x.shape[0], -1)
    return np.asarray(sparse @ flat).reshape(-1, *x.shape[1:])


def numeric_array(values: object) -> npt.NDArray[Any]:
    """An array of finite real numbers from what a person gave."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of unequal length
        raise WorkloadError("the rows of a matrix of queries must be equally long") from None
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise WorkloadError("the coefficients of a query must be finite numbers")
    return array


def integer_entries(coefficients: npt.NDArray[Any]) -> tuple[Integers, int]:
    """Coefficients as integers times 2^-bits, in the fewest bits (at most 20) that hold them.

    Coefficients with more bits after the point are rounded to the nearest multiple of 2^-20.
    """
    values = numeric_array(coefficients).astype(np.float64)
    if np.abs(values).max(initial=0.0) >= 2.0**31:
        raise WorkloadError("the coefficients of a query must be below 2^31; scale the query")
    for bits in range(ENTRY_BITS + 1):
        scaled = values * 2.0**bits
        if bits == ENTRY_BITS or (scaled == np.rint(scaled)).all():
            break
    return np.rint(scaled).astype(np.int64), bits


def value_entries(coefficients: npt.NDArray[Any]) -> tuple[Integers, int]:
    """Coefficients of sums of values as integers times 2^-bits, to 2^-`VALUE_BITS` of the maximum.

    Sums of values are measured by their cells as a rule, so that fine coefficients cost nothing,
    while those of small numbers would be lost in multiples of 2^-20.
    """
    values = numeric_array(coefficients).astype(np.float64)
    maximum = float(np.abs(values).max(initial=0.0))
    if maximum and not 2.0**-100 < maximum < 2.0**VALUE_BITS:
        raise WorkloadError(
            f"sums of numbers up to {maximum:.3g} cannot be computed exactly; declare the column "
            "in a larger or smaller unit"
        )
    bits = max(0, VALUE_BITS - ceil(log2(maximum))) if maximum else 0
    entries = np.rint(np.ldexp(values, bits)).astype(np.int64)
    while bits and not (entries & 1).any():
        entries, bits = entries >> 1, bits - 1
    return entries, bits


def _power_sums(entries: Integers, bits: int, p: int, axis: int) -> Array:
    """``sum |entries 2^-bits|^p`` along an axis: exact while 64 bits hold it, else rounded up."""
    size = np.abs(entries)
    count = entries.shape[axis]
    if int(size.max(initial=0)) ** p * count < 2**63:
        return np.asarray(np.ldexp((size**p).sum(axis=axis), -bits * p))
    # A float sum of n terms errs by less than n 2^-52 relatively (Higham 2002, section 4.2).
    sums = (size.astype(np.float64) ** p).sum(axis=axis) * (1 + count * 2.0**-51)
    return np.asarray(np.ldexp(sums, -bits * p))
