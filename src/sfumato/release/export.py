# SPDX-License-Identifier: Apache-2.0
"""Answers as files: Arrow, Parquet and CSV, each complete or not there at all.

One long table: group, query in words, one labelled column per attribute (null where a group does
not ask about it), numbers, and beside them, if wanted, their shares of a public number of records.
It is made and written some rows at a time, so that a file may be larger than what fits in memory.

`write_notebook` writes a notebook that makes the plan again from its spec and reads what was
released: plain JSON (nbformat 4.5), so that writing it needs no notebook software. Running it
touches no data and spends nothing: the plan is public arithmetic, and the answers are those already
released.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import SfumatoError
from sfumato.release.answers import (
    Group,
    key_term,
    named_groups,
    number_parts,
    parts_of,
    share_columns,
    shares_of,
)
from sfumato.release.estimates import Estimates
from sfumato.release.labels import LabelAxis, Labels, axes_of, label_text, places_along, title_of
from sfumato.release.provenance import provenance_json
from sfumato.release.release_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "METADATA_KEY",
    "arrow_table",
    "arrow_tables",
    "checked_path",
    "replaced",
    "write_csv",
    "write_notebook",
    "write_parquet",
    "write_table_csv",
]

METADATA_KEY = b"sfumato"


def arrow_tables(
    estimates: Estimates, provenance: Mapping[str, object], level: float, records: int | None = None
) -> Iterator[pa.Table]:
    """The long table in parts of at most ``rows_at_once`` rows, all with one schema.

    ``records`` is the public number of records of which shares stand beside the numbers.
    """
    workload = estimates.workload
    schema = _schema(estimates, provenance, records)
    for group, name in named_groups(workload).items():
        labels = _GroupLabels.of(workload, group, name, schema, _shares(estimates, records))
        rows = parts_of(labels.rows, LIMITS.rows_at_once)
        numbers = number_parts(estimates, group, level, LIMITS.rows_at_once)
        for part, columns in zip(rows, numbers, strict=True):
            shares = () if records is None else shares_of(group, columns, records)
            yield labels.table(part, (*columns, *shares))


def arrow_table(
    estimates: Estimates, provenance: Mapping[str, object], level: float, records: int | None = None
) -> pa.Table:
    """The long table in memory."""
    import pyarrow as pa

    parts = arrow_tables(estimates, provenance, level, records)
    return pa.concat_tables(parts).unify_dictionaries()


def write_parquet(
    estimates: Estimates,
    provenance: Mapping[str, object],
    level: float,
    path: Path,
    records: int | None = None,
) -> None:
    """The long table as one Parquet file, with the provenance record in its metadata."""
    schema = _schema(estimates, provenance, records)
    _write_parts(arrow_tables(estimates, provenance, level, records), schema, path)


def _write_parts(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        held: list[pa.Table] = []
        for part in parts:
            held.append(part)
            # Small groups are gathered into row groups of a fair size.
            if sum(p.num_rows for p in held) >= LIMITS.row_group:
                writer.write_table(pa.concat_tables(held), row_group_size=LIMITS.row_group)
                held = []
        if held:
            writer.write_table(pa.concat_tables(held), row_group_size=LIMITS.row_group)


def write_csv(
    estimates: Estimates,
    provenance: Mapping[str, object],
    level: float,
    path: Path,
    records: int | None = None,
) -> None:
    """The long table as CSV; texts that a spreadsheet would run as a formula get a ``'`` first."""
    schema = _schema(estimates, provenance, records)
    _write_csv_parts(arrow_tables(estimates, provenance, level, records), schema, path)


def write_table_csv(table: pa.Table, path: Path) -> None:
    """A table as CSV, texts as harmless as those of `write_csv`."""
    _write_csv_parts([table], table.schema, path)


