# SPDX-License-Identifier: Apache-2.0
"""All files of a release into one folder, all or none.

Everything is written into a hidden folder inside the target first and then moved into place, so a
failure while writing leaves what was there before, and no half-written file. A folder holds one
release: another one takes its place.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.release.export import cannot_write, write_csv, write_parquet, write_table_csv
from sfumato.release.provenance import BLOCKS_FILE, GROUPS_FILE, full_lists, provenance_json

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.release.release import Release

__all__ = [
    "save_all",
    "saved_together",
    "write_record",
    "write_records",
]


RECORD: Final = "provenance.json"
COMPANIONS: Final = frozenset(
    {"answers.csv", "synthetic.parquet", "synthetic.csv", BLOCKS_FILE, GROUPS_FILE}
)
"""Files that only some releases have: those of an earlier one do not stay beside another's."""


def save_all(
    release: Release, directory: Path, level: float, synthetic: int | bool, csv: bool
) -> dict[str, Path]:
    """Write the files of a release; their paths by kind."""
    return saved_together(directory, lambda folder: _write(release, folder, level, synthetic, csv))


def saved_together(directory: Path, write: Callable[[Path], dict[str, Path]]) -> dict[str, Path]:
    """The files that ``write`` makes in an empty folder, moved into ``directory``, all or none."""
    was_there = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".sfumato-", dir=directory))
    except OSError as error:
        raise cannot_write(directory, error) from None
    try:
        try:
            written = write(hidden)
            if _holds_another(directory, hidden):
                for name in COMPANIONS - {path.name for path in written.values()}:
                    (directory / name).unlink(missing_ok=True)
            for path in written.values():
                path.replace(directory / path.name)
        except OSError as error:
            raise cannot_write(directory, error) from None
    except BaseException:
        shutil.rmtree(hidden if was_there else directory, ignore_errors=True)
        raise
    hidden.rmdir()
    return {kind: directory / path.name for kind, path in written.items()}


def _holds_another(directory: Path, new: Path) -> bool:
    """Whether the folder has the record of a release that is not the one to be moved into it."""
    try:
        records = [json.loads((d / RECORD).read_text(encoding="utf-8")) for d in (directory, new)]
    except (OSError, ValueError):
        return False
    old, fresh = ({**r, "created": None} if isinstance(r, dict) else r for r in records)
    return bool(old != fresh)


def write_record(provenance: Mapping[str, object], folder: Path) -> Path:
    """``provenance.json`` of a release."""
    path = folder / RECORD
    path.write_text(provenance_json(provenance) + "\n", encoding="utf-8")
    return path


def write_records(records: pd.DataFrame, folder: Path, csv: bool = False) -> dict[str, Path]:
    """``synthetic.parquet`` of a release, and ``synthetic.csv`` if it is wanted."""
    import pyarrow as pa
    from pyarrow import parquet

    paths = {"synthetic": folder / "synthetic.parquet"}
    table = pa.Table.from_pandas(records, preserve_index=False)
    parquet.write_table(table, paths["synthetic"], compression="zstd")
    if csv:
        paths["synthetic_csv"] = folder / "synthetic.csv"
        write_table_csv(table, paths["synthetic_csv"])
    return paths


def _write(
    release: Release, folder: Path, level: float, synthetic: int | bool, csv: bool
) -> dict[str, Path]:
    import pyarrow as pa
    from pyarrow import parquet

    from sfumato.release.report import report_html

    paths = {
        "answers": folder / "answers.parquet",
        "provenance": write_record(release.provenance, folder),
        "report": folder / "report.html",
    }
    write_parquet(release.listed, release.provenance, level, paths["answers"])
    paths["report"].write_text(report_html(release, level), encoding="utf-8")
    forecast = release.estimates.forecast
    for name, entries in ({} if forecast is None else full_lists(forecast)).items():
        paths[name.removesuffix(".parquet")] = folder / name
        parquet.write_table(pa.Table.from_pylist(entries), folder / name, compression="zstd")
    if csv:
        paths["answers_csv"] = folder / "answers.csv"
        write_csv(release.listed, release.provenance, level, paths["answers_csv"])
    if synthetic is not False:
        records = release.synthetic(None if synthetic is True else synthetic)
        paths |= write_records(records, folder, csv)
    return paths
