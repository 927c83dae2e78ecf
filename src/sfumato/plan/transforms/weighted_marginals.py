# SPDX-License-Identifier: Apache-2.0
"""Weighted marginals, answered jointly: every measured table helps every asked one.

Measured are tables A of counts with shares ``theta_A``; a record is in one cell of each, so the L1
column norm is ``sum theta_A``. All their Gram matrices share eigenspaces, one per set B of
attributes: the residuals of B, which sum to zero along every attribute of B. On them the
measurements have precision ``lambda_B = sum_{A contains B} theta_A^2 / n_A`` (times the number of
cells), ``n_A = prod_{i in A} n_i``, and asked tables S err by

    sum_B e_B / lambda_B,      e_B = prod_{i in B} (n_i - 1)  sum_{S contains B} w_S^2 / n_S.

The shares minimise this at ``sum theta = 1``. That is not convex, so the search starts from the
asked tables and from tables merged greedily: answering several small tables from one larger one
saves noise. The estimate of a residual is the mean of what the tables that hold it say, weighted
by precision, which is least squares.

References: Barak et al. 2007; McKenna, Miklau, Hay, Machanavajjhala 2018, section 6.3 (weights for
all marginals); Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals under convex loss functions" (residuals).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from math import log, prod

import numpy as np
import numpy.typing as npt

from sfumato.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.blockwise import table_block
from sfumato.plan.effort import spend
from sfumato.plan.strategy import Block, Strategy
from sfumato.plan.transforms.kronecker import TABLE_CELLS
from sfumato.plan.transforms.pidentity import stop_in_time
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

__all__ = ["MOST_MERGED", "WeightedMarginals", "merged_tables", "weighted_marginals"]

MOST_PAIRS = 2**22  # pairs of a measured table and a set of attributes
MOST_MERGED = 600  # asked tables between which merging is tried
LEAST = 1e-7  # of all shares: a table below it is not measured
LARGEST_LOG = 700.0  # floats hold no greater exponential
STEPS = 500

Subset = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WeightedMarginals(Strategy):
    """Block b measures the table of ``tables[b]``; all terms ask for tables."""

    tables: tuple[Subset, ...]
    _parts: dict[Subset, tuple[Integers, Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum of the residuals within the term, each from all tables that hold it."""
        asked, domain = self.workload.terms[term].attributes, self.workload.domain
        out = np.zeros([domain[n].size for n in asked])
        for subset in _subsets(asked):
            found: Array | float = 0.0
            holding, parts, _ = self._weights(subset)
            for b, part in zip(holding.tolist(), parts.tolist(), strict=True):
                table = np.asarray(values[b], dtype=np.float64)
                table = table.reshape([domain[n].size for n in self.tables[b]])
                extra = tuple(i for i, n in enumerate(self.tables[b]) if n not in subset)
                found = found + part * table.sum(axis=extra)
            residual = _centred(np.asarray(found))
            shape = [domain[n].size if n in subset else 1 for n in asked]
            out = out + residual.reshape(shape) / self._cells(set(asked) - set(subset))
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """Residuals of the coefficients, repeated along what each table has more."""
        asked, domain = self.workload.terms[term].attributes, self.workload.domain
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([domain[n].size for n in asked])
        out: dict[int, Array] = {}
        for subset in _subsets(asked):
            rest = tuple(i for i, n in enumerate(asked) if n not in subset)
            residual = _centred(table.sum(axis=rest)) / self._cells(set(asked) - set(subset))
            holding, parts, _ = self._weights(subset)
            for b, part in zip(holding.tolist(), parts.tolist(), strict=True):
                sizes = [domain[n].size for n in self.tables[b]]
                kept = [domain[n].size if n in subset else 1 for n in self.tables[b]]
                spread = np.broadcast_to(part * residual.reshape(kept), sizes).reshape(-1)
                out[b] = out[b] + spread if b in out else spread
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The same for every cell of a table, by symmetry."""
        rows = self.workload.terms[term].rows
        return np.full(rows, self.greatest_variance(term, block_variances))

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """All cells alike."""
        rows = self.workload.terms[term].rows
        return rows * self.greatest_variance(term, block_variances)

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """``sum_B prod_{i in B} (1 - 1/n_i) / n_{S-B}^2 sum_A part^2 n_{A-B} v_A``."""
        asked = self.workload.terms[term].attributes
        noise = np.asarray(block_variances, dtype=np.float64)
        total = 0.0
        for subset in _subsets(asked):
            spread = prod(1 - 1 / self.workload.domain[n].size for n in subset)
            outside = self._cells(set(asked) - set(subset))
            holding, parts, cells = self._weights(subset)
            total += spread / outside**2 * float((parts**2 * cells) @ noise[holding])
        return total

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2 v)^2 / sum r^4 v^2``, v from the shares; cells of a table count by agreement.

        The coefficient of a cell of table A depends on which of the attributes it shares with the
        asked table have the asked value.
        """
        asked = self.workload.terms[term].attributes
        second = fourth = 0.0
        for shared in _subsets(asked):
            for variances, cells in self._coefficients(shared, asked):
                second += float((cells * variances).sum())
                fourth += float((cells * variances**2).sum())
        rows = self.workload.terms[term].rows
        return np.full(rows, second**2 / fourth if fourth > 0 else 1.0)

    def _coefficients(self, shared: Subset, asked: Subset) -> Iterator[tuple[Array, Array]]:
        """Of tables that share just these attributes with the asked one, by pattern of agreement:
        the variance that a cell of each table brings in, and how many such cells it has.
        """
        domain = self.workload.domain
        column = {n: i for i, n in enumerate(domain.names)}
        pattern = np.array([n in shared for n in asked], dtype=bool)
        read = self._inside[:, [column[n] for n in asked]]
        tables = np.flatnonzero((read == pattern).all(axis=1))
        if not len(tables):
            return
        parts = {}
        for subset in _subsets(shared):
            holding, counted, _ = self._weights(subset)
            outside = self._cells(set(asked) - set(subset))
            parts[subset] = counted[np.searchsorted(holding, tables)] / outside
        alone = np.exp(self._logs[tables] - log(self._cells(set(shared))))
        noise = np.array(self.shares)[tables] ** -2
        for equal in _subsets(shared):
            value = np.zeros(len(tables))
            for subset, part in parts.items():
                signs = (float(n in equal) - 1 / domain[n].size for n in subset)
                value += part * prod(signs)
            cells = prod(domain[n].size - 1 for n in shared if n not in equal)
            yield value**2 * noise, cells * alone

    def _cells(self, names: set[str]) -> float:
        return float(prod(self.workload.domain[n].size for n in names))

    def _weights(self, subset: Subset) -> tuple[Integers, Array, Array]:
        """The tables that hold a residual, how much each counts, and the cells it is a sum of."""
        if subset not in self._parts:
            column = {n: i for i, n in enumerate(self.workload.domain.names)}
            holding = np.flatnonzero(self._inside[:, [column[n] for n in subset]].all(axis=1))
            cells = np.exp(self._logs[holding] - log(self._cells(set(subset))))
            precision = np.array(self.shares)[holding] ** 2 / cells
            self._parts[subset] = holding, precision / precision.sum(), np.rint(cells)
        return self._parts[subset]

    @cached_property
    def _inside(self) -> npt.NDArray[np.bool_]:
        names = self.workload.domain.names
        return np.array([[n in table for n in names] for table in self.tables])

    @cached_property
    def _logs(self) -> Array:
        return np.array([log(self._cells(set(table))) for table in self.tables])


