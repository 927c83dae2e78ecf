# SPDX-License-Identifier: Apache-2.0
"""The privacy unit: what its bound may be."""

from __future__ import annotations

import enum
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.privacy_unit import PrivacyUnit
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
