# SPDX-License-Identifier: Apache-2.0
"""The shape of statements: which columns they have, and where these are in a union of workloads."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from tests.shared.exact_statements import exact_frame

DOMAIN = sf.Domain([sf.Integer("age", 0, 5, nulls="missing"), sf.Category("sex", ("F", "M"))])
COUNTS = np.arange(14).reshape(7, 2)


def test_statements_of_a_union_are_read_off_their_own_answers() -> None:
    first = sf.sql(DOMAIN, "SELECT AVG(age) AS a, COUNT(*) AS n FROM t")
    second = sf.sql(DOMAIN, "SELECT sex, COUNT(*) AS n, AVG(age) AS a FROM t GROUP BY sex")
    both = sf.marginals(DOMAIN, 2) | first | 2 * second
    assert len(both.statements) == 2
    for i, alone in enumerate((first, second)):
        assert exact_frame(both, COUNTS, i).equals(exact_frame(alone, COUNTS))
    assert exact_frame(second, COUNTS)["n"].tolist() == [42, 49]


def test_columns_of_one_title_are_told_apart() -> None:
    work = sf.sql(DOMAIN, "SELECT COUNT(*), COUNT(*), sex AS s, sex AS s FROM t GROUP BY s")
    assert work.statements[0].titles() == ("COUNT(*)", "COUNT(*) (2)", "s", "s (2)")


@pytest.mark.parametrize(
    ("clause", "ages"),
    [
        ("ORDER BY age", ["(missing)", 0, 1, 2, 3, 4, 5]),  # as SQLite: NULL is the least
        ("ORDER BY age DESC", [5, 4, 3, 2, 1, 0, "(missing)"]),
        ("ORDER BY age DESC NULLS FIRST LIMIT 2", ["(missing)", 5]),
        ("ORDER BY n DESC LIMIT 2 OFFSET 1", [5, 4]),
        ("HAVING n > 5 AND n <= 17", [2, 3, 4]),
        ("HAVING n BETWEEN 5 AND 9 OR age IS NULL", [1, 2, "(missing)"]),
        ("HAVING NOT n / 2 > 3", [0, 1]),
        ("HAVING age IN (1, 2) AND n < 100", [1, 2]),
        ("HAVING COUNT(*) - 1 = 0", [0]),
    ],
)
def test_released_values_are_filtered_sorted_and_cut(clause: str, ages: list[object]) -> None:
    """The counts by age are 1, 5, 9, 13, 17, 21 and, of missing ages, 25."""
    work = sf.sql(DOMAIN, f"SELECT age, COUNT(*) AS n FROM t GROUP BY age {clause}")
    assert exact_frame(work, COUNTS)["age"].tolist() == ages


def test_only_choices_by_noisy_values_ask_for_intervals_that_hold_together() -> None:
    def level(clause: str) -> float:
        text = f"SELECT age, COUNT(*) AS n FROM t GROUP BY age {clause}"
        return sf.sql(DOMAIN, text).statements[0].level(0.95)

    for clause in ("", "ORDER BY n", "LIMIT 2", "ORDER BY age LIMIT 2", "HAVING age > 2"):
        assert level(clause) == 0.95
    for clause in ("HAVING n > 2", "ORDER BY 2 DESC LIMIT 1", "HAVING age > 2 OR COUNT(*) > 1"):
        assert level(clause) == pytest.approx(1 - 0.05 / 7)
