# SPDX-License-Identifier: Apache-2.0
"""Plans of sparse vectors: which one, and how many, for a budget; the best forecast wins.

`plan_sparse` returns the plan; `sparse_of_epsilon` and `sparse_of_mu_squared` the noise laws that a
budget affords; `tolerance`, `missed` and `alarmed` how well they tell scores from a threshold.

At most c discoveries may be found by one sparse vector, which costs in proportion to c, or by c
sparse vectors of one discovery each, which compose like a square root where the budget is not pure.
A pure epsilon may be spent without Gaussian noise, also from a budget with a delta. The noise of
comparisons is one-sided where that costs the same, which halves its variance (Liu et al. 2024,
"Unleash the power of ellipsis: accuracy-enhanced sparse vector technique with exponential noise").
All of it is known, and debited, before the first score is tested. Proof page:
``docs/proofs/sparse-vector.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, expm1, inf, log, log1p, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy import gaussian
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, SparseLaw, noise_cost

__all__ = [
    "SparseForecast",
    "alarm_probability",
    "alarmed",
    "centred",
    "failure_probability",
    "missed",
    "noise_of",
    "plan_sparse",
    "sparse_of_epsilon",
    "sparse_of_mu_squared",
    "tolerance",
]


# How much noise a sparse vector needs for a budget: public arithmetic, before it is spent.
#
# The split between threshold and scores is the one with the least variance of a comparison: for
# two Laplace laws epsilon goes in parts ``1 : (2c)^(2/3)``, and ``1 : c^(2/3)`` for monotone
# scores (Lyu, Su, Li 2017, "Understanding the sparse vector technique for differential privacy",
# section 4.2). Scales are rounded up, so what a law costs is at most what was given. How well it
# then finds what is above: ``planning/sparse_plans.py``. Proof page:
# ``docs/proofs/sparse-vector.md``.


def noise_of(amount: Fraction, kind: NoiseKind, sensitivity: int = 1) -> NoiseLaw:
    """The least noise on one number that costs at most ``amount``: an epsilon, or a mu^2.

    Args:
        amount: An epsilon for pure noise, a mu^2 for Gaussian noise.
        kind: The kind of noise.
        sensitivity: The most that the number moves between neighbours, in steps.

    Returns:
        The law of the noise.

    >>> from fractions import Fraction
    >>> import sfumato as sf
    >>> sf.study.noise_of(Fraction(1, 4), "gaussian").scale
    Fraction(2, 1)
    """
    _positive(amount)
    if kind == "gaussian":
        return _law_of(kind, sensitivity * Fraction(gaussian.sqrt_up(1 / amount)))
    if kind != "laplace":
        raise PlanError(f'the noise of a number is "laplace" or "gaussian", got {kind!r}')
    return _law_of(kind, sensitivity / amount)


def sparse_of_epsilon(
    epsilon: Fraction,
    discoveries: int = 1,
    sensitivity: int = 1,
    *,
    is_monotone: bool = False,
    threshold: NoiseKind = "laplace",
    query: NoiseKind = "laplace",
    false_alarm: Fraction = LIMITS.false_alarm,
    share: Fraction | None = None,
) -> SparseLaw:
    """The sparse vector of the least noise that is ``epsilon``-DP.

    The noise of its threshold is Laplace or exponential; one-sided noise should then be centred
    (``plan.discovery.centred``). ``share`` of epsilon is the threshold's, by default the one with
    the least variance of a comparison.

    Args:
        epsilon: What it costs.
        discoveries: How many scores may be found above.
        sensitivity: The most that one score moves between neighbours, in steps.
        is_monotone: Whether all scores move in one direction together.
        threshold: The kind of noise of the threshold.
        query: The kind of noise of a score.
        false_alarm: The probability of a false alarm that Gaussian query noise is cut at.
        share: The threshold's share of epsilon; the one with the least variance of a comparison if
            None.

    Returns:
        The law.

    >>> from fractions import Fraction
    >>> import sfumato as sf
    >>> law = sf.study.sparse_of_epsilon(Fraction(9), discoveries=8, is_monotone=True)
    >>> round(1 / float(law.threshold.scale), 6), round(1 / float(law.query.scale), 6)
    (1.8, 0.9)
    """
    _positive(epsilon)
    moved = sensitivity if is_monotone else 2 * sensitivity
    if threshold == "gaussian":
        raise PlanError("Gaussian noise on the threshold is not pure; use sparse_of_mu_squared")
    # Var = v1 (D/e1)^2 + v2 (c moved/e2)^2 is least at e2/e1 = (v2/v1)^(1/3) (c moved/D)^(2/3).
    spread = _variance(query, false_alarm) / _variance(threshold, false_alarm)
    parts = spread ** (1 / 3) * (discoveries * moved / sensitivity) ** (2 / 3)
    if share is None:
        share = Fraction(
            max(round(2**LIMITS.sparse_scale_bits / (1 + parts)), 1), 2**LIMITS.sparse_scale_bits
        )
    first = _law_of(threshold, sensitivity / (epsilon * _part(share)))
    rest = (epsilon - sensitivity / first.scale) / discoveries
    noise, reach = _query(rest, moved, query, false_alarm)
    return SparseLaw(first, noise, discoveries, sensitivity, is_monotone, reach)


def sparse_of_mu_squared(
    mu_squared: Fraction,
    discoveries: int = 1,
    sensitivity: int = 1,
    *,
    is_monotone: bool = False,
    threshold: NoiseKind = "gaussian",
    query: NoiseKind = "laplace",
    false_alarm: Fraction = LIMITS.false_alarm,
    share: Fraction | None = None,
) -> SparseLaw:
    """The sparse vector of the least noise that is mu-GDP; pure unless its threshold is Gaussian.

    ``share`` of mu is the threshold's, by default the one with the least variance of a comparison.

    >>> law = sparse_of_mu_squared(Fraction(1))
    >>> law.cost.mu_squared <= 1
    True
    """
    _positive(mu_squared)
    mu = Fraction(gaussian.sqrt_down(mu_squared))
    if threshold != "gaussian":
        return sparse_of_epsilon(
            Fraction(gaussian.pure_of_mu_down(mu)),
            discoveries,
            sensitivity,
            is_monotone=is_monotone,
            threshold=threshold,
            query=query,
            false_alarm=false_alarm,
            share=share,
        )
    moved = sensitivity if is_monotone else 2 * sensitivity
    if share is None:
        spread = _variance(query, false_alarm)
        share = _best_share(float(mu), spread, discoveries * moved / sensitivity)
    first = _law_of("gaussian", sensitivity / (mu * _part(share)))
    rest = gaussian.loss_of_mu_down(mu, (sensitivity / first.scale) ** 2)
    noise, reach = _query(Fraction(rest) / discoveries, moved, query, false_alarm)
    return SparseLaw(first, noise, discoveries, sensitivity, is_monotone, reach)


def _query(
    loss: Fraction, moved: int, kind: NoiseKind, false_alarm: Fraction
) -> tuple[NoiseLaw, int | None]:
    """The least query noise, and its reach, with a loss of at most ``loss`` per discovery."""
    if kind != "gaussian":
        return _law_of(kind, moved / loss), None
    from scipy.special import ndtri

    x = -float(ndtri(float(false_alarm)))
    scale = Fraction(0.99 * moved * sqrt(_variance(kind, false_alarm)) / float(loss))
    while True:
        law = _law_of(kind, max(scale, Fraction(1, 2**10)))
        reach = max(ceil(x * float(law.scale) + 0.5), 1)
        # Laws of one discovery: their loss does not depend on the threshold's noise.
        if SparseLaw(law, law, 1, moved, True, reach).loss <= loss:
            return law, reach
        scale = law.scale * Fraction(1001, 1000)


def _variance(kind: NoiseKind, false_alarm: Fraction) -> float:
    """The variance of query noise whose loss is 1 when scores move by 1 step, about.

    Laplace: 2. Exponential: 1. Gaussian: the loss is the hazard h(x) over sigma at the reach, so it
    is h(x)^2.
    """
    if kind != "gaussian":
        return 2.0 if kind == "laplace" else 1.0
    if not 0 < false_alarm < Fraction(1, 2):
        raise PlanError(f"false_alarm must lie between 0 and 1/2, got {false_alarm!r}")
    from scipy.special import ndtri
    from scipy.stats import norm

    x = -float(ndtri(float(false_alarm)))
    return float(norm.pdf(x) / norm.sf(x)) ** 2


def _best_share(mu: float, spread: float, moved: float) -> Fraction:
    """The share of mu for the threshold's noise with the least variance of a comparison."""
    from scipy.special import log_ndtr

    best, least = 1, inf
    for i in range(1, LIMITS.sparse_splits):
        first = mu * i / LIMITS.sparse_splits
        loss = float(log_ndtr(mu / 2 - first) - log_ndtr(-mu / 2))
        variance = inf if loss <= 0 else first**-2 + spread * (moved / loss) ** 2
        best, least = (i, variance) if variance < least else (best, least)
    return Fraction(best, LIMITS.sparse_splits)


