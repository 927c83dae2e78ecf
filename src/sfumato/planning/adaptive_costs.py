# SPDX-License-Identifier: Apache-2.0
"""The costs of adaptive releases: what each step may cost, and which tables may be chosen.

A release that decides what to measure next by what it has measured spends one currency: mu^2 of
Gaussian differential privacy, or epsilon where the budget is pure. The total is fixed, and debited,
before the first step; every step states its cost from public numbers before it is taken, and
`Spending` refuses a step that the total does not cover. Costs may depend on earlier answers: this
is a privacy filter (docs/proofs/accounting.md, Lemma 4; docs/proofs/adaptive.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import ceil, floor, log2
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.gaussian import sqrt_up
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.selection import range_of_mu_squared_down, selection_cost
from sfumato.types import Integers, Names, Neighbours, Noise
from sfumato.workload.workload import Workload, answer_bits, spread

__all__ = [
    "FINEST_GRID_BITS",
    "Moves",
    "Spending",
    "answer_moves",
    "asked_domain",
    "candidate_sets",
    "joint_moves",
    "moves_of",
]

# The proof that measurements are exact relies on these.
FINEST_GRID_BITS: Final = 18  # counts up to 2^44 in steps of 2^-18 fit a 64-bit integer
MAXIMUM_UNITS: Final = 2**40  # the maximum scale that is drawn, in steps


@dataclass(frozen=True, slots=True)
class Moves:
    """How far neighbours move a table of counts: in L1, and squared in L2."""

    l1: int
    l2_squared: int


def moves_of(neighbours: Neighbours, unit: PrivacyUnit | None = None) -> Moves:
    """A row falls in one cell of a table; a replaced one leaves a cell and enters another.

    >>> moves_of("replace-one")
    Moves(l1=2, l2_squared=2)
    """
    rows = 1 if unit is None else unit.rows
    ways = 1 if neighbours == "add-remove" else 2
    return Moves(ways * rows, ways * rows * rows)


def answer_moves(
    workload: Workload, neighbours: Neighbours, unit: PrivacyUnit | None = None
) -> Integers:
    """How far one person moves each answer, in steps; at least one step.

    A record moves an answer by its coefficient; a replaced one by the difference of two, or by
    one if the other falls in no cell.
    """
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    moves = []
    for term in workload.terms:
        low, high = (np.asarray(b, dtype=np.float64) for b in term.coefficient_bounds())
        far = np.maximum(np.abs(low), np.abs(high))
        if neighbours == "replace-one":
            far = np.maximum(far, high - low)
        moves.append(np.maximum(np.ceil(np.ldexp(far, bits)), 1).astype(np.int64) * rows)
    return np.concatenate(moves)


def joint_moves(
    workload: Workload,
    queries: Sequence[int],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
) -> Moves:
    """How far one person moves the answers of some queries together, in steps, or a bound on it.

    A record moves them by a column of their coefficients c; a replaced one by a difference of two,
    ``|c - c'|^2 <= |c|^2 + |c'|^2`` where none is negative, else at most twice as far as one.
    """
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    sums, squares = (np.zeros(workload.domain.shape, dtype=np.int64) for _ in range(2))
    start, is_positive = 0, True
    for term in workload.terms:
        inside = [q - start for q in queries if start <= q < start + term.rows]
        start += term.rows
        one, two = (np.zeros(term.shape, dtype=np.int64) for _ in range(2))
        for query in inside:
            unit_vector = np.zeros(term.rows)
            unit_vector[query] = 1.0
            exact = np.asarray(term.adjoint(unit_vector), dtype=np.float64).reshape(term.shape)
            is_positive &= bool((exact >= 0).all())
            size = np.ceil(np.ldexp(np.abs(exact), bits)).astype(np.int64)
            one, two = one + size, two + size * size
        if inside:
            sums += spread(one, workload.domain, term.attributes)
            squares += spread(two, workload.domain, term.attributes)
    ways = 1 if neighbours == "add-remove" else 2
    squared = ways if is_positive else ways * ways
    far, square = max(1, int(sums.max())), max(1, int(squares.max()))
    return Moves(ways * rows * far, squared * rows * rows * square)


class Spending:
    """The amount that a release may spend, and what it has spent; mu^2 or a pure epsilon.

    >>> purse = Spending.of(Budget(mu=1))
    >>> law = purse.noise(Fraction(1, 4), Moves(1, 1))
    >>> law.scale >= 2 and purse.cost_of_noise(law, Moves(1, 1)) <= Fraction(1, 4)
    True
    """

    def __init__(self, law: Noise, total: Fraction) -> None:
        if not total > 0:
            raise PlanError("the budget leaves nothing to spend; use a larger one")
        self.law, self.total, self.spent = law, total, Fraction(0)

    @classmethod
    def of(cls, budget: Budget) -> Spending:
        """Everything that a budget allows: Gaussian noise unless it is pure."""
        if budget.is_pure:
            return cls("laplace", budget.pure_epsilon)
        return cls("gaussian", Fraction(budget.gaussian_mu or 0.0) ** 2)

    @property
    def cost(self) -> Cost:
        """The cost of everything together, debited before the first step."""
        return Cost.gaussian(self.total) if self.law == "gaussian" else Cost.pure(self.total)

    @property
    def left(self) -> Fraction:
        """What is not yet spent."""
        return self.total - self.spent

    def take(self, cost: Fraction) -> None:
        """Spend a step's cost before the step; refused if the total does not cover it.

        Privacy: docs/proofs/adaptive.md, Theorem 1.
        """
        if not 0 < cost <= self.left:
            raise PlanError("a step would spend more than is left; please report this")
        self.spent += cost

    def noise(
        self, amount: Fraction, moves: Moves, most_bits: int = FINEST_GRID_BITS
    ) -> BlockNoise:
        """The least noise, on a grid of at most so many bits, that costs at most ``amount``."""
        if self.law == "gaussian":
            scale = Fraction(sqrt_up(moves.l2_squared / amount))
        else:
            scale = Fraction(moves.l1) / amount
        bits = min(max(LIMITS.adaptive_scale_bits - floor(log2(scale)), 0), most_bits)
        units = max(ceil(scale * 2**bits), 1)
        if units > MAXIMUM_UNITS:
            raise PlanError(
                f"a noise scale of {float(scale):.3g} counts is beyond what can be drawn; use a "
                "larger budget or fewer rounds"
            )
        return BlockNoise(self.law, units, bits)

    def cost_of_noise(self, law: BlockNoise, moves: Moves) -> Fraction:
        """What measuring a table with this noise costs, exactly."""
        scale = Fraction(law.units, 2**law.grid_bits)
        if self.law == "gaussian":
            return Fraction(moves.l2_squared) / scale**2
        return Fraction(moves.l1) / scale

    def rate(self, amount: Fraction, moved: Fraction | int) -> Fraction:
        """The largest rate of a choice that costs at most ``amount``; scores move by ``moved``."""
        reach = range_of_mu_squared_down(amount) if self.law == "gaussian" else amount
        return reach / (2 * Fraction(moved))

    def cost_of_choice(self, rate: Fraction, moved: Fraction | int) -> Fraction:
        """What a choice costs: by bounded range (exponential mechanism), or its pure epsilon."""
        reach = 2 * rate * Fraction(moved)
        return selection_cost(reach).mu_squared if self.law == "gaussian" else reach


# Which tables an adaptive release may measure for a workload, and how much each of them matters.
#
# All pairs of attributes within an asked set, and the asked sets of three and more while their
# tables are small: the estimate is kept on rows, and a table with more cells than rows can fill
# teaches it noise. A set matters by how many attributes it shares with every asked one (McKenna et
# al. 2022, "AIM"). Public: no data is seen.


def asked_domain(workload: Workload) -> Domain:
    """The attributes that some query looks at; the first one if none does."""
    used = {name for term in workload.terms for name in term.attributes}
    attributes = [a for a in workload.domain if a.name in used]
    return Domain(attributes or [workload.domain.attributes[0]])


def candidate_sets(
    workload: Workload,
    most_cells: int = LIMITS.candidate_cells,
    most_sets: int = LIMITS.candidate_sets,
) -> dict[Names, float]:
    """Sets of attributes with how much they matter; asked ones before others of the same size.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"a": 2, "b": 3, "c": 4})
    >>> candidate_sets(sf.marginals(domain, 2))
    {('a', 'b'): 4.0, ('a', 'c'): 4.0, ('b', 'c'): 4.0}
    """
    weights: dict[Names, float] = {}
    for term in workload.terms:
        weights[term.attributes] = weights.get(term.attributes, 0.0) + term.weight
    domain = workload.domain
    candidates: dict[Names, None] = {}
    for names in weights:
        candidates |= dict.fromkeys(combinations(names, 2))
        if len(names) > 2 and domain.cells(names) <= LIMITS.wide_set_cells:
            candidates[names] = None
    ranked = sorted(candidates, key=lambda s: (len(s), s not in weights, domain.cells(s)))
    importance: dict[Names, float] = {}
    room = most_cells
    for names in ranked:
        cells = domain.cells(names)
        if cells <= room and len(importance) < most_sets:
            room -= cells
            mine = set(names)
            importance[names] = sum(w * len(mine & set(other)) for other, w in weights.items())
    return {
        names: importance[names]
        for names in sorted(importance, key=lambda s: [domain.index(n) for n in s])
    }
