# SPDX-License-Identifier: Apache-2.0
"""The same sums over other cells of their columns: means, variances and counts share cells.

The sum of a number over the records, their number and the sum of its square are linear in the
cells of an integer (one cell per number), in those of its values (`Values`, two cells) and in those
of its moments (`Moments`, four). So a query over the one is a query over the other, with other
coefficients and the same answer. Where a workload asks of one column over several of them, each
would be measured by itself. Over the finest of them all are measured together, and whatever could
be measured apart can be measured there with no more noise: the weights of coarse cells are averages
of those of fine ones (docs/proofs/values.md, Theorem 4). Which is best is for the planner to say,
by its forecasts: ``representations`` lists them.

A mean is a sum over a number, and errs as ``sum - mean number`` does. Both could be measured well
for themselves and their difference badly, where numbers lie far from 0. So beside the sum of an
integer whose mean is asked the sum around the middle of its range is planned, in its place: the sum
follows from it and the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from sfumato.domain.attributes import Attribute, Integer
from sfumato.domain.domain import Domain, base_of, joined, with_moments, with_values
from sfumato.domain.values import UNIT_BITS, Fractional, Moments, Values
from sfumato.errors import WorkloadError
from sfumato.types import Array, Integers
from sfumato.workload.queries import VALUE_BITS, Matrix, QuerySet
from sfumato.workload.terms import Term
from sfumato.workload.workload import Ratio, SecondMoment, Statistic, Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = ["Representation", "plain_means", "plain_sums", "representations"]

Powers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Representation:
    """A way to write sums: over which cells those of each attribute are.

    Args:
        domain: The domain with the attributes that are written over.
        targets: For an attribute the one over whose cells its sums are written.
        centred: The groups of sums, by their numbers, in whose place those around the middle of the
            range matter to the planner: groups at the end.
    """

    domain: Domain
    targets: Mapping[str, str]
    centred: tuple[int, ...] = ()

    def of(self, workload: Workload) -> Workload:
        """The workload with its sums over these cells, group by group, row by row."""
        domain = joined([self.domain, workload.domain])
        terms = [replace(self.term(t), domain=domain) for t in workload.terms]
        for place in self.centred:
            around = self.term(_around_middle(workload.terms[place]))
            terms.append(replace(around, domain=domain))
            terms[place] = terms[place].weighted(LIMITS.centred_weight)
        return Workload(domain, tuple(terms))

    def shown(self, workload: Workload) -> Workload:
        """The workload as it is, with what the rounding of these cells can hide."""
        hiding = tuple(self._hiding(r, workload) for r in workload.ratios)
        return workload if hiding == workload.ratios else replace(workload, ratios=hiding)

    def term(self, term: Term) -> Term:
        """The same queries over these cells; those that are no sums stay as they are."""
        table = term.as_product()
        if table is None or not any(name in self.targets for name in table.attributes):
            return term
        factors = dict(table.factors)
        for name, queries in table.factors:
            target = self.domain[self.targets.get(name, name)]
            sums = None if target.name in factors else _sums(term.domain[name], queries)
            written = None if sums is None else sums.over(target)
            if written is not None:
                del factors[name]
                factors[target.name] = written
        domain = joined([self.domain, term.domain])
        order = domain.in_order(factors)
        pairs = tuple((n, factors[n]) for n in order)
        return replace(table, domain=domain, weight=term.weight, factors=pairs)

    def places(self, term: Term) -> Integers | None:
        """For every query of a group its place in `term`; None where the order is the same.

        Queries go with the order of their attributes in the domain, and other cells of a column may
        be those of another attribute.
        """
        table, written = term.as_product(), self.term(term).as_product()
        if table is None or written is None or written is table:
            return None
        names = [self.targets.get(n, n) for n in table.attributes]
        names = [n if n in written.attributes else o for n, o in zip(names, table.attributes,
                                                                     strict=True)]  # fmt: skip
        lengths = [queries.rows for _, queries in table.factors]
        axes = [names.index(n) for n in written.attributes]
        numbers = np.empty(term.rows, dtype=np.int64)
        numbers[np.arange(term.rows).reshape(lengths).transpose(axes).reshape(-1)] = np.arange(
            term.rows
        )
        return None if (numbers == np.arange(term.rows)).all() else numbers

    def _hiding(self, statistic: Statistic, workload: Workload) -> Statistic:
        """The statistic with what the rounding of these cells can hide of it."""
        if not isinstance(statistic, Ratio | SecondMoment):
            return statistic
        names = workload.terms[statistic.terms[0]].attributes
        cells = [self.domain[self.targets[n]] for n in names if n in self.targets]
        hidden = max((_rounding(each) for each in cells), default=0.0)
        if isinstance(statistic, Ratio):
            hidden *= max((v.ends[1] - v.ends[0] for c in cells for v in _values(c)), default=0.0)
        return replace(statistic, hidden=statistic.hidden + hidden)


def _rounding(cells: Attribute) -> float:
    """How far a mean of a power over these cells can be off, for values in [-1, 1]."""
    if isinstance(cells, Moments):
        return cells.rounding
    return 2.0 ** (2 - VALUE_BITS) if isinstance(cells, Integer) else 2.0 ** (2 - UNIT_BITS)


@dataclass(frozen=True, eq=False, slots=True)
class _PowerSums:
    """Queries as polynomials: of the columns of ``of``, with values in [-1, 1]."""

    of: Attribute
    powers: tuple[Powers, ...]
    coefficients: Array

    def over(self, target: Attribute) -> Matrix | None:
        """The same queries over the cells of another attribute; None where they are not theirs."""
        own, theirs = _columns(self.of), _columns(target)
        if target.name == self.of.name or not set(own) <= set(theirs):
            return None
        if len(theirs) > len(own) and any(v.size > v.value_count for v in _values(target)):
            return None  # records that lack one of the numbers count in one, not in the other
        basis = _basis(target)
        places = [theirs.index(name) for name in own]
        rows = np.zeros((len(self.coefficients), target.size))
        for powers, column in zip(self.powers, self.coefficients.T, strict=True):
            wide = [0] * len(theirs)
            for place, power in zip(places, powers, strict=True):
                wide[place] = power
            if column.any() and tuple(wide) not in basis:
                return None
            if column.any():
                rows += np.outer(column, basis[tuple(wide)])
        return Matrix.of_values(rows, title="sums")


def _sums(attribute: Attribute, queries: QuerySet) -> _PowerSums | None:
    """Queries over an attribute as polynomials of its columns; None where they are none."""
    is_small = isinstance(attribute, Integer) and attribute.value_count <= LIMITS.recoded_cells
    if not _values(attribute) or is_small or queries.rows > LIMITS.recoded_sums:
        return None
    basis = _basis(attribute)
    matrix = np.stack(list(basis.values()))
    dense = queries.dense()
    solved = np.linalg.lstsq(matrix.T, dense.T, rcond=None)[0]
    coefficients = np.asarray(solved.T, dtype=np.float64)
    coefficients[np.abs(coefficients) < LIMITS.recoded_error * np.abs(dense).max()] = 0.0
    gap = np.abs(coefficients @ matrix - dense).max()
    if gap > LIMITS.recoded_error * np.abs(dense).max():
        return None
    return _PowerSums(attribute, tuple(basis), coefficients)


def _values(attribute: Attribute) -> tuple[Values, ...]:
    """The values that the cells of an attribute tell; nothing where they tell none exactly.

    Of integers with a cell each, unless numbers beside the range, or between integers, are clamped
    to a cell: then the number of a record is another one.
    """
    if isinstance(attribute, Fractional):
        return attribute.sources
    is_exact = isinstance(attribute, Integer) and attribute.width == 1
    if not is_exact or attribute.outside == "clamp" or attribute.value_count < 2:
        return ()
    return (Values.of_attribute(attribute),)


def _columns(attribute: Attribute) -> tuple[str, ...]:
    return tuple(values.of.name for values in _values(attribute))


def _basis(attribute: Attribute) -> dict[Powers, Array]:
    """The sum of every product of powers, of values in [-1, 1], as coefficients over the cells."""
    if isinstance(attribute, Moments):
        every = product(range(attribute.degree + 1), repeat=len(attribute.of))
        return {powers: attribute.coefficients(powers) for powers in every}
    count = attribute.value_count
    is_spread = isinstance(attribute, Values)
    u = np.linspace(-1.0, 1.0, count)
    rows = [np.ones(count), u]
    if is_spread and count > 2:
        rows.append(np.array([1.0, -1.0, 1.0]))
    if not is_spread:
        rows += [u**2] * (count > 2)
    rest = np.zeros(attribute.size - count)
    return {(k,): np.concatenate([row, rest]) for k, row in enumerate(rows)}


def plain_sums(workload: Workload) -> tuple[int, ...]:
    """The groups of the normal form that are sums, and not around the middle of the range."""
    terms = enumerate(workload.normal.workload.terms)
    return tuple(t for t, term in terms if _plain_sum(term) is not None)


def plain_means(workload: Workload) -> tuple[int, ...]:
    """Those of them whose means are asked."""
    pieces = workload.normal.pieces
    numerators = [r.numerator for r in workload.ratios if isinstance(r, Ratio)]
    own = {pieces[t][0].term for t in numerators if len(pieces[t]) == 1}
    return tuple(t for t in plain_sums(workload) if t in own) if own else ()


def _plain_sum(term: Term) -> str | None:
    """The attribute whose numbers a group sums, one sum for each cell of the others."""
    table = term.as_product()
    if table is None:
        return None
    for name, queries in table.factors:
        sums = _sums(term.domain[name], queries) if queries.rows == 1 else None
        if sums is not None and len(_columns(sums.of)) == 1:
            row = sums.coefficients[0]
            if row[0] and row[1] and not row[2:].any():
                return name
    return None


def _around_middle(term: Term) -> Term:
    """The sums of a group around the middle of the range, in their own unit."""
    table, name = term.as_product(), _plain_sum(term)
    assert table is not None  # noqa: S101  plain_sums
    assert name is not None  # noqa: S101  plain_sums
    attribute = term.domain[name]
    row = _basis(attribute)[1,]
    width = max(values.ends[1] - values.ends[0] for values in _values(attribute))
    centred = Matrix.of_values(row * width, title="sums")
    factors = tuple((n, centred if n == name else q) for n, q in table.factors)
    unit = term.weight * term.greatest
    around = replace(table, name=f"{term.name} around the middle", weight=unit, factors=factors)
    return around.in_its_own_unit()


def representations(workload: Workload, centred: tuple[int, ...] = ()) -> list[Representation]:
    """The ways to write the sums of a workload that are worth a forecast, besides its own.

    Columns are treated alike: sums of all of them over the finest cells that any of their sums are
    over, over those of products of several columns, over the cells of integers, or over values in
    place of these.

    Args:
        workload: What is asked, in its normal form.
        centred: The groups of sums whose means are to err little; with its own cells, too.

    Returns:
        The representations that change at least one query; each once.
    """
    uses = _uses(workload)
    if not uses:
        return []
    out: dict[tuple[tuple[str, str], ...], Representation] = {}
    if centred:
        out[()] = Representation(workload.domain, {}, centred)
    for one in _proposed(workload.domain, uses):
        changed = {n: t for n, t in one.targets.items() if n != t}
        key = tuple(sorted(changed.items()))
        if key and key not in out and one.of(workload).digest() != workload.digest():
            out[key] = replace(one, targets=changed, centred=centred)
    return list(out.values())


@dataclass(frozen=True, eq=False)
class _Use:
    """How an attribute is asked about: by sums of which degree, and by what is no sum."""

    attribute: Attribute
    degree: int
    has_others: bool

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return _columns(self.attribute)


def _uses(workload: Workload) -> dict[str, _Use]:
    """The attributes whose cells tell numbers, with what is asked of them; none without sums."""
    degrees: dict[str, int] = {}
    others: set[str] = set()
    for term in workload.terms:
        table = term.as_product()
        if table is None:
            others.update(term.attributes)
            continue
        for name, queries in table.factors:
            sums = _sums(workload.domain[name], queries)
            if sums is None:
                others.add(name)
            else:
                used = np.asarray(sums.coefficients.any(axis=0), dtype=bool).tolist()
                most = max((max(p) for p, is_used in zip(sums.powers, used, strict=True)
                            if is_used), default=0)  # fmt: skip
                degrees[name] = max(most, degrees.get(name, 0))
    if not degrees:
        return {}
    names = {n for n in (*degrees, *others) if _values(workload.domain[n])}
    return {n: _Use(workload.domain[n], degrees.get(n, 0), n in others) for n in names}


def _proposed(domain: Domain, by_name: Mapping[str, _Use]) -> Iterator[Representation]:
    of_column: dict[str, list[_Use]] = {}
    for use in by_name.values():
        for column in use.columns:
            of_column.setdefault(column, []).append(use)
    yield _finest(domain, of_column)
    yield _together(domain, by_name.values())
    cells = {
        use.attribute.name: column
        for column, uses in of_column.items()
        for use in uses
        if use.columns == (column,) and _values(domain[column])
    }
    yield Representation(domain, cells)


def _finest(domain: Domain, of_column: Mapping[str, list[_Use]]) -> Representation:
    """Every column by itself: values, or moments where squares are asked."""
    targets: dict[str, str] = {}
    wide = base_of(domain)
    for column, uses in of_column.items():
        own = [u for u in uses if u.columns == (column,) and not u.has_others]
        if not own:
            continue
        try:
            wide, cells = _cells_of(wide, column, max(u.degree for u in own))
        except WorkloadError:
            continue
        targets |= {u.attribute.name: cells for u in own}
    return Representation(joined([wide, domain]), targets)


def _cells_of(domain: Domain, column: str, degree: int) -> tuple[Domain, str]:
    if degree < 2:
        wide, values = with_values(domain, column)
        return wide, values.name
    wide, moments = with_moments(domain, [column], 2)
    return wide, moments.name


def _together(domain: Domain, uses: Iterable[_Use]) -> Representation:
    """Columns of which products are asked, over the cells of all of them."""
    own = [u for u in uses if not u.has_others]
    clusters: list[set[str]] = []
    for use in own:
        if len(use.columns) > 1:
            joint = set(use.columns)
            for other in [c for c in clusters if c & joint]:
                joint |= other
                clusters.remove(other)
            clusters.append(joint)
    wide, targets = base_of(domain), dict[str, str]()
    for cluster in clusters:
        inside = [u for u in own if set(u.columns) <= cluster]
        if len(cluster) > LIMITS.moment_columns:
            continue
        degree = max(1, *(u.degree for u in inside))
        wide, moments = with_moments(wide, sorted(cluster, key=domain.index), degree)
        targets |= {u.attribute.name: moments.name for u in inside}
    return Representation(joined([wide, domain]), targets)
