# SPDX-License-Identifier: Apache-2.0
"""Full and read-only disks: a LedgerError, nothing released, nothing half written."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from tests.faults.ledger_children import answer_and_send, fork, released

COST = Cost.pure(Fraction(1, 1000))


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "d.ledger", Budget(epsilon=2), "t", "add-remove")
    made.store(made.debit(COST, {}, "before"), b"kept")
    return made


@pytest.mark.parametrize("room", [0, 3000, 16_000])
def test_a_full_disk_refuses_and_releases_nothing_that_is_not_debited(ledger, tmp_path, room):
    """No file of the child may grow beyond the limit, as on a disk without space."""
    sent = tmp_path / "sent"

    def work():
        limit = Path(ledger.place).stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            for number in range(2000):
                answer_and_send(ledger, str(number), sent)
        except LedgerError:
            os._exit(7)

    _, status = os.waitpid(fork(work), 0)
    assert os.waitstatus_to_exitcode(status) == 7
    opened = Ledger.open(ledger.place)
    report = opened.verify()
    assert report.problems == ()
    assert report.burnt <= 1
    for key, answer in released(sent):
        assert opened.answer(key) == answer.encode()
    assert opened.answer("before") == b"kept"
    answer_and_send(opened, "space again", sent)


def test_a_full_disk_for_the_head_file_refuses_and_the_debit_stays_spent(ledger):
    """The debit is committed but unwitnessed, so it is not returned; its units are gone."""
    head = Path(ledger.place + ".head")
    kept = head.read_bytes()
    head.unlink()
    head.mkdir()
    with pytest.raises(LedgerError, match="head file"):
        ledger.debit(COST, {}, "k")
    head.rmdir()
    head.write_bytes(kept)
    assert Ledger.open(ledger.place).verify().is_whole


@contextmanager
def read_only(ledger):
    """The disk of a ledger takes no more writes."""
    connections = ledger._chain.store.connections
    connect = connections._connect

    def connect_to_read():
        connection = connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    connections._connect = connect_to_read
    yield
    connections._connect = connect


def test_a_read_only_ledger_still_answers_but_refuses_debits(ledger):
    with read_only(ledger):
        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.debit(COST, {}, "k")
        assert ledger.answer("before") == b"kept"
    assert ledger.spent().debits == 1
    assert ledger.verify().is_whole


def test_a_failing_store_leaves_the_debit_reserved_and_sends_nothing(ledger, tmp_path):
    sent = tmp_path / "sent"
    with ExitStack() as stack:

        def produce_on_a_failing_disk():
            stack.enter_context(read_only(ledger))
            return b"noise that must not leave"

        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.answer_once(COST, {}, "k", produce_on_a_failing_disk)
    assert released(sent) == []
    assert ledger.answer("k") is None
    assert ledger.verify().reserved == 1
