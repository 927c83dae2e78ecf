# SPDX-License-Identifier: Apache-2.0
"""Estimates drawn towards what is likely before the data are asked, as far as noise asks.

Two uses. ``with_prior`` adds a prior around independence to a fit, for rows, and ``HeldOut`` says
how much of the result is mixed with the projection. ``shrunk_towards`` mixes a projection over
cells with guesses, for few records: when noise outweighs the data, the projection p is an outermost
point of what data can have, in the direction of the noise, and a guess g (even counts, independent
attributes, public records: ``Guesses``) is nearer to the truth a. All are answers of histograms, so
every mixture

    x(c) = c_0 p + c_1 g_1 + ... + c_m g_m,      c >= 0,  sum c = 1,

is too. With y = a + Z the best one has the least ``E |x(c)(y) - a|^2``, in the norm of the
objective, or, what is the same up to a constant (Stein 1981, "Estimation of the mean of a
multivariate normal distribution"), the least ``E |x(c) - y|^2 + 2 sum_q cov(x(c)_q, y_q)``. Those
means depend on a. p is where they are taken: ``y* = p + Z*`` with draws Z* of the planned noise,
projected again (the parametric bootstrap; Efron 2004, "The estimation of prediction error:
covariance penalties and cross-validation"):

    c  minimises  mean |c_0 p* + c_1 g_1* + ... - p|^2       over the simplex, a tiny program.

If the data had the answers p, no mixture would have a smaller expected error, that of the
projection included. They have others: the answers go back to p by a third of the way, which costs
little where shrinking helps, and keeps the loss small where it does not (all records alike: the
projection is at its best). Stein's own estimate of the covariances, the derivative of p, is
unbiased for every a, but p lies in corners, where the derivative is 0 or huge: its errors outweigh
what there is to gain.

All of it is a function of released answers and of public draws. The inequality of the projection
("never farther from the truth") is one for all data and all noise; this is one of means, and of
measurements: ``python -m bench shrinkage``, docs/mechanisms/projection.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import ceil, inf, isfinite, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError
from sfumato.planning.forecast import Forecast
from sfumato.planning.public_draws import Draws, drawn_noise
from sfumato.refine.cells import CellEstimate, fit_explicit
from sfumato.refine.problem import Quadratic, alike
from sfumato.refine.reconstruct import Fit, FitPart, ReleasedTable, released_tables
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.rows import WeightedRows, merged, onto_weights
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Names
from sfumato.workload.queries import Identity
from sfumato.workload.terms import Product

__all__ = [
    "EVEN",
    "INDEPENDENT",
    "PRIOR",
    "PUBLIC",
    "Guesses",
    "HeldOut",
    "Prior",
    "PublicRecords",
    "RowPair",
    "Shrunk",
    "dispersion",
    "find_prior",
    "held_out_count",
    "held_out_noise",
    "mixture",
    "one_way_shares",
    "shrunk_towards",
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


def with_prior(fit: Fit, tables: Sequence[ReleasedTable], n: float) -> Fit:
    """The fit with a prior for every released table of two attributes or more.

    The log density of the prior is one more quadratic part ``(h - b)^2 / (2 tau b)`` of the fit, so
    every solver of fits can use it; the minimum is then the most likely histogram. The answers are
    no longer unbiased: use it where the total error matters.
    """
    prior = find_prior(fit.domain, tables, n)
    several = [t for t in tables if len(t.attributes) > 1 and not t.is_spread]
    parts = []
    for table, tau in zip(several, prior.tau, strict=True):
        base = prior.expected(table.attributes)
        weights = 1 / (tau * np.maximum(base, LIMITS.prior_count_minimum))
        factors = tuple((a, Identity(fit.domain[a].size)) for a in table.attributes)
        term = Product(fit.domain, f"prior {' x '.join(table.attributes)}", 1.0, factors)
        parts.append(FitPart(term, base.reshape(-1), weights.reshape(-1)))
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


# How much of the prior: held-out noise

PRIOR = "a prior around independence"


@dataclass(frozen=True, eq=False)
class RowPair:
    """The projection of answers by rows, and the rows that fit them and a prior."""

    nearest: WeightedRows
    prior: WeightedRows

    @cached_property
    def answers(self) -> Array:
        """What both answer, a row each; the parts of the prior come last and are left out."""
        parts = len(self.nearest.fit.parts)
        both = (self.nearest.answers(), self.prior.answers()[:parts])
        return np.stack([np.concatenate(each) for each in both])

    def mixed(self, weight: float) -> tuple[Integers, Array]:
        """The rows of both, those of the prior with so much of the weight."""
        shares = ((self.nearest, 1 - weight), (self.prior, weight))
        used = [(r.codes, share * r.weights) for r, share in shares if share > 0]
        codes, weights = (np.concatenate(x, axis=-1) for x in zip(*used, strict=True))
        return merged(codes, weights)


@dataclass(eq=False)
class HeldOut:
    """How estimates are mixed for least error, by noise that they did not see.

    The mixture of the projection p(y) and of the fit with the prior q(y) that is nearest to the
    truth a has ``w = <a - p, d> / |d|^2`` of q, with ``d = q - p``. To estimate it, y is split by
    public noise z' of the law of the noise z and a number c:

        y_1 = y + c z',      y_2 = y - z' / c,

    which are independent for normal noise (their covariance is 0; data thinning: Neufeld et al.
    2024, "Data thinning for convolution-closed distributions"; Oliveira, Lei, Tibshirani 2021,
    "Unbiased risk estimation in the normal means problem via coupled bootstrap techniques"). So
    for ``p_1 = p(y_1)`` and ``d_1``, which never saw y_2,

        E [<y_2 - p_1, d_1>]  =  E [<a - p_1, d_1>]:

    the numerator is unbiased, for noise that is larger by ``1 + c^2``. Given y the mean of
    ``<z', d(y)>`` is 0: taking ``<z', d_1 - d> / c`` for ``<z', d_1> / c`` changes no mean and
    takes most of the noise off. Laplace noise is split into parts that are uncorrelated, not
    independent, so the mean is then one to first order.

    ``points`` are both estimates at y, a row each; ``add`` takes in those at y_1.
    """

    values: Array
    metric: Array
    points: Array
    numerator: float = 0.0
    denominator: float = 0.0

    def add(self, noise: Array, points: Array) -> None:
        """Take in the estimates of ``values + c noise``."""
        along = points[1] - points[0]
        pull = along - (self.points[1] - self.points[0])
        self.numerator += float(self.metric @ ((self.values - points[0]) * along))
        self.numerator -= float(self.metric @ (noise * pull)) / LIMITS.held_out_scale
        self.denominator += float(self.metric @ along**2)

    def error(self, variance: float) -> float:
        """The standard error of w from y, where ``variance`` is that of ``<z, d>``."""
        apart = float(self.metric @ (self.points[1] - self.points[0]) ** 2)
        return sqrt(variance) / apart if apart > 0 else inf

    def weight(self, variance: float) -> float:
        """From 0, the projection, to 1, the prior; 0 where both are the same.

        Noise would pull the weight off 0 and 1. It goes from w towards the nearer of both ends,
        continuously: as the squared error is a parabola in w, whatever lies between its lowest
        point and the nearer end errs no more than that end, the better of the two estimates.
        Where the noise of w itself is large, w says little, and the weight goes to one half: the
        loss is then least in the worst case.
        """
        error = self.error(variance)
        if error == inf or not self.denominator > 0:
            return 0.0
        belief = LIMITS.held_out_belief**2
        trust = LIMITS.held_out_stretch * belief / (belief + error**2)
        weight = 0.5 + trust * (self.numerator / self.denominator - 0.5)
        return min(1.0, max(0.0, weight))


def held_out_count(error: float) -> int:
    """How often y is split for evidence whose own standard error is ``error``; 1, or even.

    What one split adds to that error is about as large: little noise in y needs one.
    """
    needed = min((error / LIMITS.held_out_error) ** 2, LIMITS.held_out_draws)
    return 1 if needed <= 1 / 2 else 2 * ceil(needed)


def held_out_noise(forecast: Forecast, count: int) -> Iterator[Array]:
    """Public draws of the noise, each with both signs where there are several.

    The odd part of what the draws add to the error is then gone.
    """
    draws = Draws(f"prior {forecast.workload.digest()} {forecast.mechanism}")
    for noise in drawn_noise(forecast, draws, ceil(count / 2)):
        yield noise
        if count > 1:
            yield -noise


# Guesses

EVEN = "even counts"
INDEPENDENT = "independent attributes"
PUBLIC = "public records"


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """Weighted records that anybody may see: ``codes[:, i]`` is a cell of ``attributes[i]``."""

    attributes: tuple[str, ...]
    codes: Integers
    weights: Array


@dataclass(frozen=True, eq=False)
class Guesses:
    """The guesses for one set of queries; ``names`` says which there are.

    Each guess is the histogram of one record over the merged cells of a grid, so mixtures of
    guesses and of a projection are answers of histograms too. Public records, where there are
    some, stand in the place of even counts.
    """

    forecast: Forecast
    quadratic: Quadratic
    public: PublicRecords | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Even counts or public records; and independence where every attribute has a table."""
        first = EVEN if self.public is None else PUBLIC
        is_known = self._one_way(np.zeros(self.forecast.workload.queries), 1.0) is not None
        return (first, INDEPENDENT) if is_known else (first,)

    def answers(self, unbiased: Array, total: float) -> Array:
        """The answers of every guess of so many records, one row each; 0 of none."""
        if not total > 0:
            return np.zeros((len(self.names), len(unbiased)))
        out = [self._fixed]
        shares = self._one_way(unbiased, total)
        if shares is not None:
            out.append(_answers(self.quadratic, shares))
        return total * np.stack(out)

    def shares(self, name: str, unbiased: Array, total: float) -> Array:
        """The shares of the merged cells that a guess has."""
        if name == PUBLIC:
            return self._public
        one_way = self._sizes if name == EVEN else self._one_way(unbiased, total)
        return _outer(one_way or []).reshape(-1)

    @cached_property
    def _classes(self) -> dict[str, Integers]:
        return {name: alike(self.quadratic.fit, name) for name in self.quadratic.grid.names}

    @cached_property
    def _sizes(self) -> list[Array]:
        """How many cells of the domain each merged cell stands for, by attribute, as shares."""
        return [np.bincount(c).astype(np.float64) / len(c) for c in self._classes.values()]

    @cached_property
    def _fixed(self) -> Array:
        """One record of the guess that does not depend on the noisy answers."""
        if self.public is None:
            return _answers(self.quadratic, self._sizes)
        return self.quadratic.answers(self.quadratic.stack(self._public))

    @cached_property
    def _public(self) -> Array:
        grid, public = self.quadratic.grid, self.public
        assert public is not None  # noqa: S101  asked for where there are some
        columns = [public.codes[:, public.attributes.index(n)] for n in grid.names]
        merged = [c[column] for c, column in zip(self._classes.values(), columns, strict=True)]
        counts = np.zeros(grid.shape)
        np.add.at(counts, tuple(merged), public.weights)
        return np.asarray(counts.reshape(-1) / counts.sum(), dtype=np.float64)

    def _one_way(self, unbiased: Array, total: float) -> list[Array] | None:
        """The one-way tables of the answers, each the nearest without negative cells, as shares."""
        work, names = self.forecast.workload, self.quadratic.grid.names
        ends = np.cumsum([t.rows for t in work.terms])[:-1]
        tables = released_tables(self.forecast, np.split(unbiased, ends))
        shares = [one_way_shares(tables, name, total) for name in names]
        if len(names) < 2 or any(f is None for f in shares):
            return None
        pairs = zip(self._classes.values(), shares, strict=True)
        return [np.bincount(c, f).astype(np.float64) for c, f in pairs]


