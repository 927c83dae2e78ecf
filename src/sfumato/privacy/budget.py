# SPDX-License-Identifier: Apache-2.0
"""The privacy budget and the neighbour relation: the two public promises of a release.

A `Budget` is what the people in the table are promised: (epsilon, delta)-DP, rho-zCDP or mu-GDP.
Planning asks it how much Gaussian or pure noise it allows; the ledger spends it. Numbers are kept
as exact fractions; what it allows is rounded down (`gaussian.py`). It never sees data.

Papers: Balle, Wang 2018, "Improving the Gaussian mechanism for differential privacy"; Bun,
Steinke 2016, "Concentrated differential privacy"; Dong, Roth, Su 2019, "Gaussian differential
privacy".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational, Real
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian as gaussian_module
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.domain.privacy_unit import PrivacyUnit, Unit

__all__ = [
    "Budget",
    "Guarantee",
    "Number",
    "budget_writings",
    "check_neighbours",
    "exact",
    "may_lose_a_record",
    "number_text",
    "total_is_public",
]


Number: TypeAlias = int | float | Fraction | Decimal | str
"""What a privacy parameter may be given as; a float means the decimal it is written as."""

_NAMES: Final = ("epsilon", "delta", "rho", "mu", "pure", "event_delta")


def check_neighbours(value: object) -> Neighbours:
    """Return ``value`` if it names a neighbour relation.

    >>> check_neighbours("add-remove")
    'add-remove'
    """
    for name in get_args(Neighbours):
        if value == name:
            return name  # type: ignore[no-any-return]
    raise BudgetError(
        f'neighbours must be "add-remove" (a row is added or removed) or "replace-one" '
        f"(a row is replaced, the number of rows is public), got {value!r}; choose one"
    )


def may_lose_a_record(domain: Domain, unit: PrivacyUnit | None, may_drop_records: bool) -> bool:
    """Whether replacing a record can change how many are counted.

    A rule of the schema drops some records; of a person fewer rows than allowed may be counted; or
    the source itself drops records (``may_drop_records``: a query, a view, an expression).
    """
    return may_drop_records or unit is not None or not domain.keeps_every_record


def total_is_public(
    neighbours: Neighbours, domain: Domain, unit: PrivacyUnit | None, may_drop_records: bool
) -> bool:
    """Whether the number of counted records is public: equal for all neighbours.

    Neighbours: with ``replace-one`` the number of records of the *source* is the same, and the
    number of counted ones too if none is ever dropped. ``SELECT sex FROM data WHERE hiv`` gives one
    row less when a row's ``hiv`` is replaced: what it counts is as private as any other count.
    """
    return neighbours == "replace-one" and not may_lose_a_record(domain, unit, may_drop_records)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """A promise of (epsilon, delta)-DP, of rho-zCDP or of mu-GDP: exactly one of the three.

    Without ``delta``, or with ``delta = 0``, an epsilon budget is pure.

    The total of a ledger may be split into two lanes before its first answer: ``pure`` is the part
    of ``epsilon`` that is kept for pure noise, the rest is for Gaussian noise at ``delta``
    (``docs/proofs/accounting.md``, Theorem 5). The promise is the same with and without lanes.
    ``event_delta`` is the part of ``delta`` that is reserved for mechanisms with a delta of their
    own, such as the discovery of values: they then come before or after Gaussian noise, which is
    counted at the rest (Theorem 9).

    Args:
        epsilon: The epsilon of a promise of (epsilon, delta)-DP.
        delta: Its delta; 0 if None.
        rho: The promise of rho-zCDP.
        mu: The promise of mu-GDP.
        pure: The part of ``epsilon`` that is kept for pure noise.
        event_delta: The part of ``delta`` that is reserved for events, such as discovery.

    Raises:
        BudgetError: A number is out of range, or more or fewer than one of the three is said.

    >>> import sfumato as sf
    >>> sf.Budget(epsilon=1, delta=1e-9).gaussian_mu
    0.18197480729533225
    >>> sf.Budget(rho="0.5").gaussian_mu
    1.0
    >>> sf.Budget(epsilon=0.5).is_pure
    True
    >>> sf.Budget(epsilon=4, delta=1e-9, pure=3).describe()
    'epsilon = 4, delta = 1e-9, of which epsilon = 3 for pure noise'
    >>> sf.Budget(epsilon=4, delta=1e-6, event_delta=4e-7).describe()
    'epsilon = 4, delta = 0.000001, of which delta = 4e-7 for discovery'
    """

    epsilon: Fraction | None
    delta: Fraction | None
    rho: Fraction | None
    mu: Fraction | None
    pure: Fraction | None
    event_delta: Fraction | None

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        mu: Number | None = None,
        pure: Number | None = None,
        event_delta: Number | None = None,
    ) -> None:
        promises = {"epsilon": epsilon, "rho": rho, "mu": mu}
        named = [name for name, value in promises.items() if value is not None]
        if len(named) != 1:
            raise BudgetError(
                "a budget is exactly one of epsilon (with or without delta), rho or mu; got "
                f"{' and '.join(named) or 'none of them'}; give one"
            )
        if delta is not None and epsilon is None:
            raise BudgetError(
                f"delta belongs to epsilon, got it with {named[0]}; leave delta out or give epsilon"
            )
        for name, value in promises.items():
            object.__setattr__(self, name, None if value is None else _positive(value, name))
        chance = None if epsilon is None else _check_delta(0 if delta is None else delta)
        object.__setattr__(self, "delta", chance)
        lane = None if pure is None else _check_pure(pure, self.epsilon, self.delta)
        object.__setattr__(self, "pure", lane)
        reserve = None if event_delta is None else _check_reserve(event_delta, self.delta)
        object.__setattr__(self, "event_delta", reserve)

    @property
    def gaussian_delta(self) -> Fraction:
        """The delta at which Gaussian noise is counted: what the reserve for events leaves.

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=1, delta="1e-6", event_delta="4e-7").gaussian_delta
        Fraction(3, 5000000)
        """
        return (self.delta or Fraction(0)) - (self.event_delta or Fraction(0))

    @property
    def is_pure(self) -> bool:
        """Whether only pure mechanisms (delta = 0) may spend this budget."""
        return self.epsilon is not None and not self.delta

    @property
    def currency(self) -> str:
        """The parameter that the budget is counted in: "epsilon", "rho" or "mu".

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=1, delta=1e-9).currency, sf.Budget(rho=1).currency
        ('epsilon', 'rho')
        """
        return "epsilon" if self.epsilon is not None else "rho" if self.rho is not None else "mu"

    @property
    def promise(self) -> Budget:
        """The budget without lanes and reserve, which promises the same however it is spent."""
        return Budget(self.epsilon, self.delta, self.rho, self.mu)

    @property
    def gaussian_lane(self) -> Budget | None:
        """What the lanes leave for Gaussian noise; None without lanes."""
        if self.pure is None or self.epsilon is None:
            return None
        return Budget(epsilon=self.epsilon - self.pure, delta=self.gaussian_delta)

    def reserving(self, gaussian: Budget) -> Budget:
        """Return this total with a Gaussian lane that just holds a part of it, the rest pure.

        So a session with Gaussian noise leaves the rest to pure noise, whatever comes first. A
        total that has lanes, has no delta, or has no rest is returned as it is.

        Args:
            gaussian: The part that Gaussian noise will spend, such as the budget of a session.

        Returns:
            The total, with lanes where they make sense.

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=4, delta=1e-9).reserving(sf.Budget(epsilon=1, delta=1e-9)).pure
        Fraction(3, 1)
        """
        mu = None if gaussian.is_pure else gaussian.gaussian_mu
        if self.pure is not None or self.epsilon is None or not self.delta or not mu:
            return self
        delta = self.gaussian_delta
        needed = Fraction(gaussian_module.gaussian_epsilon_up(Fraction(mu) ** 2, delta))
        pure = Fraction(math.floor((self.epsilon - needed) * 10**6), 10**6)
        while pure > 0 and gaussian_module.gaussian_mu_down(self.epsilon - pure, delta) < mu:
            pure -= Fraction(1, 10**6)
        return self if pure <= 0 else self._with_pure(pure)

    def _with_pure(self, pure: Fraction) -> Budget:
        """The same total with this pure lane."""
        return Budget(self.epsilon, self.delta, pure=pure, event_delta=self.event_delta)

    def with_lanes_of(self, other: Budget) -> Budget:
        """Return this total with the lanes of another one, if it declares none of its own.

        A lower total has the same Gaussian lane, as far as it goes, and less for pure noise: less
        of one kind and not more of the other.

        Args:
            other: A total that may have lanes.

        Returns:
            This total, with lanes if the other has some.

        >>> import sfumato as sf
        >>> sf.Budget(3, 1e-9).with_lanes_of(sf.Budget(4, 1e-9, pure=3)).pure
        Fraction(2, 1)
        """
        reserve = other.event_delta
        if reserve is not None and self.event_delta is None and self.delta and self.epsilon:
            reserved = reserve if reserve < self.delta else self.delta / 2
            whole = Budget(self.epsilon, self.delta, pure=self.pure, event_delta=reserved)
            return whole.with_lanes_of(other)
        lane = other.gaussian_lane
        if lane is None or self.pure is not None or self.epsilon is None or not self.delta:
            return self
        assert lane.epsilon is not None  # noqa: S101
        return self._with_pure(max(Fraction(0), self.epsilon - lane.epsilon))

    def with_lanes_for(self, planned: Iterable[Budget]) -> Budget:
        """Return this total with lanes in which all planned budgets fit, in whatever order.

        The pure lane is the sum of the planned epsilons without delta; the rest is the Gaussian
        lane. Whatever adding epsilons and deltas admits is admitted (``docs/proofs/accounting.md``,
        Theorem 6), and often more.

        Args:
            planned: One budget for each planned release: (epsilon, delta) or mu for Gaussian
                noise, epsilon alone for pure noise.

        Returns:
            The total with its pure lane.

        Raises:
            BudgetError: If they do not fit, or this total is not an (epsilon, delta).

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=2, delta=1e-6).with_lanes_for([sf.Budget(1, 1e-6), sf.Budget(1)]).pure
        Fraction(1, 1)
        """
        if not self.delta or self.epsilon is None:
            raise BudgetError(
                f"lanes split an (epsilon, delta) total, got {self.describe()}; other totals have "
                "one currency and need none"
            )
        listed = list(planned)
        pure = sum((b.pure_epsilon for b in listed if b.is_pure), Fraction(0))
        squares = (Fraction(b.gaussian_mu or 0.0) ** 2 for b in listed if not b.is_pure)
        planned_mu_squared = sum(squares, Fraction(0))
        rest = self.epsilon - pure
        mu_squared = (
            Fraction(gaussian_module.gaussian_mu_down(rest, self.gaussian_delta)) ** 2
            if rest > 0
            else -1
        )
        if planned_mu_squared > mu_squared and (planned_mu_squared or rest < 0):
            raise BudgetError(
                f"the planned costs do not fit into {self.promise.describe()}: pure noise takes "
                f"epsilon = {number_text(pure)}, which leaves too little for the Gaussian ones; "
                "raise the total or plan less"
            )
        if rest == 0 and self.event_delta is None:  # all of it is pure: nothing to keep apart
            return Budget(self.epsilon)
        return self._with_pure(pure)

    @property
    def gaussian_mu(self) -> float | None:
        """Largest mu, rounded down, such that mu-GDP implies this budget; None if it is pure.

        (epsilon, delta): the exact curve (Balle, Wang 2018, Theorem 8). rho: mu-GDP implies
        mu^2/2-zCDP (Bun, Steinke 2016, Proposition 1.6, with GDP post-processing).
        """
        if self.mu is not None:
            return gaussian_module.float_down(self.mu)
        if self.rho is not None:
            return gaussian_module.sqrt_down(2 * self.rho)
        if self.is_pure:
            return None
        assert self.epsilon is not None  # noqa: S101
        assert self.delta is not None  # noqa: S101
        return gaussian_module.gaussian_mu_down(self.epsilon, self.gaussian_delta)

    @property
    def pure_epsilon(self) -> Fraction:
        """Largest epsilon, rounded down, such that epsilon-DP implies this budget.

        rho: epsilon-DP implies epsilon^2/2-zCDP (Bun, Steinke 2016, Proposition 1.4). mu:
        epsilon-DP implies mu-GDP when ``Phi(-mu/2) = 1/(1 + e^epsilon)``
        (`sfumato.privacy.gaussian.mu_of_pure_up`).
        """
        if self.epsilon is not None:
            return self.epsilon
        if self.rho is not None:
            return Fraction(gaussian_module.sqrt_down(2 * self.rho))
        assert self.mu is not None  # noqa: S101
        return Fraction(gaussian_module.pure_of_mu_down(self.mu))

    def is_within(self, other: Budget) -> bool:
        """Whether this promise is of the same kind as another and nowhere weaker than it.

        Args:
            other: Another budget.

        Returns:
            Whether whoever has the other may be promised this one.

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=1).is_within(sf.Budget(epsilon=2, delta=1e-9))
        True
        >>> sf.Budget(rho=1).is_within(sf.Budget(epsilon=2, delta=1e-9))
        False
        """
        pairs = [(getattr(self, name), getattr(other, name)) for name in _NAMES]
        return all((a is None) == (b is None) and (a is None or a <= b) for a, b in pairs)

    def describe(self) -> str:
        """Return the budget in words.

        Returns:
            The numbers of the promise, as people write them.

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=1, delta=1e-9).describe()
        'epsilon = 1, delta = 1e-9'
        """
        parts = (
            ("epsilon", self.epsilon),
            ("delta", self.delta),
            ("rho", self.rho),
            ("mu", self.mu),
        )
        text = ", ".join(f"{name} = {number_text(value)}" for name, value in parts if value)
        parts_of = []
        if self.pure is not None:
            parts_of.append(f"epsilon = {number_text(self.pure)} for pure noise")
        if self.event_delta is not None:
            parts_of.append(f"delta = {number_text(self.event_delta)} for discovery")
        return f"{text}, of which {' and '.join(parts_of)}" if parts_of else text

    def as_json(self) -> dict[str, str]:
        """Return the budget as JSON, exactly.

        Returns:
            The numbers of the promise as fractions.

        >>> import sfumato as sf
        >>> sf.Budget(epsilon=0.1, delta=1e-9).as_json()
        {'epsilon': '1/10', 'delta': '1/1000000000'}
        """
        parts = (
            ("epsilon", self.epsilon),
            ("delta", self.delta),
            ("rho", self.rho),
            ("mu", self.mu),
        )
        document = {name: str(value) for name, value in parts if value}
        lanes = {"pure": self.pure, "event_delta": self.event_delta}
        return document | {name: str(part) for name, part in lanes.items() if part is not None}

    @classmethod
    def from_json(cls, value: object) -> Budget:
        """Read what `as_json` wrote.

        Args:
            value: What `as_json` returned.

        Returns:
            The budget.

        Raises:
            BudgetError: The value is none.

        >>> import sfumato as sf
        >>> sf.Budget.from_json({"rho": "1/8"})
        Budget(rho = 0.125)
        """
        if not isinstance(value, Mapping) or not set(value) <= set(_NAMES):
            raise BudgetError(
                f"a budget is an object with {', '.join(_NAMES)} only, got {_short(value)}; "
                "write it as Budget.as_json does"
            )
        return cls(**value)

    def __repr__(self) -> str:
        return f"Budget({self.describe()})"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised to the people in a table: a budget, for which neighbours, of what unit."""

    budget: Budget
    neighbours: Neighbours
    unit: Unit


