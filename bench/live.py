# SPDX-License-Identifier: Apache-2.0
"""Peers that are Python packages, run here and now: cvxpy and jax-privacy.

* cvxpy solves the semidefinite program of the optimum, an independent check of the error:
  ``min tr(Y)`` over ``[[Y, L'], [L, X]] >= 0``, ``X_jj <= 1``, with ``L L' = F'F``.
* jax-privacy optimises dense, Toeplitz and buffered Toeplitz strategies (Denisov et al. 2022;
  McMahan, Xiong, Thakurta 2024).

Every run has a process of its own, on one thread; ``python -m bench.live jax-dense prefix 64``
prints one. A package that is missing is said to be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bench.cases import STREAM, Case, along
from bench.tell import Effort

__all__ = ["RUNS", "Found", "Run", "missing", "run"]

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
QUICK = 5.0  # runs of fewer CPU seconds are done twice, and the second is kept: it compiles nothing
PACKAGES = {"cvxpy": "cvxpy", "jax": "jax_privacy"}


@dataclass(frozen=True)
class Run:
    """One optimisation by a peer, run from this effort on, and the case it is compared on."""

    way: str
    queries: str
    size: int
    effort: Effort = "usual"

    @property
    def kind(self) -> str:
        """The kind of the case."""
        largest = self.way.endswith("-max")
        if "toeplitz" in self.way:
            return "stream max" if largest else "stream"
        return "max" if largest else "rmse"

    @property
    def case(self) -> Case:
        """The same workload and objective for sfumato."""
        name = STREAM if self.kind.startswith("stream") else self.queries
        return Case(self.kind, ((name, str(self.size)),), lambda: along(self.queries, self.size))


RUNS = (
    Run("cvxpy", "prefix", 24, "quick"),
    Run("cvxpy", "all-range", 24),
    Run("cvxpy", "width-8 ranges", 24),
    Run("cvxpy", "prefix", 48, "all"),
    Run("cvxpy-max", "prefix", 12),
    Run("jax-dense", "prefix", 64, "quick"),
    Run("jax-dense", "prefix", 256),
    Run("jax-dense", "all-range", 64),
    Run("jax-dense", "all-range", 256, "all"),
    Run("jax-dense", "prefix", 1024, "all"),
    Run("jax-toeplitz", "prefix", 64, "quick"),
    Run("jax-toeplitz", "prefix", 256),
    Run("jax-toeplitz", "prefix", 1024, "all"),
    Run("jax-buffered-toeplitz", "prefix", 64, "all"),
    Run("jax-buffered-toeplitz", "prefix", 1024, "all"),
    Run("jax-buffered-toeplitz-max", "prefix", 1024, "all"),
)


def missing(asked: Run) -> str | None:
    """What to install for this run, or None."""
    family = asked.way.split("-")[0]
    name = PACKAGES[family]
    return None if find_spec(name) else f"not installed: pip install {name.replace('_', '-')}"


@dataclass(frozen=True)
class Found:
    """What a run printed: the package with its version, its error and its CPU seconds."""

    peer: str
    error: float
    seconds: float


def run(asked: Run) -> Found:
    """Error, CPU seconds and the version of the package, from a process of its own."""
    command = [sys.executable, "-m", "bench.live", asked.way, asked.queries, str(asked.size)]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def matrix(queries: str, size: int) -> np.ndarray:
    """The queries as rows, from their definition."""
    cells = range(size)
    if queries == "prefix":
        return np.tril(np.ones((size, size)))
    if queries == "all-range":
        ends = [(i, j) for i in cells for j in range(i, size)]
    else:
        width = int(queries.removeprefix("width-").removesuffix(" ranges"))
        ends = [(i, i + width - 1) for i in range(size - width + 1)]
    return np.array([[float(i <= c <= j) for c in cells] for i, j in ends])


def _program(rows: np.ndarray, largest: bool) -> float:
    import cvxpy as cp

    cells = rows.shape[1]
    if largest:
        x = cp.Variable((cells, cells), PSD=True)
        errors = cp.hstack([cp.matrix_frac(row, x) for row in rows])
        problem = cp.Problem(cp.Minimize(cp.max(errors)), [cp.diag(x) <= 1])
        problem.solve(solver=cp.CLARABEL)
        return float(np.sqrt(problem.value))
    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = values > values[-1] * 1e-12
    root = vectors[:, kept] * np.sqrt(values[kept])
    rank = root.shape[1]
    whole = cp.Variable((rank + cells, rank + cells), PSD=True)
    limits = [whole[rank:, :rank] == root, cp.diag(whole)[rank:] <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(whole[:rank, :rank])), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(np.sqrt(problem.value / len(rows)))


def _dense(rows: np.ndarray) -> float:
    """The package takes any square matrix of the same Gram matrix."""
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import dense

    size = rows.shape[1]
    square = jnp.asarray(np.linalg.cholesky(rows.T @ rows).T)
    strategy = dense.optimize(size, A=square)
    errors = dense.per_query_error(
        strategy_matrix=strategy, workload_matrix=square, skip_checks=True
    )
    longest = float((np.asarray(strategy) ** 2).sum(axis=0).max())
    return float(np.sqrt(float(np.asarray(errors).sum()) * longest / len(rows)))


def _toeplitz(size: int) -> float:
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import toeplitz

    found = toeplitz.optimize_banded_toeplitz(size, size)
    return float(jnp.sqrt(toeplitz.loss(found, size)))


def _buffered(size: int, largest: bool) -> float:
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    error = "max" if largest else "mean"
    found = buffered_toeplitz.optimize(n=size, error=error, max_participations=1)
    coefficients = np.asarray(found.toeplitz_coefs(size))
    errors = np.asarray(toeplitz.per_query_error(strategy_coef=coefficients, n=size))
    chosen = errors.max() if largest else errors.mean()
    return float(np.sqrt(chosen * (coefficients**2).sum()))


def _way(way: str, queries: str, size: int) -> Callable[[], float]:
    rows = matrix(queries, size)
    largest = way.endswith("-max")
    if way.startswith("cvxpy"):
        return lambda: _program(rows, largest)
    import jax

    jax.config.update("jax_enable_x64", True)
    if way == "jax-dense":
        return lambda: _dense(rows)
    if way == "jax-toeplitz":
        return lambda: _toeplitz(size)
    return lambda: _buffered(size, largest)


def main(way: str, queries: str, size: str) -> None:
    """Print one run as JSON."""
    call = _way(way, queries, int(size))
    start = time.process_time()
    error = call()
    seconds = time.process_time() - start
    if seconds < QUICK:
        start = time.process_time()
        call()
        seconds = min(seconds, time.process_time() - start)
    name = {"cvxpy": "cvxpy", "jax": "jax-privacy"}[way.split("-")[0]]
    how = way.removeprefix("jax-").removesuffix("-max").replace("-", " ")
    title = f"{name} {version(name)}" + ("" if how == "cvxpy" else f", {how}")
    print(json.dumps({"peer": title, "error": error, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
