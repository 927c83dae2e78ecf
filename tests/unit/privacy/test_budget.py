# SPDX-License-Identifier: Apache-2.0
"""The budget noun: what it accepts, keeps and says."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sfumato.errors import BudgetError
from sfumato.privacy.budget import Budget, check_neighbours, exact, number_text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),  # as written, not the double 0.1000000000000000055
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("2/3", Fraction(2, 3)),
        (Fraction(2, 3), Fraction(2, 3)),
        (Decimal("0.25"), Fraction(1, 4)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_numbers_are_kept_exactly_as_written(given, kept):
    assert Budget(epsilon=given).epsilon == kept
    assert Budget(rho=given).rho == kept
    assert Budget(mu=given).mu == kept


@pytest.mark.parametrize(
    "bad",
    [0, -1, math.nan, math.inf, -math.inf, "abc", "", "nan", "1/0", "1e999999999", True, [1], b"1",
     10**7, "1e-101", "1/-3"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["epsilon", "rho", "mu"])
def test_parameters_out_of_range_are_refused_with_the_name_and_the_value(name, bad):
    with pytest.raises(BudgetError, match=name):
        Budget(**{name: bad})


@pytest.mark.parametrize("bad", [-1e-9, 1, 1.5, math.nan, math.inf, "x", True, "1e-301"])
def test_delta_outside_zero_to_one_is_refused(bad):
    with pytest.raises(BudgetError, match="delta"):
        Budget(epsilon=1, delta=bad)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"delta": 1e-9}, {"epsilon": 1, "rho": 1}, {"epsilon": 1, "mu": 1}, {"rho": 1, "mu": 1},
     {"rho": 1, "delta": 1e-9}, {"mu": 1, "delta": 1e-9}],
)  # fmt: skip
def test_a_budget_is_exactly_one_of_its_three_forms(arguments):
    with pytest.raises(BudgetError):
        Budget(**arguments)


def test_delta_zero_or_absent_is_a_pure_budget():
    assert Budget(epsilon=1).is_pure
    assert Budget(epsilon=1, delta=0) == Budget(epsilon=1)
    assert Budget(epsilon=1).gaussian_mu is None
    assert not Budget(epsilon=1, delta=1e-9).is_pure
    assert not Budget(rho=1).is_pure


def test_a_rho_budget_allows_mu_whose_half_square_is_rho():
    # mu = sqrt(2 rho): exact where the root is, else the double below it.
    assert Budget(rho=2).gaussian_mu == 2.0
    mu = Budget(rho=1).gaussian_mu
    assert Fraction(mu) ** 2 <= 2 < Fraction(math.nextafter(mu, 2)) ** 2
    assert Budget(rho="1/8").pure_epsilon == Fraction(1, 2)  # epsilon^2 / 2 = 1/8


def test_a_mu_budget_allows_the_pure_epsilon_of_its_corner():
    # Phi^-1(3/4) = 0.674489750196081743; 1/(1 + e^epsilon) = 1/4 means epsilon = log 3.
    budget = Budget(mu="1.348979500392163486")
    assert math.isclose(float(budget.pure_epsilon), math.log(3), rel_tol=1e-15)
    assert budget.gaussian_mu <= budget.mu


def test_a_budget_describes_itself_as_people_write_it():
    assert Budget(epsilon=1, delta=1e-9).describe() == "epsilon = 1, delta = 1e-9"
    assert Budget(epsilon=0.5).describe() == "epsilon = 0.5"
    assert Budget(rho="1/3").describe() == "rho = 0.333333333333"
    assert repr(Budget(mu=2)) == "Budget(mu = 2)"
    assert number_text(Fraction(0)) == "0"
    assert number_text(Fraction(10**400)) == "1e400"
    assert number_text(Fraction(1250000)) == "1250000"


@pytest.mark.parametrize(
    "budget",
    [Budget(epsilon="1/3", delta=1e-9), Budget(epsilon=2), Budget(rho=0.1), Budget(mu="7/5")],
)
def test_json_pickle_and_hash_keep_the_budget(budget):
    assert Budget.from_json(json.loads(json.dumps(budget.as_json()))) == budget
    assert pickle.loads(pickle.dumps(budget)) == budget  # noqa: S301
    assert hash(Budget.from_json(budget.as_json())) == hash(budget)


@pytest.mark.parametrize("bad", [None, [], {"epsilon": 1, "other": 2}, {"delta": "1e-9"}, "1"])
def test_json_that_is_not_a_budget_is_refused(bad):
    with pytest.raises(BudgetError):
        Budget.from_json(bad)


def test_a_budget_cannot_be_changed():
    budget = Budget(epsilon=1)
    with pytest.raises(AttributeError):
        budget.epsilon = Fraction(2)


@pytest.mark.parametrize("bad", ["add_remove", "", None, 1, "Replace-One"])
def test_neighbours_have_two_names_only(bad):
    with pytest.raises(BudgetError, match="replace-one"):
        check_neighbours(bad)


def test_the_modules_of_nouns_import_no_heavy_package():
    code = (
        "import sys, types; pkg = types.ModuleType('sfumato');"
        "import importlib.util as u; pkg.__path__ = list(u.find_spec('sfumato')"
        ".submodule_search_locations); sys.modules['sfumato'] = pkg;"
        "import sfumato.privacy.budget, sfumato.privacy.cost, sfumato.ledger.account;"
        "print([m for m in ('scipy','sqlalchemy','flint','dp_accounting','sqlite3')"
        " if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


def test_long_values_are_cut_in_messages():
    text = "9" * 58
    with pytest.raises(BudgetError, match=f"got '{text}'"):
        Budget(epsilon=text)
    with pytest.raises(BudgetError, match=f"got '{text[:56]}" + r"\.\.\.;") as caught:
        Budget(epsilon=text + "9")
    assert text not in str(caught.value)


@pytest.mark.parametrize("value", [{"sigma": 1}, {"epsilon": 1, "note": "x"}, [1], "1", None])
def test_json_of_anything_else_is_no_budget(value):
    with pytest.raises(
        BudgetError,
        match="a budget is an object with epsilon, delta, rho, mu, pure, event_",
    ):
        Budget.from_json(value)


@pytest.mark.parametrize("name", ["epsilon", "rho", "mu"])
def test_the_ends_of_what_a_budget_may_be(name):
    most = {"epsilon": 10**6, "rho": 10**6, "mu": 10**3}[name]
    least = Fraction(1, 10**100)
    for value in (least, most):
        assert getattr(Budget(**{name: value}), name) == value
    for value in (least * Fraction(99, 100), most + Fraction(1, 10**9)):
        with pytest.raises(BudgetError, match=name):
            Budget(**{name: value})


def test_the_ends_of_delta():
    least = Fraction(1, 10**300)
    assert Budget(epsilon=1, delta=least).delta == least
    assert Budget(epsilon=1, delta=1 - Fraction(1, 10**9)).delta < 1
    with pytest.raises(BudgetError, match="delta"):
        Budget(epsilon=1, delta=least * Fraction(99, 100))


def test_numbers_of_many_digits_are_taken_up_to_a_length():
    long = Fraction(2**12_999 + 1, 2**12_999)  # 13,000 bits
    assert exact(long, "epsilon") == long
    with pytest.raises(BudgetError, match="finite number"):
        exact(Fraction(2**13_000 + 1, 2**13_000), "epsilon")
    assert exact("1." + "0" * 3000 + "1", "epsilon") == 1 + Fraction(1, 10**3001)
    assert exact("0" * 7999 + "1", "epsilon") == 1
    for text in ("1e4000", "1e-4000", "0" * 8001, "1/1e4000"):
        with pytest.raises(BudgetError, match="finite number"):
            exact(text, "epsilon")
    assert exact("1e3900/1e3899", "epsilon") == 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1, 10**6), "0.000001"),
        (Fraction(1, 10**7), "1e-7"),
        (Fraction(999_999_999_999, 10**18), "9.99999999999e-7"),
        (Fraction(10**14), "100000000000000"),
        (Fraction(10**15), "1e15"),
        (Fraction(-123, 100), "-1.23"),
        (Fraction(2, 3), "0.666666666667"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert number_text(value) == text


@pytest.mark.parametrize("session", [Budget(epsilon=1, delta="1e-9"), Budget(mu="0.1")])
@pytest.mark.parametrize("delta", ["1e-9", "1e-6"])
def test_a_session_reserves_its_part_and_leaves_the_rest_pure(session, delta):
    total = Budget(epsilon=4, delta=delta).reserving(session)
    assert total.pure is not None
    assert total.gaussian_lane.gaussian_mu >= session.gaussian_mu
    tighter = Budget(epsilon=4, delta=delta, pure=total.pure + Fraction(2, 10**6))
    assert tighter.gaussian_lane.gaussian_mu < session.gaussian_mu
    assert total.promise == Budget(epsilon=4, delta=delta)


@pytest.mark.parametrize(
    ("total", "session"),
    [
        (Budget(epsilon=1, delta="1e-9"), Budget(epsilon=1, delta="1e-9")),
        (Budget(epsilon=4), Budget(epsilon=1)),
        (Budget(epsilon=4, delta="1e-9"), Budget(epsilon=1)),
        (Budget(rho=1), Budget(rho="0.1")),
        (Budget(epsilon=4, delta="1e-9", pure=2), Budget(epsilon=1, delta="1e-9")),
    ],
)
def test_where_nothing_can_be_kept_apart_nothing_is(total, session):
    assert total.reserving(session) == total


def test_a_total_without_lanes_takes_those_of_the_ledger():
    held = Budget(epsilon=4, delta="1e-9", pure=3)
    assert Budget(epsilon=4, delta="1e-9").with_lanes_of(held) == held
    lower = Budget(epsilon="0.5", delta="1e-9").with_lanes_of(held)
    assert (lower.pure, lower.is_within(held)) == (0, True)
    assert Budget(epsilon=4, delta="1e-9", pure=1).with_lanes_of(held).pure == 1
    assert Budget(epsilon=4).with_lanes_of(held) == Budget(epsilon=4)
