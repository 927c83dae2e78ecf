# SPDX-License-Identifier: Apache-2.0
"""The certified optimum of a union of products, through its symmetries.

Two cells of an attribute are exchangeable when swapping them only permutes the queries of the
workload (``exchangeable``). Classes of exchangeable cells split the space of an attribute
(``Axis``) into the span of the class sums and, for each class, the deviations within it. A choice
of one of these per attribute, its *part*, is an invariant subspace (``Subspace``): the Gram matrix,
and some optimal ``X = M'M``, map each of them into itself, and within one they act on the class
sums only (Schur's lemma). The cells of a product of classes form an orbit and share one weight v.
So the fixed point of ``nuclear.py`` needs one eigenvalue problem per subspace, of the size of its
class sums:

* marginals: every attribute is one class, all problems are numbers, the optimum is a closed form;
* the person tables of Census SF1, 29,440 cells: 96 subspaces of at most 400 dimensions;
* no symmetry at all: one subspace, the dense problem.

The bound of ``nuclear.py`` holds for the whole problem, not only for symmetric strategies.
``orbit_problem`` reads a workload, ``OrbitProblem.solve`` returns the weights and their
certificate, ``OrbitProblem.roots`` the strategy on every subspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from sfumato.errors import TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, Certified, certified_optimum
from sfumato.solve.solve_limits import LIMITS
from sfumato.solve.tridiagonal import inverse_gram, root_diagonal
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.workload import Workload

__all__ = [
    "CLASS_SUMS",
    "Axis",
    "OrbitProblem",
    "Subspace",
    "SubspaceRoot",
    "exchangeable",
    "orbit_problem",
]


# Exchangeable cells

CLASS_SUMS = -1  # the part of the class sums; other parts are differences within a class


@dataclass(frozen=True, eq=False)
class Axis:
    """An attribute with its classes of exchangeable cells.

    Two cells of an attribute are exchangeable when swapping them only permutes the asked queries:
    every query treats them alike, except queries about a single cell, of which both have the same
    ones. Then the Gram matrix is unchanged by the swap, some optimal ``X = M'M`` is too, and the
    space of an attribute splits (Schur's lemma) into

    * the class sums: one coordinate per class of exchangeable cells, the normalised sum;
    * for every class of n > 1 cells the residuals: differences within the class, on which the
      Gram matrix is a number.

    For a table of counts the whole attribute is one class: total and residual, the known split of
    marginals (Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
    marginals"). Cells with equal columns are a class with residual 0, hence merged.
    """

    name: str
    class_of: Integers

    @cached_property
    def sizes(self) -> Integers:
        """The number of cells of each class."""
        return np.bincount(self.class_of)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return len(self.class_of)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.sizes)

    def members(self, label: int) -> Integers:
        """The cells of a class."""
        return np.flatnonzero(self.class_of == label)

    @cached_property
    def indicator(self) -> Array:
        """Cells x classes: normalised class vectors as columns."""
        out = np.zeros((self.cells, self.classes))
        out[np.arange(self.cells), self.class_of] = 1 / np.sqrt(self.sizes[self.class_of])
        return out

    def class_gram(self, queries: QuerySet) -> Array:
        """The Gram matrix on the class sums."""
        if queries.is_total:
            root = np.sqrt(self.sizes)
            return np.outer(root, root)
        if queries.is_identity:
            return np.eye(self.classes)
        return self.indicator.T @ np.asarray(queries.gram_apply(self.indicator), dtype=np.float64)

    def residual_gram(self, queries: QuerySet) -> Array:
        """For every class, the number by which the Gram matrix acts on its differences."""
        if queries.is_identity:
            return (self.sizes > 1).astype(np.float64)
        out = np.zeros(self.classes)
        if queries.is_disjoint or queries.is_ordered:
            return out
        gram = queries.gram()
        for label in np.flatnonzero(self.sizes > 1):
            first, second = self.members(int(label))[:2]
            out[label] = gram[first, first] - gram[first, second]
        return np.where(np.abs(out) > 1e-12 * np.abs(np.diag(gram)).max(), out, 0.0)


def exchangeable(name: str, size: int, sets: Sequence[QuerySet]) -> Axis:
    """The classes of exchangeable cells under all query sets asked of an attribute."""
    keys: list[Integers] = [np.zeros(size, dtype=np.int64)]
    for queries in sets:
        if queries.is_ordered:
            return Axis(name, np.arange(size))
        keys.append(queries.exchange_classes())
    stacked = np.stack(keys, axis=1)
    _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # classes numbered by their first cell
    return Axis(name, order[inverse.reshape(-1)])


Part = tuple[int, ...]
_ONE = np.ones((1, 1))


@dataclass(frozen=True, eq=False)
class Subspace:
    """One part per axis, and the Gram matrix on the class coordinates.

    ``rank`` is a bound on that of the matrix, where one is known.
    """

    part: Part
    gram: Array
    rank: int | None = None

    @cached_property
    def factor(self) -> Array | None:
        """F of few rows with ``F'F`` the Gram matrix: counts and sums on many cells have one."""
        size = len(self.gram)
        if (
            self.rank is None
            or size < LIMITS.factored_size
            or LIMITS.factored_ratio * self.rank > size
        ):
            return None
        values, vectors = np.linalg.eigh(self.gram)
        is_positive = values > values[-1] * size * EIGEN_ROUNDING
        return np.asarray(
            (vectors[:, is_positive] * np.sqrt(values[is_positive])).T, dtype=np.float64
        )

    @property
    def work(self) -> int:
        """About the multiplications of one step."""
        size = len(self.gram)
        return size**3 if self.factor is None else size * len(self.factor) ** 2

    def eigh(self, v: Array) -> tuple[Array, Array]:
        """Eigenvalues and vectors of ``D^1/2 V D^1/2``; those of value 0 may be left out.

        With V = F'F the values are those of ``F D F'`` and the vectors ``D^1/2 F'`` times its own.
        """
        if self.factor is None:
            return _eigh(self.gram, v)
        wide = self.factor * np.sqrt(v)
        values, vectors = _eigh(wide @ wide.T, np.ones(len(wide)))
        is_positive = values > 0
        return values[is_positive], wide.T @ (
            vectors[:, is_positive] / np.sqrt(values[is_positive])
        )


@dataclass(frozen=True, eq=False)
class SubspaceRoot:
    """A root of the optimal X on a subspace: ``root' root = X``, over normalised class vectors."""

    part: Part
    root: Array


@dataclass(frozen=True, eq=False)
class OrbitProblem:
    """The subspaces of a workload and the weights of its orbits.

    ``along`` is the query set of the one wide axis when every term asks the same of it: then all
    subspaces are multiples of one Gram matrix and share the weights of its own optimum.
    """

    axes: tuple[Axis, ...]
    subspaces: tuple[Subspace, ...]
    along: QuerySet | None = None

    @property
    def wide(self) -> tuple[int, ...]:
        """The axes of several classes: only these tell orbits apart."""
        return tuple(i for i, a in enumerate(self.axes) if a.classes > 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The orbits, by class of every wide axis."""
        return tuple(self.axes[i].classes for i in self.wide)

    @property
    def cells(self) -> Array:
        """The number of cells of every orbit (over the attributes that are asked about)."""
        out = np.ones(1)
        for axis in self.axes:
            out = np.outer(out, axis.sizes).reshape(-1)
        return out

    def solve(
        self,
        tolerance: float | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> Certified:
        """The certified optimum over the orbit weights, to 2e-6 where that takes no time."""
        if tolerance is None:
            work = sum(s.work for s in self.subspaces)
            is_quick = work <= LIMITS.orbit_fine_multiplications or self.along is not None
            tolerance = LIMITS.orbit_fine_tolerance if is_quick else LIMITS.orbit_tolerance
        spread = [self.spread(s.part) for s in self.subspaces]

        def subspace_roots(v: Array) -> Array:
            weights = v.reshape(self.shape)
            out = np.zeros(self.shape)
            for subspace, share in zip(self.subspaces, spread, strict=True):
                where = self.where(subspace.part)
                values, vectors = subspace.eigh(weights[where].reshape(-1))
                root = (vectors * vectors) @ np.sqrt(values)
                out[where] += share * root.reshape(share.shape)
            return out.reshape(-1)

        size = prod(self.shape)
        return certified_optimum(
            subspace_roots,
            size,
            tolerance,
            1 if size == 1 else 300,
            multiplicity=self.cells,
            start=self._start_weights(tolerance),
            progress=progress,
        )

    def _start_weights(self, tolerance: float) -> Array | None:
        """The optimal weights of prefixes or ranges, in O(cells) a step."""
        inverse = None if self.along is None else inverse_gram(self.along)
        if inverse is None or self.along is None:
            return None
        size = self.along.size
        return certified_optimum(root_diagonal(*inverse), size, tolerance / 4, all_bind=True).v

    def trace(self, v: Array, taken: float) -> float:
        """``tr (L^1/2 V L^1/2)^1/2`` for ``L = diag(v) - taken v v'``, v per cell of an orbit.

        With ``s = v^1/2``, ``L = D^1/2 (I - taken s s') D^1/2``. s lies in the subspace of class
        sums, where the eigenvalues are those of ``(I - b s s') D^1/2 V D^1/2 (I - b s s')`` with
        ``(I - b s s')^2 = I - taken s s'``; in the other subspaces L is diagonal.
        """
        weights, cells = v.reshape(self.shape), self.cells
        total = 0.0
        for subspace in self.subspaces:
            own = weights[self.where(subspace.part)].reshape(-1)
            copies = prod(
                int(a.sizes[k]) - 1
                for a, k in zip(self.axes, subspace.part, strict=True)
                if k != CLASS_SUMS
            )
            gram = subspace.gram
            if all(k == CLASS_SUMS for k in subspace.part):
                s = np.sqrt(own * cells)
                length = float(s @ s)
                b = (1 - np.sqrt(max(1 - taken * length, 0.0))) / length
                out = np.eye(len(s)) - b * np.outer(s, s)
                root = np.sqrt(own)
                values = np.linalg.eigvalsh(out @ (gram * np.outer(root, root)) @ out)
                least = float(np.abs(values).max()) * len(values) * EIGEN_ROUNDING
                values = np.where(values > least, values, 0.0)
            else:
                values, _ = _eigh(gram, own)
            total += copies * float(np.sqrt(values).sum())
        return total

    def roots(self, optimum: Certified) -> Iterable[SubspaceRoot]:
        """A root of the feasible X of every subspace, with column norms at most 1 together."""
        weights = optimum.v.reshape(self.shape)
        for subspace in self.subspaces:
            v = weights[self.where(subspace.part)].reshape(-1)
            values, vectors = subspace.eigh(v)
            is_positive = values > 0
            root = (vectors[:, is_positive] * values[is_positive] ** 0.25).T / np.sqrt(
                v * optimum.scale
            )
            yield SubspaceRoot(subspace.part, root)

    def where(self, part: Part) -> tuple[slice | int, ...]:
        """Which orbits a subspace reaches."""
        return tuple(slice(None) if part[i] == CLASS_SUMS else part[i] for i in self.wide)

    def spread(self, part: Part) -> Array:
        """The share of one cell in a unit vector of the subspace, squared and summed up."""
        share = np.ones(())
        for axis, label in zip(self.axes, part, strict=True):
            if label == CLASS_SUMS:
                share = np.multiply.outer(share, 1 / axis.sizes)
            else:
                share = share * (1 - 1 / axis.sizes[label])
        shape = [self.axes[i].classes for i in self.wide if part[i] == CLASS_SUMS]
        return share.reshape(shape)


def orbit_problem(workload: Workload) -> OrbitProblem | None:
    """The symmetric problem of a union of products; None when a term is no product."""
    term_factors: list[Mapping[str, QuerySet]] = []
    for term in workload.terms:
        product = term.as_product()
        if product is None:
            return None
        term_factors.append(dict(product.factors))
    names = workload.domain.in_order({n for factors in term_factors for n in factors})
    axes = tuple(
        exchangeable(n, workload.domain[n].size, [f[n] for f in term_factors if n in f])
        for n in names
    )
    largest = prod(a.classes for a in axes)
    if largest > LIMITS.subspace_size:
        raise TooLarge(f"{largest:,} classes of cells, more than {LIMITS.subspace_size:,}")
    weights = [t.weight**2 for t in workload.terms]
    return OrbitProblem(
        axes, tuple(_subspaces(axes, term_factors, weights)), _along(axes, term_factors)
    )


def _along(
    axes: tuple[Axis, ...], term_factors: Sequence[Mapping[str, QuerySet]]
) -> QuerySet | None:
    wide = [a.name for a in axes if a.classes > 1]
    if len(wide) != 1 or any(wide[0] not in factors for factors in term_factors):
        return None
    sets = [factors[wide[0]] for factors in term_factors]
    same = all(q.key == sets[0].key for q in sets)
    return sets[0] if same and sets[0].holds_prefixes else None


def _subspaces(
    axes: tuple[Axis, ...], term_factors: Sequence[Mapping[str, QuerySet]], weights: Sequence[float]
) -> Iterable[Subspace]:
    """All subspaces that some query reaches, each with its Gram matrix."""
    grams: dict[tuple[str, int], Array] = {}
    residuals: dict[tuple[str, int], Array] = {}
    grams_of: dict[Part, Array] = {}
    ranks: dict[Part, int] = {}
    held = 0
    for factors, weight in zip(term_factors, weights, strict=True):
        options: list[list[int]] = []
        keys = []
        for axis in axes:
            queries = factors.get(axis.name)
            key = (axis.name, 0 if queries is None else id(queries))
            if key not in grams:
                grams[key] = axis.class_gram(Total(axis.cells) if queries is None else queries)
                none = np.zeros(axis.classes)
                residuals[key] = none if queries is None else axis.residual_gram(queries)
            keys.append(key)
            options.append([CLASS_SUMS, *np.flatnonzero(residuals[key]).tolist()])
        for part in product(*options):
            scale = weight
            gram: Array = _ONE
            for key, label in zip(keys, part, strict=True):
                if label != CLASS_SUMS:
                    scale *= residuals[key][label]
                elif grams[key].size == 1:
                    scale *= grams[key][0, 0]
                else:
                    gram = np.asarray(np.kron(gram, grams[key]), dtype=np.float64)
            gram = scale * gram
            mixed = [a for a, k in zip(axes, part, strict=True) if k == CLASS_SUMS]
            rank = prod(min(factors[a.name].rows, a.classes) for a in mixed if a.name in factors)
            ranks[part] = ranks.get(part, 0) + rank
            if part in grams_of:
                grams_of[part] += gram
            else:
                grams_of[part] = gram
                held += gram.size
                if held > LIMITS.subspace_entries:
                    raise TooLarge(
                        f"more than {LIMITS.subspace_entries:,} entries in the sectors of the "
                        "workload"
                    )
    return (Subspace(part, gram, ranks[part]) for part, gram in grams_of.items())


def _eigh(gram: Array, v: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of ``D^1/2 V D^1/2``.

    Eigenvalues within rounding of 0 are set to 0: their roots would be far from small, and a
    lower bound must not count them.
    """
    root = np.sqrt(v)
    if gram.size == 1:
        return np.maximum(gram[0] * v, 0.0), np.ones((1, 1))
    spend(EIGEN * float(len(gram)) ** 3)
    values, vectors = np.linalg.eigh(gram * np.outer(root, root))
    return np.where(values > values[-1] * len(values) * EIGEN_ROUNDING, values, 0.0), vectors
