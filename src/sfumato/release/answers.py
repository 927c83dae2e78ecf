# SPDX-License-Identifier: Apache-2.0
"""Answers as dataframes: all groups in one long frame, or one group with labelled columns.

Built from whole arrays, never row by row.

**Rollups** are answers over fewer attributes, coarser levels or chosen ranges, from groups that
were released. A released age x sex holds the answers about age alone: sums over sex. With
``a = R y`` the released answers and ``T`` the matrix of such sums, ``T a`` is unbiased for the
queries ``T F``, and its errors are ``T R z``: every row of ``T`` is followed through the transposed
reconstruction, ``(T R)_i = R' t_i`` (`Strategy.adjoint`), so what the summed answers have in common
is counted once. Errors of sums are not sums of errors: under a strategy that measures totals well,
the total of a hundred cells errs less than a single one of them.

T is a Kronecker product with one factor for each attribute (`QuerySet.answers_of`): sums of cells,
differences of running totals, single ranges, sums of the groups of a finer level; totals of the
attributes that are left out. Where a group cannot tell the queries it is no `Rollup`.

All ranges of a million cells are 5 * 10^11 answers. The release holds all of them, as running
totals: any range is a difference of two, and `range_frame` answers those that are asked for.

Post-processing of what was released (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.release.estimates import Estimates
from sfumato.release.labels import Labels, columns_of, texts_of
from sfumato.release.release_limits import LIMITS
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array
from sfumato.workload.build import cell_queries
from sfumato.workload.queries import Identity, Intervals, QuerySet, Total
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Statistic, Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Ends",
    "Group",
    "Rollup",
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
    "range_frame",
    "rollup_frame",
    "rollups_of",
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


@dataclass(frozen=True, eq=False)
class Rollup:
    """Queries ``target`` as linear combinations ``T a`` of the answers a of a product ``source``.

    ``term`` is the number of the released group.
    """

    term: int
    source: Product
    target: Product

    @property
    def pairs(self) -> tuple[tuple[QuerySet, QuerySet], ...]:
        """For every attribute of the source its queries, and those that the target asks of it."""
        wanted = dict(self.target.factors)
        return tuple((q, wanted.get(n, Total(q.size))) for n, q in self.source.factors)

    def answers(self, numbers: Array) -> Array:
        """``T a``."""
        table = np.asarray(numbers, dtype=np.float64).reshape(self.source.row_shape)
        for axis, (source, target) in enumerate(self.pairs):
            along = source.answers_of(target, np.moveaxis(table, axis, 0))
            assert along is not None  # noqa: S101  `rollups_of` has seen to it
            table = np.moveaxis(along, 0, axis)
        return table.reshape(-1)

    def bounds(self, numbers: Array) -> Array:
        """``|T| a``: what sums of numbers can be at most, whatever their signs."""
        if all(source.is_identity for source, _ in self.pairs):
            return self.answers(numbers)  # coefficients 0 and 1
        table = np.asarray(numbers, dtype=np.float64).reshape(self.source.row_shape)
        for axis, factor in enumerate(self._factors):
            along = np.tensordot(np.abs(factor), np.moveaxis(table, axis, 0), axes=1)
            table = np.moveaxis(along, 0, axis)
        return table.reshape(-1)

    @property
    def factor_entries(self) -> int:
        """The numbers of all factors of T."""
        return sum(source.rows * target.rows for source, target in self.pairs)

    @cached_property
    def _factors(self) -> tuple[Array, ...]:
        """T along every attribute."""
        out = []
        for source, target in self.pairs:
            factor = source.answers_of(target, np.eye(source.rows))
            assert factor is not None  # noqa: S101  `rollups_of` has seen to it
            out.append(np.asarray(factor, dtype=np.float64))
        return tuple(out)

    def rows(self) -> Iterator[Array]:
        """The coefficients of every query of the target: the rows of T."""
        one = np.ones(1)
        shape = [len(factor) for factor in self._factors]
        for places in np.ndindex(*shape):
            rows = [f[i] for f, i in zip(self._factors, places, strict=True)]
            yield reduce(np.multiply.outer, rows, one).reshape(-1)

    def errors(self, forecast: Forecast, values: Sequence[int]) -> tuple[Array, Array] | None:
        """Standard errors of ``T a``, and how many equal draws each error is like.

        With ``e_j = (T R)_ij^2 v_j`` over all measured values j, v_j their variance: the root of
        ``sum e_j``, and ``(sum e_j)^2 / sum e_j^2``. Rows of T are followed back to what was
        measured, or measured values to the sums, whichever are fewer.

        Args:
            forecast: How the source was answered.
            values: The number of values of every measured block.

        Returns:
            Both, or None where there are too many of either.
        """
        moments = None
        if self.target.rows <= min(sum(values), LIMITS.followed_values):
            moments = self._followed_back(forecast)
        if moments is None:
            moments = self._followed(forecast, values)
        if moments is None:
            return None
        second, fourth = moments
        shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
        is_normal = forecast.strategy.noise == "gaussian"
        return np.sqrt(second), np.full_like(shapes, np.inf) if is_normal else shapes

    def _followed_back(self, forecast: Forecast) -> tuple[Array, Array] | None:
        """``sum e_j`` and ``sum e_j^2`` of every row of T; None where T is too large."""
        if self.factor_entries > LIMITS.rollup_entries:
            return None
        second, fourth = np.zeros(self.target.rows), np.zeros(self.target.rows)
        try:
            for i, row in enumerate(self.rows()):
                for b, weights in forecast.strategy.adjoint(self.term, row).items():
                    part = weights**2 * forecast.block_variances[b]
                    second[i] += part.sum()
                    fourth[i] += (part**2).sum()
        except TooLarge:
            return None
        return second, fourth

    def _followed(self, forecast: Forecast, values: Sequence[int]) -> tuple[Array, Array] | None:
        """The same, one measured value after the other."""
        zeros = [np.zeros(number) for number in values]
        constant = forecast.strategy.answer(self.term, zeros)  # of a biased strategy; else zero

        def reached(b: int, unit: Array) -> Array:
            answers = forecast.strategy.answer(self.term, [*zeros[:b], unit, *zeros[b + 1 :]])
            return self.answers(answers - constant)

        # Irrational steps: a block that matters does not cancel on them by accident.
        blocks = [
            b
            for b, zero in enumerate(zeros)
            if reached(b, 1 + np.modf(sqrt(2) * np.arange(1, zero.size + 1))[0]).any()
        ]
        if sum(zeros[b].size for b in blocks) > LIMITS.followed_values:
            return None
        second, fourth = np.zeros(self.target.rows), np.zeros(self.target.rows)
        for b in blocks:
            unit = np.zeros(zeros[b].size)
            for j in range(unit.size):
                unit[j] = 1.0
                part = reached(b, unit) ** 2 * forecast.block_variances[b]
                unit[j] = 0.0
                second += part
                fourth += part**2
        return second, fourth


def rollups_of(workload: Workload, target: Product) -> list[Rollup]:
    """The released groups that tell these queries, those with fewer answers first."""
    out = []
    for t, term in enumerate(workload.terms):
        source = term.as_product()
        if source is None or term.rows > WORKLOAD_LIMITS.array_entries:
            continue
        if not set(target.attributes) <= set(source.attributes):
            continue
        rollup = Rollup(t, source, target)
        if all(
            source.answers_of(wanted, np.zeros((source.rows, 0))) is not None
            for source, wanted in rollup.pairs
        ):
            out.append(rollup)
    return sorted(out, key=lambda rollup: (prod(rollup.source.row_shape), rollup.term))


def rollup_frame(estimates: Estimates, target: Product, level: float) -> pd.DataFrame:
    """Answers to queries that released groups tell, as `answers` has them.

    ``frame.attrs["basis"]`` says what they are made of.
    """
    import pandas as pd

    check_rows(target.rows)
    names = [t.name for t in estimates.workload.terms]
    further = None
    if rollups_of(estimates.workload, target):
        further = estimates.further(target, level)
    if further is None:
        raise WorkloadError(
            f"no group is over exactly the attributes {listing(target.attributes, 30)}, and none "
            f"holds them with others; the groups are: {listing(names, 100)}; ask with group=NAME, "
            "or for all with answers()"
        )
    frame = pd.DataFrame({**columns_of(target), **further.columns})
    frame.attrs["basis"] = further.basis
    return frame


# Chosen ranges of an attribute


Ends = tuple[object, object]  # the least and the greatest value of a range


def range_frame(
    estimates: Estimates,
    attr: str,
    between: Sequence[Ends],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """One row per asked range and cell of ``by``: its ends, then its numbers."""
    import pandas as pd

    domain = estimates.workload.domain
    names = domain.in_order([attr, *by])
    chosen = _intervals(domain[attr], between)
    factors = tuple((n, chosen if n == attr else Identity(domain[n].size)) for n in names)
    product = Product(domain, f"ranges {attr}", 1.0, factors)
    further = estimates.further(product, level)
    if further is None:
        usable = [t.name for t in estimates.workload.terms if attr in t.attributes]
        raise WorkloadError(
            f"no released group gives single ranges of {attr!r}"
            + (f" by {listing(list(by))}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for its "
            "ranges in the workload, or combine answers with combine(...)"
        )
    frame = pd.DataFrame({**columns_of(product), **further.columns})
    frame.attrs["basis"] = further.basis
    return frame


def _intervals(attribute: Attribute, between: Sequence[Ends]) -> Intervals:
    """The cells of every range; both ends belong to it."""
    if not isinstance(between, Sequence) or not len(between):
        raise WorkloadError("no range was asked: give pairs of a least and a greatest value")
    cells: dict[tuple[str, object], int] = {}

    def cell(comparison: str, value: object) -> int:
        """The first cell at or above a value, or the number of cells at or below it."""
        if (comparison, value) not in cells:
            inside = np.flatnonzero(attribute.select(comparison, value))  # type: ignore[arg-type]
            is_first = comparison == ">="
            none = attribute.size if is_first else 0
            last = int(inside[-1]) + 1 if len(inside) else none
            cells[comparison, value] = int(inside[0]) if is_first and len(inside) else last
        return cells[comparison, value]

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
