# SPDX-License-Identifier: Apache-2.0
"""The compiled sums of differences of ``farthest.py``; imported when first used, for numba."""

from __future__ import annotations

from numba import njit

__all__ = [
    "add_differences",
]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def add_differences(out, a, b):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add ``sum_r |a[r, i] - b[r, j]|`` to every ``out[i, j]``.

    A block of 64 rows and 512 columns j at a time, which stays in the cache for all columns i.
    """
    for top in range(0, a.shape[0], 64):
        low = min(top + 64, a.shape[0])
        for begin in range(0, b.shape[1], 512):
            end = min(begin + 512, b.shape[1])
            for i in range(a.shape[1]):
                to = out[i, begin:end]
                r = top
                while r + 3 < low:
                    x, y, z, w = a[r, i], a[r + 1, i], a[r + 2, i], a[r + 3, i]
                    first, second = b[r, begin:end], b[r + 1, begin:end]
                    third, fourth = b[r + 2, begin:end], b[r + 3, begin:end]
                    for j in range(end - begin):
                        upper = abs(first[j] - x) + abs(second[j] - y)
                        to[j] += upper + abs(third[j] - z) + abs(fourth[j] - w)
                    r += 4
                while r < low:
                    row, x = b[r, begin:end], a[r, i]
                    for j in range(end - begin):
                        to[j] += abs(row[j] - x)
                    r += 1
