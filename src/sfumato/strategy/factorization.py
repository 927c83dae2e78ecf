# SPDX-License-Identifier: Apache-2.0
"""The optimal strategy of a union of products, in a form that can be measured.

``solve/orbits.py`` splits the space of the workload into invariant subspaces: along each attribute
a subspace reads either the sums of classes of exchangeable cells, or the deviations within one
class. ``factorization`` makes one measured block (``measured.Piece``) of every subspace. The root
of the optimal X is rounded to integers of 20 bits, which the certificate counts (it costs about
1e-6 of the error); from there on everything is exact: the sensitivity is that of the integers, and
the reconstruction is their pseudo-inverse. Where a subspace is not of full rank, the rounding
happens in coordinates of queries of the workload, so that no rounding leaves their span and every
answer stays unbiased.

``factorwise`` is for one product of query sets: the product of the strategies of its factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.minimax_orbits import row_quadratics
from sfumato.solve.nuclear import Certified
from sfumato.solve.orbits import CLASS_SUMS, Axis, OrbitProblem, Part
from sfumato.strategy.base import Block, GaussianStrategy, Norm, Strategy, SumOfProducts
from sfumato.strategy.measured import WORD, Piece
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Objective
from sfumato.workload.queries import Matrix, QuerySet, Total
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "FactorBlock",
    "Factorization",
    "Factorwise",
    "factorization",
    "factorwise",
    "inverse_of",
    "whole_root",
]


Factors = dict[str, QuerySet]


@dataclass(frozen=True, eq=False)
class _Reading:
    """How the pull of a combination on the values is read from its table of coefficients.

    Attributes:
        rows: For every axis, what is read along it: a column for each number.
        parts: The blocks, each with its place in the table, the order of its axes, and the inverse
            that takes what was read there to its values.
    """

    rows: tuple[Array, ...]
    parts: tuple[tuple[int, tuple[slice, ...], tuple[int, ...], Array], ...]


@dataclass(frozen=True, eq=False)
class Factorization(SumOfProducts):
    """An optimal strategy of pieces, one per invariant subspace of ``solve/orbits.py``.

    ``parts[b]`` says which: for every axis its class sums, or the class of its residuals.
    ``inverses[b]`` takes the rows of block b to class sums: the pseudo-inverse of its matrix.
    ``weights`` are those of the orbits that the lower bound was found with.
    """

    _algorithm: ClassVar[str] = "orbits"

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]
    inverses: tuple[Array, ...]
    weights: Array | None = field(default=None, kw_only=True)
    _rows: dict[tuple[str, int, int], Array] = field(default_factory=dict, init=False, repr=False)
    _index: dict[Part, int] = field(default_factory=dict, init=False, repr=False)

    def sums_cells(self, term: int) -> bool:  # noqa: ARG002
        """The subspaces together have one estimate of the cells."""
        return True

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the subspaces that the term reaches, of its queries on their estimates."""
        factors = self._factors(term)
        out = np.zeros([q.rows for q in factors.values()])
        for b in self._reached(factors):
            piece = self._piece(b)
            sums = np.tensordot(self.inverses[b], values[b].reshape(piece.row_shape), axes=1)
            estimate = sums.reshape([*_class_counts(piece), *piece.row_shape[1:]])
            estimate = estimate.transpose(np.argsort((*piece.class_axes, *piece.residual_axes)))
            for i, (axis, label) in enumerate(zip(piece.axes, piece.part, strict=True)):
                queries = factors.get(axis.name)
                if queries is not None and label == CLASS_SUMS and axis.classes == axis.cells:
                    estimate = np.moveaxis(queries.apply(np.moveaxis(estimate, i, 0)), 0, i)
                    continue
                rows = self._rows_of(axis, queries, label)
                if label != CLASS_SUMS:  # measured was n g - sum(g), n times the residual
                    rows = rows / rows.shape[1]
                estimate = np.moveaxis(np.tensordot(rows, estimate, axes=(1, i)), 0, i)
            out = out + self._with_totals(estimate, piece, factors, b, power=1)
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: the steps of ``answer``, transposed and in reverse order.

        Along every axis the sums and the differences of all classes are read at once; a block takes
        its part of the table.
        """
        reading = self.computed_once(("reading", term), lambda: self._reading(term))
        table = np.asarray(coefficients, dtype=np.float64)
        for rows in reading.rows:  # the first axis goes last: all of them are back at the end
            table = table.reshape(len(rows), -1).T @ rows
        table = table.reshape([rows.shape[1] for rows in reading.rows])
        by_block = {}
        for b, where, order, inverse in reading.parts:
            sums = table[where].transpose(order).reshape(inverse.shape[1], -1)
            by_block[b] = (inverse @ sums).reshape(-1)
        return by_block

    def _reading(self, term: int) -> _Reading:
        """What ``adjoint`` reads along every axis of a term."""
        factors = self._factors(term)
        axes = [a for a in self.axes if a.name in factors]
        ends = [self._rows_of_all(a, factors[a.name]) for a in axes]
        place = {a.name: i for i, a in enumerate(axes)}
        parts = []
        for b in self._reached(factors):
            piece = self._piece(b)
            labels = {a.name: k for a, k in zip(self.axes, self.parts[b], strict=True)}
            where = tuple(at[labels[a.name]] for a, (_, at) in zip(axes, ends, strict=True))
            names = [piece.axes[i].name for i in (*piece.class_axes, *piece.residual_axes)]
            own = [place[n] for n in names if n in place]
            rest = [i for i in range(len(axes)) if i not in own]  # sums of one class: of length 1
            parts.append((b, where, (*own, *rest), self._inverse_of_all(b, frozenset(place))))
        return _Reading(tuple(rows for rows, _ in ends), tuple(parts))

    def _inverse_of_all(self, b: int, names: frozenset[str]) -> Array:
        """The transposed inverse of a block, where all classes of other attributes count alike."""
        piece = self._piece(b)
        axes = [piece.axes[i].name for i in piece.class_axes]
        others = tuple(i for i, n in enumerate(axes) if n not in names)
        if not others:
            return self.inverses[b].T

        def compute() -> Array:
            inverse = self.inverses[b].reshape(*_class_counts(piece), -1).sum(axis=others)
            return np.ascontiguousarray(inverse.reshape(-1, self.inverses[b].shape[1]).T)

        return self.computed_once(("inverse", b, *others), compute)

    def _rows_of_all(self, axis: Axis, queries: QuerySet) -> tuple[Array, Mapping[int, slice]]:
        """The rows of all labels beside each other, each with its place."""

        def compute() -> tuple[Array, Mapping[int, slice]]:
            columns, where, start = [], {}, 0
            for label in self._labels(axis, queries):
                rows = self._rows_of(axis, queries, label)
                columns.append(rows if label == CLASS_SUMS else rows / rows.shape[1])
                where[label] = slice(start, start + rows.shape[1])
                start += rows.shape[1]
            return np.ascontiguousarray(np.concatenate(columns, axis=1)), where

        return self.computed_once(("all", axis.name, id(queries)), compute)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Sums over subspaces of products: class sums by covariance, residuals by squares."""
        factors = self._factors(term)
        out = np.zeros([q.rows for q in factors.values()])
        for b in self._reached(factors):
            piece = self._piece(b)
            spread = self._mixed_variances(b, piece, factors)
            for i in piece.residual_axes:
                rows = self._rows_of(piece.axes[i], factors.get(piece.axes[i].name), piece.part[i])
                spread = np.multiply.outer(spread, (rows**2).sum(axis=1) / rows.shape[1] ** 2)
            spread = spread.transpose(np.argsort((*piece.class_axes, *piece.residual_axes)))
            out = out + block_variances[b] * self._with_totals(spread, piece, factors, b, power=2)
        return out.reshape(-1)

    def _mixed_variances(self, b: int, piece: Piece, factors: Factors) -> Array:
        """The variance of every combination of queries on the class sums of a subspace."""
        spread = self.inverses[b] @ self.inverses[b].T
        axes = [piece.axes[i] for i in piece.class_axes]
        queries = factors.get(axes[0].name) if axes else None
        if len(axes) == 1 and queries is not None and axes[0].classes == axes[0].cells:
            return row_quadratics(queries, spread)
        spread = spread.reshape(2 * _class_counts(piece))
        for done, axis in enumerate(axes):
            rows = self._rows_of(axis, factors.get(axis.name), CLASS_SUMS)
            spread = _contracted(spread, rows, len(axes) - done)
        return spread

    def _unit_totals(self, term: int) -> Iterator[tuple[int, float]]:
        """What unit noise on each block adds to the total variance of a term."""
        factors = self._factors(term)
        for b in self._reached(factors):
            piece = self._piece(b)
            gram: Array = np.ones((1, 1))
            for i in piece.class_axes:
                part = self._class_gram(piece.axes[i], factors)
                gram = np.asarray(np.kron(gram, part), dtype=np.float64)
            value = float(((gram @ self.inverses[b]) * self.inverses[b]).sum())
            for i in piece.residual_axes:
                axis, label = piece.axes[i], piece.part[i]
                n = int(axis.sizes[label])
                value *= float(axis.residual_gram(factors[axis.name])[label]) * (n - 1) / n**2
            for axis in self._summed_axes(b, factors):
                value *= float(self._class_gram(axis, factors)[0, 0])
            yield b, value

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The greatest over the orbits, exact: cells of an orbit have equal column norms."""
        if norm != 2:
            return super().maximum_column(norm, scales)
        wide = [a for a in self.axes if a.classes > 1]
        out = np.zeros([a.classes for a in wide])
        for b, scale in enumerate(scales):
            piece = self._piece(b)
            columns = (piece.entries.astype(np.float64) ** 2).sum(axis=0)
            power = scale * columns.reshape(_class_counts(piece))
            for i in piece.residual_axes:
                n = int(piece.axes[i].sizes[piece.part[i]])
                power = power * float(n * (n - 1))
            labels = {a.name: part for a, part in zip(piece.axes, piece.part, strict=True)}
            where = tuple(
                slice(None) if labels[a.name] == CLASS_SUMS else labels[a.name] for a in wide
            )
            out[where] += power
        return SensitivityBound(float(out.max()) * ROUND_UP, is_exact=True)

    def _of_replaced(self, norm: Norm, scales: Sequence[float], may_drop_records: bool) -> float:
        """Exact in L2 where differences are read of axes of one class alone, and pairs are few.

        Two cells of classes i and j that differ along the axes s of one class have in block b the
        inner product ``E_i . E_j`` times, for every axis whose differences b reads, ``n (n - 1)``
        if they agree along it and ``-n`` if not: the columns of ``n I - J``.
        """
        alike = [a for a in self.axes if a.classes == 1]
        classes = prod(a.classes for a in self.axes)
        of_parts = {
            a.name for part in self.parts for a, k in zip(self.axes, part, strict=True) if k >= 0
        }
        is_general = any(a.classes > 1 and a.name in of_parts for a in self.axes)
        if (
            norm != 2
            or is_general
            or 2 ** len(alike) * classes**2 * len(self.blocks) > LIMITS.pairwise_kinds
        ):
            return super()._of_replaced(norm, scales, may_drop_records)
        farthest = longest = 0.0
        grams = self.computed_once(("grams",), self._grams)
        for kind in product((False, True), repeat=len(alike)):
            apart = {a.name for a, is_apart in zip(alike, kind, strict=True) if is_apart}
            inner, own = np.zeros((classes, classes)), np.zeros(classes)
            for b, (scale, gram) in enumerate(zip(scales, grams, strict=True)):
                piece = self._piece(b)
                sizes = [(piece.axes[i].name, piece.axes[i].cells) for i in piece.residual_axes]
                signed = prod(-n if name in apart else n * (n - 1) for name, n in sizes)
                inner += scale * gram * float(signed)
                own += scale * np.diag(gram) * float(prod(n * (n - 1) for _, n in sizes))
            farthest = max(farthest, float((own[:, None] + own[None, :] - 2 * inner).max()))
            longest = max(longest, float(own.max()))
        # Sums of so many products; what is centred is no longer than the diameter.
        rows = sum(len(self._piece(b).entries) for b in range(len(self.blocks)))
        distance = max(farthest, 0.0) * ROUND_UP + (rows + 8) * 2.0**-48 * longest
        return max(distance, self.maximum_column(2, scales).power) if may_drop_records else distance

    def _grams(self) -> list[Array]:
        """``E'E`` of every block, of columns less the first where no axis is read by differences.

        Taking it off is exact and changes no distance; long columns that are nearly equal, with the
        public total in them, would cancel.
        """
        out = []
        for b in range(len(self.blocks)):
            piece = self._piece(b)
            entries = piece.entries if piece.residual_axes else piece.entries - piece.entries[:, :1]
            columns = entries.astype(np.float64)
            out.append(np.asarray(columns.T @ columns, dtype=np.float64))
        return out

    def _class_gram(self, axis: Axis, factors: Factors) -> Array:
        """The Gram matrix on class sums (not on unit vectors)."""
        queries = factors.get(axis.name, Total(axis.cells))
        return axis.class_gram(queries) / np.sqrt(np.outer(axis.sizes, axis.sizes))

    def _piece(self, b: int) -> Piece:
        piece = self.blocks[b].term
        if not isinstance(piece, Piece):
            raise TypeError("the blocks of a factorization are pieces")
        return piece

    def _reached(self, factors: Factors) -> list[int]:
        """The blocks of the subspaces that the term reaches."""
        if not self._index:
            self._index.update({part: b for b, part in enumerate(self.parts)})
        options = [self._labels(axis, factors.get(axis.name)) for axis in self.axes]
        return [self._index[part] for part in product(*options) if part in self._index]

    @staticmethod
    def _labels(axis: Axis, queries: QuerySet | None) -> list[int]:
        """Class sums, and the classes within which queries tell cells apart."""
        if queries is None:
            return [CLASS_SUMS]
        return [CLASS_SUMS, *np.flatnonzero(axis.residual_gram(queries)).tolist()]

    def _summed_axes(self, b: int, factors: Factors) -> list[Axis]:
        """The axes of the term of one class that block b sums up: they carry a factor only."""
        pairs = zip(self.axes, self.parts[b], strict=True)
        return [a for a, k in pairs if k == CLASS_SUMS and a.classes == 1 and a.name in factors]

    def _with_totals(
        self, part: Array, piece: Piece, factors: Factors, b: int, power: int
    ) -> Array:
        """The part with its axes in the order of the term, times the axes it sums up."""
        rests = {a.name: part.shape[i] for i, a in enumerate(piece.axes)}
        totals = {
            a.name: self._rows_of(a, factors[a.name], CLASS_SUMS)[:, 0] ** power
            for a in self._summed_axes(b, factors)
        }
        return self._in_order(part, rests, factors, totals)

    def _rows_of(self, axis: Axis, queries: QuerySet | None, label: int) -> Array:
        """Coefficients on class sums (means over the classes), or centred ones within a class."""
        if queries is None:
            return np.ones((1, axis.classes))
        key = (axis.name, id(queries), label)
        if key not in self._rows:
            dense = queries.dense()
            if label == CLASS_SUMS:
                self._rows[key] = dense @ axis.indicator / np.sqrt(axis.sizes)
            else:
                inside = dense[:, axis.members(label)]
                self._rows[key] = inside - inside.mean(axis=1, keepdims=True)
        return self._rows[key]


def factorization(
    workload: Workload,
    problem: OrbitProblem,
    optimum: Certified,
    bits: int = LIMITS.factorization_bits,
) -> Factorization:
    """Pieces with integer matrices of so many bits from the roots of an optimal X."""
    roots = [subspace for subspace in problem.roots(optimum) if subspace.root.size]
    blocks, inverses = [], []
    for subspace in roots:
        pairs = zip(problem.axes, subspace.part, strict=True)
        measured = [(a, k) for a, k in pairs if k != CLASS_SUMS or a.classes > 1]
        sizes = np.ones(1)
        for axis, label in measured:
            if label == CLASS_SUMS:
                sizes = np.outer(sizes, axis.sizes).reshape(-1)
        summed_cells = prod(
            a.cells
            for a, k in zip(problem.axes, subspace.part, strict=True)
            if k == CLASS_SUMS and a.classes == 1
        )
        root = subspace.root / np.sqrt(
            sizes * summed_cells
        )  # on class sums instead of unit vectors
        entries, unit, inverse = whole_root(root, workload, problem.axes, subspace.part, bits)
        compared = prod(int(a.sizes[k]) for a, k in measured if k != CLASS_SUMS)
        name = (
            " x ".join(a.name if k == CLASS_SUMS else f"~{a.name}" for a, k in measured) or "total"
        )
        piece = Piece(
            workload.domain,
            name,
            1.0,
            tuple(a for a, _ in measured),
            tuple(k for _, k in measured),
            entries,
        )
        blocks.append(Block(piece, unit / compared))
        inverses.append(inverse)
    return Factorization(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        problem.axes,
        tuple(subspace.part for subspace in roots),
        tuple(inverses),
        bound=optimum.lower,
        weights=optimum.v,
    )


def whole_root(
    root: Array, workload: Workload, axes: Sequence[Axis], part: Part, fewest_bits: int
) -> tuple[Integers, float, Array]:
    """``root`` as integers times a unit, with the same row space, and their pseudo-inverse.

    Coefficients are rounded finely enough that no direction is lost: queries that differ little
    need more bits than others.
    """
    mixing, basis = root, None
    if len(root) < root.shape[1]:
        basis = _query_basis(workload, axes, part, len(root))
        reach = np.abs(basis).max(axis=1, keepdims=True)
        basis = basis * (reach.max() // reach)  # rows of like size: rounding treats them alike
        mixing = root @ np.linalg.pinv(basis.astype(np.float64))
    for more in LIMITS.factorization_finer_bits:
        unit = float(np.abs(mixing).max()) / (2 ** (fewest_bits + more) if root.size > 1 else 1)
        entries = np.rint(mixing / unit).astype(np.int64)
        if basis is not None:
            reached = float((np.abs(entries).astype(np.float64) @ np.abs(basis)).max())
            if reached > WORD:
                break
            entries = entries @ basis
        inverse = inverse_of(entries.astype(np.float64))
        if inverse is not None:
            return entries, unit, inverse
    raise PlanError("some queries are so nearly equal that their difference is lost in rounding")


def inverse_of(entries: Array) -> Array | None:
    """The pseudo-inverse of a matrix of full row rank; None where a direction is lost.

    A square one is inverted, at a tenth of the cost of singular values: these lie between the
    inverse of the norm of the inverse and the norm.
    """
    if len(entries) == entries.shape[1]:
        try:
            inverse = np.asarray(np.linalg.inv(entries), dtype=np.float64)
        except np.linalg.LinAlgError:
            return None
        reach = float(np.linalg.norm(entries) * np.linalg.norm(inverse))
        if reach * LIMITS.factorization_singular_minimum < 1:
            return inverse
    left, values, right = np.linalg.svd(entries, full_matrices=False)
    if values[-1] > values[0] * LIMITS.factorization_singular_minimum:
        return np.asarray((right.T / values) @ left.T, dtype=np.float64)
    return None


def _query_basis(workload: Workload, axes: Sequence[Axis], part: Part, rank: int) -> Integers:
    """``rank`` independent asked queries on the class sums of a subspace, as integers."""
    from scipy.linalg import qr

    rows = []
    for term in workload.terms:
        factors = {} if (term_product := term.as_product()) is None else dict(term_product.factors)
        pairs = list(zip(axes, part, strict=True))
        if not all(k == CLASS_SUMS or _reaches(a, factors.get(a.name), k) for a, k in pairs):
            continue
        own = np.ones((1, 1), dtype=np.int64)
        for axis, label in pairs:
            if label == CLASS_SUMS and axis.classes > 1:
                own = np.kron(own, _class_rows(axis, factors.get(axis.name)))
        rows.append(own)
    stacked = np.unique(np.concatenate(rows), axis=0)
    stacked = stacked[stacked.any(axis=1)]
    lengths = np.linalg.norm(stacked.astype(np.float64), axis=1, keepdims=True)
    triangle, order = qr((stacked / lengths).T, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    if len(pivots) > rank and pivots[rank] > LIMITS.dependent_part * pivots[0]:
        # Eigenvalues of the Gram matrix are squares: those of small queries drown in rounding.
        raise PlanError("some queries are lost in rounding beside much larger ones")
    return np.asarray(stacked[np.sort(order[:rank])], dtype=np.int64)


def _reaches(axis: Axis, queries: QuerySet | None, label: int) -> bool:
    return queries is not None and bool(axis.residual_gram(queries)[label] > 0)


def _class_rows(axis: Axis, queries: QuerySet | None) -> Integers:
    """The distinct queries on class sums: means over classes, scaled to be whole."""
    if queries is None:
        return np.ones((1, axis.classes), dtype=np.int64)
    dense = np.asarray(queries.dense()) @ axis.indicator * np.sqrt(axis.sizes)  # sums over classes
    scaled = np.rint(dense * 2**queries.fraction_bits).astype(np.int64)
    # A query about one cell of a class reads, on class sums, 1/n of the class: take all of it.
    means = np.where(scaled % axis.sizes == 0, scaled // axis.sizes, 0)
    single = (dense != 0).sum(axis=1) == 1
    means[single] = (dense[single] != 0).astype(np.int64)
    return np.unique(means, axis=0)


def _contracted(spread: Array, rows: Array, pairs: int) -> Array:
    """Replace the first of ``pairs`` pairs of class axes by the queries ``rows``, put last."""
    moved = np.moveaxis(spread, pairs, 1)
    flat = moved.reshape(rows.shape[1], rows.shape[1], -1)
    once = np.einsum("kc,cdr->kdr", rows, flat)
    twice = np.einsum("kd,kdr->kr", rows, once)
    return np.moveaxis(twice.reshape(len(rows), *moved.shape[2:]), 0, -1)


def _class_counts(piece: Piece) -> list[int]:
    return [piece.axes[i].classes for i in piece.class_axes]


# A product of query sets as the product of strategies for its factors


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Measured along one attribute: the asked queries themselves, or a matrix with its inverse."""

    measured: QuerySet
    share: float
    inverse: Array | None  # cells x measured rows; None where the queries are measured as asked

    def answer(self, queries: QuerySet, y: Array) -> Array:
        """The part of the answers along the first axis that follows from measured values y."""
        if self.inverse is None:
            return y
        return np.asarray(queries.apply(np.tensordot(self.inverse, y, axes=1)), dtype=np.float64)

    def adjoint(self, queries: QuerySet, c: Array) -> Array:
        """The transposed map, from answers to measured values."""
        if self.inverse is None:
            return c
        cells = np.asarray(queries.adjoint(c), dtype=np.float64)
        return np.tensordot(self.inverse.T, cells, axes=1)

    @cached_property
    def covariance(self) -> Array:
        """The covariance of the cells at unit noise."""
        if self.inverse is None:
            raise TypeError("queries that are measured as asked need no cells")
        return self.inverse @ self.inverse.T

    def variances(self, queries: QuerySet) -> Array:
        """The variance of every query at unit noise."""
        if self.inverse is None:
            return np.ones(queries.rows)
        return row_quadratics(queries, self.covariance)


