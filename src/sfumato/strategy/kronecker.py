# SPDX-License-Identifier: Apache-2.0
"""Products of measured query sets, fitted to groups of products that are asked.

A block measures ``M_1 x ... x M_d``; a term ``F_1 x ... x F_d`` answered from it errs by
``prod_i tr(V_i (M_i'M_i)^-1)`` at unit noise, and the column norm is ``prod_i ||M_i||``. For
several terms the sum is minimised one attribute at a time: with all others fixed, attribute i faces
the weighted query sets ``sum_t c_t V_{t,i}``, c_t being the other factors of the term.

The builders ``wavelet`` and ``weighted_tree`` put their transform along every attribute that is
asked by intervals, as ``Design`` says; terms on the same attributes share a block.

References: Xiao, Wang, Gehrke 2010, section VI (several attributes); McKenna, Miklau, Hay,
Machanavajjhala 2018, section 6 (one attribute at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.effort import must_stop
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import shared_noise
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import best_tree, best_wavelet
from sfumato.types import Array, Noise, Objective
from sfumato.workload.queries import Identity, QuerySet, Total
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Design",
    "fitted_product",
    "power_of",
    "wavelet",
    "weighted_tree",
]


WeightedSets = list[tuple[float, QuerySet]]
# The best measured set for weighted query sets of one attribute, given the last one found.
Design = Callable[[WeightedSets, int, QuerySet | None], QuerySet]


def wavelet(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Haar wavelets along every attribute that is asked by intervals."""
    return _transformed("wavelet", _wavelet_design, workload, noise, objective)


def weighted_tree(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Trees with the best branching and weights along attributes that are asked by intervals."""
    return _transformed("weighted-tree", _tree_design, workload, noise, objective)


def power_of(noise: Noise) -> int:
    """The norm that the noise is calibrated to: L1 for Laplace, L2 for Gaussian."""
    return 2 if noise == "gaussian" else 1


def fitted_product(terms: Sequence[Product], design: Design, p: int, title: str = "") -> Product:
    """The product of designed query sets, over all attributes of the terms, with the least error.

    Error: ``sum_t w_t^2 prod_i tr(V_ti (M_i'M_i)^-1) ||M_i||^2``, at a local minimum over single
    attributes.
    """
    domain = terms[0].domain
    names = domain.in_order(n for t in terms for n in t.attributes)
    if not names:
        return Product(domain, title + "total", 1.0, ())
    cells = domain.cells(names)
    if cells > LIMITS.table_cells:
        raise PlanError(f"the table of {', '.join(names)} has {cells:,} cells")
    sets = {n: [dict(t.factors).get(n, Total(domain[n].size)) for t in terms] for n in names}
    weights = np.array([t.weight**2 for t in terms])
    chosen: dict[str, QuerySet] = {n: Identity(domain[n].size) for n in names}
    errors = {n: _errors(chosen[n], sets[n], p) for n in names}
    last = np.inf
    for turn in range(LIMITS.product_rounds):
        for name in names:
            others = weights * prod((errors[n] for n in names if n != name), start=np.ones(1))
            scaled = others / (float(others.max()) or 1.0)
            weighted = [(float(c), q) for c, q in zip(scaled, sets[name], strict=True)]
            candidate = design(weighted, p, chosen[name] if turn else None)
            tried = _errors(candidate, sets[name], p)
            if turn == 0 or others @ tried <= others @ errors[name]:
                chosen[name], errors[name] = candidate, tried
        value = float(weights @ prod(errors.values(), start=np.ones(1)))
        if (
            value > last * (1 - LIMITS.product_gain)
            or len(names) == 1
            or len(terms) == 1
            or must_stop()
        ):
            break
        last = value
    factors = tuple(chosen.items())
    parts = [n if q.is_identity else f"{q.name} of {n}" for n, q in factors]
    return Product(domain, title + " x ".join(parts), 1.0, factors)


def _errors(measured: QuerySet, sets: Sequence[QuerySet], p: int) -> Array:
    """``tr(V (M'M)^-1) ||M||^2`` of every query set."""
    norm = float(measured.column_powers(p).max()) ** (2 / p)
    total: dict[int, float] = {}
    for queries in sets:
        if id(queries) not in total:
            total[id(queries)] = measured.total_variance(queries)
    return np.array([total[id(q)] * norm for q in sets])


def _transformed(
    kind: str, design: Design, workload: Workload, noise: Noise, objective: Objective
) -> Strategy:
    """One block for the terms on the same attributes; those without intervals as asked."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, term in enumerate(workload.terms):
        if term.as_product() is not None and term.cells <= LIMITS.table_cells:
            groups.setdefault(term.attributes, []).append(i)
    blocks: list[Term] = []
    source: dict[int, int] = {}
    for members in groups.values():
        terms = [t for i in members if (t := workload.terms[i].as_product()) is not None]
        if any(_is_long(q) for t in terms for _, q in t.factors):
            source.update(dict.fromkeys(members, len(blocks)))
            blocks.append(fitted_product(terms, design, power_of(noise)))
    if not blocks:
        raise PlanError("no group asks for prefixes, ranges or windows")
    for i, term in enumerate(workload.terms):
        if i not in source:
            source[i] = len(blocks)
            blocks.append(term)
    order = [source[i] for i in range(len(workload.terms))]
    return shared_noise(f"{noise}-{kind}", noise, workload, blocks, order, objective)


def _is_long(queries: QuerySet) -> bool:
    return queries.is_ordered and queries.size > 2


def _wavelet_design(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:  # noqa: ARG001
    if not any(_is_long(q) for _, q in weighted):
        return Identity(weighted[0][1].size)
    return best_wavelet(weighted, p)


def _tree_design(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:  # noqa: ARG001
    if not any(_is_long(q) for _, q in weighted):
        return Identity(weighted[0][1].size)
    return best_tree(weighted, p)
