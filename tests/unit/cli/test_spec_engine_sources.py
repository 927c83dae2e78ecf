# SPDX-License-Identifier: Apache-2.0
"""The command line on tables of other engines: the same files and columns, nothing private."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sfumato.cli.spec import read_spec
from sfumato.ledger.ledger import Ledger
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table, public_name
from tests.shared.engine_tables import in_postgres
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]
Rewrite = Callable[[str, str], Path]

SOURCE = 'source = "people.csv"'


@pytest.fixture
def people(postgres: str, folder: Path) -> str:
    return in_postgres(postgres, "people", pyarrow.csv.read_csv(folder / "people.csv"))


def test_a_release_from_postgresql_writes_what_one_from_a_file_does(
    people: str, folder: Path, run: Run, rewrite: Rewrite
) -> None:
    assert run("release", folder / "release.toml", "--yes", "--out", folder / "csv").code == 0
    spec = rewrite(SOURCE, f'source = "{people}"')
    ran = run("release", spec, "--yes", "--key", "again", "--out", folder / "postgres", "--json")
    assert ran.code == 0, ran.err
    names = [sorted(p.name for p in (folder / kind).iterdir()) for kind in ("csv", "postgres")]
    assert names[0] == names[1]
    one, other = (
        pq.read_schema(folder / kind / "answers.parquet").remove_metadata()
        for kind in ("csv", "postgres")
    )
    assert one == other
    assert "postgres@" not in (folder / "postgres" / "provenance.json").read_text()


def test_the_name_of_a_table_of_a_server_holds_no_server(
    people: str, folder: Path, run: Run, rewrite: Rewrite
) -> None:
    rewrite('name = "people"\n', "")
    spec = rewrite(SOURCE, f'source = "{people}"')
    assert run("release", spec, "--yes").code == 0
    with closing(Ledger.open(folder / "people.ledger")) as book:
        assert book.table_id == "postgres:postgres::people"


def test_questions_and_drafts_take_tables_of_a_server(
    people: str, run: Run, rewrite: Rewrite
) -> None:
    spec = rewrite(SOURCE, f'source = "{people}"')
    ran = run("ask", spec, "SELECT COUNT(*) FROM data WHERE age < 10", "--json")
    assert ran.code == 0, ran.err
    drafted = run("draft", people)
    assert "[domain.age]" in drafted.out
    address = people.partition("::")[0]
    drafted = run("draft", address, "--query", "SELECT sex AS gender FROM people", "--json")
    assert "[domain.gender]" in json.loads(drafted.out)["toml"]


def test_a_query_is_read_from_the_spec(folder: Path, run: Run, rewrite: Rewrite) -> None:
    table = pyarrow.csv.read_csv(folder / "people.csv")
    pq.write_table(table.rename_columns(["years", "sex"]), folder / "people.parquet")
    query = "SELECT years AS age, sex FROM data"
    spec = rewrite(SOURCE, f'source = "people.parquet"\nquery = "{query}"')
    assert run("release", spec, "--yes").code == 0
    rewrite(f'source = "people.parquet"\nquery = "{query}"', f'query = "{query}"')
    ran = run("plan", spec)
    assert ran.code != 0
    assert "a query needs a source" in ran.err


def test_a_password_is_refused_before_anything_else(run: Run, rewrite: Rewrite) -> None:
    spec = rewrite(SOURCE, 'source = "postgres://me:hunter2@host/db::people"')
    for command in ("plan", "release", "ask", "compare"):
        ran = run(command, spec, *(["SELECT COUNT(*) FROM data"] if command == "ask" else []))
        assert ran.code != 0
        assert "PGPASSFILE" in ran.err
        assert "hunter2" not in ran.err + ran.out


def test_paths_of_spark_start_at_the_folder_of_the_spec(folder: Path, rewrite: Rewrite) -> None:
    spec = read_spec(rewrite(SOURCE, 'source = "spark:parts/*.parquet"'))
    assert spec.table() == f"spark:{folder}/parts/*.parquet"


def test_a_server_that_cannot_be_reached_debits_nothing(
    folder: Path, run: Run, rewrite: Rewrite
) -> None:
    spec = rewrite(SOURCE, 'source = "postgres://me@127.0.0.1:1/db::people"')
    ran = run("release", spec, "--yes")
    assert ran.code != 0
    assert "cannot connect" in ran.err
    assert not (folder / "people.ledger").exists()


def test_a_csv_file_with_texts_of_many_lines_is_refused_until_the_spec_says_how_it_was_written(
    folder: Path, run: Run, rewrite: Rewrite
) -> None:
    text = (folder / "people.csv").read_text().replace("age,sex\n", "age,sex,note\n")
    lines = text.splitlines()
    noted = [lines[0], *(f'{line},"ok\n3,Male,x\n3,Male,x"' for line in lines[1:])]
    (folder / "people.csv").write_text("\n".join(noted) + "\n")
    spec = folder / "release.toml"
    refused = [
        run("release", spec, "--yes", "--out", folder / "out"),
        run("ask", spec, "SELECT COUNT(*) FROM data WHERE age < 10"),
    ]
    for ran in refused:
        assert ran.code != 0
        assert 'csv = "rfc4180"' in ran.err
    assert not (folder / "out").exists()
    if (folder / "people.ledger").exists():
        with closing(Ledger.open(folder / "people.ledger")) as book:
            assert not list(book.entries()), "nothing is debited"
    spec = rewrite(SOURCE, f'{SOURCE}\ncsv = "rfc4180"')
    assert run("release", spec, "--yes", "--out", folder / "out").code == 0
    table = read_spec(spec).table()
    assert public_name(table) == "people.csv"
    domain = read_spec(spec).domain
    counts = count_marginals(open_table(table), domain, [()])
    assert counts.reveal(()) == len(lines) - 1
    rewrite('csv = "rfc4180"', 'csv = "lines"')
    counts = count_marginals(open_table(read_spec(spec).table()), domain, [()])
    assert counts.reveal(()) == len(lines) - 1 + 400, "as declared: every line is a record"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f'{SOURCE}\ncsv = "excel"', "lines"),
        ('csv = "lines"', "needs a source"),
        (f'{SOURCE}\ncsv = "lines"\nquery = "SELECT 1"', "no query runs on it"),
    ],
)
def test_a_word_on_csv_that_means_nothing_is_refused(
    run: Run, rewrite: Rewrite, lines: str, words: str
) -> None:
    ran = run("plan", rewrite(SOURCE, lines))
    assert ran.code != 0
    assert words in ran.err
