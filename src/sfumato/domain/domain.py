# SPDX-License-Identifier: Apache-2.0
"""The domain: the finite set of cells a record can fall in, fixed before any data is read.

`Domain` is an ordered set of attributes (`sfumato.domain.attributes`). `read_domain` and
`domain_from` read it from the tables of a schema file (`sfumato.domain.schema`), `write_domain`
writes them. Sums and means add attributes of values to a domain (`sfumato.domain.values`):
`with_values` and `with_moments` return it with them, `base_of` without, `valued` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import islice
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

from sfumato.digest import json_digest
from sfumato.domain.attributes import (
    Attribute,
    Integer,
    Level,
    first_repeat,
)
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.shipped_tables import MARK, is_shipped, shipped_domain, shipped_table
from sfumato.domain.values import UNIT_BITS, Fractional, Moments, Values
from sfumato.errors import SchemaError, TooLarge, WorkloadError
from sfumato.text import did_you_mean, listing, shown
from sfumato.toml import TomlFile, read_toml

__all__ = [
    "ALL_INSIDE",
    "Domain",
    "Example",
    "base_of",
    "domain_from",
    "example",
    "joined",
    "read_as_values",
    "read_domain",
    "unit_bits",
    "valued",
    "with_moments",
    "with_values",
    "write_domain",
]

ALL_INSIDE: Final = "all-inside"
"""The word for the promise that every record lies in the domain."""


class Domain:
    """An ordered set of attributes; a cell is one choice for each.

    A domain is public: it comes from the schema, never from the data, because the set of
    observed values is itself private. Sizes are Python integers, so 10^18 cells are legal.

    Args:
        attributes: The attributes in order, or a mapping from names to numbers of values.
        records: ``"all-inside"`` if every record is known to lie in the domain, as in the notes'
            data sets of U^n. The promise is kept by a rule, whatever the table holds: values
            outside count as the nearest ones, those of a category and nulls as the first one, so
            that no record is ever dropped and with ``replace-one`` neighbours their number is
            public. Rules that attributes have for themselves stay. None: as the attributes say.

    Raises:
        SchemaError: There is no attribute, two have one name, or records is another word.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> domain.shape, domain.size
    ((100, 2), 200)
    >>> sf.Domain({"age": 100}, records="all-inside").keeps_every_record
    True
    """

    __slots__ = ("_attributes", "_by_name", "_digest")

    def __init__(
        self, attributes: Mapping[str, int] | Iterable[Attribute], records: str | None = None
    ) -> None:
        if not isinstance(attributes, Iterable):
            raise SchemaError(
                f"a domain is made of attributes, got {shown(attributes)}; give a list of "
                "Category, Integer, Numeric, DateTime, Boolean, or a dict of name to size; "
                "sf.Domain.from_toml(path) reads a schema"
            )
        if isinstance(attributes, Mapping):
            attributes = (_quick(name, size) for name, size in attributes.items())
        self._attributes = tuple(islice(attributes, LIMITS.attributes + 1))
        self._digest: str | None = None
        if not self._attributes:
            raise SchemaError("a domain needs at least one attribute")
        if len(self._attributes) > LIMITS.attributes:
            raise TooLarge(
                f"a domain has at most {LIMITS.attributes:,} attributes, more are given; leave "
                "out columns that nothing is asked about"
            )
        for attribute in self._attributes:
            if not isinstance(attribute, Attribute):
                raise SchemaError(
                    f"a domain is made of attributes, got {shown(attribute)}; give a list of "
                    "Category, Integer, Numeric, DateTime, Boolean, or a dict of name to size"
                )
        if records not in (None, ALL_INSIDE):
            raise SchemaError(
                f"records = {shown(records)} is not {ALL_INSIDE!r}, the promise that every record "
                "lies in the domain; leave it out where the rules of the attributes say what is "
                f"dropped{did_you_mean(records, [ALL_INSIDE])}"
            )
        if records == ALL_INSIDE:
            self._attributes = tuple(a.all_inside() for a in self._attributes)
        self._by_name = {a.name: i for i, a in enumerate(self._attributes)}
        if len(self._by_name) != len(self._attributes):
            names = [a.name for a in self._attributes]
            twice = names[first_repeat(names) or 0]
            raise SchemaError(f"the domain names the attribute {twice!r} twice")

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes, in order."""
        return self._attributes

    @property
    def open(self) -> tuple[()]:
        """What is still to be discovered: nothing, as in no `OpenDomain`."""
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(self._by_name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each attribute."""
        return tuple(a.size for a in self._attributes)

    @property
    def size(self) -> int:
        """The number of cells of the whole domain."""
        return prod(self.shape)

    @property
    def keeps_every_record(self) -> bool:
        """Whether no rule for nulls or outside values ever drops a record."""
        return all(a.keeps_every_record for a in self.attributes)

    def index(self, name: str) -> int:
        """The position of the attribute of this name.

        Args:
            name: The name of an attribute.

        Returns:
            Where it stands in the domain, from 0.

        Raises:
            WorkloadError: There is no such attribute.
        """
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            raise WorkloadError(
                f"unknown attribute {shown(name)}; the domain has: {listing(self.names, 30)}"
                f"{did_you_mean(name, self.names)}"
            ) from None

    def __getitem__(self, name: str) -> Attribute:
        return self._attributes[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._by_name

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self._attributes == other._attributes

    def __hash__(self) -> int:
        return hash(self._attributes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{a.name}: {a.size}" for a in self._attributes)
        return f"Domain({{{sizes}}})"

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names, each once, in the order of the domain; a lone text is one name.

        Args:
            names: Names of attributes, in any order, or one name.

        Returns:
            The names, each once, in the order of the domain.

        Raises:
            WorkloadError: There is no such attribute.

        >>> import sfumato as sf
        >>> sf.Domain({"age": 100, "sex": 2}).in_order(["sex", "age", "sex"])
        ('age', 'sex')
        """
        names = (names,) if isinstance(names, str) else names
        return tuple(sorted(set(names), key=self.index))

    def cells(self, names: Iterable[str]) -> int:
        """The number of cells of the table over these attributes.

        Args:
            names: Names of attributes.

        Returns:
            The product of their sizes.

        Raises:
            WorkloadError: There is no such attribute.
        """
        return prod(self[name].size for name in self.in_order(names))

    def digest(self) -> str:
        """SHA-256 of a canonical form: domains are equal iff their digests are.

        The form holds each attribute's own keys, so it is as long as the schema and not as the
        domain is large. Its leading version is part of it: old digests keep their meaning.

        Returns:
            64 hexadecimal digits.
        """
        if self._digest is None:
            rows = [_canonical(a) for a in self._attributes]
            self._digest = json_digest(["sfumato domain 1", rows])
        return self._digest

    @classmethod
    def from_toml(cls, path: str | Path) -> Domain:
        """Read the ``[domain]`` tables of a TOML file.

        Args:
            path: The TOML file, or ``"demo:adult"`` for that of the table that is shipped.

        Returns:
            The domain that it declares.

        Raises:
            SchemaError: The file cannot be read or does not say what it must; with the line.
        """

        return read_domain(path)

    def to_toml(self) -> str:
        """The ``[domain]`` tables as TOML.

        Returns:
            A text that `from_toml` reads back as an equal domain.
        """

        return write_domain(self)


def _quick(name: str, size: int) -> Attribute:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise SchemaError(
            f"attribute {name!r}: the number of cells must be an integer >= 1, got {shown(size)}"
        )
    return Integer(name, 0, size - 1)


def _canonical(value: object) -> object:
    """An attribute or a field of one as JSON: dates in ISO form, levels as lists, else as it is."""
    if isinstance(value, Attribute):
        keys = {f.name: _canonical(getattr(value, f.name)) for f in fields(value)}
        # What came later is None unless it is said, and then in no form: old digests stay.
        return [value.kind, {key: held for key, held in keys.items() if held is not None}]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Level):
        return [value.name, value.groups, value.group_of]
    return [_canonical(v) for v in value] if isinstance(value, tuple) else value


