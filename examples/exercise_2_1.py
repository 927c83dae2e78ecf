# SPDX-License-Identifier: Apache-2.0
"""The binary tree mechanism as a factorization F = R M: eight thresholds on eight cells."""

from __future__ import annotations

import numpy as np

import sfumato as sf

domain = sf.Domain({"x": 8})
thresholds = sf.prefixes(domain, "x")
tree = sf.study.Tree(8, branching=2)

F = np.array([thresholds.evaluate(cell) for cell in np.eye(8)]).T
M = tree.dense()

# Every threshold is a sum of at most three nodes: take the widest that fits, from left to right.
R = np.zeros((8, tree.rows))
for t, threshold in enumerate(F):
    left = threshold.copy()
    for node in reversed(range(tree.rows)):
        if (M[node] <= left).all():
            R[t, node], left = 1, left - M[node]

# The best R for this M: least squares, which the planner uses.
best = tree.transposed(F.T).T


def show(name: str, matrix: np.ndarray) -> None:
    """Whole numbers as they are, others in quotients of their common denominator."""
    denominator = next(d for d in range(1, 1000) if np.allclose(matrix * d, np.rint(matrix * d)))
    over = "" if denominator == 1 else f" (divided by {denominator})"
    print(f"{name}, {matrix.shape[0]} x {matrix.shape[1]}{over}:")
    for row in np.rint(matrix * denominator).astype(int):
        print(" ", " ".join(f"{n or '.':>{3 if denominator > 1 else 1}}" for n in row))
    print()


def error(reconstruction: np.ndarray) -> float:
    """Root mean square error at unit noise, ||R||_F ||M||_{1->2} / sqrt(k)."""
    return float(np.sqrt((reconstruction**2).sum() * (M**2).sum(axis=0).max() / 8))


show("F, the thresholds", F)
show("M, the sums over the nodes of the tree, single cells first", M)
show("R, each threshold from the fewest nodes", R)
show("R by least squares", best)
print(f"R M = F: {np.allclose(R @ M, F)}, and by least squares: {np.allclose(best @ M, F)}")
print(f"error at unit noise: {error(R):.4f}, by least squares {error(best):.4f},")
print(f"of the best M and R there are {sf.factorize(F).gamma:.4f}")
