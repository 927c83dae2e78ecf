# SPDX-License-Identifier: Apache-2.0
"""From tables that nearly agree and are nearly non-negative to tables that are exactly both.

An upper bound on a constrained least value needs a point that keeps every constraint. Tables over
two attributes are rounded to common one-way margins as transport plans are (Altschuler, Weed,
Rigollet 2017, "Near-linear time approximation algorithms for optimal transport via Sinkhorn
iteration", Algorithm 2): the change is at most twice the difference of the margins. Wider tables
are mixed with the margins of a histogram that is positive wherever they are negative: a little of
the uniform and the sum over all tables of what is negative still, spread evenly along the other
attributes; or independence of all attributes, which is best while noise is all there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.refine.outer.residuals import Layout
from sfumato.workload.queries import Array

__all__ = ["feasible_tables"]

SHARES = (0.0, 0.01, 0.1)  # of the uniform, before what is still negative is patched
FLOOR = 1e-3  # the share of the uniform in the model of independence


def feasible_tables(layout: Layout, tables: Sequence[Array], total: float) -> Iterator[list[Array]]:
    """Candidates: non-negative tables of this total that agree, near agreeing ``tables``."""
    if total == 0:
        yield [np.zeros_like(x) for x in tables]
        return
    margins = _one_way(layout, tables, total)
    if all(len(s.shape) <= 2 for s in layout.tops):
        yield _rounded(layout, tables, margins)
        return
    for share in SHARES:
        even = [np.full_like(x, total / s.cells) for x, s in zip(tables, layout.tops, strict=True)]
        for x, p in zip(tables, even, strict=True):
            p *= share
            p += (1 - share) * x
        yield _mixed(even, _patches(layout, even), total)
    yield _mixed(tables, _products(layout, margins, total), total)


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


def _rounded(layout: Layout, tables: Sequence[Array], margins: dict[str, Array]) -> list[Array]:
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


def _products(layout: Layout, margins: dict[str, Array], total: float) -> list[Array]:
    """Products of one-way shares, each mixed with the uniform: positive, and they agree."""
    shares = {k: (1 - FLOOR) * m / total + FLOOR / len(m) for k, m in margins.items()}
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


def _patches(layout: Layout, tables: Sequence[Array]) -> list[Array]:
    """The margins of ``sum_S (negative part of x_S) (x) uniform``."""
    sums = layout.zeros()
    out, own = [np.maximum(-x, 0.0) for x in tables], []
    for g, patch in enumerate(out):
        own.append(layout.own(g, patch))
        for link, part in zip(layout.links[g], own[g], strict=True):
            np.add.at(sums[link.stack], link.rows, part)
    for g, patch in enumerate(out):
        pairs = zip(layout.links[g], own[g], strict=True)
        layout.spread(g, [sums[k.stack][k.rows] - part for k, part in pairs], patch)
        np.maximum(patch, 0.0, out=patch)  # rounding: a margin of a histogram is non-negative
    return out


def _mixed(tables: Sequence[Array], patch: list[Array], total: float) -> list[Array]:
    """``x + s p``, scaled to the total, with the least s that leaves no cell negative; in p."""
    share = 0.0
    for x, p in zip(tables, patch, strict=True):
        low = x < 0
        if low.any():
            share = max(share, float((-x[low] / p[low]).max()))
    mass = float(patch[0][0].sum())
    for x, p in zip(tables, patch, strict=True):
        p *= share
        p += x
        p *= total / (total + share * mass)
        np.maximum(p, 0.0, out=p)  # rounding
    return patch
