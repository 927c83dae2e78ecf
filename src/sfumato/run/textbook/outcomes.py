# SPDX-License-Identifier: Apache-2.0
"""What the mechanisms of the lecture notes share: their data, their results, the guarded act.

All of them (``linear_mechanisms.py``, ``sparse_vectors.py``, ``choice_mechanisms.py``) have one
shape: what is asked, the data, the budget by name; and return an `Outcome`. `Instance` is where
exact numbers come from, an array or a table; `TextbookRun` is what `run/spine.py` runs. With
``ledger=`` the cost is debited before noise is drawn and the same request gets its stored answer;
without it nothing remembers what was spent: that is the caller's to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, isfinite, ldexp, log2, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.digest import canonical_json
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TableError, WorkloadError
from sfumato.privacy.budget import (
    Budget,
    Guarantee,
    Number,
    check_neighbours,
    exact,
    total_is_public,
)
from sfumato.privacy.cost import Cost, composed_epsilon, mu_squared_of, rho_of
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import SystemWords, WordSource, system_words
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, Runnable, run
from sfumato.strategy.base import Block
from sfumato.text import shown
from sfumato.types import Array, Integers, Neighbours, Progress
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import Exact, count, count_histogram, flat_answers
from sfumato.vault.tables import open_table
from sfumato.workload.build import prefixes, product, ranges
from sfumato.workload.workload import Workload, answer_bits

if TYPE_CHECKING:
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.refine.project import Projected
    from sfumato.vault.tables import Table

__all__ = [
    "Instance",
    "LinearOutcome",
    "NoiseScale",
    "Outcome",
    "ProjectedOutcome",
    "Scores",
    "SeededWords",
    "TextbookRun",
    "budget_of",
    "drawn",
    "exact_numbers",
    "exact_sensitivity",
    "grid_bits",
    "on_grid",
    "scale_of",
]


Answers = TypeVar("Answers")
T = TypeVar("T")

NO_LEDGER = "no ledger: what was spent is yours to remember"
SEEDED = "repeatable noise, for demonstration: it protects nothing"
LAWS: Mapping[str, str] = {"laplace": "Lap", "gaussian": "N", "exponential": "Exp"}


# What every mechanism returns


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The law of some noise in the notes' letters: ``Lap(b)``, or ``N(0, sigma^2)``.

    Args:
        law: ``"Lap"``, ``"N"``, ``"Exp"`` (one-sided) or ``"Gumbel"``.
        scale: b, or sigma.
        step: The grid on which it is exact; 0 where noise is real and never published.
    """

    law: str
    scale: float
    step: float = 0.0

    def __repr__(self) -> str:
        scale = f"{self.scale:.4g}"
        return f"N(0, {scale}^2)" if self.law == "N" else f"{self.law}({scale})"


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Generic[Answers]):
    """What a mechanism of the notes returns: answers, what they cost, and how good they are.

    Args:
        mechanism: Its name in the notes.
        answers: What is published.
        budget: What was asked for.
        cost: What it costs: never more than the budget.
        noise: The law of the noise of every part, in the notes' letters; of randomized response its
            probabilities.
        theorem: The theorem that ``error_bound`` is.
        bound: The bound, as a function of beta.
        neighbours: Which two data sets are hard to tell apart.
        n: The number of records, where it is public.
        note: Who remembers what was spent.
    """

    mechanism: str
    answers: Answers
    budget: Budget
    cost: Cost
    noise: Mapping[str, NoiseScale | float]
    theorem: str
    bound: Callable[[float], float]
    neighbours: Neighbours
    n: int | None = None
    note: str = ""

    @property
    def epsilon(self) -> float:
        """The epsilon that the cost keeps, at `delta`, rounded up."""
        return composed_epsilon([self.cost], self.delta)

    @property
    def delta(self) -> Fraction:
        """The delta of the budget; of a budget in rho or mu, 1e-9."""
        if self.budget.delta is not None:
            return self.budget.delta
        return Fraction(0) if not self.cost.mu_squared else Fraction(1, 10**9)

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated differential privacy that the cost keeps."""
        return float(rho_of(self.cost))

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy that the cost keeps."""
        return sqrt(mu_squared_of(self.cost))

    def error_bound(self, beta: float = 0.05) -> float:
        """The bound of the theorem: it holds with probability ``1 - beta``.

        Args:
            beta: The probability with which it may fail.

        Returns:
            The bound, in the units of the answers.

        Raises:
            PlanError: Beta is no probability.
        """
        if not 0 < beta < 1:
            raise PlanError(f"beta, the probability of a failure, must lie in (0, 1), got {beta!r}")
        return self.bound(beta)

    def __repr__(self) -> str:
        noise = ", ".join(f"{what} {law!r}" for what, law in self.noise.items())
        lines = [
            f"{self.mechanism} at {self.budget.describe()} ({self.neighbours} neighbours)",
            f"  noise    {noise}",
        ]
        within = self.error_bound(self.shown_beta)
        if isfinite(within):
            chance = f"with probability {1 - self.shown_beta:g}"
            lines.append(f"  error    within {within:,.4g} {chance}: {self.theorem}")
        lines.append(f"  answers  {self._shown_answers()}")
        return "\n".join([*lines, f"  note     {self.note}"] if self.note else lines)

    @property
    def shown_beta(self) -> float:
        """The beta for which the bound is shown."""
        return 0.05

    def _shown_answers(self) -> str:
        values = np.asarray(self.answers).reshape(-1)
        first = ", ".join(f"{v:.6g}" for v in values[: LIMITS.answers_shown].tolist())
        return first if values.size <= LIMITS.answers_shown else f"{first}, ... ({values.size:,})"


