# SPDX-License-Identifier: Apache-2.0
"""Records, head files and owners on their own."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.digest import canonical_json
from sfumato.errors import LedgerError
from sfumato.ledger.entries import (
    GENESIS,
    Allowed,
    Answered,
    Burnt,
    Commitment,
    Debited,
    Frozen,
    Kept,
    Opened,
    Record,
    Unfrozen,
    Vouched,
)
from sfumato.ledger.store import LedgerWitness, WitnessLine, is_gone, this_process
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

FACTS = [
    Opened(Budget(epsilon="1/3", delta=1e-9), "tablé", "add-remove"),
    Debited("key", '{"a":1}', Cost.pure(Fraction(1, 7), 3) + Cost.gaussian(1), "someone"),
    Answered(1, "0" * 64),
    Burnt(1),
    Vouched(),
    Debited("key", "{}", Cost.pure(1), "someone", "änn", (Commitment("s", 3, "0" * 64),)),
    Answered(1, "0" * 64, (Commitment("s", 1, "0" * 64), Commitment("t", 1, "1" * 64))),
    Kept("key", "{}", 1, "0" * 64),
    Kept("key", "{}", 1, "0" * 64, "ann", (Commitment("s", 3, "0" * 64),)),
    Allowed("ann", Budget(mu="1/3")),
    Frozen("why"),
    Unfrozen("why"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
@pytest.mark.parametrize(("pure_spent", "frozen"), [(None, False), (0, True), (12, False)])
def test_records_survive_writing_and_reading(fact, pure_spent, frozen):
    record = Record(3, "2001-02-03T04:05:06+00:00", GENESIS, 10**17, pure_spent, fact, frozen)
    assert Record.read(record.text()) == record
    assert record.text().isascii()


@pytest.mark.parametrize("missing", ["version", "sequence", "previous", "spent", "kind", "key"])
def test_a_record_that_lacks_a_field_is_refused(missing):
    line = json.loads(Record(1, "t", GENESIS, 0, None, FACTS[1]).text())
    del line[missing]
    with pytest.raises(LedgerError):
        Record.read(canonical_json(line))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"version":1}', '{"version":7}', "\x00"])
def test_text_that_is_no_record_is_refused(text):
    with pytest.raises(LedgerError):
        Record.read(text)


def test_the_hash_depends_on_every_field():
    base = Record(3, "t", GENESIS, 5, None, Burnt(1))
    others = [
        Record(4, "t", GENESIS, 5, None, Burnt(1)),
        Record(3, "u", GENESIS, 5, None, Burnt(1)),
        Record(3, "t", "1" * 64, 5, None, Burnt(1)),
        Record(3, "t", GENESIS, 6, None, Burnt(1)),
        Record(3, "t", GENESIS, 5, 0, Burnt(1)),
        Record(3, "t", GENESIS, 5, None, Burnt(2)),
        Record(3, "t", GENESIS, 5, None, Answered(1, "")),
        Record(3, "t", GENESIS, 5, None, Burnt(1), frozen=True),
        Record(3, "t", GENESIS, 5, None, Frozen("")),
        Record(3, "t", GENESIS, 5, None, Unfrozen("")),
        Record(3, "t", GENESIS, 5, None, Unfrozen("x")),
    ]
    hashes = {Record.hash_of(record.text()) for record in [base, *others]}
    assert len(hashes) == 12


def test_heads_are_read_back_and_the_largest_number_counts(tmp_path):
    path = tmp_path / "h"
    assert LedgerWitness(path).last() is None
    lines = [WitnessLine(0, "a" * 64), WitnessLine(2, "b" * 64), WitnessLine(1, "c" * 64)]
    for line in lines:
        LedgerWitness(path).append(line)
    assert list(LedgerWitness(path).all()) == lines
    assert LedgerWitness(path).last() == lines[1]


def test_what_a_witness_remembers_is_what_the_file_says(tmp_path):
    """Lines of others, and a file that was put in its place, are seen at once."""
    path = tmp_path / "h"
    mine, other = LedgerWitness(path), LedgerWitness(path)
    for number in range(6):
        (mine if number % 3 else other).append(WitnessLine(number, f"{number:064d}"))
        assert (
            mine.last()
            == other.last()
            == LedgerWitness(path).last()
            == WitnessLine(number, f"{number:064d}")
        )
    (tmp_path / "older").write_text(f"0 {0:064d}\n")
    (tmp_path / "older").rename(path)
    assert mine.last() == WitnessLine(0, f"{0:064d}")
    mine.append(WitnessLine(1, f"{1:064d}"))
    assert mine.last() == WitnessLine(1, f"{1:064d}")
    path.unlink()
    assert mine.last() is None


def test_a_torn_line_is_no_line_and_swallows_none(tmp_path):
    path = tmp_path / "h"
    LedgerWitness(path).append(WitnessLine(0, "a" * 64))
    with path.open("a") as file:
        file.write("1 " + "b" * 30)
    assert LedgerWitness(path).last() == WitnessLine(0, "a" * 64)
    LedgerWitness(path).append(WitnessLine(2, "c" * 64))
    assert list(LedgerWitness(path).all()) == [WitnessLine(0, "a" * 64), WitnessLine(2, "c" * 64)]


def test_only_the_end_of_a_long_head_file_is_read_for_the_last_line(tmp_path):
    path = tmp_path / "h"
    path.write_text("".join(f"{n} {n:064d}\n" for n in range(5000)))
    assert LedgerWitness(path).last() == WitnessLine(4999, f"{4999:064d}")
    assert sum(1 for _ in LedgerWitness(path).all()) == 5000


def test_a_head_file_that_cannot_be_written_is_a_ledger_error(tmp_path):
    with pytest.raises(LedgerError, match="cannot be written"):
        LedgerWitness(tmp_path / "none" / "h").append(WitnessLine(0, "a" * 64))
    with pytest.raises(LedgerError, match="cannot be read"):
        LedgerWitness(tmp_path).last()


def test_this_process_is_not_gone_and_an_ended_one_is():
    assert not is_gone(this_process())
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, this_process().encode())
        os.read(reader, 0)
        os._exit(0)
    owner = os.read(reader, 1000).decode()
    os.waitpid(child, 0)
    assert owner != this_process()
    assert is_gone(owner)


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(),
    reason="Linux only: start times of processes come from /proc",
)
def test_a_process_number_used_again_is_told_by_its_start_time():
    machine, boot, namespace, pid, start = this_process().split(" ")
    assert is_gone(" ".join((machine, boot, namespace, pid, str(int(start) - 1))))


def test_what_cannot_be_known_counts_as_alive():
    machine, boot, namespace, pid, _ = this_process().split(" ")
    gone = "4194304999"  # above every process number
    assert not is_gone(" ".join(("other-machine", boot, namespace, gone, "1")))
    assert not is_gone(" ".join((machine, boot, "pid:[1]", gone, "1")))
    assert not is_gone("nonsense")
    assert not is_gone(" ".join((machine, boot, namespace, pid, "-")))


@pytest.mark.parametrize(
    ("fact", "field", "value"),
    [
        (FACTS[5], "states", {"name": "s"}),
        (FACTS[5], "states", [{"name": "s", "hmac": "0"}]),
        (FACTS[5], "states", [{"name": "s", "version": "3", "hmac": "0"}]),
        (FACTS[2], "debit", "1"),
        (FACTS[3], "debit", None),
        (FACTS[7], "debit", 1.0),
        (FACTS[0], "budget", {"epsilon": "-1"}),
        (FACTS[1], "cost", {"parts": 1}),
        (FACTS[3], "kind", "burned"),
        (FACTS[3], "sequence", "three"),
    ],
)
def test_a_field_of_another_kind_is_refused(fact, field, value):
    line = json.loads(Record(1, "t", GENESIS, 0, None, fact).text())
    assert field in line
    with pytest.raises(LedgerError):
        Record.read(canonical_json({**line, field: value}))


def test_a_line_that_the_disk_took_in_part_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "h"
    LedgerWitness(path).append(WitnessLine(0, "a" * 64))
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:9]))
    with pytest.raises(LedgerError, match=r"cannot be written \(short write\)"):
        LedgerWitness(path).append(WitnessLine(1, "b" * 64))
    monkeypatch.undo()
    LedgerWitness(path).append(WitnessLine(2, "c" * 64))
    assert list(LedgerWitness(path).all()) == [WitnessLine(0, "a" * 64), WitnessLine(2, "c" * 64)]
