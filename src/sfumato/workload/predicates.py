# SPDX-License-Identifier: Apache-2.0
"""Boolean expressions over the cells of a domain.

The leaves say "this attribute is in one of these cells"; everything else is and, or, not. This
is the only form in which a condition reaches the vault: nothing that a person typed is ever
passed through to an engine.

    age = sf.attribute(domain, "age")
    condition = (age >= 25) & (age < 45) & ~(sf.attribute(domain, "sex") == "Male")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.domain import Attribute, Domain
from sfumato.domain.attributes import Value
from sfumato.errors import WorkloadError

__all__ = ["And", "Attr", "Condition", "Everything", "In", "Not", "Or", "attribute", "indicator"]

Mask = npt.NDArray[np.bool_]


class Condition:
    """A boolean expression over cells; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: Condition) -> Condition:
        return And((self, _checked(other)))

    def __or__(self, other: Condition) -> Condition:
        return Or((self, _checked(other)))

    def __invert__(self) -> Condition:
        return Not(self)

    def __bool__(self) -> bool:
        raise WorkloadError("a condition has no truth value; combine conditions with &, | and ~")

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes it looks at."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class Everything(Condition):
    """True for every record."""

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True, slots=True)
class In(Condition):
    """True when the attribute is in one of the listed cells."""

    attribute: str
    codes: tuple[int, ...]
    text: str = ""

    @property
    def attributes(self) -> frozenset[str]:
        """The one attribute."""
        return frozenset((self.attribute,))

    def __str__(self) -> str:
        return self.text or f"{self.attribute} in cells {list(self.codes)}"


@dataclass(frozen=True, slots=True)
class And(Condition):
    """True when all parts are."""

    parts: tuple[Condition, ...]

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the parts."""
        return frozenset().union(*(p.attributes for p in self.parts))

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """True when some part is."""

    parts: tuple[Condition, ...]

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the parts."""
        return frozenset().union(*(p.attributes for p in self.parts))

    def __str__(self) -> str:
        return " or ".join(f"({p})" if isinstance(p, And) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True when the part is not: the complement in cells, so it holds for missing values too."""

    part: Condition

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the part."""
        return self.part.attributes

    def __str__(self) -> str:
        return f"not ({self.part})"


class Attr:
    """An attribute to compare: ``attr >= 25``, ``attr == "Male"``, ``attr.isin([...])``."""

    __slots__ = ("_attribute",)

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute

    def _where(self, cells: Mask, text: str) -> Condition:
        codes = tuple(int(c) for c in np.flatnonzero(cells))
        return In(self._attribute.name, codes, f"{self._attribute.name} {text}")

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._where(self._attribute.select("=", _constant(value)), f"= {value}")

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._where(self._attribute.select("!=", _constant(value)), f"!= {value}")

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, value: Value) -> Condition:
        return self._where(self._attribute.select("<", value), f"< {value}")

    def __le__(self, value: Value) -> Condition:
        return self._where(self._attribute.select("<=", value), f"<= {value}")

    def __gt__(self, value: Value) -> Condition:
        return self._where(self._attribute.select(">", value), f"> {value}")

    def __ge__(self, value: Value) -> Condition:
        return self._where(self._attribute.select(">=", value), f">= {value}")

    def isin(self, values: Iterable[Value]) -> Condition:
        """True for any of the values."""
        listed = list(values)
        if not listed:
            raise WorkloadError(f"attribute {self._attribute.name!r}: the list of values is empty")
        cells = np.any([self._attribute.select("=", v) for v in listed], axis=0)
        return self._where(cells, f"in ({', '.join(map(str, listed))})")

    def between(self, low: Value, high: Value) -> Condition:
        """True from ``low`` to ``high``, both included."""
        cells = self._attribute.select(">=", low) & self._attribute.select("<=", high)
        return self._where(cells, f"between {low} and {high}")

    def in_group(self, level: str, group: str) -> Condition:
        """True for the values of one group of a level."""
        found = self._attribute.level(level)
        if group not in found.groups:
            raise WorkloadError(
                f"level {level!r} of {self._attribute.name!r} has no group {group!r}; it has: "
                f"{', '.join(found.groups)}"
            )
        wanted = found.groups.index(group)
        codes = tuple(c for c, g in enumerate(found.group_of) if g == wanted)
        return In(self._attribute.name, codes, f"{self._attribute.name}.{level} = {group}")

    @property
    def is_missing(self) -> Condition:
        """True for nulls (an empty set where the schema drops them)."""
        code = self._attribute.missing_code
        codes = () if code is None else (code,)
        return In(self._attribute.name, codes, f"{self._attribute.name} is missing")


def attribute(domain: Domain, name: str) -> Attr:
    """The attribute of this name, ready to be compared."""
    return Attr(domain[name])


def indicator(condition: Condition, domain: Domain, names: tuple[str, ...]) -> Mask:
    """The condition as an array of truth values over the cells of the named attributes."""
    shape = tuple(domain[n].size for n in names)
    if isinstance(condition, Everything):
        return np.ones(shape, dtype=np.bool_)
    if isinstance(condition, In):
        axis = names.index(condition.attribute)
        cells = np.zeros(shape[axis], dtype=np.bool_)
        cells[list(condition.codes)] = True
        along = [1] * len(shape)
        along[axis] = shape[axis]
        return np.broadcast_to(cells.reshape(along), shape)
    if isinstance(condition, Not):
        return ~indicator(condition.part, domain, names)
    if isinstance(condition, And | Or):
        combine = np.logical_and if isinstance(condition, And) else np.logical_or
        out = np.full(shape, isinstance(condition, And), dtype=np.bool_)
        for part in condition.parts:
            out = combine(out, indicator(part, domain, names))
        return out
    raise WorkloadError(f"{condition!r} is not a condition; build one with sf.attribute")


def _checked(condition: object) -> Condition:
    if not isinstance(condition, Condition):
        raise WorkloadError(
            f"{condition!r} is not a condition; put comparisons in brackets: (a >= 1) & (b == 2)"
        )
    return condition


def _constant(value: object) -> Value:
    from datetime import date

    if not isinstance(value, str | int | float | bool | date):
        raise WorkloadError(f"an attribute is compared with a number, text or date, not {value!r}")
    return value
