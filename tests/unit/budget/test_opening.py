# SPDX-License-Identifier: Apache-2.0
"""Which ledger a release is debited in, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.budget import Budget, Cost, Ledger
from sfumato.budget.opening import ledger_of, never_drawn, paid_entry
from sfumato.errors import LedgerError

PLAN = ("add-remove", Budget(epsilon=1), "row")


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "t.ledger", Budget(rho=1), "people", "add-remove")


def test_no_ledger_is_none_and_a_path_is_opened_or_made(tmp_path):
    assert ledger_of(None, "people", True, *PLAN) is None
    place = tmp_path / "new.ledger"
    made = ledger_of(place, "people", True, *PLAN)
    assert (made.table_id, made.neighbours, made.budget) == ("people", *PLAN[:2])
    assert made.unit == "row"
    again = ledger_of(str(place), "people", True, "add-remove", Budget(epsilon=9), "row")
    assert again.budget == Budget(epsilon=1)
    with pytest.raises(LedgerError, match="belongs to table 'people'"):
        ledger_of(place, "others", False, *PLAN)


def test_an_open_ledger_is_that_of_its_table_only(ledger):
    assert ledger_of(ledger, "people", True, *PLAN) is ledger
    # What has no name of its own is taken to be the table of the ledger.
    assert ledger_of(ledger, "dataframe", False, *PLAN) is ledger
    with pytest.raises(LedgerError, match="table 'people', this table is 'others'"):
        ledger_of(ledger, "others", True, *PLAN)
    for is_told in (True, False):
        with pytest.raises(LedgerError, match="add-remove neighbours, the plan replace-one"):
            ledger_of(ledger, "people", is_told, "replace-one", Budget(rho=1), "row")


def test_kept_connections_are_kept_if_asked(tmp_path):
    for keep in (False, True):
        made = ledger_of(tmp_path / f"{keep}.ledger", "t", True, *PLAN, keep_open=keep)
        assert made._journal.store.connections._keep_open is keep
        made.close()


def test_the_entry_that_paid_is_the_last_of_its_key(ledger):
    cost = Cost.gaussian(Fraction(1, 100))
    first = ledger.burn(ledger.debit(cost, {}, "k"))
    second = ledger.store(ledger.debit(cost, {}, "k"), b"x")
    assert paid_entry(ledger, "k") == second != first
    with pytest.raises(LedgerError, match="has gone from its ledger"):
        paid_entry(ledger, "other")


def test_what_must_be_stored_is_never_drawn():
    with pytest.raises(LedgerError, match="not drawn again"):
        never_drawn()
