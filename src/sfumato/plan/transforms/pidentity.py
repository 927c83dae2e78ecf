# SPDX-License-Identifier: Apache-2.0
"""The strategy for Laplace noise: minimise ``tr(V (M'M)^-1)`` over columns of L1 norm 1.

Searched are ``M = [I; Theta] C^-1`` with Theta >= 0 and ``C = diag(1 + column sums of Theta)``, so
that every column has L1 norm 1 by construction. With ``W = C V C`` and ``X = I + Theta'Theta``,

    error = tr(W X^-1),      X^-1 = I - Theta' K^-1 Theta,   K = I + Theta Theta' (p x p),
    d error / d Theta = -2 Theta X^-1 W X^-1 + 1 (2 diag(V C X^-1))',

which costs O(p m^2) and no m x m inverse. The problem is not convex; L-BFGS is started from several
points and the best end is kept. The starts that win on ordered cells are hats: overlapping
triangles at evenly spaced cells, on one or two levels, the shape to which random starts converge.
Few queries on many cells (a count and a sum) need no single cells at all: there the start is the
queries themselves beside what each leaves out, with nearly all of the column norm.

The optimum for Gaussian noise bounds every such error from below, as ``||M_j||_2 <= ||M_j||_1``.

References: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy" (the form and the cost); Byrd, Lu, Nocedal, Zhu
1995, "A limited memory algorithm for bound constrained optimization".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.plan.effort import must_stop, spend
from sfumato.plan.transforms.template import Template
from sfumato.workload.queries import Array, Integers, QuerySet

__all__ = ["LARGEST", "best_template", "identity_error", "stop_in_time", "template_error"]

LARGEST = 1536  # classes of cells that a template may have
ENTRY_BITS, FINE_BITS = 14, 20  # of a column norm of 1, to which coefficients are rounded
FAINT = 1 / 32  # the coefficient of a cell, in a column norm of 1, below which it is faint
HEIGHT = 0.8  # of a hat at the start, relative to the cells below it
TRIED, FIRST = 3, 25  # starts that are followed, and for how many steps
STEPS = ((256, 400), (640, 200), (LARGEST, 120))  # classes, and steps of the best start
CORRECTIONS = 20  # pairs that L-BFGS remembers
FEW = 16  # asked queries up to which they are a start themselves
HEAVY = 256.0  # the weight of such a start, relative to the cells below it
SEARCHED = 256  # classes up to which other starts are tried beside it


def best_template(
    asked: Sequence[tuple[float, QuerySet]], previous: Template | None = None
) -> Template:
    """The template found best for weighted query sets, in integers; ``previous`` is a first guess.

    Error: ``total_variance`` times the square of the greatest column sum.
    """
    class_of = previous.class_of if previous is not None else _classes([q for _, q in asked])
    first = np.unique(class_of, return_index=True)[1]
    gram = np.sum([c * _gram(queries, first) for c, queries in asked], axis=0)
    starts = [previous.theta] if previous is not None else list(_few(asked, first))
    if previous is None and (not starts or len(first) <= SEARCHED):
        starts += _starts(gram)
    theta = _searched(gram, starts)
    scaled = np.vstack([np.ones(len(gram)), theta]) / (1 + theta.sum(axis=0))
    # What rounding takes from the rows is read from single cells: the fainter these, the finer.
    is_faint = bool((scaled[0] < FAINT).all())
    whole = np.rint(scaled * 2 ** (FINE_BITS if is_faint else ENTRY_BITS)).astype(np.int64)
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
    steps = next(n for most, n in STEPS if len(gram) <= most)
    ranked = sorted(starts, key=lambda theta: template_error(gram, theta)[0])[:TRIED]
    if len(ranked) > 1:
        followed = [_followed(gram, theta, FIRST) for theta in ranked]
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

    found = minimize(
        error,
        theta.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * theta.size,
        callback=stop_in_time,
        options={"maxiter": steps, "maxcor": CORRECTIONS, "ftol": 1e-9},
    )
    return float(found.fun) * unit, np.asarray(found.x).reshape(shape)


def stop_in_time(_: Array) -> None:
    """End a search of scipy, which keeps the best point so far, when it must stop."""
    if must_stop():
        raise StopIteration


def _starts(gram: Array) -> Iterator[Array]:
    """Hats on one or two levels, with and without a row over all cells, and scattered rows."""
    m = len(gram)
    own = np.diag(gram) / max(float(np.diag(gram).max()), 1e-300)
    wide = HEIGHT * own[None, :]
    if m == 1:
        yield np.zeros((0, 1))
        return
    yield wide
    yield np.full((1, m), HEIGHT)
    for spacing in (8, 12, 16, 20):
        count = round(m / spacing)
        if count < 2:
            continue
        fine = HEIGHT * hats(m, count)
        yield fine
        yield np.vstack([fine, wide])
        for ratio in (8, 10):
            if count >= 3 * ratio:
                both = np.vstack([fine, HEIGHT * hats(m, round(count / ratio))])
                yield both
                yield np.vstack([both, wide])
    for rows in sorted({max(1, m // 16), max(1, m // 8)}):
        yield _scattered(rows, m)


def _few(asked: Sequence[tuple[float, QuerySet]], first: Integers) -> Iterator[Array]:
    """Few queries as shares of what is most for each, and what is left to that.

    A count and a sum of numbers u in [0, 1] are read from the sums of u and of 1 - u, whose columns
    have L1 norm 1: no more than the count alone would have.
    """
    if sum(queries.rows for _, queries in asked) > FEW:
        return
    rows = np.abs(np.vstack([queries.dense() for _, queries in asked])[:, first])
    rows = np.unique(rows[rows.any(axis=1)], axis=0)
    shares = rows / rows.max(axis=1, keepdims=True)
    shares = shares[shares.min(axis=1) < 1]
    if len(shares):
        yield HEAVY * np.vstack([shares, 1 - shares])


def hats(cells: int, count: int) -> Array:
    """Triangles around ``count`` evenly spaced cells; every cell has sum 1 over them."""
    knots = (np.arange(count) + 0.5) / count * cells - 0.5
    return np.array([np.interp(np.arange(cells), knots, one) for one in np.eye(count)])


def _scattered(rows: int, cells: int) -> Array:
    """Numbers in [0, 1) without pattern: fractional parts of multiples of irrational numbers."""
    i, j = np.arange(1, rows + 1)[:, None], np.arange(1, cells + 1)[None, :]
    return np.asarray(np.modf(i * np.sqrt(2) + j * np.sqrt(3) + i * j * np.sqrt(5))[0])


def _classes(asked: Sequence[QuerySet]) -> Integers:
    """Cells with equal coefficients in all queries are one class."""
    size = asked[0].size
    if any(q.separates_cells for q in asked):
        return np.arange(size)
    columns = np.vstack([np.ones((1, size)), *(q.dense() for q in asked if not q.is_total)])
    _, first, found = np.unique(columns.T, axis=0, return_index=True, return_inverse=True)
    # numbered in the order of the cells, so that neighbours stay neighbours
    return np.argsort(np.argsort(first))[found.reshape(-1)]


def _gram(queries: QuerySet, first: Integers) -> Array:
    """The Gram matrix of the queries on class sums: read off at one cell of each class."""
    return queries.gram()[np.ix_(first, first)]
