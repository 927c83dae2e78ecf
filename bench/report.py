# SPDX-License-Identifier: Apache-2.0
"""One report of a run: what each section printed and drew, the machine, and how to repeat it.

Every section has a process of its own, so that one that fails does not take the others with it.
What it prints is shown at once and kept; pictures that it names are put in. How a section measures
is told by the first lines of its module. The report is ``bench/results/report.md``.
"""

from __future__ import annotations

import ast
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.tell import Effort

__all__ = ["RESULTS", "Section", "conditions", "machine", "run_section", "written"]

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
PACKAGES = (
    "numpy", "scipy", "numba", "duckdb", "pyarrow", "ibis-framework", "opendp", "mbi",
    "jax-privacy", "diffprivlib", "cvxpy", "dp-accounting", "pyspark",
)  # fmt: skip
FLAGS: Mapping[Effort, str] = {"quick": " --quick", "usual": "", "all": " --all"}


@dataclass(frozen=True)
class Section:
    """What one section said, and what it cost."""

    name: str
    what: str
    text: str
    seconds: float
    cpu_seconds: float
    is_done: bool


def run_section(name: str, what: str, effort: Effort) -> Section:
    """Run a section in its own process; its lines are shown as they come."""
    command = [sys.executable, "-m", "bench", name, *FLAGS[effort].split()]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    lines: list[str] = []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = time.perf_counter() - start
    return Section(name, what, "".join(lines), took, spent, process.returncode == 0)


def machine() -> list[tuple[str, str]]:
    """What the figures were measured on: kind of processor, cores, memory, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = [
        ("sfumato", f"{_version('sfumato')}, {_commit()}"),
        ("processor", _processor()),
        ("cores", str(cores)),
        ("memory", f"{memory:.0f} GiB"),
        ("system", f"{platform.system()}, {platform.machine()}"),
        ("Python", platform.python_version()),
    ]
    return found + [(name, _version(name)) for name in PACKAGES]


def conditions() -> list[tuple[str, str]]:
    """When a run begins, and how many processes of others wait for a core then."""
    begun = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    busy = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return [("begun", begun), ("load of the machine before it", busy)]


def written(
    sections: Sequence[Section],
    effort: Effort,
    begun: Sequence[tuple[str, str]] = (),
    folder: Path = RESULTS,
) -> Path:
    """All sections as ``report.md``, with the pictures that they drew."""
    folder.mkdir(exist_ok=True)
    flag = FLAGS[effort]
    make = f"make bench ARGS={flag.strip()}" if flag else "make bench"
    parts = [
        "# Benchmarks of sfumato\n",
        f"To make this report again: `{make}`; one section alone: "
        f"`.venv/bin/python -m bench SECTION{flag}`. The figures, discussed: "
        "[benchmarks](../../docs/benchmarks.md). Rows marked *file* or *elsewhere*, and peers "
        "under *figures in bench/peers*, are figures of others from `bench/peers/`, measured on "
        "another machine; all else was run here. CPU seconds are those of all cores.\n",
        _rows(("on", ""), [*begun, *machine()]),
        _rows(("section", "what is compared", "seconds", "CPU s", ""), _spent(sections)),
    ]
    parts += [
        f"## {s.name}\n\n{_how(s.name)}\n\n{_with_pictures(s.text, folder)}\n" for s in sections
    ]
    path = folder / "report.md"
    path.write_text("\n".join(parts))
    return path


def _spent(sections: Sequence[Section]) -> list[tuple[str, ...]]:
    """One line a section, and their sum."""
    lines = [
        (
            f"[{s.name}](#{s.name})",
            s.what,
            f"{s.seconds:.0f}",
            f"{s.cpu_seconds:.0f}",
            "" if s.is_done else "**failed**",
        )
        for s in sections
    ]
    sums = sum(s.seconds for s in sections), sum(s.cpu_seconds for s in sections)
    return [*lines, ("all", "", *(f"{spent:.0f}" for spent in sums), "")]


def _how(name: str) -> str:
    """The docstring of the section's module."""
    path = Path(__file__).parent / f"{name}.py"
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _with_pictures(text: str, folder: Path) -> str:
    """Lines that end with a file of the folder become a picture or a link."""
    lines = []
    for line in text.splitlines():
        path = Path((line.split() or [""])[-1])
        if path.parent == folder and path.is_file():
            mark = "!" if path.suffix == ".png" else ""
            line = f"\n{mark}[{path.name}]({path.name})"
        lines.append(line.rstrip())
    return "\n".join(lines).strip()


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit that was measured, and whether files differed from it."""
    git = ["git", "-C", str(ROOT)]
    try:
        named = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"
    return f"commit {named}" + (", with changes" if changed else "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
