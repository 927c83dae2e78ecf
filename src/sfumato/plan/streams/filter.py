# SPDX-License-Identifier: Apache-2.0
"""Lower-triangular factorizations with a small state: banks of fading memories, in integers.

A bank keeps a few memories p_j. A value x_t arrives, and

    i_t = x_t + sum_j h_j p_j            what the memories did not foresee of the running total
    p_j <- (1 - h_j) p_j + g_j i_t       so that sum_j p_j = x_1 + ... + x_t, since sum_j g_j = 1
    (M x)_t = k_t i_t                    what is measured: y_t = (M x)_t + noise

and back, from measured values alone: i_t = y_t / k_t, the same memories, total = sum_j p_j. So
F = R M with both factors lower triangular, and all coefficients public. For the last w values
instead of all, x_t - x_{t-w} takes the place of x_t, and an echo bank, one for every residue of t
modulo w, stands between i_t and what is measured (``build.py`` says why).

Coefficients are integers times 2^-60, h_j in [0, 1], g_j >= 0 with sum exactly 1, and fixed over
stretches of time; they define M and R exactly. The memories are integers times 2^-100 and lose
less than one unit in every product: ``arithmetic_slack`` bounds what that can do to a measured
value. Proofs: docs/proofs/streams.md. This module is arithmetic; it draws no noise, and the vault
alone gives it exact values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError
from sfumato.workload.queries import Array, Integers

__all__ = [
    "COEFFICIENT_BITS",
    "STATE_BITS",
    "VALUE_BITS",
    "Bank",
    "Filter",
    "coefficients",
    "decode",
    "encode",
    "make_filter",
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
        # Floats of the scales are then good to 2^-42 (``error.py``).
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
    """Round coefficients to 2^-60; ``kappa_at`` are the scales at ``starts``, joined by lines.

    ``starts`` ends with the length; ``fades`` and ``shares`` have a row per stretch.
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
    kept = np.maximum(share, 0.0)
    shares = [_rounded(g) for g in kept / kept.sum()]
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
