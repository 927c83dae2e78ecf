# SPDX-License-Identifier: Apache-2.0
"""Draws from estimated tables: uniform numbers, and a cell of each row by its share."""

from __future__ import annotations

from typing import Final

import numpy as np

from sfumato.randomness import WordSource, integers_below
from sfumato.workload.queries import Array, Integers

__all__ = ["draw_given", "uniforms"]

WEIGHT_BITS: Final = 40


def uniforms(words: WordSource, count: int) -> Array:
    """Numbers from 0 to below 1, 53 bits each."""
    return (words.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_given(table: Array, given: Integers, words: WordSource) -> Integers:
    """For each given row of the table, a column with probability in proportion to its entries.

    Entries become whole numbers that add up to 2^40 in every row; a whole number below that is
    drawn exactly, and all rows are searched at once in one running total.
    """
    whole = 1 << min(WEIGHT_BITS, 62 - len(table).bit_length())  # the running total fits 63 bits
    sums = table.sum(axis=1, keepdims=True)
    even = np.full_like(table, 1 / table.shape[1])
    shares = np.divide(table, sums, out=even, where=sums > 0)
    weights = np.floor(shares * whole).astype(np.int64)
    largest = weights.argmax(axis=1)
    weights[np.arange(len(weights)), largest] += whole - weights.sum(axis=1)
    running = np.cumsum(weights.reshape(-1))
    drawn = integers_below(whole, given.size, words) + given * whole
    found = np.searchsorted(running, drawn, side="right")
    return np.asarray(found - given * table.shape[1], dtype=np.int64)
