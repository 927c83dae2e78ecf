# SPDX-License-Identifier: Apache-2.0
"""A lower bound for unions of products over many attributes, attribute by attribute.

With cell weights ``v = (x) v_i`` of sum 1 and ``D = diag(v)`` the bound of ``nuclear.py`` is the
square of the nuclear norm of ``F D^1/2``, which is the greatest ``tr(W'F D^1/2)`` over contractions
W. So every contraction gives a lower bound. Take these, with ``s_i = sqrt(v_i)``, ``P_i = I - s_i
s_i'`` and, for every term t and attribute i, an isometry ``W_ti`` (of F_ti with zero rows added):

    W_t = sum_{A within t} c_tA (x)_{i in A} W_ti P_i (x)_{i in t - A} W_ti s_i s_i' (x) s_i'

Since ``W_ti'W_ti = I`` and ``P_i s_i = 0``, ``sum_t W_t'W_t = sum_A (sum_t c_tA^2) (x) P_i (x) s_i
s_i'``: W is a contraction if ``sum_t c_tA^2 <= 1`` for every A. The best such c (Cauchy-Schwarz)
give

    sum_A sqrt( sum_{t holding A} w_t^2 prod_{i in A} b_ti^2 prod_{i in t - A} a_ti^2 ),
    a_ti = s_i' W_ti' F_ti D_i^1/2 s_i,      b_ti = tr(P_i W_ti' F_ti D_i^1/2),

for any v_i and any W_ti. It is the optimum for marginals and for one product. With the polar
factor of ``F_ti D_i^1/2 T``, ``T = rho s_i s_i' + P_i``, and ``H = (T D_i^1/2 F_ti'F_ti D_i^1/2
T)^1/2``: ``a_ti = s_i'H s_i / rho`` and ``b_ti = tr H - s_i'H s_i``, the best for rho the ratio of
the derivatives of the sum by a_ti and b_ti.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi, prod

import numpy as np

from sfumato.errors import TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.lattice import Lattice, lattice
from sfumato.solve.nuclear import certified_optimum
from sfumato.solve.tridiagonal import inverse_gram, root_diagonal
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet, Windows
from sfumato.workload.workload import Workload

__all__ = [
    "pinched_bound",
    "query_set_bound",
    "sum_of_bounds",
    "windows_bound",
]


ROUNDING = 2.0**-50


def pinched_bound(workload: Workload, cells: Mapping[str, Array] | None = None) -> float:
    """A lower bound on the weighted squared error at unit noise; 0 where it does not apply.

    ``cells`` are cell weights for attributes, such as those of a good strategy; without them some
    are tried.
    """
    try:
        problem = _problem(workload, cells or {})
    except TooLarge:
        return 0.0
    if problem is None:
        return 0.0
    for _ in range(LIMITS.pinched_rounds):
        for attribute in problem.searched:
            problem.improve(attribute)
    return problem.root() ** 2


@dataclass(frozen=True, eq=False)
class _Axis:
    """The query sets of one attribute, by number, and the cell weights that are tried for it."""

    grams: dict[int, Array]
    options: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class _Problem:
    """``a`` and ``b`` of every query set (by number), and where each term uses which."""

    subsets: Lattice
    weights: Array
    used: tuple[Integers, ...]
    a: Array
    b: Array
    ratio: Array
    axes: dict[int, _Axis]

    @property
    def searched(self) -> list[int]:
        """Attributes whose cells are not all alike."""
        return list(self.axes)

    def root(self) -> float:
        """The sum over A."""
        pairs = self.subsets.of_pairs(
            [self.b[u] for u in self.used], [self.a[u] for u in self.used]
        )
        squares = self.weights[self.subsets.term] * pairs**2
        summed = np.bincount(self.subsets.piece, squares, self.subsets.pieces)
        return float(np.sqrt(summed).sum())

    def improve(self, attribute: int) -> None:
        """The best of the tried cell weights, each with the best ratio of a and b."""
        axis = self.axes[attribute]
        best, state = -1.0, None
        for v in axis.options:
            self._set(axis, v)
            for number in axis.grams:
                self.ratio[number] = self._best_ratio(number)
            self._set(axis, v)
            root = self.root()
            if root > best:
                best, state = root, (self.a.copy(), self.b.copy(), self.ratio.copy())
        if state is not None:
            self.a[:], self.b[:], self.ratio[:] = state

    def _set(self, axis: _Axis, v: Array) -> None:
        for number, gram in axis.grams.items():
            self.a[number], self.b[number] = _parts(gram, v, float(self.ratio[number]))

    def _best_ratio(self, number: int) -> float:
        """The derivative by a over the one by b, within reason."""
        now, step = self.root(), LIMITS.pinched_step * float(self.a[number] + self.b[number])
        gains = []
        for values in (self.a, self.b):
            before = float(values[number])
            values[number] = before + step
            gains.append(self.root() - now)
            values[number] = before
        if not gains[1] > 0:
            return LIMITS.pinched_ratios[1] if gains[0] > 0 else 1.0
        return min(max(gains[0] / gains[1], LIMITS.pinched_ratios[0]), LIMITS.pinched_ratios[1])


def _parts(gram: Array, v: Array, rho: float) -> tuple[float, float]:
    """a and b of one query set at cell weights v of sum 1."""
    s = np.sqrt(v)
    k = gram * np.outer(s, s)
    towards = np.eye(len(s)) + (rho - 1) * np.outer(s, s)
    values, vectors = np.linalg.eigh(towards @ k @ towards)
    # What may be a rounded zero counts as zero: the bound must not be too great.
    roots = np.sqrt(np.where(values > values[-1] * len(values) * ROUNDING, values, 0.0))
    along = float(((s @ vectors) ** 2 * roots).sum())
    return along / rho, float(roots.sum()) - along


def _problem(workload: Workload, cells: Mapping[str, Array]) -> _Problem | None:
    place = {name: i for i, name in enumerate(workload.domain.names)}
    numbers: dict[tuple[int, str | int], int] = {}
    sets_along: dict[int, dict[int, QuerySet]] = {}
    sets: list[tuple[int, ...]] = []
    symbols: list[tuple[int, ...]] = []
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            return None
        factors = [(place[n], q) for n, q in term.factors if not q.is_total]
        for i, queries in factors:
            key = (i, queries.key)
            sets_along.setdefault(i, {})[numbers.setdefault(key, len(numbers))] = queries
        sets.append(tuple(i for i, _ in factors))
        symbols.append(tuple(numbers[i, q.key] for i, q in factors))
    subsets = lattice(sets)
    used = tuple(_listed(symbols, terms, rows.shape[1]) for terms, rows in subsets.asked)
    weights = np.array([term.weight**2 for term in workload.terms])
    ones = np.ones(len(numbers))
    made = _Problem(subsets, weights, used, ones, ones.copy(), ones.copy(), {})
    for i, queries_of in sets_along.items():
        size = workload.domain.shape[i]
        if all(q.is_identity for q in queries_of.values()):
            for number in queries_of:
                made.a[number], made.b[number] = size**-0.5, (size - 1) * size**-0.5
            continue
        if size > LIMITS.dense_axis_cells:
            return None
        grams = {number: queries.gram() for number, queries in queries_of.items()}
        cell_weights = cells.get(workload.domain.names[i])
        tried = (
            _options(sum(grams.values(), np.zeros((size, size))))
            if cell_weights is None
            else (cell_weights / cell_weights.sum(),)
        )
        made.axes[i] = _Axis(grams, tried)
        made._set(made.axes[i], made.axes[i].options[0])
    return made


def _listed(symbols: Sequence[tuple[int, ...]], terms: Integers, width: int) -> Integers:
    rows = np.array([symbols[t] for t in terms.tolist()], dtype=np.int64)
    return rows.reshape(len(terms), width)


def _options(gram: Array) -> tuple[Array, ...]:
    """Cell weights of optima with more or less weight on the total; rough ones do."""
    n = len(gram)
    out = [np.full(n, 1 / n)]
    for extra in LIMITS.pinched_extra:
        v = gram + extra * np.trace(gram) / n

        def root_diagonal(weights: Array, v: Array = v) -> Array:
            spend(EIGEN * float(n) ** 3)
            root = np.sqrt(weights)
            values, vectors = np.linalg.eigh(v * np.outer(root, root))
            return np.asarray((vectors**2) @ np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)

        optimum = certified_optimum(root_diagonal, n, 1e-3, 12).v
        out.append(optimum / optimum.sum())
    return tuple(out)


# --------------------
# Lower bounds on the error of every factorization, from one attribute at a time.
#
# ``tr(V X^-1)`` is a sum over terms, and the minimum of a sum is at least the sum of the minima:
# every term alone must err at least by its own optimum. For a product the bound of ``nuclear.py``,
# at weights that are products too, is the product of the bounds of its query sets. So bounds for
# single attributes give a bound for any union, exact for one product and loose when many terms
# compete for the noise.
#
# Windows of any number have a bound in closed form (``windows_bound``): the sum of singular values
# of a matrix G is at least ``tr(U'G)`` for every U of norm at most 1, and the matrix of the symbol
# ``f / |f|``, f that of the windows, has norm 1.


def sum_of_bounds(workload: Workload) -> float:
    """A lower bound on the weighted squared error at unit noise; terms without one count 0."""
    bound_of: dict[tuple[int, str | int], float] = {}
    total = 0.0
    for term in workload.terms:
        product = term.as_product()
        if product is not None:
            for _, queries in product.factors:
                if (queries.size, queries.key) not in bound_of:
                    bound_of[queries.size, queries.key] = query_set_bound(queries)
            bounds = (bound_of[q.size, q.key] for _, q in product.factors)
            total += term.weight**2 * prod(bounds)
    return total


def query_set_bound(queries: QuerySet) -> float:
    """A lower bound on ``k gamma^2`` of one query set (0 where none is known)."""
    if queries.is_disjoint:  # as good as a table of groups
        return float((queries.row_powers(1) > 0).sum())
    inverse = inverse_gram(queries)
    if inverse is not None:
        solver = root_diagonal(*inverse)
        return certified_optimum(
            solver, queries.size, LIMITS.query_set_tolerance, all_bind=True
        ).lower
    closed = windows_bound(queries.size, queries.width) if isinstance(queries, Windows) else 0.0
    if queries.size > LIMITS.query_set_cells:
        return closed
    values = np.linalg.eigvalsh(queries.gram())
    positive = values[values > values[-1] * len(values) * 2.0**-50]
    return max(closed, float(np.sqrt(positive).sum() ** 2 / len(values)))  # Li and Miklau 2013


def windows_bound(cells: int, width: int) -> float:
    """``sum_j c_j^2``, a lower bound on ``k gamma^2`` of all windows of a width, in O(width).

    ``c_j = (U'F)_jj`` sums the coefficients ``u_k = tan(pi a / w) / (pi a)`` of ``f / |f|``, with
    ``a = k - (w - 1) / 2``, over the places k that cell j has in windows. As
    ``tr(U' F D^1/2) = sum_j sqrt(v_j) c_j``, the best weights are ``v_j = c_j^2``.
    """
    a = np.arange(width) - (width - 1) / 2
    with np.errstate(invalid="ignore"):
        u = np.where(a == 0, 1 / width, np.tan(pi * a / width) / (pi * a))
    running = np.concatenate([[0.0], np.cumsum(u)])
    reach = min(width, cells - width + 1)  # the most windows that hold one cell
    ends = running[1:reach]
    if reach == width:
        inner = (cells - 2 * (width - 1)) * float(running[-1]) ** 2
    else:
        first = np.arange(2 * width - cells)
        inner = float(((running[first + reach] - running[first]) ** 2).sum())
    return (2 * float((ends**2).sum()) + inner) * (1 - 1e-9)
