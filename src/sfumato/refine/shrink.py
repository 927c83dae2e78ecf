# SPDX-License-Identifier: Apache-2.0
"""Noise that is larger than the counts: a prior around independence, fitted to the tables.

With more cells than records most noisy cells say nothing. Before they are seen, a cell of a table
of several attributes is expected at b, the product of its one-way tables, give or take

    var = tau * b        (counts; tau = 1 is the sampling error of independent records),

with one tau per table, found by maximum likelihood from the noisy cells, ``y - b ~ N(0, tau b +
v)``: empirical Bayes (Robbins 1956, "An empirical Bayes approach to statistics"; Efron, Morris
1973, "Stein's estimation rule and its competitors"). The log density of the prior is one more
quadratic part ``(h - b)^2 / (2 tau b)`` of the fit, so every solver of fits can use it; the least
point is then the most likely histogram. Tables of strong dependence get a large tau and stay as
they were measured; tables of noise fall back to independence, frequent cells last.

The answers are no longer unbiased: use it where the total error matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.refine.fit import Fit, Names, Part
from sfumato.refine.simplex import project_to_simplex
from sfumato.refine.synthesize import ReleasedTable
from sfumato.workload.queries import Array, Identity
from sfumato.workload.terms import Product

__all__ = ["dispersion", "expected_tables", "shrunk"]

LEAST = 1.0  # tau: independent records
GREATEST = 1e12
GRID = 97
REFINEMENTS = 2


def shrunk(fit: Fit, tables: Sequence[ReleasedTable], n: float) -> Fit:
    """The fit with a prior for every released table of two attributes or more."""
    if not (isfinite(n) and n > 0):
        raise PlanError(f"a prior needs a total above 0, got {n}")
    wide = [t for t in tables if len(t.attributes) > 1 and not t.is_spread]
    parts = []
    for table, base in zip(wide, expected_tables(fit.domain, tables, n, wide), strict=True):
        expected = np.maximum(base, 1.0).reshape(-1)  # rarer cells: give or take one record
        tau = dispersion(table.values.reshape(-1) - base.reshape(-1), expected, table.error**2)
        parts.append(_prior(fit.domain, table.attributes, base, 1 / (tau * expected)))
    return Fit(fit.domain, (*fit.parts, *parts))


def expected_tables(
    domain: Domain,
    tables: Sequence[ReleasedTable],
    n: float,
    wanted: Sequence[ReleasedTable],
) -> list[Array]:
    """For each wanted table the product of the one-way tables, with the total n."""
    one_way = {name: _one_way(domain, tables, name, n) for t in wanted for name in t.attributes}
    return [_outer(one_way, t.attributes) * n for t in wanted]


def dispersion(differences: Array, expected: Array, variance: float) -> float:
    """The tau of greatest likelihood in ``d ~ N(0, tau b + v)``, from 1 up.

    The likelihood of ``log tau`` need not be unimodal: a grid, then finer ones around its best.
    """
    squares = differences**2
    low, high = np.log(LEAST), np.log(GREATEST)
    best = low
    for _ in range(REFINEMENTS):
        grid = np.linspace(low, high, GRID)
        fits = [_likelihood(squares, expected, variance, t) for t in grid]
        best = float(grid[int(np.argmax(fits))])
        step = float(grid[1] - grid[0])
        low, high = max(np.log(LEAST), best - step), min(np.log(GREATEST), best + step)
    return float(np.exp(best))


def _likelihood(squares: Array, expected: Array, variance: float, log_tau: float) -> float:
    spread = np.exp(log_tau) * expected + variance
    return -0.5 * float(np.log(spread).sum() + (squares / spread).sum())


def _one_way(domain: Domain, tables: Sequence[ReleasedTable], name: str, n: float) -> Array:
    """The shares of one attribute: all tables that hold it, by their precision."""
    holding = [t for t in tables if name in t.attributes and not t.is_spread]
    precision = [t.margin_error((name,)) ** -2 if t.error > 0 else 1e300 for t in holding]
    margins = [t.margin((name,)) for t in holding]
    if not margins:
        return np.full(domain[name].size, 1 / domain[name].size)
    return project_to_simplex(np.average(margins, axis=0, weights=precision), n) / n


def _outer(one_way: Mapping[str, Array], names: Names) -> Array:
    out = np.ones(())
    for name in names:
        out = np.multiply.outer(out, one_way[name])
    return out


def _prior(domain: Domain, names: Names, base: Array, weights: Array) -> Part:
    factors = tuple((n, Identity(domain[n].size)) for n in names)
    term = Product(domain, f"prior {' x '.join(names)}", 1.0, factors)
    return Part(term, base.reshape(-1), weights)
