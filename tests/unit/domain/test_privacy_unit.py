# SPDX-License-Identifier: Apache-2.0
"""The privacy unit: what its bound may be."""

from __future__ import annotations

import enum
import pickle
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.privacy_unit import (
    PrivacyUnit,
    counted_rows,
    unit_from_json,
    unit_in_words,
    unit_json,
)
from sfumato.errors import SchemaError, SfumatoError


class Bound(enum.IntEnum):
    FEW = 3


@pytest.mark.parametrize(
    "rows", [3, np.int64(3), np.uint8(3), np.array(3), Bound.FEW, LIMITS.rows_per_unit], ids=repr
)
def test_a_bound_is_a_whole_number_of_any_kind(rows):
    unit = PrivacyUnit("id", rows)
    assert type(unit.rows) is int
    assert unit == PrivacyUnit("id", int(rows))


WRONG = [
    0,
    -1,
    True,
    False,
    np.bool_(True),
    3.0,
    2.5,
    float("nan"),
    float("inf"),
    "3",
    b"3",
    None,
    [3],
    Decimal(3),
    Fraction(3),
    np.float64(3),
    np.array([3]),
    LIMITS.rows_per_unit + 1,
    10**400,
    10**5000,
    -(10**5000),
]


@pytest.mark.parametrize(
    "rows", WRONG, ids=[f"{type(w).__name__} {i}" for i, w in enumerate(WRONG)]
)
def test_any_other_bound_is_refused_in_words(rows):
    with pytest.raises(
        SchemaError, match=r"whole number from 1 to 17,592,186,044,416, got .*; for"
    ):
        PrivacyUnit("id", rows)


@pytest.mark.parametrize("rows", [2**20, 2**32, LIMITS.rows_per_unit])
def test_a_great_bound_ends_in_a_plan_or_in_words(rows):
    work = sf.marginals(sf.Domain({"a": 3}), 1)
    unit = PrivacyUnit("id", rows)
    for budget in (sf.Budget(epsilon=1), sf.Budget(mu=1)):
        for made in (
            lambda: sf.plan(work, budget, unit=unit).rmse,  # noqa: B023
            lambda: sf.plan_session(work.domain, budget, unit=unit).paid_bound,  # noqa: B023
            lambda: sf.plan_adaptive(work, budget, unit=unit).seconds,  # noqa: B023
        ):
            with suppress(SfumatoError):
                assert made() > 0


def test_a_spec_says_the_line_of_a_bound_that_is_too_large(tmp_path):
    from sfumato.cli.spec import read_spec

    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'[data]\nunit = "id"\nrows_per_unit = {2**62}\n[domain.a]\nkind = "boolean"\n'
        "[budget]\nepsilon = 1\n[[workload]]\nmarginals = 1\n"
    )
    with pytest.raises(SchemaError, match=r"line 3: data.rows_per_unit.*17,592,186,044,416"):
        read_spec(spec)


# Groups


def test_groups_make_the_bound_on_rows_where_none_is_said():
    unit = PrivacyUnit("person", groups=10, rows_per_group=2, by="day")
    assert (unit.rows, unit.groups, unit.rows_per_group, unit.by) == (20, 10, 2, ("day",))
    assert PrivacyUnit("person", groups=7, by=["day"]).rows == 7


def test_units_of_equal_meaning_are_equal():
    """Bounds that no choice of rows reaches, names in another order, and numbers of other kinds."""
    one = PrivacyUnit("p", rows=3, groups=9, rows_per_group=8, by=("b", "a"))
    assert one == PrivacyUnit("p", rows=3, groups=3, rows_per_group=3, by=("a", "b", "a"))
    assert PrivacyUnit("p", 50, groups=np.int64(2), rows_per_group=4, by="a").rows == 8
    assert PrivacyUnit("p", 3) != PrivacyUnit("p", groups=3, by="a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"groups": 2}, "their number and their attributes"),
        ({"by": "day"}, "their number and their attributes"),
        ({"rows": 3, "rows_per_group": 2}, "their number and their attributes"),
        ({"groups": 0, "by": "day"}, "groups of a privacy unit must be a whole number"),
        ({"groups": 2.0, "by": "day"}, "groups of a privacy unit must be a whole number"),
        ({"groups": 2, "rows_per_group": True, "by": "day"}, "rows_per_group of a privacy unit"),
        ({"groups": 2, "by": [1]}, "by names the attributes"),
        ({"groups": 2, "by": 5}, "by names the attributes"),
        ({"rows": 0, "groups": 2, "by": "day"}, "a bound on the rows"),
    ],
)
def test_groups_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(SchemaError, match=words):
        PrivacyUnit("person", **arguments)


def test_the_worst_person_fills_groups_first():
    """3 + 3 + 1 of at most 7 rows, 3 in a group: 9 + 9 + 1."""
    assert PrivacyUnit("p", rows=7, groups=5, rows_per_group=3, by="a").greatest_square == 19
    assert PrivacyUnit("p", groups=10, by="a").greatest_square == 10
    assert PrivacyUnit("p", 10).greatest_square == 100


def test_groups_are_written_and_read_as_json_and_other_units_as_before():
    unit = PrivacyUnit("person", groups=10, rows_per_group=2, by=("day", "hour"))
    assert unit_from_json(unit_json(unit)) == unit
    assert unit_json(PrivacyUnit("person", 5)) == {"column": "person", "rows": 5}
    assert eval(repr(unit)) == unit  # noqa: S307
    assert pickle.loads(pickle.dumps(unit)) == unit  # noqa: S301
    assert "10 groups by 'day' and 'hour'" in counted_rows(unit)
    assert unit_in_words(unit) == "all rows that share a value of 'person'"
