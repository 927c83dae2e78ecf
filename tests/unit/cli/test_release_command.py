# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.ledger.ledger import Ledger, LedgerToCreate
from sfumato.strategy.base import Strategy
from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]


def test_a_release_writes_its_files_and_debits_the_ledger(folder: Path, run: Run) -> None:
    out = folder / "out"
    ran = run("release", folder / "release.toml", "--out", out, "--json")
    assert ran.code == 0, ran.err
    names = {"answers.parquet", "report.html", "provenance.json", "release.zip"}
    assert {p.name for p in out.iterdir()} == names
    found = ran.document
    assert found["is_stored"] is False
    assert found["files"] == {
        "answers": str(out / "answers.parquet"),
        "provenance": str(out / "provenance.json"),
        "release": str(out / "release.zip"),
        "report": str(out / "report.html"),
    }
    shown = run("ledger", "show", folder / "people.ledger", "--json").document
    entries = shown["entries"]
    assert isinstance(entries, list)
    assert [e["state"] for e in entries] == ["answered"]
    assert shown["table"] == "people"
    assert shown["budget"] == {"epsilon": 3.0, "delta": 1e-9}
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["ledger"]["hash"] == entries[0]["hash"]


def test_a_fact_sheet_is_written_on_demand_and_does_not_outlive_its_release(
    folder: Path, run: Run
) -> None:
    out, spec = folder / "out", folder / "release.toml"
    ran = run("release", spec, "--out", out, "--fact-sheet", "--json")
    files = ran.document["files"]
    assert isinstance(files, dict)
    page = Path(files["fact_sheet"]).read_text()
    assert json.loads((out / "provenance.json").read_text())["guarantee"] in page
    assert "of a hash-chained ledger" in page
    assert run("release", spec, "--out", out, "--key", "again", "-q").code == 0
    assert not (out / "fact-sheet.md").exists()


def test_the_same_release_again_gives_the_same_answers_and_costs_nothing(
    folder: Path, run: Run
) -> None:
    import pandas as pd

    for name in ("one", "two"):
        assert run("release", folder / "release.toml", "--out", folder / name, "-q").code == 0
    one, two = (pd.read_parquet(folder / name / "answers.parquet") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two)
    again = run("release", folder / "release.toml", "--out", folder / "three", "--json").document
    assert again["is_stored"] is True
    book = run("ledger", "show", folder / "people.ledger", "--json").document
    assert len(str(book["entries"]).split("sequence")) == 2


