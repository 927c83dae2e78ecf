# SPDX-License-Identifier: Apache-2.0
"""The named mechanisms: how each builds a strategy for a workload, or why it does not fit.

A builder knows the workload, the law of the noise and the objective; it sees neither budget nor
data, so a strategy serves every budget. The order of ``MECHANISMS`` is that of the effort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import fsum, inf, sqrt
from typing import NamedTuple

from sfumato.errors import PlanError, TooLarge
from sfumato.planning.planning_limits import LIMITS
from sfumato.solve.effort import portion
from sfumato.solve.orbits import orbit_problem
from sfumato.strategy.base import Block, Strategy
from sfumato.strategy.blockwise import (
    Blockwise,
    combined,
    power_of,
    shared_noise,
    table_block,
    tree_block,
    wavelet,
    weighted_tree,
)
from sfumato.strategy.conditions import conditions
from sfumato.strategy.conjunctions import conjunctions_by_polynomial, is_conjunctive
from sfumato.strategy.degrees import (
    by_degrees,
    is_forecast_only,
    least_variance,
    symmetric_set,
    whole_bounds,
)
from sfumato.strategy.factorization import factorization, factorwise
from sfumato.strategy.interactions import interactions
from sfumato.strategy.laplace.laplace_optimum import laplace_optimum
from sfumato.strategy.marginals import fourier, marginals_optimum
from sfumato.strategy.matrix import dense
from sfumato.strategy.one_attribute.hierarchies import hierarchy
from sfumato.strategy.one_attribute.ordered import minimax_strategy, ordered
from sfumato.strategy.one_attribute.windows import windows
from sfumato.strategy.pieces import pieces
from sfumato.strategy.product_parts import product_parts
from sfumato.strategy.splits import entry_bits
from sfumato.strategy.strategy_limits import LIMITS as STRATEGY_LIMITS
from sfumato.strategy.trees import BRANCHINGS
from sfumato.types import Noise, Objective
from sfumato.workload.queries import QuerySet
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "FLOORS",
    "MECHANISMS",
    "Mechanism",
    "named",
]


NO_PRODUCT = "a group is not a product of query sets"

Builder = Callable[[Workload, Noise, Objective], Strategy]


class Mechanism(NamedTuple):
    """A builder of strategies and the law of the noise it is built for."""

    build: Builder
    noise: Noise


def named(mechanism: str | None) -> list[str]:
    """All mechanisms, the one of this name, or those of this kind with either noise."""
    if mechanism is None:
        return list(MECHANISMS)
    if mechanism in MECHANISMS:
        return [mechanism]
    names = [name for name in MECHANISMS if name.endswith(f"-{mechanism}")]
    if not names:
        kinds = dict.fromkeys(n.partition("-")[2] for n in MECHANISMS if "-" in n)
        raise PlanError(
            f"unknown mechanism {mechanism!r}; allowed are {', '.join([*MECHANISMS, *kinds])}"
        )
    return names


def _queries(workload: Workload, noise: Noise, objective: Objective) -> Strategy:  # noqa: ARG001
    """The same noise on every asked query (the Laplace and Gaussian mechanisms of the notes)."""
    blocks = tuple(Block(t, 1.0) for t in workload.terms)
    return Blockwise(noise, noise, workload, blocks, tuple(range(len(blocks))))


def _table(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Noise on the contingency table of all attributes that are asked about."""
    names = workload.domain.in_order(n for t in workload.terms for n in t.attributes)
    cells = workload.domain.cells(names)
    if cells > LIMITS.measured_table_cells and not is_forecast_only(workload):
        raise PlanError(f"the table of all attributes has {cells:,} cells")
    if any(t.is_wide for t in workload.terms):
        raise PlanError("the conditions span too many cells")
    blocks = (Block(table_block(workload, names), 1.0),)
    table = Blockwise(f"{noise}-table", noise, workload, blocks, (0,) * len(workload.terms))
    if len(names) <= STRATEGY_LIMITS.symmetric_dense_attributes:
        return table
    bounds = whole_bounds(workload, objective)
    if bounds is None:
        return table
    return replace(table, bound=bounds[0], replace_one_bound=bounds[1], objective=objective)


