# SPDX-License-Identifier: Apache-2.0
"""The optimal factorization of a given matrix, with its certificate: for study and comparison.

``F = R M`` with ``||R||_F ||M||_{1->2} / sqrt(k)`` within the certificate of the factorization norm
gamma(F) (Definition 2.2 in the lecture notes of Smith and Ullman on factorization). Equal columns
are merged first, which loses nothing, equal rows become weights, and the smaller of the two Gram
matrices is decomposed. Releases do not use floats like these; see ``factorization.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.plan.optimum import Certified, certified_optimum
from sfumato.workload.queries import Array
from sfumato.workload.workload import Workload

__all__ = ["MatrixFactorization", "factorize"]

LARGEST_SIDE = 4096  # the smaller side of a matrix, after merging, that is decomposed
LARGEST = 2**26  # entries of a matrix that is held
EIGEN_ROUNDING = 2.0**-50
SINGULAR_ROUNDING = 2.0**-50


@dataclass(frozen=True, eq=False)
class MatrixFactorization:
    """``F = R M``; ``lower_bound`` is below gamma(F), ``gamma`` is what R and M reach."""

    R: Array
    M: Array
    lower_bound: float

    @cached_property
    def sensitivity(self) -> float:
        """``||M||_{1->2}``: the longest column of M."""
        return float(np.sqrt((self.M**2).sum(axis=0).max()))

    @cached_property
    def variances(self) -> Array:
        """The variance of every answer when M is measured with noise of its sensitivity."""
        return np.asarray((self.R**2).sum(axis=1) * self.sensitivity**2, dtype=np.float64)

    @property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->2} / sqrt(k)``."""
        return sqrt(float(self.variances.mean()))

    @property
    def certificate(self) -> float:
        """``gamma / lower_bound``: at least 1, and how far this may be from the best."""
        return self.gamma / self.lower_bound

    def __repr__(self) -> str:
        k, m = len(self.R), self.M.shape[1]
        return (
            f"MatrixFactorization({k:,} queries, {m:,} cells, {len(self.M):,} measured: "
            f"gamma {self.gamma:.5f}, certificate {self.certificate:.5f})"
        )


def factorize(
    queries: object,
    tolerance: float = 1e-4,
    progress: Callable[[int, float], None] | None = None,
) -> MatrixFactorization:
    """Factorize a matrix (dense or scipy sparse, a row per query) or a small workload.

    >>> import numpy as np
    >>> found = factorize(np.ones((5, 8)))
    >>> round(found.gamma, 6)
    1.0
    """
    matrix = _dense(queries)
    columns, where = np.unique(matrix, axis=1, return_inverse=True)
    where = where.reshape(-1)
    rows, counts = np.unique(columns, axis=0, return_counts=True)
    weighted = rows * np.sqrt(counts)[:, None]
    asked = np.abs(columns).max(axis=0) > 0  # a column of zeros needs no measuring
    if min(weighted.shape) > LARGEST_SIDE:
        raise TooLarge(
            f"{len(rows):,} distinct queries on {int(asked.sum()):,} distinct cells: one of them "
            f"must be at most {LARGEST_SIDE:,}; sf.plan uses the structure of a workload instead"
        )
    kept = weighted[:, asked]
    found = certified_optimum(_root_diagonal(kept), kept.shape[1], tolerance, progress=progress)
    r, m = _roots(columns[:, asked], kept, found)
    wide = np.zeros((len(m), len(asked)))
    wide[:, asked] = m
    lower = sqrt(found.lower / len(matrix))
    return MatrixFactorization(r, np.ascontiguousarray(wide[:, where]), lower)


def _root_diagonal(matrix: Array) -> Callable[[Array], Array]:
    """``v -> diag((D^1/2 F'F D^1/2)^1/2)``, in the smaller of query space and cell space."""
    k, m = matrix.shape
    gram = matrix.T @ matrix if m <= k else np.zeros((0, 0))

    def evaluate(v: Array) -> Array:
        root = np.sqrt(v)
        if m <= k:
            values, vectors = _eigen(gram * np.outer(root, root))
            return np.asarray((vectors**2) @ np.sqrt(values), dtype=np.float64)
        scaled = matrix * root
        values, vectors = _eigen(scaled @ scaled.T)
        half = scaled.T @ (vectors * values**-0.25)
        return np.asarray((half**2).sum(axis=1), dtype=np.float64)

    return evaluate


def _eigen(gram: Array) -> tuple[Array, Array]:
    """The eigenvalues that are not zero up to rounding: a lower bound must not count those."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * len(values) * EIGEN_ROUNDING
    return values[kept], vectors[:, kept]


def _roots(columns: Array, weighted: Array, found: Certified) -> tuple[Array, Array]:
    """R and M from the singular values of ``F D^1/2``: ``M'M`` is the optimal X."""
    root = np.sqrt(found.v)
    _, singular, right = np.linalg.svd(weighted * root, full_matrices=False)
    kept = singular > singular[0] * max(weighted.shape) * SINGULAR_ROUNDING
    singular, right = singular[kept], right[kept]
    m = np.sqrt(singular)[:, None] * right / (root * sqrt(found.scale))
    r = (columns * root) @ (right / np.sqrt(singular)[:, None]).T * sqrt(found.scale)
    return np.asarray(r, dtype=np.float64), np.asarray(m, dtype=np.float64)


def _dense(queries: object) -> Array:
    from scipy.sparse import issparse

    if isinstance(queries, Workload):
        m = queries.domain.size
        if m * queries.queries > LARGEST:
            raise TooLarge(
                f"{queries.queries:,} queries on {m:,} cells are too many for one matrix; sf.plan "
                "factorizes a workload without building it"
            )
        unit = np.eye(m).reshape(m, *queries.domain.shape)
        return np.array([queries.evaluate(cell) for cell in unit]).T
    matrix = np.asarray(queries.toarray() if issparse(queries) else queries)  # type: ignore[attr-defined]
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise WorkloadError(
            f"factorize needs a matrix of numbers with a row per query, got shape {matrix.shape} "
            f"of {matrix.dtype}"
        )
    if matrix.size > LARGEST:
        raise TooLarge(f"a matrix of {matrix.size:,} entries, more than {LARGEST:,}")
    matrix = matrix.astype(np.float64)
    if not np.isfinite(matrix).all() or not matrix.any():
        raise WorkloadError("factorize needs finite numbers, not all of them zero")
    return matrix
