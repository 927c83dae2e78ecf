# SPDX-License-Identifier: Apache-2.0
"""Weighted marginals: the optimal strategy in closed form, for any number of attributes.

A marginal over the set B of attributes with n_i cells is the sum over the subsets A of B of its
part that is centred along A and constant along the rest. Measured is one piece per A: the product
of ``I - J/n_i`` over A, totalled over all other attributes, with the share ``phi_A`` of the squared
sensitivity. With ``d_A = prod_{i in A} (n_i - 1)`` and ``N_B = prod_{i in B} n_i``, every answer of
the marginal B has at unit noise the variance

    var_B = N_B^-2 sum_{A within B} d_A^2 / phi_A,        sum_A phi_A = 1.

Weights c_B on these variances, ``min sum_B c_B N_B^2 var_B``, are met best by ``phi_A ~ d_A
sqrt(g_A)``, ``g_A = sum_{B holding A} c_B``; the sum is then ``(sum_A d_A sqrt(g_A))^2``. No
factorization has less: it is the bound of ``optimum.py`` at equal cells, for g_A is the eigenvalue
of the Gram matrix (over the number of cells) on the d_A functions centred along A.

* Root mean square: ``c_B = w_B^2 / N_B`` for marginals of weight w_B.
* Largest error: ``min max_B w_B^2 var_B`` is ``max (sum_A d_A sqrt(g_A))^2`` over weights lambda of
  sum 1, ``c_B = lambda_B w_B^2 / N_B^2`` (the minimax theorem). Every lambda gives a lower bound,
  and the shares that belong to it an upper one. This has the form that ``optimum.py`` solves,
  marginals taking the place of cells.

Sums run over all pairs ``A within B`` at once (``lattice.py``). Reference: Xiao, He, Zhang, Kifer
2023, "An optimal and scalable matrix mechanism for noisy marginals under convex loss functions".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import overload

import numpy as np

from sfumato.plan.moves import Moves, set_moves
from sfumato.plan.optimal.split import Split, centred_split
from sfumato.plan.solve.lattice import Lattice, asked_sets, lattice
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.strategy import Block, GaussianStrategy, Norm
from sfumato.workload.queries import Array, repeated
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Marginals", "marginals_optimum"]

TOLERANCE = 1e-7  # how close to its lower bound the largest error is driven
STEPS = 1000
LEAST_START = 1e-12


@dataclass(frozen=True, eq=False)
class Marginals(GaussianStrategy):
    """One block per subset of an asked set of attributes.

    ``splits`` has the attributes of more than one cell that are asked about, by number.
    """

    lattice: Lattice
    splits: Mapping[int, Split]

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the pieces within the marginal, constant along what they total."""
        inside = self.lattice.within(term).tolist()
        return self._summed(term, {b: self._residual(b, values[b]) for b in inside})

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """The same for all marginals; every piece is centred once."""
        parts = {b: self._residual(b, y) for b, y in enumerate(values)}
        return [self._summed(t, parts) for t in range(self.lattice.terms)]

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """The mean of the coefficients along what a piece totals, read through its rest."""
        names = self._members(int(self.lattice.within(term)[-1]))
        cells = self.workload.domain.shape
        table = np.asarray(coefficients, dtype=np.float64).reshape([cells[i] for i in names])
        found = {}
        for b in self.lattice.within(term).tolist():
            inside = self._members(b)
            part = table.mean(axis=tuple(at for at, i in enumerate(names) if i not in inside))
            for axis, i in enumerate(inside):
                moved = self.splits[i].cells_adjoint(np.moveaxis(part, axis, 0))
                part = np.moveaxis(moved, 0, axis)
            found[b] = np.asarray(part, dtype=np.float64).reshape(-1)
        return found

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
        """All cells of a marginal have the same."""
        rows = self.workload.terms[term].rows
        return repeated(self.greatest_variance(term, block_variances), rows)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The number of cells times their variance."""
        rows = self.workload.terms[term].rows
        return rows * self.greatest_variance(term, block_variances)

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum over the pieces within the marginal."""
        inside = self.lattice.within(term)
        parts = np.array([block_variances[b] for b in inside.tolist()]) * self._reading[inside]
        return float(parts.sum() / self._rows[term] ** 2)

    def group_variances(self, block_variances: Sequence[float]) -> tuple[list[float], list[float]]:
        """The same for all marginals at once."""
        each = self.lattice.below(np.asarray(block_variances) * self._reading) / self._rows**2
        return (each * self._rows).tolist(), each.tolist()

    def _unit_variances(self) -> list[float]:
        return self.group_variances([share**-2 for share in self.shares])[0]

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:
        """Exact: all cells have columns of the same norm in every block."""
        power = float((self.lattice.of_pieces(self._columns(norm)) * np.asarray(scales)).sum())
        return ColumnNorm(power * ROUND_UP, is_exact=True)

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

    def _moves(self, norm: Norm, may_drop_records: bool) -> Moves | None:
        """By the attributes in which two cells differ."""
        if norm != 2:
            return super()._moves(norm, may_drop_records)
        scales = np.array(self.shares) ** 2
        return set_moves(self.lattice, self._sizes, self.piece_norms, scales, may_drop_records)

    def block_errors(self) -> Array:
        """All pieces at once."""
        weights = np.array([t.weight**2 for t in self.workload.terms])
        return self.lattice.above(weights / self._rows) * self._reading

    @cached_property
    def piece_norms(self) -> Array:
        """The squared column norm of every piece, at share 1."""
        return self.lattice.of_pieces(self._columns(2))

    @property
    def asked_cells(self) -> float:
        """The number of cells over all attributes that are asked about."""
        return float(prod(self.workload.domain.shape[i] for i in self.splits))

    def largest_errors(self, each: Array) -> tuple[Array, float]:
        """``block_errors`` with the weights on terms of the worst case, and its lower bound.

        The best shares for moves that move the pieces by ``each`` on average, squared.
        """
        weights = np.array([term.weight**2 for term in self.workload.terms])
        scale = np.sqrt(each / self.piece_norms)
        c, bound = _worst(self.lattice, weights / self._rows**2, self._sizes, None, scale)
        return self.lattice.above(c) * self._reading, bound

    def with_shares(self, shares: Array) -> Marginals:
        """The same pieces with other shares."""
        blocks = _Blocks(self.workload, self.lattice, self.splits, shares)
        return replace(self, blocks=blocks)

    @property
    def is_nonnegative(self) -> bool:
        """Only the total is."""
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
        """All coefficients are whole."""
        return (0,) * self.lattice.pieces

    @cached_property
    def block_slacks(self) -> tuple[float, ...]:
        """All values are exact."""
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

    def _by_attribute(self, known: Mapping[int, float]) -> Array:
        out = np.ones(len(self._sizes))
        out[list(known)] = list(known.values())
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
        """The greatest piece, with the others spread over it."""
        inside = self.lattice.within(term).tolist()
        names = self._members(inside[-1])
        out = parts[inside[-1]].copy()
        for b in inside[:-1]:
            members = self._members(b)
            shape = [n if i in members else 1 for i, n in zip(names, out.shape, strict=True)]
            spread = parts[b].size / out.size  # 1 / the cells along what the piece totals
            out += parts[b].reshape(shape) * spread
        return out.reshape(-1)


