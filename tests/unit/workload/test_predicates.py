# SPDX-License-Identifier: Apache-2.0
"""Conditions over cells, and the classes that they tell apart."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.workload.predicates import (
    And,
    Classes,
    Condition,
    Everything,
    In,
    Not,
    Or,
    indicator,
)

DOMAIN = Domain(
    [
        Integer(
            "age", 0, 5, nulls="missing", levels=(Level("half", ("a", "b"), (0,) * 3 + (1,) * 3),)
        ),
        Category("sex", ("F", "M"), outside="other"),
        Boolean("smokes"),
        DateTime("day", datetime(2024, 1, 1), datetime(2024, 1, 5)),
    ]
)
AGE, SEX = sf.attribute(DOMAIN, "age"), sf.attribute(DOMAIN, "sex")


def codes(condition: Condition) -> tuple[int, ...]:
    assert isinstance(condition, In)
    return condition.codes


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        (AGE == 2, (2,)),
        (AGE != 2, (0, 1, 3, 4, 5)),
        (AGE < 2, (0, 1)),
        (AGE <= 2, (0, 1, 2)),
        (AGE > 3, (4, 5)),
        (np.int64(3) <= AGE, (3, 4, 5)),
        (AGE < 2.5, (0, 1, 2)),
        (AGE.between(1, 3), (1, 2, 3)),
        (AGE.between(3, 1), ()),
        (AGE.isin([5, 0, 5]), (0, 5)),
        (AGE.isin(n for n in (1, 2)), (1, 2)),
        (AGE < 10**5000, (0, 1, 2, 3, 4, 5)),
        (AGE.is_missing, (6,)),
        (AGE.in_group("half", "b"), (3, 4, 5)),
        (SEX == "M", (1,)),
        (SEX != "M", (0, 2)),
        (SEX.isin("M"), (1,)),
        (SEX.is_missing, ()),
        (sf.attribute(DOMAIN, "smokes") == np.True_, (1,)),
        (sf.attribute(DOMAIN, "day") >= date(2024, 1, 3), (2, 3)),
        (sf.attribute(DOMAIN, "day") == "2024-01-02", (1,)),
    ],
)
def test_comparisons_select_cells(condition: Condition, cells: tuple[int, ...]) -> None:
    """A missing value satisfies no comparison; another value only ``!=``."""
    assert codes(condition) == cells


@pytest.mark.parametrize(
    "compare",
    [
        lambda: AGE == None,  # noqa: E711
        lambda: AGE == [1],
        lambda: AGE < None,
        lambda: AGE < "x",
        lambda: AGE.isin([]),
        lambda: float("nan") > AGE,
        lambda: SEX == "X",
        lambda: SEX < "M",
        lambda: AGE.in_group("half", "c"),
        lambda: AGE.in_group("third", "a"),
        lambda: (AGE < 3) & True,
        lambda: (AGE < 3) | "sex",
        lambda: bool(AGE < 3),
        lambda: sf.attribute(DOMAIN, "nobody"),
    ],
)
def test_what_cannot_be_compared_is_refused(compare: object) -> None:
    with pytest.raises(WorkloadError):
        compare()  # type: ignore[operator]


def test_chains_are_flat_and_read_as_they_mean() -> None:
    both = (AGE > 1) & (AGE < 4) & (SEX == "M")
    assert isinstance(both, And)
    assert len(both.parts) == 3
    assert str(both) == "age > 1 and age < 4 and sex = M"
    assert str(both | ~(AGE == 0)) == "(age > 1 and age < 4 and sex = M) or not (age = 0)"
    assert str((AGE == 0) & ((SEX == "M") | (SEX == "F"))) == "age = 0 and (sex = M or sex = F)"
    assert ~~both is both
    assert str(Everything()) == "everything"
    assert str(In("age", (1, 2))) == "age in cells [1, 2]"


def test_not_is_the_complement_in_cells() -> None:
    """Unlike SQL's NOT, which passes over missing values."""
    assert np.flatnonzero(indicator(~(AGE < 5), DOMAIN, ("age",))).tolist() == [5, 6]


def test_the_indicator_is_over_the_named_attributes_in_their_order() -> None:
    condition = (AGE == 1) | (SEX == "F")
    table = indicator(condition, DOMAIN, ("sex", "age"))
    assert table.shape == (3, 7)
    assert table[0].all()
    assert table[:, 1].all()
    assert table.sum() == 7 + 2


def test_classes_are_what_the_leaves_tell_apart() -> None:
    found = Classes.of([AGE < 3, (AGE == 1) & (SEX == "M")], DOMAIN, ("age", "sex"))
    assert found.class_of[0].tolist() == [0, 1, 0, 2, 2, 2, 2]
    assert found.class_of[1].tolist() == [0, 1, 0]
    assert found.shape == (3, 2)
    assert found.sizes.tolist() == [[4, 2], [2, 1], [8, 4]]


def test_merging_and_expanding_are_adjoint() -> None:
    found = Classes.of([AGE < 3, SEX == "M"], DOMAIN, ("age", "sex"))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(7, 3)), rng.normal(size=found.shape)
    assert (found.merge(x) * y).sum() == pytest.approx((x * found.expand(y)).sum())
    whole = rng.integers(0, 100, size=(7, 3)).astype(np.int8)
    assert found.merge(whole).dtype == np.int64
    assert found.merge(whole).sum() == whole.sum(dtype=int)


def test_many_leaves_are_packed_without_loss() -> None:
    """More than the 60 truth values of one key."""
    domain = Domain({"a": 200})
    single = Classes.of([In("a", (i,)) for i in range(150)], domain, ("a",))
    assert single.shape == (151,)
    halves = Classes.of([In("a", tuple(range(i))) for i in range(0, 200, 2)], domain, ("a",))
    assert halves.shape == (100,)


def test_empty_and_or_are_true_and_false() -> None:
    assert indicator(And(()), DOMAIN, ("sex",)).all()
    assert not indicator(Or(()), DOMAIN, ("sex",)).any()
    assert not indicator(Not(Everything()), DOMAIN, ()).any()
