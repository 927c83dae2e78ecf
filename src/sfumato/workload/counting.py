# SPDX-License-Identifier: Apache-2.0
"""Terms of conditions: how many records satisfy each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.classes import Classes
from sfumato.workload.predicates import Condition, check_conditions
from sfumato.workload.queries import Array, Numbers, check_entries
from sfumato.workload.term import Term

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["WIDE_CELLS", "Predicates"]

WIDE_CELLS = 2**20  # conditions over more cells than this are counted one by one, never tabulated


@dataclass(frozen=True, eq=False)
class Predicates(Term):
    """One counting query per condition."""

    conditions: tuple[Condition, ...]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            raise WorkloadError("predicates need at least one condition")
        check_conditions(self.conditions, self.domain)
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} conditions were given with {len(self.labels)} labels")

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """All attributes that some condition looks at."""
        return self.domain.in_order(frozenset().union(*(c.attributes for c in self.conditions)))

    @property
    def rows(self) -> int:
        """One per condition."""
        return len(self.conditions)

    def as_conditions(self) -> tuple[Condition, ...]:
        """Its conditions."""
        return self.conditions

    @property
    def is_wide(self) -> bool:
        """Whether its table is too large to build; the engine then counts each condition."""
        return self.cells > WIDE_CELLS

    @cached_property
    def classes(self) -> Classes:
        """The cells that no condition tells apart, merged."""
        return Classes.of(self.conditions, self.domain, self.attributes)

    @cached_property
    def by_class(self) -> csr_matrix:
        """The 0/1 coefficients over the table of classes."""
        from scipy.sparse import csr_matrix

        self._check_classes()
        check_entries(self.rows * self.classes.cells, f"a matrix of {self.rows:,} conditions")
        truth = [self.classes.truth(c).reshape(-1) for c in self.conditions]
        return csr_matrix(np.array(truth), dtype=np.int8)

    @cached_property
    def class_counts(self) -> Array:
        """The number of conditions that hold in each cell of the table of classes."""
        self._check_classes()
        out = np.zeros(self.classes.shape)
        for condition in self.conditions:
            out += self.classes.truth(condition)
        return out

    @property
    def has_small_classes(self) -> bool:
        """Whether the table of classes can be built, as it mostly can for wide conditions too."""
        return self.classes.cells <= WIDE_CELLS

    def _check_classes(self) -> None:
        if not self.has_small_classes:
            raise TooLarge(
                f"conditions over {', '.join(self.attributes)} tell {self.classes.cells:,} cells "
                f"apart, more than the {WIDE_CELLS:,} that are tabulated; ask about fewer "
                "attributes at once"
            )

    def apply(self, table: Numbers) -> Numbers:
        """Sums of the cells where each condition holds."""
        merged = self.classes.merge(np.asarray(table).reshape(self.shape)).reshape(-1)
        if merged.dtype.kind != "O":
            return np.asarray(self.by_class @ merged)
        sums = [merged[row.indices].sum() for row in self.by_class]
        return np.array(sums, dtype=object)

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        by_class = self.by_class.T @ np.asarray(y, dtype=np.float64)
        return self.classes.expand(np.asarray(by_class).reshape(self.classes.shape))

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:  # noqa: ARG002  0/1
        """The number of conditions that hold in each cell; all of them, when too wide to say."""
        if self.is_wide:
            return [((), np.full((), float(self.rows)))]
        return [(self.attributes, self.classes.expand(self.class_counts))]

    def row_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """The number of cells where each condition holds."""
        return np.asarray(self.by_class @ self.classes.sizes.reshape(-1), dtype=np.float64)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and 1; or 1 and 1 where it always holds, 0 and 0 where it never does."""
        if not self.has_small_classes:
            return np.zeros(self.rows), np.ones(self.rows)
        held = np.diff(self.by_class.indptr)
        return (held == self.classes.cells).astype(np.float64), (held > 0).astype(np.float64)

    def squared_norm(self) -> float:
        """The number of cells that the conditions hold in, all together."""
        return float(self.row_powers(2).sum())

    @property
    def fraction_bits(self) -> int:
        """Counts are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """One."""
        return 1.0

    @property
    def is_nonnegative(self) -> bool:
        """Counts are."""
        return True
