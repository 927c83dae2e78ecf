# SPDX-License-Identifier: Apache-2.0
"""The largest error of unions over many attributes, in pieces.

``pieces.py`` splits every attribute into its total and a rest. Given the splits, the variance of
a query of term B is ``sum_{A within B} c_qA / theta_A``, with ``c_qA`` the product over attributes
of ``|r|^2`` (in A) or ``alpha^2`` (in B, not in A), and the noise is shared by

    min over theta of max_q w_B^2 sum_A c_qA / theta_A   subject to   sum_A theta_A cost_A = 1.

It is convex; by the minimax theorem it equals the maximum over weights lambda on queries, of sum 1,
of ``(sum_A sqrt(cost_A sum_q lambda_q w_B^2 c_qA))^2``, which is concave. A variance is linear in
every pair ``(alpha^2, |r|^2)`` alone, so only queries on the upper right hull of these pairs can be
the worst, and of a smooth hull a few points are enough to a part in a thousand (the error that a
strategy states is that of all its queries).

The splits are those of the mean error with the queries of every attribute weighted for the largest
error of that attribute alone, and the terms by what the program gave them. The largest error is no
less than any weighted mean, so the bound of ``pinching.py`` on that mean is one on it; so is the
bound of every term alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import must_stop
from sfumato.plan.optimal.pieces import Pieces, pieces
from sfumato.plan.optimal.split import Split
from sfumato.plan.solve.reweighted import Reweighted
from sfumato.plan.strategy import Block
from sfumato.workload.queries import Array, Integers, QuerySet
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = ["FactorLargest", "largest_pieces"]

MOST_ENTRIES = 2**24  # pairs of a worst query and a piece
ROUNDS = 2  # times that the splits follow the weights of the terms
STEPS = 400
TOLERANCE = 1e-4  # of the shared noise
COARSE = 1e-3  # by how much the worst queries of an attribute may be taken too small
LEAST = 1e-8  # weight of a term: the splits must answer all of them
SPREAD = 1e-9  # weight spread evenly: no piece is left without noise to share

Subset = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactorLargest:
    """Weights on the queries of one attribute, of sum 1, and the bound on their largest error."""

    weights: Array
    bound: float


def largest_pieces(workload: Workload, solve: Callable[[QuerySet], FactorLargest]) -> Pieces:
    """Pieces whose largest error is small; ``solve`` weights the queries of one attribute."""
    known: dict[_Key, FactorLargest | None] = {}
    bound = 0.0
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            raise PlanError(f"the group {group.name!r} is not a product of query sets")
        for _, queries in term.factors:
            plain = queries.is_disjoint
            if _key(queries) not in known:
                known[_key(queries)] = None if plain else solve(queries)
        each = [known[_key(q)] for _, q in term.factors]
        bound = max(bound, term.weight**2 * prod(f.bound for f in each if f is not None))
    emphasis = np.full(len(workload.terms), 1 / len(workload.terms))
    best: Pieces | None = None
    for _ in range(ROUNDS):
        guess = pieces(_reweighted(workload, known, emphasis))
        if guess is None:
            raise PlanError("a group is not a product of query sets")
        # The largest error is at least the mean for any weights of sum 1.
        bound = max(bound, (guess.bound or 0.0) / float(emphasis.sum()))
        found, emphasis = _shared(workload, guess)
        if best is None or found.weighted_error("max") < best.weighted_error("max"):
            best = found
        if must_stop():
            break
    if best is None:
        raise PlanError("no splits were tried")
    return replace(best, bound=bound)


_Key = tuple[str | int, int]


def _key(queries: QuerySet) -> _Key:
    """Equal for equal query sets, where the kind says all."""
    return queries.key, queries.size


def _factors(term: Term) -> dict[str, QuerySet]:
    found = term.as_product()
    return {} if found is None else dict(found.factors)


def _reweighted(
    workload: Workload, known: Mapping[_Key, FactorLargest | None], emphasis: Array
) -> Workload:
    """The queries with weights whose sum over a term is ``emphasis`` times its own weight."""
    made: dict[_Key, QuerySet] = {}
    terms = []
    for term, weight in zip(workload.terms, emphasis, strict=True):
        factors = []
        for name, queries in _factors(term).items():
            found = known[_key(queries)]
            if found is not None and _key(queries) not in made:
                made[_key(queries)] = Reweighted(queries.size, queries, found.weights)
            factors.append((name, made.get(_key(queries), queries)))
        # Plain factors count every query once.
        plain = prod(q.rows for _, q in factors if not isinstance(q, Reweighted))
        scale = term.weight * np.sqrt(weight / plain)
        terms.append(Product(term.domain, term.name, float(scale), tuple(factors)))
    return Workload(workload.domain, tuple(terms))


@dataclass(frozen=True, eq=False)
class _Program:
    """Entry i says that query ``query[i]`` has coefficient ``value[i]`` on piece ``piece[i]``."""

    value: Array
    query: Integers
    piece: Integers
    cost: Array
    term: Integers  # of every query

    def squares(self, weights: Array) -> Array:
        """``sum_q lambda_q c_qA`` of every piece."""
        found = np.bincount(self.piece, weights[self.query] * self.value, len(self.cost))
        return np.asarray(found, dtype=np.float64)

    def errors(self, theta: Array) -> Array:
        """``sum_A c_qA / theta_A`` of every query."""
        found = np.bincount(self.query, self.value / theta[self.piece], len(self.term))
        return np.asarray(found, dtype=np.float64)

    def solve(self) -> tuple[Array, Array]:
        """``theta`` with ``sum theta cost = 1``, and the weights that prove it best."""
        from scipy.optimize import minimize

        count = len(self.term)
        best: tuple[float, Array, Array] | None = None
        lower = 0.0

        def negative_log(z: Array) -> tuple[float, Array]:
            nonlocal best, lower
            total = float(z @ z)
            weights = (z**2 / total + SPREAD / count) / (1 + SPREAD)
            roots = np.sqrt(self.squares(weights) * self.cost)
            value = float(roots.sum())
            theta = roots / self.cost / value
            errors = self.errors(theta)
            lower = max(lower, value**2)
            if best is None or errors.max() < best[0]:
                best = (float(errors.max()), theta, weights)
            if best[0] <= lower * (1 + TOLERANCE) ** 2:
                raise StopIteration
            # d value / d lambda_q = errors_q / (2 value)
            slope = errors / (2 * value**2)
            mean = float(slope @ z**2) / total
            return -np.log(value), -2 * z / total * (slope - mean)

        start = np.full(count, count**-0.5)
        options = {"maxiter": STEPS, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
        with suppress(StopIteration):
            minimize(negative_log, start, jac=True, method="L-BFGS-B", options=options)
        if best is None:
            raise PlanError("the shares of the noise are not finite; please report this")
        return best[1], best[2]


def _shared(workload: Workload, guess: Pieces) -> tuple[Pieces, Array]:
    """The splits of ``guess`` with the noise shared for the largest error, and weights of terms."""
    splits = guess.splits
    program, subsets = _program(workload, splits)
    theta, weights = program.solve()
    blocks = []
    for inside, share in zip(subsets, theta, strict=True):
        measured = Product(
            workload.domain,
            " x ".join(f"~{n}" for n in inside) or "total",
            1.0,
            tuple((n, splits[n].measured) for n in inside),
        )
        unit = prod(splits[n].unit for n in inside)
        blocks.append(Block(measured, float(np.sqrt(share)) * unit))
    found = Pieces(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        splits,
        tuple(subsets),
        objective="max",
    )
    emphasis = np.bincount(program.term, weights, len(workload.terms))
    return found, np.asarray(np.maximum(emphasis, LEAST), dtype=np.float64)


def _program(workload: Workload, splits: Mapping[str, Split]) -> tuple[_Program, list[Subset]]:
    at: dict[Subset, int] = {}
    hulls: dict[tuple[str, int], Array] = {}
    value: list[Array] = []
    query: list[Integers] = []
    piece: list[Integers] = []
    term_of: list[int] = []
    held = 0
    for t, term in enumerate(workload.terms):
        asked = _factors(term)
        names = tuple(asked)
        for name, queries in asked.items():
            if (name, id(queries)) not in hulls:
                hulls[name, id(queries)] = _hull(*_pairs(splits[name], queries))
        pairs = [hulls[name, id(queries)] for name, queries in asked.items()]
        insides = list(chain.from_iterable(combinations(names, k) for k in range(len(names) + 1)))
        numbers = [at.setdefault(inside, len(at)) for inside in insides]
        for chosen in product(*pairs):
            held += len(insides)
            if held > MOST_ENTRIES:
                raise TooLarge(f"more than {MOST_ENTRIES:,} pairs of a worst query and a piece")
            coefficients = np.ones(1)
            for pair in chosen:
                coefficients = np.concatenate([coefficients * pair[0], coefficients * pair[1]])
            order = _subset_order(names)
            value.append(term.weight**2 * coefficients[order])
            query.append(np.full(len(insides), len(term_of)))
            piece.append(np.array(numbers))
            term_of.append(t)
    cost = np.array([prod(splits[n].cost for n in inside) for inside in at])
    arrays = np.concatenate(value), np.concatenate(query), np.concatenate(piece)
    used = np.zeros(len(at), dtype=bool)
    used[arrays[2][arrays[0] > 0]] = True
    kept = used[arrays[2]] & (arrays[0] > 0)
    renumbered = np.cumsum(used) - 1
    program = _Program(
        arrays[0][kept], arrays[1][kept], renumbered[arrays[2][kept]], cost[used], np.array(term_of)
    )
    return program, [inside for inside, keep in zip(at, used, strict=True) if keep]


def _subset_order(names: Subset) -> list[int]:
    """Where the subsets, by size, are among products written as binary numbers."""
    insides = chain.from_iterable(combinations(range(len(names)), k) for k in range(len(names) + 1))
    return [sum(2**i for i in inside) for inside in insides]


def _pairs(split: Split, queries: QuerySet) -> tuple[Array, Array]:
    """``alpha^2`` and ``|r|^2`` of every query, r in units of S."""
    if queries.is_identity and split.is_centred:
        n = queries.size
        return np.full(1, n**-2.0), np.full(1, 1 - 1 / n)
    return split.totals(queries) ** 2, split.rest_squares(queries) / split.unit**2


def _hull(x: Array, y: Array) -> Array:
    """The upper right hull of points in the plane: all that a positive combination can pick."""
    order = np.lexsort((y, x))[::-1]
    kept: list[tuple[float, float]] = []
    for px, py in zip(x[order].tolist(), y[order].tolist(), strict=True):
        if kept and py <= kept[-1][1]:
            continue
        while len(kept) > 1 and _height(kept[-2], (px, py), np.array([kept[-1]]))[0] <= 1:
            kept.pop()
        kept.append((px, py))
    return _thinned(np.array(kept))


def _thinned(hull: Array) -> Array:
    """The points without which some combination would be more than COARSE too small."""
    if len(hull) <= 2:
        return hull
    above = _height(hull[0], hull[-1], hull)
    worst = int(above.argmax())
    if above[worst] <= 1 + COARSE or worst in (0, len(hull) - 1):
        return hull[[0, -1]]
    return np.concatenate([_thinned(hull[: worst + 1])[:-1], _thinned(hull[worst:])])


def _height(a: Sequence[float] | Array, b: Sequence[float] | Array, points: Array) -> Array:
    """How far points are beyond the line through a and b: 1 on it, seen from the origin."""
    normal = np.array([b[1] - a[1], a[0] - b[0]])  # positive: b is left of a and above it
    return np.asarray(points @ normal / float(normal @ np.asarray(a)), dtype=np.float64)
