# SPDX-License-Identifier: Apache-2.0
"""Exact counts, checked against pandas and numpy, and what is refused before counting."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError, TooLarge, WorkloadError
from sfumato.vault import count as counting
from sfumato.vault.count import compile_condition, count_conditions, count_marginals
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.tables import Table, open_table
from sfumato.workload import workload as workloads
from sfumato.workload.predicates import And, Everything, In, Not, Or
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS
from tests.shared.vault_reference import SOURCES, make_source
from tests.shared.words import SeededWords

REGION = Level("region", ("north", "south"), (0, 1, 1))
DOMAIN = Domain(
    [
        Integer("age", 0, 99, 10, outside="clamp"),
        Category("town", ("a", "b", "c"), outside="other", levels=(REGION,)),
        Boolean("employed", nulls="missing"),
        Numeric("income", (0, 10, 100, 1000)),
    ]
)


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income = rng.choice([0.0, 9.999, 10.0, 50.0, 1000.0, 1000.5, np.nan], rows)
    employed = rng.choice([True, False, None], rows)
    return pd.DataFrame(
        {
            "age": rng.integers(-20, 140, rows),
            "town": rng.choice(["a", "b", "c", "d", "A"], rows),
            "employed": pd.array(employed, dtype="boolean"),
            "income": income,
        }
    )


def pandas_codes(rows: pd.DataFrame) -> pd.DataFrame:
    """The same cells as DOMAIN says, in pandas."""
    codes = pd.DataFrame(
        {
            "age": (rows.age.clip(0, 99) // 10).astype(int),
            "town": rows.town.map({"a": 0, "b": 1, "c": 2}).fillna(3).astype(int),
            "employed": rows.employed.astype(object).map({False: 0, True: 1}).fillna(2).astype(int),
            "income": pd.cut(
                rows.income, [0, 10, 100, np.nextafter(1000, 2000)], right=False
            ).cat.codes,
        }
    )
    return codes[codes.income >= 0]


def pandas_counts(codes: pd.DataFrame, names: tuple[str, ...]) -> np.ndarray:
    shape = [DOMAIN[name].size for name in names]
    out = np.zeros(shape, dtype=np.int64)
    for cell, number in codes.groupby(list(names)).size().items():
        out[cell] = number
    return out


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return frame(5000)


@pytest.mark.parametrize("kind", SOURCES)
def test_marginals_agree_with_pandas_from_every_source(kind, people, tmp_path):
    source = make_source(kind, pa.Table.from_pandas(people), tmp_path)
    sets = [names for ways in (1, 2, 4) for names in combinations(DOMAIN.names, ways)]
    counts = count_marginals(open_table(source), DOMAIN, [*sets, ()])
    codes = pandas_codes(people)
    assert counts.attribute_sets == (*sets, ())
    for names in sets:
        table = counts.reveal(names)
        assert table.dtype == np.int64
        assert not table.flags.writeable
        np.testing.assert_array_equal(table, pandas_counts(codes, names), strict=True)
    assert counts.reveal(()).shape == ()
    assert int(counts.reveal(())) == len(codes)


def test_a_table_without_rows_counts_to_zero():
    none = pa.Table.from_pandas(frame(1)).slice(0, 0)
    counts = count_marginals(open_table(none), DOMAIN, [("age", "town"), ("income",), ()])
    assert counts.reveal(("age", "town")).tolist() == np.zeros((10, 4)).tolist()
    assert counts.reveal(()) == 0
    only_total = count_marginals(open_table(none), DOMAIN, [()])
    assert only_total.reveal(()) == 0
    assert count_conditions(open_table(none), DOMAIN, [Everything()]).reveal().tolist() == [0]


def test_the_total_alone_is_counted_when_no_attribute_can_drop_a_record():
    domain = Domain([Integer("age", 0, 9, outside="other", nulls="missing")])
    table = open_table(pa.table({"age": [1, None, 99]}))
    assert count_marginals(table, domain, [()]).reveal(()) == 3


def test_permuting_the_rows_gives_the_same_integers(people):
    sets = list(combinations(DOMAIN.names, 2))
    shuffled = people.sample(frac=1, random_state=1)
    one, other = (count_marginals(open_table(p), DOMAIN, sets) for p in (people, shuffled))
    for names in sets:
        np.testing.assert_array_equal(one.reveal(names), other.reveal(names))


def by_engine(source: object) -> Table:
    """A table whose codes are made and counted by its engine, and not from Arrow."""
    table = open_table(source)
    table._batches = None
    return table


def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    batches = DuckDB.batches

    def recorded(engine: DuckDB, query: str, *rest: object) -> object:
        seen.append(query)
        return batches(engine, query, *rest)

    monkeypatch.setattr(DuckDB, "batches", recorded)
    return seen


def test_sub_marginals_are_summed_and_only_what_is_asked_is_told(people, monkeypatch):
    monkeypatch.setattr(DuckDB, "cells_together", 40)
    seen = queries(monkeypatch)
    asked = [("age",), ("age", "town"), (), ("town",), ("employed",)]
    counts = count_marginals(by_engine(people), DOMAIN, asked)
    assert len(seen) == 1
    assert seen[0].count("GROUP BY") == 2
    codes = pandas_codes(people)
    for names in asked[:-1]:
        if names:
            np.testing.assert_array_equal(counts.reveal(names), pandas_counts(codes, names))
    with pytest.raises(WorkloadError, match="was not counted"):
        counts.reveal(("income",))


def test_a_great_marginal_is_not_summed_but_its_parts_are_scanned(people, monkeypatch):
    monkeypatch.setattr(workloads, "LIMITS", replace(WORKLOAD_LIMITS, cells_summed=20))
    monkeypatch.setattr(DuckDB, "cells_together", 20)
    seen = queries(monkeypatch)
    count_marginals(by_engine(people), DOMAIN, [("age", "town"), ("town",), ()])
    assert seen[0].count("COUNT(*)") == 2  # the total is summed from the towns


@pytest.mark.parametrize("way", ["read", "batches"])
def test_the_table_is_read_once_for_marginals_and_conditions(people, monkeypatch, way):
    read = []
    whole = getattr(Table, way)

    def recorded(table: Table, columns: list[str], **how: object) -> object:
        read.append(columns)
        return whole(table, columns, **how)

    monkeypatch.setattr(Table, way, recorded)
    table = by_engine(people) if way == "read" else open_table(people)
    count_marginals(table, DOMAIN, [("age", "town")])
    count_conditions(table, DOMAIN, [In("town", (0,))])
    count_marginals(table, DOMAIN, [("age",)])
    assert len(read) == 1
    count_conditions(table, DOMAIN, [In("employed", (0,))])
    count_marginals(table, DOMAIN, [("age", "town", "employed")])
    assert len(read) == 2


def test_many_marginals_are_counted_in_a_few_queries_and_told_of(monkeypatch):
    seen, told = queries(monkeypatch), []
    names = [f"x{i}" for i in range(14)]
    rows = pa.table({name: np.arange(50) % (i + 2) for i, name in enumerate(names)})
    domain = Domain({name: i + 2 for i, name in enumerate(names)})
    pairs = list(combinations(names, 2))
    count_marginals(by_engine(rows), domain, pairs, progress=lambda *now: told.append(now))
    assert len(seen) == 1
    scans = seen[0].count("GROUP BY")
    assert scans <= 12
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[0] == (0, scans + 1, "reading")
    assert told[-1] == (scans + 1, scans + 1, "counting")


def test_progress_goes_on_from_query_to_query(monkeypatch):
    told = []
    rows = open_table(pa.table({name: np.arange(50) % 9 for name in "abcd"}))
    monkeypatch.setattr(type(rows.engine), "marginals_per_query", 1)
    pairs = list(combinations("abcd", 2))
    domain = Domain(dict.fromkeys("abcd", 1000))  # no table holds two of the pairs
    count_marginals(rows, domain, pairs, progress=lambda *now: told.append(now))
    assert [done for done, _, _ in told] == list(range(8))
    assert {steps for _, steps, _ in told} == {7}


def test_all_pairs_of_twelve_attributes_lie_in_ten_tables():
    domain = Domain({f"x{i}": 10 for i in range(12)})
    assert len(workloads.cover(list(combinations(domain.names, 2)), domain, 10**5)) == 10


def test_every_asked_table_is_summed_from_one_that_holds_it():
    names = [f"x{i}" for i in range(9)]
    domain = Domain({name: 2 + 9 * i for i, name in enumerate(names)})
    asked = [s for ways in range(4) for s in combinations(names, ways)][::3]
    found = workloads.cover(asked, domain, DuckDB.cells_together)
    assert sorted(s for within in found.values() for s in within) == sorted(asked)
    assert all(set(s) <= set(table) for table, within in found.items() for s in within)
    large = [t for t, within in found.items() if domain.cells(t) > DuckDB.cells_together]
    assert all(found[t] == [t] for t in large)
    assert large
    assert len(found) <= len(asked) / 2


@pytest.mark.parametrize("crowd", [0, 2**40 - 1, 2**41, 2**43])
@pytest.mark.parametrize("budget", [sf.Budget(mu=1), sf.Budget(epsilon=1)])
def test_a_replaced_record_moves_no_more_than_is_paid_for_however_many_there_are(
    crowd, budget, monkeypatch
):
    """Clamped one by one, a crowded cell would stay as it is while another one moves."""
    domain = Domain([Integer("age", 0, 3, outside="clamp", nulls="missing")])
    work = sf.explicit(domain, ["age"], [[1000, 1001, 1002, 1003, 1000]])
    plan = sf.plan(work, budget, "replace-one", cache=False)
    scan = counting._scan

    def crowded(records, group):
        found = scan(records, group)
        for counts in found.values():
            counts.flat[0] += crowd
        return found

    monkeypatch.setattr(counting, "_scan", crowded)
    before, after = (
        count(open_table(pa.table({"age": ages})), domain, plan.strategy.blocks, "replace-one")
        for ages in ([0, 0, 2], [0, 3, 2])
    )
    power = 2 if plan.strategy.noise == "gaussian" else 1
    loss = Fraction(0)
    sides = (before.values.reveal(), after.values.reveal())
    for one, other, block, law in zip(*sides, plan.strategy.blocks, plan.noise, strict=True):
        step = Fraction(1, 2**block.term.fraction_bits) / Fraction(law.scale)
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        loss += sum(abs(step * (int(x) - int(y))) ** power for x, y in pairs)
    paid = plan.cost.mu_squared if power == 2 else plan.cost.pure_epsilon
    assert loss <= paid


class Untouchable(Table):
    """A table that fails the test when it is read."""

    def read(self, columns: object, **how: object) -> object:  # noqa: ARG002
        raise AssertionError(f"the table was read: {columns}")


def test_too_many_cells_are_refused_before_the_table_is_touched():
    domain = Domain({"a": 10**6, "b": 10**6, "c": 10**12})
    table = open_table(pa.table({"a": [0], "b": [0], "c": [0]}))
    blind = Untouchable(table.name, table.engine, table.types, table.untyped, lambda _: None)
    with pytest.raises(TooLarge) as caught:
        count_marginals(blind, domain, [("a",), ("a", "b"), ("b",)])
    message = str(caught.value)
    assert "1,000,002,000,000 cells (8,000,016,000,000 bytes)" in message
    assert "over a, b" in message
    assert "at most 134,217,728 (1,073,741,824 bytes)" in message
    with pytest.raises(TooLarge):
        count_marginals(blind, Domain({"a": 3, "b": 2, "c": 2}), [("a", "b", "c")], most_cells=11)
    with pytest.raises(TableError, match="could not be counted"):
        count_marginals(blind, Domain({"a": 3, "b": 2, "c": 2}), [("a", "b", "c")], most_cells=12)


def test_attribute_sets_are_checked(people):
    table = open_table(people)
    with pytest.raises(WorkloadError, match="in the order of the domain"):
        count_marginals(table, DOMAIN, [("town", "age")])
    with pytest.raises(WorkloadError, match="in the order of the domain"):
        count_marginals(table, DOMAIN, [("age", "age")])
    with pytest.raises(WorkloadError, match="unknown attribute 'height'"):
        count_marginals(table, DOMAIN, [("height",)])


def test_counts_are_clamped(people, monkeypatch):
    assert counting.MAXIMUM_COUNT == 2**workloads.RECORD_BITS
    monkeypatch.setattr(counting, "MAXIMUM_COUNT", 300)
    counts = count_marginals(open_table(people), DOMAIN, [("age",), ()])
    np.testing.assert_array_equal(
        counts.reveal(("age",)), np.minimum(pandas_counts(pandas_codes(people), ("age",)), 300)
    )
    assert counts.reveal(()) == 300
    assert count_conditions(open_table(people), DOMAIN, [Everything()]).reveal() == [300]


def test_the_shipped_table_is_whole():
    """48,842 records; marginal sums by pandas on the same file."""
    path = Path(str(files("sfumato") / "data" / "adult.parquet"))
    rows = pd.read_parquet(path)
    assert rows.shape == (48_842, 15)
    assert rows.income.unique().tolist() == ["<=50K", ">50K"]
    assert not (rows == "?").any(axis=None)
    assert rows.isna().sum().to_dict() == dict.fromkeys(rows.columns, 0) | {
        "workclass": 2799,
        "occupation": 2809,
        "native-country": 857,
    }
    domain = Domain([Integer("age", 17, 90), Category("sex", ("Female", "Male"))])
    counts = count_marginals(open_table(path), domain, [("age", "sex")]).reveal(("age", "sex"))
    table = rows.groupby(["age", "sex"]).size().unstack(fill_value=0).reindex(range(17, 91))
    np.testing.assert_array_equal(counts, table.fillna(0).to_numpy())


# --- conditions


def test_conditions_agree_with_numpy(people):
    codes = pandas_codes(people)
    age, town, employed = (codes[n].to_numpy() for n in ("age", "town", "employed"))
    cases = [
        (Everything(), np.ones(len(codes), bool)),
        (In("age", (2, 3, 4)), (age >= 2) & (age <= 4)),
        (In("age", (7, 0, 1, 3, 3)), np.isin(age, [0, 1, 3, 7])),
        (In("age", ()), np.zeros(len(codes), bool)),
        (Not(In("employed", (0,))), employed != 0),
        (And((In("age", (5,)), Not(In("town", (0, 1))))), (age == 5) & (town > 1)),
        (Or((In("age", (5,)), In("town", (3,)), In("employed", (2,)))),
         (age == 5) | (town == 3) | (employed == 2)),
        (And(()), np.ones(len(codes), bool)),
        (Or(()), np.zeros(len(codes), bool)),
        (Not(Everything()), np.zeros(len(codes), bool)),
    ]  # fmt: skip
    found = count_conditions(open_table(people), DOMAIN, [condition for condition, _ in cases])
    assert found.reveal().dtype == np.int64
    assert found.reveal().tolist() == [int(truth.sum()) for _, truth in cases]


def test_no_conditions_give_no_numbers(people):
    assert count_conditions(open_table(people), DOMAIN, []).reveal().shape == (0,)


def test_many_conditions_are_cut_into_queries(people, monkeypatch):
    seen = queries(monkeypatch)
    rng = np.random.default_rng(5)
    wanted = [tuple(np.flatnonzero(rng.random(10) < 0.5).tolist()) for _ in range(2000)]
    found = count_conditions(open_table(people), DOMAIN, [In("age", codes) for codes in wanted])
    ages = pandas_counts(pandas_codes(people), ("age",))
    assert found.reveal().tolist() == [int(ages[list(codes)].sum()) for codes in wanted]
    assert 1 < len(seen) < 20


def test_conditions_outside_the_domain_are_refused(people):
    table = open_table(people)
    for bad in (In("age", (10,)), In("age", (-1,))):
        with pytest.raises(WorkloadError, match="cells 0 to 9"):
            count_conditions(table, DOMAIN, [bad])
    with pytest.raises(WorkloadError, match="unknown attribute"):
        count_conditions(table, DOMAIN, [In("height", (1,))])
    with pytest.raises(WorkloadError, match="is not a condition"):
        count_conditions(table, DOMAIN, ["age > 5"])
    deep = In("age", (1,))
    for _ in range(1000):
        deep = Not(deep)
    with pytest.raises(WorkloadError, match="nested more than"):
        count_conditions(table, DOMAIN, [deep])
    assert table.records is None


def test_conditions_hold_integers_and_column_names_only():
    odd = 'x"; DROP TABLE people; --'
    found = compile_condition(In(odd, (1, 2)), lambda _: "c0")
    assert found.sql == "(c0 BETWEEN 1 AND 2)"


# --- privacy unit


def visits(seed: int = 0, rows: int = 4000, owners: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    owner = rng.geometric(0.02, rows) % owners
    return pd.DataFrame({"person": owner, "id": owner, "kind": rng.integers(0, 4, rows)})


VISITS = Domain([Integer("id", 0, 299), Integer("kind", 0, 2)])  # kind 3 is dropped


def per_person(source: object, rows: int | None, domain: Domain = VISITS) -> np.ndarray:
    unit = None if rows is None else PrivacyUnit("person", rows)
    return count_marginals(open_table(source), domain, [("id", "kind")], unit).reveal(
        ("id", "kind")
    )


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_no_unit_keeps_more_rows_than_the_bound(rows):
    whole = per_person(visits(), None)
    kept = per_person(visits(), rows)
    assert whole.sum(axis=1).max() > rows, "without the bound some unit must exceed it"
    # After dropping, each unit keeps as many rows as it may.
    np.testing.assert_array_equal(kept.sum(axis=1), np.minimum(whole.sum(axis=1), rows))
    assert (kept <= whole).all()


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars"])
def test_units_without_an_identifier_are_dropped(kind, tmp_path):
    rows = visits().astype({"person": "Int64"})
    rows.loc[rows["id"] % 2 == 0, "person"] = pd.NA
    kept = per_person(make_source(kind, pa.Table.from_pandas(rows), tmp_path), 5)
    assert kept[0::2].sum() == 0
    assert kept[1::2].sum() > 0


def test_a_unit_may_be_text_or_float():
    rows = visits()
    bound = per_person(rows, 2).sum(axis=1)
    for kind in ("str", "float64"):
        np.testing.assert_array_equal(
            per_person(rows.astype({"person": kind}), 2).sum(axis=1), bound
        )
    gone = rows.assign(person=rows.person.astype(float).where(rows.person != 7))
    assert per_person(gone, 2)[7].sum() == 0


@pytest.mark.parametrize(
    ("unit", "since", "kept"),
    [
        ("ns", 10**18, 3),
        ("us", 10**15, 3),
        ("us", 2**62, 3),
        ("us", 2**63 - 10, 0),  # beyond the years that microseconds hold
        ("ms", 2**62, 0),
        ("s", 2**60, 0),
        ("s", -(2**60), 0),
    ],
)
def test_units_that_are_times_are_told_apart_or_dropped(unit, since, kept):
    """Two units under one text would take each other's rows away: a person would move two rows."""
    whole = pa.array([since, since + 1, since + 2], pa.int64())
    for zone in [None] if unit == "ns" else [None, "UTC"]:  # zones and nanoseconds are refused
        times = whole.cast(pa.timestamp(unit, zone))
        rows = pa.table({"person": times, "id": [0, 1, 2], "kind": [0, 0, 0]})
        assert per_person(rows, None)[:3, 0].tolist() == [1, 1, 1]
        assert per_person(rows, 1).sum() == kept


