# SPDX-License-Identifier: Apache-2.0
"""The random key that chooses the rows of a privacy unit: one for a release, none for two."""

from __future__ import annotations

import gc
import weakref

import pandas as pd
import pytest

import sfumato as sf
from sfumato.vault import encode
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import Table, open_table

DOMAIN = sf.Domain({"age": 4, "sex": 2})
UNIT = sf.PrivacyUnit("person", 1)
PEOPLE = pd.DataFrame(
    {
        "person": [i // 4 for i in range(400)],
        "age": [i % 4 for i in range(400)],
        "sex": [i % 2 for i in range(400)],
    }
)
BUDGET = sf.Budget(epsilon=1, delta=1e-6)


@pytest.fixture
def keys(monkeypatch) -> list[str]:
    """The key of every reading of a table, in order."""
    found: list[str] = []
    made = encode.secret_table

    def watched(table: Table) -> object:
        found.append(str(table.secret))
        return made(table)

    monkeypatch.setattr(encode, "secret_table", watched)
    return found


def sources(folder):
    path = folder / "people.parquet"
    PEOPLE.to_parquet(path)
    return [open_table(PEOPLE), open_table(path), PEOPLE, SqlSource(path, "SELECT * FROM data")]


def test_every_release_of_one_opened_table_has_a_key_of_its_own(keys, tmp_path):
    work = sf.marginals(DOMAIN, 2) | sf.predicates(DOMAIN, [sf.attribute(DOMAIN, "age") < 2])
    plan = sf.plan(work, BUDGET, unit=UNIT)
    adaptive = sf.plan_adaptive(sf.marginals(DOMAIN, 1), BUDGET, unit=UNIT)
    corrected = sf.correct(sf.marginals(DOMAIN, 1), BUDGET, tolerance=5, unit=UNIT)
    for source in sources(tmp_path):
        before = len(keys)
        for _ in range(3):
            plan.release(source)
        adaptive.release(source)
        corrected.release(source, [50.0] * 6)
        assert len(set(keys[before:])) == 5
    assert len(set(keys)) == 20
    assert all(len(key) == 64 for key in keys)


def test_a_session_has_one_key_for_all_its_questions_and_no_other_session_has_it(keys, tmp_path):
    source = open_table(PEOPLE)
    for name in ("one", "two"):
        sf.Ledger.create(tmp_path / name, sf.Budget(epsilon=5), name, unit=UNIT)
        with sf.open_session(
            source, DOMAIN, sf.Budget(epsilon=5), unit=UNIT, ledger=tmp_path / name, name=name
        ) as session:
            session.ask("SELECT COUNT(*) FROM t WHERE age = 0")
            session.ask("SELECT COUNT(*) FROM t WHERE sex = 1")
            session.ask_all("SELECT age, sex, COUNT(*) FROM t GROUP BY age, sex")
    assert len(set(keys)) == 2
    sf.plan(sf.marginals(DOMAIN, 1), BUDGET, unit=UNIT).release(source)
    assert len(set(keys)) == 3


def test_two_releases_keep_other_rows_of_a_person():
    """With one key for both, the rows that are counted would be the same."""
    table = open_table(PEOPLE)
    found = []
    for _ in range(6):
        again = open_table(table)
        kept = encode.read_records(again, DOMAIN, ["age"], UNIT)
        query = f"SELECT c0 AS age, COUNT(*) AS n FROM {kept.name} GROUP BY 1 ORDER BY 1"
        found.append(tuple(kept.engine.fetch(query, ["n"])["n"].tolist()))
        assert sum(found[-1]) == 100
    assert len(set(found)) > 1


def test_without_units_an_opened_table_is_read_once():
    table = open_table(PEOPLE)
    one, two = (encode.read_records(open_table(table), DOMAIN, ["age"]) for _ in range(2))
    assert one is two


def test_a_table_is_let_go_of_as_soon_as_nobody_holds_it():
    gc.disable()
    try:
        table = open_table(PEOPLE)
        gone = weakref.ref(table)
        again = open_table(table)
        del table
        assert gone() is not None
        del again
        assert gone() is None
    finally:
        gc.enable()
