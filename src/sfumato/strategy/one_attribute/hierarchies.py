# SPDX-License-Identifier: Apache-2.0
"""Levels of a hierarchy of any shape, measured node by node with weights of their own: O(nodes).

For groups that nest (blocks in tracts in counties in states, irregular, some cells in none), alone
or all crossed with the same table of other attributes. Measured are the totals of the nodes of the
tree, each times an integer near the root of the squared weight that ``nested_optimum`` finds, and
single cells of the other attributes; estimates and variances are two passes over the tree. The
bound is ``nested_bound``, times the cells of the other attributes: the queries fall into as many
copies of one problem, on disjoint cells, and the least error of disjoint copies adds up.

``tree_of`` makes one tree of several query sets, ``NodeSums`` is what is measured of it, and
``hierarchy`` the strategy.

**The weights** are near the optimum, certified, in O(nodes). Asked are the totals of the nodes u,
with energy ``g_u`` (squared weight) each: ``V = sum_u g_u 1_u 1_u'``. Measured are the same totals
with other weights, ``X = M'M = sum_u a_u 1_u 1_u'``, and a record pays ``sum of a_u`` along the
path from its leaf to the root: at most 1. The error is ``tr(V X^-1) = sum_u g_u v_u`` with ``v_u``
the variance of the total of u, and one pass up and one down give all of it. With ``h_u`` the
precision of that total from its own subtree alone,

    h_u = a_u + q_u,   1 / q_u = sum of 1 / h_c over the children c   (q_u = 0 for a leaf),
    v_root = 1 / h_root,   v_c = 1 / h_c - q_u / h_c^2 + (q_u / h_c)^2 v_u.

``nested_optimum`` searches a: the budget that reaches a node is split between the node and its
children, so a is a point of a product of simplices and the search is free.

**The bound** (docs/mechanisms/factorization.md, hierarchies). For every contraction Q and every
``F = R M`` with columns of M of norm at most 1, ``|R|_F^2 >= |Q'R|_F^2 >= sum of (Q'F)_ll^2`` over
the leaves l, as ``(Q'F)_ll`` is the product of a row of ``Q'R`` and a column of M. Q is the
orthogonal factor of ``F diag(tau)^-1/2`` for leaf weights tau under which the contrasts of the
children of any node are singular vectors of one value: with ``S_u = g_u + 1 / (sum of 1 / S_c)``,
``z_c`` the share of c in ``sum of 1 / S_c`` and ``k_u = tau_u (sum of 1 / S_c)``,

    tau_root = 1,   tau_c = k_u S_c,
    D_root = sqrt(S_root),   D_c = z_c^2 D_u + (1 - z_c) / (sqrt(k_u) tau_c),

and ``(Q'F)_ll = D_l tau_l^(3/2)``. Leaves that nobody asks for get some energy g in Q, and their
rows are left out of Q afterwards, which takes ``g tau_l^(1/2) E_l`` off, with E as D for the
inverse singular values. For trees whose nodes of one level have equally many children error and
bound are the optimum; on irregular ones they are some tenths of a percent apart.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log, prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import ADDED_UP, spend, stop_in_time
from sfumato.strategy.base import Block, check_measured
from sfumato.strategy.blockwise import Blockwise
from sfumato.strategy.measured import Invertible
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Numbers
from sfumato.workload.queries import Identity, QuerySet, widened
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "Hierarchical",
    "NestedOptimum",
    "NodeSums",
    "hierarchy",
    "nested_bound",
    "nested_optimum",
    "nested_variances",
    "tree_of",
]

ROUNDED = 1 - 1e-8  # sums of at most 2^24 positive numbers, and a path of roots and quotients


@dataclass(frozen=True, slots=True)
class NestedOptimum:
    """Squared weights of the nodes, at most 1 along every path, their error and a lower bound.

    ``error`` is ``sum g_u v_u``; no strategy with columns of norm 1 is below ``bound``.
    """

    powers: Array
    error: float
    bound: float


def nested_optimum(parent: Integers, energy: Array) -> NestedOptimum:
    """Near the least error of the totals of all nodes of a tree, and a lower bound on it.

    Args:
        parent: The parent of every node, which comes before it; -1 for the first, the root.
        energy: The squared weight of every node's total.

    Returns:
        The squared weights with which the totals are measured.
    """
    from scipy.optimize import Bounds, minimize

    from sfumato.solve.kernels import error_and_slopes, nested_powers  # for numba

    parent = np.ascontiguousarray(parent, dtype=np.int64)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    bound = nested_bound(parent, energy)
    filled = _filled(energy, ~inner & (energy <= 0), LIMITS.nested_unasked)
    places = np.flatnonzero(inner)
    if not len(places):
        return NestedOptimum(np.ones(1), float(energy[0]), bound)

    def slopes(x: Array) -> tuple[float, Array]:
        spend(ADDED_UP * len(parent))
        split = np.zeros(len(parent))
        split[places] = 1 / (1 + np.exp(-x))
        error, slope = error_and_slopes(parent, filled, split)
        return log(error), slope[places] * (split * (1 - split))[places] / error

    start = _first_splits(parent, filled, inner)[places]
    options = {
        "maxiter": LIMITS.nested_steps,
        "maxfun": 2 * LIMITS.nested_steps,
        "ftol": LIMITS.nested_tolerance,
        "gtol": 0.0,
    }
    ends = Bounds(-LIMITS.nested_logit, LIMITS.nested_logit)
    start = np.clip(np.log(start / (1 - start)), -LIMITS.nested_logit, LIMITS.nested_logit)
    x = minimize(
        slopes,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=ends,
        options=options,
        callback=stop_in_time,
    ).x
    split = np.zeros(len(parent))
    split[places] = 1 / (1 + np.exp(-x))
    powers = nested_powers(parent, split)
    return NestedOptimum(powers, float(energy @ nested_variances(parent, powers)), bound)


def nested_variances(parent: Integers, powers: Array) -> Array:
    """The variance of the total of every node at unit noise, measured with squared weights."""
    from sfumato.solve.kernels import variances

    return np.asarray(variances(parent, np.asarray(powers, dtype=np.float64))[2])


def nested_bound(parent: Integers, energy: Array) -> float:
    """No strategy of column norm 1 has less error.

    What leaves that nobody asks for get in Q is free: the greatest of some bounds holds.
    """
    from sfumato.solve.kernels import bound

    is_asked = np.asarray(energy > 0)
    is_asked[parent[1:]] = True
    fills = LIMITS.nested_fills if not is_asked.all() else (1.0,)
    bounds = [bound(parent, _filled(energy, ~is_asked, fill), is_asked) for fill in fills]
    return float(max(bounds)) * ROUNDED


def _filled(energy: Array, empty: Mask, part: float) -> Array:
    """The energies, with a part of the mean one for nodes that have none."""
    mean = float(energy.sum()) / max(int((energy > 0).sum()), 1)
    return np.where(empty, part * mean, np.asarray(energy, dtype=np.float64))


def _first_splits(parent: Integers, energy: Array, inner: Mask) -> Array:
    """The part of the budget that a node keeps: right where all children of a node are alike.

    With ``e_u = w (b - 1)^2 / b`` the least error of the contrasts of b children of energy w and
    K_u that of all below u, ``sqrt(K_u) = sqrt(e_u) + sqrt(sum of K_c)``; contrasts that get the
    budget B measure each child's total with precision ``B b / (b - 1)``.
    """
    from sfumato.solve.kernels import contrast_splits

    splits = contrast_splits(parent, energy)
    low = LIMITS.nested_first_split
    return np.asarray(np.where(inner, np.clip(splits, low, 1 - low), 0.0))


@dataclass(frozen=True, eq=False)
class NodeSums(Invertible):
    """The totals of the nodes of a tree of cells, each times a whole number.

    ``parent[u]`` is the parent of node u, which comes before it, -1 for the root. ``leaf_of[c]`` is
    the leaf that holds cell c, -1 where no query counts the cell. ``weights[u]`` may be 0 for a
    node with children: its total is that of the children then.
    """

    parent: Integers
    weights: Integers
    leaf_of: Integers
    _nodes: dict[str | int, tuple[QuerySet, tuple[Integers, Array] | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        nodes = np.arange(len(self.parent))
        is_tree = self.parent[0] == -1 and bool((self.parent[1:] < nodes[1:]).all())
        is_tree = is_tree and bool((self.parent[1:] >= 0).all())
        leaves = self._is_leaf
        fits = len(self.leaf_of) == self.size and self.leaf_of.max() < len(nodes)
        fits = fits and bool(leaves[self.leaf_of[self.leaf_of >= 0]].all())
        if not is_tree or not fits or bool((self.weights[leaves] < 1).any()):
            raise PlanError(
                "a tree needs a parent before every node but the first, a leaf for every cell or "
                "-1, and weights of at least 1 for its leaves"
            )

    @cached_property
    def name(self) -> str:
        """``nodes(rows, digest)``: sets with the same name are the same."""
        parts = (self.parent, self.weights, self.leaf_of)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts))
        return f"nodes({self.rows}, {digest.hexdigest()[:16]})"

    @cached_property
    def measured(self) -> Integers:
        """The nodes with a weight above 0: the rows."""
        return np.flatnonzero(self.weights)

    @property
    def rows(self) -> int:
        """One per node with a weight."""
        return len(self.measured)

    @property
    def greatest(self) -> float:
        """The greatest weight."""
        return float(self.weights.max())

    def apply(self, x: Numbers) -> Numbers:
        """``M x``: sums from the leaves up; exact for integers."""
        sums = self._totals(widened(x))[self.measured]
        return sums * self._column(self.weights[self.measured], sums)

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y``: every cell gathers the nodes it is in."""
        nodes = np.zeros((len(self.parent), *y.shape[1:]), dtype=y.dtype)
        nodes[self.measured] = y * self._column(self.weights[self.measured], y)
        return self._on_cells(self._gathered(nodes))

    def column_powers(self, p: int) -> Array:
        """Sums of powers of the weights on the path of every cell."""
        return self._on_cells(self._gathered(self.weights.astype(np.float64) ** p))

    def row_powers(self, p: int) -> Array:
        """The number of cells of every node, times the power of its weight."""
        return (self._cells * self.weights.astype(np.float64) ** p)[self.measured]

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and the weight; a node of all cells has the weight twice, an empty one 0 twice."""
        cells, weights = self._cells[self.measured], self.weights[self.measured].astype(np.float64)
        return np.where(cells == self.size, weights, 0.0), np.where(cells > 0, weights, 0.0)

    def inner_products(self) -> tuple[float, float]:
        """The squared weights that two cells share: the root's at least, or none."""
        greatest = float(self.column_powers(2).max())
        if (self.leaf_of < 0).any():
            return 0.0, greatest
        is_single = bool((self.leaf_of == self.leaf_of[0]).all())
        return (greatest if is_single else self._shared_by_all()), greatest

    def squared_diameter(self) -> float:
        """``max |M_i - M_j|^2``: the two longest paths that part at one node, over all nodes."""
        from sfumato.solve.kernels import longest_apart

        apart = float(longest_apart(self.parent, self.weights.astype(np.float64) ** 2))
        if (self.leaf_of < 0).any():  # beside a cell that nobody counts, the whole path
            apart = max(apart, float(self.column_powers(2).max()))
        return apart

    def least_squares(self, y: Array) -> Array:
        """The best estimate of every leaf, spread evenly over its cells."""
        nodes = np.zeros((len(self.parent), *y.shape[1:]))
        nodes[self.measured] = y * self._column(self.weights[self.measured], y)
        totals = self._solved(nodes)
        return self._on_cells(totals / self._column(np.maximum(self._cells, 1.0), totals))

    def transposed(self, c: Array) -> Array:
        """``M (M'M)^-1`` times the mean of c over the cells of every leaf."""
        c = np.asarray(c, dtype=np.float64)
        nodes = self._on_leaves(c)
        nodes = nodes / self._column(np.maximum(self._cells, 1.0), nodes)
        totals = self._solved(nodes)[self.measured]
        return totals * self._column(self.weights[self.measured], totals)

    def nodes_of(self, queries: QuerySet) -> tuple[Integers, Array] | None:
        """The node whose cells every query counts, and how often; None where one counts others."""
        if queries.key not in self._nodes:  # the set is held, as its key may be its address
            self._nodes[queries.key] = queries, self._listed(queries)
        return self._nodes[queries.key][1]

    def _listed(self, queries: QuerySet) -> tuple[Integers, Array] | None:
        parts = disjoint_parts(queries)
        if parts is None:
            return None
        node, factor = np.zeros(queries.rows, dtype=np.int64), np.zeros(queries.rows)
        for part in parts:
            own = self._nodes_of_part(part)
            if own is None:
                return None
            node[part.rows], factor[part.rows] = own, part.factors
        return node, factor

    def _nodes_of_part(self, part: DisjointSets) -> Integers | None:
        used, rows = part.assignment >= 0, len(part.rows)
        sets = part.assignment[used]
        if (self.leaf_of[used] < 0).any():
            return None
        first, last = self._spans
        places = first[self.leaf_of[used]]
        low, high = np.full(rows, len(first)), np.full(rows, -1)
        np.minimum.at(low, sets, places)
        np.maximum.at(high, sets, places)
        keys, by_key = self._keys
        at = np.searchsorted(keys, low * (len(first) + 1) + high)
        node = by_key[np.minimum(at, len(keys) - 1)]
        count = np.bincount(sets, minlength=rows)
        fits = (first[node] == low) & (last[node] == high) & (self._cells[node] == count)
        return node if bool(fits.all()) else None

    @cached_property
    def _keys(self) -> tuple[Integers, Integers]:
        """First and last leaf of the nodes as one number, in order, and whose each is."""
        first, last = self._spans
        keys = first * (len(first) + 1) + last
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def row_variances(self, queries: QuerySet) -> Array:
        """``q (M'M)^-1 q'``; of nodes in two passes, of other queries one by one."""
        nodes = self.nodes_of(queries)
        if nodes is None:
            return self._by_rows(queries, 2)
        node, factor = nodes
        return np.asarray(self._variances[node] * factor**2)

    def total_variance(self, queries: QuerySet) -> float:
        """The sum of ``row_variances``."""
        return float(self.row_variances(queries).sum())

    def row_fourths(self, queries: QuerySet) -> Array:
        """Sums of fourth powers of the rows of the reconstruction, one query after the other."""
        return self._by_rows(queries, 4)

    def _by_rows(self, queries: QuerySet, p: int) -> Array:
        dense = queries.dense()
        step = max(1, LIMITS.coefficients_at_once // len(self.parent))
        parts = (dense[first : first + step] for first in range(0, len(dense), step))
        return np.concatenate([(self.transposed(part.T) ** p).sum(axis=0) for part in parts])

    @cached_property
    def _is_leaf(self) -> Mask:
        leaf = np.ones(len(self.parent), dtype=bool)
        leaf[self.parent[1:]] = False
        return leaf

    @cached_property
    def _cells(self) -> Array:
        """The number of cells of every node."""
        return np.asarray(self._totals(np.ones(self.size)))

    @cached_property
    def _passes(self) -> tuple[Array, Array, Array]:
        from sfumato.solve.kernels import variances

        g, q, v = variances(self.parent, self.weights.astype(np.float64) ** 2)
        return g, q, v

    @property
    def _variances(self) -> Array:
        return self._passes[2]

    @cached_property
    def _spans(self) -> tuple[Integers, Integers]:
        """The first and the last leaf of every node, in the order of the tree."""
        from sfumato.solve.kernels import spans

        first, last = spans(self.parent)
        return first, last

    def _solved(self, nodes: Array) -> Array:
        from sfumato.solve.kernels import solved

        g, q, _ = self._passes
        flat = np.ascontiguousarray(nodes.reshape(len(nodes), -1))
        return np.asarray(solved(self.parent, g, q, flat)).reshape(nodes.shape)

    def _on_leaves(self, x: Numbers) -> Numbers:
        """Sums over the cells of every leaf, 0 for the other nodes."""
        used = self.leaf_of >= 0
        out = np.zeros((len(self.parent), *x.shape[1:]), dtype=x.dtype)
        np.add.at(out, self.leaf_of[used], x[used])
        return out

    def _on_cells(self, nodes: Numbers) -> Numbers:
        out = nodes[self.leaf_of]
        out[self.leaf_of < 0] = 0
        return out

    def _totals(self, x: Numbers) -> Numbers:
        """The totals of all nodes: level by level, from the deepest."""
        out = self._on_leaves(x)
        for nodes in self._by_depth[:0:-1]:
            np.add.at(out, self.parent[nodes], out[nodes])
        return out

    def _gathered(self, nodes: Numbers) -> Numbers:
        """The sum over the path from the root to every node."""
        out = nodes.copy()
        for level in self._by_depth[1:]:
            out[level] += out[self.parent[level]]
        return out

    @cached_property
    def _by_depth(self) -> list[Integers]:
        """The nodes of every depth, the root's first."""
        from sfumato.solve.kernels import depths

        depth = depths(self.parent)
        order = np.argsort(depth, kind="stable")
        ends = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
        return [order[a:b] for a, b in itertools.pairwise(ends)]

    def _shared_by_all(self) -> float:
        """The squared weights of the nodes that hold all cells."""
        return float((self.weights[self._cells == self.size].astype(np.float64) ** 2).sum())

    @staticmethod
    def _column(factors: Numbers, like: Numbers) -> Numbers:
        return factors.astype(like.dtype).reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True, eq=False)
