# SPDX-License-Identifier: Apache-2.0
"""``sfumato select``: what it says before it spends, what it tells, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.ledger.ledger import Ledger
from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]
BY_SEX = "SELECT sex, COUNT(*) FROM data GROUP BY sex ORDER BY COUNT(*) DESC LIMIT 1"


@pytest.fixture
def spec(folder: Path) -> Path:
    path = folder / "select.toml"
    text = SPEC.replace('[[workload]]\nprefix = "age"\nby = ["sex"]\n', "")
    path.write_text(text + '\n[selection]\ntop = 2\nmechanism = "exponential"\n')
    return path


def test_a_selection_is_told_and_debited_once(spec: Path, run: Run) -> None:
    first = run("select", spec, "--json")
    assert first.code == 0, first.err
    found = first.document
    assert (found["top"], found["candidates"], found["mechanism"]) == (2, 22, "exponential")
    assert [c["rank"] for c in found["choices"]] == [1, 2]  # type: ignore[index,attr-defined]
    assert found["is_stored"] is False
    again = run("select", spec, "--json").document
    assert again["is_stored"] is True
    assert again["choices"] == found["choices"]
    assert len(Ledger.open(spec.parent / "people.ledger").entries()) == 1
    shown = run("select", spec, "--counts", "--mechanism", "permute-and-flip").out
    assert "Selected 2 of 22 candidates" in shown
    assert "with probability 0.95 no other candidate" in " ".join(shown.split())


def test_an_estimate_touches_and_spends_nothing(spec: Path, run: Run) -> None:
    (spec.parent / "people.csv").unlink()
    ran = run("select", spec, "--estimate", "--counts", agreed=False)
    assert ran.code == 0, ran.err
    assert "Nothing was spent" in ran.out
    found = run("select", spec, "--estimate", "--json", "--top", 3, agreed=False).document
    assert found["top"] == 3
    assert not (spec.parent / "people.ledger").exists()


def test_without_a_terminal_nothing_is_spent_unless_it_is_agreed_to(spec: Path, run: Run) -> None:
    ran = run("select", spec, agreed=False)
    assert ran.code == 2
    assert "With probability 0.95 no other candidate" in ran.err
    assert "give --yes" in ran.err
    assert not (spec.parent / "people.ledger").exists()


def test_sql_says_what_is_selected(spec: Path, run: Run) -> None:
    found = run("select", spec, "--sql", BY_SEX, "--mechanism", "laplace-counts", "--json").document
    [choice] = found["choices"]  # type: ignore[misc]
    assert set(choice["labels"]) == {"sex"}
    assert choice["low"] <= choice["value"] <= choice["high"]
    ran = run("select", spec, "--sql", BY_SEX, "--top", 2)
    assert (ran.code, "leave --top" in ran.err) == (2, True)
    ran = run("select", spec, "--sql", "SELECT sex, COUNT(*) FROM data GROUP BY sex")
    assert (ran.code, "needs LIMIT" in ran.err) == (2, True)


def test_what_is_nearest_a_share_of_all_records(spec: Path, run: Run) -> None:
    found = run("select", spec, "--nearest", "1/2", "--estimate", "--json", agreed=False).document
    assert found["nearest"] == 0.5
    ran = run("select", spec, "--nearest", "0.5", "--smallest", "--estimate", agreed=False)
    assert (ran.code, "exclude each other" in ran.err) == (2, True)
    ran = run("select", spec, "--nearest", "half", "--estimate", agreed=False)
    assert (ran.code, "from 0 to 1" in ran.err) == (2, True)


def test_a_short_budget_and_wrong_options_are_refused(spec: Path, run: Run) -> None:
    for number in range(3):
        assert run("select", spec, "--key", f"a{number}", "-q").code == 0
    ran = run("select", spec, "--key", "more")
    assert ran.code == 2
    assert "budget refused: this selection costs" in ran.err
    ran = run("select", spec, "--mechanism", "best")
    assert (ran.code, "permute-and-flip" in ran.err) == (2, True)
    ran = run("select", spec, "--top", 22)
    assert (ran.code, "from 1 to 21" in ran.err) == (2, True)
    spec.write_text(spec.read_text().replace("top = 2", "tops = 2"))
    ran = run("select", spec)
    assert (ran.code, "tops" in ran.err) == (2, True)


def test_a_spec_with_an_error_to_reach_has_no_budget_for_a_selection(spec: Path, run: Run) -> None:
    spec.write_text(spec.read_text().replace("epsilon = 1\ndelta = 1e-9\n\n[ledger]",
                                             "error = 10\n\n[ledger]"))  # fmt: skip
    ran = run("select", spec, "--estimate", agreed=False)
    assert (ran.code, "a selection needs a budget" in ran.err) == (2, True)
