# SPDX-License-Identifier: Apache-2.0
"""Strategies for neighbours that replace one record: the diameter counts, not the longest column.

A strategy is built for add-remove neighbours. Here its shares of the noise are chosen afresh. With
``e_b`` the weighted squared error that unit noise on block b makes, and ``d_bv`` how far move v
moves it, squared (``moves.py``), the shares minimise

    sum_b e_b / s_b^2     subject to     sum_b s_b^2 d_bv <= 1  for every move v.

For weights lambda_v >= 0 of sum 1 and ``d_b = sum_v lambda_v d_bv`` the sum is at least
``(sum_b sqrt(e_b d_b))^2`` (Cauchy-Schwarz), which shares ``s_b^2 ~ sqrt(e_b / d_b)`` attain; the
best lambda is found by ``optimum.py``, moves taking the place of cells. A block that no move
changes reads the public total: it gets next to no noise.

Lower bounds for every strategy: with weights on pairs of cells, L their Laplacian, all strategies
of diameter 1 obey ``tr(X L) <= sum(lambda)``, so ``(tr (L^1/2 V L^1/2)^1/2)^2 / sum(lambda)`` is
below every error, by the proof of ``optimum.py`` with L in the place of D. For marginals and
weights on sets of attributes in which two cells differ, this is the bound above: both meet. Proof:
docs/mechanisms/factorization.md, "Replacing a record".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.moves import Moves
from sfumato.plan.optimal.dense import Dense
from sfumato.plan.optimal.factorization import Factorization
from sfumato.plan.optimal.marginals import Marginals
from sfumato.plan.optimal.pairwise import best_for_pairs
from sfumato.plan.optimal.proved import Conditions
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.orbits import orbit_problem
from sfumato.plan.strategy import Block, Objective, Strategy
from sfumato.workload.queries import Array

__all__ = ["for_replace_one"]

NEGLIGIBLE = 1e-8  # of the greatest error: what counts as the error of a block that has none
FREE = 2.0**-24  # of the error of all others: what noise on a public total may add
WIDEST = 2.0**12  # the greatest share of a public total, in greatest shares of others
TOLERANCE = 1e-4
LISTED = 1024  # moves that are weighed at once without choosing among them
ADDED = 256
ROUNDS = 12
KEPT = 1e-9  # of the greatest weight: moves below it leave again
ALTERNATIONS = 4
DROPPED = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)  # weights tried for the record in no cell


def for_replace_one(
    strategy: Strategy, objective: Objective = "rmse", drops: bool = False
) -> Strategy:
    """The strategy with the shares for replace-one neighbours, and a lower bound if one is known.

    ``drops`` says that a replaced record can fall in no cell: then the total is not public.
    """
    if strategy.noise != "gaussian" or strategy.records is not None:
        return strategy
    known = strategy.bound_for(objective)
    # With a record in no cell every column is such a distance: a bound for add-remove holds too.
    least = (known or 0.0) if drops else 0.0
    if not any(d > 0 for d in strategy.block_diameters(2)):
        return replace(strategy, replace_one_bound=least or None, objective=objective, bound=known)
    if isinstance(strategy, Marginals):
        return _marginals(strategy, objective, drops)
    options: list[Strategy] = [strategy]
    if len(strategy.blocks) > 1:
        options.append(_reweighted(strategy, objective, drops))
    bounds = [least]
    if isinstance(strategy, Conditions):
        return _conditions(strategy, objective, drops)
    if isinstance(strategy, Factorization) and strategy.weights is not None:
        bounds.append(_orbit_bound(strategy, objective, drops))
    if strategy.mechanism == "factorization":
        start = strategy if isinstance(strategy, Dense) else None
        found = best_for_pairs(strategy.workload, objective, drops, start)
        if found is not None:
            options.append(found)
            bounds.append(found.replace_one_bound or 0.0)
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    bound = max(bounds)
    return replace(best, replace_one_bound=bound or None, objective=objective, bound=known)


def _conditions(strategy: Conditions, objective: Objective, drops: bool) -> Strategy:
    """Nothing taken away, if that is better; of the bounds, one is for replaced records alone."""
    options = [strategy] if strategy.plain is None else [strategy, strategy.plain]
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    known = strategy.bound_for(objective)
    bounds = [strategy.replace_one_bound or 0.0, (known or 0.0) if drops else 0.0]
    return replace(
        best,
        mechanism=strategy.mechanism,
        replace_one_bound=max(bounds) or None,
        objective=objective,
        bound=known,
    )


def _reweighted(strategy: Strategy, objective: Objective, drops: bool) -> Strategy:
    errors = strategy.block_errors()
    moves = strategy.moves(2, drops) or _greatest_moves(strategy, drops)
    if not moves.distances.any():  # all read the public total
        return strategy
    each = moves.each(_weighed(errors, moves).best)
    found = _with_shares(strategy, _shares(errors, each))
    if objective == "max":  # the shares that were made for it, public totals set free
        shares = np.where(each > 0, strategy.shares, found.shares)
        kept = _with_shares(strategy, shares)
        return min(found, kept, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    return found


def _with_shares(strategy: Strategy, shares: Array) -> Strategy:
    pairs = zip(strategy.blocks, shares.tolist(), strict=True)
    return replace(strategy, blocks=tuple(Block(b.term, s) for b, s in pairs))


def _greatest_moves(strategy: Strategy, drops: bool) -> Moves:
    """One move that stands for all: every block by its own diameter."""
    widest = np.array(strategy.block_diameters(2))
    if drops:
        ones = np.eye(len(widest))
        alone = [strategy.greatest_column(2, unit.tolist()).power for unit in ones]
        widest = np.maximum(widest, alone)
    count = len(widest)
    return Moves(widest[:, None], np.arange(count), np.ones(count), np.ones(count))


@dataclass(frozen=True, eq=False, slots=True)
class _Weighed:
    """Weights of moves: those of the best shares, and those of the greatest lower bound."""

    best: Array
    proof: Array
    lower: float


def _weighed(errors: Array, moves: Moves) -> _Weighed:
    """Maximise ``(sum_b sqrt(e_b d_b))^2`` over lambda; of many moves the farthest join."""
    groups, count = moves.distances.shape
    roots = np.bincount(moves.group, np.sqrt(np.maximum(errors, 0.0) * moves.norms), groups)
    reached = (moves.distances.max(axis=1, initial=0.0) > 0) & (roots > 0)
    everything = moves.distances[reached]
    parts = (roots / np.sqrt(moves.counts))[reached]
    even = np.full(count, 1 / count)
    if not len(everything):
        return _Weighed(even, even, 0.0)
    chosen = np.arange(count)
    if count > LISTED:
        first = parts / np.sqrt(everything.max(axis=1))
        longest = np.argsort(-(first @ everything))[:ADDED]
        chosen = np.unique(np.concatenate([everything.argmax(axis=1), longest]))
    found = _Weighed(even, even, 0.0)
    start: Array | None = None
    for _ in range(ROUNDS):
        some = _balanced(parts, everything[:, chosen], start)
        best, proof = np.zeros(count), np.zeros(count)
        best[chosen], proof[chosen] = some.best, some.proof
        found = _Weighed(best, proof if some.lower > found.lower else found.proof, some.lower)
        moved = (parts / np.sqrt(everything @ best)) @ everything
        if float(moved.max()) <= float(moved[chosen].max()) * (1 + TOLERANCE):
            break
        more = np.argsort(-moved)[:ADDED]
        chosen = np.unique(np.concatenate([np.flatnonzero(best > KEPT * best.max()), more]))
        start = np.maximum(best[chosen], 1e-6 / len(chosen))
    return found


def _balanced(parts: Array, table: Array, start: Array | None) -> _Weighed:
    """The same for a table of few moves."""
    proved: list[Array] = []
    lower = 0.0

    def diagonal(lam: Array) -> Array:
        nonlocal lower
        out = np.asarray(lam * (table.T @ (parts / np.sqrt(table @ lam))))
        now = float(out.sum()) ** 2 / float(lam.sum())
        if now > lower:
            lower = now
            proved[:] = [lam / lam.sum()]
        return out

    found = certified_optimum(diagonal, table.shape[1], TOLERANCE, start=start)
    return _Weighed(found.v / found.v.sum(), proved[0], lower)


def _shares(errors: Array, each: Array) -> Array:
    """``s_b^2 ~ sqrt(e_b / d_b)``, or next to no noise where ``d_b = 0``."""
    errors = np.maximum(errors, NEGLIGIBLE * float(errors.max()))
    moved = each > 0
    squares = np.ones(len(errors))
    squares[moved] = np.sqrt(errors[moved] / each[moved])
    squares[moved] /= float(squares[moved] @ each[moved])
    if not moved.any():
        return squares
    total = float((errors[moved] / squares[moved]).sum())
    squares[~moved] = WIDEST**2 * float(squares[moved].max())
    if total > 0:
        squares[~moved] = np.minimum(errors[~moved] / (FREE * total), squares[~moved])
    return np.asarray(np.sqrt(squares), dtype=np.float64)


def _marginals(strategy: Marginals, objective: Objective, drops: bool) -> Strategy:
    """All shares in closed form from the weights of moves; the bound holds for every strategy."""
    uniform = _uniform_moves(strategy, drops)
    moves = strategy.moves(2, drops)
    options: list[Marginals] = []
    bound = 0.0
    for known in (uniform,) if moves is None else (uniform, moves):
        errors = strategy.block_errors()
        found = _weighed(errors, known)
        below = found.lower
        if objective == "max":
            below = 0.0
            for _ in range(ALTERNATIONS):
                errors, worst = strategy.largest_errors(known.each(found.proof))
                below = max(below, worst)
                found = _weighed(errors, known)
        options.append(strategy.with_shares(_shares(errors, known.each(found.best))))
        bound = max(bound, below)
    options.append(strategy)
    best = min(options, key=lambda s: s.weighted_error(objective, "replace-one", drops))
    return replace(
        best, replace_one_bound=bound, objective=objective, bound=strategy.bound_for(objective)
    )


def _uniform_moves(strategy: Marginals, drops: bool) -> Moves:
    """Two cells drawn at random: ``2 |M_A|^2 / (1 - 1/N)`` on average, for all pieces but {}."""
    known = strategy.lattice
    norms, cells = strategy.piece_norms, strategy.asked_cells
    group = np.minimum(np.arange(known.pieces), 1)
    counts = np.bincount(group).astype(np.float64)
    distances = np.array([[0.0], [2 / (1 - 1 / cells)]])[: len(counts)]
    if drops:
        distances = np.concatenate([distances, np.ones((len(counts), 1))], axis=1)
    return Moves(distances * counts[:, None], group, norms, counts)


def _orbit_bound(strategy: Factorization, objective: Objective, drops: bool) -> float:
    """The bound with ``L = diag(u) - u u'``, u in proportion to the weights of the orbits.

    Between cells of weights u_i and u_j, of sum 1, the weight of a pair is u_i u_j, in all
    ``(1 - sum u^2) / 2``. L differs from the diagonal in the sector of class sums alone, where it
    takes out the direction of the total; a record in no cell is a cell of weight u_0, column 0.
    """
    try:
        problem = orbit_problem(strategy.workload)
    except PlanError:
        return 0.0
    if problem is None or strategy.weights is None:
        return 0.0
    cells = problem.cells
    v = strategy.weights / float(cells @ strategy.weights)
    best = 0.0
    for outside in DROPPED if drops else (0.0,):
        u = (1 - outside) * v
        pairs = (1 - outside**2 - float(cells @ u**2)) / 2
        if pairs > 0:
            best = max(best, problem.trace(u, 1.0) ** 2 / pairs)
    return best / strategy.workload.queries if objective == "max" else best
