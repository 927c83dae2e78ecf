# SPDX-License-Identifier: Apache-2.0
"""What a person sees when something goes wrong: one message, never a value of the data.

Errors that sfumato raises on purpose are written for people and hold public things only. The
message of any other exception may quote a value of the data (engines like to), so it is not
shown: only its type and the place in the code are, both of which depend on the code alone.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from sfumato.errors import SfumatoError

__all__ = [
    "FRAMES",
    "INTERRUPTED",
    "guarded",
    "place_of",
]


INTERRUPTED: Final = 130
"""The exit code of an interrupted command, as shells have it."""

FRAMES: Final = "SFUMATO_FRAMES"
"""Environment variable: if set, unexpected errors also list the lines of code they passed."""


@contextmanager
def guarded() -> Iterator[None]:
    """Turn exceptions into a message on standard error and an exit code."""
    try:
        yield
    except SfumatoError as error:
        _leave(str(error), 2)
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except MemoryError:
        _leave(
            "there is not enough memory for this; ask for fewer or coarser queries, or use a "
            "machine with more",
            2,
        )
    except Exception as error:
        _leave(_unexpected(error), 1)


def _leave(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"sfumato: {message}\n")
    raise SystemExit(code) from None


def _unexpected(error: Exception) -> str:
    """The type and the place of an error, without its message and without local variables."""
    places = list(_places(error.__traceback__))
    lines = [
        f"unexpected {type(error).__name__} at {place_of(error)}",
        "This should not happen; please report it. The message of the error is not shown because "
        "it could hold a value of the data.",
    ]
    if os.environ.get(FRAMES):
        lines += [f"  {place}" for place in places]
    else:
        lines.append(f"Set {FRAMES}=1 to list the lines of code that led here.")
    return "\n".join(lines)


def place_of(error: Exception) -> str:
    """The line of code that raised an error, without its message and without local variables."""
    return next(iter([*_places(error.__traceback__)][::-1]), "an unknown place")


def _places(trace: TracebackType | None) -> Iterator[str]:
    for frame in traceback.extract_tb(trace):
        path = Path(frame.filename)
        parts = path.parts
        # A path below the package or the environment; the folders above it say nothing.
        for root in ("site-packages", "src"):
            if root in parts:
                path = Path(*parts[parts.index(root) + 1 :])
                break
        else:
            path = Path(path.name)
        yield f"{path}, line {frame.lineno}, in {frame.name}"
