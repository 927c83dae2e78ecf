# SPDX-License-Identifier: Apache-2.0
"""Questions one at a time: a conversation with a guarded table, most of it for nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import sfumato as sf

# Twenty thousand visitors of a museum. Nobody but the vault sees this table.
people = 20_000
age = 18 + 70 * np.arange(people) // people
table = pd.DataFrame({"age": age, "days": 1 + age % 5, "member": (age % 3 == 0).astype(int)})
domain = sf.Domain.from_toml(Path(__file__).parent / "museum.toml")
budget = sf.Budget(epsilon=2, delta=1e-9)

plan = sf.plan_session(domain, budget, questions=300, records=20_000)
print(plan)  # known before anything is spent

questions = [
    "SELECT COUNT(*) FROM data WHERE member = TRUE",
    "SELECT COUNT(*) FROM data WHERE age < 40",
    "SELECT COUNT(*) FROM data WHERE age BETWEEN 40 AND 64 AND member = TRUE",
    "SELECT SUM(days) FROM data",
    "SELECT COUNT(*) FROM data WHERE NOT (member = FALSE)",  # the first one, in other words
]
with tempfile.TemporaryDirectory() as folder:
    ledger = Path(folder) / "museum.ledger"
    sf.Ledger.create(ledger, budget, "museum", unit="row")

    def opened() -> sf.Session:
        return plan.open(table, ledger, name="museum")

    with opened() as session:
        for question in questions:
            answer = session.ask(question)
            print(
                f"{answer.question}: {answer.value:,.0f} ({answer.low:,.0f} to "
                f"{answer.high:,.0f}), {answer.how}"
            )
        first, again = session.ask(questions[0]), session.ask(questions[-1])
        print("equal questions, equal answers:", first == again)
        print(session.left().describe())

    # Another day, another process: the session goes on where it was.
    with opened() as session:
        print("after a restart:", session.ask(questions[0]) == first)
        # A SELECT with groups, means or quantiles is one question, paid for once.
        groups = session.ask("SELECT member, COUNT(*) AS n, AVG(age) FROM data GROUP BY member")
        print(groups.frame().round(1).to_string(index=False))
