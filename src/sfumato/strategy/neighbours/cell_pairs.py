# SPDX-License-Identifier: Apache-2.0
"""The optimum under replace-one neighbours for products on few cells, for any number of queries.

``best_on_cells`` weighs all pairs of cells (``replace_one.py`` has the bound): those of one kind,
which differ along the same exchangeable attributes and between the same classes of all others,
weigh the same. Proof: docs/mechanisms/factorization.md, "Replacing a record"; the diameter of what
is measured: docs/proofs/measuring.md, "Diameters".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.effort import EIGEN, must_stop, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING
from sfumato.solve.orbits import CLASS_SUMS, Axis, exchangeable
from sfumato.strategy.base import Block
from sfumato.strategy.factorization import Factorization, inverse_of, whole_root
from sfumato.strategy.measured import Piece
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.workload import Workload

__all__ = [
    "LOST",
    "best_on_cells",
    "least_on_cells",
    "least_on_columns",
]

LOST = 1e-9  # of the bound: the rounding of eigenvalues
NOTHING = 1e-200  # an eigenvalue of what no pair moves


def best_on_cells(workload: Workload, drops: bool, above: int = 0) -> Factorization | None:
    """The best strategy for replaced records among matrices on cells; None where it does not fit.

    None, too, for queries of a rank of ``above`` at most, which other ways serve.

    For unions of products that tell few cells apart, however many queries they are: the bound and
    the form X need ``V = F'WF`` alone. Attributes whose cells can all be exchanged are read by
    totals and differences (``solve/orbits.py``): of two cells it only matters along which of them
    they differ. Measured is a root of X on every subspace, in integers; where no record can be
    dropped the subspace of class sums has one direction less, and a multiple of the public total is
    measured beside it. No rounding leaves the span of the queries, so that every answer stays
    unbiased.
    """
    axes = _told_apart(workload)
    if axes is None:
        return None
    problem = _KindProblem.of(workload, axes)
    if problem.rank <= above:
        return None
    if not drops and len(problem.bases[0]) < len(problem.grams[0]):
        return None  # the public total need not be a combination of queries
    try:
        optimum = _weighed_kinds(problem, drops)
    except np.linalg.LinAlgError:
        return None
    best: Factorization | None = None
    least = np.inf
    for bits in LIMITS.pairwise_cell_bits:
        try:
            candidate = _of_cells(workload, problem, optimum.forms, drops, bits)
        except PlanError:
            continue
        now = candidate.weighted_error("rmse", "replace-one", drops)
        if now < least:
            best, least = candidate, now
        if least <= optimum.upper * (1 + LIMITS.pairwise_rounding):
            break
    return None if best is None else replace(best, replace_one_bound=optimum.lower)


def least_on_cells(workload: Workload, drops: bool) -> float:
    """A lower bound on the weighted squared error of all strategies for replaced records, or 0.

    That of ``best_on_cells``, to 1%: for Laplace noise, as no distance is shorter in L1 than in L2.
    Of many classes every so manyth counts: what serves all cells serves some of them.
    """
    axes = _told_apart(workload)
    if axes is None:
        return 0.0
    problem = _KindProblem.of(workload, axes)
    while len(problem.grams[0]) > LIMITS.pairwise_fine_cells:
        problem = problem.thinned_by(2)
    return _least(problem, drops)


def least_on_columns(gram: Array, drops: bool) -> float:
    """The same for ``F'WF`` of the different columns of queries that are listed."""
    if len(gram) > LIMITS.pairwise_cut_cells or len(gram) == 1:
        return 0.0
    return _least(_KindProblem((), (gram,), (0,)), drops)


def _least(problem: _KindProblem, drops: bool) -> float:
    try:
        return _weighed_kinds(problem, drops, LIMITS.pairwise_rough_tolerance).lower
    except np.linalg.LinAlgError:
        return 0.0


def _told_apart(workload: Workload) -> tuple[Axis, ...] | None:
    """Classes of cells of every attribute; None where a matrix of all of them is too large.

    All cells are one class and can be exchanged, or no query tells the cells of a class apart.
    """
    sets: dict[str, list[QuerySet]] = {}
    for term in workload.terms:
        product_term = term.as_product()
        if product_term is None:
            return None
        for name, queries in product_term.factors:
            sets.setdefault(name, []).append(queries)
    names = workload.domain.in_order(sets)
    ordered = [n for n in names if any(q.is_ordered and q.rows > 1 for q in sets[n])]
    if workload.domain.cells(ordered) > LIMITS.pairwise_cells:
        return None
    axes = []
    for name in names:
        axis = exchangeable(name, workload.domain[name].size, sets[name])
        if axis.classes > 1 and any(axis.residual_gram(q).any() for q in sets[name]):
            axis = Axis(name, np.arange(axis.cells))
        axes.append(axis)
    classes = prod(a.classes for a in axes)
    if classes == 1:  # tables of counts have a closed form
        return None
    kinds = 2 ** sum(a.classes == 1 for a in axes)
    if kinds * classes**2 > LIMITS.pairwise_kinds or kinds * classes**3 > LIMITS.pairwise_work:
        return None
    return tuple(axes)


