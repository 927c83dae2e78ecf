# SPDX-License-Identifier: Apache-2.0
"""Admissions of two hospitals, day by day: private running totals and weekly sums."""

from __future__ import annotations

import numpy as np

import sfumato as sf

budget = sf.Budget(epsilon=1, delta=1e-9)
days = np.arange(365)
admitted = np.column_stack([20 + days % 7, 9 + days % 5])  # people per day, hospital by hospital

# A person is admitted once, so each adds at most 1 to one day of one hospital.
plan = sf.plan_stream(365, budget, dimensions=["north", "south"], many=True)
print(plan.forecast)  # known before the first day
totals = plan.start()
for day in admitted:
    totals.add(day)  # the noisy totals so far, one per hospital
print(totals.released().tail(2).round(1).to_string(index=False))
print(f"exact would be {admitted.sum(axis=0).tolist()}; {totals.state_size} numbers kept")

week = sf.Stream(365, budget, "optimal", dimensions=["north", "south"], many=True, window=7)
week.add_many(admitted)
print(f"last 7 days: {np.round(week.total)}, standard error {week.standard_error():.1f}")

print(f"{'strategy':14}{'typical error':>14}{'largest':>9}")
for c in plan.forecast.candidates:
    print(f"{c.mechanism:14}{c.rmse:14.1f}{c.largest:9.1f}{'  <- used' if c.is_chosen else ''}")
