# SPDX-License-Identifier: Apache-2.0
"""Means of continuous columns: errors beside OpenDP's clamped mean, and how often intervals hold.

    python -m bench means

Variances follow: beside OpenDP's for a public number of records, and beside a count, a sum and a
sum of squares with a third of the budget each, which OpenDP offers where the number is private.

Made-up columns, drawn once; every release draws fresh noise. OpenDP's mean of an unknown number of
records is a clamped sum over a count, with half of the budget each; with a public number of records
it is one sum of sensitivity ``high - low``, which is nearly the best there is. Budgets are pure
epsilon, and zero-concentrated rho beside Gaussian noise of ``mu = sqrt(2 rho)``. The true mean is
that of the clamped values; bins are those of the schema, which means do not use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

import sfumato as sf
from bench.tell import show
from sfumato.domain.attributes import Numeric
from sfumato.domain.domain import Domain

if TYPE_CHECKING:
    from rich.table import Table

RELEASES = 200
RECORDS = 20_000
LEVEL = 0.95
BINS = (1, 5, 20, 100)
EPSILON, RHO = 1.0, 0.125

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A column and the range that is declared of it."""

    name: str
    low: float
    high: float
    values: Array


def columns(count: int = RECORDS) -> list[Column]:
    """Skewed, even and narrow ones; some values lie outside the range."""
    rng = np.random.default_rng(17)
    return [
        Column("incomes, 0 to 200,000", 0.0, 200_000.0, rng.lognormal(10.3, 0.9, count)),
        Column("ages, 17 to 90", 17.0, 90.0, rng.normal(45, 18, count)),
        Column("temperatures, 35 to 42", 35.0, 42.0, rng.normal(37.0, 0.6, count)),
    ]


@dataclass(frozen=True)
class Row:
    """One column and budget: errors of both, and how often our intervals hold, by bins."""

    column: str
    budget: str
    theirs: float
    ours: float
    coverage: dict[int, float]


def domain_of(edges: tuple[float, ...], neighbours: str) -> Domain:
    """The column as both systems promise it: with replaced records the number of values is public.

    A cell for missing values would make that number private, and both statistics err more.
    """
    if neighbours == "replace-one":
        return Domain([Numeric("x", edges)], records="all-inside")
    return Domain([Numeric("x", edges, outside="clamp", nulls="missing")])


def measured(column: Column, is_pure: bool, neighbours: str, releases: int = RELEASES) -> Row:
    """Both systems, as often as asked."""
    truth = float(np.clip(column.values, column.low, column.high).mean())
    theirs = opendp_mean(column, is_pure, neighbours)
    other = sqrt(float(np.mean([(theirs() - truth) ** 2 for _ in range(releases)])))
    budget = sf.Budget(epsilon=EPSILON) if is_pure else sf.Budget(mu=sqrt(2 * RHO))
    frame = pd.DataFrame({"x": column.values})
    errors: list[float] = []
    coverage = {}
    for bins in BINS:
        edges = tuple(np.linspace(column.low, column.high, bins + 1))
        domain = domain_of(edges, neighbours)
        work = sf.means(domain, "x")
        plan = sf.plan(work, budget, neighbours=neighbours)  # type: ignore[arg-type]
        rows = [plan.release(frame).answers(group="mean x", level=LEVEL) for _ in range(releases)]
        every = pd.concat(rows)
        held = (every["low"] <= truth) & (truth <= every["high"])
        coverage[bins] = float(held.mean())
        errors += (every["mean"] - truth).tolist()
    text = f"epsilon {EPSILON:g}" if is_pure else f"rho {RHO:g}"
    return Row(column.name, text, other, sqrt(float(np.mean(np.square(errors)))), coverage)