def _queries_floor(workload: Workload, noise: Noise, objective: Objective) -> float:
    """The error of `_queries` at least: every record is in one cell of each table."""
    tables = sum(t.is_table for t in workload.terms)
    heaviest = max(t.weight for t in workload.terms) if objective == "max" else 1.0
    return float(heaviest * tables ** (1 / power_of(noise)))


def _table_floor(workload: Workload, noise: Noise, objective: Objective) -> float:  # noqa: ARG001
    """The error of `_table` at least: a cell of a small table is a sum of cells of the large one.

    Groups that are no tables count as if they had no error.
    """
    names = workload.domain.in_order(n for t in workload.terms for n in t.attributes)
    cells = float(workload.domain.cells(names))
    tables = [t for t in workload.terms if t.is_table]
    if objective == "max":
        return max((t.weight * sqrt(cells / t.rows) for t in tables), default=0.0)
    return sqrt(cells * sum(t.weight**2 for t in tables) / _total_weight(workload))


def _groups_floor(workload: Workload, noise: Noise, objective: Objective) -> float:
    """The error of `_groups` where all are tables that no tree answers; else 0.

    Such tables are measured themselves, with the shares of `shared_noise` (Hoelder), and every
    column of all of them has the same norm.
    """
    p = power_of(noise)
    for term in workload.terms:
        product = term.as_product()
        if product is None or not product.is_table or _has_intervals(product):
            return 0.0
    if objective == "max":
        return float(fsum(t.weight**p for t in workload.terms) ** (1 / p))
    powers = fsum((t.weight**2 * t.rows) ** (p / (p + 2)) for t in workload.terms)
    return sqrt(powers ** ((p + 2) / p) / _total_weight(workload))


def _total_weight(workload: Workload) -> float:
    return fsum(t.rows * t.weight**2 for t in workload.terms)


