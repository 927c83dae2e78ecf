# SPDX-License-Identifier: Apache-2.0
"""Selections on tables: their law on neighbours, the ledger, names, counts, SQL and refusals."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato.run.choose import SelectionPlan, SelectionRun
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.select import read_scores
from sfumato.vault.tables import open_table
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords
from tests.unit.planning.test_selection_plans import peeled
from tests.unit.vault.mechanisms.test_select import flips, softmax

DOMAIN = sf.Domain([sf.Category("job", ["cook", "nurse", "smith", "clerk"]), sf.Boolean("ill")])
JOBS = sf.marginals(DOMAIN, [["job"]])
PURE = sf.Budget(epsilon=1)
BUDGETS = [PURE, sf.Budget(epsilon=1, delta=1e-9), sf.Budget(rho=0.5), sf.Budget(mu=0.7)]


def people(cooks: int, nurses: int, smiths: int, clerks: int) -> pd.DataFrame:
    jobs = ["cook"] * cooks + ["nurse"] * nurses + ["smith"] * smiths + ["clerk"] * clerks
    return pd.DataFrame({"job": jobs, "ill": [i % 3 == 0 for i in range(len(jobs))]})


FAR = people(9000, 5000, 200, 3000)  # far apart for any noise at these budgets


# The law of what is chosen, on neighbours


SMALL = sf.Domain({"a": 2, "b": 3})
WORKS = [
    sf.marginals(SMALL, [["b"]]),
    sf.marginals(SMALL, 1),
    sf.prefixes(SMALL, "b"),
    sf.explicit(SMALL, ["b"], [[1, 0, 0.5], [0, 1, -1], [2, 0, 0]]),
]


def law_of(plan: SelectionPlan, counts: NDArray[np.int64]) -> dict[tuple[int, ...], float]:
    """P(these places), exactly, of a plan that chooses."""
    forecast = plan.forecast
    exact = plan.normal.workload.evaluate(counts) * 2.0**forecast.candidates.bits
    if plan.nearest is not None:
        p, q = plan.nearest.as_integer_ratio()
        exact = -abs(q * exact - p * counts.sum() * 2.0**forecast.candidates.bits)
    scores = [round(s) if plan.which == "largest" else -round(s) for s in exact]
    law = flips if forecast.mechanism == "permute-and-flip" else softmax
    return peeled(law, scores, float(forecast.rate or 0), plan.top)


def neighbours_of(counts: NDArray[np.int64], kind: Neighbours) -> list[NDArray[np.int64]]:
    """All tables with a record more; with replace-one also with another in the place of one."""
    steps = []
    cells = list(np.ndindex(*counts.shape))
    for cell in cells:
        more = counts.copy()
        more[cell] += 1
        steps.append(more)
        if kind == "replace-one":
            for other in cells:
                if other != cell and counts[other]:
                    moved = more.copy()
                    moved[other] -= 1
                    steps.append(moved)
    return steps


def losses(
    plan: SelectionPlan, counts: NDArray[np.int64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Losses of all outcomes and their probabilities, for every neighbour."""
    here, out = law_of(plan, counts), []
    for other in neighbours_of(counts, plan.neighbours):
        there = law_of(plan, other)
        p = np.array([here[k] for k in here])
        out.append((np.log(p / np.array([there[k] for k in here])), p))
    return out


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.sampled_from(range(len(WORKS))),
    st.sampled_from(["add-remove", "replace-one"]),
    st.sampled_from(["permute-and-flip", "exponential"]),
    st.sampled_from(["largest", "smallest", "1/2", "1/10", "1"]),
    st.integers(1, 2),
)
def test_no_outcome_tells_more_of_a_record_than_the_cost_says(
    cells: list[int], work: int, kind: Neighbours, mechanism: str, which: str, top: int
) -> None:
    aim = {"which": which} if which.endswith("est") else {"nearest": which}
    plan = sf.plan_selection(
        WORKS[work],
        PURE,
        kind,
        top=top,
        mechanism=mechanism,
        **aim,  # type: ignore[arg-type]
    )
    for loss, _ in losses(plan, np.array(cells).reshape(2, 3)):
        assert float(np.abs(loss).max()) <= float(plan.cost.pure_epsilon) + 1e-9