def budget_writings(budget: Budget) -> list[dict[str, str]]:
    """Return the budget as JSON, and as rho or mu where that allows the same Gaussian noise.

    >>> budget_writings(Budget(rho="1/2"))
    [{'rho': '1/2'}, {'mu': '1'}]
    """
    own = budget.as_json()
    if budget.mu is not None:
        return [own, {"rho": str(budget.mu**2 / 2)}]
    if budget.rho is None:
        return [own]
    square = 2 * budget.rho
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    return [own, {"mu": str(root)}] if root * root == square else [own]


def exact(value: object, name: str) -> Fraction:
    """Return the number as an exact fraction; a float stands for its shortest decimal.

    Reading 0.1 as one tenth is what the person who wrote it meant, and lets ten such parts
    fill a budget of 1.

    >>> exact(0.1, "epsilon"), exact("2/3", "epsilon"), exact("1e-9", "delta")
    (Fraction(1, 10), Fraction(2, 3), Fraction(1, 1000000000))
    """
    if isinstance(value, bool):
        number = None
    elif isinstance(value, Rational):
        number = Fraction(int(value.numerator), int(value.denominator))
    elif isinstance(value, Real):
        number = _read(repr(float(value)))
    else:
        number = _read(str(value)) if isinstance(value, str | Decimal) else None
    if number is not None:
        bits = max(map(int.bit_length, number.as_integer_ratio()))
        if bits <= LIMITS.parameter_bits:
            return number
    raise BudgetError(
        f"{name} must be a finite number (int, float, Fraction, Decimal or a decimal string), "
        f"got {_short(value)}; write it like 0.5 or 1e-9"
    )


