# SPDX-License-Identifier: Apache-2.0
"""What is refused before it is planned, and what another budget reuses."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import sfumato as sf
from sfumato.planning import planner
from sfumato.privacy import gaussian
from sfumato_web.server import dataset as dataset_module
from tests.http.served import ADA, CONFIG, CORA, asked, bearer, served, write_served

GAUSSIAN = CONFIG.replace("budget = {epsilon = 4}", "budget = {epsilon = 4, delta = 1e-9}")


class _Counted:
    """Counts the calls of a function."""

    def __init__(self, real: Any) -> None:
        self.real, self.calls = real, 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        return self.real(*given, **named)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> _Counted:
    found = _Counted(dataset_module.plan_of)
    monkeypatch.setattr(dataset_module, "plan_of", found)
    return found


def _release(client: TestClient, budget: dict[str, object], **more: object) -> Any:
    body = {"workload": [{"marginals": 1}], "budget": budget, **more}
    return client.post("/datasets/people/release", headers=bearer(ADA), json=body)


@pytest.mark.parametrize(
    ("budget", "more"),
    [
        ({"epsilon": 9}, {}),  # above the whole budget
        ({"epsilon": 2.001}, {}),  # above her allowance
        ({"epsilon": "2.01", "delta": 1e-9}, {}),  # Gaussian noise, of a budget that has none
        ({"rho": 40}, {}),
        ({"epsilon": 3}, {"mechanism": "laplace"}),
    ],
)
def test_what_no_plan_can_pay_for_is_refused_before_planning(
    fresh: TestClient, plans: _Counted, budget: dict[str, object], more: dict[str, object]
) -> None:
    reply = _release(fresh, budget, **more)
    assert (reply.status_code, reply.json()["error"]) == (409, "budget-exhausted")
    assert "budget refused" in reply.json()["message"]
    assert "remaining" in reply.json()
    assert plans.calls == 0


def test_gaussian_noise_of_a_pure_ledger_is_refused_before_planning(
    fresh: TestClient, plans: _Counted
) -> None:
    reply = _release(fresh, {"epsilon": 1, "delta": 1e-9}, mechanism="gaussian")
    assert (reply.status_code, plans.calls) == (409, 0)


def test_a_frozen_dataset_refuses_before_planning_and_keeps_what_was_answered(
    fresh: TestClient, plans: _Counted
) -> None:
    first = _release(fresh, {"epsilon": 0.5})
    freeze = {"headers": bearer(CORA), "json": {"reason": "a look"}}
    fresh.post("/datasets/people/freeze", **freeze)
    before = plans.calls
    assert _release(fresh, {"epsilon": 0.25}, workload=[{"marginals": 2}]).status_code == 423
    assert plans.calls == before
    assert _release(fresh, {"epsilon": "1/2"}).content == first.content
    again = _release(fresh, {"epsilon": 0.5}, level=0.9)  # another view of what was paid for
    assert again.status_code == 200


def test_what_was_paid_for_is_never_refused_for_its_price(tmp_path: Path) -> None:
    with served(write_served(tmp_path / "s")) as client:
        assert _release(client, {"epsilon": 1.9}).status_code == 200
        assert _release(client, {"epsilon": 1.8}).status_code == 409
        assert _release(client, {"epsilon": 1.9}, level=0.9).status_code == 200
        assert _release(client, {"epsilon": "19/10"}, project=False).status_code == 200


def test_all_that_is_left_can_be_spent(tmp_path: Path) -> None:
    """The refusal before planning leaves out what only the rounding of noise scales decides."""
    with served(write_served(tmp_path / "s", GAUSSIAN)) as client:
        own = {"headers": bearer(ADA)}
        assert _release(client, {"epsilon": 0.5}).status_code == 200
        listed = client.get("/datasets", **own).json()
        left = next(d for d in listed if d["name"] == "people")["remaining"]["pure_epsilon"]
        assert _release(client, {"epsilon": left}).status_code == 200


def test_another_epsilon_builds_no_strategy_anew(
    fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _Counted(planner.Strategies._built)
    monkeypatch.setattr(planner.Strategies, "_built", lambda self, *given: built(self, *given))
    seen = []
    for epsilon in (0.5, 0.25, "1/3", 0.7):
        body = {"workload": [{"marginals": 1}], "budget": {"epsilon": epsilon, "delta": 1e-9}}
        reply = fresh.post("/datasets/people/plan", headers=bearer(ADA), json=body)
        assert reply.status_code == 200
        seen.append(built.calls)
    assert seen[0] > 0
    assert len(set(seen)) == 1


def test_a_plan_does_not_depend_on_what_was_planned_before() -> None:
    domain = sf.Domain({"age": 20, "sex": 2, "region": 5})
    for workload in (sf.marginals(domain, 2), sf.prefixes(domain, "age", by=["sex"])):
        strategies: list[planner.Strategies] = []

        def known(new: planner.Strategies, held: Any = strategies) -> planner.Strategies:
            held.append(new)
            return held[0]

        for epsilon in (1.0, 0.3, 0.0001, 7.0):
            for budget in (sf.Budget(epsilon=epsilon), sf.Budget(epsilon=epsilon, delta=1e-9)):
                for neighbours in ("add-remove", "replace-one"):
                    after = sf.plan(workload, budget, neighbours, reuse=known)
                    alone = sf.plan(workload, budget, neighbours)
                    assert after.digest() == alone.digest()
                    assert after.measurement() == alone.measurement()
                    assert after.candidates == alone.candidates
                    assert (after.rmse, after.certificate) == (alone.rmse, alone.certificate)


def test_the_least_error_is_chosen_though_most_candidates_are_only_scaled() -> None:
    """The figures of candidates are those of their own plans, up to the rounding of scales."""
    domain = sf.Domain({"age": 30, "sex": 2})
    work = sf.prefixes(domain, "age", by=["sex"])
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    tried = [c for c in plan.candidates if c.rmse is not None]
    assert len(tried) > 3
    for candidate in tried:
        own = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9), mechanism=candidate.mechanism)
        assert candidate.rmse == pytest.approx(own.rmse, rel=2**-14)
        assert candidate.largest == pytest.approx(own.largest_error, rel=2**-14)
        assert own.rmse >= plan.rmse * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", ["1/1000000", "1/100", "1/3", "1", "17/5", "40", "900"])
@pytest.mark.parametrize("delta", ["1/3", "1/1000", "1/1000000000", f"1/{10**30}"])
def test_the_largest_mu_is_found_wherever_the_search_begins(epsilon: str, delta: str) -> None:
    eps, dlt = Fraction(epsilon), Fraction(delta)
    mu = gaussian.gaussian_mu_down.__wrapped__(eps, dlt)
    above = gaussian._double_of(gaussian._bits_of(mu) + 1)
    assert gaussian.gaussian_within(Fraction(mu) ** 2, eps, dlt)
    assert not gaussian.gaussian_within(Fraction(above) ** 2, eps, dlt)


def test_figures_that_are_refused_cost_nothing_and_are_not_in_the_ledger(
    fresh: TestClient,
) -> None:
    for step in range(5):
        assert _release(fresh, {"epsilon": 5 + step / 7}).status_code == 409
    found = fresh.get("/datasets/people/ledger", headers=bearer(CORA)).json()
    assert (found["entries"], found["remaining"]["share"]) == ([], 1.0)
    assert (
        fresh.post("/datasets/people/plan", headers=bearer(ADA), json=asked(5.5)).json()["fits"]
        is False
    )
