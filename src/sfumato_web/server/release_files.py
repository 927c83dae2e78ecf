# SPDX-License-Identifier: Apache-2.0
"""The files of a release that was made before: written once, all of them together.

``file_of`` returns one file, from what the ledger keeps of the release; nothing is spent, and no
row is read. What was written is held in memory beside the stored answers, within ``kept_bytes``,
so that the second file of a release takes no time.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from sfumato_web.server.problems import Problem

if TYPE_CHECKING:
    from sfumato.release.release import Release
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.models import ReleaseAsked

__all__ = [
    "FILES",
    "file_of",
    "opened",
]


FILES: Final = {
    "answers.parquet": ("answers", "application/vnd.apache.parquet", "all answers"),
    "answers.csv": ("answers_csv", "text/csv", "all answers"),
    "synthetic.parquet": ("synthetic", "application/vnd.apache.parquet", "made-up records"),
    "report.html": ("report", "text/html", "to read and send around"),
    "provenance.json": ("provenance", "application/json", "how it was made"),
}
"""Name: the kind of a saved release, its media type, what it is for."""


def opened(dataset: GuardedDataset, key: str) -> tuple[ReleaseAsked, Release]:
    """The request and the release of a key; refused if there is none."""
    release = dataset.released(key)
    if release is None:
        raise Problem(404, "not-found", "no release has this key; the list of releases has yours")
    return release


def file_of(dataset: GuardedDataset, key: str, file: str) -> bytes:
    """One file of a release; all of it is public."""
    if file not in FILES:
        raise Problem(404, "not-found", f"there is no such file; there are {', '.join(FILES)}")
    held = dataset.store.recent(dataset.name, _place(key, file))
    if held is not None:
        return held
    return _written(dataset, key, has_records=FILES[file][0] == "synthetic")[file]


def _written(dataset: GuardedDataset, key: str, *, has_records: bool) -> dict[str, bytes]:
    """All files of a release, in a folder that is gone afterwards; made-up records where wanted."""
    request, result = opened(dataset, key)
    files = {}
    with TemporaryDirectory(prefix="sfumato-") as folder:
        shares = request.shares and bool(result.rows)
        paths = result.save(
            folder, level=request.level, shares=shares, csv=True, synthetic=has_records
        )
        for file, (kind, _, _) in FILES.items():
            if kind in paths:
                data = paths[kind].read_bytes()
                files[file] = dataset.store.remember(dataset.name, _place(key, file), data)
    return files


def _place(key: str, file: str) -> str:
    return f"file {key} {file}"
