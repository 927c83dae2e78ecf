# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of scale compares are the same counts of the same people."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from bench.people import DOMAIN, PAIRS, bare_columns, write_people, write_wide
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

ROWS = 500


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    path = tmp_path_factory.mktemp("people") / "people.parquet"
    write_people(ROWS, path)
    return path


def test_all_people_are_in_the_domain_and_are_the_same_in_every_file(people, tmp_path):
    counts = count_marginals(open_table(str(people)), DOMAIN, PAIRS)
    assert {int(counts.reveal(pair).sum()) for pair in PAIRS} == {ROWS}
    write_people(ROWS, tmp_path / "again.parquet")
    same = "SELECT COUNT(*) FROM (FROM '{}' EXCEPT ALL FROM '{}')"
    assert duckdb.sql(same.format(people, tmp_path / "again.parquet")).fetchall() == [(0,)]


def test_bare_group_bys_count_the_same(people):
    counts = count_marginals(open_table(str(people)), DOMAIN, PAIRS)
    columns = bare_columns()
    for a, b in (("income", "seen"), ("education", "age"), ("sex", "insured")):
        query = f"SELECT COUNT(*) FROM '{people}' GROUP BY {columns[a]}, {columns[b]}"
        bare = sorted(n for (n,) in duckdb.sql(query).fetchall())
        exact = counts.reveal(DOMAIN.in_order((a, b)))
        assert bare == np.sort(exact[exact > 0]).tolist()


def test_wide_tables_have_ten_values_a_column(tmp_path):
    domain = write_wide(3, ROWS, tmp_path / "wide.parquet")
    found = count_marginals(open_table(str(tmp_path / "wide.parquet")), domain, [("x0", "x1")])
    assert int(found.reveal(("x0", "x1")).sum()) == ROWS
