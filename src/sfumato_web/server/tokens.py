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
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

__all__ = [
    "HASH",
    "Tokens",
    "hash_of",
    "new_token",
]


HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""How a token is written in the configuration."""

_NOBODY: Final = bytes(32)

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
    """Who holds which token."""

    def __init__(self, holders: Iterable[tuple[str, Who]]) -> None:
        self._holders: Mapping[bytes, Who] = {
            bytes.fromhex(digest.removeprefix("sha256:")): who for digest, who in holders
        }

    def holder(self, authorization: str | None) -> Who | None:
        """The holder of the token in an ``Authorization: Bearer`` header, or None.

        Only hashes of secrets are looked up and compared, so time tells nothing of a token.
        """
        kind, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        who = self._holders.get(digest)
        expected = digest if who is not None else _NOBODY
        is_known = hmac.compare_digest(expected, digest) and kind.lower() == "bearer"
        return who if is_known else None
