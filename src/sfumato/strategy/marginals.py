# SPDX-License-Identifier: Apache-2.0
"""Marginals and other tables of counts, measured by sets of attributes.

``marginals_optimum``: the optimal strategy for Gaussian noise in closed form, for any number of
attributes. A marginal over the set B of attributes with n_i cells is the sum over the subsets A of
B of its part that is centred along A and constant along the rest. Measured is one piece per A: the
product of ``I - J/n_i`` over A, totalled over all other attributes, with the share ``phi_A`` of the
squared sensitivity. With ``d_A = prod_{i in A} (n_i - 1)`` and ``N_B = prod_{i in B} n_i``, every
answer of the marginal B has at unit noise the variance

    var_B = N_B^-2 sum_{A within B} d_A^2 / phi_A,        sum_A phi_A = 1.

Weights c_B on these variances, ``min sum_B c_B N_B^2 var_B``, are met best by ``phi_A ~ d_A
sqrt(g_A)``, ``g_A = sum_{B holding A} c_B``; the sum is then ``(sum_A d_A sqrt(g_A))^2``. No
factorization has less: it is the bound of ``solve/nuclear.py`` at equal cells, for g_A is the
eigenvalue of the Gram matrix (over the number of cells) on the d_A functions centred along A.

* Root mean square: ``c_B = w_B^2 / N_B`` for marginals of weight w_B.
* Largest error: ``min max_B w_B^2 var_B`` is ``max (sum_A d_A sqrt(g_A))^2`` over weights lambda of
  sum 1, ``c_B = lambda_B w_B^2 / N_B^2`` (the minimax theorem). Every lambda gives a lower bound,
  and the shares that belong to it an upper one. This has the form that ``solve/nuclear.py`` solves,
  marginals taking the place of cells.

Sums run over all pairs ``A within B`` at once (``solve/lattice.py``).

``weighted_marginals`` measures tables of counts with Laplace noise and answers all of them jointly;
``fourier`` measures the characters of yes/no attributes.

Reference: Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals under convex loss functions".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from math import log, prod
from typing import ClassVar, overload

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain, valued
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import spend, stop_in_time
from sfumato.solve.lattice import CompleteLattice, Lattice, lattice, marginal_sets
from sfumato.solve.nuclear import certified_optimum
from sfumato.strategy.base import Block, GaussianStrategy, Norm, Strategy
from sfumato.strategy.blockwise import power_of, table_block
from sfumato.strategy.moves import BlockMoves, set_moves
from sfumato.strategy.splits import Split, centred_split
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Noise, Objective
from sfumato.workload.queries import Matrix, QuerySet, check_entries, repeated
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "Fourier",
    "Marginals",
    "WeightedMarginals",
    "fourier",
    "marginals_optimum",
    "merged_tables",
    "weighted_marginals",
]


@dataclass(frozen=True, eq=False)
class Marginals(GaussianStrategy):
    """One block per subset of an asked set of attributes.

    ``splits`` has the attributes of more than one cell that are asked about, by number.
    """

    _algorithm: ClassVar[str] = "marginals"

    lattice: Lattice
    splits: Mapping[int, Split]

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the pieces within the marginal, constant along what they total."""
        inside = self.lattice.within(term).tolist()
        return self._summed(term, {b: self._residual(b, values[b]) for b in inside})

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every marginal; every piece is centred once."""
        if isinstance(self.lattice, CompleteLattice) and self._is_binary:
            return self._transformed(self.lattice, values)
        parts = {b: self._residual(b, y) for b, y in enumerate(values)}
        return [self._summed(t, parts) for t in range(self.lattice.terms)]

    def _transformed(self, subsets: CompleteLattice, values: Sequence[Array]) -> list[Array]:
        """``answers`` of yes/no attributes, many at a time: one Walsh-Hadamard transform each.

        A piece measures the character of its set A, ``y_A``; the cell b of a marginal of k
        attributes is ``2^-k sum_A (-1)^(sum of b over A) y_A``.
        """
        y = np.array([float(v[0]) for v in values])
        out: list[Array] = [np.zeros(0)] * subsets.terms
        for numbers, pieces in subsets.some_at_a_time():
            k = int(pieces.shape[1]).bit_length() - 1
            tables = np.zeros((len(numbers), 2**k))
            tables[:, _cells_of_subsets(k)] = y[pieces] * 2.0**-k
            for axis in range(k):
                pairs = tables.reshape(len(numbers), 2**axis, 2, -1)
                both = np.stack([pairs.sum(axis=2), pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
                tables = both.reshape(len(numbers), -1)
            for number, table in zip(numbers.tolist(), tables, strict=True):
                out[number] = table
        return out

    @property
    def _is_binary(self) -> bool:
        """Whether all asked attributes have two cells: pieces are then characters."""
        return all(self.workload.domain.shape[i] == 2 for i in self.splits)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """The mean of the coefficients along what a piece totals, read through its rest."""
        names = self._members(int(self.lattice.within(term)[-1]))
        cells = self.workload.domain.shape
        table = np.asarray(coefficients, dtype=np.float64).reshape([cells[i] for i in names])
        by_block = {}
        for b in self.lattice.within(term).tolist():
            inside = self._members(b)
            part = table.mean(axis=tuple(at for at, i in enumerate(names) if i not in inside))
            for axis, i in enumerate(inside):
                moved = self.splits[i].cells_adjoint(np.moveaxis(part, axis, 0))
                part = np.moveaxis(moved, 0, axis)
            by_block[b] = np.asarray(part, dtype=np.float64).reshape(-1)
        return by_block

    def readings(self, term: int) -> dict[int, Array]:
        """Products over the attributes of the marginal: ``S^+`` in a piece, ``1/n`` outside."""
        inside = self.lattice.within(term).tolist()
        names = self._members(inside[-1])
        check_entries(
            self.workload.terms[term].rows * sum(self.block_rows[b] for b in inside),
            "how a marginal is read from its pieces",
        )
        out = {}
        for b in inside:
            members = self._members(b)
            part: Array = np.ones((1, 1))
            for i in names:
                part = np.asarray(np.kron(part, self._along[i][i in members]), dtype=np.float64)
            out[b] = part
        return out

    @cached_property
    def _along(self) -> dict[int, tuple[Array, Array]]:
        """What a cell reads along an attribute: of a piece without it, and of one with it."""
        return {
            i: (
                np.full((s.measured.size, 1), 1 / s.measured.size),
                s.cells(np.eye(s.measured.rows)),
            )
            for i, s in self.splits.items()
        }

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """``r r'`` of two cells is ``unit^2 (1 - 1/n)`` where they agree, ``-unit^2 / n`` else."""
        inside = self.lattice.within(term).tolist()
        names = self._members(inside[-1])
        shape = [self.workload.domain.shape[i] for i in names]
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), shape) if shape else ()
        kernels = {}
        for i, n, at in zip(names, shape, places, strict=True):
            kernels[i] = self.splits[i].unit ** 2 * ((at[:, None] == at[None, :]) - 1 / n)
        out = np.zeros((len(queries), len(queries)))
        for b in inside:
            members = self._members(b)
            outside = [n for i, n in zip(names, shape, strict=True) if i not in members]
            part = np.full_like(out, block_variances[b] * prod(n**-2.0 for n in outside))
            for i in members:
                part *= kernels[i]
            out += part
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variance of every cell: all cells of a marginal have the same."""
        rows = self.workload.terms[term].rows
        return repeated(self.maximum_variance(term, block_variances), rows)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The number of cells times their variance."""
        rows = self.workload.terms[term].rows
        return rows * self.maximum_variance(term, block_variances)

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The variance of a cell: the sum over the pieces within the marginal."""
        inside = self.lattice.within(term)
        parts = np.array([block_variances[b] for b in inside.tolist()]) * self._reading[inside]
        return float(parts.sum() / self._rows[term] ** 2)

    def total_variances(self, block_variances: Sequence[float]) -> list[float]:
        """``total_variance`` of all marginals at once."""
        return (self._cell_variances(block_variances) * self._rows).tolist()  # type: ignore[no-any-return]

    def maximum_variances(self, block_variances: Sequence[float]) -> list[float]:
        """``maximum_variance`` of all marginals at once."""
        return self._cell_variances(block_variances).tolist()  # type: ignore[no-any-return]

    def _cell_variances(self, block_variances: Sequence[float]) -> Array:
        """The variance of the cells of every marginal."""
        return self.lattice.below(np.asarray(block_variances) * self._reading) / self._rows**2

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The exact power: all cells have columns of the same norm in every block."""
        power = float((self.lattice.of_pieces(self._columns(norm)) * np.asarray(scales)).sum())
        return SensitivityBound(power * ROUND_UP, is_exact=True)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """``2 |M_i|^2 n / (n - 1)``: cells that differ along the shortest attribute alone.

        The inner product of two columns is their squared norm times ``-1 / (n_i - 1)`` per
        attribute of the piece that they differ in: least for one, the shortest.
        """
        if norm != 2:
            return super()._diameters(norm)
        longest = self.lattice.of_pieces(self._columns(2))
        levels = self.lattice.levels
        shortest = np.concatenate([self._sizes[r].min(axis=1, initial=np.inf) for r in levels])
        is_total = np.isinf(shortest)
        ratio = np.where(is_total, 0.0, 1 + 1 / (np.where(is_total, 2.0, shortest) - 1))
        return tuple((2 * longest * ratio * ROUND_UP).tolist())

    def _moves(self, norm: Norm, may_drop_records: bool) -> BlockMoves | None:
        """The moves by the attributes in which two cells differ, where those are few."""
        if norm != 2:
            return super()._moves(norm, may_drop_records)
        scales = np.array(self.shares) ** 2
        return set_moves(self.lattice, self._sizes, self.piece_norms, scales, may_drop_records)

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every piece, all at once."""
        weights = np.array([t.weight**2 for t in self.workload.terms])
        return self.lattice.above(weights / self._rows) * self._reading

    def piece_squares(self, block_variances: Sequence[float]) -> Array:
        """The expected squared noise of every piece, all cells of its own table together."""
        return np.asarray(block_variances) * self._reading / self.lattice.of_pieces(self._sizes)

    def inner_variances(self, block_variances: Sequence[float]) -> dict[tuple[int, ...], float]:
        """The variance of a cell of every table within an asked one that is not asked itself.

        By the numbers of its attributes; the number of records is none of them.
        """
        each = dict(zip(self._sets, np.asarray(block_variances) * self._reading, strict=True))
        last = [int(self.lattice.within(t)[-1]) for t in range(self.lattice.terms)]
        whole = {tuple(self._members(piece)) for piece in last}
        out = {}
        for members in self._sets:
            if members and members not in whole:
                inside = chain.from_iterable(
                    combinations(members, j) for j in range(len(members) + 1)
                )
                cells = prod(self.workload.domain.shape[i] for i in members)
                out[members] = sum(each[a] for a in inside) / cells**2
        return out

    @property
    def _sets(self) -> list[tuple[int, ...]]:
        return [tuple(row) for rows in self.lattice.levels for row in rows.tolist()]

    @cached_property
    def piece_cells(self) -> Array:
        """The dimension of every piece: of its own table what tables of fewer leave open."""
        return self.lattice.of_pieces(np.maximum(self._sizes - 1, 1))

    @cached_property
    def piece_weights(self) -> Array:
        """How much the squared error of a piece in its own table is in all asked tables."""
        weights = np.array([t.weight**2 for t in self.workload.terms])
        return self.lattice.above(weights / self._rows) * self.lattice.of_pieces(self._sizes)

    @cached_property
    def piece_norms(self) -> Array:
        """The squared column norm of every piece, at share 1."""
        return self.lattice.of_pieces(self._columns(2))

    @property
    def domain_cells(self) -> float:
        """The number of cells over all attributes that some marginal has."""
        return float(prod(self.workload.domain.shape[i] for i in self.splits))

    def minimax_errors(self, each: Array) -> tuple[Array, float]:
        """``block_errors`` with the weights on terms of the worst case, and its lower bound.

        The best shares for moves that move the pieces by ``each`` on average, squared.
        """
        weights = np.array([term.weight**2 for term in self.workload.terms])
        scale = np.sqrt(each / self.piece_norms)
        c, bound = _worst(self.lattice, weights / self._rows**2, self._sizes, None, scale)
        return self.lattice.above(c) * self._reading, bound

    @property
    def has_pieces(self) -> bool:
        """Whether there are several, of whole counts, for answers without a bias."""
        return self.records is None and not any(self.block_units) and self.lattice.pieces > 1

    def with_shares(self, shares: Array) -> Marginals:
        """The strategy of the same pieces with other shares."""
        blocks = _Blocks(self.workload.domain, self.lattice, self.splits, tuple(shares.tolist()))
        return replace(self, blocks=blocks)

    @property
    def is_nonnegative(self) -> bool:
        """Whether only the total is measured: all other pieces have both signs."""
        return self.lattice.pieces == 1

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of every block."""
        return self.blocks.shares if isinstance(self.blocks, _Blocks) else super().shares

    @cached_property
    def block_rows(self) -> tuple[int, ...]:
        """The number of values that every block measures."""
        rows = self._by_attribute({i: float(s.measured.rows) for i, s in self.splits.items()})
        return tuple(int(n) for n in self.lattice.of_pieces(rows).tolist())

    @cached_property
    def block_cells(self) -> tuple[int, ...]:
        """The cells of the table that every block reads."""
        return tuple(int(n) for n in self.lattice.of_pieces(self._sizes).tolist())

    @cached_property
    def block_bits(self) -> tuple[int, ...]:
        """0 for every block: all coefficients are whole."""
        return (0,) * self.lattice.pieces

    @cached_property
    def block_units(self) -> tuple[int, ...]:
        """Those of the terms; 0 without building them where no attribute has values of its own."""
        domain = self.workload.domain
        if valued(domain, domain.names):
            return super().block_units
        return (0,) * self.lattice.pieces

    @cached_property
    def block_slacks(self) -> tuple[float, ...]:
        """0 for every block: all values are exact."""
        return (0.0,) * self.lattice.pieces

    def digest(self) -> str:
        """SHA-256 of the pieces and their shares."""
        domain = self.workload.domain
        out = hashlib.sha256(f"marginals|{domain.names}|{domain.shape}|".encode())
        for rows in self.lattice.levels:
            out.update(f"{rows.shape}|".encode() + np.ascontiguousarray(rows).tobytes())
        out.update(np.array(self.shares).tobytes())
        return out.hexdigest()

    @cached_property
    def _sizes(self) -> Array:
        return np.array(self.workload.domain.shape, dtype=np.float64)

    @cached_property
    def _rows(self) -> Array:
        return self.lattice.of_terms(self._sizes)

    @cached_property
    def _reading(self) -> Array:
        """``prod_{i in A} n_i^2 |r_i|^2``: r_i reads a cell, ``|r_i|^2 = unit^2 (1 - 1 / n_i)``."""
        units = self._by_attribute({i: s.unit for i, s in self.splits.items()})
        return self.lattice.of_pieces(units**2 * self._sizes * (self._sizes - 1))

    def _columns(self, p: int) -> Array:
        columns = {i: float(s.measured.column_powers(p)[0]) for i, s in self.splits.items()}
        return self._by_attribute(columns)

    def _by_attribute(self, values: Mapping[int, float]) -> Array:
        out = np.ones(len(self._sizes))
        out[list(values)] = list(values.values())
        return out

    def _members(self, piece: int) -> list[int]:
        return [int(i) for i in self.lattice.members(piece)]

    def _residual(self, b: int, values: Array) -> Array:
        """The measured values of a piece as a centred table."""
        inside = self._members(b)
        part = np.asarray(values, dtype=np.float64)
        part = part.reshape([self.splits[i].measured.rows for i in inside])
        for axis, i in enumerate(inside):
            part = np.moveaxis(self.splits[i].cells(np.moveaxis(part, axis, 0)), 0, axis)
        return part

    def _summed(self, term: int, parts: Mapping[int, Array]) -> Array:
        """The table of a marginal: its greatest piece, with the others spread over it."""
        inside = self.lattice.within(term).tolist()
        names = self._members(inside[-1])
        out = parts[inside[-1]].copy()
        for b in inside[:-1]:
            members = self._members(b)
            shape = [n if i in members else 1 for i, n in zip(names, out.shape, strict=True)]
            spread = parts[b].size / out.size  # 1 / the cells along what the piece totals
            out += parts[b].reshape(shape) * spread
        return out.reshape(-1)


