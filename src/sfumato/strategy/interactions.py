# SPDX-License-Identifier: Apache-2.0
"""Unions of any queries on few attributes each, by interactions: one block per set of attributes.

Give the cells of every attribute i weights z_i that add up to 1. A query f on attributes A is the
sum over the subsets B of A of its *interactions*

    f_B = f averaged by z along A - B, and less its average by z along every attribute of B,

a function of the cells of B alone (for equal weights the analysis of variance; Hoeffding 1948). So
a block that measures the interactions on B of all queries, whoever queries, for every B, is enough;
each is a matrix on the cells of B, solved by itself to the certified optimum
(``solve/nuclear.py``), of squared error e_B at unit sensitivity. With ``theta_B`` the part of the
sensitivity that block B has,

    error = sum_B e_B / theta_B   subject to   sum_B theta_B = 1

is least, ``(sum_B sqrt(e_B))^2``, at ``theta_B ~ sqrt(e_B)``. For marginals this is the optimum,
for products with other queries it contains the pieces of ``pieces.py``; conditions such as ``i + j
<= c``, which are no products, enter in the same way. Neither the domain nor the union of the
attributes is ever listed: only the cells of the attributes of one query.

The weights z are between equal ones and ``X^-1 1``, where X is the optimum of what is asked of one
attribute: those for which the total and the rest of that optimum have independent noise. They are
rounded to whole numbers, so that interactions have whole coefficients; an optimal ``M = H F`` is
rewritten for independent interactions E and rounded to ``C E`` with C invertible (``matrix.py``),
so the answers are unbiased whatever was rounded.

Interactions of a product are products: where only products ask for a set, it is measured attribute
by attribute, and its cells are not listed.

References: Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals under convex loss functions" (marginals by residuals); QuerySmasher (arXiv 2604.00868) and
weighted Fourier factorizations (arXiv 2512.21499) for pairs that are no products.

**Lower bounds** on the error of every strategy, from the interactions of queries. Let F be all
queries times their weights, D the diagonal matrix of cell weights that are products of weights z of
sum 1, and ``M = F D^1/2``. By weak duality (``solve/nuclear.py``) no strategy has a squared error
below the square of the nuclear norm of M, which is the greatest ``tr(W'M)`` over contractions W.
Interactions on different sets of attributes are orthogonal: with ``P_B`` the projection onto those
on B, ``M = sum_B M P_B``.

*Few queries.* ``M M' = sum_B M P_B M'`` is a matrix of their size: the norm itself.

*Many queries.* Let t number the groups of queries with the same attributes, ``M_t`` their rows. For
any contractions ``U_t`` and any C_tB with ``sum_t C_tB' C_tB <= I`` for every B,

    W_t = U_t C_t,    C_t = sum_B P_B C_tB P_B,    sum_t W_t'W_t <= sum_t C_t'C_t <= I,

so W is a contraction. Given U the best C have the value

    sum_B || (G_tB)_t ||,       G_tB = P_B U_t' M_t P_B,

the nuclear norms of the stacked matrices, attained at their polar factors; given C the best U_t is
the polar factor of ``M_t C_t'``. The two steps alternate, and whatever U the last one has gives a
bound. For C = I and products of query sets it is the bound of ``pieces.pinched_bound``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, prod, sqrt
from typing import ClassVar

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root, spanning_cells
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.matrix import invertible_mixing, query_basis, rounded_mixing
from sfumato.strategy.measured import EXACT
from sfumato.strategy.query_interactions import (
    PartReader,
    QueryGroup,
    SetQueries,
    collected,
    kronecker,
    query_groups,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Names
from sfumato.workload.queries import Matrix
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Interactions",
    "KroneckerReading",
    "SolvedSet",
    "interaction_bound",
    "interactions",
    "shared_blocks",
    "solved_along",
]

# Directions below this part of the greatest eigenvalue are left out of a polar factor: the others
# are computed to some 2^-20 of themselves, so that U is a contraction up to a part below 2^-18.
POLAR_SMALLEST = 2.0**-24
ROUND_DOWN = 1 - 2.0**-17


def interaction_bound(
    groups: Sequence[QueryGroup],
    options: Sequence[Mapping[str, Integers]],
    by_set: Sequence[Mapping[Names, SetQueries]],
    errors: Sequence[float],
) -> float | None:
    """The greatest bound of some weights of cells; None where the groups are too large.

    Args:
        groups: The queries.
        options: Whole weights of the cells of every attribute, and
        by_set: the interactions for each.
        errors: What strategies with these weights err by: the least are tried for many queries.
    """
    count = sum(len(g.rows) for g in groups)
    if count <= LIMITS.interaction_queries:
        return max(_of_all(groups, *pair) for pair in zip(options, by_set, strict=True))
    best = np.argsort(errors, kind="stable")[: LIMITS.interaction_polar_options].tolist()
    enough = min(errors) / LIMITS.interaction_polar_enough
    greatest: float | None = None
    for i in best:
        bound = _PinchedClusters(groups, options[i], by_set[i]).bound(enough)
        greatest = max((b for b in (greatest, bound) if b is not None), default=None)
        if greatest is not None and greatest >= enough**2 * ROUND_DOWN:
            break
    return greatest


def _measure(names: Names, weights: Mapping[str, Integers]) -> Array:
    """The root of the weights of all cells of some attributes."""
    out = np.ones(1)
    for name in names:
        out = np.outer(out, np.sqrt(weights[name] / weights[name].sum())).reshape(-1)
    return out


def _of_all(
    groups: Sequence[QueryGroup],
    weights: Mapping[str, Integers],
    by_set: Mapping[Names, SetQueries],
) -> float:
    """``(tr A^1/2)^2`` with A the inner products of all queries."""
    firsts = np.cumsum([0, *(len(g.rows) for g in groups)])
    count = int(firsts[-1])
    gram = np.zeros((count, count))
    for names, one in by_set.items():
        root = _measure(names, weights)
        rows = [_rows(one, r) * (groups[r.group].weight * root) for r in one.readers]
        at = np.concatenate([np.arange(firsts[r.group], firsts[r.group + 1]) for r in one.readers])
        stacked = np.concatenate(rows)
        spend(float(len(at)) ** 2 * stacked.shape[1])
        gram[np.ix_(at, at)] += stacked @ stacked.T
    spend(EIGEN * float(count) ** 3)
    eigen = np.linalg.eigvalsh(gram)
    # Each may be too large by the rounding of the sums and of the decomposition.
    off = count * EIGEN_ROUNDING * float(np.abs(eigen).max())
    return float(np.sqrt(np.maximum(eigen - off, 0.0)).sum() ** 2)


def _rows(queries: SetQueries, reader: PartReader) -> Array:
    """The interactions of all rows of a group with a set of attributes."""
    tables = dict(zip(reader.inside, queries.parts[reader.part].tables, strict=True))
    tables |= {factor: average[:, None] for factor, average in reader.outside}
    return kronecker(tables[f] for f in sorted(tables)) / reader.divisor


# Many queries


@dataclass
class _QueryCluster:
    """All queries on the same attributes: their interactions by set, or along each attribute.

    ``parts[B]`` are rows over the cells of B. Of a large product ``along[i]`` are ``s'H s``, with
    H the positive part of the polar decomposition along attribute i, and the rest ``P H P``.
    """

    parts: dict[Names, Array]
    along: dict[str, tuple[float, Array]]

    def traces_and_blocks(
        self, contractions: Mapping[Names, Array | float], is_alone: Mapping[Names, bool]
    ) -> dict[Names, Array | float]:
        """``G_tB`` of every B for the best U; of those that nobody else asks for, the trace."""
        if self.along:
            return {b: self._of_product(b, is_alone[b]) for b in self.parts}
        moved = {b: _times(part, contractions.get(b, 1.0)) for b, part in self.parts.items()}
        k = len(next(iter(self.parts.values())))
        spend(EIGEN * float(k) ** 3)
        values, vectors = np.linalg.eigh(sum((m @ m.T for m in moved.values()), np.zeros((k, k))))
        is_some = values > values[-1] * POLAR_SMALLEST
        half = vectors[:, is_some] * values[is_some] ** -0.25
        out: dict[Names, Array | float] = {}
        for b, part in self.parts.items():
            left, right = half.T @ moved[b], half.T @ part
            out[b] = float((left * right).sum()) if is_alone[b] else left.T @ right
        return out

    def _of_product(self, names: Names, is_alone: bool) -> Array | float:
        outside = prod(a for n, (a, _) in self.along.items() if n not in names)
        rests = [self.along[n][1] for n in names]
        if is_alone:
            return float(outside * prod(float(np.trace(r)) for r in rests))
        return outside * kronecker(rests)


def _times(part: Array, contraction: Array | float) -> Array:
    """``M C'``."""
    if isinstance(contraction, float):
        return part * contraction
    return np.asarray(part @ contraction.T, dtype=np.float64)


