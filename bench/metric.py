# SPDX-License-Identifier: Apache-2.0
"""In which metric to project: that of the objective, or that of the noise covariance.

1. All two-way tables of Adult (14 attributes, 48,842 records), delta = 1e-9, onto locally
   consistent tables: mean over tables of the L1 distance of shares.
2. All two-way tables of 10 yes/no attributes of Adult, epsilon = 1, delta = 1e-6, onto what data
   can have: root mean squared error per record, in the mean of a few draws.

    python -m bench metric          about a minute of CPU time

Noise is that of the vault, from a repeatable source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench import adult, explicit, implicit
from bench.tell import show
from sfumato.measurement import Measured
from sfumato.refine.cells import fit_explicit
from sfumato.refine.local_consistency import project_locally
from sfumato.refine.problem import Grid
from sfumato.refine.reconstruct import (
    fit_answers,
    fit_measured,
    reconstruct,
    released_tables,
    released_total,
)
from sfumato.run.linear import Plan
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

__all__ = ["Listed", "Tables", "listed", "main", "tables"]

METRICS = ("nothing", "objective", "covariance")
MEASURED = {"gaussian": "every cell, evenly", "factorization": "optimal residuals"}
GAP = 1e-3
RECORDS = (30, 100, 300, 1_000)


@dataclass(frozen=True)
class Tables:
    """Mean L1 distances of locally consistent tables, by metric."""

    mechanism: str
    epsilon: float
    by_metric: dict[str, float]


@dataclass(frozen=True)
class Listed:
    """Root mean squared errors per record, by metric, for the optimal strategy."""

    records: int
    by_metric: dict[str, float]


def tables(
    mechanism: str, epsilon: float, domain: sf.Domain, table: pd.DataFrame, seed: int = 0
) -> Tables:
    """One release of all two-way tables, refined in every metric."""
    work = sf.marginals(domain, 2)
    budget = sf.Budget(epsilon=epsilon, delta=implicit.DELTA)
    plan = sf.plan(work, budget, mechanism=mechanism, seconds=None, cache=False)
    measured = _measured(plan, table, seed)
    answers = list(reconstruct(plan.forecast, measured))
    total = released_total(released_tables(plan.forecast, answers), measured.rows)
    known = dict(zip((t.attributes for t in work.terms), answers, strict=True))
    found = {"nothing": known.__getitem__}
    for metric, fit in (
        ("objective", fit_answers(work, answers)),
        ("covariance", fit_measured(plan.forecast, measured)),
    ):
        found[metric] = project_locally(fit, total, gap=GAP).margin
    errors = {
        metric: implicit.judge(near, implicit.true_tables(table, domain, 2), len(table))[0]
        for metric, near in found.items()
    }
    return Tables(mechanism, epsilon, errors)


def listed(records: int, attributes: int = 10, draws: int = 5) -> Listed:
    """The projection onto what data can have, in every metric."""
    work = explicit.workload(attributes)
    plan = sf.plan(work, explicit.BUDGET, "replace-one", cache=False)
    squares = dict.fromkeys(METRICS, 0.0)
    for seed in range(draws):
        drawn = adult.yes_no(attributes, records, seed)
        measured = _measured(plan, drawn, seed)
        answers = list(reconstruct(plan.forecast, measured))
        truth = np.concatenate([explicit._table(drawn, t.attributes) for t in work.terms])
        fit = fit_measured(plan.forecast, measured)
        likely = fit_explicit(fit, Grid.of(fit), float(records), gap=1e-6)
        h = np.zeros(work.domain.size)
        h[likely.cells] = likely.weights
        found = {
            "nothing": np.concatenate(answers),
            "objective": sf.project(answers, work, records).answers,
            "covariance": work.evaluate(h.reshape(work.domain.shape)),
        }
        for metric, near in found.items():
            squares[metric] += float(np.mean((near - truth) ** 2))
    return Listed(records, {m: (s / draws) ** 0.5 / records for m, s in squares.items()})


def _measured(plan: Plan, table: pd.DataFrame, seed: int) -> Measured:
    blocks = plan.strategy.blocks
    exact = count(open_table(table), plan.workload.domain, blocks, plan.neighbours)
    return measure(exact, blocks, plan.noise, explicit.Words(seed))


def main() -> None:
    """Print both tables."""
    from rich.table import Table

    wide = Table(title="All two-way tables of Adult, local consistency: mean L1 distance of shares")
    for head in ("measured", "epsilon", *METRICS):
        wide.add_column(head, justify="right", no_wrap=True)
    few = Table(title="Pairs of 10 yes/no attributes, optimal strategy: error per record")
    for head in ("records", *METRICS):
        few.add_column(head, justify="right", no_wrap=True)
    with threadpool_limits(limits=1):
        for mechanism, name in MEASURED.items():
            for epsilon in implicit.EPSILONS:
                by = tables(mechanism, epsilon, adult.domain(), adult.coded()).by_metric
                wide.add_row(name, f"{epsilon:g}", *(f"{by[m]:.3g}" for m in METRICS))
        for records in RECORDS:
            found = listed(records).by_metric
            few.add_row(f"{records:,}", *(f"{found[m]:.4f}" for m in METRICS))
    show(wide)
    show(few)
