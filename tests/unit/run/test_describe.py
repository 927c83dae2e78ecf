# SPDX-License-Identifier: Apache-2.0
"""Descriptions: what is public, what is found, what bad input gets, and that it is paid once."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain.draft import Kind
from sfumato.errors import LedgerError, PlanError, SchemaError, TableError, TooLarge


def people(rows: int = 5000) -> pd.DataFrame:
    some = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "age": some.integers(18, 80, rows).astype(float),
            "income": np.exp(some.normal(10, 1, rows)),
            "sex": some.choice(["f", "m"], rows, p=[0.7, 0.3]),
            "member": some.random(rows) < 0.25,
            "joined": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(some.integers(0, 1000, rows), unit="D"),
            "name": [f"name {i}" for i in range(rows)],
        }
    ).astype({"joined": "datetime64[us]"})
    frame.loc[frame.index % 10 == 0, "age"] = math.nan
    return frame


@pytest.fixture(scope="module")
def description():
    return sf.describe(people(), epsilon=4, kinds={"age": "integer", "name": "category"})


@pytest.fixture(scope="module")
def rows(description):
    return description.frame.set_index("column")


def test_every_column_has_a_row_with_its_kind(rows):
    assert rows["kind"].to_dict() == {
        "age": "integer",
        "income": "numeric",
        "sex": "category",
        "member": "boolean",
        "joined": "datetime",
        "name": "category",
    }


def test_numbers_have_a_range_a_mean_and_quartiles_near_the_truth(rows):
    """Whole numbers from 18 to 79, each as likely: mean 48.5, quartiles 33, 48 and 64."""
    age = rows.loc["age"]
    assert age["low"] <= 20
    assert 75 <= age["high"] <= 149
    assert age["mean"] == pytest.approx(48.5, abs=2)
    assert [age[q] for q in ("q25", "median", "q75")] == pytest.approx([33, 48, 64], abs=4)
    assert age["mean_low"] <= age["mean"] <= age["mean_high"]


def test_nulls_are_counted_with_an_interval(rows):
    assert rows.loc["age", "nulls"] == pytest.approx(500, abs=60)
    assert rows.loc["income", "nulls_high"] < 60
    assert rows.loc["age", "records"] == pytest.approx(4500, abs=120)


def test_keys_are_found_and_the_first_one_is_counted(rows):
    sex = rows.loc["sex"]
    assert (sex["keys"], sex["top"]) == (2, "f")
    assert sex["top_low"] - 60 <= 3500 <= sex["top_high"] + 60
    assert rows.loc["member", "top_count"] == pytest.approx(1250, abs=150)


def test_dates_have_a_range_and_quartiles(rows):
    joined = rows.loc["joined"]
    assert pd.Timestamp(joined["low"]) <= pd.Timestamp("2020-03-01")
    assert pd.Timestamp("2021-01-01") < joined["median"] < pd.Timestamp("2022-01-01")


def test_a_column_of_names_says_that_nothing_can_be_published(rows, description):
    assert "no value is shared by enough people" in rows.loc["name", "note"]
    assert "name" not in description.domain
    with pytest.raises(SchemaError, match="nothing was released of 'name'"):
        description.histogram("name")


def test_the_completed_schema_can_be_planned_on(description, tmp_path):
    file = tmp_path / "schema.toml"
    file.write_text(description.to_toml())
    assert sf.Domain.from_toml(file) == description.domain


def test_histograms_and_charts_are_those_of_the_release(description):
    table = description.histogram("sex")
    assert table["sex"].tolist() == ["f", "m", "(other)", "(missing)"]
    assert description.chart("age").to_dict()["layer"]


def test_all_files_are_saved(description, tmp_path):
    files = description.save(tmp_path / "out")
    assert set(files) == {
        "report.html",
        "schema.toml",
        "description.csv",
        "answers.parquet",
        "provenance.json",
        "release.zip",
    }
    report = files["report.html"].read_text()
    assert "columns of about" in report
    assert "All of this together is within epsilon = 4, delta = 0.000001" in report
    assert report.index("lower quartile") < report.index("<h2>Answers</h2>")
    assert "<table>" in description._repr_html_()


def test_describing_again_is_free_and_the_same(tmp_path):
    file = tmp_path / "t.parquet"
    people(2000)[["age", "sex"]].to_parquet(file)
    budget = sf.Budget(epsilon=1, delta=1e-6)
    ledger = sf.Ledger.create(tmp_path / "t.ledger", budget, file.name)
    first = sf.describe(str(file), ledger=ledger)
    again = sf.describe(str(file), ledger=ledger)
    assert (first.is_stored, again.is_stored) == (False, True)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert len(list(ledger.entries())) == 2  # both within a total of the budget itself
    with pytest.raises(sf.BudgetExhausted):
        sf.describe(str(file), epsilon=0.1, ledger=ledger)


def test_what_is_stored_before_a_crash_is_not_lost(tmp_path, monkeypatch):
    file = tmp_path / "t.parquet"
    people(2000)[["age", "sex"]].to_parquet(file)
    ledger = sf.Ledger.create(tmp_path / "t.ledger", sf.Budget(epsilon=1, delta=1e-6), file.name)
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.run.describe.plan_linear", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sf.describe(str(file), ledger=ledger)
    after = sf.describe(str(file), ledger=ledger)
    assert after.discovery.is_stored
    assert not after.release.is_stored


def test_the_parts_of_the_budget_add_up_to_the_whole():
    plan = sf.plan_description(people(10), sf.Budget(epsilon=1, delta=1e-6))
    first, rest = plan.discovery.budget, plan.rest
    assert first.epsilon + rest.epsilon == 1
    assert first.delta + rest.delta == plan.budget.delta
    pure = sf.plan_description(people(10), sf.Budget(epsilon=1), columns=["age", "member"])
    assert pure.discovery.budget.is_pure
    assert pure.rest.is_pure
    only = sf.plan_description(people(10), sf.Budget(epsilon=1), columns=["member"])
    assert only.discovery is None
    assert only.rest == only.budget


def test_a_plan_reads_no_row_and_says_what_may_be_found():
    plan = sf.plan_description(people(10), sf.Budget(epsilon=1, delta=1e-6))
    assert repr(plan) == repr(sf.plan_description(people(50), sf.Budget(epsilon=1, delta=1e-6)))
    simulated = plan.simulated(100_000)
    assert "Zipf" in simulated["sex"]
    assert "octave" in simulated["income"]
    assert "default range" in plan.simulated(10)["income"]


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_what_a_vote_may_end_in_is_forecast_and_holds_what_it_ends_in(tmp_path, delta):
    file, steps = tmp_path / "people.csv", []
    file.write_text("age,q1\n1,2\n")
    budget = sf.Budget(epsilon=1, delta=delta) if delta else sf.Budget(epsilon=1)
    plan = sf.plan_description(str(file), budget)
    simulated = plan.simulated(100_000, progress=lambda *step: steps.append(step))
    assert set(simulated) == {"age", "q1"}
    for text in simulated.values():
        assert ("Zipf" if delta else "takes a delta") in text
        assert "if numbers or dates: with 100,000 lognormal records" in text
        assert "if yes or no: nothing has to be discovered" in text
    assert steps[-1][0] == len(steps) <= steps[-1][1]
    words = plan.searches_in_words()["q1"]
    for kinds in product(get_args(Kind), repeat=2):
        ended = replace(plan, kinds=dict(zip(("age", "q1"), kinds, strict=True)))
        for search in () if ended.discovery is None else ended.discovery.searches:
            needed = search.forecast()
            if "people_for_half" in needed:
                said = re.search(r"a value that ([\d,]+) people", words)
                assert needed["people_for_half"] <= int(said[1].replace(",", ""))
            else:
                said = re.search(r"fewer than about ([\d,]+) values", words)
                assert needed["least_records"] <= int(said[1].replace(",", ""))
    least, most = plan.noise_range
    for kind in get_args(Kind):
        ended = replace(plan, kinds={"age": kind, "q1": kind}, vote=plan.vote)
        assert least <= ended.noise <= most
    assert f"{least:,.3g} to {most:,.3g} records" in plan.error_in_words()
    said = sf.plan_description(str(file), budget, kinds={"age": "integer", "q1": "numeric"})
    assert said.noise_range == (said.noise, said.noise)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="empty"),
        pytest.param([math.nan] * 50, id="all null"),
        pytest.param([math.inf, -math.inf, math.nan] * 20, id="infinities"),
        pytest.param([7.0] * 3000, id="constant"),
    ],
)
def test_odd_columns_are_described_by_rule(values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype="float64")})
    row = sf.describe(frame, epsilon=2).frame.iloc[0]
    if len(values) < 100:
        assert "default range" in row["note"]
    else:
        assert row["low"] <= 7 <= row["high"]


def test_a_range_of_few_records_is_said_to_be_unsure():
    """By the noisy number of records and simulations from public draws: no chance is left."""
    frame = pd.DataFrame({"x": np.linspace(1.0, 2.0, 3000)})
    described = sf.describe(frame, epsilon=0.1)
    assert "too wide or too narrow" in described._note_of_range("x", 3000)
    assert described._note_of_range("x", 200_000) == ""


def test_a_table_of_which_nothing_is_found_says_so():
    nothing = sf.describe(
        pd.DataFrame({"code": [f"c{i}" for i in range(50)]}), kinds={"code": "category"}
    )
    assert nothing.domain is None
    assert "no value is shared" in nothing.frame.iloc[0]["note"]
    with pytest.raises(SchemaError, match="no schema"):
        nothing.to_toml()
    with pytest.raises(SchemaError, match="no report"):
        nothing.report()


def test_identifiers_and_the_unit_are_left_out_before_anything_is_spent():
    frame = people(20).assign(user_id=[f"u{i}" for i in range(20)])
    plan = sf.plan_description(
        frame, sf.Budget(epsilon=1, delta=1e-6), unit=sf.PrivacyUnit("sex", 2)
    )
    assert set(plan.left_out) == {"user_id", "name", "sex"}
    assert "identifiers" in plan.left_out["user_id"]
    numbers = people(20).assign(userId=range(20), visits=range(20))[["userId", "visits"]]
    plan = sf.plan_description(numbers, sf.Budget(epsilon=1))
    assert (set(plan.kinds), set(plan.left_out)) == ({"visits"}, {"userId"})
    said = sf.plan_description(numbers, sf.Budget(epsilon=1), kinds={"userId": "integer"})
    assert set(said.kinds) == {"userId", "visits"}


def test_whole_numbers_that_lie_like_a_numbering_are_noted_after_they_are_published():
    some = np.random.default_rng(8)
    pay = np.exp(some.normal(7, 0.5, 4000)).astype(int)
    columns = {"number": np.arange(4000), "age": some.integers(18, 80, 4000), "pay": pay}
    for name, values in columns.items():
        note = sf.describe(pd.DataFrame({name: values}), epsilon=20).frame["note"].iloc[0]
        assert ("if these are identifiers" in note) == (name == "number")


def test_durations_and_records_are_left_out_with_what_to_do():
    frame = people(20).assign(
        stay=pd.to_timedelta(range(20), unit="h"),
        home=[{"city": "Ulm", "zip": i} for i in range(20)],
    )
    plan = sf.plan_description(pa.Table.from_pandas(frame), sf.Budget(epsilon=1, delta=1e-6))
    assert 'duration = "hour"' in plan.left_out["stay"]
    assert "'home.city', 'home.zip'" in plan.left_out["home"]
    assert plan.kinds["home.city"] == "category"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"columns": ["agee"]}, TableError, "did you mean 'age'"),
        ({"columns": "age"}, PlanError, "must be a list of names"),
        ({"kinds": {"age": "number"}}, PlanError, "is said to be 'number'"),
        ({"delta": 0}, PlanError, "takes a delta"),
        ({"unit": "person"}, SchemaError, "sf.PrivacyUnit"),
        ({"ledger": "nowhere.ledger"}, LedgerError, "name"),
    ],
)
def test_wrong_calls_are_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        sf.describe(people(10), **call)


def test_too_many_columns_are_refused_before_anything_is_spent():
    wide = pd.DataFrame(np.zeros((3, 500)), columns=[f"x{i}" for i in range(500)])
    with pytest.raises(TooLarge, match="500 columns"):
        sf.describe(wide)


def test_columns_of_csv_files_begin_with_their_names_or_what_the_caller_says(tmp_path):
    file = tmp_path / "people.csv"
    people(3000)[["age", "income", "sex"]].to_csv(file, index=False)
    plan = sf.plan_description(str(file), sf.Budget(epsilon=1, delta=1e-6))
    assert dict(plan.kinds) == {"age": "integer", "income": "numeric", "sex": "category"}
    described = sf.describe(str(file), epsilon=4, kinds={"age": "numeric"}).frame
    assert described.set_index("column").loc["age", "mean"] == pytest.approx(48.5, abs=3)


def _paid(place, budget, **options):
    """A description of a small table of three columns, in a ledger of its own."""
    some = np.random.default_rng(3)
    table = pd.DataFrame({"p": np.arange(4000) // 8, "c": some.choice(list("abcd"), 4000)})
    sf.Ledger.create(place, budget, "t")
    return sf.describe(table, 1, 1e-6, ledger=place, name="t", **options)


def test_a_description_whose_discovery_has_gaussian_noise_fits_its_own_budget(tmp_path):
    """Eight rows a person make discovery Gaussian; pure noise after it would not fit the whole."""
    unit = sf.PrivacyUnit("p", 8)
    described = _paid(tmp_path / "x.ledger", sf.Budget(1, 1e-6), unit=unit)
    assert described.discovery.plan.cost.mu_squared
    assert described.release.cost.mu_squared
    assert not described.release.cost.pure_epsilon


def test_nothing_is_debited_if_the_release_would_not_fit(tmp_path):
    """The discovery alone (0.3) would fit 0.5, the release after it would not."""
    place = tmp_path / "x.ledger"
    with pytest.raises(sf.errors.BudgetExhausted, match="none was made"):
        _paid(place, sf.Budget("0.5", 1e-6))
    assert not list(sf.Ledger.open(place).entries())


def test_the_release_of_a_saved_description_is_read_again(description, tmp_path):
    description.save(tmp_path)
    again = sf.read_release(tmp_path)
    assert again.answers(group="sex").equals(description.histogram("sex"))


def test_infinite_values_and_a_large_delta_are_spoken_of():
    values = np.repeat([1.0, np.inf, -np.inf], 2000)
    table = pd.DataFrame({"x": values, "town": [f"town {i % 3}" for i in range(6000)]})
    rows = sf.describe(table, 8, 1e-3).frame.set_index("column")
    assert "where the search ends" in rows.loc["x", "note"]
    assert "lower delta" in rows.loc["town", "note"]
    assert not sf.describe(table[["town"]], 8, 1e-6).frame.loc[0, "note"]
    with pytest.raises(TableError, match="identifiers"):
        sf.describe(table[["town"]].rename(columns={"town": "user_id"}))


def test_of_columns_without_values_nothing_is_said(tmp_path):
    """A type that holds none is left out; the mean of no values would be noise."""
    nothing = {"points": "Int64", "income": "Float64", "day": "datetime64[us]"}
    table = pd.DataFrame({name: pd.array([None] * 400, dtype=t) for name, t in nothing.items()})
    table.assign(none=None, age=pd.array([30] * 400, "Int64")).to_parquet(tmp_path / "t.parquet")
    described = sf.describe(tmp_path / "t.parquet", epsilon=20, delta=0)
    rows = described.frame.set_index("column")
    for name in nothing:
        assert "nothing is said" in rows.loc[name, "note"]
        assert rows.loc[name, ["mean", "median", "q25_low"]].isna().all()
        assert rows.loc[name, "nulls_low"] <= 400 <= rows.loc[name, "nulls_high"]
    assert rows.loc["age", "mean"] == pytest.approx(30, abs=2)
    assert rows.loc["none", "note"] == "of a type without values: all of it is missing"
    assert not described.remark  # types say how it was read


def test_a_file_in_another_encoding_is_spoken_of(tmp_path):
    lines = ["city;shop", *(["K\u00f6ln;Ring"] * 500), *(["Bonn;Markt"] * 200)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="latin-1")
    table = str(tmp_path / "t.csv")
    wrong = sf.describe(table, epsilon=20)
    assert "encoding=cp1252" in wrong.remark
    assert "encoding=cp1252" in wrong.report()
    assert "encoding=cp1252" in repr(wrong)
    assert "more than half" in wrong.frame.set_index("column").loc["city", "note"]
    assert not sf.describe(sf.CsvSource(table, encoding="latin-1"), epsilon=20).remark


def test_numbers_in_another_writing_are_spoken_of(tmp_path):
    lines = ["amount;n", *(f"{i % 900}.{i % 7:03},{i % 97:02};{i}" for i in range(600))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    noted = sf.describe(tmp_path / "t.csv", epsilon=20).frame.set_index("column")["note"]
    assert "decimal, thousands" in noted["amount"]