def _cells_of_subsets(k: int) -> Integers:
    """The cell of a table of k yes/no attributes with a 1 at each set, by size of the set."""
    sets = chain.from_iterable(combinations(range(k), j) for j in range(k + 1))
    return np.array([sum(1 << (k - 1 - i) for i in s) for s in sets], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Blocks(Sequence[Block]):
    """The blocks of all pieces, each built when it is asked for: there may be very many."""

    domain: Domain
    lattice: Lattice
    splits: Mapping[int, Split]
    shares: tuple[float, ...]
    _built: dict[int, Block] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.shares)

    @overload
    def __getitem__(self, at: int) -> Block: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Block]: ...
    def __getitem__(self, at: int | slice) -> Block | Sequence[Block]:
        if isinstance(at, slice):
            return tuple(self[b] for b in range(*at.indices(len(self))))
        b = range(len(self))[at]
        if b not in self._built:
            inside = self.lattice.members(b).tolist()
            names = self.domain.names
            factors = tuple((names[i], self.splits[i].measured) for i in inside)
            title = " x ".join(f"~{name}" for name, _ in factors) or "total"
            self._built[b] = Block(Product(self.domain, title, 1.0, factors), self.shares[b])
        return self._built[b]


def marginals_optimum(
    workload: Workload,
    objective: Objective = "rmse",
    progress: Callable[[int, float], None] | None = None,
) -> Marginals | None:
    """The best strategy for a union of weighted marginals; None when a term is no marginal.

    ``objective`` is ``"rmse"`` (``bound`` is then one on ``weighted_error``) or ``"max"`` (on the
    greatest ``w^2 |r|^2 ||M||_{1->2}^2`` of a query).
    """
    sets = marginal_sets(workload)
    if sets is None:
        return None
    subsets = lattice(sets, is_listed=False)
    sizes = np.array(workload.domain.shape, dtype=np.float64)
    weights = np.array([term.weight**2 for term in workload.terms])
    rows, d = subsets.of_terms(sizes), subsets.of_pieces(sizes - 1)
    if objective == "max":
        c, bound = _worst(subsets, weights / rows**2, sizes, progress)
        root = d * np.sqrt(subsets.above(c))
    else:
        root = d * np.sqrt(subsets.above(weights / rows))
        bound = float(root.sum()) ** 2
    used = {int(i) for level in subsets.levels[1:2] for i in level[:, 0]}
    splits = {i: centred_split(workload.domain.shape[i]) for i in sorted(used)}
    units = np.ones(len(sizes))
    units[list(splits)] = [s.unit for s in splits.values()]
    # The piece of share phi has columns of squared norm phi: I - J/n has those of 1 - 1/n.
    spread = subsets.of_pieces(np.where(sizes > 1, units**2 * sizes / np.maximum(sizes - 1, 1), 1))
    shares = np.sqrt(root / root.sum() * spread)
    blocks = _Blocks(workload.domain, subsets, splits, tuple(shares.tolist()))
    return Marginals(
        "factorization",
        "gaussian",
        workload,
        blocks,
        subsets,
        splits,
        bound=bound,
        objective=objective,
    )


