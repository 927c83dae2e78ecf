# SPDX-License-Identifier: Apache-2.0
"""The ``[[workload]]`` tables of a TOML file.

Each table asks for one kind of queries; the key that names the kind decides which others may
stand beside it. Faults are reported with the file and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError, WorkloadError
from sfumato.text import did_you_mean, either, got
from sfumato.toml import STRICT, KeyPath, TomlFile, validated
from sfumato.workload.build import (
    conjunctions,
    marginals,
    means,
    predicates,
    prefixes,
    product,
    ranges,
    subsets,
    sums,
    windows,
)
from sfumato.workload.sql.statements import sql
from sfumato.workload.workload import Workload, union

__all__ = [
    "workload_from",
]


MOST_ENTRIES: Final = 10_000  # tables [[workload]] of one file

# The first wrong entry of a list is told; a list of a million wrong ones takes no memory.
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


class _Prefix(_By):
    prefix: str


class _Ranges(_By):
    ranges: str


class _Windows(_By):
    windows: str
    width: int


class _Means(_By):
    means: str
    values: Numbers | None = None


class _Sums(_By):
    sums: str
    power: Literal[1, 2] = 1


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


def _marginals(domain: Domain, e: _Marginals) -> Workload:
    if e.attributes is None:
        return marginals(domain, e.marginals)
    if not isinstance(e.marginals, int):
        raise WorkloadError(
            "attributes says of which ones all marginals are asked; with a list of marginals, "
            "leave it out"
        )
    return marginals(domain, subsets(domain.in_order(e.attributes), e.marginals))


# For each kind its model and what it asks for.
_KINDS: Final[dict[str, tuple[type[_Entry], Callable[..., Workload]]]] = {
    "marginals": (_Marginals, _marginals),
    "prefix": (_Prefix, lambda d, e: prefixes(d, e.prefix, e.by)),
    "ranges": (_Ranges, lambda d, e: ranges(d, e.ranges, e.by)),
    "windows": (_Windows, lambda d, e: windows(d, e.windows, e.width, e.by)),
    "means": (_Means, lambda d, e: means(d, e.means, e.by, e.values)),
    "sums": (_Sums, lambda d, e: sums(d, e.sums, e.by, e.power)),
    "product": (_Product, lambda d, e: product(d, e.product)),
    "conjunctions": (_Conjunctions, lambda d, e: conjunctions(d, e.conjunctions, e.attributes)),
    "predicates": (_Predicates, lambda d, e: predicates(d, e.predicates, e.labels)),
    "sql": (_Sql, lambda d, e: sql(d, e.sql)),
}


def workload_from(file: TomlFile, domain: Domain) -> Workload:
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
    if len(entries) > MOST_ENTRIES:
        raise file.error(
            f"{len(entries):,} tables [[workload]] are given, the most are {MOST_ENTRIES:,}; ask "
            "for several groups in one table",
            ("workload",),
        )
    works = [_asked(file, domain, entry, ("workload", i)) for i, entry in enumerate(entries)]
    return union(works)


def _asked(file: TomlFile, domain: Domain, entry: object, at: KeyPath) -> Workload:
    kind = _kind(file, entry, at)
    model, ask = _KINDS[kind]
    table = validated(model, entry, file, at)
    try:
        work = ask(domain, table)
        named = work if table.name is None else _named(work, table.name)
        return named if table.weight == 1 else named * table.weight
    except SfumatoError as error:
        raise type(error)(str(file.error(str(error), (*at, kind)))) from None


def _kind(file: TomlFile, entry: object, at: KeyPath) -> str:
    """The one key that says what is asked."""
    if not isinstance(entry, Mapping):
        raise file.error(f"expected a table, got {got(entry)}", at)
    found = [key for key in entry if key in _KINDS]
    if len(found) == 1:
        return str(found[0])
    kinds = either(list(_KINDS))
    if found:
        raise file.error(
            f"asks for {' and '.join(found)} at once; give each its own [[workload]]",
            (*at, found[1]),
        )
    near = next((hint for key in entry if (hint := did_you_mean(key, _KINDS))), "")
    raise file.error(f"says not what is asked; give one of {kinds}{near}", at)


def _named(work: Workload, name: str) -> Workload:
    """The name of a single group or mean; in front of the names of several."""
    is_one = len(work.terms) == 1
    terms = (replace(t, name=name if is_one else f"{name}: {t.name}") for t in work.terms)
    is_mean = len(work.ratios) == 1
    ratios = (replace(r, name=name if is_mean else f"{name}: {r.name}") for r in work.ratios)
    return Workload(work.domain, tuple(terms), tuple(ratios))
