# SPDX-License-Identifier: Apache-2.0
"""Children of the fault tests: they use a ledger until they are killed or refused."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from fractions import Fraction

from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.entries import State
from sfumato.ledger.store import LedgerWitness
from sfumato.ledger.transaction import WriteBatch
from sfumato.privacy.cost import Cost

COST = Cost.pure(Fraction(1, 1000))

POINTS = (
    "before begin",
    "after begin",
    "after update",
    "before commit",
    "after commit",
    "after head",
    "after noise",
    "before send",
    "during send",
    "after send",
)


def fork(work):
    """Run ``work`` in a child; it must end by itself or be killed. Returns its process number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def nothing(_point):
    """Go on."""


class Killer:
    """Ends its own process, as if the power had gone, at the n-th visit of a named point."""

    def __init__(self, point, visit):
        self.point, self.left = point, visit

    def __call__(self, point):
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def put_points(at):
    """Make the ledger code of this process call ``at`` at the named points."""
    advance, write = tables.advance, WriteBatch.write
    append, last = LedgerWitness.append, LedgerWitness.last

    def advance_at(*arguments):
        at("after begin")
        done = advance(*arguments)
        at("after update")
        return done

    def write_at(batch):
        written = write(batch)
        at("before commit")
        return written

    def append_at(witness, head):
        at("after commit")
        append(witness, head)
        at("after head")

    def last_at(witness):
        at("before begin")
        return last(witness)

    tables.advance, WriteBatch.write = advance_at, write_at
    LedgerWitness.append, LedgerWitness.last = append_at, last_at


def answer_and_send(ledger, key, sent, at=nothing):
    """What a server does with one request: the answer leaves as one line of a file."""

    def produce():
        noise = os.urandom(8).hex().encode()
        at("after noise")
        return noise

    answer = ledger.answer_once(COST, {"key": key}, key, produce)
    send(key, answer, sent, at)


def open_epoch(ledger):
    """What a session does first: pay once, and keep a private state."""
    entry = ledger.debit(COST, {"epoch": 1}, "epoch")
    ledger.store(entry, b"open", states=[State("session", 1, b"begun")])


def keep_and_send(ledger, key, sent, at=nothing):
    """What a session does with a question that costs nothing more: its state moves with it."""
    answer = ledger.answer(key)
    if answer is None:
        noise = os.urandom(8).hex().encode()
        at("after noise")
        state = State("session", ledger.state("session").version + 1, noise)
        epoch = ledger.entry("epoch")
        answer = ledger.keep(key, {"key": key}, noise, epoch, states=[state]).answer
    send(key, answer, sent, at)


def send(key, answer, sent, at=nothing):
    at("before send")
    line = f"{key} {answer.decode()}\n".encode()
    with opened(sent) as file:
        os.write(file, line[:5])
        at("during send")
        os.write(file, line[5:])
    at("after send")


@contextmanager
def opened(path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield file
    finally:
        os.close(file)


def released(path):
    """The answers that left, also those of which only a part did."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [tuple(line.decode().split(" ")) for line in lines if b" " in line]
