# SPDX-License-Identifier: Apache-2.0
"""What a ledger says: stored answers, debits, what is spent and what is left.

`LedgerReader` is the part of `sfumato.ledger.ledger.Ledger` that changes nothing.

`verify` returns a `Verification`, the proof that a ledger is whole: every record, every unit, every
answer, checked again. It replays the chain from its first record (`Replay`) by the
rules that it must have kept: each debit is recomputed from its cost, for the table and for its
analyst, and each record must follow from those before it. What the chain says in the end is what
the tables and the head file must hold: the account, the requests, the answers, the states and the
allowances are compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from sfumato.digest import canonical_json, sha256
from sfumato.domain.privacy_unit import Unit, check_unit, protects_alike
from sfumato.errors import BudgetError, LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account, Price, Remaining
from sfumato.ledger.entries import (
    GENESIS,
    Allowed,
    Answered,
    Burnt,
    Changed,
    Commitment,
    Debited,
    Entry,
    Fact,
    Frozen,
    Kept,
    Opened,
    Record,
    Renewed,
    State,
    Unfrozen,
    Vouched,
    Withdrawn,
    entries_of,
    unit_of_debit,
)
from sfumato.ledger.store import LedgerWitness, WitnessLine
from sfumato.ledger.transaction import (
    RecordChain,
    account_of,
    check_unit_is,
    chooses_between_filters,
)
from sfumato.privacy.budget import Budget, Number, exact
from sfumato.privacy.cost import Cost, composed_epsilon, rho_of
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from sfumato.domain.privacy_unit import Unit
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.store import Store, Transaction

__all__ = [
    "Allowance",
    "Change",
    "LedgerReader",
    "Replay",
    "Spent",
    "Verification",
    "export_lines",
    "verify",
    "verify_export",
]


@dataclass(slots=True)
class Replay:
    """The chain so far, what follows from it, and what is wrong with it."""

    budget: Budget
    account: Account
    chain: list[tuple[Record, str]] = field(default_factory=list)  # without free answers
    free: dict[str, tuple[int, str]] = field(default_factory=dict)  # by key: record, hash of bytes
    hashes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    states: dict[str, tuple[int, Commitment]] = field(default_factory=dict)
    allowances: dict[str, Account] = field(default_factory=dict)
    is_frozen: bool = False
    unit: Unit | None = None
    other_unit: list[int] = field(default_factory=list)  # older debits for another unit
    _is_bound: bool = False  # by a debit, not by the first record
    _is_renewed: bool = False
    _all_costs: list[Cost] = field(default_factory=list)
    _total: Budget | None = None  # since the curator has changed it
    _totals: list[Budget] = field(default_factory=list)  # all there were
    _costs: dict[str, list[Cost]] = field(default_factory=dict)
    _of_nobody: dict[int, Cost] = field(default_factory=dict)  # debits that name no analyst
    _open: set[int] = field(default_factory=set)
    _paying: set[int] = field(default_factory=set)
    _held: dict[int, str] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, str, str]], budget: Budget) -> Replay:
        """Replay (sequence, hash, text) of all records."""
        replay = cls(budget, Account(budget))
        replay._totals.append(budget)
        for row in rows:
            replay._follow(*row)
        return replay

    def _follow(self, sequence: int, digest: str, text: str) -> None:
        place, previous = len(self.hashes), self.hashes[-1] if self.hashes else GENESIS
        self.hashes.append(digest)
        try:
            record = Record.read(text)
            after = self._account_after(record)
            self.problems += [f"record {sequence}: {message}" for message in self._apply(record)]
        except (LedgerError, BudgetError) as error:
            self.problems.append(f"record {sequence}: {error}")
            return
        checks = {
            "place": (place, sequence),
            "number": (place, record.sequence),
            "previous hash": (previous, record.previous),
            "hash": (Record.hash_of(text), digest),
            "balance": (after.spent, record.spent),
            "pure balance": (after.pure_spent, record.pure_spent),
            "delta balance": (after.delta_spent, record.delta_spent),
            "frozen mark": (self.is_frozen, record.frozen),
        }
        if record.version >= 3:
            checks["bound unit"] = (self.unit if self._is_bound else None, record.unit)
            checks["total"] = (self._total, record.total)
        self.problems += [
            f"record {sequence}: its {part} is wrong"
            for part, (right, seen) in checks.items()
            if right != seen
        ]
        if after.is_overdrawn:
            self.problems.append(f"record {sequence}: more than the budget is spent")
        if isinstance(record.fact, Opened) != (place == 0):
            self.problems.append(f"record {sequence}: a ledger is opened by its first record only")
        if not isinstance(record.fact, Kept):  # of which there may be millions
            self.chain.append((record, digest))
        self.account = Account(self.budget, record.spent, record.pure_spent, record.delta_spent)

    def _account_after(self, record: Record) -> Account:
        fact = record.fact
        if isinstance(fact, Changed):
            self.budget = self._total = fact.budget
            after = account_of(fact.budget, self._all_costs)
            return Account(fact.budget).emptied() if after is None else after
        return self.account.plus(fact.cost) if isinstance(fact, Debited) else self.account

    def _apply(self, record: Record) -> Iterator[str]:
        """Take a record in; yield the rules that it breaks."""
        match record.fact:
            case Opened(unit=unit):
                self.unit = unit
            case Debited():
                yield from self._check_unit(record)
                yield from self._apply_debit(record.sequence, record.fact)
            case Answered(debit=debit):
                yield from self._close_debit(debit)
            case Burnt(debit=debit):
                yield from self._close_debit(debit)
                self._paying.discard(debit)
                self._keys.discard(self._held.get(debit, ""))
            case Kept():
                yield from self._apply_free_answer(record.sequence, record.fact)
            case Allowed(analyst, budget):
                self.allowances[analyst] = Account(budget).plus_all(self._costs.get(analyst, []))
            case Withdrawn(analyst):
                if self.allowances.pop(analyst, None) is None:
                    yield "it withdraws an allowance that was not given"
            case Changed(budget):
                before = self.account.budget
                if not (budget.is_within(before) or account_of(budget, self._all_costs)):
                    yield "what was spent does not fit into its total, which is not a lower one"
                if chooses_between_filters(self._totals, budget, self._all_costs):
                    yield "it chooses between two filters after Gaussian noise was spent"
                self._totals.append(budget)
            case Renewed(allowances=allowances):
                if self._is_renewed:
                    yield "it begins the next period a second time"
                self._is_renewed = True
                if dict(allowances) != {n: a.budget for n, a in self.allowances.items()}:
                    yield "it gives other allowances to the next period than there were"
            case Frozen() | Unfrozen():
                if self.is_frozen == isinstance(record.fact, Frozen):
                    yield "it freezes or unfreezes a ledger that is so already"
                self.is_frozen = isinstance(record.fact, Frozen)
        if isinstance(record.fact, Debited | Answered | Kept):
            for state in record.fact.states:
                held = self.states.get(state.name)
                if state.version != (0 if held is None else held[1].version) + 1:
                    yield f"it writes state {state.name!r} out of order"
                self.states[state.name] = (record.sequence, state)

    def _check_unit(self, record: Record) -> Iterator[str]:
        """Since version 3 a debit must be for the ledger's unit; older ones were not compared."""
        assert isinstance(record.fact, Debited)  # noqa: S101
        unit = unit_of_debit(record.fact)
        if self.unit is None:
            self.unit, self._is_bound = unit, unit is not None
        elif unit is not None and not protects_alike(self.unit, unit):
            self.other_unit.append(record.sequence)
            if record.fact.unit is not None:
                yield "it is for another unit than the ledger's"

    def _apply_debit(self, sequence: int, fact: Debited) -> Iterator[str]:
        self._open.add(sequence)
        self._paying.add(sequence)
        self._held[sequence] = fact.key
        self._all_costs.append(fact.cost)
        yield from self._take_key(fact.key)
        if fact.analyst is None:
            self._of_nobody[sequence] = fact.cost
        else:
            yield from self._apply_charge(fact.analyst, fact.cost)

    def _apply_charge(self, analyst: str, cost: Cost) -> Iterator[str]:
        self._costs.setdefault(analyst, []).append(cost)
        allowance = self.allowances.get(analyst)
        if allowance is not None:
            self.allowances[analyst] = after = allowance.plus(cost)
            if after.is_overdrawn:
                yield "more than the allowance of its analyst is spent"

    def _apply_free_answer(self, sequence: int, fact: Kept) -> Iterator[str]:
        yield from self._take_key(fact.key)
        self.free[fact.key] = (sequence, fact.answer_sha256)
        if fact.debit not in self._paying:
            yield f"debit {fact.debit} does not pay for it"
        if fact.is_charged and fact.analyst is not None and fact.debit in self._of_nobody:
            yield from self._apply_charge(fact.analyst, self._of_nobody[fact.debit])

    def _take_key(self, key: str) -> Iterator[str]:
        if self.is_frozen:
            yield "it came while the ledger was frozen"
        if key in self._keys:
            yield "its key was used before and not burnt"
        self._keys.add(key)

    def _close_debit(self, debit: int) -> Iterator[str]:
        if debit not in self._open:
            yield f"it closes debit {debit}, which is not open"
        self._open.discard(debit)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a replay of a ledger found; no ``problems`` means it is whole."""

    records: int
    answered: int
    reserved: int
    burnt: int
    spent_units: int
    total_units: int
    head: str
    head_file_checked: bool
    problems: tuple[str, ...] = field(default=())
    free: int = 0
    states: int = 0
    is_frozen: bool = False
    unit: Unit | None = None
    other_unit: tuple[int, ...] = ()  # debits of older versions that were made for another unit

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, changed or overspent."""
        return not self.problems


