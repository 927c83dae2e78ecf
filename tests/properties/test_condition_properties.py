# SPDX-License-Identifier: Apache-2.0
"""Conditions of any shape: no cell is more sensitive than stated, no bound above the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.strategy.conditions import Proved, conditions
from sfumato.strategy.matrix import dense
from sfumato.workload.clauses import heaviest, read_clauses
from sfumato.workload.terms import Predicates
from sfumato.workload.workload import Workload
from tests.shared import strategies as drawn
from tests.shared.random_conditions import truth


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_cell_holds_more_than_the_heaviest(data: st.DataObject) -> None:
    domain = data.draw(drawn.domains(most_attributes=3, most_values=4))
    asked = data.draw(st.lists(drawn.conditions(domain), min_size=1, max_size=8))
    sizes = st.floats(0, 1e6) | st.integers(0, 3).map(float)
    weights = np.array(data.draw(st.lists(sizes, min_size=len(asked), max_size=len(asked))))
    effort = data.draw(st.sampled_from([0.0, 1e3, 1e9]))
    clauses = read_clauses(domain, asked)
    kept = clauses.places >= 0
    joined = np.bincount(clauses.places[kept], weights[kept], clauses.count)
    found = heaviest(clauses, joined, effort)
    best = float((weights @ truth(asked, domain)).max())
    assert found.upper * (1 + 1e-12) >= best
    if clauses.is_complete:
        assert found.reached <= best * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(["rmse", "max"]))
def test_proved_weights_are_sound_unbiased_and_above_their_bound(
    data: st.DataObject, objective: str
) -> None:
    domain = data.draw(drawn.domains(most_attributes=3, most_values=4))
    asked = data.draw(st.lists(drawn.conditions(domain), min_size=1, max_size=6))
    weight = data.draw(st.sampled_from([1.0, 0.3, 1e-5]))
    terms = [Predicates(domain, "p", 1.0, tuple(asked))]
    terms.append(Predicates(domain, "q", weight, tuple(asked[:2])))
    work = Workload(domain, tuple(terms))
    matrix = truth([*asked, *asked[:2]], domain).astype(np.float64)
    if not matrix.any():
        with pytest.raises(PlanError, match="nothing to measure"):
            conditions(work, objective)  # type: ignore[arg-type]
        return
    found = conditions(work, objective)  # type: ignore[arg-type]
    mixture = found.blocks[0].term
    assert isinstance(mixture, Proved)
    first = {"p": 0, "q": len(asked)}
    rows = [first[t.name] + p for t, p in zip(mixture.base, mixture.picked, strict=True)]
    m = mixture.entries.astype(np.float64) @ matrix[np.concatenate(rows)]
    gram = m.T @ m
    own = np.diag(gram)
    assert own.max() <= found.sensitivity(2, scales=[1.0]).power
    assert (own[:, None] + own[None, :] - 2 * gram).max() <= found.block_diameters(2)[0]
    r = np.column_stack([np.concatenate(found.answers([e])) for e in np.eye(len(m))])
    np.testing.assert_allclose(r @ m, matrix, atol=1e-7)
    if found.bound is not None:
        best = dense(work, objective)  # type: ignore[arg-type]
        least = best.weighted_error(objective)
        assert found.bound <= least * (1 + 1e-8)
