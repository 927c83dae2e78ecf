# SPDX-License-Identifier: Apache-2.0
"""The greatest column norm of a union of terms, without building its matrix.

The column of a cell has p-th power norm ``sum_t s_t prod_A n_{t,A}(cell)``, where ``n_{t,A}`` is an
array over one attribute (or over a few, for explicit terms). The greatest over all cells is
found exactly when it can be: attributes fall into independent blocks, only the non-dominated
cells of a block can be part of a maximum, and the combinations of those are enumerated. When
they are too many, the sum of the terms' own maxima is used, which is never too small.

Theorem (Dwork, McSherry, Nissim, Smith 2006, for p = 1; Dwork et al. 2006, "Our data, ourselves",
for p = 2): the 1 -> p norm of M is the L_p sensitivity of ``h -> M h`` when one record is added
or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from sfumato.workload.queries import Array
from sfumato.workload.terms import Term

__all__ = ["ColumnNorm", "greatest_column_power"]

BLOCK_CELLS = 2**22  # cells of a block of attributes that are searched together
COMBINATIONS = 2**20  # combinations of non-dominated cells that are tried
PARETO = 512  # distinct columns among which dominated ones are dropped

# Sums and products of at most 2^20 non-negative floats err by less than 2^20 * 2^-52 relatively;
# the answer is multiplied by this, so that it is never below the exact value.
ROUND_UP = 1 + 2.0**-30


@dataclass(frozen=True, slots=True)
class ColumnNorm:
    """The p-th power of the greatest column norm; ``is_exact`` is false for an upper bound."""

    power: float
    is_exact: bool


def greatest_column_power(terms: Sequence[Term], scales: Sequence[float], p: int) -> ColumnNorm:
    """``max over cells of sum_t scales[t] * sum_{q in t} |q(cell)|^p``, rounded up.

    A Laplace or Gaussian release that adds noise of scale 1 to a term divided by its noise scale
    ``b`` passes ``scales = b^-p``.
    """
    scale = np.array(scales, dtype=np.float64)
    factors: list[list[tuple[tuple[str, ...], Array]]] = []
    exact = True
    for i, term in enumerate(terms):
        varying = []
        for names, values in term.column_factors(p):
            if names and values.min() < values.max():
                varying.append((names, values))
            else:
                scale[i] *= float(values.max(initial=0.0)) if names else float(values)
                exact &= bool(names)
        factors.append(varying)
    blocks = _blocks(factors)
    shapes = _shapes(factors)
    candidates = []
    for block in blocks:
        if prod(shapes[name] for name in block) > BLOCK_CELLS:
            return ColumnNorm(_sum_of_maxima(factors, scale) * ROUND_UP, is_exact=False)
        candidates.append(_non_dominated(_columns(block, factors, shapes)))
    if prod(c.shape[1] for c in candidates) > COMBINATIONS:
        return ColumnNorm(_sum_of_maxima(factors, scale) * ROUND_UP, is_exact=False)
    best = 0.0
    for choice in product(*(range(c.shape[1]) for c in candidates)):
        column = scale.copy()
        for cells, j in zip(candidates, choice, strict=True):
            column *= cells[:, j]
        best = max(best, float(column.sum()))
    return ColumnNorm(best * ROUND_UP, exact)


def _sum_of_maxima(factors: list[list[tuple[tuple[str, ...], Array]]], scale: Array) -> float:
    return float(sum(s * prod(v.max() for _, v in f) for s, f in zip(scale, factors, strict=True)))


def _shapes(factors: list[list[tuple[tuple[str, ...], Array]]]) -> dict[str, int]:
    return {n: s for f in factors for names, v in f for n, s in zip(names, v.shape, strict=True)}


def _blocks(factors: list[list[tuple[tuple[str, ...], Array]]]) -> list[tuple[str, ...]]:
    """Attributes that share an array belong together."""
    blocks: list[set[str]] = []
    for names in (names for f in factors for names, _ in f):
        joined = [b for b in blocks if b & set(names)]
        blocks = [b for b in blocks if not b & set(names)] + [set(names).union(*joined)]
    return [tuple(sorted(b)) for b in blocks]


def _columns(
    block: tuple[str, ...],
    factors: list[list[tuple[tuple[str, ...], Array]]],
    shapes: dict[str, int],
) -> Array:
    """Terms x cells of the block: the product of each term's arrays over the block."""
    shape = tuple(shapes[name] for name in block)
    out = np.ones((len(factors), prod(shape)))
    for i, term in enumerate(factors):
        for names, values in term:
            if names[0] not in block:
                continue
            order = [names.index(n) for n in block if n in names]
            spread = [shapes[n] if n in names else 1 for n in block]
            aligned = values.transpose(order).reshape(spread)
            out[i] *= np.broadcast_to(aligned, shape).reshape(-1)
    return out


def _non_dominated(columns: Array) -> Array:
    """The distinct columns that no other column exceeds everywhere."""
    constant = (columns == columns[:, :1]).all(axis=1)
    varying = np.unique(columns[~constant], axis=0)
    distinct = np.unique(columns, axis=1)
    if len(varying) == 1:
        row = int(np.flatnonzero(~constant)[0])
        return distinct[:, [int(distinct[row].argmax())]]
    # Visiting by falling sum, a column can only be dominated by one that was kept before it.
    kept: list[Array] = []
    for j in np.argsort(-distinct.sum(axis=0), kind="stable"):
        column = distinct[:, j]
        if not any((k >= column).all() for k in kept[:PARETO]):
            kept.append(column)
    return np.array(kept).T
