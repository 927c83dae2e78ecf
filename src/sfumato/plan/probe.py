# SPDX-License-Identifier: Apache-2.0
"""A strategy is tried on a made-up table: exact values must give exact answers.

Every builder answers without bias by its own argument. Queries whose coefficients or weights differ
by many powers of ten can be lost in the rounding of floats all the same, and their answers would be
wrong without a sign of it. So, where a table can be written down, ``R M h = F h`` is checked for
one h whose counts are all different: a strategy that fails is not offered.
"""

from __future__ import annotations

from math import prod

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.strategy import Strategy
from sfumato.workload.queries import Integers
from sfumato.workload.terms import Term

__all__ = ["check_unbiased"]

CELLS = 2**14  # of the made-up table
VALUES = 2**15  # measured, or answered
TERMS = 512
BIAS = 1e-8  # per record, in greatest coefficients of the query


def check_unbiased(strategy: Strategy) -> None:
    """Refuse a strategy that loses queries; larger ones than can be tried pass."""
    terms = [*strategy.workload.terms, *(b.term for b in strategy.blocks)]
    if strategy.records is not None or not _can_be_tried(strategy, terms):
        return
    domain = strategy.workload.domain
    names = domain.in_order(frozenset().union(*(t.attributes for t in terms)))
    shape = [domain[n].size for n in names]
    if prod(shape) > CELLS:
        return
    table = (1 + np.arange(prod(shape), dtype=np.int64) * 7919 % 10007).reshape(shape)

    def exact(term: Term) -> Integers:
        rest = tuple(i for i, n in enumerate(names) if n not in term.attributes)
        return np.asarray(table.sum(axis=rest, dtype=np.int64))

    values = [b.term.answer(exact(b.term)) for b in strategy.blocks]
    total = float(table.sum())
    for t, term in enumerate(strategy.workload.terms):
        off = np.abs(strategy.answer(t, values) - term.answer(exact(term)))
        low, high = term.coefficient_bounds()
        greatest = np.maximum(np.abs(low), np.abs(high))
        if bool((off > BIAS * total * greatest).any()):
            raise PlanError(
                f"answers of group {term.name!r} are lost in rounding beside much larger queries "
                "or weights; scale the queries and weights alike, or ask for them by themselves"
            )


def _can_be_tried(strategy: Strategy, terms: list[Term]) -> bool:
    if len(terms) > TERMS or any(t.is_wide for t in terms):
        return False
    return strategy.workload.queries <= VALUES and sum(strategy.block_rows) <= VALUES
