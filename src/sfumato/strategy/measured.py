# SPDX-License-Identifier: Apache-2.0
"""What a block can measure besides products of query sets of the workload.

* ``Piece``: sums over classes of cells along some attributes, multiplied by one integer matrix, and
  deviations within a class along the others.
* ``Mixture``: an integer matrix times the exact answers of queries of the workload.
* ``Invertible``: a query set of one attribute whose least-squares inverse is known, and ``Levels``
  for sums over nested intervals: trees and wavelets.

All coefficients are integers (times a power of two), so the vault measures every one exactly.

Along an attribute a piece reads either the sums of its classes of exchangeable cells or the
deviations within one class (``n g - sum(g)`` for the n cells g of the class: n times the orthogonal
residual, in integers).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.orbits import CLASS_SUMS, Axis
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.queries import GRAM_ERROR, Prefix, QuerySet, Ranges, widened, widest
from sfumato.workload.terms import Term

__all__ = [
    "EXACT",
    "WORD",
    "Invertible",
    "Levels",
    "Mixture",
    "Piece",
    "energies",
    "energy_by_width",
    "padded_to",
]


@dataclass(frozen=True, eq=False)
class Piece(Term):
    """``entries`` times the class sums of some attributes, by differences of the others.

    ``part[i]`` is CLASS_SUMS or the class whose differences are read along ``axes[i]``.
    """

    axes: tuple[Axis, ...]
    part: tuple[int, ...]
    entries: Integers

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its axes."""
        return tuple(a.name for a in self.axes)

    @cached_property
    def class_axes(self) -> tuple[int, ...]:
        """The axes that are read by class."""
        return tuple(i for i, label in enumerate(self.part) if label == CLASS_SUMS)

    @cached_property
    def residual_axes(self) -> tuple[int, ...]:
        """The axes that are read by differences within a class."""
        return tuple(i for i, label in enumerate(self.part) if label != CLASS_SUMS)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Rows of the matrix, then the cells of each class whose deviations are read."""
        members = (int(self.axes[i].sizes[self.part[i]]) for i in self.residual_axes)
        return (len(self.entries), *members)

    @property
    def rows(self) -> int:
        """The number of measured values."""
        return prod(self.row_shape)

    def apply(self, table: Numbers) -> Numbers:
        """Class sums and differences axis by axis, then the matrix; exact for integers."""
        out = np.asarray(table).reshape(self.shape)
        for i, (axis, label) in enumerate(zip(self.axes, self.part, strict=True)):
            moved = np.moveaxis(out, i, 0)
            if label == CLASS_SUMS:
                sums = np.zeros((axis.classes, *moved.shape[1:]), dtype=out.dtype)
                np.add.at(sums, axis.class_of, moved)
                out = np.moveaxis(sums, 0, i)
            else:
                within = moved[axis.members(label)]
                total = within.sum(axis=0, keepdims=True, dtype=out.dtype)
                out = np.moveaxis(len(within) * within - total, 0, i)
        ordered = out.transpose(*self.class_axes, *self.residual_axes)
        flat = ordered.reshape(self.entries.shape[1], -1)
        return np.asarray(self.entries.astype(out.dtype) @ flat).reshape(-1)

    def adjoint(self, y: Numbers) -> Array:
        """``M' y`` as a table of its attributes."""
        rows = np.asarray(y, dtype=np.float64).reshape(self.row_shape)
        classes = [self.axes[i].classes for i in self.class_axes]
        out = np.tensordot(self.entries.T.astype(np.float64), rows, axes=1)
        out = out.reshape(*classes, *self.row_shape[1:])
        out = out.transpose(np.argsort((*self.class_axes, *self.residual_axes)))
        for i, (axis, label) in enumerate(zip(self.axes, self.part, strict=True)):
            moved = np.moveaxis(out, i, 0)
            if label == CLASS_SUMS:
                out = np.moveaxis(moved[axis.class_of], 0, i)
            else:
                cells = np.zeros((axis.cells, *moved.shape[1:]))
                cells[axis.members(label)] = len(moved) * moved - moved.sum(axis=0, keepdims=True)
                out = np.moveaxis(cells, 0, i)
        return out

    def squared_diameter(self) -> float:
        """The greatest squared distance of two columns, from those of classes and residuals.

        Columns of ``n I - J`` have squared norm n (n - 1) and inner product -n; over several axes
        the least product is reached by differing along one axis only, the shortest.
        """
        members = self.row_shape[1:]
        norm = float(prod(n * (n - 1) for n in members))
        farthest = norm * widest(self.entries)  # cells that differ in their classes only
        if not members:
            return farthest
        least = -norm / (min(members) - 1)
        columns = self.entries.astype(np.float64)
        gram = columns.T @ columns
        own = np.diag(gram)
        sums = own[:, None] + own[None, :]
        apart = float((norm * sums - 2 * least * gram).max())
        # Cells outside the compared classes have column 0, which is no farther than another column.
        alone = norm * float(own.max())
        return max(farthest, apart + GRAM_ERROR * alone, alone)

    def inner_factors(self, most_cells: int) -> dict[str, Array] | None:
        """One matrix per axis, where at most one of the class axes has several classes."""
        wide = [i for i in self.class_axes if self.axes[i].classes > 1]
        if len(wide) > 1 or any(a.cells > most_cells for a in self.axes):
            return None
        columns = self.entries.astype(np.float64)
        gram, out = columns.T @ columns, {}
        for i, (axis, label) in enumerate(zip(self.axes, self.part, strict=True)):
            if label != CLASS_SUMS:
                is_inside = axis.class_of == label
                own = np.outer(is_inside, is_inside) * -float(axis.sizes[label])
                own[np.diag_indices_from(own)] *= 1 - float(axis.sizes[label])
            elif i in wide:
                own = gram[np.ix_(axis.class_of, axis.class_of)]
            else:
                own = np.ones((axis.cells, axis.cells))
            out[axis.name] = own
        if not wide and out:
            first = next(iter(out))
            out[first] = out[first] * float(gram[0, 0])
        return out

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array over the class axes, one vector for every other."""
        factors: list[tuple[tuple[str, ...], Array]] = []
        if self.class_axes:
            powers = (np.abs(self.entries.astype(np.float64)) ** p).sum(axis=0)
            joint = powers.reshape([self.axes[i].classes for i in self.class_axes])
            for position, i in enumerate(self.class_axes):
                joint = joint.take(self.axes[i].class_of, axis=position)
            factors.append((tuple(self.axes[i].name for i in self.class_axes), joint))
        else:
            only = float(np.abs(self.entries).astype(np.float64).item() ** p)
            factors.append(((), np.array(only)))
        for i in self.residual_axes:
            axis, n = self.axes[i], int(self.axes[i].sizes[self.part[i]])
            vector = np.where(axis.class_of == self.part[i], _difference_power(n, p), 0.0)
            factors.append(((axis.name,), vector))
        return factors

    def row_powers(self, p: int) -> Array:
        """The sum of ``|c|^p`` along every row."""
        sizes = np.ones(1)
        for i in self.class_axes:
            sizes = np.outer(sizes, self.axes[i].sizes).reshape(-1)
        mixed = (np.abs(self.entries.astype(np.float64)) ** p) @ sizes
        members = [int(n) for n in self.row_shape[1:]]
        each = prod(_difference_power(n, p) for n in members)
        return np.repeat(mixed * each, prod(members))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of every row, or bounds on them."""
        low, high = self.entries.min(axis=1).astype(float), self.entries.max(axis=1).astype(float)
        if self.residual_axes:
            greatest = prod(n - 1 for n in self.row_shape[1:])
            widest = np.maximum(np.abs(low), np.abs(high)) * greatest
            low, high = -widest, widest
        members = prod(self.row_shape[1:])
        return np.repeat(low, members), np.repeat(high, members)

    @property
    def fraction_bits(self) -> int:
        """0: all coefficients are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.abs(self.entries).max()) * prod(n - 1 for n in self.row_shape[1:])

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""
        return not self.residual_axes and bool((self.entries >= 0).all())


def _difference_power(n: int, p: int) -> float:
    """The sum of ``|c|^p`` over the column of one cell of ``n I - J``."""
    return float((n - 1) ** p + (n - 1))


# Mixtures of queries

EXACT = 2.0**53  # floats hold all whole numbers up to this
WORD = 2.0**62  # whole numbers that 64 bits hold, with room


@dataclass(frozen=True, eq=False)
class Mixture(Term):
    """``entries`` times the answers of the picked queries of ``base``, in the order of ``base``.

    ``picked[t]`` numbers the queries of ``base[t]``; ``columns`` holds all different columns of
    these queries, times ``2^fraction_bits``, and ``sizes`` how many cells have each.

    ``M = C F_B`` for independent asked queries F_B, of any kind: conditions over more cells than
    can be listed, given coefficients, products. The vault counts the answers of F_B exactly and
    multiplies them by C in integers. What one record moves is known from the distinct columns of
    F_B (``matrix.distinct_columns``), so no cell is ever visited.
    """

    base: tuple[Term, ...]
    picked: tuple[Integers, ...]
    entries: Integers
    columns: Numbers
    sizes: Array

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of all queries."""
        return self.domain.in_order(frozenset().union(*(t.attributes for t in self.base)))

    @property
    def cells(self) -> int:
        """The cells of the largest table that is counted for it; conditions need none."""
        return max((t.cells for t in self.base if not t.as_conditions()), default=1)

    @property
    def rows(self) -> int:
        """The number of rows of the matrix."""
        return len(self.entries)

    @property
    def fraction_bits(self) -> int:
        """The greatest number of bits after the point that a query needs."""
        return max(t.fraction_bits for t in self.base)

    def sources(self) -> tuple[Term, ...]:
        """The terms whose queries are mixed."""
        return self.base

    def combine(self, answers: Sequence[Numbers], fits: bool) -> Numbers:
        """``C (F_B h)`` from ``F_B h``."""
        parts, entries = [np.asarray(a) for a in answers], self.entries
        if not fits or any(a.dtype.kind == "O" for a in parts):
            parts, entries = [a.astype(object) for a in parts], entries.astype(object)
        return np.asarray(entries @ self.gathered(parts))

    def gathered(self, answers: Sequence[Numbers]) -> Numbers:
        """The picked answers in common steps; each term has its answers in steps of its own."""
        parts = []
        for term, rows, values in zip(self.base, self.picked, answers, strict=True):
            parts.append(values[rows] * 2 ** (self.fraction_bits - term.fraction_bits))
        return np.concatenate(parts)

    def apply(self, table: Numbers) -> Numbers:
        """``C F_B h`` from a table of all its attributes; exact for integers."""
        numbers = np.asarray(table).reshape(self.shape)
        parts = []
        for term, rows in zip(self.base, self.picked, strict=True):
            rest = tuple(i for i, n in enumerate(self.attributes) if n not in term.attributes)
            part = term.apply(np.asarray(numbers.sum(axis=rest, dtype=numbers.dtype)))
            whole = part.dtype.kind in "iO"
            scale = 2 ** (self.fraction_bits - term.fraction_bits) if whole else 1
            parts.append(part[rows] * scale)
        mixed = np.concatenate(parts)
        return np.asarray(self.entries.astype(mixed.dtype) @ mixed)

    def adjoint(self, y: Numbers) -> Array:
        """``M' y`` as a table of its attributes."""
        back = self.entries.T.astype(np.float64) @ np.asarray(y, dtype=np.float64)
        out, first = np.zeros(self.shape), 0
        for term, rows in zip(self.base, self.picked, strict=True):
            part = np.zeros(term.rows)
            part[rows] = back[first : first + len(rows)]
            first += len(rows)
            along = [self.domain[n].size if n in term.attributes else 1 for n in self.attributes]
            out += term.adjoint(part).reshape(along)
        return out

    def __post_init__(self) -> None:
        reach = max(_reach(self.entries), _reach(self.columns))
        if reach > EXACT:
            raise PlanError(
                f"a mixture needs coefficients of at most 2^53 in common steps of "
                f"2^-{self.fraction_bits}, got {reach:.3g}; ask for queries with so different "
                "coefficients in separate plans, or round them"
            )

    def chunks(self) -> Iterator[Array]:
        """The different columns of M, some at a time, in floats."""
        return (columns for columns, _ in self._bounded_chunks())

    @cached_property
    def is_exact(self) -> bool:
        """Whether floats hold all products and partial sums of the different columns exactly."""
        rows = float(np.abs(self.entries.astype(np.float64)).sum(axis=1).max())
        return rows * _reach(self.columns) < EXACT / 2

    def _bounded_chunks(self) -> Iterator[tuple[Array, Array]]:
        """``chunks``, each with bounds on how far its floats are off.

        A sum of n products errs by less than n u / (1 - n u) times that of the absolute values, in
        any order (Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1).
        """
        matrix = self.entries.astype(np.float64)
        step = max(1, LIMITS.numbers_at_once // max(self.entries.shape))
        unit = 0.0 if self.is_exact else (self.entries.shape[1] + 2) * 2.0**-52
        for first in range(0, self.columns.shape[1], step):
            some = self.columns[:, first : first + step].astype(np.float64)
            columns = np.ldexp(matrix @ some, -self.fraction_bits)
            if unit:
                off = unit * np.ldexp(np.abs(matrix) @ np.abs(some), -self.fraction_bits)
            else:
                off = np.zeros((1, 1))
            yield columns, off

    def maximum_column(self, p: int) -> float:
        """At least ``max_j |M_j|_p^p``, but for the roundings of the last sum of powers."""
        chunks = self._bounded_chunks()
        return max(float(((np.abs(c) + off) ** p).sum(axis=0).max()) for c, off in chunks)

    @cached_property
    def maximum_error(self) -> float:
        """How far a column of ``chunks`` can be from the exact one, in L2; 0 if none is."""
        if self.is_exact:
            return 0.0
        chunks = self._bounded_chunks()
        return max(float(np.sqrt((off**2).sum(axis=0).max())) for _, off in chunks)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One number, the greatest column, for all cells: they cannot be listed."""
        return [((), np.array(self.maximum_column(p)))]

    def row_powers(self, p: int) -> Array:
        """The sum of ``|c|^p`` along every row, over all cells."""
        out, first = np.zeros(self.rows), 0
        for chunk in self.chunks():
            out += (np.abs(chunk) ** p) @ self.sizes[first : first + chunk.shape[1]]
            first += chunk.shape[1]
        return out

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and greatest entry of every row over the different columns."""
        ends = [(c.min(axis=1), c.max(axis=1)) for c in self.chunks()]
        low, high = zip(*ends, strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    @cached_property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return max(float((np.abs(c) + off).max()) for c, off in self._bounded_chunks())

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero, roundings counted."""
        return all(bool((c >= off).all()) for c, off in self._bounded_chunks())


def _reach(numbers: Numbers) -> float:
    """The greatest absolute number."""
    return max(float(numbers.max()), -float(numbers.min()))


# Query sets of one attribute that are solved by least squares


class Invertible(QuerySet):
    """Queries M on one attribute from which what is asked of it can be estimated.

    A block of a strategy measures a product of such sets, ``M = M_1 x ... x M_d`` (Kronecker). Its
    pseudo-inverse is the product of theirs, so the reconstruction of a product of queries is ``R =
    F_1 M_1^+ x ... x F_d M_d^+``, and squared norms, fourth powers and greatest entries of its rows
    multiply over the attributes. A plain table of counts is the case ``M_i = I``.
    """

    @abstractmethod
    def least_squares(self, y: Array) -> Array:
        """``M^+ y`` along the first axis: the best linear unbiased estimate of the cells."""

    @abstractmethod
    def transposed(self, c: Array) -> Array:
        """``(M^+)' c`` along the first axis: how much every measured value counts in ``c x``."""

    @abstractmethod
    def row_variances(self, queries: QuerySet) -> Array:
        """``|q M^+|^2`` of every query: its variance at unit noise."""

    @abstractmethod
    def total_variance(self, queries: QuerySet) -> float:
        """The sum of ``row_variances``."""

    @abstractmethod
    def row_fourths(self, queries: QuerySet) -> Array:
        """The sum of the fourth powers of ``q M^+`` of every query (for the tails of Laplace)."""


# Query sets on nested intervals


@dataclass(frozen=True, eq=False)
class Levels(Invertible):
    """A strategy on nested nodes; subclasses say what is measured on them.

    Cells are grouped into nodes of widths ``1 = s_0 | s_1 | ... | s_h`` (each divides the next),
    padded with cells that hold nothing, which costs no privacy: no record falls in them. With
    ``A_l`` the average over the nodes of width s_l, every strategy here has a normal matrix with
    the same eigenspaces,

        M'M = sum_{l < h} lambda_l (A_l - A_{l+1})  +  lambda_h A_h,

    so that its inverse needs averages only: estimates cost O(cells), the variance of an interval
    O(h). The error of a workload is ``sum_l D_l / lambda_l`` with ``D_l = E_l - E_{l+1}`` (``D_h =
    E_h``) and the energies ``E_l = sum_q |A_l q|^2``, so that the weights of levels are a problem
    in h variables.
    """

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """The cells of a node of every level, from single cells up."""

    @property
    @abstractmethod
    def eigenvalues(self) -> tuple[float, ...]:
        """``lambda_l``: that of vectors constant on level l that cancel on level l + 1."""

    @abstractmethod
    def _measured(self, leaves: Numbers) -> Numbers:
        """``M x`` for padded cells x."""

    @abstractmethod
    def _spread(self, y: Numbers) -> Numbers:
        """``M' y`` on the padded cells."""

    @abstractmethod
    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Sums of fourth powers of the rows of the reconstruction of intervals."""

    @abstractmethod
    def inner_products(self) -> tuple[float, float]:
        """The least and the greatest inner product of two columns."""

    @property
    def height(self) -> int:
        """The number of levels above the cells."""
        return len(self.widths) - 1

    @cached_property
    def padded(self) -> int:
        """The number of leaves: whole nodes of the top level."""
        return padded_to(self.size, self.widths[-1])

    def apply(self, x: Numbers) -> Numbers:
        """``M x``, level by level; exact for integers."""
        return self._measured(_pad(widened(x), self.padded))

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y``: every cell gathers the rows it is in."""
        return self._spread(y)[: self.size]

    def least_squares(self, y: Array) -> Array:
        """The best linear unbiased estimate of the cells, ``(M'M)^-1 M' y``."""
        return self._inverse_normal(np.asarray(self._spread(y), dtype=np.float64))[: self.size]

    def transposed(self, c: Array) -> Array:
        """``M (M'M)^-1 c``."""
        padded = _pad(np.asarray(c, dtype=np.float64), self.padded)
        return np.asarray(self._measured(self._inverse_normal(padded)), dtype=np.float64)

    def row_variances(self, queries: QuerySet) -> Array:
        """``q (M'M)^-1 q'``."""
        ends = queries.intervals()
        if ends is not None:
            return self._from_energies(lambda s: _interval_energy(s, *ends))
        dense = queries.dense()
        return self._from_energies(lambda s: _dense_energy(s, dense))

    def maximum_variance(self, queries: QuerySet) -> float:
        """The greatest of ``row_variances``, or for very many intervals a bound on it.

        Within a node of width s, an interval that fills r cells has ``|A_l q|^2 - |A_{l+1} q|^2 <=
        r - r^2 / s <= s / 4``; only the two nodes with its ends have any.
        """
        if queries.rows <= LIMITS.intervals_listed or not queries.holds_prefixes:
            return super().maximum_variance(queries)
        details = [s / 2 for s in self.widths[1:]]
        total = sum(d / e for d, e in zip(details, self.eigenvalues, strict=False))
        nodes = self.padded // self.widths[-1]
        whole = queries.size if nodes > 1 else queries.size**2 / self.widths[-1]
        return total + whole / self.eigenvalues[-1]

    def total_variance(self, queries: QuerySet) -> float:
        """``sum_l D_l / lambda_l``."""
        details = _details(energies(queries, self.widths))
        return float((details / np.array(self.eigenvalues)).sum())

    def row_fourths(self, queries: QuerySet) -> Array:
        """The sum of fourth powers of ``q M^+``: intervals by their ends, others row by row."""
        ends = queries.intervals()
        out = []
        if ends is not None:
            for first in range(0, len(ends[0]), LIMITS.intervals_at_once):
                part = slice(first, first + LIMITS.intervals_at_once)
                out.append(self._interval_fourths(ends[0][part], ends[1][part]))
            return np.concatenate(out)
        dense = queries.dense()
        step = max(1, LIMITS.coefficients_at_once // self.rows)
        parts = (dense[first : first + step] for first in range(0, len(dense), step))
        return np.concatenate([(self.transposed(part.T) ** 4).sum(axis=0) for part in parts])

    def _inverse_normal(self, leaves: Array) -> Array:
        """Apply ``(M'M)^-1`` over the padded cells."""
        average, rest = leaves, leaves.shape[1:]
        out = np.zeros_like(leaves)
        for j in range(self.height):
            ratio = self.widths[j + 1] // self.widths[j]
            coarser = average.reshape(-1, ratio, *rest).mean(axis=1)
            detail = average - np.repeat(coarser, ratio, axis=0)
            out += np.repeat(detail / self.eigenvalues[j], self.widths[j], axis=0)
            average = coarser
        return out + np.repeat(average / self.eigenvalues[-1], self.widths[-1], axis=0)

    def _from_energies(self, energy: Callable[[int], Array]) -> Array:
        """``sum_l (|A_l q|^2 - |A_{l+1} q|^2) / lambda_l + |A_h q|^2 / lambda_h``."""
        here = energy(self.widths[0])
        out = np.zeros_like(here)
        for j in range(self.height):
            above = energy(self.widths[j + 1])
            out += (here - above) / self.eigenvalues[j]
            here = above
        return out + here / self.eigenvalues[-1]


def padded_to(size: int, width: int) -> int:
    """The least multiple of ``width`` that is at least ``size``."""
    return -(-size // width) * width


def energies(queries: QuerySet, widths: tuple[int, ...]) -> Array:
    """``E_l = sum_q |A_l q|^2`` for nodes of every width; closed forms for prefixes and ranges."""
    energy = energy_by_width(queries)
    return np.array([energy(width) for width in widths])


def energy_by_width(queries: QuerySet) -> Callable[[int], float]:
    """``E`` as a function of the width, for many of them: coefficients are listed once."""
    size = queries.size
    if isinstance(queries, Prefix):
        return lambda width: _prefixes_energy(size, width)
    if isinstance(queries, Ranges):
        return lambda width: _ranges_energy(size, width)
    ends = queries.intervals()
    if ends is not None:
        return lambda width: float(_interval_energy(width, *ends).sum())
    dense = queries.dense()
    if np.count_nonzero(dense) > LIMITS.listed_part * dense.size:
        return lambda width: float(_dense_energy(width, dense).sum())
    rows, cells = np.nonzero(dense)
    values = dense[rows, cells]
    return lambda width: _listed_energy(width, rows, cells, values)


def _details(energy: Array) -> Array:
    """``E_l - E_{l+1}``, and the last as it is; never below 0 but for rounding."""
    return np.asarray(np.maximum(energy - np.append(energy[1:], 0.0), 0.0))


def _prefixes_energy(size: int, width: int) -> float:
    """``sum_e |A p_e|^2`` over the prefixes of 0 to ``size`` cells.

    With e = b w + r a prefix fills b nodes and r cells of the next: ``|A p_e|^2 = b w + r^2 / w``.
    """
    full, rest = divmod(size + 1, width)
    whole = width**2 * full * (full - 1) // 2 + rest * full * width
    return whole + (full * _squares(width) + _squares(rest)) / width


def _ranges_energy(size: int, width: int) -> float:
    """``sum_q |A q|^2`` over all ranges of ``size`` cells.

    A range is the difference of two of the size + 1 prefixes, each pair once. The sum over pairs of
    ``|u_s - u_t|^2`` is ``(size + 1) sum |u_t|^2 - |sum u_t|^2``, and the sum
    of all prefixes is ``size - j`` at cell j.
    """
    first = np.arange(0, size, width, dtype=np.float64)
    cells = np.minimum(size - first, width)
    sums = cells * (size - first) - cells * (cells - 1) / 2
    return (size + 1) * _prefixes_energy(size, width) - float((sums**2).sum()) / width


def _squares(n: int) -> int:
    """``0^2 + ... + (n - 1)^2``."""
    return (n - 1) * n * (2 * n - 1) // 6


def _interval_energy(width: int, starts: Integers, ends: Integers) -> Array:
    """``|A q|^2`` for intervals: prefixes p_e - p_s, by their closed-form inner products."""
    return (
        _prefix_product(width, ends, ends)
        - 2 * _prefix_product(width, starts, ends)
        + _prefix_product(width, starts, starts)
    )


def _prefix_product(width: int, s: Integers, e: Integers) -> Array:
    """``<A p_s, A p_e>`` for s <= e: whole nodes of p_s and what is left in its last."""
    node, rest = np.divmod(s, width)
    share = np.where(e // width > node, 1.0, (e % width) / width)
    return np.asarray(node * width + rest * share, dtype=np.float64)


def _dense_energy(width: int, rows: Array) -> Array:
    sums = np.add.reduceat(rows, np.arange(0, rows.shape[1], width), axis=1)
    return np.asarray((sums**2).sum(axis=1) / width, dtype=np.float64)


def _listed_energy(width: int, rows: Integers, cells: Integers, values: Array) -> float:
    """``sum_q |A q|^2`` from the coefficients that are not 0, in the order of rows and cells."""
    if not len(values):
        return 0.0
    nodes = cells // width
    is_first = np.append(True, (np.diff(rows) != 0) | (np.diff(nodes) != 0))
    sums = np.add.reduceat(values, np.flatnonzero(is_first))
    return float((sums**2).sum()) / width


def _pad(x: Numbers, padded: int) -> Numbers:
    if padded == len(x):
        return x
    return np.concatenate([x, np.zeros((padded - len(x), *x.shape[1:]), dtype=x.dtype)])
