# SPDX-License-Identifier: Apache-2.0
"""Few records: projected answers drawn towards guesses, as far as noise asks.

When noise outweighs the data, the projection p is an outermost point of what data can have, in the
direction of the noise, and a guess g (even counts, independent attributes, public records:
``guesses.py``) is nearer to the truth a. All are answers of histograms, so every mixture

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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from sfumato.plan.forecast import Forecast
from sfumato.refine.cells.explicit import Estimate, fit_explicit
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.draws import Draws
from sfumato.refine.fit import Fit
from sfumato.refine.guesses import Guesses, PublicRecords
from sfumato.refine.widths.projected_noise import drawn_noise
from sfumato.workload.queries import Array, Integers

__all__ = ["Shrunk", "mixture", "shrunk_towards"]

MOST_CELLS = 2**18  # of a guess
MOST_ENTRIES = 2**20  # cells in use by answers: what is projected again takes no longer than that
DRAWS = 4
GAP = 1e-2  # of projections that are averaged
JUDGES = 64  # draws that say how much noise is in a comparison of guesses
CONTRADICTED = 2.0  # standard errors by which even counts must be nearer than public records
OUTWEIGHED = 0.25  # of the squared distance to the nearest guess; less noise is left alone
CAUTION = 1 / 3  # of the way back to the projection
KEPT = 0.9  # of the projection; so little shrinking is not worth its risk
IN_USE = 1e-9  # of the total


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
    found: Estimate,
    is_total_known: bool,
    *,
    noise: float,
    public: PublicRecords | None = None,
    steps: float = inf,
) -> Shrunk | None:
    """The projection drawn towards guesses; None where it is as good as it is.

    ``noise`` is the expected squared distance of the unbiased answers from the truth. Answers with
    a bias are left alone: they were shrunk when they were planned. So are histograms that must
    keep constraints, which no guess does.
    """
    grid, total = found.grid, float(found.weights.sum())
    used = int((found.weights > IN_USE * total).sum())
    is_small = grid.size <= MOST_CELLS and used * len(found.answers) <= MOST_ENTRIES
    is_free = forecast.strategy.records is None and grid.constraints is None
    if not (total > 0 and is_small and is_free):
        return None
    quadratic = Quadratic(fit, grid)
    weights = np.concatenate([p.weights for p in fit.parts])
    guesses = _guesses(forecast, quadratic, total, public)
    points = np.stack([found.answers, *guesses.answers(quadratic.values, total)])
    if noise < OUTWEIGHED * float(((points[1:] - points[0]) ** 2 @ weights).min()):
        return None
    gram, pull = np.zeros((len(points), len(points))), np.zeros(len(points))
    draws = Draws(f"shrinkage {forecast.workload.digest()} {forecast.mechanism}")
    for z in drawn_noise(forecast, draws, DRAWS):
        noisy = found.answers + z
        again = fit_explicit(
            _towards(fit, noisy),
            grid,
            total if is_total_known else None,
            gap=GAP,
            enough=GAP * noise,
            steps=steps,
        )
        drawn = np.stack([again.answers, *guesses.answers(noisy, float(again.weights.sum()))])
        gram += (drawn * weights) @ drawn.T
        pull += (drawn * weights) @ found.answers
    shares = (1 - CAUTION) * mixture(gram, pull)
    shares[0] += CAUTION
    if shares[0] > KEPT:
        return None
    towards = dict(zip(guesses.names, shares[1:].tolist(), strict=True))
    mixed = np.zeros(grid.size)
    for name, share in towards.items():
        if share > 0:
            mixed += share * total * guesses.shares(name, quadratic.values, total)
    np.add.at(mixed, found.cells, shares[0] * found.weights)
    cells = np.flatnonzero(mixed > 0)
    return Shrunk(float(shares[0]), towards, shares @ points, cells, mixed[cells])


def _guesses(
    forecast: Forecast, quadratic: Quadratic, total: float, public: PublicRecords | None
) -> Guesses:
    """Public records for even counts, unless the answers speak against them.

    ``|y - g|^2`` is off ``|a - g|^2`` by as much in the mean for every fixed g, so the difference
    of two of them is judged by its own noise, ``2 <g - g', Z>``.
    """
    even = Guesses(forecast, quadratic)
    if public is None:
        return even
    known = Guesses(forecast, quadratic, public)
    values, weights = quadratic.values, np.concatenate([p.weights for p in quadratic.fit.parts])
    one, other = (g.answers(values, total)[0] for g in (known, even))
    draws = Draws(f"public {forecast.workload.digest()} {forecast.mechanism}")
    along = [2 * float((weights * (one - other)) @ z) for z in drawn_noise(forecast, draws, JUDGES)]
    farther = float(weights @ ((values - one) ** 2 - (values - other) ** 2))
    return even if farther > CONTRADICTED * float(np.std(along)) else known


def mixture(gram: Array, pull: Array) -> Array:
    """The c of least ``c'Gc - 2 c'm`` over the simplex, for a few points: face by face."""
    size = len(pull)
    scale = float(np.trace(gram)) or 1.0
    best: Array = np.eye(size)[0]
    least = inf
    for count in range(1, size + 1):
        for held in map(list, combinations(range(size), count)):
            bordered = np.ones((count + 1, count + 1))
            bordered[:count, :count] = gram[np.ix_(held, held)] / scale
            bordered[count, count] = 0.0
            wanted = np.append(pull[held] / scale, 1.0)
            solved = np.linalg.lstsq(bordered, wanted, rcond=1e-12)[0][:count]
            if solved.min() < 0 or abs(solved.sum() - 1) > 1e-6:
                continue
            tried = np.zeros(size)
            tried[held] = solved / solved.sum()
            value = float(tried @ gram @ tried - 2 * tried @ pull)
            if value < least - 1e-12 * scale:  # fewer points where they are as good
                best, least = tried, value
    return best


def _towards(fit: Fit, values: Array) -> Fit:
    """The same queries, wanted elsewhere."""
    cuts = np.cumsum([len(p.values) for p in fit.parts])[:-1]
    pairs = zip(fit.parts, np.split(values, cuts), strict=True)
    return replace(fit, parts=tuple(replace(p, values=v) for p, v in pairs))
