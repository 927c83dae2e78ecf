# SPDX-License-Identifier: Apache-2.0
"""Streams: our error beside the binary tree, Toeplitz strategies and the bound on everything.

Errors are root mean squares over all steps at unit noise (Gaussian, a value moves by 1). The best
Toeplitz figures (*file*) are those of jax-privacy in ``bench/peers/factorization.csv``, which
``python -m bench factorization`` also runs live; the square root is computed here. *Numbers* are
what a stream keeps in memory; seconds are CPU seconds of planning.
``python -m bench streams`` prints the tables of docs/mechanisms/streams.md.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import sfumato as sf
from bench.tell import Effort
from sfumato.planning.stream_plans import StreamForecast, forecast_stream
from sfumato.run.stream import Stream

LENGTHS = (64, 256, 1024, 4096, 65536, 1_000_000)
WINDOWS = ((256, 32), (1024, 32), (1024, 256), (4096, 100), (65536, 365), (1_000_000, 1000))
LAPLACE = ((64, None), (1024, None), (65536, None), (1024, 32))


def best_toeplitz() -> dict[int, float]:
    """The best Toeplitz error of other systems, by length."""
    found: dict[int, float] = {}
    with (Path(__file__).parent / "peers" / "factorization.csv").open() as file:
        for row in csv.DictReader(file):
            if "toeplitz" in row["peer"] and row["objective"] == "mean-squared L2":
                length = int(row["domain"])
                found[length] = min(found.get(length, np.inf), float(row["rmse"]))
    return found


def planned(length: int, width: int | None, strategy: str) -> tuple[StreamForecast, float]:
    """A plan and the CPU seconds it took."""
    start = time.process_time()
    plan = forecast_stream(length, sf.Budget(mu=1), width=width, strategy=strategy)
    _ = plan.gamma
    return plan, time.process_time() - start


def totals(lengths: Sequence[int] = LENGTHS) -> None:
    """Running totals."""
    peers = best_toeplitz()
    print("\n**Running totals**\n")
    print("| steps | ours | certificate | best Toeplitz (file) | square root | binary tree |"
          " numbers | seconds |")  # fmt: skip
    print("| --- " * 8 + "|")
    for length in lengths:
        ours, seconds = planned(length, None, "optimal")
        root, tree = (planned(length, None, s)[0].gamma for s in ("toeplitz", "tree"))
        peer = f"{peers[length]:.4f}" if length in peers else ""
        print(f"| {length:,} | {ours.gamma:.4f} | {ours.certificate:.5f} | {peer} | {root:.4f} | "
              f"{tree:.4f} | {ours.state_size} | {seconds:.2f} |")  # fmt: skip


def windows() -> None:
    """Sums of the last values."""
    print("\n**Sums of the last values**\n")
    print("| steps | window | ours | bound | certificate | square root | binary tree | numbers |"
          " seconds |")  # fmt: skip
    print("| --- " * 9 + "|")
    for length, width in WINDOWS:
        ours, seconds = planned(length, width, "optimal")
        root, tree = (planned(length, width, s)[0].gamma for s in ("toeplitz", "tree"))
        print(f"| {length:,} | {width:,} | {ours.gamma:.4f} | {ours.lower_bound:.4f} | "
              f"{ours.certificate:.4f} | {root:.4f} | {tree:.4f} | {ours.state_size:,} | "
              f"{seconds:.2f} |")  # fmt: skip


def laplace() -> None:
    """Pure budgets: errors at epsilon = 1."""
    print("\n**Root mean square errors of pure budgets, epsilon = 1**\n")
    print("| steps | window | best Laplace tree | binary Laplace tree |")
    print("| --- " * 4 + "|")
    for length, width in LAPLACE:
        found = [
            forecast_stream(length, sf.Budget(epsilon=1), width=width, strategy=s).rmse
            for s in ("laplace-tree", "tree")
        ]
        print(f"| {length:,} | {width or ''} | {found[0]:.2f} | {found[1]:.2f} |")


def pace() -> None:
    """How long a step takes."""
    print("\n**CPU time of a step**\n")
    print("| strategy | window | microseconds per step |")
    print("| --- " * 3 + "|")
    for strategy, window in (("optimal", None), ("optimal", 32), ("tree", None)):
        counter = Stream(20_000, sf.Budget(mu=1), strategy, window=window)
        counter.add_many([1] * 1000)
        start = time.process_time()
        counter.add_many([1] * 10_000)
        print(f"| {strategy} | {window or ''} | {(time.process_time() - start) * 100:.0f} |")


def main(effort: Effort = "usual") -> None:
    """Print all tables."""
    lengths = LENGTHS[:-1] if effort == "quick" else LENGTHS
    totals(lengths)
    if effort != "quick":
        windows()
    laplace()
    pace()