def _law_of(kind: NoiseKind, scale: Fraction) -> NoiseLaw:
    if not Fraction(1, 2**10) <= scale <= 2**40:
        raise PlanError(
            f"noise of {float(scale):.3g} grid steps cannot be drawn (2^-10 to 2^40 can); use a "
            "finer grid for a large budget, a larger budget or fewer discoveries for a small one"
        )
    return NoiseLaw(
        kind, Fraction(ceil(scale * 2**LIMITS.sparse_scale_bits), 2**LIMITS.sparse_scale_bits)
    )


def _part(share: Fraction) -> Fraction:
    if not isinstance(share, Fraction) or not 0 < share < 1:
        raise PlanError(f"the share of the threshold is a Fraction between 0 and 1, got {share!r}")
    return share


def _positive(amount: Fraction) -> None:
    if not isinstance(amount, Fraction) or amount <= 0:
        raise PlanError(
            f"a share of a budget is an exact Fraction above 0, got {amount!r}; round it down"
        )


# How well a sparse vector finds what is above: false alarms and misses, before it is spent.
#
# The notes bound the noise of all comparisons by a union bound; here the laws themselves are
# summed: for every value of the threshold's noise, the probability that all scores' noise stays
# near it. Proof page: ``docs/proofs/sparse-vector.md``, Theorem 5.

