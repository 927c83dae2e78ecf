# SPDX-License-Identifier: Apache-2.0
"""Sources that drop records: a row is replaced by one that a filter leaves out, or lets in.

A table is a tuple of rows (cell, whether the filter keeps it). The source is an expression with
that filter, and neighbours are neighbours of the table *behind* it: under ``replace-one`` its
number of rows is public, that of the filtered ones is not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.planning.forecast import Forecast
from sfumato.planning.planner import choose
from sfumato.privacy.budget import Budget
from sfumato.random import WordSource, integers_below
from sfumato.vault.measure import Exact, count
from sfumato.vault.tables import Table as Opened
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "Filtered",
    "filtered",
    "source_forecast",
    "source_subject",
    "source_subjects",
]


Filtered = tuple[tuple[int, bool], ...]

DOMAIN = Domain([Integer("cell", 0, 2, outside="clamp", nulls="missing")])
WORKLOAD = marginals(DOMAIN, 0) | marginals(DOMAIN, 1)
BUDGETS = {"laplace": Budget(epsilon=1), "gaussian": Budget(mu=1)}
LAWS = {"laplace": "discrete_laplace", "gaussian": "rounded_gaussian"}
CROWD = ((0, True),) * 1000
PAIRS = (
    Pair("the only record leaves the filter", ((0, True),), ((0, False),)),
    Pair("the last cell enters the filter", ((2, False),), ((2, True),)),
    Pair("one of many leaves", (*CROWD, (1, True)), (*CROWD, (1, False))),
    Pair("one of many moves to another cell", (*CROWD, (0, True)), (*CROWD, (2, True))),
)


def filtered(rows: Filtered) -> Opened:
    """The rows that the filter keeps, as an expression on a table of all."""
    import ibis

    cells = np.array([cell for cell, _ in rows], dtype=np.int64)
    flags = np.array([is_seen for _, is_seen in rows], dtype=np.int64)
    people = ibis.memtable(pd.DataFrame({"cell": cells, "seen": flags}))
    return open_table(people.filter(people["seen"] == 1))


def source_forecast(noise: str, may_drop_records: bool) -> Forecast:
    """The best plan for the number of records and their cells, replaced records."""
    return choose(
        WORKLOAD, BUDGETS[noise], "replace-one", may_drop_records=may_drop_records, mechanism=noise
    )


def source_subject(
    name: str,
    plan: Forecast,
    counted: Callable[[Filtered], Exact],
    covers: frozenset[str] = frozenset(),
    is_broken: bool = False,
) -> Subject[Filtered]:
    """A plan that is measured on what a filter leaves of a table."""
    run = Measuring(DOMAIN, plan.strategy.blocks, plan.noise, plan.neighbours)

    def sampler(rows: Filtered) -> Sampler:
        exact = counted(rows)
        return lambda runs, source: run.measured(exact, runs, source)

    return Subject(
        name,
        Claim.of(plan.cost),
        PAIRS,
        sampler,
        covers,
        None if is_broken else _random,
        is_broken=is_broken,
    )


def source_subjects() -> tuple[Subject[Filtered], ...]:
    """Records that leave the source, with both laws of noise."""
    return tuple(_sound(noise, law) for noise, law in LAWS.items())


def _sound(noise: str, law: str) -> Subject[Filtered]:
    plan = source_forecast(noise, may_drop_records=True)

    def counted(rows: Filtered) -> Exact:
        return count(filtered(rows), DOMAIN, plan.strategy.blocks, "replace-one")

    name = f"filtered source, {noise} (replace-one)"
    return source_subject(name, plan, counted, COUNTING_AND_MEASURING | {f"{VAULT}.noise.{law}"})


def _random(source: WordSource) -> Pair[Filtered]:
    """Some rows at random, and one of them replaced by any other."""
    cells = integers_below(3, 6, source).tolist()
    flags = (integers_below(2, 6, source) == 1).tolist()
    rows = tuple(zip(cells, flags, strict=True))
    return Pair(f"at random: {rows[4]} becomes {rows[5]}", rows[:5], (*rows[:4], rows[5]))
