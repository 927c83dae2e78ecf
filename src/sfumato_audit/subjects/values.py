# SPDX-License-Identifier: Apache-2.0
"""Sums and means of values, on tables of any floats: what one record's value can move.

A table is a tuple of numbers, those of one column; neighbours differ in one of them, which may be
far outside the range, infinite, or no number at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, isnan, nan

import numpy as np

from sfumato.domain.attributes import Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.values import UNIT_BITS
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.types import Array, Neighbours
from sfumato.vault.mechanisms.measure import Exact, count
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.tables import open_table
from sfumato.workload.build import means, variances
from sfumato.workload.workload import Workload
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "VARIANCE",
    "Numbers",
    "beside_a_count",
    "square_of_half_the_range",
    "unclamped",
    "value_subject",
    "value_subjects",
]


Numbers = tuple[float, ...]

COLUMN = Domain([Numeric("x", (0, 100), outside="clamp", nulls="missing")])
MANY = 500
VARIANCE = variances(COLUMN, "x")
BUDGETS = {"gaussian-table": Budget(mu=1), "laplace-table": Budget(epsilon=1)}


@dataclass(frozen=True, eq=False)
class _MeasuringValues:
    """As `Measuring`, of a column of numbers; ``weigh`` in place of the weights of the vault."""

    run: Measuring
    weigh: Callable[[float], tuple[int, ...]] | None
    counted: dict[str, Exact] = field(default_factory=dict, repr=False)

    def sampler(self, table: Numbers) -> Sampler:
        exact = self.exact(table)
        return lambda runs, source: self.run.measured(exact, runs, source)

    def exact(self, table: Numbers) -> Exact:
        key = repr(table)  # nan is not equal to itself
        if key not in self.counted:
            self.counted[key] = self._of(table)
        return self.counted[key]

    def _of(self, table: Numbers) -> Exact:
        import pandas as pd

        run = self.run
        if self.weigh is None:
            column = pd.DataFrame({"x": np.array(table, dtype=np.float64)})
            return count(open_table(column), run.domain, run.blocks, run.neighbours)
        total = np.zeros(len(self.weigh(0.0)), dtype=object)
        for number in table:
            if isnan(number):
                continue
            total = total + np.array(self.weigh(number), dtype=object)
        return Exact(Sensitive(tuple(np.asarray(b.term.apply(total)) for b in run.blocks)), None)

    def hint(self, pair: Pair[Numbers]) -> Callable[[Array], Array]:
        """The log-likelihood ratio of the two sides, from their exact values."""
        sides = []
        for table in (pair.left, pair.right):
            parts = zip(
                self.exact(table).values.reveal(), self.run.blocks, self.run.noise, strict=True
            )
            sides.append(
                np.concatenate(
                    [
                        np.ldexp(
                            v.astype(np.float64),
                            law.grid_bits - b.term.fraction_bits - b.term.unit_bits,
                        )
                        for v, b, law in parts
                    ]
                )
            )
        left, right = sides
        (law, *_) = self.run.noise

        def score(outputs: Array) -> Array:
            values = outputs[:, : left.size]
            if law.noise == "laplace":
                apart = np.abs(values - right) - np.abs(values - left)
                return np.asarray((apart / float(law.steps)).sum(axis=1))
            return np.asarray(values @ ((left - right) / float(law.steps) ** 2))

        return score


def value_subject(
    name: str,
    mechanism: str,
    neighbours: Neighbours,
    weigh: Callable[[float], tuple[int, ...]] | None = None,
    work: Workload | None = None,
) -> Subject[Numbers]:
    """The mean of a column with one table of noise; known to be wrong with weights of its own.

    ``work`` in its place: the variance.
    """
    build, noise_kind = MECHANISMS[mechanism]
    strategy = build(means(COLUMN, "x") if work is None else work, noise_kind, "rmse")
    budget = BUDGETS[mechanism]
    is_gaussian = strategy.noise == "gaussian"
    loss = budget.gaussian_mu if is_gaussian else float(budget.pure_epsilon or 0)
    assert loss  # noqa: S101 - budgets of subjects fit their noise
    noise = calibrate(strategy, loss, neighbours)
    paid = privacy_loss(strategy, noise, neighbours)
    run = _MeasuringValues(
        Measuring(strategy.workload.domain, strategy.blocks, noise, neighbours), weigh
    )
    law = "rounded_gaussian" if is_gaussian else "discrete_laplace"
    return Subject(
        f"{name}, {mechanism} ({neighbours})",
        Claim.of(Cost.gaussian(paid) if is_gaussian else Cost.pure(paid)),
        _pairs(neighbours),
        run.sampler,
        frozenset() if weigh else COUNTING_AND_MEASURING | {f"{VAULT}.mechanisms.noise.{law}"},
        hint=run.hint,
        is_broken=weigh is not None,
    )


def value_subjects() -> Iterator[Subject[Numbers]]:
    """Both laws, both kinds of neighbours."""
    for mechanism in BUDGETS:
        yield value_subject("values", mechanism, "add-remove")
        yield value_subject("values", mechanism, "replace-one")
        yield value_subject("second moments", mechanism, "add-remove", work=VARIANCE)
        yield value_subject("second moments", mechanism, "replace-one", work=VARIANCE)


def unclamped(number: float) -> tuple[int, ...]:
    """Weights of the value as it stands, which leave the simplex beyond the range."""
    share = round(min(max(number, -1e6), 1e6) / 100 * 2**UNIT_BITS)
    return 2**UNIT_BITS - share, share, 0


def square_of_half_the_range(number: float) -> tuple[int, ...]:
    """Weights of a square that was scaled by half of the range: four times what it should be."""
    share = min(max(number, 0.0), 100.0) / 100
    square = round(4 * share**2 * 2**UNIT_BITS)
    return 0, 0, 2**UNIT_BITS - square, square, 0


def beside_a_count(number: float) -> tuple[int, ...]:
    """A sum and a count measured as if they were one table: together they move by up to 2."""
    share = round(min(max(number, 0.0), 100.0) / 100 * 2**UNIT_BITS)
    return 2**UNIT_BITS, share, 0


def _pairs(neighbours: Neighbours) -> tuple[Pair[Numbers], ...]:
    crowd = (0.0,) * MANY
    if neighbours == "replace-one":
        return (
            Pair("0 becomes 100", (0.0,), (100.0,)),
            Pair("0 becomes 10,000", (0.0,), (10_000.0,)),
            Pair("a denormal becomes infinite, crowded", (*crowd, 5e-324), (*crowd, inf)),
            Pair("50 becomes no number", (50.0,), (nan,)),
        )
    return (
        Pair("nothing, or 100", (), (100.0,)),
        Pair("nothing, or 1e308", (), (1e308,)),
        Pair("crowded, 250 or none", crowd, (*crowd, 250.0)),
        Pair("crowded, one more at the half", crowd, (*crowd, 50.0)),
        Pair("nothing, or no number", (), (nan,)),
    )
