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

**Quantiles** and medians come from released running totals, with intervals. Let C(t) be the true
number of records in cells 0..t of an ordered attribute, n the number in all its declared cells, and
``q = min {t : C(t) >= p n}`` the p-quantile. Then

    C(q) >= p n       and       C(q - 1) < p n.

A cell t is kept when the released intervals do not contradict this: the upper end of C(t) reaches
p times the lower end of n, and the lower end of C(t - 1) stays below p times the upper end of n.
q is fixed by the data, so only four one-sided intervals matter, those of C(q), C(q - 1) and n
(twice); with each missing its truth with probability at most (1 - level) / 4, the kept cells hold
q with probability at least ``level``: pointwise intervals are enough, and no independence is used.
Where n is public only two of them are left, with (1 - level) / 2 each. n is read off the end of the
curve, or off a more precise table if one was released; no matter which, the argument holds.
Reported is the hull of the kept cells, from the lower end of the first bin to the upper end of the
last.

The value itself comes from the nearest rising curve (isotonic regression: Barlow, Bartholomew,
Bremner, Brunk 1972, "Statistical inference under order restrictions"), linear inside a bin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute, DateTime, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.release.estimates import Band, Estimates
from sfumato.release.labels import (
    Labels,
    cell_labels,
    columns_of,
    has_whole_days,
    lower_ends,
    texts_of,
    upper_ends,
)
from sfumato.release.release_limits import LIMITS
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array, Integers
from sfumato.workload.build import cell_queries
from sfumato.workload.queries import Identity, Intervals, Prefix, QuerySet, Total
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Statistic, Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.strategy.base import Strategy

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
    "likely_rollups",
    "long_frame",
    "long_numbers",
    "named_groups",
    "number_parts",
    "parts_of",
    "plural_of",
    "quantile_frame",
    "range_frame",
    "rollup_frame",
    "rollups_of",
    "rows_along",
    "running_totals",
    "share_columns",
    "shares_of",
    "totals_quantiles",
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

    def adjoint(self, coefficients: Array) -> Array:
        """``T'c``."""
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([target.rows for _, target in self.pairs])
        for axis, factor in enumerate(self._factors):
            along = np.tensordot(factor.T, np.moveaxis(table, axis, 0), axes=1)
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
            moments = self.moments(forecast.strategy, forecast.block_variances)
        if moments is None:
            moments = self._followed(forecast, values)
        if moments is None:
            return None
        second, fourth = moments
        shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
        is_normal = forecast.strategy.noise == "gaussian"
        return np.sqrt(second), np.full_like(shapes, np.inf) if is_normal else shapes

    def moments(self, strategy: Strategy, variances: Sequence[float]) -> tuple[Array, Array] | None:
        """``sum e_j`` and ``sum e_j^2`` of every row of T; None where T is too large.

        Args:
            strategy: What answers the source.
            variances: Of the noise of every block.

        Returns:
            Both, followed back to what was measured.
        """
        if self.factor_entries > LIMITS.rollup_entries:
            return None
        second, fourth = np.zeros(self.target.rows), np.zeros(self.target.rows)
        try:
            for i, row in enumerate(self.rows()):
                for b, weights in strategy.adjoint(self.term, row).items():
                    part = weights**2 * variances[b]
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


def likely_rollups(forecast: Forecast, target: Product) -> list[Rollup]:
    """Of the released groups that tell some queries, those that may do so with the least error.

    The ones with the fewest answers, and the ones whose answers have the least total variance: that
    is the error of sums, as far as errors have nothing in common. Both are public.
    """
    rollups, few = rollups_of(forecast.workload, target), LIMITS.rollup_groups
    if len(rollups) <= few:
        return rollups
    variances = forecast.block_variances
    sharp = sorted(rollups[few:], key=lambda r: forecast.strategy.total_variance(r.term, variances))
    return rollups[:few] + sharp[:few]


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
    estimates: Estimates, attr: str, between: Sequence[Ends], by: Sequence[str], level: float
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


