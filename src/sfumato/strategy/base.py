# SPDX-License-Identifier: Apache-2.0
"""A strategy: two operators, ``F = R M``, and what is proved of them.

M are the queries that are measured (``MeasuredQueries``): blocks of rows, and their sensitivity,
which is how far one record can move them. R is how the answers of the workload follow from the
measured values (``Reconstruction``): ``answer`` applies R, ``adjoint`` its transpose, ``variances``
are its squared row norms. A ``Strategy`` is both, with a lower bound on the error of every strategy
for the workload, and with a bound on its bias. The planner builds strategies and compares them, the
vault applies the blocks to exact counts and adds the noise, and everything after that is
``answer``. Nothing in this room sees data.

Besides: ``fingerprint``, under which stored measurements are found again; ``check_unbiased``, which
tries a strategy on a table; and ``minimum_measured``, the number of values that no unbiased
strategy goes below.

Words that the room shares. A *cell* is a combination of values of attributes, a *column* of M what
one record in a cell adds to the measured values. A *block* is a group of measured queries with one
noise scale ``unit / share``. A *term* is a group of queries of the workload, often a product of
query sets, one for each attribute. A *piece* is a block that belongs to a set of attributes: it
reads deviations along these and totals along all others. Errors are squared, *at unit noise*: the
variance of Gaussian noise 1 times the squared sensitivity.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, prod, sqrt
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from sfumato.domain.domain import Domain, valued
from sfumato.errors import PlanError, TooLarge
from sfumato.strategy.moves import (
    BlockMoves,
    farthest_move,
    l1_diameter,
    pair_moves,
    squared_diameter,
)
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Names, Neighbours, Noise, Objective
from sfumato.workload.queries import QuerySet, check_entries, repeated
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound, greatest_column_power
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "Block",
    "GaussianStrategy",
    "MeasuredQueries",
    "Norm",
    "Reconstruction",
    "Strategy",
    "SumOfProducts",
    "Summed",
    "check_measured",
    "check_rank",
    "check_unbiased",
    "fingerprint",
    "minimum_measured",
]


# Fingerprints of what is measured


def fingerprint(terms: Sequence[Term]) -> bytes:
    """SHA-256 of the terms in order, with every number that defines them.

    Stored answers are found again under it, and read by the strategy that asks: two blocks that
    measure different coefficients must never share one. So nothing is picked out by hand. A term is
    its class and all of its fields, and so is every query set, axis, chain or condition inside it;
    arrays enter with their kind and shape. A kind of field that is not known here is refused.
    """
    hashes: dict[int, bytes] = {}
    out = hashlib.sha256()
    for term in terms:  # the terms are held by the caller, so that no id is used twice
        out.update(_of(term, hashes))
    return out.digest()


def _of(value: object, hashes: dict[int, bytes]) -> bytes:
    """The hash of one value; objects that many terms share are read once."""
    if is_dataclass(value) and not isinstance(value, type):
        if id(value) not in hashes:
            parts = [_of(getattr(value, f.name), hashes) for f in fields(value) if f.init]
            hashes[id(value)] = _hash(f"object {type(value).__qualname__}", *parts)
        return hashes[id(value)]
    if isinstance(value, tuple | list):
        return _hash("list", *(_of(v, hashes) for v in value))
    if isinstance(value, dict):
        pairs = sorted((_of(k, hashes), _of(v, hashes)) for k, v in value.items())
        return _hash("mapping", *(part for pair in pairs for part in pair))
    return _leaf(value, hashes)


def _leaf(value: object, hashes: dict[int, bytes]) -> bytes:
    if isinstance(value, Domain):
        return _hash("domain", repr((value.names, value.shape)).encode())
    if value is None or isinstance(value, bool | int | str):
        kind = "str" if isinstance(value, str) else type(value).__name__
        return _hash(kind, repr(value).encode())
    if isinstance(value, float):
        return _hash("float", value.hex().encode())
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return _hash(f"objects {value.shape}", _of(value.reshape(-1).tolist(), hashes))
        head = f"array {value.dtype.str} {value.shape}"
        return _hash(head, np.ascontiguousarray(value).tobytes())
    return _sparse(value)


def _sparse(value: object) -> bytes:
    from scipy.sparse import csr_array, issparse

    if not issparse(value):
        raise TypeError(f"no fingerprint for a field of type {type(value).__name__}")
    rows = csr_array(value, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    parts = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
    return _hash(f"sparse {rows.shape} {rows.dtype.str}", *(p.tobytes() for p in parts))


def _hash(head: str, *parts: bytes) -> bytes:
    """SHA-256 of a heading and parts; lengths enter, so that no two lists of parts read alike."""
    out = hashlib.sha256(f"{len(head)} {head}".encode())
    for part in parts:
        out.update(len(part).to_bytes(8, "big"))
        out.update(part)
    return out.digest()


T = TypeVar("T")


Norm = Literal[1, 2]


def check_measured(values: int) -> None:
    """Refuse a strategy that measures more than a release can hold."""
    if values > LIMITS.measured_values:
        raise TooLarge(
            f"{values:,} values would be measured ({8 * values / 2**30:,.1f} GiB), the limit is "
            f"{LIMITS.measured_values:,}; ask for fewer or coarser queries"
        )


@dataclass(frozen=True, eq=False)
class Block:
    """One group of measured queries; its noise has scale ``unit / share``."""

    term: Term
    share: float


class MeasuredQueries:
    """M: blocks of queries that are measured, and how far one record moves them.

    ``sensitivity`` is built from what kinds of strategies know better than the general search:
    ``maximum_column``, the greatest ``|M e_i|``, for records that are added or removed, and
    ``block_diameters`` and ``moves``, about ``|M (e_i - e_j)|``, for records that are replaced.
    """

    blocks: Sequence[Block]

    def sensitivity(
        self,
        norm: Norm,
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
        scales: Sequence[float] | None = None,
    ) -> SensitivityBound:
        """At least ``max_d sum_b scales[b] |M_b d|_p^p`` over neighbours, p being the norm.

        One record moves the histogram by ``d = e_i`` where records are added or removed, by
        ``d = e_i - e_j`` where they are replaced. Every rounding goes up.

        Args:
            norm: 1 or 2, for L1 or L2.
            neighbours: Which data sets must not be told apart.
            may_drop_records: A replaced record can fall in no cell, so that ``d = e_i`` as well.
            scales: What each block counts; by default the power ``share^p``.

        Returns:
            The power, and whether it is known to be attained. It is 0 where neighbours move
            nothing: the total of records that are replaced is public.
        """
        if scales is None:
            scales = [share**norm for share in self.shares]
        if neighbours == "add-remove":
            return self.maximum_column(norm, scales)
        return SensitivityBound(self._of_replaced(norm, scales, may_drop_records), is_exact=False)

    def _of_replaced(self, norm: Norm, scales: Sequence[float], may_drop_records: bool) -> float:
        """The minimum of all bounds for replaced records.

        Measured values are whole steps, and ``|k| <= k^2`` for whole k: so the squared L2 distance
        in steps, of all blocks together, is a bound on that in L1.
        """
        longest = self.maximum_column(norm, scales).power
        each = sum(d * s for d, s in zip(self.block_diameters(norm), scales, strict=True))
        bound = min(
            longest * self._doubling(norm), max(each, longest) if may_drop_records else each
        )
        if norm == 1:
            steps = [s * 2.0**bits for s, bits in zip(scales, self.block_bits, strict=True)]
            bound = min(bound, self._of_replaced(2, steps, may_drop_records))
        moves = self.moves(norm, may_drop_records)
        if moves is not None:
            return min(bound, moves.maximum(scales))
        together = self.computed_once(("together", norm), lambda: self._together(norm))
        if together is not None:
            # No block counts more than so many times what it does by its share.
            most = max(s / share**norm for s, share in zip(scales, self.shares, strict=True))
            joint = together * most * ROUND_UP
            bound = min(bound, max(joint, longest) if may_drop_records else joint)
        return bound

    def _together(self, norm: Norm) -> float | None:
        """At least ``sum_b share^p |M_b (e_i - e_j)|_p^p`` of one move for several blocks."""
        terms = [b.term for b in self.blocks]
        shares = [share**norm for share in self.shares]
        return farthest_move(terms, shares, norm) if len(terms) > 1 else None

    def _doubling(self, norm: Norm) -> int:
        """At most this many times the power of one column is that of a difference of two."""
        return 2 if norm == 1 or self.is_nonnegative else 4

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The greatest ``sum_b scales[b] |M_b e_i|_p^p`` of a cell i, p being the norm."""
        return greatest_column_power([b.term for b in self.blocks], scales, norm)

    def block_diameters(self, norm: Norm) -> tuple[float, ...]:
        """At least ``|M_b (e_i - e_j)|_p^p`` of every block by itself, over all cells i, j."""
        return self.computed_once(("diameters", norm), lambda: self._diameters(norm))

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        of_one = squared_diameter if norm == 2 else l1_diameter
        return tuple(of_one(b.term) for b in self.blocks)

    def moves(self, norm: Norm, may_drop_records: bool) -> BlockMoves | None:
        """How far every replaced record moves every block, where they are few enough to list."""
        key = ("moves", norm, may_drop_records)
        return self.computed_once(key, lambda: self._moves(norm, may_drop_records))

    def _moves(self, norm: Norm, may_drop_records: bool) -> BlockMoves | None:
        return pair_moves([b.term for b in self.blocks], may_drop_records, norm)

    def computed_once(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """What ``compute`` returns, computed once under every key."""
        if key not in self._computed:
            self._computed[key] = compute()
        result: T = self._computed[key]
        return result

    @cached_property
    def _computed(self) -> dict[tuple[object, ...], Any]:
        return {}

    @property
    def is_nonnegative(self) -> bool:
        """Whether no measured coefficient is below zero."""
        return all(b.term.is_nonnegative for b in self.blocks)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of every block."""
        return tuple(b.share for b in self.blocks)

    @cached_property
    def block_rows(self) -> tuple[int, ...]:
        """The number of values that every block measures."""
        return tuple(b.term.rows for b in self.blocks)

    @cached_property
    def block_cells(self) -> tuple[int, ...]:
        """The cells of the table that every block reads; 0 where conditions are counted alone."""
        terms = [b.term for b in self.blocks]
        return tuple(0 if t.is_wide else t.cells for t in terms)

    @cached_property
    def block_bits(self) -> tuple[int, ...]:
        """The bits after the point of the coefficients of every block."""
        return tuple(b.term.fraction_bits for b in self.blocks)

    @cached_property
    def block_units(self) -> tuple[int, ...]:
        """The bits after the point of the counts that every block reads: ``Term.unit_bits``."""
        return tuple(b.term.unit_bits for b in self.blocks)

    def block_changes(self, most: int) -> tuple[int, ...]:
        """How many values of every block ``most`` records can change, at most.

        A record lies in as many cells as its values are spread over; a cell counts in as many
        values of a block as its column has entries, each of at least one step.
        """
        out = []
        for block in self.blocks:
            term = block.term
            spread = prod(a.value_count for a in valued(term.domain, term.attributes))
            entries = greatest_column_power([term], [1.0], 1).power * 2.0**term.fraction_bits
            out.append(min(term.rows, most * spread * ceil(min(entries, term.rows) * (1 + 1e-9))))
        return tuple(out)

    @cached_property
    def block_slacks(self) -> tuple[float, ...]:
        """By how much the values of every block may be off: ``Term.slack``."""
        return tuple(b.term.slack for b in self.blocks)

    def digest(self) -> str:
        """SHA-256 of what is measured: a stored answer is read by the strategy that made it."""
        out = hashlib.sha256(fingerprint([b.term for b in self.blocks]))
        out.update("|".join(share.hex() for share in self.shares).encode())
        return out.hexdigest()

    def describe(self) -> list[str]:
        """One line per block, for people."""
        return [f"{b.term.name}: {b.term.rows:,} values, share {b.share:.4g}" for b in self.blocks]


class Reconstruction(ABC):
    """R: how the asked answers follow from the measured values, and the norms of its rows."""

    workload: Workload

    @abstractmethod
    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The answers of one term from the measured values of all blocks: unbiased, as a rule."""

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every term."""
        return [self.answer(t, values) for t in range(len(self.workload.terms))]

    @abstractmethod
    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variance of every answer of a term, from the noise variance of every block."""

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum of ``variances``; kinds for very many queries do not list them."""
        return float(self.variances(term, block_variances).sum())

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``, or a bound on it."""
        return float(self.variances(term, block_variances).max())

    @abstractmethod
    def effective_terms(self, term: int) -> Array:
        """``(sum r^2)^2 / sum r^4`` of every answer: the number of equal noises it is like.

        A weighted sum of Laplace variables has the kurtosis of a sum of that many equal ones;
        1 means that the answer carries a single draw.
        """

    @abstractmethod
    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: how much every measured value counts in ``c`` times the answers of a term.

        Blocks that do not count are left out.
        """

    def readings(self, term: int) -> dict[int, Array]:
        """R of a term by block: a row for each answer, a column for each measured value.

        TooLarge where that is too many numbers to find them answer by answer.
        """
        rows = self.workload.terms[term].rows
        if rows > LIMITS.reading_entries:
            raise TooLarge(f"{rows:,} answers, the limit is {LIMITS.reading_entries:,} numbers")
        unit = np.zeros(rows)
        out: dict[int, Array] = {}
        for q in range(rows):
            unit[q] = 1.0
            for b, weights in self.adjoint(term, unit).items():
                if b not in out:
                    held = sum(part.size for part in out.values()) + rows * weights.size
                    if held > LIMITS.reading_entries:
                        raise TooLarge(
                            f"how {rows:,} answers are read from the measurements takes {held:,} "
                            f"numbers, the limit is {LIMITS.reading_entries:,}"
                        )
                    out[b] = np.zeros((rows, weights.size))
                out[b][q] = weights
            unit[q] = 0.0
        return out

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """The covariance matrix of the listed answers of a term (by number): ``R K R'``."""
        rows, count = self.workload.terms[term].rows, len(queries)
        readings: dict[int, Array] = {}
        for i, q in enumerate(queries):
            unit = np.zeros(rows)
            unit[q] = 1.0
            for b, weights in self.adjoint(term, unit).items():
                if b not in readings:
                    held = count * (weights.size + sum(f.shape[1] for f in readings.values()))
                    check_entries(held, f"how {count:,} answers are read from the measurements")
                    readings[b] = np.zeros((count, weights.size))
                readings[b][i] = sqrt(block_variances[b]) * weights
        return sum((f @ f.T for f in readings.values()), np.zeros((count, count)))

    def total_variances(self, block_variances: Sequence[float]) -> Sequence[float]:
        """``total_variance`` of every term."""
        terms = range(len(self.workload.terms))
        return [self.total_variance(t, block_variances) for t in terms]

    def maximum_variances(self, block_variances: Sequence[float]) -> Sequence[float]:
        """``maximum_variance`` of every term."""
        terms = range(len(self.workload.terms))
        return [self.maximum_variance(t, block_variances) for t in terms]

    def group_variances(
        self, block_variances: Sequence[float]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """``total_variances`` and ``maximum_variances``."""
        return self.total_variances(block_variances), self.maximum_variances(block_variances)


@dataclass(frozen=True, eq=False)
class Strategy(MeasuredQueries, Reconstruction):
    """Measured blocks and the linear reconstruction of a workload from them.

    ``mechanism`` is the name under which a person can ask for it; ``bound`` a lower bound on
    ``weighted_error(objective)`` of every strategy for the workload, where one was found on the
    way, and ``replace_one_bound`` the same for replace-one neighbours.

    ``records`` is None where all answers are unbiased, which is the rule. A strategy with a bias
    (``Biased``, ``ByPolynomial``) is made for a public number of records; what it states
    of its bias holds for data sets of at most that many.
    """

    mechanism: str
    noise: Noise
    workload: Workload
    blocks: Sequence[Block]
    bound: float | None = field(default=None, kw_only=True)
    objective: Objective = field(default="rmse", kw_only=True)
    records: int | None = field(default=None, kw_only=True)
    replace_one_bound: float | None = field(default=None, kw_only=True)
    _algorithm: ClassVar[str] = ""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm that built it, where its mechanism has several; for people."""
        return self._algorithm

    @property
    def norm(self) -> Norm:
        """The norm that counts for the noise: L2 for Gaussian noise, L1 for Laplace noise."""
        return 2 if self.noise == "gaussian" else 1

    @property
    def has_pieces(self) -> bool:
        """Whether it measures pieces whose shares of the budget can be changed (`Marginals`)."""
        return False

    @property
    def in_normal_form(self) -> Strategy:
        """This strategy, or the one that it is a view of: for the queries in their normal form."""
        return self

    @property
    def is_direct(self) -> bool:
        """Whether every answer is a measured value of its own."""
        return False

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: how much every measured value counts in ``c`` times the answers of a term.

        Kinds of strategies that know no better way follow one measured value after the other.
        """
        if sum(self.block_rows) > LIMITS.followed_values:
            raise TooLarge(
                f"{sum(self.block_rows):,} measured values cannot be followed through {term=} of "
                f"{self.mechanism} one by one; the most are {LIMITS.followed_values:,}"
            )
        values = [np.zeros(rows) for rows in self.block_rows]
        by_block = {b: np.zeros(rows) for b, rows in enumerate(self.block_rows)}
        for b, weights in by_block.items():
            for i in range(len(weights)):
                values[b][i] = 1.0
                weights[i] = coefficients @ self.answer(term, values)
                values[b][i] = 0.0
        return {b: weights for b, weights in by_block.items() if weights.any()}

    def asking(self, workload: Workload) -> Self:
        """The same measurements, read for other queries in the groups of this workload."""
        return replace(self, workload=workload, bound=None)

    def summed(self) -> Summed | None:
        """The same without attributes of cells that are asked by running totals; None if none is.

        Kinds of strategies that measure no cells have nothing to sum.
        """
        return None

    def sums_cells(self, term: int) -> bool:  # noqa: ARG002
        """Whether all answers of a group are sums over one estimate of its cells.

        Then other queries that are asked `asking` agree with them.
        """
        return False

    def check_release(self) -> None:
        """Refuse, before anything is debited, what can be forecast but not measured."""
        check_measured(sum(self.block_rows))

    def bias_bounds(self, term: int) -> Array:
        """``max_j |E_qj|`` of every query of a term: its greatest bias per record."""
        return np.zeros(self.workload.terms[term].rows)

    def maximum_error(self, term: int, block_variances: Sequence[float], records: int) -> float:
        """The greatest squared error of an answer: its variance and its squared greatest bias."""
        bias = records * self.bias_bounds(term)
        return float((self.variances(term, block_variances) + bias**2).max())

    def squared_bias(self, term: int | None = None) -> float:  # noqa: ARG002
        """``max_j sum_q E_qj^2`` over the queries of a term, or of all terms: per record."""
        return 0.0

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every block: the weighted error that unit noise on it makes.

        For strategies whose reconstruction does not depend on the shares.
        """
        count = len(self.blocks)
        weights = np.array([t.weight**2 for t in self.workload.terms])
        out = np.zeros(count)
        unit = np.zeros(count)
        for b in range(count):
            unit[b] = 1.0
            out[b] = float(weights @ np.asarray(self.total_variances(unit.tolist())))
            unit[b] = 0.0
        return out

    def remembered(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """What ``compute`` returns, remembered under the last few keys: for budgets in a row."""
        cache = self._remembered
        if key not in cache:
            for old in list(cache)[: len(cache) + 1 - LIMITS.remembered_keys]:
                cache.pop(old, None)
            cache[key] = compute()
        result: T = cache[key]
        return result

    @cached_property
    def _remembered(self) -> dict[tuple[object, ...], Any]:
        return {}

    def noise_sensitivity(
        self,
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
        scales: Sequence[float] | None = None,
    ) -> float:
        """The power of ``sensitivity`` in the norm of the noise.

        Where only public totals are measured neighbours move nothing; noise is added all the same.
        """
        power = self.sensitivity(self.norm, neighbours, may_drop_records, scales).power
        if power > 0:
            return power
        column = self.sensitivity(self.norm, "add-remove", scales=scales).power
        return column * self._doubling(self.norm)

    def squared_sensitivity(
        self, neighbours: Neighbours = "add-remove", may_drop_records: bool = False
    ) -> float:
        """The square of the sensitivity in the norm of the noise, blocks scaled by shares."""
        key = ("squared sensitivity", neighbours, may_drop_records)
        power = self.computed_once(
            key, lambda: self.noise_sensitivity(neighbours, may_drop_records)
        )
        return power if self.norm == 2 else power**2

    @property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->p} / sqrt(k)``: the root mean square error at unit noise.

        p is 2 for Gaussian noise and 1 for Laplace noise, whose unit is a standard deviation of 1.
        """
        return sqrt(
            sum(self._unit_variances()) * self.squared_sensitivity() / self.workload.queries
        )

    def weighted_error(
        self,
        objective: Objective = "rmse",
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
    ) -> float:
        """The squared error at unit noise that ``bound`` is below, by the weights of the terms.

        ``sum_q w_q^2 |r_q|^2`` or, for the objective "max", ``max_q w_q^2 |r_q|^2``, times the
        squared sensitivity.
        """
        terms = self.workload.terms
        if objective == "max":
            greatest = self.maximum_variances([share**-2 for share in self.shares])
            error = max(t.weight**2 * float(v) for t, v in zip(terms, greatest, strict=True))
        else:
            pairs = zip(terms, self._unit_variances(), strict=True)
            error = sum(t.weight**2 * v for t, v in pairs)
        return error * self.squared_sensitivity(neighbours, may_drop_records)

    def bound_for(self, objective: Objective, neighbours: str = "add-remove") -> float | None:
        """The lower bound for an objective; the largest error is no less than the mean one."""
        bound = self.bound if neighbours == "add-remove" else self.replace_one_bound
        if bound is None or objective == self.objective:
            return bound
        return bound / self.workload.queries if objective == "max" else None

    def _unit_variances(self) -> list[float]:
        return list(self.total_variances([share**-2 for share in self.shares]))


class GaussianStrategy(Strategy):
    """A strategy that exists for Gaussian noise only."""

    def effective_terms(self, term: int) -> Array:
        """Infinite for every answer: Gaussian noise adds up to Gaussian noise."""
        return repeated(np.inf, self.workload.terms[term].rows)


class SumOfProducts(GaussianStrategy):
    """Answers that are sums over blocks of products over attributes.

    Along each asked attribute a block reads either a rest, one number per query, or a total, which
    is the same measured value for all queries times a coefficient of each.
    """

    @abstractmethod
    def _unit_totals(self, term: int) -> Iterator[tuple[int, float]]:
        """What unit noise on each block adds to the total variance of a term."""

    @cached_property
    def _all_unit_totals(self) -> tuple[Integers, Integers, Array]:
        """All of `_unit_totals`: terms, blocks and values; they serve every budget."""
        terms, blocks, values = [], [], []
        for t in range(len(self.workload.terms)):
            for b, value in self._unit_totals(t):
                terms.append(t)
                blocks.append(b)
                values.append(value)
        return np.array(terms, dtype=np.int64), np.array(blocks, dtype=np.int64), np.array(values)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum over the blocks, without listing any query."""
        return self.total_variances(block_variances)[term]

    def total_variances(self, block_variances: Sequence[float]) -> Sequence[float]:
        """The same for every term."""
        terms, blocks, values = self._all_unit_totals
        parts = np.asarray(block_variances, dtype=np.float64)[blocks] * values
        sums: list[float] = np.bincount(terms, parts, len(self.workload.terms)).tolist()
        return sums

    def block_errors(self) -> Array:
        """``sum_q w_q^2 |r_q|^2`` of every block, from what it adds to every term."""
        terms, blocks, values = self._all_unit_totals
        weights = np.array([t.weight**2 for t in self.workload.terms])
        out = np.bincount(blocks, weights[terms] * values, len(self.blocks))
        return np.asarray(out, dtype=np.float64)

    def _factors(self, term: int) -> dict[str, QuerySet]:
        """The query sets of a term by attribute; none where the term is no product."""
        product = self.workload.terms[term].as_product()
        return {} if product is None else dict(product.factors)

    @staticmethod
    def _in_order(
        part: Array,
        rests: Mapping[str, int],
        order: Iterable[str],
        totals: Mapping[str, Array],
    ) -> Array:
        """The deviations with axes in the given order, times the totals along the others."""
        names = list(order)
        out = part.reshape([rests.get(n, 1) for n in names])
        for position, name in enumerate(names):
            if name in totals:
                along = [1] * len(names)
                along[position] = len(totals[name])
                out = out * totals[name].reshape(along)
        return out


# Trial of a strategy on a table


@dataclass(frozen=True, eq=False)
class Summed:
    """What is left of a strategy when attributes of measured cells are summed away.

    Args:
        strategy: Without these attributes, in its blocks and in what is asked.
        times: How many values of every block make one of what is left.
        walks: How many of the attributes were asked by running totals, the others by totals only.
    """

    strategy: Strategy
    times: tuple[int, ...]
    walks: int


def check_unbiased(strategy: Strategy) -> None:
    """Refuse a strategy that loses queries; larger ones than can be tried pass.

    Every builder answers without bias by its own argument. Queries whose coefficients or weights
    differ by many powers of ten can be lost in the rounding of floats all the same, and their
    answers would be wrong without a sign of it. So, where a table can be written down, ``R M h = F
    h`` is checked for one h whose counts are all different: a strategy that fails is not offered.
    """
    if len(strategy.workload.terms) + len(strategy.blocks) > LIMITS.trial_terms:
        return  # before any block is built
    terms = [*strategy.workload.terms, *(b.term for b in strategy.blocks)]
    if strategy.records is not None or not _can_be_tried(strategy, terms):
        return
    domain = strategy.workload.domain
    names = domain.in_order(frozenset().union(*(t.attributes for t in terms)))
    if prod(domain[n].size for n in names) > LIMITS.trial_cells:
        return
    table, wanted, allowed = _trial(strategy.workload, names)
    values = [b.term.answer(_table_of(b.term, table, names)) for b in strategy.blocks]
    for t, term in enumerate(strategy.workload.terms):
        if bool((np.abs(strategy.answer(t, values) - wanted[t]) > allowed[t]).any()):
            raise PlanError(
                f"answers of group {term.name!r} are lost in rounding beside much larger queries "
                "or weights; scale the queries and weights alike, or ask for them by themselves"
            )


@lru_cache(maxsize=1)
def _trial(workload: Workload, names: Names) -> tuple[Integers, list[Array], list[Array]]:
    """A table over these attributes, the answers of every term, and how far they may be off.

    The candidates of a plan are tried one after the other on the same table.
    """
    shape = [workload.domain[n].size for n in names]
    table = (1 + np.arange(prod(shape), dtype=np.int64) * 7919 % 10007).reshape(shape)
    total = float(table.sum())
    wanted, allowed = [], []
    for term in workload.terms:
        wanted.append(term.answer(_table_of(term, table, names)))
        low, high = term.coefficient_bounds()
        allowed.append(LIMITS.trial_bias * total * np.maximum(np.abs(low), np.abs(high)))
    return table, wanted, allowed


def _table_of(term: Term, table: Integers, names: Names) -> Integers:
    rest = tuple(i for i, n in enumerate(names) if n not in term.attributes)
    return np.asarray(table.sum(axis=rest, dtype=np.int64))


def _can_be_tried(strategy: Strategy, terms: list[Term]) -> bool:
    if any(t.is_wide for t in terms):
        return False
    return (
        strategy.workload.queries <= LIMITS.trial_values
        and sum(strategy.block_rows) <= LIMITS.trial_values
    )


# The least number of measured values


def check_rank(workload: Workload) -> None:
    """Refuse a workload that needs more measured values than a release can hold."""
    least = minimum_measured(workload, LIMITS.measured_values)
    if least > LIMITS.measured_values:
        raise TooLarge(
            f"{workload.queries:,} queries need at least {least:,} measured values "
            f"({8 * least / 2**30:,.1f} GiB), the limit is {LIMITS.measured_values:,}; ask for "
            "fewer or coarser queries"
        )


def minimum_measured(workload: Workload, enough: int | None = None) -> int:
    """A lower bound on the rank of the queries; counting ends once it is above ``enough``.

    A product has the product of its factors' ranks. Over different sets of attributes S, let P_S
    project onto the functions of S that have mean 0 along each attribute of S. A product over S
    is 0 on P_T unless T is part of S, so in the order of size the products are block triangular,
    with diagonal blocks of rank prod (rank - 1) or more; the ranks of those add up.

    If the queries F are answered as ``R y`` from measured values ``y = M h + z`` without bias, then
    F = R M, so M has at least rank(F) rows. The bound below takes microseconds: what no strategy
    can do is refused before the first one is built.

    >>> import sfumato as sf
    >>> minimum_measured(sf.marginals(sf.Domain({"a": 10, "b": 10, "c": 10}), 2))
    243
    """
    ranks: dict[int, int] = {}
    by_set: dict[tuple[str, ...], int] = {}
    together = largest = 0
    for term in [product for t in workload.terms if (product := t.as_product()) is not None]:
        factor_ranks = [
            ranks.get(id(q)) or ranks.setdefault(id(q), q.rank_bound()) for _, q in term.factors
        ]
        names = term.attributes
        inner = prod(rank - 1 for rank in factor_ranks)
        together += max(inner - by_set.get(names, 0), 0)
        by_set[names] = max(inner, by_set.get(names, 0))
        largest = max(largest, prod(factor_ranks))
        if enough is not None and max(largest, together) > enough:
            break
    return max(largest, together, 1)
