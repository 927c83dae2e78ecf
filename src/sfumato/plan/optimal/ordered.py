# SPDX-License-Identifier: Apache-2.0
"""Prefixes and ranges along one attribute, of any length: the certified optimum, measured.

For prefixes with any weights on the queries, for all ranges, and for ranges with prefixes, the
inverse Gram matrix is a chain of conductances (``chain.py``). The optimal weights of the cells
come from ``optimum.py`` in O(cells) a step, the measured root from ``rational.py`` and
``rooted.py``, answers and variances from ``totals.py``, all in O(cells). Other attributes, asked
cell by cell, repeat the whole along every line: the product of the optima (``by`` of a workload).

Over running totals P in place of cells, prefixes with weights w have the Gram matrix ``diag(w)``,
all ranges ``(n + 1) I - J``, both together ``E I - J`` with E = n + 1 + w. Differences take P to
cells. They make of a diagonal inverse a chain without ground at its first cell, and of
``(E I - J)^-1 = I / E + J / (E (E - n))`` the same chain with one.

References: Hale, Higham, Trefethen 2008; Li, Miklau, Hay, McGregor, Rastogi 2015, "The matrix
mechanism".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.optimal.rooted import Rooted, column_bounds
from sfumato.plan.optimal.totals import Points
from sfumato.plan.solve.chain import Chain, diagonals
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.rational import ACCURACY, PartialFractions, Root, inverse_fourth_root
from sfumato.plan.solve.tridiagonal import (
    Tridiagonal,
    inverse_root_poles,
    pole_count,
    root_diagonal,
)
from sfumato.plan.strategy import Block, GaussianStrategy, Norm
from sfumato.workload.queries import (
    DENSE_LIMIT,
    Array,
    Integers,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    check_entries,
)
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm
from sfumato.workload.workload import Workload

__all__ = ["Ordered", "ordered", "ordered_chain", "ordered_largest"]

TOLERANCE = 1e-4  # how close to the bound the weights of the cells are driven
FINE, FINE_CELLS = 2e-6, 10**5  # and where there are so few that it takes no time
FINE_ROOT = 1e-6  # accuracy of the measured root of so few cells
MOST_CELLS = 2**25  # along the attribute (the optimiser holds two dozen vectors of them)
BOUND_ACCURACY = 1e-9  # of the root in the lower bound


@dataclass(frozen=True, eq=False)
class Ordered(GaussianStrategy):
    """One measured root; every answer is a difference of two running totals."""

    @property
    def rooted(self) -> Rooted:
        """What is measured."""
        term = self.blocks[0].term
        if not isinstance(term, Rooted):
            raise TypeError("an ordered strategy measures one root")
        return term

    @cached_property
    def points(self) -> Points:
        """The running totals and their covariance at unit noise."""
        return Points(self.rooted.chain, self.rooted.mass, self.rooted.root)

    def running_totals(self, values: Sequence[Array]) -> Array:
        """One line per cell of the other attributes: totals before the points 0, ..., n."""
        y = np.asarray(values[0], dtype=np.float64).reshape(self.rooted.shape)
        lines = np.moveaxis(y, self.rooted.axis, -1).reshape(-1, self.rooted.chain.nodes)
        return np.stack([self.points.running_totals(np.ascontiguousarray(x)) for x in lines])

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """Differences of running totals."""
        self._check_listed(term)
        starts, ends = self._intervals(term)
        totals = self.running_totals(values)
        return self._in_order(term, totals[:, ends] - totals[:, starts])

    def asking(self, workload: Workload) -> Ordered:
        """The same measurement for other intervals of the same attributes."""
        return replace(self, workload=workload, bound=None)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """``Var(P_e - P_s)``, the same for every cell of the other attributes."""
        self._check_listed(term)
        each = self.points.of_intervals(*self._intervals(term))
        repeated = np.broadcast_to(each, (self._lines, len(each)))
        return self._in_order(term, block_variances[0] * repeated)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """All ranges at once from the points, other queries one by one."""
        if isinstance(self._queries(term), Ranges):
            total = self.points.total_of_ranges
        else:
            total = float(self.points.of_intervals(*self._intervals(term)).sum())
        return block_variances[0] * self._lines * total

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``; for all ranges a bound on it."""
        if isinstance(self._queries(term), Ranges):
            return block_variances[0] * self.points.greatest_of_ranges
        return block_variances[0] * float(self.points.of_intervals(*self._intervals(term)).max())

    def effective_terms(self, term: int) -> Array:
        """Gaussian noise adds up to Gaussian noise."""
        self._check_listed(term)
        return np.full(self.workload.terms[term].rows, np.inf)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """Through the points, line by line."""
        self._check_listed(term)
        starts, ends = self._intervals(term)
        asked = self.workload.terms[term]
        shape = asked.row_shape
        names = [n for n in asked.attributes if n == self.rooted.along]
        lines = np.asarray(coefficients, dtype=np.float64).reshape(shape)
        if names:
            lines = np.moveaxis(lines, asked.attributes.index(self.rooted.along), -1)
        n = self.rooted.chain.nodes
        out = []
        for line in lines.reshape(self._lines, -1):
            weights = np.zeros(n + 1)
            np.add.at(weights, ends, line)
            np.subtract.at(weights, starts, line)
            out.append(self.points.transposed(weights))
        cells = [self.workload.domain[b].size for b in self.rooted.by]
        found = np.moveaxis(np.array(out).reshape(*cells, n), -1, self.rooted.axis)
        return {0: found.reshape(-1)}

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """``2 Cov(P_b - P_a, P_d - P_c)``: variances of ad and bc less those of ac and bd."""
        asked = self.workload.terms[term]
        shape = asked.row_shape
        places = np.unravel_index(np.array(queries, dtype=np.int64), shape) if shape else ()
        known = [n == self.rooted.along for n in asked.attributes]
        along = [p for p, k in zip(places, known, strict=True) if k]
        starts, ends = self._picked(term, along[0] if along else np.zeros(len(queries), np.int64))
        points, where = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        first, last = np.triu_indices(len(points), 1)
        apart = np.zeros((len(points), len(points)))
        apart[first, last] = self.points.of_intervals(points[first], points[last])
        apart += apart.T
        a, b = np.split(where.reshape(-1), 2)
        out = apart[np.ix_(a, b)] + apart[np.ix_(b, a)] - apart[np.ix_(a, a)] - apart[np.ix_(b, b)]
        for p, k in zip(places, known, strict=True):
            out *= 1.0 if k else p[:, None] == p  # other cells have noise of their own
        return np.asarray(block_variances[0] * out / 2, dtype=np.float64)

    def _picked(self, term: int, places: Integers) -> tuple[Integers, Integers]:
        """Starts and ends of some queries along the attribute, by number."""
        queries = self._queries(term)
        if not isinstance(queries, Ranges):
            starts, ends = self._intervals(term)
            return starts[places], ends[places]
        # Those that start at i come after i n - i (i - 1) / 2 others.
        before = np.arange(queries.size, dtype=np.int64)
        before = before * queries.size - before * (before - 1) // 2
        starts = np.searchsorted(before, places, side="right") - 1
        return starts, starts + places - before[starts] + 1

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:
        """The greatest of the bounds of all columns."""
        if norm != 2:
            return super().greatest_column(norm, scales)
        return ColumnNorm(scales[0] * self.rooted.greatest**2 * ROUND_UP, is_exact=False)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """No coefficient is negative: two columns are at most sqrt(2) of the longest apart."""
        if norm != 2:
            return super()._diameters(norm)
        return (2 * self.rooted.greatest**2 * ROUND_UP,)

    @property
    def _lines(self) -> int:
        return prod(self.workload.domain[b].size for b in self.rooted.by)

    def _queries(self, term: int) -> QuerySet:
        asked = self.workload.terms[term].as_product()
        factors = {} if asked is None else dict(asked.factors)
        return factors.get(self.rooted.along, Total(self.rooted.chain.nodes))

    def _intervals(self, term: int) -> tuple[Integers, Integers]:
        found = self._queries(term).intervals()
        if found is None:
            raise TypeError("an ordered strategy answers intervals")
        return found

    def _in_order(self, term: int, lines: Array) -> Array:
        """From a line per cell of ``by`` to the order of the asked attributes."""
        asked = self.workload.terms[term]
        if self.rooted.along not in asked.attributes:
            return lines.reshape(-1)
        cells = [self.workload.domain[b].size for b in self.rooted.by]
        place = asked.attributes.index(self.rooted.along)
        return np.moveaxis(lines.reshape(*cells, -1), -1, place).reshape(-1)

    def _check_listed(self, term: int) -> None:
        asked = self.workload.terms[term]
        if asked.rows > DENSE_LIMIT:
            raise TooLarge(
                f"group {asked.name!r} has {asked.rows:,} answers, at most {DENSE_LIMIT:,} are "
                f"listed; ask for some of them with release.ranges({self.rooted.along!r}, ...)"
            )


