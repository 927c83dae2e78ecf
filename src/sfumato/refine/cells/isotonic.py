# SPDX-License-Identifier: Apache-2.0
"""Projection of running totals: exact, in one pass over the cells.

Running totals of a histogram are any sequence that does not fall and stays within [0, n]. The
nearest one in a weighted norm is isotonic regression cut to the ends (Ayer, Brunk, Ewing, Reid,
Silverman 1955, "An empirical distribution function for sampling with incomplete information";
cutting is exact: Barlow, Brunk 1972, "The isotonic regression problem and its dual").
"""

from __future__ import annotations

import numpy as np

from sfumato.refine.cells.quadratic import Quadratic
from sfumato.workload.queries import Array, Prefix

__all__ = ["fit_running_totals"]


def fit_running_totals(q: Quadratic, total: float | None) -> Array | None:
    """The histogram; None where other things are asked, or some cells are impossible."""
    if q.precision is not None or len(q.grid.names) != 1 or q.grid.possible is not None:
        return None
    size = q.grid.size
    weight, sums = np.zeros(size), np.zeros(size)
    for part in q.fit.parts:
        term = part.term.as_product()
        if term is None:
            return None
        queries = [s for _, s in term.factors]
        if not queries:
            at = slice(size - 1, size)
        elif isinstance(queries[0], Prefix):
            at = slice(None)
        else:
            return None
        weight[at] += part.weights
        sums[at] += part.weights * part.values
    means = np.divide(sums, weight, out=np.zeros(size), where=weight > 0)
    return _histogram(means, weight, total)


def _histogram(means: Array, weight: Array, total: float | None) -> Array:
    """Steps between the nearest running totals; those of no weight are where their left is."""
    from scipy.optimize import isotonic_regression

    inner = np.flatnonzero(weight > 0)
    if total is not None:
        inner = inner[inner < len(means) - 1]  # the last one is the total
    running = np.zeros(len(means))
    if inner.size:
        nearest = isotonic_regression(means[inner], weights=weight[inner]).x
        high = np.inf if total is None else total
        marked = np.zeros(len(means), dtype=np.int64)
        marked[inner] = 1
        before = np.cumsum(marked)
        running = np.concatenate([[0.0], np.clip(nearest, 0.0, high)])[before]
    if total is not None:
        running[-1] = total
    return np.diff(running, prepend=0.0)
