# SPDX-License-Identifier: Apache-2.0
"""Tables that agree on what they share, by their residuals, and fits in these coordinates.

The margin of a histogram over the set S of attributes is the sum over the subsets A of S of its
part that is centred along A and constant along the rest,

    x_S = sum_{A within S} r_A / prod_{i in S - A} n_i,       r_A the centred part of the A-margin.

Tables over several sets agree on all that they share exactly when each r_A is the same in every
table whose set holds A. So agreeing tables are the image ``E r`` of residuals without any
constraint, and ``E'E`` is diagonal (Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix
mechanism for noisy marginals under convex loss functions").

``TableLayout`` has the sets and the maps E and E'; ``TableConstraints`` what constraints fix;
``Diagonal`` a fit whose curvature is diagonal in residuals, as those of tables and totals are.
Tables of one shape are stacked, so that a hundred attributes of equal size cost a few array
operations instead of thousands; a table that is alone in its shape stays within the cache.
Projections onto relaxations work in these coordinates (``local_consistency``, ``semidefinite``).
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
from sfumato.refine.reconstruct import Fit, FitPart
from sfumato.refine.refine_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.queries import QuerySet
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Diagonal",
    "Link",
    "Stack",
    "TableConstraints",
    "TableLayout",
    "agreement",
    "along",
    "centred",
    "constraints_on",
    "diagonal",
    "layout",
    "maximal",
    "minimum_at_total",
    "model_of",
    "parted",
    "squares_of",
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
    ``order``, ``starts`` and ``subsets`` sort the tables by the subset they share.
    """

    axes: tuple[int, ...]
    stack: int
    rows: Integers
    order: Integers
    starts: Integers
    subsets: Integers
    parent: int
    axis: int
    length: int


@dataclass(frozen=True, eq=False)
class TableLayout:
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
        holders: dict[Names, Names] = {}
        for stack, links in zip(self.tops, self.links, strict=True):
            for t, names in enumerate(stack.sets):
                holders[names] = names
                for link in links:
                    holders.setdefault(self.lows[link.stack].sets[link.rows[t]], names)
        return holders

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
            if len(link.subsets) == len(link.order):
                out[link.stack][link.rows] += scaled
            else:
                sums = np.add.reduceat(scaled[link.order], link.starts, axis=0)
                out[link.stack][link.subsets] += sums

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
    """The sets that are within no other, in their order."""
    different = list(dict.fromkeys(sets))
    holding: dict[str, set[int]] = {}
    for at, names in enumerate(different):
        for name in names:
            holding.setdefault(name, set()).add(at)
    outermost = []
    for names in different:
        shared = [holding[name] for name in names]
        holds = set.intersection(*shared) if shared else set(range(len(different)))
        if len(holds) == 1:
            outermost.append(names)
    return outermost


def layout(domain: Domain, sets: Iterable[Names]) -> TableLayout:
    """The stacks of the maximal ones of these sets and of all their subsets."""
    outermost = maximal(sets)
    _check_size(domain, outermost)
    lower = {
        sub
        for names in outermost
        for size in range(len(names))
        for sub in combinations(names, size)
    }
    tops, lows = (
        _stacks(domain, outermost),
        _stacks(domain, sorted(lower, key=lambda s: (len(s), s))),
    )
    at = {s: (g, t) for g, stack in enumerate(lows) for t, s in enumerate(stack.sets)}
    links = tuple(tuple(link for link in _links(stack, at)) for stack in tops)
    return TableLayout(domain, tops, lows, links)


def _check_size(domain: Domain, sets: Sequence[Names]) -> None:
    cells = sum(prod(domain[n].size for n in names) for names in sets)
    if cells > WORKLOAD_LIMITS.array_entries:
        raise TooLarge(
            f"the {len(sets):,} tables that these queries read have {cells:,} cells together, the "
            f"limit is {WORKLOAD_LIMITS.array_entries:,}; ask about fewer attributes at once or "
            "coarser cells"
        )
    subsets = sum(2 ** len(names) for names in sets)
    if subsets > LIMITS.subsets_listed:
        raise TooLarge(
            f"the sets of attributes asked about have {subsets:,} subsets, the limit is "
            f"{LIMITS.subsets_listed:,}; ask about fewer attributes at once"
        )


