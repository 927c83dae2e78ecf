# SPDX-License-Identifier: Apache-2.0
"""Streams: the private side of ``sf.Stream``, many streams of equal values at once."""

from __future__ import annotations

import numpy as np

from sfumato.planning.stream_plans import STRATEGIES, StreamForecast, forecast_stream
from sfumato.privacy.budget import Budget
from sfumato.random import WordSource, integers_below
from sfumato.types import Array, Neighbours
from sfumato.vault.stream_noise import PrivateStream
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject

__all__ = [
    "stream_subjects",
]


Values = tuple[int, ...]

LENGTH = 4
SLOW = 32
MEASURE = "sfumato.vault.stream_noise.PrivateStream.measure"


def stream_subjects() -> tuple[Subject[Values], ...]:
    """Every strategy, and windows; added values, and values moved to another step."""
    pure, mu = Budget(epsilon=1), Budget(mu=1)
    plain = [
        _stream(
            name, forecast_stream(LENGTH, pure if name == "laplace-tree" else mu, strategy=name)
        )
        for name in STRATEGIES
    ]
    moved = forecast_stream(LENGTH, mu, strategy="optimal", neighbours="replace-one")
    window = forecast_stream(LENGTH, mu, strategy="optimal", width=2)
    return (*plain, _stream("optimal", moved), _stream("window", window))


def _stream(name: str, plan: StreamForecast) -> Subject[Values]:
    def sampler(values: Values) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            private = PrivateStream(plan, runs, source)
            steps = [private.measure([value] * runs) for value in values]
            return np.concatenate([np.array(s, dtype=np.float64) for s in steps], axis=1)

        return run

    covers = frozenset({f"stream:{name}", MEASURE})
    pairs = _pairs(plan.neighbours)
    shown = f"stream {name} ({plan.neighbours})"
    random = None if plan.neighbours == "replace-one" else _random
    return Subject(shown, Claim.of(plan.cost), pairs, sampler, covers, random, None, SLOW)


def _pairs(neighbours: Neighbours) -> tuple[Pair[Values], ...]:
    if neighbours == "replace-one":
        return (
            Pair("first value moves to the last step", (1, 0, 0, 0), (0, 0, 0, 1)),
            Pair("first value moves to the second step", (1, 0, 0, 0), (0, 1, 0, 0)),
        )
    return (
        Pair("nothing, or one in the first step", (0, 0, 0, 0), (1, 0, 0, 0)),
        Pair("nothing, or one in the last step", (0, 0, 0, 0), (0, 0, 0, 1)),
        Pair("ones, or none in the second step", (1, 1, 1, 1), (1, 0, 1, 1)),
    )


def _random(source: WordSource) -> Pair[Values]:
    values = integers_below(2, LENGTH, source)
    step = int(integers_below(LENGTH, 1, source)[0])
    other = values.copy()
    other[step] ^= 1
    return Pair(f"at random, step {step + 1}", tuple(values.tolist()), tuple(other.tolist()))