def number_text(value: Fraction) -> str:
    """Return the number as people write it, to 12 digits.

    >>> number_text(Fraction(1, 10**9)), number_text(Fraction(1, 3))
    ('1e-9', '0.333333333333')
    """
    digits = Context(prec=12).divide(Decimal(value.numerator), Decimal(value.denominator))
    digits = digits.normalize()
    if not digits or -6 <= digits.adjusted() < 15:
        return f"{digits:f}"
    return f"{digits:e}".replace("e+", "e")


def _read(text: str) -> Fraction | None:
    """Read a decimal or a ratio of two; None if it is not a finite number of modest size."""
    top, _, bottom = text.partition("/")
    try:
        parts = [Decimal(top), Decimal(bottom or "1")]
    except InvalidOperation:
        return None
    # The exponent is checked before the fraction is built: 1e999999999 has a billion digits.
    modest = all(part.is_finite() and abs(part.adjusted()) < 4000 for part in parts)
    if len(text) > 8000 or not modest or parts[1] == 0:
        return None
    return Fraction(parts[0]) / Fraction(parts[1])


def _positive(value: object, name: str) -> Fraction:
    number = exact(value, name)
    maximum = getattr(LIMITS, f"maximum_{name}")
    if not LIMITS.minimum_parameter <= number <= maximum:
        raise BudgetError(
            f"{name} must be greater than 0 (from 1e-100 to {maximum}), "
            f"got {_short(value)}; usual values are 0.1 to 10"
        )
    return number