class _PinchedClusters:
    """The groups by their attributes; those with equal rows share one contraction U."""

    def __init__(
        self,
        groups: Sequence[QueryGroup],
        weights: Mapping[str, Integers],
        by_set: Mapping[Names, SetQueries],
    ) -> None:
        self.groups, self.weights, self.by_set = groups, weights, by_set
        members: dict[Names, list[int]] = {}
        for g, group in enumerate(groups):
            members.setdefault(group.names, []).append(g)
        self.members = members
        self.kind = {names: self._kind(names) for names in members}
        # Of every set, the clusters that ask for it: by kind and by which of their attributes.
        self.readers: dict[Names, list[tuple[object, tuple[int, ...]]]] = {}
        for names, one in by_set.items():
            over = sorted({groups[r.group].names for r in one.readers})
            self.readers[names] = [(self.kind[o], _axes(o, names)) for o in over]

    def _kind(self, names: Names) -> object:
        """Equal for clusters with equal rows."""
        own = sorted(
            ([f.digest for f in self.groups[g].factors], self.groups[g].weight)
            for g in self.members[names]
        )
        return repr(own), *(self.weights[n].tobytes() for n in names)

    def bound(self, enough: float = inf) -> float | None:
        """The square of the best value of some rounds, up to the first that is ``enough``."""
        made: dict[object, tuple[Names, _QueryCluster]] = {}
        for names, kind in self.kind.items():
            if kind not in made:
                cluster = self._cluster(names)
                if cluster is None:
                    return None
                made[kind] = names, cluster
        best = 0.0
        contractions: dict[tuple[object, tuple[int, ...]], Array | float] = {}
        for _ in range(LIMITS.interaction_polar_rounds):
            blocks: dict[tuple[object, tuple[int, ...]], Array | float] = {}
            for kind, (names, cluster) in made.items():
                own = {b: contractions.get((kind, _axes(names, b)), 1.0) for b in cluster.parts}
                alone = {b: self._is_alone(b) for b in cluster.parts}
                for b, block in cluster.traces_and_blocks(own, alone).items():
                    blocks[kind, _axes(names, b)] = block
            value, contractions = self._value(blocks)
            if value <= best * (1 + LIMITS.interaction_polar_gain) or value >= enough:
                best = max(best, value)
                break
            best = value
        return best**2 * ROUND_DOWN

    def _is_alone(self, names: Names) -> bool:
        """Whether traces are enough: nobody else asks, or there are too many cells to compare."""
        is_large = self.by_set[names].cells > LIMITS.interaction_polar_cells
        return len(self.readers[names]) == 1 or is_large

    def _value(
        self, blocks: Mapping[tuple[object, tuple[int, ...]], Array | float]
    ) -> tuple[float, dict[tuple[object, tuple[int, ...]], Array | float]]:
        """The sum of nuclear norms, and the polar factors that attain it."""
        total = 0.0
        norms: dict[object, float] = {}
        out: dict[tuple[object, tuple[int, ...]], Array | float] = {}
        for names, readers in self.readers.items():
            key = (self._is_alone(names), *sorted(map(repr, readers)))
            if key not in norms:
                norms[key], polar = _stacked([blocks[r] for r in readers])
                for reader, block in zip(readers, polar, strict=True):
                    out.setdefault(reader, block)
            total += norms[key]
        return total, out

    def _cluster(self, names: Names) -> _QueryCluster | None:
        """The rows of a cluster by set; along every attribute where it is one large product."""
        members = self.members[names]
        group = self.groups[members[0]]
        cells = prod(len(self.weights[n]) for n in names)
        count = sum(len(self.groups[g].rows) for g in members)
        is_product = len(members) == 1 and len(group.factors) == len(names)
        inside = {b for b in self.by_set if set(b) <= set(names)}
        if is_product and len(names) > 1 and count > LIMITS.interaction_polar_rows:
            along = {f.names[0]: self._along(f.table, f.names[0]) for f in group.factors}
            first = next(iter(along))
            along[first] = along[first][0] * group.weight, along[first][1] * group.weight
            held = {b for b in inside if self._asks(names, b)}
            return _QueryCluster(dict.fromkeys(held, np.zeros((0, 0))), along)
        if min(count, cells) > LIMITS.interaction_polar_side:
            return None
        parts = {}
        for b in inside:
            one = self.by_set[b]
            root = _measure(b, self.weights)
            held_rows = [
                (r.group, _rows(one, r) * (self.groups[r.group].weight * root))
                for r in one.readers
                if r.group in members
            ]
            if held_rows:
                parts[b] = self._filled(members, dict(held_rows), len(root))
        if count > cells:
            parts = _shortened(parts)
        return _QueryCluster(parts, {})

    def _asks(self, names: Names, inside: Names) -> bool:
        return any(self.groups[r.group].names == names for r in self.by_set[inside].readers)

    def _filled(self, members: Sequence[int], rows: Mapping[int, Array], cells: int) -> Array:
        """All rows of a cluster; groups that do not ask for a set have rows of zeros."""
        return np.concatenate(
            [rows.get(g, np.zeros((len(self.groups[g].rows), cells))) for g in members]
        )

    def _along(self, table: Array, name: str) -> tuple[float, Array]:
        """``s'H s`` and ``P H P`` along one attribute, ``H^2 = D^1/2 F'F D^1/2``."""
        s = _measure((name,), self.weights)
        spend(EIGEN * float(len(s)) ** 3)
        values, vectors = np.linalg.eigh((table.T @ table) * np.outer(s, s))
        # Not above the root itself: it is monotone in the order of positive matrices.
        roots = np.sqrt(np.maximum(values - values[-1] * len(s) * EIGEN_ROUNDING, 0.0))
        h = (vectors * roots) @ vectors.T
        project = np.eye(len(s)) - np.outer(s, s)
        return float(s @ h @ s), np.asarray(project @ h @ project, dtype=np.float64)