def kept_rows(
    rows: pd.DataFrame, seed: int, asked: tuple[str, ...] = VISITS.names, domain: Domain = VISITS
) -> np.ndarray:
    table = open_table(rows)
    unit = PrivacyUnit("person", 2)
    read_records(table, domain, asked, unit, SeededWords(seed))
    return count_marginals(table, domain, [asked], unit).reveal(asked)


def test_one_unit_more_changes_the_rows_of_no_other_one():
    rows = visits()
    fewer = rows[rows.person != 17]
    one, other = kept_rows(rows, 1), kept_rows(fewer.sample(frac=1, random_state=3), 1)
    assert (one[17].sum(), other[17].sum()) == (2, 0)
    np.testing.assert_array_equal(np.delete(one, 17, axis=0), np.delete(other, 17, axis=0))


def test_the_rows_of_a_unit_hang_on_the_key_and_not_on_what_is_asked():
    rows = visits()
    # No attribute drops a record, so that only what is asked would need to be read.
    rules = {"outside": "other", "nulls": "missing"}
    domain = Domain([Integer("id", 0, 299, **rules), Integer("kind", 0, 2, **rules)])
    both = kept_rows(rows, 1, domain.names, domain)
    np.testing.assert_array_equal(kept_rows(rows, 1, ("kind",), domain), both.sum(axis=0))
    assert (kept_rows(rows, 2, domain.names, domain) != both).any()
    assert (per_person(rows, 2) != per_person(rows, 2)).any(), "each table draws its own key"


