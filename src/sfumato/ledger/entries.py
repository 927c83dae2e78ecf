# SPDX-License-Identifier: Apache-2.0
"""The records of a ledger: frozen, versioned, chained by hashes.

A ledger is a list of records that only grows. Each record is one line of canonical JSON; its hash
covers that line, which holds the hash of the record before it. What was asked, what it cost and
whether it was answered follow from the records alone; every other table is an index of them.

How records may evolve, so that a ledger written today can be read and verified for ever:

* A kind of record is never removed and its fields never change their meaning.
* A new field is optional and its absence means what the older version meant.
* Anything else raises `VERSION`. A reader refuses records newer than it knows, and never guesses.
* The hash is taken over the stored text, never over a text written anew.
* Only public facts are recorded: requests, costs, hashes of noisy answers. No counts, no data.

`State` and `Sealed` are private states: named bytes that a mechanism needs after a restart and
nobody may see, such as the noisy threshold of a running sparse vector, which must survive and whose
publication would void the proof. A state has its own table. The chain holds its name, its version
and

    HMAC-SHA256(salt, name, version, bytes),   salt = 32 random bytes, new for every version

with the salt kept beside the bytes. To whoever lacks the salt the hash is as good as random (HMAC
is a pseudorandom function of its key), so it tells nothing about the bytes, not even whether two
versions are equal; to whoever holds the database it shows any change (``docs/proofs/ledger.md``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from sfumato.digest import canonical_json, sha256
from sfumato.domain.privacy_unit import PrivacyUnit, Unit, unit_from_json, unit_json
from sfumato.errors import BudgetError, LedgerError, SchemaError
from sfumato.privacy.budget import Budget, check_neighbours, exact
from sfumato.privacy.cost import Cost
from sfumato.types import Neighbours

__all__ = [
    "EVENTS_VERSION",
    "GENESIS",
    "RENEWAL_VERSION",
    "VERSION",
    "Allowed",
    "Answered",
    "Burnt",
    "Changed",
    "Commitment",
    "Debited",
    "Entry",
    "Fact",
    "Frozen",
    "Kept",
    "KeptAnswer",
    "Opened",
    "Period",
    "Record",
    "Renewed",
    "Sealed",
    "Stage",
    "State",
    "Unfrozen",
    "Vouched",
    "Withdrawn",
    "check_name",
    "commitments",
    "entries_of",
    "seal",
    "seal_all",
    "unit_of_debit",
]


VERSION: Final = 3
"""What is written; older ones are read. Version 2 brought analysts and their allowances, private
states, free answers and freezing, version 3 the privacy unit, totals with lanes, totals that change
and answers that charge an allowance: an older sfumato would not heed them, so it must refuse."""

EVENTS_VERSION: Final = 4
"""What is written once a mechanism with a delta of its own was debited: an older sfumato would not
count its delta. Ledgers without such a debit stay as they were, for older versions too."""

RENEWAL_VERSION: Final = 5
"""How a record is written that begins the next period: an older sfumato does not know its kind."""

GENESIS: Final = "0" * 64
"""What the first record has in place of the hash of a record before it."""

_SEAL: Final = b"sfumato ledger record\n"  # so that no other hash of ours can pass for one

Stage: TypeAlias = Literal["reserved", "answered", "burnt"]
"""A debit is reserved until its answer is stored, or burnt if it never will be."""


# What reading a damaged line can raise: JSON of any depth, with numbers of any size.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Commitment:
    """What the chain says of a private state: name, version, and a salted hash of its bytes."""

    name: str
    version: int
    hmac: str


@dataclass(frozen=True, slots=True)
class Period:
    """Which period of a series of tables a ledger is for.

    Attributes:
        name: Its public name, such as ``2026-04``.
        after: The hash of the record that began it, in the ledger of the period before.
        tables: The names of the tables of all earlier periods, oldest first.
    """

    name: str
    after: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """The ledger was created: the budget of one table, one neighbour relation and one unit.

    Without ``unit`` the first debit that names one binds it. ``period`` is of a ledger that was
    begun by the one before it in a series; the first of a series has none.
    """

    budget: Budget
    table_id: str
    neighbours: Neighbours
    unit: Unit | None = None
    period: Period | None = None


@dataclass(frozen=True, slots=True)
class Debited:
    """Units were taken for a request, before its noise was drawn.

    ``unit`` is whose presence the cost was computed for; records of older versions have none, and
    `unit_of_debit` reads theirs from the request.
    """

    key: str
    request: str
    cost: Cost
    owner: str
    analyst: str | None = None
    states: tuple[Commitment, ...] = ()
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a debit was stored."""

    debit: int
    answer_sha256: str
    states: tuple[Commitment, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer that costs nothing more was stored; ``debit`` has paid for it.

    ``is_charged``: the cost of the debit, which names nobody, counts against the allowance of the
    analyst whose answer this is.
    """

    key: str
    request: str
    debit: int
    answer_sha256: str
    analyst: str | None = None
    states: tuple[Commitment, ...] = ()
    is_charged: bool = False


@dataclass(frozen=True, slots=True)
class Burnt:
    """A debit will never be answered; its units stay spent."""

    debit: int


@dataclass(frozen=True, slots=True)
class Vouched:
    """The curator declared this copy to be the newest, because its head file was lost."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The curator gave an analyst a budget of their own within the table's, or changed it."""

    analyst: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The curator took an analyst's allowance away: only the table's budget limits them now."""

    analyst: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The curator set another total; all debits so far were priced again by it."""

    budget: Budget
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The curator began the next period: another table, with a budget and a ledger of its own.

    The account of this ledger stays as it is. ``allowances`` are what analysts have in the new
    ledger from its beginning: those that they had here.
    """

    period: str
    table_id: str
    budget: Budget
    allowances: tuple[tuple[str, Budget], ...]
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """The curator stopped debits and free answers."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unfrozen:
    """The curator let debits and free answers go on."""

    reason: str


Fact: TypeAlias = (
    Opened
    | Debited
    | Answered
    | Kept
    | Burnt
    | Vouched
    | Allowed
    | Withdrawn
    | Changed
    | Renewed
    | Frozen
    | Unfrozen
)


@dataclass(frozen=True, slots=True)
class Record:
    """One link of the chain: a fact, and the account after it.

    ``spent``, ``pure_spent`` and ``delta_spent`` are those of `sfumato.ledger.account.Account`;
    ``frozen`` says whether the ledger is frozen after this record; ``unit`` is the unit that a
    debit has bound, if the ledger was opened without one, and ``total`` the last total that the
    curator has set since.
    """

    sequence: int
    time: str
    previous: str
    spent: int
    pure_spent: int | None
    fact: Fact
    frozen: bool = False
    unit: Unit | None = None
    total: Budget | None = None
    version: int = VERSION
    delta_spent: Fraction = Fraction(0)

    def text(self) -> str:
        """Return the canonical line that is stored and hashed."""
        return canonical_json(
            {
                "version": self.version,
                "sequence": self.sequence,
                "time": self.time,
                "previous": self.previous,
                "spent": self.spent,
                "pure_spent": self.pure_spent,
                "kind": type(self.fact).__name__.lower(),
                **({"frozen": True} if self.frozen else {}),
                **_unit_json("bound", self.unit),
                **({} if self.total is None else {"total": self.total.as_json()}),
                **({"delta_spent": str(self.delta_spent)} if self.delta_spent else {}),
                **_fact_json(self.fact),
            }
        )

    @staticmethod
    def hash_of(text: str) -> str:
        """Return the hash of a stored line."""
        return sha256(_SEAL + text.encode())

    @classmethod
    def read(cls, text: str) -> Record:
        """Read a stored line; a line of a newer version is refused."""
        try:
            line = json.loads(text)
            version = line["version"]
            if version not in range(1, RENEWAL_VERSION + 1):
                raise LedgerError(
                    f"the ledger has a record of version {version}, this sfumato reads versions "
                    f"1 to {RENEWAL_VERSION}; use a newer sfumato"
                )
            return cls(
                sequence=int(line["sequence"]),
                time=str(line["time"]),
                previous=str(line["previous"]),
                spent=int(line["spent"]),
                pure_spent=None if line["pure_spent"] is None else int(line["pure_spent"]),
                fact=_fact(line),
                frozen=line.get("frozen") is True,
                unit=_unit(line, "bound"),
                total=Budget.from_json(line["total"]) if "total" in line else None,
                version=version,
                delta_spent=exact(line.get("delta_spent", 0), "delta_spent"),
            )
        except (*_DAMAGE, BudgetError, SchemaError) as error:
            raise LedgerError(
                f"the ledger has a record that cannot be read ({type(error).__name__}); "
                "restore the newest backup and its head file"
            ) from None


@dataclass(frozen=True, slots=True)
class Entry:
    """A debit and what became of it."""

    sequence: int
    time: str
    key: str
    request: str
    cost: Cost
    owner: str
    hash: str
    state: Stage
    answer_sha256: str | None = None
    analyst: str | None = None


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A free answer as it is stored; ``is_new`` says whether by this call."""

    key: str
    answer: bytes = field(repr=False)
    is_new: bool


def entries_of(chain: Iterable[tuple[Record, str]]) -> tuple[Entry, ...]:
    """Return the debits of a chain of (record, hash), oldest first, with their states."""
    entries: dict[int, Entry] = {}
    for record, digest in chain:
        match record.fact:
            case Debited():
                entries[record.sequence] = _reserved(record, record.fact, digest)
            case Answered(debit, answer_sha256) if debit in entries:
                entry = entries[debit]
                entries[debit] = replace(entry, state="answered", answer_sha256=answer_sha256)
            case Burnt(debit) if debit in entries:
                entries[debit] = replace(entries[debit], state="burnt")
    return tuple(entries.values())


def _reserved(record: Record, debited: Debited, digest: str) -> Entry:
    return Entry(
        sequence=record.sequence,
        time=record.time,
        key=debited.key,
        request=debited.request,
        cost=debited.cost,
        owner=debited.owner,
        hash=digest,
        state="reserved",
        analyst=debited.analyst,
    )


def unit_of_debit(debited: Debited) -> Unit | None:
    """Return the unit that a debit was made for; None where nothing tells it.

    Records before version 3 do not name it. Their requests do: of releases and corrections under
    "unit", of watches of a table likewise or by its absence, of streams and of watches of a series
    by what they are. Those of sessions, and of callers with requests of their own, do not.
    """
    if debited.unit is not None:
        return debited.unit
    try:
        request = json.loads(debited.request)
        if not isinstance(request, dict):
            return None
        if "unit" in request:
            unit = request["unit"]
            if isinstance(unit, str):  # a watch of a table wrote "column: rows"
                column, _, rows = unit.rpartition(": ")
                return PrivacyUnit(column, int(rows))
            return "row" if unit is None else unit_from_json(unit)
    except (*_DAMAGE, SchemaError):
        return None
    if "watch" in request and "limits" in request:
        return "row" if "attribute" in request else "event"
    return "event" if {"stream", "window", "strategy"} <= set(request) else None


def check_name(value: object, name: str) -> str:
    """Return ``value`` if it can name a key, an analyst or a state."""
    if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
        return value
    got = type(value).__name__
    if isinstance(value, str):
        size = len(value)
        got = f"one of {size:,}" if value.isprintable() else "line ends or others that do not print"
    raise LedgerError(
        f"{name} must be a printable string of 1 to 200 characters, got {got}; give a public name"
    )


def _fact_json(fact: Fact) -> dict[str, object]:
    match fact:
        case Opened(budget, table_id, neighbours, unit, period):
            named: dict[str, object] = {"table_id": table_id, "neighbours": neighbours}
            named |= {"budget": budget.as_json()} | _unit_json("unit", unit)
            return named | ({} if period is None else {"period": _period_json(period)})
        case Debited(key, request, cost, owner, analyst, states, unit):
            named = {"key": key, "request": request, "owner": owner, "cost": cost.as_json()}
            return named | _optional_json(analyst, states) | _unit_json("unit", unit)
        case Answered(debit, answer_sha256, states):
            return {"debit": debit, "answer_sha256": answer_sha256} | _optional_json(None, states)
        case Kept(key, request, debit, answer_sha256, analyst, states, is_charged):
            named = {"key": key, "request": request, "debit": debit}
            named |= {"charged": True} if is_charged else {}
            return named | {"answer_sha256": answer_sha256} | _optional_json(analyst, states)
        case Burnt(debit):
            return {"debit": debit}
        case Vouched():
            return {}
        case Allowed(analyst, budget):
            return {"analyst": analyst, "budget": budget.as_json()}
        case Withdrawn(analyst):
            return {"analyst": analyst}
        case Changed(budget, by, reason):
            return {"budget": budget.as_json(), "by": by, "reason": reason}
        case Renewed():
            return {
                "period": fact.period,
                "table_id": fact.table_id,
                "budget": fact.budget.as_json(),
                "allowances": {name: budget.as_json() for name, budget in fact.allowances},
                "by": fact.by,
                "reason": fact.reason,
            }
        case Frozen(reason) | Unfrozen(reason):
            return {"reason": reason}


def _period_json(period: Period) -> dict[str, object]:
    return {"name": period.name, "after": period.after, "tables": list(period.tables)}


def _period(line: Mapping[str, object]) -> Period | None:
    held = line.get("period")
    if held is None:
        return None
    if not isinstance(held, dict) or not isinstance(held["tables"], list):
        raise ValueError("period")
    tables = tuple(str(name) for name in held["tables"])
    return Period(str(held["name"]), str(held["after"]), tables)


def _optional_json(analyst: str | None, states: tuple[Commitment, ...]) -> dict[str, object]:
    fields: dict[str, object] = {} if analyst is None else {"analyst": analyst}
    if states:
        fields["states"] = [
            {"name": state.name, "version": state.version, "hmac": state.hmac} for state in states
        ]
    return fields


def _unit_json(name: str, unit: Unit | None) -> dict[str, object]:
    return {} if unit is None else {name: unit_json(unit)}


def _fact(line: Mapping[str, object]) -> Fact:
    match line["kind"]:
        case "opened":
            return Opened(
                Budget.from_json(line["budget"]),
                str(line["table_id"]),
                check_neighbours(line["neighbours"]),
                _unit(line, "unit"),
                _period(line),
            )
        case "debited":
            cost = Cost.from_json(line["cost"])
            who = (str(line["owner"]), _analyst(line), _states(line), _unit(line, "unit"))
            return Debited(str(line["key"]), str(line["request"]), cost, *who)
        case "answered":
            return Answered(_number(line["debit"]), str(line["answer_sha256"]), _states(line))
        case "kept":
            named = (str(line["key"]), str(line["request"]), _number(line["debit"]))
            answer = str(line["answer_sha256"])
            charged = line.get("charged") is True
            return Kept(*named, answer, _analyst(line), _states(line), is_charged=charged)
        case "burnt":
            return Burnt(_number(line["debit"]))
        case "vouched":
            return Vouched()
        case "allowed":
            return Allowed(str(line["analyst"]), Budget.from_json(line["budget"]))
        case "withdrawn":
            return Withdrawn(str(line["analyst"]))
        case "changed":
            budget = Budget.from_json(line["budget"])
            return Changed(budget, str(line["by"]), str(line["reason"]))
        case "renewed":
            held = line["allowances"]
            if not isinstance(held, dict):
                raise ValueError("allowances")
            allowances = tuple((str(n), Budget.from_json(b)) for n, b in held.items())
            return Renewed(
                str(line["period"]),
                str(line["table_id"]),
                Budget.from_json(line["budget"]),
                allowances,
                str(line["by"]),
                str(line["reason"]),
            )
        case "frozen":
            return Frozen(str(line["reason"]))
        case "unfrozen":
            return Unfrozen(str(line["reason"]))
        case _:
            raise ValueError("kind")


def _analyst(line: Mapping[str, object]) -> str | None:
    analyst = line.get("analyst")
    return None if analyst is None else str(analyst)


def _unit(line: Mapping[str, object], name: str) -> Unit | None:
    return unit_from_json(line[name]) if name in line else None


def _states(line: Mapping[str, object]) -> tuple[Commitment, ...]:
    states = line.get("states", [])
    if not isinstance(states, list):
        raise ValueError("states")
    return tuple(Commitment(str(s["name"]), _number(s["version"]), str(s["hmac"])) for s in states)


def _number(value: object) -> int:
    if isinstance(value, int):
        return value
    raise ValueError("not a sequence number")


# Private states

_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class State:
    """Private bytes under a public name; version 1 is the first, each write adds 1.

    >>> State("threshold", 1, b"never shown")
    State(name='threshold', version=1)
    """

    name: str
    version: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A state with the salt of its public hash."""

    state: State
    salt: bytes = field(repr=False)

    @property
    def commitment(self) -> Commitment:
        """What the chain says of it."""
        name = self.state.name.encode()
        message = b"%d %d %s" % (self.state.version, len(name), name) + self.state.data
        digest = hmac.new(self.salt, message, hashlib.sha256).hexdigest()
        return Commitment(self.state.name, self.state.version, digest)


def seal(state: State) -> Sealed:
    """Return a state with a new salt."""
    if not isinstance(state, State) or not isinstance(state.data, bytes):
        raise LedgerError(
            f"a private state is a State of bytes, got {type(state).__name__}; encode it first"
        )
    check_name(state.name, "the name of a state")
    if isinstance(state.version, bool) or not isinstance(state.version, int) or state.version < 1:
        raise LedgerError("the version of a state is 1 or the version read plus 1; count on")
    return Sealed(state, secrets.token_bytes(_SALT_BYTES))


def seal_all(states: Sequence[State]) -> tuple[Sealed, ...]:
    """Return the states of one call, each with a new salt; a name may come once."""
    sealed = tuple(seal(state) for state in states)
    if len({state.name for state in states}) != len(states):
        raise LedgerError("a call writes each private state once; give each name one State")
    return sealed


def commitments(states: Sequence[Sealed]) -> tuple[Commitment, ...]:
    """Return what the chain says of these states."""
    return tuple(sealed.commitment for sealed in states)
