# SPDX-License-Identifier: Apache-2.0
"""``sum_j c_j d (K + s_j v)^-1 h`` of a non-negative h to 100 bits: what the vault measures.

The recurrences of ``chain.py`` in double-double arithmetic (a number is the unevaluated sum of two
floats; Dekker 1971). All operands are positive, so no digit is ever cancelled, and every operation
has a relative error below ``16 u^2 = 2^-102`` with u = 2^-53 (Joldes, Muller, Popescu 2017, "Tight
and rigorous error bounds for basic building blocks of double-word arithmetic": sum of
same-signed numbers 3 u^2, product 7 u^2, quotient 15 u^2 + 56 u^3). The result has a relative error
below ``RELATIVE (nodes + 8)`` in every entry: docs/proofs/rational-root.md.

``TINY`` is added to every entry of h. It moves the results of all tables by the same amount,
far below the grid, and keeps every intermediate number away from underflow.

Privacy: exact counts pass through here; only the vault calls it.
"""

from __future__ import annotations

import numpy as np

from sfumato.plan.solve.chain import Chain
from sfumato.plan.solve.rational import Root
from sfumato.plan.solve.tridiagonal import LANES
from sfumato.workload.queries import Array

__all__ = ["MOST_POLES", "RELATIVE", "applied"]

MOST_POLES = 128
RELATIVE = 2.0**-97  # 32 * 2^-102 per node


def applied(
    chain: Chain, mass: Array, root: Root, scale: Array, counts: Array
) -> tuple[Array, Array]:
    """``scale * sum_j c_j (K + s_j v)^-1 (counts + TINY)`` as high and low parts.

    ``counts`` are whole numbers from 0 to 2^53. All given floats are taken as the exact numbers
    they are.
    """
    from sfumato.plan.solve.doubled_sweep import sweep

    high, low = np.zeros(chain.nodes), np.zeros(chain.nodes)
    missing = -len(root.shifts) % LANES
    shifts = np.concatenate([root.shifts, np.full(missing, root.shifts[-1])])
    weights = np.concatenate([root.weights, np.zeros(missing)])
    sweep(chain.links, chain.ground, mass, shifts, weights, scale, counts, high, low)
    return high, low
