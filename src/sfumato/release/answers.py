# SPDX-License-Identifier: Apache-2.0
"""Answers as dataframes: all groups in one long frame, or one group with labelled columns.

Built from whole arrays, never row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute
from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Coefficients, combination_error, read
from sfumato.planning.views import Viewed
from sfumato.refine.reconstruct import reconstruct
from sfumato.release.estimates import Estimates
from sfumato.release.labels import Labels, columns_of, texts_of
from sfumato.release.ranges import best_source
from sfumato.release.ratios import means_of
from sfumato.strategy.base import Strategy
from sfumato.strategy.combined import Combined
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array
from sfumato.workload.queries import (
    DENSE_LIMIT,
    Identity,
    Intervals,
    Prefix,
    check_entries,
)
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Ratio, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MOST_ROWS",
    "NUMBERS",
    "Combination",
    "Ends",
    "Group",
    "check_listed",
    "check_rows",
    "combine",
    "find_groups",
    "group_frame",
    "joined_frame",
    "key_term",
    "listed",
    "long_frame",
    "long_numbers",
    "named_groups",
    "number_parts",
    "parts_of",
    "range_frame",
]


MOST_ROWS = 2 * 10**7  # some 150 bytes each: 3 GiB
NUMBERS = ("value", "standard_error", "low", "high", "unbiased")

Group = int | Ratio  # the number of a term, or a ratio of two terms


def named_groups(workload: Workload) -> dict[Group, str]:
    """Every term, then every ratio, each with a name of its own."""
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


def key_term(workload: Workload, group: Group) -> Term:
    """A term whose labels are those of the group.

    The one row of numbers that a mean sums up is no label: what is left are the attributes by
    which it is taken.
    """
    if not isinstance(group, Ratio):
        return workload.terms[group]
    term = workload.terms[group.numerator]
    if isinstance(term, Explicit) and term.rows == 1:
        return replace(term, labels=(group.name,))
    product = term.as_product()
    if product is None:
        return term
    kept = tuple(
        (name, q)
        for name, q in product.factors
        if q.rows > 1 or q.label_kind not in ("rows", "total")
    )
    return Product(term.domain, group.name, 1.0, kept)


def find_groups(
    workload: Workload,
    attr: str | Iterable[str] | None,
    by: str | Iterable[str] | None,
    group: str | None,
) -> list[Group]:
    """The groups of this name, or those over exactly these attributes.

    The two halves of a mean are found by their names only; the mean itself is found by its
    attributes when nothing else is.
    """
    if group is not None:
        if attr is not None or by is not None:
            raise WorkloadError("give either group= or attributes, not both")
        names = named_groups(workload)
        found = [g for g, name in names.items() if name == group]
        if not found:
            known = list(names.values())
            raise WorkloadError(
                f"no group is named {shown(group)}{did_you_mean(group, known)}; the groups are: "
                f"{listing(known, 100)}"
            )
        return found
    wanted = workload.domain.in_order([*_names(attr), *_names(by)])
    halves = {t for r in workload.ratios for t in (r.numerator, r.denominator)}
    terms = [
        t
        for t, term in enumerate(workload.terms)
        if t not in halves and _columns_of(term) == wanted
    ]
    ratios = [r for r in workload.ratios if _columns_of(workload.terms[r.numerator]) == wanted]
    if not terms and not ratios:
        all_names = [*named_groups(workload).values()]
        raise WorkloadError(
            f"no group is over exactly the attributes {listing(wanted, 30)}; the groups are: "
            f"{listing(all_names, 100)}; ask with group=NAME, or for all with answers()"
        )
    return [*terms] or [*ratios]


def _columns_of(term: Term) -> tuple[str, ...]:
    """The attributes that a person named: values are those of their attribute."""
    return term.domain.in_order([term.domain[name].column for name in term.attributes])


def group_frame(
    estimates: Estimates, group: Group, level: float, first: int | None = None
) -> pd.DataFrame:
    """One row per query, or per query of the ``first`` so many: its labels, then its numbers."""
    import pandas as pd

    workload = estimates.forecast.workload
    term = key_term(workload, group)
    rows = term.rows if first is None else min(first, term.rows)
    check_rows(rows)
    columns: dict[str, Labels] = columns_of(term, slice(rows))
    if isinstance(group, Ratio):
        means = means_of(estimates, group, level)
        names = ("sum", "count", "mean", "standard_error", "low", "high")
        columns |= {name: getattr(means, name)[:rows] for name in names}
    else:
        numbers = next(number_parts(estimates, group, level, max(1, rows)))
        columns |= dict(zip(NUMBERS, numbers, strict=True))
    return pd.DataFrame(columns)


def joined_frame(estimates: Estimates, groups: Sequence[Group], level: float) -> pd.DataFrame:
    """The frames of groups with equal columns, told apart by a column ``group``."""
    import pandas as pd

    if len(groups) == 1:
        return group_frame(estimates, groups[0], level)
    workload = estimates.forecast.workload
    known = named_groups(workload)
    names = [known[g] for g in groups]
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
    """Value, standard error, low, high and unbiased answer of every query of a group.

    A quotient of two noisy numbers has no unbiased estimate: NaN.
    """
    rows = max(1, key_term(estimates.forecast.workload, group).rows)
    return next(number_parts(estimates, group, level, rows))


def number_parts(
    estimates: Estimates, group: Group, level: float, most: int
) -> Iterator[tuple[Array, ...]]:
    """The same in parts of at most ``most`` queries, so that a large group needs little memory."""
    if isinstance(group, Ratio):
        m = means_of(estimates, group, level)
        whole = m.mean, m.standard_error, m.low, m.high, np.full(m.mean.shape, np.nan)
        yield from (tuple(n[part] for n in whole) for part in parts_of(len(m.mean), most))
        return
    found = estimates.group(group)
    for part in parts_of(len(found.unbiased), most):
        low, high = found.interval(level, part)
        error = found.standard_error(part)
        yield found.value(part), error, low, high, found.unbiased[part]


def parts_of(rows: int, most: int) -> list[slice]:
    """Rows in parts of at most so many.

    >>> parts_of(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + most, rows)) for start in range(0, max(rows, 1), most)]


