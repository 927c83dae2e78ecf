# SPDX-License-Identifier: Apache-2.0
"""The only imports from inside the package: what the golden files need and nobody else may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sfumato.ledger import store
from tests.http.served import ADA, CONFIG, CORA, asked, bearer, served, write_served
from tests.shared.words import key_noise

__all__ = [
    "ADA",
    "CONFIG",
    "CORA",
    "asked",
    "bearer",
    "key_noise",
    "on_another_machine",
    "served",
    "write_served",
]


@contextmanager
def on_another_machine() -> Iterator[None]:
    """Debits are those of a machine that is not this one, and of nobody's."""
    place = store._place
    store._place = lambda: ("another-machine", "its-boot", "its-namespace")
    store.this_process.cache_clear()
    try:
        yield
    finally:
        store._place = place
        store.this_process.cache_clear()
