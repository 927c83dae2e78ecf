# SPDX-License-Identifier: Apache-2.0
"""Files of any encoding and packing are bytes of UTF-8, and no byte of theirs is an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import closing

import pyarrow as pa
import pytest

from sfumato.errors import TableError
from sfumato.vault.transcode import checked_encoding, opened


def text_of(path, encoding=None, size=7, **options) -> str:
    with closing(opened(str(path), encoding, **options)) as file:
        return b"".join(iter(lambda: file.read(size), b"")).decode()


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "": bytes,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_is_unpacked_and_parts_put_together_are_one_file(tmp_path, ending):
    path = tmp_path / f"people.csv{ending}"
    path.write_bytes(PACKERS[ending]("né\n".encode()) + PACKERS[ending](b"b\n"))
    assert text_of(path) == "né\nb\n"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "koi8-r", "mac-roman", "utf-16-le"])
@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_every_byte_is_read_and_a_line_end_is_one_byte_of_its_own(tmp_path, encoding, size):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 2)
    text = text_of(path, encoding, size)
    assert text == (bytes(range(256)) * 2).decode(encoding, "replace")
    if encoding != "utf-16-le":
        assert len(text) == 512
        assert text.count("\n") == 2


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr"])
def test_half_a_character_at_the_end_of_a_line_takes_nothing_of_the_next(tmp_path, encoding):
    path = tmp_path / "a"
    lines = [bytes([first]) for first in range(256) if first != 10]
    path.write_bytes(b"\n".join(lines) + b"\n")
    for size in (1, 2, 50, 4096):
        text = text_of(path, encoding, size)
        assert text.split("\n") == [*(line.decode(encoding, "replace") for line in lines), ""]


def test_half_a_pair_of_utf_16_takes_no_line_end(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("a\n".encode("utf-16-le") + b"\x00\xd8\n\x00" + "b\n".encode("utf-16-le"))
    for size in (1, 2, 3, 100):
        assert text_of(path, "utf-16-le", size) == "a\n\ufffd\nb\n"


def test_a_mark_tells_utf_16_where_the_first_bytes_are_public(tmp_path):
    path = tmp_path / "a"
    for order in ("utf-16-le", "utf-16-be"):
        path.write_bytes("\ufeffname\n".encode(order))
        assert text_of(path) == "name\n"
    path.write_bytes("\ufeffname\n".encode())
    assert text_of(path) == "\ufeffname\n"
    assert text_of(path, "utf-8-sig", 1) == "name\n"
    path.write_bytes(b"\xff\xfeA")
    with closing(opened(str(path), is_marked=False)) as file:
        assert file.read(10) == b"\xff\xfeA"


@pytest.mark.parametrize("encoding", ["utf-7", "cp037", "utf-32", "iso2022_jp", "idna", "no", 5])
def test_an_encoding_in_which_records_could_reach_into_each_other_is_refused(encoding):
    with pytest.raises(TableError, match="is none that files are read in"):
        checked_encoding(encoding)
