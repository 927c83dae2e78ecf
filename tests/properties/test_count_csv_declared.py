# SPDX-License-Identifier: Apache-2.0
"""CSV files as declared: with every declaration one record of the file is one record as read."""

from __future__ import annotations

import csv
import io
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Category, DateTime, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.vault import files as csv_module
from sfumato.vault.count import count_marginals
from sfumato.vault.sources import CsvSource
from sfumato.vault.tables import open_table

quick = settings(max_examples=60, deadline=None)

# How a file may be declared, and the unit of bytes that a line of it is made of.
DECLARATIONS = (
    {"encoding": "cp1252"},
    {"encoding": "latin-1", "delimiter": ";"},
    {"encoding": "shift_jis", "delimiter": "|"},
    {"encoding": "gb18030"},
    {"encoding": "utf-16-le", "delimiter": "\t"},
    {"encoding": "utf-16-be", "quote": "'"},
    {"quote": "'"},
    {"quote": "", "delimiter": "\t"},
    {"quote": "", "delimiter": '"'},
    {"delimiter": "\x01", "quote": "|"},
    {"header": ["first", "second"]},
    {"header": ["first", "second"], "encoding": "cp1250", "quote": "'", "delimiter": ";"},
)


def unit(declared) -> int:
    return 2 if declared.get("encoding", "").startswith("utf-16") else 1


def feed(declared) -> bytes:
    return "\n".encode(declared.get("encoding", "utf-8"))


def encoded(text: str, declared) -> bytes:
    return text.encode(declared.get("encoding", "utf-8"))


def read(body: bytes, declared, rule="lines", end: bytes = b"") -> Counter:
    """The records of a file with this body."""
    delimiter = declared.get("delimiter", ",")
    head = b"" if "header" in declared else encoded(f"first{delimiter}second\n", declared)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_bytes(head + body + end)
        source = CsvSource(path, rule, **declared)
        mark, names = csv_module.csv_columns([str(path)], source)
        assert (mark, names) == (delimiter, ["first", "second"])
        tables = list(csv_module.blocks([str(path)], 2, mark, range(2), source.rule, "", source))
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


def joined(lines, declared) -> bytes:
    return b"".join(line + feed(declared) for line in lines)


def bytes_of_a_line(declared):
    size = unit(declared)
    hostile = ["a", '"', "'", ",", ";", "|", "\t", "\r", "\0", "\x1f", "\x01", "\ufeff", " "]
    spelled = [encoded(c, declared) for c in hostile if can_encode(c, declared)]
    # Any units but the line feed: halves of characters, of pairs, bytes that mean nothing.
    anything = st.binary(min_size=size, max_size=size).filter(lambda b: b != feed(declared))
    return st.lists(st.sampled_from(spelled) | anything, max_size=8).map(
        lambda units: without_feeds(b"".join(units), declared)
    )


def can_encode(text: str, declared) -> bool:
    try:
        encoded(text, declared)
    except UnicodeEncodeError:
        return False
    return True


def without_feeds(line: bytes, declared) -> bytes:
    size, end = unit(declared), feed(declared)
    units = [line[i : i + size] for i in range(0, len(line), size)]
    return b"".join(u for u in units if u != end and len(u) == size)


@quick
@given(st.data(), st.sampled_from(DECLARATIONS), st.integers(0, 4))
def test_a_line_more_or_other_bytes_in_it_change_exactly_one_record(data, declared, place):
    """Neighbours of the file, under each declaration: its lines are units between line feeds."""
    some = data.draw(st.lists(bytes_of_a_line(declared), max_size=4))
    line, other = (data.draw(bytes_of_a_line(declared)) for _ in range(2))
    before = read(joined(some, declared), declared)
    assert before.total() == len(some)
    more = read(joined([*some[:place], line, *some[place:]], declared), declared)
    assert before <= more
    assert (more - before).total() == 1
    replaced = read(joined([*some[:place], other, *some[place:]], declared), declared)
    assert replaced.total() == more.total()
    assert (more - replaced).total() <= 1


def test_a_reader_that_cuts_bytes_before_it_decodes_them_makes_several_records_of_one():
    """The twin: cut at the byte 10 in place of the unit 10, one person is four records."""
    declared = {"encoding": "utf-16-le"}
    text = "\u0a0a\u0a0a,x\n"  # a letter of Gurmukhi, both of whose bytes are 10
    assert read(encoded(text, declared), declared) == Counter([("\u0a0a\u0a0a", "x")])
    cut_first = {"encoding": "latin-1", "header": ["first", "second"]}
    assert read(b"", cut_first).total() == 0
    assert read(encoded(text, declared), cut_first).total() > 4


VALUES = st.text(
    st.sampled_from(['"', "'", ",", ";", "|", "\t", "\n", "\r", "a", "é", "Ł", "\u4e2d", " "])
    | st.characters(codec="utf-8", exclude_characters="\0"),
    max_size=6,
)


@quick
@given(st.data(), st.sampled_from([d for d in DECLARATIONS if d.get("quote") != ""]))
def test_what_a_writer_of_rfc_4180_writes_in_an_encoding_is_read_back(data, declared):
    value = VALUES.filter(lambda text: can_encode(text, declared))
    rows = data.draw(st.lists(st.tuples(value, value), max_size=5))
    file = io.StringIO(newline="")
    writer = csv.writer(
        file,
        delimiter=declared.get("delimiter", ","),
        quotechar=declared.get("quote", '"'),
        quoting=csv.QUOTE_ALL,
        lineterminator="\n",
    )
    writer.writerows(rows)
    assert read(encoded(file.getvalue(), declared), declared, "rfc4180") == Counter(rows)


