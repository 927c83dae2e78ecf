# SPDX-License-Identifier: Apache-2.0
"""CSV files, block by block: one line is one record, whatever stands in it.

The readers of engines let an unclosed quote swallow the lines after it, so that one person's line
can change any number of records, and they guess types and delimiters from values. Here a line ends
where it ends; one that is not well-formed is no record, and every other line is read as if it were
not there. Hence files that differ in one line differ in at most one record.

A line is well-formed when it is UTF-8 without zero bytes, at most 1 MiB long, and has as many
values as the header; a value may stand in double quotes, which are doubled inside.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sfumato.errors import TableError
from sfumato.vault.sensitive import sealed
from sfumato.wording import shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["blocks", "header"]

LONGEST_LINE: Final = 1 << 20
BLOCK_BYTES: Final = 1 << 24

_DELIMITERS: Final = ",;\t|"
_QUOTE: Final = ord('"')
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark


def header(path: str) -> tuple[str, list[str]]:
    """The delimiter and the column names, both from the first line alone."""

    def first_line() -> str:
        with _opened(path) as file:
            start = file.read(LONGEST_LINE)
        return start.replace(b"\r", b"\n").partition(b"\n")[0].decode("utf-8-sig")

    line = sealed(first_line, f"{shown(path)} cannot be read as text in UTF-8; save it as UTF-8")
    if not line.strip():
        raise TableError(f"{shown(path)} has no first line with the names of the columns; add one")
    is_tsv = Path(path.lower().removesuffix(".gz")).suffix == ".tsv"
    delimiter = "\t" if is_tsv else max(_DELIMITERS, key=line.count)
    names = sealed(
        lambda: [name.strip() for name in next(_reader(line, delimiter))],
        f"the first line of {shown(path)} does not hold column names",
    )
    if not all(names):
        raise TableError(
            f"the first line of {shown(path)} leaves a column without a name; name each"
        )
    return delimiter, names


def blocks(
    paths: Sequence[str], width: int, delimiter: str, wanted: Sequence[int]
) -> Iterator[pa.Table]:
    """The values of some columns (by number) of all records, as texts, a few MiB at a time."""
    for path in paths:
        for lines in _lines(path):
            table = _parsed(_well_formed(lines, delimiter), width, delimiter, wanted)
            if table is not None:
                yield table


def _opened(path: str) -> gzip.GzipFile | BufferedReader:
    """The bytes of a file, unpacked."""
    if path.lower().endswith(".gz"):
        return gzip.GzipFile(path, "rb")
    return Path(path).open("rb")


def _reader(line: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)


def _lines(path: str) -> Iterator[bytes]:
    """Blocks of whole lines after the first, each ended by a single line feed."""
    with _opened(path) as file:
        rest, is_header, is_too_long = b"", True, False
        while chunk := file.read(BLOCK_BYTES):
            # A pair that is cut by the end of the chunk becomes an empty line, which is no record.
            chunk = rest + chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            whole, end, rest = chunk.rpartition(b"\n")
            if not end:
                # What was cut off here is too long for a record, and so is what belongs to it.
                is_too_long = is_too_long or len(rest) > LONGEST_LINE
                rest = rest[:LONGEST_LINE] if is_too_long else rest
                continue
            lines = whole + end
            if is_header or is_too_long:
                lines = lines[lines.index(b"\n") + 1 :]
            is_header = is_too_long = False
            yield lines
        if rest and not (is_header or is_too_long):
            yield rest + b"\n"


def _well_formed(lines: bytes, delimiter: str) -> bytes:
    """The lines that can be split without a look at any other."""
    data = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    lengths = np.diff(ends, prepend=-1)
    is_bad = lengths > LONGEST_LINE
    is_bad[np.searchsorted(ends, np.flatnonzero(data == 0))] = True
    _mark_foreign(lines, ends, is_bad)
    is_odd = _oddly_quoted(data, ends, delimiter) & ~is_bad
    if not (is_bad | is_odd).any():
        return lines
    kept = data[np.repeat(~(is_bad | is_odd), lengths)].tobytes()
    starts = ends - lengths + 1
    again = (_rewritten(lines[starts[i] : ends[i]], delimiter) for i in np.flatnonzero(is_odd))
    return kept + b"".join(again)


def _mark_foreign(lines: bytes, ends: npt.NDArray[np.intp], is_bad: npt.NDArray[np.bool_]) -> None:
    """Mark the lines that are not UTF-8."""
    if _is_utf8(lines):
        return
    for i, line in enumerate(lines.split(b"\n")[: ends.size]):
        is_bad[i] |= not _is_utf8(line)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _oddly_quoted(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.intp], delimiter: str
) -> npt.NDArray[np.bool_]:
    """The lines whose quotes do not just enclose whole values.

    In a line, quotes open and close in turn. An opening one must follow a delimiter, a line end
    or a quote (that closed: a doubled one); a closing one must be followed by one of these; and
    the last one must close.
    """
    quotes = np.flatnonzero(data == _QUOTE)
    line = np.searchsorted(ends, quotes)
    per_line = np.bincount(line, minlength=ends.size)
    turn = np.arange(quotes.size) - (np.cumsum(per_line) - per_line)[line]
    is_border = np.isin(data, [ord("\n"), ord(delimiter), _QUOTE])
    beside = np.where(turn % 2 == 0, quotes - 1, quotes + 1)
    # Position -1, before the first line of the block, is the line feed that ends the block.
    is_misplaced = ~is_border[beside]
    is_odd: npt.NDArray[np.bool_] = per_line % 2 == 1
    is_odd[line[is_misplaced]] = True
    return is_odd


def _rewritten(line: bytes, delimiter: str) -> bytes:
    """An oddly quoted line in plain form, or nothing if no reading of it closes its quotes."""
    try:
        values = next(_reader(line.decode(), delimiter))
    except (csv.Error, StopIteration):
        return b""
    quoted = ('"' + value.replace('"', '""') + '"' for value in values)
    return (delimiter.join(quoted) + "\n").encode()


def _parsed(lines: bytes, width: int, delimiter: str, wanted: Sequence[int]) -> pa.Table | None:
    """Split the lines; those with another number of values are no records."""
    import pyarrow as pa
    import pyarrow.csv

    if not lines.strip(b"\n"):
        return None
    names = [f"x{i}" for i in range(width)]
    # Arrow takes one mark away from what it is given; were it a line's own, what the line says
    # would hang on whether another line stands before it.
    text = _MARK + lines
    return pyarrow.csv.read_csv(
        pa.BufferReader(text),
        read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(text) + 1),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=[names[i] for i in wanted],
            check_utf8=False,  # done, line by line
        ),
    )
