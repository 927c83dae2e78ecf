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
