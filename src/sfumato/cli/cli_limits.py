# SPDX-License-Identifier: Apache-2.0
"""What the commands try, draw and show at most, each number with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = ["LIMITS", "CliLimits"]


@dataclass(frozen=True, slots=True)
class CliLimits:
    """Sizes that steer the commands; none of them decides about privacy."""

    # ask_command, of questions
    question_file_bytes: int = 2**22
    """Of a file of questions, which is read as a whole: some fifty thousand of them."""

    # discover_command
    keys_shown: int = 20
    """Keys of a column that are listed on a terminal; all of them are in the document."""

    # describe_command, of what is released next
    least_share_left: Fraction = Fraction(1, 100)
    """Of the description's epsilon: with less left in the ledger nothing useful can follow."""

    # plan_command, of groups
    first_groups: int = 9
    """Groups that are listed before those that are left out, unless --all is given."""
    last_groups: int = 3
    """Groups that are listed after them."""

    # compare_command, of curves
    error_ratio_shown: float = 3.0
    """Times the minimum error: beyond, a mechanism is no candidate."""

    # comparison, of simulated noise
    simulated_mechanisms: int = 6
    """More curves of simulated errors along epsilon could not be told apart in one chart."""

    # comparison, of made-up records
    trial_runs: int = 4
    """Runs of each way whose error depends on the records."""
    measured_coefficients: int = 2**20
    """Coefficients (queries times cells) up to which ways are measured on made-up records."""
    measured_runs_minimum: int = 3
    """Runs of a workload with many queries, each of which averages over all of them."""
    measured_runs_maximum: int = 8
    """Runs of a workload with few queries, which say less each time."""
    measured_answers: int = 100
    """Answers that all runs of few queries should have together."""
    part_seconds: int = 2
    """Worth of steps for the plan of a part of the queries."""
    part_cells: int = 1024
    """Cells up to which parts of the queries are planned one by one."""
    records_shown: int = 10**12
    """Number of records around which errors are drawn, if none is named."""

    # comparison, of curves that cross
    equal_curves: float = 1e-6
    """Relative distance below which curves run together and do not cross."""


LIMITS: Final = CliLimits()
