# SPDX-License-Identifier: Apache-2.0
"""The limits of planning in one place, each with its reason.

They decide which search is made, how fine a grid is and what is refused as too large. Equal inputs
give equal plans because these are all that decide. Numbers that a proof uses stand beside its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.solve.solve_limits import LIMITS as SOLVE_LIMITS

__all__ = ["LIMITS", "PlanningLimits"]


@dataclass(frozen=True, slots=True)
class PlanningLimits:
    """What planning searches, how fine its grids are, and what it refuses."""

    factor_entries: int = 2**24
    """Numbers of one matrix of a factorization that a plan lists: 128 MB."""

    # planner: the race of mechanisms
    counted_table_cells: int = 2**27
    """Cells of a table that is counted: its counts take 1 GiB."""
    late_terms: int = 1000
    """Beyond so many groups a plan that is out of time tries plain noise only."""
    late_queries: int = 2**17
    """Likewise, beyond so many queries."""
    hopeless_ratio: float = 2.5
    """Templates gain less than this over trees and tables in all workloads that were tried."""
    rough_ratio: float = 1 + 2.0**-10
    """Rough errors above the minimum by this factor are not computed again exactly."""
    whole_ratio: float = 1 + 2.0**-12
    """Times what noise in whole steps gains at most: up to here rough errors are close enough."""
    candidate_laws: int = 16
    """Laws of noise up to which a candidate has its error in parts: a sum of variances for each."""
    scale_rounded: float = 2.0**-10
    """Relative: above what rounding a scale up to its grid takes from the cost."""
    error_reached: float = 1.0001
    """Times an error to reach: a search that ends above it ended at the least noise drawn."""
    budget_bisections: int = 40
    """Steps in which the least epsilon for an error is searched for: to the last digits."""
    matrix_queries: int = 2**13
    """Queries that may be one matrix, which gains over tables without limit: it is always tried."""
    good_certificate: float = 1.01
    """The certificate at which no further mechanism is tried."""
    smallest_epsilon: float = 1e-9
    """Where delta alone would allow less noise than an error asks for."""

    # mechanisms: which algorithm builds a factorization
    measured_table_cells: int = 2**25
    """Cells of one measured table: 256 MiB of counts."""
    hierarchy_ratio: float = 1.15
    """Error over its bound up to which a tree is compared with nothing else."""
    hierarchy_cells: int = 512
    """Cells of an attribute above which its levels are planned as a tree; symmetries solve less
    to the last digit, in the time that a tree of 10^6 leaves takes."""
    chain_cells: int = 512
    """Cells from which an attribute that is asked by intervals is treated as a chain."""
    few_queries: int = 128
    """So few are solved as one matrix where there are many cells."""
    many_cells: int = 1024
    """Where so many cells are, few queries are solved as one matrix."""
    matrix_entries: int = 2**22
    """Numbers of a matrix that is solved as a whole: a few seconds."""
    joint_queries: int = 2**10
    """Queries that are tried as one matrix where structure is far from its bound."""
    joint_coefficients: int = 2**25
    """Their coefficients over all cells, where structure does not fit: 32 MiB in bytes."""
    joint_parts: int = 64
    """Parts that share the noise where structure does not fit: each is planned for itself."""
    far_ratio: float = 1.03
    """Times the lower bound: from here structure is far from it."""
    interactions_ratio: float = 1.15
    """Error over its bound up to which measuring by interactions is compared with nothing else."""
    joint_steps: float = SOLVE_LIMITS.search_multiplications / 10
    """Multiplications of such an attempt."""

    # calibrate: the grid of noise
    rounded_bits: int = 30
    """Steps per scale, as a power of 2, where measured values are rounded."""
    scale_bits: int = 16
    """A scale is at least 2^16 grid steps: rounding it up costs at most 2^-16 of it."""
    whole_scale_bits: int = 32
    """A scale on the grid of the measured values is rounded up by at most 2^-32 of it."""
    minimum_scale: float = 2.0**-40
    """Below it a grid would have steps that no stored number holds."""

    # adaptive_costs: adaptive releases
    adaptive_scale_bits: int = 16
    """A noise scale is about 2^16 grid steps, so that rounding it up costs little."""
    candidate_cells: int = 2**20
    """Cells of all tables that may be chosen: each round scores all of them."""
    candidate_sets: int = 1000
    """Tables that may be chosen."""
    wide_set_cells: int = 1000
    """Cells of a set of three or more attributes: rows cannot fill larger tables."""

    # forecast: what a plan tells
    covariance_answers: int = 4096
    """Answers of one covariance matrix: 128 MiB."""

    # joint_errors: how far off any answer is
    seed_share: float = 2.0**-16
    """Of beta, for public seeds that mislead: so little that it costs no accuracy of many draws."""
    seed_shares: tuple[float, ...] = (2.0**-16, 2.0**-12, 2.0**-8, 2.0**-6, 2.0**-4)
    """Those that are tried for fewer draws: of 288 the fifth greatest is then the bound."""
    equal_variances: float = 2.0**-20
    """Relative: far above the rounding of variances to grids and floats, which it covers."""
    joint_listed: int = 2**24
    """Answers of a group whose variances are listed; of more the greatest counts for all."""
    joint_codes: int = 2**24
    """Pairs of levels of variances that are counted by their number, without sorting."""
    mixture_least: float = 1e-2
    """Deviations from which a tail of a normal law of random variance is tabulated: chord to 0."""
    mixture_most: float = 64.0
    """Deviations up to which it is: probabilities below 10^-800 do not matter."""
    mixture_places: int = 4096
    """Places of that table: its chords are within 10^-5 of the logarithm."""
    mixture_rounding: float = 1e-9
    """Relative: covers the rounding of floats in its logarithms."""
    joint_levels: int = 128
    """Classes of variances in a factor of e: rounding up costs 0.4% of a bound."""
    joint_bisections: int = 60
    """Halvings of the interval that holds a bound by tails: to the rounding of floats."""
    tilt_bits: int = 24
    """A single Laplace draw is tilted to 2^-23 of where its moments end."""
    joint_draws: int = 20_000
    """Draws of the noise of all answers: the bound is then 2 to 4% above the true quantile."""
    joint_beta: float = 0.05
    """Draws that bound no quantile of this level are not made."""
    joint_size: int = 2**24
    """Answers and measured values together beyond which nothing is simulated."""
    joint_entries: int = 2**24
    """Numbers of the matrix that leads from measured values to answers."""
    joint_multiplications: int = 2**33
    """Of such a matrix with all draws: about a second."""
    dense_share: float = 0.05
    """Of numbers that are not 0: from here a full matrix multiplies faster."""
    sparse_work: int = 6
    """Multiplications that take as long as one of a matrix of few numbers."""
    draw_work: int = 64
    """Multiplications that take as long as one draw."""
    joint_numbers: int = 3 * 2**27
    """Numbers of all draws together where answers follow without a matrix: some seconds."""
    joint_least: int = 600
    """The 15th greatest of so many draws bounds the quantile of level 95%, 5% above it."""
    joint_most: int = 2**30
    """Numbers that may be drawn for that many, or fewer: ten seconds."""
    summed_steps: float = 2.0**17
    """Standard deviations, in steps, up to which the law of a sum is listed: 2^22 numbers."""
    summed_deviations: float = 10.0
    """To each side of such a law, with four scales more: beyond is less than floats resolve."""
    value_work: int = 8
    """Numbers that take as long as the draw of a measured value."""
    group_work: int = 4096
    """Numbers that take as long as a call for one group or one block."""
    joint_held: int = 2**22
    """Numbers of draws that are held at once: 32 MiB."""

    # resources: what a release takes
    histogram_cells: int = 2**20
    """Cells up to which a histogram is fitted to the answers; beyond, weighted rows are."""
    fitted_table_cells: int = 2**24
    """Cells of all tables that rows are fitted to, at some 140 bytes each; answers too."""
    base_bytes: int = 400 * 2**20
    """The program, its packages and the buffers of an engine."""
    group_bytes: int = 128
    """Of an occupied cell in the hash tables of DuckDB, on two threads."""
    cell_seconds: float = 40e-9
    """To fill, clamp and read a cell of a table of counts."""
    projected_cell_bytes: int = 140
    """Of a cell of a table that answers are projected with."""
    projected_cell_seconds: float = 2e-6
    """To project such a cell."""
    rows_seconds: float = 5.0
    """More where cells cannot be listed and weighted rows are fitted."""
    file_part_bytes: int = 150 * 2**20
    """Rows of a file that are made at a time."""
    label_bytes: int = 300
    """Of the words for one query along one attribute."""
    unit_record_seconds: float = 500e-9
    """To hash and rank a record of a privacy unit."""

    # sparse_plans: sparse vectors
    false_alarm: Fraction = Fraction(1, 2**20)
    """How often Gaussian query noise finds a score above that is as far below as can be."""
    sparse_scale_bits: int = 32
    """Scales are whole multiples of 2^-32 steps."""
    sparse_splits: int = 256
    """Ways to divide mu between threshold and scores that are tried."""
    threshold_pieces: int = 2**14
    """Of the threshold's law; wider than one step only at scales above some 100."""
    threshold_few_pieces: int = 2**9
    """The same while an offset is searched."""
    sparse_grid_bits: int = 8
    """Scores are compared in steps of 2^-8."""

    # selection_plans: the top few of many candidates
    selection_candidates: int = 2**22
    """Candidates that are chosen from at once: 32 MiB of scores, and as many words of noise."""
    selection_top: int = 1000
    """Candidates that are chosen at once: the ledger lists the cost of each choice."""
    selection_entries: int = 2**20
    """Coefficients of all candidates over all cells that are written out to find their spread."""
    selection_pairs: int = 2**26
    """Differences of two columns, times queries, that are looked at for a replaced record."""
    selection_splits: int = 32
    """Parts of a budget, of which 1 to 31 are tried for the counts of the chosen ones."""
    selection_pieces: int = 2**12
    """Of the law of noise on every score: a piece is 1/50 of a scale, and errs to the safe side."""

    # stream_plans: filters of streams
    stream_tolerance: float = 1e-4
    """Relative, of the scales of a filter."""
    pole_accuracy: float = 1e-4
    """Relative accuracy of the poles: it costs about that much error."""
    stretch_factor: float = 1.06
    """By which stretches of time with fixed gains grow."""
    scale_corrections: int = 8
    """Of the scales of running totals."""
    stream_gap: float = 1.5e-4
    """Above the lower bound: no further correction."""
    scale_damping: float = 0.3
    """Of a correction, without which it oscillates."""
    window_kinks: int = 4
    """The scales of windows bend at the end and this many widths before it."""
    uniform_widths: int = 16
    """Beyond this many widths the middle of a stream is uniform."""
    dual_steps: int = 80
    """Of the scales of windows."""
    dual_power: float = 1.5
    """Of a dual step: the exponent that converged in the fewest steps."""
    root_pole_accuracy: float = 1e-10
    """On the positive axis; on the unit circle, where it is used, about its root."""
    stream_steps: int = 2**22
    """Steps of a stream: its filter is built in seconds."""
    window_steps: int = 2**17
    """Steps of a window: its filter keeps about 10 numbers for each."""
    stream_value: int = 2**32
    """The most that one person may add to a step."""
    stream_exact_bits: int = 16
    """Noise on whole numbers: at least 2^16 steps per scale, as for tables."""
    stream_rounded_bits: tuple[int, int] = (20, 36)
    """Noise on rounded values: steps per scale, at least and at most."""

    # division: tables of few and of many attributes
    expected_square: tuple[float, ...] = (0.05, 0.015)
    """Squared shares of all cells that pieces of two, three and more attributes have: means of six
    tables of people were 0.01 to 0.09 and 0.003 to 0.024, medians a third of that; with 0.02 and
    0.005 root mean squared and largest errors were larger where attributes depend strongly."""
    length_error: float = 0.15
    """The noise of the length of all pieces of several attributes, which says how far these depend
    on each other, as a part of what it usually is."""
    length_share: tuple[float, float] = (0.03, 0.004)
    """Of the budget for it at most, and at least: other standard errors grow by 1.5%, 0.2%."""
    length_gain: float = 0.05
    """Of the squared error that is expected to be gained where tables are nearly independent
    (``length_least``): for less no length is measured."""
    length_least: float = 0.05
    """Times the expected squares, at which that is looked at."""
    length_usual: float = 0.8
    """Times the expected squares: the median that is taken for tables before a length is known."""
    length_spread: float = 1.4
    """The standard deviation of its logarithm: a factor of four."""
    length_power: float = 1.5
    """What is expected grows with this power of the squares that a length tells: where attributes
    depend strongly, large counts stand out of noise, and projections keep them."""
    length_factor: float = 2.5
    """Times that power: with the true squares alone, chains of 360 cells had 1.23 times the error
    of the better estimate at epsilon 0.1, with four times them 1.05."""
    length_most: float = 3.0
    """Times what is expected at most: pieces are long, too, where attributes are skewed and next to
    independent. Without it, 3,000 characters of Unicode had twice the error of one-way tables at
    epsilon 0.1 (1.03 times with 3, 0.8 with 1); with 1 clustered records had 1.9 times that of the
    projection (1.4 with 3, 1.03 without)."""
    part_halvings: int = 12
    """Of the search for what is left to all pieces alike: to a thousandth part."""
    length_bits: int = 20
    """Bits after the point of a noisy length."""
    cells_that_matter: float = 50.0
    """Cells of a piece whose noise counts in full; of more the root, as large tables are mostly
    empty."""
    division_least: float = 0.12
    """Of the planned budget of a piece that is left for it: standard errors grow threefold. With
    0.04 the largest error of triples of 1,304 records was half as large again, with 0.12 the mean
    error of pairs where noise hides all is 3% larger."""
    division_gain: float = 0.03
    """Of the squared error that is expected: for less the budget is not divided anew."""
    division_slack: float = 2.0**-20
    """Of a loss, for scales that are rounded."""
    division_halvings: int = 60
    """Of the search for a level: to the last digits of floats."""

    # plans of a bound on the rows of a unit
    bound_miss: float = 0.05
    """How often a search for a bound may be off by more than its tolerance: as in intervals."""
    bound_end: float = 0.001
    """How often its walk may go on beyond a bound that nobody exceeds: that may end anywhere."""
    bound_shares: tuple[Fraction, Fraction] = (Fraction(1, 50), Fraction(1, 5))
    """Least and greatest share of epsilon for a bound: less is not worth planning, and more than
    a column takes would cost the answers what a better bound gains."""

    # range plans
    range_simulations: int = 200
    """Searches that a forecast simulates: shares are known to about 2 in 100."""
    range_sample: int = 20_000
    """Made-up records of a forecast; more are those of a sample, scaled up."""
    bin_noise: float = 6.0
    """Least records of an average bin, in standard errors of its count: bars stand out."""
    least_bins: int = 5
    """Fewer bins show no shape."""
    most_bins: int = 50
    """More bins than people look at."""


LIMITS: Final = PlanningLimits()