def ordered(
    workload: Workload,
    progress: Callable[[int, float], None] | None = None,
    tolerance: float | None = None,
) -> Ordered:
    """The certified optimum of prefixes or ranges along one attribute, for each cell of others.

    Refused when a group is no product, when several attributes are asked by intervals, when other
    attributes are not asked cell by cell in all groups alike, or for more than 2^25 cells.
    """
    along, by, asked = _read(workload)
    found = ordered_chain(asked)
    if found is None:
        raise PlanError(
            "ranges with prefixes of unequal weights, or with the total, have no tridiagonal "
            "inverse; ask for them in separate plans"
        )
    chain, diagonal = found
    inverse = Tridiagonal(chain.diagonal(), -chain.links)
    if tolerance is None:
        tolerance = FINE if chain.nodes <= FINE_CELLS else TOLERANCE
    v = certified_optimum(
        root_diagonal(inverse, diagonal), chain.nodes, tolerance, all_bind=True, progress=progress
    ).v
    lines = prod(workload.domain[b].size for b in by)
    spectrum = _spectrum(chain, diagonal, v)
    bound = _bound(chain, v, *spectrum) * lines
    blocks = (_measured(workload, along, by, chain, v, spectrum),)
    return Ordered("factorization", "gaussian", workload, blocks, bound=bound)


