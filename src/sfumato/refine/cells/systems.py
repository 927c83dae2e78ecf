# SPDX-License-Identifier: Apache-2.0
"""The linear systems of Newton steps: ``(Q + D) x = b`` for a positive diagonal D over cells.

``Q = S'VS`` with S the margins over the asked sets and ``V = L L'`` their Gram matrix. Two
structures are known.

*Margins.* By Woodbury's identity one matrix over the margins suffices, ``I + L'(S D^-1 S')L``: its
entries between two sets are the margins of ``D^-1`` over both sets together.

*Chains.* Running totals and ranges along attributes of one table, by cells of others: the inverse T
of Q is the Kronecker product of matrices with at most three diagonals, so ``T + D^-1`` has a narrow
band, and ``(T + D^-1) v = D^-1 b`` gives ``x = T v = D^-1 (b - v)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.plan.effort import spend
from sfumato.plan.solve.tridiagonal import inverse_gram
from sfumato.refine.cells.grid import Axes, Grid
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.workload.queries import Array, Integers, QuerySet

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["Chains", "Margins", "Solve", "System", "newton_system"]

MOST_MARGINS = 4096  # one factorization of a matrix of this order takes about a second
MOST_ENTRIES = 3e7  # cells times pairs of sets: what is summed to get the matrix
MOST_BAND = 2e7  # entries of a band (160 MB)
FEWEST = 128  # cells in use
MOST_WORK = 5e9  # multiplications to factorize it

Solve = Callable[[Array], Array]


class System(Protocol):
    """A structure of Q; up to ``few`` cells in use are found sooner one by one."""

    @property
    def few(self) -> int:
        """A number of cells."""
        ...

    def factored(self, ease: Array) -> Solve | None:
        """The map ``b -> (Q + D)^-1 b`` for ``ease = D^-1`` (0: x is 0); None if rounding won."""
        ...


def newton_system(q: Quadratic) -> System | None:
    """A system whose steps take about a second, or less; None where there is none."""
    chains = Chains.of(q)
    if chains is not None:
        return chains
    pairs = len(q.sets) * (len(q.sets) + 1) // 2
    is_small = q.length <= MOST_MARGINS and pairs * q.grid.size <= MOST_ENTRIES
    return Margins(q) if is_small and q.roots is not None else None


@dataclass(frozen=True, eq=False)
class Margins:
    """The matrix between all margins."""

    q: Quadratic

    @property
    def few(self) -> int:
        """Fewer than there are margins: a factorization of their matrix costs more."""
        return max(FEWEST, self.q.length // 4)

    @cached_property
    def _pairs(self) -> tuple[list[Axes], list[Integers]]:
        """The attributes of every two sets, and where the margins over them stand in the matrix."""
        q = self.q
        unions, places = [], []
        for i, one in enumerate(q.sets):
            for j, other in enumerate(q.sets[: i + 1]):
                union = tuple(sorted({*one, *other}))
                cells = np.arange(q.grid.cells(union))
                codes = np.unravel_index(cells, [q.grid.shape[a] for a in union]) if union else ()
                rows, columns = (
                    q.ends[s] + _flat(q.grid, axes, union, codes)
                    for s, axes in ((i, one), (j, other))
                )
                unions.append(union)
                places.append(rows * q.length + columns)
        return unions, places

    @property
    def _roots(self) -> tuple[tuple[slice, Array], ...]:
        return self.q.roots or ()

    def factored(self, ease: Array) -> Solve | None:
        """``(Q + D)^-1 = D^-1 - D^-1 S'L (I + L'S D^-1 S'L)^-1 L'S D^-1`` (Woodbury)."""
        from scipy.linalg.lapack import dpotrf, dpotrs

        spend(float(self.q.length) ** 3)
        # The transpose is in the order of LAPACK: nothing is copied.
        factor, failed = dpotrf(self.matrix(ease).T, lower=0, clean=0, overwrite_a=1)
        if failed:
            return None

        def solve(b: Array) -> Array:
            w, _ = dpotrs(factor, self.towards(self.q.stack(ease * b)), lower=0)
            return np.asarray(ease * (b - self.q.spread(self.back(w))))

        return solve

    def matrix(self, ease: Array) -> Array:
        """``I + L'(S diag(ease) S')L``: its lower half, the rest is not to be read."""
        out = np.zeros(self.q.length * self.q.length)
        unions, places = self._pairs
        for margin, place in zip(self.q.grid.margins(ease, unions), places, strict=True):
            out[place] = margin
        return self._rooted(out.reshape(self.q.length, self.q.length))

    def _rooted(self, out: Array) -> Array:
        """``I + L'(out)L``, in place."""
        for at, root in self._roots:
            if root.ndim == 1:
                out[at, : at.stop] *= root[:, None]
                out[at.start :, at] *= root
                continue
            lower = np.tril(out[at, at])
            whole = lower + np.tril(lower, -1).T
            out[at, at] = root.T @ whole @ root
            out[at, : at.start] = root.T @ out[at, : at.start]
            out[at.stop :, at] = out[at.stop :, at] @ root
        out[np.diag_indices(self.q.length)] += 1.0
        return out

    def towards(self, t: Array) -> Array:
        """``L't``."""
        parts = [root * t[at] if root.ndim == 1 else root.T @ t[at] for at, root in self._roots]
        return np.concatenate(parts)

    def back(self, w: Array) -> Array:
        """``L w``."""
        parts = [root * w[at] if root.ndim == 1 else root @ w[at] for at, root in self._roots]
        return np.concatenate(parts)


