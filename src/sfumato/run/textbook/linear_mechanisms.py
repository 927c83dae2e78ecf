# SPDX-License-Identifier: Apache-2.0
"""The linear mechanisms of the lecture notes by their names, on arrays and on tables.

    import sfumato as sf
    noisy = sf.study.laplace_mechanism(F, histogram, epsilon=1)      # F: a row per query
    noisy = sf.study.gaussian_mechanism(workload, "people.parquet", epsilon=1, delta=1e-9)
    noisy.answers, noisy.cost, noisy.noise, noisy.error_bound(beta=0.05)

Strategies, noise and costs are those of releases (`planning.mechanisms`, `planning.calibrate`,
`vault.mechanisms.measure`): what is measured is an integer matrix times exact counts, the noise is
exact on the same grid. A release (`sf.plan`) chooses among them, projects, and has intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, ldexp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.errors import PlanError
from sfumato.measurement import Measured
from sfumato.planning.calibrate import calibrate
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import BIASED, Strategies
from sfumato.planning.sparse_plans import noise_of
from sfumato.privacy.budget import Budget, Number, check_neighbours
from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile
from sfumato.privacy.sparse_vector import noise_cost
from sfumato.random import WordSource
from sfumato.run.textbook.outcomes import (
    LAWS,
    Instance,
    LinearOutcome,
    NoiseScale,
    ProjectedOutcome,
    budget_of,
    drawn,
    exact_numbers,
    exact_sensitivity,
    grid_bits,
    moved_on_grid,
    on_grid,
    scale_of,
)
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import approximate as approximate_strategy
from sfumato.strategy.blockwise import shared_noise, tree_block
from sfumato.types import Neighbours, Noise
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import Exact, measure
from sfumato.vault.mechanisms.sparse import answer_many

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = [
    "binary_tree",
    "calibrated",
    "contingency_table",
    "factorization_mechanism",
    "gaussian_mechanism",
    "laplace_mechanism",
    "projection_mechanism",
]


def calibrated(instance: Instance, strategy: Strategy, budget: Budget) -> Forecast:
    """A strategy with the least noise for a budget, its cost and its errors."""
    loss = budget.gaussian_mu if strategy.noise == "gaussian" else float(budget.pure_epsilon)
    if loss is None:
        raise PlanError(
            f"Gaussian noise is not pure: give delta (or rho, or mu) beside epsilon, got "
            f"{budget.describe()}"
        )
    drops = instance.may_drop_records
    noise = calibrate(strategy, loss, instance.neighbours, may_drop_records=drops)
    whose = (instance.workload, budget, instance.neighbours)
    return Forecast(*whose, "rmse", None, strategy, noise, (), may_drop_records=drops)


def _linear(
    title: str,
    theorem: str,
    instance: Instance,
    strategy: Strategy,
    budget: Budget,
    access: Mapping[str, object],
) -> LinearOutcome:
    forecast = calibrated(instance, strategy, budget)
    noise = forecast.noise

    def noisy(exact: Exact, words: WordSource) -> bytes:
        return measure(exact, strategy.blocks, noise, words).to_bytes()

    def described() -> dict[str, object]:
        return {"workload": instance.workload.normal.key, "strategy": strategy.digest()}

    answer, note = drawn(
        instance,
        title,
        budget,
        forecast.cost,
        described,
        lambda table: instance.count(table, strategy.blocks),
        noisy,
        **access,  # type: ignore[arg-type]
    )
    assert isinstance(answer, bytes)  # noqa: S101
    measured = Measured.from_bytes(answer, noise)
    values = [m.values for m in measured.measurements]
    what, law = "answers" if strategy.mechanism in LAWS else "measured", scale_of(noise[0])
    if strategy.mechanism in ("factorization", BIASED):  # M has units of its own: the noise of R z
        totals, _ = strategy.group_variances(forecast.block_variances)
        spread = sqrt(sum(totals) / instance.workload.queries)
        what, law = "answers", NoiseScale(law.law, spread, law.step * spread / law.scale)
    return LinearOutcome(
        title,
        np.concatenate([np.asarray(a).reshape(-1) for a in strategy.answers(values)]),
        budget,
        forecast.cost,
        {what: law},
        theorem,
        forecast.error_bound,
        instance.neighbours,
        measured.rows,
        note,
        np.concatenate([np.asarray(v).reshape(-1) for v in values]),
        forecast.rmse,
    )


def _by_name(
    name: str,
    title: str,
    theorem: str,
    instance: Instance,
    budget: Budget,
    access: Mapping[str, object],
) -> LinearOutcome:
    mechanism = MECHANISMS[name]
    strategy = mechanism.build(instance.workload, mechanism.noise, "rmse")
    return _linear(title, theorem, instance, strategy, budget, access)


def laplace_mechanism(
    queries: object,
    data: object = None,
    *,
    epsilon: Number,
    records: object = None,
    sensitivity: float | Fraction | None = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> LinearOutcome:
    """The Laplace mechanism: ``F h + Z``, every Z_i of ``Lap(Delta_1 / epsilon)``.

    ``laplace_mechanism(F, histogram, epsilon=1)`` knows Delta_1 itself, exactly: the longest column
    of F in L1, or the L1 diameter of the columns where a record is replaced. Numbers ``f(x)`` of
    any kind go alone with their ``sensitivity``: ``laplace_mechanism(values, epsilon=1,
    sensitivity=1)``. Coefficients of F are kept to multiples of 2^-20; values that are floats are
    rounded to a grid, which the sensitivity counts in, so nothing leaks by floating point.

    Privacy: epsilon-DP (Dwork, McSherry, Nissim, Smith 2006), exactly, on the grid:
    docs/proofs/discrete-laplace.md, Theorem 2.
    Neighbours: ``neighbours``; of values, those for which ``sensitivity`` was worked out.
    Error: all k errors are within ``ln(k / beta) Delta_1 / epsilon`` with probability 1 - beta
    (Dwork, Roth 2014, Theorem 3.8); ``error_bound`` is the quantile of the law itself, no larger.

    Args:
        queries: A matrix F with a row per query, a workload, or exact numbers.
        data: The histogram of the matrix, or the table of the workload; None beside exact numbers.
        epsilon: The privacy parameter.
        records: One code of a cell per person, in place of the histogram.
        sensitivity: Of exact numbers: how far neighbours move them, in L1.
        neighbours: ``"add-remove"`` (Wang), or ``"replace-one"`` with n public (the other notes).
        ledger: The ledger that is debited before noise is drawn and stores the answer. Without one
            nothing remembers what was spent: that is the caller's to do.
        name: The data's in the ledger; arrays have no name of their own.
        key: The request's in the ledger; needed for exact numbers.
        random: Words of a demonstration (`SeededWords`); the system's if None.

    Returns:
        Answers, cost, noise and the error bound.

    Raises:
        PlanError: An argument is wrong.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> noisy = sf.study.laplace_mechanism(np.eye(3), [5, 0, 7], epsilon=1)
    >>> noisy.noise["answers"], round(noisy.epsilon, 3)
    (Lap(1), 1.0)
    >>> round(noisy.error_bound(beta=0.05), 2)  # Theorem 3.8: at most ln(3 / 0.05) = 4.09
    4.0
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    budget = budget_of(epsilon, None)
    theorem = "at most ln(k / beta) Delta_1 / epsilon (Theorem 3.8)"
    if data is None and records is None:
        return _of_values("laplace", queries, sensitivity, budget, neighbours, theorem, access)
    _no_sensitivity(sensitivity)
    instance = Instance.of(queries, data, records, neighbours)
    return _by_name("laplace", "Laplace mechanism", theorem, instance, budget, access)


