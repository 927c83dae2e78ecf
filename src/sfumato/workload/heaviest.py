# SPDX-License-Identifier: Apache-2.0
"""The greatest total weight of conditions that hold at once, over more cells than can be listed.

``max over cells of sum_q s_q 1[q(cell)]`` for weights ``s_q >= 0``: with s = 1 the greatest column
of the conditions measured as asked. It is found by branch and bound, attribute after attribute:

1. A class of cells of an attribute that allows no clause more than another class is left out.
2. A partial choice is known by the clauses (``clauses.py``) that it leaves possible.
3. Upper bound of a partial choice: the attributes still open are put into clusters. A clause that
   holds is allowed in every cluster, so if its weight is split over the clusters, what can be
   reached is at most the sum over clusters of the heaviest combination of classes in each. The
   split is improved by subgradient steps; any split into parts of at least 0 is valid (this is
   the dual decomposition of Wainwright, Jaakkola, Willsky 2005, "MAP estimation via agreement on
   trees"). A condition of several clauses counts in full while one is possible.
4. Choices that cannot exceed the best cell known are dropped. Where too many are left, those of
   the least bounds are given up, and the greatest bound given up is part of the answer.

So the answer is an upper bound whatever the effort, and exact when nothing above the best cell was
given up. Bounds in 32-bit floats are sums of non-negative numbers and rounded up by more than they
can be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sfumato.workload.clauses import Clauses, read_clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.counting import Predicates
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["EFFORT", "Heaviest", "heaviest", "held_together"]

EFFORT = 2.0**35  # multiplications of the bounds of one search: some seconds
ROUGHLY = 128  # combinations of classes in a cluster of a first bound
COMBINED = 1024  # combinations of classes in a cluster of several attributes
BRANCHES = 16  # classes of attributes that are chosen at once, if they are small
COMPARED = 4096  # classes of an attribute that are compared with each other
HELD = 2**26  # truth values held at once
STEPS = 60  # of the subgradient
TRIED = 64  # partial choices of the greatest bounds that are completed, per attribute
STARTS = 256  # cells from which the first search climbs

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Heaviest:
    """``reached`` is the weight at a cell, where ``column`` holds; no cell exceeds ``upper``."""

    upper: float
    reached: float
    column: Mask

    @property
    def is_exact(self) -> bool:
        """Whether the cell is proved to be a heaviest one."""
        return self.upper <= self.reached


@lru_cache(maxsize=16)
def held_together(terms: tuple[Predicates, ...]) -> Heaviest:
    """The greatest number of conditions of the terms that hold at once; equal ones count all."""
    conditions = [c for t in terms for c in t.conditions]
    clauses = read_clauses(terms[0].domain, conditions)
    copies = np.bincount(clauses.places[clauses.places >= 0], minlength=clauses.count)
    return heaviest(clauses, copies.astype(np.float64), unit=1.0)


def heaviest(
    clauses: Clauses,
    weights: Array,
    effort: float = EFFORT,
    tolerance: float = 0.0,
    unit: float = 0.0,
) -> Heaviest:
    """``max over cells of sum_q weights_q 1[q(cell)]``: a cell, and a bound on all.

    Choices within ``1 + tolerance`` of the best cell are given up; all weights are multiples of
    ``unit``, if it is not 0.
    """
    if not clauses.count:
        return Heaviest(0.0, 0.0, np.zeros(0, dtype=np.bool_))
    masks = tuple(_undominated(m) for m in clauses.masks)
    small = Clauses(masks, clauses.first, clauses.places, clauses.is_complete)
    search = _Search(small, weights, tolerance, unit)
    search.try_cells(climbed(small, weights, starting_cells(small, STARTS)))
    search.run(effort)
    upper = max(search.reached, search.given_up)
    if not clauses.is_complete:  # conditions that were not read count wherever they may hold
        upper = float(np.nextafter(upper, np.inf))
    return Heaviest(upper, search.reached, search.column)


class _Search:
    """The best cell so far and the greatest bound that was given up."""

    def __init__(self, clauses: Clauses, weights: Array, tolerance: float, unit: float) -> None:
        self.clauses, self.weights = clauses, weights
        self.tolerance, self.unit = tolerance, unit
        self.reached, self.given_up, self.spent = -1.0, 0.0, 0.0
        self.column = np.zeros(clauses.count, dtype=np.bool_)
        sizes = np.diff(np.append(clauses.first, clauses.clauses))
        self.is_single = np.repeat(sizes == 1, sizes)
        self.clause_weights = np.where(self.is_single, np.repeat(weights, sizes), 0.0)
        # Sums of n non-negative floats of 24 bits err by at most n 2^-24 relatively; twice that,
        # and some more for the products and the rounding of the weights.
        self.round_up = 1 + (clauses.clauses + 16) * 2.0**-22

    def try_cells(self, possible: Mask) -> None:
        """Cells as rows of bits of clauses that hold."""
        holds = self.clauses.holds(possible)
        values = holds @ self.weights
        best = int(values.argmax())
        if float(values[best]) > self.reached:
            self.reached, self.column = float(values[best]), holds[best]

    def enough(self) -> float:
        """Bounds up to this are given up."""
        above = self.reached * (1 + self.tolerance)
        return max(above, self.reached + self.unit * (1 - 1e-3))

    def drop(self, bounds: Array) -> None:
        """Remember the greatest bound of what is given up; weights below a unit are nothing."""
        if len(bounds) and float(bounds.max()) > self.given_up:
            highest = float(bounds.max())
            if self.unit:
                highest = self.unit * np.floor(highest / self.unit + 1e-9)
            self.given_up = max(self.given_up, highest)

    def run(self, effort: float) -> None:
        """One attribute, or some small ones, after the other; few classes first."""
        order = sorted(self.clauses.masks, key=len)
        layers = _joined(order, BRANCHES)
        states = np.ones((1, self.clauses.clauses), dtype=np.bool_)
        for i, branch in enumerate(layers):
            bound = _Bound(self, layers[i + 1 :])
            cost = self.clauses.clauses * bound.combinations
            # Half of what is left, or an even part of it towards the end.
            share = effort / min(2, len(layers) - i)
            states = self._branched(states, branch, bound, max(1, int(share / cost)))
            effort -= self.spent
            if not len(states):
                return
        self.try_cells(states)

    def _branched(self, states: Mask, branch: Mask, bound: _Bound, limit: int) -> Mask:
        """All choices of one more attribute that may exceed the best cell, at most ``limit``."""
        step = max(1, HELD // branch.size)
        kept: list[Mask] = []
        values: list[Array] = []
        for first in range(0, len(states), step):
            some = states[first : first + step]
            moved = (some[:, None] & branch[None]).reshape(-1, branch.shape[1])
            simple = self.clauses.holds(moved) @ self.weights * self.round_up
            hopeful = simple > self.enough()
            self.drop(simple[~hopeful])
            moved = _distinct(moved[hopeful])
            rough = bound.rough(moved)
            best = np.argsort(-rough, kind="stable")
            stays = best[: int((rough > self.enough()).sum())]
            self.drop(rough[best[len(stays) :]])
            kept.append(moved[stays])
            values.append(rough[stays])
        return self._pruned(np.concatenate(kept), np.concatenate(values), bound, limit)

    def _pruned(self, states: Mask, rough: Array, bound: _Bound, limit: int) -> Mask:
        """The dearer bound, for as many as the effort allows."""
        order = np.argsort(-rough, kind="stable")
        self.drop(rough[order[limit:]])
        states = states[order[:limit]]
        if not len(states):
            return states
        self.spent = len(states) * self.clauses.clauses * bound.combinations
        values, best = bound.of(states)
        values = np.minimum(values, rough[order[:limit]])
        top = np.argsort(-values, kind="stable")[:TRIED]
        self.try_cells(bound.completed(states[top], best[top]))
        hopeful = values > self.enough()
        self.drop(values[~hopeful])
        return states[hopeful]


class _Bound:
    """What can be reached by the open attributes, in large clusters and in small ones."""

    def __init__(self, search: _Search, open_masks: Sequence[Mask]) -> None:
        self.search = search
        self.clusters = _joined(open_masks, COMBINED)
        self.parts = _split(self.clusters, search.clause_weights)
        self.small = _joined(open_masks, ROUGHLY)
        is_same = len(self.clusters) == len(self.small)
        self.small_parts = self.parts if is_same else _split(self.small, search.clause_weights)

    @property
    def combinations(self) -> int:
        """The cost of a bound, per clause."""
        return 1 + sum(len(m) for m in self.clusters)

    def rough(self, states: Mask) -> Array:
        """By small clusters."""
        return self._summed(states, self.small, self.small_parts)[0]

    def of(self, states: Mask) -> tuple[Array, npt.NDArray[np.int64]]:
        """By clusters, with the heaviest combination of every cluster."""
        return self._summed(states, self.clusters, self.parts)

    def _summed(
        self, states: Mask, masks: Sequence[Mask], parts: tuple[Floats, Floats]
    ) -> tuple[Array, npt.NDArray[np.int64]]:
        search, (settled, shares) = self.search, parts
        out = states.astype(np.float32) @ settled
        out = out.astype(np.float64) + self._several(states)
        best = np.zeros((len(states), len(masks)), dtype=np.int64)
        widest = max((len(m) for m in masks), default=1)
        step = max(1, HELD // (4 * max(widest, states.shape[1])))
        for first in range(0, len(states) if masks else 0, step):
            some = states[first : first + step].astype(np.float32)
            for i, mask in enumerate(masks):
                reached = some @ (mask * shares[i]).T
                at = reached.argmax(axis=1)
                best[first : first + step, i] = at
                out[first : first + step] += reached[np.arange(len(some)), at]
        return out * search.round_up, best

    def _several(self, states: Mask) -> Array:
        """Conditions of several clauses: in full while one of them is possible."""
        search = self.search
        if search.clauses.is_plain:
            return np.zeros(len(states))
        is_several = ~search.is_single[search.clauses.first]
        return np.asarray(
            search.clauses.holds(states)[:, is_several] @ search.weights[is_several],
            dtype=np.float64,
        )

    def completed(self, states: Mask, best: npt.NDArray[np.int64]) -> Mask:
        """Whole cells: every cluster takes its heaviest combination."""
        out = states.copy()
        for i, mask in enumerate(self.clusters):
            out &= mask[best[:, i]]
        return out


def _split(masks: Sequence[Mask], weights: Array) -> tuple[Floats, Floats]:
    """Weights of clauses that no mask restricts, and the parts of the others per mask.

    Parts begin in proportion to how rarely a mask allows the clause, and follow the subgradient of
    ``sum_i max_v (mask_i @ part_i)_v``.
    """
    restricts = np.array([~m.all(axis=0) for m in masks]).reshape(len(masks), len(weights))
    is_open = restricts.any(axis=0)
    settled = np.where(is_open, 0.0, weights).astype(np.float32)
    if not len(masks):
        return settled, np.zeros((0, len(weights)), dtype=np.float32)
    numbers = [m.astype(np.float32) for m in masks]
    rare = np.array([-np.log(np.maximum(n.mean(axis=0), 1e-6)) for n in numbers]) * restricts
    parts = rare / np.where(is_open, rare.sum(axis=0), 1.0) * weights
    step, count = 0.5 * float(weights.mean()), np.maximum(restricts.sum(axis=0), 1)
    best, least = parts, np.inf
    for i in range(STEPS):
        sums = [n @ p for n, p in zip(numbers, parts.astype(np.float32), strict=True)]
        total = sum(float(s.max()) for s in sums)
        if total < least:
            best, least = parts, total
        slope = np.array([n[s.argmax()] for n, s in zip(numbers, sums, strict=True)]) * restricts
        moved = parts - step / np.sqrt(i + 1) * (slope - slope.sum(axis=0) / count) * restricts
        parts = _scaled(np.maximum(moved, 0.0), parts, weights)
    # Float parts must not add up to less than the weight.
    return settled, (best * (1 + 2.0**-22)).astype(np.float32)


def _scaled(parts: Array, otherwise: Array, weights: Array) -> Array:
    """Non-negative parts that add up to the weights."""
    sums = parts.sum(axis=0)
    scaled = parts / np.where(sums > 0, sums, 1.0) * weights
    return np.asarray(np.where(sums > 0, scaled, otherwise), dtype=np.float64)


def _joined(masks: Sequence[Mask], most: int) -> list[Mask]:
    """Neighbouring attributes as one, while their combinations are few."""
    out: list[Mask] = []
    for mask in masks:
        if out and len(out[-1]) * len(mask) <= most:
            both = (out[-1][:, None] & mask[None]).reshape(-1, mask.shape[1])
            out[-1] = _undominated(both)
        else:
            out.append(mask)
    return out


def _undominated(mask: Mask) -> Mask:
    """The different rows that are no part of another row."""
    rows = _distinct(mask)
    if len(rows) > COMPARED:
        return rows
    numbers = rows.astype(np.float32)  # whole numbers below 2^24: exact
    common = numbers @ numbers.T
    inside = common >= numbers.sum(axis=1)[:, None]
    np.fill_diagonal(inside, False)
    return np.asarray(rows[~inside.any(axis=1)])


def _distinct(rows: Mask) -> Mask:
    if len(rows) <= 1:
        return rows
    packed = np.packbits(rows, axis=1)
    _, first = np.unique(packed.view(f"V{packed.shape[1]}").reshape(-1), return_index=True)
    return np.asarray(rows[np.sort(first)])
