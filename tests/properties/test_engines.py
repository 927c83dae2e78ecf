# SPDX-License-Identifier: Apache-2.0
"""DuckDB, PostgreSQL and Spark count the same numbers, which are those of a count by hand.

Real servers; Spark is slow to answer, so that many cases stand in one table.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Boolean, Category, DateTime, Domain, Integer, Numeric
from sfumato.domain.unit import PrivacyUnit
from sfumato.vault.count import count_conditions, count_marginals
from sfumato.vault.records import read_records
from sfumato.vault.tables import open_table
from sfumato.workload.predicates import And, Everything, In, Not
from tests.engine_tables import on_all_engines
from tests.vault_reference import codes_of, marginal
from tests.words import SeededWords

pytestmark = pytest.mark.usefixtures("spark")

PEOPLE = Domain(
    [
        Integer("age", 10, 90, 10, outside="clamp"),
        Category("sex", ("F", "M")),
        Numeric("income", tuple(np.linspace(-100, 100, 101))),
        DateTime(
            "seen", datetime(2020, 2, 3, 4, 5), datetime(2021, 1, 1), "month", outside="clamp"
        ),
        Boolean("employed", nulls="missing"),
    ]
)
PAIRS = list(combinations(PEOPLE.names, 2))


def people(rows: int) -> pa.Table:
    some = np.random.default_rng(7)
    start = datetime(2020, 1, 1)
    minutes = some.integers(0, 600_000, rows)
    return pa.table(
        {
            "age": some.integers(0, 100, rows),
            "sex": some.choice(["F", "M", "M", "f", ""], rows),
            "income": some.normal(0, 50, rows),
            "seen": pa.array(
                [start + timedelta(minutes=int(m)) for m in minutes], pa.timestamp("us")
            ),
            "employed": pa.array(some.choice([True, False, None], rows).tolist(), pa.bool_()),
            "person": some.integers(0, rows // 5, rows),
        }
    )


@pytest.fixture(scope="module")
def sources(postgres, tmp_path_factory):
    return on_all_engines(people(600), "people", postgres, tmp_path_factory.mktemp("engines"))


@pytest.mark.parametrize("unit", [None, PrivacyUnit("person", 2)], ids=["rows", "persons"])
def test_a_release_counts_the_same_on_every_engine(sources, unit):
    """Also under a privacy unit: the same key keeps the same rows."""
    conditions = [Everything(), And((In("sex", (0,)), Not(In("age", (3, 4)))))]
    found = {}
    for engine, source in sources.items():
        table = open_table(source)
        read_records(table, PEOPLE, PEOPLE.names, unit, SeededWords("the same key"))
        counts = count_marginals(table, PEOPLE, [*PAIRS, ()], unit)
        met = count_conditions(table, PEOPLE, conditions, unit)
        found[engine] = [*(counts.reveal(s).tolist() for s in PAIRS), met.reveal().tolist()]
        assert met.reveal()[0] == counts.reveal(())
    assert found["postgres"] == found["duckdb"]
    assert found["spark"] == found["duckdb"]
    if unit is None:
        codes = codes_of(PEOPLE, people(600).to_pylist())
        assert found["duckdb"][:-1] == [marginal(PEOPLE, codes, s).tolist() for s in PAIRS]
