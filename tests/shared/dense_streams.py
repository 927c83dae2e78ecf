# SPDX-License-Identifier: Apache-2.0
"""Filters of streams as dense matrices, from their definition."""

from __future__ import annotations

import numpy as np

from sfumato.strategy.one_attribute.stream_filters import COEFFICIENT_BITS, Bank, Filter

__all__ = ["ONE", "asked", "dense"]

ONE = 1 << COEFFICIENT_BITS


def asked(length: int, width: int | None = None) -> np.ndarray:
    """F as a matrix: running totals, or the windows that end at each step."""
    ago = np.arange(length)[:, None] - np.arange(length)[None, :]
    return ((ago >= 0) & (ago < (width or length))).astype(float)


def bank_matrix(banks: list[Bank]) -> np.ndarray:
    """B with ``sum_j p_j = B i``, straight from the definition, a bank per step."""
    n = len(banks)
    out = np.zeros((n, n))
    for s in range(n):
        memories = np.zeros(banks[0].size)
        for t in range(s, n):
            memories *= 1 - np.array(banks[t].fade) / ONE
            memories += (t == s) * np.array(banks[t].share) / ONE
            out[t, s] = memories.sum()
    return out


def dense(plan: Filter) -> tuple[np.ndarray, np.ndarray]:
    """R and M as matrices, M by solving R M = F."""
    n = plan.length
    kappa = np.array([plan.at(t)[1] / ONE for t in range(n)])
    r = bank_matrix([plan.at(t)[0] for t in range(n)])
    if plan.echo is not None and plan.width is not None:
        echoes = np.zeros((n, n))
        for residue in range(min(plan.width, n)):
            at = np.arange(residue, n, plan.width)
            echoes[np.ix_(at, at)] = bank_matrix([plan.echo] * len(at))
        r = r @ np.linalg.inv(echoes)
    r = r / kappa
    return r, np.linalg.solve(r, asked(n, plan.width))
