# SPDX-License-Identifier: Apache-2.0
"""schemathesis against the OpenAPI document: no server error, every response as documented.

A few requests per route in every run, the same ones each time; 20,000 with ``-m slow``.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http.served import ADA, CORA, bearer, served, write_served
from tests.http.test_ask import SESSION

CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
FAST = "planning_seconds = 1.0\nqueries = 200\nburst = 1000000\nrequests_per_second = 1000000.0"


WORKLOADS = [
    [{"marginals": 1}],
    [{"prefix": "age", "by": ["sex"]}],
    [{"ranges": "age"}],
    [{"sql": "SELECT AVG(age) FROM data GROUP BY sex"}],
    [{"predicates": ["age >= 10 and sex = 'Male'"]}],
    [{"conjunctions": 2}],
    [{"windows": "age", "width": 3}],
]
TEXTS = [
    "SELECT COUNT(*) FROM data WHERE age >= 10",
    "SELECT sex, COUNT(*) FROM data GROUP BY sex",
    "SELECT SUM(age) FROM data WHERE NOT sex = 'Male'",
    "SELECT COUNT(*) FROM data WHERE age BETWEEN 3 AND 7 AND sex IN ('Male')",
    "SELECT COUNT(*) FROM data WHERE age > ",
]


def filled(body: object, number: int) -> object:
    """Of every three bodies one gets a workload or a text that can be asked."""
    if isinstance(body, dict) and number % 3 == 0:
        if "workload" in body:
            return {**body, "workload": WORKLOADS[number % len(WORKLOADS)]}
        if "sql" in body:
            return {**body, "sql": TEXTS[number % len(TEXTS)]}
    return body


def fuzz(folder: Path, examples: int, is_new: bool) -> Counter[int]:
    """Send about ``examples`` requests to every route, good and bad; the statuses that came."""
    statuses: Counter[int] = Counter()
    path = write_served(folder, SESSION.replace("planning_seconds = 60.0", FAST))
    with served(path) as client:
        api = schemathesis.openapi.from_asgi("/openapi.json", client.app)
        for found in api.get_all_operations():
            operation = found.ok()
            modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
            for mode in modes:
                strategy = operation.as_strategy(generation_mode=mode)

                @settings(
                    max_examples=examples,
                    derandomize=not is_new,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=strategy)
                def send(case: schemathesis.Case) -> None:
                    number = sum(statuses.values())
                    if "name" in (case.path_parameters or {}) and number % 8:
                        case.path_parameters["name"] = "people"
                    case.body = filled(case.body, number)
                    token = CORA if number % 2 else ADA
                    reply = case.call(headers=bearer(token))
                    statuses[reply.status_code] += 1
                    case.validate_response(reply, checks=CHECKS)

                with suppress(Unsatisfiable):  # a route without parameters has no bad requests
                    send()
    return statuses


def test_a_few_requests_per_route_meet_no_server_error(tmp_path: Path) -> None:
    statuses = fuzz(tmp_path / "served", 4, is_new=False)
    assert sum(statuses.values()) > 40
    assert statuses[200] > 0
    assert statuses[422] > 0
    assert not [status for status in statuses if status >= 500]


@pytest.mark.slow
def test_twenty_thousand_requests_meet_no_server_error(tmp_path: Path) -> None:
    statuses = fuzz(tmp_path / "served", 1_000, is_new=True)
    assert sum(statuses.values()) >= 20_000
    assert not [status for status in statuses if status >= 500]
