# SPDX-License-Identifier: Apache-2.0
"""How much noise a sparse vector needs for a budget: public arithmetic, before it is spent.

The split between threshold and scores is the one with the least variance of a comparison: for two
Laplace laws epsilon goes in parts ``1 : (2c)^(2/3)``, and ``1 : c^(2/3)`` for monotone scores (Lyu,
Su, Li 2017, "Understanding the sparse vector technique for differential privacy", section 4.2).
Scales are rounded up, so what a law costs is at most what was given. How well it then finds what is
above: ``plan/discovery.py``. Proof page: ``docs/proofs/sparse-vector.md``.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf, sqrt
from typing import Final

from sfumato.budget import curve
from sfumato.budget.sparse import NoiseKind, NoiseLaw, SparseLaw
from sfumato.errors import PlanError

__all__ = ["FALSE_ALARM", "noise_of", "sparse_of_epsilon", "sparse_of_mu_squared"]

FALSE_ALARM: Final = Fraction(1, 2**20)
"""How often Gaussian query noise finds a score above that is as far below as can be."""

SCALE_BITS: Final = 32  # scales are whole multiples of 2^-32 steps
SPLITS: Final = 256  # ways to divide mu that are tried


def noise_of(amount: Fraction, kind: NoiseKind, sensitivity: int = 1) -> NoiseLaw:
    """The least noise on one number that costs at most ``amount``: an epsilon, or a mu^2.

    >>> noise_of(Fraction(1, 4), "gaussian").scale
    Fraction(2, 1)
    """
    _positive(amount)
    if kind == "gaussian":
        return _law(kind, sensitivity * Fraction(curve.sqrt_up(1 / amount)))
    if kind != "laplace":
        raise PlanError(f'the noise of a number is "laplace" or "gaussian", got {kind!r}')
    return _law(kind, sensitivity / amount)


def sparse_of_epsilon(
    epsilon: Fraction,
    discoveries: int = 1,
    sensitivity: int = 1,
    *,
    is_monotone: bool = False,
    threshold: NoiseKind = "laplace",
    query: NoiseKind = "laplace",
    false_alarm: Fraction = FALSE_ALARM,
    share: Fraction | None = None,
) -> SparseLaw:
    """The sparse vector of the least noise that is ``epsilon``-DP.

    The noise of its threshold is Laplace or exponential; one-sided noise should then be centred
    (``plan.discovery.centred``). ``share`` of epsilon is the threshold's, by default the one with
    the least variance of a comparison.

    >>> law = sparse_of_epsilon(Fraction(9), discoveries=8, is_monotone=True)
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
        share = Fraction(max(round(2**SCALE_BITS / (1 + parts)), 1), 2**SCALE_BITS)
    kept = _law(threshold, sensitivity / (epsilon * _part(share)))
    rest = (epsilon - sensitivity / kept.scale) / discoveries
    noise, reach = _query(rest, moved, query, false_alarm)
    return SparseLaw(kept, noise, discoveries, sensitivity, is_monotone, reach)


def sparse_of_mu_squared(
    mu_squared: Fraction,
    discoveries: int = 1,
    sensitivity: int = 1,
    *,
    is_monotone: bool = False,
    threshold: NoiseKind = "gaussian",
    query: NoiseKind = "laplace",
    false_alarm: Fraction = FALSE_ALARM,
    share: Fraction | None = None,
) -> SparseLaw:
    """The sparse vector of the least noise that is mu-GDP; pure unless its threshold is Gaussian.

    ``share`` of mu is the threshold's, by default the one with the least variance of a comparison.

    >>> law = sparse_of_mu_squared(Fraction(1))
    >>> law.cost.mu_squared <= 1
    True
    """
    _positive(mu_squared)
    mu = Fraction(curve.sqrt_down(mu_squared))
    if threshold != "gaussian":
        return sparse_of_epsilon(
            Fraction(curve.pure_of_mu_down(mu)),
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
    first = _law("gaussian", sensitivity / (mu * _part(share)))
    rest = curve.loss_of_mu_down(mu, (sensitivity / first.scale) ** 2)
    noise, reach = _query(Fraction(rest) / discoveries, moved, query, false_alarm)
    return SparseLaw(first, noise, discoveries, sensitivity, is_monotone, reach)


def _query(
    loss: Fraction, moved: int, kind: NoiseKind, false_alarm: Fraction
) -> tuple[NoiseLaw, int | None]:
    """The least query noise, and its reach, with a loss of at most ``loss`` per discovery."""
    if kind != "gaussian":
        return _law(kind, moved / loss), None
    from scipy.special import ndtri

    x = -float(ndtri(float(false_alarm)))
    scale = Fraction(0.99 * moved * sqrt(_variance(kind, false_alarm)) / float(loss))
    while True:
        law = _law(kind, max(scale, Fraction(1, 2**10)))
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
    for i in range(1, SPLITS):
        first = mu * i / SPLITS
        loss = float(log_ndtr(mu / 2 - first) - log_ndtr(-mu / 2))
        variance = inf if loss <= 0 else first**-2 + spread * (moved / loss) ** 2
        best, least = (i, variance) if variance < least else (best, least)
    return Fraction(best, SPLITS)


def _law(kind: NoiseKind, scale: Fraction) -> NoiseLaw:
    if not Fraction(1, 2**10) <= scale <= 2**40:
        raise PlanError(
            f"noise of {float(scale):.3g} grid steps cannot be drawn (2^-10 to 2^40 can); use a "
            "finer grid for a large budget, a larger budget or fewer discoveries for a small one"
        )
    return NoiseLaw(kind, Fraction(ceil(scale * 2**SCALE_BITS), 2**SCALE_BITS))


def _part(share: Fraction) -> Fraction:
    if not isinstance(share, Fraction) or not 0 < share < 1:
        raise PlanError(f"the share of the threshold is a Fraction between 0 and 1, got {share!r}")
    return share


def _positive(amount: Fraction) -> None:
    if not isinstance(amount, Fraction) or amount <= 0:
        raise PlanError(
            f"a share of a budget is an exact Fraction above 0, got {amount!r}; round it down"
        )
