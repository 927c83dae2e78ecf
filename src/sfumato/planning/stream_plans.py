# SPDX-License-Identifier: Apache-2.0
"""Plans of streams: filter, noise, errors and certificate, known before the first value.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor, frexp, isfinite, ldexp, log2, sqrt
from typing import Final

import numpy as np

from sfumato.digest import json_digest, sha256
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.forecast import Candidate
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.solve.nuclear import certified_optimum
from sfumato.solve.tridiagonal import inverse_gram, inverse_root_poles, pole_count, root_diagonal
from sfumato.strategy.one_attribute.stream_filters import (
    Filter,
    TimeTree,
    best_laplace_tree,
    binary_tree,
    column_norm,
    columns_squared,
    correlate,
    make_filter,
    responses,
    rows_squared,
    windows_bound,
)
from sfumato.types import Array, Integers, Neighbours, Noise
from sfumato.workload.queries import Prefix

__all__ = [
    "STRATEGIES",
    "StreamForecast",
    "forecast_stream",
    "optimal_totals",
    "optimal_windows",
    "square_root",
]


# Good filters for streams: the certified optimum of running totals, square roots for windows.
#
# **Running totals.** Error and sensitivity of ``F = R M`` depend on ``X = M'M`` only, and M may be
# taken lower triangular, then so is R: a stream need not err more than the unrestricted optimum X
# of ``nuclear.py``. At the optimum the noise of the answers has covariance ``K = (F D F')^1/2``,
# the inverse of F D F' is tridiagonal, hence ``K = sum_j c_j ((F D F')^-1 + s_j)^-1`` with few
# poles: the law of a sum of J independent chains. Its triangular root is found by the Kalman filter
# of that model: with the predicted covariance P of the chains, ``g = P 1 / 1'P1`` and ``k =
# (1'P1)^-1/2``. Chains and gains are held fixed over stretches of time that grow geometrically from
# both ends, and the scales k_t, joined by lines, are corrected until all columns of M are about
# equally long.
#
# **Toeplitz.** ``(1 - z)^-1/2`` as a bank with fixed coefficients: the square root of the running
# total (Fichtenberger, Henzinger, Upadhyay 2023, "Constant matters: fine-grained error bound on
# differentially private continual observation").
#
# **Windows.** ``F = (1 - z^w) / (1 - z)``. Both factors are its square root, M up to scales k_t and
# ``R = (1 - z)^-1/2 / (1 - z^w)^-1/2``: one bank for the first factor and, on every w-th step, the
# same for the second (the echoes). With k_t = 1 this is optimal as the length grows: ``X`` and the
# singular value bound then both have the spectral density |F|. The scales that are best for a
# finite stream solve a convex program, by its dual.
#
# References: Kalman 1960, "A new approach to linear filtering and prediction problems"; Denisov,
# McMahan, Rush, Smith, Thakurta 2022, "Improved differential privacy for SGD via optimal private
# linear operators on adaptive streams".


def optimal_totals(
    length: int, progress: Callable[[int, float], None] | None = None
) -> tuple[Filter, float]:
    """A filter within about 2e-4 of the least error, and the lower bound on ``k gamma^2``."""
    inverse, gram_diagonal = inverse_gram(Prefix(length)) or (None, None)
    assert inverse is not None and gram_diagonal is not None  # noqa: S101, PT018
    if length == 1:
        ones = np.ones((1, 1))
        return make_filter(np.array([0, 1]), ones, ones, np.ones(2)), 1.0
    optimum = certified_optimum(
        root_diagonal(inverse, gram_diagonal),
        length,
        LIMITS.stream_tolerance,
        all_bind=True,
        progress=progress,
    )
    starts = _stretches(length, [0, length])
    fades, shares, spread = _gains(optimum.v * optimum.scale**2, starts)
    kappa_at = 1 / np.sqrt(spread)
    best, least = None, np.inf
    for _ in range(LIMITS.scale_corrections):
        tried = make_filter(starts, fades, shares, kappa_at)
        columns = columns_squared(tried)
        error = float(rows_squared(tried).sum() * columns.max())
        if error < least:
            best, least = _normed(tried, columns), error
        if error <= optimum.lower * (1 + LIMITS.stream_gap) ** 2:
            break
        at_knots = columns[np.minimum(starts, length - 1)]
        kappa_at = kappa_at * (at_knots / columns.mean()) ** -LIMITS.scale_damping
    assert best is not None  # noqa: S101
    return best, optimum.lower


def square_root(length: int, width: int | None = None) -> Filter:
    """The square-root factorization with equal scales: ``(1 - z)^-1/2`` and its echoes."""
    starts = np.array([0, length])
    fades, shares = _root_bank(length)
    echo = None if width is None else _root_bank(-(-length // width))
    bank = (fades[None, :], shares[None, :])
    plain = make_filter(starts, *bank, np.ones(2), width, echo)
    return _normed(plain, columns_squared(plain))


def optimal_windows(length: int, width: int) -> tuple[Filter, Array]:
    """The square-root factorization with the best scales; also the dual weights of the steps.

    Far from both ends the best scales are constant, so a long stream takes those of a shorter one.
    """
    plain = square_root(length, width)
    short = min(length, LIMITS.uniform_widths * width)
    measured, answered = (column[:short] for column in responses(plain))
    kappa2, dual = (_lengthened(c, length) for c in _best_scales(measured**2, answered**2))
    ends = [length - k * width for k in range(LIMITS.window_kinks) if k * width < length]
    starts = _stretches(length, [0, *ends])
    at = np.sqrt(kappa2)[np.minimum(starts, length - 1)]
    ones = np.ones((len(starts) - 1, 1))
    scales = make_filter(starts, ones, ones, at).scales
    tried = replace(
        plain, starts=tuple(starts.tolist()), scales=scales, banks=plain.banks * len(scales)
    )
    tried = _normed(tried, columns_squared(tried))
    best = min(tried, plain, key=lambda f: float(rows_squared(f).sum()))
    return best, dual


def _lengthened(profile: Array, length: int) -> Array:
    """The two halves of a profile, with its middle value between them."""
    half = len(profile) // 2
    middle = np.full(length - len(profile), profile[half])
    return np.concatenate([profile[:half], middle, profile[half:]])


def _best_scales(measured2: Array, answered2: Array) -> tuple[Array, Array]:
    """Minimise ``sum_s a_s / q_s`` subject to ``sum_t q_t m_{t-s}^2 <= 1``, q the squared scales.

    For dual weights l >= 0 of the columns the best is ``q_s = (a_s / sum_c l_c m_{s-c}^2)^1/2``;
    l grows where a column is long.
    """
    squared_columns = np.cumsum(answered2)[::-1]  # a_s: the squares of R's column s
    dual = np.ones(len(squared_columns))
    best, least = (dual, dual), np.inf
    for _ in range(LIMITS.dual_steps):
        price = correlate(measured2, dual[::-1])[::-1]
        squares = np.sqrt(squared_columns / price)
        columns = correlate(measured2, squares)
        error = float((squared_columns / squares).sum() * columns.max())
        if error < least:
            best, least = (squares, dual), error
        dual = dual * (columns / columns.max()) ** LIMITS.dual_power
        dual = np.maximum(dual, dual.max() * 1e-12)
    return best


def _normed(plan: Filter, columns: Array) -> Filter:
    """The same filter with its longest column about 1."""
    factor = 1 / sqrt(float(columns.max()))
    scales = tuple((round(a * factor), round(b * factor)) for a, b in plan.scales)
    return replace(plan, scales=scales)


def _stretches(length: int, centres: Sequence[int]) -> Integers:
    """Starts of stretches of time, the length at the end; they grow away from the centres."""
    offsets, at = [], 0
    while at <= length / 2:
        offsets.append(at)
        at = max(at + 1, ceil(at * LIMITS.stretch_factor))
    away = np.array(offsets, dtype=np.int64)
    points = np.concatenate([sign * away + c for c in centres for sign in (1, -1)])
    inside = points[(points >= 0) & (points <= length)]
    return np.unique(np.concatenate([inside, [0, length]]))


def _root_bank(length: int) -> tuple[Array, Array]:
    """Fades and shares with ``sum_j g_j (1 - h_j)^t`` close to the coefficients of (1 - z)^-1/2.

    ``x^-1/2 = sum_j c_j / (x + s_j)`` at x = 1 - z, of modulus between about 1 / length and 2.
    """
    least = 0.5 / length
    shifts, weights = inverse_root_poles(
        least, 2.0, pole_count(least, 2.0, LIMITS.root_pole_accuracy)
    )
    return shifts / (1 + shifts), weights / (1 + shifts)


def _gains(v: Array, starts: Integers) -> tuple[Array, Array, Array]:
    """Fades and shares of every stretch, and the innovation's variance at its start (and the end).

    ``v`` are the optimal cell weights, scaled so that ``K = (F D F')^1/2``.
    """
    n = len(v)
    inverse_v = 1 / v
    diagonal = inverse_v.copy()
    diagonal[:-1] += inverse_v[1:]
    beside = np.append(inverse_v, 0.0)
    # 1 / lambda_min is at most the trace of F D F'
    least = 1 / float(np.arange(n, 0, -1) @ v)
    largest = float((diagonal + beside[:-1] * (np.arange(n) > 0) + beside[1:]).max())
    shifts, weights = inverse_root_poles(
        least, largest, pole_count(least, largest, LIMITS.pole_accuracy)
    )
    keep, fresh = _chains()(diagonal, inverse_v, shifts, starts)
    shares, spread = _kalman()(keep, fresh * weights, starts)
    return 1 - keep, shares, spread


@lru_cache(maxsize=1)
def _chains() -> Callable[[Array, Array, Array, Integers], tuple[Array, Array]]:
    """The chains with precision ``T + s_j``: what they keep of a step and how much is new.

    Pivots from the end: ``delta_t = a_t + s - b_{t+1}^2 / delta_{t+1}``; given its predecessor a
    chain has mean ``(b_t / delta_t) u_{t-1}`` and variance ``1 / delta_t``. Averages by stretch.
    """
    from numba import njit

    @njit(cache=True)
    def chains(diagonal, beside, shifts, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        stretches, size = len(starts) - 1, len(shifts)
        keep, fresh = np.zeros((stretches, size)), np.zeros((stretches, size))
        pivot = np.full(size, np.inf)
        after = 0.0
        for k in range(stretches - 1, -1, -1):
            steps = starts[k + 1] - starts[k]
            for t in range(starts[k + 1] - 1, starts[k] - 1, -1):
                for j in range(size):
                    pivot[j] = diagonal[t] + shifts[j] - after * after / pivot[j]
                    keep[k, j] += beside[t] / pivot[j] / steps
                    fresh[k, j] += 1 / pivot[j] / steps
                after = beside[t]
        return np.minimum(keep, 1.0), fresh

    return chains  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _kalman() -> Callable[[Array, Array, Integers], tuple[Array, Array]]:
    """The Kalman filter of the sum of the chains: gains by stretch, variances at the starts."""
    from numba import njit

    @njit(cache=True)
    def filtered(keep, fresh, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        stretches, size = keep.shape
        shares, spread = np.zeros((stretches, size)), np.zeros(stretches + 1)
        p = np.zeros((size, size))
        gain = np.zeros(size)
        for k in range(stretches):
            f = keep[k]
            for t in range(starts[k], starts[k + 1]):
                variance = 0.0
                for i in range(size):
                    gain[i] = 0.0
                    for j in range(size):
                        p[i, j] *= f[i] * f[j]
                    p[i, i] += fresh[k, i]
                    for j in range(size):
                        gain[i] += p[i, j]
                    variance += gain[i]
                for i in range(size):
                    for j in range(size):
                        p[i, j] -= gain[i] * gain[j] / variance
                for j in range(size):
                    shares[k, j] += max(gain[j], 0.0) / variance / (starts[k + 1] - starts[k])
                if t == starts[k]:
                    spread[k] = variance
                spread[stretches] = variance
        return shares, spread

    return filtered  # type: ignore[no-any-return]


STRATEGIES = ("optimal", "toeplitz", "tree", "laplace-tree")


@dataclass(frozen=True, eq=False, repr=False)
class StreamForecast:
    """A strategy for one stream with its noise, its cost and its errors; nothing of it is secret.

    >>> from sfumato.privacy.budget import Budget
    >>> forecast = forecast_stream(64, Budget(mu=1), strategy="optimal")
    >>> f"{forecast.rmse:.3f} counts, certificate {forecast.certificate:.3f}"
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
            "table": sha256(_written(self.shape).encode()),
            "largest": self.largest,
            "neighbours": self.neighbours,
            "budget": self.budget.as_json(),
            "noise": [self.noise.noise, self.noise.units, self.noise.grid_bits],
        }

    def digest(self) -> str:
        """SHA-256 of the request."""
        return json_digest(self.request())

    def __repr__(self) -> str:
        queries = "running totals" if self.width is None else f"sums of the last {self.width:,}"
        certificate = self.certificate
        best = (
            ""
            if certificate is None
            else f", at most {certificate:.4f} times the least possible with "
            f"{self.noise.noise.capitalize()} noise"
        )
        return (
            f"Stream of {self.length:,} {queries} by {self.strategy} ({self.noise.noise}) at "
            f"{self.budget.describe()}: typical error {self.rmse:,.2f}, largest "
            f"{self.largest_error:,.2f}{best}; {self.state_size:,} numbers kept"
        )


