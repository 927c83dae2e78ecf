# SPDX-License-Identifier: Apache-2.0
"""Counting any values of any domain agrees with a value-by-value count in plain Python."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.vault.count import count_conditions, count_marginals
from sfumato.vault.tables import open_table
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from tests.shared.domain_strategies import booleans, categories, datetimes, integers, numerics
from tests.shared.vault_reference import codes_of, marginal

slow_start = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

MICROSECOND = timedelta(microseconds=1)


def near(edges: list[int]) -> st.SearchStrategy[int]:
    """Whole numbers at and beside the edges, and any of 64 bits."""
    beside = st.builds(lambda e, d: e + d, st.sampled_from(edges), st.integers(-2, 2))
    return beside | st.integers(-(2**63), 2**63 - 1)


def values(attribute: Attribute) -> tuple[st.SearchStrategy[object], pa.DataType]:
    """Values that a column for this attribute may hold, and the type of the column."""
    if isinstance(attribute, Category):
        if isinstance(attribute.values[0], str):
            return st.sampled_from(attribute.values) | st.text(max_size=3), pa.string()
        return near(list(attribute.values)), pa.int64()
    if isinstance(attribute, Integer):
        edges = [attribute.min, attribute.max, *attribute.bounds(attribute.value_count // 2)]
        return near(edges), pa.int64()
    if isinstance(attribute, Numeric):
        edges = st.sampled_from(attribute.edges)
        beside = st.builds(math.nextafter, edges, st.sampled_from([-math.inf, math.inf]))
        return edges | beside | st.floats(), pa.float64()
    if isinstance(attribute, Boolean):
        return st.booleans(), pa.bool_()
    assert isinstance(attribute, DateTime)
    code = st.integers(0, attribute.value_count - 1)
    starts = st.just(attribute.end) | code.map(attribute.bin_start)
    beside = starts.map(lambda m: m if m == datetime.min else m - MICROSECOND)
    return starts | beside | st.datetimes(), pa.timestamp("us")


def fits_words(attribute: Attribute) -> bool:
    numbers = attribute.values if isinstance(attribute, Category) else ()
    if isinstance(attribute, Integer):
        numbers = (attribute.min, attribute.max)
    return all(abs(v) < 2**62 for v in numbers if isinstance(v, int))


@st.composite
def tables(draw: st.DrawFn, most: int = 3) -> tuple[Domain, pa.Table]:
    kinds = (categories, booleans, numerics, datetimes)
    attributes = [
        draw(st.one_of([kind(st.just(name)) for kind in kinds] + [whole(name)]).filter(fits_words))
        for name in ("a", "b", "c")[: draw(st.integers(1, most))]
    ]
    domain = Domain(attributes)
    rows = draw(st.integers(0, 30))
    columns = {}
    for attribute in domain:
        value, kind = values(attribute)
        column = draw(st.lists(st.none() | value, min_size=rows, max_size=rows))
        columns[attribute.name] = pa.array(column, kind)
    return domain, pa.table(columns)


def whole(name: str) -> st.SearchStrategy[Integer]:
    return integers(st.just(name), far=2**61)


@slow_start
@given(tables())
def test_marginals_equal_a_count_by_hand(made):
    domain, rows = made
    sets = [s for ways in range(len(domain) + 1) for s in combinations(domain.names, ways)]
    sets = [s for s in sets if domain.cells(s) <= 10**6]
    counts = count_marginals(open_table(rows), domain, sets)
    codes = codes_of(domain, rows.to_pylist())
    for names in sets:
        np.testing.assert_array_equal(counts.reveal(names), marginal(domain, codes, names))


@slow_start
@given(tables(), st.data())
def test_one_record_more_changes_each_table_by_at_most_one(made, data):
    domain, rows = made
    sets = [(name,) for name in domain.names if domain[name].size <= 10**5]
    extra = {}
    for attribute in domain:
        value, kind = values(attribute)
        extra[attribute.name] = pa.array([data.draw(st.none() | value)], kind)
    more = pa.concat_tables([rows, pa.table(extra)])
    one, other = (count_marginals(open_table(t), domain, sets) for t in (rows, more))
    changes = {int(np.abs(one.reveal(s) - other.reveal(s)).sum()) for s in sets}
    assert changes in ({0}, {1}, set()), "all tables describe the same records"


def conditions(domain: Domain) -> st.SearchStrategy[Condition]:
    def leaf(name: str) -> st.SearchStrategy[Condition]:
        codes = st.lists(st.integers(0, domain[name].size - 1), max_size=6)
        return codes.map(lambda c: In(name, tuple(c)))

    leaves = st.just(Everything()) | st.sampled_from(domain.names).flatmap(leaf)
    return st.recursive(
        leaves,
        lambda parts: (
            parts.map(Not)
            | st.lists(parts, max_size=3).map(lambda p: And(tuple(p)))
            | st.lists(parts, max_size=3).map(lambda p: Or(tuple(p)))
        ),
        max_leaves=8,
    )


def holds(condition: Condition, record: dict[str, int]) -> bool:
    if isinstance(condition, In):
        return record[condition.attribute] in condition.codes
    if isinstance(condition, Not):
        return not holds(condition.part, record)
    if isinstance(condition, And):
        return all(holds(part, record) for part in condition.parts)
    if isinstance(condition, Or):
        return any(holds(part, record) for part in condition.parts)
    return True


CELLS = Domain({"a": 4, "b": 3, "c": 7})


@slow_start
@given(
    st.lists(conditions(CELLS), max_size=12),
    st.lists(st.tuples(*(st.integers(0, s - 1) for s in CELLS.shape)), max_size=25),
)
def test_conditions_equal_a_count_by_hand(asked, codes):
    records = [dict(zip(CELLS.names, row, strict=True)) for row in codes]
    columns = {name: pa.array([r[name] for r in records], pa.int8()) for name in CELLS.names}
    found = count_conditions(open_table(pa.table(columns)), CELLS, asked)
    assert found.reveal().tolist() == [sum(holds(c, r) for r in records) for c in asked]


@slow_start
@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4)), max_size=40),
    st.integers(1, 4),
)
def test_a_privacy_unit_keeps_the_lesser_of_its_rows_and_the_bound(rows, most):
    """The unit is also counted, so that the rows of each are seen; 3 is outside and dropped."""
    domain = Domain([Integer("kind", 0, 2), Integer("person", 0, 4, nulls="missing")])
    table = pa.table(
        {
            "kind": pa.array([kind for kind, _ in rows], pa.int64()),
            "person": pa.array([person for _, person in rows], pa.int64()),
        }
    )
    unit = PrivacyUnit("person", most)
    counts = count_marginals(open_table(table), domain, [("kind", "person")], unit)
    kept = counts.reveal(("kind", "person")).sum(axis=0)
    whole = [sum(1 for k, p in rows if p == person and k != 3) for person in range(5)]
    assert kept.tolist() == [*(min(n, most) for n in whole), 0]
