# SPDX-License-Identifier: Apache-2.0
"""Tables that come with the package, by name: ``demo:adult`` is a table and its domain.

UCI Adult (census income): B. Becker, R. Kohavi, 1996, UCI Machine Learning Repository, CC BY 4.0;
48,842 records of the 1994 census with their labels. The domain file beside it says which values a
record may hold, from the published code book. Wherever a table or a domain is named, in Python, in
a spec file and on the command line, these names stand for the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, either

__all__ = ["MARK", "is_shipped", "shipped_domain", "shipped_table"]


MARK: Final = "demo:"
_NAMES: Final = ("adult",)


def is_shipped(name: object) -> bool:
    """Whether a source or a domain is named as one that comes with the package."""
    return isinstance(name, str) and name.startswith(MARK)


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