@dataclass(frozen=True, eq=False, repr=False)
class LinearOutcome(Outcome[Array]):
    """Noisy answers to linear queries, in counts.

    Args:
        mechanism: As in `Outcome`.
        answers: One number per query, in counts.
        budget: As in `Outcome`.
        cost: As in `Outcome`.
        noise: As in `Outcome`.
        theorem: As in `Outcome`.
        bound: As in `Outcome`.
        neighbours: As in `Outcome`.
        n: As in `Outcome`.
        note: As in `Outcome`.
        measured: The noisy values of what was measured: M h + z.
        rmse: The root mean square error over the queries, in counts.
    """

    noise: Mapping[str, NoiseScale]
    measured: Array = field(default_factory=lambda: np.zeros(0))
    rmse: float = 0.0

    @property
    def shares(self) -> Array:
        """The answers as fractions of n, the notes' normalisation; n must be public.

        Raises:
            PlanError: The number of records is private.
        """
        if self.n is None:
            raise PlanError(
                "the number of records is private here, so that answers are counts; with "
                'neighbours="replace-one", the notes\' model, it is public'
            )
        return np.asarray(self.answers / self.n)


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedOutcome(LinearOutcome):
    """Noisy answers moved to the nearest ones that a data set can have.

    Args:
        mechanism: As in `Outcome`.
        answers: One number per query, projected, in counts.
        budget: As in `Outcome`.
        cost: As in `Outcome`.
        noise: As in `Outcome`.
        theorem: As in `Outcome`.
        bound: As in `Outcome`: here of the root mean square error over the queries.
        neighbours: As in `Outcome`.
        n: As in `Outcome`.
        note: As in `Outcome`.
        measured: The answers before projection.
        rmse: The root mean square error before projection, in counts.
        projection: The projection with its certificate.
    """

    projection: Projected | None = None


# The noise of demonstrations


