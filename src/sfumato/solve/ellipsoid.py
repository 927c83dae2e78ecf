# SPDX-License-Identifier: Apache-2.0
"""The least ellipsoid that comes within a given distance of every column, with its certificate.

Approximate factorization is geometry. Write ``C = R R'`` and let E(C) be the ellipsoid
``{R m : |m| <= 1}``. A strategy with ``|M e_j| <= 1`` can make column j of ``R M`` any point of
E(C), so the best one is the point nearest to the column f_j of F, and

    sqrt(k) gamma_alpha(F) = min sqrt(tr C)  with every f_j within a = alpha sqrt(k) of E(C).

For one C let ``t_j`` be the least t with f_j within a of ``t E(C)``. The near point is ``C p_j``
with ``p_j = (C + l_j)^-1 f_j``, where ``l_j >= 0`` solves the secular equation ``l_j |p_j| = a``,
and ``t_j^2 = p_j' C p_j``. So ``tr(C) max_j t_j^2`` is an upper bound for every C, and

    d t_j^2 / dC = -p_j p_j',    d t_j^2 / df_j = 2 p_j,    d t_j^2 / da = -2 |p_j|.

Lower bounds hold for any vectors G_j and any q > 0 (weak duality; <G, RM> is at most
``gamma*(G) ||R||_F``, and Cauchy-Schwarz bounds gamma*):

    gamma*(G)^2 <= sum(q) lambda_max(sum_j G_j G_j' / q_j),
    sqrt(k) gamma_alpha >= (<G, F> - a sum_j |G_j|) / gamma*(G),
    min over a of a^2 + tau k gamma_alpha^2 >= <G, F>^2 / ((sum_j |G_j|)^2 + gamma*(G)^2 / tau).

With ``G_j = v_j p_j, q = v`` they are tight at the optimum, where v weighs the columns that bind;
at a = 0 the first is the bound of ``nuclear.py``. If a constant may be added to every column, the
bounds hold for G with ``sum_j G_j = 0``.

The search is the exponential method of multipliers: L-BFGS on R with ``max_j t_j^2`` replaced by
``(sum_j w_j t_j^2p)^(1/p)``, then w becomes the weights of that mean, and so on. A greater p
makes the weights converge faster and the search for R slower: p grows with every gain and falls
where there is none (``is_growing``; a free distance can move too far where p is great). Whatever
the search does, the bounds are valid, so the gap is.

Where a group permutes queries and cells and leaves F as it is, the best C commutes with it (the
mean over the group is as good), so that C is ``C_i`` on every one of the ``m_i`` copies of part i.
One column of every orbit and one copy of every part are then enough (``OrbitPart``): the trace is
``sum_i m_i tr C_i``, and the mean over an orbit of ``p p'`` is ``p_i p_i' / m_i`` on each copy.

References: Edmonds, Nikolov, Ullman 2020, "The power of factorization mechanisms in local and
central differential privacy" (approximate factorization norms); Tseng, Bertsekas 1993, "On the
convergence of the exponential multiplier method for convex programming"; More, Sorensen 1983,
"Computing a trust region step" (secular equation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from typing import NamedTuple

import numpy as np

from sfumato.solve.effort import one_thread
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, SearchProgress

__all__ = [
    "Ellipsoid",
    "OrbitPart",
    "nearest_ellipsoid",
]


class OrbitPart(NamedTuple):
    """Rows of the columns that C does not mix with others, and how often the part occurs.

    A column has the length of all copies together: its rows of a part are those of one copy times
    the root of the number of copies, where the orbit of the column spreads over them evenly.
    """

    rows: int
    copies: float


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """``|root @ inside_j + centre - f_j| <= distance`` and ``|inside_j| <= 1`` for every column.

    ``upper`` and ``lower`` enclose the best possible value: of ``tr C``, or of
    ``distance^2 + tau tr C`` where tau was given.
    """

    root: Array
    inside: Array
    centre: Array
    distance: float
    upper: float
    lower: float
    steps: int


def nearest_ellipsoid(
    columns: Array,
    *,
    distance: float | None = None,
    tau: float | None = None,
    is_centred: bool = False,
    tolerance: float = 1e-3,
    most_steps: int = LIMITS.ellipsoid_most_steps,
    progress: SearchProgress | None = None,
    parts: Sequence[OrbitPart] = (),
    is_growing: bool = False,
) -> Ellipsoid:
    """Minimise ``tr C`` for a given distance, or ``distance^2 + tau tr C`` over both.

    ``columns`` must have full row rank; ``is_centred`` lets a constant be added to every column.
    ``parts`` say of which rows C is made, by symmetry; of all of them once, if none are given.
    The search ends when ``upper <= lower (1 + tolerance)^2``, after ``most_steps`` steps, or when
    it gains nothing more (``is_growing``: with a growing power). Linear algebra runs on one thread.
    """
    with one_thread():
        search = _EllipsoidSearch(
            columns, distance, tau, is_centred, (1 + tolerance) ** 2, most_steps, progress, parts
        )
        search.is_growing = is_growing
        return _searched(search)


def _searched(search: _EllipsoidSearch) -> Ellipsoid:
    from scipy.optimize import minimize

    if search.tau is not None and not search.is_centred and search.needs_nothing(search.tau):
        return search.nothing()
    place = search.start()
    options = {
        "maxiter": LIMITS.ellipsoid_steps,
        "maxcor": LIMITS.lbfgs_corrections,
        "ftol": 0.0,
        "gtol": 0.0,
    }
    try:
        for _ in range(LIMITS.ellipsoid_rounds):
            place = minimize(search.smoothed, place, jac=True, method="L-BFGS-B", options=options).x
            search.reweigh(place)
    except _GapClosed:
        pass
    return search.result()


class _GapClosed(Exception):
    """The gap is closed, the steps are used up, or nothing is gained any more."""


@dataclass(frozen=True, eq=False)
class _Point:
    """One C (through R), seen from its eigenvectors: everything the bounds need."""

    root: Array  # R
    centre: Array
    distance: float
    values: Array  # eigenvalues of C
    vectors: Array
    seen: Array  # the columns minus the centre, in the eigenbasis
    p: Array  # (C + l_j)^-1 f_j, in the eigenbasis
    stretch: Array  # t_j^2
    trace: float  # of C, every copy of a part counted


class _EllipsoidSearch:
    """What has been proved so far, and the smooth function that is minimised."""

    def __init__(
        self,
        columns: Array,
        distance: float | None,
        tau: float | None,
        is_centred: bool,
        ratio: float,
        most_steps: int,
        progress: SearchProgress | None,
        parts: Sequence[OrbitPart] = (),
    ) -> None:
        if (distance is None) == (tau is None):
            raise TypeError("give either the distance or tau")
        self.columns, self.tau = columns, tau
        self.parts = list(parts) or [OrbitPart(len(columns), 1.0)]
        self.copies = np.repeat([p.copies for p in self.parts], [p.rows for p in self.parts])
        self.is_centred, self.ratio = is_centred, ratio
        self.most_steps, self.progress = most_steps, progress
        self.first_centre = columns.mean(axis=1) if is_centred else np.zeros(len(columns))
        around = columns - self.first_centre[:, None]
        self.farthest = float(np.sqrt((around**2).sum(axis=0).max()))
        self.weights = np.full(columns.shape[1], 1 / columns.shape[1])
        self.steps, self.upper, self.lower = 0, inf, 0.0
        self.best: _Point | None = None
        self.distance = self._first_distance(around) if distance is None else distance
        self.pace = 1.0
        self.is_growing, self.power = False, LIMITS.ellipsoid_power
        self.gap, self.idle = inf, 0

    def _first_distance(self, around: Array) -> float:
        """A bias as large as the noise of the singular value strategy, or less."""
        total = 0.0
        for part, rows in self._rows():
            singular = np.linalg.svd(around[rows], compute_uv=False)
            total += sqrt(part.copies) * float(singular.sum())
        return min(sqrt(self.tau or 0.0) * total, self.farthest / 2)

    def _rows(self) -> Iterator[tuple[OrbitPart, slice]]:
        """The parts, each with its rows of the columns."""
        first = 0
        for part in self.parts:
            yield part, slice(first, first + part.rows)
            first += part.rows

    def start(self) -> Array:
        """The optimum for equal weights at distance 0."""
        around = self.columns - self.first_centre[:, None]
        roots = []
        for part, rows in self._rows():
            values, vectors = np.linalg.eigh(around[rows] @ around[rows].T / part.copies)
            least = values[-1] * LIMITS.ellipsoid_eigenvalue_minimum
            scale = sqrt(part.copies)  # makes the trace a sum of squares
            roots.append(vectors * np.maximum(values, least) ** 0.25 * scale)
        length = sqrt(sum(float((r**2).sum()) for r in roots))
        root = np.concatenate([(r / length).reshape(-1) for r in roots])
        centre = self.first_centre if self.is_centred else np.zeros(0)
        step = np.zeros(0 if self.tau is None else 1)
        return np.concatenate([root, centre, step])

    def _read(self, place: Array) -> _Point:
        n = len(self.columns)
        root, values, vectors, end = self._roots(place)
        centre = place[end : end + n] if self.is_centred else np.zeros(n)
        distance = self.distance
        if self.tau is not None:  # a step of the logit, at a pace that suits its curvature
            logit = log(distance / (self.farthest - distance)) + self.pace * float(place[-1])
            distance = self.farthest / (
                1 + exp(-min(max(logit, -LIMITS.ellipsoid_logit), LIMITS.ellipsoid_logit))
            )
        values = np.maximum(values, values.max() * LIMITS.ellipsoid_eigenvalue_minimum)
        seen = vectors.T @ (self.columns - centre[:, None])
        p = _secular(values, seen, distance)
        trace = float((self.copies * values).sum())
        return _Point(root, centre, distance, values, vectors, seen, p, values @ p**2, trace)

    def _roots(self, place: Array) -> tuple[Array, Array, Array, int]:
        """R, eigenvalues and eigenvectors of C, and where they end in the place."""
        n = len(self.columns)
        if len(self.parts) == 1 and self.parts[0].copies == 1:
            whole = place[: n * n].reshape(n, n)
            return whole, *np.linalg.eigh(whole @ whole.T), n * n
        root, values, vectors = np.zeros((n, n)), np.zeros(n), np.zeros((n, n))
        end = 0
        for part, rows in self._rows():
            start, end = end, end + part.rows**2
            own = place[start:end].reshape(part.rows, part.rows) / sqrt(part.copies)
            root[rows, rows] = own
            values[rows], vectors[rows, rows] = np.linalg.eigh(own @ own.T)
        return root, values, vectors, end

    def smoothed(self, place: Array) -> tuple[float, Array]:
        """``log (a^2 + tau tr(C) T)``, T the weighted p-mean of t_j^2, and its gradient."""
        self.steps += 1
        at = self._read(place)
        top = float(at.stretch.max())
        if top <= 0:
            return self._collapsed(at, place)
        self._propose(at, top)
        share, mean = self._shares(at, top)
        pull = np.divide(share, at.stretch, out=np.zeros_like(share), where=at.stretch > 0)
        noise = (1.0 if self.tau is None else self.tau) * at.trace * mean
        total = noise + (0.0 if self.tau is None else at.distance**2)
        moment = at.vectors @ (((at.p * pull) @ at.p.T) @ (at.vectors.T @ at.root))
        change = 2 * noise / total * (self.copies[:, None] * at.root / at.trace - moment)
        parts = [change[rows, rows].reshape(-1) / sqrt(part.copies) for part, rows in self._rows()]
        if self.is_centred:
            parts.append(-2 * noise / total * (at.vectors @ (at.p @ pull)))
        if self.tau is not None:
            slope = at.distance - noise * float(pull @ np.sqrt((at.p**2).sum(axis=0)))
            inner = at.distance * (1 - at.distance / self.farthest) * self.pace
            parts.append(np.array([2 * slope / total * inner]))
        return log(total), np.concatenate(parts)

    def _collapsed(self, at: _Point, place: Array) -> tuple[float, Array]:
        """The value where the centre alone is near enough: only a smaller distance helps."""
        gradient = np.zeros_like(place)
        if self.tau is None:
            return -LIMITS.collapsed_value, gradient
        gradient[-1] = 2 * (1 - at.distance / self.farthest) * self.pace
        return 2 * log(at.distance), gradient

    def _shares(self, at: _Point, top: float) -> tuple[Array, float]:
        powers = self.weights * (at.stretch / top) ** self.power
        total = float(powers.sum())
        return powers / total, top * total ** (1 / self.power)

    def _propose(self, at: _Point, top: float) -> None:
        upper = at.trace * top
        if self.tau is not None:
            upper = at.distance**2 + self.tau * upper
        if upper < self.upper:
            self.upper, self.best = upper, at

    def reweigh(self, place: Array) -> None:
        """Prove a lower bound at this point, then pass its weights on."""
        at = self._read(place)
        top = float(at.stretch.max())
        if top > 0:
            self._propose(at, top)
            share, _ = self._shares(at, top)
            self._prove(at, share)
            self.weights = np.maximum(share, LIMITS.ellipsoid_weight_minimum / len(share))
            self.weights /= self.weights.sum()
        if self.tau is not None:
            self.distance = at.distance
            noise = sqrt(self.tau * at.trace * max(top, 0.0))
            self.pace = max(1.0, noise / at.distance / 2)
            place[-1] = 0.0
        gap = sqrt(self.upper / self.lower) - 1 if self.lower > 0 else inf
        if self.progress is not None:
            self.progress(self.steps, gap)
        is_gain = gap < LIMITS.ellipsoid_gain * self.gap
        self.gap, self.idle = (gap, 0) if is_gain else (self.gap, self.idle + 1)
        if self.is_growing:
            growth = LIMITS.ellipsoid_power_growth
            grown = self.power * (growth if is_gain else growth**-2)
            self.power = min(max(grown, LIMITS.ellipsoid_power), LIMITS.ellipsoid_power_maximum)
        is_closed = self.upper <= self.lower * self.ratio
        is_idle = self.is_growing and self.idle >= LIMITS.ellipsoid_patience
        if is_closed or is_idle or self.steps >= self.most_steps:
            raise _GapClosed

    def _prove(self, at: _Point, share: Array) -> None:
        v = np.divide(share, at.stretch, out=np.zeros_like(share), where=at.stretch > 0)
        p = at.p - (at.p @ v / v.sum())[:, None] if self.is_centred else at.p
        # sum_j G_j = 0 makes <G, F> the same with and without the centre.
        product = float(v @ (p * at.seen).sum(axis=0))
        lengths = float(v @ np.sqrt((p**2).sum(axis=0)))
        moment = (p * v) @ p.T  # in the eigenbasis of each part
        widest = max(
            float(np.linalg.eigvalsh(moment[rows, rows])[-1]) / part.copies
            for part, rows in self._rows()
        )
        dual = float(v.sum()) * widest
        if not (isfinite(dual) and dual > 0 and isfinite(product)):
            return
        if self.tau is None:
            lower = max(0.0, product - at.distance * lengths) ** 2 / dual
        else:
            lower = product**2 / (lengths**2 + dual / self.tau)
        self.lower = max(self.lower, lower)

    def needs_nothing(self, tau: float) -> bool:
        """Whether the noise is such that answering 0 is good enough, by G = the longest column."""
        self.upper = self.farthest**2
        self.lower = self.upper * tau / (1 + tau)
        return self.upper <= self.lower * self.ratio

    def nothing(self) -> Ellipsoid:
        """``C = 0``: every column is answered by the centre."""
        n, m = self.columns.shape
        centre = self.first_centre
        return Ellipsoid(
            np.zeros((n, 1)),
            np.zeros((1, m)),
            centre,
            self.farthest,
            self.farthest**2 if self.tau is not None else 0.0,
            self.lower if self.tau is not None else 0.0,
            self.steps,
        )

    def result(self) -> Ellipsoid:
        at = self.best
        if at is None:
            return self.nothing()
        scale = sqrt(float(at.stretch.max()))
        half = np.sqrt(at.values)
        root = at.vectors * half * scale
        inside = half[:, None] * at.p / scale
        return Ellipsoid(root, inside, at.centre, at.distance, self.upper, self.lower, self.steps)


def _secular(values: Array, seen: Array, distance: float) -> Array:
    """``p_j = (C + l_j)^-1 f_j`` with ``l_j |p_j| = distance``; 0 where f_j is that short."""
    if distance == 0:
        return np.asarray(seen / values[:, None], dtype=np.float64)
    squares = seen**2
    far = squares.sum(axis=0) > distance**2 * (1 + 1e-12)
    p = np.zeros_like(seen)
    if not far.any():
        return p
    squares, s = squares[:, far], np.zeros(int(far.sum()))
    for _ in range(LIMITS.secular_steps):
        shrunk = 1 / (1 + values[:, None] * s)  # l / (c + l) with s = 1 / l
        weights = squares * shrunk**2
        left = weights.sum(axis=0)  # |f_j - x_j|^2
        slope = (weights * shrunk * values[:, None]).sum(axis=0) * left**-1.5
        step = (1 / distance - left**-0.5) / slope
        s = s + step
        if float(np.abs(step / s).max()) <= LIMITS.secular_accuracy:
            break
    p[:, far] = seen[:, far] * s / (1 + values[:, None] * s)
    return p
