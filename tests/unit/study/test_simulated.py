# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

import sfumato as sf
from sfumato.study import simulated


def test_drawn_noise_errs_as_forecast() -> None:
    plan = sf.plan(sf.ranges(sf.Domain({"age": 64}), "age"), sf.Budget(mu=1), mechanism="gaussian")
    drawn = sf.study.simulated_noise(plan)
    assert drawn is not None
    assert abs(drawn.rmse - plan.rmse) < 5 * drawn.standard_error
    assert abs(drawn.rmse - plan.rmse / 1.5) > 5 * drawn.standard_error


def test_a_workload_too_large_to_draw_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sf.plan(sf.ranges(sf.Domain({"age": 64}), "age"), sf.Budget(mu=1), mechanism="gaussian")
    monkeypatch.setattr(simulated, "LIMITS", replace(simulated.LIMITS, simulated_size=1000))
    assert sf.study.simulated_noise(plan) is None
