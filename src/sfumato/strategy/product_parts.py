# SPDX-License-Identifier: Apache-2.0
"""Unions of products in parts: the terms of a part share one product of matrices.

A part measures ``M = (x)_i M_i`` and answers each of its terms by ``(x)_i F_ti M_i^+``. With
``e_ti`` the squared error of the queries of term t along attribute i, at columns of length 1, its
error is ``sum_t w_t^2 prod_i e_ti``: along one attribute a weighted sum of errors, solved to the
certified optimum (``solve/nuclear.py``), and so in turn along each until they agree. Parts share
the noise at best: with the errors E_p it is ``(sum_p sqrt(E_p))^2``. Which terms are a part is
searched for by merging parts and moving terms between them, with errors that need no cell of two
attributes together. For one term it is the optimum; McKenna, Miklau, Hay and Machanavajjhala 2018
("Optimizing error of high-dimensional statistical queries under differential privacy") have
products and unions of these with other matrices.

``bound`` is a lower bound on the error of every strategy, from as many directions as
there are cells. With cell weights ``v = (x) v_i`` of sum 1, ``D = diag(v)`` and any orthonormal
basis ``q_l`` of products ``(x) q_i``, let ``H_t = (D^1/2 F_t'F_t D^1/2)^1/2 = (x) H_ti`` and
``h_tl = prod_i q_i'H_ti q_i``. Then

    ( sum_l sqrt( sum_t w_t^2 h_tl^2 ) )^2  <=  k gamma^2.                                    (1)

*Proof.* The nuclear norm of ``M = F D^1/2`` is the greatest ``tr(W'M)`` over contractions W. Let
U_t be the polar factor of ``F_t D^1/2 = U_t H_t``, ``C_t = sum_l c_tl q_l q_l'`` with
``sum_t c_tl^2 <= 1`` for every l, and ``W_t = U_t C_t``. Then ``sum_t W_t'W_t <= sum_t C_t^2 <= I``
and ``tr(W'M) = sum_l sum_t c_tl w_t h_tl``; the best c (Cauchy-Schwarz) give the sum. A smaller H
gives a smaller bound, so roots may be rounded down.

Some attributes E may keep all of their cells: with q_l of the others, ``C_t = sum_l q_l q_l' (x)
C_tl`` and ``sum_t C_tl'C_tl <= I``, the best C_tl are polar factors, and

    ( sum_l tr( sum_t w_t^2 h_tl^2 (x)_{i in E} D_i^1/2 F_ti'F_ti D_i^1/2 )^1/2 )^2  <=  k gamma^2.

The pinching of ``pieces.pinched_bound`` has two projections along every attribute where this has
one for every direction; it is better where the roots H_ti of different terms have nearly the same
eigenvectors, as running totals, ranges, windows and cells of one attribute do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod, sqrt
from typing import ClassVar

import numpy as np

from sfumato.errors import TooLarge
from sfumato.solve.effort import EIGEN, must_stop, portion, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, best_root
from sfumato.strategy.interactions import Interactions, shared_blocks, solved_along
from sfumato.strategy.query_interactions import (
    Factor,
    InteractionPart,
    PartReader,
    QueryGroup,
    SetQueries,
    digest_of,
    kronecker,
    query_groups,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Names
from sfumato.workload.workload import Workload

__all__ = ["ProductParts", "product_parts"]

ROUND_DOWN = 1 - 1e-9  # products and sums of up to 2^26 rounded numbers

Part = frozenset[int]


class ProductParts(Interactions):
    """One block per part: a product of matrices, read by products."""

    _algorithm: ClassVar[str] = "products"


def product_parts(workload: Workload) -> ProductParts:
    """The strategy of the best parts that are found, for the mean error.

    Args:
        workload: A union of products.

    Returns:
        The strategy, with its lower bound.

    Raises:
        TooLarge: Terms or cells along an attribute are too many, or a term is no product.
    """
    groups = _groups(workload)
    union = _union(workload, groups)
    alike, members = _merged(union)
    with portion(LIMITS.parts_steps):
        parts = [frozenset().union(*(members[t] for t in p)) for p in _Search(alike).best()]
    search = _Search(union)
    bound = _direction_bound(alike) or None
    extended: list[QueryGroup] = list(groups)
    sets = []
    for part in parts:
        names = search.names(part)
        for t in sorted(part):
            extended[t] = _extended(groups[t], names, workload)
        queries = _asked(extended, sorted(part), names)
        sets.append((queries, solved_along(queries, search.errors(part))))
    shared = shared_blocks(workload, extended, sets, bound)
    return ProductParts(
        shared.mechanism, shared.noise, workload, shared.blocks, shared.reads, bound=bound
    )


def _groups(workload: Workload) -> list[QueryGroup]:
    if any(t.as_product() is None for t in workload.terms):
        raise TooLarge("a group is not a product of query sets")
    for name in workload.domain.in_order(n for t in workload.terms for n in t.attributes):
        if workload.domain[name].size > LIMITS.parts_cells:
            raise TooLarge(
                f"the attribute {name!r} has {workload.domain[name].size:,} cells; parts of "
                f"products have at most {LIMITS.parts_cells:,} along each"
            )
    if not any(t.attributes for t in workload.terms):
        raise TooLarge("the total alone is no union of products along attributes")
    return query_groups(workload, ways=len(workload.domain.names))


def _extended(group: QueryGroup, names: Names, workload: Workload) -> QueryGroup:
    """The group with the total of every attribute of its part that it does not ask about."""
    own = {f.names[0]: f for f in group.factors}
    factors = tuple(own.get(n) or _total(n, workload.domain[n].size) for n in names)
    return QueryGroup(group.term, group.rows, factors, group.weight)


def _total(name: str, size: int) -> Factor:
    ones = np.ones((1, size))
    return Factor((name,), ones, 0, digest_of(ones))


def _asked(groups: Sequence[QueryGroup], terms: Sequence[int], names: Names) -> SetQueries:
    """A part as queries on one set of attributes, in whole numbers."""
    parts, readers = [], []
    for number, t in enumerate(terms):
        factors = groups[t].factors
        divisor = float(2.0 ** sum(f.bits for f in factors))
        tables = tuple(np.ldexp(f.table, f.bits) for f in factors)
        key = tuple(f.digest for f in factors)
        parts.append(InteractionPart(tables, key, groups[t].weight / divisor))
        readers.append(PartReader(t, number, tuple(range(len(factors))), (), divisor))
    cells = prod(f.table.shape[1] for f in groups[terms[0]].factors)
    return SetQueries(names, cells, tuple(parts), tuple(readers))


# One attribute


@dataclass(frozen=True, eq=False)
class _Axis:
    """The different Gram matrices of an attribute, and which of them each term has."""

    name: str
    grams: tuple[Array, ...]
    used: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.grams[0])


@dataclass(frozen=True, eq=False)
class _Union:
    """Terms by their squared weights, and the attributes that they ask about."""

    squares: Array
    axes: list[_Axis]


def _union(workload: Workload, groups: Sequence[QueryGroup]) -> _Union:
    """All terms; the total is the first Gram matrix of each attribute."""
    axes = []
    for name in workload.domain.in_order({n for g in groups for n in g.names}):
        size = workload.domain[name].size
        grams, number = [np.ones((size, size))], {b"": 0}
        used = []
        for group in groups:
            factor = next((f for f in group.factors if f.names == (name,)), None)
            if factor is None:
                used.append(0)
                continue
            if factor.digest not in number:
                number[factor.digest] = len(grams)
                grams.append(np.asarray(factor.table.T @ factor.table))
            used.append(number[factor.digest])
        axes.append(_Axis(name, tuple(grams), tuple(used)))
    return _Union(np.array([g.weight**2 for g in groups]), axes)


def _merged(union: _Union) -> tuple[_Union, list[Part]]:
    """Terms that differ along one attribute as one, and which terms each of them holds.

    It has the sum of their weighted Gram matrices there: it asks for the same, and leaves fewer
    terms to tell apart.
    """
    axes, weights = union.axes, union.squares.tolist()
    members = [frozenset([t]) for t in range(len(weights))]
    used = [list(a.used) for a in axes]
    grams = [list(a.grams) for a in axes]
    terms = list(range(len(weights)))
    t = 0
    while t < len(terms):
        for u in terms[t + 1 :]:
            first = terms[t]
            apart = [i for i in range(len(axes)) if used[i][first] != used[i][u]]
            if len(apart) > 1:
                continue
            if apart:
                (i,) = apart
                both = [weights[n] * grams[i][used[i][n]] for n in (first, u)]
                used[i][first] = len(grams[i])
                grams[i].append(both[0] + both[1])
                weights[first] = 1.0
            else:
                weights[first] += weights[u]
            members[first] |= members[u]
            terms.remove(u)
            t = -1  # what was merged may now agree with an earlier term
            break
        t += 1
    pairs = zip(axes, grams, used, strict=True)
    fewer = [_Axis(a.name, tuple(g), tuple(n[k] for k in terms)) for a, g, n in pairs]
    alike = _Union(np.array([weights[k] for k in terms]), fewer)
    if len(terms) > LIMITS.parts_terms:
        raise TooLarge(
            f"{len(terms)} unlike groups; parts of products are searched for among at most "
            f"{LIMITS.parts_terms}"
        )
    return alike, [members[k] for k in terms]


def _inverse(gram: Array) -> Array:
    """``X^-1`` of the optimum for queries of this Gram matrix, at columns of length 1."""
    values, vectors = np.linalg.eigh(gram)
    is_some = values > values[-1] * LIMITS.dependent_part
    root = (vectors[:, is_some] * np.sqrt(values[is_some])).T
    used = np.abs(root).max(axis=0) > LIMITS.dependent_part * np.abs(root).max()
    tolerance = LIMITS.parts_tolerance
    measured = best_root(root[:, used], np.ones(len(root)), "rmse", tolerance).mixing @ root
    back = np.linalg.pinv(measured)
    return np.asarray(back @ back.T * float((measured**2).sum(axis=0).max()), dtype=np.float64)


# Which terms are a part


@dataclass
class _Search:
    """Errors of parts, each found once."""

    union: _Union
    _made: dict[Part, Array] = field(default_factory=dict)
    _alone: dict[tuple[str, int], float] = field(default_factory=dict)

    def names(self, part: Part) -> Names:
        """The attributes that some term of a part asks about; one for the total alone."""
        return tuple(a.name for a in self._axes_of(part))

    def _axes_of(self, part: Part) -> list[_Axis]:
        axes = self.union.axes
        return [a for a in axes if any(a.used[t] for t in part)] or axes[:1]

    def root(self, part: Part) -> float:
        """The root of its squared error: what counts where parts share the noise."""
        return sqrt(float((self._squares(part) * self.errors(part).prod(axis=1)).sum()))

    def _squares(self, part: Part) -> Array:
        return self.union.squares[sorted(part)]

    def errors(self, part: Part) -> Array:
        """``e_ti``: a row for each term, a column for each attribute of the part."""
        if part not in self._made:
            self._made[part] = self._alternated(part)
        return self._made[part]

    def _alternated(self, part: Part) -> Array:
        terms, axes = sorted(part), self._axes_of(part)
        errors = np.array([[self._least(a, a.used[t]) for a in axes] for t in terms])
        errors = errors.reshape(len(terms), len(axes))
        if len(terms) == 1:
            return errors
        squares = self._squares(part)
        for _ in range(LIMITS.parts_rounds):
            for i, axis in enumerate(axes):
                used = [axis.used[t] for t in terms]
                if len(set(used)) == 1:
                    continue
                others = squares * np.prod(np.delete(errors, i, axis=1), axis=1)
                weights = np.bincount(used, others / others.max(), len(axis.grams))
                pairs = zip(weights, axis.grams, strict=True)
                none = np.zeros((axis.size, axis.size))
                inverse = _inverse(sum((w * g for w, g in pairs if w), none))
                sums = {u: float((axis.grams[u] * inverse).sum()) for u in set(used)}
                errors[:, i] = [sums[u] for u in used]
            if must_stop():
                break
        return errors

    def _least(self, axis: _Axis, number: int) -> float:
        """The least error of the queries of one Gram matrix by itself."""
        key = (axis.name, number)
        if key not in self._alone:
            gram = axis.grams[number]
            self._alone[key] = float((gram * _inverse(gram)).sum())
        return self._alone[key]

    def best(self) -> list[Part]:
        """The parts of the least error, from all terms apart and from all of them together."""
        every = range(len(self.union.squares))
        starts = [[frozenset([t]) for t in every], [frozenset(every)]]
        ends = [self._improved(parts) for parts in starts]
        return min(ends, key=self._total)

    def _total(self, parts: Sequence[Part]) -> float:
        return sum(self.root(part) for part in parts)

    def _improved(self, parts: list[Part]) -> list[Part]:
        """By the best change, as long as one gains."""
        while not must_stop():
            now = self._total(parts)
            changed = min(self._changes(parts), key=self._total, default=parts)
            if self._total(changed) >= now * (1 - LIMITS.parts_gain):
                return parts
            parts = changed
        return parts

    def _changes(self, parts: list[Part]) -> Iterator[list[Part]]:
        """Two parts become one, a term goes to another part, or to one of its own."""
        for i, first in enumerate(parts):
            rest = parts[:i] + parts[i + 1 :]
            for second in parts[i + 1 :]:
                yield [first | second, *(p for p in rest if p is not second)]
            if len(first) == 1:
                continue
            for t in sorted(first):
                left = first - {t}
                yield [left, frozenset([t]), *rest]
                for j, other in enumerate(rest):
                    yield [left, other | {t}, *rest[:j], *rest[j + 1 :]]


# The lower bound


@dataclass(frozen=True, eq=False)
class _Directions:
    """Cell weights of every attribute, a basis along it, and what it says of each Gram matrix.

    ``sizes[i][n]`` are ``q'H q`` of Gram matrix n of attribute i; ``value`` is the root of the
    bound with a direction for every cell, ``shares`` the parts of it that the terms have.
    """

    weights: list[Array]
    sizes: list[list[Array]]
    value: float
    shares: Array
    columns: list[Array]


def _direction_bound(union: _Union) -> float:
    """A lower bound on the weighted squared error at unit noise; 0 where there are too many cells.

    The weights of cells go towards those of a nearly optimal X: at the optimum they are its column
    norms before scaling. The basis is that of the eigenvectors of a mean of the roots, each term
    weighted by its part of the bound. Where these vectors tell terms badly apart, attributes keep
    all of their cells.
    """
    squares, axes = union.squares, union.axes
    if prod(a.size for a in axes) * len(squares) > LIMITS.direction_numbers:
        return 0.0
    weights = [np.full(a.size, 1 / a.size) for a in axes]
    best = _directions(squares, axes, weights, np.ones(len(squares)))
    now = best
    for _ in range(LIMITS.direction_rounds):
        if must_stop():
            break
        now = _directions(squares, axes, now.columns, now.shares)
        best = max(best, now, key=lambda d: d.value)
    return _with_whole_attributes(squares, axes, best) ** 2 * ROUND_DOWN


def _directions(
    squares: Array,
    axes: Sequence[_Axis],
    weights: Sequence[Array],
    shares: Array,
) -> _Directions:
    bases, sizes = [], []
    for axis, v in zip(axes, weights, strict=True):
        basis, parts = _basis(axis, v, shares)
        bases.append(basis)
        sizes.append(parts)
    every = range(len(axes))
    by_term = np.array([_squares(w, axes, sizes, t, every) for t, w in enumerate(squares)])
    spend(4.0 * by_term.size)
    roots = np.sqrt(by_term.sum(axis=0))
    value = float(roots.sum())
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
    own = (by_term * inverse).reshape(len(squares), -1).sum(axis=1) / value
    return _Directions(list(weights), sizes, value, own, _columns(bases, roots))


def _squares(
    square: float,
    axes: Sequence[_Axis],
    sizes: Sequence[Sequence[Array]],
    term: int,
    chosen: Iterable[int],
) -> Array:
    """``w_t^2 h_tl^2`` of a term, for all directions of the chosen attributes."""
    own = (sizes[i][axes[i].used[term]] ** 2 for i in chosen)
    return np.asarray(reduce(np.multiply.outer, own, np.array(square)), dtype=np.float64)


def _basis(axis: _Axis, v: Array, shares: Array) -> tuple[Array, list[Array]]:
    """A basis along an attribute, and ``q'H q`` of every Gram matrix for each of its vectors."""
    by_gram = np.bincount(axis.used, shares, len(axis.grams))
    roots, mean = [], np.zeros((axis.size, axis.size))
    for gram, share in zip(_weighted(axis, v), by_gram, strict=True):
        spend(EIGEN * float(axis.size) ** 3)
        values, vectors = np.linalg.eigh(gram)
        # Not above the root itself: it is monotone in the order of positive matrices.
        off = values[-1] * len(v) * EIGEN_ROUNDING
        root = (vectors * np.sqrt(np.maximum(values - off, 0.0))) @ vectors.T
        roots.append(root)
        mean += root * (share / max(float(np.trace(root)), np.finfo(np.float64).tiny))
    basis = np.linalg.eigh(mean)[1]
    return basis, [np.maximum(np.einsum("ij,ij->j", basis, r @ basis), 0.0) for r in roots]


