# SPDX-License-Identifier: Apache-2.0
"""Counts and means in SQL, answered with differential privacy (the Adult table)."""

from __future__ import annotations

from importlib.resources import as_file, files

import sfumato as sf

data = files("sfumato") / "data"
with as_file(data / "adult.toml") as schema, as_file(data / "adult.parquet") as table:
    domain = sf.Domain.from_toml(schema)
    work = sf.sql(
        domain,
        """
        SELECT sex, COUNT(*) FROM data
        WHERE age BETWEEN 25 AND 44 AND income = '>50K' GROUP BY sex
        """,
        name="high earners",
    ) | sf.sql(domain, "SELECT sex, AVG(age) FROM data GROUP BY sex", name="mean age")

    plan = sf.plan(work, sf.Budget(epsilon=0.5), mechanism="groups")
    result = plan.release(table)

for group in ("high earners", "mean age"):
    shown = result.answers(group=group)
    print(shown.round(2).to_string(index=False))
