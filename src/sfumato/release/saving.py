# SPDX-License-Identifier: Apache-2.0
"""All files of a release into one folder, all or none.

Everything is written into a hidden folder inside the target first and then moved into place, so a
failure while writing leaves what was there before, and no half-written file.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.release.export import cannot_write, write_parquet
from sfumato.release.provenance import provenance_json

if TYPE_CHECKING:
    from sfumato.release.release import Release

__all__ = ["save_all"]


def save_all(
    release: Release, directory: Path, level: float, synthetic: int | bool
) -> dict[str, Path]:
    """Write the files of a release; their paths by kind."""
    was_there = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".sfumato-", dir=directory))
    except OSError as error:
        raise cannot_write(directory, error) from None
    try:
        try:
            written = _write(release, hidden, level, synthetic)
            for path in written.values():
                path.replace(directory / path.name)
        except OSError as error:
            raise cannot_write(directory, error) from None
    except BaseException:
        shutil.rmtree(hidden if was_there else directory, ignore_errors=True)
        raise
    hidden.rmdir()
    return {kind: directory / path.name for kind, path in written.items()}


def _write(release: Release, folder: Path, level: float, synthetic: int | bool) -> dict[str, Path]:
    from sfumato.release.report import report_html

    paths = {
        "answers": folder / "answers.parquet",
        "provenance": folder / "provenance.json",
        "report": folder / "report.html",
    }
    write_parquet(release.listed, release.provenance, level, paths["answers"])
    paths["provenance"].write_text(provenance_json(release.provenance) + "\n", encoding="utf-8")
    paths["report"].write_text(report_html(release, level), encoding="utf-8")
    if synthetic is not False:
        import pyarrow as pa
        from pyarrow import parquet

        records = release.synthetic(None if synthetic is True else synthetic)
        table = pa.Table.from_pandas(records, preserve_index=False)
        paths["synthetic"] = folder / "synthetic.parquet"
        parquet.write_table(table, paths["synthetic"], compression="zstd")
    return paths