def _axes(names: Names, inside: Names) -> tuple[int, ...]:
    return tuple(names.index(n) for n in inside)


def _shortened(parts: Mapping[Names, Array]) -> dict[Names, Array]:
    """As many rows as cells, with the same inner products of columns."""
    names = list(parts)
    whole = np.concatenate([parts[b] for b in names], axis=1)
    triangle = np.asarray(np.linalg.qr(whole, mode="r"), dtype=np.float64)
    ends = np.cumsum([0, *(parts[b].shape[1] for b in names)])
    return {b: triangle[:, ends[i] : ends[i + 1]] for i, b in enumerate(names)}


def _stacked(blocks: Sequence[Array | float]) -> tuple[float, list[Array | float]]:
    """The nuclear norm of matrices one above the other, and its polar factor in the same parts.

    Where traces stand for matrices, multiples of one matrix are compared: a lower bound on it.
    """
    numbers = [b for b in blocks if isinstance(b, float)]
    if len(numbers) == len(blocks):
        size = sqrt(sum(n**2 for n in numbers))
        return size, [1.0 if len(numbers) == 1 else n / size for n in numbers]
    matrices = [np.asarray(b, dtype=np.float64) for b in blocks]
    gram = sum((m.T @ m for m in matrices), np.zeros_like(matrices[0]))
    spend(EIGEN * float(len(gram)) ** 3)
    values, vectors = np.linalg.eigh(gram)
    is_some = values > values[-1] * len(values) * EIGEN_ROUNDING
    inverse = (vectors[:, is_some] / np.sqrt(values[is_some])) @ vectors[:, is_some].T
    least = np.maximum(values - values[-1] * len(values) * EIGEN_ROUNDING, 0.0)
    return float(np.sqrt(least).sum()), [m @ inverse for m in matrices]


