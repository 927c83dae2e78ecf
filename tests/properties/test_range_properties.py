# SPDX-License-Identifier: Apache-2.0
"""Neighbours of a source move the counts of a grid by what a law is told: files and tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import MomentGrid, NumberGrid
from sfumato.vault.mechanisms.searches import read_grids
from sfumato.vault.tables import open_table

FLOATS = st.none() | st.floats() | st.sampled_from(NumberGrid("x").edges)
WHOLES = st.none() | st.integers(-(2**63), 2**63 - 1)
DAYS = st.none() | st.datetimes(min_value=pd.Timestamp(1, 1, 1).to_pydatetime())
KINDS = {
    "floats": (FLOATS, pa.float64(), NumberGrid("x")),
    "whole numbers": (WHOLES, pa.int64(), NumberGrid("x", is_whole=True)),
    "times": (DAYS, pa.timestamp("us"), MomentGrid("x")),
}
SETTINGS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(values, kind, path, form):
    table = pa.table({"x": pa.array(values, kind)})
    if form == "memory":
        return table.to_pandas() if kind != pa.int64() else table
    if form == "parquet":
        pq.write_table(table, path / "t.parquet")
        return str(path / "t.parquet")
    pyarrow.csv.write_csv(table, path / "t.csv")
    return str(path / "t.csv")


def counted(source, grid, unit=None):
    return read_grids(open_table(source), [grid], unit)[0].reveal()


@pytest.mark.parametrize("form", ["memory", "parquet", "csv"])
@pytest.mark.parametrize("what", KINDS)
@SETTINGS
@given(data=st.data())
def test_a_row_more_moves_one_cell_by_one_or_nothing(tmp_path, form, what, data):
    some, kind, grid = KINDS[what]
    values = data.draw(st.lists(some, max_size=6))
    more = [*values, data.draw(some)]
    one = counted(written(values, kind, tmp_path, form), grid)
    other = counted(written(more, kind, tmp_path, form), grid)
    moved = other - one
    assert moved.min() >= 0
    assert moved.sum() <= 1
    assert one.sum() <= len(values)


@SETTINGS
@given(data=st.data())
def test_a_person_more_moves_the_cells_by_at_most_the_bound_on_rows(data):
    """Whose rows are kept is decided by a key, so the rows of all others stay the same."""
    rows = data.draw(st.integers(1, 3))
    values = data.draw(st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10)), max_size=8))
    mine = data.draw(st.lists(st.floats(-10, 10), min_size=1, max_size=6))
    sizes = []
    for people in (values, [*values, *((9, x) for x in mine)]):
        frame = pd.DataFrame(people, columns=["who", "x"]).astype({"who": "int64", "x": "float64"})
        sizes.append(int(counted(frame, NumberGrid("x"), PrivacyUnit("who", rows)).sum()))
    assert 0 <= sizes[1] - sizes[0] <= rows
    assert sizes[1] - sizes[0] == min(rows, len(mine))


def test_a_grid_that_looks_at_other_records_moves_further():
    """The twin: cells between the quantiles of the records themselves move by many."""
    values = np.arange(10.0)
    cells = []
    for records in (values, np.append(values, 1e9)):
        edges = np.linspace(records.min(), records.max(), 5)
        cells.append(np.histogram(records, edges)[0])
    assert np.abs(cells[1] - cells[0]).sum() > 1
