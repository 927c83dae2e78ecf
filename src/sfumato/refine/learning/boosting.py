# SPDX-License-Identifier: Apache-2.0
"""Synopses of few queries, and their median: the public half of boosting over queries.

A synopsis is a histogram made of the noisy answers y of a few queries F. Of all histograms that
explain them it is the most even one,

    minimise c n KL(h / n | uniform) + sum_q (F h - y)_q^2 / (2 sigma_q^2)   over h >= 0, 1'h = n,

so queries it does not know are answered as evenness has it. The dual is smooth, in one variable per
known query whatever the domain: ``h = n exp(F'u) / sum exp(F'u)`` with ``c sigma^2 u = y - F h``.
(The base generators of Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy", search
all small data sets, and know the queries of their own round only.)

Every query is answered by the median over synopses; where more than half of them are within some
distance of the truth, so is it. The medians need not be those of a data set: ``histogram`` is the
one whose largest difference from them is least (``minimax``), at most twice as far. Public
arithmetic only; which queries are known, and how that hangs on the data: ``run/rounds.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.refine.cells.explicit import Estimate, fit_explicit
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.minimax import fit_largest
from sfumato.refine.fit import Fit, Names, fit_answers
from sfumato.refine.learning.hedge import MOST_CELLS
from sfumato.workload.constraints import Constraints
from sfumato.workload.gram import marginal, spread
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

__all__ = ["Boosted", "synopsis"]

# With 1 it is the likeliest histogram of records drawn evenly at random; data are not like that.
EVENNESS = 0.01
NEAR = 0.01  # how far above the least the largest difference of the histogram may be
STEPS = 500


class Boosted:
    """Synopses of ``total`` records, one per round, and the answers they vote for."""

    def __init__(
        self, workload: Workload, total: float, constraints: Constraints | None = None
    ) -> None:
        self._constraints = constraints
        if workload.domain.size > MOST_CELLS:
            raise TooLarge(
                f"boosting holds all {workload.domain.size:,} cells of the domain, at most "
                f'{MOST_CELLS:,} are allowed; use method="tables", or fewer attributes'
            )
        self.workload, self.domain, self.total = workload, workload.domain, max(float(total), 1.0)
        self._known: dict[int, tuple[float, float]] = {}  # value and precision by query
        self._votes: list[Array] = []

    def learn(self, queries: Sequence[int], values: Array, variance: float) -> Array:
        """One more synopsis, from these noisy answers and all earlier ones; its answers to all.

        Queries that come again are averaged, each answer by its inverse variance.
        """
        self.__dict__.pop("histogram", None)
        for query, value in zip(queries, values, strict=True):
            mean, precision = self._known.get(query, (0.0, 0.0))
            after = precision + 1 / variance
            self._known[query] = ((mean * precision + float(value) / variance) / after, after)
        known = np.array(list(self._known.values()))
        h = synopsis(self.workload, list(self._known), known[:, 0], 1 / known[:, 1], self.total)
        self._votes.append(_answers(self.workload, h))
        return self._votes[-1]

    @property
    def medians(self) -> Array:
        """The answers to all queries, group after group: each the median of its votes."""
        if not self._votes:
            raise PlanError("there is no median of no synopses; learn from one first")
        return np.asarray(np.median(self._votes, axis=0))

    @cached_property
    def histogram(self) -> Array:
        """The histogram whose largest difference from the medians is least."""
        fit = fit_answers(self.workload, _split(self.workload, self.medians))
        known = self._constraints
        grid = Grid.of(fit, known)
        found = self._nearest(fit, grid)
        # One cell stands for all that no query tells apart.
        public = Constraints(self.domain) if known is None else known
        full = np.zeros(self.domain.shape)
        at = tuple(public.completed(grid.names, grid.codes(found.cells)))
        np.add.at(full, at, found.weights)
        return full

    def _nearest(self, fit: Fit, grid: Grid) -> Estimate:
        """Minimax knows no published tables: the nearest histogram in least squares meets them."""
        if any(t.names for t in grid.published):
            try:
                return fit_explicit(fit, grid, self.total, gap=NEAR)
            except WorkloadError:  # the tables could not be met; what is paid for is still answered
                pass
        return fit_largest(fit, grid, self.total, gap=NEAR)

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))


def synopsis(
    workload: Workload, queries: Sequence[int], values: Array, variances: Array, total: float
) -> Array:
    """The most even histogram of ``total`` records that explains some noisy answers.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"sex": 2}), 1)
    >>> synopsis(work, [0], np.array([8.0]), np.array([1.0]), 10.0).round(1).tolist()
    [8.0, 2.0]
    """
    from scipy.optimize import minimize

    known = np.asarray(queries, dtype=np.int64)
    if not known.size or len(set(known.tolist())) != known.size or known.size != len(values):
        raise PlanError("a synopsis needs one answer for each of some different queries")
    # In v = sigma u the dual has curvature 1 or more, and nearly that where noise is large.
    sigma, y = np.sqrt(EVENNESS * np.asarray(variances)), np.asarray(values, dtype=np.float64)

    def dual(v: Array) -> tuple[float, Array]:
        h, log_mass = _tilted(workload, known, v / sigma, total)
        found = _answers(workload, h)[known]
        value = total * log_mass - float(v @ (y / sigma)) + 0.5 * float(v @ v)
        return value, (found - y) / sigma + v

    start = np.zeros(known.size)
    best = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return _tilted(workload, known, best / sigma, total)[0]


def _tilted(workload: Workload, known: Integers, u: Array, total: float) -> tuple[Array, float]:
    """``n exp(F'u) / sum exp(F'u)``, and the logarithm of the mean of ``exp(F'u)``."""
    all_queries = np.zeros(workload.queries)
    all_queries[known] = u
    tilt = np.zeros(workload.domain.shape)
    for term, part in zip(workload.terms, _split(workload, all_queries), strict=True):
        if part.any():
            table = np.asarray(term.adjoint(part), dtype=np.float64).reshape(term.shape)
            tilt = tilt + spread(table, workload.domain, term.attributes)
    top = float(tilt.max())
    mass = np.exp(tilt - top)
    whole = float(mass.sum())
    return mass * (total / whole), top + float(np.log(whole / mass.size))


def _answers(workload: Workload, h: Array) -> Array:
    tables = {t.attributes: marginal(h, workload.domain, t.attributes) for t in workload.terms}
    return np.concatenate([t.answer(tables[t.attributes]) for t in workload.terms])


def _split(workload: Workload, numbers: Array) -> list[Array]:
    return list(np.split(numbers, np.cumsum([t.rows for t in workload.terms])[:-1]))
