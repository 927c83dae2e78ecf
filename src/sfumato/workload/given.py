# SPDX-License-Identifier: Apache-2.0
"""Terms with given coefficients over the cells of a few attributes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.workload.queries import Array, Numbers, check_entries, widened
from sfumato.workload.term import Term, check_order

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["Explicit"]


@dataclass(frozen=True, eq=False)
class Explicit(Term):
    """Given coefficients over the cells of the attributes: integers times 2^-bits."""

    over: tuple[str, ...]
    entries: csr_matrix
    bits: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_order(self.domain, self.over)
        check_entries(self.cells, f"the table of {' x '.join(self.over)}")
        if self.entries.shape[1] != self.domain.cells(self.over):
            raise WorkloadError(
                f"the attributes {', '.join(self.over)} have {self.domain.cells(self.over)} cells, "
                f"the matrix has {self.entries.shape[1]} columns"
            )
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} queries were given with {len(self.labels)} labels")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its cells."""
        return self.over

    @property
    def rows(self) -> int:
        """One per row of the matrix."""
        return int(self.entries.shape[0])

    @cached_property
    def matrix(self) -> csr_matrix:
        """The coefficients as floats."""
        return self.entries.astype(np.float64) * 2.0**-self.bits

    def apply(self, table: Numbers) -> Numbers:
        """``F x``; exact integers for integer tables."""
        x = widened(np.asarray(table).reshape(-1))
        if x.dtype.kind != "O":
            return np.asarray((self.entries if x.dtype.kind == "i" else self.matrix) @ x)
        entries = self.entries.tocoo()
        out = np.zeros(self.rows, dtype=object)
        np.add.at(out, entries.row, entries.data.astype(object) * x[entries.col])
        return out

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        return np.asarray(self.matrix.T @ np.asarray(y, dtype=np.float64)).reshape(self.shape)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array."""
        return [(self.over, self._power_sums(p, axis=0).reshape(self.shape))]

    def row_powers(self, p: int) -> Array:
        """Sums along the rows."""
        return self._power_sums(p, axis=1)

    def _power_sums(self, p: int, axis: int) -> Array:
        """Exact while 64 bits hold the sums, else rounded up (see ``coefficients``)."""
        size, count = abs(self.entries), int(self.entries.shape[axis])
        if int(size.max()) ** p * count < 2**63:
            sums = size.power(p).sum(axis=axis)
        else:
            sums = size.astype(np.float64).power(p).sum(axis=axis) * (1 + count * 2.0**-51)
        return np.asarray(np.ldexp(np.asarray(sums).reshape(-1), -self.bits * p))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Smallest and largest entry of each row."""
        low = self.matrix.min(axis=1).toarray().reshape(-1)
        high = self.matrix.max(axis=1).toarray().reshape(-1)
        return low, high

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return self.bits

    @property
    def greatest(self) -> float:
        """The greatest absolute entry."""
        return float(abs(self.matrix).max())

    @property
    def is_nonnegative(self) -> bool:
        """Whether no entry is below zero."""
        return bool(self.entries.min() >= 0)
