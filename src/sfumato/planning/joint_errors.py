# SPDX-License-Identifier: Apache-2.0
"""How far off any answer of a plan is, of all of them together, with a given probability.

The error of a linear mechanism is ``e = R z`` with noise z of a public law, whatever the data. So
the law of ``max_q |e_q|`` is public, too, and a bound t with ``P(max_q |e_q| > t) <= beta`` is
arithmetic. Three bounds are proved, and the least is the one (``docs/proofs/joint-error.md``):

* *by tails*: ``P(|e_q| <= t for all q) >= prod_q P(|e_q| <= t)`` (Z. Sidak, 1967, "Rectangular
  confidence regions for the means of multivariate normal distributions"; for Laplace noise, which
  is Gaussian of random variance, the product of the conditional probabilities is one of decreasing
  functions of those variances, and they are associated). Gaussian tails are exact. For a sum of
  Laplace variables of scales ``a_1 >= a_2 >= ...`` and every ``theta <= 1 / a_1``

      P(|sum_j a_j L_j| > t) <= e^(-theta t) prod_{j > 1} 1 / (1 - theta^2 a_j^2),

  exact for a single draw, and twice that, by the union bound, where noise is drawn in whole steps
  that are no small part of it. For sums of many draws the lesser is ``C(theta t) prod_j 1 / (1 -
  theta^2 a_j^2)``, ``C(x) = max_s erfc(sqrt(x / 2s)) e^(-x s / 2)``, which is exact to within
  percents for normal sums. The products are bounded by the sums of squares and fourth powers of a
  row, which every strategy knows. Exact where answers are independent; above the truth where errors
  hang together.
* *by simulation*: the very noise is drawn N times, on its grid, from a public seed, and ``max_q
  |e_q|`` is sorted. The j-th greatest is at least the quantile of level ``1 - p`` unless at most
  ``j - 1`` of N draws are above that, which has the probability of a binomial law. Seeds for which
  that happens get ``LIMITS.seed_share`` of beta, p the rest: so the bound fails with probability
  beta at most, over the noise and the seed together. It is a function of the plan. All ranges are
  differences of running totals: the farthest is the greatest of those less the least.
* *by Levy's inequality*, where cells are measured along an attribute and running totals along it
  are asked: the errors are the partial sums ``S_1 .. S_n`` of independent symmetric vectors, and
  ``P(max_k |S_k| > t) <= 2 P(|S_n| > t)`` in every norm (P. Levy, 1937). So the attribute is summed
  away, and what is left is bounded by tails or draws at half of beta.

Where the strategy is biased, the greatest bias of every answer is added to its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import ceil, exp, floor, inf, ldexp, log, log1p, pi, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.planning.planning_limits import LIMITS
from sfumato.random import Draws
from sfumato.types import Array, Integers
from sfumato.workload.queries import once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scipy.sparse import csr_array

    from sfumato.planning.forecast import Forecast
    from sfumato.privacy.noise_laws import BlockNoise
    from sfumato.strategy.base import Strategy, Summed

__all__ = [
    "AllWithin",
    "JointErrors",
    "order_statistic",
    "seed_share",
]


@dataclass(frozen=True, slots=True)
class AllWithin:
    """With probability ``1 - beta`` all answers err by at most ``counts``.

    ``draws`` is how many public draws of the noise prove it, 0 where tails do. Of the answers as
    they are measured: what is projected afterwards is nearer in the sum of squares, which says
    nothing of the farthest single answer.
    """

    counts: float
    beta: float
    queries: int
    draws: int

    @property
    def proof(self) -> str:
        """What proves the bound, in words."""
        if not self.draws:
            return "the tails of all answers"
        return (
            f"{self.draws:,} public draws of the noise (a misleading seed has probability "
            f"{self.beta * seed_share(self.draws, self.beta):.1g}, which is counted)"
        )

    def __str__(self) -> str:
        return (
            f"with probability {1 - self.beta:.6g} all {self.queries:,} answers err by at most "
            f"{self.counts:.4g}, by {self.proof}"
        )


class JointErrors:
    """The law of the farthest answer of a forecast; what it takes is computed once.

    Args:
        forecast: As it was planned, so that all who ask the same get the same.
        summed: The strategy without the attributes that were summed away, if any were.
    """

    def __init__(self, forecast: Forecast, summed: Summed | None = None) -> None:
        self._forecast = forecast
        self._summed = summed

    def within(self, beta: float) -> AllWithin:
        """The least of the proved bounds."""
        if not (isinstance(beta, float) and 0 < beta < 1):
            raise PlanError(f"beta must be a probability between 0 and 1, got {beta!r}")
        counts, draws = min((self.by_tails(beta), 0), (self.by_simulation(beta), self.draws))
        if self._ends is not None:
            ends, walks = self._ends
            at_ends = ends.within(beta / 2**walks)
            counts, draws = min((counts, draws), (at_ends.counts, at_ends.draws))
        return AllWithin(counts, beta, self._forecast.workload.queries, draws)

    @property
    def draws(self) -> int:
        """How many public draws of the noise were made."""
        return len(self._farthest)

    def by_tails(self, beta: float) -> float:
        """Sidak's inequality with the tails of all answers, and what the grid adds.

        Where steps are no small part of the noise, tails that count them and the union bound, which
        independent answers do not need, may be less.
        """
        allowed, times = -log1p(-beta), _times(self._forecast)
        smooth = self._solved(allowed, 1.0) + self._grid_error
        if times == 1:
            return smooth
        if not self._forecast.strategy.is_direct:
            return min(smooth, self._solved(beta, times))
        step = min(ldexp(1.0, -n.grid_bits) for n in self._forecast.noise)
        return step * floor(self._solved(allowed, times) / step)  # errors are whole steps

    def _solved(self, allowed: float, times: float) -> float:
        """The least t with ``-ln prod_q (1 - times P(|e_q| > t)) <= allowed``, or a bit more."""
        low, high = 0.0, max(self._classes.reach, np.finfo(float).tiny)
        while self._classes.exponent(high, times) > allowed:
            low, high = high, 2 * high
        for _ in range(LIMITS.joint_bisections):
            middle = (low + high) / 2
            is_below = self._classes.exponent(middle, times) > allowed
            low, high = (middle, high) if is_below else (low, middle)
        return high

    def by_simulation(self, beta: float) -> float:
        """An order statistic of public draws; infinite where they are too few."""
        steps, share = self._step_error(beta)
        rank = order_statistic(self.draws, beta * (1 - share))
        return float(self._farthest[-rank]) + steps if rank else inf

    @cached_property
    def _ends(self) -> tuple[JointErrors, int] | None:
        """The errors where running totals end, and along how many attributes they run.

        By Levy's inequality each doubles the probability at most. Not looked for where draws of the
        noise are many, which are nearer to the truth.
        """
        if self._summed is not None or self.draws == LIMITS.joint_draws:
            return None
        summed = self._forecast.strategy.summed()
        if summed is None:
            return None
        strategy = self._forecast.strategy.asking(summed.strategy.workload)
        forecast = replace(self._forecast, workload=strategy.workload, strategy=strategy)
        return JointErrors(forecast, summed), summed.walks

    @cached_property
    def _matrix(self) -> Array | csr_array | None:
        """R, where it is needed and small enough."""
        if self._forecast.strategy.is_direct or self._summed is not None:
            return None
        return _readings(self._forecast)

    @cached_property
    def _classes(self) -> _Classes:
        return _classes(self._forecast, self._matrix)

    @cached_property
    def _grid_error(self) -> float:
        """How far the noise on the grid is from a smooth one, in any answer, at most.

        A discrete Laplace variable is a difference of two whole parts of exponential ones, a
        Gaussian is rounded: each is within one step of a smooth variable. By Cauchy and Schwarz
        ``sum_j |r_j| step_j <= sqrt(sum_j 1 / units_j^2) sqrt(sum_j r_j^2 scale_j^2)``.
        """
        pairs = zip(self._forecast.strategy.block_rows, self._forecast.noise, strict=True)
        steps = sqrt(sum(rows / noise.steps**2 for rows, noise in pairs))
        return steps * float(self._classes.tails.deviations.max())

    @cached_property
    def _farthest(self) -> Array:
        """``max_q |e_q|`` of all draws, sorted."""
        parts = list(_simulated(self._forecast, self._matrix, self._summed))
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0)

    def _step_error(self, beta: float) -> tuple[float, float]:
        """How far drawn sums are from those of noise on its grid, and the share of beta for it.

        A smooth Laplace variable is the discrete one and an independent symmetric rest of one step
        at most: by Hoeffding's inequality ``|sum_j r_j rest_j| <= c sqrt(sum_j r_j^2 step_j^2)`` in
        all answers but with probability ``2 queries e^(-c^2 / 2)``. A Gaussian is rounded.
        """
        if self._summed is None:
            return 0.0, 0.0
        if self._forecast.strategy.noise == "gaussian":
            return self._grid_error, 0.0
        fine = [
            noise.steps
            for noise, times in zip(self._forecast.noise, self._summed.times, strict=True)
            if not _is_listed(noise, times)
        ]
        if not fine:
            return 0.0, 0.0
        queries, share = self._forecast.workload.queries, LIMITS.seed_share
        c = sqrt(2 * log(2 * queries / (beta * share)))
        return c * float(self._classes.tails.deviations.max()) / min(fine), share


def seed_share(draws: int, beta: float) -> float:
    """The share of beta for seeds that mislead: the least of those that give the best bound.

    >>> seed_share(20_000, 0.05) == 2.0**-16, seed_share(288, 0.05) == 2.0**-4
    (True, True)
    """
    if draws >= LIMITS.joint_draws:
        return LIMITS.seed_share
    return max(LIMITS.seed_shares, key=lambda share: (_rank(draws, beta, share), -share))


def order_statistic(draws: int, beta: float) -> int:
    """The greatest j such that the j-th greatest of so many draws is a bound; 0 if none is.

    At most ``j - 1`` draws lie above the quantile of level ``1 - p`` with probability
    ``P(Bin(draws, p) <= j - 1)`` at most: that must not exceed the share of beta for seeds.

    >>> order_statistic(20_000, 0.05), order_statistic(288, 0.05)
    (855, 5)
    """
    return _rank(draws, beta, seed_share(draws, beta))


def _rank(draws: int, beta: float, share: float) -> int:
    from scipy.special import bdtr

    if not draws:
        return 0
    exceeding = np.arange(int(draws * beta) + 1, dtype=np.float64)
    return int(np.count_nonzero(bdtr(exceeding, draws, beta * (1 - share)) <= beta * share))


# Tails, by classes of answers


class _Tails(Protocol):
    """``P(|noise of an answer| > t)``, or more, of classes of answers."""

    @property
    def deviations(self) -> Array:
        """``sqrt(sum_j r_j^2 scale_j^2)`` of every class, at most."""

    def above(self, t: Array, is_smooth: bool) -> Array:
        """The probability of every class, each at its own t of 0 or more.

        ``is_smooth``: of real Laplace variables, not of whole steps that are no small part of them.
        """


@dataclass(frozen=True, slots=True)
class _Classes:
    """Answers of nearly equal law: how many they are, their greatest bias and their tails."""

    times: Array
    biases: Array
    tails: _Tails

    @property
    def reach(self) -> float:
        """A first guess at the bound."""
        return float((self.tails.deviations + self.biases).max())

    def exponent(self, t: float, times: float = 1.0) -> float:
        """``-ln prod_q P(|e_q| <= t)``, or more, where steps raise tails so many times."""
        rest = t - self.biases
        reached = self.tails.above(np.maximum(rest, 0.0), is_smooth=times == 1)
        above = np.minimum(times * reached, 1.0)
        tails = np.where(self.tails.deviations > 0, above, 0.0)
        with np.errstate(divide="ignore"):
            return float(-(self.times * np.log1p(-np.where(rest < 0, 1.0, tails))).sum())


@dataclass(frozen=True, slots=True)
class _Gaussian:
    """Normal errors of these standard deviations."""

    deviations: Array

    def above(self, t: Array, is_smooth: bool) -> Array:  # noqa: ARG002
        from scipy.special import erfc

        sizes = np.where(self.deviations > 0, self.deviations, 1.0)
        return np.asarray(erfc(t / sizes / sqrt(2)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Laplace:
    """Sums of Laplace variables: ``theta`` that are tried, and the logarithms of the product.

    ``deviations`` are ``sqrt(sum_j a_j^2)``: the standard deviation is sqrt(2) times that. The
    product ``1 / (1 - theta^2 a_j^2)`` is that over all j, and over all but the greatest.
    """

    deviations: Array
    theta: Array
    log_products: Array
    log_others: Array

    def above(self, t: Array, is_smooth: bool) -> Array:
        """Claims 2 and 5 of docs/proofs/joint-error.md, whichever is less."""
        tilted = self.theta * t[:, None]
        exponents = (self.log_others - tilted).min(axis=1)
        if is_smooth:  # any theta will do: that of the least without C is next to the best
            own = (self.log_products - tilted).argmin(axis=1)[:, None]
            product, place = (np.take_along_axis(x, own, 1) for x in (self.log_products, tilted))
            exponents = np.minimum(exponents, (product + _mixed(place))[:, 0])
        return np.asarray(np.exp(np.minimum(exponents, 0.0)), dtype=np.float64)


def _mixed(x: Array) -> Array:
    """``ln C(x)``, ``C(x) = max_s erfc(sqrt(x / 2s)) e^(-x s / 2)``, rounded up.

    It falls and is convex, so that chords lie above it, and its last value above all after.
    """
    places, values = _mixtures()
    return np.asarray(np.interp(x, places, values), dtype=np.float64)


@cache
def _mixtures() -> tuple[Array, Array]:
    """Places and values of ``ln C``.

    With ``u^2 = x / s`` it is ``ln 2 + ln Phi(-u) - x^2 / (2 u^2)``, greatest where ``u^3 h(u) =
    x^2``, h the hazard of the normal law, which rises: so places are computed from u.
    """
    from scipy.special import log_ndtr

    u = np.geomspace(LIMITS.mixture_least, LIMITS.mixture_most, LIMITS.mixture_places)
    below = log_ndtr(-u)
    hazard = np.exp(-(u**2) / 2 - log(2 * pi) / 2 - below)
    x = np.sqrt(u**3 * hazard)
    values = log(2) + below - x**2 / (2 * u**2)
    return np.append(0.0, x), np.append(0.0, values * (1 - LIMITS.mixture_rounding))


def _classes(forecast: Forecast, matrix: Array | csr_array | None) -> _Classes:
    """The answers of a forecast by class; the matrix that leads to them, if there is one."""
    if forecast.strategy.noise == "gaussian":
        times, variances, _, biases = _listed(forecast)
        members = _members(variances, biases)
        deviations = _most(members, np.sqrt(variances))
        return _Classes(_totals(members, times), _most(members, biases), _Gaussian(deviations))
    if matrix is not None:
        tails = _of_rows(matrix, forecast)
        ones = np.ones(len(tails.deviations))
        return _Classes(ones, np.zeros(1), tails)
    times, variances, shapes, biases = _listed(forecast)
    members = _members(variances, shapes)
    tails = _of_moments(members, variances / 2, np.maximum(shapes, 1.0))
    return _Classes(_totals(members, times), _most(members, biases), tails)


def _times(forecast: Forecast) -> float:
    """By how much steps of the grid can raise a tail: ``2 / (1 + q)`` of one draw, 2 of a sum."""
    scales = forecast.tails.scales
    if not scales:
        return 1.0
    return 2 / (1 + exp(-1 / scales[0])) if forecast.strategy.is_direct else 2.0


def _listed(forecast: Forecast) -> tuple[Array, Array, Array, Array]:
    """Of all answers: how often each, variance, number of equal noises, greatest bias.

    Those of a group that are alike are listed once.
    """
    parts: list[tuple[Array, ...]] = []
    strategy, noise = forecast.strategy, forecast.block_variances
    if strategy.noise == "laplace":  # of smooth noise, which has the greater moments
        noise = tuple(2 * n.scale**2 for n in forecast.noise)
    totals, greatest = strategy.group_variances(noise)
    is_plain = strategy.noise == "gaussian" and strategy.records is None
    for t, term in enumerate(forecast.workload.terms):
        is_even = totals[t] >= term.rows * greatest[t] * (1 - LIMITS.equal_variances)
        if (is_plain and is_even) or term.rows > LIMITS.joint_listed:
            shape = inf if strategy.noise == "gaussian" else 1.0
            bias = 0.0
            if strategy.records is not None:
                bias = strategy.maximum_error(t, [0.0] * len(noise), strategy.records) ** 0.5
            alike = (float(term.rows), greatest[t], shape, bias)
            parts.append(tuple(np.array([v]) for v in alike))
            continue
        biases = np.zeros(1) if strategy.records is None else forecast.biases(t)
        columns = (once(strategy.variances(t, noise)), once(strategy.effective_terms(t)), biases)
        size = max(len(c) for c in columns)
        spread = (np.broadcast_to(c, (size,)) for c in columns)
        parts.append((np.full(size, term.rows / size), *spread))
    times, variances, shapes, biases = (np.concatenate(c) for c in zip(*parts, strict=True))
    return times, variances * (1 + LIMITS.equal_variances), shapes, biases


def _of_rows(matrix: Array | csr_array, forecast: Forecast) -> _Laplace:
    """The product of every answer itself: its greatest draw is left out."""
    from scipy.sparse import csr_array

    scales = np.repeat([n.scale for n in forecast.noise], forecast.strategy.block_rows)
    rows = csr_array(matrix)
    a = np.abs(rows.data) * scales[rows.indices]

    def summed(numbers: Array) -> Array:
        whole = csr_array((numbers, rows.indices, rows.indptr), shape=rows.shape)
        return np.asarray(whole.sum(axis=1), dtype=np.float64)

    greatest = np.zeros(rows.shape[0])
    of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    np.maximum.at(greatest, of, a)
    held = np.where(greatest > 0, greatest, 1.0)
    shares = (a / held[of]) ** 2
    products = np.stack([summed(-np.log1p(-(x**2) * shares)) for x in _tilts()], axis=1)
    others = products + np.log1p(-(_tilts() ** 2))
    return _Laplace(np.sqrt(summed(a**2)), _tilts() / held[:, None], products, others)


def _of_moments(members: Integers, second: Array, shapes: Array) -> _Laplace:
    """From ``V = sum a^2`` and the number n of equal draws with ``sum a^4 = V^2 / n`` alone.

    With ``W = V / sqrt(n)``: by convexity of ``-ln(1 - theta^2 u) / u`` a square W and the rest
    of V spread out over ever more draws have the greatest moments. The greatest square, whose
    factor is left out, is at least ``V / n``. Of a class the worst of each counts: the logarithm
    rises with V and W.
    """
    widest = np.minimum(second / np.sqrt(shapes) * (1 + LIMITS.equal_variances), second)
    of_class = _most(members, second), _most(members, widest), -_most(members, -second / shapes)
    v, w, low = (c[:, None] for c in of_class)
    w = np.where(w > 0, w, 1.0)
    theta = _tilts() / np.sqrt(w)
    products = theta**2 * (v - w) - np.log1p(-(theta**2) * w)
    others = products + np.log1p(-(theta**2) * low)
    return _Laplace(np.sqrt(of_class[0]), theta, products, others)


@cache
def _tilts() -> Array:
    """Values of theta that are tried, over the greatest: small ones for many equal draws."""
    near_one = 1 - 2.0 ** -np.arange(6, LIMITS.tilt_bits, 2)
    return np.concatenate([np.geomspace(1e-3, 0.5, 20), np.linspace(0.54, 0.98, 12), near_one])


def _members(values: Array, others: Array) -> Integers:
    """The number of the class of every entry: both values are within a small ratio there."""
    with np.errstate(divide="ignore"):
        levels = [np.ceil(np.log(v) * LIMITS.joint_levels) for v in (values, others)]
    lowest = -float(LIMITS.joint_levels * 2048)  # below the logarithm of any float
    first, second = (np.nan_to_num(x, neginf=lowest, posinf=-lowest) for x in levels)
    first, second = first - first.min(), second - second.min()
    codes = (first * (second.max() + 1) + second).astype(np.int64)
    if int(codes.max()) >= LIMITS.joint_codes:
        return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    places = np.cumsum(np.bincount(codes) > 0, dtype=np.int64) - 1
    return np.asarray(places[codes], dtype=np.int64)


def _totals(members: Integers, values: Array) -> Array:
    return np.asarray(np.bincount(members, values), dtype=np.float64)


def _most(members: Integers, values: Array) -> Array:
    out = np.full(int(members.max()) + 1, -inf)
    np.maximum.at(out, members, values)
    return out


# Simulation


def _simulated(
    forecast: Forecast, matrix: Array | csr_array | None, summed: Summed | None
) -> Iterator[Array]:
    """``max_q (|e_q| + bias_q)`` of public draws, some at a time; nothing if that is too much.

    Where attributes are summed away, of sums of the noise, which may be smooth: `_step_error`.
    """
    strategy = forecast.strategy if summed is None else summed.strategy
    values = sum(strategy.block_rows)
    if strategy.is_direct:
        return  # independent errors: tails are exact
    reading = _FarthestReading.of(strategy)
    size = values + reading.strategy.workload.queries
    if size > LIMITS.joint_size:
        return
    draws = 0
    if matrix is not None:
        is_full = isinstance(matrix, np.ndarray)
        work = matrix.size * (1 if is_full else LIMITS.sparse_work) + forecast.workload.queries
        work += LIMITS.draw_work * values
        draws = min(LIMITS.joint_multiplications // work, LIMITS.joint_draws)
    by_reading = _draws_of(reading, values)
    if by_reading > draws:
        matrix, draws = None, by_reading
    if order_statistic(draws, LIMITS.joint_beta) == 0:
        return
    biases = np.zeros(1)
    if strategy.records is not None:
        terms = range(len(forecast.workload.terms))
        biases = np.concatenate([forecast.biases(t) for t in terms])
    source = Draws(f"farthest answer|{forecast.workload.digest()}|{strategy.noise}|{values}")
    at_once = max(1, LIMITS.joint_held // size)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        if summed is None:
            noise = _grid_noise(forecast, source, count)
        else:
            noise = _summed_noise(forecast, summed, source, count)
        if matrix is not None:
            yield (np.abs(matrix @ noise) + biases[:, None]).max(axis=0)
        else:
            yield reading.farthest(noise, biases)


def _draws_of(reading: _FarthestReading, values: int) -> int:
    """How many draws are made without a matrix."""
    workload, blocks = reading.strategy.workload, reading.strategy.blocks
    work = workload.queries + LIMITS.value_work * values
    work += LIMITS.group_work * (len(workload.terms) + len(blocks))
    fewest = min(LIMITS.joint_most // work, LIMITS.joint_least)
    return max(min(LIMITS.joint_numbers // work, LIMITS.joint_draws), fewest)


@dataclass(frozen=True, eq=False)
class _FarthestReading:
    """How the farthest answer is read from measured values.

    Groups of all ranges along an attribute are read as running totals along it, where both follow
    from one estimate of the cells: ``ends[t]`` has the shape of these and the axis.
    """

    strategy: Strategy
    ends: tuple[tuple[tuple[int, ...], int] | None, ...]

    @classmethod
    def of(cls, strategy: Strategy) -> _FarthestReading:
        """With the longest attribute of each group that is asked by all ranges."""
        terms = list(strategy.workload.terms)
        ends: list[tuple[tuple[int, ...], int] | None] = [None] * len(terms)
        for t, term in enumerate(terms):
            product = term.as_product()
            if product is None or strategy.records is not None or not strategy.sums_cells(t):
                continue
            factors = list(product.factors)
            lengths = [q.size if q.running_totals() is not None else 0 for _, q in factors]
            axis = int(np.argmax(lengths)) if lengths else 0
            totals = factors[axis][1].running_totals() if lengths else None
            if totals is None:
                continue
            factors[axis] = (factors[axis][0], totals)
            terms[t] = shorter = replace(product, factors=tuple(factors))
            ends[t] = (shorter.row_shape, axis)
        if any(end is not None for end in ends):
            work = replace(strategy.workload, terms=tuple(terms))
            strategy = strategy.asking(work)
        return cls(strategy, tuple(ends))

    def farthest(self, noise: Array, biases: Array) -> Array:
        """``max_q (|e_q| + bias_q)`` for every column of noise of measured values."""
        edges = np.cumsum(self.strategy.block_rows)[:-1]
        constant = None
        if self.strategy.records is not None:
            zeros = [np.zeros(rows) for rows in self.strategy.block_rows]
            constant = np.concatenate(self.strategy.answers(zeros))
        out = np.zeros(noise.shape[1])
        for i, column in enumerate(noise.T):
            parts = self.strategy.answers(np.split(column, edges))
            if constant is not None:
                out[i] = (np.abs(np.concatenate(parts) - constant) + biases).max()
            else:
                sizes = (_size(part, end) for part, end in zip(parts, self.ends, strict=True))
                out[i] = max(sizes, default=0.0)
        return out


def _size(answers: Array, ends: tuple[tuple[int, ...], int] | None) -> float:
    """The greatest absolute value, of all differences where these are running totals."""
    if ends is None:
        return float(np.abs(answers).max(initial=0.0))
    shape, axis = ends
    totals = answers.reshape(shape)
    above, below = totals.max(axis=axis, initial=0.0), totals.min(axis=axis, initial=0.0)
    return float((above - below).max())


def _grid_noise(forecast: Forecast, source: Draws, count: int) -> Array:
    """Noise of all measured values as it will be drawn, column by draw, in counts.

    With ``q = e^(-1/s)`` a discrete Laplace variable is at most -j with probability ``q^j / (1 +
    q)``: the quantile of a uniform number. A Gaussian is rounded to whole steps.
    """
    rows = np.array(forecast.strategy.block_rows)
    units = np.repeat([float(n.steps) for n in forecast.noise], rows)[:, None]
    steps = np.repeat([ldexp(1.0, -n.grid_bits) for n in forecast.noise], rows)[:, None]
    if forecast.strategy.noise == "gaussian":
        normals = source.normals(len(units) * count).reshape(len(units), count)
        return np.asarray(np.rint(normals * units) * steps, dtype=np.float64)
    u = source.uniforms(len(units) * count).reshape(len(units), count)
    below = np.log(np.minimum(u, 1 - u)) + np.log1p(np.exp(-1 / units))
    return np.asarray(np.ceil(units * below) * np.sign(u - 0.5) * steps, dtype=np.float64)


def _summed_noise(forecast: Forecast, summed: Summed, source: Draws, count: int) -> Array:
    """Sums of the noise of so many measured values each, column by draw, in counts.

    Laplace noise of few steps has its own law; what is finer is smooth, as `_step_error` says.
    """
    parts = []
    laws = zip(summed.strategy.block_rows, forecast.noise, summed.times, strict=True)
    for rows, noise, times in laws:
        if summed.strategy.noise == "gaussian":
            part = noise.scale * sqrt(times) * source.normals(rows * count)
        elif _is_listed(noise, times):
            steps = _laplace_sums(float(noise.steps), times, source.uniforms(rows * count))
            part = ldexp(1.0, -noise.grid_bits) * steps
        else:  # a sum of n Laplace variables is sqrt(2 G) normal, G gamma of shape n
            gammas = _gammas(float(times), rows * count, source)
            part = noise.scale * np.sqrt(2 * gammas) * source.normals(rows * count)
        parts.append(part.reshape(rows, count))
    return np.concatenate(parts)


def _is_listed(noise: BlockNoise, times: int) -> bool:
    """Whether the law of a sum of so many draws is listed step by step."""
    return noise.steps * sqrt(times) <= LIMITS.summed_steps


def _laplace_sums(scale: float, times: int, u: Array) -> Array:
    """Quantiles of the sum of ``times`` discrete Laplace variables, at these levels.

    The characteristic function of one is ``(1 - q)^2 / (1 - 2 q cos w + q^2)``: the law follows by
    a Fourier transform that holds ``LIMITS.summed_deviations`` to each side.
    """
    q = exp(-1 / scale)
    reach = ceil(LIMITS.summed_deviations * (sqrt(2 * times) + 4) * (scale + 1))
    size = 1 << (2 * reach).bit_length()
    angles = np.sin(np.pi * np.arange(size) / size) ** 2  # 1 - 2 q cos w + q^2 by half angles
    law = np.fft.fft(np.exp(-times * np.log1p(4 * q / (1 - q) ** 2 * angles))).real / size
    levels = np.cumsum(np.fft.fftshift(np.maximum(law, 0.0)))
    return np.asarray(np.searchsorted(levels, u * levels[-1]) - size // 2, dtype=np.float64)


def _gammas(shape: float, count: int, source: Draws) -> Array:
    """Gamma variables of a shape of 1 or more (Marsaglia and Tsang, 2000), by rejection.

    With ``d = shape - 1/3`` and ``v = (1 + x / sqrt(9 d))^3``, x normal, ``d v`` is accepted with
    probability ``exp(x^2 / 2 + d (1 - v + ln v))``.
    """
    out, left, d = np.zeros(count), np.arange(count), shape - 1 / 3
    while len(left):
        x, u = source.normals(len(left)), source.uniforms(len(left))
        v = (1 + x / sqrt(9 * d)) ** 3
        with np.errstate(divide="ignore", invalid="ignore"):
            accepted = (v > 0) & (np.log(u) < x**2 / 2 + d * (1 - v + np.log(v)))
        out[left[accepted]] = d * v[accepted]
        left = left[~accepted]
    return out


def _readings(forecast: Forecast) -> Array | csr_array | None:
    """R as one matrix, in the form that multiplies faster; None where it has too many numbers."""
    from scipy.sparse import csr_array

    strategy = forecast.strategy
    first = np.concatenate([[0], np.cumsum(strategy.block_rows)])
    rows, columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    entries, above, held = [np.zeros(0)], 0, 0
    for t, term in enumerate(forecast.workload.terms):
        try:
            parts = strategy.readings(t)
        except TooLarge:
            return None
        for b, part in parts.items():
            at, of = np.nonzero(part)
            rows.append(at + above)
            columns.append(of + first[b])
            entries.append(part[at, of])
            held += len(at)
        if held > LIMITS.joint_entries:
            return None
        above += term.rows
    places = (np.concatenate(rows), np.concatenate(columns))
    matrix = csr_array((np.concatenate(entries), places), shape=(above, int(first[-1])))
    return matrix.toarray() if held > LIMITS.dense_share * above * first[-1] else matrix
