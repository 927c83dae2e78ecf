# SPDX-License-Identifier: Apache-2.0
"""Ball arithmetic (python-flint): numbers with a rigorous enclosure, at any working precision.

The vault's samplers and the quantiles of the noise decide by it what floats cannot decide. A ball
always contains the exact number; precision only makes it smaller. Paper: Johansson 2017, "Arb:
efficient arbitrary-precision midpoint-radius interval arithmetic".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "ball_of",
    "precision",
]


_lock = RLock()


def _renew_lock() -> None:
    """Another thread of the parent may have held the lock; in the child nobody would free it."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work at `bits` bits inside the block; other threads wait, for the setting is process-wide.

    Balls are right at any precision, but a comparison could stay open if another thread changed it
    midway. So nothing else in sfumato sets it.
    """
    from flint import ctx

    with _lock, ctx.workprec(bits):
        yield


def ball_of(number: Fraction) -> arb:
    """Enclose a rational number at the working precision."""
    from flint import arb, fmpq

    return arb(fmpq(number.numerator, number.denominator))
