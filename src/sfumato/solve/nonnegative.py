# SPDX-License-Identifier: Apache-2.0
"""Numbers of 0 or more: nearest to a point, of least squares, and raked to given tables.

``project_to_simplex`` is the nearest table that could be a count: no negative cell, the right
total. Euclidean projection onto the scaled simplex ``{x >= 0, sum x = total}``: subtract one
threshold from every cell and cut at zero (Held, Wolfe, Crowder 1974, "Validation of subgradient
optimization"; Duchi, Shalev-Shwartz, Singer, Chandra 2008, "Efficient projections onto the l1-ball
for learning in high dimensions"). ``onto_weights`` is the same in another metric.

``nonnegative_least_squares`` finds weights of 0 or more on a few columns: the inner step of an
active set.

``rake`` fits weights w_r of rows or cells to given sums over the rows of every cell: with the least
``sum_r v_r log(v_r / w_r)``, so ``v_r = w_r prod_S u_S(cell of r)``. Scaling to one table after the
other finds it (Deming, Stephan 1940, "On a least squares adjustment of a sampled frequency table
when the expected marginal totals are known"; Csiszar 1975, "I-divergence geometry of probability
distributions and minimization problems", Theorem 3.2: it converges whenever some such v weighs the
same rows). Where that is slow, Newton steps on ``log u`` go on: the dual function is smooth and
convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers, Numbers

__all__ = [
    "Raked",
    "nonnegative_least_squares",
    "onto_weights",
    "project_to_simplex",
    "rake",
]


def onto_weights(centre: Array, metric: Array, total: float) -> Array:
    """``argmin sum c (w - z)^2`` over ``w >= 0`` of this total: ``max(z - t / c, 0)``.

    With ``c z`` sorted downwards, t is ``(sum z - total) / sum 1 / c`` over the first j, for the
    last j whose ``c z`` is above it.
    """
    scaled, inverse = centre * metric, 1 / metric
    order = np.argsort(-scaled, kind="stable")
    levels = (np.cumsum(centre[order]) - total) / np.cumsum(inverse[order])
    above = np.flatnonzero(scaled[order] > levels)
    level = levels[above[-1] if above.size else 0]
    out = np.maximum(centre - level * inverse, 0.0)
    mass = float(out.sum())  # within rounding of the total
    return out * (total / mass) if mass > 0 else np.full_like(out, total / len(out))


def project_to_simplex(table: Numbers, total: float) -> Array:
    """``argmin |x - table|_2`` over ``x >= 0`` with ``sum x = total``.

    The solution is ``max(table - threshold, 0)``. With the cells sorted downwards, the threshold
    is ``(sum of the first j - total) / j`` for the last j whose cell is above it.

    >>> project_to_simplex(np.array([3.0, 1.0, -2.0]), 2.0).tolist()
    [2.0, 0.0, 0.0]
    """
    cells = np.asarray(table, dtype=np.float64)
    if not (np.isfinite(total) and total >= 0 and cells.size):
        raise PlanError(f"a table of {cells.size} cells cannot have the total {total}")
    falling = np.sort(cells, axis=None)[::-1]
    thresholds = (np.cumsum(falling) - total) / np.arange(1, cells.size + 1)
    # The condition holds for an initial run; total = 0 may leave none of it.
    above = np.flatnonzero(falling > thresholds)
    threshold = thresholds[above[-1] if above.size else 0]
    projected = np.maximum(cells - threshold, 0.0)
    # Rounding only: the sum is within a few ulps of the total.
    mass = projected.sum()
    return np.asarray(projected * (total / mass) if mass > 0 else projected, dtype=np.float64)


# Non-negative least squares


def nonnegative_least_squares(
    gram: Array, target: Array, start: Array, total: float | None, tolerance: float
) -> Array:
    """The weights, from a feasible start; slopes are within ``tolerance`` of the best.

        minimise 1/2 u'Gu - c'u   over u >= 0   (and 1'u = total)

    by steps to the least squares of the columns in use, cut where a weight would fall below zero
    (Lawson, Hanson 1974, "Solving least squares problems", chapter 23). Three departures: columns
    may enter and leave many at a time while the value falls; the matrix carries a ridge around the
    present point (a proximal step: Rockafellar 1976, "Monotone operators and the proximal point
    algorithm"), so dependent columns do no harm and the solution is that of the problem without it;
    and its inverse is updated, not computed again, when columns come and go. Slopes are always
    those of the matrix itself, so an inverse that has lost digits costs steps, not accuracy.
    """
    u = start.copy()
    inverse = _Inverse.of(gram, np.flatnonzero(u > 0))
    best, rest, many, is_full = np.inf, np.inf, max(1, len(u) // 8), True
    tries = min(50, 2 + int(LIMITS.least_squares_multiplications / max(1, len(u)) ** 3))
    for _ in range(LIMITS.least_squares_rounds):
        slope = gram @ u - target
        if is_full:  # only then may others come in
            low, off = _entering(slope, u, inverse, total, tolerance)
            if off <= tolerance:
                break
            value = 0.5 * float(u @ (slope - target))
            # Near the optimum values are equal in floats long before slopes are.
            if value < best or off < 0.5 * rest:
                best, rest, many = min(best, value), min(rest, off), 2 * many
            elif many > 1:  # many at once may drive each other out again; one alone never is
                many = max(1, many // 8)
            elif tries > 0:  # the inverse may have lost too many digits
                inverse, tries = _Inverse.of(gram, inverse.at), tries - 1
            else:
                break  # rounding is all that is left
            inverse = inverse.joined(gram, low[:many])
        weights, is_full = _step(gram, target, u, slope, inverse, total)
        u = np.zeros(len(u))
        u[inverse.at] = weights
        if not is_full:
            inverse = inverse.restricted(weights > 0)
    return u


def _entering(
    slope: Array, u: Array, inverse: _Inverse, total: float | None, tolerance: float
) -> tuple[Integers, float]:
    """Columns not in use that would lower the value, steepest first; how far slopes are off."""
    level = _level(slope, u, total)
    is_out = np.ones(len(u), dtype=np.bool_)
    is_out[inverse.at] = False
    low = np.flatnonzero(is_out & (slope < level - tolerance))
    off = float(np.abs(slope[inverse.at] - level).max(initial=0.0))
    low = low[np.argsort(slope[low])]
    return low, max(off, level - float(slope[low[0]])) if low.size else off


@dataclass(frozen=True, eq=False)
class _Inverse:
    """``(G + ridge I)^-1`` over the columns ``at``."""

    at: Integers
    matrix: Array
    ridge: float

    @classmethod
    def of(cls, gram: Array, at: Integers) -> _Inverse:
        ridge = LIMITS.least_squares_ridge * max(float(gram.diagonal().max(initial=0.0)), 1e-300)
        return cls(at, _ridged(gram[np.ix_(at, at)], ridge), ridge)

    def joined(self, gram: Array, new: Integers) -> _Inverse:
        """The inverse with more columns, by the Schur complement of the new ones."""
        if not new.size:
            return self
        at = np.concatenate([self.at, new])
        across = self.matrix @ gram[np.ix_(self.at, new)]
        corner = gram[np.ix_(new, new)] - gram[np.ix_(new, self.at)] @ across
        inner = _inverted(corner + self.ridge * np.eye(len(new)))
        if inner is None:  # rounding has made it indefinite
            return _Inverse.of(gram, at)
        side = across @ inner
        out = np.empty((len(at), len(at)))
        old = len(self.at)
        out[:old, :old] = self.matrix + side @ across.T
        out[:old, old:] = -side
        out[old:, :old] = -side.T
        out[old:, old:] = inner
        return _Inverse(at, out, self.ridge)

    def restricted(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Inverse:
        """The inverse on fewer columns, by the Schur complement of those that stay."""
        stay, leave = np.flatnonzero(mask), np.flatnonzero(~mask)
        side = self.matrix[np.ix_(stay, leave)]
        corner = self.matrix[np.ix_(leave, leave)]
        moved = np.linalg.solve(corner, side.T) if leave.size > 1 else side.T / corner
        out = self.matrix[np.ix_(stay, stay)] - side @ moved
        return _Inverse(self.at[stay], out, self.ridge)


def _ridged(matrix: Array, ridge: float) -> Array:
    """The inverse with a ridge, one that is larger where rounding has made it indefinite."""
    while True:
        inverse = _inverted(matrix + ridge * np.eye(len(matrix)))
        if inverse is not None:
            return inverse
        ridge *= 100


def _inverted(matrix: Array) -> Array | None:
    """The inverse of a positive definite matrix, None if it is not one."""
    from scipy.linalg.lapack import dpotrf, dpotri

    if not len(matrix):
        return np.zeros((0, 0))
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        return None
    lower, failed = dpotri(factor, lower=1)
    if failed:
        return None
    whole = lower + lower.T
    whole[np.diag_indices_from(whole)] /= 2
    return np.asarray(whole)


def _step(
    gram: Array, target: Array, u: Array, slope: Array, inverse: _Inverse, total: float | None
) -> tuple[Array, bool]:
    """The new weights of the columns in use, and whether the step to the best ones was whole."""
    at = inverse.at
    here = u[at]
    # A slope that all share does not move weights of a fixed total; left in, it costs digits.
    move = -(inverse.matrix @ (slope[at] - _level(slope, u, total)))
    if total is not None:  # weights move by 0 in all
        ones = inverse.matrix.sum(axis=1)
        move -= ones * (move.sum() / ones.sum())
    aim = here + move
    if (aim >= 0).all():
        return _scaled(aim, total), True
    falling = move < 0
    reach = min(1.0, float((here[falling] / -move[falling]).min()))
    cut = np.maximum(here + reach * move, 0.0)
    cut[falling & (here <= -reach * move * (1 + 1e-12))] = 0.0
    # The bent path drops many at once where that is better than to stop at the first.
    bent = [
        _scaled(np.maximum(here + part * move, 0.0), total)
        for part in LIMITS.least_squares_parts
        if part > reach
    ]
    matrix, aims = gram[np.ix_(at, at)], target[at]

    def value(v: Array) -> float:
        return 0.5 * float(v @ (matrix @ v)) - float(aims @ v)

    return min((_scaled(cut, total), *bent), key=value), False


def _level(slope: Array, u: Array, total: float | None) -> float:
    """What the slope of every column in use is at the optimum."""
    return float(slope @ u) / total if total else 0.0


def _scaled(u: Array, total: float | None) -> Array:
    if total is None:
        return u
    mass = float(u.sum())
    return u * (total / mass) if mass > 0 else u


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
