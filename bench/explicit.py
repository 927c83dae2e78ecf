# SPDX-License-Identifier: Apache-2.0
"""Projection where cells can be listed: all two-way marginals of d yes/no attributes of Adult.

Every way gets the same noisy answers: Gaussian noise on each query at epsilon = 1, delta = 1e-6,
replace-one neighbours (the number of records is public), drawn by the vault from a repeatable
source. All solve ``min |F h - y|^2 over h >= 0, 1'h = n``:

* sfumato, ``sf.project``, which certifies how far its value is from the least one;
* scipy, ``nnls`` on ``[F - y 1'/n; 1']``, exact once the weights are divided by their sum;
* cvxpy with Clarabel;
* mbi (private-pgm), mirror descent over graphical models (McKenna, Sheldon, Miklau 2019).

Every run has a process of its own, on one thread; ``python -m bench.explicit scipy 16 1000`` prints
one. The exact counts are used for the error alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import sfumato as sf
from bench.adult import yes_no
from bench.live import ONE_THREAD
from bench.tell import Effort
from sfumato.refine.reconstruct import reconstruct
from sfumato.run.linear import Plan
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

__all__ = ["REDUCTIONS", "RUNS", "Found", "Reduction", "Run", "reduction", "run", "run_alone"]

BUDGET = sf.Budget(epsilon=1, delta=1e-6)
QUICK = 5.0  # CPU seconds below which a run is repeated: the second compiles nothing
STEPS = 1000  # of mirror descent, as in the peer file
DRAWS = 3
REDUCTIONS = (30, 100, 300, 1_000, 10_000)


@dataclass(frozen=True)
class Run:
    """One way on d attributes of n records; run from this effort on."""

    way: str
    attributes: int
    records: int = 1_000
    effort: Effort = "usual"

    @property
    def missing(self) -> str | None:
        """What to install for it, or None."""
        return None if find_spec(self.way) else f"not installed: pip install {self.way}"


RUNS = (
    Run("sfumato", 10, effort="quick"),
    Run("scipy", 10, effort="quick"),
    Run("cvxpy", 10, effort="quick"),
    Run("mbi", 10),
    Run("sfumato", 16, effort="quick"),
    Run("scipy", 16),
    Run("cvxpy", 16, effort="all"),
    Run("mbi", 16, effort="all"),
    Run("sfumato", 20, effort="quick"),
)


@dataclass(frozen=True)
class Found:
    """``value`` is 1/2 |p - y|^2 in counts; errors are root mean squares per record."""

    way: str
    attributes: int
    queries: int
    seconds: float
    value: float
    gap: float | None
    before: float
    after: float
    megabytes: float

    def excess(self, least: float) -> float:
        """How far the value is above a lower bound on the least one, relatively."""
        return max(0.0, self.value - least) / self.value

    @property
    def least(self) -> float:
        """The certified lower bound on the least value."""
        return 0.0 if self.gap is None else self.value - self.gap


@dataclass(frozen=True)
class Reduction:
    """Errors per record, before and after projection, for two ways to measure; CPU seconds."""

    records: int
    gaussian: float
    gaussian_projected: float
    optimal: float
    optimal_projected: float
    seconds: float


class Words:
    """Repeatable words: a benchmark is no release."""

    def __init__(self, seed: int) -> None:
        self._drawn = np.random.default_rng(seed)

    def words(self, count: int) -> np.ndarray:
        """The next words."""
        return self._drawn.integers(0, 2**64, count, dtype=np.uint64)


def workload(attributes: int) -> sf.Workload:
    """All two-way tables of yes/no attributes."""
    return sf.marginals(sf.Domain({f"x{i}": 2 for i in range(attributes)}), 2)


def noisy(plan: Plan, records: int, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The unbiased answers of a plan on records of Adult, and the true ones, table by table."""
    work = plan.workload
    drawn = yes_no(len(work.domain), records, seed)
    blocks = plan.strategy.blocks
    exact = count(open_table(drawn), work.domain, blocks, plan.neighbours)
    answers = list(reconstruct(plan.forecast, measure(exact, blocks, plan.noise, Words(seed))))
    true = [_table(drawn, t.attributes) for t in work.terms]
    return answers, true


def reduction(attributes: int, records: int, draws: int = DRAWS) -> Reduction:
    """What projection takes off the error, in the mean over a few draws of records and noise."""
    work = workload(attributes)
    squares, seconds = np.zeros(4), 0.0
    for seed in range(draws):
        for place, mechanism in ((0, "gaussian"), (2, None)):
            plan = sf.plan(work, BUDGET, "replace-one", mechanism=mechanism, cache=False)
            answers, true = noisy(plan, records, seed)
            start = time.process_time()
            found = sf.project(answers, work, records)
            seconds += time.process_time() - start
            squares[place] += _rmse(np.concatenate(answers), true, records) ** 2
            squares[place + 1] += _rmse(found.answers, true, records) ** 2
    return Reduction(records, *np.sqrt(squares / draws).tolist(), seconds / (2 * draws))


