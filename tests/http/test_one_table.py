# SPDX-License-Identifier: Apache-2.0
"""One table, one budget: the same data under two ledgers is refused, however it is read."""

from __future__ import annotations

import os

import duckdb
import pytest

from sfumato.errors import SchemaError
from sfumato_web.server.config import read_config
from tests.http.served import CONFIG, write_served

OTHERS = 'source = "others.csv"'


@pytest.fixture
def folder(tmp_path):
    path = write_served(tmp_path / "served").parent
    (path / "deeper").mkdir()
    (path / "link.csv").symlink_to(path / "people.csv")
    (path / "linked").symlink_to(path, target_is_directory=True)
    os.link(path / "people.csv", path / "hard.csv")
    with duckdb.connect(str(path / "people.duckdb")) as database:
        database.execute("CREATE TABLE visits AS SELECT 1 AS age, 'Male' AS sex")
        database.execute("CREATE TABLE staff AS SELECT 1 AS age, 'Male' AS sex")
        database.execute("CREATE VIEW adults AS SELECT * FROM visits WHERE age > 17")
    return path


def config(folder, source, first='source = "people.csv"'):
    text = CONFIG.replace(OTHERS, source).replace('source = "people.csv"', first, 1)
    (folder / "server.toml").write_text(text)
    return read_config(folder / "server.toml")


SAME_FILE = [
    'source = "./people.csv"',
    'source = "deeper/../people.csv"',
    'source = "link.csv"',
    'source = "linked/people.csv"',
    'source = "hard.csv"',
    'source = "people*.csv"',
    'source = "p[e]ople.csv"',
]


@pytest.mark.parametrize("source", SAME_FILE)
def test_a_file_under_another_name_is_no_second_budget(folder, source):
    with pytest.raises(SchemaError, match="has the same source as 'people'"):
        config(folder, source)


def test_an_absolute_path_is_no_second_budget(folder):
    with pytest.raises(SchemaError, match="one table is served under one name"):
        config(folder, f'source = "{folder / "people.csv"}"')


SAME_TABLE = [
    'source = "people.duckdb::visits"',
    'source = "people.duckdb::adults"',
    'source = "people.duckdb"\nquery = "SELECT age, sex FROM visits WHERE age > 3"',
    'source = "people.duckdb"\nquery = "WITH v AS (SELECT * FROM main.visits) SELECT * FROM v"',
    'source = "people.duckdb"\nquery = "SELECT a.age, a.sex FROM staff a JOIN Adults USING (age)"',
    'source = "people.duckdb"',
]


@pytest.mark.parametrize("source", SAME_TABLE)
def test_a_table_of_a_database_is_one_however_it_is_asked_for(folder, source):
    with pytest.raises(SchemaError, match="has the same source as 'people'"):
        config(folder, source, 'source = "people.duckdb::visits"')


SAME_SERVER = [
    "postgres://ann@127.0.0.1:5432/clinic::visits",
    "postgresql://bob@localhost/clinic::public.visits",
    "postgres://localhost:5432/clinic::VISITS",
]


@pytest.mark.parametrize("address", SAME_SERVER)
def test_an_address_is_compared_by_what_it_means(folder, address):
    with pytest.raises(SchemaError, match="has the same source as 'people'"):
        config(
            folder, f'source = "{address}"', 'source = "postgres://ada@localhost/clinic::visits"'
        )


def test_other_tables_have_ledgers_of_their_own(folder):
    """The twin: what is not the same data is served."""
    assert len(config(folder, OTHERS).datasets) == 2
    both = config(folder, 'source = "people.duckdb::staff"', 'source = "people.duckdb::visits"')
    assert len(both.datasets) == 2
    assert len(config(folder, 'source = "others*.csv"').datasets) == 2


def test_one_ledger_by_two_paths_is_refused(folder):
    text = CONFIG.replace('ledger = "others.ledger"', 'ledger = "deeper/../people.ledger"')
    (folder / "server.toml").write_text(text)
    with pytest.raises(SchemaError, match="has the same ledger as 'people'"):
        read_config(folder / "server.toml")
