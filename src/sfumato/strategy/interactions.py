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

The lower bound is that of weak duality, ``(tr A^1/2)^2`` with ``A = D^1/2 F'WF D^1/2``, for cells
weighted by products of z (``solve/nuclear.py``): the interactions on different sets are orthogonal
there, so the matrix of inner products of all queries, which has the same eigenvalues, is a sum over
the sets.

References: Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals under convex loss functions" (marginals by residuals); QuerySmasher (arXiv 2604.00868) and
weighted Fourier factorizations (arXiv 2512.21499) for pairs that are no products.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root, spanning_cells
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.matrix import invertible_mixing, query_basis, rounded_mixing
from sfumato.strategy.measured import EXACT
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Names
from sfumato.workload.predicates import cell_truth
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Explicit, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Interactions",
    "interactions",
]


@dataclass(frozen=True, eq=False)
class _QueryGroup:
    """Queries of one term on the same attributes: which, and their coefficients by cell.

    ``bits`` are those after the point: the coefficients are whole multiples of 2^-bits.
    """

    term: int
    rows: Integers
    names: Names
    table: Array
    weight: float
    bits: int


@dataclass(frozen=True, eq=False)
class Interactions(GaussianStrategy):
    """One block per set of attributes; ``reads[t]`` has what a term reads from each.

    An entry ``(rows, b, R)`` says that the answers of these rows take ``R y_b``.
    """

    _algorithm: ClassVar[str] = "interactions"

    reads: tuple[tuple[tuple[Integers, int, Array], ...], ...]

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the blocks of what each query reads."""
        out = np.zeros(self.workload.terms[term].rows)
        for rows, b, reading in self.reads[term]:
            out[rows] += reading @ np.asarray(values[b], dtype=np.float64)
        return out

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``, block by block."""
        out: dict[int, Array] = {}
        for rows, b, reading in self.reads[term]:
            part = reading.T @ np.asarray(coefficients, dtype=np.float64)[rows]
            out[b] = out[b] + part if b in out else part
        return {b: part for b, part in out.items() if part.any()}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The squared rows of R times the noise variances."""
        out = np.zeros(self.workload.terms[term].rows)
        for (rows, b, _), squares in zip(self.reads[term], self._squares[term], strict=True):
            out[rows] += block_variances[b] * squares
        return out

    def readings(self, term: int) -> dict[int, Array]:
        """R of a term by block."""
        count = self.workload.terms[term].rows
        held = count * sum(self.block_rows[b] for b in {b for _, b, _ in self.reads[term]})
        if held > LIMITS.reading_entries:
            return super().readings(term)
        out: dict[int, Array] = {}
        for rows, b, reading in self.reads[term]:
            out.setdefault(b, np.zeros((count, self.block_rows[b])))[rows] += reading
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

    @cached_property
    def _squares(self) -> list[list[Array]]:
        return [[(reading**2).sum(axis=1) for _, _, reading in reads] for reads in self.reads]


# Queries on the attributes that each looks at


def _groups(workload: Workload) -> list[_QueryGroup]:
    """The queries of every term, those of a list of conditions by the attributes of each.

    Equal coefficients are held once.
    """
    groups = []
    tables: dict[bytes, Array] = {}
    entries = 0
    for t, term in enumerate(workload.terms):
        for names, rows in _by_attributes(term).items():
            _check_group(term, names, len(rows) * workload.domain.cells(names))
            if conditions := term.as_conditions():
                listed = [cell_truth(term.domain, conditions[i], names) for i in rows]
                table = np.array(listed, dtype=np.float64).reshape(len(rows), -1)
            else:
                table = np.ascontiguousarray(term.dense(), dtype=np.float64)
            digest = hashlib.sha256(table.tobytes()).digest() + repr(table.shape).encode()
            if digest not in tables:
                entries += table.size
                _check_group(term, names, entries)
            table = tables.setdefault(digest, table)
            groups.append(_QueryGroup(t, rows, names, table, term.weight, term.fraction_bits))
    return groups


def _by_attributes(term: Term) -> dict[Names, Integers]:
    """The queries of a term by their attributes, where conditions look at different ones."""
    if not term.as_conditions():
        return {term.attributes: np.arange(term.rows)}
    rows: dict[Names, list[int]] = {}
    for i, condition in enumerate(term.as_conditions()):
        rows.setdefault(term.domain.in_order(condition.attributes), []).append(i)
    return {names: np.array(listed, dtype=np.int64) for names, listed in rows.items()}


def _check_group(term: Term, names: Names, entries: int) -> None:
    if len(names) > LIMITS.interaction_ways or entries > LIMITS.interaction_entries:
        raise TooLarge(
            f"group {term.name!r} has queries on {len(names)} attributes; interactions are listed "
            f"for at most {LIMITS.interaction_ways} attributes a query and for "
            f"{LIMITS.interaction_entries:,} different coefficients, not {entries:,}"
        )


# Interactions with whole coefficients


def _parts(
    group: _QueryGroup, weights: Mapping[str, Integers]
) -> Iterator[tuple[tuple[int, ...], Array, float]]:
    """The interactions of a group: axes, whole coefficients, and what these are divided by.

    Along an attribute of weights ``u / U``, U times the average is ``f u``, U times the rest ``U f
    - f u``.
    """
    shape = [len(weights[n]) for n in group.names]
    table = np.ldexp(group.table, group.bits).reshape(len(group.rows), *shape)
    divisor = 2.0**group.bits * prod(int(weights[n].sum()) for n in group.names)
    if float(np.abs(table).max()) * prod(2.0 * weights[n].sum() for n in group.names) > EXACT:
        raise TooLarge("the interactions of queries need more than 53 bits; round the queries")
    averages: dict[tuple[int, ...], Array] = {(): table}
    for axis in reversed(range(len(group.names))):
        u = weights[group.names[axis]].astype(np.float64)
        following: dict[tuple[int, ...], Array] = {}
        for inside, part in averages.items():
            mean = np.tensordot(part, u, axes=(axis + 1, 0))
            following[inside] = mean
            rest = u.sum() * part - np.expand_dims(mean, axis + 1)
            following[(axis, *inside)] = rest
        averages = following
    for inside, part in averages.items():
        if part.any():
            yield inside, part.reshape(len(group.rows), -1), divisor


@dataclass(frozen=True, eq=False)
class _SetQueries:
    """All that is asked of one set of attributes: rows of whole numbers, each with its weight."""

    parts: tuple[Array, ...]
    weights: Array
    readers: tuple[tuple[int, float], ...]  # the groups in order, and what each is divided by

    @property
    def rows(self) -> Array:
        """All rows, group after group."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def key(self) -> tuple[object, ...]:
        """Equal for sets of attributes of which the same is queries, while the parts are held."""
        return tuple(map(id, self.parts)), self.weights.tobytes()


