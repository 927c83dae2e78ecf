# SPDX-License-Identifier: Apache-2.0
"""Figures of other systems: ``bench/peers/factorization.csv``, measured elsewhere on one core.

Errors are at unit noise: a standard deviation of one column norm, L2 for Gaussian and L1 for
Laplace noise. Seconds are CPU seconds of choosing the strategy.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from bench.cases import STREAM, Key

__all__ = ["Figure", "best", "figures", "unfinished"]

FILE = Path(__file__).parent / "peers" / "factorization.csv"
NOT_PEERS = ("own", "baseline", "Li-Miklau")
LARGEST = re.compile(r"sqrt\(max err\) ([0-9.]+)")
UNFINISHED = re.compile(r"STOPPED|CAPPED|NOT FINISHED")  # in the notes


@dataclass(frozen=True)
class Figure:
    """The error and the seconds of one peer on one workload."""

    kind: str
    key: Key
    peer: str
    error: float
    seconds: float | None
    queries: int
    notes: str = ""

    @property
    def name(self) -> str:
        """The peer without the owner of its repository, and whether it was stopped early."""
        short = re.sub(r"^[\w-]+/(?=[\w-]+ )", "", self.peer)
        return f"{short}, stopped early" if UNFINISHED.search(self.notes) else short


def figures() -> list[Figure]:
    """All figures of the file that are those of other systems and were finished."""
    found = []
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["peer"].startswith(NOT_PEERS) or not row["rmse"]:
                continue
            found.append(_figure(row))
    return found


def unfinished() -> list[str]:
    """Peers that were stopped before they had any figure, with the workload."""
    with FILE.open(newline="") as file:
        return [
            f"{row['peer']} on {row['workload']}, {row['domain']}"
            for row in csv.DictReader(file)
            if UNFINISHED.search(row["notes"]) and not row["rmse"]
        ]


def best(listed: list[Figure], kind: str, keys: tuple[Key, ...]) -> Figure | None:
    """The least error that a peer has on a workload, the quickest of those that have it."""
    fitting = [f for f in listed if f.kind == kind and f.key in keys]
    return min(fitting, key=lambda f: (f.error, f.seconds or 0.0), default=None)


def _figure(row: dict[str, str]) -> Figure:
    kind, error = _kind(row["objective"]), float(row["rmse"])
    if row["objective"].startswith("max-error"):  # its column is the mean, the notes the largest
        stated = LARGEST.search(row["notes"])
        assert stated is not None, row
        error = float(stated[1])
    if row["workload"] == STREAM:
        kind = {"rmse": "stream", "max": "stream max"}[kind]
    return Figure(
        kind,
        (row["workload"], row["domain"]),
        row["peer"],
        error,
        float(row["seconds"]) if row["seconds"] else None,
        int(row["k"]),
        row["notes"],
    )


def _kind(objective: str) -> str:
    if "L1" in objective:
        return "laplace"
    return "max" if objective.startswith(("max-var", "max-error")) else "rmse"
