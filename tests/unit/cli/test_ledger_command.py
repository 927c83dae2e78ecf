# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sfumato.domain.privacy_unit import PrivacyUnit, unit_json
from sfumato.ledger.ledger import Ledger, Terms
from sfumato.privacy.budget import Budget
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


def test_verify_says_that_a_ledger_is_whole_and_refuses_one_that_was_changed(
    folder: Path, run: Run
) -> None:
    import sqlite3

    assert run("release", folder / "release.toml", "-q").code == 0
    path = folder / "people.ledger"
    whole = run("ledger", "verify", path, "--json").document
    assert (whole["is_whole"], whole["answered"], whole["head_file_checked"]) == (True, 1, True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE sfumato_answer SET data = x'00'")
        database.commit()
    broken = run("ledger", "verify", path)
    assert broken.code == 2
    assert "damaged" in broken.err


def test_an_export_is_checked_without_the_ledger_and_a_changed_one_is_refused(
    folder: Path, run: Run
) -> None:
    assert run("release", folder / "release.toml", "-q").code == 0
    path, out = folder / "people.ledger", folder / "audit.jsonl"
    assert run("ledger", "export", path, "--output", out).code == 0
    assert run("ledger", "export", path).out == out.read_text()
    whole = run("ledger", "verify", out, "--export", "--json").document
    state = run("ledger", "verify", path, "--json").document
    names = ("records", "head", "spent_share")
    assert {n: whole[n] for n in names} == {n: state[n] for n in names}
    again = run("ledger", "export", path, "--output", out)
    assert (again.code, "not there yet" in again.err) == (2, True)
    out.write_text(out.read_text().replace('"kind":"debited"', '"kind":"burnt","debit":0', 1))
    broken = run("ledger", "verify", out, "--export")
    assert (broken.code, "was changed" in broken.err) == (2, True)
    assert run("ledger", "verify", path, "--export").code == 2  # a ledger is no export
    assert run("ledger", "verify", folder / "nothing.jsonl", "--export").code == 2


def test_a_curator_freezes_a_ledger_and_lets_it_go_on(folder: Path, run: Run) -> None:
    path = folder / "people.ledger"
    assert run("release", folder / "release.toml", "-q").code == 0
    frozen = run("ledger", "freeze", path, "--reason", "audit of May", "--json").document
    assert frozen == {"ledger": str(path), "is_frozen": True, "reason": "audit of May"}
    assert "stored answers only" in run("ledger", "show", path).out
    assert run("release", folder / "release.toml", "-q", "--yes").code == 0  # the stored one
    refused = run("release", folder / "release.toml", "-q", "--key", "another", "--out", "other")
    assert (refused.code, "frozen by its curator" in refused.err) == (2, True)
    assert run("ledger", "freeze", path, "--reason", "again").code == 2
    assert run("ledger", "unfreeze", path, "--reason", "over").code == 0
    assert run("ledger", "show", path, "--json").document["is_frozen"] is False
    assert run("ledger", "verify", path, "--json").document["records"] == 5


def test_show_lists_analysts_and_what_they_may_spend(folder: Path, run: Run) -> None:
    from fractions import Fraction

    from sfumato.ledger.entries import State
    from sfumato.privacy.budget import Budget
    from sfumato.privacy.cost import Cost

    path = folder / "asked.ledger"
    book = Ledger.create(path, Budget(epsilon=1), "people", "add-remove")
    book.allow("ann", Budget(epsilon="0.5"))
    private = [State("threshold", 1, b"104729")]
    book.debit(Cost.pure(Fraction(1, 10)), {}, "k", analyst="ann", states=private)
    shown = run("ledger", "show", path)
    assert "80% remains" in shown.out
    document = run("ledger", "show", path, "--json").document
    assert document["allowances"] == [
        {
            "analyst": "ann",
            "budget": {"epsilon": 0.5},
            "spent_share": 0.2,
            "remaining": {
                "share": 0.8,
                "gaussian_mu": None,
                "gaussian_epsilon": None,
                "pure_epsilon": 0.4,
            },
        }
    ]
    assert document["entries"][0]["analyst"] == "ann"  # type: ignore[index]
    verified = run("ledger", "verify", path)
    for text in (shown.out, shown.err, str(document), verified.out, verified.err):
        assert "104729" not in text
        assert "threshold" not in text


def test_the_debits_of_a_ledger_are_shown_whole(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("release", folder / "release.toml", "-q").code == 0
    entry = run("ledger", "show", folder / "people.ledger", "--json").document["entries"][0]  # type: ignore[index]
    line = run("ledger", "show", folder / "people.ledger").out.splitlines()[-1]
    assert line.split()[:3] == ["1", *entry["time"][:16].split("T")]
    assert entry["key"][:12] in line


def test_a_ledger_can_be_for_people_in_groups(tmp_path: Path, run: Run) -> None:
    """The command that a refusal shows makes the ledger that it was refused for."""
    unit = PrivacyUnit("person", groups=3, rows_per_group=2, by=("day", "hour"))
    place = tmp_path / "visits.ledger"
    terms = Terms("visits", "add-remove", unit, Budget(epsilon=1))
    assert run(*shlex.split(terms.command(place))[1:]).code == 0
    shown = run("ledger", "show", place, "--json").document["unit"]
    assert shown == unit_json(unit)


def test_the_next_period_begins_by_a_command_that_says_who_and_why(folder: Path, run: Run) -> None:
    old, new, other = (folder / name for name in ("march", "april", "may"))
    total = ("--epsilon", "1", "--delta", "1e-9")
    assert run("ledger", "create", old, "--table", "march", *total).code == 0
    why = ("--period", "2026-04", "--reason", "survey", "--by", "cora")
    begun = run("ledger", "renew", old, new, "--table", "april", *why, "--json").document
    assert begun["budget"] == run("ledger", "show", old, "--json").document["budget"]
    assert run("ledger", "renew", old, new, "--table", "april", *why).code == 0
    again = run("ledger", "renew", new, other, "--table", "march", *why)
    assert (again.code, "second budget for the same people" in again.err) == (2, True)
    assert "period 2026-04 begun, with the table april" in " ".join(
        run("ledger", "show", old).out.split()
    )
    shown = run("ledger", "promise", old, new, "--json").document
    assert [p["epsilon"] for p in shown["promised"]] == [1.0, 2.0]
    assert [p["period"] for p in shown["periods"]] == [None, "2026-04"]
    wrong = run("ledger", "promise", new, old)
    assert (wrong.code, "oldest first" in wrong.err) == (2, True)
    assert run("ledger", "verify", old).code == 0