def _write_csv_parts(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv

    texts = [pa.types.is_dictionary(f.type) or pa.types.is_string(f.type) for f in schema]
    safe = pa.schema(
        [
            pa.field(_harmless_text(f.name), pa.string() if is_text else f.type)
            for f, is_text in zip(schema, texts, strict=True)
        ]
    )
    with csv.CSVWriter(path, safe) as writer:
        for part in parts:
            columns = [
                _harmless(column.cast(pa.string())) if is_text else column
                for column, is_text in zip(part.columns, texts, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=safe))


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place when the block ends well."""
    target = checked_path(path)
    temporary = target.with_name(f".sfumato-{secrets.token_hex(8)}")
    try:
        temporary.open("xb").close()  # the usual permissions, unlike those of tempfile
    except OSError as error:
        raise cannot_write(target, error) from None
    try:
        try:
            yield temporary
            temporary.replace(target)
        except OSError as error:
            raise cannot_write(target, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def checked_path(path: object) -> Path:
    """The path, if it is one."""
    if not isinstance(path, str | PathLike):
        raise SfumatoError(f"the path to write to must be a text or a path, got {shown(path)}")
    return Path(path)


def cannot_write(path: Path, error: OSError) -> SfumatoError:
    """One clear message for a file that could not be written."""
    return SfumatoError(
        f"cannot write {path}: {error.strerror or error}; choose a folder that exists and that "
        "you may write to"
    )


def _shares(estimates: Estimates, records: int | None) -> tuple[str, ...]:
    """The columns of shares, if there are any."""
    return () if records is None else share_columns(estimates.numbers)


def _label_columns(
    workload: Workload, group: Group, shares: Collection[str]
) -> Iterator[tuple[int, str, Labels]]:
    """Axis, title and labels of the columns of a group, no title that of a column of shares."""
    for i, axis in enumerate(axes_of(key_term(workload, group))):
        for name, labels in axis.columns:
            yield i, title_of(name, workload.domain, shares), labels


def _schema(
    estimates: Estimates, provenance: Mapping[str, object], records: int | None
) -> pa.Schema:
    """Attribute columns hold numbers or times where all their labels are, else texts."""
    import pyarrow as pa

    workload, shares = estimates.workload, _shares(estimates, records)
    kinds: dict[str, set[str]] = {}
    for group in named_groups(workload):
        for _, name, labels in _label_columns(workload, group, shares):
            kinds.setdefault(name, set()).add(labels.dtype.kind)
    text = pa.dictionary(pa.int32(), pa.string())
    typed = {
        frozenset("i"): pa.int64(),
        frozenset("f"): pa.float64(),
        frozenset("if"): pa.float64(),
        frozenset("b"): pa.bool_(),
        frozenset("M"): pa.timestamp("us"),
    }
    fields = [pa.field("group", text), pa.field("query", pa.string())]
    fields += [
        pa.field(name, typed.get(frozenset(letters), text)) for name, letters in kinds.items()
    ]
    fields += [pa.field(name, pa.float64()) for name in (*estimates.numbers, *shares)]
    return pa.schema(fields, metadata={METADATA_KEY: provenance_json(provenance).encode()})


@dataclass(frozen=True, eq=False)
class _GroupLabels:
    """What stands beside the numbers of a group: texts are kept once per axis, not per row."""

    rows: int
    name: str
    axes: tuple[LabelAxis, ...]
    texts: tuple[pa.Array, ...]
    columns: tuple[tuple[int, str, pa.Array], ...]  # axis, name, labels along the axis
    schema: pa.Schema

    @classmethod
    def of(
        cls, workload: Workload, group: Group, name: str, schema: pa.Schema, shares: Collection[str]
    ) -> _GroupLabels:
        import pyarrow as pa

        term = key_term(workload, group)
        axes = axes_of(term)
        columns = []
        for i, column, labels in _label_columns(workload, group, shares):
            kind = schema.field(column).type
            if pa.types.is_dictionary(kind):
                words = [label_text(v) for v in labels.tolist()]
                along = pa.array(words, pa.string()).dictionary_encode()
            else:
                along = pa.array(labels, kind)
            columns.append((i, column, along))
        texts = tuple(pa.array(axis.texts, pa.string()) for axis in axes)
        return cls(term.rows, name, axes, texts, tuple(columns), schema)

    def table(self, rows: slice, numbers: Sequence[Array]) -> pa.Table:
        """Some rows under the schema, whose last columns are the numbers."""
        import pyarrow as pa

        count = len(numbers[0])
        shape = [axis.rows for axis in self.axes]
        places = [pa.array(places_along(shape, i, rows)) for i in range(len(shape))]
        columns: dict[str, pa.Array] = {
            column: pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
            for column, values in zip(self.schema.names[-len(numbers) :], numbers, strict=True)
        }
        codes = pa.array(np.zeros(count, dtype=np.int32))
        columns["group"] = pa.DictionaryArray.from_arrays(codes, pa.array([self.name], pa.string()))
        columns["query"] = self._queries(places, count)
        columns |= {column: along.take(places[i]) for i, column, along in self.columns}
        absent = (f for f in self.schema if f.name not in columns)
        columns |= {f.name: pa.nulls(count, f.type) for f in absent}
        return pa.Table.from_arrays([columns[f.name] for f in self.schema], schema=self.schema)

    def _queries(self, places: Sequence[pa.Array], count: int) -> pa.Array:
        """As `labels.texts_of` has it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.texts:
            return pa.array(["everything"] * count, pa.string())
        taken = [text.take(at) for text, at in zip(self.texts, places, strict=True)]
        return pc.binary_join_element_wise(*taken, ", ")


def _harmless(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    is_formula = pc.match_substring_regex(texts, r"^[=+\-@\t\r]")
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def _harmless_text(text: str) -> str:
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text


_CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        "# Private answers\n\nThe first half makes the plan again from its spec. It reads no data "
        "and spends nothing. The second half reads the answers that were released.",
    ),
    (
        "code",
        "import json\nfrom pathlib import Path\n\nimport pandas as pd\n\n"
        "from sfumato.cli.spec import read_spec\n"
        "from sfumato.release.charts import candidates_chart, interval_bars\n\n"
        "SPEC = Path({spec})\nRELEASED = Path({directory})",
    ),
    (
        "markdown",
        "## The plan\n\nWhat is asked, how it is asked, and how large the errors will be.",
    ),
    ("code", "plan = read_spec(SPEC).plan()\nplan"),
    (
        "code",
        "forecast = pd.DataFrame(\n"
        "    [(g.name, g.queries, g.rmse, g.largest) for g in plan.groups],\n"
        '    columns=["group", "answers", "typical error", "largest error"],\n'
        ")\nforecast",
    ),
    ("markdown", "Every mechanism that fits, with its forecast; the least error was chosen."),
    ("code", "candidates_chart(plan.candidates)"),
    ("markdown", "## The release"),
    (
        "code",
        'provenance = json.loads((RELEASED / "provenance.json").read_text(encoding="utf-8"))\n'
        'print(provenance["guarantee"])\n'
        'print("mechanism:", provenance["mechanism"])\n'
        'same = provenance["workload_sha256"] == plan.workload.digest()\n'
        'print("released with this spec:", "yes" if same else "no, the spec has changed since")',
    ),
    ("code", 'answers = pd.read_parquet(RELEASED / "answers.parquet")\nanswers.head(10)'),
    (
        "markdown",
        "The first answers with their intervals. An interval holds the true number with the "
        "probability that was asked for, 95% unless the spec says otherwise.",
    ),
    (
        "code",
        'first = answers["group"].iloc[0]\n'
        'shown = answers[answers["group"] == first].head(30)\n'
        'interval_bars(shown, "query", is_upright=False)',
    ),
    ("markdown", "What was forecast beside what was released: the standard errors agree."),
    (
        "code",
        'released = answers.groupby("group", observed=True, sort=False)["standard_error"].agg(\n'
        "    lambda errors: (errors**2).mean() ** 0.5\n"
        ")\n"
        'forecast.set_index("group").assign(released=released)',
    ),
)


def write_notebook(path: str | Path, spec_path: str | Path, release_directory: str | Path) -> None:
    """Write a notebook for a spec file and the folder where its release was saved.

    Both are put into it as given; relative ones are read from the folder it is run in.
    """
    spec, directory = _literal(spec_path), _literal(release_directory)
    cells = [
        _cell(number, kind, text.replace("{spec}", spec).replace("{directory}", directory))
        for number, (kind, text) in enumerate(_CELLS)
    ]
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def _literal(path: str | Path) -> str:
    """A path as a Python text, with slashes that every system reads."""
    return repr(Path(path).as_posix())


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {
        "cell_type": kind,
        "id": f"cell-{number:02d}",
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}
