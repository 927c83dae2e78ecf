# SPDX-License-Identifier: Apache-2.0
"""Terms: groups of linear queries over the table of a few attributes.

A term reads the exact table (the marginal) of its attributes and nothing else. `Term` is the
protocol that plans, vault and releases work with, whatever the kind of a term. People ask three
kinds:

* ``Product``: one query set per attribute; its queries are all combinations. Attributes that are
  not named are totalled.
* ``Explicit``: given coefficients over the cells of its attributes.
* ``Predicates``: conditions, each one counting query; never built when its attributes have too many
  cells together.

Workloads (what is asked) and strategies (what is measured) are both unions of terms; strategies add
kinds of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from sfumato.domain.domain import Domain, unit_bits
from sfumato.errors import TooLarge, WorkloadError
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.predicates import Classes, Condition, Json, check_conditions, condition_form
from sfumato.workload.queries import (
    EXACT,
    GRAM_ERROR,
    QuerySet,
    check_entries,
    equal_rows,
    fewest_bits,
    hashed,
    repeated,
    widened,
)
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix, csr_matrix

__all__ = [
    "Explicit",
    "Predicates",
    "Product",
    "StructuredLabel",
    "Term",
    "check_order",
    "gram_of",
]


class StructuredLabel(str):
    """A text for people, with the parts it is made of.

    The name of a group of queries has what is computed and under which condition; the label of a
    query has its group: a value for each column. ``binned`` is the attribute whose records a sum
    counts as the middles of their bins, if any.
    """

    aggregate: str
    condition: str
    groups: tuple[tuple[str, object], ...]
    binned: str

    def __new__(
        cls,
        text: str,
        aggregate: str = "",
        condition: str = "",
        groups: tuple[tuple[str, object], ...] = (),
        binned: str = "",
    ) -> StructuredLabel:
        """The text with its parts."""
        self = super().__new__(cls, text)
        self.aggregate, self.condition, self.groups = aggregate, condition, groups
        self.binned = binned
        return self

    def renamed(self, text: str) -> StructuredLabel:
        """Another text for the same parts."""
        return StructuredLabel(text, self.aggregate, self.condition, self.groups, self.binned)


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A group of linear queries over the table of ``attributes``.

    ``weight`` says how much the queries matter to the planner; it does not scale the answers.
    """

    domain: Domain
    name: str
    weight: float

    @property
    @abstractmethod
    def attributes(self) -> tuple[str, ...]:
        """The attributes it looks at, in the order of the domain."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of queries."""

    @abstractmethod
    def apply(self, table: Numbers) -> Numbers:
        """The answers on a table of shape ``shape``, as a vector.

        Integer tables give exact integers, scaled by 2^fraction_bits: in 64 bits while ``greatest
        * 2^fraction_bits`` times the total of the table is below 2^63, which the caller sees to;
        at any size for arrays of Python integers.
        """

    @abstractmethod
    def adjoint(self, y: Numbers) -> Array:
        """The transposed map: a value per query to a value per cell of the table."""

    @abstractmethod
    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """Arrays over attributes whose product is, per cell, the sum of ``|q|^p`` over queries."""

    @abstractmethod
    def row_powers(self, p: int) -> Array:
        """For each query, the sum of ``|q|^p`` over the cells of the table."""

    @abstractmethod
    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of each query."""

    @property
    @abstractmethod
    def fraction_bits(self) -> int:
        """Every coefficient is a multiple of 2^-fraction_bits."""

    @property
    @abstractmethod
    def greatest(self) -> float:
        """The greatest absolute coefficient."""

    @property
    @abstractmethod
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""

    def as_product(self) -> Product | None:
        """The term as all combinations of one query per attribute.

        Returns:
            A product of query sets with these queries, or None where the term is no such product:
            strategies that work attribute by attribute do not take it then.
        """
        return None

    def as_conditions(self) -> tuple[Condition, ...]:
        """The conditions whose records it counts.

        Returns:
            One condition per query, or none where the queries are no conditions.
        """
        return ()

    @property
    def row_labels(self) -> tuple[str, ...]:
        """A text per query, where some were given."""
        return ()

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of the answers: the queries along every attribute, where they are a product."""
        return (self.rows,)

    @property
    def is_table(self) -> bool:
        """Whether it asks for the table of its attributes itself."""
        return False

    @property
    def is_wide(self) -> bool:
        """Whether its table is too large to build; the engine then counts each condition."""
        return False

    @property
    def has_small_classes(self) -> bool:
        """Whether a table of all cells that its queries tell apart can be built."""
        return True

    def sources(self) -> tuple[Term, ...]:
        """The terms whose exact answers determine its own.

        Returns:
            The term itself, where its answers are read off the table of its attributes; others
            where they are combined from what these ask.
        """
        return (self,)

    def combine(self, answers: Sequence[Numbers], fits: bool) -> Numbers:  # noqa: ARG002
        """Its own answers from those of its sources, exactly.

        Args:
            answers: one array per term of ``sources``, integers in steps of 2^-fraction_bits of
                that term.
            fits: whether 64 bits hold the result; partial sums may then wrap around.

        Returns:
            Integers in steps of 2^-fraction_bits; Python integers unless ``fits``.
        """
        return answers[0]

    def gram_apply(self, table: Numbers) -> Array:
        """``F'F`` on a table of shape ``shape``, in floats."""
        return self.adjoint(self.apply(table))

    def dense(self) -> Array:
        """The coefficients: one row per query, one column per cell of the table."""
        return self.dense_at([np.arange(size) for size in self.shape])

    def dense_at(self, cells: Sequence[Integers]) -> Array:
        """The coefficients in some cells only.

        Args:
            cells: for each attribute the numbers of some of its cells; their combinations are
                meant, in row-major order.

        Returns:
            One row per query, one column per combination.
        """
        columns = []
        for place in _places(self.shape, cells):
            unit = np.zeros(prod(self.shape), dtype=np.int64)
            unit[place] = 1
            columns.append(self.answer(unit.reshape(self.shape)))
        return np.stack(columns, axis=1)

    def apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """The answers on a table that is zero but in some cells.

        Args:
            cells: as for ``dense_at``.
            table: the values of their combinations, with one axis per attribute.
        """
        whole = np.zeros(prod(self.shape))
        whole[_places(self.shape, cells)] = table.reshape(-1)
        return np.asarray(self.apply(whole.reshape(self.shape)), dtype=np.float64)

    def adjoint_at(self, cells: Sequence[Integers], y: Array) -> Array:
        """The transposed map of ``apply_at``, with one axis per attribute."""
        whole = np.asarray(self.adjoint(y), dtype=np.float64).reshape(self.shape)
        return whole[np.ix_(*cells)] if cells else whole

    def gram_apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """``F'F`` on a table that is zero but in some cells, at these cells."""
        return self.adjoint_at(cells, self.apply_at(cells, table))

    def cell_classes(self, name: str) -> Integers | None:  # noqa: ARG002
        """A number per cell of an attribute, equal only where all coefficients are.

        Returns:
            The classes, or None where they are not known without much work: every cell is then
            taken to be a class of its own.
        """
        return None

    def class_factors(
        self, p: int
    ) -> list[tuple[tuple[str, ...], Array, tuple[Integers, ...] | None]]:
        """The arrays of ``column_factors``, over classes of cells where that is smaller.

        Returns:
            For each array its attributes, its values and the class of every cell along each axis;
            None where there is an entry per cell.
        """
        return [(names, values, None) for names, values in self.column_factors(p)]

    def canonical(self, forms: dict[int, list[Json]]) -> list[Json]:  # noqa: ARG002
        """What is asked, as JSON for hashes; neither names nor labels enter.

        Args:
            forms: the forms of query sets that were written before, by the number of the object.
        """
        raise TypeError(f"no canonical form for {type(self).__name__}")

    def squared_norm(self) -> float:
        """The sum of all squared coefficients over the table of its attributes."""
        return prod(float(v.sum()) for _, v in self.column_factors(2))

    def squared_diameter(self) -> float | None:
        """``max_ij |M_i - M_j|_2^2`` over pairs of columns: what one replaced record moves.

        Returns:
            An upper bound by the structure of the term, but for the last roundings, or None;
            0 only where all columns are equal.
        """
        return None

    def l1_diameter(self) -> float | None:
        """An upper bound on ``max_ij |M_i - M_j|_1``, but for the last roundings, or None."""
        return None

    def separates(self, names: Sequence[str]) -> bool:  # noqa: ARG002
        """Whether no query counts cells of two different combinations of these attributes.

        Returns:
            False also where that is not known without much work.
        """
        return False

    def inner_factors(self, most_cells: int) -> dict[str, Array] | None:  # noqa: ARG002
        """A matrix per attribute whose product is the inner product of the columns of two cells.

        Args:
            most_cells: for attributes of more cells no matrix is built.

        Returns:
            The matrices, one entry per pair of cells of the attribute, equal objects where equal
            queries are read; None where the term is no product over attributes, or too large.
        """
        return None

    def stored_entries(self) -> Integers | csr_matrix | None:
        """The coefficients in steps of 2^-fraction_bits, one row per query, where they are stored.

        Returns:
            One column per cell of the table, or per class of cells that no query tells apart
            (``column_of_cell``); None where the term is known by its structure.
        """
        return None

    def column_of_cell(self) -> Integers:
        """For each cell of the table the number of its column in ``stored_entries``."""
        return np.arange(self.cells)

    @property
    def slack(self) -> float:
        """How much farther apart, in L2, the values of two tables can be than ``M (h - h')``.

        0 where values are exact; where they are not, ``apply`` gives integers within this bound.
        """
        return 0.0

    @property
    def unit_bits(self) -> int:
        """The vault counts its table in steps of 2^-unit_bits records: 0, but for `Values`.

        Exact integers of ``apply`` on such a table are in steps of 2^-(fraction_bits + unit_bits).
        """
        return unit_bits(self.domain, self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table it reads."""
        return tuple(self.domain[a].size for a in self.attributes)

    @property
    def cells(self) -> int:
        """The number of cells of the table it reads."""
        return prod(self.shape)

    def weighted(self, factor: float) -> Term:
        """The same queries, mattering ``factor`` times as much."""
        return replace(self, weight=self.weight * factor)

    def in_its_own_unit(self) -> Term:
        """The same queries, an error of their greatest coefficient mattering as one count does.

        Sums of money and counts of people have no common unit; without this, noise would be shared
        out as if an error of one coin mattered as much as one person.
        """
        return self.weighted(1 / self.greatest) if self.greatest > 0 else self

    def answer(self, table: Numbers) -> Array:
        """The answers on a table, as floats; those on integers are computed exactly first."""
        numbers = widened(np.asarray(table))
        if numbers.dtype.kind not in "iO":
            return np.asarray(self.apply(numbers), dtype=np.float64)
        # No partial sum exceeds this, and floats of it err by far less than the factor 2 kept.
        reach = float(np.abs(numbers.astype(np.float64)).sum()) * self.greatest
        if numbers.dtype.kind == "i" and reach * 2.0**self.fraction_bits >= 2.0**62:
            numbers = numbers.astype(object)
        return np.ldexp(np.asarray(self.apply(numbers), dtype=np.float64), -self.fraction_bits)

    def _check_rows(self) -> None:
        check_entries(self.rows, f"group {self.name!r} of {self.rows:,} queries")


def _places(shape: Sequence[int], cells: Sequence[Integers]) -> Integers:
    """The combinations of some cells of each attribute, as positions in the whole table."""
    out = np.zeros(1, dtype=np.int64)
    for size, own in zip(shape, cells, strict=True):
        out = (out[:, None] * size + own[None, :]).reshape(-1)
    return out


def check_order(domain: Domain, names: tuple[str, ...]) -> None:
    """Refuse attributes that are unknown, named twice, or not in the order of the domain."""
    if domain.in_order(names) != names:
        raise WorkloadError(
            f"the attributes of a term must be named once each, in the order of the domain: "
            f"{', '.join(domain.in_order(names))}; got {', '.join(names)}"
        )


# Products of 1-D query sets: the terms that scale to any number of attributes


@dataclass(frozen=True, eq=False)
class Product(Term):
    """All combinations of one query per attribute; attributes not named are totalled."""

    factors: tuple[tuple[str, QuerySet], ...]

    def __post_init__(self) -> None:
        check_order(self.domain, self.attributes)
        for name, queries in self.factors:
            if queries.size != self.domain[name].size:
                raise WorkloadError(
                    f"attribute {name!r} has {self.domain[name].size} cells, its queries are over "
                    f"{queries.size}"
                )
        if self.fraction_bits > LIMITS.product_bits:
            raise WorkloadError(
                f"the coefficients of {self.name!r} have {self.fraction_bits} bits after the "
                f"point, the most are {LIMITS.product_bits}; give matrices of whole numbers"
            )

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The named attributes."""
        return tuple(name for name, _ in self.factors)

    @cached_property
    def rows(self) -> int:
        """The product of the numbers of queries."""
        return prod(q.rows for _, q in self.factors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The number of queries per attribute."""
        return tuple(q.rows for _, q in self.factors)

    def apply(self, table: Numbers) -> Numbers:
        """Each query set along its own axis."""
        self._check_rows()
        out = np.asarray(table).reshape(self.shape)
        # Those that shrink their axis most come first: no step is then larger than the table or
        # the answers, whichever is larger.
        order = sorted(range(len(self.factors)), key=lambda i: self._growth(i))
        for axis in order:
            queries = self.factors[axis][1]
            out = np.moveaxis(queries.apply(np.moveaxis(out, axis, 0)), 0, axis)
        return widened(out.reshape(-1))

    def adjoint(self, y: Numbers) -> Array:
        """The adjoints along each axis."""
        out = np.asarray(y, dtype=np.float64).reshape(self.row_shape)
        order = sorted(range(len(self.factors)), key=lambda i: -self._growth(i))
        for axis in order:
            queries = self.factors[axis][1]
            out = np.moveaxis(queries.adjoint(np.moveaxis(out, axis, 0)), 0, axis)
        return out

    def _growth(self, axis: int) -> float:
        queries = self.factors[axis][1]
        return queries.rows / queries.size

    def gram_apply(self, table: Numbers) -> Array:
        """``F'F`` on a table, axis by axis, without the queries."""
        out = np.asarray(table, dtype=np.float64).reshape(self.shape)
        for axis, (_, queries) in enumerate(self.factors):
            out = np.moveaxis(queries.gram_apply(np.moveaxis(out, axis, 0)), 0, axis)
        return out

    def dense(self) -> Array:
        """The Kronecker product of those of the factors."""
        out: Array = np.ones((1, 1))
        for _, queries in self.factors:
            out = np.asarray(np.kron(out, queries.dense()), dtype=np.float64)
        return out

    def dense_at(self, cells: Sequence[Integers]) -> Array:
        """The Kronecker product of some columns of the factors."""
        out: Array = np.ones((1, 1))
        for (_, queries), own in zip(self.factors, cells, strict=True):
            out = np.asarray(np.kron(out, queries.dense()[:, own]), dtype=np.float64)
        return out

    def apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """Along each axis, those that shrink it most first."""
        growth = [q.rows / len(own) for (_, q), own in zip(self.factors, cells, strict=True)]
        for axis in sorted(range(len(growth)), key=lambda i: growth[i]):
            queries, moved = self.factors[axis][1], np.moveaxis(table, axis, 0)
            applied = queries.apply(_placed(queries, cells[axis], moved))
            table = np.moveaxis(np.asarray(applied, dtype=np.float64), 0, axis)
        return table.reshape(-1)

    def adjoint_at(self, cells: Sequence[Integers], y: Array) -> Array:
        """Along each axis, those that grow it least first."""
        growth = [q.rows / len(own) for (_, q), own in zip(self.factors, cells, strict=True)]
        out = y.reshape(self.row_shape)
        for axis in sorted(range(len(growth)), key=lambda i: -growth[i]):
            back = np.asarray(self.factors[axis][1].adjoint(np.moveaxis(out, axis, 0)))
            out = np.moveaxis(back[cells[axis]], 0, axis)
        return out

    def gram_apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """Axis by axis, without the queries."""
        for axis, (_, queries) in enumerate(self.factors):
            own, moved = cells[axis], np.moveaxis(table, axis, 0)
            whole = np.asarray(queries.gram_apply(_placed(queries, own, moved)))
            table = np.moveaxis(whole[own], 0, axis)
        return table

    def cell_classes(self, name: str) -> Integers | None:
        """Those of the query set, looked at where it has few queries."""
        queries = dict(self.factors)[name]
        classes = queries.cell_classes()
        if classes is None and queries.rows <= LIMITS.queries_compared:
            return equal_rows(queries.dense().T)
        return classes

    def canonical(self, forms: dict[int, list[Json]]) -> list[Json]:
        """The query sets, by attribute."""
        for _, queries in self.factors:
            if id(queries) not in forms:
                forms[id(queries)] = queries.canonical()
        own = [(name, forms[id(queries)]) for name, queries in self.factors]
        return ["product", [[name, form] for name, form in own if form]]

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One vector per attribute."""
        return [((name,), q.column_powers(p)) for name, q in self.factors]

    def row_powers(self, p: int) -> Array:
        """The outer product of those of the factors."""
        self._check_rows()
        return _outer([q.row_powers(p) for _, q in self.factors])

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Products of bounds: the extremes are among the products of the ends."""
        self._check_rows()
        low, high = np.ones(1), np.ones(1)
        bounds = [queries.coefficient_bounds() for _, queries in self.factors]
        is_even = all(np.ptp(a) == 0 and np.ptp(b) == 0 for a, b in bounds)
        for a, b in bounds:
            if is_even:  # as for tables: the same for all queries
                a, b = a[:1], b[:1]
            ends = [np.outer(x, y).ravel() for x in (low, high) for y in (a, b)]
            low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        if is_even:
            return repeated(low[0], self.rows), repeated(high[0], self.rows)
        return low, high

    def squared_diameter(self) -> float | None:
        """``2 max|M_i|^2 - 2 min <M_i, M_j>``, products of intervals for the inner products."""
        if not self.factors:
            return 0.0
        if len(self.factors) == 1:
            return self.factors[0][1].squared_diameter()
        low, high, longest, steps = 1.0, 1.0, 1.0, 1.0
        is_exact = True
        for _, queries in self.factors:
            products = queries.inner_products()
            if products is None:
                return None
            minimum, maximum = products
            step = 4.0**queries.fraction_bits
            is_exact &= (minimum * step).is_integer() and (maximum * step).is_integer()
            ends = [low * minimum, low * maximum, high * minimum, high * maximum]
            low, high, longest, steps = min(ends), max(ends), longest * maximum, steps * step
        lost = 0.0 if is_exact and 2 * longest * steps < EXACT else GRAM_ERROR * longest
        return 2 * longest - 2 * low + lost

    def stored_entries(self) -> Integers | csr_matrix | None:
        """Those of its query set, where it has one only."""
        return self.factors[0][1].stored_entries() if len(self.factors) == 1 else None

    def separates(self, names: Sequence[str]) -> bool:
        """Whether each of the attributes is asked cell by cell."""
        own = dict(self.factors)
        return all(name in own and own[name].is_identity for name in names)

    def inner_factors(self, most_cells: int) -> dict[str, Array] | None:
        """The Gram matrices of the query sets."""
        if any(q.size > most_cells for _, q in self.factors):
            return None
        return {name: gram_of(q) for name, q in self.factors}

    def l1_diameter(self) -> float | None:
        """That of its query set, where it has one only."""
        return self.factors[0][1].l1_diameter() if len(self.factors) == 1 else None

    @property
    def fraction_bits(self) -> int:
        """The sum of those of the factors."""
        return sum(q.fraction_bits for _, q in self.factors)

    @property
    def greatest(self) -> float:
        """The product of those of the factors."""
        return prod((q.greatest for _, q in self.factors), start=1.0)

    @property
    def is_nonnegative(self) -> bool:
        """Whether no factor has a coefficient below zero."""
        return all(q.is_nonnegative for _, q in self.factors)

    def as_product(self) -> Product:
        """The term itself."""
        return self

    @property
    def is_table(self) -> bool:
        """Whether it asks for the table of its attributes itself."""
        return all(q.is_identity for _, q in self.factors)


# Terms of a strategy share their query sets.
_GRAMS: WeakKeyDictionary[QuerySet, Array] = WeakKeyDictionary()


def gram_of(queries: QuerySet) -> Array:
    """The Gram matrix of a query set, built once."""
    if queries not in _GRAMS:
        _GRAMS[queries] = queries.gram()
    return _GRAMS[queries]


def _placed(queries: QuerySet, cells: Integers, values: Array) -> Array:
    """The values of some cells at their places along the first axis, 0 elsewhere."""
    if len(cells) == queries.size:
        return values
    whole = np.zeros((queries.size, *values.shape[1:]))
    whole[cells] = values
    return whole


def _outer(vectors: Sequence[Array]) -> Array:
    out = np.ones(1)
    for vector in vectors:
        out = np.outer(out, vector).reshape(-1)
    return out


# Terms of coefficients over the cells of a few attributes


@dataclass(frozen=True, eq=False)
class Explicit(Term):
    """Given coefficients over the cells of the attributes: integers times 2^-bits."""

    over: tuple[str, ...]
    entries: csr_matrix
    bits: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_order(self.domain, self.over)
        check_entries(self.cells, f"the table of {' x '.join(self.over)}")
        if self.entries.shape[1] != self.domain.cells(self.over):
            raise WorkloadError(
                f"the attributes {', '.join(self.over)} have {self.domain.cells(self.over)} cells, "
                f"the matrix has {self.entries.shape[1]} columns"
            )
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} queries were given with {len(self.labels)} labels")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its cells."""
        return self.over

    @property
    def rows(self) -> int:
        """One per row of the matrix."""
        return int(self.entries.shape[0])

    def stored_entries(self) -> Integers | csr_matrix | None:
        """All of them."""
        return self.entries

    @cached_property
    def matrix(self) -> csr_matrix:
        """The coefficients as floats."""
        return self.entries.astype(np.float64) * 2.0**-self.bits

    @property
    def row_labels(self) -> tuple[str, ...]:
        """As given."""
        return self.labels

    def dense(self) -> Array:
        """All coefficients."""
        return np.asarray(self.matrix.toarray(), dtype=np.float64)

    def dense_at(self, cells: Sequence[Integers]) -> Array:
        """Some columns."""
        picked = self.matrix[:, _places(self.shape, cells)]
        return np.asarray(picked.todense(), dtype=np.float64)

    def apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """By some columns."""
        return np.asarray(self.matrix[:, _places(self.shape, cells)] @ table.reshape(-1))

    def cell_classes(self, name: str) -> Integers | None:
        """Cells with equal coefficients, where these are few enough to be compared."""
        if self.rows * self.cells > LIMITS.entries_compared:
            return None
        whole = self.matrix.toarray().reshape(self.rows, *self.shape)
        slices = np.moveaxis(whole, 1 + self.attributes.index(name), 0)
        return equal_rows(slices.reshape(len(slices), -1))

    def canonical(self, forms: dict[int, list[Json]]) -> list[Json]:  # noqa: ARG002
        """The coefficients that are not 0, in the fewest bits."""
        m = self.entries.tocsr().copy()
        m.sum_duplicates()
        m.eliminate_zeros()
        data, bits = fewest_bits(m.data, self.bits)
        parts: list[Json] = [hashed(part) for part in (m.indptr, m.indices, data)]
        return ["explicit", list(self.over), bits, *parts]

    def apply(self, table: Numbers) -> Numbers:
        """``F x``; exact integers for integer tables."""
        x = widened(np.asarray(table).reshape(-1))
        if x.dtype.kind != "O":
            return np.asarray((self.entries if x.dtype.kind == "i" else self.matrix) @ x)
        entries = self.entries.tocoo()
        out = np.zeros(self.rows, dtype=object)
        np.add.at(out, entries.row, entries.data.astype(object) * x[entries.col])
        return out

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        return np.asarray(self.matrix.T @ np.asarray(y, dtype=np.float64)).reshape(self.shape)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array."""
        return [(self.over, self._power_sums(p, axis=0).reshape(self.shape))]

    def row_powers(self, p: int) -> Array:
        """Sums along the rows."""
        return self._power_sums(p, axis=1)

    def _power_sums(self, p: int, axis: int) -> Array:
        """``sum |q|^p`` along an axis: exact while 64 bits hold the sums, else rounded up."""
        size, count = abs(self.entries), int(self.entries.shape[axis])
        if int(size.max()) ** p * count < 2**63:
            sums = size.power(p).sum(axis=axis)
        else:
            sums = size.astype(np.float64).power(p).sum(axis=axis) * (1 + count * 2.0**-51)
        return np.asarray(np.ldexp(np.asarray(sums).reshape(-1), -self.bits * p))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Smallest and largest entry of each row."""
        low = self.matrix.min(axis=1).toarray().reshape(-1)
        high = self.matrix.max(axis=1).toarray().reshape(-1)
        return low, high

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return self.bits

    @property
    def greatest(self) -> float:
        """The greatest absolute entry."""
        return float(abs(self.matrix).max())

    @property
    def is_nonnegative(self) -> bool:
        """Whether no entry is below zero."""
        return bool(self.entries.min() >= 0)


# Terms of conditions: how many records satisfy each


@dataclass(frozen=True, eq=False)
class Predicates(Term):
    """One counting query per condition."""

    conditions: tuple[Condition, ...]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            raise WorkloadError("predicates need at least one condition")
        check_conditions(self.conditions, self.domain)
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} conditions were given with {len(self.labels)} labels")

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """All attributes that some condition looks at."""
        return self.domain.in_order(frozenset().union(*(c.attributes for c in self.conditions)))

    @property
    def rows(self) -> int:
        """One per condition."""
        return len(self.conditions)

    def as_conditions(self) -> tuple[Condition, ...]:
        """Its conditions."""
        return self.conditions

    @property
    def row_labels(self) -> tuple[str, ...]:
        """As given."""
        return self.labels

    def dense_at(self, cells: Sequence[Integers]) -> Array:
        """The truth of every condition, read off the table of classes."""
        places = [of[own] for of, own in zip(self.classes.class_of, cells, strict=True)]
        rows = [self.classes.truth(c)[np.ix_(*places)].reshape(-1) for c in self.conditions]
        return np.array(rows, dtype=np.float64)

    def apply_at(self, cells: Sequence[Integers], table: Array) -> Array:
        """From the sums over classes of these cells."""
        merged = self.classes.at(cells).merge(table).reshape(-1)
        return np.asarray(self.by_class @ merged, dtype=np.float64)

    def adjoint_at(self, cells: Sequence[Integers], y: Array) -> Array:
        """Every cell gets the value of its class."""
        by_class = np.asarray(self.by_class.T @ y).reshape(self.classes.shape)
        return np.asarray(self.classes.at(cells).expand(by_class), dtype=np.float64)

    def cell_classes(self, name: str) -> Integers:
        """Cells that no condition tells apart."""
        return self.classes.class_of[self.classes.names.index(name)]

    def class_factors(
        self, p: int
    ) -> list[tuple[tuple[str, ...], Array, tuple[Integers, ...] | None]]:
        """The number of conditions that hold, by class."""
        if not self.has_small_classes or not self.attributes:
            return super().class_factors(p)
        return [(self.attributes, self.class_counts, self.classes.class_of)]

    def canonical(self, forms: dict[int, list[Json]]) -> list[Json]:  # noqa: ARG002
        """The truth tables."""
        return ["predicates", [condition_form(c, self.domain) for c in self.conditions]]

    @property
    def is_wide(self) -> bool:
        """Whether its table is too large to build; the engine then counts each condition."""
        return self.cells > LIMITS.cells_tabulated

    @cached_property
    def classes(self) -> Classes:
        """The cells that no condition tells apart, merged."""
        return Classes.of(self.conditions, self.domain, self.attributes)

    @cached_property
    def by_class(self) -> csr_matrix:
        """The 0/1 coefficients over the table of classes."""
        from scipy.sparse import csr_matrix

        self._check_classes()
        check_entries(self.rows * self.classes.cells, f"a matrix of {self.rows:,} conditions")
        truth = [self.classes.truth(c).reshape(-1) for c in self.conditions]
        return csr_matrix(np.array(truth), dtype=np.int8)

    @cached_property
    def _of_class(self) -> csc_matrix:
        """The same, a row per class: searches ask for it tens of thousands of times."""
        return self.by_class.T

    def stored_entries(self) -> Integers | csr_matrix | None:
        """The 0/1 coefficients by class, where a matrix of them can be held."""
        is_small = self.has_small_classes and self.rows * self.classes.cells <= LIMITS.array_entries
        return self.by_class if is_small else None

    def column_of_cell(self) -> Integers:
        """The class of every cell."""
        numbers = np.arange(self.classes.cells).reshape(self.classes.shape)
        return np.asarray(self.classes.expand(numbers), dtype=np.int64).reshape(-1)

    @cached_property
    def class_counts(self) -> Array:
        """The number of conditions that hold in each cell of the table of classes."""
        self._check_classes()
        out = np.zeros(self.classes.shape)
        for condition in self.conditions:
            out += self.classes.truth(condition)
        return out

    @property
    def has_small_classes(self) -> bool:
        """Whether the table of classes can be built, as it mostly can for wide conditions too."""
        return self.classes.cells <= LIMITS.cells_tabulated

    def _check_classes(self) -> None:
        if not self.has_small_classes:
            raise TooLarge(
                f"conditions over {', '.join(self.attributes)} tell {self.classes.cells:,} cells "
                f"apart, more than the {LIMITS.cells_tabulated:,} that are tabulated; ask about "
                "fewer attributes at once"
            )

    def apply(self, table: Numbers) -> Numbers:
        """Sums of the cells where each condition holds."""
        merged = self.classes.merge(np.asarray(table).reshape(self.shape)).reshape(-1)
        if merged.dtype.kind != "O":
            return np.asarray(self.by_class @ merged)
        sums = [merged[row.indices].sum() for row in self.by_class]
        return np.array(sums, dtype=object)

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        by_class = self._of_class @ np.asarray(y, dtype=np.float64)
        return self.classes.expand(np.asarray(by_class).reshape(self.classes.shape))

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:  # noqa: ARG002  0/1
        """The number of conditions that hold in each cell; all of them, when too wide to say."""
        if self.is_wide:
            return [((), np.full((), float(self.rows)))]
        return [(self.attributes, self.classes.expand(self.class_counts))]

    def row_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """The number of cells where each condition holds."""
        return np.asarray(self.by_class @ self.classes.sizes.reshape(-1), dtype=np.float64)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and 1; or 1 and 1 where it always holds, 0 and 0 where it never does."""
        if not self.has_small_classes:
            return np.zeros(self.rows), np.ones(self.rows)
        held = np.diff(self.by_class.indptr)
        return (held == self.classes.cells).astype(np.float64), (held > 0).astype(np.float64)

    def squared_norm(self) -> float:
        """The number of cells that the conditions hold in, all together."""
        return float(self.row_powers(2).sum())

    @property
    def fraction_bits(self) -> int:
        """Counts are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """One."""
        return 1.0

    @property
    def is_nonnegative(self) -> bool:
        """True: counts have no negative coefficients."""
        return True
