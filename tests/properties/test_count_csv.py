# SPDX-License-Identifier: Apache-2.0
"""CSV files: what a well-formed writer writes is read, and no line reaches into another."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain import Category, Domain
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

slow_start = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = ("a", "b c", 'say "no"', "x,y", ";", "|", "ü", "'", '"', "#", "\\", "1\t2")
DOMAIN = Domain(
    [
        Category("first", WORDS, outside="other", nulls="missing"),
        Category("second", ("p", "q"), outside="other", nulls="missing"),
    ]
)


def counted(text: bytes) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(text)
        return count_marginals(open_table(path), DOMAIN, [DOMAIN.names]).reveal(DOMAIN.names)


@slow_start
@given(
    st.lists(st.tuples(st.sampled_from([*WORDS, "", "z"]), st.sampled_from("pqr")), max_size=20),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
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
lines = st.binary(max_size=12) | st.lists(
    st.sampled_from([b'"', b",", b"a", b"\x00", b"\x01", b"\\", b"\xff", b"\xc3", b" ", b"p"]),
    max_size=8,
).map(b"".join)


@slow_start
@given(
    lines.map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")),
    st.integers(0, 4),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_one_line_more_changes_the_counts_by_at_most_one(line, place, end):
    """Neighbours of a CSV file: whatever bytes a person's line holds, the others stay."""
    rows = [b"a,p", b'"x,y",q', b"b c,p", b'"say ""no""",p']
    header = b"first,second"
    one = counted(end.join([header, *rows, b""]))
    other = counted(end.join([header, *rows[:place], line, *rows[place:], b""]))
    assert one.sum() == 4
    assert (other >= one).all()
    assert other.sum() - one.sum() in (0, 1)
