# SPDX-License-Identifier: Apache-2.0
"""The hull of possible answers: how far it reaches (``support``) and how wide it is.

A record in cell j answers the queries with column ``F e_j``, so n records answer with a point of
``n K`` where ``K = conv {F e_j}``. The support function ``h_K(y) = max_j <y, F e_j>`` is all that
projection and its theory need of K. With G a standard normal vector and U uniform on the unit
sphere of R^k:

    Gaussian width   l*(K) = E h_K(G)
    mean width       M*(K) = E h_K(U) = l*(K) / c_k,   c_k = E |G|

(A. Nikolov, K. Talwar, L. Zhang 2013, "The geometry of differential privacy: the sparse and
approximate cases"; some authors call twice this the mean width). Both are those of one side: the
full width of K along y is ``h_K(y) + h_K(-y)``. They do not change when K is moved, and that of a
product of bodies is the sum of theirs. Which K is meant is said by ``body``:

    "hull"        conv {F e_j}: answers of exactly n records, over n
    "with-zero"   conv {0, F e_j}: answers of at most n records
    "symmetric"   conv {+-F e_j}: histograms with |h|_1 <= 1

Monte Carlo averages ``(h(G) + h(-G)) / 2``, which has the same mean and no first-order noise. It is
Lipschitz with constant L = half the diameter of K, so that the mean of N draws is farther than
``L sqrt(2 ln(2/beta) / N)`` from the width with probability at most beta (V. Sudakov, B. Tsirelson
1974; C. Borell 1975, "The Brunn-Minkowski inequality in Gauss space"): the interval is no
approximation. Closed forms bound it from above where no oracle is exact. ``projected_noise`` is the
same bound for the noise of a planned strategy. docs/mechanisms/widths.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import exp, inf, isfinite, lgamma, log, prod, sqrt
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.random import Draws
from sfumato.study.study_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array, Integers, Names
from sfumato.workload.build import workload_of
from sfumato.workload.queries import joint_classes
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "AgreedTables",
    "Body",
    "Hull",
    "ProjectedNoise",
    "Support",
    "Width",
    "agreed",
    "climbed",
    "closed_form",
    "dimension_bound",
    "gaussian_width",
    "half_diameter",
    "mean_norm",
    "mean_width",
    "principal",
    "projected_noise",
    "student",
    "support",
]


# The support function

Tables = Mapping[Names, Array]


@dataclass(frozen=True, slots=True)
class Support:
    """How far the hull reaches: ``lower`` is attained at ``cell``, no cell exceeds ``upper``.

    ``cell`` has the number of a value for every attribute that a query looks at. As a number it is
    ``upper``, which is never too small.
    """

    lower: float
    upper: float
    cell: Mapping[str, int]

    @property
    def is_exact(self) -> bool:
        """Whether both bounds are one number."""
        return self.lower == self.upper

    def __float__(self) -> float:
        return self.upper


def support(workload: Workload | npt.ArrayLike, direction: Array) -> Support:
    """``max over cells of <direction, column of the cell>``, one number per query as direction.

    Args:
        workload: What is asked, or a matrix with a row per query.
        direction: One number per query.

    Returns:
        The maximum; bounds on it where it cannot be found.

    Raises:
        WorkloadError: The direction does not fit the workload.
        TooLarge: The hull is too large.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> work = sf.prefixes(sf.Domain({"age": 4}), "age")
    >>> float(sf.support(work, np.array([1.0, -2.0, 1.0, 1.0])))
    2.0
    """
    hull = Hull.of(workload_of(workload))
    return hull.support(hull.checked(direction))


@dataclass(frozen=True, eq=False)
class Hull:
    """``conv {F e_j}`` of a workload, as an oracle for its support function.

    ``<y, F e_j>`` is a sum of tables, one per set of attributes that some group of queries reads:
    the adjoint of each group. Its maximum is found by eliminating one attribute after another (U.
    Bertele, F. Brioschi 1972, "Nonserial dynamic programming"): all tables that read the attribute
    are added up and their maximum over it is a table over what is left. This is exact, and builds
    no table of more than ``LIMITS.hull_table_cells`` cells where the groups overlap little,
    whatever the size of the domain. Where they overlap too much there are bounds: from above by
    agreement of the tables (``agreed``), from below by climbing from cell to cell (``climbed``).

    Args:
        workload: Whose columns span it.
    """

    workload: Workload

    @classmethod
    def of(cls, workload: Workload) -> Hull:
        """The hull of a workload, kept for a while; one whose tables cannot be built is refused.

        Args:
            workload: Whose columns span it.

        Returns:
            The hull.

        Raises:
            TooLarge: Its tables cannot be built.
        """
        if not isinstance(workload, Workload):
            raise WorkloadError(
                f"a hull is one of a workload such as sf.marginals(domain, 2), got "
                f"{type(workload).__name__}"
            )
        if workload.queries > LIMITS.direction_queries:
            raise TooLarge(
                f"a direction of {workload.queries:,} queries takes "
                f"{8 * workload.queries / 2**30:,.1f} GiB, the limit is "
                f"{LIMITS.direction_queries:,} queries; ask for fewer"
            )
        hull = _hull_of(workload)
        for term in workload.terms:
            cells = prod(hull.sizes[n] for n in term.attributes)
            if cells > LIMITS.hull_table_cells or not term.has_small_classes:
                raise TooLarge(
                    f"group {term.name!r} tells {cells:,} cells apart, the limit is "
                    f"{LIMITS.hull_table_cells:,}; ask about fewer attributes at once or use wider "
                    "bins"
                )
        return hull

    def checked(self, direction: object) -> Array:
        """The direction as numbers, one for every query.

        Args:
            direction: One number per query.

        Returns:
            The same as an array.

        Raises:
            WorkloadError: They are none, or not as many.
        """
        try:
            y = np.asarray(direction, dtype=np.float64)
        except (TypeError, ValueError):
            raise WorkloadError(f"a direction is made of numbers, got {shown(direction)}") from None
        if y.shape != (self.workload.queries,):
            raise WorkloadError(
                f"a direction has one number for each of the {self.workload.queries:,} queries, "
                f"got an array of shape {y.shape}"
            )
        if not np.isfinite(y).all():
            raise WorkloadError("a number of the direction is not finite")
        return y

    @cached_property
    def class_of(self) -> dict[str, Integers]:
        """For every attribute that is read, the class of each cell; no condition tells it apart."""
        out: dict[str, Integers] = {}
        for name in self.names:
            readers = [t for t in self.workload.terms if name in t.attributes]
            classes = [_classes(t, name) for t in readers]
            merged = [f for f in classes if f is not None]
            is_merged = len(merged) == len(classes)
            out[name] = (
                joint_classes(merged)
                if is_merged
                else np.arange(self.workload.domain[name].size, dtype=np.int64)
            )
        return out

    @cached_property
    def representatives(self) -> dict[str, Integers]:
        """The first cell of every class."""
        return {n: np.unique(of, return_index=True)[1] for n, of in self.class_of.items()}

    @cached_property
    def names(self) -> Names:
        """The attributes that some query reads."""
        return self.workload.domain.in_order(n for t in self.workload.terms for n in t.attributes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many classes each of them has."""
        return {n: len(r) for n, r in self.representatives.items()}

    @property
    def cells(self) -> int:
        """No more different columns than this."""
        return prod(self.sizes.values())

    def tables(self, direction: Array) -> Tables:
        """``F'y`` as one table per set of attributes: a cell's value is the sum of its entries.

        Args:
            direction: One number per query.

        Returns:
            Tables by the names of their attributes.
        """
        out: dict[Names, Array] = {}
        start = 0
        for term in self.workload.terms:
            part = self._table(term, direction[start : start + term.rows])
            start += term.rows
            before = out.get(term.attributes)
            out[term.attributes] = part if before is None else before + part
        return out

    @property
    def is_small(self) -> bool:
        """Whether F itself can be written out."""
        return self.workload.queries * self.cells <= LIMITS.hull_matrix_entries

    @cached_property
    def matrix(self) -> Array:
        """F itself, one column for every combination of classes."""
        if not self.is_small:
            raise TooLarge(
                f"{self.workload.queries:,} queries on {self.cells:,} cells are too many to write "
                f"out, the limit is {LIMITS.hull_matrix_entries:,} coefficients; ask for fewer or "
                "wider bins"
            )
        shape = tuple(self.sizes[n] for n in self.names)
        rows = [
            np.broadcast_to(_spread(self._table(t, unit), t.attributes, self.names), shape).ravel()
            for t in self.workload.terms
            for unit in np.eye(t.rows)
        ]
        return np.array(rows).reshape(self.workload.queries, -1)

    def _table(self, term: Term, y: Array) -> Array:
        picked = [self.representatives[n] for n in term.attributes]
        return term.adjoint_at(picked, y)

    @cached_property
    def order(self) -> Names | None:
        """The attributes in an order of elimination that builds small tables; None if none is."""
        sets = {frozenset(t.attributes) for t in self.workload.terms}
        left, out = set(self.names), []
        while left:
            costs = {v: _joined(sets, v) for v in sorted(left)}
            best = min(costs, key=lambda v: prod(self.sizes[n] for n in costs[v]))
            if prod(self.sizes[n] for n in costs[best]) > LIMITS.hull_table_cells:
                return None
            sets = {s for s in sets if best not in s} | {costs[best] - {best}}
            left.remove(best)
            out.append(best)
        return tuple(out)

    @property
    def is_exact(self) -> bool:
        """Whether the support function is known exactly in every direction."""
        return self.order is not None

    @cached_property
    def effort(self) -> int:
        """Numbers that are added up for one direction."""
        sets = {frozenset(t.attributes) for t in self.workload.terms}
        total = self.workload.queries
        total += sum(prod(self.sizes[n] for n in t.attributes) for t in self.workload.terms)
        for name in self.order or ():
            joined = _joined(sets, name)
            readers = sum(name in s for s in sets)
            total += (prod(self.sizes[n] for n in joined) + LIMITS.additions_per_table) * readers
            sets = {s for s in sets if name not in s} | {joined - {name}}
        return total

    def support(self, direction: Array) -> Support:
        """The support function at a checked direction.

        Args:
            direction: One number per query.

        Returns:
            The maximum, or bounds on it.
        """
        tables = self.tables(direction)
        if self.order is None:
            split = agreed(tables, self.sizes)
            codes = climbed(tables, split, self.names, self.sizes, Draws(self.workload.digest()))
            lower = _value(tables, codes)
            return Support(lower, max(split.upper, lower), self._cell(codes))
        codes, value = _eliminated(tables, self.order, self.sizes)
        return Support(value, value, self._cell(codes))

    def reach(self, direction: Array) -> tuple[Array, Array]:
        """Lower and upper bounds on ``h(y)`` and ``h(-y)``, as two pairs.

        Args:
            direction: One number per query.

        Returns:
            The two lower bounds and the two upper ones.
        """
        if self.order is None:
            both = [self.support(direction), self.support(-direction)]
            return np.array([s.lower for s in both]), np.array([s.upper for s in both])
        tables = self.tables(direction)
        if len(tables) == 1:  # one table gives both ends at once
            (table,) = tables.values()
            ends = np.array([table.max(), -table.min()])
            return ends, ends
        negated = {names: -table for names, table in tables.items()}
        ends = np.array(
            [_maximum_value(each, self.order, self.sizes) for each in (tables, negated)]
        )
        return ends, ends

    def _cell(self, codes: Mapping[str, int]) -> dict[str, int]:
        return {n: int(self.representatives[n][codes[n]]) for n in self.names}


