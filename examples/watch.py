# SPDX-License-Identifier: Apache-2.0
"""Visits per day of an emergency room: alerts on the days far above the usual, paid per alert."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd

import sfumato as sf

days = pd.date_range("2025-01-01", "2025-12-31")
usual = 200 + 30 * (days.day_of_week == 0)  # public: Mondays are busy, and known to be
visits = usual + np.where(days.isin(pd.to_datetime(["2025-02-17", "2025-08-09"])), 150, 0)
table = pd.DataFrame({"day": np.repeat(days, visits)})  # one row per visit

domain = sf.Domain([sf.DateTime("day", date(2025, 1, 1), date(2026, 1, 1), "day")])
watch = sf.watch(
    365, sf.Budget(epsilon=1), threshold=80, expected=usual, alerts=2, counts=True, confidence=0.99
)
print(watch)  # known before anything is spent
seen = watch.release(table, domain, "day")
print(seen)
print(seen.alerts().to_string(index=False, float_format="%.1f"))

# The same as the days go by. With ledger="visits.ledger" a watch goes on after a restart.
live = watch.begin()
for day, count in zip(days, visits.tolist(), strict=True):
    alert = live.add(count)
    if alert is not None:
        print(
            f"{day:%d %B}: {alert.value:.0f} visits, between {alert.low:.0f} and {alert.high:.0f}"
        )
    if not live.alerts_left:
        break