class SeededWords:
    """Random words that a seed repeats: for demonstrations on made-up data, never for people.

    Whoever knows the seed can subtract the noise. Mechanisms refuse them beside a ledger or a
    table.

    Args:
        seed: Any number or text.

    >>> import sfumato as sf
    >>> first = sf.study.SeededWords(7)
    >>> bool((first.words(3) == sf.study.SeededWords(7).words(3)).all())
    True
    """

    def __init__(self, seed: int | str) -> None:
        self._label, self._calls = f"sfumato demonstration {seed}", 0

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next words.

        Args:
            count: How many.

        Returns:
            64-bit words.
        """
        self._calls += 1
        stream = hashlib.shake_256(f"{self._label}|{self._calls}".encode()).digest(8 * count)
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def _words(random: WordSource | None, is_guarded: bool) -> WordSource:
    """The words that noise is made of; only the system's beside a ledger or a table."""
    if random is None or isinstance(random, SystemWords):
        return system_words() if random is None else random
    if is_guarded:
        raise PlanError(
            "repeatable words protect nobody: beside a ledger or a table leave random out; "
            "demonstrations take made-up arrays"
        )
    return random


# Where exact numbers come from


@dataclass(frozen=True, eq=False)
class Instance:
    """An instance of the query release problem: linear queries, and the data set.

    ``histogram`` holds the counts of an array; None where ``data`` is a table.
    """

    workload: Workload
    data: object
    histogram: Sensitive[Integers] | None
    neighbours: Neighbours
    may_drop_records: bool

    @classmethod
    def of(
        cls,
        queries: object,
        data: object,
        records: object = None,
        neighbours: Neighbours = "add-remove",
    ) -> Instance:
        """A matrix with a histogram (or with codes as ``records``), or a workload with a table."""
        neighbours = check_neighbours(neighbours)
        if isinstance(queries, Workload):
            if data is None or records is not None:
                raise PlanError("a workload goes with a table: mechanism(workload, table)")
            drops = open_table(data).may_drop_records
            return cls(queries, data, None, neighbours, drops)
        if (data is None) == (records is None):
            raise PlanError(
                "a matrix of queries goes with a histogram, mechanism(F, counts), or with codes of "
                "cells, mechanism(F, records=codes)"
            )
        size = _cell_count(queries, data)
        counts = _histogram(data, size) if records is None else _tally(records, size)
        domain = Domain({"cell": size}, records="all-inside")  # as the histogram lists them
        return cls(_asked_of(queries, domain), None, Sensitive(counts), neighbours, False)

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is the same for all neighbours."""
        domain = self.workload.domain
        return total_is_public(self.neighbours, domain, None, self.may_drop_records)

    @property
    def records(self) -> int | None:
        """The number of records of an array, where it is public."""
        if self.histogram is None or not self.n_is_public:
            return None
        return count_histogram(self.histogram, [], is_public=True).rows

    @property
    def domain(self) -> Domain | None:
        """The columns that are read; None for an array."""
        return None if self.histogram is not None else self.workload.domain

    @property
    def bits(self) -> int:
        """Bits after the point of an exact answer."""
        return answer_bits(self.workload)

    @property
    def moved(self) -> Fraction:
        """How far neighbours move a single query: the greatest coefficient, or the greatest range.

        A replaced record may fall in no cell where records may be dropped.
        """
        bounds = [t.coefficient_bounds() for t in self.workload.terms]
        greatest = max(float(max(high.max(), -low.min())) for low, high in bounds)
        spread = max(float((high - low).max()) for low, high in bounds)
        if self.neighbours == "add-remove":
            return Fraction(greatest)
        return Fraction(spread if self.n_is_public else max(spread, greatest))

    @property
    def is_monotone(self) -> bool:
        """Whether all answers move in one direction together, as counts do for an added record."""
        lows = (t.coefficient_bounds()[0] for t in self.workload.terms)
        return self.neighbours == "add-remove" and all(bool((low >= 0).all()) for low in lows)

    def answers(self, table: Table | None, bits: int) -> Sensitive[Sequence[int]]:
        """The exact answer to every query, in steps of ``2^-bits``."""
        terms = self.workload.terms
        exact = self.count(table, [Block(t, 1.0) for t in terms])
        return flat_answers(exact, terms, bits)

    def count(self, table: Table | None, blocks: Sequence[Block]) -> Exact:
        """The exact values of blocks, in the vault."""
        if self.histogram is not None:
            return count_histogram(self.histogram, blocks, self.n_is_public)
        assert table is not None  # noqa: S101
        return count(table, self.workload.domain, blocks, self.neighbours)


def _asked_of(queries: object, domain: Domain) -> Workload:
    if isinstance(queries, str):
        if queries not in ("prefixes", "ranges"):
            raise WorkloadError(f'queries are a matrix, "prefixes" or "ranges", got {queries!r}')
        return (prefixes if queries == "prefixes" else ranges)(domain, "cell")
    return product(domain, {"cell": _matrix(queries)}, "queries")


def _matrix(queries: object) -> NDArray[np.generic]:
    """A matrix of queries, dense or of scipy, as an array; one row is one query."""
    from scipy.sparse import issparse

    if issparse(queries):
        queries = queries.toarray()  # type: ignore[attr-defined]
    return np.atleast_2d(np.asarray(queries))


def _cell_count(queries: object, data: object) -> int:
    """How many cells there are: one per column of the matrix."""
    if isinstance(queries, str):
        size = np.size(np.asarray(data)) if data is not None else 0
    else:
        matrix = _matrix(queries)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise WorkloadError(
                f"queries are a matrix of numbers, a row per query and a column per cell, or a "
                f"Workload; got shape {matrix.shape} of {matrix.dtype}"
            )
        size = matrix.shape[1]
    if size < 1:
        raise WorkloadError("there must be at least one cell; give the histogram beside the name")
    return size


def _histogram(data: object, size: int) -> Integers:
    """Counts as whole numbers; the message holds none of them."""
    array = np.asarray(data)
    if array.shape != (size,) or array.dtype.kind not in "iubf":
        raise TableError(
            f"the histogram has shape {array.shape} of {array.dtype}; the queries need one count "
            f"for each of {size:,} cells"
        )
    whole = np.rint(array) if array.dtype.kind == "f" else array
    is_count = (array == whole) & (array >= 0) & (array < LIMITS.textbook_records)
    if not bool(is_count.all()) or not float(array.sum()) < LIMITS.textbook_records:
        raise TableError(
            "a histogram has counts: whole numbers of at least 0, below 2^44 together; multiply "
            "shares by n"
        )
    return np.asarray(whole.astype(np.int64))


def _tally(records: object, size: int) -> Integers:
    codes = np.asarray(records)
    if codes.ndim != 1 or codes.dtype.kind not in "iub":
        raise TableError(f"records are one code per person, 0 to {size - 1}, in one row")
    if codes.size and not bool(((codes >= 0) & (codes < size)).all()):
        raise TableError(f"at least one record has a code outside 0 to {size - 1}")
    return np.bincount(codes.astype(np.int64), minlength=size).astype(np.int64)


# The guarded act


@dataclass(frozen=True, eq=False)
class TextbookRun(Runnable[T, object], Generic[T]):
    """A mechanism of the notes as `run/spine.py` runs it: count, debit, draw, store.

    What is drawn is JSON of whole numbers, in steps of a grid, or bytes.
    """

    columns: Domain | None
    promise: Guarantee
    price: Cost
    mechanism: str
    described: Callable[[], Mapping[str, object]]
    counted: Callable[[Table | None], T]
    noisy: Callable[[T], object]

    @property
    def domain(self) -> Domain | None:
        """The columns that are read."""
        return self.columns

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.promise

    @property
    def cost(self) -> Cost:
        """What is debited."""
        return self.price

    def request(self) -> Mapping[str, object]:
        """The mechanism, its parameters and what is asked."""
        return {
            "request": "study 1",
            "mechanism": self.mechanism,
            **self.described(),
            "neighbours": self.promise.neighbours,
            "budget": self.promise.budget.as_json(),
        }

    def count(self, table: Table | None, progress: Progress | None) -> T:
        """Exact numbers, in the vault."""
        del progress
        return self.counted(table)

    def draw(self, exact: T, progress: Progress | None) -> bytes:
        """The noisy numbers."""
        del progress
        noisy = self.noisy(exact)
        return noisy if isinstance(noisy, bytes) else canonical_json(noisy).encode()

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> object:
        """What was drawn."""
        del entry, is_stored, progress
        return answer if answer[:1] not in (b"[", b"{") else json.loads(answer)


def drawn(
    instance: Instance | None,
    mechanism: str,
    budget: Budget,
    cost: Cost,
    described: Callable[[], Mapping[str, object]],
    counted: Callable[[Table | None], T],
    noisy: Callable[[T, WordSource], object],
    *,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> tuple[object, str]:
    """What a mechanism draws, after its debit; and the note on who remembers what was spent.

    Numbers that the caller worked out (no ``instance``) have no description of their own, so that
    a ledger needs a ``key`` that says what they are.
    """
    table = None if instance is None else instance.data
    if instance is None and ledger is not None and key is None:
        raise PlanError(
            "a ledger cannot tell what these numbers are, and would give the answer of others; "
            'say key=..., such as key="scores of the survey of May"'
        )
    words = _words(random, ledger is not None or table is not None)
    whose = neighbours if instance is None else instance.neighbours
    plan: TextbookRun[T] = TextbookRun(
        None if instance is None else instance.domain,
        Guarantee(budget, whose, "row"),
        cost,
        mechanism,
        described,
        counted,
        lambda exact: noisy(exact, words),
    )
    # Without a ledger no key is used: what it would be need not be worked out.
    answer = run(plan, Access(table, ledger, name, "none" if ledger is None else key))
    is_system = isinstance(words, SystemWords)
    return answer, (NO_LEDGER if ledger is None else "") if is_system else SEEDED


def budget_of(
    epsilon: Number | None,
    delta: Number | None,
    rho: Number | None = None,
    mu: Number | None = None,
) -> Budget:
    """The budget in the notes' letters; delta of 0 is none."""
    if delta is not None and exact(delta, "delta") == 0:
        delta = None
    return Budget(epsilon, delta, rho=rho, mu=mu)


