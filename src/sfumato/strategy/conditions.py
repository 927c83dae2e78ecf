# SPDX-License-Identifier: Apache-2.0
"""Many conditions over more kinds of cells than can be listed: weights that are proved.

``matrix.py`` needs all different columns of the queries. Conditions spread over many attributes
have too many; here the sensitivity is bounded without them. With x the truth values of the
conditions at a cell and weights g > 0 such that ``L = g'x <= 1`` at every cell
(``workload/clauses.py``), measure

    M = (I - c u u') diag(sqrt g) F,   u = sqrt(g / G),  G = sum_q g_q,  1 - (1 - c)^2 = t,

so that ``|M e|^2 = L - t L^2 / G``: for 0/1 values ``x'diag(g)x = g'x``. As a function of L in
[0, 1] that is at most ``1 - t / G`` (t <= G / 2), else ``G / 4t``. Measuring the conditions as they
are is t = 0; t > 0 takes away what all of them have in common. The error of query q is
``1 / g_q + t / ((1 - t) G)`` (Sherman, Morrison). Two different cells are at most
``L + L' <= 2`` apart, squared: for replaced records t = 0 is best, which is the strategy ``plain``.

The weights are tried in two ways, and what has less error after the proof is taken:

* in proportion to the weights of the queries (for the largest error: to their squares);
* ``min sum_q w_q^2 / g_q`` subject to ``g'x <= 1`` at some cells, which has the form of
  ``solve/nuclear.py`` (any v >= 0 bounds it by ``(sum_q w_q sqrt((X'v)_q))^2 / sum v``). Cells
  where g'x > 1 join (Kelley 1960, "The cutting-plane method for solving convex programs"). The best
  weights make many cells equally heavy, which is hard to prove; hence the first way.

Either g is divided by the proved bound. ``lower_bound`` is below the error of every strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import must_stop
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root, certified_optimum, root_diagonal
from sfumato.strategy.base import Block, Norm
from sfumato.strategy.matrix import Mixed
from sfumato.strategy.measured import Mixture
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Objective, SearchProgress
from sfumato.workload.clauses import (
    Clauses,
    climbed,
    heaviest,
    maximum_overlap,
    read_clauses,
    starting_cells,
)
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Conditions",
    "Lower",
    "Proved",
    "common",
    "conditions",
    "first_cells",
    "joined",
    "lower_bound",
    "too_long",
]


# Measured conditions whose columns cannot be listed


@dataclass(frozen=True, eq=False)
class Proved(Mixture):
    """``norms`` bounds ``|M_j|_1`` and ``|M_j|_2^2`` of every column.

    ``farthest`` bounds the squared distance of two columns. All of the base are conditions, so
    that the coefficients mixed are 0 and 1; ``columns`` and ``sizes`` say nothing here.

    ``Mixture`` keeps all different columns and reads its sensitivity off them. Where these are too
    many, a proof takes their place: the integers C are the same kind of matrix
    and the vault measures ``C F_B h`` in the same way.
    """

    norms: tuple[float, float]
    farthest: float

    def maximum_column(self, p: int) -> float:
        """The proved bound on ``|M_j|_p^p`` of every column."""
        return self.norms[p - 1]

    def _bounded_chunks(self) -> Iterator[tuple[Array, Array]]:
        raise TooLarge(
            f"the different columns of {self.name} are too many to list; only bounds on them are "
            "known"
        )

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Sums of the entries of one sign: as if all such conditions held at one cell."""
        numbers = self.entries.astype(np.float64)
        return np.minimum(numbers, 0.0).sum(axis=1), np.maximum(numbers, 0.0).sum(axis=1)

    @cached_property
    def greatest(self) -> float:
        """A bound on every absolute coefficient."""
        low, high = self.coefficient_bounds()
        return float(max(-low.min(), high.max())) * ROUND_UP

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether no entry is below zero, so that no coefficient is."""
        return bool((self.entries >= 0).all())


@dataclass(frozen=True, eq=False)
class Conditions(Mixed):
    """One proved mixture of k conditions, R its inverse.

    ``plain`` measures the same conditions with the same weights, nothing taken away: for replaced
    records.
    """

    _algorithm: ClassVar[str] = "conditions"

    plain: Conditions | None = field(default=None, kw_only=True, repr=False)

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The proved bound on the columns: never too small."""
        return SensitivityBound(
            self._proved.maximum_column(norm) * scales[0] * ROUND_UP, is_exact=False
        )

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """The proved bound on the distance of two columns."""
        if norm != 2:
            return super()._diameters(norm)
        farthest = min(self._proved.farthest, 4 * self._proved.maximum_column(2))
        return (farthest * ROUND_UP,)

    @cached_property
    def _proved(self) -> Proved:
        term = self.blocks[0].term
        if not isinstance(term, Proved):
            raise TypeError("the block of conditions is a mixture with proved bounds")
        return term


