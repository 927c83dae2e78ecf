# SPDX-License-Identifier: Apache-2.0
"""The Gram matrix ``V = F'WF`` of a workload as a sum of structured pieces.

For a union of products V is a sum of Kronecker products of 1-D Gram matrices, each applied in
O(cells) however many queries there are; V is what the planner optimises against, F never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.workload.queries import Array, Numbers, check_entries
from sfumato.workload.terms import Term

__all__ = ["Gram", "marginal", "spread"]


@dataclass(frozen=True, eq=False)
class Gram:
    """``V = sum_t weight_t^2 F_t' F_t`` over the cells of the domain."""

    domain: Domain
    terms: tuple[Term, ...]

    def apply(self, x: Numbers) -> Array:
        """``V x`` for an array of the domain's shape."""
        check_entries(self.domain.size, "a vector over all cells of the domain")
        table = np.asarray(x, dtype=np.float64)
        if table.size != self.domain.size:
            raise WorkloadError(
                f"a vector over the cells has {self.domain.size:,} entries, got {table.size:,}"
            )
        table = table.reshape(self.domain.shape)
        out = np.zeros(self.domain.shape)
        for term in self.terms:
            reduced = marginal(table, self.domain, term.attributes)
            part = term.gram_apply(reduced)
            out += term.weight**2 * spread(part, self.domain, term.attributes)
        return out

    def dense(self) -> Array:
        """V as a matrix over the cells in row-major order."""
        m = self.domain.size
        check_entries(m * m, f"the Gram matrix of {m:,} cells (apply needs no matrix)")
        unit = np.eye(m)
        return np.array([self.apply(row).reshape(-1) for row in unit])

    def trace(self) -> float:
        """The sum over queries of the squared row norm."""
        return sum(t.weight**2 * self._squares(t) for t in self.terms)

    def _squares(self, term: Term) -> float:
        """``|F_t|^2`` over all cells of the domain; infinite when floats cannot say it."""
        repeats = self.domain.size // term.cells
        outside = float(repeats) if repeats < 2**1000 else inf
        return outside * term.squared_norm()


def marginal(table: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """Sum out every attribute that is not named."""
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    return np.asarray(table.sum(axis=rest, dtype=table.dtype))


def spread(part: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """The adjoint of ``marginal``: repeat along every attribute that is not named."""
    shape = [a.size if a.name in names else 1 for a in domain]
    return np.broadcast_to(part.reshape(shape), domain.shape)