def scale_of(law: BlockNoise | NoiseLaw, step: float = 1.0) -> NoiseScale:
    """The law in the notes' letters; scales of a `NoiseLaw` are in steps."""
    if isinstance(law, BlockNoise):
        return NoiseScale(LAWS[law.noise], law.scale, ldexp(1.0, -law.grid_bits))
    return NoiseScale(LAWS[law.kind], float(law.scale) * step, step)


# Exact numbers of any kind


def grid_bits(values: NDArray[np.generic], sensitivity: Fraction, changes: int) -> int:
    """Bits after the point of the grid: none for whole numbers, else fine beside the sensitivity.

    Which of the two depends on the type of the array, which is public, not on its numbers.
    """
    if values.dtype.kind in "iub" and sensitivity.denominator == 1:
        return 0
    finest = LIMITS.textbook_slack_bits + log2(max(changes, 1)) - log2(sensitivity)
    return max(0, ceil(finest))


def moved_on_grid(
    values: NDArray[np.generic], sensitivity: Fraction, bits: int, changes: int
) -> int:
    """How far neighbours move numbers in steps of the grid, rounding counted.

    Floats are rounded, also to whole numbers: the difference of two of them moves by at most a step
    for each of ``changes``. Whole numbers are not rounded.
    """
    rounding = changes if values.dtype.kind == "f" else 0
    return ceil(sensitivity * (1 << bits)) + rounding