# Cells as truth values, and cutting planes over them


def first_cells(clauses: Clauses, weights: Array, starts: int) -> Mask:
    """Truth values at cells where some clause holds, and at cells climbed from some of them.

    Optima over all cells are found on few of them: the cells at which the strategy found so far is
    most sensitive join (Kelley 1960, "The cutting-plane method for solving convex programs").
    """
    every = starting_cells(clauses, max(starts, clauses.clauses))
    some = every if len(every) <= starts else starting_cells(clauses, starts, 1)
    cells = np.concatenate([clauses.at(every), climbed(clauses, weights, some)])
    return np.unique(clauses.holds(cells), axis=0)


def common(cells: Mask, weights: Array) -> Callable[[Array], Array]:
    """``v -> v_i sum_q x_iq w_q / sqrt((X'v)_q)``: what ``solve/nuclear.py`` asks of a problem."""
    truth = cells.astype(np.float64)

    def evaluate(v: Array) -> Array:
        return np.asarray(v * (truth @ (weights / np.sqrt(truth.T @ v))), dtype=np.float64)

    return evaluate


def too_long(holds: Mask, form: Array, longer: float) -> tuple[Mask, float]:
    """The different columns above 1, the longest first, and how long that is.

    The length of x is ``x'form x``, or ``form'x`` for a vector.
    """
    truth = np.unique(holds, axis=0).astype(np.float64)
    values = truth @ form if form.ndim == 1 else np.einsum("ij,ij->i", truth @ form, truth)
    order = np.argsort(-values, kind="stable")[: LIMITS.joined_cells]
    return truth[order[values[order] > 1 + longer]].astype(np.bool_), float(values.max())


def joined(cells: Mask, v: Array, candidates: Mask) -> tuple[Mask, Array]:
    """The cells with the new candidates, and first guesses of their weights."""
    present = {row.tobytes() for row in cells}
    new = candidates[[row.tobytes() not in present for row in candidates]]
    return np.concatenate([cells, new]), np.append(v, np.full(len(new), float(v.mean())))


# Lower bounds on the error of every strategy


class Lower(NamedTuple):
    """Below the error of every strategy, one record added or removed, and replaced; 0 if unknown.

    Errors are sums of weighted squares, or the largest of them.
    """

    added: float
    replaced: float


