# SPDX-License-Identifier: Apache-2.0
"""CSV files: what writers write is read, and no record reaches into another, under every rule."""

from __future__ import annotations

import csv
import io
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.errors import TableError
from sfumato.vault import files as csv_module
from sfumato.vault.count import count_marginals
from sfumato.vault.sources import CsvSource
from sfumato.vault.tables import open_table

slow_start = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = settings(max_examples=150, deadline=None)

WORDS = ("a", "b c", 'say "no"', "x,y", ";", "|", "ü", "'", '"', "#", "\\", "1\t2")
DOMAIN = Domain(
    [
        Category("first", WORDS, outside="other", nulls="missing"),
        Category("second", ("p", "q"), outside="other", nulls="missing"),
    ]
)
HEADER = b"first,second"
MARK = "\ufeff".encode()  # a byte order mark, which readers take away where a text begins
NULLS = (None, None)


def counted(text: bytes, rule: str | None = None) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(text)
        source = path if rule is None else CsvSource(path, rule)
        return count_marginals(open_table(source), DOMAIN, [DOMAIN.names]).reveal(DOMAIN.names)


def read(
    text: bytes, rule: str | None = None, block: int = 1 << 24, width: int = 2, delimiter: str = ","
) -> Counter[tuple[str | None, ...]]:
    """The records of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(text)
        with patch.object(csv_module, "LIMITS", replace(csv_module.LIMITS, block_bytes=block)):
            tables = list(csv_module.blocks([str(path)], width, delimiter, range(width), rule))
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


def records(
    lines: list[bytes], rule: str | None = "lines", end: bytes = b"\n", block: int = 1 << 24
) -> Counter[tuple[str | None, ...]]:
    return read(end.join([HEADER, *lines, b""]), rule, block)


def is_refused(lines: list[bytes], rule: str | None, end: bytes = b"\n") -> bool:
    try:
        records(lines, rule, end)
    except TableError:
        return True
    return False


@slow_start
@given(
    st.lists(st.tuples(st.sampled_from([*WORDS, "", "z"]), st.sampled_from("pqr")), max_size=20),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([None, "lines", "rfc4180"]),
)
def test_what_a_csv_writer_writes_is_read(rows, delimiter, end, quoting, rule):
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerow(DOMAIN.names)
        writer.writerows(rows)
        file.seek(0)
        found = counted(file.read().encode(), rule)
    expected = np.zeros(DOMAIN.shape, dtype=np.int64)
    place = {word: i for i, word in enumerate([*WORDS, "z", ""])}
    for first, second in rows:
        expected[place[first], "pqr".index(second)] += 1
    np.testing.assert_array_equal(found, expected)


# Bytes of a line: anything but the line feed, leaning to those that have a meaning in CSV.
PIECES = [b'"', b'""', b",", b"a", b"\x00", b"\\", b"\xff", b"\xc3\xbc", b" ", b"p", b"\r", MARK]
lines = (
    st.binary(max_size=12)
    | st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)
    | st.sampled_from(
        [b"a,p", b'"x,y",q', b'"say ""no""",p', b'a, "b, c"', b"z" * 40, MARK + b"a,p"]
    )
).map(lambda line: line.replace(b"\n", b""))


