# SPDX-License-Identifier: Apache-2.0
"""What a transcript teaches: the estimates of adaptive releases, learnt step by step.

The rounds of a release learn through the same functions while they measure, so a stored transcript
gives the same estimate again. Public arithmetic only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.measurement import Step, Transcript
from sfumato.refine.learning.boosting import Boosted
from sfumato.refine.learning.hedge import Hedge
from sfumato.refine.learning.learner import Learner
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array
from sfumato.workload.scans import answer_bits
from sfumato.workload.workload import Workload

__all__ = [
    "begun_total",
    "learn_query",
    "learn_sample",
    "replay_queries",
    "replay_samples",
    "replay_tables",
]


def replay_tables(learner: Learner, transcript: Transcript) -> Learner:
    """Learn measured tables as the loop did."""
    for step in transcript.steps:
        names = tuple(learner.domain.names[i] for i in step.place)
        learner.learn(names, step.measurement)
    return learner


def replay_queries(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Hedge:
    """Learn measured queries as the rounds of MWEM did."""
    total = begun_total(transcript.steps, transcript.rows, constraints)
    hedge = Hedge(workload.domain, total, constraints)
    for step in transcript.steps:
        if step.place:
            learn_query(hedge, workload, step)
    return hedge


def replay_samples(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Boosted:
    """Learn measured samples of queries as boosting did."""
    total = begun_total(transcript.steps, transcript.rows, constraints)
    boosted = Boosted(workload, total, constraints)
    for step in transcript.steps:
        if step.place:
            learn_sample(boosted, workload, step)
    return boosted


def begun_total(
    steps: Sequence[Step], rows: int | None, constraints: Constraints | None = None
) -> float:
    """The number of records: public, or measured by the first step."""
    if constraints is not None and constraints.total is not None:
        return constraints.total
    return float(steps[0].measurement.values[0]) if rows is None else float(rows)


def learn_query(hedge: Hedge, workload: Workload, step: Step) -> None:
    """One measured query, its answer in steps of the workload."""
    term, query = step.place
    value = float(np.ldexp(step.measurement.values[0], -answer_bits(workload)))
    hedge.learn(workload.terms[term], query, value)


def learn_sample(boosted: Boosted, workload: Workload, step: Step) -> Array:
    """One measured sample of queries; the answers of the synopsis that it gives."""
    bits = answer_bits(workload)
    values = np.ldexp(step.measurement.values, -bits)
    return boosted.learn(step.place, values, step.measurement.noise.variance * 4.0**-bits)
