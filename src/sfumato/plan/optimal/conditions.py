# SPDX-License-Identifier: Apache-2.0
"""Many conditions over more kinds of cells than can be listed: weights that are proved.

``dense.py`` needs all different columns of the queries. Conditions spread over many attributes have
too many; here the sensitivity is bounded without them. With x the truth values of the conditions
at a cell and weights g > 0 such that ``L = g'x <= 1`` at every cell (``workload/heaviest.py``),
measure

    M = (I - c u u') diag(sqrt g) F,   u = sqrt(g / G),  G = sum_q g_q,  1 - (1 - c)^2 = t,

so that ``|M e|^2 = L - t L^2 / G``: for 0/1 values ``x'diag(g)x = g'x``. As a function of L in
[0, 1] that is at most ``1 - t / G`` (t <= G / 2), else ``G / 4t``. Measuring the conditions as
asked is t = 0; t > 0 takes away what all of them have in common. The error of query q is
``1 / g_q + t / ((1 - t) G)`` (Sherman, Morrison). Two different cells are at most
``L + L' <= 2`` apart, squared: for replaced records t = 0 is best.

The weights are tried in two ways, and what has less error after the proof is taken:

* in proportion to the weights of the queries (for the largest error: to their squares);
* ``min sum_q w_q^2 / g_q`` subject to ``g'x <= 1`` at the cells known so far, which has the form of
  ``optimum.py`` (any v >= 0 bounds it by ``(sum_q w_q sqrt((X'v)_q))^2 / sum v``). Cells where
  g'x > 1 join (Kelley 1960, "The cutting-plane method for solving convex programs"). The best
  weights make many cells equally heavy, which is hard to prove; hence the first way.

Either g is divided by the proved bound. The certificate is that of ``condition_bounds.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import must_stop
from sfumato.plan.optimal.condition_bounds import lower_bound
from sfumato.plan.optimal.known_cells import common, first_cells, joined, too_long
from sfumato.plan.optimal.proved import Conditions, Proved
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.strategy import Block, Objective
from sfumato.workload.clauses import Clauses, read_clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.heaviest import EFFORT, heaviest, held_together
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = ["conditions"]

MOST = 2048  # different conditions: the reconstruction is a matrix of them
ROUNDS = 12  # of cells that join
PROOFS = 3  # of the best weights; the last one counts
BRIEFLY = EFFORT / 12  # for a proof of the best weights
LOOSE = 1.1  # a bound that is this far above the heaviest cell will not be close
LONGER = 1e-3  # how much too heavy a cell is that joins
STARTS = 256  # cells from which each search climbs
LEAST = 1e-9  # weights g below this part of the greatest are raised: rounding must not lose them
ENTRY_BITS = 30
ENTRY_ROUNDING = 0.51  # of an entry to integers: a half, and what floats of 30 bits are off
CENTRES = 1000  # values of t that are tried

Progress = Callable[[int, float], None]


def conditions(
    workload: Workload, objective: Objective = "rmse", progress: Progress | None = None
) -> Conditions:
    """The best weights found for conditions of any shape, with a lower bound on every strategy.

    ``bound`` is below ``weighted_error(objective)`` of all of them.
    ``progress`` hears of the number of cells and how far their longest column is above 1.
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    terms = workload.terms
    if not all(t.as_conditions() for t in terms):
        raise PlanError("a group is not given by conditions; plan such groups by themselves")
    asked = sum(t.rows for t in terms)
    if asked > MOST:
        raise TooLarge(
            f"{asked:,} conditions are too many to be weighted together, at most {MOST:,} are: ask "
            "for them in several plans"
        )
    clauses = read_clauses(workload.domain, [c for t in terms for c in t.as_conditions()])
    if not clauses.count:
        raise PlanError("no condition holds for any record: there is nothing to measure")
    weights = _weights(clauses, terms, objective)
    options = [_proportional(clauses, terms, weights, objective)]
    cells = first_cells(clauses, weights, STARTS)
    if objective == "rmse" and not must_stop():
        best, cells = _best(clauses, weights, cells, progress)
        options.append(best)
    shares = min(options, key=lambda g: _centre(g, weights, objective).error)
    lower = lower_bound(clauses, weights, objective, cells, progress)
    made = _strategy(workload, clauses, shares, _centre(shares, weights, objective))
    plain = _strategy(workload, clauses, shares, _Centre(0.0, 1.0, 0.0))
    return replace(
        made,
        plain=plain,
        objective=objective,
        bound=lower.added or None,
        replace_one_bound=lower.replaced or None,
    )


def _weights(clauses: Clauses, terms: tuple[Term, ...], objective: str) -> Array:
    """Of the different conditions: squares add up for the mean, the greatest counts for the max."""
    asked = np.concatenate([np.full(t.rows, t.weight**2) for t in terms])
    out = np.zeros(clauses.count)
    kept = clauses.places >= 0
    join = np.maximum if objective == "max" else np.add
    join.at(out, clauses.places[kept], asked[kept])
    return np.sqrt(out)


