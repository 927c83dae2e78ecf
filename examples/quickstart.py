# SPDX-License-Identifier: Apache-2.0
"""From a dataframe to private answers: domain, workload, plan, release."""

from __future__ import annotations

import pandas as pd

import sfumato as sf

# The records: 5,000 visits, each with an hour of the day and a ward.
visits = pd.DataFrame(
    {
        "hour": [(7 * i + i * i // 50) % 24 for i in range(5000)],
        "ward": ["surgery" if i % 3 else "emergency" for i in range(5000)],
    }
)

# What a record may look like: public knowledge, not read off the data.
domain = sf.Domain([sf.Integer("hour", 0, 23), sf.Category("ward", ("surgery", "emergency"))])

work = sf.marginals(domain, 1) | sf.prefixes(domain, "hour", by=["ward"])
plan = sf.plan(work, sf.Budget(epsilon=0.5))  # touches no data
print(f"{len(work)} queries by {plan.mechanism}, forecast error {plan.rmse:.1f} counts")

result = plan.release(visits)
print(result.answers("ward").to_string(index=False))
print(result.quantiles("hour", [0.25, 0.5, 0.75], by="ward").to_string(index=False))