def long_frame(estimates: Estimates, level: float) -> pd.DataFrame:
    """All groups under one another: group, query in words, numbers."""
    import pandas as pd

    workload = estimates.forecast.workload
    groups = named_groups(workload)
    sizes = [key_term(workload, g).rows for g in groups]
    check_rows(sum(sizes))
    names = pd.Categorical.from_codes(
        np.repeat(np.arange(len(groups)), sizes), categories=pd.Index([*groups.values()])
    )
    texts = np.concatenate([texts_of(key_term(workload, g)) for g in groups])
    numbers = [long_numbers(estimates, g, level) for g in groups]
    joined = [np.concatenate(column) for column in zip(*numbers, strict=True)]
    columns = dict(zip(NUMBERS, joined, strict=True))
    return pd.DataFrame({"group": names, "query": texts, **columns})


def check_rows(rows: int) -> None:
    """Refuse a frame that does not fit in memory, before it is built."""
    if rows > DENSE_LIMIT:
        raise TooLarge(
            f"the answers asked for have {rows:,} rows, nobody can list them; ask for some with "
            "ranges(attribute, [(low, high), ...]), or for running totals with answers()"
        )
    if rows > MOST_ROWS:
        raise TooLarge(
            f"the answers asked for have {rows:,} rows, at most {MOST_ROWS:,} fit in one frame; "
            "take one group at a time with answers(group=NAME), or write them with to_parquet"
        )


def _names(given: str | Iterable[str] | None) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, Iterable):
        raise WorkloadError(f"answers are asked by names of attributes, got {shown(given)}")
    return [given] if isinstance(given, str) else list(given)


# --------------------
# Chosen ranges of a long attribute, and short forms of groups that nobody can list.
#
# All ranges of a million cells are 5 * 10^11 answers. The release holds all of them, as running
# totals: any range is a difference of two. Asked ranges are answered on demand with their exact
# errors, and wherever all answers are written down, the running totals stand for the ranges.


Ends = tuple[object, object]  # the least and the greatest value of a range