@dataclass(frozen=True, eq=False)
class KroneckerReading:
    """A Kronecker product of matrices, which takes measured values to answers.

    Each of ``parts`` names the factors of the group whose rows it holds; ``shape`` has the number
    of rows of all factors.
    """

    parts: tuple[tuple[tuple[int, ...], Array], ...]
    shape: tuple[int, ...]

    def apply(self, values: Array) -> Array:
        """The answers."""
        out = np.asarray(values, dtype=np.float64).reshape([m.shape[1] for _, m in self.parts])
        for axis, (_, matrix) in enumerate(self.parts):
            out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
        return self._in_order(out)

    def adjoint(self, coefficients: Array) -> Array:
        """What the coefficients of answers come to, by measured value."""
        order = [f for factors, _ in self.parts for f in factors]
        table = np.asarray(coefficients, dtype=np.float64).reshape(self.shape).transpose(order)
        out = table.reshape([len(m) for _, m in self.parts])
        for axis, (_, matrix) in enumerate(self.parts):
            out = np.moveaxis(np.tensordot(matrix, out, axes=(0, axis)), 0, axis)
        return out.reshape(-1)

    @cached_property
    def squares(self) -> Array:
        """The squared length of every row."""
        out: Array = np.ones(())
        for _, matrix in self.parts:
            out = np.multiply.outer(out, (matrix**2).sum(axis=1))
        return self._in_order(out)

    def dense(self) -> Array:
        """The matrix itself."""
        out = kronecker(matrix for _, matrix in self.parts)
        listed = out.reshape([*(len(m) for _, m in self.parts), out.shape[1]])
        return self._in_order(listed).reshape(-1, out.shape[1])

    def _in_order(self, by_part: Array) -> Array:
        """Rows in the order of the group, from rows in the order of the parts."""
        factors = [f for inside, _ in self.parts for f in inside]
        rest = by_part.shape[len(self.parts) :]
        split = by_part.reshape([*(self.shape[f] for f in factors), *rest])
        axes = [factors.index(f) for f in range(len(self.shape))]
        axes += list(range(len(factors), len(factors) + len(rest)))
        return np.asarray(split.transpose(axes), dtype=np.float64).reshape(-1)


