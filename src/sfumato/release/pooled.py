# SPDX-License-Identifier: Apache-2.0
"""Several releases of one table as one: every answer from all that was measured.

The noise of different releases is independent, so two unbiased answers to one query, of variances
v and w, are best averaged with weights 1/v and 1/w: the variance is then ``1 / (1/v + 1/w)``, less
than either (Gauss, Markov; Aitken 1936, "On least squares and linear combination of observations").
Where cells and measured values can be written down, this is done for all of them at once: with M
all measured queries and V the variances of their noise, ``R = F M+ `` in the metric of ``V^-1`` is
the best linear unbiased estimate of every answer, also of queries that only one release was asked
(`PooledMatrix`). Else query by query, where several releases answer it (`PooledQueries`), or tell
it by sums of what they answer (`RolledUp`).

Either is a strategy like others: the blocks of all releases are its blocks, so roll-ups, quantiles,
combinations, covariances, intervals, projection and files follow as for a single release.

Privacy: a function of what was released (post-processing: Dwork, Roth 2014, Proposition 2.1);
nothing is spent. What all releases together cost is the composition of their costs.
Neighbours: those of the releases, which must be the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from itertools import accumulate
from math import isqrt, nan, prod
from operator import add

import numpy as np

from sfumato.domain.domain import base_of, joined
from sfumato.errors import WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Forecast
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost, composed_epsilon, rho_of
from sfumato.refine.consistency import Projection
from sfumato.release.answers import Rollup, likely_rollups
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.release import Release
from sfumato.release.release_limits import LIMITS
from sfumato.strategy.base import Strategy
from sfumato.text import shown
from sfumato.types import Array, Noise
from sfumato.workload.constraints import Constraints
from sfumato.workload.terms import Term
from sfumato.workload.workload import Statistic, Workload

__all__ = ["PooledForecast", "PooledMatrix", "PooledQueries", "RolledUp", "combine"]

MECHANISM = "combined"


def combine(
    *releases: Release, project: Projection = True, constraints: Constraints | None = None
) -> Release:
    """One release out of several of the same table, better than each of them; costs nothing.

    Every answer is estimated from all that was measured, weighted by the inverse of the exact
    variances. The noise of the releases must be independent: one that is stored in a ledger and
    read twice is one measurement, and is refused. That all are of one table, as it was at one time,
    is believed.

    Privacy: post-processing of what was released (Dwork, Roth 2014, Proposition 2.1). ``cost`` is
    the composition of what the releases cost, all of it debited before.
    Neighbours: those of the releases, the same for all.

    Args:
        *releases: Two or more, with overlapping or different workloads over one domain.
        project: As for ``plan.release``: how the answers are made to agree.
        constraints: Public knowledge that the answers meet.

    Returns:
        A release with the queries of all; ``provenance["combined"]`` names what it is made of.

    Raises:
        WorkloadError: if they are not of one domain, neighbours, unit and public number of
            records; if some were learned or are biased; or if two share a measurement.

    >>> import pandas as pd, sfumato as sf
    >>> table = pd.DataFrame({"age": [3, 4, 4, 7] * 500})
    >>> work = sf.marginals(sf.Domain({"age": 10}), 1)
    >>> one, two = (sf.plan(work, sf.Budget(rho=rho)).release(table) for rho in (0.1, 0.2))
    >>> both = sf.combine(one, two)
    >>> bool(both.forecast.rmse < min(one.forecast.rmse, two.forecast.rmse))
    True
    """
    parts = _checked(releases)
    workload, places = _union([p.workload for p in parts])
    forecasts = [p.forecast for p in parts]
    strategy = _pooled(workload, places, forecasts)
    cost = reduce(add, (r.cost for r in releases))
    first = forecasts[0]
    forecast = PooledForecast(
        workload,
        _budget([r.budget for r in releases], cost),
        first.neighbours,
        first.objective,
        first.unit,
        strategy,
        tuple(law for f in forecasts for law in f.noise),
        (),
        may_drop_records=any(f.may_drop_records for f in forecasts),
        spent=cost,
    )
    measurements = tuple(m for p in parts for m in _measured(p).measurements)
    rows = next((p.rows for p in parts if p.rows is not None), None)
    facts = {"combined": [part for r in releases for part in _named(r)]}
    return Release.of(
        forecast,
        Measured(measurements, rows),
        project=project,
        constraints=constraints,
        is_stored=True,
        provenance=facts,
    )


@dataclass(frozen=True, eq=False)
class PooledForecast(Forecast):
    """The errors of releases that were combined; ``spent`` is what they cost together."""

    spent: Cost = field(default_factory=lambda: Cost(()), kw_only=True)

    @cached_property
    def cost(self) -> Cost:
        """The composition of the costs, all of them debited before."""
        return self.spent

    @cached_property
    def gamma(self) -> float:
        """None is known: the blocks were calibrated by several plans."""
        return nan


# What may be combined


def _checked(releases: Sequence[object]) -> list[LinearEstimates]:
    """The estimates of releases that can be combined."""
    if len(releases) < 2 or not all(isinstance(r, Release) for r in releases):
        raise WorkloadError(
            f"combine takes two releases or more, got {shown(list(releases))}; give what "
            "plan.release(...) returned"
        )
    chosen = [r for r in releases if isinstance(r, Release)]
    parts = []
    for release in chosen:
        part = release.estimates
        if not isinstance(part, LinearEstimates) or part.measured is None:
            raise WorkloadError(
                "the errors of an adaptive release depend on the data, so that no weights are "
                "known for it; combine releases of sf.plan(...)"
            )
        if part.forecast.strategy.records is not None:
            raise WorkloadError(
                "a release with a bias cannot be weighted by its variance; combine unbiased ones, "
                "planned without allow_bias"
            )
        parts.append(part)
    _check_alike("domains", [base_of(p.workload.domain).digest() for p in parts])
    _check_alike("neighbours", [p.forecast.neighbours for p in parts])
    _check_alike("privacy units", [p.forecast.unit for p in parts])
    _check_alike("public numbers of records", [p.rows for p in parts])
    names = [str(part["measurement_sha256"]) for r in chosen for part in _named(r)]
    if len(set(names)) < len(names):
        raise WorkloadError(
            "two of these releases share a measurement, so their noise is the same and says "
            "nothing new; combine releases that were paid for separately"
        )
    return parts


def _check_alike(what: str, values: Sequence[object]) -> None:
    if any(value != values[0] for value in values[1:]):
        raise WorkloadError(
            f"releases with different {what} are not of one table under one promise, and cannot "
            "be combined"
        )


def _measured(part: LinearEstimates) -> Measured:
    assert part.measured is not None  # noqa: S101  `_checked` has seen to it
    return part.measured


def _named(release: Release) -> list[Mapping[str, object]]:
    """What a release is made of: itself, or the releases that it combines."""
    parts = release.provenance.get("combined")
    if isinstance(parts, list):
        return list(parts)
    record = release.provenance
    estimates = release.estimates
    assert isinstance(estimates, LinearEstimates)  # noqa: S101  `_checked` has seen to it
    whole = hashlib.sha256()
    for measurement in _measured(estimates).measurements:
        whole.update(str(measurement.noise).encode())
        whole.update(",".join(map(str, measurement.units.tolist())).encode())
    about = ("created", "mechanism", "budget", "cost", "workload_sha256", "ledger")
    return [{**{k: record.get(k) for k in about}, "measurement_sha256": whole.hexdigest()}]


def _budget(budgets: Sequence[Budget], cost: Cost) -> Budget:
    """A promise that all releases together keep, in the terms of theirs where these are alike."""
    kinds = {b.currency for b in budgets}
    delta = sum((b.delta or Fraction(0) for b in budgets), Fraction(0))
    if kinds == {"epsilon"}:
        epsilon = sum((b.epsilon or Fraction(0) for b in budgets), Fraction(0))
        return Budget(epsilon=epsilon, delta=delta or None)
    if kinds == {"rho"}:
        return Budget(rho=sum((b.rho or Fraction(0) for b in budgets), Fraction(0)))
    if kinds == {"mu"}:
        square = sum(((b.mu or Fraction(0)) ** 2 for b in budgets), Fraction(0))
        scale = 10**12
        return Budget(mu=Fraction(isqrt(int(square * scale**2)) + 1, scale))
    if delta:
        return Budget(epsilon=Fraction(composed_epsilon([cost], delta)), delta=delta)
    return Budget(rho=rho_of(cost))


def _union(works: Sequence[Workload]) -> tuple[Workload, list[list[tuple[int, int]]]]:
    """The queries of all, each group once, and by which groups of which release it is answered."""
    domain = joined([w.domain for w in works])
    places: dict[tuple[tuple[str, ...], str], int] = {}
    terms: list[Term] = []
    answered: list[list[tuple[int, int]]] = []
    ratios: dict[str, Statistic] = {}
    for part, work in enumerate(works):
        at = []
        for local, term in enumerate(work.over(domain).terms):
            key = (term.attributes, json.dumps(term.canonical({})))
            if key not in places:
                places[key] = len(terms)
                terms.append(term)
                answered.append([])
            at.append(places[key])
            if all(p != part for p, _ in answered[places[key]]):
                answered[places[key]].append((part, local))
        for r in work.ratios:
            moved = r.placed(at)
            ratios.setdefault(json.dumps(moved.key[1:]), moved)
    return Workload(domain, tuple(terms), tuple(ratios.values())), answered


# Strategies whose blocks are those of several


@dataclass(frozen=True, eq=False)
class _Pooled(Strategy):
    """The blocks of several strategies, one after the other; ``own`` are their noise variances."""

    own: tuple[float, ...] = field(kw_only=True)

    def describe(self) -> list[str]:
        """One line per block, for people."""
        return [f"{b.term.name}: {b.term.rows:,} values" for b in self.blocks]


@dataclass(frozen=True, eq=False)
class PooledMatrix(_Pooled):
    """The best linear unbiased estimate of every query from all measured values."""

    matrices: tuple[Array, ...] = field(kw_only=True)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y``."""
        return np.asarray(self.matrices[term] @ np.concatenate(values), dtype=np.float64)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The squared rows of R, each value times its noise."""
        noise = np.repeat(block_variances, self.block_rows)
        return np.asarray(self.matrices[term] ** 2 @ noise, dtype=np.float64)

    def effective_terms(self, term: int) -> Array:
        """``(sum e)^2 / sum e^2`` with ``e = r^2 v``; infinite for Gaussian noise."""
        if self.noise == "gaussian":
            return np.full(self.workload.terms[term].rows, np.inf)
        parts = self.matrices[term] ** 2 * np.repeat(self.own, self.block_rows)
        second, fourth = parts.sum(axis=1), (parts**2).sum(axis=1)
        shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
        return np.asarray(shapes, dtype=np.float64)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``."""
        weights = self.matrices[term].T @ np.asarray(coefficients, dtype=np.float64)
        ends = np.cumsum(self.block_rows)[:-1]
        return {b: w for b, w in enumerate(np.split(weights, ends)) if w.any()}


