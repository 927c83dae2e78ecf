# SPDX-License-Identifier: Apache-2.0
"""The online benchmark compares like with like: one budget, the same questions, true errors."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from bench import online


def test_questions_are_different_and_repeatable() -> None:
    _, domain = online.table_and_domain(("race", "sex", "income", "education-num"))
    first, again = online.asked(domain, 60), online.asked(domain, 60)
    assert [q.key for q in first] == [q.key for q in again]
    assert len({q.key for q in first}) == 60
    assert all(1 <= len(q.attributes) <= 3 for q in first)


def test_two_halves_keep_the_budget() -> None:
    pure, other = sf.Budget(epsilon=1), sf.Budget(epsilon=1, delta=1e-9)
    assert 2 * online._half(pure).pure_epsilon == 1
    mu = online._half(other).mu
    assert mu is not None
    assert 2 * mu**2 <= Fraction(other.gaussian_mu or 0) ** 2


def test_every_way_is_run_and_written(tmp_path: Path) -> None:
    table, domain = online.table_and_domain(("race", "sex", "income"))
    rows = online.run(table, domain, online.asked(domain, 12), 1.0)
    assert len(rows) == 14
    assert {row.delta for row in rows} == {"0", "1e-9"}
    even = [r for r in rows if r.way.startswith("even")]
    best = [r for r in rows if "release" in r.way]
    assert max(r.mean_error for r in best) < min(r.mean_error for r in even)
    for row in rows:
        assert row.mean_error <= row.rmse <= row.largest <= len(table)
    path = online.written(rows, tmp_path)
    with path.open() as file:
        assert len(list(csv.DictReader(file))) == 14
    assert online.picture(rows, tmp_path).stat().st_size > 1000
    online.shown(rows)


def test_errors_are_those_of_the_cut_values() -> None:
    table, domain = online.table_and_domain(("race", "sex"))
    questions = online.asked(domain, 3)
    truth = np.zeros(3)
    job = online._Job(table, domain, questions, truth, sf.Budget(epsilon=1), 1.0, "0")
    row = job.row("x", np.array([-5.0, 10.0, 1e9]), 0.0)
    assert row.largest == len(table)
    assert row.mean_error == pytest.approx((10 + len(table)) / 3)
