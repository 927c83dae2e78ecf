# SPDX-License-Identifier: Apache-2.0
"""On every engine one person moves the counts by no more than the privacy unit says.

Neighbours of the source: all rows of one person are added, removed or replaced in the stored table,
and both tables are counted under the same key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.types import Integers
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.searches import read_bounds
from sfumato.vault.tables import open_table
from tests.shared.engine_tables import on_all_engines
from tests.shared.words import SeededWords

DOMAIN = Domain(
    [
        Integer("day", 0, 5, outside="other", nulls="missing"),
        Category("act", ("a", "b"), outside="drop"),
        Integer("hour", 0, 2, outside="clamp", nulls="first"),
    ]
)
UNITS = (
    PrivacyUnit("person", 3),
    PrivacyUnit("person", groups=2, rows_per_group=2, by="day"),
    PrivacyUnit("person", rows=4, groups=3, rows_per_group=2, by=("day", "hour")),
)
BOUNDS = (1, 2, 3, 5, 8, 100)
Row = tuple[int | None, int | None, str, int | None]


def rows(person: st.SearchStrategy[int | None], most: int) -> st.SearchStrategy[list[Row]]:
    day = st.none() | st.integers(-1, 7)
    act, hour = st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 3)
    return st.lists(st.tuples(person, day, act, hour), max_size=most)


def stored(people: list[Row]) -> pa.Table:
    columns = list(zip(*people, strict=True)) or [(), (), (), ()]
    kinds = {"person": pa.int64(), "day": pa.int64(), "act": pa.string(), "hour": pa.int64()}
    return pa.table({n: pa.array(c, k) for (n, k), c in zip(kinds.items(), columns, strict=True)})


def histogram(source: object, unit: PrivacyUnit, key: str = "a key") -> Integers:
    table = open_table(source)
    read_records(table, DOMAIN, DOMAIN.names, unit, SeededWords(key))
    return count_marginals(table, DOMAIN, [DOMAIN.names], unit).reveal(DOMAIN.names)


def is_within(moved: Integers, unit: PrivacyUnit) -> bool:
    """Whether one person can have added these counts."""
    others = tuple(i for i, n in enumerate(DOMAIN.names) if n not in unit.by)
    by_group = moved.sum(axis=others) if unit.by else moved
    groups = moved.size if unit.groups is None else unit.groups
    each = unit.rows if unit.rows_per_group is None else unit.rows_per_group
    return bool(
        (moved >= 0).all()
        and moved.sum() <= unit.rows
        and (by_group > 0).sum() <= groups
        and by_group.max() <= each
    )


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    others=rows(st.none() | st.integers(2, 4), 20),
    one=rows(st.just(1), 25),
    two=rows(st.just(1), 25),
    place=st.integers(0, 20),
    unit=st.sampled_from(UNITS),
)
def test_one_person_moves_the_counts_within_the_bounds(others, one, two, place, unit):
    """Added, removed or replaced: both tables are within the bounds of the table without them."""
    without = histogram(stored(others), unit)
    for own in (one, two):
        added = histogram(stored([*others[:place], *own, *others[place:]]), unit)
        assert is_within(added - without, unit)


def more_than(source: object) -> Integers:
    """How many persons have more rows than each bound."""
    return read_bounds(open_table(source), "person", BOUNDS).reveal()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(others=rows(st.none() | st.integers(2, 4), 20), one=rows(st.just(1), 25), many=st.booleans())
def test_one_person_moves_every_number_of_persons_by_one_in_one_direction(others, one, many):
    """Added, removed or replaced, with however many rows: the scores of a bound are monotone."""
    own = one * 20 if many else one
    without, added = more_than(stored(others)), more_than(stored([*others, *own]))
    moved = added - without
    assert set(moved.tolist()) <= {0, 1}
    assert moved.sum() == sum(len(own) > bound for bound in BOUNDS)
    replaced = more_than(stored([*others, (1, 0, "a", 0), *one])) - added
    assert len({-1, 1} & set(replaced.tolist())) <= 1
    assert np.abs(replaced).max() <= 1


def test_rows_in_place_of_persons_move_further():
    """The twin: rows beyond the bounds, which one person moves as far as they have rows."""
    sizes = np.array([1, 2, 3]), np.array([1, 2, 3, 500])
    beyond = [np.maximum(n[:, None] - np.array(BOUNDS), 0).sum(axis=0) for n in sizes]
    assert (beyond[1] - beyond[0]).max() > 1


def sample(unit_rows: int, seed: int) -> list[Row]:
    some = np.random.default_rng(seed)
    persons = [*some.integers(2, 9, 60).tolist(), *([1] * unit_rows)]
    days = some.integers(-1, 7, len(persons)).tolist()
    acts = some.choice(["a", "b", "c"], len(persons)).tolist()
    hours = some.integers(0, 3, len(persons)).tolist()
    mixed = list(zip(persons, days, acts, hours, strict=True))
    return [mixed[i] for i in some.permutation(len(mixed))]


@pytest.fixture(scope="module")
def pairs(postgres, tmp_path_factory):
    """A table with a person of many rows, without them, and with other rows of theirs."""
    folder, whole, other = tmp_path_factory.mktemp("pairs"), sample(200, 1), sample(150, 2)
    without = [row for row in whole if row[0] != 1]
    replaced = [*without, *(row for row in other if row[0] == 1)]
    tables = {"whole": whole, "without": without, "replaced": replaced}
    return {
        name: on_all_engines(stored(table), f"unit_{name}", postgres, folder)
        for name, table in tables.items()
    }


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_every_engine_counts_the_same_rows_of_a_person_within_the_bounds(pairs, unit):
    counts = {
        name: {engine: histogram(source, unit) for engine, source in sources.items()}
        for name, sources in pairs.items()
    }
    for by_engine in counts.values():
        for engine in ("postgres", "spark"):
            np.testing.assert_array_equal(by_engine[engine], by_engine["duckdb"])
    for name in ("whole", "replaced"):
        moved = counts[name]["duckdb"] - counts["without"]["duckdb"]
        assert is_within(moved, unit)
        assert moved.sum() == unit.rows  # a person of 150 rows fills all bounds


@pytest.mark.usefixtures("spark")
def test_every_engine_counts_the_same_persons_beyond_bounds(pairs):
    for sources in pairs.values():
        numbers = {engine: more_than(source).tolist() for engine, source in sources.items()}
        assert len(set(map(tuple, numbers.values()))) == 1
        assert numbers["duckdb"][0] > 0


def test_the_twin_that_bounds_rows_alone_is_caught():
    """As many rows, but in any groups: the property above would see it."""
    unit = UNITS[1]
    rows_only = PrivacyUnit(unit.column, unit.rows)
    whole = sample(200, 1)
    without = [row for row in whole if row[0] != 1]
    caught = 0
    for key in map(str, range(5)):
        moved = histogram(stored(whole), rows_only, key) - histogram(
            stored(without), rows_only, key
        )
        caught += not is_within(moved, unit)
    assert caught >= 4


def test_groups_are_chosen_at_random_and_evenly():
    """Each of 6 days is one of the 2 of a person for a third of 900 persons: 300, +-5 sigma."""
    own = [(p, day, "a", 0) for p in range(900) for day in range(6) for _ in range(3)]
    days = histogram(stored(own), UNITS[1]).sum(axis=(1, 2))
    assert days.sum() == 900 * UNITS[1].rows
    assert (np.abs(days[:6] / 2 - 300) < 5 * np.sqrt(900 * (1 / 3) * (2 / 3))).all()


def test_a_person_with_a_million_rows_is_bounded_like_any_other():
    some = np.random.default_rng(5)
    table = pa.table(
        {
            "person": np.repeat([1, 2], [10**6, 10]),
            "day": some.integers(0, 6, 10**6 + 10),
            "act": pa.array(["a"] * (10**6 + 10)),
            "hour": np.zeros(10**6 + 10, dtype=np.int64),
        }
    )
    counts = histogram(table, UNITS[1])
    assert counts.sum() <= 2 * UNITS[1].rows
    assert counts.sum() >= UNITS[1].rows