def test_all_counts_of_one_table_describe_the_same_rows():
    table, unit = open_table(visits()), PrivacyUnit("person", 2)
    first = count_marginals(table, VISITS, [("kind",)], unit).reveal(("kind",))
    met = count_conditions(table, VISITS, [In("kind", (k,)) for k in range(3)], unit).reveal()
    both = count_marginals(table, VISITS, [("id", "kind")], unit).reveal(("id", "kind"))
    np.testing.assert_array_equal(first, met)
    np.testing.assert_array_equal(both.sum(axis=0), first)


def test_a_unit_that_is_also_an_attribute_is_counted():
    domain = Domain([Integer("person", 0, 299)])
    kept = count_marginals(open_table(visits()), domain, [("person",)], PrivacyUnit("person", 1))
    assert kept.reveal(("person",)).max() == 1


def test_a_missing_unit_column_is_refused():
    with pytest.raises(TableError, match="lacks 'patient'"):
        count_marginals(open_table(visits()), VISITS, [()], PrivacyUnit("patient", 1))


def test_every_table_is_summed_from_the_smallest_wider_one() -> None:
    """By subsets of few wide sets and by looking through many: the same as trying all."""
    rng = np.random.default_rng(0)
    domain = Domain({f"x{i}": int(n) for i, n in enumerate(rng.integers(2, 30, size=12))})
    for most in (3, 12):
        asked = list(
            dict.fromkeys(
                domain.in_order(rng.choice(domain.names, size=k, replace=False).tolist())
                for k in rng.integers(0, most + 1, size=60)
            )
        )
        found = workloads.summed_from(asked, domain)
        for names in asked:
            wider = [w for w in asked if set(names) < set(w) and domain.cells(w) <= 2**24]
            least = min((domain.cells(w) for w in wider), default=None)
            if least is None:
                assert found[names] == names
            else:
                assert found[names] in wider
                assert domain.cells(found[names]) == least


