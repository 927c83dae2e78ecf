# SPDX-License-Identifier: Apache-2.0
"""Query sets on one attribute given by their coefficients: groups of a hierarchy, matrices.

Coefficients that a person gives are kept as integers times a power of two. What the vault
computes with them is therefore exact, and so is the sensitivity computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import WorkloadError
from sfumato.workload.queries import (
    LARGEST_GRAM,
    Array,
    Integers,
    LabelKind,
    Numbers,
    QuerySet,
    widened,
    widest,
)

__all__ = ["ENTRY_BITS", "Groups", "Matrix", "integer_entries", "numeric_array", "value_entries"]

ENTRY_BITS = 20  # bits after the point that are kept of a given coefficient
LARGEST_MATRIX = 2**26  # entries of given coefficients whose columns are compared
VALUE_BITS = 44  # bits that are kept of the greatest coefficient of sums of values


@dataclass(frozen=True, eq=False)
class Groups(QuerySet):
    """The totals of disjoint named groups of cells (a level of a hierarchy).

    ``group_of[c]`` is the group of cell ``c``; -1 means that the cell is in none.
    """

    level: str
    labels: tuple[str, ...]
    group_of: tuple[int, ...]

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

    @property
    def is_disjoint(self) -> bool:
        """By definition."""
        return True

    @property
    def label_kind(self) -> LabelKind:
        """Its groups."""
        return "groups"

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
        """From an array of numbers, one row per query."""
        given = np.atleast_2d(numeric_array(coefficients))
        if given.ndim != 2:
            raise WorkloadError(f"a matrix of queries has two axes, got shape {given.shape}")
        entries, bits = integer_entries(given)
        return cls(entries.shape[1], entries, bits, labels, title)

    @classmethod
    def of_values(
        cls, row: npt.ArrayLike, labels: tuple[str, ...] = (), title: str = "matrix"
    ) -> Matrix:
        """Coefficients of the values of a column (`value_entries`)."""
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

    def cell_classes(self) -> Integers:
        """Equal columns."""
        columns = self.entries.T
        return np.unique(columns, axis=0, return_inverse=True)[1].astype(np.int64).reshape(-1)

    def squared_diameter(self) -> float | None:
        """From the integers, so that nearly equal long columns do not cancel."""
        if self.size > LARGEST_GRAM or self.entries.size > LARGEST_MATRIX:
            return None
        return widest(self.entries) * 4.0**-self.bits

    def l1_diameter(self) -> float:
        """The sum of what each row spans: exact for a single row."""
        spans = (self.entries.max(axis=1) - self.entries.min(axis=1)).astype(np.float64)
        return float(spans.sum()) * 2.0**-self.bits

    def apply(self, x: Numbers) -> Numbers:
        """``Q x``, times 2^fraction_bits when ``x`` holds integers."""
        x = widened(x)
        if x.dtype.kind in "iO":
            return np.tensordot(self.entries.astype(x.dtype), x, axes=1)
        return np.tensordot(self._coefficients, x, axes=1)

    def adjoint(self, y: Numbers) -> Numbers:
        """``Q' y``, in floats."""
        return np.tensordot(self._coefficients.T, np.asarray(y, dtype=np.float64), axes=1)

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
    """Coefficients as integers times 2^-bits, with the least bits (at most 20) that hold them.

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
    """The same for sums of values, relative to the greatest: to at least 2^-`VALUE_BITS` of it.

    Sums of values are measured by their cells as a rule, so that fine coefficients cost nothing,
    while those of small numbers would be lost in multiples of 2^-20.
    """
    values = numeric_array(coefficients).astype(np.float64)
    greatest = float(np.abs(values).max(initial=0.0))
    if greatest and not 2.0**-100 < greatest < 2.0**VALUE_BITS:
        raise WorkloadError(
            f"sums of numbers up to {greatest:.3g} cannot be computed exactly; declare the column "
            "in a larger or smaller unit"
        )
    bits = max(0, VALUE_BITS - ceil(log2(greatest))) if greatest else 0
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