@dataclass(frozen=True, eq=False)
class Interactions(GaussianStrategy):
    """One block per set of attributes; ``reads[t]`` has what a term reads from each.

    An entry ``(rows, b, R)`` says that the answers of these rows take ``R y_b``.
    """

    _algorithm: ClassVar[str] = "interactions"

    reads: tuple[tuple[tuple[Integers, int, KroneckerReading], ...], ...]

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the blocks of what each query reads."""
        out = np.zeros(self.workload.terms[term].rows)
        for rows, b, reading in self.reads[term]:
            out[rows] += reading.apply(values[b])
        return out

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``, block by block."""
        out: dict[int, Array] = {}
        for rows, b, reading in self.reads[term]:
            part = reading.adjoint(np.asarray(coefficients, dtype=np.float64)[rows])
            out[b] = out[b] + part if b in out else part
        return {b: part for b, part in out.items() if part.any()}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The squared rows of R times the noise variances."""
        out = np.zeros(self.workload.terms[term].rows)
        for rows, b, reading in self.reads[term]:
            out[rows] += block_variances[b] * reading.squares
        return out

    def readings(self, term: int) -> dict[int, Array]:
        """R of a term by block."""
        count = self.workload.terms[term].rows
        held = count * sum(self.block_rows[b] for b in {b for _, b, _ in self.reads[term]})
        if held > LIMITS.reading_entries:
            return super().readings(term)
        out: dict[int, Array] = {}
        for rows, b, reading in self.reads[term]:
            out.setdefault(b, np.zeros((count, self.block_rows[b])))[rows] += reading.dense()
        return out

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The sum of the longest columns of the blocks, one of which is in every record's reach."""
        powers = self.computed_once(("columns", norm), lambda: self._longest(norm))
        total = sum(p * s for p, s in zip(powers, scales, strict=True))
        return SensitivityBound(total * ROUND_UP, is_exact=False)

    def _longest(self, norm: Norm) -> list[float]:
        longest = []
        for block in self.blocks:
            powers = prod((float(f.max()) for _, f in block.term.column_factors(norm)), start=1.0)
            longest.append(powers)
        return longest


# One set of attributes


@dataclass(frozen=True, eq=False)
class _Measured:
    """Whole coefficients along some attributes, and how the rows that were asked read them.

    ``errors`` are the squared lengths of these rows times the squared length of the longest column.
    """

    entries: Integers
    reading: Array
    errors: Array
    column: float


@dataclass(frozen=True, eq=False)
class SolvedSet:
    """What is measured along each attribute, or of all together; ``error`` is the weighted one."""

    measured: tuple[_Measured, ...]
    error: float

    @property
    def column(self) -> float:
        """The squared length of the longest column."""
        return prod(m.column for m in self.measured)


