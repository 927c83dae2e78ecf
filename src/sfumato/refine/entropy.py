# SPDX-License-Identifier: Apache-2.0
"""Maximum entropy without a histogram: weighted rows of an exponential family.

    p(x) ~ prod_a shares_a(x_a) exp(sum_S theta_S(x_S))

is the distribution nearest to independence (in relative entropy) that agrees with what was measured
on the attribute sets S. The measured tables are noisy, so agreement is weighed: the potentials
minimise

    n KL(p || independent) + sum_S |n p_S - y_S|^2 / (2 variance_S)   where table S counts g_S-fold

and are found one table at a time: given all others, ``theta_S = g_S (y_S - n p_S) / variance_S``
is one equation per cell (proportional fitting, Deming, Stephan 1940, "On a least squares adjustment
of a sampled frequency table", with noise: the exact block step of the dual). ``g_S``, how much
looser than sampling noise the dependence is taken to be, is the excess of the squared difference
when the table came (empirical Bayes).

p is never built: rows drawn from it stand for it, as importance weights while potentials move, and
drawn anew (resampled, then Metropolis steps) when the weights have become uneven (Del Moral,
Doucet, Jasra 2006, "Sequential Monte Carlo samplers"). Memory is that of the rows and the measured
tables; the domain may have any size. Everything here is arithmetic on public numbers, and
repeatable: draws come from a public label. With constraints no row is ever impossible; published
tables are observed like others, with next to no noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError
from sfumato.refine.draws import Draws
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible
from sfumato.types import Array, Integers, Names
from sfumato.workload.constraints import Constraints

__all__ = [
    "MaximumEntropy",
    "independent_shares",
]


class MaximumEntropy:
    """Rows of the maximum entropy distribution of noisy tables, ``total`` records in all.

    >>> model = MaximumEntropy(Domain({"a": 2, "b": 2}), [np.ones(2), np.ones(2)], 100.0, 4000)
    >>> model.observe(("a", "b"), np.array([[50.0, 0.0], [0.0, 50.0]]), 1.0)
    >>> model.fit(3)
    >>> [round(v) for v in model.table(("a", "b")).ravel()]
    [50, 0, 0, 50]
    """

    def __init__(
        self,
        domain: Domain,
        shares: Sequence[Array],
        total: float,
        rows: int,
        label: str = "maximum entropy",
        constraints: Constraints | None = None,
    ) -> None:
        if not (np.isfinite(total) and total > 0 and rows >= 1):
            raise PlanError(f"{rows} rows cannot stand for {total} records: both must be above 0")
        self.domain, self.total = domain, float(total)
        self._shares = [independent_shares(s) for s in shares]
        self._draws = Draws(label)
        self._tables: dict[Names, tuple[Array, float, float]] = {}
        self._potentials: dict[Names, Array] = {}
        self._cells: dict[Names, Integers] = {}
        self._constraints = constraints
        self.codes = self._independent(rows)
        self.weights = np.full(rows, 1.0 / rows)

    @property
    def evenness(self) -> float:
        """The effective number of rows (Kong 1992), as a share of all."""
        return float(1.0 / (self.weights**2).sum() / self.weights.size)

    @property
    def sets(self) -> tuple[Names, ...]:
        """The attribute sets that were observed."""
        return tuple(self._tables)

    def table(self, names: Names) -> Array:
        """The estimated counts over any attributes, an axis each, in the order of the domain."""
        from sfumato.solve.row_kernels import margin

        shape = self._shape(names)
        known = self._cells.get(names)
        cells = self._cell_numbers(names) if known is None else known
        out = np.zeros(prod(shape))
        margin(cells, self.weights, out)
        return np.asarray(out * self.total).reshape(shape)

    def observe(self, names: Names, values: Array, variance: float) -> None:
        """Take a noisy table; one over the same attributes is averaged with what was known."""
        noisy = np.asarray(values, dtype=np.float64).ravel()
        looseness = 1.0
        if names in self._tables:
            before, known, looseness = self._tables[names]
            share = known / (known + variance)
            noisy, variance = before + share * (noisy - before), known * (1 - share)
        apart = noisy - self.table(names).ravel()
        excess = float(apart @ apart) - noisy.size * variance
        excess += LIMITS.looseness_margin * sqrt(2 * noisy.size) * variance
        looseness = min(max(excess / self.total, looseness), LIMITS.looseness_maximum)
        self._tables[names] = (noisy, variance, looseness)
        self._potentials.setdefault(names, np.zeros(noisy.size))
        if names not in self._cells:
            self._cells[names] = self._cell_numbers(names)

    def fit(self, sweeps: int = 1, sets: Iterable[Names] | None = None) -> None:
        """Solve for the potentials of one table after the other, all of them unless told."""
        from sfumato.solve.row_kernels import margin, reweight, solve

        for _ in range(sweeps):
            for names in self._tables if sets is None else sets:
                values, variance, looseness = self._tables[names]
                old, new = self._potentials[names], np.empty(values.size)
                shares = np.zeros(values.size)
                margin(self._cells[names], self.weights, shares)
                with np.errstate(divide="ignore"):
                    solve(
                        shares,
                        old,
                        values,
                        looseness / variance,
                        self.total,
                        LIMITS.potential_step,
                        new,
                    )
                self.weights /= reweight(self._cells[names], np.exp(new - old), self.weights)
                self._potentials[names] = new

    def renew(self, rows: int | None = None, moves: int = LIMITS.metropolis_steps) -> None:
        """Draw rows anew: in proportion to their weights, then moved under the potentials."""
        count = self.weights.size if rows is None else rows
        edges = np.cumsum(self.weights)
        at = (np.arange(count) + self._draws.uniforms(1)[0]) / count * edges[-1]
        kept = np.minimum(np.searchsorted(edges, at, side="right"), edges.size - 1)
        self.codes = np.ascontiguousarray(self.codes[kept])
        self.weights = np.full(count, 1.0 / count)
        self._move(moves)
        self._cells = {names: self._cell_numbers(names) for names in self._tables}

    def _move(self, times: int) -> None:
        from sfumato.solve.row_kernels import move

        sets = list(self._potentials)
        if not sets:
            return
        stride = np.stack([self._strides(names) for names in sets])
        lengths = [self._potentials[names].size for names in sets]
        offset = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        by_attribute = [np.flatnonzero(stride[:, a]) for a in range(len(self.domain))]
        start = np.concatenate([[0], np.cumsum([len(k) for k in by_attribute])]).astype(np.int64)
        sizes = np.array(self.domain.shape, dtype=np.int64)
        seed = np.uint64(int(self._draws.uniforms(1)[0] * 2**53))
        before = None if self._constraints is None else self.codes.copy()
        move(
            self.codes,
            np.concatenate([np.cumsum(s) for s in self._shares]),
            np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            sizes,
            np.concatenate([self._potentials[names] for names in sets]),
            offset,
            stride,
            start,
            np.concatenate(by_attribute).astype(np.int64),
            times,
            seed,
        )
        if self._constraints is not None and before is not None:
            # Moves that end outside are refused: the law is the same, given that it is possible.
            outside = ~self._constraints.are_possible(self.codes.T)
            self.codes[outside] = before[outside]

    def _independent(self, rows: int) -> Integers:
        """Rows of the product of the shares, every attribute spread evenly over its quantiles."""
        codes = np.empty((rows, len(self._shares)), dtype=np.int32)
        for a, shares in enumerate(self._shares):
            order = np.argsort(self._draws.uniforms(rows))
            at = (order + self._draws.uniforms(rows)) / rows
            edges = np.cumsum(shares)
            codes[:, a] = np.minimum(np.searchsorted(edges, at, side="right"), shares.size - 1)
        if self._constraints is not None and self._constraints.linked:
            rows_of = codes.T.astype(np.int64)
            drawn = make_possible(self._constraints, rows_of, self._shares, self._draws.uniforms)
            codes = np.ascontiguousarray(drawn.T, dtype=np.int32)
        return codes  # type: ignore[return-value]

    def _shape(self, names: Names) -> tuple[int, ...]:
        return tuple(self.domain[n].size for n in names)

    def _strides(self, names: Names) -> Integers:
        """What a step of each attribute adds to the cell number of a table."""
        out, step = np.zeros(len(self.domain), dtype=np.int64), 1
        for name in reversed(names):
            out[self.domain.index(name)] = step
            step *= self.domain[name].size
        return out

    def _cell_numbers(self, names: Names) -> Integers:
        from sfumato.solve.row_kernels import cells_of

        out = np.empty(self.codes.shape[0], dtype=np.int32)
        members = np.array([self.domain.index(n) for n in names], dtype=np.int64)
        cells_of(self.codes, members, self._strides(names), out)
        return out  # type: ignore[return-value]


def independent_shares(counts: Array) -> Array:
    """Non-negative counts as shares, none of them quite zero."""
    known = np.maximum(np.asarray(counts, dtype=np.float64).ravel(), 0.0)
    mass = known.sum()
    even = np.full(known.size, 1.0 / known.size)
    shares = known / mass if mass > 0 else even
    return np.asarray(
        (1 - LIMITS.one_way_share_minimum) * shares + LIMITS.one_way_share_minimum * even
    )
