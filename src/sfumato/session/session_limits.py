# SPDX-License-Identifier: Apache-2.0
"""The limits of the session room in one place: what decides, what is refused, and why.

Grouped by the module that reads them. Those of `session_plan` enter the parameters of a session,
and so its name in the ledger; those of `histogram` the estimate that a session that goes on
learns again from stored answers. A change of either ends the sessions that were begun before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = ["LIMITS", "SessionLimits"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Defaults of a session, shares of its budget, sizes, and tolerances of its estimate."""

    # session_plan, where nobody says otherwise
    level: float = 0.95
    """The probability with which an interval holds the truth."""
    beta: float = 0.05
    """The probability with which a promise about all questions may fail."""
    questions_expected: int = 10_000
    """Questions; more may come."""
    records_guessed: int = 10_000
    """Records that a session is planned for; only its error depends on it."""

    # session_plan, for any session
    questions_maximum: int = 10**12
    """Questions that may be expected."""
    updates_maximum: int = 10_000
    """Answers that may be paid for."""
    updates_minimum: int = 4
    """Answers that are paid for at least, unless a number is given."""
    updates_balanced: int = 400
    """Answers up to which a balance is looked for; a third of them is used."""
    answer_share: Fraction = Fraction(2, 5)
    """Of an epoch, for the noisy answer; the rest is for its tests."""
    records_share: Fraction = Fraction(1, 50)
    """Of all, for the number of records where it is private."""
    false_alarm_share: float = 0.2
    """Of all epochs: those that an exact estimate would end."""
    threshold_shares: tuple[Fraction, ...] = tuple(Fraction(i, 16) for i in range(4, 9))
    """Of an epoch's tests, for the threshold: those that are compared."""
    rough_pieces: int = 2**9
    """Pieces of a law while laws are compared."""
    spendable_share: Fraction = 1 - Fraction(1, 2**20)
    """Of the budget; the rest is for rounding up to units of the ledger."""

    # scope
    scope_share: Fraction = Fraction(19, 20)
    """Of the budget, for what is measured at opening; the rest is for what is outside of it."""
    scope_share_minimum: Fraction = Fraction(1, 100)
    """Of the budget, that the scope takes and that it leaves at least."""
    scope_ways_default: int = 3
    """Attributes that a condition is on at most, where nobody says; fewer if that is too much."""
    scope_error_share: float = 0.01
    """Of the records: a default scope with a larger typical error is on fewer attributes."""
    scope_short_cells: int = 6
    """Cells up to which any values of an attribute are asked for; of longer ones that have an
    order, ranges mostly."""
    scope_cells: int = 2**17
    """Cells of all tables of a scope that is given by a number of attributes; planning takes long
    beyond."""
    scope_ways: int = 4
    """Groups of a scope that are tried for a question; the most precise one answers it."""
    enclosures_tried: int = 16
    """Sets of so many attributes of a question outside of the scope over which what is known is
    looked for; half a millisecond each."""
    enclosure_share: float = 0.2
    """Of the chance that a tested interval misses: for what encloses it; the test has the rest,
    and is hardly wider for it."""
    safe_share: float = 0.5
    """Of the chance that the safe interval of a tested answer misses: for the joint bounds of what
    encloses it; the test has the rest."""
    scope_answers_in_memory: int = 2**16
    """Questions whose estimate is held in memory."""
    scope_group_entries: int = 2**25
    """Numbers of a SELECT times measured values that are followed back."""
    scope_factor_entries: int = 2**22
    """Queries times cells along one attribute, of which combinations are looked for."""
    scope_factor_rows: int = 2**12
    """Queries along one attribute whose cells are written down."""
    scope_rounding: float = 1e-9
    """Of the greatest coefficient: how far a combination may be off by rounding."""

    # session and answering
    texts_in_memory: int = 2**16
    """Questions whose text was read and is not read again."""
    answers_in_memory: int = 2**17
    """Answers that are held in memory; all are in the ledger."""
    dummy_records: int = 10**6
    """Made-up records of a session to try questions out."""
    questions_at_once: int = 64
    """Questions that are tested together."""

    measurement_looks: int = 100
    """Times that a question of many numbers, or with an error, looks whether another process that
    measures for the same session is done; then it is refused."""
    measurement_pause: float = 0.1
    """Seconds between two of them."""

    # group_questions
    group_queries: int = 20_000
    """Queries that one SELECT may need: running totals of quantiles are many."""
    group_learnt: int = 400
    """Answers of one measurement that the estimate learns; those of more would take it minutes."""
    group_planning_seconds: float = 5.0
    """Of planning one of them, as steps of one undisturbed core; the plan is the same on any."""
    group_learnt_points: int = 2**27
    """Those answers times the points of the estimate, for the same reason."""
    groups_in_memory: int = 256
    """Plans of such questions that are held."""

    # purchases
    error_rounding: float = 1e-9
    """Of an error that is asked for: how far one that is known may be above it by rounding."""
    error_margin: float = 1e-3
    """Of what is left, held back where the least error that it buys is told."""
    group_offers: int = 8
    """Budgets that are tried for the groups of an error; two or three are enough unless noise is
    near its grid."""
    bought_scale: float = 2.0**36
    """Steps of noise at most: where less precision is missing, a little more is bought."""

    # knowledge
    sources: int = 32
    """Measurements of many values that a question is looked up in: the scope and the latest
    releases; each costs a few milliseconds for a new question."""
    combined_draws: int = 128
    """Questions that were bought or measured apart, of which combinations are looked for: the
    latest ones; the time grows like their cube."""
    combined_cells: int = 2**14
    """Cells of the attributes of a question that is combined with others, at most."""
    correlation: float = 1e-5
    """Between answers that count as independent, by rounded scales: their variances are raised."""
    null_share: float = 1e-11
    """Of the greatest eigenvalue: below it queries count as linearly dependent."""
    joint_cells: int = 2**18
    """Cells of all attributes of the questions that are combined: on each of them a combination is
    compared with the question."""
    coefficient_rounding: float = 1e-6
    """Of a query's greatest coefficient: how far a combination may be off by rounding in a cell."""
    relation_square: float = 1e-8
    """Of a query's squared length: what a combination may lack by rounding, before that is looked
    at cell by cell."""
    bases_in_memory: int = 64
    """Sets of attributes for which the draws that go with them are held."""
    relation_rounding: float = 1e-9
    """How far a linear combination may be off by rounding, as a share of what it makes."""
    pulls_in_memory: int = 2**10
    """Questions whose way to the measured values of a scope or a release is held."""

    # histogram, where mass may lie
    listed_cells: int = 10**7
    """Cells of a domain that are listed; larger ones have rows that stand for them."""
    support_rows: int = 50_000
    """Rows that stand for a domain at first."""
    support_rows_maximum: int = 500_000
    """Rows beyond which no question gets rows of its own."""
    even_share: float = 0.01
    """Of the start, spread evenly: what a start has nowhere stays possible."""
    fitted_entries: int = 2**26
    """Cells of a domain times tables of a scope from which the estimate starts; else it is even."""
    fitted_sweeps: int = 8
    """Over all tables; the noise is above what further ones move."""
    rows_few: int = 200
    """A question that fewer rows hold for gets rows of its own."""
    rows_gained: int = 2_000
    """Rows that such a question gets."""

    # histogram, learning
    evenness_weight: float = 0.01
    """With 1, records were drawn from the start; they were not."""
    fit_sweeps: int = 5
    """Sweeps over all paid questions after each new one."""
    settled_errors: float = 0.05
    """Standard deviations of the noise: an answer that moves by less ends the sweeps."""
    settled_share: float = 1e-6
    """Of all records: added to that, for answers with hardly any noise."""
    potential_steps: int = 60
    """Steps of Newton's rule for one potential."""
    potential_tolerance: float = 1e-12
    """Of a potential: a step below it is the last."""
    potential_reach: float = 4.0
    """The most that one step moves a potential."""
    fit_levels: int = 2**27
    """Classes times questions that are gone through again; older questions rest."""
    table_cells: int = 2**22
    """Cells of a table that is held for further questions."""
    tables_cells: int = 2**25
    """Cells of all tables that are held."""

    # client
    client_wait: float = 30.0
    """Seconds between two tries, whatever a server says."""
    job_pause: float = 0.2
    """Seconds between the first two looks at a job; each later pause is half as long again."""
    job_pause_most: float = 5.0
    """Where they stop to grow."""


LIMITS: Final = SessionLimits()
