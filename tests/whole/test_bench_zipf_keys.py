# SPDX-License-Identifier: Apache-2.0
"""The section of keys: like is compared with like."""

from __future__ import annotations

from math import exp

import pytest

from bench.zipf_keys import EPSILON, opendp_keys, sfumato_keys, words


def test_the_table_is_one_of_zipfs_law() -> None:
    numbers = sorted(words().values(), reverse=True)
    assert len(numbers) == pytest.approx(5611, rel=0.02)
    assert numbers[0] > 10 * numbers[20]


def test_thresholds_are_those_that_the_docstring_says() -> None:
    # P(1 + noise >= T) = q^(T - 1) / (1 + q) <= 1e-2 first at T = 6, for q = 1/e.
    q = exp(-EPSILON)
    assert q**5 / (1 + q) < 1e-2 < q**4 / (1 + q)
    assert min(opendp_keys(1e-2, True)({f"k{i}": 6 for i in range(200)}).values()) == 6
    assert min(opendp_keys(1e-2, False)({f"k{i}": 6 for i in range(200)}).values()) == 5


def test_ours_publishes_what_many_share() -> None:
    assert sfumato_keys(1e-6)({"many": 200, "one": 1}).keys() == {"many"}
