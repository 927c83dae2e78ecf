# SPDX-License-Identifier: Apache-2.0
"""Connections are kept only if all went well, and closed if anything did not."""

from __future__ import annotations

import os
import threading

import pytest

from sfumato.ledger.store import Connections, open_store


class Made:
    """Connections that were made, and whether they are closed."""

    def __init__(self):
        self.closed = []

    def connect(self):
        made, number = self, len(self.closed)
        self.closed.append(False)

        class Connection:
            def close(self):
                made.closed[number] = True

        return Connection()


@pytest.fixture
def made():
    return Made()


def fine(_connection):
    """Begin."""


def failing(_connection):
    raise ValueError("begin")


def test_a_connection_serves_one_turn_unless_it_is_kept(made):
    connections = Connections(made.connect, keep_open=False)
    for _ in range(2):
        with connections.one(fine):
            pass
    assert made.closed == [True, True]


def test_a_kept_connection_serves_again_until_all_are_closed(made):
    connections = Connections(made.connect, keep_open=True)
    for _ in range(2):
        with connections.one(fine):
            pass
    assert made.closed == [False]
    connections.close()
    assert made.closed == [True]
    with connections.one(fine):
        pass
    assert made.closed == [True, False]


@pytest.mark.parametrize("keep_open", [True, False])
def test_an_error_closes_its_connection(keep_open, made):
    connections = Connections(made.connect, keep_open=keep_open)
    with pytest.raises(ValueError, match="body"), connections.one(fine):
        raise ValueError("body")
    assert made.closed == [True]
    with pytest.raises(ValueError, match="begin"), connections.one(failing):
        pytest.fail("the body runs only after a good beginning")
    assert made.closed == [True, True]
    with connections.one(fine):
        pass  # nobody waits for those


def test_a_kept_connection_that_went_stale_is_replaced(made):
    connections = Connections(made.connect, keep_open=True)
    with connections.one(fine) as first:
        pass

    def begin(connection):
        if connection is first:
            raise ValueError("ended by the server")

    with connections.one(begin) as second:
        assert second is not first
    assert made.closed == [True, False]


def test_a_connection_that_cannot_be_made_leaves_no_user_behind():
    connections = Connections(lambda: failing(None), keep_open=True)
    with pytest.raises(ValueError, match="begin"), connections.one(fine):
        pass
    assert connections._users == []


def test_what_is_forgotten_is_closed(made):
    connections = Connections(made.connect, keep_open=True)
    with connections.one(fine):
        pass
    del connections
    assert made.closed == [True]


def test_a_fork_closes_what_is_idle_and_the_child_begins_with_nothing(made):
    connections = Connections(made.connect, keep_open=True)
    with connections.one(fine):
        pass
    child = os.fork()
    if child == 0:
        os._exit(len(connections._idle) + len(connections._users) + connections._paused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert made.closed == [True]
    assert not connections._paused


def test_a_fork_waits_for_other_threads_and_holds_back_new_ones(made):
    connections = Connections(made.connect, keep_open=True)
    inside, leave, paused = threading.Event(), threading.Event(), threading.Event()

    def work():
        with connections.one(fine):
            inside.set()
            leave.wait()

    def pause():
        connections._pause()
        paused.set()

    first = threading.Thread(target=work)
    first.start()
    inside.wait()
    pausing = threading.Thread(target=pause)
    pausing.start()
    while not connections._paused:
        os.sched_yield()
    assert not paused.is_set()  # a thread is inside
    second = threading.Thread(target=work)
    inside.clear()
    second.start()
    leave.set()
    pausing.join()
    assert made.closed == [True]  # not kept, although all went well
    assert not inside.is_set()
    connections._resume()
    second.join()
    first.join()
    assert inside.is_set()
    assert made.closed == [True, False]


def test_a_transaction_that_is_not_kept_is_undone_at_once(tmp_path):
    store = open_store(tmp_path / "t.db", keep_open=True)
    with store.writing() as transaction:
        transaction.change("CREATE TABLE x (y INTEGER)")
    with store.writing() as transaction:
        transaction.change("INSERT INTO x VALUES (1)")
        transaction.is_kept = False
    (kept,) = store.connections._idle
    assert not kept.in_transaction
    with store.reading() as transaction:
        assert transaction.row("SELECT count(*) FROM x") == (0,)
    store.close()
    assert store.connections._idle == []
