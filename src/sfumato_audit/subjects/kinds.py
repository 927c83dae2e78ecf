# SPDX-License-Identifier: Apache-2.0
"""Votes on the kind of a column: noisy sizes of the classes of its values.

A table is the list of the texts of a column, as in a file of one column: the classes are counted by
the vault. The pairs have one text more, of every class and of none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sfumato.domain.open_kinds import OpenKind
from sfumato.random import WordSource, integers_below
from sfumato.run.discover import KindSearch, kind_searches
from sfumato.types import Array
from sfumato.vault.mechanisms.searches import noisy_classes, read_classes
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.tables import open_table
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject

__all__ = ["Texts", "broken_kind_subjects", "kind_subjects"]

Texts = tuple[str, ...]
Sizes = Callable[[Texts], Sequence[int]]

EPSILON = Fraction(1)
MODULE = "sfumato.vault.mechanisms.searches"
SLOW = 20
COLUMN: Texts = ("7", "1", "2.5", "2020-01-31", "yes", "none", "")
PAIRS: tuple[Pair[Texts], ...] = (
    Pair("one 0 or 1 more, which could be read in three ways", COLUMN, (*COLUMN, "1")),
    Pair("one word more", COLUMN, (*COLUMN, "other")),
    Pair("one date more in an empty column", ("",), ("", "2021-06-01")),
)


@cache
def _classes(texts: Texts) -> tuple[int, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "column.csv"
        path.write_text("\n".join(["x,y", *(f"{text}," for text in texts), ""]))
        sizes = read_classes(open_table(str(path)), OpenKind(("x",))).reveal()
    return tuple(int(size) for size in sizes)


def _every_reading(texts: Texts) -> Sequence[int]:
    """A text in every class that it can be read as: 1 is a whole number, a bit, and yes."""
    whole, bit, fraction, date, truth, text = _classes(texts)
    return (whole + bit, bit, fraction + whole + bit, date, truth + bit, text)


def _search() -> KindSearch:
    (search,) = kind_searches([OpenKind(("x",))], EPSILON, Fraction(0), "add-remove", None)
    return search


def _subject(name: str, sizes: Sizes, is_broken: bool = False) -> Subject[Texts]:
    claim = Claim.of(_search().cost)

    def sampler(texts: Texts) -> Sampler:
        law = _search().law
        exact = Sensitive(np.array(sizes(texts), dtype=np.int64))

        def run(runs: int, source: WordSource) -> Array:
            rows = [noisy_classes(exact, law, source) for _ in range(runs)]
            return np.array(rows, dtype=np.float64)

        return run

    covered = {f"{MODULE}.noisy_classes", "sfumato.run.discover.kind_searches"}
    covers = frozenset() if is_broken else frozenset(covered)
    random_pair = None if is_broken else _random
    return Subject(
        name, claim, PAIRS, sampler, covers, random_pair, slowness=SLOW, is_broken=is_broken
    )


def _random(source: WordSource) -> Pair[Texts]:
    several = tuple(COLUMN[i] for i in integers_below(len(COLUMN), 5, source).tolist())
    one = COLUMN[int(integers_below(len(COLUMN), 1, source)[0])]
    return Pair(f"at random: {one!r} more", several, (*several, one))


def kind_subjects() -> tuple[Subject[Texts], ...]:
    """The vote between files of one row's distance."""
    return (_subject("kind of a column", _classes),)


def broken_kind_subjects() -> tuple[Subject[Texts], ...]:
    """Classes that are not apart: one row moves several sizes."""
    title = "kind of a column: a value counts in every class that it can be read as"
    return (_subject(title, _every_reading, is_broken=True),)
