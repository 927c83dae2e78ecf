# SPDX-License-Identifier: Apache-2.0
"""The other way round: how small a budget gives an error of 25 counts?"""

from __future__ import annotations

import sfumato as sf

domain = sf.Domain({"age": 100, "sex": 2})
work = sf.marginals(domain, 1) | sf.ranges(domain, "age")

for error in (100, 50, 25):
    plan = sf.plan(work, error=error, mechanism="tree")
    print(f"{error:4} counts: {plan.budget.describe()} by {plan.mechanism}")