def quantile_frame(
    estimates: Estimates, attr: str, probabilities: Sequence[float], by: Sequence[str], level: float
) -> pd.DataFrame:
    """Quantiles of an attribute for each cell of the ``by`` attributes.

    The true quantile is enclosed by ``low`` and ``high`` with probability at least ``level``;
    where there is no record it is undefined and nothing is claimed.
    """
    import pandas as pd

    domain = estimates.workload.domain
    attribute = domain[attr]
    if not attribute.is_ordered:
        raise WorkloadError(
            f"attribute {attr!r} is a {attribute.kind} and has no order; quantiles need an "
            "integer, numeric or datetime attribute"
        )
    if attr in by:
        raise WorkloadError(f"{attr!r} cannot be both the attribute and in by")
    numbers = [isinstance(p, int | float) and 0 < p < 1 for p in probabilities]
    if not numbers or not all(numbers):
        raise WorkloadError(
            f"quantiles need probabilities strictly between 0 and 1, got {list(probabilities)}"
        )
    order = domain.in_order(by)
    band = estimates.band(attribute, order, level)
    if band is None:
        products = [p for t in estimates.workload.terms if (p := t.as_product()) is not None]
        usable = [p.name for p in products if attr in p.attributes]
        raise WorkloadError(
            f"no released group gives the running totals of {attr!r}"
            + (f" by {listing(order)}" if order else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for "
            f"prefixes of {attr!r} or a table over these attributes in the workload"
        )
    points, lows, highs, inside = _invert(band, probabilities)
    values = _values_at(attribute, points, inside)
    # A published quantile lies in its own interval; where there is none, its cell is -1.
    lows, highs = np.where(points >= 0, np.minimum(lows, points), lows), np.maximum(highs, points)
    columns: dict[str, Labels] = {}
    shape = [domain[name].size for name in order]
    cells = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), dtype=np.int64)
    for name in by:
        labels = cell_labels(domain[name])[cells[order.index(name)]]
        columns[name] = np.repeat(labels, len(probabilities))
    columns["probability"] = np.tile(np.asarray(probabilities, dtype=np.float64), len(lows))
    frame = pd.DataFrame(columns)
    frame["value"] = pd.Series(values).where(pd.Series(points.reshape(-1) >= 0))
    frame["low"] = lower_ends(attribute)[lows.reshape(-1)]
    frame["high"] = upper_ends(attribute)[highs.reshape(-1)]
    return frame


def totals_quantiles(
    estimates: Estimates, term: int, attr: str, probability: float, level: float
) -> tuple[Labels, Labels, Labels]:
    """Quantiles read off the running totals of a group of queries: values, low and high ends.

    Let ``x_1 <= ... <= x_n`` be the values. SQL's PERCENTILE_DISC is x_k for ``k = ceil(p n)``,
    PERCENTILE_CONT lies between x_k and x_(k+1) for ``k = floor(1 + p (n - 1))``. So every value
    that one of them can be lies between two values x_j whose number has ``p (n - 1) < j`` and
    ``j <= p (n - 1) + 2``. The cell t of such a value has ``C(t) >= j`` and ``C(t - 1) < j``, so it
    is kept when the upper end of C(t) is above ``p (n - 1)`` at the lower end of n, and the lower
    end of C(t - 1) is below ``p (n - 1) + 2`` at the upper end of n. Two cells matter, hence the
    intervals of four totals and of n, each of which misses with probability (1 - level) / 5.
    """
    product = estimates.workload.terms[term].as_product()
    if product is None:
        raise WorkloadError(f"group {term} holds no running totals of {attr!r}")
    attribute = estimates.workload.domain[attr]
    answers = estimates.group(term)
    ends = answers.interval(1 - (1 - level) / 5)
    rows = [rows_along(product, attr, n) for n in (answers.value(), *ends)]
    value, lower, upper = (n[:, : attribute.value_count] for n in rows)
    # Learned answers have no ends where nothing that was measured tells them.
    lower = np.where(np.isnan(lower), 0.0, np.maximum(lower, 0.0))
    upper = np.where(np.isnan(upper), np.inf, np.maximum(upper, 0.0))
    curve = np.maximum.accumulate(np.maximum(value, 0.0), axis=1)
    p = probability
    least = np.maximum(p * (lower[:, -1:] - 1), 0.0) / p
    most = (p * (upper[:, -1:] - 1) + 2) / p
    band = Band(lower, upper, least, most, curve)
    points, lows, highs, inside = _invert(band, [p])
    values = _values_at(attribute, points, inside)
    lows, highs = np.where(points >= 0, np.minimum(lows, points), lows), np.maximum(highs, points)
    is_known = points.reshape(-1) >= 0
    empty = np.datetime64("NaT") if values.dtype.kind == "M" else np.nan
    shown = values if is_known.all() else np.where(is_known, values, empty)
    low, high = lower_ends(attribute)[lows.reshape(-1)], upper_ends(attribute)[highs.reshape(-1)]
    return shown, low, high


