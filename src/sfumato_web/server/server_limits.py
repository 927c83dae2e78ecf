# SPDX-License-Identifier: Apache-2.0
"""How much one request may ask for, and how often: all limits of the server in one place.

Sizes are computed from the schema and the request, in exact integers, before anything is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.toml import STRICT
from sfumato.workload.workload import Workload

__all__ = [
    "Limits",
    "Rates",
    "check_entries",
    "check_questions",
    "check_workload",
    "is_too_deep",
]


Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """The table ``[limits]`` of the configuration."""

    model_config = ConfigDict(**STRICT)

    header_bytes: Annotated[int, Field(ge=2**10, le=2**20)] = 2**14
    header_seconds: Seconds = 10.0
    body_bytes: Annotated[int, Field(ge=1, le=2**26)] = 2**16
    body_seconds: Seconds = 10.0
    json_depth: Annotated[int, Field(ge=2, le=100)] = 16
    cells: Count = 10**18
    groups: Count = 1_000
    queries: Count = 100_000
    questions: Count = 200
    planning_seconds: Seconds = 20.0
    requests_per_second: Seconds = 200.0
    burst: Count = 400
    concurrent: Count = 512
    concurrent_per_analyst: Count = 128
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    workers_per_analyst: Annotated[int, Field(ge=1, le=64)] = 2
    waiting: Count = 64
    kept_bytes: Count = 2**26


# A string that is never closed reaches to the end: no byte is gone over twice.
_MARKS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def is_too_deep(body: bytes, most: int) -> bool:
    """Whether lists and objects of a JSON text are nested more than ``most`` deep.

    >>> is_too_deep(b'[["]"]]', 2), is_too_deep(b"[[[]]]", 2)
    (False, True)
    """
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth = 0
    for mark in _MARKS.finditer(body):
        if mark[0] in b"[{":
            depth += 1
            if depth > most:
                return True
        elif mark[0] in b"]}":
            depth -= 1
    return False


def check_entries(entries: Sequence[Mapping[str, object]], domain: Domain, limits: Limits) -> None:
    """Refuse a workload whose list of groups alone would be too long, before it is built."""
    groups = 0
    for entry in entries:
        named = entry.get("attributes")
        size = len(named) if isinstance(named, list) else len(domain)
        for kind in ("marginals", "conjunctions"):
            ways = entry.get(kind)
            if isinstance(ways, int) and 0 <= ways <= size:
                groups += math.comb(size, ways)
    _check(groups, limits.groups, "groups of queries")


def check_workload(workload: Workload, limits: Limits) -> None:
    """Refuse a workload with more groups or queries than the limits allow."""
    _check(len(workload.terms), limits.groups, "groups of queries")
    _check(workload.queries, limits.queries, "queries")


def check_questions(workload: Workload, limits: Limits) -> None:
    """Refuse a SELECT that asks more questions than the limits allow, before they are listed."""
    _check(workload.queries, limits.questions, "questions")


def _check(size: int, most: int, what: str) -> None:
    if size > most:
        raise TooLarge(
            f"this asks for {_number(size)} {what}, this server answers at most {most:,} at once; "
            "ask for fewer"
        )


def _number(value: int) -> str:
    return f"{value:,}" if value < 10**30 else f"about 10^{math.floor(math.log10(value))}"


class Rates:
    """A bucket of requests per name: ``burst`` at once, then ``per_second``."""

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._per_second, self._burst, self._clock = per_second, float(burst), clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, name: str) -> float:
        """Take one request of this name: 0 if it may go on, else the seconds to wait."""
        now = self._clock()
        left, since = self._buckets.get(name, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1:
            return (1 - left) / self._per_second
        self._buckets[name] = (left - 1, now)
        return 0.0