def _stacks(domain: Domain, sets: Iterable[Names]) -> tuple[Stack, ...]:
    by_shape: dict[tuple[int, ...], list[Names]] = {}
    for names in sets:
        by_shape.setdefault(tuple(domain[n].size for n in names), []).append(names)
    return tuple(Stack(tuple(sets_of), shape) for shape, sets_of in by_shape.items())


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
        subsets, starts = np.unique(rows[order], return_index=True)
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
            subsets,
            parent,
            wider.index(extra),
            stack.shape[extra],
        )


# What constraints fix


@dataclass(frozen=True, eq=False)
class TableConstraints:
    """Constraints as tables see them: cells that are zero, residuals that are fixed.

    A published table over the set A fixes the residual of every subset of A, and the table itself
    where A is maximal. A cell of a table is zero where no record can be in it, whatever its other
    attributes are; combinations that are impossible only together with attributes of another table
    are not seen, as nothing beyond the tables is.

    ``zeros`` per stack of tables; ``low_held`` and ``top_held`` say which sets are fixed:
    ``low_values`` are their residuals, ``top_tables`` whole tables.
    """

    layout: TableLayout
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
        """Set the fixed residuals of proper subsets, in place."""
        for low, held, values in zip(lows, self.low_held, self.low_values, strict=True):
            low[held] = values[held]

    def hold_tops(self, tables: Sequence[Array]) -> None:
        """Set the fixed tables, in place."""
        for table, held, fixed in zip(tables, self.top_held, self.top_tables, strict=True):
            table[held] = fixed[held]

    def differences(self) -> TableConstraints:
        """The constraints on differences of tables: what is fixed is zero."""
        return replace(
            self,
            low_values=[np.zeros_like(v) for v in self.low_values],
            top_tables=[np.zeros_like(t) for t in self.top_tables],
        )

    def top_residuals(self, g: int) -> Array:
        """The centred part of the fixed tables of a stack."""
        fixed = self.top_tables[g]
        return centred(fixed, range(1, fixed.ndim))

    def minimum(self, g: int, forces: Array) -> Array:
        """The minimum entry of every table of a stack, over the cells that are not zero."""
        flat, zero = forces.reshape(len(forces), -1), self.zeros[g].reshape(len(forces), -1)
        return np.asarray(np.where(zero, np.inf, flat).min(axis=1), dtype=np.float64)


