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

from sfumato.errors import LedgerError

__all__ = ["Head", "append_head", "read_heads", "read_last_head"]

_TAIL = 1 << 16  # lines of writers that were overtaken are at most this far from the end


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """The number and the hash of a record that was committed."""

    sequence: int
    hash: str


def append_head(path: Path, head: Head) -> None:
    """Append one line and wait until it is on the disk."""
    line = f"{head.sequence} {head.hash}\n".encode()
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash tore the last line; it must not swallow this one
            if os.write(file, line) != len(line):
                raise OSError("short write")
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise LedgerError(
            f"the head file {path} cannot be written ({error.strerror or error}); "
            "nothing was released; free space or fix its permissions"
        ) from None


def read_heads(path: Path) -> Iterator[Head]:
    """Yield every complete line."""
    yield from _parse(_read(path, whole=True))


def read_last_head(path: Path) -> Head | None:
    """Return the line with the largest number near the end; None if there is no line."""
    return max(_parse(_read(path, whole=False)), default=None)


def _read(path: Path, *, whole: bool) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if whole or size <= _TAIL:
                file.seek(0)
                return file.read()
            file.seek(size - _TAIL)
            return file.read().partition(b"\n")[2]  # without the line that was cut
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise LedgerError(
            f"the head file {path} cannot be read ({error.strerror or error}); fix its permissions"
        ) from None


def _parse(data: bytes) -> Iterator[Head]:
    for line in data.decode("ascii", "replace").split("\n")[:-1]:
        number, _, digest = line.partition(" ")
        if number.isdecimal() and len(digest) == 64:  # a torn line is no line
            yield Head(int(number), digest)