def lower_bound(
    clauses: Clauses,
    weights: Array,
    objective: Objective,
    cells: Mask,
    progress: SearchProgress | None,
) -> Lower:
    """Lower bounds from truth values at cells, and at more cells that the search meets.

    Only conditions that were read count: of others it is not known where they hold.

    A lower bound for some of the cells is one for all of them, as fewer cells only relax what a
    strategy must obey; and one for some of the conditions is one for all, as the others only add to
    the error. The optimum is solved on the cells known so far (``solve/nuclear.py``), the cells
    whose columns came out longest join, and so on. The search for cells proves nothing and need
    not: each one is a cell of the domain, whose truth values are known.

    Replaced records: for weights u of sum 1 on cells, pairs of cells weighted by the products have
    the Laplacian ``L = diag(u) - u u'`` and the sum ``(1 - sum u^2) / 2``. A strategy of diameter 1
    obeys ``tr(X L) <= (1 - sum u^2) / 2``, so that ``(tr (F L F')^1/2)^2`` over that is below every
    error, by the proof of ``solve/nuclear.py`` with L in the place of D. A good u is the one of the
    bound above.
    """
    read = clauses.is_read
    if not read.any():
        return Lower(0.0, 0.0)
    read_weights, lower = weights[read], 0.0
    rounds = (
        LIMITS.bounded_condition_rounds // len(read_weights)
        if len(read_weights) <= LIMITS.bounded_conditions
        else 0
    )
    for turn in range(min(LIMITS.condition_rounds, rounds)):
        truth = _columns(cells, read)
        root = best_root(
            np.ascontiguousarray(truth.T.astype(np.int8)),
            read_weights,
            objective,
            LIMITS.condition_bound_tolerance,
        )
        lower = max(lower, root.lower)
        form = np.zeros((clauses.count, clauses.count))
        form[np.ix_(read, read)] = root.mixing.T @ root.mixing
        reached = climbed(
            clauses, form, starting_cells(clauses, LIMITS.condition_bound_starts, turn)
        )
        violating, longest = too_long(clauses.holds(reached), form, LIMITS.condition_excess)
        if progress is not None:
            progress(len(cells), longest - 1)
        if not len(violating) or must_stop():
            break
        cells, _ = joined(cells, np.ones(len(cells)), violating)
    divisor = len(read_weights) if objective == "max" else 1  # a maximum is no less than a mean
    mean = _of_the_mean(_columns(cells, read), read_weights)
    return Lower(max(lower, mean.added / divisor), mean.replaced / divisor)


def _columns(cells: Mask, read: Mask) -> Mask:
    """The different columns that are not 0."""
    truth = cells[:, read]
    return np.unique(truth[truth.any(axis=1)], axis=0)


def _of_the_mean(truth: Mask, weights: Array) -> Lower:
    """Bounds on the sum of weighted squares, by weights on these cells."""
    matrix = truth.T.astype(np.float64) * weights[:, None]
    roots = root_diagonal(matrix)
    if len(weights) > LIMITS.bounded_conditions:  # the weights of a simpler problem
        v = certified_optimum(common(truth, weights), len(truth), LIMITS.condition_excess).v
    else:
        v = certified_optimum(roots, len(truth), LIMITS.condition_bound_tolerance).v
    added = float(roots(v).sum()) ** 2 / float(v.sum())
    u = v / float(v.sum())
    mean = matrix @ u
    values = np.linalg.eigvalsh((matrix * u) @ matrix.T - np.outer(mean, mean))
    positive = values[values > values[-1] * len(values) * EIGEN_ROUNDING]
    pairs = (1 - float(u @ u)) / 2
    replaced = float(np.sqrt(positive).sum()) ** 2 / pairs if pairs > 0 else 0.0
    return Lower(added, replaced)


ENTRY_ROUNDING = 0.51  # of an entry to integers: a half, and what floats of 30 bits are off