def _flat(grid: Grid, axes: Axes, union: Axes, codes: tuple[Integers, ...]) -> Integers:
    """The cell of a table over some attributes, for the cells of one over more."""
    out = np.zeros(1, dtype=np.int64)
    for a in axes:
        out = out * grid.shape[a] + codes[union.index(a)]
    return out


@dataclass(frozen=True, eq=False)
class Chains:
    """``T = Q^-1`` with the attributes in an ``order`` that makes its ``band`` narrow."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: csr_matrix
    band: int
    few: int = 2 * FEWEST

    @classmethod
    def of(cls, q: Quadratic) -> Chains | None:
        """Where one group of evenly weighted products over all attributes is asked."""
        from scipy.sparse import csr_matrix, kron

        term, weights = q.fit.parts[0].term.as_product(), q.fit.parts[0].weights
        is_one = len(q.fit.parts) == 1 and q.precision is None
        if not is_one or term is None or term.shape != q.grid.shape:
            return None
        if not (weights[0] > 0 and (weights == weights[0]).all()):
            return None
        found = [_inverse(queries) for _, queries in term.factors]
        known = [f for f in found if f is not None]
        if len(known) < len(found) or not any(f.nnz > f.shape[0] for f in known):
            return None
        # What is only cells comes first, then the longest: offsets along the others are small.
        order = sorted(
            range(len(known)), key=lambda i: (known[i].nnz > known[i].shape[0], -term.shape[i])
        )
        whole = csr_matrix(np.full((1, 1), 1 / float(weights[0])))
        for i in order:
            whole = kron(whole, known[i], format="csr")
        rows = np.repeat(np.arange(whole.shape[0]), np.diff(whole.indptr))
        band = int(np.abs(rows - whole.indices).max())
        size = q.grid.size
        if size * (band + 1) > MOST_BAND or size * float(band + 1) ** 2 > MOST_WORK:
            return None
        return cls(term.shape, tuple(order), whole, band)

    def factored(self, ease: Array) -> Solve | None:
        """By the factors of ``T + D^-1``."""
        from scipy.linalg.lapack import dpbtrf, dpbtrs

        here = self._ordered(ease)
        spend(float(self.band + 1) ** 2 * len(here))
        banded = np.zeros((self.band + 1, len(here)), order="F")
        coo = self.inverse.tocoo()
        below = coo.row >= coo.col
        rows, columns = coo.row[below], coo.col[below]
        banded[rows - columns, columns] = coo.data[below]
        banded[0] += here
        factor, failed = dpbtrf(banded, lower=1, overwrite_ab=1)
        if failed:
            return None

        def solve(b: Array) -> Array:
            given = self._ordered(b)
            v, _ = dpbtrs(factor, here * given, lower=1)
            # Both are x; each is the more exact where its factors are small.
            x = np.where(here < 1, here * (given - v), self.inverse @ v)
            return self._back(x)

        return solve

    def _ordered(self, x: Array) -> Array:
        return np.ascontiguousarray(x.reshape(self.shape).transpose(self.order)).reshape(-1)

    def _back(self, x: Array) -> Array:
        turned = x.reshape([self.shape[i] for i in self.order])
        return np.ascontiguousarray(turned.transpose(np.argsort(self.order))).reshape(-1)


def _inverse(queries: QuerySet) -> csr_matrix | None:
    """``(F'F)^-1`` of one attribute, where it has at most three diagonals."""
    from scipy.sparse import diags_array, eye_array

    if queries.is_identity:
        return eye_array(queries.size, format="csr")
    found = inverse_gram(queries)
    if found is None:
        return None
    beside = found[0].beside
    return diags_array([beside, found[0].diagonal, beside], offsets=[-1, 0, 1], format="csr")
