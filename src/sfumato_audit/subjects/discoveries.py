# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: discoveries of keys, ranges, kinds of columns, and bounds on rows.

Keys: the law on made-up numbers of people, and a discovery as it is run. Deltas are large, so that
what a new key gives away is seen in some thousand runs. A table is the number of people of each
key, 0 for a key that is not there; outputs are the published numbers.

Kinds: votes by noisy sizes of the classes of values. A table is the list of the texts of a column,
as in a file of one column: the classes are counted by the vault. The pairs have one text more, of
every class and of none.

Ranges: searches on a grid of few cells. A table is the number of records in each cell. The pairs
hold what a search is built on: a record more beyond an end, at the median, in an empty table, and
far from a crowd.

Bounds: how many rows of one person are counted. A table is the number of rows of every person; the
vault counts those who have more. The pairs hold a person with very many rows, and one who is
replaced by such a one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sfumato.domain.attributes import Category, Integer, Value
from sfumato.domain.column_kinds import OpenKind
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import RangeGrid
from sfumato.planning.discovery_plans import bound_law
from sfumato.privacy.budget import Budget
from sfumato.privacy.discovery_laws import KeyLaw, OptimalKeys, RangeLaw, gaussian_keys, range_law
from sfumato.random import WordSource, integers_below
from sfumato.run.discover import (
    DiscoveryPlan,
    DiscoveryRun,
    KindSearch,
    drawn,
    kind_searches,
    plan_discovery,
)
from sfumato.types import Array, Integers
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.searches import (
    RangePlaces,
    noisy_classes,
    published_numbers,
    read_bounds,
    read_classes,
    search_bound,
    search_range,
)
from sfumato.vault.tables import open_table
from sfumato_audit.examine import Claim, Pair, Sampler, Score, Subject

__all__ = [
    "KEY_LAW",
    "Cells",
    "People",
    "Publishing",
    "Texts",
    "bound_subjects",
    "broken_bound_subjects",
    "broken_kind_subjects",
    "broken_range_subjects",
    "key_subject",
    "key_subjects",
    "kind_subjects",
    "range_subjects",
]


People = tuple[int, ...]
Publishing = Callable[[Integers, KeyLaw, WordSource], tuple[Integers, Integers]]

KEY_LAW = OptimalKeys(Fraction(1), Fraction(1, 50), 1)
SLOW = 1000
ROWS = 3  # keys of one person, at most
KEYS = "sfumato.vault.mechanisms.searches"

_ONE = (
    Pair("a key of one person, or no such key", (1, 3), (0, 3)),
    Pair("a key near the threshold", (4, 0), (3, 0)),
    Pair("a key above the threshold", (9, 2), (8, 2)),
)
_SEVERAL = (
    Pair("three keys of one person, or no such keys", (1, 1, 1), (0, 0, 0)),
    Pair("three keys near the threshold", (9, 9, 9), (8, 8, 8)),
    Pair("a new key, and two that grow", (1, 20, 9), (0, 19, 8)),
)


def key_subjects() -> tuple[Subject[People], ...]:
    """Both laws, with one key a person and with several, and a discovery from end to end."""
    several = OptimalKeys(Fraction(1, 2), Fraction(1, 100), ROWS)
    gaussian = gaussian_keys(Fraction(1), Fraction(1, 50), ROWS, ROWS)
    return (
        key_subject("keys: optimal", KEY_LAW),
        key_subject("keys: optimal, several of a person", several, _SEVERAL),
        key_subject("keys: gaussian, several of a person", gaussian, _SEVERAL),
        _discovery("keys: a discovery of people", PrivacyUnit("who", 1)),
    )