def _worst(
    subsets: Lattice,
    c: Array,
    sizes: Array,
    progress: Callable[[int, float], None] | None,
    scale: Array | float = 1.0,
) -> tuple[Array, float]:
    """``lambda_B c_B`` with the greatest lower bound on the largest error, and that bound.

    ``solve/nuclear.py`` with ``sum_A d_A sqrt(g_A)`` as the trace: its derivative by log lambda_B
    is half of ``lambda_B c_B sum_{A within B} d_A / sqrt(g_A)``, which takes the place of the
    diagonal. ``scale`` multiplies d_A: by how much a piece costs, as a root.
    """
    d = subsets.of_pieces(sizes - 1) * scale

    def diagonal(lam: Array) -> Array:
        return lam * c * subsets.below(d / np.sqrt(subsets.above(lam * c)))

    # Were every marginal alone in its greatest piece, lambda_B ~ c_B d_B^2.
    start = c * subsets.of_terms(np.maximum(sizes - 1, 1)) ** 2
    start = np.maximum(start / start.mean(), LIMITS.marginals_start_minimum)
    optimum = certified_optimum(
        diagonal,
        subsets.terms,
        LIMITS.marginals_tolerance,
        LIMITS.marginals_steps,
        start=start,
        progress=progress,
    )
    return optimum.v / optimum.v.sum() * c, optimum.lower


