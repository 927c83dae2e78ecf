# SPDX-License-Identifier: Apache-2.0
"""Multiplicative weights: the private mechanism and its theorem, and Hedge, which it is made of.

`weights_error` returns the private mechanism with the error that its theorem promises,
`weights_rows_needed` the records that reach an error, `simulated_weights` the answers on made-up
data. `multiplicative_weights` is the algorithm without privacy, `hedge` that of experts (`Experts`,
one round at a time) with its regret bound. Public arithmetic only.

A distribution p over the cells, uniform at first, answers every query while it is right. Above
Threshold says when it is not; then the query is answered with Laplace noise and p is multiplied by
``exp(-+eta q)`` (M. Hardt, G. Rothblum 2010, "A multiplicative weights mechanism for
privacy-preserving data analysis"; C. Dwork, A. Roth 2014, Algorithm 6). Errors are fractions of n
records, for all k queries at once, with probability ``1 - beta``.

Let u be the greatest range of a query and ``Delta`` how far one record moves one, over n; suppose
that no noise exceeds nu. With the threshold ``3 nu``:

* a query that passes is off by at most ``4 nu``, and so is one that is answered with noise;
* one that fails is off by ``e >= 2 nu``, on the side that the noisy answer says. By Hoeffding's
  lemma a step eta lowers ``KL(data || p)`` by ``eta e - eta^2 u^2 / 8`` at least, which is ``8 nu^2
  / u^2`` for ``eta = 8 nu / u^2``. It starts at ``ln m`` or less for m cells, so that at most
  ``c = min(k, ln m u^2 / (8 nu^2))`` queries fail.

A run of AboveThreshold at e_0 has noise ``Lap(2 Delta/e_0)`` on the threshold and ``Lap(4
Delta/e_0)`` on each of the k queries; c + 1 runs are begun. By the union bound nothing exceeds nu
when ``nu = Delta (2 ln(3(c+1)/beta) + 4 ln(3k/beta)) / e_0``, and the c answers need noise of
``e_1 = Delta ln(3c/beta) / nu`` only. The cost is ``(c+1) e_0 + c e_1``, or in zCDP ``((c+1) e_0^2
+ c e_1^2) / 2`` (M. Bun, T. Steinke 2016). Solved for nu this is the theorem of the notes, n of
order ``log k sqrt(log m log(1/delta)) / (alpha^2 epsilon)``, with its constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, isfinite, log, pi, sqrt
from typing import overload

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError
from sfumato.privacy.budget import Budget
from sfumato.privacy.gaussian import float_down
from sfumato.random import Draws
from sfumato.study.matrix_norms import dense_queries
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array
from sfumato.workload.workload import Workload

__all__ = [
    "Experts",
    "HedgeRun",
    "LearntAnswers",
    "Weights",
    "best_rate",
    "hedge",
    "multiplicative_weights",
    "simulated_weights",
    "weights_error",
    "weights_rows_needed",
]


@dataclass(frozen=True, slots=True)
class Weights:
    """Private multiplicative weights with its parameters, all as fractions of n records.

    No error exceeds ``error`` with probability ``1 - beta``; that is ``spread`` where the theorem
    says nothing, as any two answers differ by no more.

    Args:
        error: The bound on the error of every query.
        noise: The scale of the noise of an answer.
        threshold: How far an estimate may be off before it is corrected.
        updates: How many corrections there are at most.
        first_epsilon: What the tests spend.
        second_epsilon: What the answers spend.
    """

    error: float
    noise: float
    threshold: float
    updates: int
    first_epsilon: float
    second_epsilon: float


def weights_error(
    queries: int,
    cells: int,
    n: float,
    budget: Budget,
    *,
    beta: float = 0.05,
    spread: float = 1.0,
    sensitivity: float = 1.0,
) -> Weights:
    """The least error that the theorem promises for k queries on m cells and n records.

    Args:
        queries: How many queries there are.
        cells: How many cells the domain has.
        n: How many records there are.
        budget: What all answers together may spend.
        beta: The probability with which the promise may fail.
        spread: The greatest ``max q - min q``.
        sensitivity: How far a neighbour moves a query, in counts.

    Returns:
        The error and the parameters that reach it.

    Raises:
        PlanError: An argument is wrong.
    """
    _check(queries=queries, cells=cells, n=n, beta=beta, spread=spread, sensitivity=sensitivity)
    if beta >= 1:
        raise PlanError(f"beta must be between 0 and 1, got {beta!r}")
    rho, epsilon = _losses(budget)
    moved = sensitivity / n

    def tried(nu: float) -> Weights | None:
        return _parameters(queries, cells, nu, moved, spread, beta, rho, epsilon)

    low, high = 0.0, spread / 4
    best = tried(high)
    if best is None:
        return Weights(spread, spread, inf, 0, 0.0, 0.0)
    for _ in range(LIMITS.bisection_steps):
        middle = (low + high) / 2
        weights = tried(middle) if middle > 0 else None
        if weights is None:
            low = middle
        else:
            high, best = middle, weights
        if high - low <= 1e-9 * high:
            break
    return best


def weights_rows_needed(
    queries: int, cells: int, alpha: float, budget: Budget, **options: float
) -> int:
    """The least n, to one part in 10^6, for which the error is at most alpha.

    Args:
        queries: How many queries there are.
        cells: How many cells the domain has.
        alpha: An error, as a share of the records.
        budget: What all answers together may spend.
        **options: ``beta``, ``spread`` and ``sensitivity`` of `weights_error`.

    Returns:
        A number of records.

    Raises:
        PlanError: No number of records is enough, or an argument is wrong.
    """
    _check(alpha=alpha)
    high = 1.0
    while weights_error(queries, cells, high, budget, **options).error > alpha:
        high *= 2
        if high > 2.0**200:
            raise PlanError(f"no number of records reaches an error of {alpha!r}")
    low = high / 2
    while high - low > max(0.5, 1e-6 * high):
        middle = (low + high) / 2
        is_enough = weights_error(queries, cells, middle, budget, **options).error <= alpha
        low, high = (low, middle) if is_enough else (middle, high)
    return ceil(high)


def _losses(budget: Budget) -> tuple[float, float]:
    """The maximal rho of pure parts that the budget allows, and its maximal pure epsilon.

    ``rho``-zCDP implies ``(rho + 2 sqrt(rho ln(1/delta)), delta)``-DP (Bun, Steinke 2016, Prop.
    1.3). A part of pure e is mu-GDP for some mu below ``sqrt(pi/2) e``, so parts of ``sum e^2/2 =
    mu^2/pi`` are mu-GDP together.
    """
    epsilon = float_down(budget.pure_epsilon)
    mu = budget.gaussian_mu
    if mu is None:
        return 0.0, epsilon
    if budget.rho is not None:
        return float_down(budget.rho), epsilon
    rho = mu**2 / pi
    if budget.delta and budget.epsilon is not None:
        needed = -log(float(budget.delta))
        rho = max(rho, (sqrt(needed + float(budget.epsilon)) - sqrt(needed)) ** 2)
    return rho, epsilon


def _parameters(
    queries: int,
    cells: int,
    nu: float,
    moved: float,
    spread: float,
    beta: float,
    rho: float,
    epsilon: float,
) -> Weights | None:
    """The mechanism whose noise stays below nu, if the budget pays for it."""
    updates = min(queries, int(log(cells) * spread**2 / (8 * nu**2)))
    first = moved * (2 * log(3 * (updates + 1) / beta) + 4 * log(3 * queries / beta)) / nu
    second = moved * log(3 * max(updates, 1) / beta) / nu
    runs = updates + 1
    is_pure = runs * first + updates * second <= epsilon
    is_concentrated = (runs * first**2 + updates * second**2) / 2 <= rho
    if not (is_pure or is_concentrated):
        return None
    return Weights(min(4 * nu, spread), nu, 3 * nu, updates, first, second)


def simulated_weights(
    matrix: Array, histogram: Array, weights: Weights, sensitivity: float, draws: Draws
) -> Array:
    """The answers, as counts, of the mechanism on made-up data; ``matrix`` has a row per query.

    The histogram must be public: the noise is repeatable and protects nothing.
    """
    n = float(histogram.sum())
    m = matrix.shape[1]
    if not weights.first_epsilon:  # the theorem promises nothing: uniform answers
        return np.asarray(matrix.sum(axis=1) * (n / m), dtype=np.float64)
    moved = sensitivity / n
    truth = matrix @ (histogram / n)
    spread = float((matrix.max(axis=1) - matrix.min(axis=1)).max())
    step = 8 * weights.noise / spread**2
    logs = np.zeros(m)
    shares = np.full(m, 1 / m)
    noises = draws.laplaces(len(truth)) * 4 * moved / weights.first_epsilon
    level = weights.threshold + draws.laplaces(1)[0] * 2 * moved / weights.first_epsilon
    out = np.empty(len(truth))
    left = weights.updates
    for i, query in enumerate(matrix):
        guess = float(query @ shares)
        out[i] = guess
        if left and abs(truth[i] - guess) + noises[i] >= level:
            noisy = truth[i] + draws.laplaces(1)[0] * moved / weights.second_epsilon
            out[i] = noisy
            logs += np.sign(noisy - guess) * step * query
            shares = np.exp(logs - logs.max())
            shares /= shares.sum()
            level = weights.threshold + draws.laplaces(1)[0] * 2 * moved / weights.first_epsilon
            left -= 1
    return out * n


def _check(**parameters: float) -> None:
    for name, value in parameters.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not value > 0 or not (isinstance(value, int) or isfinite(value)):
            raise PlanError(f"{name} must be a finite number above 0, got {value!r}")


# Hedge


class Experts:
    """Hedge: shares of N experts, multiplied by ``exp(-rate loss)`` after every loss.

        x_t(i) = w_t(i) / sum_j w_t(j),    w_{t+1}(i) = w_t(i) exp(-rate l_t(i))

    Freund, Schapire 1997, "A decision-theoretic generalization of on-line learning and an
    application to boosting". For losses with ``rate l >= -1`` and any expert i (for losses of at
    least 0: Theorem 1.5 of E. Hazan, "Introduction to online convex optimization"):

        sum_t x_t . l_t  <=  sum_t l_t(i)  +  rate sum_t x_t . l_t^2  +  log(1 / x_1(i)) / rate

    which for even shares at the start is ``log N / rate``. The right side is linear in the weights
    of experts, so the same holds against any mixture p of them, with ``KL(p || x_1) / rate`` at the
    end. Private multiplicative weights (`session.histogram`) are Hedge with cells as experts and
    questions as losses. Shares are even at first unless given.

    Args:
        count: How many experts there are.
        rate: How fast shares move.
        shares: The first shares; even if None.

    Raises:
        PlanError: An argument is wrong.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> experts = sf.study.Experts(2, rate=1.0)
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
        """The loss of the experts, each by its share; the shares move by it.

        Args:
            losses: One number per expert.

        Returns:
            What this round cost.

        Raises:
            PlanError: They are not one finite number per expert, or below ``-1 / rate``.
        """
        each = np.asarray(losses, dtype=np.float64)
        if each.shape != self._logs.shape or not np.isfinite(each).all():
            raise PlanError(f"there must be one finite loss for each of {self._logs.size} experts")
        if self.rate * float(each.min()) < -1:
            raise PlanError("a loss below -1 / rate is outside what the regret bound covers")
        shares = self.shares
        own = float(shares @ each)
        self._own += own
        self._squares += float(shares @ each**2)
        self._losses += each
        self._logs = self._logs - self.rate * each
        return own

    @property
    def loss(self) -> float:
        """The sum of all losses so far, each expert's by its share."""
        return self._own

    def regret(self, mixture: Array) -> float:
        """`loss` less what a fixed mixture of experts would have lost.

        Args:
            mixture: One share per expert.

        Returns:
            The difference of the costs, over all rounds.
        """
        return self._own - float(np.asarray(mixture, dtype=np.float64) @ self._losses)

    def regret_bound(self, mixture: Array) -> float:
        """The most that `regret` can be: ``rate sum x . l^2 + KL(mixture || first shares) / rate``.

        Freund, Schapire 1997; Hazan, Theorem 1.5, by ``exp(-z) <= 1 - z + z^2`` for ``z >= -1``.

        Args:
            mixture: One share per expert.

        Returns:
            The bound.
        """
        held = np.asarray(mixture, dtype=np.float64)
        used = held > 0
        apart = float(held[used] @ (np.log(held[used]) - self._first[used]))
        return self.rate * self._squares + apart / self.rate


