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
``L + L' <= 2`` apart, squared.

* The weights: ``min sum_q w_q^2 / g_q`` subject to ``g'x <= 1`` at the cells known so far, which
  has the form of ``optimum.py`` (any v >= 0 bounds it by ``(sum_q w_q sqrt((X'v)_q))^2 / sum v``).
  Cells where g'x > 1 join (Kelley 1960, "The cutting-plane method for solving convex programs").
  In the end g is divided by the proved bound. For the largest error g ~ w^2, and t is chosen last.
* The certificate: a lower bound on every strategy for some of the cells is one for all of them, as
  fewer cells only relax the constraints. The optimum is solved on the known cells, those whose
  columns came out longest join, and so on (``roots.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import time_is_up
from sfumato.plan.optimal.proved import Conditions, Proved
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.roots import best_root, root_diagonal
from sfumato.plan.strategy import Block, Objective
from sfumato.workload.clauses import Clauses, read_clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.heaviest import heaviest
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Predicates
from sfumato.workload.workload import Workload

__all__ = ["conditions"]

MOST = 2048  # different conditions: the reconstruction is a matrix of them
SOLVED = 512  # different conditions up to which the bound is driven to the optimum
ROUNDS = 12  # of cells that join
PROOFS = 3  # of the weights; the last one counts
LONGER = 1e-3  # how much too long a column is that joins
JOINED = 256  # columns that join in one round
STARTS = 256  # cells from which each search climbs
ENTRY_BITS = 30
CENTRES = 1000  # values of t that are tried

Progress = Callable[[int, float], None]


def conditions(
    workload: Workload, objective: Objective = "rmse", progress: Progress | None = None
) -> Conditions:
    """The best weights found for conditions of any shape, with a lower bound on every strategy.

    ``bound`` is below ``weighted_error`` ("rmse") or ``weighted_largest`` ("max") of all of them.
    ``progress`` hears of the number of cells and how far their longest column is above 1.
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    terms = [t for t in workload.terms if isinstance(t, Predicates)]
    if len(terms) < len(workload.terms):
        raise PlanError("a group is not given by conditions; plan such groups by themselves")
    clauses = read_clauses(workload.domain, [c for t in terms for c in t.conditions])
    if not clauses.count:
        raise PlanError("no condition holds for any record: there is nothing to measure")
    if clauses.count > MOST:
        raise TooLarge(
            f"{clauses.count:,} different conditions; at most {MOST:,} are weighted together: ask "
            "for them in several groups"
        )
    weights = _weights(clauses, terms, objective)
    cells = _first_cells(clauses, weights)
    shares, cells = _shares(clauses, weights, objective, cells, progress)
    lower = _lower_bound(clauses, weights, objective, cells, progress)
    centre, longest = _centre(shares, weights, objective)
    mixture = _mixture(workload, clauses, shares, centre, longest)
    inverse = np.linalg.inv(mixture.entries.astype(np.float64))
    ends = np.cumsum([t.rows for t in terms])[:-1]
    return Conditions(
        "conditions",
        "gaussian",
        workload,
        (Block(mixture, 1 / sqrt(mixture.greatest_column(2))),),
        tuple(np.split(clauses.places, ends)),
        np.asarray(inverse, dtype=np.float64),
        bound=lower,
        objective=objective,
    )


def _weights(clauses: Clauses, terms: list[Predicates], objective: str) -> Array:
    """Of the different conditions: squares add up for the mean, the greatest counts for the max."""
    asked = np.concatenate([np.full(t.rows, t.weight**2) for t in terms])
    out = np.zeros(clauses.count)
    kept = clauses.places >= 0
    join = np.maximum if objective == "max" else np.add
    join.at(out, clauses.places[kept], asked[kept])
    return np.sqrt(out)


def _first_cells(clauses: Clauses, weights: Array) -> Mask:
    """Cells where every clause holds, and cells climbed from some of them."""
    every = starting_cells(clauses, max(STARTS, clauses.clauses))
    some = every if len(every) <= STARTS else starting_cells(clauses, STARTS, 1)
    found = np.concatenate([clauses.at(every), climbed(clauses, weights, some)])
    return np.unique(clauses.holds(found), axis=0)


def _shares(
    clauses: Clauses, weights: Array, objective: str, cells: Mask, progress: Progress | None
) -> tuple[Array, Mask]:
    """Weights g with ``g'x <= 1`` at all cells, proved; and the cells that were met."""
    if objective == "max":
        proof = heaviest(clauses, weights**2, tolerance=LONGER)
        return weights**2 / (proof.upper * ROUND_UP), _with(cells, proof.column[None])
    start = np.ones(len(cells))
    upper, shares = np.inf, weights
    for attempt in range(PROOFS):
        for turn in range(ROUNDS):
            best = certified_optimum(_common(cells, weights), len(cells), LONGER, start=start)
            shares, start = _diagonal(cells, weights, best.v) / best.scale, best.v
            number = attempt * ROUNDS + turn
            reached = climbed(clauses, shares, starting_cells(clauses, STARTS, number))
            found, longest = _too_long(clauses.holds(reached), shares)
            if progress is not None:
                progress(len(cells), longest - 1)
            if not len(found) or time_is_up():
                break
            cells, start = _joined(cells, start, found)
        proof = heaviest(clauses, shares, tolerance=LONGER)
        upper = proof.upper
        if proof.reached <= 1 + 2 * LONGER or time_is_up() or attempt == PROOFS - 1:
            break
        cells, start = _joined(cells, start, proof.column[None])
    return shares / (upper * ROUND_UP), cells


def _common(cells: Mask, weights: Array) -> Callable[[Array], Array]:
    """``v -> v_i sum_q x_iq w_q / sqrt((X'v)_q)``: what ``optimum.py`` asks of a problem."""
    truth = cells.astype(np.float64)

    def evaluate(v: Array) -> Array:
        return np.asarray(v * (truth @ (weights / np.sqrt(truth.T @ v))), dtype=np.float64)

    return evaluate


def _diagonal(cells: Mask, weights: Array, v: Array) -> Array:
    return np.asarray(weights / np.sqrt(cells.T.astype(np.float64) @ v), dtype=np.float64)


def _too_long(holds: Mask, form: Array) -> tuple[Mask, float]:
    """The different columns above 1, the longest first, and how long that is."""
    truth = np.unique(holds, axis=0).astype(np.float64)
    values = truth @ form if form.ndim == 1 else np.einsum("ij,ij->i", truth @ form, truth)
    order = np.argsort(-values, kind="stable")[:JOINED]
    return truth[order[values[order] > 1 + LONGER]].astype(np.bool_), float(values.max())


def _joined(cells: Mask, v: Array, found: Mask) -> tuple[Mask, Array]:
    """More cells, with first guesses of their weights."""
    new = found[~_inside(found, cells)]
    return np.concatenate([cells, new]), np.append(v, np.full(len(new), float(v.mean())))


def _with(cells: Mask, found: Mask) -> Mask:
    return _joined(cells, np.ones(len(cells)), found)[0]


def _inside(found: Mask, cells: Mask) -> Mask:
    known = {row.tobytes() for row in cells}
    return np.array([row.tobytes() in known for row in found], dtype=np.bool_)


def _lower_bound(
    clauses: Clauses, weights: Array, objective: str, cells: Mask, progress: Progress | None
) -> float:
    """Below the error of every strategy: the optimum on some cells, chosen where it matters."""
    k = clauses.count
    if k > SOLVED:
        best = certified_optimum(_common(cells, weights), len(cells), LONGER)
        roots = root_diagonal(cells.T.astype(np.float64) * weights[:, None])(best.v)
        return float(roots.sum()) ** 2 / float(best.v.sum()) / (k if objective == "max" else 1)
    lower = 0.0
    for turn in range(max(2, ROUNDS * 128 // max(128, k))):
        used = cells[cells.any(axis=1)]
        root = best_root(np.ascontiguousarray(used.T.astype(np.int8)), weights, objective, 2e-3)
        lower = max(lower, root.lower)
        reached = climbed(clauses, root.mixing.T @ root.mixing, starting_cells(clauses, 64, turn))
        found, longest = _too_long(clauses.holds(reached), root.mixing.T @ root.mixing)
        if progress is not None:
            progress(len(cells), longest - 1)
        if not len(found) or time_is_up():
            break
        cells = _with(cells, found)
    return lower


class _Centre(NamedTuple):
    part: float
    longest: float


def _centre(shares: Array, weights: Array, objective: str) -> _Centre:
    """The t of the least error, and the greatest ``L - t L^2 / G`` for L in [0, 1]."""
    total = float(shares.sum())
    t = np.arange(CENTRES) / CENTRES
    more = t / ((1 - t) * total)
    longest = np.where(t <= total / 2, 1 - t / total, total / (4 * np.maximum(t, 0.25)))
    if objective == "max":
        errors = (weights**2 / shares + np.multiply.outer(more, weights**2)).max(axis=1)
    else:
        errors = float((weights**2 / shares).sum()) + more * float((weights**2).sum())
    best = int((errors * longest).argmin())
    return _Centre(float(t[best]), float(longest[best]))


def _mixture(
    workload: Workload, clauses: Clauses, shares: Array, centre: float, longest: float
) -> Proved:
    """M in integers: rounding moves a column by at most ``|E x|``, half a unit per condition."""
    k = clauses.count
    unit = np.sqrt(shares / shares.sum())
    matrix = (np.eye(k) - (1 - sqrt(1 - centre)) * np.outer(unit, unit)) * np.sqrt(shares)
    scale = 2.0**ENTRY_BITS / float(np.abs(matrix).max())
    entries = np.rint(matrix * scale).astype(np.int64)
    off = 0.5 * k**1.5 * ROUND_UP
    squared = (scale * sqrt(longest) + off) ** 2 * ROUND_UP
    terms, picked = _firsts(workload, clauses.places)
    return Proved(
        workload.domain,
        f"weighted contrasts of {k:,} conditions" if centre else f"{k:,} weighted conditions",
        1.0,
        terms,
        picked,
        entries,
        np.zeros((k, 1), dtype=np.int8),
        np.zeros(1),
        norms=(sqrt(k * squared) * ROUND_UP, squared),
        farthest=(scale * sqrt(2) + off) ** 2 * ROUND_UP,
    )


def _firsts(
    workload: Workload, places: Integers
) -> tuple[tuple[Predicates, ...], tuple[Integers, ...]]:
    """Where each different condition is asked first: in the order of their numbers."""
    kept = np.where(places >= 0, places, len(places))
    first = np.unique(kept, return_index=True)[1]
    is_first = np.zeros(len(places), dtype=np.bool_)
    is_first[first] = places[first] >= 0
    terms: list[Predicates] = []
    picked: list[Integers] = []
    start = 0
    for term in workload.terms:
        rows = np.flatnonzero(is_first[start : start + term.rows])
        start += term.rows
        if len(rows) and isinstance(term, Predicates):
            terms.append(term)
            picked.append(rows.astype(np.int64))
    return tuple(terms), tuple(picked)
