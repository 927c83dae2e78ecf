# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sfumato.cli.output import Output
from sfumato.errors import SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.strategy.base import Strategy
from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]

COMMANDS = [
    ("demo",),
    ("draft",),
    ("plan",),
    ("release",),
    ("compare",),
    ("audit",),
    ("ask",),
    ("serve",),
    ("token",),
    ("ledger",),
    ("ledger", "create"),
    ("ledger", "raise"),
    ("ledger", "show"),
    ("ledger", "verify"),
    ("ledger", "freeze"),
    ("ledger", "unfreeze"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples_that_start_with_it(
    command: tuple[str, ...], run: Run
) -> None:
    ran = run(*command, "--help")
    assert ran.code == 0
    _, _, examples = ran.out.partition("Examples")
    assert f"sfumato {' '.join(command)}" in examples
    assert "[bold]" not in ran.out


def test_help_lists_every_command(run: Run) -> None:
    text = run("--help").out
    for command in COMMANDS:
        assert f" {command[0]} " in text
    assert "Usage: sfumato [OPTIONS] COMMAND" in text


def test_the_version_is_that_of_the_package(run: Run) -> None:
    import sfumato

    assert run("--version").out == f"sfumato {sfumato.__version__}\n"


def test_help_loads_no_heavy_library() -> None:
    """`sfumato --help` answers at once because bodies import what they need."""
    heavy = ["ibis", "duckdb", "pandas", "pyarrow", "altair", "pydantic", "sqlalchemy", "sqlglot"]
    code = f"import sys, sfumato.cli.main; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_plan_touches_no_data(folder: Path, run: Run) -> None:
    (folder / "people.csv").unlink()
    ran = run("plan", folder / "release.toml")
    assert ran.code == 0
    assert "prefix age by sex" in ran.out


def test_a_plan_as_json_has_the_documented_keys(folder: Path, run: Run) -> None:
    ran = run("plan", folder / "release.toml", "--json")
    found = ran.document
    assert ran.err == ""
    assert found["queries"] == 62
    assert found["neighbours"] == "add-remove"
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-9}
    assert found["certificate"] is None or float(str(found["certificate"])) >= 1
    groups = found["groups"]
    assert isinstance(groups, list)
    assert [g["name"] for g in groups] == ["age", "sex", "prefix age by sex"]
    assert [g["queries"] for g in groups] == [20, 2, 40]
    # The rmse over all queries is the mean of squares over groups, weighted by their sizes.
    squares = sum(g["rmse"] ** 2 * g["queries"] for g in groups) / 62
    assert found["rmse"] == pytest.approx(squares**0.5)
    candidates = found["candidates"]
    assert isinstance(candidates, list)
    chosen = [c for c in candidates if c["is_chosen"]]
    assert [c["mechanism"] for c in chosen] == [found["mechanism"]]
    fitting = [c["rmse"] for c in candidates if c["rmse"] is not None]
    assert chosen[0]["rmse"] == min(fitting)
    keys = {"mechanism", "algorithm", "rmse", "largest", "note", "is_chosen"}
    assert {*candidates[0]} == keys
    needed = found["resources"]
    assert isinstance(needed, dict)
    assert (needed["engine"], needed["records"]) == ("duckdb", None)
    names = ["scan", "count", "measure", "reconstruct", "project", "write"]
    assert [s["step"] for s in needed["steps"]] == names


def test_a_plan_shows_its_resources_and_refuses_what_cannot_fit(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = folder / "release.toml"
    shown = run("plan", spec).out
    assert "Resources" in shown
    assert "per million records" in " ".join(shown.split())
    monkeypatch.setattr("sfumato.planning.resources.machine_memory", lambda: 2**20)
    refused = run("plan", spec)
    assert refused.code != 0
    assert "wider bins" in " ".join(refused.err.split())


def test_a_plan_forecasts_the_error_after_projection(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    assert run("plan", spec, "--json").document["after_projection"] is None
    document = run("plan", spec, "--records", "50", "--json").document
    found, advice = document["after_projection"], document["recommendation"]
    assert isinstance(found, dict)
    assert found["records"] == 50
    assert isinstance(advice, dict)
    assert advice["best"] == advice["options"][0]["name"]
    assert {"plan, unbiased", "adaptive"} <= {o["name"] for o in advice["options"]}
    assert 0 < found["estimate"] <= found["bound"] <= found["without"]
    text = " ".join(run("plan", spec, "--records", "50").out.split())
    assert "after projection about" in text
    assert "for any 50 records" in text
    assert "Recommended" in text


def test_a_plan_shows_every_candidate_and_marks_one(folder: Path, run: Run) -> None:
    text = run("plan", folder / "release.toml").out
    assert text.count("chosen") == 1
    assert "gaussian-tree" in text
    assert "laplace-groups" in text


def test_many_groups_are_folded_unless_all_are_wanted(folder: Path, run: Run) -> None:
    names = [f"yes{i}" for i in range(6)]
    tables = "".join(f'[domain.{name}]\nkind = "boolean"\n' for name in names)
    (folder / "release.toml").write_text(
        tables + "[[workload]]\nmarginals = 2\n[budget]\nepsilon = 1\n"
    )
    text = run("plan", folder / "release.toml").out
    # 15 groups: the first 9, the last 3, and how many are between.
    assert "3 more, see --all" in text
    assert "yes2 x yes3" not in text
    assert "yes4 x yes5" in text
    assert "yes2 x yes3" in run("plan", folder / "release.toml", "--all").out


def test_a_mechanism_can_be_asked_for(folder: Path, run: Run) -> None:
    found = run("plan", folder / "release.toml", "--mechanism", "laplace", "--json").document
    assert found["mechanism"] == "laplace"


def test_an_error_gives_the_smallest_budget_that_reaches_it(folder: Path, run: Run) -> None:
    at = [run("plan", folder / "release.toml", "--error", e, "--json").document for e in (5, 10)]
    assert [float(str(d["rmse"])) <= e for d, e in zip(at, (5, 10), strict=True)] == [True, True]
    assert float(str(at[0]["rmse"])) > 4.99
    small, large = (d["budget"] for d in at)
    assert isinstance(small, dict)
    assert isinstance(large, dict)
    assert small["epsilon"] > large["epsilon"]


@pytest.mark.parametrize("error", ["0", "-1", "nan", "inf"])
def test_errors_that_make_no_sense_are_refused(folder: Path, run: Run, error: str) -> None:
    ran = run("plan", folder / "release.toml", f"--error={error}")
    assert ran.code == 2
    assert "finite number above 0" in ran.err


@pytest.mark.parametrize("error", ["1e-300", "1e300"])
def test_errors_that_no_budget_reaches_are_refused(folder: Path, run: Run, error: str) -> None:
    ran = run("plan", folder / "release.toml", f"--error={error}")
    assert ran.code == 2
    assert f"gives an error of {float(error):g} counts" in ran.err


def test_a_release_writes_its_files_and_debits_the_ledger(folder: Path, run: Run) -> None:
    out = folder / "out"
    ran = run("release", folder / "release.toml", "--out", out, "--json")
    assert ran.code == 0, ran.err
    assert {p.name for p in out.iterdir()} == {"answers.parquet", "report.html", "provenance.json"}
    found = ran.document
    assert found["is_stored"] is False
    assert found["files"] == {
        "answers": str(out / "answers.parquet"),
        "provenance": str(out / "provenance.json"),
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
    from sfumato.ledger.ledger import Ledger
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


def test_a_draft_is_toml_that_says_what_to_fill_in(folder: Path, run: Run) -> None:
    import tomllib

    ran = run("draft", folder / "people.csv")
    assert ran.code == 0
    assert set(tomllib.loads(ran.out)["domain"]) == {"age", "sex"}
    assert "warning: age, sex: " in ran.err
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


def test_json_holds_nothing_but_json_and_no_bars(folder: Path, run: Run) -> None:
    ran = run("compare", folder / "release.toml", "--json")
    assert ran.err == ""
    assert {m["mechanism"] for m in ran.document["mechanisms"]} >= {"laplace", "gaussian-tree"}  # type: ignore[attr-defined]


def test_on_a_terminal_a_question_is_asked_before_anything_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SfumatoError, match="give --yes"):
        Output().confirm("It spends a lot.")
    said = []

    class Terminal:
        def __init__(self, answer: str) -> None:
            self.answer = answer

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.answer

        def write(self, text: str) -> int:
            said.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Terminal(""))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(SfumatoError, match="stopped before"):
        Output().confirm("It spends a lot.")
    assert said == ["It spends a lot. Go on? [y/N] "]
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    Output().confirm("It spends a lot.")


def test_a_draft_of_a_csv_file_says_how_to_declare_what_is_no_text(folder: Path, run: Run) -> None:
    import pandas as pd

    shown = run("draft", folder / "people.csv").out
    assert "has no types" in shown
    assert all(f'kind = "{k}"' in shown for k in ("integer", "numeric", "datetime", "boolean"))
    pd.read_csv(folder / "people.csv").to_parquet(folder / "people.parquet")
    assert "has no types" not in run("draft", folder / "people.parquet").out


def test_a_release_of_a_csv_file_says_what_becomes_of_lines_that_cannot_be_read(
    folder: Path, run: Run
) -> None:
    """Always, so that it tells nothing about the file."""
    assert "is a record of nulls" in run("release", folder / "release.toml").err


def test_the_debits_of_a_ledger_are_shown_whole(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("release", folder / "release.toml", "-q").code == 0
    entry = run("ledger", "show", folder / "people.ledger", "--json").document["entries"][0]  # type: ignore[index]
    line = run("ledger", "show", folder / "people.ledger").out.splitlines()[-1]
    assert line.split()[:3] == ["1", *entry["time"][:16].split("T")]
    assert entry["key"][:12] in line


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

    def interrupted(plan: Plan, _: object, *, ledger: Ledger, key: str, **__: object) -> None:
        if debited:
            entry = ledger.debit(plan.cost, {}, key)
            if stored:
                ledger.store(entry, b"answer")
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "release", interrupted)
    ran = run("release", folder / "release.toml", "--key", "mine")
    assert ran.code == 130
    assert words in ran.err
    assert ran.err.endswith("sfumato: interrupted\n")


def test_sums_beside_counts_are_told_in_their_own_unit(folder: Path, run: Run) -> None:
    spec = folder / "sums.toml"
    query = "[[workload]]\nsql = 'SELECT sex, SUM(age) FROM data GROUP BY sex'\n\n[budget]"
    spec.write_text(SPEC.replace("[budget]", query))
    plain, mixed = (run("plan", path).out for path in (folder / "release.toml", spec))
    assert "counts, over all queries" in plain
    assert "weighted rmse" not in plain
    assert "each in its own unit" in mixed
    assert "weighted rmse" in mixed


def test_brackets_in_a_line_are_shown(run: Run) -> None:
    assert "[analysts.NAME]" in run("token").out


def test_a_workload_with_single_brackets_is_told_to_double_them(folder: Path, run: Run) -> None:
    spec = folder / "single.toml"
    first, _, rest = SPEC.partition("[[workload]]")
    spec.write_text(first + "[workload]\nmarginals = 1\n" + rest[rest.index("[budget]") :])
    ran = run("plan", spec)
    assert ran.code == 2
    assert "write double brackets" in ran.err


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (("--synthetic", 10**14), "draw them in parts"),
        (("--key", ""), "--key must be a printable string of 1 to 200 characters, got one of 0"),
        (("--key", "a\nb"), "got line ends or others that do not print"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_before_anything_is_spent(
    folder: Path, run: Run, wish: tuple[str, object], words: str
) -> None:
    ran = run("release", folder / "release.toml", *wish)
    assert (ran.code, words in ran.err) == (2, True)
    assert not (folder / "people.ledger").exists()


def test_a_plan_looks_at_the_ledger_and_a_release_takes_what_fits(folder: Path, run: Run) -> None:
    """After a Gaussian release of a tenth, Laplace noise of epsilon 1 is refused, Gaussian fits."""
    spec = folder / "release.toml"
    fresh = run("plan", spec, "--json").document["ledger"]
    assert fresh["fits"]  # type: ignore[index]
    assert fresh["takes"] == pytest.approx(1 / 3, rel=1e-3)  # type: ignore[index]
    assert "takes 33.33% of the budget" in run("plan", spec).out
    with_noise = SPEC.replace("epsilon = 1\n", "epsilon = 0.1\n")
    (folder / "small.toml").write_text(with_noise)
    assert run("release", folder / "small.toml", "--mechanism", "gaussian", "-q").code == 0
    found = run("plan", spec, "--json").document
    within = found["ledger"]
    assert within["fits"]  # type: ignore[index]
    assert str(within["instead_of"]).startswith("laplace")  # type: ignore[index]
    assert "will be refused" in str(within["words"])  # type: ignore[index]
    refused = run("release", spec, "--mechanism", str(within["instead_of"]))  # type: ignore[index]
    assert refused.code != 0
    assert "would fit" in refused.err
    assert run("release", spec, "-q").code == 0
    shown = run("ledger", "show", folder / "people.ledger")
    assert "mu^2" not in shown.out
    assert "epsilon = 1" in shown.out
    entries = run("ledger", "show", folder / "people.ledger", "--json").document["entries"]
    taken = sum(e["share"] for e in entries)  # type: ignore[index,union-attr]
    spent = run("ledger", "show", folder / "people.ledger", "--json").document["spent_share"]
    assert taken == pytest.approx(spent)
