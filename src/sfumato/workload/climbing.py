# SPDX-License-Identifier: Apache-2.0
"""Cells at which much holds: from some cells upwards, one attribute at a time.

A heuristic, and nothing rests on it: it finds cells for the searches of ``heaviest.py`` and of
``plan/optimal/conditions.py`` to begin with. The value of a cell is ``x'G x`` for the truth values
x of the conditions there, or ``g'x``.
"""

from __future__ import annotations

import numpy as np

from sfumato.workload.clauses import Clauses
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers

__all__ = ["climbed", "starting_cells"]

SWEEPS = 30
AT_ONCE = 2**22  # truth values of one step


def starting_cells(clauses: Clauses, count: int, round_number: int = 0) -> Integers:
    """Cells where the clauses hold in turn, with other classes for every number of the round."""
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
    """The clauses that hold at the cells reached from ``cells``, a row each."""
    step = max(1, AT_ONCE // max([m.size for m in clauses.masks], default=1))
    parts = [_climbed(clauses, weights, cells[i : i + step]) for i in range(0, len(cells), step)]
    return np.concatenate(parts)


def _climbed(clauses: Clauses, weights: Array, cells: Integers) -> Mask:
    cells = cells.copy()
    reached = _values(clauses, weights, clauses.at(cells))
    for _ in range(SWEEPS):
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