def best_rate(experts: int, rounds: int) -> float:
    """The rate for losses in [0, 1]: ``sqrt(log N / T)``, regret at most ``2 sqrt(T log N)``.

    Args:
        experts: How many experts there are.
        rounds: How many rounds there are.

    Returns:
        The rate.

    >>> import sfumato as sf
    >>> round(sf.study.best_rate(100, 1000), 4)
    0.0679
    """
    if experts < 2 or rounds < 1:
        raise PlanError(f"a rate needs 2 experts and 1 round, got {experts} and {rounds}")
    return min(1.0, sqrt(log(experts) / rounds))


@dataclass(frozen=True, eq=False, repr=False)
class HedgeRun:
    """All rounds of Hedge: what the shares lost, and how the best expert did.

    Args:
        shares: The share of every expert before every round, a row per round.
        losses: The loss of the shares in every round: ``x_t . l_t``.
        final: The shares after the last round.
        regret: What was lost beyond the best expert.
        regret_bound: The most that it can be, by Theorem 1.5.
        best: The number of the best expert, from 0.
        rate: How fast shares move.
    """

    shares: Array
    losses: Array
    final: Array
    regret: float
    regret_bound: float
    best: int
    rate: float

    def __repr__(self) -> str:
        rounds, experts = self.shares.shape
        return (
            f"Hedge of {experts:,} experts over {rounds:,} rounds at rate {self.rate:.4g}: regret "
            f"{self.regret:.4g} against expert {self.best}, at most {self.regret_bound:.4g}"
        )


