# SPDX-License-Identifier: Apache-2.0
"""Release on 6.4e17 cells: all two-way marginals of Adult, from the plan to the answers.

Errors are those of shares (counts over the number of records): mean over tables of the L1
distance, the largest and the root mean squared difference over all cells. The number of records is
private (add-remove neighbours); what projects uses the noisy one. Noise is that of the vault, from
a repeatable source; adaptive releases go through ``sf.plan_adaptive(...).release``, whose noise
nobody can repeat. The exact tables are used for the errors alone.

Runs have processes of their own, on one thread: ``python -m bench.implicit rows 2 2,3`` measures
two-way tables and judges two- and three-way ones. CPU seconds are those of planning, counting,
measuring and estimating, once compiled.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import sfumato as sf
from bench import adult
from bench.explicit import Words
from bench.live import ONE_THREAD
from sfumato.measurement import Measured
from sfumato.random import Draws
from sfumato.refine.local_consistency import project_locally
from sfumato.refine.reconstruct import (
    fit_answers,
    fit_measured,
    reconstruct,
    released_tables,
    released_total,
)
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import with_prior
from sfumato.run.linear import Plan
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

__all__ = ["EPSILONS", "RUNS", "WAYS", "Found", "Run", "released", "run_alone"]

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-9
LOCAL_GAP = 1e-3  # relative
COMPONENTS, ADAM_STEPS = 100, 500  # of the mixture of products, as in the peer file

Names = tuple[str, ...]
Tables = Callable[[Names], np.ndarray]

WAYS = {
    "gaussian": "Gaussian on every cell",
    "gaussian simplex": "Gaussian, each table on its simplex",
    "optimal": "optimal strategy",
    "optimal simplex": "optimal, each table on its simplex",
    "local": "optimal, local consistency",
    "rows": "optimal, rows",
    "prior rows": "optimal, prior and rows",
    "adaptive": "adaptive",
    "mbi": "Gaussian, mbi mixture of products",
}


@dataclass(frozen=True)
class Run:
    """Measure tables of ``ways`` attributes, be judged on those of ``judged``.

    Names of ways that are joined by a plus share a process: its peak memory is that of them all.
    """

    way: str
    epsilons: tuple[float, ...] = EPSILONS
    ways: int = 2
    judged: tuple[int, ...] = (2,)

    @property
    def missing(self) -> str | None:
        """What to install for it, or None."""
        is_here = self.way != "mbi" or find_spec("mbi")
        return None if is_here else "not installed: pip install mbi"


QUICK = "gaussian+gaussian simplex+optimal+optimal simplex+local"
RUNS = tuple(Run(way) for way in (QUICK, "rows", "prior rows", "adaptive"))


@dataclass(frozen=True)
class Found:
    """One release, judged on all tables of ``judged`` attributes."""

    way: str
    epsilon: float
    ways: int
    judged: int
    mean_l1: float
    max_abs: float
    rmse: float
    seconds: float
    megabytes: float


def released(way: str, work: sf.Workload, table: pd.DataFrame, epsilon: float) -> Tables:
    """Release the workload; what comes back gives the estimated counts of a table."""
    budget = sf.Budget(epsilon=epsilon, delta=DELTA)
    if way == "adaptive":
        found = sf.plan_adaptive(work, budget).release(table)
        return lambda names: found.table(*names)
    mechanism = "gaussian" if way.startswith(("gaussian", "mbi")) else "factorization"
    plan = sf.plan(work, budget, mechanism=mechanism, seconds=None, cache=False)
    blocks = plan.strategy.blocks
    exact = count(open_table(table), work.domain, blocks, plan.neighbours)
    measured = measure(exact, blocks, plan.noise, Words(0))
    return _refined(way, plan, measured)


def _refined(way: str, plan: Plan, measured: Measured) -> Tables:
    """Everything here is arithmetic on public numbers."""
    work = plan.workload
    answers = list(reconstruct(plan.forecast, measured))
    tables = released_tables(plan.forecast, answers)
    total = released_total(tables, measured.rows)
    if way in ("rows", "prior rows"):
        fit = fit_measured(plan.forecast, measured)
        fit = with_prior(fit, tables, total) if way == "prior rows" else fit
        return fit_rows(fit, total, draws=Draws(work.digest())).table
    if way == "local":
        return project_locally(fit_answers(work, answers), total, gap=LOCAL_GAP).margin
    if way == "mbi":
        return _mixture(plan, answers)
    if way.endswith("simplex"):
        answers = [project_to_simplex(a, total) for a in answers]
    known = dict(zip((t.attributes for t in work.terms), answers, strict=True))
    return known.__getitem__


def _mixture(plan: Plan, answers: Sequence[np.ndarray]) -> Tables:
    import optax
    from mbi import Domain, LinearMeasurement
    from mbi.extensions import MixtureOfProductsEstimator

    work = plan.workload
    deviations = [block.variance**0.5 for block in plan.noise]
    asked = [
        LinearMeasurement(a, t.attributes, s)
        for a, t, s in zip(answers, work.terms, deviations, strict=True)
    ]
    names = work.domain.names
    model = MixtureOfProductsEstimator(
        optimizer=optax.adam(0.1), num_components=COMPONENTS
    ).estimate(Domain(names, [work.domain[n].size for n in names]), asked, iters=ADAM_STEPS)
    return lambda names: np.asarray(model.project(names).datavector())


def judge(tables: Tables, truth: Iterable[tuple[Names, np.ndarray]], n: int) -> list[float]:
    """Mean L1 distance per table, largest and root mean squared difference, of shares."""
    distances, largest, squares, cells = [], 0.0, 0.0, 0
    for names, true in truth:
        off = np.abs(np.asarray(tables(names), dtype=np.float64).reshape(-1) - true) / n
        distances.append(float(off.sum()))
        largest = max(largest, float(off.max()))
        squares += float((off**2).sum())
        cells += off.size
    return [float(np.mean(distances)), largest, float(np.sqrt(squares / cells))]


def true_tables(
    table: pd.DataFrame, domain: sf.Domain, ways: int
) -> Iterator[tuple[Names, np.ndarray]]:
    """The exact tables, one at a time."""
    codes = {name: table[name].to_numpy() for name in domain.names}
    for names in combinations(domain.names, ways):
        shape = [domain[name].size for name in names]
        at = np.ravel_multi_index([codes[name] for name in names], shape)
        yield names, np.bincount(at, minlength=int(np.prod(shape)))


def run(asked: Run) -> list[Found]:
    """All ways at every epsilon, in this process; memory is the peak so far."""
    domain, table = adult.domain(), adult.coded()
    work = sf.marginals(domain, asked.ways)
    out = []
    for way in asked.way.split("+"):
        _warm(way, asked.ways)
        title = f"{WAYS[way]} ({version('mbi')})" if way == "mbi" else WAYS[way]
        for epsilon in asked.epsilons:
            start = time.process_time()
            tables = released(way, work, table, epsilon)
            seconds = time.process_time() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            for judged in asked.judged:
                errors = judge(tables, true_tables(table, domain, judged), len(table))
                out.append(Found(title, epsilon, asked.ways, judged, *errors, seconds, peak))
    return out


def _warm(way: str, ways: int) -> None:
    """Compile before the clock starts, on four attributes. What jax compiles is for one shape."""
    if way == "mbi":
        return
    few = ("marital-status", "relationship", "race", "sex")
    domain = sf.Domain({name: adult.domain()[name].size for name in few})
    table = adult.coded()[list(few)].iloc[:2000]
    released(way, sf.marginals(domain, ways), table, 1.0)


def run_alone(asked: Run) -> list[Found]:
    """The same in a process of its own, on one thread, so that its memory is known."""
    listed = [",".join(map(str, values)) for values in (asked.judged, asked.epsilons)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.implicit", asked.way, str(asked.ways), *listed],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode:
        raise RuntimeError(f"{asked} failed:\n{done.stderr[-2000:]}")
    return [Found(**found) for found in json.loads(done.stdout.splitlines()[-1])]


def _asked(way: str, ways: str, judged: str = "2", epsilons: str = "0.1,1,10") -> Run:
    listed = tuple(float(e) for e in epsilons.split(","))
    return Run(way, listed, int(ways), tuple(int(w) for w in judged.split(",")))


if __name__ == "__main__":
    print(json.dumps([asdict(found) for found in run(_asked(*sys.argv[1:]))]))
