# SPDX-License-Identifier: Apache-2.0
"""Cells of conditions that are known so far, as the truth values of the conditions there.

Optima over all cells are found on few of them: the cells at which the strategy found so far is most
sensitive join (Kelley 1960, "The cutting-plane method for solving convex programs").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfumato.workload.clauses import Clauses
from sfumato.workload.climbing import climbed, starting_cells
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["common", "first_cells", "joined", "too_long"]

JOINED = 256  # cells that join in one round


def first_cells(clauses: Clauses, weights: Array, starts: int) -> Mask:
    """Cells where every clause holds, and cells climbed from some of them."""
    every = starting_cells(clauses, max(starts, clauses.clauses))
    some = every if len(every) <= starts else starting_cells(clauses, starts, 1)
    found = np.concatenate([clauses.at(every), climbed(clauses, weights, some)])
    return np.unique(clauses.holds(found), axis=0)


def common(cells: Mask, weights: Array) -> Callable[[Array], Array]:
    """``v -> v_i sum_q x_iq w_q / sqrt((X'v)_q)``: what ``optimum.py`` asks of a problem."""
    truth = cells.astype(np.float64)

    def evaluate(v: Array) -> Array:
        return np.asarray(v * (truth @ (weights / np.sqrt(truth.T @ v))), dtype=np.float64)

    return evaluate


def too_long(holds: Mask, form: Array, longer: float) -> tuple[Mask, float]:
    """The different columns above 1, the longest first, and how long that is.

    The length of x is ``x'form x``, or ``form'x`` for a vector.
    """
    truth = np.unique(holds, axis=0).astype(np.float64)
    values = truth @ form if form.ndim == 1 else np.einsum("ij,ij->i", truth @ form, truth)
    order = np.argsort(-values, kind="stable")[:JOINED]
    return truth[order[values[order] > 1 + longer]].astype(np.bool_), float(values.max())


def joined(cells: Mask, v: Array, found: Mask) -> tuple[Mask, Array]:
    """More cells, with first guesses of their weights."""
    known = {row.tobytes() for row in cells}
    new = found[[row.tobytes() not in known for row in found]]
    return np.concatenate([cells, new]), np.append(v, np.full(len(new), float(v.mean())))
