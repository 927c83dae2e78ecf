# SPDX-License-Identifier: Apache-2.0
"""Wide conjunctions and disjunctions of yes/no attributes, from few low-way characters.

Answering all conjunctions of w of d attributes exactly needs the characters of all sets of up to w
attributes. A polynomial of low degree needs those of few attributes only, at the price of a bias
that is known: per record at most ``max_s |p(s) - [s = w]|`` for one query. Each character is
measured once, exactly, and moves by its share for every record, so that

    ||M||_{1->2}^2 = sum_S s_S^2,     Var = sum_S c_|S|^2 / s_S^2,

and with e_S the summed squared coefficients of the queries the best shares are ``s_S^2 ~
sqrt(e_S)``: total variance ``(sum_S sqrt(e_S))^2``. For all conjunctions of w of d attributes this
is gamma = ``sum_i sqrt(C(d, i) C(w, i)) |c_i|``. Nothing of size 2^d is built.

In this order: a workload is read as tables (``Cube``) and clauses, polynomials are made for one
width (``least_cost``, ``shrunk``), the coefficients that pay for the number of records and the
budget are chosen (``chosen_coefficients``), and ``conjunctions_by_polynomial`` is the strategy.

References: Thaler, Ullman, Vadhan 2012, "Faster algorithms for privately releasing marginals";
Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar 2007, "Privacy, accuracy, and consistency too"
(characters).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from math import acosh, comb, cosh, inf, sqrt
from typing import ClassVar

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Objective
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from sfumato.workload.queries import Matrix
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "ByPolynomial",
    "Clause",
    "Cube",
    "Group",
    "Kind",
    "Read",
    "chebyshev",
    "chebyshev_error",
    "chosen_coefficients",
    "clauses_of",
    "complements",
    "conjunction",
    "conjunctions_by_polynomial",
    "gamma_of",
    "grouped",
    "is_conjunctive",
    "krawtchouk",
    "least_cost",
    "mean_square_error",
    "needed",
    "sets_of",
    "shrunk",
    "sup_error",
]


# Workloads as conjunctions and disjunctions


@dataclass(frozen=True, slots=True)
class Cube:
    """All ``2^w`` conjunctions of these attributes and their negations, in the order of a table."""

    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """The records whose attributes have exactly these codes, or (``is_complement``) all others."""

    attributes: tuple[str, ...]
    codes: tuple[int, ...]
    is_complement: bool


Read = Cube | tuple[Clause, ...]


def clauses_of(term: Term) -> Read:
    """The term as a cube or a list of clauses; PlanError where it is neither.

    A table of yes/no attributes is all conjunctions of them and their negations at once. A
    disjunction is one minus the conjunction of the negated literals, and negations move inwards (De
    Morgan).
    """
    product = term.as_product()
    if product is not None:
        for name, queries in product.factors:
            if not queries.is_identity or queries.size != 2:
                raise PlanError(
                    f"group {term.name!r} asks for {queries.name} of {name!r}; conjunctions are "
                    "tables of yes/no attributes"
                )
        return Cube(term.attributes)
    if conditions := term.as_conditions():
        return tuple(_clause(c, term.domain) for c in conditions)
    raise PlanError(f"group {term.name!r} is given by coefficients, not by conditions")


def is_conjunctive(workload: Workload) -> bool:
    """Whether all queries are conjunctions or disjunctions of yes/no literals."""
    try:
        for term in workload.terms:
            clauses_of(term)
    except PlanError:
        return False
    return True


def _clause(condition: Condition, domain: Domain) -> Clause:
    codes: dict[str, int] = {}
    is_complement = not _collected(condition, domain, codes, is_or=_is_or(condition, False))
    return Clause(tuple(codes), tuple(codes.values()), is_complement)


def _is_or(condition: Condition, is_negated: bool) -> bool:
    if isinstance(condition, Not):
        return _is_or(condition.part, not is_negated)
    return isinstance(condition, And if is_negated else Or)


def _collected(condition: Condition, domain: Domain, codes: dict[str, int], is_or: bool) -> bool:
    """Whether it is a conjunction; its literals, or those of its negation, join ``codes``."""
    waiting = [(condition, is_or)]  # a disjunction is gathered negated
    while waiting:
        part, is_negated = waiting.pop()
        if isinstance(part, Not):
            waiting.append((part.part, not is_negated))
        elif isinstance(part, Or if is_negated else And):
            waiting.extend((p, is_negated) for p in reversed(part.parts))
        elif isinstance(part, In):
            _add(part, is_negated, domain, codes)
        elif not (isinstance(part, Everything) and not is_negated):
            raise PlanError(
                f"{str(condition)[:80]!r} is neither a conjunction nor a disjunction of conditions "
                "on single yes/no attributes"
            )
    return not is_or


def _add(leaf: In, is_negated: bool, domain: Domain, codes: dict[str, int]) -> None:
    cells = set(leaf.codes)
    if domain[leaf.attribute].size != 2 or len(cells) != 1:
        raise PlanError(
            f"{str(leaf)[:80]!r} is not a literal: it needs an attribute of two cells and one of "
            "them"
        )
    code = cells.pop() ^ is_negated
    if codes.setdefault(leaf.attribute, code) != code:
        raise PlanError(f"a conjunction asks for both cells of {leaf.attribute!r}: it is empty")


# Polynomials that stand for a conjunction

SLACK = 1e-12


@lru_cache(maxsize=64)
def _table(width: int) -> Array:
    """``K_i(w - s) / C(w, i)`` at row s, column i: between -1 and 1."""
    out = np.zeros((width + 1, width + 1))
    for s in range(width + 1):
        x = width - s
        for i in range(width + 1):
            sums = sum((-1) ** j * comb(x, j) * comb(s, i - j) for j in range(min(i, x) + 1))
            out[s, i] = sums / comb(width, i)
    out.setflags(write=False)
    return out


def krawtchouk(width: int, coefficients: Array) -> Array:
    """``p(s)`` for s = 0 .. w true literals.

    A conjunction of w literals is true when all of them are: a function of s, the number of true
    ones. So is every symmetric combination of characters of its attributes: if all characters of i
    of them get the coefficient c_i, the sum at s is

        p(s) = sum_i c_i K_i(w - s),    K_i(x) = sum_j (-1)^j C(x, j) C(w - x, i - j),

    with the Krawtchouk polynomials K_i, of degree i. The conjunction itself has ``c_i = 2^-w``.
    With ``c_i = 0`` for i > t only marginals of t attributes are needed, and

    * the Chebyshev polynomial T_t, moved so that it is small on s = 0 .. w - 1 and large at s = w,
      errs by ``1 / (1 + T_t((w + 1) / (w - 1)))`` at most: an error alpha needs t of the order of
      ``sqrt(w) log(1 / alpha)``, not w;
    * for any error alpha a linear program finds the p within alpha of the conjunction at every s
      whose cost ``sum_i k_i |c_i|`` is least; over all degrees at once.

    References: Thaler, Ullman, Vadhan 2012, "Faster algorithms for privately releasing marginals"
    (Chebyshev polynomials for conjunctions); Chandrasekaran, Thaler, Ullman, Wan 2014, "Faster
    private release of marginals on small databases"; Nisan, Szegedy 1994, "On the degree of Boolean
    functions as real polynomials".
    """
    _check(width)
    return np.asarray(_table(width) @ (coefficients * _counts(width)), dtype=np.float64)


def conjunction(width: int) -> Array:
    """The coefficients of the conjunction itself: ``2^-w``."""
    _check(width)
    return np.full(width + 1, 2.0**-width)


def sup_error(width: int, coefficients: Array) -> float:
    """``max_s |p(s) - [s = w]|``: the greatest bias of a query, per record; rounded up."""
    aim = np.zeros(width + 1)
    aim[-1] = 1.0
    scale = 1.0 + float(np.abs(coefficients * _counts(width)).sum())
    return float(np.abs(krawtchouk(width, coefficients) - aim).max()) + SLACK * scale


def mean_square_error(width: int, coefficients: Array) -> float:
    """``2^-w sum_s C(w, s) (p(s) - [s = w])^2 = sum_i C(w, i) (c_i - 2^-w)^2``.

    This is the mean squared bias, per record, over all 2^w conjunctions of the same attributes,
    and the same for every record.
    """
    _check(width)
    return float(_counts(width) @ (coefficients - 2.0**-width) ** 2)


def chebyshev_error(width: int, degree: int) -> float:
    """``1 / (1 + T_t((w + 1) / (w - 1)))``: the error of ``chebyshev``, in closed form.

    Args:
        width: How many attributes a conjunction has.
        degree: The degree of the polynomial.

    Returns:
        The largest difference from the conjunction.
    """
    _check(width)
    if degree >= width:
        return 0.0
    if degree == 0:
        return 0.5
    return 1 / (1 + cosh(degree * acosh((width + 1) / (width - 1))))


def chebyshev(width: int, degree: int) -> Array:
    """Coefficients, zero beyond the degree, of ``T_t(2 s / (w - 1) - 1) / (1 + T_t(...(w)))``.

    Args:
        width: How many attributes a conjunction has.
        degree: The degree of the polynomial.

    Returns:
        One coefficient per degree, in the basis of characters.
    """
    _check(width)
    if degree >= width:
        return conjunction(width)
    out = np.zeros(width + 1)
    if degree == 0:
        out[0] = 0.5
        return out
    from numpy.polynomial import chebyshev as series

    s = np.arange(width + 1)
    basis = np.zeros(degree + 1)
    basis[-1] = 1.0
    values = series.chebval(2 * s / (width - 1) - 1, basis)
    values = values / (1 + cosh(degree * acosh((width + 1) / (width - 1))))
    # Krawtchouk polynomials are orthogonal with weights C(w, s); the degree is exact.
    binomial = _counts(width) * 2.0**-width
    out[: degree + 1] = (_table(width).T @ (binomial * values))[: degree + 1]
    return out


def least_cost(width: int, costs: Array, error: float) -> Array | None:
    """Coefficients with ``|p(s) - [s = w]| <= error`` at every s and least ``sum_i k_i |c_i|``.

    Characters with infinite cost are not used; None where the error cannot be reached without.

    Args:
        width: How many attributes a conjunction has.
        costs: One number per degree.
        error: The largest difference that is allowed.

    Returns:
        One coefficient per degree, or None.
    """
    from scipy.optimize import linprog

    _check(width)
    used = np.flatnonzero(np.isfinite(costs))
    if error >= 1:
        return np.zeros(width + 1)
    table = _table(width)[:, used]
    per_unit = costs[used] / _counts(width)[used]
    scale = float(per_unit.max())
    aim = np.zeros(width + 1)
    aim[-1] = 1.0
    both = np.hstack([table, -table])  # positive and negative parts
    solution = linprog(
        np.concatenate([per_unit, per_unit]) / scale,
        A_ub=np.vstack([both, -both]),
        b_ub=np.concatenate([aim + error, error - aim]),
        bounds=(0, None),
        method="highs",
    )
    if solution.x is None:
        return None
    out = np.zeros(width + 1)
    out[used] = (solution.x[: len(used)] - solution.x[len(used) :]) / _counts(width)[used]
    return out


def shrunk(width: int, costs: Array, tau: float) -> Array:
    """``min sum_i C(w, i) (c_i - 2^-w)^2 + tau (sum_i k_i |c_i|)^2``, in closed form.

    ``c_i = max(0, 2^-w - z k_i / C(w, i))``, where z = tau sum_i k_i c_i is found by bisection.
    """
    _check(width)
    exact, per_unit = 2.0**-width, costs / _counts(width)
    finite = np.isfinite(costs)

    def at(z: float) -> Array:
        return np.where(finite, np.maximum(0.0, exact - z * np.where(finite, per_unit, 0.0)), 0.0)

    low, high = 0.0, tau * float((costs[finite] * exact).sum())
    for _ in range(200):
        z = (low + high) / 2
        if tau * float((np.where(finite, costs, 0.0) * at(z)).sum()) > z:
            low = z
        else:
            high = z
    return at(high)


def gamma_of(attributes: int, width: int, coefficients: Array) -> float:
    """``sum_i sqrt(C(d, i) C(w, i)) |c_i|``: gamma for all conjunctions of w of d attributes.

    Every character of i attributes is measured with the share that is best for its summed squared
    coefficients; ``C(d, i) C(d - i, w - i) = C(d, w) C(w, i)`` does the rest.

    Args:
        attributes: How many attributes there are.
        width: How many of them a conjunction has.
        coefficients: One per degree, in the basis of characters.

    Returns:
        Gamma.
    """
    _check(width)
    sizes = [sqrt(comb(attributes, i) * comb(width, i)) for i in range(width + 1)]
    return float(np.array(sizes) @ np.abs(coefficients))


def _counts(width: int) -> Array:
    return np.array([comb(width, i) for i in range(width + 1)], dtype=np.float64)


def _check(width: int) -> None:
    if not 0 <= width <= LIMITS.conjunction_literals:
        raise PlanError(
            f"a conjunction of {width} literals; polynomials are made for at most "
            f"{LIMITS.conjunction_literals}"
        )


# Which characters are measured, and with which coefficients


Kind = tuple[int, bool]  # literals, and whether all negations are asked


@dataclass(eq=False)
class Group:
    """The queries of one width and kind: whose characters, and how much each counts."""

    kind: Kind
    sets: list[tuple[str, ...]]
    weights: list[float]  # squared, times the number of queries

    def __post_init__(self) -> None:
        self.masks: list[Integers] = []
        self.sizes: list[Array] = []
        self.costs = np.full(self.kind[0] + 1, inf)

    @cached_property
    def frontier(self) -> tuple[Array, list[Array]]:
        """Sup errors, and for each the coefficients of least cost."""
        return _frontier(self.kind[0], self.costs)

    @property
    def names(self) -> set[str]:
        """The attributes of the queries."""
        return {n for s in self.sets for n in s}

    def count(self, bit: dict[str, int]) -> None:
        """Count how much every character weighs, level by level while they are few enough."""
        width = self.kind[0]
        bits = np.array([[bit[n] for n in s] for s in self.sets], dtype=np.int64)
        bits = bits.reshape(len(self.sets), width)
        left = LIMITS.conjunction_characters
        for level in range(width + 1):
            if len(self.sets) * comb(width, level) > LIMITS.conjunction_lookups:
                break
            members = bits[:, sets_of(width, level)].sum(axis=2, dtype=np.int64)
            masks, where = np.unique(members, return_inverse=True)
            left -= len(masks)
            if left < 0:
                break
            each = np.repeat(np.array(self.weights), members.shape[1])
            size = np.bincount(where.reshape(-1), weights=each, minlength=len(masks))
            self.masks.append(masks)
            self.sizes.append(np.asarray(size, dtype=np.float64))
            self.costs[level] = float(np.sqrt(size).sum())


def grouped(workload: Workload, read: Sequence[Read]) -> dict[Kind, Group]:
    """The queries by width and kind."""
    groups: dict[Kind, Group] = {}
    for term, reading in zip(workload.terms, read, strict=True):
        listed = [reading] if isinstance(reading, Cube) else reading
        for each in listed:
            width, is_cube = len(each.attributes), isinstance(each, Cube)
            if width > LIMITS.conjunction_literals:
                raise TooLarge(
                    f"group {term.name!r} has a conjunction of {width} literals; the most are "
                    f"{LIMITS.conjunction_literals}"
                )
            group = groups.setdefault((width, is_cube), Group((width, is_cube), [], []))
            group.sets.append(each.attributes)
            group.weights.append(term.weight**2 * (2**width if is_cube else 1))
    return groups


def complements(workload: Workload, read: Sequence[Read]) -> float:
    """The weight of all disjunctions: each is the total minus a conjunction."""
    out = 0.0
    for term, reading in zip(workload.terms, read, strict=True):
        if not isinstance(reading, Cube):
            out += term.weight**2 * sum(c.is_complement for c in reading)
    return out


def chosen_coefficients(
    groups: dict[Kind, Group], tau: float, objective: Objective
) -> dict[Kind, Array]:
    """The coefficients of every kind; the noise of one depends on what all of them measure.

    Queries of one width share their coefficients c_i. If n_S queries of a group read the character
    S, the best shares give it the variance ``(sum_i k_i |c_i|)^2`` with ``k_i = sum_{|S| = i}
    sqrt(n_S)``, so a group has to choose c only:

    * tables (all negations asked), mean error: least ``n^2 mean squared bias + variance``, in
      closed form (``shrunk``); no symmetric polynomial does better, for the bias of a
      table is the same for every record;
    * else: least variance for every sup error e, by linear programs (``least_cost``),
      and the e where ``n^2 e^2 + variance`` is least.

    Sets of attributes are 64-bit masks; levels with too many of them are left out, which is a bias
    like any other.
    """
    lengths = {kind: _length(g, _first(g)) for kind, g in groups.items()}
    chosen: dict[Kind, Array] = {}
    for _ in range(LIMITS.conjunction_rounds if len(groups) > 1 else 1):
        for kind, group in groups.items():
            queries = sum(group.weights)
            # d (L_1 + L_2 + ...)^2 = 2 (L_1 + ...) dL_g: as if g were alone with so much more noise
            more = sum(lengths.values()) / lengths[kind] if lengths[kind] > 0 else 1.0
            noise = tau / queries * more
            if kind[1] and objective == "rmse":
                coefficients = shrunk(kind[0], group.costs, noise)
            else:
                coefficients = _least_sup(group, noise)
            coefficients[np.abs(coefficients) < LIMITS.coefficient_minimum * 2.0 ** -kind[0]] = 0.0
            chosen[kind] = coefficients
            lengths[kind] = _length(group, coefficients)
    return chosen


def _all_coefficients(group: Group) -> Array:
    """Those of the conjunction itself; TooLarge where not all of its characters were counted."""
    if not np.isfinite(group.costs).all():
        raise TooLarge(
            f"conjunctions of {group.kind[0]} attributes have more than "
            f"{LIMITS.conjunction_characters:,} characters; ask for fewer or narrower ones"
        )
    return conjunction(group.kind[0])


def _first(group: Group) -> Array:
    return np.where(np.isfinite(group.costs), conjunction(group.kind[0]), 0.0)


def _length(group: Group, coefficients: Array) -> float:
    used = coefficients != 0
    return float((group.costs[used] * np.abs(coefficients[used])).sum())


def _frontier(width: int, costs: Array) -> tuple[Array, list[Array]]:
    """Sup errors, and for each the coefficients of least cost."""
    errors, polynomials = [], []
    for error in (
        0.0,
        *np.geomspace(LIMITS.conjunction_error_minimum, 0.5, LIMITS.conjunction_errors).tolist(),
        1.0,
    ):
        c = least_cost(width, costs, error)
        if c is not None:
            errors.append(error)
            polynomials.append(c)
    return np.array(errors), polynomials


def _least_sup(group: Group, tau: float) -> Array:
    """``min e^2 + tau (sum_i k_i |c_i|)^2`` over the sup error e, along chords of the frontier.

    Mixtures of two polynomials err and cost at most the mixture, so chords are reached.
    """
    errors, polynomials = group.frontier
    lengths = np.array([_length(group, c) for c in polynomials])
    if len(polynomials) == 1:
        return polynomials[0].copy()
    de, dl = np.diff(errors), np.diff(lengths)
    slopes = de * errors[:-1] + tau * dl * lengths[:-1]
    share = np.clip(-slopes / (de**2 + tau * dl**2), 0.0, 1.0)
    values = (errors[:-1] + share * de) ** 2 + tau * (lengths[:-1] + share * dl) ** 2
    at = int(values.argmin())
    return np.asarray(
        (1 - share[at]) * polynomials[at] + share[at] * polynomials[at + 1], dtype=np.float64
    )


def needed(
    groups: dict[Kind, Group], chosen: dict[Kind, Array], total: float
) -> tuple[Integers, Array]:
    """The characters with a coefficient, and the sum of its squares over the queries.

    ``total`` is how much the number of records counts besides.
    """
    masks: list[Integers] = []
    errors: list[Array] = []
    for kind, group in groups.items():
        for level in np.flatnonzero(chosen[kind]).tolist():
            masks.append(group.masks[level])
            errors.append(group.sizes[level] * chosen[kind][level] ** 2)
    if total > 0:
        masks.append(np.zeros(1, dtype=np.int64))
        errors.append(np.array([total]))
    if not masks:
        raise PlanError(
            "the noise is so large that nothing measured of so few records is better than nothing; "
            "give more budget or ask less"
        )
    distinct, where = np.unique(np.concatenate(masks), return_inverse=True)
    if len(distinct) > LIMITS.conjunction_characters:
        raise TooLarge(
            f"{len(distinct):,} characters are needed, the most are "
            f"{LIMITS.conjunction_characters:,}; ask for conjunctions of fewer attributes"
        )
    summed = np.bincount(where.reshape(-1), weights=np.concatenate(errors))
    return distinct, np.asarray(summed, dtype=np.float64)


@lru_cache(maxsize=256)
def sets_of(width: int, level: int) -> Integers:
    """All sets of ``level`` of ``width`` positions, a row each."""
    listed = list(combinations(range(width), level))
    out = np.array(listed, dtype=np.int64).reshape(len(listed), level)
    out.setflags(write=False)
    return out


MOST_ATTRIBUTES = 62  # a set of them is a 64-bit integer


@dataclass(frozen=True, eq=False)
class ByPolynomial(GaussianStrategy):
    """Block b measures the character of the set ``masks[b]`` of ``names``; masks ascend.

    ``read`` is the workload as cubes and clauses, ``coefficients`` c_i by width and kind.
    """

    _algorithm: ClassVar[str] = "polynomial"

    names: tuple[str, ...]
    masks: Integers
    read: tuple[Read, ...]
    coefficients: dict[Kind, Array]
    _known: dict[int, tuple[Sequence[float], Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """Sums of characters; a cube by one Walsh-Hadamard transform."""
        return self._answered(term, np.array([float(v[0]) for v in values]))

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every term."""
        y = np.array([float(v[0]) for v in values])
        return [self._answered(t, y) for t in range(len(self.read))]

    def _answered(self, term: int, y: Array) -> Array:
        reading = self.read[term]
        if isinstance(reading, Cube):
            return _transformed(self._placed(reading, y))
        parts = (self._expanded(c) for c in reading)
        return np.array([float(c @ y[places]) for places, c in parts])

    def _placed(self, cube: Cube, y: Array) -> Array:
        """``c_|S| y_S`` for all sets of the attributes of a cube, in the order of a table."""
        width = len(cube.attributes)
        out = np.zeros(2**width)
        inside = 1 << np.arange(width - 1, -1, -1)
        for level, c, places in self._levels(cube.attributes, True):
            out[inside[sets_of(width, level)].sum(axis=1)] = c * y[places]
        return out

    def _levels(
        self, attributes: tuple[str, ...], is_cube: bool
    ) -> Iterator[tuple[int, float, Integers]]:
        """For every size of sets that is used: its coefficient, and the blocks of the sets."""
        width = len(attributes)
        bits = np.array([self._bit[n] for n in attributes], dtype=np.int64)
        for level in np.flatnonzero(self.coefficients[width, is_cube]).tolist():
            masks = bits[sets_of(width, level)].sum(axis=1, dtype=np.int64)
            c = float(self.coefficients[width, is_cube][level])
            yield level, c, np.searchsorted(self.masks, masks)

    def _expanded(self, clause: Clause) -> tuple[Integers, Array]:
        """The blocks of a clause and their coefficients."""
        width = len(clause.attributes)
        signs = 1.0 - 2.0 * np.array(clause.codes, dtype=np.float64)
        places, values = [], []
        for level, c, blocks in self._levels(clause.attributes, False):
            places.append(blocks)
            values.append(c * signs[sets_of(width, level)].prod(axis=1))
        at: Integers = np.concatenate([*places, np.zeros(0, dtype=np.int64)])
        out: Array = np.concatenate([*values, np.zeros(0)])
        if clause.is_complement:  # one minus the conjunction; the total is block 0
            out = -out
            if len(at) and at[0] == 0:
                out[0] += 1.0
            else:
                at, out = np.append(at, 0).astype(np.int64), np.append(out, 1.0)
        return at, out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared coefficients times the noise; equal for all queries of a cube."""
        noise, reading = self._vector(block_variances), self.read[term]
        if isinstance(reading, Cube):
            levels = self._levels(reading.attributes, True)
            same = sum(c * c * float(noise[places].sum()) for _, c, places in levels)
            return np.full(2 ** len(reading.attributes), same)
        parts = (self._expanded(c) for c in reading)
        return np.array([float(c**2 @ noise[places]) for places, c in parts])

    def _vector(self, numbers: Sequence[float]) -> Array:
        """The numbers as an array, converted once for all terms."""
        if id(numbers) not in self._known:
            self._known.clear()
            self._known[id(numbers)] = numbers, np.asarray(numbers, dtype=np.float64)
        return self._known[id(numbers)][1]

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``; the transform is its own transpose."""
        out, reading = np.zeros(len(self.masks)), self.read[term]
        if isinstance(reading, Cube):
            width = len(reading.attributes)
            back = _transformed(np.asarray(coefficients, dtype=np.float64).copy())
            inside = 1 << np.arange(width - 1, -1, -1)
            for level, c, places in self._levels(reading.attributes, True):
                out[places] += c * back[inside[sets_of(width, level)].sum(axis=1)]
        else:
            for weight, clause in zip(coefficients, reading, strict=True):
                at, row = self._expanded(clause)
                np.add.at(out, at, weight * row)
        return {int(b): np.array([out[b]]) for b in np.flatnonzero(out)}

    def bias_bounds(self, term: int) -> Array:
        """The sup error of the polynomial of every query."""
        reading = self.read[term]
        if isinstance(reading, Cube):
            width = len(reading.attributes)
            return np.full(2**width, self._sup_errors[width, True])
        return np.array([self._sup_errors[len(c.attributes), False] for c in reading])

    def squared_bias(self, term: int | None = None) -> float:
        """Exact for cubes, on which every record has the same bias; else from the sup errors."""
        if term is None:
            return sum(self.squared_bias(t) for t in range(len(self.read)))
        reading = self.read[term]
        if isinstance(reading, Cube):
            width = len(reading.attributes)
            mean = mean_square_error(width, self.coefficients[width, True])
            return float(2**width) * mean * ROUND_UP
        return float((self.bias_bounds(term) ** 2).sum())

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:  # noqa: ARG002
        """The sum of the scales: all coefficients are 1 or -1."""
        return SensitivityBound(float(np.sum(scales)) * ROUND_UP, is_exact=True)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """4 for every character, which a record turns from 1 to -1, and 0 for the total."""
        if norm != 2:
            return super()._diameters(norm)
        return tuple(0.0 if mask == 0 else 4.0 for mask in self.masks.tolist())

    def describe(self) -> list[str]:
        """The degrees and errors of the polynomials, then the number of characters."""
        out = []
        for (width, is_cube), c in self.coefficients.items():
            degree = int(np.flatnonzero(c).max(initial=0))
            what = "all conjunctions" if is_cube else "conjunctions"
            out.append(
                f"{what} of {width}: degree {degree}, off by at most "
                f"{self._sup_errors[width, is_cube]:.3g} per record"
            )
        return [*out, f"{len(self.masks):,} characters, measured once each"]

    @cached_property
    def _sup_errors(self) -> dict[Kind, float]:
        if self.records is None:  # all coefficients are those of the conjunctions
            return dict.fromkeys(self.coefficients, 0.0)
        return {kind: sup_error(kind[0], c) for kind, c in self.coefficients.items()}

    @cached_property
    def _bit(self) -> dict[str, int]:
        return {name: 1 << i for i, name in enumerate(self.names)}


