# SPDX-License-Identifier: Apache-2.0
"""How a stream will be answered, and how well: strategy, noise, errors and certificate.

A stream of ``length`` values arrives one at a time; after each the running total (or the sum of
the last ``width`` values) leaves with noise. Everything here is known before the first value.

Privacy (docs/proofs/streams.md): what is measured at step t is ``(M x)_t``, M lower triangular,
rounded to a public grid, plus noise exact on that grid. For inputs that may depend on all earlier
outputs it is mu-GDP with ``mu = (D |M| + sqrt(n) (step + 2 slack)) / sigma``, |M| the longest
column, D what a person adds to one value, or epsilon-DP with ``epsilon = D levels / scale`` for
trees with Laplace noise, where nothing is rounded.

Neighbours: ``add-remove``, a person adds at most ``largest`` to one value of one stream;
``replace-one``, a person moves from one value to another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor, frexp, isfinite, ldexp, log2, sqrt

import numpy as np

from sfumato.budget import Budget, Neighbours, check_neighbours
from sfumato.budget.accounting import Cost
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.forecast import Candidate
from sfumato.plan.streams.bound import windows_bound
from sfumato.plan.streams.build import optimal_totals, optimal_windows, square_root
from sfumato.plan.streams.error import column_norm, columns_squared, rows_squared
from sfumato.plan.streams.filter import Filter
from sfumato.plan.streams.tree import TimeTree, best_laplace_tree, binary_tree
from sfumato.privacy.noise_laws import BlockNoise, Noise
from sfumato.workload.queries import Array

__all__ = ["STRATEGIES", "StreamPlan", "plan_stream"]

STRATEGIES = ("optimal", "toeplitz", "tree", "laplace-tree")
LONGEST = 2**22
WIDEST = 2**17  # a window of a filter keeps about 10 numbers per step
GREATEST = 2**32  # the most that one person may add
EXACT_BITS = 16  # noise on whole numbers: at least 2^16 steps per scale, as in calibrate.py
ROUNDED_BITS = (20, 36)  # noise on rounded values: steps per scale
SLACK = 1 + Fraction(1, 2**30)  # over float results that err by far less


@dataclass(frozen=True, eq=False, repr=False)
class StreamPlan:
    """A strategy for one stream with its noise, its cost and its errors; nothing of it is secret.

    >>> from sfumato.budget import Budget
    >>> found = plan_stream(64, Budget(mu=1), strategy="optimal")
    >>> f"{found.rmse:.3f} counts, certificate {found.certificate:.3f}"
    '2.100 counts, certificate 1.000'
    """

    length: int
    width: int | None
    budget: Budget
    neighbours: Neighbours
    largest: int
    strategy: str
    shape: Filter | TimeTree
    sensitivity: float
    noise: BlockNoise

    @cached_property
    def cost(self) -> Cost:
        """What the whole stream debits, at once: never more than the budget."""
        loss = _loss(self.shape, self.sensitivity, self.noise, self.neighbours, self.largest)
        return Cost.gaussian(loss) if self.noise.noise == "gaussian" else Cost.pure(loss)

    @cached_property
    def rows_squared(self) -> Array:
        """The variance of every answer at noise of variance 1."""
        if isinstance(self.shape, TimeTree):
            return self.shape.rows_squared
        return rows_squared(self.shape)

    @cached_property
    def standard_errors(self) -> Array:
        """The standard error of the answer after every step, in counts."""
        return np.sqrt(self.rows_squared * self.noise.variance)

    @property
    def rmse(self) -> float:
        """The root mean square error over all answers, in counts."""
        return sqrt(float(self.rows_squared.mean()) * self.noise.variance)

    @property
    def largest_error(self) -> float:
        """The largest standard error of any answer, in counts."""
        return float(self.standard_errors.max())

    @property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->2} / sqrt(k)``: the root mean square error at unit noise."""
        column = self.shape.norm(2) if isinstance(self.shape, TimeTree) else self.sensitivity
        return sqrt(float(self.rows_squared.mean())) * column

    @cached_property
    def lower_bound(self) -> float:
        """No factorization, streaming or not, has a smaller ``gamma``."""
        return sqrt(_squared_bound(self.length, self.width) / self.length)

    @property
    def certificate(self) -> float | None:
        """``gamma / lower_bound``: 1 is the best possible; None for Laplace noise."""
        return self.gamma / self.lower_bound if self.noise.noise == "gaussian" else None

    @property
    def state_size(self) -> int:
        """How many numbers a stream keeps from step to step, per coordinate."""
        return self.shape.state_size

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every strategy for this stream and budget, side by side."""
        return tuple(_candidate(self, name) for name in STRATEGIES)

    def request(self) -> dict[str, object]:
        """The public description of the stream, as the ledger keeps it."""
        return {
            "stream": self.length,
            "window": self.width,
            "strategy": self.strategy,
            "table": hashlib.sha256(_written(self.shape).encode()).hexdigest(),
            "largest": self.largest,
            "neighbours": self.neighbours,
            "budget": self.budget.as_json(),
            "noise": [self.noise.noise, self.noise.units, self.noise.grid_bits],
        }

    def digest(self) -> str:
        """SHA-256 of the request."""
        canonical = json.dumps(self.request(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def __repr__(self) -> str:
        asked = "running totals" if self.width is None else f"sums of the last {self.width:,}"
        known = self.certificate
        best = "" if known is None else f", at most {known:.4f} times the least possible"
        return (
            f"Stream of {self.length:,} {asked} by {self.strategy} ({self.noise.noise}) at "
            f"{self.budget.describe()}: typical error {self.rmse:,.2f}, largest "
            f"{self.largest_error:,.2f}{best}; {self.state_size:,} numbers kept"
        )


def plan_stream(
    length: int,
    budget: Budget,
    *,
    width: int | None = None,
    strategy: str | None = None,
    largest: int = 1,
    neighbours: Neighbours = "add-remove",
) -> StreamPlan:
    """The plan of one stream; without ``strategy`` the one with the least forecast error."""
    _check(length, budget, width, strategy, largest)
    if width is not None and width >= length:
        width = None
    common = (length, width, budget, check_neighbours(neighbours), largest)
    if strategy is not None:
        return _planned(*common, strategy)
    gaussian = "optimal" if width is None or width <= WIDEST else "tree"
    names = ["laplace-tree"] if budget.gaussian_mu is None else [gaussian, "laplace-tree"]
    return min((_planned(*common, name) for name in names), key=lambda p: p.rmse)


def _planned(
    length: int,
    width: int | None,
    budget: Budget,
    neighbours: Neighbours,
    largest: int,
    strategy: str,
) -> StreamPlan:
    if strategy in ("optimal", "toeplitz") and budget.gaussian_mu is None:
        raise PlanError(
            f"strategy {strategy!r} needs Gaussian noise and the budget is pure "
            f"({budget.describe()}); give a delta, or use 'tree' or 'laplace-tree'"
        )
    if strategy in ("optimal", "toeplitz") and width is not None and width > WIDEST:
        raise TooLarge(
            f"a window of {width:,} steps needs more than {10 * width:,} numbers per stream; the "
            f"widest is {WIDEST:,}: count in coarser steps, or use 'tree' or 'laplace-tree'"
        )
    is_pure = budget.gaussian_mu is None or strategy == "laplace-tree"
    shape = _shape(length, width, strategy)
    if isinstance(shape, TimeTree):
        sensitivity = shape.norm(1 if is_pure else 2)
    else:
        sensitivity = column_norm(shape, columns_squared(shape))
    law: Noise = "laplace" if is_pure else "gaussian"
    noise = _calibrated(shape, sensitivity, law, budget, neighbours, largest)
    return StreamPlan(
        length, width, budget, neighbours, largest, strategy, shape, sensitivity, noise
    )


@lru_cache(maxsize=16)
def _shape(length: int, width: int | None, strategy: str) -> Filter | TimeTree:
    if strategy == "tree":
        return binary_tree(length, width)
    if strategy == "laplace-tree":
        return best_laplace_tree(length, width)
    if strategy == "toeplitz":
        return square_root(length, width)
    return _totals(length)[0] if width is None else _windows(length, width)[0]


@lru_cache(maxsize=8)
def _totals(length: int) -> tuple[Filter, float]:
    return optimal_totals(length)


@lru_cache(maxsize=8)
def _windows(length: int, width: int) -> tuple[Filter, Array]:
    return optimal_windows(length, width)


@lru_cache(maxsize=32)
def _squared_bound(length: int, width: int | None) -> float:
    if width is None:
        return _totals(length)[1]
    return windows_bound(length, width, _windows(length, width)[1])


def _calibrated(
    shape: Filter | TimeTree,
    sensitivity: float,
    law: Noise,
    budget: Budget,
    neighbours: Neighbours,
    largest: int,
) -> BlockNoise:
    """The least noise for the budget, on its grid; scales are rounded up."""
    mu = budget.gaussian_mu
    allowed = budget.pure_epsilon if law == "laplace" or mu is None else Fraction(mu) ** 2
    loss = float(allowed) if law == "laplace" else float(mu or 0.0)
    scale = sensitivity * _moved(shape, law, neighbours, largest) / loss
    if not (isfinite(scale) and 2.0**-40 <= scale <= 2.0**60):
        raise PlanError(f"a noise scale of {scale:.3g} counts cannot be drawn; change the budget")
    if isinstance(shape, TimeTree):
        bits = max(EXACT_BITS - floor(log2(scale)), 0)
    else:
        low, high = ROUNDED_BITS
        wanted = ceil(low + log2(shape.length) / 2 - log2(min(loss, 1.0)))
        bits = min(max(wanted, low), high) - floor(log2(scale))
        scale += _rounding(shape, bits, neighbours) / loss
    noise = BlockNoise(law, _ceiling(scale * (1 + 2.0**-28), bits), bits)
    if noise.units > 2**40:
        raise PlanError("noise of more than 2^40 steps cannot be drawn; lower `largest`")
    if _loss(shape, sensitivity, noise, neighbours, largest) > allowed:
        raise PlanError("the noise could not be rounded within the budget; please report this")
    return noise


def _loss(
    shape: Filter | TimeTree,
    sensitivity: float,
    noise: BlockNoise,
    neighbours: Neighbours,
    largest: int,
) -> Fraction:
    """``mu^2`` (Gaussian) or ``epsilon`` (Laplace), rounded up."""
    moved = Fraction(sensitivity * _moved(shape, noise.noise, neighbours, largest))
    if isinstance(shape, Filter):
        moved += Fraction(_rounding(shape, noise.grid_bits, neighbours))
    ratio = moved * SLACK / Fraction(noise.scale)
    return ratio**2 if noise.noise == "gaussian" else ratio


def _moved(shape: Filter | TimeTree, law: Noise, neighbours: Neighbours, largest: int) -> float:
    """How much a person moves the values, in units of one column of M."""
    if neighbours == "add-remove":
        return float(largest)
    # Two columns of an M without negative entries are at most sqrt(2) columns apart.
    is_nonnegative = isinstance(shape, TimeTree) or shape.width is None
    return largest * (sqrt(2) if law == "gaussian" and is_nonnegative else 2.0)


def _rounding(shape: Filter, bits: int, neighbours: Neighbours) -> float:
    """By how much rounding and integer arithmetic can move all measured values, in L2.

    In one coordinate; ``replace-one`` may touch two.
    """
    touched = shape.length * (1 if neighbours == "add-remove" else 2)
    return sqrt(touched) * (ldexp(1.0, -bits) + 2 * shape.arithmetic_slack)


def _ceiling(scale: float, bits: int) -> int:
    mantissa, exponent = frexp(scale)
    exact = Fraction(mantissa) * Fraction(2) ** (exponent + bits)
    return -(-exact.numerator // exact.denominator)


def _candidate(chosen: StreamPlan, name: str) -> Candidate:
    p = chosen
    try:
        found = _planned(p.length, p.width, p.budget, p.neighbours, p.largest, name)
    except PlanError as error:
        return Candidate(name, None, None, str(error))
    note = f"{found.noise.noise}, {found.state_size:,} numbers kept"
    return Candidate(name, found.rmse, found.largest_error, note, name == chosen.strategy)


def _written(shape: Filter | TimeTree) -> str:
    """All coefficients as text: two plans measure the same if and only if these agree."""
    if isinstance(shape, TimeTree):
        return f"tree {shape.length} {shape.width} {shape.branching} {shape.levels}"
    banks = [(b.fade, b.share) for b in shape.banks]
    echo = None if shape.echo is None else (shape.echo.fade, shape.echo.share)
    return repr((shape.length, shape.width, shape.starts, banks, shape.scales, echo))


def _check(
    length: object, budget: object, width: object, strategy: object, largest: object
) -> None:
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    for name, value, most in (("length", length, LONGEST), ("largest", largest, GREATEST)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PlanError(f"{name} must be a whole number of at least 1, got {value!r}")
        if value > most:
            raise TooLarge(
                f"{name} is {value:,}, more than {most:,}; count in coarser steps or units, or use "
                "several counters one after the other"
            )
    if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
        raise PlanError(f"window must be a whole number of steps of at least 1, got {width!r}")
    if strategy is not None and strategy not in STRATEGIES:
        raise PlanError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
