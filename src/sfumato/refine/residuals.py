# SPDX-License-Identifier: Apache-2.0
"""Tables that agree on what they share, by their residuals: one free centred table per set.

The margin of a histogram over the set S of attributes is the sum over the subsets A of S of its
part that is centred along A and constant along the rest,

    x_S = sum_{A within S} r_A / prod_{i in S - A} n_i,       r_A the centred part of the A-margin.

Tables over several sets agree on all that they share exactly when each r_A is the same in every
table whose set holds A. So agreeing tables are the image ``E r`` of residuals without any
constraint, and ``E'E`` is diagonal (Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix
mechanism for noisy marginals under convex loss functions").

Tables of one shape are stacked, so that a hundred attributes of equal size cost a few array
operations instead of thousands; a table that is alone in its shape stays within the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.refine.refine_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.queries import DENSE_LIMIT

__all__ = [
    "Layout",
    "Limits",
    "Link",
    "Stack",
    "centred",
    "layout",
    "limits_of",
    "maximal",
]


@dataclass(frozen=True, eq=False)
class Stack:
    """Sets of attributes whose tables have one shape."""

    sets: tuple[Names, ...]
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        """The cells of one table."""
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class Link:
    """One choice ``axes`` of axes of a stack, and where the subset it gives each table stands.

    The margin is found from that of ``parent`` (another link; -1: the table) by summing ``axis``.
    ``order``, ``starts`` and ``found`` sort the tables by the subset they share.
    """

    axes: tuple[int, ...]
    stack: int
    rows: Integers
    order: Integers
    starts: Integers
    found: Integers
    parent: int
    axis: int
    length: int


@dataclass(frozen=True, eq=False)
class Layout:
    """``tops``: the maximal sets; ``lows``: their proper subsets; ``links``: per top stack."""

    domain: Domain
    tops: tuple[Stack, ...]
    lows: tuple[Stack, ...]
    links: tuple[tuple[Link, ...], ...]

    @cached_property
    def cells(self) -> int:
        """The cells of all tables together."""
        return sum(len(s.sets) * s.cells for s in self.tops)

    @cached_property
    def places(self) -> dict[Names, tuple[int, int]]:
        """Stack and row of every maximal set."""
        return {s: (g, t) for g, stack in enumerate(self.tops) for t, s in enumerate(stack.sets)}

    @cached_property
    def low_places(self) -> dict[Names, tuple[int, int]]:
        """Stack and row of every proper subset."""
        return {s: (g, t) for g, stack in enumerate(self.lows) for t, s in enumerate(stack.sets)}

    @cached_property
    def holders(self) -> dict[Names, Names]:
        """A maximal set for every set within one."""
        found: dict[Names, Names] = {}
        for stack, links in zip(self.tops, self.links, strict=True):
            for t, names in enumerate(stack.sets):
                found[names] = names
                for link in links:
                    found.setdefault(self.lows[link.stack].sets[link.rows[t]], names)
        return found

    @cached_property
    def empty(self) -> int:
        """The stack of the empty set: the total."""
        return self.low_places[()][0]

    def low_weights(self, weights: Sequence[Array]) -> list[Array]:
        """The diagonal of ``E' diag(weights) E`` for the proper subsets; a weight per table."""
        out = [np.zeros(len(s.sets)) for s in self.lows]
        for g, links in enumerate(self.links):
            for link in links:
                np.add.at(out[link.stack], link.rows, weights[g] / self.dropped(g, link))
        return out

    def by_set(self, tables: Sequence[Array], sets: Iterable[Names]) -> dict[Names, Array]:
        """The margin of every set, from a table that holds it."""
        out = {}
        for names in sets:
            whole = self.holders[names]
            g, t = self.places[whole]
            rest = tuple(i for i, n in enumerate(whole) if n not in names)
            out[names] = np.asarray(tables[g][t].sum(axis=rest))
        return out

    def zeros(self) -> list[Array]:
        """Residuals of the proper subsets, all zero."""
        return [np.zeros((len(s.sets), *s.shape)) for s in self.lows]

    def own(self, g: int, tables: Array) -> list[Array]:
        """For every link the centred margins of the stacked tables."""
        margins: list[Array] = []
        for link in self.links[g]:
            source = tables if link.parent < 0 else margins[link.parent]
            margins.append(source.sum(axis=1 + link.axis))
        return [centred(m, range(1, m.ndim)) for m in margins]

    def gather(self, out: list[Array], g: int, own: Sequence[Array], weights: Array) -> None:
        """Add ``E'`` of one stack: centred margins over the cells that they total."""
        for link, part in zip(self.links[g], own, strict=True):
            scale = weights / self.dropped(g, link)
            scaled = part * scale.reshape(-1, *[1] * (part.ndim - 1))
            if len(link.found) == len(link.order):
                out[link.stack][link.rows] += scaled
            else:
                sums = np.add.reduceat(scaled[link.order], link.starts, axis=0)
                out[link.stack][link.found] += sums

    def spread(self, g: int, fields: list[Array], out: Array) -> None:
        """Add to stacked tables, for every link, a field constant along what the link totals.

        The fields are overwritten.
        """
        for at in range(len(fields) - 1, -1, -1):
            link = self.links[g][at]
            moved = np.expand_dims(fields[at], 1 + link.axis)
            target = out if link.parent < 0 else fields[link.parent]
            target += moved / link.length

    def dropped(self, g: int, link: Link) -> float:
        """The cells along the axes that a link totals."""
        return self.tops[g].cells / self.lows[link.stack].cells


