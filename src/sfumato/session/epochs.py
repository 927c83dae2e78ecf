# SPDX-License-Identifier: Apache-2.0
"""The epochs of a session: sparse vectors, debited one by one, each used by one process at a time.

    debit -> draw the threshold -> note "in use" -> tests ... -> over, at the first "above"
                                                 -> at rest, when the session is closed

The noisy threshold is in the ledger only while the session is at rest. Whoever goes on takes it out
first, in the same transaction that notes who uses it; so there are never two continuations, and an
epoch whose last outcome may be unknown (the process died, the disk was full) has no threshold that
could be tested again: it is lost, and another one is paid for. docs/proofs/online.md, Theorem 2.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Final, Protocol
from weakref import WeakValueDictionary

from sfumato.digest import canonical_json
from sfumato.domain.privacy_unit import Unit
from sfumato.errors import BudgetExhausted, LedgerError
from sfumato.ledger.account import Remaining
from sfumato.ledger.entries import Entry, KeptAnswer, State
from sfumato.ledger.ledger import Request
from sfumato.ledger.reader import Allowance
from sfumato.ledger.store import is_gone, this_process
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource
from sfumato.run.spine import DebitLedger, begin
from sfumato.session.session_plan import SessionParameters
from sfumato.vault.mechanisms.sparse import SparseVector

__all__ = ["Epochs", "MemoryLedger", "PendingWrite", "SessionLedger"]


# What a session needs of a ledger, and a stand-in that forgets everything with the process


class PendingWrite(Protocol):
    """An answer on its way into the ledger."""

    def result(self) -> KeptAnswer:
        """Wait until it is stored."""
        ...


class SessionLedger(DebitLedger, Protocol):
    """The part of `Ledger` that a session uses."""

    def keep_soon(
        self,
        key: str,
        request: Request,
        answer: bytes,
        paid_by: Entry,
        *,
        analyst: str | None = None,
        states: Sequence[State] = (),
        is_charged: bool = False,
    ) -> PendingWrite:
        """Store an answer that costs nothing more, and charge its debit to an allowance."""
        ...

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        ...

    def entry(self, key: str) -> Entry | None:
        """The latest debit of a key."""
        ...

    def keys_after(self, after: int, part: str) -> tuple[int, tuple[str, ...]]:
        """Keys of debits since a record whose request has a text in it, and the newest record."""
        ...

    def state(self, name: str) -> State | None:
        """A private state."""
        ...

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:
        """How many debits of this cost still fit."""
        ...

    def allowance(self, analyst: str) -> Allowance | None:
        """What an analyst may spend; None if nothing but the table binds."""
        ...

    def is_frozen(self) -> bool:
        """Whether nothing new may be asked."""
        ...

    def remaining(self, analyst: str | None = None) -> Remaining:
        """What one more debit may take."""
        ...


@dataclass(frozen=True, slots=True)
class _Written:
    stored: KeptAnswer

    def result(self) -> KeptAnswer:
        return self.stored


@dataclass(slots=True)
class MemoryLedger:
    """What stands in for a ledger: it forgets with the process, and limits nothing."""

    _entries: dict[str, Entry] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)
    _states: dict[str, State] = field(default_factory=dict)

    def debit(
        self,
        cost: Cost,
        request: Request,
        key: str,
        *,
        analyst: str | None = None,
        unit: Unit | None = None,  # noqa: ARG002
    ) -> Entry:
        """Note that a cost was taken."""
        if key in self._entries:
            raise LedgerError(f"request key {key!r} is in use; choose another key")
        entry = Entry(
            sequence=len(self._entries) + 1,
            time="",
            key=key,
            request=request.decode() if isinstance(request, bytes) else canonical_json(request),
            cost=cost,
            owner="",
            state="reserved",
            answer_sha256=None,
            hash="",
            analyst=analyst,
        )
        self._entries[key] = entry
        return entry

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Store what was paid for."""
        self._answers[entry.key] = answer
        self._write(states)
        return entry

    def burn(self, entry: Entry) -> Entry:
        """A burnt debit stays a debit."""
        return entry

    def keep_soon(
        self,
        key: str,
        request: Request,  # noqa: ARG002
        answer: bytes,
        paid_by: Entry,  # noqa: ARG002
        *,
        analyst: str | None = None,  # noqa: ARG002
        states: Sequence[State] = (),
        is_charged: bool = False,  # noqa: ARG002
    ) -> PendingWrite:
        """Store an answer at once."""
        is_new = key not in self._answers
        if is_new:
            self._answers[key] = answer
            self._write(states)
        return _Written(KeptAnswer(key, self._answers[key], is_new))

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        return self._answers.get(key)

    def entry(self, key: str) -> Entry | None:
        """The debit of a key."""
        return self._entries.get(key)

    def keys_after(self, after: int, part: str) -> tuple[int, tuple[str, ...]]:  # noqa: ARG002
        """None: it has what the session itself has measured."""
        return after, ()

    def state(self, name: str) -> State | None:
        """A private state."""
        return self._states.get(name)

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:  # noqa: ARG002
        """Without a ledger nothing else limits a session."""
        return 2**31

    def allowance(self, analyst: str) -> Allowance | None:  # noqa: ARG002
        """None: no analyst has an allowance without a ledger."""
        return None

    def is_frozen(self) -> bool:
        """False: without a ledger there is no curator."""
        return False

    def remaining(self, analyst: str | None = None) -> Remaining:  # noqa: ARG002
        """All of it: without a ledger nothing is counted."""
        return Remaining(Fraction(1), None, Fraction(1))

    def _write(self, states: Sequence[State]) -> None:
        self._states |= {state.name: state for state in states}


