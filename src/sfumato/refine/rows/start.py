# SPDX-License-Identifier: Apache-2.0
"""Where rows start: the best product of one-way tables, and rows that follow it closely.

Among the histograms ``n p_1 x ... x p_d``, f is least squares in every ``p_i`` while the others
stay. All of them take multiplicative steps (Kivinen, Warmuth 1997, "Exponentiated gradient versus
gradient descent for linear predictors"), kept only if f falls; a start need not be the best one.
"""

from __future__ import annotations

from string import ascii_letters

import numpy as np

from sfumato.refine.draws import Draws
from sfumato.refine.rows.conditions import Codes
from sfumato.refine.rows.problem import Gradient, Problem
from sfumato.workload.queries import Array, Integers

__all__ = ["best_product", "draw_product"]

ROUNDS = 40
MANY_CELLS, FEW_ROUNDS = 2**22, 8  # a start must not take longer than the search
LEAST_STEP = 2.0**-40
GROWTH = 2.0
ENOUGH = 1e-3
LONGEST = 5.0
LEAST_SHARE = 1e-12


def best_product(problem: Problem) -> list[Array]:
    """One distribution per attribute; attributes that no table part reads stay uniform."""
    shares = [np.full(n, 1 / n) for n in problem.layout.sizes.tolist()]
    value, gradient = problem.gradient(_product_margins(problem, shares))
    pace = 0.0
    for _ in range(ROUNDS if problem.layout.length <= MANY_CELLS else FEW_ROUNDS):
        slopes = [_slope(problem, shares, gradient.cells, a) for a in range(len(shares))]
        slopes = [g - float(g @ p) for g, p in zip(slopes, shares, strict=True)]
        steepest = max((float(np.abs(g).max()) for g in slopes), default=0.0)
        if steepest == 0:
            break
        pace = pace * GROWTH if pace else 1 / steepest
        before = value
        while pace * steepest > LEAST_STEP:
            trial = [_stepped(p, pace * g) for p, g in zip(shares, slopes, strict=True)]
            seen = _product_margins(problem, trial)
            found = problem.value(seen)
            if found < value:
                shares, (value, gradient) = trial, problem.gradient(seen)
                break
            pace /= 4
        if before - value <= ENOUGH * value:
            break
    return shares


def _stepped(share: Array, by: Array) -> Array:
    """``p exp(-by)``, summing to 1; no cell falls to 0 for good."""
    out = share * np.exp(-np.clip(by, -LONGEST, LONGEST)) + LEAST_SHARE / len(share)
    return np.asarray(out / out.sum(), dtype=np.float64)


def _product_margins(problem: Problem, shares: list[Array]) -> Gradient:
    """The margins of the product; wide conditions are left as wanted, and so pull nowhere."""
    places = problem.layout
    out = np.empty(places.length)
    for s in range(len(places.sets)):
        table = np.full(1, problem.total)
        for e in range(places.member_start[s], places.member_start[s + 1]):
            table = np.multiply.outer(table, shares[places.member[e]]).reshape(-1)
        out[places.slice_of(s)] = table
    return Gradient(out, problem.conditions.values)


def _slope(problem: Problem, shares: list[Array], cells: Array, attribute: int) -> Array:
    """The derivative of f by one distribution: tables contracted with all the others."""
    places = problem.layout
    out = np.zeros(int(places.sizes[attribute]))
    for e in range(places.held_start[attribute], places.held_start[attribute + 1]):
        s = int(places.held_set[e])
        names = places.member[places.member_start[s] : places.member_start[s + 1]].tolist()
        table = cells[places.slice_of(s)].reshape([len(shares[a]) for a in names])
        letters = ascii_letters[: len(names)]
        others = [(letters[i], shares[a]) for i, a in enumerate(names) if a != attribute]
        axis = letters[names.index(attribute)]
        spec = ",".join([letters, *(c for c, _ in others)]) + "->" + axis
        out += np.einsum(spec, table, *(p for _, p in others), optimize=True)
    return problem.total * out


def draw_product(shares: list[Array], rows: int, draws: Draws) -> Codes:
    """Rows whose one-way tables are as close to the shares as whole rows can be.

    Per attribute the quantiles at ``(i + 1/2) / rows``, in an order of its own: the pairs are
    independent, the one-way tables have no sampling error.
    """
    at = (np.arange(rows) + 0.5) / rows
    out = np.empty((len(shares), rows), dtype=np.int64)
    for a, share in enumerate(shares):
        edges = np.cumsum(share)
        cells = np.searchsorted(edges / edges[-1], at, side="right").astype(np.int64)
        out[a] = np.minimum(cells, len(share) - 1)[_shuffled(rows, draws)]
    return out


def _shuffled(rows: int, draws: Draws) -> Integers:
    """A uniform order: 53-bit keys sorted, which hardly ever collide."""
    return np.argsort(draws.uniforms(rows), kind="stable").astype(np.int64)
