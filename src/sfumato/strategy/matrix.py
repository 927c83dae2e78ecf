# SPDX-License-Identifier: Apache-2.0
"""The certified optimum of any workload that is one matrix of moderate rank.

Conditions over astronomically many cells, given coefficients and products, alone or together.
``distinct_columns`` merges cells with equal columns, without visiting the cells, by decision
diagrams of the queries. Equal queries become one with the sum of their squared weights, and the
optimal ``M = H F`` is found on what is left (``solve/nuclear.py``). H is then rewritten for
independent queries F_B of the workload and rounded to integers C, so that ``M = C F_B`` can be
measured exactly (``measured.Mixture``). C is invertible, so the span of the queries is the same,
whatever was rounded: with ``F = T F_B`` the answers ``T C^-1 y`` are unbiased. The sensitivity and
the diameter are those of the integers, over all different columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import must_stop, spend
from sfumato.solve.farthest import farthest_pair
from sfumato.solve.nuclear import best_root, spanning_cells
from sfumato.solve.solve_limits import LIMITS as SOLVE_LIMITS
from sfumato.strategy.base import Block, Norm, Strategy
from sfumato.strategy.measured import EXACT, WORD, Mixture
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Numbers, Objective, SearchProgress
from sfumato.workload.predicates import (
    Condition,
    cell_truth,
    leaves,
    truth_table,
)
from sfumato.workload.queries import joint_classes, repeated
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "Columns",
    "Dense",
    "DistinctQueries",
    "Mixed",
    "Reading",
    "dense",
    "distinct_columns",
    "distinct_queries",
    "invertible_mixing",
    "mixture_of",
    "query_basis",
    "read",
    "rounded_mixing",
]


# Strategies of one mixture


@dataclass(frozen=True, eq=False)
class Mixed(Strategy):
    """One block; row ``places[t][i]`` of the reconstruction answers query i of term t.

    Queries without a place (-1) are zero on all cells.

    How long the columns of the mixture are is known exactly (``Dense``) or proved
    (``Conditions``).
    """

    _algorithm: ClassVar[str] = "matrix"

    places: tuple[Integers, ...]
    reconstruction: Array

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y`` of the queries of the term."""
        estimates = self.reconstruction @ np.asarray(values[0], dtype=np.float64)
        return self._taken(term, estimates)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The squared rows of R times the noise variance."""
        return block_variances[0] * self._taken(term, self._squares)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c`` of the queries of the term."""
        place, c = self.places[term], np.asarray(coefficients, dtype=np.float64)
        is_placed = place >= 0
        summed = np.bincount(
            place[is_placed], weights=c[is_placed], minlength=len(self.reconstruction)
        )
        weights = np.asarray(self.reconstruction.T @ summed, dtype=np.float64)
        return {0: weights} if weights.any() else {}

    def readings(self, term: int) -> dict[int, Array]:
        """R of a term: its rows, 0 for queries that are zero."""
        rows = self.workload.terms[term].rows
        if rows * self.reconstruction.shape[1] > LIMITS.reading_entries:
            return super().readings(term)
        padded = np.append(self.reconstruction, np.zeros((1, self.reconstruction.shape[1])), axis=0)
        return {0: padded[self.places[term]]}

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2)^2 / sum r^4`` of the rows of R; infinite for Gaussian noise."""
        if self.noise == "gaussian":
            return repeated(np.inf, self.workload.terms[term].rows)
        parts = self.reconstruction**2 / self._squares[:, None]  # no query here is zero
        return np.append(1 / (parts**2).sum(axis=1), 1.0)[self.places[term]]

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.reconstruction**2).sum(axis=1), dtype=np.float64)

    def _taken(self, term: int, values: Array) -> Array:
        return np.append(values, 0.0)[self.places[term]]


class Dense(Mixed):
    """A mixture all of whose columns are known."""

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The exact power, over all different columns."""
        return SensitivityBound(self._columns[norm] * scales[0] * ROUND_UP, is_exact=True)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """The distance of the farthest two columns; a cell that no query counts has column 0."""
        if norm != 2:
            return super()._diameters(norm)
        mixture = self.mixture
        longest = self._columns[2]
        if mixture.rows * mixture.columns.shape[1] > LIMITS.diameter_numbers:
            return (4 * longest * ROUND_UP,)
        farthest = farthest_pair(np.concatenate(list(mixture.chunks()), axis=1))
        # Either column may be off, and so is a difference of nearly equal long ones.
        off = 2 * mixture.maximum_error + 2.0**-50 * sqrt(longest)
        return (min((sqrt(farthest) + off) ** 2, 4 * longest) * ROUND_UP,)

    @cached_property
    def mixture(self) -> Mixture:
        """The mixture that is its one block."""
        term = self.blocks[0].term
        if not isinstance(term, Mixture):
            raise TypeError("the block of a dense strategy is a mixture")
        return term

    @cached_property
    def _columns(self) -> dict[int, float]:
        return {p: self.mixture.maximum_column(p) for p in (1, 2)}