def verify(store: Store, witness: LedgerWitness | None, budget: Budget) -> Verification:
    """Replay the chain; raise `LedgerError` only if the ledger is behind its head file."""
    lines = [] if witness is None else list(witness.all())
    with store.reading() as transaction:
        replay = Replay.of(tables.all_records(transaction), budget)
        entries = entries_of(replay.chain)
        problems = [
            *replay.problems,
            *_check_account(transaction, replay),
            *_check_requests(transaction, replay, entries),
            *_check_answers(transaction, entries),
            *_check_free(transaction, replay),
            *_check_states(transaction, replay),
            *_check_allowances(transaction, replay),
        ]
    _check_witness(lines, replay.hashes, store.name)
    if witness is not None and not lines and len(replay.hashes) > 1:
        problems.append("the head file is missing or empty")
    stages = [entry.state for entry in entries]
    return Verification(
        records=len(replay.hashes),
        answered=stages.count("answered"),
        reserved=stages.count("reserved"),
        burnt=stages.count("burnt"),
        spent_units=replay.account.spent,
        total_units=UNITS,
        head=replay.hashes[-1] if replay.hashes else GENESIS,
        head_file_checked=bool(lines),
        problems=tuple(problems),
        free=len(replay.free),
        states=len(replay.states),
        is_frozen=replay.is_frozen,
        unit=replay.unit,
        other_unit=tuple(replay.other_unit),
    )


