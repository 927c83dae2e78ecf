# SPDX-License-Identifier: Apache-2.0
"""Every strategy's sensitivity is the greatest move over all neighbours, by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.planning.forecast import Forecast
from sfumato.strategy.base import Norm
from sfumato.types import Neighbours
from tests.shared.every_mechanism import CASES, dense, planned, replacements
from tests.unit.strategy import test_base as kinds

NORMS: tuple[Norm, ...] = (1, 2)
MOVES: list[tuple[Neighbours, bool]] = [
    ("add-remove", False),
    ("replace-one", False),
    ("replace-one", True),
]
# The root of a chain is not written down: of two of its columns only the lengths are compared.
BOUNDED = {"root of ranges": 1.34, "root for the largest": 1.56}


def greatest_move(
    plan: Forecast, norm: int, neighbours: Neighbours, drops: bool, scales: np.ndarray
) -> float:
    """``max_d sum_b scales[b] |M_b d|_p^p``, with M counted cell by cell by the vault."""
    seen = dense(plan)
    cells = np.eye(seen.f.shape[1])
    moved = cells if neighbours == "add-remove" else replacements(len(cells))
    if drops:
        moved = np.concatenate([moved, cells], axis=1)
    return float((scales @ seen.moved(norm, moved)).max())


def check(plan: Forecast, norm: Norm, neighbours: Neighbours, drops: bool, within: float) -> None:
    """Never below the greatest move, whatever the blocks count, and with their shares equal."""
    strategy = plan.strategy
    shares = np.array(strategy.shares)
    true = greatest_move(plan, norm, neighbours, drops, shares**norm)
    stated = strategy.sensitivity(norm, neighbours, drops).power
    assert true * (1 - 1e-12) <= stated <= true * within
    scales = np.random.default_rng(3).uniform(0.1, 3, len(shares))
    stated = strategy.sensitivity(norm, neighbours, drops, scales.tolist()).power
    assert greatest_move(plan, norm, neighbours, drops, scales) <= stated * (1 + 1e-12)


@pytest.mark.parametrize(("neighbours", "drops"), MOVES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_the_sensitivity_of_every_mechanism_is_the_greatest_move(
    mechanism: str, work: str, norm: Norm, neighbours: Neighbours, drops: bool
) -> None:
    plan = planned(mechanism, work)
    if plan is not None:
        check(plan.forecast, norm, neighbours, drops, 1 + 1e-6)


@pytest.mark.parametrize(("neighbours", "drops"), MOVES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", kinds.STRATEGIES)
def test_the_sensitivity_of_every_strategy_is_the_greatest_move(
    name: str, norm: Norm, neighbours: Neighbours, drops: bool
) -> None:
    is_bound = neighbours == "replace-one" and name in BOUNDED
    within = BOUNDED[name] if is_bound else 1 + 1e-6
    check(kinds.forecast(name, "dropping"), norm, neighbours, drops, within)


@pytest.mark.parametrize("norm", NORMS)
def test_a_sensitivity_that_forgets_a_block_is_found_out(norm: Norm) -> None:
    """The twin: then some neighbours move the blocks by more."""
    plan = planned("gaussian-groups", "mixed")
    assert plan is not None
    scales = np.array(plan.strategy.shares) ** norm
    true = greatest_move(plan.forecast, norm, "add-remove", False, scales)
    assert plan.strategy.sensitivity(norm, scales=[*scales[:-1], 0.0]).power < true