@dataclass(frozen=True, eq=False)
class Factorwise(GaussianStrategy):
    """One term; block ``combinations[b]`` takes one block of every factor.

    ``F = (x) F_i`` with ``F_i = R_i M_i`` gives ``F = (x) R_i (x) M_i``. Column norms, sums of
    squares and largest row norms of a Kronecker product are products, and so are the least mean and
    the least largest error (weights that are products show it, see ``ordered.minimax_strategy``):
    the product of optimal strategies is optimal, and their bounds multiply. Neither the domain nor
    the Gram matrix is built.
    """

    _algorithm: ClassVar[str] = "factorwise"

    factors: tuple[tuple[FactorBlock, ...], ...]
    _spreads: dict[tuple[int, int], Array] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def combinations(self) -> tuple[tuple[int, ...], ...]:
        """The number of the block of every factor, in the order of the blocks."""
        return tuple(product(*[range(len(f)) for f in self.factors]))

    @property
    def _target(self) -> Product:
        term = self.workload.terms[0].as_product()
        if term is None:
            raise TypeError("the workload of a product strategy is one product")
        return term

    def sums_cells(self, term: int) -> bool:  # noqa: ARG002  there is one
        """Unless queries along some attribute are measured as they are asked."""
        return all(block.inverse is not None for blocks in self.factors for block in blocks)

    def answer(self, term: int, values: Sequence[Array]) -> Array:  # noqa: ARG002  there is one
        """The sum over the combinations, each solved axis by axis."""
        target = self._target
        out = np.zeros(target.row_shape)
        for b, chosen in enumerate(self.combinations):
            blocks = [f[i] for f, i in zip(self.factors, chosen, strict=True)]
            part = np.asarray(values[b], dtype=np.float64)
            part = part.reshape([block.measured.rows for block in blocks])
            for axis, (block, (_, queries)) in enumerate(zip(blocks, target.factors, strict=True)):
                part = np.moveaxis(block.answer(queries, np.moveaxis(part, axis, 0)), 0, axis)
            out = out + part
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:  # noqa: ARG002
        """``R'c`` of every combination, axis by axis."""
        target = self._target
        by_block = {}
        for b, chosen in enumerate(self.combinations):
            part = np.asarray(coefficients, dtype=np.float64).reshape(target.row_shape)
            for axis, (i, (_, queries)) in enumerate(zip(chosen, target.factors, strict=True)):
                block = self.factors[axis][i]
                part = np.moveaxis(block.adjoint(queries, np.moveaxis(part, axis, 0)), 0, axis)
            by_block[b] = part.reshape(-1)
        return by_block

    def covariance(
        self,
        term: int,  # noqa: ARG002
        queries: Sequence[int],
        block_variances: Sequence[float],
    ) -> Array:
        """Entrywise products of the covariances along every axis, summed over combinations."""
        target = self._target
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), target.row_shape)
        kernels: list[list[Array]] = []
        for axis, ((_, factor), rows) in enumerate(zip(target.factors, places, strict=True)):
            listed, which = np.unique(rows, return_inverse=True)
            units = (np.arange(factor.rows)[:, None] == listed[None, :]).astype(np.float64)
            read = [
                block.adjoint(factor, units)[:, which.reshape(-1)] for block in self.factors[axis]
            ]
            kernels.append([r.T @ r for r in read])
        out = np.zeros((len(queries), len(queries)))
        for b, chosen in enumerate(self.combinations):
            part = np.full_like(out, block_variances[b])
            for axis, i in enumerate(chosen):
                part *= kernels[axis][i]
            out += part
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:  # noqa: ARG002
        """The sum over the combinations of products of the variances of the factors."""
        out = np.zeros(self._target.rows)
        for b, chosen in enumerate(self.combinations):
            part = np.full(1, float(block_variances[b]))
            for axis, i in enumerate(chosen):
                part = np.multiply.outer(part, self._spread(axis, i)).reshape(-1)
            out += part
        return out

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:  # noqa: ARG002
        """The sum of ``variances``: products of sums."""
        return float(self._unit_totals @ np.asarray(block_variances, dtype=np.float64))

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every block, for the one term."""
        return self._target.weight**2 * self._unit_totals

    @cached_property
    def _unit_totals(self) -> Array:
        totals = [
            prod(float(self._spread(axis, i).sum()) for axis, i in enumerate(chosen))
            for chosen in self.combinations
        ]
        return np.array(totals)

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The product of the greatest; for several blocks and very many queries a bound on it."""
        if len(self.combinations) > 1 and self._target.rows <= LIMITS.variances_listed:
            return float(self.variances(term, block_variances).max())
        return sum(
            float(block_variances[b])
            * prod(float(self._spread(axis, i).max()) for axis, i in enumerate(chosen))
            for b, chosen in enumerate(self.combinations)
        )

    def _spread(self, axis: int, i: int) -> Array:
        """The variances of the queries of a factor from one of its blocks."""
        key = (axis, i)
        if key not in self._spreads:
            queries = self._target.factors[axis][1]
            self._spreads[key] = self.factors[axis][i].variances(queries)
        return self._spreads[key]