def hedge(losses: npt.ArrayLike, rate: float | None = None) -> HedgeRun:
    """Hedge over given losses: ``W_{t+1}(i) = W_t(i) e^(-rate l_t(i))``, played by its shares.

    Theorem 1.5: the loss is at most that of any expert plus
    ``rate sum_t x_t . l_t^2 + log N / rate``, and so against any mixture. No data and no privacy.

    Args:
        losses: A row per round, a column per expert; of at least 0.
        rate: How fast shares move, the notes' epsilon; ``sqrt(log N / T)`` if None.

    Returns:
        Shares, losses, regret and its bound.

    Raises:
        PlanError: They are no matrix of finite numbers of at least 0, or the rate is not above 0.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> run = sf.study.hedge(np.array([[1.0, 0.0]] * 100))
    >>> run.best, run.regret < run.regret_bound
    (1, True)
    """
    each = np.asarray(losses, dtype=np.float64)
    if each.ndim != 2 or not each.size or not np.isfinite(each).all() or not (each >= 0).all():
        raise PlanError("losses are finite numbers of at least 0, a row per round, a column each")
    rounds, count = each.shape
    if rate is None:
        rate = best_rate(max(count, 2), rounds)
    experts = Experts(count, rate)
    shares, own = np.empty_like(each), np.empty(rounds)
    for t, loss in enumerate(each):
        shares[t] = experts.shares
        own[t] = experts.learn(loss)
    best = int(each.sum(axis=0).argmin())
    alone = np.eye(count)[best]
    regret, bound = experts.regret(alone), experts.regret_bound(alone)
    return HedgeRun(shares, own, experts.shares, regret, bound, best, float(rate))


