# SPDX-License-Identifier: Apache-2.0
"""The finite set of cells a record can fall in, fixed before any data is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path

from sfumato.domain.attributes import Attribute, Integer
from sfumato.errors import SchemaError, WorkloadError

__all__ = ["Domain"]


class Domain:
    """An ordered set of attributes; a cell is one choice for each.

    A domain is public: it comes from the schema, never from the data, because the set of
    observed values is itself private. Sizes are Python integers, so 10^18 cells are legal.

    >>> domain = Domain({"age": 100, "sex": 2})
    >>> domain.shape, domain.size
    ((100, 2), 200)
    """

    __slots__ = ("_by_name", "attributes")

    attributes: tuple[Attribute, ...]

    def __init__(self, attributes: Mapping[str, int] | Iterable[Attribute]) -> None:
        if isinstance(attributes, Mapping):
            attributes = [_quick(name, size) for name, size in attributes.items()]
        self.attributes = tuple(attributes)
        if not self.attributes:
            raise SchemaError("a domain needs at least one attribute")
        self._by_name = {a.name: i for i, a in enumerate(self.attributes)}
        if len(self._by_name) != len(self.attributes):
            names = [a.name for a in self.attributes]
            twice = next(n for n in names if names.count(n) > 1)
            raise SchemaError(f"the domain names the attribute {twice!r} twice")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(self._by_name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each attribute."""
        return tuple(a.size for a in self.attributes)

    @property
    def size(self) -> int:
        """The number of cells of the whole domain."""
        return prod(self.shape)

    def index(self, name: str) -> int:
        """The position of the attribute of this name."""
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            raise WorkloadError(
                f"unknown attribute {name!r}; the domain has: {', '.join(self.names)}"
            ) from None

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash(self.attributes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{a.name}: {a.size}" for a in self.attributes)
        return f"Domain({{{sizes}}})"

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names, each once, in the order of the domain."""
        return tuple(sorted(set(names), key=self.index))

    def cells(self, names: Iterable[str]) -> int:
        """The number of cells of the table over these attributes."""
        return prod(self[name].size for name in names)

    def digest(self) -> str:
        """SHA-256 of a canonical form: equal domains, equal digest."""
        rows = [{"kind": a.kind, **asdict(a)} for a in self.attributes]
        canonical = json.dumps(rows, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @classmethod
    def from_toml(cls, path: str | Path) -> Domain:
        """Read the ``[domain]`` tables of a TOML file."""
        from sfumato.domain.schema import read_domain

        return read_domain(Path(path))

    def to_toml(self) -> str:
        """The ``[domain]`` tables as TOML."""
        from sfumato.domain.schema import write_domain

        return write_domain(self)


def _quick(name: str, size: int) -> Attribute:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise SchemaError(f"attribute {name!r}: the number of cells must be >= 1, got {size!r}")
    return Integer(name, 0, size - 1)