def test_the_median_would_tell_more_at_twice_the_rate() -> None:
    """The twin of the case above: running totals around a half, one of which goes up."""
    plan = sf.plan_selection(WORKS[2], PURE, nearest=0.5, mechanism="exponential")
    assert plan.forecast.rate is not None
    wrong = replace(plan, forecast=replace(plan.forecast, rate=2 * plan.forecast.rate))
    counts = np.array([[1, 1, 0], [0, 1, 1]])
    assert max(float(np.ptp(loss)) for loss, _ in losses(plan, counts)) <= 1 + 1e-9
    assert max(float(np.ptp(loss)) for loss, _ in losses(wrong, counts)) > 1.1


def test_half_the_spread_would_tell_more_than_the_cost_says() -> None:
    """The twin: scores that a replaced record moves apart by 2, counted as 1."""
    plan = sf.plan_selection(WORKS[0], PURE, "replace-one", mechanism="exponential")
    rate = plan.forecast.rate
    assert rate is not None
    wrong = replace(plan, forecast=replace(plan.forecast, rate=2 * rate))
    worst = max(float(np.abs(loss).max()) for loss, _ in losses(wrong, np.full((2, 3), 2)))
    assert worst > 1.1


@pytest.mark.parametrize("kind", ["add-remove", "replace-one"])
def test_in_rho_no_divergence_exceeds_the_cost(kind: Neighbours) -> None:
    """D_alpha <= alpha rho for the whole selection; at twice the rate it is broken."""
    plan = sf.plan_selection(WORKS[0], sf.Budget(rho=0.5), kind, top=2, mechanism="exponential")
    assert plan.forecast.rate is not None
    wrong = replace(plan, forecast=replace(plan.forecast, rate=2 * plan.forecast.rate))

    def ratio(one: SelectionPlan) -> float:
        worst = 0.0
        for counts in (np.full((2, 3), 2), np.array([[4, 0, 0], [0, 0, 4]])):
            for loss, p in losses(one, counts):
                for alpha in (1.01, 2.0, 8.0, 64.0):
                    power = (alpha - 1) * loss
                    divergence = log(float((p * np.exp(power)).sum())) / (alpha - 1)
                    worst = max(worst, divergence / alpha)
        return worst

    assert ratio(plan) <= 0.5
    assert ratio(wrong) > 0.5


@pytest.mark.parametrize("mechanism", ["permute-and-flip", "exponential"])
def test_a_release_has_the_law_of_its_plan(mechanism: str) -> None:
    """From the table to the stored bytes, by chi-square; a plan of another rate is noticed."""
    counts = np.array([3, 1, 2, 0])
    plan = sf.plan_selection(JOBS, PURE, top=2, mechanism=mechanism)  # type: ignore[arg-type]
    exact = read_scores(open_table(people(*counts)), plan.normal.workload, "add-remove")
    words, runs = SeededWords(f"selection {mechanism}"), 1500
    drawn = [tuple(json.loads(plan.drawn(exact, words))["places"]) for _ in range(runs)]
    assert plan.forecast.rate is not None

    def distance(one: SelectionPlan) -> float:
        law = law_of(one, np.stack([counts, counts * 0], axis=1))
        return sum((drawn.count(k) - runs * p) ** 2 / (runs * p) for k, p in law.items())

    twin = replace(plan, forecast=replace(plan.forecast, rate=2 * plan.forecast.rate))
    assert distance(plan) < 48  # 11 degrees of freedom: 1 in 10^6
    assert distance(twin) > 48


