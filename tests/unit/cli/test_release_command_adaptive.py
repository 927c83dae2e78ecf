# SPDX-License-Identifier: Apache-2.0
"""Adaptive releases from a spec file: planned, refused, released, stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import sfumato as sf
from sfumato.cli.output import Output, bars
from sfumato.cli.spec import read_spec
from sfumato.errors import PlanError, SchemaError, SfumatoError
from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]

METHODS = ["tables", "mwem", "boosting"]


def written(folder: Path, method: str = "tables", more: str = "") -> Path:
    """The spec of the folder, made adaptive."""
    path = folder / "release.toml"
    path.write_text(f'{SPEC}\n[plan]\nadaptive = "{method}"\n{more}')
    return path


def entries(run: Run, folder: Path) -> list[dict[str, object]]:
    found = run("ledger", "show", folder / "people.ledger", "--json").document["entries"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_states_what_the_python_plan_states(folder: Path, run: Run, method: str) -> None:
    path = written(folder, method)
    (folder / "people.csv").unlink()
    spec = read_spec(path)
    assert spec.budget is not None
    plan = sf.plan_adaptive(spec.workload, spec.budget, method=method)  # type: ignore[arg-type]
    ran = run("plan", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    found = ran.document
    assert found["mechanism"] == f"adaptive-{method}"
    assert found["cost"] == plan.cost.as_json()
    assert (found["rounds"], found["memory"]) == (plan.rounds, plan.memory)
    assert found["seconds"] == plan.seconds
    assert found["candidate_tables"] == len(plan.candidates)
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-9}
    assert [g["queries"] for g in found["groups"]] == [20, 2, 40]  # type: ignore[attr-defined]
    assert [found[key] for key in ("rmse", "largest", "gamma", "certificate")] == [None] * 4


def test_a_plan_says_what_it_takes_of_the_ledger(folder: Path, run: Run) -> None:
    text = " ".join(run("plan", written(folder)).out.split())
    assert "takes" in text
    assert "of the budget" in text


def test_a_plan_says_that_there_is_no_forecast(folder: Path, run: Run) -> None:
    ran = run("plan", written(folder, more="rounds = 3\n"))
    assert ran.code == 0, ran.err
    text = " ".join(ran.out.split())
    assert "none: the error depends on the data; what is measured gets intervals" in text
    for words in ("adaptive-tables", "up to 3", "MiB", "after counting", "epsilon = 1"):
        assert words in text
    assert "rmse" not in text


def test_a_plan_has_every_key_of_a_plan_with_a_forecast(folder: Path, run: Run) -> None:
    usual = run("plan", folder / "release.toml", "--json").document
    adaptive = run("plan", written(folder), "--json").document
    assert {*usual} <= {*adaptive}


@pytest.mark.parametrize("method", METHODS)
def test_a_release_writes_answers_and_what_was_measured(
    folder: Path, run: Run, method: str
) -> None:
    out = folder / "out"
    ran = run("release", written(folder, method), "--out", out, "--synthetic", 30, "--json")
    assert ran.code == 0, ran.err
    names = {
        "answers.parquet",
        "provenance.json",
        "release.zip",
        "report.html",
        "synthetic.parquet",
    }
    quality = {"synthetic-quality.csv", "synthetic-quality.png"}
    assert {p.name for p in out.iterdir()} == names | quality
    document = ran.document
    assert document["is_stored"] is False
    assert document["rmse"] is None
    answers = pd.read_parquet(out / "answers.parquet")
    assert [*answers.columns] == ["group", "query", "age", "sex", "value", "low", "high"]
    assert answers.groupby("group", observed=True).size().to_dict() == {
        "age": 20,
        "sex": 2,
        "prefix age by sex": 40,
    }
    value = answers.set_index("group")["value"]
    assert (value >= 0).all()
    # All answers come from one estimate, so the tables have one total.
    assert value["age"].sum() == pytest.approx(value["sex"].sum())
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 30
    record = json.loads((out / "provenance.json").read_text())
    assert len(record["noise"]) == document["measurements"]
    (entry,) = entries(run, folder)
    assert entry["state"] == "answered"
    assert record["ledger"]["hash"] == entry["hash"]


def test_the_record_has_the_keys_of_every_record(folder: Path, run: Run) -> None:
    assert run("release", folder / "release.toml", "--out", folder / "one", "-q").code == 0
    path = written(folder)
    assert run("release", path, "--out", folder / "two", "-q").code == 0
    usual, adaptive = (
        json.loads((folder / name / "provenance.json").read_text()) for name in ("one", "two")
    )
    assert {*adaptive} == {*usual, "rounds"}
    for key in ("schema", "guarantee", "budget", "neighbours", "workload_sha256", "domain_sha256"):
        assert adaptive[key] == usual[key]
    assert adaptive["mechanism"] == "adaptive-tables"
    assert adaptive["cost"] == read_spec(path).plan_adaptive().cost.as_json()
    assert (adaptive["forecast"], adaptive["certificate"]) == (None, None)
    assert {*adaptive["noise"][0]} == {*usual["noise"][0]}
    assert adaptive["noise"][0]["attributes"] == ["age"]
    assert adaptive["noise"][0]["values"] == 20
    assert all(block["scale"] > 0 for block in adaptive["noise"])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_release_again_is_the_stored_one_and_costs_nothing(
    folder: Path, run: Run, method: str
) -> None:
    path = written(folder, method)
    first = run("release", path, "--out", folder / "one", "--json").document
    again = run("release", path, "--out", folder / "two", "--json").document
    assert (first["is_stored"], again["is_stored"]) == (False, True)
    one, two = (pd.read_parquet(folder / name / "answers.parquet") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two)
    assert len(entries(run, folder)) == 1
    # The twin: another key is another request, with other noise.
    fresh = run("release", path, "--out", folder / "three", "--key", "new", "--json").document
    assert fresh["is_stored"] is False
    assert len(entries(run, folder)) == 2
    assert not pd.read_parquet(folder / "three" / "answers.parquet").equals(one)


def test_the_key_of_another_request_is_refused(folder: Path, run: Run) -> None:
    assert run("release", folder / "release.toml", "--key", "q1", "-q").code == 0
    ran = run("release", written(folder), "--key", "q1", "-q")
    assert ran.code == 2
    assert len(entries(run, folder)) == 1


def test_a_release_that_the_ledger_cannot_pay_is_refused_before_anything(
    folder: Path, run: Run
) -> None:
    path = written(folder)
    path.write_text(path.read_text().replace("epsilon = 3", "epsilon = 0.5"))
    ran = run("release", path)
    assert ran.code == 2
    assert not (folder / "people.ledger").exists()
    assert not (folder / "release-out").exists()


def test_spending_is_confirmed(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def no(self: Output, question: str) -> None:  # noqa: ARG001
        asked.append(question)
        raise SfumatoError("stopped before anything was spent")

    monkeypatch.setattr(Output, "confirm", no)
    ran = run("release", written(folder), agreed=False)
    assert ran.code == 2
    assert "stopped before anything was spent" in ran.err
    assert "This release spends epsilon = 1" in asked[0]
    assert not (folder / "people.ledger").exists()
    assert run("release", written(folder), "--yes", "-q").code == 0
    assert len(asked) == 1


def test_the_facts_and_the_report_say_which_answers_have_intervals(folder: Path, run: Run) -> None:
    path = written(folder)
    path.write_text(path.read_text().replace('"Female", "Male"', '"Female", "<b>Male"'))
    (folder / "people.csv").write_text((folder / "people.csv").read_text().replace("Ma", "<b>Ma"))
    ran = run("release", path, "--out", folder / "out")
    text = " ".join(ran.out.split())
    assert "of 62 answers, from the noise of what was measured" in text
    page = (folder / "out" / "report.html").read_text()
    assert "answers have an interval</b>" in page
    assert "<b>Male" not in page
    assert "&lt;b&gt;Male" in page
    assert "If one row is added or removed" in page
    record = json.loads((folder / "out" / "provenance.json").read_text())
    assert page.count("<tr>") >= len(record["noise"]) + 62
    answers = pd.read_parquet(folder / "out" / "answers.parquet")
    for value in answers["value"]:
        assert f"<td>{value:,.1f}</td>" in page
    assert "Content-Security-Policy" in page


def test_means_are_those_of_the_estimate(folder: Path, run: Run) -> None:
    text = 'sql = "SELECT sex, AVG(age) FROM data GROUP BY sex"'
    path = written(folder)
    path.write_text(path.read_text().replace('prefix = "age"\nby = ["sex"]', text))
    assert run("release", path, "--out", folder / "out", "-q").code == 0
    answers = pd.read_parquet(folder / "out" / "answers.parquet")
    last = read_spec(path).workload.ratios[0].name
    terms = [t.name for t in read_spec(path).workload.terms]
    ratio = read_spec(path).workload.ratios[0]
    by = {name: part["value"].to_numpy() for name, part in answers.groupby("group", observed=True)}
    total, count = by[terms[ratio.numerator]], by[terms[ratio.denominator]]
    assert by[last] == pytest.approx(total / count)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"tables"', '"trees"', "expected 'tables', 'mwem' or 'boosting', got"),
        ('"tables"', "true", "expected 'tables', 'mwem' or 'boosting', got true"),
        ('"tables"\n', '"tables"\nmechanism = "gaussian"\n', "knows no mechanism"),
        ('"tables"\n', '"tables"\nobjective = "max"\n', "knows no objective"),
        ('"tables"\n', '"tables"\nallow_bias = true\nrecords = 9\n', "knows no allow_bias"),
        ('"tables"\n', '"tables"\nseconds = 5\n', "knows no seconds"),
        ('"tables"\n', '"tables"\nrounds = 0\n', "must be at least 1, got the integer 0"),
        ('adaptive = "tables"\n', "rounds = 3\n", "only an adaptive release has rounds"),
        ("epsilon = 1\ndelta = 1e-9\n", "error = 5\n", "knows no error"),
        ("[plan]\n", '[release]\nintervals = "noise"\n[plan]\n', "knows no intervals"),
        ("[plan]\n", "[release]\nproject = false\n[plan]\n", "knows no project"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(
    folder: Path, old: str, new: str, words: str
) -> None:
    path = written(folder)
    read_spec(path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SchemaError, match="line") as refused:
        read_spec(path)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "option", ["--mechanism=gaussian", "--error=5", "--seconds=5", "--records=9"]
)
def test_options_of_forecasts_are_refused(folder: Path, run: Run, option: str) -> None:
    ran = run("plan", written(folder), option)
    assert ran.code == 2
    assert f"leave {option.partition('=')[0]} out" in ran.err


def test_a_notebook_is_refused_before_anything_is_spent(folder: Path, run: Run) -> None:
    ran = run("release", written(folder), "--notebook")
    assert ran.code == 2
    assert "leave --notebook out" in ran.err
    assert not (folder / "people.ledger").exists()


def test_a_domain_that_cannot_be_listed_is_refused_by_the_methods_that_list_it(
    folder: Path, run: Run
) -> None:
    path = written(folder, "mwem")
    path.write_text(path.read_text().replace("max = 19", "max = 99999999"))
    ran = run("plan", path)
    assert ran.code == 2
    assert "cells of the domain" in ran.err


def test_groups_that_nobody_can_list_are_refused(folder: Path, run: Run) -> None:
    path = written(folder)
    text = path.read_text().replace("max = 19", "max = 99999")
    path.write_text(text.replace('prefix = "age"', 'ranges = "age"'))
    ran = run("plan", path)
    assert ran.code == 2
    assert "ask for prefixes" in ran.err


def test_each_kind_of_plan_is_asked_for_by_its_name(folder: Path) -> None:
    usual = read_spec(folder / "release.toml")
    with pytest.raises(PlanError, match="asks for no adaptive release"):
        usual.plan_adaptive()
    with pytest.raises(PlanError, match="has no forecast"):
        read_spec(written(folder)).plan()


def test_compare_leaves_adaptive_out_and_says_so(folder: Path, run: Run) -> None:
    ran = run("compare", written(folder))
    assert ran.code == 0, ran.err
    assert "adaptive-tables is not shown" in " ".join(ran.out.split())


def test_rounds_move_the_bar_of_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with bars(True) as shown:
        move = shown.of_release()
        assert move is not None
        for label in ("age x sex", "choosing and measuring", "sampling and measuring"):
            move(1, 2, label)
        assert [*shown.tasks] == ["counting", "measuring"]


def test_the_example_can_be_planned(run: Run) -> None:
    example = Path(__file__).parents[3] / "examples" / "adult" / "adaptive.toml"
    found = run("plan", example, "--json").document
    assert found["mechanism"] == "adaptive-tables"
    assert found["candidate_tables"] == len(found["groups"]) == 91  # type: ignore[arg-type]