def ordered_largest(workload: Workload, tolerance: float = 2 * TOLERANCE) -> Ordered:
    """A small largest error of prefixes or ranges of one attribute, for each cell of others.

    The weights of ``maximum.py`` with the same root: the certified optimum for prefixes, within a
    few percent of it for all ranges. Refused for more than one group and for other queries.
    """
    from sfumato.plan.optimal.maximum import prefix_weights, range_bound, range_points

    along, by, asked = _read(workload)
    queries, weight = asked[0]
    if len(asked) != 1 or not queries.holds_prefixes:
        raise PlanError("the largest error is known in linear time for one group of intervals only")
    if isinstance(queries, Prefix):
        best = prefix_weights(queries.size, tolerance)
        found = ordered_chain([(queries, best.w)])
        if found is None:
            raise PlanError("the weights of the prefixes are too uneven")
        chain, diagonal = found
        v, bound = best.v, best.lower
    else:
        chain, diagonal = _chain_of_points(range_points(queries.size))
        inverse = Tridiagonal(chain.diagonal(), -chain.links)
        solver = root_diagonal(inverse, diagonal)
        v = certified_optimum(solver, queries.size, tolerance, all_bind=True).v
        bound = range_bound(queries.size)
    blocks = (_measured(workload, along, by, chain, v, _spectrum(chain, diagonal, v)),)
    return Ordered(
        "factorization", "gaussian", workload, blocks, bound=bound * weight, objective="max"
    )


def _chain_of_points(weights: Array) -> tuple[Chain, Array]:
    """``V^-1`` and the diagonal of V for ranges that matter as products of weights of their ends.

    Over running totals the Gram matrix is ``diag(w) - w w'`` for weights of sum 1; on differences
    its inverse is ``diag(1 / w)``, for ``(diag(w) - w w') diag(1 / w) = I - w 1'``.
    """
    conductance = 1 / weights
    ground = np.zeros(len(weights) - 1)
    ground[0] += conductance[0]
    ground[-1] += conductance[-1]
    before = np.cumsum(weights)[:-1]
    after = np.cumsum(weights[::-1])[::-1][1:]
    return Chain(conductance[1:-1], ground), before * after


