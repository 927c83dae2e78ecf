# SPDX-License-Identifier: Apache-2.0
"""How the kind of a column without types is learnt: the search that `sf.describe` runs for it.

Every value is in one of six classes (`sfumato.domain.open_kinds`); their sizes get Laplace noise,
and the kind is a function of what comes out and of the name of the column. Proof:
docs/proofs/kinds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.domain.discovery import Findings, OpenAttribute
from sfumato.domain.draft import Kind
from sfumato.domain.open_kinds import CLASSES, OpenKind, ValueClass, voted
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.planning.adaptive_costs import moves_of
from sfumato.planning.public_draws import Draws
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import laplace_quantile
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import WordSource
from sfumato.run.run_limits import LIMITS
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from sfumato.types import Integers
    from sfumato.vault.sensitive import Sensitive
    from sfumato.vault.tables import Table

__all__ = ["KindSearch", "kind_searches"]

_SIZES: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)
_PLAIN: Final[tuple[tuple[ValueClass, Kind], ...]] = (
    ("whole", "integer"),
    ("fraction", "numeric"),
    ("date", "datetime"),
    ("truth", "boolean"),
    ("text", "category"),
)
"""Columns of one class, and what they are."""
_ODD: Final[dict[Kind, tuple[ValueClass, ...]]] = {
    "integer": ("fraction", "date", "truth", "text"),
    "numeric": ("date", "truth", "text"),
    "datetime": ("whole", "bit", "fraction", "truth", "text"),
    "boolean": ("whole", "fraction", "date", "text"),
}
"""Classes whose values a column of the kind cannot hold; a category holds all."""


@dataclass(frozen=True)
class KindSearch:
    """The noisy sizes of the classes of a column."""

    attribute: OpenKind
    law: NoiseLaw
    moves: int
    unit: PrivacyUnit | None

    @property
    def cost(self) -> Cost:
        """That of Laplace noise on a histogram.

        Privacy: docs/proofs/kinds.md, Theorem 1: a record is in one class at most, so that
        neighbours differ by ``moves`` in L1.
        """
        return Cost.pure(self.moves / self.law.scale, steps=self.moves)

    def request(self) -> dict[str, object]:
        """The column and the noise."""
        noise = {"noise": [self.law.kind, str(self.law.scale)], "moves": self.moves}
        return {**self.attribute.request(), **noise}

    def forecast(self) -> dict[str, object]:
        """How large the noise is, and how many records are enough."""
        return {
            "columns": list(self.attribute.columns),
            "law": "kinds",
            "epsilon": float(self.cost.pure_epsilon),
            "standard_error": laplace_quantile(self.law.scale, Fraction(2, 3)),
            "records_for_97": self.sure_records,
        }

    @cached_property
    def sure_records(self) -> int:
        """How many records of one class are enough to name their kind in 97% of votes.

        By simulation with noise of the same scale, for the worst of five plain columns of a name
        that says nothing; one of a few multiples of the scale.
        """
        scale = float(self.law.scale)
        runs = LIMITS.vote_simulations
        noise = scale * Draws("kinds").laplaces(runs * len(CLASSES)).reshape(runs, len(CLASSES))
        for size in _SIZES:
            if all(_share_right(noise, size * scale, scale, *plain) >= 0.97 for plain in _PLAIN):
                return int(size * scale) + 1
        return int(_SIZES[-1] * scale) + 1

    def in_words(self) -> str:
        """What is asked, and how many records are enough."""
        return (
            f"{self.attribute.name}: whether its texts are whole numbers, numbers, dates, yes or "
            f"no, or other texts; right in 97% of runs with {self.sure_records:,} values of a kind"
        )

    def count(self, table: Table) -> Sensitive[Integers]:
        """The exact sizes of the classes, in the vault."""
        from sfumato.vault.mechanisms.searches import read_classes

        return read_classes(table, self.attribute, self.unit)

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The noisy sizes, by the names of the classes."""
        from sfumato.vault.mechanisms.searches import noisy_classes
        from sfumato.vault.sensitive import Sensitive

        assert isinstance(exact, Sensitive)  # noqa: S101  of count
        sizes = noisy_classes(exact, self.law, random)
        return dict(zip(CLASSES, sizes, strict=True))

    def kind(self, findings: Findings) -> Kind:
        """What the column is, by the vote and its name: arithmetic on what was published."""
        return voted(self.attribute.name, sizes_of(findings), float(self.law.scale))

    def odd_values(self, findings: Findings) -> int:
        """About how many values are none of the kind, where that is more than noise; else 0."""
        sizes, kind = sizes_of(findings), self.kind(findings)
        odd = sum(sizes[name] for name in _ODD.get(kind, ()))
        scale = float(self.law.scale)
        return odd if odd > LIMITS.odd_noise * scale else 0

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """One row for each class with its noisy size and an interval."""
        half = laplace_quantile(self.law.scale, Fraction(level))
        del most
        return [
            {
                "column": self.attribute.name,
                "key": name,
                "count": size,
                "standard_error": float(self.law.scale) * 2**0.5,
                "low": max(size - half, 0),
                "high": max(size + half, 0),
            }
            for name, size in sizes_of(findings).items()
        ]


def sizes_of(findings: Findings) -> Mapping[ValueClass, int]:
    """The noisy sizes of all classes."""
    return {name: int(str(findings[name])) for name in CLASSES}


def _share_right(
    noise: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    records: float,
    scale: float,
    plain: ValueClass,
    kind: Kind,
) -> float:
    exact = np.array([records * (name == plain) for name in CLASSES])
    votes = [voted("", dict(zip(CLASSES, row, strict=True)), scale) for row in noise + exact]
    return sum(vote == kind for vote in votes) / len(votes)


def kind_searches(
    attributes: Sequence[OpenAttribute],
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> list[KindSearch]:
    """A search for each column, all of them together within epsilon; no delta is needed.

    Privacy: docs/proofs/kinds.md, Theorem 1, and basic composition over the columns.
    Neighbours: those that are named, of one row or of a unit with up to ``unit.rows`` rows.
    """
    del delta
    moves = moves_of(neighbours, unit).l1
    law = NoiseLaw("laplace", moves * len(attributes) / epsilon)
    return [KindSearch(a, law, moves, unit) for a in attributes if isinstance(a, OpenKind)]