@pytest.mark.parametrize("bits", [7, 8, 15, 16])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_last_codes_of_attributes_of_any_size_are_counted(bits: int, more: int) -> None:
    """Codes are kept in as few bytes as hold them."""
    size = 2**bits + more
    rows = pd.DataFrame({"x": [0, size - 2, size - 1, size - 1, size]})
    domain = Domain([Integer("x", 0, size - 1)])
    counts = count_marginals(open_table(rows), domain, [("x",)]).reveal(("x",))
    assert (counts[0], counts[-2], counts[-1], counts.sum()) == (1, 1, 2, 4)
    last = In("x", (size - 1,))
    assert count_conditions(open_table(rows), domain, [last]).reveal().tolist() == [2]


def test_codes_beyond_two_and_four_billion_are_told_apart() -> None:
    for size in (2**31 - 1, 2**31, 2**31 + 1, 2**32 + 1):
        rows = pd.DataFrame({"x": [0, size - 2, size - 1, size - 1]})
        domain = Domain([Integer("x", 0, size - 1)])
        found = count_conditions(open_table(rows), domain, [In("x", (c,)) for c in (0, size - 1)])
        assert found.reveal().tolist() == [1, 2]


def test_conditions_are_counted_only_in_columns_that_are_there() -> None:
    table = open_table(pd.DataFrame({"y": [1]}))
    with pytest.raises(TableError, match="lacks 'x'"):
        count_conditions(table, Domain({"x": 2}), [In("x", (0,))])
    with pytest.raises(TableError, match="lacks 'x'"):
        count_marginals(table, Domain({"x": 2}), [("x",)])