@dataclass(frozen=True, eq=False)
class _KindProblem:
    """Gram matrices on subspaces, and the kinds of pairs: along which attributes they differ.

    ``grams[t]`` is V on class sums of the wide axes, for part t of the axes of one class: bit k
    says that differences of ``alike[k]`` are read, not their total. ``apart[s]`` is true for kinds
    s, bit k for cells that differ along ``alike[k]``.
    """

    axes: tuple[Axis, ...]
    grams: tuple[Array, ...]
    parts: tuple[int, ...]

    @classmethod
    def of(cls, workload: Workload, axes: tuple[Axis, ...]) -> _KindProblem:
        """The problem of a union of products."""
        alike = [a for a in axes if a.classes == 1]
        grams: dict[int, Array] = {}
        for term in workload.terms:
            product_term = term.as_product()
            factors = {} if product_term is None else dict(product_term.factors)
            base = np.full((1, 1), term.weight**2)
            numbers = {0: 1.0}
            for axis in axes:
                queries = factors.get(axis.name, Total(axis.cells))
                own = axis.class_gram(queries)
                if axis.classes > 1:
                    sizes = np.sqrt(np.outer(axis.sizes, axis.sizes))
                    base = np.asarray(np.kron(base, own / sizes), dtype=np.float64)
                    continue
                bit = 1 << alike.index(axis)
                rest = float(axis.residual_gram(queries)[0])
                numbers = {t: n * float(own[0, 0]) for t, n in numbers.items()} | {
                    t | bit: n * rest for t, n in numbers.items() if rest > 0
                }
            for t, number in numbers.items():
                grams[t] = grams.get(t, 0.0) + number * base
        parts = tuple(sorted(grams))
        return cls(axes, tuple(grams[t] for t in parts), parts)

    def thinned_by(self, step: int) -> _KindProblem:
        """The same where records are in every so manyth class only."""
        return _KindProblem(self.axes, tuple(g[::step, ::step] for g in self.grams), self.parts)

    @cached_property
    def bases(self) -> tuple[Array, ...]:
        """F of full rank with ``F'F = V`` for every part, in rows."""
        out = []
        for gram in self.grams:
            values, vectors = np.linalg.eigh(gram)
            is_positive = values > values[-1] * LIMITS.pairwise_singular
            out.append((vectors[:, is_positive] * np.sqrt(values[is_positive])).T)
        return tuple(out)

    @property
    def rank(self) -> float:
        """The rank of all queries."""
        return float(self.copies @ [len(b) for b in self.bases])

    @cached_property
    def alike(self) -> tuple[Axis, ...]:
        """The axes of one class."""
        return tuple(a for a in self.axes if a.classes == 1)

    @cached_property
    def copies(self) -> Array:
        """How often every part occurs: the dimension of its differences."""
        return self._product(self.parts, lambda n, is_rest: n - 1.0 if is_rest else 1.0)

    @cached_property
    def orbit(self) -> float:
        """The cells of an orbit."""
        return float(prod(a.cells for a in self.alike))

    @cached_property
    def pairs(self) -> Array:
        """How many cells differ from one in a way, by kind."""
        kinds = range(2 ** len(self.alike))
        return self._product(kinds, lambda n, is_apart: n - 1.0 if is_apart else 1.0)

    @cached_property
    def adjacency(self) -> Array:
        """Parts x kinds: the eigenvalue on a part of "differs exactly so"."""
        return self._table(lambda n, is_rest: -1.0 if is_rest else n - 1.0, 1.0)

    @cached_property
    def kernels(self) -> Array:
        """Parts x kinds: the entry of the projection on a part, at cells that differ so."""
        out = np.ones((len(self.parts), 2 ** len(self.alike)))
        for k, axis in enumerate(self.alike):
            n = float(axis.cells)
            for row, part in enumerate(self.parts):
                for kind in range(out.shape[1]):
                    is_apart = bool(kind >> k & 1)
                    if part >> k & 1:
                        out[row, kind] *= -1 / n if is_apart else 1 - 1 / n
                    else:
                        out[row, kind] *= 1 / n
        return out

    def _product(self, masks: Iterable[int], factor: Callable[[float, bool], float]) -> Array:
        return np.array(
            [
                prod(factor(float(a.cells), bool(m >> k & 1)) for k, a in enumerate(self.alike))
                for m in masks
            ],
            dtype=np.float64,
        )

    def _table(self, apart: Callable[[float, bool], float], same: float) -> Array:
        out = np.ones((len(self.parts), 2 ** len(self.alike)))
        for k, axis in enumerate(self.alike):
            for row, part in enumerate(self.parts):
                for kind in range(out.shape[1]):
                    is_rest = bool(part >> k & 1)
                    out[row, kind] *= apart(float(axis.cells), is_rest) if kind >> k & 1 else same
        return out


