# SPDX-License-Identifier: Apache-2.0
"""Projection: what it takes off the error, how long it takes, and the same of other systems.

1. Cells that can be listed (``bench/explicit.py``): the nearest answers that data can have.
2. 6.4e17 cells (``bench/implicit.py``): all two-way marginals of Adult.
3. On few cells and beyond listed ones: what a release publishes by default, which may divide its
   budget, beside each estimate that it could have published (``bench/ratios.py``).
4. With ``--all``: three-way marginals, peers that take minutes, and the example of the lecture
   notes for the third (2,000 records, 30 yes/no attributes, all marginals up to three ways).

Packages that are installed are run here: scipy, cvxpy, mbi. Rows marked *file* come from
``bench/peers/data-dependent.csv``, measured elsewhere on one core: their errors can be compared
with ours, their seconds and memory hardly. *Asked* is what a system was told that is wanted.

    python -m bench projection          about ten minutes of CPU time
    python -m bench projection --all    with the long rows

Tables are printed; ``bench/results`` gets ``projection.csv`` and ``projection.png``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from bench import explicit, implicit
from bench.ratios import ratios_table, run_ratios, summary
from bench.tell import Effort, is_within

__all__ = [
    "Judged",
    "Solved",
    "figures",
    "main",
    "run_explicit",
    "run_implicit",
    "solvers",
]

RESULTS = Path(__file__).parent / "results"
FILE = Path(__file__).parent / "peers" / "data-dependent.csv"
ADULT = "adult (14 attrs; 588 one-hot; 6.4e17 cells)"
LISTED = {10: "NLTCS 2^10 n=1000", 16: "NLTCS 2^16 n=1000", 20: "synthetic mixture 2^20 n=1000"}
NOT_PEERS = ("column generation", "projection study")
HERE, FILED = "here", "file"
LIVE_EPSILONS = (1.0,)


@dataclass(frozen=True)
class Judged:
    """Errors of shares of one system at one epsilon; ``where`` it ran."""

    way: str
    is_ours: bool
    where: str
    epsilon: float
    ways: int
    judged: int
    mean_l1: float
    max_abs: float
    rmse: float
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Solved:
    """One projection of listed cells; ``excess`` is certified, errors are known on shared data."""

    way: str
    is_ours: bool
    where: str
    attributes: int
    seconds: float
    megabytes: float | None
    excess: float | None = None
    before: float | None = None
    after: float | None = None


def figures(judged: int) -> list[Judged]:
    """What the file says of other systems on the tables of Adult of so many attributes."""
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in _filed():
        if row["dataset"] == ADULT and row["workload"] == f"all {judged}-way":
            found.setdefault((row["peer"], row["epsilon"]), {})[row["metric"]] = row
    out = []
    for (peer, epsilon), by in found.items():
        one = by["mean_L1"]
        errors = [float(by[metric]["value"]) for metric in ("mean_L1", "max_abs", "rmse")]
        ways = judged if f"all {judged}-way" in one["notes"] else _trained(one["notes"])
        cost = float(one["seconds"]), float(one["peak_mb"])
        out.append(Judged(peer, False, FILED, float(epsilon), ways, judged, *errors, *cost))
    return out


def solvers(attributes: int) -> list[Solved]:
    """What the file says of the seconds of projections of as many cells; the data are others."""
    found = []
    for row in _filed():
        if row["dataset"] == LISTED[attributes] and row["metric"] == "projection_obj":
            cost = float(row["seconds"]), float(row["peak_mb"])
            found.append(Solved(row["peer"], False, FILED, attributes, *cost))
    return found


def _filed() -> list[dict[str, str]]:
    with FILE.open(newline="") as file:
        return [r for r in csv.DictReader(file) if not r["peer"].startswith(NOT_PEERS)]


def _trained(notes: str) -> int:
    return 2 if "trained for all 2-way" in notes else 0


def run_explicit(effort: Effort = "usual") -> tuple[list[Solved], list[str]]:
    """Every way on the same noisy answers, and what could not be run."""
    found: dict[int, list[explicit.Found]] = {}
    messages = []
    for asked in explicit.RUNS:
        if not is_within(asked.effort, effort):
            continue
        if asked.missing is not None:
            messages.append(asked.missing)
            continue
        found.setdefault(asked.attributes, []).append(explicit.run_alone(asked))
    rows = []
    for attributes, runs in found.items():
        least = max(f.least for f in runs)
        for f in runs:
            cost, errors = (f.seconds, f.megabytes), (f.excess(least), f.before, f.after)
            rows.append(Solved(f.way, f.way == "sfumato", HERE, attributes, *cost, *errors))
        rows += solvers(attributes)
    return rows, messages


def run_implicit(effort: Effort = "usual") -> tuple[list[Judged], list[str]]:
    """Every way on Adult, beside the figures of the file, and what could not be run."""
    rows, messages = [], []
    for asked in _asked(effort):
        if asked.missing is not None:
            messages.append(asked.missing)
            continue
        for f in implicit.run_alone(asked):
            numbers = f.mean_l1, f.max_abs, f.rmse, f.seconds, f.megabytes
            is_ours = asked.way != "mbi"
            rows.append(Judged(f.way, is_ours, HERE, f.epsilon, f.ways, f.judged, *numbers))
    wide = figures(3) if effort == "all" else []
    return [*rows, *figures(2), *wide], messages


def _asked(effort: Effort) -> list[implicit.Run]:
    if effort == "quick":
        return [implicit.Run(way) for way in (implicit.QUICK, "adaptive")]
    if effort == "usual":
        return [*implicit.RUNS, implicit.Run("mbi", LIVE_EPSILONS)]
    models = ("rows", "prior rows", "adaptive")  # these answer tables that nobody measured
    asked = [implicit.Run(r.way, judged=(2, 3) if r.way in models else (2,)) for r in implicit.RUNS]
    wide = ("gaussian simplex+optimal simplex", "adaptive")
    asked += [implicit.Run(way, ways=3, judged=(3,)) for way in wide]
    return [*asked, implicit.Run("mbi")]


def best(rows: Sequence[Judged], epsilon: float, judged: int) -> Judged | None:
    """The peer of least mean L1 distance, run here or filed."""
    fitting = [r for r in rows if not r.is_ours and (r.epsilon, r.judged) == (epsilon, judged)]
    return min(fitting, key=lambda r: r.mean_l1, default=None)


def main(effort: Effort = "usual") -> None:
    """Print the tables; write all figures and the picture to ``bench/results``."""
    from bench.show_projection import judged_table, picture, reductions, solved_table, written

    solved, absent = run_explicit(effort)
    solved_table(solved)
    with threadpool_limits(limits=1):
        reductions([explicit.reduction(16, n) for n in explicit.REDUCTIONS])
        beside = run_ratios(effort)
    ratios_table(beside)
    summary(beside)
    rows, missing = run_implicit(effort)
    for judged in (2, 3):
        for epsilon in implicit.EPSILONS:
            chosen = [r for r in rows if (r.epsilon, r.judged) == (epsilon, judged)]
            if any(r.is_ours for r in chosen):
                judged_table(chosen, best(rows, epsilon, judged))
    for message in dict.fromkeys([*absent, *missing]):
        print(message)
    RESULTS.mkdir(exist_ok=True)
    for path in (written(solved, rows, RESULTS), picture(rows, RESULTS)):
        print(path)
