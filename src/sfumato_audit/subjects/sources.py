# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: sources that drop records, and files whose bytes people choose.

A source replaces a row by one that a filter leaves out, or lets in. A table is a tuple of rows
(cell, whether the filter keeps it). The source is an expression with that filter, and neighbours
are neighbours of the table *behind* it: under ``replace-one`` its number of rows is public, that
of the filtered ones is not.

The other kind of dropping is by values that the domain does not declare. With ``records =
"all-inside"`` they have a cell, and the number of records is public; a sensitivity for that promise
without the rule that keeps it forgets the records that are dropped.

Files: under the rule ``rfc4180`` a file is written from a table of texts, and a neighbour has one
record more, whatever its texts hold; under ``lines`` and undeclared a neighbour has one line of
other bytes. The number of records is public where records are replaced, and is looked at too. A
spreadsheet has one row more, or another one; rows without any value are no records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np
import pandas as pd

from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import choose
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, integers_below
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.measure import Exact, count
from sfumato.vault.sources import CsvRule, CsvSource
from sfumato.vault.tables import Table as Opened
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.examine import Claim, Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "SHEET",
    "SHEET_PART",
    "CsvFile",
    "Filtered",
    "Strange",
    "csv_subject",
    "csv_subjects",
    "filtered",
    "json_lines",
    "lines_of",
    "reads_sheets",
    "replaced_lines",
    "sheet_file",
    "sheets",
    "source_forecast",
    "source_subject",
    "source_subjects",
    "strange_subject",
    "units_of_two_bytes",
    "written_rows",
    "zipped",
]


Filtered = tuple[tuple[int, bool], ...]
Strange = tuple[int | None, ...]
"""Values of one column, some of them null or outside the declared ones."""

DOMAIN = Domain([Integer("cell", 0, 2, outside="clamp", nulls="missing")])
WORKLOAD = marginals(DOMAIN, 0) | marginals(DOMAIN, 1)
BUDGETS = {"laplace": Budget(epsilon=1), "gaussian": Budget(mu=1)}
LAWS = {"laplace": "discrete_laplace", "gaussian": "rounded_gaussian"}
CROWD = ((0, True),) * 1000
PAIRS = (
    Pair("the only record leaves the filter", ((0, True),), ((0, False),)),
    Pair("the last cell enters the filter", ((2, False),), ((2, True),)),
    Pair("one of many leaves", (*CROWD, (1, True)), (*CROWD, (1, False))),
    Pair("one of many moves to another cell", (*CROWD, (0, True)), (*CROWD, (2, True))),
)


def filtered(rows: Filtered) -> Opened:
    """The rows that the filter keeps, as an expression on a table of all."""
    import ibis

    cells = np.array([cell for cell, _ in rows], dtype=np.int64)
    flags = np.array([is_seen for _, is_seen in rows], dtype=np.int64)
    people = ibis.memtable(pd.DataFrame({"cell": cells, "seen": flags}))
    return open_table(people.filter(people["seen"] == 1))


def source_forecast(noise: str, may_drop_records: bool) -> Forecast:
    """The best plan for the number of records and their cells, replaced records."""
    return choose(
        WORKLOAD, BUDGETS[noise], "replace-one", may_drop_records=may_drop_records, mechanism=noise
    )


def source_subject(
    name: str,
    plan: Forecast,
    counted: Callable[[Filtered], Exact],
    covers: frozenset[str] = frozenset(),
    is_broken: bool = False,
) -> Subject[Filtered]:
    """A plan that is measured on what a filter leaves of a table."""
    run = Measuring(DOMAIN, plan.strategy.blocks, plan.noise, plan.neighbours)

    def sampler(rows: Filtered) -> Sampler:
        exact = counted(rows)
        return lambda runs, source: run.measured(exact, runs, source)

    return Subject(
        name,
        Claim.of(plan.cost),
        PAIRS,
        sampler,
        covers,
        None if is_broken else _random,
        is_broken=is_broken,
    )


def source_subjects() -> tuple[Subject[Filtered] | Subject[Strange], ...]:
    """Records that leave the source, or the declared values, with both laws of noise."""
    sound = tuple(_sound(noise, law) for noise, law in LAWS.items())
    return (*sound, *(strange_subject(noise, PROMISED, PROMISED) for noise in LAWS))


# Records outside the declared values

OPEN = Domain([Integer("cell", 0, 2)])
PROMISED = Domain(OPEN, records="all-inside")
STRANGE = (
    Pair("the only record leaves the declared values", (0,), (7,)),
    Pair("one of many is lost", (1,) * 1000, (*(1,) * 999, None)),
    Pair("a null becomes the greatest value", (None, 1), (2, 1)),
    Pair("one moves to another cell", (0, 1), (2, 1)),
)


def strange_subject(
    noise: str, planned: Domain, counted: Domain, is_broken: bool = False
) -> Subject[Strange]:
    """A plan for one domain that is measured on another, on values that neither declares."""
    work = marginals(planned, 0) | marginals(planned, 1)
    plan = choose(work, BUDGETS[noise], "replace-one", mechanism=noise)
    run = Measuring(planned, plan.strategy.blocks, plan.noise, plan.neighbours)

    def sampler(values: Strange) -> Sampler:
        table = open_table(pd.DataFrame({"cell": pd.array(values, dtype="Int64")}))
        exact = count(table, counted, plan.strategy.blocks, "replace-one")
        return lambda runs, source: run.measured(exact, runs, source)

    name = "promise without its rule" if is_broken else "records all inside"
    law = f"{VAULT}.mechanisms.noise.{LAWS[noise]}"
    covers = frozenset() if is_broken else COUNTING_AND_MEASURING | {law}
    return Subject(
        f"{name}, {noise} (replace-one)",
        Claim.of(plan.cost),
        STRANGE,
        sampler,
        covers,
        None if is_broken else _random_values,
        is_broken=is_broken,
    )


