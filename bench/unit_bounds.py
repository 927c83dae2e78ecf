# SPDX-License-Identifier: Apache-2.0
"""A discovered bound on the rows of one person, beside the best bound and all of the budget.

    python -m bench unit_bounds

The searches are those of a release; the tables are numbers of rows of made-up persons. A table of
so many cells errs by its noise for the bound, and by the rows that are left out; the ratio is that
of the sum, with the budget shared, to the least sum of any bound with all of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

import sfumato as sf
from bench.tell import show
from sfumato.planning.discovery_plans import bound_share, persons_in_balance
from sfumato.random import system_words
from sfumato.run.discover import BoundSearch
from sfumato.types import Integers
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.searches import search_bound

RUNS = 300
EPSILON = Fraction(1)
CELLS = (1, 10, 100, 1000)
PERSONS = (1_000, 20_000)
SHAPES: dict[str, Callable[[np.random.Generator, int], Integers]] = {
    "one row": lambda _, n: np.ones(n, np.int64),
    "five rows": lambda _, n: np.full(n, 5, np.int64),
    "Poisson, mean 9": lambda rng, n: rng.poisson(8, n) + 1,
    "log-normal": lambda rng, n: np.ceil(np.exp(1 + rng.normal(size=n))).astype(np.int64),
    "Pareto 1.2": lambda rng, n: np.minimum(np.ceil(rng.random(n) ** (-1 / 1.2)), 1e6).astype(int),
    "one of 10^6": lambda _, n: np.append(np.full(n - 1, 3), 10**6),
}


def ratios(cells: int, sizes: Integers, runs: int = RUNS) -> list[float]:
    """The ratio of each of so many searches, on persons with these numbers of rows."""
    total = sf.Budget(epsilon=EPSILON)
    noise = sf.plan(sf.marginals(sf.Domain({"x": cells}), 1), total).rmse if cells > 1 else 2**0.5
    persons = persons_in_balance(cells, noise, 1)
    taken, rest = bound_share(total, persons, len(sf.PrivacyUnit.discover("who", persons).grid))
    assert taken.epsilon is not None
    assert rest.epsilon is not None
    share = float(rest.epsilon / EPSILON)
    wanted = sf.PrivacyUnit.discover("who", round(persons / share))
    (search,) = sf.plan_discovery(wanted, taken).searches
    assert isinstance(search, BoundSearch)
    beyond = Sensitive(np.array([(sizes > bound).sum() for bound in search.bounds]))

    def error(bound: int, scale: float) -> float:
        return cells * noise * scale * bound + float(np.maximum(sizes - bound, 0).sum())

    best = min(error(bound, 1.0) for bound in wanted.grid)
    places = [search_bound(beyond, search.persons, search.law, system_words()) for _ in range(runs)]
    bounds = [wanted.grid[-1 if place is None else place] for place in places]
    return [error(bound, 1 / share) / best for bound in bounds]


def main() -> None:
    """Print the table."""
    from rich.table import Table

    shown = Table(title=f"Noise and loss over those of the best bound, {RUNS} searches each")
    for heading in ("rows of a person", "persons", *(f"{cells:,} cells" for cells in CELLS)):
        shown.add_column(heading, justify="left" if heading.startswith("rows") else "right")
    for name, sizes in SHAPES.items():
        for persons in PERSONS:
            made = sizes(np.random.default_rng(7), persons)
            parts = [ratios(cells, made) for cells in CELLS]
            ends = [f"{np.median(part):.2f} ({np.quantile(part, 0.95):.2f})" for part in parts]
            shown.add_row(name, f"{persons:,}", *ends)
    shown.caption = "median (95% of searches are below)"
    show(shown)


if __name__ == "__main__":
    main()
