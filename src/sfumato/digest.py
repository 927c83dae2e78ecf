# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON and its SHA-256: equal values have equal bytes, and so equal digests.

The keys and the records of ledgers, the digests of domains, plans and questions, and private states
are made of these bytes. They are stored for ever, so neither function may ever change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

__all__ = [
    "canonical_json",
    "json_digest",
    "sha256",
]


_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: object) -> str:
    """Return the one text of a JSON value: sorted keys, no spaces, ASCII, no NaN.

    >>> canonical_json({"b": 1, "a": [0.5, "x"]})
    '{"a":[0.5,"x"],"b":1}'
    """
    return _CANONICAL.encode(value)


def json_digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of a value; of a request it is the ledger key.

    >>> json_digest({}) == sha256(b"{}")
    True
    """
    return sha256(canonical_json(value).encode())


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