def centred(table: Array, axes: Iterable[int]) -> Array:
    """The part of a table with mean zero along each axis."""
    for axis in axes:
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def maximal(sets: Iterable[Names]) -> list[Names]:
    """The sets that are within no other, in the order given."""
    different = list(dict.fromkeys(sets))
    holding: dict[str, set[int]] = {}
    for at, names in enumerate(different):
        for name in names:
            holding.setdefault(name, set()).add(at)
    kept = []
    for names in different:
        shared = [holding[name] for name in names]
        holds = set.intersection(*shared) if shared else set(range(len(different)))
        if len(holds) == 1:
            kept.append(names)
    return kept


def layout(domain: Domain, sets: Iterable[Names]) -> Layout:
    """The stacks of the maximal ones of these sets and of all their subsets."""
    kept = maximal(sets)
    _check_size(domain, kept)
    lower = {
        sub for names in kept for size in range(len(names)) for sub in combinations(names, size)
    }
    tops, lows = _stacks(domain, kept), _stacks(domain, sorted(lower, key=lambda s: (len(s), s)))
    at = {s: (g, t) for g, stack in enumerate(lows) for t, s in enumerate(stack.sets)}
    links = tuple(tuple(link for link in _links(stack, at)) for stack in tops)
    return Layout(domain, tops, lows, links)


def _check_size(domain: Domain, kept: Sequence[Names]) -> None:
    cells = sum(prod(domain[n].size for n in names) for names in kept)
    if cells > DENSE_LIMIT:
        raise TooLarge(
            f"the {len(kept):,} tables that these queries read have {cells:,} cells together, the "
            f"limit is {DENSE_LIMIT:,}; ask about fewer attributes at once or coarser cells"
        )
    subsets = sum(2 ** len(names) for names in kept)
    if subsets > LIMITS.subsets_listed:
        raise TooLarge(
            f"the sets of attributes asked about have {subsets:,} subsets, the limit is "
            f"{LIMITS.subsets_listed:,}; ask about fewer attributes at once"
        )


def _stacks(domain: Domain, sets: Iterable[Names]) -> tuple[Stack, ...]:
    by_shape: dict[tuple[int, ...], list[Names]] = {}
    for names in sets:
        by_shape.setdefault(tuple(domain[n].size for n in names), []).append(names)
    return tuple(Stack(tuple(found), shape) for shape, found in by_shape.items())


def _links(stack: Stack, at: dict[Names, tuple[int, int]]) -> Iterable[Link]:
    """Larger choices of axes first; each is a parent's with the shortest way down."""
    width = len(stack.shape)
    choices = [
        axes for size in range(width - 1, -1, -1) for axes in combinations(range(width), size)
    ]
    for axes in choices:
        places = [at[tuple(names[i] for i in axes)] for names in stack.sets]
        rows = np.array([row for _, row in places], dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        found, starts = np.unique(rows[order], return_index=True)
        # The parent with one axis more and the fewest cells.
        missing = [i for i in range(width) if i not in axes]
        extra = min(missing, key=lambda i: stack.shape[i])
        wider = tuple(sorted((*axes, extra)))
        parent = choices.index(wider) if len(wider) < width else -1
        yield Link(
            axes,
            places[0][0],
            rows,
            order,
            starts.astype(np.int64),
            found,
            parent,
            wider.index(extra),
            stack.shape[extra],
        )


# --------------------
# Constraints as local consistency sees them: cells that are zero, residuals that are known.
#
# A published table over the set A fixes the residual of every subset of A, and the table itself
# where A is maximal. A cell of a table is zero where no record can be in it, whatever its other
# attributes are; combinations that are impossible only together with attributes of another table
# are not seen, as nothing beyond the tables is.


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
