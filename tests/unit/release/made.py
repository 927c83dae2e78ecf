# SPDX-License-Identifier: Apache-2.0
"""Releases of small known tables, noise drawn from a repeatable word source."""

from __future__ import annotations

import numpy as np
from tests.words import SeededWords

from sfumato.budget import Budget
from sfumato.plan.forecast import Forecast
from sfumato.plan.planner import choose
from sfumato.refine.measurement import Measured, Measurement
from sfumato.release import Release
from sfumato.vault.measure import add_noise, exact_values
from sfumato.workload.gram import marginal
from sfumato.workload.workload import Workload

BUDGET = Budget(epsilon=1, delta=1e-9)


def planned(workload: Workload, mechanism: str | None = None, **options) -> Forecast:
    options = {"budget": BUDGET, "neighbours": "add-remove", **options}
    return choose(workload, mechanism=mechanism, **options)


def measured(forecast: Forecast, counts: np.ndarray, words) -> Measured:
    """What the vault would release about a histogram over the whole domain."""
    parts = []
    for block, law in zip(forecast.strategy.blocks, forecast.noise, strict=True):
        table = marginal(counts, forecast.workload.domain, block.term.attributes)
        exact = exact_values(block.term, table)
        parts.append(Measurement(add_noise(exact, block.term, law, words), law))
    rows = int(counts.sum()) if forecast.neighbours == "replace-one" else None
    return Measured(tuple(parts), rows)


def released(
    workload: Workload,
    counts: np.ndarray,
    mechanism: str | None = None,
    seed: int | str = 0,
    project: bool = True,
    **options,
) -> Release:
    forecast = planned(workload, mechanism, **options)
    return Release.of(forecast, measured(forecast, counts, SeededWords(seed)), project=project)
