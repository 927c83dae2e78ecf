# SPDX-License-Identifier: Apache-2.0
"""Random unions of products: how near the planner comes to its own lower bound.

Seventy unions of two to five products on three to six attributes of 2 to 64 cells. A product asks
of some attributes for their total, cells, running totals, ranges, windows or rows of a random
matrix. All weights are 1, and one seed makes all of them, so that figures can be compared.

    python -m bench unions          the certificate and CPU seconds of each, and how many are far
    python -m bench unions --quick  the first ten
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import reduce
from math import prod

import numpy as np
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench.tell import Effort
from sfumato.errors import SfumatoError

__all__ = ["main", "unions"]

SEED = 21
COUNT = 70
SIZES = (2, 3, 4, 5, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CELLS = (700, 10**7)
QUERIES = 10**6  # of one product
KINDS = ("total", "identity", "prefix", "ranges", "windows", "custom")


def unions(count: int = COUNT, seed: int = SEED) -> Iterator[sf.Workload]:
    """The unions, one after the other."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        sizes = rng.choice(SIZES, int(rng.integers(3, 7))).tolist()
        terms = int(rng.integers(2, 6))
        if not CELLS[0] <= prod(sizes) <= CELLS[1]:
            continue
        domain = sf.Domain({f"x{i}": n for i, n in enumerate(sizes)})
        products = [_product(domain, rng) for _ in range(terms)]
        if max(len(p) for p in products) <= QUERIES:
            made += 1
            yield reduce(sf.Workload.__or__, products)


def _product(domain: sf.Domain, rng: np.random.Generator) -> sf.Workload:
    queries: dict[str, object] = {}
    for attribute in domain.names:
        kind = KINDS[int(rng.integers(len(KINDS)))]
        n = domain[attribute].size
        if kind == "windows":
            queries[attribute] = f"windows({int(rng.integers(1, n + 1))})"
        elif kind == "custom":
            queries[attribute] = rng.integers(-1, 3, (int(rng.integers(1, 5)), n)).tolist()
        elif kind != "total":
            queries[attribute] = kind
    if not queries:
        queries[domain.names[0]] = "identity"
    return sf.product(domain, queries)  # type: ignore[arg-type]


def main(effort: Effort = "usual") -> None:
    """Print a line per union, and how many are far from their bound."""
    certificates = []
    with threadpool_limits(limits=1):
        for i, work in enumerate(unions(10 if effort == "quick" else COUNT)):
            start = time.process_time()
            try:
                plan = sf.plan(
                    work,
                    sf.Budget(mu=1),
                    mechanism="factorization",
                    seconds=None,
                    cache=False,
                )
                error, gap = plan.rmse, plan.certificate or float("inf")
                how = next(c.algorithm for c in plan.candidates if c.is_chosen)
            except SfumatoError as why:
                error, gap, how = float("inf"), float("inf"), str(why)
            certificates.append(gap)
            spent = time.process_time() - start
            shape = "x".join(str(n) for n in work.domain.shape)
            figures = f"{error:10.4f} {gap:7.4f} {spent:7.2f} {how}"
            print(f"{i:3} {shape:20} {work.queries:9,} {figures}", flush=True)
    numbers = np.array(certificates)
    far = ", ".join(f"{int((numbers > g).sum())} above {g}" for g in (1.05, 1.15, 1.2))
    print(f"{len(numbers)} unions: {far}, worst {numbers.max():.3f}")
