# SPDX-License-Identifier: Apache-2.0
"""Tokens: 256 random bits that an analyst shows; the server keeps their SHA-256 only.

A slow hash is for passwords, which people choose. A token of 256 bits cannot be guessed, so one
SHA-256 is enough, and a refusal costs no more than an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = [
    "HASH",
    "Tokens",
    "hash_of",
    "new_token",
]


HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""How a token is written in the configuration."""

_NOBODY: Final = 64 * "0"

Who = TypeVar("Who")


def new_token() -> str:
    """A token that nobody has yet, from the randomness of the operating system."""
    return f"sfu_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """What the configuration keeps of a token.

    >>> hash_of("sfu_example")[:23]
    'sha256:eab61584a2fd8c3b'
    """
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


class Tokens(Generic[Who]):
    """Who holds which token.

    Args:
        find: who holds the token of a hash now, as it is written in the configuration.
    """

    def __init__(self, find: Callable[[str], Who | None]) -> None:
        self._find = find

    def holder(self, authorization: str | None) -> Who | None:
        """The holder of the token in an ``Authorization: Bearer`` header, or None.

        Only hashes of secrets are looked up and compared, so time tells nothing of a token.
        """
        kind, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        who = self._find(f"sha256:{digest}")
        expected = digest if who is not None else _NOBODY
        is_known = hmac.compare_digest(expected, digest) and kind.lower() == "bearer"
        return who if is_known else None
