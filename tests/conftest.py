# SPDX-License-Identifier: Apache-2.0
"""What all tests share: repeatable properties, and both databases for ledgers.

Properties see the same examples in every `make test`, and new ones in `make audit`. Noise is as
repeatable: each test and fixture has a stream of its own, keyed by its name, wherever its file is.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

from sfumato.errors import TableError
from sfumato.vault.spark import spark_session
from tests.shared.engine_tables import SMALL_SPARK
from tests.shared.ledger_home import Home
from tests.shared.postgres_server import NoServer, postgres_server
from tests.shared.strategies_once import share_strategies
from tests.shared.words import key_noise, system_noise

# A plan must not depend on what an earlier run remembered; tests of the cache set a folder.
os.environ["SFUMATO_CACHE"] = "off"

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


YOUNG, MIDDLE, OLD = 10_000, 20, 10  # 700, 10 and 10 took a tenth of the processor time


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Tests live as long as their process: the garbage collector need not look at them.

    It looks more rarely at the rest, too: most of it is modules that a test imported.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, OLD)
        gc.enable()


def pytest_sessionfinish():
    gc.unfreeze()


@pytest.fixture(scope="session")
def postgres():
    """The address of a real PostgreSQL server."""
    try:
        with postgres_server() as address:
            yield address
    except NoServer as error:
        pytest.skip(f"NO POSTGRESQL SERVER, these tests are not run: {error}")


@pytest.fixture(scope="session")
def spark():
    """A session of Spark on this machine: one for all tests of a process."""
    try:
        session = spark_session(SMALL_SPARK)
    except TableError as error:
        pytest.skip(f"NO SPARK, these tests are not run: {error}")
    yield session
    session.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request, tmp_path):
    """A place for a ledger, on each of the databases."""
    kind = request.param
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None
    return Home.at(kind, tmp_path, server)


BUILDERS = {"planning", "solve", "strategy", "study", "workload", "properties"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Tests share strategies, but not those of what builds them, nor where a part is replaced."""
    is_apart = "monkeypatch" in item._fixtureinfo.argnames or BUILDERS & {*item.nodeid.split("/")}
    share_strategies(are_shared=not is_apart)


IS_NEW = os.environ.get("HYPOTHESIS_PROFILE", "repeatable") == "new"


def _noise_of(name: str, node: pytest.Item | pytest.Collector) -> None:
    """Key the noise of this process by a name; tests of randomness itself have the real one."""
    is_real = IS_NEW or node.path.name == "test_random.py"
    if is_real:
        system_noise()
    else:
        key_noise(name)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    _noise_of(f"{fixturedef.argname} of {request.node.name}", request.node)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if item.get_closest_marker("slow"):  # `make audit`
        system_noise()
    else:
        _noise_of(item.name, item)
