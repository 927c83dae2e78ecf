# SPDX-License-Identifier: Apache-2.0
"""Weights of rows or cells fitted to given tables: raking.

    minimise sum_r v_r log(v_r / w_r)   over v with the given sums over the rows of every cell

has the solution ``v_r = w_r prod_S u_S(cell of r)``. Scaling to one table after the other finds it
(Deming, Stephan 1940, "On a least squares adjustment of a sampled frequency table when the expected
marginal totals are known"; Csiszar 1975, "I-divergence geometry of probability distributions and
minimization problems", Theorem 3.2: it converges whenever some such v weighs the same rows). Where
that is slow, Newton steps on ``log u`` go on: the dual function is smooth and convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers

__all__ = [
    "Raked",
    "rake",
]


@dataclass(frozen=True, eq=False)
class Raked:
    """The weights, and the largest difference from a target, relative to the total."""

    weights: Array
    off: float


def rake(weights: Array, places: Sequence[Integers], targets: Sequence[Array]) -> Raked:
    """The weights nearest to the given ones whose sums are the targets, as well as they can.

    ``places[i]`` is the cell of every row in the flat table ``targets[i]``.
    """
    total = max((float(w.sum()) for w in targets), default=0.0)
    if total == 0:
        return Raked(np.zeros_like(weights) if len(targets) else weights, 0.0)
    cells = sum(len(w) for w in targets)
    sweeps = LIMITS.raking_sweeps if cells <= LIMITS.raking_cells else LIMITS.raking_long_sweeps
    best = _swept(weights, places, targets, total, sweeps)
    if best.off > LIMITS.raking_accuracy and cells <= LIMITS.raking_cells:
        sharper = _newton(best.weights, places, targets, total)
        best = min(best, sharper, key=lambda r: r.off)
    return best


def _swept(
    weights: Array, places: Sequence[Integers], targets: Sequence[Array], total: float, sweeps: int
) -> Raked:
    best = Raked(weights, _off(weights, places, targets, total))
    v = weights
    for _ in range(sweeps):
        if best.off <= LIMITS.raking_accuracy:
            break
        for at, table in zip(places, targets, strict=True):
            sums = np.bincount(at, v, minlength=len(table))
            v = v * np.divide(table, sums, out=np.zeros_like(table), where=sums > 0)[at]
        swept = Raked(v, _off(v, places, targets, total))
        best = min(best, swept, key=lambda r: r.off)
    return best


def _newton(
    weights: Array, places: Sequence[Integers], targets: Sequence[Array], total: float
) -> Raked:
    """Steps on ``sum_r w_r exp(nu of its cells) - <nu, targets>``, halved while that rises."""
    from scipy.sparse import csr_matrix

    rows = len(weights)
    starts = np.cumsum([0, *(len(w) for w in targets)])
    at = np.column_stack([p + s for p, s in zip(places, starts[:-1], strict=True)])
    ends = np.arange(0, at.size + 1, at.shape[1])
    cells = csr_matrix((np.ones(at.size), at.reshape(-1), ends), shape=(rows, int(starts[-1])))
    aim = np.concatenate(targets)
    v = weights
    best = Raked(v, _off(v, places, targets, total))
    for _ in range(LIMITS.raking_steps):
        missing = aim - cells.T @ v
        bend = (cells.T @ cells.multiply(v[:, None])).toarray()
        nu = np.linalg.lstsq(bend, missing, rcond=1e-12)[0]
        along = cells @ nu
        step = 1.0
        while step > LIMITS.raking_step_minimum:
            with np.errstate(over="ignore"):
                moved = v * np.exp(step * along)
            if float(moved.sum() - v.sum()) - step * float(nu @ aim) <= 0:
                break
            step /= 2
        v = moved
        stepped = Raked(v, _off(v, places, targets, total))
        if not stepped.off < best.off:
            break
        best = stepped
        if best.off <= LIMITS.raking_accuracy:
            break
    return best


def _off(
    weights: Array, places: Sequence[Integers], targets: Sequence[Array], total: float
) -> float:
    pairs = zip(places, targets, strict=True)
    misses = [np.abs(np.bincount(at, weights, minlength=len(t)) - t).max() for at, t in pairs]
    return float(max(misses, default=0.0)) / total