def conjunctions_by_polynomial(
    workload: Workload, records: int | None, loss: float = 1.0, objective: Objective = "rmse"
) -> ByPolynomial:
    """Conjunctions and disjunctions from the characters that pay for data of ``records`` records.

    Args:
        workload: Conjunctions and disjunctions of yes/no attributes.
        records: At most so many records are in the table; None for answers without bias, from all
            characters of their attributes.
        loss: The mu of the Gaussian noise.
        objective: ``"rmse"`` or ``"max"``.

    Returns:
        The strategy.

    Raises:
        PlanError: A query is no conjunction.
    """
    read = tuple(clauses_of(t) for t in workload.terms)
    groups = grouped(workload, read)
    names = workload.domain.in_order({n for g in groups.values() for n in g.names})
    if len(names) > MOST_ATTRIBUTES:
        raise TooLarge(
            f"conjunctions over {len(names)} attributes; characters are numbered for at most "
            f"{MOST_ATTRIBUTES}: ask about fewer attributes at once"
        )
    bit = {name: 1 << i for i, name in enumerate(names)}
    for group in groups.values():
        group.count(bit)
    if records is None:
        chosen = {kind: _all_coefficients(group) for kind, group in groups.items()}
    else:
        chosen = chosen_coefficients(groups, (loss * records) ** -2.0, objective)
    masks, errors = needed(groups, chosen, complements(workload, read))
    sign = Matrix.of([[1, -1]], title="sign")
    squares = np.sqrt(errors) / float(np.sqrt(errors).sum())
    blocks = []
    for mask, square in zip(masks.tolist(), squares.tolist(), strict=True):
        inside = [n for n in names if mask & bit[n]]
        title = "character of " + (" x ".join(inside) or "nothing: the total")
        measured = Product(workload.domain, title, 1.0, tuple((n, sign) for n in inside))
        blocks.append(Block(measured, float(square**0.5)))
    return ByPolynomial(
        "polynomials",
        "gaussian",
        workload,
        tuple(blocks),
        names,
        masks,
        read,
        chosen,
        objective=objective,
        records=records,
    )


def _transformed(values: Array) -> Array:
    """The Walsh-Hadamard transform: ``sum_S v_S (-1)^|S and b|`` for every b."""
    out = values.reshape(-1)
    half = 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return out