def _collected(
    groups: Sequence[_QueryGroup], weights: Mapping[str, Integers]
) -> dict[Names, _SetQueries]:
    """What is asked of every set of attributes, in the order of their size.

    Equal queries on attributes with equal weights have their interactions in common.
    """
    parts: dict[Names, list[Array]] = {}
    sizes: dict[Names, list[Array]] = {}
    readers: dict[Names, list[tuple[int, float]]] = {}
    shared: dict[tuple[object, ...], list[tuple[tuple[int, ...], Array, float]]] = {}
    for g, group in enumerate(groups):
        key = (id(group.table), group.bits, *(weights[n].tobytes() for n in group.names))
        if key not in shared:
            shared[key] = list(_parts(group, weights))
        for axes, part, divisor in shared[key]:
            names = tuple(group.names[i] for i in axes)
            parts.setdefault(names, []).append(part)
            sizes.setdefault(names, []).append(np.full(len(part), group.weight / divisor))
            readers.setdefault(names, []).append((g, divisor))
    return {
        n: _SetQueries(tuple(parts[n]), np.concatenate(sizes[n]), tuple(readers[n]))
        for n in sorted(parts, key=lambda n: (len(n), n))
    }


# One set of attributes


@dataclass(frozen=True, eq=False)
class _SolvedSet:
    """The optimum of one set: whole coefficients, how every row reads them, error and column."""

    entries: csr_matrix
    reading: Array
    error: float
    column: float


