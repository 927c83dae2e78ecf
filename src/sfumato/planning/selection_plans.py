# SPDX-License-Identifier: Apache-2.0
"""Plans of private selection: which mechanism chooses the top few of many scores, and how well.

Scores are linear queries, one per candidate. Four mechanisms, of which the best forecast wins:

    permute-and-flip   one choice after the other with exponential noise; pure epsilon
    exponential        all choices by one draw of Gumbel noise; bounded range (pure, rho, mu)
    laplace-counts     noise on every score, and the largest noisy ones; pure epsilon
    gaussian-counts    the same with Gaussian noise (rho, mu)

Choices cost as much for every place and depend on how far one person moves two scores apart
(`spread_of`); noise on every score costs the same for any number of places, and depends on how far
a person moves all of them together. So a few of many overlapping candidates are chosen, many of
few disjoint cells are counted. The forecast is a proved bound that some data attain:
docs/proofs/selection.md, Theorems 8 to 10.

Papers: McKenna, Sheldon 2020, "Permute-and-flip: a new mechanism for differentially private
selection"; Durfee, Rogers 2019, "Practical differentially private top-k selection with
pay-what-you-get composition"; Cesar, Rogers 2021, "Bounding, concentrating, and truncating".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import floor, frexp, ldexp
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.adaptive_costs import FINEST_GRID_BITS, Moves, Spending
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.gaussian import sqrt_down
from sfumato.privacy.noise_laws import BlockNoise, gaussian_quantile, laplace_quantile
from sfumato.privacy.selection import MAXIMUM_RATE, range_of_mu_squared_down, selection_cost
from sfumato.types import Array, Neighbours
from sfumato.workload.workload import RECORD_BITS, WORD_BITS, Workload, answer_bits, spread

__all__ = [
    "CandidateSet",
    "SelectionForecast",
    "SelectionMechanism",
    "candidates_of",
    "check_candidates",
    "forecast_selections",
    "lost_by_choice",
    "lost_by_counts",
    "lost_by_flips",
    "nearest_of",
    "spread_of",
]


SelectionMechanism: TypeAlias = Literal[
    "permute-and-flip", "exponential", "laplace-counts", "gaussian-counts"
]
"""The mechanisms of a selection, by name."""

Currency: TypeAlias = Literal["epsilon", "mu^2", "rho"]


# How far one person moves the scores


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """What a forecast has to know of the candidates: how many, and how far a person moves them.

    ``spread`` is how far apart two scores can be moved, ``one`` how far a single one, ``whole`` how
    far all of them together; in steps of ``2^-bits``. ``grid_bits`` is how much finer the grid of
    noise may be so that 64 bits hold all of it. ``scale`` is 0 where scores are the answers; where
    they are distances of the answers from a share p/q of all records it is q, and ``spread`` is in
    steps of ``2^-bits / q``.
    """

    number: int
    bits: int
    spread: int
    one: int
    whole: Moves
    is_nonnegative: bool
    grid_bits: int
    scale: int = 0

    def some(self, top: int) -> Moves:
        """How far any ``top`` of the scores are moved together, or a bound on it."""
        return Moves(
            min(top * self.one, self.whole.l1), min(top * self.one**2, self.whole.l2_squared)
        )


def candidates_of(
    workload: Workload, neighbours: Neighbours, unit: PrivacyUnit | None = None
) -> CandidateSet:
    """How many queries there are, and how far one person moves their answers."""
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    is_nonnegative = all(term.is_nonnegative for term in workload.terms)
    ways = 1 if neighbours == "add-remove" else 2
    greatest = floor(ldexp(max(term.greatest for term in workload.terms), bits))
    # What a record moves is a whole number of steps, and the norms are rounded up: floor is safe.
    l1 = floor(ldexp(workload.column_norm(1).power, bits))
    l2_squared = floor(ldexp(workload.column_norm(2).power, 2 * bits))
    squared_ways = ways if is_nonnegative else ways * ways
    return CandidateSet(
        workload.queries,
        bits,
        spread_of(workload, neighbours, unit),
        greatest * rows * (1 if is_nonnegative else ways),
        Moves(ways * rows * l1, squared_ways * rows * rows * l2_squared),
        is_nonnegative,
        min(FINEST_GRID_BITS, WORD_BITS - 1 - RECORD_BITS - frexp(greatest)[1]),
    )


def nearest_of(
    workload: Workload,
    share: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
) -> CandidateSet:
    """The same where the best answers are those nearest a share p/q of all records.

    The score is ``-|q answer - p records|``. A record with coefficient c moves what is inside by
    ``q c - p``, a replaced one by q times the difference of two coefficients; scores move by as
    much, each in either direction.

    Neighbours: docs/proofs/selection.md, Theorem 7.

    >>> import sfumato as sf
    >>> ages = sf.prefixes(sf.Domain({"age": 100}), "age")
    >>> near = nearest_of(ages, Fraction(1, 2), "add-remove")
    >>> near.spread, near.scale  # one record, in halves
    (2, 2)
    """
    linear = candidates_of(workload, neighbours, unit)
    p, q = share.numerator, share.denominator
    ends = [term.coefficient_bounds() for term in workload.terms]
    low = min(0.0, *(float(np.min(a)) for a, _ in ends))
    high = max(0.0, *(float(np.max(b)) for _, b in ends))
    apart = max(abs(q * high - p), abs(q * low - p))
    if neighbours == "replace-one":
        apart = max(apart, q * (high - low))
    reach = q * max(abs(low), abs(high), 1.0)
    if 2 * reach * 2.0 ** (linear.bits + RECORD_BITS) >= 2.0**WORD_BITS:
        raise TooLarge(
            f"distances from {share} of the records do not fit 64 bits; use a share with a smaller "
            "denominator, or coarser coefficients"
        )
    rows = 1 if unit is None else unit.rows
    return replace(linear, spread=2 * round(ldexp(apart, linear.bits)) * rows, scale=q)


def spread_of(workload: Workload, neighbours: Neighbours, unit: PrivacyUnit | None = None) -> int:
    """How far apart one person can move two answers, in steps: what a choice is charged for.

    A record in cell j moves the answers by a column c of their coefficients, two of them apart by
    at most ``max c - min c``; a replaced one by a difference of two columns, of which one may be
    zero. Exact where the matrix is small, else a bound by the ends of all coefficients.

    Neighbours: docs/proofs/selection.md, Theorem 7.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"job": 15, "age": 100})
    >>> spread_of(sf.marginals(domain, [["job"]]), "replace-one")
    2
    >>> spread_of(sf.prefixes(domain, "age"), "replace-one")  # all that move move together
    1
    """
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    columns = _columns(workload)
    if columns is None:
        ends = [term.coefficient_bounds() for term in workload.terms]
        low = min(0.0, *(float(np.min(a)) for a, _ in ends))
        high = max(0.0, *(float(np.max(b)) for _, b in ends))
        apart = (1 if neighbours == "add-remove" else 2) * (high - low)
    else:
        single = float((columns.max(axis=0) - columns.min(axis=0)).max())
        apart = single if neighbours == "add-remove" else _pair_spread(columns, single)
    return max(1, round(ldexp(apart, bits))) * rows


def _columns(workload: Workload) -> Array | None:
    """The different columns of the coefficients, and a zero one; None where they are too many."""
    domain = workload.domain
    names = domain.in_order({n for term in workload.terms for n in term.attributes})
    cells = domain.cells(names)
    if cells * workload.queries > LIMITS.selection_entries:
        return None
    part = domain if names == domain.names else type(domain)([domain[n] for n in names])
    rows = [
        spread(row.reshape(term.shape), part, term.attributes).reshape(-1)
        for term in workload.terms
        for row in term.dense()
    ]
    padded = np.concatenate([np.stack(rows), np.zeros((len(rows), 1))], axis=1)
    return np.asarray(np.unique(padded, axis=1), dtype=np.float64)


def _pair_spread(columns: Array, single: float) -> float:
    """The greatest spread of a difference of two columns; twice that of one where it takes long."""
    queries, cells = columns.shape
    if queries * cells * min(queries, cells) > LIMITS.selection_pairs:
        return 2 * single
    best = 0.0
    if cells <= queries:
        for column in columns.T:
            apart = columns - column[:, None]
            best = max(best, float((apart.max(axis=0) - apart.min(axis=0)).max()))
            if best >= 2 * single:
                break
        return best
    for row in columns:
        apart = columns - row
        best = max(best, float((apart.max(axis=1) - apart.min(axis=1)).max()))
        if best >= 2 * single:
            break
    return best


# How much worse the chosen ones can be


def lost_by_choice(candidates: int, top: int, rate: float, gap: float) -> float:
    """P(some chosen score is ``gap`` or more below one that was not), exponential mechanism.

    The most over all scores; attained where the best ``top`` are equal and all others ``gap``
    below: docs/proofs/selection.md, Theorem 8.

    >>> round(lost_by_choice(2, 1, 1.0, 0.0), 12)
    0.5
    """
    odds = (candidates - top) * np.exp(-rate * gap) / np.arange(1, top + 1)
    return float(-np.expm1(-np.log1p(odds).sum()))


def lost_by_flips(candidates: int, top: int, rate: float, gap: float) -> float:
    """The same for permute-and-flip, again and again among those left; exact for one choice.

    docs/proofs/selection.md, Theorem 9.
    """
    left = candidates - np.arange(top, dtype=np.float64)
    flip = float(np.exp(-rate * gap))
    if flip == 0.0:
        return 0.0
    with np.errstate(divide="ignore"):
        once = 1 + np.expm1(left * np.log1p(-flip)) / (left * flip)
    # Bonferroni: (1 - a)^m <= 1 - m a + m (m - 1) a^2 / 2, where the difference cancels.
    once = np.clip(np.minimum(once, (left - 1) * flip / 2), 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return float(-np.expm1(np.log1p(-once).sum()))


def lost_by_counts(candidates: int, top: int, law: BlockNoise, gap: int) -> float:
    """The same where every score gets noise and the largest noisy ones are taken.

    ``gap`` in steps of the noise. The noise of some candidate outside the best ``top`` exceeds that
    of one inside by ``gap``: docs/proofs/selection.md, Theorem 10.
    """
    reach = floor((9 if law.noise == "gaussian" else 60) * law.units) + 2
    width = -(-(2 * reach + 1) // LIMITS.selection_pieces)
    left = np.arange(-reach, reach + 1, width, dtype=np.float64)
    above = _survival(law, np.append(left, left[-1] + width)) ** top
    mass = above[:-1] - above[1:]
    with np.errstate(divide="ignore"):
        beyond = -np.expm1((candidates - top) * np.log1p(-_survival(law, left + gap)))
    # Below all pieces: the least of `top` noises is as far down as one of them would be up.
    rest = top * float(_survival(law, np.array([reach + 1.0]))[0]) + float(above[-1])
    return min(1.0, float((mass * beyond).sum()) + rest)


def _survival(law: BlockNoise, at: Array) -> Array:
    """P(noise >= at), at whole numbers, in floats."""
    if law.noise == "gaussian":
        from scipy.special import ndtr

        return np.asarray(ndtr((0.5 - at) / law.units))
    ratio = np.exp(-1 / law.units)
    far = np.exp(-np.abs(np.where(at > 0, at, 1 - at)) / law.units) / (1 + ratio)
    return np.asarray(np.where(at > 0, far, 1 - far))


def _least(lost: Callable[[int], float], beta: float) -> int:
    """The least tolerance, in steps: a loss of more than it has probability at most ``beta``."""
    high = 1
    while lost(high + 1) > beta:
        high *= 2
        if high > 2**52:
            raise PlanError("the budget is too small for so many candidates; use a larger one")
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lost(middle + 1) > beta else (low, middle)
    return high


# Which mechanism


@dataclass(frozen=True)
class SelectionForecast:
    """One way to select: its mechanism, its noise, its cost, and how well it will do.

    Attributes:
        mechanism: Its name.
        currency: What it spends: ``"epsilon"``, ``"mu^2"`` or ``"rho"``.
        candidates: What is known of the candidates.
        top: How many are chosen.
        rate: What scores are multiplied by; None where every score gets noise of its own.
        noise: That of the counts that are told, or of every score; None where there is neither.
        cost: What is debited.
        share: The part of the budget that counts of the chosen ones take.
        beta: The probability with which what is said of the chosen ones may be wrong.
    """

    mechanism: SelectionMechanism
    currency: Currency
    candidates: CandidateSet
    top: int
    rate: Fraction | None
    noise: BlockNoise | None
    cost: Cost
    share: Fraction
    with_counts: bool
    beta: float

    @property
    def is_counted(self) -> bool:
        """Whether every score gets noise of its own, and the noisy ones are compared."""
        return self.rate is None

    @cached_property
    def tolerance_steps(self) -> int:
        """`tolerance` in steps of the scores."""
        number, top, beta = self.candidates.number, self.top, self._beta
        if self.rate is None:
            law = self.noise
            assert law is not None  # noqa: S101
            return _least(lambda g: lost_by_counts(number, top, law, g << law.grid_bits), beta)
        rate, lost = float(self.rate), lost_by_choice
        if self.mechanism == "permute-and-flip":
            lost = lost_by_flips
        return _least(lambda g: lost(number, top, rate, g), beta)

    @property
    def tolerance(self) -> float:
        """With the stated probability no score that was not chosen is higher by more than this."""
        return ldexp(self.tolerance_steps, -self.candidates.bits) / (self.candidates.scale or 1)

    @cached_property
    def half_width(self) -> float | None:
        """Half of the interval of a count: all that are told hold at once; None without counts."""
        if not self.with_counts:
            return None
        law = self.noise
        assert law is not None  # noqa: S101
        intervals = self.candidates.number if self.is_counted else self.top
        quantile = gaussian_quantile if law.noise == "gaussian" else laplace_quantile
        steps = quantile(Fraction(law.units), 1 - Fraction(self._beta) / intervals)
        return ldexp(steps, -law.grid_bits - self.candidates.bits)

    @property
    def objective(self) -> float:
        """What the best forecast has least of."""
        return self.tolerance + (self.half_width or 0.0)

    @property
    def _beta(self) -> float:
        """The part of beta for the choice; counts that are told use the other half."""
        return self.beta / 2 if self.with_counts else self.beta


_ORDER: Final = get_args(SelectionMechanism)


def forecast_selections(
    budget: Budget,
    candidates: CandidateSet,
    top: int,
    *,
    with_counts: bool,
    confidence: float,
    mechanism: SelectionMechanism | None = None,
) -> tuple[SelectionForecast, ...]:
    """The best forecast of every mechanism, in every currency that fits the budget; best first.

    Args:
        budget: What is kept.
        candidates: What is known of the candidates.
        top: How many are chosen.
        with_counts: Whether the scores of the chosen ones are told, with noise.
        confidence: With which probability everything that is said holds.
        mechanism: The only one to try; all if None.

    Raises:
        PlanError: None fits.
    """
    best: dict[tuple[str, str], SelectionForecast] = {}
    for currency, amount in _amounts(budget):
        maker = _Maker(currency, amount, candidates, top, with_counts, 1 - confidence)
        for each in maker.all(mechanism):
            key = (each.mechanism, currency)
            if key not in best or each.objective < best[key].objective:
                best[key] = each
    if not best:
        names = ", ".join(_allowed(budget, candidates))
        raise PlanError(
            f"mechanism {mechanism!r} cannot select with {budget.describe()}; it allows {names}"
            if mechanism is not None
            else f"no selection fits {budget.describe()}; use a larger budget"
        )
    return tuple(sorted(best.values(), key=lambda f: (f.objective, _ORDER.index(f.mechanism))))


def _allowed(budget: Budget, candidates: CandidateSet) -> list[str]:
    names = {"exponential"}
    for currency, _ in _amounts(budget):
        names |= (
            {"permute-and-flip", "laplace-counts"} if currency == "epsilon" else {"gaussian-counts"}
        )
    if candidates.scale:
        names -= {"laplace-counts", "gaussian-counts"}
    return [name for name in _ORDER if name in names]


def _amounts(budget: Budget) -> Iterator[tuple[Currency, Fraction]]:
    """What a budget allows in each currency that choices and counts can share.

    In rho and in mu, pure parts are never better: the exponential mechanism has twice the rate of
    permute-and-flip there, which gains at most a factor of two (McKenna, Sheldon 2020).
    """
    if budget.epsilon is not None:
        yield "epsilon", budget.epsilon
        if budget.delta:
            yield "mu^2", Fraction(budget.gaussian_mu or 0.0) ** 2
    elif budget.rho is not None:
        yield "rho", budget.rho
    else:
        yield "mu^2", Fraction(budget.gaussian_mu or 0.0) ** 2


@dataclass(frozen=True, slots=True)
class _Maker:
    """All selections that spend one amount of one currency."""

    currency: Currency
    amount: Fraction
    candidates: CandidateSet
    top: int
    with_counts: bool
    beta: float

    def all(self, mechanism: SelectionMechanism | None) -> Iterator[SelectionForecast]:
        counted: SelectionMechanism = "gaussian-counts"
        chosen: tuple[SelectionMechanism, ...] = ("exponential",)
        if self.currency == "epsilon":
            counted, chosen = "laplace-counts", ("permute-and-flip", "exponential")
        if mechanism in (None, counted) and not self.candidates.scale:
            with suppress(PlanError):  # noise beyond what can be drawn
                yield self._counted(counted)
        for name in chosen:
            if mechanism in (None, name):
                parts = LIMITS.selection_splits
                for i in range(1, parts) if self.with_counts else (0,):
                    with suppress(PlanError):
                        yield self._chosen(name, Fraction(i, parts))

    def _counted(self, name: SelectionMechanism) -> SelectionForecast:
        noise, cost = self._noise(self.amount, self.candidates.whole)
        share = Fraction(1) if self.with_counts else Fraction(0)
        return self._forecast(name, None, noise, cost, share)

    def _chosen(self, name: SelectionMechanism, share: Fraction) -> SelectionForecast:
        each = (1 - share) * self.amount / self.top
        reach = self._range(each)
        rate = min(reach / self.candidates.spread, Fraction(MAXIMUM_RATE))
        cost = self._cost_of_choices(name, rate * self.candidates.spread)
        noise = None
        if share:
            moves = self.candidates.some(self.top)
            noise, more = self._noise(share * self.amount, moves)
            cost = self._joined(cost, more)
        return self._forecast(name, rate, noise, cost, share)

    def _forecast(
        self,
        name: SelectionMechanism,
        rate: Fraction | None,
        noise: BlockNoise | None,
        cost: Cost,
        share: Fraction,
    ) -> SelectionForecast:
        forecast = SelectionForecast(
            name,
            self.currency,
            self.candidates,
            self.top,
            rate,
            noise,
            cost,
            share,
            self.with_counts,
            self.beta,
        )
        _ = forecast.objective  # refused here where the noise is beyond all scores
        return forecast

    def _range(self, amount: Fraction) -> Fraction:
        """The largest epsilon, or bounded range, of one choice for this amount."""
        if self.currency == "epsilon":
            return amount
        if self.currency == "rho":
            return Fraction(sqrt_down(8 * amount))
        return range_of_mu_squared_down(amount)

    def _cost_of_choices(self, name: SelectionMechanism, reach: Fraction) -> Cost:
        if self.currency == "mu^2":
            return Cost.gaussian(self.top * selection_cost(reach).mu_squared)
        one = Cost.pure(reach) if name == "permute-and-flip" else Cost.choice(reach)
        return Cost(one.parts * self.top)

    def _noise(self, amount: Fraction, moves: Moves) -> tuple[BlockNoise, Cost]:
        """The least noise for an amount, and what it costs."""
        if self.currency == "epsilon":
            spending = Spending("laplace", amount)
            law = spending.noise(amount, moves, self.candidates.grid_bits)
            steps = moves.l1 << law.grid_bits
            return law, Cost.pure(spending.cost_of_noise(law, moves), steps)
        squared = 2 * amount if self.currency == "rho" else amount
        spending = Spending("gaussian", squared)
        law = spending.noise(squared, moves, self.candidates.grid_bits)
        return law, Cost.gaussian(spending.cost_of_noise(law, moves))

    def _joined(self, first: Cost, second: Cost) -> Cost:
        """Both together; Gaussian parts are one, of all mu^2."""
        both = first + second
        if not both.mu_squared:
            return both
        return Cost((*Cost.gaussian(both.mu_squared).parts, *both.pure_parts))


def check_candidates(number: int, top: object) -> int:
    """Refuse fewer than two candidates, too many, or more places than there are."""
    if number < 2:
        raise PlanError(
            f"a selection needs at least 2 different candidates, got {number}; with one there is "
            "nothing to choose"
        )
    if number > LIMITS.selection_candidates:
        raise TooLarge(
            f"{number:,} candidates are too many to choose from at once, the most are "
            f"{LIMITS.selection_candidates:,}; ask about fewer attributes or coarser bins"
        )
    most = min(number - 1, LIMITS.selection_top)
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= most:
        raise PlanError(
            f"top must be a whole number from 1 to {most:,}, as there are {number:,} different "
            f"candidates, got {top!r}"
        )
    return top