def _tree(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """A tree along the longest interval attribute of each group; groups without one as asked."""
    blocks = [_best_tree(t, noise) or t for t in workload.terms]
    if all(b is t for b, t in zip(blocks, workload.terms, strict=True)):
        raise PlanError("no group asks for prefixes, ranges or windows")
    source = range(len(blocks))
    return shared_noise(f"{noise}-tree", noise, workload, blocks, source, objective)


def _groups(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Each group of queries the best way for itself, the noise shared out optimally."""
    blocks = [_best_block(workload, t, noise, objective) for t in workload.terms]
    source = range(len(blocks))
    return shared_noise(f"{noise}-groups", noise, workload, blocks, source, objective)


def _factorization(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """The certified optimum of everything; where that is too large, of the products, others beside.

    Groups that are no products (conditions, given coefficients) enter the optimum through the
    distinct columns of all groups together, as long as those are few enough. All conjunctions of
    some widths are measured degree by degree where that is optimal, or nothing else fits.
    """
    degrees = _by_degrees(workload, objective)
    if degrees is not None and _gap(degrees, objective) <= LIMITS.far_ratio:
        return degrees
    products = [i for i, t in enumerate(workload.terms) if t.as_product() is not None]
    others = [i for i, t in enumerate(workload.terms) if t.as_product() is None]
    if not others:
        return _of_products(workload, objective)
    with suppress(TooLarge):
        return _joint(workload, objective)
    if degrees is not None:
        return degrees
    together = _by_interactions(workload, objective)
    if together is not None and _gap(together, objective) <= LIMITS.interactions_ratio:
        return together
    parts = _of_others(workload, others, noise, objective)
    if products:
        parts.insert(0, (_of_products(_part(workload, products), objective), products))
    apart = (
        parts[0][0] if len(parts) == 1 else combined("factorization", workload, parts, objective)
    )
    return apart if together is None else _better(apart, together, objective)


def _by_interactions(
    workload: Workload, objective: Objective, rival: float = inf
) -> Strategy | None:
    """By sets of attributes, where every query looks at few of them; None if the rival is better.

    The rival is the squared error of a strategy near its bound; infinite where none is.
    """
    if objective == "max":
        return None
    with suppress(PlanError):
        return interactions(workload, rival)
    return None


def _by_parts(workload: Workload, objective: Objective) -> Strategy | None:
    """In parts that are measured as one product each."""
    if objective == "max":
        return None
    with suppress(PlanError):
        return product_parts(workload)
    return None


def _better(first: Strategy, second: Strategy, objective: Objective) -> Strategy:
    """The one with less error, with the greater of both lower bounds."""
    bounds = [b for b in (first.bound, second.bound) if b is not None]
    is_first = first.weighted_error(objective) <= second.weighted_error(objective)
    return replace(first if is_first else second, bound=max(bounds, default=None))


def _by_degrees(workload: Workload, objective: Objective) -> Strategy | None:
    """All conjunctions of some widths of more attributes than a matrix is quick for."""
    family = symmetric_set(workload)
    if family is None or len(family.names) <= STRATEGY_LIMITS.symmetric_dense_attributes:
        return None
    if family.goes_by_degrees:
        return by_degrees(workload, family, objective=objective)
    with suppress(PlanError):
        characters = conjunctions_by_polynomial(workload, None)
        return replace(characters, mechanism="factorization", bound=least_variance(family))
    return None


def _joint(workload: Workload, objective: Objective) -> Strategy:
    return replace(dense(workload, objective), mechanism="factorization")


def _of_others(
    workload: Workload, others: list[int], noise: Noise, objective: Objective
) -> list[tuple[Strategy, list[int]]]:
    """As one matrix; else conditions with proved weights, and each other group as it is best."""
    if len(others) < len(workload.terms):
        with suppress(TooLarge):
            return [(_joint(_part(workload, others), objective), others)]
    conditions = [i for i in others if workload.terms[i].as_conditions()]
    explicit = [i for i in others if i not in conditions]
    parts = []
    if explicit:
        own = _part(workload, explicit)
        try:
            strategy = _joint(own, objective)
        except TooLarge:
            strategy = replace(_groups(own, noise, objective), mechanism="factorization")
        parts.append((strategy, explicit))
    if conditions:
        parts.append((_of_conditions(_part(workload, conditions), noise, objective), conditions))
    return parts


def _of_conditions(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """With proved weights, by characters or group by group, whichever errs least.

    The bound of the first holds for all.
    """
    plain = replace(_groups(workload, noise, objective), mechanism="factorization")
    options, bound = [plain], None
    if is_conjunctive(workload):
        with suppress(PlanError):
            characters = conjunctions_by_polynomial(workload, None, objective=objective)
            options.append(replace(characters, mechanism="factorization"))
    with suppress(TooLarge):
        weighted = replace(conditions(workload, objective), mechanism="factorization")
        options.insert(0, weighted)
        bound = weighted.bound
    best = min(options, key=lambda strategy: strategy.weighted_error(objective))
    if bound is None or best is options[0]:
        return best
    return replace(best, bound=bound, objective=objective)


def _part(workload: Workload, terms: list[int]) -> Workload:
    return Workload(workload.domain, tuple(workload.terms[i] for i in terms))


def _of_products(workload: Workload, objective: Objective) -> Strategy:
    """The best by structure; where that is far from its bound, by interactions or as one matrix."""
    try:
        best = _by_structure(workload, objective)
    except TooLarge as why:
        return _by_parts(workload, objective) or _beyond_structure(workload, objective, why)
    except PlanError:
        if _is_small(workload):
            with portion(LIMITS.joint_steps):
                return _joint(workload, objective)
        parts = _by_parts(workload, objective)
        if parts is None:
            raise
        return parts
    if _gap(best, objective) <= LIMITS.far_ratio:
        return best
    parts = _by_parts(workload, objective)
    if parts is not None:
        best = _better(best, parts, objective)
    if _gap(best, objective) <= LIMITS.far_ratio:
        return best
    is_near = _gap(best, objective) <= LIMITS.interactions_ratio
    rival = best.weighted_error(objective) if is_near else inf
    together = _by_interactions(workload, objective, rival)
    if together is not None:
        best = _better(best, together, objective)
    if _gap(best, objective) <= LIMITS.far_ratio or not _is_small(workload):
        return best
    with suppress(PlanError), portion(LIMITS.joint_steps):
        return _better(best, _joint(workload, objective), objective)
    return best


def _beyond_structure(workload: Workload, objective: Objective, why: TooLarge) -> Strategy:
    """Where an attribute is too long for pieces: as one matrix, else part by part.

    Groups that ask the same long attributes are one part, or each of them where they are all. A
    part is measured as it is best for itself, and all share the noise; ``why`` is raised where
    that is no division.
    """
    if _is_small(workload) and _entries(workload) <= LIMITS.joint_coefficients:
        with suppress(PlanError), portion(LIMITS.joint_steps):
            return _joint(workload, objective)
    by_length: dict[tuple[str, ...], list[int]] = {}
    for i, term in enumerate(workload.terms):
        by_length.setdefault(_long_attributes(term), []).append(i)
    is_long = any(by_length)
    groups = list(by_length.values())
    groups = groups if len(groups) > 1 else [[i] for i in groups[0]]
    if not is_long or not 1 < len(groups) <= LIMITS.joint_parts:
        raise why
    parts = [(_of_products(_part(workload, g), objective), g) for g in groups]
    return combined("factorization", workload, parts, objective)


def _long_attributes(term: Term) -> tuple[str, ...]:
    """The attributes of a product that no matrix along one attribute holds."""
    product = term.as_product()
    most = STRATEGY_LIMITS.dense_axis_cells
    factors = () if product is None else product.factors
    return tuple(n for n, q in factors if q.size > most and not q.is_identity)


def _entries(workload: Workload) -> int:
    """Coefficients of all queries over all cells of the attributes that they ask about."""
    names = workload.domain.in_order(n for t in workload.terms for n in t.attributes)
    return workload.queries * workload.domain.cells(names)


def _gap(strategy: Strategy, objective: Objective) -> float:
    """Error over its bound; infinite where none is known."""
    bound = strategy.bound_for(objective)
    return sqrt(strategy.weighted_error(objective) / bound) if bound else inf


def _is_small(workload: Workload) -> bool:
    """Whether the queries may be few enough to be solved as one matrix."""
    return workload.queries <= LIMITS.joint_queries


def _by_structure(workload: Workload, objective: Objective) -> Strategy:
    """In closed form (marginals), as a matrix, along a chain, by symmetries, or in pieces."""
    marginals = marginals_optimum(workload, objective)
    if marginals is not None:
        return marginals
    if _is_flat(workload):
        with suppress(TooLarge):
            return _joint(workload, objective)
    if objective == "max":
        return _largest_error(workload)
    if _is_long(workload):
        with suppress(PlanError):
            return ordered(workload)
    if _has_long_levels(workload):
        with suppress(PlanError):
            tree = hierarchy(workload)
            if _gap(tree, objective) <= LIMITS.hierarchy_ratio:
                return tree
    matrices = _matrices(workload)
    if matrices > 1:
        with suppress(PlanError):
            return factorwise(workload, partial(_by_orbits, bits=entry_bits(workload)))
    try:
        return _by_orbits(workload)
    except TooLarge:
        with suppress(PlanError):
            return windows(workload)
        strategy = pieces(workload)
    if strategy is None:
        raise PlanError(NO_PRODUCT)
    return strategy


def _largest_error(workload: Workload) -> Strategy:
    """By structure; as a matrix where small queries drown beside large ones in that."""
    try:
        return minimax_strategy(workload)
    except PlanError as why:
        with suppress(TooLarge):
            return _joint(workload, "max")
        raise why from None


def _by_orbits(workload: Workload, bits: int = STRATEGY_LIMITS.factorization_bits) -> Strategy:
    problem = orbit_problem(workload)
    if problem is None:
        raise PlanError(NO_PRODUCT)
    optimum = problem.solve()
    try:
        return factorization(workload, problem, optimum, bits)
    except PlanError:  # small queries drown beside large ones: a matrix tells them apart
        return _joint(workload, "rmse")


def _matrices(workload: Workload) -> int:
    """Along how many attributes one product asks for more than disjoint sets of cells, or 0."""
    term = workload.terms[0].as_product()
    if len(workload.terms) > 1 or term is None:
        return 0
    return sum(not q.is_disjoint for _, q in term.factors)


def _is_flat(workload: Workload) -> bool:
    """Whether few queries are asked of far more cells: counts and sums of a long attribute, say."""
    names = workload.domain.in_order(n for t in workload.terms for n in t.attributes)
    queries, cells = workload.queries, workload.domain.cells(names)
    return (
        queries <= LIMITS.few_queries
        and LIMITS.many_cells <= cells <= LIMITS.matrix_entries // queries
    )


def _is_long(workload: Workload) -> bool:
    """Whether some attribute is asked by prefixes or ranges over many cells."""
    products = [t.as_product() for t in workload.terms]
    return any(
        q.holds_prefixes and q.size > LIMITS.chain_cells
        for t in products
        if t is not None
        for _, q in t.factors
    )


def _has_long_levels(workload: Workload) -> bool:
    """Whether sets of cells within others are asked of a long attribute, in no order."""
    sets: dict[str, dict[str | int, QuerySet]] = {}
    for term in workload.terms:
        product = term.as_product()
        for name, queries in () if product is None else product.factors:
            if queries.size > LIMITS.hierarchy_cells:
                sets.setdefault(name, {})[queries.key] = queries
    return any(
        len(each) > 1 or not all(q.is_disjoint for q in each.values())
        for each in sets.values()
        if not any(q.is_ordered for q in each.values())
    )


def _best_block(workload: Workload, term: Term, noise: Noise, objective: Objective) -> Term:
    """The asked queries, the table of their attributes, or a tree: the least error for itself."""
    options: list[Term] = [term]
    if term.cells <= LIMITS.measured_table_cells and not term.is_table and not term.is_wide:
        options.append(table_block(workload, term.attributes))
    tree = _best_tree(term, noise)
    options += [tree] if tree is not None else []
    if len(options) == 1:
        return term
    return min(options, key=lambda block: _alone(term, block, noise, objective))


def _alone(term: Term, block: Term, noise: Noise, objective: Objective) -> float:
    """The error of a term answered from a block of column norm 1."""
    single = Workload(term.domain, (term,))
    group = single.terms[0]
    measured = group if block is term else block
    strategy = Blockwise("", noise, single, (Block(measured, 1.0),), (0,))
    of_term = strategy.maximum_variance if objective == "max" else strategy.total_variance
    return of_term(0, [1.0]) * strategy.squared_sensitivity()


def _best_tree(term: Term, noise: Noise) -> Product | None:
    product = term.as_product()
    if product is None or product.cells > LIMITS.measured_table_cells:
        return None
    return min(_trees(product), key=lambda b: _alone(term, b, noise, "rmse"), default=None)


def _trees(term: Product) -> Iterator[Product]:
    """Trees along the longest attribute that is asked by intervals longer than one cell."""
    if _has_intervals(term):
        _, name = max((q.size, name) for name, q in term.factors if q.is_ordered and q.size > 2)
        for branching in BRANCHINGS:
            yield tree_block(term, name, branching)


def _has_intervals(term: Product) -> bool:
    return any(q.is_ordered and q.size > 2 for _, q in term.factors)


MECHANISMS: dict[str, Mechanism] = {
    "laplace": Mechanism(_queries, "laplace"),
    "gaussian": Mechanism(_queries, "gaussian"),
    "laplace-table": Mechanism(_table, "laplace"),
    "gaussian-table": Mechanism(_table, "gaussian"),
    "laplace-tree": Mechanism(_tree, "laplace"),
    "gaussian-tree": Mechanism(_tree, "gaussian"),
    "laplace-groups": Mechanism(_groups, "laplace"),
    "gaussian-groups": Mechanism(_groups, "gaussian"),
    "laplace-wavelet": Mechanism(wavelet, "laplace"),
    "gaussian-wavelet": Mechanism(wavelet, "gaussian"),
    "laplace-weighted-tree": Mechanism(weighted_tree, "laplace"),
    "gaussian-weighted-tree": Mechanism(weighted_tree, "gaussian"),
    "laplace-fourier": Mechanism(fourier, "laplace"),
    "gaussian-fourier": Mechanism(fourier, "gaussian"),
    "factorization": Mechanism(_factorization, "gaussian"),
    "laplace-optimum": Mechanism(laplace_optimum, "laplace"),
}

# Lower bounds on the weighted error of what they build, for one added or removed record and noise
# of unit variance at sensitivity 1, at the cost of a look at every group.
FLOORS: dict[str, Callable[[Workload, Noise, Objective], float]] = {
    "laplace": _queries_floor,
    "gaussian": _queries_floor,
    "laplace-table": _table_floor,
    "gaussian-table": _table_floor,
    "laplace-groups": _groups_floor,
    "gaussian-groups": _groups_floor,
}
