# SPDX-License-Identifier: Apache-2.0
"""Try mutants in a copy of the project: each in a forked process, until a test fails.

The parent has loaded what the tests need from others, and nothing of sfumato: a child imports the
changed sources anew. A mutant that runs out of processor time, of time, or of memory is killed.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import os
import py_compile
import resource
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest

MEMORY = 8 * 2**30
SKIPPED = (".git", ".venv", ".mutants", "__pycache__", ".hypothesis", "site", ".*_cache")


class Place:
    """A copy of the project in a folder, in which one file at a time is changed."""

    def __init__(self, root: Path, folder: Path, server: str | None):
        self.copy = folder / "project"
        self.scratch = folder / "scratch"
        self.server = server
        shutil.copytree(root, self.copy, ignore=shutil.ignore_patterns(*SKIPPED))
        # Compiled once; a changed source has another hash and is compiled by its child.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        for part in ("src", "tests"):
            compileall.compile_dir(self.copy / part, quiet=1, invalidation_mode=mode)

    def outcome(self, path: str, changed: bytes, tests: list[str], seconds: float) -> str:
        """``killed``, ``timeout`` or ``survived``: what the tests say of a changed file."""
        file = self.copy / path
        source = file.read_bytes()
        file.write_bytes(changed)
        try:
            return self._forked(tests, seconds)
        finally:
            file.write_bytes(source)

    def output(self) -> str:
        """What the last tests wrote."""
        return (self.scratch.parent / "output").read_text()

    def _forked(self, tests, seconds):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = self._run(tests, seconds)
            finally:
                os._exit(code)
        # Processor time decides; this limit is for what waits for ever.
        status = _status(child, time.monotonic() + 20 * seconds + 300)
        if status is None or os.WIFSIGNALED(status):
            return "timeout"
        return "survived" if os.WEXITSTATUS(status) == 0 else "killed"

    def _run(self, tests, seconds):
        os.setsid()
        cpu = int(5 * seconds) + 30
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with (self.scratch.parent / "output").open("wb") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
        os.chdir(self.copy)
        for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:0] = [str(self.copy), str(self.copy / "src")]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        if self.server is not None:
            servers = importlib.import_module("tests.postgres_server")
            servers.postgres_server = lambda **_: contextlib.nullcontext(self.server)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        options = ["-x", "-q", "--assert=plain", f"--basetemp={self.scratch}"]
        options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
        return int(pytest.main([*options, *files], plugins=[_Chosen(tests)]))


class _Chosen:
    """Run these tests, in this order."""

    def __init__(self, tests):
        self.place_of = {test: i for i, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place_of),
            key=lambda item: self.place_of[item.nodeid],
        )


def _status(child, until):
    """How a child ended, or None if it had to be killed; what it started is gone too."""
    status = None
    while status is None and time.monotonic() < until:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = code
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def load(names: list[str]) -> None:
    """Import what the tests imported from others, so that children have it already."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    ours = [n for n in sys.modules if n.partition(".")[0] == "sfumato"]
    if ours:
        raise SystemExit(f"loaded before any mutant: {ours}")
