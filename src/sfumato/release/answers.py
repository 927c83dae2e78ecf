# SPDX-License-Identifier: Apache-2.0
"""Answers as dataframes: all groups in one long frame, or one group with labelled columns.

Built from whole arrays, never row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.release.estimates import Estimates
from sfumato.release.labels import Labels, columns_of, texts_of
from sfumato.release.release_limits import LIMITS
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array
from sfumato.workload.build import cell_queries
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Statistic, Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Group",
    "asked_product",
    "check_rows",
    "find_groups",
    "group_frame",
    "joined_frame",
    "key_term",
    "long_frame",
    "long_numbers",
    "named_groups",
    "number_parts",
    "parts_of",
    "plural_of",
    "share_columns",
    "shares_of",
]


Group = int | Statistic  # the number of a term, or what follows from several


def named_groups(workload: Workload) -> dict[Group, str]:
    """Every term, then every mean, variance and so on, each with a name of its own."""
    names: dict[Group, str] = {t: term.name for t, term in enumerate(workload.terms)}
    taken = set(names.values())
    for ratio in workload.ratios:
        name, again = ratio.name, 1
        while name in taken:
            again += 1
            name = f"{ratio.name} ({again})"
        taken.add(name)
        names[ratio] = name
    return names


def plural_of(column: str) -> str:
    """What several of a statistic are called.

    >>> plural_of("standard_deviation"), plural_of("variance")
    ('standard deviations', 'variances')
    """
    return f"{column.replace('_', ' ')}s"


def key_term(workload: Workload, group: Group) -> Term:
    """A term whose labels are those of the group.

    The one row of numbers that a mean sums up is no label: what is left are the attributes by
    which it is taken.
    """
    if isinstance(group, int):
        return workload.terms[group]
    term = workload.terms[group.terms[0]]
    if isinstance(term, Explicit) and term.rows == 1:
        return replace(term, labels=(group.name,))
    product = term.as_product()
    if product is None:
        return term
    factors = tuple(
        (name, q)
        for name, q in product.factors
        if q.rows > 1 or q.label_kind not in ("rows", "total")
    )
    return Product(term.domain, group.name, 1.0, factors)


def find_groups(
    workload: Workload,
    attr: str | Iterable[str] | None,
    by: str | Iterable[str] | None,
    group: str | None,
) -> list[Group]:
    """The groups of this name, or those over exactly these attributes; none where there are none.

    The parts of a mean or variance are found by their names only; the mean itself is found by its
    attributes when nothing else is.
    """
    if group is not None:
        if attr is not None or by is not None:
            raise WorkloadError("give either group= or attributes, not both")
        names = named_groups(workload)
        groups = [g for g, name in names.items() if name == group]
        if not groups:
            listed = list(names.values())
            raise WorkloadError(
                f"no group is named {shown(group)}{did_you_mean(group, listed)}; the groups are: "
                f"{listing(listed, 100)}"
            )
        return groups
    target = asked_product(workload.domain, attr, by)
    attributes = target.attributes
    halves = {t for r in workload.ratios for t in r.terms}
    terms = [
        t
        for t, term in enumerate(workload.terms)
        if t not in halves and _columns_of(term) == attributes and _asks_levels(term, target)
    ]
    ratios = [
        r
        for r in workload.ratios
        if _columns_of(workload.terms[r.terms[0]]) == attributes
        and all(q.is_identity for _, q in target.factors)
    ]
    return [*terms] or [*ratios]


def asked_product(
    domain: Domain, attr: str | Iterable[str] | None, by: str | Iterable[str] | None
) -> Product:
    """The table over these attributes; over the groups of a level for ``attribute.level``.

    Raises:
        WorkloadError: if one is unknown, or asked for by cells and by groups.
    """
    listed = dict.fromkeys([*_names(attr), *_names(by)])
    queries = dict(cell_queries(domain, name) for name in listed)
    if len(queries) < len(listed):
        raise WorkloadError(f"answers over {listing(list(listed))} name an attribute twice")
    factors = tuple((n, queries[n]) for n in domain.in_order(queries))
    name = " x ".join(q.titled(n) for n, q in factors) or "total"
    return Product(domain, name, 1.0, factors)


def _asks_levels(term: Term, target: Product) -> bool:
    """Whether the term has the groups of every level that is asked for; cells fit any queries."""
    product = term.as_product()
    queries = {} if product is None else dict(product.factors)
    return all(q.is_identity or (n in queries and q.is_same(queries[n])) for n, q in target.factors)


def _columns_of(term: Term) -> tuple[str, ...]:
    """The attributes that a person named: values are those of their attribute."""
    return term.domain.in_order([c for name in term.attributes for c in term.domain[name].columns])


def group_frame(
    estimates: Estimates, group: Group, level: float, first: int | None = None
) -> pd.DataFrame:
    """One row per query, or per query of the ``first`` so many: its labels, then its numbers."""
    import pandas as pd

    workload = estimates.workload
    term = key_term(workload, group)
    rows = term.rows if first is None else min(first, term.rows)
    check_rows(rows)
    columns: dict[str, Labels] = columns_of(term, slice(rows))
    if not isinstance(group, int):
        derived = group.published(estimates, level)
        about = [n for n in estimates.numbers if n not in ("value", "unbiased")]
        columns |= {name: column[:rows] for name, column in derived.columns.items()}
        columns |= {name: getattr(derived, name)[:rows] for name in about}
    else:
        numbers = next(number_parts(estimates, group, level, max(1, rows)))
        columns |= dict(zip(estimates.numbers, numbers, strict=True))
    return pd.DataFrame(columns)


def joined_frame(estimates: Estimates, groups: Sequence[Group], level: float) -> pd.DataFrame:
    """The frames of groups with equal columns, told apart by a column ``group``."""
    import pandas as pd

    if len(groups) == 1:
        return group_frame(estimates, groups[0], level)
    workload = estimates.workload
    group_names = named_groups(workload)
    names = [group_names[g] for g in groups]
    check_rows(sum(key_term(workload, g).rows for g in groups))
    frames = [group_frame(estimates, g, level) for g in groups]
    if any(list(f.columns) != list(frames[0].columns) for f in frames):
        raise WorkloadError(
            f"{len(groups)} groups are over these attributes and have different columns; choose "
            f"one with group=: {listing(names, 100)}"
        )
    for name, frame in zip(names, frames, strict=True):
        same = pd.Categorical([name] * len(frame), categories=names)
        frame.insert(0, "group", pd.Series(same))
    return pd.concat(frames, ignore_index=True)


def long_numbers(estimates: Estimates, group: Group, level: float) -> tuple[Array, ...]:
    """The columns ``numbers`` of every query of a group.

    A quotient of two noisy numbers has no unbiased estimate: NaN.
    """
    rows = max(1, key_term(estimates.workload, group).rows)
    return next(number_parts(estimates, group, level, rows))


def number_parts(
    estimates: Estimates, group: Group, level: float, most: int
) -> Iterator[tuple[Array, ...]]:
    """The numbers of a group in parts of at most ``most`` queries: little memory for many."""
    if not isinstance(group, int):
        m = group.published(estimates, level)
        none = np.full(m.value.shape, np.nan)
        whole = [none if n == "unbiased" else getattr(m, n) for n in estimates.numbers]
        yield from (tuple(n[part] for n in whole) for part in parts_of(len(m.value), most))
        return
    answers = estimates.group(group)
    rows = estimates.workload.terms[group].rows
    yield from (answers.numbers(level, part) for part in parts_of(rows, most))


def parts_of(rows: int, most: int) -> list[slice]:
    """Rows in parts of at most so many.

    >>> parts_of(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + most, rows)) for start in range(0, max(rows, 1), most)]


