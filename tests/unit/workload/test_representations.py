# SPDX-License-Identifier: Apache-2.0
"""Sums over other cells of a column are the same sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.run import linear
from sfumato.vault.count import count_marginals
from sfumato.vault.mechanisms.measure import exact_values
from sfumato.vault.tables import open_table
from sfumato.workload.representations import plain_means, plain_sums, representations
from sfumato.workload.terms import Term
from sfumato.workload.workload import Ratio, Workload

AGE = sf.Integer("age", 17, 90)
SEX = sf.Category("sex", ("f", "m"))
INCOME = sf.Numeric("income", (0, 1000), outside="clamp")
DOMAIN = sf.Domain([AGE, INCOME, SEX, sf.Integer("hours", 0, 99)])


def people(count: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(17, 91, count),
            "income": rng.uniform(0, 1000, count),
            "sex": rng.choice(["f", "m"], count),
            "hours": rng.integers(0, 100, count),
        }
    )


def true_answers(term: Term, table: pd.DataFrame) -> np.ndarray:
    """What the vault counts, without noise."""
    sets = [term.attributes]
    counts = count_marginals(open_table(table), term.domain, sets, with_values=True)
    exact = exact_values(term, counts.reveal(term.attributes))
    return np.array([float(x) for x in exact]) / 2.0 ** (term.fraction_bits + term.unit_bits)


def same_answers(work: Workload, table: pd.DataFrame) -> bool:
    normal = work.normal.workload
    ways = [*representations(normal), *representations(normal, plain_sums(work))]
    assert ways
    for way in ways:
        written = way.of(normal)
        for term, other in zip(normal.terms, written.terms, strict=False):
            if term.as_product() is None:
                continue
            places = way.places(term)
            answers = true_answers(other, table)
            answers = answers if places is None else answers[places]
            if not np.allclose(answers, true_answers(term, table), rtol=1e-9, atol=1e-6):
                return False
    return True


@pytest.mark.parametrize(
    "work",
    [
        sf.means(DOMAIN, "income") | sf.variances(DOMAIN, "income"),
        sf.means(DOMAIN, "age", by=["sex"]) | sf.variances(DOMAIN, "age", by=["sex"]),
        sf.variances(DOMAIN, "age", by=["sex"]),
        sf.sums(DOMAIN, "income", power=2) | sf.sums(DOMAIN, "income"),
        sf.covariances(DOMAIN, "age", "hours", by=["sex"]) | sf.means(DOMAIN, "age", by=["sex"]),
        sf.marginals(DOMAIN, [["age", "sex"]]) | sf.variances(DOMAIN, "age", by=["sex"]),
    ],
)
def test_sums_over_other_cells_are_the_same(work: Workload) -> None:
    assert same_answers(work, people())


def test_queries_in_another_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: cells of an integer stand before those of its groups, cells of moments after."""
    from sfumato.workload.representations import Representation

    monkeypatch.setattr(Representation, "places", lambda *_: None)
    work = sf.means(DOMAIN, "age", by=["sex"]) | sf.variances(DOMAIN, "age", by=["sex"])
    assert not same_answers(work, people())


def test_numbers_that_are_clamped_to_a_cell_keep_their_cells() -> None:
    """39.5 counts in the cell of 39, and as 39.5 among values."""
    domain = sf.Domain([sf.Integer("age", 17, 90, outside="clamp")])
    work = sf.means(domain, "age") | sf.variances(domain, "age")
    assert representations(work.normal.workload) == []


def test_queries_that_are_no_sums_have_no_other_cells() -> None:
    for work in (sf.marginals(DOMAIN, 2), sf.prefixes(DOMAIN, "age"), sf.ranges(DOMAIN, "hours")):
        assert representations(work.normal.workload) == []


@pytest.mark.parametrize("budget", [sf.Budget(epsilon=1), sf.Budget(mu=1)])
def test_means_and_variances_share_what_they_measure(
    budget: sf.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the cells of moments; apart each is measured over its own."""
    work = sf.means(DOMAIN, "income") | sf.variances(DOMAIN, "income")
    both = sf.plan(work, budget, cache=False)
    assert both.strategy.in_normal_form.blocks[0].term.attributes == ("moments of income",)
    with monkeypatch.context() as before:
        before.setattr(linear, "_ways", lambda *_, **__: [None])
        apart = sf.plan(work, budget, cache=False)
    assert both.weighted_rmse < 0.85 * apart.weighted_rmse
    assert both.digest() == apart.digest()


def test_means_of_integers_err_as_those_of_numbers() -> None:
    integer = sf.plan(sf.means(DOMAIN, "age"), sf.Budget(mu=1), cache=False)
    number = sf.Domain([sf.Numeric("age", (17, 90), outside="clamp")])
    errors = []
    for plan in (integer, sf.plan(sf.means(number, "age"), sf.Budget(mu=1), cache=False)):
        frame = plan.release(people(5000), project=False).answers(group="mean age")
        errors.append(frame["standard_error"][0])
    assert errors[0] == pytest.approx(errors[1], rel=0.1)


def test_one_request_however_it_is_written_and_planned() -> None:
    one, two = sf.means(DOMAIN, "age"), sf.variances(DOMAIN, "age")
    plans = [sf.plan(w, sf.Budget(mu=1), cache=False) for w in (one | two, two | one)]
    assert plans[0].digest() == plans[1].digest()
    assert plans[0].strategy.digest() == plans[1].strategy.digest()
    assert plain_means(one)
    assert plain_means(one) == plain_sums(one)


def test_what_was_measured_over_the_cells_that_were_asked_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    work = sf.means(DOMAIN, "age", by=["sex"]) | sf.variances(DOMAIN, "age", by=["sex"])
    ledger = tmp_path / "a.ledger"
    sf.Ledger.create(ledger, sf.Budget(epsilon=2), "people.csv").close()
    with monkeypatch.context() as before:
        before.setattr(linear, "_ways", lambda *_, **__: [None])
        first = sf.plan(work, sf.Budget(epsilon=1), cache=False)
        first = first.release(tmp_path / "people.csv", ledger=ledger)
    again = sf.plan(work, sf.Budget(epsilon=1), cache=False)
    assert getattr(again.strategy, "cells", None) is not None
    again = again.release(tmp_path / "people.csv", ledger=ledger)
    assert again.is_stored
    assert np.allclose(again.answers()["value"], first.answers()["value"])


def test_what_rounding_hides_of_a_mean_is_counted() -> None:
    work = sf.means(DOMAIN, "age") | sf.variances(DOMAIN, "age")
    plan = sf.plan(work, sf.Budget(mu=1), cache=False)
    ratios = [r for r in plan.workload.ratios if isinstance(r, Ratio)]
    assert all(0 < r.hidden < 1e-9 for r in ratios)
