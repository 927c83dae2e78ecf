# SPDX-License-Identifier: Apache-2.0
"""How hard the audit looks, in one place, each number with its reason.

None of them can make a sound mechanism fail: whatever events are chosen, only fresh runs count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "AuditLimits"]


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """Tables that are tried, events that are learnt, and runs that are made."""

    # examine, of the tables that are tried
    crowd_records: int = 1000
    """Of a crowded cell, in which one more is hardest to see."""
    random_records: int = 6
    """Of a table at random, at most: among few records one shows most."""
    spread_records: int = 24
    """Of a table that has one in every cell, at most."""

    # examine, of the search and the test
    caution: float = 1e-3
    """The chance that an event is taken for more telling than it is."""
    caution_without_choice: float = 0.5
    """Likewise, where a score is yes or no, and so one event."""
    tested_events: int = 2
    """Events that are tested; the confidence is divided by them."""
    runs_minimum: int = 400
    """Runs per table, however slow the mechanism is."""
    cuts: int = 96
    """Thresholds of a score that are considered, besides those near its ends."""
    outputs_at_once: int = 2**20
    """Numbers that are held at a time: 8 MiB."""

    # events, of the scores that are learnt
    bins: int = 48
    """Of one number by itself."""
    discrete_values: int = 64
    """Different values up to which a number counts as discrete."""
    pattern_cells: int = 4096
    """Bins of all numbers together, which few runs can fill."""
    runs_per_column: int = 20
    """For a linear score: with fewer it would fit the noise."""

    # published
    made_up_scores: int = 64
    """Scores that a wrong mechanism is run on: a list that somebody wrote down."""

    # registry, of processes
    subjects_per_worker: int = 8
    """Fewer are not worth a process, which has to plan them all."""


LIMITS: Final = AuditLimits()