def _answers(quadratic: Quadratic, shares: Sequence[Array]) -> Array:
    """The answers of one record whose attributes have these shares, independently."""
    margins = [_outer([shares[a] for a in axes]).reshape(-1) for axes in quadratic.sets]
    return quadratic.answers(np.concatenate(margins))


def _outer(shares: Sequence[Array]) -> Array:
    out = np.ones(())
    for share in shares:
        out = np.multiply.outer(out, share)
    return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Shrunk:
    """``share`` of the projection (c_0 above) and ``towards``, the shares of the guesses."""

    share: float
    towards: Mapping[str, float]
    answers: Array
    cells: Integers
    weights: Array


def shrunk_towards(
    forecast: Forecast,
    fit: Fit,
    nearest: CellEstimate,
    is_total_known: bool,
    *,
    noise: float,
    public: PublicRecords | None = None,
    steps: float = inf,
) -> Shrunk | None:
    """The projection ``nearest`` drawn towards guesses; None where it stays as it is.

    ``noise`` is the expected squared distance of the unbiased answers from the truth. Answers with
    a bias are left alone: they were shrunk when they were planned. So are histograms that must
    keep constraints, which no guess does.
    """
    grid, total = nearest.grid, float(nearest.weights.sum())
    used = int((nearest.weights > LIMITS.weight_in_use * total).sum())
    is_small = (
        grid.size <= LIMITS.guess_cells and used * len(nearest.answers) <= LIMITS.guess_entries
    )
    is_free = forecast.strategy.records is None and grid.constraints is None
    if not (total > 0 and is_small and is_free):
        return None
    quadratic = Quadratic(fit, grid)
    weights = np.concatenate([p.weights for p in fit.parts])
    guesses = _guesses(forecast, quadratic, total, public)
    points = np.stack([nearest.answers, *guesses.answers(quadratic.values, total)])
    if noise < LIMITS.noise_outweighed * float(((points[1:] - points[0]) ** 2 @ weights).min()):
        return None
    gram, pull = np.zeros((len(points), len(points))), np.zeros(len(points))
    draws = Draws(f"shrinkage {forecast.workload.digest()} {forecast.mechanism}")
    for z in drawn_noise(forecast, draws, LIMITS.guess_draws):
        noisy = nearest.answers + z
        again = fit_explicit(
            _towards(fit, noisy),
            grid,
            total if is_total_known else None,
            gap=LIMITS.guess_gap,
            enough=LIMITS.guess_gap * noise,
            steps=steps,
        )
        drawn = np.stack([again.answers, *guesses.answers(noisy, float(again.weights.sum()))])
        gram += (drawn * weights) @ drawn.T
        pull += (drawn * weights) @ nearest.answers
    shares = (1 - LIMITS.shrink_caution) * mixture(gram, pull)
    shares[0] += LIMITS.shrink_caution
    if shares[0] > LIMITS.projection_share_maximum:
        return None
    towards = dict(zip(guesses.names, shares[1:].tolist(), strict=True))
    mixed = np.zeros(grid.size)
    for name, share in towards.items():
        if share > 0:
            mixed += share * total * guesses.shares(name, quadratic.values, total)
    np.add.at(mixed, nearest.cells, shares[0] * nearest.weights)
    cells = np.flatnonzero(mixed > 0)
    return Shrunk(float(shares[0]), towards, shares @ points, cells, mixed[cells])


