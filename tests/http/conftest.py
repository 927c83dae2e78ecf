# SPDX-License-Identifier: Apache-2.0
"""One server per test module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.http.served import served, write_served


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with served(write_served(tmp_path_factory.mktemp("served"))) as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[TestClient]:
    """A server whose budget nobody has touched."""
    with served(write_served(tmp_path / "served")) as found:
        yield found
