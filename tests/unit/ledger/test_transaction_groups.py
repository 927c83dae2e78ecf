# SPDX-License-Identifier: Apache-2.0
"""Group commit: one transaction for many callers, each with its own outcome."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from sfumato.errors import BudgetExhausted, KeyHeld, LedgerError, LedgerFrozen, StateChanged
from sfumato.ledger import transaction as transaction_module
from sfumato.ledger.entries import Debited, Frozen, State
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.ledger_limits import LIMITS
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import GroupCommit, WriteBatch, _Rows, _Wait
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from tests.shared.ledger_home import Home

TENTH = Cost.pure(Fraction(1, 10))


@pytest.fixture
def ledger(home):
    return home.create(keep_open=True)


@pytest.fixture
def transactions(monkeypatch):
    """How many writing transactions there were."""
    begun = []
    writing = Store.writing

    @contextmanager
    def counted(store):
        begun.append(store)
        with writing(store) as transaction:
            yield transaction

    monkeypatch.setattr(Store, "writing", counted)
    return begun


def debit_soon(ledger, key, cost=TENTH, analyst=None):
    debited = Debited(key, "{}", cost, "somebody", analyst)
    return ledger._commits.submit(
        lambda batch: transaction_module.debit(batch, debited, ()), (key,)
    )


def outcome(pending):
    try:
        return pending.result()
    except LedgerError as error:
        return type(error)
    except BudgetExhausted:
        return BudgetExhausted


def test_what_is_in_line_is_committed_at_once_and_in_order(ledger, transactions):
    line = [debit_soon(ledger, str(number)) for number in range(5)]
    assert [pending.result().sequence for pending in line] == [1, 2, 3, 4, 5]
    assert len(transactions) == 1
    assert ledger.verify().problems == ()


def test_a_refusal_in_a_group_harms_nobody_else(ledger, transactions):
    line = [debit_soon(ledger, str(n), Cost.pure(Fraction(3, 10))) for n in range(4)]
    line += [debit_soon(ledger, "1"), debit_soon(ledger, "last"), debit_soon(ledger, "late")]
    found = [outcome(pending) for pending in line]
    assert [each.key for each in found if not isinstance(each, type)] == ["0", "1", "2", "last"]
    assert found[3:] == [BudgetExhausted, KeyHeld, found[5], BudgetExhausted]
    assert len(transactions) == 1
    assert ledger.remaining().share == 0
    assert ledger.verify().problems == ()


def test_a_group_of_refusals_alone_writes_nothing(ledger, transactions):
    ledger.debit(Cost.pure(1), {}, "all")
    before = ledger.verify()
    line = [debit_soon(ledger, str(number)) for number in range(5)]
    assert [outcome(pending) for pending in line] == [BudgetExhausted] * 5
    assert ledger.verify() == before
    assert len(transactions) == 2


def test_changes_of_a_group_see_the_allowances_that_the_others_moved(ledger):
    ledger.allow("ann", Budget(epsilon="0.3"))
    line = [debit_soon(ledger, str(number), analyst="ann") for number in range(5)]
    assert [outcome(pending) for pending in line[3:]] == [BudgetExhausted] * 2
    assert ledger.allowances()[0].share == 1
    assert ledger.verify().problems == ()


def test_an_allowance_given_in_a_group_counts_the_debits_before_it_in_the_group(ledger):
    line = [debit_soon(ledger, str(number), analyst="ann") for number in range(2)]
    give = partial(transaction_module.allow, analyst="ann", budget=Budget(epsilon="0.3"))
    ledger._commits.submit(give)
    line += [debit_soon(ledger, str(number), analyst="ann") for number in range(2, 4)]
    assert isinstance(outcome(line[3]), type)
    assert outcome(line[2]).sequence == 4
    assert ledger.allowances()[0].share == 1
    assert ledger.verify().problems == ()


def test_a_page_that_forgets_its_own_group_overspends_and_is_found(ledger, monkeypatch):
    """The twin: what is read must hold what was added, or allowances are overspent."""
    ledger.allow("ann", Budget(epsilon="0.3"))

    def as_it_was(rows, key):
        rows.load([key])
        return rows._before[key]

    monkeypatch.setattr(_Rows, "get", as_it_was)
    line = [debit_soon(ledger, str(number), analyst="ann") for number in range(5)]
    assert not [pending for pending in line if isinstance(outcome(pending), type)]
    assert "more than the allowance of its analyst is spent" in str(ledger.verify().problems)


def test_one_key_twice_in_a_group_is_answered_once(ledger):
    epoch = ledger.debit(TENTH, {}, "epoch")
    line = [ledger.keep_soon("k", {}, bytes([number]), epoch) for number in range(3)]
    assert [(p.result().answer, p.result().is_new) for p in line] == [
        (b"\x00", True),
        (b"\x00", False),
        (b"\x00", False),
    ]
    first, second = debit_soon(ledger, "d"), debit_soon(ledger, "d")
    assert (first.result().key, outcome(second)) == ("d", KeyHeld)
    assert ledger.verify().problems == ()


def test_states_follow_each_other_in_a_group(ledger):
    epoch = ledger.debit(TENTH, {}, "epoch")
    versions = [1, 2, 2, 3]
    line = [
        ledger.keep_soon(str(n), {}, b"", epoch, states=[State("s", version, bytes([n]))])
        for n, version in enumerate(versions)
    ]
    assert [outcome(p) for p in line][2] == StateChanged
    assert ledger.state("s") == State("s", 3, b"\x03")
    assert [ledger.answer(str(n)) for n in range(4)] == [b"", b"", None, b""]
    assert ledger.verify().problems == ()


def test_freezing_takes_effect_within_a_group(ledger):
    first = debit_soon(ledger, "before")
    freeze = ledger._commits.submit(partial(transaction_module.set_frozen, fact=Frozen("now")))
    second = debit_soon(ledger, "after")
    assert outcome(second) == LedgerFrozen
    assert freeze.result() is None
    assert first.result().key == "before"


def test_a_failed_commit_fails_all_its_callers_and_keeps_nothing(ledger, monkeypatch):
    before = ledger.verify()
    line = [debit_soon(ledger, str(n), Cost.pure(Fraction(4, 10))) for n in range(4)]
    monkeypatch.setattr(WriteBatch, "write", fail_to_write)
    errors = []
    for pending in line:
        with pytest.raises(LedgerError, match="disk") as caught:
            pending.result()
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 4  # each raises its own
    monkeypatch.undo()
    assert ledger.verify() == before
    assert ledger.debit(Cost.pure(1), {}, "0").sequence == 1


def fail_to_write(_page):
    raise LedgerError("the disk is gone")


def test_half_a_change_is_never_kept(ledger):
    def half(batch):
        batch.append(Frozen("half"))
        raise LedgerError("the other half failed")

    before = ledger.verify()
    line = [debit_soon(ledger, "k"), ledger._commits.submit(half)]
    assert [outcome(pending) for pending in line] == [LedgerError] * 2
    assert ledger.verify() == before


def test_a_long_line_is_committed_in_several_transactions(home, transactions):
    ledger = home.create(keep_open=True)
    del transactions[:]
    epoch = ledger.debit(TENTH, {}, "epoch")
    line = [
        ledger.keep_soon(str(n), {}, b"x", epoch)
        for n in range(LIMITS.changes_per_transaction + 44)
    ]
    assert line[-1].result().is_new
    assert len(transactions) == 3
    assert all(pending.result().is_new for pending in line)
    assert ledger.verify().free == len(line)


def test_threads_are_granted_exactly_what_fits(ledger):
    found = []

    def work(number):
        for turn in range(4):
            key = f"{number}-{turn}"
            try:
                ledger.store(ledger.debit(Cost.pure(Fraction(1, 30)), {}, key), key.encode())
                found.append(key)
            except BudgetExhausted:
                return

    in_threads(work, 16)
    assert len(found) == 30
    assert all(ledger.answer(key) == key.encode() for key in found)
    report = ledger.verify()
    assert (report.problems, report.answered) == ((), 30)


def in_threads(work, number):
    threads = [threading.Thread(target=work, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("keep_open", [True, False])
def test_forks_among_busy_threads_harm_neither_side(home, keep_open):
    ledger = home.create(keep_open=keep_open)
    cost = Cost.pure(Fraction(1, 1000))

    def work(number):
        for turn in range(5):
            ledger.debit(cost, {}, f"{number}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(3):
        if (child := os.fork()) == 0:
            try:
                ledger.store(ledger.debit(cost, {}, f"child {number}"), b"child")
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    for thread in threads:
        thread.join()
    report = home.open().verify()
    assert (report.problems, report.reserved, report.answered) == ((), 20, 3)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux only: lists open files")
def test_no_file_of_the_database_is_open_between_calls_or_at_a_fork(tmp_path):
    """An open SQLite file that is carried over a fork loses its locks there."""

    def open_files():
        targets = [os.path.realpath(file.path) for file in os.scandir("/proc/self/fd")]
        return [name for name in targets if name.startswith(str(tmp_path))]

    ledger = Ledger.create(tmp_path / "a.ledger", Budget(epsilon=1), "t", "add-remove")
    entry = ledger.debit(TENTH, {}, "k")
    ledger.keep("f", {}, b"f", entry)
    with pytest.raises(BudgetExhausted):
        ledger.debit(Cost.pure(2), {}, "l")
    assert (ledger.answer("f"), ledger.verify().problems) == (b"f", ())
    assert open_files() == []
    kept_open = Ledger.open(tmp_path / "a.ledger", keep_open=True)
    kept_open.debit(TENTH, {}, "m")
    assert open_files() != []
    if (child := os.fork()) == 0:
        os._exit(len(open_files()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kept_open.debit(TENTH, {}, "n")
    kept_open.close()
    assert open_files() == []


def test_what_was_in_line_at_a_fork_stays_with_the_parent(ledger):
    pending = debit_soon(ledger, "k")
    if (child := os.fork()) == 0:
        try:
            pending.result()
        except LedgerError:
            ledger.debit(TENTH, {}, "of the child")
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert pending.result().key == "k"
    assert [entry.key for entry in ledger.entries()] == ["of the child", "k"]


def test_a_server_that_ended_a_connection_is_asked_again(postgres, tmp_path):
    home = Home.at("postgresql", tmp_path, postgres)
    ledger = home.create(keep_open=True)
    ledger.debit(TENTH, {}, "before")
    ended = home.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = current_setting('application_name')"
    )
    assert len(ended) >= 1
    home.wait_until_alone()
    ledger.debit(TENTH, {}, "after")
    assert ledger.verify().problems == ()
    ledger.close()


def test_the_lead_is_handed_on_and_those_who_wait_are_committed_together():
    commits, sizes = None, []
    first_is_in, go_on = threading.Event(), threading.Event()

    def commit(group):
        sizes.append(len(group))
        if len(sizes) == 1:
            first_is_in.set()
            go_on.wait()
        for pending in group:
            pending.succeed(pending.change(None))

    commits = GroupCommit(commit)
    results = []
    first = threading.Thread(target=lambda: results.append(commits.submit(lambda _: 0).result()))
    first.start()
    first_is_in.wait()
    line = [commits.submit(lambda _, n=n: n) for n in range(1, 6)]
    waits = [*line, line[0], line[0]]  # three threads wait for the same change
    others = [threading.Thread(target=lambda p=p: results.append(p.result())) for p in waits]
    for thread in others:
        thread.start()
    while len(commits._waits) < len(waits) and sizes == [1]:
        os.sched_yield()
    meanwhile = list(sizes)
    go_on.set()
    for thread in (first, *others):
        thread.join()
    assert meanwhile == [1]  # nobody commits while the first one does
    assert sorted(results) == [0, 1, 1, 1, 2, 3, 4, 5]
    assert sizes == [1, 5]


def test_an_interrupted_leader_fails_the_others_and_leaves_the_line_usable():
    interrupts = [KeyboardInterrupt()]

    def commit(group):
        if interrupts:
            raise interrupts.pop()
        for pending in group:
            pending.succeed(1)

    commits = GroupCommit(commit)
    leader, other = commits.submit(lambda _: 1), commits.submit(lambda _: 1)
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    with pytest.raises(LedgerError, match="KeyboardInterrupt"):
        other.result()
    assert commits.submit(lambda _: 1).result() == 1


def test_a_wait_that_is_interrupted_takes_its_change_out_of_the_line(monkeypatch):
    """The leader goes on with those who are left."""
    sizes = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def commit(group):
        sizes.append(len(group))
        first_is_in.set()
        go_on.wait()
        for pending in group:
            pending.succeed(pending.change(None))

    class Interrupted(_Wait):
        def __init__(self, pending, *, leads):
            super().__init__(pending, leads=leads)
            self.wake = self

        def acquire(self):
            raise KeyboardInterrupt

    commits = GroupCommit(commit)
    leader = threading.Thread(target=lambda: commits.submit(lambda _: 0).result())
    leader.start()
    first_is_in.wait()
    left, kept = commits.submit(lambda _: 1), commits.submit(lambda _: 2)
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.ledger.transaction._Wait", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            left.result()
    with pytest.raises(LedgerError, match="interrupted; ask again"):
        left.result()
    go_on.set()
    assert kept.result() == 2
    leader.join()
    assert sizes == [1, 1]
    assert commits.submit(lambda _: 3).result() == 3
