# SPDX-License-Identifier: Apache-2.0
"""The head file: a second, append-only witness of how far a ledger has come.

After every committed record its number and hash are appended to ``<ledger>.head``. A ledger file
that was replaced by an older copy lacks a record that the head file names, and is refused. Lines
are written after the commit, so after a crash the head may lag behind the ledger but is never
ahead of it; and two processes may append out of order, so the largest number counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sfumato.errors import LedgerError

__all__ = [
    "Head",
    "Witness",
]


_TAIL = 1 << 16  # lines of writers that were overtaken are at most this far from the end


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """The number and the hash of a record that was committed."""

    sequence: int
    hash: str


class Witness:
    """A head file. What it said last is remembered as long as nobody else has touched it."""

    __slots__ = ("_known", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[_Mark | None, Head | None] = (None, None)

    def append(self, head: Head) -> None:
        """Append one line and wait until it is on the disk."""
        line = f"{head.sequence} {head.hash}\n".encode()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                before = os.fstat(file)
                size = before.st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # a crash tore the last line; it must not swallow this one
                if os.write(file, line) != len(line):
                    raise OSError("short write")
                os.fsync(file)
                after = os.fstat(file)
            finally:
                os.close(file)
        except OSError as error:
            raise LedgerError(
                f"the head file {self.path} cannot be written ({error.strerror or error}); "
                "nothing was released; free space or fix its permissions"
            ) from None
        known, last = self._known
        if _mark(before) == known and after.st_size == size + len(line):
            self._known = (_mark(after), head if last is None else max(head, last))

    def last(self) -> Head | None:
        """Return the line with the largest number near the end; None if there is no line."""
        known, last = self._known
        data, mark = self._read(unless=known)
        if data is None:
            return last
        last = max(_parse(data), default=None)
        self._known = (mark, last)
        return last

    def all(self) -> Iterator[Head]:
        """Yield every complete line."""
        data, _ = self._read(whole=True)
        yield from _parse(data or b"")

    def _read(
        self, *, whole: bool = False, unless: _Mark | None = None
    ) -> tuple[bytes | None, _Mark | None]:
        """The end of the file or all of it, and its mark; no bytes if the mark is ``unless``."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                mark, size = _mark(status), status.st_size
                if mark == unless:
                    return None, mark
                if whole or size <= _TAIL:
                    return file.read(), mark
                file.seek(size - _TAIL)
                return file.read().partition(b"\n")[2], mark  # without the line that was cut
        except FileNotFoundError:
            return b"", None
        except OSError as error:
            raise LedgerError(
                f"the head file {self.path} cannot be read ({error.strerror or error}); "
                "fix its permissions"
            ) from None


_Mark: TypeAlias = tuple[int, int, int]
"""What tells that a file is the same and unchanged: its number, its size, its time of change."""


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _parse(data: bytes) -> Iterator[Head]:
    for line in data.decode("ascii", "replace").split("\n")[:-1]:
        number, _, digest = line.partition(" ")
        if number.isdecimal() and len(digest) == 64:  # a torn line is no line
            yield Head(int(number), digest)