def key_subject(
    name: str,
    law: KeyLaw,
    pairs: tuple[Pair[People], ...] = _ONE,
    publishing: Publishing = published_numbers,
    *,
    is_broken: bool = False,
) -> Subject[People]:
    """Keys with these numbers of people, all runs at once."""

    def sampler(people: People) -> Sampler:
        every = np.array(people, dtype=np.int64)
        (there,) = np.nonzero(every)
        numbers = every[there]

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, len(people)), np.nan)
            places, noisy = publishing(np.tile(numbers, runs), law, source)
            out[places // there.size, there[places % there.size]] = noisy
            return out

        def nothing(runs: int, source: WordSource) -> Array:
            del source
            return np.full((runs, len(people)), np.nan)

        return run if there.size else nothing

    covers = frozenset({f"{KEYS}.published_numbers", "cost:ApproximatePart"})
    return Subject(
        name, Claim.of(law.cost), pairs, sampler, covers, hint=_new_keys, is_broken=is_broken
    )


def _new_keys(pair: Pair[People]) -> Score:
    """How many keys are published that only one of the two tables has."""
    new = [i for i, (a, b) in enumerate(zip(pair.left, pair.right, strict=True)) if a and not b]
    return lambda outputs: np.sum(~np.isnan(outputs[:, new]), axis=1).astype(np.float64)


def _discovery(name: str, unit: PrivacyUnit) -> Subject[People]:
    """A whole discovery of two words, from the rows of a table on."""
    plan = plan_discovery(Category.discover("word"), Budget(1, "0.05"), unit=unit)
    covers = {f"{KEYS}.ExactKeys.published", "sfumato.run.discover.drawn"}
    return Subject(
        name,
        Claim.of(plan.cost),
        _ONE[:1],
        lambda people: _discovering(plan, people),
        frozenset(covers),
        hint=_new_keys,
        slowness=SLOW,
    )


def _discovering(plan: DiscoveryPlan, people: People) -> Sampler:
    import pandas as pd

    words = [f"w{i}" for i, number in enumerate(people) for _ in range(number)]
    rows = pd.DataFrame({"word": pd.array(words, dtype="string"), "who": range(len(words))})
    exact = DiscoveryRun(plan).count(open_table(rows), None)

    def run(runs: int, source: WordSource) -> Array:
        out = np.full((runs, len(people)), np.nan)
        for i in range(runs):
            (findings,) = json.loads(drawn(plan, exact, source))["findings"]
            for (key,), number in zip(findings["keys"], findings["numbers"], strict=True):
                out[i, int(key[1:])] = number
        return out

    return run


Texts = tuple[str, ...]
Sizes = Callable[[Texts], Sequence[int]]

KIND_EPSILON = Fraction(1)
KIND_SLOW = 20
COLUMN: Texts = ("7", "1", "2.5", "2020-01-31", "yes", "none", "")
KIND_PAIRS: tuple[Pair[Texts], ...] = (
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
    (search,) = kind_searches([OpenKind(("x",))], KIND_EPSILON, Fraction(0), "add-remove", None)
    return search


def _kind_subject(name: str, sizes: Sizes, is_broken: bool = False) -> Subject[Texts]:
    claim = Claim.of(_search().cost)

    def sampler(texts: Texts) -> Sampler:
        law = _search().law
        exact = Sensitive(np.array(sizes(texts), dtype=np.int64))

        def run(runs: int, source: WordSource) -> Array:
            rows = [noisy_classes(exact, law, source) for _ in range(runs)]
            return np.array(rows, dtype=np.float64)

        return run

    covered = {f"{KEYS}.noisy_classes", "sfumato.run.discover.kind_searches"}
    covers = frozenset() if is_broken else frozenset(covered)
    random_pair = None if is_broken else _random_texts
    return Subject(
        name,
        claim,
        KIND_PAIRS,
        sampler,
        covers,
        random_pair,
        slowness=KIND_SLOW,
        is_broken=is_broken,
    )


def _random_texts(source: WordSource) -> Pair[Texts]:
    several = tuple(COLUMN[i] for i in integers_below(len(COLUMN), 5, source).tolist())
    one = COLUMN[int(integers_below(len(COLUMN), 1, source)[0])]
    return Pair(f"at random: {one!r} more", several, (*several, one))


def kind_subjects() -> tuple[Subject[Texts], ...]:
    """The vote between files of one row's distance."""
    return (_kind_subject("kind of a column", _classes),)


def broken_kind_subjects() -> tuple[Subject[Texts], ...]:
    """Classes that are not apart: one row moves several sizes."""
    title = "kind of a column: a value counts in every class that it can be read as"
    return (_kind_subject(title, _every_reading, is_broken=True),)


Cells = tuple[int, ...]
Searched = Callable[[Cells, RangeLaw, WordSource], RangePlaces]

RANGE_EPSILON = Fraction(2)
RANGE_SLOW = 60
RANGE_PAIRS: tuple[Pair[Cells], ...] = (
    Pair("empty, or one record at the end", (0, 0, 0, 0, 0), (0, 0, 0, 0, 1)),
    Pair("one more beyond the crowd", (2, 0, 9, 0, 2), (2, 0, 9, 0, 3)),
    Pair("one more below the crowd", (3, 0, 9, 0, 2), (2, 0, 9, 0, 2)),
    Pair("one more on one side of the median", (0, 8, 0, 8, 0), (0, 8, 0, 9, 0)),
    Pair("one more in the crowd", (1, 2, 9, 2, 1), (1, 2, 10, 2, 1)),
)


@dataclass(frozen=True)
class _FewCells(RangeGrid):
    """The numbers 0 to 4, a cell each."""

    @property
    def attribute(self) -> Integer:
        """Five cells."""
        return Integer(self.name, 0, 4, outside="clamp", nulls="missing")

    def outward(self, middle: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Every edge."""
        return tuple(range(middle, -1, -1)), tuple(range(middle + 1, self.cells + 1))

    def value(self, edge: int) -> int:
        """The number itself."""
        return edge

    def closed(self, low: Value, high: Value, bins: int) -> Integer:
        """All cells: nothing is asked about the range."""
        del low, high, bins
        return self.attribute

    @property
    def default(self) -> tuple[Value, Value]:
        """All cells."""
        return 0, self.cells


GRID = _FewCells("x")


def _sound(cells: Cells, law: RangeLaw, source: WordSource) -> RangePlaces:
    return search_range(Sensitive(np.array(cells, dtype=np.int64)), GRID, law, source)


def _range_subject(
    name: str, law: RangeLaw, claim: Claim, searched: Searched, is_broken: bool = False
) -> Subject[Cells]:
    def sampler(cells: Cells) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            places = (searched(cells, law, source) for _ in range(runs))
            rows = [(p.number, p.middle, p.low, p.high) for p in places]
            return np.array(rows, dtype=np.float64)

        return run

    covers = frozenset() if is_broken else frozenset({f"{KEYS}.search_range"})
    random_pair = None if is_broken else _random_cells
    return Subject(
        name,
        claim,
        RANGE_PAIRS,
        sampler,
        covers,
        random_pair,
        slowness=RANGE_SLOW,
        is_broken=is_broken,
    )


def _random_cells(source: WordSource) -> Pair[Cells]:
    numbers = integers_below(8, GRID.cells, source).tolist()
    cell = int(integers_below(GRID.cells, 1, source)[0])
    more = tuple(n + (i == cell) for i, n in enumerate(numbers))
    return Pair(f"at random: one more in cell {cell}", tuple(numbers), more)


def range_subjects() -> tuple[Subject[Cells], ...]:
    """The search for a range between records, and between tables of two records' distance."""
    law = range_law(RANGE_EPSILON, tails=Fraction(1, 10))
    pairs = range_law(RANGE_EPSILON, moves=2, tails=Fraction(1, 10))
    replaced = tuple(
        Pair(f"{p.name}, and one in another cell", (p.left[0] + 1, *p.left[1:]), p.right)
        for p in RANGE_PAIRS
    )
    both = _range_subject(
        "range of a column, replaced records", pairs, Claim.of(pairs.cost), _sound
    )
    return (
        _range_subject("range of a column", law, Claim.of(law.cost), _sound),
        replace(both, pairs=replaced, random_pair=None),
    )


def broken_range_subjects() -> tuple[Subject[Cells], ...]:
    """A middle at forty times its rate, and walks that compare exact counts."""
    law = range_law(RANGE_EPSILON, tails=Fraction(1, 10))
    claim = Claim.of(law.cost)
    hasty = replace(law, rate=40 * law.rate)
    title = "range: ranks of the middle counted as if they moved by a fortieth"
    return (
        _range_subject(title, hasty, claim, _sound, is_broken=True),
        _range_subject(
            "range: the walks draw no noise", law, claim, _without_noise, is_broken=True
        ),
    )


def _without_noise(cells: Cells, law: RangeLaw, source: WordSource) -> RangePlaces:
    """The ends where the exact counts fall below the noisy threshold of the number alone."""
    places = _sound(cells, law, source)
    before = np.concatenate([[0], np.cumsum(cells)])
    below, above = GRID.outward(places.middle)
    threshold = law.threshold(places.number)
    low = next((e for e in below if before[e] <= threshold), below[-1])
    high = next((e for e in above if before[-1] - before[e] <= threshold), above[-1])
    return replace(places, low=low, high=high)


Beyond = Callable[[People], Integers]

BOUND_EPSILON = Fraction(1)
BOUND_SLOW = 40
BOUNDS = PrivacyUnit.discover("who", persons=2, most=64)
BOUND_PAIRS: tuple[Pair[People], ...] = (
    Pair("one person more, with very many rows", (1, 2, 3, 5), (1, 2, 3, 5, 5000)),
    Pair("one person more, with one row", (1, 9, 9), (1, 1, 9, 9)),
    Pair("a person of one row replaced by one of many", (1, 2, 3, 4), (5000, 2, 3, 4)),
)


@cache
def _beyond(people: People) -> Integers:
    """How many persons have more rows than each bound, as the vault counts them."""
    import pandas as pd

    rows = pd.DataFrame({"who": np.repeat(np.arange(len(people)), people)})
    return read_bounds(open_table(rows), "who", BOUNDS.grid[:-1]).reveal()


def _rows_beyond(people: People) -> Integers:
    """How many rows would be left out by each bound: those of one person have no bound."""
    sizes = np.array(people, dtype=np.int64)
    left_out = [np.maximum(sizes - bound, 0).sum() for bound in BOUNDS.grid[:-1]]
    return np.array(left_out, dtype=np.int64)


def _bound_subject(name: str, beyond: Beyond, is_broken: bool = False) -> Subject[People]:
    law = bound_law(BOUND_EPSILON, len(BOUNDS.grid) - 1)

    def sampler(people: People) -> Sampler:
        exact = Sensitive(beyond(people))

        def run(runs: int, source: WordSource) -> Array:
            places = [search_bound(exact, BOUNDS.persons, law, source) for _ in range(runs)]
            return np.array([[-1 if p is None else p] for p in places], dtype=np.float64)

        return run

    return Subject(
        name,
        Claim.of(law.cost),
        BOUND_PAIRS,
        sampler,
        frozenset() if is_broken else frozenset({f"{KEYS}.search_bound"}),
        None if is_broken else _random_people,
        slowness=BOUND_SLOW,
        is_broken=is_broken,
    )


def _random_people(source: WordSource) -> Pair[People]:
    sizes = tuple(1 + n for n in integers_below(12, 5, source).tolist())
    one = 1 + int(integers_below(100, 1, source)[0])
    return Pair(f"at random: a person of {one} rows more", sizes, (*sizes, one))


def bound_subjects() -> tuple[Subject[People], ...]:
    """The search for a bound, between tables that differ in all rows of one person."""
    return (_bound_subject("bound on the rows of a person", _beyond),)


def broken_bound_subjects() -> tuple[Subject[People], ...]:
    """A walk that looks at rows: those of one person move it as far as they are many."""
    title = "bound: the rows that are left out, not the persons"
    return (_bound_subject(title, _rows_beyond, is_broken=True),)
