# SPDX-License-Identifier: Apache-2.0
"""What a session measures when it is opened, and every question that follows from it.

A scope is a workload: what the questions will be about. It is planned like a release, debited and
drawn once, ``y = M h + z``; from then on every linear query ``q = c F`` of the scope's queries F is
answered by ``c R y``, with the exact law of ``c R z``: free, any number of times. R is the plan's
reconstruction, and ``(c R)' = R' c'`` is followed back to what was measured (`adjoint`), so
that what answers have in common is counted once. Along an attribute of which all cells are told
apart (a table, running totals, ranges) any condition lies in the span.

`conditions` is the workload behind "any condition on up to k attributes": running totals of long
attributes that have an order, for these make all their ranges sharp, and cells of the others, with
every combination.

Post-processing of one measurement; docs/proofs/online.md, Theorem 6. What intervals hold when
questions are chosen by earlier answers: Theorem 7 there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations, islice
from math import inf, log, pi, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.errors import LedgerError, PlanError, TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import CombinationError, Forecast
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.object_file import stored_forecast
from sfumato.release.pooled import PooledMatrix
from sfumato.run.linear import RELEASE_REQUEST
from sfumato.session.histogram import NoisyTable
from sfumato.session.session_limits import LIMITS
from sfumato.text import listing, shown
from sfumato.types import Array, Integers
from sfumato.workload.build import product
from sfumato.workload.queries import QuerySet
from sfumato.workload.question import Question, questions_of
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.session.epochs import SessionLedger
    from sfumato.session.session_plan import SessionParameters

__all__ = [
    "Enclosure",
    "KnownNumber",
    "LedgerReleases",
    "Scope",
    "ScopeMeasured",
    "conditions",
    "enclosure_of",
    "scope_workload",
    "span_weights",
    "tells_of",
]


class HasError(Protocol):
    """A number, or its law."""

    @property
    def standard_error(self) -> float:
        """The standard deviation."""
        ...


Scope = Workload | int
"""What a session may be asked about: a workload, or conditions on up to so many attributes."""


def conditions(domain: Domain, ways: int) -> Workload:
    """The workload whose span holds every condition on up to ``ways`` attributes.

    Args:
        domain: What a record may look like.
        ways: How many attributes a condition is on at most.

    Returns:
        A product for each set of so many attributes: running totals of long ones that have an
        order, cells of others.
    """
    names = domain.names
    if isinstance(ways, bool) or not isinstance(ways, int) or not 1 <= ways <= len(names):
        raise PlanError(
            f"a scope is a workload or a number of attributes from 1 to {len(names)}, "
            f"got {shown(ways)}"
        )
    sets = list(combinations(names, ways))
    cells = sum(domain.cells(chosen) for chosen in sets)
    if cells > LIMITS.scope_cells:
        raise TooLarge(
            f"conditions on {ways} of {len(names)} attributes have {cells:,} cells, a scope has at "
            f"most {LIMITS.scope_cells:,}; take fewer attributes at a time, or give a workload "
            "of those that matter"
        )
    parts = [
        product(
            domain,
            {
                n: "prefix"
                if domain[n].is_ordered and domain[n].size > LIMITS.scope_short_cells
                else "identity"
                for n in chosen
            },
        )
        for chosen in sets
    ]
    return Workload(domain, tuple(term for part in parts for term in part.terms))


def scope_workload(domain: Domain, scope: object) -> Workload:
    """The workload of a scope as somebody gave it.

    Args:
        domain: That of the session.
        scope: A workload over it, or a number of attributes.

    Returns:
        The workload.

    Raises:
        PlanError: It is neither.
        WorkloadError: It is about another domain, or about values inside of bins.
    """
    if not isinstance(scope, Workload):
        return conditions(domain, scope)  # type: ignore[arg-type]
    if scope.domain != domain:
        raise WorkloadError(
            "the scope is about another domain than the session, or about values inside of bins, "
            "which questions are not asked of"
        )
    return Workload(domain, scope.terms)


Joint = Callable[[float], float]
"""Half of the interval that holds for all questions at once, but with a chance to miss."""


def nowhere_joint(_miss: float) -> float:
    """That of a number for which none is known."""
    return inf


@dataclass(frozen=True, eq=False)
class KnownNumber:
    """An unbiased estimate of one number, with the law of its noise.

    Attributes:
        value: The estimate, before it is cut to what is possible.
        law: The law of its error.
        level: The probability with which intervals hold where nobody says another one.
        joint: How far the estimate is off at most, but with a chance to miss that is the same event
            for all numbers of the session; infinite where that is not known.
    """

    value: float
    law: CombinationError
    level: float
    joint: Joint = nowhere_joint
    _halves: dict[float, float] = field(default_factory=dict, init=False)

    @property
    def standard_error(self) -> float:
        """The standard deviation of the estimate."""
        return self.law.standard_error

    def half_width(self, level: float) -> float:
        """Half of the interval for a question that does not depend on the noise."""
        if level not in self._halves:
            self._halves[level] = self.law.half_width(level)
        return self._halves[level]

    @property
    def joint_half_width(self) -> float:
        """Half of the interval that holds for all questions at once, however they were chosen."""
        return self.joint(1 - self.level)


class ScopeMeasured:
    """The measurement of a scope: what it tells of a question, or that it does not.

    Privacy: a function of the measurement and of public numbers (docs/proofs/online.md, Theorem 6).
    Neighbours: those of the plan.

    Args:
        forecast: That of the plan that measured it.
        measured: The noisy values.
        level: The probability with which joint intervals of all sources hold together.
        rank: Which source of the session it is, from 1: the scope, then releases as they came.
    """

    def __init__(self, forecast: Forecast, measured: Measured, level: float, rank: int = 1) -> None:
        self.forecast, self.measured, self.level = forecast, measured, level
        self._values = [m.values for m in measured.measurements]
        self._numbers: OrderedDict[str, KnownNumber | None] = OrderedDict()
        # A part of the chance for each source, however many there will be: sum of 6/(pi i)^2 is 1.
        self._share = 6 / (pi * rank) ** 2

    def is_about(self, names: Sequence[str]) -> bool:
        """Whether anything was measured about some attributes together."""
        return any(set(names) <= set(term.attributes) for _, term in self._terms)

    def holds(self, question: Question) -> bool:
        """Whether a question is a linear combination of the scope's queries."""
        return self.number(question) is not None

    def number(self, question: Question) -> KnownNumber | None:
        """The estimate of a question; None if it is outside of the span."""
        key = question.key
        if key not in self._numbers:
            if len(self._numbers) >= LIMITS.scope_answers_in_memory:
                self._numbers.popitem(last=False)
            self._numbers[key] = self._number(question)
        return self._numbers[key]

    def _number(self, question: Question) -> KnownNumber | None:
        way = self.way(question)
        return None if way is None else way[0]

    def way(self, question: Question) -> tuple[KnownNumber, Mapping[int, Array]] | None:
        """The estimate of a question, and how much every measured value counts in it."""
        best: tuple[Term, Mapping[int, Array], CombinationError] | None = None
        for term, weights in self._ways(question):
            law = self._law(weights)
            if best is not None and not is_sharper(law, best[2]):
                break  # one reconstruction says the same of a question, whichever group is asked
            best = term, weights, law
        if best is None:
            return None
        term, weights, law = best
        value = sum(float(w @ self._values[b]) for b, w in weights.items())
        error, is_joined = law.standard_error, is_conjunction(question)

        def joint(miss: float) -> float:
            return error * self._joint(term, is_joined, 1 - miss * self._share)

        return KnownNumber(value, law, self.level, joint), weights

    def covariance(self, pulls: Sequence[Mapping[int, Array]]) -> Array:
        """The covariance matrix of estimates that are made from measured values so."""
        out = np.zeros((len(pulls), len(pulls)))
        for b, variance in enumerate(self.forecast.block_variances):
            rows = [i for i, pull in enumerate(pulls) if b in pull]
            if rows:
                own = np.stack([pulls[i][b] for i in rows])
                out[np.ix_(rows, rows)] += variance * (own @ own.T)
        return out

    def moments(self, weights: Array, pulls: Sequence[Mapping[int, Array]]) -> tuple[float, float]:
        """The variance of a combination of estimates, and its squared parts where not normal."""
        joined: dict[int, Array] = {}
        for c, pull in zip(weights.tolist(), pulls, strict=True):
            for b, own in pull.items():
                joined[b] = joined[b] + c * own if b in joined else c * own
        variances = self.forecast.block_variances
        parts = [w**2 * variances[b] for b, w in joined.items()]
        second = sum(float(e.sum()) for e in parts)
        if self.forecast.strategy.noise == "gaussian":
            return second, 0.0
        return second, sum(float((e**2).sum()) for e in parts)

    def _ways(self, question: Question) -> Iterator[tuple[Term, Mapping[int, Array]]]:
        """The groups that tell a question, the smallest first, each with its pull on the values."""
        ways = 0
        for place, term in self._terms:
            if ways >= LIMITS.scope_ways:
                break
            weights = span_weights(term, question)
            if weights is None:
                continue
            try:
                pull = self.forecast.strategy.adjoint(place, weights)
            except TooLarge:
                continue
            ways += 1
            yield term, pull

    @cached_property
    def _terms(self) -> list[tuple[int, Term]]:
        return sorted(
            enumerate(self.forecast.workload.terms), key=lambda one: (one[1].rows, one[0])
        )

    def _law(self, weights: Mapping[int, Array]) -> CombinationError:
        forecast = self.forecast
        variances = forecast.block_variances
        second = sum(variances[b] * float(w @ w) for b, w in weights.items())
        shape = inf
        if forecast.strategy.noise != "gaussian":
            fourth = sum(float(((w**2 * variances[b]) ** 2).sum()) for b, w in weights.items())
            shape = inf if fourth == 0 else second**2 / fourth
        return CombinationError(sqrt(second), shape, 0.0, forecast.tails)

    def _joint(self, term: Term, is_joined: bool, level: float) -> float:
        """Standard errors that all queries of a kind keep together; docs/proofs/online.md, 7."""
        if self.forecast.strategy.noise != "gaussian":
            return inf
        miss = (1 - level) / 2
        scheffe = _chi(term.cells, 1 - miss / len(self._terms))
        return min(scheffe, sqrt(2 * (self._log_joined - log(miss)))) if is_joined else scheffe

    @cached_property
    def _log_joined(self) -> float:
        """The logarithm of how many conjunctions there are, at most."""
        terms = self.forecast.workload.terms
        return _log_sum([sum(term.shape) * log(2) for term in terms])

    def estimates(self, workload: Workload) -> LinearEstimates | None:
        """The estimates of all queries of a workload; None if the span does not hold them all."""
        if workload.domain != self.forecast.workload.domain:
            return None
        lengths = [v.size for v in self._values]
        if workload.queries * sum(lengths) > LIMITS.scope_group_entries:
            return None
        starts = np.concatenate([[0], np.cumsum(lengths)])
        matrices = []
        for term in workload.terms:
            rows = np.zeros((term.rows, int(starts[-1])))
            try:
                questions = questions_of(Workload(workload.domain, (term,)))
            except (TooLarge, WorkloadError):
                return None
            for row, question in zip(rows, questions, strict=True):
                ways = [pull for _, pull in self._ways(question)]
                if not ways:
                    return None
                weights = min(ways, key=lambda pull: self._law(pull).standard_error)
                for b, pull in weights.items():
                    row[starts[b] : starts[b + 1]] = pull
            matrices.append(rows)
        forecast = self.forecast
        strategy = PooledMatrix(
            forecast.strategy.mechanism,
            forecast.strategy.noise,
            workload,
            forecast.strategy.blocks,
            own=tuple(forecast.block_variances),
            matrices=tuple(matrices),
        )
        derived = replace(forecast, workload=workload, strategy=strategy, bound=None)
        unbiased = [strategy.answer(t, self._values) for t in range(len(workload.terms))]
        return LinearEstimates(
            derived, unbiased, self.measured.rows, is_projected=True, measured=self.measured
        )

    def tables(self) -> list[NoisyTable]:
        """Unbiased counts of the cells of every table that is measured, with a typical error."""
        out: list[NoisyTable] = []
        for place, term in self._terms:
            factors = term.as_product()
            if factors is None:
                continue
            inverses = [_right_inverse(q) for _, q in factors.factors]
            if any(
                one is None or not q.separates_cells
                for one, (_, q) in zip(inverses, factors.factors, strict=True)
            ):
                continue
            shape = tuple(q.rows for _, q in factors.factors)
            counts = np.asarray(self.forecast.strategy.answer(place, self._values), np.float64)
            counts = counts.reshape(shape)
            weights = np.ones(())
            for axis, inverse in enumerate(inverses):
                assert inverse is not None  # noqa: S101
                counts = np.moveaxis(np.tensordot(inverse, counts, axes=(1, axis)), 0, axis)
                weights = np.multiply.outer(weights, inverse[len(inverse) // 2])
            try:
                pull = self.forecast.strategy.adjoint(place, weights.reshape(-1))
            except TooLarge:
                continue
            out.append((factors.attributes, counts, self._law(pull).standard_error))
        return out

    def outside(self, question: Question) -> str:
        """Why a question is not in the span, in words."""
        terms = self.forecast.workload.terms
        if any(set(question.attributes) <= set(t.attributes) for t in terms):
            return "outside the scope: it tells records apart that the scope does not"
        names = listing(question.attributes)
        return f"outside the scope: nothing in it is about {names} together"


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Known numbers between which the answer to a question lies, whatever the table.

    Counts of records are not negative, so queries whose coefficients are nowhere smaller have
    answers that are not smaller. docs/proofs/online.md, Theorem 11.

    Attributes:
        above: The answers to queries that are nowhere below the question.
        below: The answer to a query u, and those to queries that are nowhere below ``u - q``: q is
            at least u less any of these. Without any, u is nowhere above the question.
    """

    above: tuple[KnownNumber, ...]
    below: tuple[tuple[KnownNumber, tuple[KnownNumber, ...]], ...]
    _ends: dict[float, tuple[float, float]] = field(default_factory=dict, init=False)

    def ends(self, level: float) -> tuple[float, float]:
        """What holds the answer with probability ``level``: all one-sided bounds at once."""
        if level not in self._ends:
            count = len(self.above) + sum(1 + len(others) for _, others in self.below)
            each = 1 - 2 * (1 - level) / count
            self._ends[level] = self._ends_at(lambda one: one.half_width(each))
        return self._ends[level]

    def safe_ends(self, level: float) -> tuple[float, float]:
        """What does so for all questions together, however they were chosen; may be infinite."""
        return self._ends_at(lambda one: one.joint(1 - level))

    def _ends_at(self, half: Callable[[KnownNumber], float]) -> tuple[float, float]:
        """The sharpest ends, if every number is off by its half of an interval."""
        high = min(one.value + half(one) for one in self.above)
        low = -inf
        for one, others in self.below:
            less = min((other.value + half(other) for other in others), default=0.0)
            low = max(low, one.value - half(one) - less)
        return low, high


def enclosure_of(
    question: Question,
    number_of: Callable[[tuple[str, ...], Integers], KnownNumber | None],
    is_about: Callable[[tuple[str, ...]], bool] = lambda _: True,
) -> Enclosure | None:
    """What is known of a question by queries over fewer of its attributes; None if nothing is.

    Of the largest sets A of its attributes over which something is known: ``u_A``, the maximum of
    its coefficients along the others; and, with such sets B that have the other attributes, the
    maximum of ``u_A - q`` along what is not in B. Which these are depends on queries alone.

    Args:
        question: The question.
        number_of: What is known of coefficients over the classes of some of its attributes.
        is_about: Whether anything can be known over some of its attributes.

    Returns:
        What encloses it.
    """
    names, table = question.attributes, question.table
    whole = range(len(names))

    def along(values: Integers, places: Sequence[int]) -> KnownNumber | None:
        over = tuple([names[i] for i in places])
        if not is_about(over):
            return None
        return number_of(over, values.max(axis=tuple([i for i in whole if i not in places])))

    uppers: dict[tuple[int, ...], KnownNumber] = {}
    for size in range(len(names) - 1, 0, -1):
        for places in islice(combinations(whole, size), LIMITS.enclosures_tried):
            number = along(table, places)
            if number is not None:
                uppers[places] = number
        if uppers:
            break
    if not uppers:
        return None
    below: list[tuple[KnownNumber, tuple[KnownNumber, ...]]] = []
    for places, upper in uppers.items():
        axes = tuple(i for i in whole if i not in places)
        least = table.min(axis=axes)
        number = number_of(tuple(names[i] for i in places), least) if least.any() else None
        if number is not None:
            below.append((number, ()))
        partners = [other for other in uppers if other != places and {*axes} <= {*other}]
        rest = table.max(axis=axes, keepdims=True) - table if partners else table
        others = [number for other in partners if (number := along(rest, other)) is not None]
        if others:
            below.append((upper, tuple(others)))
    return Enclosure(tuple(uppers.values()), tuple(below))


def tells_of(forecast: Forecast, plan: SessionParameters) -> bool:
    """Whether a release is about what a session is about, without a bias.

    Args:
        forecast: That of the release.
        plan: The parameters of the session.

    Returns:
        Whether domain, neighbours and privacy unit are the same.
    """
    mine = (plan.domain, plan.neighbours, plan.unit)
    theirs = (forecast.workload.domain, forecast.neighbours, forecast.unit)
    return mine == theirs and forecast.strategy.records is None


class LedgerReleases:
    """The releases of linear plans that a ledger has stored, as they come.

    Those that earlier versions stored do not say how they are read, and are left out; so are those
    of other domains, neighbours or units, and what sessions have measured.

    Privacy: post-processing of what their own debits paid for.

    Args:
        ledger: That of the session.
        plan: The parameters of the session.
        name: Its name in the ledger.
    """

    def __init__(self, ledger: SessionLedger, plan: SessionParameters, name: str) -> None:
        self._ledger, self._plan, self._own = ledger, plan, f"{name} "
        self._seen = 0
        self._waiting: list[str] = []

    def new(self) -> list[tuple[str, Forecast, Measured]]:
        """Those that were stored since the last call, by key, in the order of their debits."""
        self._seen, keys = self._ledger.keys_after(self._seen, RELEASE_REQUEST)
        self._waiting += [key for key in keys if not key.startswith(self._own)]
        out, waiting = [], []
        for key in self._waiting:
            stored = self._ledger.answer(key)
            if stored is not None:
                out += self._read(key, stored)
                continue
            entry = self._ledger.entry(key)
            if entry is not None and entry.state == "reserved":
                waiting.append(key)
        self._waiting = waiting
        return out

    def _read(self, key: str, stored: bytes) -> list[tuple[str, Forecast, Measured]]:
        try:
            forecast = stored_forecast(stored)
            if forecast is None or not tells_of(forecast, self._plan):
                return []
            return [(key, forecast, Measured.from_bytes(stored, forecast.noise))]
        except LedgerError:  # another kind of answer, or one for `sfumato ledger verify`
            return []


def span_weights(term: Term, question: Question) -> Array | None:
    """The coefficients c with ``c F = q`` of a question over the queries F of a group.

    Args:
        term: The group.
        question: The question.

    Returns:
        One coefficient per query of the group, or None if there are none.
    """
    factors = term.as_product()
    if factors is None:
        return _listed_weights(term, question)
    if not set(question.attributes) <= set(factors.attributes):
        return None
    classes = dict(zip(question.attributes, question.class_of, strict=True))
    wide = tuple(slice(None) if n in classes else None for n in factors.attributes)
    rest = question.table[wide] * 2.0**-question.bits
    for axis, (name, queries) in enumerate(factors.factors):
        along = _along(queries, classes.get(name), rest.shape[axis])
        if along is None:
            return None
        rest = np.moveaxis(np.tensordot(rest, along, axes=(axis, 0)), -1, axis)
    return np.asarray(rest, dtype=np.float64).reshape(-1)


def _along(queries: QuerySet, class_of: Integers | None, count: int) -> Array | None:
    """Coefficients over the queries of one attribute for each class of its cells; None if none."""
    cells = np.zeros(queries.size, dtype=np.int64) if class_of is None else class_of
    classes: Array = (np.arange(count)[:, None] == cells).astype(np.float64)
    if queries.is_identity:
        return classes
    inverse = _right_inverse(queries)
    if inverse is None:
        return None
    weights: Array = classes @ inverse
    back = np.asarray(queries.adjoint(weights.T), dtype=np.float64)
    is_told = float(np.abs(back.T - classes).max()) <= LIMITS.scope_rounding
    return weights if is_told else None


def _listed_weights(term: Term, question: Question) -> Array | None:
    """Of a group that is no product: its queries themselves."""
    row = _rows_by_key(term).get(question.key)
    if row is None:
        return None
    weights = np.zeros(term.rows)
    weights[row] = 1.0
    return weights


@lru_cache(maxsize=64)
def _rows_by_key(term: Term) -> dict[str, int]:
    if term.rows > LIMITS.group_learnt:
        return {}
    try:
        listed = questions_of(Workload(term.domain, (term,)))
    except (TooLarge, WorkloadError):
        return {}
    return {question.key: row for row, question in enumerate(listed)}


@lru_cache(maxsize=256)
def _right_inverse(queries: QuerySet) -> Array | None:
    """P with ``c P Q = c`` for every c in the row space of the queries Q; None if too large."""
    if queries.rows * queries.size > LIMITS.scope_factor_entries:
        return None
    if queries.separates_cells and queries.rows <= LIMITS.scope_factor_rows:
        cells = queries.cells_from(np.eye(queries.rows))
        if cells is not None:
            return np.asarray(cells, dtype=np.float64)
    return np.asarray(np.linalg.pinv(queries.dense()), dtype=np.float64)


def is_conjunction(question: Question) -> bool:
    """Whether a question counts the records of one combination of sets of values."""
    cells = np.count_nonzero(question.table)
    return question.bits == 0 and cells == 1 and question.high == 1


@lru_cache(maxsize=1024)
def _chi(cells: int, level: float) -> float:
    """The quantile of the length of a standard normal vector: |<r, z>| <= |r| |z| for all r."""
    from scipy.stats import chi2

    return sqrt(float(chi2.ppf(level, cells)))


def is_sharper(one: HasError, other: HasError) -> bool:
    """Whether a number has a smaller error than another one, by more than rounding."""
    return one.standard_error < other.standard_error * (1 - LIMITS.error_rounding)


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + log(sum(np.exp(one - most) for one in logs))
