# SPDX-License-Identifier: Apache-2.0
"""Any workload, any mechanism: unbiased, within the budget, as accurate as forecast."""

from __future__ import annotations

from math import sqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.workload.workload import Workload
from tests.shared.every_mechanism import BUDGETS, dense, replacements
from tests.shared.strategies import domains, workloads


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
    check(work, mechanism, neighbours, objective)


@st.composite
def uneven(draw: st.DrawFn) -> Workload:
    """Given queries of sizes 2^-16 to 2^24, some of them multiples of others, beside a table."""
    domain = draw(domains(most_attributes=2, most_values=3))
    names = [domain.names[0]]
    cells, rows = domain.cells(names), draw(st.integers(2, 4))
    entries = st.lists(st.integers(-2, 3), min_size=cells, max_size=cells).filter(any)
    kinds = [draw(entries) for _ in range(rows - 1)]
    sizes = [2.0 ** draw(st.integers(-16, 24)) for _ in range(rows)]
    matrix = np.array([*kinds, kinds[0]]) * np.array(sizes)[:, None]
    given = sf.explicit(domain, names, matrix)
    if draw(st.booleans()):
        given = sf.product(domain, {names[0]: matrix})
    weight = 10.0 ** draw(st.integers(-6, 6))
    return weight * given | sf.marginals(domain, 1)


@settings(max_examples=120, deadline=None)
@given(
    uneven(),
    st.sampled_from(["factorization", *sorted(MECHANISMS)]),
    st.sampled_from(["add-remove", "replace-one"]),
    st.sampled_from(["rmse", "max"]),
)
def test_queries_of_very_different_size_are_answered_or_refused(
    work: Workload, mechanism: str, neighbours: str, objective: str
) -> None:
    check(work, mechanism, neighbours, objective)


def check(work: Workload, mechanism: str, neighbours: str, objective: str) -> None:
    """A plan against dense matrices, if there is one."""
    domain, budget = work.domain, BUDGETS[MECHANISMS[mechanism][1]]
    try:
        plan = sf.plan(
            work,
            budget,
            neighbours,
            objective,
            mechanism,
            seconds=None,
            cache=False,  # type: ignore[arg-type]
        )
    except PlanError:
        return
    seen = dense(plan)
    product = sum(r @ m for r, m in zip(seen.r, seen.m, strict=True))
    sizes = np.abs(seen.f).max(axis=1, keepdims=True)
    assert (np.abs(product - seen.f) <= 1e-6 * sizes + 1e-12).all()
    assert np.abs(product - seen.f).max() <= 1e-8 * max(1.0, sizes.max())

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