def test_the_rows_of_units_are_drawn_with_a_key_of_256_bits() -> None:
    table = open_table(visits())
    words = SeededWords(3)
    read_records(table, VISITS, VISITS.names, PrivacyUnit("person", 2), words)
    assert table.secret == SeededWords(3).words(4).tobytes().hex()
    assert len(table.secret) == 64


def test_rows_of_another_unit_bound_or_domain_are_read_anew() -> None:
    """The codes of a table are kept for the next count, which may ask for something else."""
    rows = pa.table({"x": [0, 1, 1, 1, 2, 2], "who": [1, 2, 2, 2, 3, 3], "also": [7] * 6})
    domain = Domain([Integer("x", 0, 2)])
    narrow = Domain([Integer("x", 0, 1)])
    table = open_table(rows)

    def total(domain: Domain, unit: PrivacyUnit | None) -> int:
        return int(count_marginals(table, domain, [()], unit).reveal(()))

    asked = [
        (domain, None, 6),
        (domain, PrivacyUnit("who", 2), 5),
        (domain, PrivacyUnit("who", 1), 3),
        (domain, PrivacyUnit("also", 1), 1),
        (narrow, PrivacyUnit("who", 1), 2),
        (narrow, None, 4),
        (domain, None, 6),
    ]
    for declared, unit, expected in asked:
        assert total(declared, unit) == expected


@pytest.mark.parametrize(
    "owners",
    [
        pa.array([True, False, True, None]),
        pa.array([1, 2, 1, None]),
        pa.array([0.5, 2.0, 0.5, math.nan]),
        pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("1.50"), None]),
        pa.array(["a", "b", "a", None]),
        pa.array([date(2020, 1, 1), date(2021, 1, 1), date(2020, 1, 1), None]),
        pa.array([datetime(2020, 1, 1, 1), datetime(2020, 1, 1), datetime(2020, 1, 1, 1), None]),
    ],
    ids=lambda owners: str(owners.type),
)
def test_a_unit_may_be_of_any_kind_that_tells_owners_apart(owners: pa.Array) -> None:
    rows = pa.table({"x": [0, 0, 0, 0], "who": owners})
    unit = PrivacyUnit("who", 1)
    counts = count_marginals(open_table(rows), Domain({"x": 1}), [("x",)], unit)
    assert counts.reveal(("x",)).tolist() == [2]  # two owners; who has no name is dropped
