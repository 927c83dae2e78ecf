# SPDX-License-Identifier: Apache-2.0
"""`opened` returns a file as bytes of UTF-8, unpacked and transcoded; it fails on no byte.

A record must not reach into another by its bytes, so only encodings are read in which it cannot
(docs/proofs/csv.md): those of one byte a character that agree with ASCII, UTF-16, whose units are
two bytes each, and East Asian ones, which are decoded line by line. What stands for no character
becomes U+FFFD, the replacement character. UTF-8 is handed on as it is.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from sfumato.errors import TableError
from sfumato.text import shown

__all__ = ["PACKED", "Bytes", "checked_encoding", "opened"]


PACKED: Final = (".gz", ".zst", ".bz2", ".xz")
"""Endings of files that are unpacked while they are read."""

_LINEWISE: Final = frozenset(
    (
        *("gbk", "gb2312", "gb18030", "big5", "big5hkscs", "cp950"),
        *("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "johab"),
    )
)
"""Encodings of several bytes a character of which the byte LF is never a part of another one."""
_UTF16: Final = ("utf-16", "utf-16-le", "utf-16-be")
_UTF8: Final = ("utf-8", "utf-8-sig")


class Bytes(Protocol):
    """What is read from a file, a part at a time."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, about so many; none at the end."""

    def close(self) -> None:
        """Let go of the file."""


def checked_encoding(encoding: str) -> str:
    """The name by which Python knows an encoding; TableError if files of it are not read.

    >>> checked_encoding("latin1"), checked_encoding("UTF_16")
    ('iso8859-1', 'utf-16')
    """
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError, ValueError):
        name = ""
    if name in (*_UTF8, *_UTF16) or name in _LINEWISE or (name and _extends_ascii(name)):
        return name
    raise TableError(
        f"encoding = {shown(encoding)} is none that files are read in; allowed are utf-8, utf-16, "
        "every one of a byte per character that agrees with ASCII (cp1252 for Western Windows, "
        "latin-1, cp1250, cp1251, iso8859-15, mac-roman, ...), and gb18030, gbk, big5, shift_jis, "
        "euc_jp, euc_kr"
    )


def _extends_ascii(name: str) -> bool:
    """Whether each byte is one character, and ASCII's characters are its own bytes and no other."""
    if name == "ascii":
        return True
    try:
        module = importlib.import_module(f"encodings.{name.replace('-', '_')}")
    except ImportError:
        return False
    table = getattr(module, "decoding_table", "")
    own = ((ord(c) == i) if i < 128 else ord(c) >= 128 for i, c in enumerate(table))
    return len(table) == 256 and all(own)


def opened(path: str, encoding: str | None = None, *, is_marked: bool = True) -> Bytes:
    """The file in UTF-8, unpacked.

    Args:
        path: The file; its ending says how it is packed.
        encoding: As declared. None: UTF-8, or UTF-16 where the file begins with its mark.
        is_marked: Whether the first bytes are public, so that a mark may be looked for in them.

    Raises:
        TableError: There is no such encoding.
    """
    name = None if encoding is None else checked_encoding(encoding)
    if name is None and is_marked:
        with closing(_unpacked(path)) as file:
            start = file.read(2)
        name = "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else None
    file = _unpacked(path)
    if name is None or name == "utf-8":
        return file
    if name == "utf-8-sig":
        return _Unmarked(file)
    return _Transcoded(file, _Linewise(name) if name in _LINEWISE else _Whole(name))


def _unpacked(path: str) -> Bytes:
    ending = Path(path.lower()).suffix
    if ending == ".gz":
        return gzip.GzipFile(path, "rb")
    if ending == ".bz2":
        return bz2.BZ2File(path, "rb")
    if ending == ".xz":
        return lzma.LZMAFile(path, "rb")
    if ending == ".zst":
        import pyarrow as pa

        stream: Bytes = pa.input_stream(path, compression="zstd")
        return stream
    return Path(path).open("rb")


class _Unmarked:
    """A file of UTF-8 without the mark that it is declared to begin with."""

    def __init__(self, file: Bytes) -> None:
        self.file = file
        self.is_start = True

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        chunk = self.file.read(max(size, 3))
        if self.is_start:
            self.is_start = False
            without = chunk.removeprefix(codecs.BOM_UTF8)
            return without or (self.file.read(size) if chunk else b"")
        return chunk

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()


class _Decoder(Protocol):
    def decode(self, chunk: bytes, is_last: bool) -> str: ...


class _Whole:
    """Bytes or units of two bytes, each decoded by itself or as a half of a pair."""

    def __init__(self, name: str) -> None:
        self.decoder = codecs.getincrementaldecoder(name)(errors="replace")

    def decode(self, chunk: bytes, is_last: bool) -> str:
        return self.decoder.decode(chunk, is_last)


class _Linewise:
    """Lines, each decoded as if it were alone: a half of a character at its end takes no LF."""

    def __init__(self, name: str) -> None:
        self.decoder = codecs.getincrementaldecoder(name)(errors="replace")

    def decode(self, chunk: bytes, is_last: bool) -> str:
        *lines, rest = chunk.split(b"\n")
        texts = []
        for line in lines:
            texts.append(self.decoder.decode(line, True))
            self.decoder.reset()
        return "\n".join([*texts, self.decoder.decode(rest, is_last)])


class _Transcoded:
    """A file of another encoding, as UTF-8."""

    def __init__(self, file: Bytes, decoder: _Decoder) -> None:
        self.file, self.decoder = file, decoder

    def read(self, size: int, /) -> bytes:
        """The next bytes, of which a character of one byte may become three."""
        while True:
            chunk = self.file.read(size)
            text = self.decoder.decode(chunk, not chunk)
            if text or not chunk:
                return text.encode()

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()