class Hierarchical(Blockwise):
    """All terms from one block: the nodes of a tree, by cells of the other attributes."""

    @property
    def algorithm(self) -> str:
        """``hierarchy``."""
        return "hierarchy"

    def effective_terms(self, term: int) -> Array:
        """Infinite for every answer: Gaussian noise adds up to Gaussian noise."""
        return np.full(self.workload.terms[term].rows, np.inf)


def hierarchy(workload: Workload) -> Hierarchical:
    """The levels of one attribute, all crossed with one table of others, near the optimum.

    Raises:
        PlanError: The terms are not of that kind.
        TooLarge: There are more nodes than are planned.
    """
    products = [t.as_product() for t in workload.terms]
    terms = [t for t in products if t is not None]
    name = _long_attribute(terms) if len(terms) == len(products) else None
    if name is None:
        raise PlanError("the groups are not the levels of one attribute by the same table")
    domain = workload.domain
    sets = [dict(t.factors).get(name) for t in terms]
    tree = tree_of(domain[name].size, [(t.weight, q) for t, q in zip(terms, sets, strict=True)])
    optimum = nested_optimum(tree.parent, tree.energy)
    weights = np.rint(np.sqrt(optimum.powers) * 2.0**LIMITS.tree_weight_bits).astype(np.int64)
    weights[tree.is_leaf] = np.maximum(weights[tree.is_leaf], 1)
    nodes = NodeSums(domain[name].size, tree.parent, weights, tree.leaf_of)
    others = [n for n in terms[0].attributes if n != name]
    names = domain.in_order([name, *others])
    factors = tuple((n, nodes if n == name else Identity(domain[n].size)) for n in names)
    title = " x ".join(f"nodes of {n}" if n == name else n for n in names)
    block = Product(domain, title, 1.0, factors)
    check_measured(block.rows)
    bound = optimum.bound * prod(domain[n].size for n in others)
    return Hierarchical(
        "factorization",
        "gaussian",
        workload,
        (Block(block, 1.0),),
        (0,) * len(terms),
        bound=bound,
    )