def weighted_marginals(workload: Workload) -> WeightedMarginals:
    """The best shares found for Laplace noise; PlanError when a term asks for more than a table."""
    asked: dict[Subset, float] = {}
    for term in workload.terms:
        if not term.is_table:
            raise PlanError(f"group {term.name!r} is not a table of counts")
        if term.cells > TABLE_CELLS:
            raise TooLarge(f"the table of {term.name!r} has {term.cells:,} cells")
        names = term.attributes
        asked[names] = asked.get(names, 0.0) + term.weight**2
    search = _Search(workload, asked)
    shares = search.best()
    blocks = tuple(Block(table_block(workload, a), s) for a, s in shares.items())
    return WeightedMarginals(
        "laplace-optimum", "laplace", workload, blocks, tuple(b.term.attributes for b in blocks)
    )


class _Search:
    """Errors of shares, from precisions on the residuals of the asked tables."""

    def __init__(self, workload: Workload, asked: dict[Subset, float]) -> None:
        self.domain, self.asked = workload.domain, asked
        self.sets = sorted({b for s in asked for b in _subsets(s)}, key=lambda b: (len(b), b))
        known: dict[Subset, float] = dict.fromkeys(self.sets, 0.0)
        for names, weight in asked.items():
            for subset in _subsets(names):
                known[subset] += weight / self.cells(names)
        self.errors = np.array(
            [known[b] * prod(self.domain[n].size - 1 for n in b) for b in self.sets]
        )

    def cells(self, names: Subset) -> float:
        return float(self.domain.cells(names))

    def best(self) -> dict[Subset, float]:
        """Tables with their shares, summing to 1."""
        starts = [self._as_asked(self.asked)]
        if len(self.asked) <= MOST_MERGED:
            starts.append(self._as_asked(merged_tables(self.domain, self.asked)))
        ends = [self._followed(start) for start in starts]
        return min(ends, key=lambda end: end[0])[1]

    def _as_asked(self, tables: dict[Subset, float]) -> dict[Subset, float]:
        """``s^3 ~ error``: best when every table answers for itself."""
        shares = {a: (w * self.cells(a)) ** (1 / 3) for a, w in tables.items()}
        total = sum(shares.values())
        return {a: s / total for a, s in shares.items()}

    def _followed(self, start: dict[Subset, float]) -> tuple[float, dict[Subset, float]]:
        """L-BFGS over the shares of the tables of the start and of all asked residuals."""
        from scipy.optimize import minimize

        tables = list(dict.fromkeys([*start, *self.sets]))
        if len(tables) * len(self.sets) > MOST_PAIRS:
            tables = list(start)
        if len(tables) * len(self.sets) > MOST_PAIRS:
            raise TooLarge(f"{len(tables):,} tables and {len(self.sets):,} sets of attributes")
        holds = self._holds(tables)
        first = np.array([start.get(a, 0.0) for a in tables]) + 1e-3 / len(tables)

        def error(x: Array) -> tuple[float, Array]:
            spend(2.0 * holds.size)
            total = float(x.sum())
            shares = x / total
            precision = holds @ shares**2
            value = float((self.errors / precision).sum())
            slope = -2 * shares * (holds.T @ (self.errors / precision**2))
            return float(np.log(value)), (slope - slope @ shares) / (total * value)

        found = minimize(
            error,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(1e-12, None)] * len(tables),
            callback=stop_in_time,
            options={"maxiter": STEPS, "maxcor": 30, "ftol": 1e-12},
        )
        shares = np.asarray(found.x) / float(np.sum(found.x))
        kept = {a: float(s) for a, s in zip(tables, shares, strict=True) if s > LEAST}
        return float(found.fun), kept

    def _holds(self, tables: list[Subset]) -> Array:
        """``1 / n_A`` where table A holds the residuals of B."""
        names = self.domain.names
        inside = np.array([[n in a for n in names] for a in tables], dtype=np.float64)
        needed = np.array([[n in b for n in names] for b in self.sets], dtype=np.float64)
        holds = (needed @ (1 - inside).T) == 0
        return np.asarray(holds / np.array([self.cells(a) for a in tables]), dtype=np.float64)