def _weighted(axis: _Axis, v: Array) -> list[Array]:
    """``D^1/2 F'F D^1/2`` of every Gram matrix."""
    s = np.sqrt(v)
    return [np.asarray(gram * np.outer(s, s), dtype=np.float64) for gram in axis.grams]


def _columns(bases: Sequence[Array], sizes: Array) -> list[Array]:
    """The diagonal of ``sum_l h_l q_l q_l'`` summed over all attributes but one, for each."""
    out = []
    every = range(sizes.ndim)
    for i, basis in enumerate(bases):
        along = sizes.sum(axis=tuple(j for j in every if j != i))
        column = (basis**2) @ along
        out.append(column / column.sum())
    return out


def _with_whole_attributes(squares: Array, axes: Sequence[_Axis], at: _Directions) -> float:
    """The root of the bound with matrices over all cells of some attributes: the best found.

    Attributes join as long as that gains and does not take too long.
    """
    whole: tuple[int, ...] = ()
    best = at.value
    cells = prod(a.size for a in axes)
    grams = [_weighted(axis, v) for axis, v in zip(axes, at.weights, strict=True)]
    while not must_stop():
        options = []
        for i in range(len(axes)):
            more = tuple(sorted({*whole, i}))
            side = prod(axes[j].size for j in more)
            if i not in whole and cells * side**2 <= LIMITS.direction_multiplications:
                options.append((_of_whole(squares, axes, at.sizes, grams, more), more))
        value, more = max(options, default=(0.0, ()))
        is_better = value > best * (1 + LIMITS.direction_gain)
        best = max(best, value)
        if not is_better:
            break
        whole = more
    return best


def _of_whole(
    squares: Array,
    axes: Sequence[_Axis],
    sizes: Sequence[Sequence[Array]],
    grams: Sequence[Sequence[Array]],
    whole: tuple[int, ...],
) -> float:
    """``sum_l tr (sum_t w_t^2 h_tl^2 (x)_{i in whole} D_i^1/2 F_ti'F_ti D_i^1/2)^1/2``."""
    rest = [i for i in range(len(axes)) if i not in whole]
    terms = range(len(squares))
    matrices = np.array([kronecker(grams[i][axes[i].used[t]] for i in whole) for t in terms])
    factors = np.array([_squares(squares[t], axes, sizes, t, rest).reshape(-1) for t in terms])
    side = matrices.shape[1]
    spend(EIGEN * float(side) ** 3 * factors.shape[1])
    step = max(1, LIMITS.numbers_at_once // side**2)
    total = 0.0
    for first in range(0, factors.shape[1], step):
        sums = np.tensordot(factors[:, first : first + step], matrices, axes=(0, 0))
        values = np.linalg.eigvalsh(sums)
        off = values[:, -1:] * side * EIGEN_ROUNDING
        total += float(np.sqrt(np.maximum(values - off, 0.0)).sum())
    return total
