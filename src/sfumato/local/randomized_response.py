# SPDX-License-Identifier: Apache-2.0
"""Randomized response: the client blurs its own code before anybody else sees it.

The first step of the local model: a client holds one code in ``0 .. size-1`` and sends one report.
Nobody is trusted with exact data, so there is no vault, no ledger and no noise added later;
``sfumato.local.estimation`` turns the reports into counts.

S. Warner, 1965, "Randomized response: a survey technique for eliminating evasive answer bias"
(size 2); P. Kairouz, K. Bonawitz, D. Ramage, 2016, "Discrete distribution estimation under local
privacy" (any size).

No probability here is a float: the coin is a 64-bit word compared with an integer threshold that
is rounded towards more privacy. Proof: docs/proofs/randomized-response.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import BudgetError, SchemaError, TooLarge
from sfumato.randomness import WordSource, integers_below, system_words

__all__ = [
    "COIN_BITS",
    "LARGEST_SIZE",
    "Codes",
    "RandomizedResponse",
    "exp_down",
    "keep_threshold",
    "respond",
]

Codes = npt.NDArray[np.int64]

COIN_BITS = 64
"""Bits of one coin: a whole word."""

LARGEST_SIZE = 10_000_000
"""Most cells one response may have: an estimate holds a few arrays of this length."""

# exp(128) * 2**-COIN_BITS exceeds LARGEST_SIZE, so beyond this epsilon the threshold is 2**64 - 1
# whatever epsilon is; a smaller exponent only lowers a threshold, never privacy.
_LARGEST_EXPONENT = Fraction(128)
_EXP_BITS = 256
_BLOCK = 1 << 20


def exp_down(exponent: Fraction, bits: int = _EXP_BITS) -> Fraction:
    """A multiple of ``2^-bits``, at most ``exp(exponent)`` and close to it, for exponent >= 0.

    All Taylor terms are positive, so cutting the series and rounding each term down can only
    lower the sum: the bound is certain, not merely likely.

    >>> exp_down(Fraction(0))
    Fraction(1, 1)
    >>> float(exp_down(Fraction(1)))
    2.718281828459045
    """
    if exponent < 0:
        raise BudgetError(f"exp_down got the exponent {float(exponent)}; it must be at least 0")
    numerator, denominator = exponent.numerator, exponent.denominator
    term = total = 1 << bits
    order = 0
    while term:
        order += 1
        term = term * numerator // (denominator * order)
        total += term
    return Fraction(total, 1 << bits)


def keep_threshold(epsilon: Fraction, size: int, bits: int = COIN_BITS) -> int:
    """The largest found ``a`` with ``p = a / 2^bits <= e^epsilon / (e^epsilon + size - 1)``.

    Privacy: rounding p down keeps ``p (size-1) / (1-p) <= e^epsilon`` (Claim 1 of the proof page).
    A p below ``1/size`` would turn the inequality round and carries no signal: refused.
    """
    odds = exp_down(min(epsilon, _LARGEST_EXPONENT))
    threshold = math.floor((1 << bits) * odds / (odds + (size - 1)))
    if threshold * size <= 1 << bits:
        raise BudgetError(
            f"epsilon {float(epsilon):.3g} is too small for {size} codes: a coin of {bits} bits "
            "cannot tell the true code from the others; raise epsilon or merge codes"
        )
    return threshold


def respond(
    codes: Codes, coins: npt.NDArray[np.uint64], offsets: Codes, threshold: int, size: int
) -> Codes:
    """``code if coin < threshold else (code + 1 + offset) mod size``, element by element.

    Written as sums and products, the same for every outcome: a selection by mask (``np.where``)
    branches on the coin, and its time varies with the pattern of kept codes.
    """
    moves = (coins >= np.uint64(threshold)).astype(np.int64)
    reports = codes + moves * (1 + offsets)
    # code + 1 + offset < 2 size, so one subtraction is the remainder.
    reports -= size * (reports >= size).astype(np.int64)
    return reports


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Report the true code with probability p, any other with probability (1-p)/(size-1) each.

    Privacy: epsilon-local differential privacy of every single report (Kairouz, Bonawitz, Ramage
    2016; Claim 1 of docs/proofs/randomized-response.md), exactly, with no delta.
    Neighbours: any code of one client replaced by any other; that a client reports is public.
    A float epsilon stands for the exact binary number that it is.

    >>> response = RandomizedResponse(epsilon=1, size=4)
    >>> round(float(response.keep), 6), round(float(response.other), 6)
    (0.475367, 0.174878)
    """

    epsilon: Fraction | float
    size: int
    threshold: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon, size = _exact_epsilon(self.epsilon), _checked_size(self.size)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "threshold", keep_threshold(epsilon, size))

    @property
    def keep(self) -> Fraction:
        """p, the exact probability that the report is the true code."""
        return Fraction(self.threshold, 1 << COIN_BITS)

    @property
    def other(self) -> Fraction:
        """(1 - p) / (size - 1), the exact probability of each other code."""
        return (1 - self.keep) / (self.size - 1)

    @property
    def gap(self) -> Fraction:
        """``keep - other``, the share of signal in a report; 2p - 1 for one bit."""
        return self.keep - self.other

    @property
    def likelihood_ratio(self) -> Fraction:
        """``keep / other``, the largest ratio of probabilities of one report; at most e^epsilon."""
        return self.keep / self.other

    def encode(self, codes: npt.ArrayLike, words: WordSource | None = None) -> Codes:
        """One report for each code, independently; runs at the client.

        Privacy: each report is epsilon-locally private. Encoding the same record again spends
        epsilon again (basic composition): store the report and repeat it, not the coin.
        Neighbours: the code of one record replaced by any other.
        """
        true = checked_codes(codes, self.size, "codes")
        source = system_words() if words is None else words
        flat = true.reshape(-1)
        reports = np.empty_like(flat)
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            coins = source.words(block.size)
            # Offsets are drawn for kept codes too: how many words are used must not depend on
            # the coins. With two codes there is only one other, and nothing to draw.
            offsets = (
                integers_below(self.size - 1, block.size, source)
                if self.size > 2
                else np.zeros(block.size, dtype=np.int64)
            )
            reports[start : start + block.size] = respond(
                block, coins, offsets, self.threshold, self.size
            )
        return reports.reshape(true.shape)


