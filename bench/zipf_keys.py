# SPDX-License-Identifier: Apache-2.0
"""Keys of a Zipf table of words: how many are published, and how well they are counted.

    python -m bench zipf_keys

Words are drawn from Zipf's law over 20,000 of them, once. OpenDP's noisy threshold on a histogram
is taken twice: at the least threshold whose delta it says fits, and at the least one at which a key
of one person comes out with probability delta at most, by the law of its noise. The first publishes
numbers that are *equal* to the threshold, which its delta (of 0.16.0) does not count: keys of one
person come out more often than it says, as the last column shows. Errors are of the published
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
import pandas as pd

import sfumato as sf
from bench.tell import show

WORDS, DRAWS, RELEASES, SINGLES = 20_000, 21_500, 40, 200_000
EPSILON, DELTA = 1.0, 1e-6
WIDE_DELTA = 1e-2  # at which keys of one person are seen at all


@dataclass(frozen=True)
class Row:
    """One way: keys on average, their error, and how often keys of one person come out."""

    name: str
    keys: float
    error: float
    singles: float


def words() -> dict[str, int]:
    """The words of the table, with their numbers."""
    rng = np.random.default_rng(5)
    chances = 1 / np.arange(1, WORDS + 1)
    drawn = rng.choice(WORDS, size=DRAWS, p=chances / chances.sum())
    found, numbers = np.unique(drawn, return_counts=True)
    return {f"w{i}": int(n) for i, n in zip(found, numbers, strict=True)}


def opendp_keys(delta: float, is_counted: bool) -> Callable[[Mapping[str, int]], dict[str, int]]:
    """OpenDP's threshold on counts; ``is_counted``: the least one that keeps delta by the law."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (
        dp.map_domain(dp.atom_domain(T="String"), dp.atom_domain(T=int)),
        dp.l01inf_distance(dp.absolute_distance(T=int)),
    )
    threshold = 1
    while True:
        made = space >> dp.m.then_laplace_threshold(scale=1 / EPSILON, threshold=threshold)
        # 1 + noise >= threshold: P(noise >= z) = q^z / (1 + q) of discrete Laplace noise, z > 0.
        passed = exp(-EPSILON * (threshold - 1)) / (1 + exp(-EPSILON))
        if (passed if is_counted else made.map((1, 1, 1))[1]) <= delta:
            return lambda data: made(dict(data))
        threshold += 1


def sfumato_keys(delta: float) -> Callable[[Mapping[str, int]], dict[str, float]]:
    """A discovery of the words, by the law that a plan takes."""
    budget = sf.Budget(epsilon=EPSILON, delta=delta)
    plan = sf.plan_discovery(sf.Category.discover("word"), budget)

    def run(data: Mapping[str, int]) -> dict[str, float]:
        column = np.repeat(list(data), list(data.values()))
        found = plan.release(pd.DataFrame({"word": pd.array(column, dtype="string")})).counts
        return dict(zip(found["key"], found["count"], strict=True))

    return run


def measured(
    name: str,
    make: Callable[[float], Callable[[Mapping[str, int]], Mapping[str, float]]],
    releases: int = RELEASES,
    singles: int = SINGLES,
) -> Row:
    """Keys and errors of one way, and its keys of one person at a delta that shows them."""
    truth, keys, squares = words(), 0, 0.0
    run = make(DELTA)
    for _ in range(releases):
        published = run(truth)
        keys += len(published)
        squares += sum((number - truth[key]) ** 2 for key, number in published.items())
    alone = make(WIDE_DELTA)({f"k{i}": 1 for i in range(singles)})
    return Row(name, keys / releases, sqrt(squares / keys), len(alone) / singles)


def rows(releases: int = RELEASES, singles: int = SINGLES) -> list[Row]:
    """Both of OpenDP's, and ours."""
    ways: dict[str, Callable[[float], Callable[[Mapping[str, int]], Mapping[str, float]]]] = {
        "OpenDP, the delta that it says": lambda delta: opendp_keys(delta, False),
        "OpenDP, delta by the law": lambda delta: opendp_keys(delta, True),
        "sfumato": sfumato_keys,
    }
    return [measured(name, make, releases, singles) for name, make in ways.items()]


def main() -> None:
    """Print the table."""
    from rich.table import Table

    found = rows()
    honest = found[1]
    shown = Table(
        title=f"{len(words()):,} words of Zipf's law at ({EPSILON:g}, {DELTA:g}), {RELEASES} "
        f"releases; keys of one person at delta = {WIDE_DELTA:g}"
    )
    heads = ("way", "keys", "ratio", "error", "ratio", "keys of one person")
    for heading in heads:
        shown.add_column(heading, justify="left" if heading == "way" else "right")
    for row in found:
        shown.add_row(
            row.name,
            f"{row.keys:.1f}",
            f"{row.keys / honest.keys:.3f}",
            f"{row.error:.3f}",
            f"{row.error / honest.error:.3f}",
            f"{row.singles / WIDE_DELTA:.2f} delta",
        )
    show(shown)


if __name__ == "__main__":
    main()
