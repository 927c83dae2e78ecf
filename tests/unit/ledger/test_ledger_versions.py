# SPDX-License-Identifier: Apache-2.0
"""Ledgers of older versions open, verify and go on.

``data/version1.sql`` and its head file are a ledger that sfumato wrote when records had version 1:
tables of requests and answers only, no analysts, states, free answers or freezing.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.ledger.entries import VERSION, Record, State
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

DATA = Path(__file__).parent / "data"


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "old.ledger"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "version1.sql").read_text())
    connection.close()
    shutil.copy(DATA / "version1.ledger.head", tmp_path / "old.ledger.head")
    return path


def test_a_ledger_of_version_1_opens_and_is_whole(place):
    assert Ledger.exists(place)
    ledger = Ledger.open(place)
    assert (ledger.budget, ledger.table_id) == (Budget(epsilon=1, delta=1e-9), "people#7f3a")
    assert [entry.state for entry in ledger.entries()] == [
        "answered",
        "burnt",
        "answered",
        "reserved",
    ]
    assert ledger.answer("a") == b"\x00noisy\xff"
    assert ledger.answer("b") == b"answer b"
    report = ledger.verify()
    assert (report.problems, report.records, report.head_file_checked) == ((), 8, True)
    assert (report.free, report.states, report.is_frozen) == (0, 0, False)


def test_a_ledger_of_version_1_goes_on_with_everything_new(place):
    ledger = Ledger.open(place)
    cost = Cost.gaussian(Fraction(1, 500))
    ledger.store(ledger.entry("c"), b"answer c")
    ledger.allow("ann", Budget(mu=1))
    entry = ledger.debit(cost, {}, "d", analyst="ann", states=[State("s", 1, b"x")])
    ledger.keep("f", {}, b"free", entry)
    ledger.freeze("now")
    reopened = Ledger.open(place)
    assert reopened.verify().problems == ()
    assert (reopened.answer("c"), reopened.answer("f")) == (b"answer c", b"free")
    assert reopened.state("s") == State("s", 1, b"x")


def test_what_is_added_to_an_old_ledger_is_refused_by_older_versions(place):
    """They read version 1 only, so they cannot pass over an allowance or a frozen ledger."""
    ledger = Ledger.open(place)
    ledger.burn(ledger.entry("c"))
    connection = sqlite3.connect(place)
    texts = [text for (text,) in connection.execute("SELECT text FROM sfumato_record")]
    connection.close()
    assert [json.loads(text)["version"] for text in texts] == [1] * 8 + [VERSION]


def test_old_records_are_read_with_the_meaning_they_had(place):
    connection = sqlite3.connect(place)
    rows = connection.execute("SELECT text, hash FROM sfumato_record").fetchall()
    connection.close()
    for text, digest in rows:
        record = Record.read(text)
        assert Record.hash_of(text) == digest
        assert record.text() == text  # written anew it is the same line
        assert not record.frozen
