# SPDX-License-Identifier: Apache-2.0
"""Intervals that hold the truth although the answer is off by a bounded bias.

If an answer is ``truth + b + s Z`` with Z standard normal and ``|b| <= B``, then
``P(|answer - truth| <= c)`` falls in ``|b|``, so the least c that works for every such b is the
quantile of ``|N(B, s^2)|``. It is at most ``B + s q``, q the two-sided normal quantile, and near
``B + s q_1`` with the one-sided quantile where the bias is large, since only one tail then counts.

Reference: Armstrong, Kolesar 2018, "Optimal inference in a class of regression models"
(fixed-length intervals under a bound on the bias).
"""

from __future__ import annotations

import numpy as np

from sfumato.workload.queries import Array

__all__ = ["folded_normal_quantile"]

STEPS = 60
SAFE = 1e-9  # relative, far above the error of Newton's method


def folded_normal_quantile(ratio: Array, level: float) -> Array:
    """The c with ``P(|N(ratio, 1)| <= c) = level``, rounded up.

    >>> import numpy as np
    >>> [round(float(c), 2) for c in folded_normal_quantile(np.array([0.0, 5.0]), 0.95)]
    [1.96, 6.64]
    """
    from scipy.special import ndtr, ndtri

    b = np.asarray(ratio, dtype=np.float64)
    # P is concave in c from b on, and below the level at the one-sided quantile: Newton's method
    # from there never passes the root.
    c = b + ndtri(level)
    c = np.maximum(c, ndtri((1 + level) / 2))
    for _ in range(STEPS):
        missing = level - (ndtr(c - b) - ndtr(-c - b))
        density = (np.exp(-((c - b) ** 2) / 2) + np.exp(-((c + b) ** 2) / 2)) / np.sqrt(2 * np.pi)
        step = missing / density
        c = c + step
        if float(np.abs(step).max(initial=0.0)) <= 1e-13:
            break
    return np.asarray(c * (1 + SAFE), dtype=np.float64)