def run(asked: Run) -> Found:
    """One run, in this process."""
    work = workload(asked.attributes)
    plan = sf.plan(work, BUDGET, "replace-one", mechanism="gaussian", cache=False)
    answers, true = noisy(plan, asked.records)
    y = np.concatenate(answers)
    call = _way(asked.way, work, y, asked.records)
    start = time.process_time()
    found, gap = call()
    seconds = time.process_time() - start
    if seconds < QUICK:
        start = time.process_time()
        found, gap = call()
        seconds = min(seconds, time.process_time() - start)
    return Found(
        _title(asked.way),
        asked.attributes,
        work.queries,
        seconds,
        0.5 * float(((found - y) ** 2).sum()),
        gap,
        _rmse(y, true, asked.records),
        _rmse(found, true, asked.records),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def run_alone(asked: Run) -> Found:
    """The same in a process of its own, on one thread, so that its memory is known."""
    command = [sys.executable, "-m", "bench.explicit", asked.way]
    done = subprocess.run(
        [*command, str(asked.attributes), str(asked.records)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode:
        raise RuntimeError(f"{asked} failed:\n{done.stderr[-2000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


Answered = tuple[np.ndarray, float | None]


def _way(way: str, work: sf.Workload, y: np.ndarray, n: int) -> Callable[[], Answered]:
    if way == "sfumato":
        return lambda: _ours(work, y, n)
    if way == "mbi":
        return lambda: (_mirror_descent(work, y, n), None)
    rows = matrix(work)
    solve = {"scipy": _nnls, "cvxpy": _program}[way]
    return lambda: (rows @ solve(rows, y, n), None)


def matrix(work: sf.Workload) -> np.ndarray:
    """F, dense: a row per query, a column per cell."""
    d = len(work.domain)
    bits = np.indices((2,) * d).reshape(d, -1)
    rows = []
    for term in work.terms:
        i, j = (work.domain.names.index(name) for name in term.attributes)
        rows += [(bits[i] == a) & (bits[j] == b) for a in (0, 1) for b in (0, 1)]
    return np.array(rows, dtype=np.float64)


def _ours(work: sf.Workload, y: np.ndarray, n: int) -> Answered:
    found = sf.project(y, work, n)
    return found.answers, found.gap


def _nnls(rows: np.ndarray, y: np.ndarray, n: int) -> np.ndarray:
    from scipy.optimize import nnls

    # Where 1'u = 1, F u - y/n = (F - y 1'/n) u = P u, and |P u|^2 + (1'u - 1)^2 is least at a
    # multiple of the nearest point.
    lifted = np.vstack([rows - (y / n)[:, None], np.ones(rows.shape[1])])
    wanted = np.zeros(len(lifted))
    wanted[-1] = 1.0
    u, _ = nnls(lifted, wanted, maxiter=10**6)
    return n * u / u.sum()


def _program(rows: np.ndarray, y: np.ndarray, n: int) -> np.ndarray:
    import cvxpy as cp

    h = cp.Variable(rows.shape[1], nonneg=True)
    cp.Problem(cp.Minimize(cp.sum_squares(rows @ h - y)), [cp.sum(h) == n]).solve(cp.CLARABEL)
    return np.maximum(h.value, 0.0) * (n / np.maximum(h.value, 0.0).sum())


def _mirror_descent(work: sf.Workload, y: np.ndarray, n: int) -> np.ndarray:
    from mbi import Domain, LinearMeasurement, estimation

    sets = [t.attributes for t in work.terms]
    parts = np.split(y, np.cumsum([t.rows for t in work.terms])[:-1])
    asked = [LinearMeasurement(part, clique) for part, clique in zip(parts, sets, strict=True)]
    names = work.domain.names
    model = estimation.MirrorDescent().estimate(
        Domain(names, [2] * len(names)), asked, known_total=float(n), iters=STEPS
    )
    return np.concatenate([np.asarray(model.project(s).datavector()) for s in sets])


def _table(drawn: object, names: tuple[str, ...]) -> np.ndarray:
    i, j = (np.asarray(drawn[name]) for name in names)  # type: ignore[index]
    return np.bincount(2 * i + j, minlength=4).astype(np.float64)


def _rmse(answers: np.ndarray, true: list[np.ndarray], n: int) -> float:
    return float(np.sqrt(np.mean((answers - np.concatenate(true)) ** 2))) / n


def _title(way: str) -> str:
    if way == "sfumato":
        return way
    how = {"scipy": "nnls", "cvxpy": "Clarabel", "mbi": f"mirror descent, {STEPS:,} steps"}[way]
    return f"{way} {version(way)}, {how}"


if __name__ == "__main__":
    print(json.dumps(asdict(run(Run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))))
