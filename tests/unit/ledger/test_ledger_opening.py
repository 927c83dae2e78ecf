# SPDX-License-Identifier: Apache-2.0
"""Which ledger a release is debited in, and what is refused."""

from __future__ import annotations

import shlex
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.cli.main import main
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger, Terms, ledger_of, obey_total, paid_entry
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

PLAN = ("add-remove", Budget(epsilon=1), "row")


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "t.ledger", Budget(rho=1), "people", "add-remove")


def test_a_path_must_lead_to_a_ledger(tmp_path):
    place = tmp_path / "new.ledger"
    with pytest.raises(LedgerError, match=r"there is no ledger at .*nothing was spent"):
        ledger_of(place, "people", *PLAN)
    assert not list(tmp_path.iterdir())
    Terms("people", "add-remove", "row", Budget(epsilon=1)).create(place)
    again = ledger_of(str(place), "people", "add-remove", Budget(epsilon=9), "row")
    assert (again.table_id, again.budget, again.unit) == ("people", Budget(epsilon=1), "row")
    with pytest.raises(LedgerError, match="belongs to table 'people'"):
        ledger_of(place, "others", *PLAN)


UNITS = ["row", "event", PrivacyUnit("the patient", 5), PrivacyUnit("row", 1)]
TOTALS = [
    Budget(epsilon="1/3", delta="1e-9"),
    Budget(rho="0.125"),
    Budget(mu=2),
    Budget(epsilon=2, delta=1e-6, pure="0.5"),
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("total", TOTALS)
def test_the_command_of_the_error_creates_the_ledger_that_was_meant(
    tmp_path, unit, neighbours, total
):
    place = tmp_path / "my people.ledger"
    with pytest.raises(LedgerError, match="no ledger at") as refused:
        ledger_of(place, "my people's", neighbours, total, unit)
    lines = str(refused.value).splitlines()
    [command] = [line for line in lines if line.startswith("  sfumato")]
    with pytest.raises(SystemExit) as left:
        main([*shlex.split(command)[1:], "--json"])
    assert left.value.code == 0
    ledger = Ledger.open(place)
    assert ledger.unit == unit
    assert (ledger.table_id, ledger.neighbours, ledger.budget) == ("my people's", neighbours, total)
    [python] = [line for line in lines if line.startswith("  sf.")]
    place.unlink()
    Path(f"{place}.head").unlink()
    assert eval(python.strip(), {"sf": sf}).unit == unit  # noqa: S307


def test_an_open_ledger_is_that_of_its_table_only(ledger):
    assert ledger_of(ledger, "people", *PLAN) is ledger
    with pytest.raises(LedgerError, match="table 'people', this table is 'others'"):
        ledger_of(ledger, "others", *PLAN)
    with pytest.raises(LedgerError, match="add-remove neighbours, the plan replace-one"):
        ledger_of(ledger, "people", "replace-one", Budget(rho=1), "row")


def test_what_has_no_name_of_its_own_needs_one_beside_a_ledger(ledger, tmp_path):
    with pytest.raises(LedgerError, match=r"say name=... \(this ledger's table is 'people'\)"):
        ledger_of(ledger, None, *PLAN)
    with pytest.raises(LedgerError, match="no name of its own"):
        ledger_of(tmp_path / "t.ledger", None, *PLAN)


@pytest.mark.usefixtures("ledger")
def test_kept_connections_are_kept_if_asked(tmp_path):
    for keep in (False, True):
        opened = ledger_of(tmp_path / "t.ledger", "people", *PLAN, keep_open=keep)
        assert opened._chain.store.connections._keep_open is keep
        opened.close()


def test_a_configured_total_is_obeyed_if_it_is_lower_and_else_refused(ledger, tmp_path):
    assert not obey_total(ledger, Budget(rho=1), "people.toml")
    for larger in (Budget(rho=2), Budget(epsilon=1, delta=1e-9)):
        with pytest.raises(LedgerError, match=r"gives a total of .*\n  sfumato ledger raise"):
            obey_total(ledger, larger, "people.toml")
    assert ledger.budget == Budget(rho=1)
    assert obey_total(ledger, Budget(rho="0.5"), "folder/people.toml")
    assert Ledger.open(tmp_path / "t.ledger").budget == Budget(rho="0.5")
    [change] = ledger.changes()
    assert change.describe() == "total set to rho = 0.5 by configuration: lowered in people.toml"


def test_the_entry_that_paid_is_the_last_of_its_key(ledger):
    cost = Cost.gaussian(Fraction(1, 100))
    first = ledger.burn(ledger.debit(cost, {}, "k"))
    second = ledger.store(ledger.debit(cost, {}, "k"), b"x")
    assert paid_entry(ledger, "k") == second != first
    with pytest.raises(LedgerError, match="has gone from its ledger"):
        paid_entry(ledger, "other")
