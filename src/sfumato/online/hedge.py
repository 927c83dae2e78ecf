# SPDX-License-Identifier: Apache-2.0
"""Hedge: shares of trust in experts, multiplied by ``exp(-rate loss)`` after every loss.

    x_t(i) = w_t(i) / sum_j w_t(j),    w_{t+1}(i) = w_t(i) exp(-rate l_t(i))

Freund, Schapire 1997, "A decision-theoretic generalization of on-line learning and an application
to boosting". For losses with ``rate l >= -1`` and any expert i (for losses of at least 0: Theorem
1.5 of E. Hazan, "Introduction to online convex optimization"):

    sum_t x_t . l_t  <=  sum_t l_t(i)  +  rate sum_t x_t . l_t^2  +  log(1 / x_1(i)) / rate

which for even shares at the start is ``log N / rate``. The right side is linear in the weights of
experts, so the same holds against any mixture p of them, with ``KL(p || x_1) / rate`` at the end.
Private multiplicative weights (``estimate.py``) are Hedge with cells as experts and questions as
losses. Public arithmetic only.
"""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.workload.queries import Array

__all__ = ["Experts", "best_rate"]


class Experts:
    """Shares of N experts, even at first unless told, and what they have cost.

    >>> experts = Experts(2, rate=1.0)
    >>> experts.learn(np.array([1.0, 0.0]))
    0.5
    >>> experts.shares.round(3).tolist()
    [0.269, 0.731]
    """

    def __init__(self, count: int, rate: float, shares: Array | None = None) -> None:
        if not rate > 0 or rate == inf:
            raise PlanError(f"the rate of learning must be a finite number above 0, got {rate!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlanError(f"there must be at least one expert, got {count!r}")
        first = np.full(count, 1.0 / count) if shares is None else np.asarray(shares, np.float64)
        if first.shape != (count,) or not (first >= 0).all() or not 0 < first.sum() < inf:
            raise PlanError(f"the first shares must be {count} numbers of at least 0, not all 0")
        self.rate = float(rate)
        with np.errstate(divide="ignore"):
            self._logs = np.log(first / first.sum())
        self._first = self._logs.copy()
        self._losses = np.zeros(count)
        self._own = self._squares = 0.0

    @property
    def shares(self) -> Array:
        """The share of each expert; they sum to 1."""
        raised = np.exp(self._logs - self._logs.max())
        return np.asarray(raised / raised.sum())

    def learn(self, losses: Array) -> float:
        """Suffer the losses of the experts, each by its share, and move the shares."""
        found = np.asarray(losses, dtype=np.float64)
        if found.shape != self._logs.shape or not np.isfinite(found).all():
            raise PlanError(f"there must be one finite loss for each of {self._logs.size} experts")
        if self.rate * float(found.min()) < -1:
            raise PlanError("a loss below -1 / rate is outside what the regret bound covers")
        shares = self.shares
        own = float(shares @ found)
        self._own += own
        self._squares += float(shares @ found**2)
        self._losses += found
        self._logs = self._logs - self.rate * found
        return own

    @property
    def loss(self) -> float:
        """What all losses so far have cost."""
        return self._own

    def regret(self, mixture: Array) -> float:
        """How much more that was than what a fixed mixture of experts would have cost."""
        return self._own - float(np.asarray(mixture, dtype=np.float64) @ self._losses)

    def regret_bound(self, mixture: Array) -> float:
        """The most that `regret` can be: ``rate sum x . l^2 + KL(mixture || first shares) / rate``.

        Freund, Schapire 1997; Hazan, Theorem 1.5, by ``exp(-z) <= 1 - z + z^2`` for ``z >= -1``.
        """
        held = np.asarray(mixture, dtype=np.float64)
        used = held > 0
        apart = float(held[used] @ (np.log(held[used]) - self._first[used]))
        return self.rate * self._squares + apart / self.rate


def best_rate(experts: int, rounds: int) -> float:
    """The rate for losses in [0, 1]: ``sqrt(log N / T)``, regret at most ``2 sqrt(T log N)``.

    >>> round(best_rate(100, 1000), 4)
    0.0679
    """
    if experts < 2 or rounds < 1:
        raise PlanError(f"a rate needs 2 experts and 1 round, got {experts} and {rounds}")
    return min(1.0, sqrt(log(experts) / rounds))