# What is chosen


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("counts", [False, True])
def test_the_largest_come_out_by_name(budget: sf.Budget, counts: bool) -> None:
    plan = sf.plan_selection(JOBS, budget, top=2, counts=counts, confidence=1 - 1e-9)
    chosen = plan.release(FAR)
    assert chosen.names == ("job = cook", "job = nurse")
    assert chosen.best.labels == {"job": "cook"}
    assert chosen.frame()["job"].tolist() == ["cook", "nurse"]
    for exact, choice in zip([9000, 5000], chosen.choices, strict=True):
        assert (choice.value is not None) == counts
        assert choice.low <= exact <= choice.high
    assert ("value" in chosen.frame()) == counts
    assert json.loads(json.dumps(chosen.as_json()))["choices"][0]["name"] == "job = cook"


def test_the_smallest_come_out_too() -> None:
    assert sf.plan_selection(JOBS, PURE, which="smallest").release(FAR).names == ("job = smith",)


@pytest.mark.parametrize(
    "mechanism", ["permute-and-flip", "exponential", "laplace-counts", "gaussian-counts"]
)
def test_every_mechanism_tells_counts_within_its_intervals(mechanism: str) -> None:
    plan = sf.plan_selection(
        JOBS,
        sf.Budget(epsilon=1, delta=1e-6),
        top=2,
        counts=True,
        mechanism=mechanism,  # type: ignore[arg-type]
        confidence=1 - 1e-9,
    )
    assert plan.mechanism == mechanism
    for exact, choice in zip([9000, 5000], plan.release(FAR).choices, strict=True):
        assert choice.value is not None
        assert choice.low <= exact <= choice.high
        assert choice.high - choice.low == pytest.approx(2 * (plan.half_width or 0))


@pytest.mark.parametrize("top", [1, 2])
def test_the_promise_is_kept_as_often_as_it_says(top: int) -> None:
    """400 draws at confidence 0.9: at most 40 + 5 sd failures; half the tolerance fails."""
    counts = np.array([10, 7, 6, 6])
    plan = sf.plan_selection(JOBS, sf.Budget(epsilon=0.3), top=top, confidence=0.9)
    exact = read_scores(open_table(people(*counts)), plan.normal.workload, "add-remove")
    words, tolerances = SeededWords(f"kept {top}"), []
    for _ in range(400):
        places = json.loads(plan.drawn(exact, words))["places"]
        rest = [c for i, c in enumerate(counts) if i not in places]
        tolerances.append(max(rest) - min(counts[places]))
    assert sum(t > plan.tolerance for t in tolerances) <= 70
    worst = people(*([40] * top), *([40 - int(plan.tolerance / 2) - 1] * (4 - top)))
    exact = read_scores(open_table(worst), plan.normal.workload, "add-remove")
    lost = [
        len(set(json.loads(plan.drawn(exact, words))["places"]) - set(range(top)))
        for _ in range(400)
    ]
    assert sum(n > 0 for n in lost) > 70  # so close together they are often confused


def test_the_median_is_where_the_running_total_is_nearest_a_half() -> None:
    domain = sf.Domain([sf.Integer("age", 0, 99)])
    table = pd.DataFrame({"age": np.repeat([10, 20, 40, 70], [3000, 1900, 200, 4900])})
    ages = sf.prefixes(domain, "age")
    plan = sf.plan_selection(ages, PURE, nearest=0.5, counts=True, confidence=1 - 1e-9)
    chosen = plan.release(table)
    assert 40 <= chosen.best.labels["age"] < 70  # type: ignore[operator]
    assert chosen.best.low <= 5100 <= chosen.best.high
    assert "nearer to 0.5 of all records" in plan.guarantee
    assert "nearest to 0.5 of all records" in repr(plan)
    assert {f.mechanism for f in plan.mechanisms} == {"permute-and-flip", "exponential"}
    tenth = sf.plan_selection(ages, PURE, nearest="1/10")
    assert tenth.digest() == sf.plan_selection(ages, PURE, nearest=0.1).digest()
    assert 0 <= tenth.release(table).best.labels["age"] < 20  # type: ignore[operator]
    assert chosen.plan.as_json()["nearest"] == 0.5
    assert "nearest" not in sf.plan_selection(ages, PURE).request()


