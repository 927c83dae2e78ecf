# SPDX-License-Identifier: Apache-2.0
"""CSV files: neighbours are files, whose bytes people choose, and the vault reads them.

Under the rule ``rfc4180`` a file is written from a table of texts, and a neighbour has one record
more, whatever its texts hold; under ``lines`` and undeclared a neighbour has one line of other
bytes. The number of records is public where records are replaced, and is looked at too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.cost import Cost
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.sources import CsvRule, CsvSource
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "CsvFile",
    "csv_subject",
    "csv_subjects",
    "json_lines",
    "lines_of",
    "replaced_lines",
    "units_of_two_bytes",
    "written_rows",
]


CsvFile = bytes
DOMAIN = Domain([Category("sex", ("F", "M"), outside="other", nulls="missing")])
HEADER = ("sex", "comment")
JSON_LINES = "people.jsonl"
OTHERS = (("F", "fine"), ("M", 'said "no", twice'), ("F", ""))
COVERED = COUNTING_AND_MEASURING | {f"{VAULT}.files.blocks"}
COVERED_LINES = COUNTING_AND_MEASURING | {f"{VAULT}.files.lines"}


def csv_subjects() -> tuple[Subject[CsvFile], ...]:
    """Both rules, and a file of which nothing is declared."""
    return (
        csv_subject("CSV file as rfc4180", "add-remove", written_rows(), "rfc4180"),
        csv_subject("CSV file as lines", "replace-one", replaced_lines(b'M,"'), "lines"),
        csv_subject("CSV file, undeclared", "replace-one", replaced_lines(b"M, "), None),
        csv_subject(
            "CSV file in UTF-16",
            "add-remove",
            units_of_two_bytes(),
            "lines",
            encoding="utf-16-le",
            header=HEADER,
        ),
        csv_subject("JSON lines", "replace-one", json_lines(), None, file_name=JSON_LINES),
    )


def json_lines() -> tuple[Pair[CsvFile], ...]:
    """Files of JSON lines in which one line holds other bytes."""
    hostile = {
        "no JSON": b"nobody",
        "open": b'{"sex": "M",',
        "empty": b"",
        "a list": b'["M"]',
        "of another key": b'{"age": 5}',
        "not UTF-8": b'{"sex": "\xe9"}',
        "two records": b'{"sex": "M"} {"sex": "M"}',
    }

    def file(line: bytes) -> CsvFile:
        return b"\n".join([b'{"sex": "F"}', line, b'{"sex": "F"}', b'{"sex": "M"}', b""])

    return tuple(
        Pair(f"a line becomes one that is {what}", file(b'{"sex": "M"}'), file(line))
        for what, line in hostile.items()
    )


def units_of_two_bytes() -> tuple[Pair[CsvFile], ...]:
    """Files of UTF-16, with one record more on one side that holds the byte of a line end."""
    usual = "F,a\nM,b\n".encode("utf-16-le")
    hostile = {
        "a letter of two bytes 10": "M,\u0a0a\u0a0a\u0a0a\n".encode("utf-16-le"),
        "half a pair": b"M\x00,\x00\x00\xd8\n\x00",
    }
    return tuple(
        Pair(f"one more person, who writes {what}", usual, line + usual)
        for what, line in hostile.items()
    )


def written_rows() -> tuple[Pair[CsvFile], ...]:
    """Files of a writer of RFC 4180, with one record more on one side."""
    return tuple(
        Pair(
            f"one more person, who writes {what}", _written(OTHERS), _written((("M", text), *rest))
        )
        for what, text, rest in (
            ("ten lines of M,x", "x\n" * 2 + "M,x\n" * 8, OTHERS),
            ("quotes and line ends", '"\nM,"\nF,""\n"', OTHERS),
            ("carriage returns", "\rM,x\rM,x\r\nM,x\r\n", OTHERS),
        )
    )


def replaced_lines(*more: bytes) -> tuple[Pair[CsvFile], ...]:
    """Files in which one line holds other bytes."""
    usual = b"M,x"
    hostile = {
        "not UTF-8": b"M,\xe9t\xe9",
        "too many values": b"M,x,y",
        "too few values": b"M",
        "empty": b"",
        "a zero byte": b"M,\0",
        "carriage returns": b"M,x\rM,x\rM,x",
        **{f"the bytes {line!r}": line for line in more},
    }
    return tuple(
        Pair(f"a line becomes one that is {what}", lines_of(usual), lines_of(line))
        for what, line in hostile.items()
    )


def lines_of(line: bytes) -> CsvFile:
    """A file of three usual lines around this one."""
    return b"\n".join([",".join(HEADER).encode(), b"F,a", line, b"F,b", b"M,c", b""])


def csv_subject(
    name: str,
    neighbours: Neighbours,
    pairs: Sequence[Pair[CsvFile]],
    rule: CsvRule | None,
    before: Callable[[CsvFile], CsvFile] = bytes,
    is_broken: bool = False,
    encoding: str | None = None,
    header: Sequence[str] | None = None,
    file_name: str = "people.csv",
) -> Subject[CsvFile]:
    """A table of counts with Laplace noise, from a file that is changed by ``before`` first."""
    strategy = MECHANISMS["laplace-table"].build(marginals(DOMAIN, 1), "laplace", "rmse")
    noise = calibrate(strategy, 1.0, neighbours)
    run = Measuring(DOMAIN, strategy.blocks, noise, neighbours)

    def sampler(file: CsvFile) -> Sampler:
        with TemporaryDirectory(prefix="sfumato-audit-") as folder:
            path = Path(folder, file_name)
            path.write_bytes(before(file))
            declared = CsvSource(path, rule, encoding=encoding, header=header)
            table = open_table(path if file_name == JSON_LINES else declared)
            exact = count(table, DOMAIN, strategy.blocks, neighbours)
        return lambda runs, source: run.measured(exact, runs, source)

    covered = COVERED_LINES if file_name == JSON_LINES else COVERED
    return Subject(
        f"{name} ({neighbours})",
        Claim.of(Cost.pure(privacy_loss(strategy, noise, neighbours))),
        pairs,
        sampler,
        frozenset() if is_broken else covered,
        is_broken=is_broken,
    )


def _written(rows: Sequence[tuple[str, str]]) -> CsvFile:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(HEADER)
    writer.writerows(rows)
    return file.getvalue().encode()
