# SPDX-License-Identifier: Apache-2.0
"""``sfumato show``: saved releases, read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


def test_a_saved_release_is_shown(folder: Path, run: Run) -> None:
    out = folder / "out"
    assert run("release", folder / "release.toml", "--out", out, "--yes").code == 0
    shown = run("show", out, "--json")
    assert shown.code == 0, shown.err
    groups = shown.document["groups"]
    assert isinstance(groups, list)
    assert shown.document["provenance"]["ledger"]["sequence"] >= 1  # type: ignore[index]
    text = run("show", out).out
    assert "promise" in text
    assert str(groups[0]) in text


def test_answers_of_a_saved_release_are_those_of_its_file(folder: Path, run: Run) -> None:
    out = folder / "out"
    run("release", folder / "release.toml", "--out", out, "--yes")
    stored = pd.read_parquet(out / "answers.parquet")
    group = str(stored["group"].iloc[0])
    rows = run("show", out, "--group", group, "--json").document["rows"]
    assert isinstance(rows, list)
    of_group = stored[stored["group"] == group]
    assert [round(r["value"], 6) for r in rows] == of_group["value"].round(6).tolist()
    said = run("show", out, "--sql", f'SELECT COUNT(*) AS n FROM "{group}"', "--json")
    assert said.document["rows"][0]["n"] == len(of_group)  # type: ignore[index]
    wide = run("show", out, "--group", group, "--level", 0.999, "--json").document["rows"]
    assert isinstance(wide, list)
    assert all(w["high"] >= r["high"] for w, r in zip(wide, rows, strict=True))


def test_a_report_is_written_anew_and_a_ledger_is_asked(folder: Path, run: Run) -> None:
    out = folder / "out"
    run("release", folder / "release.toml", "--out", out, "--yes")
    ran = run("show", out, "--ledger", folder / "people.ledger", "--report", folder / "r.html")
    assert ran.code == 0, ran.err
    assert "<html" in (folder / "r.html").read_text()


def test_a_changed_folder_is_refused(folder: Path, run: Run) -> None:
    out = folder / "out"
    run("release", folder / "release.toml", "--out", out, "--yes")
    (out / "provenance.json").write_text("{}")
    ran = run("show", out)
    assert ran.code == 2
    assert "provenance.json changed" in ran.err
    assert run("show", folder).code == 2