def _proportional(
    clauses: Clauses, terms: tuple[Term, ...], weights: Array, objective: str
) -> Array:
    """g in proportion to the weights of the queries, or to their squares; proved."""
    shares = weights**2 if objective == "max" else weights
    shares = np.maximum(shares / float(shares.max()), LEAST)
    is_each_once = (
        len(np.unique(clauses.places[clauses.places >= 0])) == (clauses.places >= 0).sum()
    )
    if is_each_once and bool((shares == 1).all()):
        upper = held_together(terms).upper  # whole numbers are easier to prove; and remembered
    else:
        upper = heaviest(clauses, shares, tolerance=LONGER).upper
    return np.asarray(shares / (upper * ROUND_UP), dtype=np.float64)


def _best(
    clauses: Clauses, weights: Array, cells: Mask, progress: Progress | None
) -> tuple[Array, Mask]:
    """The weights of the least error at the known cells, proved at all; and the cells met."""
    start = np.ones(len(cells))
    upper, shares = np.inf, weights
    for attempt in range(PROOFS):
        for turn in range(ROUNDS):
            best = certified_optimum(common(cells, weights), len(cells), LONGER, start=start)
            start = best.v
            shares = weights / np.sqrt(cells.T.astype(np.float64) @ best.v) / best.scale
            shares = np.maximum(shares, LEAST * float(shares.max()))
            number = attempt * ROUNDS + turn
            reached = climbed(clauses, shares, starting_cells(clauses, STARTS, number))
            found, longest = too_long(clauses.holds(reached), shares, LONGER)
            if progress is not None:
                progress(len(cells), longest - 1)
            if not len(found) or must_stop():
                break
            cells, start = joined(cells, start, found)
        proof = heaviest(clauses, shares, BRIEFLY, LONGER)
        upper = proof.upper
        is_loose = proof.upper > LOOSE * proof.reached
        if proof.reached <= 1 + 2 * LONGER or is_loose or must_stop():
            break
        cells, start = joined(cells, start, proof.column[None])
    return np.asarray(shares / (upper * ROUND_UP), dtype=np.float64), cells


class _Centre(NamedTuple):
    """t, the greatest ``L - t L^2 / G`` for L in [0, 1], and the error of both together."""

    part: float
    longest: float
    error: float


def _centre(shares: Array, weights: Array, objective: str) -> _Centre:
    """The t of the least error."""
    total = float(shares.sum())
    t = np.arange(CENTRES) / CENTRES
    more = t / ((1 - t) * total)
    longest = np.where(t <= total / 2, 1 - t / total, total / np.maximum(4 * t, 1e-300))
    if objective == "max":
        errors = (weights**2 / shares + np.multiply.outer(more, weights**2)).max(axis=1)
    else:
        errors = float((weights**2 / shares).sum()) + more * float((weights**2).sum())
    best = int((errors * longest).argmin())
    return _Centre(float(t[best]), float(longest[best]), float(errors[best] * longest[best]))


def _strategy(workload: Workload, clauses: Clauses, shares: Array, centre: _Centre) -> Conditions:
    mixture = _mixture(workload, clauses, shares, centre)
    ends = np.cumsum([t.rows for t in workload.terms])[:-1]
    return Conditions(
        "conditions",
        "gaussian",
        workload,
        (Block(mixture, 1 / sqrt(mixture.greatest_column(2))),),
        tuple(np.split(clauses.places, ends)),
        np.linalg.inv(mixture.entries.astype(np.float64)),
    )


def _mixture(workload: Workload, clauses: Clauses, shares: Array, centre: _Centre) -> Proved:
    """M in integers: rounding moves a column by ``|E x|``, half a unit per entry that is not 0."""
    k = clauses.count
    unit = np.sqrt(shares / shares.sum())
    matrix = (np.eye(k) - (1 - sqrt(1 - centre.part)) * np.outer(unit, unit)) * np.sqrt(shares)
    scale = 2.0**ENTRY_BITS / float(np.abs(matrix).max())
    entries = np.rint(matrix * scale).astype(np.int64)
    off = ENTRY_ROUNDING * (k**1.5 if centre.part else sqrt(k))
    squared = (scale * sqrt(centre.longest) + off) ** 2 * ROUND_UP
    terms, picked = _firsts(workload, clauses.places)
    return Proved(
        workload.domain,
        f"{'contrasts of ' if centre.part else ''}{k:,} weighted conditions",
        1.0,
        terms,
        picked,
        entries,
        np.zeros((k, 1), dtype=np.int8),
        np.zeros(1),
        norms=(sqrt(k * squared) * ROUND_UP, squared),
        farthest=(scale * sqrt(2) + off) ** 2 * ROUND_UP,
    )


def _firsts(workload: Workload, places: Integers) -> tuple[tuple[Term, ...], tuple[Integers, ...]]:
    """Where each different condition is asked first: in the order of their numbers."""
    kept = np.where(places >= 0, places, len(places))
    first = np.unique(kept, return_index=True)[1]
    is_first = np.zeros(len(places), dtype=np.bool_)
    is_first[first] = places[first] >= 0
    terms: list[Term] = []
    picked: list[Integers] = []
    start = 0
    for term in workload.terms:
        rows = np.flatnonzero(is_first[start : start + term.rows])
        start += term.rows
        if len(rows):
            terms.append(term)
            picked.append(rows.astype(np.int64))
    return tuple(terms), tuple(picked)
