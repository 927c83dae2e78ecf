# SPDX-License-Identifier: Apache-2.0
"""Tables that agree, are non-negative and keep all limits, near tables that nearly do.

Two steps. First the nearest agreeing tables with the known margins whose impossible cells are zero:
a linear problem. With P the projection onto agreeing differences (closed form) and Z the impossible
cells, ``x + P v`` for the v on Z with ``(P v)_Z = -x_Z``, by conjugate gradients (Hestenes, Stiefel
1952). Then as little as suffices of the margins of a histogram that keeps all limits and is
positive in every possible cell of every table: possible rows in each of them and others drawn from
the product of one-way margins, raked to what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.draws import Draws
from sfumato.refine.outer.curvature import agreement
from sfumato.refine.outer.limits import Limits
from sfumato.refine.rows.possible import make_possible, meet_published
from sfumato.refine.rows.problem import layout as row_layout
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.queries import Array, Integers

__all__ = ["Inside"]

TURNS = 400  # of conjugate gradients
SMALL = 1e-14  # of the total: what is left on impossible cells
DRAWN = 20_000  # rows from the product of margins
MOST_ROWS = 2**20  # with one row in every cell
EVEN = 0.1  # of the uniform in the product
SHARE = 0.5  # of all weight for rows that make cells positive


@dataclass(frozen=True, eq=False)
class Inside:
    """The limits, and one-way margins to draw rows from."""

    limits: Limits
    constraints: Constraints
    margins: dict[str, Array]

    def feasible(self, tables: Sequence[Array], total: float) -> list[Array]:
        """Tables of this total that keep all limits, near agreeing ones that keep known margins."""
        if total == 0:
            return [np.zeros_like(x) for x in tables]
        moved = self._without_zeros(tables, total)
        share = 0.0
        for x, p in zip(moved, self._positive, strict=True):
            low = x < 0
            if low.any():
                share = max(share, float((-x[low] / (total * p[low] - x[low])).max()))
        out = []
        for x, p, zero in zip(moved, self._positive, self.limits.zeros, strict=True):
            mixed = np.maximum((1 - share) * x + (share * total) * p, 0.0)  # rounding
            mixed[zero] = 0.0
            out.append(mixed)
        return out

    def _without_zeros(self, tables: Sequence[Array], total: float) -> list[Array]:
        """The nearest agreeing tables without anything on impossible cells."""
        out = [x.copy() for x in tables]
        zeros = self.limits.zeros
        rest = [np.where(z, -x, 0.0) for x, z in zip(out, zeros, strict=True)]
        direction, size = [r.copy() for r in rest], _dot(rest, rest)
        enough = (SMALL * total) ** 2
        for _ in range(TURNS):
            if not size > enough:
                break
            pushed = self._agreeing(direction)
            bend = _dot(pushed, direction)
            if not bend > 0:
                break
            step = size / bend
            for x, r, p, z in zip(out, rest, pushed, zeros, strict=True):
                x += step * p
                r -= np.where(z, step * p, 0.0)
            before, size = size, _dot(rest, rest)
            direction = [r + (size / before) * d for r, d in zip(rest, direction, strict=True)]
        for x, z in zip(out, zeros, strict=True):
            x[z] = 0.0
        return out

    @cached_property
    def _differences(self) -> Limits:
        return self.limits.differences()

    def _agreeing(self, tables: Sequence[Array]) -> list[Array]:
        """The nearest differences of agreeing tables with the same known margins."""
        form = replace(agreement(self.limits.layout), limits=self._differences)
        out = [x.copy() for x in tables]
        form.minimise(out, [np.ones(len(x)) for x in out], 0.0)
        return out

    @cached_property
    def _positive(self) -> list[Array]:
        """The margins of a histogram of total 1 that is positive in every possible cell."""
        codes, weights = self._rows()
        if self.constraints.published:
            met = meet_published(self.constraints, codes, weights)
            if met.off > CLOSE:
                raise WorkloadError(
                    f"the published tables could not be met: counts are off by {met.off:.2g} of "
                    "all records; leave one of them out"
                )
            codes, weights = met.codes, met.weights / met.weights.sum()
        sizes = {a.name: a.size for a in self.constraints.domain}
        out = []
        for stack in self.limits.layout.tops:
            tables = [row_layout(sizes, (s,)).margins(codes, weights) for s in stack.sets]
            out.append(np.stack(tables).reshape(len(tables), *stack.shape))
        return out

    def _rows(self) -> tuple[Integers, Array]:
        known, domain = self.constraints, self.constraints.domain
        cells = sum(int((~z).sum()) for z in self.limits.zeros)
        if cells > MOST_ROWS:
            raise TooLarge(
                f"the tables have {cells:,} possible cells together, at most {MOST_ROWS:,} are "
                "filled to keep constraints; ask about fewer attributes at once"
            )
        made = []
        for stack, zero in zip(self.limits.layout.tops, self.limits.zeros, strict=True):
            for names, z in zip(stack.sets, zero, strict=True):
                made.append(known.completed(names, np.argwhere(~z)))
        shares = []
        for a in domain:
            even = np.full(a.size, 1 / a.size)
            own = np.maximum(self.margins.get(a.name, even), 0.0)
            own = own / own.sum() if own.sum() > 0 else even
            shares.append((1 - EVEN) * own + EVEN * even)
        draws = Draws("local consistency")
        drawn = np.stack([_picked(p, draws.uniforms(DRAWN)) for p in shares])
        made.append(make_possible(known, drawn, shares, draws.uniforms))
        weights = np.full(cells + DRAWN, (1 - SHARE) / DRAWN)
        weights[:cells] = SHARE / cells
        total = known.total
        return np.concatenate(made, axis=1), weights * (1.0 if total is None else total)


def _picked(share: Array, at: Array) -> Integers:
    edges = np.cumsum(share)
    found = np.searchsorted(edges, at * edges[-1], side="right")
    return np.asarray(np.minimum(found, len(share) - 1), dtype=np.int64)


def _dot(one: Sequence[Array], other: Sequence[Array]) -> float:
    return sum(float(np.vdot(a, b)) for a, b in zip(one, other, strict=True))
