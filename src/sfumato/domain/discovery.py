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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from sfumato.domain.attributes import (
    DISCOVER,
    OPEN_KINDS,
    Attribute,
    Category,
    Nulls,
    Outside,
    is_text,
)
from sfumato.domain.domain import Domain
from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import either, listing, shown

__all__ = [
    "Findings",
    "OpenAttribute",
    "OpenCategory",
    "OpenDomain",
    "top",
]

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
            raise SchemaError(
                "no value is shared by enough people to be published, so there is no domain; "
                "discover with a larger budget, or declare the values from public knowledge"
            )
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