def counted(tmp_path, text: str, domain: Domain, **declared) -> dict[tuple, int]:
    path = tmp_path / "people.csv"
    path.write_text(text, encoding="utf-8")
    table = open_table(CsvSource(path, "lines", **declared))
    exact = count_marginals(table, domain, [domain.names]).reveal(domain.names)
    cells = np.argwhere(exact)
    labels = [tuple(a.label(int(c)) for a, c in zip(domain, cell, strict=True)) for cell in cells]
    return {label: int(exact[tuple(cell)]) for label, cell in zip(labels, cells, strict=True)}


NUMBER = Domain([Numeric("x", (0, 1000, 2000, 1e9), outside="other", nulls="missing")])


@pytest.mark.parametrize(
    ("text", "declared", "cell"),
    [
        ("999,5", {"decimal": ","}, "[0, 1000)"),
        ("1000,5", {"decimal": ","}, "[1000, 2000)"),
        ("1000.5", {"decimal": ","}, "(other)"),
        ("1.234,5", {"decimal": ",", "thousands": "."}, "[1000, 2000)"),
        ("1.5", {"decimal": ",", "thousands": "."}, "(other)"),
        ("1.234.567", {"decimal": ",", "thousands": "."}, "[2000, 1000000000]"),
        ("12,34,567", {"thousands": ","}, "[2000, 1000000000]"),
        ("1 234", {"thousands": " "}, "[1000, 2000)"),
        ("1\u00a0234,25", {"thousands": " ", "decimal": ","}, "[1000, 2000)"),
        ("1\u202f234", {"thousands": " "}, "[1000, 2000)"),
        ("1'234", {"thousands": "'"}, "[1000, 2000)"),
        ("1,234", {}, "(other)"),
        ("1,23", {"thousands": ","}, "(other)"),
        ("-5", {"thousands": ","}, "(other)"),
        ("nan", {"decimal": ","}, "(missing)"),
        ("", {"decimal": ","}, "(missing)"),
        (" n/a ", {"null_values": ["n/a"]}, "(missing)"),
        ("n/a", {}, "(other)"),
        ("-99", {"null_values": ["-99"]}, "(missing)"),
        ("5", {"null_values": ["-99"]}, "[0, 1000)"),
    ],
)
def test_numbers_are_read_as_declared(tmp_path, text, declared, cell):
    assert counted(tmp_path, f"x\n{text}\n", NUMBER, delimiter="|", **declared) == {(cell,): 1}


@pytest.mark.parametrize(
    ("text", "formats", "cell"),
    [
        ("31.12.2024", "%d.%m.%Y", "2024-12-01"),
        ("12/31/2024", ["%d/%m/%Y", "%m/%d/%Y"], "2024-12-01"),
        ("2024-12-31", "%d.%m.%Y", "(other)"),
        ("2024-12-31", None, "2024-12-01"),
        ("31-Jan-24 10:30", "%d-%b-%y %H:%M", "2024-01-01"),
        ("2024-02-01 00:30 +0100", "%Y-%m-%d %H:%M %z", "2024-01-01"),
        ("99.99.9999", "%d.%m.%Y", "(other)"),
    ],
)
def test_dates_are_read_as_declared(tmp_path, text, formats, cell):
    year = DateTime("x", datetime(2024, 1, 1), datetime(2025, 1, 1), "month", outside="other")
    found = counted(tmp_path, f"x\n{text}\n", Domain([year]), date_format=formats)
    assert {str(label) for (label,) in found} == {cell}


def test_a_null_value_names_no_person_and_no_category(tmp_path):
    kind = Domain([Category("kind", ("NA", "x"), outside="other")])
    text = "kind,id\nNA,1\nx,NA\nx,2\n"
    assert counted(tmp_path, text, kind) == {("NA",): 1, ("x",): 2}
    assert counted(tmp_path, text, kind, null_values=["NA"]) == {("x",): 2}
    table = open_table(CsvSource(tmp_path / "people.csv", null_values=["NA"]))
    one = count_marginals(table, kind, [("kind",)], PrivacyUnit("id", 1)).reveal(("kind",))
    assert one.sum() == 1, "two people have no id, and NA is no id"


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"delimiter": ";;"}, "delimiter = ';;' is not one character"),
        ({"delimiter": "a"}, "is not one character"),
        ({"delimiter": "\n"}, "is not one character"),
        ({"delimiter": "'", "quote": "'"}, "delimiter and quote are both"),
        ({"delimiter": '"'}, "delimiter and quote are both"),
        ({"quote": "", "records": "rfc4180"}, "keep one of them"),
        ({"decimal": ";"}, "decimal is '.' or ','"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both"),
        ({"thousands": "x"}, "thousands is one of"),
        ({"header": []}, "one of them is empty"),
        ({"header": ["a", "A"]}, "twice"),
        ({"header": "a,b"}, "header is a list of texts"),
        ({"null_values": [1]}, "null_values is a list of texts"),
        ({"encoding": "utf-7"}, "is none that files are read in"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared, why):
    with pytest.raises(TableError) as caught:
        CsvSource("people.csv", **declared)
    assert why in str(caught.value)


def test_a_format_of_dates_that_is_none_is_refused_before_a_row_is_read(tmp_path):
    (tmp_path / "people.csv").write_text("x\n1\n")
    with pytest.raises(TableError, match="is no format of dates"):
        open_table(CsvSource(tmp_path / "people.csv", date_format="%Q"))
    with pytest.raises(TableError, match=r"leave out .*'encoding', 'decimal'"):
        open_table(CsvSource("postgres://me@host/a::b", encoding="cp1252", decimal=","))
