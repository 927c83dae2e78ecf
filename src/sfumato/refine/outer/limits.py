# SPDX-License-Identifier: Apache-2.0
"""Constraints as local consistency sees them: cells that are zero, residuals that are known.

A published table over the set A fixes the residual of every subset of A, and the table itself where
A is maximal. A cell of a table is zero where no record can be in it, whatever its other attributes
are; combinations that are impossible only together with attributes of another table are not seen,
as nothing beyond the tables is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from sfumato.refine.outer.residuals import Layout, centred
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["Limits", "limits_of"]


@dataclass(frozen=True, eq=False)
class Limits:
    """``zeros`` per stack of tables; ``low_held`` and ``top_held`` say which sets are known.

    ``low_values`` are residuals, ``top_tables`` whole tables.
    """

    layout: Layout
    zeros: list[Mask]
    low_held: list[Mask]
    low_values: list[Array]
    top_held: list[Mask]
    top_tables: list[Array]

    @property
    def has_zeros(self) -> bool:
        """Whether some cell is fixed at zero."""
        return any(bool(z.any()) for z in self.zeros)

    def hold_lows(self, lows: Sequence[Array]) -> None:
        """Set the known residuals of proper subsets, in place."""
        for low, held, values in zip(lows, self.low_held, self.low_values, strict=True):
            low[held] = values[held]

    def hold_tops(self, tables: Sequence[Array]) -> None:
        """Set the known tables, in place."""
        for table, held, known in zip(tables, self.top_held, self.top_tables, strict=True):
            table[held] = known[held]

    def differences(self) -> Limits:
        """The same for differences of tables: what is known is zero."""
        return replace(
            self,
            low_values=[np.zeros_like(v) for v in self.low_values],
            top_tables=[np.zeros_like(t) for t in self.top_tables],
        )

    def top_residuals(self, g: int) -> Array:
        """The centred part of the known tables of a stack."""
        known = self.top_tables[g]
        return centred(known, range(1, known.ndim))

    def least(self, g: int, forces: Array) -> Array:
        """The least entry of every table of a stack, over the cells that are not zero."""
        flat, zero = forces.reshape(len(forces), -1), self.zeros[g].reshape(len(forces), -1)
        return np.asarray(np.where(zero, np.inf, flat).min(axis=1), dtype=np.float64)


def limits_of(constraints: Constraints, layout: Layout, published: Sequence[Published]) -> Limits:
    """The limits of the tables of a layout, whose sets hold those that are published."""
    linked = constraints.labels()
    zeros = [np.zeros((len(s.sets), *s.shape), dtype=np.bool_) for s in layout.tops]
    for stack, zero in zip(layout.tops, zeros, strict=True):
        for t, names in enumerate(stack.sets):
            if linked.keys() & set(names):
                zero[t] = ~constraints.possible(names)
            for table in published:
                if set(table.names) <= set(names):
                    along = [
                        n if a in table.names else 1
                        for a, n in zip(names, stack.shape, strict=True)
                    ]
                    zero[t] |= (table.values == 0).reshape(along)
    out = Limits(
        layout,
        zeros,
        [np.zeros(len(s.sets), dtype=np.bool_) for s in layout.lows],
        layout.zeros(),
        [np.zeros(len(s.sets), dtype=np.bool_) for s in layout.tops],
        [np.zeros((len(s.sets), *s.shape)) for s in layout.tops],
    )
    for table in published:
        for names, values in _margins(table):
            if names in layout.places:
                g, t = layout.places[names]
                out.top_held[g][t], out.top_tables[g][t] = True, values
            else:
                g, t = layout.low_places[names]
                out.low_held[g][t] = True
                out.low_values[g][t] = centred(values, range(values.ndim))
    return out


def _margins(table: Published) -> Iterator[tuple[tuple[str, ...], Array]]:
    """Its margins over all subsets of its attributes."""
    for size in range(len(table.names) + 1):
        for names in combinations(table.names, size):
            yield names, table.margin(names)
