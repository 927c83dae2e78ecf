# SPDX-License-Identifier: Apache-2.0
"""People, roles and tokens of the server, and the record of how curators change them.

People of the configuration are changed there. All others are made by curators: with a role, some
datasets, and tokens that may expire. Every such change is a record, in the server's state, of who
made it, when and why, chained by hashes like those of a ledger: what somebody may do follows from
the records alone, and a changed one is found when the server starts. A record never has a token,
only its hash.

A curator manages people whose datasets are all theirs, and nobody manages themselves but for new
tokens, so that no change gives anybody more than who made it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from sfumato.digest import canonical_json
from sfumato.errors import SfumatoError
from sfumato.text import did_you_mean
from sfumato_web.server.config import Analyst, Role, hash_of, new_token
from sfumato_web.server.problems import Problem, not_curator, not_valid

if TYPE_CHECKING:
    from sfumato_web.server.responses import ResponseStore

__all__ = ["Act", "Change", "People", "Person", "TokenHash"]


Act = Literal["add", "change", "remove", "token", "revoke", "allowance", "undone"]

_SEAL: Final = b"sfumato server change\n"
_GENESIS: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class TokenHash:
    """What is kept of a token: its hash, and when it ends (UTC); None: never."""

    hash: str
    expires: datetime | None = None

    @property
    def id(self) -> str:
        """By which it is named in lists and revoked."""
        return self.hash.removeprefix("sha256:")[:12]

    def as_json(self) -> dict[str, object]:
        """As it is listed; neither the token nor its hash."""
        return {"id": self.id, "expires": _text(self.expires)}


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may use the server; ``is_fixed`` if the configuration says so."""

    analyst: Analyst
    tokens: tuple[TokenHash, ...]
    is_fixed: bool

    def as_json(self) -> dict[str, object]:
        """As it is listed."""
        who = self.analyst
        return {
            "name": who.name,
            "role": who.role,
            "datasets": sorted(who.datasets),
            "tokens": [token.as_json() for token in self.tokens],
            "set_in": "configuration" if self.is_fixed else "server",
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One record: who changed what, when and why, after which other one."""

    sequence: int
    time: str
    previous: str
    by: str
    reason: str
    act: Act
    person: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The canonical line that is kept and hashed."""
        return canonical_json(
            {
                "sequence": self.sequence,
                "time": self.time,
                "previous": self.previous,
                "by": self.by,
                "reason": self.reason,
                "act": self.act,
                "person": self.person,
                **self.facts,
            }
        )

    @classmethod
    def read(cls, text: str) -> Change:
        """A record from its line."""
        line = json.loads(text)
        names = ("sequence", "time", "previous", "by", "reason", "act", "person")
        own: dict[str, Any] = {name: line.pop(name) for name in names}
        return cls(**own, facts=line)

    @staticmethod
    def hash_of(text: str) -> str:
        """The hash of a line, which the next record holds."""
        return hashlib.sha256(_SEAL + text.encode()).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC)


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")


