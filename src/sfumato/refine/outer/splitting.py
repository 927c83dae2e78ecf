# SPDX-License-Identifier: Apache-2.0
"""Bounds on the greatest sum of overlapping tables, where no joint table can be built.

From above: ``max_x sum_s t_s(x_s) <= sum_s max t_s``, for every way of writing the sum. Tables are
rewritten by moving functions of one attribute between them until they agree on what each of its
values is worth (max-sum diffusion: T. Werner 2007, "A linear programming approach to max-sum
problem: a review"; the bound is the dual of M. Wainwright, T. Jaakkola, A. Willsky 2005, "MAP
estimation via agreement on trees"). Every step keeps the sum and lowers the bound or leaves it.

From below: cells from which no change of a single attribute goes up. The first are read off the
rewritten tables, the others are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sfumato.refine.draws import Draws
from sfumato.workload.queries import Array, Integers

__all__ = ["Split", "agreed", "climbed"]

SWEEPS = 60
GAIN = 2e-3  # of the bound, in one sweep, below which no further one is made
STARTS = 64
CLIMBS = 50

Names = tuple[str, ...]
Tables = Mapping[Names, Array]


@dataclass(frozen=True, eq=False)
class Split:
    """Tables with the sum of the given ones, none of them part of another; ``upper`` bounds it."""

    upper: float
    tables: Tables


def agreed(tables: Tables, sizes: Mapping[str, int]) -> Split:
    """The least bound that moving functions of one attribute reaches in a few sweeps."""
    parts = _absorbed(tables, sizes)
    readers = {n: [s for s in parts if n in s] for n in sizes}
    upper = _bound(parts)
    for _ in range(SWEEPS):
        for name, sets in readers.items():
            if len(sets) > 1:
                _diffuse(parts, name, sets)
        before, upper = upper, min(upper, _bound(parts))
        if before - upper <= GAIN * abs(before):
            break
    # The sum of the moved functions is zero up to rounding: each of its additions errs by less
    # than 2^-52 of the greatest entry.
    reach = sum(float(np.abs(t).max()) for t in parts.values()) + abs(upper)
    return Split(upper + reach * len(sizes) * SWEEPS * 2.0**-50, parts)


def _bound(parts: Tables) -> float:
    return sum(float(t.max()) for t in parts.values())


def _diffuse(parts: dict[Names, Array], name: str, sets: list[Names]) -> None:
    """Every table gets the same best value for each value of an attribute: their mean."""
    axes = {s: tuple(i for i, n in enumerate(s) if n != name) for s in sets}
    worth = {s: parts[s].max(axis=axes[s]) for s in sets}
    mean = sum(worth.values()) / len(sets)
    for s in sets:
        along = [-1 if n == name else 1 for n in s]
        parts[s] = parts[s] + (mean - worth[s]).reshape(along)


def _absorbed(tables: Tables, sizes: Mapping[str, int]) -> dict[Names, Array]:
    """Copies of the tables, those over part of another's attributes added to the largest such."""
    out: dict[Names, Array] = {}
    for names in sorted(tables, key=len, reverse=True):
        table = tables[names]
        hosts = [s for s in out if set(names) <= set(s)]
        if hosts:
            host = max(hosts, key=lambda s: out[s].size)
            shape = [sizes[n] if n in names else 1 for n in host]
            # Attributes of all tables are in the order of the domain.
            out[host] = out[host] + table.reshape(shape)
        else:
            out[names] = np.array(table, dtype=np.float64)
    return out


def climbed(
    tables: Tables, split: Split, names: Names, sizes: Mapping[str, int], draws: Draws
) -> dict[str, int]:
    """A cell of great value, by changes of one attribute at a time from ``STARTS`` cells."""
    rows = {n: draws.below(sizes[n], STARTS) for n in names}
    for n in names:
        rows[n][0] = _favourite(split.tables, n, sizes)
    parts = _absorbed(tables, sizes)
    before = _values(parts, rows)
    for _ in range(CLIMBS):
        for name in names:
            rows[name] = _options(parts, rows, name, sizes).argmax(axis=1)
        reached = _values(parts, rows)
        if (reached <= before).all():
            break
        before = reached
    best = int(_values(parts, rows).argmax())
    return {n: int(rows[n][best]) for n in names}


def _favourite(parts: Tables, name: str, sizes: Mapping[str, int]) -> int:
    total = np.zeros(sizes[name])
    for s, table in parts.items():
        if name in s:
            total += table.max(axis=tuple(i for i, n in enumerate(s) if n != name))
    return int(total.argmax())


def _values(parts: Tables, rows: Mapping[str, Integers]) -> Array:
    total = np.zeros(STARTS)
    for names, table in parts.items():
        total = total + table[tuple(rows[n] for n in names)]
    return total


def _options(
    parts: Tables, rows: Mapping[str, Integers], name: str, sizes: Mapping[str, int]
) -> Array:
    """For every row, what each value of one attribute would be worth, the others staying."""
    total = np.zeros((STARTS, sizes[name]))
    for names, table in parts.items():
        if name in names:
            moved = np.moveaxis(table, names.index(name), -1)
            total += moved[tuple(rows[n] for n in names if n != name)]
    return total
