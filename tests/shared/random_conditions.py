# SPDX-License-Identifier: Apache-2.0
"""Random conditions on small domains, and their truth values cell by cell."""

from __future__ import annotations

from itertools import product

import numpy as np

import sfumato as sf
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from tests.shared.dense import holds


def random_condition(rng: np.random.Generator, domain: sf.Domain, depth: int = 2) -> Condition:
    """And, or, not of sets of cells; sometimes sets that are empty or full, or everything."""
    kind = rng.random()
    if depth and kind < 0.6:
        parts = tuple(random_condition(rng, domain, depth - 1) for _ in range(rng.integers(2, 4)))
        return And(parts) if kind < 0.35 else Or(parts)
    if depth and kind < 0.75:
        return Not(random_condition(rng, domain, depth - 1))
    if kind > 0.98:
        return Everything()
    name = str(rng.choice(domain.names))
    return In(name, tuple(int(c) for c in np.flatnonzero(rng.random(domain[name].size) < 0.5)))


def random_box(rng: np.random.Generator, domain: sf.Domain, attributes: int = 3) -> Condition:
    """One set of cells for each of some attributes, neither empty nor full."""
    chosen = rng.choice(domain.names, attributes, replace=False)
    parts = []
    for name in sorted(str(n) for n in chosen):
        size = domain[name].size
        codes = rng.choice(size, rng.integers(1, size), replace=False)
        parts.append(In(name, tuple(sorted(int(c) for c in codes))))
    return And(tuple(parts))


def truth(conditions: list[Condition], domain: sf.Domain) -> np.ndarray:
    """One row per condition, one column per cell of the domain."""
    cells = [
        dict(zip(domain.names, cell, strict=True))
        for cell in product(*(range(n) for n in domain.shape))
    ]
    return np.array([[holds(c, cell) for cell in cells] for c in conditions], dtype=bool)
