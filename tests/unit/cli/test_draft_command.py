# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


def test_a_draft_is_toml_that_says_what_to_fill_in(folder: Path, run: Run) -> None:
    import tomllib

    ran = run("draft", folder / "people.csv")
    assert ran.code == 0
    assert set(tomllib.loads(ran.out)["domain"]) == {"age", "sex"}
    assert "warning: sex: " in ran.err, "the years of an age are public knowledge"
    assert "FILL IN" in ran.out


def test_a_draft_goes_to_a_file_but_never_over_one(folder: Path, run: Run) -> None:
    out = folder / "schema.toml"
    assert run("draft", folder / "people.csv", "--out", out).code == 0
    written = out.read_text()
    assert "[domain.age]" in written
    again = run("draft", folder / "people.csv", "--out", out)
    assert again.code == 2
    assert "exists" in again.err
    assert out.read_text() == written


def test_a_draft_reads_no_row(folder: Path, run: Run) -> None:
    (folder / "secret.csv").write_text("name,age\nRumpelstiltskin,104729\n")
    ran = run("draft", folder / "secret.csv", "--json")
    assert "Rumpelstiltskin" not in ran.out + ran.err
    assert "104729" not in ran.out + ran.err


def test_a_draft_of_a_csv_file_says_how_to_declare_what_is_no_text(folder: Path, run: Run) -> None:
    import pandas as pd

    shown = run("draft", folder / "people.csv").out
    assert "has no types" in shown
    assert all(f'kind = "{k}"' in shown for k in ("integer", "numeric", "datetime", "boolean"))
    pd.read_csv(folder / "people.csv").to_parquet(folder / "people.parquet")
    assert "has no types" not in run("draft", folder / "people.parquet").out


def test_a_release_file_beside_the_schema_is_planned_once_it_is_filled_in(
    folder: Path, run: Run
) -> None:
    schema, release = folder / "plans" / "schema.toml", folder / "plans" / "release.toml"
    schema.parent.mkdir()
    ran = run("draft", folder / "people.csv", "--out", schema, "--release", release)
    assert ran.code == 0
    assert 'source = "../people.csv"' in release.read_text()
    text = schema.read_text()
    start = text.index('values = "FILL IN')
    schema.write_text(text[:start] + 'values = ["F", "M"]' + text[text.index("\n", start) :])
    planned = run("plan", release, "--json")
    assert planned.code == 0, planned.err
    assert run("draft", folder / "people.csv", "--release", folder / "x.toml").code == 2
    again = run("draft", folder / "people.csv", "--out", folder / "y", "--release", release)
    assert again.code == 2
    assert "exists" in again.err
    assert not (folder / "y").exists(), "nothing is written if one of them cannot be"


def test_a_draft_of_json_lines_says_why_there_is_none(folder: Path, run: Run) -> None:
    (folder / "people.jsonl").write_text('{"age": 104729}')
    ran = run("draft", folder / "people.jsonl")
    assert ran.code == 2
    assert "the names of its fields stand in its records" in ran.err
    assert "104729" not in ran.err
