# SPDX-License-Identifier: Apache-2.0
"""Discovery from end to end: what is published, what it costs, and what it is refused for."""

from __future__ import annotations

import json
from fractions import Fraction

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.errors import BudgetError, BudgetExhausted, PlanError, SchemaError, TableError
from sfumato.privacy.cost import Cost
from sfumato.vault.tables import open_table
from tests.shared.words import SeededWords

BUDGET = sf.Budget(epsilon=1, delta="1e-6")
CITIES = ["Rome"] * 300 + ["Bari"] * 200 + ["Pisa"] * 3 + [None] * 50


def table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def discovered(source: object, *columns: object, budget: sf.Budget = BUDGET, **options: object):
    wanted = [sf.Category.discover(column) for column in columns]
    return sf.plan_discovery(wanted, budget, **options).release(source)


def test_values_that_many_people_share_are_published_with_their_counts() -> None:
    found = discovered(table(city=CITIES), "city")
    counts = found.counts
    assert list(counts.columns) == ["column", "key", "count", "standard_error", "low", "high"]
    assert counts["key"].tolist() == ["Rome", "Bari"]
    # The noise has a bounded range: 14 people below and 13 above, at (1, 1e-6).
    assert abs(counts["count"] - [300, 200]).max() < 15
    assert found.domain == sf.Domain(
        [sf.Category("city", ("Rome", "Bari"), outside="other", nulls="missing")]
    )
    assert sf.Category("city", ("Rome", "Bari")).values == found.attributes[0].values
    assert found.top(1)["key"].tolist() == ["Rome"]
    assert "2 of city" in repr(found)


def test_the_domain_can_be_planned_on_and_holds_all_records() -> None:
    source = table(city=CITIES)
    domain = discovered(source, "city").domain
    release = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=50)).release(source)
    answers = release.answers("city")
    assert answers["city"].tolist() == ["Rome", "Bari", "(other)", "(missing)"]
    assert answers["value"].round().tolist() == [300, 200, 3, 50]


def test_the_schema_that_is_written_reads_back(tmp_path) -> None:
    found = discovered(table(city=CITIES), "city")
    path = tmp_path / "schema.toml"
    path.write_text(found.to_toml())
    assert sf.Domain.from_toml(path) == found.domain


def test_the_same_discovery_is_paid_for_once_however_it_is_written(tmp_path) -> None:
    source = table(city=CITIES, n=[7] * len(CITIES))
    ledger = sf.Ledger.create(tmp_path / "l.ledger", sf.Budget(epsilon=2, delta="1e-5"), "t")
    one = sf.plan_discovery([sf.Category.discover("city"), sf.Category.discover("n")], BUDGET)
    other = sf.plan_discovery(
        [sf.Category.discover(("n",), nulls="drop"), sf.Integer("x", 0, 3),
         sf.Category.discover("city", outside="drop")],
        BUDGET,
    )  # fmt: skip
    first, second = one.release(source, ledger, name="t"), other.release(source, ledger, name="t")
    assert (first.is_stored, second.is_stored) == (False, True)
    assert one.digest() == other.digest()
    assert one.stored_key(ledger) == one.digest()
    assert first.counts.equals(second.counts)
    assert second.domain.names == ("n", "x", "city")
    assert len(ledger.entries()) == 1
    assert ledger.verify().is_whole
    assert ledger.remaining().share == Fraction(1, 2)
    assert ledger.remaining().event_delta == Fraction(9, 10**6)
    assert ledger.entries()[0].cost == one.cost
    assert "delta = 0.000001" in repr(first)
    assert "nothing spent" in repr(second)


def test_the_cost_is_the_whole_budget_and_columns_share_it() -> None:
    one = sf.plan_discovery(sf.Category.discover("a"), BUDGET)
    assert one.cost == Cost.pure(1) + Cost.approximate(Fraction(1, 10**6))
    two = sf.plan_discovery([sf.Category.discover("a"), sf.Category.discover("b")], BUDGET)
    assert (two.cost.pure_epsilon, two.cost.delta) == (1, Fraction(1, 10**6))
    replaced = sf.plan_discovery(sf.Category.discover("a"), BUDGET, "replace-one")
    assert (replaced.cost.pure_epsilon, replaced.cost.delta) == (1, Fraction(1, 10**6))
    half = [plan.as_json()["searches"][0]["people_for_half"] for plan in (one, two, replaced)]
    assert half[0] < half[1] == half[2]


