# SPDX-License-Identifier: Apache-2.0
"""How long a search may take, and where it may start: a time limit and remembered optima.

Solvers ask ``time_is_up`` between steps and return what they have proved so far. They also ask
for a start: the weights that an earlier plan of the same workload ended with. A remembered start
is never trusted, only tried first: the solver proves its certificate anew, so a damaged or
foreign file costs time and nothing else. Plans are public, so the files hold nothing private.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic
from zipfile import ZipFile

import numpy as np

from sfumato.workload.queries import Array

__all__ = ["Effort", "cache_folder", "current", "effort", "time_is_up"]

FOLDER = "SFUMATO_CACHE"  # the environment variable: a folder, or "off"
WORTH = 0.05  # seconds: a search that took less is not written down
LARGEST_FOLDER = 2**29  # bytes of remembered optima that are kept
EXTREME = 1e60  # remembered weights lie between its inverse and it
SEARCH = re.compile(r"v[1-9][0-9]{0,8}")  # the names of searches


@dataclass
class Effort:
    """What the searches of one plan share; searches are numbered in the order they happen."""

    until: float = inf
    watch: Callable[[str], None] | None = None
    remembered: dict[str, Array] = field(default_factory=dict)
    found: dict[str, Array] = field(default_factory=dict)
    searches: int = 0

    def tell(self, gap: float) -> None:
        """Say how far the search has come: its error is within ``gap`` of the least possible."""
        if self.watch is not None:
            self.watch("" if gap > 1 else f"within {gap:.2g} of the least error")

    def next_search(self) -> str:
        """The name of the search that starts now."""
        self.searches += 1
        return f"v{self.searches}"

    def start(self, search: str, size: int) -> Array | None:
        """Remembered positive weights of the right size, or None."""
        v = self.remembered.get(search)
        if v is None or v.shape != (size,) or v.dtype != np.float64:
            return None
        # Far from the ends of the range of floats: no solver ends there, and all would fail.
        return v if bool(((v > 1 / EXTREME) & (v < EXTREME)).all()) else None

    def keep(self, search: str, v: Array, seconds: float) -> None:
        """Remember where a search ended, if it was long."""
        if seconds >= WORTH:
            self.found[search] = v


_EFFORT: ContextVar[Effort | None] = ContextVar("effort", default=None)


def current() -> Effort:
    """The effort of the plan that is being made; one without limit and memory outside of any."""
    return _EFFORT.get() or Effort()


def time_is_up() -> bool:
    """Whether a search should return what it has."""
    known = _EFFORT.get()
    return known is not None and monotonic() > known.until


@contextmanager
def effort(
    key: str,
    until: float = inf,
    folder: Path | None = None,
    watch: Callable[[str], None] | None = None,
) -> Iterator[Effort]:
    """Let searches stop at ``until`` (a monotonic time) and start where ``key`` ended before."""
    file = None if folder is None else folder / f"{key}.npz"
    made = Effort(until, watch, {} if file is None else _read(file))
    token = _EFFORT.set(made)
    try:
        yield made
    finally:
        _EFFORT.reset(token)
    if file is not None and made.found:
        with suppress(OSError):  # a cache that cannot be written is no cache
            _write(file, {**made.remembered, **made.found})


def cache_folder() -> Path | None:
    """Where plans are remembered: ``SFUMATO_CACHE``, else the user's cache folder; None if off."""
    told = os.environ.get(FOLDER)
    if told is not None:
        return None if told.strip().lower() in ("", "off", "0", "no") else Path(told) / "plans"
    base = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # no home folder
        return (Path(base) if base else Path.home() / ".cache") / "sfumato" / "plans"
    return None


def _read(file: Path) -> dict[str, Array]:
    """The arrays of a file, if it is one of ours; whatever is wrong with it, nothing."""
    try:
        with ZipFile(file) as packed:
            if sum(part.file_size for part in packed.infolist()) > LARGEST_FOLDER:
                return {}
        with np.load(file, allow_pickle=False) as stored:
            known = [name for name in stored.files if SEARCH.fullmatch(name)]
            return {name: stored[name] for name in known}
    except Exception:  # a foreign file may break anything on the way
        return {}


def _write(file: Path, arrays: dict[str, Array]) -> None:
    """Whole or not at all; the oldest files make room."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
        try:
            np.savez(part, **arrays)  # type: ignore[arg-type]
        except OSError:
            Path(part.name).unlink(missing_ok=True)
            raise
    Path(part.name).replace(file)
    kept = sorted(file.parent.glob("*.npz"), key=lambda f: f.stat().st_mtime, reverse=True)
    total = 0
    for old in kept:
        total += old.stat().st_size
        if total > LARGEST_FOLDER and old != file:
            old.unlink(missing_ok=True)