@quick
@given(st.lists(lines, max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_file_holds_the_records_of_its_lines_each_read_alone(some_lines, end):
    """The neighbours of a file: one line more or less is one record more or less."""
    if end == b"\r":
        some_lines = [line.replace(b"\r", b"") for line in some_lines]
    alone = [records([line]) for line in some_lines]
    assert all(one.total() == 1 for one in alone)
    assert records(some_lines, "lines", end) == sum(alone, Counter())


@quick
@given(st.lists(lines, max_size=8), st.integers(1, 30), st.integers(3, 60))
def test_where_blocks_are_cut_is_of_no_consequence(some_lines, block, longest):
    with patch.object(csv_module, "LIMITS", replace(csv_module.LIMITS, record_bytes=longest)):
        whole = records(some_lines)
        assert records(some_lines, block=block) == whole
        assert whole.total() == len(some_lines)
        for rule in (None, "rfc4180"):
            if is_refused(some_lines, rule):
                with pytest.raises(TableError):
                    records(some_lines, rule, block=block)
            else:
                assert records(some_lines, rule, block=block) == records(some_lines, rule)


@quick
@given(st.lists(lines, max_size=8), st.sampled_from([None, "lines", "rfc4180"]), st.integers(0, 3))
def test_many_lines_of_another_width_are_counted_as_few_are(some_lines, rule, most):
    assume(not is_refused(some_lines, rule))
    few = records(some_lines, rule)
    with patch.object(csv_module, "LIMITS", replace(csv_module.LIMITS, records_skipped=most)):
        assert records(some_lines, rule) == few


@quick
@given(st.lists(lines, max_size=6), lines, st.integers(0, 6), st.sampled_from([None, "lines"]))
def test_a_line_inserted_or_replaced_changes_one_record_or_the_file_is_refused(
    some_lines, line, place, rule
):
    assume(not is_refused(some_lines, rule))
    before = records(some_lines, rule)
    assert before.total() == len(some_lines)
    inserted = [*some_lines[:place], line, *some_lines[place:]]
    replaced = [*some_lines[:place], line, *some_lines[place + 1 :]]
    if rule is None and is_refused([line], rule):
        assert is_refused(inserted, rule), "whether a line is refused depends on it alone"
        return
    more = records(inserted, rule)
    assert before <= more
    assert more - before == records([line], rule)
    other = records(replaced, rule)
    assert other.total() == max(len(some_lines), min(place, len(some_lines)) + 1)
    assert (before - other).total() <= 1


@quick
@given(st.lists(lines, max_size=6))
def test_undeclared_a_file_is_read_where_both_rules_agree_and_refused_elsewhere(some_lines):
    """Each line must be of the grammar on its own."""
    alone = [is_refused([line], "rfc4180") for line in some_lines]
    assert is_refused(some_lines, None) == any(alone)
    if not any(alone):
        both = records(some_lines, "lines"), records(some_lines, "rfc4180")
        assert both == (records(some_lines, None),) * 2


# Values of people who write what they like; a writer of RFC 4180 puts them into a file.
VALUES = st.lists(
    st.sampled_from(
        ['"', '""', ",", "\n", "\r\n", "\r", "a", "M,x\n", "\\", " ", "ü", "\ufeff", "'"]
    )
    | st.characters(codec="utf-8", exclude_characters="\0"),
    max_size=8,
).map("".join)
ROWS = st.lists(st.tuples(VALUES, VALUES), max_size=6)


def written(rows, end="\n", quoting=csv.QUOTE_MINIMAL, delimiter=",") -> bytes:
    """As Python's writer writes it; from 3.13 on it puts every carriage return in quotes."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerow(["first", "second"])
    quoting_all = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    for row in rows:
        has_returns = end != "\r\n" and "\r" in "".join(row)
        (quoting_all if has_returns or end == "\r" else writer).writerow(row)
    return file.getvalue().encode()


@quick
@given(
    ROWS,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(",;\t|"),
    st.integers(1, 40),
)
def test_texts_with_line_ends_are_read_as_python_and_pandas_read_them(
    rows, end, quoting, delimiter, block
):
    text = written(rows, end, quoting, delimiter)
    found = read(text, "rfc4180", block, delimiter=delimiter)
    assert found == Counter(rows)
    assert found == read(text, "rfc4180", delimiter=delimiter)
    lines = list(csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter))
    assert found == Counter(map(tuple, lines[1:]))
    if rows:
        frame = pd.read_csv(
            io.BytesIO(text),
            sep=delimiter,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            lineterminator="\r" if end == "\r" else None,
        )
        assert found == Counter(frame.itertuples(index=False, name=None))


@quick
@given(ROWS, st.tuples(VALUES, VALUES), st.integers(0, 6), st.sampled_from(["\n", "\r\n"]))
def test_a_record_inserted_or_replaced_in_the_table_changes_one_record_of_the_file(
    rows, row, place, end
):
    """Neighbours are tables before they are written: any values of one person."""
    before = read(written(rows, end), "rfc4180")
    more = read(written([*rows[:place], row, *rows[place:]], end), "rfc4180")
    assert more - before == Counter([row])
    assert not before - more
    other = read(written([*rows[:place], row, *rows[place + 1 :]], end), "rfc4180")
    assert (before - other).total() <= 1
    assert (other - before).total() <= 1


@quick
@given(ROWS, st.sampled_from(["\n", "\r\n"]))
def test_undeclared_no_person_is_several_records(rows, end):
    """Whatever people write: the records are theirs, or the file is refused."""
    text = written(rows, end)
    holds_line_ends = any("\n" in value for row in rows for value in row)
    try:
        assert read(text) == Counter(rows)
        assert not holds_line_ends
    except TableError:
        assert holds_line_ends


@quick
@given(ROWS.filter(len))
def test_writers_that_put_a_backslash_before_quotes_are_refused_if_texts_hold_line_ends(rows):
    def quoted(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "first,second\n" + "".join(",".join(map(quoted, row)) + "\n" for row in rows)
    if any("\n" in value for row in rows for value in row):
        with pytest.raises(TableError):
            read(text.encode())


def test_pandas_puts_no_quotes_around_a_carriage_return_and_it_ends_no_record():
    """Its reader would see four records here."""
    frame = pd.DataFrame({"first": ["a\rM,p\rM,p\rb", "z"], "second": ["p", "q"]})
    text = "first,second\n" + "".join(f"{a},{b}\n" for a, b in frame.itertuples(index=False))
    for rule in (None, "lines", "rfc4180"):
        found = read(text.encode(), rule)
        assert found == Counter([NULLS, ("z", "q")]), "four commas are too many values"
    one = read(b"first,second\na\rb\rc,p\n\x85\xe2\x80\xa8,q\n")
    assert one == Counter([("a\rb\rc", "p"), NULLS])


def test_a_comment_of_many_lines_is_one_record_or_a_refusal():
    rows = [("F", "fine"), ("M", "bad\n" + "M,x\n" * 1000), ("F", "ok")]
    text = written(rows)
    with pytest.raises(TableError, match="holds a quote that is open at the end of a line"):
        read(text)
    assert read(text, "rfc4180") == Counter(rows)
    assert read(text, "lines").total() == 1004, "as declared: no text holds a line end"


def test_a_mark_before_a_value_belongs_to_it_wherever_its_line_stands():
    """Had the first line of a block lost it, a line before it would have changed two records."""
    marked = MARK + b"a,p"
    assert records([marked]) == Counter([("\ufeffa", "p")])
    assert records([marked, marked, b"b,q"]) == Counter([("b", "q"), *[("\ufeffa", "p")] * 2])
    assert records([b"b,q", marked]) == Counter([("b", "q"), ("\ufeffa", "p")])
    assert records([MARK + marked]) == Counter([("\ufeff\ufeffa", "p")])


@pytest.mark.parametrize("rule", [None, "lines", "rfc4180"])
def test_an_empty_line_is_a_record_of_empty_values(rule):
    """Several writers write a null so in a file of one column."""
    assert records([b"a,p", b"", b"b,q", b""], rule)["", ""] == 2
    assert read(b"first\na\n\n\nb\n\n", rule, width=1) == Counter({("a",): 1, ("b",): 1, ("",): 3})
    assert read(b"first\na", rule, width=1) == Counter({("a",): 1})
    assert read(b"first\n", rule, width=1) == Counter()
    assert read(b"first", rule, width=1) == Counter()


@slow_start
@given(lines, st.integers(0, 4))
def test_one_line_more_changes_the_counts_by_one(line, place):
    rows = [b"a,p", b'"x,y",q', b"b c,p", b'"say ""no""",p']
    one = counted(b"\n".join([HEADER, *rows, b""]), "lines")
    other = counted(b"\n".join([HEADER, *rows[:place], line, *rows[place:], b""]), "lines")
    assert one.sum() == 4
    assert (other >= one).all()
    assert other.sum() - one.sum() == 1, "nulls and values outside have cells of their own"


def test_every_short_line_of_quotes_and_delimiters_is_read_as_pythons_reader_does():
    """Exhaustively, all in one file: whatever a line leaves open, the next one begins anew."""
    texts = ["".join(made) for size in range(1, 8) for made in product('a",', repeat=size)]
    expected: Counter[tuple[str | None, ...]] = Counter()
    for text in texts:
        try:
            values = next(csv.reader([text], strict=True))
        except csv.Error:
            values = []
        expected[tuple(values) if len(values) == 2 else NULLS] += 1
    assert 400 < len(texts) - expected[NULLS] < len(texts)
    assert records([text.encode() for text in texts]) == expected


def test_every_short_text_of_quotes_commas_and_line_ends_is_read_as_pythons_reader_or_refused():
    """Exhaustively: what is not refused under the rule of RFC 4180 has Python's records."""
    is_read = 0
    for made in product('a",\n', repeat=6):
        text = "".join(made)
        try:
            found = read(b"first,second\n" + text.encode(), "rfc4180")
        except TableError:
            continue
        is_read += 1
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        full = (row or ["", ""] for row in rows)
        assert found == Counter(tuple(row) if len(row) == 2 else NULLS for row in full)
    assert is_read > 700


@pytest.mark.parametrize("rule", [None, "lines", "rfc4180"])
@pytest.mark.parametrize(
    ("value", "is_closed"),
    [
        (b'"' + b"ab" * 90 + b'"', True),
        (b'"' + b'""' * 90 + b'"', True),
        (b' "' + b"a," * 90 + b'"  ', True),
        (b"a" * 150, True),
        (b'"' + b"a" * 150, False),
        (b'"' + b"a" * 150 + b'"x', False),
        (b"a" * 150 + b'"', False),
        (b'"' + b"a" * 150 + b'"\rx', False),
    ],
)
def test_a_record_too_long_to_be_held_is_one_of_nulls_and_its_quotes_count(rule, value, is_closed):
    for block in (1, 7, 64, 1 << 24):
        with patch.object(csv_module, "LIMITS", replace(csv_module.LIMITS, record_bytes=100)):
            some_lines = [b"a,p", value + b",p", b"b,q"]
            if rule == "lines" or is_closed:
                expected = Counter([("a", "p"), NULLS, ("b", "q")])
                assert records(some_lines, rule, block=block) == expected
                assert records(some_lines, rule, b"\r\n", block) == expected
            else:
                with pytest.raises(TableError):
                    records(some_lines, rule, block=block)