def factorwise(
    workload: Workload, solve: Callable[[Workload], Strategy], objective: Objective = "rmse"
) -> Factorwise:
    """The product of the strategies that ``solve`` returns for every factor alone.

    Tables, totals and disjoint groups are measured as they are: no strategy is better.
    """
    term = workload.terms[0].as_product()
    if len(workload.terms) > 1 or term is None:
        raise PlanError("only a workload of one product is measured as a product of strategies")
    solved: dict[tuple[int, str | int], tuple[tuple[FactorBlock, ...], float | None]] = {}
    for name, queries in term.factors:
        key = _key(queries)
        if key in solved:
            continue
        if queries.is_disjoint:
            count = int((queries.row_powers(1) > 0).sum())
            bound: float | None = count if objective == "rmse" else min(count, 1)
            solved[key] = (FactorBlock(queries, 1.0, None),), bound
            continue
        alone = Product(workload.domain, name, 1.0, ((name, queries),))
        strategy = solve(Workload(workload.domain, (alone,)))
        solved[key] = _blocks(strategy, name), strategy.bound_for(objective)
    factors = tuple(solved[_key(q)][0] for _, q in term.factors)
    bounds = [solved[_key(q)][1] for _, q in term.factors]
    whole = prod([b for b in bounds if b is not None], start=term.weight**2)
    return Factorwise(
        "factorization",
        "gaussian",
        workload,
        tuple(_combined(workload, term, chosen) for chosen in product(*factors)),
        factors,
        bound=None if None in bounds else whole,
        objective=objective,
    )