def range_frame(
    estimates: Estimates,
    measured: Measured,
    attr: str,
    between: Sequence[Ends],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """One row per asked range and cell of ``by``: ends, answer, standard error, interval.

    Privacy: a function of released measurements and of public numbers (post-processing: Dwork,
    Roth 2014, Proposition 2.1).
    Neighbours: those of the forecast.
    """
    import pandas as pd

    domain = estimates.forecast.workload.domain
    names = domain.in_order([attr, *by])
    chosen = _intervals(domain[attr], between)
    factors = tuple((n, chosen if n == attr else Identity(domain[n].size)) for n in names)
    asked = Product(domain, f"ranges {attr}", 1.0, factors)
    found = best_source(estimates, measured, asked)
    if found is None:
        usable = [t.name for t in estimates.forecast.workload.terms if attr in t.attributes]
        raise WorkloadError(
            f"no released group gives single ranges of {attr!r}"
            + (f" by {listing(list(by))}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for its "
            "ranges in the workload, or combine answers with combine(...)"
        )
    half, value = found.half_width(level), found.unbiased
    low, high = value - half, value + half
    if estimates.is_projected:
        bounds = estimates.bounds(asked)
        value = bounds.clamp(value)
        low, high = bounds.interval(low, high, found.unbiased, value)
    numbers = {"value": value, "standard_error": found.standard_errors(), "low": low, "high": high}
    return pd.DataFrame({**columns_of(asked), **numbers, "unbiased": found.unbiased})


def listed(estimates: Estimates, measured: Measured) -> Estimates:
    """The same estimates, running totals in place of ranges that are too many to be listed."""
    forecast = estimates.forecast
    terms = tuple(_shorter(t) for t in forecast.workload.terms)
    if terms == forecast.workload.terms:
        return estimates
    work = replace(forecast.workload, terms=terms)
    strategy = _asking(forecast.strategy, work)
    derived = replace(forecast, workload=work, strategy=strategy, bound=None)
    unbiased = reconstruct(derived, measured)
    return replace(estimates, forecast=derived, unbiased=unbiased, refined=None, bootstrap=None)


def check_listed(workload: Workload) -> None:
    """Refuse, before anything is paid for, answers of which a release could not list any form."""
    for term in workload.terms:
        check_entries(_shorter(term).rows, f"a release of group {term.name!r}")


def _shorter(term: Term) -> Term:
    product = term.as_product()
    if product is None or term.rows <= DENSE_LIMIT:
        return term
    factors = tuple((n, Prefix(q.size) if q.holds_prefixes else q) for n, q in product.factors)
    return replace(product, name=f"running totals of {term.name}", factors=factors)


def _asking(strategy: Strategy, work: Workload) -> Strategy:
    """The same measurements for other questions, term by term."""
    if isinstance(strategy, Viewed):
        return _viewed(strategy, work)
    if not isinstance(strategy, Combined):
        return replace(strategy, workload=work, bound=None)
    asked: list[dict[int, Term]] = [{} for _ in strategy.parts]
    for term, (part, local) in zip(work.terms, strategy.places, strict=True):
        asked[part][local] = term
    parts = tuple(
        _asking(part, Workload(work.domain, tuple(terms[i] for i in range(len(terms)))))
        for part, terms in zip(strategy.parts, asked, strict=True)
    )
    return replace(strategy, workload=work, parts=parts, bound=None)


def _viewed(strategy: Viewed, work: Workload) -> Viewed:
    """The same for groups of a normal form; those that change are groups of it as they are."""
    terms = list(strategy.normal.workload.terms)
    for asked, before, pieces in zip(
        work.terms, strategy.workload.terms, strategy.normal.pieces, strict=True
    ):
        if asked is not before:
            home = pieces[0].term
            terms[home] = replace(asked, name=terms[home].name, weight=terms[home].weight)
    normal = replace(strategy.normal, workload=Workload(work.domain, tuple(terms)))
    planned = _asking(strategy.planned, normal.workload)
    return replace(strategy, workload=work, planned=planned, normal=normal, bound=None)


def _intervals(attribute: Attribute, between: Sequence[Ends]) -> Intervals:
    """The cells of every range; both ends belong to it."""
    if not isinstance(between, Sequence) or not len(between):
        raise WorkloadError("no range was asked: give pairs of a least and a greatest value")
    known: dict[tuple[str, object], int] = {}

    def cell(comparison: str, value: object) -> int:
        """The first cell at or above a value, or the number of cells at or below it."""
        if (comparison, value) not in known:
            inside = np.flatnonzero(attribute.select(comparison, value))  # type: ignore[arg-type]
            is_first = comparison == ">="
            none = attribute.size if is_first else 0
            last = int(inside[-1]) + 1 if len(inside) else none
            known[comparison, value] = int(inside[0]) if is_first and len(inside) else last
        return known[comparison, value]

    starts, ends = [], []
    for pair in between:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WorkloadError(
                f"a range is a pair of its least and its greatest value, got {shown(pair)}"
            )
        starts.append(cell(">=", pair[0]))
        ends.append(cell("<=", pair[1]))
        if starts[-1] >= ends[-1]:
            raise WorkloadError(
                f"no cell of {attribute.name!r} lies between {shown(pair[0])} and {shown(pair[1])}"
            )
    return Intervals(attribute.size, np.array(starts), np.array(ends))


# --------------------
# Any linear combination of released answers, with its own standard error and interval.
#
# Differences, averages and weighted sums of answers, also of several groups. Their errors are
# exact: what the answers have in common is counted once (``planning/forecast.py``).


@dataclass(frozen=True, slots=True)
class Combination:
    """An unbiased value, its standard error, and the interval of the asked level."""

    value: float
    standard_error: float
    low: float
    high: float


def combine(
    estimates: Estimates, coefficients: Mapping[str, Coefficients], level: float
) -> Combination:
    """``c'a`` of the unbiased answers a, with ends that hold the truth with chance ``level``.

    Privacy: a function of released measurements and of public numbers (post-processing: Dwork,
    Roth 2014, Proposition 2.1).
    Neighbours: those of the forecast.
    """
    c = read(estimates.forecast, coefficients)
    value = sum(float(numbers @ estimates.unbiased[term]) for term, numbers in c.items())
    error = combination_error(estimates.forecast, coefficients)
    half = error.half_width(level)
    return Combination(value, error.standard_error, value - half, value + half)
