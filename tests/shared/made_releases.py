# SPDX-License-Identifier: Apache-2.0
"""Releases of small known tables, noise drawn from a repeatable word source."""

from __future__ import annotations

import numpy as np

from sfumato.domain.attributes import Category, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.measurement import Measured, Measurement
from sfumato.planning.forecast import Forecast
from sfumato.planning.planner import choose
from sfumato.privacy.budget import Budget
from sfumato.release.release import Release
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from sfumato.workload.workload import Workload, marginal
from tests.shared.words import SeededWords

BUDGET = Budget(epsilon=1, delta=1e-9)


def people() -> Domain:
    return Domain(
        [
            Integer("age", 20, 29),
            Category("sex", ("Female", "Male"), nulls="missing"),
            Numeric("income", (0, 10, 50.5, 90)),
        ]
    )


def some_counts(domain: Domain, rows: int = 20_000, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(domain.size, 0.7))
    return rng.multinomial(rows, shares).reshape(domain.shape)


def planned(workload: Workload, mechanism: str | None = None, **options) -> Forecast:
    options = {"budget": BUDGET, "neighbours": "add-remove", **options}
    return choose(workload, mechanism=mechanism, **options)


def measured(forecast: Forecast, counts: np.ndarray, words) -> Measured:
    """What the vault would release about a histogram over the whole domain; None: no noise."""
    parts = []
    for block, law in zip(forecast.strategy.blocks, forecast.noise, strict=True):
        table = marginal(counts, forecast.workload.domain, block.term.attributes)
        exact = exact_values(block.term, table)
        if words is None:
            units = exact.astype(object) * 2 ** (law.grid_bits - block.term.fraction_bits)
        else:
            units = add_noise(exact, block.term, law, words)
        parts.append(Measurement(units, law))
    rows = int(counts.sum()) if forecast.neighbours == "replace-one" else None
    return Measured(tuple(parts), rows)


def released(
    workload: Workload,
    counts: np.ndarray,
    mechanism: str | None = None,
    seed: int | str | None = 0,
    project: bool | str = True,
    **options,
) -> Release:
    forecast = planned(workload, mechanism, **options)
    words = None if seed is None else SeededWords(seed)
    return Release.of(forecast, measured(forecast, counts, words), project=project)
