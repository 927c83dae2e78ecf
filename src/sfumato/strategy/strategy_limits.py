# SPDX-License-Identifier: Apache-2.0
"""The limits of the strategies in one place, each with its reason.

They refuse sizes, choose between algorithms and end searches. None of them decides about privacy:
a sensitivity is computed from what is measured, and every lower bound is valid wherever its search
ends. Bits of a format and the roundings that proofs count stand where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

__all__ = [
    "LIMITS",
    "StrategyLimits",
]


@dataclass(frozen=True, slots=True)
class StrategyLimits:
    """Sizes, tolerances and numbers of steps of the strategies, by module."""

    # base
    measured_values: int = 2**27
    """Values that one release measures: 3 GiB with noise and stored form, 1 GiB stored."""
    remembered_keys: int = 8
    """Results of a strategy that are remembered, for budgets that are tried in a row."""
    followed_values: int = 2**12
    """Measured values that are taken through the reconstruction one by one."""
    reading_entries: int = 2**22
    """Numbers of the reconstruction of a group that are found answer by answer."""
    trial_cells: int = 2**14
    """Cells of the table on which a strategy is tried for bias."""
    trial_values: int = 2**15
    """Values that such a trial measures or answers."""
    trial_terms: int = 512
    """Terms and blocks of such a trial."""
    trial_bias: float = 1e-8
    """Bias per record, in greatest coefficients of a query, that is more than rounding."""

    # blockwise and replace_one
    negligible_error: float = 1e-8
    """Part of the greatest error that counts as the error of a block that has none."""

    # moves
    group_cells: int = 1024
    """Groups of a privacy unit, or cells, of which all pairs are compared: 8 MiB of floats."""
    group_eigenvalues: int = 512
    """Groups of which the greatest eigenvalue is found: some 50 ms."""
    group_blocks: int = 1024
    """Blocks whose inner products are added up."""
    group_products: int = 2**24
    """Inner products that are held for that: 128 MiB."""
    paired_cells: int = 160
    """Cells of a domain up to which all pairs of cells are listed."""
    move_entries: int = 2**22
    """Blocks times moves of records that are held."""
    joint_blocks: int = 32
    """Blocks whose distances are added up, one pair of cells for all of them."""
    joint_cells: int = 4096
    """Cells of a domain all of whose pairs are compared so."""
    move_kinds: int = 2**16
    """Ways in which two cells of marginals can differ."""

    # measured
    numbers_at_once: int = 2**24
    """Numbers of one chunk of columns or states: 128 MiB."""
    listed_part: float = 1 / 16
    """Of coefficients that are not 0, up to which these are listed: adding up all takes longer."""
    intervals_listed: int = 2**17
    """Queries whose variances are listed to find the greatest; a bound serves for more."""
    coefficients_at_once: int = 2**22
    """Queries times cells that are held together where a query is no interval."""
    intervals_at_once: int = 2**18
    """Intervals whose paths through a tree are walked together."""

    # matrix, distinct columns
    diagram_entries: int = 2**26
    """Coefficients of one group, or truth values of one condition, that are written down."""
    column_entries: int = 2**27
    """Entries of the matrix of distinct columns: 1 GiB in floats."""
    column_queries: int = 2**18
    """Queries whose distinct columns are looked for."""
    column_moves: int = 2**23
    """Combinations of a state and a class that are looked at per attribute."""

    # blockwise, fitted products
    table_cells: int = 2**25
    """Cells of the table that one block of a product is measured on."""
    product_rounds: int = 5
    """Rounds over the attributes of a product; few improve after the second."""
    product_steps: float = 2.0**35
    """Multiplications of the search for parts: two seconds."""
    product_gain: float = 1e-4
    """Relative gain of a round below which no further one is made."""

    # hierarchies
    hierarchy_leaves: int = 2**24
    """Leaves of a tree that is planned: some twenty numbers each, about 3 GB."""
    nested_steps: int = 60
    """Steps of the search for the weights of the nodes of a tree; it starts near its end."""
    nested_tolerance: float = 1e-9
    """Relative gain of a step at which that search ends: far below what integer weights keep."""
    nested_logit: float = 16.0
    """Log odds of what a node keeps of its budget at most: further changes no measured digit."""
    nested_first_split: float = 1e-3
    """Least part of the budget that a node or its children start with, so that it can grow."""
    nested_unasked: float = 1e-9
    """Energy of leaves that nobody asks for in the search, in mean ones, so that all is defined."""
    nested_fills: tuple[float, ...] = (1e-6, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
    """Energies of such leaves in the bound, in mean ones; the best is taken."""

    # trees
    tree_weight_bits: int = 12
    """Bits of the greatest weight of a level; the others are rounded to its 2^-12."""
    tree_level_minimum: float = 2.0**-10
    """Part of the greatest weight below which a level is left out."""
    tree_changes: tuple[int, ...] = (-4, -2, -1, 1, 2, 4)
    """Changes of one branching that a step of hill climbing tries."""
    trees_tried: int = 300
    """Sets of widths that are tried."""
    tree_starts: tuple[float, ...] = (1.0, 0.2, 5.0)
    """Weights of the top level relative to the cells from which L1 searches start."""

    # templates
    template_fourths_listed: int = 2**31
    """Coefficients of intervals whose fourth powers are taken one by one: some seconds. Of more,
    the powers are multiplied out, which loses digits (12 are left)."""
    template_coefficients_at_once: int = 2**18
    """Coefficients of reconstructions that are held together: they stay in the cache."""
    template_classes: int = 3072
    """Classes of cells that a template may have: its matrices are dense, 72 MiB each."""
    template_bits: int = 14
    """Bits of a column norm of 1 to which coefficients are rounded."""
    product_bits: int = 32
    """Bits of the column norm of a product of templates: noise of 2^40 of its steps can be drawn,
    so that this leaves 2^8 for an epsilon below 1."""
    template_fine_bits: int = 20
    """The same where single cells are faint, which multiplies the rounding of the rows."""
    template_faint: float = 1 / 32
    """Coefficient of a cell, in a column norm of 1, below which it is faint."""
    hat_height: float = 0.8
    """Height of a hat at the start, relative to the cells below it."""
    template_starts: int = 3
    """Starts that are followed before one is chosen."""
    template_first_steps: int = 25
    """Steps that such a start is followed for."""
    template_steps: tuple[tuple[int, int], ...] = (
        (256, 400),
        (640, 200),
        (1536, 120),
        (2048, 40),
        (3072, 10),
    )
    """Steps of the best start, by the number of classes up to which they are made: a step takes
    their cube, and the starts alone are within 5% from 1,536 classes on."""
    template_followed_classes: int = 1536
    """Classes up to which more than the best start is followed."""
    template_corrections: int = 20
    """Pairs of steps and gradients that L-BFGS remembers."""
    template_few_queries: int = 16
    """Queries up to which they are a start themselves."""
    template_heavy: float = 256.0
    """Weight of such a start, relative to the cells below it."""
    template_searched_classes: int = 256
    """Classes up to which other starts are tried beside it."""

    # templates, the best strategy of a workload
    laplace_cells: int = 2**16
    """Cells of a single attribute: no template is that long, and trees are tried anyway."""
    laplace_groups: int = 2048
    """Groups of queries between which the noise of templates is shared."""
    laplace_groups_first: int = 16
    """Groups from which one matrix is tried before templates for each of them."""
    laplace_groups_together: int = 256
    """Groups that one product is fitted to."""
    matrix_gain: float = 2e-3
    """Part of the squared error that one matrix must gain over templates, trees and tables."""

    # atoms
    atom_cells: int = 2**20
    """Cells of the table whose cells are sorted into atoms."""
    atom_labels: int = 2**24
    """Cells times groups of queries that are looked at for it."""
    atom_entries: int = 2**24
    """Coefficients of a group, or of all queries on their atoms, that are compared."""
    atoms: int = 1536
    """Atoms on which strategies are searched: dense matrices."""
    atom_multiplications: float = 4e10
    """Multiplications of one search: below two seconds."""
    atom_starts: int = 6
    """Starts that are followed before one is chosen."""
    atom_query_rows: float = 1.0
    """Queries per atom up to which they are a start themselves."""
    atom_query_heights: tuple[float, ...] = (1.0, 4.0, 20.0)
    """Weights of queries at such starts, relative to single atoms."""
    atom_faintest: int = 64
    """Integer of a single atom at least, beside rows whose rounding is read from it."""
    atom_minimax_rounds: int = 6
    """Times that queries are weighted by their errors for the largest error."""
    atom_minimax_steps: int = 40
    """Steps of the search after each of them."""
    atom_bound: float = 1e-2
    """Relative accuracy of the lower bound: it is looser than that for Laplace noise anyway."""
    atom_bound_multiplications: float = 2e10
    """Multiplications of the lower bound, which is valid wherever they end."""
    span_entries: int = 2**24
    """Queries times kinds of cells of a mixture that is searched: 128 MiB."""
    span_rank: int = 256
    """Queries that are mixed: a step inverts a matrix of this size."""
    span_columns: int = 2048
    """Kinds of cells that a step looks at."""
    span_total: float = 0.1
    """Part of a column that counts as a move where the total is public."""
    span_rounds: int = 12
    """Rounds in which they join, where there are more."""
    span_rows: float = 2.0
    """Queries per direction up to which all of them are a start."""
    span_tilt: float = 0.02
    """By how much starts are tilted: at coefficients of 0 the error has a kink."""
    span_powers: tuple[int, ...] = (16, 64, 256)
    """Norms that stand for the maximum over the columns, one after another."""
    span_first_steps: int = 40
    """Steps of L-BFGS before one start is chosen."""
    span_steps: int = 300
    """Steps of the chosen one for each norm."""
    span_hopeless: float = 1.7
    """Ratio to another strategy after the first steps; later ones gained at most 1.45."""
    span_multiplications: float = 5e10
    """Multiplications of this search: they are many small ones, two seconds."""
    span_bits: tuple[int, ...] = (8, 11, 14, 18)
    """Bits of integers that are tried until rounding costs next to nothing."""
    span_grid_bits: int = 28
    """Bits of integers and of queries together: Laplace noise is drawn on that grid."""
    span_rounding: float = 1e-4
    """Part of the error that rounding to integers may add."""
    span_pairs: int = 2048
    """Kinds of cells that are compared pair by pair in L1."""

    # marginals
    marginals_tolerance: float = 1e-7
    """Relative distance to its lower bound to which the largest error is driven."""
    marginals_steps: int = 1000
    """Steps of that search; one is a sum over the lattice."""
    marginals_start_minimum: float = 1e-12
    """First weight of a marginal at least, in mean weights, so that it can grow."""
    weighted_marginals_pairs: int = 2**22
    """Pairs of a measured table and a set of attributes."""
    merged_tables: int = 600
    """Tables between which merging is tried, pair by pair."""
    weighted_marginals_minimum: float = 1e-7
    """Part of all shares below which a table is not measured."""
    weighted_marginals_steps: int = 500
    """Steps of the search for the shares of weighted marginals."""
    fourier_characters: int = 2**14
    """Characters that are measured one by one."""
    fourier_attributes: int = 16
    """Attributes of one term: it has 2^16 characters."""

    # splits, and lower bounds in pieces
    split_bits: tuple[int, int] = (14, 20)
    """Fewest and most bits of the rounded coefficients of a split."""
    split_finer_bits: tuple[int, ...] = (0, 6, 12)
    """Bits more than these: the first that lose no direction are taken."""
    split_singular_minimum: float = 1e-7
    """Part of the greatest singular value below which a direction is lost."""
    dependent_part: float = 1e-9
    """Part of its length by which a query must differ from others not to follow from them."""
    split_rank_entries: int = 2**22
    """Coefficients of query sets whose rank is looked at."""
    dense_axis_cells: int = 1024
    """Cells of an attribute whose split or bound is found by dense algebra."""
    split_nodes: int = 7
    """Extra weights of the total at which an attribute is solved."""
    split_log_weights: tuple[float, float] = (-6.0, 5.0)
    """Range of the logarithm of the extra weight on a total."""
    split_rough_tolerance: float = 3e-4
    """How well an attribute is solved while extra weights are searched."""
    split_fine_tolerance: float = 5e-7
    """How well an attribute is solved at the end."""
    split_rounds: int = 2
    """Rounds over the attributes of a union."""
    split_bits_minimum: int = 8
    """Bits of a coefficient below which rounding would cost more than range."""
    split_rest_minimum: float = 1e-20
    """Part of the squared coefficients below which a rest is rounding."""

    # pieces, lower bounds
    pinched_extra: tuple[float, ...] = (exp(-5), exp(-1), exp(1))
    """Weights on the total with which cell weights are tried."""
    pinched_rounds: int = 2
    """Rounds over the attributes of a bound."""
    pinched_ratios: tuple[float, float] = (1e-2, 1e2)
    """Range of the ratio rho of a pinched bound."""
    pinched_step: float = 1e-4
    """Step of the derivatives that choose rho; any rho gives a bound."""
    query_set_tolerance: float = 1e-3
    """Relative accuracy of the bound of one query set in a sum."""
    query_set_cells: int = 2048
    """Cells of a query set whose Gram matrix is decomposed for a bound."""

    # pieces
    pieces_maximum: int = 2**18
    """Pieces of a union, one block each."""
    variances_listed: int = 2**24
    """Queries of a term whose variances are listed one by one."""
    worst_query_entries: int = 2**24
    """Pairs of a worst query and a piece in the program of the largest error."""
    minimax_pieces_rounds: int = 2
    """Times that the splits follow the weights of the terms."""
    minimax_pieces_steps: int = 400
    """Steps of L-BFGS on that program."""
    minimax_pieces_tolerance: float = 1e-4
    """Relative distance to its bound of the noise that is shared."""
    hull_coarseness: float = 1e-3
    """Part by which the worst queries of an attribute may be taken too small."""
    term_weight_minimum: float = 1e-8
    """Weight of a term at least: the splits must answer all of them."""
    query_weight_spread: float = 1e-9
    """Weight that is spread evenly: no piece is left without noise to share."""

    # factorization
    factorization_bits: int = 20
    """Bits of the rounded coefficients: rounding costs about 1e-6 of the error."""
    factorization_finer_bits: tuple[int, ...] = (0, 10, 20)
    """Bits more than these: the first that lose no direction are taken."""
    factorization_singular_minimum: float = 1e-8
    """Part of the greatest singular value below which a direction is lost."""
    rank_singular_minimum: float = 1e-9
    """Part of the greatest below which singular values of rows of differences are zero."""

    # ordered
    point_blocks: int = 1024
    """Blocks of points whose pairs bound the variances of all intervals."""
    ordered_tolerance: float = 1e-4
    """Relative distance to the bound to which the weights of the cells are driven."""
    ordered_fine_tolerance: float = 2e-6
    """The same where there are so few cells that it takes no time."""
    ordered_fine_cells: int = 10**5
    """Cells up to which the finer tolerances hold."""
    ordered_fine_root: float = 1e-6
    """Accuracy of the measured root of so few cells."""
    ordered_cells: int = 2**25
    """Cells along the attribute: the optimiser holds two dozen vectors of them."""
    ordered_bound_accuracy: float = 1e-9
    """Accuracy of the root in the lower bound."""
    minimax_tolerance: float = 2e-4
    """Relative distance to its lower bound to which the largest error is driven."""
    minimax_factor_tolerance: float = 1e-3
    """The same for one attribute of a union, whose weights are a guess."""
    minimax_rough_tolerance: float = 1e-2
    """Accuracy of weights of points that are only a guess."""
    point_evenness: float = 0.75
    """Power of the weights of points, between even (0) and those of prefixes (1)."""
    rational_root_cells: int = 256
    """Cells from which prefixes are measured by a rational root, in linear time."""

    # windows
    toeplitz_steps: int = 400
    """Steps of conjugate gradients for the inverse of a Toeplitz matrix."""
    toeplitz_residual: float = 1e-12
    """Residual of the first column of that inverse."""
    toeplitz_eigenvalue_minimum: float = 1e-9
    """Least eigenvalue of the circulant preconditioner, in diagonal entries."""
    kernel_cuts: tuple[int, ...] = (2, 4, 16)
    """Lengths of the kernel, in widths of a window, that are tried."""
    kernel_long_widths: int = 32
    """Widths of an attribute from which the longest kernel is best."""
    windows_cells: int = 2**23
    """Cells along the attribute of windows."""

    # interactions
    interaction_ways: int = 4
    """Attributes of one query: it has interactions on all of their subsets."""
    interaction_entries: int = 2**26
    """Coefficients of all queries by cell, each on its own attributes: half a gigabyte."""
    interaction_sets: int = 2**13
    """Sets of attributes with a block of their own."""
    interaction_queries: int = 2**11
    """Queries whose inner products are decomposed for the lower bound."""
    interaction_tolerance: float = 1e-3
    """Of the optima that compare weights of cells."""
    interaction_compared: int = 2**9
    """Cells of a set of attributes up to which it counts where weights are compared."""
    interaction_joint_cells: int = 2**8
    """Cells of a set that different products ask for, up to which it is solved as one matrix."""
    interaction_rounds: int = 3
    """Rounds over the attributes of a set that different products ask for."""
    interaction_polar_rounds: int = 3
    """Rounds in which contractions of a lower bound follow each other."""
    interaction_polar_options: int = 3
    """Weights of cells with which the bound of many queries is tried: those of the least error."""
    interaction_polar_enough: float = 1.005
    """Times a bound that the least error may be: a better bound tells nobody anything."""
    interaction_polar_gain: float = 1e-4
    """Relative gain of a round of a lower bound below which no other follows."""
    interaction_polar_rows: int = 2**10
    """Queries of a product from which it is bounded along each of its attributes."""
    interaction_polar_cells: int = 2**9
    """Cells of a set of attributes up to which the groups that ask for it share it as matrices."""
    interaction_polar_side: int = 2**11
    """Queries or cells of a group whose polar factor is found for a lower bound."""
    interaction_bits: tuple[int, ...] = (4, 5, 6, 7, 8, 10, 12, 14)
    """Bits of integers along one of three or more attributes: their product is measured."""
    interaction_product_bits: tuple[int, ...] = (56, 44, 36, 28)
    """Bits of a product of such integers, less where its columns are too long."""
    interaction_rounding: float = 2e-3
    """Part of the error that rounding such integers may add."""
    interaction_column: float = 2.0**100
    """Squared length of a column of integers: noise is drawn up to a scale of 2^60."""
    interaction_middle: int = 5
    """Weight of the cells between the first and the last, where those are heavier."""
    interaction_ends: tuple[int, ...] = (7, 9, 11)
    """Weights of the first and the last cell beside it that are tried."""
    interaction_weights: int = 8
    """Whole weights of a cell on average on the way to oblique ones: fine enough, of few bits."""
    interaction_parts: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Ways from equal weights of cells to those of the optimum of each attribute that are tried."""
    # product_parts
    parts_terms: int = 16
    """Groups of queries among which parts are searched for: some hundred parts are compared."""
    parts_cells: int = 2**9
    """Cells of an attribute of such a part: its optimum takes a tenth of a second."""
    parts_tolerance: float = 1e-3
    """Of the optima that compare parts."""
    parts_rounds: int = 4
    """Rounds over the attributes of a part: further ones change less than the tolerance."""
    parts_steps: float = 2.0**35
    """Multiplications of the search for parts: two seconds."""
    parts_gain: float = 1e-3
    """Relative gain of a change of parts below which it is not made."""
    direction_numbers: int = 2**25
    """Cells times groups of a bound by directions: a quarter of a gigabyte."""
    direction_rounds: int = 15
    """Rounds of cell weights for that bound."""
    direction_multiplications: int = 2**29
    """Cells times the squared cells of attributes that it keeps whole: a second."""
    direction_gain: float = 1e-3
    """Relative gain from which further attributes are tried as well."""
    # matrix
    matrix_tolerance: float = 7e-5
    """Leaves room for rounding to integers below 1.0001."""
    entry_bits: tuple[int, ...] = (14, 18, 22, 26, 30)
    """Bits of integers that are tried until rounding costs next to nothing."""
    matrix_rounding: float = 2e-5
    """Part of the error that rounding to integers may add."""
    uneven_lengths: float = 2.0**10
    """Ratio of the lengths of queries from which long ones are preferred in a basis."""
    matrix_helped: float = 1e-4
    """Part of the error that queries too small to be reached may add."""
    matrix_singular_minimum: float = 1e-6
    """Part of the greatest singular value that keeps the rounded matrix invertible."""
    matrix_rank: int = 2048
    """Measured values: the reconstruction has this many columns."""
    diameter_numbers: int = 2**27
    """Numbers of all columns of a strategy that are held at once for their diameter."""

    # conditions
    joined_cells: int = 256
    """Cells that join in one round of cutting planes."""
    bounded_conditions: int = 512
    """Different conditions up to which the bound is driven to the optimum."""
    bounded_condition_rounds: int = 1400
    """Conditions times rounds of that search."""
    condition_rounds: int = 12
    """Rounds in which cells join."""
    condition_bound_starts: int = 192
    """Cells from which each search for a longer column climbs."""
    condition_bound_tolerance: float = 1e-2
    """Accuracy of the optimum of a round, of which a bound is made."""
    condition_excess: float = 1e-3
    """Part by which a column is too long, or a cell too heavy, that joins."""
    weighted_conditions: int = 2048
    """Different conditions: the reconstruction is a matrix of them."""
    condition_proofs: int = 3
    """Proofs of the best weights that are tried; the last one counts."""
    brief_proofs: int = 12
    """Proofs of the best weights that take the effort of one proof of other weights."""
    loose_proof: float = 1.1
    """A bound this far above the heaviest cell will not be close."""
    condition_starts: int = 256
    """Cells from which each search for a heavier cell climbs."""
    condition_weight_minimum: float = 1e-9
    """Part of the greatest weight to which others are raised: rounding must not lose them."""
    condition_bits: int = 30
    """Bits of the integers of a proved mixture."""
    condition_centres: int = 1000
    """Values of t, the part in common that is taken away, that are tried."""

    # biased
    approximate_rank: int = 1024
    """Rank of a matrix that is factorized approximately."""
    approximate_entries: int = 2**24
    """Entries of such a matrix."""
    biased_rounding: float = 1e-4
    """Part of the error that rounding to integers may add."""
    biased_entries: int = 2**23
    """Queries times classes of cells of a biased strategy."""
    biased_cells: int = 2**25
    """Cells of the table that is counted for it."""
    biased_classes: int = 2**11
    """Classes of cells: columns of the matrix that is factorized."""
    biased_negligible: float = 1e-8
    """Part of the greatest below which a measured value is left out."""
    biased_tolerance: float = 1e-3
    """Relative, of the least worst error with a bias: far below what its matrix is rounded by."""
    biased_rounds: int = 8
    """Rounds of weights on the queries, for the largest error."""
    biased_evenness: float = 1e-2
    """Part of the largest error within which all errors end that search."""
    biased_weight_minimum: float = 1e-3
    """Ratio to the largest error that a weight follows at least."""
    quantile_steps: int = 60
    """Steps of Newton's method for a quantile; a few are made."""

    # conjunctions
    conjunction_literals: int = 40
    """Literals of a conjunction: C(40, 20) is still exact in a float."""
    conjunction_characters: int = 2**15
    """Characters that are measured."""
    conjunction_lookups: int = 2**24
    """Characters of all queries together."""
    coefficient_minimum: float = 1e-6
    """Part of the exact coefficient below which one is zero."""
    conjunction_rounds: int = 12
    """Rounds over the kinds of conjunctions, which share the noise."""
    conjunction_errors: int = 40
    """Sup errors for which a linear program is solved."""
    conjunction_error_minimum: float = 1e-5
    """Least of these sup errors."""

    # degrees
    symmetric_attributes: int = 40
    """Attributes of a set of all conjunctions of some widths: binomials that floats still hold."""
    symmetric_listed: int = 22
    """Attributes of such a set that is released: 2^22 characters are measured."""
    symmetric_dense_attributes: int = 7
    """Attributes up to which approximate factorizations of such sets are searched as matrices."""
    symmetric_pairs: int = 512
    """Queries of such a set up to which pairs of cells are weighed where records are replaced."""
    width_tolerance: float = 1e-5
    """Relative gap at which the weights of widths and cells of the worst case are good enough."""
    width_rounds: int = 12
    """Rounds of weights on widths for the largest error with a bias."""
    degree_steps: int = 2000
    """Steps of the search for shares of degrees; one solves d / 2 small systems."""
    degree_rest: int = 40
    """Steps after which the search looks whether it gains."""
    degree_gain: float = 1e-5
    """Relative gain in so many steps below which the search for shares ends."""
    degree_minimum: float = 1e-9
    """Part of the squared sensitivity below which a degree is not measured."""
    ridge_steps: int = 1000
    """Steps of conjugate gradients: more than the matrix has eigenvalues."""
    ridge_accuracy: float = 1e-11
    """Relative residual of conjugate gradients at which they end."""

    # replace_one
    pairwise_rank: int = 1024
    """Rank of queries that are listed up to which pairs of cells are weighed."""
    pairwise_cells: int = 2048
    """Distinct columns up to which pairs of cells are weighed: a step takes a few seconds."""
    pairwise_cut_rank: int = 96
    """Rank up to which few pairs are weighed, to 1.0001, and others join."""
    pairwise_cut_cells: int = 1024
    """Cells up to which they are."""
    pairwise_cut_steps: int = 120
    """Steps of their weights in one round."""
    pairwise_cuts: int = 12
    """Rounds in which pairs join."""
    pairwise_left_weight: float = 1e-7
    """Part of the greatest weight below which pairs leave again."""
    pairwise_kinds: int = 2**23
    """Kinds of pairs times pairs of classes, of attributes whose cells can be exchanged: 64 MiB."""
    pairwise_work: int = 2**33
    """Kinds times the cube of classes: a step has an eigenvalue problem for every kind, 2 s."""
    pairwise_queries: int = 2**15
    """Queries of such a workload."""
    pairwise_moves: int = 2**21
    """Queries times pairs of cells, for the largest error."""
    pairwise_tolerance: float = 1e-3
    """Relative distance to its bound to which the error is driven."""
    pairwise_rough_tolerance: float = 1e-2
    """The same beyond as many cells as the next says."""
    pairwise_fine_cells: int = 512
    """Cells up to which a step takes a fraction of a second."""
    pairwise_thinned: int = 6
    """Of more classes every so manyth is weighed first, for a start: half the steps."""
    pairwise_weight_minimum: float = 1e-3
    """Part of the greatest weight with which a pair starts then."""
    pairwise_power: float = 6.0
    """Power of the distance by which weights of pairs are multiplied at first."""
    pairwise_power_minimum: float = 2.0**-4
    """Power at which the search ends, as smaller steps gain nothing either."""
    pairwise_growth: float = 1.2
    """Factor of the power after a step that gained."""
    pairwise_steps: int = 200
    """Steps of the weights of pairs: 4 to 6 reach a certificate of 1.01, some tens 1.001."""
    pairwise_bits: tuple[int, ...] = (14, 18, 22, 26)
    """Bits of integers that are tried until rounding costs next to nothing."""
    pairwise_cell_bits: tuple[int, ...] = (20, 26)
    """The same for matrices on cells, whose inverse takes a second."""
    pairwise_singular: float = 1e-11
    """Part of the greatest eigenvalue of ``F'WF``, below which cells are not told apart."""
    pairwise_rounding: float = 1e-4
    """Part of the error that rounding to integers may add."""
    pairwise_flat: float = 1e-9
    """Part of the greatest singular value below which differences do not reach a direction."""
    public_total_error: float = 2.0**-24
    """Part of the error of all others that noise on a public total may add."""
    pairwise_total_maximum: float = 2.0**10
    """Greatest coefficient of the total, in those of the others."""
    pairwise_share_minimum: float = 1e-12
    """Part of the greatest, squared, with which every query is measured at least."""
    pairwise_helped: float = 1e-3
    """Part of the error that queries too small to be reached may add."""
    total_denominators: int = 64
    """Denominators up to which the coefficients of the total are searched as fractions."""
    public_total_maximum: float = 2.0**12
    """Greatest share of a public total, in greatest shares of others."""
    moves_tolerance: float = 1e-4
    """Relative accuracy of the weights of moves."""
    moves_listed: int = 1024
    """Moves that are weighed at once without choosing among them."""
    moves_added: int = 256
    """Moves that join in one round."""
    moves_rounds: int = 12
    """Rounds in which moves join."""
    moves_weight_minimum: float = 1e-9
    """Part of the greatest weight below which moves leave again."""
    moves_alternations: int = 4
    """Alternations of the weights of moves and of terms, for the largest error."""
    dropped_weights: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)
    """Weights that are tried for the record in no cell."""

    # stream_filters
    time_tree_branching: int = 64
    """Branchings of a tree over time that are tried."""
    stream_dense_length: int = 1024
    """Steps of a stream whose bound is found by eigenvalues."""
    stream_bound_steps: int = 5
    """Steps of the weights of that bound."""


LIMITS: Final = StrategyLimits()
