# SPDX-License-Identifier: Apache-2.0
"""The best strategy for pure epsilon: Laplace noise, columns measured in L1.

``laplace_optimum`` builds strategies for a whole workload from templates, weighted trees, weighted
marginals and matrices on the atoms or in the span of the queries, and returns the best.

Reference: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
statistical queries under differential privacy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, log2, prod

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import portion
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import WeightedSets, fitted_product, shared_noise, table_block
from sfumato.strategy.laplace.atoms import in_span, on_atoms
from sfumato.strategy.laplace.templates import Template, best_template
from sfumato.strategy.marginals import marginals_optimum, merged_tables, weighted_marginals
from sfumato.strategy.pieces import sum_of_bounds
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import best_tree
from sfumato.types import Noise, Objective
from sfumato.workload.queries import Identity, QuerySet
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "gaussian_bound",
    "laplace_optimum",
]


NAME = "laplace-optimum"


def laplace_optimum(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """The strategy of least error among templates, trees, marginals and matrices.

    ``bound`` is a lower bound under L2, of all queries together: valid under L1, and loose
    (``gaussian_bound``; docs/proofs/lower-bounds.md says by how much).

    The error of a strategy at unit noise is ``sum_q w_q^2 |r_q|^2 ||M||_{1->1}^2``. Unlike its L2
    counterpart (``solve/nuclear.py``) it is not convex, so several kinds of strategies are built,
    and the best is kept:

    * one product of templates or, for long attributes, weighted trees over all
      attributes that are asked about, fitted to all groups together;
    * one such product for every largest set of attributes, answering the groups within it, or for
      sets that were merged greedily (one larger table can answer several small ones with less
      noise);
    * one for every group;
    * weighted marginals answered jointly, when all groups are tables of counts;
    * one matrix for all queries, whatever they are, on their atoms or in their span, where these
      are few enough (``atoms.py``).

    Elsewhere groups that are no products are measured as asked or as tables. Every strategy
    obeys the lower bound of the L2 optimum, because ``||M_j||_2 <= ||M_j||_1``; few come near it.

    References: McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional
    statistical queries under differential privacy"; Li, Miklau, Hay, McGregor, Rastogi 2015 for the
    matrix mechanism under L1.
    """
    if noise != "laplace":
        raise PlanError("templates of unit L1 norm are for Laplace noise")
    if len(workload.terms) == 1 and len(workload.terms[0].attributes) == 1:
        cells = workload.terms[0].cells
        if cells > LIMITS.laplace_cells:
            raise PlanError(
                f"along one attribute of {cells:,} cells it would be that of laplace-weighted-tree"
            )
    reasons: list[str] = []
    structured: list[Strategy] = []
    matrices: list[Strategy] = []
    is_many = len(workload.terms) > LIMITS.laplace_groups_first
    if is_many:  # one matrix is quicker than a template for each
        _try(_matrices(workload, objective, structured, matrices), matrices, reasons)
    if not _is_proved(matrices, objective):
        _try(_ways(workload, objective), structured, reasons)
    if not is_many:
        _try(_matrices(workload, objective, structured, matrices), matrices, reasons)
    built = structured + matrices
    if not built and len(workload.terms) > LIMITS.laplace_groups:
        raise TooLarge(f"{len(workload.terms):,} groups, more than {LIMITS.laplace_groups:,}")
    if not built:
        raise PlanError("; ".join(dict.fromkeys(reasons)) or "no group is a product")
    # What has structure is read faster: a matrix must be worth it.
    errors = [s.weighted_error(objective) for s in built]
    errors[: len(structured)] = [e * (1 - LIMITS.matrix_gain) for e in errors[: len(structured)]]
    best = built[errors.index(min(errors))]
    bounds = [s.bound_for(objective) or 0.0 for s in built]
    if structured and not any(bounds):
        bounds.append(gaussian_bound(workload, objective))
    return replace(best, bound=max(bounds) or None, objective=objective)


def gaussian_bound(workload: Workload, objective: Objective) -> float:
    """A lower bound on the weighted squared error of all groups together, at unit noise, or 0.

    The optimum for Gaussian noise, to 1%: in closed form for tables of counts, by symmetries for
    other products; where those are too many, the sum of what every group needs by itself.
    """
    tables = marginals_optimum(workload, objective)
    if tables is not None:
        return tables.bound_for(objective) or 0.0
    whole = 0.0
    with suppress(PlanError), portion(LIMITS.atom_bound_multiplications):
        problem = orbit_problem(workload)
        if problem is not None:
            whole = problem.solve(LIMITS.atom_bound).lower
    # The largest error is no less than the mean one.
    return (whole or sum_of_bounds(workload)) / (1 if objective == "rmse" else workload.queries)


def _is_proved(built: Sequence[Strategy], objective: Objective) -> bool:
    """Whether the best of some strategies is next to their lower bound, so that no other helps."""
    bound = max((s.bound_for(objective) or 0.0 for s in built), default=0.0)
    least = min((s.weighted_error(objective) for s in built), default=inf)
    return least <= bound * (1 + LIMITS.matrix_gain)


def _ways(workload: Workload, objective: Objective) -> Iterator[Callable[[], Strategy]]:
    """Weighted marginals, then products of templates for every grouping of the terms."""
    if len(workload.terms) > LIMITS.laplace_groups:
        return
    yield partial(weighted_marginals, workload)
    designs = _Designs()
    for groups in _groupings(workload, designs):
        yield partial(_measured, workload, groups, objective, designs)


def _try(ways: Iterable[Callable[[], Strategy]], built: list[Strategy], reasons: list[str]) -> None:
    """Add what can be built, and why the rest cannot."""
    for way in ways:
        try:
            built.append(way())
        except PlanError as why:
            reasons.append(str(why))


def _matrices(
    workload: Workload,
    objective: Objective,
    structured: Sequence[Strategy],
    built: Sequence[Strategy],
) -> Iterator[Callable[[], Strategy]]:
    """As one matrix: on atoms, then in the span of the queries unless that comes nowhere near.

    Not for tables of counts: weighted marginals are their matrix. ``built`` grows meanwhile.
    """
    terms = workload.terms
    if all(t.is_table for t in terms):
        return
    is_along = len(terms) == 1 and len(terms[0].attributes) == 1 and bool(structured)
    yield partial(on_atoms, workload, objective, along=not is_along)
    least = min((s.weighted_error() for s in [*structured, *built]), default=inf)
    is_bounded = any(s.bound is not None for s in built)
    yield partial(in_span, workload, objective, least, with_bound=not is_bounded)


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
    """Groupings of the terms: all together, by largest sets, by merged ones, each alone."""
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
    """The terms by table: each with the smallest set of attributes that holds its own."""
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
    """The strategy of a fitted product per group; other terms as they are or as tables."""
    blocks: list[Term] = []
    source: dict[int, int] = {}
    for members in groups:
        terms = [t for i in members if (t := workload.terms[i].as_product()) is not None]
        source.update(dict.fromkeys(members, len(blocks)))
        is_direct = len(terms) == 1 and (terms[0].is_table or terms[0].cells > LIMITS.table_cells)
        blocks.append(terms[0] if is_direct else _drawable(fitted_product(terms, designs, 1)))
    for i, term in enumerate(workload.terms):
        if i not in source:
            source[i] = len(blocks)
            blocks.append(_directly_measured(workload, term))
    order = [source[i] for i in range(len(workload.terms))]
    return shared_noise(NAME, "laplace", workload, blocks, order, objective)


def _drawable(block: Product) -> Product:
    """The product, its templates in fewer bits where theirs add up to more than noise may have."""
    templates = {n: q for n, q in block.factors if isinstance(q, Template)}
    if sum(log2(q.column_powers(1).max()) for q in templates.values()) <= LIMITS.product_bits:
        return block
    bits = LIMITS.product_bits // len(templates)
    rounded = {n: q.rounded(bits) for n, q in templates.items()}
    factors = tuple((n, rounded.get(n, q)) for n, q in block.factors)
    parts = [n if q.is_identity else f"{q.name} of {n}" for n, q in factors]
    return replace(block, name=" x ".join(parts), factors=factors)


def _kind(queries: QuerySet) -> object:
    """A key of a query set: its kind and size, or itself where coefficients were given."""
    name = queries.name
    has_coefficients = name.startswith(("matrix", "groups")) or hasattr(queries, "entries")
    return queries if has_coefficients else (name, queries.size)


def _designed(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:
    """The measured set: single cells, a template, or for long attributes a weighted tree.

    Templates of more classes than their search is made for are compared with the tree.
    """
    size = weighted[0][1].size
    if all(q.is_identity for _, q in weighted):
        return Identity(size)
    if size > LIMITS.template_classes:
        return best_tree(weighted, p)
    template = best_template(weighted, previous if isinstance(previous, Template) else None)
    is_identity = not len(template.extra) and len(template.diagonal) == size
    chosen: QuerySet = Identity(size) if is_identity else template
    if size <= LIMITS.template_followed_classes:
        return chosen
    return min([chosen, best_tree(weighted, p)], key=lambda m: _squared_error(weighted, m))


def _squared_error(weighted: WeightedSets, measured: QuerySet) -> float:
    """The weighted error of Laplace noise on a measured set."""
    variance = sum(c * measured.total_variance(q) for c, q in weighted)
    return variance * float(measured.column_powers(1).max()) ** 2


def _directly_measured(workload: Workload, term: Term) -> Term:
    """The term's own queries, or its table where that errs less."""
    if term.as_product() is not None or term.is_wide or term.cells > LIMITS.table_cells:
        return term
    longest = prod(float(values.max()) for _, values in term.column_factors(1))
    if term.rows * longest**2 <= float(term.row_powers(2).sum()):
        return term
    return table_block(workload, term.attributes)
