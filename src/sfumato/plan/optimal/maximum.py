# SPDX-License-Identifier: Apache-2.0
"""Strategies whose largest error is the least possible, for workloads with structure.

``largest.py`` gives the mathematics: weights on queries and on cells, one bound, one certificate.
Here structure makes it quick:

* **prefixes**: reading cells and queries backwards takes the prefixes to their own transpose, so
  at an optimum the weights of the queries are those of the cells, backwards (the dual is concave:
  average an optimum with its reflection). With weights w on prefixes the inverse Gram matrix is
  ``diag_i = 1/w_i + 1/w_{i-1}, beside_i = -1/w_i``: still tridiagonal, O(cells) a step;
* **all ranges of a long attribute**: weights that are products over the two ends, ``alpha_s
  beta_e``, keep the inverse Gram matrix tridiagonal too, as V_ij = a_min b_max. Ranges across the
  middle, weighted like the prefixes of either half, give a bound within 0.3% of the optimum in
  O(cells), and like weights on all pairs of points a strategy within a few percent of it;
* **unions of products** with few classes of cells, such as all ranges of 2,048 cells: weights on
  orbits of queries (``weighted_orbits.py``);
* **one product** of any number of attributes: gamma_2 of a Kronecker product is the product of
  those of its factors (Lee, Shraibman, Spalek 2008), bounds and strategies multiply.

The lower bound that a strategy carries is one on ``weighted_error("max")`` of every strategy for
the same workload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.plan.optimal.factorization import Factorization, factorization
from sfumato.plan.optimal.factorwise import factorwise
from sfumato.plan.optimal.largest_pieces import FactorLargest, largest_pieces
from sfumato.plan.solve.largest import CertifiedLargest
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.orbits import SECTOR_SIZE
from sfumato.plan.solve.reweighted import query_orbits
from sfumato.plan.solve.tridiagonal import Tridiagonal, root_diagonal
from sfumato.plan.solve.weighted_orbits import weighted_orbits
from sfumato.plan.strategy import Strategy
from sfumato.workload.queries import Array, Prefix, QuerySet, Ranges
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "largest_error",
    "prefix_inverse_gram",
    "prefix_weights",
    "range_bound",
    "range_points",
]

TOLERANCE = 2e-4  # how close to its lower bound the largest error is driven
FACTOR_TOLERANCE = 1e-3  # where weights are a guess, as in pieces
ROUGH = 1e-2  # of weights that are only a guess
EVENNESS = 0.75  # power of the weights of points, between even (0) and those of prefixes (1)
LONG = 256  # cells along which prefixes are measured by a rational root, in linear time

Progress = Callable[[int, float], None]


def largest_error(workload: Workload, progress: Progress | None = None) -> Strategy:
    """The strategy of least largest error ``max_q w_q^2 |r_q|^2 ||M||_{1->2}^2``, certified.

    ``bound`` is a lower bound on it for every strategy. Raises PlanError for terms that are no
    products and TooLarge for unions of too many classes of cells.
    """
    from sfumato.plan.optimal.ordered import ordered_largest

    if _is_long(workload, Prefix, LONG) or _is_long(workload, Ranges, SECTOR_SIZE + 1):
        return ordered_largest(workload, TOLERANCE)
    try:
        return _by_orbits(workload, progress)
    except TooLarge:
        if len(workload.terms) > 1:
            return largest_pieces(workload, _factor)
        if len(workload.terms[0].attributes) < 2:
            raise
        return factorwise(workload, lambda alone: _by_orbits(alone, progress), "max")


def _by_orbits(workload: Workload, progress: Progress | None = None) -> Factorization:
    problem = weighted_orbits(workload)
    starts = {
        axis.name: prefix_weights(axis.cells, TOLERANCE / 2)
        for axis, queries in zip(problem.axes, problem.common, strict=True)
        if isinstance(queries, Prefix)
    }
    sectors, found = problem.solve(TOLERANCE, starts, progress)
    return replace(factorization(workload, sectors, found), objective="max")


def _factor(queries: QuerySet) -> FactorLargest:
    """The weights of the queries of one attribute, of at most 2,048 classes of cells."""
    if isinstance(queries, Prefix):
        found = prefix_weights(queries.size)
        return FactorLargest(found.w, found.lower)
    domain = Domain({"x": queries.size})
    problem = weighted_orbits(Workload(domain, (Product(domain, "x", 1.0, (("x", queries),)),)))
    best = problem.weights(FACTOR_TOLERANCE)
    orbit_of = query_orbits(problem.axes[0], queries)[1]
    return FactorLargest(best.w[orbit_of], best.lower)


def _is_long(workload: Workload, kind: type[Prefix] | type[Ranges], least: int) -> bool:
    """Whether it asks for these intervals of one long attribute, for each cell of others."""
    term = workload.terms[0].as_product()
    if len(workload.terms) > 1 or term is None:
        return False
    long = [q for _, q in term.factors if isinstance(q, kind) and q.size >= least]
    return len(long) == 1 and all(q.is_identity or q is long[0] for _, q in term.factors)


def prefix_weights(size: int, tolerance: float = TOLERANCE) -> CertifiedLargest:
    """The weights of cells and of queries for all prefixes of ``size`` cells.

    >>> found = prefix_weights(64)
    >>> found.certificate < 1.0002
    True
    """

    def diagonal(v: Array) -> Array:
        return root_diagonal(*prefix_inverse_gram(v[::-1] / v.sum()))(v)

    # At w = v backwards the certificate of the largest error is the square of that of the mean.
    found = certified_optimum(diagonal, size, tolerance / 2, all_bind=True)
    total = float(found.v.sum())
    v = found.v / total
    # X has diagonal at most 1 and the errors are those of the cells backwards, times the total.
    upper = found.scale**2 * total
    return CertifiedLargest(v, v[::-1].copy(), found.scale, upper, found.lower, found.steps)


def prefix_inverse_gram(weights: Array) -> tuple[Tridiagonal, Array]:
    """``V^-1`` and the diagonal of V for prefixes with weights on the queries."""
    inverse = 1 / weights
    diagonal = inverse.copy()
    diagonal[1:] += inverse[:-1]
    return Tridiagonal(diagonal, -inverse[:-1]), np.cumsum(weights[::-1])[::-1]


def range_bound(size: int, tolerance: float = FACTOR_TOLERANCE) -> float:
    """A lower bound on the squared largest error of all ranges of ``size`` cells, in O(cells).

    Only ranges from the first half (starts) to the second (ends) count, with product weights.
    """
    half = size // 2
    starts = prefix_weights(half + 1, ROUGH).w[::-1]
    ends = prefix_weights(size - half, ROUGH).w
    a = np.concatenate([np.cumsum(starts), np.full(size - half - 1, starts.sum())])
    b = np.concatenate([np.full(half, ends.sum()), np.cumsum(ends[::-1])[::-1]])
    # Neighbours differ in a left of the middle and in b right of it, so the inverse of
    # a_min b_max needs the weights alone: no small difference of large numbers.
    steps = np.concatenate([starts[1:] * ends.sum(), starts.sum() * ends[:-1]])
    beside = -1 / steps
    diagonal = np.zeros(size)
    diagonal[:-1] -= beside
    diagonal[1:] -= beside
    # Row sums of the inverse: at both ends, and where the halves meet.
    diagonal[0] += 1 / (starts[0] * ends.sum())
    diagonal[-1] += 1 / (starts.sum() * ends[-1])
    diagonal[half] -= 1 / (starts.sum() * ends.sum())
    inverse = Tridiagonal(diagonal, beside)
    found = certified_optimum(root_diagonal(inverse, a * b), size, tolerance, all_bind=True)
    return found.lower / float(starts.sum() * ends.sum())


def range_points(size: int) -> Array:
    """Weights on the points between cells, of sum 1: a range matters as the product of its ends."""
    half = size // 2
    left = prefix_weights(half + 1, ROUGH).w[::-1] ** EVENNESS
    right = prefix_weights(size - half, ROUGH).w ** EVENNESS
    both = np.concatenate([left / left.mean(), right / right.mean()])
    return np.asarray(both / both.sum(), dtype=np.float64)
