# SPDX-License-Identifier: Apache-2.0
"""Dense views of plans, from what they do and not from what they say: for small domains.

``F`` is written out from the definitions of the queries, ``M`` by counting one record in every
cell, ``R`` by reading answers from unit values. Nothing here uses the norms, variances or
diameters that a strategy states about itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.errors import PlanError
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.run.linear import Plan
from sfumato.vault.mechanisms.measure import exact_values
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload

BUDGETS = {"gaussian": sf.Budget(mu=1), "laplace": sf.Budget(epsilon=1)}


def kept(sizes: Mapping[str, int]) -> sf.Domain:
    """A domain whose rules drop no record: then replace-one neighbours have a public total."""
    return sf.Domain(
        [
            Integer(name, min=0, max=size - 2, outside="clamp", nulls="missing")
            for name, size in sizes.items()
        ]
    )


def workloads() -> dict[str, Workload]:
    """Small, and as different from each other as workloads get."""
    cube = sf.Domain({"a": 5, "b": 3, "c": 2})
    line, sliver = sf.Domain({"x": 8}), sf.Domain({"a": 4, "one": 1, "b": 2})
    whole = kept({"a": 5, "b": 3, "c": 2})
    few = sf.predicates(whole, ["a < 2 or b = 1", "a >= 2 and not b = 0"])
    everybody = sf.marginals(whole, [()])
    a, b = sf.attribute(cube, "a"), sf.attribute(cube, "b")
    asked = sf.predicates(cube, [(a < 3) | (b == 1), (a >= 2) & ~(b == 0), (a == 1)])
    given = sf.explicit(
        sf.Domain({"p": 3, "q": 2}),
        ["p", "q"],
        [[1, 0, -2, 0.5, 0, 1], [0, 0, 0.25, 3, 0, 0], [0.75, 1, 1, 1, 1, 1]],
    )
    fixed = sf.product(cube, {"a": [[1, -2, 0, 3, 0.5]], "b": "prefix"})
    total = sf.marginals(cube, [()])
    return {
        "mixed": sf.prefixes(cube, "a", by=["b"]) | sf.marginals(cube, 2) | asked | total,
        "marginals": sf.marginals(cube, 1) | sf.marginals(cube, [("a", "c"), ()]),
        "weighted marginals": 5 * sf.marginals(cube, 1) | sf.marginals(cube, 3),
        "ranges beside tables": sf.ranges(cube, "a") | sf.marginals(cube, [("b", "c")]),
        "all ranges": sf.ranges(line, "x"),
        "prefixes": sf.prefixes(line, "x"),
        "rank-deficient": sf.product(line, {"x": "windows(6)"}) | sf.marginals(line, [()]),
        "one query three times": total | total | total,
        "fine coefficients": sf.marginals(line, [()])
        | sf.product(line, {"x": [[0, 0.25, 1 / 3, 0, 0, 0, 0, 1 / 7]]}),
        "nobody": sf.predicates(cube, [(a == 0) & (a == 1)]) | sf.marginals(cube, [("a", "b")]),
        "signed": fixed | sf.marginals(cube, [("a",)]),
        "conditions": asked,
        "explicit": given,
        "single cells": sf.prefixes(sliver, "a", by=["one", "b"]) | sf.marginals(sliver, 1),
        "one cell": sf.marginals(sf.Domain({"only": 1}), 1),
        "yes or no": sf.marginals(sf.Domain({"u": 2, "v": 2, "w": 2}), 2),
        "nobody dropped": sf.marginals(whole, 2) | few | everybody,
        "marginals, nobody dropped": sf.marginals(whole, 2) | sf.marginals(whole, 1) | everybody,
        "prefixes, nobody dropped": sf.prefixes(whole, "a", by=["c"]) | everybody,
    }


def uneven() -> dict[str, Workload]:
    """Columns that nearly agree, and are so long that their squares are no floats."""
    pair, wide = kept({"x": 4, "y": 3}), kept({"x": 180, "y": 2})
    far = 2.0**30
    return {
        "nearly public": sf.product(pair, {"x": [[far, far + 1, far, far]]})
        | sf.prefixes(pair, "y"),
        "nearly public, wide": sf.product(wide, {"x": [[far] * 90 + [far + 1] * 90]})
        | sf.marginals(wide, [("y",)]),
    }


WORKLOADS = workloads()
UNEVEN = uneven()
CASES = [(name, work) for name in MECHANISMS for work in WORKLOADS]
UNEVEN_CASES = [(name, work) for name in MECHANISMS for work in UNEVEN]


@cache
def planned(
    mechanism: str, work: str, neighbours: str = "add-remove", objective: str = "rmse"
) -> Plan | None:
    """The plan by this mechanism; None where it says that it does not fit."""
    budget = BUDGETS[MECHANISMS[mechanism][1]]
    try:
        return sf.plan((WORKLOADS | UNEVEN)[work], budget, neighbours, objective, mechanism)  # type: ignore[arg-type]
    except PlanError:
        return None


@dataclass(frozen=True)
class Dense:
    """Blocks of M and R, and F: rows are queries, columns are cells of the whole domain."""

    m: list[np.ndarray]
    r: list[np.ndarray]
    f: np.ndarray

    def moved(self, p: int, differences: np.ndarray) -> np.ndarray:
        """``|M_b d|_p^p`` of every block b and every difference d of histograms.

        Where d cancels on equal columns, their common part is taken off first, exactly.
        """
        out = []
        for m in self.m:
            from_first = (m - m[:, :1]) @ differences + m[:, :1] * differences.sum(axis=0)
            out.append((np.abs(from_first) ** p).sum(axis=0))
        return np.array(out)


def table_of(term: Term, histogram: np.ndarray) -> np.ndarray:
    """The table of the term's attributes."""
    names = term.domain.names
    drop = tuple(i for i, n in enumerate(names) if n not in term.attributes)
    return histogram.reshape(term.domain.shape).sum(axis=drop)