def export_lines(records: Iterable[tuple[int, str, str]]) -> Iterator[str]:
    """Yield (sequence, hash, text) as lines of JSON, from which the chain can be checked again."""
    for _, digest, text in records:
        yield f'{{"hash":"{digest}","record":{text}}}\n'


def verify_export(lines: Iterable[str]) -> Replay:
    """Return the replay of exported lines; its ``problems`` say what is wrong with them.

    Hashes, costs, totals and allowances are recomputed. What an export does not have is not
    checked: answers, private states, and whether newer records were left out.

    Raises:
        LedgerError: There is no record, or the first one opens no ledger.
    """
    rows: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines):
        try:
            document = json.loads(line)
            digest, text = str(document["hash"]), canonical_json(document["record"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise LedgerError(
                f"line {number + 1} is no record of an exported ledger; export it again with "
                "`sfumato ledger export`"
            ) from None
        rows.append((number, digest, text))
    first = Record.read(rows[0][2]).fact if rows else None
    if not isinstance(first, Opened):
        raise LedgerError("an exported ledger begins with the record that opened it; export all")
    return Replay.of(rows, first.budget)


def _check_account(transaction: Transaction, replay: Replay) -> Iterator[str]:
    row = tables.account(transaction)
    hashes = replay.hashes
    if not replay.chain or (row.sequence, row.head) != (len(hashes) - 1, hashes[-1]):
        yield "the account does not point to the last record"
    if replay.chain and row.spent != replay.account.spent:
        yield "the units spent in the account are not those of the last record"
    if row.total != UNITS:
        yield "the total units of the account are wrong"


def _check_requests(
    transaction: Transaction, replay: Replay, entries: tuple[Entry, ...]
) -> Iterator[str]:
    closing = {
        record.fact.debit: record.sequence
        for record, _ in replay.chain
        if isinstance(record.fact, Answered | Burnt)
    }
    latest = {entry.key: entry for entry in entries}  # a key may come again after a burnt debit
    for row in tables.all_requests(transaction):
        entry = latest.pop(row.key, None)
        if entry is None:
            yield f"request {row.debit}: no record names its key"
        elif (row.debit, row.state, row.closed) != (
            entry.sequence,
            entry.state,
            closing.get(entry.sequence),
        ):
            yield f"request {row.debit}: its state is not that of its record"
    for entry in latest.values():
        yield f"record {entry.sequence}: its request is missing"


def _check_answers(transaction: Transaction, entries: tuple[Entry, ...]) -> Iterator[str]:
    hashes = {e.sequence: e.answer_sha256 for e in entries if e.state == "answered"}
    for debit, data in tables.all_answers(transaction):
        if debit not in hashes:
            yield f"answer {debit}: no record says that it was stored"
        elif hashes.pop(debit) != _hash(data):
            yield f"answer {debit}: its bytes changed"
    for debit in hashes:
        yield f"answer {debit}: it is missing"


def _check_free(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.free)
    for row in tables.all_free(transaction):
        if row.key not in recorded:
            yield f"free answer {row.sequence}: no record says that it was stored"
        elif recorded.pop(row.key) != (row.sequence, _hash(row.data)):
            yield f"free answer {row.sequence}: its record or its bytes changed"
    for sequence, _ in recorded.values():
        yield f"free answer {sequence}: it is missing"


def _check_states(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.states)
    for sequence, sealed in tables.all_states(transaction):
        expected = recorded.pop(sealed.state.name, None)
        if expected is None:
            yield f"state {sealed.state.name!r}: no record says that it was written"
        elif expected != (sequence, sealed.commitment):
            yield f"state {sealed.state.name!r}: its record, version or bytes changed"
    for name in recorded:
        yield f"state {name!r}: it is missing"


def _check_allowances(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.allowances)
    for row in tables.allowances(transaction):
        account = recorded.pop(row.analyst, None)
        if account is None:
            yield f"allowance of {row.analyst!r}: no record says that it was given"
        elif account != row.account:
            yield f"allowance of {row.analyst!r}: its budget or the units spent changed"
    for analyst in recorded:
        yield f"allowance of {analyst!r}: it is missing"


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def _check_witness(lines: list[WitnessLine], hashes: list[str], name: str) -> None:
    for line in lines:
        if line.sequence >= len(hashes) or hashes[line.sequence] != line.hash:
            raise LedgerError(
                f"the ledger {name} is behind its head file: record {line.sequence} is missing or "
                "different, so an older copy was restored; restore the newest one"
            )


CURATORS: Final = (Allowed, Changed, Frozen, Renewed, Unfrozen, Vouched, Withdrawn)
"""The kinds of records that only a curator writes."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent: the costs so far, composed as if they had been fixed in advance.

    The guarantee is the budget, which holds however the debits were chosen. ``epsilon`` at
    ``delta`` tells the reader what this list of costs amounts to; None where no delta is given.
    """

    share: Fraction
    debits: int
    epsilon: float | None
    delta: Fraction | None
    rho: Fraction
    mu_squared: Fraction
    pure_epsilon: Fraction
    event_delta: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Change:
    """What a curator changed, and when."""

    sequence: int
    time: str
    fact: Fact

    def describe(self) -> str:
        """Return it in words, with its reason where one was given."""
        match self.fact:
            case Changed(budget, by, reason):
                return f"total set to {budget.describe()} by {by}: {reason}"
            case Allowed(analyst, budget):
                return f"allowance of {analyst} set to {budget.describe()}"
            case Withdrawn(analyst):
                return f"allowance of {analyst} withdrawn"
            case Renewed(period, table_id, budget, by=by, reason=reason):
                about = f"the table {table_id} and {budget.describe()}"
                return f"period {period} begun, with {about}, by {by}: {reason}"
            case Frozen(reason):
                return f"frozen: {reason}"
            case Unfrozen(reason):
                return f"unfrozen: {reason}"
            case _:
                return "vouched for, because its head file was lost"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one analyst may spend within the budget of the table."""

    analyst: str
    account: Account

    @property
    def budget(self) -> Budget:
        """The whole allowance."""
        return self.account.budget

    @property
    def share(self) -> Fraction:
        """The part of it that is spent; above 1 if it was lowered below what was spent."""
        return Fraction(self.account.spent, UNITS)

    def remaining(self) -> Remaining:
        """Return what one more debit may take of it."""
        return self.account.remaining()


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """A ledger to be read; see `sfumato.ledger.ledger.Ledger`."""

    place: str
    opened: Opened
    _chain: RecordChain = field(repr=False)

    @property
    def budget(self) -> Budget:
        """The total that all debits together may take, as of now."""
        return self._chain.last().total or self.opened.budget

    @property
    def table_id(self) -> str:
        """The name of the table."""
        return self.opened.table_id

    @property
    def neighbours(self) -> Neighbours:
        """Which two tables must be hard to tell apart."""
        return self.opened.neighbours

    @property
    def unit(self) -> Unit | None:
        """Whose presence is protected; None before the first debit if nobody has said."""
        unit = self.opened.unit
        return self._chain.bound(self.opened) if unit is None else unit

    def check_unit(self, unit: Unit) -> None:
        """Refuse a unit that debits could not be made for, before any work is done.

        The debit itself checks again, in its transaction.

        Args:
            unit: Whose presence a debit would protect.

        Raises:
            LedgerError: The ledger is for another unit.
        """
        check_unit_is(self.unit, check_unit(unit))

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer of a key, the same bytes for ever; None if there is none.

        Args:
            key: The key of a request.

        Returns:
            The bytes that were stored, or None.
        """
        with self._chain.store.reading() as transaction:
            row = tables.answer_with_record(transaction, key)
            if row is None:
                row = tables.free_with_record(transaction, key)
        if row is None:
            return None
        data, text = row
        fact = Record.read(text).fact
        if (
            data is None
            or not isinstance(fact, Answered | Kept)
            or fact.answer_sha256 != sha256(data)
        ):
            raise LedgerError(
                f"the stored answer of request key {key!r} is damaged; restore the newest backup"
            )
        return data

    def entries(
        self, *, analyst: str | None = None, after: int = 0, at_most: int | None = None
    ) -> tuple[Entry, ...]:
        """Return the debits, oldest first, and what became of them.

        ``analyst`` selects those that were charged to one, by the debit or by the answer it paid
        for; ``after`` and ``at_most`` page through a long ledger, by the sequence number of the
        last entry seen.

        Args:
            analyst: Whose debits; None for all.
            after: The sequence number of the last entry that was seen.
            at_most: How many are returned; None for all.

        Returns:
            The debits, oldest first.
        """
        with self._chain.store.reading() as transaction:
            charged = _charged(tables.charges(transaction))
            mine = [debit for debit, who in charged.items() if who == analyst and debit > after]
            texts = [(text, digest) for digest, text in tables.records_at(transaction, mine)]
            texts += [
                (text, digest)
                for digest, text in tables.debits(transaction, after, at_most, analyst)
            ]
            debits = [(Record.read(text), digest) for text, digest in texts]
            debits.sort(key=lambda each: each[0].sequence)
            entries = entries_of(debits)
            held = {
                row.debit: row for row in tables.requests(transaction, (e.key for e in entries))
            }
            closing = tables.records_at(
                transaction, (row.closed for row in held.values() if row.closed is not None)
            )
            chain = debits + [(Record.read(text), digest) for digest, text in closing]
        named = (
            replace(entry, analyst=entry.analyst or charged.get(entry.sequence))
            for entry in entries_of(chain)
        )
        # A debit whose key was debited again was burnt before that.
        return tuple(
            entry if entry.sequence in held else replace(entry, state="burnt")
            for entry in named
            if analyst is None or entry.analyst == analyst
        )[:at_most]

    def entry(self, key: str) -> Entry | None:
        """Return the latest debit of a key.

        Args:
            key: The key of a request.

        Returns:
            Its latest debit, or None.
        """
        with self._chain.store.reading() as transaction:
            held = next(tables.requests(transaction, [key]), None)
            places = [] if held is None else [held.debit, held.closed]
            rows = tables.records_at(transaction, (p for p in places if p is not None))
            chain = [(Record.read(text), digest) for digest, text in rows]
        return next(iter(entries_of(chain)), None)

    def keys_after(self, after: int, part: str) -> tuple[int, tuple[str, ...]]:
        """Return the keys of the debits since a record whose request has a text in it.

        Args:
            after: The number of the last record that was seen; 0 for none.
            part: The text.

        Returns:
            The number of the newest record, to go on from; and the keys, oldest first.
        """
        newest = self.version()
        if newest <= after:
            return newest, ()
        with self._chain.store.reading() as transaction:
            written = json.dumps(part)[1:-1]  # as a string within the line
            texts = [text for _, text in tables.debits(transaction, after) if written in text]
        facts = (record.fact for record in map(Record.read, texts) if record.sequence <= newest)
        debits = (fact for fact in facts if isinstance(fact, Debited) and part in fact.request)
        return newest, tuple(dict.fromkeys(fact.key for fact in debits))

    def state(self, name: str) -> State | None:
        """Return a private state; None if there is none.

        Args:
            name: The name of a state.

        Returns:
            What was last written, or None.
        """
        with self._chain.store.reading() as transaction:
            row = tables.state_with_record(transaction, name)
        if row is None:
            return None
        sealed, text = row
        fact = Record.read(text).fact
        written = fact.states if isinstance(fact, Debited | Answered | Kept) else ()
        if sealed.commitment not in written:
            raise LedgerError(f"private state {name!r} is damaged; restore the newest backup")
        return sealed.state

    def allowances(self) -> tuple[Allowance, ...]:
        """Return what each analyst may spend and has spent, by name.

        Returns:
            One allowance per analyst, by name.
        """
        with self._chain.store.reading() as transaction:
            rows = list(tables.allowances(transaction))
        return tuple(Allowance(row.analyst, row.account) for row in rows)

    def allowance(self, analyst: str) -> Allowance | None:
        """Return what one analyst may spend and has spent; None if nothing but the table binds.

        Args:
            analyst: The name of an analyst.

        Returns:
            The allowance, or None.
        """
        with self._chain.store.reading() as transaction:
            rows = list(tables.allowances(transaction, [analyst]))
        return Allowance(rows[0].analyst, rows[0].account) if rows else None

    def changes(self) -> tuple[Change, ...]:
        """Return what the curator has changed: totals, allowances, freezing; oldest first.

        Returns:
            The changes, oldest first.
        """
        with self._chain.store.reading() as transaction:
            kinds = [kind.__name__.lower() for kind in CURATORS]
            records = [Record.read(text) for text in tables.by_kind(transaction, kinds)]
        return tuple(
            Change(record.sequence, record.time, record.fact)
            for record in records
            if isinstance(record.fact, CURATORS)
        )

    def renewal(self) -> tuple[Renewed, str] | None:
        """Return the record that began the next period, with its hash.

        Returns:
            The record and its hash; None if this is the last period, or no series.
        """
        with self._chain.store.reading() as transaction:
            texts = tables.by_kind(transaction, ["renewed"])
        for text in texts:
            fact = Record.read(text).fact
            if isinstance(fact, Renewed):
                return fact, Record.hash_of(text)
        return None

    def records(self, after: int = -1, at_most: int = 5_000) -> list[tuple[int, str, str]]:
        """Return records of the chain as they are stored, oldest first.

        Args:
            after: The number of the last record that was seen; -1 for none.
            at_most: How many are returned.

        Returns:
            The number, the hash and the text of each; no more where there are none.
        """
        with self._chain.store.reading() as transaction:
            return list(tables.records_after(transaction, after, at_most))

    def is_frozen(self) -> bool:
        """Whether the curator has frozen the ledger.

        Returns:
            Whether debits are refused.
        """
        return self._chain.last().frozen

    def version(self) -> int:
        """Return the number of the newest record; while it is equal nothing has changed.

        Returns:
            A number that grows with every record.
        """
        return self._chain.last().sequence

    def check(self) -> None:
        """Begin a change and undo it.

        Raises:
            LedgerError: the ledger cannot be written, and why.
        """
        with self._chain.store.writing() as transaction:
            transaction.is_kept = False

    def spent(self, delta: Number | None = None) -> Spent:
        """Return what was spent; ``delta`` is the budget's unless given.

        Args:
            delta: At which delta epsilon is computed; the budget's if None.

        Returns:
            What the debits come to, as one guarantee.
        """
        last = self._chain.last()
        share = Fraction(last.spent, UNITS)
        costs = [entry.cost for entry in self.entries()]
        budget = last.total or self.opened.budget
        at = budget.delta if delta is None else exact(delta, "delta")
        total = Cost(tuple(part for cost in costs for part in cost.parts))
        return Spent(
            share=share,
            debits=len(costs),
            epsilon=None if at is None else composed_epsilon(costs, at),
            delta=at,
            rho=rho_of(total),
            mu_squared=total.mu_squared,
            pure_epsilon=total.pure_epsilon,
            event_delta=total.delta,
        )

    def dp_event(self) -> DpEvent:
        """Return all debits as one event of the library dp-accounting (`Cost.dp_event`).

        An accountant there composes parts that were fixed in advance. Where later debits were
        chosen after earlier answers, only the ledger's own filter promises its total
        (docs/proofs/accounting.md).

        Returns:
            The event: no operation if nothing was debited.

        Raises:
            BudgetError: A debit has a delta of its own, or the library is not installed.
        """
        return Cost(tuple(p for entry in self.entries() for p in entry.cost.parts)).dp_event()

    def remaining(self, analyst: str | None = None) -> Remaining:
        """Return what one more debit may take, of the table and of the analyst's allowance.

        Args:
            analyst: Whose allowance counts, too.

        Returns:
            What is left, as a share of the budget and as costs that would fit.
        """
        left = [account.remaining() for account in self._accounts(analyst)]
        mus = [each.gaussian_mu for each in left]
        return Remaining(
            share=left[-1].share,
            gaussian_mu=None if None in mus else min(mu for mu in mus if mu is not None),
            pure_epsilon=min(each.pure_epsilon for each in left),
            delta=left[0].delta,
            lanes=left[-1].lanes,
            event_delta=min(
                (each.event_delta for each in left if each.event_delta is not None), default=None
            ),
        )

    def price(
        self,
        cost: Cost,
        analyst: str | None = None,
        *,
        delta: Fraction | None = None,
        after: Sequence[Cost] = (),
    ) -> Price:
        """Return what one more debit of this cost takes, or what would fit in its place.

        Args:
            cost: The cost of the release.
            analyst: Whose allowance it must fit as well; the shares are those of the allowance if
                there is one, as in ``remaining``.
            delta: The delta of the release's budget, in which the epsilon that fits is told.
            after: The costs of debits that are to come before it.

        Returns:
            The share of the budget that it takes and leaves; None for both if it is refused.
        """
        prices = [account.price(cost, delta, after) for account in self._accounts(analyst)]
        refused = [price for price in prices if not price.fits]
        if not refused:
            return prices[-1]
        left = self.remaining(analyst)
        pure = left.epsilon("pure")
        gaussian = left.epsilon("gaussian", delta) if delta or left.delta else None
        both = (gaussian, pure) if refused[0].kind == "gaussian" else (pure, gaussian)
        return Price(refused[0].kind, None, None, both[0], both[1], refused[0].reason)

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:
        """Return how many debits of this cost still fit, one after the other.

        Args:
            cost: What each would cost.
            analyst: Whose allowance counts, too.

        Returns:
            A number of debits.
        """
        return min(account.how_many_more(cost) for account in self._accounts(analyst))

    def share_after(self, cost: Cost, analyst: str | None = None) -> Fraction | None:
        """Return the share that one more debit of this cost would leave; None if it does not fit.

        Of the analyst's allowance if there is one, as in ``remaining``.

        Args:
            cost: What the debit would cost.
            analyst: Whose allowance counts, too.

        Returns:
            A share of the budget between 0 and 1, or None.
        """
        accounts = self._accounts(analyst)
        if not all(account.how_many_more(cost) for account in accounts):
            return None
        return accounts[-1].plus(cost).remaining().share

    def _accounts(self, analyst: str | None) -> list[Account]:
        """The accounts that a debit must fit: the table's, then the analyst's."""
        last = self._chain.last()
        total = last.total or self.opened.budget
        accounts = [Account(total, last.spent, last.pure_spent, last.delta_spent)]
        if analyst is not None:
            with self._chain.store.reading() as transaction:
                accounts += [row.account for row in tables.allowances(transaction, [analyst])]
        return accounts

    def verify(self) -> Verification:
        """Replay the whole chain and compare every table with it; see `Verification`.

        Returns:
            What was checked, and every fault.
        """
        return verify(self._chain.store, self._chain.witness, self.opened.budget)

    def close(self) -> None:
        """Release the database; the ledger opens it again when it is used."""
        self._chain.store.close()


def _charged(texts: Iterable[str]) -> dict[int, str]:
    """The analysts who were charged by answers, by the sequence number of the debit."""
    facts = (Record.read(text).fact for text in texts)
    return {
        fact.debit: fact.analyst
        for fact in facts
        if isinstance(fact, Kept) and fact.is_charged and fact.analyst is not None
    }
