# SPDX-License-Identifier: Apache-2.0
"""JSON lines: every line is a record, whatever is in it, and none reaches into another."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.vault import files
from sfumato.vault.count import count_marginals
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import open_table

DOMAIN = Domain(
    [
        Category("city", ("Rome", "Bari"), outside="other", nulls="missing",
                 from_column="address.city"),
        Integer("age", 0, 99, outside="other", nulls="missing"),
    ]
)  # fmt: skip


def counted(text: bytes, ending: str = ".jsonl") -> dict[tuple, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"people{ending}")
        path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
        exact = count_marginals(open_table(path), DOMAIN, [DOMAIN.names]).reveal(DOMAIN.names)
    return {
        tuple(a.label(int(c)) for a, c in zip(DOMAIN, cell, strict=True)): int(exact[tuple(cell)])
        for cell in np.argwhere(exact)
    }


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ('{"address": {"city": "Rome"}, "age": 30}', ("Rome", 30)),
        ('{"address.city": "Bari", "age": "30"}', ("Bari", 30)),
        ('{"address": {"city": "Paris"}, "age": 30.5}', ("(other)", "(other)")),
        ('{"address": null, "age": 3e1}', ("(missing)", 30)),
        ('{"address": 5}', ("(missing)", "(missing)")),
        ('{"address": {"city": ["Rome"]}, "age": {}}', ("(other)", "(other)")),
        ('{"address": {"city": ""}, "age": true}', ("(missing)", "(other)")),
        ('\ufeff {"address": {"city": "Rome"}, "age": 1}\r', ("Rome", 1)),
        ('{"address": {"city": "Rome"}, "age": 1} x', ("(missing)", "(missing)")),
        ('{"address": {"city": "Rome"}, "age": 1', ("(missing)", "(missing)")),
        ('[{"age": 1}]', ("(missing)", "(missing)")),
        ('{"address": {"city": "\\ud800"}, "age": 1}', ("(missing)", "(missing)")),
        ('{"address": {"city": "\\u0000"}, "age": 1e999}', ("(other)", "(other)")),
        ("", ("(missing)", "(missing)")),
        ("null", ("(missing)", "(missing)")),
        ("[" * 10000, ("(missing)", "(missing)")),
    ],
)
def test_a_field_says_what_it_holds_and_a_line_that_is_no_object_is_nulls(line, cell):
    assert counted(line.encode() + b"\n") == {cell: 1}
    good = b'{"address": {"city": "Bari"}, "age": 9}'
    around = counted(b"\n".join([good, line.encode(), good]), ".ndjson.gz")
    assert around == Counter({("Bari", 9): 2}) + Counter({cell: 1})


PIECES = st.sampled_from(
    [b'{"age":', b"1", b"}", b'"', b"\\", b"\x00", b"\xff", b"[", b"\r", b",", b'{"age": 7}', b" "]
)
LINES = (st.lists(PIECES, max_size=6).map(b"".join) | st.binary(max_size=10)).map(
    lambda line: line.replace(b"\n", b"")
)


def read(some: list[bytes], block: int) -> Counter:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(b"".join(line + b"\n" for line in some))
        limits = replace(files.LIMITS, block_bytes=block, record_bytes=20)
        with patch.object(files, "LIMITS", limits):
            tables = list(files.lines([str(path)]))
    texts = [text for table in tables for text in table["line"].to_pylist()]
    return Counter(None if text is None else text.rstrip("\n") for text in texts)


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, max_size=5), LINES, st.integers(0, 5), st.integers(1, 30))
def test_a_line_more_is_one_record_more_wherever_blocks_are_cut(some, line, place, block):
    before = read(some, 1 << 20)
    assert before == read(some, block)
    assert before.total() == len(some)
    more = read([*some[:place], line, *some[place:]], block)
    assert before <= more
    assert (more - before).total() == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(LINES, max_size=4), LINES, LINES, st.integers(0, 4))
def test_one_line_of_other_bytes_changes_the_counts_of_one_record(some, line, other, place):
    one = Counter(counted(b"".join(x + b"\n" for x in [*some[:place], line, *some[place:]])))
    two = Counter(counted(b"".join(x + b"\n" for x in [*some[:place], other, *some[place:]])))
    assert one.total() == two.total() == len(some) + 1
    assert (one - two).total() <= 1


def test_a_reader_that_goes_on_to_the_next_line_lets_one_record_take_others():
    """The twin: a reader of JSON texts one after the other, as some are, gives up at the first."""
    text = '{"age": 1}\n{"age": \n{"age": 2}\n'
    decoder, place, ages = json.JSONDecoder(), 0, []
    with suppress(json.JSONDecodeError):
        while place < len(text):
            record, place = decoder.raw_decode(text, place)
            ages.append(record["age"])
            place += 1
    assert ages == [1], "the record of another person is gone"
    assert counted(text.encode()) == {
        ("(missing)", 1): 1,
        ("(missing)", 2): 1,
        ("(missing)", "(missing)"): 1,
    }


def test_units_are_fields_too_and_a_query_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "age": 3}\n{"id": 1, "age": 4}\n{"age": 5}\n')
    ages = Domain([DOMAIN["age"]])
    one = count_marginals(open_table(path), ages, [("age",)], PrivacyUnit("id", 1))
    assert one.reveal(("age",)).sum() == 1
    with pytest.raises(TableError, match="JSON lines have no types"):
        open_table(SqlSource(path, "SELECT 1"))
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(TableError, match=r"write JSON lines \(.jsonl\)"):
        open_table(tmp_path / "a.json")
