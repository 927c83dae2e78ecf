# SPDX-License-Identifier: Apache-2.0
"""Exact integer noise, draws per second on one core: sfumato beside OpenDP.

Both libraries noise a vector of integers. The Laplace law is the same; OpenDP's Gaussian is the
discrete Gaussian, sfumato's is the Gaussian rounded to integers. Best of three runs each.
Run alone: ``python -m bench.noise``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sfumato.randomness import system_words
from sfumato.vault.noise import discrete_laplace, rounded_gaussian

__all__ = ["run"]

SCALES = (1, 10, 1_000, 1_000_000)
OUR_DRAWS = 2_000_000
THEIR_DRAWS = 20_000
REPEATS = 3


def draws_per_second(draw: Callable[[], object], draws: int) -> float:
    """Best rate of `REPEATS` calls after one call that is not timed."""
    draw()
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        draw()
        best = min(best, time.perf_counter() - start)
    return draws / best


def opendp_samplers(scale: int) -> dict[str, Callable[[list[int]], object]]:
    """OpenDP's vector mechanisms on 64-bit integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    return {
        "laplace": dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=float(scale)),
        "gaussian": dp.m.make_gaussian(vectors, dp.l2_distance(T=int), scale=float(scale)),
    }


def run() -> list[dict[str, object]]:
    """One row per law and scale: both rates and how many times as fast sfumato is."""
    ours = {"laplace": discrete_laplace, "gaussian": rounded_gaussian}
    words = system_words()
    counts = np.zeros(OUR_DRAWS, dtype=np.int64)
    zeros = [0] * THEIR_DRAWS
    rows: list[dict[str, object]] = []
    for scale in SCALES:
        theirs = opendp_samplers(scale)
        for law, sampler in ours.items():
            # As in OpenDP, the sum of data and noise is what is timed.
            mine = draws_per_second(
                lambda sampler=sampler, scale=scale: (
                    counts + sampler(Fraction(scale), OUR_DRAWS, words)
                ),
                OUR_DRAWS,
            )
            peer = draws_per_second(lambda peer=theirs[law]: peer(zeros), THEIR_DRAWS)
            rows.append(
                {
                    "law": law,
                    "scale": scale,
                    "sfumato_draws_per_s": round(mine),
                    "opendp_draws_per_s": round(peer),
                    "ratio": round(mine / peer, 1),
                }
            )
    return rows


def main() -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Exact integer noise, draws per second, one core")
    for heading in ("law", "scale", "sfumato", "OpenDP", "ratio"):
        table.add_column(heading, justify="left" if heading == "law" else "right")
    for row in run():
        table.add_row(
            str(row["law"]),
            f"{row['scale']:,}",
            f"{row['sfumato_draws_per_s']:,}",
            f"{row['opendp_draws_per_s']:,}",
            f"{row['ratio']:,}x",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
