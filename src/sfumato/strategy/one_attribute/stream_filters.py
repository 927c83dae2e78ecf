# SPDX-License-Identifier: Apache-2.0
"""Lower-triangular factorizations for streams: filters with a small state, and trees over time.

A ``Filter`` is a bank of fading memories p_j, in integers. A value x_t arrives, and

    i_t = x_t + sum_j h_j p_j            what the memories did not foresee of the running total
    p_j <- (1 - h_j) p_j + g_j i_t       so that sum_j p_j = x_1 + ... + x_t, since sum_j g_j = 1
    (M x)_t = k_t i_t                    what is measured: y_t = (M x)_t + noise

and back, from measured values alone: i_t = y_t / k_t, the same memories, total = sum_j p_j. So
F = R M with both factors lower triangular, and all coefficients public. For the last w values
instead of all, x_t - x_{t-w} takes the place of x_t, and an echo bank, one for every residue of t
modulo w, stands between i_t and what is measured (``planning/stream_plans.py`` says why).

Coefficients are integers times 2^-60, h_j in [0, 1], g_j >= 0 with sum exactly 1, and fixed over
stretches of time; they define M and R exactly. The memories are integers times 2^-100 and lose
less than one unit in every product: ``arithmetic_slack`` bounds what that can do to a measured
value. Proofs: docs/proofs/streams.md. ``columns_squared`` and ``rows_squared`` are the norms that
noise and error follow from, ``TimeTree`` is the baseline, ``windows_bound`` a lower bound. This
module is arithmetic; it draws no noise, and the vault alone gives it exact values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2, pi, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.nuclear import EIGEN_ROUNDING
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers

__all__ = [
    "COEFFICIENT_BITS",
    "STATE_BITS",
    "VALUE_BITS",
    "Bank",
    "Filter",
    "TimeTree",
    "best_laplace_tree",
    "binary_tree",
    "closed_bound",
    "coefficients",
    "column_norm",
    "columns_squared",
    "correlate",
    "decode",
    "encode",
    "make_filter",
    "responses",
    "rows_squared",
    "windows_bound",
]


COEFFICIENT_BITS = 60
STATE_BITS = 100
STEEPEST = 256  # a scale falls no further within one stretch of time
VALUE_BITS = COEFFICIENT_BITS + STATE_BITS  # encoded values are integers times 2^-160
_ONE = 1 << COEFFICIENT_BITS

Memories = list[int]


@dataclass(frozen=True, slots=True)
class Bank:
    """``p_j <- (1 - h_j) p_j + g_j i``: h is ``fade``, g is ``share``, both times 2^60."""

    fade: tuple[int, ...]
    share: tuple[int, ...]

    def __post_init__(self) -> None:
        # The proofs rest on these: a chain of probabilities never stretches an error.
        is_chain = all(0 <= h <= _ONE for h in self.fade) and all(g >= 0 for g in self.share)
        if not is_chain or sum(self.share) != _ONE or len(self.fade) != len(self.share):
            raise PlanError("a bank needs fades in [0, 1] and shares that sum to 1")

    def fading(self, memories: Memories) -> list[int]:
        """``h_j p_j``, each rounded down."""
        return [(h * p) >> COEFFICIENT_BITS for h, p in zip(self.fade, memories, strict=True)]

    def absorb(self, memories: Memories, fading: list[int], innovation: int) -> Memories:
        """``p_j - fading_j + g_j i``; the shares are rounded so that they still sum to i."""
        shares = [(g * innovation) >> COEFFICIENT_BITS for g in self.share[:-1]]
        shares.append(innovation - sum(shares))
        return [p - d + s for p, d, s in zip(memories, fading, shares, strict=True)]

    @property
    def size(self) -> int:
        """The number of memories."""
        return len(self.fade)


@dataclass(frozen=True, eq=False)
class Filter:
    """``F = R M`` for running totals (``width`` None) or windows, by stretches of time.

    Stretch k covers the steps ``starts[k]`` to ``starts[k + 1] - 1``, counted from 0; there the
    bank is ``banks[k]`` and the scale ``k_t = scales[k][0] + (t - starts[k]) scales[k][1]``, times
    2^-60.
    """

    length: int
    width: int | None
    starts: tuple[int, ...]
    banks: tuple[Bank, ...]
    scales: tuple[tuple[int, int], ...]
    echo: Bank | None = None

    def __post_init__(self) -> None:
        ends = [
            a + (stop - start - 1) * b
            for (a, b), start, stop in zip(self.scales, self.starts, self.starts[1:], strict=False)
        ]
        firsts = [a for a, _ in self.scales]
        if min(*ends, *firsts) <= 0:
            raise PlanError("a filter needs scales above 0")
        # Floats of the scales are then good to 2^-42 (``SCALE_ROUNDING``).
        if any(STEEPEST * end < first for first, end in zip(firsts, ends, strict=True)):
            raise PlanError(f"a scale falls to less than 1/{STEEPEST} within one stretch of time")
        if (self.echo is None) != (self.width is None) or len(self.starts) != len(self.banks) + 1:
            raise PlanError("a filter has a bank per stretch, and an echo for windows only")

    def at(self, step: int) -> tuple[Bank, int]:
        """The bank and the scale of a step."""
        k = bisect_right(self.starts, step) - 1
        first, slope = self.scales[k]
        return self.banks[k], first + (step - self.starts[k]) * slope

    @property
    def state_size(self) -> int:
        """How many numbers a stream keeps from step to step: memories, echoes, values in reach."""
        if self.echo is None or self.width is None:
            return self.banks[0].size
        return self.banks[0].size + self.width * (self.echo.size + 1)

    @property
    def table_size(self) -> int:
        """How many public coefficients describe the filter."""
        banks = {*self.banks, *([] if self.echo is None else [self.echo])}
        return len(self.starts) + 2 * len(self.scales) + 2 * sum(b.size for b in banks)

    @cached_property
    def kappa(self) -> Array:
        """The scale k_t of every step, as floats."""
        steps = np.arange(self.length)
        k = np.searchsorted(self.starts, steps, side="right") - 1
        first, slope = (np.array(c, dtype=np.float64)[k] for c in zip(*self.scales, strict=True))
        return np.asarray((first + slope * (steps - np.array(self.starts)[k])) / _ONE)

    @property
    def arithmetic_slack(self) -> float:
        """A bound on |computed - exact (M x)_t|, for every t, in counts.

        Every step moves the memories by less than 4 J units of 2^-100 in L1 besides the exact rule,
        and the rule never stretches an L1 error; an echo adds up one such error per visit.
        """
        units = 4.0 * self.banks[0].size * self.length
        if self.echo is not None and self.width is not None:
            units = (self.length // self.width + 1) * (units + 4.0 * self.echo.size)
        return float(self.kappa.max()) * units * 2.0**-STATE_BITS * (1 + 2.0**-20)


def encode(
    plan: Filter, step: int, memories: Memories, echo: Memories, moved: int
) -> tuple[Memories, Memories, int]:
    """``(M x)_t`` in units of 2^-160, and the memories after it; ``moved`` is F's change by x_t.

    ``moved`` is x_t for running totals and ``x_t - x_{t-w}`` for windows. ``echo`` is the echo of
    this step's residue (empty without echoes).

    Privacy: none by itself; what it returns is exact data and stays in the vault.
    """
    bank, kappa = plan.at(step)
    fading = bank.fading(memories)
    innovation = (moved << STATE_BITS) + sum(fading)
    memories = bank.absorb(memories, fading, innovation)
    if plan.echo is not None:
        echo = plan.echo.absorb(echo, plan.echo.fading(echo), innovation)
        innovation = sum(echo)
    return memories, echo, kappa * innovation


def decode(
    plan: Filter, step: int, memories: Memories, echo: Memories, noisy: int, grid_bits: int
) -> tuple[Memories, Memories, int]:
    """``(R y)_t`` in units of 2^-100 from ``y_t = noisy 2^-grid_bits``, and the memories after it.

    Public arithmetic on measured values.
    """
    bank, kappa = plan.at(step)
    innovation = (noisy << (VALUE_BITS - grid_bits)) // kappa
    if plan.echo is not None:
        fading = plan.echo.fading(echo)
        innovation += sum(fading) - sum(echo)
        echo = plan.echo.absorb(echo, fading, innovation)
    memories = bank.absorb(memories, bank.fading(memories), innovation)
    return memories, echo, sum(memories)


def make_filter(
    starts: Integers,
    fades: Array,
    shares: Array,
    kappa_at: Array,
    width: int | None = None,
    echo: tuple[Array, Array] | None = None,
) -> Filter:
    """The filter of coefficients rounded to 2^-60; scales are joined by lines.

    ``kappa_at`` are the scales at ``starts``, which ends with the length; ``fades`` and ``shares``
    have a row per stretch.
    """
    scales = []
    for first, last, steps in zip(kappa_at, kappa_at[1:], np.diff(starts), strict=False):
        scales.append((_rounded(first), _rounded((last - first) / int(steps))))
    return Filter(
        length=int(starts[-1]),
        width=width,
        starts=tuple(int(s) for s in starts),
        banks=tuple(_bank(h, g) for h, g in zip(fades, shares, strict=True)),
        scales=tuple(scales),
        echo=None if echo is None else _bank(*echo),
    )


def _bank(fade: Array, share: Array) -> Bank:
    positive = np.maximum(share, 0.0)
    shares = [_rounded(g) for g in positive / positive.sum()]
    shares[-1] = _ONE - sum(shares[:-1])
    return Bank(tuple(min(_rounded(h), _ONE) for h in fade), tuple(shares))


def _rounded(number: float) -> int:
    return round(float(number) * _ONE)  # exact product: a power of two


def coefficients(banks: Sequence[Bank]) -> tuple[Array, Array, Array]:
    """``1 - h``, ``h`` and ``g`` as floats, a row per bank, each to relative 2^-53."""
    keep = [[(_ONE - h) / _ONE for h in b.fade] for b in banks]
    fade = [[h / _ONE for h in b.fade] for b in banks]
    share = [[g / _ONE for g in b.share] for b in banks]
    return np.array(keep), np.array(fade), np.array(share)


# Trees over time


@dataclass(frozen=True, eq=False)
class TimeTree:
    """Levels 0 to ``levels - 1``; a node of level l sums ``branching^l`` steps.

    The binary tree is the classical mechanism for running totals (Dwork, Naor, Pitassi, Rothblum
    2010, "Differential privacy under continual observation"; Chan, Shi, Song 2011, "Private and
    continual release of statistics"), and the baseline of ``Filter``. A value lies in one node
    per level, so noise is calibrated to the number of levels (Laplace) or its square root
    (Gaussian); an answer is the sum of the fewest nodes that tile its steps. With Laplace noise it
    serves pure budgets, and then wide nodes and few levels pay.
    """

    length: int
    width: int | None
    branching: int
    levels: int

    def completed(self, step: int) -> int:
        """The number of nodes that end with a step (from 1): those of the lowest levels."""
        count, size = 1, self.branching
        while count < self.levels and step % size == 0:
            count, size = count + 1, size * self.branching
        return count

    @cached_property
    def rows_squared(self) -> Array:
        """The number of nodes that make up every answer."""
        high = np.arange(1, self.length + 1)
        low = np.zeros_like(high) if self.width is None else np.maximum(high - self.width, 0)
        total = np.zeros(self.length)
        for _ in range(self.levels - 1):
            left = np.minimum(-low % self.branching, high - low)
            low = low + left
            right = np.minimum(high % self.branching, high - low)
            total += left + right
            low, high = -(-low // self.branching), (high - right) // self.branching
            high = np.maximum(low, high)  # nothing is left: the window lies within one node
        return total + (high - low)

    def tiles(self, step: int) -> list[tuple[int, int, int]]:
        """The nodes of the answer after ``step``: level, first node, number of nodes."""
        high, low = step, 0 if self.width is None else max(step - self.width, 0)
        nodes = []
        for level in range(self.levels - 1):
            left = min(-low % self.branching, high - low)
            low += left
            right = min(high % self.branching, high - low)
            nodes += [(level, low - left, left), (level, high - right, right)]
            low, high = -(-low // self.branching), (high - right) // self.branching
            high = max(low, high)  # nothing is left: the window lies within one node
        return [tile for tile in (*nodes, (self.levels - 1, low, high - low)) if tile[2]]

    def norm(self, power: int) -> float:
        """The Lp norm of a column of M: a value lies in one node per level."""
        return float(self.levels) if power == 1 else sqrt(self.levels) * (1 + 2.0**-50)

    @property
    def state_size(self) -> int:
        """The number of open nodes, and of those that later answers may still need."""
        if self.width is None:
            return 2 * self.levels
        sizes = [int(self.branching**level) for level in range(self.levels)]
        return self.levels + sum(self.width // size + 1 for size in sizes)


def binary_tree(length: int, width: int | None) -> TimeTree:
    """The binary tree up to the largest node that fits an answer."""
    return TimeTree(length, width, 2, (length if width is None else width).bit_length())


def best_laplace_tree(length: int, width: int | None) -> TimeTree:
    """The branching and height with the least error under Laplace noise: levels^2 times nodes."""
    reach = length if width is None else width
    options = [TimeTree(length, width, 2, 1)]
    for branching in range(2, min(LIMITS.time_tree_branching, reach) + 1):
        size, levels = branching, 2
        while size <= reach:
            options.append(TimeTree(length, width, branching, levels))
            size, levels = size * branching, levels + 1
    return min(options, key=lambda t: t.levels**2 * float(t.rows_squared.sum()))


# Column norms of M and row norms of R

ROUNDOFF = 2.0**-52  # twice the unit roundoff: covers (1 + u)^c <= 1 + 2 c u for small c u
OWN_ROUNDINGS = 16  # of one recursion step, besides those of its sums
SCALE_ROUNDING = 2.0**-40  # of the scales as floats (``STEEPEST``)


def columns_squared(plan: Filter) -> Array:
    """``|M_s|_2^2`` for every step s, in floats.

    Running totals, in O(length J^2) for J memories. A value at step s becomes the probability
    vector g_s, which a chain of column-stochastic matrices ``A_t = diag(1 - h_t) + g_t h_t'`` moves
    on; step t measures ``k_t h_t' p``. Hence, backwards in time,

        |M_s|^2 = k_s^2 + g_s' O_s g_s,      O_{s-1} = k_s^2 h_s h_s' + A_s' O_s A_s,

    and forwards, ``|R_t|^2 = 1' C_t 1`` with ``C_t = diag(1 - h_t) C_{t-1} diag(1 - h_t) + g_t g_t'
    / k_t^2``. Every number is at least 0, so floats keep their relative accuracy: n steps of at
    most 2 J + 16 roundings each.

    Windows have one bank for all time, so up to the scales M and R are Toeplitz, and sums over
    columns and rows are convolutions with the squares of their first columns.
    """
    if plan.width is None:
        parts = coefficients(plan.banks)
        return _backward()(*parts, plan.kappa**2, np.array(plan.starts))
    measured, _ = responses(plan)
    return correlate(measured**2, plan.kappa**2)


def rows_squared(plan: Filter) -> Array:
    """``|R_t|_2^2``: the variance of every answer at unit noise."""
    if plan.width is None:
        keep, _, share = coefficients(plan.banks)
        return _forward()(keep, share, plan.kappa**-2, np.array(plan.starts))
    _, answered = responses(plan)
    return correlate(answered**2, plan.kappa[::-1] ** -2)[::-1]


def column_norm(plan: Filter, squared: Array) -> float:
    """An upper bound on the longest column of M, from ``columns_squared``; proof page, Lemma 3."""
    n, size = plan.length, plan.banks[0].size
    longest = float(np.sqrt(squared.max()))
    recursion = n * (size + OWN_ROUNDINGS) * ROUNDOFF + SCALE_ROUNDING
    if plan.width is None or plan.echo is None:
        return longest * (1 + recursion)
    # Signs enter: the error of the response is bounded in L2, that of the transforms in absolute
    # terms (Higham 2002, Theorem 24.2). Two of them err relatively to |m^2|_2 |k^2|_2, the one back
    # to the length of the convolution, at most |m^2|_1 |k^2|_2, which is more than both.
    step = _step_response()(*coefficients(plan.banks[:1]), n)
    visits = n // plan.width + 1
    keep, _, share = coefficients([plan.echo])
    echoes = float((share[0] * _geometric(keep[0], visits)).sum())  # |b|_1, all terms positive
    own = visits * (plan.echo.size + OWN_ROUNDINGS) * ROUNDOFF
    kappa = float(plan.kappa.max())
    response = kappa * 2 * echoes * float(np.linalg.norm(step)) * (recursion + own)
    measured, _ = responses(plan)
    norms = float((measured**2).sum() * np.linalg.norm(plan.kappa**2))
    transform = 64 * log2(4 * n) * ROUNDOFF * norms
    return (float(np.sqrt(squared.max() + transform)) + response) * (1 + 2.0**-30)


def responses(plan: Filter) -> tuple[Array, Array]:
    """The first columns of M and of R for windows, without the scales k_t."""
    assert plan.echo is not None and plan.width is not None  # noqa: S101, PT018
    keep, fade, share = coefficients(plan.banks[:1])
    echo_keep, _, echo_share = coefficients([plan.echo])
    step = _step_response()(keep, fade, share, plan.length)
    moved = step.copy()
    moved[plan.width :] -= step[: -plan.width]
    return _echoed()(echo_keep[0], echo_share[0], keep[0], share[0], moved, plan.width)


def correlate(squares: Array, weights: Array) -> Array:
    """``sum_{t >= s} weights_t squares_{t-s}`` for every s, by Fourier transforms."""
    from scipy.fft import irfft, rfft

    n = len(squares)
    size = 2 ** ceil(log2(2 * n))
    sums = irfft(rfft(squares, size) * rfft(weights[::-1], size), size)[:n][::-1]
    return np.asarray(np.maximum(sums, 0.0), dtype=np.float64)


def _geometric(ratio: Array, count: int) -> Array:
    """``1 + r + ... + r^(count - 1)``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        total = -np.expm1(count * np.log(ratio)) / (1 - ratio)
    return np.where(ratio == 1, float(count), np.where(ratio == 0, 1.0, total))


@lru_cache(maxsize=1)
def _backward() -> Callable[[Array, Array, Array, Array, Integers], Array]:
    from numba import njit

    @njit(cache=True)
    def columns(keep, fade, share, kappa2, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        size = keep.shape[1]
        gram = np.zeros((size, size))
        out = np.zeros(starts[-1])
        for k in range(len(keep) - 1, -1, -1):
            h, f, g = fade[k], keep[k], share[k]
            for t in range(starts[k + 1] - 1, starts[k] - 1, -1):
                seen = gram @ g
                own = kappa2[t]
                for i in range(size):
                    own += g[i] * seen[i]
                out[t] = own
                for i in range(size):
                    for j in range(size):
                        # h h' k^2 + A' O A with A = diag(f) + g h'; own = k^2 + g' O g
                        gram[i, j] = (
                            f[i] * gram[i, j] * f[j]
                            + f[i] * seen[i] * h[j]
                            + h[i] * seen[j] * f[j]
                            + h[i] * h[j] * own
                        )
        return out

    return columns  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _forward() -> Callable[[Array, Array, Array, Integers], Array]:
    from numba import njit

    @njit(cache=True)
    def rows(keep, share, inverse2, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        size = keep.shape[1]
        covariance = np.zeros((size, size))
        out = np.zeros(starts[-1])
        for k in range(len(keep)):
            f, g = keep[k], share[k]
            for t in range(starts[k], starts[k + 1]):
                total = 0.0
                for i in range(size):
                    for j in range(size):
                        covariance[i, j] = (
                            f[i] * covariance[i, j] * f[j] + g[i] * g[j] * inverse2[t]
                        )
                        total += covariance[i, j]
                out[t] = total
        return out

    return rows  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _step_response() -> Callable[[Array, Array, Array, int], Array]:
    from numba import njit

    @njit(cache=True)
    def respond(keep, fade, share, length):  # type: ignore[no-untyped-def]  # pragma: no cover
        """What one value adds to every later innovation, were it never to leave the window."""
        f, h, g = keep[0], fade[0], share[0]
        memories = np.zeros(len(f))
        out = np.zeros(length)
        for t in range(length):
            moved = 1.0 if t == 0 else 0.0
            for j in range(len(f)):
                moved += h[j] * memories[j]
            for j in range(len(f)):
                memories[j] = f[j] * memories[j] + g[j] * moved
            out[t] = moved
        return out

    return respond  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _echoed() -> Callable[[Array, Array, Array, Array, Array, int], tuple[Array, Array]]:
    from numba import njit

    @njit(cache=True)
    def respond(f2, g2, f, g, moved, width):  # type: ignore[no-untyped-def]  # pragma: no cover
        """The first columns of M (innovations through the echoes) and of R (back)."""
        length = len(moved)
        echoes = np.zeros((min(width, length), len(f2)))
        back = np.zeros(len(f2))
        memories = np.zeros(len(f))
        measured, answered = np.zeros(length), np.zeros(length)
        for t in range(length):
            row = echoes[t % width]
            total = 0.0
            for j in range(len(f2)):
                row[j] = f2[j] * row[j] + g2[j] * moved[t]
                total += row[j]
            measured[t] = total
            innovation = 0.0
            if t % width == 0:  # the echoes of other residues stay at 0
                innovation = 1.0 if t == 0 else 0.0
                for j in range(len(f2)):
                    innovation -= f2[j] * back[j]
                for j in range(len(f2)):
                    back[j] = f2[j] * back[j] + g2[j] * innovation
            total = 0.0
            for j in range(len(f)):
                memories[j] = f[j] * memories[j] + g[j] * innovation
                total += memories[j]
            answered[t] = total
        return measured, answered

    return respond  # type: ignore[no-any-return]


# Lower bounds for sliding windows


def windows_bound(length: int, width: int, guess: Array) -> float:
    """A lower bound on ``k gamma^2`` of the windows that end at each of ``length`` steps.

    With ``D = diag(v)`` the bound of ``solve/nuclear.py`` is ``|F D^1/2|_*^2 / sum(v)``, the norm
    being the sum of singular values. Short streams: by eigenvalues, with v from the dual of the
    scales. Any length, in closed form: ``|G|_* >= tr(U'G)`` for every U with ``|U| <= 1``, and a
    Toeplitz matrix has norm at most the maximum of its symbol. The symbol f / |f| of windows of
    width w has the coefficients ``u_k = tan(pi a / w) / (pi a)``, ``a = k - (w - 1) / 2``, so with
    ``c_m = u_0 + ... + u_{min(m, w) - 1}`` and the best v,

        sum_{m = 1}^{length} c_m^2  <=  k gamma^2.

    As the length grows this is the square of the Lebesgue constant, about ``(4 / pi^2) log w + 1``.
    """
    closed = closed_bound(length, width)
    return (
        closed
        if length > LIMITS.stream_dense_length
        else max(closed, _by_eigenvalues(length, width, guess))
    )


def closed_bound(length: int, width: int) -> float:
    """``sum_m c_m^2``, in O(length)."""
    a = np.arange(width) - (width - 1) / 2
    with np.errstate(invalid="ignore"):
        symbol = np.where(a == 0, 1 / width, np.tan(pi * a / width) / (pi * a))
    running = np.cumsum(symbol)
    reach = np.minimum(np.arange(1, length + 1), width)
    return float((running[reach - 1] ** 2).sum()) * (1 - 1e-9)


def _by_eigenvalues(length: int, width: int, v: Array) -> float:
    steps = np.arange(length)
    ago = steps[:, None] - steps[None, :]
    queries = ((ago >= 0) & (ago < width)).astype(np.float64)
    gram = queries.T @ queries
    best = 0.0
    for _ in range(LIMITS.stream_bound_steps):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(root, root))
        is_positive = (
            values > values[-1] * length * EIGEN_ROUNDING
        )  # the rest is zero up to rounding
        diagonal = (vectors[:, is_positive] ** 2) @ np.sqrt(values[is_positive])
        best = max(best, float(diagonal.sum() ** 2 / v.sum()) * (1 - 1e-9))
        v = diagonal * np.sqrt(diagonal / v)
    return best
