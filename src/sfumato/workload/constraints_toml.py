# SPDX-License-Identifier: Apache-2.0
"""The table ``[constraints]`` of a TOML file: what everybody knows about the data.

    [constraints]
    impossible = ["age < 15 and married = 'yes'"]

    [[constraints.published]]
    attributes = ["sex"]
    values = [5012, 4988]        # or file = "sex.csv", with the columns sex and count

Faults are reported with the file and the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain import Domain
from sfumato.errors import SfumatoError, WorkloadError
from sfumato.tomlfile import STRICT, KeyPath, TomlFile, validated
from sfumato.wording import did_you_mean, listing, shown
from sfumato.workload.constraints import Constraints
from sfumato.workload.predicates import Condition
from sfumato.workload.queries import Array, check_entries
from sfumato.workload.sql import sql_condition

__all__ = ["constraints_from"]

COUNT = "count"


class _Published(BaseModel):
    model_config = ConfigDict(**STRICT)

    attributes: Annotated[list[str], Field(fail_fast=True)]
    values: object = None
    file: Annotated[str, Field(min_length=1)] | None = None


class _Constraints(BaseModel):
    model_config = ConfigDict(**STRICT)

    impossible: list[str] = Field(default_factory=list, fail_fast=True)
    published: list[_Published] = Field(default_factory=list, fail_fast=True)


def constraints_from(file: TomlFile, domain: Domain) -> Constraints | None:
    """The constraints of a file, None if it has none.

    >>> from sfumato.tomlfile import parse_toml
    >>> file = parse_toml("[constraints]\\nimpossible = ['age < 15 and married = 1']")
    >>> constraints_from(file, Domain({"age": 100, "married": 2}))
    Constraints(1 impossible)
    """
    given = file.data.get("constraints")
    if given is None:
        return None
    top: KeyPath = ("constraints",)
    table = validated(_Constraints, given, file, top)
    conditions: list[Condition] = []
    for i, text in enumerate(table.impossible):
        try:
            conditions.append(sql_condition(domain, text))
            Constraints(domain, conditions)
        except SfumatoError as error:
            raise _located(file, error, (*top, "impossible", i)) from None
    pairs: list[tuple[list[str], object]] = []
    found = Constraints(domain, conditions)
    for i, entry in enumerate(table.published):
        at: KeyPath = (*top, "published", i)
        key = "values" if entry.file is None else "file"
        if (entry.values is None) == (entry.file is None):
            raise file.error("give the counts as values, or the file that holds them", at)
        try:
            domain.in_order(entry.attributes)
        except SfumatoError as error:
            raise _located(file, error, (*at, "attributes")) from None
        try:
            values = entry.values if entry.file is None else _read(file, domain, entry)
            pairs.append((entry.attributes, values))
            found = Constraints(domain, conditions, pairs)
        except SfumatoError as error:
            raise _located(file, error, (*at, key)) from None
    return found


def _located(file: TomlFile, error: SfumatoError, at: KeyPath) -> SfumatoError:
    return type(error)(str(file.error(str(error), at)))


def _read(file: TomlFile, domain: Domain, entry: _Published) -> Array:
    """A CSV file with one line per cell: the label of every attribute, and the count."""
    path = (file.folder or Path()) / str(entry.file)
    names = entry.attributes
    shape = tuple(domain[n].size for n in names)
    check_entries(int(np.prod(shape, dtype=object)), f"the published table {' x '.join(names)}")
    codes = [{str(label): c for c, label in enumerate(domain[n].labels)} for n in names]
    table = np.full(shape, np.nan)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for line, row in enumerate(_rows(stream, path, names), 2):
                cell = tuple(
                    _code(row[n], n, known, path, line)
                    for n, known in zip(names, codes, strict=True)
                )
                if not np.isnan(table[cell]):
                    raise WorkloadError(f"{path}, line {line}: a cell is listed twice")
                table[cell] = _count(row[COUNT], path, line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise WorkloadError(
            f"{path} cannot be read ({why}); it is a CSV file in UTF-8 with the columns "
            f"{listing([*names, COUNT])}"
        ) from None
    missing = int(np.isnan(table).sum())
    if missing:
        raise WorkloadError(
            f"{path} lists {table.size - missing:,} of {table.size:,} cells; give every one, with "
            "a count of 0 where nobody is"
        )
    return table


def _rows(stream: Iterable[str], path: Path, names: list[str]) -> csv.DictReader[str]:
    reader: csv.DictReader[str] = csv.DictReader(stream, strict=True)
    columns = reader.fieldnames or []
    if sorted(columns) != sorted([*names, COUNT]):
        raise WorkloadError(
            f"{path} must have the columns {listing([*names, COUNT])}, it has "
            f"{listing(list(columns)) or 'none'}"
        )
    return reader


def _code(label: object, name: str, known: dict[str, int], path: Path, line: int) -> int:
    if label not in known:
        raise WorkloadError(
            f"{path}, line {line}: {name} has no cell {shown(label)}"
            f"{did_you_mean(str(label), list(known))}"
        )
    return known[str(label)]


def _count(text: object, path: Path, line: int) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise WorkloadError(f"{path}, line {line}: {shown(text)} is not a count") from None
