# SPDX-License-Identifier: Apache-2.0
"""Distances that know the noise: the inverse of the covariance of the answers.

With normal noise of covariance S the projection in the norm ``|x|^2 = x'S^-1 x`` is the most
likely answer that some data set has (Gauss, Markov: without the constraints it is least squares).

Answers made from fewer measurements than there are queries have a singular S: some combinations of
them carry no noise. Those say nothing when they vanish for every data set, as they do when the
queries are as dependent as their answers; the pseudo-inverse is then the metric. When they fix the
answers beyond that, they are refused.
"""

from __future__ import annotations

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.workload.queries import Array, check_entries

__all__ = ["check_exact_combinations", "inverse_covariance"]

SINGULAR = 1e-10  # of the greatest variance: below it a combination counts as exact
CONSISTENT = 1e-6  # of the greatest answer: how far exact combinations may be off


def inverse_covariance(covariance: Array, queries: int) -> tuple[Array, Array]:
    """The (pseudo-)inverse and, as columns, the combinations without noise."""
    given = np.asarray(covariance)
    if given.shape != (queries, queries):
        raise WorkloadError(
            f"a covariance of {queries:,} answers has {queries:,} rows and columns, got an array "
            f"of shape {given.shape}"
        )
    check_entries(queries * queries, f"a covariance of {queries:,} answers")
    if given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise WorkloadError("a covariance holds finite numbers only")
    exact = np.asarray(given, dtype=np.float64)
    scale = float(np.abs(exact).max(initial=0.0))
    if scale == 0:
        raise WorkloadError(
            "a covariance of zeros says that the answers are exact; they need no projection"
        )
    if float(np.abs(exact - exact.T).max()) > 1e-8 * scale:
        raise WorkloadError("a covariance is symmetric, this one is not; give (S + S') / 2")
    values, vectors = np.linalg.eigh((exact + exact.T) / 2)
    if values[0] < -1e-8 * values[-1]:
        raise WorkloadError(
            f"a covariance has no negative eigenvalue, this one has {values[0]:.3g}; its greatest "
            f"is {values[-1]:.3g}"
        )
    kept = values > SINGULAR * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    return half @ half.T, vectors[:, ~kept]


def check_exact_combinations(q: Quadratic, exact: Array, total: float | None) -> None:
    """Refuse combinations without noise unless all data sets (of this total) agree with them.

    Three combinations of them with coefficients in general position stand for all: the others
    vanish where these do, but for coefficients of measure zero.
    """
    if not exact.shape[1]:
        return
    joint = len(exact)
    given = q.values[:joint]
    scale = max(float(np.abs(given).max(initial=0.0)), total or 0.0)
    for turn in (1.0, 2.0, 3.0):
        mixed = exact @ np.cos(turn + np.sqrt(2.0) * turn * np.arange(exact.shape[1]) ** 2)
        wide = np.concatenate([mixed, np.zeros(len(q.values) - joint)])
        columns = q.spread(q.adjoint(wide))
        columns = columns if q.grid.possible is None else columns[q.grid.possible]
        size = float(np.abs(mixed).sum())
        is_even = float(np.ptp(columns)) <= CONSISTENT * size
        is_zero = float(np.abs(columns).max()) <= CONSISTENT * size
        reached = float(columns.mean()) * (total or 0.0)
        is_met = abs(float(mixed @ given) - reached) <= CONSISTENT * size * max(scale, 1e-300)
        if not (is_met and (is_zero or (is_even and total is not None))):
            raise WorkloadError(
                "the covariance is singular: some combination of the answers is said to be exact, "
                "but data sets do not agree on it; add the variance that it really has, or leave "
                "out queries that follow from others"
            )
