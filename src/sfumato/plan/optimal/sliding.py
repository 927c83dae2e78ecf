# SPDX-License-Identifier: Apache-2.0
"""Windows of a fixed width along one attribute, of any length: a convolution near the optimum.

On an endless attribute windows of width w are the convolution with ``f(z) = 1 + ... + z^(w-1)``,
and the optimal X is the Toeplitz matrix of the symbol ``|f|`` over its mean: M is the convolution
with ``f^1/2 = (1 - z^w)^1/2 (1 - z)^-1/2``, whose coefficients fall like n^(-3/2) beyond w. Here
the kernel is cut after a few widths and rounded to integers, M has a row wherever the kernel meets
a cell (``convolution.py``), and R is least squares, ``F X^-1 M'``: unbiased whatever was rounded
or cut, and the certificate counts what it cost. What is lost to the optimum is at the two ends,
a share of about w / cells; ``lower.py`` has the bound. Other attributes, asked cell by cell,
repeat the whole along every line.

References: Fichtenberger, Henzinger, Upadhyay 2023, "Constant matters: fine-grained error bound
on differentially private continual observation", for the square root of the symbol of counting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.optimal.convolution import BITS, Convolution
from sfumato.plan.optimal.lower import windows_bound
from sfumato.plan.strategy import Block, GaussianStrategy, Norm
from sfumato.workload.queries import Array, Integers, QuerySet, Windows, check_entries
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = ["Sliding", "windows"]

CUTS = (2, 4, 16)  # lengths of the kernel, in widths
LONG = 32  # widths of an attribute where the longest kernel is best
MOST_CELLS = 2**23


@dataclass(frozen=True, eq=False)
class Sliding(GaussianStrategy):
    """One measured convolution; every answer is a window of the least-squares estimate."""

    along: str

    @property
    def measured(self) -> Convolution:
        """The convolution along the attribute."""
        found = self._factors(self.blocks[0].term)[self.along]
        if not isinstance(found, Convolution):
            raise TypeError("a sliding strategy measures one convolution")
        return found

    @cached_property
    def width(self) -> int:
        """Of the asked windows."""
        found = self._factors(self.workload.terms[0])[self.along]
        ends = found.intervals()
        if ends is None:
            raise TypeError("a sliding strategy answers windows")
        return int(ends[1][0] - ends[0][0])

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``F X^-1 M' y`` on every line."""
        del term  # there is one
        lines = self._lines(np.asarray(values[0], dtype=np.float64), self.measured.rows)
        asked = Windows(self.measured.size, self.width)
        found = [
            asked.apply(self.measured.inverse.apply(self.measured.adjoint(line))) for line in lines
        ]
        return self._in_order(np.array(found))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``M X^-1 F' c`` on every line."""
        del term
        asked = Windows(self.measured.size, self.width)
        lines = self._lines(np.asarray(coefficients, dtype=np.float64), asked.rows)
        found = [
            self.measured.apply(self.measured.inverse.apply(asked.adjoint(line))) for line in lines
        ]
        return {0: self._in_order(np.array(found))}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The same on every line."""
        del term
        repeated = np.broadcast_to(self._each, (prod(self._others), len(self._each)))
        return self._in_order(block_variances[0] * repeated)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """Of one line, times the lines."""
        del term
        return block_variances[0] * prod(self._others) * float(self._each.sum())

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """That of one line."""
        del term
        return block_variances[0] * float(self._each.max())

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """``f_q' X^-1 f_r`` of windows on the same line, 0 of others."""
        asked = self.workload.terms[term]
        shape = asked.row_shape
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), shape)
        axis = asked.attributes.index(self.along)
        starts: Integers = places[axis].astype(np.int64)
        size = self.measured.size
        check_entries(2 * len(queries) * size, f"{len(queries):,} windows of {size:,} cells")
        units = (np.arange(size) >= starts[:, None]) & (
            np.arange(size) < starts[:, None] + self.width
        )
        solved = np.array([self.measured.inverse.apply(u.astype(np.float64)) for u in units])
        out = units.astype(np.float64) @ solved.T
        for i, place in enumerate(places):
            if i != axis:
                out *= place[:, None] == place
        return np.asarray(block_variances[0] * (out + out.T) / 2, dtype=np.float64)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """``2 (x_0 - min_d x_d)`` along a line; columns of different lines are orthogonal."""
        if norm != 2:
            return super()._diameters(norm)
        x = self.measured.products
        least = float(x[1:].min(initial=x[0]))
        if prod(self._others) > 1:
            least = min(least, 0.0)
        return (2 * (float(x[0]) - least) * ROUND_UP,)

    @cached_property
    def _each(self) -> Array:
        return self.measured.inverse.window_variances(self.width)

    @cached_property
    def _others(self) -> tuple[int, ...]:
        names = self.blocks[0].term.attributes
        return tuple(self.workload.domain[n].size for n in names if n != self.along)

    @staticmethod
    def _factors(term: Term) -> dict[str, QuerySet]:
        found = term.as_product()
        return {} if found is None else dict(found.factors)

    def _lines(self, values: Array, count: int) -> Array:
        """From the order of the attributes to a line per cell of the others."""
        axis = self.blocks[0].term.attributes.index(self.along)
        shape = list(self._others)
        shape.insert(axis, count)
        return np.moveaxis(values.reshape(shape), axis, -1).reshape(-1, count)

    def _in_order(self, lines: Array) -> Array:
        axis = self.blocks[0].term.attributes.index(self.along)
        return np.moveaxis(lines.reshape(*self._others, -1), -1, axis).reshape(-1)


