# SPDX-License-Identifier: Apache-2.0
"""How long ``sf.project`` takes where cells can be listed, and what it certifies.

Made-up records, normal noise of a given standard deviation on every answer, n public. Beside it the
same program by cvxpy with Clarabel (a sparse matrix), where that takes seconds, or minutes with
``--all``; and by scipy's ``nnls`` (a dense one) where that takes seconds.

    python -m bench cells          about a minute of CPU time
    python -m bench cells --all    with the long rows

Errors are root mean squares in counts. CPU seconds are those of the second of two runs, if the
first took less than five. ``python -m bench.cells`` NAME runs one problem.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench.tell import Effort, show

__all__ = ["PROBLEMS", "Found", "Problem", "main", "run"]

QUICK = 5.0  # CPU seconds


@dataclass(frozen=True)
class Problem:
    """Queries, how many records, how much noise, who else solves it."""

    name: str
    make: Callable[[], sf.Workload]
    records: int
    noise: float
    peers: tuple[str, ...] = ()
    long: tuple[str, ...] = ()
    is_uneven: bool = False


@dataclass(frozen=True)
class Found:
    """``gap`` is certified, relative to the value; that of a peer is to the same lower bound."""

    problem: str
    way: str
    cells: int
    queries: int
    seconds: float
    gap: float
    before: float
    after: float
    method: str


def yes_no(d: int) -> Callable[[], sf.Workload]:
    """All two-way tables of d yes/no attributes."""
    return lambda: sf.marginals(sf.Domain({f"x{i}": 2 for i in range(d)}), 2)


def pairs() -> sf.Workload:
    """All two-way tables of four longer attributes: 106,560 cells."""
    return sf.marginals(sf.Domain({"a": 37, "b": 16, "c": 15, "d": 12}), 2)


def readme() -> sf.Workload:
    """The example of the README, on the attributes it asks about."""
    domain = sf.Domain({"age": 74, "sex": 2, "education": 16, "income": 2})
    return sf.marginals(domain, [("education", "income")]) | sf.prefixes(domain, "age", by=["sex"])


def both_ways(size: int, queries: str = "prefix") -> Callable[[], sf.Workload]:
    """Running totals, or ranges, along two attributes."""
    domain = sf.Domain({"a": size, "b": size})
    return lambda: sf.product(domain, {"a": queries, "b": queries})


def line(cells: int, queries: str) -> Callable[[], sf.Workload]:
    """One attribute."""
    return lambda: sf.product(sf.Domain({"a": cells}), {"a": queries})


PROBLEMS = (
    Problem("pairs of 10 yes/no attributes", yes_no(10), 1_000, 30.0, ("scipy", "cvxpy")),
    Problem("pairs of 16 yes/no attributes", yes_no(16), 1_000, 30.0, (), ("cvxpy",)),
    Problem("pairs of 20 yes/no attributes", yes_no(20), 1_000, 30.0),
    Problem("README", readme, 48_842, 10.0, ("scipy", "cvxpy")),
    Problem("pairs, 106,560 cells, noise 3", pairs, 50_000, 3.0, (), ("cvxpy",)),
    Problem("pairs, 106,560 cells, noise 300", pairs, 50_000, 300.0),
    Problem("2-D running totals, 64 x 64", both_ways(64), 100_000, 20.0, (), ("cvxpy",)),
    Problem("2-D running totals, 256 x 256", both_ways(256), 1_000_000, 20.0),
    Problem("2-D ranges, 32 x 32", both_ways(32, "ranges"), 100_000, 50.0),
    Problem("running totals, a million cells", line(10**6, "prefix"), 10**6, 100.0),
    Problem("a table of a million cells", line(10**6, "identity"), 10**6, 3.0),
    Problem("the same, uneven weights", line(10**6, "identity"), 10**6, 3.0, is_uneven=True),
)
LONG = (
    Problem("pairs of 23 yes/no attributes", yes_no(23), 1_000, 30.0),
    Problem("2-D running totals, 512 x 512, few records", both_ways(512), 1_000, 20.0),
)


def run(problem: Problem, is_all: bool = False) -> list[Found]:
    """Our projection and those of the peers, of one noisy vector."""
    work = problem.make()
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(min(work.domain.size, 2**16), 0.1))
    places = np.zeros(work.domain.size)
    chosen = rng.choice(work.domain.size, len(shares), replace=False)
    places[chosen] = rng.multinomial(problem.records, shares)
    truth = work.evaluate(places.reshape(work.domain.shape))
    y = truth + problem.noise * rng.normal(size=len(truth))
    weights = rng.random(len(y)) + 0.1 if problem.is_uneven else None
    found, seconds = _timed(lambda: sf.project(y, work, problem.records, weights))
    least, error = found.value - found.gap, problem.noise
    sizes = problem.name, work.domain.size, len(y)

    def row(way: str, seconds: float, answers: np.ndarray, method: str) -> Found:
        w = np.ones(len(y)) if weights is None else weights
        value = 0.5 * float(w @ (answers - y) ** 2)
        after = float(np.sqrt(np.mean((answers - truth) ** 2)))
        gap = max(0.0, value - least) / value
        return Found(sizes[0], way, *sizes[1:], seconds, gap, error, after, method)

    out = [row("sfumato", seconds, found.answers, found.method)]
    for peer in (*problem.peers, *(problem.long if is_all else ())):
        rows = _matrix(work)
        solve = {"scipy": _nnls, "cvxpy": _program}[peer]
        h, seconds = _timed(lambda rows=rows, solve=solve: solve(rows, y, problem.records))  # type: ignore[misc]
        out.append(row(peer, seconds, rows @ h, {"scipy": "nnls", "cvxpy": "Clarabel"}[peer]))
    return out


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = call()
    seconds = time.process_time() - start
    if seconds < QUICK:  # the second run compiles nothing
        start = time.process_time()
        found = call()
        seconds = time.process_time() - start
    return found, seconds


def _matrix(work: sf.Workload) -> csr_matrix:
    """F: a row per query, a column per cell."""
    shape, names = work.domain.shape, work.domain.names
    codes = np.indices(shape).reshape(len(shape), -1)
    out = []
    for term in work.terms:
        at = [names.index(name) for name in term.attributes]
        cell = np.ravel_multi_index(tuple(codes[at]), [shape[a] for a in at])
        table = np.eye(int(np.prod([shape[a] for a in at])))
        columns = np.array([term.answer(row.reshape([shape[a] for a in at])) for row in table])
        out.append(csr_matrix(columns.T)[:, cell])
    return vstack(out, format="csr")


def _nnls(rows: csr_matrix, y: np.ndarray, n: int) -> np.ndarray:
    from bench.explicit import _nnls as solve

    return solve(rows.toarray(), y, n)


def _program(rows: csr_matrix, y: np.ndarray, n: int) -> np.ndarray:
    import cvxpy as cp

    h = cp.Variable(rows.shape[1], nonneg=True)
    rest = cp.Variable(rows.shape[0])
    limits = [cp.sum(h) == n, rest == rows @ h - y]
    cp.Problem(cp.Minimize(cp.sum_squares(rest)), limits).solve(cp.CLARABEL)
    cut = np.maximum(h.value, 0.0)
    return cut * (n / cut.sum())


def main(effort: Effort = "usual") -> None:
    """Print all problems as a table."""
    from rich.table import Table

    title = "Projection where cells can be listed, n public; gaps are relative to the value"
    shown = Table(title=title)
    shown.add_column("problem", no_wrap=True)
    for head in ("cells", "queries", "by", "CPU s", "over ours", "gap", "before", "after"):
        shown.add_column(head, justify="right", no_wrap=True)
    with threadpool_limits(limits=1):
        for problem in (*PROBLEMS, *(LONG if effort == "all" else ())):
            rows = run(problem, effort == "all")
            for f in rows:
                shown.add_row(
                    f.problem, f"{f.cells:,}", f"{f.queries:,}", f"{f.way}, {f.method}",
                    f"{f.seconds:.2f}", f"{f.seconds / rows[0].seconds:,.1f}", f"{f.gap:.1e}",
                    f"{f.before:g}", f"{f.after:.3g}", end_section=f is rows[-1],
                )  # fmt: skip
    show(shown)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        for asked in [p for p in (*PROBLEMS, *LONG) if p.name == sys.argv[1]]:
            print(*run(asked, is_all=True), sep="\n")
