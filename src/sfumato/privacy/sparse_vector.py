# SPDX-License-Identifier: Apache-2.0
"""What a sparse vector costs: its two noise laws, and the privacy they give.

A sparse vector compares many scores with thresholds and pays only for those above (Lyu, Su, Li
2017, "Understanding the sparse vector technique for differential privacy", Algorithm 1). Any pair
of laws will do: Laplace, exponential (one-sided) or Gaussian noise on the threshold and on the
scores. All numbers are exact and in whole grid steps. Proof page: ``docs/proofs/sparse-vector.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian
from sfumato.privacy.cost import Cost

__all__ = [
    "NoiseKind",
    "NoiseLaw",
    "SparseLaw",
    "noise_cost",
]


NoiseKind: TypeAlias = Literal["laplace", "exponential", "gaussian"]


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """The discrete Laplace law of this scale, or the Gaussian of this deviation rounded to steps.

    ``"exponential"`` is the one-sided half of the Laplace law, geometric on whole steps. It has
    half the variance at the same price, but it hides comparisons only, never a number.

    >>> NoiseLaw("laplace", Fraction(5, 2))
    NoiseLaw(kind='laplace', scale=Fraction(5, 2))
    """

    kind: NoiseKind
    scale: Fraction

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoiseKind):
            raise BudgetError(f'noise is "laplace", "exponential" or "gaussian", got {self.kind!r}')
        # A float scale is refused: what is accounted and what is drawn must be the same number.
        if not isinstance(self.scale, Fraction) or not Fraction(1, 2**10) <= self.scale <= 2**40:
            raise BudgetError(
                "a noise scale must be an exact Fraction from 2^-10 to 2^40 grid steps, got "
                f"{self.scale!r}; use a finer or coarser grid, or another budget"
            )


@dataclass(frozen=True, slots=True)
class SparseLaw:
    """Everything public about one sparse vector: noise, discoveries, and how far scores move.

    ``sensitivity`` is the most that one score moves between neighbours, in steps. With
    ``is_monotone`` all scores move in one direction together, as counts do when a record is added.
    Gaussian query noise needs ``reach``: a score further than this below the noisy threshold is
    treated as just so far below, so that its noise never has to come from a tail whose
    probability collapses between neighbours (docs/proofs/sparse-vector.md, Lemma 1). ``offset`` is
    added to every threshold: public, it centres one-sided noise (`centred` of
    `sfumato.planning.sparse_plans`).

    Args:
        threshold: The law of the noise of the threshold.
        query: The law of the noise of a score.
        discoveries: How many scores may be found above.
        sensitivity: The most that one score moves between neighbours, in steps.
        is_monotone: Whether all scores move in one direction together, as counts do when a record
            is added.
        reach: Needed by Gaussian query noise: a score further than this below the noisy threshold
            is treated as just so far below.
        offset: Is added to every threshold; public, it centres one-sided noise.

    >>> from fractions import Fraction
    >>> import sfumato as sf
    >>> quarter = sf.study.noise_of(Fraction(1, 4), "laplace")
    >>> law = sf.study.SparseLaw(quarter, sf.study.noise_of(Fraction(1, 8), "laplace"))
    >>> law.cost
    Cost(epsilon = 0.5)
    """

    threshold: NoiseLaw
    query: NoiseLaw
    discoveries: int = 1
    sensitivity: int = 1
    is_monotone: bool = False
    reach: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        for name in ("discoveries", "sensitivity"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{name} must be a whole number of at least 1, got {value!r}")
        if (self.query.kind == "gaussian") != (self.reach is not None):
            raise BudgetError(
                "reach belongs to Gaussian query noise and only to it: give a whole number of "
                "steps with Gaussian, None with Laplace query noise"
            )
        if isinstance(self.offset, bool) or not isinstance(self.offset, int):
            raise BudgetError(f"offset must be a whole number of steps, got {self.offset!r}")
        if self.reach is not None and (isinstance(self.reach, bool) or self.reach < 1):
            raise BudgetError(f"reach must be at least 1 step, got {self.reach!r}")

    @property
    def moved(self) -> int:
        """How far a score and the threshold may move apart: twice the sensitivity, or once.

        Once if the scores are monotone.
        """
        return self.sensitivity if self.is_monotone else 2 * self.sensitivity

    @property
    def loss(self) -> Fraction:
        """The most that one discovery adds to the privacy loss, rounded up; others add nothing.

        ``moved / scale`` with Laplace or exponential noise; with Gaussian noise N
        ``log P(N >= reach - moved) / P(N >= reach)``: docs/proofs/sparse-vector.md, Lemma 1.
        """
        if self.reach is None:
            return self.moved / self.query.scale
        far = (Fraction(self.reach) - Fraction(1, 2)) / self.query.scale
        return Fraction(gaussian.tail_loss_up(far - self.moved / self.query.scale, far))

    @property
    def cost(self) -> Cost:
        """The cost of the whole sparse vector, however many scores are tested, rounded up.

        Privacy: with Laplace or exponential noise on the threshold ``sensitivity / scale +
        discoveries * loss``, pure (docs/proofs/sparse-vector.md, Theorem 1); with Gaussian noise
        mu-GDP (Theorem 3).
        """
        losses = self.discoveries * self.loss
        if self.threshold.kind != "gaussian":
            return Cost.pure(self.sensitivity / self.threshold.scale + losses)
        mu_squared = (self.sensitivity / self.threshold.scale) ** 2
        return Cost.gaussian(Fraction(gaussian.mu_of_loss_up(mu_squared, losses)) ** 2)

    def as_json(self) -> dict[str, object]:
        """The law as JSON, exactly; what a ledger keeps of it.

        Returns:
            JSON.
        """
        return {
            "threshold": [self.threshold.kind, str(self.threshold.scale)],
            "query": [self.query.kind, str(self.query.scale)],
            "discoveries": self.discoveries,
            "sensitivity": self.sensitivity,
            "is_monotone": self.is_monotone,
            "reach": self.reach,
            "offset": self.offset,
        }


def noise_cost(law: NoiseLaw, sensitivity: int) -> Cost:
    """Return the cost of one number with fresh noise that moves by at most ``sensitivity`` steps.

    Privacy: docs/proofs/discrete-laplace.md and docs/proofs/rounded-gaussian.md, Theorem 2 of each.

    >>> noise_cost(NoiseLaw("gaussian", Fraction(10)), 1)
    Cost(mu^2 = 0.01)
    """
    if law.kind == "exponential":
        raise BudgetError(
            "one-sided noise hides comparisons, not numbers; use laplace or gaussian noise"
        )
    ratio = sensitivity / law.scale
    return Cost.pure(ratio, steps=sensitivity) if law.kind == "laplace" else Cost.gaussian(ratio**2)
