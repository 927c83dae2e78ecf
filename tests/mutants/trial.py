# SPDX-License-Identifier: Apache-2.0
"""Try mutants, each in a forked process, until a test fails; the tree itself is never changed.

The parent has collected all tests. A change inside of a function is made in the child by giving
the function its changed code. A change outside of functions acts on import, so its child
forgets the package and runs pytest again, on a copy of the project. A mutant that runs out of
processor time or of memory, or that waits for ever, is killed. What ends a mutant must not end the
unchanged code in such a child: each test that kills is tried on it, once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants.cover import TESTS, forget, load
from tests.mutants.rules import Mutant
from tests.mutants.servers import ticks

MEMORY = 8 * 2**30
IDLE, LEAST = 60, 30  # seconds in which a child that works uses so many ticks, also if many do
IMPORT = "import"  # in place of a test, where none can be collected
SKIPPED = (".git", ".venv", ".mutants", "__pycache__", ".hypothesis", "site", ".*_cache")
OPTIONS = ("-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist")


class Trials:
    """Collects the tests as a plugin of pytest, and tries mutants in place of running them."""

    def __init__(self, folder: Path, work: Callable[[Trials], None]) -> None:
        self.copy, self.output = folder / "project", folder / "output"
        self.scratch, self._killer = folder / "scratch", folder / "killer"
        self._work = work
        self._sound: dict[tuple[str, bool], bool] = {}
        shutil.copytree(Path.cwd(), self.copy, ignore=shutil.ignore_patterns(*SKIPPED))

    def run(self) -> None:
        """Collect, then work."""
        pytest.main([*OPTIONS, f"--basetemp={self.scratch}", *TESTS], plugins=[self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work on what was collected; none of it runs here."""
        load()
        self._items = {item.nodeid: item for item in session.items}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # what the collection froze is to be seen
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                self._functions.setdefault(_name(thing.__code__), []).append(thing)
        gc.freeze()
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In a child: the first failure decides."""
        if report.failed:
            self._killer.write_text(report.nodeid)
            os._exit(1)

    def tried(self, path: str, mutant: Mutant, seconds: dict[str, float]) -> tuple[str, str]:
        """The outcome for a mutant, and the test that killed it; ``seconds`` names all to ask."""
        tests = [t for t in seconds if self._sound.get((t, mutant.on_import), True)]
        while True:
            found = self.outcome(path, mutant, tests, sum(map(seconds.get, tests)))
            if found == "survived":
                return found, ""
            # Which test a mutant hung in, only the unchanged code with all of them can tell.
            killer = self._killer.read_text() if self._killer.exists() else ""
            suspects = [killer] if killer in seconds else tests
            if killer == IMPORT or self._are_sound(path, suspects, mutant.on_import, seconds):
                return found, killer
            tests = [t for t in tests if self._sound.get((t, mutant.on_import), True)]

    def _are_sound(self, path, tests, on_import, seconds):
        """Whether the unchanged code passes these tests in a child; remembers those that fail."""
        unknown = [t for t in tests if (t, on_import) not in self._sound]
        nothing = Mutant("none", 0, 0, "", 1, (1, 1), on_import)
        if not unknown:
            return True
        if self.outcome(path, nothing, unknown, sum(map(seconds.get, unknown))) == "survived":
            self._sound |= {(t, on_import): True for t in unknown}
            return True
        for t in unknown:
            passed = self.outcome(path, nothing, [t], seconds[t]) == "survived"
            self._sound[t, on_import] = passed
            if not passed:
                print(f"NOT ASKED, it fails on unchanged code in a child: {t}", flush=True)
        return False

    def outcome(self, path: str, mutant: Mutant, tests: list[str], seconds: float) -> str:
        """``killed``, ``timeout`` or ``survived``: what the tests say of a changed file."""
        self._killer.unlink(missing_ok=True)
        source = Path(path).read_bytes()
        changed = mutant.applied_to(source)
        if mutant.on_import:
            (self.copy / path).write_bytes(changed)
            try:
                return self._forked(lambda: self._anew(tests), seconds)
            finally:
                (self.copy / path).write_bytes(source)
        return self._forked(lambda: self._changed(path, source, changed, tests), seconds)

    def _changed(self, path, source, changed, tests):
        file = str(Path(path).resolve())
        for old, new in _differing(source, changed, file):
            found = self._functions.get(_name(old), [])
            if not found:
                raise LookupError(f"{old.co_qualname} of {path} is nowhere")
            for function in found:
                function.__code__ = new
        forget()
        items = [self._items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return 0

    def _anew(self, tests):
        os.chdir(self.copy)
        address = sys.modules["tests.shared.postgres_server"].postgres_server
        for name in [n for n in sys.modules if n.partition(".")[0] in ("tests", "sfumato")]:
            del sys.modules[name]
        sys.path[:0] = [str(self.copy), str(self.copy / "src")]
        importlib.import_module("tests.shared.postgres_server").postgres_server = address
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        options = [*OPTIONS, "--assert=plain", f"--basetemp={self.scratch}"]
        return int(pytest.main([*options, *files], plugins=[_Chosen(tests), _Killer(self._killer)]))

    def _forked(self, action, seconds):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                cpu = int(3 * seconds) + 10
                resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                file = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(file, 1)
                os.dup2(file, 2)
                code = action()
            except LookupError as error:
                code = 71
                os.write(1, repr(error).encode())
            finally:
                os._exit(code)
        status = _status(child)
        if status is None or os.WIFSIGNALED(status):
            return "timeout"
        if os.WEXITSTATUS(status) == int(pytest.ExitCode.INTERRUPTED):  # by errors of an import
            self._killer.write_text(IMPORT)
        if os.WEXITSTATUS(status) == 71:
            raise SystemExit(f"a change could not be made:\n{self.output.read_text()}")
        return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


class _Killer:
    """Write down which test failed first."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.file.write_text(report.nodeid)
            os._exit(1)


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


def _name(code):
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions_of(code: CodeType) -> Iterator[CodeType]:
    """Functions of a module and of its classes, in the order of the source."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_class = not inner.co_flags & 0x2  # CO_NEWLOCALS: functions have it
            yield from _functions_of(inner) if is_class else [inner]


def _differing(source, changed, file):
    """Functions before and after a change, where they differ."""
    before, after = (list(_functions_of(compile(text, file, "exec"))) for text in (source, changed))
    pairs = list(zip(before, after, strict=True))
    return [(a, b) for a, b in pairs if _shape(a) != _shape(b)]


def _shape(code):
    """A code without its line numbers."""
    inner = tuple(_shape(c) if isinstance(c, CodeType) else (type(c), c) for c in code.co_consts)
    return code.co_code, inner, code.co_names, code.co_varnames, code.co_freevars


def _status(child):
    """How a child ended, or None if it did next to nothing for `IDLE` seconds; its own are gone."""
    status, used, since = None, _used(child), time.monotonic()
    try:
        while status is None:
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended:
                status = code
                continue
            time.sleep(0.02)
            if time.monotonic() - since > IDLE:
                before, used, since = used, _used(child), time.monotonic()
                if used - before < LEAST:
                    break
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            os.waitpid(child, 0)
    return status


def _used(child):
    """Processor time of a process and its ended children, in ticks; the clock where none tells."""
    try:
        return ticks(child)
    except OSError:
        return time.monotonic() * LEAST
