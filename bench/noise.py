# SPDX-License-Identifier: Apache-2.0
"""Exact integer noise, draws per second on one core: sfumato beside OpenDP and diffprivlib.

sfumato and OpenDP noise a vector of integers, diffprivlib one integer a call. The Laplace law is
the same; the peers' Gaussian is the discrete Gaussian, sfumato's is the Gaussian rounded to
integers. (diffprivlib computes with floats: its draws are quick, not exact.) Best of three runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from bench.tell import Effort, show
from sfumato.randomness import system_words
from sfumato.vault.noise import discrete_laplace, rounded_gaussian

__all__ = ["run"]

SCALES = (1, 10, 1_000, 1_000_000)
OUR_DRAWS = 2_000_000
THEIR_DRAWS = 20_000
SINGLE_DRAWS = 2_000
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


def diffprivlib_samplers(scale: int) -> dict[str, Callable[[int], object]]:
    """diffprivlib's mechanisms on one integer; none where the package is missing.

    Its models do not import beside every scikit-learn, so that only its mechanisms are loaded.
    """
    found = find_spec("diffprivlib")
    if found is None or found.submodule_search_locations is None:
        return {}
    if "diffprivlib" not in sys.modules:
        package = ModuleType("diffprivlib")
        package.__spec__, package.__path__ = found, list(found.submodule_search_locations)
        sys.modules["diffprivlib"] = package
    from diffprivlib.mechanisms import GaussianDiscrete, Geometric

    gaussian = GaussianDiscrete(epsilon=0.5, delta=1e-6, sensitivity=1)
    gaussian._scale = float(scale)  # it offers no other way to say sigma
    return {
        "laplace": Geometric(epsilon=1 / scale, sensitivity=1).randomise,
        "gaussian": gaussian.randomise,
    }


def run(scales: Sequence[int] = SCALES) -> list[dict[str, object]]:
    """One row per law and scale: all rates and how many times as fast sfumato is."""
    ours = {"laplace": discrete_laplace, "gaussian": rounded_gaussian}
    words = system_words()
    counts = np.zeros(OUR_DRAWS, dtype=np.int64)
    zeros = [0] * THEIR_DRAWS
    rows: list[dict[str, object]] = []
    for scale in scales:
        theirs, single = opendp_samplers(scale), diffprivlib_samplers(scale)
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
                    "diffprivlib_draws_per_s": _single(single.get(law)),
                }
            )
    return rows


def _single(randomise: Callable[[int], object] | None) -> int | None:
    if randomise is None:
        return None
    return round(
        draws_per_second(lambda: [randomise(0) for _ in range(SINGLE_DRAWS)], SINGLE_DRAWS)
    )


def main(effort: Effort = "usual") -> None:
    """Print the rows as a table."""
    from rich.table import Table

    table = Table(title="Exact integer noise, draws per second, one core")
    for heading in ("law", "scale", "sfumato", "OpenDP", "ratio", "diffprivlib"):
        table.add_column(heading, justify="left" if heading == "law" else "right")
    for row in run(SCALES[::2] if effort == "quick" else SCALES):
        single = row["diffprivlib_draws_per_s"]
        table.add_row(
            str(row["law"]),
            f"{row['scale']:,}",
            f"{row['sfumato_draws_per_s']:,}",
            f"{row['opendp_draws_per_s']:,}",
            f"{row['ratio']:,}x",
            "not installed" if single is None else f"{single:,}",
        )
    show(table)
