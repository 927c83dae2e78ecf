# SPDX-License-Identifier: Apache-2.0
"""How often intervals hold the truth, and how wide they are: of the noise, published, bootstrap.

    python -m bench intervals

Made-up records, drawn once per number of records; every release draws fresh noise. Coverage is the
mean over all answers of all releases; answers of one release share noise, so its standard error is
that of the releases. The last column looks at single answers over all releases: the least of 112
is below the level by chance too. A bootstrap release is the time of 200, so there are fewer.

Beyond listed cells intervals are calibrated: all pairs of two public tables that Python brings
along, one release each, coverage of all answers and of the tenth of true counts held least often,
and half the median width over the root mean square error, beside that of intervals of the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

import sfumato as sf
from bench.characters import TABLES
from bench.tell import show
from sfumato.run.linear import Plan

RELEASES = {"noise, uncut": 100, "published": 100, "bootstrap": 10}
RECORDS = (100, 10_000)
LEVEL = 0.95
DOMAIN = sf.Domain({"age": 8, "work": 5, "sex": 2, "income": 2})


def records(count: int) -> pd.DataFrame:
    """Uneven and dependent: many cells are empty."""
    rng = np.random.default_rng(count)
    shares = rng.dirichlet(np.full(DOMAIN.size, 0.3))
    cells = np.unravel_index(rng.choice(DOMAIN.size, count, p=shares), DOMAIN.shape)
    return pd.DataFrame(dict(zip(DOMAIN.names, cells, strict=True)))


@dataclass(frozen=True)
class Row:
    """How often intervals of one kind hold; ``least`` is of the answer held least often."""

    kind: str
    releases: int
    coverage: float
    standard_error: float
    width: float
    least: float


def measured(count: int, releases: Mapping[str, int] = RELEASES) -> list[Row]:
    """One row a kind of intervals, on so many records."""
    people = records(count)
    exact = np.zeros(DOMAIN.shape)
    np.add.at(exact, tuple(people[n] for n in DOMAIN.names), 1.0)
    work = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "age", by=["sex"])
    truth = work.evaluate(exact)
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    half = np.concatenate([plan.half_widths(t, LEVEL) for t in range(len(work.terms))])
    rows = []
    for kind, many in releases.items():
        hits, widths = [], []
        for _ in range(many):
            frame = _released(plan, people, kind)
            if kind == "noise, uncut":
                low, high = frame["unbiased"] - half, frame["unbiased"] + half
            else:
                low, high = frame["low"], frame["high"]
            hits.append(((low <= truth) & (truth <= high)).to_numpy())
            widths.append(float((high - low).mean()))
        each = np.mean(hits, axis=1)
        error = float(each.std(ddof=1)) / many**0.5
        least = float(np.mean(hits, axis=0).min())
        rows.append(Row(kind, many, float(each.mean()), error, float(np.mean(widths)), least))
    return rows


def _released(plan: Plan, people: pd.DataFrame, kind: str) -> pd.DataFrame:
    how = "bootstrap" if kind == "bootstrap" else "noise"
    return plan.release(people, intervals=how).answers(level=LEVEL)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Calibrated:
    """Calibrated intervals of one release; widths over the error, ``noise`` those of the noise."""

    table: str
    epsilon: float
    coverage: float
    least_tenth: float
    width: float
    noise: float


def calibrated(name: str, epsilon: float) -> Calibrated:
    """One release of all pairs of a public table, judged by its true counts."""
    shape, codes = TABLES[name]()
    domain = sf.Domain({f"x{i}": size for i, size in enumerate(shape)})
    people = pd.DataFrame(codes, columns=list(domain.names))
    work = sf.marginals(domain, 2)
    plan = sf.plan(work, sf.Budget(epsilon=epsilon, delta=1e-9))
    truths = []
    for term in work.terms:
        at = [people[n].to_numpy() for n in term.attributes]
        cells = np.ravel_multi_index(at, [domain[n].size for n in term.attributes])
        truths.append(np.bincount(cells, minlength=term.rows))
    truth = np.concatenate(truths)
    result = plan.release(people, intervals="calibrated")
    frame = result.answers(level=LEVEL)
    held = ((frame["low"] <= truth) & (truth <= frame["high"])).to_numpy()
    ordered = np.argsort(truth, kind="stable")
    firsts = np.unique([truth[part[0]] for part in np.array_split(ordered, 10)])
    tenth = np.searchsorted(firsts, truth, side="right")  # equal counts are in one tenth
    error = float(np.sqrt(np.mean((frame["value"] - truth) ** 2)))
    half = np.concatenate([plan.half_widths(t, LEVEL) for t in range(len(work.terms))])
    low = np.maximum(frame["unbiased"] - half, 0)
    wide = np.maximum(frame["unbiased"] + half, 0) - low
    return Calibrated(
        name,
        epsilon,
        float(held.mean()),
        min(float(held[tenth == t].mean()) for t in np.unique(tenth)),
        float((frame["high"] - frame["low"]).median()) / 2 / error,
        float(wide.median()) / 2 / error,
    )


def main() -> None:
    """Print the tables."""
    from rich.table import Table

    shown = Table(title=f"Intervals at level {LEVEL}, epsilon = 1, delta = 1e-9")
    heads = (
        "intervals",
        "records",
        "releases",
        "coverage",
        "+-",
        "mean width",
        "least held",
    )
    for heading in heads:
        shown.add_column(heading, justify="left" if heading == "intervals" else "right")
    for count in RECORDS:
        for row in measured(count):
            shown.add_row(
                row.kind,
                f"{count:,}",
                str(row.releases),
                f"{row.coverage:.3f}",
                f"{row.standard_error:.3f}",
                f"{row.width:.1f}",
                f"{row.least:.2f}",
            )
    show(shown)
    other = Table(title=f"Calibrated intervals at level {LEVEL}, all pairs, delta = 1e-9")
    for heading in ("table", "epsilon", "coverage", "least tenth", "half width", "of the noise"):
        other.add_column(heading, justify="left" if heading == "table" else "right")
    for name in TABLES:
        for epsilon in (0.1, 1.0):
            one = calibrated(name, epsilon)
            other.add_row(
                one.table,
                f"{one.epsilon:g}",
                f"{one.coverage:.3f}",
                f"{one.least_tenth:.2f}",
                f"{one.width:.2f}",
                f"{one.noise:.2f}",
            )
    show(other)
