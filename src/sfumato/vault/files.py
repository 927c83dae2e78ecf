# SPDX-License-Identifier: Apache-2.0
"""Read files without types (CSV, JSON lines, sheets) as records of texts, each by itself.

The readers of engines let an unclosed quote swallow the lines after it, split a text at the line
ends in its quotes, and drop what they cannot read, so that one person's bytes decide how many
records there are. Here a CSV file is read by one of two rules, and where these differ the steward
says which one holds (docs/proofs/csv.md):

    lines      no text holds a line end: every line after the first is a record, whatever is in it
    rfc4180    a writer put texts with delimiters, quotes or line ends in quotes, and doubled the
               quotes inside: a record ends at the first line end outside quotes

Undeclared, a file is read only if both rules give the same records: each of its lines is of the
grammar of RFC 4180 on its own. A file that is not as declared is refused as a whole, in words that
depend on nothing but its name.

A record whose values cannot be told (not UTF-8, a zero byte, more than 16 MiB, another number of
values than the first line, under ``lines`` also quotes that do not close) is a record of nulls; an
empty line is a record of empty values, which mean null too. No record is dropped.

JSON lines: `lines` returns one text a record, `field_text` what a named field of it says. Every
line is a record: an object whose fields are the columns. A line that is none (not UTF-8, not JSON,
a list or a number, longer than 16 MiB) is a record of nulls; none is dropped. The names of fields
stand in the records, so nothing is listed here: a field that no record has is null in all.

Sheets of a spreadsheet: `sheet_columns` returns the names of columns, `sheet_texts` their texts.
Cells have types of their own, one by one, so that a column has none: every cell is a text, as in
CSV (12, 12.5, true, 2024-01-31), and the schema says what it means. A row without any value is no
record: between two records and behind the last one a sheet has as many as one likes. So a record
that is replaced by nothing leaves the table, and the number of records is not public.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sfumato.errors import TableError
from sfumato.text import did_you_mean, listing, shown
from sfumato.vault.engine import quoted_text, sealed
from sfumato.vault.sources import CORNER, TABLE_MARK, CsvRule, CsvSource, check_column_names
from sfumato.vault.transcode import PACKED, Bytes, opened
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["blocks", "csv_columns", "field_text", "header", "lines", "sheet_columns", "sheet_texts"]


_DELIMITERS: Final = ",;\t|"
_QUOTE, _FEED, _RETURN = b'"\n\r'
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark
_RETURNS_AS_FEEDS: Final = (b"\r\n", b"\n\r")
_NO_QUOTE: Final = "\x1f"
"""What encloses values where nothing does: a control character that separates units."""


def header(path: str, declared: CsvSource | None = None) -> tuple[str, list[str]]:
    """The delimiter and the column names, as declared or from the first line alone."""
    declared = CsvSource(path) if declared is None else declared
    is_tsv = Path(_bare(path)).suffix == ".tsv"
    if declared.header is not None:
        return declared.delimiter or ("\t" if is_tsv else ","), list(declared.header)
    encoding = declared.encoding

    def first_line() -> str:
        with closing(opened(path, encoding)) as file:
            return _first_line(_start(file)).decode("utf-8-sig")

    line = sealed(
        first_line,
        f"{shown(path)} cannot be read as text in {encoding or 'UTF-8'}; declare its encoding, "
        'such as encoding = "cp1252" for Western Windows or encoding = "utf-16", or save it as '
        "UTF-8",
    )
    if not line.strip():
        raise TableError(
            f"{shown(path)} has no first line with the names of the columns; add one, or declare "
            "them: header = [...]"
        )
    if len(line.encode()) >= LIMITS.header_bytes:
        raise TableError(f"the first line of {shown(path)} is longer than a mebibyte; shorten it")
    delimiter = declared.delimiter or ("\t" if is_tsv else max(_DELIMITERS, key=line.count))
    reader = csv.reader(
        [line],
        delimiter=delimiter,
        quotechar=declared.quote or '"',
        quoting=csv.QUOTE_NONE if declared.quote == "" else csv.QUOTE_MINIMAL,
        skipinitialspace=True,
        strict=True,
    )
    names = sealed(
        lambda: [name.strip() for name in next(reader)],
        f"the first line of {shown(path)} does not hold column names (which hold no line ends)",
    )
    if not all(names):
        raise TableError(
            f"the first line of {shown(path)} leaves a column without a name; name each"
        )
    return delimiter, names


def _bare(path: str) -> str:
    """The path without the ending that says how it is packed."""
    lower = path.lower()
    return next((lower.removesuffix(end) for end in PACKED if lower.endswith(end)), lower)


def csv_columns(paths: Sequence[str], declared: CsvSource | None = None) -> tuple[str, list[str]]:
    """The delimiter and the column names that all these files have."""
    first = header(paths[0], declared)
    for path in paths[1:]:
        if header(path, declared) != first:
            raise TableError(
                f"{shown(path)} and {shown(paths[0])} have different first lines; a table of many "
                "files needs the same column names in all"
            )
    check_column_names(first[1], paths[0])
    return first


def blocks(
    paths: Sequence[str],
    width: int,
    delimiter: str,
    columns: Sequence[int],
    rule: CsvRule | None = None,
    name: str = "the CSV file",
    declared: CsvSource | None = None,
) -> Iterator[pa.Table]:
    """The values of some columns (by number) of all records, as texts, a few MiB at a time.

    Records of nulls come last; the order of records means nothing.

    Args:
        paths: The files, each with a first line of column names.
        width: How many columns there are.
        delimiter: What stands between two values.
        columns: The numbers of the columns to be read.
        rule: Which lines are a record, as the steward declares; None if nothing is declared.
        name: What to call the table in a refusal.
        declared: The encoding, the quote and whether a first line names the columns.

    Raises:
        TableError: The bytes are not as declared. It is raised after the last block, so that
            neither its words nor what was read before it tell where.

    Privacy: the records are a function of the file, and by the theorems of docs/proofs/csv.md one
    record more, less or another in its place changes no other one.
    Neighbours: files that differ in one line (``lines``); files written from tables that differ in
    one record, whatever its values (``rfc4180``); undeclared, both.
    """
    import pyarrow as pa

    encoding = None if declared is None else declared.encoding
    has_header = declared is None or declared.header is None
    quotes = _exchanged(None if declared is None else declared.quote)
    scan = _Scan(_swapped(delimiter, quotes), rule, encoding, has_header)
    delimiter = scan.delimiter
    for path in paths:
        is_swapped = False
        if has_header:
            with closing(opened(path, encoding)) as file:
                is_swapped = _ends_in_returns(_start(file))
        swaps = _table(quotes, _RETURNS_AS_FEEDS if is_swapped else None)
        for text, ends in scan.whole_records(path, swaps):
            readable = scan.readable(text, ends)
            table = _parsed(readable, width, delimiter, columns, scan)
            if table is None:
                readable = scan.of_width(readable, width)
                table = _parsed(readable, width, delimiter, columns, scan)
            assert table is not None  # noqa: S101  every record has as many values as columns
            yield table if swaps is None else _swapped_back(table, swaps)
    while scan.unreadable:
        size = min(scan.unreadable, LIMITS.null_records)
        scan.unreadable -= size
        yield pa.table({f"x{i}": pa.nulls(size, pa.string()) for i in columns})
    if not scan.is_as_declared:
        raise TableError(_refusal(name, rule))


def _refusal(name: str, rule: CsvRule | None) -> str:
    if rule is not None:
        return (
            f'{name} is declared as csv = "rfc4180" and is not: a quote is not closed, or a value '
            "holds one without being in quotes with its quotes doubled; write the file anew with a "
            'writer that does so, or as Parquet, or declare csv = "lines" if no text holds a line '
            "end"
        )
    return (
        f"{name} holds a quote that is open at the end of a line, or that a writer of RFC 4180 "
        "would have doubled, so that its lines may not be its records; declare how it was "
        'written: csv = "lines" if no text holds a line end (every line is a record), or '
        'csv = "rfc4180" if texts with line ends stand in quotes, with quotes doubled; in Python '
        'sf.CsvSource(path, "lines") or sf.CsvSource(path, "rfc4180"), on the command line '
        "--csv csv=lines or --csv csv=rfc4180; or write it as Parquet"
    )


def _start(file: Bytes) -> bytes:
    """The first line and what follows it, a mebibyte or more of it where there is no line end."""
    start = b""
    while len(start) < LIMITS.header_bytes and (chunk := file.read(LIMITS.header_bytes)):
        start += chunk
    return start


def _exchanged(quote: str | None) -> tuple[bytes, bytes] | None:
    """The quote of the file and the double quote, which are read in place of each other."""
    if quote is None or quote == '"':
        return None
    mark = (quote or _NO_QUOTE).encode()
    return b'"' + mark, mark + b'"'


def _table(*swaps: tuple[bytes, bytes] | None) -> bytes | None:
    """How bytes are exchanged, pairs of them in turn; undone by doing it again."""
    pairs = [swap for swap in swaps if swap is not None]
    if not pairs:
        return None
    return bytes.maketrans(b"".join(a for a, _ in pairs), b"".join(b for _, b in pairs))


def _swapped(mark: str, swap: tuple[bytes, bytes] | None) -> str:
    table = _table(swap)
    return mark if table is None else mark.encode().translate(table).decode()


def _first_line(start: bytes) -> bytes:
    return start.replace(b"\r", b"\n").partition(b"\n")[0]


def _ends_in_returns(start: bytes) -> bool:
    """Whether carriage returns end the records: one ends the first line, and no line feed follows.

    A public matter: the rest of the file is not looked at.
    """
    after = start[len(_first_line(start)) :]
    return bool(after) and not after.lstrip(b"\r").startswith(b"\n")


@dataclass
class _Scan:
    """One pass over files: cuts them into records, and notes whether they are as declared."""

    delimiter: str
    rule: CsvRule | None
    encoding: str | None = None
    has_header: bool = True
    unreadable: int = 0  # records of nulls
    is_as_declared: bool = True
    values: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        # A quoted value with blanks around it, or one that does not begin with a quote.
        comma = re.escape(self.delimiter.encode())
        barred = comma if self.rule == "lines" else comma + b'"'
        self.values = re.compile(
            rb'(?: *+"((?:[^"]++|"")*+)" *+|((?! *+")[^%b]*+))(%b|\Z)' % (barred, comma)
        )

    def whole_records(
        self, path: str, swaps: bytes | None
    ) -> Iterator[tuple[bytes, npt.NDArray[np.intp]]]:
        """Blocks of whole records after the first line, with the places of their last bytes."""
        with closing(opened(path, self.encoding, is_marked=self.has_header)) as file:
            rest, is_header, overlong = b"", self.has_header, None
            while chunk := file.read(LIMITS.block_bytes):
                if swaps is not None:
                    chunk = chunk.translate(swaps)
                if is_header:
                    _, feed, chunk = chunk.partition(b"\n")
                    is_header = not feed
                if overlong is not None:
                    end = overlong.end(chunk)
                    if end is None:
                        continue
                    overlong = None
                    self.unreadable += 1
                    chunk = chunk[end:]
                text = rest + chunk
                ends = self.ends(text)
                if ends.size:
                    yield text, ends
                    rest = text[int(ends[-1]) + 1 :]
                elif len(text) > LIMITS.record_bytes:
                    overlong, rest = _Overlong(self), b""
                    overlong.end(text)
                else:
                    rest = text
            if overlong is not None:
                self.unreadable += 1
                if overlong.end(b"\n") is None:
                    self.is_as_declared = False
            elif rest:
                rest += b"\n"
                ends = self.ends(rest)
                if ends.size:
                    yield rest, ends
                else:
                    self.is_as_declared = False

    def ends(self, text: bytes) -> npt.NDArray[np.intp]:
        """The line feeds that end records in a text that begins with one."""
        data = np.frombuffer(text, dtype=np.uint8)
        feeds = np.flatnonzero(data == _FEED)
        if self.rule == "lines" or b'"' not in text:
            return feeds
        quotes = np.flatnonzero(data == _QUOTE)
        is_outside = np.searchsorted(quotes, feeds) % 2 == 0
        if self.rule is None and not is_outside.all():
            self.is_as_declared = False
        ends: npt.NDArray[np.intp] = feeds[is_outside]
        return ends

    def readable(self, text: bytes, ends: npt.NDArray[np.intp]) -> bytes:
        """The records that can be split without a look at any other; the others are counted."""
        text = text[: int(ends[-1]) + 1]
        data = np.frombuffer(text, dtype=np.uint8)
        lengths = np.diff(ends, prepend=-1)
        is_bad = lengths > LIMITS.record_bytes
        if b"\0" in text:
            is_bad[np.searchsorted(ends, np.flatnonzero(data == 0))] = True
        starts = ends - lengths + 1
        if not _is_utf8(text):
            for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                is_bad[i] |= not _is_utf8(text[start:end])
        is_odd = self._odd(text, data, ends)
        again: list[bytes] = []
        for i in np.flatnonzero(is_odd).tolist():
            values = self._split(text[starts[i] : ends[i]].rstrip(b"\r"))
            if values is None:
                is_bad[i] = True
                self.is_as_declared = self.is_as_declared and self.rule == "lines"
            elif not is_bad[i]:
                again.append(_plain(values, self.delimiter.encode()))
        self.unreadable += int(is_bad.sum())
        if not (is_bad | is_odd).any():
            return text
        return data[np.repeat(~(is_bad | is_odd), lengths)].tobytes() + b"".join(again)

    def _odd(
        self, text: bytes, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.bool_]:
        """The records that Arrow may not read as we do.

        In a record, quotes open and close in turn. An opening one must follow a delimiter, a
        record or a quote (that closed: a doubled one); a closing one must be followed by one of
        these; and the last one must close. A carriage return must stand in quotes or be the last
        byte before the line feed.
        """
        is_odd = np.zeros(ends.size, dtype=np.bool_)
        quotes = np.flatnonzero(data == _QUOTE) if b'"' in text else np.zeros(0, dtype=np.intp)
        record = np.searchsorted(ends, quotes)
        per_record = np.bincount(record, minlength=ends.size)
        before = np.cumsum(per_record) - per_record
        if quotes.size:
            is_closing = (np.arange(quotes.size) - before[record]) % 2 == 1
            is_border = np.zeros(256, dtype=np.bool_)
            is_border[[_FEED, _QUOTE, ord(self.delimiter)]] = True
            # Position -1, before the first record of the block, is the line feed at its end.
            is_placed = is_border[data[np.where(is_closing, quotes + 1, quotes - 1)]]
            at = np.flatnonzero(~is_placed & is_closing)
            at = at[data[quotes[at] + 1] == _RETURN]
            is_placed[at] = quotes[at] + 2 == ends[record[at]]
            is_odd |= per_record % 2 == 1
            is_odd[record[~is_placed]] = True
        if b"\r" in text:
            returns = np.flatnonzero(data == _RETURN)
            returns = returns[data[returns + 1] != _FEED]  # the block ends in a line feed
            of = np.searchsorted(ends, returns)
            is_outside = (np.searchsorted(quotes, returns) - before[of]) % 2 == 0
            is_odd[of[is_outside]] = True
        return is_odd

    def of_width(self, text: bytes, width: int) -> bytes:
        """The records of so many values, of those that `readable` gives; the others are counted."""
        data = np.frombuffer(text, dtype=np.uint8)
        ends = self.ends(text)
        lengths = np.diff(ends, prepend=-1)
        commas = np.flatnonzero(data == ord(self.delimiter))
        quotes = np.flatnonzero(data == _QUOTE)  # an even number in each record
        commas = commas[np.searchsorted(quotes, commas) % 2 == 0]
        values = np.bincount(np.searchsorted(ends, commas), minlength=ends.size) + 1
        is_empty = np.isin(data[ends - lengths + 1], [_FEED, _RETURN])
        is_bad = (values != width) & ~is_empty
        self.unreadable += int(is_bad.sum())
        chosen: bytes = data[np.repeat(~is_bad, lengths)].tobytes()
        return chosen

    def _split(self, record: bytes) -> list[bytes] | None:
        """The values of a record, None if its quotes do not enclose values."""
        values: list[bytes] = []
        place = 0
        while match := self.values.match(record, place):
            quoted, bare, delimiter = match.groups()
            values.append(bare if quoted is None else quoted.replace(b'""', b'"'))
            if not delimiter:
                return values
            place = match.end()
        return None


class _Overlong:
    """A record that is too long to be held, whose end is looked for."""

    def __init__(self, scan: _Scan) -> None:
        self.scan = scan
        self.state = "text" if scan.rule == "lines" else "start"
        self.delimiter = ord(scan.delimiter)
        marks = b"\n" if scan.rule == "lines" else b'"\n' + scan.delimiter.encode()
        self.marks = re.compile(b"[" + re.escape(marks) + b"]")

    def end(self, chunk: bytes) -> int | None:
        """The place after the record, None if it goes on after these bytes."""
        place = 0
        while place < len(chunk):
            if self.state == "quoted":
                place = self._closed(chunk, place)
                continue
            if self.state == "text":
                mark = self.marks.search(chunk, place)
                if mark is None:
                    return None
                place = mark.start()
            byte = chunk[place]
            place += 1
            if byte == _FEED:
                return place
            self.state = self._after(byte)
        return None

    def _closed(self, chunk: bytes, place: int) -> int:
        """The place after the next quote, or after the chunk."""
        quote = chunk.find(b'"', place)
        end = len(chunk) if quote < 0 else quote
        if self.scan.rule is None and chunk.find(b"\n", place, end) >= 0:
            self.scan.is_as_declared = False
        if quote >= 0:
            self.state = "closing"
        return end + (quote >= 0)

    def _after(self, byte: int) -> str:
        if byte == self.delimiter:
            return "start"
        if byte == _QUOTE and self.state in ("start", "closing"):
            return "quoted"
        if byte == ord(" ") and self.state in ("start", "closing", "closed"):
            return "start" if self.state == "start" else "closed"
        if byte == _RETURN and self.state in ("closing", "closed", "ending"):
            return "ending"
        if byte == _QUOTE or self.state not in ("start", "text"):
            self.scan.is_as_declared = False
        return "text"


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain(values: Sequence[bytes], delimiter: bytes) -> bytes:
    """A record with all its values in quotes."""
    return delimiter.join(b'"%b"' % value.replace(b'"', b'""') for value in values) + b"\n"


def _parsed(
    text: bytes, width: int, delimiter: str, columns: Sequence[int], scan: _Scan
) -> pa.Table | None:
    """The values of the records; those with another number of values are counted.

    None if there are too many of them: they are to be taken out first.
    """
    import pyarrow as pa
    import pyarrow.csv

    names = [f"x{i}" for i in range(width)]
    if not text:
        return pa.table({names[i]: pa.array([], pa.string()) for i in columns})
    count = 0

    def skipped(_: object) -> str:
        nonlocal count
        count += 1
        return "skip" if count <= LIMITS.records_skipped else "error"

    # Arrow takes one mark away from what it is given; were it a record's own, what the record says
    # would hang on whether another one stands before it.
    text = _MARK + text
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=scan.rule == "rfc4180",
                ignore_empty_lines=False,
                invalid_row_handler=skipped,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[names[i] for i in columns],
                check_utf8=False,  # done, record by record
            ),
        )
    except pa.ArrowInvalid:
        if count <= LIMITS.records_skipped:
            raise
        return None
    scan.unreadable += count
    return table


def _swapped_back(table: pa.Table, swaps: bytes) -> pa.Table:
    """The values of a file of which some bytes were read in place of each other."""
    import pyarrow as pa

    def column(values: pa.ChunkedArray) -> pa.Array:
        texts = pa.concat_arrays(values.chunks)
        validity, offsets, data = texts.buffers()
        data = data and pa.py_buffer(data.to_pybytes().translate(swaps))
        return pa.Array.from_buffers(
            pa.string(), len(texts), [validity, offsets, data], offset=texts.offset
        )

    return pa.table({name: column(table[name]) for name in table.column_names})


# JSON lines


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


# Sheets of a spreadsheet


def sheet_columns(path: str, sheet: str) -> list[str]:
    """The names in the first row of a sheet, empty where it has none."""
    first = _rows(path, sheet, 1)
    names = [str(_cell_text(cell) or "").strip() for cell in (first[0] if first else [])]
    if not any(names):
        raise TableError(
            f"{shown(path)} has no first row with the names of the columns; add one, or say the "
            f"cell in which the names begin: {shown(f'{path}{TABLE_MARK}{sheet}!A3')}"
        )
    check_column_names([name for name in names if name], path)
    return names


def sheet_texts(path: str, sheet: str, numbers: Sequence[int]) -> pa.Table:
    """Some columns, by number, of all rows after the first that hold any value.

    What becomes of a row is a function of its cells, so sheets that differ in one row are read as
    tables that do (`tests/unit/vault/test_files_excel.py`).
    """
    import pyarrow as pa

    rows = [row for row in _rows(path, sheet)[1:] if any(cell not in ("", None) for cell in row)]

    def column(number: int) -> pa.Array:
        cells = (row[number] if number < len(row) else None for row in rows)
        return pa.array([_cell_text(cell) for cell in cells], pa.string())

    return pa.table({f"x{number}": column(number) for number in numbers})


def _rows(path: str, sheet: str, most: int | None = None) -> list[list[Any]]:
    """The rows of a sheet from the first one on, with all their cells; from a corner if it is said.

    ``Sheet!B3`` is what stands below and to the right of that cell, which is public.
    """
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise TableError(
            f"{shown(path)} is a spreadsheet, which needs an extra: pip install 'sfumato[excel]'; "
            "or save the sheet as CSV"
        ) from None
    unread = f"{shown(path)} is no spreadsheet, or is damaged or locked by a password"
    book = sealed(lambda: CalamineWorkbook.from_path(path), unread)
    names: list[str] = list(book.sheet_names)
    sheet, first, left = (sheet, 0, 0) if sheet in names else _cornered(sheet)
    if not sheet and len(names) != 1:
        raise TableError(
            f"{shown(path)} holds {len(names)} sheets: {listing(names)}; name one as "
            f"{shown(f'{path}{TABLE_MARK}SHEET')}"
        )
    if sheet and sheet not in names:
        raise TableError(
            f"{shown(path)} has no sheet {shown(sheet)}; it has {listing(names)}"
            f"{did_you_mean(sheet, names)}"
        )

    def read() -> list[list[Any]]:
        held = book.get_sheet_by_name(sheet or names[0])
        rows = held.to_python(skip_empty_area=False, nrows=None if most is None else first + most)
        return [row[left:] for row in list(rows)[first:]]

    return sealed(read, unread)


def _cornered(sheet: str) -> tuple[str, int, int]:
    """The name of a sheet, and the row and column at which its table begins, from 0.

    >>> _cornered("Data!B3"), _cornered("Data")
    (('Data', 2, 1), ('Data', 0, 0))
    """
    said = CORNER.search(sheet)
    if said is None:
        return sheet, 0, 0
    letters = (ord(letter) - 64 for letter in said["column"].upper())
    column = reduce(lambda number, letter: 26 * number + letter, letters, 0)
    return sheet[: said.start()], int(said["row"]) - 1, column - 1


def _cell_text(cell: object) -> str | None:
    """A cell as a text; null if it is empty."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < 2**53
        return str(int(cell)) if is_whole else repr(cell)
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return f"{cell // timedelta(microseconds=1)} microseconds"
    try:
        text = str(cell)
        text.encode()
    except Exception:  # whatever it says may hold the value
        return None
    return text.replace("\0", "")