_LIVE: Final[WeakValueDictionary[str, Epochs]] = WeakValueDictionary()


class Epochs:
    """The epochs of one session, as its ledger has them, and the one that is open here."""

    def __init__(
        self,
        ledger: SessionLedger,
        plan: SessionParameters,
        name: str,
        random: WordSource,
        is_taken_over: bool,
    ) -> None:
        self._ledger, self._plan, self.name, self._random = ledger, plan, name, random
        self._is_taken_over = is_taken_over
        self._token = secrets.token_hex(8)
        self._vector: SparseVector | None = None
        self._entry: Entry | None = None
        self._version = 0
        self.used = self.lost = 0  # paid for; and lost with counts of records that never came
        self.measured = 0  # in whose place questions of many answers were measured
        self.bought = Fraction(0)  # spent on accuracy, in the currency of a part
        _LIVE[self._token] = self
        self.count()

    def count(self) -> int:
        """How many epochs were paid for, also those that were lost."""
        while self._ledger.entry(self.key(self.used + 1)) is not None:
            self.used += 1
        return self.used

    def key(self, number: int) -> str:
        """The request key of an epoch."""
        return f"{self.name} epoch {number}"

    @property
    def entry(self) -> Entry:
        """The debit that pays for the open epoch."""
        assert self._entry is not None  # noqa: S101
        return self._entry

    def has_one(self) -> bool:
        """Whether an epoch is open or at rest, so that the next test costs nothing."""
        if self._vector is not None:
            return True
        state = self._ledger.state(self.name)
        return state is not None and _noted_in(state)["phase"] == "at rest"

    def open(self) -> SparseVector:
        """The open epoch; the one that is at rest; or a new one, paid for first.

        Its debit names nobody: an allowance is charged for the epoch that one's question ends.

        Privacy: every sparse vector is drawn after its debit and continued once
        (docs/proofs/online.md, Theorems 1 and 2).
        """
        if self._vector is None:
            state = self._ledger.state(self.name)
            self._version = 0 if state is None else state.version
            noted = {"phase": "over"} if state is None else _noted_in(state)
            if noted["phase"] == "at rest":
                self._vector = self._taken(noted)
            else:
                if noted["phase"] == "in use":
                    self._check_lost(noted)
                self._vector = self._begun()
        return self._vector

    def over(self) -> State:
        """What is stored together with the answer that ends the open epoch."""
        return self._state("over")

    def end(self) -> None:
        """The epoch is over, and the ledger has it."""
        self._version += 1
        self._vector = self._entry = None

    def give_up(self) -> None:
        """The outcome of a test may not be stored: the epoch is never tested again."""
        self._vector = self._entry = None

    def rest(self) -> None:
        """Put the threshold of the open epoch into the ledger, for whoever goes on."""
        if self._vector is None:
            return
        vector, self._vector = self._vector, None  # from here on nothing is tested with it
        self._noted("rest", self._state("at rest", vector.state()))
        self._entry = None

    def close(self) -> None:
        """Rest for good. An epoch that cannot be put to rest is lost, as by a crash."""
        try:
            self.rest()
        finally:
            _LIVE.pop(self._token, None)

    def _begun(self) -> SparseVector:
        self.check_more()
        number = self.used + 1
        request = {"session": self.name, "epoch": number, "plan": self._plan.digest()}

        def start(entry: Entry) -> tuple[SparseVector, bytes, list[State]]:
            self.used, self._entry = number, entry
            vector = SparseVector(self._plan.sparse, self._random)
            return vector, json.dumps({"epoch": number}).encode(), [self._state("in use")]

        plan, key = self._plan, self.key(number)
        try:
            _, vector = begin(plan, self._ledger, plan.epoch_cost, request, key, start)
        except BaseException:
            self._entry = None
            raise
        self._version += 1
        return vector

    def amount_left(self) -> Fraction:
        """What all parts together still have: a mu^2, or an epsilon."""
        parts = self._plan.updates - self.count() - self.lost - self.measured
        return max(Fraction(0), parts * self._plan.part - self.bought)

    def parts_left(self) -> int:
        """How many epochs or measurements of many answers can still be paid for."""
        return floor(self.amount_left() / self._plan.part)

    def check_more(self) -> None:
        """Refuse another part of the budget where all of them are used."""
        if self.parts_left() < 1:
            raise BudgetExhausted(
                f"all {self._plan.updates} paid answers of the session are used, so no further "
                "question can be tested; stored answers stay, session.estimate(question) gives "
                "untested ones, and a new session needs a budget of its own"
            )

    def _taken(self, noted: dict[str, str]) -> SparseVector:
        """Take the threshold of an epoch out of the ledger, and note who has it."""
        self.count()
        self._entry = self._ledger.entry(self.key(int(noted["epoch"])))
        if self._entry is None:
            raise LedgerError("the debit of the session's open epoch is missing; restore a backup")
        self._noted("use", self._state("in use"))
        return SparseVector.restored(
            self._plan.sparse, bytes.fromhex(noted["vector"]), self._random
        )

    def _noted(self, word: str, state: State) -> None:
        key = f"{self.name} {word} {state.version}"
        request = {"session": self.name, word: state.version}
        stored = self._ledger.keep_soon(key, request, b"{}", self.entry, states=[state]).result()
        if not stored.is_new:
            raise LedgerError("another process has taken the session's epoch; ask again")
        self._version = state.version

    def _state(self, phase: str, vector: bytes = b"") -> State:
        noted = {
            "phase": phase,
            "epoch": str(self.used if self._entry is None else self.entry.key.rsplit(" ", 1)[1]),
            "owner": this_process(),
            "token": self._token,
            "vector": vector.hex(),
        }
        return State(self.name, self._version + 1, json.dumps(noted, sort_keys=True).encode())

    def _check_lost(self, noted: dict[str, str]) -> None:
        """An epoch that is in use elsewhere is not paid for again, unless its user is gone."""
        if noted["owner"] == this_process():
            is_lost = noted["token"] == self._token or noted["token"] not in _LIVE
        else:
            is_lost = is_gone(noted["owner"])
        if not (is_lost or self._is_taken_over):
            raise LedgerError(
                "the session is in use by another process or session object, and an epoch is used "
                "by one at a time; close it there, or open this one with take_over=True if that "
                "one is known to be gone (its epoch is lost)"
            )


def _noted_in(state: State) -> dict[str, str]:
    noted: dict[str, str] = json.loads(state.data)
    return noted
