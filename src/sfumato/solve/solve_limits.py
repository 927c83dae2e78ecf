# SPDX-License-Identifier: Apache-2.0
"""The limits of the solvers in one place, each with its reason.

They refuse sizes and end searches. Every solver returns bounds that are valid wherever it stopped,
so none of them decides whether a certificate is true. Sizes that compiled loops are built with, and
roundings that proofs count, stand where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "LIMITS",
    "SolveLimits",
]


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """Sizes, tolerances and numbers of steps of the solvers, by module."""

    # effort
    search_multiplications: float = 2.5e12
    """Multiplications of one mechanism, 100 seconds of a core, after which it returns its best."""
    stored_search_minimum: float = 2.0**30
    """Multiplications below which a search is made again rather than stored."""
    stored_search_bytes: int = 2**29
    """Bytes of stored searches that stay in the folder."""
    stored_weight_maximum: float = 1e60
    """Stored weights lie between its inverse and it: all would fail near the ends of floats."""

    # nuclear
    climb_starts: int = 4
    """Times that a line search which fails for rounding is started afresh."""
    lbfgs_corrections: int = 20
    """Pairs of steps and gradients that L-BFGS remembers."""
    mixing_memory: int = 8
    """Steps that Anderson mixing remembers."""
    mixing_steps: int = 60
    """Steps of the mixed fixed point before L-BFGS goes on."""
    mixing_relaxation: float = 1.5
    """Factor of a step of the fixed point: its own steps are too short."""
    mixing_step_maximum: float = 4.0
    """Longest step of log v that mixing may take."""
    cell_weight_minimum: float = 1e-14
    """Added to the weight of a cell, so that none is lost for good."""
    stored_bound_accuracy: float = 1e-9
    """Relative difference of a stored bound from the one that is computed again."""
    minimax_weight_spread: float = 1e-10
    """Part of all weight that is spread evenly over cells and queries, so that none is lost for
    good; the bound falls by less than twice this part of itself.
    """
    matrix_side: int = 4096
    """Smaller side of a matrix that is decomposed."""
    singular_side: int = 1024
    """Smaller side of a matrix that is decomposed by singular values."""
    eigenvalue_ratio_minimum: float = 1e-8
    """Least eigenvalue over the greatest from which it is known to 8 digits."""
    cells_solved_at_once: int = 3000
    """Cells that are solved at once without choosing among them."""
    cells_added: int = 2500
    """Cells that join in one round."""
    cell_rounds: int = 30
    """Rounds in which cells join."""
    singular_multiplications: int = 2**36
    """k^2 m of a singular value decomposition that takes minutes."""
    cell_weight_dropped: float = 1e-9
    """Weight, in greatest weights, below which cells leave again."""
    outside_span: float = 1e-7
    """Part of its length outside of a space with which a column is not in it."""
    numbers_at_once: int = 2**24
    """Numbers of one chunk of a large matrix: 128 MiB."""

    # farthest
    pair_multiplications: int = 2**34
    """Multiplications that are spent on pairs of columns of floats: about a second."""
    pair_multiplications_exact: float = 2e11
    """Multiplications that are spent on pairs of columns of whole numbers: about ten seconds. Rows
    that do not fit are bounded."""
    pair_difference_work: float = 4.0
    """Multiplications in the time of one absolute difference in the compiled sums."""
    pair_levels: int = 4
    """Levels of entries up to which sums of differences are counted level by level."""
    pair_columns: int = 2048
    """Columns of one side of a square of pairs: distances of 32 MiB."""
    pair_numbers: int = 2**23
    """Entries of the columns that are compared at once: 64 MiB."""
    pair_single_rows: int = 64
    """Rows at a time for which single precision, where it is exact, is worth its conversions."""

    # orbits
    subspace_size: int = 2048
    """Class coordinates of one invariant subspace: the side of its Gram matrix."""
    factored_size: int = 256
    """Coordinates of a subspace from which a factor of few rows pays."""
    factored_ratio: int = 4
    """Coordinates per rank from which it pays."""
    subspace_entries: int = 2**26
    """Entries of all Gram matrices together."""
    orbit_tolerance: float = 1e-4
    """Relative distance to its bound to which an optimum is driven."""
    orbit_fine_tolerance: float = 2e-6
    """The same for small problems."""
    orbit_fine_multiplications: int = 2**25
    """Multiplications of one step up to which a problem is small."""

    # minimax_orbits
    orbit_products: int = 2**25
    """Products of coefficients that are held for one query set."""
    orbit_numbers: int = 2**26
    """Numbers of one array on the way from weights to a Gram matrix."""
    orbit_weights: int = 2**22
    """Weights of queries, up to symmetry."""
    orbit_spreads: tuple[float, ...] = (1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)
    """Parts of the weight that are tried to be spread evenly at the end."""
    orbit_spread_error: float = 1 + 1e-5
    """Squared error over that of the search below which no other part is tried."""

    # lattice
    lattice_sets: int = 2**18
    """Sets of attributes, each of them a measured piece."""
    lattice_pairs: int = 2**24
    """Pairs of a term and a subset of its attributes."""
    complete_sets: int = 2**20
    """Measured pieces where all sets of some sizes are asked: no pair of them is listed."""

    # tridiagonal
    lanes: int = 8
    """Poles of a rational function that a compiled sweep handles at once, as processors do."""
    root_accuracy: float = 1e-5
    """Relative accuracy of the rational root that is measured."""
    root_samples: int = 20
    """Points per pole at which its error is looked at."""
    root_steps: int = 80
    """Steps of the damped least squares that move its poles."""
    spectrum_ratio_minimum: float = 10.0
    """An interval of spectrum shorter than this ratio is taken wider."""

    # ellipsoid
    ellipsoid_power: float = 10.0
    """First power p of the mean that stands for the maximum; weights make it exact in the end."""
    ellipsoid_power_growth: float = 1.3
    """Of the power with every gain; where there is none it falls, twice as fast."""
    ellipsoid_power_maximum: float = 300.0
    """From here on L-BFGS takes as many more steps as the weights need fewer updates."""
    ellipsoid_rounds: int = 1000
    """Updates of the weights of the columns, at most; steps are counted besides."""
    ellipsoid_patience: int = 40
    """Updates without gain: what is left of the gap is the rounding of floats."""
    ellipsoid_gain: float = 0.99
    """Part of the gap that must be left, at most, for a gain."""
    ellipsoid_most_steps: int = 2000
    """Steps of one search, each an eigenvalue problem: ten seconds for 128 columns."""
    ellipsoid_steps: int = 20
    """Steps of L-BFGS between two updates."""
    ellipsoid_eigenvalue_minimum: float = 1e-14
    """Part of the greatest eigenvalue to which the others are raised."""
    ellipsoid_weight_minimum: float = 1e-9
    """Weight of a column at least, so that it can come back."""
    secular_accuracy: float = 1e-14
    """Relative accuracy of the secular equation."""
    secular_steps: int = 100
    """Steps of Newton's method on it."""
    ellipsoid_logit: float = 20.0
    """Greatest logit of the distance over the greatest distance."""
    collapsed_value: float = 1e3
    """Minus the value of an ellipsoid that has collapsed: no search ends there."""

    # nonnegative
    least_squares_ridge: float = 1e-12
    """Ridge of the proximal step, in greatest diagonal entries."""
    least_squares_rounds: int = 20_000
    """Steps of the active set."""
    least_squares_multiplications: float = 2e8
    """Multiplications for inverses that are computed again when no step seems to help."""
    least_squares_parts: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125)
    """Parts of a step that are tried along the bent path."""

    # nonnegative, raking
    raking_sweeps: int = 60
    """Sweeps over the tables before Newton steps go on."""
    raking_long_sweeps: int = 2000
    """Sweeps where there are too many cells for Newton steps."""
    raking_steps: int = 40
    """Newton steps."""
    raking_cells: int = 1500
    """Cells of all tables up to which Newton steps are made."""
    raking_accuracy: float = 1e-13
    """Part of the total within which the sums are met."""
    raking_step_minimum: float = 2.0**-20
    """Shortest Newton step that is tried."""


LIMITS: Final = SolveLimits()
