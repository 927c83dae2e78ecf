# SPDX-License-Identifier: Apache-2.0
"""How much a search may compute, counted in steps, and searches that were made before.

A plan is a function of what is asked: solvers count the multiplications they make (``spend``) and
ask between steps whether to return what they have proved so far (``must_stop``). The limit is a
number of multiplications, the same on every machine under any load. Every mechanism of a plan has
the same limit for itself, so that its strategy does not depend on which others were tried before.
Only where somebody asks for it (``seconds`` of a plan) a clock is read as well: the CPU time of the
thread, which runs no faster under load. What it stopped says so (``Effort.is_late``).

A finished search can be kept in a file: its whole result, found again for the same search only (the
same workload, parameters and versions), and what is read is proved anew at the weights it names. So
a plan is the same with and without the file, and a damaged or foreign one costs time and nothing
else. A search that a clock stopped is not kept. Plans are public: the files hold nothing private.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import thread_time
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
from threadpoolctl import ThreadpoolController

from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array

__all__ = [
    "ADDED_UP",
    "EIGEN",
    "STEPS_PER_SECOND",
    "Effort",
    "Searched",
    "cache_folder",
    "current",
    "deadline",
    "effort",
    "must_stop",
    "one_thread",
    "portion",
    "spend",
    "stop_in_time",
]


@lru_cache
def _linear_algebra() -> ThreadpoolController:
    """The libraries of linear algebra, looked for once: that takes longer than most forecasts."""
    import scipy.linalg  # noqa: F401  it has its own

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra on one thread: several wait for each other on matrices of a few hundred rows.

    Twenty times the CPU time on two busy cores, and sums in another order for another number.
    """
    with _linear_algebra().limit(limits=1, user_api="blas"):
        yield


FOLDER = "SFUMATO_CACHE"  # the environment variable: a folder, or "off"
FORMAT = 2  # of the files: searches of another one are not found
STEPS_PER_SECOND = 2.5e10  # multiplications that one core makes in large products of matrices
EIGEN = 8  # multiplications of an eigenvalue problem of size n, in n^3
ADDED_UP = 32.0  # multiplications in the time of one number that is read and added up
OVERHEAD = 2.0**17  # multiplications that any step costs besides
SEARCH = re.compile(r"[a-z][1-9][0-9]{0,8}")  # the names of searches


class Searched(NamedTuple):
    """A finished search: its weights, those of its lower bound, and its numbers.

    ``digest`` identifies the search; ``numbers`` are whatever the solver needs besides the weights,
    the multiplications it made last.
    """

    digest: bytes
    best: Array
    bound: Array
    numbers: Array


@dataclass
class Effort:
    """What the searches of one mechanism share; searches are numbered as they happen.

    ``until`` is a CPU time of the thread, or infinite: then no clock is read. ``steps`` is the
    number of multiplications after which searches return what they have, ``spent`` those made.
    """

    until: float = inf
    steps: float = inf
    watch: Callable[[str], None] | None = None
    remembered: dict[str, Array] = field(default_factory=dict)
    results: dict[str, Array] = field(default_factory=dict)
    searches: int = 0
    spent: float = 0.0
    is_late: bool = False

    def tell(self, gap: float) -> None:
        """Say how far the search has come: its error is within ``gap`` of the least possible."""
        if self.watch is not None:
            self.watch("" if gap > 1 else f"within {gap:.2g} of the least error")

    def must_stop(self) -> bool:
        """Whether a search should return what it has; notes whether a clock says so."""
        if self.until < inf and thread_time() > self.until:
            self.is_late = True
        return self.is_late or self.spent > self.steps

    def next_search(self) -> int:
        """The number of the search that starts now."""
        self.searches += 1
        return self.searches

    def recall(self, search: int, digest: bytes, size: int) -> Searched | None:
        """The stored result of this very search, to be proved anew; None if there is none."""
        parts = [self.remembered.get(f"{letter}{search}") for letter in "abvn"]
        if any(p is None or p.ndim != 1 for p in parts):
            return None
        key, bound, best, numbers = (np.asarray(p) for p in parts)
        if key.dtype != np.uint8 or key.tobytes() != digest:
            return None
        if numbers.dtype != np.float64 or not bool(np.isfinite(numbers).all()):
            return None
        for weights in (bound, best):
            if weights.shape != (size,) or weights.dtype != np.float64:
                return None
            # Far from the ends of the range of floats: no solver ends there, and all would fail.
            if not bool(
                (
                    (weights > 1 / LIMITS.stored_weight_maximum)
                    & (weights < LIMITS.stored_weight_maximum)
                ).all()
            ):
                return None
        return Searched(digest, best, bound, numbers)

    def keep(self, search: int, result: Searched) -> None:
        """Store the result of a search that came to its own end, if it was long."""
        if self.is_late or result.numbers[-1] < LIMITS.stored_search_minimum:
            return
        self.results |= {
            f"a{search}": np.frombuffer(result.digest, dtype=np.uint8),
            f"b{search}": result.bound,
            f"v{search}": result.best,
            f"n{search}": result.numbers,
        }


