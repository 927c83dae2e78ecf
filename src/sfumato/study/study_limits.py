# SPDX-License-Identifier: Apache-2.0
"""The limits of the study room in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfumato.solve.effort import STEPS_PER_SECOND

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

    # supports
    inside_tolerance: float = 1e-6
    """The distance within which a point is inside, of its length or that of the hull."""
    separation_gaps: tuple[float, ...] = (1e-6, 1e-9, 1e-12)
    """Gaps of the projection that are tried, one after the other, until either is proved."""
    reach_rounding: float = 2.0**-40
    """What rounding may add to a product with a column, of the lengths: more than floats do."""

    # matrix_norms
    matrix_entries: int = 2**26
    """Entries of a matrix that is held: 512 MB."""
    coefficient_maximum: float = 1e60
    """The size of a coefficient, and of its inverse: squares of squares stay within floats."""
    reconstruction_error: float = 1e-8
    """The part of its maximal coefficient that may be missing from a query in R M."""
    approximate_tolerance: float = 1e-3
    """Relative, of gamma_alpha where nothing else is asked for."""

    # experts
    bisection_steps: int = 200
    """Steps of the search for the noise that a budget pays for."""

    # local_model
    response_cells: int = 10_000_000
    """Cells that one response may have: an estimate holds a few arrays of this length."""
    reports_at_once: int = 1 << 20
    """Reports that are made at a time."""
    covariance_cells: int = 4096
    """Cells for which the covariance is written out as a matrix: 128 MB."""
    product_entries: int = 100_000_000
    """Queries times cells that product queries write out: 800 MB."""

    # projection_forecast
    forecast_records: int = 10**15
    """Records of a forecast: their number is exact in floats."""
    split_draws: int = 256
    """Draws of the widths across the principal directions, unless a number is given."""
    forecast_queries: int = 2**22
    """Queries of a plan whose releases are tried out."""
    reach_draws_minimum: int = 8
    """Draws of the reach of the hull along the noise, without which there is no bound."""
    reach_level: float = 0.95
    """The probability with which the bound on the reach holds over the draws."""
    reach_sums: int = 500
    """Times that tables which no order of elimination keeps small are added up."""
    releases_tried: int = 4
    """Releases of made-up records behind the error of a planned one."""
    typical_kinds: int = 10
    """Kinds of made-up records where combinations of cells cannot be listed."""
    typical_skew: float = 1.5
    """The exponent with which the shares of their cells fall with the rank."""
    typical_common: float = 0.7
    """The part of them whose cells are ranked alike in all kinds."""
    after_projection_multiplications: float = 6 * STEPS_PER_SECOND
    """Multiplications of a forecast after projection, some seconds of one core."""

    # simulated, projection_forecast
    records_drawn: int = 10**5
    """Made-up records that are drawn one by one; more are as many times heavier, or shares."""
    simulated_runs: int = 8
    """Runs of a mechanism on made-up data."""
    simulated_gap: float = 1e-4
    """The gap of a projection on made-up data, of what it moves, squared."""
    simulated_size: int = 2**20
    """Queries and measurements that one run may draw: about a second."""
    simulated_answers: int = 20_000
    """Few queries are simulated more often, up to this many answers in all runs together."""
    simulated_numbers: int = 2**22
    """Numbers that all runs together may draw, beyond the minimum of runs."""
    simulated_runs_minimum: int = 4
    """Fewer runs give no standard error."""
    simulated_runs_maximum: int = 200
    """More runs sharpen an error of few queries by less than a chart shows."""
    surrogate_kinds: tuple[int, ...] = (1, 2, 4, 8)
    """Kinds of made-up records, run by run."""

    # supports
    support_steps: int = 500
    """Steps of the search for a bound on a support function."""
    support_step: float = 1.6
    """Over-relaxation of a step."""
    support_check: int = 10
    """Steps between two looks at the balance of primal and dual changes."""
    support_balance: float = 3.0
    """The ratio of primal and dual changes beyond which the pull is changed."""
    support_changes: int = 30
    """Changes of the pull, after which it stays so that the search converges."""
    support_close: float = 1e-6
    """The relative distance of bound and score at which the search ends."""
    support_rounding: float = 1e-12
    """The part of all scores by which sums of tables may differ by rounding; the bound is
    raised by it."""

    # lower_bounds
    bound_cells: int = 2048
    """Cells among which directions are sought: some seconds of eigenvalues."""
    bound_exponent: float = 700.0
    """Beyond it the error of one number is below the least float; it is called 0."""
    bound_bit_exponent: float = 20.0
    """The greatest loss at which a bit is tried; the error of a bit is largest at about 2.4."""
    bound_bit_lengths: int = 400
    """Lengths of a bit that are tried: neighbours differ by a twentieth at most."""
    bound_rank_tolerance: float = 1e-7
    """A column nearer than this part of the longest to the span of others tells nothing more."""
    bound_condition: float = 1e10
    """The inverse of a matrix of a greater condition is not used as a scaling."""

    # local_factorization
    local_factorization_size: int = 1024
    """Queries and cells of a matrix that is factored: some seconds."""
    local_row_weight: int = 2**20
    """The weight of the row that is drawn most often: chances are exact to a millionth."""
    local_row_tolerance: float = 1e-12
    """A row that varies by less is a constant but for rounding."""

    # reconstruction
    reconstruction_persons: int = 2000
    """Persons whose bits are guessed: a least-squares problem of that size takes seconds."""
    reconstruction_queries: int = 100_000
    """Answers of one attack: 1.6 GB at the greatest number of persons."""

    # conjunction sets
    conjunction_attributes: int = 40
    """Attributes of a set of conjunctions: seconds, and binomials that floats still hold."""


LIMITS: Final = StudyLimits()
