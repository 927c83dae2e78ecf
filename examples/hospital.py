# SPDX-License-Identifier: Apache-2.0
"""A year of three hospitals: beds in use as a private stream, and alerts when admissions jump."""

from __future__ import annotations

import numpy as np

import sfumato as sf

HOSPITALS = ["north", "south", "harbour"]
days = np.arange(365)
season = 6 * np.cos(2 * np.pi * days / 365)
usual = np.column_stack([30 + season, 18 + season / 2, 9 + season / 3]).round().astype(int)
admitted = usual.copy()
admitted[200:204, 2] += 120  # an outbreak near the harbour
stay = 7  # days that a patient stays, as all of them do in this little world

# Each person is admitted once: one value of one hospital moves by 1 when a person comes or goes.
# A person is in both releases below, so their budgets add up: epsilon = 1.5 in all.
beds = sf.Stream(
    365, sf.Budget(epsilon=1, delta=1e-9), dimensions=HOSPITALS, many=True, window=stay
)
print(beds.forecast)  # known before the first day
watches = {
    name: sf.watch(
        365,
        sf.Budget(epsilon=0.5),
        threshold=80,
        expected=usual[:, at],  # public: last year's figures
        alerts=1,
        counts=True,
        confidence=0.999,
    ).begin()
    for at, name in enumerate(HOSPITALS)
}

for day in days:
    in_use = beds.add(admitted[day])  # noisy beds in use, hospital by hospital
    for at, name in enumerate(HOSPITALS):
        if not watches[name].alerts_left:
            continue
        alert = watches[name].add(int(admitted[day, at]))
        if alert is not None:
            print(
                f"day {day}: {name} has about {alert.value:.0f} admissions, usual {usual[day, at]}"
            )
            print(f"  between {alert.low:.0f} and {alert.high:.0f}; beds in use {in_use[at]:.0f}")

exact = admitted[-stay:].sum(axis=0)
error = beds.standard_error()
print(f"last day: {np.round(beds.total).tolist()} beds, exact {exact.tolist()}, error {error:.1f}")
print("quiet all year:", [name for name in HOSPITALS if watches[name].alerts_left])
