# SPDX-License-Identifier: Apache-2.0
"""Open domains: attributes of which some are still to be discovered in the data, for a price.

    open_domain = sf.OpenDomain([sf.Category.discover("city"), sf.Integer("age", 0, 99)])
    plan = sf.plan_discovery(open_domain, sf.Budget(epsilon=0.5, delta=1e-7))
    domain = plan.release("people.parquet", ledger="people.ledger").domain

A `Domain` is closed: it is public before any data is read, and everything is planned on it. What
a column holds is private until it is paid for, so an open domain cannot be planned on: it is
discovered first (`sfumato.run.discover`), and what that publishes makes it a `Domain`.

An `OpenAttribute` says which columns it reads, by which mechanism it is discovered, which types of
columns can hold it, and how what was published becomes attributes of a closed domain. A new kind is
a new class, and a finder of its name in ``run/discover.py``.

Ranges can be discovered of whole numbers, of numbers, of dates and times:

    sf.Numeric.discover("income")            # both ends
    sf.Integer.discover("age", min=0)        # the upper one alone; 0 is public knowledge

An `OpenRange` names the public grid that its column is searched on (``domain/range_grids.py``), and
makes a closed attribute of the two ends that were published. Values beyond them are clamped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final

from sfumato.domain.attributes import (
    DISCOVER,
    OPEN_KINDS,
    Attribute,
    Category,
    Nulls,
    Outside,
    Value,
    is_text,
)
from sfumato.domain.domain import Domain
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import MomentGrid, NumberGrid, RangeGrid
from sfumato.errors import SchemaError
from sfumato.text import either, listing, shown

__all__ = [
    "OPEN_BOUND",
    "Findings",
    "OpenAttribute",
    "OpenCategory",
    "OpenDateTime",
    "OpenDomain",
    "OpenInteger",
    "OpenNumeric",
    "OpenRange",
    "OpenUnit",
    "top",
]

OPEN_BOUND: Final = "bounds"
"""The mechanism that discovers how many rows of one unit are counted."""

Findings = Mapping[str, object]
"""What a mechanism published about an attribute, as JSON."""


@dataclass(frozen=True)
class OpenAttribute(ABC):
    """What is to be discovered about one column, or about a tuple of columns."""

    columns: tuple[str, ...]
    outside: Outside = field(default="other", kw_only=True)
    nulls: Nulls = field(default="missing", kw_only=True)

    kind: ClassVar[str]
    """The kind of the attributes that it becomes."""
    mechanism: ClassVar[str]
    """The name of the mechanism that discovers it, in ``run/discover.py``."""
    families: ClassVar[tuple[str, ...]]
    """The families of column types that can hold it (`sfumato.vault.encode.family`)."""
    no_domain: ClassVar[str] = (
        "no value is shared by enough people to be published, so there is no domain; discover with "
        "a larger budget, or declare the values from public knowledge"
    )
    """What is said where nothing is left of a domain."""

    def __post_init__(self) -> None:
        columns: object = self.columns
        names = (columns,) if isinstance(columns, str) else self.columns
        if not isinstance(names, Sequence) or not names or not all(map(is_text, names)):
            raise SchemaError(
                f"what is discovered needs the name of a column, or of several, got "
                f"{shown(self.columns)}"
            )
        if len(set(names)) != len(names):
            raise SchemaError(f"a column is named twice: {listing(tuple(names))}")
        if len(names) > LIMITS.columns_together:
            raise SchemaError(
                f"{len(names)} columns are to be discovered together, at most "
                f"{LIMITS.columns_together} can; discover them in smaller groups"
            )
        object.__setattr__(self, "columns", tuple(names))

    @property
    def name(self) -> str:
        """The column, or the columns with commas between them."""
        return ", ".join(self.columns)

    def request(self) -> dict[str, object]:
        """The attribute as JSON: what the ledger keeps of it.

        Returns:
            Equal meaning, equal JSON.
        """
        return {"kind": self.kind, "columns": list(self.columns)}

    def fault(self, column: str, family: str, kind: str, is_untyped: bool) -> str:
        """Why a column cannot hold it, from its type; empty if it can.

        Args:
            column: The name of the column.
            family: The family of its type.
            kind: The type, as people write it.
            is_untyped: Whether its values are texts without a type (CSV).

        Returns:
            A message, or nothing.
        """
        if is_untyped or family in self.families:
            return ""
        return (
            f"column {column!r} is of type {kind}, whose values cannot be discovered as a "
            f"{self.kind}: that needs {either(self.families)}; {self._way_out(family)}"
        )

    def _way_out(self, family: str) -> str:
        """What to do with a column of another type."""
        return {
            "boolean": "declare it with sf.Boolean, whose values are public",
            "date": "declare it with sf.DateTime",
            "timestamp": "declare it with sf.DateTime",
        }.get(family, "leave it out, or convert the column")

    @abstractmethod
    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """The attributes that it becomes; none where nothing was published.

        Args:
            findings: What the mechanism published.

        Returns:
            Attributes of a closed domain, one for each column.
        """

    @abstractmethod
    def table(self) -> dict[str, object]:
        """The keys of ``[domain.NAME]`` that declare it, but for the rules.

        Returns:
            Keys and values of a TOML table.
        """


@dataclass(frozen=True)
class OpenCategory(OpenAttribute):
    """The values of a column, or of a tuple of columns, that many people share.

    Args:
        columns: The name of the column, or several names.
        outside: What becomes of values that are not published: the cell ``"other"``, or
            ``"drop"`` the record.
        nulls: What becomes of missing values, as in `Category`.
        most: The most keys that are published: those with the largest noisy counts.

    Raises:
        SchemaError: An argument is none of these.
    """

    most: int = field(default=LIMITS.keys_published, kw_only=True)

    kind: ClassVar[str] = "category"
    mechanism: ClassVar[str] = "keys"
    families: ClassVar[tuple[str, ...]] = ("text", "integer", "float", "decimal")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outside not in ("other", "drop"):
            raise SchemaError(
                f"{self.name}: outside = {shown(self.outside)} is not 'other' or 'drop'; which "
                "value is the first is not public before it is discovered"
            )
        if self.nulls not in ("missing", "drop"):
            raise SchemaError(
                f"{self.name}: nulls = {shown(self.nulls)} is not 'missing' or 'drop'; which "
                "value is the first is not public before it is discovered"
            )
        is_number = isinstance(self.most, int) and not isinstance(self.most, bool)
        if not is_number or not 1 <= self.most <= LIMITS.keys_published:
            raise SchemaError(
                f"{self.name}: most = {shown(self.most)} is not a number of keys from 1 to "
                f"{LIMITS.keys_published:,}"
            )

    def request(self) -> dict[str, object]:
        """The attribute as JSON; rules for other values and nulls are not part of what is paid."""
        most = {} if self.most == LIMITS.keys_published else {"most": self.most}
        return super().request() | most

    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """One category for each column, with its values in the order of the published counts."""
        keys = findings["keys"]
        assert isinstance(keys, Sequence)  # noqa: S101  JSON of the vault
        if not keys:
            return ()
        columns = zip(*keys, strict=True)
        return tuple(
            Category(name, tuple(dict.fromkeys(values)), outside=self.outside, nulls=self.nulls)
            for name, values in zip(self.columns, columns, strict=True)
        )

    def table(self) -> dict[str, object]:
        """``kind`` and ``values = "discover"``."""
        return {"kind": self.kind, "values": DISCOVER}


OPEN_KINDS[OpenCategory.kind] = OpenCategory


def top(
    k: int,
    columns: str | Sequence[str],
    *,
    outside: Outside = "other",
    nulls: Nulls = "missing",
) -> OpenCategory:
    """The k values of a column with the most people, to be discovered for a price.

    Nobody has to know which values there are: those that many people share are candidates, and the
    k with the largest noisy counts are published. Values of a declared list are chosen for less, by
    `sf.plan_selection`.

    Privacy: none is spent here; `sf.plan_discovery` plans it (docs/proofs/keys.md, Theorem 5: which
    of the keys are shown is a function of what may be published).
    Neighbours: those of the plan.

    Args:
        k: How many, at most: fewer, where fewer values are shared by enough people.
        columns: The name of the column; of several, the tuples.
        outside: What becomes of all other values in a domain: ``"other"`` or ``"drop"``.
        nulls: What becomes of missing values: ``"missing"`` or ``"drop"``.

    Returns:
        What `sf.OpenDomain` and `sf.plan_discovery` take.

    Raises:
        SchemaError: An argument is none of these.

    >>> import sfumato as sf
    >>> sf.plan_discovery(sf.top(3, "city"), sf.Budget(epsilon=1, delta=1e-6)).domain
    OpenDomain(city)
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= LIMITS.keys_published:
        raise SchemaError(
            f"k must be a whole number from 1 to {LIMITS.keys_published:,}, got {shown(k)}; write "
            'sf.top(3, "city")'
        )
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    return OpenCategory(names, outside=outside, nulls=nulls, most=k)


