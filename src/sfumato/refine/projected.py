# SPDX-License-Identifier: Apache-2.0
"""What a projection gives: answers, and what is certified of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sfumato.refine.fit import Names
from sfumato.workload.queries import Array, Integers

__all__ = ["Projected"]

BODIES = {
    "exact": "the nearest that data can have",
    "local": "the nearest locally consistent ones",
    "semidefinite": "the nearest that moments can have",
}


@dataclass(frozen=True, eq=False)
class Projected:
    """Answers that some histogram has, and how near to the projection they are certified to be.

    ``value`` is ``1/2 |answers - given|_W^2``; it is at most ``gap`` above the least one, and
    the answers are within ``distance_bound`` of the projection in the same norm. If the objective
    is ``"max"`` the norm is the largest ``sqrt(weight) |answer - given|``, and the value is it.
    ``certified_by`` says what proves the gap.

    ``cells`` are the codes of ``attributes``, one row for each cell that carries weight; where no
    query tells cells apart, one stands for all. A projection ``onto`` a relaxation has no cells:
    ``tables`` then holds its table of every asked set of attributes.
    """

    answers: Array
    groups: tuple[Array, ...]
    value: float
    gap: float
    distance_bound: float
    total: float
    attributes: tuple[str, ...]
    cells: Integers
    weights: Array
    method: str
    converged: bool
    objective: str = "rmse"
    onto: str = "exact"
    certified_by: str = "slopes of all cells"
    tables: Mapping[Names, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "" if self.converged else ", not converged"
        moved = self.value if self.objective == "max" else (2 * self.value) ** 0.5
        what = f"{len(self.weights):,} cells" if self.onto == "exact" else "tables"
        share = f"{self.gap / self.value:.2g} of the value" if self.value > 0 else f"{self.gap:.2g}"
        return (
            f"Projected({len(self.answers):,} answers of {self.total:,.6g} records on {what} of "
            f"{len(self.attributes)} attributes, moved by {moved:.4g}, within "
            f"{self.distance_bound:.2g} of {BODIES[self.onto]}; gap {share}, proved by "
            f"{self.certified_by}; by {self.method}{state})"
        )
