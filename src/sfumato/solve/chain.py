# SPDX-License-Identifier: Apache-2.0
"""Chains of conductances: shifted tridiagonal inverses in O(cells), without a subtraction.

A chain is a row of nodes, neighbours joined by links of conductance ``b_i > 0``, node i joined to
the ground by ``k_i >= 0``. Its matrix

    (K u)_i = k_i u_i + b_i (u_i - u_{i+1}) + b_{i-1} (u_i - u_{i-1})

is the inverse Gram matrix of prefixes and ranges (``strategy/one_attribute/ordered.py``). With
masses v > 0 and a shift s, ``G = (K + s diag(v))^-1`` is known by what a node sees to its left and
right:

    E_i  = k_i + s v_i + b_{i-1} E_{i-1} / (b_{i-1} + E_{i-1}),         (from the left; F_i alike)
    G_ii = 1 / (E_i + b_i F_{i+1} / (b_i + F_{i+1})),
    G_ij = G_jj prod_{i <= t < j} b_t / (b_t + E_t)                     (i < j)

sums, products and quotients of positive numbers only, so every result is good to a relative error
of a few roundings per node, however ill-conditioned the matrix (proof:
docs/proofs/rational-root.md; O'Cinneide 1996, "Relative-error bounds for the LU decomposition via
the GTH algorithm"). Since G has the Markov property ``G_it G_tj = G_ij G_tt`` for i <= t <= j,
``G diag(v) G`` follows too:

    (G v G)_ij = G_ij (G_ii (v_i + L_i) + sum_{i < t < j} v_t G_tt + G_jj (v_j + R_j)),
    L_i = (b_{i-1} / (b_{i-1} + E_{i-1}))^2 (v_{i-1} + L_{i-1}),        (R_j alike).

Sweeps run over the poles of a rational function in lanes, and over blocks of nodes: one direction
is remembered at the block ends only and repeated inside a block, so that memory stays O(nodes).

``diagonals``, ``potentials`` and ``covariances`` are in floats; ``applied`` is to 100 bits, for
what the vault measures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.solve.tridiagonal import LANES, PartialFractions, Root
from sfumato.types import Array, Integers

__all__ = [
    "RELATIVE",
    "Chain",
    "applied",
    "covariances",
    "diagonals",
    "potentials",
]


@dataclass(frozen=True, eq=False)
class Chain:
    """Conductances of the links between neighbours (one less than nodes) and to the ground."""

    links: Array
    ground: Array

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.ground)

    def diagonal(self) -> Array:
        """The diagonal of its matrix."""
        out = self.ground.copy()
        out[:-1] += self.links
        out[1:] += self.links
        return out

    def dense(self) -> Array:
        """Its matrix in full."""
        return np.diag(self.diagonal()) - np.diag(self.links, 1) - np.diag(self.links, -1)


def diagonals(chain: Chain, mass: Array, terms: PartialFractions) -> tuple[Array, Array]:
    """``sum_j first_j G^j_ii + second_j (G^j v G^j)_ii``: positive and negative parts apart.

    The polynomial part of ``terms`` is not included. Either result has a relative error below
    ``(nodes + 16) 2^-48``.
    """
    from sfumato.solve.kernels import diagonal_sweep

    plus, minus = np.zeros(chain.nodes), np.zeros(chain.nodes)
    shifts, first, second = _in_lanes(terms.shifts, terms.first, terms.second)
    diagonal_sweep(chain.links, chain.ground, mass, shifts, first, second, plus, minus)
    return plus, minus


def potentials(
    chain: Chain, mass: Array, shifts: Array, weights: Array, sources: Array
) -> tuple[Array, Array]:
    """``u = sum_j weights_j (K + s_j v)^-1 sources`` and the currents ``b_i (u_i - u_{i+1})``.

    Currents are summed as such, not as differences of potentials.
    """
    from sfumato.solve.kernels import potential_sweep

    u, current = np.zeros(chain.nodes), np.zeros(max(chain.nodes - 1, 0))
    padded = _in_lanes(shifts, weights)
    potential_sweep(chain.links, chain.ground, mass, *padded, sources, u, current)
    return u, current


def covariances(
    chain: Chain, mass: Array, terms: PartialFractions, first: Integers, last: Integers
) -> Array:
    """Entries ``(first, last)``, with first < last, of the matrix whose diagonal is ``diagonals``.

    One sweep per pole, then a few operations per entry and pole.
    """
    from sfumato.solve.kernels import entry_sweep

    out = np.zeros(len(first))
    for s, a, b in zip(terms.shifts, terms.first, terms.second, strict=True):
        entry_sweep(chain.links, chain.ground, mass, s, a, b, first, last, out)
    return out


def _in_lanes(shifts: Array, *coefficients: Array) -> tuple[Array, ...]:
    """Poles filled up to whole lanes, the new ones counting nothing."""
    missing = -len(shifts) % LANES
    filled = np.concatenate([shifts, np.full(missing, shifts[-1])])
    return (filled, *(np.concatenate([c, np.zeros(missing)]) for c in coefficients))


# The root applied to counts, to 100 bits

RELATIVE = 2.0**-97  # 32 * 2^-102 per node


def applied(
    chain: Chain, mass: Array, root: Root, scale: Array, counts: Array
) -> tuple[Array, Array]:
    """``scale * sum_j c_j (K + s_j v)^-1 (counts + TINY)`` as high and low parts.

    ``counts`` are whole numbers from 0 to 2^53. All given floats are taken as the exact numbers
    they are.

    The recurrences of the module in double-double arithmetic (a number is the unevaluated sum of
    two floats; Dekker 1971). All operands are positive, so no digit is ever cancelled, and every
    operation has a relative error below ``16 u^2 = 2^-102`` with u = 2^-53 (Joldes, Muller, Popescu
    2017, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic": sum
    of same-signed numbers 3 u^2, product 7 u^2, quotient 15 u^2 + 56 u^3). The result has a
    relative error below ``RELATIVE (nodes + 8)`` in every entry: docs/proofs/rational-root.md.

    ``TINY`` is added to every entry of h. It moves the results of all tables by the same amount,
    far below the grid, and keeps every intermediate number away from underflow.

    Privacy: exact counts pass through here; only the vault calls it.
    """
    from sfumato.solve.kernels import sweep

    high, low = np.zeros(chain.nodes), np.zeros(chain.nodes)
    missing = -len(root.shifts) % LANES
    shifts = np.concatenate([root.shifts, np.full(missing, root.shifts[-1])])
    weights = np.concatenate([root.weights, np.zeros(missing)])
    sweep(chain.links, chain.ground, mass, shifts, weights, scale, counts, high, low)
    return high, low