class OpenDomain:
    """Attributes of which some are still to be discovered; not yet a `Domain`.

    Args:
        attributes: Attributes, and what is to be discovered, in the order of the closed domain.

    Raises:
        SchemaError: There is nothing to discover, or a column is named twice.

    >>> import sfumato as sf
    >>> sf.OpenDomain([sf.Category.discover("city"), sf.Integer("age", 0, 99)])
    OpenDomain(age: 100; to discover: city)
    """

    __slots__ = ("_members",)

    def __init__(self, attributes: Iterable[Attribute | OpenAttribute]) -> None:
        if isinstance(attributes, OpenAttribute):
            attributes = [attributes]
        members = tuple(attributes)
        for member in members:
            if not isinstance(member, Attribute | OpenAttribute):
                raise SchemaError(
                    "an open domain is made of attributes and of what is to be discovered, such as "
                    f"sf.Category.discover('city'), got {shown(member)}"
                )
        self._members = members
        if not self.open:
            raise SchemaError(
                "nothing is to be discovered; use sf.Domain, or sf.Category.discover(column)"
            )
        names = [*(a.name for a in self.attributes), *(c for o in self.open for c in o.columns)]
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise SchemaError(f"the open domain names {twice[0]!r} twice; keep one")

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes that are closed already."""
        return tuple(m for m in self._members if isinstance(m, Attribute))

    @property
    def open(self) -> tuple[OpenAttribute, ...]:
        """What is to be discovered."""
        return tuple(m for m in self._members if isinstance(m, OpenAttribute))

    def closed(self, findings: Sequence[Findings]) -> Domain:
        """The domain, with what was published about each open attribute, in their order.

        Args:
            findings: What was published, one for each of ``open``.

        Returns:
            The domain; a column of which nothing was published is left out.

        Raises:
            SchemaError: No column is left.
        """
        results = iter(findings)
        attributes: list[Attribute] = []
        for member in self._members:
            if isinstance(member, OpenAttribute):
                attributes += member.closed(next(results))
            else:
                attributes.append(member)
        if not attributes:
            raise SchemaError(self.open[0].no_domain)
        return Domain(attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenDomain) and self._members == other._members

    def __hash__(self) -> int:
        return hash(self._members)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{a.name}: {a.size}" for a in self.attributes)
        names = ", ".join(o.name for o in self.open)
        return f"OpenDomain({sizes}; to discover: {names})" if sizes else f"OpenDomain({names})"

    @classmethod
    def from_toml(cls, path: str | Path) -> OpenDomain:
        """Read the ``[domain]`` tables of a TOML file, some of which say "discover".

        Args:
            path: The TOML file.

        Returns:
            The open domain that it declares.

        Raises:
            SchemaError: The file cannot be read, says what it must not, or has nothing to discover.
        """
        from sfumato.domain.schema import declared_members
        from sfumato.toml import read_toml

        return cls(declared_members(read_toml(path)))


_RULES: Final = ("clamp", "other", "drop")


@dataclass(frozen=True)
class OpenRange(OpenAttribute):
    """The range of a column, to be discovered.

    Args:
        columns: The name of the column.
        low: The least value, where it is public knowledge; discovered if None.
        high: The greatest value, likewise.
        outside: What becomes of values beyond the range: ``"clamp"`` to its ends, the cell
            ``"other"``, or ``"drop"`` the record.
        nulls: What becomes of missing values.
        bins: About how many bins the range is to have; by a public rule if None.
        tails: The share of the records that is to lie beyond either end, about.

    Raises:
        SchemaError: An argument is none of these.
    """

    outside: Outside = field(default="clamp", kw_only=True)
    low: Value | None = field(default=None, kw_only=True)
    high: Value | None = field(default=None, kw_only=True)
    bins: int | None = field(default=None, kw_only=True)
    tails: Fraction = field(default=Fraction(1, 20), kw_only=True)

    mechanism: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise SchemaError(f"{self.name}: a range is that of one column, got {self.columns}")
        if self.outside not in _RULES:
            raise SchemaError(
                f"{self.name}: outside = {shown(self.outside)} is not 'clamp', 'other' or 'drop'"
            )
        is_number = isinstance(self.bins, int) and not isinstance(self.bins, bool)
        if self.bins is not None and not (is_number and 1 <= self.bins <= LIMITS.bins):
            raise SchemaError(
                f"{self.name}: bins = {shown(self.bins)} is not a number from 1 to {LIMITS.bins:,}"
            )
        try:
            tails = Fraction(str(self.tails))
        except (ValueError, ZeroDivisionError):
            tails = Fraction(0)
        if not 0 < tails <= Fraction(1, 4):
            raise SchemaError(
                f"{self.name}: tails = {shown(self.tails)} is not a share above 0 and at most 0.25"
            )
        object.__setattr__(self, "tails", tails)
        if self.low is not None and self.high is not None:
            raise SchemaError(
                f"{self.name}: both ends are declared, so there is nothing to discover; use "
                f"sf.{type(self).__name__.removeprefix('Open')}"
            )
        for end in (self.low, self.high):
            if end is not None:
                self.check_end(end)

    @property
    @abstractmethod
    def grid(self) -> RangeGrid:
        """The public grid on which the column is searched."""

    @abstractmethod
    def check_end(self, end: Any) -> None:
        """Refuse a declared end of another kind, or beyond the grid."""

    def request(self) -> dict[str, object]:
        """The attribute as JSON; declared ends, bins and rules are no part of what is paid for."""
        return super().request() | {"tails": str(self.tails)}

    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """The column with its range; a declared end stays as it was declared."""
        low, high = self.ends(findings)
        bins = self.bins if self.bins is not None else findings["bins"]
        assert isinstance(bins, int)  # noqa: S101  JSON of the vault
        return (self.grid.closed(low, high, bins),)

    def ends(self, findings: Findings) -> tuple[Value, Value]:
        """The two ends: those that were published, or declared."""
        low: Any = findings["low"]
        high: Any = findings["high"]
        if self.low is not None:
            low = self.low
            high = high if high > low else self.grid.beyond(low, is_upwards=True)
        elif self.high is not None:
            high = self.past(self.high)
            low = low if low < high else self.grid.beyond(high, is_upwards=False)
        return low, high

    def past(self, end: Value) -> Value:
        """Where a range ends whose greatest value this is."""
        return end

    def _fault_of_end(self, end: object, what: str) -> SchemaError:
        return SchemaError(f"{self.name}: a declared end must be {what}, got {shown(end)}")


@dataclass(frozen=True)
class OpenInteger(OpenRange):
    """The range of a column of whole numbers."""

    kind: ClassVar[str] = "integer"
    families: ClassVar[tuple[str, ...]] = ("integer", "decimal", "float")

    @property
    def grid(self) -> NumberGrid:
        """The whole numbers of the grid."""
        return NumberGrid(self.columns[0], self.outside, self.nulls, is_whole=True)

    def check_end(self, end: Any) -> None:
        """A whole number within the grid."""
        is_whole = isinstance(end, int) and not isinstance(end, bool)
        if not is_whole or not abs(end) < _most(self.grid):
            raise self._fault_of_end(end, f"a whole number below {_most(self.grid):,}")

    def past(self, end: Value) -> Value:
        """One more: the greatest value is part of the range."""
        assert isinstance(end, int)  # noqa: S101  check_end
        return end + 1

    def table(self) -> dict[str, object]:
        """``min`` and ``max``."""
        return {"kind": self.kind, **_ends(("min", self.low), ("max", self.high))}


@dataclass(frozen=True)
class OpenNumeric(OpenRange):
    """The range of a column of numbers."""

    kind: ClassVar[str] = "numeric"
    families: ClassVar[tuple[str, ...]] = ("integer", "decimal", "float")

    @property
    def grid(self) -> NumberGrid:
        """The grid of numbers."""
        return NumberGrid(self.columns[0], self.outside, self.nulls)

    def check_end(self, end: Any) -> None:
        """A number within the grid."""
        is_number = isinstance(end, int | float) and not isinstance(end, bool)
        if not is_number or not abs(end) < _most(self.grid):
            raise self._fault_of_end(end, f"a number below {_most(self.grid):g}")

    def table(self) -> dict[str, object]:
        """``min`` and ``max``."""
        return {"kind": self.kind, **_ends(("min", self.low), ("max", self.high))}


@dataclass(frozen=True)
class OpenDateTime(OpenRange):
    """The range of a column of dates or times."""

    kind: ClassVar[str] = "datetime"
    families: ClassVar[tuple[str, ...]] = ("date", "timestamp")

    @property
    def grid(self) -> MomentGrid:
        """The months."""
        return MomentGrid(self.columns[0], self.outside, self.nulls)

    def __post_init__(self) -> None:
        for key in ("low", "high"):
            end = getattr(self, key)
            if isinstance(end, date):
                moment = (
                    end if isinstance(end, datetime) else datetime(end.year, end.month, end.day)
                )
                object.__setattr__(self, key, moment.isoformat())
        super().__post_init__()

    def check_end(self, end: Any) -> None:
        """A date and time without a time zone, within the grid, as ISO 8601 writes it."""
        grid = self.grid
        try:
            moment = datetime.fromisoformat(str(end))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is not None or moment.isoformat() != end:
            raise self._fault_of_end(end, "a date, or a date and time without a zone")
        if not grid.value(0) < end < grid.value(grid.cells):
            raise self._fault_of_end(end, "between the years 1600 and 2200")

    def table(self) -> dict[str, object]:
        """``start`` and ``end``."""
        ends = [
            None if e is None else datetime.fromisoformat(str(e)) for e in (self.low, self.high)
        ]
        return {"kind": self.kind, **_ends(("start", ends[0]), ("end", ends[1]))}


@dataclass(frozen=True)
class OpenUnit(OpenAttribute):
    """How many rows of one unit are to be counted, to be discovered.

    Args:
        columns: The name of the column that says whose record it is.
        persons: About how many units may have more rows.
        most: The largest bound.

    Raises:
        SchemaError: An argument is none of these.
    """

    persons: int = field(kw_only=True)
    most: int = field(default=LIMITS.bound_most, kw_only=True)

    kind: ClassVar[str] = "unit"
    mechanism: ClassVar[str] = OPEN_BOUND
    families: ClassVar[tuple[str, ...]] = ("text", "integer", "float", "decimal")
    no_domain: ClassVar[str] = (
        "a bound on the rows of a unit is no domain; the unit that was discovered is .unit"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise SchemaError(f"a privacy unit is the value of one column, got {self.columns}")
        for name, least in (("persons", 1), ("most", 2)):
            value = getattr(self, name)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not least <= value <= LIMITS.rows_per_unit:
                raise SchemaError(
                    f"{self.name}: {name} = {shown(value)} is not a whole number from {least} to "
                    f"{LIMITS.rows_per_unit:,}"
                )

    @property
    def grid(self) -> tuple[int, ...]:
        """The bounds that are tried, from 1 to the largest: so many in an octave, all up to 8."""
        steps = LIMITS.bound_steps
        bounds = list(range(1, min(2 * steps, self.most)))
        step = 2
        while bounds[-1] < self.most:
            start = steps * step
            bounds += [n for n in range(start, 2 * start, step) if n < self.most]
            bounds += [self.most] if 2 * start >= self.most else []
            step *= 2
        return tuple(bounds)

    @property
    def person(self) -> PrivacyUnit:
        """Whose presence is protected while the bound is searched: all rows of a unit."""
        return PrivacyUnit(self.columns[0], 1)

    def request(self) -> dict[str, object]:
        """The column and its largest bound; how many may lose rows stands with the noise."""
        return super().request() | {"most": self.most}

    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """None: a bound is no attribute."""
        del findings
        return ()

    def unit(self, findings: Findings) -> PrivacyUnit:
        """The unit with the bound that was published."""
        return PrivacyUnit(self.columns[0], int(str(findings["rows"])))

    def table(self) -> dict[str, object]:
        """None: ``rows_per_unit = "discover"`` stands with the data."""
        return {}


OPEN_KINDS[OpenUnit.kind] = OpenUnit


def _ends(*ends: tuple[str, Value | None]) -> Mapping[str, object]:
    return {key: DISCOVER if value is None else value for key, value in ends}


def _most(grid: NumberGrid) -> float:
    return grid.value(grid.cells)


for _kind in (OpenInteger, OpenNumeric, OpenDateTime):
    OPEN_KINDS[_kind.kind] = _kind