def _root(queries: _SetQueries, tolerance: float) -> tuple[Integers, Array, Array, Array]:
    """Independent rows, the coordinates of all in them, their weighted root, and the mixing."""
    rows = queries.rows
    is_some = np.abs(rows).max(axis=1) > 0
    basis, coordinates = query_basis(rows[is_some], spanning_cells(rows[is_some]))
    weighted = coordinates * queries.weights[is_some][:, None]
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


def _solved(queries: _SetQueries) -> _SolvedSet:
    basis, coordinates, root, mixing = _root(queries, LIMITS.matrix_tolerance)
    independent = queries.rows[basis]
    options = invertible_mixing(mixing, independent)
    entries = rounded_mixing(options, root, independent, np.ones(len(root)), "rmse")
    reach = float(np.abs(entries.astype(np.float64)).sum(axis=1).max() * np.abs(independent).max())
    if reach > EXACT:
        raise TooLarge("measured interactions need more than 53 bits; round the queries")
    matrix = entries @ independent.astype(np.int64)
    reading = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    column = float((matrix.astype(np.float64) ** 2).sum(axis=0).max())
    error = float(((reading * queries.weights[:, None]) ** 2).sum())
    return _SolvedSet(csr_matrix(matrix), np.ascontiguousarray(reading), error, column)


def _estimated(queries: _SetQueries) -> float:
    """``sqrt(e_B)`` before rounding, to a tolerance that tells weights apart."""
    basis, _, root, mixing = _root(queries, LIMITS.interaction_tolerance)
    inverse = np.linalg.lstsq(mixing.T, root.T, rcond=None)[0]
    longest = ((mixing @ queries.rows[basis]) ** 2).sum(axis=0).max()
    return float(sqrt(longest) * np.linalg.norm(inverse))


# Weights of cells


def _equal(domain: Domain, names: Sequence[str]) -> dict[str, Integers]:
    return {n: np.ones(domain[n].size, dtype=np.int64) for n in names}


def _oblique(groups: Sequence[_QueryGroup], weights: Mapping[str, Integers]) -> dict[str, Array]:
    """``X^-1 1`` of the optimum of what is asked of every attribute, averaged along the others."""
    rows: dict[str, list[Array]] = {n: [] for n in weights}
    for group in groups:
        shape = [len(weights[n]) for n in group.names]
        table = group.table.reshape(len(group.rows), *shape) * group.weight
        for axis, name in enumerate(group.names):
            along = table
            for other in reversed(range(len(shape))):
                if other != axis:
                    own = weights[group.names[other]]
                    along = np.tensordot(along, own / own.sum(), axes=(other + 1, 0))
            rows[name].append(along)
    out = {}
    for name, parts in rows.items():
        queries = np.concatenate(parts)
        root = _triangle(queries) if len(queries) > queries.shape[1] else queries
        mixing = best_root(
            root[:, np.abs(root).max(axis=0) > 0],
            np.ones(len(root)),
            "rmse",
            LIMITS.interaction_tolerance,
        ).mixing
        measured = mixing @ root
        oblique = np.linalg.lstsq(measured.T @ measured, np.ones(queries.shape[1]), rcond=1e-9)[0]
        positive = np.maximum(oblique, 0.0)
        size = queries.shape[1]
        out[name] = positive / positive.sum() if positive.any() else np.full(size, 1 / size)
    return out


