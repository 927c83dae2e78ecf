# SPDX-License-Identifier: Apache-2.0
"""Two public tables that Python brings along, so that nothing is tuned to Adult alone.

``characters``: the assigned characters of the Unicode Character Database (``unicodedata``), about
150,000 records of eight attributes. ``entities``: the named characters of HTML 5
(``html.entities``), 2,231 records of nine. Both depend on the version of Python: the later ones
know more characters. Attributes depend on each other strongly, and most cells are empty.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from html.entities import html5

import numpy as np

__all__ = ["TABLES", "characters", "entities"]

UNASSIGNED = ("Cn", "Cs", "Co")


@cache
def characters() -> tuple[tuple[int, ...], np.ndarray]:
    """The sizes of the attributes, and the codes of every assigned character."""
    points = (chr(i) for i in range(sys.maxunicode + 1))
    return _coded(_features(c) for c in points if unicodedata.category(c) not in UNASSIGNED)


@cache
def entities() -> tuple[tuple[int, ...], np.ndarray]:
    """The sizes of the attributes, and the codes of every named character."""
    return _coded(
        (
            min(len(name), 24),
            name[0],
            name.endswith(";"),
            len(text),
            sum(c.isupper() for c in name[:4]),
            *_features(text[0])[:4],
        )
        for name, text in sorted(html5.items())
    )


TABLES: dict[str, Callable[[], tuple[tuple[int, ...], np.ndarray]]] = {
    "characters of Unicode": characters,
    "entities of HTML": entities,
}


def _features(c: str) -> tuple[object, ...]:
    decomposition = unicodedata.decomposition(c)
    return (
        unicodedata.category(c),
        unicodedata.bidirectional(c),
        unicodedata.east_asian_width(c),
        min(ord(c) >> 12, 20),
        min(unicodedata.combining(c), 240) // 10,
        decomposition.split(" ")[0] if decomposition.startswith("<") else len(decomposition) // 5,
        (c.isidentifier(), c.islower(), c.isupper(), c.isnumeric()),
        unicodedata.name(c, "").partition(" ")[0][:1],
    )


def _coded(records: Iterable[tuple[object, ...]]) -> tuple[tuple[int, ...], np.ndarray]:
    columns = [
        np.unique([str(v) for v in c], return_inverse=True) for c in zip(*records, strict=True)
    ]
    return tuple(len(v) for v, _ in columns), np.column_stack([codes for _, codes in columns])
