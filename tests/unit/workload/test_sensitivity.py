# SPDX-License-Identifier: Apache-2.0
"""Column norms of unions, by hand and by brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.workload import sensitivity
from sfumato.workload.predicates import In
from sfumato.workload.sensitivity import greatest_column_power
from sfumato.workload.terms import Predicates
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS
from tests.shared.dense import dense_workload


def brute(work: sf.Workload, p: int) -> float:
    return float((np.abs(dense_workload(work)) ** p).sum(axis=0).max())


SMALL = Domain({"a": 5, "b": 4, "c": 3})
CASES = {
    "all pairs": sf.marginals(SMALL, 2),
    "prefix and ranges pull apart": sf.prefixes(SMALL, "a") | sf.ranges(SMALL, "a"),
    "prefix by and against": sf.prefixes(SMALL, "a", ["b"]) | sf.ranges(SMALL, "b", ["a"]),
    "explicit joins attributes": sf.explicit(SMALL, ["a", "b"], np.eye(20)[3:7] * [[2.0]])
    | sf.prefixes(SMALL, "a")
    | sf.ranges(SMALL, "c"),
    "overlapping explicit": sf.explicit(SMALL, ["a", "b"], np.arange(40).reshape(2, 20) % 7)
    | sf.explicit(SMALL, ["b", "c"], np.arange(24).reshape(2, 12) % 5)
    | sf.product(SMALL, {"a": "prefix", "c": "prefix"}),
    "negative coefficients": sf.explicit(SMALL, ["a"], [[-3, 1, 0, 0, 2], [1, 1, -1, -1, 0]]),
    "conditions": sf.predicates(SMALL, ["a < 2 OR b = 1", "a >= 1 AND c = 0", "NOT b = 1"])
    | sf.prefixes(SMALL, "c"),
    "means": sf.means(SMALL, "a", ["b"]),
    "fractions": sf.product(SMALL, {"a": [[0.5, 0.25, 1, 0, 2]], "b": [[0.5, 3, 0, 1]]}),
}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("work", CASES.values(), ids=CASES.keys())
def test_small_unions_are_exact(work: sf.Workload, p: int) -> None:
    norm = work.column_norm(p)
    assert norm.is_exact
    assert norm.power == brute(work, p)  # dyadic coefficients: not even rounded up
    assert work.sensitivity(p) == pytest.approx(brute(work, p) ** (1 / p))


@pytest.mark.parametrize(
    ("work", "l1", "l2_squared"),
    [
        # One record is in one cell of each of the C(3,2) tables.
        (sf.marginals(SMALL, 2), 3.0, 3.0),
        # A record in the first cell is in every prefix.
        (sf.prefixes(SMALL, "a"), 5.0, 5.0),
        # The middle cell of 5 is in 3 * 3 ranges.
        (sf.ranges(SMALL, "a"), 9.0, 9.0),
        # Largest weight 4 and the count: 4 + 1, 16 + 1.
        (sf.means(SMALL, "a"), 5.0, 17.0),
    ],
)
def test_norms_by_hand(work: sf.Workload, l1: float, l2_squared: float) -> None:
    assert work.column_norm(1).power == l1
    assert work.column_norm(2).power == l2_squared


def test_weights_do_not_change_what_a_record_can_move() -> None:
    work = sf.marginals(SMALL, 1)
    assert (5 * work).sensitivity(1) == work.sensitivity(1) == 3.0


def test_scales_that_are_not_whole_are_rounded_up() -> None:
    work = sf.marginals(SMALL, 1)
    norm = greatest_column_power(work.terms, [0.1, 0.2, 0.3], 1)
    assert norm.power >= 0.6
    assert norm.power == pytest.approx(0.6, rel=1e-8)


def test_wide_conditions_are_exact_by_classes() -> None:
    domain = Domain({"a": 10**5, "b": 10**5, "c": 7})
    work = sf.predicates(domain, ["a < 10 OR b < 5", "a < 20 AND b >= 5", "a >= 15"])
    # a < 10, b >= 5: the first two hold; a in [15, 20), b >= 5: the last two; never all three.
    norm = work.column_norm(1)
    assert (norm.power, norm.is_exact) == (2.0, True)


def test_wide_conditions_are_combined_with_other_terms_cell_by_cell() -> None:
    """The prefix is largest in cell 0, where the condition does not hold."""
    domain = Domain({"a": 2_000, "b": 2_000})
    condition = sf.predicates(domain, ["a >= 3 OR b > 5"] * 4)
    work = sf.product(domain, {"a": "prefix"}) | condition
    # cell a = 0 with b > 5: 2000 + 4
    assert work.column_norm(1).power == 2004.0
    strict = sf.product(domain, {"a": "prefix"}) | sf.predicates(domain, ["a >= 3 AND b > 5"] * 4)
    # cell 3 with b > 5: 1997 prefixes and 4 conditions, against 2000 prefixes in cell 0
    assert strict.column_norm(1).power == 2001.0
    assert strict.column_norm(1).is_exact


def test_too_many_classes_give_a_bound_that_is_never_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = Domain({"a": 2_000, "b": 2_000})
    listed = tuple(In(n, (i,)) for n in "ab" for i in range(2_000))
    work = sf.Workload(domain, (Predicates(domain, "w", 1.0, listed),))
    assert work.column_norm(1) == sensitivity.SensitivityBound(2.0, is_exact=True)
    monkeypatch.setattr(sensitivity, "LIMITS", replace(WORKLOAD_LIMITS, conditions_counted=100))
    norm = work.column_norm(1)
    assert not norm.is_exact
    assert norm.power >= 2.0


def test_independent_attributes_are_eliminated_one_by_one() -> None:
    """Five attributes with 50 undominated cells each: 3e8 combinations, settled one at a time."""
    domain = Domain({f"x{i}": 100 for i in range(5)})
    work = sf.prefixes(domain, "x0") | sf.ranges(domain, "x0")
    for i in range(1, 5):
        work = work | sf.prefixes(domain, f"x{i}") | sf.ranges(domain, f"x{i}")
    i = np.arange(100)
    best = ((100 - i) + (i + 1) * (100 - i)).max()
    norm = work.column_norm(1)
    assert (norm.power, norm.is_exact) == (5.0 * best, True)


def test_a_search_that_would_hold_too_much_falls_back_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = CASES["prefix by and against"] | CASES["overlapping explicit"]
    exact = brute(work, 2)
    for limit in (1, 30, 300, 3_000):
        monkeypatch.setattr(sensitivity, "LIMITS", replace(WORKLOAD_LIMITS, column_numbers=limit))
        norm = work.column_norm(2)
        assert norm.power >= exact
        assert norm.power == exact or not norm.is_exact
    assert norm.power < 10 * exact


def test_dropping_dominated_cells_does_not_change_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = sf.prefixes(SMALL, "a", ["b"]) | sf.ranges(SMALL, "b", ["a"]) | sf.ranges(SMALL, "a")
    exact = brute(work, 1)
    for rivals in (1, 2, 512):
        monkeypatch.setattr(sensitivity, "LIMITS", replace(WORKLOAD_LIMITS, column_rivals=rivals))
        assert work.column_norm(1).power == exact
    monkeypatch.setattr(sensitivity, "LIMITS", replace(WORKLOAD_LIMITS, column_comparisons=1))
    assert work.column_norm(1).power == exact


def test_a_domain_of_10_to_the_18_cells_is_never_enumerated() -> None:
    domain = Domain({f"x{i}": 1_000 for i in range(6)})
    assert domain.size == 10**18
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "x0", ["x1"]) | sf.ranges(domain, "x2")
    assert work.column_norm(2).is_exact
    # 15 tables, 1,000 prefixes, the middle cell of 1,000 is in 500 * 501 ranges
    assert work.column_norm(2).power == 15 + 1_000 + 500 * 501
    assert sf.sql(domain, "SELECT COUNT(*) FROM t WHERE x0 < 5 OR x1 < 5 OR x2 < 5").terms


def test_tens_of_thousands_of_tables_take_moments() -> None:
    domain = Domain({f"x{i}": 10 for i in range(60)})
    work = sf.marginals(domain, 3) | sf.prefixes(domain, "x7", ["x8"])
    assert len(work.terms) == 34_221
    assert work.column_norm(1).power == 34_220.0 + 10


@pytest.mark.parametrize("p", [0, 3, 1.5, "2"])
def test_only_the_two_norms_that_noise_needs_are_known(p: object) -> None:
    with pytest.raises(WorkloadError, match="p = 1 and p = 2"):
        sf.marginals(SMALL, 1).sensitivity(p)  # type: ignore[arg-type]
