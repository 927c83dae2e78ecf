# SPDX-License-Identifier: Apache-2.0
"""Upper bounds on the weight of clauses that hold together, by splitting the weights.

The attributes that are still open are put into clusters. A clause that holds is allowed by the
combination of classes chosen in every cluster. So if its weight is split into parts, one per
cluster, what can be reached is at most

    sum over clusters of the heaviest combination of classes, each clause counting its part there.

Any split into parts of at least 0 that add up to no less than the weight is valid; better ones
follow the subgradient, for all partial choices alike (``fixed``) or for each one (``refined``).
This is the dual decomposition of Wainwright, Jaakkola, Willsky 2005, "MAP estimation via agreement
on trees", with the step of Polyak 1969, "Minimization of unsmooth functionals".

Arithmetic is in 32-bit floats. All terms are at least 0, so that sums of n of them err by n 2^-24
relatively, and the bounds are multiplied by more than that (``round_up``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers

__all__ = ["Decomposition", "Floats", "round_up"]

STEPS = 60  # of the subgradient for all partial choices alike
SPLIT = 2**28  # multiplications spent on them
HELD = 2**23  # parts held at once
RAREST = 1e-3  # the least share of rarity: every cluster that restricts a clause has a part of it
VANISHING = 2.0**-30  # parts of sums below this are not rescaled
UNDERFLOW = 2.0**-90  # what 32 bits lose below their range, of weights of at most 1, is less

Floats = npt.NDArray[np.float32]


def round_up(clauses: int, clusters: int) -> float:
    """Above what sums over clauses, and parts that add up to a weight, can be off.

    Sums err by ``clauses`` units of 2^-24, parts by some more than ``clusters``; four times both.
    """
    return 1 + (clauses + 2 * clusters + 16) * 2.0**-22


class Decomposition:
    """Clusters of open attributes; ``weights`` (at most 1) of the clauses that are split."""

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
        step = max(1, HELD // max([states.shape[1], *(len(m) for m in self.masks)]))
        for first in range(0, len(states), step):
            possible = states[first : first + step].astype(np.float32)
            total = self._start(possible)
            for mask, columns, parts in zip(self.inside, self.columns, self.parts, strict=True):
                total += (possible[:, columns] @ (mask * parts[columns]).T).max(axis=1)
            out[first : first + step] = total * self.round_up + UNDERFLOW
        return out

    def refined(self, states: Mask, target: Array, steps: int) -> tuple[Array, Integers]:
        """Bounds by a split for each row, and the combination of every cluster last found heaviest.

        Rows whose bound has come below their target are left at that.
        """
        values = np.full(len(states), np.inf)
        best = np.zeros((len(states), len(self.masks)), dtype=np.int64)
        step = max(1, HELD // max(1, self.parts.size))
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
        """What no open attribute restricts."""
        return np.asarray(possible @ self.settled, dtype=np.float64)

    def _split(self, weights: Array) -> Floats:
        """In proportion to how rarely a cluster allows the clause, then along the subgradient."""
        if not self.masks:
            return np.zeros((0, len(weights)), dtype=np.float32)
        rare = np.array([-np.log(np.maximum(m.mean(axis=0), 1e-6)) for m in self.masks])
        rare = np.maximum(rare, RAREST) * self.restricts
        sums = rare.sum(axis=0)
        parts: Floats = (rare / np.where(sums > 0, sums, 1.0) * weights).astype(np.float32)
        step = 0.5 * float(weights.mean())
        best: Floats = parts
        least = np.inf
        size = sum(m.size for m in self.inside)
        for i in range(max(1, min(STEPS, SPLIT // max(1, size)))):
            clusters = zip(self.inside, self.columns, parts, strict=True)
            reached = [m @ p[c] for m, c, p in clusters]
            total = sum(float(r.max()) for r in reached)
            if total < least:
                best, least = parts, total
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
    is_sound = sums > VANISHING
    factor = weights / np.where(is_sound, sums, 1.0)
    scaled = parts * factor[:, None]
    return np.asarray(np.where(is_sound[:, None], scaled, otherwise), dtype=np.float32)
