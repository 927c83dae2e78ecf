# SPDX-License-Identifier: Apache-2.0
"""The least possible largest error of a factorization, with a lower bound that proves it.

Over all factorizations ``F = R M`` the least greatest query error at unit noise is gamma_2(F),

    gamma_2^2 = min over X = M'M with X_jj <= 1  of  max_q f_q' X^-1 f_q.

A maximum over queries is at least every mean of them, so weights w >= 0 on queries and v >= 0 on
cells give, by the bound of ``optimum.py`` and with B = W^1/2 F D^1/2, D = diag(v), W = diag(w),

    (tr |B|)^2 / (sum(v) sum(w))  <=  gamma_2^2,          tr |B| = tr (B'B)^1/2 = tr (B B')^1/2.

The feasible X = D^-1/2 (B'B)^1/2 D^-1/2 has X_jj = diag((B'B)^1/2)_j / v_j, and the errors are
f_q' X^-1 f_q = diag((B B')^1/2)_q / w_q: cells and queries play the same part. At the optimum both
are level wherever a weight is positive. tr |B| is jointly concave in (v, w) (it is a fidelity), so
a smooth ascent finds its maximum; every step gives a valid bound and a feasible X.

References: Lee, Shraibman, Spalek 2008, "A direct product theorem for discrepancy",
for the dual of gamma_2; Edmonds, Nikolov, Ullman 2020, "The power of factorization mechanisms in
local and central differential privacy"; Alberti 1983 and Uhlmann 1976 for the concavity.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.effort import must_stop, spend
from sfumato.plan.solve.optimum import CORRECTIONS, LONGEST, MEMORY, RELAXATION, STARTS
from sfumato.workload.queries import Array

__all__ = ["CertifiedLargest", "certified_largest"]

# The share of all weight that is spread evenly: no cell or query is lost for good, and the bound
# falls by less than twice this part of itself.
SPREAD = 1e-10
MIXED_STEPS = 60


@dataclass(frozen=True, slots=True)
class CertifiedLargest:
    """The best weights found; ``upper`` and ``lower`` enclose ``gamma_2^2``.

    With B = W^1/2 F D^1/2 the feasible X is ``D^-1/2 (B'B)^1/2 D^-1/2 / scale``; ``v`` and ``w``
    sum to 1 over all cells and all queries.
    """

    v: Array
    w: Array
    scale: float
    upper: float
    lower: float
    steps: int

    @property
    def certificate(self) -> float:
        """Largest error over its lower bound."""
        return sqrt(self.upper / self.lower)


def certified_largest(
    root_diagonals: Callable[[Array, Array], tuple[Array, Array]],
    cells: int,
    queries: int,
    tolerance: float = 1e-4,
    most_steps: int = 500,
    all_bind: bool = False,
    cell_copies: Array | None = None,
    query_copies: Array | None = None,
    start: tuple[Array, Array] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> CertifiedLargest:
    """Maximise the bound over (v, w) until the certificate is within ``1 + tolerance``.

    ``root_diagonals(v, w)`` returns the diagonals of (B'B)^1/2, one entry per cell, and of
    (B B')^1/2, one per query, for weights above 0. Weights of queries in the objective belong in
    F. ``cell_copies`` and ``query_copies`` count what shares a weight by symmetry; ``all_bind``
    says that no cell and no query is expected to have weight 0 at the optimum.
    """
    from scipy.optimize import minimize

    copies = (
        np.ones(cells) if cell_copies is None else cell_copies,
        np.ones(queries) if query_copies is None else query_copies,
    )
    search = _Search(root_diagonals, copies, (1 + tolerance) ** 2, most_steps, progress)
    v, w = start if start is not None else (1 / copies[0], 1 / copies[1])
    with suppress(_Reached):
        if all_bind:
            _mix(search, np.log(v), np.log(w))
        for _ in range(STARTS):  # a line search that fails for rounding is started afresh
            minimize(
                search.negative_log_bound,
                search.roots(v, w),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": most_steps, "maxcor": CORRECTIONS, "ftol": 0.0, "gtol": 0.0},
            )
            v, w = search.weights(v, w)
    return search.best()


class _Reached(Exception):
    """The certificate is good enough, or the steps are used up."""


class _Search:
    """What has been proved so far: the greatest lower bound, the least error of a feasible X."""

    def __init__(
        self,
        root_diagonals: Callable[[Array, Array], tuple[Array, Array]],
        copies: tuple[Array, Array],
        ratio: float,
        most_steps: int,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        self.root_diagonals, self.copies, self.ratio = root_diagonals, copies, ratio
        self.most_steps, self.progress = most_steps, progress
        self.steps, self.lower, self.upper, self.scale = 0, 0.0, np.inf, 1.0
        self.found: tuple[Array, Array] | None = None

    def prove(self, v: Array, w: Array) -> tuple[float, Array, Array]:
        """``tr |B|``, the diagonal of X and the squared errors, for weights that sum to 1."""
        self.steps += 1
        cells, queries = self.root_diagonals(v, w)
        spend(CORRECTIONS * (len(v) + len(w)))
        trace = float(self.copies[0] @ cells)
        if not trace > 0:
            raise PlanError("the workload is zero: there is nothing to factorize")
        diagonal, errors = cells / v, queries / w
        self.lower = max(self.lower, trace**2)
        scale = float(diagonal.max())
        if scale * float(errors.max()) < self.upper:
            self.upper, self.scale, self.found = scale * float(errors.max()), scale, (v, w)
        if self.progress is not None:
            self.progress(self.steps, sqrt(self.upper / self.lower) - 1)
        is_proved = self.upper <= self.lower * self.ratio
        if is_proved or self.steps >= self.most_steps or must_stop():
            raise _Reached
        return trace, diagonal, errors

    def negative_log_bound(self, z: Array) -> tuple[float, Array]:
        """``-2 log tr |B|`` and its gradient, with weights proportional to z^2 / copies.

        d tr|B| / dv = diag((B'B)^1/2) / 2v, and the same for w.
        """
        z1, z2 = np.split(z, [len(self.copies[0])])
        trace, diagonal, errors = self.prove(
            _spread(z1, self.copies[0]), _spread(z2, self.copies[1])
        )
        slopes = []
        for part, level in ((z1, diagonal), (z2, errors)):
            squares = part**2
            total = float(squares.sum())
            mean = float(level @ squares) / total
            slopes.append(part * (mean - level) * (2 / (total * trace * (1 + SPREAD))))
        return -2 * log(trace), np.concatenate(slopes)

    def roots(self, v: Array, w: Array) -> Array:
        """The z of given weights, of length 1 for cells and for queries: one scale for both."""
        parts = [np.sqrt(c * x) for c, x in zip(self.copies, (v, w), strict=True)]
        return np.concatenate([z / sqrt(float(z @ z)) for z in parts])

    def weights(self, v: Array, w: Array) -> tuple[Array, Array]:
        """The best weights so far, or the given ones."""
        return (v, w) if self.found is None else self.found

    def best(self) -> CertifiedLargest:
        if self.found is None:
            raise PlanError("the weights of the largest error are not finite; please report this")
        v, w = self.found
        return CertifiedLargest(v, w, self.scale, self.upper, self.lower, self.steps)


def _spread(z: Array, copies: Array) -> Array:
    """Weights proportional to ``z^2 / copies``, none of them 0, whose sum over copies is 1."""
    squares = z**2
    share = (squares / squares.sum() + SPREAD / len(z)) / (1 + SPREAD)
    return np.asarray(share / copies, dtype=np.float64)


def _mix(search: _Search, x: Array, y: Array) -> None:
    """``log v <- log v + log diag(X)``, ``log w`` likewise with the errors, relaxed and mixed."""
    positions: list[Array] = []
    residuals: list[Array] = []
    both, cells = np.concatenate([x, y]), len(x)
    for _ in range(MIXED_STEPS):
        logs = np.split(both, [cells])
        v, w = (np.exp(part - part.max()) for part in logs)
        v, w = v / float(search.copies[0] @ v), w / float(search.copies[1] @ w)
        trace, diagonal, errors = search.prove(v, w)
        residual = RELAXATION * np.log(np.concatenate([diagonal, errors]) / trace)
        positions = [*positions, both][-MEMORY - 1 :]
        residuals = [*residuals, residual][-MEMORY - 1 :]
        step = residual
        if len(residuals) > 1:
            dr = np.diff(np.array(residuals), axis=0)
            dx = np.diff(np.array(positions), axis=0)
            mix, *_ = np.linalg.lstsq(dr @ dr.T, dr @ residual, rcond=1e-12)
            step = residual - mix @ (dx + dr)
        both = both + np.clip(step, -LONGEST, LONGEST)
