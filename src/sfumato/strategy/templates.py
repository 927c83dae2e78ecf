# SPDX-License-Identifier: Apache-2.0
"""Templates, and the best strategy for pure epsilon: Laplace noise, columns measured in L1.

A ``Template`` measures single cells beside a few weighted sums, ``[diag(d); B]`` in integers:
every cell times an integer of its own, and a few rows of non-negative integers over all cells.
Cells that no query of the workload tells apart are measured together, as classes. With
``Theta = B diag(d)^-1`` the inverse of the normal matrix is (Woodbury)

    (M'M)^-1 = diag(d)^-1 (I - Theta' (I + Theta Theta')^-1 Theta) diag(d)^-1.

``best_template`` chooses d and B for weighted query sets of one attribute; ``laplace_optimum``
builds strategies for a whole workload from templates, weighted trees and weighted marginals, and
returns the best.

Reference: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy", for strategies of this form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import must_stop, spend, stop_in_time
from sfumato.solve.weighted_orbits import row_quadratics
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import WeightedSets, fitted_product, shared_noise, table_block
from sfumato.strategy.marginals import merged_tables, weighted_marginals
from sfumato.strategy.measured import Invertible
from sfumato.strategy.pieces import sum_of_bounds
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import best_tree
from sfumato.types import Array, Integers, Noise, Numbers, Objective
from sfumato.workload.queries import Identity, QuerySet, widened
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Template",
    "best_template",
    "identity_error",
    "laplace_optimum",
    "template_error",
]


@dataclass(frozen=True, eq=False)
class Template(Invertible):
    """``diagonal`` times the sums of the classes of cells, then ``extra`` times the same sums.

    ``class_of[c]`` is the class of cell c; only queries that are constant on classes are answered.
    """

    diagonal: Integers
    extra: Integers
    class_of: Integers

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = len(self.diagonal)
        fits = self.extra.ndim == 2 and self.extra.shape[1] == classes
        if not fits or len(self.class_of) != self.size or self.diagonal.min() < 1:
            raise PlanError(
                f"a template on {self.size} cells in {classes} classes needs a class for every "
                f"cell, a factor of at least 1 and a column of extra rows for every class, got "
                f"{len(self.class_of)} classes of cells and extra rows {self.extra.shape}"
            )

    @cached_property
    def name(self) -> str:
        """``template(rows, digest)``: templates with the same name are the same."""
        parts = (self.diagonal, self.extra, self.class_of)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts))
        return f"template({self.rows} rows, {digest.hexdigest()[:16]})"

    @property
    def rows(self) -> int:
        """The number of queries: one per class, and the extra ones."""
        return len(self.diagonal) + len(self.extra)

    @cached_property
    def members(self) -> Array:
        """The number of cells of every class."""
        return np.bincount(self.class_of, minlength=len(self.diagonal)).astype(np.float64)

    def apply(self, x: Numbers) -> Numbers:
        """``M x``; exact for integers."""
        x = widened(x)
        sums = np.zeros((len(self.diagonal), *x.shape[1:]), dtype=x.dtype)
        np.add.at(sums, self.class_of, x)
        factors = self.diagonal.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        more = np.tensordot(self.extra.astype(x.dtype), sums, axes=1)
        return np.concatenate([factors * sums, more])

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y``, in floats."""
        return self._on_classes(np.asarray(y, dtype=np.float64))[self.class_of]

    def column_powers(self, p: int) -> Array:
        """Sums of powers down the columns; exact, since the integers are small."""
        powers = self.diagonal**p + (np.abs(self.extra) ** p).sum(axis=0)
        return np.asarray(powers[self.class_of], dtype=np.float64)

    def row_powers(self, p: int) -> Array:
        """Sums of powers along the rows."""
        more = (np.abs(self.extra) ** p).astype(np.float64) @ self.members
        return np.concatenate([self.diagonal.astype(np.float64) ** p * self.members, more])

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of every row."""
        single = self.diagonal if len(self.diagonal) == 1 else np.zeros_like(self.diagonal)
        low = np.concatenate([single, self.extra.min(axis=1)])
        high = np.concatenate([self.diagonal, self.extra.max(axis=1)])
        return low.astype(np.float64), high.astype(np.float64)

    @property
    def greatest(self) -> float:
        """The greatest coefficient."""
        return float(max(self.diagonal.max(), self.extra.max(initial=0)))

    @property
    def is_nonnegative(self) -> bool:
        """Whether no extra coefficient is below zero."""
        return bool((self.extra >= 0).all())

    def least_squares(self, y: Array) -> Array:
        """The estimate of every class, spread evenly over its cells."""
        sums = np.tensordot(self.class_covariance, self._on_classes(y), axes=1)
        shape = (-1, *[1] * (y.ndim - 1))
        return np.asarray((sums / self.members.reshape(shape))[self.class_of], dtype=np.float64)

    def transposed(self, c: Array) -> Array:
        """``M (M'M)^-1`` times the mean of c over every class."""
        sums = np.zeros((len(self.diagonal), *c.shape[1:]))
        np.add.at(sums, self.class_of, np.asarray(c, dtype=np.float64))
        shape = (-1, *[1] * (c.ndim - 1))
        solved = np.tensordot(self.class_covariance, sums / self.members.reshape(shape), axes=1)
        more = np.tensordot(self.extra.astype(np.float64), solved, axes=1)
        return np.concatenate([self.diagonal.reshape(shape) * solved, more])

    def row_variances(self, queries: QuerySet) -> Array:
        """``q K q'`` with K the covariance of the cells."""
        return row_quadratics(queries, self._covariance)

    def total_variance(self, queries: QuerySet) -> float:
        """``tr(V K)``."""
        return float((queries.gram() * self._covariance).sum())

    def row_fourths(self, queries: QuerySet) -> Array:
        """The sum of fourth powers of the rows of the reconstruction of every query."""
        inverse = self.transposed(np.eye(self.size)).T
        ends = queries.intervals()
        step = max(1, LIMITS.template_coefficients_at_once // self.rows)
        out = []
        if ends is not None:
            zero = np.zeros((1, self.rows))
            running = np.concatenate([zero, np.cumsum(inverse, axis=0)])
            for first in range(0, queries.rows, step):
                part = slice(first, first + step)
                squares = np.square(running[ends[1][part]] - running[ends[0][part]])
                out.append(np.einsum("ij,ij->i", squares, squares))
            return np.concatenate(out)
        dense = queries.dense()
        parts = (dense[first : first + step] for first in range(0, queries.rows, step))
        return np.concatenate([((part @ inverse) ** 4).sum(axis=1) for part in parts])

    @cached_property
    def theta(self) -> Array:
        """The extra rows relative to the factors of the cells."""
        return self.extra / self.diagonal.astype(np.float64)

    @cached_property
    def class_covariance(self) -> Array:
        """``(M'M)^-1`` on the classes."""
        middle = np.eye(len(self.theta)) + self.theta @ self.theta.T
        inside = np.eye(len(self.diagonal)) - self.theta.T @ np.linalg.solve(middle, self.theta)
        return np.asarray(inside / np.outer(self.diagonal, self.diagonal), dtype=np.float64)

    @cached_property
    def _covariance(self) -> Array:
        """The covariance of the cells, every class spread evenly over its cells."""
        scaled = self.class_covariance / np.outer(self.members, self.members)
        return scaled[np.ix_(self.class_of, self.class_of)]

    def _on_classes(self, y: Array) -> Array:
        count = len(self.diagonal)
        factors = self.diagonal.astype(np.float64).reshape(-1, *[1] * (y.ndim - 1))
        more = np.tensordot(self.extra.T.astype(np.float64), y[count:], axes=1)
        return np.asarray(factors * y[:count] + more, dtype=np.float64)


# Templates of least error for Laplace noise


def best_template(
    weighted: Sequence[tuple[float, QuerySet]], previous: Template | None = None
) -> Template:
    """The template found best for weighted query sets, in integers; ``previous`` is a first guess.

    Error: ``total_variance`` times the square of the greatest column sum.

    Searched are ``M = [I; Theta] C^-1`` with Theta >= 0 and ``C = diag(1 + column sums of Theta)``,
    so that every column has L1 norm 1 by construction. With ``W = C V C`` and ``X = I +
    Theta'Theta``,

        error = tr(W X^-1),      X^-1 = I - Theta' K^-1 Theta,   K = I + Theta Theta' (p x p),
        d error / d Theta = -2 Theta X^-1 W X^-1 + 1 (2 diag(V C X^-1))',

    which costs O(p m^2) and no m x m inverse. The problem is not convex; L-BFGS is started from
    several points and the best end is kept. The starts that win on ordered cells are hats:
    overlapping triangles at evenly spaced cells, on one or two levels, the shape to which random
    starts converge. Few queries on many cells (a count and a sum) need no single cells at all:
    there the start is the queries themselves beside what each leaves out, with nearly all of the
    column norm.

    The optimum for Gaussian noise bounds every such error from below, as ``||M_j||_2 <=
    ||M_j||_1``.

    References: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
    statistical queries under differential privacy" (the form and the cost); Byrd, Lu, Nocedal, Zhu
    1995, "A limited memory algorithm for bound constrained optimization".
    """
    class_of = previous.class_of if previous is not None else _classes([q for _, q in weighted])
    first = np.unique(class_of, return_index=True)[1]
    gram = np.sum([c * _gram(queries, first) for c, queries in weighted], axis=0)
    starts = [previous.theta] if previous is not None else list(_few(weighted, first))
    if previous is None and (not starts or len(first) <= LIMITS.template_searched_classes):
        starts += _starts(gram)
    theta = _searched(gram, starts)
    scaled = np.vstack([np.ones(len(gram)), theta]) / (1 + theta.sum(axis=0))
    # What rounding takes from the rows is read from single cells: the fainter these, the finer.
    is_faint = bool((scaled[0] < LIMITS.template_faint).all())
    whole = np.rint(
        scaled * 2 ** (LIMITS.template_fine_bits if is_faint else LIMITS.template_bits)
    ).astype(np.int64)
    extra = whole[1:][whole[1:].any(axis=1)]
    return Template(len(class_of), np.maximum(whole[0], 1), extra, class_of)


def identity_error(gram: Array) -> float:
    """The error of measuring single cells."""
    return float(np.trace(gram))


def template_error(gram: Array, theta: Array) -> tuple[float, Array]:
    """``tr(C V C X^-1)`` and its gradient with respect to Theta."""
    spend(theta.size * (len(gram) + 4.0 * len(theta)))
    c = 1 + theta.sum(axis=0)
    w = c[:, None] * gram * c
    solved = np.linalg.solve(np.eye(len(theta)) + theta @ theta.T, theta)  # Theta X^-1
    inner = solved @ w
    value = float(np.trace(w)) - float((inner * theta).sum())
    outer = inner - (inner @ theta.T) @ solved  # Theta X^-1 W X^-1
    # diag(V C X^-1) = diag(C^-1 W X^-1)
    along = 2 * (np.diag(w) - (inner * theta).sum(axis=0)) / c
    return value, along[None, :] - 2 * outer


def _searched(gram: Array, starts: Sequence[Array]) -> Array:
    """The end of the best start; several are followed a little, the best to its end."""
    if identity_error(gram) <= 0:  # nothing is asked
        return np.zeros((0, len(gram)))
    steps = next(n for most, n in LIMITS.template_steps if len(gram) <= most)
    ranked = sorted(starts, key=lambda theta: template_error(gram, theta)[0])[
        : LIMITS.template_starts
    ]
    if len(ranked) > 1:
        followed = [_followed(gram, theta, LIMITS.template_first_steps) for theta in ranked]
        ranked = [min(followed, key=lambda end: end[0])[1]]
    error, theta = _followed(gram, ranked[0], steps)
    return theta if error < identity_error(gram) else np.zeros((0, len(gram)))


def _followed(gram: Array, theta: Array, steps: int) -> tuple[float, Array]:
    from scipy.optimize import minimize

    if not len(theta) or must_stop():
        return template_error(gram, theta)[0], theta
    shape, unit = theta.shape, identity_error(gram)

    def error(x: Array) -> tuple[float, Array]:
        value, slope = template_error(gram, x.reshape(shape))
        return value / unit, slope.reshape(-1) / unit

    end = minimize(
        error,
        theta.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * theta.size,
        callback=stop_in_time,
        options={"maxiter": steps, "maxcor": LIMITS.template_corrections, "ftol": 1e-9},
    )
    return float(end.fun) * unit, np.asarray(end.x).reshape(shape)


def _starts(gram: Array) -> Iterator[Array]:
    """Hats on one or two levels, with and without a row over all cells, and scattered rows."""
    m = len(gram)
    own = np.diag(gram) / max(float(np.diag(gram).max()), 1e-300)
    wide = LIMITS.hat_height * own[None, :]
    if m == 1:
        yield np.zeros((0, 1))
        return
    yield wide
    yield np.full((1, m), LIMITS.hat_height)
    for spacing in (8, 12, 16, 20):
        count = round(m / spacing)
        if count < 2:
            continue
        fine = LIMITS.hat_height * hats(m, count)
        yield fine
        yield np.vstack([fine, wide])
        for ratio in (8, 10):
            if count >= 3 * ratio:
                both = np.vstack([fine, LIMITS.hat_height * hats(m, round(count / ratio))])
                yield both
                yield np.vstack([both, wide])
    for rows in sorted({max(1, m // 16), max(1, m // 8)}):
        yield _scattered(rows, m)


def _few(weighted: Sequence[tuple[float, QuerySet]], first: Integers) -> Iterator[Array]:
    """Few queries as a start: as parts of the greatest coefficient, and what is left to it.

    A count and a sum of numbers u in [0, 1] are read from the sums of u and of 1 - u, whose columns
    have L1 norm 1: no more than the count alone would have.
    """
    if sum(queries.rows for _, queries in weighted) > LIMITS.template_few_queries:
        return
    rows = np.abs(np.vstack([queries.dense() for _, queries in weighted])[:, first])
    rows = np.unique(rows[rows.any(axis=1)], axis=0)
    shares = rows / rows.max(axis=1, keepdims=True)
    shares = shares[shares.min(axis=1) < 1]
    if len(shares):
        yield LIMITS.template_heavy * np.vstack([shares, 1 - shares])


def hats(cells: int, count: int) -> Array:
    """Triangles around ``count`` evenly spaced cells; every cell has sum 1 over them."""
    knots = (np.arange(count) + 0.5) / count * cells - 0.5
    return np.array([np.interp(np.arange(cells), knots, one) for one in np.eye(count)])


def _scattered(rows: int, cells: int) -> Array:
    """Numbers in [0, 1) without pattern: fractional parts of multiples of irrational numbers."""
    i, j = np.arange(1, rows + 1)[:, None], np.arange(1, cells + 1)[None, :]
    return np.asarray(np.modf(i * np.sqrt(2) + j * np.sqrt(3) + i * j * np.sqrt(5))[0])


def _classes(sets: Sequence[QuerySet]) -> Integers:
    """A class for every cell: cells with equal coefficients in all queries share one."""
    size = sets[0].size
    if any(q.separates_cells for q in sets):
        return np.arange(size)
    columns = np.vstack([np.ones((1, size)), *(q.dense() for q in sets if not q.is_total)])
    _, first, labels = np.unique(columns.T, axis=0, return_index=True, return_inverse=True)
    # numbered in the order of the cells, so that neighbours stay neighbours
    return np.argsort(np.argsort(first))[labels.reshape(-1)]


def _gram(queries: QuerySet, first: Integers) -> Array:
    """The Gram matrix of the queries on class sums: read off at one cell of each class."""
    return queries.gram()[np.ix_(first, first)]


# The best of several strategies for Laplace noise


NAME = "laplace-optimum"


def laplace_optimum(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """The strategy of least error among templates, weighted trees and weighted marginals.

    ``bound`` is the sum of the L2 lower bounds of the groups: valid under L1, and loose.

    The error of a strategy at unit noise is ``sum_q w_q^2 |r_q|^2 ||M||_{1->1}^2``. Unlike its L2
    counterpart (``solve/nuclear.py``) it is not convex, so several kinds of strategies are built,
    and the best is kept:

    * one product of templates or, for long attributes, weighted trees over all
      attributes that are asked about, fitted to all groups together;
    * one such product for every largest set of attributes, answering the groups within it, or for
      sets that were merged greedily (one larger table can answer several small ones with less
      noise);
    * one for every group;
    * weighted marginals answered jointly, when all groups are tables of counts.

    Groups that are no products are measured as asked or as tables. Every strategy obeys the lower
    bound of the L2 optimum, because ``||M_j||_2 <= ||M_j||_1``; none found here comes near it.

    References: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
    statistical queries under differential privacy"; Li, Miklau, Hay, McGregor, Rastogi 2015 for the
    matrix mechanism under L1.
    """
    if noise != "laplace":
        raise PlanError("templates of unit L1 norm are for Laplace noise")
    if len(workload.terms) > LIMITS.laplace_groups:
        raise TooLarge(f"{len(workload.terms):,} groups, more than {LIMITS.laplace_groups:,}")
    if len(workload.terms) == 1 and len(workload.terms[0].attributes) == 1:
        cells = workload.terms[0].cells
        if cells > LIMITS.laplace_cells:
            raise PlanError(
                f"along one attribute of {cells:,} cells it would be that of laplace-weighted-tree"
            )
    ways: list[Callable[[], Strategy]] = [partial(weighted_marginals, workload)]
    designs = _Designs()
    for groups in _groupings(workload, designs):
        ways += [partial(_measured, workload, groups, objective, designs)]
    built: list[Strategy] = []
    reasons: list[str] = []
    for way in ways:
        try:
            built.append(way())
        except PlanError as why:
            reasons.append(str(why))
    if not built:
        raise PlanError("; ".join(dict.fromkeys(reasons)) or "no group is a product")
    best = min(built, key=lambda strategy: strategy.weighted_error(objective))
    bound = sum_of_bounds(workload)
    return replace(best, bound=bound if bound > 0 else None)


class _Designs:
    """Measured sets by what they are for: pairs of tables ask for the same ones again and again."""

    def __init__(self) -> None:
        self.designs: dict[tuple[object, ...], QuerySet] = {}

    def __call__(self, weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:
        if previous is not None:
            return _designed(weighted, p, previous)
        key = tuple((c, _kind(q)) for c, q in weighted)
        if key not in self.designs:
            self.designs[key] = _designed(weighted, p, None)
        return self.designs[key]


def _groupings(workload: Workload, designs: _Designs) -> list[list[list[int]]]:
    """Groupings of the terms: all together, by largest sets, by merged ones, each alone."""
    products = {
        i: product for i, t in enumerate(workload.terms) if (product := t.as_product()) is not None
    }
    if not products:
        return []
    domain, sets = workload.domain, {i: set(t.attributes) for i, t in products.items()}
    named = domain.in_order(n for t in products.values() for n in t.attributes)
    together = (
        len(products) <= LIMITS.laplace_groups_together
        and domain.cells(named) <= LIMITS.table_cells
    )
    tried = [[list(products)]] if together else []
    largest = {
        t.attributes: 0.0
        for i, t in products.items()
        if not any(sets[i] < other for other in sets.values())
    }
    tried.append(_assigned(products, largest, domain))
    if 1 < len(products) <= LIMITS.merged_tables and all(
        t.cells <= LIMITS.table_cells for t in products.values()
    ):
        weights: dict[tuple[str, ...], float] = {}
        for term in products.values():
            own = _alone(term, designs) / term.cells
            weights[term.attributes] = weights.get(term.attributes, 0.0) + own
        tried.append(_assigned(products, merged_tables(domain, weights), domain))
    tried.append([[i] for i in products])
    return [grouping for n, grouping in enumerate(tried) if grouping not in tried[:n]]


def _assigned(
    products: Mapping[int, Product], tables: Iterable[tuple[str, ...]], domain: Domain
) -> list[list[int]]:
    """The terms by table: each with the smallest set of attributes that holds its own."""
    members: dict[tuple[str, ...], list[int]] = {names: [] for names in tables}
    sizes = {names: domain.cells(names) for names in members}
    for i, term in products.items():
        holding = [names for names in members if set(term.attributes) <= set(names)]
        members[min(holding, key=lambda names: sizes[names])].append(i)
    return sorted(indices for indices in members.values() if indices)


def _alone(term: Product, designs: _Designs) -> float:
    """The weighted error of a term from a product of its own."""
    block = fitted_product([term], designs, 1)
    parts = (
        m.total_variance(q) * float(m.column_powers(1).max()) ** 2
        for (_, m), (_, q) in zip(block.factors, term.factors, strict=True)
    )
    return term.weight**2 * prod(parts)


def _measured(
    workload: Workload, groups: Sequence[Sequence[int]], objective: Objective, designs: _Designs
) -> Strategy:
    """The strategy of a fitted product per group; other terms as they are or as tables."""
    blocks: list[Term] = []
    source: dict[int, int] = {}
    for members in groups:
        terms = [t for i in members if (t := workload.terms[i].as_product()) is not None]
        source.update(dict.fromkeys(members, len(blocks)))
        is_direct = len(terms) == 1 and (terms[0].is_table or terms[0].cells > LIMITS.table_cells)
        blocks.append(terms[0] if is_direct else fitted_product(terms, designs, 1))
    for i, term in enumerate(workload.terms):
        if i not in source:
            source[i] = len(blocks)
            blocks.append(_directly_measured(workload, term))
    order = [source[i] for i in range(len(workload.terms))]
    return shared_noise(NAME, "laplace", workload, blocks, order, objective)


def _kind(queries: QuerySet) -> object:
    """A key of a query set: its kind and size, or itself where coefficients were given."""
    name = queries.name
    has_coefficients = name.startswith(("matrix", "groups")) or hasattr(queries, "entries")
    return queries if has_coefficients else (name, queries.size)


def _designed(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:
    """The measured set: single cells, a template, or for long attributes a weighted tree."""
    size = weighted[0][1].size
    if all(q.is_identity for _, q in weighted):
        return Identity(size)
    if size > LIMITS.template_classes:
        return best_tree(weighted, p)
    template = best_template(weighted, previous if isinstance(previous, Template) else None)
    is_identity = not len(template.extra) and len(template.diagonal) == size
    return Identity(size) if is_identity else template


def _directly_measured(workload: Workload, term: Term) -> Term:
    """The term's own queries, or its table where that errs less."""
    if term.as_product() is not None or term.is_wide or term.cells > LIMITS.table_cells:
        return term
    longest = prod(float(values.max()) for _, values in term.column_factors(1))
    if term.rows * longest**2 <= float(term.row_powers(2).sum()):
        return term
    return table_block(workload, term.attributes)
