# SPDX-License-Identifier: Apache-2.0
"""How many conditions hold at once: conditions as unions of boxes, and a search over the boxes.

A clause is one set of classes of cells per attribute, a box. Every boolean expression is an "or" of
clauses, each an "and" of conditions on single attributes (its disjunctive normal form). Once the
cells of some attributes are chosen, a clause is still possible or has failed, so that a row of bits
says all there is to know about all conditions. Cells of an attribute that no condition tells apart
are one class. A condition of more clauses than the limit is not read: it counts as one that may
always hold, which is enough for upper bounds; ``is_read`` says which conditions were read.

`heaviest` returns the maximum over cells of the total weight of the conditions that hold there,
with an upper bound; `maximum_overlap` the same for the conditions of terms, all of weight 1: the
sensitivity of conditions that are measured as asked (`sensitivity.py`), and a bound for those
that are measured with weights (``strategy/conditions.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import frexp, ldexp

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.types import Array, Integers, Mask
from sfumato.workload.predicates import And, Classes, Condition, Everything, In, Not, Or
from sfumato.workload.terms import Term
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "Clauses",
    "Decomposition",
    "Floats",
    "Heaviest",
    "climbed",
    "heaviest",
    "maximum_overlap",
    "read_clauses",
    "round_up",
    "starting_cells",
]


Box = dict[str, Mask]
Key = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False)
class Clauses:
    """``masks[a][class, clause]`` says whether the clause allows the class of attribute a.

    Clauses are sorted by condition: those of distinct condition q begin at ``first[q]``.
    ``places[i]`` is the number of asked condition i among the distinct ones, -1 if it never holds.
    Conditions may be distinct here and hold for the same cells: only equal boxes are recognised.
    ``names`` are the attributes of the masks.
    """

    masks: tuple[Mask, ...]
    first: Integers
    places: Integers
    is_read: Mask
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Distinct conditions that can hold."""
        return len(self.first)

    @property
    def clauses(self) -> int:
        """Boxes in all."""
        return self.masks[0].shape[1] if self.masks else len(self.first)

    @property
    def is_complete(self) -> bool:
        """Whether all conditions were read."""
        return bool(self.is_read.all())

    @property
    def is_plain(self) -> bool:
        """Whether every condition is one box."""
        return self.clauses == self.count

    def holds(self, possible: Mask) -> Mask:
        """From rows of bits of clauses to rows of bits of conditions: some clause is possible."""
        if self.is_plain:
            return possible
        return np.asarray(np.logical_or.reduceat(possible, self.first, axis=1), dtype=np.bool_)

    def at(self, cells: Integers) -> Mask:
        """The clauses that hold at cells, given by a class per attribute in every row."""
        out = np.ones((len(cells), self.clauses), dtype=np.bool_)
        for a, mask in enumerate(self.masks):
            out &= mask[cells[:, a]]
        return out


def read_clauses(domain: Domain, conditions: Sequence[Condition]) -> Clauses:
    """The clauses of all conditions, equal ones once, over the attributes that some restrict.

    Raises:
        TooLarge: all clauses over all classes have more bits than are held.
    """
    names = domain.in_order(frozenset().union(*(c.attributes for c in conditions)))
    reader = _Reader(Classes.of(conditions, domain, names))
    boxes: list[Box] = []
    first: list[int] = []
    is_read: list[bool] = []
    places = np.full(len(conditions), -1, dtype=np.int64)
    numbers: dict[frozenset[Key] | int, int] = {}
    for i, condition in enumerate(conditions):
        own = reader.boxes(condition, False)
        key = i if own is None else frozenset(_key(box) for box in own)
        if own is not None and not own:
            continue
        place = numbers.setdefault(key, len(first))
        places[i] = place
        if place == len(first):
            first.append(len(boxes))
            boxes += [{}] if own is None else own
            is_read.append(own is not None)
    used = [n for n in names if any(n in box for box in boxes)]
    bits = len(boxes) * sum(reader.counts[n] for n in used)
    if bits > LIMITS.clause_bits:
        raise TooLarge(
            f"{len(conditions):,} conditions are {len(boxes):,} clauses over "
            f"{sum(reader.counts[n] for n in used):,} classes of cells, {bits:,} bits; at most "
            f"{LIMITS.clause_bits:,} are held: ask for fewer at once"
        )
    masks = tuple(reader.gathered(n, boxes) for n in used)
    return Clauses(
        masks,
        np.array(first, dtype=np.int64),
        places,
        np.array(is_read, dtype=np.bool_),
        tuple(used),
    )


