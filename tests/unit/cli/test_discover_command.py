# SPDX-License-Identifier: Apache-2.0
"""``sfumato discover``, and specs that leave values open: discovered once, then answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato as sf
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]
CITIES = ["Rome"] * 400 + ["Bari"] * 300 + [f"village {i}" for i in range(50)]
SPEC = """
[data]
source = "people.csv"

[domain.city]
kind = "category"
values = "discover"

[domain.age]
kind = "integer"
min = 0
max = 9

[[workload]]
marginals = [["city"], ["age"]]

[budget]
epsilon = 1
delta = 1e-6

[ledger]
path = "people.ledger"
create = true
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [f"{city},{i % 10},{i}" for i, city in enumerate(CITIES)]
    (tmp_path / "people.csv").write_text("\n".join(["city,age,id", *rows]) + "\n")
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def options(*more: object) -> tuple[object, ...]:
    return ("--column", "city", "--epsilon", 1, "--delta", "1e-6", *more)


def test_values_of_a_table_are_told_and_a_schema_is_written(place: Path, run: Run) -> None:
    out = place / "schema.toml"
    ran = run("discover", place / "people.csv", *options("--no-ledger", "--out", out))
    assert ran.code == 0, ran.err
    assert "Discovered 2 values" in ran.out
    assert sf.Domain.from_toml(out)["city"].labels == ("Rome", "Bari", "(other)", "(missing)")
    again = run("discover", place / "people.csv", *options("--no-ledger", "--out", out))
    assert again.code == 2
    assert "may hold your work" in again.err


def test_a_discovery_is_debited_once(place: Path, run: Run) -> None:
    ledger = place / "l.ledger"
    sf.Ledger.create(ledger, sf.Budget(epsilon=2, delta="1e-5"), "people.csv")
    first = run("discover", place / "people.csv", *options("--ledger", ledger, "--json"))
    assert first.code == 0, first.err
    again = run("discover", place / "people.csv", *options("--ledger", ledger, "--json"))
    assert [d["is_stored"] for d in (first.document, again.document)] == [False, True]
    assert first.document["keys"] == again.document["keys"]
    assert len(sf.Ledger.open(ledger).entries()) == 1


def test_an_estimate_spends_nothing_and_nothing_is_spent_without_a_yes(place, run) -> None:
    shown = run("discover", place / "people.csv", *options("--estimate"), agreed=False)
    assert "14 people share" in " ".join(shown.out.split())
    asked = run("discover", place / "spec.toml", agreed=False)
    assert asked.code == 2
    assert "give --yes" in asked.err
    assert not (place / "people.ledger").exists()


def test_tuples_tops_and_units_are_asked_for_by_options(place: Path, run: Run) -> None:
    ran = run(
        "discover", place / "people.csv", "--column", "city", "--column", "age", "--together",
        "--epsilon", 2, "--delta", "1e-6", "--most", 3, "--no-ledger", "--json",
    )  # fmt: skip
    assert len(ran.document["keys"]) == 3
    assert all(len(row["key"]) == 2 for row in ran.document["keys"])
    top = run("discover", place / "people.csv", *options("--top", 1, "--no-ledger", "--json"))
    assert [row["key"] for row in top.document["keys"]] == ["Rome"]
    wrong = run("discover", place / "people.csv", *options("--unit", "id"))
    assert "belong together" in wrong.err
    unit = ("--unit", "id", "--keys-per-unit", 2, "--no-ledger", "--json")
    assert run("discover", place / "people.csv", *options(*unit)).code == 0


def test_a_select_says_what_is_discovered(place: Path, run: Run) -> None:
    sql = "SELECT city FROM people GROUP BY city ORDER BY COUNT(*) DESC LIMIT 1"
    budget = ("--epsilon", 1, "--delta", "1e-6", "--no-ledger", "--json")
    ran = run("discover", place / "people.csv", "--sql", sql, *budget)
    assert [row["key"] for row in ran.document["keys"]] == ["Rome"]
    assert "leave --column" in run("discover", place / "p.csv", *options("--sql", sql)).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("people.csv",), "--column NAME"),
        (("people.csv", "--column", "city"), "--epsilon 1 --delta 1e-6"),
        (("people.csv", *options()), "names no ledger"),
        (("people.csv", *options("--column", "cty", "--no-ledger")), "did you mean 'city'"),
        (("spec.toml", "--column", "city"), "leave out --column"),
    ],
)
def test_what_is_missing_is_said(place: Path, run: Run, arguments, words) -> None:
    ran = run("discover", place / arguments[0], *arguments[1:])
    assert ran.code == 2
    assert words in ran.err


