# SPDX-License-Identifier: Apache-2.0
"""Any workload as one matrix with Laplace noise: atoms, unbiased answers, neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.strategy.laplace.atoms import atoms_of, in_span, on_atoms
from sfumato.types import Neighbours
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload
from tests.shared.strategies import domains, workloads


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_atoms_are_the_different_columns(data: st.DataObject) -> None:
    domain = data.draw(domains(most_attributes=3, most_values=4))
    work: Workload = data.draw(workloads(domain=domain, most_terms=3))
    columns = np.unique(dense_workload(work), axis=1)
    expected = columns[:, columns.any(axis=0)]
    np.testing.assert_allclose(np.unique(atoms_of(domain, work.terms).columns, axis=1), expected)


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from([on_atoms, in_span]))
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_neighbour_loses_more_than_is_debited(
    neighbours: Neighbours, data: st.DataObject, build: object
) -> None:
    """The loss of Laplace noise between any two neighbours, from the exact values of both."""
    domain = data.draw(domains(most_attributes=2, most_values=4))
    work: Workload = data.draw(workloads(domain=domain, most_terms=3))
    matrix = dense_workload(work)
    try:
        strategy = build(work)  # type: ignore[operator]
        noise = calibrate(strategy, 1.0, neighbours)
    except PlanError:  # all queries are zero, or as fine as no Laplace noise can be
        return
    (block,) = strategy.blocks
    rest = tuple(i for i, n in enumerate(domain.names) if n not in block.term.attributes)
    cells = np.eye(domain.size, dtype=np.int64).reshape(-1, *domain.shape)
    m = np.array([block.term.answer(cell.sum(axis=rest)) for cell in cells])
    answers = [np.concatenate(strategy.answers([e])) for e in np.eye(m.shape[1])]
    np.testing.assert_allclose(
        np.column_stack(answers) @ m.T, matrix, atol=1e-8 * np.abs(matrix).max()
    )
    moves = m if neighbours == "add-remove" else (m[:, None] - m[None, :]).reshape(-1, m.shape[1])
    lost = float(np.abs(moves).sum(axis=1).max()) / noise[0].scale
    assert lost <= privacy_loss(strategy, noise, neighbours) * (1 + 1e-12) <= 1 + 1e-9
