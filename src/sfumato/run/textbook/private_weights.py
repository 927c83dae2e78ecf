# SPDX-License-Identifier: Apache-2.0
"""Private multiplicative weights by the notes' name: the sparse vector and Hedge together.

    import sfumato as sf
    learnt = sf.study.private_multiplicative_weights(F, histogram, epsilon=1, delta=1e-6)
    learnt.answers, learnt.updates, learnt.histogram, learnt.error_bound(beta=0.05)

The parameters are those of `study.experts`, the tests those of `vault.mechanisms.sparse`.
`sf.open_session` does the same for questions that come one at a time, on large domains and with
intervals. Proofs: docs/proofs/sparse-vector.md, docs/proofs/online.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, inf, ldexp, pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import noise_of, sparse_of_epsilon
from sfumato.privacy.budget import Budget, Number
from sfumato.random import WordSource
from sfumato.run.run_limits import LIMITS
from sfumato.run.textbook.outcomes import Instance, Outcome, budget_of, drawn, scale_of
from sfumato.run.textbook.sparse_vectors import Vectors
from sfumato.study.experts import Experts, Weights, weights_error
from sfumato.study.matrix_norms import dense_queries
from sfumato.types import Array, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import Discoverer, apart

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = ["WeightsOutcome", "private_multiplicative_weights"]


@dataclass(frozen=True, eq=False, repr=False)
class WeightsOutcome(Outcome[Array]):
    """Answers from a histogram that learns from the queries it got wrong.

    Args:
        mechanism: As in `Outcome`.
        answers: One number per query, in counts.
        budget: As in `Outcome`.
        cost: As in `Outcome`.
        noise: As in `Outcome`.
        theorem: As in `Outcome`.
        bound: As in `Outcome`.
        neighbours: As in `Outcome`.
        n: The number of records.
        note: As in `Outcome`.
        updates: The queries that were paid for, by their numbers.
        beta: The probability with which the promise may fail.
        histogram: The synthetic data at the end: a count per cell.
        weights: The parameters: noise, threshold, the most updates.
    """

    updates: tuple[int, ...] = ()
    beta: float = 0.05
    histogram: Array = field(default_factory=lambda: np.zeros(0))
    weights: Weights | None = None

    @property
    def shown_beta(self) -> float:
        """The one it was run for."""
        return self.beta


def private_multiplicative_weights(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    beta: float = 0.05,
    alpha: float | None = None,
    c: int | None = None,
    n: int | None = None,
    records: object = None,
    neighbours: Neighbours = "replace-one",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> WeightsOutcome:
    """Private multiplicative weights: AboveThreshold says where Hedge is wrong, and it learns.

    Queries are answered in turn from a histogram, uniform at first. AboveThreshold tests whether it
    is off by more than the threshold; where it is, the query is answered with Laplace noise and the
    histogram is multiplied by ``exp(-+eta q)``. After c updates only the histogram answers.

    Threshold, noise and c are those of the theorem for the least error at this budget (``weights``
    says them); with ``alpha`` (a share of n) and ``c`` they are those, whatever the theorem says.

    Privacy: c runs of AboveThreshold and c Laplace answers, fixed in advance: pure epsilon, or by
    concentrated differential privacy for a delta, rho or mu (Hardt, Rothblum 2010; Dwork, Roth
    2014, Algorithm 6; docs/proofs/sparse-vector.md, Theorem 4).
    Neighbours: ``"replace-one"``: the number of records must be public.
    Error: all k answers are within ``error_bound(beta)`` with probability 1 - beta, of order
    ``sqrt(log k) (log m)^(1/4) sqrt(n / epsilon)`` with a delta (Nikolov, section 1).

    Args:
        queries: A matrix F with a row per query, or a workload.
        data: The histogram of the matrix, or the table of the workload.
        epsilon: The privacy parameter.
        delta: With ``epsilon``.
        rho: In place of both.
        mu: In place of both.
        beta: The probability with which the promise may fail.
        alpha: The threshold as a share of n, in place of the theorem's; with ``c``.
        c: The most updates; with ``alpha``.
        n: Of a table: the public number of records.
        records: As in `laplace_mechanism`.
        neighbours: ``"replace-one"``.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, the updates that were paid for, the synthetic histogram, cost and bound.

    Raises:
        PlanError: An argument is wrong, or there are too few records for the theorem to say
            anything.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> F = np.tril(np.ones((16, 16)))
    >>> h = np.full(16, 100_000)
    >>> learnt = sf.study.private_multiplicative_weights(F, h, epsilon=2)
    >>> learnt.updates, bool(np.abs(learnt.answers - F @ h).max() <= learnt.error_bound(0.05))
    ((), True)
    """
    budget = budget_of(epsilon, delta, rho, mu)
    instance = Instance.of(queries, data, records, neighbours)
    matrix, total = _small(instance, n)
    weights = _weights(instance, matrix, total, budget, beta, alpha, c)
    bits = max(instance.bits, PLANNING_LIMITS.sparse_grid_bits)
    sensitivity, step = ceil(instance.moved * 2**bits), ldexp(1.0, -bits)
    first, second = Fraction(weights.first_epsilon), Fraction(weights.second_epsilon)
    law = sparse_of_epsilon(first, 1, sensitivity, share=Fraction(1, 2))
    number = noise_of(second, "laplace", sensitivity)
    vectors = Vectors(law, weights.updates, number)
    learner = _Learner(matrix, total, weights, vectors, bits)
    access = {"ledger": ledger, "name": name, "key": key, "random": random}

    def described() -> dict[str, object]:
        return {
            "workload": instance.workload.normal.key,
            "law": law.as_json(),
            "epochs": weights.updates,
            "number": [number.kind, str(number.scale)],
            "threshold": learner.threshold,
            "n": total,
        }

    answer, note = drawn(
        instance,
        "private multiplicative weights",
        budget,
        vectors.cost,
        described,
        lambda table: instance.answers(table, bits),
        learner.noisy,
        **access,  # type: ignore[arg-type]
    )
    assert isinstance(answer, dict)  # noqa: S101

    def bound(failure: float) -> float:
        if alpha is not None:
            return inf  # the theorem chooses alpha and c itself
        if failure < beta:
            raise PlanError(f"it was run for beta = {beta:g}; run it with a smaller beta")
        return weights.error * total

    return WeightsOutcome(
        "private multiplicative weights",
        np.array(answer["answers"], dtype=np.float64),
        budget,
        vectors.cost,
        {
            "threshold": scale_of(law.threshold, step),
            "scores": scale_of(law.query, step),
            "numbers": scale_of(number, step),
        },
        "Hardt, Rothblum 2010, with its constants",
        bound,
        instance.neighbours,
        total,
        note,
        tuple(answer["updates"]),
        beta,
        np.array(answer["histogram"], dtype=np.float64),
        weights,
    )


def _small(instance: Instance, n: int | None) -> tuple[Array, int]:
    """The matrix of the queries and the public number of records."""
    if not instance.n_is_public:
        raise PlanError(
            "multiplicative weights need a public number of records: say records="
            '"all-inside" in the domain, and read a table, not a view or a query that leaves '
            'records out; neighbours are "replace-one"'
        )
    matrix = dense_queries(instance.workload)
    if matrix.shape[1] > LIMITS.textbook_cells:
        raise TooLarge(
            f"the histogram has {matrix.shape[1]:,} cells, the most are "
            f"{LIMITS.textbook_cells:,}; sf.open_session learns on larger domains"
        )
    total = instance.records if n is None else n
    if isinstance(total, bool) or not isinstance(total, int) or total < 1:
        raise PlanError(f"say the public number of records of the table, n= ..., got {total!r}")
    return matrix, total


def _weights(
    instance: Instance,
    matrix: Array,
    total: int,
    budget: Budget,
    beta: float,
    alpha: float | None,
    c: int | None,
) -> Weights:
    """The parameters of the theorem, or those that were asked for."""
    moved = float(instance.moved)
    if alpha is None and c is None:
        spread = float((matrix.max(axis=1) - matrix.min(axis=1)).max()) or 1.0
        k, m = matrix.shape
        best = weights_error(k, m, total, budget, beta=beta, spread=spread, sensitivity=moved)
        if not best.first_epsilon:
            raise PlanError(
                f"the theorem promises nothing for {total:,} records at {budget.describe()}: "
                "weights_rows_needed says how many it takes; or give alpha and c"
            )
        # Even where no query can fail one run is begun, so that the answers were tested.
        return replace(best, updates=max(best.updates, 1))
    if alpha is None or not alpha > 0 or isinstance(c, bool) or not isinstance(c, int) or c < 1:
        raise PlanError("alpha, a share of n above 0, and c, a whole number, go together")
    if budget.is_pure:
        each = float(budget.pure_epsilon) / (2 * c)
    else:  # 2c pure parts of e are mu-GDP together for e = mu / sqrt(2 c pi / 2)
        each = (budget.gaussian_mu or 0.0) / sqrt(pi * c)
    return Weights(inf, alpha / 3, alpha, c, each, each)


@dataclass(frozen=True, eq=False)
class _Learner:
    """The loop: answer from the histogram, test, and learn where it was wrong."""

    matrix: Array
    total: int
    weights: Weights
    vectors: Vectors
    bits: int

    @property
    def threshold(self) -> int:
        """How far an answer may be off, in steps."""
        return max(1, ceil(ldexp(self.weights.threshold * self.total, self.bits)))

    def noisy(self, exact: Sensitive[Sequence[int]], words: WordSource) -> dict[str, list[float]]:
        """Answers, updates and the histogram; exact numbers are seen by the vault alone."""
        tests = Discoverer(self.vectors, words)
        k, m = self.matrix.shape
        spread = float((self.matrix.max(axis=1) - self.matrix.min(axis=1)).max()) or 1.0
        hedge = Experts(m, rate=8 * self.weights.noise / spread**2)
        answers: list[float] = []
        updates: list[float] = []
        for i in range(k):
            query = self.matrix[i]
            guess = float(query @ hedge.shares) * self.total
            steps = round(guess * 2**self.bits)
            answers.append(guess)
            if not tests.left or not tests.test_many(apart(exact, [steps], i), [self.threshold])[0]:
                continue
            number = (tests.numbers(exact, [i]) or [steps])[0]
            answers[-1] = number * ldexp(1.0, -self.bits)
            updates.append(i)
            # Losses between 0 and the range: the regret bound is for such.
            loss = query - query.min() if number < steps else query.max() - query
            hedge.learn(loss)
        learnt = (hedge.shares * self.total).tolist()
        return {"answers": answers, "updates": updates, "histogram": learnt}
