# SPDX-License-Identifier: Apache-2.0
"""The limits of the study room in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "LIMITS",
    "StudyLimits",
]


@dataclass(frozen=True, slots=True)
class StudyLimits:
    """Sizes that are refused, draws and tolerances of what the room computes."""

    # widths: the support function
    hull_table_cells: int = 10_000_000
    """Cells of a table that is built on the way to a maximum: 80 MB."""
    direction_queries: int = 2**27
    """Queries of a direction, one number each: 1 GiB."""
    hull_matrix_entries: int = 2**23
    """Coefficients up to which the columns of a workload are written out: 64 MB."""
    additions_per_table: int = 20_000
    """Additions that take as long as handling one table."""
    entries_added_at_once: int = 2**18
    """Entries of a table that are added up at once, so that they stay within the cache."""
    diffusion_sweeps: int = 60
    """Sweeps over the attributes that make tables agree on what each value is worth."""
    diffusion_gain: float = 2e-3
    """The part of the bound that a sweep must gain for another one to be made."""
    climb_starts: int = 64
    """Cells from which a climb to a cell of great value begins."""
    climb_rounds: int = 50
    """Rounds over the attributes of one climb."""

    # widths: Monte Carlo
    width_additions: float = 3e8
    """Additions that are spent on draws, unless a number of draws is given: about a second."""
    width_draws_minimum: int = 24
    """Draws of a width, however long each takes."""
    width_draws_maximum: int = 512
    """Draws of a width, however quick each is; eight times as many where the matrix is small."""
    width_draws_of_bounds: int = 16
    """Draws where only bounds on the support function are known, and those take longer."""
    width_draws_allowed: int = 10**6
    """Draws that may be given by a caller."""
    width_draws_at_once: int = 256
    """Draws that are held at once."""
    interactions_listed: int = 2**18
    """Subsets of attributes that are listed for the dimension of the hull."""
    principal_dimensions: int = 768
    """The size of an eigenvalue problem that takes about a second."""
    projected_noise_draws: int = 32
    """Draws of the noise of a strategy, in whose directions the hull is measured."""


LIMITS: Final = StudyLimits()
