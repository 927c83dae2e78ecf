# SPDX-License-Identifier: Apache-2.0
"""A ledger is for one privacy unit: costs of different units do not add up."""

from __future__ import annotations

import json
import shutil
import sqlite3
from datetime import date
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import DateTime
from sfumato.domain.privacy_unit import PrivacyUnit, check_unit, protects_alike
from sfumato.errors import LedgerError, SchemaError
from sfumato.ledger.entries import Debited, unit_of_debit
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

DATA = Path(__file__).parent / "data"
COST = Cost.pure(Fraction(1, 100))
PATIENT = PrivacyUnit("patient", 5)
UNITS = ("row", "event", PATIENT, PrivacyUnit("patient", 10), PrivacyUnit("ward", 5))
DOMAIN = sf.Domain({"sex": 2, "age": 4})
WORK = sf.marginals(DOMAIN, 1)
SMALL = Budget(epsilon=Fraction(1, 10))
VISITS = pd.DataFrame({"sex": [0, 1] * 250, "age": [0, 1, 2, 3] * 125, "patient": [7] * 500})
DAYS = sf.Domain([DateTime("day", date(2026, 1, 1), date(2026, 1, 11), "day")])
CALENDAR = pd.DataFrame({"day": pd.to_datetime(["2026-01-03"] * 20), "patient": range(20)})


def column_of(unit):
    return unit if isinstance(unit, str) else unit.column


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("at_opening", [True, False])
def test_a_ledger_takes_debits_that_protect_the_same_only(tmp_path, unit, at_opening):
    ledger = Ledger.create(
        tmp_path / "l", Budget(epsilon=1), "t", unit=unit if at_opening else None
    )
    if not at_opening:
        assert ledger.unit is None
        ledger.debit(COST, {}, "first", unit=unit)
    assert ledger.unit == Ledger.open(tmp_path / "l").unit == unit
    spent = ledger.spent().share
    granted = 0
    for other in UNITS:
        if protects_alike(unit, other):
            ledger.debit(COST, {}, f"again {other}", unit=other)
            granted += 1
            continue
        with pytest.raises(LedgerError, match="do not add up, and nothing was spent"):
            ledger.debit(COST, {}, "other", unit=other)
        with pytest.raises(LedgerError, match="do not add up"):
            ledger.check_unit(other)
    assert granted == (2 if column_of(unit) == "patient" else 1)
    assert ledger.spent().share == spent + granted * Fraction(1, 100)
    report = ledger.verify()
    assert (report.problems, report.unit, report.other_unit) == ((), unit, ())


def test_what_is_no_unit_is_refused(tmp_path):
    for wrong in ("person", 5, ["row"], ("patient", 5)):
        with pytest.raises(SchemaError, match=r'"row", "event" or PrivacyUnit'):
            check_unit(wrong)
        with pytest.raises(SchemaError, match="whose presence is protected"):
            Ledger.create(tmp_path / "l", Budget(epsilon=1), "t", unit=wrong)


def test_the_first_debit_binds_though_another_handle_was_opened_before(home):
    first, second = home.create(), home.open(keep_open=True)
    first.debit(COST, {}, "a", unit="row")
    with pytest.raises(LedgerError, match="one row, this request protects all rows that share"):
        second.debit(COST, {}, "b", unit=PATIENT)
    assert second.unit == "row"
    assert second.verify().problems == ()
    second.close()


def requests_of(unit):
    """Everything that debits a ledger, for a unit of a table: a name and a call."""
    plan = sf.plan(WORK, SMALL, unit=unit)
    adaptive = sf.plan_adaptive(WORK, SMALL, unit=unit)
    correction = sf.correct(WORK, SMALL, 10, unit=unit)
    watch = sf.watch(10, SMALL, 5, largest=1 if unit is None else unit.rows)
    return {
        "plan": lambda ledger: plan.release(VISITS, ledger=ledger, name="t"),
        "adaptive": lambda ledger: adaptive.release(VISITS, ledger=ledger, name="t"),
        "correction": lambda ledger: correction.release(
            VISITS, [100.0] * 6, ledger=ledger, name="t"
        ),
        "watch": lambda ledger: watch.release(CALENDAR, DAYS, "day", ledger, unit=unit, name="t"),
        "session": lambda ledger: ask(ledger, unit),
    }


def ask(ledger, unit):
    with sf.open_session(
        VISITS, DOMAIN, SMALL, ledger=ledger, unit=unit, name="t", updates=2
    ) as session:
        session.ask("SELECT COUNT(*) FROM t WHERE sex = 1")


SERIES = {
    "stream": lambda ledger: sf.Stream(10, SMALL, ledger=ledger, name="t").close(),
    "series": lambda ledger: sf.watch(3, SMALL, 5).values([1, 2, 3], ledger=ledger, name="t"),
    "running": lambda ledger: sf.watch(3, SMALL, 5).begin(ledger=ledger, name="t"),
}
KINDS = ["plan", "adaptive", "correction", "watch", "session"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "other"), [(None, PATIENT), (PATIENT, None)])
def test_requests_per_person_and_per_row_do_not_share_a_ledger(tmp_path, kind, unit, other):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=1), "t")
    requests_of(unit)[kind](ledger)
    assert ledger.unit == ("row" if unit is None else unit)
    spent = ledger.spent().share
    for others in (requests_of(other), SERIES):
        for request in others.values():
            with pytest.raises(LedgerError, match="do not add up, and nothing was spent"):
                request(ledger)
    assert ledger.spent().share == spent
    assert ledger.verify().problems == ()