@lru_cache(maxsize=2)
def _hull_of(workload: Workload) -> Hull:
    return Hull(workload)


def _joined(sets: set[frozenset[str]], name: str) -> frozenset[str]:
    """All attributes of the sets that hold this one."""
    return frozenset({name}).union(*(s for s in sets if name in s))


def _classes(term: Term, name: str) -> Integers | None:
    """The classes of cells that conditions do not tell apart; None for other terms."""
    return term.cell_classes(name) if term.as_conditions() else None


def _value(tables: Tables, codes: Mapping[str, int]) -> float:
    return float(sum(table[tuple(codes[n] for n in names)] for names, table in tables.items()))


def _eliminated(
    tables: Tables, order: Names, sizes: Mapping[str, int]
) -> tuple[dict[str, int], float]:
    """A heaviest cell and its value: forwards the maxima, backwards the choices."""
    left = list(tables.items())
    choices: list[tuple[str, Names, Integers]] = []
    for name in order:
        inside = [f for f in left if name in f[0]]
        rest = _rest(inside, name, sizes)
        best, at = _maximum(inside, rest, name, sizes, is_located=True)
        left = [f for f in left if name not in f[0]] + [(rest, best)]
        choices.append((name, rest, at))
    codes: dict[str, int] = {}
    for name, rest, at in reversed(choices):
        codes[name] = int(at[tuple(codes[n] for n in rest)])
    return codes, _value(tables, codes)


