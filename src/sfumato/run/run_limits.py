# SPDX-License-Identifier: Apache-2.0
"""The limits of the run room in one place: what decides, what is refused, and why.

Values that steer a loop or refuse a size, grouped by the module that reads them. All are public and
fixed. Those of the rounds decide what is measured, so that a change of one changes releases to
come; none of them changes what a release costs, which is fixed before.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = ["LIMITS", "RunLimits"]


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Sizes that are refused, shares of a budget, and what ends a loop."""

    # linear
    default_delta: Fraction = Fraction(1, 10**9)
    """The delta of a plan that is made for an error: below one over the records of most tables."""
    cells_gain: float = 0.999
    """Sums are planned over other cells where that errs less, beyond the rounding of scales."""
    groups_shown: int = 12
    """Groups that a plan shows of itself: about a screen."""

    # textbook
    answers_shown: int = 6
    """Answers that a mechanism of the notes shows of itself: a line."""
    textbook_records: int = 2**44
    """Records of a histogram: what exact counting in 64 bits is proved for."""
    textbook_number: int = 2**50
    """Exact numbers are clamped at plus and minus this: on their grid they stay floats."""
    textbook_slack_bits: int = 12
    """Rounding floats to a grid makes noise larger by at most 2^-12 of itself."""

    textbook_discoveries: int = 10_000
    """Discoveries of one sparse vector of the notes: the cost lists a part for each."""
    textbook_cells: int = 2**20
    """Cells of a histogram that learns: every update visits all of them."""

    # adaptive
    rounds_per_attribute: int = 7
    """Rounds for tables unless a number is given, of which there are at most as many as tables."""
    learned_attributes: int = 500
    """Attributes of the rows of a model."""
    learned_table_cells: int = 2**26
    """Cells of the table that one group of queries looks at: half a GiB."""
    rounds_maximum: int = 10_000
    """Rounds that may be asked for."""
    boosting_rounds: int = 5
    """Rounds of boosting unless a number is given."""
    boosting_samples: int = 40
    """Queries that boosting draws in a round; stored in its request."""

    # choose
    share_denominator: int = 10_000
    """Of a share of all records that answers are to be near: scores are multiplied by it."""

    # rounds, for tables
    first_share: Fraction = Fraction(1, 10)
    """Of the budget, for a first look at every attribute."""
    second_share_maximum: float = 0.6
    """Of the budget, for a second look, where no table is within reach."""
    reachable_error: float = 0.2
    """Of all records: the L1 error within which a table is worth a round."""
    attribute_error: float = 0.04
    """The mean L1 error, of all records, at which attributes are measured well enough."""
    choice_share: Fraction = Fraction(1, 10)
    """Of a round, for choosing what to measure."""
    misses_in_a_row: int = 2
    """Rounds that taught no more than their noise, after which rounds spend more."""
    round_growth: int = 4
    """Times the budget of a round that the next ones spend then."""
    unspent_share: Fraction = Fraction(1, 10**6)
    """Of the budget: so little is left unspent, as no round of it would teach anything."""

    # rounds, for MWEM and boosting
    total_share: Fraction = Fraction(1, 20)
    """Of the budget, for the number of records where it is not public."""
    draw_share: Fraction = Fraction(1, 2)
    """Of the budget of boosting, for drawing queries; the rest measures them."""
    rate_halvings: int = 24
    """Halvings of the search for the maximum rate: to 6e-8 of it."""

    # advice
    trial_runs: int = 6
    """Runs of every way unless a number is given."""
    trial_runs_maximum: int = 1000
    """Runs that may be asked for."""
    trial_records: int = 10**15
    """Made-up records; whole numbers of them are exact floats."""
    trial_queries: int = 2**22
    """Queries whose errors are added up, run by run."""
    trial_runs_rows: int = 2
    """Runs where projections are by rows, each as long as that of a release; two say how they
    differ."""
    trial_projected_answers: int = 2**19
    """Answers of a projection that is tried."""
    trial_projected_cells: int = 2**18
    """Cells of all attributes together of a projection that is tried over cells; beyond, over
    rows."""
    trial_adaptive_seconds: float = 10.0
    """Forecast seconds of an adaptive release that is tried; a forecast is a function of sizes."""
    chance_errors: float = 2.0
    """Standard errors of a difference within which one way is not called worse than another."""
    slight_difference: float = 0.02
    """Of a squared error: a difference that is not worth another way."""

    # public_records
    public_cells: int = 2**22
    """Cells of all attributes together in which public records are counted."""

    # correct, watch, stream
    count_maximum: int = 2**44
    """Counts, predictions and thresholds are below this, as a table has fewer records."""
    watch_steps: int = 2**22
    """Counts of one watch, each with a limit of its own."""
    streams_maximum: int = 2**20
    """Streams that one counter follows."""
    stream_numbers: int = 2**25
    """Numbers that all streams of a counter hold together: some GiB, as Python integers."""

    # discover: votes on kinds
    vote_simulations: int = 400
    """Simulated votes for a forecast: its share is sure to about one in 100."""
    odd_noise: float = 10.0
    """Times the scale of noise that odd values need to be spoken of: noise of five sizes is not."""

    # describe
    vote_epsilon: Fraction = Fraction(1, 100)
    """Of the epsilon, for the vote on the kind of one column: 1,000 records are enough at 1."""
    votes_epsilon: Fraction = Fraction(3, 20)
    """Of the epsilon, for all votes together at most: where there are more than 15 columns."""
    single_keys: float = 0.1
    """Values of one person each, as expected by delta, from which on a description warns."""
    sure_range: float = 0.5
    """Share of simulated searches within an octave below which a range is said to be unsure."""
    times_more: float = 20.0
    """How many times the epsilon a description says would find a range: beyond, nobody has it."""
    uneven: float = 0.1
    """Share by which quartiles may be nearer or further than in a numbering of the records."""
    described_columns: int = 100
    """Columns of one description: they share one budget, and are planned together in a minute."""


LIMITS: Final = RunLimits()