def share_columns(numbers: Sequence[str]) -> tuple[str, ...]:
    """The names of shares that stand beside columns of numbers.

    >>> share_columns(("value", "low"))
    ('share', 'share_low')
    """
    return tuple("share" if name == "value" else f"share_{name}" for name in numbers)


def shares_of(group: Group, numbers: Sequence[Array], records: int) -> tuple[Array, ...]:
    """Numbers of a group as shares of all records; a mean is the ratio of two shares, none: NaN."""
    if not isinstance(group, int):
        return tuple(np.full_like(column, np.nan) for column in numbers)
    return tuple(column / records for column in numbers)


def long_frame(estimates: Estimates, level: float) -> pd.DataFrame:
    """All groups under one another: group, query in words, numbers."""
    import pandas as pd

    workload = estimates.workload
    groups = named_groups(workload)
    sizes = [key_term(workload, g).rows for g in groups]
    check_rows(sum(sizes))
    names = pd.Categorical.from_codes(
        np.repeat(np.arange(len(groups)), sizes), categories=pd.Index([*groups.values()])
    )
    texts = np.concatenate([texts_of(key_term(workload, g)) for g in groups])
    numbers = [long_numbers(estimates, g, level) for g in groups]
    joined = [np.concatenate(column) for column in zip(*numbers, strict=True)]
    columns = dict(zip(estimates.numbers, joined, strict=True))
    return pd.DataFrame({"group": names, "query": texts, **columns})


def check_rows(rows: int) -> None:
    """Refuse a frame that does not fit in memory, before it is built."""
    if rows > WORKLOAD_LIMITS.array_entries:
        raise TooLarge(
            f"the answers asked for have {rows:,} rows, nobody can list them; ask for some with "
            "ranges(attribute, [(low, high), ...]), or for running totals with answers()"
        )
    if rows > LIMITS.frame_rows:
        raise TooLarge(
            f"the answers asked for have {rows:,} rows, at most {LIMITS.frame_rows:,} fit in one "
            "frame; take one group at a time with answers(group=NAME), or write them with "
            "to_parquet"
        )


def _names(attributes: str | Iterable[str] | None) -> list[str]:
    if attributes is None:
        return []
    if not isinstance(attributes, Iterable):
        raise WorkloadError(f"answers are asked by names of attributes, got {shown(attributes)}")
    return [attributes] if isinstance(attributes, str) else list(attributes)