def _options(
    groups: Sequence[_QueryGroup], equal: Mapping[str, Integers]
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


def interactions(workload: Workload) -> Interactions:
    """The strategy by interactions for the mean error, with its lower bound.

    Args:
        workload: Queries on few attributes each.

    Returns:
        The strategy with the least error among the weights that are tried.

    Raises:
        TooLarge: A query looks at many attributes, or at too many cells.
    """
    groups = _groups(workload)
    names = workload.domain.in_order({n for g in groups for n in g.names})
    options = _options(groups, _equal(workload.domain, names))
    errors = [_total(_collected(groups, weights)) for weights in options]
    best = options[int(np.argmin(errors))]
    bounds = [b for w in options if (b := _lower_bound(groups, w)) is not None]
    return _built(workload, groups, best, max(bounds, default=None))


def _total(queries: Mapping[Names, _SetQueries]) -> float:
    """``sum_B sqrt(e_B)``; equal problems are solved once."""
    if len(queries) > LIMITS.interaction_sets:
        raise TooLarge(
            f"the queries have interactions on {len(queries):,} sets of attributes, the most are "
            f"{LIMITS.interaction_sets:,}"
        )
    solved: dict[tuple[object, ...], float] = {}
    total = 0.0
    for one in queries.values():
        if one.parts[0].shape[1] > LIMITS.interaction_compared:
            continue
        key = one.key()
        if key not in solved:
            solved[key] = _estimated(one)
        total += solved[key]
    return total


def _built(
    workload: Workload,
    groups: Sequence[_QueryGroup],
    weights: Mapping[str, Integers],
    bound: float | None,
) -> Interactions:
    """The blocks of all sets, with the best shares, and what every query reads of them."""
    queries = _collected(groups, weights)
    solved: dict[tuple[object, ...], _SolvedSet] = {}
    chosen = []
    for one in queries.values():
        key = one.key()
        if key not in solved:
            solved[key] = _solved(one)
        chosen.append(solved[key])
    total = sum(sqrt(s.error * s.column) for s in chosen)
    blocks = []
    reads: list[list[tuple[Integers, int, Array]]] = [[] for _ in workload.terms]
    shared: dict[tuple[int, int, int, float], Array] = {}
    for b, (names, one) in enumerate(queries.items()):
        part = chosen[b]
        label = " x ".join(names) or "total"
        term = Explicit(workload.domain, f"interactions {label}", 1.0, names, part.entries, 0)
        blocks.append(Block(term, sqrt(sqrt(part.error / part.column) / total)))
        first = 0
        for g, divisor in one.readers:
            group = groups[g]
            last = first + len(group.rows)
            key = (id(part), first, last, divisor)
            if key not in shared:
                shared[key] = part.reading[first:last] / divisor
            reads[group.term].append((group.rows, b, shared[key]))
            first = last
    return Interactions(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        tuple(map(tuple, reads)),
        bound=bound,
    )


def _lower_bound(groups: Sequence[_QueryGroup], weights: Mapping[str, Integers]) -> float | None:
    """``(tr A^1/2)^2`` for products of these weights; None where the queries are too many."""
    count = sum(len(g.rows) for g in groups)
    if count > LIMITS.interaction_queries:
        return None
    firsts = np.cumsum([0, *(len(g.rows) for g in groups)])
    gram = np.zeros((count, count))
    for names, one in _collected(groups, weights).items():
        measure = np.ones(1)
        for name in names:
            measure = np.outer(measure, weights[name] / weights[name].sum()).reshape(-1)
        rows = one.rows * one.weights[:, None] * np.sqrt(measure)
        at = np.concatenate([np.arange(firsts[g], firsts[g + 1]) for g, _ in one.readers])
        gram[np.ix_(at, at)] += rows @ rows.T
    spend(EIGEN * float(count) ** 3)
    eigen = np.linalg.eigvalsh(gram)
    # Each may be too large by the rounding of the sums and of the decomposition.
    off = count * EIGEN_ROUNDING * float(np.abs(eigen).max())
    return float(np.sqrt(np.maximum(eigen - off, 0.0)).sum() ** 2)
