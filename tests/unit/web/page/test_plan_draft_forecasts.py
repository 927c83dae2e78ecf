# SPDX-License-Identifier: Apache-2.0
"""What the page shows while a slider moves, against plans made for the same budget."""

from __future__ import annotations

import csv
from io import StringIO

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.mechanisms import MECHANISMS
from sfumato_web.page.plan_draft import DELTAS, EPSILONS, Draft, MadeUp, Preview, rescaled

DOMAIN = sf.Domain({"age": 16, "sex": 2})
WORK = sf.marginals(DOMAIN, 1) | sf.prefixes(DOMAIN, "age", by=["sex"])


@pytest.mark.parametrize("mechanism", ["laplace-tree", "gaussian-tree", "factorization"])
@pytest.mark.parametrize("epsilon", ["0.01", "0.4", "10"])
def test_errors_at_another_budget_are_those_of_its_own_plan(mechanism, epsilon):
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9), mechanism=mechanism)
    other = sf.plan(WORK, sf.Budget(epsilon=epsilon, delta=1e-6), mechanism=mechanism)
    found = rescaled(plan, other.budget)
    # Up to 2^-16 of each scale, by its rounding to the grid.
    assert found.rmse == pytest.approx(other.rmse, rel=2**-14)
    assert found.largest == pytest.approx(other.largest_error, rel=2**-14)
    wanted = [(g.name, g.queries) for g in other.groups]
    assert [group[:2] for group in found.groups] == wanted
    errors = [group[2] for group in found.groups]
    assert errors == pytest.approx([g.rmse for g in other.groups], rel=2**-14)
    assert found.certificate == pytest.approx(other.certificate)


def test_a_scaling_that_forgets_the_noise_would_be_seen():
    """The twin that must fail: Gaussian errors scaled by epsilon, as if they were Laplace's."""
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9), mechanism="gaussian-tree")
    other = sf.plan(WORK, sf.Budget(epsilon=10, delta=1e-9), mechanism="gaussian-tree")
    assert plan.rmse / 10 != pytest.approx(other.rmse, rel=0.01)


def test_candidates_are_scaled_by_their_own_noise():
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9))
    budget = sf.Budget(epsilon=4, delta=1e-9)
    found = {name: error for name, error, _, _ in rescaled(plan, budget).candidates}
    tried = [c for c in plan.candidates if c.rmse is not None]
    assert {MECHANISMS[c.mechanism].noise for c in tried} == {"laplace", "gaussian"}
    for candidate in tried:
        other = sf.plan(WORK, budget, mechanism=candidate.mechanism)
        assert found[candidate.name] == pytest.approx(other.rmse, rel=2**-14)


def test_the_chosen_mechanism_has_its_own_error_however_many_laws_its_noise_has():
    domain = sf.Domain({f"a{i}": 2 + i for i in range(10)})
    plan = sf.plan(sf.marginals(domain, 2), sf.Budget(epsilon=1))
    (chosen,) = (c for c in plan.candidates if c.is_chosen)
    assert not chosen.parts  # more laws than are added up
    budget = sf.Budget(epsilon=8)
    other = sf.plan(sf.marginals(domain, 2), budget, mechanism=plan.mechanism)
    found = {name: error for name, error, _, _ in rescaled(plan, budget).candidates}
    assert found[chosen.name] == pytest.approx(other.rmse, rel=2**-14)
    assert chosen.rmse_at(8, 1) > 1.001 * other.rmse  # the twin: without a grid


def test_gaussian_noise_cannot_be_scaled_to_a_pure_budget():
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9), mechanism="gaussian-tree")
    assert rescaled(plan, sf.Budget(epsilon=1)) is None
    pure = sf.plan(WORK, sf.Budget(epsilon=1), mechanism="laplace-tree")
    # A little less than half the error: whole steps gain more where the noise is less.
    other = sf.plan(WORK, sf.Budget(epsilon=2), mechanism="laplace-tree")
    ratio = rescaled(pure, sf.Budget(epsilon=2)).ratio
    assert ratio == pytest.approx(other.rmse / pure.rmse, rel=1e-9)
    assert 0.49 < ratio < 0.5


def test_made_up_people_add_up():
    made_up = MadeUp(DOMAIN, 5_000)
    both = made_up.table(("age", "sex"))
    assert both.sum() == pytest.approx(5_000)
    assert both.sum(axis=1) == pytest.approx(made_up.table(("age",)))
    assert made_up.table(()) == 5_000
    assert (both > 0).all()


def test_bands_grow_with_the_error_and_charts_with_bands_come_first():
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9))
    preview = Preview(plan, 1_000)
    first = next(iter(preview.groups))
    assert preview.groups[first] == "prefix age by sex"
    half = plan.half_widths(first, 0.95)
    for ratio in (0.5, 1.0, 3.0):
        spec = preview.spec(first, ratio)
        (text,) = spec["datasets"].values()
        rows = list(csv.DictReader(StringIO(text)))
        width = np.array([float(r["h"]) - float(r["l"]) for r in rows])
        assert width == pytest.approx(2 * ratio * half, rel=1e-3)
        assert spec["data"]["name"] in spec["datasets"]


def test_the_sliders_go_up_and_a_draft_is_a_request():
    assert list(map(float, EPSILONS)) == sorted(map(float, EPSILONS))
    assert list(map(float, DELTAS)) == sorted(map(float, DELTAS))
    draft = Draft("people", [{"marginals": 1}])
    assert draft.budget == sf.Budget(epsilon=1, delta="1e-9")
    assert draft.request()["budget"] == {"epsilon": "1", "delta": "1e-9"}
    draft.delta = 0
    assert draft.budget.is_pure
    assert draft.request() == {"workload": [{"marginals": 1}], "budget": {"epsilon": "1"}}
