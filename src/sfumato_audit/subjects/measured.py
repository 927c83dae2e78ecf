# SPDX-License-Identifier: Apache-2.0
"""Strategies measured by the vault: counted once per table, measured as often as asked.

``vault.count`` counts a table and applies the strategy, ``vault.measure`` adds the noise; both
as in a release. Many runs are one call of ``measure`` on the same exact values many times over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.strategy.base import Block, Strategy
from sfumato.types import Array, Neighbours
from sfumato.vault.measure import Exact, count, measure
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.tables import Table as Opened
from sfumato.vault.tables import open_table
from sfumato_audit.bounds import Claim
from sfumato_audit.events import Score
from sfumato_audit.examine import Pair, Sampler, Subject, Table, listed_pairs, pairs_at_random

__all__ = [
    "Measuring",
    "measured_subject",
    "opened",
]


VAULT = "sfumato.vault"
COUNTING_AND_MEASURING = frozenset(
    f"{VAULT}.{name}"
    for name in (
        "tables.open_table",
        "encode.check_columns",
        "encode.read_records",
        "measure.measure",
        "measure.add_noise",
        "noise.draw",
    )
)


@lru_cache(maxsize=64)
def opened(domain: Domain, records: Table) -> Opened:
    """Made-up records as a table that the vault counts; the same one for every mechanism."""
    import pandas as pd

    codes = np.array(records, dtype=np.int64).reshape(len(records), len(domain))
    return open_table(pd.DataFrame(codes, columns=list(domain.names)))


@dataclass(frozen=True, eq=False)
class Measuring:
    """A strategy with its noise, ready to measure any table of its domain."""

    domain: Domain
    blocks: Sequence[Block]
    noise: Sequence[BlockNoise]
    neighbours: Neighbours
    counted: dict[Table, Exact] = field(default_factory=dict, repr=False)

    def exact(self, table: Table) -> Exact:
        """Count a table, once, as a release does."""
        if table not in self.counted:
            records = opened(self.domain, table)
            self.counted[table] = count(records, self.domain, self.blocks, self.neighbours)
        return self.counted[table]

    def sampler(self, table: Table) -> Sampler:
        """What measures one table many times."""
        exact = self.exact(table)
        return lambda runs, source: self.measured(exact, runs, source)

    def measured(self, exact: Exact, runs: int, source: WordSource) -> Array:
        """Noisy values in steps of their grid, a row per run, and what else is public of them."""
        again = tuple(np.tile(v, runs) for v in exact.values.reveal())
        outputs = measure(Exact(Sensitive(again), exact.rows), self.blocks, self.noise, source)
        columns = [m.units.astype(np.float64).reshape(runs, -1) for m in outputs.measurements]
        rows = np.nan if outputs.rows is None else float(outputs.rows)
        return np.concatenate([*columns, np.full((runs, 1), rows)], axis=1)

    def hint(self, pair: Pair[Table]) -> Score:
        """The log-likelihood ratio that the claimed noise has."""
        centres = [self.centre(side) for side in (pair.left, pair.right)]
        laws = [(law, v.size) for law, v in zip(self.noise, centres[0], strict=True)]
        left, right = (np.concatenate(c) for c in centres)
        scale = np.concatenate([np.full(size, float(law.units)) for law, size in laws])
        is_laplace = self.noise[0].noise == "laplace"

        def score(outputs: Array) -> Array:
            values = outputs[:, : left.size]
            if is_laplace:
                apart = np.abs(values - right) - np.abs(values - left)
                return np.asarray((apart / scale).sum(axis=1))
            return np.asarray(values @ ((left - right) / scale**2))

        return score

    def centre(self, table: Table) -> list[Array]:
        """The exact values in steps of the noise grid."""
        pairs = zip(self.exact(table).values.reveal(), self.blocks, self.noise, strict=True)
        return [
            np.ldexp(
                v.astype(np.float64),
                law.grid_bits - block.term.fraction_bits - block.term.unit_bits,
            )
            for v, block, law in pairs
        ]


def measured_subject(
    name: str,
    strategy: Strategy,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    covers: frozenset[str] = frozenset(),
    slowness: int = 1,
) -> Subject[Table]:
    """A strategy at a budget, calibrated as planning does, with the claim that is debited."""
    is_gaussian = strategy.noise == "gaussian"
    loss = budget.gaussian_mu if is_gaussian else float(budget.pure_epsilon or 0)
    assert loss  # noqa: S101 - budgets of subjects fit their noise
    noise = calibrate(strategy, loss, neighbours)
    paid = privacy_loss(strategy, noise, neighbours)
    cost = Cost.gaussian(paid) if is_gaussian else Cost.pure(paid)
    domain = strategy.workload.domain
    run = Measuring(domain, strategy.blocks, noise, neighbours)
    law = "rounded_gaussian" if is_gaussian else "discrete_laplace"
    return Subject(
        f"{name} ({neighbours})",
        Claim.of(cost),
        listed_pairs(domain.shape, neighbours),
        run.sampler,
        covers | COUNTING_AND_MEASURING | {f"{VAULT}.noise.{law}"},
        pairs_at_random(domain.shape, neighbours),
        run.hint,
        slowness,
    )
