# SPDX-License-Identifier: Apache-2.0
"""A plan looks at the ledger: what it takes, what would be refused, what fits instead."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import BudgetExhausted, PlanError
from sfumato.ledger.account import Account
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.cost import Cost, mu_squared_of

DOMAIN = sf.Domain({"age": 8, "sex": 2})
WORK = sf.marginals(DOMAIN, 2)
TOTAL = sf.Budget(epsilon=4, delta="1e-9")
RNG = np.random.default_rng(5)
TABLE = pd.DataFrame({"age": RNG.integers(0, 8, 400), "sex": RNG.integers(0, 2, 400)})


def _ledger(tmp_path: Path, total: sf.Budget = TOTAL) -> Ledger:
    return Ledger.create(tmp_path / "l.ledger", total, "people", "add-remove", unit="row")


def test_a_plan_says_what_it_takes_and_what_the_other_noise_would(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta="1e-9"), ledger=book)
    assert plan.strategy.noise == "laplace"
    assert plan.in_ledger is not None
    assert plan.in_ledger.price.share is not None
    assert float(plan.in_ledger.price.share) == pytest.approx(0.25, rel=1e-3)
    gaussian = Fraction(sf.Budget(epsilon=1, delta="1e-9").gaussian_mu or 0) ** 2
    other = plan.in_ledger.other
    assert other is not None
    assert other.share == book.price(Cost.gaussian(gaussian)).share
    assert plan.in_ledger.describe().startswith("takes 25% of the budget, 75% remains; the same")
    assert "takes 25% of the budget" in repr(plan)
    assert "mu" not in plan.in_ledger.describe()


def test_the_default_is_a_plan_that_fits_and_it_says_what_was_refused(tmp_path: Path) -> None:
    """One paid question, and the best plan does not fit though almost everything is left."""
    book = _ledger(tmp_path)
    book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a question", unit="row")
    budget = sf.Budget(epsilon=1, delta="1e-9")
    alone = sf.plan(WORK, budget)
    with pytest.raises(BudgetExhausted):
        alone.release(TABLE, ledger=book, name="people")
    plan = sf.plan(WORK, budget, ledger=book)
    assert (alone.strategy.noise, plan.strategy.noise) == ("laplace", "gaussian")
    within = plan.in_ledger
    assert within is not None
    assert within.fits
    assert within.refused is not None
    assert within.refused.mechanism == alone.mechanism
    assert f"{alone.mechanism}, with less error, will be refused" in within.describe()
    chosen = {c.mechanism: c for c in plan.candidates}
    assert [c.mechanism for c in plan.candidates if c.is_chosen] == [plan.mechanism]
    assert "will be refused" in chosen[alone.mechanism].note
    released = plan.release(TABLE, ledger=book, name="people")
    assert released.answers() is not None


def test_an_answer_that_is_stored_fits_however_little_is_left(tmp_path: Path) -> None:
    book = _ledger(tmp_path, sf.Budget(epsilon=1, delta="1e-9"))
    budget = sf.Budget(epsilon=1, delta="1e-9")
    first = sf.plan(WORK, budget, ledger=book)
    answers = first.release(TABLE, ledger=book, name="people").answers()
    assert book.remaining().share < Fraction(1, 1000)
    again = sf.plan(WORK, budget, ledger=book)
    assert again.digest() == first.digest()
    assert again.in_ledger is not None
    assert again.in_ledger.describe() == "the answer is stored: nothing is spent"
    pd.testing.assert_frame_equal(
        again.release(TABLE, ledger=book, name="people").answers(), answers
    )
    assert len(book.entries()) == 1


def test_what_took_the_place_of_a_refused_plan_is_found_again(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a question", unit="row")
    budget = sf.Budget(epsilon=1, delta="1e-9")
    first = sf.plan(WORK, budget, ledger=book)
    # The key is that of what is asked, not of what fits.
    assert first.digest() == sf.plan(WORK, budget).digest()
    first.release(TABLE, ledger=book, name="people")
    while book.price(first.cost).fits:
        book.debit(first.cost, {}, f"more {len(book.entries())}", unit="row")
    again = sf.plan(WORK, budget, ledger=book)
    assert again.digest() == first.digest()
    assert again.in_ledger is not None
    assert again.in_ledger.is_stored


def test_nothing_that_fits_is_said_with_the_largest_that_would(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    book.debit(Cost.gaussian(Fraction(1, 5)), {}, "much", unit="row")
    plan = sf.plan(WORK, sf.Budget(epsilon=4, delta="1e-9"), ledger=book)
    within = plan.in_ledger
    assert within is not None
    assert not within.fits
    assert within.price.most == book.remaining().epsilon("pure")
    words = within.describe()
    assert words.startswith("will be refused: pure (Laplace) noise of epsilon = ")
    assert "or Gaussian noise of epsilon = " in words
    fitting = sf.plan(
        WORK, sf.Budget(epsilon=within.price.other, delta="1e-9"), noise="gaussian", ledger=book
    )
    assert fitting.in_ledger is not None
    assert fitting.in_ledger.fits
    slightly = within.price.other * Fraction(1001, 1000)
    more = sf.plan(WORK, sf.Budget(epsilon=slightly, delta="1e-9"), noise="gaussian", ledger=book)
    assert more.in_ledger is not None
    assert not more.in_ledger.fits


def test_a_mechanism_that_is_asked_for_is_not_replaced(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a question", unit="row")
    budget = sf.Budget(epsilon=1, delta="1e-9")
    for asked in ({"mechanism": "laplace"}, {"noise": "laplace"}):
        plan = sf.plan(WORK, budget, ledger=book, **asked)  # type: ignore[arg-type]
        assert plan.strategy.noise == "laplace"
        assert plan.in_ledger is not None
        assert not plan.in_ledger.fits


def test_the_allowance_of_an_analyst_decides_too(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    book.allow("ann", sf.Budget(epsilon="0.5", delta="1e-9"))
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta="1e-9"), ledger=book, analyst="ann")
    assert plan.in_ledger is not None
    assert not plan.in_ledger.fits
    assert plan.in_ledger.price.most == Fraction(1, 2)
    small = sf.plan(WORK, sf.Budget(epsilon="0.25", delta="1e-9"), ledger=book, analyst="ann")
    assert small.in_ledger is not None
    assert small.in_ledger.price.share is not None
    assert float(small.in_ledger.price.share) == pytest.approx(0.5, rel=1e-3)  # of what is hers


def test_lanes_of_a_total_are_no_budget_of_a_plan() -> None:
    with pytest.raises(PlanError, match="belong to the total of a ledger"):
        sf.plan(WORK, sf.Budget(epsilon=2, delta="1e-9", pure=1))


def test_an_error_to_reach_is_reached_with_noise_that_fits(tmp_path: Path) -> None:
    book = _ledger(tmp_path)
    book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a question", unit="row")
    alone = sf.plan(WORK, error=2.0)
    plan = sf.plan(WORK, error=2.0, ledger=book)
    assert alone.strategy.noise == "laplace"
    assert plan.in_ledger is not None
    assert plan.in_ledger.fits
    assert plan.rmse <= 2.0
    assert mu_squared_of(plan.cost) <= total_left(book)


def total_left(book: Ledger) -> Fraction:
    return Fraction(book.remaining().gaussian_mu or 0) ** 2


def test_the_price_of_a_fresh_total_is_that_of_its_account() -> None:
    from sfumato.run.linear import NewLedger

    cost = Cost.pure(1)
    assert NewLedger(TOTAL).price(cost) == Account(TOTAL).price(cost)
    assert NewLedger(TOTAL).answer("k") is None


def test_a_ledger_may_be_named_by_its_path(tmp_path: Path) -> None:
    _ledger(tmp_path)
    path = tmp_path / "l.ledger"
    for place in (path, str(path)):
        plan = sf.plan(WORK, sf.Budget(epsilon=1, delta="1e-9"), ledger=place)
        assert plan.in_ledger is not None
        assert plan.in_ledger.fits


def test_an_answer_with_the_noise_of_fine_grids_is_found_and_read_with_its_own_errors(
    tmp_path: Path,
) -> None:
    """Laplace noise was drawn on a grid of 2^-16 of its scale before it was on that of counts."""
    book = _ledger(tmp_path)
    plan = sf.plan(WORK, sf.Budget(epsilon=1))
    assert all(law.scale_bits for law in plan.noise)
    before = replace(plan, forecast=plan.forecast.on_fine_grids)
    assert before.digest() == plan.digest()
    assert not any(law.scale_bits for law in before.noise)
    stored = before.release(TABLE, ledger=book, name="people")
    spent = len(book.entries())
    again = plan.release(TABLE, ledger=book, name="people")
    assert len(book.entries()) == spent == 1
    pd.testing.assert_frame_equal(stored.answers("age", "sex"), again.answers("age", "sex"))
    error = again.answers("age", "sex")["standard_error"].iloc[0]
    assert error == before.forecast.standard_errors(0)[0] > plan.forecast.standard_errors(0)[0]
