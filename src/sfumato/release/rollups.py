# SPDX-License-Identifier: Apache-2.0
"""Answers over fewer attributes, coarser levels or chosen ranges, from groups that were released.

A released age x sex holds the answers about age alone: sums over sex. With ``a = R y`` the released
answers and ``T`` the matrix of such sums, ``T a`` is unbiased for the queries ``T F``, and its
errors are ``T R z``: every row of ``T`` is followed through the transposed reconstruction,
``(T R)_i = R' t_i`` (`Strategy.adjoint`), so what the summed answers have in common is counted
once. Errors of sums are not sums of errors: under a strategy that measures totals well, the
total of a hundred cells errs less than a single one of them.

T is a Kronecker product with one factor for each attribute (`QuerySet.answers_of`): sums of cells,
differences of running totals, single ranges, sums of the groups of a finer level; totals of the
attributes that are left out. Where a group cannot tell the queries it is no `Rollup`.

All ranges of a million cells are 5 * 10^11 answers. The release holds all of them, as running
totals: any range is a difference of two, and `range_frame` answers those that are asked for.

Post-processing of what was released (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.release.answers import check_rows
from sfumato.release.estimates import Estimates
from sfumato.release.labels import columns_of
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing, shown
from sfumato.types import Array
from sfumato.workload.queries import Identity, Intervals, QuerySet, Total
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Ends",
    "Rollup",
    "range_frame",
    "rollup_frame",
    "rollups_of",
]


@dataclass(frozen=True, eq=False)
class Rollup:
    """Queries ``target`` as linear combinations ``T a`` of the answers a of a product ``source``.

    ``term`` is the number of the released group.
    """

    term: int
    source: Product
    target: Product

    @property
    def pairs(self) -> tuple[tuple[QuerySet, QuerySet], ...]:
        """For every attribute of the source its queries, and those that the target asks of it."""
        wanted = dict(self.target.factors)
        return tuple((q, wanted.get(n, Total(q.size))) for n, q in self.source.factors)

    def answers(self, numbers: Array) -> Array:
        """``T a``."""
        table = np.asarray(numbers, dtype=np.float64).reshape(self.source.row_shape)
        for axis, (source, target) in enumerate(self.pairs):
            along = source.answers_of(target, np.moveaxis(table, axis, 0))
            assert along is not None  # noqa: S101  `rollups_of` has seen to it
            table = np.moveaxis(along, 0, axis)
        return table.reshape(-1)

    def bounds(self, numbers: Array) -> Array:
        """``|T| a``: what sums of numbers can be at most, whatever their signs."""
        if all(source.is_identity for source, _ in self.pairs):
            return self.answers(numbers)  # coefficients 0 and 1
        table = np.asarray(numbers, dtype=np.float64).reshape(self.source.row_shape)
        for axis, factor in enumerate(self._factors):
            along = np.tensordot(np.abs(factor), np.moveaxis(table, axis, 0), axes=1)
            table = np.moveaxis(along, 0, axis)
        return table.reshape(-1)

    @property
    def factor_entries(self) -> int:
        """The numbers of all factors of T."""
        return sum(source.rows * target.rows for source, target in self.pairs)

    @cached_property
    def _factors(self) -> tuple[Array, ...]:
        """T along every attribute."""
        out = []
        for source, target in self.pairs:
            factor = source.answers_of(target, np.eye(source.rows))
            assert factor is not None  # noqa: S101  `rollups_of` has seen to it
            out.append(np.asarray(factor, dtype=np.float64))
        return tuple(out)

    def rows(self) -> Iterator[Array]:
        """The coefficients of every query of the target: the rows of T."""
        one = np.ones(1)
        shape = [len(factor) for factor in self._factors]
        for places in np.ndindex(*shape):
            rows = [f[i] for f, i in zip(self._factors, places, strict=True)]
            yield reduce(np.multiply.outer, rows, one).reshape(-1)

    def errors(self, forecast: Forecast, values: Sequence[int]) -> tuple[Array, Array] | None:
        """Standard errors of ``T a``, and how many equal draws each error is like.

        With ``e_j = (T R)_ij^2 v_j`` over all measured values j, v_j their variance: the root of
        ``sum e_j``, and ``(sum e_j)^2 / sum e_j^2``. Rows of T are followed back to what was
        measured, or measured values to the sums, whichever are fewer.

        Args:
            forecast: How the source was answered.
            values: The number of values of every measured block.

        Returns:
            Both, or None where there are too many of either.
        """
        moments = None
        if self.target.rows <= min(sum(values), LIMITS.followed_values):
            moments = self._followed_back(forecast)
        if moments is None:
            moments = self._followed(forecast, values)
        if moments is None:
            return None
        second, fourth = moments
        shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
        is_normal = forecast.strategy.noise == "gaussian"
        return np.sqrt(second), np.full_like(shapes, np.inf) if is_normal else shapes

    def _followed_back(self, forecast: Forecast) -> tuple[Array, Array] | None:
        """``sum e_j`` and ``sum e_j^2`` of every row of T; None where T is too large."""
        if self.factor_entries > LIMITS.rollup_entries:
            return None
        second, fourth = np.zeros(self.target.rows), np.zeros(self.target.rows)
        try:
            for i, row in enumerate(self.rows()):
                for b, weights in forecast.strategy.adjoint(self.term, row).items():
                    part = weights**2 * forecast.block_variances[b]
                    second[i] += part.sum()
                    fourth[i] += (part**2).sum()
        except TooLarge:
            return None
        return second, fourth

    def _followed(self, forecast: Forecast, values: Sequence[int]) -> tuple[Array, Array] | None:
        """The same, one measured value after the other."""
        zeros = [np.zeros(number) for number in values]
        constant = forecast.strategy.answer(self.term, zeros)  # of a biased strategy; else zero

        def reached(b: int, unit: Array) -> Array:
            answers = forecast.strategy.answer(self.term, [*zeros[:b], unit, *zeros[b + 1 :]])
            return self.answers(answers - constant)

        # Irrational steps: a block that matters does not cancel on them by accident.
        blocks = [
            b
            for b, zero in enumerate(zeros)
            if reached(b, 1 + np.modf(sqrt(2) * np.arange(1, zero.size + 1))[0]).any()
        ]
        if sum(zeros[b].size for b in blocks) > LIMITS.followed_values:
            return None
        second, fourth = np.zeros(self.target.rows), np.zeros(self.target.rows)
        for b in blocks:
            unit = np.zeros(zeros[b].size)
            for j in range(unit.size):
                unit[j] = 1.0
                part = reached(b, unit) ** 2 * forecast.block_variances[b]
                unit[j] = 0.0
                second += part
                fourth += part**2
        return second, fourth


def rollups_of(workload: Workload, target: Product) -> list[Rollup]:
    """The released groups that tell these queries, those with fewer answers first."""
    out = []
    for t, term in enumerate(workload.terms):
        source = term.as_product()
        if source is None or term.rows > WORKLOAD_LIMITS.array_entries:
            continue
        if not set(target.attributes) <= set(source.attributes):
            continue
        rollup = Rollup(t, source, target)
        if all(
            source.answers_of(wanted, np.zeros((source.rows, 0))) is not None
            for source, wanted in rollup.pairs
        ):
            out.append(rollup)
    return sorted(out, key=lambda rollup: (prod(rollup.source.row_shape), rollup.term))


def rollup_frame(estimates: Estimates, target: Product, level: float) -> pd.DataFrame:
    """Answers to queries that released groups tell, as `answers` has them.

    ``frame.attrs["basis"]`` says what they are made of.
    """
    import pandas as pd

    check_rows(target.rows)
    names = [t.name for t in estimates.workload.terms]
    further = None
    if rollups_of(estimates.workload, target):
        further = estimates.further(target, level)
    if further is None:
        raise WorkloadError(
            f"no group is over exactly the attributes {listing(target.attributes, 30)}, and none "
            f"holds them with others; the groups are: {listing(names, 100)}; ask with group=NAME, "
            "or for all with answers()"
        )
    frame = pd.DataFrame({**columns_of(target), **further.columns})
    frame.attrs["basis"] = further.basis
    return frame


# Chosen ranges of an attribute


Ends = tuple[object, object]  # the least and the greatest value of a range


def range_frame(
    estimates: Estimates,
    attr: str,
    between: Sequence[Ends],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """One row per asked range and cell of ``by``: its ends, then its numbers."""
    import pandas as pd

    domain = estimates.workload.domain
    names = domain.in_order([attr, *by])
    chosen = _intervals(domain[attr], between)
    factors = tuple((n, chosen if n == attr else Identity(domain[n].size)) for n in names)
    product = Product(domain, f"ranges {attr}", 1.0, factors)
    further = estimates.further(product, level)
    if further is None:
        usable = [t.name for t in estimates.workload.terms if attr in t.attributes]
        raise WorkloadError(
            f"no released group gives single ranges of {attr!r}"
            + (f" by {listing(list(by))}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for its "
            "ranges in the workload, or combine answers with combine(...)"
        )
    frame = pd.DataFrame({**columns_of(product), **further.columns})
    frame.attrs["basis"] = further.basis
    return frame


def _intervals(attribute: Attribute, between: Sequence[Ends]) -> Intervals:
    """The cells of every range; both ends belong to it."""
    if not isinstance(between, Sequence) or not len(between):
        raise WorkloadError("no range was asked: give pairs of a least and a greatest value")
    cells: dict[tuple[str, object], int] = {}

    def cell(comparison: str, value: object) -> int:
        """The first cell at or above a value, or the number of cells at or below it."""
        if (comparison, value) not in cells:
            inside = np.flatnonzero(attribute.select(comparison, value))  # type: ignore[arg-type]
            is_first = comparison == ">="
            none = attribute.size if is_first else 0
            last = int(inside[-1]) + 1 if len(inside) else none
            cells[comparison, value] = int(inside[0]) if is_first and len(inside) else last
        return cells[comparison, value]

    starts, ends = [], []
    for pair in between:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WorkloadError(
                f"a range is a pair of its least and its greatest value, got {shown(pair)}"
            )
        starts.append(cell(">=", pair[0]))
        ends.append(cell("<=", pair[1]))
        if starts[-1] >= ends[-1]:
            raise WorkloadError(
                f"no cell of {attribute.name!r} lies between {shown(pair[0])} and {shown(pair[1])}"
            )
    return Intervals(attribute.size, np.array(starts), np.array(ends))