class People:
    """Everybody who may use the server, by name and by token.

    Args:
        fixed: the people of the configuration.
        datasets: the names of all datasets.
        store: where changes are kept.
        now: the time in UTC.

    Raises:
        SfumatoError: a record was changed or left out, or a name is now in the configuration, too.
    """

    def __init__(
        self,
        fixed: Iterable[Analyst],
        datasets: Collection[str],
        store: ResponseStore,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._datasets, self._store, self._now = frozenset(datasets), store, now
        self._lock = Lock()
        self._people = {a.name: Person(a, (TokenHash(a.token),), True) for a in fixed}
        self._by_hash: dict[str, tuple[Analyst, datetime | None]] = {}
        self._sequence, self._head = 0, _GENESIS
        for digest, text in store.changes():
            self._follow(digest, text)
        self._index()

    def holder(self, digest: str) -> Analyst | None:
        """Who holds the token of this hash, if it has not ended."""
        held = self._by_hash.get(digest)
        if held is None or (held[1] is not None and held[1] <= self._now()):
            return None
        return held[0]

    def all(self) -> list[Analyst]:
        """Everybody."""
        return [person.analyst for person in list(self._people.values())]

    def listed(self, who: Analyst) -> list[dict[str, object]]:
        """Those with whom one shares a dataset, by name; for curators and auditors."""
        if not who.sees_all:
            raise not_curator()
        theirs = [p for p in self._people.values() if p.analyst.datasets & who.datasets]
        return [p.as_json() for p in sorted(theirs, key=lambda p: p.analyst.name)]

    def records(self, who: Analyst, after: int) -> list[tuple[str, str]]:
        """(hash, text) of the changes after one; for those who see all datasets."""
        if not who.sees_all or who.datasets != self._datasets:
            raise Problem(
                403, "not-in-role", "only a curator or an auditor of all datasets may read this"
            )
        return self._store.changes()[after + 1 :]

    def add(
        self,
        by: Analyst,
        name: str,
        role: Role,
        datasets: Sequence[str],
        days: int | None,
        reason: str,
    ) -> dict[str, object]:
        """Let somebody in; returns them with their token, which is shown once."""
        with self._lock:
            _check_curator(by)
            if name in self._people or self._was_there(name):
                raise not_valid(
                    [{"loc": ("body", "name"), "msg": "this name is, or was, somebody's; choose "
                      "another, so that records never mix two people up"}]
                )  # fmt: skip
            theirs = self._checked(by, datasets)
            token, facts = self._token(days)
            facts |= {"role": role, "datasets": sorted(theirs)}
            self._record(by, "add", name, reason, facts)
            return {**self._people[name].as_json(), "token": token}

    def change(
        self, by: Analyst, name: str, role: Role | None, datasets: Sequence[str] | None, reason: str
    ) -> dict[str, object]:
        """Give somebody another role or other datasets."""
        with self._lock:
            person = self._managed(by, name)
            theirs = person.analyst.datasets if datasets is None else self._checked(by, datasets)
            facts = {"role": role or person.analyst.role, "datasets": sorted(theirs)}
            self._record(by, "change", name, reason, facts)
            return self._people[name].as_json()

    def remove(self, by: Analyst, name: str, reason: str) -> None:
        """Let somebody in no more; what they spent and were answered stays."""
        with self._lock:
            self._managed(by, name)
            self._record(by, "remove", name, reason, {})

    def renew(self, by: Analyst, name: str, days: int | None, reason: str) -> dict[str, object]:
        """One more token of somebody, or of oneself; the others hold until they are revoked."""
        with self._lock:
            person = self._managed(by, name, may_be_self=True)
            if len(person.tokens) >= 8:
                raise Problem(409, "too-many-tokens", "8 tokens are enough; revoke one first")
            token, facts = self._token(days)
            self._record(by, "token", name, reason, facts)
            return {**self._people[name].as_json(), "token": token}

    def revoke(self, by: Analyst, name: str, token: str, reason: str) -> dict[str, object]:
        """End a token of somebody, or of oneself."""
        with self._lock:
            person = self._managed(by, name, may_be_self=True)
            held = next((t for t in person.tokens if t.id == token), None)
            if held is None:
                raise Problem(404, "not-found", f"{name} has no such token; GET /people lists them")
            self._record(by, "revoke", name, reason, {"token": held.hash})
            return self._people[name].as_json()

    def allow(
        self,
        by: Analyst,
        name: str,
        dataset: str,
        budget: Mapping[str, str] | None,
        reason: str,
        act: Callable[[], object],
    ) -> None:
        """Record an allowance, then set it; None: there is none any more."""
        with self._lock:
            person = self._managed(by, name)
            if dataset not in person.analyst.datasets:
                raise Problem(409, "not-theirs", f"{name} has no dataset {dataset}; add it first")
            if budget is not None and not person.analyst.may_ask:
                raise Problem(409, "cannot-spend", f"{name} is {person.analyst.role}, who spends "
                              "nothing; an allowance needs an analyst or a curator")  # fmt: skip
            facts = {"dataset": dataset, "budget": None if budget is None else dict(budget)}
            number = self._record(by, "allowance", name, reason, facts)
            try:
                act()
            except BaseException:
                self._record(by, "undone", name, "the ledger refused", {"change": number})
                raise

    def _managed(self, by: Analyst, name: str, *, may_be_self: bool = False) -> Person:
        """Somebody whom one may manage; others are refused."""
        is_self = by.name == name
        if not (is_self and may_be_self):
            _check_curator(by)
        person = self._people.get(name)
        if person is None or not (is_self or person.analyst.datasets <= by.datasets):
            near = did_you_mean(name, [p["name"] for p in self.listed(by)]) if by.sees_all else ""
            raise Problem(404, "not-found", f"nobody of this name is yours to manage{near}")
        if person.is_fixed:
            raise Problem(
                409, "in-configuration", f"{name} is set in the configuration; change it there"
            )
        if is_self and not may_be_self:
            raise Problem(403, "oneself", "ask another curator: nobody changes their own rights")
        return person

    def _checked(self, by: Analyst, datasets: Sequence[str]) -> frozenset[str]:
        for dataset in datasets:
            if dataset not in by.datasets or dataset not in self._datasets:
                near = did_you_mean(dataset, by.datasets)
                message = f"you have no dataset {dataset[:64]!r}{near}"
                raise not_valid([{"loc": ("body", "datasets"), "msg": message}])
        return frozenset(datasets)

    def _token(self, days: int | None) -> tuple[str, dict[str, object]]:
        token = new_token()
        ends = None if days is None else self._now() + timedelta(days=days)
        return token, {"token": hash_of(token), "expires": _text(ends)}

    def _was_there(self, name: str) -> bool:
        return any(Change.read(text).person == name for _, text in self._store.changes())

    def _record(
        self, by: Analyst, act: Act, person: str, reason: str, facts: Mapping[str, object]
    ) -> int:
        """Keep a change, and heed it from now on."""
        number = self._sequence
        time = cast(str, _text(self._now()))
        text = Change(number, time, self._head, by.name, reason, act, person, facts).text()
        digest = Change.hash_of(text)
        self._store.add_change(number, digest, text)
        self._follow(digest, text)
        self._index()
        return number

    def _follow(self, digest: str, text: str) -> None:
        """Heed a record that follows those before it."""
        try:
            change = Change.read(text)
            if (change.sequence, change.previous) != (self._sequence, self._head):
                raise ValueError
            if Change.hash_of(text) != digest:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise SfumatoError(
                f"change {self._sequence} of people in the server's state was changed or left "
                "out; restore the newest backup of the state, and look at who had access"
            ) from None
        self._sequence, self._head = self._sequence + 1, digest
        name, facts = change.person, change.facts
        held = self._people.get(name)
        if held is not None and held.is_fixed:
            raise SfumatoError(
                f"{name!r} was added while the server ran, and is in the configuration, too; "
                "choose another name in one of the two"
            )
        if change.act == "add":
            who = Analyst(name, "", facts["role"], frozenset(facts["datasets"]), {})
            self._people[name] = Person(who, (_token_of(facts),), False)
        elif held is None:
            return
        elif change.act == "change":
            who = replace(held.analyst, role=facts["role"], datasets=frozenset(facts["datasets"]))
            self._people[name] = replace(held, analyst=who)
        elif change.act == "remove":
            del self._people[name]
        elif change.act == "token":
            self._people[name] = replace(held, tokens=(*held.tokens, _token_of(facts)))
        elif change.act == "revoke":
            left = tuple(t for t in held.tokens if t.hash != facts["token"])
            # Whoever came with it is let in anew.
            self._people[name] = replace(held, tokens=left, analyst=replace(held.analyst))

    def _index(self) -> None:
        """Who holds which token, of the datasets that there are."""
        by_hash: dict[str, tuple[Analyst, datetime | None]] = {}
        for name, person in self._people.items():
            theirs = person.analyst.datasets & self._datasets
            if theirs != person.analyst.datasets:
                changed = replace(person.analyst, datasets=theirs)
                self._people[name] = person = replace(person, analyst=changed)
            by_hash |= {t.hash: (person.analyst, t.expires) for t in person.tokens}
        self._by_hash = by_hash


def _token_of(facts: Mapping[str, Any]) -> TokenHash:
    ends = facts["expires"]
    return TokenHash(str(facts["token"]), None if ends is None else datetime.fromisoformat(ends))


def _check_curator(by: Analyst) -> None:
    if not by.is_curator:
        raise not_curator()
