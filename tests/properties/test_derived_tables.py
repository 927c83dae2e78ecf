# SPDX-License-Identifier: Apache-2.0
"""Features of persons and joins with public tables: as by hand, and alike on every engine."""

from __future__ import annotations

import math
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import TableError
from sfumato.types import Integers
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import name_of, open_table
from tests.shared.engine_tables import on_all_engines

FEATURES = {
    "visits": sf.Feature("count"),
    "points": sf.Feature("sum", "points"),
    "most": sf.Feature("max", "points"),
    "least": sf.Feature("min", "weight"),
    "since": sf.Feature("min", "day"),
    "first_city": sf.Feature("first", "city", order="day"),
    "last_city": sf.Feature("last", "city", order="day"),
    "last_points": sf.Feature("last", "points", order="weight"),
}
KEPT = {"outside": "other", "nulls": "missing"}
PERSONS = Domain(
    [
        Integer("visits", 1, 9, **KEPT),
        Integer("points", -5, 40, **KEPT),
        Integer("most", -3, 9, **KEPT),
        Numeric("least", (0.0, 1.0, 2.0, 3.0), **KEPT),
        DateTime("since", date(2024, 1, 1), date(2024, 1, 6), "day", **KEPT),
        Category("first_city", ("Aa", "bb", "c"), **KEPT),
        Category("last_city", ("Aa", "bb", "c"), **KEPT),
        Integer("last_points", -3, 9, **KEPT),
    ]
)
Row = tuple[int | None, int | None, float | None, date | None, str | None]
KINDS = {
    "person": pa.int64(),
    "points": pa.int64(),
    "weight": pa.float64(),
    "day": pa.date32(),
    "city": pa.string(),
}


def rows(person: st.SearchStrategy[int | None], most: int) -> st.SearchStrategy[list[Row]]:
    days = st.integers(0, 5).map(lambda d: date(2024, 1, 1) + timedelta(days=d))
    return st.lists(
        st.tuples(
            person,
            st.none() | st.integers(-3, 9),
            st.none() | st.sampled_from([0.0, 0.5, 1.5, 2.5, math.nan]),
            st.none() | days,
            st.none() | st.sampled_from(["Aa", "bb", "c"]),
        ),
        max_size=most,
    )


def stored(people: list[Row]) -> pa.Table:
    columns = list(zip(*people, strict=True)) or [()] * 5
    return pa.table({n: pa.array(c, k) for (n, k), c in zip(KINDS.items(), columns, strict=True)})


def by_hand(people: list[Row]) -> list[dict[str, object]]:
    """One row for every person, by plain Python."""

    def edge(own: list[Row], value: int, order: int, is_last: bool) -> object:
        there = [
            (r[order], r[value])
            for r in own
            if r[value] is not None and r[order] is not None and r[order] == r[order]
        ]
        if not there:
            return None
        turn = (max if is_last else min)(o for o, _ in there)
        return min(v for o, v in there if o == turn)

    out = []
    for person in sorted({r[0] for r in people if r[0] is not None}):
        own = [r for r in people if r[0] == person]
        points = [r[1] for r in own if r[1] is not None]
        weights = [r[2] for r in own if r[2] is not None and not math.isnan(r[2])]
        days = [r[3] for r in own if r[3] is not None]
        out.append(
            {
                "visits": len(own),
                "points": sum(points) if points else None,
                "most": max(points, default=None),
                "least": min(weights, default=None),
                "since": min(days, default=None),
                "first_city": edge(own, 4, 3, False),
                "last_city": edge(own, 4, 3, True),
                "last_points": edge(own, 1, 2, True),
            }
        )
    return out


SETS = [(name,) for name in PERSONS.names] + [("visits", "last_city"), ("since", "last_points")]


def counted(source: object, domain: Domain = PERSONS) -> list[Integers]:
    counts = count_marginals(open_table(source), domain, SETS)
    return [counts.reveal(names) for names in SETS]


def expected(people: list[Row]) -> list[Integers]:
    frame = pd.DataFrame(by_hand(people), columns=list(PERSONS.names))
    kinds = [pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.date32()]
    kinds += [pa.string(), pa.string(), pa.int64()]
    made = {
        n: pa.array([None if pd.isna(v) else v for v in frame[n].tolist()], k)
        for n, k in zip(frame.columns, kinds, strict=True)
    }
    return counted(pa.table(made))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(people=rows(st.none() | st.integers(1, 4), 25), seed=st.integers(0, 99))
