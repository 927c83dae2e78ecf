# SPDX-License-Identifier: Apache-2.0
"""Any stream, any neighbour: what the vault measures moves no further than was paid for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato.vault.mechanisms.stream_noise as vault
from sfumato.planning.stream_plans import STRATEGIES, StreamForecast, forecast_stream
from sfumato.privacy.budget import Budget
from sfumato.run.stream import follower
from sfumato.vault.mechanisms.stream_noise import PrivateStream

BUDGET = Budget(epsilon=2, delta="1e-6")


@pytest.fixture(autouse=True, scope="module")
def silence() -> object:
    """Zero noise: the measured values are the exact ones, rounded to the grid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vault, "block_noise", lambda _law, size, _r: np.zeros(size, dtype=np.int64))
        yield


@st.composite
def questions(draw: st.DrawFn) -> tuple[StreamForecast, list[int], int, int]:
    length = draw(st.sampled_from([1, 2, 5, 12, 23]))
    width = draw(st.sampled_from([None, 1, 2, 3, 7]))
    largest = draw(st.sampled_from([1, 3, 1000]))
    plan = forecast_stream(
        length,
        BUDGET,
        width=width,
        strategy=draw(st.sampled_from(STRATEGIES)),
        largest=largest,
    )
    values = draw(st.lists(st.integers(0, 2**43), min_size=length, max_size=length))
    return plan, values, draw(st.integers(0, length - 1)), draw(st.integers(1, largest))


def flat(measurements: list[list[int]]) -> list[int]:
    return [value for step in measurements for value in step]


def measured(plan: StreamForecast, values: list[int]) -> list[list[int]]:
    stream = PrivateStream(plan, 1)
    return [stream.measure([v])[0] for v in values]


@settings(max_examples=150, deadline=None)
@given(questions())
def test_neighbours_are_no_further_apart_than_the_noise_covers(
    asked: tuple[StreamForecast, list[int], int, int],
) -> None:
    plan, values, place, added = asked
    other = [v + added * (i == place) for i, v in enumerate(values)]
    pairs = zip(flat(measured(plan, values)), flat(measured(plan, other)), strict=True)
    moved = [abs(a - b) for a, b in pairs]
    if plan.noise.noise == "laplace":
        assert Fraction(sum(moved), plan.noise.units) <= plan.cost.pure_epsilon
    else:
        assert Fraction(sum(m * m for m in moved), plan.noise.units**2) <= plan.cost.mu_squared


@settings(max_examples=150, deadline=None)
@given(questions())
def test_what_was_measured_gives_back_the_sums(
    asked: tuple[StreamForecast, list[int], int, int],
) -> None:
    plan, values, _, _ = asked
    public = follower(plan)
    width = plan.width or plan.length
    for t, noisy in enumerate(measured(plan, values)):
        exact = sum(values[max(0, t + 1 - width) : t + 1])
        error = 1e-3 * plan.noise.scale + 1e-15 * exact
        assert abs(public.answer(noisy) - exact) <= error
    assert public.state_size <= plan.state_size
