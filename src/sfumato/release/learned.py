# SPDX-License-Identifier: Apache-2.0
"""From the transcript of an adaptive release to what is published: learn, name, record.

Everything here is public: the transcript is all that left the vault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.measurement import Transcript
from sfumato.planning.adaptive_costs import asked_domain
from sfumato.refine.entropy import MaximumEntropy
from sfumato.refine.learn import (
    Boosted,
    Hedge,
    Learner,
    ToldIntervals,
    kept_rows,
    replay_queries,
    replay_samples,
    replay_tables,
)
from sfumato.release.adaptive import AdaptiveRelease, Estimate
from sfumato.release.provenance import Promised, adaptive_provenance, constraints_record
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.ledger.entries import Entry

__all__ = [
    "Asked",
    "Known",
    "adaptive_release",
]


Known = Learner | Hedge | Boosted


class Asked(Promised, Protocol):
    """What an adaptive plan says beside its promise."""

    @property
    def method(self) -> str:
        """What is measured: "tables", or single queries by "mwem" or "boosting"."""
        ...

    @property
    def mechanism(self) -> str:
        """The method, as the ledger and the record call it."""
        ...

    @property
    def rounds(self) -> int:
        """How often it may choose."""
        ...

    @property
    def domain(self) -> Domain:
        """The attributes that the estimate is over."""
        ...


def adaptive_release(
    plan: Asked,
    transcript: Transcript,
    estimate: Known | None,
    entry: Entry | None,
    constraints: Constraints | None = None,
    *,
    is_stored: bool = False,
) -> AdaptiveRelease:
    """The estimate that the rounds kept, or the same learnt once more, and what it publishes."""
    found = _estimated(plan, transcript, estimate, constraints)
    cells, weights = _cells(plan, found)
    kept: Estimate = found
    are_met = True
    if constraints is not None:
        asked = asked_domain(plan.workload)
        cells = cells[:, [plan.domain.index(name) for name in asked.names]]
        kept = rows = kept_rows(constraints, asked, cells, weights, found.total)
        cells, weights, are_met = rows.codes.T, rows.weights / rows.total, rows.are_met
    places = tuple(_place(plan, step.place) for step in transcript.steps)
    blocks = [
        (name, _attributes(plan, s.place), s.measurement.units.size, s.measurement.noise)
        for name, s in zip(places, transcript.steps, strict=True)
    ]
    record = adaptive_provenance(
        plan,
        plan.mechanism,
        plan.rounds,
        blocks,
        rows=transcript.rows,
        constraints=constraints_record(constraints, are_met),
        entry=entry,
    )
    told = ToldIntervals(plan.workload, plan.method, plan.domain, transcript)
    return AdaptiveRelease(
        plan.workload,
        transcript,
        kept,
        places,
        cells,
        weights,
        record,
        told,
        entry,
        constraints,
        is_stored,
    )


def _estimated(
    plan: Asked,
    transcript: Transcript,
    estimate: Known | None,
    constraints: Constraints | None,
) -> MaximumEntropy | Hedge | Boosted:
    if plan.method == "tables":
        learner = estimate if isinstance(estimate, Learner) else None
        if learner is None:
            begun = Learner(plan.domain, transcript.rows, constraints)
            learner = replay_tables(begun, transcript)
        return learner.finish()
    if isinstance(estimate, Hedge | Boosted):
        return estimate
    if plan.method == "mwem":
        return replay_queries(plan.workload, transcript, constraints)
    return replay_samples(plan.workload, transcript, constraints)


def _cells(plan: Asked, found: MaximumEntropy | Hedge | Boosted) -> tuple[Integers, Array]:
    """Rows of the estimate and their weights, with sum 1."""
    if isinstance(found, MaximumEntropy):
        return found.codes, found.weights
    cells = np.stack(np.unravel_index(np.arange(plan.domain.size), plan.domain.shape), 1)
    return cells, found.histogram.ravel() / found.total


def _attributes(plan: Asked, place: tuple[int, ...]) -> tuple[str, ...]:
    """What a step looked at."""
    if plan.method == "tables":
        return tuple(plan.domain.names[i] for i in place)
    terms = plan.workload.terms
    if plan.method == "mwem":
        return terms[place[0]].attributes if place else ()
    ends = np.cumsum([t.rows for t in terms])
    groups = set(np.searchsorted(ends, place, side="right").tolist())
    return plan.domain.in_order({name for g in groups for name in terms[g].attributes})


def _place(plan: Asked, place: tuple[int, ...]) -> str:
    """The same in words."""
    if plan.method == "tables":
        return " x ".join(plan.domain.names[i] for i in place)
    if not place:
        return "number of records"
    if plan.method == "boosting":
        return f"{len(place)} sampled queries"
    return f"{plan.workload.terms[place[0]].name}, query {place[1]}"