def windows(workload: Workload, progress: Callable[[int, float], None] | None = None) -> Sliding:
    """Windows along one attribute, for each cell of others, through the root of their symbol.

    Refused when there are several groups, when the group is no product of windows and single
    cells, or for more than 2^23 cells. ``progress`` hears of every kernel tried: its number, and
    how far the best is from the bound.
    """
    along, asked, term = _read(workload)
    others = [n for n in term.attributes if n != along]
    lines = prod(workload.domain[n].size for n in others)
    bound = term.weight**2 * lines * windows_bound(asked.size, asked.width)
    longest = asked.size + max(CUTS) * asked.width
    check_entries(longest * lines, f"the convolution of {', '.join(term.attributes)}")
    best: Sliding | None = None
    for i, cut in enumerate(CUTS if asked.size < LONG * asked.width else CUTS[-1:]):
        root = Convolution(asked.size, _kernel(asked.width, cut * asked.width))
        factors = tuple((n, root if n == along else q) for n, q in term.factors)
        block = Block(Product(workload.domain, f"root of {asked.name} {along}", 1.0, factors), 1.0)
        found = Sliding("factorization", "gaussian", workload, (block,), along, bound=bound)
        if best is None or found.weighted_error() < best.weighted_error():
            best = found
        if progress is not None:
            progress(i + 1, float(np.sqrt(best.weighted_error() / bound)) - 1)
    if best is None:
        raise PlanError("no kernel was tried")
    return best


def _read(workload: Workload) -> tuple[str, Windows, Product]:
    if len(workload.terms) != 1:
        raise PlanError(
            f"windows are planned by convolution in one group only, got {len(workload.terms)}; ask "
            "for them in separate plans"
        )
    term = workload.terms[0].as_product()
    if term is None:
        raise PlanError(f"group {workload.terms[0].name!r} is no product of query sets")
    long = [(n, q) for n, q in term.factors if isinstance(q, Windows)]
    if len(long) != 1:
        raise PlanError(
            f"windows along exactly one attribute are needed, these are along {len(long)}"
        )
    if not all(q is long[0][1] or q.is_identity for _, q in term.factors):
        raise PlanError(f"group {term.name!r} asks other attributes for more than their cells")
    along, asked = long[0]
    if asked.size > MOST_CELLS or max(CUTS) * asked.width > MOST_CELLS * 2:
        raise TooLarge(
            f"{along} has {asked.size:,} cells and windows of {asked.width:,}; allowed are "
            f"{MOST_CELLS:,} cells and windows of {MOST_CELLS // 8:,}, use coarser cells"
        )
    return along, asked, term


def _kernel(width: int, length: int) -> Integers:
    """The first coefficients of ``(1 - z^w)^1/2 (1 - z)^-1/2``, of norm 1, in steps of 2^-18."""
    n = np.arange(1, length)
    root = np.concatenate([[1.0], np.cumprod((2 * n - 1) / (2 * n))])
    out = np.zeros(length)
    coefficient = 1.0
    for j, start in enumerate(range(0, length, width)):
        out[start:] += coefficient * root[: length - start]
        coefficient *= (j - 0.5) / (j + 1)
    scale = (1 - 2.0**-10) * 2.0**BITS / np.sqrt((out**2).sum())
    return np.asarray(np.rint(out * scale), dtype=np.int64)