@pytest.mark.parametrize("kind", list(SERIES))
def test_a_ledger_of_events_takes_events_only(tmp_path, kind):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=1), "t")
    SERIES[kind](ledger)
    assert ledger.unit == "event"
    for unit in (None, PATIENT):
        for request in requests_of(unit).values():
            with pytest.raises(LedgerError, match="protects one event"):
                request(ledger)
    for request in SERIES.values():
        request(ledger)
    assert ledger.verify().problems == ()


@pytest.fixture
def old(tmp_path):
    """A ledger of version 2: a session, a release per row, and one per patient."""
    path = tmp_path / "old.ledger"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "version2.sql").read_text())
    connection.close()
    shutil.copy(DATA / "version2.ledger.head", tmp_path / "old.ledger.head")
    return path


def test_an_older_ledger_has_the_unit_of_its_first_debit_that_tells_one(old):
    ledger = Ledger.open(old)
    assert ledger.unit == "row"
    report = ledger.verify()
    assert (report.problems, report.unit, report.other_unit) == ((), "row", (5,))
    assert ledger.answer("person") == b"answer of person"  # what is stored stays
    with pytest.raises(LedgerError, match="do not add up"):
        ledger.debit(COST, {}, "new", unit=PrivacyUnit("patient", 500))
    ledger.debit(COST, {}, "new", unit="row")
    again = Ledger.open(old)
    assert again.unit == "row"
    assert again.verify().problems == ()
    assert json.loads(records(old)[-1])["bound"] == "row"


def test_an_older_ledger_carries_its_unit_on_whatever_is_written_first(old):
    Ledger.open(old).freeze("a while")
    Ledger.open(old).unfreeze("on again")
    assert [json.loads(text).get("bound") for text in records(old)[-2:]] == ["row", "row"]
    assert Ledger.open(old).verify().problems == ()
    assert Ledger.open(old).unit == "row"


def test_a_debit_for_another_unit_behind_the_ledgers_back_is_found(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=1), "t", unit="row")
    from sfumato.ledger import transaction

    monkeypatch.setattr(transaction, "check_unit_is", lambda *_: None)
    ledger.debit(COST, {}, "forged", unit=PATIENT)
    assert ledger.verify().problems == ("record 1: it is for another unit than the ledger's",)


def test_a_bound_unit_that_was_rewritten_is_found(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=1), "t")
    ledger.debit(COST, {}, "a", unit="row")
    from sfumato.ledger import transaction

    forged = lambda *_: PATIENT  # noqa: E731
    monkeypatch.setattr(transaction, "bound_unit", forged)
    monkeypatch.setattr(transaction, "bound_unit", forged)
    ledger.debit(COST, {}, "b", unit=PATIENT)
    assert ledger.verify().problems == (
        "record 2: it is for another unit than the ledger's",
        "record 2: its bound unit is wrong",
    )


def records(path):
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT text FROM sfumato_record ORDER BY sequence").fetchall()
    connection.close()
    return [text for (text,) in rows]


@pytest.mark.parametrize(
    ("request_json", "unit"),
    [
        ({"unit": None}, "row"),
        ({"unit": {"column": "u", "rows": 3}}, PrivacyUnit("u", 3)),
        ({"watch": "above", "limits": "x", "attribute": "day"}, "row"),
        ({"watch": "above", "limits": "x", "attribute": "day", "unit": "u: x: 3"},
         PrivacyUnit("u: x", 3)),
        ({"watch": "above", "limits": "x"}, "event"),
        ({"stream": 9, "window": None, "strategy": "optimal"}, "event"),
        ({"session": "s", "epoch": 1, "plan": "p"}, None),
        ({"unit": 5}, None),
        ({"unit": {"column": "u", "rows": 0}}, None),
        ([1], None),
    ],
)  # fmt: skip
def test_requests_of_older_versions_tell_their_unit(request_json, unit):
    assert unit_of_debit(Debited("k", json.dumps(request_json), COST, "")) == unit


def test_requests_of_today_tell_the_unit_that_older_records_would_have_told(tmp_path):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=1), "t")
    for kind, request in requests_of(PATIENT).items():
        if kind != "session":
            request(ledger)
    found = [unit_of_debit(Debited(e.key, e.request, e.cost, "")) for e in ledger.entries()]
    assert found == [PATIENT] * 4


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([None, *UNITS]),
    st.lists(st.tuples(st.sampled_from([None, *UNITS]), st.booleans()), max_size=10),
)
def test_whatever_comes_in_whatever_order_all_costs_are_of_one_unit(
    tmp_path_factory, opened, steps
):
    """A model of one line: the first unit that is named stays, and every other is refused."""
    place = tmp_path_factory.mktemp("l") / "l"
    first = Ledger.create(place, Budget(epsilon=1), "t", unit=opened, keep_open=True)
    second = Ledger.open(place, keep_open=True)
    bound, granted = opened, 0
    for number, (unit, at_first) in enumerate(steps):
        handle = first if at_first else second
        if None not in (unit, bound) and column_of(unit) != column_of(bound):
            with pytest.raises(LedgerError, match="do not add up"):
                handle.debit(COST, {}, f"{number}", unit=unit)
        else:
            handle.debit(COST, {}, f"{number}", unit=unit)
            bound, granted = bound or unit, granted + 1
        assert handle.unit == bound
    report = second.verify()
    assert (report.problems, report.unit, report.other_unit) == ((), bound, ())
    assert report.reserved == granted
    first.close()
    second.close()
