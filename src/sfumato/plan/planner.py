# SPDX-License-Identifier: Apache-2.0
"""Choose how to ask: build every mechanism that fits, forecast each, keep the best.

Public arithmetic only: the choice depends on the workload, the budget and the neighbours, never
on data, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt

from threadpoolctl import threadpool_limits

from sfumato.budget import Budget, Neighbours
from sfumato.budget.curve import float_down
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.blockwise import Blockwise, shared_noise, table_block, tree_block
from sfumato.plan.calibrate import calibrate
from sfumato.plan.combined import combined
from sfumato.plan.factorization import factorization
from sfumato.plan.forecast import Candidate, Forecast
from sfumato.plan.lower import sum_of_bounds
from sfumato.plan.orbits import orbit_problem
from sfumato.plan.pieces import pieces
from sfumato.plan.strategy import Block, Noise, Strategy
from sfumato.plan.tree import BRANCHINGS
from sfumato.workload.queries import Prefix, Ranges, Windows
from sfumato.workload.terms import Predicates, Product, Term
from sfumato.workload.workload import Workload

__all__ = ["MECHANISMS", "choose"]

TABLE_CELLS = 2**25  # cells of one measured table (256 MiB of counts)
MEASURED = 2**27  # values measured in one release
TOLERANCE = 1e-4  # how close to its lower bound a factorization is driven

Progress = Callable[[int, int, str], None]


class _NotFitting(Exception):
    """Why a mechanism does not apply to a workload."""


def _queries(workload: Workload, noise: Noise, objective: str) -> Strategy:  # noqa: ARG001
    """The same noise on every asked query (the Laplace and Gaussian mechanisms of the notes)."""
    blocks = tuple(Block(t, 1.0) for t in workload.terms)
    return Blockwise(noise, noise, workload, blocks, tuple(range(len(blocks))))


def _table(workload: Workload, noise: Noise, objective: str) -> Strategy:
    """Noise on the contingency table of all attributes that are asked about."""
    names = workload.domain.in_order(n for t in workload.terms for n in t.attributes)
    cells = workload.domain.cells(names)
    if cells > TABLE_CELLS:
        raise _NotFitting(f"the table of all attributes has {cells:,} cells")
    if any(isinstance(t, Predicates) and t.is_wide for t in workload.terms):
        raise _NotFitting("the conditions span too many cells")
    block = table_block(workload, names)
    source = [0] * len(workload.terms)
    return shared_noise(f"{noise}-table", noise, workload, [block], source, objective)


def _tree(workload: Workload, noise: Noise, objective: str) -> Strategy:
    """A tree along the longest interval attribute of each group; groups without one as asked."""
    blocks = [_best_tree(t, noise) or t for t in workload.terms]
    if all(b is t for b, t in zip(blocks, workload.terms, strict=True)):
        raise _NotFitting("no group asks for prefixes, ranges or windows")
    source = range(len(blocks))
    return shared_noise(f"{noise}-tree", noise, workload, blocks, source, objective)


def _groups(workload: Workload, noise: Noise, objective: str) -> Strategy:
    """Each group of queries the best way for itself, the noise shared out optimally."""
    blocks = [_best_block(workload, t, noise, objective) for t in workload.terms]
    source = range(len(blocks))
    return shared_noise(f"{noise}-groups", noise, workload, blocks, source, objective)


def _factorization(workload: Workload, noise: Noise, objective: str) -> Strategy:
    """The certified optimum of the products, the best block each for groups that are none."""
    products = [i for i, t in enumerate(workload.terms) if isinstance(t, Product)]
    if not products:
        raise _NotFitting("no group is a product of query sets")
    if len(products) == len(workload.terms):
        return _of_products(workload)
    others = [i for i in range(len(workload.terms)) if i not in set(products)]
    first = _of_products(Workload(workload.domain, tuple(workload.terms[i] for i in products)))
    second = _groups(
        Workload(workload.domain, tuple(workload.terms[i] for i in others)), noise, objective
    )
    return combined("factorization", workload, [(first, products), (second, others)])


def _of_products(workload: Workload) -> Strategy:
    """Through its symmetries, or in pieces where its classes of cells are too many."""
    try:
        problem = orbit_problem(workload)
    except TooLarge:
        found: Strategy | None = pieces(workload)
    else:
        found = (
            None if problem is None else factorization(workload, problem, problem.solve(TOLERANCE))
        )
    if found is None:
        raise _NotFitting("a group is not a product of query sets")
    return found


_BUILDERS: dict[str, Callable[[Workload, Noise, str], Strategy]] = {
    "queries": _queries,
    "table": _table,
    "tree": _tree,
    "groups": _groups,
    "factorization": _factorization,
}

MECHANISMS: dict[str, tuple[str, Noise]] = {
    "laplace": ("queries", "laplace"),
    "gaussian": ("queries", "gaussian"),
    "laplace-table": ("table", "laplace"),
    "gaussian-table": ("table", "gaussian"),
    "laplace-tree": ("tree", "laplace"),
    "gaussian-tree": ("tree", "gaussian"),
    "laplace-groups": ("groups", "laplace"),
    "gaussian-groups": ("groups", "gaussian"),
    "factorization": ("factorization", "gaussian"),
}


def choose(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours,
    objective: str = "rmse",
    mechanism: str | None = None,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
    noise_only: Noise | None = None,
) -> Forecast:
    """The forecast of the best mechanism for the workload, with all that were considered."""
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    wanted = [w for w in _wanted(mechanism) if noise_only in (None, MECHANISMS[w][1])]
    found: list[Forecast] = []
    considered: list[Candidate] = []
    for i, name in enumerate(wanted):
        if progress is not None:
            progress(i, len(wanted), name)
        builder, noise = MECHANISMS[name]
        loss = budget.gaussian_mu if noise == "gaussian" else float_down(budget.pure_epsilon)
        if loss is None:
            considered.append(Candidate(name, None, None, "needs delta > 0, rho or mu"))
            continue
        try:
            # Thousands of small eigenvalue problems: threads would wait for each other.
            with threadpool_limits(limits=1, user_api="blas"):
                strategy = _BUILDERS[builder](workload, noise, objective)
            _check_memory(strategy)
            scales = calibrate(strategy, loss, neighbours, unit)
        except (PlanError, _NotFitting) as why:
            considered.append(Candidate(name, None, None, str(why)))
            continue
        forecast = Forecast(workload, budget, neighbours, objective, unit, strategy, scales, ())
        considered.append(Candidate(name, forecast.rmse, forecast.largest_error, ""))
        found.append(forecast)
    if not found:
        raise PlanError(f"no mechanism fits this workload and budget: {_reasons(considered)}")
    best = min(found, key=_objective_value)
    bounds = [f.strategy.bound for f in found if f.strategy.bound is not None]
    if not bounds and best.strategy.noise == "gaussian":
        bounds = [b for b in [sum_of_bounds(workload)] if b > 0]
    shown = tuple(replace(c, is_chosen=c.mechanism == best.mechanism) for c in considered)
    return replace(best, candidates=shown, bound=max(bounds, default=None))


def _reasons(considered: list[Candidate]) -> str:
    """Every reason once, with the mechanisms it holds for."""
    by_note: dict[str, list[str]] = {}
    for candidate in considered:
        by_note.setdefault(candidate.note, []).append(candidate.mechanism)
    return "; ".join(f"{note} ({', '.join(names)})" for note, names in by_note.items())


def _wanted(mechanism: str | None) -> list[str]:
    if mechanism is None:
        return list(MECHANISMS)
    if mechanism in MECHANISMS:
        return [mechanism]
    found = [name for name in MECHANISMS if name.endswith(f"-{mechanism}")]
    if not found:
        kinds = ", ".join([*MECHANISMS, "table", "tree", "groups"])
        raise PlanError(f"unknown mechanism {mechanism!r}; allowed are {kinds}")
    return found


def _objective_value(forecast: Forecast) -> float:
    """Weighted by what matters to the asker."""
    pairs = list(zip(forecast.groups, forecast.workload.terms, strict=True))
    if forecast.objective == "max":
        return max(g.largest * t.weight for g, t in pairs)
    weight = sum(g.queries * t.weight**2 for g, t in pairs)
    return sqrt(sum(g.rmse**2 * g.queries * t.weight**2 for g, t in pairs) / weight)


def _check_memory(strategy: Strategy) -> None:
    measured = sum(b.term.rows for b in strategy.blocks)
    if measured > MEASURED:
        raise TooLarge(
            f"{measured:,} values would be measured ({8 * measured / 2**30:,.1f} GiB), the limit "
            f"is {MEASURED:,}; ask for fewer or coarser queries"
        )
    for block in strategy.blocks:
        wide = isinstance(block.term, Predicates) and block.term.is_wide
        if block.term.cells > MEASURED and not wide:
            raise TooLarge(
                f"the table of {', '.join(block.term.attributes)} has {block.term.cells:,} cells "
                f"({8 * block.term.cells / 2**30:,.1f} GiB), the limit is {MEASURED:,}; use fewer "
                "attributes at once or coarser bins"
            )


def _best_block(workload: Workload, term: Term, noise: Noise, objective: str) -> Term:
    """The asked queries, the table of their attributes, or a tree: the least error for itself."""
    options: list[Term] = [term]
    if isinstance(term, Product):
        if term.cells <= TABLE_CELLS and not term.is_table:
            options.append(table_block(workload, term.attributes))
        tree = _best_tree(term, noise)
        options += [tree] if tree is not None else []
    elif term.cells <= TABLE_CELLS and not (isinstance(term, Predicates) and term.is_wide):
        options.append(table_block(workload, term.attributes))
    return min(options, key=lambda block: _alone(term, block, noise, objective))


def _alone(term: Term, block: Term, noise: Noise, objective: str) -> float:
    """The error of a term answered from a block of column norm 1."""
    single = Workload(term.domain, (term,))
    asked = single.terms[0]
    measured = asked if block is term else block
    strategy = Blockwise("", noise, single, (Block(measured, 1.0),), (0,))
    p = 2 if noise == "gaussian" else 1
    power = strategy.column_norm(p).power
    norm = power if p == 2 else power**2
    if objective == "max":
        return strategy.greatest_variance(0, [1.0]) * norm
    return strategy.total_variance(0, [1.0]) * norm


def _best_tree(term: Term, noise: Noise) -> Product | None:
    if not isinstance(term, Product) or term.cells > TABLE_CELLS:
        return None
    return min(_trees(term), key=lambda b: _alone(term, b, noise, "rmse"), default=None)


def _trees(term: Product) -> Iterator[Product]:
    """Trees along the longest attribute that is asked by intervals longer than one cell."""
    long = [
        (q.size, name)
        for name, q in term.factors
        if isinstance(q, Prefix | Ranges | Windows) and q.size > 2
    ]
    if long:
        _, name = max(long)
        for branching in BRANCHINGS:
            yield tree_block(term, name, branching)