def test_features_are_those_of_a_count_by_hand_whatever_the_order_of_rows(people, seed):
    mixed = [people[i] for i in np.random.default_rng(seed).permutation(len(people))]
    source = sf.FeatureSource(stored(mixed), "person", FEATURES)
    for one, two in zip(counted(source), expected(people), strict=True):
        np.testing.assert_array_equal(one, two)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(others=rows(st.integers(2, 4), 15), own=rows(st.just(1), 15))
def test_one_person_with_any_rows_moves_one_row_of_the_table_of_persons(others, own):
    one, two = (
        counted(sf.FeatureSource(stored(table), "person", FEATURES))
        for table in (others, [*others, *own])
    )
    for before, after in zip(one, two, strict=True):
        assert (after - before).sum() == (1 if own else 0)
        assert (after >= before).all()


def sample() -> list[Row]:
    some = np.random.default_rng(8)

    def any_of(values: list) -> object:
        return values[some.integers(len(values))]

    days = [None, *(date(2024, 1, 1) + timedelta(days=d) for d in range(6))]
    return [
        (
            any_of([None, *range(40)]),
            any_of([None, *range(-3, 10)]),
            any_of([None, 0.0, 0.5, 1.5, 2.5, math.nan]),
            any_of(days),
            any_of([None, "Aa", "bb", "c"]),
        )
        for _ in range(200)
    ]


@pytest.mark.usefixtures("spark")
def test_every_engine_makes_the_same_persons_and_the_same_joins(postgres, tmp_path):
    people = sample()
    regions = pa.table({"city": ["Aa", "bb"], "zone": ["north", "south"], "rank": [1, 2]})
    zones = Domain([Category("zone", ("north", "south"), **KEPT), Integer("rank", 0, 3, **KEPT)])
    joined = {}
    for engine, source in on_all_engines(stored(people), "derived", postgres, tmp_path).items():
        made = counted(sf.FeatureSource(source, "person", FEATURES))
        for one, two in zip(made, expected(people), strict=True):
            np.testing.assert_array_equal(one, two, err_msg=engine)
        table = open_table(sf.JoinSource(source, regions, "city", ["zone", "rank"]))
        joined[engine] = count_marginals(table, zones, [("zone", "rank")]).reveal(("zone", "rank"))
    for counts in joined.values():
        cities = [row[4] for row in people]
        assert counts.sum() == len(people)
        assert counts[0].sum() == counts[0, 1] == cities.count("Aa")
        assert counts[1, 2] == cities.count("bb")
        assert counts[3, 5] == cities.count("c") + cities.count(None)  # unmatched: null


def test_csv_files_have_features_and_joins_too(tmp_path):
    """A person's rows lie in several blocks of a file; keys are texts without blanks around."""
    people = [row for row in sample() if row[2] is None or not math.isnan(row[2])]
    frame = stored(people).to_pandas()
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    features = FEATURES | {"since": sf.Feature("first", "day", order="day")}
    made = counted(sf.FeatureSource(str(path), "person", features))
    for one, two in zip(made, expected(people), strict=True):
        np.testing.assert_array_equal(one, two)
    public = tmp_path / "regions.csv"
    public.write_text("city,zone\nAa,north\nbb,south\n")
    table = open_table(sf.JoinSource(str(path), str(public), "city", ["zone"]))
    zones = Domain([Category("zone", ("north", "south"), **KEPT)])
    counts = count_marginals(table, zones, [("zone",)]).reveal(("zone",))
    cities = [row[4] for row in people]
    assert counts.tolist()[:2] == [cities.count("Aa"), cities.count("bb")]
    assert counts.sum() == len(people)


