# SPDX-License-Identifier: Apache-2.0
"""Files appear whole or not at all: written beside their place, then moved into it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.errors import SfumatoError

__all__ = [
    "check_folder",
    "filled_folder",
    "write_text",
]


def write_text(path: Path, text: str) -> None:
    """Write a text file; an interrupted write leaves nothing behind."""
    check_folder(path.parent)
    with filled_folder(path.parent) as staging:
        (staging / path.name).write_text(text, encoding="utf-8")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is spent on filling it."""
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise SfumatoError(f"{nearest} is a file, so {folder} cannot be a folder; name another one")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"{nearest} cannot be written to ({reason}); name another folder or change its rights"
        ) from None


@contextmanager
def filled_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write to; at the end all its files move into ``folder`` together."""
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
    staging = Path(tempfile.mkdtemp(prefix=".sfumato-", dir=nearest))
    try:
        yield staging
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(staging.iterdir()):
            path.replace(folder / path.name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"the files could not be written to {folder} ({reason}); make room or name another "
            "folder, then run this again (a release that is in a ledger costs nothing again)"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