def constraints_on(
    constraints: Constraints, layout: TableLayout, published: Sequence[Published]
) -> TableConstraints:
    """The constraints on the tables of a layout, whose sets hold those that are published."""
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
    out = TableConstraints(
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
    """The margins of a table over all subsets of its attributes."""
    for size in range(len(table.names) + 1):
        for names in combinations(table.names, size):
            yield names, table.margin(names)


# Fits that are diagonal in residuals

Pair = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Diagonal:
    """A fit whose curvature is diagonal: ``heights`` h and ``centres`` c of all residuals.

    For products of query sets with ``Q'Q = a I + b J`` (tables, totals, centred tables) and one
    weight per part f is a sum of squares of its own for every residual:

        f(r) = f(c) + 1/2 sum_A h_A |r_A - c_A|^2,
        h_A = sum_{parts over B holding A} w prod_{i in A} a_i prod_{i in B-A} (a_i + n_i b_i) / n_i

    So f is the metric of the true covariance of the noise wherever the measured queries are the
    residuals themselves. ``top_`` are those of the maximal sets, ``low_`` of proper subsets.
    """

    layout: TableLayout
    top_heights: list[Array]
    top_centres: list[Array]
    low_heights: list[Array]
    low_centres: list[Array]
    base: float
    constraints: TableConstraints | None = None

    def within(self, constraints: TableConstraints) -> Diagonal:
        """The same form with fixed residuals and cells that are zero."""
        return replace(self, constraints=constraints)

    def tells_total(self) -> bool:
        """Whether f bounds the total."""
        return bool(self.low_heights[self.layout.empty][0] > 0)

    def minimise(self, tables: list[Array], pulls: Sequence[Array], total: float | None) -> None:
        """Replace ``v`` by ``E r`` of least ``f(r) + 1/2 sum_S pull_S |x_S - v_S|^2``, in place."""
        layout = self.layout
        own = [layout.own(g, v) for g, v in enumerate(tables)]
        pulled, weights = layout.zeros(), layout.low_weights(pulls)
        for g, parts in enumerate(own):
            layout.gather(pulled, g, parts, pulls[g])
        lows = []
        for h, c, q, e in zip(self.low_heights, self.low_centres, pulled, weights, strict=True):
            lows.append((along(h, c) * c + q) / along(h + e, c))
        if total is not None:
            lows[layout.empty][:] = total
        if self.constraints is not None:
            self.constraints.hold_lows(lows)
        for g, v in enumerate(tables):
            pull_share = pulls[g] / (self.top_heights[g] + pulls[g])
            v -= self.top_centres[g]
            v *= along(pull_share, v)
            v += self.top_centres[g]
            pairs = zip(layout.links[g], own[g], strict=True)
            fields = [lows[k.stack][k.rows] - along(pull_share, o) * o for k, o in pairs]
            layout.spread(g, fields, v)
        if self.constraints is not None:
            self.constraints.hold_tops(tables)

    def value(self, tables: Sequence[Array]) -> float:
        """f of tables that agree."""
        layout, value, lows = self.layout, 0.0, self.layout.zeros()
        for g, x in enumerate(tables):
            own = layout.own(g, x)
            # Parts of different subsets are orthogonal: what is left is the top residual.
            squares = squares_of(x - self.top_centres[g])
            for link, part in zip(layout.links[g], own, strict=True):
                squares -= squares_of(part) / layout.dropped(g, link)
                lows[link.stack][link.rows] = part
            value += float(self.top_heights[g] @ np.maximum(squares, 0.0))
        for h, c, r in zip(self.low_heights, self.low_centres, lows, strict=True):
            value += float(h @ squares_of(r - c))
        return self.base + 0.5 * value

    def lower(self, forces: Sequence[Array], total: float | None, upper: float) -> float:  # noqa: ARG002
        """A lower bound on f over agreeing tables, non-negative and of the total.

        For forces of 0 or more ``min f >= min_r f(r) - <forces, E r>``, which is closed form; on
        cells that must be zero forces may have any sign.
        """
        return self.base + self.minimum(self.seen(forces) if self.unseen(total) else forces, total)

    def minimum(self, forces: Sequence[Array], total: float | None) -> float:
        """``min_r f(r) - f(c) - <forces, E r>`` over ``r``, its total given or 0 or more.

        Forces on residuals that f does not see must have been taken out (``seen``).
        """
        layout, value, pulled = self.layout, 0.0, self.layout.zeros()
        for g, force in enumerate(forces):
            own = layout.own(g, force)
            layout.gather(pulled, g, own, np.ones(len(force)))
            squares = squares_of(force)
            for link, part in zip(layout.links[g], own, strict=True):
                squares -= squares_of(part) / layout.dropped(g, link)
            h, c = self.top_heights[g], self.top_centres[g]
            if self.constraints is not None and self.constraints.top_held[g].any():
                held = self.constraints.top_held[g]
                fixed = self.constraints.top_residuals(g)[held]
                value += _at(h[held], c[held], force[held], fixed)
                h, c, force, squares = h[~held], c[~held], force[~held], squares[~held]
            value += _drop(h, np.maximum(squares, 0.0)) - float(np.vdot(force, c))
        for g, (h, c, q) in enumerate(zip(self.low_heights, self.low_centres, pulled, strict=True)):
            if g == layout.empty:
                value += minimum_at_total(float(h[0]), float(c[0]), float(q[0]), total)
                continue
            if self.constraints is not None and self.constraints.low_held[g].any():
                held = self.constraints.low_held[g]
                value += _at(h[held], c[held], q[held], self.constraints.low_values[g][held])
                h, c, q = h[~held], c[~held], q[~held]
            value += _drop(h, squares_of(q)) - float(np.vdot(q, c))
        return value

    def centre_tables(self, total: float | None) -> list[Array]:
        """``E c``, the least f without constraints; with another total where one is public."""
        lows = list(self.low_centres)
        if total is not None:
            lows[self.layout.empty] = np.full(1, total)
        out = [c.copy() for c in self.top_centres]
        if self.constraints is not None:
            lows = [low.copy() for low in lows]
            self.constraints.hold_lows(lows)
        for g, links in enumerate(self.layout.links):
            self.layout.spread(g, [lows[k.stack][k.rows] for k in links], out[g])
        if self.constraints is not None:
            self.constraints.hold_tops(out)
        return out

    def at(self, names: Names) -> tuple[float, Array]:
        """Height and centre of one set; zeros for a set that no part reads."""
        for places, heights, centres in (
            (self.layout.places, self.top_heights, self.top_centres),
            (self.layout.low_places, self.low_heights, self.low_centres),
        ):
            if names in places:
                g, t = places[names]
                return float(heights[g][t]), centres[g][t]
        return 0.0, np.zeros([self.layout.domain[n].size for n in names])

    def raise_height(self, names: Names, height: float) -> Array:
        """Add to the height of one set; its centre, to be changed in place."""
        is_top = names in self.layout.places
        g, t = (self.layout.places if is_top else self.layout.low_places)[names]
        (self.top_heights if is_top else self.low_heights)[g][t] += height
        return (self.top_centres if is_top else self.low_centres)[g][t, ...]

    def precisions(self) -> list[Array]:
        """Per table the inverse of the mean variance of a cell of ``E c``, were f exact."""
        out = []
        for g, (stack, h) in enumerate(zip(self.layout.tops, self.top_heights, strict=True)):
            variance = _inverse(h) * _free(stack.shape) / stack.cells
            for link in self.layout.links[g]:
                low = self.low_heights[link.stack][link.rows]
                size = _free(self.layout.lows[link.stack].shape)
                variance += _inverse(low) * size / (stack.cells * self.layout.dropped(g, link))
            out.append(np.where(variance > 0, 1 / np.maximum(variance, 1e-300), 1.0))
        return out

    def unseen(self, total: float | None) -> bool:
        """Whether some residual of more than one value has no height."""
        lows = any(
            (h == 0).any() and all(n > 1 for n in s.shape)
            for g, (h, s) in enumerate(zip(self.low_heights, self.layout.lows, strict=True))
            if g != self.layout.empty or total is None
        )
        pairs = zip(self.top_heights, self.layout.tops, strict=True)
        return lows or any((h == 0).any() and all(n > 1 for n in s.shape) for h, s in pairs)

    def seen(self, forces: Sequence[Array]) -> list[Array]:
        """The forces without their part on residuals that f does not see, raised to 0 or more."""
        layout, out = self.layout, [np.array(f) for f in forces]
        pulled, weights = layout.zeros(), layout.low_weights([np.ones(len(f)) for f in out])
        for g, force in enumerate(out):
            own = layout.own(g, force)
            layout.gather(pulled, g, own, np.ones(len(force)))
            blind = self.top_heights[g] == 0
            if self.constraints is not None:
                blind &= ~self.constraints.top_held[g]
            rest = np.zeros_like(force)
            layout.spread(g, own, rest)
            force[blind] = rest[blind]
        hidden = [
            np.where(along(h == 0, q), q / along(e, q), 0.0)
            for h, q, e in zip(self.low_heights, pulled, weights, strict=True)
        ]
        hidden[layout.empty][:] = 0.0
        if self.constraints is not None:  # what is fixed need not be seen
            for low, held in zip(hidden, self.constraints.low_held, strict=True):
                low[held] = 0.0
        for g, force in enumerate(out):
            layout.spread(g, [-hidden[k.stack][k.rows] for k in layout.links[g]], force)
            smallest = force.reshape(len(force), -1).min(axis=1)
            if self.constraints is not None:
                smallest = self.constraints.minimum(g, force)
            force -= along(np.minimum(smallest, 0.0), force)
        return out


def minimum_at_total(height: float, centre: float, force: float, total: float | None) -> float:
    """``min h/2 (t - c)^2 - q t`` at the given total, or over all of 0 or more."""
    if total is None:
        if height == 0:
            return 0.0 if force <= 0 else -np.inf
        total = max(0.0, centre + force / height)
    return 0.5 * height * (total - centre) ** 2 - force * total


def _at(heights: Array, centres: Array, forces: Array, fixed: Array) -> float:
    """``h/2 |r - c|^2 - <q, r>`` at fixed residuals."""
    return 0.5 * float(heights @ squares_of(fixed - centres)) - float(np.vdot(forces, fixed))


def _drop(heights: Array, squares: Array) -> float:
    """``-sum 1/2 |q|^2 / h`` over the residuals that f sees."""
    sees = heights > 0
    return -0.5 * float((squares[sees] / heights[sees]).sum())


def _inverse(heights: Array) -> Array:
    return np.divide(1.0, heights, out=np.zeros_like(heights), where=heights > 0)


def _free(shape: tuple[int, ...]) -> int:
    return prod(n - 1 for n in shape)


def along(values: Array, stacked: Array) -> Array:
    """One value per table, shaped to go with the stack."""
    return values.reshape(-1, *[1] * (stacked.ndim - 1))


def squares_of(stacked: Array) -> Array:
    """The sum of squares of every table of a stack."""
    flat = stacked.reshape(len(stacked), prod(stacked.shape[1:]))
    return np.asarray(np.einsum("ij,ij->i", flat, flat), dtype=np.float64)


def diagonal(fit: Fit, layout: TableLayout) -> Diagonal | None:
    """The diagonal form of a fit; None where its queries mix residuals."""
    plain, mixing = parted(fit, layout)
    return None if mixing.parts else plain


def parted(fit: Fit, layout: TableLayout) -> tuple[Diagonal, Fit]:
    """The diagonal form of the parts that have one, and the parts that mix residuals."""
    pairs_of: dict[int, Pair | None] = {}
    shapes = [_eigenvalues(part, pairs_of) for part in fit.parts]
    plain, mixing = (
        Fit(
            fit.domain,
            tuple(p for p, s in zip(fit.parts, shapes, strict=True) if (s is None) is is_mixing),
        )
        for is_mixing in (False, True)
    )
    return _diagonal_form(plain, [s for s in shapes if s is not None], layout), mixing


def _diagonal_form(fit: Fit, shapes: Sequence[list[Pair]], layout: TableLayout) -> Diagonal:
    form = _empty_form(layout)
    for part, pairs in zip(fit.parts, shapes, strict=True):
        weight = float(part.weights[0]) if part.weights.size else 0.0
        if weight == 0:
            continue
        names = part.term.attributes
        pulled = np.asarray(part.term.adjoint(weight * part.values)).reshape(part.term.shape)
        for subset, height, rest in _pieces(names, part.term.shape, pairs):
            if height > 0:
                axes = tuple(i for i, name in enumerate(names) if name not in subset)
                centre = form.raise_height(subset, weight * height)
                centre += centred(pulled.sum(axis=axes) / rest, range(len(subset)))
    tops = zip(form.top_heights, form.top_centres, strict=True)
    for heights, centres in (*tops, *zip(form.low_heights, form.low_centres, strict=True)):
        centres /= along(np.where(heights > 0, heights, 1.0), centres)
    base = fit.value(fit.answers(layout.by_set(form.centre_tables(None), fit.sets)))
    return replace(form, base=base)


def agreement(layout: TableLayout) -> Diagonal:
    """The form f = 0: its minima are the projections onto the tables that agree."""
    return _empty_form(layout)


def model_of(fit: Fit, layout: TableLayout) -> Diagonal:
    """The heights that a fit of any queries would have, were there two eigenvalues per attribute.

    Those off and along the constant, on average; the centres are zero.
    """
    form = _empty_form(layout)
    for part in fit.parts:
        term, product = part.term, part.term.as_product()
        weight = float(part.weights.mean()) if part.weights.size else 0.0
        if product is not None and all(
            q.size <= LIMITS.attribute_gram_cells for _, q in product.factors
        ):
            pairs = [_mean_eigenvalues(q) for _, q in product.factors]
        else:
            each = float(term.row_powers(2).sum()) / term.cells
            pairs = [(each if axis == 0 else 1.0,) * 2 for axis in range(len(term.shape))]
        for subset, height, _ in _pieces(term.attributes, term.shape, pairs):
            form.raise_height(subset, weight * height)
    return form


def _empty_form(layout: TableLayout) -> Diagonal:
    return Diagonal(
        layout,
        [np.zeros(len(s.sets)) for s in layout.tops],
        [np.zeros((len(s.sets), *s.shape)) for s in layout.tops],
        [np.zeros(len(s.sets)) for s in layout.lows],
        layout.zeros(),
        0.0,
    )


def _pieces(
    names: Names, shape: tuple[int, ...], pairs: Sequence[Pair]
) -> list[tuple[Names, float, float]]:
    """Every subset with its height at weight 1 and the cells along the rest."""
    out = []
    for size in range(len(names) + 1):
        for axes in combinations(range(len(names)), size):
            rest = [i for i in range(len(names)) if i not in axes]
            inside = prod(pairs[i][0] for i in axes)
            outside = prod(pairs[i][1] / shape[i] for i in rest)
            cells = float(prod(shape[i] for i in rest))
            out.append((tuple(names[i] for i in axes), inside * outside, cells))
    return out


def _eigenvalues(part: FitPart, pairs_of: dict[int, Pair | None]) -> list[Pair] | None:
    """Per attribute the eigenvalues of Q'Q off and along the constant, where it has only two."""
    term, weights = part.term.as_product(), part.weights
    if term is None or (weights.size and np.ptp(weights) > 0):
        return None
    pairs = []
    for _, queries in term.factors:
        if id(queries) not in pairs_of:
            pairs_of[id(queries)] = _two_eigenvalues(queries)
        pair = pairs_of[id(queries)]
        if pair is None:
            return None
        pairs.append(pair)
    return pairs


def _two_eigenvalues(queries: QuerySet) -> Pair | None:
    n = queries.size
    if queries.is_identity:
        return 1.0, 1.0
    if n > LIMITS.attribute_gram_cells:
        return None
    off, along_constant = _mean_eigenvalues(queries)
    model = np.full((n, n), (along_constant - off) / n)
    model[np.diag_indices(n)] += off
    slack = LIMITS.eigenvalue_rounding * n * max(off, along_constant)
    return (off, along_constant) if np.allclose(queries.gram(), model, rtol=0, atol=slack) else None


def _mean_eigenvalues(queries: QuerySet) -> Pair:
    """The mean eigenvalue of Q'Q off the constant, and the one along it."""
    n, gram = queries.size, queries.gram()
    along_constant = float(gram.sum()) / n
    off = (float(np.trace(gram)) - along_constant) / (n - 1) if n > 1 else along_constant
    maximum = max(abs(off), abs(along_constant))
    # Coefficients are multiples of a power of two: only rounding makes an eigenvalue this small.
    off, along_constant = (
        0.0 if abs(e) <= LIMITS.eigenvalue_rounding * maximum else e for e in (off, along_constant)
    )
    return off, along_constant
