# SPDX-License-Identifier: Apache-2.0
"""Every reader of text or bytes that somebody else wrote, as a function of bytes.

A reader may return or raise a `SfumatoError`; anything else is a defect. ``python -m tests.fuzz``
drives them with atheris, ``test_readers.py`` with a few hundred repeatable mutants each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import sfumato as sf
from sfumato.app.spec import read_spec
from sfumato.budget.entries import Record
from sfumato.domain.schema import domain_from
from sfumato.errors import SchemaError, SfumatoError
from sfumato.refine.learning.transcript import Transcript
from sfumato.tomlfile import parse_toml
from sfumato.vault import csvfile
from sfumato.workload.constraints_toml import constraints_from
from sfumato.workload.sql import sql_condition
from sfumato.workload.toml import workload_from

ROOT = Path(__file__).parents[2]
DOMAIN = ROOT / "examples/adult/adult.toml"
SMALL = sf.Domain({"age": 12, "sex": 2, "job": 5})


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sfumato-fuzz-"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def schema(data: bytes) -> None:
    domain_from(parse_toml(_text(data)))


def workload(data: bytes) -> None:
    workload_from(parse_toml(_text(data)), SMALL)


def constraints(data: bytes) -> None:
    constraints_from(parse_toml(_text(data), folder=_folder()), SMALL)


def published(data: bytes) -> None:
    """The CSV file that a published table is read from."""
    path = _folder() / "published.csv"
    path.write_bytes(data)
    said = '[[constraints.published]]\nattributes = ["sex"]\nfile = "published.csv"\n'
    constraints_from(parse_toml(said, folder=_folder()), SMALL)


def spec(data: bytes) -> None:
    path = _folder() / "spec.toml"
    path.write_bytes(data)
    read_spec(path)


def sql(data: bytes) -> None:
    sf.sql(SMALL, _text(data))


def condition(data: bytes) -> None:
    sql_condition(SMALL, _text(data))


def csv(data: bytes) -> None:
    path = str(_folder() / "table.csv")
    Path(path).write_bytes(data)
    delimiter, names = csvfile.header(path)
    for _ in csvfile.blocks([path], len(names), delimiter, range(len(names))):
        pass


def transcript(data: bytes) -> None:
    Transcript.from_bytes(data)


def record(data: bytes) -> None:
    Record.read(_text(data))


READERS: Mapping[str, Callable[[bytes], None]] = {
    f.__name__: f
    for f in (
        schema,
        workload,
        constraints,
        published,
        spec,
        sql,
        condition,
        csv,
        transcript,
        record,
    )
}


def read(name: str, data: bytes) -> bool:
    """Whether a reader takes these bytes; anything but a value or our own error is raised."""
    try:
        READERS[name](data)
    except SfumatoError as error:
        if not str(error):
            raise AssertionError("an error without words") from error
        return False
    return True


def seeds(name: str) -> list[bytes]:
    """Valid inputs to begin with."""
    release = (ROOT / "examples/adult/release.toml").read_bytes()
    tables = {
        "schema": [DOMAIN.read_bytes(), b'[domain.a]\nkind = "integer"\nmin = 0\nmax = 9\n'],
        "workload": [
            b"[[workload]]\nmarginals = 2\n",
            b'[[workload]]\nprefix = "age"\nby = ["sex"]\nweight = 2\n',
            b'[[workload]]\nsql = "SELECT sex, COUNT(*) FROM data GROUP BY sex"\n',
            b'[[workload]]\npredicates = ["age < 3 AND sex = 1", "job IN (1, 2)"]\n',
        ],
        "constraints": [b'[constraints]\nimpossible = ["age < 3 AND job = 2"]\n'],
        "published": [b"sex,count\n0,10\n1,20\n"],
        "spec": [release, (ROOT / "examples/adult/adaptive.toml").read_bytes()],
        "sql": [
            b"SELECT sex, COUNT(*) FROM data WHERE age BETWEEN 2 AND 4 GROUP BY sex",
            b"SELECT AVG(age) FROM data WHERE job IN (1, 2) OR NOT sex = 1",
        ],
        "condition": [b"age BETWEEN 2 AND 4 AND (sex = 1 OR job <> 3)"],
        "csv": [b'a,b,c\n1,"x, y",3\n4,"say ""no""",6\r\n7,8,9\n'],
        "transcript": [Transcript((), 5).to_bytes()],
        "record": [],
    }
    found = tables[name]
    for data in found:
        if not read(name, data):
            raise SchemaError(f"the seed of {name} is refused")
    return found
