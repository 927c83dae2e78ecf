# SPDX-License-Identifier: Apache-2.0
"""What all tests share: repeatable properties, and both databases for ledgers.

Properties see the same examples in every `make test`, and new ones in `make audit`.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.ledger_home import Home
from tests.postgres_server import NoServer, postgres_server

# A plan must not depend on what an earlier run remembered; tests of the cache set a folder.
os.environ["SFUMATO_CACHE"] = "off"

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def postgres():
    """The address of a real PostgreSQL server."""
    try:
        with postgres_server() as address:
            yield address
    except NoServer as error:
        pytest.skip(f"NO POSTGRESQL SERVER, these tests are not run: {error}")


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request, tmp_path):
    """A place for a ledger, on each of the databases."""
    kind = request.param
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None
    return Home.at(kind, tmp_path, server)