def _maximum_value(tables: Tables, order: Names, sizes: Mapping[str, int]) -> float:
    left = list(tables.items())
    for name in order:
        inside = [f for f in left if name in f[0]]
        rest = _rest(inside, name, sizes)
        best, _ = _maximum(inside, rest, name, sizes, is_located=False)
        left = [f for f in left if name not in f[0]] + [(rest, best)]
    return float(sum(float(table) for _, table in left))


def _rest(inside: list[tuple[Names, Array]], name: str, sizes: Mapping[str, int]) -> Names:
    """The other attributes, in the order of the domain."""
    others = {n for names, _ in inside for n in names if n != name}
    return tuple(n for n in sizes if n in others)


def _maximum(
    inside: list[tuple[Names, Array]],
    rest: Names,
    name: str,
    sizes: Mapping[str, int],
    is_located: bool,
) -> tuple[Array, Integers]:
    """``max over one attribute of the sum of the tables``, in chunks of the first other one."""
    names = (*rest, name)
    spread = [_spread(table, has, names) for has, table in inside]
    shape = tuple(sizes[n] for n in names)
    if not rest:
        total = np.zeros(shape)
        for table in spread:
            total += table
        return np.asarray(total.max()), np.asarray(total.argmax())
    best = np.empty(shape[:-1])
    at = np.empty(shape[:-1] if is_located else (0,), dtype=np.int64)
    step = max(1, LIMITS.entries_added_at_once // max(1, prod(shape[1:])))
    for start in range(0, shape[0], step):
        part = np.zeros((min(step, shape[0] - start), *shape[1:]))
        for table in spread:
            part += table[start : start + step] if table.shape[0] > 1 else table
        best[start : start + step] = part.max(axis=-1)
        if is_located:
            at[start : start + step] = part.argmax(axis=-1)
    return best, at


def _spread(table: Array, has: Names, names: Names) -> Array:
    """The table with an axis of length 1 for every attribute that it does not read."""
    order = [has.index(n) for n in names if n in has]
    shape = iter(table.transpose(order).shape)
    return table.transpose(order).reshape([next(shape) if n in has else 1 for n in names])


# Bounds on the support function where no joint table can be built


@dataclass(frozen=True, eq=False)
class AgreedTables:
    """Tables with the sum of the given ones, none of them part of another; ``upper`` bounds it."""

    upper: float
    tables: Tables


def agreed(tables: Tables, sizes: Mapping[str, int]) -> AgreedTables:
    """A bound on the maximum of the sum of tables, and the rewritten tables that prove it.

    ``max_x sum_s t_s(x_s) <= sum_s max t_s``, for every way of writing the sum. Tables are
    rewritten by moving functions of one attribute between them until they agree on what each of
    its values is worth (max-sum diffusion: T. Werner 2007, "A linear programming approach to
    max-sum problem: a review"; the bound is the dual of M. Wainwright, T. Jaakkola, A. Willsky
    2005, "MAP estimation via agreement on trees"). Every step keeps the sum and lowers the bound
    or leaves it.
    """
    parts = _absorbed(tables, sizes)
    readers = {n: [s for s in parts if n in s] for n in sizes}
    upper = _bound(parts)
    for _ in range(LIMITS.diffusion_sweeps):
        for name, sets in readers.items():
            if len(sets) > 1:
                _diffuse(parts, name, sets)
        before, upper = upper, min(upper, _bound(parts))
        if before - upper <= LIMITS.diffusion_gain * abs(before):
            break
    # The sum of the moved functions is zero up to rounding: each of its additions errs by less
    # than 2^-52 of the greatest entry.
    reach = sum(float(np.abs(t).max()) for t in parts.values()) + abs(upper)
    return AgreedTables(upper + reach * len(sizes) * LIMITS.diffusion_sweeps * 2.0**-50, parts)


def _bound(parts: Tables) -> float:
    return sum(float(t.max()) for t in parts.values())


def _diffuse(parts: dict[Names, Array], name: str, sets: list[Names]) -> None:
    """Every table gets the same best value for each value of an attribute: their mean."""
    axes = {s: tuple(i for i, n in enumerate(s) if n != name) for s in sets}
    worth = {s: parts[s].max(axis=axes[s]) for s in sets}
    mean = sum(worth.values()) / len(sets)
    for s in sets:
        along = [-1 if n == name else 1 for n in s]
        parts[s] = parts[s] + (mean - worth[s]).reshape(along)


def _absorbed(tables: Tables, sizes: Mapping[str, int]) -> dict[Names, Array]:
    """Copies of the tables, those over part of another's attributes added to the largest such."""
    out: dict[Names, Array] = {}
    for names in sorted(tables, key=len, reverse=True):
        table = tables[names]
        hosts = [s for s in out if set(names) <= set(s)]
        if hosts:
            host = max(hosts, key=lambda s: out[s].size)
            shape = [sizes[n] if n in names else 1 for n in host]
            # Attributes of all tables are in the order of the domain.
            out[host] = out[host] + table.reshape(shape)
        else:
            out[names] = np.array(table, dtype=np.float64)
    return out


def climbed(
    tables: Tables, split: AgreedTables, names: Names, sizes: Mapping[str, int], draws: Draws
) -> dict[str, int]:
    """A cell from which no change of a single attribute goes up, the best of several climbs.

    The first climb starts where the rewritten tables have their maxima, the others are drawn.
    """
    rows = {n: draws.below(sizes[n], LIMITS.climb_starts) for n in names}
    for n in names:
        rows[n][0] = _favourite(split.tables, n, sizes)
    parts = _absorbed(tables, sizes)
    before = _values(parts, rows)
    for _ in range(LIMITS.climb_rounds):
        for name in names:
            rows[name] = _options(parts, rows, name, sizes).argmax(axis=1)
        reached = _values(parts, rows)
        if (reached <= before).all():
            break
        before = reached
    best = int(_values(parts, rows).argmax())
    return {n: int(rows[n][best]) for n in names}


def _favourite(parts: Tables, name: str, sizes: Mapping[str, int]) -> int:
    total = np.zeros(sizes[name])
    for s, table in parts.items():
        if name in s:
            total += table.max(axis=tuple(i for i, n in enumerate(s) if n != name))
    return int(total.argmax())


def _values(parts: Tables, rows: Mapping[str, Integers]) -> Array:
    total = np.zeros(LIMITS.climb_starts)
    for names, table in parts.items():
        total = total + table[tuple(rows[n] for n in names)]
    return total


def _options(
    parts: Tables, rows: Mapping[str, Integers], name: str, sizes: Mapping[str, int]
) -> Array:
    """For every row, what each value of one attribute would be worth, the others staying."""
    total = np.zeros((LIMITS.climb_starts, sizes[name]))
    for names, table in parts.items():
        if name in names:
            moved = np.moveaxis(table, names.index(name), -1)
            total += moved[tuple(rows[n] for n in names if n != name)]
    return total


# Widths

Body = Literal["hull", "with-zero", "symmetric"]


@dataclass(frozen=True, slots=True)
class Width:
    """A width, with an interval that holds it with probability ``level``.

    ``value`` is the mean of the draws, of ``standard_error``. Where only bounds on the support
    function are known it is the mean of the lower ones, and where nothing was drawn it is the bound
    in closed form. As a number it is ``value``; forecasts that must not promise too much use
    ``upper``. ``method`` says where ``upper`` comes from.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    level: float
    draws: int
    method: str

    def __float__(self) -> float:
        return self.value

    def scaled(self, factor: float) -> Width:
        """The width of the body times a factor."""
        numbers = (self.value, self.standard_error, self.lower, self.upper)
        value, error, lower, upper = (factor * x for x in numbers)
        return replace(self, value=value, standard_error=error, lower=lower, upper=upper)


def gaussian_width(
    workload: Workload | npt.ArrayLike,
    body: Body = "hull",
    *,
    draws: int | None = None,
    level: float = 0.95,
) -> Width:
    """``l*(K) = E max over cells of <G, column>`` of a workload; the same on every call.

    Args:
        workload: What is asked, or a matrix with a row per query.
        body: The hull of the columns, ``"hull"``, that of them and zero, ``"with-zero"``, or that
            of them and their negatives, ``"symmetric"``.
        draws: How many draws; None for about a second.
        level: The probability with which the bounds hold over the draws.

    Returns:
        The width with its standard error and its bounds.

    Raises:
        WorkloadError: An argument is wrong.
        TooLarge: The hull is too large.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"age": 2}), 1)
    >>> width = sf.gaussian_width(work)  # E max(g, g') = 1/sqrt(pi)
    >>> abs(float(width) - 0.5642) < 4 * width.standard_error
    True
    """
    workload = workload_of(workload)
    _check(workload, body, draws, level)
    bound, formula = closed_form(workload, body)
    fixed = Width(bound, 0.0, 0.0, bound, level, 0, formula)
    try:
        hull = Hull.of(workload)
    except TooLarge:
        return fixed
    if draws is None:
        draws = _enough(hull)
    if not draws:
        return fixed
    lows, highs = _sampled(hull, body, draws)
    return _estimated(lows, highs, fixed, half_diameter(workload, body), hull.is_exact)


def _enough(hull: Hull) -> int:
    """As many draws as take a second or a few."""
    few, many = LIMITS.width_draws_minimum, LIMITS.width_draws_maximum
    if hull.is_small:
        return min(8 * many, max(many, int(LIMITS.width_additions / hull.matrix.size)))
    return (
        min(many, max(few, int(LIMITS.width_additions / hull.effort)))
        if hull.is_exact
        else LIMITS.width_draws_of_bounds
    )


def mean_width(
    workload: Workload | npt.ArrayLike,
    body: Body = "hull",
    *,
    draws: int | None = None,
    level: float = 0.95,
) -> Width:
    """``M*(K) = E h_K(U)``, U uniform on the unit sphere: the Gaussian width over ``E |G|``.

    Args:
        workload: As in `gaussian_width`.
        body: As in `gaussian_width`.
        draws: As in `gaussian_width`.
        level: As in `gaussian_width`.

    Returns:
        The width with its standard error and its bounds.

    Raises:
        WorkloadError: An argument is wrong.
        TooLarge: The hull is too large.
    """
    workload = workload_of(workload)
    width = gaussian_width(workload, body, draws=draws, level=level)
    return width.scaled(1 / mean_norm(workload.queries))


def mean_norm(k: int) -> float:
    """``c_k = E |G|`` in k dimensions; between ``k / sqrt(k + 1)`` and ``sqrt(k)``.

    Args:
        k: The dimension.

    Returns:
        The mean norm of a normal vector.

    >>> import sfumato as sf
    >>> round(sf.study.mean_norm(1), 6), round(sf.study.mean_norm(2), 6)  # sqrt(2/pi), sqrt(pi/2)
    (0.797885, 1.253314)
    """
    if k > 10**6:  # lgamma of neighbours would cancel; the series errs by less than 1/k^4
        return sqrt(k) * (1 - 1 / (4 * k) + 1 / (32 * k**2))
    return sqrt(2) * exp(lgamma((k + 1) / 2) - lgamma(k / 2))


def closed_form(workload: Workload, body: Body = "hull") -> tuple[float, str]:
    """The least of the bounds that need no draws, and its formula.

    For M columns of norm at most R in d dimensions: ``sqrt(2 ln M) R`` (the notes' proof of their
    Theorem 4), ``c_d R``, and the sum over groups of the same, as ``h_K <= sum h_{K_t}``.
    """
    whole = _of_terms(workload, workload.terms, body)
    if len(workload.terms) == 1:
        return whole
    apart = sum(_of_terms(workload, (t,), body)[0] for t in workload.terms)
    return min(whole, (apart, f"{whole[1]}, group by group"))


def _of_terms(workload: Workload, terms: tuple[Term, ...], body: Body) -> tuple[float, str]:
    part = workload if terms == workload.terms else Workload(workload.domain, terms)
    radius = sqrt(part.column_norm(2).power)
    columns = workload.domain.cells(n for t in terms for n in t.attributes)
    points = {"hull": columns, "with-zero": columns + 1, "symmetric": 2 * columns}[body]
    dimension = dimension_bound(part, body)
    counted = (sqrt(2 * log(points)) * radius, "sqrt(2 ln M) R")
    if dimension == 0:
        return 0.0, "a single point"
    return min(counted, (mean_norm(dimension) * radius, "c_d R"))


def dimension_bound(workload: Workload, body: Body = "hull") -> int:
    """No less than the dimension of K: the number of queries, or of what their tables can say.

    A table over a set of attributes is a sum of interactions, one per subset, of
    ``prod (size - 1)`` dimensions each; the one of the empty subset is the number of records, which
    is the same all over the hull.
    """
    sets = {frozenset(t.attributes) for t in workload.terms}
    k = workload.queries
    if sum(2 ** len(s) for s in sets) > LIMITS.interactions_listed:
        return k
    below = {sub for s in sets for sub in _subsets(tuple(s))}
    sizes = {n: workload.domain[n].size for s in sets for n in s}
    interactions = sum(prod(sizes[n] - 1 for n in sub) for sub in below)
    return min(k, interactions - (body == "hull"))


def _subsets(names: tuple[str, ...]) -> list[frozenset[str]]:
    out: list[frozenset[str]] = [frozenset()]
    for name in names:
        out += [s | {name} for s in out]
    return out


def _sampled(hull: Hull, body: Body, draws: int) -> tuple[Array, Array]:
    """``(h(G) + h(-G)) / 2`` from below and from above, one of each per draw."""
    k = hull.workload.queries
    source = Draws(f"width {hull.workload.digest()}")
    lows, highs = np.empty(draws), np.empty(draws)
    at_once = max(1, min(LIMITS.width_draws_at_once, 2**20 // k))
    done = 0
    while done < draws:
        normals = source.normals(k * min(at_once, draws - done)).reshape(-1, k)
        pairs = _written(hull, normals) if hull.is_small else map(hull.reach, normals)
        for low, high in pairs:
            lows[done], highs[done] = _both_ends(low, body), _both_ends(high, body)
            done += 1
    return lows, highs


def _written(hull: Hull, normals: Array) -> Iterator[tuple[Array, Array]]:
    """``reach`` for many directions at once, from the matrix."""
    step = max(1, 2**22 // hull.cells)
    for start in range(0, len(normals), step):
        reached = normals[start : start + step] @ hull.matrix
        ends = np.array([reached.max(axis=1), -reached.min(axis=1)]).T
        yield from zip(ends, ends, strict=True)


def _both_ends(ends: Array, body: Body) -> float:
    up, down = float(ends[0]), float(ends[1])
    if body == "symmetric":
        return max(up, down)
    return (up + down) / 2 if body == "hull" else (max(up, 0.0) + max(down, 0.0)) / 2


def half_diameter(workload: Workload, body: Body = "hull") -> float:
    """No less than half the diameter of K: R, and R / sqrt(2) where no coefficient is negative."""
    radius = sqrt(workload.column_norm(2).power)
    is_nonnegative = all(t.is_nonnegative for t in workload.terms)
    return radius / sqrt(2) if is_nonnegative and body != "symmetric" else radius


def _estimated(lows: Array, highs: Array, fixed: Width, slope: float, is_exact: bool) -> Width:
    count = len(lows)
    beta = 1 - fixed.level
    off = slope * sqrt(2 * log(2 / beta) / count)
    error = float(lows.std(ddof=1)) / sqrt(count) if count > 1 else inf
    value = float(lows.mean())
    # Upper bounds on the support function need not be Lipschitz, their mean is one of few draws:
    # Student's quantile for them.
    reached = value + off
    if not is_exact:
        reached = float(highs.mean()) + student(count, beta) * float(highs.std(ddof=1)) / sqrt(
            count
        )
    method = "Monte Carlo" if is_exact else "Monte Carlo of bounds"
    upper, method = min((reached, method), (fixed.upper, fixed.method))
    lower = max(0.0, value - off)
    return Width(min(value, upper), error, lower, upper, fixed.level, count, method)


def student(count: int, beta: float) -> float:
    """The quantile of Student's law for the mean of ``count`` draws, two-sided."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - beta / 2)) if count > 1 else inf


