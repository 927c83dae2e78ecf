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
from sfumato.privacy.gaussian import gaussian_mu_down
from sfumato.privacy.key_laws import KeyLaw, OptimalKeys, gaussian_keys, people_for
from sfumato.types import Neighbours

__all__ = [
    "key_law",
    "key_laws",
]


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