def _invert(
    band: Band, probabilities: Sequence[float]
) -> tuple[Integers, Integers, Integers, Array]:
    """Cells of the value, of the ends, and where inside its bin the value lies.

    Arrays of one row per ``by`` cell and one column per probability; a value of -1 is unknown.
    """
    rows, cells = band.curve.shape
    points, lows, highs = (np.zeros((rows, len(probabilities)), dtype=np.int64) for _ in range(3))
    inside = np.zeros((rows, len(probabilities)))
    before = np.concatenate([np.full((rows, 1), -np.inf), band.lower[:, :-1]], axis=1)
    each = np.arange(rows)
    is_known = band.curve[:, -1] > 0
    for j, p in enumerate(probabilities):
        possible = (band.upper >= p * band.least) & (before < p * band.most)
        target = p * band.curve[:, -1:]
        point = np.argmax(band.curve >= target, axis=1)
        possible[each, point] = True  # a wider set keeps the claim
        possible[~is_known] = True
        lows[:, j] = np.argmax(possible, axis=1)
        highs[:, j] = cells - 1 - np.argmax(possible[:, ::-1], axis=1)
        start = np.where(point > 0, band.curve[each, point - 1], 0.0)
        step = band.curve[each, point] - start
        with np.errstate(divide="ignore", invalid="ignore"):
            inside[:, j] = np.where(step > 0, (target[:, 0] - start) / step, 0.5)
        points[:, j] = np.where(is_known, point, -1)
    return points, lows, highs, np.clip(inside, 0.0, 1.0)


def _values_at(attribute: Attribute, cells: Integers, inside: Array) -> Labels:
    """The point of each bin at the given part of its width, as the attribute's own kind."""
    at = np.maximum(cells.reshape(-1), 0)
    part = inside.reshape(-1)
    low, high = lower_ends(attribute)[at], upper_ends(attribute)[at]
    if isinstance(attribute, DateTime):
        steps = (high - low).astype(np.int64) * part
        moments = low + steps.astype("timedelta64[us]")
        if has_whole_days(attribute):
            return np.asarray(moments.astype("datetime64[D]").astype("datetime64[us]"))
        return np.asarray(moments)
    if isinstance(attribute, Integer):
        return low + np.floor((high - low).astype(np.float64) * part).astype(np.int64)
    return np.asarray(low + (high - low) * part, dtype=np.float64)


def running_totals(domain: Domain, attr: str, by: Sequence[str]) -> Product:
    """The queries behind quantiles: records up to each cell, for every cell of ``by``."""
    factors = tuple(
        (n, Prefix(domain[n].size) if n == attr else Identity(domain[n].size))
        for n in domain.in_order([attr, *by])
    )
    return Product(domain, "running totals", 1.0, factors)


def rows_along(product: Product, attr: str, numbers: Array) -> Array:
    """Numbers of a product: one row per ``by`` cell, one column per query about the attribute."""
    table = np.asarray(numbers, dtype=np.float64).reshape(product.row_shape)
    turned = np.moveaxis(table, product.attributes.index(attr), -1)
    return turned.reshape(-1, turned.shape[-1])
