# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: one clear message, exit code 2, nothing debited, no half-written file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.cli.main import main
from tests.unit.cli.conftest import SPEC, Ran, write_people

Run = Callable[..., Ran]

WIDE = (
    "\n".join(f'[domain.a{i}]\nkind = "integer"\nmin = 0\nmax = 1999\n' for i in range(3))
    + "\n[[workload]]\nmarginals = 3\n[[workload]]\nmarginals = 1\n"
)

# name: (old part of the spec, new part, what the message must say)
CHANGES: dict[str, tuple[str, str, str]] = {
    "unknown attribute": ('prefix = "age"', 'prefix = "aeg"', "did you mean 'age'?"),
    "overlapping bins": (
        'kind = "integer"\nmin = 0\nmax = 19',
        'kind = "numeric"\nedges = [0, 10, 5, 20]',
        "line 7: domain.age.edges",
    ),
    "workload too large for memory": (
        "[[workload]]\nmarginals = 1",
        WIDE,
        "the limit is",
    ),
    "delta outside (0, 1)": ("delta = 1e-9", "delta = 1.5", "delta must lie in (0, 1)"),
    "epsilon zero": ("epsilon = 1\n", "epsilon = 0\n", "epsilon must be greater than 0"),
    "epsilon negative": ("epsilon = 1\n", "epsilon = -1\n", "epsilon must be greater than 0"),
    "missing table": ('"people.csv"', '"nobody.csv"', "no such file"),
    "domain given twice": ('name = "people"', 'domain = "nowhere.toml"', "given twice"),
    "table lacking a column": (
        "[[workload]]\nmarginals = 1",
        '[domain.city]\nkind = "boolean"\n\n[[workload]]\nmarginals = 1',
        "'city'",
    ),
    "schema contradicting column types": (
        '"people.csv"',
        '"typed.parquet"',
        "age",
    ),
    "ledger of another table": ('name = "people"', 'name = "patients"', "belongs to table"),
    "exhausted budget": ("epsilon = 1\n", "epsilon = 2.9\n", "budget refused"),
    "unknown mechanism": (
        "[ledger]",
        '[plan]\nmechanism = "magic"\n[ledger]',
        "unknown mechanism 'magic'",
    ),
    "impossible mechanism": (
        "delta = 1e-9\n\n[ledger]",
        '[plan]\nmechanism = "gaussian"\n[ledger]',
        "needs delta > 0",
    ),
    "SQL that is no linear query": (
        "marginals = 1",
        'sql = "SELECT MAX(age) FROM data"',
        "MAX",
    ),
    "not TOML": ("[budget]", "[budget", "not valid TOML"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one release was made: its ledger has one debit."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("released")
    write_people(folder)
    table = pa.table({"age": ["old", "young"], "sex": ["Female", "Male"]})
    parquet.write_table(table, folder / "typed.parquet")
    with pytest.raises(SystemExit) as left:
        main(["release", str(folder / "release.toml"), "--out", str(folder / "first"), "-q", "-y"])
    assert left.value.code == 0
    return folder


@pytest.fixture
def spent(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "folder"))


def _state(ledger: Path) -> tuple[object, ...]:
    """What the ledger says, and the chain of hashes that it keeps apart."""
    from sfumato.ledger.ledger import Ledger

    book = Ledger.open(ledger)
    found = (book.spent().share, tuple(book.entries()), book.verify().head)
    book.close()
    head = hashlib.sha256(Path(f"{ledger}.head").read_bytes()).hexdigest()
    return (*found, head)


def _files(folder: Path) -> set[str]:
    # SQLite keeps its side files (-wal, -shm) while a ledger is open.
    found = (str(p.relative_to(folder)) for p in folder.rglob("*"))
    return {name for name in found if not name.endswith(("-wal", "-shm"))}


@pytest.mark.parametrize("name", CHANGES)
def test_bad_input_gets_one_message_and_costs_nothing(spent: Path, run: Run, name: str) -> None:
    old, new, expected = CHANGES[name]
    text = (spent / "release.toml").read_text()
    assert old in text
    (spent / "release.toml").write_text(text.replace(old, new, 1))
    before, files = _state(spent / "people.ledger"), _files(spent)

    out = spent / "second"
    ran = run("release", spent / "release.toml", "--out", out, "--key", "second", "--json")

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("sfumato: ")
    assert expected in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 2, ran.err
    assert not out.exists()
    assert _state(spent / "people.ledger") == before
    assert _files(spent) == files


def test_a_missing_domain_file_is_refused(spent: Path, run: Run) -> None:
    start, end = SPEC.index("[domain.age]"), SPEC.index("[[workload]]")
    text = (SPEC[:start] + SPEC[end:]).replace('name = "people"', 'domain = "nowhere.toml"')
    (spent / "release.toml").write_text(text)
    before = _state(spent / "people.ledger")
    ran = run("release", spent / "release.toml", "--key", "second")
    assert ran.code == 2
    assert "nowhere.toml: there is no such file" in ran.err
    assert _state(spent / "people.ledger") == before


def test_a_ledger_is_not_created_for_a_release_that_is_refused(folder: Path, run: Run) -> None:
    (folder / "release.toml").write_text(SPEC.replace("epsilon = 3", "epsilon = 0.5"))
    files = _files(folder)
    ran = run("release", folder / "release.toml")
    assert ran.code == 2
    assert "budget refused" in ran.err
    assert _files(folder) == files


def test_a_release_without_a_ledger_must_be_asked_for(folder: Path, run: Run) -> None:
    (folder / "release.toml").write_text(SPEC[: SPEC.index("[ledger]")])
    ran = run("release", folder / "release.toml")
    assert ran.code == 2
    assert "--no-ledger" in ran.err
    assert not (folder / "release-out").exists()
    assert run("release", folder / "release.toml", "--no-ledger", "--quiet").code == 0
    assert (folder / "release-out" / "answers.parquet").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_spent(
    spent: Path, run: Run
) -> None:
    before = _state(spent / "people.ledger")
    (spent / "taken").write_text("a file")
    ran = run("release", spent / "release.toml", "--out", spent / "taken", "--key", "second")
    assert ran.code == 2
    assert "is a file" in ran.err
    assert _state(spent / "people.ledger") == before


def test_values_that_the_schema_does_not_know_are_no_error(folder: Path, run: Run) -> None:
    with (folder / "people.csv").open("a") as stream:
        stream.write("unknown,Martian\n-5,Female\n")
    ran = run("release", folder / "release.toml", "--quiet")
    assert ran.code == 0, ran.err
    assert "Martian" not in ran.out + ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "nowhere.toml"),
        ("release", "nowhere.toml"),
        ("compare", "nowhere.toml"),
        ("draft", "nowhere.parquet"),
        ("ledger", "show", "nowhere.ledger"),
        ("ledger", "verify", "nowhere.ledger"),
        ("demo", "--epsilon", "0"),
        ("demo", "--delta", "1"),
        ("demo", "--delta", "0"),
    ],
)
def test_every_command_refuses_with_exit_code_2(
    arguments: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("sfumato: ")
    assert not list(tmp_path.iterdir())


def test_the_installed_command_leaves_no_traceback(folder: Path) -> None:
    """The same as above, through the real process."""
    ran = subprocess.run(
        [sys.executable, "-m", "sfumato", "plan", str(folder / "nowhere.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "there is no such file" in ran.stderr
