# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    some = np.random.default_rng(2)
    frame = pd.DataFrame({"age": some.integers(18, 80, 3000), "sex": some.choice(["f", "m"], 3000)})
    frame.to_parquet(tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "people.parquet"


def test_one_command_describes_a_file_and_again_is_free(people: Path, run: Run) -> None:
    first = run(
        *("describe", people, "--epsilon", "2", "--ledger", "people.ledger", "--create"),
        *("--yes", "--out", "out", "--json"),
    )
    assert first.code == 0, first.err
    said = json.loads(first.out)
    assert [row["kind"] for row in said["columns"]] == ["integer", "category"]
    assert "[domain.age]" in said["schema"]
    assert Path("out/report.html").exists()
    assert Path("out/schema.toml").read_text() == said["schema"]
    again = run(
        *("describe", people, "--epsilon", "2", "--ledger", "people.ledger", "--yes", "--json"),
    )
    assert json.loads(again.out)["is_stored"]
    assert json.loads(again.out)["columns"] == said["columns"]


def test_a_dry_run_spends_nothing_and_reads_no_row(people: Path, run: Run) -> None:
    one = run("describe", people, "--dry-run", "--json", "--records", "50000")
    assert one.code == 0, one.err
    assert set(json.loads(one.out)["simulated"]["found"]) == {"age", "sex"}
    pd.read_parquet(people).head(1).to_parquet(people)
    assert run("describe", people, "--dry-run", "--json", "--records", "50000").out == one.out


def test_what_is_shown_names_every_column(people: Path, run: Run) -> None:
    ran = run("describe", people, "--columns", "age", "--no-ledger", "--yes", "--quiet")
    assert ran.code == 0, ran.err
    assert "quartiles" in ran.out
    assert "sex" not in ran.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--yes",), "--ledger PATH"),
        (("--yes", "--ledger", "none.ledger"), "there is no ledger"),
        (("--no-ledger", "--yes", "--kind", "age"), "NAME=KIND"),
        (("--no-ledger", "--yes", "--unit", "sex"), "belong together"),
        (("--no-ledger", "--yes", "--columns", "agee"), "did you mean"),
        (("--no-ledger", "--yes", "--delta", "0"), "takes a delta"),
        (("--dry-run", "--shape", "odd"), "shape must be"),
    ],
)
def test_what_cannot_be_described_is_refused_in_words(
    people: Path, run: Run, options: tuple[str, ...], words: str
) -> None:
    ran = run("describe", people, *options)
    assert ran.code == 2
    assert words in " ".join(ran.err.split())


def test_what_follows_is_ready_to_be_planned_and_released(people: Path, run: Run) -> None:
    frame = pd.read_parquet(people)
    frame["größe"] = np.random.default_rng(5).choice(["1,5", "2,5"], len(frame))
    Path("leute.csv").write_text(frame.to_csv(index=False, sep=";"), encoding="cp1252")
    refused = run("describe", "leute.csv", "--no-ledger", "--yes")
    assert "encoding" in refused.err
    first = run(
        *("describe", "leute.csv", "--csv", "encoding=cp1252", "--csv", "decimal=,"),
        *("--epsilon", "2", "--ledger", "leute.ledger", "--create", "--total-epsilon", "6"),
        *("--yes", "--out", "first", "--json"),
    )
    assert first.code == 0, first.err
    kinds = [row["kind"] for row in json.loads(first.out)["columns"]]
    assert kinds == ["integer", "category", "numeric"]
    shown = run("show", "first", "--by", "sex")
    assert shown.code == 0, shown.err
    planned = run("plan", "first/release.toml", "--json")
    assert planned.code == 0, planned.err
    second = run("release", "first/release.toml", "--yes", "--out", "second")
    assert second.code == 0, second.err
    assert run("show", "second", "--by", "sex").code == 0


@pytest.mark.parametrize("command", ["describe", "release"])
def test_a_file_that_is_refused_leaves_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, command: str
) -> None:
    """Which rule a file was written by is seen when it is read."""
    monkeypatch.chdir(tmp_path)
    Path("open.csv").write_text('age,note\n1,"x\ny"\n2,z\n')
    Path("release.toml").write_text(
        '[data]\nsource = "open.csv"\nneighbours = "add-remove"\n'
        '[domain.age]\nkind = "integer"\nmin = 0\nmax = 9\n[[workload]]\nmarginals = 1\n'
        '[budget]\nepsilon = 1\n[ledger]\npath = "new.ledger"\ncreate = true\nepsilon = 1\n'
    )
    before = sorted(Path().iterdir())
    options = ("release.toml", "--out", "out")
    if command == "describe":
        options = ("open.csv", "--ledger", "new.ledger", "--create", "--out", "out")
    ran = run(command, *options, "--yes")
    assert ran.code == 2
    assert "--csv csv=rfc4180" in ran.err
    assert sorted(Path().iterdir()) == before


def test_a_spec_that_may_hold_work_is_never_written_over(people: Path, run: Run) -> None:
    Path("first").mkdir()
    Path("first/release.toml").write_text("# mine")
    ran = run("describe", people, "--no-ledger", "--yes", "--out", "first", "--columns", "sex")
    assert ran.code == 0, ran.err
    assert Path("first/release.toml").read_text() == "# mine"
    assert "was there" in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--csv", "encodin=x"), "did you mean"),
        (("--csv", "quote"), "KEY=VALUE"),
        (("--csv", "quote=a", "--csv", "quote=b"), "given twice"),
        (("--total-epsilon", "3"), "give --create"),
        (("--ledger", "x", "--create", "--total-epsilon", "0.1"), "raise the total"),
    ],
)
def test_wrong_options_of_files_and_totals_are_refused_in_words(
    people: Path, run: Run, options: tuple[str, ...], words: str
) -> None:
    pd.read_parquet(people).to_csv("people.csv", index=False)
    ran = run("describe", "people.csv", "--yes", *options)
    assert ran.code == 2
    assert words in " ".join(ran.err.split())
    assert not Path("x").exists()