def _check_delta(value: object) -> Fraction:
    number = exact(value, "delta")
    if number != 0 and not LIMITS.minimum_delta <= number < 1:
        raise BudgetError(
            f"delta must lie in (0, 1), at least 1e-300, or be 0 for a pure budget, got "
            f"{_short(value)}; usual values are below 1 / (number of people), such as 1e-9"
        )
    return number


def _check_pure(value: object, epsilon: Fraction | None, delta: Fraction | None) -> Fraction:
    number = exact(value, "pure")
    if epsilon is None or not delta:
        raise BudgetError(
            "pure splits an (epsilon, delta) total into lanes, and this budget has no delta; "
            "leave pure out, or give epsilon and delta"
        )
    if not 0 <= number < epsilon:
        raise BudgetError(
            f"pure must be at least 0 and below epsilon = {number_text(epsilon)}, got "
            f"{_short(value)}; what is above it is the lane of Gaussian noise"
        )
    return number


def _check_reserve(value: object, delta: Fraction | None) -> Fraction:
    number = exact(value, "event_delta")
    if not delta:
        raise BudgetError(
            "event_delta reserves a part of delta for discovery, and this budget has no delta; "
            "leave event_delta out, or give epsilon and delta"
        )
    if not LIMITS.minimum_delta <= number < delta:
        raise BudgetError(
            f"event_delta must be above 0 and below delta = {number_text(delta)}, got "
            f"{_short(value)}; the rest is that of Gaussian noise"
        )
    return number


def _short(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of many thousand digits
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
