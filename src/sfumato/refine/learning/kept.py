# SPDX-License-Identifier: Apache-2.0
"""The estimate of an adaptive release, made to keep constraints: weighted rows of all attributes.

What was learnt is a weighted sample over the attributes that are asked about. Rows that cannot be
records are left out, attributes that nobody asks about are drawn as published tables and conditions
have them, and the weights are raked to all published tables: the nearest ones in relative entropy
(``rows/possible.py``). Answers of such rows are those of a data set that meets the constraints.

Public arithmetic with repeatable draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.domain import Domain
from sfumato.refine.draws import Draws
from sfumato.refine.feasibility import witness
from sfumato.refine.fit import Names
from sfumato.refine.rows.possible import make_possible, meet_published
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.queries import Array, Integers

__all__ = ["KeptRows", "kept_rows"]

ENOUGH = 30_000  # rows, where attributes that nobody asks about are drawn


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Rows of the whole domain (attribute x row), weights with the number of records as sum.

    ``are_met`` says whether the published tables are met, up to rounding; no row is impossible.
    """

    domain: Domain
    codes: Integers
    weights: Array
    are_met: bool

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.weights.sum())

    def table(self, names: Names) -> Array:
        """The counts over some attributes, an axis each, in the order of the domain."""
        shape = tuple(self.domain[n].size for n in names)
        columns = tuple(self.codes[self.domain.index(n)] for n in names)
        none = np.zeros(self.codes.shape[1], dtype=np.int64)
        at = np.ravel_multi_index(columns, shape) if columns else none
        counts = np.bincount(at, self.weights, minlength=prod(shape))
        return np.asarray(counts, dtype=np.float64).reshape(shape)


def kept_rows(
    constraints: Constraints, asked: Domain, cells: Integers, weights: Array, total: float
) -> KeptRows:
    """Rows that keep the constraints, near the given ones (row x attribute that is asked about)."""
    whole = constraints.domain
    total = total if constraints.total is None else constraints.total
    held = (weights > 0) & constraints.within(asked).are_possible(cells.T)
    if not held.any():  # nothing that was learnt is possible: any rows that are
        found = witness(constraints)
        return KeptRows(whole, found.codes, found.weights, True)
    draws = Draws("rows that keep constraints")
    shares = [_shares(constraints, name) for name in whole.names]
    is_all = len(asked) == len(whole)
    copies = 1 if is_all else -(-ENOUGH // int(held.sum()))  # each is completed in its own way
    left = np.repeat(weights[held], copies)
    codes = np.empty((len(whole), len(left)), dtype=np.int64)
    for i, name in enumerate(whole.names):
        if name in asked.names:
            codes[i] = np.repeat(cells[held, asked.index(name)], copies)
        else:
            edges = np.cumsum(shares[i])
            at = draws.uniforms(codes.shape[1]) * edges[-1]
            codes[i] = np.minimum(np.searchsorted(edges, at, side="right"), len(edges) - 1)
    codes = make_possible(constraints, codes, shares, draws.uniforms, kept=asked.names)
    left *= total / float(left.sum())
    if not constraints.published:
        return KeptRows(whole, codes, left, True)
    met = meet_published(constraints, codes, left)
    return KeptRows(whole, met.codes, met.weights, met.off <= CLOSE)


def _shares(constraints: Constraints, name: str) -> Array:
    """What is published about an attribute, else all its cells alike."""
    for table in constraints.published:
        if name in table.names:
            return table.margin((name,))
    return np.ones(constraints.domain[name].size)
