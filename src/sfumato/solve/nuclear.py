# SPDX-License-Identifier: Apache-2.0
"""The exact optimum of factorization, with a lower bound that proves it.

``certified_optimum`` is for the mean error. Over all factorizations ``F = R M`` the least root mean
square error at unit noise is gamma(F),

    k gamma^2 = min tr(V X^-1)  over X = M'M with X_jj <= 1,      V = F' W F.

Weak duality gives, for any v >= 0 and D = diag(v), with A = D^1/2 V D^1/2,

    (tr A^1/2)^2 / sum(v)  <=  k gamma^2,

and equality holds at the fixed point ``v = diag(A^1/2)``, where X = D^-1/2 A^1/2 D^-1/2 has unit
diagonal (or less, where v = 0). Two ways there, with one certificate:

* L-BFGS on the bound with v = z^2: the gradient costs no more than the bound, and squaring lets
  cells that do not bind reach v = 0 quickly;
* the fixed point itself on log v with Anderson mixing, where all cells bind (prefixes, ranges): it
  keeps its pace on a million cells, where differences of the bound drown in rounding.

Every step gives a valid bound and a feasible X (scaled to diagonal at most 1), so the result is
certified whatever the optimiser does. v = 1 is the singular value bound of Li and Miklau 2013. The
search ends early when the steps of the plan are used up, and is not made twice (``effort.py``).

``certified_minimax`` is the same for the largest error, with weights on queries as well as cells.
``best_root`` solves either for an explicit matrix, of whose cells only those that bind are held.

References: Li, Miklau, Hay, McGregor, Rastogi 2015, "The matrix mechanism: optimizing linear
counting queries under differential privacy"; Edmonds, Nikolov, Ullman 2020, "The power of
factorization mechanisms in local and central differential privacy"; Liu, Nocedal 1989, "On the
limited memory BFGS method for large scale optimization"; Walker, Ni 2011, "Anderson acceleration
for fixed-point iterations".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, Searched, current, must_stop, spend
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, SearchProgress

__all__ = [
    "EIGEN_ROUNDING",
    "BestRoot",
    "Certified",
    "CertifiedMinimax",
    "best_root",
    "certified_minimax",
    "certified_optimum",
    "spanning_cells",
]


NUMBERS = 5  # of a stored search: scale, upper, lower, steps, multiplications


@dataclass(frozen=True, slots=True)
class Certified:
    """The best weights found; ``upper`` and ``lower`` enclose ``k gamma^2``.

    ``v`` gives the feasible X whose error is ``upper``: ``D^-1/2 A^1/2 D^-1/2 / scale``.
    """

    v: Array
    scale: float
    upper: float
    lower: float
    steps: int

    @property
    def certificate(self) -> float:
        """Root mean square error over its lower bound."""
        return sqrt(self.upper / self.lower)


def certified_optimum(
    root_diagonal: Callable[[Array], Array],
    cells: int,
    tolerance: float = 1e-4,
    most_steps: int = 300,
    all_bind: bool = False,
    multiplicity: Array | None = None,
    start: Array | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Certified:
    """Maximise the bound over v until the certificate is within ``1 + tolerance``.

    ``root_diagonal(v)`` returns the diagonal of A^1/2 for cell weights v > 0; ``all_bind`` says
    that no cell is expected to have weight 0 at the optimum. ``multiplicity`` counts the cells that
    share a weight by symmetry; ``start`` is a first guess of v.
    """
    copies = np.ones(cells) if multiplicity is None else multiplicity
    count = float(copies.mean())
    copies = copies / count  # of order 1, whatever the size of the domain
    search = _MeanSearch(root_diagonal, copies, (1 + tolerance) ** 2, most_steps, progress)
    first = np.ones(cells) if start is None else start
    plan = current()
    number = plan.next_search()
    digest = _search_digest(search, first, all_bind)
    before = plan.spent
    stored = _proved(search, plan.recall(number, digest, cells))
    plan.spent = before
    if stored is not None:
        plan.spent += float(stored.numbers[-1])  # as much as the search that it stands for
        scale, upper, lower, steps = stored.numbers[:-1].tolist()
        return Certified(stored.best, scale, upper * count, lower * count, int(steps))
    with suppress(_Reached):
        if all_bind:
            _mix(search, np.log(first))
        for _ in range(
            LIMITS.climb_starts
        ):  # a line search that fails for rounding is started afresh
            search.climb(np.sqrt(copies * (first if search.v is None else search.v)))
    best = search.best()
    numbers = np.array([best.scale, best.upper, best.lower, best.steps, plan.spent - before])
    plan.keep(number, Searched(digest, best.v, search.lower_v, numbers))
    return replace(best, upper=best.upper * count, lower=best.lower * count)


def _search_digest(search: _MeanSearch, first: Array, all_bind: bool) -> bytes:
    """The digest of a search but for its matrix, which its workload and number tell."""
    out = hashlib.sha256(repr((len(first), search.ratio, search.most_steps, all_bind)).encode())
    for numbers in (first, search.copies):
        out.update(np.ascontiguousarray(numbers, dtype=np.float64).tobytes())
    return out.digest()


def _proved(search: _MeanSearch, stored: Searched | None) -> Searched | None:
    """A stored result whose error and bound are those of its weights, else None."""
    if stored is None or len(stored.numbers) != NUMBERS:
        return None
    _, upper, lower, _, _ = stored.numbers.tolist()
    of_best, of_bound = search.root_diagonal(stored.best), search.root_diagonal(stored.bound)
    trace = float(search.copies @ of_bound)
    again = trace**2 / float(search.copies @ stored.bound)
    error = float(search.copies @ of_best) * float((of_best / stored.best).max())
    is_so = (
        abs(again - lower) <= LIMITS.stored_bound_accuracy * lower
        and abs(error - upper) <= LIMITS.stored_bound_accuracy * upper
    )
    return stored if is_so and lower > 0 else None


class _Reached(Exception):
    """The certificate is good enough, or the steps are used up."""


class _Proofs(ABC):
    """What has been proved so far: the greatest lower bound, the least error of a feasible X."""

    def __init__(
        self, ratio: float, most_steps: int, progress: Callable[[int, float], None] | None
    ) -> None:
        self.ratio, self.most_steps, self.progress = ratio, most_steps, progress
        self.steps, self.lower, self.upper, self.scale = 0, 0.0, np.inf, 1.0

    @property
    def gap(self) -> float:
        """Error over its lower bound, less 1."""
        return sqrt(self.upper / self.lower) - 1

    def stop_if_enough(self) -> None:
        """Raise _Reached where the certificate is good enough, or the steps are used up."""
        if self.progress is not None:
            self.progress(self.steps, self.gap)
        is_proved = self.upper <= self.lower * self.ratio
        if is_proved or self.steps >= self.most_steps or must_stop():
            raise _Reached

    @abstractmethod
    def negative_log_bound(self, z: Array) -> tuple[float, Array]:
        """Minus the logarithm of the bound at the roots z of the weights, and its gradient."""

    def climb(self, z: Array) -> None:
        """Run L-BFGS on the bound from z on, until it is enough."""
        from scipy.optimize import minimize

        options = {
            "maxiter": self.most_steps,
            "maxcor": LIMITS.lbfgs_corrections,
            "ftol": 0.0,
            "gtol": 0.0,
        }
        minimize(self.negative_log_bound, z, jac=True, method="L-BFGS-B", options=options)


class _MeanSearch(_Proofs):
    """Weights of cells, for the mean of all queries."""

    def __init__(
        self,
        root_diagonal: Callable[[Array], Array],
        copies: Array,
        ratio: float,
        most_steps: int,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        super().__init__(ratio, most_steps, progress)
        self.root_diagonal, self.copies = root_diagonal, copies
        self.v: Array | None = None
        self.lower_v = np.zeros(0)

    def prove(self, v: Array) -> tuple[float, float, Array]:
        """``tr A^1/2``, ``sum(v)`` and the diagonal of X; raises _Reached when it is enough."""
        self.steps += 1
        d = self.root_diagonal(v)
        spend(LIMITS.lbfgs_corrections * len(v))
        trace, total, diagonal = float(self.copies @ d), float(self.copies @ v), d / v
        if trace <= 0:
            raise PlanError("all queries are zero: there is nothing to factorize")
        if trace**2 / total > self.lower:
            self.lower, self.lower_v = trace**2 / total, v
        if trace * float(diagonal.max()) < self.upper:
            self.scale = float(diagonal.max())
            self.upper, self.v = trace * self.scale, v
        current().tell(self.gap)
        self.stop_if_enough()
        return trace, total, diagonal

    def negative_log_bound(self, z: Array) -> tuple[float, Array]:
        """``log sum(v) - 2 log tr A^1/2`` and its gradient; d tr A^1/2 / dv = diag(A^1/2) / 2v.

        v = z^2 / copies, as if every copy had its own coordinate.
        """
        trace, total, diagonal = self.prove(z**2 / self.copies + LIMITS.cell_weight_minimum)
        return log(total) - 2 * log(trace), (1 / total - diagonal / trace) * 2 * z

    def best(self) -> Certified:
        if self.v is None:
            raise PlanError("all queries are zero: there is nothing to factorize")
        return Certified(self.v, self.scale, self.upper, self.lower, self.steps)


def _mix(search: _MeanSearch, x: Array) -> None:
    """Iterate ``log v <- log v + log diag(X)``, relaxed and mixed."""
    mixing = _Mixing()
    for _ in range(LIMITS.mixing_steps):
        trace, total, diagonal = search.prove(np.exp(x))
        x = mixing.after(x, LIMITS.mixing_relaxation * np.log(diagonal * total / trace))


class _Mixing:
    """Anderson mixing of the last steps of a fixed point iteration."""

    def __init__(self) -> None:
        self.positions: list[Array] = []
        self.residuals: list[Array] = []

    def after(self, x: Array, residual: Array) -> Array:
        """The next position after x, where one plain step would be ``x + residual``."""
        self.positions = [*self.positions, x][-LIMITS.mixing_memory - 1 :]
        self.residuals = [*self.residuals, residual][-LIMITS.mixing_memory - 1 :]
        step = residual
        if len(self.residuals) > 1:
            dr = np.diff(np.array(self.residuals), axis=0)
            dx = np.diff(np.array(self.positions), axis=0)
            # the normal equations: few unknowns, whatever the number of cells
            mix, *_ = np.linalg.lstsq(dr @ dr.T, dr @ residual, rcond=1e-12)
            step = residual - mix @ (dx + dr)
        return np.asarray(
            x + np.clip(step, -LIMITS.mixing_step_maximum, LIMITS.mixing_step_maximum),
            dtype=np.float64,
        )


# Least largest error

# The share of all weight that is spread evenly: no cell or query is lost for good, and the bound
# falls by less than twice this part of itself.


@dataclass(frozen=True, slots=True)
class CertifiedMinimax:
    """The best weights found; ``upper`` and ``lower`` enclose ``gamma_2^2``.

    With B = W^1/2 F D^1/2 the feasible X is ``D^-1/2 (B'B)^1/2 D^-1/2 / scale``; ``v`` and ``w``
    sum to 1 over all cells and all queries.
    """

    v: Array
    w: Array
    scale: float
    upper: float
    lower: float
    steps: int

    @property
    def certificate(self) -> float:
        """Largest error over its lower bound."""
        return sqrt(self.upper / self.lower)


def certified_minimax(
    root_diagonals: Callable[[Array, Array], tuple[Array, Array]],
    cells: int,
    queries: int,
    tolerance: float = 1e-4,
    most_steps: int = 500,
    all_bind: bool = False,
    cell_copies: Array | None = None,
    query_copies: Array | None = None,
    start: tuple[Array, Array] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> CertifiedMinimax:
    """Maximise the bound over (v, w) until the certificate is within ``1 + tolerance``.

    ``root_diagonals(v, w)`` returns the diagonals of (B'B)^1/2, one entry per cell, and of
    (B B')^1/2, one per query, for weights above 0. Weights of queries in the objective belong in
    F. ``cell_copies`` and ``query_copies`` count what shares a weight by symmetry; ``all_bind``
    says that no cell and no query is expected to have weight 0 at the optimum.

    Over all factorizations ``F = R M`` the least greatest query error at unit noise is gamma_2(F),

        gamma_2^2 = min over X = M'M with X_jj <= 1  of  max_q f_q' X^-1 f_q.

    A maximum over queries is at least every mean of them, so weights w >= 0 on queries and v >= 0
    on cells give, by the bound of ``certified_optimum`` and with B = W^1/2 F D^1/2, D = diag(v), W
    = diag(w),

        (tr |B|)^2 / (sum(v) sum(w))  <=  gamma_2^2,          tr |B| = tr (B'B)^1/2 = tr (B B')^1/2.

    The feasible X = D^-1/2 (B'B)^1/2 D^-1/2 has X_jj = diag((B'B)^1/2)_j / v_j, and the errors are
    f_q' X^-1 f_q = diag((B B')^1/2)_q / w_q: cells and queries play the same part. At the optimum
    both are level wherever a weight is positive. tr |B| is jointly concave in (v, w) (it is a
    fidelity), so a smooth ascent finds its maximum; every step gives a valid bound and a feasible
    X.

    References: Lee, Shraibman, Spalek 2008, "A direct product theorem for discrepancy", for the
    dual of gamma_2; Edmonds, Nikolov, Ullman 2020, "The power of factorization mechanisms in local
    and central differential privacy"; Alberti 1983 and Uhlmann 1976 for the concavity.
    """
    copies = (
        np.ones(cells) if cell_copies is None else cell_copies,
        np.ones(queries) if query_copies is None else query_copies,
    )
    search = _MinimaxSearch(root_diagonals, copies, (1 + tolerance) ** 2, most_steps, progress)
    v, w = start if start is not None else (1 / copies[0], 1 / copies[1])
    with suppress(_Reached):
        if all_bind:
            _mix_minimax(search, np.log(v), np.log(w))
        for _ in range(
            LIMITS.climb_starts
        ):  # a line search that fails for rounding is started afresh
            search.climb(search.roots(v, w))
            v, w = search.weights(v, w)
    return search.best()


class _MinimaxSearch(_Proofs):
    """Weights of cells and of queries, for the largest error."""

    def __init__(
        self,
        root_diagonals: Callable[[Array, Array], tuple[Array, Array]],
        copies: tuple[Array, Array],
        ratio: float,
        most_steps: int,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        super().__init__(ratio, most_steps, progress)
        self.root_diagonals, self.copies = root_diagonals, copies
        self.best_weights: tuple[Array, Array] | None = None

    def prove(self, v: Array, w: Array) -> tuple[float, Array, Array]:
        """``tr |B|``, the diagonal of X and the squared errors, for weights that sum to 1."""
        self.steps += 1
        cells, queries = self.root_diagonals(v, w)
        spend(LIMITS.lbfgs_corrections * (len(v) + len(w)))
        trace = float(self.copies[0] @ cells)
        if not trace > 0:
            raise PlanError("the workload is zero: there is nothing to factorize")
        diagonal, errors = cells / v, queries / w
        self.lower = max(self.lower, trace**2)
        scale = float(diagonal.max())
        if scale * float(errors.max()) < self.upper:
            self.upper, self.scale, self.best_weights = scale * float(errors.max()), scale, (v, w)
        self.stop_if_enough()
        return trace, diagonal, errors

    def negative_log_bound(self, z: Array) -> tuple[float, Array]:
        """``-2 log tr |B|`` and its gradient, with weights proportional to z^2 / copies.

        d tr|B| / dv = diag((B'B)^1/2) / 2v, and the same for w.
        """
        z1, z2 = np.split(z, [len(self.copies[0])])
        trace, diagonal, errors = self.prove(
            _spread(z1, self.copies[0]), _spread(z2, self.copies[1])
        )
        slopes = []
        for part, level in ((z1, diagonal), (z2, errors)):
            squares = part**2
            total = float(squares.sum())
            mean = float(level @ squares) / total
            slopes.append(
                part * (mean - level) * (2 / (total * trace * (1 + LIMITS.minimax_weight_spread)))
            )
        return -2 * log(trace), np.concatenate(slopes)

    def roots(self, v: Array, w: Array) -> Array:
        """The z of given weights, of length 1 for cells and for queries: one scale for both."""
        parts = [np.sqrt(c * x) for c, x in zip(self.copies, (v, w), strict=True)]
        return np.concatenate([z / sqrt(float(z @ z)) for z in parts])

    def weights(self, v: Array, w: Array) -> tuple[Array, Array]:
        """The best weights so far, or the given ones."""
        return (v, w) if self.best_weights is None else self.best_weights

    def best(self) -> CertifiedMinimax:
        if self.best_weights is None:
            raise PlanError("the weights of the largest error are not finite; please report this")
        v, w = self.best_weights
        return CertifiedMinimax(v, w, self.scale, self.upper, self.lower, self.steps)


def _spread(z: Array, copies: Array) -> Array:
    """Weights proportional to ``z^2 / copies``, none of them 0, whose sum over copies is 1."""
    squares = z**2
    share = (squares / squares.sum() + LIMITS.minimax_weight_spread / len(z)) / (
        1 + LIMITS.minimax_weight_spread
    )
    return np.asarray(share / copies, dtype=np.float64)


def _mix_minimax(search: _MinimaxSearch, x: Array, y: Array) -> None:
    """Iterate ``log v`` with diag(X) and ``log w`` with the errors, relaxed and mixed."""
    mixing = _Mixing()
    both, cells = np.concatenate([x, y]), len(x)
    for _ in range(LIMITS.mixing_steps):
        logs = np.split(both, [cells])
        v, w = (np.exp(part - part.max()) for part in logs)
        v, w = v / float(search.copies[0] @ v), w / float(search.copies[1] @ w)
        trace, diagonal, errors = search.prove(v, w)
        residual = LIMITS.mixing_relaxation * np.log(np.concatenate([diagonal, errors]) / trace)
        both = mixing.after(both, residual)


# The best strategy of an explicit matrix

EIGEN_ROUNDING = 2.0**-50  # relative error of a computed eigenvalue, per dimension
SINGULAR_ROUNDING = 2.0**-50


@dataclass(frozen=True, eq=False)
class BestRoot:
    """``M = mixing @ F`` has columns of length at most 1; ``lower`` is below every error.

    Errors are squared and weighted, at unit noise: summed over queries, or the largest of them.
    """

    mixing: Array
    lower: float


def best_root(
    matrix: Numbers,
    weights: Array,
    objective: str = "rmse",
    tolerance: float = 1e-4,
    progress: SearchProgress | None = None,
    spanning: Integers | None = None,
) -> BestRoot:
    """The mixing H of the queries (rows) on distinct cells (columns, none of them zero).

    Errors of queries count by their weights. ``spanning`` names columns that span all others, where
    the caller has them.

    The optimal X of ``certified_optimum`` and of ``certified_minimax`` is ``X = F' H'H F``, a mix
    of the queries: with B = W^1/2 F D^1/2 = P S Q', ``H = S^-1/2 P' W^1/2`` (W = I for the mean).
    So a strategy is known by a matrix with a column per query, whatever the number of cells.

    * Queries and cells that hang together in no way are solved apart: a record is in one part only,
      so every part may be as sensitive as the whole, mean squared errors add up and the largest
      error is that of the worst part.
    * Where there are many more cells than queries, few of them matter. The problem is solved on
      some of the cells, those whose columns of M came out longest are added, and so on. A bound for
      fewer cells is a bound for all (v = 0 elsewhere); the sensitivity is that of all.
    """
    rows, columns = _parts(matrix, spanning)
    count = int(rows.max()) + 1
    roots = []
    for part in range(count):
        inside = np.flatnonzero(rows == part)
        block = matrix[np.ix_(inside, np.flatnonzero(columns == part))] if count > 1 else matrix
        weighted = _Weighted(block, weights[inside])
        spanning_part = spanning if count == 1 else None
        roots.append((inside, _connected(weighted, objective, tolerance, progress, spanning_part)))
    mixing = np.zeros((sum(len(r.mixing) for _, r in roots), len(matrix)))
    first = 0
    for inside, root in roots:
        mixing[first : first + len(root.mixing), inside] = root.mixing
        first += len(root.mixing)
    bounds = [root.lower for _, root in roots]
    return BestRoot(mixing, max(bounds) if objective == "max" else sum(bounds))


@dataclass(frozen=True, eq=False)
class _Weighted:
    """A matrix whose rows are multiplied by weights, without a copy of all of it."""

    matrix: Numbers
    weights: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and of cells."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def some(self, columns: Integers | slice) -> Array:
        """Some columns times the weights, in floats."""
        chosen = self.matrix[:, columns].astype(np.float64)
        return np.asarray(chosen * self.weights[:, None], dtype=np.float64)


def _parts(matrix: Numbers, spanning: Integers | None) -> tuple[Integers, Integers]:
    """The connected part of every query and of every cell."""
    from scipy.sparse import bmat, csr_matrix
    from scipy.sparse.csgraph import connected_components

    k, m = matrix.shape
    some = matrix if spanning is None else matrix[:, spanning]
    for columns in (some, matrix) if some.shape[1] < m else (matrix,):
        pattern = csr_matrix(columns != 0)
        graph = bmat([[None, pattern], [pattern.T, None]])
        _, labels = connected_components(graph, directed=False)
        # No column is zero: queries that hang together through some cells do so through all.
        if not labels[:k].any():
            return np.zeros(k, dtype=np.int64), np.zeros(m, dtype=np.int64)
    return labels[:k].astype(np.int64), labels[k:].astype(np.int64)


def _connected(
    matrix: _Weighted,
    objective: str,
    tolerance: float,
    progress: SearchProgress | None,
    spanning: Integers | None,
) -> BestRoot:
    k, m = matrix.shape
    if min(k, m) > LIMITS.matrix_side:
        raise TooLarge(
            f"{k:,} distinct queries on {m:,} distinct cells hang together: one of them must be at "
            f"most {LIMITS.matrix_side:,}; sf.plan uses the structure of a workload instead"
        )
    if m <= max(LIMITS.cells_solved_at_once, 2 * k):
        solved = _solved(matrix.some(slice(None)), objective, tolerance, None, progress)
        return BestRoot(solved.mixing * matrix.weights / sqrt(solved.scale), solved.lower)
    return _generated(matrix, objective, tolerance, progress, spanning)


@dataclass(frozen=True, eq=False)
class _Solved:
    """Weights of some cells and of the queries; ``level`` is the error before scaling."""

    v: Array
    w: Array
    mixing: Array
    level: float
    scale: float
    lower: float


def _solved(
    matrix: Array,
    objective: str,
    tolerance: float,
    start: tuple[Array, Array] | None,
    progress: SearchProgress | None,
) -> _Solved:
    """The optimum over all cells at once."""
    k, m = matrix.shape
    if objective == "max":
        largest = certified_minimax(
            root_diagonals(matrix), m, k, tolerance, start=start, progress=progress
        )
        v, w, upper, lower, scale = (
            largest.v,
            largest.w,
            largest.upper,
            largest.lower,
            largest.scale,
        )
    else:
        best = certified_optimum(
            root_diagonal(matrix),
            m,
            tolerance,
            start=None if start is None else start[0],
            progress=progress,
        )
        v, w, upper, lower, scale = best.v, np.ones(k), best.upper, best.lower, best.scale
    return _Solved(v, w, _mixing(matrix, v, w), upper / scale, scale, lower)


def _generated(
    matrix: _Weighted,
    objective: str,
    tolerance: float,
    progress: SearchProgress | None,
    spanning: Integers | None,
) -> BestRoot:
    """The optimum by rounds in which the cells join whose columns are too long."""
    k, m = matrix.shape
    chosen, start = _first_cells(matrix) if spanning is None else spanning, None
    lower, best, least, gap = 0.0, np.zeros((0, k)), np.inf, 1.0
    for _ in range(LIMITS.cell_rounds):
        solved = _solved(
            matrix.some(chosen), objective, max(tolerance / 3, min(gap / 10, 1e-2)), start, None
        )
        lower = max(lower, solved.lower)
        lengths = _squared_lengths(solved.mixing, matrix)
        longest = float(lengths.max())
        if solved.level * longest < least:
            least, best = solved.level * longest, solved.mixing / sqrt(longest)
        gap = sqrt(least / lower) - 1
        if progress is not None:
            progress(len(chosen), gap)
        if gap <= tolerance:
            break
        binding = chosen[solved.v > LIMITS.cell_weight_dropped * solved.v.max()]
        joined = np.argpartition(-lengths, min(LIMITS.cells_added, m - 1))[: LIMITS.cells_added]
        # Weights near 0 would be slow to grow again: all begin at the mean or above.
        weights = np.full(m, float(solved.v.mean()))
        weights[chosen] = np.maximum(solved.v, weights[0])
        chosen = np.union1d(np.union1d(binding, joined), _spanning(matrix, binding))
        start = (weights[chosen], solved.w)
    return BestRoot(best * matrix.weights, lower)


def _first_cells(matrix: _Weighted) -> Integers:
    """The longest columns, some of all others, and as many as it takes to span the queries."""
    m = matrix.shape[1]
    lengths = np.abs(matrix.matrix).sum(axis=0)
    longest = np.argpartition(-lengths, LIMITS.cells_added)[: LIMITS.cells_added]
    evenly = np.linspace(0, m - 1, LIMITS.cells_solved_at_once // 2).astype(np.int64)
    # The columns of fewest queries: those where a query is nearly alone tell it from others.
    alone = [_lightest(row, lengths) for row in matrix.matrix]
    first = np.union1d(np.union1d(longest, evenly), np.concatenate(alone))
    return np.asarray(np.union1d(first, _spanning(matrix, first)), dtype=np.int64)


def _lightest(row: Numbers, lengths: Array) -> Integers:
    """The column of a query that counts least in others, and its first one."""
    held = np.flatnonzero(row)
    return held[[0, int(lengths[held].argmin())]] if len(held) else held


def spanning_cells(matrix: Numbers) -> Integers:
    """Some columns of the matrix that span them all, every one of them if they are few."""
    if matrix.shape[1] <= LIMITS.cells_solved_at_once:
        return np.arange(matrix.shape[1])
    return _first_cells(_Weighted(matrix, np.ones(len(matrix))))


def _spanning(matrix: _Weighted, chosen: Integers) -> Integers:
    """Further columns that together with the chosen ones span all columns."""
    from scipy.linalg import qr

    k, m = matrix.shape
    added = np.zeros(0, dtype=np.int64)
    while True:
        block = matrix.some(np.union1d(chosen, added).astype(np.int64))
        basis = _eigen(block @ block.T)[1]
        if basis.shape[1] == k:
            return added
        pool, farthest = np.zeros(0, dtype=np.int64), np.zeros(0)
        for first in range(0, m, LIMITS.numbers_at_once // k):
            some = matrix.some(slice(first, first + LIMITS.numbers_at_once // k))
            own = _squares(some)
            outside = _squares(some - basis @ (basis.T @ some)) / np.where(own > 0, own, 1.0)
            places = np.flatnonzero(outside > LIMITS.outside_span)
            pool = np.concatenate([pool, first + places])
            farthest = np.concatenate([farthest, outside[places]])
        if not len(pool):
            return added
        candidates = pool[np.argsort(-farthest)[: 4 * k]]
        some = matrix.some(candidates)
        rest = some - basis @ (basis.T @ some)
        _, triangle, order = qr(rest, mode="economic", pivoting=True)
        size = np.abs(np.diag(triangle))
        grown = np.union1d(added, candidates[order[: int((size > size[0] * 1e-6).sum())]])
        if len(grown) == len(added):  # what is outside is a small query, lost beside large ones
            return added
        added = grown


def _squared_lengths(mixing: Array, matrix: _Weighted) -> Array:
    """The squared length of every column of ``mixing @ matrix``, to 6 digits for small integers.

    They decide which cells join and when to stop; what is measured is measured again, exactly.
    """
    k, m = matrix.shape
    kind = np.float32 if matrix.matrix.dtype == np.int8 else np.float64
    mixed, out = (mixing * matrix.weights).astype(kind), np.zeros(m)
    step = max(1, LIMITS.numbers_at_once // k)
    for first in range(0, m, step):
        some = slice(first, first + step)
        moved = mixed @ matrix.matrix[:, some].astype(kind)
        out[some] = np.einsum("ij,ij->j", moved, moved)
    return out


def _mixing(matrix: Array, v: Array, w: Array) -> Array:
    """``S^-1/2 P' W^1/2`` from ``W^1/2 F D^1/2 = P S Q'``."""
    b = matrix * np.sqrt(v) * np.sqrt(w)[:, None]
    k, m = matrix.shape
    values, vectors = _eigen(b @ b.T if k <= m else b.T @ b)
    is_plain = len(values) == min(k, m) and values[0] > LIMITS.eigenvalue_ratio_minimum * values[-1]
    if is_plain or k * k * m > LIMITS.singular_multiplications:  # several times quicker
        left = vectors if k <= m else (b @ vectors) / np.sqrt(values)
        singular = np.sqrt(values)
    else:
        left, singular, _ = np.linalg.svd(b, full_matrices=False)
        is_positive = singular > singular[0] * max(matrix.shape) * SINGULAR_ROUNDING
        left, singular = left[:, is_positive], singular[is_positive]
    return np.asarray((left / np.sqrt(singular)).T * np.sqrt(w), dtype=np.float64)


def root_diagonal(matrix: Array) -> Callable[[Array], Array]:
    """``v -> diag((D^1/2 F'F D^1/2)^1/2)``, in the smaller of query space and cell space."""
    k, m = matrix.shape
    gram = matrix.T @ matrix if m <= k else np.zeros((0, 0))

    def evaluate(v: Array) -> Array:
        root = np.sqrt(v)
        if m <= k:
            values, vectors = _eigen(gram * np.outer(root, root))
            return np.asarray((vectors**2) @ np.sqrt(values), dtype=np.float64)
        spend(2.0 * k * k * m)
        scaled = matrix * root
        values, vectors = _eigen(scaled @ scaled.T)
        return _squares((vectors * values**-0.25).T @ scaled)

    return evaluate


def root_diagonals(matrix: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """``(v, w) -> `` the diagonals of (B'B)^1/2 and (B B')^1/2, B = W^1/2 F D^1/2."""
    k, m = matrix.shape

    def evaluate(v: Array, w: Array) -> tuple[Array, Array]:
        spend(2.0 * min(k, m) ** 2 * max(k, m))
        b = matrix * np.sqrt(v) * np.sqrt(w)[:, None]
        if m <= k:
            b = b.T
        values, vectors = _eigen(b @ b.T)
        if len(values) < len(b) <= LIMITS.singular_side:
            # Weights of cells and queries can vanish together, and what they describe must not: the
            # square of a small singular value is lost in rounding, the value itself is not.
            spend(2.0 * EIGEN * min(k, m) ** 2 * max(k, m))
            vectors, singular, _ = np.linalg.svd(b, full_matrices=False)
            is_positive = singular > singular[0] * max(b.shape) * SINGULAR_ROUNDING
            values, vectors = singular[is_positive] ** 2, vectors[:, is_positive]
        own = np.asarray((vectors**2) @ np.sqrt(values), dtype=np.float64)
        other = _squares((vectors * values**-0.25).T @ b)
        return (own, other) if m <= k else (other, own)

    return evaluate


def _squares(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", rows, rows), dtype=np.float64)


def _eigen(gram: Array) -> tuple[Array, Array]:
    """The eigenvalues that are not zero up to rounding: a lower bound must not count those."""
    spend(EIGEN * float(len(gram)) ** 3)
    values, vectors = np.linalg.eigh(gram)
    is_positive = values > values[-1] * len(values) * EIGEN_ROUNDING
    return values[is_positive], vectors[:, is_positive]
