# SPDX-License-Identifier: Apache-2.0
"""Sparse vector: how far off its discoveries may be, beside the textbook and noise on everything.

All figures are for counting queries that move by 1, all of k tests right together with probability
0.95, computed before anything is drawn. *Textbook* is the bound of Dwork, Roth 2014, Theorem 3.26,
``8 c (ln k + ln(2 c / beta)) / epsilon``; *on everything* is the largest of k Laplace draws that
share epsilon. ``python -m bench sparse`` prints the tables of docs/mechanisms/sparse-vector.md.
"""

from __future__ import annotations

from fractions import Fraction
from math import log

import sfumato as sf
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.sparse_plans import centred, plan_sparse, sparse_of_mu_squared, tolerance
from sfumato.privacy.noise_laws import laplace_quantile
from sfumato.privacy.sparse_vector import NoiseKind

STEP, BETA, QUERIES = 2**LIMITS.sparse_grid_bits, 0.05, 1000
BUDGETS = (sf.Budget(epsilon=1), sf.Budget(epsilon=1, delta=1e-9), sf.Budget(mu=1))
PAIRS: tuple[tuple[NoiseKind, NoiseKind], ...] = (
    ("laplace", "laplace"),
    ("gaussian", "laplace"),
    ("laplace", "gaussian"),
    ("gaussian", "gaussian"),
    ("exponential", "exponential"),
    ("gaussian", "exponential"),
)


def tolerances() -> None:
    """The tolerance of the planned sparse vectors, by discoveries and budget."""
    print(f"\n**Tolerance in counts for {QUERIES:,} tests**\n")
    print("| discoveries | monotone, epsilon = 1 | any, epsilon = 1 | textbook | on everything |"
          " any, (1, 1e-9) | any, mu = 1 |")  # fmt: skip
    print("| --- " * 7 + "|")
    everything = laplace_quantile(QUERIES, 1 - BETA / QUERIES)
    for c in (1, 3, 10, 30, 100):
        textbook = 8 * c * (log(QUERIES) + log(2 * c / BETA))
        found = [_planned(budget, c, False) for budget in BUDGETS]
        print(f"| {c} | {_planned(BUDGETS[0], c, True):,.1f} | {found[0]:,.1f} | {textbook:,.0f} | "
              f"{everything:,} | {found[1]:,.1f} | {found[2]:,.1f} |")  # fmt: skip


def pairs() -> None:
    """Pairs of laws at one mu: which noise where."""
    print("\n**Pairs of laws at mu = 1**\n")
    print("| noise of the threshold | of the scores | 1 discovery | 3 | 10 |")
    print("| --- " * 5 + "|")
    for threshold, query in PAIRS:
        found = [
            tolerance(
                centred(
                    sparse_of_mu_squared(Fraction(1), c, STEP, threshold=threshold, query=query),
                    QUERIES,
                    BETA,
                ),
                QUERIES,
                BETA,
            )
            / STEP
            for c in (1, 3, 10)
        ]
        print(f"| {threshold} | {query} | " + " | ".join(f"{f:,.1f}" for f in found) + " |")


def _planned(budget: sf.Budget, discoveries: int, is_monotone: bool) -> float:
    plan = plan_sparse(
        budget,
        discoveries,
        QUERIES,
        STEP,
        is_monotone=is_monotone,
        with_numbers=False,
        confidence=1 - BETA,
    )
    return plan.tolerance / STEP


def main() -> None:
    """Print both tables."""
    tolerances()
    pairs()
