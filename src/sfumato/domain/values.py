# SPDX-License-Identifier: Apache-2.0
"""The values of a numeric column themselves, for sums and means: no bins are needed.

A record with the clamped value ``x = lo + (hi - lo) t`` is spread over ``degree + 1`` cells with
the Bernstein weights of t: ``(1 - t, t)``, or ``((1 - t)^2, 2 t (1 - t), t^2)``. They are not
negative and add up to 1, so a record is an average of records that lie in one cell each, and moves
every linear measurement by at most as much as the worst of those: whatever holds for the neighbours
of ordinary tables holds for these (docs/proofs/values.md). The sum of x, and with degree 2 that of
x^2, is a linear function of these cells, exactly.

Weights are whole multiples of ``2^-UNIT_BITS`` that add up to 1 for every record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import (
    Attribute,
    Comparison,
    Integer,
    Numeric,
    Value,
    short_number,
)
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError

__all__ = [
    "UNIT_BITS",
    "Values",
    "base_of",
    "joined",
    "unit_bits",
    "valued",
    "with_values",
]


UNIT_BITS: Final = 50
"""Weights are multiples of 2^-50: about as fine as 64-bit floats tell values of one range apart."""


@dataclass(frozen=True)
class Values(Attribute):
    """The values of the column of ``of``, spread over ``degree + 1`` cells between its ends.

    Records without a number go where ``of`` sends them: dropped, or to the cells ``(other)`` and
    ``(missing)``, which have no number either.

    >>> Values.of_attribute(Numeric("income", (0, 1000, 5000))).labels
    ('share at 0', 'share at 5000')
    """

    of: Attribute
    degree: int = 1

    kind: ClassVar[str] = "values"

    @classmethod
    def of_attribute(cls, of: Attribute, degree: int = 1) -> Values:
        """The values of an attribute; WorkloadError where it has no range of numbers."""
        if not isinstance(of, Numeric | Integer):
            of.numbers()  # says what kinds have numbers
            raise WorkloadError(f"attribute {of.name!r} is a {of.kind}: its cells are its values")
        word = "values" if degree == 1 else "squares"
        return cls(f"{word} of {of.name}", of, degree, outside=of.outside, nulls=of.nulls,
                   unparsed=of.unparsed)  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.degree <= 2:
            raise self._fault(f"degree = {self.degree} is not 1 or 2")
        low, high = self.ends
        width = high - low
        if not (width > 0 and math.isfinite(width) and math.isfinite(2.0**UNIT_BITS / width)):
            raise WorkloadError(
                f"attribute {self.of.name!r}: sums and means need a range of numbers that floats "
                f"can tell apart, got {low!r} to {high!r}"
            )

    @property
    def column(self) -> str:
        """The column of the attribute."""
        return self.of.column

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The minimum and the maximum; what lies beyond is clamped, or outside."""
        if isinstance(self.of, Numeric):
            return self.of.edges[0], self.of.edges[-1]
        assert isinstance(self.of, Integer)  # noqa: S101  of_attribute
        return float(self.of.min), float(self.of.max)

    @property
    def value_count(self) -> int:
        """One more than the degree."""
        return self.degree + 1

    def value_label(self, code: int) -> Value:
        """The end of the range that the weight in cell ``code`` belongs to."""
        low, high = (short_number(end) for end in self.ends)
        if self.degree > 1 and code == 1:
            return f"share between {low} and {high}"
        return f"share at {high if code else low}"

    def numbers(self) -> npt.NDArray[np.float64]:
        """The coefficients of x."""
        return self.powers(1)

    def powers(self, power: int) -> npt.NDArray[np.float64]:
        """The coefficients of ``x^power`` over the cells, 0 for other and missing.

        The blossom of the power at the ends: ``lo, hi``; ``lo, (lo + hi)/2, hi``;
        ``lo^2, lo hi, hi^2``.
        """
        low, high = self.ends
        if not 0 <= power <= self.degree:
            raise WorkloadError(f"{self.name!r} has sums of powers up to {self.degree}")
        if power == 0:
            return self._with_no_number(np.ones(self.value_count))
        if power == 2:
            return self._with_no_number(np.array([low * low, low * high, high * high]))
        return self._with_no_number(np.linspace(low, high, self.value_count))

    @property
    def rounding(self) -> float:
        """How far the number of a record can be from its clamped value, at most.

        Half a step of the grid, and what floats add (docs/proofs/values.md).
        """
        low, high = self.ends
        return (high - low) * 2.0 ** (1 - UNIT_BITS)

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        raise WorkloadError(
            f"{self.name!r} cannot be compared with {constant!r} ({comparison}); compare "
            f"{self.of.name!r}, at the edges of its bins"
        )


def with_values(domain: Domain, name: str, degree: int = 1) -> tuple[Domain, Values]:
    """Return the domain with the values of an attribute, added if it has none, and these values."""
    values = Values.of_attribute(domain[name], degree)
    if values.name in domain:
        if domain[values.name] != values:
            raise WorkloadError(
                f"the sums of {name!r} need the name {values.name!r}, which another attribute of "
                "the domain has; rename that"
            )
        return domain, values
    return joined([domain, Domain([*domain.attributes, values])]), values


def base_of(domain: Domain) -> Domain:
    """Return the domain without values: the attributes of the schema."""
    if not valued(domain, domain.names):
        return domain
    return Domain(a for a in domain if not isinstance(a, Values))


def joined(domains: Iterable[Domain]) -> Domain:
    """Return the common base with the values of all domains, in the order of its attributes."""
    first, *others = domains
    base, extra = base_of(first), dict[str, Values]()
    for domain in (first, *others):
        if domain is not first and base_of(domain) != base:
            raise WorkloadError(
                f"workloads over different domains cannot be joined: {first!r} and {domain!r}"
            )
        extra |= {a.name: a for a in domain if isinstance(a, Values)}
    if not extra:
        return first
    order = sorted(extra.values(), key=lambda a: (base.index(a.of.name), a.degree))
    whole = Domain([*base, *order])
    return first if whole == first else whole


def valued(domain: Domain, names: Iterable[str]) -> tuple[Values, ...]:
    """Return the attributes among these that are values."""
    chosen = (domain[name] for name in names)
    return tuple(a for a in chosen if isinstance(a, Values))


def unit_bits(domain: Domain, names: Iterable[str]) -> int:
    """Return b: a table over these attributes is counted in multiples of 2^-b."""
    return UNIT_BITS if valued(domain, names) else 0
