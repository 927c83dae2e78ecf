# SPDX-License-Identifier: Apache-2.0
"""Corrected predictions: public ones, replaced by noisy answers where they are far off.

    correction = sf.correct(work, sf.Budget(epsilon=1), tolerance=50, corrections=5)
    print(correction)                                # how right it will be, before it is spent
    result = correction.release("adult.parquet", predictions, ledger="adult.ledger")
    result.answers()                                 # dataframe: answer, interval, where from

A prediction within ``tolerance`` of the truth stands, with an interval, and costs nothing; one that
is found further off is replaced by a fresh noisy answer, at most so many times. The predictor is
anything public: a model, last year's release, a constant; it may look at the answers given so far.
It is NumericSparse on ``|truth - prediction|``. Mathematics: docs/mechanisms/sparse-vector.md.
Proof: docs/proofs/sparse-vector.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ldexp, nan
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sfumato.digest import canonical_json
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import SparseForecast, plan_sparse
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, Stored, WorkloadRun, run
from sfumato.text import STORED
from sfumato.types import Neighbours, Progress
from sfumato.workload.bins import in_bins
from sfumato.workload.question import questions_of
from sfumato.workload.workload import Workload, answer_bits
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.random import WordSource
    from sfumato.vault.mechanisms.select import ExactAnswers
    from sfumato.vault.tables import Table

__all__ = ["Corrected", "Correction", "CorrectionRun", "Predictions", "Predictor", "correct"]


Predictor: TypeAlias = Callable[[int, Sequence[float]], float]
"""The number of a query and all answers given so far -> a prediction of its answer."""

Predictions: TypeAlias = Sequence[float] | Predictor


@dataclass(frozen=True, eq=False, repr=False)
class Correction:
    """Which predictions will be corrected, and how right the answers will be: public.

    Args:
        workload: What is asked.
        plan: The sparse vectors, their noise and what they promise.
        threshold: From which error on a prediction is corrected, in steps.
        bits: A step is 2^-bits of a count.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
    """

    workload: Workload
    plan: SparseForecast
    threshold: int
    bits: int
    neighbours: Neighbours
    unit: PrivacyUnit | None

    @property
    def budget(self) -> Budget:
        """What all tests and corrections may spend together."""
        return self.plan.budget

    @property
    def cost(self) -> Cost:
        """What is debited for all tests and all corrections."""
        return self.plan.cost

    @property
    def corrections(self) -> int:
        """The most predictions that are replaced; after the last one nothing more is checked."""
        return self.plan.discoveries

    @property
    def standing_error(self) -> float:
        """How far a prediction that stands may be from the truth, at ``plan.confidence``."""
        return ldexp(self.threshold + self.plan.tolerance, -self.bits)

    @property
    def corrected_error(self) -> float:
        """How far a corrected answer may be from the truth, at ``plan.confidence``."""
        return ldexp(self.plan.half_width, -self.bits)

    def __repr__(self) -> str:
        return (
            f"Correction of {self.workload.queries:,} predictions, at most {self.corrections:,} of "
            f"them replaced, at {self.plan.budget.describe()}: predictions that stand are right up "
            f"to {self.standing_error:,.1f}, corrected answers up to {self.corrected_error:,.1f}, "
            f"all together with probability {self.plan.confidence:g}"
        )

    def release(
        self,
        table: object,
        predictions: Predictions,
        ledger: Ledger | str | Path | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
    ) -> Corrected:
        """The answers: table -> exact answers -> debit -> compare with predictions -> correct.

        Args:
            table: The guarded table, as in `Plan.release`.
            predictions: Numbers in the order of the workload, or a function of the number of a
                query and of all answers so far.
            ledger: The ledger of the table; the whole is debited before any noise is drawn, and the
                same request returns the stored answer.
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; a function cannot be compared, so it needs one.

        Returns:
            The predictions that stand, the corrections, and their intervals.

        Raises:
            TableError: The table cannot be opened or lacks a declared column.
            BudgetExhausted: The cost does not fit what is left.
            PlanError: The predictions do not fit, or a function has no key.
        """
        steps = None if callable(predictions) else self._steps(predictions)
        if steps is None and key is None and ledger is not None:
            raise PlanError("predictions by a function need a key of their own; say key=...")
        return run(CorrectionRun(self, predictions, steps), Access(table, ledger, name, key))

    @cached_property
    def _queries(self) -> str:
        """The queries one by one: they are compared in their order, however they are grouped."""
        if self.workload.queries > WORKLOAD_LIMITS.questions:
            return self.workload.digest()
        try:
            return _sha256([question.key for question in questions_of(self.workload)])
        except (TooLarge, WorkloadError):
            return self.workload.digest()

    def request(self) -> dict[str, object]:
        """The public description of what is corrected, as the ledger keeps it.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        unit = self.unit
        return {
            **self.plan.request(),
            "workload": self._queries,
            "tolerance": self.threshold,
            "bits": self.bits,
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
        }

    def drawn(
        self,
        answers: ExactAnswers,
        predictions: Predictions,
        steps: list[int] | None,
        random: WordSource | None = None,
    ) -> bytes:
        """Which predictions were corrected, and by which noisy answers, as JSON.

        Privacy: costs ``plan.cost``, which is debited before: docs/proofs/sparse-vector.md.
        Neighbours: those of ``correct``.

        Args:
            answers: The exact answers.
            predictions: As in `release`.
            steps: The predictions in steps; None for a function.
            random: A source of random words; the system's if None.

        Returns:
            JSON.
        """
        from sfumato.vault.mechanisms.sparse import Discoverer, apart

        exact = answers.at(self.bits)
        finder = Discoverer(self.plan, random)
        outcome: dict[str, object]
        if steps is not None:
            outcomes = finder.test_many(apart(exact, steps), [self.threshold] * len(steps))
            places = [i for i, is_off in enumerate(outcomes) if is_off]
            numbers = finder.numbers(exact, places)
            outcome = {"tested": len(outcomes), "corrected": places, "numbers": numbers}
            return json.dumps(outcome | {"predictions": None}).encode()
        assert callable(predictions)  # noqa: S101
        answers_so_far: list[float] = []
        predicted: list[int] = []
        corrected: dict[int, int] = {}
        tested = 0
        for place in range(self.workload.queries):
            [near] = self._steps([predictions(place, tuple(answers_so_far))], 1)
            predicted.append(near)
            if finder.left:
                tested += 1
                off = apart(exact, [near], place)
                if finder.test_many(off, [self.threshold])[0]:
                    [corrected[place]] = finder.numbers(exact, [place]) or []
            answers_so_far.append(ldexp(corrected.get(place, near), -self.bits))
        outcome = {
            "tested": tested,
            "corrected": list(corrected),
            "numbers": list(corrected.values()),
        }
        return json.dumps(outcome | {"predictions": predicted}).encode()

    def _steps(self, predictions: Sequence[float], count: int | None = None) -> list[int]:
        """Predictions on the grid; they are public, and cut at what a table can hold."""
        size = self.workload.queries if count is None else count
        try:
            numbers = np.asarray(predictions, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(nan)
        if numbers.shape != (size,) or not bool(np.isfinite(numbers).all()):
            raise PlanError(
                f"predictions must be {size:,} finite numbers, one for each query in the order "
                "of the workload, or a function of the number of a query and the answers so far"
            )
        cut = np.clip(numbers, -LIMITS.count_maximum, LIMITS.count_maximum)
        return [round(ldexp(float(p), self.bits)) for p in cut]


@dataclass(frozen=True, eq=False)
class CorrectionRun(WorkloadRun["ExactAnswers", "Corrected"]):
    """A correction of certain predictions; ``steps`` are those on the grid, if they are numbers."""

    plan: Correction
    predictions: Predictions
    steps: list[int] | None

    def request(self) -> dict[str, object]:
        """What is corrected, and by which predictions."""
        return self.plan.request() | {"predictions": _sha256(self.steps)}

    def key(self) -> str:
        """The digest of the request, which says that it is one of a correction."""
        return f"correct {_sha256(self.request())}"

    def keys(self, ledger: Ledger) -> Iterable[str]:
        """The key of this very writing, which was the only one once, and the request's own."""
        del ledger
        return dict.fromkeys([f"correct {_sha256(self._as_written())}", self.key()])

    def reader(self, stored: Stored) -> CorrectionRun | None:
        """This, if the stored request is this one or that of its writing."""
        requests = (self.request(), self._as_written())
        return self if stored.entry.request in map(canonical_json, requests) else None

    def count(self, table: Table | None, progress: Progress | None) -> ExactAnswers:
        """The exact answers of the workload."""
        from sfumato.vault.mechanisms.select import read_answers

        assert table is not None  # noqa: S101
        plan = self.plan
        exact, _ = read_answers(table, plan.workload, plan.neighbours, plan.unit, progress)
        return exact

    def draw(self, exact: ExactAnswers, progress: Progress | None) -> bytes:
        """Which predictions are corrected, and by which noisy answers."""
        del progress
        return self.plan.drawn(exact, self.predictions, self.steps)

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Corrected:
        """Predictions that stand, and answers in place of the others."""
        del progress
        stored = json.loads(answer)
        places = dict(zip(stored["corrected"], stored["numbers"], strict=True))
        predictions = tuple(self.steps or stored["predictions"])
        return Corrected(self.plan, predictions, stored["tested"], places, entry, is_stored)

    def _as_written(self) -> dict[str, object]:
        """The request as it once was: that of one writing of the workload."""
        return self.request() | {"workload": self.plan.workload.digest()}


@dataclass(frozen=True, eq=False, repr=False)
class Corrected:
    """Answers: predictions that stand, and fresh noisy ones where they did not; all public."""

    correction: Correction
    predictions: tuple[int, ...]
    tested: int
    corrected: dict[int, int]
    entry: Entry | None
    is_stored: bool = False  # the ledger had these answers: nothing was spent on them now

    def answers(self) -> pd.DataFrame:
        """A row per query: prediction, answer, interval, and where the answer comes from.

        The intervals hold all together with probability ``plan.confidence``. What was not checked,
        because the last correction came before it, has none.
        """
        import pandas as pd

        from sfumato.release.labels import texts_of

        plan, size = self.correction, len(self.predictions)
        scale = 2.0**-plan.bits
        predicted = np.array(self.predictions, dtype=np.float64) * scale
        answers, half = predicted.copy(), np.full(size, plan.standing_error)
        source = np.array(["prediction"] * size, dtype=object)
        for place, number in self.corrected.items():
            answers[place], half[place] = number * scale, plan.corrected_error
            source[place] = "corrected"
        half[self.tested :], source[self.tested :] = nan, "not checked"
        terms = plan.workload.terms
        return pd.DataFrame(
            {
                "group": np.repeat([t.name for t in terms], [t.rows for t in terms]),
                "query": np.concatenate([texts_of(t) for t in terms]),
                "prediction": predicted,
                "value": answers,
                "low": answers - half,
                "high": answers + half,
                "source": source,
            }
        )

    def __repr__(self) -> str:
        return (
            f"Corrected {len(self.corrected):,} of {len(self.predictions):,} predictions; "
            f"{self.tested:,} were checked{f'; {STORED}' if self.is_stored else ''}"
        )


def correct(
    workload: Workload,
    budget: Budget,
    tolerance: float,
    *,
    corrections: int = 1,
    neighbours: Neighbours = "add-remove",
    unit: PrivacyUnit | None = None,
    confidence: float = 0.95,
) -> Correction:
    """Plan answers by public predictions, of which those off by ``tolerance`` are corrected.

    At most ``corrections`` are, each by an answer with fresh noise. Nothing is spent yet.

    Privacy: everything together is within ``budget``: docs/proofs/sparse-vector.md, Theorem 4;
    ``|truth - prediction|`` moves by at most what the truth does.
    Neighbours: as given, with one row a person or ``unit``.

    Args:
        workload: What is asked.
        budget: What the whole may spend.
        tolerance: From which error on a prediction is corrected, in counts.
        corrections: The most corrections, each by an answer with fresh noise.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        confidence: With which probability everything that is said is right, up to the stated
            errors.

    Returns:
        The plan.

    Raises:
        PlanError: An argument is wrong.
        TooLarge: There are too many queries.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"age": 100, "sex": 2}), 1)
    >>> sf.correct(work, sf.Budget(epsilon=1), tolerance=100, corrections=2).corrections
    2
    """
    from sfumato.planning.adaptive_costs import answer_moves

    if not isinstance(workload, Workload):
        raise PlanError(
            "correct needs a workload such as sf.marginals(domain, 1), got "
            f"{type(workload).__name__}"
        )
    workload = in_bins(workload)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise PlanError(f"tolerance must be a number above 0, got {tolerance!r}")
    if not 0 < tolerance < LIMITS.count_maximum:
        raise PlanError(f"tolerance must be a number above 0 and below 2^44, got {tolerance!r}")
    own = answer_bits(workload)
    bits = max(own, PLANNING_LIMITS.sparse_grid_bits)
    unit = check_privacy_unit(unit, workload.domain.attributes)
    moved = int(answer_moves(workload, check_neighbours(neighbours), unit).max()) << (bits - own)
    plan = plan_sparse(
        budget,
        corrections,
        workload.queries,
        moved,
        is_monotone=False,
        with_numbers=True,
        confidence=confidence,
    )
    return Correction(workload, plan, round(ldexp(tolerance, bits)), bits, neighbours, unit)


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
