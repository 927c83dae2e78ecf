# SPDX-License-Identifier: Apache-2.0
"""JSON lines: `lines` returns one text a record, `field_text` what a named field of it says.

Every line is a record (docs/proofs/csv.md): an object whose fields are the columns. A line that is
none (not UTF-8, not JSON, a list or a number, longer than 16 MiB) is a record of nulls; none is
dropped. The names of fields stand in the records, so nothing is listed here: a field that no record
has is null in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from sfumato.vault.engine import quoted_text
from sfumato.vault.transcode import opened
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "field_text",
    "lines",
]


def lines(paths: Sequence[str]) -> Iterator[pa.Table]:
    """All lines of some files under the name ``line``, null where they are no text in UTF-8.

    Privacy: what becomes of a line is a function of its bytes.
    Neighbours: files that differ in one line (Theorem 1 of docs/proofs/csv.md).
    """
    for path in paths:
        with closing(opened(path, is_marked=False)) as file:
            rest, is_overlong = b"", False
            while chunk := file.read(LIMITS.block_bytes):
                if is_overlong:
                    _, feed, chunk = chunk.partition(b"\n")
                    if not feed:
                        continue
                    is_overlong = False
                    yield _texts(b"\0\n")
                text, feed, rest = (rest + chunk).rpartition(b"\n")
                if feed:
                    yield _texts(text + feed)
                if len(rest) > LIMITS.record_bytes:
                    rest, is_overlong = b"", True
            if is_overlong:
                yield _texts(b"\0\n")
            elif rest:
                yield _texts(rest + b"\n")


def _texts(text: bytes) -> pa.Table:
    """The lines of a text that ends with one, as a column."""
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    try:
        text.decode()
        is_plain = b"\0" not in text and int((ends - starts).max()) <= LIMITS.record_bytes
    except UnicodeDecodeError:
        is_plain = False
    if not is_plain:
        each = [_text(text[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return pa.table({"line": pa.array(each, pa.large_string())})
    # Line ends are blanks to JSON, so each line may have its own with it.
    offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)]
    return pa.table({"line": pa.Array.from_buffers(pa.large_string(), ends.size, buffers)})


def _text(line: bytes) -> str | None:
    if b"\0" in line or len(line) > LIMITS.record_bytes:
        return None
    try:
        return line.decode()
    except UnicodeDecodeError:  # which would quote it
        return None


def field_text(name: str) -> str:
    """SQL for the text of a field of the column ``line``: null of no object, empty of no value.

    ``a.b`` is the field of that name, or else b of the object a. DuckDB gives up a query for one
    line that is no JSON, so each is looked at before; the mark of UTF-8 before a line is no part.
    """
    line = "ltrim(line, chr(65279))"
    exact = f"json_extract_string({line}, {quoted_text(_pointer([name]))})"
    if "." in name:
        inner = f"json_extract_string({line}, {quoted_text(_pointer(name.split('.')))})"
        exact = f"COALESCE({exact}, {inner})"
    is_object = f"CASE WHEN json_valid({line}) THEN TRY(json_type({line})) END = 'OBJECT'"
    return f"(CASE WHEN {is_object} THEN COALESCE(TRY({exact}), '') END)"


def _pointer(path: Sequence[str]) -> str:
    """The place of a field as RFC 6901 writes it."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
