"""The whole flow: a table, a ledger, answers; and what is refused on the way."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import show_command
from sfumato.domain.attributes import Integer
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import BudgetExhausted, LedgerError, TableError, TooLarge
from sfumato.ledger.ledger import Ledger
from sfumato.measurement import Measured
from sfumato.planning.division import length_of
from sfumato.planning.forecast import Forecast
from sfumato.release.provenance import facts_of, provenance_of
from sfumato.run import linear
from sfumato.study import projection_forecast
from sfumato.study.projection_forecast import after_projection
from sfumato.vault.mechanisms import measure
from sfumato.workload.workload_limits import LIMITS
from tests.shared.ledger_home import made

DOMAIN = sf.Domain({"age": 10, "sex": 2})
BUDGET = sf.Budget(epsilon=1, delta=1e-6)


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"age": rng.integers(0, 10, 500), "sex": rng.integers(0, 2, 500), "id": np.arange(500) // 5}
    )


def plan(budget: sf.Budget = BUDGET) -> sf.Plan:
    return sf.plan(sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "age"), budget)


def test_equal_plans_on_one_table_share_one_answer_and_one_debit(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    first = plan().release(people, ledger=path, name="people")
    again = plan().release(people, ledger=path, name="people")
    assert (first.is_stored, again.is_stored) == (False, True)
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    book = Ledger.open(path)
    assert len(book.entries()) == 1
    assert book.verify().is_whole


def test_a_new_key_is_a_new_debit_and_the_budget_ends(people: pd.DataFrame, tmp_path: Path) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    plan().release(people, ledger=path, name="people")
    with pytest.raises(BudgetExhausted, match="budget refused"):
        plan().release(people, ledger=path, name="people", key="another")
    assert len(Ledger.open(path).entries()) == 1


def test_without_a_ledger_the_noise_is_new_every_time(people: pd.DataFrame) -> None:
    one, two = plan().release(people).answers(), plan().release(people).answers()
    assert (one["unbiased"] != two["unbiased"]).mean() > 0.9


def test_a_ledger_of_another_table_or_other_neighbours_is_refused(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    book = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove")
    with pytest.raises(LedgerError, match="belongs to table 'people'"):
        plan().release(people, ledger=book, name="others")
    other = sf.plan(sf.marginals(DOMAIN, 1), BUDGET, "replace-one")
    with pytest.raises(LedgerError, match="neighbours"):
        other.release(people, ledger=book, name="people")
    assert book.entries() == ()


def test_a_table_without_a_declared_column_costs_nothing(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    with pytest.raises(TableError, match="sex"):
        plan().release(people.drop(columns="sex"), ledger=path, name="people")
    assert Ledger.open(path).entries() == ()


def test_the_number_of_records_is_public_only_when_a_replaced_one_cannot_change_it(
    people: pd.DataFrame,
) -> None:
    """A replaced record that the schema drops would change the count: then it stays private."""
    kept = sf.Domain(
        [
            Integer("age", 0, 9, outside="clamp", nulls="missing"),
            Integer("sex", 0, 1, outside="other", nulls="missing"),
        ]
    )
    rows = {
        (domain.keeps_every_record, neighbours): sf.plan(
            sf.marginals(domain, 1), BUDGET, neighbours
        )
        .release(people)
        .rows
        for domain in (kept, DOMAIN)
        for neighbours in ("add-remove", "replace-one")
    }
    assert rows == {
        (True, "replace-one"): 500,
        (True, "add-remove"): None,
        (False, "replace-one"): None,
        (False, "add-remove"): None,
    }


def test_a_privacy_unit_bounds_what_one_person_adds(people: pd.DataFrame) -> None:
    """At epsilon 50 the noise is small: 100 people, at most 2 of their 5 rows each."""
    unit = PrivacyUnit("id", 2)
    big = sf.plan(sf.marginals(DOMAIN, [()]), sf.Budget(epsilon=50), unit=unit)
    assert abs(big.release(people).answers()["unbiased"].iloc[0] - 200) < 5


def test_projected_answers_are_feasible_and_the_unbiased_stay_beside_them(
    people: pd.DataFrame,
) -> None:
    # 20 cells of some 25 people, Laplace noise of scale 200: none below 0 once in 100,000 runs.
    result = plan(sf.Budget(epsilon=0.005, delta=1e-6)).release(people)
    answers = result.answers()
    assert (answers["value"] >= 0).all()
    assert (answers["unbiased"] < 0).any()
    raw = plan(sf.Budget(epsilon=0.05, delta=1e-6)).release(people, project=False).answers()
    assert (raw["value"] == raw["unbiased"]).all()


def test_answers_that_no_release_can_list_are_refused_before_the_debit(tmp_path: Path) -> None:
    domain = sf.Domain({"x": 2, "y": 2, "z": 2})
    many = np.arange(1200).reshape(600, 2)
    asked = sf.product(domain, {"x": many, "y": many, "z": many})
    found = sf.plan(asked, sf.Budget(mu=1), mechanism="gaussian-table")
    people = pd.DataFrame({name: [0, 1, 1] for name in domain.names})
    path = made(tmp_path / "people.ledger", sf.Budget(mu=1), "people")
    with pytest.raises(TooLarge, match="216,000,000"):
        found.release(people, ledger=path, name="people")
    assert Ledger.open(path).entries() == ()
    few = sf.plan(sf.product(domain, {"x": many}), sf.Budget(mu=1), mechanism="gaussian-table")
    few.release(people, ledger=path, name="people")
    assert len(Ledger.open(path).entries()) == 1  # the twin: what can be listed is paid for


def test_ranges_along_two_attributes_are_told_as_running_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Product strategies answer the shorter question from the same measurements."""
    domain = sf.Domain({"x": 12, "y": 9})
    found = sf.plan(
        sf.product(domain, {"x": "ranges", "y": "ranges"}),
        sf.Budget(mu=1),
        mechanism="factorization",
    )
    few = replace(LIMITS, array_entries=1000)
    monkeypatch.setattr("sfumato.workload.workload.LIMITS", few)
    people = pd.DataFrame({"x": np.arange(60) % 12, "y": np.arange(60) % 9})
    told = found.release(people).answers()
    assert len(told) == 12 * 9
    assert np.isfinite(told["standard_error"]).all()