class _Blocks(Sequence[Block]):
    """The blocks of all pieces, each built when it is asked for: there may be very many."""

    def __init__(
        self, workload: Workload, known: Lattice, splits: Mapping[int, Split], shares: Array
    ) -> None:
        self.shares = tuple(shares.tolist())
        self._domain, self._lattice, self._splits = workload.domain, known, splits
        self._built: dict[int, Block] = {}

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
            inside = self._lattice.members(b).tolist()
            names = self._domain.names
            factors = tuple((names[i], self._splits[i].measured) for i in inside)
            title = " x ".join(f"~{name}" for name, _ in factors) or "total"
            self._built[b] = Block(Product(self._domain, title, 1.0, factors), self.shares[b])
        return self._built[b]


def marginals_optimum(
    workload: Workload,
    objective: str = "rmse",
    progress: Callable[[int, float], None] | None = None,
) -> Marginals | None:
    """The best strategy for a union of weighted marginals; None when a term is no marginal.

    ``objective`` is ``"rmse"`` (``bound`` is then one on ``weighted_error``) or ``"max"`` (on the
    greatest ``w^2 |r|^2 ||M||_{1->2}^2`` of a query).
    """
    sets = asked_sets(workload)
    if sets is None:
        return None
    known = lattice(sets)
    sizes = np.array(workload.domain.shape, dtype=np.float64)
    weights = np.array([term.weight**2 for term in workload.terms])
    rows, d = known.of_terms(sizes), known.of_pieces(sizes - 1)
    if objective == "max":
        c, bound = _worst(known, weights / rows**2, sizes, progress)
        root = d * np.sqrt(known.above(c))
    else:
        root = d * np.sqrt(known.above(weights / rows))
        bound = float(root.sum()) ** 2
    used = {int(i) for level in known.levels[1:2] for i in level[:, 0]}
    splits = {i: centred_split(workload.domain.shape[i]) for i in sorted(used)}
    units = np.ones(len(sizes))
    units[list(splits)] = [s.unit for s in splits.values()]
    # The piece of share phi has columns of squared norm phi: I - J/n has those of 1 - 1/n.
    spread = known.of_pieces(np.where(sizes > 1, units**2 * sizes / np.maximum(sizes - 1, 1), 1))
    shares = np.sqrt(root / root.sum() * spread)
    blocks = _Blocks(workload, known, splits, shares)
    return Marginals(
        "factorization",
        "gaussian",
        workload,
        blocks,
        known,
        splits,
        bound=bound,
        objective="max" if objective == "max" else "rmse",
    )


def _worst(
    known: Lattice,
    c: Array,
    sizes: Array,
    progress: Callable[[int, float], None] | None,
    scale: Array | float = 1.0,
) -> tuple[Array, float]:
    """``lambda_B c_B`` with the greatest lower bound on the largest error, and that bound.

    ``optimum.py`` with ``sum_A d_A sqrt(g_A)`` as the trace: its derivative by log lambda_B is half
    of ``lambda_B c_B sum_{A within B} d_A / sqrt(g_A)``, which takes the place of the diagonal.
    ``scale`` multiplies d_A: by how much a piece costs, as a root.
    """
    d = known.of_pieces(sizes - 1) * scale

    def diagonal(lam: Array) -> Array:
        return lam * c * known.below(d / np.sqrt(known.above(lam * c)))

    # Were every marginal alone in its greatest piece, lambda_B ~ c_B d_B^2.
    start = c * known.of_terms(np.maximum(sizes - 1, 1)) ** 2
    start = np.maximum(start / start.mean(), LEAST_START)
    found = certified_optimum(
        diagonal, known.terms, TOLERANCE, STEPS, start=start, progress=progress
    )
    return found.v / found.v.sum() * c, found.lower