@dataclass
class _Solver:
    """Optima of rows with weights, each found once; rough ones are not rounded."""

    is_rough: bool
    _made: dict[tuple[object, ...], _Measured]
    bits: int = LIMITS.interaction_product_bits[0]

    def of_set(self, queries: SetQueries) -> SolvedSet:
        """The optimum of a set of attributes, or the best product along them."""
        weights = [part.weight for part in queries.parts]
        if queries.is_joint:
            keys = [part.key for part in queries.parts]
            one = self.of_rows(keys, [part.rows for part in queries.parts], weights)
            return SolvedSet((one,), _error([p.count for p in queries.parts], one, weights))
        return self.by_attribute(queries)

    def by_attribute(self, queries: SetQueries, start: Array | None = None) -> SolvedSet:
        """Alternate: the error of a product along one attribute weighs the parts along another.

        ``start``: errors of the parts (rows) along the attributes (columns); one round then.
        """
        parts, ways = queries.parts, range(len(queries.names))
        own_squares = [[float((t**2).sum()) for t in part.tables] for part in parts]
        errors = np.array(own_squares if start is None else start, dtype=np.float64)
        squares = np.array([part.weight**2 for part in parts])
        measured: list[_Measured] = []
        rounds = 1 if len(parts) == 1 or start is not None else LIMITS.interaction_rounds
        for _ in range(rounds):
            measured = []
            for i in ways:
                others = np.prod(np.delete(errors, i, axis=1), axis=1)
                scaled = np.sqrt(squares * others)
                scaled /= scaled.max()
                number: dict[tuple[bytes, ...], int] = {}
                own = np.array([number.setdefault((p.key[i],), len(number)) for p in parts])
                sizes = np.sqrt(np.bincount(own, scaled**2)).tolist()
                first = [int(np.flatnonzero(own == n)[0]) for n in range(len(number))]
                tables = [parts[p].tables[i] for p in first]
                alike = sizes if len(number) > 1 else [1.0]
                one = self.of_rows(list(number), tables, alike, ways=len(ways))
                ends = np.cumsum([0, *(len(t) for t in tables)])
                sums = np.array([one.errors[a:b].sum() for a, b in pairwise(ends)])
                errors[:, i] = sums[own]
                measured.append(_placed(one, ends, own))
        total = float((squares * errors.prod(axis=1)).sum())
        return SolvedSet(tuple(measured), total)

    def of_rows(
        self,
        keys: Sequence[object],
        tables: Sequence[Array],
        weights: Sequence[float],
        ways: int = 1,
    ) -> _Measured:
        """The optimum of the rows of some tables, all rows of a table of one weight.

        ``ways``: it is measured as one of so many factors of a product.
        """
        key = (*keys, *weights, ways)
        if key not in self._made:
            rows = tables[0] if len(tables) == 1 else np.concatenate(tables)
            sizes = np.repeat(weights, [len(t) for t in tables])
            rough = self.is_rough
            most = max(self.bits // ways, LIMITS.interaction_bits[0]) if ways > 2 else None
            self._made[key] = _estimated(rows, sizes) if rough else _solved(rows, sizes, most)
        return self._made[key]


def _error(counts: Sequence[int], one: _Measured, weights: Sequence[float]) -> float:
    return float((np.repeat(np.square(weights), counts) * one.errors).sum())


def _placed(one: _Measured, ends: Integers, own: Integers) -> _Measured:
    """The same, with the rows of every part in turn: parts may have rows in common."""
    order = np.concatenate([np.arange(ends[n], ends[n + 1]) for n in own.tolist()])
    return _Measured(one.entries, one.reading[order], one.errors[order], one.column)


def _root(rows: Array, weights: Array, tolerance: float) -> tuple[Integers, Array, Array, Array]:
    """Independent rows, the coordinates of all in them, their weighted root, and the mixing."""
    is_some = np.abs(rows).max(axis=1) > 0
    basis, coordinates = query_basis(rows[is_some], spanning_cells(rows[is_some]))
    weighted = coordinates * weights[is_some][:, None]
    spend(2.0 * weighted.size * weighted.shape[1])
    root = _triangle(weighted)
    independent: Integers = np.flatnonzero(is_some)[basis].astype(np.int64)
    matrix = root @ rows[independent]
    used = np.flatnonzero(np.abs(matrix).max(axis=0) > 0)
    mixing = best_root(matrix[:, used], np.ones(len(root)), "rmse", tolerance).mixing @ root
    whole = np.zeros((len(rows), len(basis)))
    whole[is_some] = coordinates
    return independent, whole, root, np.asarray(mixing, dtype=np.float64)


def _triangle(rows: Array) -> Array:
    """The triangle of a QR decomposition: as many rows as columns, the same Gram matrix."""
    return np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)