def dense(
    workload: Workload, objective: Objective = "rmse", progress: SearchProgress | None = None
) -> Dense:
    """The best strategy for the mean ("rmse") or the largest ("max") error, with its bound.

    ``bound`` is below ``weighted_error(objective)`` of every unbiased strategy.
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    columns = distinct_columns(workload.domain, workload.terms)
    queries = distinct_queries(columns, workload.terms, objective)
    used = np.flatnonzero(np.abs(queries.matrix).max(axis=0) > 0)
    matrix = queries.matrix if len(used) == queries.matrix.shape[1] else queries.matrix[:, used]
    cells = spanning_cells(matrix)
    basis, coordinates = query_basis(matrix, cells)
    root = best_root(matrix, queries.weights, objective, LIMITS.matrix_tolerance, progress, cells)
    whole = queries.matrix[basis]  # with the cells that no query counts
    options = invertible_mixing(root.mixing @ coordinates, whole)
    if len(options) > 1:
        options.insert(0, _helped(options[0], coordinates, queries.weights, root.lower, objective))
    entries = rounded_mixing(options, coordinates, whole, queries.weights, objective)
    mixture = mixture_of(workload, columns, queries, basis, entries)
    inverse = np.linalg.solve(entries.T.astype(np.float64), coordinates.T).T
    share = 1 / sqrt(mixture.maximum_column(2))
    return Dense(
        "dense",
        "gaussian",
        workload,
        (Block(mixture, share),),
        queries.places,
        np.asarray(inverse, dtype=np.float64),
        bound=root.lower,
        objective=objective,
    )


@dataclass(frozen=True, eq=False)
class DistinctQueries:
    """Different queries that are not zero, in floats or int8, with weights and where they are."""

    matrix: Numbers
    weights: Array
    places: tuple[Integers, ...]


def distinct_queries(
    columns: Columns, terms: Sequence[Term], objective: Objective
) -> DistinctQueries:
    """The different queries with their weights: the root of summed squares, or the greatest."""
    number: dict[bytes, int] = {}
    rows: list[int] = []
    squares: list[float] = []
    places: list[Integers] = []
    row = 0
    for term in terms:
        place = np.full(term.rows, -1, dtype=np.int64)
        for i in range(term.rows):
            coefficients = columns.matrix[row]
            if coefficients.any():
                index = number.setdefault((coefficients + 0).tobytes(), len(rows))
                if index == len(rows):
                    rows.append(row)
                    squares.append(0.0)
                more = term.weight**2
                squares[index] = (
                    max(squares[index], more) if objective == "max" else squares[index] + more
                )
                place[i] = index
            row += 1
        places.append(place)
    if not rows:
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    return DistinctQueries(columns.matrix[rows], np.sqrt(squares), tuple(places))


def query_basis(matrix: Numbers, cells: Integers) -> tuple[Integers, Array]:
    """Independent queries b and coordinates T with ``F = T F_b``."""
    from scipy.linalg import qr

    if min(len(matrix), len(cells)) > SOLVE_LIMITS.matrix_side:
        raise TooLarge(
            f"{len(matrix):,} distinct queries on {matrix.shape[1]:,} distinct cells are too many "
            f"for one matrix; one side must be at most {SOLVE_LIMITS.matrix_side:,}"
        )
    some = matrix[:, cells].astype(np.float64)
    lengths = np.linalg.norm(some, axis=1, keepdims=True)
    sized = some / lengths
    triangle, order = qr((sized * _preferred(lengths)).T, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    rank = int((pivots > pivots[0] * LIMITS.dependent_part).sum())
    if rank > LIMITS.matrix_rank:
        raise TooLarge(
            f"the queries have rank {rank:,}; at most {LIMITS.matrix_rank:,} values are measured "
            "as one matrix: products of query sets have better ways"
        )
    basis = np.sort(order[:rank]).astype(np.int64)
    _, where = qr(sized[basis], mode="r", pivoting=True)
    square = sized[:, where[:rank]]  # as many cells as queries, as independent as can be
    parts = np.linalg.solve(square[basis].T, square.T).T
    # How much of its own length a query owes to each of the basis: what is rounding, and what is
    # not, does not depend on how long queries are.
    parts[np.abs(parts) < LIMITS.dependent_part] = 0.0
    coordinates = parts * lengths / lengths[basis].T
    coordinates[basis] = np.eye(rank)
    near = np.rint(coordinates)
    is_near = (near != 0) & (np.abs(coordinates - near) < LIMITS.dependent_part)
    coordinates = np.where(is_near, near, coordinates)
    off = np.abs((coordinates @ some[basis] - some) / lengths).max()
    if off > LIMITS.dependent_part:
        raise PlanError(
            f"the queries depend on each other too closely: rewriting them errs by {off:.1e}; "
            "leave out those that nearly repeat others"
        )
    return basis, np.asarray(coordinates, dtype=np.float64)


def _preferred(lengths: Array) -> Array:
    """Factors between 1 and 2: of queries that say about the same, a long one joins the basis.

    A multiple of a much shorter one would need coefficients as much larger.
    """
    if float(lengths.max()) <= LIMITS.uneven_lengths * float(lengths.min()):
        return np.ones_like(lengths)
    return np.asarray(1 + np.log(lengths / lengths.min()) / np.log(lengths.max() / lengths.min()))


def invertible_mixing(mixing: Array, basis: Numbers) -> list[Array]:
    """The symmetric root of ``mixing' mixing``: the same X, and one answer on every machine.

    X may not reach queries that are very small beside others. Then all are measured with a least
    share: of their own length, or, as good as ever for small ones, of queries of length 1.
    """
    singular, right = _directions(mixing)
    least = LIMITS.matrix_singular_minimum * singular[0]
    raised = (right.T * np.maximum(singular, least)) @ right
    if singular[-1] >= least:
        return [raised]
    lengths = np.linalg.norm(basis.astype(np.float64), axis=1)
    singular, right = _directions(mixing * lengths)
    sizes = np.maximum(singular, LIMITS.matrix_singular_minimum * singular[0])
    return [(right.T * sizes) @ right / lengths, raised]


def _helped(
    mixing: Array, coordinates: Array, weights: Array, lower: float, objective: Objective
) -> Array:
    """The mixing with rows for queries that err by more than the optimum of all.

    Noise on ``q`` times its weight over the root of an error makes this error, squared: that of the
    optimum for the largest error, a small part of it for the sum.
    """
    inverse = np.linalg.solve(mixing.T, coordinates.T).T
    far = weights**2 * (inverse**2).sum(axis=1) > lower * (1 + LIMITS.matrix_rounding)
    error = lower if objective == "max" else lower * LIMITS.matrix_helped / max(int(far.sum()), 1)
    rows = coordinates[far] * (weights[far] / sqrt(error))[:, None]
    singular, right = _directions(np.concatenate([mixing, rows]))
    return np.asarray((right.T * singular) @ right, dtype=np.float64)


def _directions(mixing: Array) -> tuple[Array, Array]:
    """All singular values, also those that are 0, and the right vectors."""
    _, singular, right = np.linalg.svd(mixing, full_matrices=True)
    sizes = np.zeros(len(right))
    sizes[: len(singular)] = singular
    return sizes, np.asarray(right, dtype=np.float64)


def rounded_mixing(
    options: list[Array],
    coordinates: Array,
    basis: Numbers,
    weights: Array,
    objective: Objective,
    bits_tried: Sequence[int] = LIMITS.entry_bits,
    rounding: float = LIMITS.matrix_rounding,
) -> Integers:
    """Integers in proportion to a mixing, as few bits as rounding may cost, of the least error.

    When planning must end they are not searched for: the most are taken.
    """

    def error(matrix: Array) -> float:
        inverse = np.linalg.solve(matrix.T, coordinates.T).T
        squares = weights**2 * (inverse**2).sum(axis=1)
        worst = float(squares.max() if objective == "max" else squares.sum())
        return worst * _longest(matrix, basis)

    best: Integers | None = None
    least = np.inf
    is_late = must_stop()
    for mixing in options:
        aim = np.inf if is_late else error(mixing) * (1 + rounding)
        for bits in bits_tried[-1:] if is_late else bits_tried:
            unit = float(np.abs(mixing).max()) / 2**bits
            entries: Integers = np.rint(mixing / unit).astype(np.int64)
            matrix = entries.astype(np.float64)
            if np.linalg.matrix_rank(matrix) < len(matrix):
                continue
            if is_late:
                return entries
            now = error(matrix)
            if now < least:
                best, least = entries, now
            if now <= aim:
                break
    if best is None:
        raise PlanError("the strategy cannot be rounded to integers; scale the queries alike")
    return best


def _longest(matrix: Array, basis: Numbers) -> float:
    """The greatest squared column of ``matrix @ basis``."""
    step = max(1, LIMITS.numbers_at_once // len(matrix))
    parts = (basis[:, i : i + step].astype(np.float64) for i in range(0, basis.shape[1], step))
    return max(float(((matrix @ p) ** 2).sum(axis=0).max()) for p in parts)


def mixture_of(
    workload: Workload,
    columns: Columns,
    queries: DistinctQueries,
    basis: Integers,
    entries: Integers,
) -> Mixture:
    """The integers applied to the first query of each kind in the basis."""
    terms, picked, order = [], [], []
    left = {int(b): i for i, b in enumerate(basis)}
    for term, place in zip(workload.terms, queries.places, strict=True):
        rows = []
        for i, p in enumerate(place.tolist()):
            if p in left:
                rows.append(i)
                order.append(left.pop(p))
        if rows:
            terms.append(term)
            picked.append(np.array(rows, dtype=np.int64))
    bits = max(t.fraction_bits for t in terms)
    scaled = queries.matrix[basis[order]]
    if bits:
        common = np.ldexp(scaled.astype(np.float64), bits)
        # Beyond 64 bits whole numbers would be cut off silently, and with them the sensitivity.
        scaled = common if np.abs(common).max() > WORD else np.rint(common).astype(np.int64)
    return Mixture(
        workload.domain,
        f"mixture of {len(basis):,} queries",
        1.0,
        tuple(terms),
        tuple(picked),
        np.ascontiguousarray(entries[:, order]),
        scaled,
        columns.sizes,
    )


# Decision diagrams of queries


PACKED = 60  # truth values that fit in one 64-bit key

Words = npt.NDArray[np.uint64]
Leaf = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _QueryDiagram:
    """``moves[name][state, class]`` is the next state; ``values[:, state]`` the column at last."""

    moves: dict[str, Integers]
    values: Array


@dataclass(frozen=True, eq=False)
class _Bits:
    """Conjunctions: ``masks[name][class, i]`` says whether the i-th is still possible."""

    count: int
    masks: dict[str, Mask]
    is_complement: Mask


@dataclass(frozen=True, eq=False)
class Reading:
    """The queries of some terms, ready to be walked attribute by attribute.

    ``places`` says for every asked group where its rows are: indices of bits, or a diagram.

    Conjunctions of conditions on single attributes, and complements of such, are bits: a bit stays
    set while the conjunction is possible. Everything else (tables, given coefficients, other
    conditions) is a diagram of its own: a number per state, moved by a table per attribute. A state
    of all queries is one row of 64-bit words, the bits first.
    """

    names: tuple[str, ...]
    class_sizes: tuple[Array, ...]
    bits: _Bits
    diagrams: tuple[_QueryDiagram, ...]
    places: tuple[tuple[tuple[bool, int], ...], ...]

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Classes per attribute, in the order of the walk."""
        return tuple(len(s) for s in self.class_sizes)

    @property
    def _bit_words(self) -> int:
        return -(-self.bits.count // 64)

    def start(self) -> Words:
        """The state before any attribute is known: everything is possible."""
        out = np.zeros((1, self._bit_words + len(self.diagrams)), dtype=np.uint64)
        out[:, : self._bit_words] = _packed(np.ones((1, self.bits.count), dtype=np.bool_))
        return out

    def move(self, axis: int, states: Words, classes: Integers) -> Words:
        """The states after one more attribute: every state by every class, states first."""
        name = self.names[axis]
        out = np.repeat(states, len(classes), axis=0)
        split = self._bit_words
        if name in self.bits.masks:
            out[:, :split] &= np.tile(_packed(self.bits.masks[name][classes]), (len(states), 1))
        for i, diagram in enumerate(self.diagrams):
            if name in diagram.moves:
                now = states[:, split + i].astype(np.int64)
                moved = diagram.moves[name][np.ix_(now, classes)]
                out[:, split + i] = moved.reshape(-1).astype(np.uint64)
        return out

    def matrix(self, states: Words) -> Numbers:
        """The columns of the final states: a row per query, in the order of the terms."""
        octets = np.ascontiguousarray(states[:, : self._bit_words]).view(np.uint8)
        bits = np.unpackbits(octets.reshape(len(states), -1), axis=1, bitorder="little")
        signs = self.bits.is_complement[:, None]
        holds = np.asarray(bits[:, : self.bits.count].T.astype(np.bool_) ^ signs, dtype=np.int8)
        if not self.diagrams:
            order = [i for group in self.places for _, i in group]
            return np.ascontiguousarray(holds[order])
        rows: list[Array] = []
        for group in self.places:
            for is_bit, i in group:
                if is_bit:
                    rows.append(holds[i : i + 1].astype(np.float64))
                else:
                    now = states[:, self._bit_words + i].astype(np.int64)
                    rows.append(self.diagrams[i].values[:, now])
        return np.concatenate(rows)


def read(domain: Domain, terms: Sequence[Term]) -> Reading:
    """The classes of cells of every attribute, and the diagrams over them."""
    masks = _leaf_masks(domain, terms)
    keys: dict[str, list[Integers]] = {}
    tables = {i: _table(t, keys) for i, t in enumerate(terms) if not t.as_conditions()}
    used = domain.in_order({*keys, *(name for name, _ in masks)})
    class_of = {
        name: _joined([m for (n, _), m in masks.items() if n == name], keys.get(name, []))
        for name in used
    }
    firsts = {name: np.unique(of, return_index=True)[1] for name, of in class_of.items()}
    # Few classes first: the number of states then grows as late as possible.
    names = tuple(sorted(used, key=lambda n: (len(firsts[n]), n)))
    small = {leaf: mask[firsts[leaf[0]]] for leaf, mask in masks.items()}
    bits, diagrams = _Collector(), list[_QueryDiagram]()
    places: list[tuple[tuple[bool, int], ...]] = []
    for i, term in enumerate(terms):
        if conditions := term.as_conditions():
            places.append(tuple(_place(c, names, small, bits, diagrams) for c in conditions))
        else:
            states, values = tables[i]
            table = states[np.ix_(*(firsts[n] for n in term.attributes))]
            order = [n for n in names if n in term.attributes]
            table = table.transpose([term.attributes.index(n) for n in order])
            diagrams.append(_diagram(order, table, values))
            places.append(((False, len(diagrams) - 1),))
    sizes = tuple(np.bincount(class_of[n]).astype(np.float64) for n in names)
    counts = {n: len(firsts[n]) for n in names}
    return Reading(names, sizes, bits.gathered(counts), tuple(diagrams), tuple(places))


class _Collector:
    """Conjunctions as they are found; equal ones share a bit."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[bool, tuple[tuple[str, bytes], ...]], int] = {}
        self.masks: list[dict[str, Mask]] = []
        self.complements: list[bool] = []

    def add(self, masks: dict[str, Mask], is_complement: bool) -> int:
        """The number of the bit of a conjunction."""
        key = (is_complement, tuple((n, m.tobytes()) for n, m in masks.items()))
        if key not in self.numbers:
            self.numbers[key] = len(self.masks)
            self.masks.append(masks)
            self.complements.append(is_complement)
        return self.numbers[key]

    def gathered(self, counts: dict[str, int]) -> _Bits:
        """One mask per attribute and class, over all bits."""
        out: dict[str, Mask] = {}
        for i, masks in enumerate(self.masks):
            for name, mask in masks.items():
                blank = np.ones((counts[name], len(self.masks)), dtype=np.bool_)
                out.setdefault(name, blank)[:, i] = mask
        return _Bits(len(self.masks), out, np.array(self.complements, dtype=np.bool_))


def _leaf_masks(domain: Domain, terms: Sequence[Term]) -> dict[Leaf, Mask]:
    """In which cells each leaf of a condition holds."""
    out: dict[Leaf, Mask] = {}
    for term in terms:
        for condition in term.as_conditions():
            for leaf in leaves(condition):
                key = (leaf.attribute, leaf.codes)
                if key not in out:
                    mask = np.zeros(domain[leaf.attribute].size, dtype=np.bool_)
                    mask[np.array(leaf.codes, dtype=np.int64)] = True
                    out[key] = mask
    return out


def _table(term: Term, keys: dict[str, list[Integers]]) -> tuple[Integers, Array]:
    """The kind of every cell of a term's table, and the column of every kind.

    The classes that the term tells apart along each attribute join ``keys``.
    """
    if term.rows * term.cells > LIMITS.diagram_entries:
        raise TooLarge(
            f"group {term.name!r} has {term.rows:,} queries on {term.cells:,} cells; at most "
            f"{LIMITS.diagram_entries:,} coefficients of a group are solved as one matrix"
        )
    if term.greatest * 2.0**term.fraction_bits >= EXACT:
        raise TooLarge(
            f"the coefficients of group {term.name!r} need more than 53 bits; round the queries"
        )
    dense = term.dense()
    values, states = np.unique(dense, axis=1, return_inverse=True)
    table = states.astype(np.int64).reshape(term.shape)
    for axis, name in enumerate(term.attributes):
        slices = np.moveaxis(table, axis, 0).reshape(term.shape[axis], -1)
        classes = np.unique(slices, axis=0, return_inverse=True)[1]
        keys.setdefault(name, []).append(classes.astype(np.int64).reshape(-1))
    return table, values


def _place(
    condition: Condition,
    walk: Sequence[str],
    masks: dict[Leaf, Mask],
    bits: _Collector,
    diagrams: list[_QueryDiagram],
) -> tuple[bool, int]:
    """A condition as a bit where it or its complement is a conjunction, else as a diagram."""
    names = [n for n in walk if n in condition.attributes]
    mine = {(leaf.attribute, leaf.codes) for leaf in leaves(condition)}
    own = [_joined([masks[leaf] for leaf in mine if leaf[0] == name]) for name in names]
    firsts = [np.unique(of, return_index=True)[1] for of in own]
    shape = [len(f) for f in firsts]
    if prod(shape) > LIMITS.diagram_entries:
        raise TooLarge(
            f"a condition on {', '.join(names)} tells {prod(shape):,} combinations apart, more "
            f"than {LIMITS.diagram_entries:,}; split it into several"
        )
    at = dict(zip(names, firsts, strict=True))
    truth = truth_table(
        condition, names, shape, lambda leaf: masks[leaf.attribute, leaf.codes][at[leaf.attribute]]
    )
    for is_complement in (False, True):
        holds = truth ^ is_complement
        axes = range(len(names))
        sides = [np.asarray(holds.any(axis=tuple(j for j in axes if j != i))) for i in axes]
        if names and np.array_equal(_all_of(sides), holds):
            spread = {n: side[of] for n, side, of in zip(names, sides, own, strict=True)}
            return True, bits.add(spread, is_complement)
    # Over the few classes that the condition itself tells apart; those of all queries together
    # follow the class they are in.
    diagram = _diagram(names, truth.astype(np.int64), np.array([[0.0, 1.0]]))
    moves = {n: diagram.moves[n][:, of] for n, of in zip(names, own, strict=True)}
    diagrams.append(replace(diagram, moves=moves))
    return False, len(diagrams) - 1


def _all_of(sides: Sequence[Mask]) -> Mask:
    out = np.ones((1,) * len(sides), dtype=np.bool_)
    for axis, side in enumerate(sides):
        along = [-1 if i == axis else 1 for i in range(len(sides))]
        out = out & side.reshape(along)
    return out


def _diagram(names: Sequence[str], table: Integers, values: Array) -> _QueryDiagram:
    """The diagram of a table: equal tables of what is left to know are one state."""
    moves: dict[str, Integers] = {}
    for name in reversed(names):
        rows = table.reshape(-1, table.shape[-1])
        successors, states = np.unique(rows, axis=0, return_inverse=True)
        moves[name] = successors
        table = states.astype(np.int64).reshape(table.shape[:-1])
    return _QueryDiagram(moves, values if names else values[:, [int(table)]])


def _joined(masks: Sequence[Mask], keys: Sequence[Integers] = ()) -> Integers:
    """Classes of positions that no mask and no key tells apart; ``PACKED`` masks make one key."""
    out = list(keys)
    for start in range(0, len(masks), PACKED):
        packed = np.zeros(len(masks[0]), dtype=np.int64)
        for bit, mask in enumerate(masks[start : start + PACKED]):
            packed |= mask.astype(np.int64) << bit
        out.append(np.unique(packed, return_inverse=True)[1].astype(np.int64).reshape(-1))
    return joint_classes(out)


def _packed(bits: Mask) -> Words:
    """Rows of bits as rows of 64-bit words."""
    octets = np.packbits(bits, axis=1, bitorder="little")
    padded = np.zeros((len(bits), -(-bits.shape[1] // 64) * 8), dtype=np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(np.uint64)


# Distinct columns of a workload


@dataclass(frozen=True, eq=False)
class Columns:
    """``matrix`` has a row per asked query, group after group, and a column per kind of cell.

    ``sizes`` counts the cells of each kind, over the attributes that are asked about.
    """

    matrix: Numbers
    sizes: Array


def distinct_columns(domain: Domain, terms: Sequence[Term]) -> Columns:
    """All different columns of the queries of these terms.

    Cells whose columns of F are equal need not be told apart: an optimal strategy treats them
    alike, and its sensitivity is that of one of them. A few hundred conditions have few different
    columns on 10^12 cells. They are found attribute by attribute:

    1. Cells of an attribute that no query tells apart are one class.
    2. A query is read as a decision diagram: after some attributes are known, what matters of them
       is one number, its state. A conjunction has two, "still possible" and "failed", so that all
       conjunctions together (and, complemented, all disjunctions) are one string of bits.
    3. The states of all queries after attribute i are the states after attribute i - 1, moved by
       each class of attribute i, every combination kept once.

    Combinations are compared in full: a hash only says where to look.

    The diagrams are those of Bryant 1986, "Graph-based algorithms for Boolean function
    manipulation", with more than two branches; merging equal cells is the workload-based partition
    of Zhang et al. 2018 (``workload/predicates.py``).
    """
    queries = sum(t.rows for t in terms)
    _check(domain, terms, queries)
    reading = read(domain, terms)
    least = _columns_at_least(terms)
    if least * queries > LIMITS.column_entries:
        raise _too_many(reading, queries, least)
    states, sizes = reading.start(), np.ones(1)
    for axis, count in enumerate(reading.class_counts):
        if len(states) * count > LIMITS.column_moves:
            raise _too_many(reading, queries, len(states) * count)
        states, sizes = _moved(reading, axis, states, sizes)
        if len(states) * queries > LIMITS.column_entries:
            raise _too_many(reading, queries, len(states))
    return Columns(reading.matrix(states), sizes)


def _check(domain: Domain, terms: Sequence[Term], queries: int) -> None:
    """Refuse at once what is known to have too many queries or columns."""
    tables = [t for t in terms if not t.as_conditions()]
    entries = sum(t.rows * t.cells for t in tables)
    # Single cells, prefixes and ranges tell all cells of their attributes apart.
    products = [p for t in tables if (p := t.as_product()) is not None]
    sharp = [p for p in products if all(q.separates_cells for _, q in p.factors)]
    cells = domain.cells(domain.in_order({n for t in sharp for n in t.attributes}))
    if (
        queries > LIMITS.column_queries
        or entries > LIMITS.column_entries
        or cells * queries > LIMITS.column_entries
    ):
        raise TooLarge(
            f"{queries:,} queries, of which {sum(t.rows for t in tables):,} are on tables of "
            f"{cells:,} or more cells, are too many to be solved as one matrix of "
            f"{LIMITS.column_entries:,} coefficients; products of query sets have better ways"
        )


def _columns_at_least(terms: Sequence[Term]) -> int:
    """The product of the classes that queries on one attribute alone tell apart along each."""
    masks: dict[str, list[Mask]] = {}
    classes: dict[str, int] = {}
    for term in terms:
        product = term.as_product()
        if product is not None and all(q.separates_cells for _, q in product.factors):
            classes |= {name: q.size for name, q in product.factors}
        for condition in term.as_conditions():
            if len(condition.attributes) == 1:
                (name,) = condition.attributes
                masks.setdefault(name, []).append(cell_truth(term.domain, condition, (name,)))
    for name, some in masks.items():
        classes[name] = max(classes.get(name, 1), int(_joined(some).max()) + 1)
    return prod(classes.values())


def _moved(reading: Reading, axis: int, states: Words, sizes: Array) -> tuple[Words, Array]:
    """Every state after one more attribute, with the number of cells that lead to it."""
    weights = reading.class_sizes[axis]
    step = max(1, LIMITS.numbers_at_once // states.size)
    parts: list[Words] = []
    counted: list[Array] = []
    for first in range(0, len(weights), step):
        if must_stop():
            raise TooLarge(
                "planning must end before the different columns of all queries are known; ask "
                "about fewer attributes at once, or allow more seconds"
            )
        classes = np.arange(first, min(first + step, len(weights)))
        moved = reading.move(axis, states, classes)
        spend(64.0 * moved.size)  # words, several times each
        cells = np.multiply.outer(sizes, weights[classes]).reshape(-1)
        distinct, total = _distinct(moved, cells)
        parts.append(distinct)
        counted.append(total)
    return _distinct(np.concatenate(parts), np.concatenate(counted))


def _distinct(words: Words, sizes: Array) -> tuple[Words, Array]:
    """The different rows, and the sizes of equal ones summed."""
    key = np.zeros(len(words), dtype=np.uint64)
    for column in range(words.shape[1]):  # multiply and fold: a hash, wrapping around
        key = (key ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    rows = words[first]
    if not np.array_equal(rows[where], words):  # two different rows with one hash
        rows, where = np.unique(words, axis=0, return_inverse=True)
        where = where.reshape(-1)
    return rows, np.asarray(np.bincount(where, weights=sizes), dtype=np.float64)


def _too_many(reading: Reading, queries: int, count: int) -> TooLarge:
    counts = " x ".join(f"{n:,}" for n in reading.class_counts)
    return TooLarge(
        f"{queries:,} queries tell {counts} classes of cells apart, and {count:,} or more of their "
        f"combinations; at most {LIMITS.column_entries // max(queries, 1):,} are solved as one "
        "matrix: ask about fewer attributes at once"
    )
