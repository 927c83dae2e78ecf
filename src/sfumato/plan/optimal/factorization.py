# SPDX-License-Identifier: Apache-2.0
"""The optimal strategy of a union of products, in a form that can be measured.

Every sector of ``orbits.py`` becomes one measured piece. The root of the optimal X is rounded to
integers of 20 bits, which the certificate counts (it costs about 1e-6 of the error); from there on
everything is exact: the sensitivity is that of the integers, and the reconstruction is their
pseudo-inverse. Where a sector is not of full rank, the rounding happens in coordinates of asked
queries, so that no rounding leaves the span of the workload and every answer stays unbiased.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.optimal.piece import Piece
from sfumato.plan.solve.optimum import Certified
from sfumato.plan.solve.orbits import OrbitProblem, Part
from sfumato.plan.solve.quadratic import row_quadratics
from sfumato.plan.solve.symmetry import CLASS_PART, Axis
from sfumato.plan.strategy import Block, GaussianStrategy, Norm
from sfumato.workload.queries import Array, Integers, QuerySet, Total
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm
from sfumato.workload.workload import Workload

__all__ = ["Factorization", "factorization"]

ENTRY_BITS = 20  # of rounded coefficients
FINER = (0, 10, 20)  # bits more: the first that lose no direction
WORD = 2.0**62  # whole numbers that 64 bits hold, with room
LEAST_PIVOT = 1e-9  # queries of length 1 that are less than this apart from others follow from them
LEAST_SINGULAR = 1e-8  # of the greatest singular value, below which a direction is lost

Asked = dict[str, QuerySet]


@dataclass(frozen=True, eq=False)
class Factorization(GaussianStrategy):
    """Pieces of an optimal strategy, one per sector.

    ``inverses[b]`` takes the mixed rows of block b to class sums: the pseudo-inverse of its matrix.
    ``weights`` are those of the orbits that the lower bound was found with.
    """

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]
    inverses: tuple[Array, ...]
    weights: Array | None = field(default=None, kw_only=True)
    _rows: dict[tuple[str, int, int], Array] = field(default_factory=dict, init=False, repr=False)
    _index: dict[Part, int] = field(default_factory=dict, init=False, repr=False)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the sectors that the term reaches."""
        asked = self._asked(term)
        out = np.zeros([q.rows for q in asked.values()])
        for b in self._reached(asked):
            piece = self._piece(b)
            sums = np.tensordot(self.inverses[b], values[b].reshape(piece.row_shape), axes=1)
            estimate = sums.reshape([*_class_counts(piece), *piece.row_shape[1:]])
            estimate = estimate.transpose(np.argsort((*piece.mixed, *piece.compared)))
            for i, (axis, label) in enumerate(zip(piece.axes, piece.part, strict=True)):
                queries = asked.get(axis.name)
                if queries is not None and label == CLASS_PART and axis.classes == axis.cells:
                    estimate = np.moveaxis(queries.apply(np.moveaxis(estimate, i, 0)), 0, i)
                    continue
                rows = self._rows_of(axis, queries, label)
                if label != CLASS_PART:  # measured was n g - sum(g), n times the residual
                    rows = rows / rows.shape[1]
                estimate = np.moveaxis(np.tensordot(rows, estimate, axes=(1, i)), 0, i)
            out = out + self._completed(estimate, piece, asked, b, power=1)
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """The steps of ``answer``, transposed and in reverse order."""
        asked = self._asked(term)
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([q.rows for q in asked.values()])
        found = {}
        for b in self._reached(asked):
            piece = self._piece(b)
            part = table
            for axis in reversed(self._plain(b, asked)):
                rows = self._rows_of(axis, asked[axis.name], CLASS_PART)[:, 0]
                part = np.tensordot(part, rows, axes=(list(asked).index(axis.name), 0))
            part = part.reshape([asked[a.name].rows if a.name in asked else 1 for a in piece.axes])
            for i, (axis, label) in enumerate(zip(piece.axes, piece.part, strict=True)):
                rows = self._rows_of(axis, asked.get(axis.name), label)
                rows = rows if label == CLASS_PART else rows / rows.shape[1]
                part = np.moveaxis(np.tensordot(rows, part, axes=(0, i)), 0, i)
            part = part.transpose((*piece.mixed, *piece.compared))
            sums = part.reshape(len(self.inverses[b]), *piece.row_shape[1:])
            found[b] = np.tensordot(self.inverses[b].T, sums, axes=1).reshape(-1)
        return found

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Per sector a product: the covariance of class sums, squared rows of the residuals."""
        asked = self._asked(term)
        out = np.zeros([q.rows for q in asked.values()])
        for b in self._reached(asked):
            piece = self._piece(b)
            spread = self._mixed_variances(b, piece, asked)
            for i in piece.compared:
                rows = self._rows_of(piece.axes[i], asked.get(piece.axes[i].name), piece.part[i])
                spread = np.multiply.outer(spread, (rows**2).sum(axis=1) / rows.shape[1] ** 2)
            spread = spread.transpose(np.argsort((*piece.mixed, *piece.compared)))
            out = out + block_variances[b] * self._completed(spread, piece, asked, b, power=2)
        return out.reshape(-1)

    def _mixed_variances(self, b: int, piece: Piece, asked: Asked) -> Array:
        """The variance of every combination of queries on the class sums of a sector."""
        spread = self.inverses[b] @ self.inverses[b].T
        axes = [piece.axes[i] for i in piece.mixed]
        queries = asked.get(axes[0].name) if axes else None
        if len(axes) == 1 and queries is not None and axes[0].classes == axes[0].cells:
            return row_quadratics(queries, spread)
        spread = spread.reshape(2 * _class_counts(piece))
        for done, axis in enumerate(axes):
            rows = self._rows_of(axis, asked.get(axis.name), CLASS_PART)
            spread = _contracted(spread, rows, len(axes) - done)
        return spread

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The same, summed: traces instead of rows."""
        return sum(block_variances[b] * value for b, value in self._unit_totals(term))

    def block_errors(self) -> Array:
        """Sector by sector of every term."""
        out = np.zeros(len(self.blocks))
        for t, term in enumerate(self.workload.terms):
            for b, value in self._unit_totals(t):
                out[b] += term.weight**2 * value
        return out

    def _unit_totals(self, term: int) -> Iterator[tuple[int, float]]:
        """What unit noise on each block adds to the total variance of a term."""
        asked = self._asked(term)
        for b in self._reached(asked):
            piece = self._piece(b)
            gram: Array = np.ones((1, 1))
            for i in piece.mixed:
                part = self._class_gram(piece.axes[i], asked)
                gram = np.asarray(np.kron(gram, part), dtype=np.float64)
            value = float(((gram @ self.inverses[b]) * self.inverses[b]).sum())
            for i in piece.compared:
                axis, label = piece.axes[i], piece.part[i]
                n = int(axis.sizes[label])
                value *= float(axis.residual_gram(asked[axis.name])[label]) * (n - 1) / n**2
            for axis in self._plain(b, asked):
                value *= float(self._class_gram(axis, asked)[0, 0])
            yield b, value

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:
        """Exact over the orbits: all cells of an orbit have the same column norm."""
        if norm != 2:
            return super().greatest_column(norm, scales)
        wide = [a for a in self.axes if a.classes > 1]
        out = np.zeros([a.classes for a in wide])
        for b, scale in enumerate(scales):
            piece = self._piece(b)
            columns = (piece.entries.astype(np.float64) ** 2).sum(axis=0)
            power = scale * columns.reshape(_class_counts(piece))
            for i in piece.compared:
                n = int(piece.axes[i].sizes[piece.part[i]])
                power = power * float(n * (n - 1))
            labels = {a.name: part for a, part in zip(piece.axes, piece.part, strict=True)}
            where = tuple(
                slice(None) if labels[a.name] == CLASS_PART else labels[a.name] for a in wide
            )
            out[where] += power
        return ColumnNorm(float(out.max()) * ROUND_UP, is_exact=True)

    def _class_gram(self, axis: Axis, asked: Asked) -> Array:
        """The Gram matrix on class sums (not on unit vectors)."""
        queries = asked.get(axis.name, Total(axis.cells))
        return axis.class_gram(queries) / np.sqrt(np.outer(axis.sizes, axis.sizes))

    def _asked(self, term: int) -> Asked:
        found = self.workload.terms[term].as_product()
        return {} if found is None else dict(found.factors)

    def _piece(self, b: int) -> Piece:
        piece = self.blocks[b].term
        if not isinstance(piece, Piece):
            raise TypeError("the blocks of a factorization are pieces")
        return piece

    def _reached(self, asked: Asked) -> list[int]:
        """Blocks in whose residuals the term takes part."""
        if not self._index:
            self._index.update({part: b for b, part in enumerate(self.parts)})
        options = []
        for axis in self.axes:
            queries = asked.get(axis.name)
            labels = [] if queries is None else np.flatnonzero(axis.residual_gram(queries)).tolist()
            options.append([CLASS_PART, *labels])
        return [self._index[part] for part in product(*options) if part in self._index]

    def _plain(self, b: int, asked: Asked) -> list[Axis]:
        """Asked axes of one class that block b sums up: they carry a factor only."""
        pairs = zip(self.axes, self.parts[b], strict=True)
        return [a for a, k in pairs if k == CLASS_PART and a.classes == 1 and a.name in asked]

    def _completed(self, part: Array, piece: Piece, asked: Asked, b: int, power: int) -> Array:
        """Order the axes as asked: drop totals, multiply in the axes that were summed up."""
        at = {a.name: i for i, a in enumerate(piece.axes)}
        shape = [part.shape[at[n]] if n in at else 1 for n in asked]
        out = part.reshape(shape)
        plain = {a.name: a for a in self._plain(b, asked)}
        for position, (name, queries) in enumerate(asked.items()):
            if name in plain:
                rows = self._rows_of(plain[name], queries, CLASS_PART)[:, 0] ** power
                along = [1] * len(asked)
                along[position] = len(rows)
                out = out * rows.reshape(along)
        return out

    def _rows_of(self, axis: Axis, queries: QuerySet | None, label: int) -> Array:
        """Coefficients on class sums (means over the classes), or centred ones within a class."""
        if queries is None:
            return np.ones((1, axis.classes))
        key = (axis.name, id(queries), label)
        if key not in self._rows:
            dense = queries.dense()
            if label == CLASS_PART:
                self._rows[key] = dense @ axis.indicator / np.sqrt(axis.sizes)
            else:
                inside = dense[:, axis.members(label)]
                self._rows[key] = inside - inside.mean(axis=1, keepdims=True)
        return self._rows[key]


