# SPDX-License-Identifier: Apache-2.0
"""Shrinkage: answers drawn from their projection towards a prior, as far as the noise suggests.

When noise outweighs the data, the projection p of the answers is an outermost point of what data
can have, in the direction of the noise, and an estimate that expects something is nearer to the
truth: one that follows a prior around independence (``with_prior``), independent attributes by
themselves, even counts, or public records (``Guesses``). When it does not, p is the better one. All
are answers of histograms, so every mixture

    x(c) = c_1 p + c_2 x_2 + ... + c_m x_m,      c >= 0,  sum c = 1,

is too. Which one is best depends on the data. ``HeldOut`` weighs them by noise that was held out,
for cells that can be listed and for rows alike.

Privacy: a function of released answers and of public draws, so nothing is spent (Dwork, Roth 2014,
"The algorithmic foundations of differential privacy", Proposition 2.1). The inequality of the
projection ("never farther from the truth") is one for all data and all noise; this is one of means,
and of measurements: ``python -m bench projection``, ``python -m bench shrinkage``,
docs/mechanisms/projection.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import ceil, inf, isfinite, pi

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.random import Draws
from sfumato.refine.problem import Quadratic, alike
from sfumato.refine.reconstruct import Fit, FitPart, ReleasedTable
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.nonnegative import onto_weights, project_to_simplex
from sfumato.types import Array, Integers, Names
from sfumato.workload.queries import Identity
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "EVEN",
    "INDEPENDENT",
    "LOCAL",
    "PRIOR",
    "PUBLIC",
    "Guesses",
    "HeldOut",
    "Prior",
    "PublicRecords",
    "dispersion",
    "find_prior",
    "held_out_count",
    "held_out_noise",
    "mixture",
    "one_way_shares",
    "product_answers",
    "with_prior",
]


# A prior around independence


@dataclass(frozen=True, eq=False)
class Prior:
    """Shares of every attribute, and one tau per table of several attributes.

    With more cells than records most noisy cells say nothing. Before they are seen, a cell of a
    table of several attributes is expected at b, the product of one-way shares, give or take

        var = tau * b        (counts; tau = 1 is the sampling error of independent records),

    with one tau per table. Shares and tau are those of maximum likelihood in
    ``y ~ N(b, tau b + v)``, v the variance of the noise: empirical Bayes (Robbins 1956, "An
    empirical Bayes approach to statistics"; Efron, Morris 1973, "Stein's estimation rule and its
    competitors"). For fixed tau the shares of one attribute are least squares with a diagonal
    matrix while the others stay, on the simplex: alternating least squares. Tables of strong
    dependence get a large tau and stay as they were measured; tables of noise fall back to
    independence, frequent cells last. Shares that are mostly noise fall back to even ones
    (``_even_pull``).
    """

    shares: dict[str, Array]
    tau: tuple[float, ...]
    total: float

    def expected(self, names: Names) -> Array:
        """``b``: the product table."""
        out = np.full((), self.total)
        for name in names:
            out = np.multiply.outer(out, self.shares[name])
        return out


def with_prior(
    fit: Fit,
    tables: Sequence[ReleasedTable],
    n: float,
    prior: Prior | None = None,
    inner: Sequence[ReleasedTable] = (),
) -> Fit:
    """The fit with a prior for every released table of two attributes or more.

    The log density of the prior is one more quadratic part ``(h - b)^2 / (2 tau b)`` of the fit, so
    every solver of fits can use it; the minimum is then the most likely histogram. The answers are
    no longer unbiased: use it where the total error matters.

    A cell that is measured far from b contradicts the prior, and is let go: its variance is at
    least ``|y - b| sqrt(v) / c - v``, with which the prior by itself moves it by c standard errors
    of its noise at most (limited translation: Efron, Morris 1972, "Limiting the risk of Bayes and
    empirical Bayes estimators, part II").

    ``inner`` are margins that are known better than the fit says (``inner_tables``): a part each.
    """
    prior = find_prior(fit.domain, [*tables, *inner], n) if prior is None else prior
    several = [t for t in (*tables, *inner) if len(t.attributes) > 1 and not t.is_spread]
    parts = []
    for table, tau in zip(several, prior.tau, strict=True):
        base = prior.expected(table.attributes)
        variance = tau * np.maximum(base, LIMITS.prior_count_minimum)
        away = table.error * np.abs(table.values - base) / LIMITS.prior_translation
        weights = 1 / np.maximum(variance, away - table.error**2)
        factors = tuple((a, Identity(fit.domain[a].size)) for a in table.attributes)
        term = Product(fit.domain, f"prior {' x '.join(table.attributes)}", 1.0, factors)
        parts.append(FitPart(term, base.reshape(-1), weights.reshape(-1)))
    for table in inner:
        factors = tuple((a, Identity(fit.domain[a].size)) for a in table.attributes)
        term = Product(fit.domain, f"margin {' x '.join(table.attributes)}", 1.0, factors)
        precisions = np.full(table.values.size, table.error**-2)
        parts.append(FitPart(term, table.values.reshape(-1), precisions))
    return Fit(fit.domain, (*fit.parts, *parts))


def find_prior(domain: Domain, tables: Sequence[ReleasedTable], n: float) -> Prior:
    """The prior of released tables: shares and tau in turn, from projected one-way tables on."""
    if not (isfinite(n) and n > 0):
        raise PlanError(f"a prior needs a total above 0, got {n}")
    used = [t for t in tables if t.attributes and not t.is_spread]
    shares = {a.name: _one_way(domain, used, a.name, n) for a in domain}
    stacks = _stacks(used)
    prior = Prior(shares, (), n)
    for _ in range(LIMITS.prior_rounds):
        weights, tau = [], {}
        for stack in stacks:
            base = np.maximum(stack.expected(prior.shares, n), LIMITS.prior_count_minimum)
            variance = np.empty_like(base)
            for i, (place, error) in enumerate(zip(stack.places, stack.errors, strict=True)):
                variance[i] = error**2
                if base.ndim > 2:
                    tau[place] = dispersion(stack.values[i] - base[i], base[i], error**2)
                    variance[i] += tau[place] * base[i]
            weights.append(1 / np.maximum(variance, LIMITS.prior_variance_minimum))
        ordered = tuple(tau[place] for place in sorted(tau))
        prior = Prior(_alternate(prior, stacks, weights), ordered, n)
    return prior


@dataclass(frozen=True, eq=False)
class _Stack:
    """Tables of one shape, so that thousands of small ones take one pass; ``places`` among all."""

    names: tuple[Names, ...]
    values: Array
    errors: tuple[float, ...]
    places: tuple[int, ...]

    def expected(
        self, shares: Mapping[str, Array], total: float, skipped: int | None = None
    ) -> Array:
        """The product tables; without the shares of one axis, where one is skipped."""
        return self.products(shares, total, range(len(self.names)), skipped)

    def products(
        self, shares: Mapping[str, Array], total: float, which: Iterable[int], skipped: int | None
    ) -> Array:
        """The product tables of some."""
        chosen = [self.names[i] for i in which]
        out = np.full((len(chosen),) + (1,) * (self.values.ndim - 1), total)
        for axis in range(self.values.ndim - 1):
            if axis != skipped:
                each = np.stack([shares[names[axis]] for names in chosen])
                along = [-1 if i == axis else 1 for i in range(self.values.ndim - 1)]
                out = out * each.reshape(len(chosen), *along)
        return out

    @cached_property
    def holding(self) -> dict[str, list[tuple[int, Integers]]]:
        """By attribute: the axes it is on, with the tables where it is."""
        out: dict[str, list[tuple[int, Integers]]] = {}
        for axis in range(self.values.ndim - 1):
            for name in dict.fromkeys(names[axis] for names in self.names):
                which = [i for i, names in enumerate(self.names) if names[axis] == name]
                out.setdefault(name, []).append((axis, np.array(which, dtype=np.int64)))
        return out


def _stacks(tables: Sequence[ReleasedTable]) -> list[_Stack]:
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for place, table in enumerate(tables):
        by_shape.setdefault(table.values.shape, []).append(place)
    return [
        _Stack(
            tuple(tables[i].attributes for i in places),
            np.stack([tables[i].values for i in places]),
            tuple(tables[i].error for i in places),
            tuple(places),
        )
        for places in by_shape.values()
    ]


def _alternate(
    prior: Prior, stacks: Sequence[_Stack], weights: Sequence[Array]
) -> dict[str, Array]:
    """The shares of alternating least squares of ``n p x q x ...`` against weighted tables."""
    shares = dict(prior.shares)
    pulls: dict[str, float] = {}
    for _ in range(LIMITS.prior_sweeps):
        moved = 0.0
        for name, share in shares.items():
            bend, pull = np.zeros(len(share)), np.zeros(len(share))
            for stack, weight in zip(stacks, weights, strict=True):
                for axis, which in stack.holding.get(name, ()):
                    others = stack.products(shares, prior.total, which, axis)
                    pulled = weight[which] * others
                    away = tuple(i for i in range(others.ndim) if i != axis + 1)
                    bend += (pulled * others).sum(axis=away)
                    pull += (pulled * stack.values[which]).sum(axis=away)
            if not bend.any():
                continue
            bend = np.maximum(bend, 1e-12 * float(bend.max()))
            even = 1 / len(share)
            if name not in pulls:
                pulls[name] = _even_pull(pull / bend - even, bend, prior.total)
            bend, pull = bend + pulls[name], pull + pulls[name] * even
            updated = onto_weights(pull / bend, bend, 1.0)
            moved = max(moved, float(np.abs(updated - share).sum()))
            shares[name] = updated
        if moved < LIMITS.prior_shares_settled:
            break
    return shares


def _even_pull(differences: Array, bend: Array, total: float) -> float:
    """The weight of even shares in the shares of an attribute, beside ``bend``, that of the tables.

    Shares scatter around even ones as tables do around the product, with a tau of greatest
    likelihood: where that leaves noise the part B of what is seen, B of the way to even shares has
    the least expected error. B^2 of it is gone: all of it where there is nothing but noise, and
    next to nothing for shares that stand out, which a normal law does not expect.
    """
    expected = np.full(len(bend), total / len(bend))
    tau = dispersion(total * differences, expected, total**2 / bend)
    noise = total**2 / float(bend.mean())
    square = (noise / (tau * float(expected[0]) + noise)) ** 2
    return float(bend.mean()) * square / max(1 - square, LIMITS.even_pull_rest)


def dispersion(differences: Array, expected: Array, variance: float | Array) -> float:
    """The tau of maximum likelihood in ``d ~ N(0, tau b + v)``, from 1 up.

    The likelihood of ``log tau`` need not be unimodal: a grid, then a finer one around its best.
    Only the most frequent cells are looked at, which say the most and are chosen without y.
    """
    squares, expected = differences.reshape(-1) ** 2, expected.reshape(-1)
    noise = np.broadcast_to(variance, expected.shape)
    if expected.size > LIMITS.dispersion_cells:
        frequent = np.argpartition(-expected, LIMITS.dispersion_cells)[: LIMITS.dispersion_cells]
        squares, expected, noise = squares[frequent], expected[frequent], noise[frequent]
    low, high = np.log(LIMITS.dispersion_minimum), np.log(LIMITS.dispersion_maximum)
    best = low
    for _ in range(LIMITS.dispersion_refinements):
        grid = np.linspace(low, high, LIMITS.dispersion_grid)
        fits = _likelihoods(squares, expected, noise, grid)
        best = float(grid[int(np.argmax(fits))])
        step = float(grid[1] - grid[0])
        low, high = (
            max(np.log(LIMITS.dispersion_minimum), best - step),
            min(np.log(LIMITS.dispersion_maximum), best + step),
        )
    return float(np.exp(best))


def _likelihoods(squares: Array, expected: Array, variance: Array, log_taus: Array) -> Array:
    spread = np.multiply.outer(np.exp(log_taus), expected) + variance
    return np.asarray(-0.5 * (np.log(spread) + squares / spread).sum(axis=1))


def one_way_shares(tables: Sequence[ReleasedTable], name: str, n: float) -> Array | None:
    """The shares of one attribute: all tables that hold it, by their precision; None if none do."""
    holding = [t for t in tables if name in t.attributes and not t.is_spread]
    if not holding:
        return None
    precision = [t.margin_error((name,)) ** -2 if t.error > 0 else 1e300 for t in holding]
    margins = [t.margin((name,)) for t in holding]
    return project_to_simplex(np.average(margins, axis=0, weights=precision), n) / n


def _one_way(domain: Domain, tables: Sequence[ReleasedTable], name: str, n: float) -> Array:
    shares = one_way_shares(tables, name, n)
    return np.full(domain[name].size, 1 / domain[name].size) if shares is None else shares


# Guesses

PRIOR = "a prior around independence"
INDEPENDENT = "independent attributes"
EVEN = "even counts"
PUBLIC = "public records"
LOCAL = "tables that agree on what they share"


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """Weighted records that anybody may see: ``codes[:, i]`` is a cell of ``attributes[i]``."""

    attributes: tuple[str, ...]
    codes: Integers
    weights: Array


@dataclass(frozen=True, eq=False)
class Guesses:
    """Histograms of one record over the merged cells of a grid that need no fit, by name.

    Independent attributes with the shares of a prior (where there is one), even counts, and public
    records (where there are some). Mixtures of them and of a projection are answers of histograms.
    """

    quadratic: Quadratic
    public: PublicRecords | None = None

    def names(self, has_prior: bool) -> tuple[str, ...]:
        """Which guesses there are."""
        independent = (INDEPENDENT,) if has_prior else ()
        return (*independent, EVEN, *(() if self.public is None else (PUBLIC,)))

    def answers(self, prior: Prior | None) -> Array:
        """The answers of one record of every guess, one row each."""
        out = [_answers(self.quadratic, self._merged(prior))] if prior is not None else []
        return np.stack([*out, *self._fixed])

    def shares(self, name: str, prior: Prior | None) -> Array:
        """The shares of the merged cells that a guess has."""
        if name == PUBLIC:
            return self._public
        is_fitted = name == INDEPENDENT and prior is not None
        return _outer(self._merged(prior) if is_fitted else self._sizes).reshape(-1)

    @cached_property
    def _classes(self) -> dict[str, Integers]:
        return {name: alike(self.quadratic.fit, name) for name in self.quadratic.grid.names}

    @cached_property
    def _sizes(self) -> list[Array]:
        """How many cells of the domain each merged cell stands for, by attribute, as shares."""
        return [np.bincount(c).astype(np.float64) / len(c) for c in self._classes.values()]

    def _merged(self, prior: Prior | None) -> list[Array]:
        if prior is None:
            return self._sizes
        pairs = self._classes.items()
        return [np.bincount(c, prior.shares[name]).astype(np.float64) for name, c in pairs]

    @cached_property
    def _fixed(self) -> list[Array]:
        """The guesses that do not depend on the noisy answers."""
        even = _answers(self.quadratic, self._sizes)
        if self.public is None:
            return [even]
        return [even, self.quadratic.answers(self.quadratic.stack(self._public))]

    @cached_property
    def _public(self) -> Array:
        grid, public = self.quadratic.grid, self.public
        assert public is not None  # noqa: S101  asked for where there are some
        columns = [public.codes[:, public.attributes.index(n)] for n in grid.names]
        merged = [c[column] for c, column in zip(self._classes.values(), columns, strict=True)]
        counts = np.zeros(grid.shape)
        np.add.at(counts, tuple(merged), public.weights)
        return np.asarray(counts.reshape(-1) / counts.sum(), dtype=np.float64)


def _answers(quadratic: Quadratic, shares: Sequence[Array]) -> Array:
    """The answers of one record whose attributes have these shares, independently."""
    margins = [_outer([shares[a] for a in axes]).reshape(-1) for axes in quadratic.sets]
    return quadratic.answers(np.concatenate(margins))


def _outer(shares: Sequence[Array]) -> Array:
    out = np.ones(())
    for share in shares:
        out = np.multiply.outer(out, share)
    return np.asarray(out, dtype=np.float64)


def product_answers(workload: Workload, prior: Prior | None) -> Array:
    """The answers of one record of independent attributes, with even shares without a prior."""
    out = []
    for term in workload.terms:
        sizes = [(name, workload.domain[name].size) for name in term.attributes]
        table = _outer([np.full(k, 1 / k) if prior is None else prior.shares[n] for n, k in sizes])
        out.append(np.asarray(term.answer(table), dtype=np.float64).reshape(-1))
    return np.concatenate(out)


# How much of each: held-out noise


@dataclass(eq=False)
class HeldOut:
    """Shares of several estimates in a mixture of least error, by noise that they did not see.

    The estimates ``x_1(y), ..., x_m(y)`` are mixed with shares c. The error is, up to a constant,

        |sum c_i x_i - a|^2  ~  c'Gc - 2 c'p,      G = <x_i, x_j>,   p = <x_i, a>,

    and the truth a is unknown. To estimate p, y is split by public noise z' of the law of the noise
    z and a number s:

        y_1 = y + s z',      y_2 = y - z' / s,

    which are independent for normal noise (their covariance is 0; data thinning: Neufeld et al.
    2024, "Data thinning for convolution-closed distributions"; Oliveira, Lei, Tibshirani 2021,
    "Unbiased risk estimation in the normal means problem via coupled bootstrap techniques"). So
    estimates of y_1 never saw y_2, and ``E <x(y_1), y_2> = E <x(y_1), a>``: unbiased, for noise
    that is larger by ``1 + s^2``. Given y the mean of ``<z', x(y)>`` is 0: taking
    ``<z', x(y_1) - x(y)> / s`` for ``<z', x(y_1)> / s`` changes no mean and takes most of the noise
    off. Laplace noise is split into parts that are uncorrelated, not independent, so the mean is
    then one to first order.

    The noise of the evidence for ``<x_i - x_1, a>`` is known, too. With J the derivative of
    ``W (x_i - x_1)`` by y, W the metric and S the covariance of z, its variance is

        E (x_i - x_1)'W S W (x_i - x_1) + (1 + 2 / splits) E tr(S J S J):

    the noise of y by itself, that of the derivative (second-order Stein: Bellec, Zhang 2021,
    "Second-order Stein: SURE for SURE and other applications in high-dimensional inference") and
    that of its estimate by normal draws, each with both signs. J is symmetric for a projection, so
    ``tr(S J S J)`` is the variance of ``<z, J z'>``, and ``J z'`` about ``W (x(y_1) - x(y)) / s``.
    An estimate that follows the noise far makes the second part larger than the first.

    ``points`` are the estimates at y, a row each; ``start`` are the shares that are expected before
    the evidence, up to a factor, and ``square`` is how far the first estimate is from the truth at
    most: ``E|z|^2``, and what its search left. ``add`` takes in the estimates at y_1. ``follows``
    adds up ``z' (x(y_1) - x(y)) / s``, answer by answer, whose mean is the covariance of x and z to
    first order (Stein 1981, "Estimation of the mean of a multivariate normal distribution").
    """

    values: Array
    metric: Array
    points: Array
    start: Array
    square: float
    covariance: Callable[[Array], Array]
    gram: Array = field(init=False)
    pull: Array = field(init=False)
    follows: Array = field(init=False)
    derived: Array = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        """Begin without evidence."""
        size = len(self.points)
        self.gram, self.pull = np.zeros((size, size)), np.zeros(size)
        self.follows, self.derived = np.zeros_like(self.points), np.zeros((size - 1, size - 1))

    @cached_property
    def own(self) -> Array:
        """The covariance of ``<z, x_i - x_1>``, i > 1."""
        return self.covariance(self.metric * (self.points[1:] - self.points[0]))

    def add(self, noise: Array, points: Array) -> None:
        """Take in the estimates of ``values + s noise``."""
        self.gram += (points * self.metric) @ points.T
        moved = (points - self.points) / LIMITS.held_out_scale
        self.pull += points @ (self.metric * self.values) - moved @ (noise * self.metric)
        self.follows += moved * noise
        if self.count % 2 == 0:  # the other sign moves them about as far
            self.derived += self.covariance(self.metric * (moved[1:] - moved[0]))
        self.count += 1

    @cached_property
    def near(self) -> Array:
        """``min(1, square / |x_i - x_1|^2)^2``: what is farther than noise is hardly a part."""
        squares = np.maximum((self.points - self.points[0]) ** 2 @ self.metric, self.square)
        return (self.square / squares) ** 2 if self.square > 0 else np.ones(len(squares))

    @cached_property
    def cancels(self) -> float:
        """How evenly the first two estimates differ: ``(E|d|)^2 pi / 2 / E d^2``; 1 if normal."""
        apart = np.abs(self.points[1] - self.points[0])
        square = float(self.metric @ apart**2) * float(self.metric.sum())
        mean = float(self.metric @ apart) ** 2 * pi / 2
        return min(1.0, mean / square) if square > 0 else 1.0

    def covariances(self, shares: Array) -> Array:
        """About the covariance of every answer of a mixture with its noise; to first order."""
        return np.asarray(shares @ self.follows / max(self.count, 1))

    def noise(self) -> Array:
        """The covariance of the evidence for ``<x_i - x_1, a>``, i > 1."""
        splits = max((self.count + 1) // 2, 1)
        return np.asarray(self.own + (1 + 2 / splits) * self.derived / splits)

    def shares(self, first: int | None = None) -> Array:
        """The shares of least expected error given the evidence; 0 or more, and 1 together.

        Of all estimates, or of the ``first`` so many alone. Before the evidence the best shares are
        taken to lie around those of the ``start``, give or take ``held_out_belief`` each, both less
        for estimates farther from the first one than noise takes that from the truth. The
        evidence updates them linearly (Bayes linear; Goldstein, Wooff 2007, "Bayes linear
        statistics"), as far as its noise allows; the expected error is then a quadratic function
        over the simplex:

            sum c_i |x_i - a|^2 - C / 2 sum c_i c_j |x_i - x_j|^2,        C = 1.

        The second sum is what errors that cancel save a mixture. In mean absolute error they
        cancel less where estimates differ in few answers and much (sparse tables: their wrong
        cells are not the same ones); so C is ``cancels``, at most 1, and all measures are served.
        """
        size = len(self.points) if first is None else first
        gram = self.gram[:size, :size] / max(self.count, 1)
        pull = self.pull[:size] / max(self.count, 1)
        apart = np.vstack([-np.ones(size - 1), np.eye(size - 1)])
        bend = apart.T @ gram @ apart
        start, wide = self.near[:size] * self.start[:size], self.near[:size]
        start, wide = start / start.sum(), LIMITS.held_out_belief**2 * wide
        belief = (np.diag(wide) - np.outer(wide, wide) / wide.sum())[1:, 1:]  # of sum 0
        seen = bend @ belief @ bend + self.noise()[: size - 1, : size - 1]
        slope = apart.T @ (pull - gram @ start)
        # Some are near each other and others far away: each in its own unit, none is rounding.
        unit = np.sqrt(np.maximum(np.diag(seen), np.finfo(float).tiny))
        scaled = seen / np.multiply.outer(unit, unit)
        solved = np.linalg.lstsq(scaled, slope / unit, rcond=LIMITS.held_out_rounding)[0]
        moved = belief @ bend @ (solved / unit)
        likely = start + apart @ moved
        rest = (1 - self.cancels) / 2 * np.diag(gram)
        shares = mixture(self.cancels * gram, gram @ likely - rest)
        shares[shares < LIMITS.held_out_ignored] = 0.0
        return np.asarray(shares / shares.sum(), dtype=np.float64)


def held_out_count(error: float, queries: int) -> int:
    """How often y is split for a weight of standard error ``error`` between two; 1, or even.

    What one split adds to that error is about as large: little noise in y needs one, if there are
    many queries for it to average over.
    """
    needed = max((error / LIMITS.held_out_error) ** 2, LIMITS.held_out_answers / (2 * queries))
    return 1 if needed <= 1 / 2 else 2 * ceil(min(needed, LIMITS.held_out_draws))


def held_out_noise(forecast: Forecast, count: int) -> Iterator[Array]:
    """Public draws of the noise, each with both signs where there are several.

    The odd part of what the draws add to the error is then gone.
    """
    draws = Draws(f"prior {forecast.workload.digest()} {forecast.mechanism}")
    for noise in drawn_noise(forecast, draws, ceil(count / 2)):
        yield noise
        if count > 1:
            yield -noise


def mixture(gram: Array, pull: Array) -> Array:
    """The c of least ``c'Gc - 2 c'm`` over the simplex, for a few points: face by face."""
    size = len(pull)
    scale = float(np.trace(gram)) or 1.0
    best: Array = np.eye(size)[0]
    minimum = inf
    for count in range(1, size + 1):
        for held in map(list, combinations(range(size), count)):
            bordered = np.ones((count + 1, count + 1))
            bordered[:count, :count] = gram[np.ix_(held, held)] / scale
            bordered[count, count] = 0.0
            goal = np.append(pull[held] / scale, 1.0)
            solved = np.linalg.lstsq(bordered, goal, rcond=1e-12)[0][:count]
            if solved.min() < 0 or abs(solved.sum() - 1) > 1e-6:
                continue
            tried = np.zeros(size)
            tried[held] = solved / solved.sum()
            value = float(tried @ gram @ tried - 2 * tried @ pull)
            if value < minimum - 1e-12 * scale:  # fewer points where they are as good
                best, minimum = tried, value
    return best