# Weighted marginals for Laplace noise, answered jointly

LARGEST_LOG = 700.0  # floats hold no greater exponential

Subset = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WeightedMarginals(Strategy):
    """Block b measures the table of ``tables[b]``; all terms ask for tables.

    Measured are tables A of counts with shares ``theta_A``; a record is in one cell of each, so the
    L1 column norm is ``sum theta_A``. All their Gram matrices share eigenspaces, one per set B of
    attributes: the residuals of B, which sum to zero along every attribute of B. On them the
    measurements have precision ``lambda_B = sum_{A contains B} theta_A^2 / n_A`` (times the number
    of cells), ``n_A = prod_{i in A} n_i``, and asked tables S err by

        sum_B e_B / lambda_B,      e_B = prod_{i in B} (n_i - 1)  sum_{S contains B} w_S^2 / n_S.

    The shares minimise this at ``sum theta = 1``. That is not convex, so the search starts from the
    asked tables and from tables merged greedily: answering several small tables from one larger one
    saves noise. The estimate of a residual is the mean of what the tables that hold it say,
    weighted by precision, which is least squares.

    References: Barak et al. 2007; McKenna, Miklau, Hay, Machanavajjhala 2018, section 6.3 (weights
    for all marginals); Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for
    noisy marginals under convex loss functions" (residuals).
    """

    _algorithm: ClassVar[str] = "weighted marginals"

    tables: tuple[Subset, ...]
    _parts: dict[Subset, tuple[Integers, Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum of the residuals within the term, each from all tables that hold it."""
        target, domain = self.workload.terms[term].attributes, self.workload.domain
        out = np.zeros([domain[n].size for n in target])
        for subset in _subsets(target):
            summed: Array | float = 0.0
            holding, parts, _ = self._weights(subset)
            for b, part in zip(holding.tolist(), parts.tolist(), strict=True):
                table = np.asarray(values[b], dtype=np.float64)
                table = table.reshape([domain[n].size for n in self.tables[b]])
                extra = tuple(i for i, n in enumerate(self.tables[b]) if n not in subset)
                summed = summed + part * table.sum(axis=extra)
            residual = _centred(np.asarray(summed))
            shape = [domain[n].size if n in subset else 1 for n in target]
            out = out + residual.reshape(shape) / self._cells(set(target) - set(subset))
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: residuals of c, repeated along the further attributes of each table."""
        target, domain = self.workload.terms[term].attributes, self.workload.domain
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([domain[n].size for n in target])
        out: dict[int, Array] = {}
        for subset in _subsets(target):
            rest = tuple(i for i, n in enumerate(target) if n not in subset)
            residual = _centred(table.sum(axis=rest)) / self._cells(set(target) - set(subset))
            holding, parts, _ = self._weights(subset)
            for b, part in zip(holding.tolist(), parts.tolist(), strict=True):
                sizes = [domain[n].size for n in self.tables[b]]
                along = [domain[n].size if n in subset else 1 for n in self.tables[b]]
                spread = np.broadcast_to(part * residual.reshape(along), sizes).reshape(-1)
                out[b] = out[b] + spread if b in out else spread
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variance of every cell: equal within a table, by symmetry."""
        rows = self.workload.terms[term].rows
        return np.full(rows, self.maximum_variance(term, block_variances))

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The number of cells times their variance."""
        rows = self.workload.terms[term].rows
        return rows * self.maximum_variance(term, block_variances)

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """``sum_B prod_{i in B} (1 - 1/n_i) / n_{S-B}^2 sum_A part^2 n_{A-B} v_A``."""
        target = self.workload.terms[term].attributes
        noise = np.asarray(block_variances, dtype=np.float64)
        total = 0.0
        for subset in _subsets(target):
            spread = prod(1 - 1 / self.workload.domain[n].size for n in subset)
            outside = self._cells(set(target) - set(subset))
            holding, parts, cells = self._weights(subset)
            total += spread / outside**2 * float((parts**2 * cells) @ noise[holding])
        return total

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2 v)^2 / sum r^4 v^2``, v from the shares; cells of a table count by agreement.

        The coefficient of a cell of table A depends on which of the attributes it shares with the
        asked table have the asked value.
        """
        target = self.workload.terms[term].attributes
        second = fourth = 0.0
        for shared in _subsets(target):
            for variances, cells in self._coefficients(shared, target):
                second += float((cells * variances).sum())
                fourth += float((cells * variances**2).sum())
        rows = self.workload.terms[term].rows
        return np.full(rows, second**2 / fourth if fourth > 0 else 1.0)

    def _coefficients(self, shared: Subset, target: Subset) -> Iterator[tuple[Array, Array]]:
        """Of tables that share just these attributes with the asked one, by pattern of agreement:
        the variance that a cell of each table brings in, and how many such cells it has.
        """
        domain = self.workload.domain
        column = {n: i for i, n in enumerate(domain.names)}
        pattern = np.array([n in shared for n in target], dtype=bool)
        read = self._inside[:, [column[n] for n in target]]
        tables = np.flatnonzero((read == pattern).all(axis=1))
        if not len(tables):
            return
        parts = {}
        for subset in _subsets(shared):
            holding, counted, _ = self._weights(subset)
            outside = self._cells(set(target) - set(subset))
            parts[subset] = counted[np.searchsorted(holding, tables)] / outside
        alone = np.exp(self._logs[tables] - log(self._cells(set(shared))))
        noise = np.array(self.shares)[tables] ** -2
        for equal in _subsets(shared):
            value = np.zeros(len(tables))
            for subset, part in parts.items():
                signs = (float(n in equal) - 1 / domain[n].size for n in subset)
                value += part * prod(signs)
            cells = prod(domain[n].size - 1 for n in shared if n not in equal)
            yield value**2 * noise, cells * alone

    def _cells(self, names: set[str]) -> float:
        return float(prod(self.workload.domain[n].size for n in names))

    def _weights(self, subset: Subset) -> tuple[Integers, Array, Array]:
        """The tables that hold a residual, how much each counts, and the cells it is a sum of."""
        if subset not in self._parts:
            column = {n: i for i, n in enumerate(self.workload.domain.names)}
            holding = np.flatnonzero(self._inside[:, [column[n] for n in subset]].all(axis=1))
            cells = np.exp(self._logs[holding] - log(self._cells(set(subset))))
            precision = np.array(self.shares)[holding] ** 2 / cells
            self._parts[subset] = holding, precision / precision.sum(), np.rint(cells)
        return self._parts[subset]

    @cached_property
    def _inside(self) -> npt.NDArray[np.bool_]:
        names = self.workload.domain.names
        return np.array([[n in table for n in names] for table in self.tables])

    @cached_property
    def _logs(self) -> Array:
        return np.array([log(self._cells(set(table))) for table in self.tables])


def weighted_marginals(workload: Workload) -> WeightedMarginals:
    """The best shares found for Laplace noise; PlanError when a term asks for more than a table."""
    weights: dict[Subset, float] = {}
    for term in workload.terms:
        if not term.is_table:
            raise PlanError(f"group {term.name!r} is not a table of counts")
        if term.cells > LIMITS.table_cells:
            raise TooLarge(f"the table of {term.name!r} has {term.cells:,} cells")
        names = term.attributes
        weights[names] = weights.get(names, 0.0) + term.weight**2
    search = _ShareSearch(workload, weights)
    shares = search.best()
    blocks = tuple(Block(table_block(workload, a), s) for a, s in shares.items())
    return WeightedMarginals(
        "laplace-optimum", "laplace", workload, blocks, tuple(b.term.attributes for b in blocks)
    )


class _ShareSearch:
    """Errors of shares, from precisions on the residuals of the asked tables."""

    def __init__(self, workload: Workload, weights: dict[Subset, float]) -> None:
        self.domain, self.weights = workload.domain, weights
        self.sets = sorted({b for s in weights for b in _subsets(s)}, key=lambda b: (len(b), b))
        errors: dict[Subset, float] = dict.fromkeys(self.sets, 0.0)
        for names, weight in weights.items():
            for subset in _subsets(names):
                errors[subset] += weight / self.cells(names)
        self.errors = np.array(
            [errors[b] * prod(self.domain[n].size - 1 for n in b) for b in self.sets]
        )

    def cells(self, names: Subset) -> float:
        return float(self.domain.cells(names))

    def best(self) -> dict[Subset, float]:
        """The tables of least error with their shares, which sum to 1."""
        starts = [self._each_alone(self.weights)]
        if len(self.weights) <= LIMITS.merged_tables:
            starts.append(self._each_alone(merged_tables(self.domain, self.weights)))
        ends = [self._followed(start) for start in starts]
        return min(ends, key=lambda end: end[0])[1]

    def _each_alone(self, tables: dict[Subset, float]) -> dict[Subset, float]:
        """Shares ``s^3 ~ error``: best when every table answers for itself."""
        shares = {a: (w * self.cells(a)) ** (1 / 3) for a, w in tables.items()}
        total = sum(shares.values())
        return {a: s / total for a, s in shares.items()}

    def _followed(self, start: dict[Subset, float]) -> tuple[float, dict[Subset, float]]:
        """The end of L-BFGS over the shares of the start's tables and of all residuals."""
        from scipy.optimize import minimize

        tables = list(dict.fromkeys([*start, *self.sets]))
        if len(tables) * len(self.sets) > LIMITS.weighted_marginals_pairs:
            tables = list(start)
        if len(tables) * len(self.sets) > LIMITS.weighted_marginals_pairs:
            raise TooLarge(f"{len(tables):,} tables and {len(self.sets):,} sets of attributes")
        holds = self._holds(tables)
        first = np.array([start.get(a, 0.0) for a in tables]) + 1e-3 / len(tables)

        def error(x: Array) -> tuple[float, Array]:
            spend(2.0 * holds.size)
            total = float(x.sum())
            shares = x / total
            precision = holds @ shares**2
            value = float((self.errors / precision).sum())
            slope = -2 * shares * (holds.T @ (self.errors / precision**2))
            return float(np.log(value)), (slope - slope @ shares) / (total * value)

        end = minimize(
            error,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(1e-12, None)] * len(tables),
            callback=stop_in_time,
            options={"maxiter": LIMITS.weighted_marginals_steps, "maxcor": 30, "ftol": 1e-12},
        )
        shares = np.asarray(end.x) / float(np.sum(end.x))
        measured = {
            a: float(s)
            for a, s in zip(tables, shares, strict=True)
            if s > LIMITS.weighted_marginals_minimum
        }
        return float(end.fun), measured

    def _holds(self, tables: list[Subset]) -> Array:
        """``1 / n_A`` where table A holds the residuals of B."""
        names = self.domain.names
        inside = np.array([[n in a for n in names] for a in tables], dtype=np.float64)
        needed = np.array([[n in b for n in names] for b in self.sets], dtype=np.float64)
        holds = (needed @ (1 - inside).T) == 0
        return np.asarray(holds / np.array([self.cells(a) for a in tables]), dtype=np.float64)


