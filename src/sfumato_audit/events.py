# SPDX-License-Identifier: Apache-2.0
"""Events that tell two neighbours apart, learnt from runs that are not used again.

Outputs are rows of numbers, one row per run; a number that was not released is NaN. From runs on
both tables several *scores* are learnt, each an estimate of the log-likelihood ratio:

    independent   a histogram of every number by itself, log ratios added
    pattern       a histogram of all numbers together, in coarse bins (exact for discrete outputs)
    linear        Fisher's discriminant: the direction in which the two differ most for their spread
    low bits      the place of the lowest set bit of every number, log ratios added

The last sees what floating-point noise leaks (Mironov 2012), the third noise that was used twice,
the second which numbers were released at all. An event is a half-line of a score: by the lemma of
Neyman and Pearson no other event tells more, if the score is the log-likelihood ratio. As the
events are fixed before the runs that count, it does not matter for validity how they were found
(the scheme of DP-Sniper: Bichsel, Steffen, Bogunovic, Vechev 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.types import Array
from sfumato_audit.audit_limits import LIMITS

__all__ = [
    "Score",
    "learn_scores",
    "lowest_bits",
]


Codes = npt.NDArray[np.int64]
Score = Callable[[Array], Array]

ZERO = 200  # the lowest bit of 0, which has none


def learn_scores(left: Array, right: Array) -> dict[str, Score]:
    """Scores that are large where outputs are likelier for ``left``, by name."""
    columns = _sorted_columns(left, right)
    scores: dict[str, Score] = {
        "independent": _independent(_edges(columns, LIMITS.bins), left, right),
        "pattern": _pattern(columns, left, right),
        "low bits": _low_bits(left, right),
    }
    if min(len(left), len(right)) >= LIMITS.runs_per_column * left.shape[1]:
        scores["linear"] = _linear(left, right)
    return scores


def lowest_bits(values: Array) -> Array:
    """The exponent of the lowest set bit: -52 for 1 + 2^-52, 3 for 40.

    >>> lowest_bits(np.array([40.0, 1 + 2.0**-52, 0.5]))
    array([  3., -52.,  -1.])
    """
    fraction, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    _, place = np.frexp((whole & -whole).astype(np.float64))
    places = np.where(whole == 0, ZERO, exponent - 53 + place - 1).astype(np.float64)
    return np.where(np.isfinite(values), places, np.nan)


def _sorted_columns(left: Array, right: Array) -> list[Array]:
    """What is known of every number on both sides together, in order."""
    both = np.sort(np.concatenate([left, right]), axis=0)  # NaN comes last
    return [c[: np.searchsorted(c, np.inf)] for c in np.ascontiguousarray(both.T)]


def _edges(columns: list[Array], bins: int) -> list[Array]:
    """The bins of every column: its own values if they are few, else quantiles of both."""
    return [_cut(_distinct(c), c, bins) for c in columns]


def _cut(values: Array, column: Array, bins: int) -> Array:
    if values.size <= max(LIMITS.discrete_values, bins):
        return values
    return _distinct(column[np.arange(1, bins) * column.size // bins])


def _distinct(ordered: Array) -> Array:
    """Every value of a sorted row once."""
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered


def _codes(outputs: Array, edges: list[Array]) -> Codes:
    """The number of the bin of every output; NaN has its own."""
    out = np.empty(outputs.shape, dtype=np.int64)
    for j, cuts in enumerate(edges):
        column = outputs[:, j]
        out[:, j] = np.where(
            np.isnan(column), cuts.size + 1, np.searchsorted(cuts, column, side="right")
        )
    return out


def _log_ratio(left: Codes, right: Codes, size: int) -> Array:
    """Smoothed log ratios of two histograms."""
    a = np.bincount(left, minlength=size) / max(left.size, 1)
    b = np.bincount(right, minlength=size) / max(right.size, 1)
    added = 0.5 / max(left.size, 1)
    return np.asarray(np.log((a + added) / (b + added)), dtype=np.float64)


def _independent(edges: list[Array], left: Array, right: Array) -> Score:
    ratios_by_column = [
        _log_ratio(a, b, cuts.size + 2)
        for a, b, cuts in zip(_codes(left, edges).T, _codes(right, edges).T, edges, strict=True)
    ]

    def score(outputs: Array) -> Array:
        codes = _codes(outputs, edges)
        parts = [ratios[column] for ratios, column in zip(ratios_by_column, codes.T, strict=True)]
        return np.asarray(sum(parts, np.zeros(len(outputs))))

    return score


def _low_bits(left: Array, right: Array) -> Score:
    low, high = lowest_bits(left), lowest_bits(right)
    inner = _independent(_edges(_sorted_columns(low, high), LIMITS.pattern_cells), low, high)
    return lambda outputs: inner(lowest_bits(outputs))


@dataclass(frozen=True, eq=False)
class _Hashed:
    """Rows of bins as one number each; two patterns that collide count as one, which is safe."""

    edges: list[Array]

    def __call__(self, outputs: Array) -> npt.NDArray[np.uint64]:
        codes = _codes(outputs, self.edges).astype(np.uint64)
        out = np.zeros(len(outputs), dtype=np.uint64)
        for column in codes.T:
            out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
            out ^= out >> np.uint64(29)
        return out


def _pattern(columns: list[Array], left: Array, right: Array) -> Score:
    """Discrete numbers as they are; others in as many bins as keep all patterns countable."""
    bins = max(
        2, min(LIMITS.discrete_values, int(LIMITS.pattern_cells ** (1 / max(left.shape[1], 1))))
    )
    hashed = _Hashed(_edges(columns, bins))
    a, b = hashed(left), hashed(right)
    keys = np.unique(np.concatenate([a, b]))
    ratios = _log_ratio(np.searchsorted(keys, a), np.searchsorted(keys, b), keys.size)

    def score(outputs: Array) -> Array:
        hashes = hashed(outputs)
        place = np.minimum(np.searchsorted(keys, hashes), keys.size - 1)
        return np.asarray(np.where(keys[place] == hashes, ratios[place], 0.0))

    return score


def _linear(left: Array, right: Array) -> Score:
    both = np.concatenate([left, right])
    centre = np.array([np.nanmean(c) if np.isfinite(c).any() else 0.0 for c in both.T])
    spread = np.array([np.nanstd(c) if np.isfinite(c).any() else 0.0 for c in both.T])
    scale = np.where(spread > 0, spread, 1.0)

    def standard(outputs: Array) -> Array:
        return np.asarray(np.nan_to_num((outputs - centre) / scale))

    a, b = standard(left), standard(right)
    away = a.mean(axis=0) - b.mean(axis=0)
    within = np.zeros((away.size, away.size))
    for side in (a, b):
        moved = side - side.mean(axis=0)
        within += moved.T @ moved / (2 * len(side))
    # A direction without spread tells everything: the ridge keeps it finite, and large.
    direction = np.linalg.solve(within + 1e-9 * np.eye(away.size), away)

    def score(outputs: Array) -> Array:
        return np.asarray(standard(outputs) @ direction)

    return score