def test_a_new_key_spends_anew(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    first = run("release", spec, "--out", folder / "one", "--json").document
    second = run("release", spec, "--out", folder / "two", "--key", "again", "--json").document
    shares = [d["ledger"]["remaining_share"] for d in (first, second)]  # type: ignore[index]
    assert shares[0] > shares[1]


def test_nobody_pays_twice_for_one_request_without_saying_so(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    assert run("release", spec, "--out", folder / "one", "--key", "may", "-q").code == 0
    refused = run("release", spec, "--out", folder / "two")
    assert refused.code == 2
    assert "entry 1" in refused.err
    assert "--key may" in refused.err
    assert run("release", spec, "--key", "may", "--json").document["is_stored"] is True
    assert run("release", spec, "--key", "june", "--json").document["is_stored"] is False


def test_another_strategy_for_the_same_request_is_not_paid_for_unasked(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a time limit, or the rounding of another machine, can make it."""
    spec = folder / "release.toml"
    assert run("release", spec, "--out", folder / "one", "-q").code == 0
    monkeypatch.setattr(Strategy, "digest", lambda _: "other")
    refused = run("release", spec, "--out", folder / "two")
    assert refused.code == 2
    assert "by a strategy that" in refused.err
    assert not (folder / "two").exists()
    book = run("ledger", "show", folder / "people.ledger", "--json").document
    assert len(book["entries"]) == 1  # type: ignore[arg-type]
    assert run("release", spec, "--key", "june", "-q").code == 0


def test_a_new_ledger_without_a_total_gets_the_budget_of_the_release(
    folder: Path, run: Run
) -> None:
    (folder / "release.toml").write_text(SPEC.replace("epsilon = 3\ndelta = 1e-9\n", ""))
    assert run("release", folder / "release.toml", "-q").code == 0
    book = run("ledger", "show", folder / "people.ledger", "--json").document
    assert book["budget"] == {"epsilon": 1.0, "delta": 1e-9}
    assert run("release", folder / "release.toml", "--key", "again", "-q").code == 2


def test_a_lowered_total_takes_effect_and_a_raised_one_needs_a_command(
    folder: Path, run: Run, rewrite: Callable[[str, str], Path]
) -> None:
    spec, path = folder / "release.toml", folder / "people.ledger"
    assert run("release", spec, "-q").code == 0
    rewrite("epsilon = 3\n", "epsilon = 2\n")
    assert run("release", spec, "-q").code == 0  # the stored one, and the total is lower
    shown = run("ledger", "show", path, "--json").document
    assert shown["budget"] == {"epsilon": 2.0, "delta": 1e-9}
    assert [c["what"] for c in shown["changes"]] == [  # type: ignore[attr-defined]
        "total set to epsilon = 2, delta = 1e-9 by configuration: lowered in release.toml"
    ]
    rewrite("epsilon = 2\n", "epsilon = 8\n")
    refused = run("release", spec, "-q")
    assert refused.code == 2
    assert f"sfumato ledger raise {path} --epsilon 8 --delta 1e-9 --reason" in refused.err
    assert run("ledger", "raise", path, "--epsilon", 1, "--reason", "x").code == 2  # not more
    raised = run(
        "ledger", "raise", path, "--epsilon", 8, "--delta", "1e-9", "--reason", "board, 3 May",
        "--by", "ada",
    )  # fmt: skip
    assert raised.code == 0
    assert run("release", spec, "-q").code == 0
    assert "by ada: board, 3 May" in run("ledger", "show", path).out
    assert run("ledger", "verify", path).code == 0


def test_a_ledger_that_is_not_there_is_not_a_fresh_budget(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    spec.write_text(SPEC.replace("create = true\n", ""))
    refused = run("release", spec, "--out", folder / "out")
    assert refused.code == 2
    assert "there is no ledger at" in refused.err
    assert "or add create = true to the table [ledger]" in refused.err
    assert {p.name for p in folder.iterdir()} == {"people.csv", "release.toml"}
    other = run("release", spec, "--out", folder / "out", "--ledger", folder / "typo.ledger")
    assert other.code == 2
    assert "create = true" not in other.err
    made = run("ledger", "create", "--spec", spec, "--json").document
    assert made["budget"] == {"epsilon": 3.0, "delta": 1e-9}
    assert (made["table"], made["unit"]) == ("people", "row")
    assert run("ledger", "create", "--spec", spec).code == 2  # never over another
    assert run("release", spec, "--out", folder / "out", "-q").code == 0


def test_without_a_terminal_a_release_is_paid_for_only_with_yes(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    refused = run("release", spec, "--out", folder / "out", agreed=False)
    assert refused.code == 2
    assert "spends" in refused.err
    assert "give --yes" in refused.err
    assert not (folder / "people.ledger").exists()
    assert not (folder / "out").exists()
    assert run("release", spec, "--out", folder / "out", "-q", "--yes").code == 0
    again = run("release", spec, "--out", folder / "again", agreed=False)  # stored: nothing to ask
    assert again.code == 0
    assert "stored answer, nothing spent" in again.out


def test_the_ledger_of_the_command_line_comes_before_that_of_the_spec(
    folder: Path, run: Run
) -> None:
    other = folder / "other.ledger"
    assert run("ledger", "create", other, "--spec", folder / "release.toml").code == 0
    assert run("release", folder / "release.toml", "--ledger", other, "-q").code == 0
    assert len(Ledger.open(other).entries()) == 1
    assert not (folder / "people.ledger").exists()
    both = run("release", folder / "release.toml", "--ledger", other, "--no-ledger")
    assert both.code == 2


def test_synthetic_records_and_a_notebook_come_on_request(folder: Path, run: Run) -> None:
    import pandas as pd

    out = folder / "results"
    spec = folder / "release.toml"
    ran = run("release", spec, "--out", out, "--synthetic", 50, "--notebook", "-q")
    assert ran.code == 0, ran.err
    records = pd.read_parquet(out / "synthetic.parquet")
    assert len(records) == 50
    assert set(records["sex"]) <= {"Female", "Male"}
    notebook = json.loads((out / "notebook.ipynb").read_text())
    code = "".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")
    assert "../release.toml" in code
    assert str(folder) not in code


def test_a_release_of_a_csv_file_says_what_becomes_of_lines_that_cannot_be_read(
    folder: Path, run: Run
) -> None:
    """Always, so that it tells nothing about the file."""
    assert "is a record of nulls" in run("release", folder / "release.toml").err


@pytest.mark.parametrize(
    ("stored", "debited", "words"),
    [
        (True, True, "costs nothing"),
        (False, True, "that much is spent"),
        (False, False, "Nothing was spent"),
    ],
)
def test_an_interrupted_release_says_what_it_has_spent(
    folder: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    stored: bool,
    debited: bool,
    words: str,
) -> None:
    from sfumato.run.linear import Plan

    def interrupted(
        plan: Plan, _: object, *, ledger: LedgerToCreate, key: str, **__: object
    ) -> None:
        if debited:
            entry = ledger.made().debit(plan.cost, {}, key)
            if stored:
                ledger.made().store(entry, b"answer")
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "release", interrupted)
    ran = run("release", folder / "release.toml", "--key", "mine")
    assert ran.code == 130
    assert words in ran.err
    assert ran.err.endswith("sfumato: interrupted\n")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (("--synthetic", 10**14), "draw them in parts"),
        (("--key", ""), "--key must be a printable string of 1 to 200 characters, got one of 0"),
        (("--key", "a\nb"), "got line ends or others that do not print"),
    ],
)
def test_options_that_cannot_be_met_are_refused_before_anything_is_spent(
    folder: Path, run: Run, wish: tuple[str, object], words: str
) -> None:
    ran = run("release", folder / "release.toml", *wish)
    assert (ran.code, words in ran.err) == (2, True)
    assert not (folder / "people.ledger").exists()


def test_an_equal_request_is_stored_although_nothing_is_left(folder: Path, run: Run) -> None:
    """The best mechanism, asked for by its name: neither refused nor asked about."""
    spec = folder / "release.toml"
    spec.write_text(SPEC.replace("epsilon = 3\ndelta = 1e-9\n", ""))
    first = run("release", spec, "--out", folder / "one", "--json").document
    named = ("--mechanism", first["mechanism"], "--out", folder / "two", "--json")
    again = run("release", spec, *named, agreed=False).document
    assert again["is_stored"] is True
    assert again["mechanism"] == first["mechanism"]


def _all_inside(folder: Path, release: str = "") -> Path:
    """The spec with a public number of records, and a table [release]."""
    text = SPEC.replace('name = "people"', 'name = "people"\nneighbours = "replace-one"')
    path = folder / "release.toml"
    path.write_text(f'records = "all-inside"\n{text}\n{release}')
    return path


def test_shares_are_a_way_of_writing_and_ask_for_nothing_else(folder: Path, run: Run) -> None:
    import pandas as pd

    plain = run("release", _all_inside(folder), "--out", folder / "plain", "--json").document
    spec = _all_inside(folder, "[release]\nshares = true\n")
    shares = run("release", spec, "--out", folder / "shares", "--csv", "--json").document
    assert (plain["is_stored"], shares["is_stored"]) == (False, True)
    entries = run("ledger", "show", folder / "people.ledger", "--json").document["entries"]
    assert isinstance(entries, list)
    assert len(entries) == 1
    counts = pd.read_parquet(folder / "plain" / "answers.parquet")
    both = pd.read_parquet(folder / "shares" / "answers.parquet")
    pd.testing.assert_frame_equal(both[counts.columns], counts)
    assert (400 * both["share"]).to_numpy() == pytest.approx(counts["value"].to_numpy())
    assert "share_low" in pd.read_csv(folder / "shares" / "answers.csv")
    report = (folder / "shares" / "report.html").read_text()
    assert "Shares of the 400 public records" in report
    option = run("release", _all_inside(folder), "--shares", "--out", folder / "option", "--json")
    assert option.document["is_stored"] is True
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "option" / "answers.parquet"), both)


def test_shares_by_an_option_are_refused_where_the_number_is_private(
    folder: Path, run: Run
) -> None:
    spec = folder / "release.toml"
    spec.write_text(SPEC)
    ran = run("release", spec, "--shares", "--out", folder / "out")
    assert ran.code == 2, ran.err
    assert "leave --shares out" in " ".join(ran.err.split())
    assert not (folder / "people.ledger").exists()


def test_shares_of_no_records_are_left_out_of_what_was_paid_for(folder: Path, run: Run) -> None:
    (folder / "people.csv").write_text("age,sex\n")
    spec = _all_inside(folder, "[release]\nshares = true\n")
    ran = run("release", spec, "--out", folder / "out")
    assert ran.code == 0, ran.err
    assert "there are no shares of them" in ran.err
    assert "Shares of" not in (folder / "out" / "report.html").read_text()


def test_shares_of_a_view_are_refused_before_anything_is_spent(folder: Path, run: Run) -> None:
    import duckdb

    with duckdb.connect(str(folder / "people.duckdb")) as base:
        base.execute(f"CREATE VIEW young AS SELECT * FROM '{folder / 'people.csv'}' WHERE age < 9")
    spec = _all_inside(folder, "[release]\nshares = true\n")
    spec.write_text(spec.read_text().replace('"people.csv"', '"people.duckdb::young"'))
    ran = run("release", spec, "--out", folder / "out")
    assert ran.code == 2, ran.err
    assert "may drop records" in " ".join(ran.err.split())
    assert not (folder / "people.ledger").exists()
