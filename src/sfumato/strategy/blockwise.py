# SPDX-License-Identifier: Apache-2.0
"""Strategies of parts that answer for themselves, between which the noise is shared.

``Blockwise``: every term of the workload is answered from one measured block. Three ways for a
block to answer a term:

* the block measures the term's own queries, R = I (Laplace or Gaussian noise on the queries);
* the block measures a contingency table that holds the term's attributes (``table_block``);
* the block measures a product of query sets, such as a tree, a wavelet or a template along some
  attributes and single cells along the others (``measured.Invertible``); the table is its
  least-squares estimate, and the squared rows of the reconstruction multiply over the attributes.

``shared_noise`` gives the blocks the shares that are optimal for the objective under the bound "a
record moves every block by its greatest column": shares that minimise ``sum e_b / s_b^2`` subject
to ``sum c_b^p s_b^p = 1`` are ``s_b^(p+2) ~ e_b / c_b^p`` (Lagrange). ``fitted_product`` is the
best product for a group of terms; ``wavelet`` and ``weighted_tree`` put their transform along every
attribute that is asked by intervals. ``Combined`` has a whole strategy for each part of the terms.

References: Xiao, Wang, Gehrke 2010, "Differential privacy via wavelet transforms", section VI
(several attributes); McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of
high-dimensional statistical queries under differential privacy", section 6 (one attribute at a
time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Self, TypeVar

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.effort import must_stop
from sfumato.strategy.base import Block, Norm, Strategy, Summed, check_measured
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import Tree, best_tree, best_wavelet
from sfumato.types import Array, Noise, Objective
from sfumato.workload.queries import Identity, QuerySet, Total, repeated
from sfumato.workload.sensitivity import SensitivityBound, greatest_column_power
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Blockwise",
    "Combined",
    "Design",
    "combined",
    "fitted_product",
    "power_of",
    "shared_noise",
    "table_block",
    "tree_block",
    "wavelet",
    "weighted_tree",
]


@dataclass(frozen=True, eq=False)
class Blockwise(Strategy):
    """Term t is answered from block ``source[t]``."""

    source: tuple[int, ...]

    @property
    def algorithm(self) -> str:
        """The name of the algorithm where its mechanism has several: each group for itself."""
        return {"factorization": "groups", "laplace-optimum": "templates"}.get(self.mechanism, "")

    @property
    def is_direct(self) -> bool:
        """Whether every block measures the queries of its own term."""
        return all(
            self.blocks[b].term is t for t, b in zip(self.workload.terms, self.source, strict=True)
        )

    def _pair(self, term: int) -> tuple[Term, Product | None]:
        """The term, and the block it is computed from (None where its own queries are measured)."""
        target, block = self.workload.terms[term], self.blocks[self.source[term]].term
        if block is target:
            return target, None
        measured = block.as_product()
        if measured is None:
            raise TypeError("a block that answers other terms than its own must be a product")
        return target, measured

    def sums_cells(self, term: int) -> bool:
        """Unless the queries themselves are measured."""
        return self._pair(term)[1] is not None

    def summed(self) -> Summed | None:
        """Without attributes of which blocks measure the cells, and running totals are asked."""
        queries = _products(self.workload.terms)
        measurements = _products([block.term for block in self.blocks])
        if queries is None or measurements is None:
            return None
        away, walks = set(), 0
        for name in {name for p in queries for name in p.attributes}:
            sets = _along(name, queries)
            if all(q.is_prefix or q.is_total for q in sets) and all(
                q.is_identity for q in _along(name, measurements)
            ):
                away.add(name)
                walks += any(q.is_prefix for q in sets)
        if not walks:
            return None
        workload = replace(self.workload, terms=tuple(_without(away, p) for p in queries))
        left = [_without(away, p) for p in measurements]
        blocks = tuple(replace(b, term=t) for b, t in zip(self.blocks, left, strict=True))
        times = tuple(p.rows // t.rows for p, t in zip(measurements, left, strict=True))
        return Summed(replace(self, workload=workload, blocks=blocks, bound=None), times, walks)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The measured values, or sums of cells of the table that they are solved for."""
        target, block = self._pair(term)
        y = values[self.source[term]]
        if block is None:
            return y
        table = np.asarray(y, dtype=np.float64).reshape(block.row_shape)
        for axis, (_, queries) in enumerate(block.factors):
            table = np.moveaxis(queries.least_squares(np.moveaxis(table, axis, 0)), 0, axis)
        extra = tuple(i for i, n in enumerate(block.attributes) if n not in target.attributes)
        return target.answer(table.sum(axis=extra))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: spread to the cells of the table, then to the values they are solved from."""
        target, block = self._pair(term)
        c = np.asarray(coefficients, dtype=np.float64)
        if block is None:
            return {self.source[term]: c}
        shape = dict(zip(block.attributes, block.shape, strict=True))
        along = [n if a in target.attributes else 1 for a, n in shape.items()]
        table = np.broadcast_to(target.adjoint(c).reshape(along), block.shape)
        for axis, (_, queries) in enumerate(block.factors):
            table = np.moveaxis(queries.transposed(np.moveaxis(table, axis, 0)), 0, axis)
        return {self.source[term]: table.reshape(-1)}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """``|r|^2`` times the noise variance of the block."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return repeated(noise, target.rows)
        product = target.as_product()
        if product is None:
            return noise * _outside(target, block) * target.row_powers(2)
        parts = [m.row_variances(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * _outer(parts)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum of ``variances``: a product of sums over the factors."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return noise * target.rows
        product = target.as_product()
        if product is None:
            return float(self.variances(term, block_variances).sum())
        parts = [m.total_variance(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * prod(parts)

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every block, over the terms it answers."""
        ones = [1.0] * len(self.blocks)
        out = np.zeros(len(self.blocks))
        for t, (term, b) in enumerate(zip(self.workload.terms, self.source, strict=True)):
            out[b] += term.weight**2 * self.total_variance(t, ones)
        return out

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``: the product of the greatest of every factor."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return noise
        product = target.as_product()
        if product is None:
            return float(self.variances(term, block_variances).max())
        parts = [m.maximum_variance(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * prod(parts)

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2)^2 / sum r^4``; both multiply over the factors of a product."""
        target, block = self._pair(term)
        if block is None:
            return repeated(1.0, target.rows)
        outside = _outside(target, block) ** 2 / _outside_fourths(target, block)
        product = target.as_product()
        if product is None:
            squares, fourths = target.row_powers(2), target.row_powers(4)
        else:
            pairs = _aligned(product, block)
            squares = _outer([m.row_variances(q) for m, q in pairs])
            fourths = _outer([m.row_fourths(q) for m, q in pairs])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = outside * squares**2 / fourths
        return np.where(fourths > 0, ratio, 1.0)


def table_block(workload: Workload, names: Sequence[str]) -> Product:
    """The contingency table of the named attributes."""
    domain = workload.domain
    order = domain.in_order(names)
    factors = tuple((n, Identity(domain[n].size)) for n in order)
    return Product(domain, "table " + " x ".join(order), 1.0, factors)


def tree_block(term: Product, attribute: str, branching: int) -> Product:
    """A tree along one attribute of the term, single cells along its others."""
    factors: list[tuple[str, QuerySet]] = []
    for name, queries in term.factors:
        measured = Tree(queries.size, branching) if name == attribute else Identity(queries.size)
        factors.append((name, measured))
    return Product(term.domain, f"tree({branching}) {term.name}", 1.0, tuple(factors))


def shared_noise(
    mechanism: str,
    noise: Noise,
    workload: Workload,
    blocks: Sequence[Term],
    source: Sequence[int],
    objective: Objective = "rmse",
) -> Blockwise:
    """The blocks with the best shares for the objective, scaled to column norm 1."""
    check_measured(sum(b.rows for b in blocks))
    p = 2 if noise == "gaussian" else 1
    equal_shares = Blockwise(
        mechanism, noise, workload, tuple(Block(b, 1.0) for b in blocks), tuple(source)
    )
    ones = [1.0] * len(blocks)
    errors = np.zeros(len(blocks))
    for t, (term, b) in enumerate(zip(workload.terms, source, strict=True)):
        if objective == "max":
            errors[b] = max(errors[b], equal_shares.maximum_variance(t, ones) * term.weight**2)
        else:
            errors[b] += equal_shares.total_variance(t, ones) * term.weight**2
    if len(blocks) == 1:
        return equal_shares
    columns = np.array([greatest_column_power([b], [1.0], p).power for b in blocks])
    # Conditions that nobody fulfils make blocks of zeros, or blocks that answer nothing: they get
    # a finite share all the same.
    columns = np.where(columns > 0, columns, 1.0)
    errors = np.where(errors > 0, errors, LIMITS.negligible_error * (errors.max() or 1.0))
    # max: equal errors everywhere, s_b^2 ~ e_b; rmse: s_b^(p+2) ~ e_b / c_b^p.
    shares = np.sqrt(errors) if objective == "max" else (errors / columns) ** (1 / (p + 2))
    norm = float((columns * shares**p).sum()) ** (1 / p)
    scaled = tuple(Block(b, float(s / norm)) for b, s in zip(blocks, shares, strict=True))
    return replace(equal_shares, blocks=scaled)


def _products(terms: Sequence[Term]) -> list[Product] | None:
    """All of them as products, if they are."""
    products = [p for term in terms if (p := term.as_product()) is not None]
    return products if len(products) == len(terms) else None


def _without(names: set[str], product: Product) -> Product:
    return replace(product, factors=tuple(f for f in product.factors if f[0] not in names))


def _along(name: str, products: Sequence[Product]) -> list[QuerySet]:
    """The query sets along an attribute, of the products that have it."""
    return [q for p in products for n, q in p.factors if n == name]


def _aligned(target: Product, block: Product) -> list[tuple[QuerySet, QuerySet]]:
    """Pairs of the measured and the term's query set, for every attribute of the term."""
    measured = dict(block.factors)
    return [(measured[name], queries) for name, queries in target.factors]


def _outside(target: Term, block: Product) -> float:
    """The variance that the attributes of the block add which the term totals."""
    extra = [_variance_of_sum(q) for name, q in block.factors if name not in target.attributes]
    return prod(extra, start=1.0)


def _outside_fourths(target: Term, block: Product) -> float:
    """The sum of fourth powers over these attributes."""
    extra = [q for name, q in block.factors if name not in target.attributes]
    return prod((float(q.row_fourths(Total(q.size))[0]) for q in extra), start=1.0)


def _variance_of_sum(measured: QuerySet) -> float:
    return float(measured.row_variances(Total(measured.size))[0])


def _outer(vectors: Sequence[Array]) -> Array:
    out = np.ones(1)
    for vector in vectors:
        out = np.outer(out, vector).reshape(-1)
    return out


# Products of query sets, fitted to the terms of a block


WeightedSets = list[tuple[float, QuerySet]]
# From weighted query sets of one attribute, a norm and the last set to the best measured set.
Design = Callable[[WeightedSets, int, QuerySet | None], QuerySet]


def wavelet(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Haar wavelets along every attribute that is asked by intervals."""
    return _transformed("wavelet", _wavelet_design, workload, noise, objective)


def weighted_tree(workload: Workload, noise: Noise, objective: Objective) -> Strategy:
    """Trees with the best branching and weights along attributes that are asked by intervals."""
    return _transformed("weighted-tree", _tree_design, workload, noise, objective)


def power_of(noise: Noise) -> int:
    """The norm that the noise is calibrated to: L1 for Laplace, L2 for Gaussian."""
    return 2 if noise == "gaussian" else 1


def fitted_product(terms: Sequence[Product], design: Design, p: int, title: str = "") -> Product:
    """The product of designed query sets, over all attributes of the terms, with the least error.

    Error: ``sum_t w_t^2 prod_i tr(V_ti (M_i'M_i)^-1) ||M_i||^2``, at a local minimum over single
    attributes.

    A block measures ``M_1 x ... x M_d``; a term ``F_1 x ... x F_d`` answered from it errs by
    ``prod_i tr(V_i (M_i'M_i)^-1)`` at unit noise, and the column norm is ``prod_i ||M_i||``. For
    several terms the sum is minimised one attribute at a time: with all others fixed, attribute i
    faces the weighted query sets ``sum_t c_t V_{t,i}``, c_t being the other factors of the term.
    """
    domain = terms[0].domain
    names = domain.in_order(n for t in terms for n in t.attributes)
    if not names:
        return Product(domain, title + "total", 1.0, ())
    cells = domain.cells(names)
    if cells > LIMITS.table_cells:
        raise PlanError(f"the table of {', '.join(names)} has {cells:,} cells")
    sets = {n: [dict(t.factors).get(n, Total(domain[n].size)) for t in terms] for n in names}
    weights = np.array([t.weight**2 for t in terms])
    chosen: dict[str, QuerySet] = {n: Identity(domain[n].size) for n in names}
    errors = {n: _errors(chosen[n], sets[n], p) for n in names}
    last = np.inf
    for turn in range(LIMITS.product_rounds):
        for name in names:
            others = weights * prod((errors[n] for n in names if n != name), start=np.ones(1))
            scaled = others / (float(others.max()) or 1.0)
            weighted = [(float(c), q) for c, q in zip(scaled, sets[name], strict=True)]
            candidate = design(weighted, p, chosen[name] if turn else None)
            tried = _errors(candidate, sets[name], p)
            if turn == 0 or others @ tried <= others @ errors[name]:
                chosen[name], errors[name] = candidate, tried
        value = float(weights @ prod(errors.values(), start=np.ones(1)))
        if (
            value > last * (1 - LIMITS.product_gain)
            or len(names) == 1
            or len(terms) == 1
            or must_stop()
        ):
            break
        last = value
    factors = tuple(chosen.items())
    parts = [n if q.is_identity else f"{q.name} of {n}" for n, q in factors]
    return Product(domain, title + " x ".join(parts), 1.0, factors)


def _errors(measured: QuerySet, sets: Sequence[QuerySet], p: int) -> Array:
    """``tr(V (M'M)^-1) ||M||^2`` of every query set."""
    norm = float(measured.column_powers(p).max()) ** (2 / p)
    total: dict[int, float] = {}
    for queries in sets:
        if id(queries) not in total:
            total[id(queries)] = measured.total_variance(queries)
    return np.array([total[id(q)] * norm for q in sets])


def _transformed(
    kind: str, design: Design, workload: Workload, noise: Noise, objective: Objective
) -> Strategy:
    """One block for the terms on the same attributes; terms without intervals are measured."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, term in enumerate(workload.terms):
        if term.as_product() is not None and term.cells <= LIMITS.table_cells:
            groups.setdefault(term.attributes, []).append(i)
    blocks: list[Term] = []
    source: dict[int, int] = {}
    for members in groups.values():
        terms = [t for i in members if (t := workload.terms[i].as_product()) is not None]
        if any(_is_long(q) for t in terms for _, q in t.factors):
            source.update(dict.fromkeys(members, len(blocks)))
            blocks.append(fitted_product(terms, design, power_of(noise)))
    if not blocks:
        raise PlanError("no group asks for prefixes, ranges or windows")
    for i, term in enumerate(workload.terms):
        if i not in source:
            source[i] = len(blocks)
            blocks.append(term)
    order = [source[i] for i in range(len(workload.terms))]
    return shared_noise(f"{noise}-{kind}", noise, workload, blocks, order, objective)


def _is_long(queries: QuerySet) -> bool:
    return queries.is_ordered and queries.size > 2


def _wavelet_design(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:  # noqa: ARG001
    if not any(_is_long(q) for _, q in weighted):
        return Identity(weighted[0][1].size)
    return best_wavelet(weighted, p)


def _tree_design(weighted: WeightedSets, p: int, previous: QuerySet | None) -> QuerySet:  # noqa: ARG001
    if not any(_is_long(q) for _, q in weighted):
        return Identity(weighted[0][1].size)
    return best_tree(weighted, p)


# Several strategies side by side


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Combined(Strategy):
    """``places[t]`` is the part that answers term t, and the number of the term there.

    If part i has squared error ``E_i`` at unit noise and squared column norm ``c_i``, scaling it by
    ``f_i`` gives ``E_i / f_i^2``; a record moves all parts, so ``sum f_i^2 c_i = 1`` at most. The
    least sum is ``(sum sqrt(E_i c_i))^2``, at ``f_i^2 ~ sqrt(E_i / c_i)``. No strategy for the
    union errs less than the best ones for its parts together, so bounds add up.

    For the largest error, ``E_i`` is that of a part and ``max_i E_i / f_i^2`` counts: all are equal
    at ``f_i^2 ~ E_i``, and the least maximum is ``sum E_i c_i``. The greatest bound of a part is
    for all.
    """

    parts: tuple[Strategy, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def algorithm(self) -> str:
        """The names of the algorithms of the parts, each once."""
        return " + ".join(dict.fromkeys(part.algorithm for part in self.parts))

    def asking(self, workload: Workload) -> Self:
        """Each part reads its own groups of the other workload."""
        terms: list[dict[int, Term]] = [{} for _ in self.parts]
        for term, (part, local) in zip(workload.terms, self.places, strict=True):
            terms[part][local] = term
        parts = tuple(
            part.asking(Workload(workload.domain, tuple(own[i] for i in range(len(own)))))
            for part, own in zip(self.parts, terms, strict=True)
        )
        return replace(self, workload=workload, parts=parts, bound=None)

    def sums_cells(self, term: int) -> bool:
        """Whether the part that has the group does."""
        part, local = self.places[term]
        return self.parts[part].sums_cells(local)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The answers of the part that has the term, from its own blocks."""
        part, local = self.places[term]
        return self.parts[part].answer(local, self._own(part, values))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c`` of the part that has the term, by the numbers of all blocks."""
        part, local = self.places[term]
        first = sum(len(s.blocks) for s in self.parts[:part])
        local_weights = self.parts[part].adjoint(local, coefficients)
        return {first + b: weights for b, weights in local_weights.items()}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variances of the part that has the term."""
        part, local = self.places[term]
        return self.parts[part].variances(local, self._own(part, block_variances))

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """Their sum, from the part that has the term."""
        part, local = self.places[term]
        return self.parts[part].total_variance(local, self._own(part, block_variances))

    def block_errors(self) -> Array:
        """The block errors of all parts, one after the other."""
        return np.concatenate([part.block_errors() for part in self.parts])

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest variance, from the part that has the term."""
        part, local = self.places[term]
        return self.parts[part].maximum_variance(local, self._own(part, block_variances))

    def effective_terms(self, term: int) -> Array:
        """The effective terms of the part that has the term."""
        part, local = self.places[term]
        return self.parts[part].effective_terms(local)

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The sum of the parts' own greatest columns: never less than the greatest together."""
        each = [s.maximum_column(norm, self._own(i, scales)) for i, s in enumerate(self.parts)]
        return SensitivityBound(sum(n.power for n in each), is_exact=False)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """The diameters of the blocks of all parts, one after the other."""
        return tuple(d for part in self.parts for d in part.block_diameters(norm))

    def _own(self, part: int, listed: Sequence[T]) -> Sequence[T]:
        first = sum(len(s.blocks) for s in self.parts[:part])
        return listed[first : first + len(self.parts[part].blocks)]


def combined(
    mechanism: str,
    workload: Workload,
    parts: Sequence[tuple[Strategy, Sequence[int]]],
    objective: Objective = "rmse",
) -> Combined:
    """Gaussian strategies, each with the terms of the workload it answers, in its own order."""
    places: dict[int, tuple[int, int]] = {}
    for i, (_, terms) in enumerate(parts):
        places.update({term: (i, local) for local, term in enumerate(terms)})
    is_max = objective == "max"
    errors = [s.weighted_error(objective) ** (2 if is_max else 1) for s, _ in parts]
    norms = [strategy.sensitivity(2).power for strategy, _ in parts]
    least = LIMITS.negligible_error * max(
        errors
    )  # a part that answers nothing gets some share all the same
    factors = [
        sqrt(max(e, least)) / c if c > 0 else 0.0 for e, c in zip(errors, norms, strict=True)
    ]
    total = sum(f * c for f, c in zip(factors, norms, strict=True)) or 1.0
    blocks = [
        Block(b.term, b.share * (sqrt(f / total) or 1.0))  # a part of zeros costs nothing
        for (strategy, _), f in zip(parts, factors, strict=True)
        for b in strategy.blocks
    ]
    bounds = [b for b in (s.bound_for(objective) for s, _ in parts) if b is not None]
    bound = (max(bounds) if is_max else sum(bounds)) if bounds else None
    return Combined(
        mechanism,
        "gaussian",
        workload,
        tuple(blocks),
        tuple(s for s, _ in parts),
        tuple(places[t] for t in range(len(workload.terms))),
        bound=bound,
        objective=objective,
    )