def test_models_are_chosen_by_what_they_get_right() -> None:
    models: dict[str, str | Callable[[pd.DataFrame], list[bool]]] = {
        "nobody": lambda frame: [False] * len(frame),
        "everybody": lambda frame: [True] * len(frame),
        "cooks": lambda frame: list(frame["job"] == "cook"),
        "column": "guess",
    }
    domain = sf.Domain([*DOMAIN, sf.Boolean("guess")])
    work = sf.predictions(domain, "ill", models, by=["job"])
    table = FAR.assign(guess=FAR["ill"])
    chosen = sf.plan_selection(work, PURE, top=2, counts=True, confidence=1 - 1e-9).release(table)
    assert chosen.names == ("column", "nobody")
    assert chosen.best.low <= len(FAR) <= chosen.best.high
    right = int((~FAR["ill"]).sum())
    assert chosen.choices[1].low <= right <= chosen.choices[1].high


def test_models_that_are_none_are_refused() -> None:
    cases: list[tuple[object, str]] = [
        ({}, "a mapping from names"),
        ({"m": 3}, "name of an attribute or a function"),
        ({"m": lambda f: ["maybe"] * len(f)}, "no value of 'ill'"),
        ({"m": lambda _: [True]}, "gives 1 predictions for 4 rows"),
    ]
    for models, message in cases:
        with pytest.raises(sf.WorkloadError, match=message):
            sf.predictions(DOMAIN, "ill", models, by=["job"])  # type: ignore[arg-type]
    with pytest.raises(sf.WorkloadError, match="may not see what it predicts"):
        sf.predictions(DOMAIN, "ill", {"m": lambda f: f["ill"]}, by=["ill"])


# The ledger


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.open(made(tmp_path / "jobs.ledger", sf.Budget(epsilon=2), "jobs"))


def test_a_selection_is_debited_once_and_the_stored_one_is_free(ledger: sf.Ledger) -> None:
    plan = sf.plan_selection(JOBS, sf.Budget(epsilon=0.1), counts=True)
    first = plan.release(FAR, ledger, name="jobs")
    again = plan.release(FAR, ledger, name="jobs")
    assert (first.is_stored, again.is_stored) == (False, True)
    assert first.choices == again.choices
    assert "stored answer, nothing spent" in repr(again)
    assert ledger.remaining().pure_epsilon == sf.Budget(epsilon=1.9).epsilon
    assert len([e for e in ledger.entries() if e.state == "answered"]) == 1
    assert plan.stored_key(ledger) == plan.digest()


def test_another_writing_of_the_candidates_is_the_same_request(ledger: sf.Ledger) -> None:
    """Order, names, weights and duplicates do not matter; what is chosen keeps its own name."""
    jobs = ["cook", "nurse", "smith", "clerk"]
    conditions = [f"job = '{job}'" for job in jobs]
    backwards = sf.predicates(DOMAIN, conditions[::-1], [f"the {j}s" for j in jobs[::-1]])
    plans = [
        sf.plan_selection(work, PURE, top=2)
        for work in (JOBS, backwards, 3 * JOBS, backwards | JOBS)
    ]
    assert len({plan.digest() for plan in plans}) == 1
    names = [plan.release(FAR, ledger, name="jobs").names for plan in plans]
    assert names == [
        ("job = cook", "job = nurse"),
        ("the cooks", "the nurses"),
        ("job = cook", "job = nurse"),
        ("the cooks", "the nurses"),
    ]
    assert len(ledger.entries()) == 1
    digests = {
        sf.plan_selection(JOBS, PURE, **change).digest()  # type: ignore[arg-type]
        for change in ({"top": 1}, {"which": "smallest"}, {"counts": True}, {"top": 2})
    }
    assert len(digests) == 4


