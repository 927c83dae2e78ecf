# SPDX-License-Identifier: Apache-2.0
"""95% intervals of coefficients and of R^2 hold those of the fit on the clamped table.

Every trial draws fresh noise for one counted table. The twin takes half of the noise for granted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.release import regress as regressing
from sfumato.release.release import Release
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table
from tests.shared.made_releases import planned
from tests.shared.words import SeededWords

DOMAIN = sf.Domain(
    [
        sf.Numeric("age", (17, 90), outside="clamp", nulls="missing"),
        sf.Numeric("hours", (0, 80), outside="clamp", nulls="missing"),
        sf.Numeric("pay", (0, 4000), outside="clamp", nulls="missing"),
    ]
)
WORK = sf.moments(DOMAIN, ["age", "hours", "pay"])


def people(rows: int = 6000) -> pd.DataFrame:
    rng = np.random.default_rng(6)
    age = np.clip(rng.gamma(6, 7, rows), 17, 90)
    hours = rng.normal(38, 12, rows) - 0.1 * age
    pay = 200 + 10 * age + 22 * hours + rng.normal(0, 350, rows)
    return pd.DataFrame({"age": age, "hours": hours, "pay": pay})


def truth(frame: pd.DataFrame) -> np.ndarray:
    """Intercept, two slopes and R^2 of the clamped values, by numpy."""
    clipped = frame.assign(
        age=frame["age"].clip(17, 90),
        hours=frame["hours"].clip(0, 80),
        pay=frame["pay"].clip(0, 4000),
    )
    design = np.column_stack([np.ones(len(frame)), clipped["age"], clipped["hours"]])
    b, *_ = np.linalg.lstsq(design, clipped["pay"].to_numpy(), rcond=None)
    left = clipped["pay"] - design @ b
    return np.append(b, 1 - left.var(ddof=0) / clipped["pay"].var(ddof=0))


def coverage(budget: sf.Budget, trials: int, rows: int = 6000) -> np.ndarray:
    frame = people(rows)
    forecast = planned(WORK, budget=budget)
    blocks = forecast.strategy.blocks
    exact = count(open_table(frame), WORK.domain, blocks, forecast.neighbours)
    words = SeededWords("regress")
    wanted, held = truth(frame), np.zeros(4)
    for _ in range(trials):
        measured = measure(exact, blocks, forecast.noise, words)
        fit = sf.regress(Release.of(forecast, measured, project=False), "pay", ["age", "hours"])
        ends = np.concatenate(
            [fit.coefficients[["low", "high"]].to_numpy(), fit.fits[["low", "high"]].to_numpy()]
        )
        held += (ends[:, 0] <= wanted) & (wanted <= ends[:, 1])
    return held / trials


@pytest.mark.parametrize("budget", [sf.Budget(epsilon=2), sf.Budget(mu=1)], ids=["pure", "gauss"])
def test_intervals_hold_coefficients_and_r_squared(budget):
    held = coverage(budget, 200)
    # Three standard errors of a share of 200 draws of chance 0.95 are 0.046.
    assert (held >= 0.95 - 0.046).all(), held


def test_small_tables_are_held_too():
    held = coverage(sf.Budget(mu=1), 150, rows=300)
    assert (held >= 0.95 - 0.054).all(), held


def test_intervals_of_half_the_noise_are_caught(monkeypatch):
    right = regressing.joint_law

    def blind(*args, **options):
        law = right(*args, **options)
        return type(law)(law.squares / 4, law.fourths)

    monkeypatch.setattr(regressing, "joint_law", blind)
    assert coverage(sf.Budget(mu=1), 100).min() <= 0.85
