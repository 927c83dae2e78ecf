# SPDX-License-Identifier: Apache-2.0
"""Few records: projected answers drawn towards those of an even histogram, as far as noise asks.

When the noise is much greater than the data, the projection p is one of the outermost points of
what data can have, in the direction of the noise, and an even histogram of the same total, with
answers g, is nearer to the truth a. Both are answers of histograms, so ``g + t (p - g)`` with t in
[0, 1] is too. With ``d = p - g``, in the norm of the objective,

    |g + t d - a|^2 is least at  t* = <a - g, d> / |d|^2,      <a - g, d> = <y - g, d> - <Z, d>.

``E <Z, d>`` is the mean of the trace of ``D Cov(Z)``, D the derivative of d by y (Stein 1981,
"Estimation of the mean of a multivariate normal distribution", Lemma 2): d is linear in p, and p
moves like a projection onto the face of the cells in use. So

    t~ = (<y - g, d> - trace) / |d|^2,   with an error of about   s = sd <Z, d> / |d|^2.

Of all t in [0, 1] alike, ``E t^2 = 1/3``: the best multiple of t~ is ``m = w t~`` with ``w = 1 /
(1 + 3 s^2)``, its squared error ``w s^2`` (Efron, Morris 1973, "Stein's estimation rule and its
competitors"). The answers move to ``t = max(0, m)`` if m is below 1 by more than that error; where
the projection itself is as likely, it stays. Shrinking costs about the noise of one direction, so
it needs many: as with James and Stein's estimator, there is nothing to gain from one or two.

All of it is a function of released answers and of public draws. The inequality of the projection
("never farther from the truth") is one for all data and all noise; this is one of means, and of
simulations (``docs/mechanisms/projection.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.plan.forecast import Forecast
from sfumato.refine.cells.explicit import Estimate
from sfumato.refine.cells.grid import alike
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.draws import Draws
from sfumato.refine.fit import Fit
from sfumato.refine.widths.projected_noise import drawn_noise
from sfumato.refine.widths.width import dimension_bound
from sfumato.workload.queries import Array, Integers

__all__ = ["Shrunk", "shrunk_to_even"]

MOST_CELLS = 2**18  # of an even histogram
MOST_ENTRIES = 2**20  # of the answers of all cells in use
DRAWS = 32
SPREAD = 1 / 3  # E t^2
DIRECTIONS = 16.0  # of noise as great as that along d
IN_USE = 1e-9  # of the total
RANK = 1e-9


@dataclass(frozen=True, eq=False)
class Shrunk:
    """``share`` of the projection (t above) and the rest of an even histogram of its total."""

    share: float
    answers: Array
    cells: Integers
    weights: Array


def shrunk_to_even(
    forecast: Forecast, fit: Fit, found: Estimate, is_total_known: bool
) -> Shrunk | None:
    """The projection drawn towards an even histogram; None where it is as good as it is."""
    if forecast.strategy.records is not None:  # what came in is biased
        return None
    grid, total = found.grid, float(found.weights.sum())
    used = found.cells[found.weights > IN_USE * total]
    queries = len(found.answers)
    if not total > 0 or grid.size > MOST_CELLS or len(used) * queries > MOST_ENTRIES:
        return None
    quadratic = Quadratic(fit, grid)
    sizes = _class_sizes(quadratic)
    margins = grid.margins(sizes / sizes.sum(), quadratic.sets)
    even = quadratic.answers(np.concatenate([m.reshape(-1) for m in margins]))
    weights = np.concatenate([p.weights for p in fit.parts])
    values = np.concatenate([p.values for p in fit.parts])
    guess = total * even
    away = found.answers - guess
    length = float(weights @ away**2)
    if not length > 0:
        return None
    source = Draws(f"towards even {forecast.workload.digest()} {forecast.mechanism}")
    noise = np.stack(list(drawn_noise(forecast, source, DRAWS)))
    along = float(((noise @ (weights * away)) ** 2).mean())
    every = float((noise**2 @ weights).mean()) * length
    dimension = dimension_bound(forecast.workload)
    if not along > 0 or dimension < DIRECTIONS or every < DIRECTIONS * along:
        return None
    face = _Face.of(quadratic, used, np.sqrt(weights), even, is_total_known)
    trace = face.trace(noise * np.sqrt(weights))
    raw = (float(weights @ ((values - guess) * away)) - trace) / length
    share = _share(raw, sqrt(along) / length)
    if share is None:
        return None
    mixed = (1 - share) * total * sizes / sizes.sum()
    np.add.at(mixed, found.cells, share * found.weights)
    return Shrunk(share, guess + share * away, np.arange(grid.size), mixed)


def _share(raw: float, error: float) -> float | None:
    """How much of the projection to keep; None for all of it."""
    trust = SPREAD / (SPREAD + error**2)
    mean = raw * trust
    return None if mean + sqrt(trust) * error >= 1 else max(0.0, mean)


@dataclass(frozen=True, eq=False)
class _Face:
    """The directions in which p moves with y, orthonormal in scaled answers, and those of d."""

    basis: Array
    moved: Array

    @classmethod
    def of(
        cls, quadratic: Quadratic, used: Integers, roots: Array, even: Array, is_total_known: bool
    ) -> _Face:
        columns = _columns(quadratic, used)
        # With a known total p moves by differences of columns; otherwise its total and g move too.
        moves = columns[:, 1:] - columns[:, :1] if is_total_known else columns
        totals = np.zeros(moves.shape[1]) if is_total_known else np.ones(moves.shape[1])
        scaled = roots[:, None] * moves
        left, lengths, right = np.linalg.svd(scaled, full_matrices=False)
        kept = lengths > RANK * lengths.max(initial=0.0)
        # The histogram that moves p by a column of the basis, and so its total.
        rises = (totals @ right[kept].T) / lengths[kept]
        basis = left[:, kept]
        return cls(basis, basis - np.outer(roots * even, rises))

    def trace(self, noise: Array) -> float:
        """``E <Z, D Z>``, from draws of the scaled noise."""
        return float(((noise @ self.basis) * (noise @ self.moved)).sum(axis=1).mean())


def _columns(quadratic: Quadratic, cells: Integers) -> Array:
    """The answers of one record in each of these cells."""
    grid, sets = quadratic.grid, quadratic.fit.sets
    places = grid.places(cells, quadratic.sets)
    out = []
    for part, reduced in zip(quadratic.fit.parts, quadratic.reduced, strict=True):
        s = sets.index(part.term.attributes)
        distinct, which = np.unique(places[:, s], return_inverse=True)
        units = np.zeros((len(distinct), grid.cells(quadratic.sets[s])))
        units[np.arange(len(distinct)), distinct] = 1.0
        out.append(np.stack([reduced.apply(u) for u in units], axis=1)[:, which])
    return np.concatenate(out)


def _class_sizes(quadratic: Quadratic) -> Array:
    """How many cells of the domain each merged cell stands for."""
    out = np.ones(1)
    for name in quadratic.grid.names:
        found = alike(quadratic.fit, name)
        _, counts = np.unique(found, return_counts=True)
        out = np.multiply.outer(out, counts.astype(np.float64))
    return np.asarray(out.reshape(-1), dtype=np.float64)