def test_one_person_with_many_keys_gets_gaussian_noise() -> None:
    unit = sf.PrivacyUnit("who", 40)
    plan = sf.plan_discovery(sf.Category.discover("a"), BUDGET, unit=unit)
    assert plan.as_json()["searches"][0]["law"] == "gaussian"
    from sfumato.ledger.account import fits

    assert fits([plan.cost], BUDGET)
    few = sf.plan_discovery(sf.Category.discover("a"), BUDGET, unit=sf.PrivacyUnit("who", 1))
    assert few.as_json()["searches"][0]["law"] == "optimal"


def test_people_are_counted_and_not_their_rows() -> None:
    who = [i // 5 for i in range(1000)]
    found = discovered(table(city=["Rome"] * 1000, who=who), "city", unit=sf.PrivacyUnit("who", 1))
    assert abs(found.counts["count"][0] - 200) < 15


def test_tuples_are_discovered_together() -> None:
    rows = [("A", 1)] * 100 + [("A", 2)] * 80 + [("B", 1)] * 60 + [("B", None)] * 90
    source = table(state=[s for s, _ in rows], code=[c for _, c in rows])
    found = discovered(source, ("state", "code"))
    assert found.counts["key"].tolist() == [("A", 1), ("A", 2), ("B", 1)]
    assert found.domain.names == ("state", "code")
    assert found.as_json()["keys"][0]["key"] == ["A", 1]


def test_no_more_keys_than_asked_for_are_published() -> None:
    wanted = sf.Category.discover("city", most=1)
    found = sf.plan_discovery(wanted, BUDGET).release(table(city=CITIES))
    assert found.counts["key"].tolist() == ["Rome"]


SELECT = "SELECT city FROM t GROUP BY city ORDER BY COUNT(*) DESC LIMIT 1"


def test_the_most_common_values_are_the_same_request_in_python_and_in_sql(tmp_path) -> None:
    source, ledger = table(city=CITIES), sf.Ledger.create(tmp_path / "l", BUDGET, "t")
    for spelling in (sf.top(1, "city"), SELECT, sf.Category.discover("city", most=1)):
        found = sf.plan_discovery(spelling, BUDGET).release(source, ledger, name="t")
        assert found.counts["key"].tolist() == ["Rome"]
    assert len(ledger.entries()) == 1
    assert found.is_stored


def test_intervals_of_the_largest_keys_are_longer_and_nothing_else_is() -> None:
    # 40 values of 100 people: about the largest noise of 40 is seen, and Theorem 6 is for it.
    source = table(city=[f"city {i}" for i in range(40) for _ in range(100)])
    everything = discovered(source, "city")
    first, one = everything.counts.iloc[0], everything.top(1).iloc[0]
    assert one["low"] < first["low"]
    assert one[["key", "count"]].tolist() == first[["key", "count"]].tolist()
    single = sf.plan_discovery(sf.top(1, "city"), BUDGET).release(source)
    assert single.findings[0]["passed"] == 40
    assert single.counts.iloc[0]["high"] - single.counts.iloc[0]["low"] == one["high"] - one["low"]
    assert everything.top(40).equals(everything.counts)
    assert "passed" not in everything.findings[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT city FROM t WHERE age > 3 GROUP BY city ORDER BY COUNT(*) DESC LIMIT 2", "WHERE"),
        ("SELECT city FROM t GROUP BY city ORDER BY COUNT(*) LIMIT 2", "least common"),
        ("SELECT city FROM t GROUP BY city ORDER BY SUM(age) DESC LIMIT 2", "cannot order"),
        ("SELECT city FROM t GROUP BY city ORDER BY COUNT(*) DESC", "needs LIMIT"),
        ("SELECT city FROM t GROUP BY age ORDER BY COUNT(*) DESC LIMIT 2", "select the columns"),
        ("SELECT COUNT(*) FROM t ORDER BY COUNT(*) DESC LIMIT 2", "GROUP BY says"),
        ("SELECT 1 FROM t GROUP BY age + 1 ORDER BY COUNT(*) DESC LIMIT 2", "selected but"),
        ("SELECT COUNT(*) FROM t GROUP BY age+1 ORDER BY COUNT(*) DESC LIMIT 2", "not a column"),
        (f"{SELECT}000000", "more than the 100,000"),
        ("SELECT city FROM t GROUP BY 2 ORDER BY COUNT(*) DESC LIMIT 2", "number of a selected"),
        ("city", "not with SELECT"),
    ],
)
def test_other_statements_are_refused_with_what_is_allowed(text, words) -> None:
    with pytest.raises(sf.SqlError, match=words):
        sf.plan_discovery(text, BUDGET)


