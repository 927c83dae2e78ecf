# SPDX-License-Identifier: Apache-2.0
"""The interactions of queries: what they ask of every set of attributes, in whole numbers.

A term is a product of factors, each with coefficients by cell: one factor per attribute where it
is a product of query sets, one factor of all its attributes elsewhere. Interactions of a product
are products of those of its factors, so that a table of many attributes is never listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, prod, sqrt

import numpy as np

from sfumato.errors import TooLarge
from sfumato.strategy.measured import EXACT
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Names
from sfumato.workload.predicates import cell_truth
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "Factor",
    "InteractionPart",
    "PartReader",
    "QueryGroup",
    "SetQueries",
    "collected",
    "digest_of",
    "kronecker",
    "query_groups",
]


@dataclass(frozen=True, eq=False)
class Factor:
    """Coefficients by cell of some attributes: whole multiples of 2^-bits, a row per query."""

    names: Names
    table: Array
    bits: int
    digest: bytes  # equal for equal coefficients, whatever the names


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """Queries of one term on the same attributes: all combinations of a row of every factor."""

    term: int
    rows: Integers
    factors: tuple[Factor, ...]
    weight: float

    @property
    def names(self) -> Names:
        """The attributes, in the order of the domain."""
        return tuple(n for f in self.factors for n in f.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows of every factor."""
        return tuple(len(f.table) for f in self.factors)


def digest_of(numbers: Array) -> bytes:
    """A hash of numbers and shape."""
    held = np.ascontiguousarray(numbers, dtype=np.float64)
    return hashlib.sha256(repr(held.shape).encode() + held.tobytes()).digest()


def kronecker(tables: Iterable[Array]) -> Array:
    """The Kronecker product of matrices; of none the number 1."""
    out: Array = np.ones((1, 1))
    for table in tables:
        out = np.asarray(np.kron(out, table), dtype=np.float64)
    return out


def query_groups(workload: Workload, ways: int = LIMITS.interaction_ways) -> list[QueryGroup]:
    """The queries of every term, those of a list of conditions by the attributes of each.

    Equal coefficients are held once; a query may look at ``ways`` attributes.
    """
    groups = []
    held: dict[bytes, Array] = {}
    listed: dict[tuple[str, str | int], Factor] = {}
    entries = 0
    for t, term in enumerate(workload.terms):
        for rows, factors in _factors(term, listed, ways):
            own = []
            for factor in factors:
                if factor.digest not in held:
                    entries += factor.table.size
                    _check_entries(term, factor.names, entries, ways)
                own.append(replace(factor, table=held.setdefault(factor.digest, factor.table)))
            groups.append(QueryGroup(t, rows, tuple(own), term.weight))
    return groups


def _factors(
    term: Term, listed: dict[tuple[str, str | int], Factor], ways: int
) -> Iterator[tuple[Integers, list[Factor]]]:
    """Rows of a term and their factors; ``listed`` has those of query sets that came before."""
    product = term.as_product()
    if product is not None:
        _check_entries(term, product.attributes, 0, ways)
        factors = []
        for name, queries in product.factors:
            if (name, queries.key) not in listed:
                _check_entries(term, (name,), queries.rows * queries.size, ways)
                table = np.asarray(queries.dense(), dtype=np.float64)
                listed[name, queries.key] = _factor((name,), table, queries.fraction_bits)
            factors.append(listed[name, queries.key])
        yield np.arange(term.rows), factors
        return
    for names, rows in _by_attributes(term).items():
        _check_entries(term, names, len(rows) * term.domain.cells(names), ways)
        if conditions := term.as_conditions():
            truth = [cell_truth(term.domain, conditions[i], names) for i in rows]
            table = np.array(truth, dtype=np.float64).reshape(len(rows), -1)
        else:
            table = np.ascontiguousarray(term.dense(), dtype=np.float64)
        yield rows, [_factor(names, table, term.fraction_bits)]


def _factor(names: Names, table: Array, bits: int) -> Factor:
    return Factor(names, table, bits, digest_of(table) + bytes([bits]))


def _by_attributes(term: Term) -> dict[Names, Integers]:
    """The queries of a term by their attributes, where conditions look at different ones."""
    if not term.as_conditions():
        return {term.attributes: np.arange(term.rows)}
    rows: dict[Names, list[int]] = {}
    for i, condition in enumerate(term.as_conditions()):
        rows.setdefault(term.domain.in_order(condition.attributes), []).append(i)
    return {names: np.array(held, dtype=np.int64) for names, held in rows.items()}


def _check_entries(term: Term, names: Names, entries: int, ways: int) -> None:
    if len(names) > ways or entries > LIMITS.interaction_entries:
        raise TooLarge(
            f"group {term.name!r} has queries on {len(names)} attributes; interactions are listed "
            f"for at most {ways} attributes a query and for "
            f"{LIMITS.interaction_entries:,} different coefficients, not {entries:,}"
        )


# Interactions with whole coefficients


@dataclass(frozen=True, eq=False)
class _FactorPart:
    """The interaction of one factor on some of its attributes (axes): whole coefficients."""

    axes: tuple[int, ...]
    table: Array
    digest: bytes


