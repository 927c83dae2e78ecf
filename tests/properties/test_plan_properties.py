# SPDX-License-Identifier: Apache-2.0
"""Any workload, any mechanism: unbiased, within the budget, as accurate as forecast."""

from __future__ import annotations

from math import sqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.plan.planner import MECHANISMS
from sfumato.workload.workload import Workload
from tests.strategies import domains, workloads
from tests.unit.plan.every_mechanism import BUDGETS, dense, replacements


@settings(max_examples=120, deadline=None)
@given(
    st.data(),
    st.sampled_from(sorted(MECHANISMS)),
    st.sampled_from(["add-remove", "replace-one"]),
    st.sampled_from(["rmse", "max"]),
)
def test_every_plan_is_unbiased_private_and_as_accurate_as_it_says(
    data: st.DataObject, mechanism: str, neighbours: str, objective: str
) -> None:
    domain = data.draw(domains(most_attributes=2, most_values=4))
    work: Workload = data.draw(workloads(domain=domain, most_terms=3))
    try:
        plan = sf.plan(work, BUDGETS[MECHANISMS[mechanism][1]], neighbours, objective, mechanism)  # type: ignore[arg-type]
    except PlanError:
        return
    seen = dense(plan)
    product = sum(r @ m for r, m in zip(seen.r, seen.m, strict=True))
    np.testing.assert_allclose(product, seen.f, atol=1e-8 * max(1.0, np.abs(seen.f).max()))

    p = 2 if plan.strategy.noise == "gaussian" else 1
    cells = np.eye(domain.size)
    moves = [cells] if neighbours == "add-remove" else [replacements(domain.size)]
    if not domain.keeps_every_record:
        moves.append(cells)  # a replaced record may be dropped
    scales = np.array([n.scale**-p for n in plan.noise])
    assert max(float((scales @ seen.moved(p, d)).max()) for d in moves) <= 1.0

    pairs = zip(plan.block_variances, seen.r, strict=True)
    true = sum(v * (r**2).sum(axis=1) for v, r in pairs)
    assert np.isclose(plan.rmse, sqrt(true.mean()), rtol=1e-6)
    assert plan.largest_error >= sqrt(true.max()) * (1 - 1e-6)