def test_a_key_that_stands_twice_is_refused_and_would_repeat_records():
    """The twin: without the check a record is counted twice."""
    people = stored([(1, 1, 1.0, None, "Aa")])
    twice = pa.table({"city": ["Aa", "Aa"], "zone": ["north", "south"]})
    source = sf.JoinSource(people, twice, "city", ["zone"])
    with pytest.raises(TableError, match="'Aa' in 'city' more than once"):
        open_table(source)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t: sf.JoinSource(t, pa.table({"city": ["a"]}), "city", ["zone"]), "lacks 'zone'"),
        (
            lambda t: sf.JoinSource(t, pa.table({"city": [None], "zone": ["a"]}), "city", ["zone"]),
            "must hold texts|without 'city'",
        ),
        (lambda t: sf.JoinSource(t, pa.table({"cty": ["a"]}), "cty", ["zone"]), "did you mean"),
        (
            lambda t: sf.JoinSource(t, pa.table({"city": ["a"], "day": [1]}), "city", ["day"]),
            "has 'day' already",
        ),
        (
            lambda t: sf.JoinSource(t, pa.table({"day": ["a"], "z": [1]}), "day", ["z"]),
            "must hold texts or whole numbers",
        ),
        (lambda t: sf.JoinSource(t, 5, "city", ["zone"]), "CSV or Parquet file"),
        (lambda t: sf.JoinSource(t, "nowhere.csv", "city", ["zone"]), "is not there"),
        (lambda t: sf.FeatureSource(t, "persn", FEATURES), "did you mean 'person'"),
        (lambda t: sf.FeatureSource(t, "person", {"a": sf.Feature("sum", "weight")}), "not exact"),
        (
            lambda t: sf.FeatureSource(t, "person", {"a": sf.Feature("max", "city")}),
            "which is of type string",
        ),
        (
            lambda t: sf.FeatureSource(
                t, "person", {"a": sf.Feature("last", "city", order="city")}
            ),
            "must be numbers, dates or times",
        ),
        (lambda t: sf.FeatureSource(t, "person", {"person": sf.Feature("count")}), "rename it"),
        (lambda t: sf.FeatureSource(t, "person", {}), "features are named"),
        (lambda _: sf.Feature("mean", "x"), "a feature is count, sum"),
        (lambda _: sf.Feature("last", "x"), "needs order"),
        (lambda _: sf.Feature("count", "x"), "takes no column"),
        (lambda _: sf.Feature("max", "x", order="y"), "takes no order"),
    ],
)
def test_what_cannot_be_derived_is_refused_before_any_row_is_read(make, words):
    with pytest.raises(TableError, match=words):
        open_table(make(stored([])))


def test_large_sums_are_clamped_and_never_fail():
    table = pa.table({"person": [1] * 4, "x": pa.array([2**62] * 4, pa.int64())})
    source = sf.FeatureSource(table, "person", {"x": sf.Feature("sum", "x")})
    domain = Domain([Integer("x", 0, 9, outside="clamp")])
    assert count_marginals(open_table(source), domain, [("x",)]).reveal(("x",))[-1] == 1


def test_other_features_are_another_table_of_the_ledger_and_a_join_is_the_same():
    one = sf.FeatureSource("visits.parquet", "person", {"a": sf.Feature("count")})
    two = sf.FeatureSource("visits.parquet", "person", {"a": sf.Feature("max", "x")})
    assert name_of(one) != name_of(two)
    assert "visits.parquet" in str(name_of(one))
    joined = sf.JoinSource("visits.parquet", pa.table({"k": ["a"], "z": ["b"]}), "k", ["z"])
    assert name_of(joined) == name_of("visits.parquet")


def test_a_release_of_features_has_the_counts_of_persons():
    people = sample()
    source = sf.FeatureSource(stored(people), "person", FEATURES)
    work, unit = sf.marginals(PERSONS, [["visits"]]), sf.PrivacyUnit("person", 1)
    release = sf.plan(work, sf.Budget(rho=10**6), unit=unit).release(source)
    wanted = np.asarray(expected(people)[0]).reshape(-1)
    np.testing.assert_allclose(release.answers()["value"], wanted, atol=0.1)


def test_the_bound_on_rows_can_be_chosen_privately():
    """Near the power of two that 95% of persons stay below, of geometric numbers of mean 5: 16."""
    some = np.random.default_rng(1)
    owners = np.repeat(np.arange(5000), some.geometric(0.2, 5000))
    powers = [2**k for k in range(11)]
    grid = sf.Domain([Numeric("rows", (1.0, *(p + 1.0 for p in powers)), outside="clamp")])
    source = sf.FeatureSource(
        pd.DataFrame({"person": owners}), "person", {"rows": FEATURES["visits"]}
    )
    choice = sf.plan_selection(
        sf.prefixes(grid, "rows"),
        sf.Budget(epsilon=0.1),
        nearest=0.95,
        unit=sf.PrivacyUnit("person", 1),
    )
    # 16 rows or fewer have 97.2%, 110 persons from 95%; the next best, 8, 83.2%, 590 persons: 480
    # apart, exp(-0.06 * 480) times as likely, for the plan says 87 with probability 0.95.
    assert choice.release(source).best.name == "rows < 17"