def test_a_budget_that_is_short_is_refused_before_anything_is_drawn(ledger: sf.Ledger) -> None:
    with pytest.raises(sf.BudgetExhausted, match="budget refused"):
        sf.plan_selection(JOBS, sf.Budget(epsilon=2.5)).release(FAR, ledger, name="jobs")
    assert ledger.remaining().share == 1


def test_after_gaussian_noise_the_currency_that_fits_is_taken(tmp_path: Path) -> None:
    """Pure noise of epsilon 1 then counts for more than all of (2, 1e-9); in mu^2 it fits."""
    budget = sf.Budget(epsilon=1, delta=1e-9)
    place = made(tmp_path / "mixed.ledger", sf.Budget(epsilon=2, delta=1e-9), "jobs")
    ledger = sf.Ledger.open(place)
    first = sf.plan_selection(JOBS, budget, top=2, ledger=ledger)
    assert first.forecast.currency == "epsilon"
    sf.plan(JOBS, budget, noise="gaussian").release(FAR, ledger, name="jobs")
    with pytest.raises(sf.BudgetExhausted):
        first.release(FAR, ledger, name="jobs")
    second = sf.plan_selection(JOBS, budget, top=2, ledger=ledger)
    assert second.forecast.currency == "mu^2"
    assert second.release(FAR, ledger, name="jobs").names == ("job = cook", "job = nurse")
    # The stored one goes first, whatever is left; by a key too.
    again = sf.plan_selection(JOBS, budget, top=2, ledger=ledger)
    assert again.release(FAR, ledger, name="jobs").is_stored
    assert first.fitting(ledger).digest() == second.digest()
    assert first.fitting(ledger, key="another").digest() == second.digest()


def test_choices_in_rho_cost_an_eighth_of_their_range_squared(tmp_path: Path) -> None:
    ledger = sf.Ledger.open(made(tmp_path / "rho.ledger", sf.Budget(rho=1), "jobs"))
    plan = sf.plan_selection(JOBS, sf.Budget(rho=0.25), mechanism="exponential")
    assert plan.cost.parts[0].has_range  # type: ignore[union-attr]
    plan.release(FAR, ledger, name="jobs")
    assert float(ledger.remaining().share) == pytest.approx(0.75)
    assert sf.Ledger.open(tmp_path / "rho.ledger").entries()[0].cost == plan.cost
    ledger.verify()