# The budget divided for the number of records

MANY = sf.Domain({"a": 9, "b": 8, "c": 3, "d": 4, "e": 12, "f": 5})
LITTLE = sf.Budget(mu=0.05)


@pytest.fixture
def few() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({a.name: rng.integers(0, a.size, 400) for a in MANY})


def divided_for(release: sf.Release) -> object:
    return release.provenance["forecast"].get("divided_for_records")


def test_a_release_counts_records_with_noise_and_divides_its_budget_for_them(few, tmp_path):
    path = made(tmp_path / "few.ledger", LITTLE, "few")
    work = sf.marginals(MANY, 2)
    first = sf.plan(work, LITTLE).release(few, ledger=path, name="few")
    again = sf.plan(work, LITTLE).release(few, ledger=path, name="few")
    records = divided_for(first)
    assert isinstance(records, int)
    assert (again.is_stored, divided_for(again)) == (True, records)
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    book = Ledger.open(path)
    assert len(book.entries()) == 1
    assert book.entries()[0].cost == sf.plan(work, LITTLE).cost
    # Whoever guesses another number, or asks for another view, reads what was measured.
    guessed = sf.plan(work, LITTLE, records=10**6).release(few, ledger=path, name="few")
    assert (guessed.is_stored, divided_for(guessed)) == (True, records)
    as_measured = sf.plan(work, LITTLE).release(few, path, project=False, name="few")
    assert (as_measured.is_stored, divided_for(as_measured)) == (True, records)


def test_what_was_promised_of_unbiased_answers_is_kept(few):
    plan = sf.plan(sf.marginals(MANY, 2), LITTLE)
    for project in (False, "bounds", "nearest"):
        assert divided_for(plan.release(few, project=project)) is None
    named = sf.plan(sf.marginals(MANY, 2), LITTLE, mechanism="factorization")
    assert divided_for(named.release(few)) is None
    priced = sf.plan(sf.marginals(MANY, 2), error=1.01 * plan.rmse, delta=1e-6)
    assert priced.divided(400) is priced


def test_a_public_number_or_a_guess_takes_the_place_of_the_count(few):
    work = sf.marginals(MANY, 2)
    assert divided_for(sf.plan(work, LITTLE, records=350).release(few)) == 350
    assert divided_for(sf.plan(work, LITTLE, records=10**7).release(few)) is None
    inside = sf.marginals(
        sf.Domain(dict(zip(MANY.names, MANY.shape, strict=True)), records="all-inside"), 2
    )
    public = sf.plan(inside, LITTLE, "replace-one").release(few)
    assert divided_for(public) == 400


