# SPDX-License-Identifier: Apache-2.0
"""Golden files: how values are written, read and compared."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import sfumato as sf

__all__ = ["SECTIONS", "differences", "environment", "made", "plain", "read", "write"]

DATA = Path(__file__).with_name("data")
ROOT = Path(__file__).parents[2]

SECTIONS: dict[str, tuple[str, ...]] = {
    "plans": ("numpy", "scipy", "numba", "arithmetic"),
    "requests": ("numpy", "scipy", "numba", "arithmetic"),
    "releases": ("numpy", "scipy", "numba", "arithmetic", "pandas", "pyarrow"),
    "help": ("typer", "rich"),
    "commands": ("numpy", "scipy", "numba", "arithmetic", "typer", "rich", "pandas"),
    "server": ("numpy", "scipy", "numba", "arithmetic"),
    "openapi": ("fastapi", "pydantic"),
    "imports": (),
}
"""What is frozen, and what besides the package decides how it comes out."""

CLOSE = 1e-9  # relative: numbers are written with 12 digits
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ](?!00:00:00)\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?")
DAY = re.compile(r"20\d\d&#8209;\d\d&#8209;\d\d")  # as reports write it
CLOCK = re.compile(r"\b\d\d:\d\d:\d\d UTC")
CHAIN = re.compile(
    r'\b(hash|head)((?:&quot;|[\s":])+)[0-9a-f]{64}\b'
)  # of records with their times
VARIABLES = {
    "COLUMNS": "100",
    "LINES": "40",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LOGNAME": "somebody",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",  # one order of sums on all processors with AVX2
    "SFUMATO_CACHE": "off",
    "PYTHONWARNINGS": "ignore",
}


def plain(value: object, hide: Mapping[str, str] | None = None) -> object:
    """A value as JSON has it: floats with 12 digits; times and the texts of ``hide`` are hidden."""
    if isinstance(value, Mapping):
        chained = {k: "HASH" for k in ("hash", "head") if isinstance(value.get(k), str)}
        return {str(plain(k, hide)): plain(v, hide) for k, v in {**value, **chained}.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), hide)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(v, hide) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item(), hide)
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes):
        value = value.decode()
    text = str(value) if isinstance(value, str | Fraction | date) else repr(value)
    for hidden, shown in (hide or {}).items():
        text = text.replace(hidden, shown)
    text = DAY.sub("DAY", text)
    text = CHAIN.sub(r"\1\2HASH", CLOCK.sub("TIME", TIME.sub("TIME", text)))
    return text.replace(sf.__version__, "VERSION")


def environment() -> dict[str, str]:
    """The versions and the arithmetic that golden files may depend on."""
    names = {name for needs in SECTIONS.values() for name in needs} - {"arithmetic"}
    # Other packages that a test has loaded may bring a library of their own: not what is measured.
    own = [pool for pool in threadpool_info() if re.search(r"(num|sci)py\.libs", pool["filepath"])]
    kernels = sorted({str(pool.get("architecture", "")) for pool in own})
    return {**{name: version(name) for name in sorted(names)}, "arithmetic": " ".join(kernels)}


def made(*sections: str) -> dict[str, object]:
    """Sections as the package makes them today, and its environment, in a process of their own."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
    source = Path(sf.__file__).parents[1]
    variables = {
        **{name: os.environ[name] for name in kept if name in os.environ},
        **VARIABLES,
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
    }
    command = [sys.executable, "-m", "tests.golden", *sections]
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    contents = json.loads(done.stdout)
    assert isinstance(contents, dict)
    return contents


def read(section: str) -> object:
    """A section as it is stored."""
    return json.loads((DATA / f"{section}.json").read_text())


def write(section: str, content: object) -> None:
    """Store a section."""
    DATA.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    short = re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    (DATA / f"{section}.json").write_text(short + "\n")


def differences(
    expected: object, found: object, at: str = "", projected: float = CLOSE
) -> Iterator[str]:
    """Where two values differ; numbers may by ``CLOSE``, everything else not at all.

    ``projected`` is what numbers of a list named ``value`` may differ by: published answers, which
    a solver moves to consistent ones.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in [*expected, *(n for n in found if n not in expected)]:
            if name not in found or name not in expected:
                yield f"{at}/{name}: {'is gone' if name in expected else 'is new'}"
            else:
                yield from differences(expected[name], found[name], f"{at}/{name}", projected)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{at}[{i}]", projected)
    elif isinstance(expected, float) or isinstance(found, float):
        is_number = all(type(v) in (int, float) for v in (expected, found))
        close = projected if "/value[" in at else CLOSE
        if not is_number or not math.isclose(expected, found, rel_tol=close, abs_tol=1e-12):
            yield f"{at}: {expected!r} became {found!r}"
    elif type(expected) is not type(found) or expected != found:
        yield f"{at}: {expected!r} became {found!r}"
