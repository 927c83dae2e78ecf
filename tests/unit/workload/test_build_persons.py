# SPDX-License-Identifier: Apache-2.0
"""Numbers of persons: COUNT(DISTINCT unit) by the builder and in SQL."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import SqlError, WorkloadError
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import read_records
from sfumato.vault.tables import open_table
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"day": 5, "sex": 2})
BY_DAY = sf.PrivacyUnit("person", groups=3, by="day")
ONE = sf.PrivacyUnit("person", 1)


def visits() -> pd.DataFrame:
    some = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "person": some.integers(0, 60, 400),
            "day": some.integers(0, 5, 400),
            "sex": some.integers(0, 2, 400),
        }
    )


def test_persons_by_day_are_the_distinct_persons_of_the_rows_that_are_counted():
    """Where no person has more days than are counted, of the whole table."""
    frame = visits()
    unit = sf.PrivacyUnit("person", groups=5, by="day")
    table = open_table(frame)
    read_records(table, DOMAIN, DOMAIN.names, unit, SeededWords("key"))
    counts = count_marginals(table, DOMAIN, [("day",)], unit).reveal(("day",))
    assert counts.tolist() == frame.groupby("day")["person"].nunique().tolist()


@pytest.mark.parametrize("unit", [BY_DAY, ONE], ids=repr)
def test_sql_counts_distinct_persons_as_the_builder_does(unit):
    asked = sf.sql(DOMAIN, "SELECT day, COUNT(DISTINCT person) AS n FROM t GROUP BY day", unit=unit)
    built = sf.persons(DOMAIN, unit, [["day"]])
    assert asked.digest() == built.digest()
    assert built.terms[0].name == "persons by day"


def test_the_number_of_all_persons_needs_one_row_each():
    assert sf.persons(DOMAIN, ONE).queries == 1
    assert sf.sql(DOMAIN, "SELECT COUNT(DISTINCT person) FROM t", unit=ONE).queries == 1


@pytest.mark.parametrize(
    ("unit", "sets"),
    [
        (BY_DAY, [["sex"]]),
        (BY_DAY, [[]]),
        (sf.PrivacyUnit("person", 3), [["day"]]),
        (sf.PrivacyUnit("person", groups=3, rows_per_group=2, by="day"), [["day"]]),
    ],
)
def test_cells_in_which_a_person_may_count_twice_are_refused(unit, sets):
    with pytest.raises(WorkloadError, match="several rows may be counted in a cell"):
        sf.persons(DOMAIN, unit, sets)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("SELECT COUNT(DISTINCT person) FROM t", BY_DAY, "counts a person once in every group"),
        (
            "SELECT sex, COUNT(DISTINCT person) FROM t GROUP BY sex",
            BY_DAY,
            "counts a person once in every group",
        ),
        (
            "SELECT day, COUNT(DISTINCT person) FROM t GROUP BY day",
            sf.PrivacyUnit("person", 3),
            "counts a person once in every group",
        ),
        ("SELECT COUNT(DISTINCT sex) FROM t", ONE, "of the privacy unit alone"),
        ("SELECT COUNT(DISTINCT person, sex) FROM t", ONE, "of the privacy unit alone"),
        ("SELECT COUNT(DISTINCT person) FROM t", None, "not linear in the records"),
    ],
)
def test_other_distinct_counts_are_refused_in_sql(text, unit, words):
    with pytest.raises(SqlError, match=words):
        sf.sql(DOMAIN, text, unit=unit)


def test_groups_in_which_days_are_joined_are_refused():
    """CASE puts two days into one group: a person of both would count twice."""
    joined = "SELECT CASE WHEN day < 2 THEN 'early' ELSE 'late' END AS part, COUNT(DISTINCT person)"
    with pytest.raises(SqlError):
        sf.sql(DOMAIN, f"{joined} FROM t GROUP BY part", unit=BY_DAY)
    finer = "SELECT day, sex, COUNT(DISTINCT person) FROM t WHERE sex = 1 GROUP BY day, sex"
    assert sf.sql(DOMAIN, finer, unit=BY_DAY).queries >= 5


def test_a_release_has_the_number_of_persons():
    frame = visits()
    unit = sf.PrivacyUnit("person", groups=5, by="day")
    plan = sf.plan(sf.persons(DOMAIN, unit, [["day"]]), sf.Budget(rho=10**6), unit=unit)
    values = plan.release(frame).answers()["value"]
    wanted = frame.groupby("day")["person"].nunique()
    np.testing.assert_allclose(values, wanted, atol=0.1)
