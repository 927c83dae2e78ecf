# SPDX-License-Identifier: Apache-2.0
"""`sfumato demo` end to end, in one real process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

K = 46_056 + 148  # all cells of the 91 pairs, and 74 ages for 2 sexes


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    ran = subprocess.run(
        [sys.executable, "-m", "sfumato", "demo"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (folder / "stdout").write_text(ran.stdout)
    (folder / "stderr").write_text(ran.stderr)
    return folder


def test_the_demo_says_where_the_report_is(demo: Path) -> None:
    text = (demo / "stdout").read_text()
    assert f"{K:,} private answers" in text
    assert "forecast rmse" in text
    assert "epsilon = 1, delta = 1e-9" in text
    (report,) = re.findall(r"Open the report:\s+(\S+)", text)
    assert Path(report) == demo / "sfumato-demo" / "report.html"
    assert Path(report).exists()
    assert (demo / "stderr").read_text() == ""


def test_the_demo_writes_exactly_its_files(demo: Path) -> None:
    written = {p.name for p in (demo / "sfumato-demo").iterdir()}
    assert written == {"answers.parquet", "report.html", "provenance.json", "release.zip"}


def test_the_answers_have_labels_values_and_error_bars(demo: Path) -> None:
    frame = pd.read_parquet(demo / "sfumato-demo" / "answers.parquet")
    assert len(frame) == K
    wanted = {"group", "query", "age", "sex", "value", "standard_error", "low", "high", "unbiased"}
    assert wanted <= set(frame.columns)
    assert frame["group"].nunique() == 92
    assert (frame["standard_error"] > 0).all()
    cut = frame["unbiased"].clip(lower=0)
    assert ((frame["low"] <= cut) & (cut <= frame["high"])).all()
    # Values agree with all other answers; their own interval misses few of them.
    inside = (frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])
    assert inside.mean() > 0.85
    assert (frame["value"] >= 0).all()


def test_the_errors_of_the_demo_are_of_the_forecast_size(demo: Path) -> None:
    """Against exact counts, which only this test computes: the table of the demo is public."""
    import pyarrow.parquet as pq

    from sfumato.domain.domain import example

    frame = pd.read_parquet(demo / "sfumato-demo" / "answers.parquet")
    people = pq.read_table(example("adult").table).to_pandas()
    asked = frame[frame["group"] == "race x sex"]
    exact = people.groupby(["race", "sex"]).size()
    errors = [
        (row.unbiased - exact.get((row.race, row.sex), 0)) / row.standard_error
        for row in asked.itertuples()
    ]
    # 10 errors in standard units: beyond 6 once in 5e7 runs of the demo.
    assert len(errors) == 10
    assert max(abs(e) for e in errors) < 6
    assert max(abs(e) for e in errors) > 1e-3


def test_the_provenance_of_the_demo_says_how_it_was_made(demo: Path) -> None:
    found = json.loads((demo / "sfumato-demo" / "provenance.json").read_text())
    wanted = {
        *("budget", "neighbours", "mechanism", "strategy", "noise", "domain_sha256"),
        *("workload_sha256", "ledger", "forecast", "guarantee", "privacy_unit", "cost"),
    }
    assert wanted <= set(found)
    assert found["budget"] == {"epsilon": "1", "delta": "1/1000000000"}
    assert found["neighbours"] == "add-remove"
    assert found["public_rows"] is None
    assert found["forecast"]["queries"] == K


def test_the_report_opens_offline(demo: Path) -> None:
    page = (demo / "sfumato-demo" / "report.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"<script[^>]+src", page)
    # Outside the scripts (the charting library inside them names addresses that it never loads):
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"<(?:link|iframe|img|object|embed|base)\b", outside)
    assert "http://" not in outside
    assert "https://" not in outside
    assert "url(" not in outside
