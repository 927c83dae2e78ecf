# SPDX-License-Identifier: Apache-2.0
"""Giant inputs: how long it takes to refuse them, and how much memory.

    python -m bench sizes

Sizes are computed from the schema and the request, in Python integers, before anything is built.
Each input is made beforehand; what is measured is the refusal: CPU time of the fastest of three,
and the most memory that Python and numpy held meanwhile (tracemalloc, a run of its own).
``tests/whole/test_sizes.py`` refuses the same list, counting calls in place of seconds.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import sfumato as sf
from bench.tell import show
from sfumato.cli.spec import read_spec
from sfumato.domain.domain import domain_from
from sfumato.errors import SfumatoError
from sfumato.toml import parse_toml
from sfumato.workload.question import questions_of
from sfumato.workload.statements.workload_file import constraints_from, workload_from

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

__all__ = ["BYTES", "GIANTS", "SECONDS", "Giant", "Refused", "close", "main", "refused"]

SECONDS, BYTES = 0.1, 50 * 2**20  # what a refusal may take
ANY = sf.Budget(epsilon=1, delta=1e-9)
DEEP = 10**5
MANY = 10**6
CHUNK = b" " * 2**16
SMALL = sf.Domain({"age": 100, "sex": 2})
WIDE = sf.Domain({f"a{i}": 10 for i in range(18)})  # 10^18 cells
LONG = sf.Domain({"x": 10**18, "sex": 2})
THOUSAND = sf.Domain({f"a{i}": 2 for i in range(1000)})


@dataclass(frozen=True)
class Refused:
    """How a giant input was refused."""

    words: str
    status: int | None = None


@dataclass(frozen=True)
class Giant:
    """An input that is far too large, made by ``make``; what that returns must refuse it."""

    where: str
    what: str
    make: Callable[[], Callable[[], object]]


def _plan(work: Callable[[], sf.Workload], **asked: object) -> Callable[[], Callable[[], object]]:
    """Both the workload and its plan are part of the refusal."""
    return lambda: lambda: sf.plan(work(), cache=False, **{"budget": ANY, **asked})  # type: ignore[arg-type]


def _read(
    reader: Callable[..., object], text: Callable[[], str], *more: object
) -> Callable[..., object]:
    def make() -> Callable[[], object]:
        given = text()
        return lambda: reader(parse_toml(given), *more)

    return make


def _called(function: Callable[..., object], given: Callable[[], object]) -> Callable[..., object]:
    def make() -> Callable[[], object]:
        made = given()
        return lambda: function(made)

    return make


def _spec(
    workload: str, domain: str, is_planned: bool = True
) -> Callable[[], Callable[[], object]]:
    """A spec file, read as the command line reads it."""

    def make() -> Callable[[], object]:
        path = _folder() / "release.toml"
        path.write_text(f"[budget]\nepsilon = 1\n{workload}\n{domain}\n")
        return (lambda: read_spec(path).plan()) if is_planned else (lambda: read_spec(path))

    return make


def _sparse_file() -> Callable[[], object]:
    path = _folder() / "giant.toml"
    with path.open("wb") as file:
        file.truncate(2**30)
    return lambda: read_spec(path)


def _terms() -> str:
    return " OR ".join(f"age = {i % 100}" for i in range(DEEP))


def _condition(text: object) -> object:
    return sf.predicates(SMALL, [str(text)])


def _listed(number: int) -> str:
    return "age IN (" + ", ".join(map(str, range(number))) + ")"


def _attributes(number: int, declared: str = 'kind = "integer"\nmin = 0\nmax = 9') -> str:
    return "\n".join(f"[domain.a{i}]\n{declared}" for i in range(number))


_INTEGER = '[domain.a]\nkind = "integer"\nmin = 0\nmax = '
_NUMERIC = '[domain.a]\nkind = "numeric"\nmin = 0\nmax = 1\nbins = '
_NINE = "[[workload]]\nmarginals = 9"

_PYTHON = (
    ("9-way marginals of 18 attributes", _plan(lambda: sf.marginals(WIDE, 9))),
    ("the same, to reach an error", _plan(lambda: sf.marginals(WIDE, 9), budget=None, error=10)),
    ("5-way marginals of 18 attributes", _plan(lambda: sf.marginals(WIDE, 5))),
    ("one table of 10^18 cells", _plan(lambda: sf.marginals(WIDE, 18))),
    ("one attribute of 10^18 cells", _plan(lambda: sf.marginals(LONG, 1))),
    ("ranges of 10^18 cells", _plan(lambda: sf.ranges(LONG, "x"))),
    ("10^10 queries: prefixes by 10^6 groups", _plan(lambda: _by_million("prefix"))),
    ("10^10 queries, largest error", _plan(lambda: _by_million("prefix"), objective="max")),
    ("10^14 queries: ranges by 10^6 groups", _plan(lambda: _by_million("ranges"))),
    ("3-way marginals of 1,000 attributes", _plan(lambda: sf.marginals(THOUSAND, 3))),
    ("500-way marginals of 1,000 attributes", _plan(lambda: sf.marginals(THOUSAND, 500))),
    ("1,000-way conjunctions", _plan(lambda: sf.conjunctions(THOUSAND, 1000))),
    ("a mean of 10^18 cells", _plan(lambda: sf.means(LONG, "x"))),
    ("answers of 10^18 cells", lambda: lambda: sf.marginals(LONG, 1).evaluate([0])),  # type: ignore[arg-type]
    ("a domain of 10^5 attributes", _called(sf.Domain, lambda: {f"a{i}": 2 for i in range(DEEP)})),
    ("10^6 predicates", _called(partial(sf.predicates, SMALL), lambda: ["age = 1"] * MANY)),
    ("10^9 listed values", lambda: lambda: sf.attribute(SMALL, "age").isin(range(10**9))),
    ("questions about 10^9 cells", lambda: lambda: questions_of(sf.marginals(_row(10**9), 1))),
    ("adaptive: a table of 10^18 cells", lambda: lambda: sf.plan_adaptive(_whole(), ANY)),
    ("adaptive: 10^9 rounds", lambda: lambda: sf.plan_adaptive(_pairs(), ANY, rounds=10**9)),
    ("a stream of 10^18 steps", lambda: lambda: sf.Stream(10**18, ANY)),
    ("10^12 streams", lambda: lambda: sf.Stream(100, ANY, dimensions=10**12)),
    ("a watch of 10^18 steps", lambda: lambda: sf.watch(10**18, ANY, 5)),
)  # fmt: skip
_SQL = (
    ("10^5 terms", _called(partial(sf.sql, SMALL), lambda: _where(_terms()))),
    ("a list of 10^6 values", _called(partial(sf.sql, SMALL), lambda: _where(_listed(MANY)))),
    ("9,000 brackets", _called(partial(sf.sql, SMALL), lambda: _where("(" * 9000 + "age = 1"))),
    ("a condition of 10^5 terms", _called(_condition, _terms)),
    ("GROUP BY 10^18 cells", _called(partial(sf.sql, LONG), lambda: _where("sex = 1 GROUP BY x"))),
)
_FILES = (
    ("10^5 nested lists", _read(domain_from, lambda: "a = " + "[" * DEEP + "]" * DEEP)),
    ("10^5 nested tables", _read(domain_from, lambda: "a = " + "{a = " * DEEP + "1" + "}" * DEEP)),
    ("a key of 10^5 parts", _read(domain_from, lambda: ".".join(["a"] * DEEP) + " = 1")),
    ("a number of 10^6 digits", _read(domain_from, lambda: _INTEGER + "9" * MANY)),
    ("10^39 cells", _read(domain_from, lambda: _INTEGER + "9" * 39)),
    ("10^18 bins", _read(domain_from, lambda: _NUMERIC + "1" + "0" * 18)),
    ("10^5 attributes", _read(domain_from, lambda: _attributes(DEEP))),
    ("10^5 workloads", _read(workload_from, lambda: "[[workload]]\nmarginals = 1\n" * DEEP, SMALL)),
    ("a constraint on 10^18 cells", _read(constraints_from, lambda: _impossible("x < 5"), LONG)),
    ("a file of 1 GiB", _sparse_file),
    ("a spec: 9-way marginals of 18", _spec(_NINE, _attributes(18))),
    ("a spec: 10^18 cells", _spec("[[workload]]\nmarginals = 1", _INTEGER + "9" * 18)),
)


def _by_million(kind: str) -> sf.Workload:
    return sf.product(sf.Domain({"x": 10**4, "y": 10**6}), {"x": kind, "y": "identity"})


def _row(cells: int) -> sf.Domain:
    return sf.Domain({"x": cells})


def _whole() -> sf.Workload:
    return sf.marginals(WIDE, 18)


def _pairs() -> sf.Workload:
    return sf.marginals(WIDE, 2)


def _where(condition: str) -> str:
    return f"SELECT COUNT(*) FROM data WHERE {condition}"


def _impossible(condition: str) -> str:
    return f'[constraints]\nimpossible = ["{condition}"]'


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sfumato-sizes-"))


@dataclass
class _Sent:
    """A request to the application itself, its body in parts that are made when they are read."""

    body: Iterator[bytes]
    read: int = 0
    status: int = 0
    answer: bytes = b""

    async def receive(self) -> dict[str, object]:
        part = next(self.body, b"")
        self.read += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    async def send(self, message: Mapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.answer += message.get("body", b"")


def _streamed(parts: int) -> Callable[[], Callable[[], object]]:
    """A body of so many parts of 64 KiB; its length is not declared."""

    def make() -> Callable[[], object]:
        client, headers = _served()

        def post() -> object:
            sent = _Sent(repeat(CHUNK, parts))
            scope = {
                "type": "http",
                "method": "POST",
                "path": _PLAN,
                "headers": [
                    (b"authorization", headers["Authorization"].encode()),
                    (b"transfer-encoding", b"chunked"),
                ],
            }
            asyncio.run(client.app(scope, sent.receive, sent.send))  # type: ignore[arg-type]
            assert sent.read <= 4 * len(CHUNK), "most of it was read"
            return httpx.Response(sent.status, content=sent.answer)

        return post

    return make


def _post(route: str, body: Callable[[], bytes], length: str = "") -> Callable[..., object]:
    """A request to a small server; ``length`` is what it declares."""

    def make() -> Callable[[], object]:
        client, headers = _served()
        sent, more = body(), {"Content-Type": "application/json"}
        more |= {"Content-Length": length} if length else {}
        return lambda: client.post(route, content=sent, headers={**headers, **more})

    return make


def _json(workload: list[object]) -> bytes:
    return json.dumps({"workload": workload, "budget": {"epsilon": 1}}).encode()


def _question(condition: str) -> bytes:
    return json.dumps({"sql": _where(condition)}).encode()


_PLAN, _ASK = "/datasets/people/plan", "/datasets/people/ask"
_HTTP = (
    ("a body of 1 GiB, in parts", _streamed(2**14)),
    ("a body of 1 GiB, declared", _post(_PLAN, lambda: b"", str(2**30))),
    ("32,768 nested lists", _post(_PLAN, lambda: b"[" * 2**15)),
    ("1,000 workloads", _post(_PLAN, lambda: _json([{"marginals": 1}] * 1000))),
    ("10^4 predicates", _post(_PLAN, lambda: _json([{"predicates": ["age=1"] * 10**4}]))),
    ("SQL of 10^5 terms", _post(_PLAN, lambda: _json([{"sql": _where(_terms())}]))),
    ("a question of 1,000 values", _post(_ASK, lambda: _question(_listed(1000)))),
)

GIANTS = tuple(
    Giant(where, what, make)
    for where, found in (("Python", _PYTHON), ("SQL", _SQL), ("TOML", _FILES), ("HTTP", _HTTP))
    for what, make in found
)
_OPEN = ExitStack()


@cache
def _served() -> tuple[TestClient, dict[str, str]]:
    from tests.http.served import CORA, bearer, served, write_served

    path = write_served(_folder() / "served")
    return _OPEN.enter_context(served(path)), bearer(CORA)


def close() -> None:
    """Stop the server, if one was started."""
    _served.cache_clear()
    _OPEN.close()


def refused(refuse: Callable[[], object]) -> Refused:
    """How an input is refused; AssertionError if it is taken."""
    try:
        found = refuse()
    except SfumatoError as error:
        return Refused(str(error))
    status = getattr(found, "status_code", 200)
    assert 400 <= status < 500, "not refused"
    return Refused(found.json()["message"], status)  # type: ignore[attr-defined]


def main() -> None:
    """Print the table."""
    from rich.table import Table

    shown = Table(title="Giant inputs: what refusing them takes")
    for heading in ("where", "input", "CPU ms", "MB", "refusal"):
        shown.add_column(heading, no_wrap=heading != "refusal")
    worst = (0.0, 0.0)
    for giant in GIANTS:
        refuse = giant.make()
        words = refused(refuse).words
        seconds = min(_seconds(refuse) for _ in range(3))
        held = _held(refuse)
        worst = max(worst[0], seconds), max(worst[1], held)
        row = f"{1000 * seconds:.1f}", f"{held / 2**20:.1f}", words.splitlines()[0][:90]
        shown.add_row(giant.where, giant.what, *(part.replace("[", r"\[") for part in row))
    close()
    show(shown)
    print(
        f"\n{len(GIANTS)} refusals, at most {1000 * worst[0]:.0f} ms and {worst[1] / 2**20:.0f} MB"
    )


def _seconds(refuse: Callable[[], object]) -> float:
    began = time.process_time()
    refused(refuse)
    return time.process_time() - began


def _held(refuse: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        refused(refuse)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main()
