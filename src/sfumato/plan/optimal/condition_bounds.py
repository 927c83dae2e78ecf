# SPDX-License-Identifier: Apache-2.0
"""How little any strategy can err on conditions over more cells than can be listed.

A lower bound for some of the cells is one for all of them, as fewer cells only relax what a
strategy must obey; and one for some of the conditions is one for all, as the others only add to
the error. The optimum is solved on the cells known so far (``roots.py``), the cells whose columns
came out longest join, and so on. The search for cells proves nothing and need not: each one is a
cell of the domain, whose truth values are known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfumato.plan.effort import time_is_up
from sfumato.plan.optimal.known_cells import common, joined, too_long
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.roots import best_root, root_diagonal
from sfumato.workload.clauses import Clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["lower_bound"]

SOLVED = 512  # different conditions up to which the bound is driven to the optimum
WORK = 1400  # conditions times rounds
STARTS = 192  # cells from which each search climbs
TOLERANCE = 1e-2  # of the optimum of a round
LONGER = 1e-3  # how much too long a column is that joins

Progress = Callable[[int, float], None]


def lower_bound(
    clauses: Clauses, weights: Array, objective: str, cells: Mask, progress: Progress | None
) -> float:
    """Below the error of every strategy: the sum of weighted squares, or the largest; 0 if unknown.

    ``cells`` are truth values at cells of the domain. Only conditions that were read count: of
    others it is not known where they hold.
    """
    read = clauses.is_read
    if not read.any():
        return 0.0
    k = int(read.sum())
    if k > SOLVED:
        truth = cells[:, read]
        best = certified_optimum(common(truth, weights[read]), len(truth), LONGER)
        roots = root_diagonal(truth.T.astype(np.float64) * weights[read][:, None])(best.v)
        return float(roots.sum()) ** 2 / float(best.v.sum()) / (k if objective == "max" else 1)
    lower = 0.0
    for turn in range(max(2, min(12, WORK // k))):
        truth = cells[:, read]
        truth = np.unique(truth[truth.any(axis=1)], axis=0)
        matrix = np.ascontiguousarray(truth.T.astype(np.int8))
        root = best_root(matrix, weights[read], objective, TOLERANCE)
        lower = max(lower, root.lower)
        form = np.zeros((clauses.count, clauses.count))
        form[np.ix_(read, read)] = root.mixing.T @ root.mixing
        reached = climbed(clauses, form, starting_cells(clauses, STARTS, turn))
        found, longest = too_long(clauses.holds(reached), form, LONGER)
        if progress is not None:
            progress(len(cells), longest - 1)
        if not len(found) or time_is_up():
            break
        cells, _ = joined(cells, np.ones(len(cells)), found)
    return lower