def forecast_stream(
    length: int,
    budget: Budget,
    *,
    width: int | None = None,
    strategy: str | None = None,
    largest: int = 1,
    neighbours: Neighbours = "add-remove",
) -> StreamForecast:
    """The forecast of one stream; without ``strategy`` the one with the least forecast error."""
    _check(length, budget, width, strategy, largest)
    if width is not None and width >= length:
        width = None
    common = (length, width, budget, check_neighbours(neighbours), largest)
    if strategy is not None:
        return _planned(*common, strategy)
    gaussian = "optimal" if width is None or width <= LIMITS.window_steps else "tree"
    names = ["laplace-tree"] if budget.gaussian_mu is None else [gaussian, "laplace-tree"]
    return min((_planned(*common, name) for name in names), key=lambda p: p.rmse)


def _planned(
    length: int,
    width: int | None,
    budget: Budget,
    neighbours: Neighbours,
    largest: int,
    strategy: str,
) -> StreamForecast:
    if strategy in ("optimal", "toeplitz") and budget.gaussian_mu is None:
        raise PlanError(
            f"strategy {strategy!r} needs Gaussian noise and the budget is pure "
            f"({budget.describe()}); give a delta, or use 'tree' or 'laplace-tree'"
        )
    if strategy in ("optimal", "toeplitz") and width is not None and width > LIMITS.window_steps:
        raise TooLarge(
            f"a window of {width:,} steps needs more than {10 * width:,} numbers per stream; the "
            f"widest is {LIMITS.window_steps:,}: count in coarser steps, or use 'tree' or "
            "'laplace-tree'"
        )
    is_pure = budget.gaussian_mu is None or strategy == "laplace-tree"
    shape = _shape(length, width, strategy)
    if isinstance(shape, TimeTree):
        sensitivity = shape.norm(1 if is_pure else 2)
    else:
        sensitivity = column_norm(shape, columns_squared(shape))
    law: Noise = "laplace" if is_pure else "gaussian"
    noise = _calibrated(shape, sensitivity, law, budget, neighbours, largest)
    return StreamForecast(
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
        bits = max(LIMITS.stream_exact_bits - floor(log2(scale)), 0)
    else:
        low, high = LIMITS.stream_rounded_bits
        bits_needed = ceil(low + log2(shape.length) / 2 - log2(min(loss, 1.0)))
        bits = min(max(bits_needed, low), high) - floor(log2(scale))
        scale += _rounding(shape, bits, neighbours) / loss
    noise = BlockNoise(law, _ceiling(scale * (1 + 2.0**-28), bits), bits)
    if noise.units > 2**40:
        raise PlanError("noise of more than 2^40 steps cannot be drawn; lower `largest`")
    if _loss(shape, sensitivity, noise, neighbours, largest) > allowed:
        raise PlanError("the noise could not be rounded within the budget; please report this")
    return noise


STREAM_SLACK: Final = 1 + Fraction(1, 2**30)
"""The privacy claim relies on it: float results of sensitivities err by far less."""


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
    ratio = moved * STREAM_SLACK / Fraction(noise.scale)
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


def _candidate(chosen: StreamForecast, name: str) -> Candidate:
    p = chosen
    try:
        forecast = _planned(p.length, p.width, p.budget, p.neighbours, p.largest, name)
    except PlanError as error:
        return Candidate(name, None, None, str(error))
    note = f"{forecast.noise.noise}, {forecast.state_size:,} numbers kept"
    return Candidate(name, forecast.rmse, forecast.largest_error, note, name == chosen.strategy)


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
    for name, value, most in (
        ("length", length, LIMITS.stream_steps),
        ("largest", largest, LIMITS.stream_value),
    ):
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
