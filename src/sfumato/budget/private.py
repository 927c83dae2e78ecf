# SPDX-License-Identifier: Apache-2.0
"""Private states: named bytes that a mechanism needs after a restart and nobody may see.

The noisy threshold of a running sparse vector is such a state: it must survive, and publishing it
would void the proof. A state lives in its own table. The chain holds its name, its version and

    HMAC-SHA256(salt, name, version, bytes),   salt = 32 random bytes, new for every version

with the salt kept beside the bytes. To whoever lacks the salt the hash is as good as random (HMAC
is a pseudorandom function of its key), so it tells nothing about the bytes, not even whether two
versions are equal; to whoever holds the database it shows any change (``docs/proofs/ledger.md``).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from sfumato.budget.entries import Commitment, check_name
from sfumato.errors import LedgerError

__all__ = ["Sealed", "State", "commitments", "seal", "seal_all"]

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
    """Give a state a new salt."""
    if not isinstance(state, State) or not isinstance(state.data, bytes):
        raise LedgerError(
            f"a private state is a State of bytes, got {type(state).__name__}; encode it first"
        )
    check_name(state.name, "the name of a state")
    if isinstance(state.version, bool) or not isinstance(state.version, int) or state.version < 1:
        raise LedgerError("the version of a state is 1 or the version read plus 1; count on")
    return Sealed(state, secrets.token_bytes(_SALT_BYTES))


def seal_all(states: Sequence[State]) -> tuple[Sealed, ...]:
    """Seal the states of one call; each name at most once."""
    sealed = tuple(seal(state) for state in states)
    if len({state.name for state in states}) != len(states):
        raise LedgerError("a call writes each private state once; give each name one State")
    return sealed


def commitments(states: Sequence[Sealed]) -> tuple[Commitment, ...]:
    """What the chain says of these states."""
    return tuple(sealed.commitment for sealed in states)
