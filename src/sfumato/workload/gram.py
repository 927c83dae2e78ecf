# SPDX-License-Identifier: Apache-2.0
"""The Gram matrix ``V = F'WF`` of a workload as a sum of structured pieces.

For a union of products V is a sum of Kronecker products of 1-D Gram matrices, each applied in
O(cells) however many queries there are; V is what the planner optimises against, F never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.workload.queries import DENSE_LIMIT, Array, Numbers
from sfumato.workload.terms import Product, Term

__all__ = ["Gram"]


@dataclass(frozen=True, eq=False)
class Gram:
    """``V = sum_t weight_t^2 F_t' F_t`` over the cells of the domain."""

    domain: Domain
    terms: tuple[Term, ...]

    def apply(self, x: Numbers) -> Array:
        """``V x`` for an array of the domain's shape."""
        table = np.asarray(x, dtype=np.float64).reshape(self.domain.shape)
        out = np.zeros(self.domain.shape)
        for term in self.terms:
            reduced = marginal(table, self.domain, term.attributes)
            if isinstance(term, Product):
                part = term.gram_apply(reduced)
            else:
                part = term.adjoint(term.apply(reduced))
            out += term.weight**2 * spread(part, self.domain, term.attributes)
        return out

    def dense(self) -> Array:
        """V as a matrix over the cells in row-major order."""
        m = self.domain.size
        if m * m > DENSE_LIMIT:
            raise TooLarge(
                f"the Gram matrix of {m:,} cells needs {8 * m * m / 2**30:,.1f} GiB, the limit is "
                f"{8 * DENSE_LIMIT / 2**30:.0f} GiB; use apply instead"
            )
        unit = np.eye(m)
        return np.array([self.apply(row).reshape(-1) for row in unit])

    def trace(self) -> float:
        """The sum over queries of the squared row norm."""
        total = 0.0
        for term in self.terms:
            outside = self.domain.size // term.cells
            parts = term.column_factors(2)
            spread_over = term.cells // prod(v.size for _, v in parts)
            total += term.weight**2 * outside * spread_over * prod(float(v.sum()) for _, v in parts)
        return total


def marginal(table: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """Sum out every attribute that is not named."""
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    return np.asarray(table.sum(axis=rest, dtype=table.dtype))


def spread(part: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """The adjoint of ``marginal``: repeat along every attribute that is not named."""
    shape = [a.size if a.name in names else 1 for a in domain]
    return np.broadcast_to(part.reshape(shape), domain.shape)
