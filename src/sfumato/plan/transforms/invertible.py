# SPDX-License-Identifier: Apache-2.0
"""Measured query sets of one attribute that are solved for the cells by least squares.

A block of a strategy measures a product of such sets, ``M = M_1 x ... x M_d`` (Kronecker). Its
pseudo-inverse is the product of theirs, so the reconstruction of a product of queries is
``R = F_1 M_1^+ x ... x F_d M_d^+``, and squared norms, fourth powers and greatest entries of its
rows multiply over the attributes. A plain table of counts is the case ``M_i = I``.
"""

from __future__ import annotations

from abc import abstractmethod

from sfumato.workload.queries import Array, QuerySet

__all__ = ["Invertible", "greatest_variance", "row_fourths", "row_variances", "total_variance"]

LISTED = 2**17  # queries whose variances are listed to find the greatest


class Invertible(QuerySet):
    """Queries M on one attribute from which what is asked of it can be estimated."""

    @abstractmethod
    def least_squares(self, y: Array) -> Array:
        """``M^+ y`` along the first axis: the best linear unbiased estimate of the cells."""

    @abstractmethod
    def transposed(self, c: Array) -> Array:
        """``(M^+)' c`` along the first axis: how much every measured value counts in ``c x``."""

    @abstractmethod
    def row_variances(self, queries: QuerySet) -> Array:
        """``|q M^+|^2`` of every query: its variance at unit noise."""

    @abstractmethod
    def total_variance(self, queries: QuerySet) -> float:
        """The sum of ``row_variances``."""

    def greatest_variance(self, queries: QuerySet) -> float:
        """The greatest of ``row_variances``, or a bound on it where they are too many to list."""
        return float(self.row_variances(queries).max())

    @abstractmethod
    def row_fourths(self, queries: QuerySet) -> Array:
        """The sum of the fourth powers of ``q M^+`` of every query (for the tails of Laplace)."""


def row_variances(measured: QuerySet, asked: QuerySet) -> Array:
    """The variance of every asked query at unit noise; single cells add up."""
    if isinstance(measured, Invertible):
        return measured.row_variances(asked)
    return asked.row_powers(2)


def total_variance(measured: QuerySet, asked: QuerySet) -> float:
    """The sum of ``row_variances``."""
    if isinstance(measured, Invertible):
        return measured.total_variance(asked)
    return float(asked.column_powers(2).sum())


def greatest_variance(measured: QuerySet, asked: QuerySet) -> float:
    """The greatest of ``row_variances``; the longest interval adds up the most single cells."""
    if isinstance(measured, Invertible):
        return measured.greatest_variance(asked)
    if asked.holds_prefixes:
        return float(asked.size)
    return float(asked.row_powers(2).max())


def row_fourths(measured: QuerySet, asked: QuerySet) -> Array:
    """The sum of fourth powers of every row of the reconstruction."""
    if isinstance(measured, Invertible):
        return measured.row_fourths(asked)
    return asked.row_powers(4)
