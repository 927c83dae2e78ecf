# SPDX-License-Identifier: Apache-2.0
"""Made-up people, the same on every run, and a spec about them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SCHEMA = Path(__file__).with_name("people.toml")

SPEC = """\
[data]
source = "people.csv"
name = "people"
domain = "people.toml"

[[workload]]
marginals = [["sex"], ["member", "sex"]]

[[workload]]
prefix = "age"
by = ["sex"]

[budget]
epsilon = 1
delta = 1e-9

[ledger]
path = "people.ledger"
create = true
epsilon = 3
delta = 1e-9

[session]
questions = 100
updates = 6
records = 400
"""

ADAPTIVE = SPEC.replace("[ledger]", '[plan]\nadaptive = "tables"\nrounds = 2\n\n[ledger]')

QUERIES = """\
[data]
source = "people.csv"
name = "people"
domain = "people.toml"
unit = "id"
rows_per_unit = 2

[[workload]]
sql = "SELECT member, COUNT(*), AVG(income) FROM data WHERE age >= 6 GROUP BY member"

[[workload]]
predicates = ["age < 12 or member"]

[constraints]
impossible = ["age < 3 and member"]

[budget]
rho = 0.5

[plan]
objective = "max"
"""

SMALL = """\
[data]
source = "small.csv"
name = "small"

[domain.grade]
kind = "integer"
min = 1
max = 6

[domain.passed]
kind = "boolean"

[[workload]]
marginals = 2

[[workload]]
prefix = "grade"

[budget]
epsilon = 1
delta = 1e-9
"""


def people(rows: int = 400) -> pd.DataFrame:
    """A table of people, two rows each."""
    days = pd.date_range("2024-01-01", periods=14)
    return pd.DataFrame(
        {
            "id": [i // 2 for i in range(rows)],
            "age": [(i * 7) % 20 for i in range(rows)],
            "sex": [None if i % 11 == 0 else "Female" if i % 3 else "Male" for i in range(rows)],
            "income": [float((i * i * 37) % 5200) for i in range(rows)],
            "member": [i % 4 == 1 and (i * 7) % 20 > 3 for i in range(rows)],
            "day": [days[(i * 5) % 14] for i in range(rows)],
        }
    )


def write_people(folder: Path) -> None:
    """The table, its schema and four specs."""
    people().to_csv(folder / "people.csv", index=False)
    (folder / "people.toml").write_text(SCHEMA.read_text())
    (folder / "release.toml").write_text(SPEC)
    (folder / "adaptive.toml").write_text(ADAPTIVE)
    (folder / "small.toml").write_text(SMALL)
    (folder / "queries.toml").write_text(QUERIES)