def _centred(table: Array) -> Array:
    """Differences to the mean along every axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def merged_tables(domain: Domain, tables: Mapping[Subset, float]) -> dict[Subset, float]:
    """The tables after joining, again and again, the two whose union saves most.

    A table of n_A cells that answers for weight w errs by ``w n_A``; shared out best, errors e add
    up to ``(sum e^(1/3))^3``.
    """
    sizes = np.log([float(a.size) for a in domain])
    left = dict(tables)
    while len(left) > 1:
        names = list(left)
        inside = np.array([[n in a for n in domain.names] for a in names], dtype=np.float64)
        weights = np.array([left[a] for a in names])
        logs = inside @ sizes
        union = np.minimum(logs[:, None] + logs - (inside * sizes) @ inside.T, LARGEST_LOG)
        alone = np.cbrt(weights * np.exp(logs))
        both = np.cbrt((weights[:, None] + weights) * np.exp(union))
        saved = np.where(union > np.log(LIMITS.table_cells), -np.inf, alone[:, None] + alone - both)
        np.fill_diagonal(saved, -np.inf)
        i, j = np.unravel_index(int(saved.argmax()), saved.shape)
        if saved[i, j] <= 0:
            break
        joined = domain.in_order([*names[i], *names[j]])
        weight = left.pop(names[i]) + left.pop(names[j])
        left[joined] = left.get(joined, 0.0) + weight
    return left


def _subsets(names: Subset) -> Iterator[Subset]:
    return chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))


# Characters of yes/no attributes


@dataclass(frozen=True, eq=False)
class Fourier(Strategy):
    """Block b measures the character of ``subsets[b]``.

    For a set B of yes/no attributes the character is ``chi_B(x) = prod_{i in B} (-1)^{x_i}``. A
    query (q_0, q_1) on one attribute is ``a + b chi`` with ``a = (q_0 + q_1) / 2``, ``b = (q_0 -
    q_1) / 2``, so a product of queries on the attributes S combines the ``2^|S|`` characters within
    S:

        q = sum_{B within S}  prod_{i in S - B} a_i  prod_{i in B} b_i  chi_B.

    For marginals all coefficients are ``2^-|S|``. A record moves every measured coefficient by its
    share s_B exactly, so the column norm is ``sum s_B^p``, and with e_B the summed squared
    coefficients of the asked queries the best shares are ``s_B^(p + 2) ~ e_B`` (Lagrange), in
    closed form.

    Reference: Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar 2007, "Privacy, accuracy, and
    consistency too: a holistic solution to contingency table release".
    """

    subsets: tuple[Subset, ...]
    _index: dict[Subset, int] = field(default_factory=dict, init=False, repr=False)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the characters within the term."""
        out = np.zeros(self.workload.terms[term].rows)
        for b, coefficients in self._within(term):
            out += coefficients * float(values[b][0])
        return out

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: one number per character."""
        return {b: np.array([float(own @ coefficients)]) for b, own in self._within(term)}

    def readings(self, term: int) -> dict[int, Array]:
        """The coefficients of every character."""
        return {b: own[:, None] for b, own in self._within(term)}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared coefficients times the noise of every character."""
        out = np.zeros(self.workload.terms[term].rows)
        for b, coefficients in self._within(term):
            out += coefficients**2 * block_variances[b]
        return out

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every character."""
        out = np.zeros(len(self.blocks))
        for t, term in enumerate(self.workload.terms):
            for b, coefficients in self._within(t):
                out[b] += term.weight**2 * float(coefficients @ coefficients)
        return out

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2 v)^2 / sum r^4 v^2``: one draw per character, v from the shares."""
        rows = self.workload.terms[term].rows
        second, fourth = np.zeros(rows), np.zeros(rows)
        for b, coefficients in self._within(term):
            part = (coefficients / self.blocks[b].share) ** 2
            second += part
            fourth += part**2
        return np.divide(second**2, fourth, out=np.ones(rows), where=fourth > 0)

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:  # noqa: ARG002
        """The sum of the scales: all coefficients are 1 or -1."""
        return SensitivityBound(float(np.sum(scales)) * (1 + 2.0**-30), is_exact=True)

    def _within(self, term: int) -> Iterator[tuple[int, Array]]:
        """The characters of a term, each with the coefficients of all its queries."""
        if not self._index:
            self._index.update({subset: b for b, subset in enumerate(self.subsets)})
        product = self.workload.terms[term].as_product()
        factors = () if product is None else product.factors
        for subset, coefficients in _expanded(factors):
            if coefficients.any():
                yield self._index[subset], coefficients


