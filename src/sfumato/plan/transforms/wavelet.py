# SPDX-License-Identifier: Apache-2.0
"""The Haar wavelet transform with weighted levels.

Measured are the total of all cells and, for every node of the binary tree, its left half minus
its right half, level j times the integer ``c_j``. One record is in one node per level, so the
column norms are ``sum c_j`` (L1) and the root of ``sum c_j^2`` (L2). Rows are orthogonal: in the
words of ``levels.py`` the differences on nodes of width ``2 s_l`` have eigenvalue
``lambda_l = 2 s_l c^2``, the total ``s_h c^2``. The best weights are in closed form (Lagrange):
``c_l^(p + 2) ~ D_l / 2 s_l``, and ``D_h / s_h`` for the total.

Under L2 every binary tree with weighted levels has the spectrum of a wavelet with the same column
norm (choose ``c_{l+1}^2 = lambda_l / 2 s_l``), so the wavelet is at least as good as any of them.

Reference: Xiao, Wang, Gehrke 2010, "Differential privacy via wavelet transforms".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.transforms.levels import Levels, energies
from sfumato.workload.queries import Array, Integers, Numbers, QuerySet

__all__ = ["Wavelet", "best_wavelet"]

WEIGHT_BITS = 12  # of the greatest weight: rounding the others costs 2^-24 of the error at most


@dataclass(frozen=True, eq=False)
class Wavelet(Levels):
    """Differences of halves, narrow nodes first, then the total; ``weights`` in the same order."""

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.weights) != len(self.widths) or min(self.weights) < 1:
            raise PlanError(
                f"a wavelet on {self.size} cells needs {len(self.widths)} weights of at least 1, "
                f"got {self.weights}"
            )

    @property
    def name(self) -> str:
        """``wavelet(weights)``."""
        return f"wavelet({', '.join(str(w) for w in self.weights)})"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Powers of 2 up to the first that holds all cells."""
        return tuple(2**j for j in range((self.size - 1).bit_length() + 1))

    @cached_property
    def eigenvalues(self) -> tuple[float, ...]:
        """``2 s_l c^2`` of the differences, ``s_h c^2`` of the total."""
        norms = [*(2 * s for s in self.widths[:-1]), self.widths[-1]]
        return tuple(float(w**2 * n) for w, n in zip(self.weights, norms, strict=True))

    @property
    def rows(self) -> int:
        """One per padded cell."""
        return self.padded

    @property
    def greatest(self) -> float:
        """The greatest weight."""
        return float(max(self.weights))

    @property
    def is_nonnegative(self) -> bool:
        """Only the total of a single cell is."""
        return self.size == 1

    def column_powers(self, p: int) -> Array:
        """One difference per level, and the total."""
        return np.full(self.size, float(sum(w**p for w in self.weights)))

    def row_powers(self, p: int) -> Array:
        """The number of (real) cells of each node, times the power of its weight."""
        left, right, weights = self._halves()
        return (left + right) * weights**p

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Minus and plus the weight, where there are such cells."""
        left, right, weights = self._halves()
        low = np.where(right > 0, -weights, np.where(left == self.size, weights, 0.0))
        high = np.where(left > 0, weights, np.where(right == self.size, -weights, 0.0))
        return low, high

    def inner_products(self) -> tuple[float, float]:
        """Cells part at one difference, with opposite signs, and share all above it."""
        squares = np.array([float(w**2) for w in self.weights])
        parted = [float(squares[j + 1 :].sum() - squares[j]) for j in range(self.height)]
        return min([*parted, float(squares.sum())]), float(squares.sum())

    def _halves(self) -> tuple[Array, Array, Array]:
        """The (real) cells of the left and the right half of every row, and its weight."""
        left, right, weights = [], [], []
        for width, weight in zip(self.widths[:-1], self.weights[:-1], strict=True):
            ends = np.minimum(np.arange(self.padded // width + 1) * width, self.size)
            cells = np.diff(ends).reshape(-1, 2)
            left.append(cells[:, 0])
            right.append(cells[:, 1])
            weights.append(np.full(len(cells), weight))
        left.append(np.array([self.size]))
        right.append(np.array([0]))
        weights.append(np.array(self.weights[-1:]))
        joined = [np.concatenate(part).astype(np.float64) for part in (left, right, weights)]
        return joined[0], joined[1], joined[2]

    def _measured(self, leaves: Numbers) -> Numbers:
        sums, levels = leaves, []
        for weight in self.weights[:-1]:
            left, right = sums[0::2], sums[1::2]
            levels.append(weight * (left - right))
            sums = left + right
        return np.concatenate([*levels, self.weights[-1] * sums])

    def _spread(self, y: Numbers) -> Numbers:
        end = len(y) - 1
        out = self.weights[-1] * y[end:]
        for weight in self.weights[-2::-1]:
            half = weight * y[end - len(out) : end]
            end -= len(out)
            out = np.stack([out + half, out - half], axis=1).reshape(-1, *y.shape[1:])
        return out

    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Only nodes that hold an end see a difference between their halves."""
        out = (self.weights[-1] * (ends - starts) / self.eigenvalues[-1]) ** 4
        for j, width in enumerate(self.widths[:-1]):
            first, last = starts // (2 * width), ends // (2 * width)
            factor = self.weights[j] / self.eigenvalues[j]
            for node, counts in ((first, True), (last, first != last)):
                low = node * 2 * width
                cut = [np.clip(p, low, low + width) for p in (starts, ends)]
                more = [np.clip(p, low + width, low + 2 * width) for p in (starts, ends)]
                difference = (cut[1] - cut[0]) - (more[1] - more[0])
                out = out + np.where(counts, (factor * difference) ** 4, 0.0)
        return np.asarray(out, dtype=np.float64)


def best_wavelet(asked: list[tuple[float, QuerySet]], p: int) -> Wavelet:
    """The weights with the least error for weighted query sets under the L_p column norm."""
    plain = Wavelet(asked[0][1].size, (1,) * ((asked[0][1].size - 1).bit_length() + 1))
    energy = np.sum([c * energies(queries, plain.widths) for c, queries in asked], axis=0)
    details = np.maximum(energy - np.append(energy[1:], 0.0), 0.0)
    best = (details / np.array(plain.eigenvalues)) ** (1 / (p + 2))
    best = best if best.any() else np.ones_like(best)  # queries that are zero
    scaled = np.rint(best * (2**WEIGHT_BITS / best.max()))
    return Wavelet(plain.size, tuple(int(max(w, 1)) for w in scaled))
