# SPDX-License-Identifier: Apache-2.0
"""Online exploration of Adult: questions that depend on answers, few of them paid for."""

from __future__ import annotations

import sfumato as sf

table, full = sf.example("adult")
domain = sf.Domain([full[name] for name in ("age", "education-num", "sex", "income")])

# Half of the budget on a small release, half on a session that starts from it.
work = sf.marginals(domain, 1) | sf.marginals(domain, [("sex", "income")])
first = sf.plan(work, sf.Budget(epsilon=0.5, delta=1e-9)).release(table)
budget = sf.Budget(epsilon=0.5, delta=1e-9)
with sf.open_session(table, domain, budget, questions=200, records=50_000, start=first) as session:
    print(session.plan)

    asked = []

    def count(condition: str) -> float:
        """An answer, free or paid for; the next question depends on it."""
        asked.append(session.ask("SELECT COUNT(*) FROM t WHERE " + condition))  # noqa: S608
        return asked[-1].value

    # The median age by sex and income: halve the range of ages until it is one year.
    for sex in ("Female", "Male"):
        for income in ("<=50K", ">50K"):
            group = f"sex = '{sex}' AND income = '{income}'"
            half, low, high = count(group) / 2, 17, 90
            while low < high:
                middle = (low + high) // 2
                is_below = count(f"{group} AND age <= {middle}") < half
                low, high = (middle + 1, high) if is_below else (low, middle)
            print(f"{sex}, {income}: median age about {low}")
    for years in range(1, 17):
        for income in ("<=50K", ">50K"):
            count(f"income = '{income}' AND \"education-num\" = {years}")

    paid = sum(answer.is_paid for answer in asked)
    print(f"{len(asked)} questions, {paid} paid for; {session.left().describe()}")