DISCOVERY_SHARES: Final = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
"""Parts of beta that misses may take, tried to centre one-sided noise."""

Floats = NDArray[np.float64]


@lru_cache(maxsize=256)
def tolerance(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> int:
    """The least ``alpha`` such that with probability ``1 - beta`` all of so many tests are right.

    Right means: a score found above is at least ``threshold - alpha``, one found below is less than
    ``threshold + alpha``; in steps. ``epochs`` sparse vectors of this law share the queries.

    >>> from fractions import Fraction
    >>> from sfumato.planning.sparse_plans import sparse_of_epsilon
    >>> tolerance(sparse_of_epsilon(Fraction(1), is_monotone=True), queries=100, beta=0.05)
    17
    """
    return _least(lambda x: failure_probability(law, queries, x, epochs), beta, law)


@lru_cache(maxsize=256)
def missed(
    law: SparseLaw,
    queries: int,
    beta: float,
    epochs: int = 1,
    pieces: int = LIMITS.threshold_pieces,
) -> int:
    """The least x such that with probability ``1 - beta`` no score above by x is found below.

    In steps; below 0 where noise lifts most scores. ``tolerance`` counts false alarms too, which
    cost budget but tell nothing wrong.

    >>> from fractions import Fraction
    >>> from sfumato.planning.sparse_plans import sparse_of_epsilon
    >>> law = sparse_of_epsilon(Fraction(1), threshold="exponential", query="exponential")
    >>> missed(law, 1, 0.05), missed(sparse_of_epsilon(Fraction(1)), 1, 0.05)
    (6, 10)
    """
    return _least(
        lambda x: _outside(law, queries, law.offset - x, None, epochs, pieces),
        beta,
        law,
        -_far(law),
    )


@lru_cache(maxsize=256)
def alarmed(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> int:
    """The least x such that with probability ``1 - beta`` no score below by x is found above."""
    return _least(
        lambda x: _outside(law, queries, None, law.offset + x, epochs), beta, law, -_far(law)
    )


def _far(law: SparseLaw) -> int:
    """Steps that noise hardly ever reaches."""
    return int(80 * (law.threshold.scale + law.query.scale)) + abs(law.offset) + 1


def _least(failure: Callable[[int], float], beta: float, law: SparseLaw, low: int = -1) -> int:
    """The least distance, above ``low``, at which the probability of a failure is at most beta."""
    if not 0 < beta < 1:
        raise PlanError(f"beta, the probability of a failure, must lie in (0, 1), got {beta!r}")
    high = max(1, int(8 * (law.threshold.scale + law.query.scale)) + abs(law.offset))
    while failure(high) > beta:
        low, high = high, 2 * high
        if high > 2**50:
            raise PlanError(
                "no tolerance makes so many tests right with this probability: the reach of the "
                "query noise is too short; ask for a smaller false_alarm"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if failure(middle) > beta else (low, middle)
    return high


def failure_probability(law: SparseLaw, queries: int, alpha: int, epochs: int = 1) -> float:
    """A bound on the probability that some of ``queries`` tests errs by more than ``alpha`` steps.

    It is attained, for moderate scales, if every score may err on both sides.
    """
    if queries < 1 or epochs < 1 or alpha < 0:
        raise PlanError("queries and epochs are at least 1, alpha at least 0")
    return _outside(law, queries, law.offset - alpha, law.offset + alpha, epochs)


def centred(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> SparseLaw:
    """The same law with the offset that makes its `tolerance` about as small as can be.

    One-sided noise errs mostly upwards; a public shift of all thresholds shares the error between
    false alarms and misses. Symmetric laws keep their offset of 0.

    >>> from fractions import Fraction
    >>> from sfumato.planning.sparse_plans import sparse_of_epsilon
    >>> kind = {"threshold": "exponential", "query": "exponential"}
    >>> law = centred(sparse_of_epsilon(Fraction(1), is_monotone=True, **kind), 100, 0.05)
    >>> tolerance(law, 100, 0.05)  # 17 with Laplace noise
    11
    """
    if "exponential" not in (law.threshold.kind, law.query.kind):
        return law
    best: tuple[int, int] | None = None
    for part in DISCOVERY_SHARES:
        # Misses: the threshold's noise is beyond -low. False alarms: the least high that is left.
        low = -_quantile(law.threshold, part * beta / epochs)
        if law.query.kind != "exponential":
            low -= _quantile(law.query, part * beta / queries)
        start, end = low, low + int(80 * (law.threshold.scale + law.query.scale)) + 2
        if _outside(law, queries, low, end, epochs, LIMITS.threshold_few_pieces) > beta:
            continue
        while end - start > 1:
            middle = (start + end) // 2
            is_wide = (
                _outside(law, queries, low, middle, epochs, LIMITS.threshold_few_pieces) <= beta
            )
            start, end = (start, middle) if is_wide else (middle, end)
        if best is None or end - low < best[1] - best[0]:
            best = low, end
    return law if best is None else replace(law, offset=(best[0] + best[1]) // 2)


def _outside(
    law: SparseLaw,
    queries: int,
    low: int | None,
    high: int | None,
    epochs: int,
    pieces: int = LIMITS.threshold_pieces,
) -> float:
    """P(the noise of some score, minus the threshold's, is not within low to high), or more.

    None: nothing is outside on that side.
    """
    left, right, mass, rest = _pieces(law.threshold, pieces)
    outside = np.zeros(len(left))
    if high is not None:
        outside += _survival(law.query, left + high + 1)
        if law.reach is not None:
            outside = np.maximum(outside, _survival(law.query, np.array([law.reach])))
    if low is not None:
        outside += _below(law.query, right + low - 1)
    outside = np.minimum(outside, 1.0)
    with np.errstate(divide="ignore"):
        some = -np.expm1(queries / epochs * np.log1p(-outside))
    once = min(float((mass * some).sum()) + rest, 1.0)
    return -expm1(epochs * log1p(-once)) if once < 1 else 1.0


def alarm_probability(law: SparseLaw, gap: int, pieces: int = LIMITS.threshold_pieces) -> float:
    """P(a score ``gap`` steps below its threshold is found above); a negative gap is above it.

    >>> from fractions import Fraction
    >>> from sfumato.planning.sparse_plans import sparse_of_epsilon
    >>> round(alarm_probability(sparse_of_epsilon(Fraction(1)), 0), 3)
    0.544
    """
    left, right, mass, _ = _pieces(law.threshold, pieces)
    gaps = gap + law.offset + (left + right) // 2
    if law.reach is not None:
        gaps = np.minimum(gaps, law.reach)
    return float((mass * _survival(law.query, gaps)).sum())


@lru_cache(maxsize=64)
def _pieces(
    law: NoiseLaw, pieces: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, float]:
    """First and last value of every piece of the law, its probability, and what lies beyond all."""
    end = int((9 if law.kind == "gaussian" else 40) * law.scale) + 2
    width = -(-(2 * end + 1) // pieces)
    if law.kind == "exponential":
        left = np.arange(0, end + 1, width, dtype=np.int64)
        right = left + width - 1
        upper = _survival(law, np.append(left, right[-1] + 1))
        return left, right, upper[:-1] - upper[1:], float(upper[-1])
    left = np.arange(-end, end + 1, width, dtype=np.int64)
    right = left + width - 1
    upper = _survival(law, np.where(left > 0, left, -right))
    beyond = _survival(law, np.where(left > 0, right + 1, 1 - left))
    # On the side of 0 where nothing cancels; a piece around 0 takes what its sides leave.
    mass = np.where((left > 0) | (right < 0), upper - beyond, 0.0)
    middle = (left <= 0) & (right >= 0)
    mass[middle] = 1 - _survival(law, right[middle] + 1) - _survival(law, 1 - left[middle])
    return left, right, mass, float(2 * _survival(law, np.array([end + 1]))[0])


def _survival(law: NoiseLaw, at: NDArray[np.int64]) -> Floats:
    """P(N >= at) in floats."""
    if law.kind == "gaussian":
        from scipy.special import ndtr

        return np.asarray(ndtr((0.5 - at) / float(law.scale)))
    rate = 1 / float(law.scale)
    if law.kind == "exponential":
        return np.asarray(np.exp(-rate * np.maximum(at, 0)))
    tail = np.exp(-rate * np.abs(np.where(at > 0, at, 1 - at))) / (1 + np.exp(-rate))
    return np.asarray(np.where(at > 0, tail, 1 - tail))


def _below(law: NoiseLaw, at: NDArray[np.int64]) -> Floats:
    """P(N <= at) in floats."""
    if law.kind == "exponential":
        return np.asarray(-np.expm1(-np.maximum(at + 1, 0) / float(law.scale)))
    return _survival(law, -at)


def _quantile(law: NoiseLaw, beyond: float) -> int:
    """The least z, about, with P(N > z) at most this."""
    if law.kind == "gaussian":
        from scipy.special import ndtri

        return ceil(-float(ndtri(beyond)) * float(law.scale))
    return ceil(-log(beyond) * float(law.scale))


SHARES: Final = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
"""Parts of the budget that are tried for numbers, where they are asked for."""


@dataclass(frozen=True, slots=True)
class SparseForecast:
    """``epochs`` sparse vectors of one law, and perhaps a number with fresh noise per discovery.

    Everything in grid steps. ``queries`` is the most scores that will be tested; it is needed for
    the forecast only, for tests below the threshold cost nothing.

    Args:
        budget: What it keeps.
        law: The law of every sparse vector.
        epochs: How many sparse vectors there are.
        number: The law of the noise of a number; None where none is told.
        queries: The most scores that will be tested; tests below the threshold cost nothing.
        confidence: The probability with which all tests and numbers are right, up to the tolerance.
    """

    budget: Budget
    law: SparseLaw
    epochs: int
    number: NoiseLaw | None
    queries: int
    confidence: float

    @property
    def discoveries(self) -> int:
        """How many scores may be found above, over all epochs."""
        return self.epochs * self.law.discoveries

    @property
    def cost(self) -> Cost:
        """The cost of all epochs and of all numbers, debited before the first noise."""
        parts = [*self.law.cost.parts] * self.epochs
        if self.number is not None:
            parts += [*noise_cost(self.number, self.law.sensitivity).parts] * self.discoveries
        whole = Cost(tuple(parts))
        # Gaussian parts are one, of all mu^2 together; pure ones are accounted one by one.
        gaussian = () if not whole.mu_squared else Cost.gaussian(whole.mu_squared).parts
        return Cost((*gaussian, *whole.pure_parts))

    @property
    def tolerance(self) -> int:
        """With probability ``confidence`` all tests are right up to so many steps."""
        return tolerance(self.law, self.queries, self._beta, self.epochs)

    @property
    def half_width(self) -> int:
        """Half of the interval of a number: all of them hold, with the tests, at ``confidence``."""
        if self.number is None:
            raise PlanError("this sparse vector gives no numbers; ask for them")
        quantile = gaussian_quantile if self.number.kind == "gaussian" else laplace_quantile
        return quantile(self.number.scale, 1 - self._beta / self.discoveries)

    @property
    def _beta(self) -> float:
        """The part of 1 - confidence that the tests may use; the numbers use the other half."""
        return (1 - self.confidence) / (1 if self.number is None else 2)

    def centred(self) -> SparseForecast:
        """The same plan with the offset that suits its queries and its confidence.

        Returns:
            The plan.
        """
        law = centred(self.law, self.queries, self._beta, self.epochs)
        return replace(self, law=law)

    def request(self) -> dict[str, object]:
        """The public description, as the ledger keeps it.

        Returns:
            JSON.
        """
        number = None if self.number is None else [self.number.kind, str(self.number.scale)]
        return {
            "mechanism": "sparse vector",
            "law": self.law.as_json(),
            "epochs": self.epochs,
            "number": number,
            "queries": self.queries,
            "budget": self.budget.as_json(),
        }


def plan_sparse(
    budget: Budget,
    discoveries: int,
    queries: int,
    sensitivity: int,
    *,
    is_monotone: bool,
    with_numbers: bool,
    confidence: float = 0.95,
) -> SparseForecast:
    """The sparse vectors with the least tolerance that keep the budget.

    Args:
        budget: What is kept.
        discoveries: How many scores may be found above.
        queries: The most scores that will be tested.
        sensitivity: The most that one score moves between neighbours, in steps.
        is_monotone: Whether all scores move in one direction together.
        with_numbers: Whether a discovery tells its number, with fresh noise.
        confidence: The probability with which all tests and numbers are right, up to the tolerance.

    Returns:
        The plan.

    Raises:
        PlanError: An argument is wrong, or the budget is too small.

    >>> import sfumato as sf
    >>> budget = sf.Budget(mu=1)
    >>> plan = sf.study.plan_sparse(budget, 3, 100, 1, is_monotone=True, with_numbers=False)
    >>> plan.epochs, plan.law.discoveries
    (3, 1)
    """
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    for name, value in (("discoveries", discoveries), ("queries", queries)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
            raise PlanError(f"{name} must be a whole number from 1 to 2^31, got {value!r}")
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie between 0 and 1, got {confidence!r}")
    plans = [
        SparseForecast(budget, law, epochs, number, queries, float(confidence)).centred()
        for share in (SHARES if with_numbers else (Fraction(0),))
        for law, epochs, number in _candidates(budget, discoveries, sensitivity, is_monotone, share)
    ]
    affordable = [plan for plan in plans if _keeps(plan.cost, budget)]
    if not affordable:
        raise PlanError(
            f"no sparse vector with {discoveries:,} discoveries fits {budget.describe()}; use a "
            "larger budget or fewer discoveries"
        )
    return min(affordable, key=lambda p: p.tolerance + (0 if p.number is None else p.half_width))


def _candidates(
    budget: Budget, discoveries: int, sensitivity: int, is_monotone: bool, share: Fraction
) -> Iterator[tuple[SparseLaw, int, NoiseLaw | None]]:
    """Laws, epochs, and the noise of a number, each within the budget by its own currency."""
    kinds: list[tuple[NoiseKind, Fraction, int, int]] = [
        ("laplace", budget.pure_epsilon, discoveries, 1)
    ]
    if budget.gaussian_mu:
        whole = Fraction(budget.gaussian_mu) ** 2
        kinds += [("gaussian", whole, discoveries, 1), ("gaussian", whole, 1, discoveries)]
    for kind, amount, each, epochs in kinds:
        rest, part = (1 - share) * amount / epochs, share * amount / discoveries
        with suppress(PlanError):  # a scale that cannot be drawn
            law = _law(kind, rest, each, sensitivity, is_monotone)
            yield law, epochs, noise_of(part, kind, sensitivity) if share else None


def _law(
    kind: NoiseKind, amount: Fraction, discoveries: int, sensitivity: int, is_monotone: bool
) -> SparseLaw:
    if kind == "gaussian":
        return sparse_of_mu_squared(
            amount, discoveries, sensitivity, is_monotone=is_monotone, query="exponential"
        )
    return sparse_of_epsilon(
        amount,
        discoveries,
        sensitivity,
        is_monotone=is_monotone,
        threshold="exponential",
        query="exponential",
    )


def _keeps(cost: Cost, budget: Budget) -> bool:
    """Whether the cost is within the budget, in the currency it was calibrated for."""
    if not cost.mu_squared:
        return cost.pure_epsilon <= budget.pure_epsilon
    return cost.mu_squared <= Fraction(budget.gaussian_mu or 0.0) ** 2
