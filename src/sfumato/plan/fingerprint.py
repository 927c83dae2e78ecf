# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of what is measured: equal if and only if all numbers that define it are equal.

Stored answers are found again under it, and read by the strategy that asks: two blocks that
measure different coefficients must never share one. So nothing is picked out by hand. A term is
its class and all of its fields, and so is every query set, axis, chain or condition inside it;
arrays enter with their kind and shape. A kind of field that is not known here is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.workload.terms import Term

__all__ = ["fingerprint"]


def fingerprint(terms: Sequence[Term]) -> bytes:
    """SHA-256 of the terms in order, with every number that defines them."""
    known: dict[int, bytes] = {}
    out = hashlib.sha256()
    for term in terms:  # the terms are held by the caller, so that no id is used twice
        out.update(_of(term, known))
    return out.digest()


def _of(value: object, known: dict[int, bytes]) -> bytes:
    """The hash of one value; objects that many terms share are read once."""
    if is_dataclass(value) and not isinstance(value, type):
        if id(value) not in known:
            parts = [_of(getattr(value, f.name), known) for f in fields(value) if f.init]
            known[id(value)] = _hash(f"object {type(value).__qualname__}", *parts)
        return known[id(value)]
    if isinstance(value, tuple | list):
        return _hash("list", *(_of(v, known) for v in value))
    if isinstance(value, dict):
        pairs = sorted((_of(k, known), _of(v, known)) for k, v in value.items())
        return _hash("mapping", *(part for pair in pairs for part in pair))
    return _leaf(value, known)


def _leaf(value: object, known: dict[int, bytes]) -> bytes:
    if isinstance(value, Domain):
        return _hash("domain", repr((value.names, value.shape)).encode())
    if value is None or isinstance(value, bool | int | str):
        kind = "str" if isinstance(value, str) else type(value).__name__
        return _hash(kind, repr(value).encode())
    if isinstance(value, float):
        return _hash("float", value.hex().encode())
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return _hash(f"objects {value.shape}", _of(value.reshape(-1).tolist(), known))
        head = f"array {value.dtype.str} {value.shape}"
        return _hash(head, np.ascontiguousarray(value).tobytes())
    return _sparse(value)


def _sparse(value: object) -> bytes:
    from scipy.sparse import csr_array, issparse

    if not issparse(value):
        raise TypeError(f"no fingerprint for a field of type {type(value).__name__}")
    rows = csr_array(value, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    parts = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
    return _hash(f"sparse {rows.shape} {rows.dtype.str}", *(p.tobytes() for p in parts))


def _hash(head: str, *parts: bytes) -> bytes:
    """Lengths enter, so that no two lists of parts read alike."""
    out = hashlib.sha256(f"{len(head)} {head}".encode())
    for part in parts:
        out.update(len(part).to_bytes(8, "big"))
        out.update(part)
    return out.digest()
