# SPDX-License-Identifier: Apache-2.0
"""`examples/adult/constraints.toml` end to end, in one process, with and without its budget."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sfumato.cli.main import main
from sfumato.ledger.ledger import Ledger

SPEC = Path(__file__).parents[2] / "examples" / "adult" / "constraints.toml"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("constraints")
    book = folder / "adult.ledger"
    assert run("ledger", "create", book, "--spec", SPEC) == 0
    asked = ("release", SPEC, "--out", folder / "out", "--ledger", book)
    assert run(*asked, "--synthetic", 48842, "--csv", "--yes", "-q") == 0
    return folder / "out"


def test_impossible_cells_are_zero_and_the_total_is_met(out: Path) -> None:
    answers = pd.read_parquet(out / "answers.parquet")
    table = answers[answers["group"] == "education x education-num"]
    assert len(table) == 256
    barred = table["high"] == 0
    assert barred.sum() == 240
    assert (table.loc[barred, ["value", "low"]] == 0).all().all()
    by_group = answers.groupby("group", observed=True)["value"].sum()
    assert by_group.to_numpy() == pytest.approx(48842, abs=1e-3)
    assert ((answers["low"] <= answers["value"]) & (answers["value"] <= answers["high"])).all()


def test_the_record_the_report_and_the_records_keep_them(out: Path) -> None:
    record = json.loads((out / "provenance.json").read_text())
    assert len(record["constraints"]["impossible"]) == 16
    assert record["constraints"]["met"] == "by all answers together"
    assert "no record where education = Preschool" in (out / "report.html").read_text()
    people = pd.read_parquet(out / "synthetic.parquet")
    assert len(people) == 48842
    assert people.groupby("education")["education-num"].nunique().max() == 1
    again = pd.read_csv(out / "synthetic.csv", keep_default_na=False)
    assert again["education"].tolist() == people["education"].tolist()


def test_contradictions_and_unknown_intervals_spend_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    table = '[[constraints.published]]\nattributes = ["{0}"]\nvalues = {1}\n\n[budget]'
    schools = table.format("education", [48842, *[0] * 15])
    numbers = table.format("education-num", [*[0] * 15, 48842]).replace("[budget]", "")
    wrong.write_text(SPEC.read_text().replace("[budget]", numbers + schools))
    book = tmp_path / "adult.ledger"
    assert run("ledger", "create", book, "--spec", SPEC) == 0
    asked = ("--out", tmp_path / "out", "--ledger", book, "--yes", "-q")
    assert run("release", wrong, *asked) == 2
    assert run("release", SPEC, *asked, "--intervals", "guessed") == 2
    assert not (tmp_path / "out").exists()
    assert Ledger.open(book).remaining().share == 1