def test_with_a_unit_the_order_is_by_units() -> None:
    unit = sf.PrivacyUnit("person", 1)
    with pytest.raises(sf.SqlError, match=r"COUNT\(DISTINCT person\)"):
        sf.plan_discovery(SELECT, BUDGET, unit=unit)
    by_units = "SELECT city, age FROM t GROUP BY 1, 2 ORDER BY COUNT(DISTINCT person) DESC LIMIT 3"
    assert sf.plan_discovery(by_units, BUDGET, unit=unit).domain.open[0].columns == ("city", "age")


@pytest.mark.parametrize("k", [0, True, 1.5, 10**6])
def test_how_many_is_a_whole_number(k) -> None:
    with pytest.raises(SchemaError, match="k must be"):
        sf.top(k, "city")


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (["x" * 10**6] * 100 + ["a"] * 100, ["a"]),  # a megabyte is no key
        ([float("nan")] * 100 + [2.0] * 100 + [2.5] * 100 + [float("inf")] * 100, [2]),
        ([None] * 100, []),
        (["only"] * 100, ["only"]),
        ([str(i) for i in range(1000)], []),  # unique values
        (["(other)"] * 100 + ["(missing)"] * 100 + ["a\0b"] * 100 + ["a"] * 100, ["a"]),
        ([2**62] * 100 + [-(2**61)] * 100, [-(2**61)]),
        ([""] * 100, [""]),
    ],
)
def test_every_column_has_keys_or_none_and_none_fails(values, keys) -> None:
    kind = pa.string() if all(v is None for v in values) else None
    found = discovered(pa.table({"x": pa.array(values, kind)}), "x")
    assert found.counts["key"].tolist() == keys


def test_mixed_objects_of_pandas_are_read_as_texts() -> None:
    frame = pd.DataFrame({"x": pd.Series([1, "1", 1.0, None] * 100, dtype=object)})
    found = discovered(frame, "x")
    assert sorted(found.counts["key"]) == ["1", "1.0"]