_EFFORT: ContextVar[Effort | None] = ContextVar("effort", default=None)


def current() -> Effort:
    """The effort of the plan that is being made; one without limit and memory outside of any."""
    return _EFFORT.get() or Effort()


def spend(multiplications: float) -> None:
    """Count what a step has computed."""
    running = _EFFORT.get()
    if running is not None:
        running.spent += multiplications + OVERHEAD


def must_stop() -> bool:
    """Whether a search should return what it has."""
    running = _EFFORT.get()
    return running is not None and running.must_stop()


def stop_in_time(_: Array) -> None:
    """A callback that ends a search of scipy, which then returns its best point so far."""
    if must_stop():
        raise StopIteration


@contextmanager
def effort(
    key: str,
    until: float = inf,
    folder: Path | None = None,
    watch: Callable[[str], None] | None = None,
    steps: float = LIMITS.search_multiplications,
) -> Iterator[Effort]:
    """Count the steps of the searches inside, stop them, and recall those stored under ``key``."""
    file = None if folder is None else folder / f"{_of_these_versions(f'{key}|{steps}')}.npz"
    made = Effort(until, steps, watch, {} if file is None else _read(file))
    outer = _EFFORT.get()
    token = _EFFORT.set(made)
    try:
        yield made
    finally:
        _EFFORT.reset(token)
        if outer is not None:
            outer.spent += made.spent
    if file is not None and made.results:
        with suppress(OSError):  # a cache that cannot be written is no cache
            _write(file, {**made.remembered, **made.results})


@contextmanager
def portion(steps: float) -> Iterator[None]:
    """Let the searches inside make at most so many multiplications of those that are left."""
    running = _EFFORT.get() or Effort()
    before = running.steps
    running.steps = min(before, running.spent + steps)
    try:
        yield
    finally:
        running.steps = before


def deadline(seconds: float | None) -> float:
    """The CPU time of the thread in so many seconds; infinite, and no clock is read, without."""
    return inf if seconds is None or seconds == inf else thread_time() + seconds


def _of_these_versions(key: str) -> str:
    return hashlib.sha256(f"{key}|{_versions()}".encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _versions() -> str:
    """What a search depends on besides its workload: another program may end elsewhere."""
    from importlib.metadata import version

    from sfumato.version import VERSION

    return f"{FORMAT}|{VERSION}|{np.__version__}|{version('scipy')}|{platform.machine()}"


def cache_folder() -> Path | None:
    """Where plans are remembered: ``SFUMATO_CACHE``, else the user's cache folder; None if off."""
    setting = os.environ.get(FOLDER)
    if setting is not None:
        return (
            None if setting.strip().lower() in ("", "off", "0", "no") else Path(setting) / "plans"
        )
    base = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # no home folder
        return (Path(base) if base else Path.home() / ".cache") / "sfumato" / "plans"
    return None


def _read(file: Path) -> dict[str, Array]:
    """The arrays of a stored file; none if anything is wrong with it."""
    try:
        with ZipFile(file) as packed:
            if sum(part.file_size for part in packed.infolist()) > LIMITS.stored_search_bytes:
                return {}
        with np.load(file, allow_pickle=False) as stored:
            names = [name for name in stored.files if SEARCH.fullmatch(name)]
            return {name: stored[name] for name in names}
    except Exception:  # a foreign file may break anything on the way
        return {}


def _write(file: Path, arrays: dict[str, Array]) -> None:
    """Write the file whole or not at all; the oldest files make room."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
        try:
            np.savez(part, **arrays)  # type: ignore[arg-type]
        except OSError:
            Path(part.name).unlink(missing_ok=True)
            raise
    Path(part.name).replace(file)
    newest_first = sorted(file.parent.glob("*.npz"), key=lambda f: f.stat().st_mtime, reverse=True)
    total = 0
    for old in newest_first:
        total += old.stat().st_size
        if total > LIMITS.stored_search_bytes and old != file:
            old.unlink(missing_ok=True)
