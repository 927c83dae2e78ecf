# SPDX-License-Identifier: Apache-2.0
"""Every reader of text or bytes that somebody else wrote, as a function of bytes.

A reader may return or raise a `SfumatoError`; anything else is a defect. ``python -m tests.fuzz``
drives them with atheris, ``test_readers.py`` with a few hundred repeatable mutants each.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

import sfumato as sf
from sfumato.cli.ask_command import read_session
from sfumato.cli.spec import read_spec
from sfumato.domain.domain import domain_from
from sfumato.errors import SchemaError, SfumatoError, TableError
from sfumato.ledger.entries import Record
from sfumato.measurement import Measured, Measurement, Transcript
from sfumato.planning.sparse_plans import SparseForecast, plan_sparse, sparse_of_epsilon
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.sparse_vector import SparseLaw
from sfumato.session.client import Reply, _parsed
from sfumato.session.session_answers import Answer, paid_answer
from sfumato.toml import TomlFile, parse_toml
from sfumato.vault import files as csv_module
from sfumato.vault.mechanisms.sparse import Discoverer, SparseVector
from sfumato.vault.sources import CSV_RULES
from sfumato.workload.question import questions_of
from sfumato.workload.sql_expressions import sql_condition
from sfumato.workload.statements.workload_file import constraints_from, workload_from
from sfumato_web.server.config import read_config
from sfumato_web.server.models import AskAsked, PlanAsked
from sfumato_web.server.server_limits import (
    LimitsTable,
    check_entries,
    check_questions,
    check_workload,
    is_too_deep,
)
from tests.http import served

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
    delimiter, names = csv_module.header(path)
    for rule in (None, *CSV_RULES):
        with suppress(TableError):
            for _ in csv_module.blocks([path], len(names), delimiter, range(len(names)), rule):
                pass


def transcript(data: bytes) -> None:
    Transcript.from_bytes(data)


def record(data: bytes) -> None:
    Record.read(_text(data))


def config(data: bytes) -> None:
    """The configuration of the server."""
    path = _folder() / "server.toml"
    path.write_bytes(data)
    for name, text in {"people.toml": served.DOMAIN, "people.csv": served.people(3)}.items():
        if not (_folder() / name).exists():
            (_folder() / name).write_text(text)
    read_config(path)


def session(data: bytes) -> None:
    """A spec, read for a session."""
    path = _folder() / "session.toml"
    path.write_bytes(data)
    read_session(path)


def plan(data: bytes) -> None:
    """The body of a request for a plan, up to the workload."""
    limits = LimitsTable()
    asked = _validated(PlanAsked, data)
    check_entries(asked.workload, SMALL, limits)
    given = TomlFile("request", "", {"workload": asked.workload})
    check_workload(workload_from(given, SMALL), limits)
    sf.Budget(**asked.budget.model_dump())


def question(data: bytes) -> None:
    """The body of a question, up to the questions."""
    work = sf.sql(SMALL, _validated(AskAsked, data).sql)
    check_questions(work, LimitsTable())
    questions_of(work)


ModelT = TypeVar("ModelT", bound=BaseModel)


def _validated(model: type[ModelT], data: bytes) -> ModelT:
    if is_too_deep(data, LimitsTable().json_depth):
        raise SchemaError("nested too deeply")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise SchemaError(f"{error.error_count()} faults") from None


def measured(data: bytes) -> None:
    """A stored release."""
    Measured.from_bytes(data, [BlockNoise("laplace", 5, 0), BlockNoise("gaussian", 5, 3)])


def answer(data: bytes) -> None:
    """A stored answer of a session."""
    Answer.from_bytes(data)


def paid(data: bytes) -> None:
    """A stored answer that was paid for, with what was learnt from it."""
    paid_answer(data, SMALL)


def reply(data: bytes) -> None:
    """What a server sends to the client, with any status."""
    _parsed(Reply(200 if data.startswith(b"{") else 422, {}, data))


def vector(data: bytes) -> None:
    """The stored state of a sparse vector."""
    SparseVector.restored(_law(), data)


def discoverer(data: bytes) -> None:
    """The stored state of a watch."""
    Discoverer.restored(_watch(), data)


@cache
def _law() -> SparseLaw:
    return sparse_of_epsilon(Fraction(1), 3, 16)


@cache
def _watch() -> SparseForecast:
    return plan_sparse(sf.Budget(epsilon=1), 2, 6, 16, is_monotone=True, with_numbers=True)


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
        config,
        session,
        plan,
        question,
        measured,
        answer,
        paid,
        reply,
        vector,
        discoverer,
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


def _stored_release() -> bytes:
    noise = BlockNoise("laplace", 5, 0), BlockNoise("gaussian", 5, 3)
    units = np.arange(4), np.arange(-2, 1)
    parts = tuple(Measurement(u, n) for u, n in zip(units, noise, strict=True))
    return Measured(parts, 7).to_bytes()


def _stored_answer() -> bytes:
    told = dict.fromkeys(Answer.__slots__, 1.5) | {"key": "k", "question": "q", "how": "free"}
    return json.dumps(told | {"epoch": 1, "cost": [], "is_dummy": False}).encode()


def _stored_payment() -> bytes:
    learnt = {
        "table": [0, 1],
        "shape": [2],
        "class_of": [[0, 1]],
        "attributes": ["sex"],
        "bits": 0,
        "value": 3.0,
        "variance": 2.0,
    }
    return json.dumps({"answer": json.loads(_stored_answer()), "learnt": learnt}).encode()


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
        "config": [served.CONFIG.encode()],
        "session": [release],
        "plan": [
            b'{"workload": [{"marginals": 1}, {"prefix": "age"}], "budget": {"epsilon": "0.5"}}',
            b'{"workload": [{"product": {"sex": [[1, 0.5]]}}], "budget": {"rho": 1}}',
        ],
        "question": [b'{"sql": "SELECT sex, COUNT(*) FROM t WHERE age < 5 GROUP BY sex"}'],
        "measured": [_stored_release()],
        "answer": [_stored_answer()],
        "paid": [_stored_payment()],
        "reply": [b'{"queries": 3, "mechanism": "gaussian"}'],
        "vector": [SparseVector(_law()).state()],
        "discoverer": [Discoverer(_watch()).state()],
    }
    found = tables[name]
    for data in found:
        if not read(name, data):
            raise SchemaError(f"the seed of {name} is refused")
    return found
