# SPDX-License-Identifier: Apache-2.0
"""A workload: what is asked, as a weighted union of terms over one domain.

`Workload` is what people write with `build.py` and the planner plans for. `Gram` is its matrix
``V = F'WF``, which the planner optimises against: for a union of products a sum of Kronecker
products of 1-D Gram matrices, each applied in O(cells) however many queries there are; F itself is
never built.

`scanned_tables` says which tables an engine counts so that all tables of a workload follow from
them. A GROUP BY costs a pass over the records, and little more for a hundred thousand cells than
for a hundred. All pairs of 12 attributes of 10 cells are 66 tables, but they lie within 10 tables
over 5 attributes. What is counted beyond the request never leaves the function that counts. Public
arithmetic: planning states the scans and their memory before the vault makes them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, combinations
from math import comb, inf, sqrt
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

import numpy as np

from sfumato.digest import sha256
from sfumato.domain.domain import Domain, joined
from sfumato.errors import TooLarge, WorkloadError
from sfumato.text import shown
from sfumato.types import Array, Numbers
from sfumato.workload.queries import Prefix, check_entries, widened
from sfumato.workload.sensitivity import SensitivityBound, greatest_column_power
from sfumato.workload.terms import StructuredLabel, Term
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.workload.normal_form import Normal
    from sfumato.workload.statements.statement import Statement

__all__ = [
    "CELLS_TOGETHER",
    "RECORD_BITS",
    "WORD_BITS",
    "EngineName",
    "Form",
    "Gram",
    "Ratio",
    "SecondMoment",
    "SecondMomentKind",
    "Statistic",
    "StatisticAnswers",
    "Workload",
    "answer_bits",
    "check_listed",
    "counted_sets",
    "cover",
    "is_counted_alone",
    "marginal",
    "most_groups",
    "scanned_tables",
    "shorter",
    "spread",
    "summed_from",
    "tables_by_query",
    "union",
]


@dataclass(frozen=True, eq=False)
class Gram:
    """``V = sum_t weight_t^2 F_t' F_t`` over the cells of the domain."""

    domain: Domain
    terms: tuple[Term, ...]

    def apply(self, x: Numbers) -> Array:
        """``V x`` for an array of the domain's shape."""
        check_entries(self.domain.size, "a vector over all cells of the domain")
        table = np.asarray(x, dtype=np.float64)
        if table.size != self.domain.size:
            raise WorkloadError(
                f"a vector over the cells has {self.domain.size:,} entries, got {table.size:,}"
            )
        table = table.reshape(self.domain.shape)
        out = np.zeros(self.domain.shape)
        for term in self.terms:
            reduced = marginal(table, self.domain, term.attributes)
            part = term.gram_apply(reduced)
            out += term.weight**2 * spread(part, self.domain, term.attributes)
        return out

    def dense(self) -> Array:
        """V as a matrix over the cells in row-major order."""
        m = self.domain.size
        check_entries(m * m, f"the Gram matrix of {m:,} cells (apply needs no matrix)")
        unit = np.eye(m)
        return np.array([self.apply(row).reshape(-1) for row in unit])

    def trace(self) -> float:
        """The sum over queries of the squared row norm."""
        return sum(t.weight**2 * self._squares(t) for t in self.terms)

    def _squares(self, term: Term) -> float:
        """``|F_t|^2`` over all cells of the domain; infinite when floats cannot say it."""
        repeats = self.domain.size // term.cells
        outside = float(repeats) if repeats < 2**1000 else inf
        return outside * term.squared_norm()


