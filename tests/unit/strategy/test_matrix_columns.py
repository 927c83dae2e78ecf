# SPDX-License-Identifier: Apache-2.0
"""Distinct columns: the same as from writing out every cell, at any size of the domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.solve.effort import effort
from sfumato.strategy import matrix as module
from sfumato.strategy.matrix import distinct_columns, read
from sfumato.strategy.strategy_limits import LIMITS
from tests.shared.dense import dense_workload

CUBE = sf.Domain({"a": 7, "b": 5, "c": 4})
A, B, C = (sf.attribute(CUBE, name) for name in "abc")
CONDITIONS = [
    (A >= 2) & (B < 3),
    (A < 4) | (C == 1),
    ~(B == 2),
    ((A > 3) & (B < 2)) | ((C > 1) & (B > 3)),  # neither a conjunction nor the complement of one
    (A > 2) & (A < 5) & (C < 3),
    (A == 1) & (A == 2),  # nobody
    (A >= 0),  # everybody
]
WORKLOADS = {
    "conditions": sf.predicates(CUBE, CONDITIONS),
    "one condition twice": sf.predicates(CUBE, [CONDITIONS[0], CONDITIONS[3], CONDITIONS[0]]),
    "tables": sf.marginals(CUBE, 2) | sf.marginals(CUBE, [()]),
    "coefficients": sf.explicit(CUBE, ["a", "c"], np.arange(56).reshape(2, 28) // 9 - 1.25),
    "all together": sf.predicates(CUBE, CONDITIONS)
    | sf.prefixes(CUBE, "c", by=["a"])
    | sf.explicit(CUBE, ["b"], [[1, 1, 0, 0, 0.5]]),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_columns_and_their_numbers_are_those_of_the_dense_matrix(name: str) -> None:
    work = WORKLOADS[name]
    matrix = dense_workload(work)
    found = distinct_columns(CUBE, work.terms)
    expected, counts = np.unique(matrix, axis=1, return_counts=True)
    order = np.lexsort(found.matrix[::-1])
    np.testing.assert_array_equal(found.matrix[:, order], expected)
    asked = CUBE.cells(CUBE.in_order({n for t in work.terms for n in t.attributes}))
    np.testing.assert_array_equal(found.sizes[order] * (CUBE.size // asked), counts)


def test_rows_with_one_hash_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    work = WORKLOADS["all together"]
    expected = distinct_columns(CUBE, work.terms)
    unique = np.unique

    def colliding(values: np.ndarray, **options: object) -> object:
        # All hashes equal; rows compared in full (axis=0) are left alone.
        same = values if "axis" in options else np.zeros_like(values)
        return unique(same, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(module.np, "unique", colliding)
    words = np.array([[1, 2], [3, 4], [1, 2]], dtype=np.uint64)
    kept, sizes = module._distinct(words, np.ones(3))
    monkeypatch.undo()
    assert kept.tolist() == [[1, 2], [3, 4]]
    assert sizes.tolist() == [2, 1]
    assert expected.matrix.shape[1] > 1


def test_conditions_on_a_great_domain_have_few_columns() -> None:
    domain = sf.Domain({f"x{i}": 10_000 for i in range(4)})
    x = [sf.attribute(domain, f"x{i}") for i in range(4)]
    asked = [(x[0] >= 10 * i) & (x[1] < 500) for i in range(20)] + [(x[2] == 7) | (x[3] == 7)]
    found = distinct_columns(domain, sf.predicates(domain, asked).terms)
    # 20 thresholds make 21 counts (or none where x1 is large), times whether the last one holds
    assert found.matrix.shape == (21, 21 * 2)
    assert found.sizes.sum() == 1e16


def test_too_many_columns_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = sf.Domain({f"x{i}": 10 for i in range(12)})
    asked = [sf.attribute(domain, f"x{i}") < j for i in range(12) for j in range(1, 10)]
    monkeypatch.setattr(module, "LIMITS", replace(LIMITS, column_moves=2**14))
    with pytest.raises(TooLarge, match="combinations"):
        distinct_columns(domain, sf.predicates(domain, asked).terms)


def test_many_tables_are_refused_at_once() -> None:
    domain = sf.Domain({f"x{i}": 10 for i in range(12)})
    with pytest.raises(TooLarge, match="better ways"):
        distinct_columns(domain, sf.marginals(domain, 1).terms)


def test_too_many_coefficients_are_refused_before_they_are_built() -> None:
    domain = sf.Domain({"x": 100_000})
    with pytest.raises(TooLarge, match="queries"):
        distinct_columns(domain, sf.prefixes(domain, "x").terms)


def test_a_condition_on_many_finely_divided_attributes_is_read_by_its_own_classes() -> None:
    """Single cells of all attributes are asked as well: 20^8 combinations, of which 2^8 matter."""
    names = [f"a{i}" for i in range(8)]
    domain = sf.Domain(dict.fromkeys(names, 20))
    wanted = " and ".join(f"(a{i} < {5 + i} or a{i + 4} = 3)" for i in range(4))
    singles = [f"{name} = {code}" for name in names for code in range(20)]
    reading = read(domain, sf.predicates(domain, [wanted, *singles]).terms)
    (diagram,) = reading.diagrams
    rng = np.random.default_rng(0)
    for cell in rng.integers(0, 20, size=(200, 8)).tolist():
        code = dict(zip(names, cell, strict=True))
        state = 0
        for name in reading.names:
            state = int(diagram.moves[name][state, code[name]])
        holds = all(code[f"a{i}"] < 5 + i or code[f"a{i + 4}"] == 3 for i in range(4))
        assert float(diagram.values[0, state]) == float(holds)


def test_the_search_for_columns_ends_when_the_time_is_up() -> None:
    domain = sf.Domain({"a": 20, "b": 20})
    terms = sf.predicates(domain, ["a < 5 or b > 7"]).terms
    with effort("columns", until=0.0), pytest.raises(TooLarge, match="planning must end"):
        distinct_columns(domain, terms)
    assert distinct_columns(domain, terms).matrix.shape[1] == 2
