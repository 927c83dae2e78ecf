# SPDX-License-Identifier: Apache-2.0
"""The tables ``[[workload]]`` and ``[constraints]`` of a TOML file.

`workload_from` returns the workload of a file. Each table asks for one kind of queries; the key
that names the kind decides which others may stand beside it. `constraints_from` returns the
constraints, public knowledge about the data:

    [constraints]
    impossible = ["age < 15 and married = 'yes'"]

    [[constraints.published]]
    attributes = ["sex"]
    values = [5012, 4988]        # or file = "sex.csv", with the columns sex and count

Faults are reported with the file and the line.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError, WorkloadError
from sfumato.text import did_you_mean, either, got, listing, shown
from sfumato.toml import STRICT, KeyPath, TomlFile, validated
from sfumato.types import Array
from sfumato.workload.build import (
    circular_ranges,
    conjunctions,
    covariances,
    marginals,
    means,
    moments,
    predicates,
    prefixes,
    product,
    ranges,
    standard_deviations,
    subsets,
    sums,
    variances,
    windows,
)
from sfumato.workload.constraints import Constraints
from sfumato.workload.predicates import Condition
from sfumato.workload.queries import check_entries
from sfumato.workload.sql_expressions import sql_condition
from sfumato.workload.statements.sql import sql
from sfumato.workload.workload import Workload, union
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "constraints_from",
    "constraints_json_schema",
    "workload_from",
    "workload_json_schema",
]


# The first wrong entry of a list is reported; a list of a million wrong ones takes no memory.
Names = Annotated[list[str], Field(fail_fast=True)]
Numbers = Annotated[list[float], Field(fail_fast=True)]


class _Entry(BaseModel):
    model_config = ConfigDict(**STRICT)

    name: Annotated[str, Field(min_length=1)] | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class _By(_Entry):
    by: Names = Field(default_factory=list)


class _Marginals(_Entry):
    marginals: int | Annotated[list[Names], Field(fail_fast=True)]
    attributes: Names | None = None
    balanced: bool = False


class _Prefix(_By):
    prefix: str


class _Ranges(_By):
    ranges: str


class _Circular(_By):
    circular_ranges: str


class _Windows(_By):
    windows: str
    width: int


class _Means(_By):
    means: str
    values: Numbers | None = None


class _Sums(_By):
    sums: str
    power: Literal[1, 2] = 1


class _Variances(_By):
    variances: str


class _Deviations(_By):
    standard_deviations: str


class _Covariances(_By):
    covariances: Annotated[Names, Field(min_length=2, max_length=2)]


class _Moments(_By):
    moments: Names


class _Product(_Entry):
    product: dict[str, str | Annotated[list[Numbers], Field(fail_fast=True)]]


class _Conjunctions(_Entry):
    conjunctions: int
    attributes: Names | None = None


class _Predicates(_Entry):
    predicates: Names
    labels: Names = Field(default_factory=list)


class _Sql(_Entry):
    sql: str


def _marginals(domain: Domain, e: _Marginals, _: PrivacyUnit | None) -> Workload:
    work = marginals(domain, _ways(domain, e))
    return work.balanced() if e.balanced else work


def _ways(domain: Domain, e: _Marginals) -> int | Sequence[Sequence[str]]:
    if e.attributes is None:
        return e.marginals
    if not isinstance(e.marginals, int):
        raise WorkloadError(
            "attributes says of which ones all marginals are asked; with a list of marginals, "
            "leave it out"
        )
    return subsets(domain.in_order(e.attributes), e.marginals)


# For each kind its model and what it asks for.
_KINDS: Final[dict[str, tuple[type[_Entry], Callable[..., Workload]]]] = {
    "marginals": (_Marginals, _marginals),
    "prefix": (_Prefix, lambda d, e, _: prefixes(d, e.prefix, e.by)),
    "ranges": (_Ranges, lambda d, e, _: ranges(d, e.ranges, e.by)),
    "circular_ranges": (
        _Circular,
        lambda d, e, _: circular_ranges(d, e.circular_ranges, e.by),
    ),
    "windows": (_Windows, lambda d, e, _: windows(d, e.windows, e.width, e.by)),
    "means": (_Means, lambda d, e, _: means(d, e.means, e.by, e.values)),
    "sums": (_Sums, lambda d, e, _: sums(d, e.sums, e.by, e.power)),
    "variances": (_Variances, lambda d, e, _: variances(d, e.variances, e.by)),
    "standard_deviations": (
        _Deviations,
        lambda d, e, _: standard_deviations(d, e.standard_deviations, e.by),
    ),
    "covariances": (
        _Covariances,
        lambda d, e, _: covariances(d, e.covariances[0], e.covariances[1], e.by),
    ),
    "moments": (_Moments, lambda d, e, _: moments(d, e.moments, e.by)),
    "product": (_Product, lambda d, e, _: product(d, e.product)),
    "conjunctions": (_Conjunctions, lambda d, e, _: conjunctions(d, e.conjunctions, e.attributes)),
    "predicates": (_Predicates, lambda d, e, _: predicates(d, e.predicates, e.labels)),
    "sql": (_Sql, lambda d, e, u: sql(d, e.sql, unit=u)),
}


def workload_json_schema() -> dict[str, object]:
    """Return the JSON Schema of the ``[[workload]]`` tables of a file, references inside it."""
    from pydantic.json_schema import models_json_schema

    models = [model for model, _ in _KINDS.values()]
    places, definitions = models_json_schema([(model, "validation") for model in models])
    entries = {"anyOf": [places[model, "validation"] for model in models]}
    return {"type": "array", "minItems": 1, "items": entries, **definitions}


def constraints_json_schema() -> dict[str, object]:
    """Return the JSON Schema of the table ``[constraints]`` of a file."""
    return _Constraints.model_json_schema()


def workload_from(file: TomlFile, domain: Domain, unit: PrivacyUnit | None = None) -> Workload:
    """The union of all ``[[workload]]`` tables of a file, in order.

    >>> from sfumato.toml import parse_toml
    >>> text = "[[workload]]\\nmarginals = 1\\n[[workload]]\\nprefix = 'age'\\nby = ['sex']"
    >>> file = parse_toml(text)
    >>> [term.name for term in workload_from(file, Domain({"age": 100, "sex": 2})).terms]
    ['age', 'sex', 'prefix age by sex']
    """
    entries = file.data.get("workload")
    if entries is None:
        raise file.error(
            "no queries are asked; add a table [[workload]], with marginals = 2 for example"
        )
    if not isinstance(entries, list) or not entries:
        what = "a list that is empty" if isinstance(entries, list) else got(entries)
        raise file.error(
            f"expected tables written [[workload]], got {what}; write double brackets",
            ("workload",),
        )
    if len(entries) > LIMITS.file_tables:
        raise file.error(
            f"{len(entries):,} tables [[workload]] are given, the most are {LIMITS.file_tables:,}; "
            "ask for several groups in one table",
            ("workload",),
        )
    works = [
        _workload(file, domain, entry, ("workload", i), unit) for i, entry in enumerate(entries)
    ]
    return union(works)


def _workload(
    file: TomlFile, domain: Domain, entry: object, at: KeyPath, unit: PrivacyUnit | None
) -> Workload:
    kind = _kind(file, entry, at)
    model, ask = _KINDS[kind]
    table = validated(model, entry, file, at)
    try:
        work = ask(domain, table, unit)
        named = work if table.name is None else _named(work, table.name)
        return named if table.weight == 1 else named * table.weight
    except SfumatoError as error:
        raise type(error)(str(file.error(str(error), (*at, kind)))) from None


def _kind(file: TomlFile, entry: object, at: KeyPath) -> str:
    """The one key that says what is asked."""
    if not isinstance(entry, Mapping):
        raise file.error(f"expected a table, got {got(entry)}", at)
    keys = [key for key in entry if key in _KINDS]
    if len(keys) == 1:
        return str(keys[0])
    kinds = either(list(_KINDS))
    if keys:
        raise file.error(
            f"asks for {' and '.join(keys)} at once; give each its own [[workload]]",
            (*at, keys[1]),
        )
    near = next((hint for key in entry if (hint := did_you_mean(key, _KINDS))), "")
    raise file.error(f"says not what is asked; give one of {kinds}{near}", at)


def _named(work: Workload, name: str) -> Workload:
    """The workload with a name for its single group or mean, in front of the names of several."""
    is_one = len(work.terms) == 1
    terms = (replace(t, name=name if is_one else f"{name}: {t.name}") for t in work.terms)
    is_mean = len(work.ratios) == 1
    ratios = (r.renamed(name if is_mean else f"{name}: {r.name}") for r in work.ratios)
    return replace(work, terms=tuple(terms), ratios=tuple(ratios))


# Constraints

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

    >>> from sfumato.toml import parse_toml
    >>> file = parse_toml("[constraints]\\nimpossible = ['age < 15 and married = 1']")
    >>> constraints_from(file, Domain({"age": 100, "married": 2}))
    Constraints(1 impossible)
    """
    entries = file.data.get("constraints")
    if entries is None:
        return None
    top: KeyPath = ("constraints",)
    table = validated(_Constraints, entries, file, top)
    conditions: list[Condition] = []
    for i, text in enumerate(table.impossible):
        try:
            conditions.append(sql_condition(domain, text))
            Constraints(domain, conditions)
        except SfumatoError as error:
            raise _located(file, error, (*top, "impossible", i)) from None
    pairs: list[tuple[list[str], object]] = []
    constraints = Constraints(domain, conditions)
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
            values = entry.values if entry.file is None else _read_table(file, domain, entry)
            pairs.append((entry.attributes, values))
            constraints = Constraints(domain, conditions, pairs)
        except SfumatoError as error:
            raise _located(file, error, (*at, key)) from None
    return constraints


def _located(file: TomlFile, error: SfumatoError, at: KeyPath) -> SfumatoError:
    return type(error)(str(file.error(str(error), at)))


def _read_table(file: TomlFile, domain: Domain, entry: _Published) -> Array:
    """The counts of a CSV file with one line per cell: a label for every attribute, the count."""
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
                    _code(row[n], n, labels, path, line)
                    for n, labels in zip(names, codes, strict=True)
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


def _code(label: object, name: str, codes: dict[str, int], path: Path, line: int) -> int:
    if label not in codes:
        raise WorkloadError(
            f"{path}, line {line}: {name} has no cell {shown(label)}"
            f"{did_you_mean(str(label), list(codes))}"
        )
    return codes[str(label)]


def _count(text: object, path: Path, line: int) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise WorkloadError(f"{path}, line {line}: {shown(text)} is not a count") from None