def factorization(
    workload: Workload, problem: OrbitProblem, found: Certified, bits: int = ENTRY_BITS
) -> Factorization:
    """Pieces with integer matrices of so many bits from the roots of an optimal X."""
    roots = [sector for sector in problem.roots(found) if sector.root.size]
    blocks, inverses = [], []
    for sector in roots:
        pairs = zip(problem.axes, sector.part, strict=True)
        kept = [(a, k) for a, k in pairs if k != CLASS_PART or a.classes > 1]
        sizes = np.ones(1)
        for axis, label in kept:
            if label == CLASS_PART:
                sizes = np.outer(sizes, axis.sizes).reshape(-1)
        plain = prod(
            a.cells
            for a, k in zip(problem.axes, sector.part, strict=True)
            if k == CLASS_PART and a.classes == 1
        )
        root = sector.root / np.sqrt(sizes * plain)  # on class sums instead of unit vectors
        entries, unit, inverse = _whole(root, workload, problem, sector.part, bits)
        compared = prod(int(a.sizes[k]) for a, k in kept if k != CLASS_PART)
        name = " x ".join(a.name if k == CLASS_PART else f"~{a.name}" for a, k in kept) or "total"
        piece = Piece(
            workload.domain,
            name,
            1.0,
            tuple(a for a, _ in kept),
            tuple(k for _, k in kept),
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
        tuple(sector.part for sector in roots),
        tuple(inverses),
        bound=found.lower,
        weights=found.v,
    )