def _check(workload: object, body: object, draws: object, level: object) -> None:
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"a width is one of a workload such as sf.marginals(domain, 2), got "
            f"{type(workload).__name__}"
        )
    if body not in get_args(Body):
        raise WorkloadError(
            f"body must be one of {', '.join(map(repr, get_args(Body)))}, got {body!r}"
        )
    most = LIMITS.width_draws_allowed
    is_count = isinstance(draws, int) and not isinstance(draws, bool) and 0 <= draws <= most
    if draws is not None and not is_count:
        raise WorkloadError(
            f"draws must be a whole number from 0 (closed forms only) to {most:,}, got {draws!r}"
        )
    if isinstance(level, bool) or not isinstance(level, int | float) or not isfinite(level):
        raise WorkloadError(f"level must be a number between 0 and 1, got {level!r}")
    if not 0 < level < 1:
        raise WorkloadError(f"level must be a number between 0 and 1, got {level!r}")


# Principal coordinates of the columns


def principal(hull: Hull, dimension: int) -> Array | None:
    """``U'(F - mean column)``: a column per cell, a row per principal direction, longest first.

    ``dimension`` is no less than that of the hull: as many random combinations of the centred
    columns, and a few more, span them all (N. Halko, P. Martinsson, J. Tropp 2011, "Finding
    structure with randomness"), so that U comes from a problem of that size. None where that is
    too large.
    """
    centred = hull.matrix - hull.matrix.mean(axis=1, keepdims=True)
    size = min(dimension + 8, *centred.shape)
    if size > LIMITS.principal_dimensions:
        return None
    if size < len(centred):
        mixed = Draws("range").normals(centred.shape[1] * size).reshape(-1, size)
        basis, _ = np.linalg.qr(centred @ mixed)
        centred = basis.T @ centred
    squares, turned = np.linalg.eigh(centred @ centred.T)
    # Squares of singular values are known to about 2^-52 of the greatest: the rest is rounding.
    is_significant = squares[::-1] > max(float(squares[-1]), 0.0) * 2.0**-44
    return np.asarray((turned[:, ::-1].T @ centred)[is_significant], dtype=np.float64)