def read_domain(path: str | Path) -> Domain:
    """The domain that the ``[domain.NAME]`` tables of a TOML file, or of a shipped one, declare."""
    return domain_from(read_toml(shipped_domain(str(path)) if is_shipped(path) else path))


class Example(NamedTuple):
    """A table that comes with the package: a Parquet file, and which values a record may hold."""

    table: Path
    domain: Domain


def example(name: str = "adult") -> Example:
    """A table to try things on: UCI Adult, 48,842 public records of the 1994 census.

    Args:
        name: The name of the table; there is ``"adult"``.

    Returns:
        The path of its Parquet file, and its domain.

    Raises:
        SchemaError: If there is no such table.

    >>> import sfumato as sf
    >>> table, domain = sf.example()
    >>> table.name, domain["sex"].size
    ('adult.parquet', 2)
    """
    return Example(shipped_table(MARK + name), read_domain(MARK + name))


def domain_from(file: TomlFile) -> Domain:
    """The domain that ``[domain.NAME]`` tables and the key ``records`` of a TOML document declare.

    >>> from sfumato.toml import parse_toml
    >>> domain_from(parse_toml('[domain.sex]\\nkind = "category"\\nvalues = ["Female", "Male"]'))
    Domain({sex: 2})
    """
    from sfumato.domain.schema import declared_attributes

    records = file.data.get("records")
    if records not in (None, ALL_INSIDE):
        raise file.error(
            f"records is {ALL_INSIDE!r}, the promise that every record lies in the domain, or left "
            f"out; got {shown(records)}",
            ("records",),
        )
    return Domain(declared_attributes(file), records=None if records is None else ALL_INSIDE)


