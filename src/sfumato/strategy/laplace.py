# SPDX-License-Identifier: Apache-2.0
"""The best strategy found for pure epsilon: Laplace noise, columns measured in L1.

The error of a strategy at unit noise is ``sum_q w_q^2 |r_q|^2 ||M||_{1->1}^2``. Unlike its L2
counterpart (``nuclear.py``) it is not convex, so several kinds of strategies are built, and the
best is kept:

* one product of templates (``templates.py``) or, for long attributes, weighted trees over all
  attributes that are asked about, fitted to all groups together;
* one such product for every largest set of attributes, answering the groups within it, or for
  sets that were merged greedily (one larger table can answer several small ones with less noise);
* one for every group;
* weighted marginals answered jointly, when all groups are tables of counts.

Groups that are no products are measured as asked or as tables. Every strategy obeys the lower
bound of the L2 optimum, because ``||M_j||_2 <= ||M_j||_1``; none found here comes near it.

References: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy"; Li, Miklau, Hay, McGregor, Rastogi 2015 for the
matrix mechanism under L1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import shared_noise, table_block
from sfumato.strategy.kronecker import WeightedSets, fitted_product
from sfumato.strategy.marginals import merged_tables, weighted_marginals
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.subset_bounds import sum_of_bounds
from sfumato.strategy.templates import Template, best_template
from sfumato.strategy.trees import best_tree
from sfumato.types import Noise, Objective
from sfumato.workload.queries import Identity, QuerySet
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "laplace_optimum",
]


NAME = "laplace-optimum"


def laplace_optimum(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """The strategy of least error among templates, weighted trees and weighted marginals.

    ``bound`` is the sum of the L2 lower bounds of the groups: valid under L1, and loose.
    """
    if noise != "laplace":
        raise PlanError("templates of unit L1 norm are for Laplace noise")
    if len(workload.terms) > LIMITS.laplace_groups:
        raise TooLarge(f"{len(workload.terms):,} groups, more than {LIMITS.laplace_groups:,}")
    if len(workload.terms) == 1 and len(workload.terms[0].attributes) == 1:
        cells = workload.terms[0].cells
        if cells > LIMITS.laplace_cells:
            raise PlanError(
                f"along one attribute of {cells:,} cells it would be that of laplace-weighted-tree"
            )
    ways: list[Callable[[], Strategy]] = [partial(weighted_marginals, workload)]
    designs = _Designs()
    for groups in _groupings(workload, designs):
        ways += [partial(_measured, workload, groups, objective, designs)]
    built: list[Strategy] = []
    reasons: list[str] = []
    for way in ways:
        try:
            built.append(way())
        except PlanError as why:
            reasons.append(str(why))
    if not built:
        raise PlanError("; ".join(dict.fromkeys(reasons)) or "no group is a product")
    best = min(built, key=lambda strategy: strategy.weighted_error(objective))
    bound = sum_of_bounds(workload)
    return replace(best, bound=bound if bound > 0 else None)


class _Designs:
    """Measured sets by what they are for: pairs of tables ask for the same ones again and again."""

    def __init__(self) -> None:
        self.designs: dict[tuple[object, ...], QuerySet] = {}

    def __call__(self, weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:
        if previous is not None:
            return _designed(weighted, p, previous)
        key = tuple((c, _kind(q)) for c, q in weighted)
        if key not in self.designs:
            self.designs[key] = _designed(weighted, p, None)
        return self.designs[key]


def _groupings(workload: Workload, designs: _Designs) -> list[list[list[int]]]:
    """All products together, by largest sets of attributes, by merged ones, every group alone."""
    products = {
        i: product for i, t in enumerate(workload.terms) if (product := t.as_product()) is not None
    }
    if not products:
        return []
    domain, sets = workload.domain, {i: set(t.attributes) for i, t in products.items()}
    named = domain.in_order(n for t in products.values() for n in t.attributes)
    together = (
        len(products) <= LIMITS.laplace_groups_together
        and domain.cells(named) <= LIMITS.table_cells
    )
    tried = [[list(products)]] if together else []
    largest = {
        t.attributes: 0.0
        for i, t in products.items()
        if not any(sets[i] < other for other in sets.values())
    }
    tried.append(_assigned(products, largest, domain))
    if 1 < len(products) <= LIMITS.merged_tables and all(
        t.cells <= LIMITS.table_cells for t in products.values()
    ):
        weights: dict[tuple[str, ...], float] = {}
        for term in products.values():
            own = _alone(term, designs) / term.cells
            weights[term.attributes] = weights.get(term.attributes, 0.0) + own
        tried.append(_assigned(products, merged_tables(domain, weights), domain))
    tried.append([[i] for i in products])
    return [grouping for n, grouping in enumerate(tried) if grouping not in tried[:n]]


def _assigned(
    products: Mapping[int, Product], tables: Iterable[tuple[str, ...]], domain: Domain
) -> list[list[int]]:
    """Every term to the smallest set of attributes that holds its own."""
    members: dict[tuple[str, ...], list[int]] = {names: [] for names in tables}
    sizes = {names: domain.cells(names) for names in members}
    for i, term in products.items():
        holding = [names for names in members if set(term.attributes) <= set(names)]
        members[min(holding, key=lambda names: sizes[names])].append(i)
    return sorted(indices for indices in members.values() if indices)


def _alone(term: Product, designs: _Designs) -> float:
    """The weighted error of a term from a product of its own."""
    block = fitted_product([term], designs, 1)
    parts = (
        m.total_variance(q) * float(m.column_powers(1).max()) ** 2
        for (_, m), (_, q) in zip(block.factors, term.factors, strict=True)
    )
    return term.weight**2 * prod(parts)


def _measured(
    workload: Workload, groups: Sequence[Sequence[int]], objective: Objective, designs: _Designs
) -> Strategy:
    """A fitted product for every group of terms; other terms as asked or as tables."""
    blocks: list[Term] = []
    source: dict[int, int] = {}
    for members in groups:
        terms = [t for i in members if (t := workload.terms[i].as_product()) is not None]
        source.update(dict.fromkeys(members, len(blocks)))
        plain = len(terms) == 1 and (terms[0].is_table or terms[0].cells > LIMITS.table_cells)
        blocks.append(terms[0] if plain else fitted_product(terms, designs, 1))
    for i, term in enumerate(workload.terms):
        if i not in source:
            source[i] = len(blocks)
            blocks.append(_plain(workload, term))
    order = [source[i] for i in range(len(workload.terms))]
    return shared_noise(NAME, "laplace", workload, blocks, order, objective)


def _kind(queries: QuerySet) -> object:
    """Query sets of one kind and size are equal, except for given ones."""
    name = queries.name
    is_given = name.startswith(("matrix", "groups")) or hasattr(queries, "entries")
    return queries if is_given else (name, queries.size)


def _designed(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:
    """Single cells, a template, or for long attributes a weighted tree."""
    size = weighted[0][1].size
    if all(q.is_identity for _, q in weighted):
        return Identity(size)
    if size > LIMITS.template_classes:
        return best_tree(weighted, p)
    template = best_template(weighted, previous if isinstance(previous, Template) else None)
    is_plain = not len(template.extra) and len(template.diagonal) == size
    return Identity(size) if is_plain else template


def _plain(workload: Workload, term: Term) -> Term:
    """As asked, or as a table where that errs less."""
    if term.as_product() is not None or term.is_wide or term.cells > LIMITS.table_cells:
        return term
    longest = prod(float(values.max()) for _, values in term.column_factors(1))
    if term.rows * longest**2 <= float(term.row_powers(2).sum()):
        return term
    return table_block(workload, term.attributes)
