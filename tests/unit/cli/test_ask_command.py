# SPDX-License-Identifier: Apache-2.0
"""`sfumato ask`: sessions from a spec file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.cli.ask_command import read_session
from sfumato.cli.spec import read_spec
from sfumato.errors import SchemaError
from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]

YOUNG = "SELECT COUNT(*) FROM data WHERE age < 5"
SESSION = "[session]\nquestions = 100\nupdates = 6\nrecords = 200\n"


@pytest.fixture
def spec(folder: Path) -> Path:
    """The spec of the folder with a table [session] and, as sessions need none, no queries."""
    path = folder / "session.toml"
    head, _, rest = SPEC.partition("[[workload]]")
    budget = rest[rest.index("[budget]") :]
    path.write_text(f"{head}{budget}\n{SESSION}")
    return path


def test_the_same_question_gets_the_same_answer_from_the_next_call(spec: Path, run: Run) -> None:
    first = run("ask", spec, YOUNG, "--json").document
    again = run("ask", spec, "SELECT COUNT(*) FROM t WHERE NOT age >= 5", "--json").document
    assert again["answers"][0]["value"] == first["answers"][0]["value"]
    assert [d["answers"][0]["is_stored"] for d in (first, again)] == [False, True]
    assert "stored answer, nothing spent" in run("ask", spec, YOUNG).out
    assert again["paid_answers_left"] == first["paid_answers_left"]
    entries = run("ledger", "show", spec.parent / "people.ledger", "--json").document["entries"]
    assert 2 <= len(entries) <= 3  # the number of records, and an epoch
    assert run("ledger", "verify", spec.parent / "people.ledger").code == 0


def test_without_a_terminal_questions_are_asked_only_with_yes(spec: Path, run: Run) -> None:
    refused = run("ask", spec, YOUNG, agreed=False)
    assert refused.code == 2
    assert "give --yes" in refused.err
    assert not (spec.parent / "people.ledger").exists()
    spec.write_text(spec.read_text().replace("create = true\n", ""))
    missing = run("ask", spec, YOUNG)
    assert "sfumato ledger create" in missing.err
    assert run("ledger", "create", "--spec", spec).code == 0
    refused = run("ask", spec, YOUNG, agreed=False)
    assert "Each answer that must be paid for costs" in refused.err
    assert run("ask", spec, YOUNG, "--yes").code == 0
    assert run("ask", spec, YOUNG, agreed=False).code == 0  # stored
    assert run("ask", spec, f"{YOUNG} AND sex = 'Male'", agreed=False).code == 2


@pytest.mark.parametrize("scope", ["", "scope = 1\n"])
def test_what_is_refused_leaves_no_ledger_and_the_first_debit_creates_it(
    tmp_path: Path, run: Run, scope: str
) -> None:
    source = tmp_path / "open.csv"
    source.write_text('age,note\n1,"x\ny"\n2,z\n')
    path = tmp_path / "ask.toml"
    path.write_text(
        f'[data]\nsource = "{source}"\nneighbours = "add-remove"\n[domain.age]\n'
        'kind = "integer"\nmin = 0\nmax = 9\n[budget]\nepsilon = 1\n[ledger]\n'
        f'path = "new.ledger"\ncreate = true\nepsilon = 1\n[session]\n{scope}'
    )
    before = sorted(tmp_path.iterdir())
    unread = run("ask", path, YOUNG, "--yes")
    assert unread.code == 2
    assert "--csv csv=rfc4180" in unread.err
    assert sorted(tmp_path.iterdir()) == before
    source.write_text("age,note\n1,x\n2,z\n")
    assert run("ask", path, YOUNG.replace("age", "aeg"), "--yes").code == 2
    assert scope or sorted(tmp_path.iterdir()) == before  # a scope is measured at opening
    first = run("ask", path, YOUNG, "--yes", "--json")
    assert first.code == 0, first.err
    assert scope or "Created the ledger" in first.err
    assert (tmp_path / "new.ledger").exists()
    again = run("ask", path, YOUNG, "--yes", "--json")
    assert "Created" not in again.err
    values = [ran.document["answers"][0]["value"] for ran in (first, again)]
    assert values[0] == values[1]
    entries = run("ledger", "show", tmp_path / "new.ledger", "--json").document["entries"]
    assert entries
    assert all(entry["state"] == "answered" for entry in entries)
    assert run("ledger", "verify", tmp_path / "new.ledger").code == 0


def test_groups_files_and_tables_for_people(spec: Path, run: Run) -> None:
    questions = spec.parent / "questions.sql"
    questions.write_text(f"-- young people\n\n{YOUNG}\n{YOUNG} AND sex = 'Male'\n")
    grouped = "SELECT sex, COUNT(*) FROM data GROUP BY sex"
    ran = run("ask", spec, grouped, "--file", questions)
    assert ran.code == 0
    assert "3 questions" in ran.out
    assert "COUNT(*): interval" in ran.out
    assert "paid answers left" in ran.out
    document = run("ask", spec, grouped, "--json").document
    (shape,) = document["statements"]
    assert [column["name"] for column in shape["columns"]] == ["sex", "COUNT(*)"]
    assert len(document["answers"]) == 2
    assert all(answer["is_stored"] for answer in document["answers"])


def test_estimates_and_dummies_spend_nothing(spec: Path, run: Run) -> None:
    ledger = spec.parent / "people.ledger"
    told = run("ask", spec, YOUNG, "--estimate", "--json").document
    assert not ledger.exists()
    assert told["questions"][0]["value"] is None
    assert told["questions"][0]["free_bound"] > told["questions"][0]["paid_bound"]
    assert "nothing was spent" in run("ask", spec, YOUNG, "--estimate").out
    made_up = run("ask", spec, YOUNG, "--dummy", "--json").document
    assert made_up["is_dummy"]
    assert made_up["answers"][0]["is_dummy"]
    assert "made up" in run("ask", spec, YOUNG, "--dummy").out
    assert not ledger.exists()


def test_an_error_is_paid_for_once_and_its_cost_is_shown_before(spec: Path, run: Run) -> None:
    grouped = "SELECT sex, COUNT(*) AS n FROM data GROUP BY sex"
    forecast = run("ask", spec, YOUNG, "--error", 20, "--estimate", "--json").document
    (offer,) = forecast["questions"]
    assert offer["standard_error"] <= 20
    assert offer["least_error"] < 20
    assert "least error left" in run("ask", spec, grouped, "--error", 20, "--estimate").out
    refused = run("ask", spec, YOUNG, "--error", 20, agreed=False)
    assert refused.code == 2
    first = run("ask", spec, YOUNG, "--error", 20, "--json").document["answers"][0]
    assert first["how"] == "paid"
    assert first["cost"] == offer["cost"]
    again = run("ask", spec, YOUNG, "--error", 30, "--json", agreed=False)  # nothing to agree to
    assert again.code == 0
    assert again.document["answers"][0]["value"] == first["value"]
    numbers = run("ask", spec, grouped, "--error", 15, "--json").document["answers"]
    assert max(number["standard_error"] for number in numbers) <= 15
    entries = run("ledger", "show", spec.parent / "people.ledger", "--json").document["entries"]
    assert len(entries) == 2
    assert run("ask", spec, YOUNG, "--error", 0).code == 2
    assert "can be had" in run("ask", spec, YOUNG, "--error", 0.05).err


def test_both_intervals_are_shown_where_they_differ(spec: Path, run: Run) -> None:
    plain = run("ask", spec, YOUNG)
    assert "safe interval" not in plain.out
    (one,) = run("ask", spec, YOUNG, "--json").document["answers"]
    assert (one["safe_low"], one["safe_high"]) == (one["low"], one["high"])
    spec.write_text(spec.read_text().replace(SESSION, f"{SESSION}scope = 1\n"))
    shown = run("ask", spec, YOUNG, "--dummy")
    assert "safe interval" in shown.out
    assert "however the question was chosen" in " ".join(shown.out.split())
    (known,) = run("ask", spec, YOUNG, "--dummy", "--json").document["answers"]
    assert known["safe_low"] < known["low"] < known["high"] < known["safe_high"]


def test_a_used_up_session_refuses_or_says_that_it_guesses(spec: Path, run: Run) -> None:
    """With so large a budget noise is far below what the even start is wrong by."""
    text = spec.read_text().replace("updates = 6", "updates = 1")
    text = text.replace("epsilon = 1\n", "epsilon = 500\n").replace("epsilon = 3", "epsilon = 900")
    spec.write_text(text)
    many = [f"SELECT COUNT(*) FROM t WHERE age < {i} AND sex = 'Male'" for i in (19, 9, 5)]
    ran = run("ask", spec, *many, "--untested", "--json").document
    how = [a["how"] for a in ran["answers"]]
    assert how == ["paid", "untested", "untested"]
    refused = run("ask", spec, *many)
    assert refused.code == 2
    assert "paid answers of the session are used" in refused.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["SELECT MAX(age) FROM data"], "MAX cannot be asked"),
        (["SELECT nonsense"], "names no table"),
        ([], "there is no question"),
        ([YOUNG, "--ledger", "x", "--no-ledger"], "keep one of them"),
        (["--file", "missing.sql"], "cannot be read"),
    ],
)
def test_bad_questions_are_refused_before_anything_is_spent(
    spec: Path, run: Run, more: list[str], message: str
) -> None:
    ran = run("ask", spec, *more)
    assert ran.code == 2
    assert message in ran.err
    entries = []
    if (spec.parent / "people.ledger").exists():
        shown = run("ledger", "show", spec.parent / "people.ledger", "--json")
        entries = shown.document["entries"]
    assert entries == []


def test_a_session_needs_a_ledger_or_the_wish_for_none(spec: Path, run: Run) -> None:
    spec.write_text(spec.read_text().replace('[ledger]\npath = "people.ledger"', "[plan]"))
    text = spec.read_text()
    spec.write_text(text[: text.index("[plan]")] + SESSION)
    assert "names no ledger" in run("ask", spec, YOUNG).err
    assert run("ask", spec, YOUNG, "--no-ledger", "--json").document["ledger_share_left"] is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("updates = 6", "updates = 0", "updates"),
        ("updates = 6", "level = 0.3", "level"),
        ("updates = 6", 'learning = "guess"', "learning"),
        ("updates = 6", "update = 6", "update"),
        ("epsilon = 1\ndelta = 1e-9", "error = 5", "in place of error"),
    ],
)
def test_faults_of_the_spec_name_the_line(spec: Path, old: str, new: str, message: str) -> None:
    spec.write_text(spec.read_text().replace(old, new, 1))
    with pytest.raises(SchemaError, match=r"line \d+") as caught:
        read_session(spec)
    assert message in str(caught.value)


def test_a_release_may_have_a_session_in_its_spec(folder: Path) -> None:
    path = folder / "both.toml"
    path.write_text(f"{SPEC}\n{SESSION}")
    assert read_spec(path).workload.queries == read_spec(folder / "release.toml").workload.queries
    assert read_session(path).options.updates == 6