@dataclass(frozen=True, eq=False)
class PooledQueries(_Pooled):
    """Answers of several strategies, averaged query by query with the inverse variances.

    ``places[t]`` lists the parts that answer group t, and the number of the group there.
    """

    parts: tuple[Strategy, ...] = field(kw_only=True)
    places: tuple[tuple[tuple[int, int], ...], ...] = field(kw_only=True)

    @cached_property
    def _starts(self) -> list[int]:
        return [*accumulate((len(p.blocks) for p in self.parts), initial=0)]

    def _of(self, part: int, numbers: Sequence[float]) -> Sequence[float]:
        return numbers[self._starts[part] : self._starts[part + 1]]

    def _weights(self, term: int) -> list[Array]:
        """How much of every part is in the answers; a part without noise is all of them."""

        def made() -> list[Array]:
            variances = [
                self.parts[p].variances(t, self._of(p, self.own)) for p, t in self.places[term]
            ]
            with np.errstate(divide="ignore"):
                precisions = np.array([1 / np.asarray(v) for v in variances])
            exact = np.isinf(precisions)
            precisions = np.where(exact.any(axis=0), exact.astype(np.float64), precisions)
            return list(precisions / precisions.sum(axis=0))

        return self.remembered(("weights", term), made)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The weighted mean of the answers of all parts."""
        out = np.zeros(self.workload.terms[term].rows)
        for (p, t), weight in zip(self.places[term], self._weights(term), strict=True):
            own = values[self._starts[p] : self._starts[p + 1]]
            out += weight * self.parts[p].answer(t, own)
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Those of the parts, by squared weights: their noise is independent."""
        out = np.zeros(self.workload.terms[term].rows)
        for (p, t), weight in zip(self.places[term], self._weights(term), strict=True):
            out += weight**2 * self.parts[p].variances(t, self._of(p, block_variances))
        return out

    def effective_terms(self, term: int) -> Array:
        """``(sum e)^2 / sum e^2`` over all measured values; a part of shape s has ``v^2 / s``."""
        rows = self.workload.terms[term].rows
        if self.noise == "gaussian":
            return np.full(rows, np.inf)
        second, fourth = np.zeros(rows), np.zeros(rows)
        for (p, t), weight in zip(self.places[term], self._weights(term), strict=True):
            e = weight**2 * self.parts[p].variances(t, self._of(p, self.own))
            second += e
            fourth += e**2 / self.parts[p].effective_terms(t)
        shapes = np.divide(second**2, fourth, out=np.full(rows, np.inf), where=fourth > 0)
        return np.asarray(shapes, dtype=np.float64)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c`` of every part, by its weights."""
        out: dict[int, Array] = {}
        c = np.asarray(coefficients, dtype=np.float64)
        for (p, t), weight in zip(self.places[term], self._weights(term), strict=True):
            for b, weights in self.parts[p].adjoint(t, weight * c).items():
                out[self._starts[p] + b] = weights
        return out


def _pooled(
    workload: Workload, places: Sequence[Sequence[tuple[int, int]]], forecasts: Sequence[Forecast]
) -> Strategy:
    """The best estimate from all measured values where it can be written down."""
    strategies: tuple[Strategy, ...] = tuple(f.strategy for f in forecasts)
    blocks = [block for s in strategies for block in s.blocks]
    own = tuple(v for f in forecasts for v in f.block_variances)
    noise: Noise = "laplace" if any(s.noise == "laplace" for s in strategies) else "gaussian"
    matrices = _best_matrices(workload, [b.term for b in blocks], own)
    if matrices is not None:
        return PooledMatrix(MECHANISM, noise, workload, blocks, own=own, matrices=matrices)
    answered = [list(place) for place in places]
    parts = tuple(_extended(f, workload, answered, number) for number, f in enumerate(forecasts))
    return PooledQueries(
        MECHANISM,
        noise,
        workload,
        blocks,
        own=own,
        parts=parts,
        places=tuple(tuple(p) for p in answered),
    )


@dataclass(frozen=True, eq=False)
class RolledUp(Strategy):
    """A strategy that also answers what is rolled up from its groups, as further groups."""

    base: Strategy = field(kw_only=True)
    rollups: tuple[Rollup, ...] = field(kw_only=True)

    def _rollup(self, term: int) -> Rollup | None:
        own = len(self.base.workload.terms)
        return None if term < own else self.rollups[term - own]

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """Those of the strategy, or sums and differences of them."""
        rollup = self._rollup(term)
        if rollup is None:
            return self.base.answer(term, values)
        return rollup.answers(self.base.answer(rollup.term, values))

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variance of every answer."""
        if self._rollup(term) is None:
            return self.base.variances(term, block_variances)
        return self._moments(term, block_variances)[0]

    def effective_terms(self, term: int) -> Array:
        """``(sum e)^2 / sum e^2`` over the measured values of every answer."""
        if self._rollup(term) is None:
            return self.base.effective_terms(term)
        second, fourth = self._moments(term, [1 / share**2 for share in self.shares])
        shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
        return np.full_like(shapes, np.inf) if self.noise == "gaussian" else shapes

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``."""
        rollup = self._rollup(term)
        if rollup is None:
            return self.base.adjoint(term, coefficients)
        return self.base.adjoint(rollup.term, rollup.adjoint(coefficients))

    def describe(self) -> list[str]:
        """As the strategy: nothing more is measured."""
        return self.base.describe()

    def _moments(self, term: int, variances: Sequence[float]) -> tuple[Array, Array]:
        """The sums of squared parts, and of their squares, of every answer that is rolled up."""
        rollup = self._rollup(term)
        assert rollup is not None  # noqa: S101
        moments = rollup.moments(self.base, variances)
        assert moments is not None  # noqa: S101  `_best_rollup` has seen to it
        return moments


def _extended(
    forecast: Forecast, workload: Workload, places: list[list[tuple[int, int]]], part: int
) -> Strategy:
    """The strategy of a release with the groups of others that it can tell, noted in ``places``."""
    strategy = forecast.strategy
    rollups: list[Rollup] = []
    for term, place in zip(workload.terms, places, strict=True):
        if any(p == part for p, _ in place):
            continue
        rollup = _best_rollup(forecast, term)
        if rollup is not None:
            place.append((part, len(strategy.workload.terms) + len(rollups)))
            rollups.append(rollup)
    if not rollups:
        return strategy
    return RolledUp(
        strategy.mechanism,
        strategy.noise,
        strategy.workload,
        strategy.blocks,
        base=strategy,
        rollups=tuple(rollups),
    )


def _best_rollup(forecast: Forecast, term: Term) -> Rollup | None:
    """The way to tell a group from those of a release that errs least; None if there is none."""
    target = term.as_product()
    if target is None or target.rows > LIMITS.pooled_rollup_rows:
        return None
    best: tuple[float, Rollup] | None = None
    for rollup in likely_rollups(forecast, target):
        moments = rollup.moments(forecast.strategy, forecast.block_variances)
        if moments is not None:
            error = float(moments[0].sum())
            best = min(best or (error, rollup), (error, rollup), key=lambda one: one[0])
    return None if best is None else best[1]


def _best_matrices(
    workload: Workload, measured: Sequence[Term], variances: Sequence[float]
) -> tuple[Array, ...] | None:
    """``R = F (V^-1/2 M)+ V^-1/2`` by group, or None where it is too large to be written down."""
    terms = [*workload.terms, *measured]
    domain = joined([workload.domain, *(t.domain for t in measured)])
    names = domain.in_order({n for t in terms for n in t.attributes})
    shape = [domain[n].size for n in names]
    values = sum(t.rows for t in measured)
    if (
        prod(shape) > LIMITS.pooled_cells
        or values > LIMITS.pooled_values
        or workload.queries * values > LIMITS.pooled_entries
        or any(t.is_wide or t.unit_bits or t.slack for t in terms)
    ):
        return None
    m = np.concatenate([_over(t, names, shape) for t in measured])
    scale = np.repeat(np.asarray(variances, dtype=np.float64) ** -0.5, [t.rows for t in measured])
    inverse = np.linalg.pinv(scale[:, None] * m, rcond=LIMITS.pooled_rank)
    out = []
    for term in workload.terms:
        f = _over(term, names, shape)
        r = (f @ inverse) * scale
        if not np.allclose(r @ m, f, rtol=0, atol=1e-7 * max(1.0, float(np.abs(f).max()))):
            return None  # a query that the rounding loses: averages of answers lose none
        out.append(np.asarray(r, dtype=np.float64))
    return tuple(out)


def _over(term: Term, names: Sequence[str], shape: Sequence[int]) -> Array:
    """The coefficients of a term over the cells of all attributes."""
    own = [names.index(n) for n in term.attributes]
    cells = np.indices(shape).reshape(len(shape), -1)
    at = np.ravel_multi_index(tuple(cells[i] for i in own), term.shape) if own else 0
    return np.asarray(term.dense()[:, at] if own else np.repeat(term.dense(), cells.shape[1], 1))
