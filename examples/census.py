# SPDX-License-Identifier: Apache-2.0
"""A census-like release: persons by block, age, sex and race; published totals are kept."""

from __future__ import annotations

import numpy as np
import pandas as pd

import sfumato as sf

# Eight thousand persons of six blocks. Nobody but the vault sees this table.
i = np.arange(8000)
persons = pd.DataFrame(
    {
        "block": [f"block {b}" for b in (i * i + i) % 97 % 6],
        "age": (i * 37 + i // 11) % 89,
        "sex": np.where((i * 7) % 13 < 6, "Female", "Male"),
        "race": np.array(["White", "Black", "Asian", "Other"])[np.minimum((i * i) % 11 // 3, 3)],
        "tenure": np.where((i // 3) % 5 < 3, "owner", "renter"),
    }
)

# Public: the questionnaire and the map. Voting age is a level, so that it can be asked for.
voting = sf.Level("voting", ("under 18", "18 and over"), tuple(int(a >= 18) for a in range(100)))
decades = sf.Level(
    "decade", tuple(f"{10 * d}s" for d in range(10)), tuple(a // 10 for a in range(100))
)
domain = sf.Domain(
    [
        sf.Category("block", tuple(f"block {b}" for b in range(6))),
        sf.Integer("age", 0, 99, outside="clamp", levels=(voting, decades)),
        sf.Category("sex", ("Female", "Male")),
        sf.Category("race", ("White", "Black", "Asian", "Other")),
        sf.Category("tenure", ("owner", "renter")),
    ]
)

work = (
    4 * sf.marginals(domain, [("block",)])  # what funds are allotted by matters most
    | 2 * sf.marginals(domain, [("block", "age.voting", "race")])  # redistricting
    | sf.marginals(domain, [("block", "age.decade", "sex"), ("block", "tenure"), ("race", "sex")])
    | sf.prefixes(domain, "age", by=["sex"])
)
plan = sf.plan(work, sf.Budget(rho="0.1"))
print(plan.headline)
for group in plan.groups:
    print(f"  {group.name:32} {group.queries:5} answers, typical error {group.rmse:5.1f} persons")

# The number of persons of each block is published anyway (say, by law): it is kept exactly.
totals = persons["block"].value_counts().sort_index().to_numpy()
known = sf.Constraints(domain, [], [(["block"], totals)])
result = plan.release(persons, constraints=known)

blocks = result.answers("block")
print(blocks[["block", "value", "low", "high"]].round(1).to_string(index=False))
table = result.answers(group="block x age.voting x race")
print(f"{len(table)} cells for redistricting, none below {table['value'].min():.0f}")
print("block totals kept:", np.allclose(blocks["value"], totals))
print(result.quantiles("age", [0.5], by="sex").to_string(index=False))

made_up = result.synthetic(8000)
off = made_up["sex"].value_counts() - persons["sex"].value_counts()
print(f"{len(made_up):,} synthetic persons; women and men off by {off.abs().max():,} at most")