def _guesses(
    forecast: Forecast, quadratic: Quadratic, total: float, public: PublicRecords | None
) -> Guesses:
    """The guesses, with public records for even counts unless the answers speak against them.

    ``|y - g|^2`` is off ``|a - g|^2`` by as much in the mean for every fixed g, so the difference
    of two of them is judged by its own noise, ``2 <g - g', Z>``.
    """
    even = Guesses(forecast, quadratic)
    if public is None:
        return even
    informed = Guesses(forecast, quadratic, public)
    values, weights = quadratic.values, np.concatenate([p.weights for p in quadratic.fit.parts])
    one, other = (g.answers(values, total)[0] for g in (informed, even))
    draws = Draws(f"public {forecast.workload.digest()} {forecast.mechanism}")
    along = [
        2 * float((weights * (one - other)) @ z)
        for z in drawn_noise(forecast, draws, LIMITS.public_draws)
    ]
    farther = float(weights @ ((values - one) ** 2 - (values - other) ** 2))
    return even if farther > LIMITS.public_contradicted * float(np.std(along)) else informed


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


def _towards(fit: Fit, values: Array) -> Fit:
    """The fit of the same queries to other values."""
    cuts = np.cumsum([len(p.values) for p in fit.parts])[:-1]
    pairs = zip(fit.parts, np.split(values, cuts), strict=True)
    return replace(fit, parts=tuple(replace(p, values=v) for p, v in pairs))
