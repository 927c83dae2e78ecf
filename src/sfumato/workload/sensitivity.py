# SPDX-License-Identifier: Apache-2.0
"""The sensitivity of a union of terms: its maximum column norm, without building its matrix.

The column of a cell has p-th power norm ``sum_t s_t prod_A n_{t,A}(cell)``, where ``n_{t,A}`` is an
array over one attribute (or over a few, for explicit terms and conditions). Its maximum over all
cells is found like this:

1. Cells of an attribute that no array tells apart are merged.
2. Attributes that share an array form a block; blocks are independent choices.
3. Of a block only the cells that are not dominated (no other cell is at least as large in every
   term) can be part of a maximum.
4. Blocks are combined one by one. A term whose last block was combined is a plain number, so all
   such terms are summed, and dominated combinations are dropped again.

When a step would hold too much, the sum of the terms' own maxima is used, which is never too
small; ``is_exact`` says which it was. Conditions that tell too many cells apart are counted by
branch and bound (`clauses.py`), and stand beside the others in the same way.

Theorem (Dwork, McSherry, Nissim, Smith 2006, for p = 1; Dwork, Kenthapadi, McSherry, Mironov,
Naor 2006, "Our data, ourselves", for p = 2): the 1 -> p norm of M is the L_p sensitivity of
``h -> M h`` when one record is added or removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.types import Array, Integers
from sfumato.workload.clauses import maximum_overlap
from sfumato.workload.queries import joint_classes
from sfumato.workload.terms import Term
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "SensitivityBound",
    "greatest_column_power",
]


# Sums and products of at most 2^20 non-negative floats err by less than 2^20 * 2^-52 relatively;
# the answer is multiplied by this, so that it is never below the exact value.
ROUND_UP = 1 + 2.0**-30


@dataclass(frozen=True, slots=True)
class SensitivityBound:
    """The p-th power of a sensitivity in L_p; ``is_exact`` is false for an upper bound."""

    power: float
    is_exact: bool


@dataclass(frozen=True, eq=False, slots=True)
class _Factor:
    """An array over classes of cells of some attributes; None means one class per cell."""

    names: tuple[str, ...]
    values: Array
    class_of: tuple[Integers, ...] | None = None

    def classes(self, axis: int) -> Integers:
        """The class of every cell along an axis, cells with equal values joined."""
        if self.values.ndim == 1:
            values = self.values if self.class_of is None else self.values[self.class_of[0]]
            return _numbered(values)
        if self.class_of is not None:
            return self.class_of[axis]
        slices = np.moveaxis(self.values, axis, 0)
        return _numbered(slices.reshape(len(slices), -1))

    def at(self, cells: Sequence[Integers]) -> Array:
        """The values at the given cells of each attribute."""
        if self.class_of is not None:
            cells = [of[c] for of, c in zip(self.class_of, cells, strict=True)]
        return self.values[np.ix_(*cells)]


@dataclass(frozen=True, eq=False, slots=True)
class _Block:
    """Independent choices: ``columns[row_of[t], j]`` is the share of term t when j is chosen."""

    row_of: dict[int, int]
    columns: Array


def greatest_column_power(
    terms: Sequence[Term], scales: Sequence[float], p: int
) -> SensitivityBound:
    """``max over cells of sum_t scales[t] * sum_{q in t} |q(cell)|^p``, rounded up.

    A Laplace or Gaussian release that adds noise of scale 1 to a term divided by its noise scale
    ``b`` passes ``scales = b^-p``. The answer is not rounded where floats compute it exactly.
    """
    scale = np.array(scales, dtype=np.float64)
    if not (scale >= 0).all():
        raise WorkloadError("the scales of a column norm must not be below zero")
    wide = [t for t in terms if not t.has_small_classes]
    if wide:
        return _beside(terms, scales, p, wide)
    gathered = _gather(terms, p)
    distinct = {id(f): f for own in gathered for f in own}
    top = {key: float(f.values.max()) for key, f in distinct.items()}
    varies = {key: bool(f.values.min() < top[key]) for key, f in distinct.items()}
    for i, own in enumerate(gathered):
        scale[i] *= prod(top[id(f)] for f in own if not varies[id(f)])
    factors = [[f for f in own if varies[id(f)]] for own in gathered]
    maxima = (prod(top[id(f)] for f in own) for own in factors)
    limit = sum(float(s) * maximum for s, maximum in zip(scale, maxima, strict=True))
    maximum = _search(factors, scale)
    power = limit if maximum is None else maximum
    if not _is_exact_in_floats(terms, scales, distinct.values(), p, limit):
        power *= ROUND_UP
    return SensitivityBound(power, maximum is not None)


def _beside(
    terms: Sequence[Term], scales: Sequence[float], p: int, wide: Sequence[Term]
) -> SensitivityBound:
    """The bound of conditions whose cells cannot be listed, plus that of the other terms."""
    numbers = {id(t) for t in wide}
    pairs = list(zip(terms, scales, strict=True))
    rest = [(t, s) for t, s in pairs if id(t) not in numbers]
    sizes = [float(s) for t, s in pairs if id(t) in numbers]
    each = [_held((t,)) for t in wide]
    power = sum(s * n.power for s, n in zip(sizes, each, strict=True))
    is_exact = each[0].is_exact and len(wide) == 1
    if len(wide) > 1:
        together = _held(tuple(wide))
        if max(sizes) * together.power <= power:
            power = max(sizes) * together.power
            is_exact = together.is_exact and min(sizes) == max(sizes)
    if rest:
        beside = greatest_column_power([t for t, _ in rest], [s for _, s in rest], p)
        power, is_exact = power + beside.power, False
    is_whole = all(float(s).is_integer() for s in scales) and power < 2.0**53
    return SensitivityBound(power if is_whole and not rest else power * ROUND_UP, is_exact)


def _held(terms: tuple[Term, ...]) -> SensitivityBound:
    """The maximum number of conditions that hold at once; all of them, where there are too many."""
    rows = sum(t.rows for t in terms)
    if rows <= LIMITS.conditions_counted:
        with suppress(TooLarge):
            overlap = maximum_overlap(terms)
            return SensitivityBound(min(overlap.upper, float(rows)), overlap.is_exact)
    return SensitivityBound(float(rows), is_exact=False)


def _gather(terms: Sequence[Term], p: int) -> list[list[_Factor]]:
    """The arrays of every term; query sets that are the same object give the same array."""
    factors: dict[tuple[str, int], _Factor] = {}
    out: list[list[_Factor]] = []
    for term in terms:
        product = term.as_product()
        if product is None:
            out.append([_Factor(*parts) for parts in term.class_factors(p)])
            continue
        for name, queries in product.factors:
            if (name, id(queries)) not in factors:
                factors[name, id(queries)] = _Factor((name,), queries.column_powers(p))
        out.append([factors[name, id(queries)] for name, queries in product.factors])
    return out


def _is_exact_in_floats(
    terms: Sequence[Term],
    scales: Sequence[float],
    factors: Iterable[_Factor],
    p: int,
    limit: float,
) -> bool:
    """Whether all numbers are multiples of one power of two, and few enough for 53 bits."""
    bits = p * max((t.fraction_bits for t in terms), default=0)
    if bits > 52 or limit * 2.0**bits >= 2.0**53:
        return False
    if not all(float(s).is_integer() for s in scales):
        return False
    scaled = (np.ldexp(f.values, bits) for f in factors)
    return all(bool((s == np.rint(s)).all()) for s in scaled)


def _search(factors: list[list[_Factor]], scale: Array) -> float | None:
    """The maximum over all cells, or None when the search would hold too much."""
    distinct = {id(f): f for fs in factors for f in fs}
    cells = _representatives(distinct.values())
    values = {key: f.at([cells[n] for n in f.names]) for key, f in distinct.items()}
    blocks = []
    for names in _independent(distinct.values()):
        block = _block(names, factors, values, {n: len(cells[n]) for n in names})
        if block is None:
            return None
        blocks.append(block)
    return _combined(blocks, scale)


def _representatives(factors: Iterable[_Factor]) -> dict[str, Integers]:
    """For each attribute, one cell of every class that no array tells apart."""
    keys: dict[str, list[Integers]] = {}
    for factor in factors:
        for axis, name in enumerate(factor.names):
            keys.setdefault(name, []).append(factor.classes(axis))
    joint = {name: joint_classes(own) for name, own in keys.items()}
    return {name: np.unique(of, return_index=True)[1] for name, of in joint.items()}


def _numbered(values: Array) -> Integers:
    """A number per entry (or row), equal for equal ones."""
    if values.size > LIMITS.column_numbers:
        return np.arange(len(values))
    return np.unique(values, axis=0, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _independent(factors: Iterable[_Factor]) -> list[tuple[str, ...]]:
    """The blocks: sets of attributes of which no two share an array."""
    blocks: list[set[str]] = []
    for names in sorted({f.names for f in factors}):
        joined = [b for b in blocks if b & set(names)]
        blocks = [b for b in blocks if not b & set(names)] + [set(names).union(*joined)]
    return [tuple(sorted(b)) for b in blocks]


def _block(
    names: tuple[str, ...],
    factors: list[list[_Factor]],
    values: dict[int, Array],
    sizes: dict[str, int],
) -> _Block | None:
    """The non-dominated cells of a block, terms with equal arrays sharing a row."""
    shape = tuple(sizes[name] for name in names)
    rows: dict[tuple[int, ...], int] = {}
    row_of: dict[int, int] = {}
    arrays: list[list[_Factor]] = []
    for t, own in enumerate(factors):
        inside = [f for f in own if f.names[0] in sizes]
        key = tuple(id(f) for f in inside)
        if inside:
            row_of[t] = rows.setdefault(key, len(rows))
            if row_of[t] == len(arrays):
                arrays.append(inside)
    if len(arrays) * prod(shape) > LIMITS.column_numbers:
        return None
    columns = np.ones((len(arrays), *shape))
    for row, inside in zip(columns, arrays, strict=True):
        for f in inside:
            order = [f.names.index(n) for n in names if n in f.names]
            spread = [sizes[n] if n in f.names else 1 for n in names]
            row *= values[id(f)].transpose(order).reshape(spread)
    flat = columns.reshape(len(arrays), -1)
    return _Block(row_of, flat[:, _non_dominated(flat)])


def _combined(blocks: list[_Block], scale: Array) -> float | None:
    """The maximum, over combinations of choices, of the sum over terms of products over blocks."""
    left = Counter(t for block in blocks for t in block.row_of)
    pending: dict[int, Array] = {}
    settled = np.array([sum(s for t, s in enumerate(scale) if t not in left)], dtype=np.float64)
    for block in sorted(blocks, key=lambda b: b.columns.shape[1]):
        before, count = settled.size, block.columns.shape[1]
        if before * count * (len(pending) + len(block.row_of) + 1) > LIMITS.column_numbers:
            return None
        settled = np.repeat(settled, count)
        pending = {t: np.repeat(v, count) for t, v in pending.items()}
        spread = np.tile(block.columns, before)
        for t, row in block.row_of.items():
            share = pending.pop(t, scale[t]) * spread[row]
            left[t] -= 1
            if left[t]:
                pending[t] = share
            else:
                settled += share
        stays = _non_dominated(np.array([*pending.values(), settled]))
        settled = settled[stays]
        pending = {t: v[stays] for t, v in pending.items()}
    return float(settled.max())


def _non_dominated(columns: Array) -> Integers:
    """The numbers of the distinct columns that no other column matches or exceeds in every row.

    Some dominated columns may stay, which costs time and is never wrong.
    """
    rows = columns[(columns != columns[:, :1]).any(axis=1)]
    varying = rows[list({row.tobytes(): i for i, row in enumerate(rows)}.values())]
    if len(varying) <= 1:
        return np.array([varying[0].argmax() if len(varying) else 0])
    _, first = np.unique(varying, axis=1, return_index=True)
    order = first[np.argsort(-varying[:, first].sum(axis=0), kind="stable")]
    if len(order) * len(varying) * LIMITS.column_rivals > LIMITS.column_comparisons:
        return np.asarray(order)
    at_once = max(1, LIMITS.column_numbers // (len(varying) * 2 * LIMITS.column_rivals))
    winners = np.zeros(0, dtype=np.int64)
    for start in range(0, len(order), min(at_once, LIMITS.column_rivals)):
        chunk = order[start : start + min(at_once, LIMITS.column_rivals)]
        rivals = np.concatenate([winners[: LIMITS.column_rivals], chunk])
        wins = np.asarray((varying[:, rivals, None] >= varying[:, None, chunk]).all(axis=0))
        itself = np.arange(len(chunk))
        wins[len(rivals) - len(chunk) + itself, itself] = False
        winners = np.concatenate([winners, chunk[~wins.any(axis=0)]])
    return winners
