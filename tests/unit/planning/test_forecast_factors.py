# SPDX-License-Identifier: Apache-2.0
"""A plan as matrices: F = R M, with the errors and the privacy that the plan states."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"b": 3, "a": 4, "c": 2})
SOME = np.random.default_rng(0).integers(-3, 4, (5, 6))
WORKLOADS = {
    "pairs": sf.marginals(DOMAIN, 2),
    "prefixes": sf.prefixes(DOMAIN, "a", by=["c"]) | sf.marginals(DOMAIN, 1),
    "explicit": sf.explicit(DOMAIN, ["c", "b"], SOME),
    "statement": sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE a < 2 AND c = 1"),
}


@pytest.mark.parametrize("mechanism", ["gaussian", "gaussian-table", None])
@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_matrices_multiply_to_the_queries_and_have_the_errors_of_the_plan(
    work: Workload, mechanism: str | None
) -> None:
    plan = sf.plan(work, sf.Budget(mu=1), mechanism=mechanism)
    factors = plan.factors()
    table = np.random.default_rng(1).integers(0, 9, DOMAIN.shape)
    assert np.allclose(factors.queries @ table.reshape(-1), work.evaluate(table))
    assert np.allclose(factors.reconstruction @ factors.measured, factors.queries, atol=1e-9)
    errors = [np.broadcast_to(plan.standard_errors(t), r.rows) for t, r in enumerate(work.terms)]
    assert np.allclose(factors.standard_errors, np.concatenate(errors))
    # The length of a column by its noise is the mu of a record in that cell.
    moved = np.linalg.norm(factors.measured / factors.noise[:, None], axis=0)
    assert 0.99 < moved.max() <= 1


def test_laplace_noise_and_columns_of_values_have_matrices_too() -> None:
    domain = sf.Domain([sf.Numeric("x", edges=[0, 1, 2]), sf.Category("s", ["a", "b"])])
    for work in (sf.means(domain, "x", by=["s"]), sf.marginals(domain, 1)):
        factors = sf.plan(work, sf.Budget(epsilon=1)).factors()
        assert np.allclose(factors.reconstruction @ factors.measured, factors.queries, atol=1e-9)


def test_large_plans_are_refused() -> None:
    plan = sf.plan(sf.marginals(sf.Domain({f"a{i}": 10 for i in range(8)}), 2), sf.Budget(mu=1))
    with pytest.raises(TooLarge, match=r"16,777,216 numbers; ask for a smaller workload"):
        plan.factors()
