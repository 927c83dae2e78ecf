# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.release.labels import cell_labels, columns_of, texts_of, upper_ends

SIZES = Level("size", ("small", "large"), (0, 0, 1))


def domain() -> Domain:
    return Domain(
        [
            Integer("age", 17, 30, 5),
            Category("town", ("A", "B", "C"), levels=(SIZES,), nulls="missing"),
            Numeric("income", (0, 10, 50.5)),
            DateTime("month", datetime(2024, 1, 1), datetime(2024, 3, 15), "month"),
            DateTime("hour", datetime(2024, 1, 1), datetime(2024, 1, 1, 2), "hour"),
            Boolean("works"),
        ]
    )


def only(workload):
    (term,) = workload.terms
    return term


@pytest.mark.parametrize(
    ("attr", "texts", "ends"),
    [
        ("age", ["age <= 21", "age <= 26", "age <= 30"], [21, 26, 30]),
        ("income", ["income < 10", "income <= 50.5"], [10.0, 50.5]),
        (
            "month",
            ["month <= 2024-01-31", "month <= 2024-02-29", "month <= 2024-03-14"],
            [datetime(2024, 1, 31), datetime(2024, 2, 29), datetime(2024, 3, 14)],
        ),
        (
            "hour",
            ["hour < 2024-01-01 01:00", "hour < 2024-01-01 02:00"],
            [datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 2)],
        ),
    ],
)
def test_prefixes_are_labelled_by_their_upper_end(attr, texts, ends):
    term = only(sf.prefixes(domain(), attr))
    assert texts_of(term).tolist() == texts
    assert columns_of(term)[attr].tolist() == ends


def test_cells_of_a_product_are_labelled_in_row_major_order():
    term = only(sf.marginals(domain(), [("town", "works")]))
    columns = columns_of(term)
    assert columns["town"].tolist() == ["A", "A", "B", "B", "C", "C", "(missing)", "(missing)"]
    assert columns["works"].dtype == np.bool_
    assert columns["works"].tolist() == [False, True] * 4
    assert texts_of(term)[3] == "town = B, works = True"


def test_ranges_have_a_column_for_each_end():
    columns = columns_of(only(sf.ranges(domain(), "income")))
    assert list(columns) == ["income_from", "income_to"]
    assert columns["income_from"].tolist() == [0.0, 0.0, 10.0]
    assert columns["income_to"].tolist() == [10.0, 50.5, 50.5]


def test_windows_run_from_their_first_to_their_last_value():
    term = only(sf.product(domain(), {"age": "windows(2)"}))
    assert texts_of(term).tolist() == ["age from 17 to 26", "age from 22 to 30"]


def test_groups_are_labelled_by_the_level():
    term = only(sf.product(domain(), {"town": "groups(size)"}))
    assert columns_of(term)["town"].tolist() == ["small", "large"]
    assert texts_of(term).tolist() == ["town.size = small", "town.size = large"]


def test_conditions_and_matrices_are_labelled_in_words():
    d = domain()
    conditions = only(sf.predicates(d, [sf.attribute(d, "income") < 10]))
    assert columns_of(conditions) == {"query": np.array(["income < 10"], dtype=object)}
    named = only(sf.explicit(d, ["works"], [[1, 0], [1, 1]], labels=["idle", "all"]))
    assert texts_of(named).tolist() == ["idle", "all"]
    plain = only(sf.product(d, {"works": [[1, 0], [1, 1]]}))
    assert texts_of(plain).tolist() == ["works: matrix 1", "works: matrix 2"]


def test_the_total_of_everything_is_one_query_without_columns():
    term = only(sf.marginals(domain(), 0))
    assert texts_of(term).tolist() == ["everything"]
    assert columns_of(term) == {}


def test_an_attribute_named_like_a_column_of_answers_keeps_apart():
    term = only(sf.marginals(Domain([Boolean("value"), Boolean("age")]), 2))
    assert list(columns_of(term)) == ["value (attribute)", "age"]


def test_a_range_column_never_takes_the_name_of_an_attribute():
    term = only(sf.ranges(Domain([Integer("age", 0, 1), Boolean("age_from")]), "age", ["age_from"]))
    assert list(columns_of(term)) == ["age_from_", "age_to", "age_from"]


def test_whole_numbers_and_times_keep_their_type_and_mixed_labels_do_not():
    assert cell_labels(Integer("age", 3, 5)).dtype == np.int64
    assert cell_labels(domain()["month"]).dtype == np.dtype("datetime64[us]")
    assert cell_labels(Integer("age", 3, 4, nulls="missing")).tolist() == [3, 4, "(missing)"]


def test_integers_beyond_64_bits_are_labelled_exactly():
    huge = Integer("id", 10**30, 10**30 + 1)
    assert cell_labels(huge).tolist() == [10**30, 10**30 + 1]
    assert upper_ends(huge).tolist() == [10**30, 10**30 + 1]