def _centred(table: Array) -> Array:
    """Differences to the mean along every axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def merged_tables(domain: Domain, tables: Mapping[Subset, float]) -> dict[Subset, float]:
    """Join the two tables whose union saves most, while there are such.

    A table of n_A cells that answers for weight w errs by ``w n_A``; shared out best, errors e add
    up to ``(sum e^(1/3))^3``.
    """
    sizes = np.log([float(a.size) for a in domain])
    left = dict(tables)
    while len(left) > 1:
        names = list(left)
        inside = np.array([[n in a for n in domain.names] for a in names], dtype=np.float64)
        weights = np.array([left[a] for a in names])
        logs = inside @ sizes
        union = np.minimum(logs[:, None] + logs - (inside * sizes) @ inside.T, LARGEST_LOG)
        alone = np.cbrt(weights * np.exp(logs))
        both = np.cbrt((weights[:, None] + weights) * np.exp(union))
        saved = np.where(union > np.log(TABLE_CELLS), -np.inf, alone[:, None] + alone - both)
        np.fill_diagonal(saved, -np.inf)
        i, j = np.unravel_index(int(saved.argmax()), saved.shape)
        if saved[i, j] <= 0:
            break
        joined = domain.in_order([*names[i], *names[j]])
        weight = left.pop(names[i]) + left.pop(names[j])
        left[joined] = left.get(joined, 0.0) + weight
    return left


def _subsets(names: Subset) -> Iterator[Subset]:
    return chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))