def _whole(
    root: Array, workload: Workload, problem: OrbitProblem, part: Part, least_bits: int
) -> tuple[Integers, float, Array]:
    """``root`` as integers times a unit, with the same row space, and their pseudo-inverse.

    Coefficients are rounded finely enough that no direction is lost: queries that differ little
    need more bits than others.
    """
    mixing, basis = root, None
    if len(root) < root.shape[1]:
        basis = _asked_basis(workload, problem, part, len(root))
        reach = np.abs(basis).max(axis=1, keepdims=True)
        basis = basis * (reach.max() // reach)  # rows of like size: rounding treats them alike
        mixing = root @ np.linalg.pinv(basis.astype(np.float64))
    for more in FINER:
        unit = float(np.abs(mixing).max()) / (2 ** (least_bits + more) if root.size > 1 else 1)
        entries = np.rint(mixing / unit).astype(np.int64)
        if basis is not None:
            reached = float((np.abs(entries).astype(np.float64) @ np.abs(basis)).max())
            if reached > WORD:
                break
            entries = entries @ basis
        inverse = _inverse(entries.astype(np.float64))
        if inverse is not None:
            return entries, unit, inverse
    raise PlanError("some queries are so nearly equal that their difference is lost in rounding")


def _inverse(entries: Array) -> Array | None:
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
        if reach * LEAST_SINGULAR < 1:
            return inverse
    left, values, right = np.linalg.svd(entries, full_matrices=False)
    if values[-1] > values[0] * LEAST_SINGULAR:
        return np.asarray((right.T / values) @ left.T, dtype=np.float64)
    return None


def _asked_basis(workload: Workload, problem: OrbitProblem, part: Part, rank: int) -> Integers:
    """``rank`` independent asked queries on the class sums of a sector, as integers."""
    from scipy.linalg import qr

    rows = []
    for term in workload.terms:
        asked = {} if (found := term.as_product()) is None else dict(found.factors)
        pairs = list(zip(problem.axes, part, strict=True))
        if not all(k == CLASS_PART or _reaches(a, asked.get(a.name), k) for a, k in pairs):
            continue
        own = np.ones((1, 1), dtype=np.int64)
        for axis, label in pairs:
            if label == CLASS_PART and axis.classes > 1:
                own = np.kron(own, _class_rows(axis, asked.get(axis.name)))
        rows.append(own)
    stacked = np.unique(np.concatenate(rows), axis=0)
    stacked = stacked[stacked.any(axis=1)]
    lengths = np.linalg.norm(stacked.astype(np.float64), axis=1, keepdims=True)
    triangle, order = qr((stacked / lengths).T, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    if len(pivots) > rank and pivots[rank] > LEAST_PIVOT * pivots[0]:
        # Eigenvalues of the Gram matrix are squares: those of small queries drown in rounding.
        raise PlanError("some queries are lost in rounding beside much larger ones")
    return np.asarray(stacked[np.sort(order[:rank])], dtype=np.int64)


def _reaches(axis: Axis, queries: QuerySet | None, label: int) -> bool:
    return queries is not None and bool(axis.residual_gram(queries)[label] > 0)


def _class_rows(axis: Axis, queries: QuerySet | None) -> Integers:
    """Distinct asked rows on class sums: means over classes, scaled to be whole."""
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
    return [piece.axes[i].classes for i in piece.mixed]