@dataclass(frozen=True, eq=False, slots=True)
class _KindOptimum:
    """X on every part, on class sums, of diameter 1; its error and the greatest lower bound.

    ``weights`` by kind and pair of classes and ``outside``, by class, are those of the search.
    """

    forms: tuple[Array, ...]
    upper: float
    lower: float
    weights: Array
    outside: Array


def _weighed_kinds(
    problem: _KindProblem, drops: bool, tolerance: float = LIMITS.pairwise_tolerance
) -> _KindOptimum:
    """The best weights of pairs by kind, as ``_weighed_pairs``, which is the case of one part.

    With ``w_s(i, j)`` the weight of every pair of cells of classes i and j and kind s, L is
    ``diag(deg) - sum_s a_ts w_s`` on part t, ``a_ts`` being ``adjacency``; all pairs together weigh
    ``sum(pairs_s w_s) / 2`` times the cells of an orbit. Cells of kind s have the inner product
    ``sum_t k_ts X_t(i, j)``, ``k_ts`` being ``kernels``. A record that falls in no cell is a point
    0, with weights of its own.
    """
    n, kinds = len(problem.grams[0]), len(problem.pairs)
    is_public = not drops and problem.parts[0] == 0 and n > 1
    roots = list(problem.bases)
    if is_public:
        basis = _differences(n)
        roots[0] = _root(basis @ problem.grams[0] @ basis.T) @ basis
    weights, outside = np.ones((kinds, n, n)), np.full(n, float(drops))
    if n > LIMITS.pairwise_fine_cells:
        tolerance = LIMITS.pairwise_rough_tolerance
        weights, outside = _spread(
            _weighed_kinds(problem.thinned_by(LIMITS.pairwise_thinned), drops), n
        )
    weights[0][np.diag_indices(n)] = 0.0
    best: tuple[Array, ...] = ()
    lower, upper, before, power = 0.0, np.inf, 0.0, LIMITS.pairwise_power
    safe = (weights, outside)
    steps = (weights, outside)
    for _ in range(LIMITS.pairwise_steps):
        spend(len(roots) * (EIGEN + 6.0) * float(n) ** 3 + 4.0 * weights.size * len(roots))
        own = np.tensordot(problem.pairs, weights, axes=1)
        whole = problem.orbit * (float(own.sum()) / 2 + float(outside.sum()))
        weights, outside, own = weights / whole, outside / whole, own / whole
        degrees = np.diag(own.sum(axis=1) + outside)
        trace, forms = 0.0, []
        for root, copies, row in zip(roots, problem.copies, problem.adjacency, strict=True):
            laplacian = degrees - np.tensordot(row, weights, axes=1)
            values, directions = np.linalg.eigh(root @ laplacian @ root.T)
            floor = max(values[-1] * EIGEN_ROUNDING * len(values), NOTHING)
            trace += float(copies) * float(np.sqrt(values[values > floor]).sum())
            inside = (directions / np.sqrt(np.maximum(values, floor))) @ directions.T
            forms.append(root.T @ inside @ root)
        apart, alone = _kind_distances(problem, forms)
        widest = max(float(apart.max()), float(alone.max()) if drops else 0.0)
        lower = max(lower, trace**2 * (1 - LOST))
        if trace * widest < upper:
            upper, best = trace * widest, tuple(f / widest for f in forms)
        if upper <= lower * (1 + tolerance) ** 2 or must_stop():
            break
        if trace < before * (1 - LOST):
            power, (weights, outside) = power / 2, safe
            if power < LIMITS.pairwise_power_minimum:
                break
        else:
            before, safe, steps = trace, (weights, outside), (apart / trace, alone / trace)
            power = min(LIMITS.pairwise_growth * power, LIMITS.pairwise_power)
        weights, outside = weights * steps[0] ** power, outside * steps[1] ** power
    return _KindOptimum(best, upper, lower, *safe)


