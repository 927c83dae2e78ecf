# SPDX-License-Identifier: Apache-2.0
"""Any workload as one matrix: distinct columns, unbiased answers, certified errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.strategy.matrix import dense, distinct_columns
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload
from tests.shared.strategies import domains, workloads


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_distinct_columns_are_those_of_the_matrix(data: st.DataObject) -> None:
    domain = data.draw(domains(most_attributes=3, most_values=4))
    work: Workload = data.draw(workloads(domain=domain, most_terms=3))
    found = distinct_columns(domain, work.terms).matrix
    expected = np.unique(dense_workload(work), axis=1)
    np.testing.assert_allclose(np.unique(found, axis=1), expected, atol=0)
    assert found.shape[1] == expected.shape[1]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["rmse", "max"]))
def test_every_workload_is_answered_without_bias_within_its_certificate(
    data: st.DataObject, objective: str
) -> None:
    domain = data.draw(domains(most_attributes=2, most_values=4))
    work: Workload = data.draw(workloads(domain=domain, most_terms=3))
    matrix = dense_workload(work)
    if not matrix.any():
        with pytest.raises(PlanError, match="zero"):
            dense(work, objective)  # type: ignore[arg-type]
        return
    strategy = dense(work, objective)  # type: ignore[arg-type]
    term = strategy.blocks[0].term
    sums = tuple(i for i, n in enumerate(domain.names) if n not in term.attributes)
    cells = np.eye(domain.size).reshape(-1, *domain.shape)
    m = np.array([term.apply(cell.sum(axis=sums)) for cell in cells]).T
    answers = [np.concatenate(strategy.answers([e])) for e in np.eye(len(m))]
    r = np.column_stack(answers)
    np.testing.assert_allclose(r @ m, matrix, atol=1e-8 * np.abs(matrix).max())
    assert strategy.sensitivity(2, scales=[1.0]).power >= (m**2).sum(axis=0).max() * (1 - 1e-12)
    reached = strategy.weighted_error(objective)
    assert 1 - 1e-9 <= reached / strategy.bound <= 1.0003