class _Reader:
    """Turns conditions into boxes over classes of cells."""

    def __init__(self, classes: Classes) -> None:
        self.class_of = dict(zip(classes.names, classes.class_of, strict=True))
        self.counts = dict(zip(classes.names, classes.shape, strict=True))

    def boxes(self, condition: Condition, is_negated: bool) -> list[Box] | None:
        """The clauses of a condition or of its negation; None where there are too many."""
        if isinstance(condition, Everything):
            return [] if is_negated else [{}]
        if isinstance(condition, Not):
            return self.boxes(condition.part, not is_negated)
        if isinstance(condition, In):
            return self._leaf(condition, is_negated)
        if not isinstance(condition, And | Or):
            raise TypeError(f"{type(condition).__name__} is not a kind of condition")
        parts = [self.boxes(p, is_negated) for p in condition.parts]
        if isinstance(condition, And) != is_negated:
            return self._all_of(parts)
        return self._any_of(parts)

    def _leaf(self, leaf: In, is_negated: bool) -> list[Box]:
        holds = np.zeros(self.counts[leaf.attribute], dtype=np.bool_)
        holds[self.class_of[leaf.attribute][np.array(leaf.codes, dtype=np.int64)]] = True
        mask = ~holds if is_negated else holds
        if mask.all():
            return [{}]
        return [{leaf.attribute: mask}] if mask.any() else []

    def _all_of(self, parts: Sequence[list[Box] | None]) -> list[Box] | None:
        if any(p is not None and not p for p in parts):  # a part that never holds
            return []
        out: list[Box] = [{}]
        for part in sorted((p for p in parts if p is not None), key=len):
            out = self._distinct([b for x in out for y in part if (b := _both(x, y)) is not None])
            if len(out) > LIMITS.condition_clauses:
                return None
        return None if any(p is None for p in parts) and out else out

    def _any_of(self, parts: Sequence[list[Box] | None]) -> list[Box] | None:
        read = [p for p in parts if p is not None]
        if any(not box for part in read for box in part):  # a part that always holds
            return [{}]
        out = self._distinct([box for part in read for box in part])
        return None if len(read) < len(parts) or len(out) > LIMITS.condition_clauses else out

    @staticmethod
    def _distinct(boxes: Sequence[Box]) -> list[Box]:
        """The boxes without repeats; those that restrict the same single attribute become one."""
        out: dict[Key, Box] = {}
        alone: Box = {}
        for box in boxes:
            if len(box) == 1:
                ((name, mask),) = box.items()
                alone[name] = alone[name] | mask if name in alone else mask
            else:
                out[_key(box)] = box
        if any(mask.all() for mask in alone.values()) or any(not box for box in out.values()):
            return [{}]
        return [*out.values(), *({name: mask} for name, mask in alone.items())]

    def gathered(self, name: str, boxes: Sequence[Box]) -> Mask:
        """One row of bits per class of an attribute."""
        out = np.ones((self.counts[name], len(boxes)), dtype=np.bool_)
        for i, box in enumerate(boxes):
            if name in box:
                out[:, i] = box[name]
        return out


def _key(box: Box) -> Key:
    """A key of a box, equal for equal boxes only."""
    return tuple(sorted((name, mask.tobytes()) for name, mask in box.items()))


def _both(x: Box, y: Box) -> Box | None:
    """The common part of two boxes; None if there is none."""
    out = dict(x)
    for name, mask in y.items():
        joint = out[name] & mask if name in out else mask
        if not joint.any():
            return None
        out[name] = joint
    return out


# Cells at which much holds
#
# A heuristic that no bound rests on: it finds cells for `heaviest` and for the searches of
# ``strategy/conditions.py`` to begin with.


