# SPDX-License-Identifier: Apache-2.0
"""Where the best mechanism changes: the corners of the lower envelope of curves.

Curves are known at points and are straight between them on logarithmic axes, as errors nearly are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log
from typing import Protocol

__all__ = [
    "Crossing",
    "best_of",
    "crossings",
]


STEPS = 64  # looks between two points of the curves
SAME = 1e-6  # relative: curves that run together do not cross


class At(Protocol):
    """A point of a curve: whose it is, where, and how large."""

    @property
    def mechanism(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def error(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Crossing:
    """From ``at`` on, ``after`` errs less than ``before``, which was the best up to there."""

    at: float
    error: float
    before: str
    after: str


Curves = dict[str, dict[float, float]]


def crossings(points: Iterable[At]) -> tuple[Crossing, ...]:
    """All changes of the best curve, from left to right."""
    curves = _curves(points)
    places = sorted({x for curve in curves.values() for x in curve})
    found: list[Crossing] = []
    best = best_of(curves, places[0]) if places else ""
    for left, right in pairwise(places):
        here = {n: (c[left], c[right]) for n, c in curves.items() if left in c and right in c}
        if best not in here:
            continue
        for step in range(1, STEPS + 1):
            now = {name: _between(ends, step / STEPS) for name, ends in here.items()}
            least = min(now, key=lambda name: now[name])
            if now[least] < now[best] * (1 - SAME):
                at = _meeting(here[best], here[least], (step - 1) / STEPS, step / STEPS)
                x = left * (right / left) ** at
                found.append(Crossing(x, _between(here[least], at), best, least))
                best = least
    return tuple(found)


def best_of(curves: Curves, at: float) -> str:
    """The name of the least curve at one of its points."""
    return min(curves, key=lambda name: curves[name].get(at, inf))


def _curves(points: Iterable[At]) -> Curves:
    out: Curves = {}
    for p in points:
        if p.error > 0:
            out.setdefault(p.mechanism, {})[p.at] = p.error
    return out


def _between(ends: tuple[float, float], share: float) -> float:
    low, high = ends
    return exp((1 - share) * log(low) + share * log(high))


def _meeting(
    one: tuple[float, float], other: tuple[float, float], low: float, high: float
) -> float:
    """Where two straight lines meet (logarithms), kept within the step where they changed place."""
    start = log(one[0] / other[0])
    slope = log(one[1] / other[1]) - start
    return min(max(-start / slope, low), high) if slope else high