def test_people_with_several_rows_move_scores_by_as_many() -> None:
    unit = sf.PrivacyUnit("who", 3)
    one, three = (sf.plan_selection(JOBS, PURE, unit=u) for u in (None, unit))
    assert one.forecast.rate == 3 * three.forecast.rate  # type: ignore[operator]
    table = FAR.assign(who=np.arange(len(FAR)) // 3)
    assert three.release(table).names == ("job = cook",)


def test_an_empty_table_gives_some_candidate() -> None:
    chosen = sf.plan_selection(JOBS, PURE, counts=True).release(FAR.iloc[:0])
    assert chosen.names[0] in {f"job = {j}" for j in ("cook", "nurse", "smith", "clerk")}


# SQL


def test_sql_says_top_which_and_counts() -> None:
    plan = sf.plan_selection(
        "SELECT job, COUNT(*) AS n FROM people WHERE NOT ill GROUP BY job ORDER BY n DESC LIMIT 2",
        PURE,
        domain=DOMAIN,
    )
    assert (plan.top, plan.which, plan.counts, plan.candidates) == (2, "largest", True, 4)
    assert plan.release(FAR).frame()["job"].tolist() == ["cook", "nurse"]
    smallest = sf.plan_selection(
        "SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 1", PURE, domain=DOMAIN
    )
    assert (smallest.which, smallest.counts) == ("smallest", False)
    assert smallest.release(FAR).best.labels == {"job": "smith"}
    written = "SELECT job FROM t GROUP BY job ORDER BY COUNT(*) DESC LIMIT 1"
    same = sf.plan_selection(written, PURE, domain=DOMAIN)
    assert same.digest() == sf.plan_selection(JOBS, PURE).digest()


# Refusals


def test_wrong_arguments_are_refused_with_what_is_allowed() -> None:
    means = sf.means(sf.Domain([sf.Integer("age", 0, 99)]), "age")
    numbers = sf.Domain([sf.Numeric("pay", [0.0, 10.0, 20.0]), sf.Boolean("ill")])
    cases: list[tuple[tuple[object, ...], dict[str, object], type[Exception], str]] = [
        ((3, PURE), {}, sf.PlanError, "candidates are a workload"),
        ((JOBS, 1.0), {}, sf.PlanError, "budget must be"),
        ((JOBS, PURE), {"top": 4}, sf.PlanError, "whole number from 1 to 3"),
        ((JOBS, PURE), {"which": "best"}, sf.PlanError, "largest"),
        ((JOBS, PURE), {"counts": 1}, sf.PlanError, "True or False"),
        ((JOBS, PURE), {"nearest": 1.5}, sf.PlanError, "from 0 to 1"),
        ((JOBS, PURE), {"nearest": "half"}, sf.PlanError, "from 0 to 1"),
        ((JOBS, PURE), {"nearest": 0.123456}, sf.PlanError, "denominator"),
        ((JOBS, PURE), {"nearest": 0.5, "which": "smallest"}, sf.PlanError, "exclude each other"),
        ((JOBS, PURE), {"nearest": 0.5, "mechanism": "laplace-counts"}, sf.PlanError,
         "it allows permute-and-flip, exponential$"),
        ((JOBS, PURE), {"mechanism": "laplace"}, sf.PlanError, "permute-and-flip"),
        ((JOBS, PURE), {"mechanism": "gaussian-counts"}, sf.PlanError, "allows permute"),
        ((JOBS, PURE), {"confidence": 1}, sf.PlanError, "between 0 and 1"),
        ((JOBS, PURE, "next"), {}, sf.BudgetError, "neighbours must be"),
        ((JOBS, PURE), {"unit": "who"}, sf.SfumatoError, "PrivacyUnit"),
        ((sf.marginals(DOMAIN, 0), PURE), {}, sf.PlanError, "at least 2 different"),
        ((JOBS | JOBS, PURE), {"top": 4}, sf.PlanError, "there are 4 different"),
        ((means, PURE), {}, sf.WorkloadError, "a mean is a ratio"),
        ((sf.sums(numbers, "pay", by=["ill"]), PURE), {}, sf.WorkloadError, "in bins"),
        ((sf.predicates(DOMAIN, ["job = 'cook'", "ill AND NOT ill"]), PURE), {}, sf.WorkloadError,
         "counts no record"),
        (("SELECT 1", PURE), {}, sf.PlanError, "needs the domain"),
        (("SELECT 1", PURE), {"domain": DOMAIN, "top": 2}, sf.PlanError, "itself"),
    ]  # fmt: skip
    for arguments, options, kind, message in cases:
        with pytest.raises(kind, match=message):
            sf.plan_selection(*arguments, **options)  # type: ignore[arg-type]


def test_what_a_plan_says_of_itself() -> None:
    plan = sf.plan_selection(JOBS, PURE, top=2, counts=True, mechanism="permute-and-flip")
    assert repr(plan).startswith(
        "SelectionPlan of the 2 largest of 4 candidates by 'permute-and-flip' at epsilon = 1: with "
        "probability 0.95 no other candidate has a count that is larger than that of any of the "
        "chosen ones by more than"
    )
    assert "of the budget)" in repr(plan)
    compared = sf.plan_selection(JOBS, PURE, top=2).compared()
    assert compared["mechanism"].iloc[0] == "laplace-counts"
    assert compared["tolerance"].is_monotonic_increasing
    run = SelectionRun(plan)
    assert run.request() == plan.request()
    assert list(itertools.islice(run.keys(None), 2)) == [plan.digest()]  # type: ignore[arg-type]
