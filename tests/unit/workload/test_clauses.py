# SPDX-License-Identifier: Apache-2.0
"""Conditions as unions of boxes, against their truth values cell by cell."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.workload import clauses as module
from sfumato.workload.clauses import Clauses, read_clauses
from sfumato.workload.predicates import And, Classes, Condition, Everything, In, Not, Or
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS
from tests.shared.random_conditions import random_condition, truth

DOMAIN = sf.Domain({"x": 3, "y": 4, "z": 2, "one": 1})


def at_all_cells(clauses: Clauses, conditions: list[Condition]) -> np.ndarray:
    """Asked conditions by cells, as the clauses say."""
    names = DOMAIN.in_order(frozenset().union(*(c.attributes for c in conditions)))
    classes = dict(zip(names, Classes.of(conditions, DOMAIN, names).class_of, strict=True))
    cells = np.array(list(product(*(range(n) for n in DOMAIN.shape))))
    chosen = [classes[n][cells[:, DOMAIN.index(n)]] for n in clauses.names]
    rows = np.array(chosen, dtype=np.int64).reshape(len(chosen), len(cells)).T
    holds = clauses.holds(clauses.at(rows)).T
    never = np.zeros((1, len(cells)), dtype=bool)
    return np.concatenate([holds, never])[clauses.places]


@pytest.mark.parametrize("seed", range(40))
def test_clauses_hold_where_the_conditions_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    conditions = [random_condition(rng, DOMAIN, 3) for _ in range(6)]
    found = read_clauses(DOMAIN, conditions)
    assert found.is_complete
    np.testing.assert_array_equal(at_all_cells(found, conditions), truth(conditions, DOMAIN))


def test_a_lost_clause_is_noticed() -> None:
    conditions = [Or((In("x", (0,)), In("y", (1,)))), In("z", (1,))]
    found = read_clauses(DOMAIN, conditions)
    assert found.clauses == 3
    broken = replace(
        found,
        masks=tuple(np.delete(m, 0, axis=1) for m in found.masks),
        first=np.array([0, 1]),
    )
    assert (at_all_cells(found, conditions) == truth(conditions, DOMAIN)).all()
    assert not (at_all_cells(broken, conditions) == truth(conditions, DOMAIN)).all()


def test_equal_conditions_are_one_and_those_that_never_hold_none() -> None:
    x, y = In("x", (0, 2)), In("y", (1,))
    never = And((x, In("x", (1,))))
    conditions = [And((x, y)), never, And((y, x)), Not(Or((Not(x), Not(y)))), In("x", ())]
    found = read_clauses(DOMAIN, conditions)
    assert found.places.tolist() == [0, -1, 0, 0, -1]
    assert found.count == found.clauses == 1


def test_conditions_that_always_hold_restrict_nothing() -> None:
    always = [
        Everything(),
        In("x", (0, 1, 2)),
        Or((In("x", (0,)), In("x", (1, 2)))),
        In("one", (0,)),
    ]
    found = read_clauses(DOMAIN, always)
    assert found.masks == ()
    assert found.places.tolist() == [0, 0, 0, 0]
    assert found.clauses == 1


def test_nothing_that_holds_gives_no_clauses() -> None:
    found = read_clauses(DOMAIN, [In("x", ()), Not(Everything())])
    assert (found.count, found.clauses) == (0, 0)


def test_a_condition_of_too_many_clauses_counts_as_one_that_may_always_hold() -> None:
    domain = sf.Domain({f"a{i}": 3 for i in range(14)})
    pairs = [Or((In(f"a{2 * i}", (0,)), In(f"a{2 * i + 1}", (0,)))) for i in range(7)]
    hard = And(tuple(pairs))  # 2^7 boxes
    found = read_clauses(domain, [hard, In("a0", (1,)), And((hard, In("a0", ()))), hard])
    assert found.is_read.tolist() == [False, True, False]
    assert found.places.tolist() == [0, 1, -1, 2]
    assert not found.is_complete
    assert found.holds(found.at(np.zeros((1, len(found.masks)), dtype=np.int64)))[0, 0]


def test_more_bits_than_can_be_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMITS", replace(WORKLOAD_LIMITS, clause_bits=10))
    with pytest.raises(TooLarge, match="ask for fewer at once"):
        read_clauses(DOMAIN, [In("x", (0,)), In("y", (1,)), In("z", (1,))])
