# SPDX-License-Identifier: Apache-2.0
"""The limits of schemas and domains in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "LIMITS",
    "DomainLimits",
]


@dataclass(frozen=True, slots=True)
class DomainLimits:
    """Sizes that are refused. The number of cells of a domain has no limit."""

    # attributes and domain
    attributes: int = 5_000
    """Attributes of a domain: a table with more columns should name those that are asked about."""
    cells_listed: int = 10_000_000
    """Cells of one attribute that are ever listed one by one, as labels or indicators: 80 MB."""

    # schema, of levels
    values_grouped: int = 1_000_000
    """Values of an attribute with levels: a level names the group of each."""
    levels: int = 100
    """Levels of one attribute; they are resolved recursively."""

    # schema files
    bins: int = 1_000_000
    """Equal bins that ``bins = N`` may ask for: their edges are written out."""
    line_characters: int = 96
    """Characters of a line of a schema file that is written, so that people can read it."""

    # time zones
    zone_changes: int = 1_000
    """Changes of clocks from the start to the end of an attribute: five centuries of summers."""

    # discovery
    keys_published: int = 100_000
    """Keys of one discovery: as many values as a category of a schema file can reasonably list."""
    columns_together: int = 8
    """Columns whose tuples are discovered together; hardly any tuple of more is shared."""

    # column_kinds
    vote_name: float = 3.0
    """Logarithm of how much likelier the kind is that a name says: right in about four of five."""
    vote_default: float = 2.0
    """The same of a name that no rule knows, which is taken for a category."""
    vote_rare: float = 3.0
    """Logarithm of how much rarer an unusual column of a kind is: one in twenty."""

    # range_grids
    whole_range: int = 2**53
    """Bounds that are looked for in whole numbers are below it: floats hold them exactly."""

    # privacy units
    rows_per_unit: int = 2**44
    """Rows of one unit; no table has so many records."""
    bound_most: int = 2**20
    """The largest bound that a search for one ends with: noise for more rows drowns any table."""
    bound_steps: int = 4
    """Bounds in an octave, from 8 on: noise is for a quarter more rows than needed, at most."""


LIMITS: Final = DomainLimits()
