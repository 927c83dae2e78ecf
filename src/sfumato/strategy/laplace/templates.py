# SPDX-License-Identifier: Apache-2.0
"""Templates: single cells beside a few weighted sums, for Laplace noise; columns in L1.

A ``Template`` measures single cells beside a few weighted sums, ``[diag(d); B]`` in integers:
every cell times an integer of its own, and a few rows of non-negative integers over all cells.
Cells that no query of the workload tells apart are measured together, as classes. With
``Theta = B diag(d)^-1`` the inverse of the normal matrix is (Woodbury)

    (M'M)^-1 = diag(d)^-1 (I - Theta' (I + Theta Theta')^-1 Theta) diag(d)^-1.

``best_template`` chooses d and B for weighted query sets of one attribute; ``atoms.py`` searches
among the same matrices for any workload, ``laplace_optimum.py`` takes the best of all.

Reference: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy", for strategies of this form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.effort import must_stop, spend, stop_in_time
from sfumato.solve.minimax_orbits import row_quadratics
from sfumato.strategy.measured import Invertible
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.queries import QuerySet, widened

__all__ = [
    "Template",
    "best_template",
    "follow",
    "identity_error",
    "scattered",
    "search",
    "template_error",
    "usual_starts",
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

    def rounded(self, bits: int) -> Template:
        """The same template with coefficients rounded to a greatest column norm of 2^bits."""
        coefficients = np.vstack([self.diagonal, self.extra])
        norm = float(coefficients.sum(axis=0).max())
        whole = np.rint(coefficients * (2.0**bits / norm)).astype(np.int64)
        extra = whole[1:][whole[1:].any(axis=1)]
        return Template(self.size, np.maximum(whole[0], 1), extra, self.class_of)

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
            if queries.rows * self.rows > LIMITS.template_fourths_listed:
                return fourths_of_differences(running, *ends)
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


def fourths_of_differences(points: Array, starts: Integers, ends: Integers) -> Array:
    """``sum_j (x_bj - x_aj)^4`` for rows a, b of some points, by three products of matrices.

    The fourth power is multiplied out, so its error is relative to the fourth powers of the points.

    >>> points = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    >>> fourths_of_differences(points, np.array([0, 1]), np.array([1, 2])).tolist()
    [17.0, 17.0]
    """
    squares = points**2
    fourths = (squares**2).sum(axis=1)
    mixed = 6 * squares @ squares.T
    crossed = points**3 @ points.T
    mixed -= 4 * (crossed + crossed.T)
    out = fourths[starts] + fourths[ends] + mixed[starts, ends]
    return np.asarray(np.maximum(out, 0.0), dtype=np.float64)


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
        starts += usual_starts(gram)
    theta = search(gram, starts)
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


def search(gram: Array, starts: Sequence[Array], most: int = LIMITS.template_starts) -> Array:
    """Theta at the end of the best start; ``most`` are followed a little, the best to its end."""
    if identity_error(gram) <= 0:  # nothing is asked
        return np.zeros((0, len(gram)))
    table = LIMITS.template_steps
    steps = next((n for size, n in table if len(gram) <= size), table[-1][1])
    most = most if len(gram) <= LIMITS.template_followed_classes else 1
    ranked = sorted(starts, key=lambda theta: template_error(gram, theta)[0])[:most]
    if len(ranked) > 1:
        followed = [follow(gram, theta, LIMITS.template_first_steps) for theta in ranked]
        ranked = [min(followed, key=lambda end: end[0])[1]]
    error, theta = follow(gram, ranked[0], steps)
    return theta if error < identity_error(gram) else np.zeros((0, len(gram)))


def follow(gram: Array, theta: Array, steps: int) -> tuple[float, Array]:
    """The error and Theta after so many steps of L-BFGS."""
    from scipy.optimize import Bounds, minimize

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
        bounds=Bounds(0.0, np.inf),
        callback=stop_in_time,
        options={"maxiter": steps, "maxcor": LIMITS.template_corrections, "ftol": 1e-9},
    )
    return float(end.fun) * unit, np.asarray(end.x).reshape(shape)


def usual_starts(gram: Array) -> Iterator[Array]:
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
        yield scattered(rows, m)


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


def scattered(rows: int, cells: int) -> Array:
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