def gaussian_mechanism(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    records: object = None,
    sensitivity: float | Fraction | None = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> LinearOutcome:
    """The Gaussian mechanism: ``F h + Z``, Z of ``N(0, (c Delta_2)^2 I)``.

    The notes' c = c_{epsilon,delta} is here the least that is enough, 1/mu by the exact curve of
    the Gaussian (Balle, Wang 2018), not ``sqrt(2 log(2/delta)) / epsilon``; or ``1 / sqrt(2 rho)``.

    Privacy: (epsilon, delta)-DP, rho-zCDP or mu-GDP: docs/proofs/rounded-gaussian.md, Theorem 2.
    Neighbours: ``neighbours``; of values, those for which ``sensitivity`` was worked out.
    Error: the root mean square is ``c Delta_2`` (equation (17) of Smith and Ullman), and all k are
    within ``c Delta_2 sqrt(2 ln(2 k / beta))`` with probability 1 - beta.

    Args:
        queries: As in `laplace_mechanism`.
        data: As in `laplace_mechanism`.
        epsilon: With ``delta``.
        delta: With ``epsilon``.
        rho: In place of both: zero-concentrated differential privacy.
        mu: In place of both: Gaussian differential privacy.
        records: As in `laplace_mechanism`.
        sensitivity: Of exact numbers: how far neighbours move them, in L2.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, cost, noise and the error bound.

    Raises:
        PlanError: An argument is wrong.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> sf.study.gaussian_mechanism(np.ones((4, 3)), [5, 0, 7], mu=1).noise["answers"]
    N(0, 2^2)
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    budget = budget_of(epsilon, delta, rho, mu)
    theorem = "at most c Delta_2 sqrt(2 ln(2 k / beta)), Gaussian tails"
    if data is None and records is None:
        return _of_values("gaussian", queries, sensitivity, budget, neighbours, theorem, access)
    _no_sensitivity(sensitivity)
    instance = Instance.of(queries, data, records, neighbours)
    return _by_name("gaussian", "Gaussian mechanism", theorem, instance, budget, access)


def contingency_table(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> LinearOutcome:
    """Noise on the whole contingency table, and every query summed from it: Delta_1 is 1, or 2.

    Any number of queries costs the same: the table is measured once, ``measured`` is it.

    Privacy: as `laplace_mechanism`, or `gaussian_mechanism` with a delta, rho or mu, on the cells.
    Neighbours: as there.
    Error: order ``sqrt(|X|) log(k) / epsilon`` (Wang, "Alternative way of applying Laplace
    mechanism"), with the constants of the laws that are summed.

    Args:
        queries: A matrix F with a row per query, or a workload.
        data: The histogram of the matrix, or the table of the workload.
        epsilon: Alone for Laplace noise; with ``delta`` for Gaussian.
        delta: With ``epsilon``.
        rho: In place of both.
        mu: In place of both.
        records: As in `laplace_mechanism`.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, cost, noise and the error bound; ``measured`` is the noisy table.

    Raises:
        PlanError: An argument is wrong, or the table has too many cells.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> every = np.array([[(j >> i) & 1 for j in range(8)] for i in range(3)])
    >>> noisy = sf.study.contingency_table(every, [4, 1, 0, 2, 9, 3, 3, 8], epsilon=1)
    >>> noisy.noise, noisy.measured.shape, noisy.answers.shape
    ({'measured': Lap(1)}, (8,), (3,))
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    budget = budget_of(epsilon, delta, rho, mu)
    instance = Instance.of(queries, data, records, neighbours)
    theorem = "sums of at most |X| noisy cells, all queries at once"
    kind = f"{_noise_for(budget)}-table"
    return _by_name(kind, "contingency table", theorem, instance, budget, access)


def binary_tree(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    branching: int = 2,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> LinearOutcome:
    """The binary tree mechanism: noise on the sums of all nodes, intervals from O(log d) of them.

    ``queries`` may be ``"prefixes"`` (all thresholds) or ``"ranges"`` (all intervals) over the
    cells of the histogram, a matrix, or a workload over one attribute. Answers follow from the
    nodes by least squares, which is the best reconstruction R for the tree's M; adding up the nodes
    of an interval, as the notes do, errs at least as much.

    Privacy: as `laplace_mechanism` on the nodes, Delta_1 = ``log2(d) + 1`` levels, or as
    `gaussian_mechanism` with Delta_2 its root. Neighbours: as there.
    Error: mean squared error of order ``polylog(d) / epsilon^2`` (Brown, Question 4).

    Args:
        queries: ``"prefixes"``, ``"ranges"``, a matrix or a workload over one attribute.
        data: The histogram, or the table of the workload.
        epsilon: Alone for Laplace noise; with ``delta`` for Gaussian.
        delta: With ``epsilon``.
        rho: In place of both.
        mu: In place of both.
        branching: How many children a node has.
        records: As in `laplace_mechanism`.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, cost, noise and the error bound; ``measured`` are the nodes, leaves first.

    Raises:
        PlanError: An argument is wrong, or a group of queries is not over one attribute.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import sfumato as sf
    >>> noisy = sf.study.binary_tree("prefixes", [3, 1, 4, 1, 5, 9, 2, 6], epsilon=1)
    >>> noisy.noise, noisy.measured.shape, noisy.answers.shape
    ({'measured': Lap(4)}, (15,), (8,))
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    if isinstance(branching, bool) or not isinstance(branching, int) or branching < 2:
        raise PlanError(f"a node has at least 2 children, got branching = {branching!r}")
    budget = budget_of(epsilon, delta, rho, mu)
    instance = Instance.of(queries, data, records, neighbours)
    products = [t.as_product() for t in instance.workload.terms]
    trees = [
        tree_block(p, p.attributes[0], branching) for p in products if p and len(p.factors) == 1
    ]
    if len(trees) != len(products):
        raise PlanError("the tree is over one attribute: ask for its prefixes or ranges")
    noise = _noise_for(budget)
    strategy = shared_noise(f"{noise}-tree", noise, instance.workload, trees, range(len(trees)))
    theorem = "sums of O(log d) nodes (Question 4), all queries at once"
    title = "binary tree" if branching == 2 else f"tree of {branching} branches"
    return _linear(title, theorem, instance, strategy, budget, access)


def factorization_mechanism(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    approximate: bool = False,
    n: int | None = None,
    records: object = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> LinearOutcome:
    """The factorization mechanism: ``R (M h + Z)`` with the best ``F = R M``.

    With ``approximate`` F + E = R M: the bias E is traded against noise for a public number of
    records, as in Theorem 2.6, so that the worst error over all data sets of so many is least.

    Privacy: as `gaussian_mechanism` on the queries M; R is post-processing. Neighbours: as there.
    Error: the root mean square is ``c gamma(F)`` in counts (Smith, Ullman, Theorem 2.3), up to the
    certificate of the factorization; approximate, ``rmse`` is that of the worst data set, which is
    at most ``alpha n + c gamma_alpha(F)`` for every alpha (Theorem 2.6).

    Args:
        queries: A matrix F with a row per query, or a workload.
        data: The histogram of the matrix, or the table of the workload.
        epsilon: With ``delta``.
        delta: With ``epsilon``.
        rho: In place of both.
        mu: In place of both.
        approximate: Whether answers may be biased; needs a public number of records.
        n: That number, where neighbours or the table do not tell it.
        records: As in `laplace_mechanism`.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, cost, noise and the error bound; ``rmse`` is ``c gamma(F)``.

    Raises:
        PlanError: An argument is wrong.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> round(sf.study.factorization_mechanism(np.ones((9, 3)), [5, 0, 7], mu=1).rmse, 3)
    1.0
    """
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    budget = budget_of(epsilon, delta, rho, mu)
    instance = Instance.of(queries, data, records, neighbours)
    if approximate:
        title, strategy = "approximate factorization", _approximate(instance, budget, n)
        theorem = "bias and noise of the worst data set (Theorem 2.6), all queries at once"
    else:
        title, strategy = "factorization mechanism", _factorized(instance)
        theorem = "c gamma(F) on average (Theorem 2.3); this for all queries at once"
    return _linear(title, theorem, instance, strategy, budget, access)


def _factorized(instance: Instance) -> Strategy:
    """The certified optimum, for the diameter where records are replaced."""
    built = Strategies(instance.workload)
    return built.of("factorization", 1.0, instance.neighbours, instance.may_drop_records)


def _approximate(instance: Instance, budget: Budget, n: int | None) -> Strategy:
    total = instance.records if n is None else n
    if total is None:
        raise PlanError(
            "a bias is weighed against noise for a public number of records: say n= ..., or "
            'neighbours="replace-one" with a histogram'
        )
    if budget.gaussian_mu is None:
        raise PlanError("approximate factorizations have Gaussian noise: give delta, rho or mu")
    return approximate_strategy(instance.workload, budget.gaussian_mu, total)


def projection_mechanism(
    queries: object,
    data: object = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    records: object = None,
    factorize: bool = False,
    neighbours: Neighbours = "replace-one",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> ProjectedOutcome:
    """The projection mechanism: Gaussian noise, then the nearest answers that a data set can have.

    With ``factorize`` the noise is that of the factorization mechanism. Where n is public, as for
    the notes' neighbours, answers are projected onto ``n K``, K the hull of the columns of F; else
    onto the cone over it.

    Privacy: that of the noise; projecting is post-processing (Nikolov, Theorem 2).
    Neighbours: ``neighbours``.
    Error: ``error_bound`` is of the root mean square over the queries: never more than the noise's
    (equation (43)), which is within its own quantile. In expectation it is also at most
    ``sqrt(n sigma l*(K) / k)`` (Theorems 4 and 8, Theorem 3.1 of Smith and Ullman), whatever the
    number of queries: `sf.forecast_projection` says by how much.

    Args:
        queries: A matrix F with a row per query, or a workload.
        data: The histogram of the matrix, or the table of the workload.
        epsilon: With ``delta``.
        delta: With ``epsilon``.
        rho: In place of both.
        mu: In place of both.
        records: As in `laplace_mechanism`.
        factorize: Whether M is measured in place of F.
        neighbours: As in `laplace_mechanism`.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: As in `laplace_mechanism`.

    Returns:
        Answers, cost, noise and the error bound; ``measured`` is what was projected and
        ``projection`` the certificate.

    Raises:
        PlanError: An argument is wrong.
        TableError: The data do not fit the queries.
        BudgetExhausted: The cost does not fit what is left in the ledger.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> thresholds = np.array([[1, 0, 0], [1, 1, 0]])
    >>> result = sf.study.projection_mechanism(thresholds, [5, 0, 7], epsilon=1, delta=1e-6)
    >>> first, second = result.answers
    >>> bool(-1e-6 <= first <= second + 1e-6 <= 12 + 2e-6)
    True
    """
    from sfumato.refine.project import project

    instance = Instance.of(queries, data, records, neighbours)
    how = factorization_mechanism if factorize else gaussian_mechanism
    noisy = how(
        queries,
        data,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mu=mu,
        records=records,
        neighbours=neighbours,
        ledger=ledger,
        name=name,
        key=key,
        random=random,
    )
    projected = project(noisy.answers, instance.workload, noisy.n)
    k, law = len(noisy.answers), next(iter(noisy.noise.values()))
    # |z|_2 of a normal vector exceeds its root mean square by less than sqrt(2 ln(1/beta)) times
    # the root of the greatest eigenvalue of its covariance, which is at most the trace (1/k of it
    # for equal noise); rounding to the grid adds half a step to each measured value.
    greatest = 1.0 if factorize else 1 / k
    rounding = noisy.rmse * sqrt(noisy.measured.size * greatest) * law.step / (2 * law.scale)
    slack = projected.distance_bound / sqrt(k) + rounding
    return ProjectedOutcome(
        "projection mechanism",
        projected.answers,
        noisy.budget,
        noisy.cost,
        noisy.noise,
        "of the root mean square error: never more than the noise's (equation (43))",
        lambda beta: noisy.rmse * (1 + sqrt(-2 * log(beta) * greatest)) + slack,
        noisy.neighbours,
        noisy.n,
        noisy.note,
        noisy.answers,
        noisy.rmse,
        projected,
    )


def _noise_for(budget: Budget) -> Noise:
    """Laplace noise for a pure budget, Gaussian for all others."""
    return "laplace" if budget.is_pure else "gaussian"


def _no_sensitivity(sensitivity: object) -> None:
    if sensitivity is not None:
        raise PlanError(
            "the sensitivity of linear queries is worked out from the matrix; leave it out"
        )


# Exact numbers of any kind


def _of_values(
    kind: Literal["laplace", "gaussian"],
    values: object,
    sensitivity: object,
    budget: Budget,
    neighbours: Neighbours,
    theorem: str,
    access: Mapping[str, object],
) -> LinearOutcome:
    """Numbers that the caller worked out, each with noise of its own on a grid.

    Rounding to the grid moves the difference of two numbers by at most one step each: in L1 by the
    number of values, in L2 by its root.
    """
    numbers = exact_numbers(values, "exact numbers")
    moved = exact_sensitivity(sensitivity)
    k = numbers.size
    slack = k if kind == "laplace" else ceil(sqrt(k))
    bits = grid_bits(numbers, moved, slack)
    steps = moved_on_grid(numbers, moved, bits, slack)
    mu = budget.gaussian_mu
    if kind == "gaussian" and mu is None:
        raise PlanError("Gaussian noise is not pure: give delta (or rho, or mu) beside epsilon")
    amount = Fraction(mu or 0) ** 2 if kind == "gaussian" else budget.pure_epsilon
    law = noise_of(amount, kind, steps)
    cost = noise_cost(law, steps)
    described = {"numbers": k, "law": [law.kind, str(law.scale)], "sensitivity": steps}
    exact = Sensitive[Sequence[int]](on_grid(numbers, bits))
    answer, note = drawn(
        None,
        f"{kind} mechanism",
        budget,
        cost,
        lambda: described,
        lambda _: exact,
        lambda box, words: answer_many(box, law, words),
        neighbours=check_neighbours(neighbours),
        **access,  # type: ignore[arg-type]
    )
    step = ldexp(1.0, -bits)
    rounding = 0.5 if numbers.dtype.kind == "f" else 0
    quantile = laplace_quantile if kind == "laplace" else gaussian_quantile
    scale = scale_of(law, step)
    return LinearOutcome(
        f"{kind.capitalize()} mechanism",
        np.array([float(a) * step for a in answer], dtype=np.float64),  # type: ignore[attr-defined]
        budget,
        cost,
        {"answers": scale},
        theorem,
        # The law itself, all k of them by a union bound; rounding moved each by half a step.
        lambda beta: (quantile(law.scale, 1 - Fraction(beta) / k) + rounding) * step,
        neighbours,
        None,
        note,
        np.zeros(0),
        scale.scale * (sqrt(2) if kind == "laplace" else 1.0),
    )
