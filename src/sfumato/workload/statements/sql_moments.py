# SPDX-License-Identifier: Apache-2.0
"""Aggregates of values in SQL beyond plain sums: variances, covariances, sums of arithmetic.

`second_moment` reads ``VARIANCE``, ``STDDEV``, ``COVAR_POP``, ``CORR`` and their kin. `polynomial`
reads what ``SUM`` and ``AVG`` may hold besides a column: sums, differences and products of columns
and constants, of degree 2 at most. Both become linear queries over the cells of values
(`domain/values.py`). As in SQL, a record counts where all its columns have a number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlglot import exp

from sfumato.domain.domain import Domain, with_moments, with_values
from sfumato.domain.values import UNIT_BITS, Fractional
from sfumato.errors import SqlError, WorkloadError
from sfumato.types import Array
from sfumato.workload.build import MomentsOfValues, moments_of
from sfumato.workload.sql_text import Names, as_written, constant, only, without_brackets
from sfumato.workload.workload import Ratio, SecondMoment, SecondMomentKind
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "MeanOfPolynomial",
    "Polynomial",
    "SqlMoment",
    "polynomial",
    "second_moment",
]

# By the class of sqlglot: the statistic, and by how much its divisor is less than the number.
_KINDS: Final[dict[type[exp.Expression], tuple[SecondMomentKind, int]]] = {
    exp.Variance: ("variance", 1),
    exp.VariancePop: ("variance", 0),
    exp.Stddev: ("standard_deviation", 1),
    exp.StddevSamp: ("standard_deviation", 1),
    exp.StddevPop: ("standard_deviation", 0),
    exp.CovarSamp: ("covariance", 1),
    exp.CovarPop: ("covariance", 0),
    exp.Corr: ("correlation", 0),
}


@dataclass(frozen=True, eq=False, slots=True)
class SqlMoment:
    """A variance and so on, as queries over moments and the statistic that follows from them."""

    parts: MomentsOfValues
    statistic: SecondMoment


def second_moment(node: exp.Expression, names: Names) -> SqlMoment | None:
    """The statistic that an aggregate is; None where it is none of these."""
    if type(node) not in _KINDS:
        return None
    kind, lost = _KINDS[type(node)]
    is_pair = kind in ("covariance", "correlation")
    only(node, "this", *(("expression",) if is_pair else ()))
    of = [node.this, *([node.expression] if is_pair else [])]
    columns = [_column(each, node, names) for each in of]
    if len(set(columns)) < len(columns):
        raise SqlError(f"{as_written(node)} is of two different columns; write VAR_POP for one")
    degree = 1 if kind == "covariance" else 2
    try:
        parts = moments_of(names.domain, columns, degree)
    except WorkloadError as error:
        raise SqlError(f"{as_written(node)}: {error}") from None
    a, b = columns[0], columns[-1]
    return SqlMoment(parts, parts.statistic(kind, a, b, lost))


def _column(node: exp.Expression, whole: exp.Expression, names: Names) -> str:
    column = names.resolve(without_brackets(node))
    if column.level is not None:
        raise SqlError(f"{as_written(whole)}: {column} is a level of groups and has no numbers")
    return column.attribute.name


Powers = tuple[str, ...]
"""The columns of a product, each as often as it is a factor."""


@dataclass(frozen=True, eq=False, slots=True)
class Polynomial:
    """A polynomial of columns as coefficients over the cells of their values."""

    domain: Domain
    cells: Fractional
    coefficients: Array
    hidden: float
    written: str

    @property
    def counted(self) -> Array:
        """The coefficients of the number of records that have all its numbers."""
        return np.where(np.arange(self.cells.size) < self.cells.value_count, 1.0, 0.0)

    def mean(self) -> MeanOfPolynomial:
        """Its mean, around the middle of what it can be."""
        own = self.coefficients[: self.cells.value_count]
        middle, half = float(own.max() + own.min()) / 2, float(own.max() - own.min()) / 2
        return MeanOfPolynomial(self, middle, half or 1.0)


@dataclass(frozen=True, eq=False, slots=True)
class MeanOfPolynomial:
    """The mean of a polynomial as two queries: ``middle + half * (centred sum) / (number)``."""

    of: Polynomial
    middle: float
    half: float

    @property
    def centred(self) -> Array:
        """The coefficients of what it is over half its range, around the middle."""
        return (self.of.coefficients - self.middle * self.of.counted) / self.half

    @property
    def text(self) -> str:
        """What the centred sum is of."""
        return f"({self.of.written} - {self.middle:.12g}) / {self.half:.12g}"

    def ratio(self, name: str, numerator: int) -> Ratio:
        """The ratio that is the mean: the number of records is the term after the sum."""
        return Ratio(name, numerator, numerator + 1, self.half, self.middle, self.of.hidden)


def polynomial(node: exp.Expression, names: Names) -> Polynomial | None:
    """The polynomial that is summed; None for a plain column or constant, or no arithmetic."""
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg | exp.Pow):
        return None
    products = _products(node, node, names)
    columns = sorted({name for powers in products for name in powers}, key=names.domain.index)
    if not columns:
        return None
    try:
        return _over_cells(names.domain, products, columns, as_written(node))
    except WorkloadError as error:
        raise SqlError(f"{as_written(node)}: {error}") from None


def _over_cells(
    domain: Domain, products: Mapping[Powers, float], columns: list[str], written: str
) -> Polynomial:
    degree = max(powers.count(name) for powers in products for name in columns)
    if len(columns) == 1:
        domain, values = with_values(domain, columns[0], max(1, degree))
        row = sum(
            (c * values.powers(len(powers)) for powers, c in products.items()),
            np.zeros(values.size),
        )
        hidden = float(np.abs(row).max()) * 2.0 ** (4 - UNIT_BITS)
        return Polynomial(domain, values, row, hidden, written)
    if len(columns) > LIMITS.moment_columns:
        raise WorkloadError(f"sums are of at most {LIMITS.moment_columns} columns together")
    domain, moments = with_moments(domain, columns, degree)
    ends = {v.of.name: v.ends for v in moments.sources}
    row, reach = np.zeros(moments.size), 0.0
    for powers, c in products.items():
        factors = [_moved(ends[name], columns.index(name)) for name in powers]
        for places, number in _expanded(factors).items():
            row += c * number * moments.coefficients([places.count(i) for i in range(len(columns))])
            reach += abs(c * number)
    return Polynomial(domain, moments, row, reach * moments.rounding, written)


def _moved(ends: tuple[float, float], place: int) -> dict[tuple[int, ...], float]:
    """``x = middle + half u``."""
    low, high = ends
    return {(): low / 2 + high / 2, (place,): high / 2 - low / 2}


def _expanded(factors: list[dict[tuple[int, ...], float]]) -> dict[tuple[int, ...], float]:
    out: dict[tuple[int, ...], float] = {(): 1.0}
    for factor in factors:
        wider: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for a, x in out.items():
            for b, y in factor.items():
                wider[tuple(sorted(a + b))] += x * y
        out = dict(wider)
    return out


def _products(node: exp.Expression, whole: exp.Expression, names: Names) -> dict[Powers, float]:
    """The coefficient of every product of columns."""
    node = without_brackets(node)
    if isinstance(node, exp.Column):
        return {(_column(node, whole, names),): 1.0}
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        return _times(_products(node.this, whole, names), {(): -1.0}, whole)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        left = _products(node.this, whole, names)
        right = _products(node.expression, whole, names)
        if isinstance(node, exp.Mul):
            return _times(left, right, whole)
        if isinstance(node, exp.Div):
            by = right.get((), 0.0) if set(right) == {()} else 0.0
            if not by:
                raise SqlError(f"{as_written(whole)} divides by what is no constant, or by 0")
            return _times(left, {(): 1 / by}, whole)
        sign = 1.0 if isinstance(node, exp.Add) else -1.0
        sums = defaultdict(float, left)
        for powers, c in right.items():
            sums[powers] += sign * c
        return dict(sums)
    if isinstance(node, exp.Pow):
        power = constant(node.expression)
        if power not in (1, 2):
            raise SqlError(f"{as_written(whole)}: powers are 1 or 2, got {power!r}")
        base = _products(node.this, whole, names)
        return base if power == 1 else _times(base, base, whole)
    number = constant(node)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise SqlError(f"{as_written(whole)} sums what is not a number")
    return {(): float(number)}


def _times(
    left: Mapping[Powers, float], right: Mapping[Powers, float], whole: exp.Expression
) -> dict[Powers, float]:
    out: defaultdict[Powers, float] = defaultdict(float)
    for a, x in left.items():
        for b, y in right.items():
            out[tuple(sorted(a + b))] += x * y
    if any(len(powers) > 2 for powers, c in out.items() if c):
        raise SqlError(
            f"{as_written(whole)} multiplies more than two columns; sums are of products of two at "
            "most"
        )
    return dict(out)
