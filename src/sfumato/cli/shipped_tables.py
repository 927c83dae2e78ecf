# SPDX-License-Identifier: Apache-2.0
"""Tables that come with the package, by name: ``demo:adult`` is a table and its domain.

UCI Adult (census income): B. Becker, R. Kohavi, 1996, UCI Machine Learning Repository, CC BY 4.0;
48,842 records of the 1994 census with their labels. The domain file beside it says which values a
record may hold, from the published code book. A spec file, ``sfumato draft`` and ``sfumato demo``
name it the same way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, either

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

__all__ = ["MARK", "Example", "example", "is_shipped", "shipped_domain", "shipped_table"]


MARK: Final = "demo:"
_NAMES: Final = ("adult",)


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
    from sfumato.domain.domain import Domain

    return Example(shipped_table(MARK + name), Domain.from_toml(shipped_domain(MARK + name)))


def is_shipped(name: str) -> bool:
    """Whether a source or a domain is named as one that comes with the package."""
    return name.startswith(MARK)


def shipped_table(name: str) -> Path:
    """The Parquet file of a shipped table.

    >>> shipped_table("demo:adult").name
    'adult.parquet'
    """
    return _file(name, ".parquet")


def shipped_domain(name: str) -> Path:
    """The TOML file with the domain of a shipped table.

    >>> shipped_domain("demo:adult").name
    'adult.toml'
    """
    return _file(name, ".toml")


def _file(name: str, ending: str) -> Path:
    stem = name.removeprefix(MARK)
    if stem not in _NAMES:
        allowed = [MARK + each for each in _NAMES]
        raise SchemaError(
            f"there is no shipped table {name!r}; allowed is {either(allowed)}"
            f"{did_you_mean(name, allowed)}"
        )
    return Path(__file__).parent.parent / "data" / (stem + ending)
