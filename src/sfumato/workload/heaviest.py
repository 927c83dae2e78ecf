# SPDX-License-Identifier: Apache-2.0
"""The greatest total weight of conditions that hold at once, over more cells than can be listed.

``max over cells of sum_q s_q 1[q(cell)]`` for weights ``s_q >= 0``: with s = 1 the greatest column
of the conditions measured as asked. It is found by branch and bound, attribute after attribute:

1. A class of cells of an attribute that allows no clause more than another class is left out:
   weights are not negative, so that the other class is never worse.
2. A partial choice is known by the clauses (``clauses.py``) that it leaves possible.
3. Its upper bound is found by splitting weights over clusters of the open attributes
   (``decomposition.py``). A condition of several clauses counts in full while one is possible.
4. The partial choices of the greatest bounds are bounded better, then replaced by their own
   choices of one more attribute (Land, Doig 1960, "An automatic method of solving discrete
   programming problems"). Those that cannot exceed the best cell known are dropped.

When the effort is used up, the greatest bound that is left is part of the answer. So the answer is
an upper bound whatever the effort, and exact when nothing above the best cell is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import frexp, ldexp

import numpy as np
import numpy.typing as npt

from sfumato.errors import WorkloadError
from sfumato.workload.clauses import Clauses, read_clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.counting import Predicates
from sfumato.workload.decomposition import Decomposition, round_up
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers

__all__ = ["EFFORT", "Heaviest", "heaviest", "held_together"]

EFFORT = 1.1e11  # multiplications of the bounds of one search: some seconds
ROUGHLY = 128  # combinations of classes in a cluster of a first bound
COMBINED = 1024  # combinations of classes in a cluster of a better one
BRANCHES = 16  # classes of attributes that are chosen at once, if they are small
COMPARED = 4096  # classes of an attribute that are compared with each other
HELD = 2**24  # truth values held at once
STEPS = 3  # of the subgradient, for a better bound
AT_ONCE = 2**9  # partial choices that are looked at in one turn
TRIED = 32  # of these, how many are completed
STARTS = 256  # cells from which the first search climbs
CLIMBED = 2**27  # bits looked at in one sweep of that

Words = npt.NDArray[np.uint8]


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
    ``unit``, if it is not 0. Both numbers are sums of floats: up to their rounding.
    """
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise WorkloadError("the weights of conditions must be finite and not below zero")
    if not weights.any():
        return Heaviest(0.0, 0.0, np.zeros(clauses.count, dtype=np.bool_))
    power = frexp(float(weights.max()))[1]  # weights of at most 1, exactly in proportion
    small = replace(clauses, masks=tuple(_undominated(m) for m in clauses.masks))
    search = _Search(small, np.ldexp(weights, -power), tolerance, ldexp(unit, -power))
    search.run(effort)
    upper = ldexp(max(search.reached, search.given_up), power)
    reached = ldexp(search.reached, power)
    if not clauses.is_complete:  # conditions that were not read may not hold there
        upper = float(np.nextafter(upper, np.inf))
    return Heaviest(upper, reached, search.column)


@dataclass(eq=False)
class _Waiting:
    """Partial choices after some attributes, as packed bits, with their bounds."""

    words: Words
    bounds: Array

    def add(self, states: Mask, bounds: Array) -> None:
        self.words = np.concatenate([self.words, np.packbits(states, axis=1)])
        self.bounds = np.append(self.bounds, bounds)

    def take(self, count: int, clauses: int) -> tuple[Mask, Array]:
        """Those of the greatest bounds, which leave."""
        count = min(count, len(self.bounds))
        top = np.argpartition(-self.bounds, count - 1)[:count]
        words, bounds = self.words[top], self.bounds[top]
        stays = np.ones(len(self.bounds), dtype=np.bool_)
        stays[top] = False
        self.words, self.bounds = self.words[stays], self.bounds[stays]
        return np.unpackbits(words, axis=1, count=clauses).astype(np.bool_), bounds


