# SPDX-License-Identifier: Apache-2.0
"""The limits of the workload room in one place: what is refused, where a way of computing changes.

Grouped by the module that reads them. They are public and fixed: the same queries are refused,
written and bounded alike on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "LIMITS",
    "WorkloadLimits",
]


@dataclass(frozen=True, slots=True)
class WorkloadLimits:
    """Sizes that are refused, thresholds between ways of computing, steps of searches."""

    # all rooms
    array_entries: int = 2**27
    """Numbers that may be held in one array, a gigabyte of floats."""

    # queries
    gram_cells: int = 2048
    """Cells of an attribute whose Gram matrix is written out to compare its columns: 32 MB."""
    sparse_entries: int = 2**20
    """Coefficients of a matrix from which on its zeros are left out of products of floats."""
    sparse_part: float = 0.05
    """Part of them that may be other than zero for that to be quicker."""
    matrix_entries_compared: int = 2**26
    """Entries of a matrix of queries whose columns are compared: half a gigabyte."""

    # terms
    product_bits: int = 256
    """Bits after the point of a product of coefficients: its squares stay within floats."""
    queries_compared: int = 64
    """Queries of a set whose columns are compared to find equal ones."""
    entries_compared: int = 2**22
    """Coefficients of an explicit term that are compared to find equal ones: 32 MB."""
    cells_tabulated: int = 2**20
    """Cells over which conditions are tabulated; over more they are counted one by one."""
    matrix_entries: int = 2**20
    """Entries up to which disjoint sets of cells are a matrix; with more they are groups."""

    # predicates
    condition_values: int = 10_000
    """Values listed in one condition."""
    condition_depth: int = 100
    """Levels of brackets in a condition: what walks over one may call itself so often."""

    # build
    tables_unchecked: int = 1000
    """Tables whose cells are not added up beforehand; more take some time to list."""
    marginal_cells: int = 2**29
    """Cells of very many tables together; a release measures half as many values."""
    conditions: int = 2**16
    """Conditions of one call of `predicates`."""
    terms: int = 2**18
    """Groups of queries in one workload; 100 attributes have 161,700 triples."""
    moment_columns: int = 5
    """Columns whose moments are measured together: 3^5 cells, as many sums in one SQL query."""

    # representations
    recoded_sums: int = 16
    """Sums of one set of queries that are written over other cells: more are tables of cells."""
    recoded_cells: int = 4
    """Cells of an integer that are no more than those of its moments: then it keeps them."""
    recoded_error: float = 1e-9
    """What may be left of a query that is a polynomial of a column, in parts of it: rounding."""
    centred_weight: float = 2.0**-10
    """What a sum matters beside the one around the middle, from which it follows: little."""

    # workload
    weight: float = 1e50
    """The maximum weight: squares of weights times squares of anything stay within floats."""

    # workload_file
    file_tables: int = 10_000
    """Tables ``[[workload]]`` of one file."""

    # constraints
    published_gap: float = 1e-9
    """How far public numbers may disagree, in parts of the total: by rounding only."""
    linked_classes: int = 2**24
    """Combinations of classes that conditions which share attributes are looked up in: 16 MB."""

    # workload, its scans
    cells_summed: int = 2**24
    """Cells of a table that others are summed from: it takes less than a scan of a table."""
    cells_per_query: int = 2**22
    """Cells that one query of an engine counts: its result stays small."""
    tables_per_query: int = 16
    """Tables that one query of an engine counts."""

    # question
    question_classes: int = 2**20
    """Kinds of records that one question tells apart: 8 MB of coefficients."""
    questions: int = 10_000
    """Queries of a workload that are asked one by one."""
    question_bits: int = 40
    """Bits after the point of a coefficient of a question."""
    question_coefficient: int = 2**50
    """The first coefficient that is too large, in steps; floats hold those below exactly."""

    # predicates, primitive_rows
    truth_cells: int = 2**16
    """Cells of a condition's truth table that is hashed; a wider one enters as it is written."""
    axis_queries: int = 2**12
    """Queries of one factor that get a symbol each."""
    product_boxes: int = 2**10
    """Boxes that one product is split into."""
    rows_read: int = 2**12
    """Rows of an explicit term that are read one by one."""
    entries_read: int = 2**26
    """Coefficients of an explicit term whose rows are read one by one."""
    product_attributes: int = 200
    """Attributes of a product that is read: diagrams of it call themselves so often."""

    # normal_form
    diagram_steps: int = 2**20
    """Symbols that are looked at in the diagram of one set of attributes; beyond it boxes enter
    one by one."""
    irregular_products: int = 8
    """Irregular boxes that become products of their own."""
    condition_rows: int = 2**12
    """Rows of an irregular box that become conditions, where there are more such boxes."""
    boxes: int = 2**18
    """Boxes of all diagrams together."""
    queries_placed: int = 2**26
    """Queries of one term that are placed by its factors: half a gigabyte of row numbers."""
    queries_looked_up: int = 2**22
    """Queries of one term that are placed one by one, each by a look-up."""

    # clauses, conditions as boxes
    condition_clauses: int = 64
    """Clauses of one condition; one with more counts as a condition that may always hold."""
    clause_bits: int = 2**27
    """Bits of all clauses over all classes of cells, a byte each: 128 MB."""

    # clauses, from some cells upwards
    climb_sweeps: int = 30
    """Sweeps over the attributes, at the latest; a climb ends when no cell gets better."""
    climb_truth_values: int = 2**22
    """Truth values of one step, held at once."""
    climb_starts: int = 256
    """Cells from which a search climbs at first."""
    climb_bits: int = 2**27
    """Bits that are looked at in one sweep from these cells."""

    # clauses, weights that are split
    split_steps: int = 60
    """Steps of the subgradient for all partial choices alike."""
    split_multiplications: int = 2**28
    """Multiplications of these steps."""
    split_parts: int = 2**23
    """Parts of weights that are held at once: 32 MB."""
    rarity: float = 1e-3
    """The minimum of the share by rarity: every cluster that restricts a clause has a part."""
    rescaled_sum: float = 2.0**-30
    """Parts that add up to less than this are not rescaled to their weight."""

    # clauses, the search by branch and bound
    search_multiplications: float = 1.1e11
    """Multiplications of the bounds of one search: some seconds of one core."""
    rough_combinations: int = 128
    """Combinations of classes in a cluster of a first bound."""
    refined_combinations: int = 1024
    """Combinations of classes in a cluster of a better bound."""
    branch_classes: int = 16
    """Combinations of classes up to which small attributes are chosen at once."""
    classes_compared: int = 4096
    """Classes of an attribute that are compared to drop dominated ones."""
    search_truth_values: int = 2**24
    """Truth values that a search holds at once: 16 MB."""
    refined_steps: int = 3
    """Steps of the subgradient for a better bound."""
    choices_refined: int = 2**9
    """Partial choices that are looked at in one turn."""
    choices_completed: int = 32
    """Partial choices of a turn that are completed to cells."""

    # sensitivity
    column_numbers: int = 2**24
    """Numbers held at once while blocks are searched and combined: 128 MB."""
    column_comparisons: int = 2**31
    """Comparisons spent on dropping dominated cells; beyond, they stay, which costs time only."""
    column_rivals: int = 512
    """Cells that every other one is compared with."""
    conditions_counted: int = 4096
    """Conditions of which it is computed how many hold at once; more count all."""

    # sql
    sql_characters: int = 20_000
    """Characters of one text."""
    sql_depth: int = 40
    """Brackets and CASE inside each other, and prefix operators in a row."""
    sql_label_characters: int = 1_000
    """Characters of an aggregate, and of a condition, that an answer repeats."""
    sql_conditions: int = 1024
    """Groups of a condition that is too wide to tabulate, each counted on its own."""
    sql_expression_cells: int = 2**16
    """Cells on which a function of columns is computed, one by one: a second or two."""
    sql_expression_steps: int = 2**22
    """Cells on which all functions of one text are computed together: some seconds."""
    sql_digits: int = 30
    """Digits before or after the point that numbers are rounded to."""
    plain_count_attributes: int = 16
    """Attributes of a plain count: its table has 2 to this power of classes."""
    plain_count_characters: int = 2_000
    """Characters of a plain count; longer texts are for the parser."""


LIMITS: Final = WorkloadLimits()