def on_grid(values: NDArray[np.generic], bits: int) -> list[int]:
    """Numbers as whole steps of ``2^-bits``, to the nearest."""
    if values.dtype.kind in "iub":
        return [int(v) << bits for v in values.tolist()]
    return [int(v) for v in np.rint(np.ldexp(values.astype(np.float64), bits)).tolist()]


def exact_numbers(values: object, what: str) -> NDArray[np.generic]:
    """One row of numbers, clamped at 2^50; the message holds none of them."""
    if isinstance(values, Workload):
        raise PlanError("a workload goes with a table: mechanism(workload, table)")
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iubf":
        raise PlanError(f"{what} are numbers in one row, got shape {array.shape} of {array.dtype}")
    if array.dtype.kind == "f" and bool(np.isnan(array).any()):
        raise PlanError(f"{what} must be numbers; at least one is none")
    # Clamping at a public bound moves no two numbers further apart; a cast to 64 bits before it
    # would wrap unsigned numbers round.
    most = LIMITS.textbook_number
    if array.dtype.kind == "u":
        return np.asarray(np.minimum(array, np.uint64(most)).astype(np.int64))
    kind = np.float64 if array.dtype.kind == "f" else np.int64
    return np.asarray(np.clip(array.astype(kind), -most, most))


def exact_sensitivity(sensitivity: object) -> Fraction:
    """The stated sensitivity as an exact number, such that the grid of its noise has floats."""
    number = sensitivity.item() if isinstance(sensitivity, np.generic) else sensitivity
    is_number = isinstance(number, int | float | Fraction) and not isinstance(number, bool)
    if not is_number or not number > 0 or not isfinite(number):  # type: ignore[operator,arg-type]
        raise PlanError(
            "say how far neighbours move the numbers, sensitivity= a number above 0, got "
            f"{shown(sensitivity)}"
        )
    most = LIMITS.textbook_number
    if not Fraction(1, most) <= Fraction(number) <= most:  # type: ignore[arg-type]
        raise PlanError(
            f"the sensitivity must be from 2^-50 to 2^50, got {shown(sensitivity)}; ask in other "
            "units"
        )
    return Fraction(number)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Scores:
    """Exact scores on a grid, how far they move there, and where they come from."""

    instance: Instance | None
    count: int
    bits: int
    sensitivity: int
    is_monotone: bool
    counted: Callable[[Table | None], Sensitive[Sequence[int]]]
    neighbours: Neighbours

    @property
    def step(self) -> float:
        """One step of the grid."""
        return ldexp(1.0, -self.bits)

    @classmethod
    def of(
        cls,
        scores: object,
        data: object,
        records: object,
        sensitivity: object,
        is_monotone: bool | None,
        neighbours: Neighbours,
        least_bits: int = 0,
    ) -> Scores:
        """Exact numbers with their sensitivity, or answers to linear queries, which know theirs."""
        if data is None and records is None:
            numbers = exact_numbers(scores, "scores")
            moved = exact_sensitivity(1 if sensitivity is None else sensitivity)
            bits = max(grid_bits(numbers, moved, 1), least_bits)
            steps = moved_on_grid(numbers, moved, bits, 1)
            exact = Sensitive[Sequence[int]](on_grid(numbers, bits))
            whose = check_neighbours(neighbours)
            return cls(None, numbers.size, bits, steps, bool(is_monotone), lambda _: exact, whose)
        if sensitivity is not None:
            raise PlanError("the sensitivity of linear queries is worked out; leave it out")
        instance = Instance.of(scores, data, records, neighbours)
        bits = max(instance.bits, least_bits)
        return cls(
            instance,
            instance.workload.queries,
            bits,
            ceil(instance.moved * 2**bits),
            instance.is_monotone and is_monotone in (None, True),
            lambda table: instance.answers(table, bits),
            instance.neighbours,
        )