def _spread(coarse: _KindOptimum, n: int) -> tuple[Array, Array]:
    """The weights of every so manyth class for all of them; no pair starts without weight."""
    at = np.minimum(np.arange(n) // LIMITS.pairwise_thinned, coarse.weights.shape[1] - 1)
    least = LIMITS.pairwise_weight_minimum * float(coarse.weights.max())
    weights = np.maximum(coarse.weights[:, at][:, :, at], least)
    return weights, coarse.outside[at]


def _kind_distances(problem: _KindProblem, forms: Sequence[Array]) -> tuple[Array, Array]:
    """Squared distances of columns by kind and classes, and the squared lengths of columns."""
    inner = np.tensordot(problem.kernels.T, np.array(forms), axes=1)
    own = np.diag(inner[0])
    return np.maximum(own[:, None] + own[None, :] - 2 * inner, 0.0), own


def _root(gram: Array) -> Array:
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=np.float64)


def _differences(cells: int) -> Array:
    """An orthonormal basis of all vectors of sum 0, in rows (Helmert's)."""
    out = np.tril(np.full((cells - 1, cells), -1.0))
    at = np.arange(1, cells)
    out[at - 1, at] = at
    return np.asarray(out / np.sqrt(at * (at + 1.0))[:, None], dtype=np.float64)


def _of_cells(
    workload: Workload, problem: _KindProblem, forms: Sequence[Array], drops: bool, bits: int
) -> Factorization:
    """Roots of the forms in integers of so many bits, the public total below the first."""
    blocks, inverses, parts = [], [], []
    every = zip(problem.parts, forms, problem.grams, problem.bases, strict=True)
    for mask, form, gram, basis in every:
        labels = {a.name: 0 if mask >> k & 1 else CLASS_SUMS for k, a in enumerate(problem.alike)}
        part = tuple(labels.get(a.name, CLASS_SUMS) for a in problem.axes)
        summed = prod(a.cells for a in problem.alike if labels[a.name] == CLASS_SUMS)
        compared = prod(a.cells for a in problem.alike if labels[a.name] != CLASS_SUMS)
        form = form / summed  # of totals in place of their unit vectors
        if mask == 0 and not drops and len(form) > 1:
            entries, unit, inverse = _with_total(_differences(len(form)) @ _root(form), gram, bits)
        else:
            values, vectors = np.linalg.eigh(form)
            rank = len(basis)
            root = (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))).T
            root = _root(form) if rank == len(form) else root
            entries, unit, inverse = whole_root(root, workload, problem.axes, part, bits)
        pairs = zip(problem.axes, part, strict=True)
        measured = [(a, k) for a, k in pairs if k != CLASS_SUMS or a.classes > 1]
        title = " x ".join(a.name if k == CLASS_SUMS else f"~{a.name}" for a, k in measured)
        piece = Piece(
            workload.domain,
            title or "total",
            1.0,
            tuple(a for a, _ in measured),
            tuple(k for _, k in measured),
            np.ascontiguousarray(entries),
        )
        blocks.append(Block(piece, unit / compared))
        inverses.append(inverse)
        parts.append(part)
    return Factorization(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        problem.axes,
        tuple(parts),
        tuple(inverses),
    )


def _with_total(root: Array, gram: Array, bits: int) -> tuple[Integers, float, Array]:
    """Integers in proportion to a root and a multiple of the total, their unit and inverse."""
    unit = float(np.abs(root).max()) / 2**bits
    entries = np.rint(root / unit).astype(np.int64)

    def beside(factor: int) -> tuple[Integers, Array]:
        whole = np.append(entries, np.full((1, len(gram)), factor * 2**bits), axis=0)
        inverse = inverse_of(whole.astype(np.float64))
        if inverse is None:
            raise PlanError("the strategy cannot be rounded to integers; scale the queries alike")
        return whole, inverse

    inverse = beside(1)[1]
    errors = ((gram @ inverse) * inverse).sum(axis=0)
    wanted = sqrt(float(errors[-1] / (LIMITS.public_total_error * errors[:-1].sum())))
    whole, inverse = beside(ceil(min(max(wanted, 1.0), LIMITS.public_total_maximum)))
    return whole, unit, inverse
