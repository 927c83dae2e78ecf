# SPDX-License-Identifier: Apache-2.0
"""What releases cost, and what several of them cost together.

A `Cost` lists the parts of a release: Gaussian noise (its mu squared), pure mechanisms (their
epsilon), and the delta of mechanisms that are one of the two but for an event of that probability.
Costs are stated before noise is drawn and are functions of public numbers only.

    Gaussian with Gaussian     mu^2 adds; the exact curve (`sfumato.privacy.gaussian`)
    pure with pure, delta = 0  epsilon adds
    deltas of events           add, whatever else there is (proof page, Theorem 7)
    anything else              the privacy loss of all parts together (`epsilon_up`),
                               and never more than the two simple bounds

Papers: Dong, Roth, Su 2019, "Gaussian differential privacy" (composition: Corollary 3.3); Bun,
Steinke 2016, "Concentrated differential privacy"; Dwork, Roth 2014, "The algorithmic foundations
of differential privacy" (Theorem 3.16); Cesar, Rogers 2021, "Bounding, concentrating, and
truncating: unifying privacy loss composition for data analytics".

`epsilon_up` bounds the privacy loss of pure mechanisms and Gaussian noise together. The delta of a
composition is an average of the delta of one part, shifted by the loss of the others. With all
Gaussian parts merged into one, and L the loss of all pure parts together,

    delta(epsilon) = sum over l of P(L = l) delta_mu(epsilon - l)

so the Gaussian is never discretised and only the pure losses need a grid. A pure part of m steps
is dominated by the discrete Laplace mechanism that moves by m (proof page, Lemma 2), whose losses
are (epsilon/m) (m - 2 J). Each loss between two grid points is split between them so that its
probability under both neighbours is kept: merging the two outputs again gives the old mechanism
back, so the new one dominates it (as the "connect the dots" of Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi 2022). All terms are positive, so rounding errors stay relative and no convolution
needs a Fourier transform; the sum is inflated by more than they can be.

Proof page: ``docs/proofs/accounting.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian as gaussian_module
from sfumato.privacy.budget import Number, exact, number_text
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.types import Array

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "ApproximatePart",
    "Cost",
    "GaussianPart",
    "Part",
    "PurePart",
    "composed_epsilon",
    "composed_epsilon_exact",
    "epsilon_up",
    "gaussian_delta",
    "gaussian_epsilon",
    "mu_squared_of",
    "rho_of",
]


@dataclass(frozen=True, slots=True)
class GaussianPart:
    """A mechanism that is mu-GDP; for Gaussian noise mu = sensitivity / sigma."""

    mu_squared: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu_squared", _amount_up(self.mu_squared, "mu_squared"))


@dataclass(frozen=True, slots=True)
class PurePart:
    """A mechanism that is epsilon-DP because it is epsilon/steps-DP along a path of ``steps``.

    ``steps = 1`` says nothing more than epsilon-DP. Discrete Laplace noise on integers that move
    by at most ``steps`` in L1 may say so: any two neighbours are joined by that many unit steps.
    ``has_range`` says that all losses lie in one interval of length epsilon, as those of the
    exponential mechanism do: it counts for less in rho and in mu.
    """

    epsilon: Fraction
    steps: int = 1
    has_range: bool = False

    @property
    def rho(self) -> Fraction:
        """Its rho: epsilon^2/2, and a quarter of that with a bounded range.

        Bun, Steinke 2016, Proposition 1.4; Cesar, Rogers 2021: docs/proofs/selection.md,
        Theorem 3.
        """
        return self.epsilon**2 / (8 if self.has_range else 2)

    @property
    def mu(self) -> Fraction:
        """The mu of the Gaussian that dominates it, rounded up.

        docs/proofs/accounting.md, Theorem 2; with a bounded range docs/proofs/selection.md,
        Theorem 3.
        """
        loss = self.epsilon / 2 if self.has_range else self.epsilon
        return Fraction(gaussian_module.mu_of_pure_up(loss))

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _amount_up(self.epsilon, "epsilon"))
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise BudgetError(
                f"steps must be an integer of at least 1, got {self.steps!r}; "
                "give the L1 sensitivity in grid units, or leave it out"
            )
        if not isinstance(self.has_range, bool) or (self.has_range and self.steps != 1):
            raise BudgetError("has_range is True or False, and a part that has it has one step")


@dataclass(frozen=True, slots=True)
class ApproximatePart:
    """An event of probability ``delta``, outside of which the other parts of a cost are all.

    A mechanism that is (epsilon, delta)-DP costs a pure part and this one; Gaussian noise behind a
    threshold a Gaussian part and this one: docs/proofs/accounting.md, Theorem 7.
    """

    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _amount_up(self.delta, "delta"))
        if self.delta >= 1:
            raise BudgetError(
                f"delta of a cost must be below 1, got {number_text(self.delta)}; an event that is "
                "certain leaves nothing private"
            )


Part: TypeAlias = GaussianPart | PurePart | ApproximatePart


@dataclass(frozen=True, slots=True)
class Cost:
    """The privacy parts of one release, fixed before its noise is drawn; costs add.

    Args:
        parts: What each mechanism of the release costs.

    >>> from fractions import Fraction
    >>> import sfumato as sf
    >>> sf.Cost.gaussian(Fraction(1, 50)) + sf.Cost.pure(Fraction(1, 10))
    Cost(mu^2 = 0.02, epsilon = 0.1)
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not all(
            isinstance(part, GaussianPart | PurePart | ApproximatePart) for part in self.parts
        ):
            raise BudgetError(
                "a cost is a tuple of GaussianPart, PurePart and ApproximatePart; use "
                "Cost.gaussian, Cost.pure or Cost.approximate"
            )

    @classmethod
    def gaussian(cls, mu_squared: Fraction | int) -> Cost:
        """Return the cost of a mu-GDP mechanism: (sensitivity / sigma)^2, exact or rounded up.

        Args:
            mu_squared: The square of mu.

        Returns:
            The cost of that part alone.
        """
        return cls((GaussianPart(_fraction(mu_squared, "mu_squared")),))

    @classmethod
    def pure(cls, epsilon: Fraction | int, steps: int = 1) -> Cost:
        """Return the cost of an epsilon-DP mechanism, exact or rounded up (see `PurePart`).

        Args:
            epsilon: The epsilon of one step.
            steps: How many steps of equal epsilon there are.

        Returns:
            The cost of that part alone.
        """
        return cls((PurePart(_fraction(epsilon, "epsilon"), steps),))

    @classmethod
    def choice(cls, bounded_range: Fraction | int) -> Cost:
        """Return the cost of a choice by the exponential mechanism: all losses within a range.

        Args:
            bounded_range: The length of the interval that holds all losses, exact or rounded up;
                the choice is epsilon-DP for this epsilon.

        Returns:
            The cost of that part alone.

        >>> from fractions import Fraction
        >>> import sfumato as sf
        >>> sf.Cost.choice(Fraction(1, 2)).as_json()
        [{'kind': 'pure', 'epsilon': '1/2', 'steps': 1, 'range': True}]
        """
        return cls((PurePart(_fraction(bounded_range, "bounded_range"), 1, True),))

    @classmethod
    def approximate(cls, delta: Fraction | int) -> Cost:
        """Return the cost of an event of probability delta, outside of which other parts are all.

        Args:
            delta: The probability, exact or rounded up.

        Returns:
            The cost of that part alone, to be added to those of the mechanism.

        >>> from fractions import Fraction
        >>> import sfumato as sf
        >>> sf.Cost.pure(1) + sf.Cost.approximate(Fraction(1, 10**7))
        Cost(epsilon = 1, delta = 1e-7)
        """
        return cls((ApproximatePart(_fraction(delta, "delta")),))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parts + other.parts)

    @property
    def mu_squared(self) -> Fraction:
        """The mu^2 of all Gaussian parts together (Dong, Roth, Su 2019, Corollary 3.3)."""
        return sum((p.mu_squared for p in self.parts if isinstance(p, GaussianPart)), Fraction(0))

    @property
    def pure_parts(self) -> tuple[PurePart, ...]:
        """The pure parts."""
        return tuple(part for part in self.parts if isinstance(part, PurePart))

    @property
    def pure_epsilon(self) -> Fraction:
        """The sum of the epsilons of the pure parts."""
        return sum((part.epsilon for part in self.pure_parts), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The sum of the deltas of events: 0 but for mechanisms with a delta of their own."""
        parts = (part.delta for part in self.parts if isinstance(part, ApproximatePart))
        return sum(parts, Fraction(0))

    @property
    def without_events(self) -> Cost:
        """The pure and Gaussian parts alone."""
        return Cost(tuple(p for p in self.parts if not isinstance(p, ApproximatePart)))

    def describe(self) -> str:
        """Return the cost in words.

        Returns:
            The parts, as people write them.

        >>> from fractions import Fraction
        >>> import sfumato as sf
        >>> sf.Cost.pure(Fraction(1, 4)).describe()
        'epsilon = 0.25'
        """
        amounts = (
            ("mu^2", self.mu_squared),
            ("epsilon", self.pure_epsilon),
            ("delta", self.delta),
        )
        return ", ".join(f"{name} = {number_text(value)}" for name, value in amounts if value)

    def as_json(self) -> list[dict[str, str | int]]:
        """Return the parts as JSON, exactly.

        Returns:
            One object per part, with fractions.

        >>> from fractions import Fraction
        >>> import sfumato as sf
        >>> sf.Cost.pure(Fraction(1, 3), steps=4).as_json()
        [{'kind': 'pure', 'epsilon': '1/3', 'steps': 4}]
        """
        return [_part_json(part) for part in self.parts]

    def dp_event(self) -> DpEvent:
        """Return the cost as an event of the library dp-accounting, for accounts kept there.

        Gaussian parts become one ``GaussianDpEvent``, pure parts of m steps the discrete Laplace
        mechanism that dominates them (docs/proofs/accounting.md, Lemma 2). The neighbours are
        those of the plan and are in the numbers already: give every event to an accountant of
        ``ADD_OR_REMOVE_ONE``, whatever they are. Numbers are rounded towards more loss.

        Returns:
            One event, or a ``ComposedDpEvent`` of several.

        Raises:
            BudgetError: The cost has a delta of its own, which no event of that library states,
                or the library is not installed.

        >>> from fractions import Fraction
        >>> import sfumato as sf
        >>> sf.Cost.gaussian(Fraction(1, 4)).dp_event()
        GaussianDpEvent(noise_multiplier=2.0)
        """
        if self.delta:
            raise BudgetError(
                f"this cost has an event of probability {number_text(self.delta)}, which "
                "dp-accounting has no word for; take cost.without_events.dp_event() and ask there "
                "for epsilon at your delta less cost.delta (deltas of events add)"
            )
        try:
            import dp_accounting
        except ImportError as error:
            raise BudgetError(
                "an event of dp-accounting needs that library: pip install 'sfumato[accounting]'"
            ) from error
        events: list[DpEvent] = []
        if self.mu_squared:
            events.append(dp_accounting.GaussianDpEvent(_root_down(1 / self.mu_squared)))
        for part, count in Counter(self.pure_parts).items():
            step = gaussian_module.float_up(part.epsilon / part.steps)
            event = dp_accounting.dp_event.DiscreteLaplaceDpEvent(step, part.steps)
            events.append(event if count == 1 else dp_accounting.SelfComposedDpEvent(event, count))
        return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)

    @classmethod
    def from_json(cls, value: object) -> Cost:
        """Read what `as_json` wrote.

        Args:
            value: What `as_json` returned.

        Returns:
            The cost.

        Raises:
            BudgetError: The value is none.
        """
        if not isinstance(value, list):
            raise BudgetError(f"a cost is a list of parts, got {type(value).__name__}")
        return cls(tuple(_part(item) for item in value))

    def __repr__(self) -> str:
        return f"Cost({self.describe()})"


def gaussian_delta(mu: Number, epsilon: Number) -> float:
    """Return ``delta(epsilon; mu)`` of the Gaussian curve, rounded up.

    >>> gaussian_delta(1, 0)  # the total variation distance Phi(1/2) - Phi(-1/2)
    0.38292492254802624
    """
    mu_exact, epsilon_exact = exact(mu, "mu"), exact(epsilon, "epsilon")
    if mu_exact < 0 or epsilon_exact < 0:
        raise BudgetError(f"mu and epsilon must be at least 0, got {mu!r} and {epsilon!r}")
    return gaussian_module.gaussian_delta_up(mu_exact**2, epsilon_exact)


def gaussian_epsilon(mu: Number, delta: Number) -> float:
    """Return the smallest epsilon, rounded up, such that mu-GDP implies (epsilon, delta)-DP.

    >>> gaussian_epsilon("0.18197480729533225", "1e-9")
    1.0
    """
    mu_exact = exact(mu, "mu")
    if mu_exact < 0:
        raise BudgetError(f"mu must be at least 0, got {mu!r}")
    return gaussian_module.gaussian_epsilon_up(mu_exact**2, _check_delta(delta))


def rho_of(cost: Cost) -> Fraction:
    """Return the rho of a cost: ``sum mu^2/2 + sum epsilon^2/2``, or ``/8`` with a bounded range.

    Bun, Steinke 2016, Propositions 1.6 and 1.4; `PurePart.rho`. A cost with a delta of its own is
    delta-approximately rho-zCDP (Definition 8.1 there), which no budget in rho promises.

    >>> rho_of(Cost.gaussian(1) + Cost.pure(2))
    Fraction(5, 2)
    """
    return cost.mu_squared / 2 + sum((part.rho for part in cost.pure_parts), Fraction(0))


def mu_squared_of(cost: Cost) -> Fraction:
    """Return the mu^2 of the Gaussian that dominates all parts of a cost, rounded up."""
    squares = (part.mu**2 for part in cost.pure_parts)
    return cost.mu_squared + sum(squares, Fraction(0))


def composed_epsilon(costs: Iterable[Cost], delta: Number) -> float:
    """Return an epsilon, rounded up, for which all costs together are (epsilon, delta)-DP.

    It is the smallest that we can prove.

    Privacy: composition of parts whose parameters are fixed in advance (Dong, Roth, Su 2019,
    Theorem 3.2). When later costs depend on earlier answers only `Account` may decide.

    >>> composed_epsilon([Cost.pure(Fraction(1, 2)), Cost.pure(Fraction(1, 4))], 0)
    0.75
    """
    total = Cost(tuple(part for cost in costs for part in cost.parts))
    left = exact(delta, "delta")
    if left != 0:
        left = _check_delta(delta)
    left -= total.delta
    if left < 0:
        return math.inf
    if left == 0:
        return math.inf if total.mu_squared else gaussian_module.float_up(total.pure_epsilon)
    counted = Counter(total.pure_parts)
    return gaussian_module.float_up(composed_epsilon_exact(total.mu_squared, counted, left))


def composed_epsilon_exact(
    mu_squared: Fraction, pure: Mapping[PurePart, int], delta: Fraction
) -> Fraction:
    """Return the epsilon of `composed_epsilon` for counted parts and delta > 0, as a fraction."""
    pure = {part: count for part, count in pure.items() if count}
    if not pure:
        return Fraction(gaussian_module.gaussian_epsilon_up(mu_squared, delta))
    pure_sum = sum((part.epsilon * count for part, count in pure.items()), Fraction(0))
    # delta_mu(epsilon - pure_sum) <= delta: each pure part shifts the curve by its epsilon.
    shifted = pure_sum + Fraction(gaussian_module.gaussian_epsilon_up(mu_squared, delta))
    # Every pure part replaced by the Gaussian that dominates it.
    squares = (count * part.mu**2 for part, count in pure.items())
    dominated = Fraction(
        gaussian_module.gaussian_epsilon_up(mu_squared + sum(squares, Fraction(0)), delta)
    )
    simple = min(shifted, dominated)
    return min(simple, epsilon_up(mu_squared, pure, delta, simple))


def _root_down(value: Fraction) -> float:
    """Return the square root, rounded down."""
    root = math.sqrt(gaussian_module.float_down(value))
    while Fraction(root) ** 2 > value:
        root = math.nextafter(root, 0.0)
    return root


def _check_delta(delta: Number) -> Fraction:
    number = exact(delta, "delta")
    if not 0 < number < 1:
        raise BudgetError(f"delta must lie in (0, 1), got {delta!r}; usual values are below 1e-6")
    return number


def _amount_up(value: object, name: str) -> Fraction:
    """Return the amount; one of more than 1024 bits is rounded up to 256 good ones."""
    if not isinstance(value, Fraction) or not LIMITS.minimum_cost <= value <= LIMITS.maximum_cost:
        raise BudgetError(
            f"{name} of a cost must be a Fraction from 1e-250 to 1e15, got a "
            f"{type(value).__name__} outside of it; compute it from the noise scale"
        )
    top, bottom = value.as_integer_ratio()
    if max(top.bit_length(), bottom.bit_length()) <= 1024:
        return value
    shift = 256 + max(0, bottom.bit_length() - top.bit_length())
    return Fraction(math.ceil(value * (1 << shift)), 1 << shift)


def _fraction(value: object, name: str) -> Fraction:
    # A float is refused: its reader could not know in which direction it was rounded.
    if isinstance(value, bool) or not isinstance(value, Fraction | int):
        raise BudgetError(
            f"{name} of a cost must be an exact Fraction or int, got {type(value).__name__}; "
            "pass Fraction(x), rounded up"
        )
    return Fraction(value)


def _part_json(part: Part) -> dict[str, str | int]:
    if isinstance(part, GaussianPart):
        return {"kind": "gaussian", "mu_squared": str(part.mu_squared)}
    if isinstance(part, ApproximatePart):
        return {"kind": "approximate", "delta": str(part.delta)}
    pure: dict[str, str | int] = {
        "kind": "pure",
        "epsilon": str(part.epsilon),
        "steps": part.steps,
    }
    return pure | {"range": True} if part.has_range else pure


def _part(item: object) -> Part:
    if isinstance(item, Mapping) and item.get("kind") == "gaussian":
        return GaussianPart(exact(item.get("mu_squared"), "mu_squared"))
    if isinstance(item, Mapping) and item.get("kind") == "pure":
        epsilon = exact(item.get("epsilon"), "epsilon")
        return PurePart(epsilon, item.get("steps", 1), item.get("range", False))
    if isinstance(item, Mapping) and item.get("kind") == "approximate":
        return ApproximatePart(exact(item.get("delta"), "delta"))
    raise BudgetError(
        'a part of a cost has kind "gaussian", "pure" or "approximate", got something else'
    )


_INFLATION = 1 + 1e-6  # relative; the sums below err by less than 1e-7
_ROUNDING = 1e-15  # relative, of a loss
_CANCELLATION = 1e-14  # of Phi(-a): what the difference of two tails may lose


def epsilon_up(
    mu_squared: Fraction, pure: Mapping[PurePart, int], delta: Fraction, ceiling: Fraction
) -> Fraction:
    """Return the smallest epsilon on a fine public grid that the losses can prove.

    It is at most ``ceiling``, and equals it when the parts are too many or too extreme for doubles.
    """
    spread = sum((part.epsilon * count for part, count in pure.items()), Fraction(0))
    if (
        not Fraction(1, 10**100) < ceiling < 300
        or delta < Fraction(1, 10**200)
        or spread > 300
        or len(pure) > LIMITS.kinds_of_parts
        or max(pure.values()) > LIMITS.copies_of_a_part
    ):
        return ceiling
    # Powers of two that only grow with the cost: coarser grids nest in finer ones and dominate
    # them, so a larger cost never gets a smaller epsilon.
    step = 2.0 ** (max(_octave(ceiling) - 11, _octave(spread) - 14))
    losses = _Losses(0, np.ones(1))
    for part, count in sorted(pure.items(), key=lambda item: (item[0].epsilon, item[0].steps)):
        losses = losses.compose(_power(part, count, step))
    mu = gaussian_module.sqrt_up(mu_squared)
    allowed = gaussian_module.float_down(delta)
    values = step * (losses.first + np.arange(losses.masses.size, dtype=np.float64))

    def fits(epsilon: float) -> bool:
        deltas = _gaussian_deltas(epsilon - values, mu)
        return float(losses.masses @ deltas) * _INFLATION <= allowed

    unit = step * 2.0**-20
    units = _minimum(lambda k: fits(k * unit), math.floor(ceiling / Fraction(unit)))
    return ceiling if units is None else Fraction(units) * Fraction(unit)


@dataclass(frozen=True, slots=True)
class _Losses:
    """Probabilities of the losses ``step * (first + i)`` under the first neighbour."""

    first: int
    masses: Array

    def compose(self, other: _Losses) -> _Losses:
        """The loss of both together: losses add (independent parts of one composition)."""
        few, many = sorted((self.masses, other.masses), key=np.count_nonzero)
        (places,) = np.nonzero(few)
        if places.size > 256:
            return _Losses(self.first + other.first, np.convolve(few, many))
        out = np.zeros(few.size + many.size - 1)
        for place in places:
            out[place : place + many.size] += few[place] * many
        return _Losses(self.first + other.first, out)


def _power(part: PurePart, count: int, step: float) -> _Losses:
    """The loss of ``count`` copies of one pure part."""
    if part.steps == 1:  # a binomial number of losses -epsilon among +epsilon
        return _on_grid(*_coins(gaussian_module.float_up(part.epsilon), count), step)
    base, result = _on_grid(*_walk(part), step), _Losses(0, np.ones(1))
    while count:
        if count & 1:
            result = result.compose(base)
        count >>= 1
        if count:
            base = base.compose(base)
    return result


def _coins(epsilon: float, count: int) -> tuple[Array, Array]:
    """Losses and probabilities of ``count`` randomized responses."""
    from scipy.special import gammaln

    lost = np.arange(count + 1, dtype=np.float64)
    log_choose = gammaln(count + 1) - gammaln(lost + 1) - gammaln(count - lost + 1)
    log_masses = log_choose - lost * epsilon - count * math.log1p(math.exp(-epsilon))
    return epsilon * (count - 2 * lost), np.exp(log_masses)


def _walk(part: PurePart) -> tuple[Array, Array]:
    """Losses and probabilities of the discrete Laplace mechanism that moves by ``steps``."""
    steps, rate = _coarser(part)
    ratio = math.exp(-rate)  # of neighbouring probabilities
    moved = np.arange(steps + 1, dtype=np.float64)
    masses = np.exp(-rate * moved) / (1 + ratio)
    masses[1:-1] *= -math.expm1(-rate)
    return rate * (steps - 2 * moved), masses


def _coarser(part: PurePart) -> tuple[int, float]:
    """Join unit steps in groups: fewer, larger steps cover the path and promise less."""
    minimum = -(-part.steps // LIMITS.steps_of_a_part)
    size = min(range(minimum, minimum + 64), key=lambda s: (-(-part.steps // s) * s, s))
    return -(-part.steps // size), gaussian_module.float_up(part.epsilon * size / part.steps)


def _on_grid(losses: Array, masses: Array, step: float) -> _Losses:
    """Split each loss between its two grid points, keeping its mass under both neighbours."""
    losses = losses + _ROUNDING * np.abs(losses)  # a product rounded down must not hide a loss
    below = np.floor(losses / step)
    raised = masses * np.expm1(below * step - losses) / math.expm1(-step)
    raised = np.clip(raised, 0.0, masses)
    place = below.astype(np.int64)
    first = int(place.min())
    out = np.zeros(int(place.max()) - first + 2)
    np.add.at(out, place - first, masses - raised)
    np.add.at(out, place - first + 1, raised)
    return _Losses(first, out)


def _gaussian_deltas(epsilon: Array, mu: float) -> Array:
    """``delta(epsilon; mu)`` for any real epsilon, from above."""
    if mu == 0:
        return np.where(epsilon < 0, -np.expm1(np.minimum(epsilon, 0.0)), 0.0)
    from scipy.special import erfcx, log_ndtr, ndtr

    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    out = np.empty_like(a)
    left = a <= 0
    tail = ndtr(-a[left])
    lost = np.exp(np.minimum(epsilon[left] + log_ndtr(-b[left]), 0.0))
    out[left] = tail - lost + _CANCELLATION * tail
    # phi(a) = e^epsilon phi(b), so both tails share a factor: Mills ratios subtract safely.
    x, y = a[~left], b[~left]
    ratio = erfcx(x / math.sqrt(2))
    gap = ratio - erfcx(y / math.sqrt(2)) + _CANCELLATION * ratio
    out[~left] = np.exp(-x * x / 2) / 2 * gap
    return np.clip(out, 0.0, 1.0)


def _minimum(holds: Callable[[int], bool], last: int) -> int | None:
    """Smallest k in [0, last] with ``holds(k)`` (false, then true); None if there is none."""
    if not holds(last):
        return None
    low, high = -1, last
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _octave(value: Fraction) -> int:
    """floor(log2(value))."""
    estimate = value.numerator.bit_length() - value.denominator.bit_length()
    return estimate if Fraction(2) ** estimate <= value else estimate - 1
