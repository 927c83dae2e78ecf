# SPDX-License-Identifier: Apache-2.0
"""What a record may look like: attributes, bins, the schema file. Public; sees no data."""

from sfumato.domain.attributes import (
    Attribute,
    Boolean,
    Category,
    DateTime,
    Integer,
    Level,
    Numeric,
)
from sfumato.domain.domain import Domain
from sfumato.domain.values import Values

__all__ = [
    "Attribute",
    "Boolean",
    "Category",
    "DateTime",
    "Domain",
    "Integer",
    "Level",
    "Numeric",
    "Values",
]
