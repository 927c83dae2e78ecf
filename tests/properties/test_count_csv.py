# SPDX-License-Identifier: Apache-2.0
"""CSV files: what a well-formed writer writes is read, and no line reaches into another."""

from __future__ import annotations

import csv
import tempfile
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain import Category, Domain
from sfumato.vault import csvfile
from sfumato.vault.count import count_marginals
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


def counted(text: bytes) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(text)
        return count_marginals(open_table(path), DOMAIN, [DOMAIN.names]).reveal(DOMAIN.names)


def records(lines: list[bytes], end: bytes = b"\n", block: int = 1 << 24) -> list[tuple[str, ...]]:
    """What the reader makes of a file of two columns, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(end.join([HEADER, *lines]))
        with patch.object(csvfile, "BLOCK_BYTES", block):
            tables = list(csvfile.blocks([str(path)], 2, ",", [0, 1]))
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


@slow_start
@given(
    st.lists(st.tuples(st.sampled_from([*WORDS, "", "z"]), st.sampled_from("pqr")), max_size=20),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_a_csv_writer_writes_is_read(rows, delimiter, end, quoting):
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerow(DOMAIN.names)
        writer.writerows(rows)
        file.seek(0)
        found = counted(file.read().encode())
    expected = np.zeros(DOMAIN.shape, dtype=np.int64)
    place = {word: i for i, word in enumerate([*WORDS, "z", ""])}
    for first, second in rows:
        expected[place[first], "pqr".index(second)] += 1
    np.testing.assert_array_equal(found, expected)


# Bytes of a line: anything but the two that end it, leaning to those that have a meaning in CSV.
lines = (
    st.binary(max_size=12)
    | st.lists(
        st.sampled_from(
            [b'"', b'""', b",", b"a", b"\x00", b"\\", b"\xff", b"\xc3\xbc", b" ", b"p", MARK]
        ),
        max_size=8,
    ).map(b"".join)
    | st.sampled_from(
        [b"a,p", b'"x,y",q', b'"say ""no""",p', b'a, "b, c"', b"z" * 40, MARK + b"a,p"]
    )
).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b""))


@quick
@given(st.lists(lines, max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_file_holds_the_records_of_its_lines_each_read_alone(given_lines, end):
    """The neighbours of a file: one line more or less is at most one record more or less."""
    alone = [records([line]) for line in given_lines]
    assert all(len(found) <= 1 for found in alone)
    assert records(given_lines, end) == sorted(record for found in alone for record in found)


@quick
@given(st.lists(lines, max_size=8), st.integers(1, 30), st.integers(3, 60))
def test_where_blocks_are_cut_is_of_no_consequence(given_lines, block, longest):
    with patch.object(csvfile, "LONGEST_LINE", longest):
        assert records(given_lines, b"\r\n", block) == records(given_lines)


def test_a_mark_before_a_value_belongs_to_it_wherever_its_line_stands():
    """Had the first line of a block lost it, a line before it would have changed two records."""
    marked = MARK + b"a,p"
    assert records([marked]) == [("\ufeffa", "p")]
    assert records([marked, marked, b"b,q"]) == [("b", "q"), *[("\ufeffa", "p")] * 2]
    assert records([b"b,q", marked]) == [("b", "q"), ("\ufeffa", "p")]
    assert records([MARK + marked]) == [("\ufeff\ufeffa", "p")]


@slow_start
@given(lines, st.integers(0, 4))
def test_one_line_more_changes_the_counts_by_at_most_one(line, place):
    rows = [b"a,p", b'"x,y",q', b"b c,p", b'"say ""no""",p']
    one = counted(b"\n".join([HEADER, *rows, b""]))
    other = counted(b"\n".join([HEADER, *rows[:place], line, *rows[place:], b""]))
    assert one.sum() == 4
    assert (other >= one).all()
    assert other.sum() - one.sum() in (0, 1)


def test_every_short_line_of_quotes_and_delimiters_is_read_as_pythons_reader_does():
    """Exhaustively, all in one file: whatever a line leaves open, the next one begins anew."""
    texts = ["".join(made) for size in range(1, 8) for made in product('a",', repeat=size)]
    expected = []
    for text in texts:
        try:
            values = next(csv.reader([text], strict=True))
        except csv.Error:
            continue
        if len(values) == 2:
            expected.append(tuple(values))
    assert 400 < len(expected) < len(texts)
    assert records([text.encode() for text in texts]) == sorted(expected)
