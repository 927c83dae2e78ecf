# SPDX-License-Identifier: Apache-2.0
"""Errors as they come out: noise drawn for a plan and taken through its reconstruction.

Public draws that protect nothing (``refine/draws.py``); no table is read. What is forecast is an
expectation, what is drawn here one sample of it: they must agree, and tests check that they do.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from sfumato.refine.draws import Draws
from sfumato.study.simulated import Measured, measure_noise

if TYPE_CHECKING:
    from sfumato.run.linear import Plan

__all__ = [
    "MOST",
    "simulated",
]


MOST: Final = 2**20  # numbers that are drawn or answered in one run
ANSWERS: Final = 20_000  # few queries are answered more often
NUMBERS: Final = 2**22  # of all runs together, beyond the least
LEAST_RUNS: Final = 4
MOST_RUNS: Final = 200


def simulated(plan: Plan, label: str = "", *, by_weight: bool = False) -> Measured | None:
    """The error of drawn noise, the same on every call; None where it would be too much."""
    queries = plan.workload.queries
    size = queries + sum(plan.strategy.block_rows)
    if size > MOST:
        return None
    runs = max(LEAST_RUNS, min(MOST_RUNS, ceil(ANSWERS / queries), NUMBERS // size))
    source = Draws(f"simulated {plan.workload.digest()} {plan.mechanism} {label}")
    return measure_noise(plan, source, runs, by_weight=by_weight)
