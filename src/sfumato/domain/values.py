# SPDX-License-Identifier: Apache-2.0
"""The values of a numeric column themselves, for sums and means: no bins are needed.

A record with the clamped value ``x = lo + (hi - lo) t`` is spread over ``degree + 1`` cells with
the Bernstein weights of t: ``(1 - t, t)``, or ``((1 - t)^2, 2 t (1 - t), t^2)``. They are not
negative and add up to 1, so a record is an average of records that lie in one cell each, and moves
every linear measurement by at most as much as the worst of those: whatever holds for the neighbours
of ordinary tables holds for these (docs/proofs/values.md). The sum of x, and with degree 2 that of
x^2, is a linear function of these cells, exactly.

`Moments` has the cells for second moments of one column, for products of several, and for all of
these together: splines of degree 2 whose pieces keep close to the squares, and products of the
weights of several columns.

Weights are whole multiples of ``2^-UNIT_BITS`` that add up to 1 for every record.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
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
from sfumato.errors import WorkloadError

__all__ = [
    "UNIT_BITS",
    "Fractional",
    "Moments",
    "Values",
]


UNIT_BITS: Final = 50
"""Weights are multiples of 2^-50: about as fine as 64-bit floats tell values of one range apart."""


@dataclass(frozen=True)
class Fractional(Attribute):
    """Cells over which a record is spread, with weights that add up to 1."""

    @property
    @abstractmethod
    def sources(self) -> tuple[Values, ...]:
        """The values that its weights are made from."""


@dataclass(frozen=True)
class Values(Fractional):
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

    @property
    def sources(self) -> tuple[Values, ...]:
        """Itself."""
        return (self,)

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


_CONTROL: Final = {
    (1, 1): ((-1.0, 1.0), None),
    (2, 1): ((-1.0, 0.0, 1.0), (1.0, -1.0, 1.0)),
    (2, 2): ((-1.0, -0.5, 0.5, 1.0), (1.0, 0.0, 0.0, 1.0)),
}
"""By degree and pieces, what a record in one cell alone adds to the sums of u and of u^2.

They are the blossoms of both at neighbouring knots: -1 and 1, and with two pieces 0 between them.
"""


@dataclass(frozen=True)
class Moments(Fractional):
    """Cells for products of powers of columns, up to ``degree`` each, of values in [-1, 1].

    With ``u = (x - middle) / half``, a record is spread over ``degree + pieces`` cells of each
    column, the splines of that degree, and over the products of these weights for several columns.
    The sums of all products of powers of u are linear functions of the cells. Records that lack a
    number in one of the columns are in one cell, ``(missing)``, or dropped by their attribute.

    >>> Moments.of_attributes([Numeric("x", (0, 10)), Numeric("y", (0, 1))]).value_count
    4
    """

    of: tuple[Attribute, ...]
    degree: int = 1
    pieces: int = 1

    kind: ClassVar[str] = "moments"

    @classmethod
    def of_attributes(cls, of: Sequence[Attribute], degree: int = 1) -> Moments:
        """The moments of attributes; WorkloadError where one has no range of numbers.

        A knot in the middle is worth its cell for one column, where all noise is in few cells.
        """
        sources = [Values.of_attribute(each) for each in of]
        names = " x ".join(each.name for each in of)
        what = "moments" if degree > 1 else "products"
        has_gaps = any(v.size > v.value_count for v in sources)
        return cls(
            f"{what} of {names}",
            tuple(of),
            degree,
            2 if degree > 1 and len(of) == 1 else 1,
            outside="clamp",
            nulls="missing" if has_gaps else "first",
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.degree, self.pieces) not in _CONTROL:
            raise self._fault(f"degree = {self.degree} is not 1 or 2")

    @property
    def column(self) -> str:
        """The first of its columns."""
        return self.of[0].column

    @property
    def columns(self) -> tuple[str, ...]:
        """All its columns."""
        return tuple(each.column for each in self.of)

    @cached_property
    def sources(self) -> tuple[Values, ...]:
        """The values of its columns."""
        return tuple(Values.of_attribute(each) for each in self.of)

    @property
    def column_cells(self) -> int:
        """The number of cells of each column."""
        return self.degree + self.pieces

    @property
    def value_count(self) -> int:
        """The product of the cells of all columns."""
        return int(self.column_cells ** len(self.of))

    def value_label(self, code: int) -> Value:
        """The places of the cell in the ranges of its columns, 0 for the lower end."""
        places = np.unravel_index(code, (self.column_cells,) * len(self.of))
        return f"share {', '.join(str(int(k)) for k in places)}"

    def coefficients(self, powers: Sequence[int]) -> npt.NDArray[np.float64]:
        """The coefficients of ``u_1^powers[0] u_2^powers[1] ...`` over the cells.

        0 for missing.

        >>> Moments.of_attributes([Numeric("x", (0, 10))], 2).coefficients([2])
        array([1., 0., 0., 1.])
        """
        if len(powers) != len(self.of) or not all(0 <= k <= self.degree for k in powers):
            raise WorkloadError(
                f"{self.name!r} has products of powers up to {self.degree} of {len(self.of)} "
                f"columns, got powers {list(powers)}"
            )
        rows = [self._control[k] for k in powers]
        cells = reduce(lambda a, b: np.multiply.outer(a, b).reshape(-1), rows)
        return self._with_no_number(cells)

    @cached_property
    def _control(self) -> tuple[npt.NDArray[np.float64], ...]:
        first, second = _CONTROL[self.degree, self.pieces]
        rows = [(1.0,) * self.column_cells, first, *([] if second is None else [second])]
        return tuple(np.array(row) for row in rows)

    @property
    def rounding(self) -> float:
        """How far a product of powers of u can be from that of the clamped values, at most.

        Each cut of the units of a record is off by at most two of them for each column, and no
        coefficient exceeds 1 (docs/proofs/values.md, Theorem 2).
        """
        return 4.0 * len(self.of) * self.value_count * 2.0**-UNIT_BITS

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        raise WorkloadError(
            f"{self.name!r} cannot be compared with {constant!r} ({comparison}); compare its "
            "columns, at the edges of their bins"
        )