def opendp_mean(column: Column, is_pure: bool, neighbours: str) -> Callable[[], float]:
    """Draws of OpenDP's clamped mean: sum over count, or the mean of a public number of records."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics")
    number = dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(number), dp.symmetric_distance()
    noise = dp.m.then_laplace if is_pure else dp.m.then_gaussian
    whole = EPSILON if is_pure else RHO
    data = column.values.tolist()
    ends = (column.low, column.high)
    if neighbours == "replace-one":
        known = dp.vector_domain(number, size=len(data)), dp.symmetric_distance()
        sized = known >> dp.t.then_clamp(ends) >> dp.t.then_mean()
        mean = dp.binary_search_chain(lambda s: sized >> noise(s), d_in=2, d_out=whole)
        return lambda: float(mean(data))
    summed = space >> dp.t.then_clamp(ends) >> dp.t.then_sum()
    counted = space >> dp.t.then_count()
    total = dp.binary_search_chain(lambda s: summed >> noise(s), d_in=1, d_out=whole / 2)
    count = dp.binary_search_chain(lambda s: counted >> noise(s), d_in=1, d_out=whole / 2)
    return lambda: float(total(data)) / max(1.0, float(count(data)))


def opendp_variance(column: Column, is_pure: bool, neighbours: str) -> Callable[[], float]:
    """Draws of OpenDP's variance of a public number of records, or of three sums of unknown many.

    The sums are those of values in [-1, 1] around the middle, which is the best such choice.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics")
    number = dp.atom_domain(T=float, nan=False)
    noise = dp.m.then_laplace if is_pure else dp.m.then_gaussian
    whole = EPSILON if is_pure else RHO
    clipped = np.clip(column.values, column.low, column.high)
    if neighbours == "replace-one":
        data = clipped.tolist()
        known = dp.vector_domain(number, size=len(data)), dp.symmetric_distance()
        ends = (column.low, column.high)
        sized = known >> dp.t.then_clamp(ends) >> dp.t.then_variance(ddof=0)
        variance = dp.binary_search_chain(lambda s: sized >> noise(s), d_in=2, d_out=whole)
        return lambda: float(variance(data))
    half = (column.high - column.low) / 2
    u = (clipped - (column.high + column.low) / 2) / half
    space = dp.vector_domain(number), dp.symmetric_distance()
    sums = []
    for values, ends in ((u, (-1.0, 1.0)), (u**2, (0.0, 1.0))):
        summed = space >> dp.t.then_clamp(ends) >> dp.t.then_sum()
        noisy = dp.binary_search_chain(lambda s, m=summed: m >> noise(s), d_in=1, d_out=whole / 3)
        sums.append((noisy, values.tolist()))
    counted = space >> dp.t.then_count()
    count = dp.binary_search_chain(lambda s: counted >> noise(s), d_in=1, d_out=whole / 3)

    def draw() -> float:
        n = max(1.0, float(count(sums[0][1])))
        first, second = (float(noisy(values)) / n for noisy, values in sums)
        return half**2 * (second - first**2)

    return draw


def measured_variance(column: Column, is_pure: bool, neighbours: str, releases: int) -> Row:
    """Both systems' variances, as often as asked."""
    truth = float(np.clip(column.values, column.low, column.high).var())
    theirs = opendp_variance(column, is_pure, neighbours)
    other = sqrt(float(np.mean([(theirs() - truth) ** 2 for _ in range(releases)])))
    budget = sf.Budget(epsilon=EPSILON) if is_pure else sf.Budget(mu=sqrt(2 * RHO))
    domain = domain_of((column.low, column.high), neighbours)
    plan = sf.plan(sf.variances(domain, "x"), budget, neighbours=neighbours)  # type: ignore[arg-type]
    frame = pd.DataFrame({"x": column.values})
    every = pd.concat([plan.release(frame).answers("x", level=LEVEL) for _ in range(releases)])
    held = (every["low"] <= truth) & (truth <= every["high"])
    ours = sqrt(float(np.mean(np.square(every["variance"] - truth))))
    text = f"epsilon {EPSILON:g}" if is_pure else f"rho {RHO:g}"
    return Row(column.name, text, other, ours, {0: float(held.mean())})


def variances_table(releases: int = RELEASES) -> Table:
    """Variances side by side."""
    from rich.table import Table

    shown = Table(
        title=f"Variances of {RECORDS:,} records, {releases} releases: root mean square errors, "
        f"and how often {LEVEL:.0%} intervals hold the variance of the clamped values"
    )
    heads = ("column", "neighbours", "budget", "OpenDP", "sfumato", "ratio", "held")
    for heading in heads:
        shown.add_column(heading, justify="left" if heading in heads[:3] else "right")
    for neighbours in ("add-remove", "replace-one"):
        for column in columns():
            for is_pure in (True, False):
                row = measured_variance(column, is_pure, neighbours, releases)
                shown.add_row(
                    row.column,
                    neighbours,
                    row.budget,
                    f"{row.theirs:.3g}",
                    f"{row.ours:.3g}",
                    f"{row.ours / row.theirs:.2f}",
                    f"{row.coverage[0]:.3f}",
                )
    return shown


def main() -> None:
    """Print the tables."""
    from rich.table import Table

    shown = Table(
        title=f"Means of {RECORDS:,} records, {RELEASES} releases: root mean square errors, and "
        f"how often {LEVEL:.0%} intervals hold the mean of the clamped values, by bins"
    )
    heads = ("column", "neighbours", "budget", "OpenDP", "sfumato", "ratio")
    for heading in (*heads, *(f"{bins} bins" for bins in BINS)):
        shown.add_column(heading, justify="left" if heading in heads[:3] else "right")
    for neighbours in ("add-remove", "replace-one"):
        for column in columns():
            for is_pure in (True, False):
                row = measured(column, is_pure, neighbours)
                shown.add_row(
                    row.column,
                    neighbours,
                    row.budget,
                    f"{row.theirs:.3g}",
                    f"{row.ours:.3g}",
                    f"{row.ours / row.theirs:.2f}",
                    *(f"{held:.3f}" for held in row.coverage.values()),
                )
    show(shown)
    show(variances_table())