def test_a_release_of_an_open_spec_discovers_first_and_pays_for_both_once(place, run) -> None:
    spec = place / "spec.toml"
    forecast = run("plan", spec, "--json", agreed=False)
    assert forecast.code == 0, forecast.err
    assert forecast.document["left"] == {"epsilon": 0.8, "delta": 5e-7}
    assert not (place / "people.ledger").exists()
    assert "discovers first" in " ".join(run("plan", spec).out.split())
    first = run("release", spec, "--json")
    assert first.code == 0, first.err
    assert first.document["budget"] == {"epsilon": 0.8, "delta": 5e-7}
    ledger = sf.Ledger.open(place / "people.ledger")
    assert len(ledger.entries()) == 2
    assert ledger.budget == sf.Budget(epsilon=1, delta="1e-6")
    assert ledger.verify().is_whole
    again = run("release", spec, "--json")
    assert again.document["is_stored"] is True
    assert len(ledger.entries()) == 2


def test_the_share_of_the_discovery_can_be_said(place: Path, run: Run) -> None:
    spec = place / "spec.toml"
    spec.write_text(SPEC + "\n[discovery]\nepsilon = 0.5\ndelta = 2e-7\n")
    found = run("plan", spec, "--json").document
    assert found["left"] == {"epsilon": 0.5, "delta": 8e-7}
    assert found["discovery"]["budget"] == {"epsilon": 0.5, "delta": 2e-7}
    spec.write_text(SPEC + "\n[discovery]\nepsilon = 1\n")
    assert "leaves nothing to answer with" in run("plan", spec).err
    spec.write_text(SPEC.replace("delta = 1e-6\n", ""))
    assert "epsilon and delta" in run("plan", spec).err
    spec.write_text(SPEC.replace('values = "discover"', 'values = ["a"]') + "\n[discovery]\n")
    assert "nothing is to be discovered" in run("plan", spec).err
    spec.write_text(SPEC.replace("epsilon = 1\ndelta = 1e-6", "error = 10"))
    assert "before all is discovered" in run("plan", spec).err


VISITS = """
[data]
source = "people.csv"
unit = "city"
rows_per_unit = "discover"
[domain.age]
kind = "integer"
min = 0
max = 9
[[workload]]
marginals = [["age"]]
[budget]
epsilon = 2
delta = 1e-6
[ledger]
path = "people.ledger"
create = true
"""


def test_how_many_rows_of_a_unit_count_is_discovered_before_the_answers(place, run) -> None:
    spec = place / "spec.toml"
    spec.write_text(VISITS)
    planned = run("plan", spec, "--json").document
    (search,) = planned["discovery"]["searches"]
    taken = planned["discovery"]["budget"]["epsilon"]
    assert taken + planned["left"]["epsilon"] == 2
    assert 0.02 * 2 <= taken <= 0.2 * 2
    assert search["persons"] < search["persons_at_most"]
    assert planned["rmse_of_one_row"] > 0
    assert not (place / "people.ledger").exists()
    assert "all records of one city may be" in " ".join(run("plan", spec).out.split())
    released = run("release", spec, "--json")
    assert released.code == 0, released.err
    ledger = sf.Ledger.open(place / "people.ledger")
    assert len(ledger.entries()) == 2
    assert ledger.verify().is_whole
    assert run("release", spec, "--json").document["is_stored"] is True
    told = run("discover", spec, "--json").document
    assert told["unit"]["column"] == "city"
    assert told["is_stored"] is True
    assert run("compare", spec).err.count("sfumato discover") == 1
    spec.write_text(VISITS + "[discovery]\nbound_epsilon = 0.5\npersons = 40\n")
    told = run("plan", spec, "--json").document
    assert told["left"]["epsilon"] == 1.5
    assert told["discovery"]["searches"][0]["persons"] == 40
    spec.write_text(VISITS.replace('unit = "city"', ""))
    assert "needs the column of the unit" in run("plan", spec).err


def test_a_bound_comes_before_the_values_that_are_open(place: Path, run: Run) -> None:
    spec = place / "spec.toml"
    open_values = VISITS.replace('unit = "city"', 'unit = "id"') + (
        '[domain.city]\nkind = "category"\nvalues = "discover"\n'
    )
    spec.write_text(open_values)
    assert "persons = 100 in [discovery]" in run("plan", spec).err
    spec.write_text(open_values + "[discovery]\npersons = 60\n")
    ran = run("release", spec, "--json")
    assert ran.code == 0, ran.err
    entries = sf.Ledger.open(place / "people.ledger").entries()
    assert len(entries) == 3
    assert sum(float(e.cost.pure_epsilon) for e in entries) <= 2


def test_a_bound_of_a_table_is_discovered_by_options(place: Path, run: Run) -> None:
    table = place / "people.csv"
    ran = run(
        *("discover", table, "--unit", "id", "--persons", 5, "--epsilon", 5, "--no-ledger"),
        "--json",
    )
    assert ran.code == 0, ran.err
    assert ran.document["unit"] == {"column": "id", "rows": 1}
    assert "needs --unit" in run("discover", table, "--persons", 5, "--epsilon", 5).err


def test_other_commands_say_that_the_values_come_first(place: Path, run: Run) -> None:
    assert "sfumato discover" in run("compare", place / "spec.toml").err
    closed = place / "closed.toml"
    closed.write_text(SPEC.replace('values = "discover"', 'values = ["a"]'))
    assert "leaves nothing to be discovered" in run("discover", closed).err