def checked_codes(codes: npt.ArrayLike, size: int, name: str) -> Codes:
    """The codes as int64 when all are integers in ``0 .. size-1``; the message holds no value."""
    array = np.asarray(codes)
    if array.size and array.dtype.kind not in "iub":
        raise SchemaError(
            f"{name} are not all integers; allowed are integers 0 to {size - 1}; "
            "map each value to its code first"
        )
    if array.size and bool((array < 0).any() | (array >= size).any()):
        raise SchemaError(
            f"{name} hold at least one number outside 0 to {size - 1}; "
            "map values outside the domain to a code of their own first"
        )
    return cast(Codes, array.astype(np.int64))


def _exact_epsilon(epsilon: object) -> Fraction:
    number = epsilon.item() if isinstance(epsilon, np.number) else epsilon
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction):
        raise BudgetError(
            f"epsilon is of type {type(epsilon).__name__}; give an int, a float or a Fraction"
        )
    if number <= 0 or (isinstance(number, float) and not math.isfinite(number)):
        raise BudgetError(f"epsilon is {number}; it must be finite and greater than 0")
    return Fraction(number)


def _checked_size(size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 2:
        raise SchemaError(f"size is {size!r}; randomized response needs an integer of at least 2")
    if size > LARGEST_SIZE:
        raise TooLarge(
            f"randomized response over {size} cells was asked; at most {LARGEST_SIZE} are allowed; "
            "report fewer attributes together, or coarser ones"
        )
    return int(size)