# Projection after any Gaussian strategy


@dataclass(frozen=True, slots=True)
class ProjectedNoise:
    """The bound on the error of projected answers with the noise Z of a strategy.

    Let ``y = a + Z`` be unbiased answers with normal noise ``Z = R z``, as a factorization gives
    them, and p the point of ``n K`` nearest to y. As in `projection_forecast`,

        E |p - a|^2 <= E <p - a, Z> <= n E h_K(Z)      and      E |p - a|^2 <= E |Z|^2,

    the first because ``E <a, Z> = 0``, the second because projections do not lengthen. ``width``
    is ``E h_K(Z)`` in counts: the mean reach of the hull in the directions in which the answers
    err, which is what a good strategy keeps short. ``rmse`` is the error without projection.
    """

    queries: int
    rmse: float
    width: Width

    def bound_at(self, records: float) -> float:
        """A bound on the root mean square error, in counts, for every data set of n records."""
        return min(self.rmse, sqrt(records * self.width.upper / self.queries))


def projected_noise(
    forecast: Forecast, draws: int = LIMITS.projected_noise_draws, level: float = 0.95
) -> ProjectedNoise:
    """The bound for a planned mechanism with Gaussian noise.

    ``upper`` is the end of Student's interval for the mean of the draws: an approximate one, unlike
    that of ``gaussian_width``.

    Args:
        forecast: A plan with Gaussian noise.
        draws: How often its noise is drawn.
        level: The probability with which ``upper`` holds over the draws.

    Returns:
        The bound on the error after projection.

    Raises:
        PlanError: The noise is not Gaussian.
    """
    if forecast.strategy.noise != "gaussian" or forecast.strategy.records is not None:
        raise PlanError(
            f"widths bound the projection of unbiased answers with Gaussian noise, not of "
            f"{forecast.mechanism!r}"
        )
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise PlanError(f"draws must be a whole number of 2 or more, got {draws!r}")
    hull = Hull.of(forecast.workload)
    source = Draws(f"noise {forecast.workload.digest()} {forecast.mechanism}")
    ends = np.array([_ends(hull, z) for z in drawn_noise(forecast, source, draws)])
    error = ends.std(axis=0, ddof=1) / sqrt(draws)
    value, reached = ends.mean(axis=0)
    upper = float(reached + student(draws, 1 - level) * error[1])
    lower = max(0.0, float(value - student(draws, 1 - level) * error[0]))
    width = Width(float(value), float(error[0]), lower, upper, level, draws, "Monte Carlo")
    return ProjectedNoise(forecast.workload.queries, forecast.rmse, width)


def _ends(hull: Hull, noise: Array) -> tuple[float, float]:
    """Half the reach along the noise and against it, from below and from above."""
    if hull.is_small:
        along = noise @ hull.matrix
        half = float(along.max() - along.min()) / 2
        return half, half
    low, high = hull.reach(noise)
    return float(low.mean()), float(high.mean())
