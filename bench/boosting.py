# SPDX-License-Identifier: Apache-2.0
"""The largest error: boosting beside plans that nobody boosted.

    python -m bench boosting          about three minutes of CPU time

Every row is one workload on one table: the largest error over all queries, in counts, the mean of
a few runs (epsilon = 1, delta = 1e-9, replace-one neighbours). Plans have the noise of the vault
from a repeatable source; boosting goes through ``sf.plan_adaptive(...).release``, whose noise
nobody can repeat. ``bench/results`` gets ``boosting.csv``.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

import sfumato as sf
from bench import adult
from bench.explicit import Words
from bench.tell import show
from sfumato.refine.reconstruct import reconstruct
from sfumato.run.linear import Plan
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

__all__ = ["CASES", "Case", "Row", "main", "measured_case"]

RESULTS = Path(__file__).parent / "results"
BUDGET = sf.Budget(epsilon=1, delta=1e-9)
RUNS = 5
FEW = ("marital-status", "relationship", "race", "sex", "income")


@dataclass(frozen=True)
class Case:
    """A workload and a table for it."""

    name: str
    workload: sf.Workload
    table: Callable[[np.random.Generator], pd.DataFrame]


@dataclass(frozen=True)
class Row:
    """Largest errors in counts: of the plan for the mean and of that for the largest error, as they
    are, projected by least squares, and by the least largest difference; and of boosting."""

    case: str
    queries: int
    records: int
    mean_plan: float
    mean_plan_projected: float
    max_plan: float
    max_plan_projected: float
    max_plan_minimax: float
    boosting: float
    seconds: float


def _yes_no(records: int) -> Case:
    work = sf.marginals(sf.Domain({f"x{i}": 2 for i in range(8)}), 2)
    return Case("2-way of 8 yes/no", work, lambda g: _adult_yes_no(records, g))


def _adult_yes_no(records: int, source: np.random.Generator) -> pd.DataFrame:
    return adult.yes_no(8, records, int(source.integers(2**31)))


def _sets(records: int, cells: int = 64, queries: int = 500) -> Case:
    chosen = np.random.default_rng(3).integers(0, 2, (queries, cells)).astype(np.float64)
    work = sf.explicit(sf.Domain({"cell": cells}), ["cell"], chosen)
    return Case(
        f"{queries} random sets of {cells} cells", work, lambda g: _skewed(records, cells, g)
    )


def _ranges(records: int, cells: int = 64) -> Case:
    work = sf.ranges(sf.Domain({"cell": cells}), "cell")
    return Case(f"all ranges of {cells} cells", work, lambda g: _skewed(records, cells, g))


def _adult() -> Case:
    domain = sf.Domain({name: adult.domain()[name].size for name in FEW})
    table = adult.coded()[list(FEW)]
    return Case("Adult, 2-way of 5 attributes", sf.marginals(domain, 2), lambda _: table)


def _skewed(records: int, cells: int, source: np.random.Generator) -> pd.DataFrame:
    shares = source.permutation(1 / np.arange(1.0, cells + 1))
    return pd.DataFrame({"cell": source.choice(cells, records, p=shares / shares.sum())})


CASES = (
    _yes_no(1_000),
    _yes_no(30_000),
    _sets(1_000),
    _sets(30_000),
    _ranges(1_000),
    _ranges(30_000),
    _adult(),
)


def measured_case(case: Case, runs: int = RUNS) -> Row:
    """All ways on the same tables; the first two have the same draws of words."""
    start = time.process_time()
    work = case.workload
    plans = [
        sf.plan(work, BUDGET, "replace-one", objective, cache=False, seconds=None)
        for objective in ("rmse", "max")
    ]
    boosted = sf.plan_adaptive(work, BUDGET, "replace-one", method="boosting")
    source = np.random.default_rng(11)
    found = []
    for run in range(runs):
        table = case.table(source)
        true, records = _true(work, table), len(table)
        largest = []
        for plan, objectives in zip(plans, (("rmse",), ("rmse", "max")), strict=True):
            answers = _answers(plan, table, run)
            projected = [
                sf.project(answers, work, records, objective=o, gap=1e-3).answers
                for o in objectives
            ]
            largest += [_largest(a, true) for a in (answers, *projected)]
        release = boosted.release(table)
        largest.append(_largest(np.concatenate(list(release.values())), true))
        found.append(largest)
    numbers = np.mean(found, axis=0).tolist()
    return Row(case.name, work.queries, records, *numbers, time.process_time() - start)


def _answers(plan: Plan, table: pd.DataFrame, seed: int) -> np.ndarray:
    blocks = plan.strategy.blocks
    exact = count(open_table(table), plan.workload.domain, blocks, plan.neighbours)
    return np.concatenate(
        list(reconstruct(plan.forecast, measure(exact, blocks, plan.noise, Words(seed))))
    )


def _true(work: sf.Workload, table: pd.DataFrame) -> np.ndarray:
    cells = np.ravel_multi_index([table[n] for n in work.domain.names], work.domain.shape)
    counts = np.bincount(cells, minlength=work.domain.size).reshape(work.domain.shape)
    return np.asarray(work.evaluate(counts), dtype=np.float64)


def _largest(answers: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(answers - true).max())


def main() -> None:
    """Print the table and write it to ``bench/results``."""
    from rich.table import Table

    rows = [measured_case(case) for case in CASES]
    shown = Table(title="Largest error over all queries, in counts")
    shown.add_column("workload")
    plans = ("plan for the mean", "projected", "plan for the largest", "projected", "by minimax")
    for head in ("records", *plans, "boosting", "its CPU s"):
        shown.add_column(head, justify="right")
    for row in rows:
        errors = (
            row.mean_plan,
            row.mean_plan_projected,
            row.max_plan,
            row.max_plan_projected,
            row.max_plan_minimax,
            row.boosting,
        )
        shown.add_row(
            row.case, f"{row.records:,}", *(f"{e:,.0f}" for e in errors), f"{row.seconds:.0f}"
        )
    show(shown)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "boosting.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f.name for f in fields(Row)])
        writer.writerows(astuple(row) for row in rows)
    print(path)
