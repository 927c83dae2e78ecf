# SPDX-License-Identifier: Apache-2.0
"""A million cells: planning, then counting, measuring and reconstructing, in CPU seconds and MB.

Each run has a process of its own, so that its peak memory is known;
``python -m bench.million prefix 1000000`` prints one as JSON. No peer in the file goes this far.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

__all__ = ["RUNS", "Large", "run"]

RECORDS = 200_000
RUNS = (("prefix", 10**6), ("all-range", 10**6))


@dataclass(frozen=True)
class Large:
    """One large workload, from the plan to its answers."""

    workload: str
    error: float | None = None
    certificate: float | None = None
    plan_seconds: float | None = None
    release_seconds: float | None = None
    megabytes: float | None = None
    refused: str = ""


def run(queries: str, size: int) -> Large:
    """One run in its own process, on one thread."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.million", queries, str(size)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"{queries} on {size:,} cells failed:\n{done.stderr[-2000:]}")
    return Large(**json.loads(done.stdout.splitlines()[-1]))


def measured(queries: str, size: int) -> Large:
    """Plan, count a table of random records, measure, and reconstruct all running totals."""
    import pandas as pd

    import sfumato as sf
    from bench.cases import along
    from sfumato.vault.mechanisms.measure import count, measure
    from sfumato.vault.tables import open_table

    _warm()
    work = along(queries, size)
    start = time.process_time()
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", seconds=None, cache=False)
    error, certificate = plan.gamma, plan.certificate
    planned = time.process_time() - start
    drawn = np.random.default_rng(0).integers(0, size, RECORDS)
    table = open_table(pd.DataFrame({"x": drawn}))
    start = time.process_time()
    blocks = plan.strategy.blocks
    exact = count(table, work.domain, blocks, plan.neighbours)
    noisy = [m.values for m in measure(exact, blocks, plan.noise).measurements]
    # Every interval is a difference of two of these; all 5 * 10^11 of them are never listed.
    totals = plan.strategy.running_totals(noisy)  # type: ignore[attr-defined]
    released = time.process_time() - start
    assert totals.shape == (1, size + 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    name = f"{queries}, {size:,}"
    return Large(name, error, certificate, planned, released, peak)


def _warm() -> None:
    """Compile before the clock starts; compiled code is kept on disk between runs anyway."""
    import sfumato as sf
    from bench.cases import along

    for queries in ("prefix", "all-range"):
        sf.plan(along(queries, 8192), sf.Budget(mu=1), mechanism="factorization", cache=False)


if __name__ == "__main__":
    from sfumato.errors import SfumatoError

    asked, cells = sys.argv[1], int(sys.argv[2])
    try:
        found = measured(asked, cells)
    except SfumatoError as why:
        found = Large(f"{asked}, {cells:,}", refused=str(why))
    print(json.dumps(asdict(found)))
