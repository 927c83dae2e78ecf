# SPDX-License-Identifier: Apache-2.0
"""Mutants of valid inputs are read or refused in our own words; nothing else ever comes out."""

from __future__ import annotations

import io
import random
from fractions import Fraction
from zipfile import ZipFile

import pytest

from sfumato.ledger.ledger import Ledger
from sfumato.privacy.cost import Cost
from tests.fuzz import readers
from tests.fuzz.readers import READERS, read, seeds

MUTANTS = 150
TOKENS = b"[ ] { } \" ' = , . \0 \xff -1 1e999 nan inf true SELECT OR NULL (( ))".split()
TOKENS += [b"\n", b"\r", b"9" * 40, b"\xef\xbb\xbf"]


def mutant(data: bytes, rng: random.Random) -> bytes:
    """A few pieces removed, doubled, moved or replaced."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(out) + 1), rng.randrange(12)
        piece = rng.choice(
            (
                b"",
                rng.choice(TOKENS),
                bytes(out[at : at + length]) * 2,
                rng.randbytes(length),
                bytes(out[rng.randrange(len(out) + 1) :][:length]),
            )
        )
        out[at : at + rng.randrange(length + 1)] = piece
    return bytes(out)


def started(name: str, tmp_path) -> list[bytes]:
    if name != "record":
        return seeds(name)
    ledger = Ledger.create(tmp_path / "a.ledger", readers.sf.Budget(epsilon=1), "t", "add-remove")
    ledger.answer_once(Cost.pure(Fraction(1, 3)), {"q": 1}, "key", lambda: b"answer")
    from sfumato.ledger import ledger_tables as tables

    with ledger._chain.store.reading() as connection:
        return [text.encode() for _, _, text in tables.all_records(connection)]


@pytest.mark.parametrize("name", READERS)
def test_mutants_are_read_or_refused_in_our_own_words(name, tmp_path):
    rng = random.Random(f"mutants of {name}")
    valid = started(name, tmp_path)
    taken = [read(name, mutant(rng.choice(valid), rng)) for _ in range(MUTANTS)]
    assert not all(taken)


def zipped(**parts: bytes) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return out.getvalue()


DEEP = b"[" * 100_000
FOUND = [
    # What fuzzing found: neither a value nor an error of ours came out.
    ("answer", DEEP),
    ("measured", zipped(rows=b"no array", lengths=b"", units=b"")),
    ("transcript", zipped(rows=b"no array", steps=b"")),
    ("paid", DEEP),
    ("reply", DEEP),
    ("vector", DEEP),
    ("vector", b'{"noise": 1e999, "left": 1}'),
    ("discoverer", DEEP),
    ("discoverer", b'{"begun": 1e999, "owed": 1}'),
    ("record", DEEP),
    ("record", b'{"version": 1, "sequence": 1e999}'),
]


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_fuzzing_found_is_refused_in_our_own_words(name, data):
    assert not read(name, data)


def test_a_reader_that_lets_another_error_out_is_found(monkeypatch):
    """The twin: without its own refusal a reader fails the test above."""
    monkeypatch.setitem(READERS, "sql", lambda data: int(data))  # type: ignore[arg-type]
    rng = random.Random("twin")
    with pytest.raises(ValueError):  # noqa: PT011
        read("sql", mutant(b"17", rng) + b"x")
