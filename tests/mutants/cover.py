# SPDX-License-Identifier: Apache-2.0
"""Which test runs which lines, and in which time: `python -m tests.mutants.cover FILE TESTS`.

Every module of the rooms is imported first, and what functions remember is forgotten before each
test, so that a line belongs to a test if and only if the test runs it by itself.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import coverage
import pytest

from tests.mutants.servers import seconds, servers

ROOMS = tuple(f"src/sfumato/{room}" for room in ("vault", "run", "ledger", "privacy"))
# Tests that call the rooms directly and take little: a longer list can only kill more.
_PROPERTIES = (
    "budget_properties",
    "count_cells",
    "count_csv",
    "engines",
    "ledger_interleavings",
    "noise_properties",
    "plain_count",
    "sparse_properties",
    "stream_properties",
)
TESTS = (
    "tests/unit/vault",
    "tests/unit/run",
    "tests/unit/ledger",
    "tests/unit/privacy",
    "tests/unit/session",
    "tests/unit/cli/test_spec_engine_sources.py",
    "tests/unit/planning/test_sparse_plans_noise.py",
    "tests/unit/planning/test_stream_plans.py",
    "tests/unit/refine/test_shrink.py",
    "tests/unit/release",
    "tests/statistical/test_unit_choice.py",
    "tests/unit/planning/test_resources.py",
    *(f"tests/properties/test_{name}.py" for name in _PROPERTIES),
)


def modules() -> list[str]:
    """The files of the rooms, from the root of the project."""
    return sorted(str(path) for room in ROOMS for path in Path(room).rglob("*.py"))


def load() -> None:
    """Import all modules of the rooms."""
    for path in modules():
        name = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
        importlib.import_module(name.replace("/", "."))


class Watch:
    """Name every test to the tracer; keep its processor seconds and whether it passed."""

    def __init__(self, tracer):
        self.tracer = tracer
        self.seconds = {}
        self.not_passed = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        forget()
        self.tracer.switch_context(item.nodeid)
        before = seconds()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = seconds() - before
            self.tracer.switch_context("")

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed":
            self.not_passed.add(report.nodeid)


def forget() -> None:
    """Empty all caches of the package, and the strategies that tests share."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sfumato" or name == "tests.shared.strategies_once":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def main(out: str, tests: list[str]) -> None:
    """Run the tests once and write what was seen."""
    tracer = coverage.Coverage(data_file=None, include=[f"{room}/*" for room in ROOMS])
    tracer.start()
    load()
    watch = Watch(tracer)
    with servers():
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[watch])
    tracer.stop()
    data = tracer.get_data()
    lines = {
        path: {
            line: sorted(set(names) - {""} - watch.not_passed)
            for line, names in data.contexts_by_lineno(str(Path(path).resolve())).items()
        }
        for path in modules()
    }
    ours = ("sfumato", "tests", "pytest", "_pytest", "coverage", "__main__", "conftest")
    others = [name for name in sys.modules if name.partition(".")[0] not in ours]
    seen = {"seconds": watch.seconds, "lines": lines, "modules": others}
    Path(out).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(TESTS))
