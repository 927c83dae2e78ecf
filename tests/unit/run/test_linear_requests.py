# SPDX-License-Identifier: Apache-2.0
"""One request, one answer: the key is that of the meaning, however a request is written."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Category, Integer
from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.workload.workload import Workload, union

DATA = Path(__file__).parents[1] / "ledger" / "data"
DOMAIN = sf.Domain([Integer("age", 0, 4), Category("sex", ("F", "M"))])
LAPLACE = {"mechanism": "laplace"}

TABLES = [
    lambda: [sf.marginals(DOMAIN, [("age", "sex"), ("sex",)])],
    lambda: [sf.marginals(DOMAIN, [("sex",)]), sf.marginals(DOMAIN, [("sex", "age")])],
    lambda: [
        sf.sql(DOMAIN, "SELECT sex, COUNT(*) AS mine FROM data GROUP BY sex"),
        sf.marginals(DOMAIN, [("age", "sex")]),
        sf.marginals(DOMAIN, [("sex",)]),
    ],
    lambda: [
        sf.sql(DOMAIN, "select count(*) from t where sex = 'M'"),
        sf.sql(DOMAIN, "select AGE, Sex, count(1) n  from   t group by 2, 1"),
        sf.predicates(DOMAIN, ["NOT (sex <> 'F')"]),
    ],
    lambda: [sf.product(DOMAIN, {"sex": np.eye(2), "age": "identity"}), sf.marginals(DOMAIN, 1)],
]
HALVES = [0.5, "0.5", "5e-1", "1/2", Fraction(1, 2), ".50"]


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    path = tmp_path_factory.mktemp("requests") / "people.csv"
    rows = [f"{(i * 7) % 5},{'F' if i % 3 else 'M'}\n" for i in range(300)]
    path.write_text("age,sex\n" + "".join(rows))
    return path


def opened(folder, total=None):
    place, total = folder / "a.ledger", total or sf.Budget(epsilon=2)
    return Ledger.open_or_create(place, "people.csv", "add-remove", total)


def answered(release):
    """Every published number by the query that it answers."""
    found = {}
    terms = release.forecast.workload.terms
    for t, term in enumerate(terms):
        cells = np.eye(DOMAIN.size).reshape(DOMAIN.size, *DOMAIN.shape)
        rows = np.array([Workload(DOMAIN, (term,)).evaluate(c) for c in cells]).T
        values, unbiased = release.estimates.value(t), release.estimates.unbiased[t]
        low, high = release.estimates.interval(t, 0.95)
        errors = release.estimates.standard_error(t)
        for i, row in enumerate(rows):
            numbers = (values[i], unbiased[i], low[i], high[i], errors[i])
            assert found.setdefault(tuple(row), numbers) == numbers
    return found


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_writing_is_debited_once_and_has_the_same_numbers(data, people, tmp_path_factory):
    ledger = Ledger.open_or_create(
        tmp_path_factory.mktemp("one") / "a.ledger",
        "people.csv",
        "add-remove",
        sf.Budget(epsilon=2),
    )
    project = data.draw(st.sampled_from([True, False, "nearest"]))
    seen = {}
    for _ in range(3):
        parts = data.draw(st.sampled_from(TABLES[:4]))()
        parts = data.draw(st.permutations(parts))
        budget = sf.Budget(epsilon=data.draw(st.sampled_from(HALVES)), delta=None)
        release = sf.plan(union(parts), budget).release(people, ledger=ledger, project=project)
        for query, numbers in answered(release).items():
            assert seen.setdefault(query, numbers) == numbers
        assert [t.name for t in release.forecast.workload.terms] == [
            t.name for t in union(parts).terms
        ]
    assert len(ledger.entries()) == 1


def test_projection_constraints_and_intervals_are_views_of_one_measurement(people, tmp_path):
    ledger = opened(tmp_path)
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=0.5))
    views = [
        {"project": False},
        {"project": "bounds"},
        {},
        {"constraints": sf.Constraints(DOMAIN, [], [([], 300)])},
        {"intervals": "bootstrap"},
    ]
    unbiased = [
        plan.release(people, ledger=ledger, **view).answers()["unbiased"].tolist() for view in views
    ]
    assert all(each == unbiased[0] for each in unbiased)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"budget": sf.Budget(epsilon=0.25)},
        {"neighbours": "replace-one"},
        {"objective": "max"},
        {"mechanism": "gaussian-table", "budget": sf.Budget(rho=0.1)},
        {"unit": sf.PrivacyUnit("id", 2)},
        {"allow_bias": True, "records": 500},
        {"allow_bias": True, "records": 501},
    ],
)
def test_what_changes_the_measurement_changes_the_key(other):
    usual = {"budget": sf.Budget(epsilon=0.5, delta="1e-9")}
    work = sf.marginals(DOMAIN, 1)
    assert sf.plan(work, **usual).digest() != sf.plan(work, **(usual | other)).digest()
    weighted = sf.marginals(DOMAIN, [("age",)]) | 2 * sf.marginals(DOMAIN, [("sex",)])
    assert sf.plan(work, **usual).digest() != sf.plan(weighted, **usual).digest()


def test_the_best_mechanism_asked_for_by_its_name_is_the_same_request(people, tmp_path):
    ledger = opened(tmp_path)
    work, budget = sf.marginals(DOMAIN, 1), sf.Budget(epsilon=0.5)
    best = sf.plan(work, budget)
    first = best.release(people, ledger=ledger)
    named = sf.plan(work, budget, mechanism=best.mechanism).release(people, ledger=ledger)
    assert named.answers().equals(first.answers())
    assert len(ledger.entries()) == 1
    other = next(name for name in ("laplace", "laplace-table") if name != best.mechanism)
    sf.plan(work, budget, mechanism=other).release(people, ledger=ledger)
    assert len(ledger.entries()) == 2


def test_rho_and_mu_that_allow_the_same_gaussian_noise_are_the_same_request(people, tmp_path):
    ledger = opened(tmp_path, sf.Budget(rho=2))
    work = sf.marginals(DOMAIN, 1)
    budgets = [sf.Budget(rho="1/8"), sf.Budget(mu=0.5), sf.Budget(rho=0.125)]
    found = [
        sf.plan(work, b, mechanism="factorization").release(people, ledger=ledger) for b in budgets
    ]
    assert all(r.answers().equals(found[0].answers()) for r in found)
    assert len(ledger.entries()) == 1


def test_a_query_asked_twice_is_the_same_request(people, tmp_path):
    ledger = opened(tmp_path)
    once = sf.marginals(DOMAIN, [("sex",)])
    twice = union([once, sf.sql(DOMAIN, "SELECT COUNT(*) AS women FROM t WHERE sex = 'F'")])
    budget = sf.Budget(epsilon=0.5)
    first = sf.plan(once, budget).release(people, ledger=ledger)
    second = sf.plan(twice, budget).release(people, ledger=ledger)
    assert len(ledger.entries()) == 1
    assert second.answers()["value"].tolist() == [
        *first.answers()["value"],
        first.answers()["value"][0],
    ]


@pytest.fixture
def old(tmp_path):
    """A ledger of when keys were those of one writing and of one strategy."""
    path = tmp_path / "old.ledger"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "written_keys.sql").read_text())
    connection.close()
    shutil.copy(DATA / "written_keys.ledger.head", tmp_path / "old.ledger.head")
    return Ledger.open(path)


FIRST = (61.856201171875, 100.45147705078125)
SECOND = [112.9525146484375, 199.6624755859375, 99.2132568359375]


def test_requests_that_were_stored_under_old_keys_are_found(old, people):
    before = len(old.entries())
    first = sf.plan(
        sf.marginals(DOMAIN, [("age",), ("sex",)]), sf.Budget(epsilon="1/2"), **LAPLACE
    ).release(people, ledger=old, project=False)
    work = sf.sql(DOMAIN, "SELECT COUNT(*) FROM data WHERE age < 2") | sf.marginals(
        DOMAIN, [("sex",)]
    )
    plan = sf.plan(work, sf.Budget(epsilon=0.25), **LAPLACE)
    by_key = plan.release(people, ledger=old, project=False, key="f" * 64)
    former = plan.release(people, ledger=old, project=False, former=["f" * 64])
    assert len(old.entries()) == before
    assert tuple(first.answers()["unbiased"].iloc[[0, -1]]) == FIRST
    for each in (by_key, former):
        assert each.answers()["unbiased"].tolist() == SECOND
    assert old.verify().problems == ()


def test_a_measurement_by_a_strategy_that_is_not_planned_any_more_is_refused_and_costs_nothing(
    people, tmp_path, monkeypatch
):
    ledger = opened(tmp_path)
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=0.5))
    plan.release(people, ledger=ledger)
    monkeypatch.setattr(sf.Plan, "measurement", lambda _: {"strategy": "", "noise": []})
    with pytest.raises(LedgerError, match="nothing was spent"):
        plan.release(people, ledger=ledger)
    assert len(ledger.entries()) == 1


def test_a_measurement_by_another_mechanism_is_read_by_the_plan_that_made_it(people, tmp_path):
    """The planner may come to choose another mechanism; the request was paid for."""
    ledger = opened(tmp_path)
    work, budget = sf.marginals(DOMAIN, 1), sf.Budget(epsilon=0.5)
    best = sf.plan(work, budget)
    name = next(n for n in ("laplace", "laplace-table") if n != best.mechanism)
    other = replace(sf.plan(work, budget, mechanism=name), wanted=None)
    assert other.digest() == best.digest()
    first = other.release(people, ledger=ledger)
    again = best.release(people, ledger=ledger)
    assert again.answers().equals(first.answers())
    assert again.forecast.mechanism == name
    assert len(ledger.entries()) == 1


def test_adaptive_tables_and_corrections_are_paid_for_once_however_they_are_written(
    people, tmp_path
):
    ledger = opened(tmp_path, sf.Budget(epsilon=8, delta="1e-6"))
    writings = [
        sf.marginals(DOMAIN, [("age", "sex"), ("sex",)]),
        sf.sql(DOMAIN, "SELECT sex, COUNT(*) FROM t GROUP BY sex")
        | sf.marginals(DOMAIN, [("sex", "age")]),
    ]
    budgets = [sf.Budget(epsilon=1, delta="1e-9"), sf.Budget(epsilon="2/2", delta=1e-9)]
    found = [
        sf.plan_adaptive(work, budget).release(people, ledger=ledger)
        for work, budget in zip(writings, budgets, strict=True)
    ]
    assert len(ledger.entries()) == 1
    women = [r.answers().query("query == 'sex = F'")["value"].tolist() for r in found]
    assert women[0] == pytest.approx(women[1])
    asked = [
        sf.marginals(DOMAIN, [("sex",)]),
        sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE sex <> 'M'")
        | sf.predicates(DOMAIN, ["NOT sex = 'F'"]),
    ]
    for work in asked:
        correction = sf.correct(work, sf.Budget(epsilon=0.5), tolerance=50, corrections=1)
        correction.release(people, [200.0, 100.0], ledger=ledger)
    assert len(ledger.entries()) == 2


def test_the_errors_of_all_mechanisms_are_of_the_queries_as_they_were_asked():
    """A query that is asked twice counts twice in the errors that people compare."""
    domain = sf.Domain({"age": 20, "sex": 2})
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age") | sf.marginals(domain, [("sex",)])
    assert not work.normal.is_in_order
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    for candidate in plan.candidates:
        if candidate.rmse is not None:
            alone = sf.plan(work, plan.budget, mechanism=candidate.mechanism)
            assert candidate.rmse == pytest.approx(alone.rmse, rel=2**-12)
            assert candidate.largest == pytest.approx(alone.largest_error, rel=2**-12)