def _key(queries: QuerySet) -> tuple[int, str | int]:
    """A key that is equal for equal query sets, on whichever attribute."""
    return queries.size, queries.key


def _blocks(strategy: Strategy, name: str) -> tuple[FactorBlock, ...]:
    """The pieces along one attribute as matrices over its cells, with their inverses."""
    if not isinstance(strategy, Factorization):
        raise PlanError(f"the strategy for {name!r} alone is not made of pieces")
    out = []
    for block, inverse in zip(strategy.blocks, strategy.inverses, strict=True):
        piece = block.term
        if not isinstance(piece, Piece):
            raise TypeError("the blocks of a factorization are pieces")
        size = piece.domain[name].size
        if not piece.axes:  # the total
            rows = piece.entries * np.ones((1, size), dtype=np.int64)
        else:
            rows = _cells(piece, size)
        if all(label == CLASS_SUMS for label in piece.part) and len(rows) == size:
            whole = inverse[piece.axes[0].class_of] if piece.axes else inverse
        else:
            whole = np.linalg.pinv(rows.astype(np.float64), rcond=LIMITS.rank_singular_minimum)
        out.append(FactorBlock(Matrix(size, rows, 0), block.share, whole))
    return tuple(out)


def _cells(piece: Piece, size: int) -> Integers:
    """The coefficients of a piece of one attribute on its cells."""
    axis = piece.axes[0]
    if piece.part[0] == CLASS_SUMS:
        return np.asarray(piece.entries[:, axis.class_of], dtype=np.int64)
    return np.stack([piece.apply(cell) for cell in np.eye(size, dtype=np.int64)], axis=1)


def _combined(workload: Workload, term: Product, chosen: Sequence[FactorBlock]) -> Block:
    names = term.attributes
    factors = tuple((n, b.measured) for n, b in zip(names, chosen, strict=True))
    title = " x ".join(names)
    return Block(Product(workload.domain, title, 1.0, factors), prod(b.share for b in chosen))
