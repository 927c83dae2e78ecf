# SPDX-License-Identifier: Apache-2.0
"""How often intervals hold the truth, and how wide they are: of the noise, published, bootstrap.

    python -m bench intervals

Made-up records, drawn once per number of records; every release draws fresh noise. An answer of a
release is one trial; answers of one release share noise, so the last column looks at single answers
over all releases.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import sfumato as sf
from bench.tell import show

RELEASES = 10
RECORDS = (100, 10_000)
LEVEL = 0.95
DOMAIN = sf.Domain({"age": 8, "work": 5, "sex": 2, "income": 2})


def records(count: int) -> pd.DataFrame:
    """Uneven and dependent: many cells are empty."""
    rng = np.random.default_rng(count)
    shares = rng.dirichlet(np.full(DOMAIN.size, 0.3))
    cells = np.unravel_index(rng.choice(DOMAIN.size, count, p=shares), DOMAIN.shape)
    return pd.DataFrame(dict(zip(DOMAIN.names, cells, strict=True)))


def measured(count: int, releases: int = RELEASES) -> list[tuple[str, float, float, float]]:
    """Kind, mean coverage, mean width, coverage of the answer that is held least often."""
    people = records(count)
    exact = np.zeros(DOMAIN.shape)
    np.add.at(exact, tuple(people[n] for n in DOMAIN.names), 1.0)
    work = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "age", by=["sex"])
    truth = work.evaluate(exact)
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    half = np.concatenate([plan.half_widths(t, LEVEL) for t in range(len(work.terms))])
    hits: dict[str, list[np.ndarray]] = {"noise, uncut": [], "published": [], "bootstrap": []}
    widths: dict[str, list[float]] = {kind: [] for kind in hits}
    for _ in range(releases):
        found = plan.release(people, intervals="bootstrap")
        again = sf.Release.of(plan, found.measured)
        unbiased = again.answers(level=LEVEL)["unbiased"].to_numpy()
        ends = {"noise, uncut": (unbiased - half, unbiased + half)}
        for kind, one in (("published", again), ("bootstrap", found)):
            frame = one.answers(level=LEVEL)
            ends[kind] = (frame["low"].to_numpy(), frame["high"].to_numpy())
        for kind, (low, high) in ends.items():
            hits[kind].append((low <= truth) & (truth <= high))
            widths[kind].append(float((high - low).mean()))
    return [
        (
            kind,
            float(np.mean(found)),
            float(np.mean(widths[kind])),
            float(np.mean(found, axis=0).min()),
        )
        for kind, found in hits.items()
    ]


def main() -> None:
    """Print the table."""
    from rich.table import Table

    title = f"Intervals at level {LEVEL}, {RELEASES} releases each, epsilon = 1, delta = 1e-9"
    shown = Table(title=title)
    for heading in ("records", "intervals", "coverage", "mean width", "least covered answer"):
        shown.add_column(heading, justify="left" if heading == "intervals" else "right")
    for count in RECORDS:
        for kind, mean, width, least in measured(count):
            shown.add_row(f"{count:,}", kind, f"{mean:.3f}", f"{width:.1f}", f"{least:.2f}")
    show(shown)
