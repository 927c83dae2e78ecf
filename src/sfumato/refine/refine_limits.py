# SPDX-License-Identifier: Apache-2.0
"""The limits of the refine room in one place: what decides, what is refused, and why.

Values that steer a choice or end a search, grouped by the module that reads them. They are public
and fixed: the same measurements give the same published answers on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfumato.solve.effort import STEPS_PER_SECOND

__all__ = [
    "LIMITS",
    "RefineLimits",
]


@dataclass(frozen=True, slots=True)
class RefineLimits:
    """Sizes that are refused, thresholds between estimators, steps and tolerances of searches."""

    # consistency: which estimate is published
    projection_gap: float = 1e-9
    """The relative gap at which a projection is as good as exact: answers are off by at most
    3e-5 of the way they moved."""
    projection_error_ignored: float = 5e-3
    """Or it is off by this part of about how far the projection is from the truth
    (``projected_square``)."""
    projection_error_published: float = 0.3
    """The part of that distance up to which a search that ran out of steps is still published
    as a projection; beyond it the unbiased answers are."""
    minimax_cells: int = 2**12
    """Cells, and answers, up to which a plan for the maximum error gets the minimax histogram:
    it takes some forty projections."""
    rows_misfit: float = 1.2
    """Times the expected squared noise by which weighted rows may miss the answers; rows beyond
    it contradict what was measured and are not published."""
    exact_variance: float = 1e-6
    """The part of the maximum variance below which an answer is not taken to be better: an
    exact one would outweigh all others."""
    search_multiplications: float = 60 * STEPS_PER_SECOND
    """Multiplications of one search for cells or rows, about a minute of one core, the same on
    every machine."""
    coarse_gap: float = 0.01
    """The relative gap at which searches for the minimax histogram and for rows stop."""

    # problem: the grid, and the quadratic function over it
    cells_listed: int = 10**7
    """Merged cells that a projection lists, ten arrays of them: 0.8 GB; beyond that there are
    rows."""
    compiled_sums: int = 2**20
    """Cells times sets of attributes from which margins are summed by compiled loops: below, those
    take less time than loading them."""
    bundle_cells: int = 32
    """Cells of neighbouring attributes that are summed out as one."""
    slices_added_singly: int = 8
    """Slices that are added one by one: numpy is slow on short inner loops."""
    coefficients_inspected: int = 2**22
    """Coefficients of a group that are written out to add up their sizes: 32 MB."""
    attribute_gram_cells: int = 2048
    """Cells of an attribute whose Gram matrix is written out: 32 MB."""
    set_gram_cells: int = 1536
    """Cells of a set of attributes whose Gram matrix is written out: 18 MB."""
    product_gram_cells: int = 4096
    """The same where it is one of products, which takes no time: 128 MB, for Newton steps alone."""
    gram_coefficients: int = 2**24
    """Coefficients that are written out on the way to such a matrix: 128 MB."""
    gram_multiplications: float = 2e11
    """Multiplications on the way to such a matrix from stored coefficients, some queries at a time:
    about ten seconds."""
    joint_gram_margins: int = 4096
    """Margins of all sets whose joint Gram matrix is written out: 128 MB."""
    singular_variance: float = 1e-10
    """The part of the maximum variance below which a combination of answers counts as exact."""
    exact_combination_error: float = 1e-6
    """How far, of the maximum answer, an exact combination may be off what all data sets have."""

    # cell_solvers: the certificate
    slope_rounding: float = 1e-14
    """The part of the numbers in a slope's sum below which a gap is float rounding."""
    groups_tried_for_length: int = 4
    """Groups, the smallest first, that are tried for a vector that bounds an unknown total."""

    # cell_solvers: few cells (active set)
    active_set_rounds: int = 2000
    """Rounds in which cells enter; rounding ends the search long before."""
    active_set_weights_tolerance: float = 0.02
    """The part of the maximum violation of a slope to which weights are solved: cells still
    change."""
    active_set_patience: int = 25
    """Rounds without a smaller gap after which rounding is all that is left."""

    # cell_solvers: all cells (accelerated gradient)
    cell_power_steps: int = 12
    """Power iterations for the maximum eigenvalue; the step length allows for what they miss."""
    steps_between_bounds: int = 10
    """Steps between two certificates, each of which costs about as much as a step."""
    quick_gap_ratio: float = 0.5
    """The part of the gap left between two certificates where it falls quickly enough to go on."""

    # cell_solvers: all cells (interior point)
    newton_margins: int = 4096
    """The order of a matrix whose factorization takes about a second."""
    newton_margin_sums: float = 3e7
    """Cells times pairs of sets that are summed to get that matrix."""
    newton_band_entries: float = 2e7
    """Entries of a banded matrix: 160 MB."""
    newton_band_multiplications: float = 5e9
    """Multiplications that factorize a banded matrix, about a second."""
    newton_cells_minimum: int = 128
    """Cells in use below which entering them one by one is quicker than any Newton step."""
    newton_steps: int = 100
    """Newton steps; some twenty suffice."""
    newton_step_share: float = 0.995
    """The part of the way to the nearest boundary that a step goes."""
    weightless_ratios: tuple[float, ...] = (1.0, 1e-2, 1e-4, 1e-6, 1e-8)
    """Ratios of a weight to its slope below which a cell counts as empty, tried in turn."""
    newton_patience: int = 5
    """Steps that bring nothing after which rounding is all that is left."""

    # cells: published tables (method of multipliers)
    multiplier_rounds: int = 40
    """Projections, each with new multipliers."""
    multiplier_weight: float = 10.0
    """The first weight of a published count, against the maximum weight of an answer."""
    multiplier_weight_maximum: float = 1e6
    """The weight above which it grows no more: the projections would be ill-conditioned."""
    multiplier_slow: float = 0.25
    """The part of the difference left after a round above which the weight grows."""
    multiplier_round_gap: float = 0.2
    """The part of the gap that is aimed at to which a round is solved."""
    margins_met: float = 1e-16
    """Half the squared difference from counts near 1 that counts as none."""
    feasible_share: float = 1e-3
    """The share of a feasible histogram that is mixed in where raking alone does not get there."""

    # cells: the choice of a solver
    value_floor: float = 1e-6
    """The part of |y|^2 / 2 that is added to the value a gap is relative to: else answers that fit
    exactly would allow no gap."""
    independent_queries_few: int = 4000
    """Independent queries up to which few cells are tried at once; beyond, a glance over all
    cells comes first."""
    cells_in_use: int = 3000
    """Cells in use whose weights are solved for as one dense problem."""
    glance_steps: int = 40
    """Gradient steps over all cells, enough where queries hardly overlap."""

    # cells: the minimax histogram
    minimax_rounds: int = 200
    """Weighted projections of one game."""
    minimax_patience: int = 40
    """Rounds in which neither bound moved after which the game ends."""
    minimax_step: float = 1.5
    """With 1 the lower bound rises in every round (Lawson); 1.5 takes two thirds of the rounds,
    from 2 on the histograms swing."""
    minimax_weight_minimum: float = 1e-12
    """The minimum share of weight of a query: one that fits now may be the worst later."""
    minimax_floor: float = 1e-4
    """The part of the maximum s|y| that is added to the value a gap is relative to."""

    # feasibility
    sliver: float = 1e-13
    """The part of all records below which a weight is rounding."""

    # row_problem: a fit seen from rows
    truth_values_at_once: int = 2**24
    """Truth values of conditions on rows that are held at once."""
    truth_values_stored: int = 2**23
    """Truth values that are stored for rows that stay: 64 MB."""
    row_power_steps: int = 10
    """Power iterations for the maximum eigenvalue of a part."""
    row_power_factor: float = 1.1
    """Power iteration approaches the maximum eigenvalue from below: its result is raised by
    this."""
    published_weight: float = 4.0
    """The weight of published counts while rows are searched, against the maximum weight of an
    answer."""
    feasible_rows_share: float = 1e-3
    """The share of weight for rows that are added where published counts need some."""

    row_entry_steps: float = 24.0
    """Multiplications in the time of one entry of a row that is looked up by its place."""
    run_entry_steps: float = 24.0
    """Multiplications in the time of one entry in a run of neighbours that are added up, where the
    tables are larger than caches; smaller ones take a quarter."""

    # rows: where rows start
    product_rounds: int = 40
    """Steps towards the best product of one-way tables; a start need not be the best one."""
    product_rounds_large: int = 8
    """The steps where tables are large: a start must not take longer than the search."""
    row_tables_large: int = 2**22
    """Cells of all tables above which a pass over them takes a noticeable part of a second."""
    product_step_minimum: float = 2.0**-40
    """The step below which no better product is looked for."""
    product_step_growth: float = 2.0
    """How much longer the next step is than one that succeeded."""
    product_gain: float = 1e-3
    """The relative gain of a step below which it is the last."""
    product_exponent: float = 5.0
    """The most that the logarithm of a share moves at once."""
    product_share_minimum: float = 1e-12
    """What every share is raised by, so that none falls to 0 for good."""
    rows_minimum: int = 5_000
    """Rows, unless a number is given, however few records there are."""
    rows_maximum: int = 25_000
    """Rows, unless a number is given, however many records there are."""
    rows_splits: int = 4
    """The first rows weigh this many times the last ones."""

    # rows: moving, weighing and finding rows
    row_gap: float = 0.05
    """The relative gap, as far as a search can see, at which it ends, unless another is given."""
    row_sweeps: int = 80
    """Sweeps in which rows move, most of them over few rows, before each split."""
    row_sweep_gain: float = 1e-3
    """The relative gain of a sweep below which it is the last."""
    row_sweeps_again: int = 3
    """Sweeps over the rows nearest to a move, between two over all rows."""
    row_sweep_share: float = 0.125
    """The share of the rows that such a sweep visits."""
    row_moves_few: float = 0.25
    """The share of rows that moved up to which margins are changed by those rows alone."""
    row_weights_gain: float = 1e-9
    """The relative gain of a step over the weights below which it is the last."""
    row_weights_steps: int = 25
    """Steps over the weights in a round of the search."""
    row_weights_steps_large: int = 6
    """The steps where tables are large and each takes seconds."""
    scores_listed: int = 2**17
    """Cells of a domain whose every score is looked at for the minimum, which then is proved."""
    rows_added: int = 2_000
    """Rows that a round looks for."""
    row_descents: int = 4
    """Passes over the attributes of a new row towards a lower score."""
    row_weight_minimum: float = 1e-9
    """The part of the mean weight below which a row is dropped."""
    row_rounds: int = 20
    """Rounds that look for new rows, unless another number is given."""
    row_round_pays: int = 10
    """The last round, unless it lowered f by one over this of the gap that is aimed at."""
    row_attributes_changed: int = 3
    """Attributes of a row that take a new cell before it descends."""

    # shrink: the prior around independence
    prior_rounds: int = 3
    """Turns in which shares and dispersions are fitted."""
    prior_sweeps: int = 50
    """Sweeps of alternating least squares in a turn."""
    prior_shares_settled: float = 1e-4
    """The change of the shares of an attribute, in L1, below which a sweep is the last."""
    prior_count_minimum: float = 0.1
    """Rarer cells are expected as if a tenth of a record were."""
    prior_variance_minimum: float = 1e-12
    """A variance below it is taken for it: exact tables would divide by zero."""
    even_pull_rest: float = 1e-6
    """The part of the way to even shares that is never gone."""
    dispersion_minimum: float = 1.0
    """tau of independent records; tables scatter no less."""
    dispersion_maximum: float = 1e12
    """tau at which a prior says nothing."""
    dispersion_cells: int = 2**13
    """Cells of a table, the most frequent ones, that tau is fitted to."""
    dispersion_grid: int = 49
    """Values of tau that are compared at once."""
    dispersion_refinements: int = 2
    """Grids, each around the best of the one before."""

    prior_translation: float = 2.0
    """Standard errors of its noise by which the prior moves a cell at most: with fewer it helps
    less where attributes are independent, with more it harms single large cells."""

    inner_table_matters: float = 0.01
    """Of what is known of a margin: if larger tables leave less of it unsaid, it is left out."""

    # shrink, consistency: how much of each estimate
    held_out_error: float = 0.2
    """The standard error of a weight from which what was measured is split more than once."""
    held_out_draws: int = 4
    """Draws of the planned noise at most, each with both signs, that split what was measured:
    tables of thousands of cells need one, and one sign."""
    held_out_answers: int = 1_000
    """Answers, those of all splits together, that evidence comes from at least, as far as so many
    draws allow: a table of 360 cells lost 13% more to the better estimate with one split."""
    held_out_scale: float = 0.25
    """Noise that is added for estimates to be judged by, in standard deviations: they are judged
    at 1.03 times the noise. At 0.5 projections followed a seventh less of it than at 0, at 0.25 a
    tenth less; with less the errors of searches weigh more."""
    held_out_belief: float = 0.5
    """The standard deviation around equal shares that best ones are taken to have: on 44 kinds of
    made-up tables errors over the better of projection and prior were 0.955 (mean L1) and 0.945
    (root mean squared) on average; with 1 less, but up to 1.30 and 1.16 in the worst case (1.15 and
    1.06 with 0.5)."""
    tables_matter: float = 0.25
    """The share of tables that agree but that no histogram has below which they are left out: one
    histogram behind all answers is worth a little error."""
    rows_far: float = 0.5
    """Rows farther from the projection, against the noise, as far as their search can see, are
    searched again for a smaller gap, and judged beside tables that agree."""
    count_stands_out: float = 7.0
    """Standard errors above zero from which a count of a table is published near what was
    measured. From 6 on the one or two that noise itself had put there, out of 1,792 cells of
    independent attributes, raised the largest error by two thirds."""
    count_held: float = 3.0
    """The weight of such a count against its inverse variance, while others stay as they are: with
    10 mean L1 errors were within 3%, some less and some more."""
    held_out_ignored: float = 0.01
    """A share below which an estimate is left out."""
    held_out_rounding: float = 1e-10
    """Relative: estimates that differ by less are taken for the same."""
    held_out_gap: float = 0.02
    """Searches over cells that say how estimates are mixed end at this part of about how far the
    projection is from the truth."""
    prior_gap: float = 0.01
    """The same of the estimate with the prior that is mixed."""
    prior_cells: int = 2**13
    """Merged cells up to which the estimate with the prior is searched among all of them; nearly
    all cells carry weight there, so beyond that weighted rows are found much sooner."""
    row_search_share: float = 0.5
    """The part of the steps of a release for each of the two searches whose results are mixed."""
    held_out_share: float = 0.5
    """The part of the steps for all searches that say how those two are mixed."""

    # intervals
    whole_number_rounding: float = 1e-9
    """Relative: ends so near to a whole number are taken for it."""
    enclosing_share: float = 0.1
    """The part of what may be missed for coarser answers that enclose one of an adaptive release:
    intervals of what was measured are two percent wider for it at 95%."""
    enclosing_attributes: int = 4
    """Attributes of a table up to which all of its margins enclose it, at most 15 of them."""
    calibrated_answers: int = 200
    """Like answers below which their error is not estimated: their intervals are of the noise."""
    calibrated_noise: float = 2.5
    """Standard errors by which the estimated squared error is raised before intervals are made."""
    calibrated_pairs: int = 4
    """Pairs of public draws of the noise that tell how much answers share."""
    calibrated_level: float = 0.95
    """The level at which the next two were fixed."""
    calibrated_below: float = 2.0
    """The part of a calibrated interval of 95% below the answer, in estimated errors; with the
    next fixed on made-up tables (``python -m bench intervals``)."""
    calibrated_above: float = 3.0
    """The part above: a small published count hides a larger one more often than the reverse."""
    calibrated_floor: float = 0.02
    """What is added to a count for its error, as a share of the mean count; at least one record."""
    calibrated_least: float = 0.25
    """The least dispersion of a count, in counts; records that are drawn independently have 1."""
    calibrated_gain: float = 0.9
    """The part of the noise that the estimated error must stay below for intervals to shrink."""
    calibrated_freedom: float = 4.0
    """Degrees of freedom of Student's law by which ends grow with the level: errors of like counts
    have longer tails than noise."""
    calibrated_far: float = 0.1
    """The part of what may be missed for which the interval of the noise is wide enough to cut a
    calibrated one."""
    bootstrap_draws: int = 200
    """Releases that a bootstrap repeats; the 95% quantile is then the tenth largest error."""
    bootstrap_errors: int = 2**26
    """Errors that a bootstrap stores: a quarter of a GiB."""

    # learn: maximum entropy
    loop_rows: int = 30_000
    """Rows of the model while tables are measured."""
    final_rows: int = 200_000
    """Rows of the model that is published."""
    final_rounds: int = 3
    """Times that those rows are drawn anew."""
    published_variance: float = 0.01
    """The variance that published counts are taken to have."""
    evenness_minimum: float = 0.5
    """Effective rows, as a share, below which they are drawn anew."""
    potential_step: float = 3.0
    """The most that a potential moves at once; rows are a sample, and few in rare cells."""
    one_way_share_minimum: float = 1e-9
    """The part of the uniform in the shares of an attribute: no cell is impossible because its
    noisy count is negative."""
    looseness_maximum: float = 1e4
    """How much looser than sampling noise a dependence is taken to be."""
    looseness_margin: float = 0.3
    """Standard deviations of the excess that are added to it."""
    metropolis_steps: int = 3
    """Metropolis steps per attribute when rows are drawn anew."""

    # learn: multiplicative weights and synopses
    learned_cells: int = 2**21
    """Cells of the domain, one number each, that multiplicative weights and boosting hold."""
    hedge_passes: int = 10
    """Passes over all measured queries after each new one."""
    hedge_passes_maximum: int = 50
    """Passes where the error still falls."""
    hedge_settled: float = 1e-2
    """The part of the error in the measured queries that a pass must remove for another one."""
    evenness_weight: float = 0.01
    """With 1 a synopsis is the likeliest histogram of records drawn evenly at random; data are
    not like that."""
    synopsis_steps: int = 500
    """Iterations of L-BFGS for one synopsis."""
    completed_rows: int = 30_000
    """Rows where attributes that nobody asks about are drawn."""

    # residuals
    subsets_listed: int = 2**20
    """Subsets of sets of attributes, each with a residual of its own."""
    eigenvalue_rounding: float = 1e-12
    """Relative: eigenvalues this near are equal, and this small are 0."""

    # local_consistency: fits that are not diagonal
    step_turns: int = 60
    """Conjugate gradients of one step, which need not be solved exactly."""
    bound_turns: int = 300
    """Conjugate gradients of the start and of a lower bound."""
    gradient_rounding: float = 1e-13
    """The part of a gradient's summands below which it is rounding, and steps along it go
    anywhere."""
    turn_reduction: float = 1e-2
    """The part of the residual at which the conjugate gradients of one step end."""

    # local_consistency: tables made feasible
    even_shares: tuple[float, ...] = (0.0, 0.01, 0.1)
    """Shares of the uniform that are tried before what is still negative is patched."""
    independence_floor: float = 1e-3
    """The share of the uniform in the model of independence."""
    zero_turns: int = 400
    """Conjugate gradients that empty impossible cells."""
    zero_rounding: float = 1e-14
    """The part of the total that may be left on impossible cells."""
    inside_rows_drawn: int = 20_000
    """Rows from the product of margins."""
    inside_rows: int = 2**20
    """Rows, one in every possible cell of every table."""
    inside_even_share: float = 0.1
    """The share of the uniform in that product."""
    inside_cells_share: float = 0.5
    """The share of weight for rows that make every possible cell positive."""

    # local_consistency, semidefinite: splitting
    relaxation_gap: float = 1e-6
    """The relative gap of a projection onto a relaxation, unless another is given."""
    relaxation_multiplications: float = 300 * STEPS_PER_SECOND
    """Multiplications of a projection onto a relaxation, about five minutes of one core."""
    gap_rounding: float = 1e-13
    """The part of f at zero that floats leave of a gap."""
    gap_denominator: float = 1e-300
    """Keeps a relative gap finite where f is 0."""
    local_steps: int = 4000
    """Steps of local consistency."""
    local_steps_few: int = 200
    """Steps where its tables are one estimate of several: a search that needs more has tables with
    much noise, where rows are nearer to the truth."""
    local_step: float = 1.8
    """The over-relaxation; any below 2 converges."""
    local_pull: float = 3.0
    """The pull of a table at first, against the precision of its cells."""
    local_balance: float = 5.0
    """How far two parts of the gap may differ before the pulls are changed."""
    local_changes: int = 12
    """Times that pulls are raised: a search that never settles them would not converge."""
    moment_steps: int = 3000
    """Steps of the semidefinite relaxation."""
    moment_step: float = 1.7
    """The over-relaxation; any below 2 converges."""
    moment_balance: float = 3.0
    """How far the primal and the dual residual may differ before the pull is changed."""
    moment_changes: int = 15
    """Times that the pull is changed."""
    moment_attributes: int = 2000
    """Attributes: one eigendecomposition takes seconds."""
    mixing_sweeps: int = 1000
    """Sweeps of the mixing method over all unit vectors."""
    mixing_settled: float = 1e-10
    """The relative gain of a sweep below which it is the last."""
    mixing_rounding: float = 1e-12
    """The part of all coefficients that is added to a bound for what floats may have lost."""

    # project
    number_maximum: float = 1e100
    """The size of an answer or a total up to which squares times weights are still floats."""
    error_minimum: float = 1e-100
    """The size of a standard error from which its inverse square is still a float."""
    proof_gap: float = 1e-3
    """The relative gap of the relaxation that proves a gap of rows."""

    # synthesize
    margin_sweeps: int = 20
    """Times that rows and columns of a table are scaled to its margins."""
    redraws: int = 30
    """Times that impossible records are drawn again from the tree before their linked
    attributes are drawn apart."""
    published_error: float = 1e-12
    """The part of all records that is the error of a published cell: it outweighs every noisy
    one."""
    synthetic_values: int = 5 * 10**8
    """Values of synthetic records, records times attributes: 4 GB."""


LIMITS: Final = RefineLimits()
