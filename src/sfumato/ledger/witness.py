# SPDX-License-Identifier: Apache-2.0
"""The head file: a second, append-only witness of how far a ledger has come.

After every committed record its number and hash are appended to ``<ledger>.head``. A ledger file
that was replaced by an older copy lacks a record that the head file names, and is refused. Lines
are written after the commit, so after a crash the head file may lag behind the ledger but is never
ahead of it; and two processes may append out of order, so the largest number counts.
`LedgerWitness` appends and reads; `sfumato.ledger.transaction` uses it in every transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sfumato.errors import LedgerError
from sfumato.ledger.ledger_limits import LIMITS

__all__ = [
    "LedgerWitness",
    "WitnessLine",
]


@dataclass(frozen=True, slots=True, order=True)
class WitnessLine:
    """A line of the head file: the number and the hash of a record that was committed."""

    sequence: int
    hash: str


class LedgerWitness:
    """A head file; its last line is remembered as long as nobody else has changed the file."""

    __slots__ = ("_remembered", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remembered: tuple[_Mark | None, WitnessLine | None] = (None, None)

    def append(self, line: WitnessLine) -> None:
        """Append one line and wait until it is on the disk."""
        data = f"{line.sequence} {line.hash}\n".encode()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                before = os.fstat(file)
                size = before.st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    data = b"\n" + data  # a crash tore the last line; it must not swallow this one
                if os.write(file, data) != len(data):
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
        mark, last = self._remembered
        if _mark(before) == mark and after.st_size == size + len(data):
            self._remembered = (_mark(after), line if last is None else max(line, last))

    def last(self) -> WitnessLine | None:
        """Return the line with the largest number near the end; None if there is no line."""
        remembered, last = self._remembered
        data, mark = self._read(unless=remembered)
        if data is None:
            return last
        last = max(_parse(data), default=None)
        self._remembered = (mark, last)
        return last

    def all(self) -> Iterator[WitnessLine]:
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
                if whole or size <= LIMITS.witness_tail_bytes:
                    return file.read(), mark
                file.seek(size - LIMITS.witness_tail_bytes)
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


def _parse(data: bytes) -> Iterator[WitnessLine]:
    for line in data.decode("ascii", "replace").split("\n")[:-1]:
        number, _, digest = line.partition(" ")
        if number.isdecimal() and len(digest) == 64:  # a torn line is no line
            yield WitnessLine(int(number), digest)
