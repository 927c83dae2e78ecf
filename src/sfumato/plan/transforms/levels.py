# SPDX-License-Identifier: Apache-2.0
"""Query sets on nested intervals, solved in closed form: what trees and wavelets share.

Cells are grouped into nodes of widths ``1 = s_0 | s_1 | ... | s_h`` (each divides the next), padded
with cells that hold nothing, which costs no privacy: no record falls in them. With ``A_l`` the
average over the nodes of width s_l, every strategy here has a normal matrix with the same
eigenspaces,

    M'M = sum_{l < h} lambda_l (A_l - A_{l+1})  +  lambda_h A_h,

so that its inverse needs averages only: estimates cost O(cells), the variance of an interval O(h).
The error of a workload is ``sum_l D_l / lambda_l`` with ``D_l = E_l - E_{l+1}`` (``D_h = E_h``) and
the energies ``E_l = sum_q |A_l q|^2``, so that the weights of levels are a problem in h variables.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.plan.transforms.invertible import LISTED, Invertible
from sfumato.workload.queries import Array, Integers, Numbers, Prefix, QuerySet, Ranges, widened

__all__ = ["Levels", "energies", "padded_to"]

ROWS_AT_ONCE = 2**22  # queries x cells held together when a query is not an interval
INTERVALS_AT_ONCE = 2**18  # intervals whose paths are walked together


@dataclass(frozen=True, eq=False)
class Levels(Invertible):
    """A strategy on nested nodes; subclasses say what is measured on them."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """The cells of a node of every level, from single cells up."""

    @property
    @abstractmethod
    def eigenvalues(self) -> tuple[float, ...]:
        """``lambda_l``: that of vectors constant on level l that cancel on level l + 1."""

    @abstractmethod
    def _measured(self, leaves: Numbers) -> Numbers:
        """``M x`` for padded cells x."""

    @abstractmethod
    def _spread(self, y: Numbers) -> Numbers:
        """``M' y`` on the padded cells."""

    @abstractmethod
    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Sums of fourth powers of the rows of the reconstruction of intervals."""

    @abstractmethod
    def inner_products(self) -> tuple[float, float]:
        """The least and the greatest inner product of two columns."""

    @property
    def height(self) -> int:
        """The number of levels above the cells."""
        return len(self.widths) - 1

    @cached_property
    def padded(self) -> int:
        """The number of leaves: whole nodes of the top level."""
        return padded_to(self.size, self.widths[-1])

    def apply(self, x: Numbers) -> Numbers:
        """Level by level; exact for integers."""
        return self._measured(_pad(widened(x), self.padded))

    def adjoint(self, y: Numbers) -> Numbers:
        """Every cell gathers the rows it is in."""
        return self._spread(y)[: self.size]

    def least_squares(self, y: Array) -> Array:
        """The best linear unbiased estimate of the cells, ``(M'M)^-1 M' y``."""
        return self._inverse_normal(np.asarray(self._spread(y), dtype=np.float64))[: self.size]

    def transposed(self, c: Array) -> Array:
        """``M (M'M)^-1 c``."""
        padded = _pad(np.asarray(c, dtype=np.float64), self.padded)
        return np.asarray(self._measured(self._inverse_normal(padded)), dtype=np.float64)

    def row_variances(self, queries: QuerySet) -> Array:
        """``q (M'M)^-1 q'``."""
        ends = queries.intervals()
        if ends is not None:
            return self._from_energies(lambda s: _interval_energy(s, *ends))
        dense = queries.dense()
        return self._from_energies(lambda s: _dense_energy(s, dense))

    def greatest_variance(self, queries: QuerySet) -> float:
        """Listed, or for very many intervals a bound: the greatest detail of every level at once.

        Within a node of width s, an interval that fills r cells has ``|A_l q|^2 - |A_{l+1} q|^2 <=
        r - r^2 / s <= s / 4``; only the two nodes with its ends have any.
        """
        if queries.rows <= LISTED or not queries.holds_prefixes:
            return super().greatest_variance(queries)
        details = [s / 2 for s in self.widths[1:]]
        total = sum(d / e for d, e in zip(details, self.eigenvalues, strict=False))
        nodes = self.padded // self.widths[-1]
        whole = queries.size if nodes > 1 else queries.size**2 / self.widths[-1]
        return total + whole / self.eigenvalues[-1]

    def total_variance(self, queries: QuerySet) -> float:
        """``sum_l D_l / lambda_l``."""
        details = _details(energies(queries, self.widths))
        return float((details / np.array(self.eigenvalues)).sum())

    def row_fourths(self, queries: QuerySet) -> Array:
        """By the paths to the ends of intervals; other queries row by row."""
        ends = queries.intervals()
        out = []
        if ends is not None:
            for first in range(0, len(ends[0]), INTERVALS_AT_ONCE):
                part = slice(first, first + INTERVALS_AT_ONCE)
                out.append(self._interval_fourths(ends[0][part], ends[1][part]))
            return np.concatenate(out)
        dense = queries.dense()
        step = max(1, ROWS_AT_ONCE // self.rows)
        parts = (dense[first : first + step] for first in range(0, len(dense), step))
        return np.concatenate([(self.transposed(part.T) ** 4).sum(axis=0) for part in parts])

    def _inverse_normal(self, leaves: Array) -> Array:
        """Apply ``(M'M)^-1`` over the padded cells."""
        average, rest = leaves, leaves.shape[1:]
        out = np.zeros_like(leaves)
        for j in range(self.height):
            ratio = self.widths[j + 1] // self.widths[j]
            coarser = average.reshape(-1, ratio, *rest).mean(axis=1)
            detail = average - np.repeat(coarser, ratio, axis=0)
            out += np.repeat(detail / self.eigenvalues[j], self.widths[j], axis=0)
            average = coarser
        return out + np.repeat(average / self.eigenvalues[-1], self.widths[-1], axis=0)

    def _from_energies(self, energy: Callable[[int], Array]) -> Array:
        """``sum_l (|A_l q|^2 - |A_{l+1} q|^2) / lambda_l + |A_h q|^2 / lambda_h``."""
        here = energy(self.widths[0])
        out = np.zeros_like(here)
        for j in range(self.height):
            above = energy(self.widths[j + 1])
            out += (here - above) / self.eigenvalues[j]
            here = above
        return out + here / self.eigenvalues[-1]


def padded_to(size: int, width: int) -> int:
    """The least multiple of ``width`` that is at least ``size``."""
    return -(-size // width) * width


def energies(queries: QuerySet, widths: tuple[int, ...]) -> Array:
    """``E_l = sum_q |A_l q|^2`` for nodes of every width; closed forms for prefixes and ranges."""
    if isinstance(queries, Prefix | Ranges):
        closed = _prefixes_energy if isinstance(queries, Prefix) else _ranges_energy
        return np.array([closed(queries.size, s) for s in widths])
    ends = queries.intervals()
    if ends is not None:
        return np.array([float(_interval_energy(s, *ends).sum()) for s in widths])
    dense = queries.dense()
    return np.array([float(_dense_energy(s, dense).sum()) for s in widths])


def _details(energy: Array) -> Array:
    """``E_l - E_{l+1}``, and the last as it is; never below 0 but for rounding."""
    return np.asarray(np.maximum(energy - np.append(energy[1:], 0.0), 0.0))


def _prefixes_energy(size: int, width: int) -> float:
    """``sum_e |A p_e|^2`` over the prefixes of 0 to ``size`` cells.

    With e = b w + r a prefix fills b nodes and r cells of the next: ``|A p_e|^2 = b w + r^2 / w``.
    """
    full, rest = divmod(size + 1, width)
    whole = width**2 * full * (full - 1) // 2 + rest * full * width
    return whole + (full * _squares(width) + _squares(rest)) / width


def _ranges_energy(size: int, width: int) -> float:
    """A range is the difference of two of the size + 1 prefixes, each pair once.

    The sum over pairs of ``|u_s - u_t|^2`` is ``(size + 1) sum |u_t|^2 - |sum u_t|^2``, and the sum
    of all prefixes is ``size - j`` at cell j.
    """
    first = np.arange(0, size, width, dtype=np.float64)
    cells = np.minimum(size - first, width)
    sums = cells * (size - first) - cells * (cells - 1) / 2
    return (size + 1) * _prefixes_energy(size, width) - float((sums**2).sum()) / width


def _squares(n: int) -> int:
    """``0^2 + ... + (n - 1)^2``."""
    return (n - 1) * n * (2 * n - 1) // 6


def _interval_energy(width: int, starts: Integers, ends: Integers) -> Array:
    """``|A q|^2`` for intervals: prefixes p_e - p_s, by their closed-form inner products."""
    return (
        _prefix_product(width, ends, ends)
        - 2 * _prefix_product(width, starts, ends)
        + _prefix_product(width, starts, starts)
    )


def _prefix_product(width: int, s: Integers, e: Integers) -> Array:
    """``<A p_s, A p_e>`` for s <= e: whole nodes of p_s and what is left in its last."""
    node, rest = np.divmod(s, width)
    share = np.where(e // width > node, 1.0, (e % width) / width)
    return np.asarray(node * width + rest * share, dtype=np.float64)


def _dense_energy(width: int, rows: Array) -> Array:
    padded = _pad(rows.T, padded_to(rows.shape[1], width))
    sums = padded.reshape(-1, width, len(rows)).sum(axis=1)
    return np.asarray((sums**2).sum(axis=0) / width, dtype=np.float64)


def _pad(x: Numbers, padded: int) -> Numbers:
    if padded == len(x):
        return x
    return np.concatenate([x, np.zeros((padded - len(x), *x.shape[1:]), dtype=x.dtype)])