def _random_values(source: WordSource) -> Pair[Strange]:
    """Some values at random, and one of them replaced by any other."""
    drawn = [None if v > 6 else v - 2 for v in integers_below(8, 6, source).tolist()]
    text = f"at random: {drawn[4]} becomes {drawn[5]}"
    return Pair(text, tuple(drawn[:5]), (*drawn[:4], drawn[5]))


def _sound(noise: str, law: str) -> Subject[Filtered]:
    plan = source_forecast(noise, may_drop_records=True)

    def counted(rows: Filtered) -> Exact:
        return count(filtered(rows), DOMAIN, plan.strategy.blocks, "replace-one")

    name = f"filtered source, {noise} (replace-one)"
    return source_subject(
        name, plan, counted, COUNTING_AND_MEASURING | {f"{VAULT}.mechanisms.noise.{law}"}
    )


def _random(source: WordSource) -> Pair[Filtered]:
    """Some rows at random, and one of them replaced by any other."""
    cells = integers_below(3, 6, source).tolist()
    flags = (integers_below(2, 6, source) == 1).tolist()
    rows = tuple(zip(cells, flags, strict=True))
    return Pair(f"at random: {rows[4]} becomes {rows[5]}", rows[:5], (*rows[:4], rows[5]))


CsvFile = bytes
FILE_DOMAIN = Domain([Category("sex", ("F", "M"), outside="other", nulls="missing")])
HEADER = ("sex", "comment")
JSON_LINES = "people.jsonl"
SHEET = "people.xlsx"
SHEET_PART = "xl/sheet1.xml"
EACH: tuple[Neighbours, ...] = ("add-remove", "replace-one")
OTHERS = (("F", "fine"), ("M", 'said "no", twice'), ("F", ""))
COVERED = COUNTING_AND_MEASURING | {f"{VAULT}.files.blocks"}
COVERED_OF = {
    JSON_LINES: COUNTING_AND_MEASURING | {f"{VAULT}.files.lines"},
    SHEET: COUNTING_AND_MEASURING,
}


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
        *(
            csv_subject("spreadsheet", neighbours, sheets(neighbours), None, file_name=SHEET)
            for neighbours in EACH
            if reads_sheets()
        ),
    )


def reads_sheets() -> bool:
    """Whether the extra is there that reads spreadsheets."""
    return find_spec("python_calamine") is not None


def sheets(neighbours: Neighbours) -> tuple[Pair[CsvFile], ...]:
    """Spreadsheets with one row more, wherever it stands, or with another one in its place."""
    others = {2: ("F", "fine"), 3: ("M", "x"), 4: ("F", "")}
    hostile = {
        "far below": {400: ("M", "x")},
        "with line ends": {9: ("M", "M\nM,x\n")},
        "without a sex": {9: ("", "x")},
    }
    if neighbours == "add-remove":
        return tuple(
            Pair(f"one more row, {what}", sheet_file(others), sheet_file(others | row))
            for what, row in hostile.items()
        )
    usual = sheet_file(others | {9: ("F", "y")})
    return tuple(
        Pair(f"a row becomes one {what}", usual, sheet_file(others | row))
        for what, row in hostile.items()
    )


def sheet_file(rows: Mapping[int, tuple[str, str]]) -> CsvFile:
    """An xlsx file with the header in its first row, and these rows by number; empty cells none."""
    cells = "".join(
        f'<row r="{number}">' + "".join(map(_sheet_cell, (f"A{number}", f"B{number}"), row))
        + "</row>"
        for number, row in sorted({1: HEADER, **rows}.items())
    )  # fmt: skip
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="people" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="sheet1.xml"/></Relationships>',
        SHEET_PART: f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>',
    }
    return zipped(parts)


def _sheet_cell(place: str, text: str) -> str:
    shown = text.replace("\n", "&#10;")
    inside = f'<is><t xml:space="preserve">{shown}</t></is>'
    return f'<c r="{place}" t="inlineStr">{inside}</c>' if text else ""


def zipped(parts: Mapping[str, str]) -> CsvFile:
    """An archive of these texts by their names."""
    archive = io.BytesIO()
    with ZipFile(archive, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return archive.getvalue()


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
    strategy = MECHANISMS["laplace-table"].build(marginals(FILE_DOMAIN, 1), "laplace", "rmse")
    noise = calibrate(strategy, 1.0, neighbours)
    run = Measuring(FILE_DOMAIN, strategy.blocks, noise, neighbours)

    def sampler(file: CsvFile) -> Sampler:
        with TemporaryDirectory(prefix="sfumato-audit-") as folder:
            path = Path(folder, file_name)
            path.write_bytes(before(file))
            declared = CsvSource(path, rule, encoding=encoding, header=header)
            table = open_table(declared if path.suffix == ".csv" else path)
            exact = count(table, FILE_DOMAIN, strategy.blocks, neighbours)
        return lambda runs, source: run.measured(exact, runs, source)

    covered = COVERED_OF.get(file_name, COVERED)
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
