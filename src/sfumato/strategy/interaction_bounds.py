# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the error of every strategy, from the interactions of queries.

Let F be all queries times their weights, D the diagonal matrix of cell weights that are products of
weights z of sum 1, and ``M = F D^1/2``. By weak duality (``solve/nuclear.py``) no strategy has a
squared error below the square of the nuclear norm of M, which is the greatest ``tr(W'M)`` over
contractions W. Interactions on different sets of attributes are orthogonal: with ``P_B`` the
projection onto those on B, ``M = sum_B M P_B``.

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
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING
from sfumato.strategy.interaction_parts import (
    PartReader,
    QueryGroup,
    SetQueries,
    kronecker,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Names

__all__ = ["interaction_bound"]

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
    bounds = [_PinchedClusters(groups, options[i], by_set[i]).bound() for i in best]
    return max((b for b in bounds if b is not None), default=None)


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

    def bound(self) -> float | None:
        """The square of the best value of some rounds."""
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
            if value <= best * (1 + LIMITS.interaction_polar_gain):
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
