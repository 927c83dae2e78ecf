# SPDX-License-Identifier: Apache-2.0
"""The kinds of attribute, all in one place.

base      what all kinds share: cells, labels, levels, the rules for outside and nulls
listed    category, boolean: values without an order
ordered   integer, numeric: numbers in bins
dates     datetime: dates or times in steps of the calendar
"""

from __future__ import annotations

from sfumato.domain.base import (
    MISSING,
    MOST_LISTED,
    OTHER,
    Attribute,
    Comparison,
    Level,
    Nulls,
    Outside,
    Value,
)
from sfumato.domain.dates import DateTime
from sfumato.domain.listed import Boolean, Category
from sfumato.domain.ordered import Integer, Numeric

__all__ = [
    "MISSING",
    "MOST_LISTED",
    "OTHER",
    "Attribute",
    "Boolean",
    "Category",
    "Comparison",
    "DateTime",
    "Integer",
    "Level",
    "Nulls",
    "Numeric",
    "Outside",
    "Value",
]