def _factor_parts(factor: Factor, weights: Mapping[str, Integers]) -> list[_FactorPart]:
    """All interactions of a factor that are not zero, each times the sums of the weights.

    Along an attribute of weights ``u / U``, U times the average is ``f u``, U times the rest ``U f
    - f u``.
    """
    shape = [len(weights[n]) for n in factor.names]
    table = np.ldexp(factor.table, factor.bits).reshape(len(factor.table), *shape)
    reach = prod(2.0 * weights[n].sum() for n in factor.names)
    if float(np.abs(table).max()) * reach > EXACT:
        raise TooLarge("the interactions of queries need more than 53 bits; round the queries")
    parts: dict[tuple[int, ...], Array] = {(): table}
    for axis in reversed(range(len(factor.names))):
        u = weights[factor.names[axis]].astype(np.float64)
        following: dict[tuple[int, ...], Array] = {}
        for inside, part in parts.items():
            mean = np.tensordot(part, u, axes=(axis + 1, 0))
            following[inside] = mean
            following[(axis, *inside)] = u.sum() * part - np.expand_dims(mean, axis + 1)
        parts = following
    out = []
    for inside, part in parts.items():
        if part.any():
            flat = part.reshape(len(table), -1)
            out.append(_FactorPart(inside, flat, digest_of(flat)))
    return out


@dataclass(frozen=True, eq=False)
class InteractionPart:
    """What some groups ask of a set of attributes: all combinations of a row of every table."""

    tables: tuple[Array, ...]
    key: tuple[bytes, ...]
    weight: float = 0.0

    @property
    def rows(self) -> Array:
        """All combinations, over the cells of the set."""
        return kronecker(self.tables)

    @property
    def count(self) -> int:
        """The number of combinations."""
        return prod(len(t) for t in self.tables)


@dataclass(frozen=True, eq=False)
class PartReader:
    """A group that asks for a part: which of its factors it combines, and averages of others."""

    group: int
    part: int
    inside: tuple[int, ...]
    outside: tuple[tuple[int, Array], ...]
    divisor: float


@dataclass(frozen=True, eq=False)
class SetQueries:
    """All that is asked of one set of attributes: different parts, and the groups that ask."""

    names: Names
    cells: int
    parts: tuple[InteractionPart, ...]
    readers: tuple[PartReader, ...]

    @property
    def is_joint(self) -> bool:
        """Whether it is solved over all cells together, not attribute by attribute."""
        if any(len(part.tables) != len(self.names) for part in self.parts):
            return True
        return len(self.names) < 2 or (
            len(self.parts) > 1 and self.cells <= LIMITS.interaction_joint_cells
        )

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for sets of attributes of which the same is asked."""
        return tuple((part.key, part.weight) for part in self.parts)


def collected(
    groups: Sequence[QueryGroup], weights: Mapping[str, Integers]
) -> dict[Names, SetQueries]:
    """What is asked of every set of attributes, in the order of their size."""
    made: dict[tuple[object, ...], list[_FactorPart]] = {}
    by_set: dict[
        Names, dict[tuple[bytes, ...], list[tuple[InteractionPart, PartReader, float]]]
    ] = {}
    for g, group in enumerate(groups):
        options = []
        divisor = 1.0
        for factor in group.factors:
            own = [weights[n] for n in factor.names]
            key = (factor.digest, *(w.tobytes() for w in own))
            if key not in made:
                made[key] = _factor_parts(factor, weights)
            options.append(made[key])
            divisor *= 2.0**factor.bits * prod(int(w.sum()) for w in own)
        for chosen in _combinations(options):
            inside = tuple(i for i, p in enumerate(chosen) if p.axes)
            outside = tuple((i, p.table[:, 0]) for i, p in enumerate(chosen) if not p.axes)
            pairs = zip(group.factors, chosen, strict=True)
            names = tuple(factor.names[axis] for factor, p in pairs for axis in p.axes)
            part = InteractionPart(
                tuple(chosen[i].table for i in inside), tuple(chosen[i].digest for i in inside)
            )
            size = prod(float(np.linalg.norm(average)) for _, average in outside)
            reader = PartReader(g, 0, inside, outside, divisor)
            entry = (part, reader, group.weight * size / divisor)
            by_set.setdefault(names, {}).setdefault(part.key, []).append(entry)
    return {n: _set(n, by_set[n], weights) for n in sorted(by_set, key=lambda n: (len(n), n))}


def _combinations(options: Sequence[list[_FactorPart]]) -> Iterator[list[_FactorPart]]:
    if not options:
        yield []
        return
    for first in options[0]:
        for rest in _combinations(options[1:]):
            yield [first, *rest]


def _set(
    names: Names,
    by_key: Mapping[tuple[bytes, ...], list[tuple[InteractionPart, PartReader, float]]],
    weights: Mapping[str, Integers],
) -> SetQueries:
    """Equal parts become one, with the sum of their squared weights."""
    parts, readers = [], []
    for number, key in enumerate(sorted(by_key)):
        same = by_key[key]
        weight = sqrt(fsum(w**2 for _, _, w in same))
        parts.append(InteractionPart(same[0][0].tables, key, weight))
        readers += [PartReader(r.group, number, r.inside, r.outside, r.divisor) for _, r, _ in same]
    return SetQueries(names, prod(len(weights[n]) for n in names), tuple(parts), tuple(readers))
