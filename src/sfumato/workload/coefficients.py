# SPDX-License-Identifier: Apache-2.0
"""Query sets on one attribute given by their coefficients: groups of a hierarchy, matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import WorkloadError
from sfumato.workload.queries import Array, Integers, Numbers, QuerySet

__all__ = ["Groups", "Matrix", "integer_entries"]

ENTRY_BITS = 20  # bits after the point that are kept of a given coefficient


@dataclass(frozen=True, eq=False)
class Groups(QuerySet):
    """The totals of disjoint named groups of cells (a level of a hierarchy).

    ``group_of[c]`` is the group of cell ``c``; -1 means that the cell is in none.
    """

    level: str
    labels: tuple[str, ...]
    group_of: tuple[int, ...]

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

    def apply(self, x: Numbers) -> Numbers:
        """Sums by group."""
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
        entries, bits = integer_entries(np.atleast_2d(np.asarray(coefficients)))
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

    def apply(self, x: Numbers) -> Numbers:
        """``Q x``, times 2^fraction_bits when ``x`` holds integers."""
        if x.dtype.kind in "iuO":
            return np.tensordot(self.entries.astype(x.dtype), x, axes=1)
        return np.tensordot(self.dense(), x, axes=1)

    def adjoint(self, y: Numbers) -> Numbers:
        """``Q' y``."""
        return np.tensordot(self.dense().T, y, axes=1)

    def column_powers(self, p: int) -> Array:
        """Sums of ``|q|^p`` down the columns."""
        return np.asarray((np.abs(self.dense()) ** p).sum(axis=0), dtype=np.float64)

    def dense(self) -> Array:
        """The coefficients as floats (exact: at most 53 bits)."""
        return np.ldexp(self.entries, -self.bits)

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.abs(self.entries).max()) * 2.0**-self.bits

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""
        return bool((self.entries >= 0).all())


def integer_entries(coefficients: npt.NDArray[Any]) -> tuple[Integers, int]:
    """Coefficients as integers times 2^-bits, with the least bits (at most 20) that hold them.

    Coefficients with more bits after the point are rounded to the nearest multiple of 2^-20.
    """
    values = np.asarray(coefficients)
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise WorkloadError("the coefficients of a query must be finite numbers")
    values = values.astype(np.float64)
    if np.abs(values).max(initial=0.0) >= 2.0**31:
        raise WorkloadError("the coefficients of a query must be below 2^31; scale the query")
    for bits in range(ENTRY_BITS + 1):
        scaled = values * 2.0**bits
        if bits == ENTRY_BITS or (scaled == np.rint(scaled)).all():
            break
    return np.rint(scaled).astype(np.int64), bits