def _long_attribute(terms: Sequence[Product]) -> str | None:
    """The attribute whose levels are asked; None where the terms differ in anything else."""
    differ = {n for t in terms for n, q in t.factors if not q.is_identity}
    tables = [frozenset(t.attributes) for t in terms]
    differ |= frozenset.union(*tables) - frozenset.intersection(*tables)
    return differ.pop() if len(differ) == 1 else None


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A tree of cells: ``energy`` is the sum of the squared weights of the queries of a node."""

    parent: Integers
    energy: Array
    leaf_of: Integers
    is_leaf: Mask


@dataclass(frozen=True, slots=True)
class DisjointSets:
    """Queries of a set, numbered ``rows``, that count disjoint sets of cells.

    ``assignment[c]`` is the place among them of the query that counts cell c, -1 for none;
    ``factors`` say how often each counts its cells.
    """

    assignment: Integers
    rows: Integers
    factors: Array


def disjoint_parts(queries: QuerySet) -> list[DisjointSets] | None:
    """The queries as few lists of disjoint sets, those that hold others first; None if they cannot.

    A query that counts cells differently often is none of a tree. Of nested sets every list holds
    what the lists after it refine.
    """
    if queries.is_disjoint and queries.greatest == 1 and queries.is_nonnegative:
        rows = np.arange(queries.rows)
        assignment = np.asarray(queries.adjoint(rows + 1), dtype=np.int64) - 1
        return [DisjointSets(assignment, rows, np.ones(len(rows)))]
    entries = queries.stored_entries()
    if entries is None:
        return None
    used = entries != 0
    factors = np.asarray(queries.row_powers(1) / np.maximum(used.sum(axis=1), 1))
    greatest, least = entries.max(axis=1), np.where(used, entries, np.inf).min(axis=1)
    if (entries < 0).any() or (greatest[used.any(axis=1)] != least[used.any(axis=1)]).any():
        return None
    depth = np.zeros(queries.size, dtype=np.int64)
    level = np.full(queries.rows, -1)
    for row in np.argsort(-used.sum(axis=1), kind="stable").tolist():
        cells = used[row]
        if cells.any():
            level[row] = depth[cells].max()
            depth[cells] = level[row] + 1
    out = []
    for i in range(int(level.max()) + 1):
        rows = np.flatnonzero(level == i)
        assignment = np.full(queries.size, -1, dtype=np.int64)
        which, cells = np.nonzero(used[rows])
        assignment[cells] = which
        out.append(DisjointSets(assignment, rows, factors[rows]))
    return out


def tree_of(size: int, weighted: Sequence[tuple[float, QuerySet | None]]) -> NodeTree:
    """One tree of query sets that count disjoint sets of cells each; None asks for the total.

    Cells that no query tells apart make one leaf; nodes with the same cells are one node.

    Raises:
        PlanError: Two of the sets overlap, neither within the other, or a query is no set.
        TooLarge: There are more nodes than are planned.
    """
    columns, squares = [], []
    for weight, queries in weighted:
        whole = DisjointSets(np.zeros(size, dtype=np.int64), np.arange(1), np.ones(1))
        parts = [whole] if queries is None else disjoint_parts(queries)
        if parts is None:
            raise PlanError("a tree needs queries that count sets of cells, each cell alike")
        columns += [p.assignment for p in parts]
        squares += [weight**2 * p.factors**2 for p in parts]
    counted = np.logical_or.reduce([c >= 0 for c in columns])
    table = np.stack([c[counted] for c in columns])
    order = np.lexsort(table)
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (table[:, order[1:]] != table[:, order[:-1]]).any(axis=0)
    leaf = np.empty(len(order), dtype=np.int64)
    leaf[order] = np.cumsum(starts) - 1
    groups = table[:, order[starts]]  # sets by leaves
    count = groups.shape[1]
    if count > LIMITS.hierarchy_leaves:
        raise TooLarge(f"{count:,} leaves, more than {LIMITS.hierarchy_leaves:,}")
    sizes = [_sizes(row) for row in groups]
    parents, energy = [np.array([-1])], np.zeros(1)
    node, within = np.zeros(count, dtype=np.int64), np.full(count, count)
    made = 1
    coarsest_first = sorted(range(len(groups)), key=lambda s: (-int(sizes[s].max()), s))
    steps = [(groups[s], sizes[s], squares[s]) for s in coarsest_first]
    steps.append((np.arange(count), np.ones(count, dtype=np.int64), np.zeros(count)))  # leaves
    for row, many, square in steps:
        used = np.flatnonzero(row >= 0)
        some = np.zeros(len(many), dtype=np.int64)
        some[row[used]] = used  # one leaf of every group
        number = np.flatnonzero(many > 0)
        above, room = node[some[number]], within[some[number]]
        place = np.cumsum(many > 0) - 1  # of a group among those that have leaves
        if (node[used] != above[place[row[used]]]).any():
            raise PlanError("groups of two levels overlap, and neither holds the other")
        is_new = many[number] < room
        own = np.where(is_new, made + np.cumsum(is_new) - 1, above)
        parents.append(above[is_new])
        made += int(is_new.sum())
        energy = np.concatenate([energy, np.zeros(made - len(energy))])
        energy[own] += square[number]
        node[used] = own[place[row[used]]]
        within[used] = np.where(is_new, many[number], room)[place[row[used]]]
    parent = np.concatenate(parents)
    is_leaf = np.ones(made, dtype=bool)
    is_leaf[parent[1:]] = False
    leaf_of = np.full(size, -1, dtype=np.int64)
    leaf_of[counted] = node[leaf]
    return NodeTree(parent, energy, leaf_of, is_leaf)


def _sizes(row: Integers) -> Integers:
    """How many leaves every group has."""
    return np.bincount(row[row >= 0], minlength=int(row.max()) + 1)
