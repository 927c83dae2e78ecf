# SPDX-License-Identifier: Apache-2.0
"""A strategy: what is measured, and how the asked answers follow from it.

In matrix words ``F = R M``: the blocks are the rows of M, ``answer`` applies R, ``variances`` are
the squared row norms of R. Nothing here sees data; the vault applies the blocks to exact counts
and adds the noise, and everything after that is ``answer``.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod, sqrt
from typing import Any, Literal, TypeVar

import numpy as np

from sfumato.domain.values import valued
from sfumato.errors import TooLarge
from sfumato.plan.diameter import l1_diameter, squared_diameter
from sfumato.plan.fingerprint import fingerprint
from sfumato.plan.moves import Moves, pair_moves
from sfumato.privacy.noise_laws import Noise
from sfumato.workload.queries import Array, check_entries, repeated
from sfumato.workload.sensitivity import ColumnNorm, greatest_column_power
from sfumato.workload.terms import Predicates, Term
from sfumato.workload.workload import Workload

__all__ = ["Block", "GaussianStrategy", "Objective", "Strategy", "check_measured"]

MEASURED = 2**27  # values measured in one release: 3 GiB with noise and stored form, 1 GiB stored

T = TypeVar("T")

REMEMBERED = 8  # numbers of a strategy at the last few noise scales
MOST_FOLLOWED = 2**12  # measured values, each taken through the reconstruction once

Objective = Literal["rmse", "max"]


def check_measured(values: int) -> None:
    """Refuse a strategy that measures more than a release can hold."""
    if values > MEASURED:
        raise TooLarge(
            f"{values:,} values would be measured ({8 * values / 2**30:,.1f} GiB), the limit is "
            f"{MEASURED:,}; ask for fewer or coarser queries"
        )


@dataclass(frozen=True, eq=False)
class Block:
    """One group of measured queries; its noise has scale ``unit / share``."""

    term: Term
    share: float


@dataclass(frozen=True, eq=False)
class Strategy(ABC):
    """Measured blocks and the linear reconstruction of a workload from them.

    ``mechanism`` is the name under which a person can ask for it; ``bound`` a lower bound on the
    error of every strategy for the workload, where one was found on the way: on ``weighted_error``
    when ``objective`` is "rmse", on ``weighted_largest`` when it is "max".

    ``replacing`` is a lower bound like ``bound`` for replace-one neighbours, where one was found
    (``replacing.py``): on ``replaced_error`` of every strategy.

    ``records`` is None where all answers are unbiased, which is the rule. A strategy with a bias
    (``biased.py``, ``conjunctions.py``) is made for a public number of records; what it states
    of its bias holds for data sets of at most that many.
    """

    mechanism: str
    noise: Noise
    workload: Workload
    blocks: Sequence[Block]
    bound: float | None = field(default=None, kw_only=True)
    objective: Objective = field(default="rmse", kw_only=True)
    records: int | None = field(default=None, kw_only=True)
    replacing: float | None = field(default=None, kw_only=True)

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

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``, or a bound on it."""
        return float(self.variances(term, block_variances).max())

    @abstractmethod
    def effective_terms(self, term: int) -> Array:
        """``(sum r^2)^2 / sum r^4`` of every answer: how many equal noises it is like.

        A weighted sum of Laplace variables has the kurtosis of a sum of that many equal ones;
        1 means that the answer carries a single draw.
        """

    def bias_bounds(self, term: int) -> Array:
        """``max_j |E_qj|`` of every query of a term: its greatest bias per record."""
        return np.zeros(self.workload.terms[term].rows)

    def squared_bias(self, term: int | None = None) -> float:  # noqa: ARG002
        """``max_j sum_q E_qj^2`` over the queries of a term, or of all terms: per record."""
        return 0.0

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: how much every measured value counts in ``c`` times the answers of a term.

        Blocks that do not count are left out. Kinds of strategies that know no better way follow
        one measured value after the other.
        """
        if sum(self.block_rows) > MOST_FOLLOWED:
            raise TooLarge(
                f"{sum(self.block_rows):,} measured values cannot be followed through {term=} of "
                f"{self.mechanism} one by one; the most are {MOST_FOLLOWED:,}"
            )
        values = [np.zeros(rows) for rows in self.block_rows]
        found = {b: np.zeros(rows) for b, rows in enumerate(self.block_rows)}
        for b, weights in found.items():
            for i in range(len(weights)):
                values[b][i] = 1.0
                weights[i] = coefficients @ self.answer(term, values)
                values[b][i] = 0.0
        return {b: weights for b, weights in found.items() if weights.any()}

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """The covariance matrix of the listed answers of a term (by number): ``R K R'``."""
        rows, count = self.workload.terms[term].rows, len(queries)
        found: dict[int, Array] = {}
        for i, q in enumerate(queries):
            unit = np.zeros(rows)
            unit[q] = 1.0
            for b, weights in self.adjoint(term, unit).items():
                if b not in found:
                    held = count * (weights.size + sum(f.shape[1] for f in found.values()))
                    check_entries(held, f"how {count:,} answers are read from the measurements")
                    found[b] = np.zeros((count, weights.size))
                found[b][i] = sqrt(block_variances[b]) * weights
        return sum((f @ f.T for f in found.values()), np.zeros((count, count)))

    def group_variances(
        self, block_variances: Sequence[float]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """``total_variance`` and ``greatest_variance`` of every term."""
        terms = range(len(self.workload.terms))
        totals = [self.total_variance(t, block_variances) for t in terms]
        return totals, [self.greatest_variance(t, block_variances) for t in terms]

    def remembered(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """What ``compute`` returns, kept under the last few keys: for many budgets in a row."""
        kept = self._remembered
        if key not in kept:
            for old in list(kept)[: len(kept) + 1 - REMEMBERED]:
                kept.pop(old, None)
            kept[key] = compute()
        result: T = kept[key]
        return result

    @cached_property
    def _remembered(self) -> dict[tuple[object, ...], Any]:
        return {}

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
        return tuple(0 if isinstance(t, Predicates) and t.is_wide else t.cells for t in terms)

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

    def column_power(self, p: int, scales: Sequence[float]) -> ColumnNorm:
        """The p-th power of ``||M||_{1 -> p}``, block b counting ``scales[b]`` times."""
        return greatest_column_power([b.term for b in self.blocks], scales, p)

    def column_norm(self, p: int) -> ColumnNorm:
        """The p-th power of ``||M||_{1 -> p}`` with blocks scaled by their shares."""
        return self.column_power(p, [share**p for share in self.shares])

    @cached_property
    def diameters(self) -> tuple[float, ...]:
        """The squared diameter of every block: how far a replaced record moves it."""
        return tuple(squared_diameter(b.term) for b in self.blocks)

    @cached_property
    def l1_diameters(self) -> tuple[float, ...]:
        """The same in L1, which counts for Laplace noise."""
        return tuple(l1_diameter(b.term) for b in self.blocks)

    def moves(self, drops: bool) -> Moves | None:
        """All moves of a replaced record at once, where they are few enough to list."""
        if drops not in self._moves:
            self._moves[drops] = pair_moves([b.term for b in self.blocks], drops)
        return self._moves[drops]

    @cached_property
    def _moves(self) -> dict[bool, Moves | None]:
        return {}

    def _l1_moves(self, drops: bool) -> Moves | None:
        """The same in L1."""
        if drops not in self._moves_in_l1:
            self._moves_in_l1[drops] = pair_moves([b.term for b in self.blocks], drops, p=1)
        return self._moves_in_l1[drops]

    @cached_property
    def _moves_in_l1(self) -> dict[bool, Moves | None]:
        return {}

    def apart(self, scales: Sequence[float], drops: bool) -> float:
        """At least ``max sum_b scales[b] |M_b d|^2`` over replaced records d, rounded up.

        d is ``e_i - e_j``; or also ``e_i`` where ``drops`` says that a record can fall in no cell.
        """
        longest = self.column_power(2, scales).power
        simple = longest * (2 if self.is_nonnegative else 4)
        found = min(simple, sum(d * s for d, s in zip(self.diameters, scales, strict=True)))
        found = max(found, longest) if drops else found
        known = self.moves(drops)
        return found if known is None else min(found, known.greatest(scales))

    def l1_apart(self, scales: Sequence[float], drops: bool) -> float:
        """At least ``max sum_b scales[b] |M_b d|_1`` over replaced records d, rounded up.

        Measured values are whole steps, and ``|k| <= k^2`` for whole k: so the squared distance in
        steps, of all blocks together, is a bound as well. On small domains all moves are listed.
        """
        longest = self.column_power(1, scales).power
        each = sum(d * s for d, s in zip(self.l1_diameters, scales, strict=True))
        found = min(2 * longest, max(each, longest) if drops else each)
        steps = [s * 2.0**bits for s, bits in zip(scales, self.block_bits, strict=True)]
        found = min(found, self.apart(steps, drops))
        known = self._l1_moves(drops)
        return found if known is None else min(found, known.greatest(scales))

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
            totals, _ = self.group_variances(unit.tolist())
            out[b] = float(weights @ np.asarray(totals))
            unit[b] = 0.0
        return out

    @property
    def is_nonnegative(self) -> bool:
        """Whether no measured coefficient is below zero."""
        return all(b.term.is_nonnegative for b in self.blocks)

    @property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->p} / sqrt(k)``: the root mean square error at unit noise.

        p is 2 for Gaussian noise and 1 for Laplace noise, whose unit is a standard deviation of 1.
        """
        return sqrt(sum(self._unit_variances()) * self.squared_norm / self.workload.queries)

    @cached_property
    def squared_norm(self) -> float:
        """``||M||_{1->p}^2`` for the p of the noise, blocks scaled by their shares."""
        gaussian = self.noise == "gaussian"
        return self.column_norm(2).power if gaussian else self.column_norm(1).power ** 2

    def weighted_error(self) -> float:
        """``sum_q w_q^2 |r_q|^2 ||M||_{1->p}^2``: what ``optimum.py`` bounds from below."""
        pairs = zip(self.workload.terms, self._unit_variances(), strict=True)
        return sum(t.weight**2 * v for t, v in pairs) * self.squared_norm

    def weighted_largest(self) -> float:
        """``max_q w_q^2 |r_q|^2 ||M||_{1->p}^2``: what ``largest.py`` bounds from below."""
        _, greatest = self.group_variances([share**-2 for share in self.shares])
        pairs = zip(self.workload.terms, greatest, strict=True)
        return max(t.weight**2 * float(v) for t, v in pairs) * self.squared_norm

    def replaced_error(self, objective: str, drops: bool) -> float:
        """``weighted_error`` or ``weighted_largest`` with the diameter in place of the norm."""
        totals, greatest = self.group_variances([share**-2 for share in self.shares])
        weights = np.array([t.weight**2 for t in self.workload.terms])
        if objective == "max":
            error = float((weights * np.asarray(greatest)).max())
        else:
            error = float(weights @ np.asarray(totals))
        return error * self.replaced_power(drops)

    def replaced_power(self, drops: bool) -> float:
        """How far neighbours are apart for replace-one, blocks scaled by their shares.

        Squared; in L2 for Gaussian noise, in L1 for Laplace noise.
        """
        if self.noise == "laplace":
            return self.l1_apart(self.shares, drops) ** 2 or 4 * self.squared_norm
        return self.apart([share**2 for share in self.shares], drops) or 2 * self.squared_norm

    def bound_for(self, objective: str, neighbours: str = "add-remove") -> float | None:
        """The lower bound of an objective: the largest error is no less than the mean one."""
        bound = self.bound if neighbours == "add-remove" else self.replacing
        if bound is None or objective == self.objective:
            return bound
        return bound / self.workload.queries if objective == "max" else None

    def _unit_variances(self) -> list[float]:
        unit = [share**-2 for share in self.shares]
        return [self.total_variance(t, unit) for t in range(len(self.workload.terms))]

    def digest(self) -> str:
        """SHA-256 of what is measured: a stored answer is read by the strategy that made it."""
        out = hashlib.sha256(fingerprint([b.term for b in self.blocks]))
        out.update("|".join(share.hex() for share in self.shares).encode())
        return out.hexdigest()

    def describe(self) -> list[str]:
        """One line per block, for people."""
        return [f"{b.term.name}: {b.term.rows:,} values, share {b.share:.4g}" for b in self.blocks]


class GaussianStrategy(Strategy):
    """A strategy that exists for Gaussian noise only."""

    def effective_terms(self, term: int) -> Array:
        """Gaussian noise adds up to Gaussian noise: infinitely many."""
        return repeated(np.inf, self.workload.terms[term].rows)