def ordered_chain(asked: Sequence[tuple[QuerySet, float | Array]]) -> tuple[Chain, Array] | None:
    """``V^-1`` as a chain, and the diagonal of V, for weighted prefixes, totals and ranges.

    Weights are those of the squared errors: one for all queries of a set, or one per prefix. None
    where V^-1 is no chain.
    """
    n = asked[0][0].size
    weights, even = np.zeros(n), 0.0
    for queries, weight in asked:
        if isinstance(queries, Ranges):
            even += float(np.asarray(weight))
        elif isinstance(queries, Prefix):
            weights += weight
        elif queries.is_total:
            weights[-1] += float(np.asarray(weight))
        else:
            return None
    held = np.cumsum(weights[::-1])[::-1] + even * Ranges(n).column_powers(2)
    ground = np.zeros(n)
    if even == 0:
        if not (weights > 0).all():
            return None
        ground[-1] = 1 / weights[-1]
        return Chain(1 / weights[:-1], ground), held
    if not (weights == weights[0]).all():
        return None
    each = even * (n + 1) + float(weights[0])
    ground[-1] = 1 / each
    ground[0] += even / (each * (even + float(weights[0])))
    return Chain(np.full(n - 1, 1 / each), ground), held


def _read(workload: Workload) -> tuple[str, tuple[str, ...], list[tuple[QuerySet, float]]]:
    """The attribute of the intervals, the others, and what is asked along it."""
    products = [t.as_product() for t in workload.terms]
    factors = [None if p is None else dict(p.factors) for p in products]
    names = {
        name
        for found in factors
        if found is not None
        for name, q in found.items()
        if q.holds_prefixes
    }
    if len(names) != 1:
        raise PlanError(
            f"intervals along exactly one attribute are needed, these are along {len(names)}"
        )
    along = names.pop()
    asked: list[tuple[QuerySet, float]] = []
    others: set[tuple[str, ...]] = set()
    size = workload.domain[along].size
    for term, found in zip(workload.terms, factors, strict=True):
        if found is None:
            raise PlanError(f"group {term.name!r} is no product of query sets")
        queries = found.pop(along, Total(size))
        if not (queries.holds_prefixes or queries.is_total):
            raise PlanError(f"group {term.name!r} asks {along} for other queries than intervals")
        if not all(q.is_identity for q in found.values()):
            raise PlanError(f"group {term.name!r} asks other attributes for more than their cells")
        asked.append((queries, term.weight**2))
        others.add(tuple(found))
    if len(others) != 1:
        raise PlanError("the groups are not by the same attributes")
    if not 2 <= size <= MOST_CELLS:
        raise TooLarge(
            f"{along} has {size:,} cells; allowed are 2 to {MOST_CELLS:,}, use coarser cells"
        )
    return along, others.pop(), asked


def _spectrum(chain: Chain, diagonal: Array, v: Array) -> tuple[float, float]:
    """Bounds on the eigenvalues of T: the inverse of the trace of A, and Gershgorin's discs."""
    inverse = Tridiagonal(chain.diagonal(), -chain.links)
    return 1 / float(diagonal @ v), inverse.scaled(v).largest_bound()


def _measured(
    workload: Workload,
    along: str,
    by: tuple[str, ...],
    chain: Chain,
    v: Array,
    spectrum: tuple[float, float],
) -> Block:
    """The root for these weights of cells, with column norms of at most 1."""
    lines = prod(workload.domain[b].size for b in by)
    check_entries(chain.nodes * lines, f"the table of {', '.join([along, *by])}")
    accuracy = FINE_ROOT if chain.nodes <= FINE_CELLS else ACCURACY
    root = inverse_fourth_root(*spectrum, accuracy)
    longest = float(column_bounds(chain, v, root).max())
    scaled = Root(root.shifts, root.weights / np.sqrt(longest))
    term = Rooted(workload.domain, f"root {along}", 1.0, along, by, chain, v, scaled)
    return Block(term, 1.0)


def _bound(chain: Chain, v: Array, least: float, largest: float) -> float:
    """``(tr A^1/2)^2 / sum(v)`` without a subtraction: a lower bound on the squared error."""
    count = pole_count(least, largest, BOUND_ACCURACY)
    shifts, weights = inverse_root_poles(least, largest, count)
    plus, _ = diagonals(chain, v, PartialFractions(shifts, weights, np.zeros(count)))
    return float(v @ plus) ** 2 / float(v.sum()) * (1 - 4 * BOUND_ACCURACY)
