# SPDX-License-Identifier: Apache-2.0
"""How a discovery spends its budget: which law publishes keys, and what each column gets of it.

All rules look at public numbers only: the budget, the number of columns, how many keys one person
may have, and the neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError
from sfumato.privacy.budget import Budget
from sfumato.privacy.gaussian import gaussian_mu_down
from sfumato.privacy.key_laws import KeyLaw, OptimalKeys, gaussian_keys, people_for
from sfumato.types import Neighbours

__all__ = [
    "discovery_share",
    "key_law",
    "key_laws",
    "taken_of",
]


def discovery_share(total: Budget, columns: int, needs_delta: bool) -> tuple[Budget, Budget]:
    """Return what a discovery takes of a budget for everything, and what is left to answer with.

    Of epsilon, c columns take c/(c + 4), and at most a half: the people that a key needs and the
    errors of answers both grow with one over their part, and answers are many. Of delta they take a
    half, if they need any: a key needs people by its logarithm only, and so do errors.

    Privacy: none is spent here; the two add up to the total.

    >>> discovery_share(Budget(epsilon=1, delta="1e-6"), 1, True)
    (Budget(epsilon = 0.2, delta = 5e-7), Budget(epsilon = 0.8, delta = 5e-7))
    """
    if total.epsilon is None or (needs_delta and not total.delta):
        raise PlanError(
            f"to discover values takes epsilon and delta of the budget, got {total.describe()}; "
            "give epsilon and delta"
        )
    epsilon = total.epsilon * min(Fraction(columns, columns + 4), Fraction(1, 2))
    delta = (total.delta or Fraction(0)) / 2 if needs_delta else Fraction(0)
    return taken_of(total, Budget(epsilon, delta))


def taken_of(total: Budget, part: Budget) -> tuple[Budget, Budget]:
    """Return a part of a total, and the rest; PlanError where nothing is left to answer with."""
    if total.epsilon is None or part.epsilon is None:
        raise PlanError(
            "a discovery and the answers share a budget of epsilon and delta; got "
            f"{total.describe()} and {part.describe()}"
        )
    epsilon = total.epsilon - part.epsilon
    delta = (total.delta or Fraction(0)) - (part.delta or Fraction(0))
    if epsilon <= 0 or delta < 0:
        raise PlanError(
            f"the discovery takes {part.describe()} of {total.describe()}, which leaves nothing to "
            "answer with; raise [budget], or lower [discovery]"
        )
    return part, Budget(epsilon, delta)


def key_law(
    number: int,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> KeyLaw:
    """Return the law that publishes the keys of each of ``number`` columns, all in one budget.

    Of the two laws it is the one that needs fewer people to publish a key every other time.

    Privacy: ``number`` times its cost is within (epsilon, delta): docs/proofs/keys.md, Theorem 5.
    Neighbours: those that are named, of one row or of a unit with up to ``unit.rows`` keys.
    """
    return key_laws(number, epsilon, delta, neighbours, unit)[0]


def key_laws(
    number: int,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> Sequence[KeyLaw]:
    """Return both laws where they can be drawn, the better first."""
    new = 1 if unit is None else unit.rows
    moved = 2 * new if neighbours == "replace-one" else new
    laws: list[KeyLaw] = []
    refused = ""
    half = delta / 2
    mu = Fraction(gaussian_mu_down(epsilon, half))
    try:
        optimal = OptimalKeys(epsilon / (number * moved), delta / (number * moved), moved)
        laws.append(_drawable(optimal))
    except PlanError as error:
        refused = str(error)
    if mu:
        try:
            gaussian = gaussian_keys(mu**2 / number, half / number, moved, new)
            laws.append(_drawable(gaussian))
        except PlanError as error:
            refused = refused or str(error)
    if not laws:
        raise PlanError(refused)
    return sorted(laws, key=lambda law: people_for(law, 0.5))


def _drawable(law: KeyLaw) -> KeyLaw:
    """The law, if it can be drawn; PlanError if not."""
    people_for(law, 0.5)
    return law