def write_domain(domain: Domain) -> str:
    """The ``[domain.NAME]`` tables as TOML; reading them gives an equal domain.

    >>> print(write_domain(Domain({"age": 100})), end="")
    [domain.age]
    kind = "integer"
    min = 0
    max = 99
    """
    from sfumato.domain.schema import attribute_table

    return "\n".join(attribute_table(attribute) for attribute in domain)


def with_values(domain: Domain, name: str, degree: int = 1) -> tuple[Domain, Values]:
    """Return the domain with the values of an attribute, added if it has none, and these values."""
    values = Values.of_attribute(domain[name], degree)
    return _with(domain, values), values


def with_moments(domain: Domain, names: Sequence[str], degree: int = 1) -> tuple[Domain, Moments]:
    """Return the domain with the moments of attributes and with their values, and these moments."""
    if len(set(names)) != len(names) or not names:
        raise WorkloadError(f"moments are of different attributes, got {', '.join(names)}")
    moments = Moments.of_attributes([domain[n] for n in domain.in_order(names)], degree)
    for values in moments.sources:
        domain = _with(domain, values)
    return _with(domain, moments), moments


def _with(domain: Domain, extra: Fractional) -> Domain:
    if extra.name not in domain:
        return joined([domain, Domain([*domain.attributes, extra])])
    if domain[extra.name] != extra:
        raise WorkloadError(
            f"the sums of {', '.join(extra.columns)} need the name {extra.name!r}, which another "
            "attribute of the domain has; rename that"
        )
    return domain


def base_of(domain: Domain) -> Domain:
    """Return the domain without values: the attributes of the schema."""
    if not valued(domain, domain.names):
        return domain
    return Domain(a for a in domain if not isinstance(a, Fractional))


def joined(domains: Iterable[Domain]) -> Domain:
    """Return the common base with the values of all domains, in the order of its attributes."""
    first, *others = domains
    base, extra = base_of(first), dict[str, Fractional]()
    for domain in (first, *others):
        if domain is not first and base_of(domain) != base:
            raise WorkloadError(
                f"workloads over different domains cannot be joined: {first!r} and {domain!r}"
            )
        extra |= {a.name: a for a in domain if isinstance(a, Fractional)}
    if not extra:
        return first
    order = sorted(extra.values(), key=lambda a: _place(base, a))
    whole = Domain([*base, *order])
    return first if whole == first else whole


def _place(base: Domain, extra: Fractional) -> tuple[object, ...]:
    """Values in the order of their columns, then moments in the order of theirs."""
    is_joint = isinstance(extra, Moments)
    columns = tuple(base.index(source.of.name) for source in extra.sources)
    return is_joint, columns, getattr(extra, "degree", 1)


def valued(domain: Domain, names: Iterable[str]) -> tuple[Fractional, ...]:
    """Return the attributes among these over whose cells records are spread."""
    chosen = (domain[name] for name in names)
    return tuple(a for a in chosen if isinstance(a, Fractional))


def read_as_values(domain: Domain, names: Iterable[str]) -> frozenset[str]:
    """Return the attributes whose codes tell these: of moments, the values they are made from."""
    out: set[str] = set()
    for name in names:
        attribute = domain[name]
        sources = attribute.sources if isinstance(attribute, Moments) else (attribute,)
        out.update(source.name for source in sources)
    return frozenset(out)


def unit_bits(domain: Domain, names: Iterable[str]) -> int:
    """Return b: a table over these attributes is counted in multiples of 2^-b."""
    return UNIT_BITS if valued(domain, names) else 0