def marginal(table: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """The table summed over every attribute that is not named."""
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    return np.asarray(table.sum(axis=rest, dtype=table.dtype))


def spread(part: Numbers, domain: Domain, names: Sequence[str]) -> Numbers:
    """The adjoint of `marginal`: the part repeated along every attribute that is not named."""
    shape = [a.size if a.name in names else 1 for a in domain]
    return np.broadcast_to(part.reshape(shape), domain.shape)


Published = TypeVar("Published", covariant=True)


class StatisticAnswers(Protocol[Published]):
    """What publishes statistics of several answers, one method for each kind."""

    def means(self, ratio: Ratio, level: float) -> Published:
        """The quotients of a ratio."""
        ...

    def second_moments(self, moment: SecondMoment, level: float) -> Published:
        """Variances, covariances, or what follows from them."""
        ...


class Statistic(Protocol):
    """What follows from the answers of several groups, row by row, and is not linear."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def terms(self) -> tuple[int, ...]:
        """The groups that it follows from; its labels are those of the first."""
        ...

    @property
    def column(self) -> str:
        """The column that holds it in answers: ``mean``, ``variance``."""
        ...

    @property
    def key(self) -> list[object]:
        """What tells it from others, for stored responses."""
        ...

    def placed(self, at: Sequence[int]) -> Statistic:
        """The same where its groups, by their numbers, stand at other places."""
        ...

    def renamed(self, name: str) -> Statistic:
        """The same by another name."""
        ...

    def published(self, answers: StatisticAnswers[Published], level: float) -> Published:
        """What is published of it."""
        ...


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of two asked terms, row by row: ``offset + scale * numerator / denominator``.

    A mean is a sum over a count; that of values is asked as ``sum (x - middle) / half``, which is
    measured best, so the middle of the range is its offset and half the range its scale.
    ``hidden`` is how far it can be from the mean of the clamped values, whatever the data are: by
    the grid of the values, or by bins in whose middle every record was put.
    """

    name: str
    numerator: int
    denominator: int
    scale: float = 1.0
    offset: float = 0.0
    hidden: float = 0.0

    @property
    def terms(self) -> tuple[int, ...]:
        """The sum and the number of records."""
        return self.numerator, self.denominator

    @property
    def column(self) -> str:
        """A mean."""
        return "mean"

    @property
    def key(self) -> list[object]:
        """Its name and groups."""
        return [self.name, *self.terms]

    def placed(self, at: Sequence[int]) -> Ratio:
        """The same where its groups, by their numbers, stand at other places."""
        return replace(self, numerator=at[self.numerator], denominator=at[self.denominator])

    def renamed(self, name: str) -> Ratio:
        """The same by another name."""
        return replace(self, name=name)

    def published(self, answers: StatisticAnswers[Published], level: float) -> Published:
        """The means."""
        return answers.means(self, level)


Form = tuple[float, ...]
"""Coefficients of the answers of several groups: a linear function of them, row by row."""

SecondMomentKind = Literal["variance", "standard_deviation", "covariance", "correlation"]


@dataclass(frozen=True, slots=True)
class SecondMoment:
    """A variance or covariance, or what follows from it, of values in [-1, 1] and their halves.

    With u and v the columns moved and scaled to [-1, 1], the forms are N, the sums of u, v and u v,
    and for a correlation those of u^2 and v^2, as linear functions of the asked ``terms``. The
    covariance is ``half_u half_v (sum uv / N - (sum u / N) (sum v / N))``. A variance is the
    covariance of a column with itself. ``hidden`` bounds what the grid of the values can hide of
    each mean of a product; ``lost`` is 1 where the divisor is N - 1.
    """

    name: str
    kind: SecondMomentKind
    columns: tuple[str, str]
    terms: tuple[int, ...]
    forms: tuple[Form, ...]
    middles: tuple[float, float]
    halves: tuple[float, float]
    hidden: float = 0.0
    lost: int = 0

    @property
    def column(self) -> str:
        """The kind."""
        return self.kind

    @property
    def key(self) -> list[object]:
        """Its name, kind and groups, and how it follows from them."""
        return [self.name, self.kind, list(self.terms), [list(f) for f in self.forms], self.lost]

    @property
    def is_of_one_column(self) -> bool:
        """Whether it is about the spread of one column."""
        return self.columns[0] == self.columns[1]

    def placed(self, at: Sequence[int]) -> SecondMoment:
        """The same where its groups, by their numbers, stand at other places."""
        return replace(self, terms=tuple(at[t] for t in self.terms))

    def renamed(self, name: str) -> SecondMoment:
        """The same by another name."""
        return replace(self, name=name)

    def published(self, answers: StatisticAnswers[Published], level: float) -> Published:
        """The variances, covariances or what follows from them."""
        return answers.second_moments(self, level)


@dataclass(frozen=True, eq=False)
class Workload:
    """Linear queries in groups (terms), all over one domain.

    ``|`` joins workloads and ``*`` says how much one matters to the planner; neither changes
    what an answer means.

    Args:
        domain: What a record may look like.
        terms: The groups of queries.
        ratios: Which groups have means, variances or covariances that follow from them.
        statements: The SELECTs that it was written as: which of its answers their columns are.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> work = sf.marginals(domain, 1) | 2 * sf.prefixes(domain, "age", by=["sex"])
    >>> len(work)
    302
    """

    domain: Domain
    terms: tuple[Term, ...]
    ratios: tuple[Statistic, ...] = ()
    statements: tuple[Statement, ...] = ()

    def __post_init__(self) -> None:
        if not self.terms:
            raise WorkloadError("a workload needs at least one query")
        names = [t.name for t in self.terms]
        if len(set(names)) != len(names):
            object.__setattr__(self, "terms", _with_distinct_names(self.terms))

    @cached_property
    def queries(self) -> int:
        """The number of queries, of any size."""
        return sum(t.rows for t in self.terms)

    @property
    def has_one_weight(self) -> bool:
        """Whether all groups matter alike; sums beside counts do not, nor have they one unit."""
        return len({t.weight for t in self.terms}) == 1

    def __len__(self) -> int:
        if self.queries > sys.maxsize:
            raise TooLarge(f"len() cannot say {self.queries:,}; ask for .queries instead")
        return self.queries

    def __bool__(self) -> bool:
        return True

    def __or__(self, other: Workload) -> Workload:
        if not isinstance(other, Workload):
            return NotImplemented
        return union([self, other])

    def __mul__(self, weight: float) -> Workload:
        if not isinstance(weight, int | float | np.number) or not 0 < weight < float("inf"):
            raise WorkloadError(f"a weight must be a finite number above 0, got {shown(weight)}")
        terms = tuple(t.weighted(float(weight)) for t in self.terms)
        if not all(1 / LIMITS.weight <= t.weight <= LIMITS.weight for t in terms):
            raise WorkloadError(
                f"weights may be {1 / LIMITS.weight:.0e} to {LIMITS.weight:.0e}, all factors "
                f"together; {shown(weight)} goes beyond: only their ratios matter"
            )
        return replace(self, terms=terms)

    __rmul__ = __mul__

    def balanced(self) -> Workload:
        """The same queries, every group of them as important as every other.

        The plain sum of squared errors is that of the group with the most queries: of the blocks,
        not of the counties and states. Here a group's squared errors count by their mean.

        Returns:
            The workload with the weight of every group divided by the root of its queries.

        Raises:
            WorkloadError: The weights would be too far apart.

        >>> import sfumato as sf
        >>> work = sf.marginals(sf.Domain({"place": 100}), [["place"], []])
        >>> [t.weight for t in work.balanced().terms]
        [0.1, 1.0]
        """
        parts = [Workload(self.domain, (t,)) * (1 / sqrt(t.rows)) for t in self.terms]
        return replace(self, terms=tuple(p.terms[0] for p in parts))

    def __repr__(self) -> str:
        return (
            f"Workload({self.queries:,} queries in {len(self.terms)} groups over "
            f"{len(self.domain)} attributes)"
        )

    def evaluate(self, counts: Numbers) -> Array:
        """The exact answers on an array of counts of the domain's shape, group after group.

        Args:
            counts: A histogram: one number per cell, in the shape of the domain.

        Returns:
            One number per query, group after group.

        Raises:
            WorkloadError: The counts have another shape, or are no numbers.
            TooLarge: There are too many cells.
        """
        if self.domain.size > LIMITS.array_entries or self.queries > LIMITS.array_entries:
            raise TooLarge(
                f"{self.queries:,} queries on {self.domain.size:,} cells cannot be evaluated at "
                f"once; the limit is {LIMITS.array_entries:,} of each"
            )
        table = np.asarray(counts)
        if table.shape != self.domain.shape:
            raise WorkloadError(
                f"counts have shape {table.shape}, the domain has {self.domain.shape}"
            )
        is_whole = table.dtype.kind == "O" and all(isinstance(n, int) for n in table.flat)
        if table.dtype.kind not in "iuf" and not is_whole:
            raise WorkloadError(f"counts must be numbers, got an array of {table.dtype}")
        wide = _summable(table)
        return np.concatenate(
            [t.answer(marginal(wide, self.domain, t.attributes)) for t in self.terms]
        )

    def over(self, domain: Domain) -> Workload:
        """The same queries over a domain with more attributes, in the same order.

        Args:
            domain: A domain with all attributes of this one.

        Returns:
            The same queries over that domain.
        """
        if domain is self.domain:
            return self
        return replace(
            self, domain=domain, terms=tuple(replace(t, domain=domain) for t in self.terms)
        )

    def gram(self) -> Gram:
        """``F'WF`` in structured form.

        Returns:
            A sum of Kronecker products, which is never written out.
        """
        return Gram(self.domain, self.terms)

    def sensitivity(self, p: int) -> float:
        """The 1 -> p norm of the queries: how far one record can move the answers, in L_p.

        Args:
            p: 1 or 2.

        Returns:
            The longest column, or a bound above it where it cannot be found.

        Raises:
            WorkloadError: P is neither.
        """
        if p not in (1, 2):
            raise WorkloadError(f"sensitivity is known for p = 1 and p = 2, not {p!r}")
        return float(self.column_norm(p).power ** (1 / p))

    def column_norm(self, p: int) -> SensitivityBound:
        """The p-th power of the sensitivity, and whether it is exact or an upper bound.

        Args:
            p: 1 or 2.

        Returns:
            The bound and whether it is reached.

        Raises:
            WorkloadError: P is neither.
        """
        return greatest_column_power(self.terms, [1.0] * len(self.terms), p)

    @cached_property
    def normal(self) -> Normal:
        """Its normal form: the same key and groups for every writing of the same queries."""
        from sfumato.workload.normal_form import normal_form

        return normal_form(self)

    def digest(self) -> str:
        """SHA-256 of the domain and the groups as they were written; `normal` has the meaning.

        Returns:
            64 hexadecimal digits.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        from sfumato.workload.predicates import canonical_bytes

        head = self.domain.digest().encode()
        return sha256(head + canonical_bytes(self.terms))


def union(works: Sequence[Workload]) -> Workload:
    """All queries of several workloads over one domain, in order."""
    domain = joined([work.domain for work in works])
    terms: list[Term] = []
    ratios: list[Statistic] = []
    statements: list[Statement] = []
    for work in works:
        statements += (s.shifted(len(terms), len(ratios)) for s in work.statements)
        places = range(len(terms), len(terms) + len(work.terms))
        ratios += (r.placed(places) for r in work.ratios)
        terms += work.over(domain).terms
    return Workload(domain, tuple(terms), tuple(ratios), tuple(statements))


def _summable(table: Numbers) -> Numbers:
    """The table in a type that holds the sum of any of its cells."""
    numbers = widened(table)
    is_large = numbers.dtype.kind == "i" and np.abs(numbers.astype(np.float64)).sum() >= 2.0**62
    return numbers.astype(object) if is_large else numbers


def _with_distinct_names(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    taken = {term.name for term in terms}
    seen: dict[str, int] = {}
    out = []
    for term in terms:
        number = seen.get(term.name, 0) + 1
        name = term.name
        while number > 1 and (name == term.name or name in taken):
            name = f"{term.name} ({number})"
            number += name in taken
        seen[term.name] = number
        taken.add(name)
        chosen = term.name.renamed(name) if isinstance(term.name, StructuredLabel) else name
        out.append(term if name == term.name else replace(term, name=chosen))
    return tuple(out)


def check_listed(workload: Workload) -> None:
    """Refuse, before anything is paid for, answers of which a release could not list any form."""
    for term in workload.terms:
        check_entries(shorter(term).rows, f"a release of group {term.name!r}")


def shorter(term: Term) -> Term:
    """Running totals for ranges that are too many to be listed; other groups as they are."""
    product = term.as_product()
    if product is None or term.rows <= LIMITS.array_entries:
        return term
    factors = tuple((n, Prefix(q.size) if q.holds_prefixes else q) for n, q in product.factors)
    return replace(product, name=f"running totals of {term.name}", factors=factors)


# Which tables an engine counts in its scans, and in which steps answers are whole numbers


RECORD_BITS: Final = 44  # a table has fewer than 2^44 records
WORD_BITS: Final = 62  # one bit less than int64 holds

EngineName = Literal["duckdb", "postgres", "spark"]
CELLS_TOGETHER: Final[dict[EngineName, int]] = {
    "duckdb": 2**17,
    "postgres": 2**14,  # a hash table of so many stays within work_mem
    "spark": 2**12,
}
"""The maximum of cells of a table that is counted in place of several requested ones (`cover`)."""

AttributeSet = tuple[str, ...]


def answer_bits(workload: Workload) -> int:
    """The bits after the point of all answers: they are multiples of 2 to minus this.

    Raises:
        TooLarge: 64 bits do not hold all answers.
    """
    bits = max(t.fraction_bits for t in workload.terms)
    reach = max(t.greatest for t in workload.terms) * 2.0 ** (bits + RECORD_BITS)
    if any(t.slack for t in workload.terms) or reach >= 2.0 ** (WORD_BITS - 1):
        raise TooLarge(
            "the coefficients of the queries are too fine or too large to be compared in 64-bit "
            "integers; round them, or scale them down"
        )
    return bits


def counted_sets(terms: Iterable[Term]) -> tuple[list[AttributeSet], list[Term]]:
    """The tables, by their attributes, and the conditions that an engine counts for some terms."""
    sources = [(source, term) for term in terms for source in term.sources()]
    tables = sorted({s.attributes for s, term in sources if not is_counted_alone(s, term)})
    return tables, [s for s, term in sources if is_counted_alone(s, term)]


def is_counted_alone(source: Term, term: Term) -> bool:
    """Whether the engine counts condition by condition: wide ones, and those a term combines.

    Conditions on cells of values are read off their table: a record is in several of these.
    """
    is_alone = bool(source.as_conditions()) and (source.is_wide or source is not term)
    return is_alone and not source.unit_bits


def scanned_tables(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> Mapping[AttributeSet, Sequence[AttributeSet]]:
    """The tables that an engine counts, each with the requested ones that are summed from it.

    ``most`` is the engine's number of `CELLS_TOGETHER`. A plan states what the vault then counts:
    both have it from one computation.
    """
    sources = summed_from(sets, domain)
    return _cover(tuple(names for names in sets if sources[names] == names), domain, most)


@lru_cache(maxsize=2)
def _cover(
    sets: tuple[AttributeSet, ...], domain: Domain, most: int
) -> Mapping[AttributeSet, Sequence[AttributeSet]]:
    return cover(sets, domain, most)


def most_groups(scanned: Iterable[AttributeSet], domain: Domain) -> int:
    """The maximum of cells that one query counts, in as many groups if all are occupied."""
    queries = tables_by_query(list(scanned), domain, LIMITS.tables_per_query)
    return max((sum(map(domain.cells, group)) for group in queries), default=0)


def summed_from(
    sets: Sequence[AttributeSet], domain: Domain
) -> Mapping[AttributeSet, AttributeSet]:
    """For each set, the smallest other set that it is summed from, or itself when scanned."""
    return _summed_from(tuple(sets), domain, LIMITS.cells_summed)


@lru_cache(maxsize=2)
def _summed_from(
    sets: tuple[AttributeSet, ...], domain: Domain, most: int
) -> Mapping[AttributeSet, AttributeSet]:
    sources: dict[AttributeSet, AttributeSet] = {}
    distinct = set(sets)
    for wide in sorted(sets, key=domain.cells):
        if domain.cells(wide) > most:
            break
        for names in _inside(wide, distinct):
            sources.setdefault(names, wide)
    return {names: sources.get(names, names) for names in sets}


def _inside(wide: AttributeSet, sets: set[AttributeSet]) -> list[AttributeSet]:
    """The sets within a wider one, by its subsets or by all sets, whichever are fewer."""
    if 2 ** len(wide) > len(sets):
        return [names for names in sets if len(names) < len(wide) and set(names) <= set(wide)]
    subsets = chain.from_iterable(combinations(wide, k) for k in range(len(wide)))
    return [names for names in subsets if names in sets]


def tables_by_query(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> list[list[AttributeSet]]:
    """The sets that each query counts: at most ``most``, so few that its result stays small."""
    groups: list[list[AttributeSet]] = []
    room = 0
    for names in sets:
        cells = domain.cells(names)
        if not groups or len(groups[-1]) == most or cells > room:
            groups.append([])
            room = LIMITS.cells_per_query
        groups[-1].append(names)
        room -= cells
    return groups


def cover(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> dict[AttributeSet, list[AttributeSet]]:
    """Tables to count, each with the sets that are summed from it; every set once.

    Greedy: a table begins with the largest set that is left, and takes in the attribute that
    completes most others, as long as it has at most ``most`` cells.

    >>> small = Domain({"a": 2, "b": 2, "c": 2})
    >>> cover([("a", "b"), ("a", "c"), ("b", "c")], small, most=8)
    {('a', 'b', 'c'): [('a', 'b'), ('a', 'c'), ('b', 'c')]}
    """
    left = _Left(sets, domain)
    covers: dict[AttributeSet, list[AttributeSet]] = {}
    for first in sorted(sets, key=domain.cells, reverse=True):
        if first not in left:
            continue
        block = left.block(first, most)
        # To sum a great one takes longer than a scan.
        within = left.within(block) if domain.cells(first) <= most else [first]
        covers[domain.in_order(domain.names[i] for i in block)] = sorted(within)
        left.remove(within)
    return covers


class _Left:
    """The sets that are in no table yet, and which attribute completes which of them.

    A set is found from its subsets that lack one attribute, so that a table is filled in the time
    of its own subsets, however many sets there are. Sets of attributes are bits of a number.
    """

    def __init__(self, sets: Sequence[AttributeSet], domain: Domain) -> None:
        self._place = {name: i for i, name in enumerate(domain.names)}
        self._sizes = [domain[name].size for name in domain.names]
        self._sets: dict[int, AttributeSet] = {}
        self._lengths: Counter[int] = Counter()
        self._completed: dict[int, set[int]] = {}
        """The attributes that make a set of a smaller one."""
        self._touching: list[set[int]] = [set() for _ in domain.names]
        for names in sets:
            bits = self._bits(names)
            self._sets[bits] = names
            self._lengths[len(names)] += 1
            for i in map(self._place.__getitem__, names):
                self._completed.setdefault(bits ^ (1 << i), set()).add(i)
                self._touching[i].add(bits)

    def _bits(self, names: AttributeSet) -> int:
        return sum(1 << self._place[name] for name in names)

    def __contains__(self, names: AttributeSet) -> bool:
        return self._bits(names) in self._sets

    def block(self, first: AttributeSet, most: int) -> list[int]:
        """The attributes of a table that begins with a set and takes in what completes most."""
        block: list[int] = []
        room = most
        gains = Counter(self._completed.get(0, ()))
        for i in map(self._place.__getitem__, first):
            self._add(i, block, gains)
            room //= self._sizes[i]
        while True:
            fitting = [i for i in gains if self._sizes[i] <= room and i not in block]
            if not fitting:
                return block
            best = max(fitting, key=lambda i: (gains[i], -self._sizes[i], -i))
            self._add(best, block, gains)
            room //= self._sizes[best]

    def _add(self, i: int, block: list[int], gains: Counter[int]) -> None:
        """Take an attribute into a block: sets that lack one other attribute now gain by it."""
        inside = sum(1 << j for j in block) | 1 << i
        if self._subsets(len(block)) <= len(self._touching[i]):
            for part in self._parts(block, shorter=2):
                gains.update(self._completed.get(part | 1 << i, ()))
        else:
            for bits in self._touching[i]:
                rest = bits & ~inside
                if rest and not rest & (rest - 1):
                    gains[rest.bit_length() - 1] += 1
        block.append(i)

    def within(self, block: Sequence[int]) -> list[AttributeSet]:
        """The sets inside a block."""
        if self._subsets(len(block)) <= len(self._sets):
            parts = [part for part in self._parts(block, shorter=0) if part in self._sets]
        else:
            outside = ~sum(1 << i for i in block)
            parts = [bits for bits in self._sets if not bits & outside]
        return [self._sets[part] for part in parts]

    def _subsets(self, size: int) -> int:
        """How many subsets of a block have the length of a set, at most."""
        return sum(comb(size, length) for length in self._lengths)

    def _parts(self, block: Sequence[int], *, shorter: int) -> Iterator[int]:
        """The subsets of a block that are so much shorter than a set."""
        bits = [1 << i for i in block]
        for length in self._lengths:
            if length >= shorter:
                yield from map(sum, combinations(bits, length - shorter))

    def remove(self, sets: Iterable[AttributeSet]) -> None:
        """These are in a table."""
        for names in sets:
            bits = self._bits(names)
            del self._sets[bits]
            self._lengths[len(names)] -= 1
            if not self._lengths[len(names)]:
                del self._lengths[len(names)]
            for i in map(self._place.__getitem__, names):
                self._completed[bits ^ (1 << i)].discard(i)
                self._touching[i].discard(bits)