def counted(term: Term, histogram: np.ndarray) -> np.ndarray:
    """``M h`` of a block as the vault computes it, in counts."""
    exact = exact_values(term, table_of(term, histogram))
    return np.ldexp(np.asarray(exact, dtype=np.float64), -term.fraction_bits)


def answers(plan: Plan, values: list[np.ndarray]) -> np.ndarray:
    """All answers, group after group."""
    terms = range(len(plan.workload.terms))
    return np.concatenate([np.asarray(plan.strategy.answer(t, values)) for t in terms])


@cache
def dense(plan: Plan) -> Dense:
    """M and R by unit vectors, F by definition."""
    cells = plan.workload.domain.size
    blocks = [b.term for b in plan.strategy.blocks]
    units = np.eye(cells, dtype=np.int64)
    m = [np.array([counted(term, e) for e in units]).T for term in blocks]
    zeros = [np.zeros(len(rows)) for rows in m]
    r = []
    for b, rows in enumerate(m):
        columns = [answers(plan, [*zeros[:b], e, *zeros[b + 1 :]]) for e in np.eye(len(rows))]
        r.append(np.array(columns).T)
    return Dense(m, r, dense_workload(plan.workload))


def replacements(cells: int) -> np.ndarray:
    """All ``e_i - e_j``; a domain of one cell has none that moves anything."""
    units = np.eye(cells)
    pairs = [units[i] - units[j] for i, j in combinations(range(cells), 2)]
    return np.array(pairs or [np.zeros(cells)]).T


def moves(forecast: Forecast) -> np.ndarray:
    """How one record can move the histogram, as the neighbours of the forecast say."""
    domain = forecast.workload.domain
    if forecast.neighbours == "add-remove":
        return np.eye(domain.size)
    found = replacements(domain.size)
    is_public = domain.keeps_every_record and forecast.unit is None
    return found if is_public else np.concatenate([found, np.eye(domain.size)], axis=1)