@dataclass(frozen=True, eq=False, repr=False)
class LearntAnswers:
    """Answers of multiplicative weights without privacy, and the queries it had to be told.

    Args:
        answers: One number per query, in counts.
        updates: The numbers of the queries whose exact answers were used.
        histogram: The synthetic data at the end.
        updates_bound: The most updates there can be.
        rate: How fast shares move.
    """

    answers: Array
    updates: tuple[int, ...]
    histogram: Array
    updates_bound: int
    rate: float

    def __repr__(self) -> str:
        return (
            f"Multiplicative weights (without privacy) on {len(self.answers):,} queries: "
            f"{len(self.updates):,} updates, at most {self.updates_bound:,}"
        )


@overload
def multiplicative_weights(
    queries: int,
    data: int,
    n: float,
    budget: Budget,
    *,
    beta: float = ...,
    spread: float = ...,
    sensitivity: float = ...,
) -> Weights: ...


@overload
def multiplicative_weights(
    queries: npt.ArrayLike | Workload,
    data: npt.ArrayLike,
    *,
    alpha: float,
    rate: float | None = ...,
) -> LearntAnswers: ...


def multiplicative_weights(
    queries: npt.ArrayLike | Workload | int,
    data: npt.ArrayLike | int,
    n: float | None = None,
    budget: Budget | None = None,
    *,
    alpha: float | None = None,
    rate: float | None = None,
    beta: float = 0.05,
    spread: float = 1.0,
    sensitivity: float = 1.0,
) -> LearntAnswers | Weights:
    """Multiplicative weights for linear queries WITHOUT privacy: exact answers come out.

    Queries are answered in turn from a distribution p, uniform at first. Where it is off by alpha
    or more the exact answer is told, and p becomes ``p exp(-eta l)``, ``l = sign(q p - q data) q``
    (Wang, "How does MW apply to the problem of linear query release?"). By Hoeffding's lemma each
    update lowers ``KL(data || p)`` by ``2 alpha^2 / u^2``, u the greatest range of a query, so that
    there are at most ``ln m u^2 / (2 alpha^2)`` of them. For made-up data and comparison:
    `private_multiplicative_weights` is the mechanism. With four arguments, numbers of queries,
    cells and records and a budget, this is `weights_error`, as before.

    Args:
        queries: A matrix with a row per query, or a workload.
        data: A histogram of made-up data: a count per cell, of a workload's domain in its shape or
            in one row. No table: exact answers of one must not come out.
        n: The number of records of `weights_error`.
        budget: The budget of `weights_error`.
        alpha: How far an answer may be off before it is corrected, as a share of the records.
        rate: eta; ``4 alpha / u^2`` if None, the best.
        beta: Of `weights_error`.
        spread: Of `weights_error`.
        sensitivity: Of `weights_error`.

    Returns:
        The answers, the updates and the bound on their number.

    Raises:
        PlanError: An argument is wrong.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> F = np.tril(np.ones((8, 8)))
    >>> h = np.array([90, 1, 1, 1, 1, 1, 1, 4])
    >>> learnt = sf.study.multiplicative_weights(F, h, alpha=0.05)
    >>> bool(np.abs(learnt.answers - F @ h).max() <= 0.05 * h.sum())
    True
    """
    if isinstance(queries, int) and isinstance(data, int):
        if n is None or budget is None:
            raise PlanError("numbers of queries and cells go with n, records, and a budget")
        options = {"beta": beta, "spread": spread, "sensitivity": sensitivity}
        return weights_error(queries, data, n, budget, **options)
    if isinstance(queries, Workload):
        queries = dense_queries(queries, "multiplicative_weights")
        data = _flat_counts(data)
    matrix, counts = np.asarray(queries, np.float64), np.asarray(data, np.float64)
    if matrix.ndim != 2 or counts.shape != matrix.shape[1:] or not np.isfinite(matrix).all():
        raise PlanError("queries are a matrix with a column per cell, data a count per cell")
    total = float(counts.sum())
    if not (np.isfinite(counts).all() and (counts >= 0).all() and total > 0):
        raise PlanError("data are counts of at least 0, not all of them 0; only made-up ones")
    if alpha is None:
        raise PlanError("say how far answers may be off: alpha=, a share of the records")
    _check(alpha=alpha)
    return _learnt(matrix, counts / total, total, alpha, rate)