def starting_cells(clauses: Clauses, count: int, round_number: int = 0) -> Integers:
    """So many cells, a class per attribute in every row, at which the clauses hold in turn.

    Every ``round_number`` gives other classes.
    """
    stride = max(1, clauses.clauses // count)
    chosen = (np.arange(count) * stride + round_number) % clauses.clauses
    out = np.zeros((count, len(clauses.masks)), dtype=np.int64)
    for a, mask in enumerate(clauses.masks):
        allowed = mask[:, chosen].T
        # The golden section spreads the choices over the allowed classes.
        turn = (np.arange(count) * (a + 2) + round_number * 7919) * 0.6180339887498949 % 1.0
        rank = (turn * allowed.sum(axis=1)).astype(np.int64)
        out[:, a] = (allowed.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
    return out


def climbed(clauses: Clauses, weights: Array, cells: Integers) -> Mask:
    """The clauses that hold at the cells reached from ``cells``, a row each.

    One attribute at a time moves to its best class, until none is better. The value of a cell is
    ``x'G x`` for the truth values x of the conditions there, or ``g'x`` for a vector of weights.
    """
    step = max(1, LIMITS.climb_truth_values // max([m.size for m in clauses.masks], default=1))
    parts = [_climbed(clauses, weights, cells[i : i + step]) for i in range(0, len(cells), step)]
    return np.concatenate(parts)


def _climbed(clauses: Clauses, weights: Array, cells: Integers) -> Mask:
    cells = cells.copy()
    reached = _values(clauses, weights, clauses.at(cells))
    for _ in range(LIMITS.climb_sweeps):
        before = reached.copy()
        for a, mask in enumerate(clauses.masks):
            rest = np.ones((len(cells), clauses.clauses), dtype=np.bool_)
            for b, other in enumerate(clauses.masks):
                if b != a:
                    rest &= other[cells[:, b]]
            options = (rest[:, None] & mask[None]).reshape(-1, clauses.clauses)
            values = _values(clauses, weights, options).reshape(len(cells), len(mask))
            best = values.argmax(axis=1)
            value = values[np.arange(len(cells)), best]
            better = value > reached
            cells[better, a], reached[better] = best[better], value[better]
        if bool((reached <= before).all()):
            break
    return clauses.at(cells)


def _values(clauses: Clauses, weights: Array, possible: Mask) -> Array:
    holds = clauses.holds(possible).astype(np.float32)
    if weights.ndim == 1:
        return np.asarray(holds @ weights.astype(np.float32), dtype=np.float64)
    moved = holds @ weights.astype(np.float32)
    return np.asarray(np.einsum("ij,ij->i", moved, holds), dtype=np.float64)


# Upper bounds on the weight of clauses that hold together

UNDERFLOW = 2.0**-90  # what 32 bits lose below their range, of weights of at most 1, is less

Floats = npt.NDArray[np.float32]


def round_up(clauses: int, clusters: int) -> float:
    """A factor above the rounding of sums over clauses and of parts that add up to a weight.

    Sums err by ``clauses`` units of 2^-24, parts by some more than ``clusters``; four times both.
    """
    return 1 + (clauses + 2 * clusters + 16) * 2.0**-22


class Decomposition:
    """Upper bounds on the weight of clauses that hold together, by splitting their weights.

    ``masks`` are the clusters into which the attributes that are still open are put: a row of bits
    of clauses for every combination of classes; ``weights``, at most 1, are those of the clauses. A
    clause that holds is allowed by the combination of classes chosen in every cluster. So if its
    weight is split into parts, one per cluster, what can be reached is at most

    |   sum over clusters of the heaviest combination of classes, each clause counting its part
        there.

    Any split into parts of at least 0 that add up to no less than the weight is valid; better ones
    follow the subgradient, for all partial choices alike (``fixed``) or for each one (``refined``).
    This is the dual decomposition of Wainwright, Jaakkola, Willsky 2005, "MAP estimation via
    agreement on trees", with the step of Polyak 1969, "Minimization of unsmooth functionals".

    Arithmetic is in 32-bit floats. All terms are at least 0, so that sums of n of them err by n
    2^-24 relatively, and the bounds are multiplied by more than that (`round_up`).
    """

    def __init__(self, masks: Sequence[Mask], weights: Array) -> None:
        count = len(weights)
        self.restricts = np.array([~m.all(axis=0) for m in masks]).reshape(len(masks), count)
        self.masks = [m.astype(np.float32) for m in masks]
        # Only clauses that a cluster restricts have a part there.
        self.columns = [np.flatnonzero(r) for r in self.restricts]
        self.inside = [m[:, c] for m, c in zip(self.masks, self.columns, strict=True)]
        is_open = self.restricts.any(axis=0)
        self.settled = np.where(is_open, 0.0, weights).astype(np.float32)
        self.open_weights = np.where(is_open, weights, 0.0).astype(np.float32)
        self.shared = np.maximum(self.restricts.sum(axis=0), 1).astype(np.float32)
        self.parts = self._split(np.where(is_open, weights, 0.0))
        self.round_up = round_up(count, len(masks))

    @property
    def cost(self) -> int:
        """Multiplications of one bound."""
        own = sum(m.size for m in self.inside)
        return own + (8 * len(self.masks) + 32) * len(self.settled)

    def fixed(self, states: Mask) -> Array:
        """Bounds by the split that serves all; ``states`` are rows of bits of possible clauses."""
        out = np.zeros(len(states))
        step = max(1, LIMITS.split_parts // max([states.shape[1], *(len(m) for m in self.masks)]))
        for first in range(0, len(states), step):
            possible = states[first : first + step].astype(np.float32)
            total = self._start(possible)
            for mask, columns, parts in zip(self.inside, self.columns, self.parts, strict=True):
                total += (possible[:, columns] @ (mask * parts[columns]).T).max(axis=1)
            out[first : first + step] = total * self.round_up + UNDERFLOW
        return out

    def refined(self, states: Mask, target: Array, steps: int) -> tuple[Array, Integers]:
        """Bounds by a split for each row, and the last heaviest combination of every cluster.

        Rows whose bound has come below their target are left at that.
        """
        values = np.full(len(states), np.inf)
        best = np.zeros((len(states), len(self.masks)), dtype=np.int64)
        step = max(1, LIMITS.split_parts // max(1, self.parts.size))
        for first in range(0, len(states), step):
            some = slice(first, first + step)
            values[some], best[some] = self._refined(states[some], target[some], steps)
        return values, best

    def _refined(self, states: Mask, target: Array, steps: int) -> tuple[Array, Integers]:
        possible = states.astype(np.float32)
        base, weights = self._start(possible), possible * self.open_weights
        parts = possible[:, None] * self.parts
        values = np.full(len(states), np.inf)
        best = np.zeros((len(states), len(self.masks)), dtype=np.int64)
        left = np.arange(len(states))
        for turn in range(steps):
            total, slope = base.copy(), np.zeros_like(parts)
            for i, mask in enumerate(self.masks):
                reached = parts[:, i, self.columns[i]] @ self.inside[i].T
                at = reached.argmax(axis=1)
                total += reached[np.arange(len(at)), at]
                slope[:, i] = mask[at] * self.restricts[i]
                best[left, i] = at
            bounds = total * self.round_up + UNDERFLOW
            values[left] = np.minimum(values[left], bounds)
            stays = values[left] > target[left]
            if turn == steps - 1 or not stays.any():
                break
            left, base, total, weights = left[stays], base[stays], total[stays], weights[stays]
            parts = self._moved(parts[stays], slope[stays], weights, total - target[left])
        return values, best

    def _moved(self, parts: Floats, slope: Floats, weights: Floats, above: Array) -> Floats:
        """A step of the subgradient within parts that add up to the weights, then at least 0."""
        slope -= (slope.sum(axis=1) / self.shared)[:, None]
        slope *= self.restricts
        slope *= weights[:, None] > 0
        squares = np.einsum("ijk,ijk->i", slope, slope)
        size = np.maximum(above, 0.0) / np.maximum(squares, 1e-6)
        moved = np.maximum(parts - size.astype(np.float32)[:, None, None] * slope, 0.0)
        return _rescaled(moved, parts, weights)

    def _start(self, possible: Floats) -> Array:
        """The weight of possible clauses that no open attribute restricts."""
        return np.asarray(possible @ self.settled, dtype=np.float64)

    def _split(self, weights: Array) -> Floats:
        """Parts in proportion to how rarely a cluster allows the clause, then by subgradient."""
        if not self.masks:
            return np.zeros((0, len(weights)), dtype=np.float32)
        rare = np.array([-np.log(np.maximum(m.mean(axis=0), 1e-6)) for m in self.masks])
        rare = np.maximum(rare, LIMITS.rarity) * self.restricts
        sums = rare.sum(axis=0)
        parts: Floats = (rare / np.where(sums > 0, sums, 1.0) * weights).astype(np.float32)
        step = 0.5 * float(weights.mean())
        best: Floats = parts
        minimum = np.inf
        size = sum(m.size for m in self.inside)
        affordable = LIMITS.split_multiplications // max(1, size)
        for i in range(max(1, min(LIMITS.split_steps, affordable))):
            clusters = zip(self.inside, self.columns, parts, strict=True)
            reached = [m @ p[c] for m, c, p in clusters]
            total = sum(float(r.max()) for r in reached)
            if total < minimum:
                best, minimum = parts, total
            pairs = zip(self.masks, reached, strict=True)
            slope = np.array([m[r.argmax()] for m, r in pairs]) * self.restricts
            slope = (slope - slope.sum(axis=0) / self.shared) * self.restricts
            length = np.float32(step / np.sqrt(i + 1))
            moved = np.maximum(parts - length * slope, 0.0)
            parts = _rescaled(moved[None], parts[None], self.open_weights[None])[0]
        return best


def _rescaled(parts: Floats, otherwise: Floats, weights: Floats) -> Floats:
    """Parts (rows, clusters, clauses) that add up to the weights of every row."""
    sums = parts.sum(axis=1)
    is_sound = sums > LIMITS.rescaled_sum
    factor = weights / np.where(is_sound, sums, 1.0)
    scaled = parts * factor[:, None]
    return np.asarray(np.where(is_sound[:, None], scaled, otherwise), dtype=np.float32)


# The maximum weight of conditions that hold at once, over more cells than can be listed

PackedBits = npt.NDArray[np.uint8]


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
def maximum_overlap(terms: tuple[Term, ...]) -> Heaviest:
    """The maximum number of conditions of the terms that hold at once; equal ones count all."""
    conditions = [c for t in terms for c in t.as_conditions()]
    clauses = read_clauses(terms[0].domain, conditions)
    copies = np.bincount(clauses.places[clauses.places >= 0], minlength=clauses.count)
    return heaviest(clauses, copies.astype(np.float64), unit=1.0)


def heaviest(
    clauses: Clauses,
    weights: Array,
    effort: float = LIMITS.search_multiplications,
    tolerance: float = 0.0,
    unit: float = 0.0,
) -> Heaviest:
    """``max over cells of sum_q weights_q 1[q(cell)]``: a cell, and an upper bound for all cells.

    Both numbers are sums of floats, up to their rounding. The search is by branch and bound,
    attribute after attribute:

    1. A class of cells of an attribute that allows no clause more than another class is left out:
       weights are not negative, so that the other class is never worse.
    2. A partial choice is described by the clauses that it leaves possible.
    3. Its upper bound comes from splitting weights over clusters of the open attributes
       (`Decomposition`). A condition of several clauses counts in full while one is possible.
    4. The partial choices of the maximum bounds are bounded better, then replaced by their own
       choices of one more attribute (Land, Doig 1960, "An automatic method of solving discrete
       programming problems"). Those that cannot exceed the best cell so far are dropped.

    When the effort is used up, the maximum bound that is left is part of the answer. So the answer
    is an upper bound whatever the effort, and exact when nothing above the best cell is left.

    Args:
        clauses: the conditions.
        weights: of the distinct conditions, finite and at least 0.
        effort: multiplications of all bounds.
        tolerance: choices within ``1 + tolerance`` of the best cell are given up.
        unit: what all weights are multiples of, 0 if nothing.

    Returns:
        The weight at the best cell, the conditions that hold there, and the upper bound.

    Raises:
        WorkloadError: a weight is below 0 or not finite.
    """
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise WorkloadError("the weights of conditions must be finite and not below zero")
    if not weights.any():
        return Heaviest(0.0, 0.0, np.zeros(clauses.count, dtype=np.bool_))
    power = frexp(float(weights.max()))[1]  # weights of at most 1, exactly in proportion
    small = replace(clauses, masks=tuple(_undominated(m) for m in clauses.masks))
    search = _HeaviestSearch(small, np.ldexp(weights, -power), tolerance, ldexp(unit, -power))
    search.run(effort)
    upper = ldexp(max(search.reached, search.given_up), power)
    reached = ldexp(search.reached, power)
    if not clauses.is_complete:  # conditions that were not read may not hold there
        upper = float(np.nextafter(upper, np.inf))
    return Heaviest(upper, reached, search.column)


@dataclass(eq=False)
class _Waiting:
    """Partial choices after some attributes, as packed bits, with their bounds."""

    bits: PackedBits
    bounds: Array

    def add(self, states: Mask, bounds: Array) -> None:
        self.bits = np.concatenate([self.bits, np.packbits(states, axis=1)])
        self.bounds = np.append(self.bounds, bounds)

    def take(self, count: int, clauses: int) -> tuple[Mask, Array]:
        """The ``count`` choices of the maximum bounds, which are removed, and their bounds."""
        count = min(count, len(self.bounds))
        top = np.argpartition(-self.bounds, count - 1)[:count]
        bits, bounds = self.bits[top], self.bounds[top]
        stays = np.ones(len(self.bounds), dtype=np.bool_)
        stays[top] = False
        self.bits, self.bounds = self.bits[stays], self.bounds[stays]
        return np.unpackbits(bits, axis=1, count=clauses).astype(np.bool_), bounds


class _HeaviestSearch:
    """The best cell so far, partial choices still to be looked at, the maximum bound given up."""

    def __init__(self, clauses: Clauses, weights: Array, tolerance: float, unit: float) -> None:
        self.clauses, self.weights = clauses, weights
        self.tolerance, self.unit = tolerance, unit
        self.reached, self.given_up = -1.0, 0.0
        self.column = np.zeros(clauses.count, dtype=np.bool_)
        sizes = np.diff(np.append(clauses.first, clauses.clauses))
        self.is_several = sizes > 1
        self.split = np.where(np.repeat(sizes == 1, sizes), np.repeat(weights, sizes), 0.0)
        self.round_up = round_up(clauses.clauses, len(clauses.masks))
        self.layers = _joined(sorted(clauses.masks, key=len), LIMITS.branch_classes)
        empty = np.zeros((0, (clauses.clauses + 7) // 8), dtype=np.uint8)
        # After every layer: the partial choices with a rough bound, and those with a better one.
        self.waiting = [_Waiting(empty, np.zeros(0)) for _ in range(2 * len(self.layers) + 2)]
        self.bounds: dict[tuple[int, int], Decomposition] = {}

    def run(self, effort: float) -> None:
        """Branch where the bound is maximal, until nothing is left or the effort is spent."""
        clauses = self.clauses
        bits = max(1, sum(m.size for m in clauses.masks))
        count = max(1, min(LIMITS.climb_starts, LIMITS.climb_bits // bits))
        starts = starting_cells(clauses, count)
        self.try_cells(climbed(clauses, self.weights, starts))
        everything = np.array([float(self.weights.sum()) * self.round_up])
        self.waiting[1].add(np.ones((1, clauses.clauses), dtype=np.bool_), everything)
        while effort > 0:
            tops = [float(w.bounds.max(initial=0.0)) for w in self.waiting]
            place = int(np.argmax(tops))
            if tops[place] <= self.enough():
                break
            states, values = self.waiting[place].take(LIMITS.choices_refined, clauses.clauses)
            depth, is_better = divmod(place, 2)
            if is_better:
                effort -= self._branched(depth, states, values)
            else:
                effort -= self._bounded(depth, states, values)
        for left in self.waiting:
            self.drop(left.bounds)

    def try_cells(self, possible: Mask) -> None:
        """Take the best of some cells, rows of bits of clauses, if it exceeds the best so far."""
        holds = self.clauses.holds(possible)
        values = holds @ self.weights
        best = int(values.argmax())
        if float(values[best]) > self.reached:
            self.reached, self.column = float(values[best]), holds[best]

    def enough(self) -> float:
        """The bound up to which choices are given up."""
        above = self.reached * (1 + self.tolerance)
        return max(above, self.reached + self.unit * (1 - 1e-3))

    def drop(self, bounds: Array) -> None:
        """Record the maximum bound of what is given up, rounded down to a multiple of the unit."""
        highest = float(bounds.max(initial=0.0))
        if highest > self.given_up:
            if self.unit:
                highest = self.unit * float(np.floor(highest / self.unit + 1e-9))
            self.given_up = max(self.given_up, highest)

    def _branched(self, depth: int, states: Mask, values: Array) -> float:
        """Add the choices of one more layer that may exceed the best cell; returns their cost."""
        if depth == len(self.layers):
            self.try_cells(states)
            return float(states.size)
        branch = self.layers[depth]
        cost, step = 0.0, max(1, LIMITS.search_truth_values // branch.size)
        for first in range(0, len(states), step):
            some = states[first : first + step]
            moved, parents = self._hopeful(some, branch)
            distinct = _first_of_each(moved)  # equal choices of any parent: its bound holds
            moved, above = moved[distinct], values[first : first + step][parents[distinct]]
            cost += float(some.size) * len(branch)
            if depth + 1 == len(self.layers):
                if len(moved):
                    self.try_cells(moved)
                continue
            rough = self._bound(depth + 1, LIMITS.rough_combinations)
            bounds = rough.fixed(moved) + self._several(moved)
            cost += len(moved) * rough.cost
            self._add(2 * depth + 2, moved, np.minimum(bounds, above))
        return cost

    def _hopeful(self, states: Mask, branch: Mask) -> tuple[Mask, Integers]:
        """The choices whose possible conditions weigh enough, and the number of their parent."""
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
        """Bound each choice better and try some cells on the way; returns the multiplications."""
        bound = self._bound(depth, LIMITS.refined_combinations)
        several = self._several(states)
        better, best = bound.refined(states, self.enough() - several, LIMITS.refined_steps)
        better = np.minimum(better + several, values)
        top = np.argsort(-better, kind="stable")[: LIMITS.choices_completed]
        whole = states[top]
        for i, mask in enumerate(bound.masks):
            whole &= mask[best[top, i]] > 0
        self.try_cells(whole)
        self._add(2 * depth + 1, states, better)
        return float(len(states)) * bound.cost * LIMITS.refined_steps

    def _add(self, place: int, states: Mask, values: Array) -> None:
        hopeful = values > self.enough()
        self.drop(values[~hopeful])
        self.waiting[place].add(states[hopeful], values[hopeful])

    def _bound(self, depth: int, combined: int) -> Decomposition:
        """Upper bounds by clusters of the layers from this one on."""
        if (depth, combined) not in self.bounds:
            most = max(1, min(combined, LIMITS.search_truth_values // self.clauses.clauses))
            clusters = _joined(self.layers[depth:], most)
            bound = self.bounds.get((depth, LIMITS.rough_combinations))
            if bound is None or [len(m) for m in bound.masks] != [len(m) for m in clusters]:
                bound = Decomposition(clusters, self.split)
            self.bounds[depth, combined] = bound
        return self.bounds[depth, combined]

    def _several(self, states: Mask) -> Array:
        """The weight of conditions of several clauses: in full while one of them is possible."""
        if self.clauses.is_plain:
            return np.zeros(len(states))
        holds = self.clauses.holds(states)[:, self.is_several]
        total = holds @ self.weights[self.is_several]
        return np.asarray(total * self.round_up, dtype=np.float64)


def _joined(masks: Sequence[Mask], most: int) -> list[Mask]:
    """The masks, neighbours of at most ``most`` combinations of classes joined into one."""
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
    if len(rows) > LIMITS.classes_compared:
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
