# SPDX-License-Identifier: Apache-2.0
"""Every script in examples/ runs, in an empty folder, and says what its first line promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# What each script must print; a new script has to be added here.
SHOWN = {
    "approximate.py": ["allowed bias   gamma", "conjunctions of 6 of 12", "degree"],
    "census.py": ["394 queries by", "48 cells for redistricting", "block totals kept: True"],
    "correct.py": ["Correction of 50 predictions", "by the last answer: Corrected"],
    "explore.py": ["Female, >50K: median age about", "questions, ", "paid answers left"],
    "exercise_2_1.py": ["R M = F: True", "F, the thresholds, 8 x 8"],
    "hospital.py": ["Stream of 365 sums of the last 7", "last day: ", "quiet all year: "],
    "ledger.py": ["the same answers: True", "budget refused", "whole: True"],
    "local_model.py": ["95% interval", "clients"],
    "online.py": ["equal answers: True", "after a restart: True", "paid answers left"],
    "quickstart.py": ["74 queries by", "emergency"],
    "regression.py": ["(intercept)", "education-num", "r_squared", "variance"],
    "smallest_budget.py": ["25 counts: epsilon ="],
    "sql_counts.py": ["Female", "mean"],
    "stream.py": ["Stream of 365 running totals", "last 7 days", "<- used"],
    "watch.py": ["Watch of 365 counts for at most 2 alerts", "of 365 counts: "],
}


def test_every_script_is_listed() -> None:
    assert {p.name for p in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for text in SHOWN[name]:
        assert text in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_the_example_spec_says_k_and_the_error_of_each_group() -> None:
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "sfumato", "plan", str(EXAMPLES / "adult/release.toml")),
            # The optimum takes seconds to find; the shape of the document is the same without it.
            *("--mechanism", "gaussian-groups", "--json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    # 91 tables of pairs, 74 ages by 2 sexes, 7 marital states.
    sizes = [74, 9, 16, 16, 7, 15, 6, 5, 2, 20, 20, 99, 42, 2]
    pairs = sum(a * b for i, a in enumerate(sizes) for b in sizes[i + 1 :])
    assert found["queries"] == pairs + 74 * 2 + 7
    assert len(found["groups"]) == 91 + 2
    assert all(g["rmse"] > 0 for g in found["groups"])
    assert found["mechanism"] == "gaussian-groups"
