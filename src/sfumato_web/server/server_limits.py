# SPDX-License-Identifier: Apache-2.0
"""The limits of the server in one place: those of ``[limits]``, and those that are fixed.

None of them can void a privacy claim. Sizes of a request are computed from the schema and the
request, in exact integers, before anything is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.toml import STRICT
from sfumato.workload.workload import Workload

__all__ = [
    "LIMITS",
    "LimitsTable",
    "Rates",
    "ServerLimits",
    "check_entries",
    "check_questions",
    "check_workload",
    "is_too_deep",
]


Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the server holds in memory, answers at once and waits for; not configurable."""

    # dataset: what is remembered of one dataset
    plans_cached: int = 64
    """Plans, and texts read as workloads: a page with two sliders asks for some ten of them."""
    strategies_cached: int = 16
    """Workloads whose strategies serve plans at other budgets; they are what takes memory."""
    bodies_cached: int = 256
    """Requests that are not read again if they come in the same bytes."""
    results_cached: int = 4
    """Releases that were opened again; one can hold all its answers."""
    refusals_cached: int = 4_096
    """Refusals that stand for a moment; beyond, all of them are forgotten."""
    refusal_seconds: float = 1.0
    """For which a refusal stands without another look into the ledger."""
    ledger_entries: int = 1_000
    """Debits in one response; `next` leads to the others."""

    audit_records: int = 5_000
    """Records of a ledger in one response; the last one's number leads to the others."""

    jobs_listed: int = 200
    """Newest jobs in one list."""

    jobs_looked_at: int = 5_000
    """Newest jobs of all analysts that are gone through for it."""
    jobs_kept: int = 10_000
    """Jobs that are remembered; older ones that are over are forgotten, releases never."""

    # batcher: questions that are answered together
    batch_requests: int = 256
    """Requests of one round, which is one commit of the ledger."""
    batch_requests_per_analyst: int = 32
    """Of one analyst in one round while others wait."""
    texts_cached: int = 2**14
    """Texts whose SQL is not read again."""
    text_bytes_cached: int = 2**26
    """Memory of their questions: an attribute can have a million cells."""

    # app: threads, and how long a part may take to answer
    reader_threads: int = 2
    """For short work: reading SQL, keys, stored answers."""
    part_seconds: float = 5.0
    """For a ledger or a session, where the list of datasets is shown without it."""
    ready_seconds: float = 30.0
    """Likewise, where the question is whether the parts answer at all."""

    # problems and models: texts
    listed_faults: int = 8
    """Faults of a request that one message lists."""
    packed_bytes: int = 1_400
    """Of a body, from which it is packed where that is accepted: below, it fits one packet."""
    name_characters: int = 60
    """Of what a release is called: a line of a list."""
    reason_characters: int = 200
    """Of the reason for a freeze, which stays in the ledger."""


LIMITS: Final = ServerLimits()


class LimitsTable(BaseModel):
    """The table ``[limits]`` of the configuration: what a request may ask for, and how often."""

    model_config = ConfigDict(**STRICT)

    header_bytes: Annotated[int, Field(ge=2**10, le=2**20)] = 2**14
    """Of a request before anybody is known."""
    header_seconds: Seconds = 10.0
    """In which the headers have to arrive."""
    body_bytes: Annotated[int, Field(ge=1, le=2**26)] = 2**16
    """Of a request."""
    body_seconds: Seconds = 10.0
    """In which the body has to arrive."""
    json_depth: Annotated[int, Field(ge=2, le=100)] = 16
    """Nesting of lists and objects, measured before parsing."""
    cells: Count = 10**18
    """Of a domain that is served."""
    groups: Count = 1_000
    """Of queries in one release, counted before anything is built."""
    queries: Count = 100_000
    """Of one release."""
    questions: Count = 5_000
    """Numbers of one SELECT with GROUP BY; running totals of quantiles are many."""
    planning_seconds: Seconds = 20.0
    """Of one undisturbed core, counted in steps."""
    requests_per_second: Seconds = 200.0
    """Of one analyst."""
    burst: Count = 400
    """Requests of one analyst at once."""
    concurrent: Count = 512
    """Requests inside at once; curators are let in beyond."""
    concurrent_per_analyst: Count = 128
    """Requests of one analyst inside at once."""
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    """Plans and releases at work."""
    workers_per_analyst: Annotated[int, Field(ge=1, le=64)] = 2
    """Of one analyst, who never gets all of several."""
    waiting: Count = 64
    """Plans and releases of one analyst in the queue."""
    kept_bytes: Count = 2**26
    """Stored answers in memory."""


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


def check_entries(
    entries: Sequence[Mapping[str, object]], domain: Domain, limits: LimitsTable
) -> None:
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


def check_workload(workload: Workload, limits: LimitsTable) -> None:
    """Refuse a workload with more groups or queries than the limits allow."""
    _check(len(workload.terms), limits.groups, "groups of queries")
    _check(workload.queries, limits.queries, "queries")


def check_questions(workload: Workload, limits: LimitsTable) -> None:
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