def fourier(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """The characters that the terms need, with the best shares."""
    squares: dict[Subset, float] = {}
    greatest: dict[Subset, float] = {}
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            raise PlanError(f"group {group.name!r} is not a product of query sets")
        long = [n for n, q in term.factors if q.size != 2]
        if long:
            raise PlanError(
                f"attribute {long[0]!r} has {workload.domain[long[0]].size} cells; characters need "
                "yes/no attributes"
            )
        if len(term.factors) > LIMITS.fourier_attributes:
            raise TooLarge(
                f"group {term.name!r} has more than {LIMITS.fourier_attributes} attributes"
            )
        for subset, coefficients in _expanded(term.factors):
            if not coefficients.any():
                continue
            part = term.weight**2 * coefficients**2
            squares[subset] = squares.get(subset, 0.0) + float(part.sum())
            greatest[subset] = max(greatest.get(subset, 0.0), float(part.max()))
            if len(squares) > LIMITS.fourier_characters:
                raise TooLarge(f"more than {LIMITS.fourier_characters:,} characters are needed")
    if not squares:
        raise PlanError("no query has a coefficient")
    p = power_of(noise)
    errors = np.array(list((greatest if objective == "max" else squares).values()))
    shares = errors ** (1 / (p + 2))
    shares /= float((shares**p).sum()) ** (1 / p)
    sign = Matrix.of([[1, -1]], title="sign")
    blocks = []
    for subset, share in zip(squares, shares, strict=True):
        title = "character of " + (" x ".join(subset) or "nothing: the total")
        measured = Product(workload.domain, title, 1.0, tuple((n, sign) for n in subset))
        blocks.append(Block(measured, float(share)))
    return Fourier(f"{noise}-fourier", noise, workload, tuple(blocks), tuple(squares))


def _expanded(factors: Sequence[tuple[str, QuerySet]]) -> Iterator[tuple[Subset, Array]]:
    """Every set of attributes with the coefficients of its character in all queries."""
    names = tuple(name for name, _ in factors)
    halves = []
    for _, queries in factors:
        dense = queries.dense()
        halves.append(((dense[:, 0] + dense[:, 1]) / 2, (dense[:, 0] - dense[:, 1]) / 2))
    for count in range(len(names) + 1):
        for inside in combinations(range(len(names)), count):
            out = np.ones(1)
            for i, (mean, half) in enumerate(halves):
                out = np.outer(out, half if i in inside else mean).reshape(-1)
            yield tuple(names[i] for i in inside), out