def test_what_is_told_of_a_length_divides_a_stored_measurement_again(few, tmp_path, monkeypatch):
    path = made(tmp_path / "long.ledger", LITTLE, "few")
    plan, asked = sf.plan(sf.marginals(MANY, 2), LITTLE), []

    def noted(*args, **kwargs):
        asked.append(length_of(*args, **kwargs))
        return asked[-1]

    monkeypatch.setattr(linear, "length_of", noted)
    alike = pd.DataFrame(dict.fromkeys(few, few["c"] % 3))
    first = plan.release(alike, ledger=path, name="few")
    assert asked[-1] is not None
    book = Ledger.open(path)
    about = Measured.about(book.answer(book.entries()[0].key))
    told = about["division"]
    assert told["length"][1] == asked[-1].noise.grid_bits
    usual = plan.divided(told["records"], is_counted=told["is_counted"]).forecast
    assert [law.as_json() for law in usual.noise] != about["noise"]
    again = sf.plan(sf.marginals(MANY, 2), LITTLE).release(alike, ledger=path, name="few")
    assert again.is_stored
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    assert divided_for(again) == divided_for(first) == told["records"]
    # Every number that was measured is in the record, also of what is read again.
    law = asked[-1].noise
    records, length = first.provenance["measured_first"]
    assert records["block"] == "number of records"
    assert (records["value"], records["scale"]) == (told["records"], plan.noise[0].scale)
    assert length["block"] == "length of pieces of several attributes"
    assert length["value"] == told["length"][0] * 2.0 ** -told["length"][1]
    assert (length["scale"], length["scale_in_grid_steps"]) == (law.scale, law.units)
    assert again.provenance["measured_first"] == [records, length]
    assert f"{length['value']:,.4g}" in first.fact_sheet()
    assert "these were measured first" in first.report()
    first.save(tmp_path / "saved")
    read = sf.read_release(tmp_path / "saved", path)
    assert read.provenance == first.provenance
    shown = CliRunner().invoke(show_command.app, [str(tmp_path / "saved")])
    assert "measured first" in shown.output
    # Releases that earlier versions saved have no such numbers, and their records stay as they are.
    parts = {f.name: getattr(read.forecast, f.name) for f in fields(Forecast)}
    former = Forecast(**parts)
    assert former.divided_for == told["records"]
    record = provenance_of(former, rows=None, projection="none")
    assert (record["schema"], "measured_first" in record) == ("sfumato provenance 1", False)
    assert "measured_first" not in facts_of(former, None)


@pytest.mark.parametrize(
    ("domain", "is_listed"), [(MANY, True), (sf.Domain({f"q{i}": 8 for i in range(8)}), False)]
)
@pytest.mark.parametrize("how", ["counted", "guessed", "public"])
def test_a_forecast_and_a_release_of_its_table_divide_alike(domain, is_listed, how, monkeypatch):
    """On the made-up records themselves, counted and measured without noise."""
    records = 1_000
    if how == "public":
        sizes = dict(zip(domain.names, domain.shape, strict=True))
        domain = sf.Domain(sizes, records="all-inside")
    work = sf.marginals(domain, 2)
    neighbours = "replace-one" if how == "public" else "add-remove"
    plan = sf.plan(work, LITTLE, neighbours, records=900 if how == "guessed" else None)
    forecasts = []

    def noted(forecast, n):
        forecasts.append(forecast)
        return after_projection(forecast, n, steps=1)

    monkeypatch.setattr(projection_forecast, "after_projection", noted)
    plan.projected(records)
    (forecast,) = forecasts
    codes = projection_forecast._made_up_codes(work, plan.mechanism, records)
    assert projection_forecast.is_listed(work) == is_listed
    table = pd.DataFrame(dict(zip(domain.names, codes, strict=True)))
    monkeypatch.setattr(measure, "block_noise", lambda _, size, __: np.zeros(size, dtype=np.int64))
    release = plan.release(table)
    assert release.forecast.first_numbers == forecast.first_numbers
    assert release.forecast.noise == forecast.noise
    assert any("length" in number.name for number in forecast.first_numbers)
    assert plan.divided(records).forecast.noise != forecast.noise  # the twin: without a length


def test_nothing_is_measured_first_where_the_number_of_records_is_a_guess(few):
    plan = sf.plan(sf.marginals(MANY, 1), LITTLE, records=350)  # no pieces of several attributes
    record = plan.release(few).provenance
    assert "measured_first" not in record
    assert record["schema"] == "sfumato provenance 1"


@pytest.mark.parametrize("records", [0, -1, 2.5, True, "many"])
def test_a_guess_that_is_no_number_of_records_is_refused(records):
    with pytest.raises(sf.PlanError, match="whole number above 0"):
        sf.plan(sf.marginals(MANY, 2), LITTLE, records=records)


def test_intervals_hold_where_the_budget_was_divided(few):
    plan = sf.plan(sf.marginals(MANY, 2), LITTLE)
    truth = {t.attributes: few.groupby(list(t.attributes)).size() for t in plan.workload.terms}
    held, count = 0, 0
    for _ in range(4):
        release = plan.release(few)
        for names, counts in truth.items():
            frame = release.answers(names[0], by=[names[1]])
            exact = [
                counts.get(key, 0) for key in zip(frame[names[0]], frame[names[1]], strict=True)
            ]
            held += ((frame["low"] <= exact) & (exact <= frame["high"])).sum()
            count += len(frame)
    assert held > 0.93 * count
