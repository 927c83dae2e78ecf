# SPDX-License-Identifier: Apache-2.0
"""The bodies of ``sf.project``: how near each comes to the truth, and what it proves of rows.

1. All two-way tables of d yes/no attributes with three hidden factors, normal noise on every cell,
   n public, where cells cannot be listed: local consistency, moments, rows.
2. All two-way tables of Adult, Gaussian noise on every cell at epsilon 0.1, 1 and 10 (delta 1e-9):
   rows and the gap that local consistency proves of them; local consistency itself.

    python -m bench bodies          about two minutes of CPU time
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench import adult, explicit, implicit
from bench.tell import show
from sfumato.refine.reconstruct import reconstruct, released_tables, released_total
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

__all__ = ["Found", "census", "main", "yes_no"]

YES_NO = ((50, 1_000, 100.0), (200, 2_000, 500.0))


@dataclass(frozen=True)
class Found:
    """``error`` and ``distance`` are L2 over all answers, ``gap`` relative to the value."""

    problem: str
    onto: str
    before: float
    error: float
    distance: float
    gap: float
    proof: str
    seconds: float


def yes_no(attributes: int, records: int, noise: float, bodies: Sequence[str]) -> list[Found]:
    """Made-up records: signs of three hidden numbers each, and of noise."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(records, 3)) @ rng.normal(size=(3, attributes))
    table = (hidden + rng.normal(size=(records, attributes)) > rng.normal(size=attributes)) * 1
    work = sf.marginals(sf.Domain({f"x{i}": 2 for i in range(attributes)}), 2)
    at = [[work.domain.names.index(a) for a in t.attributes] for t in work.terms]
    truth = np.concatenate([np.bincount(2 * table[:, i] + table[:, j], minlength=4) for i, j in at])
    y = truth + noise * rng.normal(size=len(truth))
    name = f"{attributes} yes/no attributes, {records:,} records, noise {noise:g}"
    return [_projected(name, onto, y, truth, work, records) for onto in bodies]


def census(epsilon: float, bodies: Sequence[str]) -> list[Found]:
    """All pairs of Adult; the number of records is the noisy one."""
    domain, table = adult.domain(), adult.coded()
    work = sf.marginals(domain, 2)
    budget = sf.Budget(epsilon=epsilon, delta=implicit.DELTA)
    plan = sf.plan(work, budget, mechanism="gaussian", seconds=None, cache=False)
    blocks = plan.strategy.blocks
    exact = count(open_table(table), domain, blocks, plan.neighbours)
    measured = measure(exact, blocks, plan.noise, explicit.Words(0))
    answers = list(reconstruct(plan.forecast, measured))
    total = released_total(released_tables(plan.forecast, answers), measured.rows)
    truth = np.concatenate([t for _, t in implicit.true_tables(table, domain, 2)])
    name = f"Adult, epsilon {epsilon:g}"
    y = np.concatenate(answers)
    return [_projected(name, onto, y, truth, work, total) for onto in bodies]


def _projected(
    name: str, onto: str, y: np.ndarray, truth: np.ndarray, work: sf.Workload, n: float
) -> Found:
    start = time.process_time()
    found = sf.project(y, work, n, onto=onto, gap=1e-3)
    seconds = time.process_time() - start
    return Found(
        name,
        "rows" if onto == "exact" else onto,
        float(np.linalg.norm(y - truth)),
        float(np.linalg.norm(found.answers - truth)),
        found.distance_bound,
        found.gap / found.value,
        found.certified_by,
        seconds,
    )


def main() -> None:
    """Print all of them as a table."""
    from rich.table import Table

    shown = Table(title="Beyond listed cells: L2 errors over all answers, gaps of the value")
    for head in ("problem", "onto", "before", "error", "proved within", "gap", "by", "CPU s"):
        shown.add_column(head, justify="right", no_wrap=True)
    rows: list[Found] = []
    with threadpool_limits(limits=1):
        for case in YES_NO:
            rows += yes_no(*case, ("local", "semidefinite", "exact"))
        for epsilon in implicit.EPSILONS:
            rows += census(epsilon, ("local", "exact"))
    for f in rows:
        numbers = f"{f.before:,.0f}", f"{f.error:,.0f}", f"{f.distance:,.0f}", f"{f.gap:.2%}"
        shown.add_row(f.problem, f.onto, *numbers, f.proof, f"{f.seconds:.1f}")
    show(shown)