def conditions(
    workload: Workload, objective: Objective = "rmse", progress: SearchProgress | None = None
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
    count = sum(t.rows for t in terms)
    if count > LIMITS.weighted_conditions:
        raise TooLarge(
            f"{count:,} conditions are too many to be weighted together, at most "
            f"{LIMITS.weighted_conditions:,} are: ask for them in several plans"
        )
    clauses = read_clauses(workload.domain, [c for t in terms for c in t.as_conditions()])
    if not clauses.count:
        raise PlanError("no condition holds for any record: there is nothing to measure")
    weights = _weights(clauses, terms, objective)
    options = [_proportional(clauses, terms, weights, objective)]
    cells = first_cells(clauses, weights, LIMITS.condition_starts)
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


def _weights(clauses: Clauses, terms: tuple[Term, ...], objective: Objective) -> Array:
    """Of the different conditions: the root of summed squared weights, or the greatest weight."""
    squares = np.concatenate([np.full(t.rows, t.weight**2) for t in terms])
    out = np.zeros(clauses.count)
    is_placed = clauses.places >= 0
    join = np.maximum if objective == "max" else np.add
    join.at(out, clauses.places[is_placed], squares[is_placed])
    return np.sqrt(out)


def _proportional(
    clauses: Clauses, terms: tuple[Term, ...], weights: Array, objective: Objective
) -> Array:
    """g in proportion to the weights of the queries, or to their squares; proved."""
    shares = weights**2 if objective == "max" else weights
    shares = np.maximum(shares / float(shares.max()), LIMITS.condition_weight_minimum)
    is_each_once = (
        len(np.unique(clauses.places[clauses.places >= 0])) == (clauses.places >= 0).sum()
    )
    if is_each_once and bool((shares == 1).all()):
        upper = maximum_overlap(terms).upper  # whole numbers are easier to prove; and remembered
    else:
        upper = heaviest(clauses, shares, tolerance=LIMITS.condition_excess).upper
    return np.asarray(shares / (upper * ROUND_UP), dtype=np.float64)


def _best(
    clauses: Clauses, weights: Array, cells: Mask, progress: SearchProgress | None
) -> tuple[Array, Mask]:
    """The weights of least error at these cells, proved at all cells; and the cells met."""
    start = np.ones(len(cells))
    upper, shares = np.inf, weights
    for attempt in range(LIMITS.condition_proofs):
        for turn in range(LIMITS.condition_rounds):
            best = certified_optimum(
                common(cells, weights), len(cells), LIMITS.condition_excess, start=start
            )
            start = best.v
            shares = weights / np.sqrt(cells.T.astype(np.float64) @ best.v) / best.scale
            shares = np.maximum(shares, LIMITS.condition_weight_minimum * float(shares.max()))
            number = attempt * LIMITS.condition_rounds + turn
            reached = climbed(
                clauses, shares, starting_cells(clauses, LIMITS.condition_starts, number)
            )
            violating, longest = too_long(clauses.holds(reached), shares, LIMITS.condition_excess)
            if progress is not None:
                progress(len(cells), longest - 1)
            if not len(violating) or must_stop():
                break
            cells, start = joined(cells, start, violating)
        proof = heaviest(
            clauses,
            shares,
            WORKLOAD_LIMITS.search_multiplications / LIMITS.brief_proofs,
            LIMITS.condition_excess,
        )
        upper = proof.upper
        is_loose = proof.upper > LIMITS.loose_proof * proof.reached
        if proof.reached <= 1 + 2 * LIMITS.condition_excess or is_loose or must_stop():
            break
        cells, start = joined(cells, start, proof.column[None])
    return np.asarray(shares / (upper * ROUND_UP), dtype=np.float64), cells


class _Centre(NamedTuple):
    """t, the greatest ``L - t L^2 / G`` for L in [0, 1], and the error of both together."""

    part: float
    longest: float
    error: float


def _centre(shares: Array, weights: Array, objective: Objective) -> _Centre:
    """The t of least error, and what it comes to."""
    total = float(shares.sum())
    t = np.arange(LIMITS.condition_centres) / LIMITS.condition_centres
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
        (Block(mixture, 1 / sqrt(mixture.maximum_column(2))),),
        tuple(np.split(clauses.places, ends)),
        np.linalg.inv(mixture.entries.astype(np.float64)),
    )


def _mixture(workload: Workload, clauses: Clauses, shares: Array, centre: _Centre) -> Proved:
    """M in integers: rounding moves a column by ``|E x|``, half a unit per entry that is not 0."""
    k = clauses.count
    unit = np.sqrt(shares / shares.sum())
    matrix = (np.eye(k) - (1 - sqrt(1 - centre.part)) * np.outer(unit, unit)) * np.sqrt(shares)
    scale = 2.0**LIMITS.condition_bits / float(np.abs(matrix).max())
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
    """The terms and queries where each different condition occurs first, in their order."""
    labels = np.where(places >= 0, places, len(places))
    first = np.unique(labels, return_index=True)[1]
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
