# SPDX-License-Identifier: Apache-2.0
"""Noise that is larger than the counts: a prior around independence, fitted to the tables.

With more cells than records most noisy cells say nothing. Before they are seen, a cell of a table
of several attributes is expected at b, the product of one-way shares, give or take

    var = tau * b        (counts; tau = 1 is the sampling error of independent records),

with one tau per table. Shares and tau are those of greatest likelihood in ``y ~ N(b, tau b + v)``,
v the variance of the noise: empirical Bayes (Robbins 1956, "An empirical Bayes approach to
statistics"; Efron, Morris 1973, "Stein's estimation rule and its competitors"). For given tau the
shares of one attribute are least squares with a diagonal matrix while the others stay, on the
simplex: alternating least squares. The log density of the prior is one more quadratic part ``(h -
b)^2 / (2 tau b)`` of the fit, so every solver of fits can use it; the least point is then the most
likely histogram. Tables of strong dependence get a large tau and stay as they were measured;
tables of noise fall back to independence, frequent cells last.

The answers are no longer unbiased: use it where the total error matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.refine.fit import Fit, Names, Part
from sfumato.refine.rows.weights import onto_weights
from sfumato.refine.simplex import project_to_simplex
from sfumato.refine.synthetic.synthesize import ReleasedTable
from sfumato.workload.queries import Array, Identity
from sfumato.workload.terms import Product

__all__ = ["Prior", "dispersion", "find_prior", "one_way_shares", "shrunk"]

ROUNDS = 3
SWEEPS = 50
SETTLED = 1e-4  # change of the shares of an attribute, in L1
RAREST = 0.1  # rarer cells are expected as if a tenth of a record were
LEAST_VARIANCE = 1e-12
LEAST = 1.0  # tau: independent records
GREATEST = 1e12
MOST_CELLS = 2**13
GRID = 49
REFINEMENTS = 2


@dataclass(frozen=True, eq=False)
class Prior:
    """Shares of every attribute, and one tau per table of several attributes."""

    shares: dict[str, Array]
    tau: tuple[float, ...]
    total: float

    def expected(self, names: Names) -> Array:
        """``b``: the product table."""
        out = np.full((), self.total)
        for name in names:
            out = np.multiply.outer(out, self.shares[name])
        return out


def shrunk(fit: Fit, tables: Sequence[ReleasedTable], n: float) -> Fit:
    """The fit with a prior for every released table of two attributes or more."""
    prior = find_prior(fit.domain, tables, n)
    several = [t for t in tables if len(t.attributes) > 1 and not t.is_spread]
    parts = []
    for table, tau in zip(several, prior.tau, strict=True):
        base = prior.expected(table.attributes)
        weights = 1 / (tau * np.maximum(base, RAREST))
        factors = tuple((a, Identity(fit.domain[a].size)) for a in table.attributes)
        term = Product(fit.domain, f"prior {' x '.join(table.attributes)}", 1.0, factors)
        parts.append(Part(term, base.reshape(-1), weights.reshape(-1)))
    return Fit(fit.domain, (*fit.parts, *parts))


def find_prior(domain: Domain, tables: Sequence[ReleasedTable], n: float) -> Prior:
    """Shares and tau in turn, from the projected one-way tables on."""
    if not (isfinite(n) and n > 0):
        raise PlanError(f"a prior needs a total above 0, got {n}")
    used = [t for t in tables if t.attributes and not t.is_spread]
    shares = {a.name: _one_way(domain, used, a.name, n) for a in domain}
    prior = Prior(shares, (), n)
    for _ in range(ROUNDS):
        known, tau = [], []
        for table in used:
            base = np.maximum(prior.expected(table.attributes), RAREST)
            variance = np.full(base.shape, table.error**2)
            if base.ndim > 1:
                tau.append(dispersion(table.values - base, base, table.error**2))
                variance += tau[-1] * base
            known.append((table, 1 / np.maximum(variance, LEAST_VARIANCE)))
        prior = Prior(_alternate(prior, known), tuple(tau), n)
    return prior


def _alternate(prior: Prior, known: Sequence[tuple[ReleasedTable, Array]]) -> dict[str, Array]:
    """Alternating least squares of ``n p x q x ...`` against weighted tables."""
    shares = dict(prior.shares)
    for _ in range(SWEEPS):
        moved = 0.0
        for name, share in shares.items():
            bend, pull = np.zeros(len(share)), np.zeros(len(share))
            for table, weights in known:
                if name not in table.attributes:
                    continue
                axis = table.attributes.index(name)
                others = np.full((), prior.total)
                for other in table.attributes:
                    factor = np.ones(1) if other == name else shares[other]
                    others = np.multiply.outer(others, factor)
                pulled = weights * others
                away = tuple(i for i in range(others.ndim) if i != axis)
                bend += (pulled * others).sum(axis=away)
                pull += (pulled * table.values).sum(axis=away)
            if not bend.any():
                continue
            bend = np.maximum(bend, 1e-12 * float(bend.max()))
            found = onto_weights(pull / bend, bend, 1.0)
            moved = max(moved, float(np.abs(found - share).sum()))
            shares[name] = found
        if moved < SETTLED:
            break
    return shares


def dispersion(differences: Array, expected: Array, variance: float) -> float:
    """The tau of greatest likelihood in ``d ~ N(0, tau b + v)``, from 1 up.

    The likelihood of ``log tau`` need not be unimodal: a grid, then a finer one around its best.
    Only the most frequent cells are looked at, which say the most and are chosen without y.
    """
    squares, expected = differences.reshape(-1) ** 2, expected.reshape(-1)
    if expected.size > MOST_CELLS:
        frequent = np.argpartition(-expected, MOST_CELLS)[:MOST_CELLS]
        squares, expected = squares[frequent], expected[frequent]
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


def one_way_shares(tables: Sequence[ReleasedTable], name: str, n: float) -> Array | None:
    """The shares of one attribute: all tables that hold it, by their precision; None if none do."""
    holding = [t for t in tables if name in t.attributes and not t.is_spread]
    if not holding:
        return None
    precision = [t.margin_error((name,)) ** -2 if t.error > 0 else 1e300 for t in holding]
    margins = [t.margin((name,)) for t in holding]
    return project_to_simplex(np.average(margins, axis=0, weights=precision), n) / n


def _one_way(domain: Domain, tables: Sequence[ReleasedTable], name: str, n: float) -> Array:
    found = one_way_shares(tables, name, n)
    return np.full(domain[name].size, 1 / domain[name].size) if found is None else found
