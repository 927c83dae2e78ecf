# SPDX-License-Identifier: Apache-2.0
"""How little any strategy can err on conditions over more cells than can be listed.

A lower bound for some of the cells is one for all of them, as fewer cells only relax what a
strategy must obey; and one for some of the conditions is one for all, as the others only add to
the error. The optimum is solved on the cells known so far (``roots.py``), the cells whose columns
came out longest join, and so on. The search for cells proves nothing and need not: each one is a
cell of the domain, whose truth values are known.

Replaced records: for weights u of sum 1 on cells, pairs of cells weighted by the products have the
Laplacian ``L = diag(u) - u u'`` and the sum ``(1 - sum u^2) / 2``. A strategy of diameter 1 obeys
``tr(X L) <= (1 - sum u^2) / 2``, so that ``(tr (F L F')^1/2)^2`` over that is below every error, by
the proof of ``optimum.py`` with L in the place of D. A good u is the one of the bound above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sfumato.plan.effort import must_stop
from sfumato.plan.optimal.known_cells import common, joined, too_long
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.roots import best_root, root_diagonal
from sfumato.workload.clauses import Clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["Lower", "lower_bound"]

SOLVED = 512  # different conditions up to which the bound is driven to the optimum
WORK = 1400  # conditions times rounds
ROUNDS = 12
EIGEN_ROUNDING = 2.0**-50  # eigenvalues below this, in greatest ones times their number, are none
STARTS = 192  # cells from which each search climbs
TOLERANCE = 1e-2  # of the optimum of a round
LONGER = 1e-3  # how much too long a column is that joins

Progress = Callable[[int, float], None]


class Lower(NamedTuple):
    """Below the error of every strategy, one record added or removed, and replaced; 0 if unknown.

    Errors are sums of weighted squares, or the largest of them.
    """

    added: float
    replaced: float


def lower_bound(
    clauses: Clauses, weights: Array, objective: str, cells: Mask, progress: Progress | None
) -> Lower:
    """From truth values at cells of the domain, and more cells that are found on the way.

    Only conditions that were read count: of others it is not known where they hold.
    """
    read = clauses.is_read
    if not read.any():
        return Lower(0.0, 0.0)
    asked, lower = weights[read], 0.0
    rounds = WORK // len(asked) if len(asked) <= SOLVED else 0
    for turn in range(min(ROUNDS, rounds)):
        truth = _columns(cells, read)
        root = best_root(np.ascontiguousarray(truth.T.astype(np.int8)), asked, objective, TOLERANCE)
        lower = max(lower, root.lower)
        form = np.zeros((clauses.count, clauses.count))
        form[np.ix_(read, read)] = root.mixing.T @ root.mixing
        reached = climbed(clauses, form, starting_cells(clauses, STARTS, turn))
        found, longest = too_long(clauses.holds(reached), form, LONGER)
        if progress is not None:
            progress(len(cells), longest - 1)
        if not len(found) or must_stop():
            break
        cells, _ = joined(cells, np.ones(len(cells)), found)
    divisor = len(asked) if objective == "max" else 1  # a maximum is no less than a mean
    mean = _of_the_mean(_columns(cells, read), asked)
    return Lower(max(lower, mean.added / divisor), mean.replaced / divisor)


def _columns(cells: Mask, read: Mask) -> Mask:
    """The different columns that are not 0."""
    truth = cells[:, read]
    return np.unique(truth[truth.any(axis=1)], axis=0)


def _of_the_mean(truth: Mask, weights: Array) -> Lower:
    """Bounds on the sum of weighted squares, by weights on the given cells."""
    matrix = truth.T.astype(np.float64) * weights[:, None]
    roots = root_diagonal(matrix)
    if len(weights) > SOLVED:  # the weights of a simpler problem
        v = certified_optimum(common(truth, weights), len(truth), LONGER).v
    else:
        v = certified_optimum(roots, len(truth), TOLERANCE).v
    added = float(roots(v).sum()) ** 2 / float(v.sum())
    u = v / float(v.sum())
    mean = matrix @ u
    values = np.linalg.eigvalsh((matrix * u) @ matrix.T - np.outer(mean, mean))
    kept = values[values > values[-1] * len(values) * EIGEN_ROUNDING]
    pairs = (1 - float(u @ u)) / 2
    replaced = float(np.sqrt(kept).sum()) ** 2 / pairs if pairs > 0 else 0.0
    return Lower(added, replaced)
