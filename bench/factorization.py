# SPDX-License-Identifier: Apache-2.0
"""Factorization: our error, certificate and CPU seconds beside those of other systems.

Errors are at unit noise (a standard deviation of one column norm). Ours are planned here and now
through ``sf.plan``, on one thread; the seconds are those of planning and certifying, once compiled,
the best of three for quick ones. Figures of peers come from ``bench/peers/factorization.csv``:
their errors can be compared with ours, their seconds are of another machine. Packages that are
installed are also run here (``bench/live.py``), and only beside them a speed-up is stated.

    python -m bench factorization          the quick rows, a few minutes
    python -m bench factorization --all    all rows

Tables are printed; ``bench/results`` gets ``factorization.csv`` (every peer on every workload) and
``factorization.png``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

from threadpoolctl import threadpool_limits

import sfumato as sf
from bench import live, million
from bench.cases import KINDS, Case, cases
from bench.figures import Figure, best, figures, unfinished
from bench.tell import Effort, is_within
from sfumato.errors import SfumatoError
from sfumato.run.linear import Plan
from sfumato.run.stream import Stream

__all__ = ["Row", "main", "run", "run_live"]

RESULTS = Path(__file__).parent / "results"
REPEATS = 3
QUICK = 1.0  # CPU seconds of timing after which a plan is not timed again


@dataclass(frozen=True)
class Row:
    """One workload: ours, and one peer (None where there is no figure)."""

    kind: str
    workload: str
    error: float | None
    certificate: float | None
    seconds: float | None
    peer: str | None = None
    peer_error: float | None = None
    peer_seconds: float | None = None
    is_peer_here: bool = False
    note: str = ""

    @property
    def error_ratio(self) -> float | None:
        """Our error over the peer's: below 1 is better."""
        known = self.error is not None and self.peer_error is not None
        return self.error / self.peer_error if known else None  # type: ignore[operator]

    @property
    def speed_up(self) -> float | None:
        """The peer's CPU seconds over ours, where both were run here."""
        known = self.seconds and self.peer_seconds is not None and self.is_peer_here
        return self.peer_seconds / self.seconds if known else None  # type: ignore[operator]

    def beside(self, figure: Figure | None) -> Row:
        """The same, compared with a figure."""
        if figure is None:
            return self
        return replace(self, peer=figure.name, peer_error=figure.error, peer_seconds=figure.seconds)


def ours(case: Case) -> Row:
    """Plan the workload, each time from the beginning; the least seconds of up to three times.

    The first plan may have to compile: as with the peers, it stands alone only if it is long.
    """
    least, spent = float("inf"), 0.0
    try:
        for repeat in range(REPEATS):
            work = case.build()
            _forget()
            start = time.process_time()
            error, certificate, how = _planned(case.kind, work)
            taken = time.process_time() - start
            least, spent = min(least, taken), spent + (taken if repeat else 0.0)
            if spent >= QUICK or taken >= live.QUICK:
                break
    except SfumatoError as why:
        return Row(case.kind, case.name, None, None, None, note=str(why))
    return Row(case.kind, case.name, error, certificate, least, note=how)


def _forget() -> None:
    """Empty what functions of the planner remember, so that no run profits from an earlier one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sfumato."):
            for found in vars(module).values():
                if hasattr(found, "cache_clear"):
                    found.cache_clear()


def _planned(kind: str, work: sf.Workload) -> tuple[float, float | None, str]:
    """Error at unit noise, certificate and mechanism."""
    if kind.startswith("stream"):
        return _streamed(kind, work.queries)
    if kind == "laplace":
        plan = sf.plan(work, sf.Budget(epsilon=1), seconds=None, cache=False)
    else:
        plan = sf.plan(
            work,
            sf.Budget(mu=1),
            objective=kind,
            mechanism="factorization",
            seconds=None,
            cache=False,
        )
    return _error(kind, plan), plan.certificate, plan.mechanism


def _streamed(kind: str, length: int) -> tuple[float, float | None, str]:
    """A stream of this length; the certificate is against all factorizations, streams or not."""
    plan = Stream(length, sf.Budget(mu=1)).forecast
    if kind == "stream":
        return plan.gamma, plan.certificate, plan.strategy
    return plan.sensitivity * sqrt(plan.rows_squared.max()), None, plan.strategy


def _error(kind: str, plan: Plan) -> float:
    """The error at unit noise, from the strategy itself: no grid, no budget."""
    strategy, terms = plan.strategy, range(len(plan.workload.terms))
    unit = [b.share**-2 for b in strategy.blocks]
    p = 1 if kind == "laplace" else 2
    norm = strategy.sensitivity(p).power ** (1 / p)
    if kind == "max":
        return norm * sqrt(max(strategy.maximum_variance(t, unit) for t in terms))
    total = sum(strategy.total_variance(t, unit) for t in terms)
    return norm * sqrt(total / plan.workload.queries)


def run(effort: Effort = "usual") -> list[Row]:
    """One row per case, beside the best peer."""
    known = figures()
    rows = []
    with threadpool_limits(limits=1):
        for case in cases():
            if case.is_long and effort != "all":
                continue
            rows.append(ours(case).beside(best(known, case.kind, case.keys)))
    return rows


def run_live(effort: Effort = "usual") -> tuple[list[Row], list[str]]:
    """One row per run of an installed package, and what could not be run."""
    rows: list[Row] = []
    messages: list[str] = []
    for asked in live.RUNS:
        if not is_within(asked.effort, effort):
            continue
        absent = live.missing(asked)
        if absent is not None:
            messages += [absent] if absent not in messages else []
            continue
        found = live.run(asked)
        with threadpool_limits(limits=1):
            mine = ours(asked.case)
        name = f"{mine.workload}, largest error" if asked.kind.endswith("max") else mine.workload
        theirs = {"peer": found.peer, "peer_error": found.error, "peer_seconds": found.seconds}
        rows.append(replace(mine, workload=name, is_peer_here=True, **theirs))
    return rows, messages


def main(effort: Effort = "usual") -> None:
    """Print the tables; write every pair of figures and the picture to ``bench/results``."""
    from bench.show import large, picture, table, written

    beside, messages = run_live(effort)
    table("Packages run here", beside)
    rows = run(effort)
    for kind, title in KINDS.items():
        found = [r for r in rows if r.kind == kind]
        table(f"Best of the figures in bench/peers: {title}", found)
    messages += [f"Never finished in bench/peers: {name}" for name in unfinished()]
    print(*["", *messages], sep="\n")
    if effort != "quick":
        large([million.run(*asked) for asked in million.RUNS])
    RESULTS.mkdir(exist_ok=True)
    for path in (written(every_pair(rows, beside), RESULTS), picture(rows, RESULTS)):
        print(path)


def every_pair(rows: Iterable[Row], beside: Iterable[Row]) -> list[Row]:
    """Our rows beside every figure that any peer has, not the best alone."""
    known = figures()
    names = {(c.kind, c.name): c.keys for c in cases()}
    out = []
    for row in rows:
        keys = names[row.kind, row.workload]
        found = [f for f in known if f.kind == row.kind and f.key in keys]
        out += [row.beside(f) for f in found] or [row]
    return [*out, *beside]