def test_files_are_read_as_tables_in_memory_are(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("city\n" + " Rome \n" * 100 + "\n" * 30 + "Bari\n" * 80)
    found = discovered(tmp_path / "t.csv", "city")
    assert found.counts["key"].tolist() == ["Rome", "Bari"]
    pq.write_table(table(city=CITIES), tmp_path / "t.parquet")
    found = discovered(tmp_path / "t.parquet", "city")
    assert found.counts["key"].tolist() == ["Rome", "Bari"]


def test_nothing_published_says_so() -> None:
    found = discovered(table(x=[str(i) for i in range(50)]), "x")
    assert found.counts.empty
    assert "no values" in repr(found)
    with pytest.raises(SchemaError, match="larger budget"):
        _ = found.domain


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([True, False]), "sf.Boolean"),
        (pa.array([1, 2], pa.timestamp("us")), "sf.DateTime"),
        (pa.array([[1], [2]]), "convert the column"),
    ],
)
def test_columns_that_hold_no_keys_are_refused_by_their_type(values, words, tmp_path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.ledger", BUDGET, "t")
    plan = sf.plan_discovery(sf.Category.discover("x"), BUDGET)
    with pytest.raises(TableError, match=words):
        plan.release(pa.table({"x": values}), ledger, name="t")
    assert not ledger.entries()


def test_what_is_refused_is_refused_before_anything_is_spent(tmp_path) -> None:
    city = sf.Category.discover("city")
    with pytest.raises(PlanError, match="epsilon and delta"):
        sf.plan_discovery(city, sf.Budget(epsilon=1))
    with pytest.raises(PlanError, match="epsilon and delta"):
        sf.plan_discovery(city, sf.Budget(rho=1))
    with pytest.raises(PlanError, match=r"sf\.Budget"):
        sf.plan_discovery(city, 1)
    with pytest.raises(PlanError, match="confidence"):
        sf.plan_discovery(city, BUDGET, confidence=2)
    with pytest.raises(PlanError, match="belongs to one person"):
        sf.plan_discovery(sf.Category.discover("who"), BUDGET, unit=sf.PrivacyUnit("who", 2))
    with pytest.raises(PlanError, match="at least 1"):
        discovered(table(city=CITIES), "city").top(0)
    plan = sf.plan_discovery(city, BUDGET)
    for total in (sf.Budget(rho=1), sf.Budget(epsilon=5)):
        ledger = sf.Ledger.create(tmp_path / f"{total.currency}.ledger", total, "t")
        with pytest.raises(BudgetError, match="delta of its own"):
            plan.release(table(city=CITIES), ledger, name="t")
        assert not ledger.entries()


def test_after_gaussian_noise_nothing_is_discovered_any_more(tmp_path) -> None:
    total = sf.Budget(epsilon=3, delta="1e-5")
    ledger = sf.Ledger.create(tmp_path / "l.ledger", total, "t")
    ledger.debit(Cost.gaussian(Fraction(1, 100)), {}, "first")
    plan = sf.plan_discovery(sf.Category.discover("city"), BUDGET)
    assert "before the first Gaussian answer" in ledger.price(plan.cost).describe()
    with pytest.raises(BudgetExhausted, match="before the first Gaussian answer"):
        plan.release(table(city=CITIES), ledger, name="t")
    assert len(ledger.entries()) == 1


def test_discovery_comes_after_gaussian_noise_where_delta_is_reserved_for_it(tmp_path):
    table = pd.DataFrame({"age": [1, 2, 3, 4] * 500, "city": ["Ulm", "Bonn"] * 1000})
    counts = sf.plan(sf.marginals(sf.Domain({"age": 5}), 1), sf.Budget(1, 1e-6), noise="gaussian")
    keys = sf.plan_discovery(sf.Category.discover("city"), sf.Budget("0.4", 4e-7))
    plain = sf.Ledger.create(tmp_path / "plain.ledger", sf.Budget(3, 2e-6), "t")
    counts.release(table, plain, name="t")
    with pytest.raises(sf.errors.BudgetExhausted, match="event-delta"):
        keys.release(table, plain, name="t")
    plain.set_total(sf.Budget(3, 2.4e-6, event_delta=4e-7), "discovery", by="curator")
    total = sf.Budget(3, 2.4e-6, event_delta=4e-7)
    reserved = sf.Ledger.create(tmp_path / "reserved.ledger", total, "t")
    counts.release(table, reserved, name="t")
    for ledger in (plain, reserved):
        assert set(keys.release(table, ledger, name="t").counts["key"]) == {"Ulm", "Bonn"}
        assert not ledger.verify().problems


def visits(*sizes: int) -> pa.Table:
    """A row for each visit of persons who have so many."""
    people = [person for person, size in enumerate(sizes) for _ in range(size)]
    return pa.table({"who": people, "x": [0] * len(people)})


def bound_of(source: object, budget: sf.Budget, persons: int = 5, **options: object):
    wanted = sf.PrivacyUnit.discover("who", persons=persons, **options)
    return sf.plan_discovery(wanted, budget).release(source)


def test_a_bound_on_rows_is_discovered_and_answers_follow_in_the_same_ledger(tmp_path) -> None:
    source = visits(*[1] * 300, *[6] * 300)
    ledger = sf.Ledger.create(tmp_path / "l", sf.Budget(epsilon=4), "t", unit=None)
    wanted = sf.PrivacyUnit.discover("who", persons=100)
    plan = sf.plan_discovery(wanted, sf.Budget(epsilon=1))
    found = plan.release(source, ledger, name="t")
    assert found.unit == sf.PrivacyUnit("who", 6)  # 300 exceed 5, nobody exceeds 6
    assert plan.cost == Cost.pure(Fraction(1))
    work = sf.marginals(sf.Domain({"x": 2}), 1)
    answers = sf.plan(work, sf.Budget(epsilon=2), unit=found.unit)
    released = answers.release(source, ledger, name="t")
    assert abs(released.answers("x")["value"][0] - 2100) < 200
    again = plan.release(source, ledger, name="t")
    assert again.is_stored
    assert again.unit == found.unit
    assert [round(float(entry.cost.pure_epsilon), 6) for entry in ledger.entries()] == [1, 2]
    assert ledger.verify().is_whole
    assert found.as_json()["unit"] == {"column": "who", "rows": 6}
    assert "rows=6" in repr(found)
    assert found.counts["key"].tolist() == ["at most 6 rows"]
    with pytest.raises(SchemaError, match="is no domain"):
        _ = found.domain


def test_a_person_with_a_million_rows_moves_no_bound() -> None:
    source = visits(*[2] * 200, 1_000_000)
    found = bound_of(source, sf.Budget(epsilon=2), persons=20)
    assert found.unit == sf.PrivacyUnit("who", 2)


def test_the_interval_of_a_bound_holds_the_persons_who_have_more() -> None:
    sizes = [*range(1, 101)] * 3
    source, missed = visits(*sizes), 0
    plan = sf.plan_discovery(sf.PrivacyUnit.discover("who", persons=60), sf.Budget(epsilon=1))
    exact = plan.runnable().count(open_table(source), None)
    from sfumato.run.discover import Discovery, drawn

    for i in range(200):
        answer = drawn(plan, exact, SeededWords(f"bound {i}"))
        found = Discovery(plan, tuple(json.loads(answer)["findings"]), None)
        (row,) = found.counts.to_dict("records")
        beyond = sum(size > found.unit.rows for size in sizes)
        missed += not row["low"] <= beyond <= row["high"]
    assert missed <= 20  # 10 are expected at most; more than 20 of 200 in 1 of 1,000 tests


def test_a_walk_ends_where_nobody_has_more_and_at_the_largest_bound_where_all_have() -> None:
    assert bound_of(visits(*[1] * 50), sf.Budget(epsilon=1), persons=1).unit.rows < 8
    found = bound_of(visits(*[40] * 300), sf.Budget(epsilon=1), persons=5, most=10)
    assert found.unit.rows == 10
    assert found.counts["high"].tolist() == [2**44]  # beyond it nothing was tested


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_either_kind_of_neighbours_costs_the_same(neighbours) -> None:
    wanted = sf.PrivacyUnit.discover("who", persons=9)
    plan = sf.plan_discovery(wanted, sf.Budget(epsilon="0.1"), neighbours)
    assert plan.cost == Cost.pure(Fraction(1, 10))


def test_a_bound_is_discovered_by_itself_and_wrong_arguments_are_refused() -> None:
    bound = sf.PrivacyUnit.discover("who", persons=9)
    budget = sf.Budget(epsilon=1, delta="1e-6")
    for more in (sf.Category.discover("city"), sf.Integer("x", 0, 1)):
        with pytest.raises(PlanError, match="by itself"):
            sf.plan_discovery([bound, more], budget)
    with pytest.raises(PlanError, match="leave unit out"):
        sf.plan_discovery(bound, budget, unit=sf.PrivacyUnit("x", 1))
    for wrong in ({"persons": 0}, {"persons": True}, {"persons": 1, "most": 1}):
        with pytest.raises(SchemaError, match="is not a whole number"):
            sf.PrivacyUnit.discover("who", **wrong)
    with pytest.raises(PlanError, match="epsilon"):
        sf.plan_discovery(bound, sf.Budget(rho=1))