class _Search:
    """The best cell so far, what is still to be looked at, the greatest bound given up."""

    def __init__(self, clauses: Clauses, weights: Array, tolerance: float, unit: float) -> None:
        self.clauses, self.weights = clauses, weights
        self.tolerance, self.unit = tolerance, unit
        self.reached, self.given_up = -1.0, 0.0
        self.column = np.zeros(clauses.count, dtype=np.bool_)
        sizes = np.diff(np.append(clauses.first, clauses.clauses))
        self.is_several = sizes > 1
        self.split = np.where(np.repeat(sizes == 1, sizes), np.repeat(weights, sizes), 0.0)
        self.round_up = round_up(clauses.clauses, len(clauses.masks))
        self.layers = _joined(sorted(clauses.masks, key=len), BRANCHES)
        empty = np.zeros((0, (clauses.clauses + 7) // 8), dtype=np.uint8)
        # After every layer: the partial choices with a rough bound, and those with a better one.
        self.waiting = [_Waiting(empty, np.zeros(0)) for _ in range(2 * len(self.layers) + 2)]
        self.bounds: dict[tuple[int, int], Decomposition] = {}

    def run(self, effort: float) -> None:
        """Always where the bound is greatest, until nothing is left or the effort is spent."""
        clauses = self.clauses
        bits = max(1, sum(m.size for m in clauses.masks))
        starts = starting_cells(clauses, max(1, min(STARTS, CLIMBED // bits)))
        self.try_cells(climbed(clauses, self.weights, starts))
        everything = np.array([float(self.weights.sum()) * self.round_up])
        self.waiting[1].add(np.ones((1, clauses.clauses), dtype=np.bool_), everything)
        while effort > 0:
            tops = [float(w.bounds.max(initial=0.0)) for w in self.waiting]
            place = int(np.argmax(tops))
            if tops[place] <= self.enough():
                break
            states, values = self.waiting[place].take(AT_ONCE, clauses.clauses)
            depth, is_better = divmod(place, 2)
            if is_better:
                effort -= self._branched(depth, states, values)
            else:
                effort -= self._bounded(depth, states, values)
        for left in self.waiting:
            self.drop(left.bounds)

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
        highest = float(bounds.max(initial=0.0))
        if highest > self.given_up:
            if self.unit:
                highest = self.unit * float(np.floor(highest / self.unit + 1e-9))
            self.given_up = max(self.given_up, highest)

    def _branched(self, depth: int, states: Mask, values: Array) -> float:
        """All choices of one more layer that may exceed the best cell; what it cost."""
        if depth == len(self.layers):
            self.try_cells(states)
            return float(states.size)
        branch = self.layers[depth]
        cost, step = 0.0, max(1, HELD // branch.size)
        for first in range(0, len(states), step):
            some = states[first : first + step]
            moved, parents = self._hopeful(some, branch)
            kept = _first_of_each(moved)  # equal choices of any parent: its bound holds for them
            moved, above = moved[kept], values[first : first + step][parents[kept]]
            cost += float(some.size) * len(branch)
            if depth + 1 == len(self.layers):
                if len(moved):
                    self.try_cells(moved)
                continue
            rough = self._bound(depth + 1, ROUGHLY)
            found = rough.fixed(moved) + self._several(moved)
            cost += len(moved) * rough.cost
            self._keep(2 * depth + 2, moved, np.minimum(found, above))
        return cost

    def _hopeful(self, states: Mask, branch: Mask) -> tuple[Mask, Integers]:
        """The choices whose possible conditions weigh enough, and what they are choices of."""
        if self.clauses.is_plain:
            weighted = branch.astype(np.float32) * self.weights.astype(np.float32)
            simple = (states.astype(np.float32) @ weighted.T).astype(np.float64) * self.round_up
            simple += 2.0**-90
            parents, chosen = np.nonzero(simple > self.enough())
            self.drop(simple[simple <= self.enough()])
            return np.asarray(states[parents] & branch[chosen]), parents
        moved = (states[:, None] & branch[None]).reshape(-1, branch.shape[1])
        simple = (self.clauses.holds(moved) @ self.weights) * self.round_up
        self.drop(simple[simple <= self.enough()])
        hopeful = np.flatnonzero(simple > self.enough())
        return np.asarray(moved[hopeful]), hopeful // len(branch)

    def _bounded(self, depth: int, states: Mask, values: Array) -> float:
        """A better bound for each, and some cells on the way; what it cost."""
        bound = self._bound(depth, COMBINED)
        several = self._several(states)
        better, best = bound.refined(states, self.enough() - several, STEPS)
        better = np.minimum(better + several, values)
        top = np.argsort(-better, kind="stable")[:TRIED]
        whole = states[top]
        for i, mask in enumerate(bound.masks):
            whole &= mask[best[top, i]] > 0
        self.try_cells(whole)
        self._keep(2 * depth + 1, states, better)
        return float(len(states)) * bound.cost * STEPS

    def _keep(self, place: int, states: Mask, values: Array) -> None:
        hopeful = values > self.enough()
        self.drop(values[~hopeful])
        self.waiting[place].add(states[hopeful], values[hopeful])

    def _bound(self, depth: int, combined: int) -> Decomposition:
        """By clusters of the layers from this one on."""
        if (depth, combined) not in self.bounds:
            most = max(1, min(combined, HELD // self.clauses.clauses))
            clusters = _joined(self.layers[depth:], most)
            known = self.bounds.get((depth, ROUGHLY))
            if known is None or [len(m) for m in known.masks] != [len(m) for m in clusters]:
                known = Decomposition(clusters, self.split)
            self.bounds[depth, combined] = known
        return self.bounds[depth, combined]

    def _several(self, states: Mask) -> Array:
        """Conditions of several clauses: in full while one of them is possible."""
        if self.clauses.is_plain:
            return np.zeros(len(states))
        holds = self.clauses.holds(states)[:, self.is_several]
        found = holds @ self.weights[self.is_several]
        return np.asarray(found * self.round_up, dtype=np.float64)


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
    rows = mask[_first_of_each(mask)]
    if len(rows) > COMPARED:
        return rows
    numbers = rows.astype(np.float32)  # whole numbers below 2^24: exact
    common = numbers @ numbers.T
    inside = common >= numbers.sum(axis=1)[:, None]
    np.fill_diagonal(inside, False)
    return np.asarray(rows[~inside.any(axis=1)])


def _first_of_each(rows: Mask) -> Integers:
    """Where each different row is first."""
    if len(rows) <= 1 or not rows.shape[1]:
        return np.arange(min(len(rows), 1))
    packed = np.packbits(rows, axis=1)
    _, first = np.unique(packed.view(f"V{packed.shape[1]}").reshape(-1), return_index=True)
    return np.sort(first)
