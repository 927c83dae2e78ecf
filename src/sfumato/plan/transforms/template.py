# SPDX-License-Identifier: Apache-2.0
"""Single cells beside a few weighted sums: strategies ``[diag(d); B]`` in integers.

Measured is every cell times an integer of its own, and a few rows of non-negative integers over
all cells. Cells that no asked query tells apart are measured together, as classes. With
``Theta = B diag(d)^-1`` the inverse of the normal matrix is (Woodbury)

    (M'M)^-1 = diag(d)^-1 (I - Theta' (I + Theta Theta')^-1 Theta) diag(d)^-1.

How d and B are chosen for Laplace noise is in ``pidentity.py``.

Reference: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy", for strategies of this form.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.solve.quadratic import row_quadratics
from sfumato.plan.transforms.invertible import Invertible
from sfumato.workload.queries import Array, Integers, Numbers, QuerySet, widened

__all__ = ["Template"]

ENTRIES_AT_ONCE = 2**18  # coefficients of reconstructions held together


@dataclass(frozen=True, eq=False)
class Template(Invertible):
    """``diagonal`` times the sums of the classes of cells, then ``extra`` times the same sums.

    ``class_of[c]`` is the class of cell c; only queries that are constant on classes are answered.
    """

    diagonal: Integers
    extra: Integers
    class_of: Integers

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = len(self.diagonal)
        fits = self.extra.ndim == 2 and self.extra.shape[1] == classes
        if not fits or len(self.class_of) != self.size or self.diagonal.min() < 1:
            raise PlanError(
                f"a template on {self.size} cells in {classes} classes needs a class for every "
                f"cell, a factor of at least 1 and a column of extra rows for every class, got "
                f"{len(self.class_of)} classes of cells and extra rows {self.extra.shape}"
            )

    @cached_property
    def name(self) -> str:
        """``template(rows, digest)``: templates with the same name are the same."""
        parts = (self.diagonal, self.extra, self.class_of)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts))
        return f"template({self.rows} rows, {digest.hexdigest()[:16]})"

    @property
    def rows(self) -> int:
        """One per class, and the extra ones."""
        return len(self.diagonal) + len(self.extra)

    @cached_property
    def members(self) -> Array:
        """The number of cells of every class."""
        return np.bincount(self.class_of, minlength=len(self.diagonal)).astype(np.float64)

    def apply(self, x: Numbers) -> Numbers:
        """Exact for integers."""
        x = widened(x)
        sums = np.zeros((len(self.diagonal), *x.shape[1:]), dtype=x.dtype)
        np.add.at(sums, self.class_of, x)
        factors = self.diagonal.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        more = np.tensordot(self.extra.astype(x.dtype), sums, axes=1)
        return np.concatenate([factors * sums, more])

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y``, in floats."""
        return self._on_classes(np.asarray(y, dtype=np.float64))[self.class_of]

    def column_powers(self, p: int) -> Array:
        """Sums of powers down the columns; exact, since the integers are small."""
        powers = self.diagonal**p + (np.abs(self.extra) ** p).sum(axis=0)
        return np.asarray(powers[self.class_of], dtype=np.float64)

    def row_powers(self, p: int) -> Array:
        """Sums of powers along the rows."""
        more = (np.abs(self.extra) ** p).astype(np.float64) @ self.members
        return np.concatenate([self.diagonal.astype(np.float64) ** p * self.members, more])

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The ends of every row."""
        single = self.diagonal if len(self.diagonal) == 1 else np.zeros_like(self.diagonal)
        low = np.concatenate([single, self.extra.min(axis=1)])
        high = np.concatenate([self.diagonal, self.extra.max(axis=1)])
        return low.astype(np.float64), high.astype(np.float64)

    @property
    def greatest(self) -> float:
        """The greatest coefficient."""
        return float(max(self.diagonal.max(), self.extra.max(initial=0)))

    @property
    def is_nonnegative(self) -> bool:
        """Whether the extra rows only add up."""
        return bool((self.extra >= 0).all())

    def least_squares(self, y: Array) -> Array:
        """The estimate of every class, spread evenly over its cells."""
        sums = np.tensordot(self.class_covariance, self._on_classes(y), axes=1)
        shape = (-1, *[1] * (y.ndim - 1))
        return np.asarray((sums / self.members.reshape(shape))[self.class_of], dtype=np.float64)

    def transposed(self, c: Array) -> Array:
        """The mean over every class, then ``M (M'M)^-1``."""
        sums = np.zeros((len(self.diagonal), *c.shape[1:]))
        np.add.at(sums, self.class_of, np.asarray(c, dtype=np.float64))
        shape = (-1, *[1] * (c.ndim - 1))
        solved = np.tensordot(self.class_covariance, sums / self.members.reshape(shape), axes=1)
        more = np.tensordot(self.extra.astype(np.float64), solved, axes=1)
        return np.concatenate([self.diagonal.reshape(shape) * solved, more])

    def row_variances(self, queries: QuerySet) -> Array:
        """``q K q'`` with K the covariance of the cells."""
        return row_quadratics(queries, self._covariance)

    def total_variance(self, queries: QuerySet) -> float:
        """``tr(V K)``."""
        return float((queries.gram() * self._covariance).sum())

    def row_fourths(self, queries: QuerySet) -> Array:
        """From the rows of the reconstruction; those of intervals are differences of sums."""
        inverse = self.transposed(np.eye(self.size)).T
        ends = queries.intervals()
        step = max(1, ENTRIES_AT_ONCE // self.rows)
        out = []
        if ends is not None:
            zero = np.zeros((1, self.rows))
            running = np.concatenate([zero, np.cumsum(inverse, axis=0)])
            for first in range(0, queries.rows, step):
                part = slice(first, first + step)
                squares = np.square(running[ends[1][part]] - running[ends[0][part]])
                out.append(np.einsum("ij,ij->i", squares, squares))
            return np.concatenate(out)
        dense = queries.dense()
        parts = (dense[first : first + step] for first in range(0, queries.rows, step))
        return np.concatenate([((part @ inverse) ** 4).sum(axis=1) for part in parts])

    @cached_property
    def theta(self) -> Array:
        """The extra rows relative to the factors of the cells."""
        return self.extra / self.diagonal.astype(np.float64)

    @cached_property
    def class_covariance(self) -> Array:
        """``(M'M)^-1`` on the classes."""
        middle = np.eye(len(self.theta)) + self.theta @ self.theta.T
        inside = np.eye(len(self.diagonal)) - self.theta.T @ np.linalg.solve(middle, self.theta)
        return np.asarray(inside / np.outer(self.diagonal, self.diagonal), dtype=np.float64)

    @cached_property
    def _covariance(self) -> Array:
        """That of the cells, every class spread evenly over its cells."""
        scaled = self.class_covariance / np.outer(self.members, self.members)
        return scaled[np.ix_(self.class_of, self.class_of)]

    def _on_classes(self, y: Array) -> Array:
        count = len(self.diagonal)
        factors = self.diagonal.astype(np.float64).reshape(-1, *[1] * (y.ndim - 1))
        more = np.tensordot(self.extra.T.astype(np.float64), y[count:], axes=1)
        return np.asarray(factors * y[:count] + more, dtype=np.float64)
