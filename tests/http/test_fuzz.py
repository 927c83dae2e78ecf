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

from tests.http.served import ADA, CONFIG, CORA, bearer, served, write_served

CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
FAST = "planning_seconds = 1.0\nqueries = 200\nburst = 1000000\nrequests_per_second = 1000000.0"


def fuzz(folder: Path, examples: int, is_new: bool) -> Counter[int]:
    """Send about ``examples`` requests to every route, good and bad; the statuses that came."""
    statuses: Counter[int] = Counter()
    path = write_served(folder, CONFIG.replace("planning_seconds = 60.0", FAST))
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
                    if "name" in (case.path_parameters or {}) and sum(statuses.values()) % 8:
                        case.path_parameters["name"] = "people"
                    token = CORA if sum(statuses.values()) % 2 else ADA
                    reply = case.call(headers=bearer(token))
                    statuses[reply.status_code] += 1
                    case.validate_response(reply, checks=CHECKS)

                with suppress(Unsatisfiable):  # a route without parameters has no bad requests
                    send()
    return statuses


def test_a_few_requests_per_route_meet_no_server_error(tmp_path: Path) -> None:
    statuses = fuzz(tmp_path / "served", 6, is_new=False)
    assert sum(statuses.values()) > 60
    assert statuses[200] > 0
    assert statuses[422] > 0
    assert not [status for status in statuses if status >= 500]


@pytest.mark.slow
def test_twenty_thousand_requests_meet_no_server_error(tmp_path: Path) -> None:
    statuses = fuzz(tmp_path / "served", 1_000, is_new=True)
    assert sum(statuses.values()) >= 20_000
    assert not [status for status in statuses if status >= 500]
