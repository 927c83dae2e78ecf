# SPDX-License-Identifier: Apache-2.0
"""Exact integer noise, draws per second on one core: sfumato beside OpenDP and diffprivlib.

sfumato and OpenDP noise a vector of integers, diffprivlib one integer a call. The Laplace law is
the same; the peers' Gaussian is the discrete Gaussian, sfumato's is the Gaussian rounded to
integers: other laws with the same privacy. (diffprivlib computes with floats: its draws are quick,
not exact.) Draws per second of CPU time, the best of three runs; the ratio is to OpenDP, for
vectors of the same length.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from bench.tell import Effort, show
from sfumato.random import system_words
from sfumato.vault.mechanisms.noise import discrete_laplace, rounded_gaussian

__all__ = ["Row", "main", "run"]

SCALES = (1, 10, 1_000, 1_000_000)
LONG, SHORT = 2_000_000, 20_000  # draws a call
REPEATS = 3
ENOUGH = 0.5  # CPU seconds of single draws: with a large scale one can take seconds


@dataclass(frozen=True)
class Row:
    """Draws per second: sfumato in long and short vectors, OpenDP in short ones."""

    law: str
    scale: int
    long: float
    short: float
    opendp: float
    diffprivlib: float | None


def draws_per_second(draw: Callable[[], object], draws: int) -> float:
    """Best rate of `REPEATS` calls after one call that is not timed."""
    draw()
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        draw()
        best = min(best, time.process_time() - start)
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


def run(scales: Sequence[int] = SCALES) -> list[Row]:
    """One row per law and scale."""
    laws = {"laplace": discrete_laplace, "gaussian": rounded_gaussian}
    words = system_words()
    zeros = [0] * SHORT
    rows = []
    for scale in scales:
        theirs, single = opendp_samplers(scale), diffprivlib_samplers(scale)
        for law, sampler in laws.items():

            def noised(draws: int, sampler=sampler, scale=Fraction(scale)) -> float:
                # As in OpenDP, the sum of data and noise is what is timed.
                counts = np.zeros(draws, dtype=np.int64)
                return draws_per_second(lambda: counts + sampler(scale, draws, words), draws)

            peer = draws_per_second(lambda peer=theirs[law]: peer(zeros), SHORT)
            rows.append(
                Row(law, scale, noised(LONG), noised(SHORT), peer, _single(single.get(law)))
            )
    return rows


def _single(randomise: Callable[[int], object] | None) -> float | None:
    if randomise is None:
        return None
    start, drawn = time.process_time(), 0
    while time.process_time() - start < ENOUGH or drawn < REPEATS:
        randomise(0)
        drawn += 1
    return drawn / (time.process_time() - start)


def main(effort: Effort = "usual") -> None:
    """Print the rows as a table."""
    from rich.table import Table

    table = Table(title="Exact integer noise, draws per second of one core, by draws a call")
    ours = (f"sfumato, {LONG:,}", f"sfumato, {SHORT:,}")
    for heading in ("law", "scale", *ours, f"OpenDP, {SHORT:,}", "ratio", "diffprivlib, 1"):
        table.add_column(heading, justify="left" if heading == "law" else "right")
    for row in run(SCALES[::2] if effort == "quick" else SCALES):
        table.add_row(
            row.law,
            f"{row.scale:,}",
            f"{row.long:,.0f}",
            f"{row.short:,.0f}",
            f"{row.opendp:,.0f}",
            f"{row.short / row.opendp:,.0f}x",
            "not installed" if row.diffprivlib is None else f"{row.diffprivlib:,.0f}",
        )
    show(table)