def _solved(rows: Array, weights: Array, most: int | None) -> _Measured:
    """The optimum in whole numbers, of as few bits as may be; of ``most`` as a factor of several.

    Rows that span all cells are measured as combinations of cells, which are shorter.
    """
    basis, coordinates, root, mixing = _root(rows, weights, LIMITS.matrix_tolerance)
    if len(basis) == rows.shape[1]:
        independent = np.eye(len(basis))
        mixing, root, coordinates = mixing @ rows[basis], root @ rows[basis], rows
    else:
        whole = rows[basis].astype(np.int64)
        common = np.gcd.reduce(whole, axis=1)
        independent = (whole // common[:, None]).astype(np.float64)
        coordinates, root, mixing = coordinates * common, root * common, mixing * common
    options = invertible_mixing(mixing, independent)
    ones = np.ones(len(root))
    finest = (LIMITS.entry_bits, LIMITS.matrix_rounding)
    coarser = tuple(b for b in LIMITS.interaction_bits if most is not None and b <= most)
    how = finest if most is None else (coarser, LIMITS.interaction_rounding)
    entries = rounded_mixing(options, root, independent, ones, "rmse", *how)
    reach = float(np.abs(entries.astype(np.float64)).sum(axis=1).max() * np.abs(independent).max())
    if reach > EXACT:
        raise TooLarge("measured interactions need more than 53 bits; round the queries")
    matrix = entries @ independent.astype(np.int64)
    reading = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    column = float((matrix.astype(np.float64) ** 2).sum(axis=0).max())
    errors = (reading**2).sum(axis=1) * column
    return _Measured(matrix, np.ascontiguousarray(reading), errors, column)


def _estimated(rows: Array, weights: Array) -> _Measured:
    """The optimum before rounding, to a tolerance that tells weights of cells apart."""
    basis, coordinates, _, mixing = _root(rows, weights, LIMITS.interaction_tolerance)
    read = np.linalg.lstsq(mixing.T, coordinates.T, rcond=None)[0].T
    reading = np.asarray(read, dtype=np.float64)
    column = float(((mixing @ rows[basis]) ** 2).sum(axis=0).max())
    errors = (reading**2).sum(axis=1) * column
    return _Measured(np.zeros((0, 0), dtype=np.int64), reading, errors, column)


# Weights of cells


def _equal(domain: Domain, names: Sequence[str]) -> dict[str, Integers]:
    return {n: np.ones(domain[n].size, dtype=np.int64) for n in names}


def _along(group: QueryGroup, weights: Mapping[str, Integers]) -> dict[str, Array]:
    """The weighted rows of a group along each attribute, averaged along the others."""
    means, own = [], []
    for factor in group.factors:
        shape = [len(weights[n]) for n in factor.names]
        table = factor.table.reshape(len(factor.table), *shape)
        rests = {}
        for axis, name in enumerate(factor.names):
            along = table
            for other in reversed(range(len(shape))):
                if other != axis:
                    along = np.tensordot(
                        along, _shares(weights[factor.names[other]]), (other + 1, 0)
                    )
            rests[name] = along
        mean = next(iter(rests.values())) @ _shares(weights[factor.names[0]]) if rests else table
        own.append(rests)
        means.append(float(np.linalg.norm(mean)))
    out: dict[str, Array] = {}
    for f, rests in enumerate(own):
        others = prod(m for g, m in enumerate(means) if g != f)
        out |= {name: rows * (group.weight * others) for name, rows in rests.items()}
    return out


def _shares(weights: Integers) -> Array:
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _oblique(groups: Sequence[QueryGroup], weights: Mapping[str, Integers]) -> dict[str, Array]:
    """``X^-1 1`` of the optimum of what is asked of every attribute, averaged along the others."""
    grams = {n: np.zeros((len(w), len(w))) for n, w in weights.items()}
    for group in groups:
        for name, rows in _along(group, weights).items():
            grams[name] += rows.T @ rows
    out: dict[str, Array] = {}
    solved: dict[bytes, Array] = {}
    for name, gram in grams.items():
        key = gram.tobytes()
        if key not in solved:
            solved[key] = _unseen(gram)
        out[name] = solved[key]
    return out


def _unseen(gram: Array) -> Array:
    """Weights of cells, of sum 1, for which total and rest of an optimum are independent."""
    values, vectors = np.linalg.eigh(gram)
    is_some = values > values[-1] * LIMITS.dependent_part
    root = (vectors[:, is_some] * np.sqrt(values[is_some])).T
    used = np.abs(root).max(axis=0) > LIMITS.dependent_part * np.abs(root).max()
    tolerance = LIMITS.interaction_tolerance
    mixing = best_root(root[:, used], np.ones(len(root)), "rmse", tolerance).mixing
    measured = mixing @ root
    oblique = np.linalg.lstsq(measured.T @ measured, np.ones(len(gram)), rcond=1e-9)[0]
    positive = np.maximum(oblique, 0.0)
    return positive / positive.sum() if positive.any() else np.full(len(gram), 1 / len(gram))


def _options(
    groups: Sequence[QueryGroup], equal: Mapping[str, Integers]
) -> list[dict[str, Integers]]:
    """Weights to try: equal, heavier at both ends, and on the way to oblique ones; whole."""
    options = [dict(equal)]
    for ends in LIMITS.interaction_ends:
        heavier = {name: ones * LIMITS.interaction_middle for name, ones in equal.items()}
        for whole in heavier.values():
            whole[[0, -1]] = ends
        options.append(heavier)
    oblique = _oblique(groups, equal)
    for part in LIMITS.interaction_parts:
        mixed = {n: (1 - part) + part * oblique[n] * len(ones) for n, ones in equal.items()}
        scale = LIMITS.interaction_weights
        near = {n: np.maximum(np.rint(m * scale), 1).astype(np.int64) for n, m in mixed.items()}
        options.append({n: w // np.gcd.reduce(w) for n, w in near.items()})
    return options


# The whole


def interactions(workload: Workload, rival: float = inf) -> Interactions:
    """The strategy by interactions for the mean error, with its lower bound.

    Args:
        workload: Queries on few attributes each.
        rival: The squared error of another strategy that is near a bound: none is looked for here.

    Returns:
        The strategy with the least error among the weights that are tried.

    Raises:
        TooLarge: A query looks at many attributes, or at too many cells, or the rival errs less.
    """
    groups = query_groups(workload)
    names = workload.domain.in_order({n for g in groups for n in g.names})
    options = _options(groups, _equal(workload.domain, names))
    by_option = [collected(groups, weights) for weights in options]
    errors = [_total(queries) for queries in by_option]
    if min(errors) ** 2 > rival:
        raise TooLarge("another strategy errs less than interactions do")
    bound = None if rival < inf else interaction_bound(groups, options, by_option, errors)
    *others, last = np.argsort(errors, kind="stable").tolist()
    for option in others:
        with suppress(TooLarge):  # products of large weights may need too many bits
            return _built(workload, groups, by_option[option], bound)
    return _built(workload, groups, by_option[last], bound)


def _total(queries: Mapping[Names, SetQueries]) -> float:
    """``sum_B sqrt(e_B)``; equal problems are solved once."""
    if len(queries) > LIMITS.interaction_sets:
        raise TooLarge(
            f"the queries have interactions on {len(queries):,} sets of attributes, the most are "
            f"{LIMITS.interaction_sets:,}"
        )
    solver = _Solver(True, {})
    solved: dict[tuple[object, ...], float] = {}
    total = 0.0
    for one in queries.values():
        if one.is_joint and one.cells > LIMITS.interaction_compared:
            continue
        if one.key not in solved:
            solved[one.key] = sqrt(solver.of_set(one).error)
        total += solved[one.key]
    return total


def _built(
    workload: Workload,
    groups: Sequence[QueryGroup],
    queries: Mapping[Names, SetQueries],
    bound: float | None,
) -> Interactions:
    """The blocks of all sets; equal problems are solved once."""
    solver = _Solver(False, {})
    solved: dict[tuple[object, ...], SolvedSet] = {}
    for one in queries.values():
        if one.key not in solved:
            solved[one.key] = solver.of_set(one)
    pairs = [(one, solved[one.key]) for one in queries.values()]
    return shared_blocks(workload, groups, pairs, bound)


def solved_along(queries: SetQueries, errors: Array) -> SolvedSet:
    """A set measured attribute by attribute, where the parts err by ``errors`` along each."""
    for bits in LIMITS.interaction_product_bits:
        solved = _Solver(False, {}, bits).by_attribute(queries, errors)
        if solved.column <= LIMITS.interaction_column:
            break
    return solved


def shared_blocks(
    workload: Workload,
    groups: Sequence[QueryGroup],
    sets: Sequence[tuple[SetQueries, SolvedSet]],
    bound: float | None,
) -> Interactions:
    """A block for every set, with the best shares, and what every query reads of them."""
    total = sum(sqrt(part.error) for _, part in sets)
    if max(part.column for _, part in sets) > LIMITS.interaction_column:
        raise TooLarge("measured products of interactions need more bits than noise is drawn with")
    blocks = []
    reads: list[list[tuple[Integers, int, KroneckerReading]]] = [[] for _ in workload.terms]
    shared: dict[tuple[object, ...], KroneckerReading] = {}
    for b, (one, part) in enumerate(sets):
        share = sqrt(sqrt(part.error) / part.column / total)
        blocks.append(Block(_block_term(workload.domain, one.names, part), share))
        for reader in one.readers:
            group = groups[reader.group]
            averages = tuple(average.tobytes() for _, average in reader.outside)
            key = (one.key, reader.part, reader.divisor, reader.inside, group.shape, averages)
            if key not in shared:
                shared[key] = _reading(one, part, reader, group.shape)
            reads[group.term].append((group.rows, b, shared[key]))
    return Interactions(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        tuple(map(tuple, reads)),
        bound=bound,
    )


def _block_term(domain: Domain, names: Names, solved: SolvedSet) -> Term:
    label = f"interactions {' x '.join(names) or 'total'}"
    if len(solved.measured) == 1:
        from scipy.sparse import csr_matrix

        entries = csr_matrix(solved.measured[0].entries)
        return Explicit(domain, label, 1.0, names, entries, 0)
    pairs = zip(names, solved.measured, strict=True)
    factors = tuple((n, Matrix(m.entries.shape[1], m.entries, 0)) for n, m in pairs)
    return Product(domain, label, 1.0, factors)


def _reading(
    queries: SetQueries, solved: SolvedSet, reader: PartReader, shape: tuple[int, ...]
) -> KroneckerReading:
    """How the rows of a group read a block."""
    parts: list[tuple[tuple[int, ...], Array]] = []
    if len(solved.measured) == 1:
        first = sum(p.count for p in queries.parts[: reader.part])
        rows = solved.measured[0].reading[first : first + queries.parts[reader.part].count]
        parts.append((reader.inside, rows))
    else:
        for i, (factor, measured) in enumerate(zip(reader.inside, solved.measured, strict=True)):
            before = queries.parts[: reader.part]
            first = sum(len(p.tables[i]) for p in before)
            count = len(queries.parts[reader.part].tables[i])
            parts.append(((factor,), measured.reading[first : first + count]))
    parts += [((factor,), average[:, None]) for factor, average in reader.outside]
    inside, matrix = parts[0]
    parts[0] = inside, matrix / reader.divisor
    return KroneckerReading(tuple(parts), shape)
