# SPDX-License-Identifier: Apache-2.0
"""The newest few things of a kind, by key."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Newest"]

T = TypeVar("T")


class Newest(Generic[T]):
    """At most ``most`` things; the one that was not used for longest goes first.

    >>> kept = Newest[int](2)
    >>> kept.put("a", 1), kept.put("b", 2), kept.get("a"), kept.put("c", 3), kept.get("b")
    (1, 2, 1, 3, None)
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """The thing under a key, if it is still there."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, thing: T) -> T:
        """Keep a thing, and return it."""
        with self._lock:
            self._kept[key] = thing
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return thing
