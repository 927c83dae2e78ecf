# SPDX-License-Identifier: Apache-2.0
"""Sources that drop records: a row is replaced by one that a filter leaves out, or lets in.

A table is a tuple of rows (cell, whether the filter keeps it). The source is an expression with
that filter, and neighbours are neighbours of the table *behind* it: under ``replace-one`` its
number of rows is public, that of the filtered ones is not.

The other kind of dropping is by values that the domain does not declare. With ``records =
"all-inside"`` they have a cell, and the number of records is public; a sensitivity for that promise
without the rule that keeps it forgets the records that are dropped.
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
from sfumato.vault.mechanisms.measure import Exact, count
from sfumato.vault.tables import Table as Opened
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "Filtered",
    "Strange",
    "filtered",
    "source_forecast",
    "source_subject",
    "source_subjects",
    "strange_subject",
]


Filtered = tuple[tuple[int, bool], ...]
Strange = tuple[int | None, ...]
"""Values of one column, some of them null or outside the declared ones."""

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


def source_subjects() -> tuple[Subject[Filtered] | Subject[Strange], ...]:
    """Records that leave the source, or the declared values, with both laws of noise."""
    sound = tuple(_sound(noise, law) for noise, law in LAWS.items())
    return (*sound, *(strange_subject(noise, PROMISED, PROMISED) for noise in LAWS))


# Records outside the declared values

OPEN = Domain([Integer("cell", 0, 2)])
PROMISED = Domain(OPEN, records="all-inside")
STRANGE = (
    Pair("the only record leaves the declared values", (0,), (7,)),
    Pair("one of many is lost", (1,) * 1000, (*(1,) * 999, None)),
    Pair("a null becomes the greatest value", (None, 1), (2, 1)),
    Pair("one moves to another cell", (0, 1), (2, 1)),
)


def strange_subject(
    noise: str, planned: Domain, counted: Domain, is_broken: bool = False
) -> Subject[Strange]:
    """A plan for one domain that is measured on another, on values that neither declares."""
    work = marginals(planned, 0) | marginals(planned, 1)
    plan = choose(work, BUDGETS[noise], "replace-one", mechanism=noise)
    run = Measuring(planned, plan.strategy.blocks, plan.noise, plan.neighbours)

    def sampler(values: Strange) -> Sampler:
        table = open_table(pd.DataFrame({"cell": pd.array(values, dtype="Int64")}))
        exact = count(table, counted, plan.strategy.blocks, "replace-one")
        return lambda runs, source: run.measured(exact, runs, source)

    name = "promise without its rule" if is_broken else "records all inside"
    law = f"{VAULT}.mechanisms.noise.{LAWS[noise]}"
    covers = frozenset() if is_broken else COUNTING_AND_MEASURING | {law}
    return Subject(
        f"{name}, {noise} (replace-one)",
        Claim.of(plan.cost),
        STRANGE,
        sampler,
        covers,
        None if is_broken else _random_values,
        is_broken=is_broken,
    )


def _random_values(source: WordSource) -> Pair[Strange]:
    """Some values at random, and one of them replaced by any other."""
    drawn = [None if v > 6 else v - 2 for v in integers_below(8, 6, source).tolist()]
    text = f"at random: {drawn[4]} becomes {drawn[5]}"
    return Pair(text, tuple(drawn[:5]), (*drawn[:4], drawn[5]))


def _sound(noise: str, law: str) -> Subject[Filtered]:
    plan = source_forecast(noise, may_drop_records=True)

    def counted(rows: Filtered) -> Exact:
        return count(filtered(rows), DOMAIN, plan.strategy.blocks, "replace-one")

    name = f"filtered source, {noise} (replace-one)"
    return source_subject(
        name, plan, counted, COUNTING_AND_MEASURING | {f"{VAULT}.mechanisms.noise.{law}"}
    )


def _random(source: WordSource) -> Pair[Filtered]:
    """Some rows at random, and one of them replaced by any other."""
    cells = integers_below(3, 6, source).tolist()
    flags = (integers_below(2, 6, source) == 1).tolist()
    rows = tuple(zip(cells, flags, strict=True))
    return Pair(f"at random: {rows[4]} becomes {rows[5]}", rows[:5], (*rows[:4], rows[5]))