def _flat_counts(data: object) -> Array:
    """The histogram of a domain in one row; a table is refused, whose answers would be exact."""
    array = np.asarray(data) if isinstance(data, np.ndarray | list | tuple) else np.zeros(0, object)
    if array.dtype.kind not in "iubf":
        raise PlanError(
            "without privacy exact answers come out, so that data are a histogram of made-up "
            "records, a count per cell; private_multiplicative_weights reads tables"
        )
    return np.asarray(array, np.float64).reshape(-1)


def _learnt(
    matrix: Array, truth: Array, total: float, alpha: float, rate: float | None
) -> LearntAnswers:
    cells = matrix.shape[1]
    reach = float((matrix.max(axis=1) - matrix.min(axis=1)).max()) or 1.0
    step = 4 * alpha / reach**2 if rate is None else rate
    experts = Experts(cells, step)
    answers, updates = np.empty(len(matrix)), []
    for i, query in enumerate(matrix):
        guess, exact = float(query @ experts.shares), float(query @ truth)
        answers[i] = guess
        if abs(guess - exact) >= alpha:
            answers[i] = exact
            updates.append(i)
            # sign(guess - exact) q, shifted to be at least 0: shares do not change by a shift.
            experts.learn(query - query.min() if guess > exact else query.max() - query)
    # A step eta lowers KL(data || p) by eta alpha - eta^2 u^2 / 8 at least, from ln m on.
    gain = step * alpha - step**2 * reach**2 / 8
    bound = int(log(cells) / gain) if gain > 0 else len(matrix)
    shares = experts.shares * total
    most = min(len(matrix), bound)
    return LearntAnswers(answers * total, tuple(updates), shares, most, step)
