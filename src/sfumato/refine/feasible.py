# SPDX-License-Identifier: Apache-2.0
"""From tables that nearly agree and are nearly non-negative to tables that are exactly both.

An upper bound on a constrained least value needs a point that keeps every constraint. Tables over
two attributes are rounded to common one-way margins as transport plans are (Altschuler, Weed,
Rigollet 2017, "Near-linear time approximation algorithms for optimal transport via Sinkhorn
iteration", Algorithm 2): the change is at most twice the difference of the margins. Wider tables
are mixed with tables that agree and are positive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.refine.residuals import Layout
from sfumato.workload.queries import Array

__all__ = ["feasible_tables"]

FLOOR = 1e-3  # the share of the uniform in the model that negative cells are mixed with


def feasible_tables(layout: Layout, tables: Sequence[Array], total: float) -> list[list[Array]]:
    """Candidates: non-negative tables of this total that agree, near agreeing ``tables``."""
    if total == 0:
        return [[np.zeros_like(x) for x in tables]]
    margins = _one_way(layout, tables, total)
    if all(len(s.shape) <= 2 for s in layout.tops):
        return [_rounded(layout, tables, margins)]
    return [_mixed(tables, _products(layout, margins, total, floor)) for floor in (FLOOR, 1.0)]


def _one_way(layout: Layout, tables: Sequence[Array], total: float) -> dict[str, Array]:
    """The one-way margins, cut at zero and scaled to the total."""
    out: dict[str, Array] = {}
    for stack, stacked in zip(layout.tops, tables, strict=True):
        for t, names in enumerate(stack.sets):
            for axis, name in enumerate(names):
                if name not in out:
                    others = tuple(i for i in range(len(names)) if i != axis)
                    out[name] = np.maximum(stacked[t].sum(axis=others), 0.0)
    for name, margin in out.items():
        mass = float(margin.sum())
        out[name] = (
            margin * (total / mass) if mass > 0 else np.full(len(margin), total / len(margin))
        )
    return out


def _rounded(
    layout: Layout, tables: Sequence[Array], margins: dict[str, Array]
) -> list[Array]:
    out = []
    for stack, stacked in zip(layout.tops, tables, strict=True):
        if len(stack.shape) < 2:
            out.append(np.stack([margins[names[0]] for names in stack.sets]))
            continue
        x = np.maximum(stacked, 0.0)
        first = np.stack([margins[names[0]] for names in stack.sets])
        second = np.stack([margins[names[1]] for names in stack.sets])
        x *= _shrink(first, x.sum(axis=2))[:, :, None]
        x *= _shrink(second, x.sum(axis=1))[:, None, :]
        rows = np.maximum(first - x.sum(axis=2), 0.0)
        columns = np.maximum(second - x.sum(axis=1), 0.0)
        missing = columns.sum(axis=1)
        scale = np.divide(1.0, missing, out=np.zeros_like(missing), where=missing > 0)
        x += (rows * scale[:, None])[:, :, None] * columns[:, None, :]
        out.append(x)
    return out


def _shrink(wanted: Array, got: Array) -> Array:
    return np.minimum(1.0, np.divide(wanted, got, out=np.ones_like(got), where=got > 0))


def _products(layout: Layout, margins: dict[str, Array], total: float, floor: float) -> list[Array]:
    """Products of one-way shares, each mixed with the uniform: positive, and they agree."""
    shares = {k: (1 - floor) * m / total + floor / len(m) for k, m in margins.items()}
    out = []
    for stack in layout.tops:
        stacked = np.empty((len(stack.sets), *stack.shape))
        for t, names in enumerate(stack.sets):
            table = np.full((), total)
            for name in names:
                table = table[..., None] * shares[name]
            stacked[t] = table
        out.append(stacked)
    return out


def _mixed(tables: Sequence[Array], positive: list[Array]) -> list[Array]:
    """``(1 - t) x + t p`` with the least t that leaves no cell negative."""
    share = 0.0
    for x, p in zip(tables, positive, strict=True):
        low = x < 0
        if low.any():
            share = max(share, float((-x[low] / (p[low] - x[low])).max()))
    for x, p in zip(tables, positive, strict=True):
        p *= share
        p += (1 - share) * x
        np.maximum(p, 0.0, out=p)  # rounding
    return positive
